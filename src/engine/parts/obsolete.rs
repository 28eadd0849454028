//! Obsolete tables, which no version names: removes them from the file system a few at a time.
//!
//! ```text
//! an edit -> waiting: has its name -> lingering: somebody reads it still -> gone
//! ```
//!
//! Unlinking a table and freeing its blocks costs the file system's journal milliseconds, and delays the log's syncs;
//! so tables that became obsolete in one edit are removed over several windows. The blocks are freed when the last
//! holder of the file's map drops it. Therefore a table is held here until no reader has it, so that no reader pays for
//! freeing its blocks. Values held by users are not waited for. A table whose name is pinned stays until it is
//! unpinned; a table that was never removed is removed by the next open.
//!
//! Invariants: from the edit on that no longer names it, a table is in one of the two lists or removed from the file
//! system. Before that edit it has its name: tables of a container whose drop the log alone says are held for it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::Mutex;
use crate::base::{TableId, Timestamp};
use crate::catalog::{ObsoleteTable, Pins, Run, TableFile};
use crate::compact::pace::{REMOVAL_WINDOW, removals};
use crate::env::{Fs, monotonic};
use crate::values::disk_usage::DiskHolder;

/// See the file's head.
pub struct ObsoleteTables {
    fs: Arc<dyn Fs>,
    tables_dir: PathBuf,
    /// Counts the bytes of unlinked tables that readers hold.
    pins: Arc<Pins>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Tables that still have a name, oldest first.
    waiting: VecDeque<TableFile>,
    /// Unlinked tables that a reader still holds.
    lingering: Vec<TableFile>,
    /// Tables of dropped containers that no edit has left out yet.
    held: Vec<TableFile>,
    /// When the next ones are due.
    due: Duration,
}

/// Tables that are due.
struct Leaving {
    /// To be unlinked; they may linger afterwards.
    named: Vec<TableFile>,
    /// To be dropped.
    unnamed: Vec<TableFile>,
}

impl ObsoleteTables {
    /// With empty lists.
    pub fn new(fs: Arc<dyn Fs>, tables_dir: PathBuf, pins: Arc<Pins>) -> ObsoleteTables {
        ObsoleteTables {
            fs,
            tables_dir,
            pins,
            queue: Mutex::default(),
        }
    }

    /// Counts the bytes that readers hold.
    pub fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// The obsolete tables whose bytes are on disk, by their ids, and the holder of each; none: it is to be removed
    /// soon.
    pub fn list(&self) -> BTreeMap<TableId, (ObsoleteTable, Option<DiskHolder>)> {
        let queue = self.queue.lock();
        // A table that leaves the queue meanwhile is held by a value, if at all.
        let mut listed: BTreeMap<TableId, _> = self.pins.list().into_iter().map(by_value).collect();
        let held = queue.held.iter();
        for file in queue.waiting.iter().chain(&queue.lingering).chain(held) {
            let holder = match (file.is_name_pinned(), file.is_in_use()) {
                (true, _) => Some(DiskHolder::Checkpoint),
                (false, true) => Some(DiskHolder::Scan),
                (false, false) => None,
            };
            if let Some((_, by)) = listed.get_mut(&file.record.id) {
                *by = holder;
            }
        }
        listed
    }

    /// Takes over the tables of runs that the catalogue no longer names since `now`, except for those that `kept` holds
    /// too.
    pub fn push_runs_but(&self, runs: &[Arc<Run>], kept: &[Arc<Run>], now: Timestamp) {
        let kept: Vec<TableId> = kept
            .iter()
            .flat_map(|run| &run.files)
            .map(|file| file.record.id)
            .collect();
        let tables = runs.iter().flat_map(|run| &run.files);
        let gone: Vec<&TableFile> = tables
            .filter(|file| !kept.contains(&file.record.id))
            .collect();
        gone.iter().for_each(|file| file.set_obsolete(now));
        self.queue.lock().waiting.extend(gone.into_iter().cloned());
    }

    /// Holds the tables of a container that was dropped, until [`ObsoleteTables::retire_held`].
    pub fn hold_runs(&self, runs: &[Arc<Run>]) {
        let tables = runs.iter().flat_map(|run| &run.files);
        self.queue.lock().held.extend(tables.cloned());
    }

    /// Takes over all that was held: since `now` the catalogue does not name it.
    pub fn retire_held(&self, now: impl FnOnce() -> Timestamp) {
        let mut queue = self.queue.lock();
        if queue.held.is_empty() {
            return;
        }
        let (held, now) = (std::mem::take(&mut queue.held), now());
        held.iter().for_each(|file| file.set_obsolete(now));
        queue.waiting.extend(held);
    }

    /// Removes some tables, once a window, or all if `room_is_wanted`; returns when the next ones are due.
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

    /// Removes all tables, whether they are read or not, except for those whose names are pinned.
    pub fn remove_all(&self) {
        let leaving = self.queue.lock().take();
        leaving.named.iter().for_each(|file| self.unlink(file));
    }

    /// A failure only leaves the file behind: the next open removes it.
    fn unlink(&self, file: &TableFile) {
        let _ = file.remove(self.fs.as_ref(), &self.tables_dir);
    }
}

/// A table that is in no list any more is kept by values that lie in its map.
fn by_value(
    (id, table): (TableId, ObsoleteTable),
) -> (TableId, (ObsoleteTable, Option<DiskHolder>)) {
    (id, (table, Some(DiskHolder::Value)))
}

impl Queue {
    /// Whether the next ones are due.
    fn is_due(&self, now: Duration) -> bool {
        now >= self.due && self.has_some()
    }

    /// The next ones, once a window: tables of some bytes, or all when room is wanted.
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

    /// All tables, whether they are read or not, except for those whose names are pinned.
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

    /// How long until the next ones are due; `None` when there are none.
    fn due_in(&self, now: Duration) -> Option<Duration> {
        self.has_some().then(|| self.due.saturating_sub(now))
    }

    fn has_some(&self) -> bool {
        !self.waiting.is_empty() || !self.lingering.is_empty()
    }
}
