//! The engine's own state, and what every part of it asks: what is published, what is durable, may this be written?

use crate::env::JoinHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::counters::{Counters, ReclaimLag};
use crate::engine::retired::Retired;
use crate::engine::state::{ContainerState, Scrub, SnapshotPin, Snapshots};
use crate::env::{Fs, Lock, SettledClock, Signal, monotonic};
use crate::error::{Error, Result};
use crate::expiry::Judge;
use crate::mem::Pool;
use crate::options::Options;
use crate::pace::Budget;
use crate::table::BlockCache;
use crate::types::{Seq, TableId, Timestamp, file_name};
use crate::version::{Change, Manifest, Pins, RunId};
use crate::wal::{Appender, FrameHead, FrameKind, Log};

/// What the commit turn guards.
pub struct Turn {
    /// The number of the next record.
    pub(super) next_seq: Seq,
    /// Bytes of all active memtables.
    pub(super) active_bytes: usize,
    /// The log's writing end; gone when the database is closed or read-only.
    pub(super) appender: Option<Appender>,
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
    pub(super) log: Option<Arc<Log>>,
    pub(super) manifest: Mutex<Option<Manifest>>,
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
    /// Tables that a rewrite is reading or will read.
    pub(super) busy: Mutex<BTreeSet<TableId>>,
    /// Whose turn it is to be merged, modulo the number of containers.
    pub(super) merge_turn: AtomicUsize,
    /// The last number when the flush thread last looked, and when that was first so.
    pub(super) rest: Mutex<(Seq, Duration)>,
    pub(super) failure: OnceLock<Error>,
    /// What went wrong in the background and may pass; the next writer hears of it.
    pub(super) hiccup: Mutex<Option<Error>>,
    pub(super) closing: AtomicBool,
    pub(super) flush_signal: Arc<Signal>,
    pub(super) merge_signal: Arc<Signal>,
    pub(super) sync_signal: Arc<Signal>,
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
        self.log.as_ref().ok_or(Error::ReadOnly)
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
        if let Some(failure) = self.failure.get() {
            return Err(Error::Poisoned {
                cause: Arc::new(failure.clone()),
            });
        }
        match self.hiccup.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// No further write is taken.
    pub(super) fn fail(&self, error: &Error) {
        let _ = self.failure.set(error.clone());
    }

    /// Makes changes of the catalogue durable, which rely on the moment `settled`.
    pub(super) fn edit(&self, changes: Vec<Change>, settled: Timestamp) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.edit_locked(&mut manifest, changes, settled)
    }

    pub(super) fn edit_locked(
        &self,
        manifest: &mut Option<Manifest>,
        changes: Vec<Change>,
        settled: Timestamp,
    ) -> Result<()> {
        let manifest = manifest.as_mut().ok_or(Error::Closed)?;
        let done = manifest.commit(changes, self.rely_on(settled));
        match &done {
            Ok(()) => self
                .durable_edit
                .store(manifest.catalogue().edit, Ordering::Release),
            Err(error) if manifest.is_uncertain() => self.fail(error),
            Err(_) => {}
        }
        done
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

    /// The clock, then the settings: one judgement for one operation.
    #[inline]
    pub(super) fn judge(&self, state: &ContainerState) -> Judge {
        let now = self.clock.now();
        Judge {
            settings: state.settings(),
            now,
        }
    }

    /// The same in settled time, for jobs.
    pub(super) fn judge_settled(&self, state: &ContainerState) -> Judge {
        // Nothing is purged while the clock is doubted: at the moment 0 nothing has expired but what a floor holds down.
        let now = self.clock.purge_time().unwrap_or(Timestamp(0));
        Judge {
            settings: state.settings(),
            now,
        }
    }
}
