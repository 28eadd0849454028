//! Which block may hold a key: pages of rows, and a top page whose rows are the pages.
//!
//! ```text
//! index    (page | crc32 u32)* | top | number of its first block u32 per page | pages u32 | length of top u32 | crc32 u32
//! page     count u32 | shared u32 | prefix u64 per row | row* | details per row
//! prefix   of the row's first key, the eight bytes behind the first `shared` ones, as one big number (the first byte
//!          weighs most, missing bytes are zeros)
//! row      offset u64 | offset of its details u64 | length u32 | length of the first key u16 | length of the last key u16
//! details  first key | last key | census (expiry/census.rs)
//! ```
//!
//! A row of a page is of a block, and its offset counts from the start of the file; a row of the top is of a page with
//! its checksum, its offset counts from the start of the index, and its census is that of all blocks there. `shared` is
//! how many bytes the first and the last key of a page have in common, and so all keys between them. The prefixes lie
//! together, so that a search touches little: fixed steps over them, and whole keys only where prefixes are equal. All of
//! them are asked for at once, and with them the rows about where the one that is looked for would be if prefixes lay
//! evenly, as those of random keys and of times do.
//!
//! Everything is searched where it lies in the file. The top is checked when the table is first asked for something, a
//! page when one of its blocks is: so the first question costs microseconds, however large the table is, and a walk steps
//! over a page of dead blocks without a look at it.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::base::coding::{Malformed, Reader};
use crate::base::record::{key_head, shared_len};
use crate::data::cursor::Seek;
use crate::env::prefetch;
use crate::expiry::Census;
use crate::table::block::TRAILER_LEN;

const CRC_LEN: usize = 4;
/// Behind the top and its numbers of blocks.
const TAIL_LEN: usize = 12;
const HEADER_LEN: usize = 8;
const PREFIX_LEN: usize = 8;
const ROW_LEN: usize = 24;

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

/// Gathers one page.
#[derive(Default)]
struct PageBuilder {
    rows: Vec<Row>,
    details: Vec<u8>,
}

impl PageBuilder {
    fn push(&mut self, offset: u64, len: usize, keys: (&[u8], &[u8]), census: &Census) {
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

    fn len(&self) -> usize {
        HEADER_LEN + self.rows.len() * (PREFIX_LEN + ROW_LEN) + self.details.len()
    }

    fn first_key(&self, row: &Row) -> &[u8] {
        &self.details[row.details_at as usize..][..usize::from(row.first_len)]
    }

    /// The page, of at least one row; `last_key` is that of the last row.
    fn finish(&self, last_key: &[u8]) -> Vec<u8> {
        let count = u32::try_from(self.rows.len()).expect("a table has under 4 billion blocks");
        let shared = shared_len(self.first_key(&self.rows[0]), last_key);
        let mut out = Vec::with_capacity(self.len() + CRC_LEN);
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&(shared as u32).to_le_bytes());
        for row in &self.rows {
            out.extend_from_slice(&key_head(&self.first_key(row)[shared..]).to_le_bytes());
        }
        for row in &self.rows {
            out.extend_from_slice(&row.encode());
        }
        out.extend_from_slice(&self.details);
        out
    }
}

/// Gathers the index while blocks are written.
pub struct IndexBuilder {
    page_bytes: usize,
    /// The one that is being filled, its census, and the last key in it.
    page: PageBuilder,
    census: Census,
    last_key: Vec<u8>,
    top: PageBuilder,
    /// Full ones.
    pages: Vec<Vec<u8>>,
    /// Numbers of their first blocks.
    starts: Vec<u32>,
    blocks: u32,
    len: u64,
}

impl IndexBuilder {
    /// An index whose pages have about so many bytes.
    pub fn new(page_bytes: usize) -> IndexBuilder {
        IndexBuilder {
            page_bytes,
            page: PageBuilder::default(),
            census: Census::default(),
            last_key: vec![],
            top: PageBuilder::default(),
            pages: vec![],
            starts: vec![],
            blocks: 0,
            len: 0,
        }
    }

    /// Adds a block behind all others.
    pub fn push(&mut self, offset: u64, len: usize, keys: (&[u8], &[u8]), census: &Census) {
        self.page.push(offset, len, keys, census);
        self.census.merge(census);
        self.last_key.clear();
        self.last_key.extend_from_slice(keys.1);
        if self.page.len() >= self.page_bytes {
            self.close_page();
        }
    }

    fn close_page(&mut self) {
        let page = self.page.finish(&self.last_key);
        let first_key = self.page.first_key(&self.page.rows[0]);
        let len = page.len() + CRC_LEN;
        let keys = (first_key, self.last_key.as_slice());
        self.top.push(self.len, len, keys, &self.census);
        self.starts.push(self.blocks);
        self.blocks += self.page.rows.len() as u32;
        self.len += len as u64;
        self.pages.push(page);
        self.page = PageBuilder::default();
        self.census = Census::default();
    }

    /// The index, of at least one block. `checksum` is that of bytes at an offset in the index.
    pub fn finish(mut self, checksum: impl Fn(u64, &[u8]) -> u32) -> Vec<u8> {
        if !self.page.rows.is_empty() {
            self.close_page();
        }
        let mut out = Vec::with_capacity(self.len as usize + self.top.len() + TAIL_LEN);
        for page in &self.pages {
            let crc = checksum(out.len() as u64, page);
            out.extend_from_slice(page);
            out.extend_from_slice(&crc.to_le_bytes());
        }
        let top_at = out.len();
        let top = self.top.finish(&self.last_key);
        out.extend_from_slice(&top);
        out.extend(self.starts.iter().flat_map(|start| start.to_le_bytes()));
        out.extend_from_slice(&(self.pages.len() as u32).to_le_bytes());
        out.extend_from_slice(&(top.len() as u32).to_le_bytes());
        let crc = checksum(top_at as u64, &out[top_at..]);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }
}

/// An index whose top was found to be in order.
pub struct Index {
    /// All of it.
    part: Bytes,
    top: Page,
    /// Of every page, the number of its first block.
    starts: Box<[u32]>,
    blocks: usize,
    pages: Box<[OnceLock<Page>]>,
}

/// Bytes of an index and the checksum that they must have before they are read.
pub struct Sealed {
    /// Where in the index.
    pub place: Range<usize>,
    /// The checksum.
    pub crc: u32,
}

/// Where the top ends and how many pages there are.
fn tail(part: &[u8]) -> Result<(Range<usize>, usize), Malformed> {
    let malformed = |offset| Malformed {
        offset,
        what: "an index that is too short",
    };
    let at = part.len().checked_sub(TAIL_LEN).ok_or(malformed(0))?;
    let mut reader = Reader::new(&part[at..]);
    let (pages, top_len) = (reader.u32()? as usize, reader.u32()? as usize);
    let starts_at = pages.checked_mul(4).and_then(|len| at.checked_sub(len));
    let top_at = starts_at.and_then(|at| at.checked_sub(top_len));
    match (top_at, starts_at) {
        (Some(top_at), Some(starts_at)) => Ok((top_at..starts_at, pages)),
        _ => Err(malformed(at)),
    }
}

impl Index {
    /// What is read to find the top.
    pub fn tail(part: &[u8]) -> &[u8] {
        &part[part.len().saturating_sub(TAIL_LEN)..]
    }

    /// What is to be checked before [`Index::open`].
    pub fn sealed_top(part: &[u8]) -> Result<Sealed, Malformed> {
        let (top, _) = tail(part)?;
        let end = part.len() - CRC_LEN;
        let crc = Reader::new(&part[end..]).u32()?;
        let place = top.start..end;
        Ok(Sealed { place, crc })
    }

    /// Reads the top of the index of `blocks` blocks.
    pub fn open(part: Bytes, blocks: u64) -> Result<Index, Malformed> {
        let (place, pages) = tail(&part)?;
        let malformed = |what| Malformed {
            offset: place.start,
            what,
        };
        let within = 0..place.start as u64;
        let top = Page::open(&part.slice(place.clone()), pages, &within, CRC_LEN)
            .map_err(|bad| inside(place.start, bad))?;
        let numbers = part[place.end..].as_chunks().0.iter().take(pages);
        let starts: Box<[u32]> = numbers.map(|start| u32::from_le_bytes(*start)).collect();
        let last = starts.last().copied().unwrap_or_default();
        if starts[0] != 0 || !starts.is_sorted_by(|a, b| a < b) || u64::from(last) >= blocks {
            return Err(malformed("the index is of another number of blocks"));
        }
        Ok(Index {
            part,
            top,
            starts,
            blocks: blocks as usize,
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
        })
    }

    /// The pages, as rows.
    #[inline]
    pub fn top(&self) -> &Page {
        &self.top
    }

    /// How many blocks there are: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// The page that a block belongs to.
    #[inline]
    pub fn page_of(&self, block: usize) -> usize {
        self.starts
            .partition_point(|start| *start as usize <= block)
            - 1
    }

    /// The blocks of a page.
    #[inline]
    pub fn blocks_of(&self, page: usize) -> Range<usize> {
        let end = self.starts.get(page + 1);
        self.starts[page] as usize..end.map_or(self.blocks, |end| *end as usize)
    }

    /// A page, if it was opened.
    #[inline]
    pub fn page(&self, number: usize) -> Option<&Page> {
        self.pages[number].get()
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.part
    }

    /// A page with its checksum.
    pub fn page_bytes(&self, number: usize) -> &[u8] {
        let place = self.top.place(number);
        &self.part[place.start as usize..place.end as usize]
    }

    /// The same, and all behind it.
    pub fn bytes_from(&self, number: usize) -> &[u8] {
        &self.part[self.top.place(number).start as usize..]
    }

    /// What is to be checked before [`Index::open_page`].
    pub fn sealed_page(&self, number: usize) -> Sealed {
        let place = self.top.place(number);
        let (start, end) = (place.start as usize, place.end as usize - CRC_LEN);
        let crc = Reader::new(&self.part[end..]).u32();
        Sealed {
            place: start..end,
            crc: crc.expect("a row of the top has room for a checksum"),
        }
    }

    /// Reads a page, whose blocks lie before `data_end`.
    pub fn open_page(&self, number: usize, data_end: u64) -> Result<&Page, Malformed> {
        let place = self.sealed_page(number).place;
        let bytes = self.part.slice(place.clone());
        let count = self.blocks_of(number).len();
        let mut page = Page::open(&bytes, count, &(0..data_end), TRAILER_LEN)
            .map_err(|bad| inside(place.start, bad))?;
        let (first, last) = (page.prefix(0), page.prefix(count - 1));
        page.span = Some((first, last - first));
        let keys = |page: &Page, from: usize, to: usize| {
            (page.first_key(from).to_vec(), page.last_key(to).to_vec())
        };
        if keys(&page, 0, count - 1) != keys(&self.top, number, number) {
            return Err(Malformed {
                offset: place.start,
                what: "a page of the index is out of place",
            });
        }
        Ok(self.pages[number].get_or_init(|| page))
    }
}

fn inside(start: usize, bad: Malformed) -> Malformed {
    Malformed {
        offset: start + bad.offset,
        ..bad
    }
}

/// A page that was found to be in order, where it lies.
pub struct Page {
    /// The first key, and how much of it all keys start with. The whole of it, for comparing no bytes at the address of
    /// an empty allocation costs 40 ns (measured with glibc on AVX-512: a masked load from a page that is not there).
    lowest: Box<[u8]>,
    shared_len: usize,
    /// The first prefix, and how far from it the last one is. Not of the top: nothing of that has to be asked for.
    span: Option<(u64, u64)>,
    prefixes: Bytes,
    rows: Bytes,
    details: Bytes,
}

impl Page {
    /// Reads a page of `rows` rows, each of which is of at least `least` bytes that lie `within`, and checks everything
    /// that searches rely on.
    fn open(
        bytes: &Bytes,
        rows: usize,
        within: &Range<u64>,
        least: usize,
    ) -> Result<Page, Malformed> {
        let mut reader = Reader::new(bytes);
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

    /// Offsets rise and stay inside, details fill their room, keys rise, prefixes are those of the keys.
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
            let mut reader = Reader::new(&self.details[details..]);
            let first = reader.bytes(usize::from(row.first_len))?;
            let last = reader.bytes(usize::from(row.last_len))?;
            let census = Census::decode(&mut reader).map_err(|bad| malformed(bad.what))?;
            let ordered = last_before < first && first <= last && census.total().count > 0;
            if !ordered || first.get(shared..).map(key_head) != Some(self.prefix(number)) {
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
        self.rows.len() / ROW_LEN
    }

    #[inline]
    fn prefix(&self, number: usize) -> u64 {
        u64::from_le_bytes(self.prefixes.as_chunks().0[number])
    }

    #[inline]
    fn row(&self, number: usize) -> Row {
        Row::decode(&self.rows.as_chunks().0[number])
    }

    /// Where that of which row `number` is lies.
    #[inline]
    pub fn place(&self, number: usize) -> Range<u64> {
        let row = self.row(number);
        row.offset..row.offset + u64::from(row.len)
    }

    /// Asks the processor for row `number`.
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
        Census::decode(&mut Reader::new(&self.details[at..])).expect("decoded when it was opened")
    }

    /// The last row that starts at or below `key`: the only one that can hold it.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let shared = &self.lowest[..self.shared_len];
        let Some(rest) = key.strip_prefix(shared) else {
            return if key < shared {
                None
            } else {
                Some(self.len() - 1)
            };
        };
        let wanted = key_head(rest);
        if let Some(span) = self.span {
            self.fetch_near(wanted, span);
        }
        let below = self.below(wanted);
        if below == self.len() || self.prefix(below) != wanted {
            return below.checked_sub(1);
        }
        self.up_to(below, wanted, key).checked_sub(1)
    }

    /// Asks for all prefixes, and for the rows about where `wanted` would be if these lay evenly.
    #[inline]
    fn fetch_near(&self, wanted: u64, (first, width): (u64, u64)) {
        let (prefixes, _) = self.prefixes.as_chunks::<PREFIX_LEN>();
        prefixes.iter().step_by(64 / PREFIX_LEN).for_each(prefetch);
        let far = wanted.saturating_sub(first).min(width) >> 32;
        // Both are below 2^32.
        let row = far * self.len() as u64 / ((width >> 32) + 1);
        let at = row as usize * ROW_LEN;
        let around = (at.saturating_sub(96)..).step_by(64).take(4);
        around.filter_map(|at| self.rows.get(at)).for_each(prefetch);
    }

    /// How many rows have a prefix below `wanted`. The number of steps depends on nothing but the number of rows,
    /// and none of them is a jump that the processor has to guess.
    #[inline]
    fn below(&self, wanted: u64) -> usize {
        let (prefixes, _) = self.prefixes.as_chunks::<PREFIX_LEN>();
        let (mut from, mut len) = (0, prefixes.len());
        while len > 1 {
            let half = len / 2;
            let skip = u64::from_le_bytes(prefixes[from + half - 1]) < wanted;
            from = std::hint::select_unpredictable(skip, from + half, from);
            len -= half;
        }
        from + usize::from(u64::from_le_bytes(prefixes[from]) < wanted)
    }

    /// How many rows start at or below `key`, where `low` is the first one that has its prefix.
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

    /// The first row, in the direction of `to`, part of whose range `to` admits.
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

    /// That row, or forwards the one before it: without a look at last keys, which lie elsewhere.
    #[inline]
    pub fn row_about(&self, to: Seek<'_>) -> Option<usize> {
        match to {
            Seek::AtOrAfter(key) | Seek::After(key) => Some(self.find(key).unwrap_or(0)),
            _ => self.row_for(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::record::{Head, Header};
    use crate::base::{Seq, Timestamp};

    fn census() -> Census {
        let mut census = Census::default();
        census.add(&Head {
            header: Header::tombstone(Seq(1), Timestamp(1)),
            key: b"k",
            value_len: 0,
        });
        census
    }

    fn page_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let census = census();
        let mut builder = PageBuilder::default();
        for (number, key) in keys.iter().enumerate() {
            builder.push(number as u64 * 50, 50, (key, key), &census);
        }
        builder.finish(keys.last().unwrap())
    }

    #[test]
    fn a_search_finds_what_a_plain_one_finds() {
        for (shared, digits) in [
            ("", 3),
            ("", 12),
            ("shared/", 3),
            ("longer than eight bytes/", 12),
        ] {
            for count in [1usize, 2, 3, 7, 64, 99] {
                let key = |number: usize| format!("{shared}{number:0digits$}").into_bytes();
                let keys: Vec<_> = (0..count).map(|number| key(number * 2 + 1)).collect();
                let bytes = Bytes::from(page_of(&keys));
                let within = 0..50 * count as u64;
                let page = Page::open(&bytes, count, &within, TRAILER_LEN).unwrap();
                let mut asked: Vec<_> = (0..count * 2 + 2).map(key).collect();
                asked.extend([
                    vec![],
                    vec![0],
                    vec![0xff; 9],
                    b"shared".to_vec(),
                    b"sharee".to_vec(),
                ]);
                asked.push([&keys[0][..], b"\0"].concat());
                for key in asked {
                    let plain = keys.partition_point(|first| *first <= key).checked_sub(1);
                    assert_eq!(page.find(&key), plain, "{key:?} of {count}");
                    let below = keys.partition_point(|first| *first < key).checked_sub(1);
                    assert_eq!(page.find_below(&key), below, "{key:?} of {count}");
                }
            }
        }
    }

    #[test]
    fn a_page_that_is_not_in_order_is_refused() {
        let bytes = page_of(&[b"a1".to_vec(), b"a2".to_vec(), b"a3".to_vec()]);
        let open = |bytes: &[u8], end| {
            Page::open(&Bytes::copy_from_slice(bytes), 3, &(0..end), TRAILER_LEN)
        };
        assert!(open(&bytes, 150).is_ok());
        assert!(open(&bytes, 149).is_err());
        for len in 0..bytes.len() {
            assert!(open(&bytes[..len], 150).is_err(), "cut at {len}");
        }
        let fixed = HEADER_LEN + 3 * (PREFIX_LEN + ROW_LEN);
        for at in 0..fixed {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(open(&bad, 150).is_err(), "byte {at}");
        }
    }

    #[test]
    fn pages_together_are_the_index() {
        let key = |number: usize| format!("key{number:04}").into_bytes();
        for (page_bytes, pages) in [(1, 50), (200, 13), (1 << 20, 1)] {
            let mut builder = IndexBuilder::new(page_bytes);
            let census = census();
            for number in 0..50 {
                let keys = (&key(2 * number)[..], &key(2 * number)[..]);
                builder.push(number as u64 * 50, 50, keys, &census);
            }
            let bytes = Bytes::from(builder.finish(|at, bytes| (at + bytes.len() as u64) as u32));
            let sealed = |sealed: Sealed| {
                let Sealed { place, crc } = sealed;
                assert_eq!(crc, place.end as u32, "of the bytes there");
            };
            sealed(Index::sealed_top(&bytes).unwrap());
            let index = Index::open(bytes.clone(), 50).unwrap();
            assert_eq!((index.len(), index.top().len()), (50, pages));
            assert_eq!(Index::open(bytes.clone(), 1).is_err(), pages > 1);
            for number in 0..50 {
                let at = index.page_of(number);
                sealed(index.sealed_page(at));
                let page = index.open_page(at, 2_500).unwrap();
                let local = number - index.blocks_of(at).start;
                assert_eq!(page.first_key(local), key(2 * number));
                assert_eq!(page.place(local).start, number as u64 * 50);
                assert_eq!(index.top().find(&key(2 * number + 1)), Some(at));
                let all = index.blocks_of(at).len() as u64;
                assert_eq!(index.top().census(at).total().count, all);
            }
            for len in 0..bytes.len() {
                let cut = bytes.slice(..len);
                assert!(Index::sealed_top(&cut).is_err() || Index::open(cut, 50).is_err());
            }
        }
    }
}
