//! Lending: scans take items from blocks of records that are alike, many in a step, as places in bytes.

pub mod uniform_block;
pub mod room;
pub mod lent;
pub mod block_slice;
pub mod uniform_merge;
