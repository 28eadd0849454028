//! Goal: who was away for long, or comes new, gets a snapshot and is the same; and a node whose clock is off does not lead.
//!
//! Method: entries of the log go quickly, so that a node that was away finds them gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Cluster, until};
use ebbtide_cluster::{Error, ReadLevel};

fn quickly(options: ebbtide_cluster::NodeOptions) -> ebbtide_cluster::NodeOptions {
    options
        .reclaim_within(Duration::from_secs(8))
        .memtable_bytes(1 << 20)
}

/// The folder of the state that counts: another one after each snapshot.
fn current(folder: &Path) -> PathBuf {
    let group = folder.join("group-0");
    let name = std::fs::read_to_string(group.join("CURRENT")).unwrap();
    group.join(name.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_away_for_long_or_comes_new_gets_a_snapshot() {
    let mut cluster = Cluster::with(3, quickly).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("first", "1").await.unwrap();
    let (addr, id) = cluster.stop(2).await;
    let away = cluster.folder.path().join("node-2");
    let before = current(&away);
    cluster.nodes[0].create_container("d").await.unwrap();
    cluster.nodes[0].drop_container("d").await.unwrap();
    let e = cluster.nodes[0].create_container("e").await.unwrap();
    for n in 0..200 {
        c.put(format!("{n:03}"), vec![n as u8; 2_000])
            .await
            .unwrap();
    }
    let last = e.put("k", "v").await.unwrap();
    let is_gone = |node: &ebbtide_cluster::Node| node.status().purged >= last.token.index;
    until("the log is purged", async || {
        cluster.nodes.iter().all(is_gone)
    })
    .await;

    cluster.start_again(2, &addr).await;
    let back = cluster.nodes[2].clone();
    assert_eq!(back.id(), id);
    let there = back.container("e").at(ReadLevel::Local).since(last.token);
    assert_eq!(there.get("k").await.unwrap().value.unwrap(), "v");
    assert_ne!(current(&away), before, "a snapshot is another state");
    cluster.grow().await;
    for node in &cluster.nodes {
        let local = node.container("c").at(ReadLevel::Local).since(last.token);
        let items = local.range(.., 999).await.unwrap().value;
        assert_eq!(items.len(), 201);
        let all = c.range(.., 999).await.unwrap().value;
        assert_eq!(items, all, "keys, values, versions and ends are the same");
        assert_eq!(node.containers().await.unwrap().value, ["c", "e"]);
        // It goes on from the snapshot: versions are given alike.
        let put = node.container("e").put("more", "x").await.unwrap();
        for other in &cluster.nodes {
            let item = other
                .container("e")
                .item("more")
                .await
                .unwrap()
                .value
                .unwrap();
            assert_eq!(item.version(), put.value);
        }
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_opens_again_while_nobody_leads_and_joins_nothing() {
    let mut cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let put = c.put("k", "v").await.unwrap();
    let there = cluster.nodes[2].container("c").at(ReadLevel::Local);
    there.since(put.token).get("k").await.unwrap();
    let contact = cluster.nodes[0].addr().to_owned();
    while !cluster.nodes.is_empty() {
        cluster.stop(0).await;
    }
    let options = common::options().join(contact);
    let options = options.join_within(Duration::from_secs(1));
    let alone = options.open(cluster.folder.path().join("node-2")).await;
    let alone = alone.unwrap();
    assert_eq!(alone.members().len(), 3);
    let local = alone.container("c").at(ReadLevel::Local);
    assert_eq!(local.get("k").await.unwrap().value.unwrap(), "v");
    alone.close().await.unwrap();
}

/// Its vote, its entries and its state are promises to the others: none of them is begun anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_has_lost_a_part_is_an_error_and_loses_nothing_more() {
    let mut cluster = Cluster::of(1).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    cluster.stop(0).await;
    let folder = cluster.folder.path().join("node-0");
    let away = cluster.folder.path().join("away");
    for part in [
        "log",
        "group-0",
        "group-0/state-0",
        "group-0/CURRENT",
        "node",
    ] {
        std::fs::rename(folder.join(part), &away).unwrap();
        let refused = common::options().open(&folder).await.unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains(part.split('/').next().unwrap()),
            "{part}: {text}"
        );
        std::fs::rename(&away, folder.join(part)).unwrap();
    }
    std::fs::write(folder.join("group-0/CURRENT"), "state-7\n").unwrap();
    let refused = common::options().open(&folder).await.unwrap_err();
    assert!(refused.to_string().contains("state-7"), "{refused}");
    std::fs::write(folder.join("group-0/CURRENT"), "state-0\n").unwrap();
    let whole = common::options().open(&folder).await.unwrap();
    assert_eq!(
        whole.container("c").get("k").await.unwrap().value.unwrap(),
        "v"
    );
    whole.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_made_in_a_folder_that_has_nothing_else() {
    let folder = testkit::scratch();
    let db = ebbtide::Database::open(folder.path()).unwrap();
    db.close().unwrap();
    let refused = common::options().open(folder.path()).await.unwrap_err();
    assert!(
        refused.to_string().contains("holds other things"),
        "{refused}"
    );
    for none in ["node", "log", "group-0"] {
        assert!(!folder.path().join(none).exists());
    }
    ebbtide::Database::open(folder.path()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_said_not_to_be_done_is_not() {
    let mut cluster = Cluster::of(1).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let writing = (0..20).map(|task| {
        let c = c.clone();
        tokio::spawn(async move {
            for n in 0.. {
                match c
                    .create(format!("{task}-{n}"), "v", ebbtide::Ttl::Never)
                    .await
                {
                    Ok(_) => {}
                    Err(Error::Closed) => return Some(format!("{task}-{n}")),
                    Err(_) => return None,
                }
            }
            None
        })
    });
    let writing: Vec<_> = writing.collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (addr, _) = cluster.stop(0).await;
    cluster.start_again(0, &addr).await;
    let c = cluster.nodes[0].container("c");
    for one in writing {
        if let Some(key) = one.await.unwrap() {
            assert_eq!(c.get(&key).await.unwrap().value, None, "{key}");
        }
    }
    cluster.close().await;
}

/// It has another address than before, and does not know that it was taken out.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_taken_out_while_it_was_away_stays_out() {
    let mut cluster = Cluster::of(3).await;
    let (addr, id) = cluster.stop(2).await;
    cluster.nodes[0].remove(id).await.unwrap();
    let blocked = std::net::TcpListener::bind(addr).unwrap();
    let again = common::options();
    let again = again.open(cluster.folder.path().join("node-2")).await;
    let again = again.unwrap();
    assert_eq!(again.id(), id);
    // By then it has told the others several times over, or been told that it is none of them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for node in &cluster.nodes {
        assert_eq!(node.members().len(), 2);
    }
    drop(blocked);
    again.close().await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_clock_is_off_does_not_lead() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    let first = cluster.leader().await;
    let now = common::wall(&cluster.clocks[first]);
    cluster.clocks[first].jump(now + 3_600_000);
    let id = cluster.nodes[first].id();
    let other = &cluster.nodes[(first + 1) % 3];
    until("another one leads", async || {
        other.leader().is_some_and(|leader| leader != id)
    })
    .await;
    assert!(cluster.nodes[first].status().clock_behind_ms.unwrap() < -500);
    let put = cluster.nodes[first].container("c").put("k", "w").await;
    // Its own requests are of a clock that is ahead, unless it was quicker and time is there already.
    assert!(put.is_ok() || put.unwrap_err().to_string().contains("ahead"));
    other.container("c").put("k", "x").await.unwrap();

    cluster.clocks[first].jump(now);
    until("it is fit again", async || {
        cluster.nodes[first].status().clock_behind_ms == Some(0)
    })
    .await;
    other.transfer(id).await.unwrap();
    until("it leads", async || other.leader() == Some(id)).await;
    c.put("k", "y").await.unwrap();
    cluster.close().await;
}
