//! Sessions on three replicas: a login is there for whoever asks after it, and gone for everybody in the same millisecond, also
//! when the leader is lost in between.
//!
//! The replicas are in one process and call each other; a program has a network there.
//!
//! ```sh
//! cargo run --package ebbtide-openraft --example replicated_sessions
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::{ContainerOptions, SystemClock};
use ebbtide_openraft::{
    Applied, Entry, Leader, LogStore, Machine, Reader, SnapshotData, StateOptions, StateStore,
    Step, StepError,
};
use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, RaftNetwork, RaftNetworkFactory};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Op {
    Login {
        session: String,
        user: String,
        millis: u64,
    },
    Logout {
        session: String,
    },
}

struct Sessions;

impl Machine for Sessions {
    type Op = Op;
    type Answer = bool;

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![("sessions", ContainerOptions::new())]
    }

    fn apply(&self, op: &Op, step: &mut Step<'_>) -> Result<bool, StepError> {
        match op {
            Op::Login {
                session,
                user,
                millis,
            } => {
                step.put("sessions", session, user, Duration::from_millis(*millis))?;
                Ok(true)
            }
            Op::Logout { session } => {
                let was_there = step.get("sessions", session)?.is_some();
                step.delete("sessions", session)?;
                Ok(was_there)
            }
        }
    }
}

openraft::declare_raft_types!(
    Program:
        D = Entry<Op>,
        R = Applied<bool>,
        SnapshotData = SnapshotData,
);

/// All nodes that can be reached.
type Nodes = Arc<Mutex<BTreeMap<u64, Raft<Program>>>>;

struct Wire(Nodes, u64);

impl RaftNetworkFactory<Program> for Wire {
    type Network = Wire;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Wire {
        Wire(self.0.clone(), target)
    }
}

type Failed<E> = RPCError<u64, BasicNode, RaftError<u64, E>>;

impl Wire {
    fn peer<E: std::error::Error>(&self) -> Result<Raft<Program>, Failed<E>> {
        let peer = self.0.lock().unwrap().get(&self.1).cloned();
        peer.ok_or_else(|| {
            RPCError::Unreachable(Unreachable::new(&std::io::Error::other("it is down")))
        })
    }

    fn failed<E: std::error::Error>(&self, error: RaftError<u64, E>) -> Failed<E> {
        RPCError::RemoteError(RemoteError::new(self.1, error))
    }
}

impl RaftNetwork<Program> for Wire {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Program>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.peer()?
            .append_entries(rpc)
            .await
            .map_err(|e| self.failed(e))
    }

    async fn install_snapshot(
        &mut self,
        rpc: InstallSnapshotRequest<Program>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failed<InstallSnapshotError>> {
        self.peer()?
            .install_snapshot(rpc)
            .await
            .map_err(|e| self.failed(e))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.peer()?.vote(rpc).await.map_err(|e| self.failed(e))
    }
}

struct Node {
    id: u64,
    raft: Raft<Program>,
    leader: Leader<Sessions>,
    reader: Reader<Program>,
}

async fn start(id: u64, folder: &Path, nodes: &Nodes) -> Result<Node, Box<dyn std::error::Error>> {
    let folder = folder.join(format!("node-{id}"));
    let log = LogStore::<Program>::options().open(folder.join("log"))?;
    let state =
        StateStore::<Program, _>::open(folder.join("group-0"), Sessions, StateOptions::default())?;
    let log = LogStore::new(&log, "group-0")?.behind(state.durable());
    let reader = state.reader();
    let raft = Raft::new(
        id,
        Arc::new(Config::default().validate()?),
        Wire(nodes.clone(), 0),
        log,
        state,
    )
    .await?;
    nodes.lock().unwrap().insert(id, raft.clone());
    let leader = Leader::new(&raft, reader.clone(), Arc::new(SystemClock));
    Ok(Node {
        id,
        raft,
        leader,
        reader,
    })
}

async fn leader(nodes: &[Node]) -> &Node {
    loop {
        if let Some(node) = nodes.iter().find(|node| node.leader.is_leading()) {
            return node;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn run(folder: &Path) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let reachable = Nodes::default();
    let mut nodes = vec![];
    for id in 0..3 {
        nodes.push(start(id, folder, &reachable).await?);
    }
    nodes[0]
        .raft
        .initialize(BTreeMap::from(
            [0, 1, 2].map(|id| (id, BasicNode::default())),
        ))
        .await?;

    let mut told = vec![];
    let login = |session: &str, millis| Op::Login {
        session: session.into(),
        user: "ada".into(),
        millis,
    };
    let first = leader(&nodes).await;
    first.leader.write(login("s-1", 3_600_000)).await?;
    let short = first.leader.write(login("s-2", 5_000)).await?;
    let at = first.leader.read().await?;
    told.push(format!(
        "s-2 is there: {}",
        first.reader.get("sessions", "s-2", at)?.item.is_some()
    ));

    let lost = first.id;
    reachable.lock().unwrap().remove(&lost);
    first.raft.shutdown().await?;
    nodes.retain(|node| node.id != lost);
    let second = leader(&nodes).await;
    let shown = |key, at| {
        second
            .reader
            .get("sessions", key, at)
            .map(|shown| shown.item.is_some())
    };
    let at = second.leader.read().await?;
    told.push(format!(
        "after the leader is lost, s-1 is there: {}",
        shown("s-1", at)?
    ));
    let ends = short.at_ms + 5_000;
    while second.leader.read().await? < ends {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    told.push(format!(
        "five seconds later, s-2 is there: {}",
        shown("s-2", ends)?
    ));
    let out = second
        .leader
        .write(Op::Logout {
            session: "s-1".into(),
        })
        .await?;
    told.push(format!("logged out of s-1: {}", out.outcome?));
    Ok(told)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    run(folder.path())
        .await?
        .iter()
        .for_each(|line| println!("{line}"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_its_leader_and_ends_on_time() {
    let folder = tempfile::tempdir().unwrap();
    let told = run(folder.path()).await.unwrap();
    assert_eq!(
        told,
        [
            "s-2 is there: true",
            "after the leader is lost, s-1 is there: true",
            "five seconds later, s-2 is there: false",
            "logged out of s-1: true",
        ]
    );
}
