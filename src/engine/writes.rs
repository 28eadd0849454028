//! What a batch holds: writes, as the bytes that the log will hold, and what is asked of keys before some of them.
//!
//! ```text
//! bytes       op 0        op 1        op 2        op 3
//! conditions        ^ 1: absent k           ^ 3: touch k, ^ 3: ...
//! ```
//!
//! A condition has the place of the write that follows it, so that it sees the writes before it in the batch. A write that
//! takes over the lifetime ([`Demand::Keep`]) or the value ([`Demand::Touch`]) of the item that is there is encoded as a put
//! that inherits, for a touch without a value. The walk replaces it once the key has been read.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::data::batch::Op;
use crate::data::write::Expect;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::relog::make_room;
use crate::engine::state::ContainerState;

/// The most that one batch holds, in bytes.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// What is asked of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// That this holds.
    Expect(Expect),
    /// What the put that follows takes over.
    Keep,
    /// A live item, which is what the put that follows stores.
    Touch,
}

/// What is asked of a key before one of the writes.
#[derive(Clone)]
pub struct Condition {
    /// So many writes come before.
    pub before: usize,
    /// The container's place among those of the batch.
    pub container: usize,
    /// 1 to 65 535 bytes.
    pub key: Box<[u8]>,
    /// What.
    pub demand: Demand,
}

/// The writes of a batch, the containers they go to, and what is asked first.
#[derive(Clone, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    len: usize,
    engine: Option<Arc<Engine>>,
    states: Vec<Arc<ContainerState>>,
    conditions: Vec<Condition>,
    /// Some of the writes change a default.
    sets_defaults: bool,
    durability: Option<Durability>,
}

impl Writes {
    /// Adds one; all must go to the same database.
    pub fn push(
        &mut self,
        engine: &Arc<Engine>,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Result<()> {
        self.check_engine(engine)?;
        /// A batch of one small write needs no more; one that grows from here is copied seldom.
        const LEAST_BYTES: u64 = 4 << 10;
        let before = self.bytes.len();
        let least = if before == 0 { LEAST_BYTES } else { 0 };
        make_room(&mut self.bytes, weight(&op).max(least))?;
        op.encode(&mut self.bytes);
        check_size(&self.bytes).inspect_err(|_| self.bytes.truncate(before))?;
        self.place_of(state);
        self.sets_defaults |= matches!(op, Op::SetDefault { .. });
        self.len += 1;
        Ok(())
    }

    /// Adds what is asked of a key before the next write.
    pub fn demand(
        &mut self,
        engine: &Arc<Engine>,
        state: &Arc<ContainerState>,
        key: &[u8],
        demand: Demand,
    ) -> Result<()> {
        self.check_engine(engine)?;
        let container = self.place_of(state);
        self.conditions.push(Condition {
            before: self.len,
            container,
            key: key.into(),
            demand,
        });
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

    /// How long it may take until they survive a power cut; `None`: as the database has it.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// How many writes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The writes, as the log will hold them but for what is not known yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The database they are for, when there are some.
    pub(super) fn engine(&self) -> Option<&Arc<Engine>> {
        self.engine.as_ref()
    }

    /// The containers they go to.
    pub(super) fn states(&self) -> &[Arc<ContainerState>] {
        &self.states
    }

    /// In the order of the writes that they stand before.
    pub(super) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Nothing is asked, and nothing but items is written.
    pub(super) fn are_plain(&self) -> bool {
        self.conditions.is_empty() && !self.sets_defaults
    }

    /// Some of the writes change a default.
    pub(super) fn set_defaults(&self) -> bool {
        self.sets_defaults
    }

    /// How long it may take until they survive a power cut, if the batch says so.
    pub(super) fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        *self = Writes {
            bytes: std::mem::take(&mut self.bytes),
            ..Writes::default()
        };
        self.bytes.clear();
    }
}

/// A batch is no longer than it may be.
pub(super) fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_BATCH_BYTES {
        let allowed = "up to 1 GiB of keys and values";
        return Err(Error::invalid("batch", "of more bytes", allowed));
    }
    Ok(())
}

/// Bytes of its keys and values.
pub(super) fn weight(op: &Op<'_>) -> u64 {
    match op {
        Op::Put { key, value, .. } => (key.len() + value.len()) as u64,
        Op::Delete { key, .. } => key.len() as u64,
        Op::DeleteRange { from, to, .. } => (from.len() + to.len()) as u64,
        Op::SetDefault { .. } => 0,
    }
}
