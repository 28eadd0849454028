//! The database for tasks of an asynchronous program, with the feature `tokio`.
//!
//! [`AsyncDatabase`], [`AsyncContainer`], [`AsyncTransaction`], [`AsyncSnapshot`] and [`AsyncView`] have the calls of their counterparts without
//! `Async`, as futures. None of them makes the thread that polls it wait; the database under them is the same, and both
//! kinds of handles may be used side by side ([`AsyncDatabase::as_sync`]).
//!
//! ```
//! use std::time::Duration;
//! use ebbtide::tokio::AsyncDatabase;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let db = AsyncDatabase::open(folder.path()).await?;
//! let tokens = db.container("tokens").await?;
//!
//! let tasks = (0..100).map(|n| {
//!     let tokens = tokens.clone();
//!     tokio::spawn(async move {
//!         let key = format!("token-{n:03}");
//!         tokens.put_with_ttl(&key, "ada", Duration::from_secs(60)).await?;
//!         tokens.contains(&key).await
//!     })
//! });
//! for task in tasks.collect::<Vec<_>>() {
//!     assert!(task.await??);
//! }
//!
//! let mut items = tokens.prefix("token-09"); // a stream: a chunk at a time
//! let mut seen = 0;
//! while let Some(item) = items.next().await {
//!     assert_eq!(item?.value(), "ada");
//!     seen += 1;
//! }
//! assert_eq!(seen, 10);
//! db.close().await?;
//! # Ok(()) }
//! ```
//!
//! # What is answered where
//!
//! A call is answered *inline*, by the thread that polls it, when nothing has to be waited for. Else it goes to a small
//! *pool* of threads of its own, and its task rests. [`AsyncDatabase::async_stats`] counts both.
//!
//! | call | inline | by the pool |
//! | --- | --- | --- |
//! | get, item, contains, get_many | the newest version is in a memtable, or its block is in the cache, or its pages are mapped and the system has them in memory; or filters say that there is none | a file has to be read, settings are being changed, or a write that is in progress has to be waited for |
//! | put, delete, delete_range, batches without conditions | nothing holds writers up: no stall, no full memtable or log segment, and the commit lock is free, or will be in about a microsecond | else |
//! | create, replace, touch, expire, take, update, `Ttl::Keep`, batches with conditions | both | else |
//! | the sync of a write under `Durability::Sync`, [`AsyncDatabase::sync`] | the write is begun inline; a thread of the database then syncs for all tasks that wait, as [`Database::sync_then`](crate::Database::sync_then) does | never |
//! | ranges, changes, expirations, count, first, last | | a chunk at a time, or the whole call |
//! | transactions | | each call of one that was begun; a whole closure |
//! | containers, settings, statistics, bulk loads, flush, compact, checkpoint, verify | | always |
//!
//! Memory maps and inline answers: one call asks the system whether the pages of a mapped table's block are in memory.
//! Filters and indexes, 2 to 4 % of the tables, are taken to be there once they have been read, for every get looks at
//! them; where memory is so short that they are evicted, a get may wait for a page. The thread notices that, and sends
//! reads of tables to the pool for a while. With [`Reads::Pread`](crate::Reads) that does not happen: a block is in the
//! cache, or its read goes to the pool. The log takes a write by a store into a map, which may fault a page in but
//! reads no file.
//!
//! # The pool
//!
//! Four threads for reads, four for writes, so that a stalled write keeps no read waiting, and two for work on the
//! whole database; each starts when it is first needed. [`AsyncDatabase::with_threads`] chooses other numbers. However
//! many tasks wait, there are no more threads: ten thousand waiting tasks are ten thousand entries of a queue. If
//! everything asked for is in memory, none is ever started.
//!
//! An inline answer takes from the budget that tokio gives each poll of a task, so a task that loops over items in
//! memory lets others run. Nothing here needs a runtime: any executor can poll these futures, and calls go on while a
//! runtime is shut down: one that has begun is done, one that has not is dropped with its task.
//!
//! # Dropped futures
//!
//! Nothing is done before a future is polled. A write whose future is dropped, by `select!` or a timeout, is done whole
//! if it had begun, and never begins if it had not. Nothing is done in part, and no later call waits for a dropped one.
//!
//! # Errors
//!
//! Those of the counterparts; and [`Error::Io`](crate::Error::Io) when no thread of the pool can be started. A panic of
//! a closure continues in the task.

mod pool;
mod write;
mod timer;
mod shared;
mod stream;
mod turns;
mod read;
mod transaction;
mod container;
mod get_with;
mod database;
#[cfg(feature = "typed")]
mod typed_read;
#[cfg(feature = "typed")]
mod typed;

pub use container::AsyncContainer;
pub use database::{AsyncDatabase, AsyncSnapshot, AsyncStats, AsyncView};
pub use stream::{ItemStream, KeyStream};
pub use transaction::AsyncTransaction;
pub use turns::{AsyncChangePages, AsyncChanges, AsyncExpirations, AsyncWatch};
#[cfg(feature = "typed")]
pub use typed::{AsyncTypedContainer, AsyncTypedView};
#[cfg(feature = "typed")]
pub use typed_read::{TypedItemStream, TypedKeyStream};
