//! The bytes of a database's files by kind: plain data for users.

use std::fmt;
use std::time::SystemTime;

/// The bytes in the folder of a database by kind, at one moment. The rows that have a name add up to what `du` says of
/// the folder: the blocks allocated for every file and folder in it. How a container's tables divide into live,
/// expired, superseded and tombstones is an estimate from statistics, within 5 % of them.
///
/// ```
/// use ebbtide::{Database, DiskKind};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let sessions = db.container("sessions")?;
/// sessions.put("s-1", "ada")?;
/// db.flush()?;
/// let usage = db.disk()?;
/// assert_eq!(usage.bytes(), usage.rows.iter().map(|row| row.bytes).sum::<u64>());
/// assert!(usage.of_kind(DiskKind::Live) > 0);
/// for row in &usage.rows {
///     println!("{:>12} {} {}", row.bytes, row.kind, row.container.as_deref().unwrap_or(""));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// By kind, then container, then holder; none has 0 bytes.
    pub rows: Vec<DiskRow>,
}

/// Bytes on disk of one kind, container and holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskRow {
    /// Their kind.
    pub kind: DiskKind,
    /// Whose they are; `None`: the whole database's, or a dropped container's.
    pub container: Option<String>,
    /// Allocated bytes.
    pub bytes: u64,
    /// Of expired items: by when all of them are to be back, as `Options::reclaim_within` promises. A moment that has
    /// passed: the budget of background work is too small.
    pub due: Option<SystemTime>,
    /// The holder without which they would leave.
    pub holder: Option<DiskHolder>,
    /// Since when they are kept, or obsolete.
    pub since: Option<SystemTime>,
    /// Whether the files have no name any more: `df` counts them, `du` does not.
    pub unlinked: bool,
}

/// The kind of bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DiskKind {
    /// Items in tables that can be read.
    Live,
    /// Items in tables that are expired.
    Expired,
    /// Items in tables that are not expired, but hidden by a newer version, a delete or a range delete. With a holder: an
    /// open snapshot may see some of them.
    Superseded,
    /// Tombstones in tables.
    Tombstones,
    /// Filters, indexes and statistics of tables, and the rest of their last pages.
    Overhead,
    /// Log segments with writes that are in no table yet, or that were among them.
    Log,
    /// Of the log, what is allocated ahead: the ring, the rest of the last segment, the next one.
    LogAhead,
    /// Files that jobs are writing. For a follower also what the writing process has yet to remove.
    Running,
    /// Tables and log segments that nothing needs, and that somebody keeps, or that are to be removed soon; in a database
    /// that is open read-only, by the next open that writes.
    Obsolete,
    /// The manifest and its copy.
    Manifest,
    /// The folders themselves.
    Folders,
    /// Files that a repair set aside.
    Lost,
    /// The lock, and whatever is not the database's.
    Other,
}

impl DiskKind {
    /// All of them.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [DiskKind; 13] = [
        DiskKind::Live,
        DiskKind::Expired,
        DiskKind::Superseded,
        DiskKind::Tombstones,
        DiskKind::Overhead,
        DiskKind::Log,
        DiskKind::LogAhead,
        DiskKind::Running,
        DiskKind::Obsolete,
        DiskKind::Manifest,
        DiskKind::Folders,
        DiskKind::Lost,
        DiskKind::Other,
    ];

    /// Its name in JSON and metrics, which does not change.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::Live => "live",
            DiskKind::Expired => "expired",
            DiskKind::Superseded => "superseded",
            DiskKind::Tombstones => "tombstones",
            DiskKind::Overhead => "overhead",
            DiskKind::Log => "log",
            DiskKind::LogAhead => "log_ahead",
            DiskKind::Running => "running",
            DiskKind::Obsolete => "obsolete",
            DiskKind::Manifest => "manifest",
            DiskKind::Folders => "folders",
            DiskKind::Lost => "lost",
            DiskKind::Other => "other",
        }
    }
}

impl fmt::Display for DiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The holder of bytes on disk that would leave without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DiskHolder {
    /// A snapshot, which may see versions that are hidden from others.
    Snapshot,
    /// An iterator, a cursor, a read or a job in the middle of a step.
    Scan,
    /// A value that lies in the file.
    Value,
    /// A checkpoint that is being made.
    Checkpoint,
    /// A follower: what itself, its readers or values in it hold of files that the writing process has replaced. Only the
    /// follower lists it; the writing process knows of no follower.
    Follower,
}

impl DiskHolder {
    /// All of them.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [DiskHolder; 5] = [
        DiskHolder::Snapshot,
        DiskHolder::Scan,
        DiskHolder::Value,
        DiskHolder::Checkpoint,
        DiskHolder::Follower,
    ];

    /// Its name in JSON and metrics, which does not change.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DiskHolder::Snapshot => "snapshot",
            DiskHolder::Scan => "scan",
            DiskHolder::Value => "value",
            DiskHolder::Checkpoint => "checkpoint",
            DiskHolder::Follower => "follower",
        }
    }
}

impl fmt::Display for DiskHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl DiskUsage {
    /// The size of the folder as `du` says it: the sum of the rows whose files have names.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.named().map(|row| row.bytes).sum()
    }

    /// Bytes of files without a name, which `du` does not see and `df` does; estimated from their sizes.
    #[must_use]
    pub fn unlinked_bytes(&self) -> u64 {
        let unlinked = self.rows.iter().filter(|row| row.unlinked);
        unlinked.map(|row| row.bytes).sum()
    }

    /// Of [`DiskUsage::bytes`], those of a kind.
    #[must_use]
    pub fn of_kind(&self, kind: DiskKind) -> u64 {
        let rows = self.named().filter(|row| row.kind == kind);
        rows.map(|row| row.bytes).sum()
    }

    /// Of [`DiskUsage::bytes`], those of a container.
    #[must_use]
    pub fn of_container(&self, name: &str) -> u64 {
        let rows = self
            .named()
            .filter(|row| row.container.as_deref() == Some(name));
        rows.map(|row| row.bytes).sum()
    }

    fn named(&self) -> impl Iterator<Item = &DiskRow> {
        self.rows.iter().filter(|row| !row.unlinked)
    }
}
