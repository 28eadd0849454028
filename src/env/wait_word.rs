//! A word that threads sleep on: one call wakes many, and none of them needs a lock to go on.

use crate::base::sync::atomic::{AtomicU32, Ordering};

/// A thread reads the word, checks that it has to wait, and sleeps while the word still has that value. The thread that
/// ends the wait changes the word, then wakes.
#[derive(Debug, Default)]
pub struct WaitWord {
    word: AtomicU32,
    sleepers: Sleepers,
}

impl WaitWord {
    /// The value to give to [`WaitWord::wait`].
    pub fn value(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Gives the word another value, so that nobody falls asleep on the one before. Wakes nobody.
    pub fn change(&self) {
        self.word.fetch_add(1, Ordering::AcqRel);
    }

    /// Sleeps until a wake, if the word still has the value `seen`. May return early.
    pub fn wait(&self, seen: u32) {
        self.sleepers.wait(&self.word, seen);
    }

    /// Wakes one thread, if any sleeps.
    pub fn wake_one(&self) {
        self.sleepers.wake(&self.word, 1);
    }

    /// Wakes all threads that sleep.
    pub fn wake_all(&self) {
        self.sleepers.wake(&self.word, i32::MAX as u32);
    }
}

#[cfg(all(target_os = "linux", not(any(miri, loom))))]
use self::system::Sleepers;

/// The system keeps the list of sleepers.
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
mod system {
    use rustix::thread::futex::{Flags, wait, wake};

    use super::AtomicU32;

    #[derive(Debug, Default)]
    pub struct Sleepers;

    impl Sleepers {
        pub fn wait(&self, word: &AtomicU32, seen: u32) {
            // It fails if the word has changed or a signal came; the caller looks again in any case.
            let _ = wait(word, Flags::PRIVATE, seen, None);
        }

        pub fn wake(&self, word: &AtomicU32, count: u32) {
            // It cannot fail: the word is an address of this process.
            let _ = wake(word, Flags::PRIVATE, count);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
use self::portable::Sleepers;

/// The lock orders the check before a sleep and a wake.
#[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
mod portable {
    use super::{AtomicU32, Ordering};
    use crate::base::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub struct Sleepers {
        lock: Mutex<()>,
        changed: Condvar,
    }

    impl Sleepers {
        pub fn wait(&self, word: &AtomicU32, seen: u32) {
            let mut lock = self.lock.lock();
            if word.load(Ordering::Acquire) == seen {
                self.changed.wait(&mut lock);
            }
        }

        pub fn wake(&self, _: &AtomicU32, count: u32) {
            let _lock = self.lock.lock();
            match count {
                1 => drop(self.changed.notify_one()),
                _ => drop(self.changed.notify_all()),
            }
        }
    }
}
