//! Streams.

use super::*;

async fn send(
    from: &Node,
    to: &Node,
    kind: u8,
    body: impl AsyncRead + Unpin + Send,
) -> Result<Bytes, NetError> {
    let head = Bytes::from_static(b"head");
    let sent = from.net.send(&to.peer, kind, head, body, LONG).await;
    sent.map(|(_, body)| body)
}

fn expected(bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    format!("4 {} {sum}", bytes.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_arrives_whole_whatever_its_length() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    for len in [0, 1, 65_535, 65_536, 65_537, 8 << 20] {
        let bytes = noise(len);
        let sent = send(&one, &two, kind::SUM, &bytes[..]).await;
        assert_eq!(sent.unwrap(), expected(&bytes));
    }
    let many = (0..20).map(|n| {
        let (net, peer) = (one.net.clone(), two.peer.clone());
        tokio::spawn(async move {
            let bytes = noise(n * 10_001);
            let head = Bytes::from_static(b"head");
            let sent = net.send(&peer, kind::SUM, head, &bytes[..], LONG);
            assert_eq!(sent.await.unwrap().1, expected(&bytes));
        })
    });
    for one in many.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_stops_the_sender() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    for _ in 0..20 {
        let endless = tokio::io::repeat(9);
        let sent = send(&one, &two, kind::EARLY, endless).await;
        assert_eq!(sent.unwrap(), [9; 10].as_slice());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_is_not_taken_for_whole() {
    /// Some bytes, then an error.
    struct Broken(usize);

    impl AsyncRead for Broken {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            if self.0 == 0 {
                return std::task::Poll::Ready(Err(io::Error::other("no disk")));
            }
            let len = self.0.min(into.remaining());
            into.put_slice(&vec![1; len]);
            self.0 -= len;
            std::task::Poll::Ready(Ok(()))
        }
    }
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let error = unreachable(send(&one, &two, kind::SUM, Broken(300_000)).await);
    assert_eq!(error.to_string(), "no disk");
    until("the handler heard of it", || {
        two.seen.broken.load(Ordering::SeqCst) == 1
    })
    .await;
    // Of a sender who gives up, too.
    let endless = tokio::io::repeat(9);
    tokio::select! {
        _ = send(&one, &two, kind::SUM, endless) => panic!("it has no end"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    until("the handler heard of it", || {
        two.seen.broken.load(Ordering::SeqCst) == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_stuck_takes_no_memory_of_the_sender() {
    /// Counts what was read of it, and never ends.
    struct Counted(Arc<AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let len = into.remaining();
            into.put_slice(&vec![1; len]);
            self.0.fetch_add(len, Ordering::SeqCst);
            std::task::Poll::Ready(Ok(()))
        }
    }
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let read = Arc::new(AtomicUsize::new(0));
    let body = Counted(read.clone());
    let stuck = send(&one, &two, kind::STUCK, body);
    let watch = async {
        two.seen.begun.notified().await;
        let mut before = usize::MAX;
        while before != read.load(Ordering::SeqCst) {
            before = read.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        two.seen.let_go.add_permits(1);
        before
    };
    let (sent, before) = tokio::join!(stuck, watch);
    assert_eq!(sent.unwrap(), "head");
    // Mostly what the system buffers.
    assert!(before < 16 << 20, "{before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_to_nowhere_to_another_node_and_after_the_shutdown_fails() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let to = |node, addr: &str| Peer {
        node,
        addr: addr.to_string(),
    };
    let sent = async |peer: Peer| {
        let endless = tokio::io::repeat(9);
        let sent = one.net.send(&peer, kind::SUM, Bytes::new(), endless, LONG);
        at_once(sent).await
    };
    unreachable(sent(to(2, &nowhere().await)).await);
    refused(sent(to(3, &two.peer.addr)).await);
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 0);
    one.net.shutdown().await;
    unreachable(sent(two.peer.clone()).await);
}
