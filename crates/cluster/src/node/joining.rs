//! How a node takes its place when it is opened: it begins a cluster, joins one, or tells the others where it is now.
//!
//! ```text
//! new folder, no contact ──> a cluster of its own
//! new folder, contact    ──> Add, or Join with a token ──> a learner ── caught up ──> votes: open returns
//! a member's folder      ──> goes on; Move, where its address is another one
//! ```
//!
//! Invariant: a node that has learned that it was taken out asks nobody for a place.

use std::sync::Arc;
use std::time::Duration;

use super::tokens::JoinToken;
use super::{Core, Node, NodeOptions};
use crate::calls::{self, Change, Changed};
use crate::face::Error;
use crate::net::Peer;

impl Node {
    /// Begins a cluster, or joins one, or tells the others where this node is now.
    pub(super) async fn take_place(&self, options: &NodeOptions) -> Result<(), Error> {
        let contact = options.join.as_deref();
        let core = &self.shared.0;
        if core.standing.is_removed() {
            return Ok(());
        }
        if core.identity.is_first && contact.is_none() {
            core.replica.begin(&core.addr).await?;
            core.begin_format().await;
        }
        if core.replica.is_member_at(&core.addr) {
            return Ok(());
        }
        match contact {
            Some(contact) if !core.replica.is_voter() => {
                core.join(contact, options.join_token.clone()).await
            }
            // It has moved, or was on its way in: the others hear it when they can.
            _ => {
                core.move_in();
                Ok(())
            }
        }
    }
}

impl Core {
    /// Asks a node of a cluster to be let in.
    async fn join(&self, contact: &str, token: Option<JoinToken>) -> Result<(), Error> {
        let contact = Peer {
            node: 0,
            addr: contact.to_owned(),
        };
        let (id, addr) = (self.identity.node, self.addr.clone());
        let within_ms = self.join_within.as_millis() as u64;
        let change = match token {
            None => Change::Add {
                id,
                addr,
                within_ms,
            },
            Some(token) => Change::Join {
                id,
                addr,
                within_ms,
                token,
            },
        };
        let deadline = tokio::time::Instant::now() + self.join_within;
        let attempt = |left| {
            // A learner hears who leads; nobody else does.
            let leader = self.replica.leader().unwrap_or_else(|| contact.clone());
            let question = calls::encode(&change);
            async move {
                let calls = &self.calls;
                calls
                    .ask_leader::<Result<(), String>>(&leader, calls::CHANGE, question, left)
                    .await
            }
        };
        let asked = self.ask_leader(self.join_within, attempt).await?;
        changed(calls::Asked::Done(asked))?;
        // The leader knows it; this node hears it with the entry.
        while !self.replica.is_member_at(&self.addr) {
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Behind);
            }
            self.replica.change(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Tells the leader, once there is one, that this member is here; if it was taken out meanwhile, it stays out.
    fn move_in(self: &Arc<Core>) {
        let core = Arc::downgrade(self);
        let moving = tokio::spawn(async move {
            loop {
                let Some(core) = core.upgrade() else { return };
                let change = Change::Move {
                    id: core.identity.node,
                    addr: core.addr.clone(),
                    within_ms: core.join_within.as_millis() as u64,
                };
                if core.change(change, core.join_within).await.is_ok() {
                    return;
                }
                let pause = core.replica.lease();
                drop(core);
                tokio::time::sleep(pause).await;
            }
        });
        self.tasks().push(moving);
    }
}

pub(super) fn changed(answer: Changed) -> Result<(), Error> {
    match answer {
        calls::Asked::Done(Ok(())) => Ok(()),
        calls::Asked::Done(Err(why)) => Err(Error::Members(why)),
        calls::Asked::NotLeading => Err(Error::NoLeader),
        calls::Asked::Lost(why) => Err(Error::Unknown(why)),
        calls::Asked::NoRoom => Err(Error::NoRoom),
        calls::Asked::Full(full) => Err(full.into()),
        calls::Asked::TooManyCommands(container) => Err(calls::too_many(container)),
        calls::Asked::NotSpoken { format, nodes } => Err(Error::NotSpoken { format, nodes }),
    }
}
