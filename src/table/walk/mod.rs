//! Going through a table or a run: for iterators in both directions, for jobs once from the first record to the last.

pub mod uniform_block;
pub mod cursor;
pub mod run;
pub mod run_reader;
