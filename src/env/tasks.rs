//! Threads and waiting.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
pub use std::thread::{JoinHandle, ThreadId};
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

/// Does `work` in the calling thread and `aside` in a thread of its own. That thread has to return soon after `end`, which is
/// called when `work` has returned or panicked; nothing of it is left after this call. If the system refuses a thread,
/// `aside` is not done.
pub fn beside<T>(
    name: &str,
    aside: impl FnOnce() + Send,
    end: impl Fn(),
    work: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn_scoped(scope, || {
            OWN.set(true);
            aside();
        });
        let done = catch_unwind(AssertUnwindSafe(work));
        end();
        // The scope would wait until the thread has returned, not until it is gone.
        let is_gone = thread.map_or(Ok(()), |thread| thread.join());
        let done = done.and_then(|done| is_gone.map(|()| done));
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The thread that asks.
pub fn this_thread() -> ThreadId {
    std::thread::current().id()
}

/// Whether it is not the calling thread.
pub fn is_another(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() != std::thread::current().id()
}

/// Whether the calling thread was started by [`spawn`].
pub fn is_own_thread() -> bool {
    OWN.get()
}

/// Puts the calling thread to sleep. In a model no time passes, and other threads run.
#[allow(clippy::disallowed_methods)]
pub fn sleep(time: Duration) {
    if cfg!(loom) {
        return spin_loop();
    }
    std::thread::sleep(time);
}

/// Yields to a thread that waits for the processor.
pub fn give_way() {
    std::thread::yield_now();
}

/// A signal to wait for: a notification is kept until a thread has waited for it.
#[derive(Debug, Default)]
pub struct Signal {
    raised: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// Wakes one waiter, or the next one to come. Nearly free while an earlier notification is pending.
    pub fn notify(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            let _lock = self.lock.lock();
            self.changed.notify_one();
        }
    }

    /// Takes a pending notification.
    pub fn take(&self) -> bool {
        self.raised.swap(false, Ordering::AcqRel)
    }

    /// Waits for a notification, for at most `time`.
    pub fn wait(&self, time: Duration) {
        let mut lock = self.lock.lock();
        if !self.raised.load(Ordering::Acquire) {
            self.changed.wait_for(&mut lock, time);
        }
        // Not a plain store: a notifier that found a pending notification relies on this to publish what it did before.
        self.take();
    }
}

// Not where models are checked: there, atomics and locks are those of the model.
#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use super::*;

    /// Says when its thread is gone, some time after that has returned.
    #[derive(Default)]
    struct LastOfThread(Option<Arc<AtomicBool>>);

    impl Drop for LastOfThread {
        fn drop(&mut self) {
            sleep(Duration::from_millis(20));
            if let Some(is_gone) = &self.0 {
                is_gone.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Goal: what is done aside ends with the work, also with a panic, and its thread is gone then. Method: it waits for
    /// the end, and a value of its thread's own says when that is dropped.
    #[test]
    fn what_is_done_aside_ends_with_the_work() {
        thread_local! {
            static LAST: RefCell<LastOfThread> = RefCell::default();
        }
        for panics in [false, true] {
            let (end, is_gone) = (Signal::default(), Arc::new(AtomicBool::new(false)));
            let aside = || {
                assert!(is_own_thread());
                end.wait(Duration::MAX);
                LAST.with_borrow_mut(|last| last.0 = Some(is_gone.clone()));
            };
            let work = || {
                assert!(!panics, "planned");
                7
            };
            let done = catch_unwind(AssertUnwindSafe(|| {
                beside("aside", aside, || end.notify(), work)
            }));
            assert_eq!(done.ok(), (!panics).then_some(7));
            assert!(is_gone.load(Ordering::Relaxed));
        }
    }

    /// A panic aside is the caller's too.
    #[test]
    fn a_panic_aside_is_seen() {
        let aside = || panic!("planned");
        let done = catch_unwind(|| beside("aside", aside, || {}, || 7));
        assert!(done.is_err());
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;
    use crate::base::sync::atomic::AtomicUsize;
    use crate::base::sync::{check, spawn};

    /// A waiter sees what was done before the notification. In the model, nothing else ends a wait.
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
