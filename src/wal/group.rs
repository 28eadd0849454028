//! Group commit: which thread syncs the log, and which threads wait for which sync.
//!
//! ```text
//! wait_or_lead --- nobody leads ---> Lead    round n begins
//!   |                                gather  the leader waits for company, then decides its target: the log's end
//!   |                                synced  the caller has synced up to the target: `synced` moves
//!   |                                (drop)  round n ends
//!   |
//!   +--- up to the target of n ----> waits for round n; all of these are woken by one call, and take no lock
//!   +--- beyond the target of n ---> waits for round n + 1; one of these is woken first, to lead it
//! ```
//!
//! Invariants:
//! 1. One thread leads at a time. It alone moves `synced`, to the target that it decided before it synced. A leader that
//!    fails or panics ends its round all the same, without moving `synced`.
//! 2. A thread that waits for round n wrote what it waits for before the target of n was decided: both are done under
//!    the lock. So if round n succeeds, the thread is done.
//! 3. No wake-up is lost. A thread chooses its round and reads that round's word under the lock. The end of a round
//!    changes the words of both rounds under the lock, and wakes afterwards. So a thread that is not asleep by then does
//!    not fall asleep, and one that is asleep is woken: by the end of its own round, or to lead it. A thread that was
//!    woken to lead does so, unless another one has begun the round; it leaves only when a round has covered it.
//!
//! Two words suffice, for at any moment there is one round under way and one to come. A thread that is delayed between
//! the end of round n and its calls that wake may find threads of round n + 2 on the same word. It wakes them for
//! nothing; and the call that should have woken one of these may have woken one of round n instead, so that they wait for
//! the delayed thread, as that one did.
//!
//! **Company.** A sync takes as long for one write as for many. Without waiting, the thread that wakes first begins the
//! next sync before the others have come back with their next writes, and two halves take turns. So a leader lets other
//! threads run until as many have come as were there at the end of the last round, for at most half of what a sync
//! takes. A thread that is alone does not wait: it counts itself, and others only for some syncs' time after their last
//! one. The wait is a pause between two steps and no part of the argument above.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::env::{WaitWord, give_way, monotonic};
use crate::wal::frame::Position;

/// No leader waits longer for company, however slow the device: it keeps a processor busy meanwhile. Threads that were
/// woken come back within a tenth of this.
const WAIT_MAX: Duration = Duration::from_micros(200);

/// For how many syncs' time the threads of the last round are expected to come back.
const EXPECTED_FOR: u32 = 8;

/// The threads that wait for one round.
#[derive(Default)]
struct Round {
    word: WaitWord,
    /// How many threads take part, with the leader. Changed under the lock.
    members: AtomicU32,
}

#[derive(Default)]
struct State {
    /// The number of the round under way, or of the last one.
    number: u64,
    is_led: bool,
    /// Up to where the round under way syncs, once that is decided.
    target: Option<Position>,
    /// How many threads took part in the last round or waited for the next one when it ended.
    company: u32,
    /// When the last round ended.
    ended: Duration,
    /// The duration of a sync: an average over some eight.
    sync_time: Duration,
}

impl State {
    /// How many threads, the leader among them, the next round should have.
    fn expected(&self, now: Duration) -> u32 {
        let is_over = now.saturating_sub(self.ended) > self.sync_time * EXPECTED_FOR;
        if is_over { 1 } else { self.company }
    }
}

/// See the file's head.
#[derive(Default)]
pub struct Group {
    state: Mutex<State>,
    /// By the parity of their numbers.
    rounds: [Round; 2],
    synced: AtomicU64,
}

/// The round in which a waiting thread is counted, so that it is counted once.
#[derive(Default)]
pub struct Seat(Option<u64>);

impl Group {
    /// For a log that is synced up to there.
    pub fn from(synced: Position) -> Group {
        Group {
            synced: AtomicU64::new(synced.0),
            ..Group::default()
        }
    }

    /// The position up to which the log was synced.
    pub fn synced(&self) -> Position {
        Position(self.synced.load(Ordering::Acquire))
    }

    /// Waits for the round that syncs up to `position`, or begins one if there is none. The caller calls it again, with
    /// the same seat, until `synced` is as far or it leads.
    pub fn wait_or_lead(&self, position: Position, seat: &mut Seat) -> Option<Lead<'_>> {
        let mut state = self.state.lock();
        if self.synced() >= position {
            return None;
        }
        if !state.is_led {
            state.is_led = true;
            state.number += 1;
            state.target = None;
            self.take(seat, state.number);
            return Some(Lead {
                group: self,
                number: state.number,
                expected: state.expected(monotonic()),
                wait_max: WAIT_MAX.min(state.sync_time / 2),
                target: None,
                began: Duration::ZERO,
            });
        }
        let is_covered = state.target.is_none_or(|target| position <= target);
        let number = state.number + u64::from(!is_covered);
        self.take(seat, number);
        let word = &self.round(number).word;
        let seen = word.value();
        drop(state);
        word.wait(seen);
        None
    }

    fn round(&self, number: u64) -> &Round {
        &self.rounds[number as usize % 2]
    }

    /// Counts a thread in a round. The caller holds the lock.
    fn take(&self, seat: &mut Seat, number: u64) {
        if seat.0.replace(number) != Some(number) {
            self.round(number).members.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// The leader's part of a round; dropped, it ends the round.
pub struct Lead<'a> {
    group: &'a Group,
    number: u64,
    expected: u32,
    wait_max: Duration,
    /// Set once it is decided.
    target: Option<Position>,
    /// When the sync began.
    began: Duration,
}

impl Lead<'_> {
    /// Waits for company, and decides the target: the log's end as `end` then says.
    pub fn gather(&mut self, end: impl FnOnce() -> Position) -> Position {
        let members = &self.group.round(self.number).members;
        let begin = monotonic();
        while members.load(Ordering::Acquire) < self.expected && monotonic() - begin < self.wait_max
        {
            give_way();
        }
        let mut state = self.group.state.lock();
        let target = end();
        state.target = Some(target);
        (self.target, self.began) = (Some(target), monotonic());
        target
    }

    /// Ends the round with success: the log was synced up to the target.
    pub fn synced(self) {
        let target = self.target.expect("it was decided before the sync");
        self.group.synced.store(target.0, Ordering::Release);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let [own, next] = [0, 1].map(|after| self.group.round(self.number + after));
        let mut state = self.group.state.lock();
        state.is_led = false;
        state.ended = monotonic();
        if self.target.is_some() {
            let took = state.ended - self.began;
            state.sync_time = match state.sync_time {
                Duration::ZERO => took,
                before => (before * 7 + took) / 8,
            };
        }
        let served = own.members.swap(0, Ordering::AcqRel);
        let waiting = next.members.load(Ordering::Acquire);
        state.company = served + waiting;
        own.word.change();
        next.word.change();
        drop(state);
        // The leader of the next round comes first: it keeps the device busy.
        if waiting > 0 {
            next.word.wake_one();
        }
        if served > 1 {
            own.word.wake_all();
        }
    }
}
