//! Counters of a database since it was opened.
//!
//! Each counter is a state of its own, to which anybody may add; so they are shown. The lag of reclaiming is not: it is a
//! histogram under a lock.

use crate::base::counters::{Counter, WaitCounter};
use crate::base::sync::{CachePadded, Mutex};
use crate::values::stats::ReclaimLag;

/// All counters of a database.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of keys and values that were put; in cache lines of its own, because every write changes it.
    pub bytes_put: CachePadded<Counter>,
    /// Bytes of tables written by flushes.
    pub bytes_flushed: Counter,
    /// Bytes of tables written by merges and rewrites.
    pub bytes_merged: Counter,
    /// Bytes of tables dropped without reading or writing them.
    pub bytes_dropped: Counter,
    /// Bytes of tables that were verified.
    pub bytes_scrubbed: Counter,
    /// Flushes done.
    pub flushes: Counter,
    /// Merges and rewrites done.
    pub merges: Counter,
    /// Times a writer was slowed or stopped.
    pub stalls: WaitCounter,
    /// Reads of one key that found an expired item.
    pub expired_misses: Counter,
    reclaim_lag: Mutex<ReclaimLag>,
}

impl Counters {
    /// Notes reclaimed bytes, `since_then` milliseconds after `lag` was taken.
    pub fn note_reclaimed(&self, lag: &ReclaimLag, since_then: u64) {
        self.reclaim_lag.lock().merge(lag, since_then);
    }

    /// How long expired bytes stayed.
    pub fn reclaim_lag(&self) -> ReclaimLag {
        self.reclaim_lag.lock().clone()
    }
}
