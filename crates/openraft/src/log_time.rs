//! The leader's time: moments for writes and reads from one monotone counter, and reads that wait for the writes before them (I3).
//!
//! ```text
//! tickets    1 write    2 read    3 write    4 read          each with a moment, which never goes back
//!            └ open     └ waits   └ open     └ waits for 1 and 3
//! ```
//!
//! An answer at moment r is given by a state in which every write of an earlier moment has taken its place: so whatever comes
//! later in the log has a time that is not before r. A client that gives up changes nothing of that: its write may still land.
//! A ticket is closed by its outcome alone: applied, or the leadership over. One whose holder still has it when the next leadership of
//! the node begins stays open: nothing says yet that its entry was proposed under the one before.
//!
//! Invariants:
//!
//! 1. Moments are not before the time of the state when the leadership began, nor before any that this leadership has drawn. The
//!    state's time is not before any moment that a leadership before has answered at, for that was no later than its `until`.
//! 2. A wait ends when every write of a lower ticket is applied or can be no more, or the leadership is over.
//! 3. No moment is drawn but between [`LogTime::lead`], when the leader's own blank entry is applied, and [`LogTime::quit`].
//! 4. `until` is of an entry that is applied, and rises.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use crate::sync::{Arc, Mutex, MutexGuard};

/// How far ahead of its moment an entry's `until` is, in milliseconds: for so long reads need no tick, and for so long time may
/// stand after a change of leader.
pub const RESERVE_MS: u64 = 200;

/// The node does not lead, or does no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotLeading;

impl std::fmt::Display for NotLeading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this node does not lead, or its leadership is over")
    }
}

impl std::error::Error for NotLeading {}

/// A write without an outcome.
struct OpenTicket {
    stamp_ms: u64,
    /// Somebody has it: its entry may still be proposed.
    is_held: bool,
}

#[derive(Default)]
struct State {
    /// Counts leaderships; a ticket is of one.
    leadership: u64,
    is_leading: bool,
    last_ms: u64,
    until_ms: u64,
    next: u64,
    /// Tickets of writes without an outcome.
    open: BTreeMap<u64, OpenTicket>,
    /// Of reads, with their tickets.
    waiting: Vec<(u64, Waker)>,
}

impl State {
    fn draw(&mut self, wall_ms: u64) -> Result<(u64, u64), NotLeading> {
        if !self.is_leading {
            return Err(NotLeading);
        }
        self.last_ms = self.last_ms.max(wall_ms);
        self.next += 1;
        Ok((self.next, self.last_ms))
    }

    fn is_clear(&self, ticket: u64) -> bool {
        self.open
            .first_key_value()
            .is_none_or(|(first, _)| *first > ticket)
    }

    /// Takes the wakers of those that wait for nothing any more.
    fn cleared(&mut self) -> Vec<Waker> {
        let first = self.open.keys().next().copied().unwrap_or(u64::MAX);
        let is_over = !self.is_leading;
        let is_clear = |(ticket, _): &mut (u64, Waker)| is_over || *ticket < first;
        let cleared = self.waiting.extract_if(.., is_clear);
        cleared.map(|(_, waker)| waker).collect()
    }
}

/// The leader's time; see the file's head. Clones are the same.
#[derive(Clone, Default)]
pub struct LogTime {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for LogTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogTime").finish_non_exhaustive()
    }
}

/// A write under way, to be held until its proposal has an outcome. Where it is dropped it stays open to the end of the leadership:
/// the write may still land.
#[derive(Debug)]
#[must_use = "reads wait until it is applied"]
pub struct WriteTicket {
    time: LogTime,
    number: u64,
    /// The entry's stamp, in milliseconds since 1970.
    pub stamp_ms: u64,
    /// The entry's until, in milliseconds since 1970.
    pub until_ms: u64,
}

/// A read that has its moment.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    leadership: u64,
    number: u64,
    /// The moment, in milliseconds since 1970.
    pub at_ms: u64,
    /// Whether an entry is to be applied before anything is answered at this moment: a tick, if nobody writes (I2).
    pub needs_tick: bool,
}

/// See [`LogTime::closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The moment, in milliseconds since 1970.
    pub at_ms: u64,
    /// The leader's own moment, by which it can be told how far the other one is behind; in milliseconds since 1970.
    pub now_ms: u64,
}

impl LogTime {
    /// Of a node that does not lead.
    #[must_use]
    pub fn new() -> LogTime {
        LogTime::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves no half of a change.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A leadership begins: the leader's own blank entry is applied, and the state has this time and this until.
    pub fn lead(&self, time_ms: u64, until_ms: u64) {
        let mut state = self.lock();
        state.leadership += 1;
        state.is_leading = true;
        // Not where the one before had got: what it has answered lies before this time, and what it has drawn besides may be of a
        // clock that was wrong.
        (state.last_ms, state.until_ms) = (time_ms, until_ms);
        // A dropped ticket has an outcome, or is in the log before this leadership.
        state.open.retain(|_, ticket| ticket.is_held);
        // They are of the leadership before, and find that out.
        let before = std::mem::take(&mut state.waiting);
        drop(state);
        before.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// The leadership is over. Whatever waits is told.
    pub fn quit(&self) {
        let mut state = self.lock();
        state.is_leading = false;
        let cleared = state.cleared();
        drop(state);
        cleared.into_iter().for_each(Waker::wake);
    }

    /// Whether moments can be drawn.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.lock().is_leading
    }

    /// A moment for an entry, not before the node's wall clock (in milliseconds since 1970).
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn draw_write(&self, wall_ms: u64) -> Result<WriteTicket, NotLeading> {
        let mut state = self.lock();
        let (number, stamp_ms) = state.draw(wall_ms)?;
        let ticket = OpenTicket {
            stamp_ms,
            is_held: true,
        };
        state.open.insert(number, ticket);
        Ok(WriteTicket {
            time: self.clone(),
            number,
            stamp_ms,
            until_ms: stamp_ms + RESERVE_MS,
        })
    }

    /// A moment for a read, not before the node's wall clock (in milliseconds since 1970). Then: a tick if it needs one,
    /// [`LogTime::cleared`], a round of ReadIndex, apply as far as that, the read.
    ///
    /// # Errors
    /// [`NotLeading`].
    pub fn draw_read(&self, wall_ms: u64) -> Result<ReadTicket, NotLeading> {
        let mut state = self.lock();
        let (number, at_ms) = state.draw(wall_ms)?;
        Ok(ReadTicket {
            leadership: state.leadership,
            number,
            at_ms,
            needs_tick: at_ms > state.until_ms,
        })
    }

    /// A moment before which nothing will be written any more, by this leader or a later one: what is applied now answers reads at
    /// it, on any replica. `None`: the node does not lead.
    #[must_use]
    pub fn closed(&self, wall_ms: u64) -> Option<Closed> {
        let mut state = self.lock();
        if !state.is_leading {
            return None;
        }
        state.last_ms = state.last_ms.max(wall_ms);
        // One of the leadership before may have any stamp.
        let first_open = state.open.values().map(|ticket| ticket.stamp_ms).min();
        let now_ms = state.last_ms;
        Some(Closed {
            at_ms: first_open.unwrap_or(now_ms).min(state.until_ms),
            now_ms,
        })
    }

    /// Waits until every write of a lower ticket is applied.
    ///
    /// # Errors
    /// [`NotLeading`]: the leadership ended first.
    pub async fn cleared(&self, read: &ReadTicket) -> Result<(), NotLeading> {
        std::future::poll_fn(|cx| self.poll_cleared(read, cx)).await
    }

    fn poll_cleared(
        &self,
        read: &ReadTicket,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), NotLeading>> {
        let mut state = self.lock();
        if !state.is_leading || state.leadership != read.leadership {
            return Poll::Ready(Err(NotLeading));
        }
        if state.is_clear(read.number) {
            return Poll::Ready(Ok(()));
        }
        state.waiting.push((read.number, cx.waker().clone()));
        Poll::Pending
    }
}

impl WriteTicket {
    /// The entry is applied.
    pub fn applied(self) {
        let mut state = self.time.lock();
        state.open.remove(&self.number);
        state.until_ms = state.until_ms.max(self.until_ms);
        let cleared = state.cleared();
        drop(state);
        cleared.into_iter().for_each(Waker::wake);
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        if let Some(ticket) = self.time.lock().open.get_mut(&self.number) {
            ticket.is_held = false;
        }
    }
}
