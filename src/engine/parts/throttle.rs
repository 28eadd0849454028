//! Throttling of writers and of background work: the byte budget, the writers' debt of time, and the unflushed bytes.
//!
//! Invariants: `added` less `removed` is the sum of the counted bytes of all memtables, active and sealed. Only the holder of
//! the commit lock stores `added`, so that a write takes no read-modify-write for it. `debt` is the time in nanoseconds that
//! writers were told to sleep and have not slept yet.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{CachePadded, Mutex};
use crate::compact::pace::{Budget, Moved, Next};
use crate::engine::parts::commit_log::CommitState;
use crate::env::monotonic;

/// A sleep takes some 60 us longer than asked; a shorter one than this would be mostly overhead.
const LEAST_REST: Duration = Duration::from_micros(100);

/// The longest sleep for one write, however large it is.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// See the file's head.
pub struct Throttle {
    budget: Mutex<Budget>,
    debt: AtomicU64,
    /// In cache lines of its own, because every write changes it.
    added: CachePadded<AtomicUsize>,
    removed: AtomicUsize,
}

impl Throttle {
    /// For a database with this many bytes in memtables; rates in bytes a second.
    pub fn new(rate: u64, floor: u64, unflushed: usize) -> Throttle {
        Throttle {
            budget: Mutex::new(Budget::new(rate, floor, monotonic())),
            debt: AtomicU64::new(0),
            added: CachePadded::new(AtomicUsize::new(unflushed)),
            removed: AtomicUsize::new(0),
        }
    }

    /// Bytes in memtables.
    #[inline]
    pub fn unflushed(&self) -> usize {
        // In this order: all removed bytes had been added.
        let removed = self.removed.load(Ordering::Acquire);
        self.added.load(Ordering::Relaxed).wrapping_sub(removed)
    }

    /// Adds the growth of an active memtable.
    #[inline]
    pub fn add_unflushed(&self, _commit: &CommitState, bytes: usize) {
        let added = self.added.load(Ordering::Relaxed);
        self.added
            .store(added.wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Subtracts a memtable that was flushed, or whose container was dropped.
    pub fn remove_unflushed(&self, bytes: usize) {
        self.replace_unflushed(bytes, 0);
    }

    /// The same for a memtable that leaves a part of itself, of so many bytes, in its place.
    pub fn replace_unflushed(&self, bytes: usize, part: usize) {
        self.removed
            .fetch_add(bytes.wrapping_sub(part), Ordering::Release);
    }

    /// Adds time that a writer must sleep; returns how long to sleep now, if at all. Times too short for a sleep add up
    /// until one writer sleeps for all: so the rate of writing falls by as much as it should, not by as much as a
    /// shortest sleep takes.
    pub fn add_throttle_debt(&self, time: Duration) -> Option<Duration> {
        let time = u64::try_from(time.min(LONGEST_REST).as_nanos()).unwrap_or(u64::MAX);
        let debt = self.debt.fetch_add(time, Ordering::Relaxed) + time;
        if Duration::from_nanos(debt) < LEAST_REST {
            return None;
        }
        let debt = self.debt.swap(0, Ordering::Relaxed);
        Some(Duration::from_nanos(debt).min(LONGEST_REST))
    }

    /// Takes bytes of background work from the budget; see [`Budget::take`].
    pub fn take(&self, bytes: u64, pressure: f64) -> Next {
        self.budget.lock().take(bytes, pressure, monotonic())
    }

    /// See [`Budget::note_moved`].
    pub fn note_moved(&self, moved: Moved, pressure: f64) {
        self.budget.lock().note_moved(moved, pressure, monotonic());
    }

    /// See [`Budget::note_disk`].
    pub fn note_disk(&self, pressure: f64) {
        self.budget.lock().note_disk(pressure, monotonic());
    }

    /// The rate that background work has now, in bytes a second.
    #[cfg(feature = "metrics")]
    pub fn allowance(&self) -> f64 {
        self.budget.lock().allowance()
    }

    /// Sets the cap on background work, in bytes a second.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.budget.lock().set_cap(bytes_per_second, monotonic());
    }

    /// Sets the least rate of background work, in bytes a second.
    pub fn set_floor(&self, bytes_per_second: u64) {
        self.budget.lock().set_floor(bytes_per_second, monotonic());
    }
}
