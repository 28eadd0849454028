//! What a caller asks of a write beside what is written, and what he is told of it.

use std::time::SystemTime;

use crate::base::{Seq, Timestamp};
use crate::data::item::Item;
use crate::data::version::Version;

/// What a batch asks of a key with [`Batch::require`](crate::Batch::require).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expect {
    /// No live item has it.
    Absent,
    /// A live item has it.
    Present,
    /// A live item has it, which was written last by the write of this version.
    Version(Version),
}

/// What became of a write: which place it has, and at which time it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    last: Seq,
    written_at: Timestamp,
}

impl Written {
    #[inline]
    pub(crate) fn new(last: Seq, written_at: Timestamp) -> Written {
        Written { last, written_at }
    }

    /// The version of what was written; of a batch, that of its last write. The others of the batch lie below it, each one
    /// lower than the next, and above all that was written before.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.last)
    }

    /// The time of the write, to the millisecond: the same for all of a batch.
    #[must_use]
    pub fn written_at(&self) -> SystemTime {
        self.written_at.to_system_time()
    }
}

/// What [`Container::fetch_update`](crate::Container::fetch_update) did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// The live item that was there before.
    pub before: Option<Item>,
    /// What was written; nothing, where the item was left as it is.
    pub written: Option<Written>,
}

impl Updated {
    pub(crate) fn new(before: Option<Item>, written: Option<Written>) -> Updated {
        Updated { before, written }
    }
}
