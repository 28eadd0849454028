//! Retention: expiring items on command, and previews of that and of another default.

use std::time::SystemTime;

use crate::api::arguments::check_key;
use crate::api::container::Container;
use crate::base::{DefaultTtl, Result, Timestamp};
use crate::data::explanation::Explanation;
use crate::expiry::{DefaultMillis, Expire, SettingsChange, Tally};
use crate::values::Quota;

/// The effect that a change of a container's retention would have: live items that would be gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Preview {
    /// How many.
    pub items: u64,
    /// Bytes of their keys and values, and some for each.
    pub bytes: u64,
    /// How many commands to expire items would stand in the container then; exact. See
    /// [`ContainerStats::expire_commands`](crate::ContainerStats::expire_commands).
    pub commands: u64,
}

/// Expiring on command: each command is a write that costs the same however many items there are, and is durable when
/// it returns. The items that it ends are gone from the next read on, for snapshots and iterators too, and nothing
/// brings them back. Items that are written after it are not concerned, whatever their times.
///
/// In a batch, the commands are [`Batch::expire_before`](crate::Batch::expire_before) and its neighbours.
impl Container {
    /// Expires at once the items that would end before `moment`, by their own ttl or by the container's default. Items
    /// without an end stay. `moment` is rounded up to a millisecond; one that has passed already ends nothing.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let c = Options::new().clock(clock).open(folder.path())?.container("c")?;
    /// c.put_with_ttl("soon", "ends in 10 s", Duration::from_secs(10))?;
    /// c.put_with_ttl("later", "ends in 30 s", Duration::from_secs(30))?;
    /// c.put_with_ttl("never", "stays", Ttl::Never)?;
    /// c.expire_before(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + 20_000))?;
    /// assert!(c.get("soon")?.is_none());
    /// assert!(c.get("later")?.is_some() && c.get("never")?.is_some());
    /// c.put_with_ttl("soon", "written later", Duration::from_secs(10))?;
    /// assert!(c.get("soon")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ClockUnsettled`](crate::Error::ClockUnsettled) while the wall clock has leapt ahead and is not confirmed;
    /// [`Error::TooManyCommands`](crate::Error::TooManyCommands) when 64 stand that this one does not cover.
    pub fn expire_before(&self, moment: SystemTime) -> Result<()> {
        self.command(Expire::Before(Timestamp::from_system_time_up(moment)))
    }

    /// Expires at once the items that were written before `moment`, whatever their ttl: also items that never expire,
    /// and where ttl is off. An item was written when it was last put or touched; one put with
    /// [`Ttl::Keep`](crate::Ttl::Keep), when the item that it replaced was.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
    /// c.put_with_ttl("old", "for ever", Ttl::Never)?;
    /// clock.advance(Duration::from_secs(60));
    /// c.put("new", "")?;
    /// c.expire_written_before(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000 + 60_000))?;
    /// assert!(c.get("old")?.is_none() && c.get("new")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Container::expire_before`].
    pub fn expire_written_before(&self, moment: SystemTime) -> Result<()> {
        let moment = Timestamp::from_system_time_up(moment);
        self.command(Expire::WrittenBefore(moment))
    }

    /// Expires every item at once, whatever its ttl. As [`Container::clear`](crate::Container::clear), but for snapshots
    /// and iterators, which do not see the items any more: so the disk space comes back whatever they hold.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("k", "for ever", Ttl::Never)?;
    /// let snapshot = db.snapshot();
    /// c.expire_all()?;
    /// assert!(c.is_empty()? && snapshot.container("c")?.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Container::expire_before`].
    pub fn expire_all(&self) -> Result<()> {
        self.command(Expire::All)
    }

    /// How much [`Container::set_default_ttl`] would end if it was called now; changes nothing. An estimate, within 5 % of
    /// what is stored, which reads no item.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{DefaultTtl, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
    /// c.put("old", "of yesterday")?;
    /// clock.advance(Duration::from_secs(86_400));
    /// c.put("new", "of today")?;
    /// let hour = DefaultTtl::After(Duration::from_secs(3_600));
    /// assert_eq!(c.preview_default_ttl(hour).items, 1);
    /// assert!(c.get("old")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A lifetime out of range, which [`Container::set_default_ttl`] refuses, ends nothing.
    #[must_use]
    pub fn preview_default_ttl(&self, default: DefaultTtl) -> Preview {
        DefaultMillis::from_public(default).map_or_else(
            |_| Preview::default(),
            |default| self.preview(SettingsChange::Default(default)),
        )
    }

    /// How much [`Container::expire_before`] would end if it was called now; see [`Container::preview_default_ttl`].
    #[must_use]
    pub fn preview_expire_before(&self, moment: SystemTime) -> Preview {
        let moment = Timestamp::from_system_time_up(moment);
        self.preview(SettingsChange::Expire(Expire::Before(moment)))
    }

    /// How much [`Container::expire_written_before`] would end if it was called now; see
    /// [`Container::preview_default_ttl`].
    #[must_use]
    pub fn preview_expire_written_before(&self, moment: SystemTime) -> Preview {
        let moment = Timestamp::from_system_time_up(moment);
        self.preview(SettingsChange::Expire(Expire::WrittenBefore(moment)))
    }

    /// Why a key reads as it does: every stored version of it, where it lies, what hides or ends it, and when its bytes
    /// leave the disk. Reads what a get of the key reads and the same of each run. A version that was removed is not
    /// known any more.
    ///
    /// # Errors
    /// Those of [`Container::get`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Fate, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
    /// c.put_with_ttl("k", "v", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(60));
    /// let why = c.explain("k")?;
    /// assert!(!why.is_live());
    /// assert!(matches!(why.versions[0].fate, Fate::ExpiredByTtl { .. }));
    /// println!("{why}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        check_key(key.as_ref())?;
        self.engine().explain_key(self.state(), key.as_ref())
    }

    /// The most live bytes that the container may hold; none: there is no limit.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.engine().quota(self.state())
    }

    /// Sets the most live bytes that the container may hold, or lifts the limit. Durable when it returns. Stored items
    /// stay: if more is live, the next write that adds something is refused, or makes room.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, Quota, Ttl, WhenFull};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let cache = Options::new().clock(clock).open(folder.path())?.container("cache")?;
    /// cache.set_quota(Some(Quota { max_live_bytes: 1_000, when_full: WhenFull::ExpireSoonest }))?;
    /// cache.put_with_ttl("later", "x".repeat(400), Duration::from_secs(60))?;
    /// cache.put_with_ttl("soon", "x".repeat(400), Duration::from_secs(30))?;
    /// cache.put_with_ttl("new", "x".repeat(400), Duration::from_secs(10))?;
    /// assert!(cache.get("soon")?.is_none()); // it would have ended first
    /// assert!(cache.contains("later")? && cache.contains("new")?);
    /// cache.put_with_ttl("stays", "x".repeat(900), Ttl::Never)?;
    /// assert!(cache.put("k", "x".repeat(400)).unwrap_err().is_full()); // nothing with an end is left
    /// cache.set_quota(None)?;
    /// cache.put("k", "x".repeat(400))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A limit out of range: 1 to 2^62 bytes. Writes that [`WhenFull::ExpireSoonest`](crate::WhenFull) makes room for can
    /// fail as [`Container::expire_before`] does.
    pub fn set_quota(&self, quota: Option<Quota>) -> Result<()> {
        self.engine().set_quota(self.state(), quota)
    }

    fn preview(&self, change: SettingsChange) -> Preview {
        let Tally { count, bytes } = self.engine().preview(self.state(), change);
        Preview {
            items: count,
            bytes,
            commands: self.engine().commands_after(self.state(), change),
        }
    }

    fn command(&self, what: Expire) -> Result<()> {
        let change = SettingsChange::Expire(what);
        self.engine().change_settings(self.state(), change)
    }
}
