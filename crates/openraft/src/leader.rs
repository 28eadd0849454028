//! The leader's part of a node, put together: it draws moments while the node leads, gathers writes, and answers when a
//! linearizable read may be made, and at which moment.
//!
//! ```text
//! metrics ──> lead, quit       from the leader's own blank entry being applied, to the end of its leadership
//! write ────> Gather ────────> raft.client_write
//! read ─────> draw, tick if the moment is ahead, wait for the writes before, ReadIndex, applied ──> the moment
//! ```
//!
//! Invariant: one round of ReadIndex is under way, and all reads that arrive meanwhile share the next; each was asked for before its
//! round drew its moment.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use ebbtide::Clock;
use openraft::impls::OneshotResponder;
use openraft::{CommittedLeaderId, Raft, RaftTypeConfig, ServerState, TokioRuntime};
use tokio::sync::{mpsc, oneshot};

use crate::entry::{Answer, Applied, Entry, Op};
use crate::gather::{Gather, GatherError};
use crate::log_time::{Closed, LogTime};
use crate::machine::Machine;
use crate::outcome::outcome;
use crate::reader::Reader;

/// An error of openraft: one of `RaftError`.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// More reads than this wait for room in the queue.
const QUEUE: usize = 16_384;

type ReadAnswer = oneshot::Sender<Result<u64, GatherError<Cause>>>;

/// Writes and linearizable reads of a node that leads; see the file's head. Clones are the same. Where the node does not lead, all
/// of it is [`GatherError::NotLeading`], and the program asks the leader (`Raft::current_leader`).
pub struct Leader<M: Machine> {
    gather: Gather<M::Op, M::Answer, Cause>,
    reads: mpsc::Sender<ReadAnswer>,
    time: LogTime,
}

impl<M: Machine> Clone for Leader<M> {
    fn clone(&self) -> Self {
        Leader {
            gather: self.gather.clone(),
            reads: self.reads.clone(),
            time: self.time.clone(),
        }
    }
}

impl<M: Machine> Debug for Leader<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader")
            .field("is_leading", &self.time.is_leading())
            .finish_non_exhaustive()
    }
}

fn cause(error: impl Error + Send + Sync + 'static) -> Cause {
    Arc::new(error)
}

impl<M: Machine> Leader<M> {
    /// Starts its tasks on the runtime of the caller; they end with the node (`Raft::shutdown`) and the last clone. `clock` is the
    /// node's own.
    pub fn new<C>(raft: &Raft<C>, reader: Reader<C>, clock: Arc<dyn Clock>) -> Leader<M>
    where
        C: RaftTypeConfig<
                D = Entry<M::Op>,
                R = Applied<M::Answer>,
                AsyncRuntime = TokioRuntime,
                Responder = OneshotResponder<C>,
            >,
    {
        let time = LogTime::new();
        tokio::spawn(follow(raft.clone(), reader.clone(), time.clone()));
        let writing = raft.clone();
        let gather = Gather::new(time.clone(), clock.clone(), move |mut entry| {
            let raft = writing.clone();
            entry.format = reader.format();
            async move {
                let written = outcome(&raft, raft.client_write(entry)).await;
                let written = written.map_err(cause)?;
                written.map(|written| written.data).map_err(cause)
            }
        });
        let (reads, asked) = mpsc::channel(QUEUE);
        let rounds = Rounds {
            raft: raft.clone(),
            time: time.clone(),
            gather: gather.clone(),
            clock,
        };
        tokio::spawn(rounds.run(asked));
        Leader {
            gather,
            reads,
            time,
        }
    }

    /// Writes, and waits until it is applied: [`Gather::write`].
    ///
    /// # Errors
    /// See [`GatherError`].
    pub async fn write(
        &self,
        op: impl Into<Op<M::Op>>,
    ) -> Result<Answer<M::Answer>, GatherError<Cause>> {
        self.gather.write(op).await
    }

    /// The gathered writes, for ticks and entries of one op.
    pub fn gather(&self) -> &Gather<M::Op, M::Answer, Cause> {
        &self.gather
    }

    /// Waits until a linearizable read may be made by the node's [`Reader`], and returns its moment, in milliseconds since 1970:
    /// whatever was written before this call is there, and whatever has ended by then is gone for good.
    ///
    /// # Errors
    /// See [`GatherError`].
    pub async fn read(&self) -> Result<u64, GatherError<Cause>> {
        let (answer, answered) = oneshot::channel();
        self.reads
            .send(answer)
            .await
            .map_err(|_| GatherError::Ended)?;
        answered.await.unwrap_or(Err(GatherError::Ended))
    }

    /// [`LogTime::closed`] by the leader's time. What was applied when this returns is all that was written before it.
    #[must_use]
    pub fn closed(&self, wall_ms: u64) -> Option<Closed> {
        self.time.closed(wall_ms)
    }

    /// Whether the node leads, and its own blank entry is applied.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.time.is_leading()
    }
}

/// Tells the leader's time when a leadership begins and ends.
///
/// A node that is opened again may lead on, with the leader id that it had: no entry of it moves time to the `until` up to which it
/// may have answered before. So a leadership begins when all is applied that the log had when it was seen first, and at that `until`.
async fn follow<C: RaftTypeConfig>(raft: Raft<C>, reader: Reader<C>, time: LogTime) {
    let mut metrics = raft.metrics();
    drop(raft);
    let mut led = None;
    let mut seen = None;
    loop {
        let now = metrics.borrow_and_update().clone();
        let is_leader = now.state == ServerState::Leader && now.vote.is_committed();
        let leader = is_leader.then(|| CommittedLeaderId::from(now.vote));
        if led.is_some() && leader != led {
            led = None;
            time.quit();
        }
        if leader.is_some() && seen.as_ref().is_none_or(|(of, _)| *of != leader) {
            seen = Some((leader.clone(), now.last_log_index));
        }
        let moment = reader.moment();
        let applied = moment
            .applied
            .map(|applied| (applied.leader_id, applied.index));
        let is_there = |(of, last): &(Option<_>, Option<u64>)| {
            let applied = applied.as_ref();
            applied.is_some_and(|(by, index)| Some(by) == of.as_ref() && Some(*index) >= *last)
        };
        if leader.is_some() && led.is_none() && seen.as_ref().is_some_and(is_there) {
            led = leader;
            time.lead(moment.until_ms, moment.until_ms);
        }
        if metrics.changed().await.is_err() {
            return time.quit();
        }
    }
}

struct Rounds<C: RaftTypeConfig, T, A> {
    raft: Raft<C>,
    time: LogTime,
    gather: Gather<T, A, Cause>,
    clock: Arc<dyn Clock>,
}

impl<C, T, A> Rounds<C, T, A>
where
    C: RaftTypeConfig,
    T: serde::Serialize + Send + 'static,
    A: Send + 'static,
{
    async fn run(self, mut asked: mpsc::Receiver<ReadAnswer>) {
        while let Some(first) = asked.recv().await {
            let mut turn = vec![first];
            while let Ok(next) = asked.try_recv() {
                turn.push(next);
            }
            let moment = self.round().await;
            for answer in turn {
                let _ = answer.send(moment.clone());
            }
        }
    }

    async fn round(&self) -> Result<u64, GatherError<Cause>> {
        let drawn = self.time.draw_read(self.clock.wall());
        let read = drawn.map_err(|_| GatherError::NotLeading)?;
        if read.needs_tick {
            self.gather.tick().await?;
        }
        let cleared = self.time.cleared(&read).await;
        cleared.map_err(|_| GatherError::NotLeading)?;
        let index = self.raft.ensure_linearizable().await;
        index.map_err(|e| GatherError::Proposing(cause(e)))?;
        Ok(read.at_ms)
    }
}
