//! The commit log: one order for every write, and what of it is in memory, visible and durable.
//!
//! ```text
//! lock -> stamp: sequence number, time -> append to the log -> memtables -> `latest` -> `published` -> unlock
//!                                                                  Durability::Sync: unlock -> sync -> `published`
//! ```
//!
//! Invariants, which nobody else can break, for the fields are private here:
//!
//! 1. Sequence numbers are given under the lock, in the order of the log. `next_seq` is the last one and one more.
//! 2. `latest` is the last sequence number that is in a memtable; it is stored under the lock. `published` is the last
//!    one that readers see; it only rises, and never goes beyond `latest`.
//! 3. `time_high_water`, the *mark*, is the highest settled time on which an acknowledged write, a floor or a purge has
//!    relied; it only rises. Every frame and every edit carries it.
//! 4. The log's writing end lies under the lock, and is there as long as there is a log and the database is open.
//!
//! # What an edit of the manifest relies on
//!
//! History is one order of everything: writes in the log, edits in the manifest. The lock gives it.
//!
//! ```text
//! log         w w w w | w w w | w w            w: writes
//! manifest            e       e                e: edits, each with its place in the order
//!             synced before e
//! ```
//!
//! What lasts lacks nothing that came before it, and relies on no write that does not last. So an edit is committed with a
//! [`Basis`], which is made only once the log is synced as far as the edit relies on it. With the writes come the times
//! that they relied on: an edit carries the highest of these as its mark, and its own.
//!
//! | edit | relies on | basis |
//! | --- | --- | --- |
//! | a batch changes a default: said again by the next edit, whichever | the batch's frame, which was synced before it counted | that edit's |
//! | the default changes; a container is made or dropped | all that came before it | [`CommitLog::all_before`], under the lock |
//! | a flush, range deletes with it; the log's first segment is named | what was written up to a moment before | [`CommitLog::all_so_far`] |
//! | tables are merged, joined or dropped | tables, whose writes were durable before them, and a time of its own | [`Basis::TABLES`] |
//! | a new log is begun; the log is closed | all that came before it | [`CommitLog::all_before`] |
//!
//! Each edit also says how far the log was synced by then, whatever it relies on. So an opening notices what is gone of it.
//!
//! After a failed sync of the log there is no basis but tables: what gives back room goes on, nothing else does. Without a
//! log, after an open that found no room for one, everything is durable: that open has synced what it read.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard, lock_soon};
use crate::base::{Error, Result, Seq, Timestamp};
use crate::engine::relied::{Relied, Relying};
use crate::wal::{Appender, FrameHeader, FrameKind, Log, SegmentSummary, SyncedNote};

/// What the commit lock guards.
pub struct CommitState {
    /// The sequence number of the next record.
    next_seq: Seq,
    /// Bytes of all active memtables.
    active_bytes: usize,
    /// The log's writing end: not there when the database is closed or read-only, or has no log yet.
    appender: Option<Appender>,
}

impl CommitState {
    /// The sequence number of the next record.
    #[inline]
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// The log's writing end.
    #[inline]
    pub fn appender(&mut self) -> Result<&mut Appender> {
        self.appender.as_mut().ok_or(Error::Closed)
    }

    /// There is a log to write to.
    pub fn has_log(&self) -> bool {
        self.appender.is_some()
    }

    /// Bytes of all active memtables.
    #[inline]
    pub fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// An active memtable has grown.
    #[inline]
    pub fn add_active(&mut self, bytes: usize) {
        self.active_bytes += bytes;
    }

    /// A memtable of this size is no longer active.
    pub fn remove_active(&mut self, bytes: usize) {
        self.active_bytes -= bytes;
    }
}

/// The log that was there when the database was opened, while there is no room for a new one.
pub struct OldLog {
    /// Why there is none.
    pub error: Error,
    /// Where a new one is to begin.
    pub next_segment: u64,
    /// How far it goes: opening has synced it.
    pub synced: Option<SyncedNote>,
    /// Its segments, oldest first.
    pub segments: Vec<SegmentSummary>,
}

impl OldLog {
    /// The first segment that may hold a record of this sequence number. Later ones hold no lower sequence numbers but
    /// in relogged frames, which count as the highest of their moment.
    pub fn holding(&self, seq: Seq) -> Option<u64> {
        let mut segments = self.segments.iter();
        let found = segments.find(|segment| segment.last_seq >= seq);
        found.map(|segment| segment.number)
    }
}

/// How an opened database begins to write.
pub struct Beginning {
    /// The last sequence number that was given out.
    pub last_seq: Seq,
    /// The highest time that anything relied on.
    pub time_high_water: Timestamp,
    /// Bytes of the recovered memtables.
    pub active_bytes: usize,
    /// The log, unless the database is read-only.
    pub log: Option<(Arc<Log>, Appender)>,
    /// The one from before, if there was no room for a new one.
    pub old_log: Option<OldLog>,
}

/// See the file's head.
pub struct CommitLog {
    state: Mutex<CommitState>,
    latest: AtomicU64,
    published: AtomicU64,
    time_high_water: AtomicU64,
    relied: Relied,
    /// Not there when the database is read-only, and not yet when there was no room for it.
    log: OnceLock<Arc<Log>>,
    old_log: Option<OldLog>,
}

impl CommitLog {
    /// Goes on where recovery ended.
    pub fn new(beginning: Beginning) -> CommitLog {
        let Beginning {
            last_seq,
            time_high_water,
            active_bytes,
            log,
            old_log,
        } = beginning;
        let (log, appender) = log.map_or((OnceLock::new(), None), |(log, appender)| {
            (OnceLock::from(log), Some(appender))
        });
        CommitLog {
            state: Mutex::new(CommitState {
                next_seq: last_seq.next(),
                active_bytes,
                appender,
            }),
            latest: AtomicU64::new(last_seq.0),
            published: AtomicU64::new(last_seq.0),
            time_high_water: AtomicU64::new(time_high_water.0),
            relied: Relied::new(),
            log,
            old_log,
        }
    }

    /// Takes the commit lock.
    pub fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }

    /// The same for a writer: it is held for less time than going to sleep takes.
    #[inline]
    pub fn lock_soon(&self) -> MutexGuard<'_, CommitState> {
        lock_soon(&self.state)
    }

    /// Waits until the write that has the lock is done with it.
    pub fn pass(&self) {
        drop(lock_soon(&self.state));
    }

    /// The last sequence number that readers see.
    #[inline]
    pub fn published(&self) -> Seq {
        Seq(self.published.load(Ordering::Acquire))
    }

    /// Readers see up to this sequence number.
    #[inline]
    pub fn publish(&self, seq: Seq) {
        self.published.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The last sequence number that was given out and is in a memtable.
    #[inline]
    pub fn latest(&self) -> Seq {
        Seq(self.latest.load(Ordering::Acquire))
    }

    /// Every record up to this sequence number is in a memtable.
    #[inline]
    pub fn applied(&self, state: &mut CommitState, last: Seq) {
        state.next_seq = last.next();
        self.latest.store(last.0, Ordering::Release);
    }

    /// A sequence number was taken by something that is not in the log, and is durable with all before it.
    pub fn note_unlogged(&self, state: &mut CommitState, seq: Seq) {
        self.applied(state, seq);
        self.publish(seq);
    }

    /// The log, or why there is none.
    #[inline]
    pub fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or_else(|| match &self.old_log {
            Some(old) => old.error.clone(),
            None => Error::ReadOnly,
        })
    }

    /// The log, if there is one.
    #[inline]
    pub fn begun(&self) -> Option<&Arc<Log>> {
        self.log.get()
    }

    /// The log from before the database was opened, if there was no room for a new one then.
    #[inline]
    pub fn old_log(&self) -> Option<&OldLog> {
        self.old_log.as_ref()
    }

    /// How far the log is known to be synced, or the one from before; nothing where there is none.
    pub fn synced(&self) -> Option<SyncedNote> {
        match self.begun() {
            Some(log) => Some(log.synced_note()),
            None => self.old_log.as_ref()?.synced,
        }
    }

    /// There is a log from now on.
    pub fn begin(&self, state: &mut CommitState, log: Arc<Log>, appender: Appender) {
        state.appender = Some(appender);
        let _ = self.log.set(log);
    }

    /// Ends the log with this frame.
    pub fn close(&self, state: &mut CommitState, header: &FrameHeader) -> Result<()> {
        let appender = state.appender.take();
        appender.map_or(Ok(()), |appender| appender.close(header))
    }

    /// Something that is about to be durable relies on this moment; returns the mark.
    #[inline]
    pub fn rely_on(&self, settled: Timestamp) -> Timestamp {
        let before = self.time_high_water.fetch_max(settled.0, Ordering::AcqRel);
        Timestamp(before).max(settled)
    }

    /// Under the lock, before the clock is read for the stamp: a write relies on this version.
    #[inline]
    pub fn rely_on_version(&self, seq: Seq) -> Relying<'_> {
        self.relied.rely(seq)
    }

    /// After the clock was read: a write that has the lock relies on this version.
    pub fn is_relied_on(&self, seq: Seq) -> bool {
        self.relied.is_on(seq)
    }

    /// A frame's header for something that is no write: it relies on no moment.
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

    /// Most of what [`CommitLog::all_before`] will sync, so that the lock is not held for it.
    pub fn sync_ahead(&self) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.sync_to(log.end()))
    }

    /// Under the lock: all that came before is durable, and seen.
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

    /// What is written by now is durable and seen, and any segment of the log may be named by the manifest.
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

/// Proof that what an edit relies on is durable. For as long as it borrows the lock nothing can be written that it lacks.
#[derive(Clone, Copy)]
pub struct Basis<'lock> {
    /// The highest time on which these writes relied.
    time_high_water: Timestamp,
    /// The last sequence number among them.
    last: Seq,
    lock: PhantomData<&'lock CommitState>,
}

impl Basis<'_> {
    /// Tables alone: a table is written after the log was synced past its records, or from such tables.
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
