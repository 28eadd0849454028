//! The version of an item: which write it was.

use std::fmt;

use crate::base::Seq;

/// The place of a write among all writes of a database: a row version, an ETag. Every write of an item gives it a
/// higher version, even within one millisecond, and a later write has a higher version than all earlier ones, in any
/// container. Flushing, merging, reopening, checkpoints and repairs do not change it.
///
/// A power cut loses writes that were not synced, and their versions with them: later writes may get the same versions.
///
/// ```
/// use ebbtide::{Database, Version};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let pages = db.container("pages")?;
/// pages.put("home", "1")?;
/// let first: Version = pages.item("home")?.unwrap().version();
/// pages.put("home", "1")?;
/// let second = pages.item("home")?.unwrap().version();
/// assert!(first < second);
/// let etag = format!("\"{second}\"");
/// assert_eq!(Version::from_u64(second.as_u64()), second);
/// # let _ = etag;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is plain data, with serde a number, and says from where on [`Database::changes`](crate::Database::changes) tells.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Version(Seq);

impl Version {
    #[inline]
    pub(crate) fn of(seq: Seq) -> Version {
        Version(seq)
    }

    pub(crate) fn seq(self) -> Seq {
        self.0
    }

    /// Before every write.
    #[must_use]
    pub const fn start() -> Version {
        Version(Seq(0))
    }

    /// The version as a number, to be sent or stored; [`Version::from_u64`] is the inverse.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0.0
    }

    /// The version from the number of [`Version::as_u64`]. Any other number gives a version that no item has.
    #[must_use]
    pub fn from_u64(number: u64) -> Version {
        Version(Seq(number))
    }
}

impl fmt::Display for Version {
    /// Formats the number of [`Version::as_u64`] in decimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_u64().fmt(f)
    }
}
