//! Where a change feed begins, and what its last pass has found beyond a page.
//!
//! Invariant: of the versions between the start of what is kept and `up_to`, no live document has one that is not among those
//! that were found, unless it was written after the pass.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ebbtide::Version;

use crate::partition_key::PartitionKey;

/// Where a change feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStartAt {
    /// With the first change.
    Beginning,
    /// Behind all changes that were made.
    Now,
    /// Behind this version, as [`ChangeFeedPage::version`] has it.
    After(Version),
    /// With the first change of this moment or later.
    Moment(SystemTime),
}

/// The changes that a feed tells.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeStart {
    /// Where it begins.
    pub at: ChangeStartAt,
    /// Of the documents of a partition key or a prefix of one; without parts: of all.
    pub partition_key: PartitionKey,
}

impl ChangeStart {
    /// The changes of all documents.
    #[must_use]
    pub fn of_all(at: ChangeStartAt) -> ChangeStart {
        ChangeStart {
            at,
            partition_key: PartitionKey::default(),
        }
    }
}

/// The findings of a pass beyond a page.
pub struct Rest {
    pub start: ChangeStart,
    /// In the order of versions.
    pub found: VecDeque<(Version, Vec<u8>)>,
    /// All up to this is told with the last of them.
    pub up_to: Version,
    /// Whether there is more up to the moment of the pass.
    pub has_more: bool,
}

/// The rest of the last pass of a container; whoever goes on there takes it.
#[derive(Default)]
pub struct LastPass(Mutex<Option<Rest>>);

impl LastPass {
    pub fn take(&self, start: &ChangeStart) -> Option<Rest> {
        let mut rest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rest.take_if(|rest| rest.start == *start)
    }

    pub fn keep(&self, rest: Rest) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
    }
}
