//! Streams: each on a connection of its own, in parts, so that TCP holds up a sender whose reader is slow.
//!
//! ```text
//! sender    Stream (head)   Part ... Part   End
//! receiver                                        Answer, at any time: then the sender stops
//! ```

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::timeout;

use super::conn::{Failure, judge, millis};
use super::frame::{Frame, What};
use super::limits::{LINGER, PART_BYTES, QUEUED_PARTS, STREAM_BYTES};
use super::wire::{FrameReader, Out, Queue, Us, Wire};
use super::{From, NetError, Peer, Sockets};

/// Of every stream: there is one on a connection.
const ID: u64 = 1;

/// A stream to be sent.
pub(super) struct Outgoing<'a> {
    pub to: &'a Peer,
    pub kind: u8,
    pub head: Bytes,
    pub within: Duration,
}

impl Outgoing<'_> {
    /// The caller limits the time.
    pub async fn send(
        self,
        us: &Arc<Us>,
        sockets: &Sockets,
        body: impl AsyncRead + Unpin,
    ) -> Result<(From, Bytes), NetError> {
        let socket = sockets.connect(&self.to.addr).await;
        let socket = socket.map_err(NetError::Unreachable)?;
        let head = Out {
            what: What::Stream,
            kind: self.kind,
            id: ID,
            to: self.to.node,
            within_ms: millis(self.within),
            body: self.head,
        };
        let mut wire = Wire::new(socket, us, QUEUED_PARTS, Some(head));
        let parts = parts(body, &wire.queue);
        let mut answer = std::pin::pin!(answer(&mut wire.reader));
        let failed = tokio::select! {
            biased;
            answer = &mut answer => return finish(us, self.to, answer),
            // All is sent unless it failed: nothing but the answer is missing.
            Err(error) = parts => error,
        };
        // The peer may have answered before it ended the connection.
        match timeout(LINGER, answer).await {
            Ok(Ok(answer)) => finish(us, self.to, Ok(answer)),
            _ => Err(NetError::Unreachable(failed)),
        }
    }
}

fn finish(us: &Us, to: &Peer, answer: io::Result<Frame>) -> Result<(From, Bytes), NetError> {
    let answer = answer.map_err(|error| Failure::of(&error).error())?;
    judge(us.hello.cluster, to, answer)
}

async fn answer<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) -> io::Result<Frame> {
    while let Some(frame) = reader.next().await? {
        if matches!(frame.what, What::Answer | What::Refused | What::Busy) {
            return Ok(frame);
        }
    }
    Err(io::ErrorKind::ConnectionReset.into())
}

/// Queues the body and its end.
async fn parts(mut body: impl AsyncRead + Unpin, queue: &Queue) -> io::Result<()> {
    let over = || io::Error::from(io::ErrorKind::ConnectionReset);
    loop {
        let mut bytes = BytesMut::with_capacity(PART_BYTES);
        while bytes.len() < PART_BYTES && body.read_buf(&mut bytes).await? > 0 {}
        if bytes.is_empty() {
            break;
        }
        let part = Out::plain(What::Part, ID, bytes.freeze());
        if !queue.put(part).await {
            return Err(over());
        }
    }
    match queue.put(Out::plain(What::End, ID, Bytes::new())).await {
        true => Ok(()),
        false => Err(over()),
    }
}

/// The body as the handler reads it: parts as they come in.
pub(super) struct Incoming {
    bytes: DuplexStream,
    whole: Arc<AtomicBool>,
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, before) = (into.remaining(), into.filled().len());
        let read = Pin::new(&mut self.bytes).poll_read(context, into);
        let at_end = room > 0 && into.filled().len() == before;
        if let Poll::Ready(Ok(())) = read
            && at_end
            && !self.whole.load(Ordering::Acquire)
        {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        read
    }
}

impl Incoming {
    /// The body as the handler reads it, and the work to be done meanwhile: see [`Feed::run`].
    pub fn new() -> (Incoming, Feed) {
        let (bytes, into) = tokio::io::duplex(STREAM_BYTES);
        let whole = Arc::new(AtomicBool::new(false));
        let incoming = Incoming {
            bytes,
            whole: whole.clone(),
        };
        (incoming, Feed { into, whole })
    }
}

pub(super) struct Feed {
    into: DuplexStream,
    whole: Arc<AtomicBool>,
}

impl Feed {
    /// Passes parts on until the end, or the connection's; then what comes still is dropped. Parts that the handler does
    /// not want are dropped too.
    pub async fn run<R: AsyncRead + Unpin>(mut self, reader: &mut FrameReader<R>) {
        while let Ok(Some(frame)) = reader.next().await {
            match frame.what {
                What::Part => drop(self.into.write_all(&frame.body).await),
                What::End => {
                    self.whole.store(true, Ordering::Release);
                    break;
                }
                What::Alive => {}
                _ => break,
            }
        }
        drop(self.into);
        while let Ok(Some(_)) = reader.next().await {}
    }
}
