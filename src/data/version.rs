//! Which write it was, as users see it.

use std::fmt;

use crate::base::Seq;

/// The place of a write among all writes of a database: a row version, an ETag. Every write of an item gives it a higher
/// one, also of two in one millisecond, and one that comes later has a higher version than all before, in whichever
/// container. Flushing, merging, reopening, checkpoints and repairs leave it as it is.
///
/// Writes that were not synced are lost in a power cut, and their versions with them: what is written after it may have the
/// same ones.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(Seq);

impl Version {
    #[inline]
    pub(crate) fn of(seq: Seq) -> Version {
        Version(seq)
    }

    pub(crate) fn seq(self) -> Seq {
        self.0
    }

    /// As a number, to be sent or stored: [`Version::from_u64`] makes the same version of it.
    #[must_use]
    pub fn as_u64(self) -> u64 {
        self.0.0
    }

    /// The version that [`Version::as_u64`] made this number of. Of another number it makes one that no item has.
    #[must_use]
    pub fn from_u64(number: u64) -> Version {
        Version(Seq(number))
    }
}

impl fmt::Display for Version {
    /// The number of [`Version::as_u64`], in decimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_u64().fmt(f)
    }
}
