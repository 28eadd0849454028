//! Iterators over a range: items, and keys alone.

use std::fmt;

use bytes::Bytes;

use crate::base::Result;
use crate::data::item::Item;
use crate::engine::Scan;

/// Items in the order of keys, from both ends.
#[must_use = "items are read when they are asked for"]
pub struct Iter {
    scan: Option<Result<Scan>>,
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("has_ended", &self.scan.is_none())
            .finish_non_exhaustive()
    }
}

impl Iter {
    pub(in crate::api) fn of(scan: Result<Scan>) -> Iter {
        Iter { scan: Some(scan) }
    }

    #[inline]
    fn step(
        &mut self,
        step: impl FnOnce(&mut Scan) -> Option<Result<Item>>,
    ) -> Option<Result<Item>> {
        let item = match self.scan.as_mut()? {
            Ok(scan) => step(scan),
            Err(error) => Some(Err(error.clone())),
        };
        if !matches!(item, Some(Ok(_))) {
            self.scan = None;
        }
        item
    }
}

impl Iterator for Iter {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        // Apart from the step, whose item is moved once more.
        if let Some(Ok(scan)) = &mut self.scan
            && let Some(item) = scan.take()
        {
            return Some(Ok(item));
        }
        self.step(|scan| scan.step(true))
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Scan::next_back)
    }
}

impl std::iter::FusedIterator for Iter {}

/// Keys in order, from both ends: those of the items of an iterator, a container's or a [`TransactionIter`](crate::TransactionIter).
#[must_use = "items are read when they are asked for"]
#[derive(Debug)]
pub struct Keys<I = Iter> {
    pub(crate) items: I,
}

fn key_of(item: Result<Item>) -> Result<Bytes> {
    item.map(|item| Bytes::copy_from_slice(item.key()))
}

impl<I: Iterator<Item = Result<Item>>> Iterator for Keys<I> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().map(key_of)
    }
}

impl<I: DoubleEndedIterator<Item = Result<Item>>> DoubleEndedIterator for Keys<I> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back().map(key_of)
    }
}

impl<I: std::iter::FusedIterator<Item = Result<Item>>> std::iter::FusedIterator for Keys<I> {}
