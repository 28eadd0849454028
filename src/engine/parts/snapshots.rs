//! The open snapshots, and the versions of records that jobs keep for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::sync::{Guard, Mutex};
use crate::base::{ContainerId, Seq, Timestamp};
use crate::engine::parts::given_time::FixedMoment;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::ExpiryViews;

/// The read states of all containers at one moment, for a reader beside the process that writes: jobs of that process
/// know of no snapshot here, and leave records out of later runs that one may need.
#[derive(Default)]
pub struct Frozen(BTreeMap<ContainerId, Arc<ReadState>>);

impl Frozen {
    /// As they are.
    pub(in crate::engine) fn of<'a>(
        states: impl Iterator<Item = &'a Arc<ContainerState>>,
    ) -> Arc<Frozen> {
        Arc::new(Frozen(
            states.map(|state| (state.id(), state.pin())).collect(),
        ))
    }
}

/// The sequence numbers of the open snapshots, each counted as often as it is held.
#[derive(Default)]
pub struct Snapshots {
    /// Ascending. Each scan registers one, and most are the last when they go: a map would allocate a node for each. One among
    /// 50 000 that goes from their middle costs 8 us.
    open: Mutex<VecDeque<Open>>,
}

/// The snapshots of one sequence number.
struct Open {
    seq: Seq,
    count: usize,
    /// Since when a user has held one; `None`: scans hold them.
    since: Option<Timestamp>,
}

/// The place of this sequence number among those, and whether it is there.
fn place(open: &VecDeque<Open>, seq: Seq) -> std::result::Result<usize, usize> {
    open.binary_search_by_key(&seq, |open| open.seq)
}

impl Snapshots {
    /// Registers a snapshot at the sequence number that `published` returns under the lock: a job that lists the
    /// snapshots later knows of it, and one that listed them before read only records up to an earlier published
    /// sequence number.
    pub(in crate::engine) fn register(
        self: &Arc<Self>,
        published: impl FnOnce() -> Seq,
    ) -> SnapshotPin {
        let mut open = self.open.lock();
        let seq = published();
        match open.back_mut() {
            Some(last) if last.seq == seq => last.count += 1,
            _ => {
                let new = Open {
                    seq,
                    count: 1,
                    since: None,
                };
                debug_assert!(open.back().is_none_or(|last| last.seq < seq));
                open.push_back(new);
            }
        }
        SnapshotPin {
            seq,
            frozen: None,
            moment: None,
            snapshots: self.clone(),
        }
    }

    /// The lowest; [`Seq::MAX`] if there is none.
    pub(in crate::engine) fn oldest(&self) -> Seq {
        let open = self.open.lock();
        open.front().map_or(Seq::MAX, |open| open.seq)
    }

    /// The sequence numbers, ascending.
    pub(in crate::engine) fn list(&self) -> Vec<Seq> {
        self.open.lock().iter().map(|open| open.seq).collect()
    }

    pub(in crate::engine) fn count(&self) -> usize {
        self.open.lock().iter().map(|open| open.count).sum()
    }

    /// Notes that a user holds this snapshot, from `now` on.
    pub(in crate::engine) fn note_held(&self, pin: &SnapshotPin, now: Timestamp) {
        let mut open = self.open.lock();
        if let Ok(at) = place(&open, pin.seq) {
            open[at].since.get_or_insert(now);
        }
    }

    /// Since when users have held a snapshot that may see a version from `seq` on; `None`: none does.
    pub(in crate::engine) fn held_since(&self, seq: Seq) -> Option<Timestamp> {
        let open = self.open.lock();
        let at = place(&open, seq).unwrap_or_else(|behind| behind);
        open.range(at..).filter_map(|open| open.since).min()
    }
}

/// Keeps the versions that a snapshot sees.
pub struct SnapshotPin {
    seq: Seq,
    /// The read states in which it is read, if not the current ones.
    frozen: Option<Arc<Frozen>>,
    /// The moment at which all that it sees is judged, if not by the clock.
    moment: Option<FixedMoment>,
    snapshots: Arc<Snapshots>,
}

impl SnapshotPin {
    /// The last sequence number that it sees.
    #[inline]
    pub(in crate::engine) fn seq(&self) -> Seq {
        self.seq
    }

    /// The same, to be read in these read states alone.
    pub(in crate::engine) fn within(mut self, frozen: Arc<Frozen>) -> SnapshotPin {
        self.frozen = Some(frozen);
        self
    }

    /// The same, all of it judged at this moment.
    pub(in crate::engine) fn judged_at(mut self, moment: FixedMoment) -> SnapshotPin {
        self.moment = Some(moment);
        self
    }

    /// The views by which it is judged, if not by the clock.
    #[inline]
    pub(in crate::engine) fn views(&self, state: &ContainerState) -> Option<&ExpiryViews> {
        self.moment.as_ref().map(|moment| moment.views(state.id()))
    }

    /// As [`SnapshotPin::read_state`], for as long as the guard is held.
    #[inline]
    pub(in crate::engine) fn guard(&self, state: &ContainerState) -> Guard<Arc<ReadState>> {
        match self.frozen {
            None => state.read_state(),
            Some(_) => self.read_state(state).into(),
        }
    }

    /// The read state of a container in which it is read.
    #[inline]
    pub(in crate::engine) fn read_state(&self, state: &ContainerState) -> Arc<ReadState> {
        let frozen = self
            .frozen
            .as_ref()
            .and_then(|frozen| frozen.0.get(&state.id()));
        frozen.map_or_else(|| state.pin(), Arc::clone)
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        let mut open = self.snapshots.open.lock();
        if let Ok(at) = place(&open, self.seq) {
            open[at].count -= 1;
            if open[at].count == 0 {
                open.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A job that lists the snapshots between the two would not know of one that sees the records it drops.
    #[test]
    fn a_snapshot_reads_its_seq_while_no_job_can_list() {
        let snapshots = Arc::new(Snapshots::default());
        let register = || {
            snapshots.register(|| {
                assert!(snapshots.open.try_lock().is_none());
                Seq(7)
            })
        };
        let (first, second) = (register(), register());
        assert_eq!((snapshots.list(), snapshots.count()), (vec![Seq(7)], 2));
        drop(first);
        assert_eq!(snapshots.list(), [Seq(7)]);
        drop(second);
        assert!(snapshots.list().is_empty());
    }
}
