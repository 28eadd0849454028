//! Questions and answers between nodes that mean well.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_question_has_its_answer_and_says_who_asks() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    assert_eq!(one.ask(&two, kind::ECHO, "hello").await.unwrap(), "hello");
    two.clock.set(WALL + 5);
    let (from, body) = one
        .net
        .ask(&two.peer, kind::WHO, Bytes::new(), LONG)
        .await
        .unwrap();
    assert_eq!(body, format!("{CLUSTER:x} 1 3 {WALL}"));
    let expected = From {
        cluster: CLUSTER,
        node: 2,
        format: 3,
        wall_ms: WALL + 5,
    };
    assert_eq!(from, expected);
    // In the other direction, and of itself.
    assert_eq!(two.ask(&one, kind::ECHO, "").await.unwrap(), "");
    assert_eq!(two.ask(&two, kind::ECHO, "me").await.unwrap(), "me");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_questions_at_once_and_answers_out_of_order() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let held = one.ask(&two, kind::HOLD, "late");
    let others = async {
        let all = (0..1_000u32).map(|n| {
            let (net, peer) = (one.net.clone(), two.peer.clone());
            tokio::spawn(async move {
                let body = noise(n as usize * 37 % 5_000);
                let asked = net.ask(&peer, kind::ECHO, body.clone(), LONG).await;
                assert_eq!(asked.unwrap().1, body);
            })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        two.seen.let_go.add_permits(1);
    };
    let (held, ()) = tokio::join!(held, others);
    assert_eq!(held.unwrap(), "late");
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 1_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_up_to_the_limit_and_none_beyond() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    for len in [65_463, 65_464, 65_465, 1 << 20, 16 << 20] {
        let body = noise(len);
        assert!(one.ask(&two, kind::ECHO, body.clone()).await.unwrap() == body);
    }
    let text = refused(one.ask(&two, kind::ECHO, noise((16 << 20) + 1)).await);
    assert!(text.contains("longer than 16 MiB"), "{text}");
    let text = refused(one.ask(&two, kind::LONG, "16777217").await);
    assert!(text.contains("longer than 16 MiB"), "{text}");
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_and_another_node_are_refused() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let addr = "127.0.0.1:0".parse().unwrap();
    let of = |cluster, node| Hello {
        cluster,
        ..hello(node)
    };
    let other = Node::with(of(7, 9), addr, None).await;
    let text = refused(other.ask(&two, kind::ECHO, "x").await);
    assert_eq!(text, "this node is of another cluster");
    let any = |of: &Node| Peer {
        node: 0,
        ..of.peer.clone()
    };
    let asked = |node: &Node, peer: Peer| {
        let net = node.net.clone();
        async move { net.ask(&peer, kind::WHO, Bytes::new(), LONG).await }
    };
    refused(asked(&other, any(&two)).await);
    refused(asked(&one, any(&other)).await);
    let wrong = Peer {
        node: 3,
        ..two.peer.clone()
    };
    let text = refused(asked(&one, wrong).await);
    assert_eq!(text, "another node is at this address");
    assert_eq!(asked(&one, any(&two)).await.unwrap().0.node, 2);
    // A node that joins asks any cluster; a cluster's node asks nothing of it, and takes no answer.
    let joining = Node::with(of(0, 5), addr, None).await;
    let (from, body) = asked(&joining, any(&other)).await.unwrap();
    assert_eq!((from.cluster, from.node), (7, 9));
    assert_eq!(body, format!("0 5 3 {WALL}"));
    refused(asked(&one, any(&joining)).await);
    assert_eq!(other.seen.requests.load(Ordering::SeqCst), 1);
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 1);
    assert_eq!(joining.seen.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_was_started_again_is_found_on_the_same_port() {
    let one = Node::new(1).await;
    let two = Node::new(2).await;
    let addr = two.net.local_addr();
    assert_eq!(one.ask(&two, kind::ECHO, "1").await.unwrap(), "1");
    two.net.shutdown().await;
    unreachable(at_once(one.ask(&two, kind::ECHO, "2")).await);
    for _ in 0..100 {
        unreachable(at_once(one.ask(&two, kind::ECHO, "2")).await);
    }
    let again = Node::with(hello(2), addr, None).await;
    let begun = Instant::now();
    let answer = loop {
        match one.ask(&again, kind::ECHO, "3").await {
            Ok(answer) => break answer,
            Err(NetError::Unreachable(_) | NetError::NotSent(_)) => assert!(begun.elapsed() < LONG),
            Err(error) => panic!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(answer, "3");
    assert_eq!(again.seen.requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_reached_costs_no_time() {
    let one = Node::new(1).await;
    let peer = |addr: String| Peer { node: 2, addr };
    let dead = peer(nowhere().await);
    for _ in 0..50 {
        let asked = one.net.ask(&dead, kind::ECHO, Bytes::new(), LONG);
        let error = unreachable(at_once(asked).await);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
    for addr in [
        "",
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:99999",
        "no.such.host.invalid:1",
    ] {
        let peer = peer(addr.to_string());
        let asked = one.net.ask(&peer, kind::ECHO, Bytes::new(), LONG);
        unreachable(timeout(LONG, asked).await.unwrap());
    }
    // Many that lead nowhere leave nothing behind.
    for port in 1..200 {
        let dead = peer(format!("127.0.0.9:{port}"));
        let asked = one.net.ask(&dead, kind::ECHO, Bytes::new(), LONG);
        unreachable(at_once(asked).await);
    }
    assert!(one.net.shared.links.len() <= 65);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_given_up_leaves_nothing_on_either_side() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    assert_eq!(one.ask(&two, kind::ECHO, "1").await.unwrap(), "1");
    let short = Duration::from_millis(30);
    let late = one.net.ask(&two.peer, kind::HOLD, Bytes::new(), short);
    assert!(matches!(late.await, Err(NetError::TimedOut)));
    two.is_at_rest().await;
    // Dropped: the other side hears of it, though it has a long time.
    for _ in 0..20 {
        let dropped = one.net.ask(&two.peer, kind::HOLD, Bytes::new(), 3 * LONG);
        tokio::select! {
            _ = dropped => panic!("nobody answered"),
            () = two.seen.begun.notified() => {}
        }
    }
    two.is_at_rest().await;
    assert_eq!(one.net.shared.links.waiting(&two.peer.addr), 0);
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
    // The one whose time is over before it has a connection.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = Peer {
        node: 0,
        addr: silent.local_addr().unwrap().to_string(),
    };
    let late = one.net.ask(&silent, kind::ECHO, Bytes::new(), short).await;
    assert!(matches!(
        late,
        Err(NetError::TimedOut | NetError::NotSent(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_of_one_kind_holds_up_no_other() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let held: Vec<_> = (0..1_500)
        .map(|_| {
            let (net, peer) = (one.net.clone(), two.peer.clone());
            tokio::spawn(async move { net.ask(&peer, kind::HOLD, Bytes::new(), LONG).await })
        })
        .collect();
    until("as many as may wait there", || {
        two.seen.running.load(Ordering::SeqCst) == 1_024
    })
    .await;
    let asked = at_once(one.ask(&two, kind::ECHO, "other")).await;
    assert_eq!(asked.unwrap(), "other");
    two.seen.let_go.add_permits(1_500);
    for one in held {
        one.await.unwrap().unwrap();
    }
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 1_501);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_bytes_under_way_are_busy_and_not_handled() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let held: Vec<_> = (0..4)
        .map(|_| {
            let (net, peer) = (one.net.clone(), two.peer.clone());
            tokio::spawn(async move { net.ask(&peer, kind::HOLD, noise(16 << 20), LONG).await })
        })
        .collect();
    until("four are there", || {
        two.seen.running.load(Ordering::SeqCst) == 4
    })
    .await;
    let busy = unreachable(at_once(one.ask(&two, kind::HOLD, "x")).await);
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    two.seen.let_go.add_permits(4);
    for one in held {
        assert_eq!(one.await.unwrap().unwrap().1.len(), 16 << 20);
    }
    assert_eq!(two.seen.requests.load(Ordering::SeqCst), 4);
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_says_so() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let text = refused(at_once(one.ask(&two, kind::PANIC, "x")).await);
    assert_eq!(text, "the request failed there");
    assert_eq!(one.ask(&two, kind::ECHO, "on").await.unwrap(), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_go_on_what_is_under_way_and_ends_the_rest() {
    let (one, two) = (Node::new(1).await, Node::new(2).await);
    let ask = |body: &'static str| {
        let (net, peer) = (one.net.clone(), two.peer.clone());
        tokio::spawn(async move {
            let asked = net.ask(&peer, kind::HOLD, body.into(), LONG).await;
            asked.map(|(_, body)| body)
        })
    };
    let first = ask("first");
    two.seen.begun.notified().await;
    let second = ask("second");
    two.seen.begun.notified().await;
    let shut = async {
        two.net.shutdown().await;
    };
    let let_go = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        two.seen.let_go.add_permits(1);
    };
    tokio::join!(shut, let_go);
    // One of them was let go, whichever came to wait for it first.
    let (mut answered, mut ended) = (0, 0);
    for asked in [first, second] {
        match asked.await.unwrap() {
            Ok(_) => answered += 1,
            failed => {
                unreachable(failed);
                ended += 1;
            }
        }
    }
    assert_eq!((answered, ended), (1, 1));
    two.is_at_rest().await;
    unreachable(at_once(one.ask(&two, kind::ECHO, "x")).await);
    unreachable(at_once(two.ask(&one, kind::ECHO, "x")).await);
    two.net.shutdown().await;
}
