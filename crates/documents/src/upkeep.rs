//! The upkeep of indexes: building those that are not whole, and sweeping entries that are of no document.
//!
//! ```text
//! build    some documents, by key ── each as it was read? ── their entries, with their lifetimes ──> the next ones
//!          at the end: the index is whole, in the catalog
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
//! 3. Of each document that was written one entry in each index at most is left without it. While the sweep finds such, it looks at
//!    four in each index for each write: so they do not become more than those with documents, as long as somebody
//!    writes. Where nobody does, they stay until their own end.

use std::ops::Bound;
use std::sync::Arc;

use ebbtide::{Batch, Durability, Expect, Item, Ttl, Version};

use crate::container::Container;
use crate::entry;
use crate::error::Result;
use crate::indexes::Indexes;
use crate::key_range::KeyRange;
use crate::store::{Commit, Writes};

/// Documents of a step of the builder, and their bytes.
const STEP: usize = 256;
const STEP_BYTES: usize = 1 << 20;
/// A step of the sweep looks at so many entries for each index.
const SWEEP: usize = 16;
/// It comes with so many writes; and with these where the last one has found something.
const SWEEP_EVERY: u32 = 128;
const SWEEP_SOON: u32 = 4;

impl Container {
    /// Adds the entries that documents lack. False: the indexes have changed meanwhile.
    pub(crate) fn add_missing(&self, indexes: &Arc<Indexes>) -> Result<bool> {
        let mut from = Bound::Unbounded;
        loop {
            let held = self.upkeep().hold();
            if !Arc::ptr_eq(&held, indexes) {
                return Ok(false);
            }
            let to = Bound::Unbounded;
            let (mut step, mut bytes) = (vec![], 0);
            for item in self.items().range(KeyRange { from, to }) {
                let item = item?;
                bytes += item.value().len();
                step.push(item);
                if step.len() == STEP || bytes >= STEP_BYTES {
                    break;
                }
            }
            let Some(last) = step.last() else {
                return Ok(true);
            };
            from = Bound::Excluded(last.key().to_vec());
            self.add(&held, &step)?;
        }
    }

    fn add(&self, indexes: &Indexes, items: &[Item]) -> Result<()> {
        let Some(entries) = indexes.entries() else {
            return Ok(());
        };
        let of_items = items
            .iter()
            .map(|item| indexes.entries_of(item.key(), item.value()));
        let of_items = Vec::from_iter(of_items);
        let put = |only: Option<usize>, ttl: &dyn Fn(&Item) -> Ttl| {
            let mut batch = Writes::Batch(Batch::new());
            // The record that they are whole is durable after all of them.
            batch.durability(Durability::Buffered);
            for (at, item) in items.iter().enumerate() {
                if only.is_none_or(|only| only == at) {
                    let expect = Expect::Version(item.version());
                    batch.require(self.items(), item.key(), expect);
                    for entry in &of_items[at] {
                        batch.put(entries, entry, b"", ttl(item));
                    }
                }
            }
            Ok::<_, crate::Error>(self.store().commit(&batch)? != Commit::Conflict)
        };
        let is_done = put(None, &|item| Ttl::Like(item))?;
        for (at, of_item) in of_items.iter().enumerate() {
            if !is_done && !put(Some(at), &|item| Ttl::Like(item))? {
                continue;
            }
            // An earlier default of the entries' container may have ended such a lifetime, if the clock went back. Then the
            // entry has a ttl of its own, which does not follow later defaults.
            for entry in of_item {
                let ttl = entries.item(entry)?.map(|entry| entry.ttl());
                if ttl != Some(items[at].ttl()) {
                    put(Some(at), &|_| Ttl::Never)?;
                    break;
                }
            }
        }
        Ok(())
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
        let (mut looked, mut batch) = (0, Writes::Batch(Batch::new()));
        for entry in entries.keys(KeyRange { from, to }).take(most) {
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
        let Some(item) = self.items().item(key)? else {
            return Ok(Some((key, None)));
        };
        let own = indexes.entries_of(key, item.value());
        let is_own = own.iter().any(|own| own == entry);
        Ok((!is_own).then(|| (key, Some(item.version()))))
    }
}
