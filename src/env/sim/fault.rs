//! Calls of a simulated file system, and faults.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// A call, as a fault and a watcher see it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation, as errors name it, and `store` into a ring.
    pub operation: &'static str,
    /// The file or folder.
    pub path: &'a Path,
    /// The kind of call.
    pub(super) does: Does,
}

impl Call<'_> {
    /// Whether the disk may differ afterwards, so that a power cut before it and one after it differ.
    pub fn changes(&self) -> bool {
        !matches!(self.does, Does::Look | Does::Open)
    }
}

/// The kind of a call, as far as faults depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Reads, with an open descriptor or none.
    Look,
    /// Reads, and needs a new descriptor.
    Open,
    /// Creates a file or a folder.
    Create,
    /// Writes bytes to a file.
    Write,
    /// Adds room to a file, or a name.
    Grow,
    /// Removes something.
    Shrink,
    /// Makes the bytes of a file durable.
    Sync,
    /// Makes the names in a folder durable.
    SyncNames,
    /// Stores into a ring: cannot fail.
    Store,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails (EIO). Meets any call.
    Io,
    /// There is no room (ENOSPC). Meets calls that make something larger, and syncs of such.
    Full,
    /// A write ends early.
    Short,
    /// There are too many open files (EMFILE). Meets calls that open one.
    TooManyFiles,
    /// The system has no memory (ENOMEM). Meets any call but a sync, whose failure is final whatever its error.
    NoMemory,
    /// The file system has become read-only (EROFS). Meets calls that change something.
    ReadOnly,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 6] = [
        Fault::Io,
        Fault::Full,
        Fault::Short,
        Fault::TooManyFiles,
        Fault::NoMemory,
        Fault::ReadOnly,
    ];

    pub(super) fn meets(self, does: Does) -> bool {
        match self {
            Fault::Io => does != Does::Store,
            Fault::Full => matches!(
                does,
                Does::Create | Does::Write | Does::Grow | Does::Sync | Does::SyncNames
            ),
            Fault::Short => does == Does::Write,
            Fault::TooManyFiles => matches!(does, Does::Open | Does::Create),
            Fault::NoMemory => !matches!(does, Does::Sync | Does::SyncNames | Does::Store),
            Fault::ReadOnly => !matches!(does, Does::Look | Does::Open | Does::Store),
        }
    }

    pub(super) fn error(self) -> io::Error {
        match self {
            Fault::Io => io::Error::from_raw_os_error(5),
            Fault::Full => io::ErrorKind::StorageFull.into(),
            Fault::Short => io::ErrorKind::WriteZero.into(),
            Fault::TooManyFiles => io::Error::from_raw_os_error(24),
            Fault::NoMemory => io::Error::from_raw_os_error(12),
            Fault::ReadOnly => io::ErrorKind::ReadOnlyFilesystem.into(),
        }
    }
}

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The first call from this number on, as [`Sim::operations`](super::Sim::operations) counts, that the fault can
    /// meet fails.
    pub at: u64,
    /// The kind of fault.
    pub kind: Fault,
    /// Whether all later calls that the fault can meet fail too.
    pub lasting: bool,
}

/// Selects, among the calls that a fault can meet, those that it does meet.
pub(super) type Filter = Arc<dyn Fn(&Call<'_>) -> bool + Send + Sync>;
