//! A histogram of durations, updated by many threads in little memory.
//!
//! Log-linear: each power of two of nanoseconds is divided into equal parts, and each part has a count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Parts per power of two, so that a quantile is off by at most a sixteenth.
const PARTS: u64 = 16;

/// Counts since the start.
pub struct Histogram {
    took: [AtomicU64; 64 * PARTS as usize],
    longest: AtomicU64,
}

/// The counts at one moment, or between two.
#[derive(Clone)]
pub struct Times {
    took: Vec<u64>,
}

impl Histogram {
    pub fn new() -> Histogram {
        Histogram {
            took: [const { AtomicU64::new(0) }; 64 * PARTS as usize],
            longest: AtomicU64::new(0),
        }
    }

    pub fn count(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.took[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// The longest time of all.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    pub fn read(&self) -> Times {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Times {
            took: self.took.iter().map(load).collect(),
        }
    }
}

impl Times {
    /// The difference to an earlier reading.
    pub fn since(&self, earlier: &Times) -> Times {
        let pairs = self.took.iter().zip(&earlier.took);
        Times {
            took: pairs.map(|(now, then)| now - then).collect(),
        }
    }

    /// The time within which `share` of the operations were done; `None` when there were none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total: u64 = self.took.iter().sum();
        let rank = (total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let index = self.took.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_nanos(lower_bound(index as u64 + 1)))
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < PARTS {
        return nanos as usize;
    }
    let power = u64::from(nanos.ilog2());
    let part = (nanos >> (power - 4)) & (PARTS - 1);
    ((power - 3) * PARTS + part) as usize
}

/// The lowest duration of a bucket.
fn lower_bound(bucket: u64) -> u64 {
    if bucket < PARTS {
        return bucket;
    }
    let power = bucket / PARTS + 3;
    (PARTS + bucket % PARTS) << (power - 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_all_times() {
        for nanos in (0..10_000).chain([u64::MAX / 3]) {
            let bucket = bucket(nanos) as u64;
            assert!(
                lower_bound(bucket) <= nanos && nanos < lower_bound(bucket + 1),
                "{nanos}"
            );
        }
    }

    #[test]
    fn quantiles_are_off_by_a_sixteenth_at_most() {
        let histogram = Histogram::new();
        assert_eq!(histogram.read().quantile(0.5), None);
        for micros in 1..=1_000 {
            histogram.count(Duration::from_micros(micros));
        }
        assert_eq!(histogram.longest(), Duration::from_millis(1));
        let times = histogram.read();
        let (half, most) = (times.quantile(0.5).unwrap(), times.quantile(0.99).unwrap());
        assert!((500..532).contains(&half.as_micros()), "{half:?}");
        assert!((990..1_053).contains(&most.as_micros()), "{most:?}");
    }
}
