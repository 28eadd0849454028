//! Counts and times of operations, raised by many threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each power of two of nanoseconds is cut into so many equal parts, so that a quantile is off by a sixteenth at most.
const PARTS: u64 = 16;

/// Operations since the start.
pub struct Meter {
    puts: AtomicU64,
    gets: AtomicU64,
    /// How many operations took how long.
    took: [AtomicU64; 64 * PARTS as usize],
}

/// What a [`Meter`] showed at one moment.
#[derive(Clone)]
pub struct Reading {
    pub puts: u64,
    pub gets: u64,
    took: Vec<u64>,
}

impl Meter {
    pub fn new() -> Meter {
        Meter {
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            took: [const { AtomicU64::new(0) }; 64 * PARTS as usize],
        }
    }

    pub fn put(&self, took: Duration) {
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.count(took);
    }

    pub fn get(&self, took: Duration) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.count(took);
    }

    fn count(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.took[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> Reading {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reading {
            puts: load(&self.puts),
            gets: load(&self.gets),
            took: self.took.iter().map(load).collect(),
        }
    }
}

impl Reading {
    /// What was added since an earlier reading.
    pub fn since(&self, earlier: &Reading) -> Reading {
        let pairs = self.took.iter().zip(&earlier.took);
        Reading {
            puts: self.puts - earlier.puts,
            gets: self.gets - earlier.gets,
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

/// The least time that is counted in a bucket.
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
        let meter = Meter::new();
        assert_eq!(meter.read().quantile(0.5), None);
        for micros in 1..=1_000 {
            meter.get(Duration::from_micros(micros));
        }
        let (half, most) = (
            meter.read().quantile(0.5).unwrap(),
            meter.read().quantile(0.99).unwrap(),
        );
        assert!((500..532).contains(&half.as_micros()), "{half:?}");
        assert!((990..1_053).contains(&most.as_micros()), "{most:?}");
    }
}
