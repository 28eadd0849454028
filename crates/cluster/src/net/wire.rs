//! Frames on a socket: a reader, and a task that writes what is queued.
//!
//! Invariants: the queue is bounded, and whoever queues waits while it is full, so that a peer that does not read holds up
//! those who send and takes none of their memory. The task says once in [`ALIVE`] that this side is there; without a byte
//! for [`SILENCE`] the reader ends, as the task does when the other side takes none for [`STUCK`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use ebbtide::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::Hello;
use super::frame::{self, Frame, HEAD_BYTES, What};
use super::limits::{ALIVE, QUEUED, SILENCE, STUCK};
use super::socket::Socket;

/// Read at once, while it is not known how much comes.
const CHUNK: usize = 16 << 10;
/// Gathered before it is written; longer bodies are not copied.
const GATHERED: usize = 64 << 10;

/// A frame to send, without what every frame of this node has.
pub(super) struct Out {
    pub what: What,
    pub kind: u8,
    pub id: u64,
    pub to: u64,
    pub within_ms: u32,
    pub body: Bytes,
}

impl Out {
    pub fn alive() -> Out {
        Out::plain(What::Alive, 0, Bytes::new())
    }

    /// Without kind, time and node: an answer, or what a stream consists of.
    pub fn plain(what: What, id: u64, body: Bytes) -> Out {
        Out {
            what,
            kind: 0,
            id,
            to: 0,
            within_ms: 0,
            body,
        }
    }
}

pub(super) struct FrameReader<R> {
    from: R,
    arrived: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(from: R) -> FrameReader<R> {
        FrameReader {
            from,
            arrived: BytesMut::new(),
        }
    }

    /// The next frame; `None` when the other side has ended the connection. Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = frame::decode(&mut self.arrived)? {
                return Ok(Some(frame));
            }
            self.arrived.reserve(CHUNK);
            let read = timeout(SILENCE, self.from.read_buf(&mut self.arrived)).await;
            let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer fell silent");
            if read.map_err(silent)?? == 0 {
                return match self.arrived.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Reads and forgets, until the other side has ended the connection.
    pub async fn drain(mut self) {
        loop {
            self.arrived.clear();
            self.arrived.reserve(CHUNK);
            if !matches!(self.from.read_buf(&mut self.arrived).await, Ok(read) if read > 0) {
                return;
            }
        }
    }
}

/// The queue of a connection. The connection is shut down once all clones are gone and all is written.
#[derive(Clone)]
pub(super) struct Queue {
    out: mpsc::Sender<Out>,
    waiting: Arc<AtomicUsize>,
}

impl Queue {
    /// Waits for room. `false`: the connection is over, and nothing was sent. Cancel safe: all or nothing is queued.
    pub async fn put(&self, out: Out) -> bool {
        let Ok(room) = self.out.reserve().await else {
            return false;
        };
        self.waiting.fetch_add(out.body.len(), Ordering::Relaxed);
        room.send(out);
        true
    }

    /// Sends it if there is room.
    pub fn put_at_once(&self, out: Out) {
        if let Ok(room) = self.out.try_reserve() {
            self.waiting.fetch_add(out.body.len(), Ordering::Relaxed);
            room.send(out);
        }
    }

    /// Bytes that wait for the socket.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// A connection cut in two: what reads, the queue, and the task that writes, which goes with its handle.
pub(super) struct Wire {
    pub reader: FrameReader<ReadHalf<Socket>>,
    pub queue: Queue,
    pub writer: Writer,
}

pub(super) struct Writer(JoinHandle<io::Result<()>>);

impl Writer {
    /// Waits until all is written or nothing more can be. Cancel safe.
    pub async fn ended(&mut self) -> io::Result<()> {
        (&mut self.0).await.unwrap_or(Ok(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Wire {
    /// With what is written first, if anything is: after that this side says from time to time that it is there.
    pub fn new(socket: Socket, us: &Arc<Us>, queued: usize, first: Option<Out>) -> Wire {
        let (read, write) = tokio::io::split(socket);
        let (out, queue) = mpsc::channel(queued.clamp(1, QUEUED));
        let waiting = Arc::new(AtomicUsize::new(0));
        let frames = FrameWriter {
            to: write,
            us: us.clone(),
            gathered: BytesMut::new(),
        };
        let writer = tokio::spawn(write_all(frames, first, queue, waiting.clone()));
        Wire {
            reader: FrameReader::new(read),
            queue: Queue { out, waiting },
            writer: Writer(writer),
        }
    }
}

/// The part of this node in every frame.
pub(super) struct Us {
    pub hello: Hello,
    pub clock: Arc<dyn Clock>,
}

struct FrameWriter<W> {
    to: W,
    us: Arc<Us>,
    gathered: BytesMut,
}

async fn write_all(
    mut frames: FrameWriter<WriteHalf<Socket>>,
    first: Option<Out>,
    mut queue: mpsc::Receiver<Out>,
    waiting: Arc<AtomicUsize>,
) -> io::Result<()> {
    if let Some(first) = first {
        frames.put(first).await?;
        frames.flush().await?;
    }
    let mut alive = interval_at(Instant::now() + ALIVE, ALIVE);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            next = queue.recv() => next,
            _ = alive.tick() => Some(Out::alive()),
        };
        let Some(mut out) = next else {
            return frames.to.shutdown().await;
        };
        loop {
            let len = out.body.len();
            frames.put(out).await?;
            waiting.fetch_sub(len, Ordering::Relaxed);
            match queue.try_recv() {
                Ok(more) => out = more,
                Err(_) => break,
            }
        }
        frames.flush().await?;
    }
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    async fn put(&mut self, out: Out) -> io::Result<()> {
        let hello = self.us.hello;
        let frame = Frame {
            what: out.what,
            kind: out.kind,
            format: hello.format,
            within_ms: out.within_ms,
            id: out.id,
            cluster: hello.cluster,
            from: hello.node,
            to: out.to,
            wall_ms: self.us.clock.wall(),
            body: out.body,
        };
        if self.gathered.len() + HEAD_BYTES + frame.body.len() > GATHERED {
            self.flush().await?;
        }
        self.gathered.extend_from_slice(&frame.head());
        if HEAD_BYTES + frame.body.len() > GATHERED {
            self.flush().await?;
            return self.write(frame.body).await;
        }
        self.gathered.extend_from_slice(&frame.body);
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let gathered = self.gathered.split();
        self.write(gathered).await?;
        stuck(timeout(STUCK, self.to.flush()).await)
    }

    async fn write(&mut self, mut bytes: impl Buf) -> io::Result<()> {
        while bytes.has_remaining() {
            if stuck(timeout(STUCK, self.to.write_buf(&mut bytes)).await)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }
}

fn stuck<T>(result: Result<io::Result<T>, tokio::time::error::Elapsed>) -> io::Result<T> {
    let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "the peer reads nothing");
    result.map_err(stuck)?
}
