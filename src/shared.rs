//! For backups and the command, which are other crates of this project; not part of the public API, and free to change.

use std::fmt;
use std::time::SystemTime;

use crate::Database;
use crate::base::{Result, Timestamp};
pub use crate::env::files;
use crate::values::listener::ControlEvent;

/// Lifetimes, moments and sizes as people write them.
pub mod text {
    pub use crate::base::text::{SURELY_MILLIS, date, length, seconds, size, span};
}

/// Tells the listener of a request that was answered by the control socket.
pub fn tell_control(db: &Database, control: ControlEvent) {
    db.engine().note_control(control);
}

/// Fails unless this process has the database open for writing.
pub fn expect_writer(db: &Database) -> Result<()> {
    db.engine().check_writable()
}

/// A moment in UTC, as RFC 3339.
#[must_use]
pub fn utc(moment: SystemTime) -> impl fmt::Display {
    Timestamp::from_system_time_up(moment)
}
