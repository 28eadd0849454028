//! The place of an entry in the log, and what the state is before it.

use ebbtide::Version;

#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) time_ms: u64,
    pub(crate) index: u64,
    /// It has one op.
    pub(crate) is_alone: bool,
    /// The version of the last write before it.
    pub(crate) before: Version,
    /// The log's before it.
    pub(crate) format: u32,
    /// The index of the last entry before it by which members changed.
    pub(crate) members_at: u64,
}
