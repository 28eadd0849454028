//! The engine's own state, and what every part of it asks: what is published, what is durable, may this be written?

use crate::env::JoinHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::base::counters::{Counters, ReclaimLag};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, RwLock};
use crate::base::{Error, Result, Seq, TableId, Timestamp, file_name};
use crate::catalog::{Manifest, Pins, RunId};
use crate::compact::pace::Budget;
use crate::engine::options::Options;
use crate::engine::relied::Relied;
use crate::engine::retired::Retired;
use crate::engine::state::{ContainerState, Scrub, SnapshotPin, Snapshots};
use crate::env::{Fs, Lock, SettledClock, Signal, monotonic};
use crate::expiry::{Judge, Judges};
use crate::mem::Pool;
use crate::table::BlockCache;
use crate::wal::{Appender, FrameHead, FrameKind, Log, SegmentSummary};

/// The threads' names.
pub(super) const FLUSH: &str = "ebbtide-flush";
pub(super) const MERGE: &str = "ebbtide-merge";
pub(super) const LOG: &str = "ebbtide-log";
pub(super) const HURRY: &str = "ebbtide-hurry";

/// What the commit turn guards.
pub struct Turn {
    /// The number of the next record.
    pub(super) next_seq: Seq,
    /// Bytes of all active memtables.
    pub(super) active_bytes: usize,
    /// The log's writing end: not there when the database is closed or read-only, or has no log yet.
    pub(super) appender: Option<Appender>,
}

/// The log that was there when the database was opened, while there is no room for a new one.
pub(super) struct OldLog {
    /// Why there is none.
    pub(super) error: Error,
    /// Where a new one is to begin.
    pub(super) next_segment: u64,
    /// Its segments, oldest first.
    pub(super) segments: Vec<SegmentSummary>,
}

impl OldLog {
    /// The first segment that may hold a record of this number. Later ones hold no lower numbers but in relogged frames,
    /// which count as the highest of their moment.
    pub(super) fn holding(&self, seq: Seq) -> Option<u64> {
        let mut segments = self.segments.iter();
        let found = segments.find(|segment| segment.last_seq >= seq);
        found.map(|segment| segment.number)
    }
}

/// An open database.
pub struct Engine {
    pub(super) path: PathBuf,
    pub(super) options: Options,
    pub(super) fs: Arc<dyn Fs>,
    pub(super) clock: SettledClock,
    pub(super) cache: Arc<BlockCache>,
    /// Memory of flushed memtables, for the next ones.
    pub(super) pool: Arc<Pool>,
    pub(super) pins: Arc<Pins>,
    pub(super) counters: Counters,
    /// How long expired bytes stayed.
    pub(super) reclaim_lag: Mutex<ReclaimLag>,
    pub(super) lock: Mutex<Option<Box<dyn Lock>>>,
    pub(super) containers: RwLock<BTreeMap<String, Arc<ContainerState>>>,
    pub(super) turn: Mutex<Turn>,
    /// The last number that was given out and is in a memtable.
    pub(super) latest: AtomicU64,
    /// The last number that readers see.
    pub(super) published: AtomicU64,
    pub(super) relied: Relied,
    /// Not there when the database is read-only, and not yet when there was no room for it.
    pub(super) log: OnceLock<Arc<Log>>,
    /// The one from before, if there was no room for it when the database was opened.
    pub(super) old_log: Option<OldLog>,
    pub(super) manifest: Mutex<Option<Manifest>>,
    /// Copy of [`Manifest::is_in_doubt`].
    pub(super) in_doubt: AtomicBool,
    /// Tables that an edit in doubt may have named.
    pub(super) doubtful: Mutex<Vec<TableId>>,
    pub(super) durable_edit: AtomicU64,
    /// The highest settled time on which an acknowledged write, a floor or a purge has relied.
    pub(super) mark: AtomicU64,
    pub(super) next_table: AtomicU64,
    pub(super) next_run: AtomicU64,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) unflushed: AtomicUsize,
    pub(super) budget: Mutex<Budget>,
    /// Files on their way out.
    pub(super) retired: Mutex<Retired>,
    /// Nanoseconds that writers are to rest, but have not yet.
    pub(super) rest_owed: AtomicU64,
    pub(super) scrub: Mutex<Scrub>,
    pub(super) flushing: Mutex<()>,
    pub(super) merging: Mutex<()>,
    /// A deadline is too near for the merge thread: what it is at, it gives up.
    pub(super) hurrying: AtomicBool,
    /// Tables that a rewrite is reading or will read.
    pub(super) busy: Mutex<BTreeSet<TableId>>,
    /// Whose turn it is to be merged, modulo the number of containers.
    pub(super) merge_turn: AtomicUsize,
    /// The last number when the flush thread last looked, and when that was first so.
    pub(super) rest: Mutex<(Seq, Duration)>,
    /// By which work, mostly a thread's: with what it failed last, if it did.
    pub(super) background_errors: Mutex<BTreeMap<&'static str, Error>>,
    /// How often a round of the flush thread has failed, and with what: for writers that wait for one.
    pub(super) failed_flushes: Mutex<(u64, Option<Error>)>,
    /// When the log is to be synced next.
    pub(super) sync_due: Mutex<Duration>,
    pub(super) closing: AtomicBool,
    pub(super) flush_signal: Arc<Signal>,
    pub(super) merge_signal: Arc<Signal>,
    pub(super) sync_signal: Arc<Signal>,
    pub(super) hurry_signal: Arc<Signal>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tables_dir(&self) -> PathBuf {
        self.path.join(file_name::TABLES_DIR)
    }

    pub(super) fn wal_dir(&self) -> PathBuf {
        self.path.join(file_name::WAL_DIR)
    }

    /// The last number that readers see.
    #[inline]
    pub(super) fn published(&self) -> Seq {
        Seq(self.published.load(Ordering::Acquire))
    }

    pub(super) fn publish(&self, seq: Seq) {
        self.published.fetch_max(seq.0, Ordering::AcqRel);
    }

    /// The last number that was given out and is in a memtable.
    pub(super) fn latest(&self) -> Seq {
        Seq(self.latest.load(Ordering::Acquire))
    }

    /// For how long nobody has written, as far as the threads have noticed.
    pub(super) fn rests_for(&self) -> Duration {
        let (now, latest) = (monotonic(), self.latest());
        let mut rest = self.rest.lock();
        if rest.0 != latest {
            *rest = (latest, now);
        }
        now.saturating_sub(rest.1)
    }

    pub(super) fn log(&self) -> Result<&Arc<Log>> {
        self.log.get().ok_or_else(|| match &self.old_log {
            Some(old) => old.error.clone(),
            None => Error::ReadOnly,
        })
    }

    pub(super) fn durable_edit(&self) -> u64 {
        self.durable_edit.load(Ordering::Acquire)
    }

    /// Something that is about to be durable relies on this moment; returns the mark.
    pub(super) fn rely_on(&self, settled: Timestamp) -> Timestamp {
        let before = self.mark.fetch_max(settled.0, Ordering::AcqRel);
        Timestamp(before).max(settled)
    }

    pub(super) fn new_table(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn new_run(&self) -> RunId {
        RunId(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    /// Every container, in the order of names.
    pub(super) fn all_states(&self) -> Vec<Arc<ContainerState>> {
        self.containers.read().values().cloned().collect()
    }

    /// Reads are answered.
    #[inline]
    pub fn check_open(&self, state: &ContainerState) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        state.check()
    }

    /// Writes are taken.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        if let Some(failure) = self.log.get().and_then(|log| log.failure()) {
            return Err(failure);
        }
        if self.in_doubt.load(Ordering::Acquire) {
            // An edit that drops a container, say, and may have happened, would take later writes with it.
            let mut manifest = self.manifest.lock();
            let settled = manifest.as_mut().ok_or(Error::Closed)?.settle();
            self.note_doubt(&manifest);
            settled?;
        }
        Ok(())
    }

    /// What became of something in the background: its failure stands in the statistics until it is done, and whoever waits
    /// for a flush hears of the flush thread's.
    pub(super) fn note_outcome<T>(&self, work: &'static str, outcome: &Result<T>) {
        match outcome {
            Ok(_) => drop(self.background_errors.lock().remove(work)),
            Err(error) if error.is_closed() => {}
            Err(error) => {
                self.background_errors.lock().insert(work, error.clone());
                if work == FLUSH {
                    let mut failed = self.failed_flushes.lock();
                    *failed = (failed.0 + 1, Some(error.clone()));
                }
            }
        }
    }

    pub(super) fn note_doubt(&self, manifest: &Option<Manifest>) {
        let in_doubt = manifest.as_ref().is_some_and(Manifest::is_in_doubt);
        self.in_doubt.store(in_doubt, Ordering::Release);
        if !in_doubt {
            let tables = std::mem::take(&mut *self.doubtful.lock());
            self.remove_tables(&tables);
        }
    }

    /// The writes up to now.
    pub fn snapshot(&self) -> SnapshotPin {
        self.snapshots.register(|| self.published())
    }

    /// A frame's head for something that is no write: it relies on no moment.
    pub(super) fn frame_head(&self, kind: FrameKind, first_seq: Seq, last_seq: Seq) -> FrameHead {
        let written_at = self.clock.now();
        let settled = self.rely_on(Timestamp(0));
        FrameHead {
            kind,
            first_seq,
            last_seq,
            written_at,
            settled,
            edit: self.durable_edit(),
        }
    }

    /// The wall clock is right.
    pub fn confirm_clock(&self) {
        self.clock.confirm();
        self.merge_signal.notify();
    }

    /// One judgement for one operation, of a time at which the clock did not go back.
    pub(super) fn judges(&self, state: &ContainerState) -> Judges {
        loop {
            let leads = self.clock.leads();
            let reading = self.clock.read();
            let judges = Judges::at(reading.now, reading.settled, || state.settings());
            if self.clock.leads() == leads {
                return judges;
            }
        }
    }

    /// The same for who asks about now alone.
    pub(super) fn judge(&self, state: &ContainerState) -> Judge {
        self.judges(state).now
    }

    /// The same at a moment that is no earlier, for less.
    #[inline]
    pub(super) fn judge_later(&self, state: &ContainerState) -> Judge {
        Judge::at(self.clock.at_most(), || state.settings())
    }

    /// The same in settled time, for jobs.
    pub(super) fn judge_settled(&self, state: &ContainerState) -> Judge {
        // Nothing is purged while the clock is doubted: at the moment 0 nothing has expired but what a floor holds down.
        let now = self.clock.purge_time().unwrap_or(Timestamp(0));
        Judge::at(now, || state.settings())
    }
}
