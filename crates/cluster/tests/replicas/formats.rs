//! Goal: a cluster is upgraded node by node while it is written and read, without a wrong answer; its log comes to the later format
//! when all nodes speak it and not before, over restarts and snapshots; and what is too old then is refused and misreads nothing (I10).
//!
//! Method: nodes that speak the first format alone are opened again, one after the other, as those of this version.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, Cluster, until};
use ebbtide_cluster::{Batch, Error, Node, NodeOptions};
use tokio::task::JoinHandle;

fn quickly(options: NodeOptions) -> NodeOptions {
    options.reclaim_within(Duration::from_secs(8))
}

/// Writes and reads all the time, by whichever nodes run.
#[derive(Default)]
struct Load {
    nodes: Mutex<Vec<Node>>,
    done: AtomicU64,
    /// The last node that spoke the first format alone has been closed.
    may_begin: AtomicBool,
    is_over: AtomicBool,
}

impl Load {
    fn node(&self, turn: u64) -> Node {
        let nodes = self.nodes.lock().unwrap();
        nodes[turn as usize % nodes.len()].clone()
    }

    fn runs_on(&self, cluster: &Cluster) {
        self.nodes.lock().unwrap().clone_from(&cluster.nodes);
    }

    /// Keys of its own, and what the last write of each left.
    async fn client(self: Arc<Load>, client: u64) {
        let mut model: HashMap<String, String> = HashMap::new();
        let mut turn = client;
        while !self.is_over.load(Ordering::Relaxed) {
            turn += 1;
            let (key, value) = (format!("{client}-{}", turn % 7), turn.to_string());
            // The same write again, by another node, until one says that it is done.
            let mut by = turn;
            let put = async |by| {
                let c = self.node(by).container("c");
                c.put(&key, value.clone()).await
            };
            while put(by).await.is_err() {
                by += 1;
            }
            model.insert(key, value);
            for (key, value) in &model {
                let read = self.node(turn).container("c").get(key).await;
                if let Ok(read) = read {
                    assert_eq!(read.value.as_deref(), Some(value.as_bytes()), "{key}");
                }
            }
            self.like(client, turn).await;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn like(&self, client: u64, turn: u64) {
        let node = self.node(turn);
        let c = node.container("c");
        let mut batch = Batch::new();
        batch.put_like(&c, format!("like-{client}"), turn.to_string(), &c, "base");
        let might = self.may_begin.load(Ordering::SeqCst);
        let written = node.write(batch).await;
        let might = might || self.may_begin.load(Ordering::SeqCst);
        match written {
            Ok(_) => assert!(might, "a node does not speak format 2"),
            Err(Error::NotSpoken { format, .. }) => assert_eq!(format, 2),
            Err(error) => assert!(
                error.is_retryable() || matches!(error, Error::Closed),
                "{error:?}"
            ),
        }
    }

    async fn some(&self) {
        let before = self.done.load(Ordering::Relaxed);
        until("writes go on", async || {
            self.done.load(Ordering::Relaxed) > before + 20
        })
        .await;
    }
}

fn formats(cluster: &Cluster) -> Vec<u16> {
    cluster
        .nodes
        .iter()
        .map(|node| node.status().format)
        .collect()
}

/// The members that do not speak format 2, when the leader has heard from all that run.
async fn silent(cluster: &Cluster) -> Vec<u64> {
    let mut silent = vec![];
    until("the leader has heard of all", async || {
        let leader = &cluster.nodes[cluster.leader().await];
        let surveyed = leader.survey().await;
        let is_same = |one: &ebbtide_cluster::Surveyed| {
            let node = cluster.nodes.iter().find(|node| node.id() == one.member.id);
            one.speaks.is_some() && one.speaks == node.map(|node| node.status().speaks)
        };
        let old = surveyed.iter().filter(|one| one.speaks < Some(2));
        silent = old.map(|one| one.member.id).collect();
        surveyed.iter().all(is_same)
    })
    .await;
    silent
}

async fn refused_like(cluster: &Cluster) -> Vec<u64> {
    let leader = &cluster.nodes[cluster.leader().await];
    let c = leader.container("c");
    let mut batch = Batch::new();
    batch.put_like(&c, "k", "v", &c, "base");
    match leader.write(batch).await {
        Err(Error::NotSpoken {
            format: 2,
            mut nodes,
        }) => {
            nodes.sort();
            nodes
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until no node has what was written so far in its log.
async fn purged(cluster: &Cluster) {
    let last = cluster.nodes[0]
        .container("c")
        .put("mark", "m")
        .await
        .unwrap()
        .token;
    until("the log is purged", async || {
        cluster
            .nodes
            .iter()
            .all(|node| node.status().purged >= last.index)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_upgraded_one_by_one_under_load_and_the_log_when_all_are() {
    let mut cluster = Cluster::with(0, quickly).await;
    for number in 0..3 {
        cluster.speaks.insert(number, 1);
        cluster.grow().await;
    }
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("base", "b").await.unwrap();
    let load = Arc::new(Load::default());
    load.runs_on(&cluster);
    let clients: Vec<JoinHandle<()>> = (0..2)
        .map(|client| tokio::spawn(load.clone().client(client)))
        .collect();
    load.some().await;
    let all = silent(&cluster).await;
    assert_eq!((all.len(), &refused_like(&cluster).await), (3, &all));

    // Each time the node that has run for longest, which is the first one.
    for number in 0..3 {
        let (addr, id) = cluster.stop(0).await;
        load.runs_on(&cluster);
        load.some().await;
        if number == 2 {
            // It comes back by a snapshot of a log of the first format.
            purged(&cluster).await;
        }
        assert_eq!(
            formats(&cluster),
            [1, 1],
            "node {id} does not speak format 2 and is a member"
        );
        load.may_begin.store(number == 2, Ordering::SeqCst);
        cluster.speaks.remove(&number);
        cluster.start_again(number, &addr).await;
        load.runs_on(&cluster);
        if number < 2 {
            let silent = silent(&cluster).await;
            assert_eq!(silent.len(), 2 - number);
            assert_eq!(refused_like(&cluster).await, silent);
            assert_eq!(formats(&cluster), [1, 1, 1]);
        }
        if number == 1 {
            // One that is upgraded already is opened again.
            let (addr, _) = cluster.stop(1).await;
            load.some().await;
            cluster.start_again(0, &addr).await;
            cluster.nodes.swap(1, 2);
            load.runs_on(&cluster);
        }
    }
    until("the log is of format 2", async || {
        formats(&cluster) == [2, 2, 2]
    })
    .await;
    load.some().await;
    for node in &cluster.nodes {
        let c = node.container("c");
        let mut batch = Batch::new();
        batch.put_like(&c, format!("by {}", node.id()), "v", &c, "base");
        node.write(batch).await.unwrap();
    }
    load.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    common::agreed(&cluster.nodes[0]).await;

    // The entry that began the format is gone from the log: who comes new has it by the snapshot.
    purged(&cluster).await;
    cluster.grow().await;
    let new = cluster.nodes[3].status();
    assert_eq!((new.format, new.speaks), (2, 2));
    assert!(
        cluster
            .nodes
            .iter()
            .all(|node| node.status().trouble.is_none())
    );
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_too_old_opens_nothing_and_joins_nothing() {
    let mut cluster = Cluster::of(2).await;
    until("the log is of format 2", async || {
        formats(&cluster) == [2, 2]
    })
    .await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("base", "b").await.unwrap();
    let mut batch = Batch::new();
    batch.put_like(&c, "k", "v", &c, "base");
    cluster.nodes[1].write(batch).await.unwrap();
    let (addr, _) = cluster.stop(1).await;
    cluster.speaks.insert(1, 1);
    let opened = cluster.options(1).open(cluster.path(1)).await;
    let why = opened.unwrap_err().to_string();
    assert!(
        why.contains("of format 2") && why.contains("up to 1"),
        "{why}"
    );
    cluster.speaks.clear();
    cluster.start_again(1, &addr).await;
    assert_eq!(
        cluster.nodes[1]
            .container("c")
            .get("k")
            .await
            .unwrap()
            .value
            .unwrap(),
        "v"
    );

    let options = ebbtide_cluster::shared::speaking(common::options(), 1);
    let joined = options
        .join(cluster.nodes[0].addr())
        .open(cluster.path(2))
        .await;
    let why = joined.unwrap_err().to_string();
    assert!(
        why.contains("of format 2") && why.contains("up to 1"),
        "{why}"
    );
    assert!(!cluster.path(2).exists());
    assert_eq!(cluster.nodes[0].members().len(), 2);
    cluster.close().await;
}
