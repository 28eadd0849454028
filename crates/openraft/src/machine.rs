//! The program's part of apply, and what it is given: reads judged at the entry's time, and a writer.
//!
//! ```text
//! get, range ──> this entry's writes ── not written ──> the state, at the entry's time
//! put, delete ─> this entry's writes ──> with the facts in one batch, when all ops have been asked
//! ```
//!
//! Invariants:
//!
//! 1. All that a machine can see here is a function of the state and the entry. Errors of the engine are none of it: they are
//!    kept in `failed`, and the whole entry is tried again or the node stops, whatever the machine makes of them.
//! 2. An op that is refused leaves nothing: `undo` has what its writes have replaced.
//! 3. Conditions are decided here alone: the batch has plain writes.

mod commands;
mod place;

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ebbtide::{
    Batch, Container, ContainerOptions, DefaultTtl, Error, Item, KeyBounds, Ttl, Version,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checks::{LONGEST_SECONDS, MOST_KEY_BYTES, check_item, is_reserved};
use crate::entry::Refused;
use crate::facts::FACTS;
use crate::reader::View;
use crate::shared::Open;

pub use commands::Commands;
pub(crate) use place::Place;

/// The program's state machine. What it has decided stands in the state alone: it has no memory of its own (`&self`), and must
/// not look at a clock, at chance, at files or at settings of its node.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::ContainerOptions;
/// use ebbtide_openraft::{Machine, Step, StepError};
/// use serde::{Deserialize, Serialize};
///
/// struct Locks;
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Acquire {
///     lock: String,
///     by: String,
/// }
///
/// impl Machine for Locks {
///     type Op = Acquire;
///     type Answer = bool;
///
///     fn containers(&self) -> Vec<(&'static str, ContainerOptions)> {
///         vec![("locks", ContainerOptions::new())]
///     }
///
///     fn apply(&self, op: &Acquire, step: &mut Step<'_>) -> Result<bool, StepError> {
///         if step.get("locks", &op.lock)?.is_some() {
///             return Ok(false); // its holder's ten seconds are not over on any replica
///         }
///         step.put("locks", &op.lock, &op.by, Duration::from_secs(10))?;
///         Ok(true)
///     }
/// }
/// ```
pub trait Machine: Send + Sync + 'static {
    /// The part of an op that is the program's.
    type Op: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The answer to it. Answers to ops with an id are stored for 20 min.
    type Answer: Serialize + DeserializeOwned + Send + Sync + 'static;

    /// The containers that ops read and write, with their options; those that are missing are made when the state is opened. Names
    /// that begin with `ebbtide-openraft` are the crate's. A quota that expires items is refused, as everywhere in given time.
    fn containers(&self) -> Vec<(&'static str, ContainerOptions)>;

    /// The newest format of the log that this version of the program speaks. What is of a later one stops the node.
    fn format(&self) -> u32 {
        crate::FORMAT
    }

    /// The format that an op needs. The program proposes it only where it leads and [`Reader::format`](crate::Reader::format) is no
    /// less, and [`Commands::raise_format`] only when all members, learners too, have said that they speak it.
    fn format_of(&self, _: &Self::Op) -> u32 {
        crate::FORMAT
    }

    /// Does one op: reads, decides, writes. The same state and the same op must give the same answer and the same writes, on
    /// every machine and in every later version of the program.
    ///
    /// # Errors
    /// [`StepError::refuse`]: the op changes nothing, and its client is told so. All other errors come from `step` and are handed
    /// on with `?`.
    fn apply(&self, op: &Self::Op, step: &mut Step<'_>) -> Result<Self::Answer, StepError>;
}

/// The end of an op without an effect.
#[derive(Debug)]
pub struct StepError(pub(crate) Why);

#[derive(Debug)]
pub(crate) enum Why {
    Refused(Refused),
    /// The engine could not answer: `Step::failed` tells why.
    Failed,
}

impl StepError {
    /// The op changes nothing, and its client is told this. It must be a function of state and op, too.
    #[must_use]
    pub fn refuse(why: impl Into<String>) -> StepError {
        StepError(Why::Refused(Refused::Invalid(why.into())))
    }
}

/// An item as an op finds it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The value.
    pub value: Bytes,
    /// The moment from which it is gone; none: it has no end.
    pub expires_at: Option<SystemTime>,
    /// Its version, the same on all replicas; none: this entry has written it, and no client knows its version yet.
    pub version: Option<Version>,
    ttl: Ttl,
    /// From when it counts.
    since: SystemTime,
    /// Where this entry has written it and it goes on counting from an earlier moment: as [`Ttl::Like`] says it.
    goes_on: Option<Ttl>,
}

impl Found {
    fn of(item: Item) -> Found {
        Found {
            expires_at: item.expires_at(),
            version: Some(item.version()),
            ttl: item.ttl(),
            since: item.written_at(),
            goes_on: None,
            value: item.into_value().into_bytes(),
        }
    }

    /// Its own ttl, as it was written or kept.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }
}

type Own = BTreeMap<Vec<u8>, Option<Found>>;

/// The thing that a write has replaced among those of the entry: nothing, a deletion or an item.
type Replaced = Option<Option<Found>>;

/// The containers of a state: those that its machine has named, those that entries have made, and those of the crate.
pub(crate) type Containers = HashMap<Arc<str>, Container>;

enum Write {
    Put(Container, Vec<u8>, Bytes, Ttl),
    Delete(Container, Vec<u8>),
    DeleteRange(Container, Bound<Vec<u8>>, Bound<Vec<u8>>),
    Default(Container, DefaultTtl),
    ExpireBefore(Container, SystemTime),
    ExpireWrittenBefore(Container, SystemTime),
    ExpireAll(Container),
    KeepExpired(Container, Duration),
    /// With how long what has ended is kept.
    Create(String, DefaultTtl, Duration),
    Drop(String),
}

/// One entry under way: the ops that were asked see what those before them have written.
pub struct Step<'a> {
    open: &'a Arc<Open>,
    containers: &'a Containers,
    place: Place,
    /// The crate itself writes, in containers that no machine writes.
    is_crate: bool,
    /// The format that the log has after it.
    format: u32,
    own: HashMap<Arc<str>, Own>,
    writes: Vec<Write>,
    undo: Vec<(Arc<str>, Vec<u8>, Replaced)>,
    failed: Option<Error>,
}

impl<'a> Step<'a> {
    pub(crate) fn new(open: &'a Arc<Open>, containers: &'a Containers, place: Place) -> Step<'a> {
        Step {
            open,
            containers,
            place,
            is_crate: false,
            format: place.format,
            own: HashMap::new(),
            writes: vec![],
            undo: vec![],
            failed: None,
        }
    }

    /// The time of the entry, by which all is judged.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.place.time_ms)
    }

    /// The index of the entry in the log.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.place.index
    }

    /// Whether there is a container of this name: one that the machine has named, or an earlier entry has made.
    #[must_use]
    pub fn has_container(&self, name: &str) -> bool {
        !is_reserved(name) && self.containers.contains_key(name)
    }

    /// The names of all containers, the crate's own among them, in their order.
    #[must_use]
    pub fn containers(&self) -> Vec<String> {
        let names = self.containers.keys().map(|name| name.to_string());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The state before this entry, judged at its time: for reads that outlive the entry, and decide nothing in the log. It is the
    /// same on all replicas, but for what it costs; a later change of settings may end it.
    pub fn view(&self) -> View {
        View::of(self.open, self.place.time_ms)
    }

    /// The version of the last write of this entry so far, the same on all replicas; before its first, that of the last write
    /// before it. Right after [`Step::put`] it is the version that the item has.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::from_u64(self.place.before.as_u64() + self.writes.len() as u64)
    }

    /// The default ttl, by which items without one of their own end.
    ///
    /// # Errors
    /// As of [`Step::get`].
    pub fn default_ttl(&mut self, container: &str) -> Result<DefaultTtl, StepError> {
        let (_, container) = self.container(container)?;
        Ok(container.default_ttl())
    }

    fn container(&mut self, name: &str) -> Result<(Arc<str>, Container), StepError> {
        match self.containers.get_key_value(name) {
            Some((name, container)) => Ok((name.clone(), container.clone())),
            None => Err(self.no_container(name)),
        }
    }

    fn writable(&mut self, name: &str) -> Result<(Arc<str>, Container), StepError> {
        if is_reserved(name) && !self.is_crate {
            return Err(self.no_container(name));
        }
        self.container(name)
    }

    fn no_container(&mut self, name: &str) -> StepError {
        self.fail(Error::InvalidArgument {
            what: "container name",
            given: name.to_owned(),
            allowed: "one that the machine has named or made (Step::has_container)",
        })
    }

    fn fail(&mut self, error: Error) -> StepError {
        self.failed.get_or_insert(error);
        StepError(Why::Failed)
    }

    fn ask<T>(&mut self, answer: Result<T, Error>) -> Result<T, StepError> {
        answer.map_err(|error| self.fail(error))
    }

    /// A live item. As every read, it is the same on all replicas.
    ///
    /// # Errors
    /// The engine's, which is none of the machine's business, and a container that it has not named.
    pub fn get(
        &mut self,
        container: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Found>, StepError> {
        let (name, container) = self.container(container)?;
        let key = key.as_ref();
        if let Some(own) = self.own.get(&name).and_then(|own| own.get(key)) {
            return Ok(own.clone());
        }
        if key.is_empty() || key.len() > MOST_KEY_BYTES {
            return Ok(None);
        }
        let item = self.ask(container.item(key))?;
        Ok(item.map(Found::of))
    }

    /// The live items of a range, in the order of keys, up to `most` of them.
    ///
    /// # Errors
    /// As of [`Step::get`].
    pub fn range(
        &mut self,
        container: &str,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Vec<(Bytes, Found)>, StepError> {
        let (name, container) = self.container(container)?;
        let (start, end) = (
            range.start().map(<[u8]>::to_vec),
            range.end().map(<[u8]>::to_vec),
        );
        let own = self.own.get(&name).cloned().unwrap_or_default();
        let bounds = (range.start(), range.end());
        let in_range = |key: &Vec<u8>| RangeBounds::<[u8]>::contains(&bounds, &key[..]);
        let mut own = own.iter().filter(|(key, _)| in_range(key)).peekable();
        let mut stored = container.range((start, end));
        let mut next = self.ask(stored.next().transpose())?;
        let mut found = vec![];
        while found.len() < most {
            let own_first = match (own.peek(), &next) {
                (None, None) => break,
                (Some((key, _)), Some(item)) => key[..] <= *item.key(),
                (own, _) => own.is_some(),
            };
            if !own_first {
                let item = next.take().expect("there is one");
                found.push((Bytes::copy_from_slice(item.key()), Found::of(item)));
                next = self.ask(stored.next().transpose())?;
                continue;
            }
            let (key, write) = own.next().expect("there is one");
            if next.as_ref().is_some_and(|item| item.key() == &key[..]) {
                next = self.ask(stored.next().transpose())?;
            }
            found.extend(
                write
                    .clone()
                    .map(|item| (Bytes::copy_from_slice(key), item)),
            );
        }
        Ok(found)
    }

    /// Stores an item. With [`Ttl::Keep`] the countdown of the live item of this key goes on; [`Found::ttl`] and a put restart it.
    ///
    /// # Errors
    /// Key, value or ttl is out of range, which refuses the op; and as of [`Step::get`].
    pub fn put(
        &mut self,
        container: &str,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<(), StepError> {
        let (name, to) = self.writable(container)?;
        let (key, value, ttl) = (
            key.as_ref(),
            Bytes::copy_from_slice(value.as_ref()),
            ttl.into(),
        );
        check_item(key, &value, ttl)?;
        let kept = match ttl {
            Ttl::Keep => self.get(container, key)?,
            _ => None,
        };
        let life = match kept {
            Some(there) => self.life_of(&to, key, &there)?,
            None if ttl == Ttl::Keep => (Ttl::Inherit, self.time(), None),
            None => (ttl, self.time(), None),
        };
        self.store(name, to, key, value, life);
        Ok(())
    }

    /// Stores an item that counts as another one does that is live ([`Ttl::Like`]): from the same moment, by the same ttl. False:
    /// there is no such one, and nothing is stored.
    ///
    /// # Errors
    /// As of [`Step::put`].
    pub fn put_like(
        &mut self,
        container: &str,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        (of, of_key): (&str, &[u8]),
    ) -> Result<bool, StepError> {
        let (name, to) = self.writable(container)?;
        let (key, value) = (key.as_ref(), Bytes::copy_from_slice(value.as_ref()));
        check_item(key, &value, Ttl::Never)?;
        let Some(there) = self.get(of, of_key)? else {
            return Ok(false);
        };
        let (_, of) = self.container(of)?;
        let life = self.life_of(&of, of_key, &there)?;
        self.store(name, to, key, value, life);
        Ok(true)
    }

    /// `goes_on` as of [`Found`].
    fn store(
        &mut self,
        name: Arc<str>,
        to: Container,
        key: &[u8],
        value: Bytes,
        (ttl, since, goes_on): (Ttl, SystemTime, Option<Ttl>),
    ) {
        let found = Found {
            value: value.clone(),
            expires_at: self.end(&to, ttl, since),
            version: None,
            ttl,
            since,
            goes_on,
        };
        let ttl = goes_on.unwrap_or(ttl);
        self.writes.push(Write::Put(to, key.to_vec(), value, ttl));
        let is_live = found.expires_at.is_none_or(|end| end > self.time());
        self.note(name, key, is_live.then_some(found));
    }

    /// The ttl of an item that is there, and from when it counts.
    fn life_of(
        &mut self,
        container: &Container,
        key: &[u8],
        there: &Found,
    ) -> Result<(Ttl, SystemTime, Option<Ttl>), StepError> {
        let goes_on = self.countdown(container, key, there)?;
        Ok((there.ttl, there.since, goes_on))
    }

    /// From when an item that is there counts; none: from this entry's time.
    fn countdown(
        &mut self,
        container: &Container,
        key: &[u8],
        there: &Found,
    ) -> Result<Option<Ttl>, StepError> {
        if there.version.is_none() {
            return Ok(there.goes_on);
        }
        let item = self.ask(container.item(key))?;
        Ok(item.map(|item| Ttl::Like(&item)))
    }

    /// When an item that counts since then is to end.
    fn end(&self, container: &Container, ttl: Ttl, since: SystemTime) -> Option<SystemTime> {
        let default = container.default_ttl();
        let after = |lifetime: Duration| {
            let millis = lifetime.as_nanos().div_ceil(1_000_000) as u64;
            since + Duration::from_millis(millis)
        };
        match (ttl, default) {
            (_, DefaultTtl::Off) => None,
            (Ttl::After(lifetime), _) => Some(after(lifetime)),
            (Ttl::Until(end), _) => {
                let longest = self.time() + Duration::from_secs(LONGEST_SECONDS);
                let millis = end.duration_since(UNIX_EPOCH).unwrap_or_default();
                let end = UNIX_EPOCH
                    + Duration::from_millis(millis.as_nanos().div_ceil(1_000_000) as u64);
                (end <= longest).then_some(end)
            }
            (Ttl::Inherit, DefaultTtl::After(lifetime)) => Some(after(lifetime)),
            _ => None,
        }
    }

    /// Removes an item, whether it is there or not.
    ///
    /// # Errors
    /// As of [`Step::put`].
    pub fn delete(&mut self, container: &str, key: impl AsRef<[u8]>) -> Result<(), StepError> {
        let (name, from) = self.writable(container)?;
        let key = key.as_ref();
        check_item(key, &[], Ttl::Never)?;
        self.writes.push(Write::Delete(from, key.to_vec()));
        self.note(name, key, None);
        Ok(())
    }

    fn note(&mut self, name: Arc<str>, key: &[u8], item: Option<Found>) {
        let own = self.own.entry(name.clone()).or_default();
        let before = own.insert(key.to_vec(), item);
        self.undo.push((name, key.to_vec(), before));
    }

    /// Commands to whole containers. `None` where the op is not alone in its entry
    /// ([`Gather::write_alone`](crate::Gather::write_alone)); refuse it then. Reads go on showing the state before them.
    pub fn commands(&mut self) -> Option<Commands<'_, 'a>> {
        self.place.is_alone.then_some(Commands(self))
    }

    /// Runs an op: if it is refused, nothing of it is left.
    pub(crate) fn run<A>(
        &mut self,
        op: impl FnOnce(&mut Step<'a>) -> Result<A, StepError>,
    ) -> Result<Result<A, Refused>, Error> {
        self.undo.clear();
        let mark = self.writes.len();
        let outcome = op(self);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match outcome {
            Ok(answer) => Ok(Ok(answer)),
            Err(StepError(Why::Refused(why))) => {
                self.take_back(mark);
                Ok(Err(why))
            }
            Err(StepError(Why::Failed)) => unreachable!("the failure is kept"),
        }
    }

    /// Runs what the crate itself writes in its containers.
    pub(crate) fn run_own<A>(
        &mut self,
        own: impl FnOnce(&mut Step<'a>) -> Result<A, StepError>,
    ) -> Result<Result<A, Refused>, Error> {
        self.is_crate = true;
        let outcome = self.run(own);
        self.is_crate = false;
        outcome
    }

    fn take_back(&mut self, mark: usize) {
        self.writes.truncate(mark);
        self.format = self.place.format;
        while let Some((name, key, before)) = self.undo.pop() {
            let own = self.own.entry(name).or_default();
            match before {
                Some(before) => own.insert(key, before),
                None => own.remove(&key),
            };
        }
    }

    /// Whether it makes or drops a container, or sets a quota, which is all that a step writes among the facts.
    pub(crate) fn changes_containers(&self) -> bool {
        let is_one = |write: &Write| match write {
            Write::Create(..) | Write::Drop(_) => true,
            Write::Put(to, ..) | Write::Delete(to, _) => to.name() == FACTS,
            _ => false,
        };
        self.writes.iter().any(is_one)
    }

    /// The format that the log has after this entry.
    pub(crate) fn format(&self) -> u32 {
        self.format
    }

    /// All that was written, as one batch.
    pub(crate) fn into_batch(self) -> Batch {
        let mut batch = Batch::new();
        for write in self.writes {
            match write {
                Write::Put(to, key, value, ttl) => batch.put_with_ttl(to, key, value, ttl),
                Write::Delete(from, key) => batch.delete(from, key),
                Write::DeleteRange(from, start, end) => batch.delete_range(from, (start, end)),
                Write::Default(of, default) => batch.set_default_ttl(of, default),
                Write::ExpireBefore(of, moment) => batch.expire_before(of, moment),
                Write::ExpireWrittenBefore(of, moment) => batch.expire_written_before(of, moment),
                Write::ExpireAll(of) => batch.expire_all(of),
                Write::KeepExpired(of, keep) => batch.set_keep_expired(of, keep),
                Write::Create(name, default, keep) => {
                    let options = ContainerOptions::new().default_ttl(default);
                    batch.create_container(name, options.keep_expired(keep))
                }
                Write::Drop(name) => batch.drop_container(name),
            };
        }
        batch
    }
}
