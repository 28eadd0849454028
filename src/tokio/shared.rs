//! The state that the asynchronous handles of a database share: the database, the pools, and the counts of answers.
//!
//! Invariants:
//!
//! 1. Nothing is done before a future is first polled. A poll does what needs no waiting, or adds one job to a pool.
//! 2. Each answer takes from the budget that tokio gives a task: one whose calls are all answered from memory lets
//!    others run.
//! 3. The last of these handles hands the database to a thread of its own: closing waits, and a task may drop that handle.

use ::tokio::sync::oneshot;
use ::tokio::task::coop::consume_budget;

use crate::api::database::Database;
use crate::base::counters::Counter;
use crate::base::{Attempt, Error, Result, Unready};
use crate::env::spawn;
use crate::tokio::pool::{Answer, Pool, run_apart};
use crate::tokio::timer::Timer;
use crate::tokio::write::Begin;

/// Threads for reads, and as many for writes, where nobody chose.
pub const THREADS: usize = 4;
/// Flushes, merges, bulk loads and checks that run at a time; each keeps the disk busy.
const UPKEEP_THREADS: usize = 2;

/// The threads for some work: neither a stalled write nor a merge of an hour keeps a read waiting.
#[derive(Clone, Copy)]
pub enum WorkQueue {
    /// Gets and ranges.
    Read,
    /// Writes, and changes of containers.
    Write,
    /// Work on the whole database.
    Upkeep,
    /// Work that must not wait for any of these: a thread of its own.
    Apart,
}

/// See the file's head.
pub struct Shared {
    reads: Pool,
    writes: Pool,
    upkeep: Pool,
    inline: Counter,
    pooled: Counter,
    /// For tasks that rest.
    pub timer: Timer,
    /// There until this is dropped.
    db: Option<Database>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let db = self.db.take();
        // Without a thread it is closed here.
        let _ = spawn("ebbtide-close", move || drop(db));
    }
}

impl Shared {
    /// With pools of so many threads.
    pub fn new(db: Database, threads: usize) -> Shared {
        Shared {
            reads: Pool::new(threads),
            writes: Pool::new(threads),
            upkeep: Pool::new(UPKEEP_THREADS),
            inline: Counter::default(),
            pooled: Counter::default(),
            timer: Timer::default(),
            db: Some(db),
        }
    }

    /// The database.
    pub fn db(&self) -> &Database {
        self.db.as_ref().expect("it is there until this is dropped")
    }

    /// How many calls were answered inline, and how many by the pools, which have so many threads.
    pub fn counts(&self) -> (u64, u64, usize) {
        let pools = [&self.reads, &self.writes, &self.upkeep];
        let threads = pools.into_iter().map(Pool::threads).sum();
        (self.inline.get(), self.pooled.get(), threads)
    }

    /// Has the threads of a queue do the work.
    pub async fn pooled<T: Send + 'static>(
        &self,
        queue: WorkQueue,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.start(queue, work)?.await
    }

    /// The same, for a caller that awaits the answer itself.
    pub fn start<T: Send + 'static>(
        &self,
        queue: WorkQueue,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        self.pooled.add(1);
        match queue {
            WorkQueue::Read => self.reads.run(work),
            WorkQueue::Write => self.writes.run(work),
            WorkQueue::Upkeep => self.upkeep.run(work),
            WorkQueue::Apart => run_apart(work),
        }
    }

    /// Reads at once if nothing is to be waited for; else has the pool read.
    pub async fn read<A, T, J>(
        &self,
        mut of: A,
        at_once: impl FnOnce(&mut A) -> Attempt<T>,
        later: impl FnOnce(A) -> J,
    ) -> Result<T>
    where
        T: Send + 'static,
        J: FnOnce() -> Result<T> + Send + 'static,
    {
        consume_budget().await;
        match at_once(&mut of) {
            Err(Unready::WouldWait) => self.pooled(WorkQueue::Read, later(of)).await,
            Err(Unready::Failed(error)) => self.inline(Err(error)),
            Ok(answer) => self.inline(Ok(answer)),
        }
    }

    /// Begins a write at once if nothing is to be waited for, and waits for its sync if it has one; else has the pool
    /// write.
    pub async fn write<A, T, J>(
        &self,
        mut what: A,
        at_once: impl FnOnce(&Begin, &mut A) -> Attempt<T>,
        later: impl FnOnce(A) -> J,
    ) -> Result<T>
    where
        T: Send + 'static,
        J: FnOnce() -> Result<T> + Send + 'static,
    {
        consume_budget().await;
        let (begun, awaits_sync) = {
            let way = Begin::default();
            let begun = at_once(&way, &mut what);
            (begun, way.awaits_sync())
        };
        match begun {
            Err(Unready::WouldWait) => self.pooled(WorkQueue::Write, later(what)).await,
            Err(Unready::Failed(error)) => self.inline(Err(error)),
            Ok(answer) if awaits_sync => {
                self.synced().await?;
                self.inline(Ok(answer))
            }
            Ok(answer) => self.inline(Ok(answer)),
        }
    }

    fn inline<T>(&self, answer: Result<T>) -> Result<T> {
        self.inline.add(1);
        answer
    }

    /// Waits until all writes so far survive a power cut. The thread that syncs does it for all tasks that wait.
    pub async fn synced(&self) -> Result<()> {
        let (done, synced) = oneshot::channel();
        self.db().sync_then(move |outcome| {
            // The task that waited may be gone by now.
            let _ = done.send(outcome);
        });
        synced.await.unwrap_or(Err(Error::Closed))
    }
}
