//! The state of a container that readers pin: its memtables and its version at one moment.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::base::Seq;
use crate::base::hash::hash_key;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::catalog::ContainerVersion;
use crate::expiry::Command;
use crate::mem::{Memtable, Pool, RangeDeletes};
use crate::wal::Position as LogPosition;

/// A memtable, and the log segments that hold its records.
pub struct Flushable {
    /// Its records.
    pub memtable: Memtable,
    /// The first log segment that holds one of them; `u64::MAX` while there is none.
    segment: AtomicU64,
    /// The last one; 0 while there is none.
    last_segment: AtomicU64,
    /// It was relogged: until the log is synced up to this position, it needs this segment.
    moving: Mutex<Option<(u64, LogPosition)>>,
    /// Bytes of the memtable that the engine's totals include.
    counted: AtomicUsize,
}

impl Flushable {
    /// An empty memtable, which takes its memory from `pool`.
    pub fn new(pool: &Arc<Pool>) -> Arc<Flushable> {
        Arc::new(Flushable {
            memtable: Memtable::with_pool(pool.clone()),
            segment: AtomicU64::new(u64::MAX),
            last_segment: AtomicU64::new(0),
            moving: Mutex::new(None),
            counted: AtomicUsize::new(0),
        })
    }

    /// The bytes it has grown by since the last call. The caller holds the commit lock and adds them to the engine's
    /// totals.
    #[inline(always)]
    pub fn count_growth(&self) -> usize {
        let (bytes, before) = (self.memtable.bytes(), self.counted());
        self.counted.store(bytes, Ordering::Relaxed);
        bytes - before
    }

    /// Its bytes in the engine's totals.
    #[inline]
    pub fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    /// The first log segment it needs if the log is durable up to `synced`.
    pub fn needed_from(&self, synced: LogPosition) -> Option<u64> {
        let mut moving = self.moving.lock();
        *moving = moving.filter(|(_, end)| *end > synced);
        moving.map_or_else(|| self.segment(), |(before, _)| Some(before))
    }

    /// The first log segment it will need once everything is synced.
    pub fn segment(&self) -> Option<u64> {
        Some(self.segment.load(Ordering::Acquire)).filter(|segment| *segment != u64::MAX)
    }

    /// The range of log segments that its records are in; empty if there are none.
    pub fn segments(&self) -> RangeInclusive<u64> {
        self.segment.load(Ordering::Acquire)..=self.last_segment.load(Ordering::Acquire)
    }

    /// Notes that it is a part of a memtable that was logged in these segments.
    pub fn stays_in(&self, segments: RangeInclusive<u64>) {
        self.segment.store(*segments.start(), Ordering::Release);
        self.last_segment.store(*segments.end(), Ordering::Release);
    }

    /// Notes a record in `segment`. The caller holds the commit lock, so segment numbers only rise.
    #[inline]
    pub fn logged_in(&self, segment: u64) {
        if segment < self.segment.load(Ordering::Relaxed) {
            self.segment.store(segment, Ordering::Release);
        }
        self.last_segment.store(segment, Ordering::Release);
    }

    /// Notes that all of it was relogged, from `segment` on and up to `end`.
    pub fn relogged_in(&self, segment: u64, end: LogPosition) {
        let mut moving = self.moving.lock();
        // The frames it was relogged from may not be durable either.
        let before = moving.map(|(before, _)| before).or_else(|| self.segment());
        *moving = Some((before.unwrap_or(segment), end));
        self.segment.store(segment, Ordering::Release);
    }
}

/// A container's memtables and version at one moment, newest first.
pub struct ReadState {
    /// Takes writes.
    pub active: Arc<Flushable>,
    /// Waiting to be flushed; newest first.
    pub sealed: Vec<Arc<Flushable>>,
    /// On disk.
    pub version: Arc<ContainerVersion>,
}

impl ReadState {
    /// The memtables, newest first.
    #[inline]
    pub fn flushables(&self) -> impl DoubleEndedIterator<Item = &Arc<Flushable>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }

    /// The range deletes of the memtables and of the version, newest first.
    pub fn range_deletes(&self) -> impl Iterator<Item = &Arc<RangeDeletes>> {
        let in_memory = self
            .flushables()
            .map(|flushable| flushable.memtable.range_deletes());
        let all = in_memory.chain([&self.version.range_deletes]);
        all.filter(|ranges| !ranges.is_empty())
    }

    /// Whether a stored record may be one that a command reaches. False is certain.
    pub fn may_fall_to(&self, command: &Command) -> bool {
        let mut memtables = self.flushables().map(|flushable| &flushable.memtable);
        let mut tables = self.version.runs.iter().flat_map(|run| &run.files);
        memtables.any(|memtable| memtable.census().may_fall_to(command, Seq(0)))
            || tables.any(|file| {
                let statistics = file.table.statistics();
                statistics
                    .census
                    .may_fall_to(command, statistics.judged_up_to())
            })
    }

    /// Whether a range delete with a sequence number above `seq`, and up to `max`, covers the key.
    #[inline]
    pub fn covers(&self, key: &[u8], seq: Seq, max: Seq) -> bool {
        self.flushables()
            .any(|flushable| flushable.memtable.range_deletes().covers(key, seq, max))
            || self.version.range_deletes.covers(key, seq, max)
    }

    /// The sequence number of the last write to the key after `seq`, if the memtables have one.
    pub fn written_since(&self, key: &[u8], seq: Seq) -> Option<Seq> {
        let hash = hash_key(key);
        let later = self
            .flushables()
            .filter(|flushable| flushable.memtable.seq_max() > seq);
        let written = later.filter_map(|flushable| flushable.memtable.get(hash, key, Seq::MAX));
        let newest = written.map(|entry| entry.header.seq).max();
        let newest = newest.filter(|newest| *newest > seq);
        newest.max(self.range_deleted_since(key, seq))
    }

    /// The newest range delete over a key above this sequence number, in the memtables and in the version.
    pub fn range_deleted_since(&self, key: &[u8], seq: Seq) -> Option<Seq> {
        let later = self.range_deletes().filter(|ranges| ranges.seq_max() > seq);
        let newest = later.map(|ranges| ranges.newest_over(key)).max();
        newest.filter(|newest| *newest > seq)
    }
}
