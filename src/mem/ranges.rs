//! Range deletes: a list in the order of their numbers that only grows, and what they cover by any number. They are read
//! without a lock while one more comes.
//!
//! ```text
//! list      0 1 2 3 ... 63 | 64 ... 127 | ... | 255 | 256 ...      of parts of 8, 16, 32 ... that never move
//! newest    Fragments of all of them, replaced with each
//! blocks    Fragments of 64 in a row, of 256, of 1 024 ..., each from a multiple of its length on; made when asked for
//! ```
//!
//! Whoever reads at the newest number asks `newest`: one search. If what it says is too new for the reader, who holds a
//! snapshot or came just before a delete, the reader's own are the first of the list: blocks and fewer than 64 single
//! ones, of which the newest that covers the key has the answer. So a snapshot from before a million range deletes costs a
//! search in each of some 20 blocks, and the first such reader, who makes the blocks, what they cost to be made once more.
//!
//! An item is set before `len` counts it, and counted before `newest` holds it and `seq_max` tells of it: who sees a
//! number finds what is numbered so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::batch::KeyRange;
use crate::cover::Fragments;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{ArcSwap, Mutex};
use crate::types::Seq;

/// As a power of two, the length of the first part.
const FIRST_SHIFT: u32 = 3;
/// Enough for 2^32 range deletes.
const PARTS: usize = 29;

/// The length of the smallest blocks; fewer are looked through one by one.
const BLOCK_LEAST: usize = 64;
/// How many blocks are one of the next length.
const BLOCK_FAN: usize = 4;

/// What one takes, in bytes, beside its bounds: its place in the list, and two stretches in nodes that are half full.
const BYTES_EACH: usize = 192;
/// How often its bounds are there: in the list, and in such nodes.
const BOUNDS_HELD: usize = 3;

/// A range delete: records in the range with a lower number are gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeDelete {
    /// What it deletes.
    pub range: KeyRange,
    /// Its place among all writes.
    pub seq: Seq,
}

type Part = Box<[OnceLock<RangeDelete>]>;

/// Where a block begins, and how many it is of.
type Block = (usize, usize);

/// Grows by one at a time, the lowest number first.
pub struct RangeDeletes {
    /// The highest number; 0 while there is none.
    seq_max: AtomicU64,
    len: AtomicUsize,
    bytes: AtomicUsize,
    parts: [OnceLock<Part>; PARTS],
    newest: ArcSwap<Fragments>,
    blocks: Mutex<BTreeMap<Block, Arc<Fragments>>>,
}

impl fmt::Debug for RangeDeletes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Default for RangeDeletes {
    fn default() -> Self {
        RangeDeletes {
            seq_max: AtomicU64::new(0),
            len: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            parts: Default::default(),
            newest: ArcSwap::from_pointee(Fragments::default()),
            blocks: Mutex::default(),
        }
    }
}

impl FromIterator<RangeDelete> for RangeDeletes {
    fn from_iter<T: IntoIterator<Item = RangeDelete>>(items: T) -> Self {
        let ranges = RangeDeletes::default();
        items.into_iter().for_each(|item| ranges.push(item));
        ranges
    }
}

fn bytes_of(item: &RangeDelete) -> usize {
    let to = item.range.to.as_ref();
    let bounds = item.range.from.len() + to.map_or(0, |to| to.len());
    BYTES_EACH + BOUNDS_HELD * bounds
}

fn part_of(number: usize) -> (usize, usize) {
    let shifted = number + (1 << FIRST_SHIFT);
    let highest = shifted.ilog2();
    ((highest - FIRST_SHIFT) as usize, shifted - (1 << highest))
}

impl RangeDeletes {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest number; 0 when there is none.
    #[inline]
    pub fn seq_max(&self) -> Seq {
        Seq(self.seq_max.load(Ordering::Acquire))
    }

    /// About how much memory they take: it never falls.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those that are there now, lowest number first.
    #[inline]
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = &RangeDelete> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|number| self.get(number))
    }

    fn get(&self, number: usize) -> &RangeDelete {
        let (part, at) = part_of(number);
        let item = self.parts[part].get().and_then(|part| part[at].get());
        item.expect("items below the length are there")
    }

    /// Appends one, which has no lower number than those before. One thread at a time.
    pub fn push(&self, item: RangeDelete) {
        let newest = self.newest.load_full().with(&item.range, item.seq);
        let bytes = bytes_of(&item);
        let (seq, number) = (item.seq, self.len());
        let (part, at) = part_of(number);
        let part = self.parts[part].get_or_init(|| {
            let len = 1usize << (part as u32 + FIRST_SHIFT);
            (0..len).map(|_| OnceLock::new()).collect()
        });
        assert!(part[at].set(item).is_ok(), "one writer");
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.len.store(number + 1, Ordering::Release);
        self.newest.store(Arc::new(newest));
        self.seq_max.store(seq.0, Ordering::Release);
    }

    /// One of a number above `seq`, and up to `max`, covers the key: a record of that number is gone for a reader at
    /// `max`.
    #[inline]
    pub fn covers(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        seq < self.seq_max() && seq < max && self.covers_above(key, seq, max)
    }

    #[inline(never)]
    fn covers_above(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        let below = self.newest.load().below(key);
        if below <= max {
            return seq < below;
        }
        self.between(seq, max).any(|piece| match piece {
            Piece::One(delete) => delete.range.contains(key),
            Piece::Block(fragments) => seq < fragments.below(key),
        })
    }

    /// The highest number of one that covers the key; 0 when none does.
    pub fn newest_over(&self, key: &[u8]) -> Seq {
        self.newest.load().below(key)
    }

    /// Those of a number above `seq`, and up to `max`, together cover all keys from `first` to `last`, both included.
    pub fn covers_all(&self, (first, last): (&[u8], &[u8]), seq: Seq, max: Seq) -> bool {
        if seq >= self.seq_max() || seq >= max {
            return false;
        }
        let parts = self.as_of(max);
        parts.iter().any(|part| seq < part.below_all(first, last))
    }

    /// The highest number up to `max`; 0 when there is none.
    pub fn last_up_to(&self, max: Seq) -> Seq {
        let len = self.len_up_to(max);
        len.checked_sub(1).map_or(Seq(0), |last| self.get(last).seq)
    }

    /// What those of a number up to `max` cover, together.
    pub fn as_of(&self, max: Seq) -> Vec<Arc<Fragments>> {
        let newest = self.newest.load_full();
        if newest.seq_max() <= max {
            return vec![newest];
        }
        let (mut blocks, mut ones) = (vec![], vec![]);
        for piece in self.between(Seq(0), max) {
            match piece {
                Piece::One(delete) => ones.push((&delete.range, delete.seq)),
                Piece::Block(fragments) => blocks.push(fragments),
            }
        }
        blocks.push(Arc::new(Fragments::of(ones.into_iter().rev())));
        blocks
    }

    /// How many have a number up to `max`.
    fn len_up_to(&self, max: Seq) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle).seq <= max {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }

    /// Those of a number above `seq`, and perhaps some before, up to `max`: in few pieces, newest first.
    fn between(&self, seq: Seq, max: Seq) -> impl Iterator<Item = Piece<'_>> {
        let mut left = self.len_up_to(max);
        std::iter::from_fn(move || {
            if left == 0 || self.get(left - 1).seq <= seq {
                return None;
            }
            if !left.is_multiple_of(BLOCK_LEAST) {
                left -= 1;
                return Some(Piece::One(self.get(left)));
            }
            // The longest that ends here.
            let mut len = BLOCK_LEAST;
            while left.is_multiple_of(len * BLOCK_FAN) {
                len *= BLOCK_FAN;
            }
            left -= len;
            Some(Piece::Block(self.block((left, len))))
        })
    }

    fn block(&self, block: Block) -> Arc<Fragments> {
        if let Some(made) = self.blocks.lock().get(&block) {
            return made.clone();
        }
        // Without the lock: others may read meanwhile, and make it too.
        let items = (block.0..block.0 + block.1).map(|number| self.get(number));
        let bytes: usize = items.clone().map(bytes_of).sum();
        let made = Arc::new(Fragments::of(items.map(|item| (&item.range, item.seq))));
        let mut blocks = self.blocks.lock();
        let made = blocks.entry(block).or_insert_with(|| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            made
        });
        made.clone()
    }
}

/// Some of the list.
enum Piece<'a> {
    One(&'a RangeDelete),
    Block(Arc<Fragments>),
}

/// Of range deletes, lowest number first, those that some reader can tell: that are the newest which it sees over some
/// key. Readers have the numbers of the open `snapshots`, ascending, or higher ones than any.
pub fn discernible(ranges: &[&RangeDelete], snapshots: &[Seq]) -> Vec<bool> {
    // Of a key, which range begins, or ends.
    let mut turns: Vec<(&[u8], usize, bool)> = vec![];
    for (at, RangeDelete { range, .. }) in ranges.iter().enumerate() {
        if !range.is_empty() {
            turns.push((&range.from, at, true));
            turns.extend(range.to.as_deref().map(|to| (to, at, false)));
        }
    }
    turns.sort_unstable();
    let (mut open, mut found) = (BTreeSet::new(), vec![false; ranges.len()]);
    for turns in turns.chunk_by(|a, b| a.0 == b.0) {
        for &(_, at, begins) in turns {
            match begins {
                true => open.insert(at),
                false => open.remove(&at),
            };
        }
        // Only these, and what lies right below one that ends, may have come to show.
        for &(_, at, begins) in turns {
            let candidate = match begins {
                true => Some(at),
                false => open.range(..at).next_back().copied(),
            };
            let Some(candidate) = candidate.filter(|candidate| !found[*candidate]) else {
                continue;
            };
            let newer = open.range(candidate + 1..).next();
            found[candidate] = newer.is_none_or(|&newer| {
                let seq = ranges[candidate].seq;
                let at = snapshots.partition_point(|snapshot| *snapshot < seq);
                let next = snapshots.get(at);
                next.is_some_and(|snapshot| *snapshot < ranges[newer].seq)
            });
        }
    }
    found
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Numbers without a pattern, by a seed.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(77);
            (self.0 >> 33) % bound
        }
    }

    fn key(number: u64) -> Vec<u8> {
        format!("key-{number:04}").into_bytes()
    }

    /// Of the numbers 3, 6, 9 ...: over many keys, over few, nested from the front, with and without an end.
    fn some(seed: u64, count: u64) -> Vec<RangeDelete> {
        let mut random = Numbers(seed);
        let one = |n| {
            let from = random.below(500);
            let (from, width) = match seed % 3 {
                0 => (from, 1 + random.below(4)),
                1 => (from, 1 + random.below(500)),
                _ => (0, 1 + n % 400),
            };
            RangeDelete {
                range: KeyRange {
                    from: key(from),
                    to: (random.below(100) > 0).then(|| key(from + width)),
                },
                seq: Seq(3 * n),
            }
        };
        (1..=count).map(one).collect()
    }

    /// Goal: whoever asks by whatever number learns what the list says. Method: against the list itself, for readers of
    /// every age, records of every number, while the list grows past blocks of every length.
    #[test]
    fn they_answer_as_a_list_would() {
        for seed in 0..6 {
            let all = some(seed, 1_400);
            let (ranges, mut random) = (RangeDeletes::default(), Numbers(seed));
            for (count, delete) in all.iter().enumerate() {
                ranges.push(delete.clone());
                if ![0, 1, 63, 64, 300, 1_100, 1_399].contains(&count) {
                    continue;
                }
                let there = &all[..=count];
                for _ in 0..600 {
                    let (key, seq) = (key(random.below(510)), Seq(random.below(4_400)));
                    let max = match random.below(4) {
                        0 => Seq::MAX,
                        _ => Seq(random.below(4_400)),
                    };
                    let covers = |one: &&RangeDelete| one.seq <= max && one.range.contains(&key);
                    let newest = there.iter().rev().find(covers).map(|one| one.seq);
                    let expected = newest.is_some_and(|newest| newest > seq);
                    assert_eq!(ranges.covers(&key, seq, max), expected, "{seq:?} {max:?}");
                    let parts = ranges.as_of(max);
                    let below = parts.iter().map(|part| part.below(&key)).max();
                    assert_eq!(below, Some(newest.unwrap_or_default()));
                    assert_eq!(ranges.covers_all((&key, &key), seq, max), expected);
                    let last = there.iter().rev().find(|one| one.seq <= max);
                    let last = last.map_or(Seq(0), |one| one.seq);
                    assert_eq!(ranges.last_up_to(max), last);
                }
                assert!(ranges.iter().eq(there));
            }
        }
    }

    /// Goal: readers need not wait, and miss nothing that was there when they began. Method: while one thread adds, others
    /// take the last number, then ask by it, and by older ones, against the list that all know beforehand.
    #[test]
    #[cfg_attr(miri, ignore = "counts to thousands")]
    fn they_are_read_while_more_come() {
        let (all, ranges) = (some(1, 3_000), RangeDeletes::default());
        let published = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (all, ranges, published) = (&all, &ranges, &published);
                scope.spawn(move || {
                    let mut random = Numbers(seed);
                    loop {
                        let count = published.load(std::sync::atomic::Ordering::Acquire);
                        let age = [0, random.below(count + 1)][random.below(2) as usize];
                        let (key, max) = (key(random.below(510)), Seq(3 * (count - age)));
                        let seen = &all[..(count - age) as usize];
                        let mut newest_first = seen.iter().rev();
                        let newest = newest_first.find(|one| one.range.contains(&key));
                        let seq = newest.map_or(Seq(0), |one| one.seq);
                        assert!(!ranges.covers(&key, seq, max));
                        assert!(seq == Seq(0) || ranges.covers(&key, Seq(seq.0 - 1), max));
                        if count == all.len() as u64 {
                            break;
                        }
                    }
                });
            }
            for (count, delete) in (1..).zip(&all) {
                ranges.push(delete.clone());
                published.store(count, std::sync::atomic::Ordering::Release);
            }
        });
    }

    /// Method: against every reader and every key.
    #[test]
    fn discernible_is_what_some_reader_sees_first() {
        for seed in 0..40 {
            let (all, mut random) = (some(seed, 60), Numbers(seed));
            let mut snapshots: Vec<Seq> = (0..seed % 7).map(|_| Seq(random.below(200))).collect();
            snapshots.sort();
            let readers = snapshots.iter().copied().chain([Seq::MAX]);
            let mut expected = vec![false; all.len()];
            for (max, number) in readers.flat_map(|max| (0..1_010).map(move |number| (max, number)))
            {
                let key = key(number);
                let covers = |at: &usize| all[*at].seq <= max && all[*at].range.contains(&key);
                if let Some(first) = (0..all.len()).rev().find(covers) {
                    expected[first] = true;
                }
            }
            let ranges: Vec<&RangeDelete> = all.iter().collect();
            assert_eq!(discernible(&ranges, &snapshots), expected, "{snapshots:?}");
        }
    }

    #[test]
    fn bytes_are_about_what_they_take() {
        let ranges = RangeDeletes::default();
        let long = |n: u64| KeyRange {
            from: [key(n), vec![0; 60_000]].concat(),
            to: None,
        };
        for n in 1..=20 {
            ranges.push(RangeDelete {
                range: long(n),
                seq: Seq(n),
            });
        }
        assert!((20 * 60_000..20 * 250_000).contains(&ranges.bytes()));
    }
}
