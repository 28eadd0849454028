//! The figures of a node about what it does, for which the others may ask.
//!
//! Invariant: counts only rise while the node is open. Estimates are of its own state, and differ between replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use ebbtide::Clock;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::checking::peer;
use super::surveying::WITHIN;
use super::{Core, Node};
use crate::calls;

/// The ends that are estimated.
const SOON: Duration = Duration::from_secs(10);

/// The figures of a node; counts are since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// The term of the last election that it knows of.
    pub term: u64,
    /// The node's own time, for rates.
    pub uptime_ms: u64,
    /// Ops that its callers had written.
    pub writes: u64,
    /// Reads of its callers; a snapshot is one.
    pub reads: u64,
    /// The time of what it has applied, in milliseconds since 1970.
    pub time_ms: u64,
    /// Items that end within ten seconds.
    pub ends: u64,
    /// Bytes of its state on disk.
    pub disk_bytes: u64,
    /// Live items of its state.
    pub live_items: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// By how much ended items have missed the time by which they are off its disk.
    pub overdue_ms: u64,
}

/// The calls of a node's own callers that had an answer.
#[derive(Default)]
pub(super) struct Counts {
    writes: AtomicU64,
    reads: AtomicU64,
}

impl Counts {
    pub(super) fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Node {
    /// The figures of all members that answer within a second, by their ids.
    pub(crate) async fn figures(&self) -> HashMap<u64, Figures> {
        let mut asking = JoinSet::new();
        for member in self.members() {
            let core = self.shared.0.clone();
            asking.spawn(async move {
                if member.id == core.identity.node {
                    return Some((member.id, core.figures().await?));
                }
                let (nothing, to) = (Bytes::new(), peer(&member));
                let told = core.calls.ask(&to, calls::FIGURES, nothing, WITHIN).await;
                let figures = calls::decode(&told.ok()?).ok()?;
                Some((member.id, figures))
            });
        }
        asking.join_all().await.into_iter().flatten().collect()
    }
}

impl Core {
    /// None: the node is closing.
    pub(super) async fn figures(self: &Arc<Core>) -> Option<Figures> {
        let core = self.clone();
        tokio::task::spawn_blocking(move || core.count()).await.ok()
    }

    fn count(&self) -> Figures {
        let stats = self.replica.stats();
        Figures {
            term: self.replica.term(),
            uptime_ms: self.clock.uptime(),
            writes: self.counts.writes.load(Ordering::Relaxed),
            reads: self.counts.reads.load(Ordering::Relaxed),
            time_ms: self.replica.place().time_ms,
            ends: self.ends_soon(),
            disk_bytes: stats.disk_bytes,
            live_items: stats.live_items,
            live_bytes: stats.live_bytes,
            overdue_ms: millis(stats.overdue),
        }
    }

    /// Of what callers have stored. The curve's buckets of the next seconds are seconds wide at most.
    fn ends_soon(&self) -> u64 {
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.wall());
        let containers = self.replica.containers().into_iter();
        let containers = containers.filter_map(|name| self.replica.container(&name));
        let due = containers.flat_map(|container| container.due());
        let soon = due.filter(|due| due.until > now && due.until <= now + SOON);
        soon.map(|due| due.items).sum()
    }
}
