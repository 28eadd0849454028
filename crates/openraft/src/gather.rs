//! Gathers writes: one entry is under way, and all that arrive meanwhile go into the next one.
//!
//! ```text
//! write ──┐
//! write ──┼──> queue ──> one task: draw, propose, wait ──> answers      openraft appends each entry alone and waits for its sync
//! write ──┘      │                                                     of disk: an entry for each write is 40 times slower by 64
//!                └ up to 1 024 ops, 1 MiB                               clients
//! ```
//!
//! Invariants:
//!
//! 1. At most one entry is under way, so entries are in the log in the order of their stamps.
//! 2. An entry's ticket is closed by the task, when the entry is applied: not by a client, who may have given up.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use ebbtide::Clock;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::entry::{Answer, Applied, Entry, FORMAT, Op};
use crate::log_time::{LogTime, NotLeading};

/// The most ops of an entry.
pub const MOST_OPS: usize = 1_024;
/// The most bytes of an entry's ops, encoded; one op may be larger.
pub const MOST_BYTES: usize = 1 << 20;
/// More writes than this wait for room in the queue.
const QUEUE: usize = 16 * MOST_OPS;

/// The reason why a write has no answer. It may still land, unless the node did not lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatherError<E> {
    /// The node does not lead: it was not proposed.
    NotLeading,
    /// The answer of `propose`.
    Proposing(E),
    /// The task has ended: the runtime is shutting down, or `propose` panicked.
    Ended,
}

impl<E: std::fmt::Display> std::fmt::Display for GatherError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GatherError::NotLeading => write!(f, "{NotLeading}"),
            GatherError::Proposing(error) => error.fmt(f),
            GatherError::Ended => f.write_str("what gathers writes has ended"),
        }
    }
}

impl<E: Debug + std::fmt::Display> std::error::Error for GatherError<E> {}

struct Waiting<T, A, E> {
    op: Option<Op<T>>,
    bytes: usize,
    is_alone: bool,
    answer: oneshot::Sender<Result<Outcome<A>, GatherError<E>>>,
}

/// Where and when the entry took effect, and the op's answer.
struct Outcome<A> {
    index: u64,
    at_ms: u64,
    answer: Option<Answer<A>>,
}

/// Gathers the writes of all tasks. Clones are the same.
pub struct Gather<T, A, E> {
    queue: mpsc::Sender<Waiting<T, A, E>>,
}

impl<T, A, E> Clone for Gather<T, A, E> {
    fn clone(&self) -> Self {
        Gather {
            queue: self.queue.clone(),
        }
    }
}

impl<T, A, E> Debug for Gather<T, A, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<T, A, E> Gather<T, A, E>
where
    T: Serialize + Send + 'static,
    A: Send + 'static,
    E: Clone + Send + 'static,
{
    /// Starts the task that proposes, which ends with the last clone. `propose` is to answer when the entry is applied: with
    /// openraft `raft.client_write(entry)`, whose answer's `data` is this one's.
    pub fn new<P, F>(time: LogTime, clock: Arc<dyn Clock>, propose: P) -> Gather<T, A, E>
    where
        P: Fn(Entry<T>) -> F + Send + 'static,
        F: Future<Output = Result<Applied<A>, E>> + Send + 'static,
    {
        let (queue, arrived) = mpsc::channel(QUEUE);
        tokio::spawn(run(arrived, time, clock, propose));
        Gather { queue }
    }

    /// Writes, in an entry with others, and waits until it is applied. A caller who gives up does not undo it.
    ///
    /// # Errors
    /// See [`GatherError`].
    pub async fn write(&self, op: impl Into<Op<T>>) -> Result<Answer<A>, GatherError<E>> {
        let outcome = self.ask(Some(op.into()), false).await?;
        outcome.answer.ok_or(GatherError::Ended)
    }

    /// The same in an entry of its own, as [`Step::commands`](crate::Step::commands) need it.
    ///
    /// # Errors
    /// See [`GatherError`].
    pub async fn write_alone(&self, op: impl Into<Op<T>>) -> Result<Answer<A>, GatherError<E>> {
        let outcome = self.ask(Some(op.into()), true).await?;
        outcome.answer.ok_or(GatherError::Ended)
    }

    /// Moves time, by an entry with others' ops or without any: for reads whose moment is ahead, and, where items will expire
    /// and nobody writes, for purges (every eighth of `reclaim_within`). Returns the index and the time of the entry, in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// See [`GatherError`].
    pub async fn tick(&self) -> Result<(u64, u64), GatherError<E>> {
        let outcome = self.ask(None, false).await?;
        Ok((outcome.index, outcome.at_ms))
    }

    async fn ask(&self, op: Option<Op<T>>, is_alone: bool) -> Result<Outcome<A>, GatherError<E>> {
        let bytes = op.as_ref().map_or(0, |op| {
            postcard::experimental::serialized_size(op).unwrap_or(MOST_BYTES)
        });
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            op,
            bytes,
            is_alone,
            answer,
        };
        self.queue
            .send(waiting)
            .await
            .map_err(|_| GatherError::Ended)?;
        answered.await.unwrap_or(Err(GatherError::Ended))
    }
}

/// Those of one entry: the one that was left over, or the first to come, and all that have arrived and fit.
async fn next<T, A, E>(
    arrived: &mut mpsc::Receiver<Waiting<T, A, E>>,
    left_over: &mut Option<Waiting<T, A, E>>,
) -> Option<Vec<Waiting<T, A, E>>> {
    let first = match left_over.take() {
        Some(first) => first,
        None => arrived.recv().await?,
    };
    let (mut bytes, is_alone) = (first.bytes, first.is_alone);
    let mut turn = vec![first];
    while !is_alone && turn.len() < MOST_OPS {
        let Ok(waiting) = arrived.try_recv() else {
            break;
        };
        bytes += waiting.bytes;
        if waiting.is_alone || bytes > MOST_BYTES {
            *left_over = Some(waiting);
            break;
        }
        turn.push(waiting);
    }
    Some(turn)
}

async fn run<T, A, E, P, F>(
    mut arrived: mpsc::Receiver<Waiting<T, A, E>>,
    time: LogTime,
    clock: Arc<dyn Clock>,
    propose: P,
) where
    E: Clone,
    P: Fn(Entry<T>) -> F,
    F: Future<Output = Result<Applied<A>, E>>,
{
    let mut left_over = None;
    while let Some(mut turn) = next(&mut arrived, &mut left_over).await {
        let Ok(ticket) = time.draw_write(clock.wall()) else {
            turn.into_iter().for_each(|waiting| {
                let _ = waiting.answer.send(Err(GatherError::NotLeading));
            });
            continue;
        };
        let entry = Entry {
            format: FORMAT,
            stamp_ms: ticket.stamp_ms,
            until_ms: ticket.until_ms,
            ops: turn
                .iter_mut()
                .filter_map(|waiting| waiting.op.take())
                .collect(),
        };
        let ticks = turn.iter().map(|waiting| waiting.bytes == 0);
        let ticks: Vec<bool> = ticks.collect();
        match propose(entry).await {
            Ok(applied) => {
                ticket.applied();
                let (index, at_ms) = (applied.index, applied.at_ms);
                let mut answers = applied.answers.into_iter();
                for (waiting, is_tick) in turn.into_iter().zip(ticks) {
                    let answer = if is_tick { None } else { answers.next() };
                    let _ = waiting.answer.send(Ok(Outcome {
                        index,
                        at_ms,
                        answer,
                    }));
                }
            }
            // The ticket stays open: the entry may still land, as long as the leadership lasts.
            Err(error) => turn.into_iter().for_each(|waiting| {
                let _ = waiting
                    .answer
                    .send(Err(GatherError::Proposing(error.clone())));
            }),
        }
    }
}
