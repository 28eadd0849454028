//! Wakes tasks at their time, by one thread for all of a database: it starts with the first that rests, and ends when none
//! has rested for a while.
//!
//! Invariant: who was added is woken at its moment or soon after, unless the system refuses the thread; then at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::engine::Bell;
use crate::env::{Signal, monotonic, spawn};

/// The thread ends when no task has rested for so long.
const LINGERS: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Resting {
    /// By the moment; with a number, since several may have one.
    tasks: BTreeMap<(Duration, u64), Waker>,
    last: u64,
    has_thread: bool,
}

#[derive(Default)]
struct Clockwork {
    resting: Mutex<Resting>,
    signal: Signal,
}

/// See the file's head.
#[derive(Default)]
pub struct Timer(Arc<Clockwork>);

impl Timer {
    /// Rests until the bell rings, for at most so long.
    pub async fn rest(&self, bell: &Bell, time: Duration) {
        let end = monotonic().saturating_add(time);
        poll_fn(|context| {
            if bell.wake_task(context.waker()) || monotonic() >= end {
                return Poll::Ready(());
            }
            self.add(end, context.waker());
            Poll::Pending
        })
        .await;
    }

    fn add(&self, end: Duration, task: &Waker) {
        let needs_thread = {
            let mut resting = self.0.resting.lock();
            resting.last += 1;
            let number = resting.last;
            resting.tasks.insert((end, number), task.clone());
            !std::mem::replace(&mut resting.has_thread, true)
        };
        if !needs_thread {
            return self.0.signal.notify();
        }
        let clockwork = self.0.clone();
        let started = spawn("ebbtide-timer", move || while clockwork.turn() {});
        if started.is_err() {
            let tasks = {
                let mut resting = self.0.resting.lock();
                resting.has_thread = false;
                std::mem::take(&mut resting.tasks)
            };
            tasks.into_values().for_each(Waker::wake);
        }
    }
}

impl Clockwork {
    /// Wakes whose time has come, and waits for the next; false: the thread ends.
    fn turn(&self) -> bool {
        let now = monotonic();
        let (due, rest) = {
            let mut resting = self.resting.lock();
            let later = resting.tasks.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut resting.tasks, later);
            let next = resting.tasks.first_key_value();
            (due, next.map(|((end, _), _)| end.saturating_sub(now)))
        };
        due.into_values().for_each(Waker::wake);
        self.signal.wait(rest.unwrap_or(LINGERS));
        let mut resting = self.resting.lock();
        let goes_on = rest.is_some() || !resting.tasks.is_empty();
        resting.has_thread = goes_on;
        goes_on
    }
}
