//! The upkeep of indexes: building those that are not whole, and sweeping entries that are of no document.
//!
//! ```text
//! build    some documents, by key ── each as it was read? ── their entries, with their lifetimes ──> the next ones
//!          at the end: the index is whole, in the catalog
//!          over a replica each step notes how far it is, and another node goes on there where the builder is lost
//! sweep    with each 128th write, or each 4th one while it finds some: 16 entries for each index
//!          ── none of their documents, or another value ── is it so still? ── delete
//! ```
//!
//! Invariants:
//!
//! 1. Who builds or sweeps holds the indexes from reading a document to writing its entries, as a writer does; and writes
//!    under the condition that the document is as it was read. So no entry is added that the document has not, and none is
//!    deleted that it has.
//! 2. A document that the builder does not meet as it was has been written since the indexes are those of now, and has its
//!    entries; or it is gone.
//! 3. Over a replica a step is done if the one before it is the last that was: of two that build, one gives up. Where it begins, and
//!    what it finds, is of a snapshot with the record of the indexes; so all that it passes over was written since, or is behind it.
//! 4. Of each document that was written one entry in each index at most is left without it. While the sweep finds such, it looks at
//!    four in each index for each write: so they do not become more than those with documents, as long as somebody
//!    writes. Where nobody does, they stay until their own end.

use std::ops::Bound;

use ebbtide::{Durability, Expect, Item, Ttl, Version};

use crate::container::Container;
use crate::entry;
use crate::error::Result;
use crate::indexes::Indexes;
use crate::key_range::KeyRange;
use crate::store::{Commit, Writes};

/// Documents of a step of the builder, and their bytes. With 32 indexes these are 8 448 writes and conditions, and one document has
/// entries of some 250 KB at most: a batch of a cluster takes 10 000 and 4 MiB.
const STEP: usize = 256;
const STEP_BYTES: usize = 1 << 20;
/// An entry in a batch of a replica is its key, that of the document, and at most this: two names, lengths, a variant.
const IN_BATCH: usize = 96;
/// A step of the sweep looks at so many entries for each index.
const SWEEP: usize = 16;
/// It comes with so many writes; and with these where the last one has found something.
const SWEEP_EVERY: u32 = 128;
const SWEEP_SOON: u32 = 4;

/// A document, and its entries in the indexes.
pub struct Indexed {
    pub item: Item,
    entries: Vec<Vec<u8>>,
}

impl Indexed {
    /// Adds to a batch that its entries go.
    pub fn delete(&self, batch: &mut Writes, indexes: &Indexes) {
        for entry in &self.entries {
            indexes
                .entries()
                .into_iter()
                .for_each(|from| batch.delete(from, entry));
        }
    }
}

impl Container {
    /// The next documents of some, as many as one batch takes with their entries; none where there are no indexes.
    pub(crate) fn next_step(
        &self,
        indexes: &Indexes,
        items: &mut ebbtide::Iter,
    ) -> Result<Vec<Indexed>> {
        let (mut step, mut bytes) = (vec![], 0);
        while indexes.entries().is_some() && step.len() < STEP && bytes < STEP_BYTES {
            let Some(item) = items.next().transpose()? else {
                break;
            };
            let entries = indexes.entries_of(item.key(), item.value());
            // An entry in a batch of a replica names the document, too.
            let in_batch = |entry: &Vec<u8>| entry.len() + item.key().len() + IN_BATCH;
            bytes += item.value().len() + entries.iter().map(in_batch).sum::<usize>();
            step.push(Indexed { item, entries });
        }
        Ok(step)
    }

    /// Writes for a step in one batch; where that is a conflict, in smaller ones, of which those of one document may be
    /// conflicts. True: it was one.
    pub(crate) fn in_parts(
        &self,
        indexes: &Indexes,
        step: &[Indexed],
        fill: impl Fn(&mut Writes, &[Indexed]),
    ) -> Result<bool> {
        let (mut parts, mut is_one) = (vec![step], true);
        while let Some(part) = parts.pop() {
            let mut batch = self.store().writes();
            batch.durability(Durability::Buffered);
            self.require_indexes(&mut batch, indexes);
            fill(&mut batch, part);
            if self.store().commit(&batch)? == Commit::Conflict {
                is_one = false;
                if part.len() > 1 {
                    let (first, rest) = part.split_at(part.len() / 2);
                    parts.extend([rest, first]);
                }
            }
        }
        Ok(is_one)
    }

    /// Adds the entries that documents lack. False: the indexes have changed meanwhile, or another node is at it.
    pub(crate) fn add_missing(&self, indexes: &Indexes) -> Result<bool> {
        let mut from = Bound::Unbounded;
        loop {
            let held = self.hold()?;
            if held.version() != indexes.version() {
                return Ok(false);
            }
            let built = self.built()?;
            if let Some(built) = &built {
                from = Bound::Excluded(built.value().to_vec());
            }
            let to = Bound::Unbounded;
            let mut items = self.store().range(self.items(), KeyRange { from, to })?;
            let step = self.next_step(&held, &mut items)?;
            let Some(last) = step.last() else {
                return Ok(true);
            };
            from = Bound::Excluded(last.item.key().to_vec());
            if !self.add(&held, &step, built.as_ref())? {
                return Ok(false);
            }
        }
    }

    fn add(&self, indexes: &Indexes, step: &[Indexed], built: Option<&Item>) -> Result<bool> {
        let (Some(entries), Some(last)) = (indexes.entries(), step.last()) else {
            return Ok(true);
        };
        let require = |batch: &mut Writes, item: &Item| {
            batch.require(self.items(), item.key(), Expect::Version(item.version()));
        };
        // The record that they are whole is durable after all of them.
        let is_one = self.in_parts(indexes, step, |batch, part| {
            for Indexed { item, entries: own } in part {
                require(batch, item);
                own.iter()
                    .for_each(|entry| batch.put_like(entries, entry, self.items(), item));
            }
            if part.len() == step.len() {
                self.note_built(batch, built, last.item.key());
            }
        })?;
        if self.store().is_replica() {
            if is_one {
                return Ok(true);
            }
            let mut batch = self.store().writes();
            self.require_indexes(&mut batch, indexes);
            self.note_built(&mut batch, built, last.item.key());
            return Ok(self.store().commit(&batch)? != Commit::Conflict);
        }
        for Indexed { item, entries: own } in step {
            // An earlier default of the entries' container may have ended such a lifetime, if the clock went back. Then the
            // entry has a ttl of its own, which does not follow later defaults.
            for entry in own {
                let ttl = entries.item(entry)?.map(|entry| entry.ttl());
                if ttl != Some(item.ttl()) {
                    let mut batch = self.store().writes();
                    batch.durability(Durability::Buffered);
                    require(&mut batch, item);
                    own.iter()
                        .for_each(|entry| batch.put(entries, entry, b"", Ttl::Never));
                    self.store().commit(&batch)?;
                    break;
                }
            }
        }
        Ok(true)
    }

    /// A step of the sweep, where it is due. It goes with a write that is done, and its errors are none of that: what it
    /// leaves is found again.
    pub(crate) fn sweep(&self, indexes: &Indexes) {
        let (Some(entries), Some(mut sweep)) = (indexes.entries(), self.upkeep().try_sweep())
        else {
            return;
        };
        let Some(left) = sweep.writes.checked_sub(1) else {
            sweep.writes = SWEEP_EVERY;
            return;
        };
        sweep.writes = left;
        if left > 0 {
            return;
        }
        let most = SWEEP * indexes.list().len();
        let from = match sweep.after.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(std::mem::take(&mut sweep.after)),
        };
        let to = Bound::Unbounded;
        let (mut looked, mut batch) = (0, self.store().writes());
        let Ok(keys) = self.store().keys(entries, KeyRange { from, to }) else {
            return;
        };
        for entry in keys.take(most) {
            let Ok(entry) = entry else { break };
            looked += 1;
            sweep.after = entry.to_vec();
            if let Ok(Some((key, version))) = self.without_document(indexes, &entry) {
                let expect = version.map_or(Expect::Absent, Expect::Version);
                batch.require(self.items(), key, expect);
                batch.delete(entries, &entry);
            }
        }
        if looked < most {
            sweep.after.clear();
        }
        sweep.writes = SWEEP_EVERY;
        if !batch.is_empty() {
            sweep.writes = SWEEP_SOON;
            self.require_indexes(&mut batch, indexes);
            let _ = self.store().commit(&batch);
        }
    }

    /// The key of an entry's document and its version, where it has no such entry.
    fn without_document<'e>(
        &self,
        indexes: &Indexes,
        entry: &'e [u8],
    ) -> Result<Option<(&'e [u8], Option<Version>)>> {
        let Some((_, _, key)) = entry::decoded(entry) else {
            return Ok(None);
        };
        let Some(item) = self.store().item(self.items(), key)? else {
            return Ok(Some((key, None)));
        };
        let own = indexes.entries_of(key, item.value());
        let is_own = own.iter().any(|own| own == entry);
        Ok((!is_own).then(|| (key, Some(item.version()))))
    }
}
