//! Statistics of a database and of a container: plain data for users.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::base::Error;
use crate::values::Quota;

/// How long bytes stayed after the expiry of their item, until the tables or the memtable with them were removed. For
/// an item written before the last change of the default it counts from that change at the earliest, which may have
/// expired it. Times are kept in steps of less than a quarter of the time.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{ManualClock, Options};
///
/// let folder = tempfile::tempdir()?;
/// let clock = ManualClock::new(1_800_000_000_000);
/// let db = Options::new().clock(clock.clone()).open(folder.path())?;
/// db.container("c")?.put_with_ttl("k", "v", Duration::from_secs(60))?;
/// db.flush()?;
/// clock.advance(Duration::from_secs(60 + 5));
/// db.compact()?;
/// let lag = db.stats().reclaim_lag;
/// println!("half within {:?}, all within {:?}", lag.quantile(0.5), lag.longest());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimLag {
    /// Bytes by step.
    steps: Vec<u64>,
    longest: u64,
}

impl ReclaimLag {
    /// Counts bytes that stayed for this many milliseconds.
    pub(crate) fn add(&mut self, millis: u64, bytes: u64) {
        let step = ReclaimLag::step(millis);
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += bytes;
        self.longest = self.longest.max(millis);
    }

    /// Adds the counts of `other`, whose bytes stayed this many milliseconds more.
    pub(crate) fn merge(&mut self, other: &ReclaimLag, more: u64) {
        for (step, bytes) in other.steps.iter().enumerate().filter(|step| *step.1 > 0) {
            let counted = ReclaimLag::last_of(step).min(other.longest);
            self.add(counted.saturating_add(more), *bytes);
        }
    }

    /// The index of a step: times below 4 ms have a step each, then there are four to every doubling.
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
                // In this form the last step of all does not overflow.
                ((4 + quarter) << (log - 2)) + ((1 << (log - 2)) - 1)
            }
        }
    }

    /// All reclaimed bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// The longest time that bytes stayed.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest)
    }

    /// The time within which this share of the bytes, from 0 to 1, was reclaimed, rounded up to the end of its step;
    /// zero if there were none.
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

    /// The steps with bytes: the longest time of each, and the bytes.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let steps = self.steps.iter().enumerate();
        steps
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(step, bytes)| (Duration::from_millis(ReclaimLag::last_of(step)), *bytes))
    }
}

/// A place where a file is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The offset in bytes from its start; 0 when the device does not say.
    pub offset: u64,
    /// The fault, in words.
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

/// Statistics of a database, at one moment. Sizes are in bytes. Estimates are made from the statistics of memtables and
/// tables, in some milliseconds; they are within 5 % of the stored bytes, and follow a change of the default at once.
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
    /// Of the stored bytes, those of tombstones; exact.
    pub tombstone_bytes: u64,
    /// Bytes of all records in memtables and tables: key, value and 16 for each, before compression; exact, and the sum
    /// of the four values above. The log, which holds some of them again, is not included.
    pub stored_bytes: u64,
    /// Bytes on disk: tables, log, manifest.
    pub disk_bytes: u64,
    /// Of these, the log.
    pub log_bytes: u64,
    /// Of these, the tables.
    pub table_bytes: u64,
    /// Removed tables that a value, an iterator or a job still holds, or that wait to be unlinked.
    pub pinned_bytes: u64,
    /// Memory of writes that are not in a table yet.
    pub memtable_bytes: u64,
    /// Memory of writes that are in a table, or whose container was dropped, while a value, an iterator or a job still
    /// holds it.
    pub pinned_memtable_bytes: u64,
    /// The earliest expiry of an expired item that is still in a memtable or a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
    /// By how much expired bytes have missed `Options::reclaim_within`, or an eighth of the longest lifetime beside
    /// them, at most; zero if none has. If it stays above zero, the budget of background work is too small.
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
    /// Bytes written to the log since open; of a follower, by the process that writes, since that has opened.
    pub bytes_logged: u64,
    /// Bytes of tables written by flushes since open.
    pub bytes_flushed: u64,
    /// Bytes of tables written by merging and reclaiming since open.
    pub bytes_merged: u64,
    /// Bytes of tables dropped since open, without reading or writing them.
    pub bytes_dropped: u64,
    /// Bytes of tables verified since open, by `Database::verify` and by `Options::scrub_within`.
    pub bytes_scrubbed: u64,
    /// The damage that these found in tables that still exist.
    pub damage: Vec<Damage>,
    /// How long the expired bytes stayed that were reclaimed since open.
    pub reclaim_lag: ReclaimLag,
    /// Flushes since open.
    pub flushes: u64,
    /// Merges and rewrites since open.
    pub merges: u64,
    /// Times a writer was throttled or stopped since open.
    pub stalls: u64,
    /// How long writers were throttled or stopped since open, together.
    pub stall_time: Duration,
    /// Syncs of the log since open.
    pub syncs: u64,
    /// How long they took, together.
    pub sync_time: Duration,
    /// Reads of one key since open that found nothing because the item had expired and was not reclaimed yet.
    pub expired_misses: u64,
    /// The error or panic of the last try of flushing, merging, syncing or making room for the log in the background,
    /// if that failed. It is retried after some seconds, sooner if a writer waits for it; after a failed sync of the
    /// log the database must be opened again.
    pub background_error: Option<String>,
}

/// Statistics of a container, at one moment. Sizes are in bytes; for estimates, see [`Stats`].
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
    /// Of the stored bytes, those of tombstones; exact.
    pub tombstone_bytes: u64,
    /// Bytes of all records in memtables and tables: key, value and 16 for each, before compression; exact, and the sum
    /// of the four values above. The log, which holds some of them again, is not included.
    pub stored_bytes: u64,
    /// Bytes of its tables on disk.
    pub disk_bytes: u64,
    /// Memory of writes that are not in a table yet.
    pub memtable_bytes: u64,
    /// The earliest expiry of an expired item that is still in a memtable or a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
    /// By how much expired bytes have missed `Options::reclaim_within`, or an eighth of the longest lifetime beside
    /// them, at most; zero if none has. If it stays above zero, the budget of background work is too small.
    pub overdue: Duration,
    /// Runs.
    pub runs: u64,
    /// Tables of all runs.
    pub tables: u64,
    /// Range deletes that still hide something.
    pub range_deletes: u64,
    /// Commands to expire items that stand: those that no later one covers, and that concern something that is stored. Up to
    /// 64; where time is given there is no limit. Each costs reads of old items some time.
    pub expire_commands: u64,
    /// The most live bytes it may hold, if there is a limit.
    pub quota: Option<Quota>,
    /// The next job of merging or reclaiming, and the reason for it; or how long there is none.
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
