//! Goal: nodes answer each other, and whatever else connects takes nothing of them.
//!
//! Method: two or more places on the network in one process, over loopback; raw sockets where the other side is hostile.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ebbtide::{Clock, ManualClock};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

use super::{From, Handler, Hello, Net, NetError, Peer, Sockets, Tcp, Tls};

mod asks;
mod frames;
mod fuzz;
mod hostile;
mod streams;
#[cfg(feature = "tls")]
mod tls;

const CLUSTER: u128 = 0x_c1c2;
const WALL: u64 = 1_772_366_400_000;
const LONG: Duration = Duration::from_secs(20);

/// The kinds of requests that the nodes here know.
mod kind {
    /// Sends the body back.
    pub const ECHO: u8 = 1;
    /// Answers when it is let go.
    pub const HOLD: u8 = 2;
    /// Answers with as many bytes as the body says.
    pub const LONG: u8 = 3;
    pub const PANIC: u8 = 4;
    /// Answers with the count and the sum of the bytes of a stream.
    pub const SUM: u8 = 5;
    /// Answers after the first 10 bytes.
    pub const EARLY: u8 = 6;
    /// Reads the stream's first 100 bytes, then nothing.
    pub const STUCK: u8 = 7;
    /// Answers with the sender's cluster, node, format and clock.
    pub const WHO: u8 = 8;
}

/// The things that a node here has seen.
struct Seen {
    requests: AtomicUsize,
    /// Handlers that are running.
    running: AtomicUsize,
    /// Streams that broke off.
    broken: AtomicUsize,
    let_go: Semaphore,
    begun: Notify,
}

struct Running<'a>(&'a Seen);

impl<'a> Running<'a> {
    fn new(seen: &'a Seen) -> Self {
        seen.requests.fetch_add(1, Ordering::SeqCst);
        seen.running.fetch_add(1, Ordering::SeqCst);
        seen.begun.notify_one();
        Running(seen)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Seen {
    async fn request(&self, from: From, kind: u8, body: Bytes) -> Bytes {
        let _running = Running::new(self);
        match kind {
            kind::ECHO => body,
            kind::HOLD => {
                self.let_go.acquire().await.unwrap().forget();
                body
            }
            kind::LONG => vec![7; std::str::from_utf8(&body).unwrap().parse().unwrap()].into(),
            kind::WHO => {
                let From {
                    cluster,
                    node,
                    format,
                    wall_ms,
                } = from;
                format!("{cluster:x} {node} {format} {wall_ms}").into()
            }
            _ => panic!("on purpose"),
        }
    }

    async fn stream(
        &self,
        _: From,
        kind: u8,
        head: Bytes,
        mut body: impl AsyncRead + Unpin + Send,
    ) -> Bytes {
        let _running = Running::new(self);
        match kind {
            kind::SUM => match sum(&mut body).await {
                Ok((len, sum)) => format!("{} {len} {sum}", head.len()).into(),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
                    self.broken.fetch_add(1, Ordering::SeqCst);
                    Bytes::new()
                }
            },
            kind::EARLY => {
                let mut first = [0; 10];
                body.read_exact(&mut first).await.unwrap();
                first.to_vec().into()
            }
            kind::STUCK => {
                body.read_exact(&mut [0; 100]).await.unwrap();
                self.let_go.acquire().await.unwrap().forget();
                head
            }
            _ => panic!("on purpose"),
        }
    }
}

async fn sum(body: &mut (impl AsyncRead + Unpin)) -> io::Result<(usize, u64)> {
    let (mut len, mut sum) = (0, 0);
    let mut part = vec![0; 10_000];
    loop {
        match body.read(&mut part).await? {
            0 => return Ok((len, sum)),
            read => {
                len += read;
                sum += part[..read]
                    .iter()
                    .map(|&byte| u64::from(byte))
                    .sum::<u64>();
            }
        }
    }
}

/// A node that answers.
struct Node {
    net: Net,
    seen: Arc<Seen>,
    peer: Peer,
    clock: ManualClock,
}

fn hello(node: u64) -> Hello {
    Hello {
        cluster: CLUSTER,
        node,
        format: 3,
    }
}

impl Node {
    async fn new(node: u64) -> Node {
        Node::with(hello(node), "127.0.0.1:0".parse().unwrap(), None).await
    }

    async fn with(hello: Hello, addr: SocketAddr, tls: Option<Tls>) -> Node {
        let clock = ManualClock::new(WALL);
        let of_net: Arc<dyn Clock> = Arc::new(clock.clone());
        let sockets = Sockets::new(Arc::new(Tcp), tls);
        let net = Net::bind(addr, hello, sockets, of_net).await.unwrap();
        let seen = Arc::new(Seen {
            requests: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            let_go: Semaphore::new(0),
            begun: Notify::new(),
        });
        net.serve(seen.clone());
        let peer = Peer {
            node: hello.node,
            addr: net.local_addr().to_string(),
        };
        Node {
            net,
            seen,
            peer,
            clock,
        }
    }

    async fn ask(&self, to: &Node, kind: u8, body: impl Into<Bytes>) -> Result<Bytes, NetError> {
        let asked = self.net.ask(&to.peer, kind, body.into(), LONG).await;
        asked.map(|(_, body)| body)
    }

    async fn is_at_rest(&self) {
        until("no handler runs", || {
            self.seen.running.load(Ordering::SeqCst) == 0
        })
        .await;
    }
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LONG, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, NetError>) -> String {
    match result {
        Err(NetError::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unreachable<T: std::fmt::Debug>(result: Result<T, NetError>) -> io::Error {
    match result {
        Err(NetError::Unreachable(error) | NetError::NotSent(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Bytes without a pattern that a part of them repeats.
fn noise(len: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(len + 8);
    let mut state = len as u64;
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.put_u64_le(state ^ state >> 33);
    }
    bytes.truncate(len);
    bytes.freeze()
}

/// An address where nobody listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn at_once<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(3), future)
        .await
        .expect("it takes no time")
}
