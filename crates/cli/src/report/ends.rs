//! The ends of items, as they are drawn: what has ended in one bar, from now on bars whose lengths grow, what never ends in one.
//!
//! ```text
//! past │ 1 s  2 s  5 s  ..  1 m  2 m  ..  1 h  ..  1 d  ..  │ never
//! ```

use std::time::{Duration, SystemTime};

use ebbtide::DueBucket;
pub use ebbtide_control::Sum;

const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;
const YEAR: u64 = 365 * DAY;

/// Where bars end, in seconds from now, and the name of those that a tick names.
const BOUNDS: [(u64, &str); 34] = [
    (1, "1 s"),
    (2, ""),
    (5, ""),
    (10, "10 s"),
    (20, ""),
    (30, ""),
    (MINUTE, "1 m"),
    (2 * MINUTE, ""),
    (5 * MINUTE, ""),
    (10 * MINUTE, "10 m"),
    (20 * MINUTE, ""),
    (30 * MINUTE, ""),
    (HOUR, "1 h"),
    (2 * HOUR, ""),
    (4 * HOUR, ""),
    (8 * HOUR, ""),
    (16 * HOUR, ""),
    (DAY, "1 d"),
    (2 * DAY, ""),
    (3 * DAY, ""),
    (5 * DAY, ""),
    (7 * DAY, "7 d"),
    (14 * DAY, ""),
    (30 * DAY, "30 d"),
    (60 * DAY, ""),
    (90 * DAY, ""),
    (180 * DAY, ""),
    (YEAR, "1 y"),
    (2 * YEAR, ""),
    (5 * YEAR, ""),
    (10 * YEAR, "10 y"),
    (20 * YEAR, ""),
    (50 * YEAR, ""),
    // Nothing lives longer.
    (70 * YEAR, ""),
];

/// A bar of what is to come.
pub struct Bar {
    /// Its end, from now.
    pub until: Duration,
    /// Empty: it has no tick.
    pub tick: &'static str,
    pub sum: Sum,
}

/// See the file's head.
pub struct Ends {
    pub past: Sum,
    /// From the first that has anything to the last; those in between without a gap.
    pub bars: Vec<Bar>,
    /// Disk space that comes back with it is not known.
    pub never: Sum,
}

impl Ends {
    /// Of what a container tells, of whose items so many are live.
    pub fn of(due: &[DueBucket], now: SystemTime, live: (u64, u64)) -> Ends {
        let mut ends = ebbtide_control::Ends::new(BOUNDS.map(|(seconds, _)| seconds));
        ends.add(due, now, live);
        let bars = ends.bars.into_iter().zip(BOUNDS);
        let mut bars: Vec<_> = bars
            .map(|(bar, (_, tick))| Bar {
                until: bar.until,
                tick,
                sum: bar.sum,
            })
            .collect();
        let last = bars.iter().rposition(|bar| !is_none(&bar.sum));
        bars.truncate(last.map_or(0, |last| last + 1));
        let first = bars.iter().position(|bar| !is_none(&bar.sum));
        bars.drain(..first.unwrap_or(0));
        Ends {
            past: ends.past,
            bars,
            never: ends.never,
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        is_none(&self.past) && self.bars.is_empty()
    }

    pub fn has_never(&self) -> bool {
        !is_none(&self.never)
    }
}

fn is_none(sum: &Sum) -> bool {
    sum.items < 0.5 && sum.bytes < 0.5 && sum.disk < 0.5
}

#[cfg(test)]
mod tests {
    use ebbtide::{ManualClock, Options};

    use super::*;

    /// Where each item is counted is tested where that is computed (ebbtide-control).
    #[test]
    fn bars_end_at_their_ticks() {
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new().clock(clock.clone());
        let db = options.open_temporary().unwrap();
        let c = db.container("c").unwrap();
        for seconds in [50, 3_000, 500_000] {
            for n in 0..1_000 {
                let ttl = Duration::from_secs(seconds);
                c.put_with_ttl(format!("{seconds} {n}"), "v", ttl).unwrap();
            }
        }
        let stats = c.stats();
        let live = (stats.live_items, stats.live_bytes);
        let ends = Ends::of(&c.due(), db.now(), live);
        let mut sum = 0.0;
        let sums = ends.bars.iter().map(|bar| {
            sum += bar.sum.items;
            (bar.tick, (sum / 1_000_f64).round())
        });
        let at_ticks = sums.filter(|(tick, _)| ["1 m", "1 h", "7 d"].contains(tick));
        assert_eq!(
            Vec::from_iter(at_ticks),
            [("1 m", 1.0), ("1 h", 2.0), ("7 d", 3.0)]
        );
        assert_eq!(ends.bars.last().unwrap().tick, "7 d");
        assert!(ends.past.items < 1.0 && !ends.has_never());
    }

    #[test]
    fn of_nothing_nothing_is_drawn() {
        let ends = Ends::of(&[], SystemTime::UNIX_EPOCH, (0, 0));
        assert!(ends.is_empty() && !ends.has_never());
        let ends = Ends::of(&[], SystemTime::UNIX_EPOCH, (5, 100));
        assert!(ends.is_empty() && ends.has_never());
    }
}
