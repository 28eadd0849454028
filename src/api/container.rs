//! Containers.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use crate::api::arguments::{KeyBounds, all_keys, key_range, prefix_range};
use crate::api::cursor::Cursor;
use crate::api::iter::{Iter, Keys};
use crate::api::read::{Reading, reading_methods};
use crate::api::writing::{Update, Waiting, Writes, Writing};
use crate::base::{AtOnce, DefaultTtl, Result, Ttl};
use crate::data::item::{Item, Value};
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted};
use crate::engine::{ContainerState, Handle};
use crate::expiry::{DefaultMillis, SettingsChange};
use crate::values::stats::ContainerStats;

/// A named, ordered set of items with its own expiry settings. Cheap to clone; clones are the same container.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Database, DefaultTtl, Ttl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let sessions = db.container("sessions")?;
/// sessions.set_default_ttl(DefaultTtl::After(Duration::from_secs(1_800)))?;
///
/// sessions.put("s-1", r#"{"user":"ada"}"#)?;
/// sessions.put_with_ttl("s-2", "remembered", Ttl::Never)?;
/// assert_eq!(sessions.get("s-1")?.unwrap(), r#"{"user":"ada"}"#);
/// assert!(!sessions.create("s-1", "taken", Ttl::Inherit)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Container {
    state: Arc<ContainerState>,
    engine: Handle,
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Container {
    pub(crate) fn new(engine: Handle, state: Arc<ContainerState>) -> Self {
        Container { engine, state }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.state.name()
    }

    /// The default ttl, for items without a ttl of their own.
    #[must_use]
    pub fn default_ttl(&self) -> DefaultTtl {
        self.state.settings().default.to_public()
    }

    /// Changes the default, at once for every item, whenever it was written; nothing is rewritten, and items that are
    /// expired now stay gone. The change is durable when this returns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{DefaultTtl, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let events = Options::new().clock(clock.clone()).open(folder.path())?.container("events")?;
    /// events.put("e-1", "written long before")?;
    /// clock.advance(Duration::from_secs(60));
    /// events.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))?;
    /// assert!(events.get("e-1")?.is_none()); // it is a minute old
    /// events.set_default_ttl(DefaultTtl::NoDefault)?;
    /// assert!(events.get("e-1")?.is_none()); // and stays gone
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A lifetime out of range; [`Error::ClockUnsettled`](crate::Error::ClockUnsettled) while the wall clock has leapt
    /// ahead and is not confirmed.
    pub fn set_default_ttl(&self, default: DefaultTtl) -> Result<()> {
        let default = DefaultMillis::from_public(default)?;
        self.engine
            .change_settings(&self.state, SettingsChange::Default(default))
    }

    /// Stores an item that inherits the container's default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// c.put_with_ttl("k", "for a minute", Duration::from_secs(60))?;
    /// c.put("k", "as long as the container says")?; // the ttl is not kept
    /// assert!(c.item("k")?.unwrap().expires_at().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writing()
            .put(key.as_ref(), value.as_ref(), Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own. The countdown starts now, whatever was stored before, except with
    /// [`Ttl::Keep`], which reads the item first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let sessions = db.container("sessions")?;
    /// sessions.put_with_ttl("s-1", "no cart", Ttl::After(Duration::from_secs(1_800)))?;
    /// let end = sessions.item("s-1")?.unwrap().expires_at();
    /// sessions.put_with_ttl("s-1", "a cart", Ttl::Keep)?;
    /// assert_eq!(sessions.item("s-1")?.unwrap().expires_at(), end);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The end is exact:
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let tokens = Options::new().clock(clock.clone()).open(folder.path())?.container("tokens")?;
    /// tokens.put_with_ttl("a", "an hour", Duration::from_secs(3_600))?;
    /// tokens.put_with_ttl("b", "for good", Ttl::Never)?;
    /// clock.advance(Duration::from_secs(3_599));
    /// assert_eq!(tokens.iter().count(), 2);
    /// clock.advance(Duration::from_secs(1)); // gone in the very millisecond
    /// assert!(tokens.get("a")?.is_none());
    /// assert!(tokens.put_with_ttl("c", "", Duration::ZERO).is_err()); // and nothing is stored
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        self.writing().put(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if no live one has the key. False: a live one has it, and nothing was written.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let locks = Options::new().clock(clock.clone()).open(folder.path())?.container("locks")?;
    /// assert!(locks.create("job-7", "worker 1", Duration::from_secs(30))?);
    /// assert!(!locks.create("job-7", "worker 2", Duration::from_secs(30))?); // it is taken
    /// clock.advance(Duration::from_secs(30));
    /// assert!(locks.create("job-7", "worker 2", Duration::from_secs(30))?); // over one that has expired
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let writing = self.writing();
        writing.create(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if a live one has the key. False: none has it, and nothing was written.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let names = Database::open(folder.path())?.container("names")?;
    /// assert!(!names.replace("u-1", "Ada", Ttl::Inherit)?);
    /// assert!(names.get("u-1")?.is_none());
    /// names.put("u-1", "Ada")?;
    /// assert!(names.replace("u-1", "Ada Lovelace", Ttl::Inherit)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let writing = self.writing();
        writing.replace(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item whatever is there, and tells the version of the live item that it has replaced: whether it was created. Where
    /// that item is still in memory, this costs little more than [`Container::put_with_ttl`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let carts = Options::new().clock(clock.clone()).open(folder.path())?.container("carts")?;
    /// let first = carts.upsert("c-1", "a pen", Duration::from_secs(60))?;
    /// assert_eq!(first.before, None); // created
    /// let second = carts.upsert("c-1", "two pens", Duration::from_secs(60))?;
    /// assert_eq!(second.before, Some(first.written.version())); // replaced
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(carts.upsert("c-1", "ink", Duration::from_secs(60))?.before, None); // it had expired
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Container::put_with_ttl`]; and of [`Container::get`], where the version that was replaced is in a table that cannot be
    /// read: the item is stored then, unless it was read first: for [`Ttl::Keep`] and `Like`, under `Sync`, after time has gone back.
    pub fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let writing = self.writing();
        writing.upsert(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if the version of the live item of its key is accepted, and tells both versions: for ETags. Atomic:
    /// `accepts` is asked again if meanwhile the item is written or ends, and its last answer counts. The value that is there is
    /// not read, so this costs less than [`Container::update`].
    ///
    /// ```
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let pages = Database::open(folder.path())?.container("pages")?;
    /// let first = pages.put_if("home", "text", Ttl::Inherit, |_| true)?;
    /// assert_eq!(first.before, None); // created
    /// let etag = first.written.map(|written| written.version());
    /// let if_match = |found| found == etag;
    /// let second = pages.put_if("home", "newer text", Ttl::Inherit, if_match)?;
    /// assert_eq!(second.before, etag); // replaced
    /// let third = pages.put_if("home", "another text", Ttl::Inherit, if_match)?;
    /// assert_eq!(third.written, None); // written since
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Container::put_with_ttl`]; and [`Error::InvalidArgument`](crate::Error::InvalidArgument) where `accepts` writes
    /// this key itself: nothing is written then.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool,
    ) -> Result<PutIf> {
        let writing = self.writing();
        writing.put_if(key.as_ref(), value.as_ref(), ttl.into(), accepts)
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let sessions = Options::new().clock(clock.clone()).open(folder.path())?.container("sessions")?;
    /// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(60))?;
    /// for _ in 0..10 {
    ///     clock.advance(Duration::from_secs(59));
    ///     assert!(sessions.touch("s-1")?); // a minute more
    /// }
    /// clock.advance(Duration::from_secs(60));
    /// assert!(!sessions.touch("s-1")?); // too late: it does not come back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.writing().touch(key.as_ref())
    }

    /// As [`Container::touch`], and returns the item as it is from then on, with its new end: in one step, so of a session
    /// that is read and slides with one call. `None`: there is no live item.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let sessions = Options::new().clock(clock.clone()).open(folder.path())?.container("sessions")?;
    /// let half_an_hour = Duration::from_secs(1_800);
    /// sessions.put_with_ttl("s-1", "ada", half_an_hour)?;
    /// clock.advance(Duration::from_secs(1_000));
    /// let session = sessions.get_and_touch("s-1")?.unwrap();
    /// assert_eq!(session.value(), "ada");
    /// assert_eq!(session.remaining(), Some(half_an_hour)); // again
    /// clock.advance(half_an_hour);
    /// assert!(sessions.get_and_touch("s-1")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.writing().get_and_touch(key.as_ref(), |_| true)
    }

    /// As [`Container::touch`], and returns the item's new end. `None`: there is no live item. Of an item that never ends it
    /// returns the last moment that time comes to, which is later than any end: so `None` has one meaning.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let sessions = Options::new().clock(clock.clone()).open(folder.path())?.container("sessions")?;
    /// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(45));
    /// let cookie_ends = sessions.touch_until("s-1")?;
    /// assert_eq!(cookie_ends, Some(UNIX_EPOCH + Duration::from_secs(1_800_000_105)));
    /// assert_eq!(sessions.touch_until("s-2")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch_until(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        self.writing().touch_until(key.as_ref())
    }

    /// Gives a live item this ttl, keeps its value, and restarts the countdown. [`Ttl::Never`] makes it permanent,
    /// [`Ttl::Inherit`] makes the container's default apply, [`Ttl::Like`] makes it end with another item. False: there is
    /// no live item.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let drafts = db.container("drafts")?;
    /// drafts.put("d-1", "Dear Ada")?;
    /// assert!(drafts.expire("d-1", Ttl::After(Duration::from_secs(60)))?);
    /// assert!(drafts.item("d-1")?.unwrap().expires_at().is_some());
    /// assert!(drafts.expire("d-1", Ttl::Never)?);
    /// assert!(drafts.item("d-1")?.unwrap().expires_at().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A lifetime out of range, or [`Ttl::Keep`], which would change nothing.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool> {
        self.writing().expire(key.as_ref(), ttl.into())
    }

    /// Removes a live item and returns it, atomically: of several callers one gets it. `None`: there is none.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let codes = db.container("codes")?;
    /// codes.put("4711", "ada")?;
    /// assert_eq!(codes.take("4711")?.unwrap().value(), "ada");
    /// assert!(codes.take("4711")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.writing().take(key.as_ref())
    }

    /// Reads an item and decides what to do with it, atomically: nobody writes the key in between, and the item neither
    /// expires nor comes back by a corrected clock. If that happens, the closure is called again, as often as it takes. True:
    /// the item was changed; false: it was kept, or there was none to delete, and nothing was written.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl, Update};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let counters = Database::open(folder.path())?.container("counters")?;
    /// let add = |n: u64| {
    ///     counters.update("hits", |item| {
    ///         let before = item.map_or(0, |item| u64::from_be_bytes(item.value()[..].try_into().unwrap()));
    ///         Update::Put((before + n).to_be_bytes().to_vec(), Ttl::Inherit)
    ///     })
    /// };
    /// add(2)?;
    /// add(3)?; // from however many threads: none is lost
    /// assert_eq!(counters.get("hits")?.unwrap(), 5u64.to_be_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) where the closure writes the key itself, or changes the
    /// container's default or expires on command: that call returns it, does nothing, and then so does this one. Other writes
    /// it may do; one of them may be done several times.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<bool> {
        let written = self.writing().update(key.as_ref(), decide)?;
        Ok(written.is_some())
    }

    /// Like [`Container::update`], with values that are borrowed for the call, or owned as a `Vec<u8>`.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl, Update};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let pages = db.container("pages")?;
    /// let page = std::fs::read("Cargo.toml")?;
    /// pages.update_with("home", |found| match found {
    ///     Some(_) => Update::Keep,
    ///     None => Update::Put(&page, Ttl::Inherit), // not copied before it is written
    /// })?;
    /// assert_eq!(pages.get("home")?.unwrap(), page);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update_with<'v>(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update<Cow<'v, [u8]>>,
    ) -> Result<bool> {
        let written = self.writing().update(key.as_ref(), decide)?;
        Ok(written.is_some())
    }

    /// Like [`Container::update`]; returns also the item that was there before and what was written.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl, Update};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let counters = db.container("counters")?;
    /// let add = |item: Option<&ebbtide::Item>| {
    ///     let n: u64 = item.map_or(0, |item| String::from_utf8_lossy(item.value()).parse().unwrap());
    ///     Update::Put((n + 1).to_string().into_bytes(), Ttl::Inherit)
    /// };
    /// assert!(counters.fetch_update("visits", add)?.before.is_none());
    /// let done = counters.fetch_update("visits", add)?;
    /// assert_eq!(done.before.unwrap().value(), "1");
    /// assert_eq!(counters.item("visits")?.unwrap().version(), done.written.unwrap().version());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<Updated> {
        self.writing().fetch_update(key.as_ref(), decide)
    }

    /// Deletes an item, whether it exists or not.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// c.put("k", "v")?;
    /// c.delete("k")?;
    /// c.delete("k")?; // whether it was there: `take` tells
    /// assert!(c.get("k")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.writing().delete(key.as_ref())
    }

    /// Deletes every item whose key is in the range, atomically, however many there are. A bound may be no longer than
    /// a key, 65 535 bytes; an empty one is before all keys.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let log = Database::open(folder.path())?.container("log")?;
    /// ["2025-12", "2026-01", "2026-02"].iter().try_for_each(|month| log.put(month, ""))?;
    /// log.delete_range(.."2026")?;
    /// assert_eq!(log.first()?.unwrap().key(), b"2026-01");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        self.writing().delete_range(range)
    }

    /// Deletes every item, atomically, by a range delete of all keys. The container, its settings and its handles stay;
    /// snapshots still see their items.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let cache = db.container("cache")?;
    /// cache.put("k", "v")?;
    /// let before = db.snapshot();
    /// cache.clear()?;
    /// assert!(cache.is_empty()?);
    /// assert_eq!(before.container("cache")?.count(..)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// An estimate of the readable items: [`ContainerStats::live_items`] alone. Exact while no more than a thousand are
    /// stored, or were put since a range delete of all others; `iter().count()` counts exactly. 0 when the container
    /// was dropped.
    #[must_use]
    pub fn len_estimate(&self) -> u64 {
        self.engine.len_estimate(&self.state)
    }

    /// The statistics of the container.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let items = db.container("items")?;
    /// items.put("k", "v")?;
    /// db.flush()?;
    /// let stats = items.stats();
    /// assert_eq!((stats.live_items, stats.runs, stats.overdue.is_zero()), (1, 1, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> ContainerStats {
        self.engine.container_stats(&self.state)
    }

    /// To be written to, by a caller that waits.
    pub(crate) fn writing(&self) -> Writing<'_, Waiting> {
        self.writing_by(Waiting)
    }

    /// To be written to in this way.
    pub(crate) fn writing_by<W>(&self, way: W) -> Writing<'_, W> {
        Writing {
            engine: &self.engine,
            state: &self.state,
            way,
        }
    }

    /// For reading its current state.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            engine: &self.engine,
            state: &self.state,
            pin: None,
        }
    }

    /// The engine of its database.
    pub(crate) fn engine(&self) -> &Handle {
        &self.engine
    }

    /// Its state in the engine.
    pub(crate) fn state(&self) -> &Arc<ContainerState> {
        &self.state
    }
}

reading_methods!(Container);

/// So that batches and transactions take every kind of handle.
impl AsRef<Container> for Container {
    fn as_ref(&self) -> &Container {
        self
    }
}
