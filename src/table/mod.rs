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
//! All integers are little-endian. Records are in order: key up, sequence number down.
//!
//! Invariants:
//! * All versions of a key are in one block, which may grow beyond its target size for that. So a get reads one block,
//!   and a sequence of dead blocks ends between keys.
//! * Every byte except the zeros before the filter is under a checksum, and each checksum includes the table's identity
//!   and the offset of its bytes: a block of another table, or from another place, does not pass.
//! * Opening reads footer and statistics. Everything else is checked when it is first read, and a bitmap remembers
//!   that; a large value is read only on request, never by an iteration over keys.
//! * Lengths are checked before they are used; wrong bytes that pass their checksum cause at worst an error.

mod cache;
mod zstd_frame;
mod codec;
mod filter;
mod format;
mod key_samples;
mod statistics;
// records, and which block has them
mod header_packing;
mod block;
mod block_builder;
mod uniform_block;
mod search;
mod page;
mod index;
// writing
mod builder;
// reading
mod read_ahead;
mod stored;
mod reader;
mod ready;
mod get;
mod lookup;
// all of a table
mod cursor;
mod run;
mod run_reader;
mod random;
mod verify;
mod salvage;

pub use block::{Layout, Trailer};
pub use builder::{FinishedTable, TableBuilder, TableOptions};
pub use cache::BlockCache;
pub use filter::{Probe, build as build_filter, may_contain};
pub use format::{Footer, Source, TableMeta};
pub use get::TableHit;
pub use index::Index;
pub use lookup::Lookup;
pub use reader::Table;
pub use run::RunCursor;
pub use run_reader::RunReader;
pub use salvage::{Gap, Salvage, behind, is_damage};
#[cfg(any(test, feature = "unstable-internals"))]
pub use search::Share;
pub use statistics::{Collector, Sampled, Statistics};
pub use stored::{Expected, highest_seq};

#[cfg(test)]
mod tests;
