//! What background work does, when, and to which files.

mod checkpoint;
mod disk_usage;
mod files;
mod growth;
mod many;
mod pacing;
mod reclaim;
mod runs;
