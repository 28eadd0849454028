//! Counters and times of operations, updated by many threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histogram::{Histogram, Times};

/// Operations since the start.
pub struct Meter {
    puts: AtomicU64,
    gets: AtomicU64,
    took: Histogram,
}

/// The figures of a [`Meter`] at one moment.
#[derive(Clone)]
pub struct MeterSample {
    pub puts: u64,
    pub gets: u64,
    took: Times,
}

impl Meter {
    pub fn new() -> Meter {
        Meter {
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            took: Histogram::new(),
        }
    }

    pub fn put(&self, took: Duration) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.took.count(took);
    }

    pub fn get(&self, took: Duration) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.took.count(took);
    }

    pub fn read(&self) -> MeterSample {
        MeterSample {
            puts: self.puts.load(Ordering::Relaxed),
            gets: self.gets.load(Ordering::Relaxed),
            took: self.took.read(),
        }
    }
}

impl MeterSample {
    /// The difference to an earlier reading.
    pub fn since(&self, earlier: &MeterSample) -> MeterSample {
        MeterSample {
            puts: self.puts - earlier.puts,
            gets: self.gets - earlier.gets,
            took: self.took.since(&earlier.took),
        }
    }

    /// The time within which `share` of the operations were done; `None` when there were none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        self.took.quantile(share)
    }
}
