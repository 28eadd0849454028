//! Goal: an op that is sent again is done once, and answered as it was, also where a quota has no room for it any more; what is in
//! flight counts though its caller gave it up; commands of other versions and strangers change nothing; and
//! a node whose disk is short of room takes no writes until there is some.

use bytes::Bytes;
use ebbtide::ManualClock;

use super::*;
use crate::calls::{self, Asked, Written};
use crate::machine::body::{Act, Body, Life, When, Write};
use crate::net::{From, Handler};
use crate::raft::NotChanged;
use crate::room::Plan;

const START: u64 = 1_800_000_000_000;

async fn alone() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let options = Node::options()
        .clock(ManualClock::new(START))
        .patience(Duration::from_secs(20));
    let node = options.open(folder.path()).await.unwrap();
    node.create_container("c").await.unwrap();
    (folder, node)
}

fn create(key: &str) -> Body {
    Body::One(Write {
        container: "c".to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        when: When::Absent,
        act: Act::Put(Bytes::from_static(b"v"), Life::Never),
    })
}

fn done(written: Written) -> ebbtide_openraft::Answer<Reply> {
    match written {
        Asked::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_op_that_is_sent_again_is_answered_as_it_was() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    let op = core.op(create("k"));
    // In one entry, perhaps, and in another one.
    let (first, second) = tokio::join!(core.write_here(op.clone()), core.write_here(op.clone()));
    let (first, second) = (done(first), done(second));
    assert!(matches!(first.outcome, Ok(Reply::Done { .. })), "{first:?}");
    assert_eq!(first, second);
    assert_eq!(first, done(core.write_here(op.clone()).await));
    let other = done(core.write_here(core.op(create("k"))).await);
    assert_eq!(other.outcome, Ok(Reply::Missed));
    // A caller that gives up at once does not take it back, and does not have it done twice.
    let op = core.op(create("l"));
    for _ in 0..3 {
        let _ = tokio::time::timeout(Duration::ZERO, core.write_here(op.clone())).await;
    }
    let landed = done(core.write_here(op).await);
    assert!(
        matches!(landed.outcome, Ok(Reply::Done { .. })),
        "{landed:?}"
    );
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_ask_and_what_cannot_be_decoded_changes_nothing() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    let answering = answering::Answering::of(core);
    let ask = async |cluster, kind, body: Bytes| {
        let from = From {
            cluster,
            node: 7,
            format: 1,
            wall_ms: START,
        };
        answering.request(from, kind, body).await
    };
    let write = calls::encode(&core.op(create("k")));
    assert!(ask(0, calls::WRITE, write.clone()).await.is_empty());
    assert!(
        ask(core.identity.cluster + 1, calls::WRITE, write.clone())
            .await
            .is_empty()
    );
    let told = ask(0, calls::CLUSTER, Bytes::new()).await;
    let cluster: u128 = calls::decode(&told).unwrap();
    assert_eq!(cluster, core.identity.cluster);
    for kind in 0..20 {
        for body in [&b""[..], b"\xff\xff\xff\xff\xff", &write[..write.len() / 2]] {
            ask(cluster, kind, Bytes::copy_from_slice(body)).await;
        }
    }
    assert!(!node.container("c").contains("k").await.unwrap().value);
    let written = ask(cluster, calls::WRITE, write).await;
    let written: Written = calls::decode(&written).unwrap();
    assert!(matches!(done(written).outcome, Ok(Reply::Done { .. })));
    assert!(node.status().is_ready);
    node.close().await.unwrap();
}

/// A node whose disk has as many free bytes as the test says, of which it keeps 1 000.
async fn with_disk(folder: &Path, free: &Arc<AtomicU64>, first: Option<&Node>) -> Node {
    let read = free.clone();
    let mut options = Node::options()
        .clock(ManualClock::new(START))
        .patience(Duration::from_secs(20))
        .disk_reserve(1_000);
    options.free = Some(Arc::new(move || Some(read.load(Ordering::Relaxed))));
    if let Some(first) = first {
        options = options.join(first.addr());
    }
    options.open(folder).await.unwrap()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_refuses_writes_while_its_disk_is_short_and_goes_on_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(5_000));
    let node = with_disk(folder.path(), &free, None).await;
    let c = node.create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    free.store(999, Ordering::Relaxed);
    until("it is in trouble", || node.status().trouble.is_some()).await;
    let core = &node.shared.0;
    until("it refuses", || core.rooms.plan() == Plan::Refuse).await;
    let refused = c.put("k", "w").await.unwrap_err();
    assert!(matches!(refused, Error::NoRoom) && refused.is_retryable());
    let status = node.status();
    assert!(!status.is_ready && status.disk_free == Some(999));
    // Reads go on, and time does.
    core.replica.tick().await.unwrap();
    assert_eq!(c.get("k").await.unwrap().value.unwrap(), "v");
    free.store(1_250, Ordering::Relaxed);
    until("it goes on", || core.rooms.plan() == Plan::Write).await;
    c.put("k", "w").await.unwrap();
    assert!(node.status().is_ready);
    node.close().await.unwrap();
}

/// Three nodes, whose disks have room.
async fn three() -> (tempfile::TempDir, Vec<Arc<AtomicU64>>, Vec<Node>) {
    let folder = tempfile::tempdir().unwrap();
    let disks: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(5_000))).collect();
    let mut nodes: Vec<Node> = vec![];
    for (at, disk) in disks.iter().enumerate() {
        let path = folder.path().join(at.to_string());
        let node = with_disk(&path, disk, nodes.first()).await;
        nodes.push(node);
    }
    (folder, disks, nodes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_short_hands_over_and_a_majority_that_is_short_refuses() {
    let (_folder, disks, nodes) = three().await;
    let c = nodes[0].create_container("c").await.unwrap();
    let leading = |nodes: &[Node]| {
        let leads = |node: &Node| node.shared.0.replica.is_leading();
        nodes.iter().position(leads)
    };
    until("one leads", || leading(&nodes).is_some()).await;
    let first = leading(&nodes).unwrap();
    // It takes entries still: the put is on its disk, too.
    disks[first].store(999, Ordering::Relaxed);
    until("another one leads", || {
        leading(&nodes).is_some_and(|leader| leader != first)
    })
    .await;
    let put = c.put("k", "v").await.unwrap();
    until("it has the put", || {
        nodes[first].status().applied >= put.token
    })
    .await;
    assert!(nodes[first].status().trouble.unwrap().contains("short"));

    // With next to nothing it takes none, and stays a member that hears its leader.
    disks[first].store(499, Ordering::Relaxed);
    let rooms = &nodes[first].shared.0.rooms;
    until("it is out of room", || rooms.is_out()).await;
    let behind = nodes[first].status().applied.index;
    for n in 0..20 {
        c.put(format!("{n}"), "v").await.unwrap();
    }
    assert!(nodes[first].status().applied.index <= behind + 1);

    let leader = leading(&nodes).unwrap();
    let third = 3 - first - leader;
    disks[third].store(999, Ordering::Relaxed);
    let refuses = || {
        let leader = leading(&nodes).map(|leader| nodes[leader].shared.0.rooms.plan());
        leader == Some(Plan::Refuse)
    };
    until("a majority is short", refuses).await;
    assert!(matches!(c.put("k", "w").await, Err(Error::NoRoom)));
    for disk in &disks {
        disk.store(5_000, Ordering::Relaxed);
    }
    until("all have room", || !refuses()).await;
    let last = c.put("k", "w").await.unwrap();
    until("all are the same again", || {
        let is_there = |node: &Node| node.status().applied >= last.token;
        nodes.iter().all(is_there)
    })
    .await;
    for node in &nodes {
        node.close().await.unwrap();
    }
}

fn put(key: &str, bytes: usize) -> Body {
    Body::One(Write {
        container: "c".to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        when: When::Always,
        act: Act::Put(Bytes::from(vec![b'v'; bytes]), Life::Never),
    })
}

async fn limit(node: &Node, bytes: u64) {
    let quota = ebbtide::Quota {
        max_live_bytes: bytes,
        when_full: ebbtide::WhenFull::Refuse,
    };
    node.container("c").set_quota(Some(quota)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_op_that_was_done_is_answered_as_it_was_though_there_is_no_room_for_it_any_more() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    limit(&node, 1_000).await;
    let op = core.op(put("k", 700));
    let first = done(core.write_here(op.clone()).await);
    done(core.write_here(core.op(put("k", 10))).await);
    done(core.write_here(core.op(put("l", 700))).await);
    assert_eq!(first, done(core.write_here(op).await));
    let other = core.write_here(core.op(put("k", 700))).await;
    assert!(matches!(other, Asked::Full(_)), "{other:?}");
    // After an answer that was lost, want of room says nothing about what was done.
    let asked = AtomicU64::new(0);
    let answer = core.ask_leader(Duration::from_secs(20), |_| {
        let nth = asked.fetch_add(1, Ordering::Relaxed);
        let full = calls::Full {
            container: "c".to_owned(),
            limit: 1_000,
            live: 1_000,
            frees_at_ms: None,
        };
        async move {
            match nth {
                0 => Asked::Lost("there was no answer in time".to_owned()),
                1 => Asked::Full(full),
                2 => Asked::NoRoom,
                nth => Asked::Done(nth),
            }
        }
    });
    assert_eq!(answer.await.unwrap(), 3);
    let refused = node.container("c").put("m", "v".repeat(700)).await;
    assert!(
        matches!(
            refused,
            Err(Error::Engine(ebbtide::Error::QuotaFull { .. }))
        ),
        "{refused:?}"
    );
    node.close().await.unwrap();
}

/// The other node does not answer, so nothing is applied.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_gave_up_counts_until_it_is_applied() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let options = || {
        Node::options()
            .clock(ManualClock::new(START))
            .patience(Duration::from_secs(20))
            .heartbeat(Duration::from_secs(3))
    };
    let first = options().open(folders[0].path()).await.unwrap();
    let second = options()
        .join(first.addr())
        .open(folders[1].path())
        .await
        .unwrap();
    first.create_container("c").await.unwrap();
    limit(&first, 10_000).await;
    let core = &first.shared.0;
    done(core.write_here(core.op(put("k", 100))).await);
    second.close().await.unwrap();
    let writing = core.write_here(core.op(put("l", 1_000)));
    let given_up = tokio::time::timeout(Duration::from_millis(100), writing).await;
    assert!(given_up.is_err());
    assert_eq!(core.quotas.of("c").close(), 1_017);
    first.close().await.unwrap();
    while core.quotas.of("c").close() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_takes_no_entries_gets_no_vote() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    // Connections to it are accepted, and nothing is answered.
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = deaf.local_addr().unwrap().to_string();
    let within = Duration::from_millis(300);
    let added = core.replica.add(77, &addr, Some(u16::MAX), within).await;
    let NotChanged::Refused(why) = added.unwrap_err() else {
        panic!("nobody is lost");
    };
    assert!(why.contains("has not caught up"), "{why}");
    let votes = |node: &Node| node.members().iter().filter(|member| member.votes).count();
    assert_eq!((votes(&node), node.members().len()), (1, 2));
    node.container("c").put("k", "v").await.unwrap();
    node.remove(77).await.unwrap();
    assert_eq!(node.members().len(), 1);
    node.close().await.unwrap();
}
