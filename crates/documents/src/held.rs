//! The indexes that a call goes by.
//!
//! ```text
//! a database of its own   those of now; who writes holds them until the entries are committed
//! a replica               those that the snapshot of the call shows; who writes has the version of their record as a condition
//! ```
//!
//! Invariants, of a replica:
//!
//! 1. Each batch that writes documents or entries has the condition, also where there is no record. So all batches before the log
//!    entry that changes the record, of whichever node, go by the indexes of before; all batches after it go by the new ones.
//! 2. The record, the documents and their entries are read at one snapshot. A node that is behind goes by the indexes of its
//!    snapshot, and what it writes by them is a conflict.

use std::ops::Deref;
use std::sync::{Arc, RwLockReadGuard};

use ebbtide::{Bytes, Item, Snapshot, Ttl};

use crate::catalog::CATALOG;
use crate::container::Container;
use crate::error::Result;
use crate::indexes::{Indexes, built_key, record_key};
use crate::store::{Write, Writes};

/// See the file's head.
pub enum Held<'u> {
    Lock(RwLockReadGuard<'u, Arc<Indexes>>),
    Shown(Arc<Indexes>),
}

impl Deref for Held<'_> {
    type Target = Arc<Indexes>;

    fn deref(&self) -> &Arc<Indexes> {
        match self {
            Held::Lock(held) => held,
            Held::Shown(shown) => shown,
        }
    }
}

impl Container {
    /// The indexes for a writer, until this is dropped.
    pub(crate) fn hold(&self) -> Result<Held<'_>> {
        match self.store().is_replica() {
            true => Ok(Held::Shown(self.indexes_at(&self.store().snapshot()?)?)),
            false => Ok(Held::Lock(self.upkeep().hold())),
        }
    }

    /// The same for another try, after a conflict.
    pub(crate) fn hold_on<'u>(&'u self, held: Held<'u>) -> Result<Held<'u>> {
        match held {
            Held::Lock(_) => Ok(held),
            Held::Shown(_) => self.hold(),
        }
    }

    /// The indexes for reads at a snapshot; of a database of its own those of now.
    pub(crate) fn indexes_at(&self, snapshot: &Snapshot) -> Result<Arc<Indexes>> {
        let current = self.upkeep().current();
        if !self.store().is_replica() {
            return Ok(current);
        }
        let record = snapshot.container(CATALOG)?.item(record_key(self.rid()))?;
        if record.as_ref().map(Item::version) == current.version() {
            return Ok(current);
        }
        let shown = Arc::new(Indexes::of_record(record, self.store(), self.rid())?);
        *self.upkeep().hold_all() = shown.clone();
        Ok(shown)
    }

    /// How far the indexes of a replica are built, if they are not whole: see [`built_key`].
    pub(crate) fn built(&self) -> Result<Option<Item>> {
        if !self.store().is_replica() {
            return Ok(None);
        }
        let catalog = self.store().snapshot()?.container(CATALOG)?;
        Ok(catalog.item(built_key(self.rid()))?)
    }

    /// Adds to a batch of a replica that they are built up to this document, where they were as far as `built` says.
    pub(crate) fn note_built(&self, batch: &mut Writes, built: Option<&Item>, up_to: &[u8]) {
        if let Writes::Values(values) = batch {
            let (key, up_to) = (built_key(self.rid()), Bytes::copy_from_slice(up_to));
            let was = built.map(Item::version);
            values.push(Write::Require(CATALOG.to_owned(), key.clone(), was));
            values.push(Write::Put(CATALOG.to_owned(), key, up_to, Ttl::Never));
        }
    }

    /// Adds to a batch of a replica the condition that the indexes are these.
    pub(crate) fn require_indexes(&self, batch: &mut Writes, indexes: &Indexes) {
        if let Writes::Values(values) = batch {
            let (name, key) = (CATALOG.to_owned(), record_key(self.rid()));
            values.push(Write::Require(name, key, indexes.version()));
        }
    }
}
