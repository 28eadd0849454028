//! The engine: parts that each own their state and keep one invariant, and the operations over them.
//!
//! ```text
//! parts/     what owns state                          read/      a key, many keys, a range, one at random
//! jobs/      flushes, merges, reclaiming, the log     inspect/   reports, estimates, `changes`, expirations
//! write/     admission, the commit, transactions      open/      open, follow, close, checkpoint, repair
//! ```
//!
//! | part | owns | file in parts/ |
//! | --- | --- | --- |
//! | `CommitLog` | the order of writes, and how far they are logged, in memory, visible | commit_log.rs |
//! | `Catalog` | the durable catalogue of tables and settings; its edits | catalog.rs |
//! | `ContainerSet` | containers by name | containers.rs |
//! | `ContainerState` | a container | state.rs |
//! | `ReadStates` | a container's read states, and notes of the records that they lack | read_states.rs |
//! | `Snapshots` | open snapshots, and the versions that jobs keep for them | snapshots.rs |
//! | `SettingsCell` | a container's settings, as one value | settings_cell.rs |
//! | `Bell` | one who waits for something to tell | bell.rs |
//! | `Feeds` | readers of a container's expirations, and the ended items kept for them | feeds.rs |
//! | `Watchers` | queues of writes for those who watch a container | watchers.rs |
//! | `Passes` | where passes of `changes` read, once settings change | passes.rs |
//! | `Allowance` | the bytes that a quota lets writes add before live bytes are estimated anew | allowance.rs |
//! | `Scheduler` | threads, which of them may work now, failures | scheduler.rs |
//! | `Throttle` | throttling of writers and of background work | throttle.rs |
//! | `ObsoleteTables` | tables to be removed | obsolete.rs |
//! | `Loads` | tables that bulk loads write | loads.rs |
//! | `DamagedTables` | damaged tables that scrubbing found | damage.rs |
//! | `SyncWaiters` | callers who wait for a sync of the log | sync_waiters.rs |
//! | `Events` | events for the listener | events.rs |
//! | `Counters` | what is counted since the open | counters.rs |
//! | `Follower` | how far another process's database was read | follower.rs |
//!
//! [`Engine`] holds the parts; the other folders are its operations.
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
//! | 5 | `doubtful` | `Catalog` | some instructions |
//! | 5 | `unnamed` | `Loads` | to create, rename or remove tables of bulk loads |
//! | 5 | `by_name` | `ContainerSet` | some instructions |
//! | 5 | `installing` | `ReadStates` | one change of a read state |
//! | 6 | `moving` | a memtable's `Flushable` | some instructions, and so all below |
//! | 6 | `held` | `ContainerState` | to take read states from scans that rest; tries each scan's own lock |
//! | 6 | `rest` | `ContainerState` | |
//! | 5 | the list of passes; a pass's own, taken inside | `Passes` | to load a read state |
//! | 6 | `readers` | `Feeds` | the bell of who waits is rung in it |
//! | 6 | `open` | `Watchers` | the same |
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
//! (read/point.rs). A memtable leaves a read state in the same step in which its run enters it. So a read state holds everything
//! that was published before it was loaded; a record that a later merge drops is still in it.

pub mod options;
mod config;
mod parts;
// the operations, in the order in which they build on each other
mod core;
mod handle;
mod read;
mod jobs;
mod inspect;
mod write;
mod open;

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::engine::parts::counters::Counters;
use crate::env::{Fs, Lock, SettledClock};
use crate::mem::Pool;
use crate::table::BlockCache;

use options::Options;
use parts::allowance::Allowance;
use parts::catalog::Catalog;
use parts::commit_log::CommitLog;
use parts::containers::ContainerSet;
use parts::damage::DamagedTables;
use parts::events::Events;
use parts::follower::Follower;
use parts::given_time::GivenTime;
use parts::loads::Loads;
use parts::obsolete::ObsoleteTables;
#[cfg(feature = "metrics")]
use parts::publisher::Publisher;
use parts::scheduler::Scheduler;
use parts::snapshots::Snapshots;
use parts::sync_waiters::SyncWaiters;
use parts::throttle::Throttle;

pub use handle::Handle;
pub use inspect::changes::{ChangeReader, PageReader, Position};
pub use inspect::feed::{Ended, Feed, FeedPosition, Rest};
pub use inspect::watch::{Seen, Watcher};
pub use jobs::scrub::VerifyReport;
pub use open::at_rest;
pub use open::repair::{Loss, RepairReport, repair};
pub use open::verify::verify_in;
pub use parts::bell::Bell;
pub use parts::fills::{FillCaller, FillRole, Filling};
pub use parts::snapshots::SnapshotPin;
pub use parts::state::ContainerState;
pub use read::point::ReadPoint;
pub use read::random::Drawn;
pub use read::scan::Scan;
pub use write::bulk::LoadedItem;
pub use write::commit::Begun;
pub use write::deciding::deciding;
pub use write::transaction::TransactionState;
pub use write::transaction::iter::TransactionIter;
pub use write::update::{Decide, NewValue, UpdateAction};
pub use write::writes::{Demand, Writes};

/// An open database.
pub struct Engine {
    path: PathBuf,
    options: Options,
    fs: Arc<dyn Fs>,
    lock: Mutex<Option<Box<dyn Lock>>>,
    clock: SettledClock,
    /// Where the program gives the time.
    given_time: Option<Arc<GivenTime>>,
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
    /// The allowance of the whole database's quota.
    allowance: Allowance,
    obsolete: ObsoleteTables,
    loads: Loads,
    damaged: DamagedTables,
    sync_waiters: SyncWaiters,
    events: Events,
    #[cfg(feature = "metrics")]
    publisher: Publisher,
    /// None in the process that writes.
    follower: Option<Follower>,
}
