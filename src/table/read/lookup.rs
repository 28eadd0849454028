//! A get in steps, for callers with many keys. A get waits for memory some four times, one after the other, because each step
//! says where the next one reads; the waits of interleaved gets overlap.
//!
//! ```text
//! step          reads                            prefetches
//! announce      -                                the line of the filter
//! start         filter, index                    the end of the block; where memory is short, all of it from the device
//! find_entry    the block's end, hash bytes      the entry
//! finish        the entry                        -
//! ```
//!
//! The result of `finish` is that of [`Table::get`]; only the waiting differs.
//!
//! Where memory is short, gets, these and single ones, use cached records: the newest version of a key in this table
//! (src/table/read/cache.rs). `start` looks for one, and asks for no block if it is there. `finish` caches the record whose block
//! was not in memory, if it is certain to be the newest version: no record of the table has a higher sequence number than
//! the get may see. A cached version that is too new for a snapshot says nothing about older ones, so the block is read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::prefetch;
use crate::base::{Error, Patience, Result, Seq, Wait};
use crate::env::{is_resident, memory_is_short, will_need};
use crate::table::encode::block::Layout;
use crate::table::encode::filter;
use crate::table::encode::search::Share;
use crate::table::read::cache::CachedRecord;
use crate::table::read::get::{FoundValue, TableHit, Wanted};
use crate::table::read::reader::{Keep, Table};
use crate::table::read::ready::Residency;
use crate::table::read::source::Access;

/// A get of a key that passed the table's filter.
pub struct Lookup<'a> {
    table: &'a Arc<Table>,
    hash: u64,
    key: &'a [u8],
    place: LookupHit<'a>,
}

/// Where the version is to be found.
enum LookupHit<'a> {
    Cached(CachedRecord),
    Block(Block<'a>),
}

/// The block that can hold the key.
struct Block<'a> {
    number: usize,
    /// Its range in the file.
    place: Range<u64>,
    /// If the block needs no decompression: the map, and the range of the body in it.
    body: Option<(&'a Bytes, Range<usize>)>,
    is_short: bool,
    /// Memory is short, and a part of the mapped block was not there.
    is_read: bool,
}

impl From<CachedRecord> for TableHit {
    fn from(record: CachedRecord) -> TableHit {
        TableHit {
            header: record.header,
            value: FoundValue::Here(record.value),
        }
    }
}

impl<'a> Lookup<'a> {
    /// Prefetches what [`Lookup::start`] reads.
    #[inline]
    pub fn announce(table: &Table, hash: u64) -> Result<()> {
        filter::fetch(table.filter()?, hash);
        Ok(())
    }

    /// Finds the block that can hold `key`, whose hash is `hash`; `None` when the table does not have it.
    #[inline]
    pub fn start(table: &'a Arc<Table>, hash: u64, key: &'a [u8]) -> Result<Option<Lookup<'a>>> {
        if !table.may_contain(hash)? {
            return Ok(None);
        }
        Lookup::past_filter(table, hash, key, memory_is_short())
    }

    #[inline(never)]
    fn past_filter(
        table: &'a Arc<Table>,
        hash: u64,
        key: &'a [u8],
        is_short: bool,
    ) -> Result<Option<Lookup<'a>>> {
        let cached = match &table.cache {
            Some(cache) if is_short => cache.record(hash, key),
            _ => None,
        };
        let place = match cached {
            Some(record) => LookupHit::Cached(record),
            None => match table.find_block::<Wait>(key, Residency::Trusted)? {
                Some((number, page, row)) => {
                    LookupHit::Block(Block::prefetch(table, (number, page.place(row)), is_short))
                }
                None => return Ok(None),
            },
        };
        Ok(Some(Lookup {
            table,
            hash,
            key,
            place,
        }))
    }

    /// Finds the approximate entry in the block, if the block needs no decompression.
    pub fn find_entry(&mut self) -> Result<()> {
        let LookupHit::Block(block) = &mut self.place else {
            return Ok(());
        };
        block.body = self
            .table
            .raw_body(block.number, &block.place, Access::Random)?;
        if let Some((map, range)) = &block.body {
            let body = &map[range.clone()];
            // `finish` reports damage.
            if let Ok(layout) = Layout::of(body) {
                layout.block(body).fetch_match(self.hash);
            }
        }
        Ok(())
    }

    /// The newest version with a sequence number of `max` at most.
    pub fn finish(self, max: Seq) -> Result<Option<TableHit>> {
        let Lookup {
            table,
            hash,
            key,
            place,
        } = self;
        let block = match place {
            LookupHit::Block(block) => block,
            LookupHit::Cached(record) if record.header.seq <= max => {
                return Ok(Some(TableHit::from(record)));
            }
            LookupHit::Cached(_) => {
                return table.get_in_memory::<Wait>((hash, key, max), Residency::Trusted);
            }
        };
        let wanted = (hash, key, max);
        match block.body {
            Some((map, range)) => {
                let found = table.get_in::<Error>(block.number, map, range, wanted)?;
                if block.is_read {
                    table.cache_record(wanted, &found);
                }
                Ok(found)
            }
            None if block.is_short => table.get_passing(block.number, &block.place, wanted),
            None => table.get_in_own::<Wait>(block.number, &block.place, wanted),
        }
    }
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn prefetch(
        table: &'a Arc<Table>,
        (number, place): (usize, Range<u64>),
        is_short: bool,
    ) -> Block<'a> {
        let mut is_read = false;
        if let Some(block) = table.mapped(&place) {
            if is_short {
                is_read = !is_resident(block);
                will_need(block);
            }
            block.iter().rev().take(256).step_by(64).for_each(prefetch);
        }
        Block {
            number,
            place,
            body: None,
            is_short,
            is_read,
        }
    }
}

/// Bytes of a block that a single get prefetches about the likely place of the entry: more are no better
/// (docs/decisions/index.md).
const LIKELY_BYTES: usize = 8 * LINE;
const LINE: usize = 64;

impl Table {
    /// The block at `place`, if it is mapped.
    #[inline(always)]
    pub(in crate::table) fn mapped(&self, place: &Range<u64>) -> Option<&[u8]> {
        let map = self.stored.map(Access::Random)?;
        map.get(place.start as usize..place.end as usize)
    }

    /// Prefetches what is about the entry whose key has this share of the block at `place`, if that is mapped: so the
    /// entry is often there when the end of the block, which is read first, says where it is.
    #[inline(always)]
    pub(in crate::table) fn prefetch_likely(&self, place: &Range<u64>, share: Share) {
        if let Some(block) = self.mapped(place) {
            // Some 1/32 of a block is behind its entries.
            let entries_len = block.len() - block.len() / 32;
            let likely = ((entries_len as u64 * u64::from(share.0)) >> 16) as usize;
            let (lines, _) = block[likely.saturating_sub(LIKELY_BYTES / 2)..].as_chunks::<LINE>();
            lines.iter().take(LIKELY_BYTES / LINE).for_each(prefetch);
        }
    }

    /// [`Table::get`] past the filter where memory is short.
    #[cold]
    pub(in crate::table) fn get_in_short_memory(
        self: &Arc<Self>,
        (hash, key, max): Wanted<'_>,
    ) -> Result<Option<TableHit>> {
        let Some(mut lookup) = Lookup::past_filter(self, hash, key, true)? else {
            return Ok(None);
        };
        lookup.find_entry()?;
        lookup.finish(max)
    }

    /// Gets from block `number` at `place`, which is compressed or not mapped.
    #[cold]
    pub(in crate::table) fn get_in_own<P: Patience>(
        self: &Arc<Self>,
        number: usize,
        place: &Range<u64>,
        wanted: Wanted<'_>,
    ) -> Result<Option<TableHit>, P::Failure> {
        let body = self.own_body::<P>(number, place, Keep::Cached, Access::Random)?;
        self.get_in(number, &body, 0..body.len(), wanted)
    }

    /// The same, but caches the record instead of the block.
    fn get_passing(
        self: &Arc<Self>,
        number: usize,
        place: &Range<u64>,
        wanted: Wanted<'_>,
    ) -> Result<Option<TableHit>> {
        if let Some(body) = self.cached_body(number) {
            return self.get_in(number, &body, 0..body.len(), wanted);
        }
        let body = self.own_body::<Wait>(number, place, Keep::Passing, Access::Random)?;
        let found = self.get_in::<Error>(number, &body, 0..body.len(), wanted)?;
        self.cache_record(wanted, &found);
        Ok(found)
    }

    /// Gets a cached record or nothing.
    #[cold]
    pub(in crate::table) fn get_recorded<P: Patience>(
        &self,
        wanted: Wanted<'_>,
    ) -> Result<Option<TableHit>, P::Failure> {
        let found = self.cached_record(wanted);
        P::require(|| found.is_some())?;
        Ok(found)
    }

    /// The cached record of a key, if the get may show it.
    #[cold]
    pub(in crate::table) fn cached_record(&self, (hash, key, max): Wanted<'_>) -> Option<TableHit> {
        let record = self.cache.as_ref()?.record(hash, key)?;
        (record.header.seq <= max).then(|| TableHit::from(record))
    }

    /// Caches what a get found, if it is certain to be the newest version here and its value was read with it.
    fn cache_record(&self, (hash, key, max): Wanted<'_>, found: &Option<TableHit>) {
        if let Some(cache) = &self.cache
            && let Some(found) = found
            && let FoundValue::Here(value) = &found.value
            && max >= self.census().seq_max
        {
            cache.insert_record(self.container(), (hash, key), &found.header, value);
        }
    }
}
