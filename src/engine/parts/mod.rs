//! The parts: each owns its state, with private fields, and keeps one invariant. They do not know each other, except that an
//! edit takes a [`commit_log::Basis`].

pub mod counters;
pub mod settings_cell;
pub mod bell;
pub mod watchers;
pub mod feeds;
pub mod fills;
pub mod given_time;
pub mod allowance;
pub mod passes;
pub mod read_state;
pub mod read_states;
pub mod state;
pub mod snapshots;
pub mod containers;
pub mod commit_dependency;
pub mod commit_log;
pub mod catalog;
pub mod scheduler;
pub mod throttle;
pub mod obsolete;
pub mod loads;
pub mod damage;
pub mod sync_waiters;
pub mod events;
#[cfg(feature = "metrics")]
pub mod publisher;
pub mod follower;
