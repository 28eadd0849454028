//! The database and its snapshots, as tasks use them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::api::arguments::{KeyBounds, prefix_range};
use crate::api::batch::Batch;
use crate::api::changes::ChangePosition;
use crate::api::database::Database;
use crate::api::snapshot::{Snapshot, View};
use crate::api::transaction::Transaction;
use crate::api::writing::WriteMode;
use crate::base::{Error, Now, Result};
use crate::data::item::{Item, Value};
use crate::data::version::Version;
use crate::data::write::Written;
use crate::engine::options::{ContainerOptions, Options};
use crate::engine::{Engine, VerifyReport};
use crate::tokio::container::AsyncContainer;
use crate::tokio::pool::run_apart;
use crate::tokio::read::{async_reading_methods, bounds, bytes, few_at_once};
use crate::tokio::shared::{Shared, THREADS, WorkQueue};
use crate::tokio::stream::{ItemStream, KeyStream};
use crate::tokio::transaction::AsyncTransaction;
use crate::tokio::turns::{AsyncChangePages, AsyncChanges};
use crate::tokio::write::Begin;
use crate::values::disk_usage::DiskUsage;
use crate::values::stats::Stats;

/// A [`Database`] for tasks. Cheap to clone. It and all that comes from it keep the database open; when the last of these
/// is dropped, a thread closes it, for which nobody waits: an open that comes at once may meet
/// [`Error::Locked`](crate::Error::Locked). [`AsyncDatabase::close`] waits.
///
/// When a future is dropped, the same holds as for [`AsyncContainer`]: a call that has begun is done to its end, a
/// batch whole. One that has not begun never begins.
///
/// ```
/// use ebbtide::Batch;
/// use ebbtide::tokio::AsyncDatabase;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let db = AsyncDatabase::open(folder.path()).await?;
/// let orders = db.container("orders").await?;
/// let mut batch = Batch::new();
/// batch.put(&orders, "o-17", "42 apples").put(&orders, "o-18", "a pear");
/// db.write(batch).await?; // survives a killed process
/// db.sync().await?; // survives a power cut; one sync serves all tasks that wait
/// db.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AsyncDatabase {
    shared: Arc<Shared>,
}

impl fmt::Debug for AsyncDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncDatabase")
            .field(self.shared.db())
            .finish()
    }
}

/// Counts of the calls of tasks, by where they were answered, since their handles were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AsyncStats {
    /// Calls that were answered on the thread of their task; those that awaited a sync are among them.
    pub inline: u64,
    /// Calls, and chunks of streams, that went to a thread of a pool.
    pub pooled: u64,
    /// Threads that the pools have: none before the first call that may wait.
    pub threads: usize,
}

impl From<Database> for AsyncDatabase {
    fn from(db: Database) -> AsyncDatabase {
        AsyncDatabase::with_threads(db, THREADS)
    }
}

impl AsyncDatabase {
    /// As [`Database::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<AsyncDatabase> {
        AsyncDatabase::open_with(&Options::new(), path).await
    }

    /// As [`Options::open`].
    pub async fn open_with(options: &Options, path: impl AsRef<Path>) -> Result<AsyncDatabase> {
        let (options, path) = (options.clone(), path.as_ref().to_owned());
        let db = run_apart(move || options.open(path))?.await?;
        Ok(db.into())
    }

    /// Wraps an open database, with pools of up to so many threads for reads, as many for writes, and two for work on
    /// the whole database; 1 to 1024, and a number outside counts as the nearer of these. [`From`] takes 4. More
    /// threads read more of a device at a time; how many tasks wait for them makes no difference.
    #[must_use]
    pub fn with_threads(db: Database, threads: usize) -> AsyncDatabase {
        let threads = threads.clamp(1, 1024);
        AsyncDatabase {
            shared: Arc::new(Shared::new(db, threads)),
        }
    }

    /// The database itself, whose calls may wait: for threads that may.
    #[must_use]
    pub fn as_sync(&self) -> &Database {
        self.shared.db()
    }

    /// As [`Database::path`].
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.shared.db().path()
    }

    async fn pooled<T: Send + 'static>(
        &self,
        queue: WorkQueue,
        work: impl FnOnce(Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let db = self.shared.db().clone();
        self.shared.pooled(queue, move || work(db)).await
    }

    /// As [`Database::container`].
    pub async fn container(&self, name: impl AsRef<str>) -> Result<AsyncContainer> {
        self.container_with(name, ContainerOptions::new()).await
    }

    /// As [`Database::container_with`].
    pub async fn container_with(
        &self,
        name: impl AsRef<str>,
        options: ContainerOptions,
    ) -> Result<AsyncContainer> {
        let name = name.as_ref().to_owned();
        let work = move |db: Database| db.container_with(name, options);
        let container = self.pooled(WorkQueue::Write, work).await?;
        Ok(AsyncContainer::new(container, &self.shared))
    }

    /// As [`Database::containers`].
    pub async fn containers(&self) -> Result<Vec<String>> {
        self.pooled(WorkQueue::Read, |db| Ok(db.containers())).await
    }

    /// As [`Database::drop_container`].
    pub async fn drop_container(&self, name: impl AsRef<str>) -> Result<bool> {
        let name = name.as_ref().to_owned();
        self.pooled(WorkQueue::Write, |db| db.drop_container(name))
            .await
    }

    /// As [`Database::write`]. A batch is begun inline, unless it changes settings or a condition needs a file.
    pub async fn write(&self, batch: Batch) -> Result<()> {
        self.commit(batch).await.map(drop)
    }

    /// As [`Database::commit`].
    pub async fn commit(&self, batch: Batch) -> Result<Written> {
        let at_once = |way: &Begin, batch: &mut Batch| {
            let engine = self.shared.db().engine();
            let (begun, outcomes) = engine.write::<Now>(batch.checked()?)?;
            Ok(way.note(begun).with_outcomes(outcomes))
        };
        let later = |batch| {
            let db = self.shared.db().clone();
            move || db.commit(batch)
        };
        self.shared.write(batch, at_once, later).await
    }

    /// As [`Database::snapshot`]; it takes no time.
    pub fn snapshot(&self) -> AsyncSnapshot {
        AsyncSnapshot {
            snapshot: self.shared.db().snapshot(),
            shared: self.shared.clone(),
        }
    }

    /// As [`Database::changes`]; it takes no time.
    ///
    /// ```
    /// use ebbtide::{Change, Version};
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let db = AsyncDatabase::open(folder.path()).await?;
    /// db.container("users").await?.put("ada", "1815").await?;
    /// let mut changes = db.changes(Version::start());
    /// let mut cache = vec![];
    /// while let Some(change) = changes.next().await {
    ///     if let Change::Put { item, .. } = change? {
    ///         cache.push(item); // and so on, as with Database::changes
    ///     }
    /// }
    /// assert_eq!(cache[0].key(), b"ada");
    /// # Ok(()) }
    /// ```
    pub fn changes(&self, since: Version) -> AsyncChanges {
        AsyncChanges::new(self.shared.db().changes(since), &self.shared)
    }

    /// As [`Database::now`]; it takes no time.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.shared.db().now()
    }

    /// As [`Database::begin`].
    pub async fn begin(&self) -> Result<AsyncTransaction> {
        let begun = self.pooled(WorkQueue::Read, |db| Ok(db.begin())).await?;
        Ok(AsyncTransaction::new(begun, &self.shared))
    }

    /// As [`Database::transaction`]; a thread of the pool runs the closure, as often as it takes, and commits. So it may wait
    /// for what it reads. It takes handles of either kind.
    pub async fn transaction<T: Send + 'static>(
        &self,
        body: impl FnMut(&Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = move |db: Database| db.transaction(body);
        self.pooled(WorkQueue::Write, run).await
    }

    /// As [`Database::try_transaction`]; see [`AsyncDatabase::transaction`].
    ///
    /// ```
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Taken,
    ///     Failed(ebbtide::Error),
    /// }
    ///
    /// impl From<ebbtide::Error> for Refused {
    ///     fn from(error: ebbtide::Error) -> Refused {
    ///         Refused::Failed(error)
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let db = AsyncDatabase::open(folder.path()).await?;
    /// let (seats, guests) = (db.container("seats").await?, db.container("guests").await?);
    /// let mut booked = vec![];
    /// for name in ["ada", "bob"] {
    ///     let (seats, guests) = (seats.clone(), guests.clone());
    ///     let book = move |tx: &ebbtide::Transaction| -> Result<(), Refused> {
    ///         tx.put(&guests, name, "12A")?;
    ///         let is_free = tx.create(&seats, "12A", name, ebbtide::Ttl::Inherit)?;
    ///         is_free.then_some(()).ok_or(Refused::Taken)
    ///     };
    ///     booked.push(db.try_transaction(book).await);
    /// }
    /// assert!(booked[0].is_ok() && matches!(booked[1], Err(Refused::Taken)));
    /// assert!(!guests.contains("bob").await?);
    /// # Ok(()) }
    /// ```
    pub async fn try_transaction<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        body: impl FnMut(&Transaction) -> Result<T, E> + Send + 'static,
    ) -> Result<(T, Written), E> {
        let run = move |db: Database| Ok(db.try_transaction(body));
        self.pooled(WorkQueue::Write, run).await?
    }

    /// As [`Database::changes_by_version`]; it takes no time.
    pub fn changes_by_version(
        &self,
        since: impl Into<ChangePosition>,
        limit: usize,
    ) -> AsyncChangePages {
        let pages = self.shared.db().changes_by_version(since, limit);
        AsyncChangePages::new(pages, &self.shared)
    }

    /// As [`Database::sync`]: the thread that syncs does it for all tasks that wait.
    pub async fn sync(&self) -> Result<()> {
        self.shared.synced().await
    }

    /// As [`Database::flush`].
    pub async fn flush(&self) -> Result<()> {
        self.pooled(WorkQueue::Upkeep, |db| db.flush()).await
    }

    /// As [`Database::compact`].
    pub async fn compact(&self) -> Result<()> {
        self.pooled(WorkQueue::Upkeep, |db| db.compact()).await
    }

    /// As [`Database::checkpoint`].
    pub async fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref().to_owned();
        self.pooled(WorkQueue::Upkeep, |db| db.checkpoint(path))
            .await
    }

    /// As [`Database::verify`].
    pub async fn verify(&self) -> Result<VerifyReport> {
        self.pooled(WorkQueue::Upkeep, |db| db.verify()).await
    }

    /// As [`Database::stats`].
    pub async fn stats(&self) -> Result<Stats> {
        self.pooled(WorkQueue::Read, |db| Ok(db.stats())).await
    }

    /// As [`Database::disk`].
    pub async fn disk(&self) -> Result<DiskUsage> {
        self.pooled(WorkQueue::Upkeep, |db| db.disk()).await
    }

    /// How many calls were answered inline, and how many by the pools.
    ///
    /// ```
    /// use ebbtide::tokio::AsyncDatabase;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// let db = AsyncDatabase::open(folder.path()).await?;
    /// let items = db.container("items").await?;
    /// let before = db.async_stats();
    /// items.put("k", "v").await?;
    /// items.get("k").await?;
    /// let after = db.async_stats();
    /// assert_eq!(after.inline + after.pooled, before.inline + before.pooled + 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn async_stats(&self) -> AsyncStats {
        let (inline, pooled, threads) = self.shared.counts();
        AsyncStats {
            inline,
            pooled,
            threads,
        }
    }

    /// As [`Database::close`], for every handle, this kind and the other; streams answer
    /// [`Error::Closed`](crate::Error::Closed) and end. It waits behind no other call.
    pub async fn close(&self) -> Result<()> {
        // Closes the engine itself: as a call of the database, a thread of this crate would not wait for it.
        self.pooled(WorkQueue::Apart, |db| Engine::close(db.engine()))
            .await
    }
}

/// A [`Snapshot`] for tasks.
#[derive(Clone)]
#[must_use = "what was written is kept for it as long as it is held"]
pub struct AsyncSnapshot {
    snapshot: Snapshot,
    shared: Arc<Shared>,
}

impl fmt::Debug for AsyncSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSnapshot").finish_non_exhaustive()
    }
}

impl AsyncSnapshot {
    /// As [`Snapshot::container`].
    pub async fn container(&self, name: impl AsRef<str>) -> Result<AsyncView> {
        let (snapshot, name) = (self.snapshot.clone(), name.as_ref().to_owned());
        let view = move || snapshot.container(name);
        Ok(AsyncView {
            of: self.shared.pooled(WorkQueue::Read, view).await?,
            shared: self.shared.clone(),
        })
    }
}

/// A container through an [`AsyncSnapshot`].
#[derive(Clone)]
#[must_use = "items are read when they are asked for"]
pub struct AsyncView {
    of: View,
    shared: Arc<Shared>,
}

impl fmt::Debug for AsyncView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncView").field(&self.of).finish()
    }
}

impl AsyncView {
    /// The name of the container.
    #[must_use]
    pub fn name(&self) -> &str {
        self.of.name()
    }
}

async_reading_methods!(AsyncView);
