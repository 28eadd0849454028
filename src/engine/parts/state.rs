//! The state of a container.

use std::sync::{Arc, Weak};

use crate::base::record::Header;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Guard, Mutex};
use crate::base::{ContainerId, Error, Patience, Result, Seq, Timestamp};
use crate::catalog::{ContainerRecord, ContainerVersion};
use crate::data::bare_ranges::BareRanges;
use crate::engine::parts::allowance::Allowance;
use crate::engine::parts::feeds::Feeds;
use crate::engine::parts::fills::Fills;
use crate::engine::parts::passes::Passes;
use crate::engine::parts::read_state::{Flushable, ReadState};
use crate::engine::parts::read_states::{Missing, ReadStates};
use crate::engine::parts::settings_cell::{Changing, SettingsCell};
use crate::expiry::{Commands, ExpiryView, Settings, SettingsChange};
use crate::mem::Pool;
use crate::values::Compression;

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
    read_states: ReadStates,
    /// Scans that hold a read state; the engine takes it from those at rest.
    held: Mutex<Vec<Weak<dyn Releasable>>>,
    /// The worth of one run less to scans since the last merge of runs, in bytes rewritten.
    scan_credit: AtomicU64,
    /// The worth of fewer dead records to scans since the last merge for that, in bytes rewritten.
    paid_by_passing: AtomicU64,
    rest: Mutex<Option<Rest>>,
    /// Readers of its expirations.
    feeds: Arc<Feeds>,
    /// Readers of its changes.
    passes: Passes<ReadState>,
    /// Where scans found no items.
    bare: Arc<BareRanges>,
    /// Keys whose values are being made.
    fills: Arc<Fills>,
}

/// A state in which the container had nothing to merge or reclaim.
struct Rest {
    version: Weak<ContainerVersion>,
    settings: Settings,
    paid: (u64, u64),
    until: Timestamp,
}

/// Something that holds a read state and can give it up.
pub trait Releasable: Send + Sync {
    /// Gives up the read state, unless it is in use at this moment.
    fn release(&self);
}

/// Something that may hold a read state between two calls.
pub trait Holder: Send {
    /// Gives up the read state; the next call takes the current one.
    fn give_up(&mut self);
}

impl<T: Holder> Releasable for Mutex<T> {
    fn release(&self) {
        if let Some(mut held) = self.try_lock() {
            held.give_up();
        }
    }
}

impl ContainerState {
    pub(in crate::engine) fn new(
        record: &ContainerRecord,
        version: ContainerVersion,
        pool: Arc<Pool>,
    ) -> ContainerState {
        let read_state = ReadState {
            active: Flushable::new(&pool),
            sealed: vec![],
            version: Arc::new(version),
        };
        // To a reader at an earlier number, a container that was made meanwhile is no change of settings.
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
            read_states: ReadStates::new(read_state, record.flushed, record.changes_from),
            held: Mutex::new(vec![]),
            scan_credit: AtomicU64::new(0),
            paid_by_passing: AtomicU64::new(0),
            rest: Mutex::new(None),
            feeds: Arc::new(Feeds::new(record.keep_expired, record.ends_dropped)),
            passes: Passes::default(),
            bare: Arc::default(),
            fills: Arc::default(),
        }
    }

    pub fn id(&self) -> ContainerId {
        self.id
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Readers of its expirations, and the ended items that are kept for them.
    #[inline]
    pub(in crate::engine) fn feeds(&self) -> &Arc<Feeds> {
        &self.feeds
    }

    /// Readers of its changes.
    pub(in crate::engine) fn passes(&self) -> &Passes<ReadState> {
        &self.passes
    }

    /// Where scans found no items.
    #[inline]
    pub fn fills(&self) -> &Arc<Fills> {
        &self.fills
    }

    /// See the field.
    pub(in crate::engine) fn bare(&self) -> &Arc<BareRanges> {
        &self.bare
    }

    /// Tells a write of this moment, which no reader sees yet, to all readers that wait for writes. The caller holds the
    /// commit lock.
    #[inline(always)]
    pub(in crate::engine) fn note_write(
        &self,
        at: Timestamp,
        header: &Header,
        key: &[u8],
        value: &[u8],
    ) {
        self.feeds.note(at, header, key, value);
        self.bare.note(header, key);
    }

    /// How long ended items are kept, in milliseconds.
    pub fn feeds_keep(&self) -> u64 {
        self.feeds.keep()
    }

    /// The sequence number of its creation.
    pub(in crate::engine) fn created(&self) -> Seq {
        self.created
    }

    /// How its tables are stored.
    pub(in crate::engine) fn compression(&self) -> Compression {
        self.compression
    }

    /// The allowance of its quota.
    #[inline]
    pub(in crate::engine) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// The sequence number of the last write to it.
    pub(in crate::engine) fn last_write(&self) -> Seq {
        let read_state = self.read_state();
        let flushables = read_state.flushables();
        let in_memory = flushables.map(|flushable| flushable.memtable.seq_max());
        in_memory.max().unwrap_or_default().max(self.flushed())
    }

    /// An empty memtable for it.
    pub(in crate::engine) fn new_flushable(&self) -> Arc<Flushable> {
        Flushable::new(&self.pool)
    }

    /// Marks it as dropped: its handles can no longer read or write.
    pub(in crate::engine) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
        self.passes.keep(|| self.pin());
        self.settings.change_version();
        self.feeds.wake();
    }

    /// The worth of one run less to scans, in bytes rewritten.
    pub(in crate::engine) fn scan_credit(&self) -> u64 {
        self.scan_credit.load(Ordering::Relaxed)
    }

    /// Adds to the worth of one run less to scans.
    pub(in crate::engine) fn pay_for_scan(&self, worth: u64) {
        self.scan_credit.fetch_add(worth, Ordering::Relaxed);
    }

    /// Resets that: runs were merged.
    pub(in crate::engine) fn spend_scans(&self) {
        self.scan_credit.store(0, Ordering::Relaxed);
    }

    /// The worth of fewer dead records to scans, in bytes rewritten.
    pub(in crate::engine) fn paid_by_passing(&self) -> u64 {
        self.paid_by_passing.load(Ordering::Relaxed)
    }

    /// Adds to that.
    pub(in crate::engine) fn pay_for_passing(&self, worth: u64) {
        self.paid_by_passing.fetch_add(worth, Ordering::Relaxed);
    }

    /// Resets that: dead records were merged away.
    pub(in crate::engine) fn spend_passing(&self) {
        self.paid_by_passing.store(0, Ordering::Relaxed);
    }

    /// Settings and floors, read as one value.
    #[inline]
    pub fn settings(&self) -> Settings {
        self.settings.load()
    }

    /// The same, and how they came about.
    pub(in crate::engine) fn whole_settings(&self) -> Arc<Settings> {
        self.settings.load_whole()
    }

    /// The settings, and the write that changed them last.
    pub(in crate::engine) fn settings_and_seq(&self) -> (Seq, Settings) {
        loop {
            let seq = self.settings_seq();
            let settings = self.settings();
            if seq == self.settings_seq() {
                return (seq, settings);
            }
        }
    }

    /// See [`SettingsCell::changed`].
    #[inline]
    pub(in crate::engine) fn settings_seq(&self) -> Seq {
        self.settings.changed()
    }

    /// See [`SettingsCell::version`]. As long as it stays the same, the container is not dropped either.
    #[inline]
    pub(in crate::engine) fn settings_version(&self) -> u64 {
        self.settings.version()
    }

    /// The same for callers that may wait for a change under way, and for those that may not.
    #[inline(always)]
    pub(in crate::engine) fn settings_for<P: Patience>(&self) -> Result<Settings, P::Failure> {
        if !P::WAITS
            && let Some(settings) = self.settings.try_load()
        {
            return Ok(settings);
        }
        P::would_wait()?;
        Ok(self.settings())
    }

    /// The same as a view of this moment.
    #[inline(always)]
    pub(in crate::engine) fn view_for<P: Patience>(
        &self,
        now: Timestamp,
    ) -> Result<ExpiryView, P::Failure> {
        if P::WAITS {
            return Ok(ExpiryView::at(now, || self.settings()));
        }
        let settings = self.settings_for::<P>()?;
        Ok(ExpiryView::at(now, || settings))
    }

    /// After the settings were read: whether they are of a change that a reader at this sequence number does not see.
    #[inline]
    pub(in crate::engine) fn may_be_newer_than(&self, seq: Seq) -> bool {
        self.settings.are_newer_than(seq)
    }

    /// Begins to replace the settings; the caller holds the commit lock. Readers of the settings wait from before the
    /// clock is read until the result is dropped, after the change is durable, so nobody judges by the old settings at
    /// a moment after the change. After an error or a panic the old settings stay.
    pub(in crate::engine) fn begin_change(&self) -> Changing<'_> {
        self.passes.keep(|| self.pin());
        self.settings.begin((*self.whole_settings()).clone())
    }

    /// In a follower: changes the settings to those of the process that writes.
    pub(in crate::engine) fn follow_to(
        &self,
        changing: &mut Changing<'_>,
        to: &Settings,
        last: Seq,
    ) {
        // Readers of earlier states still need the commands of before.
        let before = changing.settings();
        let settings = to.with_commands_of(&before);
        let settings = self.prune_commands(settings, Seq::MAX);
        // Settings that are as they were are told to no reader of changes.
        if settings != before {
            changing.change_to(settings, last);
        }
    }

    /// Sets what it may hold and what it keeps, besides settings, as its record says.
    pub(in crate::engine) fn set_limits(&self, record: &ContainerRecord) {
        self.allowance.set(record.quota);
        self.feeds
            .set_keep(record.keep_expired, record.ends_dropped);
    }

    /// The read state, for as long as the guard is held.
    #[inline]
    pub(in crate::engine) fn read_state(&self) -> Guard<Arc<ReadState>> {
        self.read_states.load()
    }

    pub(in crate::engine) fn pin(&self) -> Arc<ReadState> {
        self.read_states.pin()
    }

    /// See [`ReadStates::install`].
    pub(in crate::engine) fn install(
        &self,
        missing: Missing,
        change: impl FnOnce(&ReadState) -> ReadState,
    ) {
        self.read_states.install(missing, &self.feeds, change);
    }

    /// See [`ReadStates::prune_commands`]. The caller holds the commit lock.
    pub(in crate::engine) fn prune_commands(
        &self,
        settings: Settings,
        oldest_snapshot: Seq,
    ) -> Settings {
        self.read_states.prune_commands(settings, oldest_snapshot)
    }

    /// The same of settings that are not in force.
    pub(in crate::engine) fn needed_of(
        &self,
        settings: &Settings,
        oldest_snapshot: Seq,
    ) -> Settings {
        self.read_states.needed_of(settings, oldest_snapshot)
    }

    /// Fails if too many commands would stand after this change.
    pub(in crate::engine) fn check_standing(
        &self,
        change: &SettingsChange,
        after: &Settings,
    ) -> Result<()> {
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

    /// After a change, under the commit lock: records written from now on are counted apart from those that a command
    /// ends.
    pub(in crate::engine) fn note_change(&self, change: &SettingsChange) {
        if matches!(change, SettingsChange::Expire(_)) {
            self.read_state().active.memtable.begin_era();
        }
    }

    /// How many runs it has.
    #[inline]
    pub(in crate::engine) fn runs(&self) -> usize {
        self.read_states.runs()
    }

    /// Registers a holder of read states of this container.
    pub(in crate::engine) fn watch<T: Holder + 'static>(&self, holder: &Arc<Mutex<T>>) {
        let holder: Arc<dyn Releasable> = holder.clone();
        let mut held = self.held.lock();
        if held.len() == held.capacity() {
            held.retain(|holder| holder.strong_count() > 0);
        }
        held.push(Arc::downgrade(&holder));
    }

    /// Takes earlier read states from scans at rest, because their files are obsolete.
    pub(in crate::engine) fn release_read_states(&self) {
        let mut held = self.held.lock();
        held.retain(|holder| {
            holder.upgrade().is_some_and(|holder| {
                holder.release();
                true
            })
        });
    }

    /// Notes that there is nothing to do with this version under these settings until a moment; `None`: ever.
    pub(in crate::engine) fn note_rest(
        &self,
        version: &Arc<ContainerVersion>,
        settings: Settings,
        until: Option<Timestamp>,
    ) {
        *self.rest.lock() = Some(Rest {
            version: Arc::downgrade(version),
            settings,
            paid: (self.scan_credit(), self.paid_by_passing()),
            until: until.unwrap_or(Timestamp::MAX),
        });
    }

    /// Until when there is nothing to do, if version and settings have not changed since the last check.
    pub(in crate::engine) fn rests_until(&self) -> Option<Timestamp> {
        let rest = self.rest.lock();
        let rest = rest.as_ref()?;
        let is_same = std::ptr::eq(
            rest.version.as_ptr(),
            Arc::as_ptr(&self.read_state().version),
        ) && rest.settings == self.settings()
            && rest.paid == (self.scan_credit(), self.paid_by_passing());
        is_same.then_some(rest.until)
    }

    /// See [`ReadStates::flushed`].
    pub(in crate::engine) fn flushed(&self) -> Seq {
        self.read_states.flushed()
    }

    /// See [`ReadStates::has_purged_after`].
    pub(in crate::engine) fn has_purged_after(&self, moment: Timestamp) -> bool {
        self.read_states.has_purged_after(moment)
    }

    /// See [`ReadStates::changes_low_water`].
    pub(in crate::engine) fn changes_low_water(&self) -> Seq {
        self.read_states.changes_low_water()
    }

    #[inline]
    pub(in crate::engine) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::ContainerDropped {
                name: self.name.clone(),
            });
        }
        Ok(())
    }
}
