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

    /// The same keys behind a prefix.
    pub fn behind(&self, prefix: &[u8]) -> KeyRange {
        let all = KeyRange::of_prefix(prefix.to_vec());
        let with = |bound: &Bound<Vec<u8>>, all: Bound<Vec<u8>>| match bound {
            Bound::Included(key) => Bound::Included([prefix, key].concat()),
            Bound::Excluded(key) => Bound::Excluded([prefix, key].concat()),
            Bound::Unbounded => all,
        };
        KeyRange {
            from: with(&self.from, all.from),
            to: with(&self.to, all.to),
        }
    }

    /// Whether all of it is before a key.
    pub fn ends_before(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => &to[..] < key,
            Bound::Excluded(to) => &to[..] <= key,
            Bound::Unbounded => false,
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let bounds = (from.map(Vec::as_slice), to.map(Vec::as_slice));
        RangeBounds::<[u8]>::contains(&bounds, key)
    }
}

/// Whether a key is in one of these ranges, which ascend and are apart.
pub fn any_contains(ranges: &[KeyRange], key: &[u8]) -> bool {
    let at = ranges.partition_point(|range| range.ends_before(key));
    ranges.get(at).is_some_and(|range| range.contains(key))
}

impl ebbtide::KeyBounds for KeyRange {
    fn start(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(Vec::as_slice)
    }

    fn end(&self) -> Bound<&[u8]> {
        self.to.as_ref().map(Vec::as_slice)
    }
}
