//! Open tables, and what is read of them without going through them: parts, one key, one record by its number.

pub mod source;
pub mod direct_reads;
pub mod cache;
pub mod read_ahead;
pub mod stored;
pub mod reader;
pub mod ready;
pub mod get;
pub mod lookup;
pub mod random;
