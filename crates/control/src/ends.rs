//! The ends of items, as they are drawn: what has ended in one sum, from now on bars, what never ends in one sum.
//!
//! ```text
//! past │ up to the first bound, to the second, ..                 │ never
//! ```
//!
//! The database tells ends in steps of its own, few of which are wider than a quarter of their distance from now. A step that
//! lies in several bars is divided among them by time.

use std::time::{Duration, SystemTime};

use ebbtide::DueBucket;

/// The width of a step, as a part of its distance from now.
const WIDEST: f64 = 0.25;
/// Less than this part of the items is the error of an estimate, and no items that never end.
const NOISE: f64 = 0.05;

/// Items that end, their bytes, and the disk space that comes back then: estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Items.
    pub items: f64,
    /// The bytes of their keys and values.
    pub bytes: f64,
    /// Bytes on disk.
    pub disk: f64,
}

impl Sum {
    fn add(&mut self, other: Sum, share: f64) {
        self.items += other.items * share;
        self.bytes += other.bytes * share;
        self.disk += other.disk * share;
    }
}

/// A bar of what is to come: from the bar before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// Its end, from now.
    pub until: Duration,
    /// Amounts that end in it.
    pub sum: Sum,
}

/// Ends over time, of one container or of several. The command's report and the server's page draw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ends {
    /// Amounts that have ended.
    pub past: Sum,
    /// In the order of time. What ends after the last bound is in the last bar.
    pub bars: Vec<Bar>,
    /// Amounts that never end. Disk space that comes back with it is not known.
    pub never: Sum,
}

impl Ends {
    /// Of nothing yet, in bars that end at these bounds: seconds from now, ascending, at least one.
    #[must_use]
    pub fn new(bounds: impl IntoIterator<Item = u64>) -> Ends {
        let bar = |seconds| Bar {
            until: Duration::from_secs(seconds),
            sum: Sum::default(),
        };
        Ends {
            past: Sum::default(),
            bars: bounds.into_iter().map(bar).collect(),
            never: Sum::default(),
        }
    }

    /// Adds what a container tells ([`ebbtide::Container::due`]), of which so many items are live, with so many bytes.
    pub fn add(&mut self, due: &[DueBucket], now: SystemTime, (items, bytes): (u64, u64)) {
        let mut ending = Sum::default();
        let mut from = 0.0;
        for step in due {
            let sum = Sum {
                items: step.items as f64,
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
            items: (items as f64 - ending.items).max(0.0),
            bytes: (bytes as f64 - ending.bytes).max(0.0),
            disk: 0.0,
        };
        if never.items > items as f64 * NOISE {
            self.never.add(never, 1.0);
        }
    }

    /// Divides a step from one time to another among the bars that it lies in.
    fn divide(&mut self, step: Sum, from: f64, to: f64) {
        let mut begin: f64 = 0.0;
        let last = self.bars.len().saturating_sub(1);
        for (at, bar) in self.bars.iter_mut().enumerate() {
            let end = match at == last {
                true => f64::INFINITY,
                false => bar.until.as_secs_f64(),
            };
            let share = match to > from {
                true => (end.min(to) - begin.max(from)).max(0.0) / (to - from),
                false => f64::from(u8::from(begin < to && to <= end)),
            };
            bar.sum.add(step, share);
            begin = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use ebbtide::{ManualClock, Options, Ttl};

    use super::*;

    const BOUNDS: [u64; 6] = [10, 20, 60, 3_600, 604_800, 70 * 31_536_000];

    #[test]
    fn each_item_is_in_the_bar_of_its_end() {
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new().clock(clock.clone()).open_temporary();
        let db = db.unwrap();
        let c = db.container("c").unwrap();
        let lifetimes = [1_000, 50_000, 3_000_000, 500_000_000];
        for (at, millis) in lifetimes.into_iter().enumerate() {
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
        let mut ends = Ends::new(BOUNDS);
        ends.add(&c.due(), db.now(), (stats.live_items, stats.live_bytes));
        let about = |items: f64| (950.0..=1_050.0).contains(&items);
        let bar = |at: usize| ends.bars[at].sum.items;
        let parts = [ends.past.items, bar(2), bar(3), bar(4), ends.never.items];
        assert!(parts.into_iter().all(about), "{parts:?}");
        assert_eq!((bar(0), bar(1), bar(5)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_step_is_divided_by_time_and_nothing_of_it_is_lost() {
        let step = Sum {
            items: 100.0,
            bytes: 1_000.0,
            disk: 10.0,
        };
        let mut ends = Ends::new(BOUNDS);
        ends.divide(step, 5.0, 15.0);
        assert_eq!(
            (ends.bars[0].sum.items, ends.bars[1].sum.items),
            (50.0, 50.0)
        );
        // At a bound, and beyond the last.
        ends.divide(step, 60.0, 60.0);
        assert_eq!(ends.bars[2].sum, step);
        ends.divide(step, 3e9, 4e9);
        assert_eq!(ends.bars[5].sum, step);
    }

    #[test]
    fn an_end_at_this_moment_is_over() {
        let clock = ManualClock::new(1_800_000_000_000);
        let db = Options::new().clock(clock.clone()).open_temporary();
        let db = db.unwrap();
        let c = db.container("c").unwrap();
        c.put_with_ttl("k", "v", Duration::from_secs(1)).unwrap();
        clock.advance(Duration::from_secs(1));
        let mut ends = Ends::new(BOUNDS);
        ends.add(&c.due(), db.now(), (0, 0));
        assert!(ends.bars.iter().all(|bar| bar.sum.items == 0.0));
    }
}
