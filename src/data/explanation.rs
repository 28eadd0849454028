//! Why a key reads as it does, for people: each stored version of it, where it lies, what hides or ends it, and when its
//! bytes leave.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::base::{Timestamp, Ttl};
use crate::data::version::Version;

/// Why a key reads as it does: see `Container::explain`. Its Display is the picture for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The moment that it is of.
    pub now: SystemTime,
    /// The stored versions of the key, newest first; empty: none was stored, or none is any more.
    pub versions: Vec<StoredVersion>,
}

impl Explanation {
    /// Whether the key has a live item.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let newest = self.versions.first();
        newest.is_some_and(|newest| matches!(newest.fate, Fate::Live { .. }))
    }
}

/// One stored version of a key: a put or a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredVersion {
    /// Its sequence number.
    pub version: Version,
    /// When.
    pub written_at: SystemTime,
    /// The ttl it was written with; none: it is a delete.
    pub ttl: Option<Ttl>,
    /// Bytes of key and value.
    pub bytes: u64,
    /// Where it lies.
    pub place: StoredIn,
    /// Its fate.
    pub fate: Fate,
    /// When its bytes have left the disk at the latest, if nobody writes and settings stay; none: there is no deadline,
    /// they stay or leave with a merge.
    pub leaves_by: Option<SystemTime>,
}

/// Where a version lies.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredIn {
    /// In memory, and in these segments of the log, first and last; a follower does not know which.
    Memory {
        /// Files of the folder `wal`.
        segments: Option<(u64, u64)>,
    },
    /// In a table.
    Table {
        /// Its file.
        path: PathBuf,
        /// The number of its run in the manifest.
        run: u64,
    },
}

/// The fate of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It is read.
    Live {
        /// When it ends, if settings stay; none: never.
        ends_at: Option<SystemTime>,
    },
    /// It is the newest, and a delete.
    Delete,
    /// A newer version of the key is there, whatever has become of that.
    Hidden {
        /// That one.
        by: Version,
    },
    /// A range delete covers it.
    RangeDeleted {
        /// That write.
        by: Version,
    },
    /// Its own ttl has ended.
    ExpiredByTtl {
        /// When.
        at: SystemTime,
    },
    /// The container's default has ended it.
    ExpiredByDefault {
        /// When.
        at: SystemTime,
    },
    /// A default had ended it before the default was changed by this write, and that is final.
    ExpiredBeforeChange {
        /// The change.
        change: Version,
    },
    /// A command has ended it.
    ExpiredByCommand {
        /// That write.
        command: Version,
        /// When it was given.
        at: SystemTime,
    },
}

fn shown(moment: SystemTime) -> Timestamp {
    Timestamp::from_system_time_up(moment)
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fate::Live { ends_at: None } => f.write_str("live, without an end"),
            Fate::Live { ends_at: Some(end) } => write!(f, "live, ends at {}", shown(end)),
            Fate::Delete => f.write_str("a delete"),
            Fate::Hidden { by } => write!(f, "hidden by version {by}"),
            Fate::RangeDeleted { by } => write!(f, "covered by the range delete of version {by}"),
            Fate::ExpiredByTtl { at } => write!(f, "expired by its own ttl at {}", shown(at)),
            Fate::ExpiredByDefault { at } => {
                write!(f, "expired by the container's default at {}", shown(at))
            }
            Fate::ExpiredBeforeChange { change } => write!(
                f,
                "expired under the default before its change by version {change}, which is final"
            ),
            Fate::ExpiredByCommand { command, at } => write!(
                f,
                "expired by the command of version {command}, given at {}",
                shown(at)
            ),
        }
    }
}

impl fmt::Display for StoredVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.ttl.is_some() { "put" } else { "delete" };
        let (version, written_at) = (self.version, shown(self.written_at));
        write!(
            f,
            "version {version}: {kind} at {written_at}, {} bytes",
            self.bytes
        )?;
        match self.ttl {
            Some(Ttl::Inherit) => f.write_str(", inherits the default")?,
            Some(Ttl::Never) => f.write_str(", never expires")?,
            Some(Ttl::After(ttl)) => write!(f, ", ttl {} s", ttl.as_secs_f64())?,
            _ => {}
        }
        write!(f, "\n  {}", self.fate)?;
        match &self.place {
            StoredIn::Memory {
                segments: Some((first, last)),
            } => write!(
                f,
                "\n  in memory, and in the log's segments {first} to {last}"
            )?,
            StoredIn::Memory { segments: None } => f.write_str("\n  in memory, and in the log")?,
            StoredIn::Table { path, run } => write!(f, "\n  in {} of run {run}", path.display())?,
        }
        match self.leaves_by {
            Some(by) => write!(f, "\n  its bytes leave by {}", shown(by)),
            None => f.write_str("\n  its bytes have no deadline"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.versions.first() {
            None => write!(
                f,
                "not found at {}: nothing is stored of it",
                shown(self.now)
            )?,
            Some(newest) => {
                let found = if self.is_live() { "found" } else { "not found" };
                write!(f, "{found} at {}: {}", shown(self.now), newest.fate)?;
            }
        }
        self.versions
            .iter()
            .try_for_each(|version| write!(f, "\n{version}"))
    }
}
