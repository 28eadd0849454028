//! A record that is to be stored in a memtable, and the check that is stored with it.
//!
//! ```text
//! hash of key and value ──> insert ── with the numbers: check ──> arena ──> a walk that flushes: the same again?
//! ```
//!
//! The hash of a single write is made with its encoding, before the commit lock; that of a batch's record from the bytes that are
//! logged.
//!
//! Invariant: a record of which one bit has changed since then has another check, but for one in 2^24; of the bits that
//! say where it ends, always.

use crate::base::hash::{RecordHash, add};
use crate::base::record::Header;

/// A record that is to be stored.
pub struct NewRecord<'a> {
    /// Its header.
    pub header: Header,
    /// Its hashes.
    pub hash: RecordHash,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> NewRecord<'a> {
    /// One that is hashed now.
    pub fn of(header: Header, key: &'a [u8], value: &'a [u8]) -> NewRecord<'a> {
        let hash = RecordHash::of(key, value);
        NewRecord {
            header,
            hash,
            key,
            value,
        }
    }
}

/// The check of a record. Its lowest byte is of what says where the record ends, all others are of the hash of key and value,
/// and of the numbers.
#[inline]
pub fn check_of(hash: u64, numbers: [u64; 3], ends: u8) -> u32 {
    let all = numbers.into_iter().fold(hash, add);
    // The factor takes each bit to the upper half.
    (add(all, 0) >> 32) as u32 & !0xff | u32::from(ends)
}

/// Of the tag, which says how long the front is, and both lengths: one flipped bit of them is one of this.
#[inline]
pub fn ends_of(seq_and_tag: u64, key_len: u16, value_len: u32) -> u8 {
    let all = u64::from(value_len) << 32 | u64::from(key_len) << 8 | seq_and_tag & 0xff;
    let half = all ^ all >> 32;
    let quarter = half ^ half >> 16;
    (quarter ^ quarter >> 8) as u8
}
