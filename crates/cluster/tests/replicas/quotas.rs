//! Goal: a container keeps to its quota whichever node is asked and whichever leads, within 5 % of what is stored and what is under
//! way; what is refused is not written, what is expired to make room ends soonest, and all replicas are the same afterwards.
//!
//! Method: clocks that tests move; writers at three nodes, some at once; changes of the leader between them; the live bytes of what is
//! there are counted by scans.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{self, Cluster, change_leader};
use ebbtide::{Quota, Ttl, WhenFull};
use ebbtide_cluster::{Batch, Container, Error, Expect, ReadLevel, Transaction};

const LIMIT: u64 = 200_000;
const VALUE: usize = 1_000;

fn quota(when_full: WhenFull) -> Option<Quota> {
    Some(Quota {
        max_live_bytes: LIMIT,
        when_full,
    })
}

fn value() -> String {
    "v".repeat(VALUE)
}

fn is_full<T>(written: &Result<T, Error>) -> bool {
    match written {
        Ok(_) => false,
        Err(Error::Engine(ebbtide::Error::QuotaFull { container, .. })) => {
            container.as_deref() == Some("c")
        }
        Err(error) => panic!("{error}"),
    }
}

/// The live bytes of a container, and its keys with their ends.
async fn live(c: &Container) -> (u64, BTreeMap<Vec<u8>, Option<u64>>) {
    let items = c.range(.., 10_000).await.unwrap().value;
    let bytes = items
        .iter()
        .map(|item| item.key().len() + item.value().len() + 16);
    let end = |item: &ebbtide_cluster::Item| item.expires_at().map(common::millis);
    let ends = items.iter().map(|item| (item.key().to_vec(), end(item)));
    (bytes.clone().sum::<usize>() as u64, ends.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_over_a_quota_are_refused_at_each_node_and_by_each_leader() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    assert_eq!(c.quota().await.unwrap().value, None);
    let set = c.set_quota(quota(WhenFull::Refuse)).await.unwrap();
    for node in &cluster.nodes {
        let there = node.container("c").at(ReadLevel::Local).since(set.token);
        assert_eq!(there.quota().await.unwrap().value, quota(WhenFull::Refuse));
    }
    for round in 0..3 {
        let mut written = 0;
        loop {
            let at = cluster.nodes[written % 3].container("c");
            let ttl = Duration::from_secs(100 + written as u64);
            let put = at.put_with_ttl(format!("{round}-{written:04}"), value(), ttl);
            if is_full(&put.await) {
                break;
            }
            written += 1;
        }
        let (bytes, _) = live(&c).await;
        assert!(
            (LIMIT * 95 / 100..=LIMIT * 105 / 100).contains(&bytes),
            "{bytes}"
        );
        change_leader(&cluster).await;
        for node in &cluster.nodes {
            let there = node.container("c");
            assert!(is_full(&there.put("more", value()).await));
            assert!(is_full(&there.create("more", value(), Ttl::Never).await));
            let mut batch = Batch::new();
            batch
                .put(&there, "small", "s")
                .put(&there, "more", value())
                .put(&there, "most", value());
            assert!(is_full(&node.write(batch).await));
            let of = there.clone();
            let more = move |tx: &mut Transaction| -> Result<(), Error> {
                tx.put(&of, "more", value());
                tx.put(&of, "most", value());
                Ok(())
            };
            assert!(is_full(&node.transaction(more).await));
            let key = format!("{round}-0003");
            let same = there.put_with_ttl(&key, value(), Duration::from_secs(103));
            assert!(!is_full(&same.await), "one that takes the place of another");
            there.touch(&key).await.unwrap();
            // One is removed with what comes.
            let mut batch = Batch::new();
            batch.put_with_ttl(&there, "x-0003", value(), Duration::from_secs(103));
            batch.delete(&there, &key);
            assert!(!is_full(&node.write(batch).await));
            let mut batch = Batch::new();
            batch.put_with_ttl(&there, &key, value(), Duration::from_secs(103));
            batch.delete(&there, "x-0003");
            assert!(!is_full(&node.write(batch).await));
        }
        assert_eq!(c.get("small").await.unwrap().value, None);
        assert_eq!(c.get("more").await.unwrap().value, None);
        // Items that have ended count no more, though nobody has written since.
        match round {
            0 => cluster.advance(1_000_000),
            _ => {
                c.delete_range(..).await.unwrap();
            }
        }
    }
    c.put("more", value()).await.unwrap();
    let raised = Some(Quota {
        max_live_bytes: 1_500,
        when_full: WhenFull::Refuse,
    });
    c.set_quota(raised).await.unwrap();
    assert!(
        is_full(&c.put("most", value()).await),
        "a lower one counts at once"
    );
    c.delete("more").await.unwrap();
    c.put("most", value()).await.unwrap();
    c.set_quota(None).await.unwrap();
    c.set_quota(None).await.unwrap();
    c.put("more", value()).await.unwrap();
    let zero = Some(Quota {
        max_live_bytes: 0,
        when_full: WhenFull::Refuse,
    });
    assert!(matches!(c.set_quota(zero).await, Err(Error::Invalid(_))));
    common::agreed(&cluster.nodes[0]).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_made_by_what_ends_soonest_on_all_nodes_alike() {
    let mut cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.set_quota(quota(WhenFull::ExpireSoonest)).await.unwrap();
    c.put_with_ttl("stays", value(), Ttl::Never).await.unwrap();
    let mut random = testkit::random::Random(7);
    let mut number = 0;
    for round in 0..6 {
        let before = live(&c).await.1;
        let mut new = BTreeMap::new();
        for _ in 0..60 {
            let at = cluster.nodes[random.below(cluster.nodes.len())].container("c");
            // So long that none ends by itself here.
            let ttl = Duration::from_secs(10_000 + random.below(5_000) as u64);
            let key = format!("{number:05}");
            let put = at.put_with_ttl(&key, value(), ttl).await.unwrap();
            new.insert(
                key.into_bytes(),
                common::millis(put.at) + ttl.as_millis() as u64,
            );
            number += 1;
            cluster.advance(random.below(20) as u64);
        }
        let (bytes, after) = live(&c).await;
        assert!(bytes <= LIMIT * 105 / 100, "{bytes}");
        assert!(round < 3 || bytes >= LIMIT * 85 / 100, "{bytes}");
        assert!(after.contains_key(&b"stays"[..]));
        // Items that were there and are gone ended before all of those that stayed.
        let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
        let last_gone = gone.filter_map(|(_, end)| *end).max().unwrap_or(0);
        let stayed = before.iter().filter(|(key, _)| after.contains_key(*key));
        let first_stayed = stayed.filter_map(|(_, end)| *end).min().unwrap_or(u64::MAX);
        assert!(last_gone < first_stayed, "round {round}");
        match round {
            1 => change_leader(&cluster).await,
            3 => {
                let leader = cluster.leader().await;
                let (addr, _) = cluster.stop(leader).await;
                // The others elect one while they write.
                c_of(&cluster).put("after", "v").await.unwrap();
                cluster.start_again(leader, &addr).await;
            }
            _ => {}
        }
        if round == 3 {
            break;
        }
    }
    let c = c_of(&cluster);
    let (_, ends) = live(&c).await;
    assert!(
        ends.len() > 100 && number > ends.len() + 30,
        "{} of {number}",
        ends.len()
    );
    // Where only what has no end is left there is no room to make.
    for number in 0..1_000 {
        let put = c
            .put_with_ttl(format!("x-{number:05}"), value(), Ttl::Never)
            .await;
        if is_full(&put) {
            break;
        }
    }
    let (bytes, ends) = live(&c).await;
    assert!(
        (LIMIT * 90 / 100..=LIMIT * 105 / 100).contains(&bytes),
        "{bytes}"
    );
    assert!(ends.len() < 200 && is_full(&c.put("more", value()).await));
    common::agreed(&cluster.nodes[0]).await;
    cluster.close().await;
}

fn c_of(cluster: &Cluster) -> Container {
    cluster.nodes[0].container("c")
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_at_once_do_not_pass_a_quota_together() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    for when_full in [WhenFull::Refuse, WhenFull::ExpireSoonest] {
        c.set_quota(quota(when_full)).await.unwrap();
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..32 {
            let at = cluster.nodes[writer % 3].container("c");
            writers.spawn(async move {
                let mut refused = 0;
                for number in 0..20 {
                    let ttl = Duration::from_secs(1_000 + (number * 37 + writer as u64) % 500);
                    let put = at.put_with_ttl(format!("{writer}-{number}"), value(), ttl);
                    refused += u64::from(is_full(&put.await));
                }
                refused
            });
        }
        let refused: u64 = writers.join_all().await.into_iter().sum();
        let (bytes, _) = live(&c).await;
        assert!(
            (LIMIT * 85 / 100..=LIMIT * 105 / 100).contains(&bytes),
            "{bytes}"
        );
        match when_full {
            WhenFull::Refuse => assert!((430..470).contains(&refused), "{refused}"),
            _ => assert_eq!(refused, 0),
        }
        common::agreed(&cluster.nodes[0]).await;
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_comes_with_its_container_and_goes_with_it() {
    let cluster = Cluster::of(2).await;
    let node = &cluster.nodes[0];
    let full = quota(WhenFull::Refuse);
    let mut batch = Batch::new();
    batch.create_container_with("c", Duration::from_secs(60), Duration::from_secs(5), full);
    batch.create_container("d", Duration::from_secs(60));
    node.write(batch).await.unwrap();
    let (c, d) = (cluster.nodes[1].container("c"), node.container("d"));
    assert_eq!(c.quota().await.unwrap().value, full);
    assert_eq!(
        c.keep_expired().await.unwrap().value,
        Duration::from_secs(5)
    );
    assert_eq!(
        c.default_ttl().await.unwrap().value,
        Duration::from_secs(60).into()
    );
    assert!(is_full(&c.put("k", "v".repeat(LIMIT as usize)).await));
    d.put("k", "v".repeat(LIMIT as usize)).await.unwrap();
    let mut batch = Batch::new();
    batch
        .set_quota(&d, full)
        .set_quota(&c, None)
        .set_keep_expired(&c, Duration::ZERO);
    node.write(batch).await.unwrap();
    c.put("k", "v".repeat(LIMIT as usize)).await.unwrap();
    assert_eq!(c.keep_expired().await.unwrap().value, Duration::ZERO);
    assert_eq!(d.quota().await.unwrap().value, full);
    assert!(node.drop_container("d").await.unwrap().value);
    assert!(matches!(d.quota().await, Err(Error::NoContainer(name)) if name == "d"));
    assert!(matches!(
        d.set_quota(full).await,
        Err(Error::NoContainer(_))
    ));
    node.create_container("d").await.unwrap();
    assert_eq!(d.quota().await.unwrap().value, None);
    common::agreed(&cluster.nodes[0]).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_leads_again_knows_nothing_of_before() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.set_quota(quota(WhenFull::Refuse)).await.unwrap();
    let first = cluster.nodes[cluster.leader().await].id();
    c.put("first", value()).await.unwrap();
    change_leader(&cluster).await;
    let mut written = 0;
    while !is_full(&c.put(format!("{written}"), value()).await) {
        written += 1;
    }
    while cluster.nodes[cluster.leader().await].id() != first {
        let _ = cluster.nodes[0].transfer(first).await;
    }
    assert!(is_full(&c.put("more", value()).await));
    assert!(live(&c).await.0 <= LIMIT * 105 / 100);
    common::agreed(&cluster.nodes[0]).await;
    cluster.close().await;
}

/// Nobody reads meanwhile: then the log's time would have moved.
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_makes_room_in_the_millisecond_of_its_end() {
    let cluster = Cluster::of(1).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    c.set_quota(quota(WhenFull::Refuse)).await.unwrap();
    let large = "v".repeat(LIMIT as usize * 9 / 10);
    let second = Duration::from_secs(1);
    c.put_with_ttl("a", large.clone(), second).await.unwrap();
    assert!(is_full(&c.put("b", large.clone()).await));
    cluster.advance(1_000);
    c.put("b", large).await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_held_to_the_quota_that_it_sets() {
    let cluster = Cluster::of(1).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    let limit = |bytes| {
        Some(Quota {
            max_live_bytes: bytes,
            when_full: WhenFull::Refuse,
        })
    };
    let batch = |key: &str, quota| {
        let mut batch = Batch::new();
        batch.set_quota(&c, quota).put(&c, key, value());
        batch
    };
    assert!(is_full(&node.write(batch("a", limit(500))).await));
    assert_eq!(c.quota().await.unwrap().value, None);
    c.set_quota(limit(500)).await.unwrap();
    assert!(is_full(&c.put("a", value()).await));
    node.write(batch("a", limit(5_000))).await.unwrap();
    assert_eq!(c.quota().await.unwrap().value, limit(5_000));
    assert!(is_full(&node.write(batch("b", limit(700))).await));
    node.write(batch("b", None)).await.unwrap();
    c.put("more", value().repeat(9)).await.unwrap();
    cluster.close().await;
}

/// The outcome of a call, in a word.
fn word<T>(done: Result<T, Error>, is_done: impl Fn(&T) -> bool) -> &'static str {
    match done {
        Ok(done) if is_done(&done) => "done",
        Ok(_) => "nothing",
        Err(Error::Engine(ebbtide::Error::QuotaFull { .. })) => "full",
        Err(error) if error.is_conflict() => "conflict",
        Err(error) => panic!("{error}"),
    }
}

/// Calls with conditions in a full container, by a cluster and by the engine alone.
async fn conditional(c: &Container, node: &ebbtide_cluster::Node) -> Vec<&'static str> {
    let large = || value().repeat(3);
    let second = Duration::from_secs(1_000);
    let some =
        |answered: &ebbtide_cluster::Answered<Option<ebbtide::Version>>| answered.value.is_some();
    let version = c.item("k-000").await.unwrap().value.unwrap().version();
    let mut words = vec![
        word(c.create("k-000", large(), second).await, some),
        word(c.replace("none", large(), second).await, some),
        word(
            c.put_if("k-001", large(), second, Expect::Absent).await,
            some,
        ),
        word(
            c.put_if("k-001", large(), second, Expect::Version(version))
                .await,
            some,
        ),
        word(
            c.put_if("none", large(), second, Expect::Version(version))
                .await,
            some,
        ),
    ];
    for (key, expect) in [
        ("none", Expect::Present),
        ("k-001", Expect::Version(version)),
    ] {
        let mut batch = Batch::new();
        batch.put(c, "new", large()).require(c, key, expect);
        words.push(word(node.write(batch).await, |_| true));
    }
    let mut batch = Batch::new();
    batch
        .put(c, "new", large())
        .create(c, "new", large(), second);
    words.push(word(node.write(batch).await, |_| true));
    words
}

fn conditional_alone(c: &ebbtide::Container, db: &ebbtide::Database) -> Vec<&'static str> {
    let large = || value().repeat(3);
    let second = Duration::from_secs(1_000);
    let item = c.item("k-000").unwrap().unwrap();
    let word = |done: ebbtide::Result<bool>| match done {
        Ok(true) => "done",
        Ok(false) => "nothing",
        Err(error) if error.is_full() => "full",
        Err(error) if error.is_conflict() => "conflict",
        Err(error) => panic!("{error}"),
    };
    let with = |key: &str, expect, put: &str| {
        let mut batch = ebbtide::Batch::new();
        batch
            .require(c, key, expect)
            .put_with_ttl(c, put, large(), second);
        db.write(&batch).map(|()| true)
    };
    let missed = |done: ebbtide::Result<bool>| match done {
        Err(error) if error.is_conflict() => Ok(false),
        done => done,
    };
    let mut words = vec![
        word(c.create("k-000", large(), second)),
        word(c.replace("none", large(), second)),
        word(missed(with("k-001", ebbtide::Expect::Absent, "k-001"))),
        word(missed(with(
            "k-001",
            ebbtide::Expect::Version(item.version()),
            "k-001",
        ))),
        word(missed(with(
            "none",
            ebbtide::Expect::Version(item.version()),
            "none",
        ))),
        word(with("none", ebbtide::Expect::Present, "new")),
        word(with(
            "k-001",
            ebbtide::Expect::Version(item.version()),
            "new",
        )),
    ];
    let mut batch = ebbtide::Batch::new();
    batch
        .put(c, "new", large())
        .create(c, "new", large(), second);
    words.push(word(db.write(&batch).map(|()| true)));
    words
}

/// Nothing is refused for its room, and nothing makes room, that writes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_that_do_not_hold_need_no_room_as_in_the_engine() {
    for when_full in [WhenFull::Refuse, WhenFull::ExpireSoonest] {
        let cluster = Cluster::of(3).await;
        let folder = testkit::scratch();
        let clock = ebbtide::ManualClock::new(common::START);
        let db = ebbtide::Options::new()
            .clock(clock)
            .open(folder.path())
            .unwrap();
        let alone = db.container("c").unwrap();
        let c = cluster.nodes[0].create_container("c").await.unwrap();
        c.set_quota(quota(when_full)).await.unwrap();
        alone.set_quota(quota(when_full)).unwrap();
        let most = LIMIT as usize / (VALUE + 21);
        for number in 0..most {
            let (key, ttl) = (
                format!("k-{number:03}"),
                Duration::from_secs(100 + number as u64),
            );
            c.put_with_ttl(&key, value(), ttl).await.unwrap();
            alone.put_with_ttl(&key, value(), ttl).unwrap();
        }
        let before = live(&c).await;
        for node in &cluster.nodes {
            let words = conditional(&node.container("c"), node).await;
            assert_eq!(words, conditional_alone(&alone, &db), "{when_full:?}");
            assert!(
                !words.contains(&"full") && !words.contains(&"done"),
                "{words:?}"
            );
        }
        assert_eq!(live(&c).await, before);
        assert_eq!(alone.count(..).unwrap(), most as u64);
        // One that would write is refused, or makes room.
        let created = word(c.create("none", value(), Ttl::Never).await, |done| {
            done.value.is_some()
        });
        let alone = match alone.create("none", value(), Ttl::Never) {
            Ok(_) => "done",
            Err(_) => "full",
        };
        assert_eq!(created, alone);
        assert_eq!(created == "full", when_full == WhenFull::Refuse);
        common::agreed(&cluster.nodes[0]).await;
        cluster.close().await;
    }
}

/// The container of that quota comes after the one with items to expire.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_one_of_its_containers_refuses_ends_nothing_in_another() {
    for when_full in [WhenFull::Refuse, WhenFull::ExpireSoonest] {
        let cluster = Cluster::of(1).await;
        let node = &cluster.nodes[0];
        let (a, c) = (node.container("a"), node.container("c"));
        for (container, when_full) in [(&a, WhenFull::ExpireSoonest), (&c, when_full)] {
            node.create_container(container.name()).await.unwrap();
            container.set_quota(quota(when_full)).await.unwrap();
        }
        let large = "v".repeat(LIMIT as usize / 10 - 100);
        for key in 0..10 {
            let ttl = Duration::from_secs(100 + key);
            let key = format!("{key}");
            a.put_with_ttl(&key, large.clone(), ttl).await.unwrap();
            c.put_with_ttl(&key, large.clone(), Ttl::Never)
                .await
                .unwrap();
        }
        let mut batch = Batch::new();
        batch
            .put(&a, "x", large.clone())
            .put(&c, "x", large.clone());
        assert!(is_full(&node.write(batch.clone()).await));
        assert_eq!(live(&a).await.1.len(), 10, "{when_full:?}");
        c.delete("0").await.unwrap();
        node.write(batch).await.unwrap();
        assert_eq!(live(&c).await.1.len(), 10);
        assert!((9..11).contains(&live(&a).await.1.len()));
        cluster.close().await;
    }
}
