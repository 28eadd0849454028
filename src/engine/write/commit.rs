//! Writes: throttle -> commit lock: stamp -> frame in the log -> memtable -> publish; a full memtable is sealed.
//!
//! Everything that can be done outside the commit lock is done there: encoding, checksums, reading for conditional
//! writes, user code, waiting for a sync. Under the lock nothing reads a file.
//!
//! All writes come through [`Engine::commit`]: single ones, updates, batches with and without conditions, transactions. A
//! caller that must not wait ([`Patience`]) takes the same steps in the same order, and ends, with nothing done, where it
//! would wait:
//!
//! ```text
//! where it would wait                                           what is asked instead
//! writers are slowed down                                       is there no reason to?
//! a quota, and live bytes are estimated                         is there slack?
//! a condition, and its key is read                              is it in memory?
//! a change of settings, which is synced                         is there none?
//! the commit lock                                               is it free soon?
//! the log's segment or ring is full                             does the frame fit?
//! the active memtables are full, and are sealed with a commit   are they not?
//! what was read changed meanwhile, and is read again            is it as it was?
//! the sync                                                      left to the caller: `Begun`
//! ```
//!
//! Invariants:
//!
//! 1. A commit that has begun is finished: after the frame is in the log nothing is asked any more.
//! 2. A caller that must not wait seals no memtable, for sealing begins a segment of the log, which is a file. The next write
//!    finds the memtables full, and seals them where it may wait.

use std::sync::Arc;

use crate::base::hash::RecordHash;
use crate::base::record::Header;
use crate::base::sync::MutexGuard;
use crate::base::{Attempt, Error, Now, Patience, Result, Seq, Timestamp, Wait};
use crate::data::batch::{KeyRange, Op};
use crate::data::relogged::Relogged;
use crate::data::write::{Outcome, Written};
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::commit_dependency::{Relying, SEVERAL};
use crate::engine::parts::commit_log::CommitState;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::deciding::check_decided;
use crate::engine::write::observed::{Changed, Fault, Observed, WriteMoment};
use crate::engine::write::prepared::Prepared;
use crate::engine::write::replaced::{Replaced, state_below};
use crate::engine::write::state_changes::StateChanges;
use crate::engine::write::writes::{Writes, weight};
use crate::env::ClockReading;
use crate::mem::{Memtable, NewRecord, room_for};
use crate::wal::{FrameHeader, FrameKind, Position};

/// A write that holds the commit lock and has its time.
pub(in crate::engine) struct Stamped<'a> {
    pub reading: ClockReading,
    /// Dropped before the lock is, because the next write under the lock will rely on another version.
    _relying: Option<Relying<'a>>,
    pub commit: MutexGuard<'a, CommitState>,
}

impl Stamped<'_> {
    /// The moment of the write.
    pub fn moment(&self) -> WriteMoment {
        WriteMoment {
            first: self.commit.next_seq(),
            now: self.reading.now,
            settled: self.reading.settled,
        }
    }
}

/// The reads that a write relies on, or that come of it.
enum Reads<'a, 'k> {
    None,
    /// They were made before it.
    Before(&'a Observed<'k>),
    /// A put tells the item that it replaces (replaced.rs).
    Replaced(&'a mut Option<Replaced>),
}

/// A write that is in the log and in memory, and will be done even if its caller gives up.
#[must_use]
#[derive(Clone, Copy)]
pub struct Begun {
    /// The sequence number of its last operation.
    last: Seq,
    written_at: Timestamp,
    /// Whether it is not acknowledged, and perhaps not seen, before the log is synced: its caller did not wait for
    /// that.
    // Only tasks wait for it by themselves.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code))]
    pub awaits_sync: bool,
}

impl Begun {
    /// Its version and time.
    #[inline]
    pub fn written(self) -> Written {
        Written::new(self.last, self.written_at)
    }
}

/// Writes that are in the log and in memtables.
pub(in crate::engine) struct Logged {
    /// The sequence number of the first.
    pub first: Seq,
    /// The sequence number of the last.
    pub last: Seq,
    /// Its time.
    pub written_at: Timestamp,
    /// Their end in the log.
    pub position: Position,
    /// Of a single one: the version of its key that was the newest one of the memtable.
    pub over: Option<Header>,
}

impl Engine {
    /// Writes one thing.
    #[inline]
    pub fn write_one<P: Patience>(
        &self,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Result<Begun, P::Failure> {
        self.admit::<P>(state, weight(&op))?;
        let charge = self.charge_one::<P>(state, &op)?;
        self.prepare_one(state, &op, charge, |prepared| {
            self.commit_blind::<P>(prepared)
        })
    }

    /// Writes a batch. Returns the outcome of each of its writes, if some may be left out.
    #[inline(always)]
    pub fn write<P: Patience>(&self, writes: &Writes) -> Result<(Begun, Vec<Outcome>), P::Failure> {
        match P::WAITS {
            true => Ok(self.write_waiting(writes)?),
            false => self.write_by::<P>(writes),
        }
    }

    /// Compiled here; a generic function is compiled with its caller's crate, where those of this one are not inlined.
    fn write_waiting(&self, writes: &Writes) -> Result<(Begun, Vec<Outcome>)> {
        self.write_by::<Wait>(writes)
    }

    #[inline(always)]
    fn write_by<P: Patience>(&self, writes: &Writes) -> Result<(Begun, Vec<Outcome>), P::Failure> {
        // A batch that only makes or drops containers knows no database.
        let engine = writes.engine();
        if engine.is_some_and(|engine| !std::ptr::eq(Arc::as_ptr(engine), self)) {
            let allowed = "containers of this database";
            return Err(Error::invalid("batch", "for another database", allowed).into());
        }
        let (states, weight) = (writes.states(), writes.weight());
        for state in states {
            self.admit::<P>(state, weight / states.len() as u64)?;
        }
        if !writes.are_plain() {
            return self.write_conditional::<P>(writes);
        }
        if writes.len() == 0 {
            return Ok((self.write_nothing::<P>(writes)?, vec![]));
        }
        let payload = writes.bytes();
        let charge = self.charge_all::<P>(states, payload)?;
        let prepared = self.prepare(writes, payload, writes.len(), weight, charge);
        Ok((self.commit_blind::<P>(&prepared)?, writes.all_done()))
    }

    /// The same, where nothing is to be waited for, a sync included.
    pub fn try_write(&self, writes: &Writes) -> Attempt<Written> {
        let is_synced = [self.options.durability, self.durability_of(writes)];
        Now::require(|| !is_synced.contains(&Durability::Sync))?;
        let (begun, outcomes) = self.write::<Now>(writes)?;
        Ok(begun.written().with_outcomes(outcomes))
    }

    /// The result of a batch that writes nothing. With [`Durability::Sync`] every earlier write survives a power cut, as
    /// with any other batch.
    pub(in crate::engine) fn write_nothing<P: Patience>(
        &self,
        writes: &Writes,
    ) -> Result<Begun, P::Failure> {
        match self.durability_of(writes) {
            Durability::Sync => {
                P::would_wait()?;
                self.sync()?;
            }
            Durability::Buffered => self.check_writable()?,
        }
        let (last, now) = (self.commit_log.published(), self.clock.now());
        Ok(Begun {
            last,
            written_at: now,
            awaits_sync: false,
        })
    }

    /// Whether writes wait for a sync where they say nothing else.
    pub fn syncs_writes(&self) -> bool {
        self.options.durability == Durability::Sync
    }

    /// The durability of a batch.
    pub(in crate::engine) fn durability_of(&self, writes: &Writes) -> Durability {
        writes.durability().unwrap_or(self.options.durability)
    }

    /// Commits writes that rely on nothing.
    #[inline(always)]
    fn commit_blind<P: Patience>(&self, writes: &Prepared<'_>) -> Result<Begun, P::Failure> {
        match self.commit::<P>(writes, Reads::None)? {
            Ok(begun) => Ok(begun),
            Err(_) => unreachable!("it relies on nothing"),
        }
    }

    /// Commits a put whatever is there, and tells what it replaces. None: it could not be told, and nothing was done.
    #[inline(always)]
    pub(in crate::engine) fn commit_telling<P: Patience>(
        &self,
        writes: &Prepared<'_>,
    ) -> Result<Option<(Begun, Replaced)>, P::Failure> {
        let mut replaced = None;
        let begun = self.commit::<P>(writes, Reads::Replaced(&mut replaced))?;
        Ok(begun.ok().zip(replaced))
    }

    /// Commits, if all is as it was read; where the memtables cannot tell, the runs are read first.
    pub(in crate::engine) fn commit_over<P: Patience>(
        &self,
        writes: &Prepared<'_>,
        observed: &mut Observed<'_>,
    ) -> Result<Result<Begun, Changed>, P::Failure> {
        loop {
            if observed.wants_a_look() {
                P::would_wait()?;
                if let Some(changed) = observed.look_again(self)? {
                    return Ok(Err(changed));
                }
            }
            match self.commit::<P>(writes, Reads::Before(observed))? {
                Ok(begun) => return Ok(Ok(begun)),
                Err(Fault::Changed(changed)) => return Ok(Err(changed)),
                Err(Fault::Flushed) => {}
            }
        }
    }

    /// The one way of a write into the log and into memory: lock, stamp, check the reads, log, insert, publish, unlock;
    /// then the sync. Once the frame is in the log, nothing is asked any more.
    #[inline(always)]
    fn commit<P: Patience>(
        &self,
        writes: &Prepared<'_>,
        reads: Reads<'_, '_>,
    ) -> Result<Result<Begun, Fault>, P::Failure> {
        check_decided(writes)?;
        let commit = self.lock_for::<P>(writes)?;
        let (observed, relies_on, below) = match &reads {
            Reads::None => (None, None, None),
            Reads::Before(observed) => (Some(*observed), observed.relies_on(), None),
            Reads::Replaced(_) => (None, Some(SEVERAL), Some(state_below::<P>(writes)?)),
        };
        let begin = || {
            let changing = observed.filter(|observed| observed.changes_state);
            changing.map(|observed| StateChanges::begin(writes, observed))
        };
        let (mut stamped, changes) = self.stamp_under(commit, relies_on, begin);
        if let Some(observed) = observed {
            if let Some(fault) = observed.fault_at(&stamped.moment())? {
                return Ok(Err(fault));
            }
            if let Some(changes) = changes {
                return Ok(self.commit_changes(stamped, *changes, (writes, observed))?);
            }
        }
        let below = match below {
            Some(below) => match self.view_at_stamp(writes, stamped.reading.now) {
                Some(view) => Some((below, view)),
                None => return Ok(Err(Fault::Flushed)),
            },
            None => None,
        };
        let logged = self.log_and_apply(&mut stamped, writes)?;
        if let (Reads::Replaced(replaced), Some(below)) = (reads, below) {
            *replaced = Some(Replaced::by(writes, below, (logged.first, logged.over)));
        }
        if self.is_seen_at_once(writes, &logged) {
            self.commit_log.publish_latest(&stamped.commit);
        }
        Ok(Ok(self.finish_commit::<P>(stamped, writes, &logged)?))
    }

    /// The same of a write that changes what containers are: it counts when it is durable (state_changes.rs).
    fn commit_changes<'a>(
        &self,
        mut stamped: Stamped<'_>,
        mut changes: StateChanges<'a>,
        (writes, observed): (&Prepared<'a>, &Observed<'_>),
    ) -> Result<Result<Begun, Fault>> {
        if observed.has_other_names(&self.containers) {
            let (container, key) = (0, vec![]);
            return Ok(Err(Fault::Changed(Changed { container, key })));
        }
        let moment = stamped.moment();
        let last = Seq(moment.first.0 + writes.len() - 1);
        changes.stamp(self, (writes, observed), &stamped.reading, &moment)?;
        let logged = self.log_and_apply(&mut stamped, writes).map(Some);
        let logged = logged.or_else(|error| {
            let has_room = !error.is_full() && stamped.commit.has_log();
            if has_room || writes.decoded().any(|op| op.is_record()) {
                return Err(error);
            }
            changes.say_by_edit(self, &mut stamped.commit, last, &moment)?;
            Ok(None)
        })?;
        let position = logged
            .as_ref()
            .map_or(Position(0), |logged| logged.position);
        let commit = &mut stamped.commit;
        let dropped = changes.count(self, commit, observed, (last, position), &moment)?;
        let begun = match &logged {
            Some(logged) => self.finish_commit::<Wait>(stamped, writes, logged)?,
            None => {
                drop(stamped);
                Begun {
                    last,
                    written_at: moment.now,
                    awaits_sync: false,
                }
            }
        };
        self.free_dropped(dropped);
        self.scheduler.wake(Thread::Merge);
        Ok(Ok(begun))
    }

    /// Takes the commit lock for a write. Where another write has it, the memory that the insert will need is
    /// prefetched in the meantime: so the lock is held for less time when writers wait for each other. A caller that
    /// must not wait takes it only if it will be free soon, the frame fits the log, and no memtable is to be sealed,
    /// which begins a file.
    #[inline(always)]
    fn lock_for<P: Patience>(
        &self,
        writes: &Prepared<'_>,
    ) -> Result<MutexGuard<'_, CommitState>, P::Failure> {
        if P::WAITS {
            return Ok(self.commit_log.lock_soon_after(|| prefetch(writes)));
        }
        let mut commit = self.lock_commit::<P>()?;
        let has_room = commit.active_bytes() < self.options.memtable_bytes
            && commit.appender()?.takes_at_once(writes.payload().len());
        P::require(|| has_room)?;
        Ok(commit)
    }

    /// Takes the commit lock; for a caller that must not wait, only if it will be free soon.
    pub(in crate::engine) fn lock_commit<P: Patience>(
        &self,
    ) -> Result<MutexGuard<'_, CommitState>, P::Failure> {
        if !P::WAITS
            && let Some(commit) = self.commit_log.try_lock()
        {
            return Ok(commit);
        }
        P::would_wait()?;
        Ok(self.commit_log.lock())
    }

    /// Under the commit lock: reads the clock. `relies_on` is the version that will be judged by it; `first` is called
    /// before.
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
        // Where time is given, only what is written raises the mark, not what was judged and refused.
        reading.settled = match self.given_time {
            None => self.commit_log.rely_on(reading.settled),
            Some(_) => reading.settled.max(self.mark()),
        };
        let stamped = Stamped {
            reading,
            _relying: relying,
            commit,
        };
        (stamped, done)
    }

    /// Whether the write is visible before it is synced. Publishing it publishes every earlier write, so where others
    /// wait for their sync, a write that need not be synced waits with them.
    #[inline]
    fn is_seen_at_once(&self, writes: &Prepared<'_>, logged: &Logged) -> bool {
        self.options.durability == Durability::Buffered
            || writes.durability() == Durability::Buffered
                && self.commit_log.published().next() >= logged.first
    }

    /// Logs and inserts.
    #[inline(always)]
    fn log_and_apply(&self, stamped: &mut Stamped<'_>, writes: &Prepared<'_>) -> Result<Logged> {
        self.check_writable()?;
        if self.given_time.is_some() {
            self.commit_log.rely_on(stamped.reading.settled);
        }
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
        // A logged write must get into the memtable, so memory is reserved first.
        let room = room_for(writes.len() as usize, writes.weight() as usize);
        self.pool.prepare(room)?;
        let position = appender.append(&header, writes.payload(), writes.crc())?;
        let segment = appender.segment();
        let over = self
            .apply(commit, &header, writes, segment)
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
            over,
        })
    }

    /// Finishes a commit: seals full memtables, releases the lock, then waits for the sync if there is one. The facts
    /// for the steps outside the lock are read under it: after its release the next writer changes them.
    #[inline(always)]
    fn finish_commit<P: Patience>(
        &self,
        mut stamped: Stamped<'_>,
        writes: &Prepared<'_>,
        logged: &Logged,
    ) -> Result<Begun> {
        let is_sealed = P::WAITS && self.seal_when_full(&mut stamped.commit);
        // The write is to be durable, or it is not seen before others are.
        let awaits_sync =
            writes.durability() == Durability::Sync || self.commit_log.published() < logged.last;
        self.counters.bytes_put.add_alone(writes.weight());
        let log = self.commit_log.log()?;
        let wants_upkeep = log.wants_upkeep();
        drop(stamped);
        if wants_upkeep {
            self.scheduler.wake(Thread::Log);
        }
        if is_sealed {
            self.scheduler.wake(Thread::Flush);
        }
        if awaits_sync && P::WAITS {
            log.sync_to(logged.position)?;
            self.commit_log.publish(logged.last);
        }
        Ok(Begun {
            last: logged.last,
            written_at: logged.written_at,
            awaits_sync: awaits_sync && !P::WAITS,
        })
    }

    /// Inserts the logged writes. Of a single one: the version of its key that was the newest one of the memtable.
    #[inline(always)]
    fn apply(
        &self,
        commit: &mut CommitState,
        header: &FrameHeader,
        writes: &Prepared<'_>,
        segment: u64,
    ) -> Result<Option<Header>> {
        let mut over = None;
        let (mut seq, at) = (header.first_seq, header.written_at);
        match writes.single() {
            Some((op, hash, state)) => {
                let record = op.at(seq, at);
                over = self.apply_one(commit, state, (&record, hash, at), segment)?;
                seq = seq.next();
            }
            None => {
                for op in writes.decoded() {
                    if op.is_record() {
                        let record = op.at(seq, at);
                        let state = writes.state_of(&op);
                        self.apply_one(commit, state, (&record, op.hash(), at), segment)?;
                    }
                    seq = seq.next();
                }
            }
        }
        debug_assert_eq!(seq, header.last_seq.next());
        self.commit_log.applied(commit, header.last_seq);
        Ok(over)
    }

    /// Inserts one write of this moment, whose record has these hashes, that was logged in `segment`.
    #[inline(always)]
    fn apply_one(
        &self,
        commit: &mut CommitState,
        state: &ContainerState,
        (record, hash, at): (&Relogged<'_>, RecordHash, Timestamp),
        segment: u64,
    ) -> Result<Option<Header>> {
        let active = commit.active(state);
        let over = insert(&active.memtable, record, hash)?;
        match record {
            Relogged::Record {
                header, key, value, ..
            } => state.note_write(at, header, key, value),
            Relogged::Range { seq, from, to, .. } => state.feeds().note_range((at, *seq), from, to),
        }
        active.logged_in(segment);
        let grown = active.count_growth();
        commit.add_active(grown);
        self.throttle.add_unflushed(commit, grown);
        Ok(over)
    }

    /// Makes a version that was read visible and durable, as far as the durability demands, before a write relies on
    /// it.
    pub(in crate::engine) fn make_visible(&self, seq: Seq) -> Result<()> {
        if self.commit_log.published() >= seq {
            return Ok(());
        }
        match self.options.durability {
            // The write becomes visible before it releases the lock.
            Durability::Buffered => self.commit_log.wait_for_commit(),
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

/// Prefetches the memory that the insert of a single write will read.
#[inline(never)]
fn prefetch(prepared: &Prepared<'_>) {
    if let Some((Op::Put { key, .. } | Op::Delete { key, .. }, hash, state)) = prepared.single() {
        state.read_state().active.memtable.prefetch(hash.key, key);
    }
}

/// Inserts one write, whose record has these hashes, into a memtable.
#[inline(always)]
fn insert(memtable: &Memtable, write: &Relogged<'_>, hash: RecordHash) -> Result<Option<Header>> {
    match *write {
        Relogged::Record {
            header, key, value, ..
        } => memtable.insert_record(&NewRecord {
            header,
            hash,
            key,
            value,
        }),
        Relogged::Range { seq, from, to, .. } => {
            memtable.delete_range(KeyRange::of_bounds(from, to), seq);
            Ok(None)
        }
    }
}
