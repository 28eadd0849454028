//! How the log of a cluster comes to a later format (I10).
//!
//! ```text
//! every message ──> Formats                         what each node speaks
//! leader, each 250 ms: all members, learners too, speak more than the log ──> Format { to, members_at }, alone in its entry
//! apply: members are those of `members_at` still ──> the log is of format `to`; else nothing, and the leader asks again
//! ```
//!
//! Invariants:
//!
//! 1. No op of a later format than the log's is proposed: the leader has applied the entry that begins its format.
//! 2. No node becomes a member that does not speak the log's format, which is not raised while a member is added.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::Core;
use crate::calls::{self, Asked, Written};
use crate::machine::body::Body;
use crate::net::Peer;

/// Between two questions to a node that joins.
const PAUSE: Duration = Duration::from_millis(100);

impl Core {
    /// The newest format that a node speaks, if it has said so.
    pub(super) fn speaks(&self, node: u64) -> Option<u16> {
        match node == self.identity.node {
            true => Some(self.speaks),
            false => self.calls.formats().of(node),
        }
    }

    /// The members that have not said that they speak a format.
    fn silent_on(&self, format: u16) -> Vec<u64> {
        let ids = self.replica.members().into_iter().map(|member| member.id);
        ids.filter(|id| self.speaks(*id) < Some(format)).collect()
    }

    /// As the leader: has the log's format raised to the newest that all members speak.
    pub(super) async fn raise_format(&self) {
        // Members are read after this: a change in between makes the entry one without effect.
        let members_at = self.replica.members_at();
        let members = self.replica.members();
        let spoken = members.iter().map(|member| self.speaks(member.id)).min();
        let Some(to) = spoken.flatten() else { return };
        if to > self.replica.format() && self.replica.is_leading() {
            let op = self.op(Body::Format { to, members_at });
            self.replica.raise_format(op).await;
        }
    }

    /// Of a cluster of this node alone: its log is of the newest format from its first write on, or soon after it leads.
    pub(super) async fn begin_format(&self) {
        let until = Instant::now() + self.patience;
        let is_old = || self.replica.format() < self.speaks && self.replica.members().len() == 1;
        while is_old() && self.replica.failure().is_none() && Instant::now() < until {
            self.raise_format().await;
            if is_old() {
                self.replica.change(Duration::from_millis(20)).await;
            }
        }
    }

    /// As the leader: the answer to an op of a later format than the log's, which refuses it.
    pub(super) fn unspoken(&self, body: &Body) -> Option<Written> {
        let format = body.format();
        (format > self.replica.format()).then(|| Asked::NotSpoken {
            format,
            nodes: self.silent_on(format),
        })
    }

    /// Before an op goes to the leader: the reason why it does not, for an older one would not know it.
    pub(super) fn withheld(&self, leader: u64, body: &Body) -> Option<Written> {
        let format = body.format();
        // All members speak the log's.
        if format <= self.replica.format() {
            return None;
        }
        match self.speaks(leader) {
            Some(spoken) if spoken >= format => None,
            Some(_) => Some(Asked::NotSpoken {
                format,
                nodes: vec![leader],
            }),
            // It is about to be heard.
            None => Some(Asked::NotLeading),
        }
    }

    /// The newest format that a node speaks, by its answer.
    pub(super) async fn ask_format(
        self: &Arc<Core>,
        id: u64,
        addr: &str,
        within: Duration,
    ) -> Result<u16, String> {
        let until = Instant::now() + within;
        let to = Peer {
            node: id,
            addr: addr.to_owned(),
        };
        loop {
            let asked = self
                .calls
                .ask(&to, calls::STATUS, Bytes::new(), super::surveying::WITHIN);
            match (asked.await, self.calls.formats().of(id)) {
                (Ok(_), Some(format)) => return Ok(format),
                (Err(error), _) if Instant::now() >= until => {
                    return Err(format!("{addr} is not reached: {}", calls::text(&error)));
                }
                _ => sleep(PAUSE).await,
            }
        }
    }
}

#[cfg(test)]
mod tests;
