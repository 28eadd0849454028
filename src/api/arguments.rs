//! What a caller gives, checked: keys, values, ranges.

use std::ops::{Bound, RangeBounds};

use crate::base::record::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::{Error, Result};
use crate::data::batch::KeyRange;

/// A key has 1 to 65 535 bytes.
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

/// A bound is no longer than a key.
pub fn check_bound<K: AsRef<[u8]>>(bound: Bound<&K>) -> Result<()> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.as_ref().len() > MAX_KEY_LEN => {
            let len = key.as_ref().len();
            let value = format!("of {len} bytes");
            Err(Error::invalid("bound", value, "up to 65535 bytes"))
        }
        _ => Ok(()),
    }
}

/// A value has up to 64 MiB.
pub fn check_value(value: &[u8]) -> Result<()> {
    check_value_len(value.len())
}

/// The same by its length.
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

/// Key and value are allowed.
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

/// The half-open range of the keys that `range` admits: the key right behind `k` is `k` and a zero byte.
pub fn key_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
    let behind = |key: &K| [key.as_ref(), &[0]].concat();
    let from = match range.start_bound() {
        Bound::Included(key) => key.as_ref().to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => vec![],
    };
    let to = match range.end_bound() {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    KeyRange { from, to }
}

/// The range of the keys that start with `prefix`: up to the prefix with its last byte below 0xff raised.
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
