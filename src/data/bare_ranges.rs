//! Ranges of keys in which readers found no item, though there are records: later readers pass over them unread.
//!
//! ```text
//! keys        a                 f                        m               s
//! records     dead dead dead dead dead dead dead dead     item item      dead dead dead ...
//! ranges      |---- bare from 70 ---------------|                        |-- watched from 80 ...
//! ```
//!
//! 1. A reader at sequence number s that passed over many dead records hands in the range in which it found no item. The
//!    range is *watched* from w on, the last number that was given out then. From there on, every put inside it takes its
//!    key out of the range before any reader can see it.
//! 2. A reader at s >= w that finds no item in the whole range makes it *bare* from s on: it would have found puts up
//!    to s, unless they are dead for good, and later puts take their keys out of the range. So no reader at s or above
//!    finds an item in the rest of the range. If there was no write to the container since s, the range is bare at
//!    once.
//! 3. Deletes and expiry make nothing live, and a record that is gone by settled time is gone for every later reader.
//!    So only such records count as dead in 1 and 2, and a reader of an earlier moment than now asks for no bare range.
//!
//! Invariant: ranges are sorted, not empty, and do not overlap.

use std::sync::Arc;

use crate::base::Seq;
use crate::base::record::{Header, key_prefix};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::data::batch::KeyRange;

/// Where fewer dead records were passed, nothing is remembered: a search costs as much as some of them.
pub const PASSED_LEAST: usize = 32;

/// At most so many ranges: a put inside the hull of all looks through them.
const RANGES_MOST: usize = 16;

/// A range without an item, as a reader found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareRange {
    /// The range.
    pub range: KeyRange,
    /// About how many dead records the reader passed in it.
    pub passed: usize,
}

#[derive(Clone, Debug)]
struct Watched {
    range: KeyRange,
    from: Seq,
    bare_from: Option<Seq>,
    passed: usize,
}

impl Watched {
    fn is_bare_for(&self, max: Seq) -> bool {
        self.bare_from.is_some_and(|from| from <= max)
    }
}

/// See the file's head.
#[derive(Debug)]
pub struct BareRanges {
    /// All keys in ranges have prefixes from the first to the last; none: from the highest to the lowest.
    first_prefix: AtomicU64,
    last_prefix: AtomicU64,
    ranges: Mutex<Vec<Watched>>,
}

impl Default for BareRanges {
    fn default() -> Self {
        BareRanges {
            first_prefix: AtomicU64::new(u64::MAX),
            last_prefix: AtomicU64::new(0),
            ranges: Mutex::default(),
        }
    }
}

impl BareRanges {
    /// Notes a write that no reader sees yet. The caller holds the lock under which `watch` is called.
    #[inline(always)]
    pub fn note(&self, header: &Header, key: &[u8]) {
        // Mostly there are none, and every write asks.
        if !self.is_empty() {
            self.note_one(header, key);
        }
    }

    #[inline(never)]
    fn note_one(&self, header: &Header, key: &[u8]) {
        if self.may_hold(key_prefix(key)) && !header.is_tombstone() {
            self.take_out(key);
        }
    }

    /// The same for more writes than are told one by one.
    pub fn clear(&self) {
        let mut ranges = self.ranges.lock();
        ranges.clear();
        self.note_hull(&ranges);
    }

    #[inline]
    fn may_hold(&self, prefix: u64) -> bool {
        self.first_prefix.load(Ordering::Relaxed) <= prefix
            && prefix <= self.last_prefix.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first_prefix.load(Ordering::Relaxed) > self.last_prefix.load(Ordering::Relaxed)
    }

    fn note_hull(&self, ranges: &[Watched]) {
        let first = ranges.first().map(|first| key_prefix(&first.range.from));
        let last = ranges.last().map(|last| match &last.range.to {
            Some(to) => key_prefix(to),
            None => u64::MAX,
        });
        let (first, last) = first.zip(last).unwrap_or((u64::MAX, 0));
        self.first_prefix.store(first, Ordering::Relaxed);
        self.last_prefix.store(last, Ordering::Relaxed);
    }

    #[cold]
    fn take_out(&self, key: &[u8]) {
        let mut ranges = self.ranges.lock();
        let Some(at) = ranges.iter().position(|one| one.range.contains(key)) else {
            return;
        };
        let mut low = ranges.remove(at);
        // Each side has about half of the dead records.
        low.passed /= 2;
        let mut high = low.clone();
        low.range.to = Some(key.to_vec());
        high.range.from = after(key);
        for part in [high, low] {
            if part.passed >= PASSED_LEAST && !part.range.is_empty() {
                ranges.insert(at, part);
            }
        }
        self.note_hull(keep_most(&mut ranges));
    }

    /// The bare range, for a reader at `max`, that the key is in.
    #[inline]
    pub fn around(&self, key: &[u8], max: Seq) -> Option<KeyRange> {
        match self.may_hold(key_prefix(key)) {
            true => self.find(max, |range| range.contains(key)),
            false => None,
        }
    }

    /// The same of the keys before this one, as near as possible, or of the last ones.
    pub fn before(&self, key: Option<&[u8]>, max: Seq) -> Option<KeyRange> {
        self.find(max, |range| match (key, &range.to) {
            (_, None) => key.is_none_or(|key| range.from.as_slice() < key),
            (None, Some(_)) => false,
            (Some(key), Some(to)) => range.from.as_slice() < key && key <= to.as_slice(),
        })
    }

    #[cold]
    fn find(&self, max: Seq, is_it: impl Fn(&KeyRange) -> bool) -> Option<KeyRange> {
        let ranges = self.ranges.lock();
        let mut bare = ranges.iter().filter(|one| one.is_bare_for(max));
        bare.find(|one| is_it(&one.range))
            .map(|one| one.range.clone())
    }

    /// Takes in the range that a reader at `max` has found; returns the ranges that are to be watched too: see
    /// [`BareRanges::watch`].
    pub fn learn(&self, found: &BareRange, max: Seq) -> Vec<KeyRange> {
        let mut ranges = self.ranges.lock();
        let overlapping = |one: &&mut Watched| one.range.first_common(&found.range).is_some();
        let mut known = 0;
        for one in ranges.iter_mut().filter(overlapping) {
            if one.bare_from.is_none() && one.from <= max {
                // The rest of the watched range, outside of the one found, may hold an item from before it was watched.
                one.range = common(&one.range, &found.range);
                one.bare_from = Some(max);
                known += one.passed;
            }
            if !one.is_bare_for(max) {
                // A later reader will find it bare.
                return vec![];
            }
        }
        self.note_hull(join(&mut ranges));
        if found.passed < known + PASSED_LEAST {
            return vec![];
        }
        without(&found.range, &ranges)
    }

    /// Watches ranges from now on. The caller holds the lock under which writes get their numbers; `last` is the last of
    /// these, and `found_bare` says whether no write to the container followed the reader, which was at `max`.
    pub fn watch(&self, found: &BareRange, (last, found_bare, max): (Seq, bool, Seq)) {
        let mut ranges = self.ranges.lock();
        let left = without(&found.range, &ranges);
        ranges.extend(left.into_iter().map(|range| Watched {
            range,
            from: last,
            bare_from: found_bare.then_some(max),
            passed: found.passed,
        }));
        ranges.sort_by(|a, b| a.range.from.cmp(&b.range.from));
        join(&mut ranges);
        self.note_hull(keep_most(&mut ranges));
    }
}

/// The bare ranges that a walk asks, and the count that it tells them.
#[derive(Clone, Debug, Default)]
pub struct Passing {
    /// Nothing is asked where there are none.
    pub bare: Option<Arc<BareRanges>>,
    /// The reader's sequence number.
    pub max: Seq,
    /// About how many dead records were passed since this was last 0.
    pub passed: usize,
}

impl Passing {
    /// The bare range that the key is in.
    #[inline]
    pub fn around(&self, key: &[u8]) -> Option<KeyRange> {
        self.bare.as_ref()?.around(key, self.max)
    }
}

/// The first key behind this one.
pub fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The keys that are in both.
pub fn common(a: &KeyRange, b: &KeyRange) -> KeyRange {
    KeyRange {
        from: a.from.as_slice().max(&b.from).to_vec(),
        to: a.to.iter().chain(&b.to).min().cloned(),
    }
}

/// Joins bare ranges that follow each other.
fn join(ranges: &mut Vec<Watched>) -> &[Watched] {
    ranges.dedup_by(|next, one| {
        let joins = one.range.to.as_ref() == Some(&next.range.from);
        let both = one.bare_from.zip(next.bare_from).filter(|_| joins);
        if let Some((a, b)) = both {
            one.range.to = next.range.to.take();
            one.from = one.from.max(next.from);
            one.bare_from = Some(a.max(b));
            one.passed += next.passed;
        }
        both.is_some()
    });
    ranges
}

/// Drops those in which least was passed.
fn keep_most(ranges: &mut Vec<Watched>) -> &[Watched] {
    while ranges.len() > RANGES_MOST {
        let least = ranges.iter().enumerate().min_by_key(|(_, one)| one.passed);
        let at = least.map_or(0, |(at, _)| at);
        ranges.remove(at);
    }
    ranges
}

/// The parts of a range that are in none of these.
fn without(range: &KeyRange, ranges: &[Watched]) -> Vec<KeyRange> {
    let (mut parts, mut from) = (vec![], Some(range.from.clone()));
    for one in ranges.iter().map(|one| &one.range) {
        let Some(begin) = from.as_mut() else { break };
        if one.first_common(range).is_none() {
            continue;
        }
        if *begin < one.from {
            parts.push(KeyRange {
                from: std::mem::take(begin),
                to: Some(one.from.clone()),
            });
        }
        from = one.to.clone();
    }
    parts.extend(from.map(|from| KeyRange {
        from,
        to: range.to.clone(),
    }));
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests;
