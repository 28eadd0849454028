//! Compaction: slots, picker, verdict, and the job that merges. Everything but the job is pure.
//!
//! Words: a job *drops* a record (leaves it out for good) or *buries* it (writes only the key, as a tombstone); to
//! *reclaim* is to give bytes back to the file system.

pub mod pace;
mod slot;
mod answer;
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
