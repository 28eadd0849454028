//! The clocks of the other nodes, as their messages tell them.
//!
//! A node whose clock is off the majority's median by more than [`SKEW_MS`] is not fit to lead: items would end early or late by
//! that much. A message that was long under way makes its sender's clock look behind, never ahead.
//!
//! Invariants:
//!
//! 1. A clock counts for [`FRESH_MS`] of the own uptime after it was heard.
//! 2. Where clocks are compared, a leap of the own one by more than [`SKEW_MS`] counts as the uptime alone until a majority agrees
//!    with it ([`Vetted`]): no entry is stamped by it before it is noticed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebbtide::Clock;

/// The most by which a leader's clock may differ from the median, in milliseconds.
pub const SKEW_MS: u64 = 500;
/// In milliseconds.
const FRESH_MS: u64 = 10_000;

struct Heard {
    ahead_ms: i64,
    uptime_ms: u64,
}

/// See the file's head.
pub struct Clocks {
    own: Arc<dyn Clock>,
    heard: Mutex<HashMap<u64, Heard>>,
}

impl Clocks {
    pub fn new(own: Arc<dyn Clock>) -> Clocks {
        Clocks {
            own,
            heard: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn heard(&self, node: u64, wall_ms: u64) {
        let heard = Heard {
            ahead_ms: wall_ms.saturating_sub(self.own.wall()) as i64
                - self.own.wall().saturating_sub(wall_ms) as i64,
            uptime_ms: self.own.uptime(),
        };
        self.lock().insert(node, heard);
    }

    /// By how much the median of the members' clocks is ahead of the own one, in milliseconds; `None`: fewer than a majority of
    /// them, or fewer than three, have been heard lately, and nothing can be told.
    pub fn median_ahead(&self, own: u64, members: &[u64]) -> Option<i64> {
        let now = self.own.uptime();
        let heard = self.lock();
        let fresh = |member: &u64| match *member == own {
            true => Some(0),
            false => {
                let heard = heard.get(member)?;
                (now.saturating_sub(heard.uptime_ms) <= FRESH_MS).then_some(heard.ahead_ms)
            }
        };
        let mut ahead: Vec<i64> = members.iter().filter_map(fresh).collect();
        if ahead.len() < 3 || ahead.len() * 2 <= members.len() {
            return None;
        }
        ahead.sort_unstable();
        // Of an even number the one that is nearer: in doubt the node is fit.
        let (low, high) = (ahead[(ahead.len() - 1) / 2], ahead[ahead.len() / 2]);
        Some(match low.abs() <= high.abs() {
            true => low,
            false => high,
        })
    }
}

/// The own clock, without leaps that nobody has agreed with. The node stamps by it.
pub struct Vetted {
    own: Arc<dyn Clock>,
    state: Mutex<Settled>,
}

#[derive(Default)]
struct Settled {
    is_compared: bool,
    /// A reading that counted: wall and uptime.
    last: Option<(u64, u64)>,
}

impl Vetted {
    pub fn new(own: Arc<dyn Clock>) -> Vetted {
        Vetted {
            own,
            state: Mutex::default(),
        }
    }

    /// The majority's median is so far ahead of the own clock; `None`: nothing can be told, and the clock counts as it is.
    pub fn compared(&self, median_ahead: Option<i64>) {
        let now = (self.own.wall(), self.own.uptime());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_compared = median_ahead.is_some();
        if median_ahead.is_none_or(|ahead| ahead.unsigned_abs() <= SKEW_MS) {
            state.last = Some(now);
        }
    }
}

impl Clock for Vetted {
    fn wall(&self) -> u64 {
        let (wall, uptime) = (self.own.wall(), self.own.uptime());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = state.last.map_or(wall, |(settled, since)| {
            settled + uptime.saturating_sub(since)
        });
        if state.is_compared && wall > passed + SKEW_MS {
            return passed;
        }
        state.last = Some((wall, uptime));
        wall
    }

    fn uptime(&self) -> u64 {
        self.own.uptime()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::ManualClock;

    use super::*;

    const START: u64 = 1_800_000_000_000;

    #[test]
    fn a_clock_is_compared_with_the_median_of_those_that_were_heard_lately() {
        let own = ManualClock::new(START);
        let clocks = Clocks::new(Arc::new(own.clone()));
        let median = |members: &[u64]| clocks.median_ahead(1, members);
        assert_eq!(median(&[1, 2, 3]), None);
        clocks.heard(2, START + 700);
        assert_eq!(median(&[1, 2, 3]), None, "two clocks have no majority");
        clocks.heard(3, START - 60_000);
        assert_eq!(median(&[1, 2, 3]), Some(0));
        clocks.heard(3, START + 900);
        assert_eq!(median(&[1, 2, 3]), Some(700));
        assert_eq!(median(&[1, 2, 3, 4, 5, 6]), None);
        clocks.heard(4, START);
        assert_eq!(median(&[1, 2, 3, 4]), Some(0));
        own.advance(Duration::from_millis(FRESH_MS + 1));
        assert_eq!(median(&[1, 2, 3]), None);
    }

    #[test]
    fn a_leap_counts_when_a_majority_agrees_with_it() {
        let own = ManualClock::new(START);
        let vetted = Vetted::new(Arc::new(own.clone()));
        let an_hour = START + 3_600_000;
        vetted.compared(Some(0));
        own.jump(an_hour);
        assert_eq!(vetted.wall(), START);
        own.advance(Duration::from_millis(70));
        assert_eq!(vetted.wall(), START + 70);
        vetted.compared(Some(-3_600_000));
        assert_eq!(vetted.wall(), START + 70);
        // It goes back by itself; or all have leapt.
        own.jump(START + 80);
        assert_eq!(vetted.wall(), START + 80);
        own.jump(an_hour);
        vetted.compared(Some(20));
        assert_eq!(vetted.wall(), an_hour);
        // Alone it has nobody to ask.
        vetted.compared(None);
        own.jump(2 * an_hour);
        assert_eq!(vetted.wall(), 2 * an_hour);
    }
}
