//! Time: what a clock reads, and what the engine relies on.
//!
//! A [`Clock`] has two readings, *wall* and *uptime*. [`SettledClock`] computes from them *settled* time, which follows
//! the wall and never runs backwards, and *now*, which reads and stamps use. The two differ only while the wall is
//! ahead of settled time plus the uptime since by more than the allowed skew: such a lead is *unsettled*. `now` follows
//! it, and nothing is made final: no purge, no change of settings. The lead settles by [`SettledClock::confirm`], or
//! after as much uptime as the skew; if the wall comes back first, it is forgotten.
//!
//! Invariants: settled time never decreases; outside an unsettled lead, now == settled time. `now` goes back only where
//! a lead ends or shrinks, and [`SettledClock::leads`] changes before any caller gets the earlier time.

mod sources;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::sources::SourceWatch;
pub use self::sources::{Clock, DatabaseClock, ManualClock, SystemClock, monotonic};
use crate::base::sync::Mutex;
use crate::base::{Error, Result, Timestamp};

/// The effect on an open of a wall clock that is behind the last recorded time by more than the allowed skew.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ClockBehind {
    /// Opening fails with an error that states both times.
    #[default]
    Refuse,
    /// Time starts at the last recorded time and stays there until the wall has caught up. Everything that was expired
    /// then stays gone, as by a change of every container's default to itself.
    StartAtMark,
}

/// After an open at which the wall is ahead of the mark, the first purge waits this long, in milliseconds of uptime, so
/// that a wrong clock can be noticed and corrected.
const HOLD_AFTER_LEADING_OPEN: u64 = 5 * 60 * 1_000;

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The time of reads and stamps.
    pub now: Timestamp,
    /// The time of purges, slots, floors and the mark.
    pub settled: Timestamp,
    /// Whether `now` is ahead of `settled`, and not confirmed.
    pub unsettled: bool,
}

#[derive(Debug)]
struct State {
    settled: u64,
    /// Uptime when settled time last moved.
    settled_uptime: u64,
    /// Uptime when an unsettled lead was first seen.
    lead_since: Option<u64>,
    /// The wall's reading when the lead was last checked.
    lead_wall: u64,
    /// Uptime until which purging waits.
    hold_until: Option<u64>,
}

/// The wall is not further behind what was relied on than it may be.
fn check_behind(
    wall: u64,
    max_skew: u64,
    time_high_water: Timestamp,
    behind: ClockBehind,
) -> Result<()> {
    let far_behind = time_high_water.0.saturating_sub(wall) > max_skew;
    match far_behind && behind == ClockBehind::Refuse {
        true => Err(Error::ClockBehind {
            wall: Timestamp(wall).to_system_time(),
            mark: time_high_water.to_system_time(),
        }),
        false => Ok(()),
    }
}

/// Settled time over a [`Clock`].
pub struct SettledClock {
    clock: DatabaseClock,
    max_skew: u64,
    /// A copy of `state.settled` for the fast path: within one millisecond nothing is decided twice.
    settled: AtomicU64,
    /// How often an unsettled lead has begun, shrunk (which counts twice) or ended; odd while there is one.
    leads: AtomicU64,
    state: Mutex<State>,
}

impl SettledClock {
    /// Starts no lower than `time_high_water`, the highest time on which the database relied; 0 for a new database.
    pub fn start(
        clock: DatabaseClock,
        max_skew: Duration,
        time_high_water: Timestamp,
        behind: ClockBehind,
    ) -> Result<SettledClock> {
        let max_skew = u64::try_from(max_skew.as_millis()).unwrap_or(u64::MAX);
        let (wall, uptime) = (clock.wall().min(Timestamp::LAST.0), clock.uptime());
        check_behind(wall, max_skew, time_high_water, behind)?;
        let leads = time_high_water.0 > 0 && wall.saturating_sub(time_high_water.0) > max_skew;
        let settled = wall.max(time_high_water.0);
        let state = State {
            settled,
            settled_uptime: uptime,
            lead_since: None,
            lead_wall: 0,
            hold_until: leads.then(|| uptime.saturating_add(HOLD_AFTER_LEADING_OPEN)),
        };
        Ok(SettledClock {
            clock,
            max_skew,
            settled: AtomicU64::new(settled),
            leads: AtomicU64::new(0),
            state: Mutex::new(state),
        })
    }

    /// Starts at the mark, where the program gives the time.
    pub fn given(clock: DatabaseClock, time_high_water: Timestamp) -> SettledClock {
        let behind = ClockBehind::StartAtMark;
        let clock =
            SettledClock::start(clock.without_wall(), Duration::MAX, time_high_water, behind);
        clock.expect("no wall is too far behind")
    }

    /// From now on it is no earlier than `time_high_water`: another process has relied on that.
    pub fn advance_to(&self, time_high_water: Timestamp, behind: ClockBehind) -> Result<()> {
        let mut state = self.state.lock();
        if time_high_water.0 <= state.settled {
            return Ok(());
        }
        check_behind(self.clock.wall(), self.max_skew, time_high_water, behind)?;
        state.settled = time_high_water.0;
        state.settled_uptime = self.clock.uptime();
        self.settled.store(time_high_water.0, Ordering::Release);
        self.read_locked(&mut state);
        Ok(())
    }

    /// The time for reads and stamps.
    #[inline]
    pub fn now(&self) -> Timestamp {
        self.read().now
    }

    /// A time no earlier than [`SettledClock::now`] would return; cheaper.
    #[inline(always)]
    pub fn at_most(&self) -> Timestamp {
        match self.clock.wall_at_most() {
            Some(wall) => Timestamp(wall.max(self.settled.load(Ordering::Acquire))),
            None => self.now(),
        }
    }

    /// To ask often whether this moment has come.
    pub fn watch(&self, moment: Timestamp) -> ClockWatch<'_> {
        ClockWatch {
            source: self.clock.watch(moment),
            settled: &self.settled,
            moment,
        }
    }

    /// Whether it is the system's clock: its time passes by itself, as fast as this process's.
    pub fn is_system(&self) -> bool {
        matches!(self.clock, DatabaseClock::System)
    }

    /// The clock's other reading.
    pub fn uptime(&self) -> Duration {
        Duration::from_millis(self.clock.uptime())
    }

    /// Both times, from one reading.
    #[inline]
    pub fn read(&self) -> ClockReading {
        let wall = self.clock.wall();
        let settled = self.settled.load(Ordering::Acquire);
        // Mostly it has the same reading as before, or was set back behind settled time, and nothing changes.
        if wall <= settled && self.leads().is_multiple_of(2) {
            let now = Timestamp(settled);
            return ClockReading {
                now,
                settled: now,
                unsettled: false,
            };
        }
        self.read_again()
    }

    /// The wall's reading, at most [`Timestamp::LAST`].
    fn wall(&self) -> u64 {
        self.clock.wall().min(Timestamp::LAST.0)
    }

    /// Reads it anew, and decides.
    #[inline(never)]
    fn read_again(&self) -> ClockReading {
        self.read_locked(&mut self.state.lock())
    }

    /// While this does not change, `now` has not gone back; while it is 0, it never has.
    #[inline]
    pub fn leads(&self) -> u64 {
        self.leads.load(Ordering::Acquire)
    }

    fn read_locked(&self, state: &mut State) -> ClockReading {
        let (wall, uptime) = (self.wall(), self.clock.uptime());
        let elapsed = uptime.saturating_sub(state.settled_uptime);
        let lead = wall.saturating_sub(state.settled.saturating_add(elapsed));
        let unsettled = if lead <= self.max_skew {
            state.lead_since = None;
            false
        } else {
            let since = *state.lead_since.get_or_insert(uptime);
            uptime.saturating_sub(since) < self.max_skew
        };
        if !unsettled {
            self.end_lead(state, wall, uptime);
        }
        self.note_lead(state, wall, unsettled);
        let now = if unsettled { wall } else { state.settled };
        ClockReading {
            now: Timestamp(now),
            settled: Timestamp(state.settled),
            unsettled,
        }
    }

    /// Called before the time, which may have gone back, is returned to anybody.
    fn note_lead(&self, state: &mut State, wall: u64, unsettled: bool) {
        let leads = self.leads();
        let led = !leads.is_multiple_of(2);
        if led != unsettled {
            self.leads.store(leads + 1, Ordering::Release);
        } else if led && wall < state.lead_wall {
            self.leads.store(leads + 2, Ordering::Release);
        }
        state.lead_wall = wall;
    }

    fn end_lead(&self, state: &mut State, wall: u64, uptime: u64) {
        state.lead_since = None;
        if wall > state.settled {
            state.settled = wall;
            state.settled_uptime = uptime;
            self.settled.store(wall, Ordering::Release);
        }
    }

    /// The wall is right: settles a lead, and ends the wait before purging.
    pub fn confirm(&self) {
        let mut state = self.state.lock();
        let (wall, uptime) = (self.wall(), self.clock.uptime());
        self.end_lead(&mut state, wall, uptime);
        state.hold_until = None;
        self.note_lead(&mut state, wall, false);
    }

    /// Ends the wait after an open with a leading clock; an unsettled lead still delays purging.
    pub fn release_hold(&self) {
        self.state.lock().hold_until = None;
    }

    /// Settled time, if purging is allowed: no lead is unsettled, and the wait after an open is over.
    pub fn purge_time(&self) -> Option<Timestamp> {
        let mut state = self.state.lock();
        let reading = self.read_locked(&mut state);
        if let Some(until) = state.hold_until {
            if self.clock.uptime() < until {
                return None;
            }
            state.hold_until = None;
        }
        (!reading.unsettled).then_some(reading.settled)
    }
}

/// A clock that is asked often whether a moment has come.
#[derive(Clone, Copy)]
pub struct ClockWatch<'a> {
    source: SourceWatch<'a>,
    settled: &'a AtomicU64,
    moment: Timestamp,
}

impl ClockWatch<'_> {
    /// Whether [`SettledClock::now`] is no later than the moment: true is certain. Cheaper.
    #[inline(always)]
    pub fn is_up_to(&self) -> bool {
        self.source.is_up_to() && self.settled.load(Ordering::Acquire) <= self.moment.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const HOUR: u64 = 3_600_000;

    fn start(
        wall: u64,
        time_high_water: u64,
        behind: ClockBehind,
    ) -> Result<(ManualClock, SettledClock)> {
        let manual = ManualClock::new(wall);
        let clock = SettledClock::start(
            DatabaseClock::Custom(Arc::new(manual.clone())),
            Duration::from_millis(HOUR),
            Timestamp(time_high_water),
            behind,
        )?;
        Ok((manual, clock))
    }

    #[test]
    fn settled_time_follows_the_wall_and_never_runs_backwards() {
        let (manual, clock) = start(10 * HOUR, 0, ClockBehind::Refuse).unwrap();
        manual.advance(Duration::from_millis(5 * HOUR));
        assert_eq!(clock.now(), Timestamp(15 * HOUR));
        manual.jump(12 * HOUR);
        assert_eq!(clock.now(), Timestamp(15 * HOUR));
        manual.advance(Duration::from_millis(2 * HOUR));
        assert_eq!(clock.now(), Timestamp(15 * HOUR));
        manual.jump(17 * HOUR);
        assert_eq!(
            clock.read().settled,
            Timestamp(17 * HOUR),
            "two hours have passed: no lead"
        );
    }

    #[test]
    fn a_lead_is_followed_but_not_relied_on_until_it_settles() {
        let (manual, clock) = start(10 * HOUR, 0, ClockBehind::Refuse).unwrap();
        manual.jump(11 * HOUR);
        assert_eq!(
            clock.purge_time(),
            Some(Timestamp(11 * HOUR)),
            "the skew itself is allowed"
        );
        manual.jump(100 * HOUR);
        let reading = clock.read();
        assert!(reading.unsettled);
        assert_eq!(
            (reading.now, reading.settled),
            (Timestamp(100 * HOUR), Timestamp(11 * HOUR))
        );
        assert_eq!(clock.purge_time(), None);
        manual.jump(11 * HOUR + 5);
        assert_eq!(clock.now(), Timestamp(11 * HOUR + 5), "forgotten");
        manual.jump(100 * HOUR);
        assert!(clock.read().unsettled);
        manual.advance(Duration::from_millis(HOUR - 1));
        assert!(clock.read().unsettled);
        manual.advance(Duration::from_millis(1));
        assert_eq!(
            clock.purge_time(),
            Some(Timestamp(101 * HOUR)),
            "settles after the skew in uptime"
        );
        manual.jump(500 * HOUR);
        assert!(clock.read().unsettled);
        clock.confirm();
        assert_eq!(clock.purge_time(), Some(Timestamp(500 * HOUR)));
    }

    // A reader whose two loads of the number agree has judged by a clock that did not go back.
    #[test]
    fn whoever_is_told_an_earlier_time_could_know() {
        let (manual, clock) = start(10 * HOUR, 0, ClockBehind::Refuse).unwrap();
        let mut last = (clock.now(), clock.leads());
        let mut look = |what: &str, earlier: bool| {
            let (before, now) = (last, clock.now());
            last = (now, clock.leads());
            assert_eq!(now < before.0, earlier, "{what}");
            assert!(!earlier || last.1 != before.1, "{what}");
            last.1
        };
        manual.advance(Duration::from_millis(HOUR));
        assert_eq!(look("time passes", false), 0);
        manual.jump(9 * HOUR);
        assert_eq!(look("set back, it stands", false), 0);
        manual.jump(100 * HOUR);
        assert_eq!(look("it leaps", false), 1);
        manual.jump(90 * HOUR);
        assert_eq!(look("the lead shrinks", true), 3);
        manual.jump(11 * HOUR);
        assert_eq!(look("it is forgotten", true), 4);
        manual.jump(100 * HOUR);
        assert_eq!(look("it leaps again", false), 5);
        manual.jump(90 * HOUR);
        clock.confirm();
        assert_eq!(look("a shrunken one settles", true), 6);
    }

    #[test]
    fn opening_behind_and_ahead_of_the_mark() {
        let (_, clock) = start(9 * HOUR, 10 * HOUR, ClockBehind::Refuse).unwrap();
        assert_eq!(clock.now(), Timestamp(10 * HOUR));
        let error = start(9 * HOUR - 1, 10 * HOUR, ClockBehind::Refuse)
            .err()
            .unwrap();
        assert!(matches!(error, Error::ClockBehind { .. }));
        let (_, clock) = start(9 * HOUR - 1, 10 * HOUR, ClockBehind::StartAtMark).unwrap();
        assert_eq!(clock.now(), Timestamp(10 * HOUR));
        let (manual, clock) = start(12 * HOUR, 10 * HOUR, ClockBehind::Refuse).unwrap();
        assert_eq!(clock.purge_time(), None, "the first purge waits");
        manual.advance(Duration::from_millis(HOLD_AFTER_LEADING_OPEN));
        assert_eq!(
            clock.purge_time(),
            Some(Timestamp(12 * HOUR + HOLD_AFTER_LEADING_OPEN))
        );
    }
}
