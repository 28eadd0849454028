//! Counters with relaxed atomics, that always count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter that several threads increment.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The same under a lock that every adder of this counter holds.
    #[inline]
    pub fn add_alone(&self, by: u64) {
        self.0.store(self.get() + by, Ordering::Relaxed);
    }

    /// Its value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often somebody waited, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// How long.
    pub time: Duration,
}

impl Waits {
    /// Those that came after `earlier` ones.
    pub fn since(self, earlier: Waits) -> Waits {
        Waits {
            count: self.count.saturating_sub(earlier.count),
            time: self.time.saturating_sub(earlier.time),
        }
    }
}

/// Counts [`Waits`].
#[derive(Debug, Default)]
pub struct WaitCounter {
    count: Counter,
    nanos: Counter,
}

impl WaitCounter {
    /// Adds one that began.
    pub fn begin(&self) {
        self.count.add(1);
    }

    /// Adds the time of one that has ended.
    pub fn end(&self, time: Duration) {
        self.nanos
            .add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// All so far.
    pub fn get(&self) -> Waits {
        Waits {
            count: self.count.get(),
            time: Duration::from_nanos(self.nanos.get()),
        }
    }
}
