//! Storage for programs on [openraft](https://docs.rs/openraft) 0.9 in [Ebbtide](ebbtide) databases: a log, a state machine whose
//! items end in the same millisecond on every replica, and the leader's time.
//!
//! Expiry costs no entry of the log and no byte on the wire: each entry carries a moment, by which every replica judges what has
//! ended, and each unlinks it at its own pace. A replica's own clock decides nothing.
//!
//! | part | for |
//! | --- | --- |
//! | [`LogStore`] | openraft's `RaftLogStorage`: one sync for each append, one database for all groups |
//! | [`StateStore`] | its `RaftStateMachine`: a database in [given time](ebbtide::Options::given_time), moved on by a [`Machine`] |
//! | [`LogTime`], [`Gather`] | the leader's part: moments for writes and reads, and entries that carry all writes that waited |
//! | [`Reader`] | reads of a replica, at a moment |
//! | [`SnapshotData`] | snapshots: a list and files, in one stream |
//!
//! A program declares its types so, with any node id and node:
//!
//! ```
//! use ebbtide_openraft::{Applied, Entry, SnapshotData};
//!
//! type Op = String; // the machine's
//! type Answer = Option<String>;
//!
//! openraft::declare_raft_types!(
//!     pub Program:
//!         D = Entry<Op>,
//!         R = Applied<Answer>,
//!         SnapshotData = SnapshotData,
//! );
//! ```
//!
//! and opens a node's storage so:
//!
//! ```
//! # use ebbtide::ContainerOptions;
//! # use ebbtide_openraft::{Applied, Entry, LogStore, Machine, SnapshotData, StateOptions, StateStore, Step, StepError};
//! # openraft::declare_raft_types!(pub Program: D = Entry<String>, R = Applied<u64>, SnapshotData = SnapshotData,);
//! # struct Counting;
//! # impl Machine for Counting {
//! #     type Op = String;
//! #     type Answer = u64;
//! #     fn containers(&self) -> Vec<(&'static str, ContainerOptions)> { vec![] }
//! #     fn apply(&self, _: &String, step: &mut Step<'_>) -> Result<u64, StepError> { Ok(step.index()) }
//! # }
//! # let folder = tempfile::tempdir()?;
//! let log = LogStore::<Program>::options().open(folder.path().join("log"))?;
//! let state = StateStore::<Program, _>::open(folder.path().join("group-0"), Counting, StateOptions::default())?;
//! let log = LogStore::<Program>::new(&log, "group-0")?.behind(state.durable());
//! let reader = state.reader();
//! // openraft::Raft::new(id, config, network, log, state)
//! # drop((log, reader));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `replicated_sessions` is a whole program. What is not here: a network, reads of followers, keeping quotas, members
//! and clock vetting: a program on openraft has its own.

#![forbid(unsafe_code)]
// Errors are openraft's, of the size that it gives them.
#![allow(clippy::result_large_err)]

mod builder;
mod checks;
mod entry;
mod facts;
mod failure;
mod folder;
mod gather;
mod leader;
mod log_store;
mod log_time;
mod machine;
mod moments;
mod outcome;
mod purges;
mod feeds;
mod reader;
mod shared;
mod snapshot;
mod state_store;
mod sync;
mod watch;

pub use builder::SnapshotBuilder;
pub use entry::{Answer, Applied, Entry, FORMAT, OLDEST_OP_MS, OP_AHEAD_MS, Op, OpId, Refused};
pub use feeds::{Changed, Ended, Expirations};
pub use gather::{Gather, GatherError, MOST_BYTES, MOST_OPS};
pub use leader::{Cause, Leader};
pub use log_store::LogStore;
pub use log_time::{Closed, LogTime, NotLeading, RESERVE_MS, ReadTicket, WriteTicket};
pub use machine::{Commands, Found, Machine, Step, StepError};
pub use reader::{Moment, Reader, Shown, View};
pub use shared::Durable;
pub use snapshot::SnapshotData;
pub use state_store::{StateOptions, StateStore};
pub use watch::{Rest, Watch, Watched};
