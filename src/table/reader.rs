//! A table, open for reading.
//!
//! To read a block of a map: take its place from the index; if it is compressed and cached, take it from the cache;
//! otherwise check its bytes if they never were, and decompress them if needed. There are no locks: the bytes never
//! change, and a bitmap has one bit for what was checked, which two readers may set at once. Without a map every block
//! is read like a compressed one, and checked at each read.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::coding::Malformed;
use crate::base::record::Header;
use crate::base::{ContainerId, Error, Result, Seq, TableId, prefetch_first, prefetch_last};
use crate::data::batch::KeyRange;
use crate::data::cursor::Seek;
use crate::env::{memory_is_short, will_need};
use crate::expiry::{Census, ExpiryHistogram, Settings};
use crate::table::block::{Extent, Layout, TRAILER_LEN, Trailer};
use crate::table::cache::{BlockCache, TableCache};
use crate::table::filter;
use crate::table::format::{Access, Footer, Source, Stored};
use crate::table::index::{Index, Sealed};
use crate::table::page::Page;
use crate::table::read_ahead::ReadAhead;
use crate::table::statistics::{Sample, Statistics};
use crate::table::stored::{Expected, open_stored, read_statistics};

/// An immutable sorted file.
pub struct Table {
    pub(super) stored: Stored,
    pub(super) footer: Footer,
    pub(super) statistics: Arc<Statistics>,
    pub(super) cache: Option<TableCache>,
    pub(super) index: OnceLock<Index>,
    /// The checked filter.
    pub(super) filter: OnceLock<Bytes>,
    /// A bit for each block, then one for each large value: whether it was checked.
    checked: Box<[AtomicU64]>,
}

/// Whether a block that was not in the cache is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is: a key in it was asked for, and may be again.
    Cached,
    /// It is not: an iteration reads it, and whole tables would evict everything else.
    Passing,
}

impl Table {
    /// Opens the table with the bytes of `source`: reads its footer and its statistics.
    pub fn open(
        source: impl Into<Source>,
        path: PathBuf,
        expected: Expected,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Table> {
        let (stored, footer) = open_stored(source.into(), path, expected)?;
        let statistics = read_statistics(&stored, &footer)?;
        let touchable = (statistics.blocks + statistics.large_values).div_ceil(64);
        Ok(Table {
            stored,
            footer,
            statistics: Arc::new(statistics),
            cache: cache.map(TableCache::new),
            index: OnceLock::new(),
            filter: OnceLock::new(),
            checked: (0..touchable).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Its id.
    pub fn id(&self) -> TableId {
        self.footer.id
    }

    /// The container of its records.
    pub fn container(&self) -> ContainerId {
        self.footer.container
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.stored.source.len()
    }

    /// Of these, blocks and large values.
    pub fn records_len(&self) -> u64 {
        self.footer.filter_at
    }

    /// The statistics of its records.
    pub fn statistics(&self) -> &Arc<Statistics> {
        &self.statistics
    }

    /// The first record's key.
    pub fn first_key(&self) -> &[u8] {
        &self.statistics.first_key
    }

    /// The last record's key.
    pub fn last_key(&self) -> &[u8] {
        &self.statistics.last_key
    }

    /// The census of all records.
    pub fn census(&self) -> &Census {
        &self.statistics.census
    }

    /// The histograms of the inheriting puts, by `written_at`, and of the overriding ones, by expiry.
    pub fn histograms(&self) -> (&ExpiryHistogram, &ExpiryHistogram) {
        (
            &self.statistics.histograms.inheriting,
            &self.statistics.histograms.overriding,
        )
    }

    /// The records of the keys with the smallest hashes.
    pub fn sample(&self) -> &Sample {
        &self.statistics.sample
    }

    /// The container's settings when the table was written.
    pub fn settings(&self) -> &Settings {
        &self.statistics.settings
    }

    /// Makes every later read check its bytes again: for a rewrite, which would put bytes that have changed since under
    /// a checksum that fits.
    pub fn recheck(&self) {
        let words = self.checked.iter();
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The number of blocks read through this handle.
    pub fn blocks_read(&self) -> u64 {
        let blocks = self.statistics.blocks;
        (0..blocks)
            .filter(|&number| self.is_checked(number))
            .count() as u64
    }

    /// False: the table has no record of a key with this hash.
    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> Result<bool> {
        Ok(filter::may_contain(self.filter()?, hash))
    }

    /// The filter, for one lookup in many tables.
    #[inline]
    pub fn filter(&self) -> Result<&[u8]> {
        match self.filter.get() {
            Some(filter) => Ok(filter),
            None => Ok(self.open_filter()?),
        }
    }

    #[cold]
    fn open_filter(&self) -> Result<&Bytes> {
        let Footer {
            filter_at,
            index_at,
            filter_crc,
            ..
        } = self.footer;
        let filter = self.stored.part(&(filter_at..index_at), Access::Random)?;
        self.stored
            .check(filter_at, &filter, filter_crc, "the filter")?;
        Ok(self.filter.get_or_init(|| filter))
    }

    /// An upper bound of the records in a range with a sequence number below this, from blocks' statistics.
    pub fn records_in(&self, range: &KeyRange, below: Seq) -> Result<u64> {
        let (index, mut records) = (self.index()?, 0);
        let may = |page: &Page, row: usize| {
            let overlaps = range.overlaps(page.first_key(row), page.last_key(row));
            overlaps && page.census(row).seq_min < below
        };
        for number in (0..index.top().len()).filter(|number| may(index.top(), *number)) {
            let page = self.page(index, number)?;
            let rows = (0..page.len()).filter(|row| may(page, *row));
            records += rows.map(|row| page.census(row).total().count).sum::<u64>();
        }
        Ok(records)
    }

    /// The newest version of `key` with a sequence number of at most `max`. `hash` is the key's.
    #[inline(always)]
    pub fn get(self: &Arc<Self>, hash: u64, key: &[u8], max: Seq) -> Result<Option<Found>> {
        if !self.may_contain(hash)? {
            return Ok(None);
        }
        self.past_filter(hash, key, max)
    }

    /// Apart, because most tables that are asked end at their filter.
    #[inline(never)]
    fn past_filter(self: &Arc<Self>, hash: u64, key: &[u8], max: Seq) -> Result<Option<Found>> {
        if memory_is_short() {
            return self.get_in_short_memory((hash, key, max));
        }
        self.get_in_memory((hash, key, max))
    }

    /// The same past the filter, where blocks are taken to be in memory.
    #[inline(always)]
    pub(super) fn get_in_memory(self: &Arc<Self>, wanted: Wanted<'_>) -> Result<Option<Found>> {
        let Some((number, page, row)) = self.find_block(wanted.1)? else {
            return Ok(None);
        };
        let place = page.place(row);
        self.prefetch_likely(&place, page.share(row, Seek::AtOrAfter(wanted.1)));
        match self.raw_body(number, &place, Access::Random)? {
            Some((map, range)) => self.get_in(number, map, range, wanted),
            None => self.get_in_own(number, &place, wanted),
        }
    }

    /// The only block that can hold `key`: its number, and its row in a page of the index.
    #[inline(always)]
    pub(super) fn find_block(&self, key: &[u8]) -> Result<Option<(usize, &Page, usize)>> {
        let index = self.index()?;
        let Some(at) = index.top().find(key) else {
            return Ok(None);
        };
        let page = self.page(index, at)?;
        let found = page.find(key);
        Ok(found.map(|row| (index.blocks_of(at).start + row, page, row)))
    }

    /// Like [`Table::get`], in the body of block `number`, which is the `range` of `source`.
    #[inline(always)]
    pub(super) fn get_in(
        self: &Arc<Self>,
        number: usize,
        source: &Bytes,
        range: Range<usize>,
        (hash, key, max): Wanted<'_>,
    ) -> Result<Option<Found>> {
        let (body, fault) = (&source[range.clone()], |bad| self.block_fault(number, bad));
        // Without `map_err`: it would move what was found.
        let block = match Layout::of(body) {
            Ok(layout) => layout.block(body),
            Err(bad) => return Err(fault(bad)),
        };
        let (at, entry) = match block.find(hash, key, max) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(bad) => return Err(fault(bad)),
        };
        let value = match entry.value() {
            Some(value) => {
                let start = range.start;
                FoundValue::Here(source.slice(start + value.start..start + value.end))
            }
            None => FoundValue::Large(Box::new(LargeValue {
                table: self.clone(),
                extent: block.extent(at).map_err(fault)?,
                len: entry.value_len(),
            })),
        };
        Ok(Some(Found {
            header: entry.header,
            value,
        }))
    }

    /// The index, whose top is checked on first use.
    #[inline]
    pub(super) fn index(&self) -> Result<&Index> {
        match self.index.get() {
            Some(index) => Ok(index),
            None => self.open_index(),
        }
    }

    #[cold]
    fn open_index(&self) -> Result<&Index> {
        let at = self.footer.index_at;
        let part = self
            .stored
            .view(&(at..self.footer.statistics_at), Access::Random)?;
        let bad = |bad: Malformed| self.stored.fault(at + bad.offset as u64, bad.what);
        self.stored.touch(Index::tail(&part))?;
        self.check_index(&part, &Index::sealed_top(&part).map_err(bad)?)?;
        let index = Index::open(part, self.statistics.blocks).map_err(bad)?;
        Ok(self.index.get_or_init(|| index))
    }

    fn check_index(&self, part: &[u8], sealed: &Sealed) -> Result<()> {
        let at = self.footer.index_at + sealed.place.start as u64;
        let bytes = &part[sealed.place.clone()];
        self.stored.touch(bytes)?;
        self.stored.check(at, bytes, sealed.crc, "the index")
    }

    /// A page of the index, checked on first use.
    #[inline]
    pub(super) fn page<'a>(&'a self, index: &'a Index, number: usize) -> Result<&'a Page> {
        match index.page(number) {
            Some(page) => Ok(page),
            None => self.open_page(index, number),
        }
    }

    #[cold]
    fn open_page<'a>(&'a self, index: &'a Index, number: usize) -> Result<&'a Page> {
        let at = self.footer.index_at;
        // Random access soon comes to the neighbours, too.
        if self.stored.map(Access::Random).is_some() {
            let from = index.bytes_from(number);
            will_need(&from[..from.len().min(READ_AT_ONCE)]);
        }
        self.stored.touch(index.page_bytes(number))?;
        self.check_index(index.bytes(), &index.sealed_page(number))?;
        index
            .open_page(number, self.footer.filter_at)
            .map_err(|bad| self.stored.fault(at + bad.offset as u64, bad.what))
    }

    /// The page with the row of block `number`, and the row's index in it.
    pub(super) fn row(&self, number: usize) -> Result<(&Page, usize)> {
        let index = self.index()?;
        let at = index.page_of(number);
        Ok((self.page(index, at)?, number - index.blocks_of(at).start))
    }

    /// The range of block `number` in the file.
    pub(super) fn place(&self, number: usize) -> Result<Range<u64>> {
        let (page, row) = self.row(number)?;
        Ok(page.place(row))
    }

    /// The body of block `number`, checked.
    pub(super) fn body(
        &self,
        number: usize,
        place: &Range<u64>,
        keep: Keep,
        access: Access,
    ) -> Result<Bytes> {
        if access == Access::Random
            && memory_is_short()
            && let Some(block) = self.mapped(place)
        {
            // Read at once, not page by page as it is touched.
            will_need(block);
        }
        match self.raw_body(number, place, access)? {
            Some((map, range)) => Ok(map.slice(range)),
            None => self.own_body(number, place, keep, access),
        }
    }

    /// Called when an iteration comes to the block at `place` next: if it is mapped, prefetches its beginning and its
    /// end, and reads ahead what follows.
    pub(super) fn prefetch_block(
        &self,
        place: impl FnOnce() -> Result<Range<u64>>,
        forward: bool,
        read_ahead: &mut ReadAhead,
    ) {
        if let Some(map) = self.stored.map(read_ahead.access())
            && let Ok(place) = place()
            && let Some(block) = map.get(place.start as usize..place.end as usize)
        {
            prefetch_first(block, BEGIN);
            prefetch_last(block, END);
            if let Some(range) = read_ahead.step(&place, forward, self.footer.filter_at) {
                will_need(&map[range.start as usize..range.end as usize]);
            }
        }
    }

    /// Called when a seek comes to the block at `place` next: if it is mapped, prefetches its end, which is read first,
    /// and, where memory is short, asks the system for all of it.
    #[inline]
    pub(super) fn prefetch_end(
        &self,
        place: &Range<u64>,
        forward: bool,
        read_ahead: &mut ReadAhead,
    ) {
        if let Some(map) = self.stored.map(Access::Random)
            && let Some(block) = map.get(place.start as usize..place.end as usize)
        {
            if memory_is_short() {
                let range = read_ahead.begin(place, forward, self.footer.filter_at);
                will_need(&map[range.start as usize..range.end as usize]);
            }
            prefetch_last(block, END);
        }
    }

    /// The map, and the range of the body of block `number` in it, checked; `None` if it is compressed, or nothing is
    /// mapped.
    #[inline(always)]
    pub(super) fn raw_body(
        &self,
        number: usize,
        place: &Range<u64>,
        access: Access,
    ) -> Result<Option<(&Bytes, Range<usize>)>> {
        let Some(map) = self.stored.map(access) else {
            return Ok(None);
        };
        let start = place.start as usize;
        if !self.is_checked(number as u64) {
            self.checked_block(number, place, access)?;
        }
        let block = &map[start..place.end as usize];
        touch_end(block);
        // A trailer that was checked fits its block.
        Ok(match Trailer::is_raw(block) {
            true => Some((map, start..start + block.len() - TRAILER_LEN)),
            false => None,
        })
    }

    /// The body of block `number`, if it is in the cache.
    pub(super) fn cached_body(&self, number: usize) -> Option<Bytes> {
        self.cache.as_ref()?.get(number as u64)
    }

    /// The body of block `number`, which is compressed or not mapped.
    pub(super) fn own_body(
        &self,
        number: usize,
        place: &Range<u64>,
        keep: Keep,
        access: Access,
    ) -> Result<Bytes> {
        if let Some(body) = self.cached_body(number) {
            return Ok(body);
        }
        let body = match self.stored.map(access) {
            Some(_) if self.is_checked(number as u64) => {
                let block = self.stored.view(place, access)?;
                self.unpacked(place, &block, &self.stored.trailer(place, &block)?)?
            }
            _ => {
                let (block, trailer) = self.checked_block(number, place, access)?;
                self.unpacked(place, &block, &trailer)?
            }
        };
        if let (Some(cache), Keep::Cached) = (&self.cache, keep) {
            cache.insert(number as u64, body.clone());
        }
        Ok(body)
    }

    /// Block `number`, read now, and its trailer.
    #[cold]
    fn checked_block(
        &self,
        number: usize,
        place: &Range<u64>,
        access: Access,
    ) -> Result<(Bytes, Trailer)> {
        let read = self.read_block(place, access)?;
        self.set_checked(number as u64);
        Ok(read)
    }

    /// The block at `place`, read and checked now.
    pub(super) fn read_block(
        &self,
        place: &Range<u64>,
        access: Access,
    ) -> Result<(Bytes, Trailer)> {
        self.stored.block(place, access)
    }

    /// The decompressed body of a block.
    pub(super) fn unpacked(
        &self,
        place: &Range<u64>,
        block: &Bytes,
        trailer: &Trailer,
    ) -> Result<Bytes> {
        self.stored.unpacked(place, block, trailer)
    }

    /// The stored bytes of a large value: checked on first use in a map, otherwise at each read.
    pub(super) fn stored_value(&self, extent: &Extent) -> Result<Bytes> {
        let end = extent.offset.checked_add(extent.stored_len);
        let fits = end.is_some_and(|end| end <= self.footer.filter_at)
            && extent.number < self.statistics.large_values;
        if !fits {
            return Err(self
                .stored
                .fault(extent.offset, "a large value lies outside the data"));
        }
        let stored = self.stored.view(
            &(extent.offset..extent.offset + extent.stored_len),
            Access::Random,
        )?;
        let bit = self.statistics.blocks + extent.number;
        let is_mapped = self.stored.map(Access::Random).is_some();
        let is_checked = is_mapped && self.is_checked(bit);
        if is_mapped && (!is_checked || stored.len() >= READ_AT_ONCE || memory_is_short()) {
            will_need(&stored);
        }
        if !is_checked {
            self.stored.check_value(extent, &stored)?;
            self.set_checked(bit);
        }
        Ok(stored)
    }

    /// A large value of `len` bytes.
    pub(super) fn large_value(&self, extent: &Extent, len: usize) -> Result<Bytes> {
        let stored = self.stored_value(extent)?;
        let unpacked = extent.codec.unpack(stored, len)?;
        unpacked.map_err(|what| self.stored.fault(extent.offset, what))
    }

    #[inline]
    pub(super) fn is_checked(&self, bit: u64) -> bool {
        self.checked[bit as usize / 64].load(Ordering::Relaxed) & 1 << (bit % 64) != 0
    }

    fn set_checked(&self, bit: u64) {
        self.checked[bit as usize / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }

    /// The error for block `number`.
    #[cold]
    pub(super) fn block_fault(&self, number: usize, bad: Malformed) -> Error {
        match self.place(number) {
            Ok(place) => self.stored.fault_in(&place, bad),
            Err(error) => error,
        }
    }
}

/// The index is read in pieces of this size. A large value of at least this size is requested as a whole at each read,
/// in case it is not in memory any more: that is cheap compared with reading it.
const READ_AT_ONCE: usize = 64 << 10;

/// Bytes of a block's beginning that are prefetched.
const BEGIN: usize = 512;

/// Bytes of a block's end that are prefetched: five lines, for the 256 that [`touch_end`] reads mostly lie in so many.
const END: usize = 320;

/// Loads the end of a block, all lines at once: it says where to read next.
#[inline]
fn touch_end(block: &[u8]) {
    if let Some(end) = block.last_chunk::<256>() {
        std::hint::black_box((end[0], end[64], end[128], end[192]));
    }
}

/// The aim of a get: the key's hash, the key, and the highest sequence number that it may see.
pub(super) type Wanted<'a> = (u64, &'a [u8], Seq);

/// A record that a get found. Its value is read only on request. Small, because a get moves it some times.
pub struct Found {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    pub(super) value: FoundValue,
}

/// Where its value is.
pub(super) enum FoundValue {
    Here(Bytes),
    Large(Box<LargeValue>),
}

/// A value that is outside its block.
pub(super) struct LargeValue {
    pub(super) table: Arc<Table>,
    pub(super) extent: Extent,
    pub(super) len: usize,
}

impl Found {
    /// The value, which keeps its source alive: the file's bytes, or a decompressed block.
    #[inline]
    pub fn value(self) -> Result<Bytes> {
        match self.value {
            FoundValue::Here(bytes) => Ok(bytes),
            FoundValue::Large(large) => large.table.large_value(&large.extent, large.len),
        }
    }
}
