//! The bytes of a table's parts: how they are written, decoded and searched. Nothing here reads a file.

pub mod zstd_frame;
pub mod codec;
pub mod filter;
pub mod format;
pub mod key_samples;
pub mod statistics;
// records, and which block has them
pub mod header_packing;
pub mod block;
pub mod block_builder;
pub mod search;
pub mod page;
pub mod index;
// all of it
pub mod builder;
