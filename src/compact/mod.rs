//! Placement, choice, verdict and execution of the work that keeps a container small: everything but the last is pure.
//!
//! Words: *drop* is to leave out for good, *bury* to keep only the key, as a tombstone, *reclaim* to give bytes back to
//! the file system.

pub mod pace;
mod slot;
mod estimate;
mod verdict;
mod choice;
mod pick;
mod explain;
mod parts;
mod job;

pub use choice::{Choice, Goals, Rewrite, Urgency, Why};
pub use estimate::{Estimate, Estimator, oversized};
pub use explain::explain;
pub use job::{Host, Job, Output, run, survivors};
pub use parts::{guards, parts};
pub use pick::{deadline, ended, pick, pick_all, pressure, start_by};
pub use slot::plan;
pub use verdict::{Decision, OlderVersions, Verdict, decide};
