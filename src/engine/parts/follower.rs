//! The state of a follower: how much of another process's database it has read.
//!
//! ```text
//! Stand      the manifest's edits, up to the one of this stamp; the log, up to this place; the containers of both
//! Frozen     the read states of these containers: what a snapshot pins
//! ```
//!
//! Invariants:
//!
//! 1. One thread at a time changes the stand: the holder of `stand`. Readers take no lock; snapshots hold `frozen`
//!    while they register, and so get read states and a sequence number that belong together.
//! 2. The memtables of the stand hold the records of the log up to its place, and perhaps more, which are not
//!    published.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{ContainerId, Seq, TableId};
use crate::catalog::{Catalogue, ContainerRecord, Logged, TableFile};
use crate::engine::parts::snapshots::{Frozen, SnapshotPin};
use crate::engine::parts::state::ContainerState;
use crate::wal::TailPosition;

/// See the file's head.
pub struct Follower {
    stand: Mutex<FollowerState>,
    frozen: Mutex<Arc<Frozen>>,
}

/// The part of the database that was read.
pub struct FollowerState {
    /// Number and length of the manifest; none where its end was being written.
    pub stamp: Option<(u64, u64)>,
    /// The sum of its edits, with what the log has changed of it since and the highest time in it.
    pub catalogue: Catalogue,
    /// The changes by the log that no edit says of those that were read.
    pub logged: Vec<Logged>,
    /// Up to where the log was read; none while there is none.
    pub place: Option<TailPosition>,
    /// Whether the log has more frames, which belong to a later edit.
    pub is_cut: bool,
    /// The last write.
    pub last_seq: Seq,
    /// Its containers.
    pub states: BTreeMap<ContainerId, Arc<ContainerState>>,
}

impl FollowerState {
    /// The tables that are open.
    pub fn tables(&self) -> BTreeMap<TableId, TableFile> {
        let mut tables = BTreeMap::new();
        for state in self.states.values() {
            let files = state.pin().version.runs.clone().into_iter();
            let files = files.flat_map(|run| run.files.clone());
            tables.extend(files.map(|file| (file.record.id, file)));
        }
        tables
    }

    /// Whether its memtables are those of this later catalogue, too: nothing was flushed in between, and the log that
    /// follows is there.
    pub fn goes_on_in(&self, next: &Catalogue) -> bool {
        let (Some(place), Some(log), Some(before)) = (self.place, next.log, self.catalogue.log)
        else {
            return false;
        };
        let is_unflushed = |(id, record): (&ContainerId, &ContainerRecord)| {
            let next = next.containers.get(id);
            next.is_none_or(|next| next.flushed == record.flushed)
        };
        (log.chain, log.ring) == (before.chain, before.ring)
            && log.first <= place.segment
            && self.catalogue.containers.iter().all(is_unflushed)
    }
}

impl Follower {
    /// A follower in this state.
    pub fn new(stand: FollowerState) -> Follower {
        let frozen = Frozen::of(stand.states.values());
        Follower {
            stand: Mutex::new(stand),
            frozen: Mutex::new(frozen),
        }
    }

    /// Locks the stand: nobody else catches up as long as this is held.
    pub fn stand(&self) -> MutexGuard<'_, FollowerState> {
        self.stand.lock()
    }

    /// Pins the read states for the snapshot that `register` registers.
    pub fn pin(&self, register: impl FnOnce() -> SnapshotPin) -> SnapshotPin {
        let frozen = self.frozen.lock();
        register().within(frozen.clone())
    }

    /// Replaces the read states that snapshots pin, while `switch` gives them to all readers.
    pub fn switch(&self, switch: impl FnOnce() -> Arc<Frozen>) {
        let mut frozen = self.frozen.lock();
        *frozen = switch();
    }
}
