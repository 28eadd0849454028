//! Writes of one document, and the deletion of all documents of a partition key; and of their entries in the indexes by name.

use ebbtide::{Expect, Item, Update, Version};

use crate::container::{Container, Prepared, not_found};
use crate::error::{Error, Result};
use crate::etag::Conditions;
use crate::held::Held;
use crate::indexes::Indexes;
use crate::partition_key::{PartitionKey, mismatch};
use crate::store::{Commit, Committed};

/// How often a write is tried where others write the same document.
const TRIES: u32 = 256;

impl Container {
    /// Does what is decided of the live item of a key, atomically; returns it, and what was written.
    pub(crate) fn write(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Result<Update>,
    ) -> Result<(Option<Item>, Committed)> {
        let indexes = self.hold()?;
        if self.is_decided_first(&indexes) {
            return self.write_with_entries(indexes, key, decide);
        }
        let mut refusal = None;
        let updated = self.items().fetch_update(key, |found| {
            // It may be asked again: what counts is the last answer.
            refusal = None;
            decide(found).unwrap_or_else(|refused| {
                refusal = Some(refused);
                Update::Keep
            })
        })?;
        match (updated.written, refusal) {
            (Some(written), None) => Ok((updated.before, written.into())),
            (_, refusal) => Err(refusal.unwrap_or_else(not_found)),
        }
    }

    /// Writes a document if the conditions hold of the live one; returns the version of that, and what was written.
    pub(crate) fn put(
        &self,
        prepared: &Prepared,
        conditions: &Conditions,
    ) -> Result<(Option<Version>, Committed)> {
        if conditions.are_none() && !self.store().is_replica() {
            let indexes = self.hold()?;
            if !self.is_decided_first(&indexes) {
                let Prepared { key, body, ttl, .. } = prepared;
                let put = self.items().upsert(key, body, *ttl)?;
                return Ok((put.before, put.written.into()));
            }
        }
        self.put_if(prepared, |found| conditions.check(found))
    }

    /// Writes a document if the version of the live one is accepted; returns that version, and what was written.
    pub(crate) fn put_if(
        &self,
        prepared: &Prepared,
        mut accepts: impl FnMut(Option<Version>) -> Result<()>,
    ) -> Result<(Option<Version>, Committed)> {
        let indexes = self.hold()?;
        if self.is_decided_first(&indexes) {
            // Its entries are told by its value.
            let decide = |found: Option<&Item>| {
                accepts(found.map(Item::version))?;
                Ok(prepared.put())
            };
            let (before, written) = self.write_with_entries(indexes, &prepared.key, decide)?;
            return Ok((before.map(|before| before.version()), written));
        }
        let mut refusal = None;
        let Prepared { key, body, ttl, .. } = prepared;
        let put = self.items().put_if(key, body, *ttl, |found| {
            // It may be asked again: what counts is the last answer.
            refusal = accepts(found).err();
            refusal.is_none()
        })?;
        match put.written {
            Some(written) => Ok((put.before, written.into())),
            None => Err(refusal.unwrap_or_else(not_found)),
        }
    }

    /// Whether a write is decided by what was read, and done under the condition that it stands still: one with entries of
    /// indexes, and each where others write a replica of the same.
    pub(crate) fn is_decided_first(&self, indexes: &Indexes) -> bool {
        indexes.entries().is_some() || self.store().is_replica()
    }

    /// The same with the entries of indexes.
    fn write_with_entries<'u>(
        &'u self,
        mut indexes: Held<'u>,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Result<Update>,
    ) -> Result<(Option<Item>, Committed)> {
        let mut tries = 1;
        loop {
            let found = self.store().item(self.items(), key)?;
            let mut batch = self.store().writes();
            self.require_indexes(&mut batch, &indexes);
            let expect = found
                .as_ref()
                .map_or(Expect::Absent, |item| Expect::Version(item.version()));
            batch.require(self.items(), key, expect);
            let before = found.as_ref().map(|item| &item.value()[..]);
            // The document is the last write of the batch, whose version is the batch's.
            match (decide(found.as_ref())?, before) {
                (Update::Write(body, ttl), _) => {
                    indexes.change(&mut batch, key, before, Some((&body, ttl)));
                    batch.put(self.items(), key, &body, ttl);
                }
                (Update::Expire(ttl), Some(body)) => {
                    indexes.change(&mut batch, key, before, Some((body, ttl)));
                    batch.expire(self.items(), key, ttl);
                }
                (Update::Delete, Some(_)) => {
                    indexes.change(&mut batch, key, before, None);
                    batch.delete(self.items(), key);
                }
                _ => return Err(not_found()),
            }
            match self.store().commit(&batch)? {
                Commit::Done(written) => {
                    self.sweep(&indexes);
                    return Ok((found, written));
                }
                Commit::Conflict if tries < TRIES => {
                    tries += 1;
                    std::thread::yield_now();
                    indexes = self.hold_on(indexes)?;
                }
                Commit::Conflict => return Err(contended(self.items(), key)),
            }
        }
    }

    /// Deletes the documents of a partition key, or of a prefix of one, at once, however many there are.
    ///
    /// # Errors
    /// [`BadRequest`](crate::ErrorKind::BadRequest): no partition key of this container.
    pub fn delete_partition(&self, key: &PartitionKey) -> Result<()> {
        if key.parts().is_empty() {
            return Err(mismatch());
        }
        let (mut indexes, range) = (self.hold()?, self.range_of(key)?);
        if !self.is_decided_first(&indexes) {
            return Ok(self.items().delete_range(range)?);
        }
        let mut tries = 1;
        let (version, mut items) = loop {
            // All that is in the range at the commit goes with it, so these entries may. The sweep finds those of what is
            // written meanwhile, and what a crash leaves of the rest.
            let documents = self.store().view(&self.store().snapshot()?, self.items())?;
            let mut items = documents.range(range.clone());
            let mut batch = self.store().writes();
            self.require_indexes(&mut batch, &indexes);
            batch.delete_range(self.items(), range.clone());
            for of in self.next_step(&indexes, &mut items)? {
                of.delete(&mut batch, &indexes);
            }
            match self.store().commit(&batch)? {
                Commit::Done(_) => break (indexes.version(), items),
                Commit::Conflict if tries < TRIES => tries += 1,
                Commit::Conflict => return Err(contended(self.items(), &key.encode())),
            }
            indexes = self.hold_on(indexes)?;
        };
        drop(indexes);
        loop {
            // A change of the indexes does not wait for all of it.
            let indexes = self.hold()?;
            let step = self.next_step(&indexes, &mut items)?;
            if step.is_empty() || indexes.version() != version {
                return Ok(());
            }
            // Where one is a conflict, somebody has created it anew, with the entries of now.
            self.in_parts(&indexes, &step, |batch, part| {
                for of in part {
                    batch.require(self.items(), of.item.key(), Expect::Absent);
                    of.delete(batch, &indexes);
                }
            })?;
        }
    }
}

/// The error of a write before which others were too often.
pub(crate) fn contended(items: &ebbtide::Container, key: &[u8]) -> Error {
    let (container, key) = (items.name().to_owned(), key.to_vec());
    ebbtide::Error::Conflict { container, key }.into()
}
