//! Goal: where a cluster asks for tokens, each lets one new node in, before its end, whichever node is asked and whichever leads; nobody
//! else comes in, and nothing that is stored or shown has the secret.
//!
//! Method: clocks that tests move; nodes that join with and without tokens; all files are searched for the secret.

use std::path::Path;
use std::time::Duration;

use crate::common::{self, Cluster};
use ebbtide::{Change, Version};
use ebbtide_cluster::{Error, Node, NodeOptions, ReadLevel, Token};

const HOUR: Duration = Duration::from_secs(3_600);

async fn asking(size: usize) -> Cluster {
    let mut cluster = Cluster::with(1, |options| options.join_by_token(true)).await;
    for _ in 1..size {
        let token = cluster.nodes[0].make_join_token(HOUR).await.unwrap();
        let node = join(&cluster, "more", Some(&token)).await.unwrap();
        cluster.nodes.push(node);
    }
    cluster
}

fn options(cluster: &Cluster, contact: &Node, token: Option<&str>) -> NodeOptions {
    let options = common::options()
        .clock(cluster.clocks[0].clone())
        .join_by_token(true)
        .join(contact.addr());
    match token {
        Some(token) => options.join_token(token),
        None => options,
    }
}

/// A new node, by whichever member was let in last.
async fn join(cluster: &Cluster, name: &str, token: Option<&str>) -> Result<Node, Error> {
    let folder = cluster
        .folder
        .path()
        .join(format!("{name}-{}", cluster.nodes.len()));
    let contact = cluster.nodes.last().unwrap();
    options(cluster, contact, token).open(folder).await
}

fn is_refused(joined: Result<Node, Error>, secret: &str) {
    let error = joined.unwrap_err();
    assert!(matches!(error, Error::Members(_)), "{error}");
    assert!(error.to_string().contains("token"), "{error}");
    assert!(!format!("{error} {error:?}").contains(secret));
}

fn search(folder: &Path, text: &[u8]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path, text);
        } else if let Ok(bytes) = std::fs::read(&path) {
            let found = bytes.windows(text.len()).any(|part| part == text);
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_one_node_in() {
    let mut cluster = asking(2).await;
    let first = cluster.nodes[0].clone();
    let token = first.make_join_token(HOUR).await.unwrap();
    let other = first.make_join_token(HOUR).await.unwrap();
    let (number, secret) = token.split_once('-').unwrap();
    assert!(secret.len() == 32 && !other.contains(secret));
    is_refused(join(&cluster, "bare", None).await, secret);
    let (wrong, short) = (format!("{number}-{}", &other[other.len() - 32..]), number);
    for wrong in [&wrong[..], short, "", "-", secret] {
        is_refused(join(&cluster, "wrong", Some(wrong)).await, secret);
    }
    // Another one leads than the one that has made it, and one that does not lead is asked.
    common::change_leader(&cluster).await;
    let folder = cluster.folder.path().join("third");
    let third = options(&cluster, &first, Some(&token))
        .open(&folder)
        .await
        .unwrap();
    assert!(first.members().len() == 3 || third.members().len() == 3);
    // It was used, and whoever has used it needs it no more.
    is_refused(join(&cluster, "again", Some(&token)).await, secret);
    let addr: std::net::SocketAddr = third.addr().parse().unwrap();
    third.close().await.unwrap();
    let third = options(&cluster, &first, None)
        .listen(addr)
        .open(&folder)
        .await
        .unwrap();
    // Its time is over, though nobody has used it.
    cluster.advance(3_600_000);
    is_refused(join(&cluster, "late", Some(&other)).await, secret);

    // No program is shown them.
    assert!(third.containers().await.unwrap().value.is_empty());
    third.create_container("c").await.unwrap();
    let mut position = Version::start().into();
    loop {
        let level = ReadLevel::Linearizable;
        let page = third
            .changes(level, Token::default(), position, 1)
            .await
            .unwrap()
            .value;
        for change in &page.changes {
            let names = |names: &[std::sync::Arc<str>]| names.iter().all(|name| **name == *"c");
            assert!(!matches!(
                change,
                Change::Put { .. } | Change::Delete { .. }
            ));
            assert!(!matches!(change, Change::Containers { names: all } if !names(all)));
        }
        position = page.position;
        if page.changes.is_empty() {
            break;
        }
    }
    cluster.nodes.push(third);
    let folder = cluster.folder.path().to_owned();
    for node in &cluster.nodes {
        node.close().await.unwrap();
    }
    search(&folder, secret.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_asks_for_none_takes_one_and_refuses_a_wrong_one() {
    let mut cluster = Cluster::of(1).await;
    let token = cluster.nodes[0].make_join_token(HOUR).await.unwrap();
    for lasts in [Duration::ZERO, Duration::from_secs(2_592_001)] {
        let refused = cluster.nodes[0].make_join_token(lasts).await;
        assert!(matches!(refused, Err(Error::Invalid(_))));
    }
    is_refused(join(&cluster, "wrong", Some("1-2")).await, &token);
    let second = join(&cluster, "right", Some(&token)).await.unwrap();
    cluster.nodes.push(second);
    cluster.grow().await;
    assert_eq!(cluster.nodes[0].members().len(), 3);
    cluster.close().await;
}
