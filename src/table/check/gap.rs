//! Gaps: keys that a damaged table may have lost.

use crate::base::{Error, Seq};

/// Keys that may be lost.
#[derive(Clone)]
pub struct Gap {
    /// The damage.
    pub fault: Error,
    /// The first key; `None`: from the table's first key on, which is unknown.
    pub from: Option<Vec<u8>>,
    /// The first key after the gap; `None`: to the table's last key, which is unknown.
    pub to: Option<Vec<u8>>,
    /// The highest sequence number that a record there may have had; `None`: unknown.
    pub seq: Option<Seq>,
    /// The most records that were there; `None`: unknown.
    pub records: Option<u64>,
}

impl Gap {
    /// The gap of one lost large value, with its record.
    pub(in crate::table) fn of_value(fault: Error, key: &[u8], seq: Seq) -> Gap {
        Gap {
            fault,
            from: Some(key.to_vec()),
            to: Some(behind(key)),
            seq: Some(seq),
            records: Some(1),
        }
    }
}

/// The smallest key after this one.
pub fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
