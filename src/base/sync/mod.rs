//! Atomics, locks and other means of sharing between threads; other modules use only these. They are the usual crates'
//! or, in unit tests under `--cfg loom`, their counterparts for a model checker (`.ci/models`).

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, loom))]
pub use model::{
    ArcSwap, Backoff, CachePadded, Condvar, Elsewhere, Guard, Mutex, MutexGuard, RwLock, atomic,
    check, lock_soon, lock_soon_after, spawn, spin_loop, try_lock_soon,
};

#[cfg(not(all(test, loom)))]
pub use self::real::*;

#[cfg(not(all(test, loom)))]
mod real {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic;

    pub use arc_swap::{ArcSwap, Guard};
    pub use crossbeam_utils::{Backoff, CachePadded};
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

    /// Takes a lock that is held for less time than it takes to sleep and wake up: spins for a while first.
    #[inline]
    pub fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        try_lock_soon(mutex).unwrap_or_else(|| mutex.lock())
    }

    /// The same, and runs `meanwhile` first if the lock is taken: it may prefetch, and must have no other effect.
    #[inline]
    pub fn lock_soon_after<T>(mutex: &Mutex<T>, meanwhile: impl FnOnce()) -> MutexGuard<'_, T> {
        mutex.try_lock().unwrap_or_else(|| {
            meanwhile();
            lock_soon(mutex)
        })
    }

    /// The same without sleeping: `None` when the lock does not become free in that while.
    #[inline]
    pub fn try_lock_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
        const LOOKS: usize = 100;
        for _ in 0..LOOKS {
            if !mutex.is_locked()
                && let Some(guard) = mutex.try_lock()
            {
                return Some(guard);
            }
            spin_loop();
        }
        None
    }
}
