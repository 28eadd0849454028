//! Ranges of the keys of items.

use std::ops::{Bound, RangeBounds};

use crate::partition_key::after_prefix;

/// Keys between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
}

impl KeyRange {
    /// The keys that begin so.
    pub fn of_prefix(prefix: Vec<u8>) -> KeyRange {
        let to = after_prefix(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let from = match prefix.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Included(prefix),
        };
        KeyRange { from, to }
    }

    /// One key.
    pub fn of_key(key: Vec<u8>) -> KeyRange {
        KeyRange {
            from: Bound::Included(key.clone()),
            to: Bound::Included(key),
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let bounds = (from.map(Vec::as_slice), to.map(Vec::as_slice));
        RangeBounds::<[u8]>::contains(&bounds, key)
    }
}

impl ebbtide::KeyBounds for KeyRange {
    fn start(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(Vec::as_slice)
    }

    fn end(&self) -> Bound<&[u8]> {
        self.to.as_ref().map(Vec::as_slice)
    }
}
