//! The reads and writes of a transaction, as one.
//!
//! Invariant: a key that the transaction has not written is read from the snapshot, and the read set knows it; a key
//! that it has written is not read.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::Result;
use crate::data::batch::WriteTtl;
use crate::data::item::{Item, Pair};
use crate::data::own_writes::{OwnPut, OwnWrite, OwnWrites};
use crate::engine::options::Durability;
use crate::engine::{ContainerState, Handle, ReadSet};

/// See the file's head.
pub struct TransactionState {
    /// Its reads.
    pub read_set: ReadSet,
    /// Its writes, a container each.
    pub own: Vec<(Arc<ContainerState>, OwnWrites)>,
    /// How durable the commit is to be; `None`: as the database has it.
    pub durability: Option<Durability>,
}

impl TransactionState {
    /// Nothing was read and nothing written; begins now.
    pub fn new(engine: &Handle) -> TransactionState {
        TransactionState {
            read_set: ReadSet::new(engine),
            own: vec![],
            durability: None,
        }
    }

    /// The writes to a container.
    pub fn own(&self, state: &Arc<ContainerState>) -> Option<&OwnWrites> {
        let mut own = self.own.iter();
        let own = own.find(|(of, _)| Arc::ptr_eq(of, state));
        own.map(|(_, writes)| writes)
    }

    /// The same, to write more.
    pub fn own_mut(&mut self, state: &Arc<ContainerState>) -> &mut OwnWrites {
        let mut own = self.own.iter();
        let place = own.position(|(of, _)| Arc::ptr_eq(of, state));
        let place = place.unwrap_or_else(|| {
            self.own.push((state.clone(), OwnWrites::default()));
            self.own.len() - 1
        });
        &mut self.own[place].1
    }

    /// The item that an own write shows now, in a container that was touched.
    pub fn own_item(
        &mut self,
        engine: &Handle,
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
        engine: &Handle,
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
    pub fn ttl_over(
        &mut self,
        engine: &Handle,
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
}
