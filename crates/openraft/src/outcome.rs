//! Waits for what openraft answers to a proposal.
//!
//! ```text
//! proposed at 7 ──> leadership lost ──> 7 is truncated: an error       7 is applied: an answer
//!                                       a snapshot up to 9 comes:      openraft 0.9 keeps the asker of 7, and never answers
//! ```
//!
//! Invariant: a proposal has no outcome while its entry may still be applied. Once as much is applied as the log had after the
//! proposal, the entry is applied or is none.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use openraft::{Raft, RaftTypeConfig, TokioRuntime};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

/// Most answers come within this time.
const USUAL: Duration = Duration::from_millis(500);

/// The place of an entry that was proposed was taken by a snapshot: it was done, or never will be.
#[derive(Debug)]
pub(crate) struct Overtaken;

impl std::fmt::Display for Overtaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a snapshot came before the answer: it was done, or never will be")
    }
}

impl std::error::Error for Overtaken {}

/// `proposing` sends one entry to the core when it is polled first, and answers when that is applied.
pub(crate) async fn outcome<C, T>(
    raft: &Raft<C>,
    proposing: impl Future<Output = T>,
) -> Result<T, Overtaken>
where
    C: RaftTypeConfig<AsyncRuntime = TokioRuntime>,
{
    let mut proposing = pin!(proposing);
    tokio::select! {
        biased;
        answer = &mut proposing => return Ok(answer),
        () = overtaken(raft) => {}
    }
    // The core tells of what is applied after it has answered.
    let answer = timeout(Duration::ZERO, unconstrained(proposing)).await;
    answer.map_err(|_| Overtaken)
}

/// Until all is applied that the log had some time after the proposal.
async fn overtaken<C>(raft: &Raft<C>)
where
    C: RaftTypeConfig<AsyncRuntime = TokioRuntime>,
{
    sleep(USUAL).await;
    let mut metrics = raft.metrics();
    // The core takes one message after the other: it has the proposal. It tells its metrics after each round, changed or not, and at
    // least with each heartbeat; those that come after this know of the entry.
    let has_it = raft.with_raft_state(|_| ()).await;
    metrics.borrow_and_update();
    if has_it.is_err() || metrics.changed().await.is_err() {
        return;
    }
    let last = metrics.borrow_and_update().last_log_index;
    let is_there = |metrics: &openraft::RaftMetrics<C::NodeId, C::Node>| {
        metrics.last_applied.as_ref().map(|applied| applied.index) >= last
    };
    let _ = metrics.wait_for(is_there).await;
}
