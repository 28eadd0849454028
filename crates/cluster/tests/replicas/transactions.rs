//! Goal: a transaction is done as if nothing else happened between its reads and its writes: no other write, no new item in a range
//! that it read, and no end of an item.
//!
//! Method: closures that let others write, or time pass, between their reads and their end; and sums that stay the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::Cluster;
use ebbtide::Ttl;
use ebbtide_cluster::{Container, Error, Item, Transaction};

fn number(value: Option<&[u8]>) -> i64 {
    value.map_or(0, |text| {
        std::str::from_utf8(text).unwrap().parse().unwrap()
    })
}

/// Runs a transaction that reads by `read` and writes "sum" of what it saw; `meanwhile` happens after the reads of its first attempt.
async fn sum_with(
    cluster: &Cluster,
    read: impl Fn(&mut Transaction, &Container) -> Result<i64, Error> + Send + Sync + 'static,
    meanwhile: impl AsyncFn(Container) + Send + Sync + 'static,
) -> (i64, usize) {
    let attempts = Arc::new(AtomicUsize::new(0));
    let (c, counted) = (cluster.nodes[0].container("c"), attempts.clone());
    let runtime = tokio::runtime::Handle::current();
    let work = move |tx: &mut Transaction| {
        let sum = read(tx, &c)?;
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            runtime.block_on(meanwhile(c.clone()));
        }
        tx.put(&c, "sum", sum.to_string());
        Ok::<_, Error>(sum)
    };
    let done = cluster.nodes[1].transaction(work).await.unwrap();
    let stored = cluster.nodes[2].container("c").get("sum").await.unwrap();
    assert_eq!(number(stored.value.as_deref()), done.value);
    (done.value, attempts.load(Ordering::Relaxed))
}

/// Puts an item meanwhile.
fn put(key: &'static str, value: &'static str) -> impl AsyncFn(Container) + Send + Sync + 'static {
    async move |c: Container| {
        c.put(key, value).await.unwrap();
    }
}

fn range(tx: &mut Transaction, c: &Container) -> Result<i64, Error> {
    let items: Vec<Item> = tx.range(c, "a".."c", 100)?;
    Ok(items.iter().map(|item| number(Some(item.value()))).sum())
}

fn one(tx: &mut Transaction, c: &Container) -> Result<i64, Error> {
    Ok(number(tx.get(c, "a1")?.as_deref()))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_between_reads_and_writes_is_a_conflict() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("a1", "1").await.unwrap();
    c.put("b1", "10").await.unwrap();
    let clock = cluster.clocks.clone();

    assert_eq!(sum_with(&cluster, range, async |_| {}).await, (11, 1));
    // A write of a key that was read; of one that was not.
    assert_eq!(sum_with(&cluster, one, put("a1", "2")).await, (2, 2));
    assert_eq!(sum_with(&cluster, one, put("b1", "20")).await, (2, 1));
    // The same value is another write.
    assert_eq!(sum_with(&cluster, one, put("a1", "2")).await, (2, 2));
    // An item that comes, changes or goes in a range; one beside it.
    assert_eq!(sum_with(&cluster, range, put("a2", "100")).await, (122, 2));
    assert_eq!(
        sum_with(&cluster, range, async |c| {
            c.touch("b1").await.unwrap();
        })
        .await,
        (122, 2)
    );
    assert_eq!(
        sum_with(&cluster, range, async |c| {
            c.delete("a2").await.unwrap();
        })
        .await,
        (22, 2)
    );
    assert_eq!(sum_with(&cluster, range, put("c", "5")).await, (22, 1));
    // One behind all that was shown.
    assert_eq!(sum_with(&cluster, range, put("b9", "3")).await, (25, 2));
    c.delete("b9").await.unwrap();
    // A key that was not there.
    let none = |tx: &mut Transaction, c: &Container| Ok(number(tx.get(c, "a9")?.as_deref()));
    assert_eq!(sum_with(&cluster, none, put("a9", "7")).await, (7, 2));
    c.delete("a9").await.unwrap();

    // An end, in a range and of a key; nobody writes.
    c.put_with_ttl("a1", "2", Duration::from_millis(500))
        .await
        .unwrap();
    let pass = move |clocks: Vec<ebbtide::ManualClock>| {
        async move |_: Container| {
            clocks
                .iter()
                .for_each(|clock| clock.advance(Duration::from_millis(500)))
        }
    };
    assert_eq!(
        sum_with(&cluster, range, pass(clock.clone())).await,
        (20, 2)
    );
    c.put_with_ttl("a1", "2", Duration::from_millis(500))
        .await
        .unwrap();
    assert_eq!(sum_with(&cluster, one, pass(clock)).await, (0, 2));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_read_as_far_as_it_was_consumed() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for key in ["a1", "a2", "a3"] {
        c.put(key, "1").await.unwrap();
    }
    let page = |tx: &mut Transaction, c: &Container| {
        let items = tx.range(c, "a".."c", 2)?;
        Ok(items.iter().map(|item| number(Some(item.value()))).sum())
    };
    assert_eq!(sum_with(&cluster, page, put("a3", "9")).await, (2, 1));
    assert_eq!(sum_with(&cluster, page, put("a2", "9")).await, (10, 2));
    assert_eq!(sum_with(&cluster, page, put("a11", "5")).await, (6, 2));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_sees_its_own_writes_and_an_error_writes_nothing() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    c.put("a", "1").await.unwrap();
    c.put("b", "2").await.unwrap();
    let of = c.clone();
    let shown = node
        .transaction(move |tx| {
            tx.put(&of, "a", "one");
            tx.delete(&of, "b");
            tx.put_with_ttl(&of, "aa", "new", Ttl::Never)?;
            assert_eq!(tx.get(&of, "a")?.unwrap(), "one");
            assert!(tx.get(&of, "b")?.is_none());
            let keys = |items: Vec<Item>| -> Vec<String> {
                items
                    .iter()
                    .map(|item| String::from_utf8(item.key().to_vec()).unwrap())
                    .collect()
            };
            assert_eq!(keys(tx.range(&of, .., 1)?), ["a"]);
            Ok::<_, Error>(keys(tx.range(&of, .., 9)?))
        })
        .await
        .unwrap();
    assert_eq!(shown.value, ["a", "aa"]);
    let of = c.clone();
    let refused = node
        .transaction(move |tx| {
            tx.put(&of, "a", "never");
            Err::<(), _>(Error::other("no"))
        })
        .await;
    assert_eq!(refused.unwrap_err().to_string(), "no");
    assert_eq!(c.get("a").await.unwrap().value.unwrap(), "one");
    let none = node.container("none");
    let missing = node
        .transaction(move |tx| tx.get(&none, "k").map(drop))
        .await;
    assert!(matches!(missing, Err(Error::NoContainer(_))));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_says_of_a_closed_node_that_it_is_closed() {
    let cluster = Cluster::of(1).await;
    let node = cluster.nodes[0].clone();
    let c = node.create_container("c").await.unwrap();
    let (closing, runtime) = (node.clone(), tokio::runtime::Handle::current());
    let late = node
        .transaction(move |tx| {
            runtime.block_on(closing.close()).unwrap();
            tx.get(&c, "a").map(drop)
        })
        .await;
    assert!(matches!(late, Err(Error::Closed)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn money_that_is_moved_by_three_nodes_stays_the_same() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for account in 0..4 {
        c.put(format!("{account}"), "100").await.unwrap();
    }
    let moving = cluster
        .nodes
        .iter()
        .cloned()
        .enumerate()
        .map(|(seed, node)| {
            tokio::spawn(async move {
                let mut random = testkit::random::Random(seed as u64);
                for _ in 0..15 {
                    let (from, to, sum) =
                        (random.below(4), random.below(4), random.below(30) as i64);
                    let c = node.container("c");
                    let work = move |tx: &mut Transaction| {
                        let (from, to) = (from.to_string(), to.to_string());
                        let had = number(tx.get(&c, &from)?.as_deref());
                        tx.put(&c, &from, (had - sum).to_string());
                        let had = number(tx.get(&c, &to)?.as_deref());
                        tx.put(&c, &to, (had + sum).to_string());
                        Ok::<_, Error>(())
                    };
                    node.transaction(work).await.unwrap();
                    let c = node.container("c");
                    let total = move |tx: &mut Transaction| {
                        let items = tx.range(&c, .., 9)?;
                        Ok::<_, Error>(
                            items
                                .iter()
                                .map(|item| number(Some(item.value())))
                                .sum::<i64>(),
                        )
                    };
                    assert_eq!(node.transaction(total).await.unwrap().value, 400);
                }
            })
        });
    for moved in moving.collect::<Vec<_>>() {
        moved.await.unwrap();
    }
    cluster.close().await;
}
