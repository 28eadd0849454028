//! Containers, as tasks use them.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use crate::api::arguments::{KeyBounds, prefix_range};
use crate::api::container::Container;
use crate::api::due::DueBucket;
use crate::api::expirations::ExpiryCursor;
use crate::api::writing::{Update, Writes};
use crate::base::{Attempt, DefaultTtl, Result, Ttl};
use crate::data::explanation::Explanation;
use crate::data::item::{Item, Value};
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::tokio::read::{async_reading_methods, bounds, bytes, few_at_once};
use crate::tokio::shared::{Shared, WorkQueue};
use crate::tokio::stream::{ItemStream, KeyStream};
use crate::tokio::turns::{AsyncChanges, AsyncExpirations, AsyncWatch};
use crate::tokio::write::Begin;
use crate::values::Quota;
use crate::values::stats::ContainerStats;

/// A [`Container`] for tasks: the same operations, the same answers, the same errors, and none of them makes the thread
/// wait. Cheap to clone; clones are the same container.
///
/// **When a future is dropped.** Nothing is done before its first poll. A read is forgotten. A write is done whole or
/// not at all: it is done if it had begun, inline or on a thread of the pool, and it never begins if it was still in
/// the pool's queue. The caller of a write whose future is dropped does not know which of the two happened, as with any
/// call that has no answer.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Ttl;
/// use ebbtide::tokio::AsyncDatabase;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let sessions = AsyncDatabase::open(folder.path()).await?.container("sessions").await?;
/// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(1_800)).await?;
/// assert!(sessions.touch("s-1").await?); // half an hour more
/// assert_eq!(sessions.get("s-1").await?.unwrap(), "ada");
/// assert!(!sessions.create("s-1", "taken", Ttl::Inherit).await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AsyncContainer {
    of: Container,
    shared: Arc<Shared>,
}

impl fmt::Debug for AsyncContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncContainer")
            .field("name", &self.of.name())
            .finish_non_exhaustive()
    }
}

/// For a [`Batch`](crate::Batch), or a [`Transaction`](crate::Transaction).
impl AsRef<Container> for AsyncContainer {
    fn as_ref(&self) -> &Container {
        &self.of
    }
}

impl AsyncContainer {
    pub(super) fn new(of: Container, shared: &Arc<Shared>) -> AsyncContainer {
        AsyncContainer {
            of,
            shared: shared.clone(),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The container itself, whose calls may wait: for threads that may. A [`Batch`](crate::Batch) and a
    /// [`Transaction`](crate::Transaction) take either.
    #[must_use]
    pub fn as_sync(&self) -> &Container {
        &self.of
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.of.name()
    }

    /// As [`Container::stats`].
    pub async fn stats(&self) -> Result<ContainerStats> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Read, move || Ok(of.stats()))
            .await
    }

    /// As [`Container::due`].
    pub async fn due(&self) -> Result<Vec<DueBucket>> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Read, move || Ok(of.due()))
            .await
    }

    /// As [`Container::explain`].
    pub async fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let (of, key) = (self.of.clone(), bytes(key));
        self.shared
            .pooled(WorkQueue::Read, move || of.explain(key))
            .await
    }

    /// As [`Container::quota`].
    pub async fn quota(&self) -> Result<Option<Quota>> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Read, move || Ok(of.quota()))
            .await
    }

    /// As [`Container::set_quota`]. Durable when it is answered.
    pub async fn set_quota(&self, quota: Option<Quota>) -> Result<()> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Write, move || of.set_quota(quota))
            .await
    }

    /// The default ttl, for items without a ttl of their own.
    pub async fn default_ttl(&self) -> Result<DefaultTtl> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Read, move || Ok(of.default_ttl()))
            .await
    }

    /// See [`Container::set_default_ttl`]. Durable when it is answered.
    pub async fn set_default_ttl(&self, default: DefaultTtl) -> Result<()> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Write, move || of.set_default_ttl(default))
            .await
    }

    /// See [`Container::expire_before`]. Durable when it is answered.
    pub async fn expire_before(&self, moment: SystemTime) -> Result<()> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Write, move || of.expire_before(moment))
            .await
    }

    /// See [`Container::expire_written_before`]. Durable when it is answered.
    pub async fn expire_written_before(&self, moment: SystemTime) -> Result<()> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Write, move || of.expire_written_before(moment))
            .await
    }

    /// See [`Container::expire_all`]. Durable when it is answered.
    pub async fn expire_all(&self) -> Result<()> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Write, move || of.expire_all())
            .await
    }

    /// As [`Container::expirations`]: when this is answered, items that end from then on are kept for it. The task asks
    /// again in a while.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ExpiryCursor, ManualClock, Options};
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = AsyncDatabase::open_with(&Options::new().clock(clock.clone()), folder.path()).await?;
    /// let carts = db.container("carts").await?;
    /// let mut expired = carts.expirations(ExpiryCursor::now()).await?;
    /// carts.put_with_ttl("ada", "3 books", Duration::from_secs(10)).await?;
    /// clock.advance(Duration::from_secs(15));
    /// assert_eq!(expired.next().await.unwrap()?.key(), b"ada");
    /// assert!(expired.next().await.is_none()); // by now
    /// # Ok(()) }
    /// ```
    pub async fn expirations(&self, from: ExpiryCursor) -> Result<AsyncExpirations> {
        let of = self.of.clone();
        let opened = self
            .shared
            .pooled(WorkQueue::Read, move || Ok(of.expirations(from)))
            .await?;
        Ok(AsyncExpirations::new(opened, &self.shared))
    }

    /// As [`Container::watch`]: when this is answered, it watches.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Options, WatchEvent};
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let jobs = AsyncDatabase::from(Options::temporary()?).container("jobs").await?;
    /// let mut watch = jobs.watch(..).await?;
    /// jobs.put("job-1", "resize").await?;
    /// assert!(watch.wait(Duration::from_secs(60)).await?);
    /// assert!(matches!(watch.next().await.unwrap()?, WatchEvent::Put(item) if item.value() == "resize"));
    /// # Ok(()) }
    /// ```
    pub async fn watch(&self, range: impl KeyBounds) -> Result<AsyncWatch> {
        let (of, range) = (self.of.clone(), bounds(range));
        let opened = self
            .shared
            .pooled(WorkQueue::Read, move || Ok(of.watch(range)))
            .await?;
        Ok(AsyncWatch::new(opened, &self.shared))
    }

    /// As [`Container::changes`]; it takes no time.
    pub fn changes(&self, since: Version) -> AsyncChanges {
        AsyncChanges::new(self.of.changes(since), &self.shared)
    }

    /// Stores an item that inherits the container's default.
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit).await
    }

    /// Stores an item with a ttl of its own; see [`Container::put_with_ttl`].
    pub async fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let ttl = ttl.into();
        let at_once =
            |way: &Begin, key: &[u8], value: &[u8]| self.of.writing_by(way).put(key, value, ttl);
        let later = move |of: Container, key, value| of.put_with_ttl(key, value, ttl);
        self.store(key, value, at_once, later).await
    }

    async fn store<T: Send + 'static>(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        at_once: impl FnOnce(&Begin, &[u8], &[u8]) -> Attempt<T>,
        later: impl FnOnce(Container, Vec<u8>, Vec<u8>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let at_once = |way: &Begin, (key, value): &mut (_, _)| {
            at_once(way, AsRef::as_ref(key), AsRef::as_ref(value))
        };
        let later = |(key, value)| {
            let (of, key, value) = (self.of.clone(), bytes(key), bytes(value));
            move || later(of, key, value)
        };
        self.shared.write((key, value), at_once, later).await
    }

    /// Stores an item if no live one has the key. False: one has, and nothing was written.
    pub async fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let ttl = ttl.into();
        let at_once =
            |way: &Begin, key: &[u8], value: &[u8]| self.of.writing_by(way).create(key, value, ttl);
        let later = move |of: Container, key, value| of.create(key, value, ttl);
        self.store(key, value, at_once, later).await
    }

    /// Stores an item if a live one has the key. False: none has, and nothing was written.
    pub async fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let ttl = ttl.into();
        let at_once = |way: &Begin, key: &[u8], value: &[u8]| {
            self.of.writing_by(way).replace(key, value, ttl)
        };
        let later = move |of: Container, key, value| of.replace(key, value, ttl);
        self.store(key, value, at_once, later).await
    }

    /// Stores an item whatever is there, and tells the version of the live item that it has replaced.
    pub async fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let ttl = ttl.into();
        let at_once =
            |way: &Begin, key: &[u8], value: &[u8]| self.of.writing_by(way).upsert(key, value, ttl);
        let later = move |of: Container, key, value| of.upsert(key, value, ttl);
        self.store(key, value, at_once, later).await
    }

    /// Stores an item if the version of the live item of its key is accepted, and tells both versions; see
    /// [`Container::put_if`]. The closure may be called more than once, on the thread of the task and on one of the pool.
    pub async fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool + Send + 'static,
    ) -> Result<PutIf> {
        let ttl = ttl.into();
        let at_once = |way: &Begin, (key, value, accepts): &mut (_, _, _)| {
            let (key, value) = (AsRef::as_ref(key), AsRef::as_ref(value));
            self.of.writing_by(way).put_if(key, value, ttl, accepts)
        };
        let later = |(key, value, accepts)| {
            let (of, key, value) = (self.of.clone(), bytes(key), bytes(value));
            move || of.put_if(key, value, ttl, accepts)
        };
        self.shared
            .write((key, value, accepts), at_once, later)
            .await
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    pub async fn touch(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let at_once = |way: &Begin, key: &mut _| self.of.writing_by(way).touch(AsRef::as_ref(key));
        let later = |key| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.touch(key)
        };
        self.shared.write(key, at_once, later).await
    }

    /// Touches a live item, and returns it as it is from then on; see [`Container::get_and_touch`]. `None`: there is none.
    pub async fn get_and_touch(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.touch_if(key, |_| true).await
    }

    /// The same, of an item that is accepted.
    pub(super) async fn touch_if(
        &self,
        key: impl AsRef<[u8]>,
        accepts: impl FnMut(Option<&Item>) -> bool + Send + 'static,
    ) -> Result<Option<Item>> {
        let at_once = |way: &Begin, (key, accepts): &mut (_, _)| {
            let writing = self.of.writing_by(way);
            writing.get_and_touch(AsRef::as_ref(key), accepts)
        };
        let later = |(key, accepts)| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.writing().get_and_touch(&key, accepts)
        };
        self.shared.write((key, accepts), at_once, later).await
    }

    /// Touches a live item, and returns its new end; see [`Container::touch_until`]. `None`: there is none.
    pub async fn touch_until(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let at_once =
            |way: &Begin, key: &mut _| self.of.writing_by(way).touch_until(AsRef::as_ref(key));
        let later = |key| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.touch_until(key)
        };
        self.shared.write(key, at_once, later).await
    }

    /// Gives a live item this ttl; see [`Container::expire`]. False: there is none.
    pub async fn expire(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool> {
        let ttl = ttl.into();
        let at_once =
            |way: &Begin, key: &mut _| self.of.writing_by(way).expire(AsRef::as_ref(key), ttl);
        let later = |key| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.expire(key, ttl)
        };
        self.shared.write(key, at_once, later).await
    }

    /// Removes a live item and returns it, as one step: of several callers one gets it. `None`: there is none.
    pub async fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        let at_once = |way: &Begin, key: &mut _| self.of.writing_by(way).take(AsRef::as_ref(key));
        let later = |key| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.take(key)
        };
        self.shared.write(key, at_once, later).await
    }

    /// Deletes an item, blindly: it is no error when there is none.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let at_once = |way: &Begin, key: &mut _| self.of.writing_by(way).delete(AsRef::as_ref(key));
        let later = |key| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.delete(key)
        };
        self.shared.write(key, at_once, later).await
    }

    /// Reads an item and decides what becomes of it, as one step; see [`Container::update`]. The closure may be called more
    /// than once, on the thread of the task and on one of the pool.
    ///
    /// ```
    /// use ebbtide::{Ttl, Update};
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let counters = AsyncDatabase::open(folder.path()).await?.container("counters").await?;
    /// for by in [2, 3] {
    ///     let add = move |item: Option<&ebbtide::Item>| {
    ///         let before = item.map_or(0, |item| u64::from_be_bytes(item.value()[..].try_into().unwrap()));
    ///         Update::Put((before + by).to_be_bytes().to_vec(), Ttl::Inherit)
    ///     };
    ///     counters.update("hits", add).await?;
    /// }
    /// assert_eq!(counters.get("hits").await?.unwrap(), 5u64.to_be_bytes());
    /// # Ok(()) }
    /// ```
    pub async fn update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update + Send + 'static,
    ) -> Result<bool> {
        let updated = self.fetch_update(key, decide).await?;
        Ok(updated.written.is_some())
    }

    /// As [`AsyncContainer::update`], and tells the item that was there before and what was written.
    pub async fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update + Send + 'static,
    ) -> Result<Updated> {
        let at_once = |way: &Begin, (key, decide): &mut (_, _)| {
            let writing = self.of.writing_by(way);
            writing.fetch_update(AsRef::as_ref(key), decide)
        };
        let later = |(key, decide)| {
            let (of, key) = (self.of.clone(), bytes(key));
            move || of.fetch_update(key, decide)
        };
        self.shared.write((key, decide), at_once, later).await
    }

    /// Deletes every item whose key lies in the range, in one step; see [`Container::delete_range`].
    pub async fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        let at_once = |way: &Begin, range: &mut (Bound<Vec<u8>>, Bound<Vec<u8>>)| {
            let writing = self.of.writing_by(way);
            writing.delete_range((range.0.as_ref(), range.1.as_ref()))
        };
        let later = |range| {
            let of = self.of.clone();
            move || of.delete_range(range)
        };
        self.shared.write(bounds(range), at_once, later).await
    }

    /// Loads items whose keys ascend straight into tables, as one write; see [`Container::bulk_load`]. A thread of the pool
    /// asks for them one by one, so they may wait, for a channel or a file; two loads, flushes or merges run at a time, and
    /// others stand in the queue. A load whose future is dropped when it has begun goes on, until its items end.
    ///
    /// ```
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let lines = AsyncDatabase::open(folder.path()).await?.container("lines").await?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// let (sent, loaded) = tokio::join!(
    ///     async move { (0..1_000).try_for_each(|n| sender.send((format!("{n:04}"), "a line"))) },
    ///     lines.bulk_load(receiver), // until the sender is dropped
    /// );
    /// sent?;
    /// assert_eq!(lines.item("0999").await?.unwrap().version(), loaded?.version());
    /// # Ok(()) }
    /// ```
    pub async fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        items: impl IntoIterator<Item = (K, V)> + Send + 'static,
    ) -> Result<Written> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Upkeep, move || of.bulk_load(items))
            .await
    }

    /// Like [`AsyncContainer::bulk_load`], of items with a ttl each; see [`Container::bulk_load_with_ttl`].
    pub async fn bulk_load_with_ttl<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        items: impl IntoIterator<Item = Result<(K, V, Ttl)>> + Send + 'static,
    ) -> Result<Written> {
        let of = self.of.clone();
        self.shared
            .pooled(WorkQueue::Upkeep, move || of.bulk_load_with_ttl(items))
            .await
    }

    /// Deletes every item, in one step.
    pub async fn clear(&self) -> Result<()> {
        self.delete_range(..).await
    }
}

async_reading_methods!(AsyncContainer);
