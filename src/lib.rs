//! Ebbtide is an embeddable storage engine for data with a deadline.

#![allow(dead_code, unused_imports)]

// The order of these lines is the architecture: a module imports only from modules above its own line.
mod coding;
mod counters;
mod error;
mod hash;
mod types;
// rules
mod batch;
mod expiry;
mod merge;
mod record;
// world
mod env;
// shelves
// engine
mod engine;
mod options;
// front desk
mod container;
mod db;

pub use container::{Batch, Container, Item, Iter, Snapshot, Update, Value, View};
pub use counters::{ContainerStats, Stats};
pub use db::Database;
pub use env::{Clock, ClockBehind, ManualClock, SystemClock};
pub use error::{Error, Result};
pub use options::{ContainerOptions, Durability, Options, Stall};
pub use types::{Compression, DefaultTtl, Ttl};

/// What tests and fuzz targets of the engine reach inside; no part of the public face, and free to change.
#[doc(hidden)]
pub mod internals {
    pub use crate::env::{Disk, FaultPlan, Fs, Sim};
}
