//! Latencies of one kind of operation, handed from the thread that measures to the one that samples.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// From 1 ns to 1 h, in nanoseconds, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are in order")
}

/// Where one thread leaves its latencies, a burst at a time.
pub struct LatencyInbox(Mutex<Histogram<u64>>);

impl Default for LatencyInbox {
    fn default() -> Self {
        LatencyInbox(Mutex::new(histogram()))
    }
}

impl LatencyInbox {
    /// Leaves some, and empties them.
    pub fn leave(&self, latencies: &mut Vec<Duration>) {
        let mut inbox = self.0.lock().expect("no thread panicked");
        for latency in latencies.drain(..) {
            inbox.saturating_record(latency.as_nanos() as u64);
        }
    }

    /// Takes what was left since the last time.
    pub fn take(&self) -> Histogram<u64> {
        // Made before the lock is taken: it is so large that a thread that leaves some would wait for milliseconds.
        let empty = histogram();
        let mut inbox = self.0.lock().expect("no thread panicked");
        std::mem::replace(&mut inbox, empty)
    }
}

/// The sum of several inboxes.
pub struct Total(Histogram<u64>);

impl Default for Total {
    fn default() -> Self {
        Total(histogram())
    }
}

impl Total {
    /// Adds an interval's.
    pub fn add(&mut self, interval: &Histogram<u64>) {
        self.0.add(interval).expect("all have the same bounds");
    }

    /// As percentiles.
    pub fn tail(&self) -> Tail {
        Tail::of(&self.0)
    }
}

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// How many operations.
    pub count: u64,
    /// Half took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// 999 of 1 000 took no longer.
    pub p999_ms: f64,
    /// None took longer.
    pub max_ms: f64,
}

impl Tail {
    /// Of some latencies.
    pub fn of(latencies: &Histogram<u64>) -> Tail {
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e6;
        Tail {
            count: latencies.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: latencies.max() as f64 / 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_left() {
        let (inbox, mut total) = (LatencyInbox::default(), Total::default());
        let mut latencies: Vec<_> = (1..=1_000).map(Duration::from_millis).collect();
        inbox.leave(&mut latencies);
        assert!(latencies.is_empty());
        total.add(&inbox.take());
        assert_eq!(inbox.take().len(), 0);
        let tail = total.tail();
        assert_eq!(tail.count, 1_000);
        for (found, wanted) in [
            (tail.p50_ms, 500.0),
            (tail.p99_ms, 990.0),
            (tail.p999_ms, 999.0),
            (tail.max_ms, 1_000.0),
        ] {
            assert!((found / wanted - 1.0).abs() < 0.002, "{found} {wanted}");
        }
    }
}
