//! A bell for one who waits for something to tell: a thread, or a task.
//!
//! Invariant: a ring is heard by the next wait, if nobody waits by then. So who looks, finds nothing and waits misses
//! nothing that rang since the look began.

use std::task::Waker;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::env::Signal;

/// See the file's head.
#[derive(Default)]
pub struct Bell {
    signal: Signal,
    /// The task that waits.
    task: Mutex<Option<Waker>>,
}

impl Bell {
    /// Wakes who waits.
    pub fn ring(&self) {
        self.signal.notify();
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Waits for a ring, for at most `time`.
    pub fn wait(&self, time: Duration) {
        self.signal.wait(time);
    }

    /// Has a task woken by the next ring; true: it has rung since the last wait.
    #[cfg(any(test, feature = "tokio"))]
    pub fn wake_task(&self, task: &Waker) -> bool {
        *self.task.lock() = Some(task.clone());
        self.signal.take()
    }
}
