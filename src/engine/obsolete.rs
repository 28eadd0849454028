//! Tables that no version names, on their way out of the file system, a few at a time.
//!
//! ```text
//! an edit -> waiting: has its name -> lingering: somebody reads it still -> gone
//! ```
//!
//! Unlinking a table and giving back its blocks costs the file system's journal milliseconds, which the log's syncs wait
//! for; so tables that went in one edit go over some windows. The blocks go with the last who holds the file's map:
//! therefore a table is held here until no reader has it, and no reader finds itself giving blocks back. Values in the
//! hands of users are not waited for. A table whose name is pinned waits; what was never removed goes with the next open.
//!
//! Invariant: a table is in one of the two lists, or gone from the file system, from the edit on that no longer names it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::TableId;
use crate::base::sync::Mutex;
use crate::catalog::{Pins, Run, TableFile};
use crate::compact::pace::{REMOVAL_WINDOW, removals};
use crate::env::{Fs, monotonic};

/// See the file's head.
pub struct ObsoleteTables {
    fs: Arc<dyn Fs>,
    tables_dir: PathBuf,
    /// What readers hold of tables that have lost their names.
    pins: Arc<Pins>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Oldest first.
    waiting: VecDeque<TableFile>,
    /// Without a name.
    lingering: Vec<TableFile>,
    /// When the next ones are to go.
    due: Duration,
}

/// Those whose time has come.
struct Leaving {
    /// To be unlinked; then they may have to linger.
    named: Vec<TableFile>,
    /// To be dropped.
    unnamed: Vec<TableFile>,
}

impl ObsoleteTables {
    /// None yet.
    pub fn new(fs: Arc<dyn Fs>, tables_dir: PathBuf, pins: Arc<Pins>) -> ObsoleteTables {
        ObsoleteTables {
            fs,
            tables_dir,
            pins,
            queue: Mutex::default(),
        }
    }

    /// What counts the bytes that readers hold.
    pub fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// The catalogue no longer names these runs: their files go, soon, but those that `kept` holds too.
    pub fn push_runs_but(&self, runs: &[Arc<Run>], kept: &[Arc<Run>]) {
        let kept: Vec<TableId> = kept
            .iter()
            .flat_map(|run| &run.files)
            .map(|file| file.record.id)
            .collect();
        let tables = runs.iter().flat_map(|run| &run.files);
        let gone: Vec<&TableFile> = tables
            .filter(|file| !kept.contains(&file.record.id))
            .collect();
        gone.iter().for_each(|file| file.set_obsolete());
        self.queue.lock().waiting.extend(gone.into_iter().cloned());
    }

    /// Removes some of them, once a window, or all when room is wanted; says when the next ones are to go.
    pub fn remove_some(&self, room_is_wanted: impl FnOnce() -> bool) -> Option<Duration> {
        let now = monotonic();
        if self.queue.lock().is_due(now) {
            let room_is_wanted = room_is_wanted();
            let Leaving { mut named, unnamed } = self.queue.lock().next(room_is_wanted, now);
            drop(unnamed);
            named.iter().for_each(|file| self.unlink(file));
            let used: Vec<TableFile> = named.extract_if(.., |file| file.is_in_use()).collect();
            drop(named);
            self.queue.lock().lingering.extend(used);
        }
        self.queue.lock().due_in(monotonic())
    }

    /// Removes all of them, whether somebody reads them or not; but for those whose names are pinned.
    pub fn remove_all(&self) {
        let leaving = self.queue.lock().take();
        leaving.named.iter().for_each(|file| self.unlink(file));
    }

    /// What fails here is only left behind: the next open removes it.
    fn unlink(&self, file: &TableFile) {
        let _ = file.remove(self.fs.as_ref(), &self.tables_dir);
    }
}

impl Queue {
    /// It is time for the next ones.
    fn is_due(&self, now: Duration) -> bool {
        now >= self.due && self.has_some()
    }

    /// The next ones, once a window: some bytes of them, or all when room is wanted.
    fn next(&mut self, room_is_wanted: bool, now: Duration) -> Leaving {
        self.due = now + REMOVAL_WINDOW;
        let waiting = self.waiting.iter().chain(&self.lingering);
        let all: u64 = waiting.map(|file| file.record.len).sum();
        let mut left = if room_is_wanted { all } else { removals(all) };
        let mut goes = |file: &TableFile| {
            let goes = left > 0;
            left = left.saturating_sub(file.record.len);
            goes
        };
        let (named, waiting): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|file| !file.is_name_pinned() && goes(file));
        self.waiting = waiting;
        let unused = self
            .lingering
            .extract_if(.., |file| !file.is_in_use() && goes(file));
        Leaving {
            unnamed: unused.collect(),
            named: named.into(),
        }
    }

    /// All of them, whether somebody reads them or not; but for those whose names are pinned.
    fn take(&mut self) -> Leaving {
        let (waiting, named): (_, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(TableFile::is_name_pinned);
        self.waiting = waiting;
        Leaving {
            named: named.into(),
            unnamed: std::mem::take(&mut self.lingering),
        }
    }

    /// How long it is until the next ones are to go; `None` when there are none.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        self.has_some().then(|| self.due.saturating_sub(now))
    }

    fn has_some(&self) -> bool {
        !self.waiting.is_empty() || !self.lingering.is_empty()
    }
}
