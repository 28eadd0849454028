//! When entries of the log go (I6): by age, for the log is a live file too, and by bytes.
//!
//! Invariants:
//!
//! 1. An entry goes only when the state holds it synced. openraft purges no further than a snapshot, and a snapshot is built by
//!    a sync of the state.
//! 2. An entry goes at the latest after three rounds of [`Purger::round`], each an eighth of `reclaim_within` apart or less.

use super::Replica;

/// A log of more bytes is purged at once: four memtables.
const MOST_BYTES: u64 = 256 << 20;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Purger {
    /// The index that was applied at the round before: who is behind that by now gets a snapshot.
    before: u64,
}

impl Purger {
    /// Has the state synced, and entries of the round before go.
    pub async fn round(&mut self, replica: &Replica) {
        let applied = replica.place().index;
        let purged = replica.purged();
        if self.before > purged {
            let _ = replica.raft.trigger().purge_log(self.before).await;
            // Entries in memtables are no files; those of tables are rewritten without what is purged.
            let log = replica.log.clone();
            let _ = tokio::task::spawn_blocking(move || log.flush()).await;
        }
        if applied > purged {
            let _ = replica.raft.trigger().snapshot().await;
        }
        self.before = applied;
    }

    /// Whether the log has grown beyond what is kept.
    pub fn is_full(&self, replica: &Replica) -> bool {
        replica.log.stats().live_bytes > MOST_BYTES
    }
}
