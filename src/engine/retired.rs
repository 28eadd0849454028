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

use std::collections::VecDeque;
use std::time::Duration;

use crate::catalog::Placed;
use crate::compact::pace::{REMOVAL_WINDOW, removals};

/// The tables.
#[derive(Default)]
pub struct Retired {
    /// Oldest first.
    waiting: VecDeque<Placed>,
    /// Without a name.
    lingering: Vec<Placed>,
    /// When the next ones are to go.
    due: Duration,
}

/// Those whose time has come.
pub struct Leaving {
    /// To be unlinked; then they may have to linger.
    pub named: Vec<Placed>,
    /// To be dropped.
    pub unnamed: Vec<Placed>,
}

impl Retired {
    /// Adds tables that no version names any more.
    pub fn push(&mut self, tables: impl IntoIterator<Item = Placed>) {
        self.waiting.extend(tables);
    }

    /// It is time for the next ones.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.due && self.has_some()
    }

    /// The next ones, once a window: some bytes of them, or all when room is wanted.
    pub fn next(&mut self, room_is_wanted: bool, now: Duration) -> Leaving {
        self.due = now + REMOVAL_WINDOW;
        let waiting = self.waiting.iter().chain(&self.lingering);
        let all: u64 = waiting.map(|placed| placed.record.len).sum();
        let mut left = if room_is_wanted { all } else { removals(all) };
        let mut goes = |placed: &Placed| {
            let goes = left > 0;
            left = left.saturating_sub(placed.record.len);
            goes
        };
        let (named, waiting): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|placed| !placed.is_name_pinned() && goes(placed));
        self.waiting = waiting;
        let unused = self
            .lingering
            .extract_if(.., |placed| !placed.is_in_use() && goes(placed));
        Leaving {
            unnamed: unused.collect(),
            named: named.into(),
        }
    }

    /// Keeps those of the tables, just unlinked, that somebody reads.
    pub fn let_linger(&mut self, tables: impl IntoIterator<Item = Placed>) {
        self.lingering.extend(tables);
    }

    /// All of them, whether somebody reads them or not; but for those whose names are pinned.
    pub fn take(&mut self) -> Leaving {
        let (waiting, named): (_, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(Placed::is_name_pinned);
        self.waiting = waiting;
        Leaving {
            named: named.into(),
            unnamed: std::mem::take(&mut self.lingering),
        }
    }

    /// How long it is until the next ones are to go; `None` when there are none.
    pub fn due_in(&self, now: Duration) -> Option<Duration> {
        self.has_some().then(|| self.due.saturating_sub(now))
    }

    fn has_some(&self) -> bool {
        !self.waiting.is_empty() || !self.lingering.is_empty()
    }
}
