//! Where time comes from: the system, the program, or a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::Timestamp;

/// The source of time. The engine reads it during operations, so it must not call the database that uses it.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use ebbtide::{Clock, Options};
///
/// /// Counts its questions: each is a millisecond later.
/// struct Counting(AtomicU64);
///
/// impl Clock for Counting {
///     fn wall(&self) -> u64 {
///         1_800_000_000_000 + self.0.fetch_add(1, Relaxed)
///     }
///
///     fn uptime(&self) -> u64 {
///         self.0.load(Relaxed)
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let db = Options::new().clock(Counting(AtomicU64::new(0))).open(folder.path())?;
/// let first = db.now();
/// assert!(first < db.now());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch; may be set forwards and backwards.
    fn wall(&self) -> u64;
    /// Milliseconds since some moment in the past; never runs backwards, and counts the time a machine is suspended.
    fn uptime(&self) -> u64;
    /// The result of [`Clock::wall`] now, or one that is later by some seconds, never earlier; for clocks for which
    /// this is cheaper. An item that lives longer than that is read without reading the exact time.
    fn wall_at_most(&self) -> Option<u64> {
        None
    }
}

/// The system's clock: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn wall(&self) -> u64 {
        match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => since.as_millis() as u64,
            Err(_) => 0,
        }
    }

    fn uptime(&self) -> u64 {
        monotonic().as_millis() as u64
    }

    #[cfg(target_os = "linux")]
    fn wall_at_most(&self) -> Option<u64> {
        let time = coarse();
        let millis = time.tv_sec.max(0) as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000;
        Some(millis + COARSE_LAG)
    }
}

#[cfg(target_os = "linux")]
#[inline(always)]
fn coarse() -> rustix::time::Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse)
}

/// The coarse clock costs a fifth of the exact one. It is as of the last tick, which is milliseconds ago, unless the
/// processor that counts ticks is delayed, say by the host of a virtual machine. After a longer pause of that machine
/// it is too early until the next tick.
#[cfg(target_os = "linux")]
const COARSE_LAG: u64 = 10_000;

/// Monotonic time, including suspend where the system can: for measuring waits, never for expiry. In a model no time
/// passes.
pub fn monotonic() -> Duration {
    if cfg!(loom) {
        return Duration::ZERO;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        #[allow(clippy::disallowed_methods)]
        START.get_or_init(Instant::now).elapsed()
    }
}

/// A clock that moves only when told to: for tests and simulations. Clones share one time.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{ManualClock, Options};
///
/// let folder = tempfile::tempdir()?;
/// let clock = ManualClock::new(1_800_000_000_000);
/// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
/// c.put_with_ttl("k", "thirty days", Duration::from_secs(30 * 86_400))?;
/// clock.advance(Duration::from_secs(30 * 86_400)); // in no time
/// assert!(c.is_empty()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    time: Arc<ManualTime>,
}

#[derive(Debug)]
struct ManualTime {
    wall: AtomicU64,
    uptime: AtomicU64,
}

impl ManualClock {
    /// A clock whose wall reads `millis` since the Unix epoch and whose uptime reads 0.
    #[must_use]
    pub fn new(millis: u64) -> Self {
        ManualClock {
            time: Arc::new(ManualTime {
                wall: AtomicU64::new(millis),
                uptime: AtomicU64::new(0),
            }),
        }
    }

    /// Moves the wall to `millis`, and uptime by the same amount if that is forwards. Backwards, only the wall moves.
    pub fn set(&self, millis: u64) {
        let before = self.time.wall.swap(millis, Ordering::SeqCst);
        self.time
            .uptime
            .fetch_add(millis.saturating_sub(before), Ordering::SeqCst);
    }

    /// Lets time pass: moves both readings, by whole milliseconds.
    pub fn advance(&self, by: Duration) {
        let millis = by.as_millis() as u64;
        self.time.uptime.fetch_add(millis, Ordering::SeqCst);
        self.time.wall.fetch_add(millis, Ordering::SeqCst);
    }

    /// Sets the wall to `millis`, forwards or backwards, while no time passes.
    pub fn jump(&self, millis: u64) {
        self.time.wall.store(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> u64 {
        self.time.wall.load(Ordering::SeqCst)
    }

    fn uptime(&self) -> u64 {
        self.time.uptime.load(Ordering::SeqCst)
    }
}

/// A moment of the wall as the coarse clock counts: the second, and in it the first nanosecond that is later. So what is
/// asked for each item needs no division.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
pub struct CoarseLimit {
    second: i64,
    nanosecond: u64,
}

#[cfg(target_os = "linux")]
impl CoarseLimit {
    /// [`SystemClock::wall_at_most`] is no later than this moment before the limit, and later from then on.
    fn of(moment: Timestamp) -> CoarseLimit {
        match moment.0.checked_sub(COARSE_LAG) {
            Some(millis) => CoarseLimit {
                second: (millis / 1_000) as i64,
                nanosecond: (millis % 1_000 + 1) * 1_000_000,
            },
            None => CoarseLimit {
                second: -1,
                nanosecond: 0,
            },
        }
    }

    #[inline(always)]
    fn is_ahead_of(self, second: i64, nanosecond: u64) -> bool {
        second < self.second || (second == self.second && nanosecond < self.nanosecond)
    }
}

/// The clock of a database. The default is asked without a virtual call, because scans ask it for each item.
#[derive(Clone)]
pub enum DatabaseClock {
    /// The default.
    System,
    /// The program's own.
    Custom(Arc<dyn Clock>),
}

/// The clock of a database whose time the program gives. Its wall is always behind, so settled time moves by
/// [`SettledClock::advance_to`](super::SettledClock::advance_to) alone; uptime is that of another clock.
struct NoWall(DatabaseClock);

impl Clock for NoWall {
    fn wall(&self) -> u64 {
        0
    }

    fn uptime(&self) -> u64 {
        self.0.uptime()
    }

    fn wall_at_most(&self) -> Option<u64> {
        Some(0)
    }
}

// Not as a `Clock`: that is a public trait, and this type is not.
impl DatabaseClock {
    /// One whose wall tells nothing: time is given.
    pub fn without_wall(self) -> DatabaseClock {
        DatabaseClock::Custom(Arc::new(NoWall(self)))
    }

    /// [`Clock::wall`].
    #[inline]
    pub fn wall(&self) -> u64 {
        match self {
            DatabaseClock::System => SystemClock.wall(),
            DatabaseClock::Custom(clock) => clock.wall(),
        }
    }

    /// [`Clock::uptime`].
    pub fn uptime(&self) -> u64 {
        match self {
            DatabaseClock::System => SystemClock.uptime(),
            DatabaseClock::Custom(clock) => clock.uptime(),
        }
    }

    /// [`Clock::wall_at_most`].
    #[inline]
    pub fn wall_at_most(&self) -> Option<u64> {
        match self {
            DatabaseClock::System => SystemClock.wall_at_most(),
            DatabaseClock::Custom(clock) => clock.wall_at_most(),
        }
    }

    /// To ask often whether its wall has come to this moment.
    pub fn watch(&self, moment: Timestamp) -> SourceWatch<'_> {
        match self {
            #[cfg(target_os = "linux")]
            DatabaseClock::System => SourceWatch::Coarse(CoarseLimit::of(moment)),
            #[cfg(not(target_os = "linux"))]
            DatabaseClock::System => SourceWatch::Any(&SystemClock, moment),
            DatabaseClock::Custom(clock) => SourceWatch::Any(&**clock, moment),
        }
    }
}

/// A wall that is asked often whether it has come to a moment.
#[derive(Clone, Copy)]
pub enum SourceWatch<'a> {
    /// The system's, by its coarse clock.
    #[cfg(target_os = "linux")]
    Coarse(CoarseLimit),
    /// Any clock.
    Any(&'a dyn Clock, Timestamp),
}

impl SourceWatch<'_> {
    /// Whether the wall is no later than the moment: true is certain.
    #[inline(always)]
    pub fn is_up_to(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            SourceWatch::Coarse(limit) => {
                let time = coarse();
                limit.is_ahead_of(time.tv_sec, time.tv_nsec as u64)
            }
            SourceWatch::Any(clock, moment) => {
                let wall = match clock.wall_at_most() {
                    Some(wall) => wall,
                    None => clock.wall(),
                };
                wall <= moment.0
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_coarse_clock_is_that_of_its_milliseconds() {
        for millis in [0, 1, 999, 1_000, 1_999, 1_800_000_000_123] {
            let limit = CoarseLimit::of(Timestamp(millis + COARSE_LAG));
            for now in [0, 1, 998, 999, 1_000, 1_001, 1_998, 1_999, 2_000]
                .into_iter()
                .chain(1_800_000_000_120..1_800_000_000_126)
            {
                for rest in [0, 999_999] {
                    let second = (now / 1_000) as i64;
                    let nanosecond = now % 1_000 * 1_000_000 + rest;
                    let is_ahead = limit.is_ahead_of(second, nanosecond);
                    assert_eq!(is_ahead, now <= millis, "{now} {rest}, up to {millis}");
                }
            }
        }
        let before_all = CoarseLimit::of(Timestamp(COARSE_LAG - 1));
        assert!(!before_all.is_ahead_of(0, 0));
    }
}
