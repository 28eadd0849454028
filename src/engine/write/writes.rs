//! The contents of a batch: writes, encoded as the log will hold them, and conditions on keys.
//!
//! ```text
//! bytes       op 0        op 1        op 2        op 3
//! conditions        ^ 1: absent k           ^ 3: touch k, ^ 3: ...
//! ```
//!
//! A condition has the index of the write that follows it, so that it sees the writes before it in the batch. A write
//! that keeps the lifetime ([`Demand::Keep`]) or the value ([`Demand::Touch`]) of the current item is encoded as a put
//! with an inherited ttl, for a touch without a value; one that changes the ttl alone ([`Demand::KeepValue`]) is
//! encoded without a value. The walk replaces it once the key has been read.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::data::batch::Op;
use crate::data::write::{Expect, OnMiss};
use crate::engine::Engine;
use crate::engine::jobs::relog::make_room;
use crate::engine::options::Durability;
use crate::engine::parts::state::ContainerState;

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
    /// Whether one of the writes changes settings.
    change_settings: bool,
    /// Whether a write may be left out.
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
        /// A batch of one small write needs no more; a larger batch reallocates rarely.
        const LEAST_BYTES: u64 = 4 << 10;
        let before = self.bytes.len();
        let least = if before == 0 { LEAST_BYTES } else { 0 };
        make_room(&mut self.bytes, weight(&op).max(least))?;
        op.encode(&mut self.bytes);
        check_size(&self.bytes).inspect_err(|_| self.bytes.truncate(before))?;
        self.place_of(state);
        self.change_settings |= op.of_settings().is_some();
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
        self.conditions.is_empty() && !self.change_settings
    }

    /// Whether one of the writes changes settings.
    pub(in crate::engine) fn change_settings(&self) -> bool {
        self.change_settings
    }

    /// Whether a write may be left out.
    pub(in crate::engine) fn may_skip(&self) -> bool {
        self.may_skip
    }

    /// The batch's durability, if it has its own.
    pub(in crate::engine) fn durability(&self) -> Option<Durability> {
        self.durability
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
        Op::SetDefault { .. } | Op::Expire { .. } => 0,
    }
}
