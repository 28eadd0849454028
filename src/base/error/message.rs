//! The message of each error.

use std::fmt;

use super::{BEYOND_REPAIR, Error};
use crate::base::Timestamp;

const LOCKED: &str = "is open elsewhere, or closing yet: one process at a time writes a database; close the other one first";
const FOREIGN: &str =
    "holds other things and no database: one is made in a folder that is missing or empty";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { .. } | Error::Corruption { .. } | Error::UnsupportedFormat { .. } => {
                self.fmt_of_file(f)
            }
            Error::InvalidArgument {
                what,
                given,
                allowed,
            } => write!(f, "{what} {given} is not allowed: {allowed}"),
            Error::MissingFeature { feature, what } => write!(
                f,
                "{what} needs the feature `{feature}` of the crate ebbtide, which this program was built without: build it \
                 with that"
            ),
            Error::Locked { path } => write!(f, "{} {LOCKED}", path.display()),
            Error::NotFound { path } => write!(f, "there is no database in {}", path.display()),
            Error::ForeignFolder { path } => write!(f, "{} {FOREIGN}", path.display()),
            Error::ClockBehind { .. }
            | Error::ClockUnsettled { .. }
            | Error::TimeIsGiven { .. }
            | Error::TimeIsNotGiven
            | Error::AheadOfTime { .. } => self.fmt_of_time(f),
            Error::Conflict { .. }
            | Error::TooManyCommands { .. }
            | Error::ExpirationsGone { .. }
            | Error::ContainerDropped { .. }
            | Error::QuotaFull { .. } => self.fmt_of_container(f),
            #[cfg(feature = "typed")]
            Error::Decode { .. } => self.fmt_of_container(f),
            Error::ChangesGone { since, from } => fmt_changes_gone(f, *since, *from),
            Error::Differs {
                container,
                found,
                asked,
            } => fmt_differs(f, container, found, asked),
            Error::NotUnique {
                index,
                index_key,
                key,
            } => fmt_not_unique(f, index, index_key, key),
            Error::OutOfMemory { bytes } => write!(
                f,
                "the system gave no memory ({bytes} bytes); try again when there is some"
            ),
            Error::Panicked { thread, message } => write!(
                f,
                "thread {thread} panicked: {message}; it tries again; unless this is a fault of your clock, please report it"
            ),
            Error::MemoryCorruption { what } => write!(f, "memory is corrupt: {what}; {MEMORY}"),
            Error::Poisoned { cause } => write!(
                f,
                "no further writes after an earlier failure ({cause}); reopen the database to recover"
            ),
            Error::ReadOnly => f.write_str(READ_ONLY),
            Error::Closed => f.write_str("the database is closed; open it again"),
            Error::Stalled => f.write_str(STALLED),
        }
    }
}

fn fmt_differs(
    f: &mut fmt::Formatter<'_>,
    container: &str,
    found: &str,
    asked: &str,
) -> fmt::Result {
    write!(
        f,
        "container {container:?} has {found}, where {asked} was asked for: take it as it is by or_keep(), or change it by \
         or_change(), which leaves the compression alone"
    )
}

fn fmt_not_unique(
    f: &mut fmt::Formatter<'_>,
    index: &str,
    index_key: &[u8],
    key: &[u8],
) -> fmt::Result {
    write!(
        f,
        "index key \"{}\" of the unique index {index:?} is taken by the item with key \"{}\": give another one, or end that \
         item first",
        index_key.escape_ascii(),
        key.escape_ascii()
    )
}

fn fmt_changes_gone(f: &mut fmt::Formatter<'_>, since: u64, from: u64) -> fmt::Result {
    write!(
        f,
        "changes are known since version {from}, and not since version {since}: drop the copy, and make it anew from the \
         changes since Version::start()"
    )
}

const READ_ONLY: &str =
    "the database was opened read-only, or is followed; open it without read_only(true) to write";
const MEMORY: &str = "have the memory of this machine tested";
const STALLED: &str = "writing is faster than flushing and memory is full; try again shortly";

impl Error {
    /// The message of an error about a file, and the remedy.
    fn fmt_of_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                operation,
                path,
                source,
            } => {
                write!(f, "cannot {operation} {}: {source}", path.display())?;
                match self.is_full() {
                    true => f.write_str("; free some space, then try again"),
                    false => Ok(()),
                }
            }
            Error::Corruption { path, offset, what } => {
                write!(f, "{} is damaged at byte {offset}: {what}", path.display())?;
                match what.ends_with(BEYOND_REPAIR) {
                    true => Ok(()),
                    false => f.write_str(
                        "; see what `ebbtide repair` (in a program: ebbtide::repair) can save, or restore a checkpoint",
                    ),
                }
            }
            Error::UnsupportedFormat {
                path,
                found,
                supported,
            } => {
                write!(f, "{} has format version {found}, ", path.display())?;
                match found > supported {
                    true => write!(
                        f,
                        "this build reads up to {supported}; use a newer build (its `ebbtide upgrade` brings older \
                         databases to its own version)"
                    ),
                    false => write!(
                        f,
                        "which this build, of version {supported}, no longer reads; `ebbtide upgrade` of a build in \
                         between brings it nearer, or use the build that wrote it, to export what it holds"
                    ),
                }
            }
            _ => unreachable!("it is not of a file"),
        }
    }

    /// The message of an error about the time, and the remedy.
    fn fmt_of_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::ClockBehind { wall, mark } => write!(
                f,
                "the wall clock says {wall}, but this database has relied on {mark}: correct the clock, or open with \
                 clock_behind(ClockBehind::StartAtMark) to go on from {mark}",
                wall = Timestamp::from_system_time_up(*wall),
                mark = Timestamp::from_system_time_up(*mark),
            ),
            Error::ClockUnsettled { wall, settled } => write!(
                f,
                "the wall clock has leapt from {settled} to {wall}, which is not settled yet: correct the clock, call \
                 confirm_clock() if it is right, or wait for max_clock_skew to pass",
                wall = Timestamp::from_system_time_up(*wall),
                settled = Timestamp::from_system_time_up(*settled),
            ),
            Error::TimeIsGiven { what } => write!(
                f,
                "the time of this database is given by its program, where this is refused: {what}"
            ),
            Error::TimeIsNotGiven => f.write_str(
                "the time of this database is that of a clock: only one that was made with Options::given_time has its time given",
            ),
            Error::AheadOfTime { moment, now } => write!(
                f,
                "the cursor is of {moment}, and the time that was given is {now}: try again when it has come so far",
                moment = Timestamp::from_system_time_up(*moment),
                now = Timestamp::from_system_time_up(*now),
            ),
            _ => unreachable!("it is not of the time"),
        }
    }

    /// The message of an error about a container or an item of it, and the remedy.
    fn fmt_of_container(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Conflict { container, key } => write!(
                f,
                "key \"{}\" of container {container:?} is not as the batch asks, or not as the transaction has read it; \
                 nothing was written: read it anew, then decide again",
                key.escape_ascii()
            ),
            #[cfg(feature = "typed")]
            Error::Decode {
                container,
                key,
                what,
            } => write!(
                f,
                "the item with key \"{}\" of container {container:?} is not of the types that were asked for ({what}): \
                 open the container with the types that it was written with",
                key.escape_ascii()
            ),
            Error::TooManyCommands { container } => write!(
                f,
                "container {container:?} has so many commands to expire items that it takes no more: try again when what \
                 they concern is removed from the disk, or expire with one command what several did"
            ),
            Error::ExpirationsGone {
                container,
                known_from,
            } => write!(
                f,
                "what expired in container {container:?} is known from {known_from} on, and was asked for from before: begin \
                 with ExpiryCursor::start(), and keep more (keep_expired) for a reader that is away for so long",
                known_from = Timestamp::from_system_time_up(*known_from),
            ),
            Error::QuotaFull {
                container,
                limit,
                live,
                frees_at,
            } => {
                match container {
                    Some(name) => write!(f, "container {name:?}")?,
                    None => f.write_str("the database")?,
                }
                write!(f, " is full: about {live} of {limit} bytes are live; ")?;
                match frees_at.map(Timestamp::from_system_time_up) {
                    Some(end) => write!(f, "the next item ends at {end}: try again then, ")?,
                    None => f.write_str("no item has an end: ")?,
                }
                f.write_str("delete some, or raise the quota")
            }
            Error::ContainerDropped { name } => write!(
                f,
                "container {name:?} was dropped; ask the database for it again to create it anew"
            ),
            _ => unreachable!("it is not of a container"),
        }
    }
}
