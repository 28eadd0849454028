//! Goal: an op that is sent again is done once, and answered as it was; commands of other versions and strangers change nothing.

use bytes::Bytes;
use ebbtide::ManualClock;

use super::*;
use crate::calls::{Asked, Written};
use crate::machine::body::{Act, Body, Life, When, Write};
use crate::net::{From, Handler};

const START: u64 = 1_800_000_000_000;

async fn alone() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let options = Node::options()
        .clock(ManualClock::new(START))
        .patience(Duration::from_secs(20));
    let node = options.open(folder.path()).await.unwrap();
    node.create_container("c").await.unwrap();
    (folder, node)
}

fn create(key: &str) -> Body {
    Body::One(Write {
        container: "c".to_owned(),
        key: Bytes::copy_from_slice(key.as_bytes()),
        when: When::Absent,
        act: Act::Put(Bytes::from_static(b"v"), Life::Never),
    })
}

fn done(written: Written) -> ebbtide_openraft::Answer<Reply> {
    match written {
        Asked::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_op_that_is_sent_again_is_answered_as_it_was() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    let op = core.op(create("k"));
    // In one entry, perhaps, and in another one.
    let (first, second) = tokio::join!(core.write_here(op.clone()), core.write_here(op.clone()));
    let (first, second) = (done(first), done(second));
    assert!(matches!(first.outcome, Ok(Reply::Done { .. })), "{first:?}");
    assert_eq!(first, second);
    assert_eq!(first, done(core.write_here(op.clone()).await));
    let other = done(core.write_here(core.op(create("k"))).await);
    assert_eq!(other.outcome, Ok(Reply::Missed));
    // A caller that gives up at once does not take it back, and does not have it done twice.
    let op = core.op(create("l"));
    for _ in 0..3 {
        let _ = tokio::time::timeout(Duration::ZERO, core.write_here(op.clone())).await;
    }
    let landed = done(core.write_here(op).await);
    assert!(
        matches!(landed.outcome, Ok(Reply::Done { .. })),
        "{landed:?}"
    );
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_ask_and_what_cannot_be_decoded_changes_nothing() {
    let (_folder, node) = alone().await;
    let core = &node.shared.0;
    let answering = answering::Answering::of(core);
    let ask = async |cluster, kind, body: Bytes| {
        let from = From {
            cluster,
            node: 7,
            format: FORMAT,
            wall_ms: START,
        };
        answering.request(from, kind, body).await
    };
    let write = calls::encode(&core.op(create("k")));
    assert!(ask(0, calls::WRITE, write.clone()).await.is_empty());
    assert!(
        ask(core.identity.cluster + 1, calls::WRITE, write.clone())
            .await
            .is_empty()
    );
    let cluster: u128 = calls::decode(&ask(0, calls::CLUSTER, Bytes::new()).await).unwrap();
    assert_eq!(cluster, core.identity.cluster);
    for kind in 0..20 {
        for body in [&b""[..], b"\xff\xff\xff\xff\xff", &write[..write.len() / 2]] {
            ask(cluster, kind, Bytes::copy_from_slice(body)).await;
        }
    }
    assert!(!node.container("c").contains("k").await.unwrap().value);
    let written = ask(cluster, calls::WRITE, write).await;
    let written: Written = calls::decode(&written).unwrap();
    assert!(matches!(done(written).outcome, Ok(Reply::Done { .. })));
    assert!(node.status().is_ready);
    node.close().await.unwrap();
}
