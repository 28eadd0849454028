//! Connections that others open, and the requests on them.
//!
//! Invariants: at most [`CONNECTIONS`] are open, and who comes on top is closed at once. One whose first frame of this
//! cluster is not there within [`HANDSHAKE`] is closed. The reader of a connection never waits for a handler: it answers as
//! busy what is too much, and so hears who has given up. With a connection its requests end.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::ReadHalf;
use tokio::sync::watch;
use tokio::task::{self, AbortHandle, JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::frame::{Frame, MOST_BODY, What};
use super::limits::{
    CONNECTIONS, GRACE, HANDLED, HANDSHAKE, HELD_BYTES, LINGER, QUEUED, UNREAD_BYTES,
};
use super::socket::{Listener, Socket};
use super::stream::Incoming;
use super::wire::{FrameReader, Out, Queue, Us, Wire};
use super::{From, Handler, Sockets};

type Reader = FrameReader<ReadHalf<Socket>>;

pub(super) struct Server {
    us: Arc<Us>,
    sockets: Sockets,
    stop: watch::Sender<bool>,
    phase: Mutex<Phase>,
}

enum Phase {
    Bound(Box<dyn Listener>),
    Serving(JoinHandle<()>),
    Over,
}

impl Server {
    pub fn new(listener: Box<dyn Listener>, us: Arc<Us>, sockets: Sockets) -> Server {
        Server {
            us,
            sockets,
            stop: watch::Sender::new(false),
            phase: Mutex::new(Phase::Bound(listener)),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn serve(&self, handler: Arc<impl Handler>) {
        let mut phase = self.phase();
        *phase = match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Bound(listener) => {
                let serving = Serving {
                    us: self.us.clone(),
                    sockets: self.sockets.clone(),
                    stop: self.stop.subscribe(),
                    handler,
                };
                Phase::Serving(tokio::spawn(serving.accept(listener)))
            }
            other => other,
        };
    }

    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let phase = std::mem::replace(&mut *self.phase(), Phase::Over);
        if let Phase::Serving(task) = phase {
            let _ = task.await;
        }
    }
}

struct Serving<H> {
    us: Arc<Us>,
    sockets: Sockets,
    stop: watch::Receiver<bool>,
    handler: Arc<H>,
}

impl<H> Clone for Serving<H> {
    fn clone(&self) -> Self {
        Serving {
            us: self.us.clone(),
            sockets: self.sockets.clone(),
            stop: self.stop.clone(),
            handler: self.handler.clone(),
        }
    }
}

/// Rests until the server is told to stop.
async fn stops(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

impl<H: Handler> Serving<H> {
    async fn accept(mut self, listener: Box<dyn Listener>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stops(&mut self.stop) => break,
            };
            match accepted {
                Ok(socket) if connections.len() < CONNECTIONS => {
                    connections.spawn(self.clone().connection(socket));
                }
                // It is closed.
                Ok(_) => {}
                // Out of file descriptors, mostly: others will be closed.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        // Those that are left end with the set.
        let _ = timeout(GRACE + LINGER, all).await;
    }

    async fn connection(mut self, socket: Socket) {
        let greeting = timeout(HANDSHAKE, async {
            let socket = self.sockets.greet(socket).await?;
            let mut wire = Wire::new(socket, &self.us, QUEUED, None);
            let first = self.first(&mut wire).await?;
            io::Result::Ok((wire, first))
        });
        let mut stop = self.stop.clone();
        let (wire, first) = tokio::select! {
            greeting = greeting => match greeting {
                Ok(Ok(greeting)) => greeting,
                _ => return,
            },
            () = stops(&mut stop) => return,
        };
        let Wire {
            mut reader,
            queue,
            mut writer,
        } = wire;
        let served = async {
            match first.what {
                What::Stream => self.stream(&mut reader, queue, first).await,
                _ => self.requests(&mut reader, queue, first).await,
            }
        };
        tokio::select! {
            () = served => {}
            _ = writer.ended() => return,
        }
        // The queue is gone: what is in it is written, and the other side is told the end.
        let _ = timeout(LINGER, writer.ended()).await;
        let _ = timeout(LINGER, reader.drain()).await;
    }

    /// The first frame that is not refused.
    async fn first(&self, wire: &mut Wire) -> io::Result<Frame> {
        while let Some(frame) = wire.reader.next().await? {
            match self.refusal(&frame) {
                None => {
                    wire.queue.put(Out::alive()).await;
                    return Ok(frame);
                }
                Some(reason) => refuse(&wire.queue, frame.id, reason).await,
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Why a frame is not for this node, if it is not.
    fn refusal(&self, frame: &Frame) -> Option<&'static str> {
        let hello = self.us.hello;
        if frame.cluster != 0 && frame.cluster != hello.cluster {
            return Some("this node is of another cluster");
        }
        if frame.to != 0 && frame.to != hello.node {
            return Some("another node is at this address");
        }
        None
    }

    async fn stream(&mut self, reader: &mut Reader, queue: Queue, head: Frame) {
        let (incoming, feed) = Incoming::new();
        let within = Duration::from_millis(head.within_ms.into());
        let from = From::of(&head);
        let handled = self.handler.stream(from, head.kind, head.body, incoming);
        let fed = async {
            feed.run(reader).await;
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            answer = timeout(within, handled) => answer,
            () = fed => return,
            () = async { stops(&mut self.stop).await; sleep(GRACE).await } => return,
        };
        if let Ok(body) = answer {
            queue.put(answer_of(head.id, body)).await;
        }
    }

    /// Until the connection is over, or the server stops and what is under way is done.
    async fn requests(&mut self, reader: &mut Reader, queue: Queue, first: Frame) {
        let mut requests = Requests {
            handler: self.handler.clone(),
            queue,
            held: Arc::default(),
            tasks: JoinSet::new(),
            by_id: HashMap::new(),
            by_task: HashMap::new(),
        };
        let mut next = Some(first);
        loop {
            if let Some(frame) = next.take() {
                match self.refusal(&frame) {
                    Some(reason) => refuse(&requests.queue, frame.id, reason).await,
                    None if requests.take(frame).await => {}
                    None => return,
                }
            }
            tokio::select! {
                read = reader.next() => match read {
                    Ok(Some(frame)) => next = Some(frame),
                    _ => return,
                },
                Some(done) = requests.tasks.join_next_with_id() => {
                    requests.done(done).await;
                }
                () = stops(&mut self.stop) => break,
            }
        }
        let rest = async {
            while let Some(done) = requests.tasks.join_next_with_id().await {
                requests.done(done).await;
            }
        };
        let _ = timeout(GRACE, rest).await;
    }
}

async fn refuse(queue: &Queue, id: u64, reason: &str) {
    let reason = Bytes::copy_from_slice(reason.as_bytes());
    queue.put(Out::plain(What::Refused, id, reason)).await;
}

fn answer_of(id: u64, body: Bytes) -> Out {
    if body.len() > MOST_BODY {
        let reason = Bytes::from_static(b"the answer is longer than 16 MiB");
        return Out::plain(What::Refused, id, reason);
    }
    Out::plain(What::Answer, id, body)
}

/// The requests of a connection that are under way.
struct Requests<H> {
    handler: Arc<H>,
    queue: Queue,
    /// Bytes of their bodies and of answers on their way into the queue.
    held: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
    by_id: HashMap<u64, AbortHandle>,
    by_task: HashMap<task::Id, u64>,
}

/// Bytes that are held until it is dropped.
struct Held {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Held {
    fn new(held: &Arc<AtomicUsize>, bytes: usize) -> Held {
        held.fetch_add(bytes, Ordering::Relaxed);
        let held = held.clone();
        Held { held, bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<H: Handler> Requests<H> {
    /// `false`: the other side does not keep to the protocol, or leaves so much unread that the connection has to end.
    async fn take(&mut self, frame: Frame) -> bool {
        let held = self.held.load(Ordering::Relaxed) + self.queue.waiting();
        if held > UNREAD_BYTES {
            return false;
        }
        match frame.what {
            What::Request => {}
            What::Alive => return true,
            What::Cancel => {
                if let Some(task) = self.by_id.remove(&frame.id) {
                    task.abort();
                }
                return true;
            }
            _ => return false,
        }
        if self.tasks.len() >= HANDLED || held + frame.body.len() > HELD_BYTES {
            let busy = Out::plain(What::Busy, frame.id, Bytes::new());
            return self.queue.put(busy).await;
        }
        let id = frame.id;
        let body = Held::new(&self.held, frame.body.len());
        let (handler, queue, held) = (self.handler.clone(), self.queue.clone(), self.held.clone());
        let task = self.tasks.spawn(async move {
            let within = Duration::from_millis(frame.within_ms.into());
            let from = From::of(&frame);
            let answer = handler.request(from, frame.kind, frame.body);
            let Ok(answer) = timeout(within, answer).await else {
                return;
            };
            let answer_held = Held::new(&held, answer.len());
            drop(body);
            queue.put(answer_of(id, answer)).await;
            drop(answer_held);
        });
        self.by_task.insert(task.id(), id);
        self.by_id.insert(id, task);
        true
    }

    async fn done(&mut self, done: Result<(task::Id, ()), JoinError>) {
        let (task, panicked) = match &done {
            Ok((task, ())) => (*task, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        if let Some(id) = self.by_task.remove(&task) {
            self.by_id.remove(&id);
            if panicked {
                refuse(&self.queue, id, "the request failed there").await;
            }
        }
    }
}
