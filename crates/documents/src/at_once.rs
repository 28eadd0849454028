//! Writes that are done without waiting, or not at all.
//!
//! They are decided as those that wait are, by the version of what is there. Where the container has indexes by name, whose entries
//! a call that waits writes, and where others write a replica, they would wait.

use ebbtide::{AtOnce, Version};

use crate::container::{Container, Prepared, conflict, not_found};
use crate::document::Document;
use crate::error::Result;
use crate::etag::Conditions;
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
        self.try_put(self.prepare(key, body)?, |found| conditions.check(found))
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

    /// Writes a document if the version of the live one is accepted, and tells whether none was there.
    fn try_put(
        &self,
        prepared: Prepared,
        mut accepts: impl FnMut(Option<Version>) -> Result<()>,
    ) -> Result<AtOnce<(Document, bool)>> {
        // Held until the write is done: an index that is made meanwhile would lack it.
        let Some(_indexes) = self
            .upkeep()
            .try_hold()
            .filter(|held| !self.is_decided_first(held))
        else {
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
