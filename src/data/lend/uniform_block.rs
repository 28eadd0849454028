//! A uniform block: records that are alike, read without decoding any of them.
//!
//! ```text
//! entries   .. | header fields | key | value | header fields | key | value | ..
//! offsets   .. 1200 1322 1444 ..        entry 17 is 1200..1322
//! hashes    .. 17 203 96 ..             a byte of the hash of each key
//! ```
//!
//! All records are certainly shown, unless a newer one of the same key is: a source answers for that before it gives a
//! uniform block away ([`Cursor::hold_uniform_block`]). Header fields have one length and keys have one, so a record is
//! two offsets. Its bytes are not yet checked: a record that does not add up is not lent, and its cursor says what is
//! wrong with it.
//!
//! [`Cursor::hold_uniform_block`]: crate::data::cursor::Cursor::hold_uniform_block

use std::ops::Range;

use crate::base::record::{Header, Kind, key_prefix};
use crate::base::{ItemTtl, Seq, Timestamp, prefetch, prefetch_lines};

/// Of what is handed out, the two cache lines that begin so many bytes behind a record are prefetched; before the first
/// one, all up to there. With 256, and nothing before the first, a full scan of values of 100 bytes takes 15.5 instead of
/// 15.0 ns an item; with 1024 no less than with 512 (2026-11-25).
pub const FETCHED_AHEAD: usize = 512;

const CACHE_LINE: usize = 64;

/// See the file's head.
#[derive(Clone, Copy, Debug, Default)]
pub struct UniformBlock<'a> {
    /// Its place in the body.
    pub shape: UniformShape,
    /// The number by which [`Lent`](crate::data::lend::lent::Lent) holds the bytes.
    pub owner: u32,
    body: &'a [u8],
    offsets: &'a [[u8; 2]],
}

/// The shape of a uniform block, in its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UniformShape {
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

/// Where the header fields of a uniform block's records are, if the eight bytes from the start of a record have all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UniformHeaders {
    /// Sequence numbers.
    pub seq: BitField,
    /// When they were written.
    pub written_at: BitField,
    /// Their ttls in milliseconds, if they are of that kind.
    pub millis: BitField,
    /// The kind of all ttls; a number of milliseconds says nothing here.
    pub ttl: ItemTtl,
}

/// A number that some bits of a word hold, as far as it is above the lowest of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// The value that zeros stand for.
    pub lowest: u64,
    /// The first bit.
    pub first: u32,
    /// As many ones as there are bits.
    pub mask: u64,
}

impl BitField {
    #[inline(always)]
    fn read(&self, word: u64) -> u64 {
        let bits = word.wrapping_shr(self.first) & self.mask;
        self.lowest.wrapping_add(bits)
    }
}

impl UniformHeaders {
    /// The header of the record that begins with this word.
    #[inline(always)]
    fn read(&self, word: u64) -> Header {
        let ttl = match self.ttl {
            ItemTtl::Millis(_) => ItemTtl::Millis(self.millis.read(word)),
            other => other,
        };
        Header {
            kind: Kind::Put,
            seq: Seq(self.seq.read(word)),
            written_at: Timestamp(self.written_at.read(word)),
            ttl,
        }
    }
}

impl UniformShape {
    /// The uniform block with this body, which is known by the number `owner`.
    #[inline(always)]
    pub fn block<'a>(&self, body: &'a [u8], owner: u32) -> UniformBlock<'a> {
        UniformBlock {
            shape: *self,
            owner,
            body,
            offsets: &body[self.offsets_at..].as_chunks().0[..self.count],
        }
    }

    /// Where record `at` begins in this body; for the number of records, where the last one ends.
    #[inline(always)]
    pub fn offset_in(&self, body: &[u8], at: usize) -> usize {
        let stored = self.offsets_at + 2 * at;
        match body.get(stored..stored + 2) {
            Some(&[low, high]) if at < self.count => usize::from(u16::from_le_bytes([low, high])),
            _ => self.offsets_at,
        }
    }

    /// Whether a record that begins and ends at these offsets adds up.
    #[inline(always)]
    pub fn adds_up(&self, start: usize, end: usize) -> bool {
        // Less than nothing is a great number.
        let value_len = end.wrapping_sub(start + self.header_len + self.key_len);
        value_len <= self.value_most && end <= self.offsets_at
    }

    /// The prefix of the key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn prefix_in(&self, body: &[u8], start: usize) -> u64 {
        let key = body.get(start + self.header_len..);
        match key.and_then(|key| key.first_chunk::<{ size_of::<u64>() }>()) {
            Some(bytes) if self.key_len >= bytes.len() => key_prefix(bytes),
            _ => key_prefix(self.key_in(body, start)),
        }
    }

    /// The key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn key_in<'a>(&self, body: &'a [u8], start: usize) -> &'a [u8] {
        let behind = body.get(start + self.header_len..);
        let key = behind.and_then(|behind| behind.get(..self.key_len));
        key.unwrap_or_default()
    }
}

impl<'a> UniformBlock<'a> {
    /// Where record `at` begins; for the number of records, where the last one ends.
    #[inline(always)]
    pub fn offset(&self, at: usize) -> usize {
        match self.offsets.get(at) {
            Some(bytes) => usize::from(u16::from_le_bytes(*bytes)),
            None => self.shape.offsets_at,
        }
    }

    /// Whether the record that begins and ends at these offsets adds up.
    #[inline(always)]
    pub fn adds_up(&self, start: usize, end: usize) -> bool {
        self.shape.adds_up(start, end)
    }

    /// Whether these records certainly add up and have different keys; there is at least one.
    ///
    /// Few keys are read: they are different if their hash bytes are.
    pub fn are_distinct(&self, records: Range<usize>) -> bool {
        let UniformShape {
            offsets_at, count, ..
        } = self.shape;
        let offsets = &self.offsets[records.clone()];
        let hashes = &self.body[offsets_at + 2 * count..][records.clone()];
        let (least, most) = (
            self.shape.header_len + self.shape.key_len,
            self.shape.value_most,
        );
        let is_narrow = least + most < usize::from(u16::MAX);
        let (least, most) = (least as u16, most as u16);
        let offset = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes);
        // Without a way out, so that many are compared at once. Less than nothing is a great number.
        let mut excess = 0;
        for (start, end) in offsets.iter().zip(&offsets[1..]) {
            let (start, end) = (offset(start), offset(end));
            let value_len = end.wrapping_sub(start).wrapping_sub(least);
            excess |= start.saturating_sub(end) | value_len.saturating_sub(most);
        }
        let is_wrong = excess > 0 || !is_narrow;
        let mut is_equal = false;
        for (hash, next) in hashes.iter().zip(&hashes[1..]) {
            is_equal |= hash == next;
        }
        let last = records.end - 1;
        let add_up = !is_wrong && self.adds_up(self.offset(last), self.offset(last + 1));
        add_up && (!is_equal || self.differ(records.start, hashes))
    }

    /// Whether the keys of the records from `first` on, which add up and have these hash bytes, are different.
    fn differ(&self, first: usize, hashes: &[u8]) -> bool {
        let key = |at: usize| self.key_at(self.offset(first + at));
        let mut at = 1;
        loop {
            let mut pairs = hashes[at - 1..].iter().zip(&hashes[at..]);
            match pairs.position(|(before, hash)| before == hash) {
                None => return true,
                Some(equal) if key(at + equal - 1) == key(at + equal) => return false,
                Some(equal) => at += equal + 1,
            }
        }
    }

    /// The end of the records behind record `at` that certainly add up and have different keys, also than that one, all
    /// of them before `bound`.
    pub fn distinct_behind(&self, at: usize, bound: Option<&[u8]>) -> usize {
        let end = bound.map_or(self.shape.count, |bound| self.first_at(at + 1, bound));
        match self.are_distinct(at..end) {
            true => end,
            false => self.first_in_doubt(at + 1..end),
        }
    }

    /// The first record from `from` on that is not before `bound`.
    fn first_at(&self, from: usize, bound: &[u8]) -> usize {
        let is_before = |record: usize| self.key(record).is_some_and(|key| key < bound);
        let (mut low, mut high) = (from, self.shape.count);
        if is_before(high - 1) {
            return high;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The first of these records that does not add up, or has the key of the one before it; their end if none does.
    fn first_in_doubt(&self, mut records: Range<usize>) -> usize {
        let UniformShape {
            offsets_at, count, ..
        } = self.shape;
        let hashes = &self.body[offsets_at + 2 * count..][..count];
        let end = records.end;
        let is_in_doubt = |&at: &usize| {
            let key = self.key(at);
            key.is_none() || (hashes[at] == hashes[at - 1] && key == self.key(at - 1))
        };
        records.find(is_in_doubt).unwrap_or(end)
    }

    /// The header of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn header_at(&self, start: usize, headers: &UniformHeaders) -> Header {
        let word = self.body.get(start..).and_then(|bytes| bytes.first_chunk());
        headers.read(word.map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// The prefix of the key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn prefix_at(&self, start: usize) -> u64 {
        self.shape.prefix_in(self.body, start)
    }

    /// The key of a record that begins at this offset and adds up.
    #[inline(always)]
    pub fn key_at(&self, start: usize) -> &'a [u8] {
        self.shape.key_in(self.body, start)
    }

    /// Key and value of a record that begins and ends at these offsets and adds up.
    #[inline(always)]
    pub fn record_in(&self, start: usize, end: usize) -> Option<(&'a [u8], &'a [u8])> {
        let piece = self.body.get(start + self.shape.header_len..end)?;
        piece.split_at_checked(self.shape.key_len)
    }

    /// Key and value of each of these records, which add up.
    #[inline(always)]
    pub fn records(&self, records: Range<usize>) -> Records<'a> {
        let start = self.offset(records.start);
        let ahead = (start..start + FETCHED_AHEAD).step_by(CACHE_LINE);
        ahead.filter_map(|at| self.body.get(at)).for_each(prefetch);
        Records {
            start,
            block: *self,
            left: records,
        }
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

/// Records of a uniform block that add up, one after the other.
#[derive(Clone, Default)]
pub struct Records<'a> {
    block: UniformBlock<'a>,
    left: Range<usize>,
    /// Where the next one begins.
    start: usize,
}

impl Records<'_> {
    /// How many are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Leaves out what is behind so many.
    pub fn truncate(&mut self, records: usize) {
        self.left.end = self.left.end.min(self.left.start + records);
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.left.next()?;
        let (start, end) = (self.start, self.block.offset(at + 1));
        self.start = end;
        prefetch_lines(self.block.body, end + FETCHED_AHEAD);
        self.block.record_in(start, end)
    }
}
