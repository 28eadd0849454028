//! An analytical copy: the rows of a container in Parquet files, brought up to date by each run.
//!
//! ```text
//! OUT/_state.json                           what the copy consists of (state.rs)
//! OUT/_lock                                 locked by the run that there is
//! OUT/date=2026-11-25/r00000007-0000.parquet           a day of times of writing, by run 7
//! OUT/date=2026-11-25/hour=10/r00000007-0000.parquet   the same by hours
//!
//! key         BYTE_ARRAY                    or a string, where that was asked for
//! value       BYTE_ARRAY, null where deleted
//! written_at  TIMESTAMP(ms, UTC)            of a delete: of the run that met it
//! expires_at  TIMESTAMP(ms, UTC), null: never
//! version     INT64                         Item::version, or that of the write that deleted it
//! run         INT64
//! deleted     BOOLEAN
//! ```
//!
//! A row is a key's newest state as a run met it. Rows are never changed: of the rows of a key that of the highest run
//! counts. It is live unless it is deleted, or has expired, or is past the copy's own retention.
//!
//! ```text
//! run     what has changed since the version of the state ── puts, deletes ────────────────> a row each
//!                                                         ── ranges were deleted ──────────> and one for each key of the copy in them
//!         the rule of expiry has changed, the container was made anew, ChangesGone:
//!         everything that is live, compared with the copy ── what differs, what is missing ─> a row each
//! ```
//!
//! Invariants:
//!
//! 1. The state is the copy. A run writes files under other names, syncs them, replaces the state in one step, and gives them
//!    their names; the next run does first what a killed one has left. So rows are there once, those of a run all or none.
//! 2. A run has at most one row of a key, so that the number of the run orders them.
//! 3. A row that is past the retention is in no file that is written, and a file all of whose rows are is unlinked by the next
//!    run. A delete's time is that of its run, no earlier than those of the rows it hides, so it goes no earlier than they count.

mod state;
mod folder;
mod rows;
mod known;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ebbtide::{Bytes, Change, Changes, Container, Database, DefaultTtl, ExpiryRule, Version};

use folder::Folder;
use known::Known;
use rows::{Row, Writer};
pub use state::Partition;
use state::State;

/// Why a run failed, in one line.
#[derive(Debug)]
pub struct Error(String);

/// The result of a run.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<ebbtide::Error> for Error {
    fn from(error: ebbtide::Error) -> Error {
        Error(error.to_string())
    }
}

impl Error {
    fn new(what: impl Into<String>) -> Error {
        Error(what.into())
    }

    fn of(doing: &str, path: &Path, error: impl fmt::Display) -> Error {
        Error(format!("cannot {doing} {}: {error}", path.display()))
    }
}

/// How a copy is made. What is `None` is as in the run before.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The folder of the copy.
    pub out: PathBuf,
    /// How long a row is kept after it was written: for good ([`DefaultTtl::NoDefault`]), or so long. `Off` removes the rows.
    /// The first run needs it.
    pub retention: Option<DefaultTtl>,
    /// The folders; days where nothing was said.
    pub partition: Option<Partition>,
    /// Keys are text.
    pub utf8_keys: bool,
    /// Values are text.
    pub utf8_values: bool,
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Rows that were written, deletes too.
    pub rows: u64,
    /// Files that were written.
    pub files: u64,
    /// Files that were unlinked, past the retention.
    pub removed: u64,
    /// The copy is of this version.
    pub version: u64,
    /// All was compared, not only what has changed.
    pub compared: bool,
}

/// Brings the copy of a container up to date. `gate` is asked before each change of a file, and ends the run where it is
/// an error: as a kill would, so that tests have one everywhere.
///
/// # Errors
/// The database's, the file system's; the copy of another container or database, other settings than those of the first run, a run at the
/// same time, a damaged copy.
pub fn export(
    db: &Database,
    container: &Container,
    settings: &Settings,
    gate: &dyn Fn() -> std::io::Result<()>,
) -> Result<Done> {
    let folder = Folder::lock(&settings.out, gate)?;
    let before = folder.state()?;
    if let Some(state) = &before {
        folder.tidy(state)?;
    }
    let mut state = State::next(before, db.identity(), container.name(), settings)?;
    let now = db.now().duration_since(UNIX_EPOCH).unwrap_or_default();
    state.time_ms = state.time_ms.max(now.as_millis() as u64);
    let listed = state.files.len();
    state.forget_past();
    let mut done = Done {
        removed: (listed - state.files.len()) as u64,
        ..Done::default()
    };
    if state.retention != DefaultTtl::Off {
        let mut run = Run {
            writer: Writer::new(&folder, &state),
            state: &mut state,
            folder: &folder,
        };
        done.compared = run.take_in(container)?;
        let files = run.writer.finish()?;
        done.files = files.len() as u64;
        done.rows = files.iter().map(|file| file.rows).sum();
        state.files.extend(files);
        // The copy must hold no write that a power cut can take back. A follower leaves that to the process that
        // writes.
        match db.sync() {
            Err(ebbtide::Error::ReadOnly) => {}
            synced => synced?,
        }
    }
    done.version = state.version;
    folder.commit(&state)?;
    folder.tidy(&state)?;
    Ok(done)
}

/// A run, and the state that it leads to.
struct Run<'r> {
    state: &'r mut State,
    folder: &'r Folder<'r>,
    writer: Writer<'r>,
}

/// The changes that a pass tells before those of keys.
#[derive(Default)]
struct PassHead {
    rule: Option<ExpiryRule>,
    is_made: bool,
    ranges: Vec<Range>,
    first: Option<Change>,
}

struct Range {
    from: Bytes,
    to: Option<Bytes>,
    version: u64,
}

impl Range {
    fn holds(&self, key: &[u8]) -> bool {
        key >= &self.from[..] && self.to.as_ref().is_none_or(|to| key < &to[..])
    }
}

impl Run<'_> {
    /// Writes rows of what is new; whether all had to be compared.
    fn take_in(&mut self, container: &Container) -> Result<bool> {
        let since = self.state.version;
        let mut changes = container.changes(Version::from_u64(since));
        match head(&mut changes) {
            Ok(head) => {
                let is_other = head.rule.is_some() && head.rule != self.state.rule;
                if since == 0 || !(head.is_made || is_other) {
                    let known = match head.ranges.is_empty() {
                        true => Known::default(),
                        false => Known::read(self.folder, self.state)?,
                    };
                    self.pass(changes, head, known, false)?;
                    return Ok(false);
                }
            }
            Err(error) if error.is_changes_gone() => {}
            Err(error) => return Err(error.into()),
        }
        let mut changes = container.changes(Version::start());
        let head = head(&mut changes)?;
        let known = Known::read(self.folder, self.state)?;
        self.pass(changes, head, known, true)?;
        Ok(true)
    }

    /// Takes in the keys of a pass. `known` has what the copy has of those that it may tell nothing of.
    fn pass(
        &mut self,
        mut changes: Changes,
        head: PassHead,
        mut known: Known,
        is_all: bool,
    ) -> Result<()> {
        let mut next = head.first;
        while let Some(change) = next {
            match change {
                Change::Put { item, .. } => {
                    let row = Row::put(&item);
                    let is_known = known.take(item.key()).is_some_and(|it| it.is_of(&row));
                    if !is_known && !self.state.is_past(row.written_at) {
                        self.writer.push(row)?;
                    }
                }
                Change::Delete { key, version, .. } => {
                    known.take(&key);
                    self.writer
                        .push(self.deleted(key.into(), version.as_u64()))?;
                }
                _ => {}
            }
            next = changes.next().transpose()?;
        }
        let version = changes.version().as_u64();
        for (key, newest) in known.live(self.state.time_ms) {
            let over = head.ranges.iter().filter(|range| range.holds(&key));
            let by = match is_all {
                true => Some(version),
                false => over.map(|range| range.version).max(),
            };
            if let Some(by) = by.filter(|by| is_all || *by > newest.version) {
                self.writer.push(self.deleted(key, by))?;
            }
        }
        self.state.version = version;
        self.state.rule = head.rule.or(self.state.rule.take());
        Ok(())
    }

    fn deleted(&self, key: Vec<u8>, version: u64) -> Row {
        Row::deleted(key, version, self.state.time_ms)
    }
}

/// Reads the changes that come before those of keys, and the first of a key.
fn head(changes: &mut Changes) -> ebbtide::Result<PassHead> {
    let mut head = PassHead::default();
    for change in changes {
        match change? {
            Change::Created { .. } => head.is_made = true,
            Change::Expiry { rule, .. } => head.rule = Some(rule),
            Change::DeleteRange {
                from, to, version, ..
            } => head.ranges.push(Range {
                from,
                to,
                version: version.as_u64(),
            }),
            change @ (Change::Put { .. } | Change::Delete { .. }) => {
                head.first = Some(change);
                break;
            }
            _ => {}
        }
    }
    Ok(head)
}
