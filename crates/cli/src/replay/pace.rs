//! When the operations of a trace are run, and by which clock.
//!
//! *As fast as possible*, the database's clock is set to the moment of each operation, and to nothing else. So every
//! lifetime is the trace's to the millisecond, and the same trace always gives the same hits. But background work has
//! only the time that the replay takes, not the trace's.
//!
//! *By a factor*, the clock is real, and all times of the trace are divided by the factor: moments, lifetimes (rounded to
//! the millisecond, at least one), `reclaim_within`. Disk space and latencies are then as under that load; an item that
//! expires during a single operation may be hit or not.

use std::time::Duration;

use ebbtide::{Clock, ManualClock, Options, Ttl};

use crate::clock::Time;
use crate::failure::{Failure, Outcome};

/// Where the clock of a trace begins, in milliseconds since the Unix epoch: 2020-03-01. Always the same, so that runs
/// are reproducible; in the past, so that a kept database can be opened with today's clock.
const BEGINNING: u64 = 1_583_020_800_000;

/// The largest factor: a second of the trace is a microsecond.
const MAX_FACTOR: f64 = 1e6;

pub enum Pace {
    /// As fast as possible.
    Trace(ManualClock),
    Real {
        time: Time,
        factor: f64,
    },
}

impl Pace {
    /// Parses the argument of the command line.
    pub fn parse(speed: &str) -> Outcome<Pace> {
        let factor = match speed {
            "max" => Some(0.0),
            other => other.parse().ok(),
        };
        match factor {
            Some(0.0) => Ok(Pace::Trace(ManualClock::new(BEGINNING))),
            Some(factor) if (1.0..=MAX_FACTOR).contains(&factor) => Ok(Pace::Real {
                time: Time::start(),
                factor,
            }),
            _ => Err(Failure::Refused(format!(
                "speed {speed} is not allowed: a factor from 1 to {MAX_FACTOR}, or 0 or max for as fast as it goes"
            ))),
        }
    }

    pub fn options(&self) -> Options {
        match self {
            Pace::Trace(clock) => Options::new().clock(clock.clone()),
            Pace::Real { time, .. } => Options::new().clock(*time),
        }
    }

    /// The reading of the database's clock.
    pub fn now(&self) -> u64 {
        match self {
            Pace::Trace(clock) => clock.wall(),
            Pace::Real { time, .. } => time.wall(),
        }
    }

    /// How long to wait for a moment of the trace: `since` its first moment, which was run `begun` ago. Under the
    /// trace's clock, the moment has come when this returns.
    pub fn wait_for(&self, since: Duration, begun: Duration) -> Duration {
        match self {
            Pace::Trace(clock) => {
                let moment = BEGINNING + since.as_millis() as u64;
                clock.advance(Duration::from_millis(moment.saturating_sub(clock.wall())));
                Duration::ZERO
            }
            Pace::Real { factor, .. } => since.div_f64(*factor).saturating_sub(begun),
        }
    }

    /// By how much a moment is late, by the same two times.
    pub fn lateness(&self, since: Duration, begun: Duration) -> Duration {
        match self {
            Pace::Trace(_) => Duration::ZERO,
            Pace::Real { factor, .. } => begun.saturating_sub(since.div_f64(*factor)),
        }
    }

    /// A duration of the trace, in the database's time.
    pub fn shortened(&self, time: Duration) -> Duration {
        match self {
            Pace::Trace(_) => time,
            Pace::Real { factor, .. } => {
                let millis = (time.as_millis() as f64 / factor).round().max(1.0);
                Duration::from_millis(millis as u64)
            }
        }
    }

    /// A duration of the database, in the trace's time.
    pub fn lengthened(&self, time: Duration) -> Duration {
        match self {
            Pace::Trace(_) => time,
            Pace::Real { factor, .. } => time.mul_f64(*factor),
        }
    }

    /// The ttl of an item that lives this many seconds in the trace.
    pub fn ttl(&self, seconds: Option<u64>) -> Ttl {
        seconds.map_or(Ttl::Never, |seconds| {
            Ttl::After(self.shortened(Duration::from_secs(seconds)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(speed: &str) -> Pace {
        Pace::parse(speed).unwrap_or_else(|_| panic!("{speed} is allowed"))
    }

    #[test]
    fn as_fast_as_it_goes_time_is_the_traces() {
        for speed in ["max", "0", "0.0"] {
            let pace = pace(speed);
            let at = Duration::from_secs(7);
            assert_eq!(pace.wait_for(at, Duration::ZERO), Duration::ZERO);
            assert_eq!(pace.now(), BEGINNING + 7_000);
            assert_eq!(pace.ttl(Some(60)), Ttl::After(Duration::from_secs(60)));
            assert_eq!(pace.ttl(None), Ttl::Never);
        }
    }

    #[test]
    fn a_factor_divides_the_traces_time() {
        let pace = pace("8");
        let (at, begun) = (Duration::from_secs(16), Duration::from_millis(1_900));
        assert_eq!(pace.wait_for(at, begun), Duration::from_millis(100));
        assert_eq!(pace.lateness(at, begun), Duration::ZERO);
        assert_eq!(pace.wait_for(at, 2 * begun), Duration::ZERO);
        assert_eq!(pace.lateness(at, 2 * begun), Duration::from_millis(1_800));
        assert_eq!(pace.ttl(Some(60)), Ttl::After(Duration::from_millis(7_500)));
        assert_eq!(pace.lengthened(begun), Duration::from_millis(15_200));
    }

    #[test]
    fn no_lifetime_becomes_nothing() {
        let pace = pace("1000000");
        assert_eq!(pace.ttl(Some(1)), Ttl::After(Duration::from_millis(1)));
    }

    #[test]
    fn other_speeds_are_refused() {
        for speed in ["", "fast", "-1", "0.5", "1000001", "NaN", "inf"] {
            assert!(Pace::parse(speed).is_err(), "{speed}");
        }
    }
}
