//! Where documents are: a database of the engine, or one replica of a state that several nodes share.
//!
//! ```text
//! reads      engine ──> the container, as it is          replica ──> a snapshot of the moment that the replica gives
//! writes     engine ──> a batch of the engine            replica ──> the same writes as values, and the conditions with them
//! figures    both: the containers of the database that is here
//! ```
//!
//! Invariants:
//!
//! 1. Nothing is written to the database of a replica but by [`Replica::commit`]: what one replica did alone would part it from the
//!    others. So its containers are looked up, and never made by asking for them.
//! 2. Each write to a replica has the versions that it was decided by as conditions, for others write meanwhile. What was decided
//!    without a write was read at the moment of a snapshot that is no older than the call.
//! 3. Changes are found in the database of a replica as it is, once that has all that was written before the call, and read in a
//!    snapshot that is taken after it: a version that was passed over is told by nobody later.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ebbtide::{
    Batch, Bytes, Container, ContainerOptions, Database, DefaultTtl, Durability, Expect,
    Expiration, ExpiryCursor, Item, Iter, Keys, Quota, Snapshot, Ttl, Version, View,
};

use crate::error::{Error, Result};
use crate::key_range::KeyRange;

/// One of several replicas of a state, for [`Documents::over`](crate::Documents::over): all of them do the same writes in the same
/// order, and items end alike on all.
pub trait Replica: Send + Sync + 'static {
    /// The database of this replica: to be read, and never written.
    fn engine(&self) -> &Database;

    /// The container of this name, as of what this replica has: all that the last snapshot shows, at least.
    fn container(&self, name: &str) -> Option<Container>;

    /// The quota of a container, likewise: the database does not know it.
    fn quota(&self, name: &str) -> Option<Quota>;

    /// The state at a moment, with all that was written before this call began, by whichever replica; the same snapshot as before
    /// may serve a call that has begun before that was taken.
    ///
    /// # Errors
    /// Nobody can say now what was written.
    fn snapshot(&self) -> Result<Snapshot>;

    /// Snapshots that this thread is given from now on have all that the database of this replica has now, and so all that it has
    /// told in the order of versions.
    ///
    /// # Errors
    /// [`Replica::engine`] and [`Replica::container`] are no more what the snapshots are of; and nobody can say what was written.
    fn renew(&self) -> Result<()>;

    /// The ends in a container behind a cursor, up to `most` (at least 1), and the cursor behind them, which is good for each
    /// replica. An end may be given a moment after it.
    ///
    /// # Errors
    /// Those of [`Replica::snapshot`], and of the engine: this replica has some of them no more, or has not come so far.
    fn ends(
        &self,
        container: &str,
        from: &ExpiryCursor,
        most: usize,
    ) -> Result<(Vec<Expiration>, ExpiryCursor)>;

    /// Whether it takes [`Write::PutLike`], by which indexes are kept. Where it does not yet, containers have no index, and queries
    /// scan; a handle that is made when it does has the indexes built that the policy names. By default it does.
    fn takes_put_like(&self) -> bool {
        true
    }

    /// The moment by which the last snapshot that this thread was given judges.
    fn now(&self) -> SystemTime;

    /// Does all of these writes in this order if all conditions hold, or nothing; returns once this replica has them, too.
    ///
    /// # Errors
    /// It was not done, or nobody can say whether it was.
    fn commit(&self, writes: Vec<Write>) -> Result<Commit>;
}

/// A part of what [`Replica::commit`] does. Containers are named. Conditions hold of what is there before all writes, and whole
/// containers are changed before items are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// No write: a live item has this version, or none is there.
    Require(String, Vec<u8>, Option<Version>),
    /// Stores an item.
    Put(String, Vec<u8>, Bytes, Ttl),
    /// Stores an item that counts from when that of this container and key does, by the same ttl ([`Ttl::Like`]); a condition
    /// has that one's version.
    PutLike(String, Vec<u8>, Bytes, String, Vec<u8>),
    /// Gives an item this ttl, from now on; its value stays.
    Expire(String, Vec<u8>, Ttl),
    /// Removes an item.
    Delete(String, Vec<u8>),
    /// Removes the items of a range.
    DeleteRange(String, Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Makes a container.
    Create(String, ContainerSettings),
    /// Has a container be set so.
    Change(String, ContainerSettings),
    /// Drops a container.
    Drop(String),
}

/// The settings of a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerSettings {
    /// The default ttl.
    pub default_ttl: DefaultTtl,
    /// How long what has ended is kept for readers of ends.
    pub keep_expired: Duration,
    /// The quota, if there is one.
    pub quota: Option<Quota>,
}

impl ContainerSettings {
    /// Those of a new container with this default ttl.
    #[must_use]
    pub fn of(default_ttl: DefaultTtl) -> ContainerSettings {
        ContainerSettings {
            default_ttl,
            keep_expired: Duration::ZERO,
            quota: None,
        }
    }
}

/// The outcome of [`Replica::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// All of it was done.
    Done(Committed),
    /// A condition does not hold, or a container is not there any more, or is already: nothing was.
    Conflict,
}

/// The effect: the version of its last write, those before it having the ones below; and when it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The version of the last write.
    pub version: Version,
    /// The moment from which ttls count.
    pub written_at: SystemTime,
}

impl From<ebbtide::Written> for Committed {
    fn from(written: ebbtide::Written) -> Committed {
        Committed {
            version: written.version(),
            written_at: written.written_at(),
        }
    }
}

/// See the file's head.
#[derive(Clone)]
pub(crate) struct Store {
    engine: Database,
    replica: Option<Arc<dyn Replica>>,
}

impl Store {
    pub fn of(engine: Database) -> Store {
        Store {
            engine,
            replica: None,
        }
    }

    pub fn over(replica: Arc<dyn Replica>) -> Store {
        Store {
            engine: replica.engine().clone(),
            replica: Some(replica),
        }
    }

    pub fn engine(&self) -> &Database {
        &self.engine
    }

    pub fn is_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// Whether indexes can be kept.
    pub fn takes_put_like(&self) -> bool {
        self.replica
            .as_ref()
            .is_none_or(|replica| replica.takes_put_like())
    }

    /// The moment by which what is read is judged.
    pub fn now(&self) -> SystemTime {
        match &self.replica {
            None => self.engine.now(),
            Some(replica) => replica.now(),
        }
    }

    pub fn snapshot(&self) -> Result<Snapshot> {
        match &self.replica {
            None => Ok(self.engine.snapshot()),
            Some(replica) => replica.snapshot(),
        }
    }

    /// A container at a snapshot.
    pub fn view(&self, snapshot: &Snapshot, of: &Container) -> Result<View> {
        match self.is_replica() {
            false => Ok(snapshot.container(of.name())?),
            // Another node may have dropped it.
            true => view_of(snapshot, of.name())?.ok_or_else(dropped),
        }
    }

    pub fn has_container(&self, name: &str) -> Result<bool> {
        match &self.replica {
            None => Ok(self.engine.containers().iter().any(|known| known == name)),
            Some(replica) => Ok(view_of(&replica.snapshot()?, name)?.is_some()),
        }
    }

    /// A container that is there.
    pub fn container(&self, name: &str) -> Result<Option<Container>> {
        match &self.replica {
            None if self.has_container(name)? => Ok(Some(self.engine.container(name)?)),
            None => Ok(None),
            Some(replica) => Ok(replica.container(name)),
        }
    }

    /// A container, which is made with this default where there is none.
    pub fn made(&self, name: &str, default: DefaultTtl) -> Result<Container> {
        let Some(replica) = &self.replica else {
            let options = ContainerOptions::new().default_ttl(default);
            return Ok(self.engine.container_with(name, options.or_keep())?);
        };
        if !self.has_container(name)? {
            let settings = ContainerSettings::of(default);
            // Where that is a conflict, another one has made it meanwhile.
            replica.commit(vec![Write::Create(name.to_owned(), settings)])?;
            let _ = replica.snapshot()?;
        }
        self.container(name)?.ok_or_else(dropped)
    }

    pub fn item(&self, of: &Container, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        Ok(match &self.replica {
            None => of.item(key)?,
            Some(replica) => self.view(&replica.snapshot()?, of)?.item(key)?,
        })
    }

    pub fn range(&self, of: &Container, range: KeyRange) -> Result<Iter> {
        Ok(match &self.replica {
            None => of.range(range),
            Some(replica) => self.view(&replica.snapshot()?, of)?.range(range),
        })
    }

    pub fn keys(&self, of: &Container, range: KeyRange) -> Result<Keys> {
        Ok(match &self.replica {
            None => of.keys(range),
            Some(replica) => self.view(&replica.snapshot()?, of)?.keys(range),
        })
    }

    /// The items whose keys begin so.
    pub fn prefix(&self, of: &Container, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.range(of, KeyRange::of_prefix(prefix.as_ref().to_vec()))
    }

    pub fn quota(&self, of: &Container) -> Option<Quota> {
        match &self.replica {
            None => of.quota(),
            Some(replica) => replica.quota(of.name()),
        }
    }

    /// Readies a pass over a container of the database that is here: it has all that was written before.
    pub fn catch_up(&self, with: &Container) -> Result<()> {
        match self.replica.is_some() && !self.has_container(with.name())? {
            true => Err(dropped()),
            false => Ok(()),
        }
    }

    /// Reads from now on see all that the database here has told.
    pub fn renew(&self) -> Result<()> {
        self.replica
            .as_ref()
            .map_or(Ok(()), |replica| replica.renew())
    }

    /// The ends in a container behind a cursor, and the cursor behind them.
    pub fn ends(
        &self,
        of: &Container,
        from: &ExpiryCursor,
        most: usize,
    ) -> Result<(Vec<Expiration>, ExpiryCursor)> {
        if let Some(replica) = &self.replica {
            return replica.ends(of.name(), from, most);
        }
        let mut expirations = of.expirations(from.clone());
        let ends: ebbtide::Result<_> = expirations.by_ref().take(most).collect();
        Ok((ends?, expirations.cursor()))
    }

    pub fn writes(&self) -> Writes {
        match self.replica {
            None => Writes::Batch(Batch::new()),
            Some(_) => Writes::Values(vec![]),
        }
    }

    pub fn commit(&self, writes: &Writes) -> Result<Commit> {
        match (writes, &self.replica) {
            (Writes::Batch(batch), _) => match self.engine.commit(batch) {
                Ok(written) => Ok(Commit::Done(written.into())),
                Err(error) if error.is_conflict() => Ok(Commit::Conflict),
                Err(error) => Err(error.into()),
            },
            (Writes::Values(values), Some(replica)) => replica.commit(values.clone()),
            (Writes::Values(_), None) => unreachable!("values are for a replica"),
        }
    }
}

/// A container at a snapshot, if it is there.
pub(crate) fn view_of(snapshot: &Snapshot, name: &str) -> Result<Option<View>> {
    match snapshot.container(name) {
        Ok(view) => Ok(Some(view)),
        Err(ebbtide::Error::InvalidArgument { .. } | ebbtide::Error::ContainerDropped { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn dropped() -> Error {
    Error::new(crate::ErrorKind::NotFound, "The container was deleted.").with_sub_status(1003)
}

/// Writes that are done together.
#[derive(Clone)]
// Where there is no replica all are batches, and in a box each would be an allocation more.
#[expect(clippy::large_enum_variant)]
pub(crate) enum Writes {
    Batch(Batch),
    Values(Vec<Write>),
}

impl Writes {
    pub fn require(&mut self, of: &Container, key: impl AsRef<[u8]>, expect: Expect) {
        match self {
            Writes::Batch(batch) => {
                batch.require(of, key, expect);
            }
            Writes::Values(values) => {
                let version = match expect {
                    Expect::Version(version) => Some(version),
                    _ => None,
                };
                let key = key.as_ref().to_vec();
                values.push(Write::Require(of.name().to_owned(), key, version));
            }
        }
    }

    pub fn put(
        &mut self,
        to: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Ttl,
    ) {
        match self {
            Writes::Batch(batch) => {
                batch.put_with_ttl(to, key, value, ttl);
            }
            Writes::Values(values) => {
                let (key, value) = (
                    key.as_ref().to_vec(),
                    Bytes::copy_from_slice(value.as_ref()),
                );
                values.push(Write::Put(to.name().to_owned(), key, value, ttl));
            }
        }
    }

    /// Adds an item without a value, which has the life of another one.
    pub fn put_like(&mut self, to: &Container, key: impl AsRef<[u8]>, of: &Container, item: &Item) {
        match self {
            Writes::Batch(_) => self.put(to, key, b"", Ttl::Like(item)),
            Writes::Values(values) => {
                let (to, key) = (to.name().to_owned(), key.as_ref().to_vec());
                let (of, of_key) = (of.name().to_owned(), item.key().to_vec());
                values.push(Write::PutLike(to, key, Bytes::new(), of, of_key));
            }
        }
    }

    pub fn expire(&mut self, of: &Container, key: &[u8], ttl: Ttl) {
        match self {
            Writes::Batch(batch) => {
                batch.expire(of, key, ttl);
            }
            Writes::Values(values) => {
                values.push(Write::Expire(of.name().to_owned(), key.to_vec(), ttl));
            }
        }
    }

    pub fn delete(&mut self, from: &Container, key: impl AsRef<[u8]>) {
        match self {
            Writes::Batch(batch) => {
                batch.delete(from, key);
            }
            Writes::Values(values) => {
                values.push(Write::Delete(from.name().to_owned(), key.as_ref().to_vec()));
            }
        }
    }

    pub fn delete_range(&mut self, from: &Container, range: KeyRange) {
        match self {
            Writes::Batch(batch) => {
                batch.delete_range(from, range);
            }
            Writes::Values(values) => {
                let KeyRange { from: first, to } = range;
                values.push(Write::DeleteRange(from.name().to_owned(), first, to));
            }
        }
    }

    /// Makes a container of these settings, which the options say, too.
    pub fn create_container(
        &mut self,
        name: String,
        options: ContainerOptions,
        settings: ContainerSettings,
    ) {
        match self {
            Writes::Batch(batch) => {
                batch.create_container(name, options);
            }
            Writes::Values(values) => values.push(Write::Create(name, settings)),
        }
    }

    /// Changes the options of one.
    pub fn change_container(
        &mut self,
        name: String,
        options: ContainerOptions,
        settings: ContainerSettings,
    ) {
        match self {
            Writes::Batch(batch) => {
                batch.create_container(name, options.or_change());
            }
            Writes::Values(values) => values.push(Write::Change(name, settings)),
        }
    }

    pub fn drop_container(&mut self, name: String) {
        match self {
            Writes::Batch(batch) => {
                batch.drop_container(name);
            }
            Writes::Values(values) => values.push(Write::Drop(name)),
        }
    }

    pub fn durability(&mut self, durability: Durability) {
        if let Writes::Batch(batch) = self {
            batch.durability(durability);
        }
    }

    /// Those that are no conditions.
    pub fn len(&self) -> usize {
        match self {
            Writes::Batch(batch) => batch.len(),
            Writes::Values(values) => {
                let is_condition = |write: &&Write| matches!(write, Write::Require(..));
                values.len() - values.iter().filter(is_condition).count()
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Writes::Batch(batch) => batch.is_empty(),
            Writes::Values(values) => values.is_empty(),
        }
    }
}
