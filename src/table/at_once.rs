//! Getting a key without waiting for a file.
//!
//! ```text
//! filter and index     were opened: they are looked at all the time, and taken to stay in memory
//! block                in the cache; or mapped, checked, and resident as the system says
//! value in the block   is there with it
//! large value          mapped, checked, as it is, resident
//! ```
//!
//! Everything else would wait, or may. Where this thread had to read from a device of late, memory is short, and even
//! filters may have been evicted: then nothing that is mapped is taken to be there.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::{AtOnce, NotNow, Seq};
use crate::env::{is_resident, memory_is_short};
use crate::table::block::Extent;
use crate::table::codec::Codec;
use crate::table::filter;
use crate::table::format::Access;
use crate::table::reader::{Found, FoundValue, Table};

impl Table {
    /// As [`Table::get`].
    pub fn get_at_once(self: &Arc<Self>, hash: u64, key: &[u8], max: Seq) -> AtOnce<Option<Found>> {
        let map = self.stored.map(Access::Random);
        if map.is_some() && memory_is_short() {
            return Err(NotNow::Waits);
        }
        let filter = self.filter.get().ok_or(NotNow::Waits)?;
        if !filter::may_contain(filter, hash) {
            return Ok(None);
        }
        let index = self.index.get().ok_or(NotNow::Waits)?;
        let Some(at) = index.top().find(key) else {
            return Ok(None);
        };
        let page = index.page(at).ok_or(NotNow::Waits)?;
        let Some(row) = page.find(key) else {
            return Ok(None);
        };
        let number = index.blocks_of(at).start + row;
        let wanted = (hash, key, max);
        let cached = self.cache.as_ref();
        if let Some(body) = cached.and_then(|cache| cache.get(number as u64)) {
            return Ok(self.get_in(number, &body, 0..body.len(), wanted)?);
        }
        let map = map.ok_or(NotNow::Waits)?;
        let range = self.resident_body(map, number, &page.place(row))?;
        Ok(self.get_in(number, map, range, wanted)?)
    }

    /// Where in the map the body of a block lies, which is not packed.
    fn resident_body(
        &self,
        map: &Bytes,
        number: usize,
        place: &Range<u64>,
    ) -> AtOnce<Range<usize>> {
        let start = place.start as usize;
        let block = &map[start..place.end as usize];
        if !self.is_checked(number as u64) || !is_resident(block) {
            return Err(NotNow::Waits);
        }
        let trailer = self.stored.trailer(place, block)?;
        match trailer.codec {
            Codec::Raw => Ok(start..start + trailer.body_len),
            _ => Err(NotNow::Waits),
        }
    }

    fn large_value_at_once(&self, extent: &Extent) -> AtOnce<Bytes> {
        let is_there = extent.codec == Codec::Raw
            && extent.number < self.statistics.large_values
            && self.is_checked(self.statistics.blocks + extent.number);
        let map = self.stored.map(Access::Random).filter(|_| is_there);
        let map = map.ok_or(NotNow::Waits)?;
        let start = extent.offset as usize;
        let end = start.saturating_add(extent.stored_len as usize);
        match map.get(start..end) {
            Some(bytes) if is_resident(bytes) => Ok(map.slice(start..end)),
            _ => Err(NotNow::Waits),
        }
    }
}

impl Found {
    /// As [`Found::value`].
    pub fn value_at_once(self) -> AtOnce<Bytes> {
        match self.value {
            FoundValue::Here(bytes) => Ok(bytes),
            FoundValue::Large(large) => large.table.large_value_at_once(&large.extent),
        }
    }
}
