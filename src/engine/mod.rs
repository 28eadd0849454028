//! The engine: containers, the commit turn, reads, background work, brought together.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. `merging`, `flushing`: one job of each kind at a time;
//! 2. `turn`: the commit turn. Sequence numbers, stamps, changes of settings, the log's order, sealing;
//! 3. `manifest`: one edit at a time;
//! 4. a container's `installing`: one change of its picture at a time;
//! 5. `snapshots`, `busy`, `budget`, `retired`, `scrub`, `sync_due`, a memtable's `moving`: held for a few instructions,
//!    nothing is taken inside.
//!
//! Readers take none of them, but for the turn where a write is under way that relies on a version just found dead (see
//! read.rs): they load a picture, the published number, the clock and the settings, in that order.
//! Each is newer than the one before. A memtable leaves a picture in the same step in which its run enters it, so a
//! picture lacks nothing that was published before it was loaded; and what a later merge drops is still in it.

pub mod options;
mod state;
mod relied;
mod retired;
mod core;
mod history;
mod pacing;
mod read;
mod write;
mod containers;
mod trim;
mod install;
mod jobs;
mod reclaim;
mod scrub;
mod background;
mod report;
mod begin;
mod replay;
mod open;
mod checkpoint;
mod repair;

pub use core::Engine;
pub use read::{Reader, Scan};
pub use repair::{Loss, RepairReport, repair};
pub use scrub::VerifyReport;
pub use state::{ContainerState, SnapshotPin};
pub use write::{Verdict, Writes};
