//! The way to one address: at most one connection, made when somebody asks.
//!
//! Invariants: one attempt to connect is under way at a time, in a task of its own, which no asker can break off. After a
//! failure there is none for a while, which doubles from [`FIRST_RETRY`] to [`LAST_RETRY`]; who asks then, or while another's
//! attempt is under way, gets the last error at once. A connection over which nothing was heard counts as a failure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::conn::{Conn, Failure, Unanswered, millis};
use super::limits::{ASKS_OF_A_KIND, FIRST_RETRY, LAST_RETRY};
use super::links::shut_down;
use super::wire::Us;
use super::{From, NetError, Peer, Sockets};

pub(super) struct Link {
    addr: String,
    us: Arc<Us>,
    sockets: Sockets,
    closed: watch::Receiver<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    conn: Option<Arc<Conn>>,
    /// Done when its sender is dropped.
    attempt: Option<watch::Receiver<()>>,
    failed: Option<Failed>,
    kinds: HashMap<u8, Arc<Semaphore>>,
}

/// Attempts since the last one that led somewhere.
struct Failed {
    times: u32,
    retry_at: Instant,
    last: Failure,
}

impl State {
    fn fail(&mut self, last: Failure, at: Instant) {
        let times = self.failed.as_ref().map_or(0, |failed| failed.times) + 1;
        let pause = FIRST_RETRY * (1 << (times - 1).min(10));
        self.failed = Some(Failed {
            times,
            retry_at: at + pause.min(LAST_RETRY),
            last,
        });
    }

    /// Forgets a connection that is over.
    fn look(&mut self) {
        let Some((failure, at)) = self.conn.as_ref().and_then(|conn| conn.ended()) else {
            return;
        };
        if self.conn.take().is_some_and(|conn| conn.heard()) {
            self.failed = None;
        } else {
            self.fail(failure, at);
        }
    }
}

impl Link {
    pub fn new(
        addr: String,
        us: Arc<Us>,
        sockets: Sockets,
        closed: watch::Receiver<bool>,
    ) -> Arc<Link> {
        Arc::new(Link {
            addr,
            us,
            sockets,
            closed,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is anything here that a new link would not have.
    pub fn is_used(&self) -> bool {
        let mut state = self.state();
        state.look();
        state.conn.is_some() || state.attempt.is_some()
    }

    /// Asks once it is the turn of this kind. What was not sent for the connection's end is asked again, on the next one.
    pub async fn ask(
        self: &Arc<Self>,
        to: &Peer,
        kind: u8,
        body: Bytes,
        within: Duration,
    ) -> Result<(From, Bytes), NetError> {
        let until = Instant::now() + Duration::from_millis(millis(within).into());
        let turns = self.turns(kind);
        let _turn = turns.acquire().await.map_err(|_| shut_down())?;
        let cluster = self.us.hello.cluster;
        let conn = self.conn().await.map_err(not_sent)?;
        match conn.ask(cluster, to, kind, body.clone(), until).await {
            Err(Unanswered::NotSent(_)) => {}
            Err(Unanswered::Failed(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        }
        let conn = self.conn().await.map_err(not_sent)?;
        let asked = conn.ask(cluster, to, kind, body, until).await;
        asked.map_err(|unanswered| match unanswered {
            Unanswered::Failed(error) => error,
            Unanswered::NotSent(failure) => not_sent(failure.error()),
        })
    }

    fn turns(&self, kind: u8) -> Arc<Semaphore> {
        let mut state = self.state();
        let new = || Arc::new(Semaphore::new(ASKS_OF_A_KIND));
        state.kinds.entry(kind).or_insert_with(new).clone()
    }

    async fn conn(self: &Arc<Self>) -> Result<Arc<Conn>, NetError> {
        let mut attempt = {
            let mut state = self.state();
            state.look();
            if *self.closed.borrow() {
                return Err(shut_down());
            }
            if let Some(conn) = &state.conn {
                return Ok(conn.clone());
            }
            match (&state.failed, &state.attempt) {
                (Some(failed), Some(_)) => return Err(failed.last.error()),
                (Some(failed), None) if Instant::now() < failed.retry_at => {
                    return Err(failed.last.error());
                }
                (None, Some(attempt)) => attempt.clone(),
                (_, None) => {
                    let (done, attempt) = watch::channel(());
                    state.attempt = Some(attempt.clone());
                    tokio::spawn(self.clone().connect(done));
                    attempt
                }
            }
        };
        // An error, for nothing is sent: the attempt is done.
        let _ = attempt.changed().await;
        let state = self.state();
        match (&state.conn, &state.failed) {
            (Some(conn), _) => Ok(conn.clone()),
            (None, Some(failed)) => Err(failed.last.error()),
            (None, None) => Err(shut_down()),
        }
    }

    async fn connect(self: Arc<Self>, done: watch::Sender<()>) {
        let mut closed = self.closed.clone();
        let connected = tokio::select! {
            connected = self.sockets.connect(&self.addr) => connected,
            _ = closed.wait_for(|closed| *closed) => Err(std::io::Error::other("shut down")),
        };
        let mut state = self.state();
        state.attempt = None;
        match connected {
            Ok(socket) => {
                let closed = async move { drop(closed.wait_for(|closed| *closed).await) };
                state.conn = Some(Conn::start(socket, &self.us, closed));
            }
            Err(error) => state.fail(Failure::of(&error), Instant::now()),
        }
        drop((state, done));
    }
}

/// The error of a request for which there was no connection.
fn not_sent(error: NetError) -> NetError {
    match error {
        NetError::Unreachable(error) => NetError::NotSent(error),
        other => other,
    }
}

#[cfg(test)]
impl Link {
    pub fn waiting(&self) -> usize {
        self.state().conn.as_ref().map_or(0, |conn| conn.waiting())
    }
}
