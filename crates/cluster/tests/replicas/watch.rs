//! Goal: a watcher on any node is told every write, in the same order on all of them, and ends between them; who keeps a copy by it
//! has the container; it wakes for a write of another node, and for an end where nobody writes; and a call that is dropped takes no event along.
//!
//! Method: clocks that tests move; random writes by all nodes, and a watcher on each.

use std::collections::BTreeMap;
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{self, Cluster};
use ebbtide::{Version, WatchEvent};
use ebbtide_cluster::{Answered, Error, ReadLevel, Token, Watch};
use testkit::random::Random;

const LONG: Duration = Duration::from_secs(60);

fn shown(event: &WatchEvent) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match event {
        WatchEvent::Put(item) => format!("{}: {}", item.version(), text(item.key())),
        WatchEvent::Delete { key, version } => format!("{version}: -{}", text(key)),
        WatchEvent::DeleteRange { from, version, .. } => format!("{version}: -{}..", text(from)),
        WatchEvent::Ended(ended) => {
            let at = common::millis(ended.expired_at());
            format!("{} ended at {at}", text(ended.key()))
        }
        other => format!("{other:?}"),
    }
}

/// All that there is by now, up to `most` in each call.
async fn rest(watch: &mut Watch, most: usize) -> Vec<WatchEvent> {
    let mut given = vec![];
    loop {
        let page = watch.next(most).await.unwrap().value;
        assert!(page.len() <= most);
        if page.is_empty() {
            return given;
        }
        given.extend(page);
    }
}

type Copy = BTreeMap<Vec<u8>, Version>;

fn take_in(copy: &mut Copy, event: &WatchEvent) {
    match event {
        WatchEvent::Put(item) => drop(copy.insert(item.key().to_vec(), item.version())),
        WatchEvent::Delete { key, .. } => drop(copy.remove(&key[..])),
        WatchEvent::DeleteRange { from, to, .. } => copy
            .retain(|key, _| key[..] < from[..] || to.as_ref().is_some_and(|to| key[..] >= to[..])),
        WatchEvent::Ended(ended) => assert_eq!(copy.remove(ended.key()), Some(ended.version())),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_told_in_one_order_on_all_nodes_and_ends_between_them() {
    let cluster = Cluster::of(3).await;
    let created = cluster.nodes[0].create_container("c").await.unwrap();
    // So no end leaves a disk before a watcher that is slow has it.
    let kept = created.set_keep_expired(LONG * 60).await.unwrap();
    let mut watches = vec![];
    for node in &cluster.nodes {
        watches.push(
            node.container("c")
                .since(kept.token)
                .watch(..)
                .await
                .unwrap(),
        );
    }
    let mut random = Random(61);
    let (mut told, mut copies) = (vec![vec![]; 3], vec![Copy::new(); 3]);
    for round in 0..20 {
        let mut last = Token::default();
        for _ in 0..30 {
            let c = cluster.nodes[random.below(3)].container("c");
            let key = [b'a' + random.below(20) as u8];
            let token = match random.below(12) {
                0 => c.delete(key).await.unwrap().token,
                1 => c.delete_range([key[0]]..[key[0] + 3]).await.unwrap().token,
                2 => {
                    let default = Duration::from_millis(20 + random.below(500) as u64);
                    c.set_default_ttl(default).await.unwrap().token
                }
                3 => c.expire_before(moment(&cluster, 20)).await.unwrap().token,
                4..7 => {
                    let ttl = Duration::from_millis(1 + random.below(300) as u64);
                    c.put_with_ttl(key, "short", ttl).await.unwrap().token
                }
                _ => c.put(key, "v").await.unwrap().token,
            };
            last = last.max(token);
            cluster.advance(random.below(10) as u64);
        }
        last = last.max(created.put("z", "").await.unwrap().token);
        let there = created.since(last).range(.., 100).await.unwrap();
        // An end is told when its millisecond is over.
        cluster.advance(1);
        last = last.max(created.delete("z").await.unwrap().token);
        let there: Copy = there
            .value
            .iter()
            .filter(|item| item.key() != b"z")
            .map(|item| (item.key().to_vec(), item.version()))
            .collect();
        for (at, watch) in watches.iter_mut().enumerate() {
            if at != round % 3 && round < 19 {
                continue; // it comes later, and is told all the same
            }
            let node = cluster.nodes[at].container("c").since(last);
            node.at(ReadLevel::Local).first().await.unwrap();
            for event in rest(watch, 1 + round).await {
                take_in(&mut copies[at], &event);
                told[at].push(shown(&event));
            }
            assert_eq!(copies[at], there, "node {at} in round {round}");
        }
    }
    // An end is told by who comes before its key is written again.
    let is_end = |event: &String| event.contains("ended");
    assert!(told.iter().all(|told| told.iter().any(is_end)));
    told.iter_mut()
        .for_each(|told| told.retain(|event| !is_end(event)));
    assert!(told[0].len() > 500);
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0], told[2]);
    cluster.close().await;
}

fn moment(cluster: &Cluster, millis: u64) -> std::time::SystemTime {
    let now = common::wall(&cluster.clocks[0]);
    std::time::UNIX_EPOCH + Duration::from_millis(now + millis)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_wakes_for_a_write_of_another_node_and_for_an_end() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let put = c.put("before", "").await.unwrap();
    let there = cluster.nodes[2].container("c").since(put.token);
    let mut watch = there.watch("a".."x").await.unwrap();
    assert!(!watch.wait(Duration::ZERO).await.unwrap());
    assert!(!watch.wait(Duration::from_millis(20)).await.unwrap());
    let (woken, put) = tokio::join!(watch.wait(LONG), async {
        c.put("y", "not in the range").await.unwrap();
        c.put_with_ttl("k", "v", Duration::from_millis(500)).await
    });
    assert!(woken.unwrap());
    put.unwrap();
    let events = rest(&mut watch, 10).await;
    assert!(
        matches!(&events[..], [WatchEvent::Put(item)] if item.key() == b"k"),
        "{events:?}"
    );
    // Nobody writes from here on: the watcher has time moved.
    let (woken, ()) = tokio::join!(watch.wait(LONG), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cluster.advance(1_000);
    });
    assert!(woken.unwrap());
    let events = rest(&mut watch, 10).await;
    assert!(
        matches!(&events[..], [WatchEvent::Ended(ended)] if ended.key() == b"k"),
        "{events:?}"
    );
    let missing = cluster.nodes[2].container("missing").watch(..).await;
    assert!(matches!(missing, Err(Error::NoContainer(name)) if name == "missing"));
    let waiting = tokio::spawn(async move { watch.wait(LONG).await });
    let addr = cluster.nodes[2].addr().to_owned();
    cluster.nodes[2].close().await.unwrap();
    assert!(
        matches!(waiting.await.unwrap(), Err(Error::Closed)),
        "{addr}"
    );
    for node in &cluster.nodes[..2] {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_dropped_is_watched_no_more_and_one_made_anew_is() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    let mut watch = c.watch(..).await.unwrap();
    let last = c.put("k", "1").await.unwrap().value;
    assert_eq!(rest(&mut watch, 1).await.len(), 1);
    node.drop_container("c").await.unwrap();
    for _ in 0..2 {
        let gone = watch.next(1).await.unwrap_err();
        assert!(
            matches!(&gone, Error::NoContainer(name) if name == "c"),
            "{gone}"
        );
        let gone = watch.wait(LONG).await.unwrap_err();
        assert!(
            matches!(&gone, Error::NoContainer(name) if name == "c"),
            "{gone}"
        );
    }
    node.create_container("c").await.unwrap();
    c.put("k", "2").await.unwrap();
    let events = rest(&mut watch, 10).await;
    assert!(
        matches!(&events[..], [WatchEvent::Lost { from }] if *from == last),
        "{events:?}"
    );
    c.put("k", "3").await.unwrap();
    assert_eq!(rest(&mut watch, 10).await.len(), 1);
    cluster.close().await;
}

/// The value of an answer, which is of a moment of this cluster.
fn of_now<T>(answered: Answered<T>) -> T {
    assert!(common::millis(answered.at) >= common::START);
    answered.value
}

/// A call that is dropped at any moment takes no event along.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_loses_no_event() {
    let cluster = Cluster::of(1).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let c = cluster.nodes[0].container("c");
    let mut watch = c.watch(..).await.unwrap();
    let mut given = vec![];
    for n in 0..200_u32 {
        c.put(n.to_be_bytes(), "v").await.unwrap();
        {
            let mut next = std::pin::pin!(watch.next(3));
            let mut context = Context::from_waker(Waker::noop());
            // Begun, and dropped; or ready at once, and then given.
            match next.as_mut().poll(&mut context) {
                Poll::Ready(page) => given.extend(of_now(page.unwrap())),
                Poll::Pending if n % 2 == 0 => {
                    tokio::time::sleep(Duration::from_micros(u64::from(n))).await;
                }
                Poll::Pending => {}
            }
        }
        if n % 7 == 0 {
            given.extend(of_now(watch.next(2).await.unwrap()));
        }
    }
    given.extend(rest(&mut watch, 100).await);
    let keys: Vec<_> = given
        .iter()
        .map(|event| match event {
            WatchEvent::Put(item) => item.key().to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    let all: Vec<_> = (0..200_u32).map(|n| n.to_be_bytes().to_vec()).collect();
    assert_eq!(keys, all);
    cluster.close().await;
}
