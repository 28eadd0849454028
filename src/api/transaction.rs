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
//!    other calls may come in between. One that is leaked counts as one that has read all of its range.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::api::arguments::{
    KeyBounds, all_keys, check_item, check_key, checked_range, key_range, prefix_range,
};
use crate::api::container::Container;
use crate::api::writing::write_ttl;
use crate::base::sync::Mutex;
use crate::base::{Error, Result, Ttl};
use crate::data::batch::KeyRange;
use crate::data::item::{Item, Value};
use crate::data::own_writes::OwnPut;
use crate::data::write::Written;
use crate::engine::options::Durability;
use crate::engine::{Handle, TransactionIter, TransactionState};
use crate::env::sleep;

/// How often a transaction is tried. With the rests in between, the last fails after some 300 ms.
const TRIES: u32 = 32;
/// The rest after the first try, doubled with each ...
const FIRST_REST: Duration = Duration::from_micros(10);
/// ... up to this.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// Reads and writes that take effect together, at one moment, or not at all: over any containers of one database, and
/// serializable: as if each transaction ran alone. [`Database::transaction`](crate::Database::transaction) makes one,
/// runs it and tries again; [`Database::begin`](crate::Database::begin) makes one for callers that try again
/// themselves.
///
/// It sees the writes from before it began, and its own writes on top of them; it does not see what others write
/// meanwhile. All is judged by one time, [`Transaction::now`].
///
/// **Conflicts.** Nothing is locked. When it commits, all that was read has to be as it was: each key, those that had
/// no item too, and each range as far as it was read. Where something was written, deleted, came in between, or has
/// *expired* since the transaction began, the answer is [`Error::Conflict`], with the container and the key, and
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

    /// Runs `body` until it commits; see [`Database::transaction`](crate::Database::transaction).
    pub(crate) fn run<T>(
        engine: &Handle,
        mut body: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let (random, mut tries) = (RandomState::new(), 1);
        loop {
            let transaction = Transaction::begin(engine);
            let answer = body(&transaction);
            let is_in_conflict = transaction.state.lock().is_in_conflict();
            let failed = match answer {
                Err(error) if !is_in_conflict => return Err(error),
                Err(error) => error,
                Ok(answer) => match transaction.commit() {
                    Ok(_) => return Ok(answer),
                    Err(error) if !error.is_conflict() => return Err(error),
                    Err(conflict) => conflict,
                },
            };
            if tries == TRIES {
                return Err(failed);
            }
            let longest = LONGEST_REST.min(FIRST_REST.saturating_mul(1 << tries.min(20)));
            let share = (random.hash_one(tries) % 512 + 512) as u32;
            sleep(longest * share / 1024);
            tries += 1;
        }
    }

    fn check(&self, container: &Container) -> Result<()> {
        match Arc::ptr_eq(&self.engine, container.engine()) {
            true => Ok(()),
            false => Err(Error::invalid(
                "transaction",
                "over two databases",
                "containers of one database",
            )),
        }
    }

    /// The value of a live item.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the transaction cannot be committed any more, as with all that follow.
    pub fn get(&self, container: &Container, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.item(container, key)?.map(Item::into_value))
    }

    /// A live item with all that is known of it. One that the transaction has written counts as written at its
    /// [`Transaction::now`], and its version is not known yet: it is above all others.
    pub fn item(&self, container: &Container, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        let key = key.as_ref();
        check_key(key)?;
        self.check(container)?;
        let mut state = self.state.lock();
        Ok(state.item(&self.engine, container.state(), key)?.0)
    }

    /// Whether a live item has the key.
    pub fn contains(&self, container: &Container, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.item(container, key)?.is_some())
    }

    /// All live items, in the order of keys, from both ends. The transaction's own writes are among them, each as it is
    /// when it is reached: it may go on writing meanwhile.
    pub fn iter(&self, container: &Container) -> TransactionIter<'_> {
        self.scan(container, all_keys())
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
    pub fn range(&self, container: &Container, range: impl KeyBounds) -> TransactionIter<'_> {
        self.scan(container, key_range(range))
    }

    /// As [`Transaction::iter`], for the keys that start with these bytes.
    pub fn prefix(&self, container: &Container, prefix: impl AsRef<[u8]>) -> TransactionIter<'_> {
        self.scan(container, prefix_range(prefix.as_ref()))
    }

    fn scan(&self, container: &Container, range: KeyRange) -> TransactionIter<'_> {
        let state = self.check(container).map(|()| container.state().clone());
        TransactionIter::new(&self.engine, &self.state, state, range)
    }

    /// Stores an item that inherits the container's default.
    pub fn put(
        &self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own. The countdown starts with the commit, unless that of the item which is there
    /// is to go on ([`Ttl::Keep`]), for which it is read.
    pub fn put_with_ttl(
        &self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        self.put_if(container, key.as_ref(), value.as_ref(), ttl.into(), None)
            .map(drop)
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
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value, ttl) = (key.as_ref(), value.as_ref(), ttl.into());
        self.put_if(container, key, value, ttl, Some(false))
    }

    /// Stores an item if a live one has the key. False: none has, and nothing was written.
    pub fn replace(
        &self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value, ttl) = (key.as_ref(), value.as_ref(), ttl.into());
        self.put_if(container, key, value, ttl, Some(true))
    }

    fn put_if(
        &self,
        container: &Container,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        is_there: Option<bool>,
    ) -> Result<bool> {
        check_item(key, value)?;
        self.check(container)?;
        let ttl = write_ttl(ttl)?;
        let value = Bytes::copy_from_slice(value);
        let (put, state) = (OwnPut { ttl, value }, container.state());
        let mut own = self.state.lock();
        own.put(&self.engine, state, key, put, is_there)
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    pub fn touch(&self, container: &Container, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key)?;
        self.check(container)?;
        let mut own = self.state.lock();
        own.touch(&self.engine, container.state(), key)
    }

    /// Deletes an item, blindly: it is no error when there is none, and nothing is read.
    pub fn delete(&self, container: &Container, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        check_key(key)?;
        self.check(container)?;
        let mut own = self.state.lock();
        own.delete(&self.engine, container.state(), key)
    }

    /// Deletes every item whose key lies in the range, also those that others write there before the commit; see
    /// [`Container::delete_range`].
    pub fn delete_range(&self, container: &Container, range: impl KeyBounds) -> Result<()> {
        let range = checked_range(range)?;
        self.check(container)?;
        let mut own = self.state.lock();
        own.delete_range(&self.engine, container.state(), range)
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

    /// Writes all of it, at one moment, if all that was read is as it was; or nothing. To drop a transaction instead is to
    /// roll it back.
    ///
    /// Of a transaction that has written nothing it tells the version of the last write that it saw, and its time. It is of
    /// one moment only if this succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`] with a container and a key that is not as it was; otherwise the errors of a batch. After
    /// each nothing was written.
    pub fn commit(self) -> Result<Written> {
        self.state.into_inner().commit(&self.engine)
    }
}
