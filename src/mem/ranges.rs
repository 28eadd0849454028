//! The range deletes of a memtable: a list that only grows and is read without a lock.
//!
//! ```text
//! part     0: 8 | 1: 16 | 2: 32 | ...        item n lies in the part in which n + 8 has its highest bit
//! ```
//!
//! Parts never move. An item is set before `len` counts it: who sees the length sees the items.

use std::sync::OnceLock;

use crate::batch::KeyRange;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::types::Seq;

/// As a power of two, the length of the first part.
const FIRST_SHIFT: u32 = 3;
/// Enough for 2^32 range deletes.
const PARTS: usize = 29;

/// A range delete: records in the range with a lower number are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeDelete {
    /// What it deletes.
    pub range: KeyRange,
    /// Its place among all writes.
    pub seq: Seq,
}

type Part = Box<[OnceLock<RangeDelete>]>;

/// Grows by one at a time.
#[derive(Debug, Default)]
pub struct RangeDeletes {
    len: AtomicUsize,
    parts: [OnceLock<Part>; PARTS],
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

    /// Those that are there now, in the order in which they came.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RangeDelete> + Clone {
        (0..self.len()).map(|number| {
            let (part, at) = part_of(number);
            let item = self.parts[part].get().and_then(|part| part[at].get());
            item.expect("items below the length are there")
        })
    }

    /// Appends one. One thread at a time.
    pub fn push(&self, item: RangeDelete) {
        let number = self.len();
        let (part, at) = part_of(number);
        let part = self.parts[part].get_or_init(|| {
            let len = 1usize << (part as u32 + FIRST_SHIFT);
            (0..len).map(|_| OnceLock::new()).collect()
        });
        assert!(part[at].set(item).is_ok(), "one writer");
        self.len.store(number + 1, Ordering::Release);
    }
}
