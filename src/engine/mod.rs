//! The engine: parts that each own their state and keep one invariant, and the operations over them.
//!
//! ```text
//! CommitLog     one order of writes; what is logged, in memory, visible      commit.rs
//! Catalog       what is durable of tables and settings; its edits            catalog.rs
//! ContainerSet  containers by name                                           containers.rs
//! ContainerState  what a reader pins of one container                        state.rs
//! Snapshots     open snapshots, and what jobs keep for them                  snapshots.rs
//! SettingsCell  a container's settings, as one value                         settings_cell.rs
//! Feeds         readers of a container's expirations, and what is held       feeds.rs
//! Passes        where passes of `changes` read, once settings change         passes.rs
//! Allowance     what a quota lets be written before live bytes are estimated anew   allowance.rs
//! Scheduler     threads, who may work now, what failed                       scheduler.rs
//! Throttle      what slows writers and background work                       throttle.rs
//! ObsoleteTables  tables to be removed                                       obsolete.rs
//! Loads         tables that bulk loads write                                 loads.rs
//! DamagedTables   damaged tables that scrubbing found                        damage.rs
//! SyncWaiters     callers who wait for a sync of the log                     sync_waiters.rs
//! Events          what the listener is told                                  events.rs
//! Follower        what is taken in of another process's database             follower.rs
//! ```
//!
//! The parts do not know each other, except that an edit takes a [`commit::Basis`]. [`Engine`] holds them; the files
//! after it are its operations.
//!
//! # Locks, in the order in which they are taken
//!
//! | | lock | owner | held for |
//! | --- | --- | --- | --- |
//! | 1 | `stand` | `Follower` | to catch up; one at a time |
//! | 1 | `merging` | `Scheduler` | a merge; one at a time |
//! | 2 | `flushing` | `Scheduler` | a flush; one at a time |
//! | 2 | `known` | `Allowance` | to estimate live bytes, and to make room; one writer at a time |
//! | 3 | the commit lock | `CommitLog` | a write, a change of settings, a seal, a relog |
//! | 4 | `manifest` | `Catalog` | an edit; one at a time |
//! | 4 | `frozen` | `Follower` | to register a snapshot, to replace all read states |
//! | 5 | `doubtful`, `logged` | `Catalog` | some instructions |
//! | 5 | `unnamed` | `Loads` | to create, rename or remove tables of bulk loads |
//! | 5 | `by_name` | `ContainerSet` | some instructions |
//! | 5 | `installing` | `ContainerState` | one change of its read state |
//! | 6 | `moving` | a memtable's `Flushable` | some instructions, and so all below |
//! | 6 | `held` | `ContainerState` | to take read states from scans that rest; tries each scan's own lock |
//! | 6 | `rest` | `ContainerState` | |
//! | 5 | the list of passes; a pass's own, taken inside | `Passes` | to load a read state |
//! | 6 | `readers` | `Feeds` | |
//! | 6 | `open` | `Snapshots` | the published sequence number is read in it |
//! | 6 | `budget` | `Throttle` | |
//! | 6 | `queue` | `ObsoleteTables` | |
//! | 6 | `found` | `DamagedTables` | |
//! | 6 | `waiting` | `SyncWaiters` | |
//! | 6 | `queue`; `calling`, which is only tried | `Events` | `calling`: calls of the listener, by a thread that holds no other |
//! | 6 | `busy`, `quiet`, `failures`, `sync_due`, `threads` | `Scheduler` | |
//! | 6 | `reclaim_lag` | `Counters` | |
//! | 6 | what was published | `Publisher`, with the feature `metrics` | |
//! | 6 | `lock` | [`Engine`] | the folder's lock is released |
//!
//! A thread holds one lock of a rank at a time. A transaction's own lock (api/transaction.rs) is taken before all of these.
//! The log, the memtables, the cache and the clock have locks of their own, which are taken inside any of these and inside
//! which none of these is taken.
//!
//! Readers load a read state, the published sequence number, the clock and the settings, in that order, each newer than the
//! one before. They take no lock, except the commit lock where a write in progress relies on a version that they found dead
//! (read.rs). A memtable leaves a read state in the same step in which its run enters it. So a read state holds everything
//! that was published before it was loaded; a record that a later merge drops is still in it.

pub mod options;
// parts: each owns its fields
mod settings_cell;
mod feeds;
mod allowance;
mod passes;
mod state;
mod snapshots;
mod containers;
mod relied;
mod commit;
mod catalog;
mod scheduler;
mod throttle;
mod obsolete;
mod loads;
mod damage;
mod sync_waiters;
mod events;
#[cfg(feature = "metrics")]
mod publisher;
mod follower;
// what the engine does with them
mod core;
mod listening;
mod handle;
mod pacing;
mod read;
mod random;
mod scan;
mod read_many;
mod relog;
mod admit;
mod writes;
mod prepared;
mod write;
mod conditional;
mod read_set;
mod create;
#[cfg(feature = "tokio")]
mod at_once;
mod jobs;
mod background;
mod report;
mod due;
mod quota;
mod bulk;
mod why;
mod disk_usage;
mod changes;
mod feed;
#[cfg(feature = "metrics")]
mod metrics;
mod old_log;
mod begin;
mod replay;
mod open;
mod catch_up;
mod close;
mod checkpoint;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::counters::Counters;
use crate::base::sync::Mutex;
use crate::env::{Fs, Lock, SettledClock};
use crate::mem::Pool;
use crate::table::BlockCache;

use allowance::Allowance;
use catalog::Catalog;
use commit::CommitLog;
use containers::ContainerSet;
use damage::DamagedTables;
use events::Events;
use follower::Follower;
use loads::Loads;
use obsolete::ObsoleteTables;
use options::Options;
use scheduler::Scheduler;
use snapshots::Snapshots;
use sync_waiters::SyncWaiters;
use throttle::Throttle;

#[cfg(feature = "tokio")]
pub use at_once::Begun;
pub use bulk::LoadedItem;
pub use changes::ChangeReader;
pub use feed::{Ended, Feed, Place};
pub use handle::Handle;
pub use jobs::scrub::VerifyReport;
pub use random::Drawn;
pub use read::Reader;
pub use read_set::ReadSet;
pub use repair::{Loss, RepairReport, repair};
pub use scan::Scan;
pub use snapshots::SnapshotPin;
pub use state::ContainerState;
pub use write::UpdateAction;
pub use writes::{Demand, Writes};

/// An open database.
pub struct Engine {
    path: PathBuf,
    options: Options,
    fs: Arc<dyn Fs>,
    lock: Mutex<Option<Box<dyn Lock>>>,
    clock: SettledClock,
    cache: Arc<BlockCache>,
    /// Memory of flushed memtables, for the next ones.
    pool: Arc<Pool>,
    counters: Counters,
    snapshots: Arc<Snapshots>,
    containers: ContainerSet,
    commit_log: CommitLog,
    catalog: Catalog,
    scheduler: Scheduler,
    throttle: Throttle,
    /// What the quota of the whole database allows.
    allowance: Allowance,
    obsolete: ObsoleteTables,
    loads: Loads,
    damaged: DamagedTables,
    sync_waiters: SyncWaiters,
    events: Events,
    #[cfg(feature = "metrics")]
    publisher: publisher::Publisher,
    /// Not there where this is the process that writes.
    follower: Option<Follower>,
}
