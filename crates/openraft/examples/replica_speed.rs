//! Measures replicated puts and linearizable reads: three nodes in this process that call each other, each with a log and a state
//! on files, by 1, 16 and 64 clients.
//!
//! ```sh
//! cargo run --release --package ebbtide-openraft --example replica_speed -- [FOLDER] [SECONDS]
//! ```
//!
//! Prints the median of five runs for each: operations a second and the 50th and 99th percentile of their times.

#[allow(dead_code)]
#[path = "replicated_sessions/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebbtide::{ContainerOptions, SystemClock};
use ebbtide_openraft::{
    Applied, Entry, Leader, LogStore, Machine, Reader, SnapshotData, StateOptions, StateStore,
    Step, StepError,
};
use openraft::{BasicNode, Config, Raft};
use wire::Nodes;

type Any<T> = Result<T, Box<dyn std::error::Error>>;

struct Puts;

impl Machine for Puts {
    /// Key and value.
    type Op = (u64, Vec<u8>);
    type Answer = ();

    fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
        vec![("items", ContainerOptions::new())]
    }

    fn apply(&self, (key, value): &(u64, Vec<u8>), step: &mut Step<'_>) -> Result<(), StepError> {
        step.put(
            "items",
            key.to_be_bytes(),
            value,
            Duration::from_secs(3_600),
        )
    }
}

openraft::declare_raft_types!(
    Program: D = Entry<(u64, Vec<u8>)>, R = Applied<()>, SnapshotData = SnapshotData,
);

struct Node {
    leader: Leader<Puts>,
    reader: Reader<Program>,
    log: ebbtide::Database,
    raft: Raft<Program>,
}

async fn start(id: u64, folder: &Path, nodes: &Nodes<Program>) -> Any<Node> {
    let folder = folder.join(format!("node-{id}"));
    let db = LogStore::<Program>::options().open(folder.join("log"))?;
    let state = StateStore::open(folder.join("group-0"), Puts, StateOptions::default())?;
    let log = LogStore::new(&db, "group-0")?.behind(state.durable());
    let reader = state.reader();
    let config = Arc::new(Config::default().validate()?);
    let raft = Raft::new(id, config, nodes.wire(), log, state).await?;
    nodes.connect(id, &raft);
    Ok(Node {
        leader: Leader::new(&raft, reader.clone(), Arc::new(SystemClock)),
        reader,
        log: db,
        raft,
    })
}

/// Of one run.
struct Run {
    a_second: f64,
    median: Duration,
    p99: Duration,
}

async fn measure(node: &Node, clients: u64, seconds: f64, reads: bool) -> Run {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let tasks = (0..clients).map(|client| {
        let (leader, reader) = (node.leader.clone(), node.reader.clone());
        tokio::spawn(async move {
            let (mut times, mut n) = (vec![], 0);
            while Instant::now() < end {
                let (begun, key) = (Instant::now(), (client << 32) | (n % 100_000));
                if reads {
                    let at = leader.read().await.expect("a leader");
                    let shown = reader.get("items", key.to_be_bytes(), at);
                    shown.expect("a read");
                } else {
                    let written = leader.write((key, vec![b'v'; 100])).await;
                    written.expect("a leader").outcome.expect("a put");
                }
                times.push(begun.elapsed());
                n += 1;
            }
            times
        })
    });
    let mut times = vec![];
    for task in tasks.collect::<Vec<_>>() {
        times.extend(task.await.expect("a client"));
    }
    times.sort_unstable();
    Run {
        a_second: times.len() as f64 / seconds,
        median: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

#[tokio::main]
async fn main() -> Any<()> {
    let mut arguments = std::env::args().skip(1);
    let chosen = arguments.next().map(PathBuf::from);
    let seconds = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let folder = tempfile::tempdir_in(chosen.unwrap_or_else(std::env::temp_dir))?;
    let (reachable, mut nodes) = (Nodes::default(), vec![]);
    for id in 0..3 {
        nodes.push(start(id, folder.path(), &reachable).await?);
    }
    let members = BTreeMap::from([0, 1, 2].map(|id| (id, BasicNode::default())));
    nodes[0].raft.initialize(members).await?;
    let leader = loop {
        match nodes.iter().find(|node| node.leader.is_leading()) {
            Some(leader) => break leader,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    println!(
        "| | clients | a second | median | 99 % | syncs an entry |\n| --- | --- | --- | --- | --- | --- |"
    );
    for reads in [false, true] {
        for clients in [1, 16, 64] {
            let mark = || {
                (
                    leader.log.stats().syncs,
                    leader
                        .reader
                        .moment()
                        .applied
                        .map_or(0, |applied| applied.index),
                )
            };
            let before = mark();
            let mut runs = vec![];
            for _ in 0..5 {
                runs.push(measure(leader, clients, seconds, reads).await);
            }
            let after = mark();
            runs.sort_by(|one, other| one.a_second.total_cmp(&other.a_second));
            let run = &runs[2];
            let what = if reads { "linearizable reads" } else { "puts" };
            let syncs = (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64;
            println!(
                "| {what} | {clients} | {:.0} | {:?} | {:?} | {syncs:.3} |",
                run.a_second, run.median, run.p99
            );
        }
    }
    for node in nodes {
        node.raft.shutdown().await?;
    }
    Ok(())
}
