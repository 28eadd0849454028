//! A connection to a peer, and the questions under way on it.
//!
//! Invariant: a question stands in `waiting` from before it is queued until its answer is there or its asker has gone. With
//! the connection's end all of them end, and none is taken after.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::frame::{Frame, What};
use super::limits::{IDLE, QUEUED};
use super::socket::Socket;
use super::wire::{FrameReader, Out, Queue, Us, Wire};
use super::{From, NetError, Peer};

/// An error that several askers get.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    kind: io::ErrorKind,
    text: String,
}

impl Failure {
    pub fn new(kind: io::ErrorKind, text: &str) -> Failure {
        let text = text.to_string();
        Failure { kind, text }
    }

    pub fn of(error: &io::Error) -> Failure {
        Failure::new(error.kind(), &error.to_string())
    }

    pub fn error(&self) -> NetError {
        NetError::Unreachable(io::Error::new(self.kind, self.text.clone()))
    }
}

pub(super) struct Conn {
    questions: Mutex<Questions>,
    queue: Queue,
    next_id: AtomicU64,
    /// The peer has said something.
    heard: AtomicBool,
}

struct Questions {
    waiting: HashMap<u64, oneshot::Sender<Frame>>,
    asked_at: Instant,
    ended: Option<(Failure, Instant)>,
}

/// Takes a question out when its asker goes.
struct Asked<'a> {
    conn: &'a Conn,
    id: u64,
    queued: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let given_up = self.conn.questions().waiting.remove(&self.id).is_some();
        if given_up && self.queued {
            let cancel = Out::plain(What::Cancel, self.id, Bytes::new());
            self.conn.queue.put_at_once(cancel);
        }
    }
}

/// Why a question got no answer: the second was never sent.
pub(super) enum Unanswered {
    Failed(NetError),
    NotSent(Failure),
}

impl Conn {
    /// Starts to read and to write on a socket. It ends when `closed` is done, when the socket fails, or when nobody has
    /// asked for [`IDLE`].
    pub fn start(
        socket: Socket,
        us: &Arc<Us>,
        closed: impl Future<Output = ()> + Send + 'static,
    ) -> Arc<Conn> {
        let wire = Wire::new(socket, us, QUEUED, Some(Out::alive()));
        let questions = Questions {
            waiting: HashMap::new(),
            asked_at: Instant::now(),
            ended: None,
        };
        let conn = Arc::new(Conn {
            questions: Mutex::new(questions),
            queue: wire.queue,
            next_id: AtomicU64::new(1),
            heard: AtomicBool::new(false),
        });
        let (mut reader, mut writer) = (wire.reader, wire.writer);
        let of_task = conn.clone();
        tokio::spawn(async move {
            let over = tokio::select! {
                over = of_task.read(&mut reader) => over,
                over = writer.ended() => over,
                () = of_task.idle() => Err(io::Error::other("the connection was idle")),
                () = closed => Err(io::Error::other("this node's network was shut down")),
            };
            of_task.end(over);
        });
        conn
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ended(&self) -> Option<(Failure, Instant)> {
        self.questions().ended.clone()
    }

    fn failure(&self) -> Failure {
        let over = || Failure::new(io::ErrorKind::ConnectionReset, "the connection ended");
        self.ended().map_or_else(over, |(failure, _)| failure)
    }

    pub fn heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }

    async fn read<R: tokio::io::AsyncRead + Unpin>(
        &self,
        reader: &mut FrameReader<R>,
    ) -> io::Result<()> {
        while let Some(frame) = reader.next().await? {
            self.heard.store(true, Ordering::Relaxed);
            if matches!(frame.what, What::Answer | What::Refused | What::Busy) {
                let asker = self.questions().waiting.remove(&frame.id);
                // It may have gone.
                asker.map(|asker| asker.send(frame));
            }
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }

    /// Rests while there are questions, and [`IDLE`] after them; then nobody can ask any more.
    async fn idle(&self) {
        loop {
            let until = {
                let mut questions = self.questions();
                let until = questions.asked_at + IDLE;
                match questions.waiting.is_empty() {
                    true if until <= Instant::now() => {
                        let failure = Failure::new(io::ErrorKind::Other, "idle");
                        questions.ended = Some((failure, Instant::now()));
                        return;
                    }
                    true => until,
                    false => Instant::now() + IDLE,
                }
            };
            sleep_until(until).await;
        }
    }

    fn end(&self, over: io::Result<()>) {
        let error = over.err().unwrap_or(io::ErrorKind::ConnectionReset.into());
        let mut questions = self.questions();
        questions
            .ended
            .get_or_insert((Failure::of(&error), Instant::now()));
        questions.waiting.clear();
    }

    /// Asks once. The caller limits the time; the peer is told what is left of it.
    pub async fn ask(
        &self,
        cluster: u128,
        to: &Peer,
        kind: u8,
        body: Bytes,
        until: Instant,
    ) -> Result<(From, Bytes), Unanswered> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        {
            let mut questions = self.questions();
            if let Some((failure, _)) = &questions.ended {
                return Err(Unanswered::NotSent(failure.clone()));
            }
            questions.asked_at = Instant::now();
            questions.waiting.insert(id, asker);
        }
        let mut asked = Asked {
            conn: self,
            id,
            queued: false,
        };
        let out = Out {
            what: What::Request,
            kind,
            id,
            to: to.node,
            within_ms: millis(until.saturating_duration_since(Instant::now())),
            body,
        };
        asked.queued = self.queue.put(out).await;
        if !asked.queued {
            return Err(Unanswered::NotSent(self.failure()));
        }
        match answer.await {
            Ok(frame) => judge(cluster, to, frame).map_err(Unanswered::Failed),
            Err(_) => Err(Unanswered::Failed(self.failure().error())),
        }
    }
}

pub(super) fn millis(within: Duration) -> u32 {
    u32::try_from(within.as_millis()).unwrap_or(u32::MAX)
}

/// The content of an answer, if it is of the right node of the right cluster.
pub(super) fn judge(cluster: u128, to: &Peer, frame: Frame) -> Result<(From, Bytes), NetError> {
    let refused = |text: String| Err(NetError::Refused(text));
    if frame.what == What::Refused {
        let text = &frame.body[..frame.body.len().min(1_024)];
        return refused(String::from_utf8_lossy(text).into_owned());
    }
    if cluster != 0 && frame.cluster != cluster {
        return refused(format!("another cluster is at {}", to.addr));
    }
    if to.node != 0 && frame.from != to.node {
        return refused(format!("node {:x} is at {}", frame.from, to.addr));
    }
    if frame.what == What::Busy {
        let text = "too many requests are under way there";
        return Err(Failure::new(io::ErrorKind::ResourceBusy, text).error());
    }
    Ok((From::of(&frame), frame.body))
}

#[cfg(test)]
impl Conn {
    pub fn waiting(&self) -> usize {
        self.questions().waiting.len()
    }
}
