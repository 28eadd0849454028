//! The choice between the map and a read past the system's cache, for a block that is not in memory.
//!
//! ```text
//! block                                        read
//! in memory                                    in the map
//! not in memory, and blocks are evicted        past the system's cache; one of MAPPED_ONE_IN in the map
//! not in memory, otherwise                     in the map
//! a piece of blocks for a job,
//! not all in memory                            past the system's cache (src/table/walk/run_reader.rs)
//! ```
//!
//! Reading a block in the map costs three page faults and evicts as many pages of others; what a get needs of it is one record,
//! which is cached. So where memory is too short for what is read, it is read past the system's cache. Memory is too short
//! where blocks are evicted: a block was read before, and is not in memory. A block that was never read says
//! nothing: after a start all of them are such, and reading them in the map fills free memory. Where more of those that were read
//! before are in memory than are not, they are read in the map, too: so it ends when there is room again.
//!
//! Some blocks are read in the map all the same: those that are asked for often come into memory so, and those that are asked
//! for once mostly do not. (Admission by chance needs no memory of what was asked for; flash caches use it, as in CacheLib,
//! OSDI '20.) One in 32, because such a read costs several times as much processor time: with one in eight they took a third of a
//! get_many's (docs/measurements/rows.md).

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

/// The way past the system's cache, for the tables of a database.
pub struct Bypass {
    fs: Arc<dyn Fs>,
    /// Whether gets take it, too, and cache what they find.
    is_for_gets: bool,
    /// Above 0: blocks are evicted.
    evictions: AtomicI32,
    turn: AtomicU32,
    /// Reads that were refused since one that was not.
    refused: AtomicU32,
}

impl Bypass {
    /// More bytes are not read at once. The system is not asked about so many, either.
    pub const LONGEST: u64 = 256 << 10;

    /// The way to the files of this file system.
    pub fn new(fs: Arc<dyn Fs>, is_for_gets: bool) -> Bypass {
        Bypass {
            fs,
            is_for_gets,
            evictions: AtomicI32::new(0),
            turn: AtomicU32::new(0),
            refused: AtomicU32::new(0),
        }
    }

    /// Whether a get takes it for a block of `len` bytes that is not in memory; `was_read`: before, in the map.
    pub fn is_due(&self, len: usize, was_read: bool) -> bool {
        if !self.is_for_gets || len as u64 > Bypass::LONGEST {
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
        let read = self.fs.read_past_cache(wanted);
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

    fn bypass() -> Bypass {
        Bypass::new(Arc::new(MemoryDisk::new(Path::new("/"))), true)
    }

    fn taken(bypass: &Bypass, times: usize, was_read: bool) -> usize {
        (0..times)
            .filter(|_| bypass.is_due(8 << 10, was_read))
            .count()
    }

    #[test]
    fn what_was_never_read_fills_free_memory() {
        assert_eq!(taken(&bypass(), 10_000, false), 0);
    }

    #[test]
    fn where_blocks_are_evicted_most_are_read_past_the_cache() {
        let bypass = bypass();
        assert!(!bypass.is_due(8 << 10, true), "nothing was evicted before");
        assert_eq!(taken(&bypass, 3_200, true), 3_100);
        assert!(taken(&bypass, 3_200, false) >= 3_090, "for a while");
        taken(&bypass, 10_000, false);
        assert_eq!(taken(&bypass, 800, false), 0, "nothing is evicted");
    }

    #[test]
    fn where_most_of_what_was_read_is_in_memory_blocks_are_read_into_it() {
        let bypass = bypass();
        for (kept, expected) in [(1, 386), (3, 0)] {
            let mut passed = 0;
            for _ in 0..400 {
                passed += taken(&bypass, 1, true);
                (0..kept - 1).for_each(|_| bypass.note_kept());
            }
            assert_eq!(passed, expected, "{kept}");
            (0..100).for_each(|_| bypass.note_kept());
        }
    }

    #[test]
    fn long_blocks_say_nothing() {
        let bypass = bypass();
        assert!(!(0..100).any(|_| bypass.is_due(1 << 20, true)));
        assert!(!bypass.is_due(8 << 10, false));
    }

    #[test]
    fn after_reads_that_were_refused_none_is_tried_for_long() {
        let bypass = bypass();
        assert!(taken(&bypass, 10, true) > 0);
        for _ in 0..REFUSALS {
            assert!(taken(&bypass, 10, true) > 0);
            assert_eq!(bypass.read(&[(Path::new("a file"), 0..10)]), [None]);
        }
        assert_eq!(taken(&bypass, 9_000, true), 0);
        assert!(taken(&bypass, 2_000, true) > 0);
    }
}
