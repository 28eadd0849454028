//! Writes that are done without waiting, or not at all.
//!
//! They are decided as those that wait are, by the version of what is there. Where the container has indexes by name, whose entries
//! a call that waits writes, and where others write a replica, they would wait.

use std::sync::{Arc, RwLockReadGuard};

use ebbtide::{AtOnce, Version};

use crate::container::{Container, Prepared, conflict, not_found};
use crate::document::Document;
use crate::error::Result;
use crate::etag::Conditions;
use crate::indexes::Indexes;
use crate::partition_key::PartitionKey;

impl Container {
    /// As [`Container::upsert`], without waiting for a file, a lock or a sync. [`AtOnce::WouldWait`]: nothing was done; so
    /// always under [`Durability::Sync`](ebbtide::Durability::Sync).
    ///
    /// # Errors
    /// Those of [`Container::upsert`].
    pub fn try_upsert(
        &self,
        key: &PartitionKey,
        body: &[u8],
        conditions: &Conditions,
    ) -> Result<AtOnce<(Document, bool)>> {
        let prepared = self.prepare(key, body)?;
        if conditions.are_none() {
            return self.try_put_over(prepared);
        }
        self.try_put(prepared, |found| conditions.check(found))
    }

    /// As [`Container::create`], without waiting: see [`Container::try_upsert`].
    ///
    /// # Errors
    /// Those of [`Container::create`].
    pub fn try_create(&self, key: &PartitionKey, body: &[u8]) -> Result<AtOnce<Document>> {
        let is_new = |found: Option<Version>| found.map_or(Ok(()), |_| Err(conflict()));
        Ok(match self.try_put(self.prepare(key, body)?, is_new)? {
            AtOnce::Ready((document, _)) => AtOnce::Ready(document),
            AtOnce::WouldWait => AtOnce::WouldWait,
        })
    }

    /// Writes a document whatever is there, and tells whether nothing was.
    fn try_put_over(&self, prepared: Prepared) -> Result<AtOnce<(Document, bool)>> {
        let Some(_indexes) = self.try_hold() else {
            return Ok(AtOnce::WouldWait);
        };
        let Prepared { key, body, ttl, .. } = &prepared;
        let AtOnce::Ready(put) = self.items().try_upsert(key, body, *ttl)? else {
            return Ok(AtOnce::WouldWait);
        };
        let written = put.written;
        let document = self.written(prepared, written.version(), written.written_at());
        Ok(AtOnce::Ready((document, put.before.is_none())))
    }

    /// The indexes, if a write has nothing to do with them. Held until it is done: an index that is made meanwhile would lack it.
    fn try_hold(&self) -> Option<RwLockReadGuard<'_, Arc<Indexes>>> {
        let held = self.upkeep().try_hold();
        held.filter(|held| !self.is_decided_first(held))
    }

    /// Writes a document if the version of the live one is accepted, and tells whether none was there.
    fn try_put(
        &self,
        prepared: Prepared,
        mut accepts: impl FnMut(Option<Version>) -> Result<()>,
    ) -> Result<AtOnce<(Document, bool)>> {
        let Some(_indexes) = self.try_hold() else {
            return Ok(AtOnce::WouldWait);
        };
        let mut refusal = None;
        let Prepared { key, body, ttl, .. } = &prepared;
        let put = self.items().try_put_if(key, body, *ttl, |found| {
            refusal = accepts(found).err();
            refusal.is_none()
        })?;
        let AtOnce::Ready(put) = put else {
            return Ok(AtOnce::WouldWait);
        };
        let written = put
            .written
            .ok_or_else(|| refusal.unwrap_or_else(not_found))?;
        let document = self.written(prepared, written.version(), written.written_at());
        Ok(AtOnce::Ready((document, put.before.is_none())))
    }
}
