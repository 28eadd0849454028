//! Ebbtide is an embeddable storage engine for data with a deadline: sessions, tokens, caches, idempotency keys, rate
//! limits, telemetry, logs. An item is gone for every reader in the millisecond in which it expires; its bytes leave the
//! disk soon after, mostly by whole files that are unlinked without being read.
//!
//! # From nothing to an item that expires
//!
//! `cargo add ebbtide`, and in `src/main.rs`:
//!
//! ```standalone_crate
//! use ebbtide::Database;
//! use std::time::Duration;
//!
//! fn main() -> ebbtide::Result<()> {
//! #   let folder = tempfile::tempdir().unwrap();
//! #   std::env::set_current_dir(&folder).unwrap();
//!     let tokens = Database::open("my-database")?.container("tokens")?;
//!     tokens.put_with_ttl("t-1", "ada", Duration::from_secs(2))?;
//!     println!("{:?}", tokens.get("t-1")?); // Some(b"ada")
//!     std::thread::sleep(Duration::from_secs(2));
//!     println!("{:?}", tokens.get("t-1")?); // None
//!     Ok(())
//! }
//! ```
//!
//! # What there is
//!
//! A [`Database`] is a folder that one process has open; threads share it, and clones of it are cheap. In it are
//! [`Container`]s: named, ordered sets of [`Item`]s, each with a default ttl that can be changed at any time, in an instant,
//! for everything in it. Items may have a [`Ttl`] of their own. Keys and values are bytes.
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::{Batch, DefaultTtl, ManualClock, Options, Ttl};
//!
//! let folder = tempfile::tempdir()?;
//! let clock = ManualClock::new(1_800_000_000_000); // time stands until it is moved: for tests
//! let db = Options::new().clock(clock.clone()).open(folder.path())?;
//! let sessions = db.container("sessions")?;
//! let half_an_hour = Duration::from_secs(1_800);
//! sessions.set_default_ttl(DefaultTtl::After(half_an_hour))?;
//!
//! sessions.put("s-1", "ada")?; // for half an hour, the default
//! sessions.put_with_ttl("s-2", "bob", half_an_hour / 2)?;
//! sessions.put_with_ttl("s-3", "eve", Ttl::Never)?;
//! clock.advance(half_an_hour / 2);
//! assert!(sessions.get("s-2")?.is_none());
//! assert!(sessions.touch("s-1")?); // for half an hour from now
//!
//! for item in sessions.range("s-1"..) { // in the order of keys
//!     let item = item?;
//!     println!("{:?} for {:?}", item.value(), item.remaining()); // b"ada" for Some(1800s), b"eve" for None
//! }
//!
//! let users = db.container("users")?; // several writes, to several containers, as one
//! let mut batch = Batch::new();
//! batch.delete(&sessions, "s-1").put(&users, "ada", "logged out");
//! db.write(batch)?;
//!
//! sessions.set_default_ttl(DefaultTtl::Off)?; // from now on nothing expires,
//! assert!(sessions.get("s-2")?.is_none()); // but what had expired stays gone
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to go next
//!
#![cfg_attr(
    any(doc, doctest),
    doc = "
The [guide] has a page on each part:

* [which call when](guide::which_call): from the job to the call;
* [lifetimes](guide::ttl): when an item expires, what restarts its countdown, what a change of the default does, what has
  expired;
* [durability](guide::durability): what survives a killed process, and what a power cut;
* [batches](guide::batches): several writes as one, or only if some items are as they were read;
* [transactions](guide::transactions): writes that depend on what is read, and errors of one's own that undo them;
* [caches](guide::caches): values made once, their age, their idle time, and how many there are;
* [indexes](guide::indexes): finding items by something else than the key;
* [reading](guide::reading): one key, many, a range, a count, a snapshot;
* [changes](guide::changes): how caches, search indexes and copies keep up;
* [analytical copies](guide::analytical_copies): how DuckDB or Spark asks about what is stored, or was;
* [time](guide::time): clocks that are wrong, and tests that do not wait;
* [reclaiming and pacing](guide::reclaim): when disk space comes back, what that costs, and what to alarm on;
* [web sessions](guide::sessions): timeouts, and logging a user out everywhere;
* [beside others](guide::beside_others): what other processes may do with a database that one has open;
* [looking inside](guide::looking_inside): what the disk is made of, what ends when, what background work did;
* [backups](guide::backups): copies elsewhere, and a restore that brings back nothing that has expired;
* [errors](guide::errors): which may be tried again, and which need a person.

Coming from [RocksDB](guide::from_rocksdb), [fjall](guide::from_fjall), [redb](guide::from_redb), [sled](guide::from_sled),
[Redis](guide::from_redis) or [Cosmos DB](guide::from_cosmos), begin with the page that has its calls beside these.
"
)]
//! The folder `examples` has programs that do a whole job, each with a test of what it promises: [sessions] with an index by
//! user, [payments] that are made once, a [rate limiter], [telemetry] whose retention an operator changes, an [outbox].
//!
//! All settings are methods of [`Options`], with their defaults, units and ranges; every call's errors are in [`Error`]. The
//! README states the promises, DESIGN.md how they are kept.
//!
//! [sessions]: https://github.com/ebbtide/ebbtide/blob/main/examples/session_store.rs
//! [payments]: https://github.com/ebbtide/ebbtide/blob/main/examples/once_only.rs
//! [rate limiter]: https://github.com/ebbtide/ebbtide/blob/main/examples/rate_limiter.rs
//! [telemetry]: https://github.com/ebbtide/ebbtide/blob/main/examples/services/telemetry.rs
//! [outbox]: https://github.com/ebbtide/ebbtide/blob/main/examples/outbox.rs
//!
//! # Features
//! None is on by default. `typed`: `TypedContainer`, for keys and values of the program's own types. `derive`: `typed`, and
//! `#[derive(Key)]` for structs as keys. `uuid`: `typed`, and uuids as keys. `tokio`:
//! `ebbtide::tokio`, the same operations as futures, which never block a runtime's thread. `zstd`: [`Compression::Zstd`],
//! which builds the C library. `metrics`: `Database::publish_metrics`, figures for the crate of that name. `tracing`: spans of
//! background work for the crate of that name.
//!
//! More crates belong to it: `ebbtide-backup`, incremental backups whose restore brings back nothing that has expired since, in
//! folders and stores of objects; `ebbtide-control`, a socket by which a command changes, compacts and copies a database that a
//! service has open; `ebbtide-cli`, the command `ebbtide`; and stores for tower-sessions, cached and http-cache.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
// Lints for every public name; the names in `internals` are exempt.
#![cfg_attr(
    not(feature = "unstable-internals"),
    warn(missing_debug_implementations, clippy::must_use_candidate)
)]
// Some code is used only through `internals`; builds with that feature find dead code.
#![cfg_attr(
    not(any(test, feature = "unstable-internals")),
    allow(dead_code, unused_imports)
)]

// The order of these lines is the architecture: a module imports only from modules above its own line.
//
// The head of each folder's mod.rs says what it may depend on.
mod base;
mod values;
mod expiry;
mod data;
mod env;
// These three do not know each other.
mod wal;
mod mem;
mod table;
mod catalog;
mod compact;
mod engine;
mod api;
mod indexed;
#[cfg(feature = "typed")]
mod typed;
#[cfg(all(feature = "tokio", not(loom)))]
pub mod tokio;
#[cfg(any(doc, doctest))]
pub mod guide;
#[doc(hidden)]
pub mod shared;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals;
#[cfg(all(test, loom))]
mod models;

pub use api::arguments::KeyBounds;
pub use api::at_rest::{Upgraded, repair, verify};
pub use api::batch::Batch;
pub use api::changes::{ChangePage, ChangePages, ChangePosition, Changes};
pub use api::container::Container;
pub use api::cursor::{Chunk, ChunkIter, Cursor};
pub use api::database::Database;
pub use api::due::{DueBucket, DueItems};
pub use api::expirations::{Expiration, ExpirationCause, Expirations, ExpiryCursor};
pub use api::iter::{Iter, Keys};
pub use api::layout::{RunInfo, TableInfo};
pub use api::retention::Preview;
pub use api::snapshot::{Snapshot, View};
pub use api::transaction::Transaction;
pub use api::watch::{Watch, WatchEvent};
pub use api::writing::Update;
pub use base::record::{MAX_KEY_LEN, MAX_VALUE_LEN};
pub use base::{AtOnce, Countdown, DefaultTtl, Error, Result, Ttl};
pub use bytes::Bytes;
pub use catalog::Ledger;
pub use data::change::{Change, ExpiryRule};
pub use data::explanation::{Explanation, Fate, StoredIn, StoredVersion};
pub use data::item::{Item, Value};
pub use data::version::Version;
pub use data::write::{Expect, OnMiss, Outcome, PutIf, Updated, Upserted, Written};
#[cfg(feature = "derive")]
pub use ebbtide_derive::Key;
pub use engine::options::{ContainerOptions, Durability, Options, Stall};
pub use engine::{Loss, RepairReport, TransactionIter, VerifyReport};
pub use env::{Clock, ClockBehind, ManualClock, SystemClock};
pub use indexed::container::{IndexedContainer, IndexedContainerBuilder};
pub use indexed::lookup::{Index, IndexItems, IndexRange};
pub use indexed::transaction::IndexedTransaction;
#[cfg(feature = "typed")]
pub use typed::batch::TypedBatch;
#[cfg(feature = "typed")]
pub use typed::container::TypedContainer;
#[cfg(feature = "typed")]
pub use typed::feeds::{TypedChange, TypedChanges, TypedExpiration, TypedExpirations};
#[cfg(feature = "typed")]
pub use typed::item::{TypedItem, TypedUpdate, TypedUpdated};
#[cfg(feature = "typed")]
pub use typed::key::{TupleKey, TypedKey, TypedPrefix};
#[cfg(feature = "typed")]
pub use typed::read::{TypedIter, TypedKeys};
#[cfg(feature = "typed")]
pub use typed::transaction::TypedTransaction;
#[cfg(feature = "typed")]
pub use typed::value::{Json, TypedValue};
#[cfg(feature = "typed")]
pub use typed::view::TypedView;
pub use values::disk_usage::{DiskHolder, DiskKind, DiskRow, DiskUsage};
pub use values::listener::{
    BackgroundErrorEvent, CompactionEvent, ControlEvent, EventListener, FlushEvent, ReclaimEvent,
    StallEvent, SyncEvent,
};
pub use values::stats::{ContainerStats, Damage, ReclaimLag, Stats};
pub use values::{Compression, Quota, Reads, WhenFull};

// The examples of the README are tested like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
