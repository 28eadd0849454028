//! Sealing: a full memtable takes no more writes, and waits for its flush; a new one takes its place, and its log begins anew.

use crate::engine::Engine;
use crate::engine::parts::commit_log::CommitState;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::state::ContainerState;

impl Engine {
    /// Seals the largest memtables until the active ones fit their budget. Tells whether it sealed any: then the flush
    /// thread is to be woken, after the lock, because it may take the processor from the thread that wakes it.
    #[inline]
    #[must_use = "the flush thread is to be woken"]
    pub(in crate::engine) fn seal_when_full(&self, commit: &mut CommitState) -> bool {
        let is_full = commit.active_bytes() >= self.options.memtable_bytes;
        if is_full {
            self.seal_largest(commit);
        }
        is_full
    }

    #[cold]
    fn seal_largest(&self, commit: &mut CommitState) {
        let mut states = self.containers.all();
        states.sort_by_cached_key(|state| state.read_state().active.memtable.bytes());
        while commit.active_bytes() > self.options.memtable_bytes / 2
            && let Some(state) = states.pop()
        {
            self.seal(commit, &state);
        }
    }

    /// Under the commit lock: seals the active memtable, unless it is empty, and opens a new one. The new one is logged
    /// in a segment of its own, so that neither memtable keeps frames of the other in the log.
    pub(in crate::engine) fn seal(&self, commit: &mut CommitState, state: &ContainerState) {
        // Without a log nothing is flushed; recovered records stay in the active memtable until there is one.
        if state.read_state().active.memtable.is_empty() || !commit.has_log() {
            return;
        }
        // If there is no room for a segment, they share one until `trim_log` separates them.
        let _ = self.rotate_log(commit);
        state.install(Missing::NOTHING, |read_state| {
            let (mut sealed, mut active) = (read_state.sealed.clone(), read_state.active.clone());
            commit.remove_active(active.counted());
            sealed.insert(0, std::mem::replace(&mut active, state.new_flushable()));
            ReadState {
                active,
                sealed,
                version: read_state.version.clone(),
            }
        });
    }
}
