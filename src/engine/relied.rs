//! Which version the write under the commit lock relies on.
//!
//! A conditional write judges the version that it has seen by the clock of its stamp, and readers see what it wrote
//! somewhat later. Time passes in between: a version that was live by the stamp may be dead by the clock of a reader that
//! does not see the write yet. That reader must not answer that nothing is there, for then there was no moment at which
//! the write could have found the version live. So it asks here whether its version is relied on, and waits if it is.
//!
//! Invariant: from before a conditional write reads the clock for its stamp until what it wrote is published (under
//! [`Durability::Sync`](crate::engine::options::Durability::Sync): until it is in a memtable, where its sequence number
//! tells that it is not), the sequence number of the version stands here, or [`SEVERAL`] where it relies on more than
//! one. The lock's holder alone stores it.
//!
//! Who asks has read the clock before. The fence here and the one there see to it that, if the sequence number is not
//! found, the write reads the clock later than that, or is published already.

use crate::base::Seq;
use crate::base::sync::atomic::{AtomicU64, Ordering, fence};

/// No record has this sequence number.
const NONE: u64 = Seq::MAX.0;
/// Stands for several versions at once: who asks for any waits.
pub const SEVERAL: Seq = Seq(NONE - 1);

/// The sequence number of that version.
pub struct Relied(AtomicU64);

impl Relied {
    pub(super) fn new() -> Relied {
        Relied(AtomicU64::new(NONE))
    }

    /// Under the commit lock, before the clock is read for the stamp; ends when the guard goes, before the lock does.
    pub(super) fn rely(&self, seq: Seq) -> Relying<'_> {
        self.0.store(seq.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Relying(self)
    }

    /// After the clock was read: a write under the commit lock relies on this version.
    pub(super) fn is_on(&self, seq: Seq) -> bool {
        fence(Ordering::SeqCst);
        let relied_on = self.0.load(Ordering::Acquire);
        relied_on == seq.0 || relied_on == SEVERAL.0
    }
}

/// A write that relies on a version.
pub struct Relying<'a>(&'a Relied);

impl Drop for Relying<'_> {
    fn drop(&mut self) {
        self.0.0.store(NONE, Ordering::Release);
    }
}
