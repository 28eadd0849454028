//! Goal: the ends of items are given in the same order on all nodes, each once, and a cursor of one node is good on another one;
//! a copy that is kept by pages of changes, each from another node, is what the containers are.
//!
//! Method: clocks that tests move; random writes, and readers that change the node between two pages.

use std::time::Duration;

use crate::common::{self, Cluster, until};
use ebbtide::{ChangePosition, ExpiryCursor, Version};
use ebbtide_cluster::{Node, ReadLevel, Token};

const HOUR: Duration = Duration::from_secs(3_600);

/// All ends that a reader has to give by now: key and end.
async fn rest(ends: &mut ebbtide_cluster::Expirations, most: usize) -> Vec<(Vec<u8>, u64)> {
    let mut given = vec![];
    loop {
        let page = ends.next(most).await.unwrap().value;
        assert!(page.len() <= most);
        if page.is_empty() {
            return given;
        }
        let of = |ended: &ebbtide::Expiration| {
            (ended.key().to_vec(), common::millis(ended.expired_at()))
        };
        given.extend(page.iter().map(of));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_given_in_one_order_on_all_nodes_and_cursors_move_between_them() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    assert_eq!(c.keep_expired().await.unwrap().value, Duration::ZERO);
    c.set_keep_expired(HOUR).await.unwrap();
    let reader = |node: &Node| node.container("c").expirations(ExpiryCursor::start());
    let mut readers: Vec<_> = cluster.nodes.iter().map(reader).collect();
    let mut expected = vec![];
    for (number, millis) in [30_u64, 10, 20, 10, 40].into_iter().enumerate() {
        let key = vec![b'a' + number as u8];
        let ttl = Duration::from_millis(millis);
        let put = c.put_with_ttl(&key, "v", ttl).await.unwrap();
        expected.push((common::millis(put.at) + millis, key));
    }
    // One is written anew before its end, and one deleted: neither has that end.
    c.put("c", "for ever").await.unwrap();
    c.delete("e").await.unwrap();
    expected.retain(|(_, key)| *key != b"c" && *key != b"e");
    expected.sort();
    let due = expected[0].0;
    for reader in &mut readers {
        assert!(rest(reader, 2).await.is_empty(), "nothing has ended");
        assert_eq!(reader.next_due().map(common::millis), Some(due));
    }
    // Nobody writes from here on: readers have time moved.
    cluster.advance(15);
    let first = rest(&mut readers[0], 1).await;
    assert_eq!(first.len(), 2, "two have ended by now");
    let cursor = readers[0].cursor();
    cluster.advance(100);
    let mut told = first;
    let elsewhere = cluster.nodes[1].container("c");
    told.extend(rest(&mut elsewhere.expirations(cursor), 3).await);
    let told: Vec<_> = told.into_iter().map(|(key, end)| (end, key)).collect();
    assert_eq!(told, expected);
    for mut reader in readers.drain(1..) {
        let told = rest(&mut reader, 2).await;
        let told: Vec<_> = told.into_iter().map(|(key, end)| (end, key)).collect();
        assert_eq!(told, expected);
        assert_eq!(reader.next_due(), None);
    }
    let missing = cluster.nodes[2].container("missing");
    let error = missing.expirations(ExpiryCursor::start()).next(1).await;
    assert!(matches!(
        error,
        Err(ebbtide_cluster::Error::NoContainer(name)) if name == "missing"
    ));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_container_that_was_dropped_is_told_so() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    let mut ends = c.expirations(ExpiryCursor::start());
    assert!(ends.next(0).await.unwrap().value.is_empty());
    node.drop_container("c").await.unwrap();
    for _ in 0..2 {
        let gone = ends.next(1).await.unwrap_err();
        assert!(
            matches!(&gone, ebbtide_cluster::Error::NoContainer(name) if name == "c"),
            "{gone}"
        );
    }
    node.create_container("c").await.unwrap();
    assert_eq!(c.keep_expired().await.unwrap().value, Duration::ZERO);
    c.set_keep_expired(HOUR).await.unwrap();
    c.put_with_ttl("k", "v", Duration::from_millis(5))
        .await
        .unwrap();
    cluster.advance(100);
    let mut ends = c.expirations(ExpiryCursor::start());
    // Of at least one.
    assert_eq!(ends.next(0).await.unwrap().value[0].key(), b"k");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_reader_waits_for_no_leader_and_sees_the_end_once_there_is_one() {
    let mut cluster = Cluster::of(2).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.set_keep_expired(HOUR).await.unwrap();
    let put = c
        .put_with_ttl("k", "v", Duration::from_millis(10))
        .await
        .unwrap();
    let mut reader = cluster.nodes[0]
        .container("c")
        .since(put.token)
        .at(ReadLevel::Local)
        .expirations(ExpiryCursor::start());
    let (addr, _) = cluster.stop(1).await;
    cluster.advance(1_000);
    assert!(reader.next(1).await.unwrap().value.is_empty());
    cluster.start_again(1, &addr).await;
    let mut given = vec![];
    until("the end is given", async || {
        cluster.advance(100);
        given.extend(reader.next(10).await.unwrap().value);
        !given.is_empty()
    })
    .await;
    assert_eq!((given.len(), given[0].key()), (1, &b"k"[..]));
    cluster.close().await;
}

/// A copy of all containers.
#[derive(Default)]
struct Copy {
    told: testkit::copy::Copy,
    pages: usize,
}

impl Copy {
    /// All that is told by now, each page by another node; returns the moment of the last answer.
    async fn follow(
        &mut self,
        nodes: &[Node],
        mut position: ChangePosition,
    ) -> (ChangePosition, std::time::SystemTime) {
        loop {
            let node = &nodes[self.pages % nodes.len()];
            let level = ReadLevel::Linearizable;
            // Some are so small that they would hold nothing but what the crate itself writes.
            let limit = 1 + self.pages % 7;
            let page = node.changes(level, Token::default(), position, limit);
            let page = page.await;
            let page = page.unwrap();
            self.pages += 1;
            position = page.value.position;
            if page.value.changes.is_empty() {
                return (position, page.at);
            }
            for change in page.value.changes {
                self.told.apply(change, page.at).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_by_changes_from_node_after_node_is_what_the_containers_are() {
    let cluster = Cluster::of(3).await;
    let mut random = testkit::random::Random(41);
    let names = ["a", "b", "c"];
    for name in names {
        cluster.nodes[0].create_container(name).await.unwrap();
    }
    let (mut copy, mut position) = (Copy::default(), Version::start().into());
    for round in 0..12 {
        for _ in 0..40 {
            let node = random.below(3);
            let c = cluster.nodes[node].container(names[random.below(3)]);
            let key = [b'a' + random.below(20) as u8];
            match random.below(10) {
                0 => {
                    c.delete(key).await.unwrap();
                }
                1 => {
                    c.delete_range([key[0]]..[key[0] + 3]).await.unwrap();
                }
                2 => {
                    let default = Duration::from_millis(20 + random.below(500) as u64);
                    c.set_default_ttl(default).await.unwrap();
                }
                3 => {
                    let ttl = Duration::from_millis(1 + random.below(300) as u64);
                    c.put_with_ttl(key, "short", ttl).await.unwrap();
                }
                _ => {
                    c.put(key, "v").await.unwrap();
                }
            }
            cluster.advance(random.below(10) as u64);
        }
        if round == 6 {
            assert!(cluster.nodes[1].drop_container("b").await.unwrap().value);
            cluster.nodes[2].create_container("b").await.unwrap();
        }
        let at;
        (position, at) = copy.follow(&cluster.nodes, position).await;
        assert_eq!(copy.told.parts.keys().collect::<Vec<_>>(), names);
        for name in names {
            let c = cluster.nodes[round % 3].container(name);
            let items = c.range(.., 100).await.unwrap();
            // Clocks stand still here, so both are of one moment.
            assert_eq!(items.at, at, "round {round}");
            let items = items.value.iter().map(|item| item.key().to_vec());
            let own = copy.told.parts[name]
                .live(at)
                .map(|item| item.key().to_vec());
            assert_eq!(
                own.collect::<Vec<_>>(),
                items.collect::<Vec<_>>(),
                "{name} in round {round}"
            );
        }
    }
    assert!(copy.pages > 40, "{}", copy.pages);
    cluster.close().await;
}

/// Commands are not counted where each takes the place of the one before; which of them are known one by one is the same on all nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_from_the_start_is_told_what_the_latest_commands_have_ended() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.set_keep_expired(HOUR).await.unwrap();
    let moment = |millis| std::time::UNIX_EPOCH + Duration::from_millis(millis);
    let mut last = None;
    for n in 0..100_u64 {
        let ttl = ebbtide::Ttl::Until(moment(common::START + 1_000_000 + n));
        c.put_with_ttl(format!("{n:03}"), "v", ttl).await.unwrap();
    }
    for n in 0..100 {
        last = Some(
            c.expire_before(moment(common::START + 1_000_001 + n))
                .await
                .unwrap(),
        );
    }
    cluster.advance(1_000);
    let expected: Vec<_> = (36..100).map(|n| format!("{n:03}").into_bytes()).collect();
    for node in &cluster.nodes {
        let c = node.container("c").since(last.as_ref().unwrap().token);
        let ended = rest(&mut c.expirations(ExpiryCursor::start()), 10).await;
        let keys: Vec<_> = ended.into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, expected);
        let mut all = c.expirations(ExpiryCursor::at(moment(common::START)));
        let gone = all.next(10).await.unwrap_err();
        assert!(
            matches!(&gone, ebbtide_cluster::Error::Engine(error) if error.is_expirations_gone()),
            "{gone}"
        );
    }
    cluster.close().await;
}
