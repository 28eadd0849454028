//! Placement, choice, verdict and execution of the work that keeps a container small: everything but the last is pure.
//!
//! Words: *drop* is to leave out for good, *bury* to keep only the key, as a tombstone, *reclaim* to give bytes back to
//! the file system.

mod slot;
mod pick;
mod verdict;
mod job;

pub use job::{Host, Job, Output, forecast, run};
pub use pick::{
    Choice, Estimate, Estimator, Goals, Sample, ended, expired_in_run, oldest_dead,
    oldest_dead_in_run, pick, pick_all, start_by,
};
pub use slot::plan;
