//! The index: finds the block that may hold a key. It has pages of rows, and a top page whose rows are the pages.
//!
//! ```text
//! index    (page | crc32 u32)* | top | number of its first block u32 per page | pages u32 | length of top u32 | crc32 u32
//! ```
//!
//! A row of a page describes a block, with its offset from the start of the file. A row of the top describes a page
//! with its checksum, with its offset from the start of the index and the census of all its blocks. page.rs says how a
//! page is built and searched.
//!
//! Everything is searched in the file's bytes. The top is checked at the table's first lookup, a page at the first
//! lookup of one of its blocks: so the first lookup costs microseconds, however large the table is, and an iteration
//! steps over a page of dead blocks without reading it.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::base::coding::{ByteReader, Malformed};
use crate::expiry::Census;
use crate::table::encode::block::TRAILER_LEN;
use crate::table::encode::page::{CRC_LEN, Page, PageBuilder, inside};

/// Bytes after the top and its numbers of blocks.
const TAIL_LEN: usize = 12;

/// Builds the index while blocks are written.
pub struct IndexBuilder {
    page_bytes: usize,
    /// The current page, its census, and its last key.
    page: PageBuilder,
    census: Census,
    last_key: Vec<u8>,
    top: PageBuilder,
    /// Finished pages.
    pages: Vec<Vec<u8>>,
    /// The numbers of their first blocks.
    starts: Vec<u32>,
    blocks: u32,
    len: u64,
}

impl IndexBuilder {
    /// An index whose pages have about this many bytes.
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

    /// Adds a block after all others.
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
        let first_key = self.page.lowest_key();
        let len = page.len() + CRC_LEN;
        let keys = (first_key, self.last_key.as_slice());
        self.top.push(self.len, len, keys, &self.census);
        self.starts.push(self.blocks);
        self.blocks += self.page.rows() as u32;
        self.len += len as u64;
        self.pages.push(page);
        self.page = PageBuilder::default();
        self.census = Census::default();
    }

    /// The index, of at least one block. `checksum` computes the checksum of bytes at an offset in the index.
    pub fn finish(mut self, checksum: impl Fn(u64, &[u8]) -> u32) -> Vec<u8> {
        if self.page.rows() > 0 {
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

/// An index whose top was checked.
pub struct Index {
    /// All bytes of the index.
    part: Bytes,
    top: Page,
    /// The number of each page's first block.
    starts: Box<[u32]>,
    blocks: usize,
    pages: Box<[OnceLock<Page>]>,
}

/// A range of an index and its checksum, to be checked before it is decoded.
pub struct Sealed {
    /// The range in the index.
    pub place: Range<usize>,
    /// The checksum.
    pub crc: u32,
}

/// The range of the top, and the number of pages.
fn tail(part: &[u8]) -> Result<(Range<usize>, usize), Malformed> {
    let malformed = |offset| Malformed {
        offset,
        what: "an index that is too short",
    };
    let at = part.len().checked_sub(TAIL_LEN).ok_or(malformed(0))?;
    let mut reader = ByteReader::new(&part[at..]);
    let (pages, top_len) = (reader.u32()? as usize, reader.u32()? as usize);
    let starts_at = pages.checked_mul(4).and_then(|len| at.checked_sub(len));
    let top_at = starts_at.and_then(|at| at.checked_sub(top_len));
    match (top_at, starts_at) {
        (Some(top_at), Some(starts_at)) => Ok((top_at..starts_at, pages)),
        _ => Err(malformed(at)),
    }
}

impl Index {
    /// The bytes that are read to find the top.
    pub fn tail(part: &[u8]) -> &[u8] {
        &part[part.len().saturating_sub(TAIL_LEN)..]
    }

    /// The top, to be checked before [`Index::open`].
    pub fn sealed_top(part: &[u8]) -> Result<Sealed, Malformed> {
        let (top, _) = tail(part)?;
        let end = part.len() - CRC_LEN;
        let crc = ByteReader::new(&part[end..]).u32()?;
        let place = top.start..end;
        Ok(Sealed { place, crc })
    }

    /// Decodes the top of the index of `blocks` blocks.
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

    /// The number of blocks: at least one.
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

    /// The same, found at once if it is the page `near`.
    #[inline]
    pub fn page_near(&self, block: usize, near: usize) -> usize {
        match self.blocks_of(near).contains(&block) {
            true => near,
            false => self.page_of(block),
        }
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

    /// All bytes of the index.
    pub fn bytes(&self) -> &[u8] {
        &self.part
    }

    /// The bytes of the top, and what is behind it.
    pub fn top_bytes(&self) -> &[u8] {
        let top = tail(&self.part).map_or(0, |(top, _)| top.start);
        &self.part[top..]
    }

    /// The bytes of a page with its checksum.
    pub fn page_bytes(&self, number: usize) -> &[u8] {
        let place = self.top.place(number);
        &self.part[place.start as usize..place.end as usize]
    }

    /// The bytes of the index from a page on.
    pub fn bytes_from(&self, number: usize) -> &[u8] {
        &self.part[self.top.place(number).start as usize..]
    }

    /// A page, to be checked before [`Index::open_page`].
    pub fn sealed_page(&self, number: usize) -> Sealed {
        let place = self.top.place(number);
        let (start, end) = (place.start as usize, place.end as usize - CRC_LEN);
        let crc = ByteReader::new(&self.part[end..]).u32();
        Sealed {
            place: start..end,
            crc: crc.expect("a row of the top has room for a checksum"),
        }
    }

    /// Decodes a page, whose blocks are before `data_end`.
    pub fn open_page(&self, number: usize, data_end: u64) -> Result<&Page, Malformed> {
        let place = self.sealed_page(number).place;
        let bytes = self.part.slice(place.clone());
        let count = self.blocks_of(number).len();
        let mut page = Page::open(&bytes, count, &(0..data_end), TRAILER_LEN)
            .map_err(|bad| inside(place.start, bad))?;
        page.fetch_in_searches();
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

#[cfg(test)]
mod tests;
