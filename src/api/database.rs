//! Databases.

use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::api::batch::Batch;
use crate::api::container::Container;
use crate::api::snapshot::Snapshot;
use crate::base::{AtOnce, Result, Wait};
use crate::data::write::Written;
use crate::engine::options::{ContainerOptions, Options};
use crate::engine::{Engine, Handle, VerifyReport};
use crate::values::Quota;
use crate::values::stats::Stats;

/// An open database. Cheap to clone. Its clones, and the containers, snapshots and iterators made from it, keep it
/// open; it is closed when the last of all these is dropped, or by [`Database::close`].
///
/// ```
/// use ebbtide::Database;
///
/// let folder = tempfile::tempdir()?;
/// let users = Database::open(folder.path())?.container("users")?; // keeps the database open
/// users.put("ada", "1815")?;
/// assert!(Database::open(folder.path()).is_err()); // it is open already
/// drop(users); // syncs the log, ends the threads, lets go of the folder
/// assert!(Database::open(folder.path())?.container("users")?.contains("ada")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    engine: Handle,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database in a folder with default settings; creates both if they are missing. None is created among other
    /// files: see [`Options::among_other_files`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    pub(super) fn new(engine: Arc<Engine>) -> Database {
        Database {
            engine: Handle::new(engine),
        }
    }

    /// The database of a container.
    pub(crate) fn of(container: &Container) -> Database {
        Database {
            engine: container.engine().clone(),
        }
    }

    /// Opens a container, or creates it without a default ttl ([`DefaultTtl::NoDefault`](crate::DefaultTtl)). Names are
    /// 1 to 255 bytes of UTF-8 without `/` or NUL.
    pub fn container(&self, name: impl AsRef<str>) -> Result<Container> {
        self.container_with(name, ContainerOptions::new())
    }

    /// Like [`Database::container`], with these options. If the container exists and is set otherwise than they say, that is
    /// [`Error::Differs`](crate::Error::Differs), unless they say [`ContainerOptions::or_keep`] or
    /// [`ContainerOptions::or_change`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Compression, ContainerOptions, Database, DefaultTtl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let options = ContainerOptions::new()
    ///     .default_ttl(DefaultTtl::After(Duration::from_secs(86_400)))
    ///     .compression(Compression::Lz4);
    /// let pages = db.container_with("pages", options)?;
    /// assert_eq!(db.container("pages")?.default_ttl(), pages.default_ttl()); // that says nothing of its settings
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn container_with(
        &self,
        name: impl AsRef<str>,
        options: ContainerOptions,
    ) -> Result<Container> {
        let state = self.engine.container(name.as_ref(), &options)?;
        Ok(Container::new(self.engine.clone(), state))
    }

    pub(crate) fn engine(&self) -> &Handle {
        &self.engine
    }

    /// Its folder; `None`: it is in memory ([`Options::temporary`]).
    ///
    /// ```
    /// use ebbtide::{Database, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// assert_eq!(db.path(), Some(folder.path()));
    /// assert_eq!(Options::temporary()?.path(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.engine.path()
    }

    /// The names of all containers, sorted.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("sessions")?;
    /// db.container("orders")?;
    /// assert_eq!(db.containers(), ["orders", "sessions"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn containers(&self) -> Vec<String> {
        self.engine.containers()
    }

    /// The most live bytes of all containers together, by [`Options::max_live_bytes`](crate::Options::max_live_bytes); none:
    /// there is no limit.
    #[must_use]
    pub fn quota(&self) -> Option<Quota> {
        self.engine.quota_of_all()
    }

    /// Drops a container with everything in it. False: there is no container of this name.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let old = db.container("c")?;
    /// old.put("k", "v")?;
    /// assert!(db.drop_container("c")?);
    /// assert!(old.get("k").unwrap_err().is_closed());
    /// assert!(db.container("c")?.is_empty()?); // another one, of the same name
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_container(&self, name: impl AsRef<str>) -> Result<bool> {
        self.engine.drop_container(name.as_ref())
    }

    /// Writes a batch atomically: all of it or nothing, visible at once.
    ///
    /// ```
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (by_id, by_name) = (db.container("by-id")?, db.container("by-name")?);
    /// let mut batch = Batch::new();
    /// batch.put(&by_id, "7", "ada").put(&by_name, "ada", "7").put(&by_name, "", "keys are not empty");
    /// assert!(db.write(&batch).is_err());
    /// assert!(by_id.is_empty()?); // nothing of it was written
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) if one of its conditions does not hold. After any error nothing was
    /// written.
    pub fn write(&self, batch: impl Borrow<Batch>) -> Result<()> {
        self.commit(batch).map(drop)
    }

    /// Like [`Database::write`]; returns also the version of the last write of the batch, and the time of all.
    ///
    /// ```
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let orders = db.container("orders")?;
    /// let mut batch = Batch::new();
    /// batch.put(&orders, "o-17", "42 apples");
    /// let written = db.commit(batch)?;
    /// let item = orders.item("o-17")?.unwrap();
    /// assert_eq!((item.version(), item.written_at()), (written.version(), written.written_at()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// For a batch without writes it returns the version of the last write to the database, and the current time.
    pub fn commit(&self, batch: impl Borrow<Batch>) -> Result<Written> {
        let (begun, outcomes) = self.engine.write::<Wait>(batch.borrow().checked()?)?;
        Ok(begun.written().with_outcomes(outcomes))
    }

    /// As [`Database::commit`], if nothing is to be waited for. [`AtOnce::WouldWait`]: nothing was written. It would wait for
    /// a sync, so under [`Durability::Sync`](crate::Durability::Sync), of the database or of the batch, always, and for
    /// changes of settings; for conditions and touches of keys that are not in memory, or that others write at that moment;
    /// where writers are slowed down, or a quota has little left; where memory or the log is full, until the next
    /// [`Database::write`] has made room.
    ///
    /// ```
    /// use ebbtide::{AtOnce, Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let orders = db.container("orders")?;
    /// let mut batch = Batch::new();
    /// batch.put(&orders, "o-17", "42 apples").delete(&orders, "o-16");
    /// let written = match db.try_write(&batch)? {
    ///     AtOnce::Ready(written) => written,
    ///     AtOnce::WouldWait => db.commit(&batch)?, // better on a thread that may wait
    /// };
    /// assert_eq!(orders.item("o-17")?.unwrap().written_at(), written.written_at());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As of [`Database::commit`].
    pub fn try_write(&self, batch: impl Borrow<Batch>) -> Result<AtOnce<Written>> {
        AtOnce::of(self.engine.try_write(batch.borrow().checked()?))
    }

    /// A snapshot of the writes so far.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("a", "old", Duration::from_secs(60))?;
    /// let then = db.snapshot().container("c")?;
    /// c.put("a", "new")?;
    /// assert_eq!(then.get("a")?.unwrap(), "old"); // it freezes what was written,
    /// clock.advance(Duration::from_secs(60));
    /// assert!(then.get("a")?.is_none()); // and never the clock
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine.clone(), self.engine.held_snapshot())
    }

    /// Makes every acknowledged write survive a power cut.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("payments")?.put("p-1", "42")?; // survives a killed process
    /// db.sync()?; // survives a power cut
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Calls `then` once everything written so far survives a power cut, or with the error that prevents it: the sync
    /// failed, or nothing can be written. Returns without waiting. One sync serves all waiting calls.
    ///
    /// `then` is called once, by a thread of the database, which calls one at a time: at the latest when the database
    /// is closed, by the closing thread, and at once if it is closed already. It may use the database. A panic in it is
    /// caught.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("orders")?.put("o-17", "42 apples")?;
    /// let (done, confirmed) = std::sync::mpsc::channel();
    /// db.sync_then(move |synced| done.send(synced).unwrap());
    /// confirmed.recv()??; // the order may be confirmed now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync_then(&self, then: impl FnOnce(Result<()>) + Send + 'static) {
        Engine::sync_then(&self.engine, Box::new(then));
    }

    /// Writes all memtables to tables.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Reclaims and merges until nothing more can be gained: one run is left of items that end at about the same time.
    /// Also starts purging that an open with a leading clock has delayed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("k", "v", Duration::from_secs(60))?;
    /// db.flush()?; // into a table
    /// assert!(db.stats().table_bytes > 0);
    /// clock.advance(Duration::from_secs(60));
    /// db.compact()?; // or wait
    /// assert_eq!(db.stats().table_bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact(&self) -> Result<()> {
        self.compact_while(|| true).map(drop)
    }

    /// The same while `goes_on` says so, which is asked between the steps, and between the parts of a long one. False:
    /// it said no. What was done until then stays.
    pub fn compact_while(&self, goes_on: impl Fn() -> bool) -> Result<bool> {
        self.engine.compact_while(&goes_on)
    }

    /// Makes a consistent, durable copy of the state at one moment of this call, which can be opened as a database;
    /// with hard links if the file system has them. Other operations go on meanwhile; files that the copy needs are
    /// kept until it is done. Of a database that is open [to be read](crate::Options::read_only), too, in whose folder
    /// nothing is written then: of a snapshot of a volume, say.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path().join("db"))?;
    /// let c = db.container("c")?;
    /// c.put("k", "before")?;
    /// db.checkpoint(folder.path().join("copy"))?;
    /// c.put("k", "after")?;
    /// let copy = Database::open(folder.path().join("copy"))?.container("c")?;
    /// assert_eq!(copy.get("k")?.unwrap(), "before");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the folder is not empty, or lies in the database's
    /// own; [`Error::Io`](crate::Error::Io) if it is a link, or the system fails. After an error everything that the
    /// call created is removed, and nothing else was touched.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.engine.checkpoint(path.as_ref())
    }

    /// Reads and checks every byte of every table, as `ebbtide verify` does, while the database is in use. The log and
    /// the manifest are checked at open. Damage is listed in the report, and in `Stats::damage`.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("c")?.put("k", "v")?;
    /// db.flush()?;
    /// let report = db.verify()?;
    /// assert!(report.faults.is_empty());
    /// assert_eq!(report.records, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine.verify()
    }

    /// The statistics of the database.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("c")?.put("k", "v")?;
    /// let stats = db.stats();
    /// assert_eq!((stats.live_items, stats.expired_bytes), (1, 0));
    /// assert!(stats.overdue.is_zero()); // alarm on this: expired bytes stay longer than they should
    /// assert!(stats.background_error.is_none()); // and on this
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Reads, in a follower ([`Options::follow`]), the writes since the last look: all that the process that writes had
    /// acknowledged before the call is shown after it. In any other database nothing is missing, and nothing happens.
    ///
    /// # Errors
    /// Damage, as an open would find it, or a clock that is too far behind the time on which the other process has
    /// relied. The state that was shown before stays shown.
    pub fn catch_up(&self) -> Result<()> {
        self.engine.catch_up()
    }

    /// Closes the database for all its clones, containers, snapshots and iterators: syncs the log and joins the
    /// threads. Later calls of any of them return [`Error::Closed`](crate::Error::Closed); values and items that were
    /// read stay valid. Closing again is no error. If a [`Clock`](crate::Clock) calls it on a thread of the database,
    /// it does not wait for the end, because that thread has to end too.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put("k", "v")?;
    /// let value = c.get("k")?.unwrap();
    /// db.close()?;
    /// assert!(c.get("k").unwrap_err().is_closed());
    /// assert_eq!(value, "v");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the log could not be synced. The database is closed all the same. A full disk is no
    /// error: acknowledged writes have their room in the log already.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }

    /// The time by which items are judged now, to the millisecond: that of the clock, and no earlier than any time on
    /// which this database relied.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Options::new().clock(ManualClock::new(1_800_000_000_000)).open(folder.path())?;
    /// assert_eq!(db.now(), UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.engine.now().to_system_time()
    }

    /// Tells the database that the wall clock is right: a leap settles, and purging that waits for it starts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{DefaultTtl, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let c = db.container("c")?;
    /// clock.jump(1_800_000_000_000 + 86_400_000); // a day, in no time: is that right?
    /// assert!(c.set_default_ttl(DefaultTtl::Off).unwrap_err().is_retryable());
    /// db.confirm_clock(); // it is: the machine's clock had been a day behind
    /// c.set_default_ttl(DefaultTtl::Off)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn confirm_clock(&self) {
        self.engine.confirm_clock()
    }

    /// Changes [`Options::background_rate`], the cap on merging and reclaiming in bytes a second: at least 1, and 0
    /// counts as that.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.set_background_rate(32 << 20); // 32 MiB a second while users are awake,
    /// db.set_background_rate(512 << 20); // and 512 at night
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.engine.set_background_rate(bytes_per_second)
    }

    /// Changes [`Options::background_floor`], the rate that merging and reclaiming always have, in bytes a second.
    pub fn set_background_floor(&self, bytes_per_second: u64) {
        self.engine.set_background_floor(bytes_per_second)
    }
}

/// For tests of the engine.
#[cfg(any(test, feature = "unstable-internals"))]
#[doc(hidden)]
impl Database {
    /// Does one piece of background work on the calling thread; false when none is due.
    pub fn step(&self) -> Result<bool> {
        self.engine.step()
    }

    /// Bytes of the block cache, including the overhead of entries.
    pub fn cached_bytes(&self) -> u64 {
        self.engine.cached_bytes()
    }

    /// Describes every container's memtables, runs and tables in words.
    pub fn describe(&self) -> String {
        self.engine.describe()
    }
}
