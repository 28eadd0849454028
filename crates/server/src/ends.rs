//! The ends of documents, as the page draws them: what has ended in one bar, from now on bars on a logarithmic scale, what
//! never ends in one.
//!
//! The engine tells ends in steps of its own, few of which are wider than a quarter of their distance from now. A step that
//! lies in several bars is divided among them by time.

use std::time::SystemTime;

use ebbtide::DueBucket;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// Where bars end, in seconds from now. Nothing lives longer than the last.
pub(crate) const BOUNDS: [u64; 28] = [
    10,
    20,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
    60 * DAY,
    120 * DAY,
    YEAR,
    2 * YEAR,
    5 * YEAR,
    10 * YEAR,
    25 * YEAR,
    70 * YEAR,
];

/// The width of a step, as a part of its distance from now.
const WIDEST: f64 = 0.25;
/// Less than this part of the documents is the error of an estimate, and no documents that never end.
const NOISE: f64 = 0.05;

/// Documents, their bytes, and the disk space that comes back when they end: estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    pub documents: f64,
    pub bytes: f64,
    pub disk: f64,
}

impl Sum {
    fn add(&mut self, other: Sum, share: f64) {
        self.documents += other.documents * share;
        self.bytes += other.bytes * share;
        self.disk += other.disk * share;
    }
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    pub past: Sum,
    /// Each up to its bound, from the one before.
    pub bars: [Sum; BOUNDS.len()],
    /// Disk space that comes back with it is not known.
    pub never: Sum,
}

impl Ends {
    /// Adds what a container tells, of whose documents so many are live, with their bytes.
    pub fn add(&mut self, due: &[DueBucket], now: SystemTime, (documents, bytes): (u64, u64)) {
        let mut ending = Sum::default();
        let mut from = 0.0;
        for step in due {
            let sum = Sum {
                documents: step.items as f64,
                bytes: step.bytes as f64,
                disk: step.disk_bytes as f64,
            };
            match step.until.duration_since(now) {
                Ok(ahead) if !ahead.is_zero() => {
                    let to = ahead.as_secs_f64();
                    self.divide(sum, (to * (1.0 - WIDEST)).max(from), to);
                    ending.add(sum, 1.0);
                    from = to;
                }
                _ => self.past.add(sum, 1.0),
            }
        }
        let never = Sum {
            documents: (documents as f64 - ending.documents).max(0.0),
            bytes: (bytes as f64 - ending.bytes).max(0.0),
            disk: 0.0,
        };
        if never.documents > documents as f64 * NOISE {
            self.never.add(never, 1.0);
        }
    }

    /// Divides a step from one time to another among the bars that it lies in.
    fn divide(&mut self, step: Sum, from: f64, to: f64) {
        let mut begin: f64 = 0.0;
        for (at, bar) in self.bars.iter_mut().enumerate() {
            let end = match at + 1 == BOUNDS.len() {
                true => f64::INFINITY,
                false => BOUNDS[at] as f64,
            };
            let share = match to > from {
                true => (end.min(to) - begin.max(from)).max(0.0) / (to - from),
                false => f64::from(u8::from(begin < to && to <= end)),
            };
            bar.add(step, share);
            begin = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ebbtide::{ManualClock, Options, Ttl};

    use super::*;

    #[test]
    fn each_document_is_in_the_bar_of_its_end() {
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new().clock(clock.clone()).open_temporary();
        let db = db.unwrap();
        let c = db.container("c").unwrap();
        for (at, millis) in [1_000, 50_000, 3_000_000, 500_000_000]
            .into_iter()
            .enumerate()
        {
            for n in 0..1_000 {
                let ttl = Duration::from_millis(millis + n);
                c.put_with_ttl(format!("{at} {n:04}"), [0; 50], ttl)
                    .unwrap();
            }
        }
        for n in 0..1_000 {
            c.put_with_ttl(format!("never {n:04}"), [0; 50], Ttl::Never)
                .unwrap();
        }
        clock.advance(Duration::from_secs(3));
        let stats = c.stats();
        let mut ends = Ends::default();
        ends.add(&c.due(), db.now(), (stats.live_items, stats.live_bytes));
        let about = |documents: f64| (950.0..=1_050.0).contains(&documents);
        let up_to = |seconds: u64| -> f64 {
            let bars = BOUNDS.iter().zip(&ends.bars);
            bars.filter(|(bound, _)| **bound <= seconds)
                .map(|(_, bar)| bar.documents)
                .sum()
        };
        let parts = [
            ends.past.documents,
            up_to(MINUTE),
            up_to(HOUR) - up_to(MINUTE),
            up_to(7 * DAY) - up_to(HOUR),
            ends.never.documents,
        ];
        assert!(parts.into_iter().all(about), "{parts:?}");
        assert_eq!(up_to(u64::MAX), up_to(7 * DAY));
    }

    #[test]
    fn a_step_is_divided_by_time_and_nothing_of_it_is_lost() {
        let step = Sum {
            documents: 100.0,
            bytes: 1_000.0,
            disk: 10.0,
        };
        let mut ends = Ends::default();
        ends.divide(step, 15.0, 25.0);
        assert_eq!(
            (ends.bars[1].documents, ends.bars[2].documents),
            (50.0, 50.0)
        );
        // At a bound, and beyond the last.
        ends.divide(step, 60.0, 60.0);
        assert_eq!(ends.bars[3], step);
        ends.divide(step, 80.0 * YEAR as f64, 90.0 * YEAR as f64);
        assert_eq!(ends.bars[BOUNDS.len() - 1], step);
    }
}
