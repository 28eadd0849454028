//! Ebbtide is an embeddable storage engine for data with a deadline.

#![allow(dead_code, unused_imports)]

// The order of these lines is the architecture: a module imports only from modules above its own line.
//
// words: no I/O, no clock, no threads
mod types;
mod error;
mod coding;
mod hash;
mod counters;
// rules: pure functions; `now` is always an argument
mod record;
mod expiry;
mod batch;
mod merge;
mod view;
// world: the only place for files, maps, time, threads
mod env;
// shelves: one structure each; they do not know each other
mod wal;
mod mem;
mod table;
// catalogue
mod version;
// housekeeping: decides with pure code, acts in one file
mod pace;
mod compact;
// engine
mod options;
mod engine;
// front desk
mod container;
mod db;
mod inspect;
pub mod json;

pub use container::{Batch, Container, Item, Iter, Snapshot, Update, Value, View};
pub use counters::{ContainerStats, Stats};
pub use db::Database;
pub use env::{Clock, ClockBehind, ManualClock, SystemClock};
pub use error::{Error, Result};
pub use inspect::{VerifyReport, verify};
pub use options::{ContainerOptions, Durability, Options, Stall};
pub use types::{Compression, DefaultTtl, Ttl};

/// What tests and fuzz targets of the engine reach inside; no part of the public face, and free to change.
#[doc(hidden)]
pub mod internals {
    pub use crate::env::{Disk, FaultPlan, Fs, Sim};
}

// The examples of the README are tested like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
