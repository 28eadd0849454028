//! The budget of background work, and how writers are slowed when flushing cannot follow. Pure: time is an argument.
//!
//! Merging and reclaiming take bytes from a bucket that fills at the configured rate and holds a tenth of a second of
//! it; whoever has taken more than there was waits until the bucket is level again. Flushes are counted by the caller
//! and take nothing.

use std::time::Duration;

/// The least that the bucket holds, in bytes: one write of a table's buffer.
const LEAST_BURST: u64 = 256 << 10;

/// A bucket of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    rate: u64,
    /// Bytes that may be taken at once; below zero is debt.
    level: i128,
    /// When the level was last brought up to date.
    at: Duration,
}

impl Budget {
    /// A full bucket that fills at `rate` bytes a second.
    pub fn new(rate: u64, now: Duration) -> Budget {
        let mut budget = Budget {
            rate: rate.max(1),
            level: 0,
            at: now,
        };
        budget.level = budget.burst();
        budget
    }

    fn burst(&self) -> i128 {
        i128::from((self.rate / 10).max(LEAST_BURST))
    }

    /// Changes the rate from now on.
    pub fn set_rate(&mut self, rate: u64, now: Duration) {
        self.fill(now);
        self.rate = rate.max(1);
        self.level = self.level.min(self.burst());
    }

    /// Takes `bytes`; says how long to wait before the next step.
    pub fn grant(&mut self, bytes: u64, now: Duration) -> Duration {
        self.fill(now);
        self.level -= i128::from(bytes);
        let debt = u64::try_from(-self.level).unwrap_or(0);
        Duration::from_secs_f64(debt as f64 / self.rate as f64)
    }

    fn fill(&mut self, now: Duration) {
        let gained =
            now.saturating_sub(self.at).as_nanos() as i128 * i128::from(self.rate) / 1_000_000_000;
        if gained > 0 {
            self.level = (self.level + gained).min(self.burst());
            self.at = now;
        }
    }
}

/// What a writer has to do before it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    /// Nothing.
    Go,
    /// Wait this long, then write.
    Slow(Duration),
    /// Wait until something was flushed.
    Stop,
}

/// The longest that one write is slowed; the ramp is quadratic, so most are slowed far less.
const SLOWEST: Duration = Duration::from_millis(2);

/// Memory of unflushed writes up to twice `budget` is free of charge; from there the ramp rises, and at three times as much
/// writing stops. More than twice the runs that are wanted slow it too, from `2 * max_runs` to `4 * max_runs`.
pub fn brake(unflushed: usize, budget: usize, runs: usize, max_runs: usize) -> Brake {
    if unflushed >= 3 * budget {
        return Brake::Stop;
    }
    let over = |value: usize, from: usize, width: usize| {
        (value.saturating_sub(from) as f64 / width.max(1) as f64).min(1.0)
    };
    let pressure = over(unflushed, 2 * budget, budget).max(over(runs, 2 * max_runs, 2 * max_runs));
    if pressure == 0.0 {
        Brake::Go
    } else {
        Brake::Slow(SLOWEST.mul_f64(pressure * pressure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_its_rate_and_no_more() {
        let (mut budget, mut now, mut taken) =
            (Budget::new(1 << 20, Duration::ZERO), Duration::ZERO, 0u64);
        while now < Duration::from_secs(10) {
            taken += 64 << 10;
            now += budget.grant(64 << 10, now);
        }
        let expected = 10 * (1u64 << 20);
        assert!(
            taken.abs_diff(expected) <= expected / 20,
            "{taken} of {expected}"
        );
        budget.set_rate(1 << 30, now);
        assert_eq!(
            budget.grant(1, now + Duration::from_secs(1)),
            Duration::ZERO
        );
    }

    #[test]
    fn writers_are_slowed_smoothly_and_then_stopped() {
        assert_eq!(brake(199, 100, 3, 16), Brake::Go);
        let Brake::Slow(a_little) = brake(210, 100, 3, 16) else {
            panic!("slowed")
        };
        let Brake::Slow(more) = brake(290, 100, 3, 16) else {
            panic!("slowed")
        };
        assert!(a_little < more && more < SLOWEST);
        assert_eq!(brake(300, 100, 3, 16), Brake::Stop);
        assert!(matches!(brake(0, 100, 40, 16), Brake::Slow(_)));
    }
}
