//! A table, open for reading.
//!
//! To read a block of a map: take its place from the index; if it is compressed and cached, take it from the cache;
//! otherwise check its bytes if they never were, and decompress them if needed. There are no locks: the bytes never
//! change, and a bitmap has one bit for what was checked, which two readers may set at once. Without a map every block
//! is read like a compressed one, and checked at each read.
//!
//! The bytes in memory may change where memory fails. So a job, which stores records again under a new checksum, takes neither the
//! bitmap nor the cache on trust; nor does any read where [`BlockCache::trusts_memory`] says no. Filter and index are checked once.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::coding::Malformed;
use crate::base::{
    ContainerId, Error, Patience, Result, Seq, TableId, Wait, prefetch_first, prefetch_last,
};
use crate::data::batch::KeyRange;
use crate::env::{memory_is_short, will_need};
use crate::expiry::{Census, ExpiryHistogram, Settings};
use crate::table::encode::block::{Extent, TRAILER_LEN, Trailer};
use crate::table::encode::filter;
use crate::table::encode::format::Footer;
use crate::table::encode::index::{Index, Sealed};
use crate::table::encode::page::Page;
use crate::table::encode::statistics::{Sample, Statistics};
use crate::table::read::cache::{BlockCache, TableCache};
use crate::table::read::read_ahead::ReadAhead;
use crate::table::read::source::{Access, Source, Stored};
use crate::table::read::stored::{Expected, open_stored, read_statistics};

/// An immutable sorted file.
pub struct Table {
    pub(in crate::table) stored: Stored,
    pub(in crate::table) footer: Footer,
    pub(in crate::table) statistics: Arc<Statistics>,
    pub(in crate::table) cache: Option<TableCache>,
    pub(in crate::table) index: OnceLock<Index>,
    /// The checked filter.
    pub(in crate::table) filter: OnceLock<Bytes>,
    /// A bit for each block, then one for each large value: whether it was checked.
    checked: Box<[AtomicU64]>,
    /// Whether a check of a block stays good for later reads.
    trusts_memory: bool,
    /// A block was read that is not used as it lies in the file.
    has_packed: AtomicBool,
}

/// Whether a block that was not in the cache is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Keep {
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
        let trusts_memory = cache.as_ref().is_none_or(|cache| cache.trusts_memory());
        Ok(Table {
            stored,
            footer,
            statistics: Arc::new(statistics),
            cache: cache.map(TableCache::new),
            index: OnceLock::new(),
            filter: OnceLock::new(),
            checked: (0..touchable).map(|_| AtomicU64::new(0)).collect(),
            trusts_memory,
            has_packed: AtomicBool::new(false),
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

    /// The index, whose top is checked on first use.
    #[inline]
    pub(in crate::table) fn index(&self) -> Result<&Index> {
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
    pub(in crate::table) fn page<'a>(
        &'a self,
        index: &'a Index,
        number: usize,
    ) -> Result<&'a Page> {
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
    pub(in crate::table) fn row(&self, number: usize) -> Result<(&Page, usize)> {
        let index = self.index()?;
        let at = index.page_of(number);
        Ok((self.page(index, at)?, number - index.blocks_of(at).start))
    }

    /// The range of block `number` in the file.
    pub(in crate::table) fn place(&self, number: usize) -> Result<Range<u64>> {
        let (page, row) = self.row(number)?;
        Ok(page.place(row))
    }

    /// The body of block `number`, checked.
    pub(in crate::table) fn body(
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
            None => self.own_body::<Wait>(number, place, keep, access),
        }
    }

    /// Called when an iteration comes to the block at `place` next: if it is mapped, prefetches its beginning and its
    /// end, and reads ahead what follows.
    pub(in crate::table) fn prefetch_block(
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
    pub(in crate::table) fn prefetch_end(
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
    pub(in crate::table) fn raw_body(
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
    pub(in crate::table) fn cached_body(&self, number: usize) -> Option<Bytes> {
        self.cache.as_ref()?.get(number as u64)
    }

    /// The body of block `number`, which is compressed or not mapped.
    pub(in crate::table) fn own_body<P: Patience>(
        &self,
        number: usize,
        place: &Range<u64>,
        keep: Keep,
        access: Access,
    ) -> Result<Bytes, P::Failure> {
        if let Some(body) = self.cached_body(number) {
            return Ok(body);
        }
        P::would_wait()?;
        self.note_packed();
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

    /// The body of block `number` for a job: read and checked now.
    pub(in crate::table) fn body_anew(
        &self,
        number: usize,
        place: &Range<u64>,
        access: Access,
    ) -> Result<Bytes> {
        let (block, trailer) = self.checked_block(number, place, access)?;
        self.unpacked(place, &block, &trailer)
    }

    /// Block `number`, read now, and its trailer.
    #[cold]
    fn checked_block(
        &self,
        number: usize,
        place: &Range<u64>,
        access: Access,
    ) -> Result<(Bytes, Trailer)> {
        let read = self.read_block(place, access);
        self.note_check(number as u64, read.is_ok());
        read
    }

    /// The block at `place`, read and checked now.
    pub(in crate::table) fn read_block(
        &self,
        place: &Range<u64>,
        access: Access,
    ) -> Result<(Bytes, Trailer)> {
        self.stored.block(place, access)
    }

    /// The decompressed body of a block.
    pub(in crate::table) fn unpacked(
        &self,
        place: &Range<u64>,
        block: &Bytes,
        trailer: &Trailer,
    ) -> Result<Bytes> {
        self.stored.unpacked(place, block, trailer)
    }

    /// The stored bytes of a large value: checked on first use in a map, otherwise at each read.
    pub(in crate::table) fn stored_value(&self, extent: &Extent) -> Result<Bytes> {
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
            self.note_check(bit, true);
        }
        Ok(stored)
    }

    /// A large value of `len` bytes.
    pub(in crate::table) fn large_value(&self, extent: &Extent, len: usize) -> Result<Bytes> {
        let stored = self.stored_value(extent)?;
        let unpacked = extent.codec.unpack(stored, len)?;
        unpacked.map_err(|what| self.stored.fault(extent.offset, what))
    }

    /// The same for a job: read and checked now.
    pub(in crate::table) fn large_value_anew(&self, extent: &Extent, len: usize) -> Result<Bytes> {
        let value = self.stored.large_value(&self.footer, extent, len);
        if value.is_err() && extent.number < self.statistics.large_values {
            self.note_check(self.statistics.blocks + extent.number, false);
        }
        value
    }

    #[inline]
    pub(in crate::table) fn is_checked(&self, bit: u64) -> bool {
        self.checked[bit as usize / 64].load(Ordering::Relaxed) & 1 << (bit % 64) != 0
    }

    /// Notes the outcome of a check. What a job finds damaged is so for reads, which have checked it before.
    pub(in crate::table) fn note_check(&self, bit: u64, is_sound: bool) {
        let (word, bit) = (&self.checked[bit as usize / 64], 1 << (bit % 64));
        match is_sound && self.trusts_memory {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Whether a block was read that is not used as it lies in the file: then others are in the cache alone, too.
    #[inline]
    pub(in crate::table) fn has_packed(&self) -> bool {
        self.has_packed.load(Ordering::Relaxed)
    }

    fn note_packed(&self) {
        // Mostly it is so already, and the line stays with all who read it.
        if !self.has_packed() {
            self.has_packed.store(true, Ordering::Relaxed);
        }
    }

    /// The error for block `number`.
    #[cold]
    pub(in crate::table) fn block_fault(&self, number: usize, bad: Malformed) -> Error {
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
