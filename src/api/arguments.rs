//! Checks of arguments: keys, values, ranges.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use crate::base::record::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::{Error, Result};
use crate::data::batch::KeyRange;

/// A range of keys: `..`, `"a".."b"`, `..=key`, or a pair of [`Bound`]s. Its ends may be anything that is bytes:
/// `&str`, `&[u8]`, `Vec<u8>`, `[u8; 8]` and others.
///
/// ```
/// use std::ops::Bound;
/// use ebbtide::Database;
///
/// let folder = tempfile::tempdir()?;
/// let words = Database::open(folder.path())?.container("words")?;
/// ["ant", "bee", "cat"].iter().try_for_each(|word| words.put(word, ""))?;
/// assert_eq!(words.range(..).count(), 3);
/// assert_eq!(words.range("ant".."cat").count(), 2);
/// assert_eq!(words.range(b"b".to_vec()..).count(), 2);
/// assert_eq!(words.range((Bound::Excluded("ant"), Bound::Included("cat"))).count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyBounds {
    /// Where it begins; an empty bound is before all keys.
    fn start(&self) -> Bound<&[u8]>;
    /// Where it ends.
    fn end(&self) -> Bound<&[u8]>;
}

impl KeyBounds for RangeFull {
    fn start(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn end(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

/// For the standard library's ranges.
macro_rules! key_bounds {
    ($range:ty) => {
        impl<K: AsRef<[u8]>> KeyBounds for $range {
            fn start(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::start_bound(self).map(AsRef::as_ref)
            }

            fn end(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::end_bound(self).map(AsRef::as_ref)
            }
        }
    };
}

key_bounds!(Range<K>);
key_bounds!(RangeInclusive<K>);
key_bounds!(RangeFrom<K>);
key_bounds!(RangeTo<K>);
key_bounds!(RangeToInclusive<K>);
key_bounds!((Bound<K>, Bound<K>));

/// Checks that a key has 1 to 65 535 bytes.
#[inline]
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(Error::invalid(
            "key",
            format!("of {} bytes", key.len()),
            "1 to 65535 bytes",
        ));
    }
    Ok(())
}

/// Checks that a value has up to 64 MiB.
pub fn check_value(value: &[u8]) -> Result<()> {
    check_value_len(value.len())
}

/// Checks a value's length.
pub fn check_value_len(len: usize) -> Result<()> {
    if len > MAX_VALUE_LEN {
        return Err(Error::invalid(
            "value",
            format!("of {len} bytes"),
            "up to 67108864 bytes (64 MiB)",
        ));
    }
    Ok(())
}

/// Checks key and value.
pub fn check_item(key: &[u8], value: &[u8]) -> Result<()> {
    check_key(key)?;
    check_value(value)
}

/// Every key.
pub fn all_keys() -> KeyRange {
    KeyRange {
        from: vec![],
        to: None,
    }
}

/// The half-open range of the keys that `range` admits: the successor of key `k` is `k` and a zero byte.
pub fn key_range(range: impl KeyBounds) -> KeyRange {
    let behind = |key: &[u8]| [key, &[0]].concat();
    let from = match range.start() {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => vec![],
    };
    let to = match range.end() {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    KeyRange { from, to }
}

/// The range for a write, which stores its bounds: they may be no longer than a key.
pub fn checked_range(range: impl KeyBounds) -> Result<KeyRange> {
    check_bound(range.start())?;
    check_bound(range.end())?;
    Ok(key_range(range))
}

fn check_bound(bound: Bound<&[u8]>) -> Result<()> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > MAX_KEY_LEN => {
            let value = format!("of {} bytes", key.len());
            Err(Error::invalid("bound", value, "up to 65535 bytes"))
        }
        _ => Ok(()),
    }
}

/// The range of the keys that start with `prefix`: up to the prefix with its last byte below 0xff incremented.
pub fn prefix_range(prefix: &[u8]) -> KeyRange {
    let raised = prefix.iter().rposition(|&byte| byte < 0xff).map(|at| {
        let mut to = prefix[..=at].to_vec();
        to[at] += 1;
        to
    });
    KeyRange {
        from: prefix.to_vec(),
        to: raised,
    }
}
