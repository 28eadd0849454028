//! Conditions of a write, and its result.

use std::time::SystemTime;

use crate::base::{Seq, Timestamp};
use crate::data::item::Item;
use crate::data::version::Version;

/// A condition on a key, for [`Batch::require`](crate::Batch::require).
///
/// ```
/// use ebbtide::{Batch, Database, Expect};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let pages = db.container("pages")?;
/// let put_if = |expect| {
///     let mut batch = Batch::new();
///     batch.require(&pages, "home", expect).put(&pages, "home", "text");
///     db.commit(batch)
/// };
/// let first = put_if(Expect::Absent)?;
/// assert!(put_if(Expect::Absent).is_err());
/// let second = put_if(Expect::Version(first.version()))?;
/// assert!(put_if(Expect::Version(first.version())).is_err()); // written since
/// assert!(first.version() < second.version());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expect {
    /// No live item has the key.
    Absent,
    /// A live item has the key.
    Present,
    /// A live item of this version has the key.
    Version(Version),
}

/// The result of a write: its version and its time.
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

    /// The version of the item written; for a batch, that of its last write. The other writes of the batch have lower
    /// versions, ascending, and all are above every earlier write.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.last)
    }

    /// The time of the write, to the millisecond: the same for all writes of a batch.
    #[must_use]
    pub fn written_at(&self) -> SystemTime {
        self.written_at.to_system_time()
    }
}

/// The result of [`Container::fetch_update`](crate::Container::fetch_update).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Updated {
    /// The live item that was there before.
    pub before: Option<Item>,
    /// The write; `None` if the item was left unchanged.
    pub written: Option<Written>,
}

impl Updated {
    pub(crate) fn new(before: Option<Item>, written: Option<Written>) -> Updated {
        Updated { before, written }
    }
}
