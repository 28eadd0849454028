//! Direct reads (`O_DIRECT`), which go past the system's cache: which blocks are read so.
//!
//! ```text
//! a block for a get     in memory                              read in the map
//!                       not in memory, blocks are evicted      read directly; one in MAPPED_ONE_IN in the map
//!                       not in memory, none are evicted        read in the map
//! a piece for a job     all of it in memory                    read in the map
//!                       otherwise                              read directly (src/table/walk/run_reader.rs)
//! ```
//!
//! A get needs one record of a block, and caches that. To read the block in the map costs three page faults and evicts as many
//! other pages, so a direct read is cheaper where memory is too short for the data. A block that was read before and is not in
//! memory shows eviction. A block that was never read shows nothing: after a start all blocks are such, and reading them in the
//! map fills free memory. A block that was read before and is still in memory counts against eviction, so direct reads end when
//! there is room again.
//!
//! One block in 32 is read in the map all the same, so that blocks that are asked for often come into memory. (Such admission by
//! chance remembers nothing of what was asked for; flash caches use it, as in CacheLib, OSDI '20.) With one in eight, these reads
//! took a third of the processor time of a `get_many` (docs/decisions/reading-files.md).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use bytes::Bytes;

use crate::env::Fs;

/// Of blocks that are not in memory, where blocks are evicted.
const MAPPED_ONE_IN: u32 = 32;
/// For each evicted block that is asked for, so many unread ones may be before eviction is taken to have ended.
const EVICTED: i32 = 64;
const MOST: i32 = 64 * EVICTED;
/// Reads that are refused one after the other before it is given up.
const REFUSALS: u32 = 16;
/// Then so many evicted blocks come before the next try.
const GIVEN_UP: i32 = -10_000 * EVICTED;

/// The direct reads of a database's tables.
pub struct DirectReads {
    fs: Arc<dyn Fs>,
    /// Whether gets read directly, too, and cache what they find.
    is_for_gets: bool,
    /// Above 0: blocks are evicted.
    evictions: AtomicI32,
    turn: AtomicU32,
    /// Reads that were refused since one that was not.
    refused: AtomicU32,
}

impl DirectReads {
    /// More bytes are not read at once. The system is not asked about so many, either.
    pub const LONGEST: u64 = 256 << 10;

    /// Of files of this file system.
    pub fn new(fs: Arc<dyn Fs>, is_for_gets: bool) -> DirectReads {
        DirectReads {
            fs,
            is_for_gets,
            evictions: AtomicI32::new(0),
            turn: AtomicU32::new(0),
            refused: AtomicU32::new(0),
        }
    }

    /// Whether a get reads a block of `len` bytes directly, which is not in memory; `was_read`: before, in the map.
    pub fn is_due(&self, len: usize, was_read: bool) -> bool {
        if !self.is_for_gets || len as u64 > DirectReads::LONGEST {
            return false;
        }
        let evictions = self.evictions.load(Ordering::Relaxed);
        match was_read {
            true => self.see(evictions, (evictions + EVICTED).min(MOST)),
            false => self.see(evictions, evictions - i32::from(evictions > 0)),
        }
        let is_mapped = || {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            turn.is_multiple_of(MAPPED_ONE_IN)
        };
        evictions > 0 && !is_mapped()
    }

    /// A block that was read before is in memory still.
    pub fn note_kept(&self) {
        let evictions = self.evictions.load(Ordering::Relaxed);
        if evictions > 0 {
            self.see(evictions, (evictions - EVICTED).max(0));
        }
    }

    /// Notes it, unless another thread has noted something meanwhile: that counts instead.
    fn see(&self, before: i32, now: i32) {
        let relaxed = Ordering::Relaxed;
        if now != before {
            let _ = self
                .evictions
                .compare_exchange(before, now, relaxed, relaxed);
        }
    }

    /// A piece of a file that a job reads, which says nothing about eviction; `None` where it is not read so.
    pub fn read_piece(&self, path: &Path, piece: Range<u64>) -> Option<Bytes> {
        let is_given_up = self.evictions.load(Ordering::Relaxed) < 0;
        let read = || self.read(&[(path, piece)]).pop().flatten();
        if is_given_up { None } else { read() }
    }

    /// Ranges of files, those that could be read so: not that of a table that was removed under a reader.
    pub fn read(&self, wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
        let read = self.fs.read_direct(wanted);
        let refused = match read.iter().any(Option::is_some) {
            true => 0,
            false => 1 + self.refused.load(Ordering::Relaxed),
        };
        self.refused.store(refused % REFUSALS, Ordering::Relaxed);
        if refused == REFUSALS {
            self.evictions.store(GIVEN_UP, Ordering::Relaxed);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::MemoryDisk;

    fn direct_reads() -> DirectReads {
        DirectReads::new(Arc::new(MemoryDisk::new(Path::new("/"))), true)
    }

    fn taken(direct_reads: &DirectReads, times: usize, was_read: bool) -> usize {
        (0..times)
            .filter(|_| direct_reads.is_due(8 << 10, was_read))
            .count()
    }

    #[test]
    fn what_was_never_read_fills_free_memory() {
        assert_eq!(taken(&direct_reads(), 10_000, false), 0);
    }

    #[test]
    fn where_blocks_are_evicted_most_are_read_past_the_cache() {
        let direct_reads = direct_reads();
        assert!(
            !direct_reads.is_due(8 << 10, true),
            "nothing was evicted before"
        );
        assert_eq!(taken(&direct_reads, 3_200, true), 3_100);
        assert!(taken(&direct_reads, 3_200, false) >= 3_090, "for a while");
        taken(&direct_reads, 10_000, false);
        assert_eq!(taken(&direct_reads, 800, false), 0, "nothing is evicted");
    }

    #[test]
    fn where_most_of_what_was_read_is_in_memory_blocks_are_read_into_it() {
        let direct_reads = direct_reads();
        for (kept, expected) in [(1, 386), (3, 0)] {
            let mut direct = 0;
            for _ in 0..400 {
                direct += taken(&direct_reads, 1, true);
                (0..kept - 1).for_each(|_| direct_reads.note_kept());
            }
            assert_eq!(direct, expected, "{kept}");
            (0..100).for_each(|_| direct_reads.note_kept());
        }
    }

    #[test]
    fn long_blocks_say_nothing() {
        let direct_reads = direct_reads();
        assert!(!(0..100).any(|_| direct_reads.is_due(1 << 20, true)));
        assert!(!direct_reads.is_due(8 << 10, false));
    }

    #[test]
    fn after_reads_that_were_refused_none_is_tried_for_long() {
        let direct_reads = direct_reads();
        assert!(taken(&direct_reads, 10, true) > 0);
        for _ in 0..REFUSALS {
            assert!(taken(&direct_reads, 10, true) > 0);
            assert_eq!(direct_reads.read(&[(Path::new("a file"), 0..10)]), [None]);
        }
        assert_eq!(taken(&direct_reads, 9_000, true), 0);
        assert!(taken(&direct_reads, 2_000, true) > 0);
    }
}
