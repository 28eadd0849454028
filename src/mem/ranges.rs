//! The range deletes of a memtable or a version: a list in the order of their sequence numbers, which only grows, and
//! indexes of the keys that they cover up to any sequence number. They are read without a lock while one is added.
//!
//! ```text
//! list      0 1 2 3 ... 63 | 64 ... 127 | ... | 255 | 256 ...      of parts of 8, 16, 32 ... that never move
//! newest    Fragments of all of them, replaced with each
//! blocks    Fragments of 64 in a row, of 256, of 1 024 ..., each from a multiple of its length on; made when asked for
//! ```
//!
//! A reader at the newest sequence number searches `newest`. If the result is too new for the reader, which holds a
//! snapshot or began before a delete, its own range deletes are the first ones of the list: blocks, and fewer than 64
//! single ones, of which the newest that covers the key is the answer. So a snapshot from before a million range
//! deletes costs a search in each of some 20 blocks, and the first such reader builds the blocks, at the cost of
//! building `newest` once more.
//!
//! An item is set before `len` counts it, and counted before `newest` and `seq_max` include it: a thread that sees a
//! sequence number finds its item.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::base::Seq;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{ArcSwap, Mutex};
use crate::data::range_delete::RangeDelete;
use crate::data::range_tombstones::Fragments;

/// The length of the first part, as a power of two.
const FIRST_SHIFT: u32 = 3;
/// Enough for 2^32 range deletes.
const PARTS: usize = 29;

/// The length of the smallest blocks; fewer items are searched one by one.
const BLOCK_LEAST: usize = 64;
/// How many blocks make one of the next length.
const BLOCK_FAN: usize = 4;

/// The bytes of an item besides its bounds: its place in the list, and two fragments in half-full nodes.
const BYTES_EACH: usize = 224;
/// How many copies of its bounds are kept: in the list, and in such nodes.
const BOUNDS_HELD: usize = 3;

type DeleteSlots = Box<[OnceLock<RangeDelete>]>;

/// The first item of a block, and the number of its items.
type Block = (usize, usize);

/// A list that grows by one item at a time, lowest sequence number first.
pub struct RangeDeletes {
    /// The highest sequence number; 0 if there is none.
    seq_max: AtomicU64,
    len: AtomicUsize,
    bytes: AtomicUsize,
    parts: [OnceLock<DeleteSlots>; PARTS],
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
    /// These, in any order.
    pub fn of(ranges: &[RangeDelete]) -> RangeDeletes {
        let mut sorted: Vec<&RangeDelete> = ranges.iter().collect();
        sorted.sort_by_key(|range| range.seq);
        sorted.into_iter().cloned().collect()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest sequence number; 0 when there is none.
    #[inline]
    pub fn seq_max(&self) -> Seq {
        Seq(self.seq_max.load(Ordering::Acquire))
    }

    /// The approximate memory they take, in bytes; never falls.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The present ones, lowest sequence number first.
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

    /// Appends one, whose sequence number is not below the previous ones. Called by one thread at a time.
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

    /// Whether one with a sequence number above `seq`, and up to `max`, covers the key: then a record with sequence
    /// number `seq` is deleted for a reader at `max`.
    #[inline]
    pub fn covers(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        seq < self.seq_max() && seq < max && self.covers_above(key, seq, max)
    }

    #[inline(never)]
    fn covers_above(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        let below = self.newest.load().max_covering_seq(key);
        if below <= max {
            return seq < below;
        }
        self.between(seq, max).any(|piece| match piece {
            Piece::One(delete) => delete.range.contains(key),
            Piece::Block(fragments) => seq < fragments.max_covering_seq(key),
        })
    }

    /// The highest sequence number of one that covers the key; 0 if none does.
    pub fn newest_over(&self, key: &[u8]) -> Seq {
        self.newest.load().max_covering_seq(key)
    }

    /// Whether those with a sequence number above `seq`, and up to `max`, together cover all keys from `first` to
    /// `last`, both included.
    pub fn covers_all(&self, (first, last): (&[u8], &[u8]), seq: Seq, max: Seq) -> bool {
        if seq >= self.seq_max() || seq >= max {
            return false;
        }
        let parts = self.as_of(max);
        parts
            .iter()
            .any(|part| seq < part.min_covering_seq(first, last))
    }

    /// The highest sequence number up to `max`; 0 when there is none.
    pub fn last_up_to(&self, max: Seq) -> Seq {
        let len = self.len_up_to(max);
        len.checked_sub(1).map_or(Seq(0), |last| self.get(last).seq)
    }

    /// The fragments of the deletes with a sequence number up to `max`.
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

    /// How many have a sequence number up to `max`.
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

    /// Those with a sequence number above `seq`, and perhaps some lower ones, up to `max`: in few pieces, newest first.
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
            // The longest block that ends here.
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
        // Without the lock: others may read meanwhile, and build it too.
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

/// Part of the list.
enum Piece<'a> {
    One(&'a RangeDelete),
    Block(Arc<Fragments>),
}

#[cfg(all(test, not(loom)))]
mod tests;
