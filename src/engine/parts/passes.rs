//! Where the passes of `changes` read a container (changes.rs).
//!
//! ```text
//! sequence number    S: the pass's snapshot        C: the settings change
//! read in            ── the read state of now ──────|── the last read state before C ──▶ the end of the pass
//! ```
//!
//! A pass tells a container as it was at S, under the settings of S. While these stay, a job leaves out no record that
//! was live at S and still is. After a change, or when the container is dropped, it may; so from then on the pass keeps
//! the read state that was there before. Until then it keeps none, and no expired file stays for it.
//!
//! Invariant: a read state that is handed out is one of before the first change since S. It is taken under the pass's lock, and
//! a change takes that lock before it counts; a drop, after the container is marked and before anything is removed.

use std::sync::{Arc, Weak};

use crate::base::sync::Mutex;

/// The passes over a container, which read in read states `R`.
pub(in crate::engine) struct Passes<R>(Mutex<Vec<Weak<PassReads<R>>>>);

impl<R> Default for Passes<R> {
    fn default() -> Self {
        Passes(Mutex::default())
    }
}

impl<R> Passes<R> {
    /// One more.
    pub(in crate::engine) fn open(&self) -> Arc<PassReads<R>> {
        let reads = Arc::new(PassReads(Mutex::new(None)));
        let mut open = self.0.lock();
        open.retain(|pass| pass.strong_count() > 0);
        open.push(Arc::downgrade(&reads));
        reads
    }

    /// Called before the settings change, or the container is dropped: the passes go on in the current read state.
    pub(in crate::engine) fn keep(&self, now: impl Fn() -> Arc<R>) {
        let mut open = self.0.lock();
        open.retain(|pass| {
            let pass = pass.upgrade();
            if let Some(reads) = &pass {
                reads.0.lock().get_or_insert_with(&now);
            }
            pass.is_some()
        });
    }
}

/// The read state in which one pass reads a container, if that is not the current one.
pub(in crate::engine) struct PassReads<R>(Mutex<Option<Arc<R>>>);

impl<R> PassReads<R> {
    /// Begins the pass at its snapshot: earlier changes do not count, and the pass reads in `read_state` in any case,
    /// if there is one.
    pub(in crate::engine) fn begin(&self, read_state: Option<Arc<R>>) {
        *self.0.lock() = read_state;
    }

    /// The read state that it reads next; `now` loads the current one.
    pub(in crate::engine) fn next(&self, now: impl FnOnce() -> Arc<R>) -> Arc<R> {
        let kept = self.0.lock();
        kept.clone().unwrap_or_else(now)
    }
}
