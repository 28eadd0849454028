//! Lookups: live items by an index key.
//!
//! ```text
//! entries of the range ─> key ─> item ─> its index keys, by the function ─> the item, if the entry's is among them
//! ```
//!
//! Invariant: entries and items are read from one snapshot, so an item that moves from one index key to another meanwhile is
//! found by one of them. Both are judged by the clock when the iterator is asked, as all that is read.

use std::fmt;
use std::iter::FusedIterator;

use bytes::Bytes;

use crate::api::arguments::KeyBounds;
use crate::api::iter::{Iter, Keys};
use crate::api::snapshot::View;
use crate::base::{Error, Result};
use crate::data::item::Item;
use crate::indexed::container::{Definition, IndexedContainer};
use crate::indexed::entry::{self, Entries};

/// An index of an [`IndexedContainer`], to look items up in: [`IndexedContainer::index`], [`IndexedContainer::index_named`]. All
/// that it returns is live and has the index key, whatever the entries say. Each lookup shows one moment's writes, as an
/// iterator of a container does; it reads the items, one by one.
#[derive(Clone, Copy)]
pub struct Index<'a> {
    of: &'a IndexedContainer,
    place: usize,
}

impl fmt::Debug for Index<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Index").field(&self.name()).finish()
    }
}

impl IndexedContainer {
    /// The first index, to look items up.
    #[must_use]
    pub fn index(&self) -> Index<'_> {
        Index::new(self, 0)
    }

    /// The index of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn index_named(&self, name: &str) -> Result<Index<'_>> {
        Ok(Index::new(self, self.place(name)?))
    }
}

impl<'a> Index<'a> {
    fn new(of: &'a IndexedContainer, place: usize) -> Self {
        Index { of, place }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.of.indexes()[self.place].name
    }

    fn of_entries(&self, range: Entries) -> IndexRange {
        let (of, place) = (self.of.clone(), self.place);
        let source = Source::open(&of, place, range).map_err(Some);
        IndexRange { of, place, source }
    }

    /// The items that have this index key, in the order of their keys.
    pub fn items(&self, index_key: impl AsRef<[u8]>) -> IndexItems {
        let index_key = index_key.as_ref();
        IndexItems(self.range(index_key..=index_key))
    }

    /// The keys of the items that have this index key.
    pub fn keys(&self, index_key: impl AsRef<[u8]>) -> Keys<IndexItems> {
        let items = self.items(index_key);
        Keys { items }
    }

    /// The first item that has this index key; of a unique index the only one.
    pub fn item(&self, index_key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.items(index_key).next().transpose()
    }

    /// Whether an item has this index key.
    pub fn contains(&self, index_key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.item(index_key)?.is_some())
    }

    /// The items with index keys of a range, each behind its index key, in the order of these and then of their keys. An
    /// item comes once for each index key that it has in the range.
    pub fn range(&self, range: impl KeyBounds) -> IndexRange {
        self.of_entries(entry::in_range(range))
    }

    /// The items with index keys that begin so; as [`Index::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> IndexRange {
        self.of_entries(entry::with_prefix(prefix.as_ref()))
    }

    /// How many items [`Index::range`] gives; it reads them.
    pub fn count(&self, range: impl KeyBounds) -> Result<u64> {
        self.range(range)
            .try_fold(0, |items, found| found.map(|_| items + 1))
    }
}

struct Source {
    entries: Iter,
    items: View,
}

impl Source {
    fn open(of: &IndexedContainer, place: usize, range: Entries) -> Result<Source> {
        let index = &of.indexes()[place];
        if !of.is_ready(index)? {
            of.make_ready()?;
        }
        let snapshot = of.db().snapshot();
        let entries = snapshot.container(index.entries.name())?.range(range);
        let items = snapshot.container(of.container().name())?;
        Ok(Source { entries, items })
    }

    /// The item of an entry, with the index key; `None`: the entry is not true.
    fn item_of(&self, index: &Definition, stored: &Item) -> Result<Option<(Bytes, Item)>> {
        let named = index.key_of(stored).filter(|(_, key)| !key.is_empty());
        let Some((index_key, key)) = named else {
            return Ok(None);
        };
        let item = self.items.item(key)?;
        let item = item.filter(|item| index.has(item, &index_key));
        Ok(item.map(|item| (index_key.into(), item)))
    }
}

/// Items of a range of index keys; [`Index::range`] and [`Index::prefix`] make it. It keeps what was written when it was made.
#[must_use = "items are read when they are asked for"]
pub struct IndexRange {
    of: IndexedContainer,
    place: usize,
    /// After an error there is nothing more.
    source: Result<Source, Option<Error>>,
}

impl fmt::Debug for IndexRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexRange").finish_non_exhaustive()
    }
}

impl IndexRange {
    fn step(
        &mut self,
        mut next: impl FnMut(&mut Iter) -> Option<Result<Item>>,
    ) -> Option<Result<(Bytes, Item)>> {
        let source = match &mut self.source {
            Ok(source) => source,
            Err(error) => return error.take().map(Err),
        };
        let index = &self.of.indexes()[self.place];
        let found = loop {
            let stored = next(&mut source.entries)?;
            match stored.and_then(|stored| source.item_of(index, &stored)) {
                Ok(None) => {}
                found => break found.transpose(),
            }
        };
        if matches!(found, Some(Err(_))) {
            self.source = Err(None);
        }
        found
    }
}

impl Iterator for IndexRange {
    type Item = Result<(Bytes, Item)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Iter::next)
    }
}

impl DoubleEndedIterator for IndexRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Iter::next_back)
    }
}

impl FusedIterator for IndexRange {}

/// The items of an index key; [`Index::items`] makes it.
#[must_use = "items are read when they are asked for"]
#[derive(Debug)]
pub struct IndexItems(IndexRange);

impl Iterator for IndexItems {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.0.next()?;
        Some(found.map(|(_, item)| item))
    }
}

impl DoubleEndedIterator for IndexItems {
    fn next_back(&mut self) -> Option<Self::Item> {
        let found = self.0.next_back()?;
        Some(found.map(|(_, item)| item))
    }
}

impl FusedIterator for IndexItems {}
