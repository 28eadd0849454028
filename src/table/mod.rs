//! Tables: immutable sorted files.
//!
//! ```text
//! table       (large value* block)* | zeros | filter | index | statistics | footer
//!             the filter starts at the next multiple of 64; from there on, each part starts where the one before ends
//!
//! block       body, as it is or packed | body length u32 | codec u8 | crc32 u32                           block.rs
//! body        entry* | entry offset (u16 or u32)* | hash byte* | packing | count u32
//! entry       header fields, packed | key | value, or where it lies                                      header_packing.rs
//! large value a value of more than 16 KiB, as it is or packed; it stands before the block of its entry, whose
//!             number, offset, stored length, codec and crc32 the entry states
//! filter      32-byte blocks of eight u32 words                                                           filter.rs
//! index       (page of rows, one per block | crc32)* | top page, one row per page | block numbers          index.rs page.rs
//! statistics  counts, key range, census, histograms, sample, where the table came from               statistics.rs
//! footer      where the parts start, their crc32s, identity, table, container, version, crc32, magic     format.rs
//! ```
//!
//! These files are in encode/. All integers are little-endian. Records are in order: key up, sequence number down.
//!
//! Invariants:
//! * All versions of a key are in one block, which may grow beyond its target size for that. So a get reads one block,
//!   and a sequence of dead blocks ends between keys.
//! * Every byte except the zeros before the filter is under a checksum, and each checksum includes the table's identity
//!   and the offset of its bytes: a block of another table, or from another place, does not pass.
//! * Opening reads footer and statistics. Everything else is checked when it is first read, and a bitmap remembers
//!   that; a large value is read only on request, never by an iteration over keys.
//! * Lengths are checked before they are used; wrong bytes that pass their checksum cause at worst an error.

mod encode;
mod read;
mod walk;
mod check;

pub use check::gap::{Gap, behind};
pub use check::salvage::{Salvage, is_damage};
pub use encode::block::{Layout, Trailer};
pub use encode::builder::{FinishedTable, TableBuilder, TableOptions};
pub use encode::filter::{Probe, build as build_filter, may_contain};
pub use encode::format::{Footer, TableMeta};
pub use encode::index::Index;
#[cfg(any(test, feature = "unstable-internals"))]
pub use encode::search::Share;
pub use encode::statistics::{Collector, Sampled, Statistics};
pub use read::cache::BlockCache;
pub use read::get::TableHit;
pub use read::lookup::Lookup;
pub use read::reader::Table;
pub use read::source::Source;
pub use read::stored::{Expected, highest_seq};
pub use walk::run::RunCursor;
pub use walk::run_reader::RunReader;

#[cfg(test)]
mod tests;
