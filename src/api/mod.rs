//! The public API. Each type here is a handle on the engine that checks its arguments; everything else is done by the
//! engine.

pub mod arguments;
pub mod cursor;
pub mod iter;
pub mod read;
pub mod writing;
pub mod container;
pub mod at_once;
pub mod retention;
pub mod due;
pub mod expirations;
pub mod watch;
pub mod snapshot;
pub mod batch;
pub mod within;
pub mod extend;
pub mod transaction;
pub mod get_with;
pub mod database;
pub mod transact;
pub mod opening;
pub mod given_time;
pub mod disk_usage;
pub mod layout;
pub mod changes;
pub mod bulk;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod at_rest;
