//! Threads and waiting.

use std::cell::Cell;
pub use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Condvar, Mutex, spin_loop};
use crate::base::{Error, Result};

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Starts a named thread.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(|| {
            OWN.set(true);
            work();
        })
        .map_err(|error| Error::io("start thread", name, error))
}

/// It is not the calling thread.
pub fn is_another(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() != std::thread::current().id()
}

/// The calling thread was started by [`spawn`].
pub fn is_own_thread() -> bool {
    OWN.get()
}

/// Lets the calling thread rest. In a model no time passes, and others run.
#[allow(clippy::disallowed_methods)]
pub fn sleep(time: Duration) {
    if cfg!(loom) {
        return spin_loop();
    }
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
        // Not a mere store: who found a notification unheard relies on it to bring what was done before.
        self.take();
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;
    use crate::base::sync::atomic::AtomicUsize;
    use crate::base::sync::{check, spawn};

    /// Nobody waits for what was done before a notification. There, a wait ends by nothing else.
    #[test]
    fn a_notification_is_heard_with_what_came_before_it() {
        check("notifications and waits", 3, || {
            let (signal, done) = (Arc::new(Signal::default()), Arc::new(AtomicUsize::new(0)));
            let waiter = {
                let (signal, done) = (signal.clone(), done.clone());
                spawn(move || {
                    while done.load(Ordering::Relaxed) < 2 {
                        signal.wait(Duration::MAX);
                    }
                })
            };
            for count in 1..=2 {
                done.store(count, Ordering::Relaxed);
                signal.notify();
            }
            waiter.join().unwrap();
        });
    }
}
