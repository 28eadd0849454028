//! Entries of an index, as keys and values of its container.
//!
//! ```text
//! key                               value
//! 0                                 the state: the kind of the index and a default ttl, as text (upkeep.rs)
//! index key, escaped | 0 1 | key    nothing: many items may have the index key
//! index key, escaped | 0 1          the key: one item may have the index key
//!
//! escaped: 0 is written as 0 255
//! ```
//!
//! Invariants:
//!
//! 1. Entries are in the order of index keys, then of keys, and all of them come after the state.
//! 2. No escaped index key, with its end, is the beginning of another one. So the entries of an index key are a range, and so
//!    are those of the index keys that begin alike.

use std::ops::Bound;

use crate::api::arguments::{KeyBounds, prefix_range};
use crate::base::record::MAX_KEY_LEN;
use crate::base::{Error, Result};

/// The key of an index's state.
pub const STATE: &[u8] = &[0];

const END: [u8; 2] = [0, 1];
const BEHIND: [u8; 2] = [0, 2];
const ZERO: [u8; 2] = [0, 255];

/// A range of entries.
pub type Entries = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn escaped(index_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(index_key.len() + END.len());
    for &byte in index_key {
        match byte {
            0 => out.extend(ZERO),
            byte => out.push(byte),
        }
    }
    out
}

/// The beginning of all entries of an index key; where it is unique, its one entry.
pub fn beginning(index_key: &[u8]) -> Vec<u8> {
    let mut out = escaped(index_key);
    out.extend(END);
    out
}

/// The key of an item's entry.
///
/// # Errors
/// It would be longer than a key.
pub fn encoded(index_key: &[u8], is_unique: bool, key: &[u8]) -> Result<Vec<u8>> {
    let mut out = beginning(index_key);
    if !is_unique {
        out.extend(key);
    }
    if out.len() > MAX_KEY_LEN {
        let given = format!("of {} bytes", index_key.len());
        let allowed = "65533 bytes, with the key of its item where it is not unique, and one more for each zero byte";
        return Err(Error::invalid("index key", given, allowed));
    }
    Ok(out)
}

/// The index key of an entry and what stands behind its end; `None`: no entry has this key.
pub fn decoded(mut entry: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut index_key = vec![];
    loop {
        match entry {
            [0, 1, rest @ ..] => return Some((index_key, rest)),
            [0, 255, rest @ ..] => {
                index_key.push(0);
                entry = rest;
            }
            [] | [0, ..] => return None,
            [byte, rest @ ..] => {
                index_key.push(*byte);
                entry = rest;
            }
        }
    }
}

/// All entries.
pub fn all() -> Entries {
    (Bound::Included(END.to_vec()), Bound::Unbounded)
}

/// The entries of the index keys of a range.
pub fn in_range(range: impl KeyBounds) -> Entries {
    let behind = |index_key: &[u8]| [&escaped(index_key)[..], &BEHIND].concat();
    let from = match range.start() {
        Bound::Included(index_key) => beginning(index_key),
        Bound::Excluded(index_key) => behind(index_key),
        Bound::Unbounded => END.to_vec(),
    };
    let to = match range.end() {
        Bound::Included(index_key) => Bound::Excluded(behind(index_key)),
        Bound::Excluded(index_key) => Bound::Excluded(beginning(index_key)),
        Bound::Unbounded => Bound::Unbounded,
    };
    (Bound::Included(from), to)
}

/// The entries of the index keys that begin so.
pub fn with_prefix(prefix: &[u8]) -> Entries {
    if prefix.is_empty() {
        return all();
    }
    let range = prefix_range(&escaped(prefix));
    let to = range.to.map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(range.from), to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX_KEYS: [&[u8]; 9] = [
        b"", b"\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0\x01", b"ab", b"b",
    ];

    fn is_in(range: &Entries, entry: &[u8]) -> bool {
        use std::ops::RangeBounds;
        let bound = |bound: &Bound<Vec<u8>>| bound.clone().map(Vec::into_boxed_slice);
        (bound(&range.0), bound(&range.1)).contains(&Box::<[u8]>::from(entry))
    }

    #[test]
    fn entries_are_in_the_order_of_index_keys_and_tell_them() {
        let mut last = STATE.to_vec();
        for index_key in INDEX_KEYS {
            for key in [&b"\0"[..], b"\x01", b"k", b"\xff"] {
                let entry = encoded(index_key, false, key).unwrap();
                assert!(entry > last, "{entry:?} comes after {last:?}");
                assert_eq!(decoded(&entry), Some((index_key.to_vec(), key)));
                last = entry;
            }
            let entry = encoded(index_key, true, b"k").unwrap();
            assert_eq!(decoded(&entry), Some((index_key.to_vec(), &b""[..])));
        }
        assert_eq!(decoded(STATE), None);
        assert_eq!(decoded(b"a"), None);
        assert_eq!(decoded(b"a\0\x03"), None);
    }

    #[test]
    fn a_range_of_index_keys_has_the_entries_of_these() {
        for index_key in INDEX_KEYS {
            for is_unique in [false, true] {
                let entry = encoded(index_key, is_unique, b"\xff\xff").unwrap();
                for other in INDEX_KEYS {
                    let starts = index_key.starts_with(other);
                    assert_eq!(is_in(&with_prefix(other), &entry), starts);
                    let is = |range: Entries| is_in(&range, &entry);
                    assert_eq!(is(in_range(other..)), index_key >= other);
                    assert_eq!(is(in_range(..other)), index_key < other);
                    assert_eq!(is(in_range(..=other)), index_key <= other);
                    let above = (Bound::Excluded(other), Bound::Unbounded);
                    assert_eq!(is(in_range(above)), index_key > other);
                }
            }
        }
        assert!(!is_in(&all(), STATE) && !is_in(&with_prefix(b""), STATE));
    }

    #[test]
    fn an_entry_is_no_longer_than_a_key() {
        let longest = vec![b'a'; MAX_KEY_LEN - 3];
        assert!(encoded(&longest, false, b"k").is_ok());
        assert!(encoded(&longest, false, b"kk").is_err());
        assert!(encoded(&longest, true, b"kk").is_ok());
    }
}
