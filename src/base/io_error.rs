//! Errors of the crate as errors of the standard library.

use std::io::{self, ErrorKind};

use crate::base::Error;

impl From<Error> for io::Error {
    /// For functions that answer with [`io::Result`]. The kind is that of the system's error, or the nearest one; the error
    /// itself is inside, with its message.
    ///
    /// ```
    /// use std::io;
    /// use ebbtide::{Database, Error};
    ///
    /// fn count(path: &std::path::Path) -> io::Result<u64> {
    ///     Ok(Database::open(path)?.container("c")?.count(..)?)
    /// }
    ///
    /// let folder = tempfile::tempdir()?;
    /// assert_eq!(count(folder.path())?, 0);
    /// let _open = Database::open(folder.path())?;
    /// let error = count(folder.path()).unwrap_err();
    /// assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    /// let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    /// assert!(matches!(inner, Some(Error::Locked { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn from(error: Error) -> io::Error {
        io::Error::new(kind(&error), error)
    }
}

fn kind(error: &Error) -> ErrorKind {
    match error {
        Error::Io { source, .. } => source.kind(),
        Error::Poisoned { cause } => kind(cause),
        Error::Corruption { .. }
        | Error::MemoryCorruption { .. }
        | Error::UnsupportedFormat { .. } => ErrorKind::InvalidData,
        #[cfg(feature = "typed")]
        Error::Decode { .. } => ErrorKind::InvalidData,
        Error::InvalidArgument { .. } => ErrorKind::InvalidInput,
        Error::MissingFeature { .. } | Error::TimeIsGiven { .. } | Error::TimeIsNotGiven => {
            ErrorKind::Unsupported
        }
        Error::Locked { .. } => ErrorKind::ResourceBusy,
        Error::NotFound { .. }
        | Error::ContainerDropped { .. }
        | Error::ChangesGone { .. }
        | Error::ExpirationsGone { .. } => ErrorKind::NotFound,
        Error::Differs { .. } | Error::NotUnique { .. } => ErrorKind::AlreadyExists,
        Error::ForeignFolder { .. } => ErrorKind::DirectoryNotEmpty,
        Error::QuotaFull { .. } => ErrorKind::QuotaExceeded,
        Error::ReadOnly => ErrorKind::ReadOnlyFilesystem,
        Error::Closed => ErrorKind::NotConnected,
        Error::OutOfMemory { .. } => ErrorKind::OutOfMemory,
        // Tried again later, each may go through.
        Error::Stalled | Error::AheadOfTime { .. } | Error::TooManyCommands { .. } => {
            ErrorKind::WouldBlock
        }
        Error::ClockBehind { .. }
        | Error::ClockUnsettled { .. }
        | Error::Conflict { .. }
        | Error::Panicked { .. } => ErrorKind::Other,
    }
}
