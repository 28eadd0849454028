//! Ebbtide is an embeddable storage engine for data with a deadline: sessions, tokens, caches, idempotency keys, rate
//! limits, telemetry, logs. An item is gone for every reader in the millisecond in which it expires; its bytes leave the
//! disk soon after, mostly by whole files that are unlinked without being read.
//!
//! A [`Database`] is a folder that one process has open. In it are [`Container`]s: named, ordered sets of [`Item`]s, each
//! with a default ttl that can be changed at any time, in an instant, for everything in it. Items may have a [`Ttl`] of
//! their own. [`Batch`]es write to several containers at once, [`Snapshot`]s read them as they were written at one moment.
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::{DefaultTtl, ManualClock, Options, Ttl};
//!
//! let folder = tempfile::tempdir()?;
//! let clock = ManualClock::new(1_800_000_000_000); // time stands until it is moved: for tests
//! let db = Options::new().clock(clock.clone()).open(folder.path())?;
//! let tokens = db.container("tokens")?;
//! tokens.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))?;
//!
//! tokens.put("short", "one minute, the default")?;
//! tokens.put_with_ttl("long", "an hour", Ttl::After(Duration::from_secs(3_600)))?;
//! clock.advance(Duration::from_secs(60));
//! assert!(tokens.get("short")?.is_none());
//! assert_eq!(tokens.iter().count(), 1);
//!
//! tokens.set_default_ttl(DefaultTtl::Off)?; // from now on nothing expires,
//! assert!(tokens.get("short")?.is_none()); // but what had expired stays gone
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The README states the promises, DESIGN.md how they are kept.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// What is said of every public name; the names in `internals` need not keep to it.
#![cfg_attr(
    not(feature = "unstable-internals"),
    warn(missing_debug_implementations, clippy::must_use_candidate)
)]
// Some of what `internals` shows is used by nothing else; what is dead shows in the builds that have it.
#![cfg_attr(
    not(any(test, feature = "unstable-internals")),
    allow(dead_code, unused_imports)
)]

// The order of these lines is the architecture: a module imports only from modules above its own line.
//
// Each folder's head says what may be known in it.
mod base;
mod expiry;
mod data;
mod env;
// One structure each; they do not know each other.
mod wal;
mod mem;
mod table;
mod catalog;
mod compact;
mod engine;
mod api;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals;
#[cfg(all(test, loom))]
mod models;

pub use api::arguments::KeyBounds;
pub use api::batch::Batch;
pub use api::container::{Container, Update};
pub use api::cursor::{Chunk, ChunkIter, Cursor};
pub use api::database::Database;
pub use api::inspect::{repair, verify};
pub use api::read::{Iter, Keys};
pub use api::snapshot::{Snapshot, View};
pub use base::counters::{ContainerStats, Damage, ReclaimLag, Stats};
pub use base::record::{MAX_KEY_LEN, MAX_VALUE_LEN};
pub use base::{Compression, DefaultTtl, Error, Reads, Result, Ttl};
pub use bytes::Bytes;
pub use data::item::{Item, Value};
pub use data::version::Version;
pub use data::write::{Expect, Updated, Written};
pub use engine::options::{ContainerOptions, Durability, Options, Stall};
pub use engine::{Loss, RepairReport, VerifyReport};
pub use env::{Clock, ClockBehind, ManualClock, SystemClock};

// The examples of the README are tested like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
