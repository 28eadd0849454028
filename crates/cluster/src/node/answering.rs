//! Requests of other nodes.
//!
//! Invariant: it keeps no node open. Once the node is closed, answers are empty, which no asker can decode.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::Core;
use crate::calls::{self, Asked, Change, Changed, ClosedAt, WriteQuestion, Written};
use crate::face::{Error, Told};
use crate::net::{From, Handler};

/// See the file's head.
pub struct Answering(Weak<Core>);

impl Answering {
    pub fn of(core: &Arc<Core>) -> Answering {
        Answering(Arc::downgrade(core))
    }
}

impl Handler for Answering {
    async fn request(&self, from: From, kind: u8, body: Bytes) -> Bytes {
        let Some(core) = self.0.upgrade() else {
            return Bytes::new();
        };
        if kind == calls::CLUSTER {
            return calls::encode(&(core.identity.cluster, core.replica.format()));
        }
        if from.cluster != core.identity.cluster {
            return Bytes::new();
        }
        core.calls.heard(&from);
        match kind {
            calls::WRITE => calls::encode(&core.written(&body).await),
            calls::READ => calls::encode(&core.read_here().await),
            calls::CLOSED => {
                if let Ok(closed) = calls::decode::<ClosedAt>(&body) {
                    core.heard_closed(closed);
                }
                calls::encode(&core.rooms.is_short())
            }
            calls::DIGEST => match calls::decode::<u64>(&body) {
                Ok(index) => calls::encode(&core.checks.found(index)),
                Err(_) => Bytes::new(),
            },
            calls::CHECKED => {
                if let Ok(checked) = calls::decode(&body) {
                    core.heard_checked(checked);
                }
                Bytes::new()
            }
            calls::STANDING => calls::encode(&core.replica.removed_at(from.node)),
            calls::STATUS => calls::encode(&Told::of(core.status())),
            calls::FIGURES => {
                let figures = core.figures().await;
                figures.map_or(Bytes::new(), |figures| calls::encode(&figures))
            }
            calls::CHANGE => calls::encode(&core.changed(from.node, &body).await),
            // openraft would take an append that fails for the node's end.
            calls::APPEND if core.rooms.is_out() => core.replica.put_off(body).await,
            _ => core.replica.call(kind, body).await,
        }
    }

    async fn stream(
        &self,
        from: From,
        kind: u8,
        head: Bytes,
        body: impl AsyncRead + Unpin + Send,
    ) -> Bytes {
        match self.0.upgrade() {
            Some(core) if from.cluster == core.identity.cluster && kind == calls::SNAPSHOT => {
                core.calls.heard(&from);
                if core.rooms.is_short() {
                    return Bytes::new();
                }
                core.replica.take_snapshot(head, body).await
            }
            _ => Bytes::new(),
        }
    }
}

impl Core {
    async fn written(&self, body: &[u8]) -> Written {
        match calls::decode::<WriteQuestion>(body) {
            Ok(op) => self.write_here(op).await,
            Err(error) => Asked::Lost(error.to_string()),
        }
    }

    async fn changed(self: &Arc<Core>, from: u64, body: &[u8]) -> Changed {
        let change = match calls::decode::<Change>(body) {
            Ok(change) => change,
            Err(error) => return Asked::Lost(error.to_string()),
        };
        match change {
            Change::Elect => {
                self.replica.elect().await;
                Asked::Done(Ok(()))
            }
            // A node that joins knows no leader: this node asks for it.
            Change::Add { id, within_ms, .. } | Change::Join { id, within_ms, .. }
                if id == from && !self.replica.is_leading() =>
            {
                if self.replica.members().iter().any(|member| member.id == id) {
                    return Asked::NotLeading;
                }
                let within = Duration::from_millis(within_ms).min(self.join_within);
                match self.change(change, within).await {
                    Ok(()) => Asked::Done(Ok(())),
                    Err(Error::Members(why)) => Asked::Done(Err(why)),
                    // It never knows a leader again.
                    Err(Error::Removed { node }) => Asked::Done(Err(format!(
                        "node {node}, which was asked, was taken out of the cluster: ask another one"
                    ))),
                    Err(Error::NoLeader) => Asked::NotLeading,
                    Err(error) => Asked::Lost(error.to_string()),
                }
            }
            change => self.change_here(change).await,
        }
    }
}
