//! Getting a key: filter, index, block, entry. For callers who may wait, and for those who must not and get what is in memory
//! ([`Patience`], ready.rs).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::record::Header;
use crate::base::{Error, Patience, Result, Seq, Wait};
use crate::data::cursor::Seek;
use crate::env::memory_is_short;
use crate::table::encode::block::{Extent, Layout};
use crate::table::encode::page::Page;
use crate::table::read::reader::Table;
use crate::table::read::ready::Residency;
use crate::table::read::source::Access;

/// The aim of a get: the key's hash, the key, and the highest sequence number that it may see.
pub(in crate::table) type Wanted<'a> = (u64, &'a [u8], Seq);

/// A record that a get found. Its value is read only on request. Small, because a get moves it some times.
pub struct TableHit {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    pub(in crate::table) value: FoundValue,
}

/// Where its value is.
pub(in crate::table) enum FoundValue {
    Here(Bytes),
    Large(Box<LargeValue>),
}

/// A value that is outside its block.
pub(in crate::table) struct LargeValue {
    pub(in crate::table) table: Arc<Table>,
    pub(in crate::table) extent: Extent,
    pub(in crate::table) len: usize,
}

impl TableHit {
    /// The value, which keeps its source alive: the file's bytes, or a decompressed block.
    #[inline]
    pub fn value<P: Patience>(self) -> Result<Bytes, P::Failure> {
        match self.value {
            FoundValue::Here(bytes) => Ok(bytes),
            FoundValue::Large(large) => {
                P::require(|| large.table.value_is_ready::<P>(&large.extent))?;
                Ok(large.table.large_value(&large.extent, large.len)?)
            }
        }
    }
}

impl Table {
    /// The newest version of `key` with a sequence number of at most `max`. `hash` is the key's.
    #[inline(always)]
    pub fn get(self: &Arc<Self>, hash: u64, key: &[u8], max: Seq) -> Result<Option<TableHit>> {
        self.find::<Wait>(hash, key, max)
    }

    /// The same for whoever may wait, or may not.
    #[inline(always)]
    pub fn find<P: Patience>(
        self: &Arc<Self>,
        hash: u64,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<TableHit>, P::Failure> {
        if !P::WAITS && !self.filter_is_ready(hash) {
            return self.get_recorded::<P>((hash, key, max));
        }
        if !self.may_contain(hash)? {
            return Ok(None);
        }
        self.past_filter::<P>((hash, key, max))
    }

    /// Apart, because most tables that are asked end at their filter.
    #[inline(never)]
    fn past_filter<P: Patience>(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
    ) -> Result<Option<TableHit>, P::Failure> {
        if P::WAITS && memory_is_short() {
            return Ok(self.get_in_short_memory(wanted)?);
        }
        let residency = self.residency::<P>();
        if let Some(cache) = &self.cache
            && cache.has_records()
        {
            if residency == Residency::Asked {
                cache.note_use();
            }
            if let Some(found) = self.cached_record(wanted) {
                return Ok(Some(found));
            }
        }
        self.get_in_memory::<P>(wanted, residency)
    }

    /// The same past the filter, where blocks are taken to be in memory.
    #[inline(always)]
    pub(in crate::table) fn get_in_memory<P: Patience>(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        residency: Residency,
    ) -> Result<Option<TableHit>, P::Failure> {
        let Some((number, page, row)) = self.find_block::<P>(wanted.1, residency)? else {
            return Ok(None);
        };
        let place = page.place(row);
        self.prefetch_likely(&place, page.share(row, Seek::AtOrAfter(wanted.1)));
        let body = match P::WAITS || self.block_is_ready(number, &place, residency) {
            true => self.raw_body(number, &place, Access::Random)?,
            false => None,
        };
        match body {
            Some((map, range)) => self.get_in(number, map, range, wanted),
            None => self.get_in_own::<P>(number, &place, wanted),
        }
    }

    /// The only block that can hold `key`: its number, and its row in a page of the index.
    #[inline(always)]
    pub(in crate::table) fn find_block<P: Patience>(
        &self,
        key: &[u8],
        residency: Residency,
    ) -> Result<Option<(usize, &Page, usize)>, P::Failure> {
        P::require(|| self.index_is_ready(residency))?;
        let index = self.index()?;
        let Some(at) = index.top().find(key) else {
            return Ok(None);
        };
        P::require(|| self.page_is_ready(index, at, residency))?;
        let page = self.page(index, at)?;
        let found = page.find(key);
        Ok(found.map(|row| (index.blocks_of(at).start + row, page, row)))
    }

    /// Like [`Table::get`], in the body of block `number`, which is the `range` of `source`.
    #[inline(always)]
    pub(in crate::table) fn get_in<E: From<Error>>(
        self: &Arc<Self>,
        number: usize,
        source: &Bytes,
        range: Range<usize>,
        (hash, key, max): Wanted<'_>,
    ) -> Result<Option<TableHit>, E> {
        let (body, fault) = (&source[range.clone()], |bad| self.block_fault(number, bad));
        // Without `map_err`: it would move what was found.
        let block = match Layout::of(body) {
            Ok(layout) => layout.block(body),
            Err(bad) => return Err(fault(bad).into()),
        };
        let (at, entry) = match block.find(hash, key, max) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(bad) => return Err(fault(bad).into()),
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
        Ok(Some(TableHit {
            header: entry.header,
            value,
        }))
    }
}
