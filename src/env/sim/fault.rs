//! Calls of a simulated file system, and which of them fail.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// A call, as a fault and a watcher see it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What is done: as errors name it, and `store` into a ring.
    pub operation: &'static str,
    /// To which file or folder.
    pub path: &'a Path,
    /// What kind of call it is.
    pub(super) does: Does,
}

impl Call<'_> {
    /// Something may be different on the disk afterwards, so that a power cut before it and one after it differ.
    pub fn changes(&self) -> bool {
        !matches!(self.does, Does::Look | Does::Open)
    }
}

/// What a call does, as far as a fault depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Reads what is there, with a descriptor that is open or none.
    Look,
    /// Reads what is there, and needs a descriptor.
    Open,
    /// Makes a file or a folder.
    Create,
    /// Gives a file bytes.
    Write,
    /// Gives a file or a folder room, or a name.
    Grow,
    /// Takes something away.
    Shrink,
    /// Makes the bytes of a file durable.
    Sync,
    /// Makes the names in a folder durable.
    SyncNames,
    /// Stores into a ring: cannot fail.
    Store,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device fails (EIO): any call.
    Io,
    /// There is no room (ENOSPC): what makes something larger, or says so only when it is synced.
    Full,
    /// A write ends before its end.
    Short,
    /// There are too many open files (EMFILE): what opens one.
    TooManyFiles,
    /// The system has no memory (ENOMEM): any call but a sync, whose failure is final whatever it says.
    NoMemory,
    /// The file system has become read-only (EROFS): what changes something.
    ReadOnly,
}

impl Fault {
    /// All of them.
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

/// One failure to come.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The first call fails that the fault can meet and whose number, as [`Sim::operations`](super::Sim::operations)
    /// counts, is not below this one.
    pub at: u64,
    /// What it fails with.
    pub kind: Fault,
    /// All later ones that the fault can meet fail too.
    pub lasting: bool,
}

/// Of the calls that a fault can meet, those that it does meet.
pub(super) type Filter = Arc<dyn Fn(&Call<'_>) -> bool + Send + Sync>;
