//! Goal: three nodes of openraft on this storage are one state: each write once, one sync an entry and node, reads that go neither
//! back in time nor behind a write; and whoever was away gets a snapshot and is the same again.
//!
//! Method: nodes in one process, on real files, that call each other and can be cut off.

#[allow(dead_code)]
#[path = "../../examples/replicated_sessions/wire.rs"]
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::wire::Nodes;
use crate::common::{Ask, Counters, Life, Program, Told, millis};
use ebbtide::{Clock, ManualClock, SystemClock};
use ebbtide_openraft::{Leader, LogStore, Op, OpId, Reader, StateOptions, StateStore};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use tempfile::TempDir;

struct Node {
    id: u64,
    raft: Raft<Program>,
    leader: Leader<Counters>,
    reader: Reader<Program>,
    log: ebbtide::Database,
}

/// The nodes that each one can reach.
#[derive(Default)]
struct Ways([Nodes<Program>; 3]);

impl Ways {
    fn connect(&self, id: u64, raft: &Raft<Program>) {
        self.0.iter().for_each(|from| from.connect(id, raft));
    }

    fn cut(&self, id: u64) {
        self.0.iter().for_each(|from| from.cut(id));
    }

    /// In both directions.
    fn cut_off(&self, id: u64) {
        self.cut(id);
        (0..3).for_each(|to| self.0[id as usize].cut(to));
    }
}

struct Cluster {
    folder: TempDir,
    reachable: Ways,
    nodes: Vec<Node>,
}

fn config() -> Arc<Config> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        snapshot_max_chunk_size: 1_000,
        ..Config::default()
    };
    Arc::new(config.validate().unwrap())
}

async fn start(id: u64, folder: &Path, reachable: &Ways, clock: Arc<dyn Clock>) -> Node {
    let folder = folder.join(format!("node-{id}"));
    let db = LogStore::<Program>::options()
        .open(folder.join("log"))
        .unwrap();
    let state =
        StateStore::open(folder.join("group-0"), Counters, StateOptions::default()).unwrap();
    let log = LogStore::new(&db, "group-0")
        .unwrap()
        .behind(state.durable());
    let reader = state.reader();
    let raft = Raft::new(id, config(), reachable.0[id as usize].wire(), log, state)
        .await
        .unwrap();
    reachable.connect(id, &raft);
    Node {
        id,
        leader: Leader::new(&raft, reader.clone(), clock),
        raft,
        reader,
        log: db,
    }
}

impl Cluster {
    async fn start() -> Cluster {
        Cluster::with(|_| Arc::new(SystemClock)).await
    }

    async fn with(clock: impl Fn(u64) -> Arc<dyn Clock>) -> Cluster {
        let (folder, reachable) = (testkit::scratch(), Ways::default());
        let mut nodes = vec![];
        for id in 0..3 {
            nodes.push(start(id, folder.path(), &reachable, clock(id)).await);
        }
        let members = BTreeMap::from([0, 1, 2].map(|id| (id, BasicNode::default())));
        nodes[0].raft.initialize(members).await.unwrap();
        Cluster {
            folder,
            reachable,
            nodes,
        }
    }

    async fn leader(&self) -> &Node {
        for _ in 0..2_000 {
            if let Some(node) = self.nodes.iter().find(|node| node.leader.is_leading()) {
                return node;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nobody leads");
    }

    /// Stops a node, whose files stay.
    async fn stop(&mut self, id: u64) {
        self.reachable.cut(id);
        let at = self.nodes.iter().position(|node| node.id == id).unwrap();
        self.nodes.remove(at).raft.shutdown().await.unwrap();
    }

    async fn start_again(&mut self, id: u64) {
        // The tasks of the node that was stopped let go of its files.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let node = start(
            id,
            self.folder.path(),
            &self.reachable,
            Arc::new(SystemClock),
        )
        .await;
        self.nodes.push(node);
    }

    /// Waits until all have applied what the leader has, and compares them.
    async fn are_alike(&self) {
        let index = self.leader().await.reader.moment().applied.unwrap().index;
        let mut shown = vec![];
        for node in &self.nodes {
            node.reader.applied(index).await;
            let view = node.reader.view(0);
            let items = view.container("a").unwrap();
            let items = items.range(..).map(|item| {
                let item = item.unwrap();
                let end = item.expires_at().map(millis);
                (
                    item.key().to_vec(),
                    item.value().to_vec(),
                    end,
                    item.version(),
                )
            });
            shown.push(items.collect::<Vec<_>>());
        }
        assert!(shown.windows(2).all(|two| two[0] == two[1]), "{shown:?}");
    }
}

fn add(key: &str) -> Ask {
    Ask::Add(0, key.into(), 1)
}

async fn number(node: &Node, key: &str) -> u64 {
    let at = node.leader.read().await.unwrap();
    let shown = node.reader.get("a", key, at).unwrap();
    assert!(shown.at_ms >= at);
    let text = shown
        .item
        .map(|item| String::from_utf8(item.value().to_vec()).unwrap());
    text.map_or(0, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_costs_each_node_one_sync_and_many_writes_share_it() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let _ = leader.leader.write(add("n")).await.unwrap();
    let marks = || -> Vec<(u64, u64)> {
        let mark = |node: &Node| {
            (
                node.log.stats().syncs,
                node.reader.moment().applied.unwrap().index,
            )
        };
        cluster.nodes.iter().map(mark).collect()
    };
    cluster.are_alike().await;
    let before = marks();
    for _ in 0..300 {
        let _ = leader.leader.write(add("n")).await.unwrap();
    }
    cluster.are_alike().await;
    for (node, (before, after)) in cluster.nodes.iter().zip(before.iter().zip(marks())) {
        let (syncs, entries) = (after.0 - before.0, after.1 - before.1);
        assert_eq!(entries, 300);
        // A follower that falls behind gets several entries at once.
        let least = if node.id == leader.id { 294 } else { 1 };
        assert!(
            (least..=306).contains(&syncs),
            "{syncs} syncs for {entries} entries"
        );
    }
    let before = marks();
    let tasks = (0..2_000).map(|_| {
        let leader = leader.leader.clone();
        tokio::spawn(async move { leader.write(add("n")).await.unwrap() })
    });
    for task in tasks.collect::<Vec<_>>() {
        let _ = task.await.unwrap();
    }
    assert_eq!(number(leader, "n").await, 2_301);
    cluster.are_alike().await;
    for (before, after) in before.iter().zip(marks()) {
        assert!(
            after.1 - before.1 < 200,
            "{} entries for 2 000 writes",
            after.1 - before.1
        );
        assert!(
            after.0 - before.0 < 200,
            "{} syncs for 2 000 writes",
            after.0 - before.0
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_gets_a_snapshot_and_is_the_same_again() {
    let mut cluster = Cluster::start().await;
    let away = (cluster.leader().await.id + 1) % 3;
    cluster.stop(away).await;
    let leader = cluster.leader().await;
    for n in 0..200 {
        let put = Ask::Put(
            0,
            format!("k{n}"),
            "v".repeat(100),
            Life::For(3_600_000 + n),
        );
        let _ = leader.leader.write(put).await.unwrap();
    }
    for node in &cluster.nodes {
        node.raft.trigger().snapshot().await.unwrap();
    }
    let applied = leader.reader.moment().applied;
    let purged = leader.raft.wait(Some(Duration::from_secs(10)));
    purged
        .purged(applied, "entries behind the synced state go")
        .await
        .unwrap();
    cluster.start_again(away).await;
    cluster.are_alike().await;
    let leader = cluster.leader().await;
    let _ = leader.leader.write(add("n")).await.unwrap();
    cluster.are_alike().await;
    let group = cluster.folder.path().join(format!("node-{away}/group-0"));
    let current = std::fs::read_to_string(group.join("CURRENT")).unwrap();
    assert_ne!(current, "state-0\n", "a snapshot has taken its place");
    for name in std::fs::read_dir(&group).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "CURRENT" || format!("{name}\n") == current,
            "{name} is left"
        );
    }
    // As after any start.
    cluster.stop(away).await;
    cluster.start_again(away).await;
    cluster.are_alike().await;
}

/// A leader is cut off with a write under way, and a snapshot comes over it: openraft never says what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_got_a_snapshot_over_its_write_leads_and_writes_again() {
    let cluster = Cluster::start().await;
    let first = cluster.leader().await;
    let _ = first.leader.write(add("n")).await.unwrap();
    cluster.are_alike().await;
    cluster.reachable.cut_off(first.id);
    let lost = first.leader.clone();
    let under_way = tokio::spawn(async move { lost.write(add("n")).await });
    let others = || cluster.nodes.iter().filter(|node| node.id != first.id);
    let second = loop {
        if let Some(node) = others().find(|node| node.leader.is_leading()) {
            break node;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    for _ in 0..20 {
        let _ = second.leader.write(add("m")).await.unwrap();
    }
    let applied = second.reader.moment().applied.unwrap();
    for node in others() {
        node.reader.applied(applied.index).await;
        node.raft.trigger().snapshot().await.unwrap();
        let purged = node.raft.wait(Some(Duration::from_secs(60)));
        purged.purged(Some(applied), "the log goes").await.unwrap();
    }
    for node in &cluster.nodes {
        cluster.reachable.connect(node.id, &node.raft);
    }
    first.reader.applied(applied.index).await;
    assert!(under_way.await.unwrap().is_err(), "it was never done");
    // The others vote once they hear no heartbeat.
    second.raft.runtime_config().heartbeat(false);
    for _ in 0..600 {
        if first.leader.is_leading() {
            break;
        }
        first.raft.trigger().elect().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let _ = first.leader.write(add("n")).await.unwrap();
    assert_eq!(number(first, "n").await, 2);
    assert_eq!(number(first, "m").await, 20);
    cluster.are_alike().await;
}

/// An entry can be read before the node says that it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_has_seen_more_than_the_reader_says_after_it() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let over = Arc::new(AtomicBool::new(false));
    let readers = cluster.nodes.iter().map(|node| {
        let (reader, over) = (node.reader.clone(), over.clone());
        std::thread::spawn(move || {
            let mut seen = vec![];
            while !over.load(Ordering::SeqCst) {
                let item = reader.get("a", "k", 0).unwrap().item;
                let index = reader.seen();
                if let Some(item) = item {
                    let value = String::from_utf8(item.value().to_vec()).unwrap();
                    seen.push((value.parse::<usize>().unwrap(), index));
                }
            }
            seen
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut indexes = vec![];
    for n in 0..1_000 {
        let put = Ask::Put(0, "k".into(), n.to_string(), Life::Never);
        indexes.push(leader.leader.write(put).await.unwrap().index);
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        let seen = reader.join().unwrap();
        assert!(!seen.is_empty());
        let beyond = seen.iter().filter(|(n, index)| *index < indexes[*n]);
        assert_eq!(beyond.count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_client_gives_up_takes_effect_once() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let id = OpId {
        client: 1,
        serial: 1,
        born_ms: SystemClock.wall(),
    };
    let op = Op {
        id: Some(id),
        body: add("n"),
    };
    let given_up = leader.leader.clone();
    let write = op.clone();
    let task = tokio::spawn(async move { given_up.write(write).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    task.abort();
    let again = leader.leader.write(op).await.unwrap();
    assert_eq!(again.outcome, Ok(Told::Number(1)));
    assert_eq!(number(leader, "n").await, 1);
}

/// The second leader's clock is an hour behind: nothing that was gone comes back, and no moment is earlier than one before.
#[tokio::test(flavor = "multi_thread")]
async fn no_answer_goes_back_in_time_when_the_leader_is_lost() {
    let now = SystemClock.wall();
    let clocks: Vec<ManualClock> = (0..3).map(|_| ManualClock::new(now)).collect();
    let mut cluster = Cluster::with(|id| Arc::new(clocks[id as usize].clone())).await;
    let first = cluster.leader().await;
    let put = Ask::Put(0, "k".into(), "v".into(), Life::For(1_000));
    let ends = first.leader.write(put).await.unwrap().at_ms + 1_000;
    let (lost, clock) = (first.id, &clocks[first.id as usize]);
    clock.advance(Duration::from_millis(999));
    assert_eq!(text(first, "k").await, (Some("v".into()), ends - 1));
    clock.advance(Duration::from_millis(1));
    let (gone, at) = text(first, "k").await;
    assert_eq!((gone, at), (None, ends));
    for clock in &clocks {
        clock.jump(now - 3_600_000);
    }
    cluster.stop(lost).await;
    let second = cluster.leader().await;
    let (still, later) = text(second, "k").await;
    assert_eq!(still, None, "it is gone for good");
    assert!(later >= at, "{later} is before {at}");
    let created = second
        .leader
        .write(Ask::Create(0, "k".into(), "new".into(), Life::Never))
        .await
        .unwrap();
    assert_eq!(created.outcome, Ok(Told::Done(true)));
    assert!(created.at_ms >= at);
    cluster.are_alike().await;
}

async fn text(node: &Node, key: &str) -> (Option<String>, u64) {
    let at = node.leader.read().await.unwrap();
    let shown = node.reader.get("a", key, at).unwrap();
    let text = shown
        .item
        .map(|item| String::from_utf8(item.value().to_vec()).unwrap());
    (text, shown.at_ms)
}
