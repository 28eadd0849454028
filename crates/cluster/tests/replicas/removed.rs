//! Goal: a node that was taken out of its cluster says so, whether it ran then or not and whether it led, and nobody else does.
//!
//! Method: nodes in one process; some are stopped while members change.

use std::time::Duration;

use crate::common::{Cluster, until};
use ebbtide_cluster::{Error, Node, ReadLevel, Token};

/// Waits until a node knows that it is out, and looks at what it says.
async fn is_out(node: &Node, other: u64) {
    until("it knows that it is out", async || {
        let trouble = node.status().trouble;
        trouble.is_some_and(|trouble| trouble.contains("taken out"))
    })
    .await;
    assert!(!node.status().is_ready);
    let is_removed = |error: Error| {
        assert!(
            matches!(error, Error::Removed { node: id } if id == node.id()),
            "{error}"
        );
        assert!(!error.is_retryable());
    };
    let c = node.container("c");
    is_removed(c.put("k", "w").await.unwrap_err());
    is_removed(c.get("k").await.unwrap_err());
    is_removed(c.at(ReadLevel::Local).get("k").await.unwrap_err());
    is_removed(c.delete_range(..).await.unwrap_err());
    let snapshot = node.snapshot(ReadLevel::Local, Token::default()).await;
    is_removed(snapshot.unwrap_err());
    // It changes no members either, whichever leader it remembers.
    is_removed(node.remove(other).await.unwrap_err());
    is_removed(node.transfer(other).await.unwrap_err());
    let survey = node.survey().await;
    let own = survey.iter().find(|found| found.member.id == node.id());
    let own = own.unwrap().told.as_ref().unwrap();
    assert!(own.trouble.as_ref().unwrap().contains("taken out"));
}

async fn are_in(nodes: &[&Node]) {
    for node in nodes {
        let c = node.container("c");
        c.put("k", "v").await.unwrap();
        assert_eq!(c.get("k").await.unwrap().value.unwrap(), "v");
        assert_eq!(node.status().trouble, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_taken_out_says_so() {
    let mut cluster = Cluster::of(5).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let leader = cluster.leader().await;
    let gone = (leader + 1) % 5;
    let id = cluster.nodes[gone].id();
    cluster.nodes[leader].remove(id).await.unwrap();
    // A call that waits is told when the node learns it.
    let waits = cluster.nodes[gone].container("c").get("k").await;
    assert!(matches!(waits, Err(Error::Removed { .. })), "{waits:?}");
    let lead = cluster.nodes[leader].id();
    is_out(&cluster.nodes[gone], lead).await;
    let others = |cluster: &Cluster, gone: &[u64]| {
        let nodes = cluster.nodes.clone().into_iter();
        nodes
            .filter(|node| !gone.contains(&node.id()))
            .collect::<Vec<_>>()
    };
    let left = others(&cluster, &[id]);
    are_in(&left.iter().collect::<Vec<_>>()).await;
    // It lets nobody in.
    let folder = tempfile::tempdir().unwrap();
    let joining = Node::options().join(cluster.nodes[gone].addr());
    let refused = joining.open(folder.path()).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Members(why) if why.contains("taken out")),
        "{refused}"
    );

    // The leader itself, and by another node.
    let leads = cluster.nodes[cluster.leader().await].id();
    let asked = left.iter().find(|node| node.id() != leads).unwrap();
    let _ = asked.remove(leads).await;
    let led = left.iter().find(|node| node.id() == leads).unwrap();
    is_out(led, asked.id()).await;
    let left = others(&cluster, &[id, leads]);
    are_in(&left.iter().collect::<Vec<_>>()).await;

    // One that does not run then learns it when it is opened again, from whoever is left.
    let number = cluster
        .nodes
        .iter()
        .position(|node| node.id() == left[2].id());
    let number = number.unwrap();
    drop(left);
    let (addr, stopped) = cluster.stop(number).await;
    let left = others(&cluster, &[id, leads, stopped]);
    left[0].remove(stopped).await.unwrap();
    cluster.start_again(number, &addr).await;
    is_out(cluster.nodes.last().unwrap(), left[0].id()).await;
    are_in(&left.iter().collect::<Vec<_>>()).await;
    cluster.close().await;
}

/// Its own log is the newer one: the other node does not know of it yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_others_do_not_know_yet_is_not_out() {
    let mut cluster = Cluster::of(3).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let (addr, _) = cluster.stop(2).await;
    cluster.grow().await;
    cluster.stop(0).await;
    cluster.stop(0).await;
    cluster.start_again(2, &addr).await;
    let [fourth, third] = &cluster.nodes[..] else {
        panic!("two run")
    };
    for _ in 0..60 {
        // Each second it asks; the third one answers by what it knows.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let troubles = [fourth, third].map(|node| node.status().trouble);
        assert_eq!(troubles, [None, None]);
    }
    let refused = fourth.container("c").at(ReadLevel::Local).get("k").await;
    assert_eq!(refused.unwrap().value, None);
    cluster.close().await;
}

/// It has learned it; then nobody is there whom it could ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_learned_it_knows_it_when_it_is_opened_alone() {
    let mut cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    let leader = cluster.leader().await;
    let number = (leader + 1) % 3;
    let id = cluster.nodes[number].id();
    cluster.nodes[leader].remove(id).await.unwrap();
    let other = cluster.nodes[leader].id();
    is_out(&cluster.nodes[number], other).await;
    let (addr, _) = cluster.stop(number).await;
    cluster.stop(0).await;
    cluster.stop(0).await;
    for _ in 0..2 {
        cluster.start_again(number, &addr).await;
        let node = &cluster.nodes[0];
        let read = node.container("c").at(ReadLevel::Local).get("k").await;
        assert!(
            matches!(read, Err(Error::Removed { node }) if node == id),
            "{read:?}"
        );
        is_out(node, other).await;
        cluster.stop(0).await;
    }
}
