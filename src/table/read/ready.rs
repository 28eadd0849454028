//! The parts of a table that can be read without waiting for a device.
//!
//! ```text
//! filter and index     were opened
//! block                in the cache; or mapped, checked, and used as it lies in the file
//! record               in the cache, where memory is short (lookup.rs)
//! value in the block   is there with it
//! large value          mapped, checked, used as it lies in the file
//! ```
//!
//! Mapped bytes are taken to be in memory, unless this thread had to wait for a device of late: then pages were evicted, and
//! for a while the system is asked about each part that is touched, filter and index, too. So where memory is short, a
//! caller that must not wait does so for a page now and then, and notices. It is not asked about all that is mapped at all
//! times, because that costs as much as the rest of a get.

use std::ops::Range;

use crate::base::{Now, Patience};
use crate::env::{is_resident, memory_was_known_short, memory_was_short};
use crate::table::encode::block::Extent;
use crate::table::encode::codec::Codec;
use crate::table::encode::filter;
use crate::table::encode::index::Index;
use crate::table::read::reader::Table;
use crate::table::read::source::Access;

/// Whether mapped bytes are taken to be in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::table) enum Residency {
    /// They are; or the caller may wait.
    Trusted,
    /// The system is asked.
    Asked,
}

impl Residency {
    #[inline(always)]
    fn is_there(self, bytes: &[u8]) -> bool {
        self == Residency::Trusted || is_resident(bytes)
    }
}

impl Table {
    /// Whether this thread takes mapped bytes to be in memory now.
    #[inline(always)]
    pub(in crate::table) fn residency<P: Patience>(&self) -> Residency {
        self.residency_if::<P>(memory_was_short)
    }

    #[inline(always)]
    fn residency_if<P: Patience>(&self, is_short: impl FnOnce() -> bool) -> Residency {
        match P::WAITS || self.stored.map(Access::Random).is_none() || !is_short() {
            true => Residency::Trusted,
            false => Residency::Asked,
        }
    }

    /// Most tables that are asked end at their filter: for that nothing is queried anew.
    #[inline(always)]
    pub(in crate::table) fn filter_is_ready(&self, hash: u64) -> bool {
        let residency = self.residency_if::<Now>(memory_was_known_short);
        let filter = self.filter.get();
        filter.is_some_and(|filter| residency.is_there(filter::line(filter, hash)))
    }

    #[inline(always)]
    pub(in crate::table) fn index_is_ready(&self, residency: Residency) -> bool {
        self.index
            .get()
            .is_some_and(|index| residency.is_there(index.top_bytes()))
    }

    #[inline(always)]
    pub(in crate::table) fn page_is_ready(
        &self,
        index: &Index,
        at: usize,
        residency: Residency,
    ) -> bool {
        index.page(at).is_some() && residency.is_there(index.page_bytes(at))
    }

    /// Whether the block can be used where it is mapped. Of a packed block that is cached, the map is left alone: nobody
    /// keeps it in memory.
    #[inline(always)]
    pub(in crate::table) fn block_is_ready(
        &self,
        number: usize,
        place: &Range<u64>,
        residency: Residency,
    ) -> bool {
        let is_there = |block| residency.is_there(block);
        self.is_checked(number as u64)
            && !(self.has_packed() && self.cached_body(number).is_some())
            && self.mapped(place).is_some_and(is_there)
    }

    /// The same of a large value.
    pub(in crate::table) fn value_is_ready<P: Patience>(&self, extent: &Extent) -> bool {
        let is_checked = extent.codec == Codec::Raw
            && extent.number < self.statistics.large_values
            && self.is_checked(self.statistics.blocks + extent.number);
        let end = extent.offset.saturating_add(extent.stored_len);
        let residency = self.residency::<P>();
        is_checked
            && self
                .mapped(&(extent.offset..end))
                .is_some_and(|value| residency.is_there(value))
    }
}
