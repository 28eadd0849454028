//! openraft's calls over the node's network.
//!
//! Invariant: a call that failed is told as unreachable where nobody answered, so that openraft tries it again after a pause.

// Errors are openraft's, of the size that it gives them.
#![allow(clippy::result_large_err)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{
    Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed,
    StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, RaftNetwork, RaftNetworkFactory, Snapshot, Vote};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Types, snapshots};
use crate::calls::{self, Calls};
use crate::net::{NetError, Peer};

/// A peer that cannot be reached is tried again after this.
const PAUSE: Duration = Duration::from_millis(100);

/// The ways to all nodes.
#[derive(Clone)]
pub struct Wires {
    calls: Arc<Calls>,
}

impl Wires {
    pub fn new(calls: Arc<Calls>) -> Wires {
        Wires { calls }
    }
}

/// The way to one.
pub struct Wire {
    wires: Wires,
    peer: Peer,
}

impl RaftNetworkFactory<Types> for Wires {
    type Network = Wire;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Wire {
        Wire {
            wires: self.clone(),
            peer: Peer {
                node: target,
                addr: node.addr.clone(),
            },
        }
    }
}

type Failed = RPCError<u64, BasicNode, RaftError<u64>>;

/// Does what a call asks for, and encodes the answer.
pub async fn answer<Q, A, F>(body: Bytes, call: impl FnOnce(Q) -> F) -> Bytes
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, RaftError<u64>>>,
{
    match calls::decode::<Q>(&body) {
        Ok(question) => calls::encode(&call(question).await),
        // The asker cannot decode it either, and tries again.
        Err(_) => Bytes::new(),
    }
}

fn unreachable(error: NetError) -> Unreachable {
    Unreachable::new(&std::io::Error::other(calls::text(&error)))
}

impl Wire {
    async fn ask<A: DeserializeOwned>(
        &self,
        kind: u8,
        question: &impl Serialize,
        option: &RPCOption,
    ) -> Result<A, Failed> {
        let body = calls::encode(question);
        let asked = self
            .wires
            .calls
            .ask(&self.peer, kind, body, option.hard_ttl());
        let answer = asked.await.map_err(unreachable)?;
        let answer: Result<A, RaftError<u64>> =
            calls::decode(&answer).map_err(|e| RPCError::Network(NetworkError::new(&e)))?;
        answer.map_err(|e| RPCError::RemoteError(RemoteError::new(self.peer.node, e)))
    }
}

impl RaftNetwork<Types> for Wire {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed> {
        self.ask(calls::APPEND, &rpc, &option).await
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed> {
        self.ask(calls::VOTE, &rpc, &option).await
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        let text = "snapshots go as one stream";
        Err(NetworkError::new(&std::io::Error::other(text)).into())
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let sent = snapshots::send(&self.wires.calls, &self.peer, vote, snapshot);
        tokio::select! {
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = sent => sent.map_err(|e| StreamingError::Unreachable(Unreachable::new(&e))),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(PAUSE))
    }
}
