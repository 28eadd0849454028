//! Background work: its steps, their moments, their files.

mod checkpoint;
mod disk_usage;
mod files;
mod growth;
mod many;
mod pacing;
mod reclaim;
mod runs;
