//! Threads and waiting.

use std::sync::atomic::{AtomicBool, Ordering};
pub use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Starts a named thread.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Error::io("start thread", name, error))
}

/// Lets the calling thread rest.
#[allow(clippy::disallowed_methods)]
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Lets a thread that waits for the processor run first.
pub fn give_way() {
    std::thread::yield_now();
}

/// Something to wait for: a notification is kept until somebody has waited for it.
#[derive(Debug, Default)]
pub struct Signal {
    raised: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// Wakes one waiter, or the next one to come. Costs next to nothing while an earlier notification is unheard.
    pub fn notify(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            let _lock = self.lock.lock();
            self.changed.notify_one();
        }
    }

    /// Hears a notification that is there.
    pub fn take(&self) -> bool {
        self.raised.swap(false, Ordering::AcqRel)
    }

    /// Waits for a notification, at most for `time`.
    pub fn wait(&self, time: Duration) {
        let mut lock = self.lock.lock();
        if !self.raised.load(Ordering::Acquire) {
            self.changed.wait_for(&mut lock, time);
        }
        self.raised.store(false, Ordering::Release);
    }
}
