//! Who works in the background, who may work now, and what failed.
//!
//! ```text
//! thread          wakes it                       does                         at once
//! flush           a memtable is full             flushes, trims the log       one flush: `flushing`
//! merge           tables or deadlines changed    merges, reclaims, scrubs     one merge: `merging`
//! log             a writer asks for upkeep       drains, prepares, syncs
//! hurry           time                           looks for deadlines          takes the merge thread's place
//! tell            somebody waits for a sync      syncs, tells them            begun for the first of them
//! ```
//!
//! Invariants:
//!
//! 1. After [`Scheduler::close`] no thread begins a round, and everybody who asks is told that the database is
//!    closed.
//! 2. A table is read by one rewrite at a time: [`Busy`] holds its number as long as that lasts.
//! 3. A failure stands in the list until the same work is done; who waits for a flush hears of each that failed since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, Result, Seq, TableId};
use crate::env::{JoinHandle, Priority, Signal, is_another, monotonic, priority};

/// A thread of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Flushes memtables.
    Flush,
    /// Merges and reclaims.
    Merge,
    /// Keeps the log.
    Log,
    /// Looks for deadlines.
    Hurry,
    /// Tells who waits that the log is synced.
    Tell,
}

impl Thread {
    const ALL: [Thread; 5] = [
        Thread::Flush,
        Thread::Merge,
        Thread::Log,
        Thread::Hurry,
        Thread::Tell,
    ];

    /// As the system shows it.
    pub fn name(self) -> &'static str {
        match self {
            Thread::Flush => "ebbtide-flush",
            Thread::Merge => "ebbtide-merge",
            Thread::Log => "ebbtide-log",
            Thread::Hurry => "ebbtide-hurry",
            Thread::Tell => "ebbtide-tell",
        }
    }

    /// What it gives way to.
    pub fn priority(self) -> Priority {
        match self {
            Thread::Log | Thread::Tell => Priority::Usual,
            Thread::Flush | Thread::Hurry => Priority::Low,
            Thread::Merge => Priority::Lowest,
        }
    }
}

/// What failed in the background.
#[derive(Default)]
struct Failures {
    /// By which work, mostly a thread's: with what it failed last, if it did.
    by_work: BTreeMap<&'static str, Error>,
    /// How many rounds of the flush thread have failed.
    flushes: u64,
    /// With what the last of these did.
    last_flush: Option<Error>,
}

/// See the file's head.
pub struct Scheduler {
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    signals: [Arc<Signal>; Thread::ALL.len()],
    flushing: Mutex<()>,
    merging: Mutex<()>,
    /// A deadline is too near for the merge thread: what it is at, it gives up.
    hurrying: AtomicBool,
    /// Tables that a rewrite is reading or will read.
    busy: Mutex<BTreeSet<TableId>>,
    /// Which container is looked at first, modulo their number.
    next_container: AtomicUsize,
    /// The last sequence number when somebody last looked, and when that was first so.
    quiet: Mutex<(Seq, Duration)>,
    failures: Mutex<Failures>,
    /// When the log is to be synced next.
    sync_due: Mutex<Duration>,
}

impl Scheduler {
    /// Nothing runs yet. `sync_due` is when the log is to be synced first.
    pub fn new(last_seq: Seq, sync_due: Duration) -> Scheduler {
        Scheduler {
            closing: AtomicBool::new(false),
            threads: Mutex::default(),
            signals: Default::default(),
            flushing: Mutex::new(()),
            merging: Mutex::new(()),
            hurrying: AtomicBool::new(false),
            busy: Mutex::default(),
            next_container: AtomicUsize::new(0),
            quiet: Mutex::new((last_seq, monotonic())),
            failures: Mutex::default(),
            sync_due: Mutex::new(sync_due),
        }
    }

    /// The database is closed, or is being closed.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The same as an error.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match self.is_closing() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Ends every thread; false when somebody has done so before.
    pub fn close(&self) -> bool {
        if self.closing.swap(true, Ordering::AcqRel) {
            return false;
        }
        Thread::ALL.into_iter().for_each(|thread| self.wake(thread));
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads.into_iter().filter(is_another) {
            let _ = thread.join();
        }
        true
    }

    /// These run now.
    pub fn keep(&self, threads: Vec<JoinHandle<()>>) {
        *self.threads.lock() = threads;
    }

    /// Has `start` begun one more thread, unless that is done or the database closes.
    pub fn keep_telling(&self, start: impl FnOnce() -> Result<JoinHandle<()>>) -> Result<()> {
        let mut threads = self.threads.lock();
        let is_there =
            |handle: &JoinHandle<()>| handle.thread().name() == Some(Thread::Tell.name());
        if !self.is_closing() && !threads.iter().any(is_there) {
            threads.push(start()?);
        }
        Ok(())
    }

    /// What a thread waits for.
    pub fn signal(&self, thread: Thread) -> &Arc<Signal> {
        &self.signals[thread as usize]
    }

    /// There is work for this thread.
    #[inline]
    pub fn wake(&self, thread: Thread) {
        self.signal(thread).notify();
    }

    /// Whoever holds it is the only one who flushes.
    pub fn lock_flushing(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Whoever holds it is the only one who merges or reclaims.
    pub fn lock_merging(&self) -> MutexGuard<'_, ()> {
        self.merging.lock()
    }

    /// A deadline presses: the merge thread gives up what it is at.
    pub fn hurry(&self) {
        self.hurrying.store(true, Ordering::Release);
    }

    /// Nothing presses any more; false when nothing did.
    pub fn end_hurry(&self) -> bool {
        self.hurrying.swap(false, Ordering::AcqRel)
    }

    /// The calling thread is too slow for what is due, and another waits to take its place.
    pub fn gives_up(&self) -> bool {
        self.hurrying.load(Ordering::Acquire) && priority() == Priority::Lowest
    }

    /// Tables that a rewrite is reading or will read.
    pub fn busy(&self) -> BTreeSet<TableId> {
        self.busy.lock().clone()
    }

    /// A rewrite will read these tables: no other job takes them as long as the answer is held.
    pub fn take_tables(&self, tables: BTreeSet<TableId>) -> Busy<'_> {
        self.busy.lock().extend(&tables);
        Busy {
            scheduler: self,
            tables,
        }
    }

    /// Which container is looked at first; the next one to ask begins so many further on.
    pub fn next_container(&self, len: usize) -> usize {
        self.next_container.fetch_add(len, Ordering::Relaxed)
    }

    /// For how long nobody has written, as far as the threads have noticed; `latest` is the last sequence number.
    pub fn quiet_for(&self, latest: Seq) -> Duration {
        let now = monotonic();
        let mut quiet = self.quiet.lock();
        if quiet.0 != latest {
            *quiet = (latest, now);
        }
        now.saturating_sub(quiet.1)
    }

    /// What became of something in the background: its failure stands in the statistics until it is done, and whoever
    /// waits for a flush hears of the flush thread's.
    pub fn note_outcome<T>(&self, work: &'static str, outcome: &Result<T>) {
        match outcome {
            Ok(_) => drop(self.failures.lock().by_work.remove(work)),
            Err(error) if error.is_closed() => {}
            Err(error) => {
                let mut failures = self.failures.lock();
                failures.by_work.insert(work, error.clone());
                if work == Thread::Flush.name() {
                    failures.flushes += 1;
                    failures.last_flush = Some(error.clone());
                }
            }
        }
    }

    /// What has failed, and is not done since; the first by the name of the work.
    pub fn failure(&self) -> Option<String> {
        let failures = self.failures.lock();
        failures.by_work.values().next().map(Error::to_string)
    }

    /// How many rounds of the flush thread have failed.
    pub fn failed_flushes(&self) -> u64 {
        self.failures.lock().flushes
    }

    /// With what a round of the flush thread failed that was none of the first `failed`.
    pub fn flush_failure_after(&self, failed: u64) -> Option<Error> {
        let failures = self.failures.lock();
        let is_new = failures.flushes > failed;
        failures.last_flush.clone().filter(|_| is_new)
    }

    /// When the log is to be synced next.
    pub fn sync_due(&self) -> Duration {
        *self.sync_due.lock()
    }

    /// The log was synced, or had nothing to sync; `due` is when it is to be looked at again.
    pub fn set_sync_due(&self, due: Duration) {
        *self.sync_due.lock() = due;
    }
}

/// Tables that a rewrite will read: no other job takes them.
pub struct Busy<'a> {
    scheduler: &'a Scheduler,
    tables: BTreeSet<TableId>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut busy = self.scheduler.busy.lock();
        self.tables.iter().for_each(|table| {
            busy.remove(table);
        });
    }
}
