//! What is done to containers in the background, each one piece of work on the calling thread: flushes, merges and
//! rewrites, the log's segments that nobody needs, scrubbing.

pub mod job;
pub mod log_gc;
pub mod install;
pub mod flush;
pub mod front;
pub mod rewrite;
pub mod scrub;
