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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expect {
    /// No live item has the key.
    Absent,
    /// A live item has the key.
    Present,
    /// A live item of this version has the key.
    Version(Version),
}

/// The fate of a [`Batch`](crate::Batch) where the condition of one of its writes does not hold; see
/// [`Batch::on_miss`](crate::Batch::on_miss).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMiss {
    /// The whole batch is a conflict.
    #[default]
    Conflict,
    /// The write is left out, and the others are done.
    Skip,
}

/// The outcome of one write of a batch; see [`Batch::on_miss`](crate::Batch::on_miss).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was left out, because its condition did not hold.
    Skipped,
}

impl Outcome {
    /// Whether it was done.
    #[must_use]
    pub fn is_done(self) -> bool {
        self == Outcome::Done
    }
}

/// The result of a write: its version and its time; for a batch that may leave writes out, also what became of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Written {
    last: Seq,
    written_at: Timestamp,
    /// Empty where nothing could be left out, which takes no memory.
    outcomes: Box<[Outcome]>,
}

impl Written {
    #[inline]
    pub(crate) fn new(last: Seq, written_at: Timestamp) -> Written {
        let outcomes = Box::default();
        Written {
            last,
            written_at,
            outcomes,
        }
    }

    pub(crate) fn with_outcomes(self, outcomes: Vec<Outcome>) -> Written {
        let outcomes = outcomes.into_boxed_slice();
        Written { outcomes, ..self }
    }

    pub(crate) fn stamp(&self) -> (Seq, Timestamp) {
        (self.last, self.written_at)
    }

    /// The version of the item written; for a batch, that of its last write. The other writes of the batch have lower
    /// versions, ascending, and all are above every earlier write.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.last)
    }

    /// The outcome of each write of a batch that may leave some out ([`OnMiss::Skip`]): as many as
    /// [`Batch::len`](crate::Batch::len), in the order in which they were added. Of any other write it is empty: all of it
    /// was done.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The time of the write, to the millisecond: the same for all writes of a batch.
    #[must_use]
    pub fn written_at(&self) -> SystemTime {
        self.written_at.to_system_time()
    }
}

/// The result of [`Container::put_if`](crate::Container::put_if).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutIf {
    /// The version of the live item that was there before.
    pub before: Option<Version>,
    /// The write; `None` if the item was left unchanged.
    pub written: Option<Written>,
}

/// The result of [`Container::upsert`](crate::Container::upsert).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upserted {
    /// The version of the live item that was replaced; `None`: there was none.
    pub before: Option<Version>,
    /// The write.
    pub written: Written,
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
