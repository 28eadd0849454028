//! The one error type of the crate: what is wrong, where, and what to do.

mod message;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The result of every operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The end of the message about damage that repair cannot fix.
pub(crate) const BEYOND_REPAIR: &str =
    "what is live cannot be told from the rest, and nothing was changed: restore a checkpoint";

/// Why an operation failed. `Clone`, so that a failure in the background can be returned to every later writer.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Database, Error};
///
/// let folder = tempfile::tempdir()?;
/// let c = Database::open(folder.path())?.container("c")?;
/// let error = c.put_with_ttl("k", "v", Duration::ZERO).unwrap_err();
/// assert!(matches!(error, Error::InvalidArgument { what: "ttl", .. }));
/// assert!(!error.is_retryable());
/// let locked = Database::open(folder.path()).unwrap_err(); // open already
/// assert!(locked.is_retryable());
/// println!("{locked}"); // says what is wrong, where, and what to do
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call.
    Io {
        /// The failed operation, as a verb: `write`, `sync`, `allocate`, ...
        operation: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Bytes on disk are not what was written there.
    Corruption {
        /// The file concerned.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The damage, in words.
        what: String,
    },
    /// The folder was written by a version of the format that this one does not read.
    UnsupportedFormat {
        /// The file concerned.
        path: PathBuf,
        /// The version found there.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// This build of the crate lacks a feature that the database needs, or what was asked for; nothing was stored or changed.
    MissingFeature {
        /// The feature: `zstd`.
        feature: &'static str,
        /// The setting, the file or the request that needs it.
        what: String,
    },
    /// A key, a value, a name, a ttl or an option lies outside its documented range; nothing was stored or changed.
    InvalidArgument {
        /// The argument: `key`, `ttl`, `container name`, ...
        what: &'static str,
        /// The value that was given, in words.
        given: String,
        /// The allowed range.
        allowed: &'static str,
    },
    /// Another process (or another handle of this one) has the database open. It is open until the last clone of the last
    /// handle is dropped; the last handle for tasks (`AsyncDatabase`) is closed by a thread, some time after it was dropped,
    /// which `AsyncDatabase::close` awaits. Can be tried again.
    Locked {
        /// The database folder.
        path: PathBuf,
    },
    /// There is no database in the folder, and a read-only open does not create one.
    NotFound {
        /// The database folder.
        path: PathBuf,
    },
    /// The folder holds other things and no database. One is made in a folder that is missing or empty; elsewhere where
    /// [`Options::among_other_files`](crate::Options::among_other_files) allows it. Nothing was made or changed.
    ForeignFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The wall clock is further behind the last recorded time than `max_clock_skew` allows.
    ClockBehind {
        /// The time of the wall clock.
        wall: SystemTime,
        /// The highest settled time on which the database has relied.
        mark: SystemTime,
    },
    /// The wall clock has leapt ahead and is not confirmed yet: a change of settings would make its time final.
    ClockUnsettled {
        /// The time of the wall clock.
        wall: SystemTime,
        /// The time that is relied on until the lead is settled.
        settled: SystemTime,
    },
    /// The program gives the time of this database ([`Options::given_time`](crate::Options::given_time)), and what was asked
    /// for is not done there; nothing was changed.
    TimeIsGiven {
        /// The thing that is not done.
        what: &'static str,
    },
    /// A clock says the time of this database, and what was asked for is for those of which the program gives the time.
    TimeIsNotGiven,
    /// A cursor is of a moment to which the program has not moved the time yet. Can be tried again once it has.
    AheadOfTime {
        /// The moment of the cursor.
        moment: SystemTime,
        /// The time.
        now: SystemTime,
    },
    /// A condition of a batch does not hold, for example it creates an item that exists, or replaces or touches one
    /// that does not: nothing of the batch was written. Or what a transaction has read was changed or has expired since it
    /// began: nothing of the transaction was written.
    Conflict {
        /// The name of the container.
        container: String,
        /// The key of the condition, or the one that was changed; where a default was changed, one that was read.
        key: Vec<u8>,
    },
    /// A write would give an index key of a unique index to a second live item
    /// ([`IndexedContainerBuilder::unique`](crate::IndexedContainerBuilder::unique)); nothing was written.
    NotUnique {
        /// The name of the container that has the index's entries: `users#email`.
        index: String,
        /// The index key.
        index_key: Vec<u8>,
        /// The key of the item that has it.
        key: Vec<u8>,
    },
    /// The bytes stored under a key are no key or value of the types of a [`TypedContainer`](crate::TypedContainer):
    /// they were stored by other means, or as another type. The bytes are as they were written.
    #[cfg(feature = "typed")]
    Decode {
        /// The name of the container.
        container: String,
        /// The key, as it is stored.
        key: Vec<u8>,
        /// Whether it is of the key or the value, and what is wrong there.
        what: String,
    },
    /// 64 commands to expire items stand in a container, and one more would slow its reads down; nothing was changed.
    /// One is dropped when its moment has passed, when a later one covers it, or when nothing that it concerns is
    /// stored any more.
    TooManyCommands {
        /// The name of the container.
        container: String,
    },
    /// Some deletes and ends after the version from which [`Database::changes`](crate::Database::changes) was to tell are
    /// stored no more, or that version is later than the last write: it is of another database, or of writes that a power
    /// cut took. A copy cannot be brought up to date from there: make it anew from `Version::start()`.
    ChangesGone {
        /// The version that was asked for.
        since: u64,
        /// The changes since this version are known.
        from: u64,
    },
    /// Expirations were asked for from a moment whose ends are not all on disk any more: the reader was away for longer
    /// than they are kept ([`ContainerOptions::keep_expired`](crate::ContainerOptions::keep_expired)). A scan shows the
    /// items that are there now.
    ExpirationsGone {
        /// The name of the container.
        container: String,
        /// From here on all are known: [`ExpiryCursor::start`](crate::ExpiryCursor::start) begins here, or with those that are
        /// known of the millisecond before.
        known_from: SystemTime,
    },
    /// A write would bring live bytes over a [`Quota`](crate::Quota); nothing was written. Delete something, raise the
    /// quota, or try again when items have ended.
    QuotaFull {
        /// The name of the container; none: it is the quota of the whole database.
        container: Option<String>,
        /// The quota, in bytes.
        limit: u64,
        /// The live bytes; estimated.
        live: u64,
        /// When the next item ends and its bytes no longer count; none: no item has an end.
        frees_at: Option<SystemTime>,
    },
    /// A write to a database that was opened with `read_only(true)`, or is followed.
    ReadOnly,
    /// A container exists, and is set otherwise than the options ask that were given for it; nothing was changed. Take it as
    /// it is ([`ContainerOptions::or_keep`](crate::ContainerOptions::or_keep)), or change it
    /// ([`ContainerOptions::or_change`](crate::ContainerOptions::or_change)).
    Differs {
        /// The name of the container.
        container: String,
        /// The settings that differ, as they are, in the words of the options.
        found: String,
        /// The same as they were asked for.
        asked: String,
    },
    /// The database was closed.
    Closed,
    /// The container was dropped; from then on its handles return only this error.
    ContainerDropped {
        /// Its name.
        name: String,
    },
    /// The system refused memory; the call stored or changed nothing.
    OutOfMemory {
        /// The size of the refused allocation.
        bytes: u64,
    },
    /// Flushing falls behind, and `on_stall(Stall::Fail)` was chosen.
    Stalled,
    /// A thread of the database panicked in its work, by a bug in this crate or in a [`Clock`](crate::Clock): nothing
    /// is half done, and it is retried.
    Panicked {
        /// The thread.
        thread: &'static str,
        /// The panic's message.
        message: String,
    },
    /// A record in memory is not what was written: a bit of the machine's memory has changed. Nothing of its memtable was
    /// written to tables; the log has the record as it was, and reopening the database replays it.
    MemoryCorruption {
        /// The damage, in words.
        what: String,
    },
    /// An earlier sync of the log, or a write to it, failed, or memory was found to be corrupt: it is unknown what the disk
    /// holds, or would hold, so no further write is accepted. Reads go on. Reopen the database to recover.
    Poisoned {
        /// The failure that came first.
        cause: Arc<Error>,
    },
}

impl Error {
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> Error {
        Error::Io {
            operation,
            path: path.into(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn corruption(
        path: impl Into<PathBuf>,
        offset: u64,
        what: impl Into<String>,
    ) -> Error {
        Error::Corruption {
            path: path.into(),
            offset,
            what: what.into(),
        }
    }

    pub(crate) fn out_of_memory(bytes: usize) -> Error {
        Error::OutOfMemory {
            bytes: bytes as u64,
        }
    }

    #[cfg(feature = "typed")]
    pub(crate) fn decode(container: &str, key: &[u8], what: String) -> Error {
        Error::Decode {
            container: container.into(),
            key: key.into(),
            what,
        }
    }

    pub(crate) fn invalid(
        what: &'static str,
        given: impl Into<String>,
        allowed: &'static str,
    ) -> Error {
        Error::InvalidArgument {
            what,
            given: given.into(),
            allowed,
        }
    }

    /// Stored bytes are damaged: [`repair`](crate::repair) reports what it can save; or restore a checkpoint.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Error::Corruption { .. } | Error::UnsupportedFormat { .. } => true,
            Error::Poisoned { cause } => cause.is_corruption(),
            _ => false,
        }
    }

    /// The file system is full, or a quota: free some room, then try again.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::QuotaFull { .. } => true,
            Error::Io { source, .. } => {
                matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                )
            }
            Error::Poisoned { cause } => cause.is_full(),
            _ => false,
        }
    }

    /// The system is out of a resource: room, descriptors, memory or rights. The call has not happened, and nothing
    /// that happened before is in doubt; only a failed sync is final even then.
    pub(crate) fn is_shortage(&self) -> bool {
        let Error::Io { source, .. } = self else {
            return matches!(self, Error::OutOfMemory { .. });
        };
        self.is_full()
            || matches!(
                source.kind(),
                io::ErrorKind::OutOfMemory
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
            )
            || is_out_of_files(source)
    }

    /// Whether the same call may succeed later without a repair.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Stalled
            | Error::OutOfMemory { .. }
            | Error::Locked { .. }
            | Error::ClockUnsettled { .. }
            | Error::AheadOfTime { .. }
            | Error::TooManyCommands { .. }
            | Error::QuotaFull { .. } => true,
            Error::Io { source, .. } => {
                let passing = [io::ErrorKind::Interrupted, io::ErrorKind::OutOfMemory];
                self.is_full() || passing.contains(&source.kind()) || is_out_of_files(source)
            }
            _ => false,
        }
    }

    /// Whether a condition of a batch does not hold, what a transaction has read has changed, or an index key is taken: read
    /// again, then decide again.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, Error, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let names = db.container("names")?;
    /// names.put("ada", "1")?;
    /// let mut batch = Batch::new();
    /// batch.create(&names, "ada", "2", Ttl::Inherit);
    /// let error = db.write(batch).unwrap_err();
    /// assert!(error.is_conflict());
    /// assert!(matches!(error, Error::Conflict { container, key } if container == "names" && key == b"ada"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::NotUnique { .. })
    }

    /// Whether a copy that is kept by [`Database::changes`](crate::Database::changes) must be made anew.
    #[must_use]
    pub fn is_changes_gone(&self) -> bool {
        matches!(self, Error::ChangesGone { .. })
    }

    /// Whether expirations were asked for that are not on disk any more: begin anew at
    /// [`ExpiryCursor::start`](crate::ExpiryCursor::start).
    #[must_use]
    pub fn is_expirations_gone(&self) -> bool {
        matches!(self, Error::ExpirationsGone { .. })
    }

    /// Whether this handle of the database or the container is closed for good.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed | Error::ContainerDropped { .. })
    }
}

/// Whether the process, or the system, has as many files open as it may.
fn is_out_of_files(error: &io::Error) -> bool {
    // ENFILE and EMFILE, on every Unix.
    matches!(error.raw_os_error(), Some(23 | 24))
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source.as_ref()),
            Error::Poisoned { cause } => Some(cause.as_ref()),
            _ => None,
        }
    }
}
