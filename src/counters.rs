//! What happened since the database was opened, counted always and relaxed; and the plain copies that users get.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

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
    /// Flushes done.
    pub flushes: Counter,
    /// Merges and rewrites done.
    pub merges: Counter,
    /// Times a writer was slowed or stopped.
    pub stalls: Counter,
}

/// A database in numbers, at one moment. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Items that can be read, estimated from samples.
    pub live_items: u64,
    /// Their bytes: key, value and 16 for each; estimated.
    pub live_bytes: u64,
    /// Bytes of expired items that are still in live files; estimated.
    pub expired_bytes: u64,
    /// Bytes of versions in live files that a newer one hides; estimated.
    pub superseded_bytes: u64,
    /// What the database takes on disk: tables, log, manifest.
    pub disk_bytes: u64,
    /// Of these, the log.
    pub log_bytes: u64,
    /// Of these, the tables.
    pub table_bytes: u64,
    /// Removed tables that a value, an iterator or a job still holds.
    pub pinned_bytes: u64,
    /// Memory of writes that are not yet in a table.
    pub memtable_bytes: u64,
    /// The expiry of the item that has been expired for longest and is still in a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
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
    /// Flushes since open.
    pub flushes: u64,
    /// Merges and rewrites since open.
    pub merges: u64,
    /// Times a writer was slowed or stopped since open.
    pub stalls: u64,
}

/// A container in numbers, at one moment. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerStats {
    /// Items that can be read, estimated from samples.
    pub live_items: u64,
    /// Their bytes: key, value and 16 for each; estimated.
    pub live_bytes: u64,
    /// Bytes of expired items that are still in live files; estimated.
    pub expired_bytes: u64,
    /// Bytes of versions in live files that a newer one hides; estimated.
    pub superseded_bytes: u64,
    /// What its tables take on disk.
    pub disk_bytes: u64,
    /// Memory of writes that are not yet in a table.
    pub memtable_bytes: u64,
    /// The expiry of the item that has been expired for longest and is still in a live file.
    pub oldest_unreclaimed: Option<SystemTime>,
    /// Runs.
    pub runs: u64,
    /// Tables of all runs.
    pub tables: u64,
    /// Range deletes that still have something to hide.
    pub range_deletes: u64,
}
