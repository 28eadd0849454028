//! Scheduling of background work: the threads, which of them may run, and what failed.
//!
//! ```text
//! thread          wakes it                       does                         at once
//! flush           a memtable is full             flushes, trims the log       one flush: `flushing`
//! merge           tables or deadlines changed    merges, reclaims, scrubs     one merge: `merging`
//! log             a writer asks for upkeep       drains the log, prepares segments
//! sync            time                           syncs the log
//! hurry           time                           looks for deadlines          takes the merge thread's place
//! tell            somebody waits for a sync      syncs, tells them            begun for the first of them
//! listen          something happened, time       tells the listener           only where there is one
//! follow          time                           catches up with the writer   the only one of a follower
//! ```
//!
//! Invariants:
//!
//! 1. After [`Scheduler::close`] no thread begins a round, and every caller is told that the database is closed.
//! 2. One rewrite at a time reads a table: [`Busy`] holds its id meanwhile.
//! 3. A failure stays in the list until the same work succeeds; a caller who waits for a flush receives the error of
//!    the last round that failed, if it began since: an earlier one may have failed for want of room that there is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, Result, Seq, TableId};
use crate::env::{JoinHandle, Priority, Signal, is_another, priority};

/// A thread of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Flushes memtables.
    Flush,
    /// Merges and reclaims.
    Merge,
    /// Maintains the log.
    Log,
    /// Syncs the log.
    Sync,
    /// Checks deadlines.
    Hurry,
    /// Calls those who wait for a sync of the log.
    Tell,
    /// Catches up with the process that writes.
    Follow,
    /// Tells the listener what happened.
    Listen,
}

impl Thread {
    const ALL: [Thread; 8] = [
        Thread::Flush,
        Thread::Merge,
        Thread::Log,
        Thread::Sync,
        Thread::Hurry,
        Thread::Tell,
        Thread::Follow,
        Thread::Listen,
    ];

    /// The thread's name in the system.
    pub fn name(self) -> &'static str {
        match self {
            Thread::Flush => "ebbtide-flush",
            Thread::Merge => "ebbtide-merge",
            Thread::Log => "ebbtide-log",
            Thread::Sync => "ebbtide-sync",
            Thread::Hurry => "ebbtide-hurry",
            Thread::Tell => "ebbtide-tell",
            Thread::Follow => "ebbtide-follow",
            Thread::Listen => "ebbtide-listen",
        }
    }

    /// Its priority.
    pub fn priority(self) -> Priority {
        match self {
            Thread::Log | Thread::Sync | Thread::Tell | Thread::Follow | Thread::Listen => {
                Priority::Usual
            }
            Thread::Flush | Thread::Hurry => Priority::Low,
            Thread::Merge => Priority::Lowest,
        }
    }
}

/// Failures in the background.
#[derive(Default)]
struct Failures {
    /// The last error of each kind of work that failed and has not succeeded since.
    by_work: BTreeMap<&'static str, Error>,
    /// How many rounds the flush thread has begun.
    flush_rounds: u64,
    /// The last of these rounds that failed, and its error.
    failed_flush: Option<(u64, Error)>,
}

/// See the file's head.
pub struct Scheduler {
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    signals: [Arc<Signal>; Thread::ALL.len()],
    flushing: Mutex<()>,
    merging: Mutex<()>,
    /// A deadline is too near for the merge thread, which gives up its current work.
    hurrying: AtomicBool,
    /// Tables that a rewrite is reading or will read.
    busy: Mutex<BTreeSet<TableId>>,
    /// The container that a search for work begins with, modulo their count.
    next_container: AtomicUsize,
    /// The last sequence number at the last check, and since when it has been the same.
    quiet: Mutex<(Seq, Duration)>,
    failures: Mutex<Failures>,
    /// When the next sync of the log is due.
    sync_due: Mutex<Duration>,
}

impl Scheduler {
    /// Without threads, at this time; the first sync of the log is due after the interval.
    pub fn new(last_seq: Seq, now: Duration, sync_interval: Duration) -> Scheduler {
        Scheduler {
            closing: AtomicBool::new(false),
            threads: Mutex::default(),
            signals: Default::default(),
            flushing: Mutex::new(()),
            merging: Mutex::new(()),
            hurrying: AtomicBool::new(false),
            busy: Mutex::default(),
            next_container: AtomicUsize::new(0),
            quiet: Mutex::new((last_seq, now)),
            failures: Mutex::default(),
            sync_due: Mutex::new(now + sync_interval),
        }
    }

    /// Whether the database is closed or closing.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// An error if the database is closed or closing.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match self.is_closing() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Tells every thread to end; false when an earlier call did.
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

    /// Takes over these running threads.
    pub fn keep(&self, threads: Vec<JoinHandle<()>>) {
        *self.threads.lock() = threads;
    }

    /// Keeps the tell thread, which `start` begins, unless it runs already or the database is closing.
    pub fn keep_telling(&self, start: impl FnOnce() -> Result<JoinHandle<()>>) -> Result<()> {
        let mut threads = self.threads.lock();
        let is_there =
            |handle: &JoinHandle<()>| handle.thread().name() == Some(Thread::Tell.name());
        if !self.is_closing() && !threads.iter().any(is_there) {
            threads.push(start()?);
        }
        Ok(())
    }

    /// The signal that wakes a thread.
    pub fn signal(&self, thread: Thread) -> &Arc<Signal> {
        &self.signals[thread as usize]
    }

    /// Wakes this thread.
    #[inline]
    pub fn wake(&self, thread: Thread) {
        self.signal(thread).notify();
    }

    /// Taken by every flush, so that there is one at a time.
    pub fn lock_flushing(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Taken by every merge and reclaim, so that there is one at a time.
    pub fn lock_merging(&self) -> MutexGuard<'_, ()> {
        self.merging.lock()
    }

    /// Makes the merge thread give up its current work, for a deadline.
    pub fn hurry(&self) {
        self.hurrying.store(true, Ordering::Release);
    }

    /// Ends the hurry; false when there was none.
    pub fn end_hurry(&self) -> bool {
        self.hurrying.swap(false, Ordering::AcqRel)
    }

    /// Whether the calling thread must give up its work, because the hurry thread waits to take its place.
    pub fn gives_up(&self) -> bool {
        self.hurrying.load(Ordering::Acquire) && priority() == Priority::Lowest
    }

    /// Tables that a rewrite is reading or will read.
    pub fn busy(&self) -> BTreeSet<TableId> {
        self.busy.lock().clone()
    }

    /// Reserves these tables for a rewrite: no other job takes them while the result is held.
    pub fn take_tables(&self, tables: BTreeSet<TableId>) -> Busy<'_> {
        self.busy.lock().extend(&tables);
        Busy {
            scheduler: self,
            tables,
        }
    }

    /// The container with which a search for work begins; the next search begins this many further.
    pub fn next_container(&self, len: usize) -> usize {
        self.next_container.fetch_add(len, Ordering::Relaxed)
    }

    /// How long nobody has written, as far as the threads have noticed. `latest`: the last sequence number.
    pub fn quiet_for(&self, latest: Seq, now: Duration) -> Duration {
        let mut quiet = self.quiet.lock();
        if quiet.0 != latest {
            *quiet = (latest, now);
        }
        now.saturating_sub(quiet.1)
    }

    /// Notes that a thread begins a round.
    pub fn begin_round(&self, thread: Thread) {
        if thread == Thread::Flush {
            self.failures.lock().flush_rounds += 1;
        }
    }

    /// Notes the outcome of background work. A failure stays in the statistics until the same work succeeds; callers
    /// who wait for a flush receive the flush thread's failures.
    pub fn note_outcome<T>(&self, work: &'static str, outcome: &Result<T>) {
        match outcome {
            Ok(_) => drop(self.failures.lock().by_work.remove(work)),
            Err(error) if error.is_closed() => {}
            Err(error) => {
                let mut failures = self.failures.lock();
                failures.by_work.insert(work, error.clone());
                if work == Thread::Flush.name() {
                    failures.failed_flush = Some((failures.flush_rounds, error.clone()));
                }
            }
        }
    }

    /// The failure of work that has not succeeded since; of several, the first by the name of the work.
    pub fn failure(&self) -> Option<String> {
        let failures = self.failures.lock();
        failures.by_work.values().next().map(Error::to_string)
    }

    /// The number of rounds that the flush thread has begun.
    pub fn flush_rounds(&self) -> u64 {
        self.failures.lock().flush_rounds
    }

    /// The error of the last flush round that failed, unless it is one of the first `begun`.
    pub fn flush_failure_after(&self, begun: u64) -> Option<Error> {
        let failures = self.failures.lock();
        let (round, error) = failures.failed_flush.as_ref()?;
        (*round > begun).then(|| error.clone())
    }

    /// When the next sync of the log is due.
    pub fn sync_due(&self) -> Duration {
        *self.sync_due.lock()
    }

    /// Sets the next sync of the log, after a sync or when there was nothing to sync.
    pub fn set_sync_due(&self, due: Duration) {
        *self.sync_due.lock() = due;
    }
}

/// The tables reserved for a rewrite: no other job takes them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_flush_hears_only_of_rounds_that_began_since() {
        let scheduler = Scheduler::new(Seq(0), Duration::ZERO, Duration::ZERO);
        let fails = || {
            let full = Err::<(), _>(Error::Stalled);
            scheduler.note_outcome(Thread::Flush.name(), &full);
        };
        scheduler.begin_round(Thread::Flush);
        let begun = scheduler.flush_rounds();
        fails();
        assert!(scheduler.flush_failure_after(begun).is_none());
        assert!(scheduler.failure().is_some());
        scheduler.begin_round(Thread::Merge);
        scheduler.begin_round(Thread::Flush);
        fails();
        assert!(scheduler.flush_failure_after(begun).is_some());
        let begun = scheduler.flush_rounds();
        assert!(scheduler.flush_failure_after(begun).is_none());
    }
}
