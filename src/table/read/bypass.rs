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
//! nothing: after a start all of them are such, and reading them in the map fills free memory.
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
/// After a read that was refused, so many evicted blocks come before the next try.
const REFUSED: i32 = -10_000 * EVICTED;

/// The way past the system's cache, for the tables of a database.
pub struct Bypass {
    fs: Arc<dyn Fs>,
    /// Above 0: blocks are evicted.
    evictions: AtomicI32,
    turn: AtomicU32,
}

impl Bypass {
    /// The way to the files of this file system.
    pub fn new(fs: Arc<dyn Fs>) -> Bypass {
        Bypass {
            fs,
            evictions: AtomicI32::new(0),
            turn: AtomicU32::new(0),
        }
    }

    /// Whether to take it for a block that is not in memory; `was_read`: before, in the map.
    pub fn is_due(&self, was_read: bool) -> bool {
        let evictions = self.evictions.load(Ordering::Relaxed);
        let seen = match was_read {
            true => (evictions + EVICTED).min(MOST),
            false => evictions - i32::from(evictions > 0),
        };
        if seen != evictions {
            self.evictions.store(seen, Ordering::Relaxed);
        }
        let is_mapped = || self.turn.fetch_add(1, Ordering::Relaxed) % MAPPED_ONE_IN == 0;
        evictions > 0 && !is_mapped()
    }

    /// A piece of a file that a job reads, which says nothing about eviction; `None` where it is not read so.
    pub fn read_piece(&self, path: &Path, piece: Range<u64>) -> Option<Bytes> {
        let is_refused = self.evictions.load(Ordering::Relaxed) < 0;
        let read = || self.read(&[(path, piece)]).pop().flatten();
        if is_refused { None } else { read() }
    }

    /// Ranges of files, those that could be read so.
    pub fn read(&self, wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
        let read = self.fs.read_past_cache(wanted);
        if read.iter().any(Option::is_none) {
            self.evictions.store(REFUSED, Ordering::Relaxed);
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::MemoryDisk;

    fn bypass() -> Bypass {
        Bypass::new(Arc::new(MemoryDisk::new(Path::new("/"))))
    }

    fn taken(bypass: &Bypass, times: usize, was_read: bool) -> usize {
        (0..times).filter(|_| bypass.is_due(was_read)).count()
    }

    #[test]
    fn what_was_never_read_fills_free_memory() {
        assert_eq!(taken(&bypass(), 10_000, false), 0);
    }

    #[test]
    fn where_blocks_are_evicted_most_are_read_past_the_cache() {
        let bypass = bypass();
        assert!(!bypass.is_due(true), "nothing was evicted before");
        assert_eq!(taken(&bypass, 3_200, true), 3_100);
        assert!(taken(&bypass, 3_200, false) >= 3_090, "for a while");
        taken(&bypass, 10_000, false);
        assert_eq!(taken(&bypass, 800, false), 0, "nothing is evicted");
    }

    #[test]
    fn after_a_read_that_was_refused_none_is_tried_for_long() {
        let bypass = bypass();
        assert!(taken(&bypass, 10, true) > 0);
        assert_eq!(bypass.read(&[(Path::new("a file"), 0..10)]), [None]);
        assert_eq!(taken(&bypass, 9_000, true), 0);
        assert!(taken(&bypass, 2_000, true) > 0);
    }
}
