//! Goal: an item is there until its end and gone from it on, for every node and level, though the leader changes in between; an
//! answer that has said that it is gone is contradicted by none; and ends cost no entry of the log.
//!
//! Method: clocks that tests move. Answers are judged by their own moment.

use std::time::Duration;

use crate::common::{self, Cluster, START, millis, until};
use ebbtide::Ttl;
use ebbtide_cluster::{Batch, Error, Node, ReadLevel, Token};

const LEVELS: [ReadLevel; 3] = [
    ReadLevel::Linearizable,
    ReadLevel::Bounded(Duration::from_millis(300)),
    ReadLevel::Local,
];

/// Asks each node at each level for an item that ends then: there before, gone from then on. Returns the latest moment.
async fn all_agree(nodes: &[Node], key: &str, end: u64, since: Token) -> u64 {
    let mut latest = 0;
    for node in nodes {
        for level in LEVELS {
            let c = node.container("c").at(level).since(since);
            let got = c.get(key).await.unwrap();
            let (at, count) = (millis(got.at), c.count(key..=key).await.unwrap());
            assert_eq!(
                got.value.is_some(),
                at < end,
                "{level:?} at {at}, and the end is {end}"
            );
            assert_eq!(count.value == 1, millis(count.at) < end, "{level:?}");
            assert!(got.token.index >= since.index && got.token.at_ms >= since.at_ms);
            latest = latest.max(at);
        }
    }
    latest
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_there_until_its_end_and_gone_from_it_on_for_all() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let put = c
        .put_with_ttl("k", "v", Duration::from_millis(1_000))
        .await
        .unwrap();
    let end = millis(put.at) + 1_000;
    let item = c.item("k").await.unwrap().value.unwrap();
    assert_eq!(item.expires_at().map(millis), Some(end));
    all_agree(&cluster.nodes, "k", end, put.token).await;
    cluster.advance(999);
    assert_eq!(
        all_agree(&cluster.nodes, "k", end, put.token).await,
        end - 1
    );
    cluster.advance(1);
    assert_eq!(all_agree(&cluster.nodes, "k", end, put.token).await, end);
    assert!(c.touch("k").await.unwrap().value.is_none());
    assert!(common::is_some(c.create("k", "new", Ttl::Never).await));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_stays_gone_when_the_next_leader_is_behind() {
    let mut cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let first = cluster.leader().await;
    let put = c
        .put_with_ttl("k", "v", Duration::from_millis(150))
        .await
        .unwrap();
    let end = millis(put.at) + 150;
    // The leader alone is ahead, by less than makes it unfit, and within what it may answer without an entry.
    cluster.clocks[first].advance(Duration::from_millis(160));
    let gone = cluster.nodes[first].container("c").get("k").await.unwrap();
    assert_eq!((gone.value.is_none(), millis(gone.at)), (true, end + 10));
    cluster.stop(first).await;
    for node in &cluster.nodes {
        let after = node.container("c").get("k").await.unwrap();
        assert_eq!(after.value, None);
        assert!(
            after.token.at_ms >= gone.token.at_ms,
            "{after:?} is before {gone:?}"
        );
        let local = node.container("c").at(ReadLevel::Local).since(gone.token);
        assert_eq!(local.get("k").await.unwrap().value, None);
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_cost_no_entry() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for n in 0..200 {
        c.put_with_ttl(format!("{n}"), "v", Duration::from_millis(1_000 + n))
            .await
            .unwrap();
    }
    let leader = cluster.leader().await;
    let index = || cluster.nodes[leader].status().applied.index;
    let before = index();
    for _ in 0..20 {
        cluster.advance(100);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(index(), before, "200 items have ended");
    // A read at a later moment than any entry allows has a tick.
    assert_eq!(c.count(..).await.unwrap().value, 0);
    assert_eq!(index(), before + 1);
    cluster.close().await;
}

/// Whichever ttl that one has, and whatever becomes of the defaults of both.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_counts_like_another_one_ends_with_it() {
    let cluster = Cluster::of(3).await;
    let node = &cluster.nodes[0];
    let (of, to) = (node.container("c"), node.container("like"));
    let (default, mut made) = (Duration::from_millis(1_000), Batch::new());
    made.create_container("c", default)
        .create_container("like", default);
    node.write(made).await.unwrap();
    let ttls = [
        ("a", Ttl::Inherit),
        ("b", Ttl::After(Duration::from_millis(700))),
        ("c", Ttl::After(Duration::from_millis(5_000))),
        ("d", Ttl::Never),
    ];
    for (key, ttl) in ttls {
        of.put_with_ttl(key, "v", ttl).await.unwrap();
    }
    cluster.advance(400);
    // One that is kept goes on counting, also for those that count like it in the same entry.
    of.put_with_ttl("b", "w", Ttl::Keep).await.unwrap();
    let mut like = Batch::new();
    for (key, _) in ttls {
        like.put_like(&to, key, "like", &of, key);
    }
    node.write(like).await.unwrap();
    let mut longer = Batch::new();
    for of in [&of, &to] {
        longer.set_default_ttl(of, Duration::from_millis(2_000));
    }
    node.write(longer).await.unwrap();
    for (advance, there) in [(0, "abcd"), (300, "acd"), (1_300, "cd"), (3_000, "d")] {
        cluster.advance(advance);
        for node in &cluster.nodes {
            for (key, _) in ttls {
                let [one, other] = [&of, &to].map(|of| node.container(of.name()));
                let [one, other] = [one.item(key).await.unwrap(), other.item(key).await.unwrap()];
                assert_eq!(one.value.is_some(), there.contains(key), "{key} of {there}");
                let ends = |item: &ebbtide_cluster::Item| item.expires_at();
                assert_eq!(one.value.as_ref().map(ends), other.value.as_ref().map(ends));
            }
        }
    }
    // One that has ended, is not there, or is written by the same batch has no life to share; then nothing is written.
    for key in ["a", "none", "e"] {
        let mut batch = Batch::new();
        batch.put(&of, "e", "v").put_like(&to, "x", "v", &of, key);
        let refused = node.write(batch).await.unwrap_err();
        assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    }
    assert!(of.get("e").await.unwrap().value.is_none());
    let mut nowhere = Batch::new();
    nowhere.put_like(&to, "x", "v", &node.container("none"), "a");
    let refused = node.write(nowhere).await.unwrap_err();
    assert!(matches!(refused, Error::NoContainer(name) if name == "none"));
    assert!(node.check().await.unwrap().agree());
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_goes_on_by_itself_as_long_as_items_will_end() {
    let cluster = Cluster::with(1, |options| options.reclaim_within(Duration::from_secs(8))).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    c.put_with_ttl("k", "v", Duration::from_secs(2))
        .await
        .unwrap();
    let before = node.status().applied;
    cluster.advance(3_000);
    until("a tick", async || {
        node.status().applied.at_ms >= before.at_ms + 3_000
    })
    .await;
    let local = c.at(ReadLevel::Local).get("k").await.unwrap();
    assert_eq!(local.value, None);
    // Entries go by age, too, once the state holds them.
    until("the log goes", async || {
        node.status().purged >= before.index
    })
    .await;
    cluster.close().await;
}

/// A node that led leads on when it is opened again, without an election.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_stays_gone_when_nodes_open_again_with_clocks_behind() {
    for (size, behind) in [(1, 100), (1, 5_000_000), (3, 100)] {
        let mut cluster = Cluster::of(size).await;
        let c = cluster.nodes[0].create_container("c").await.unwrap();
        c.put_with_ttl("k", "v", Duration::from_millis(50))
            .await
            .unwrap();
        cluster.advance(50);
        let gone = c.get("k").await.unwrap();
        assert_eq!(gone.value, None);
        let mut addrs = vec![];
        while !cluster.nodes.is_empty() {
            addrs.push(cluster.stop(0).await.0);
        }
        for clock in &cluster.clocks {
            clock.jump(common::wall(clock) - behind);
        }
        for (number, addr) in addrs.iter().enumerate() {
            cluster.start_again(number, addr).await;
        }
        let c = cluster.nodes[0].container("c");
        let still = c.get("k").await.unwrap();
        assert_eq!(still.value, None, "{size} nodes, {behind} ms behind");
        assert!(still.at >= gone.at);
        assert!(common::is_some(c.create("k", "new", Ttl::Never).await));
        cluster.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_shows_the_own_writes_and_one_of_another_cluster_is_refused() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for n in 0..50 {
        let put = cluster.nodes[n % 3]
            .container("c")
            .put("k", n.to_string())
            .await
            .unwrap();
        for node in &cluster.nodes {
            let local = node.container("c").at(ReadLevel::Local).since(put.token);
            assert_eq!(local.get("k").await.unwrap().value.unwrap(), n.to_string());
        }
    }
    let now = c.get("k").await.unwrap().token;
    let later = Token {
        at_ms: now.at_ms + 3_600_000,
        ..now
    };
    let refused = c.at(ReadLevel::Local).since(later).get("k").await;
    assert!(matches!(refused, Err(Error::Invalid(_))));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bounded_read_asks_nobody_while_its_node_is_not_too_far_behind() {
    let mut cluster = Cluster::with(3, |options| options.patience(Duration::from_secs(5))).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let put = c
        .put_with_ttl("k", "v", Duration::from_millis(100))
        .await
        .unwrap();
    let leader = cluster.leader().await;
    let last = cluster.nodes[(leader + 1) % 3].clone();
    let bounded = last
        .container("c")
        .at(ReadLevel::Bounded(Duration::from_millis(150)));
    until("what is closed is heard and reached", async || {
        let got = bounded.get("k").await;
        last.status().is_ready && got.is_ok_and(|got| got.value.is_some() && got.token >= put.token)
    })
    .await;
    // Nothing is answered about a moment that is not closed: 100 ms later this node still answers at the one that is.
    cluster.advance(100);
    let got = bounded.get("k").await.unwrap();
    assert_eq!(got.value.is_some(), millis(got.at) < START + 100);
    // The leader last: no other one is elected meanwhile.
    for at in [(leader + 2) % 3, leader] {
        cluster.nodes[at].close().await.unwrap();
    }
    bounded.get("k").await.unwrap();
    cluster.advance(200);
    assert!(matches!(bounded.get("k").await, Err(Error::NoLeader)));
    last.close().await.unwrap();
    cluster.nodes.clear();
}
