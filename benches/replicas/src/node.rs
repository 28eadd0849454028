//! A node: a process with a log, a state, and two ports.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ebbtide::{Database, SystemClock};
use ebbtide_openraft::{Leader, LogStore, Reader, StateOptions, StateStore};
use openraft::{BasicNode, Config, Raft};
use tokio::net::TcpListener;

use crate::Result;
use crate::store::{Answer, Ask, ITEMS, Program, Puts, Status};
use crate::wire::{self, Connection, Network};

#[derive(Clone)]
struct Node {
    leader: Leader<Puts>,
    reader: Reader<Program>,
    log: Database,
    raft_bytes: Arc<AtomicU64>,
}

/// Heartbeats and elections as etcd has them by default.
fn config() -> Result<Arc<Config>> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 1_000,
        election_timeout_max: 2_000,
        ..Config::default()
    };
    Ok(Arc::new(config.validate()?))
}

/// Runs until the process is killed. Node 0 begins the cluster where there is none.
pub async fn run(
    id: u64,
    folder: &Path,
    peers: Vec<SocketAddr>,
    clients: SocketAddr,
    reclaim_within: Duration,
) -> Result<()> {
    let peers: BTreeMap<u64, SocketAddr> = (0..).zip(peers).collect();
    let db = LogStore::<Program>::options().open(folder.join("log"))?;
    let options = StateOptions {
        reclaim_within,
        ..StateOptions::default()
    };
    let state = StateStore::open(folder.join("group-0"), Puts, options)?;
    let log = LogStore::new(&db, "group-0")?.behind(state.durable());
    let reader = state.reader();
    let raft_bytes = Arc::new(AtomicU64::new(0));
    let network = Network::new(&peers, raft_bytes.clone());
    let raft = Raft::new(id, config()?, network, log, state).await?;
    let listener = TcpListener::bind(peers[&id]).await?;
    tokio::spawn(wire::serve(listener, raft.clone(), raft_bytes.clone()));
    if id == 0 && !raft.is_initialized().await? {
        let members = peers.keys().map(|id| (*id, BasicNode::default()));
        raft.initialize(members.collect::<BTreeMap<_, _>>()).await?;
    }
    let node = Node {
        leader: Leader::new(&raft, reader.clone(), Arc::new(SystemClock)),
        reader,
        log: db,
        raft_bytes,
    };
    tokio::spawn(tick(node.clone(), reclaim_within / 8));
    let listener = TcpListener::bind(clients).await?;
    loop {
        let connection = Connection::new(listener.accept().await?.0, Arc::default())?;
        tokio::spawn(serve(connection, node.clone()));
    }
}

async fn serve(mut connection: Connection, node: Node) -> io::Result<()> {
    loop {
        let answer = match connection.read().await? {
            Ask::Put(puts) => match node.leader.write(puts).await {
                Ok(_) => Answer::Done,
                Err(error) => Answer::Failed(error.to_string()),
            },
            Ask::Get(key) => get(&node, key)
                .await
                .map_or_else(|e| Answer::Failed(e.to_string()), Answer::Value),
            Ask::Status => Answer::Status(Status {
                leads: node.leader.is_leading(),
                index: node.applied(),
                syncs: node.log.stats().syncs,
                raft_bytes: node.raft_bytes.load(Relaxed),
            }),
        };
        connection.write(&answer).await?;
    }
}

async fn get(node: &Node, key: u64) -> Result<Option<Vec<u8>>> {
    let at = node.leader.read().await?;
    let shown = node.reader.get(ITEMS, key.to_be_bytes(), at)?;
    Ok(shown.item.map(|item| item.value().to_vec()))
}

/// Where nobody writes, an entry each so often lets purges go on.
async fn tick(node: Node, every: Duration) {
    let mut last = 0;
    loop {
        tokio::time::sleep(every).await;
        if node.leader.is_leading() && node.applied() == last {
            let _ = node.leader.gather().tick().await;
        }
        last = node.applied();
    }
}

impl Node {
    fn applied(&self) -> u64 {
        let applied = self.reader.moment().applied;
        applied.map_or(0, |applied| applied.index)
    }
}
