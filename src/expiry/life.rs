//! The result of the rule for a live item: how long it lives, and by which ttl.

use crate::base::{ItemTtl, Timestamp};

/// How long an item lives, and by which ttl, under the settings of one moment; in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has no ttl of its own: it lives as long as the default says; `u64::MAX` if there is no default.
    Inherited(u64),
    /// By its own ttl.
    Own(u64),
    /// It has this ttl, which is not applied while ttl is off.
    Suspended(u64),
    /// For ever, by its own ttl.
    Endless,
}

impl Life {
    /// When it ends; [`Timestamp::MAX`] for never.
    #[inline]
    pub fn end(self, written_at: Timestamp) -> Timestamp {
        match self {
            Life::Inherited(millis) | Life::Own(millis) => written_at.after(millis),
            Life::Suspended(_) | Life::Endless => Timestamp::MAX,
        }
    }

    /// The item's own ttl.
    pub fn ttl(self) -> ItemTtl {
        match self {
            Life::Inherited(_) => ItemTtl::Absent,
            Life::Own(millis) | Life::Suspended(millis) => ItemTtl::Millis(millis),
            Life::Endless => ItemTtl::Never,
        }
    }
}
