//! The ways between nodes: what goes from one to another passes a proxy, which can hold it up, in each direction by itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

pub struct Ways {
    /// From each to each.
    cut: Vec<Vec<AtomicBool>>,
    delay_ms: AtomicU64,
    /// Connections of an earlier number are dropped.
    number: AtomicU64,
    by_id: Mutex<HashMap<u64, usize>>,
    latest: Mutex<HashMap<usize, u64>>,
}

impl Ways {
    pub fn between(nodes: usize) -> Ways {
        let row = || (0..nodes).map(|_| AtomicBool::new(false)).collect();
        Ways {
            cut: (0..nodes).map(|_| row()).collect(),
            delay_ms: AtomicU64::new(0),
            number: AtomicU64::new(0),
            by_id: Mutex::default(),
            latest: Mutex::default(),
        }
    }

    pub fn is_node(&self, number: usize, id: u64) {
        self.by_id.lock().unwrap().insert(id, number);
        self.latest.lock().unwrap().insert(number, id);
    }

    pub fn number_of(&self, id: u64) -> Option<usize> {
        self.by_id.lock().unwrap().get(&id).copied()
    }

    /// Nothing goes from one node to the other until [`Ways::heal`]; then what was sent arrives.
    pub fn cut(&self, from: usize, to: usize) {
        self.cut[from][to].store(true, Ordering::SeqCst);
    }

    pub fn delay(&self, by: Duration) {
        self.delay_ms.store(by.as_millis() as u64, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.cut
            .iter()
            .flatten()
            .for_each(|cut| cut.store(false, Ordering::SeqCst));
        self.delay(Duration::ZERO);
    }

    /// Ends all connections, and what was on its way is lost.
    pub fn reset(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    /// The latest id of a node.
    pub fn id_of(&self, number: usize) -> Option<u64> {
        self.latest.lock().unwrap().get(&number).copied()
    }

    fn is_cut(&self, from: Option<usize>, to: Option<usize>) -> bool {
        let cut = from.zip(to).map(|(from, to)| &self.cut[from][to]);
        cut.is_some_and(|cut| cut.load(Ordering::SeqCst))
    }

    /// Passes on whatever connects to this node.
    pub async fn lead(self: Arc<Ways>, listener: TcpListener, to: usize, addr: SocketAddr) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().pass(stream, to, addr));
        }
    }

    async fn pass(self: Arc<Ways>, mut stream: TcpStream, to: usize, addr: SocketAddr) {
        // The head of the first frame says whose it is: crates/cluster/src/net/frame.rs.
        let mut head = [0; 72];
        let read = timeout(Duration::from_secs(5), stream.read_exact(&mut head)).await;
        if !matches!(read, Ok(Ok(_))) {
            return;
        }
        let id = u64::from_le_bytes(head[40..48].try_into().unwrap());
        let from = self.number_of(id);
        while self.is_cut(from, Some(to)) {
            sleep(Duration::from_millis(5)).await;
        }
        let Ok(mut onward) = TcpStream::connect(addr).await else {
            return;
        };
        let _ = (stream.set_nodelay(true), onward.set_nodelay(true));
        if onward.write_all(&head).await.is_err() {
            return;
        }
        let ((back, out), (other, into)) = (stream.into_split(), onward.into_split());
        tokio::select! {
            () = self.pump(back, into, from, Some(to)) => {}
            () = self.pump(other, out, Some(to), from) => {}
        }
    }

    async fn pump(
        &self,
        mut read: OwnedReadHalf,
        mut write: OwnedWriteHalf,
        from: Option<usize>,
        to: Option<usize>,
    ) {
        let number = self.number.load(Ordering::SeqCst);
        let mut bytes = vec![0; 16 << 10];
        loop {
            let len = tokio::select! {
                len = read.read(&mut bytes) => len.unwrap_or(0),
                () = self.is_reset(number) => 0,
            };
            if len == 0 {
                return;
            }
            sleep(Duration::from_millis(self.delay_ms.load(Ordering::SeqCst))).await;
            while self.is_cut(from, to) {
                if self.number.load(Ordering::SeqCst) != number {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
            if write.write_all(&bytes[..len]).await.is_err() {
                return;
            }
        }
    }

    async fn is_reset(&self, number: u64) {
        while self.number.load(Ordering::SeqCst) == number {
            sleep(Duration::from_millis(20)).await;
        }
    }
}
