//! What slows writers and background work down: the budget of bytes, the writers' debt of time, and what is not flushed.
//!
//! Invariants: `unflushed` is the sum of what all memtables were counted with, active and sealed; `debt` is time that
//! writers were told to rest and have not rested yet, in nanoseconds.

use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::compact::pace::{Budget, Moved, Next};
use crate::env::monotonic;

/// A sleep takes some 60 us longer than it is asked to; shorter ones than this would be mostly that.
const LEAST_REST: Duration = Duration::from_micros(100);

/// However much one write brings, it is not slowed for longer.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// See the file's head.
pub struct Throttle {
    budget: Mutex<Budget>,
    debt: AtomicU64,
    unflushed: AtomicUsize,
}

impl Throttle {
    /// Of a database with so much in memory; rates in bytes a second.
    pub fn new(rate: u64, floor: u64, unflushed: usize) -> Throttle {
        Throttle {
            budget: Mutex::new(Budget::new(rate, floor, monotonic())),
            debt: AtomicU64::new(0),
            unflushed: AtomicUsize::new(unflushed),
        }
    }

    /// Bytes in memtables.
    #[inline]
    pub fn unflushed(&self) -> usize {
        self.unflushed.load(Ordering::Relaxed)
    }

    /// A memtable has grown.
    #[inline]
    pub fn add_unflushed(&self, bytes: usize) {
        self.unflushed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A memtable was flushed, or its container dropped.
    pub fn remove_unflushed(&self, bytes: usize) {
        self.unflushed.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A writer is to rest: says for how long, if at all. Short rests, which no sleep is short enough for, are added up
    /// until one of the writers takes them all: so the rate of writing falls by as much as it should, and not by as much
    /// as a sleep must last.
    pub fn add_throttle_debt(&self, time: Duration) -> Option<Duration> {
        let time = u64::try_from(time.min(LONGEST_REST).as_nanos()).unwrap_or(u64::MAX);
        let debt = self.debt.fetch_add(time, Ordering::Relaxed) + time;
        if Duration::from_nanos(debt) < LEAST_REST {
            return None;
        }
        let debt = self.debt.swap(0, Ordering::Relaxed);
        Some(Duration::from_nanos(debt).min(LONGEST_REST))
    }

    /// Background work has moved so many bytes; see [`Budget::take`].
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

    /// The most that background work does, in bytes a second.
    pub fn set_rate(&self, bytes_per_second: u64) {
        self.budget.lock().set_cap(bytes_per_second, monotonic());
    }

    /// The least.
    pub fn set_floor(&self, bytes_per_second: u64) {
        self.budget.lock().set_floor(bytes_per_second, monotonic());
    }
}
