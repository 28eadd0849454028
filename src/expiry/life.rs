//! How long an item lives, as it is shown.

use crate::base::{ItemTtl, Timestamp};

/// How long an item lives under some settings: its own ttl, and what that comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// As long as the default says; for ever: `u64::MAX`.
    Inherited(u64),
    /// For ever.
    Never,
    /// So many milliseconds.
    Own(u64),
    /// For ever, for the container's ttl is off; else so many milliseconds.
    Resting(u64),
}

impl Life {
    /// The item's own ttl.
    pub fn ttl(self) -> ItemTtl {
        match self {
            Life::Inherited(_) => ItemTtl::Absent,
            Life::Never => ItemTtl::Never,
            Life::Own(millis) | Life::Resting(millis) => ItemTtl::Millis(millis),
        }
    }

    /// When it ends: [`Timestamp::MAX`] for never.
    pub fn end(self, written_at: Timestamp) -> Timestamp {
        match self {
            Life::Inherited(millis) | Life::Own(millis) => written_at.after(millis),
            Life::Never | Life::Resting(_) => Timestamp::MAX,
        }
    }
}
