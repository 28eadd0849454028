//! The settings of a container: those that it is made with, and those that one which exists is to have.

use std::time::Duration;

use crate::base::{DefaultTtl, millis_up};
use crate::values::{Compression, Quota, WhenFull};

/// How to create a container, and how one that exists is to be. If it has been set otherwise than these options say, opening
/// it is [`Error::Differs`](crate::Error::Differs), which shows both, unless [`ContainerOptions::or_keep`] or
/// [`ContainerOptions::or_change`] says what is wanted. Options that are not set say nothing about a container that exists.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Compression, ContainerOptions, Database, DefaultTtl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let options = ContainerOptions::new()
///     .default_ttl(DefaultTtl::After(Duration::from_secs(7 * 86_400)))
///     .compression(Compression::Lz4);
/// let pages = db.container_with("pages", options)?;
/// assert_eq!(pages.default_ttl(), DefaultTtl::After(Duration::from_secs(604_800)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "they count for what is created with them"]
pub struct ContainerOptions {
    default_ttl: Option<DefaultTtl>,
    compression: Option<Compression>,
    /// In milliseconds.
    keep_expired: Option<u64>,
    max_live_bytes: Option<u64>,
    when_full: Option<WhenFull>,
    on_existing: OnExisting,
}

/// The behaviour where a container of the name exists and is set otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnExisting {
    /// It is an error.
    #[default]
    Refuse,
    /// The container is taken as it is.
    Keep,
    /// The container is set as the options say.
    Change,
}

impl ContainerOptions {
    /// Without a default ttl, with the database's compression.
    pub fn new() -> Self {
        ContainerOptions::default()
    }

    /// The default ttl that the container starts with. Default: [`DefaultTtl::NoDefault`]: items with a ttl of their own
    /// expire, and nothing else does.
    pub fn default_ttl(mut self, default: DefaultTtl) -> Self {
        self.default_ttl = Some(default);
        self
    }

    /// How long an item that has ended stays on disk at least, for readers of
    /// [`Container::expirations`](crate::Container::expirations) that are not open all the time; nobody else sees it. Disk
    /// space comes back that much later. Rounded up to a millisecond. Default: 0. Changes of the default and commands limit it,
    /// too: ends from before the 64 latest of them are not known, and each time that a quota makes room by
    /// [`WhenFull::ExpireSoonest`] is a command.
    pub fn keep_expired(mut self, duration: Duration) -> Self {
        self.keep_expired = Some(millis_up(duration));
        self
    }

    /// How the container's blocks are compressed. Default: [`Options::compression`](crate::Options::compression). It stays as
    /// it was when the container was made.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// The most live bytes that the container may hold; see [`Quota`]. Default: no limit. From 1 to 2^62 bytes. May be
    /// changed later: `Container::set_quota`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ContainerOptions, Error, ManualClock, Options, WhenFull};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let options = ContainerOptions::new().max_live_bytes(1_000).when_full(WhenFull::Refuse);
    /// let uploads = db.container_with("uploads", options)?;
    /// uploads.put_with_ttl("a", "x".repeat(800), Duration::from_secs(60))?;
    /// let error = uploads.put("b", "x".repeat(800)).unwrap_err();
    /// assert!(error.is_full() && matches!(error, Error::QuotaFull { limit: 1_000, .. }));
    /// clock.advance(Duration::from_secs(60)); // the first has ended, and counts no more
    /// uploads.put("b", "x".repeat(800))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_live_bytes(mut self, bytes: u64) -> Self {
        self.max_live_bytes = Some(bytes);
        self
    }

    /// The behaviour of a write that would exceed [`ContainerOptions::max_live_bytes`]. Default: [`WhenFull::Refuse`].
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = Some(when_full);
        self
    }

    /// A container that exists is taken as it is, however these options differ: they count for a new one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ContainerOptions, DefaultTtl, Options};
    ///
    /// let db = Options::temporary()?;
    /// let hour = DefaultTtl::After(Duration::from_secs(3_600));
    /// let options = ContainerOptions::new().default_ttl(hour).or_keep();
    /// db.container_with("readings", options.clone())?.set_default_ttl(DefaultTtl::NoDefault)?; // by an operator, say
    /// assert_eq!(db.container_with("readings", options)?.default_ttl(), DefaultTtl::NoDefault);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_keep(mut self) -> Self {
        self.on_existing = OnExisting::Keep;
        self
    }

    /// A container that exists and is set otherwise is set as these options say, by one write, as
    /// [`Container::set_default_ttl`](crate::Container::set_default_ttl), `set_quota` and `set_keep_expired` do: items that a
    /// shorter default ends are gone then. So the program's code says what the retention is. The compression alone cannot be
    /// changed: if it differs, that is an error all the same, and nothing is changed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ContainerOptions, DefaultTtl, Error, Options};
    ///
    /// let db = Options::temporary()?;
    /// let days = |n: u64| ContainerOptions::new().default_ttl(DefaultTtl::After(Duration::from_secs(n * 86_400)));
    /// let readings = db.container_with("readings", days(30))?;
    /// let refused = db.container_with("readings", days(7)).unwrap_err(); // in the next version of the program
    /// assert!(matches!(refused, Error::Differs { .. }));
    /// db.container_with("readings", days(7).or_change())?;
    /// assert_eq!(readings.default_ttl(), DefaultTtl::After(Duration::from_secs(7 * 86_400)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn or_change(mut self) -> Self {
        self.on_existing = OnExisting::Change;
        self
    }

    /// The default ttl, if these options say one.
    pub(crate) fn asked_default_ttl(&self) -> Option<DefaultTtl> {
        self.default_ttl
    }

    /// The compression, if these options say one.
    pub(crate) fn asked_compression(&self) -> Option<Compression> {
        self.compression
    }

    /// How long what has ended is to be kept, in milliseconds, if these options say it.
    pub(crate) fn asked_keep_expired(&self) -> Option<u64> {
        self.keep_expired
    }

    /// The behaviour where a container exists and is set otherwise.
    pub(crate) fn on_existing(&self) -> OnExisting {
        self.on_existing
    }

    /// Whether these options say something of the quota.
    pub(crate) fn says_quota(&self) -> bool {
        self.max_live_bytes.is_some() || self.when_full.is_some()
    }

    /// The quota of a container that has this one, as these options say it: what they leave open stays.
    pub(crate) fn quota_over(&self, there: Option<Quota>) -> Option<Quota> {
        let max_live_bytes = self
            .max_live_bytes
            .or(there.map(|quota| quota.max_live_bytes));
        let when_full = self.when_full.or(there.map(|quota| quota.when_full));
        max_live_bytes.map(|max_live_bytes| Quota {
            max_live_bytes,
            when_full: when_full.unwrap_or(WhenFull::Refuse),
        })
    }
}
