//! Goal: every member is asked for its format before the log is raised to it, whether it votes or not; and a node that is too old does
//! not become a member.
//!
//! Method: a node of a cluster of one, and the network of another one that takes part in nothing.

use ebbtide_openraft::Op;
use tokio::io::AsyncRead;

use super::*;
use crate::Node;
use crate::calls::{Calls, Change};
use crate::face::{Batch, Error};
use crate::machine::body::{Act, Life, When, Write};
use crate::net::{From, Handler, Hello, Sockets, Tcp};
use crate::shared::speaking;

/// Answers nothing that can be decoded.
struct Deaf;

impl Handler for Deaf {
    async fn request(&self, _: From, _: u8, _: Bytes) -> Bytes {
        Bytes::new()
    }

    async fn stream(&self, _: From, _: u8, _: Bytes, _: impl AsyncRead + Unpin + Send) -> Bytes {
        Bytes::new()
    }
}

const OTHER: u64 = 77;

async fn other(core: &Core, format: u16, addr: &str) -> Calls {
    let hello = Hello {
        cluster: core.identity.cluster,
        node: OTHER,
        format,
    };
    let clock = Arc::new(ebbtide::SystemClock);
    let sockets = Sockets::new(Arc::new(Tcp), None);
    let calls = Calls::bind(addr.parse().unwrap(), hello, sockets, clock).await;
    let calls = calls.unwrap();
    calls.serve(Arc::new(Deaf));
    calls
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not come: {what}");
}

async fn add(core: &Arc<Core>, calls: &Calls) -> String {
    let change = Change::Add {
        id: OTHER,
        addr: calls.local_addr().to_string(),
        within_ms: 300,
    };
    match core.change_here(change).await {
        Asked::Done(Err(why)) => why,
        other => panic!("it takes part in nothing: {other:?}"),
    }
}

fn like() -> Body {
    let put = |key: &'static str, act| Write {
        container: "c".to_owned(),
        key: Bytes::from(key),
        when: When::Always,
        act,
    };
    Body::Batch(vec![
        put("a", Act::Put(Bytes::from("v"), Life::Never)),
        put(
            "b",
            Act::PutLike(Bytes::from("v"), "c".to_owned(), Bytes::from("of")),
        ),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_does_not_vote_is_asked_too() {
    let folder = tempfile::tempdir().unwrap();
    let old = speaking(Node::options(), 1)
        .open(folder.path())
        .await
        .unwrap();
    old.create_container("c").await.unwrap();
    let core = &old.shared().0;
    let deaf = other(core, 1, "127.0.0.1:0").await;
    let addr = deaf.local_addr().to_string();
    core.replica.add_learner(OTHER, &addr).await;
    old.close().await.unwrap();

    let patience = Duration::from_secs(20);
    let node = Node::options()
        .patience(patience)
        .open(folder.path())
        .await
        .unwrap();
    let core = &node.shared().0;
    assert!(
        node.members()
            .iter()
            .any(|member| member.id == OTHER && !member.votes)
    );
    until("it is heard", || {
        core.replica.is_leading() && core.speaks(OTHER) == Some(1)
    })
    .await;
    core.raise_format().await;
    assert_eq!((node.status().format, node.status().speaks), (1, 2));
    let c = node.container("c");
    c.put("of", "v").await.unwrap();
    let mut batch = Batch::new();
    batch.put(&c, "a", "v").put_like(&c, "b", "v", &c, "of");
    let refused = node.write(batch.clone()).await.unwrap_err();
    assert!(
        refused.is_retryable() && refused.to_string().contains("[77]"),
        "{refused}"
    );
    let Error::NotSpoken { format: 2, nodes } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(nodes, [OTHER]);
    assert_eq!(
        c.get("a").await.unwrap().value,
        None,
        "nothing of it is done"
    );
    // An op on its way to a leader that does not speak it is not sent.
    assert!(matches!(
        core.withheld(OTHER, &like()),
        Some(Asked::NotSpoken { format: 2, .. })
    ));
    assert!(matches!(
        core.withheld(78, &like()),
        Some(Asked::NotLeading)
    ));

    deaf.shutdown().await;
    drop(deaf);
    let _newer = other(core, 2, &addr).await;
    until("all speak it", || node.status().format == 2).await;
    node.write(batch).await.unwrap();
    assert!(
        core.withheld(OTHER, &like()).is_none(),
        "all members speak the log's format"
    );
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_speak_the_logs_format_becomes_no_member() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::open(folder.path().join("1")).await.unwrap();
    until("it leads", || node.status().format == 2).await;
    let core = &node.shared().0;
    let deaf = other(core, 1, "127.0.0.1:0").await;
    let why = add(core, &deaf).await;
    assert!(
        why.contains("of format 2") && why.contains("up to 1"),
        "{why}"
    );
    assert_eq!(node.members().len(), 1);
    // A node learns it before it makes its folder.
    let new = folder.path().join("2");
    let refused = speaking(Node::options(), 1)
        .join(node.addr())
        .open(&new)
        .await;
    let why = refused.unwrap_err().to_string();
    assert!(
        why.contains("of format 2") && why.contains("up to 1"),
        "{why}"
    );
    assert!(!new.exists());
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_op_of_a_later_format_waits_until_the_log_is_raised_where_all_speak_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = Node::options().patience(Duration::from_secs(20));
    let node = options.open(folder.path()).await.unwrap();
    node.create_container("c").await.unwrap();
    node.container("c").put("of", "v").await.unwrap();
    let core = &node.shared().0;
    core.write(like()).await.unwrap();
    assert_eq!(node.status().format, 2);
    // Members of another entry have said it: nothing is raised.
    let stale = Body::Format {
        to: 2,
        members_at: 9_999,
    };
    let op = Op {
        id: None,
        body: stale,
    };
    let told = core.replica.write(op).await.unwrap();
    assert_eq!(told.outcome, Ok(crate::machine::body::Reply::Missed));
    node.close().await.unwrap();
}
