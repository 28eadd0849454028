//! Ttls, as users give them and as they are stored.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::base::time::{Timestamp, millis_up};

/// The longest lifetime, 2 147 483 647 seconds, in milliseconds.
pub const MAX_TTL_MILLIS: u64 = 2_147_483_647_000;

/// A lifetime in milliseconds, rounded up; `None`: no item can have it.
#[inline]
pub fn lifetime_millis(lifetime: Duration) -> Option<u64> {
    let millis = millis_up(lifetime);
    (1..=MAX_TTL_MILLIS).contains(&millis).then_some(millis)
}

/// The lifetime of one item, as a write gives it.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use ebbtide::{ManualClock, Options, Ttl};
///
/// let folder = tempfile::tempdir()?;
/// let clock = ManualClock::new(1_800_000_000_000);
/// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
/// let end = |key| Ok::<_, ebbtide::Error>(c.item(key)?.unwrap().expires_at());
/// let after = |seconds: u64| Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds));
///
/// c.put_with_ttl("a", "1", Duration::from_secs(60))?; // Ttl::After
/// c.put_with_ttl("b", "1", Ttl::Until(after(90).unwrap()))?;
/// assert_eq!((end("a")?, end("b")?), (after(60), after(90)));
/// clock.advance(Duration::from_secs(30));
/// c.put_with_ttl("a", "2", Ttl::Keep)?; // another value, the same end
/// assert_eq!(end("a")?, after(60));
/// c.touch("a")?; // the same value, a minute from now
/// assert_eq!(end("a")?, after(90));
/// c.put_with_ttl("a", "3", Ttl::Never)?;
/// assert_eq!(end("a")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As text: `inherit`, `never`, `keep`, a lifetime (`90`, `250ms`, `30m`, `7d`, `1h30m`) or a moment
/// (`2026-03-01T12:00:00Z`); of [`Ttl::Like`] `1h since 2026-03-01T12:00:00Z`. With serde it is that text; a number is read too, as seconds, and -1 as never.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Ttl;
///
/// let ttl: Ttl = "1h30m".parse()?;
/// assert_eq!(ttl, Ttl::After(Duration::from_secs(5_400)));
/// assert_eq!(ttl.to_string(), "1h30m");
/// assert!("1 year".parse::<Ttl>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Ttl {
    /// The container's default applies, whatever it is at the moment of reading.
    #[default]
    Inherit,
    /// The item never expires by itself.
    Never,
    /// The item expires this long after its last write: more than 0, at most 2 147 483 647 s; rounded up to 1 ms.
    After(Duration),
    /// The new value keeps the countdown of the live item that it replaces: the time from which it counts
    /// ([`Item::written_at`](crate::Item::written_at)) and the ttl; an item that inherits the default goes on
    /// inheriting it. If there is no live item, this is [`Ttl::Inherit`].
    Keep,
    /// The item expires at this moment, rounded up to 1 ms; stored as the lifetime that ends then. A moment in the past is
    /// stored as lifetime 0, which is expired at once wherever ttl applies. A moment more than 2 147 483 647 s (68 years)
    /// after the write is stored as [`Ttl::Never`].
    Until(SystemTime),
    /// The item counts from the same time, by the same ttl, as another one did: [`Ttl::Like`] makes it.
    Since(Countdown),
}

/// From when an item's life counts, and by which ttl of its own: all by which it ends but its container's settings.
/// [`Ttl::Like`] takes it from an item.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Countdown {
    written_at: Timestamp,
    /// [`ABSENT`], [`NEVER`] or milliseconds, which keeps a [`Ttl`] as small as it is without.
    ttl: u64,
}

const ABSENT: u64 = u64::MAX;
const NEVER: u64 = u64::MAX - 1;
const _: () = assert!(size_of::<Ttl>() <= 24);

impl Countdown {
    pub(crate) fn new(written_at: Timestamp, ttl: ItemTtl) -> Countdown {
        let ttl = match ttl {
            ItemTtl::Absent => ABSENT,
            ItemTtl::Never => NEVER,
            ItemTtl::Millis(millis) => millis,
        };
        Countdown { written_at, ttl }
    }

    pub(crate) fn written_at(self) -> Timestamp {
        self.written_at
    }

    pub(crate) fn ttl(self) -> ItemTtl {
        match self.ttl {
            ABSENT => ItemTtl::Absent,
            NEVER => ItemTtl::Never,
            millis => ItemTtl::Millis(millis),
        }
    }
}

impl fmt::Debug for Countdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Countdown")
            .field("written_at", &format_args!("{}", self.written_at))
            .field("ttl", &self.ttl())
            .finish()
    }
}

impl From<Duration> for Ttl {
    /// [`Ttl::After`]; a write with a lifetime out of range is refused.
    fn from(lifetime: Duration) -> Ttl {
        Ttl::After(lifetime)
    }
}

impl From<SystemTime> for Ttl {
    /// [`Ttl::Until`].
    fn from(moment: SystemTime) -> Ttl {
        Ttl::Until(moment)
    }
}

/// The container's default ttl.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{ContainerOptions, Database, DefaultTtl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let cache = db.container("cache")?;
/// assert_eq!(cache.default_ttl(), DefaultTtl::NoDefault); // what a new container has
/// let an_hour = DefaultTtl::After(Duration::from_secs(3_600));
/// let pages = db.container_with("pages", ContainerOptions::new().default_ttl(an_hour))?;
/// pages.put("/", "<html>")?; // for an hour
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As text: `off`, `-1` (without default; `never` is read, too), or a lifetime as [`Ttl`] has it. With serde it is that
/// text; a number is read too, as seconds.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::DefaultTtl;
///
/// let default: DefaultTtl = serde_json::from_str("\"7d\"")?;
/// assert_eq!(default, Duration::from_secs(7 * 86_400).into());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DefaultTtl {
    /// Nothing expires, not even items with a ttl of their own.
    #[default]
    Off,
    /// Items with a ttl of their own expire; the others do not (Cosmos: -1).
    NoDefault,
    /// Items without a ttl of their own expire this long after their last write.
    After(Duration),
}

impl From<Duration> for DefaultTtl {
    /// [`DefaultTtl::After`]; a lifetime out of range is refused where it is set.
    fn from(lifetime: Duration) -> DefaultTtl {
        DefaultTtl::After(lifetime)
    }
}

/// An item's own ttl as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemTtl {
    /// The container's default applies.
    Absent,
    /// Never expires.
    Never,
    /// Milliseconds after `written_at`; 0 only from [`Ttl::Until`] with a moment in the past.
    Millis(u64),
}

impl ItemTtl {
    /// As the public type.
    pub fn to_public(self) -> Ttl {
        match self {
            ItemTtl::Absent => Ttl::Inherit,
            ItemTtl::Never => Ttl::Never,
            ItemTtl::Millis(millis) => Ttl::After(Duration::from_millis(millis)),
        }
    }
}
