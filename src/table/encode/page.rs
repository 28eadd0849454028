//! A page of the index: contiguous rows, and the search in them.
//!
//! ```text
//! page     count u32 | shared u32 | prefix u64 per row | row* | details per row
//! prefix   of the row's first key, the eight bytes behind the first `shared` ones, as one big number (the first byte
//!          weighs most, missing bytes are zeros)
//! row      offset u64 | offset of its details u64 | length u32 | length of the first key u16 | length of the last key u16
//! details  first key | last key | census (expiry/census.rs)
//! ```
//!
//! `shared` is how many bytes the first and the last key of a page have in common, and so all keys between them. The
//! prefixes are contiguous, so that a search reads little: fixed steps over them, and whole keys only where prefixes
//! are equal. All prefixes are prefetched at once, and with them the rows near the estimated position of the wanted
//! key, assuming evenly distributed prefixes, as random keys and times have.

use std::ops::Range;

use bytes::Bytes;

use crate::base::Seq;
use crate::base::coding::{ByteReader, Malformed};
use crate::base::prefetch;
use crate::base::record::{key_prefix, shared_len};
use crate::data::cursor::Seek;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::{Census, ExpiryView};
use crate::table::encode::search::Share;

/// Bytes of the checksum behind a page.
pub const CRC_LEN: usize = 4;
pub(in crate::table) const HEADER_LEN: usize = 8;
pub(in crate::table) const PREFIX_LEN: usize = 8;
pub(in crate::table) const ROW_LEN: usize = 24;
/// Bytes of a cache line, and how many lines of rows a search prefetches.
const LINE: usize = 64;
const LINES_OF_ROWS: usize = 4;

#[derive(Clone, Copy)]
struct Row {
    offset: u64,
    details_at: u64,
    len: u32,
    first_len: u16,
    last_len: u16,
}

impl Row {
    fn encode(&self) -> [u8; ROW_LEN] {
        let mut out = [0; ROW_LEN];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.details_at.to_le_bytes());
        out[16..20].copy_from_slice(&self.len.to_le_bytes());
        out[20..22].copy_from_slice(&self.first_len.to_le_bytes());
        out[22..].copy_from_slice(&self.last_len.to_le_bytes());
        out
    }

    #[inline]
    fn decode(bytes: &[u8; ROW_LEN]) -> Row {
        let number =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("a row has 24 bytes"));
        let lens = number(16);
        Row {
            offset: number(0),
            details_at: number(8),
            len: lens as u32,
            first_len: (lens >> 32) as u16,
            last_len: (lens >> 48) as u16,
        }
    }
}

/// Builds one page.
#[derive(Default)]
pub struct PageBuilder {
    rows: Vec<Row>,
    details: Vec<u8>,
}

impl PageBuilder {
    /// Adds a row for `len` bytes at `offset` with these first and last keys.
    pub fn push(&mut self, offset: u64, len: usize, keys: (&[u8], &[u8]), census: &Census) {
        let (first, last) = keys;
        self.rows.push(Row {
            offset,
            details_at: self.details.len() as u64,
            len: u32::try_from(len).expect("a block is under 4 GiB"),
            first_len: u16::try_from(first.len()).expect("a key is under 64 KiB"),
            last_len: u16::try_from(last.len()).expect("a key is under 64 KiB"),
        });
        self.details.extend_from_slice(first);
        self.details.extend_from_slice(last);
        census.encode(&mut self.details);
    }

    /// Bytes of the page so far.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.rows.len() * (PREFIX_LEN + ROW_LEN) + self.details.len()
    }

    /// The number of its rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The first key of the first row; there is one.
    pub fn lowest_key(&self) -> &[u8] {
        self.first_key(&self.rows[0])
    }

    fn first_key(&self, row: &Row) -> &[u8] {
        &self.details[row.details_at as usize..][..usize::from(row.first_len)]
    }

    /// The page, of at least one row; `last_key` is that of the last row.
    pub fn finish(&self, last_key: &[u8]) -> Vec<u8> {
        let count = u32::try_from(self.rows.len()).expect("a table has under 4 billion blocks");
        let shared = shared_len(self.first_key(&self.rows[0]), last_key);
        let mut out = Vec::with_capacity(self.len() + CRC_LEN);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&(shared as u32).to_le_bytes());
        for row in &self.rows {
            out.extend_from_slice(&key_prefix(&self.first_key(row)[shared..]).to_le_bytes());
        }
        for row in &self.rows {
            out.extend_from_slice(&row.encode());
        }
        out.extend_from_slice(&self.details);
        out
    }
}

/// Makes the offset of an error relative to the start of the part.
pub fn inside(start: usize, bad: Malformed) -> Malformed {
    Malformed {
        offset: start + bad.offset,
        ..bad
    }
}

/// The prefixes of a page, to estimate the row of a key.
struct Span {
    first: u64,
    /// The distance of the last from the first.
    width: u64,
    /// The rows for each 2^32 of that distance, times 2^32: it takes the place of a division.
    rows_each: u64,
}

impl Span {
    fn new(first: u64, last: u64, rows: usize) -> Span {
        let width = last - first;
        Span {
            first,
            width,
            rows_each: ((rows as u64) << 32) / ((width >> 32) + 1),
        }
    }

    /// The row that would hold `wanted` if prefixes were evenly distributed: below the number of rows, which are fewer
    /// than 2^32.
    #[inline]
    fn row(&self, wanted: u64) -> usize {
        let far = wanted.saturating_sub(self.first).min(self.width) >> 32;
        ((far * self.rows_each) >> 32) as usize
    }
}

/// A checked page, in the file's bytes.
pub struct Page {
    /// The first key, whole, and how many of its bytes all keys share. Never an empty slice: comparing no bytes at the
    /// address of an empty allocation costs 40 ns (measured with glibc on AVX-512: a masked load from an unmapped
    /// page).
    lowest: Box<[u8]>,
    shared_len: usize,
    /// `None` for the top, which needs no prefetching.
    span: Option<Span>,
    prefixes: Bytes,
    rows: Bytes,
    details: Bytes,
}

impl Page {
    /// Decodes a page of `rows` rows, each for at least `least` bytes inside `within`, and checks everything that
    /// searches rely on.
    pub fn open(
        bytes: &Bytes,
        rows: usize,
        within: &Range<u64>,
        least: usize,
    ) -> Result<Page, Malformed> {
        let mut reader = ByteReader::new(bytes);
        let (count, shared) = (reader.u32()? as usize, reader.u32()? as usize);
        if count == 0 || count != rows {
            return Err(reader.malformed("the index is of another number of blocks"));
        }
        let prefixes = bytes.slice_ref(reader.bytes(count * PREFIX_LEN)?);
        let rows = bytes.slice_ref(reader.bytes(count * ROW_LEN)?);
        let fixed = reader.offset();
        let mut page = Page {
            lowest: Box::default(),
            shared_len: shared,
            span: None,
            prefixes,
            rows,
            details: bytes.slice(fixed..),
        };
        page.check(shared, within, least)
            .map_err(|bad| inside(fixed, bad))?;
        page.lowest = page.first_key(0).into();
        Ok(page)
    }

    /// Checks that offsets ascend and stay inside, details fill their room, keys ascend, and prefixes are those of the
    /// keys.
    fn check(&self, shared: usize, within: &Range<u64>, least: usize) -> Result<(), Malformed> {
        let (mut data, mut details) = (within.start, 0);
        let mut last_before: &[u8] = &[];
        for number in 0..self.len() {
            let row = self.row(number);
            let malformed = |what| Malformed {
                offset: details,
                what,
            };
            let (start, len) = (row.offset, u64::from(row.len));
            if start < data || len < least as u64 || start.saturating_add(len) > within.end {
                return Err(malformed("a block lies outside the data"));
            }
            data = start + len;
            if row.details_at != details as u64 {
                return Err(malformed("an index row points elsewhere"));
            }
            let mut reader = ByteReader::new(&self.details[details..]);
            let first = reader.bytes(usize::from(row.first_len))?;
            let last = reader.bytes(usize::from(row.last_len))?;
            let census = Census::decode(&mut reader).map_err(|bad| malformed(bad.what))?;
            let ordered = last_before < first && first <= last && census.total().count > 0;
            if !ordered || first.get(shared..).map(key_prefix) != Some(self.prefix(number)) {
                return Err(malformed("a block's keys are out of place"));
            }
            details += reader.offset();
            last_before = last;
        }
        let keys_share = shared_len(self.first_key(0), last_before) == shared;
        if !keys_share || details != self.details.len() {
            return Err(Malformed {
                offset: details,
                what: "the index does not add up",
            });
        }
        Ok(())
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.prefixes.len() / PREFIX_LEN
    }

    /// Makes searches prefetch prefixes and rows.
    pub fn fetch_in_searches(&mut self) {
        let (first, last) = (self.prefix(0), self.prefix(self.len() - 1));
        self.span = Some(Span::new(first, last, self.len()));
    }

    #[inline]
    fn prefix(&self, number: usize) -> u64 {
        u64::from_le_bytes(self.prefixes.as_chunks().0[number])
    }

    #[inline]
    fn row(&self, number: usize) -> Row {
        Row::decode(&self.rows.as_chunks().0[number])
    }

    /// The bytes that row `number` describes.
    #[inline]
    pub fn place(&self, number: usize) -> Range<u64> {
        let row = self.row(number);
        row.offset..row.offset + u64::from(row.len)
    }

    /// Prefetches row `number`.
    #[inline]
    pub fn fetch(&self, number: usize) {
        prefetch(&self.rows[number * ROW_LEN]);
    }

    /// The first key of row `number`.
    pub fn first_key(&self, number: usize) -> &[u8] {
        let row = self.row(number);
        &self.details[row.details_at as usize..][..usize::from(row.first_len)]
    }

    /// The last key of row `number`.
    pub fn last_key(&self, number: usize) -> &[u8] {
        let row = self.row(number);
        let at = row.details_at as usize + usize::from(row.first_len);
        &self.details[at..][..usize::from(row.last_len)]
    }

    /// The census of row `number`.
    pub fn census(&self, number: usize) -> Census {
        let row = self.row(number);
        let at = row.details_at as usize + usize::from(row.first_len) + usize::from(row.last_len);
        Census::decode(&mut ByteReader::new(&self.details[at..]))
            .expect("decoded when it was opened")
    }

    /// The highest sequence number of the records of row `number`, if these are dead as a whole.
    pub fn dead_as_a_whole(
        &self,
        number: usize,
        tombstones: &RangeTombstones,
        view: &ExpiryView,
    ) -> Option<Seq> {
        let census = self.census(number);
        let keys = || (self.first_key(number), self.last_key(number));
        tombstones
            .all_dead(&census, keys, view)
            .then_some(census.seq_max)
    }

    /// The rest of `key` behind the prefix that all keys share, if it begins with that.
    #[inline]
    fn behind_shared<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        match self.shared_len {
            0 => Some(key),
            len => key.strip_prefix(&self.lowest[..len]),
        }
    }

    /// The last row that starts at or below `key`: the only one that can hold it.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let Some(rest) = self.behind_shared(key) else {
            return match key < &self.lowest[..self.shared_len] {
                true => None,
                false => Some(self.len() - 1),
            };
        };
        let wanted = key_prefix(rest);
        if let Some(span) = &self.span {
            self.fetch_near(span.row(wanted));
        }
        let below = self.below(wanted);
        if below == self.len() || self.prefix(below) != wanted {
            return below.checked_sub(1);
        }
        self.up_to(below, wanted, key).checked_sub(1)
    }

    /// Prefetches all prefixes, and the rows about this one.
    #[inline]
    fn fetch_near(&self, row: usize) {
        let (prefixes, _) = self.prefixes.as_chunks::<PREFIX_LEN>();
        let (lines, last) = prefixes.as_chunks::<{ LINE / PREFIX_LEN }>();
        lines.iter().for_each(prefetch);
        last.first().into_iter().for_each(prefetch);
        let most = self.rows.len().saturating_sub(LINES_OF_ROWS * LINE);
        let from = (row * ROW_LEN).saturating_sub(4 * ROW_LEN).min(most);
        let (lines, _) = self.rows[from..].as_chunks::<LINE>();
        lines.iter().take(LINES_OF_ROWS).for_each(prefetch);
    }

    /// The number of rows with a prefix below `wanted`. The number of steps depends only on the number of rows, and
    /// none has a branch to mispredict.
    #[inline]
    fn below(&self, wanted: u64) -> usize {
        let (prefixes, _) = self.prefixes.as_chunks::<PREFIX_LEN>();
        prefixes.partition_point(|prefix| u64::from_le_bytes(*prefix) < wanted)
    }

    /// The number of rows that start at or below `key`; `low` is the first one with its prefix.
    #[cold]
    fn up_to(&self, mut low: usize, wanted: u64, key: &[u8]) -> usize {
        let mut high = self.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if self.prefix(middle) == wanted && self.first_key(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The last row that starts below `key`.
    pub fn find_below(&self, key: &[u8]) -> Option<usize> {
        let found = self.find(key)?;
        if self.first_key(found) < key {
            Some(found)
        } else {
            found.checked_sub(1)
        }
    }

    /// Where in the range of row `number` the place of a seek is, if its keys are evenly spread.
    #[inline(always)]
    pub fn share(&self, number: usize, to: Seek<'_>) -> Share {
        let (Seek::AtOrAfter(key) | Seek::After(key) | Seek::AtOrBefore(key) | Seek::Before(key)) =
            to
        else {
            return Share::HALF;
        };
        match self.behind_shared(key) {
            Some(rest) if number + 1 < self.len() => {
                let (first, next) = (self.prefix(number), self.prefix(number + 1));
                Share::of(key_prefix(rest), first, next)
            }
            _ => Share::HALF,
        }
    }

    /// The first row, in the direction of `to`, whose range `to` admits in part.
    pub fn row_for(&self, to: Seek<'_>) -> Option<usize> {
        let found = match to {
            Seek::First => Some(0),
            Seek::AtOrAfter(key) => Some(match self.find(key) {
                Some(number) => number + usize::from(self.last_key(number) < key),
                None => 0,
            }),
            Seek::After(key) => Some(match self.find(key) {
                Some(number) => number + usize::from(self.last_key(number) <= key),
                None => 0,
            }),
            Seek::Last => Some(self.len() - 1),
            Seek::AtOrBefore(key) => self.find(key),
            Seek::Before(key) => self.find_below(key),
        };
        found.filter(|&number| number < self.len())
    }

    /// That row, or forwards the one before it: without reading last keys, which are elsewhere.
    #[inline]
    pub fn row_about(&self, to: Seek<'_>) -> Option<usize> {
        match to {
            Seek::AtOrAfter(key) | Seek::After(key) => Some(self.find(key).unwrap_or(0)),
            _ => self.row_for(to),
        }
    }
}
