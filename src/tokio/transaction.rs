//! Transactions, as tasks use them.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::api::arguments::KeyBounds;
use crate::api::container::Container;
use crate::api::transaction::Transaction;
use crate::api::writing::Update;
use crate::base::sync::Mutex;
use crate::base::{Error, Result, Ttl};
use crate::data::item::{Item, Value};
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::engine::options::Durability;
use crate::tokio::read::{bounds, bytes};
use crate::tokio::shared::{Shared, WorkQueue};

/// A [`Transaction`] for tasks, for those that try again themselves; [`AsyncDatabase::begin`](crate::tokio::AsyncDatabase::begin)
/// makes one. Its calls have the answers of the transaction's, each by a thread of the pool, one at a time. A whole closure
/// takes one trip to the pool: [`AsyncDatabase::transaction`](crate::tokio::AsyncDatabase::transaction).
///
/// When the future of a call is dropped that had begun, the call is done to its end; of a commit, all of it.
///
/// ```
/// use ebbtide::tokio::AsyncDatabase;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let db = AsyncDatabase::open(folder.path()).await?;
/// let seats = db.container("seats").await?;
/// seats.put("12A", "free").await?;
/// let tx = db.begin().await?;
/// if tx.get(&seats, "12A").await?.is_some_and(|seat| seat == "free") {
///     tx.put(&seats, "12A", "ada").await?;
/// }
/// let written = tx.commit().await?;
/// assert_eq!(seats.item("12A").await?.unwrap().version(), written.version());
/// # Ok(()) }
/// ```
#[must_use = "nothing is written before it is committed"]
pub struct AsyncTransaction {
    /// Until it is committed. Only threads of the pool take the lock.
    of: Arc<Mutex<Option<Transaction>>>,
    now: SystemTime,
    /// Last: it hands the database to a thread that may close it.
    shared: Arc<Shared>,
}

impl fmt::Debug for AsyncTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncTransaction").finish_non_exhaustive()
    }
}

impl AsyncTransaction {
    pub(super) fn new(of: Transaction, shared: &Arc<Shared>) -> AsyncTransaction {
        AsyncTransaction {
            now: of.now(),
            of: Arc::new(Mutex::new(Some(of))),
            shared: shared.clone(),
        }
    }

    async fn pooled<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let of = self.of.clone();
        let call = move || of.lock().as_ref().map_or(Err(Error::Closed), call);
        self.shared.pooled(WorkQueue::Read, call).await
    }

    async fn on<T: Send + 'static>(
        &self,
        container: impl AsRef<Container>,
        call: impl FnOnce(&Transaction, &Container) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let container = container.as_ref().clone();
        self.pooled(move |of| call(of, &container)).await
    }

    /// As [`Transaction::now`]; it takes no time.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.now
    }

    /// As [`Transaction::durability`].
    pub async fn durability(&self, durability: Durability) -> Result<()> {
        self.pooled(move |of| {
            of.durability(durability);
            Ok(())
        })
        .await
    }

    /// As [`Transaction::rollback`].
    pub async fn rollback(&self) -> Result<()> {
        self.pooled(|of| {
            of.rollback();
            Ok(())
        })
        .await
    }

    /// As [`Transaction::commit`].
    pub async fn commit(self) -> Result<Written> {
        let of = self.of.clone();
        let commit = move || {
            let committed = of.lock().take();
            committed.map_or(Err(Error::Closed), Transaction::commit)
        };
        self.shared.pooled(WorkQueue::Write, commit).await
    }

    /// As [`Transaction::get`].
    pub async fn get(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        let key = bytes(key);
        self.on(container, |of, c| of.get(c, key)).await
    }

    /// As [`Transaction::item`].
    pub async fn item(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        let key = bytes(key);
        self.on(container, |of, c| of.item(c, key)).await
    }

    /// As [`Transaction::contains`].
    pub async fn contains(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let key = bytes(key);
        self.on(container, |of, c| of.contains(c, key)).await
    }

    /// As [`Transaction::get_many`].
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        container: impl AsRef<Container>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let keys = Vec::from_iter(keys.into_iter().map(bytes));
        self.on(container, |of, c| of.get_many(c, keys)).await
    }

    /// The items that [`Transaction::range`] gives, up to `most` of them: only the range up to the last one counts as read.
    pub async fn range(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Vec<Item>> {
        let range = bounds(range);
        self.on(container, move |of, c| {
            of.range(c, range).take(most).collect()
        })
        .await
    }

    /// The keys of [`Transaction::keys`], up to `most` of them: only the range up to the last one counts as read.
    pub async fn keys(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Vec<Bytes>> {
        let range = bounds(range);
        self.on(container, move |of, c| {
            of.keys(c, range).take(most).collect()
        })
        .await
    }

    /// The items of [`Transaction::prefix`], up to `most` of them: only the range up to the last one counts as read.
    pub async fn prefix(
        &self,
        container: impl AsRef<Container>,
        prefix: impl AsRef<[u8]>,
        most: usize,
    ) -> Result<Vec<Item>> {
        let prefix = bytes(prefix);
        self.on(container, move |of, c| {
            of.prefix(c, prefix).take(most).collect()
        })
        .await
    }

    /// As [`Transaction::first`].
    pub async fn first(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.on(container, |of, c| of.first(c)).await
    }

    /// As [`Transaction::last`].
    pub async fn last(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.on(container, |of, c| of.last(c)).await
    }

    /// As [`Transaction::random`].
    pub async fn random(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.on(container, |of, c| of.random(c)).await
    }

    /// As [`Transaction::is_empty`].
    pub async fn is_empty(&self, container: impl AsRef<Container>) -> Result<bool> {
        self.on(container, |of, c| of.is_empty(c)).await
    }

    /// As [`Transaction::count`].
    pub async fn count(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> Result<u64> {
        let range = bounds(range);
        self.on(container, |of, c| of.count(c, range)).await
    }

    /// As [`Transaction::count_up_to`].
    pub async fn count_up_to(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
        most: u64,
    ) -> Result<u64> {
        let range = bounds(range);
        self.on(container, move |of, c| Ok(of.count_up_to(c, range, most)))
            .await
    }

    /// As [`Transaction::put`].
    pub async fn put(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_with_ttl(container, key, value, Ttl::Inherit).await
    }

    /// As [`Transaction::put_with_ttl`].
    pub async fn put_with_ttl(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let (key, value, ttl) = (bytes(key), bytes(value), ttl.into());
        self.on(container, move |of, c| of.put_with_ttl(c, key, value, ttl))
            .await
    }

    /// As [`Transaction::create`].
    pub async fn create(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value, ttl) = (bytes(key), bytes(value), ttl.into());
        self.on(container, move |of, c| of.create(c, key, value, ttl))
            .await
    }

    /// As [`Transaction::replace`].
    pub async fn replace(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value, ttl) = (bytes(key), bytes(value), ttl.into());
        self.on(container, move |of, c| of.replace(c, key, value, ttl))
            .await
    }

    /// As [`Transaction::upsert`].
    pub async fn upsert(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let (key, value, ttl) = (bytes(key), bytes(value), ttl.into());
        self.on(container, move |of, c| of.upsert(c, key, value, ttl))
            .await
    }

    /// As [`Transaction::put_if`]; the closure runs on a thread of the pool.
    pub async fn put_if(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool + Send + 'static,
    ) -> Result<PutIf> {
        let (key, value, ttl) = (bytes(key), bytes(value), ttl.into());
        self.on(container, move |of, c| {
            of.put_if(c, key, value, ttl, accepts)
        })
        .await
    }

    /// As [`Transaction::touch`].
    pub async fn touch(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool> {
        let key = bytes(key);
        self.on(container, |of, c| of.touch(c, key)).await
    }

    /// As [`Transaction::get_and_touch`].
    pub async fn get_and_touch(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        let key = bytes(key);
        self.on(container, |of, c| of.get_and_touch(c, key)).await
    }

    /// As [`Transaction::touch_until`].
    pub async fn touch_until(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<SystemTime>> {
        let key = bytes(key);
        self.on(container, |of, c| of.touch_until(c, key)).await
    }

    /// As [`Transaction::expire`].
    pub async fn expire(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, ttl) = (bytes(key), ttl.into());
        self.on(container, move |of, c| of.expire(c, key, ttl))
            .await
    }

    /// As [`Transaction::take`].
    pub async fn take(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        let key = bytes(key);
        self.on(container, |of, c| of.take(c, key)).await
    }

    /// As [`Transaction::update`]; the closure runs on a thread of the pool.
    pub async fn update(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update + Send + 'static,
    ) -> Result<bool> {
        let updated = self.fetch_update(container, key, decide).await?;
        Ok(updated.written.is_some())
    }

    /// As [`Transaction::fetch_update`]; the closure runs on a thread of the pool.
    pub async fn fetch_update(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update + Send + 'static,
    ) -> Result<Updated> {
        let key = bytes(key);
        self.on(container, |of, c| of.fetch_update(c, key, decide))
            .await
    }

    /// As [`Transaction::delete`].
    pub async fn delete(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        let key = bytes(key);
        self.on(container, |of, c| of.delete(c, key)).await
    }

    /// As [`Transaction::delete_range`].
    pub async fn delete_range(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> Result<()> {
        let range = bounds(range);
        self.on(container, |of, c| of.delete_range(c, range)).await
    }

    /// As [`Transaction::expire_all`].
    pub async fn expire_all(&self, container: impl AsRef<Container>) -> Result<()> {
        self.on(container, |of, c| of.expire_all(c)).await
    }
}
