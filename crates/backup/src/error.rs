//! Errors of backups.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use ebbtide::shared::utc;

/// The result of every call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. After an error earlier backups are as they were, and the same call may be made again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store, or a file of this machine, could not be read or written.
    Io {
        /// The attempted operation, as a verb.
        doing: &'static str,
        /// The object or the file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The database's error.
    Database(ebbtide::Error),
    /// An object of the store is missing, or is not what was stored. Backups that name it cannot be restored; where it is a
    /// ledger, those before it only with [`Later::Ignore`](crate::Later::Ignore).
    Damaged {
        /// The object.
        name: String,
        /// The damage, in words.
        what: String,
    },
    /// There is no such backup.
    NotFound {
        /// Its number; `None`: there is none at all.
        number: Option<u64>,
    },
    /// Something else is at work in the store, or was when its process was killed: try again later.
    Busy {
        /// The lease that is in the way.
        lease: String,
        /// Until when it holds at most.
        until: SystemTime,
    },
    /// Another call copies from or to the same folder: try again when that is done.
    InUse {
        /// The lock that it holds.
        lock: PathBuf,
    },
    /// The copy beside a folder that a call works on could not be made or read. If the database is damaged,
    /// [`ebbtide::verify`] tells; a damaged object of the store is [`Error::Damaged`].
    Scratch {
        /// The copy.
        path: PathBuf,
        /// The failure.
        source: ebbtide::Error,
    },
    /// The call was wrong, and why.
    Refused(String),
}

impl Error {
    pub(crate) fn damaged(name: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Damaged {
            name: name.into(),
            what: what.into(),
        }
    }

    pub(crate) fn io(
        doing: &'static str,
        name: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Error {
        let name = name.into();
        move |source| Error::Io {
            doing,
            name,
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                doing,
                name,
                source,
            } => write!(f, "cannot {doing} {name}: {source}"),
            Error::Database(error) => error.fmt(f),
            Error::Damaged { name, what } => write!(
                f,
                "{name} of the backups is damaged: {what}; restore another backup, and make a new one"
            ),
            Error::NotFound {
                number: Some(number),
            } => write!(
                f,
                "there is no backup {number}; `ebbtide backups` lists them"
            ),
            Error::NotFound { number: None } => f.write_str("there is no backup"),
            Error::Busy { lease, until } => write!(
                f,
                "the backups are in use ({lease}): try again when that is done; if it was killed, that holds until {} at the \
                 latest, or until `ebbtide backup prune --break-lease` by someone who knows that nobody is at work",
                utc(*until)
            ),
            Error::InUse { lock } => write!(
                f,
                "{} is locked, for another backup, restore or proof copies there: try again when that is done",
                lock.display()
            ),
            Error::Scratch { path, source } => write!(
                f,
                "the copy in {}, with which this works, cannot be used: {}; try again, and if it stays so, check the \
                 database with `ebbtide verify`, and the backups with `ebbtide backup prove`",
                path.display(),
                reason(source)
            ),
            Error::Refused(why) => f.write_str(why),
        }
    }
}

/// Without what to do about a database, which a copy is not.
fn reason(error: &ebbtide::Error) -> String {
    match error {
        ebbtide::Error::Corruption { path, offset, what } => {
            format!("{} is wrong at byte {offset}: {what}", path.display())
        }
        error => error.to_string(),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::Database(error) | Error::Scratch { source: error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<ebbtide::Error> for Error {
    fn from(error: ebbtide::Error) -> Error {
        Error::Database(error)
    }
}
