//! The commit log: gives all writes one order, and tracks which of them are in memory, visible and durable.
//!
//! ```text
//! lock -> stamp: sequence number, time -> append to the log -> memtables -> `latest` -> `published` -> unlock
//!                                                                  Durability::Sync: unlock -> sync -> `published`
//! ```
//!
//! Invariants, which only this file can break, since the fields are private:
//!
//! 1. Sequence numbers are given under the lock, in the order of the log. `next_seq` is one above the last.
//! 2. `latest` is the last sequence number that is in a memtable; it is stored under the lock. `published` is the last
//!    sequence number that readers see; it only rises, and never passes `latest`.
//! 3. `time_high_water`, the *mark*, is the highest settled time on which an acknowledged write, a floor or a purge
//!    relied; it only rises. Every frame and every edit carries it.
//! 4. The log's appender is guarded by the lock, and exists while there is a log and the database is open.
//! 5. A container's active memtable is replaced only under the lock, and [`CommitState::remove_active`] is told.
//!
//! # What an edit of the manifest relies on
//!
//! The log is the history: items and what containers are, in one order. Edits of the manifest repeat what it says of
//! containers, and add what only jobs know.
//!
//! ```text
//! log         w w o w | w w w | w o        w: writes of items    o: operations that change what containers are
//! manifest            e       e            e: edits, each with its place in the order
//!             synced before e
//! ```
//!
//! If a write or an edit is durable, everything before it is durable, and so is every write it relies on. So an edit is
//! committed with a [`Basis`], which exists only once the log is synced as far as the edit relies on it. An edit's mark
//! is the highest of the times on which those writes relied and its own. What an edit repeats was synced before it counted.
//!
//! | edit | relies on | basis |
//! | --- | --- | --- |
//! | a flush, range deletes with it; the log's first segment is named | what was written up to a moment before | [`CommitLog::all_so_far`] |
//! | tables are merged, joined or dropped | tables, whose writes were durable before them, and a time of its own | [`Basis::TABLES`] |
//! | the same where time is given | those, and what was written by the time by which they were judged | [`CommitLog::all_so_far`] |
//! | a drop is repeated at once | nothing of its own | [`Basis::TABLES`] |
//! | an operation for which the log has no room; a bulk load; a new log is begun; the log is closed | all that came before it | [`CommitLog::all_before`], under the lock |
//!
//! Each edit also records how far the log was synced by then, whatever it relies on, so that an open notices a lost
//! part.
//!
//! After a failed sync of the log the only basis is [`Basis::TABLES`]: reclaiming goes on, nothing else does. Without a
//! log (open found no room for one) everything is durable, because open synced the log that it read.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{
    CachePadded, Mutex, MutexGuard, lock_soon, lock_soon_after, try_lock_soon,
};
use crate::base::{ContainerId, Error, Result, Seq, Timestamp};
use crate::engine::parts::commit_dependency::{CommitDependency, Relying};
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::state::ContainerState;
use crate::wal::{Appender, FrameHeader, FrameKind, Log, LogStart, SegmentSummary, SyncedNote};

/// The state under the commit lock; in other cache lines than the lock, which waiting threads read.
#[repr(align(128))]
pub struct CommitState {
    /// The sequence number of the next record.
    next_seq: Seq,
    /// Bytes of all active memtables.
    active_bytes: usize,
    /// The active memtable of the container that was written to last: mostly the next write is to the same one, and needs
    /// no read state for it.
    last_written: Option<(ContainerId, Arc<Flushable>)>,
    /// None: the database is closed or read-only, or has no log yet.
    appender: Option<Appender>,
}

impl CommitState {
    #[inline]
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    #[inline]
    pub fn appender(&mut self) -> Result<&mut Appender> {
        match &mut self.appender {
            Some(appender) => Ok(appender),
            None => Err(Error::Closed),
        }
    }

    /// Whether there is a log to write to.
    pub fn has_log(&self) -> bool {
        self.appender.is_some()
    }

    #[inline]
    pub fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// The active memtable of a container, for a write.
    #[inline(always)]
    pub fn active(&mut self, state: &ContainerState) -> &Flushable {
        let is_last = |(id, _): &(ContainerId, _)| *id == state.id();
        if !self.last_written.as_ref().is_some_and(is_last) {
            self.find_active(state);
        }
        let (_, active) = self.last_written.as_ref().expect("it was found");
        debug_assert!(std::ptr::eq(&**active, &*state.read_state().active));
        active
    }

    #[inline(never)]
    fn find_active(&mut self, state: &ContainerState) {
        self.last_written = Some((state.id(), state.read_state().active.clone()));
    }

    /// An active memtable has grown.
    #[inline]
    pub fn add_active(&mut self, bytes: usize) {
        self.active_bytes += bytes;
    }

    /// A memtable of this size is no longer active. Called before the lock is released under which it is replaced.
    pub fn remove_active(&mut self, bytes: usize) {
        self.active_bytes -= bytes;
        self.last_written = None;
    }
}

/// The log that was there when the database was opened, while there is no room for a new one.
pub struct OldLog {
    /// Why there is no new log.
    pub error: Error,
    /// The number of a new log's first segment.
    pub next_segment: u64,
    /// How far the old log goes; open has synced it.
    pub synced: Option<SyncedNote>,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentSummary>,
    /// When writers may look for room again, in milliseconds.
    pub next_look: AtomicU64,
}

impl OldLog {
    /// Whether a writer may look for room now.
    pub fn may_look_for_room(&self, now: Timestamp) -> bool {
        now.0 >= self.next_look.load(Ordering::Relaxed)
    }

    /// Notes that there was none. A look goes through all that is in memory: while writers are refused, looks take a tenth
    /// of the time at most.
    pub fn looked_for_room(&self, from: Timestamp, to: Timestamp) {
        let took = to.0.saturating_sub(from.0);
        self.next_look.store(to.0 + 9 * took, Ordering::Relaxed);
    }

    /// The log without the part before a sequence number, or without all of it.
    pub fn without(&self, log: Option<LogStart>, needed_from: Option<Seq>) -> Option<LogStart> {
        log.zip(needed_from).map(|(log, from)| {
            let first = self.holding(from).unwrap_or(log.oldest());
            log.needed_from(first)
        })
    }

    /// The first segment that may hold a record of this sequence number. Later segments hold only higher sequence
    /// numbers, except in relogged frames, which count as the highest of their moment.
    pub fn holding(&self, seq: Seq) -> Option<u64> {
        let mut segments = self.segments.iter();
        let found = segments.find(|segment| segment.last_seq >= seq);
        found.map(|segment| segment.number)
    }
}

/// The state with which an open database begins to write.
pub struct Beginning {
    /// The last sequence number given out.
    pub last_seq: Seq,
    /// The highest time that anything relied on.
    pub time_high_water: Timestamp,
    /// Bytes of the recovered memtables.
    pub active_bytes: usize,
    /// The log, unless the database is read-only.
    pub log: Option<(Arc<Log>, Appender)>,
    /// The old log, if there was no room for a new one.
    pub old_log: Option<OldLog>,
    /// The end of the recovered log.
    pub recovered_to: Option<u64>,
}

/// The numbers that every write raises, in other cache lines than the fields that never change.
struct Marks {
    latest: AtomicU64,
    published: AtomicU64,
    time_high_water: AtomicU64,
}

/// See the file's head.
pub struct CommitLog {
    state: Mutex<CommitState>,
    marks: CachePadded<Marks>,
    dependency: CommitDependency,
    /// Empty in a read-only database, and until there is room for a log.
    log: OnceLock<Arc<Log>>,
    old_log: Option<OldLog>,
    recovered_to: Option<u64>,
}

impl CommitLog {
    /// Continues where recovery ended.
    pub fn new(beginning: Beginning) -> CommitLog {
        let Beginning {
            last_seq,
            time_high_water,
            active_bytes,
            log,
            old_log,
            recovered_to,
        } = beginning;
        let (log, appender) = log.map_or((OnceLock::new(), None), |(log, appender)| {
            (OnceLock::from(log), Some(appender))
        });
        CommitLog {
            state: Mutex::new(CommitState {
                next_seq: last_seq.next(),
                active_bytes,
                last_written: None,
                appender,
            }),
            marks: CachePadded::new(Marks {
                latest: AtomicU64::new(last_seq.0),
                published: AtomicU64::new(last_seq.0),
                time_high_water: AtomicU64::new(time_high_water.0),
            }),
            dependency: CommitDependency::new(),
            log,
            old_log,
            recovered_to,
        }
    }

    /// Takes the commit lock.
    pub fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }

    /// Takes the commit lock as a writer: spins first, because the lock is held for less time than going to sleep
    /// takes, and prefetches the memory that it will need under the lock, if it has to wait.
    #[inline]
    pub fn lock_soon_after(&self, prefetch: impl FnOnce()) -> MutexGuard<'_, CommitState> {
        lock_soon_after(&self.state, prefetch)
    }

    /// The same for a caller that must not go to sleep: takes the lock only if it becomes free while a writer would
    /// spin.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, CommitState>> {
        try_lock_soon(&self.state)
    }

    /// Waits until the write that holds the lock releases it.
    pub fn wait_for_commit(&self) {
        drop(lock_soon(&self.state));
    }

    /// The last sequence number that readers see.
    #[inline]
    pub fn published(&self) -> Seq {
        Seq(self.marks.published.load(Ordering::Acquire))
    }

    /// Makes records up to this sequence number visible to readers.
    #[inline]
    pub fn publish(&self, seq: Seq) {
        self.marks.published.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// Under the lock: makes all records that are in memtables visible to readers. Nobody publishes more meanwhile, so
    /// this takes no read-modify-write.
    #[inline]
    pub fn publish_latest(&self, _state: &CommitState) {
        let latest = self.marks.latest.load(Ordering::Relaxed);
        self.marks.published.store(latest, Ordering::Release);
    }

    /// The last sequence number that is in a memtable.
    #[inline]
    pub fn latest(&self) -> Seq {
        Seq(self.marks.latest.load(Ordering::Acquire))
    }

    /// Notes that every record up to this sequence number is in a memtable.
    #[inline]
    pub fn applied(&self, state: &mut CommitState, last: Seq) {
        state.next_seq = last.next();
        self.marks.latest.store(last.0, Ordering::Release);
    }

    /// Notes the sequence number of a bulk load, which is not in the log: it is durable, with everything before it.
    pub fn note_load(&self, state: &mut CommitState, seq: Seq) {
        self.applied(state, seq);
        self.publish(seq);
    }

    /// The log, or the reason why there is none.
    #[inline]
    pub fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or_else(|| self.why_no_log())
    }

    #[cold]
    fn why_no_log(&self) -> Error {
        match &self.old_log {
            Some(old) => old.error.clone(),
            None => Error::ReadOnly,
        }
    }

    /// The log, if there is one.
    #[inline]
    pub fn begun(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// The end of the recovered log. Except in a read-only database, another log may have begun since.
    pub fn recovered_to(&self) -> Option<u64> {
        self.recovered_to
    }

    /// The log of the previous open, if this open found no room for a new one.
    #[inline]
    pub fn old_log(&self) -> Option<&OldLog> {
        self.old_log.as_ref()
    }

    /// How far the log, or the old one in its place, is known to be synced; `None`: there is neither.
    pub fn synced(&self) -> Option<SyncedNote> {
        match self.begun() {
            Some(log) => Some(log.synced_note()),
            None => self.old_log.as_ref()?.synced,
        }
    }

    /// Installs the log.
    pub fn begin(&self, state: &mut CommitState, log: Arc<Log>, appender: Appender) {
        state.appender = Some(appender);
        let _ = self.log.set(log);
    }

    /// Writes the log's end mark with this header.
    pub fn close(&self, state: &mut CommitState, header: &FrameHeader) -> Result<()> {
        let appender = state.appender.take();
        appender.map_or(Ok(()), |appender| appender.close(header))
    }

    /// Raises the mark to this moment, because something that is about to become durable relies on it; returns the
    /// mark.
    #[inline]
    pub fn rely_on(&self, settled: Timestamp) -> Timestamp {
        // Mostly an earlier write of the same millisecond has raised it.
        let mark = self.marks.time_high_water.load(Ordering::Acquire);
        if mark >= settled.0 {
            return Timestamp(mark);
        }
        let before = self
            .marks
            .time_high_water
            .fetch_max(settled.0, Ordering::AcqRel);
        Timestamp(before).max(settled)
    }

    /// Notes, under the lock and before the clock is read for the stamp, that a write relies on this version.
    #[inline]
    pub fn rely_on_version(&self, seq: Seq) -> Relying<'_> {
        self.dependency.rely(seq)
    }

    /// Whether a write that holds the lock relies on this version. The caller has read the clock before.
    pub fn is_relied_on(&self, seq: Seq) -> bool {
        self.dependency.is_on(seq)
    }

    /// The header of a frame that holds no write and relies on no moment.
    pub fn frame_header(
        &self,
        kind: FrameKind,
        (first_seq, last_seq): (Seq, Seq),
        written_at: Timestamp,
        edit: u64,
    ) -> FrameHeader {
        FrameHeader {
            kind,
            first_seq,
            last_seq,
            written_at,
            settled: self.rely_on(Timestamp(0)),
            edit,
        }
    }

    /// Syncs most of what [`CommitLog::all_before`] will sync, before the lock is taken.
    pub fn sync_ahead(&self) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.sync_to(log.end()))
    }

    /// Under the lock: makes every earlier write durable and visible.
    pub fn all_before<'lock>(&self, _state: &'lock CommitState) -> Result<Basis<'lock>> {
        self.sync_ahead()?;
        let last = self.latest();
        self.publish(last);
        Ok(Basis {
            time_high_water: self.rely_on(Timestamp(0)),
            last,
            lock: PhantomData,
        })
    }

    /// Makes everything written so far durable and visible, and makes every segment of the log safe for the manifest to
    /// name.
    pub fn all_so_far(&self) -> Result<Basis<'static>> {
        let log = self.log()?;
        let (position, last, time_high_water) = {
            let _state = self.lock();
            (log.end(), self.latest(), self.rely_on(Timestamp(0)))
        };
        log.sync_to(position)?;
        log.sync_newest()?;
        self.publish(last);
        Ok(Basis {
            time_high_water,
            last,
            lock: PhantomData,
        })
    }
}

/// Proof that the writes that an edit relies on are durable. While it borrows the lock, no write can follow that it
/// does not cover.
#[derive(Clone, Copy)]
pub struct Basis<'lock> {
    /// The highest time on which these writes relied.
    time_high_water: Timestamp,
    /// The last sequence number among them.
    last: Seq,
    lock: PhantomData<&'lock CommitState>,
}

impl Basis<'_> {
    /// For edits that rely on tables alone: a table is written after the log was synced past its records, or from such
    /// tables.
    pub const TABLES: Basis<'static> = Basis {
        time_high_water: Timestamp(0),
        last: Seq(0),
        lock: PhantomData,
    };

    /// The highest time on which the writes relied.
    pub fn time_high_water(&self) -> Timestamp {
        self.time_high_water
    }

    /// Every write up to this sequence number is durable.
    pub fn covers(&self, seq: Seq) -> bool {
        seq <= self.last
    }
}
