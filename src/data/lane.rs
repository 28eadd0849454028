//! A lane: records that are alike, read without decoding any of them.
//!
//! ```text
//! entries   .. | header fields | key | value | header fields | key | value | ..
//! offsets   .. 1200 1322 1444 ..        entry 17 is 1200..1322
//! hashes    .. 17 203 96 ..             a byte of the hash of each key
//! ```
//!
//! All records are certainly shown, unless a newer one of the same key is: a source answers for that before it gives a
//! lane away ([`Cursor::hold_lane`]). Header fields have one length and keys have one, so a record is two offsets. Its
//! bytes are not yet checked: a record that does not add up is not lent, and its cursor says what is wrong with it.
//!
//! [`Cursor::hold_lane`]: crate::data::cursor::Cursor::hold_lane

use std::ops::Range;

use crate::base::record::key_prefix;

/// See the file's head.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// Its place in the body.
    pub shape: LaneShape,
    /// The number by which the bytes are known to who lends from them.
    pub owner: u32,
    body: &'a [u8],
    offsets: &'a [[u8; 2]],
}

/// The shape of a lane in the body of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneShape {
    /// The records lie before the offsets.
    pub offsets_at: usize,
    /// How many records there are.
    pub count: usize,
    /// Bytes before each key.
    pub header_len: usize,
    /// Bytes of each key: at least one.
    pub key_len: usize,
    /// A value that is longer does not add up.
    pub value_most: usize,
}

impl LaneShape {
    /// The lane in this body, which is known by the number `owner`.
    #[inline(always)]
    pub fn lane<'a>(&self, body: &'a [u8], owner: u32) -> Lane<'a> {
        Lane {
            shape: *self,
            owner,
            body,
            offsets: &body[self.offsets_at..].as_chunks().0[..self.count],
        }
    }
}

impl<'a> Lane<'a> {
    /// Where record `at` begins; for the number of records, where the last one ends.
    #[inline(always)]
    pub fn offset(&self, at: usize) -> usize {
        let offset = self.offsets.get(at).map(|bytes| u16::from_le_bytes(*bytes));
        offset.map_or(self.shape.offsets_at, usize::from)
    }

    /// Whether the record that begins and ends at these offsets adds up.
    #[inline(always)]
    pub fn adds_up(&self, start: usize, end: usize) -> bool {
        // Less than nothing is a great number.
        let value_len = end.wrapping_sub(start + self.shape.header_len + self.shape.key_len);
        value_len <= self.shape.value_most && end <= self.shape.offsets_at
    }

    /// Whether these records certainly add up and have different keys; there is at least one. False is no answer.
    ///
    /// No key is read: keys are different if their hash bytes are.
    pub fn are_distinct(&self, records: Range<usize>) -> bool {
        let LaneShape {
            offsets_at, count, ..
        } = self.shape;
        let offsets = &self.offsets[records.clone()];
        let hashes = &self.body[offsets_at + 2 * count..][records.clone()];
        let least = (self.shape.header_len + self.shape.key_len) as u32;
        let most = self.shape.value_most as u32;
        let offset = |bytes: &[u8; 2]| u32::from(u16::from_le_bytes(*bytes));
        // Without a way out, so that many are compared at once.
        let mut is_wrong = false;
        for (start, end) in offsets.iter().zip(&offsets[1..]) {
            is_wrong |= offset(end).wrapping_sub(offset(start) + least) > most;
        }
        let mut is_equal = false;
        for (hash, next) in hashes.iter().zip(&hashes[1..]) {
            is_equal |= hash == next;
        }
        let last = records.end - 1;
        !is_wrong && !is_equal && self.adds_up(self.offset(last), self.offset(last + 1))
    }

    /// The prefix of the key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn prefix_at(&self, start: usize) -> u64 {
        let at = start + self.shape.header_len;
        match self.body.get(at..at + size_of::<u64>()) {
            Some(bytes) if self.shape.key_len >= bytes.len() => key_prefix(bytes),
            _ => key_prefix(self.key_at(start)),
        }
    }

    /// The key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn key_at(&self, start: usize) -> &'a [u8] {
        let behind = self.body.get(start + self.shape.header_len..);
        let key = behind.and_then(|behind| behind.get(..self.shape.key_len));
        key.unwrap_or_default()
    }

    /// Key and value of a record that begins and ends at these offsets and adds up.
    #[inline(always)]
    pub fn record_in(&self, start: usize, end: usize) -> Option<(&'a [u8], &'a [u8])> {
        let piece = self.body.get(start + self.shape.header_len..end)?;
        piece.split_at_checked(self.shape.key_len)
    }

    /// Record `at`, if that adds up.
    #[inline]
    pub fn record(&self, at: usize) -> Option<(&'a [u8], &'a [u8])> {
        let (start, end) = (self.offset(at), self.offset(at + 1));
        self.record_in(start, end)
            .filter(|_| self.adds_up(start, end))
    }

    /// The key of record `at`, if that adds up.
    #[inline]
    pub fn key(&self, at: usize) -> Option<&'a [u8]> {
        Some(self.record(at)?.0)
    }
}
