//! The reads and writes of a transaction, as one.
//!
//! Invariant: a key that the transaction has not written is read from the snapshot, and the read set knows it; a key
//! that it has written is not read.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Countdown, Result, Timestamp};
use crate::data::batch::{KeyRange, WriteTtl};
use crate::data::item::{Item, Pair};
use crate::data::own_writes::{OwnPut, OwnWrite, OwnWrites};
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::state::ContainerState;
use crate::engine::write::read_set::ReadSet;
use crate::engine::write::writes::Writes;

pub mod iter;

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

    /// The item of a key, and the own write that it is of.
    pub fn item(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
    ) -> Result<(Option<Item>, Option<WriteTtl>)> {
        let place = self.read_set.touch(engine, state, key)?;
        match self
            .own(state)
            .map_or(OwnWrite::Unwritten, |own| own.get(key))
        {
            OwnWrite::Unwritten => Ok((self.read_set.read(engine, place, key)?, None)),
            OwnWrite::Deleted => Ok((None, None)),
            OwnWrite::Put(put) => {
                let item = self.own_item(engine, place, key, &put)?;
                Ok((item, Some(put.ttl)))
            }
        }
    }

    /// The lifetime of a new value; for `Keep` the item in its place is read.
    fn ttl_over(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        ttl: WriteTtl,
    ) -> Result<WriteTtl> {
        if ttl != WriteTtl::Keep {
            return Ok(ttl);
        }
        Ok(match self.item(engine, state, key)? {
            (None, _) => WriteTtl::Absent,
            (Some(_), Some(own)) => own,
            (Some(item), None) => {
                let (written_at, ttl) = item.countdown();
                WriteTtl::Kept { written_at, ttl }
            }
        })
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
    pub fn is_in_conflict(&self) -> bool {
        self.read_set.is_in_conflict()
    }

    /// The moment by which all reads are judged.
    pub fn now(&self) -> Timestamp {
        self.read_set.now()
    }

    /// Says how durable the commit is to be.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// Stores an item, if that is as `is_there` says: a live one has the key, or none has. False: it is not so, and nothing
    /// was written.
    pub fn put(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        OwnPut { ttl, value }: OwnPut,
        is_there: Option<bool>,
    ) -> Result<bool> {
        self.read_set.check(engine, state)?;
        if let Some(is_there) = is_there
            && self.item(engine, state, key)?.0.is_some() != is_there
        {
            return Ok(false);
        }
        let ttl = match ttl {
            WriteTtl::Like(countdown) => self.ttl_like(engine, state, key, countdown)?,
            ttl => Some(self.ttl_over(engine, state, key, ttl)?),
        };
        match ttl {
            Some(ttl) => self.own_mut(state).put(key, OwnPut { ttl, value }),
            None => self.own_mut(state).delete(key),
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
        let value = item.into_value().into_bytes();
        self.own_mut(state).put(key, OwnPut { ttl, value });
        Ok(true)
    }

    /// Deletes a key without reading it.
    pub fn delete(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
    ) -> Result<()> {
        self.read_set.check(engine, state)?;
        self.own_mut(state).delete(key);
        Ok(())
    }

    /// Deletes the keys of a range without reading them.
    pub fn delete_range(
        &mut self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        range: KeyRange,
    ) -> Result<()> {
        self.read_set.check(engine, state)?;
        if !range.is_empty() {
            self.own_mut(state).delete_range(range);
        }
        Ok(())
    }

    /// Writes all of it, if all that was read still holds.
    pub fn commit(mut self, engine: &Arc<Engine>) -> Result<Written> {
        let mut writes = Writes::default();
        if let Some(durability) = self.durability {
            writes.set_durability(durability);
        }
        for (state, own) in &self.own {
            for op in own.ops(state.id()) {
                writes.push(engine, state, op)?;
            }
        }
        engine.commit_transaction(&mut self.read_set, &writes)
    }
}
