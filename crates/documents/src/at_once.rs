//! Writes that are done without waiting, or not at all.
//!
//! The document that is there is read as [`Container::try_read`] reads it, and the write is a batch that relies on it. Where
//! another writes in between, the call would wait: one that waits is judged by what that has written. So it would where the
//! container has indexes by name, whose entries a call that waits writes.

use ebbtide::{AtOnce, Batch, Expect, Item, Written};

use crate::container::{Container, Prepared, conflict};
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
        let judge = |found: Option<&Item>| conditions.check(found.map(Item::version));
        self.try_put(self.prepare(key, body)?, judge)
    }

    /// As [`Container::create`], without waiting: see [`Container::try_upsert`].
    ///
    /// # Errors
    /// Those of [`Container::create`].
    pub fn try_create(&self, key: &PartitionKey, body: &[u8]) -> Result<AtOnce<Document>> {
        let judge = |found: Option<&Item>| found.map_or(Ok(()), |_| Err(conflict()));
        Ok(match self.try_put(self.prepare(key, body)?, judge)? {
            AtOnce::Ready((document, _)) => AtOnce::Ready(document),
            AtOnce::WouldWait => AtOnce::WouldWait,
        })
    }

    /// Writes a document, and tells whether none was there.
    fn try_put(
        &self,
        prepared: Prepared,
        judge: impl FnOnce(Option<&Item>) -> Result<()>,
    ) -> Result<AtOnce<(Document, bool)>> {
        let (items, key) = (self.items(), &prepared.key);
        // Held until the write is done: an index that is made meanwhile would lack it.
        let Some(_indexes) = self
            .upkeep()
            .try_hold()
            .filter(|held| !self.is_decided_first(held))
        else {
            return Ok(AtOnce::WouldWait);
        };
        let AtOnce::Ready(found) = items.try_item(key)? else {
            return Ok(AtOnce::WouldWait);
        };
        judge(found.as_ref())?;
        let expect = found
            .as_ref()
            .map_or(Expect::Absent, |item| Expect::Version(item.version()));
        let mut batch = Batch::new();
        batch.require(items, key, expect);
        batch.put_with_ttl(items, key, prepared.body.clone(), prepared.ttl);
        let written: Written = match self.engine().try_write(&batch) {
            Ok(AtOnce::Ready(written)) => written,
            Ok(AtOnce::WouldWait) => return Ok(AtOnce::WouldWait),
            Err(error) if error.is_conflict() => return Ok(AtOnce::WouldWait),
            Err(error) => return Err(error.into()),
        };
        let document = self.written(prepared, written.version(), written.written_at());
        Ok(AtOnce::Ready((document, found.is_none())))
    }
}
