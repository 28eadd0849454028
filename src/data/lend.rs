//! How lanes lend: one alone, in both directions, and several merged.
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
//! that was passed over is decided about. Then the cursor of that lane goes on; if it is in a certain lane again, the merge
//! has that one instead and goes on too, with all others as they stand (merge.rs).
//!
//! A lane that lends alone mostly lends all its records in one stretch, by their offsets and hash bytes. Where two of
//! these that follow each other are equal, or the bound is near, it looks at each record.

use std::cmp::Ordering;

use crate::base::record::key_prefix;
use crate::base::{Seq, prefetch};
use crate::data::lane::{Lane, LaneShape};
use crate::data::lent::{Ask, Held, Lent, Place, Stand};

/// The most lanes that are merged.
pub const MOST_LANES: usize = 16;

/// The place of record `at` of a lane, which adds up.
fn place(lane: &Lane<'_>, at: usize) -> Place {
    let key_at = lane.offset(at) + lane.shape.header_len;
    let value_at = key_at + lane.shape.key_len;
    Place::new(lane.owner, key_at, value_at, lane.offset(at + 1))
}

impl Lane<'_> {
    /// Lends the records from the `first` on, of each key the newest, as long as `ask` and `lent` admit; returns where it
    /// stands then, and at which record.
    pub fn lend(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (Stand, usize) {
        match self.lend_stretch(first, ask, lent) {
            Some(stand) => stand,
            None => self.lend_each(first, ask, lent),
        }
    }

    /// The same without a look at each record, if all from the `first` to the last one that `lent` has room for are
    /// items: with different keys, behind the one that was decided about last, before the bound.
    fn lend_stretch(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> Option<(Stand, usize)> {
        let (count, mut room) = (self.shape.count, lent.room());
        let end = count.min(first.saturating_add(room.items()));
        if end <= first + 1 {
            return None;
        }
        // Where it stands then has to add up, too.
        let stand = end.min(count - 1);
        let (items, start) = (end - first, self.offset(first));
        let bytes = self.offset(end).wrapping_sub(start);
        let is_within = |bound| self.key(end - 1).is_some_and(|last| last < bound);
        let fits = ask.bound.is_none_or(is_within)
            && self.are_distinct(first..stand + 1)
            && self.key_at(start) != ask.decided
            && room.take_all(items, bytes - items * self.shape.header_len);
        if !fits {
            return None;
        }
        lent.extend(self, first..end, room);
        Some(match end == count {
            true => (Stand::OnLast, stand),
            false => (Stand::Behind, stand),
        })
    }

    fn lend_each(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (Stand, usize) {
        let bound = ask.bound;
        let bound_prefix = bound.map_or(u64::MAX, key_prefix);
        let (mut at, mut start) = (first, self.offset(first));
        let mut before_prefix = key_prefix(ask.decided);
        // The records from here on are items.
        let (mut from, mut room) = (first, lent.room());
        let mut is_stopped = false;
        while at < self.shape.count {
            let end = self.offset(at + 1);
            // Where it stands is always a record that adds up.
            if !self.adds_up(start, end) {
                break;
            }
            let prefix = self.prefix_at(start);
            let is_beyond = || bound.is_some_and(|bound| self.key_at(start) >= bound);
            is_stopped = room.is_none() || (prefix >= bound_prefix && is_beyond());
            if is_stopped {
                break;
            }
            if prefix == before_prefix && self.is_again(at, first, ask.decided) {
                lent.extend(self, from..at, room);
                from = at + 1;
            } else {
                room.take(end - start - self.shape.header_len);
            }
            before_prefix = prefix;
            (start, at) = (end, at + 1);
        }
        lent.extend(self, from..at, room);
        match at.checked_sub(1) {
            _ if is_stopped => (Stand::behind(at != first), at),
            Some(last) if at > first => (Stand::OnLast, last),
            _ => (Stand::Same, first),
        }
    }

    /// Whether record `at`, which adds up, is an older version of the key before it: the `first` one of that which was
    /// decided about last.
    #[cold]
    fn is_again(&self, at: usize, first: usize, decided: &[u8]) -> bool {
        match at > first {
            true => self.key(at) == self.key(at - 1),
            false => self.key(at) == Some(decided),
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
                lent.push(place(self, at));
            }
            if here.is_none() {
                return (Stand::OnLast, at);
            }
            at -= 1;
        }
        (Stand::behind(at != first), at)
    }
}

/// A lane in a merge, and the record on which it stands. Its bytes are those that are held by its owner's number: the
/// cursors move on while they are merged.
struct Runner {
    shape: LaneShape,
    owner: u32,
    cursor: usize,
    at: usize,
    start: usize,
    end: usize,
}

impl Runner {
    /// On record `at` of the lane of a cursor, which adds up and whose bytes are held.
    #[inline]
    fn new(cursor: usize, lane: &Lane<'_>, at: usize) -> Runner {
        let (start, end) = (lane.offset(at), lane.offset(at + 1));
        debug_assert!(lane.adds_up(start, end));
        Runner {
            shape: lane.shape,
            owner: lane.owner,
            cursor,
            at,
            start,
            end,
        }
    }

    #[inline(always)]
    fn body<'a>(&self, held: Held<'a>) -> &'a [u8] {
        held.bytes(self.owner)
    }

    /// Goes to the next record in its body, if there is one that adds up; returns the prefix of its key. Prefetches the
    /// one after that.
    #[inline(always)]
    fn step(&mut self, body: &[u8]) -> Option<u64> {
        let (next, start) = (self.at + 1, self.end);
        let end = self.shape.offset_in(body, next + 1);
        if next >= self.shape.count || !self.shape.adds_up(start, end) {
            return None;
        }
        let ahead = body.get(end..);
        if let Some(ahead) = ahead.and_then(|ahead| ahead.first_chunk::<65>()) {
            prefetch(&ahead[0]);
            prefetch(&ahead[64]);
        }
        (self.at, self.start, self.end) = (next, start, end);
        Some(self.shape.prefix_in(body, start))
    }

    fn key<'a>(&self, held: Held<'a>) -> &'a [u8] {
        self.shape.key_in(self.body(held), self.start)
    }

    #[inline(always)]
    fn place(&self) -> Place {
        let key_at = self.start + self.shape.header_len;
        Place::new(self.owner, key_at, key_at + self.shape.key_len, self.end)
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
#[derive(Default)]
pub struct LaneMerge {
    runners: Vec<Runner>,
    /// All lanes and the bound, in order.
    order: Vec<Head>,
    /// The last record that was decided about, if its cursor has gone on to another lane since.
    passed: Option<Runner>,
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

impl LaneMerge {
    /// Makes room for so many lanes.
    pub fn reserve(&mut self, lanes: usize) {
        self.runners.reserve(lanes);
        self.order.reserve(lanes + 1);
    }

    /// Lets go of all lanes.
    pub fn clear(&mut self) {
        self.runners.clear();
        self.order.clear();
        self.passed = None;
    }

    /// Adds the lane of a cursor, whose bytes are held, from record `at` on, which adds up, and comes after those of the
    /// lanes before.
    pub fn push(&mut self, cursor: usize, lane: &Lane<'_>, at: usize) {
        let runner = Runner::new(cursor, lane, at);
        self.order.push(Head {
            prefix: lane.prefix_at(runner.start),
            runner: self.runners.len(),
        });
        self.runners.push(runner);
    }

    /// Called when all lanes are added: the merge ends before this key.
    pub fn begin(&mut self, bound: Option<&[u8]>, held: Held<'_>) {
        let prefix = bound.map_or(u64::MAX, key_prefix);
        let is_within = |head: &&Head| {
            let is_smaller = |bound| self.runners[head.runner].key(held) < bound;
            head.prefix < prefix || (head.prefix == prefix && bound.is_none_or(is_smaller))
        };
        let within = self.order.iter().take_while(is_within).count();
        let runner = self.runners.len();
        self.order.insert(within, Head { prefix, runner });
    }

    /// Where the first lane stands.
    pub fn first(&self) -> Left {
        let [first, ..] = self.order[..] else {
            unreachable!("a merge has lanes");
        };
        self.left_by(first).expect("a lane is before the bound")
    }

    /// After [`Stand::OnLast`] the cursor of the first lane has gone on to this one.
    pub fn go_on(&mut self, lane: &Lane<'_>, at: usize) {
        let Head { runner, .. } = self.order[0];
        let first = &mut self.runners[runner];
        let next = Runner::new(first.cursor, lane, at);
        self.order[0].prefix = lane.prefix_at(next.start);
        self.passed = Some(std::mem::replace(first, next));
    }

    /// Lends the records of all lanes in order, of each key the newest, as long as `ask` and `lent` admit; its bound is
    /// the one with which the merge began. `seq` is the sequence number of a record of a cursor's lane. After
    /// [`Stand::OnLast`] the first lane is on the last record that was decided about, and all others are behind it.
    pub fn lend(
        &mut self,
        ask: &Ask<'_>,
        lent: &mut Lent,
        seq: impl Fn(usize, usize) -> Seq,
    ) -> Stand {
        let (mut places, held) = lent.places();
        // The lane of the last record that was decided about, and where that begins.
        let mut before = None;
        let mut before_prefix = key_prefix(ask.decided);
        if let Some(passed) = &self.passed {
            before_prefix = key_prefix(passed.key(held));
            // The cursor has gone on, and others may come before it now.
            self.sort_in(self.order[0].prefix, (ask.bound, held), &seq);
        }
        loop {
            let Head { mut prefix, runner } = self.order[0];
            if runner == self.runners.len() {
                return Stand::behind(before.is_some());
            }
            let limit = self.order[1].prefix;
            loop {
                if places.are_full() {
                    self.order[0].prefix = prefix;
                    return Stand::behind(before.is_some());
                }
                let is_again =
                    prefix == before_prefix && self.is_again(runner, before, (ask, held));
                let first = &mut self.runners[runner];
                if !is_again {
                    places.push(first.place());
                }
                (before, before_prefix) = (Some((runner, first.start)), prefix);
                let Some(next) = first.step(first.body(held)) else {
                    self.order[0].prefix = prefix;
                    return Stand::OnLast;
                };
                prefix = next;
                if prefix >= limit {
                    break;
                }
            }
            self.sort_in(prefix, (ask.bound, held), &seq);
        }
    }

    /// Whether a runner is on an older version of the key that was decided about last: `before`, by its lane and where
    /// it begins, or the one that was passed, or that of `ask`.
    #[cold]
    fn is_again(
        &self,
        runner: usize,
        before: Option<(usize, usize)>,
        (ask, held): (&Ask<'_>, Held<'_>),
    ) -> bool {
        let before = match (before, &self.passed) {
            (Some((runner, start)), _) => {
                let runner = &self.runners[runner];
                runner.shape.key_in(runner.body(held), start)
            }
            (None, Some(passed)) => passed.key(held),
            (None, None) => ask.decided,
        };
        self.runners[runner].key(held) == before
    }

    /// Sorts in the first lane, which has moved to a key with this prefix.
    #[inline(always)]
    fn sort_in(
        &mut self,
        prefix: u64,
        bound: (Option<&[u8]>, Held<'_>),
        seq: &impl Fn(usize, usize) -> Seq,
    ) {
        let LaneMerge { runners, order, .. } = self;
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
    pub fn left(&self) -> impl DoubleEndedIterator<Item = Left> {
        self.order.iter().filter_map(|head| self.left_by(*head))
    }

    /// None by the bound.
    fn left_by(&self, head: Head) -> Option<Left> {
        let runner = self.runners.get(head.runner)?;
        Some(Left {
            cursor: runner.cursor,
            at: runner.at,
            prefix: head.prefix,
        })
    }
}

/// Whether one runner, or the bound, comes before another runner.
#[cold]
fn is_before(
    runners: &[Runner],
    (one, other): (usize, usize),
    (bound, held): (Option<&[u8]>, Held<'_>),
    seq: &impl Fn(usize, usize) -> Seq,
) -> bool {
    let other = &runners[other];
    let Some(one) = runners.get(one) else {
        return bound.is_some_and(|bound| bound <= other.key(held));
    };
    match one.key(held).cmp(other.key(held)) {
        Ordering::Equal => seq(one.cursor, one.at) > seq(other.cursor, other.at),
        keys => keys.is_lt(),
    }
}

#[cfg(test)]
mod tests;
