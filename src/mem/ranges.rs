//! Range deletes: a list in the order of their sequence numbers that only grows, and what they cover by any number.
//! They are read without a lock while one more comes.
//!
//! ```text
//! list      0 1 2 3 ... 63 | 64 ... 127 | ... | 255 | 256 ...      of parts of 8, 16, 32 ... that never move
//! newest    Fragments of all of them, replaced with each
//! blocks    Fragments of 64 in a row, of 256, of 1 024 ..., each from a multiple of its length on; made when asked for
//! ```
//!
//! Whoever reads at the newest sequence number asks `newest`: one search. If what it says is too new for the reader,
//! who holds a snapshot or came just before a delete, the reader's own are the first of the list: blocks and fewer than
//! 64 single ones, of which the newest that covers the key has the answer. So a snapshot from before a million range
//! deletes costs a search in each of some 20 blocks, and the first such reader, who makes the blocks, what they cost to
//! be made once more.
//!
//! An item is set before `len` counts it, and counted before `newest` holds it and `seq_max` tells of it: who sees a
//! number finds what is numbered so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::base::Seq;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{ArcSwap, Mutex};
use crate::data::range_delete::RangeDelete;
use crate::data::range_tombstones::Fragments;

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

type Part = Box<[OnceLock<RangeDelete>]>;

/// Where a block begins, and how many it is of.
type Block = (usize, usize);

/// Grows by one at a time, the lowest sequence number first.
pub struct RangeDeletes {
    /// The highest sequence number; 0 while there is none.
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
    /// These, which come in any order.
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

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest sequence number; 0 when there is none.
    #[inline]
    pub fn seq_max(&self) -> Seq {
        Seq(self.seq_max.load(Ordering::Acquire))
    }

    /// About how much memory they take: it never falls.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Those that are there now, lowest sequence number first.
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

    /// Appends one, which has no lower sequence number than those before. One thread at a time.
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

    /// One with a sequence number above `seq`, and up to `max`, covers the key: a record of that sequence number is
    /// gone for a reader at `max`.
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

    /// The highest sequence number of one that covers the key; 0 when none does.
    pub fn newest_over(&self, key: &[u8]) -> Seq {
        self.newest.load().max_covering_seq(key)
    }

    /// Those with a sequence number above `seq`, and up to `max`, together cover all keys from `first` to `last`, both
    /// included.
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

    /// What those with a sequence number up to `max` cover, together.
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

    /// Those with a sequence number above `seq`, and perhaps some before, up to `max`: in few pieces, newest first.
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

#[cfg(all(test, not(loom)))]
mod tests;
