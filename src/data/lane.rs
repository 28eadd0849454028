//! A lane: records that are alike, lent without decoding any of them; and how several lanes are merged.
//!
//! ```text
//! entries   .. | header fields | key | value | header fields | key | value | ..
//! offsets   .. 1200 1322 1444 ..        entry 17 is 1200..1322
//! ```
//!
//! All records are certainly shown, unless a newer one of the same key is: a source answers for that before it gives a
//! lane away ([`Cursor::hold_lane`]). Header fields have one length and keys have one, so a record is two offsets. Its
//! bytes are not yet checked: a record that does not add up is not lent, and its cursor says what is wrong with it.
//!
//! Example of a merge: three lanes, and a source that has none, which is on `k`. The bound is `k`.
//!
//! ```text
//! lane      before                  after       lent
//! 0         a c d (and then more)   k           a c d
//! 1         b d m                   m           b
//! 2         e f (and no more)       f           e f
//! ```
//!
//! The lane with the least head leads, as long as its head is below the second least. Heads are compared by the first
//! eight bytes of their keys. Only where these are equal whole keys are, and where these are equal sequence numbers: of
//! both `d` the newer one comes first, and is lent. The merge ends before the bound, when no more is to be lent, and on
//! the last record of a lane, because what is behind it is not known: here on `f`, which would be lent before `k`. All
//! that was passed over is decided about.
//!
//! [`Cursor::hold_lane`]: crate::data::cursor::Cursor::hold_lane

use std::cmp::Ordering;

use crate::base::Seq;
use crate::base::record::key_prefix;
use crate::data::lent::{Ask, Lent, Stand};

/// The most lanes that are merged.
pub const MOST_LANES: usize = 16;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    entries: &'a [u8],
    offsets: &'a [[u8; 2]],
    header_len: usize,
    key_len: usize,
    value_most: usize,
    /// The number by which the call's [`Lent`] knows the bytes.
    owner: u32,
}

/// The shape of a lane in the body of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneShape {
    /// The records lie before the offsets.
    pub offsets_at: usize,
    /// How many records there are.
    pub count: usize,
    /// Bytes before each key.
    pub header_len: usize,
    /// Bytes of each key: at least one.
    pub key_len: usize,
    /// A value that is longer does not add up.
    pub value_most: usize,
}

impl LaneShape {
    /// The lane in this body, which [`Lent::hold`] knows by the number `owner`.
    #[inline(always)]
    pub fn lane<'a>(&self, body: &'a [u8], owner: u32) -> Lane<'a> {
        let (entries, rest) = body.split_at(self.offsets_at);
        Lane {
            entries,
            offsets: &rest.as_chunks().0[..self.count],
            header_len: self.header_len,
            key_len: self.key_len,
            value_most: self.value_most,
            owner,
        }
    }
}

impl<'a> Lane<'a> {
    /// Where record `at` begins; for the number of records, where the last one ends.
    #[inline(always)]
    fn offset(&self, at: usize) -> usize {
        let offset = self.offsets.get(at).map(|bytes| u16::from_le_bytes(*bytes));
        offset.map_or(self.entries.len(), usize::from)
    }

    /// The key of the record that begins and ends at these offsets, if it adds up.
    #[inline(always)]
    fn key_in(&self, start: usize, end: usize) -> Option<&'a [u8]> {
        let behind = self.entries.get(start + self.header_len..end)?;
        let (key, value) = behind.split_at_checked(self.key_len)?;
        (value.len() <= self.value_most).then_some(key)
    }

    /// The key of record `at`, if that adds up.
    #[inline]
    pub fn key(&self, at: usize) -> Option<&'a [u8]> {
        self.key_in(self.offset(at), self.offset(at + 1))
    }

    #[inline(always)]
    fn push(&self, start: usize, end: usize, lent: &mut Lent) {
        let key_at = start + self.header_len;
        lent.push(self.owner, key_at, key_at + self.key_len, end);
    }

    /// Lends the records from the `first` on, of each key the newest, as long as `ask` and `lent` admit; returns where it
    /// stands then, and at which record.
    #[inline]
    pub fn lend(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (Stand, usize) {
        let bound = ask.bound;
        let bound_prefix = bound.map_or(u64::MAX, key_prefix);
        let (mut at, mut start) = (first, self.offset(first));
        // The first may be an older version of the key that was decided about last.
        let (mut before, mut before_prefix) = (ask.decided, key_prefix(ask.decided));
        while at < self.offsets.len() {
            let end = self.offset(at + 1);
            // Where it stands is always a record that adds up.
            let Some(key) = self.key_in(start, end) else {
                break;
            };
            let prefix = key_prefix(key);
            let is_beyond = prefix >= bound_prefix && bound.is_some_and(|bound| key >= bound);
            if is_beyond || lent.is_full() {
                return (Stand::behind(at != first), at);
            }
            if prefix != before_prefix || key != before {
                self.push(start, end, lent);
            }
            (before, before_prefix) = (key, prefix);
            (start, at) = (end, at + 1);
        }
        match at.checked_sub(1) {
            Some(last) if at > first => (Stand::OnLast, last),
            _ => (Stand::Same, first),
        }
    }

    /// Like [`Lane::lend`], backwards from `first`, which adds up: versions of a key come oldest first, and the last one
    /// is lent.
    pub fn lend_back(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (Stand, usize) {
        let mut at = first;
        let mut here = self.key(at);
        while let Some(key) = here {
            let is_beyond = ask.bound.is_some_and(|bound| key <= bound);
            let before = at.checked_sub(1).map(|before| self.key(before));
            // The record before may be a newer version, so it has to add up.
            if is_beyond || lent.is_full() || before == Some(None) {
                break;
            }
            here = before.flatten();
            if here != Some(key) {
                self.push(self.offset(at), self.offset(at + 1), lent);
            }
            if here.is_none() {
                return (Stand::OnLast, at);
            }
            at -= 1;
        }
        (Stand::behind(at != first), at)
    }
}

/// A lane in a merge, and the record on which it stands.
#[derive(Clone, Copy)]
struct Runner<'a> {
    lane: Lane<'a>,
    cursor: usize,
    at: usize,
    place: (usize, usize),
    key: &'a [u8],
}

impl<'a> Runner<'a> {
    /// Goes to the next record, if there is one that adds up; returns the prefix of its key.
    #[inline(always)]
    fn step(&mut self) -> Option<u64> {
        let (start, end) = (self.place.1, self.lane.offset(self.at + 2));
        if self.at + 1 >= self.lane.offsets.len() {
            return None;
        }
        self.key = self.lane.key_in(start, end)?;
        (self.at, self.place) = (self.at + 1, (start, end));
        Some(key_prefix(self.key))
    }
}

/// A lane's place in the order of a merge.
#[derive(Clone, Copy)]
struct Head {
    /// The prefix of its key: mostly enough to compare.
    prefix: u64,
    /// Index into the runners; one more than these have for the bound.
    runner: usize,
}

/// Lanes in a merge; see the file's head.
pub struct LaneMerge<'a> {
    runners: Vec<Runner<'a>>,
    /// All lanes and the bound, in order.
    order: Vec<Head>,
}

/// Where a merge has left the lane of a cursor.
#[derive(Clone, Copy, Default)]
pub struct Left {
    /// The cursor.
    pub cursor: usize,
    /// The record on which it stands.
    pub at: usize,
    /// The prefix of that record's key.
    pub prefix: u64,
}

impl<'a> LaneMerge<'a> {
    /// A merge of so many lanes.
    pub fn with_capacity(lanes: usize) -> Self {
        LaneMerge {
            runners: Vec::with_capacity(lanes),
            order: Vec::with_capacity(lanes + 1),
        }
    }

    /// Adds the lane of a cursor from record `at` on, which adds up, and comes after those of the lanes before.
    pub fn push(&mut self, cursor: usize, lane: Lane<'a>, at: usize) {
        let place = (lane.offset(at), lane.offset(at + 1));
        let key = lane.key_in(place.0, place.1);
        let key = key.expect("a cursor in a lane is on a record that adds up");
        self.order.push(Head {
            prefix: key_prefix(key),
            runner: self.runners.len(),
        });
        self.runners.push(Runner {
            lane,
            cursor,
            at,
            place,
            key,
        });
    }

    /// Lends the records of all lanes in order, of each key the newest, as long as `ask` and `lent` admit. `seq` is the
    /// sequence number of a record of a cursor's lane. After [`Stand::OnLast`] the first lane is on the last record that
    /// was decided about, and all others are behind it.
    pub fn lend(
        &mut self,
        ask: &Ask<'a>,
        lent: &mut Lent,
        seq: impl Fn(usize, usize) -> Seq,
    ) -> Stand {
        let bound = Head {
            prefix: ask.bound.map_or(u64::MAX, key_prefix),
            runner: self.runners.len(),
        };
        let is_within = |head: &&Head| {
            let is_smaller = |bound| self.runners[head.runner].key < bound;
            head.prefix < bound.prefix
                || (head.prefix == bound.prefix && ask.bound.is_none_or(is_smaller))
        };
        let within = self.order.iter().take_while(is_within).count();
        self.order.insert(within, bound);
        let (mut before, mut before_prefix) = (ask.decided, key_prefix(ask.decided));
        let mut is_moved = false;
        loop {
            let first = self.order[0];
            let Some(runner) = self.runners.get_mut(first.runner) else {
                return Stand::behind(is_moved);
            };
            let limit = self.order[1].prefix;
            let mut prefix = first.prefix;
            loop {
                if lent.is_full() {
                    self.order[0].prefix = prefix;
                    return Stand::behind(is_moved);
                }
                if prefix != before_prefix || runner.key != before {
                    runner.lane.push(runner.place.0, runner.place.1, lent);
                }
                (before, before_prefix, is_moved) = (runner.key, prefix, true);
                let Some(next) = runner.step() else {
                    self.order[0].prefix = prefix;
                    return Stand::OnLast;
                };
                prefix = next;
                if prefix >= limit {
                    break;
                }
            }
            self.sort_in(prefix, ask.bound, &seq);
        }
    }

    /// Sorts in the first lane, which has moved to a key with this prefix.
    #[inline(always)]
    fn sort_in(&mut self, prefix: u64, bound: Option<&[u8]>, seq: &impl Fn(usize, usize) -> Seq) {
        let LaneMerge { runners, order } = self;
        let [hole, behind @ ..] = &mut order[..] else {
            return;
        };
        let (runner, mut hole) = (hole.runner, hole);
        for next in behind {
            let is_before = next.prefix < prefix
                || (next.prefix == prefix && is_before(runners, (next.runner, runner), bound, seq));
            if !is_before {
                break;
            }
            *hole = *next;
            hole = next;
        }
        *hole = Head { prefix, runner };
    }

    /// Where each lane stands, nearly in order.
    pub fn left(&self) -> impl Iterator<Item = Left> {
        self.order.iter().filter_map(|head| {
            let runner = self.runners.get(head.runner)?;
            Some(Left {
                cursor: runner.cursor,
                at: runner.at,
                prefix: head.prefix,
            })
        })
    }
}

/// Whether one runner, or the bound, comes before another runner.
#[cold]
fn is_before(
    runners: &[Runner<'_>],
    (one, other): (usize, usize),
    bound: Option<&[u8]>,
    seq: &impl Fn(usize, usize) -> Seq,
) -> bool {
    let other = &runners[other];
    let Some(one) = runners.get(one) else {
        return bound.is_some_and(|bound| bound <= other.key);
    };
    match one.key.cmp(other.key) {
        Ordering::Equal => seq(one.cursor, one.at) > seq(other.cursor, other.at),
        keys => keys.is_lt(),
    }
}

#[cfg(test)]
mod tests;
