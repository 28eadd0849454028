//! Writes: throttle -> commit lock: stamp -> frame in the log -> memtable -> publish; a full memtable is sealed.
//!
//! Everything that can be done outside the commit lock is done there: encoding, checksums, reading for conditional
//! writes, user code, waiting for a sync. Under the lock nothing reads a file.

use std::sync::Arc;

use crate::base::record::Header;
use crate::base::sync::MutexGuard;
use crate::base::{Error, Result, Seq, Timestamp};
use crate::data::batch::{KeyRange, Op, Relogged, WriteTtl};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::commit_log::CommitState;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::relied::Relying;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::prepared::Prepared;
use crate::engine::write::writes::{Writes, weight};
use crate::env::Reading;
use crate::expiry::ExpiryView;
use crate::mem::{Memtable, room_for};
use crate::wal::{FrameHeader, FrameKind, Log, Position};

/// What an update does with the item it read.
pub enum UpdateAction {
    /// Nothing.
    Keep,
    /// It is written.
    Put(Vec<u8>, WriteTtl),
    /// It is deleted; where no live item is, this is the same as nothing.
    Delete,
}

impl UpdateAction {
    /// The write that it is to a key with this live version, if it is one.
    pub(in crate::engine) fn op<'a>(
        &'a self,
        state: &ContainerState,
        key: &'a [u8],
        live: Option<&Header>,
    ) -> Option<Op<'a>> {
        let container = state.id();
        match self {
            UpdateAction::Delete => live.map(|_| Op::Delete { container, key }),
            UpdateAction::Keep => None,
            UpdateAction::Put(value, ttl) => Some(Op::Put {
                container,
                ttl: ttl.over(live),
                key,
                value,
            }),
        }
    }
}

/// What a conditional write has read of a key.
pub(in crate::engine) struct Seen {
    /// No later write was seen.
    pub latest: Seq,
    /// The newest version, live or dead; none where there is none, or a range delete covers it.
    pub version: Option<Header>,
    /// The view it was judged by.
    pub view: ExpiryView,
}

impl Seen {
    /// Whether the version waits for its sync and may be dead when that is over: readers would never see it live.
    pub(in crate::engine) fn ends_soon_after(&self, published: Seq) -> bool {
        let version = self.version.as_ref();
        version.is_some_and(|header| ends_unseen(&self.view, header, published))
    }

    /// Whether `view` judges it the same: live or dead as before, and with the same end.
    fn is_same_by(&self, view: &ExpiryView) -> bool {
        let dead = |view: &ExpiryView| self.version.is_some_and(|header| view.dead(&header));
        view.settings == self.view.settings && dead(view) == dead(&self.view)
    }
}

/// Whether a version that is live by `view` waits for its sync, and may be dead when that is over.
pub(in crate::engine) fn ends_unseen(view: &ExpiryView, header: &Header, published: Seq) -> bool {
    const LONGEST_SYNC_MILLIS: u64 = 1_000;
    let end = view.settings.expires_at(header);
    header.seq > published && end > view.now && end.since(view.now) < LONGEST_SYNC_MILLIS
}

/// Whether a key is no longer as it was read: it lives or died since by the clock, or was written.
pub(in crate::engine) fn has_changed(
    state: &ContainerState,
    key: &[u8],
    seen: &Seen,
    view: &ExpiryView,
) -> bool {
    let read_state = state.read_state();
    !seen.is_same_by(view)
        || state.flushed() > seen.latest
        || read_state.written_since(key, seen.latest).is_some()
}

/// A write that holds the commit lock and has its time.
pub(in crate::engine) struct Stamped<'a> {
    pub reading: Reading,
    /// Dropped before the lock is, because the next write under the lock will rely on another version.
    _relying: Option<Relying<'a>>,
    pub commit: MutexGuard<'a, CommitState>,
}

/// Writes that are in the log and in memtables.
pub(in crate::engine) struct Logged {
    /// The sequence number of the first.
    first: Seq,
    /// The sequence number of the last.
    pub last: Seq,
    /// Its time.
    pub written_at: Timestamp,
    /// Their end in the log.
    pub position: Position,
}

impl Engine {
    /// Writes one thing.
    #[inline]
    pub fn write_one(&self, state: &Arc<ContainerState>, op: Op<'_>) -> Result<()> {
        self.admit(state, weight(&op))?;
        let charge = self.charge_one(state, &op)?;
        self.prepare_one(state, &op, charge, |prepared| {
            let commit = self.lock_for(prepared);
            let (stamped, ()) = self.stamp_under(commit, None, || ());
            self.commit(stamped, prepared).map(drop)
        })
    }

    /// Writes a batch.
    pub fn write(&self, writes: &Writes) -> Result<Written> {
        let Some(engine) = writes.engine() else {
            return self.write_nothing(writes);
        };
        if !std::ptr::eq(Arc::as_ptr(engine), self) {
            return Err(Error::invalid(
                "batch",
                "for another database",
                "containers of this database",
            ));
        }
        let weight = self.admit_all(writes)?;
        if !writes.are_plain() {
            return self.write_conditional(writes);
        }
        if writes.len() == 0 {
            return self.write_nothing(writes);
        }
        let charge = self.charge_all(writes.states(), writes.bytes())?;
        let prepared = self.prepare(writes, writes.bytes(), weight, charge);
        self.commit(self.stamp(None), &prepared)
    }

    /// May all of a batch be written, now? Tells its weight.
    pub(in crate::engine) fn admit_all(&self, writes: &Writes) -> Result<u64> {
        let (states, weight) = (writes.states(), writes.weight());
        for state in states {
            self.admit(state, weight / states.len() as u64)?;
        }
        Ok(weight)
    }

    /// The result of a batch that writes nothing. With [`Durability::Sync`] every earlier write survives a power cut, as
    /// with any other batch.
    pub(in crate::engine) fn write_nothing(&self, writes: &Writes) -> Result<Written> {
        match self.durability_of(writes) {
            Durability::Sync => self.sync()?,
            Durability::Buffered => self.check_writable()?,
        }
        let (last, now) = (self.commit_log.published(), self.clock.now());
        Ok(Written::new(last, now))
    }

    /// The durability of a batch.
    pub(in crate::engine) fn durability_of(&self, writes: &Writes) -> Durability {
        writes.durability().unwrap_or(self.options.durability)
    }

    /// Reads a key, lets `decide` choose what to do with it, and does that, unless meanwhile the key was written, or
    /// died or came back by the clock: then it starts over. Also when there is nothing to do, it checks that the key is
    /// unchanged. None: the item was not changed.
    pub fn update(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> Result<Option<Written>> {
        loop {
            // The size of the write is not known yet; most are small.
            self.admit(state, 1)?;
            let (seen, item) = self.look(state, key)?;
            if seen.ends_soon_after(self.commit_log.published()) {
                self.make_visible(seen.latest)?;
                continue;
            }
            let live = seen.version.filter(|_| item.is_some());
            let action = decide(item);
            let Some(op) = action.op(state, key, live.as_ref()) else {
                if self.is_still(state, key, &seen)? {
                    return Ok(None);
                }
                continue;
            };
            let written = self.write_if_still(state, key, &seen, &op)?;
            if written.is_some() {
                return Ok(written);
            }
        }
    }

    /// Reads what a conditional write decides on.
    fn look(&self, state: &Arc<ContainerState>, key: &[u8]) -> Result<(Seen, Option<Item>)> {
        // The sequence number comes before the read state: then the read state holds every write up to it, and
        // `has_changed` finds the later ones.
        let latest = self.commit_log.latest();
        let read_state = state.pin();
        let view = self.expiry_view(state);
        let (version, item) = self.newest_checked(&read_state, key, latest, &view)?;
        let seen = Seen {
            latest,
            version,
            view,
        };
        Ok((seen, item))
    }

    /// Whether the key is as it was read, once that is visible: then there is nothing to do.
    fn is_still(&self, state: &ContainerState, key: &[u8], seen: &Seen) -> Result<bool> {
        self.make_visible(seen.latest)?;
        let view = self.expiry_view(state);
        let in_use = seen
            .version
            .is_some_and(|header| self.wait_if_relied_on(header.seq));
        Ok(!in_use && !has_changed(state, key, seen, &view))
    }

    /// Writes, if under the commit lock the key is as it was read.
    fn write_if_still(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        seen: &Seen,
        op: &Op<'_>,
    ) -> Result<Option<Written>> {
        let charge = self.charge_one(state, op)?;
        self.prepare_one(state, op, charge, |prepared| {
            let stamped = self.stamp(seen.version.map(|header| header.seq));
            let view = ExpiryView::at(stamped.reading.now, || state.settings());
            if has_changed(state, key, seen, &view) {
                return Ok(None);
            }
            self.commit(stamped, prepared).map(Some)
        })
    }

    /// Takes the commit lock for one write. Where another write has it, the memory that the insert will need is prefetched
    /// in the meantime: so the lock is held for less time when writers wait for each other.
    #[inline(always)]
    fn lock_for(&self, prepared: &Prepared<'_>) -> MutexGuard<'_, CommitState> {
        self.commit_log.lock_soon_after(|| prefetch(prepared))
    }

    /// Takes the commit lock, then reads the clock. `relies_on` is the version that will be judged by it.
    #[inline(always)]
    pub(in crate::engine) fn stamp(&self, relies_on: Option<Seq>) -> Stamped<'_> {
        self.stamp_after(relies_on, || ()).0
    }

    /// Like `stamp`; calls `first` under the commit lock, before the clock is read.
    #[inline(always)]
    pub(in crate::engine) fn stamp_after<T>(
        &self,
        relies_on: Option<Seq>,
        first: impl FnOnce() -> T,
    ) -> (Stamped<'_>, T) {
        self.stamp_under(self.commit_log.lock_soon(), relies_on, first)
    }

    /// The same for who has the commit lock.
    #[inline(always)]
    pub(in crate::engine) fn stamp_under<'a, T>(
        &'a self,
        commit: MutexGuard<'a, CommitState>,
        relies_on: Option<Seq>,
        first: impl FnOnce() -> T,
    ) -> (Stamped<'a>, T) {
        let relying = relies_on.map(|seq| self.commit_log.rely_on_version(seq));
        let done = first();
        let mut reading = self.clock.read();
        reading.settled = self.commit_log.rely_on(reading.settled);
        let stamped = Stamped {
            reading,
            _relying: relying,
            commit,
        };
        (stamped, done)
    }

    /// Under the commit lock: logs, inserts, publishes. Under [`Durability::Sync`] releases the lock, then waits for
    /// the sync.
    #[inline(always)]
    pub(in crate::engine) fn commit(
        &self,
        mut stamped: Stamped<'_>,
        writes: &Prepared<'_>,
    ) -> Result<Written> {
        let logged = self.log_and_apply(&mut stamped, writes)?;
        if self.is_seen_at_once(writes, &logged) {
            self.commit_log.publish_latest(&stamped.commit);
        }
        self.finish_commit(stamped, writes, &logged)
    }

    /// Whether the write is visible before it is synced. Publishing it publishes every earlier write, so where others
    /// wait for their sync, a write that need not be synced waits with them.
    #[inline]
    pub(in crate::engine) fn is_seen_at_once(
        &self,
        writes: &Prepared<'_>,
        logged: &Logged,
    ) -> bool {
        self.options.durability == Durability::Buffered
            || writes.durability() == Durability::Buffered
                && self.commit_log.published().next() >= logged.first
    }

    /// Logs and inserts.
    #[inline(always)]
    pub(in crate::engine) fn log_and_apply(
        &self,
        stamped: &mut Stamped<'_>,
        writes: &Prepared<'_>,
    ) -> Result<Logged> {
        self.check_writable()?;
        for state in writes.states() {
            state.check()?;
        }
        let Stamped {
            reading, commit, ..
        } = stamped;
        let header = FrameHeader {
            kind: FrameKind::Batch,
            first_seq: commit.next_seq(),
            last_seq: Seq(commit.next_seq().0 + writes.len() - 1),
            written_at: reading.now,
            settled: reading.settled,
            edit: self.catalog.durable_edit(),
        };
        let appender = commit.appender()?;
        // What is in the log must get into the memtable, so memory is reserved first.
        let room = room_for(writes.len() as usize, writes.weight() as usize);
        self.pool.prepare(room)?;
        let position = appender.append(&header, writes.payload(), writes.crc())?;
        let segment = appender.segment();
        self.apply(commit, &header, writes, segment)
            .map_err(|error| {
                self.commit_log
                    .log()
                    .map_or_else(|closed| closed, |log| log.end_with(error))
            })?;
        Ok(Logged {
            first: header.first_seq,
            last: header.last_seq,
            written_at: header.written_at,
            position,
        })
    }

    /// Finishes a commit: releases the lock, then waits for the sync if there is one.
    #[inline(always)]
    pub(in crate::engine) fn finish_commit(
        &self,
        mut stamped: Stamped<'_>,
        writes: &Prepared<'_>,
        logged: &Logged,
    ) -> Result<Written> {
        let is_sealed = self.seal_when_full(&mut stamped.commit);
        let awaits_sync = self.awaits_sync(writes, logged);
        let log = self.release_commit(stamped, writes)?;
        if is_sealed {
            self.scheduler.wake(Thread::Flush);
        }
        if awaits_sync {
            log.sync_to(logged.position)?;
            self.commit_log.publish(logged.last);
        }
        Ok(Written::new(logged.last, logged.written_at))
    }

    /// Releases the commit lock, and does what follows outside it. What that is, is asked before: afterwards the next
    /// writer changes what would be read.
    #[inline(always)]
    pub(in crate::engine) fn release_commit(
        &self,
        stamped: Stamped<'_>,
        writes: &Prepared<'_>,
    ) -> Result<&Arc<Log>> {
        self.counters.bytes_put.add_alone(writes.weight());
        let log = self.commit_log.log()?;
        let wants_upkeep = log.wants_upkeep();
        drop(stamped);
        if wants_upkeep {
            self.scheduler.wake(Thread::Log);
        }
        Ok(log)
    }

    /// It is to be durable, or it is not seen before others are.
    #[inline(always)]
    pub(in crate::engine) fn awaits_sync(&self, writes: &Prepared<'_>, logged: &Logged) -> bool {
        writes.durability() == Durability::Sync || self.commit_log.published() < logged.last
    }

    /// Inserts what was logged.
    #[inline(always)]
    fn apply(
        &self,
        commit: &mut CommitState,
        header: &FrameHeader,
        writes: &Prepared<'_>,
        segment: u64,
    ) -> Result<()> {
        let mut seq = header.first_seq;
        match writes.single() {
            Some((op, hash, state)) => {
                let record = op.at(seq, header.written_at);
                self.apply_one(commit, state, (&record, hash), segment)?;
                seq = seq.next();
            }
            None => {
                for op in writes.decoded() {
                    if op.of_settings().is_none() {
                        let record = op.at(seq, header.written_at);
                        let state = writes.state_of(&op);
                        self.apply_one(commit, state, (&record, op.hash()), segment)?;
                    }
                    seq = seq.next();
                }
            }
        }
        debug_assert_eq!(seq, header.last_seq.next());
        self.commit_log.applied(commit, header.last_seq);
        Ok(())
    }

    /// Inserts one write, whose key has this hash, that was logged in `segment`.
    #[inline(always)]
    fn apply_one(
        &self,
        commit: &mut CommitState,
        state: &ContainerState,
        (record, hash): (&Relogged<'_>, u64),
        segment: u64,
    ) -> Result<()> {
        let active = commit.active(state);
        insert(&active.memtable, record, hash)?;
        if let Relogged::Record { header, key, .. } = record {
            state.note_write(header, key);
        }
        active.logged_in(segment);
        let grown = active.count_growth();
        commit.add_active(grown);
        self.throttle.add_unflushed(commit, grown);
        Ok(())
    }

    /// Seals the largest memtables until the active ones fit their budget. Tells whether it sealed any: then the flush
    /// thread is to be woken, after the lock, because it may take the processor from who wakes it.
    #[inline]
    #[must_use = "the flush thread is to be woken"]
    pub(in crate::engine) fn seal_when_full(&self, commit: &mut CommitState) -> bool {
        let is_full = commit.active_bytes() >= self.options.memtable_bytes;
        if is_full {
            self.seal_largest(commit);
        }
        is_full
    }

    #[cold]
    fn seal_largest(&self, commit: &mut CommitState) {
        let mut states = self.containers.all();
        states.sort_by_cached_key(|state| state.read_state().active.memtable.bytes());
        while commit.active_bytes() > self.options.memtable_bytes / 2
            && let Some(state) = states.pop()
        {
            self.seal(commit, &state);
        }
    }

    /// Under the commit lock: seals the active memtable, unless it is empty, and opens a new one. The new one is logged
    /// in a segment of its own, so that neither memtable keeps frames of the other in the log.
    pub(in crate::engine) fn seal(&self, commit: &mut CommitState, state: &ContainerState) {
        // Without a log nothing is flushed; recovered records stay in the active memtable until there is one.
        if state.read_state().active.memtable.is_empty() || !commit.has_log() {
            return;
        }
        // If there is no room for a segment, they share one until `trim_log` separates them.
        let _ = self.rotate_log(commit);
        state.install(Missing::NOTHING, |read_state| {
            let (mut sealed, mut active) = (read_state.sealed.clone(), read_state.active.clone());
            commit.remove_active(active.counted());
            sealed.insert(0, std::mem::replace(&mut active, state.new_flushable()));
            ReadState {
                active,
                sealed,
                version: read_state.version.clone(),
            }
        });
    }

    /// Makes a version that was read visible and durable, as far as the durability demands, before a write relies on
    /// it.
    pub(in crate::engine) fn make_visible(&self, seq: Seq) -> Result<()> {
        if self.commit_log.published() >= seq {
            return Ok(());
        }
        match self.options.durability {
            // The write becomes visible before it releases the lock.
            Durability::Buffered => self.commit_log.pass(),
            Durability::Sync => self.sync()?,
        }
        Ok(())
    }

    /// Makes every acknowledged write survive a power cut, and visible.
    pub fn sync(&self) -> Result<()> {
        self.check_writable()?;
        self.begin_log()?;
        let log = self.commit_log.log()?;
        let (position, latest) = {
            let _commit = self.commit_log.lock();
            (log.end(), self.commit_log.latest())
        };
        log.sync_to(position)?;
        self.commit_log.publish(latest);
        Ok(())
    }
}

/// Prefetches what the insert of a single write will read.
#[inline(never)]
fn prefetch(prepared: &Prepared<'_>) {
    if let Some((Op::Put { key, .. } | Op::Delete { key, .. }, hash, state)) = prepared.single() {
        state.read_state().active.memtable.prefetch(hash, key);
    }
}

/// Inserts one write, whose key has this hash, into a memtable.
#[inline(always)]
fn insert(memtable: &Memtable, write: &Relogged<'_>, hash: u64) -> Result<()> {
    match *write {
        Relogged::Record {
            header, key, value, ..
        } => memtable.insert_hashed(hash, header, key, value),
        Relogged::Range { seq, from, to, .. } => {
            memtable.delete_range(KeyRange::of_bounds(from, to), seq);
            Ok(())
        }
    }
}
