//! The state of a container, and what readers pin of it.

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use crate::base::hash::hash_key;
use crate::base::record::Header;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{ArcSwap, Guard, Mutex};
#[cfg(feature = "tokio")]
use crate::base::{AtOnce, NotNow};
use crate::base::{Compression, ContainerId, Error, Result, Seq, Timestamp};
use crate::catalog::{ContainerRecord, Version};
use crate::data::bare_ranges::BareRanges;
use crate::engine::allowance::Allowance;
use crate::engine::feeds::Feeds;
use crate::engine::passes::Passes;
use crate::engine::settings_cell::{Changing, SettingsCell};
use crate::expiry::{Command, Commands, Settings, SettingsChange};
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
    #[inline]
    pub fn count_growth(&self) -> usize {
        let (bytes, before) = (self.memtable.bytes(), self.counted());
        self.counted.store(bytes, Ordering::Relaxed);
        bytes - before
    }

    /// Its bytes in the engine's totals.
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

/// What a read state lacks that the one before it had.
#[derive(Clone, Copy)]
pub(super) struct Leaves {
    /// Records up to this sequence number are in tables, not in memory.
    pub flushed: Option<Seq>,
    /// What had ended by this moment may be missing.
    pub purged: Option<Timestamp>,
}

impl Leaves {
    pub const NOTHING: Leaves = Leaves {
        flushed: None,
        purged: None,
    };
}

/// A container's memtables and version at one moment, newest first.
pub struct ReadState {
    /// Takes writes.
    pub active: Arc<Flushable>,
    /// Waiting to be flushed; newest first.
    pub sealed: Vec<Arc<Flushable>>,
    /// On disk.
    pub version: Arc<Version>,
}

impl ReadState {
    /// The memtables, newest first.
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

    /// Whether possibly a record is stored that a command reaches. False is certain.
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
        let deleted = self
            .range_deletes()
            .filter(|ranges| ranges.seq_max() > seq)
            .map(|ranges| ranges.newest_over(key))
            .max();
        newest.max(deleted).filter(|newest| *newest > seq)
    }
}

/// A container.
pub struct ContainerState {
    id: ContainerId,
    name: String,
    /// The sequence number of its creation.
    created: Seq,
    compression: Compression,
    dropped: AtomicBool,
    /// Where its memtables take their memory from.
    pool: Arc<Pool>,
    settings: SettingsCell,
    allowance: Allowance,
    read_state: ArcSwap<ReadState>,
    /// How many runs the read state has: each write asks, and need not pin it for that.
    runs: AtomicUsize,
    /// Held while the two are replaced. The earlier read states, as long as somebody reads them.
    installing: Mutex<Vec<Weak<ReadState>>>,
    /// Everything up to this sequence number is in runs.
    flushed: AtomicU64,
    /// The latest moment by which an installed job may have dropped what had ended.
    purged: AtomicU64,
    /// The newest version of a key that was a delete or an end, up to this sequence number, may be missing in the read
    /// state; stored before that is.
    changes_from: AtomicU64,
    /// Scans that hold a read state; the engine takes it from those at rest.
    held: Mutex<Vec<Weak<dyn Held>>>,
    /// What one run less has become worth to scans since the last merge of runs, in bytes rewritten.
    paid_by_scans: AtomicU64,
    /// What fewer dead records have become worth to scans since the last merge for that.
    paid_by_passing: AtomicU64,
    rest: Mutex<Option<Rest>>,
    /// Readers of its expirations.
    feeds: Arc<Feeds>,
    /// Readers of its changes.
    passes: Passes<ReadState>,
    /// Where scans found no items.
    bare: Arc<BareRanges>,
}

/// A state in which the container had nothing to merge or reclaim.
struct Rest {
    version: Weak<Version>,
    settings: Settings,
    paid: (u64, u64),
    until: Timestamp,
}

/// Something that holds a read state and can give it up.
pub trait Held: Send + Sync {
    /// Gives up the read state, unless it is in use at this moment.
    fn release(&self);
}

/// What a holder of a read state keeps between two calls.
pub trait Holder: Send {
    /// Gives up the read state; the next call takes the current one.
    fn give_up(&mut self);
}

impl<T: Holder> Held for Mutex<T> {
    fn release(&self) {
        if let Some(mut held) = self.try_lock() {
            held.give_up();
        }
    }
}

impl ContainerState {
    pub(super) fn new(
        record: &ContainerRecord,
        version: Version,
        pool: Arc<Pool>,
    ) -> ContainerState {
        let read_state = ReadState {
            active: Flushable::new(&pool),
            sealed: vec![],
            version: Arc::new(version),
        };
        // A container that was made meanwhile is no change of settings to whoever reads at an earlier number.
        let changed = match record.settings_seq > record.created {
            true => record.settings_seq,
            false => Seq(0),
        };
        ContainerState {
            id: record.id,
            name: record.name.clone(),
            created: record.created,
            compression: record.compression,
            dropped: AtomicBool::new(false),
            pool,
            settings: SettingsCell::new(record.settings.clone(), changed),
            allowance: Allowance::new(record.quota),
            runs: AtomicUsize::new(read_state.version.runs.len()),
            read_state: ArcSwap::from_pointee(read_state),
            installing: Mutex::new(vec![]),
            flushed: AtomicU64::new(record.flushed.0),
            purged: AtomicU64::new(0),
            changes_from: AtomicU64::new(record.changes_from.0),
            held: Mutex::new(vec![]),
            paid_by_scans: AtomicU64::new(0),
            paid_by_passing: AtomicU64::new(0),
            rest: Mutex::new(None),
            feeds: Arc::new(Feeds::new(record.keep_expired, record.ends_dropped)),
            passes: Passes::default(),
            bare: Arc::default(),
        }
    }

    pub fn id(&self) -> ContainerId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Readers of its expirations, and what is held for them.
    #[inline]
    pub(super) fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }

    /// Readers of its changes.
    pub(super) fn passes(&self) -> &Passes<ReadState> {
        &self.passes
    }

    /// Where scans found no items.
    #[inline]
    pub(super) fn bare(&self) -> &Arc<BareRanges> {
        &self.bare
    }

    /// Tells a write, which no reader sees yet, to all who wait for writes. The caller holds the commit lock.
    #[inline(always)]
    pub(super) fn note_write(&self, header: &Header, key: &[u8]) {
        self.feeds.note(header, key);
        self.bare.note(header, key);
    }

    /// How long what has ended is kept, in milliseconds.
    pub fn feeds_keep(&self) -> u64 {
        self.feeds.keep()
    }

    /// The sequence number of its creation.
    pub(super) fn created(&self) -> Seq {
        self.created
    }

    /// How its tables are stored.
    pub(super) fn compression(&self) -> Compression {
        self.compression
    }

    /// What its quota allows.
    #[inline]
    pub(super) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// The sequence number of the last write to it.
    pub(super) fn last_write(&self) -> Seq {
        let read_state = self.read_state();
        let flushables = read_state.flushables();
        let in_memory = flushables.map(|flushable| flushable.memtable.seq_max());
        in_memory.max().unwrap_or_default().max(self.flushed())
    }

    /// An empty memtable for it.
    pub(super) fn new_flushable(&self) -> Arc<Flushable> {
        Flushable::new(&self.pool)
    }

    /// Marks it as dropped: its handles can no longer read or write.
    pub(super) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
        self.passes.keep(|| self.pin());
        self.settings.change_version();
    }

    /// What one run less has become worth to scans, in bytes rewritten.
    pub(super) fn paid_by_scans(&self) -> u64 {
        self.paid_by_scans.load(Ordering::Relaxed)
    }

    /// Adds to what one run less is worth to scans.
    pub(super) fn pay_for_scan(&self, worth: u64) {
        self.paid_by_scans.fetch_add(worth, Ordering::Relaxed);
    }

    /// Resets that: runs were merged.
    pub(super) fn spend_scans(&self) {
        self.paid_by_scans.store(0, Ordering::Relaxed);
    }

    /// What fewer dead records have become worth to scans, in bytes rewritten.
    pub(super) fn paid_by_passing(&self) -> u64 {
        self.paid_by_passing.load(Ordering::Relaxed)
    }

    /// Adds to that.
    pub(super) fn pay_for_passing(&self, worth: u64) {
        self.paid_by_passing.fetch_add(worth, Ordering::Relaxed);
    }

    /// Resets that: dead records were merged away.
    pub(super) fn spend_passing(&self) {
        self.paid_by_passing.store(0, Ordering::Relaxed);
    }

    /// Settings and floors, read as one value.
    #[inline]
    pub fn settings(&self) -> Settings {
        self.settings.load()
    }

    /// The same, and how they came about.
    pub(super) fn whole_settings(&self) -> Arc<Settings> {
        self.settings.load_whole()
    }

    /// See [`SettingsCell::version`]. As long as it stays the same, the container is not dropped either.
    #[inline]
    pub(super) fn settings_version(&self) -> u64 {
        self.settings.version()
    }

    /// The settings, if nobody changes them now.
    #[cfg(feature = "tokio")]
    pub(super) fn settings_at_once(&self) -> AtOnce<Settings> {
        self.settings.try_load().ok_or(NotNow::Waits)
    }

    /// After the settings were read: whether they are of a change that a reader at this sequence number does not see.
    #[inline]
    pub(super) fn may_be_newer_than(&self, seq: Seq) -> bool {
        self.settings.are_newer_than(seq)
    }

    /// Begins to replace the settings; the caller holds the commit lock. Whoever asks for the settings waits from before the
    /// clock is read until the result is dropped, after the change is durable, so nobody judges by the old settings at a
    /// moment after the change. After an error or a panic the old settings stay.
    pub(super) fn begin_change(&self) -> Changing<'_> {
        self.passes.keep(|| self.pin());
        self.settings.begin((*self.whole_settings()).clone())
    }

    /// The read state, for as long as the guard is held.
    #[inline]
    pub(super) fn read_state(&self) -> Guard<Arc<ReadState>> {
        self.read_state.load()
    }

    pub(super) fn pin(&self) -> Arc<ReadState> {
        self.read_state.load_full()
    }

    /// Replaces the read state by the result of `change`, in which what `leaves` says is missed.
    pub(super) fn install(&self, leaves: Leaves, change: impl FnOnce(&ReadState) -> ReadState) {
        // Before the read state: whoever misses it there must see that it has left.
        if let Some(seq) = leaves.flushed {
            self.flushed.store(seq.0, Ordering::Release);
        }
        if let Some(judged_at) = leaves.purged {
            self.purged.fetch_max(judged_at.0, Ordering::Release);
        }
        let mut earlier = self.installing.lock();
        let last = self.read_state.load_full();
        let next = change(&last);
        self.runs.store(next.version.runs.len(), Ordering::Relaxed);
        self.read_state.store(Arc::new(next));
        earlier.retain(|earlier| earlier.strong_count() > 0);
        earlier.push(Arc::downgrade(&last));
    }

    /// These settings without the commands that reach nothing that is stored, nor anything that somebody reads still,
    /// who takes the settings of now. Those above `oldest_snapshot` are still to be told to whoever asks for the changes
    /// since then. The caller holds the commit lock.
    pub(super) fn as_needed(&self, settings: Settings, oldest_snapshot: Seq) -> Settings {
        if settings.commands.is_empty() {
            return settings;
        }
        let needed = self.needed_of(&settings, oldest_snapshot);
        self.note_changes_from(settings.last_left_out(&needed));
        needed
    }

    /// The same of settings that are only thought of.
    pub(super) fn needed_of(&self, settings: &Settings, oldest_snapshot: Seq) -> Settings {
        let earlier = self.installing.lock();
        let mut all: Vec<_> = earlier.iter().filter_map(Weak::upgrade).collect();
        all.push(self.read_state.load_full());
        settings.without_commands(|command| {
            command.seq <= oldest_snapshot && !all.iter().any(|one| one.may_fall_to(command))
        })
    }

    /// Fails if too many commands would stand after this change.
    pub(super) fn check_standing(&self, change: &SettingsChange, after: &Settings) -> Result<()> {
        let adds_one = matches!(
            change,
            SettingsChange::Expire(_) | SettingsChange::Loaded(_)
        );
        match adds_one && after.commands.iter().len() > Commands::MOST {
            true => Err(Error::TooManyCommands {
                container: self.name.clone(),
            }),
            false => Ok(()),
        }
    }

    /// After a change, under the commit lock: what is written from now on is counted apart from what a command ends.
    pub(super) fn note_change(&self, change: &SettingsChange) {
        if matches!(change, SettingsChange::Expire(_)) {
            self.read_state().active.memtable.begin_era();
        }
    }

    /// How many runs it has.
    #[inline]
    pub(super) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Registers a holder of read states of this container.
    pub(super) fn watch<T: Holder + 'static>(&self, holder: &Arc<Mutex<T>>) {
        let holder: Arc<dyn Held> = holder.clone();
        let mut held = self.held.lock();
        if held.len() == held.capacity() {
            held.retain(|holder| holder.strong_count() > 0);
        }
        held.push(Arc::downgrade(&holder));
    }

    /// Takes earlier read states from scans at rest, because their files are obsolete.
    pub(super) fn release_read_states(&self) {
        let mut held = self.held.lock();
        held.retain(|holder| {
            holder.upgrade().is_some_and(|holder| {
                holder.release();
                true
            })
        });
    }

    /// Notes that there is nothing to do with this version under these settings until a moment; `None`: ever.
    pub(super) fn note_rest(
        &self,
        version: &Arc<Version>,
        settings: Settings,
        until: Option<Timestamp>,
    ) {
        *self.rest.lock() = Some(Rest {
            version: Arc::downgrade(version),
            settings,
            paid: (self.paid_by_scans(), self.paid_by_passing()),
            until: until.unwrap_or(Timestamp::MAX),
        });
    }

    /// Until when there is nothing to do, if version and settings have not changed since the last check.
    pub(super) fn rests_until(&self) -> Option<Timestamp> {
        let rest = self.rest.lock();
        let rest = rest.as_ref()?;
        let is_same = std::ptr::eq(
            rest.version.as_ptr(),
            Arc::as_ptr(&self.read_state().version),
        ) && rest.settings == self.settings()
            && rest.paid == (self.paid_by_scans(), self.paid_by_passing());
        is_same.then_some(rest.until)
    }

    pub(super) fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Acquire))
    }

    /// Deletes and ends up to this sequence number may be missing in the read state, or the settings, that are installed
    /// next.
    pub(super) fn note_changes_from(&self, seq: Seq) {
        self.changes_from.fetch_max(seq.0, Ordering::Release);
    }

    /// From where on changes are known in a read state and in settings, which were loaded before.
    pub(super) fn changes_from(&self) -> Seq {
        Seq(self.changes_from.load(Ordering::Acquire))
    }

    /// Whether what had not ended by then may be missing in a read state, which was loaded before.
    pub(super) fn has_purged_after(&self, moment: Timestamp) -> bool {
        self.purged.load(Ordering::Acquire) > moment.0
    }

    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::ContainerDropped {
                name: self.name.clone(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
