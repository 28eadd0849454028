//! The reads and writes of a transaction, as one.
//!
//! Invariant: a key that the transaction has not written is read from the snapshot, and the read set knows it; a key
//! that it has written is not read.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Countdown, Result, Timestamp};
use crate::data::batch::{KeyRange, Op, WriteTtl};
use crate::data::item::{Item, Pair};
use crate::data::own_writes::{OwnPut, OwnWrite, OwnWrites};
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::random::Drawn;
use crate::engine::write::deciding::{check_keys, check_op};
use crate::engine::write::read_set::ReadSet;
use crate::engine::write::update::UpdateAction;
use crate::engine::write::writes::Writes;

pub mod iter;

/// The live item of a key; and, if the transaction has written it, the ttl that it gave it.
pub type Found = (Option<Item>, Option<WriteTtl>);

/// See the file's head.
pub struct TransactionState {
    /// Its reads.
    read_set: ReadSet,
    /// Its writes, a container each.
    own: Vec<(Arc<ContainerState>, OwnWrites)>,
    /// How durable the commit is to be; `None`: as the database has it.
    durability: Option<Durability>,
}

impl TransactionState {
    /// Nothing was read and nothing written; begins now.
    pub fn new(engine: &Engine) -> TransactionState {
        TransactionState {
            read_set: ReadSet::new(engine),
            own: vec![],
            durability: None,
        }
    }

    /// See [`ReadSet::count_every_write`].
    pub fn count_every_write(&mut self) {
        self.read_set.count_every_write();
    }

    /// The writes to a container.
    fn own(&self, state: &Arc<ContainerState>) -> Option<&OwnWrites> {
        let mut own = self.own.iter();
        let own = own.find(|(of, _)| Arc::ptr_eq(of, state));
        own.map(|(_, writes)| writes)
    }

    /// The same, to write more.
    fn own_mut(&mut self, state: &Arc<ContainerState>) -> &mut OwnWrites {
        let mut own = self.own.iter();
        let place = own.position(|(of, _)| Arc::ptr_eq(of, state));
        let place = place.unwrap_or_else(|| {
            self.own.push((state.clone(), OwnWrites::default()));
            self.own.len() - 1
        });
        &mut self.own[place].1
    }

    /// The item that an own write shows now, in a container that was touched.
    fn own_item(
        &mut self,
        engine: &Engine,
        place: usize,
        key: &[u8],
        put: &OwnPut,
    ) -> Result<Option<Item>> {
        let view = self.read_set.view(place);
        let header = put.header(view.now);
        if view.dead(&header) {
            return Ok(None);
        }
        let life = view.settings.life(&header);
        let pair = Pair::new(Bytes::copy_from_slice(key), put.value.clone());
        let item = Item::new(pair, &header, life, view.now);
        // Any other end moves with the stamp, or is that of an item that was read.
        if let WriteTtl::Until(_) = put.ttl {
            self.read_set.found(engine, place, key, item.end())?;
        }
        Ok(Some(item))
    }

    /// The item of a key, and the ttl of the own write that it is of.
    pub fn item(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
    ) -> Result<Found> {
        let place = self.read_set.touch(engine, state, key)?;
        match self.own_write(state, key) {
            OwnWrite::Unwritten => Ok((self.read_set.read(engine, place, key)?, None)),
            OwnWrite::Deleted => Ok((None, None)),
            OwnWrite::Put(put) => {
                let item = self.own_item(engine, place, key, &put)?;
                Ok((item, Some(put.ttl)))
            }
        }
    }

    /// The last write of a key.
    #[inline]
    pub fn own_write(&self, state: &Arc<ContainerState>, key: &[u8]) -> OwnWrite {
        let own = self.own(state);
        own.map_or(OwnWrite::Unwritten, |own| own.get(key))
    }

    /// Whether a container was written to.
    pub fn has_written(&self, state: &Arc<ContainerState>) -> bool {
        self.own(state).is_some_and(|own| !own.is_empty())
    }

    /// An item of a container that was not written to, by chance. `chance` returns a number below the given one.
    pub fn draw(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        chance: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Option<Item>> {
        let place = self.read_set.touch(engine, state, &[])?;
        match self.read_set.draw(engine, place, chance)? {
            Drawn::Item(item) => self.read_set.read(engine, place, item.key()),
            Drawn::Nothing | Drawn::Rare => Ok(None),
        }
    }

    /// The lifetime of a new value that is to live like another item; `None`: that life has passed.
    fn ttl_like(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        countdown: Countdown,
    ) -> Result<Option<WriteTtl>> {
        let place = self.read_set.touch(engine, state, key)?;
        self.read_set.like(engine, place, key, countdown)
    }

    /// Whether it has met a conflict, and cannot be committed.
    #[inline]
    pub fn is_in_conflict(&self) -> bool {
        self.read_set.is_in_conflict()
    }

    /// The moment by which all reads are judged.
    pub fn now(&self) -> Timestamp {
        self.read_set.now()
    }

    /// Fails if this container cannot be used.
    pub fn check(&self, engine: &Engine, state: &ContainerState) -> Result<()> {
        self.read_set.check(engine, state)
    }

    /// Forgets all writes.
    pub fn rollback(&mut self) {
        self.own.clear();
    }

    /// Says how durable the commit is to be.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// Writes without reading.
    #[inline]
    pub fn write(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Result<()> {
        self.read_set.check(engine, state)?;
        check_op(state, &op)?;
        let own = self.own_mut(state);
        match op {
            Op::Put {
                ttl, key, value, ..
            } => {
                let value = Bytes::copy_from_slice(value);
                own.put(key, OwnPut { ttl, value });
            }
            Op::Delete { key, .. } => own.delete(key),
            Op::DeleteRange { from, to, .. } => own.delete_range(KeyRange::of_bounds(from, to)),
            Op::Expire { .. } => own.expire_all(),
            _ => unreachable!("a transaction changes no container"),
        }
        Ok(())
    }

    /// Does to a key what was decided of what was found. Tells whether something was written.
    #[inline]
    pub fn act(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        (item, own_ttl): &Found,
        action: UpdateAction<'_>,
    ) -> Result<bool> {
        let put = match action {
            UpdateAction::Keep => return Ok(false),
            UpdateAction::Delete if item.is_none() => return Ok(false),
            UpdateAction::Delete => None,
            UpdateAction::Put(value, ttl) => {
                let ttl = match (ttl, item, own_ttl) {
                    (WriteTtl::Keep, None, _) => Some(WriteTtl::Absent),
                    (WriteTtl::Keep, Some(_), Some(own)) => Some(*own),
                    (WriteTtl::Keep, Some(item), None) => {
                        let (written_at, ttl) = item.countdown();
                        Some(WriteTtl::Kept { written_at, ttl })
                    }
                    (WriteTtl::Like(countdown), ..) => {
                        self.ttl_like(engine, state, key, countdown)?
                    }
                    (ttl, ..) => Some(ttl),
                };
                let value = value.into_bytes();
                ttl.map(|ttl| OwnPut { ttl, value })
            }
        };
        check_keys(state, |decided| decided == key)?;
        let own = self.own_mut(state);
        match put {
            Some(put) => own.put(key, put),
            None => own.delete(key),
        }
        Ok(true)
    }

    /// Restarts the countdown of a live item. False: there is none.
    pub fn touch(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
    ) -> Result<bool> {
        let (Some(item), ttl) = self.item(engine, state, key)? else {
            return Ok(false);
        };
        let ttl = match ttl {
            Some(WriteTtl::Kept { ttl, .. }) => ttl.into(),
            Some(ttl) => ttl,
            None => item.stored_ttl().into(),
        };
        check_keys(state, |decided| decided == key)?;
        let value = item.into_value().into_bytes();
        self.own_mut(state).put(key, OwnPut { ttl, value });
        Ok(true)
    }

    /// Writes all of it, if all that was read still holds.
    pub fn commit(mut self, engine: &Arc<Engine>) -> Result<Written> {
        let mut writes = Writes::default();
        if let Some(durability) = self.durability {
            writes.set_durability(durability);
        }
        for (state, own) in &self.own {
            own.each_op(state.id(), |op| writes.push(engine, state, op))?;
        }
        engine.commit_transaction(&mut self.read_set, &writes)
    }
}
