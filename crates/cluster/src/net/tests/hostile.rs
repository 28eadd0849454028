//! Strangers that connect: nothing of them panics, stays, or costs others anything.

use super::*;
use crate::net::frame::{Frame, HEAD_BYTES, What, decode};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

fn frame(what: What, body: Bytes) -> Frame {
    Frame {
        what,
        kind: kind::ECHO,
        format: 3,
        within_ms: 10_000,
        id: 1,
        cluster: CLUSTER,
        from: 66,
        to: 0,
        wall_ms: WALL,
        body,
    }
}

fn bytes(frame: &Frame) -> Vec<u8> {
    [&frame.head()[..], &frame.body].concat()
}

async fn connect(to: &Node) -> TcpStream {
    TcpStream::connect(&to.peer.addr).await.unwrap()
}

/// Everything until the other side ends the connection.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = vec![];
    // A reset is an end too.
    let _ = timeout(LONG, stream.read_to_end(&mut rest))
        .await
        .expect("it ends");
    rest
}

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut bytes = BytesMut::from(bytes);
    std::iter::from_fn(|| decode(&mut bytes).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_its_connection_at_once() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let mut damaged = bytes(&frame(What::Request, "abc".into()));
    damaged[HEAD_BYTES] ^= 1;
    let mut other_version = bytes(&frame(What::Request, "abc".into()));
    other_version[3] = 2;
    let all: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &noise(100_000),
        &[0; 200],
        &damaged,
        &other_version,
        b"\x16\x03\x01\x02\x00",
    ];
    for garbage in all {
        let mut stream = connect(&two).await;
        // The other side may have closed it before all was written.
        let _ = stream.write_all(garbage).await;
        assert_eq!(at_once(rest(&mut stream)).await, b"");
    }
    // After a good beginning too.
    for garbage in all {
        let mut stream = connect(&two).await;
        let good = bytes(&frame(What::Alive, Bytes::new()));
        stream.write_all(&good).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let answers = frames(&rest(&mut stream).await);
        assert!(answers.iter().all(|frame| frame.what == What::Alive));
    }
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 0);
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_have_no_place_end_their_connection() {
    let two = Node::new(2).await;
    for what in [
        What::Answer,
        What::Part,
        What::End,
        What::Refused,
        What::Busy,
    ] {
        let mut stream = connect(&two).await;
        stream
            .write_all(&bytes(&frame(what, "abc".into())))
            .await
            .unwrap();
        rest(&mut stream).await;
    }
    // A stream on a connection of questions.
    let mut stream = connect(&two).await;
    for what in [What::Request, What::Stream] {
        let frame = bytes(&frame(what, "abc".into()));
        stream.write_all(&frame).await.unwrap();
    }
    rest(&mut stream).await;
    // A cancellation of nothing is nothing; one id twice is two questions.
    let mut stream = connect(&two).await;
    for what in [What::Cancel, What::Request, What::Request] {
        let frame = bytes(&frame(what, "abc".into()));
        stream.write_all(&frame).await.unwrap();
    }
    let mut answers = BytesMut::new();
    let mut left = 2;
    while left > 0 {
        at_once(stream.read_buf(&mut answers)).await.unwrap();
        while let Some(frame) = decode(&mut answers).unwrap() {
            left -= usize::from(frame.what == What::Answer && frame.body == "abc");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_is_not_believed() {
    let two = Node::new(2).await;
    let mut head = frame(What::Request, Bytes::new()).head();
    for len in [u32::MAX, (16 << 20) + 1] {
        head[4..8].copy_from_slice(&len.to_le_bytes());
        let crc = crc32fast::hash(&head[..HEAD_BYTES - 4]);
        head[HEAD_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        let mut stream = connect(&two).await;
        stream.write_all(&head).await.unwrap();
        assert_eq!(at_once(rest(&mut stream)).await, b"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_silent_and_strangers_are_sent_away_and_nodes_served_meanwhile() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    assert_eq!(one.ask(&two, kind::ECHO, "before").await.unwrap(), "before");
    let begun = Instant::now();
    let mut silent = vec![];
    for _ in 0..200 {
        silent.push(connect(&two).await);
    }
    // Another cluster's node, which goes on and on.
    let mut stranger = silent.swap_remove(0);
    let other = Frame {
        cluster: 9,
        ..frame(What::Request, Bytes::new())
    };
    stranger.write_all(&bytes(&other)).await.unwrap();
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
    let answers = frames(&rest(&mut stranger).await);
    let refused = |frame: &&Frame| frame.what == What::Refused;
    assert_eq!(answers.iter().filter(refused).count(), 1);
    assert!(answers.iter().all(|frame| frame.what != What::Answer));
    for mut one in silent {
        rest(&mut one).await;
    }
    assert!(begun.elapsed() < LONG);
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 2);
    let three = Node::new(3).await;
    assert_eq!(three.ask(&two, kind::ECHO, "new").await.unwrap(), "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_frame_and_a_node_that_falls_silent_are_ended() {
    let two = Node::new(2).await;
    let mut half = connect(&two).await;
    let good = bytes(&frame(What::Alive, Bytes::new()));
    half.write_all(&good).await.unwrap();
    half.write_all(&good[..50]).await.unwrap();
    let begun = Instant::now();
    let told = frames(&rest(&mut half).await);
    // It said that it is there until it gave up.
    assert!(told.len() >= 3, "{}", told.len());
    assert!(begun.elapsed() >= Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_answers_nonsense_or_nothing_is_an_error() {
    let one = Node::new(1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = Peer {
        node: 2,
        addr: listener.local_addr().unwrap().to_string(),
    };
    let ask = || one.net.ask(&peer, kind::ECHO, Bytes::new(), LONG);
    let answers: [Vec<u8>; 4] = [
        noise(300).to_vec(),
        bytes(&frame(What::Answer, Bytes::new()))[..40].to_vec(),
        vec![],
        // To a question that nobody asked.
        bytes(&Frame {
            id: 1 << 60,
            ..frame(What::Answer, "x".into())
        }),
    ];
    for answer in answers {
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 2 * HEAD_BYTES]).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        };
        let asked = async {
            // Of the pause after the one before.
            tokio::time::sleep(Duration::from_millis(600)).await;
            unreachable(ask().await)
        };
        tokio::join!(serve, asked);
    }
    // The right answer of a wrong node, and of another cluster.
    for answer in [
        frame(What::Answer, "x".into()),
        Frame {
            cluster: 5,
            from: 2,
            ..frame(What::Answer, "x".into())
        },
    ] {
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 2 * HEAD_BYTES];
            stream.read_exact(&mut asked).await.unwrap();
            let id = frames(&asked)[1].id;
            stream
                .write_all(&bytes(&Frame { id, ..answer }))
                .await
                .unwrap();
            stream.shutdown().await.unwrap();
        };
        let asked = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            refused(ask().await)
        };
        tokio::join!(serve, asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_no_answers_is_held_up_and_nobody_else() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let mut greedy = connect(&two).await;
    let ask = frame(What::Request, noise(1 << 20));
    let asked = async {
        for id in 1..400 {
            let ask = bytes(&Frame { id, ..ask.clone() });
            if greedy.write_all(&ask).await.is_err() {
                break;
            }
        }
    };
    // It is held up, or sent away; neither takes long.
    let _ = timeout(Duration::from_secs(5), asked).await;
    assert!(two.seen.requests.load(Ordering::SeqCst) < 200);
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}
