//! The budget of background work, and the write throttle. Pure: time and readings are arguments.
//!
//! ```text
//! bytes a second
//!   cap ----------------------------------------------------------------
//!          ####### what goes first: log, flushes, device reads of others
//!          #######
//!          ....... left over, for merging and reclaiming      pressure: how much of what goes first is passed over,
//! floor ---....... at the least the floor                     from 0, nothing, to 1, all of it
//!          .......
//! ```
//!
//! The bytes that go first are measured ten times a second and smoothed over some windows. Merging and reclaiming take
//! the bytes that they write, and those that the device reads for them, from a token bucket that fills at the rate left
//! over; when the level is below zero, they wait until it is zero again. The bucket holds a hundredth of a second of
//! its rate: enough to make up for a sleep that lasted too long, too little for a burst that disturbs others.

use std::time::Duration;

/// The least capacity of the bucket, in bytes: one write of a table's buffer.
const LEAST_BURST: f64 = (256 << 10) as f64;

/// The capacity of the bucket, in seconds of its rate.
const BURST_SECONDS: f64 = 0.01;

/// The time between two readings.
const WINDOW: Duration = Duration::from_millis(100);

/// The time between two removals of files: long enough for other work in between, short enough that a fast rewrite does
/// not pile up many replaced files.
pub const REMOVAL_WINDOW: Duration = Duration::from_millis(10);

/// The time between two checks of the free space.
const DISK_WINDOW: Duration = Duration::from_secs(1);

/// The time constant of the smoothing.
const SMOOTHING_SECONDS: f64 = 0.25;

/// A thread that has not asked for longer than this did other work meanwhile; what the device read for it then is not
/// background work.
const OWN_READS_WITHIN: Duration = Duration::from_secs(1);

/// Counters of bytes, which only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes written to the log, and to tables by flushes.
    pub written_first: u64,
    /// Bytes read from the device for the whole process.
    pub read: u64,
    /// Those read for the calling thread.
    pub read_here: u64,
    /// The calling thread.
    pub thread: u64,
}

/// The next duty of background work: its delay and its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// How long to wait before asking again; zero: go on.
    pub wait: Duration,
    /// Whether the caller must call [`Budget::note_moved`].
    pub readings: bool,
    /// Whether the caller must call [`Budget::note_disk`].
    pub disk: bool,
}

/// The byte budget of merging and reclaiming.
#[derive(Clone, Debug)]
pub struct Budget {
    cap: u64,
    floor: u64,
    /// The rate of bytes that go first, per second, smoothed.
    first: f64,
    /// The pressure of the job that asked last.
    job_pressure: f64,
    run_pressure: f64,
    disk_pressure: f64,
    /// Bytes that may be taken now; negative after too many were taken.
    level: f64,
    /// When the level was last updated.
    at: Duration,
    /// The last readings, and when they were taken.
    seen: Option<(Duration, Moved)>,
    readings_due: Duration,
    disk_due: Duration,
}

impl Budget {
    /// A full bucket; `cap` and `floor` are in bytes a second, and a floor above the cap counts as the cap.
    pub fn new(cap: u64, floor: u64, now: Duration) -> Budget {
        let mut budget = Budget {
            cap: cap.max(1),
            floor,
            first: 0.0,
            job_pressure: 0.0,
            run_pressure: 0.0,
            disk_pressure: 0.0,
            level: 0.0,
            at: now,
            seen: None,
            readings_due: now,
            disk_due: now,
        };
        budget.level = budget.burst();
        budget
    }

    /// Changes the cap from now on.
    pub fn set_cap(&mut self, cap: u64, now: Duration) {
        self.fill(now);
        self.cap = cap.max(1);
    }

    /// Changes the floor from now on.
    pub fn set_floor(&mut self, floor: u64, now: Duration) {
        self.fill(now);
        self.floor = floor;
    }

    /// Takes `bytes` for a job with a pressure from 0 to 1; returns what to do before the next step.
    pub fn take(&mut self, bytes: u64, pressure: f64, now: Duration) -> Next {
        self.fill(now);
        self.job_pressure = pressure;
        self.level -= bytes as f64;
        let seconds = (-self.level).max(0.0) / self.allowance();
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let is_due = |due: &mut Duration, every: Duration| {
            let is_due = now >= *due;
            if is_due {
                *due = now + every;
            }
            is_due
        };
        Next {
            wait,
            readings: is_due(&mut self.readings_due, WINDOW),
            disk: is_due(&mut self.disk_due, DISK_WINDOW),
        }
    }

    /// Notes the counters' readings, and the pressure of the number of runs, from 0 to 1.
    pub fn note_moved(&mut self, moved: Moved, run_pressure: f64, now: Duration) {
        self.fill(now);
        self.run_pressure = run_pressure;
        let Some((at, before)) = self.seen.replace((now, moved)) else {
            return;
        };
        let elapsed = now.saturating_sub(at);
        let went_on = before.thread == moved.thread && elapsed <= OWN_READS_WITHIN;
        let own = if went_on {
            moved.read_here.saturating_sub(before.read_here)
        } else {
            0
        };
        self.level -= own as f64;
        let read = moved.read.saturating_sub(before.read).saturating_sub(own);
        let written = moved.written_first.saturating_sub(before.written_first);
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 {
            let kept = (-seconds / SMOOTHING_SECONDS).exp();
            self.first = self.first * kept + (read + written) as f64 / seconds * (1.0 - kept);
        }
    }

    /// Notes the pressure of the disk, from 0 to 1.
    pub fn note_disk(&mut self, pressure: f64, now: Duration) {
        self.fill(now);
        self.disk_pressure = pressure;
    }

    /// The rate at which the bucket fills now, in bytes a second.
    pub fn allowance(&self) -> f64 {
        let cap = self.cap as f64;
        let left_over = (cap - self.first).max(self.floor.clamp(1, self.cap) as f64);
        let pressures = [self.job_pressure, self.run_pressure, self.disk_pressure];
        let pressure = pressures.into_iter().fold(0.0, f64::max).min(1.0);
        left_over + (cap - left_over) * pressure
    }

    fn burst(&self) -> f64 {
        (self.allowance() * BURST_SECONDS).max(LEAST_BURST)
    }

    fn fill(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        self.level = (self.level + seconds * self.allowance()).min(self.burst());
        self.at = self.at.max(now);
    }
}

/// The pressure of a disk, from 0 to 1: it is 1 when less than 5 % or 2 GiB is free, whichever is less, and 0 when
/// twice as much is.
pub fn disk_pressure(free: u64, total: u64) -> f64 {
    let least = (total / 20).clamp(1, 2 << 30) as f64;
    ((2.0 * least - free as f64) / least).clamp(0.0, 1.0)
}

/// The pressure of a container's runs, from 0 to 1: from 0 at `max_runs` to 1 at twice as many, where writers begin to
/// be throttled.
pub fn run_pressure(runs: usize, max_runs: usize) -> f64 {
    share_over(runs, max_runs, max_runs)
}

/// The bytes of files to remove in a window while this many wait: more than background work can replace, but not all at
/// once, because freeing blocks costs the file system's journal time. If very many wait, enough to remove them within
/// some seconds.
pub fn removals(waiting: u64) -> u64 {
    (waiting / 512).max(LEAST_REMOVAL)
}

/// The least to remove in a window, in bytes.
const LEAST_REMOVAL: u64 = 4 << 20;

/// The place of `value` between `from` and `from + width`, from 0 to 1.
fn share_over(value: usize, from: usize, width: usize) -> f64 {
    (value.saturating_sub(from) as f64 / width.max(1) as f64).min(1.0)
}

/// The delay or stall of a writer before it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteThrottle {
    /// Nothing.
    Go,
    /// Sleep this long for every KiB to be written, rounded up.
    Slow(Duration),
    /// Wait until a flush is done.
    Stop,
}

/// The longest sleep for a KiB; the ramp is quadratic, so most are far shorter.
const SLOWEST: Duration = Duration::from_millis(2);

/// Unflushed bytes up to twice `budget` cost nothing; above, sleeps grow, and at three times as much writing stops.
/// More than twice `max_runs` throttle writes too, growing from `2 * max_runs` to `4 * max_runs`.
#[inline]
pub fn write_throttle(
    unflushed: usize,
    budget: usize,
    runs: usize,
    max_runs: usize,
) -> WriteThrottle {
    if unflushed >= 3 * budget {
        return WriteThrottle::Stop;
    }
    if unflushed <= 2 * budget && runs <= 2 * max_runs {
        return WriteThrottle::Go;
    }
    let pressure =
        share_over(unflushed, 2 * budget, budget).max(share_over(runs, 2 * max_runs, 2 * max_runs));
    WriteThrottle::Slow(SLOWEST.mul_f64(pressure * pressure))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Works from `from` to `to` in steps of 64 KiB under this pressure, and notes the readings of `moved` when they
    /// are due; returns the bytes.
    fn work(
        budget: &mut Budget,
        (from, to): (Duration, Duration),
        pressure: f64,
        moved: impl Fn(Duration) -> Moved,
    ) -> u64 {
        let (mut now, mut taken) = (from, 0);
        while now < to {
            let next = budget.take(64 << 10, pressure, now);
            taken += 64 << 10;
            if next.readings {
                budget.note_moved(moved(now), 0.0, now);
            }
            now += next.wait;
        }
        taken
    }

    fn assert_about(taken: u64, expected: u64) {
        let near = taken.abs_diff(expected) <= expected / 20;
        assert!(near, "{taken} of {expected}");
    }

    /// This many bytes a second go first.
    fn written(rate: u64) -> impl Fn(Duration) -> Moved {
        move |now| Moved {
            written_first: now.as_millis() as u64 * rate / 1000,
            ..Moved::default()
        }
    }

    #[test]
    fn an_idle_database_leaves_the_whole_cap_and_no_more() {
        let mut budget = Budget::new(10 * MIB, 0, Duration::ZERO);
        let taken = work(&mut budget, (millis(0), millis(10_000)), 0.0, written(0));
        assert_about(taken, 100 * MIB);
        budget.set_cap(MIB, millis(10_000));
        let taken = work(
            &mut budget,
            (millis(10_000), millis(20_000)),
            0.0,
            written(0),
        );
        assert_about(taken, 10 * MIB);
    }

    #[test]
    fn what_goes_first_is_left_out_and_the_floor_stays() {
        let mut budget = Budget::new(10 * MIB, 2 * MIB, Duration::ZERO);
        let (early, late) = ((millis(0), millis(2_000)), (millis(2_000), millis(12_000)));
        work(&mut budget, early, 0.0, written(4 * MIB));
        let taken = work(&mut budget, late, 0.0, written(4 * MIB));
        assert_about(taken, 60 * MIB);
        let mut budget = Budget::new(10 * MIB, 2 * MIB, Duration::ZERO);
        work(&mut budget, early, 0.0, written(100 * MIB));
        let taken = work(&mut budget, late, 0.0, written(100 * MIB));
        assert_about(taken, 20 * MIB);
        budget.set_floor(5 * MIB, millis(12_000));
        assert_eq!(budget.allowance(), (5 * MIB) as f64);
        budget.set_floor(50 * MIB, millis(12_000));
        assert_eq!(budget.allowance(), (10 * MIB) as f64, "never above the cap");
    }

    #[test]
    fn what_went_first_is_soon_forgotten() {
        let mut budget = Budget::new(10 * MIB, MIB, Duration::ZERO);
        let before = work(
            &mut budget,
            (millis(0), millis(3_000)),
            0.0,
            written(20 * MIB),
        );
        assert!(before < 8 * MIB, "{before}");
        let last = written(20 * MIB)(millis(3_000));
        let after = work(&mut budget, (millis(3_000), millis(5_000)), 0.0, |_| last);
        assert!(after > 14 * MIB, "{after}");
    }

    #[test]
    fn pressure_passes_over_what_goes_first() {
        let busy = || {
            let mut budget = Budget::new(10 * MIB, MIB, Duration::ZERO);
            work(
                &mut budget,
                (millis(0), millis(5_000)),
                0.0,
                written(100 * MIB),
            );
            budget
        };
        let mut budget = busy();
        let taken = work(
            &mut budget,
            (millis(5_000), millis(15_000)),
            1.0,
            written(100 * MIB),
        );
        assert_about(taken, 100 * MIB);
        let mut budget = busy();
        budget.take(0, 0.5, millis(5_000));
        assert_about(budget.allowance() as u64, MIB + 9 * MIB / 2);
        let mut budget = busy();
        budget.note_disk(1.0, millis(5_000));
        assert_about(budget.allowance() as u64, 10 * MIB);
        budget.note_disk(0.0, millis(5_000));
        budget.note_moved(written(100 * MIB)(millis(5_000)), 1.0, millis(5_000));
        assert_about(budget.allowance() as u64, 10 * MIB);
    }

    #[test]
    fn own_reads_are_paid_and_those_of_others_go_first() {
        let at = |read, read_here, thread| Moved {
            written_first: 0,
            read,
            read_here,
            thread,
        };
        let mut budget = Budget::new(10 * MIB, 0, Duration::ZERO);
        budget.note_moved(at(0, 0, 7), 0.0, millis(0));
        budget.note_moved(at(2 * MIB, 2 * MIB, 7), 0.0, millis(100));
        assert_eq!(budget.allowance(), (10 * MIB) as f64, "nobody else reads");
        let wait = budget.take(0, 0.0, millis(100)).wait;
        assert!(wait > millis(150) && wait < millis(200), "{wait:?}");
        budget.note_moved(at(4 * MIB, 2 * MIB, 7), 0.0, millis(1_100));
        assert!(budget.allowance() < (9 * MIB) as f64, "others read");
        let before = budget.allowance();
        budget.note_moved(at(4 * MIB, 900 * MIB, 8), 0.0, millis(1_200));
        assert!(budget.allowance() > before);
        let wait = budget.take(0, 0.0, millis(1_200)).wait;
        assert_eq!(wait, Duration::ZERO, "a thread's earlier reads are its own");
        budget.note_moved(at(4 * MIB, 999 * MIB, 8), 0.0, millis(3_000));
        assert_eq!(budget.take(0, 0.0, millis(3_000)).wait, Duration::ZERO);
    }

    #[test]
    fn a_starving_budget_waits_until_the_rate_changes() {
        let mut budget = Budget::new(0, 0, Duration::ZERO);
        let wait = budget.take(10 * MIB, 0.0, Duration::ZERO).wait;
        assert!(wait > Duration::from_secs(9_000_000), "{wait:?}");
        budget.set_cap(1 << 40, millis(20));
        assert_eq!(budget.take(0, 0.0, millis(40)).wait, Duration::ZERO);
    }

    #[test]
    fn readings_come_at_their_times() {
        let mut budget = Budget::new(1 << 40, 0, Duration::ZERO);
        let mut counts = [0; 2];
        for micros in (0..3_000_000).step_by(100) {
            let next = budget.take(0, 0.0, Duration::from_micros(micros));
            let told = [next.readings, next.disk];
            counts = std::array::from_fn(|at| counts[at] + u32::from(told[at]));
        }
        assert_eq!(counts, [30, 3]);
    }

    #[test]
    fn a_disk_presses_when_it_is_nearly_full() {
        let (gib, tib) = (1 << 30, 1 << 40);
        assert_eq!(disk_pressure(4 * gib, tib), 0.0);
        assert_eq!(disk_pressure(3 * gib, tib), 0.5);
        assert_eq!(disk_pressure(2 * gib, tib), 1.0);
        assert_eq!(disk_pressure(0, tib), 1.0);
        assert_eq!(disk_pressure(gib, 10 * gib), 0.0, "5 % is less than 2 GiB");
        assert_eq!(disk_pressure(gib / 2, 10 * gib), 1.0);
        assert_eq!(disk_pressure(u64::MAX, u64::MAX), 0.0);
    }

    #[test]
    fn runs_press_until_writers_are_slowed() {
        assert_eq!(run_pressure(16, 16), 0.0);
        assert_eq!(run_pressure(24, 16), 0.5);
        assert_eq!(run_pressure(32, 16), 1.0);
        assert_eq!(write_throttle(0, 100, 32, 16), WriteThrottle::Go);
    }

    #[test]
    fn many_bytes_go_within_seconds_and_not_at_once() {
        let (mut left, mut windows, mut most) = (20u64 << 30, 0, 0);
        while left > 0 {
            most = most.max(removals(left));
            (left, windows) = (left.saturating_sub(removals(left)), windows + 1);
        }
        assert!(
            windows < 3_000 && most < 48 << 20,
            "{windows} windows, {most} at once"
        );
    }

    #[test]
    fn writers_are_slowed_smoothly_and_then_stopped() {
        assert_eq!(write_throttle(199, 100, 3, 16), WriteThrottle::Go);
        let WriteThrottle::Slow(a_little) = write_throttle(210, 100, 3, 16) else {
            panic!("slowed")
        };
        let WriteThrottle::Slow(more) = write_throttle(290, 100, 3, 16) else {
            panic!("slowed")
        };
        assert!(a_little < more && more < SLOWEST);
        assert_eq!(write_throttle(300, 100, 3, 16), WriteThrottle::Stop);
        assert!(matches!(
            write_throttle(0, 100, 40, 16),
            WriteThrottle::Slow(_)
        ));
    }
}
