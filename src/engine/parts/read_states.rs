//! The read states of a container, one after another, and notes of the records that each lacks.
//!
//! ```text
//! install    note what the next one is without ──▶ store it
//! reader     load the read state ──▶ miss something in it ──▶ ask whether it has left
//! ```
//!
//! Invariants, which only this file can break, since the fields are private:
//!
//! 1. The records that a read state lacks are noted before anybody can load it. So a reader that misses a record in a
//!    read state and asks after that is told, however install and reader interleave. One note for each kind of
//!    question:
//!
//!    | note | asked by | planted bug |
//!    | --- | --- | --- |
//!    | `flushed`: records up to here are not in memory | conditions, transactions: they look in runs again | read-state-flushed-late |
//!    | `purged`: an item that had ended by then may be missing | transactions, of a key that they miss | read-state-purged-late |
//!    | `changes_low_water`: a delete or an end up to here may be missing | passes of `changes` | read-state-low-water-late |
//!    | `Feeds::dropped`: an item that ended by then may be missing | cursors of expirations | read-state-ends-late |
//!
//! 2. A read state is made from the one before it, and one thread at a time does so: `installing`. So a seal and a merge
//!    at the same time lose nothing of each other.
//! 3. Each earlier read state is listed as long as somebody holds it: a command that reaches a record in one of them
//!    stays in the settings (command-forgotten-under-readers).

use std::sync::{Arc, Weak};

use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{ArcSwap, Guard, Mutex};
use crate::base::{Seq, Timestamp};
use crate::catalog::{Change, ContainerRecord};
use crate::engine::parts::feeds::Feeds;
use crate::engine::parts::read_state::ReadState;
use crate::expiry::Settings;

/// Notes of the records that a read state is without, and that the one before it had.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Missing {
    /// Records up to this sequence number are in tables, not in memory.
    pub flushed: Option<Seq>,
    /// Items that had ended by this moment may be missing.
    pub purged: Option<Timestamp>,
    /// Deletes and ends up to this sequence number may be missing.
    pub changes: Seq,
    /// Items that ended up to this moment may be missing, by changes of settings up to this sequence number.
    pub ends: Option<(Timestamp, Seq)>,
}

impl Missing {
    pub const NOTHING: Missing = Missing {
        flushed: None,
        purged: None,
        changes: Seq(0),
        ends: None,
    };

    /// The changes by which an edit makes them durable.
    pub fn durable_changes(&self, record: &ContainerRecord) -> impl Iterator<Item = Change> {
        let (id, known) = (record.id, record.changes_from);
        let changes = Some(self.changes).filter(|changes| *changes > known);
        let all = [
            self.ends.map(|(end, _)| Change::EndsDropped(id, end)),
            self.flushed.map(|flushed| Change::Flushed(id, flushed)),
            changes.map(|changes| Change::ChangesFrom(id, changes)),
        ];
        all.into_iter().flatten()
    }
}

/// See the file's head.
pub(in crate::engine) struct ReadStates {
    newest: ArcSwap<ReadState>,
    /// How many runs it has: each write asks, and need not pin it for that.
    runs: AtomicUsize,
    /// Held while the two are replaced. The earlier read states, as long as somebody holds them.
    installing: Mutex<Vec<Weak<ReadState>>>,
    flushed: AtomicU64,
    purged: AtomicU64,
    changes_low_water: AtomicU64,
}

impl ReadStates {
    /// Begins with this one, of a container with these marks.
    pub fn new(first: ReadState, flushed: Seq, changes_low_water: Seq) -> ReadStates {
        ReadStates {
            runs: AtomicUsize::new(first.version.runs.len()),
            newest: ArcSwap::from_pointee(first),
            installing: Mutex::new(vec![]),
            flushed: AtomicU64::new(flushed.0),
            purged: AtomicU64::new(0),
            changes_low_water: AtomicU64::new(changes_low_water.0),
        }
    }

    /// The newest, for as long as the guard is held.
    #[inline]
    pub fn load(&self) -> Guard<Arc<ReadState>> {
        self.newest.load()
    }

    pub fn pin(&self) -> Arc<ReadState> {
        self.newest.load_full()
    }

    /// Replaces the newest by the result of `change`, after noting the records that it lacks.
    pub fn install(
        &self,
        missing: Missing,
        feeds: &Feeds,
        change: impl FnOnce(&ReadState) -> ReadState,
    ) {
        if let Some((end, by)) = missing.ends {
            feeds.note_dropped(end, by);
        }
        if let Some(seq) = missing.flushed {
            self.flushed.store(seq.0, Ordering::Release);
        }
        if let Some(judged_at) = missing.purged {
            self.purged.fetch_max(judged_at.0, Ordering::Release);
        }
        if missing.changes > Seq(0) {
            self.note_changes(missing.changes);
        }
        let mut earlier = self.installing.lock();
        let last = self.newest.load_full();
        let next = change(&last);
        self.runs.store(next.version.runs.len(), Ordering::Relaxed);
        self.newest.store(Arc::new(next));
        earlier.retain(|earlier| earlier.strong_count() > 0);
        earlier.push(Arc::downgrade(&last));
    }

    fn note_changes(&self, seq: Seq) {
        self.changes_low_water.fetch_max(seq.0, Ordering::Release);
    }

    /// How many runs the newest has.
    #[inline]
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Records above this sequence number are in the memtables of a read state that was loaded before.
    pub fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Acquire))
    }

    /// Whether an item that had not ended by this moment may be missing in a read state that was loaded before.
    pub fn has_purged_after(&self, moment: Timestamp) -> bool {
        self.purged.load(Ordering::Acquire) > moment.0
    }

    /// Deletes and ends above this sequence number are all in a read state, and in settings, that were loaded before.
    pub fn changes_low_water(&self) -> Seq {
        Seq(self.changes_low_water.load(Ordering::Acquire))
    }

    /// These settings without the commands that reach no record in any read state that is held: its readers judge by
    /// the current settings. Commands above `oldest_snapshot` stay, because readers of the changes since then are still
    /// to be told of them.
    pub fn needed_of(&self, settings: &Settings, oldest_snapshot: Seq) -> Settings {
        let earlier = self.installing.lock();
        let mut all: Vec<_> = earlier.iter().filter_map(Weak::upgrade).collect();
        all.push(self.newest.load_full());
        settings.without_commands(|command| {
            command.seq <= oldest_snapshot && !all.iter().any(|one| one.may_fall_to(command))
        })
    }

    /// The same of settings that the container is about to get; notes the commands that are left out.
    pub fn prune_commands(&self, settings: Settings, oldest_snapshot: Seq) -> Settings {
        if settings.commands.is_empty() {
            return settings;
        }
        let needed = self.needed_of(&settings, oldest_snapshot);
        self.note_changes(settings.last_left_out(&needed));
        needed
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
