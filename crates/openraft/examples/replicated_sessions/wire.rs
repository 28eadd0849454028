//! A network of nodes in one process: they call each other, unless they are cut off.

// Errors are openraft's, of the size that it gives them.
#![allow(clippy::result_large_err)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Raft, RaftNetwork, RaftNetworkFactory, RaftTypeConfig};

/// All nodes that can be reached.
pub struct Nodes<C: RaftTypeConfig>(Arc<Mutex<BTreeMap<u64, Raft<C>>>>);

impl<C: RaftTypeConfig> Default for Nodes<C> {
    fn default() -> Self {
        Nodes(Arc::default())
    }
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> Nodes<C> {
    pub fn connect(&self, id: u64, raft: &Raft<C>) {
        self.0.lock().unwrap().insert(id, raft.clone());
    }

    pub fn cut(&self, id: u64) {
        self.0.lock().unwrap().remove(&id);
    }

    /// For a node that is started.
    pub fn wire(&self) -> Wire<C> {
        Wire {
            nodes: Nodes(self.0.clone()),
            to: 0,
        }
    }
}

/// The way to a node.
pub struct Wire<C: RaftTypeConfig> {
    nodes: Nodes<C>,
    to: u64,
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> Wire<C> {
    fn peer<E: std::error::Error>(&self) -> Result<Raft<C>, Failed<E>> {
        let peer = self.nodes.0.lock().unwrap().get(&self.to).cloned();
        peer.ok_or_else(|| {
            RPCError::Unreachable(Unreachable::new(&std::io::Error::other("it is down")))
        })
    }

    fn failed<E: std::error::Error>(&self, error: RaftError<u64, E>) -> Failed<E> {
        RPCError::RemoteError(RemoteError::new(self.to, error))
    }
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetworkFactory<C> for Wire<C> {
    type Network = Wire<C>;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Wire<C> {
        Wire {
            to: target,
            ..self.nodes.wire()
        }
    }
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetwork<C> for Wire<C> {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = self.peer()?.append_entries(rpc).await;
        answer.map_err(|e| self.failed(e))
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<C>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        let answer = self.peer()?.install_snapshot(rpc).await;
        answer.map_err(|e| self.failed(e))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let answer = self.peer()?.vote(rpc).await;
        answer.map_err(|e| self.failed(e))
    }
}
