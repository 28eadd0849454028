//! What happened since the database was opened, counted always and relaxed; and the plain copies that users get.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::base::Error;
use crate::base::sync::Mutex;

/// A count that many threads raise.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Raises it.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counts of a database.
#[derive(Debug, Default)]
pub struct Counters {
    /// Bytes of keys and values that were put.
    pub bytes_put: Counter,
    /// Bytes of tables written by flushes.
    pub bytes_flushed: Counter,
    /// Bytes of tables written by merges and rewrites.
    pub bytes_merged: Counter,
    /// Bytes of tables removed without reading or writing anything.
    pub bytes_dropped: Counter,
    /// Bytes of tables that were verified.
    pub bytes_scrubbed: Counter,
    /// Flushes done.
    pub flushes: Counter,
    /// Merges and rewrites done.
    pub merges: Counter,
    /// Times a writer was slowed or stopped.
    pub stalls: Counter,
    reclaim_lag: Mutex<ReclaimLag>,
}

impl Counters {
    /// Bytes were given up; so many milliseconds went by since `lag` was taken.
    pub fn note_reclaimed(&self, lag: &ReclaimLag, since_then: u64) {
        self.reclaim_lag.lock().merge(lag, since_then);
    }

    /// How long expired bytes stayed.
    pub fn reclaim_lag(&self) -> ReclaimLag {
        self.reclaim_lag.lock().clone()
    }
}

/// How long bytes stayed after the expiry of their item: from that moment until the tables or the memtable that held them
/// were given up. What was written before the last change of the default counts from that change on, which may have been what
/// ended it. Kept in steps of less than a quarter of the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimLag {
    /// Bytes by step.
    steps: Vec<u64>,
    longest: u64,
}

impl ReclaimLag {
    /// Counts bytes that stayed for so many milliseconds.
    pub(crate) fn add(&mut self, millis: u64, bytes: u64) {
        let step = ReclaimLag::step(millis);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += bytes;
        self.longest = self.longest.max(millis);
    }

    /// Counts all that `other` counted, which stayed so many milliseconds more.
    pub(crate) fn merge(&mut self, other: &ReclaimLag, more: u64) {
        for (step, bytes) in other.steps.iter().enumerate().filter(|step| *step.1 > 0) {
            let counted = ReclaimLag::last_of(step).min(other.longest);
            self.add(counted.saturating_add(more), *bytes);
        }
    }

    /// Milliseconds below 4 have a step each, then there are four to every doubling.
    fn step(millis: u64) -> usize {
        match millis.checked_ilog2() {
            None | Some(0 | 1) => millis as usize,
            Some(log) => 4 * (log as usize - 1) + ((millis >> (log - 2)) & 3) as usize,
        }
    }

    /// The longest time of a step, in milliseconds.
    fn last_of(step: usize) -> u64 {
        match step {
            0..4 => step as u64,
            _ => {
                let (log, quarter) = (step / 4 + 1, (step % 4) as u64);
                // Written so that the last step of all does not overflow.
                ((4 + quarter) << (log - 2)) + ((1 << (log - 2)) - 1)
            }
        }
    }

    /// All bytes that were given up.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// The longest time that any stayed.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest)
    }

    /// The time within which this share of the bytes, from 0 to 1, was given up, rounded up to the end of its step; zero
    /// when there were none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.bytes() as f64 * share.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (step, bytes) in self.steps.iter().enumerate() {
            seen += bytes;
            if seen >= wanted && seen > 0 {
                return Duration::from_millis(ReclaimLag::last_of(step).min(self.longest));
            }
        }
        Duration::ZERO
    }

    /// The steps in which there are bytes: the longest time of each, and how many.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let steps = self.steps.iter().enumerate();
        steps
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(step, bytes)| (Duration::from_millis(ReclaimLag::last_of(step)), *bytes))
    }
}

/// Where a file is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it, in bytes from its start; 0 when the device does not say.
    pub offset: u64,
    /// What does not fit.
    pub what: String,
}

impl Damage {
    pub(crate) fn of(error: &Error) -> Damage {
        let (path, offset) = match error {
            Error::Corruption { path, offset, .. } => (path.clone(), *offset),
            Error::Io { path, .. } | Error::UnsupportedFormat { path, .. } => (path.clone(), 0),
            _ => (PathBuf::new(), 0),
        };
        Damage {
            path,
            offset,
            what: error.to_string(),
        }
    }
}

/// A database in numbers, at one moment. Sizes are in bytes. Estimates are made from what memtables and tables say of
/// themselves, in a few milliseconds; they are within 5 % of the stored bytes, and follow a change of the default at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Items that can be read now; estimated.
    pub live_items: u64,
    /// Of the stored bytes, those of items that can be read; estimated.
    pub live_bytes: u64,
    /// Of the stored bytes, those of items that are expired, hidden by a newer version or not; estimated.
    pub expired_bytes: u64,
    /// Of the stored bytes, those of items that are not expired, but hidden by a newer version, a delete or a range
    /// delete; estimated. An open snapshot may still see them.
    pub superseded_bytes: u64,
    /// Of the stored bytes, those of tombstones, which only hide; exact.
    pub tombstone_bytes: u64,
    /// Bytes of all records in memtables and tables: key, value and 16 for each, before they are compressed; exact, and
    /// the sum of the four before. The log, which holds some of them once more, does not count.
    pub stored_bytes: u64,
    /// What the database takes on disk: tables, log, manifest.
    pub disk_bytes: u64,
    /// Of these, the log.
    pub log_bytes: u64,
    /// Of these, the tables.
    pub table_bytes: u64,
    /// Removed tables that a value, an iterator or a job still holds, or that wait to be unlinked.
    pub pinned_bytes: u64,
    /// Memory of writes that are not yet in a table.
    pub memtable_bytes: u64,
    /// Memory of writes that are in a table, or whose container was dropped, and that a value, an iterator or a job still
    /// holds.
    pub pinned_memtable_bytes: u64,
    /// The expiry of the item that has been expired for longest and is still in a memtable or a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
    /// By how much the bytes that are furthest behind `Options::reclaim_within`, or behind an eighth of the longest
    /// lifetime beside them, have missed it; zero while none has. More than a moment means that the budget is too small.
    pub overdue: Duration,
    /// Containers.
    pub containers: u64,
    /// Runs of all containers.
    pub runs: u64,
    /// Tables of all runs.
    pub tables: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Bytes of keys and values put since open.
    pub bytes_put: u64,
    /// Bytes written to the log since open.
    pub bytes_logged: u64,
    /// Bytes of tables written by flushes since open.
    pub bytes_flushed: u64,
    /// Bytes of tables written by merging and reclaiming since open.
    pub bytes_merged: u64,
    /// Bytes of tables given back whole since open, without reading or writing anything.
    pub bytes_dropped: u64,
    /// Bytes of tables verified since open, by `Database::verify` and by `Options::scrub_within`.
    pub bytes_scrubbed: u64,
    /// What these found damaged, of the tables that there are.
    pub damage: Vec<Damage>,
    /// How long expired bytes stayed that were given up since open.
    pub reclaim_lag: ReclaimLag,
    /// Flushes since open.
    pub flushes: u64,
    /// Merges and rewrites since open.
    pub merges: u64,
    /// Times a writer was slowed or stopped since open.
    pub stalls: u64,
    /// With what flushing, merging, syncing or making room for the log in the background failed, by an error or a panic,
    /// when it was last tried, if it did. It is tried again after some seconds, sooner when a writer waits for it; after a
    /// failed sync of the log the database has to be opened again.
    pub background_error: Option<String>,
}

/// A container in numbers, at one moment. Sizes are in bytes; for estimates, see [`Stats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStats {
    /// Items that can be read now; estimated.
    pub live_items: u64,
    /// Of the stored bytes, those of items that can be read; estimated.
    pub live_bytes: u64,
    /// Of the stored bytes, those of items that are expired, hidden by a newer version or not; estimated.
    pub expired_bytes: u64,
    /// Of the stored bytes, those of items that are not expired, but hidden by a newer version, a delete or a range
    /// delete; estimated. An open snapshot may still see them.
    pub superseded_bytes: u64,
    /// Of the stored bytes, those of tombstones, which only hide; exact.
    pub tombstone_bytes: u64,
    /// Bytes of all records in memtables and tables: key, value and 16 for each, before they are compressed; exact, and
    /// the sum of the four before. The log, which holds some of them once more, does not count.
    pub stored_bytes: u64,
    /// What its tables take on disk.
    pub disk_bytes: u64,
    /// Memory of writes that are not yet in a table.
    pub memtable_bytes: u64,
    /// The expiry of the item that has been expired for longest and is still in a memtable or a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
    /// By how much the bytes that are furthest behind `Options::reclaim_within`, or behind an eighth of the longest
    /// lifetime beside them, have missed it; zero while none has. More than a moment means that the budget is too small.
    pub overdue: Duration,
    /// Runs.
    pub runs: u64,
    /// Tables of all runs.
    pub tables: u64,
    /// Range deletes that still have something to hide.
    pub range_deletes: u64,
    /// The next piece of merging or reclaiming, and why it is the next; or for how long there is none.
    pub explain: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_lag_follow_each_other() {
        let mut last = 0;
        for step in 0..252 {
            let first = if step == 0 { 0 } else { last + 1 };
            last = ReclaimLag::last_of(step);
            assert_eq!(ReclaimLag::step(first), step);
            assert_eq!(ReclaimLag::step(last), step);
            assert!(step == 0 || last - first <= first / 4 + 1);
        }
        assert_eq!(last, u64::MAX);
    }

    #[test]
    fn quantiles_of_lag_are_of_bytes() {
        let mut lag = ReclaimLag::default();
        assert_eq!(lag.quantile(0.5), Duration::ZERO);
        lag.add(2, 90);
        let mut more = ReclaimLag::default();
        more.add(1_000, 10);
        lag.merge(&more, 0);
        assert_eq!(lag.bytes(), 100);
        assert_eq!(lag.quantile(0.9), Duration::from_millis(2));
        assert_eq!(lag.quantile(0.91), Duration::from_millis(1_000));
        assert_eq!(lag.longest(), Duration::from_millis(1_000));
        assert_eq!(lag.steps().map(|step| step.1).sum::<u64>(), 100);
        let mut later = ReclaimLag::default();
        later.merge(&lag, 500);
        assert_eq!(
            (later.bytes(), later.longest()),
            (100, Duration::from_millis(1_500))
        );
        assert!(later.quantile(0.9) >= Duration::from_millis(502));
    }
}
