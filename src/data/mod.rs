//! Records and what is made of them: pure functions over keys, values, headers and range tombstones; `now` is always an
//! argument. Nothing here knows where records lie: memtables and tables are seen as cursors.

pub mod version;
pub mod item;
pub mod visibility;
pub mod write;
pub mod batch;
pub mod range_delete;
pub mod range_tombstones;
pub mod cursor;
pub mod merge;
pub mod view;
