//! Transactions, as users meet them.
//!
//! ```text
//! get, range ──> own writes (data/own_writes.rs) ── not written ──> the snapshot, and noted (engine/write/read_set.rs)
//! put, delete ─> own writes
//! commit ──────> own writes as one batch, if what was noted is so still
//! ```
//!
//! Invariants:
//!
//! 1. Each call answers as if all calls were made at once, at the moment of the commit.
//! 2. Nothing is seen by others before the commit, and nothing at all if there is none.
//! 3. One call at a time: each has the lock of `state` while it lasts. A [`TransactionIter`] takes it for each step, so that
//!    other calls may come in between. One that is leaked counts as one that has read all of its range. A closure of an
//!    update runs without it, too: it decides what happens to the key if that is as it was shown (api/within.rs).

use std::fmt;
use std::time::SystemTime;

use crate::api::arguments::KeyBounds;
use crate::api::container::Container;
use crate::api::iter::Keys;
use crate::api::within::Within;
use crate::api::writing::{Update, Writes};
use crate::base::sync::Mutex;
use crate::base::{Result, Ttl};
use crate::data::item::{Item, Value};
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::engine::options::Durability;
use crate::engine::{Handle, TransactionIter, TransactionState};

/// Reads and writes that take effect together, at one moment, or not at all: over any containers of one database, and
/// serializable: as if each transaction ran alone. [`Database::transaction`](crate::Database::transaction) makes one,
/// runs it and tries again; [`Database::begin`](crate::Database::begin) makes one for callers that try again
/// themselves.
///
/// It sees the writes from before it began, and its own writes on top of them; it does not see what others write
/// meanwhile. All is judged by one time, [`Transaction::now`]. Where the caller has errors of its own,
/// [`Database::try_transaction`](crate::Database::try_transaction) hands them through.
///
/// **Conflicts.** Nothing is locked. When it commits, all that was read has to be as it was: each key, those that had
/// no item too, and each range as far as it was read. Where something was written, deleted, came in between, or has
/// *expired* since the transaction began, the answer is [`Error::Conflict`](crate::Error::Conflict), with the container and the key, and
/// nothing is written. Each write of others counts, whatever it changes, also a delete of an absent key. The same goes
/// for an item that has ended by the time it is read, for a read that finds nothing where a flush or a merge may have
/// dropped such an item, and for a container whose default ttl was changed after the transaction began. So a read can
/// be the one that answers with the conflict. After its first conflict a transaction answers nothing else. Keys that
/// are written and were not read are no conflict: the later write counts.
///
/// **Reading alone.** A transaction that writes nothing is of the moment at which it began, and its commit is no conflict,
/// however much was written meanwhile. Its reads may be.
///
/// **Cost.** In memory until the end: its writes, each key that it read, of each range the two ends, and older versions of
/// what others overwrite meanwhile. A commit asks the memtables for each key that was read and walks them through each
/// range, while other writers wait; so read short ranges where others write much. [`Container::count`] and the like, outside
/// of it, see nothing of the transaction, and are not validated.
///
/// **Limits.** Its writes together are at most 1 GiB. It does not change defaults, and does not make or drop containers.
/// Containers keep the database open, as the transaction does; one that is dropped meanwhile is an error.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Database, Ttl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let (seats, holds) = (db.container("seats")?, db.container("holds")?);
/// seats.put("12A", "free")?;
///
/// let tx = db.begin();
/// assert_eq!(tx.get(&seats, "12A")?.unwrap(), "free");
/// tx.put(&seats, "12A", "held")?;
/// tx.put_with_ttl(&holds, "12A", "ada", Duration::from_secs(600))?;
/// assert_eq!(tx.get(&seats, "12A")?.unwrap(), "held"); // its own write,
/// assert_eq!(seats.get("12A")?.unwrap(), "free"); // which nobody else sees
///
/// seats.put("12A", "broken")?; // somebody else is faster
/// let conflict = tx.commit().unwrap_err();
/// assert!(conflict.is_conflict());
/// assert!(holds.is_empty()?); // nothing was written
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is written before it is committed"]
pub struct Transaction {
    state: Mutex<TransactionState>,
    engine: Handle,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl Transaction {
    pub(crate) fn begin(engine: &Handle) -> Transaction {
        Transaction {
            state: Mutex::new(TransactionState::new(engine)),
            engine: engine.clone(),
        }
    }

    /// The same, in which a key that was written and deleted meanwhile counts as changed, whatever jobs have left out.
    pub(crate) fn begin_strict(engine: &Handle) -> Transaction {
        let transaction = Transaction::begin(engine);
        transaction.state.lock().count_every_write();
        transaction
    }

    /// Whether it has met a conflict, and cannot be committed.
    #[inline]
    pub(in crate::api) fn is_in_conflict(&self) -> bool {
        self.state.lock().is_in_conflict()
    }

    /// A container in this transaction.
    pub(crate) fn within<'c>(&self, container: &'c Container) -> Within<'_, 'c> {
        Within {
            engine: &self.engine,
            transaction: &self.state,
            container,
        }
    }

    /// The value of a live item.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) when the transaction cannot be committed any more, as with all that follow.
    pub fn get(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        self.within(container.as_ref()).get(key.as_ref())
    }

    /// A live item with all that is known of it. One that the transaction has written counts as written at its
    /// [`Transaction::now`], and its version is not known yet: it is above all others.
    pub fn item(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        self.within(container.as_ref()).item(key.as_ref())
    }

    /// Whether a live item has the key.
    pub fn contains(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<bool> {
        self.within(container.as_ref()).contains(key.as_ref())
    }

    /// All live items, in the order of keys, from both ends. The transaction's own writes are among them, each as it is
    /// when it is reached: it may go on writing meanwhile.
    pub fn iter(&self, container: impl AsRef<Container>) -> TransactionIter<'_> {
        self.within(container.as_ref()).iter()
    }

    /// As [`Transaction::iter`], for the keys in a range. Only the part that was reached counts as read: of an iterator
    /// that is left after ten items, the range up to the tenth.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let queue = db.container("queue")?;
    /// ["job-1", "job-2", "job-3"].iter().try_for_each(|job| queue.put(job, ""))?;
    ///
    /// let take_first = db.begin();
    /// let first = take_first.range(&queue, "job-"..).next().unwrap()?;
    /// take_first.delete(&queue, first.key())?;
    /// queue.put("job-4", "")?; // beyond what was read
    /// take_first.commit()?;
    ///
    /// let count = db.begin();
    /// assert_eq!(count.range(&queue, ..).count(), 3);
    /// count.put(&db.container("counts")?, "jobs", "3")?;
    /// queue.put("job-5", "")?; // a phantom
    /// assert!(count.commit().unwrap_err().is_conflict());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> TransactionIter<'_> {
        self.within(container.as_ref()).range(range)
    }

    /// As [`Transaction::iter`], for the keys that start with these bytes.
    pub fn prefix(
        &self,
        container: impl AsRef<Container>,
        prefix: impl AsRef<[u8]>,
    ) -> TransactionIter<'_> {
        self.within(container.as_ref()).prefix(prefix)
    }

    /// The keys of a range, as [`Transaction::range`] reads its items.
    pub fn keys(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> Keys<TransactionIter<'_>> {
        self.within(container.as_ref()).keys(range)
    }

    /// The values of many keys, in the order given; `None` where there is no live item.
    ///
    /// # Errors
    /// The error of the first key that cannot be read.
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        container: impl AsRef<Container>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        self.within(container.as_ref()).get_many(keys)
    }

    /// The live item with the lowest key. Only the range up to it counts as read.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (queue, done) = (db.container("queue")?, db.container("done")?);
    /// ["job-1", "job-2"].iter().try_for_each(|job| queue.put(job, "paint"))?;
    /// let next = || {
    ///     db.transaction(|tx| {
    ///         let Some(job) = tx.first(&queue)? else { return Ok(None) };
    ///         tx.delete(&queue, job.key())?;
    ///         tx.put(&done, job.key(), job.value())?;
    ///         Ok(Some(job))
    ///     })
    /// };
    /// assert_eq!(next()?.unwrap().key(), b"job-1"); // from however many threads: each job once
    /// assert_eq!(next()?.unwrap().key(), b"job-2");
    /// assert!(next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn first(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.within(container.as_ref()).first()
    }

    /// The live item with the highest key; see [`Transaction::first`].
    pub fn last(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.within(container.as_ref()).last()
    }

    /// A live item by chance, as [`Container::random`] picks one. In a container that the transaction has written to, or
    /// where few of the stored items live, all are read for it, and count as read; else the one alone.
    pub fn random(&self, container: impl AsRef<Container>) -> Result<Option<Item>> {
        self.within(container.as_ref()).random()
    }

    /// Whether there is no live item.
    pub fn is_empty(&self, container: impl AsRef<Container>) -> Result<bool> {
        self.within(container.as_ref()).is_empty()
    }

    /// The exact number of live items in a range. Reads all of them, and the whole range counts as read.
    pub fn count(&self, container: impl AsRef<Container>, range: impl KeyBounds) -> Result<u64> {
        self.within(container.as_ref()).count(range)
    }

    /// The number of live items in a range, if there are fewer than `most`, else `most`; it reads no more of them. Items that
    /// cannot be read are not counted: 0 where the transaction has met a conflict.
    #[must_use]
    pub fn count_up_to(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
        most: u64,
    ) -> u64 {
        self.within(container.as_ref()).count_up_to(range, most)
    }

    /// Stores an item that inherits the container's default.
    pub fn put(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own. The countdown starts with the commit, unless that of the item which is there
    /// is to go on ([`Ttl::Keep`]), for which it is read.
    pub fn put_with_ttl(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let within = self.within(container.as_ref());
        within.put(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if no live one has the key. False: one has, and nothing was written.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (users, by_mail) = (db.container("users")?, db.container("users by mail")?);
    /// let sign_up = |id: &str, mail: &str| {
    ///     db.transaction(|tx| {
    ///         let is_free = tx.create(&by_mail, mail, id, Ttl::Inherit)?;
    ///         if is_free {
    ///             tx.put(&users, id, mail)?;
    ///         }
    ///         Ok(is_free)
    ///     })
    /// };
    /// assert!(sign_up("1", "ada@example.org")?);
    /// assert!(!sign_up("2", "ada@example.org")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let within = self.within(container.as_ref());
        within.create(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if a live one has the key. False: none has, and nothing was written.
    pub fn replace(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let within = self.within(container.as_ref());
        within.replace(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item whatever is there, and tells the version of the live item that it has replaced. A version that this
    /// transaction has written is above all others until the commit.
    pub fn upsert(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let within = self.within(container.as_ref());
        within.upsert(key.as_ref(), value.as_ref(), ttl.into())
    }

    /// Stores an item if the version of the live item of its key is accepted, and tells both versions; see
    /// [`Container::put_if`]. A version that this transaction has written is above all others until the commit.
    pub fn put_if(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool,
    ) -> Result<PutIf> {
        let within = self.within(container.as_ref());
        within.put_if(key.as_ref(), value.as_ref(), ttl.into(), accepts)
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    pub fn touch(&self, container: impl AsRef<Container>, key: impl AsRef<[u8]>) -> Result<bool> {
        self.within(container.as_ref()).touch(key.as_ref())
    }

    /// Touches a live item, and returns it as it is from then on; see [`Container::get_and_touch`]. `None`: there is none.
    pub fn get_and_touch(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        let within = self.within(container.as_ref());
        within.get_and_touch(key.as_ref(), |_| true)
    }

    /// Touches a live item, and returns its new end; see [`Container::touch_until`]. `None`: there is none.
    pub fn touch_until(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<SystemTime>> {
        self.within(container.as_ref()).touch_until(key.as_ref())
    }

    /// Gives a live item this ttl, and restarts the countdown; see [`Container::expire`]. False: there is none.
    ///
    /// # Errors
    /// As of [`Container::expire`].
    pub fn expire(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        self.within(container.as_ref())
            .expire(key.as_ref(), ttl.into())
    }

    /// Removes a live item and returns it. `None`: there is none.
    pub fn take(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Item>> {
        self.within(container.as_ref()).take(key.as_ref())
    }

    /// Reads an item and decides what to do with it. True: the item was changed. The closure may read in the transaction, and
    /// write other keys; a write of the key itself is an error, of that call and of this one.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl, Update};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (stock, orders) = (db.container("stock")?, db.container("orders")?);
    /// stock.put("tea", [2])?;
    /// let order = |who: &str| {
    ///     db.transaction(|tx| {
    ///         let is_there = tx.update(&stock, "tea", |left| match left.map(|left| left.value()[0]) {
    ///             Some(left @ 1..) => Update::Put(vec![left - 1], Ttl::Keep),
    ///             _ => Update::Keep,
    ///         })?;
    ///         if is_there {
    ///             tx.put(&orders, who, "tea")?;
    ///         }
    ///         Ok(is_there)
    ///     })
    /// };
    /// assert_eq!((order("ada")?, order("bob")?, order("eve")?), (true, true, false));
    /// assert_eq!(orders.count(..)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<bool> {
        let written = self
            .within(container.as_ref())
            .update(key.as_ref(), decide)?;
        Ok(written.is_some())
    }

    /// Like [`Transaction::update`]; returns also the item that was there before, and what was written: its time is
    /// [`Transaction::now`] and its version above all others, until the commit gives it those that it will have.
    pub fn fetch_update(
        &self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<Updated> {
        self.within(container.as_ref())
            .fetch_update(key.as_ref(), decide)
    }

    /// Deletes an item, blindly: it is no error when there is none, and nothing is read.
    pub fn delete(&self, container: impl AsRef<Container>, key: impl AsRef<[u8]>) -> Result<()> {
        self.within(container.as_ref()).delete(key.as_ref())
    }

    /// Deletes every item whose key lies in the range, also those that others write there before the commit; see
    /// [`Container::delete_range`].
    pub fn delete_range(
        &self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> Result<()> {
        self.within(container.as_ref()).delete_range(range)
    }

    /// Expires every item, whatever its ttl, also those that others write before the commit, but not what the transaction
    /// writes after this; see [`Container::expire_all`]. The commit is durable then, and fails as that does.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let prices = db.container("prices")?;
    /// ["gold", "silver"].iter().try_for_each(|metal| prices.put(metal, "of yesterday"))?;
    /// db.transaction(|tx| {
    ///     tx.expire_all(&prices)?;
    ///     assert!(tx.is_empty(&prices)?);
    ///     tx.put(&prices, "gold", "of today")
    /// })?; // nobody sees half of it
    /// assert_eq!(prices.count(..)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expire_all(&self, container: impl AsRef<Container>) -> Result<()> {
        self.within(container.as_ref()).expire_all()
    }

    /// The time by which the transaction judges its reads: that of its beginning, to the millisecond. Its writes have
    /// the time of its commit.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.state.lock().now().to_system_time()
    }

    /// For this transaction alone what [`Options::durability`](crate::Options::durability) says for all, as
    /// [`Batch::durability`](crate::Batch::durability) does for a batch.
    pub fn durability(&self, durability: Durability) {
        self.state.lock().set_durability(durability);
    }

    /// Forgets all that was written in it so far: later reads do not see it, and the commit does not write it. It goes on,
    /// with what it has read, its [`Transaction::now`] and its durability. So a closure that answers after this commits
    /// nothing; to end a transaction without a commit, drop it.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let seats = db.container("seats")?;
    /// seats.put("2", "ada")?;
    /// let booked = db.transaction(|tx| {
    ///     let both = ["1", "2"].iter().map(|seat| tx.create(&seats, seat, "bob", Ttl::Inherit));
    ///     let is_free = both.collect::<ebbtide::Result<Vec<bool>>>()? == [true, true];
    ///     if !is_free {
    ///         tx.rollback(); // neither of them
    ///     }
    ///     Ok(is_free)
    /// })?;
    /// assert!(!booked && seats.get("1")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rollback(&self) {
        self.state.lock().rollback();
    }

    /// Writes all of it, at one moment, if all that was read is as it was; or nothing. To drop a transaction instead is to
    /// roll it back.
    ///
    /// Of a transaction that has written nothing it tells the version of the last write that it saw, and its time. It is of
    /// one moment only if this succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) with a container and a key that is not as it was; otherwise the errors of a batch. After
    /// each nothing was written.
    pub fn commit(self) -> Result<Written> {
        self.state.into_inner().commit(&self.engine)
    }
}
