//! Answers that are given at once or not at all: for callers whose thread must not wait.

use crate::base::Error;

/// Why there is no answer.
#[derive(Debug)]
pub enum NotNow {
    /// It would wait: for a file, a lock, room in memory, the end of a change. Nothing was done.
    Waits,
    /// It failed, and would fail as well if it waited.
    Failed(Error),
}

/// The result of a call that does not wait.
pub type AtOnce<T> = std::result::Result<T, NotNow>;

impl From<Error> for NotNow {
    fn from(error: Error) -> NotNow {
        NotNow::Failed(error)
    }
}
