//! A get in steps, for callers with many keys. A get waits for memory some four times, one after the other, because each step
//! says where the next one reads; the waits of interleaved gets overlap.
//!
//! ```text
//! step          reads                            prefetches
//! announce      -                                the line of the filter
//! start         filter, index                    the end of the block; where memory is short, all of it from the device
//! read_blocks   those that are to be read        -
//!               past the system's cache
//! find_entry    the block's end, hash bytes      the entry
//! finish        the entry                        -
//! ```
//!
//! The result of `finish` is that of [`Table::get`]; only the waiting differs.
//!
//! Gets, these and single ones, use cached records: the newest version of a key in this table (src/table/read/cache.rs). They are
//! there where memory is short, or was of late: for the block of one is not in memory. `start` looks for one, and asks for no block
//! if it is there. `finish` caches the record whose block
//! was not in memory, if it is certain to be the newest version: no record of the table has a higher sequence number than
//! the get may see. A cached version that is too new for a snapshot says nothing about older ones, so the block is read:
//! in the map, or directly (src/table/read/direct_reads.rs). A block that cannot be read directly, or is not sound then, is read
//! in the map, which tells what is wrong.

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
use crate::table::read::direct_reads::DirectReads;
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
    /// It is to be read past the system's cache.
    is_direct: bool,
    /// Its body, which was read so.
    own: Option<Bytes>,
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
        let cached = table.cache.as_ref().and_then(|cache| {
            if is_short {
                cache.note_use();
            }
            cache.record(hash, key)
        });
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

    /// Reads those blocks that are to be read past the system's cache, all at once.
    pub fn read_blocks<'b>(lookups: impl Iterator<Item = &'b mut Lookup<'a>>)
    where
        'a: 'b,
    {
        let mut direct: Vec<_> = lookups
            .filter_map(|lookup| match &mut lookup.place {
                LookupHit::Block(block) if block.is_direct => Some((lookup.table, block)),
                _ => None,
            })
            .collect();
        if let Some((table, _)) = direct.first()
            && let Some(direct_reads) = table.direct_reads()
        {
            let wanted: Vec<_> = (direct.iter())
                .map(|(table, block)| (table.stored.path.as_path(), block.place.clone()))
                .collect();
            for ((table, block), read) in direct.iter_mut().zip(direct_reads.read(&wanted)) {
                block.own = table.direct_body(block.number, &block.place, read);
                if block.own.is_none() {
                    table
                        .mapped(&block.place)
                        .inspect(|mapped| will_need(mapped));
                }
            }
        }
    }

    /// Finds the approximate entry in the block, if the block needs no decompression.
    pub fn find_entry(&mut self) -> Result<()> {
        let block = match &mut self.place {
            LookupHit::Block(block) if block.own.is_none() => block,
            _ => return Ok(()),
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
        if let Some(body) = block.own {
            return table.get_in_direct(block.number, &body, wanted);
        }
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
        let (mut is_read, mut is_direct) = (false, false);
        if let Some(block) = table.mapped(&place) {
            if is_short {
                is_read = !is_resident(block);
                is_direct = table.is_direct(number, block.len(), is_read);
            }
            if is_short && !is_direct {
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
            is_direct,
            own: None,
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
        Lookup::read_blocks([&mut lookup].into_iter());
        lookup.find_entry()?;
        lookup.finish(max)
    }

    pub(in crate::table) fn direct_reads(&self) -> Option<&DirectReads> {
        self.cache.as_ref()?.direct_reads()
    }

    /// Whether mapped block `number`, of `len` bytes, is read past the system's cache.
    fn is_direct(&self, number: usize, len: usize, is_absent: bool) -> bool {
        let Some(direct_reads) = self.direct_reads() else {
            return false;
        };
        let was_read = self.is_checked(number as u64);
        if !is_absent {
            if was_read {
                direct_reads.note_kept();
            }
            return false;
        }
        let is_cached = self.has_packed() && self.cached_body(number).is_some();
        !is_cached && direct_reads.is_due(len, was_read)
    }

    /// The body of block `number` at `place`, which was read past the system's cache. Where it could not be, or is not sound, the
    /// block is checked again in the map, though it was sound when it was read there: so a failing device is an error, and
    /// no signal.
    pub(in crate::table) fn direct_body(
        &self,
        number: usize,
        place: &Range<u64>,
        read: Option<Bytes>,
    ) -> Option<Bytes> {
        let body = read.and_then(|block| {
            let trailer = self.stored.sound_trailer(place, &block).ok()?;
            self.unpacked(place, &block, &trailer).ok()
        });
        if body.is_none() {
            self.note_check(number as u64, false);
        }
        body
    }

    /// Gets from the body of a block that was read past the system's cache, and caches the record. A value that is handed out
    /// keeps nothing of the block.
    #[cold]
    fn get_in_direct(
        self: &Arc<Self>,
        number: usize,
        body: &Bytes,
        wanted: Wanted<'_>,
    ) -> Result<Option<TableHit>> {
        let mut found = self.get_in::<Error>(number, body, 0..body.len(), wanted)?;
        self.cache_record(wanted, &found);
        if let Some(TableHit { value, .. }) = &mut found
            && let FoundValue::Here(value) = value
        {
            *value = Bytes::copy_from_slice(value);
        }
        Ok(found)
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
        self.cache.as_ref().inspect(|cache| cache.note_use());
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
