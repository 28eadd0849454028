//! Sessions on three replicas: a login is there for whoever asks after it, and gone for everybody in the same millisecond, also
//! when the leader is lost in between.
//!
//! The replicas are in one process and call each other (wire.rs); a program has a network there.
//!
//! ```sh
//! cargo run --package ebbtide-openraft --example replicated_sessions
//! ```

mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::{ContainerOptions, SystemClock};
use ebbtide_openraft::{
    Applied, Entry, Leader, LogStore, Machine, Reader, SnapshotData, StateOptions, StateStore,
    Step, StepError,
};
use openraft::{BasicNode, Config, Raft};
use serde::{Deserialize, Serialize};
use wire::Nodes;

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Op {
    Login(String, String, Duration),
    Logout(String),
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
            Op::Login(session, user, life) => {
                step.put("sessions", session, user, *life)?;
                Ok(true)
            }
            Op::Logout(session) => {
                let was_there = step.get("sessions", session)?.is_some();
                step.delete("sessions", session)?;
                Ok(was_there)
            }
        }
    }
}

openraft::declare_raft_types!(
    Program: D = Entry<Op>, R = Applied<bool>, SnapshotData = SnapshotData,
);

type Any<T> = Result<T, Box<dyn std::error::Error>>;

struct Node {
    id: u64,
    raft: Raft<Program>,
    leader: Leader<Sessions>,
    reader: Reader<Program>,
}

async fn start(id: u64, folder: &Path, nodes: &Nodes<Program>) -> Any<Node> {
    let folder = folder.join(format!("node-{id}"));
    let log = LogStore::<Program>::options().open(folder.join("log"))?;
    let state = StateStore::open(folder.join("group-0"), Sessions, StateOptions::default())?;
    let log = LogStore::new(&log, "group-0")?.behind(state.durable());
    let reader = state.reader();
    let config = Arc::new(Config::default().validate()?);
    let raft = Raft::new(id, config, nodes.wire(), log, state).await?;
    nodes.connect(id, &raft);
    let leader = Leader::new(&raft, reader.clone(), Arc::new(SystemClock));
    let node = Node {
        id,
        raft,
        leader,
        reader,
    };
    Ok(node)
}

async fn leader(nodes: &[Node]) -> &Node {
    loop {
        if let Some(node) = nodes.iter().find(|node| node.leader.is_leading()) {
            return node;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Node {
    /// Whether a session is there now: nothing older is answered, wherever it was written.
    async fn has(&self, session: &str) -> Any<bool> {
        let at = self.leader.read().await?;
        let shown = self.reader.get("sessions", session, at)?;
        Ok(shown.item.is_some())
    }
}

async fn run(folder: &Path) -> Any<Vec<String>> {
    let (reachable, mut nodes, mut told) = (Nodes::default(), vec![], vec![]);
    for id in 0..3 {
        nodes.push(start(id, folder, &reachable).await?);
    }
    let members = BTreeMap::from([0, 1, 2].map(|id| (id, BasicNode::default())));
    nodes[0].raft.initialize(members).await?;

    let first = leader(&nodes).await;
    let login = |session: &str, life| Op::Login(session.into(), "ada".into(), life);
    let five_seconds = Duration::from_secs(5);
    first.leader.write(login("s-1", 100 * five_seconds)).await?;
    let short = first.leader.write(login("s-2", five_seconds)).await?;
    told.push(format!("s-2 is there: {}", first.has("s-2").await?));

    let lost = first.id;
    reachable.cut(lost);
    first.raft.shutdown().await?;
    nodes.retain(|node| node.id != lost);
    let second = leader(&nodes).await;
    let there = second.has("s-1").await?;
    told.push(format!("after the leader is lost, s-1 is there: {there}"));

    while second.leader.read().await? < short.at_ms + 5_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let there = second.has("s-2").await?;
    told.push(format!("five seconds later, s-2 is there: {there}"));
    let out = second.leader.write(Op::Logout("s-1".into())).await?;
    told.push(format!("logged out of s-1: {}", out.outcome?));
    Ok(told)
}

#[tokio::main]
async fn main() -> Any<()> {
    let folder = tempfile::tempdir()?;
    let told = run(folder.path()).await?;
    told.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests;
