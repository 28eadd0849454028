//! For backups and the command, which are other crates of this project; not part of the public API, and free to change.

use std::fmt;
use std::time::SystemTime;

use crate::base::Timestamp;
pub use crate::env::files;

/// Lifetimes, moments and sizes as people write them.
pub mod text {
    pub use crate::base::text::{SURELY_MILLIS, date, length, seconds, size, span};
}

/// A moment in UTC, as RFC 3339.
#[must_use]
pub fn utc(moment: SystemTime) -> impl fmt::Display {
    Timestamp::from_system_time_up(moment)
}
