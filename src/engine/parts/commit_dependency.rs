//! The version that the write under the commit lock relies on.
//!
//! A conditional write judges the version it has seen by the clock of its stamp, and its result becomes visible
//! somewhat later. A version that was live by the stamp may be dead by the clock of a reader that does not see the
//! write yet. That reader must not answer that there is nothing: then there would be no moment at which the write could
//! have found the version live. So it asks here whether a write relies on its version, and waits if one does.
//!
//! Invariant: from before a conditional write reads the clock for its stamp until its result is published (under
//! [`Durability::Sync`](crate::engine::options::Durability::Sync): until it is in a memtable, where its sequence number
//! shows that it is not published), this holds the sequence number of the version, or [`SEVERAL`] if the write relies
//! on more than one. Only the holder of the commit lock stores it.
//!
//! A reader reads the clock before it asks. The two fences ensure that, if it does not find the sequence number, the
//! write reads the clock later than the reader did, or is published already.

use crate::base::Seq;
use crate::base::sync::atomic::{AtomicU64, Ordering, fence};

/// No record has this sequence number.
const NONE: u64 = Seq::MAX.0;
/// Stands for several versions: every reader waits.
pub const SEVERAL: Seq = Seq(NONE - 1);

/// Holds the sequence number of the version.
pub struct CommitDependency(AtomicU64);

impl CommitDependency {
    pub(in crate::engine) fn new() -> CommitDependency {
        CommitDependency(AtomicU64::new(NONE))
    }

    /// Under the commit lock, before the clock is read for the stamp. The guard is dropped before the lock.
    pub(in crate::engine) fn rely(&self, seq: Seq) -> Relying<'_> {
        self.0.store(seq.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Relying(self)
    }

    /// Whether a write under the commit lock relies on this version. The caller has read the clock before.
    pub(in crate::engine) fn is_on(&self, seq: Seq) -> bool {
        fence(Ordering::SeqCst);
        let relied_on = self.0.load(Ordering::Acquire);
        relied_on == seq.0 || relied_on == SEVERAL.0
    }
}

/// A write that relies on a version.
pub struct Relying<'a>(&'a CommitDependency);

impl Drop for Relying<'_> {
    fn drop(&mut self) {
        self.0.0.store(NONE, Ordering::Release);
    }
}
