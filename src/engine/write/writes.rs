//! The contents of a batch: writes, encoded as the log will hold them, and conditions on keys.
//!
//! ```text
//! bytes       op 0        op 1        op 2        op 3
//! conditions        ^ 1: absent k           ^ 3: touch k, ^ 3: ...
//! ```
//!
//! A condition has the index of the write that follows it, so that it sees the writes before it in the batch. A write
//! that keeps the lifetime ([`Demand::Keep`]) or the value ([`Demand::Touch`]) of the current item is encoded as a put
//! with an inherited ttl, for a touch without a value; one that changes the ttl alone ([`Demand::KeepValue`]), without a
//! value. The walk replaces it once the key has been read. The put to the new key of an item ([`Demand::Rename`]) has
//! neither, and the delete of the old one comes from the walk, too. A write that makes or drops a container has its name, and gets
//! the container's number from the walk.

use std::sync::Arc;

use crate::base::{ContainerId, Countdown, DefaultTtl, Error, Result};
use crate::data::batch::Op;
use crate::data::new_container::{NewContainer, is_name};
use crate::data::write::{Expect, OnMiss, Outcome};
use crate::engine::Engine;
use crate::engine::jobs::relog::make_room;
use crate::engine::options::{ContainerOptions, Durability, OnExisting};
use crate::engine::parts::containers::ContainerSet;
use crate::engine::parts::state::ContainerState;
use crate::expiry::DefaultMillis;
use crate::values::{Compression, Quota};

/// The most bytes in one batch.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// A demand on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// This condition holds.
    Expect(Expect),
    /// The put that follows keeps the lifetime of the live item.
    Keep,
    /// There is a live item; the put that follows keeps its value and its ttl, which counts anew.
    Touch,
    /// There is a live item; the put that follows keeps its value.
    KeepValue,
    /// There is a live item; the put that follows keeps its value and its lifetime, and deletes it where it was.
    Rename,
    /// The put that follows has this lifetime, whatever is there; it is a delete if that has passed.
    Like(Countdown),
}

/// A demand on a key, and its place among the writes.
#[derive(Clone)]
pub struct Condition {
    /// The number of writes before it.
    pub before: usize,
    /// The index of the container in the batch.
    pub container: usize,
    /// 1 to 65 535 bytes.
    pub key: Box<[u8]>,
    /// The demand.
    pub demand: Demand,
    /// The effect on the batch if the demand is not met.
    pub on_miss: OnMiss,
}

/// The writes of a batch, their containers, and the demands on keys.
#[derive(Clone, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    len: usize,
    /// Bytes of the writes' keys and values.
    weight: u64,
    engine: Option<Arc<Engine>>,
    states: Vec<Arc<ContainerState>>,
    conditions: Vec<Condition>,
    /// Whether one of the writes changes what a container is.
    change_state: bool,
    /// The numbers, ascending, of those that go by a container's name and are left out where it does not fit.
    skipped_on_miss: Vec<usize>,
    /// The numbers, ascending, of those that make a container, with the name and the options.
    created: Vec<(usize, String, ContainerOptions)>,
    /// Whether one goes by a name.
    has_names: bool,
    /// Whether a write may be left out: then each has an outcome.
    may_skip: bool,
    durability: Option<Durability>,
}

impl Writes {
    /// Adds a write; all must be to the same database.
    pub fn push(
        &mut self,
        engine: &Arc<Engine>,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Result<()> {
        self.check_engine(engine)?;
        self.add(state, op)
    }

    /// The same where the database is known.
    #[inline(always)]
    pub(in crate::engine) fn add(&mut self, state: &Arc<ContainerState>, op: Op<'_>) -> Result<()> {
        self.encode(op)?;
        self.place_of(state);
        Ok(())
    }

    /// From now on writes may be left out, and each has its outcome told, also where none is.
    pub fn tell_outcomes(&mut self) {
        self.may_skip = true;
    }

    /// Their outcomes where nothing is left out, if they are told.
    pub(in crate::engine) fn all_done(&self) -> Vec<Outcome> {
        let told = if self.may_skip { self.len } else { 0 };
        vec![Outcome::Done; told]
    }

    /// Makes a container of this name.
    pub fn create_container(
        &mut self,
        name: &str,
        options: &ContainerOptions,
        on_miss: OnMiss,
    ) -> Result<()> {
        let new = new_container(name, options, Compression::None)?.encode();
        self.created
            .push((self.len, name.to_owned(), options.clone()));
        self.may_skip |= options.on_existing() == OnExisting::Keep;
        let container = ContainerId(0);
        self.add_named(
            Op::Create {
                container,
                new: &new,
            },
            on_miss,
        )
    }

    /// Drops the container of this name.
    pub fn drop_container(&mut self, name: &str, on_miss: OnMiss) -> Result<()> {
        check_name(name)?;
        let container = ContainerId(0);
        self.add_named(Op::Drop { container, name }, on_miss)
    }

    /// Adds an operation that goes by a container's name: its number is known when it is written.
    fn add_named(&mut self, op: Op<'_>, on_miss: OnMiss) -> Result<()> {
        let at = self.len;
        self.encode(op)?;
        if on_miss == OnMiss::Skip {
            self.skipped_on_miss.push(at);
            self.may_skip = true;
        }
        self.has_names = true;
        Ok(())
    }

    #[inline(always)]
    fn encode(&mut self, op: Op<'_>) -> Result<()> {
        /// A batch of one small write needs no more; a larger batch reallocates rarely.
        const LEAST_BYTES: u64 = 4 << 10;
        let before = self.bytes.len();
        let least = if before == 0 { LEAST_BYTES } else { 0 };
        make_room(&mut self.bytes, weight(&op).max(least))?;
        op.encode(&mut self.bytes);
        check_size(&self.bytes).inspect_err(|_| self.bytes.truncate(before))?;
        self.change_state |= !op.is_record();
        self.len += 1;
        self.weight += weight(&op);
        Ok(())
    }

    /// Adds a demand on a key before the next write.
    pub fn demand(
        &mut self,
        engine: &Arc<Engine>,
        state: &Arc<ContainerState>,
        key: &[u8],
        demand: Demand,
        on_miss: OnMiss,
    ) -> Result<()> {
        self.check_engine(engine)?;
        let container = self.place_of(state);
        self.conditions.push(Condition {
            before: self.len,
            container,
            key: key.into(),
            demand,
            on_miss,
        });
        self.may_skip |= on_miss == OnMiss::Skip;
        Ok(())
    }

    fn check_engine(&mut self, engine: &Arc<Engine>) -> Result<()> {
        match Arc::ptr_eq(self.engine.get_or_insert_with(|| engine.clone()), engine) {
            true => Ok(()),
            false => Err(Error::invalid(
                "batch",
                "over two databases",
                "containers of one database",
            )),
        }
    }

    fn place_of(&mut self, state: &Arc<ContainerState>) -> usize {
        let place = self
            .states
            .iter()
            .position(|there| Arc::ptr_eq(there, state));
        place.unwrap_or_else(|| {
            self.states.push(state.clone());
            self.states.len() - 1
        })
    }

    /// Sets the durability of the batch; `None`: the database's.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the writes' keys and values, except for the parts that the walk fills in.
    pub(in crate::engine) fn weight(&self) -> u64 {
        self.weight
    }

    /// The writes as the log will hold them, except for the parts that the walk fills in.
    pub(in crate::engine) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The batch's database, once it has a container.
    pub(in crate::engine) fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    /// The batch's containers.
    pub(in crate::engine) fn states(&self) -> &[Arc<ContainerState>] {
        &self.states
    }

    /// The conditions, in the order of the writes that follow them.
    pub(in crate::engine) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether the batch only writes items, without demands.
    pub(in crate::engine) fn are_plain(&self) -> bool {
        self.conditions.is_empty() && !self.change_state
    }

    /// Whether one of the writes goes by a container's name.
    pub(in crate::engine) fn has_names(&self) -> bool {
        self.has_names
    }

    /// Whether the write of this number is left out where the name that it goes by does not fit.
    pub(in crate::engine) fn is_skipped_on_miss(&self, at: usize) -> bool {
        self.skipped_on_miss.binary_search(&at).is_ok()
    }

    /// Whether one of the writes changes what a container is, and so waits for a sync.
    pub(in crate::engine) fn change_state(&self) -> bool {
        self.change_state
    }

    /// Whether a write may be left out.
    pub(in crate::engine) fn may_skip(&self) -> bool {
        self.may_skip
    }

    /// The options of the write of this number, which makes a container.
    pub(in crate::engine) fn options_of(&self, at: usize) -> &ContainerOptions {
        let place = self.created.binary_search_by_key(&at, |one| one.0);
        &self.created[place.expect("it makes a container")].2
    }

    /// With the containers whose settings it will change where they exist; none: there are none.
    pub(in crate::engine) fn with_existing(&self, containers: &ContainerSet) -> Option<Writes> {
        if !self.has_names {
            return None;
        }
        let changes =
            |one: &&(usize, String, ContainerOptions)| one.2.on_existing() == OnExisting::Change;
        let named = self.created.iter().filter(changes);
        let states: Vec<_> = named
            .filter_map(|(_, name, _)| containers.get(name))
            .collect();
        (!states.is_empty()).then(|| {
            let mut writes = self.clone();
            for state in &states {
                writes.place_of(state);
            }
            writes
        })
    }

    /// The batch's durability, if it has its own.
    pub(in crate::engine) fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Adds all that another batch has behind what this one has. Where only one of them says how durable it is to be, the
    /// database may say more for the other.
    pub fn append(&mut self, other: &Writes) -> Result<()> {
        if let Some(engine) = &other.engine {
            self.check_engine(engine)?;
        }
        make_room(&mut self.bytes, other.bytes.len() as u64)?;
        let len = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        check_size(&self.bytes).inspect_err(|_| self.bytes.truncate(len))?;
        let places: Vec<usize> = other.states.iter().map(|of| self.place_of(of)).collect();
        let before = self.len;
        let is_new = before == 0 && self.conditions.is_empty();
        let durability = match (self.durability, other.durability) {
            (None, theirs) if is_new => theirs,
            (Some(Durability::Sync), _) | (_, Some(Durability::Sync)) => Some(Durability::Sync),
            (ours, theirs) => ours.filter(|_| ours == theirs),
        };
        let conditions = other.conditions.iter().map(|condition| Condition {
            before: before + condition.before,
            container: places[condition.container],
            ..condition.clone()
        });
        self.conditions.extend(conditions);
        let behind = |at: &usize| before + at;
        self.skipped_on_miss
            .extend(other.skipped_on_miss.iter().map(behind));
        let created = other.created.iter().cloned();
        self.created
            .extend(created.map(|(at, name, options)| (before + at, name, options)));
        self.len += other.len;
        self.weight += other.weight;
        self.change_state |= other.change_state;
        self.has_names |= other.has_names;
        self.may_skip |= other.may_skip;
        self.durability = durability;
        Ok(())
    }

    /// Removes all writes and demands.
    pub fn clear(&mut self) {
        *self = Writes {
            bytes: std::mem::take(&mut self.bytes),
            ..Writes::default()
        };
        self.bytes.clear();
    }
}

/// A container of this name to be made, in a database whose containers are usually compressed so.
pub(in crate::engine) fn new_container<'a>(
    name: &'a str,
    options: &ContainerOptions,
    usual: Compression,
) -> Result<NewContainer<'a>> {
    check_name(name)?;
    let quota = options.quota_over(None);
    quota.iter().try_for_each(Quota::check)?;
    Ok(NewContainer {
        name,
        default: DefaultMillis::from_public(
            options.asked_default_ttl().unwrap_or(DefaultTtl::NoDefault),
        )?,
        compression: options.asked_compression().unwrap_or(usual),
        keep_expired: options.asked_keep_expired().unwrap_or(0),
        quota,
    })
}

/// Fails for a name that no container can have.
pub(in crate::engine) fn check_name(name: &str) -> Result<()> {
    if !is_name(name) {
        let allowed = "1 to 255 bytes of UTF-8 without '/' or NUL";
        return Err(Error::invalid(
            "container name",
            format!("{name:?}"),
            allowed,
        ));
    }
    Ok(())
}

/// Fails if the batch is too large.
pub(in crate::engine) fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_BATCH_BYTES {
        let allowed = "up to 1 GiB of keys and values";
        return Err(Error::invalid("batch", "of more bytes", allowed));
    }
    Ok(())
}

/// Bytes of a write's key and value.
pub(in crate::engine) fn weight(op: &Op<'_>) -> u64 {
    match op {
        Op::Put { key, value, .. } => (key.len() + value.len()) as u64,
        Op::Delete { key, .. } => key.len() as u64,
        Op::DeleteRange { from, to, .. } => (from.len() + to.len()) as u64,
        _ => 0,
    }
}
