//! Goal: a node alone, and three of them, are one set of containers, whichever node is asked; a majority goes on without the rest,
//! and who comes back is the same again.
//!
//! Method: nodes in one process over the loopback, with clocks that tests move.

use std::time::Duration;

use crate::common::{self, Cluster, START, millis, options, until};
use ebbtide::{DefaultTtl, ManualClock, Ttl, Update};
use ebbtide_cluster::{Batch, Error, Expect, ReadLevel};

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_a_cluster_of_one_and_goes_on_as_it() {
    let folder = testkit::scratch();
    let clock = ManualClock::new(START);
    let open = async || {
        let options = options().clock(clock.clone());
        options.open(folder.path()).await.unwrap()
    };
    let node = open().await;
    let (id, cluster) = (node.id(), node.status().cluster);
    assert!(matches!(
        node.container("c").get("k").await,
        Err(Error::NoContainer(name)) if name == "c"
    ));
    let c = node.create_container("c").await.unwrap();
    let put = c.put("k", "v").await.unwrap();
    assert_eq!(millis(put.at), START);
    let item = c.item("k").await.unwrap();
    let shown = item.value.unwrap();
    assert_eq!(
        (&shown.value()[..], shown.version()),
        (&b"v"[..], put.value)
    );
    assert!(item.token >= put.token);
    node.close().await.unwrap();
    assert!(matches!(c.get("k").await, Err(Error::Closed)));

    let node = open().await;
    assert_eq!((node.id(), node.status().cluster), (id, cluster));
    let c = node.container("c");
    assert_eq!(c.get("k").await.unwrap().value.unwrap(), "v");
    until("the node says its new address", async || {
        node.status().is_ready && node.members()[0].addr == node.addr()
    })
    .await;
    drop((c, node));
    // The last handle is gone, and the folder is free.
    until("the folder is free", async || {
        match options().clock(clock.clone()).open(folder.path()).await {
            Ok(node) => {
                node.close().await.unwrap();
                true
            }
            Err(_) => false,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_takes_any_call() {
    let cluster = Cluster::of(3).await;
    let containers = cluster.nodes.iter().map(|node| node.container("c"));
    let containers: Vec<_> = containers.collect();
    cluster.nodes[1].create_container("c").await.unwrap();
    assert_eq!(cluster.nodes[2].containers().await.unwrap().value, ["c"]);
    for (at, c) in containers.iter().enumerate() {
        let put = c.put(format!("k{at}"), format!("v{at}")).await.unwrap();
        for other in &containers {
            let item = other.item(format!("k{at}")).await.unwrap().value.unwrap();
            assert_eq!(
                (&item.value()[..], item.version()),
                (format!("v{at}").as_bytes(), put.value)
            );
        }
        let (created, other) = (
            c.create("one", "first", Ttl::Never).await.unwrap(),
            c.create("one", "second", Ttl::Never).await.unwrap(),
        );
        assert_eq!((created.value.is_some(), other.value), (at == 0, None));
    }
    let [a, b, c] = &containers[..] else {
        unreachable!()
    };
    assert!(!common::is_some(a.replace("none", "v", Ttl::Never).await));
    assert!(common::is_some(b.replace("one", "third", Ttl::Never).await));
    let version = c.item("one").await.unwrap().value.unwrap().version();
    let newer = a
        .put_if("one", "fourth", Ttl::Never, Expect::Version(version))
        .await
        .unwrap();
    assert!(!common::is_some(
        b.put_if("one", "x", Ttl::Never, Expect::Version(version))
            .await
    ));
    let old = b.delete_if("one", Expect::Version(version)).await;
    assert!(old.unwrap().value.is_none());
    let newer = Expect::Version(newer.value.unwrap());
    assert!(b.delete_if("one", newer).await.unwrap().value.is_some());
    let taken = c.take("k0").await.unwrap().value.unwrap();
    assert_eq!((taken.key(), &taken.value()[..]), (&b"k0"[..], &b"v0"[..]));
    assert!(a.take("k0").await.unwrap().value.is_none());

    let keys = |items: Vec<ebbtide_cluster::Item>| -> Vec<String> {
        items
            .iter()
            .map(|item| String::from_utf8(item.key().to_vec()).unwrap())
            .collect()
    };
    assert_eq!(keys(a.range(.., 9).await.unwrap().value), ["k1", "k2"]);
    assert_eq!(keys(b.range_back(.., 1).await.unwrap().value), ["k2"]);
    assert_eq!(keys(c.prefix("k1", 9).await.unwrap().value), ["k1"]);
    assert_eq!(c.first().await.unwrap().value.unwrap().key(), b"k1");
    assert_eq!(b.last().await.unwrap().value.unwrap().key(), b"k2");
    assert_eq!(a.count("k2"..).await.unwrap().value, 1);
    let many = a.get_many(["k2", "k9", "k1"]).await.unwrap().value;
    assert_eq!(
        many.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, false, true]
    );
    b.delete_range("k1".."k2").await.unwrap();
    a.delete("k2").await.unwrap();
    assert!(c.is_empty().await.unwrap().value);
    assert!(
        a.put("", "v")
            .await
            .unwrap_err()
            .to_string()
            .contains("key")
    );
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_count_one_number_up() {
    let cluster = Cluster::of(3).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let counting = cluster.nodes.iter().map(|node| {
        let c = node.container("c");
        tokio::spawn(async move {
            for _ in 0..20 {
                let count = |item: Option<&ebbtide_cluster::Item>| {
                    let text = item.map_or("0", |item| std::str::from_utf8(item.value()).unwrap());
                    Update::Put((text.parse::<u64>().unwrap() + 1).to_string(), Ttl::Never)
                };
                assert!(c.update("n", count).await.unwrap().value);
            }
        })
    });
    for counted in counting.collect::<Vec<_>>() {
        counted.await.unwrap();
    }
    let c = cluster.nodes[2].container("c");
    assert_eq!(c.get("n").await.unwrap().value.unwrap(), "60");
    let seen = c.fetch_update("n", |_| Update::Keep).await.unwrap().value;
    assert_eq!((&seen.0.unwrap().value()[..], seen.1), (&b"60"[..], None));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_done_whole_or_not_at_all() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let (c, d) = (
        node.create_container("c").await.unwrap(),
        node.create_container("d").await.unwrap(),
    );
    let mut batch = Batch::new();
    batch
        .put(&c, "a", "1")
        .create(&d, "b", "2", Ttl::Never)
        .touch(&c, "a");
    batch.require(&c, "none", Expect::Absent);
    let written = node.write(batch.clone()).await.unwrap();
    assert!(written.value >= d.item("b").await.unwrap().value.unwrap().version());
    let again = node.write(batch).await.unwrap_err();
    assert!(
        matches!(&again, Error::Conflict { container, key } if container == "d" && key == b"b"),
        "{again}"
    );
    let mut batch = Batch::new();
    batch
        .delete(&c, "a")
        .create(&c, "a", "new", Ttl::Never)
        .put(&d, "x", "y");
    batch.require(&d, "b", Expect::Version(written.value));
    assert!(node.write(batch).await.unwrap_err().is_conflict());
    assert_eq!(c.get("a").await.unwrap().value.unwrap(), "1");
    assert!(!d.contains("x").await.unwrap().value);
    let mut batch = Batch::new();
    batch
        .put(&c, "a", "2")
        .put(&node.container("none"), "k", "v");
    assert!(matches!(
        node.write(batch).await,
        Err(Error::NoContainer(_))
    ));
    assert_eq!(c.get("a").await.unwrap().value.unwrap(), "1");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_made_and_dropped_for_all() {
    let mut cluster = Cluster::of(3).await;
    let an_hour = DefaultTtl::After(Duration::from_secs(3_600));
    let c = cluster.nodes[0]
        .create_container_with("c", an_hour)
        .await
        .unwrap();
    c.put("k", "v").await.unwrap();
    // It is there, and stays as it is.
    let same = cluster.nodes[1].create_container("c").await.unwrap();
    assert_eq!(same.default_ttl().await.unwrap().value, an_hour);
    assert_eq!(same.get("k").await.unwrap().value.unwrap(), "v");
    same.set_default_ttl(DefaultTtl::Off).await.unwrap();
    assert_eq!(c.default_ttl().await.unwrap().value, DefaultTtl::Off);
    assert!(cluster.nodes[2].drop_container("c").await.unwrap().value);
    assert!(!cluster.nodes[2].drop_container("c").await.unwrap().value);
    assert!(matches!(c.put("k", "v").await, Err(Error::NoContainer(_))));
    assert!(matches!(c.get("k").await, Err(Error::NoContainer(_))));
    // Another one of this name is another one.
    cluster.nodes[1].create_container("c").await.unwrap();
    assert!(c.get("k").await.unwrap().value.is_none());
    for name in ["", "a/b", "ebbtide-openraft"] {
        let refused = cluster.nodes[1].create_container(name).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{name:?}");
    }
    c.put("k", "new").await.unwrap();
    let (addr, _) = cluster.stop(2).await;
    cluster.start_again(2, &addr).await;
    let again = cluster.nodes[2].container("c");
    assert_eq!(again.get("k").await.unwrap().value.unwrap(), "new");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_when_the_leader_is_lost_and_it_comes_back_as_it_was() {
    let mut cluster = Cluster::of(3).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let first = cluster.leader().await;
    cluster.nodes[first]
        .container("c")
        .put("before", "1")
        .await
        .unwrap();
    let (addr, id) = cluster.stop(first).await;
    for node in &cluster.nodes {
        node.container("c")
            .put(format!("{}", node.id()), "2")
            .await
            .unwrap();
    }
    let second = cluster.leader().await;
    assert_ne!(cluster.nodes[second].id(), id);
    cluster.start_again(first, &addr).await;
    let back = cluster.nodes.last().unwrap();
    assert_eq!(back.id(), id);
    assert_eq!(back.container("c").count(..).await.unwrap().value, 3);
    back.container("c").put("after", "3").await.unwrap();
    let there = cluster.nodes[0].container("c").get("after").await.unwrap();
    assert_eq!(there.value.unwrap(), "3");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_answered_but_what_a_node_has() {
    let mut cluster = Cluster::with(3, |options| options.patience(Duration::from_secs(5))).await;
    cluster.nodes[0].create_container("c").await.unwrap();
    let written = cluster.nodes[0].container("c").put("k", "v").await.unwrap();
    let last = cluster.nodes[2]
        .container("c")
        .at(ReadLevel::Local)
        .since(written.token);
    assert_eq!(last.get("k").await.unwrap().value.unwrap(), "v");
    cluster.stop(0).await;
    cluster.stop(0).await;
    let c = cluster.nodes[0].container("c");
    let lost = c.put("k", "w").await.unwrap_err();
    assert!(
        matches!(lost, Error::NoLeader | Error::Unknown(_)),
        "{lost}"
    );
    assert!(lost.is_retryable());
    assert!(matches!(c.get("k").await, Err(Error::NoLeader)));
    assert_eq!(last.get("k").await.unwrap().value.unwrap(), "v");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_lead_when_they_are_told_to() {
    let mut cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for at in 0..50 {
        c.put(format!("{at}"), "v").await.unwrap();
    }
    cluster.grow().await;
    let fourth = cluster.nodes[3].clone();
    assert!(fourth.members().iter().all(|member| member.votes));
    assert_eq!(fourth.members().len(), 4);
    assert_eq!(fourth.container("c").count(..).await.unwrap().value, 50);

    cluster.nodes[1].transfer(fourth.id()).await.unwrap();
    until("the fourth leads", async || {
        fourth.leader() == Some(fourth.id())
    })
    .await;
    c.put("50", "v").await.unwrap();
    let refused = fourth.transfer(12).await.unwrap_err();
    assert!(matches!(refused, Error::Members(_)), "{refused}");

    let gone = cluster.nodes[1].id();
    fourth.remove(gone).await.unwrap();
    fourth.remove(gone).await.unwrap();
    until("it is out", async || fourth.members().len() == 3).await;
    cluster.stop(1).await;
    // Two of three are a majority; with the one that is gone counted, they would not be.
    cluster.stop(0).await;
    let c = cluster.nodes[0].container("c");
    c.put("51", "v").await.unwrap();
    assert_eq!(c.count(..).await.unwrap().value, 52);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crates_own_containers_are_none_of_a_programs() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    c.put("k", "v").await.unwrap();
    for name in ["ebbtide-openraft", "ebbtide-openraft.served"] {
        let own = node.container(name);
        let mut batch = Batch::new();
        batch.put(&own, "k", "v");
        let errors = [
            own.put("k", "v").await.map(drop).unwrap_err(),
            own.expire_all().await.map(drop).unwrap_err(),
            own.set_default_ttl(ebbtide::DefaultTtl::Off)
                .await
                .map(drop)
                .unwrap_err(),
            own.delete_range(..).await.map(drop).unwrap_err(),
            node.write(batch).await.map(drop).unwrap_err(),
            own.get("k").await.map(drop).unwrap_err(),
            node.drop_container(name).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(error, Error::NoContainer(_) | Error::Invalid(_)),
                "{error:?}"
            );
        }
    }
    assert_eq!(c.get("k").await.unwrap().value.unwrap(), "v");
    let mut batch = Batch::new();
    for n in 0..10_001_u32 {
        batch.put(&c, n.to_be_bytes(), "");
    }
    assert!(matches!(node.write(batch).await, Err(Error::Invalid(_))));
    for nowhere in ["", "::::", "host:99999", "host"] {
        let folder = tempfile::tempdir().unwrap();
        let options = common::options().join(nowhere);
        let refused = options.open(folder.path().join("n")).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_there_for_who_has_made_it() {
    let cluster = Cluster::of(3).await;
    for n in 0..30 {
        let made = cluster.nodes[n % 3]
            .create_container(format!("c{n}"))
            .await
            .unwrap();
        let local = made.at(ReadLevel::Local).get("k").await.unwrap();
        assert_eq!(local.value, None);
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_node_is_not_removed_and_another_cluster_is_not_joined_twice() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    assert!(matches!(
        node.remove(node.id()).await,
        Err(Error::Members(_))
    ));
    let other = Cluster::of(1).await;
    assert_ne!(other.nodes[0].status().cluster, node.status().cluster);
    let status = node.status();
    assert!(status.is_ready && status.trouble.is_none());
    assert_eq!(status.leader, Some(node.id()));
    other.close().await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_makes_changes_and_drops_containers_with_its_writes_or_not_at_all() {
    let cluster = Cluster::of(3).await;
    let [one, two, three] = &cluster.nodes[..] else {
        unreachable!()
    };
    let names = one.create_container("names").await.unwrap();
    let mut batch = Batch::new();
    batch.require(&names, "carts", Expect::Absent);
    batch.put(&names, "carts", "v");
    batch.create_container("carts", DefaultTtl::After(Duration::from_secs(60)));
    let made = two.write(batch.clone()).await.unwrap();
    let carts = three.container("carts");
    assert_eq!(
        carts.default_ttl().await.unwrap().value,
        DefaultTtl::After(Duration::from_secs(60))
    );
    let record = names.item("carts").await.unwrap().value.unwrap();
    assert_eq!(record.version(), made.value, "its write is the last of it");
    let again = two.write(batch).await.unwrap_err();
    assert!(again.is_conflict());
    let mut taken = Batch::new();
    taken.put(&names, "taken", "v");
    taken.create_container("carts", DefaultTtl::Off);
    let refused = one.write(taken).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { container, .. } if container == "carts"));
    assert!(names.get("taken").await.unwrap().value.is_none());

    carts.put("a", "1").await.unwrap();
    let before = one.snapshot(ReadLevel::Linearizable, Default::default());
    let before = before.await.unwrap();
    let mut batch = Batch::new();
    batch.set_default_ttl(&carts, DefaultTtl::NoDefault);
    batch.delete_range(&carts, ..);
    batch.put(&carts, "b", "2");
    three.write(batch).await.unwrap();
    let items = carts.range(.., 9).await.unwrap().value;
    assert_eq!(items.len(), 1);
    assert_eq!((items[0].key(), items[0].expires_at()), (&b"b"[..], None));
    assert_eq!(millis(before.at), START);
    let then = before.value.container("carts").unwrap();
    assert_eq!(then.get("a").unwrap().unwrap(), "1", "it stays as it was");
    let mut batch = Batch::new();
    batch.delete(&names, "carts").drop_container("carts");
    one.write(batch).await.unwrap();
    let mut batch = Batch::new();
    batch.put(&names, "late", "v").drop_container("carts");
    let gone = two.write(batch).await.unwrap_err();
    assert!(matches!(gone, Error::NoContainer(name) if name == "carts"));
    assert_eq!(three.containers().await.unwrap().value, ["names"]);
    assert!(names.is_empty().await.unwrap().value);
    assert!(one.check().await.unwrap().agree());
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_commands_is_one_that_can_be_judged_and_counts_its_versions() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let carts = node.create_container("carts").await.unwrap();
    // Commands that change nothing are no writes, or they are; the version is right.
    let mut batch = Batch::new();
    batch.set_default_ttl(&carts, DefaultTtl::Off);
    batch.delete_range(&carts, "b".."a");
    batch.delete_range(&carts, "a".."c");
    batch.put(&carts, "a", "1").put(&carts, "b", "2");
    let version = node.write(batch).await.unwrap().value;
    let last = carts.item("b").await.unwrap().value.unwrap();
    assert_eq!(last.version(), version);

    let refused = |batch: Batch| async move { node.write(batch).await.unwrap_err() };
    let mut dropped = Batch::new();
    dropped.put(&carts, "c", "3").drop_container("carts");
    let mut twice = Batch::new();
    let default = DefaultTtl::Off;
    twice.put(&carts, "c", "3");
    twice
        .create_container("d", default)
        .create_container("d", default);
    let mut touched = Batch::new();
    touched.delete_range(&carts, ..).touch(&carts, "a");
    let mut named = Batch::new();
    named.put(&carts, "c", "3").create_container("", default);
    // Writes are judged by what was there before the commands, so none may go by what these change.
    let mut required = Batch::new();
    required.delete_range(&carts, ..);
    required.require(&carts, "a", Expect::Present);
    let mut created = Batch::new();
    created.set_default_ttl(&carts, Duration::from_millis(1));
    created.create(&carts, "c", "3", Ttl::Inherit);
    let mut kept = Batch::new();
    kept.delete_range(&carts, ..);
    kept.put_with_ttl(&carts, "a", "3", Ttl::Keep);
    for batch in [dropped, twice, touched, named, required, created, kept] {
        let error = refused(batch).await;
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
    assert_eq!(node.containers().await.unwrap().value, ["carts"]);
    assert_eq!(carts.range(.., 9).await.unwrap().value.len(), 2);
    cluster.close().await;
}
