//! Records, and operations on them: pure functions over keys, values, headers and range tombstones; `now` is always an
//! argument. This folder does not know where records are stored: memtables and tables are seen as cursors.

pub mod version;
pub mod explanation;
pub mod item;
pub mod visibility;
pub mod write;
pub mod change;
pub mod new_container;
pub mod relogged;
pub mod batch;
pub mod own_writes;
pub mod range_delete;
pub mod range_tombstones;
pub mod lend;
pub mod cursor;
pub mod bare_ranges;
pub mod between;
pub mod merge;
pub mod view;
