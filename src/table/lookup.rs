//! A get in steps, for callers with many keys. A get waits for memory some four times, one after the other, because each step
//! says where the next one reads; the waits of interleaved gets overlap.
//!
//! ```text
//! step          reads                            prefetches
//! announce      -                                the line of the filter
//! start         filter, index                    the end of the block, where memory is short all of it
//! find_entry    the block's end, hash bytes      the entry
//! finish        the entry                        -
//! ```
//!
//! The result of `finish` is that of [`Table::get`]; only the waiting differs.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Result, Seq};
use crate::env::{memory_is_short, prefetch, will_need};
use crate::table::block::Layout;
use crate::table::filter;
use crate::table::format::Access;
use crate::table::reader::{Found, Table};

/// A get of a key that passed the table's filter.
pub struct Lookup<'a> {
    table: &'a Arc<Table>,
    hash: u64,
    key: &'a [u8],
    /// The number and the file range of the block that can hold the key.
    block: (usize, Range<u64>),
    /// If the block needs no decompression: the map, and the range of the body in it.
    body: Option<(&'a Bytes, Range<usize>)>,
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
        Lookup::in_block(table, hash, key)
    }

    #[inline(never)]
    fn in_block(table: &'a Arc<Table>, hash: u64, key: &'a [u8]) -> Result<Option<Lookup<'a>>> {
        let Some(block) = table.find_block(key)? else {
            return Ok(None);
        };
        let place = &block.1;
        if let Some(map) = table.stored.map(Access::Random)
            && let Some(block) = map.get(place.start as usize..place.end as usize)
        {
            if memory_is_short() {
                will_need(block);
            }
            block.iter().rev().take(256).step_by(64).for_each(prefetch);
        }
        Ok(Some(Lookup {
            table,
            hash,
            key,
            block,
            body: None,
        }))
    }

    /// Finds the approximate entry in the block, if the block needs no decompression.
    pub fn find_entry(&mut self) -> Result<()> {
        let (number, place) = &self.block;
        self.body = self.table.raw_body(*number, place, Access::Random)?;
        if let Some((map, range)) = &self.body {
            let body = &map[range.clone()];
            // `finish` reports damage.
            if let Ok(layout) = Layout::of(body) {
                layout.block(body).fetch_match(self.hash);
            }
        }
        Ok(())
    }

    /// The newest version with a sequence number of `max` at most.
    pub fn finish(self, max: Seq) -> Result<Option<Found>> {
        let (number, place) = self.block;
        let wanted = (self.hash, self.key, max);
        match self.body {
            Some((map, range)) => self.table.get_in(number, map, range, wanted),
            None => self.table.get_in_own(number, &place, wanted),
        }
    }
}
