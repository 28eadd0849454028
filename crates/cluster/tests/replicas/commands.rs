//! Goal: commands to expire items stand in a container up to a number, whoever gives them; what is refused for it changes nothing and
//! passes once the others are not needed any more.
//!
//! Method: clocks that tests move; commands that none of the others covers, one after the other, at once, and by writes that make room.

use std::time::{Duration, SystemTime};

use crate::common::{self, Cluster, until};
use ebbtide::{Quota, WhenFull};
use ebbtide_cluster::{Answered, Container, Error, Node};

/// So many may stand.
const MOST: u64 = 48;

fn at(seconds: u64) -> SystemTime {
    std::time::UNIX_EPOCH + Duration::from_millis(common::START) + Duration::from_secs(seconds)
}

fn standing(node: &Node) -> u64 {
    let here = ebbtide_cluster::shared::container(node, "c").unwrap();
    here.stats().expire_commands
}

fn is_refused(answer: Result<Answered<()>, Error>) {
    let error = answer.unwrap_err();
    assert!(
        matches!(&error, Error::Engine(ebbtide::Error::TooManyCommands { container }) if container == "c"),
        "{error}"
    );
    assert!(error.is_retryable());
    assert!(error.to_string().contains("try again when"), "{error}");
}

/// Some items for each command to end.
async fn fill(c: &Container) {
    for n in 0..200_u64 {
        let ttl = Duration::from_secs(100_000 - n);
        c.put_with_ttl(format!("{n:03}"), "v", ttl).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_commands_stand_and_one_that_covers_them_passes() {
    let reclaims =
        |options: ebbtide_cluster::NodeOptions| options.reclaim_within(Duration::from_secs(1));
    let cluster = Cluster::with(1, reclaims).await;
    let node = &cluster.nodes[0];
    let c = node.create_container("c").await.unwrap();
    fill(&c).await;
    for n in 0..MOST {
        // Each ends an item that the ones before do not: it was written later.
        c.put_with_ttl(format!("x{n}"), "v", Duration::from_secs(10))
            .await
            .unwrap();
        c.expire_before(at(90_000 - n)).await.unwrap();
        assert_eq!(standing(node), n + 1);
    }
    is_refused(c.expire_before(at(20_000)).await);
    is_refused(c.expire_written_before(at(1)).await);
    assert_eq!(standing(node), MOST);
    let items = c.count(..).await.unwrap().value;
    // Other commands are no such commands.
    c.delete_range("0".."1").await.unwrap();
    c.set_default_ttl(Duration::from_secs(1_000_000))
        .await
        .unwrap();
    assert_eq!(c.count(..).await.unwrap().value, items - 100);
    // One that covers all of them, and more that it does not cover.
    c.expire_before(at(90_001)).await.unwrap();
    assert_eq!(standing(node), 1);
    for n in 0..MOST {
        c.put_with_ttl(format!("y{n}"), "v", Duration::from_secs(10))
            .await
            .unwrap();
        let _ = c.expire_before(at(80_000 - n)).await;
    }
    assert_eq!(standing(node), MOST);
    is_refused(c.expire_before(at(20_000)).await);
    c.expire_all().await.unwrap();
    assert_eq!(standing(node), 1);
    assert!(c.is_empty().await.unwrap().value);
    // The last one goes with what it has ended, which leaves the disk after an eighth of its lifetime at the latest.
    cluster.advance(100_000_000 / 8);
    until("no command is needed", async || {
        cluster.advance(1_000);
        standing(node) == 0
    })
    .await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_at_once_are_no_more() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    fill(&c).await;
    c.put_with_ttl("all concern it", "v", Duration::from_secs(10))
        .await
        .unwrap();
    let leader = cluster.leader().await;
    let mut giving = tokio::task::JoinSet::new();
    for n in 0..120_u64 {
        // Mostly in this order: then none takes the place of another.
        let leader = cluster.nodes[leader].container("c");
        giving.spawn(async move {
            match leader.expire_before(at(50_000 - n)).await {
                // On a slow machine some wait for longer than their patience.
                Ok(_) | Err(Error::Unknown(_) | Error::NoLeader) => {}
                refused => is_refused(refused),
            }
        });
    }
    giving.join_all().await;
    let leader = &cluster.nodes[cluster.leader().await];
    let stand = standing(leader);
    assert!((1..=MOST).contains(&stand), "{stand}");
    common::agreed(leader).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_made_as_long_as_commands_may_stand() {
    let cluster = Cluster::of(3).await;
    let c = cluster.nodes[0].create_container("c").await.unwrap();
    let quota = Quota {
        max_live_bytes: 50_000,
        when_full: WhenFull::ExpireSoonest,
    };
    c.set_quota(Some(quota)).await.unwrap();
    let mut written = 0;
    let refused = loop {
        // Each ends sooner than all before it, so that it ends first, and the command for that covers no other.
        let ttl = Duration::from_secs(500_000 - written * 100);
        match c
            .put_with_ttl(format!("{written:05}"), "v".repeat(1_000), ttl)
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 300, "it goes on for ever");
    };
    assert!(
        matches!(&refused, Error::Engine(ebbtide::Error::QuotaFull { container: Some(name), .. }) if name == "c"),
        "{refused}"
    );
    let leader = &cluster.nodes[cluster.leader().await];
    assert_eq!(standing(leader), MOST);
    // Any other command that takes the place of these lets room be made again.
    c.expire_before(at(500_001)).await.unwrap();
    assert_eq!(standing(leader), 1);
    let ttl = Duration::from_secs(1_000);
    for n in 0..60 {
        let put = c.put_with_ttl(
            format!("later-{n}"),
            "v".repeat(1_000),
            ttl + Duration::from_secs(n),
        );
        put.await.unwrap();
    }
    cluster.close().await;
}
