//! Background jobs on containers, each one piece of work on the calling thread: flushes, merges and rewrites, log
//! garbage collection, scrubbing.

pub mod listening;
pub mod pacing;
pub mod relog;
pub mod job;
pub mod log_gc;
pub mod left_out;
pub mod next_version;
pub mod install;
pub mod flush;
pub mod partial_flush;
pub mod rewrite;
pub mod scrub;
pub mod background;
