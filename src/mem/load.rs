//! Bulk load: fills an empty tree with many records at once.
//!
//! ```text
//! load     arena    [ r3 | r1 | r2 | .. ]                 as they come
//!          entries  [ p3 r3 | p1 r1 | p2 r2 | .. ]        a prefix and an address for each, 16 bytes
//! build    entries  [ p1 r1 | p2 r2 | p3 r3 | .. ]        sorted
//!          leaves   [ r1 r2 r3 .. ] [ .. ] [ .. ]         cut from them, left to right, each one full
//! ```
//!
//! An insert searches a leaf, moves half of its entries and now and then splits it. A load needs none of that: the
//! entries are sorted by numbers, and most records are not read before they are counted.
//!
//! * An entry's prefix is that of its key without the bytes that all loaded keys share: `skip` bytes. When a key
//!   shares fewer, `skip` falls, and the prefixes before `stale` are made anew by `build`.
//! * Entries exist only while the tree is empty, and only the writer has their addresses: a record that was loaded is
//!   shown to nobody before `build`.
//! * `build` links each leaf as the right half of a split of the last one, at its end. So readers meet what they meet
//!   beside inserts in ascending order, for which the head of tree.rs has the proof. The first leaf is filled before it
//!   becomes the root.

#![allow(unsafe_code)]

use super::arena::Stored;
use super::new_record::NewRecord;
use super::node::{Inserted, SLOTS, prefix_of};
use super::pool::Refused;
use super::tree::Writer;
use crate::base::record::{order, shared_len};

/// The writer of a tree, and records in its arena that the tree does not have yet.
#[derive(Debug)]
pub struct Loader {
    writer: Writer,
    entries: Vec<Entry>,
    /// The bytes that all their keys share.
    skip: usize,
    /// The prefixes of the entries before this one leave out more bytes than `skip`.
    stale: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    prefix: u64,
    /// In the arena of the loader's tree.
    stored: Stored<'static>,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    fn has_key_of(&self, other: &Entry) -> bool {
        self.prefix == other.prefix && self.stored.key() == other.stored.key()
    }
}

/// How many records ahead are prefetched.
const FETCHED_AHEAD: usize = 12;

/// Sorts entries as records are; leaves in each record once.
fn sort(entries: &mut Vec<Entry>) {
    entries.sort_unstable_by_key(|entry| entry.prefix);
    for alike in entries.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if alike.len() > 1 {
            alike.sort_unstable_by(|a, b| {
                let (a, b) = (a.stored, b.stored);
                order(a.key(), a.seq(), b.key(), b.seq())
            });
        }
    }
    entries
        .dedup_by(|next, entry| next.has_key_of(entry) && next.stored.seq() == entry.stored.seq());
}

/// Shows each record, of one key the oldest first, with how it relates to those that were shown.
fn show_all(entries: &[Entry], mut show: impl FnMut(Stored<'_>, Inserted)) {
    let mut shown = 0;
    for versions in entries.chunk_by(Entry::has_key_of) {
        let mut inserted = Inserted::Alone;
        for entry in versions.iter().rev() {
            if let Some(ahead) = entries.get(shown + FETCHED_AHEAD) {
                ahead.stored.prefetch();
            }
            show(entry.stored, inserted);
            shown += 1;
            if versions.len() > 1 {
                inserted = Inserted::Over(entry.stored.header(), entry.stored.weight());
            }
        }
    }
}

impl Loader {
    /// Nothing is loaded.
    pub fn new(writer: Writer) -> Loader {
        Loader {
            writer,
            entries: vec![],
            skip: 0,
            stale: 0,
        }
    }

    /// How many records were loaded since the last [`Loader::build`].
    pub fn loaded(&self) -> usize {
        self.entries.len()
    }

    /// Whether the tree has no records, so that they may be loaded.
    pub fn may_load(&self) -> bool {
        self.writer.is_empty()
    }

    /// [`Writer::insert`]; nothing is loaded.
    #[inline]
    pub fn insert(&mut self, record: &NewRecord<'_>) -> Result<Option<Inserted>, Refused> {
        debug_assert!(self.entries.is_empty(), "what was loaded is built first");
        self.writer.insert(record)
    }

    /// Stores a record, which the tree has from [`Loader::build`] on.
    #[inline]
    pub fn load(&mut self, record: &NewRecord<'_>) -> Result<(), Refused> {
        assert!(self.may_load(), "only an empty tree is loaded");
        let reserved = self.entries.try_reserve(1);
        reserved.map_err(|_| Refused(size_of::<Entry>()))?;
        let (key, stored) = (record.key, self.writer.store(record)?);
        // SAFETY: the writer holds the tree as long as the entry, which is lent no longer than a call.
        let stored = unsafe { stored.detach() };
        let shares = |first: &Entry| key.get(..self.skip) == Some(&first.stored.key()[..self.skip]);
        match self.entries.first() {
            Some(first) if shares(first) => {}
            first => {
                self.skip = first.map_or(key.len(), |first| shared_len(first.stored.key(), key));
                self.stale = self.entries.len();
            }
        }
        let prefix = prefix_of(key, self.skip);
        self.entries.push(Entry { prefix, stored });
        Ok(())
    }

    /// Brings what was loaded into the tree. Calls `show` before that with each record, of one key the oldest first,
    /// and how it relates to those before it; one that was loaded twice is shown once. After an error the tree may have
    /// some of them.
    pub fn build(&mut self, show: impl FnMut(Stored<'_>, Inserted)) -> Result<(), Refused> {
        let mut entries = std::mem::take(&mut self.entries);
        for entry in &mut entries[..self.stale] {
            entry.prefix = prefix_of(entry.stored.key(), self.skip);
        }
        sort(&mut entries);
        show_all(&entries, show);
        for start in (0..entries.len()).step_by(SLOTS) {
            let (leaf, rest) = entries[start..].split_at(SLOTS.min(entries.len() - start));
            self.append(leaf, rest.first())?;
        }
        Ok(())
    }

    /// Adds a leaf of these entries behind the last one; `next` is the first entry of the leaf after it.
    fn append(&self, entries: &[Entry], next: Option<&Entry>) -> Result<(), Refused> {
        let leaf = self.writer.node(false)?;
        let (first, last) = (entries[0].stored, entries[entries.len() - 1].stored);
        let records = entries.iter().map(|entry| (entry.prefix, entry.stored));
        // SAFETY: all of them lie in the arena of the writer's tree.
        unsafe { leaf.fill_sorted(records, self.skip) };
        if entries.windows(2).any(|two| two[0].prefix == two[1].prefix) {
            // The first record of the next leaf will be the upper fence.
            let fence = next.map_or(last, |next| next.stored);
            leaf.set_skip(shared_len(first.key(), fence.key()));
        }
        // SAFETY: as above.
        unsafe { self.writer.append(leaf, first) }
    }
}
