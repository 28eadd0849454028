//! The clock that a database and the oracle of its answers share.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebbtide::Clock;

/// The system's time at the start, plus the time elapsed since: a step of the wall clock during the run would look like
/// a broken promise.
#[derive(Clone, Copy)]
pub struct Time {
    start: Instant,
    start_millis: u64,
}

impl Time {
    pub fn start() -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Time {
            start: Instant::now(),
            start_millis: since.map_or(0, |since| since.as_millis() as u64),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Milliseconds since the Unix epoch, this long after the start.
    pub fn at(&self, elapsed: Duration) -> u64 {
        self.start_millis + elapsed.as_millis() as u64
    }
}

impl Clock for Time {
    fn wall(&self) -> u64 {
        self.at(self.elapsed())
    }

    fn uptime(&self) -> u64 {
        self.elapsed().as_millis() as u64
    }
}

pub fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
