//! How far a replica may purge (I4): no further than the last entry's time, and no further than its own settled wall clock and
//! the skew, so that a leader whose clock is in 2035 destroys nothing elsewhere. Open views hold purges back in the engine.
//!
//! Settled is a wall clock as far as uptime has passed with it: a leap of more than the skew counts as the uptime alone. It does
//! not go back.
//!
//! Invariant: each limit is at most the time of an entry that is written, and is set with a sync (`Database::set_purge_limit`).

use std::sync::Arc;

use ebbtide::Clock;

use crate::state_store::StateOptions;

/// The most by which clocks of replicas may differ, in milliseconds.
const SKEW_MS: u64 = 500;

/// See the file's head.
pub struct Purges {
    clock: Arc<dyn Clock>,
    every_ms: u64,
    settled: Option<Reading>,
    last_ms: u64,
}

#[derive(Clone, Copy)]
struct Reading {
    settled: u64,
    uptime: u64,
}

impl Purges {
    pub fn new(options: &StateOptions) -> Purges {
        let within = options.reclaim_within.as_millis() as u64;
        Purges {
            clock: options.clock.clone(),
            every_ms: (within / 8).clamp(1_000, 300_000),
            settled: None,
            last_ms: 0,
        }
    }

    /// The state is another one.
    pub fn begin_anew(&mut self) {
        self.last_ms = 0;
    }

    /// The limit to set now, if it is time, in milliseconds since 1970.
    pub fn due(&mut self, time_ms: u64) -> Option<u64> {
        if time_ms < self.last_ms.saturating_add(self.every_ms) {
            return None;
        }
        let settled = self.settle(self.clock.wall(), self.clock.uptime());
        let limit = time_ms.min(settled.saturating_add(SKEW_MS));
        if limit < self.last_ms.saturating_add(self.every_ms) {
            return None;
        }
        self.last_ms = limit;
        Some(limit)
    }

    fn settle(&mut self, wall: u64, uptime: u64) -> u64 {
        let settled = match self.settled {
            None => wall,
            Some(before) => {
                let passed = before.settled + uptime.saturating_sub(before.uptime);
                match wall <= passed + SKEW_MS {
                    true => before.settled.max(wall),
                    false => passed,
                }
            }
        };
        self.settled = Some(Reading { settled, uptime });
        settled
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::{ManualClock, Options};

    use super::*;

    const START: u64 = 1_800_000_000_000;

    fn purges(clock: &ManualClock) -> Purges {
        Purges::new(&StateOptions {
            options: Options::new(),
            clock: Arc::new(clock.clone()),
            reclaim_within: Duration::from_secs(80),
            ..StateOptions::default()
        })
    }

    #[test]
    fn a_limit_is_no_later_than_the_log_and_the_own_clock() {
        let clock = ManualClock::new(START);
        let mut purges = purges(&clock);
        assert_eq!(purges.due(START), Some(START));
        assert_eq!(purges.due(START + 9_999), None);
        let in_2035 = START + 300_000_000_000;
        assert_eq!(purges.due(in_2035), None);
        clock.advance(Duration::from_secs(20));
        assert_eq!(purges.due(in_2035), Some(START + 20_500));
        clock.advance(Duration::from_secs(20));
        assert_eq!(purges.due(START + 31_000), Some(START + 31_000));
    }

    #[test]
    fn a_leap_of_the_own_clock_counts_as_the_uptime() {
        let clock = ManualClock::new(START);
        let mut purges = purges(&clock);
        let in_2035 = START + 300_000_000_000;
        assert_eq!(purges.due(in_2035), Some(START + 500));
        clock.advance(Duration::from_secs(20));
        clock.jump(in_2035);
        assert_eq!(purges.due(in_2035), Some(START + 20_500));
    }
}
