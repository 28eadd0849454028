//! Goal: replicas are compared, whatever wear they have; one that differs stops, and the others go on.
//!
//! Method: nodes in one process; a stopped node's state is opened as a database, and an item in it is written.

use std::time::Duration;

use crate::common::{self, Cluster, until};
use ebbtide::{Options, Ttl};
use ebbtide_cluster::{Error, Node, ReadLevel};

/// Writes an item past the log, into the state of a node that is closed.
fn plant(cluster: &Cluster, number: usize, value: &str) {
    let group = cluster.folder.path().join(format!("node-{number}/group-0"));
    let state = std::fs::read_to_string(group.join("CURRENT")).unwrap();
    let db = Options::new()
        .given_time()
        .open(group.join(state.trim()))
        .unwrap();
    let c = db.container("c").unwrap();
    c.put_with_ttl("500", value, Ttl::Never).unwrap();
    db.close().unwrap();
}

/// Closes all nodes at one place, and plants a value into the state of each.
async fn planted(cluster: &mut Cluster, values: [&str; 3]) {
    let applied = |node: &Node| node.status().applied;
    until("all are at one place", async || {
        let first = applied(&cluster.nodes[0]);
        cluster.nodes.iter().all(|node| applied(node) == first)
    })
    .await;
    let mut addrs = vec![];
    while !cluster.nodes.is_empty() {
        addrs.push(cluster.stop(0).await.0);
    }
    for (number, value) in values.into_iter().enumerate() {
        plant(cluster, number, value);
    }
    for (number, addr) in addrs.iter().enumerate() {
        cluster.start_again(number, addr).await;
    }
}

async fn filled(size: usize) -> Cluster {
    let cluster = Cluster::with(size, |options| options.check_every(None)).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for n in 0..1_000 {
        let ttl = Duration::from_secs(1 + n % 100);
        c.put_with_ttl(format!("{n:03}"), "v", ttl).await.unwrap();
        if n % 250 == 0 {
            cluster.advance(1_000);
        }
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_other_wear_agree() {
    let mut cluster = filled(3).await;
    // One is opened again, one has its state by a snapshot of files, and what has ended is purged here and not there.
    let (addr, _) = cluster.stop(1).await;
    cluster.start_again(1, &addr).await;
    cluster.grow().await;
    for seconds in [1, 40, 100] {
        cluster.advance(seconds * 1_000);
        for node in &cluster.nodes {
            let checked = common::agreed(node).await;
            assert_eq!(checked.nodes.len(), 4);
            let all: Vec<u64> = checked.nodes.iter().map(|node| node.id).collect();
            let mut members: Vec<u64> = node.members().iter().map(|node| node.id).collect();
            members.sort_unstable();
            assert_eq!(all, members);
            for other in &cluster.nodes {
                assert_eq!(other.status().checked.as_ref(), Some(&checked));
                assert_eq!(other.status().trouble, None);
            }
        }
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_value_is_found_and_stops() {
    let mut cluster = filled(3).await;
    planted(&mut cluster, ["same", "same", "samf"]).await;
    let bad = cluster.nodes[2].clone();
    let local = bad.container("c").at(ReadLevel::Local);
    assert_eq!(local.get("500").await.unwrap().value.unwrap(), "samf");
    let checked = cluster.nodes[0].check().await.unwrap();
    assert_eq!(
        (checked.agree(), checked.differing()),
        (false, vec![bad.id()])
    );

    let is_named = |error: Error| {
        let is_named = matches!(error, Error::Differs { node, index } if node == bad.id() && index == checked.at.index);
        assert!(is_named, "{error}");
    };
    is_named(local.get("500").await.unwrap_err());
    is_named(bad.container("c").get("k").await.unwrap_err());
    is_named(bad.container("c").put("k", "v").await.unwrap_err());
    is_named(bad.check().await.unwrap_err());
    let status = bad.status();
    assert!(!status.is_ready && status.trouble.unwrap().contains("differs"));
    let good = cluster.nodes[0].container("c");
    good.put("k", "v").await.unwrap();
    until("a node with a good state leads", async || {
        let leader = cluster.nodes[0].leader();
        leader.is_some_and(|leader| leader != bad.id())
    })
    .await;
    assert!(cluster.nodes[1].status().is_ready);

    // It stays stopped when it is opened again, until it is removed.
    drop((local, bad));
    let (addr, id) = cluster.stop(2).await;
    cluster.start_again(2, &addr).await;
    assert!(matches!(
        cluster.nodes[2].container("c").get("k").await,
        Err(Error::Differs { index, .. }) if index == checked.at.index
    ));
    assert_eq!(cluster.nodes[1].check().await.unwrap().differing(), [id]);
    cluster.stop(2).await;
    cluster.nodes[0].remove(id).await.unwrap();
    let checked = cluster.nodes[1].check().await.unwrap();
    assert!(checked.agree() && checked.nodes.len() == 2, "{checked:?}");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_stops_and_the_status_tells() {
    let mut cluster = filled(3).await;
    planted(&mut cluster, ["one", "two", "three"]).await;
    let checked = cluster.nodes[1].check().await.unwrap();
    assert_eq!((checked.agree(), checked.differing()), (false, vec![]));
    for node in &cluster.nodes {
        let status = node.status();
        assert_eq!(
            (status.checked.unwrap(), status.trouble),
            (checked.clone(), None)
        );
        node.container("c").put("k", "v").await.unwrap();
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_is_told_as_absent() {
    /// So long is the one that is away waited for.
    const PATIENCE: Duration = Duration::from_secs(8);
    let mut cluster = Cluster::with(3, |options| {
        options
            .check_every(Duration::from_secs(60))
            .patience(PATIENCE)
    })
    .await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    assert_eq!(cluster.nodes[0].status().checked, None);
    let (addr, id) = cluster.stop(2).await;
    // By itself, once the uptime says so.
    cluster.advance(60_000);
    until("the leader has checked", async || {
        cluster
            .nodes
            .iter()
            .all(|node| node.status().checked.is_some())
    })
    .await;
    let checked = cluster.nodes[0].status().checked.unwrap();
    assert!(checked.agree());
    assert_eq!(checked.absent(), [id]);
    cluster.start_again(2, &addr).await;
    common::agreed(&cluster.nodes[2]).await;
    cluster.close().await;
}
