//! Batches.

mod containers;

use std::fmt;

use crate::api::arguments::{KeyBounds, check_item, check_key, checked_range};
use crate::api::container::Container;
use crate::api::writing::{other_ttl, write_ttl};
use crate::base::{ContainerId, Error, Result, Ttl};
use crate::data::batch::{Op, WriteTtl};
use crate::data::write::{Expect, OnMiss};
use crate::engine::options::Durability;
use crate::engine::{Demand, Writes};

/// Writes that become visible and durable together, in any containers of one database, and conditions for them. A batch
/// is atomic, after a power cut too. Its writes apply in the order in which they were added. A condition, that of
/// [`Batch::create`], [`Batch::replace`], [`Batch::touch`], [`Batch::rename`] and [`Batch::require`], sees the items that were there and
/// the writes that were added before it. If one does not hold, the result is [`Error::Conflict`], and nothing is
/// written; or, after [`Batch::on_miss`], its write alone is left out.
///
/// ```
/// use ebbtide::{Batch, Database};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let (orders, keys) = (db.container("orders")?, db.container("idempotency-keys")?);
/// let mut batch = Batch::new();
/// batch.put(&orders, "o-17", "42 apples");
/// batch.put(&keys, "k-9f3", "o-17");
/// db.write(batch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is written before the database is given it"]
pub struct Batch {
    writes: Writes,
    /// The error of the first write that is not allowed; the whole batch is refused for it.
    refused: Option<Error>,
    /// Of the writes that follow.
    on_miss: OnMiss,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// A batch without writes.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Stores an item that inherits the container's default.
    pub fn put(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        let container = container.as_ref();
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own.
    pub fn put_with_ttl(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        let container = container.as_ref();
        let (key, value) = (key.as_ref(), value.as_ref());
        let ttl = check_item(key, value).and_then(|()| write_ttl(ttl.into()));
        let ttl = self.ask_for_ttl(container, key, ttl);
        self.push(
            container,
            ttl.map(|ttl| {
                move |container| Op::Put {
                    container,
                    ttl,
                    key,
                    value,
                }
            }),
        )
    }

    /// Asks for a ttl that the walk fills in, and puts a placeholder in its place.
    #[inline(always)]
    fn ask_for_ttl(
        &mut self,
        container: &Container,
        key: &[u8],
        ttl: Result<WriteTtl>,
    ) -> Result<WriteTtl> {
        let demand = match ttl {
            Ok(WriteTtl::Keep) => Demand::Keep,
            Ok(WriteTtl::Like(countdown)) => Demand::Like(countdown),
            ttl => return ttl,
        };
        self.ask(container, key, demand, OnMiss::Conflict);
        Ok(WriteTtl::Absent)
    }

    /// Stores an item if no live one has the key; if one has, the whole batch is a conflict.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Batch, Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (users, by_mail) = (db.container("users")?, db.container("users by mail")?);
    /// let sign_up = |id: &str, mail: &str| {
    ///     let mut batch = Batch::new();
    ///     batch.create(&by_mail, mail, id, Ttl::Inherit).put(&users, id, mail);
    ///     db.write(batch)
    /// };
    /// sign_up("1", "ada@example.org")?;
    /// assert!(sign_up("2", "ada@example.org").unwrap_err().is_conflict());
    /// assert!(users.get("2")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn create(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        let container = container.as_ref();
        let absent = Demand::Expect(Expect::Absent);
        self.ask(container, key.as_ref(), absent, self.on_miss);
        self.put_with_ttl(container, key, value, ttl)
    }

    /// Stores an item if a live one has the key; if none has, the whole batch is a conflict.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (users, names) = (db.container("users")?, db.container("earlier names")?);
    /// let mut batch = Batch::new();
    /// batch.replace(&users, "u-1", "Ada Lovelace", Ttl::Inherit).put(&names, "u-1", "Ada Byron");
    /// assert!(db.write(batch).unwrap_err().is_conflict()); // there is no such user
    /// assert!(names.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        let container = container.as_ref();
        let present = Demand::Expect(Expect::Present);
        self.ask(container, key.as_ref(), present, self.on_miss);
        self.put_with_ttl(container, key, value, ttl)
    }

    /// Restarts the countdown of a live item; keeps value and ttl. If there is none, the whole batch is a conflict.
    ///
    /// ```
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (sessions, by_user) = (db.container("sessions")?, db.container("sessions by user")?);
    /// let mut batch = Batch::new();
    /// batch.put(&sessions, "s-1", "ada").put(&by_user, "ada s-1", "");
    /// db.write(&batch)?;
    /// batch.clear();
    /// batch.touch(&sessions, "s-1").touch(&by_user, "ada s-1"); // both slide, or neither
    /// db.write(&batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch(&mut self, container: impl AsRef<Container>, key: impl AsRef<[u8]>) -> &mut Self {
        let container = container.as_ref();
        let key = key.as_ref();
        self.ask(container, key, Demand::Touch, self.on_miss);
        self.put_without_value(container, key, Ok(WriteTtl::Absent))
    }

    /// Gives a live item this ttl, which counts from now on; keeps the value, as [`Container::expire`] does. If there is
    /// none, the whole batch is a conflict.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Batch, Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let carts = db.container("carts")?;
    /// carts.put_with_ttl("ada", "3 books", Duration::from_secs(600))?;
    /// let mut batch = Batch::new();
    /// batch.expire(&carts, "ada", Ttl::Never).put(&carts, "ada: paid", "");
    /// db.write(batch)?;
    /// assert_eq!(carts.item("ada")?.unwrap().expires_at(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expire(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        let container = container.as_ref();
        let key = key.as_ref();
        self.ask(container, key, Demand::KeepValue, self.on_miss);
        let ttl = self.ask_for_ttl(container, key, other_ttl(ttl.into()));
        self.put_without_value(container, key, ttl)
    }

    /// Gives a live item another key, as it is: its value, its ttl, and the time from which it counts stay, and so does its
    /// end, whatever becomes of the default. An item that has the other key is replaced, live or not. If there is no live
    /// item to be renamed, the whole batch is a conflict. It is one write of the batch.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Batch, ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let sessions = db.container("sessions")?;
    /// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(45));
    /// let mut batch = Batch::new();
    /// batch.rename(&sessions, "s-1", "s-2"); // a new id at login
    /// db.write(&batch)?;
    /// assert!(sessions.get("s-1")?.is_none());
    /// assert_eq!(sessions.item("s-2")?.unwrap().remaining(), Some(Duration::from_secs(15)));
    /// assert!(db.write(&batch).unwrap_err().is_conflict());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rename(
        &mut self,
        container: &Container,
        from: impl AsRef<[u8]>,
        to: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.ask(container, from.as_ref(), Demand::Rename, self.on_miss);
        self.put_without_value(container, to.as_ref(), Ok(WriteTtl::Absent))
    }

    /// A put whose value is filled in once the key has been read.
    fn put_without_value(
        &mut self,
        container: &Container,
        key: &[u8],
        ttl: Result<WriteTtl>,
    ) -> &mut Self {
        let op = check_key(key).and(ttl).map(|ttl| {
            move |container| Op::Put {
                container,
                ttl,
                key,
                value: &[],
            }
        });
        self.push(container, op)
    }

    /// Sets the effect on the batch of a condition that does not hold, for the writes that follow: [`Batch::create`],
    /// [`Batch::replace`], [`Batch::touch`], [`Batch::expire`] and [`Batch::rename`]. At first, and after [`OnMiss::Conflict`], nothing of
    /// the batch is written. After [`OnMiss::Skip`] that write alone is left out, as if it had not been added, and
    /// [`Written::outcomes`](crate::Written::outcomes) tells the outcome of each: so one batch can carry the writes of
    /// several callers, and each gets its own answer. A write sees what those before it did, if they were done. All
    /// outcomes are of one moment, the batch's.
    ///
    /// A write without a condition is always done. The condition of [`Batch::require`] is one of the whole batch: if it
    /// does not hold, the batch is a conflict, whatever is set here.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, OnMiss, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let locks = db.container("locks")?;
    /// let mut turn = Batch::new();
    /// turn.on_miss(OnMiss::Skip);
    /// turn.create(&locks, "printer", "ada", Ttl::Inherit); // callers of one turn of a loop
    /// turn.create(&locks, "printer", "bob", Ttl::Inherit);
    /// turn.touch(&locks, "scanner");
    /// let written = db.commit(&turn)?;
    /// let done: Vec<bool> = written.outcomes().iter().map(|outcome| outcome.is_done()).collect();
    /// assert_eq!(done, [true, false, false]);
    /// assert_eq!(locks.get("printer")?.unwrap(), "ada");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_miss(&mut self, on_miss: OnMiss) -> &mut Self {
        self.on_miss = on_miss;
        if on_miss == OnMiss::Skip {
            self.writes.tell_outcomes();
        }
        self
    }

    /// Adds a condition on a key; if it does not hold when the batch is written, the whole batch is a conflict. It is
    /// no write, and [`Batch::len`] does not count it.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, Expect};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let (pages, edits) = (db.container("pages")?, db.container("edits")?);
    /// pages.put("home", "first")?;
    /// let read = pages.item("home")?.unwrap().version();
    /// let edit = |text: &str| {
    ///     let mut batch = Batch::new();
    ///     batch.require(&pages, "home", Expect::Version(read));
    ///     batch.put(&pages, "home", text).put(&edits, text, "");
    ///     db.write(batch)
    /// };
    /// edit("second")?;
    /// assert!(edit("third").unwrap_err().is_conflict()); // somebody has written it since it was read
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn require(
        &mut self,
        container: impl AsRef<Container>,
        key: impl AsRef<[u8]>,
        expect: Expect,
    ) -> &mut Self {
        let container = container.as_ref();
        let expect = Demand::Expect(expect);
        self.ask(container, key.as_ref(), expect, OnMiss::Conflict);
        self
    }

    /// Deletes every item whose key is in the range, as [`Container::delete_range`] does.
    ///
    /// ```
    /// use ebbtide::{Batch, Database};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let menu = db.container("menu")?;
    /// menu.put("soup", "5")?;
    /// let mut batch = Batch::new();
    /// batch.delete_range(&menu, ..).put(&menu, "salad", "6"); // in this order
    /// db.write(batch)?; // nobody sees an empty menu
    /// assert_eq!(menu.keys(..).collect::<ebbtide::Result<Vec<_>>>()?, ["salad"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete_range(
        &mut self,
        container: impl AsRef<Container>,
        range: impl KeyBounds,
    ) -> &mut Self {
        let container = container.as_ref();
        let range = checked_range(range);
        if range.as_ref().is_ok_and(|range| range.is_empty()) {
            return self;
        }
        let op = range.as_ref().map(|range| {
            |container| Op::DeleteRange {
                container,
                from: &range.from,
                to: range.to.as_deref().unwrap_or_default(),
            }
        });
        self.push(container, op.map_err(Clone::clone))
    }

    /// Sets for this batch what [`Options::durability`](crate::Options::durability) sets for all: with
    /// [`Durability::Sync`] the write returns when the batch survives a power cut, with [`Durability::Buffered`]
    /// before. In a database with the other setting, a batch is visible as soon as all earlier writes may be. Every write
    /// before a batch with `Sync` survives with it, even if the batch has no writes.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, Durability};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?; // Buffered
    /// let payments = db.container("payments")?;
    /// let mut batch = Batch::new();
    /// batch.put(&payments, "p-1", "paid").durability(Durability::Sync);
    /// db.write(batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.writes.set_durability(durability);
        self
    }

    /// Deletes an item, whether it exists or not.
    pub fn delete(&mut self, container: impl AsRef<Container>, key: impl AsRef<[u8]>) -> &mut Self {
        let container = container.as_ref();
        let key = key.as_ref();
        self.push(
            container,
            check_key(key).map(|()| move |container| Op::Delete { container, key }),
        )
    }

    fn push<'k>(
        &mut self,
        container: &Container,
        op: Result<impl FnOnce(ContainerId) -> Op<'k>>,
    ) -> &mut Self {
        let pushed = op.and_then(|op| {
            self.writes.push(
                container.engine(),
                container.state(),
                op(container.state().id()),
            )
        });
        self.note(pushed)
    }

    fn ask(&mut self, container: &Container, key: &[u8], demand: Demand, on_miss: OnMiss) {
        let (engine, state) = (container.engine(), container.state());
        let asked =
            check_key(key).and_then(|()| self.writes.demand(engine, state, key, demand, on_miss));
        self.note(asked);
    }

    pub(crate) fn note(&mut self, pushed: Result<()>) -> &mut Self {
        if let Err(error) = pushed {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// The number of writes in it, without a refused one, and without deletes of empty ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it has no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes every write, and the error of a refused one. Later writes are again as in a new batch.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.refused = None;
        self.on_miss = OnMiss::default();
    }

    /// Adds all that another batch has.
    pub(super) fn append(&mut self, other: &Batch) {
        let refused = other.refused.clone().map_or(Ok(()), Err);
        let added = refused.and_then(|()| self.writes.append(&other.writes));
        self.note(added);
    }

    pub(crate) fn checked(&self) -> Result<&Writes> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => Ok(&self.writes),
        }
    }
}
