//! Atomics, locks, and what else threads share: the one door to them. Behind it stand the crates that are used in
//! earnest; in unit tests under `--cfg loom` their counterparts of the same names, which a model checker steps through (`.ci/models`).

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, loom))]
pub use model::{
    ArcSwap, Backoff, Condvar, Elsewhere, Guard, Mutex, MutexGuard, RwLock, atomic, check,
    lock_soon, spawn, spin_loop,
};

#[cfg(not(all(test, loom)))]
pub use self::real::*;

#[cfg(not(all(test, loom)))]
mod real {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic;

    pub use arc_swap::{ArcSwap, Guard};
    pub use crossbeam_utils::Backoff;
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

    /// Locks what is held for less time than it takes to go to sleep, and to be woken: looks a while whether it has become
    /// free first.
    #[inline]
    pub fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        const LOOKS: usize = 100;
        for _ in 0..LOOKS {
            if !mutex.is_locked()
                && let Some(guard) = mutex.try_lock()
            {
                return guard;
            }
            spin_loop();
        }
        mutex.lock()
    }
}
