//! Leases in the store and folders beside others, which calls make for their time alone. A thread that a signal has woken
//! gives all of it back while the calls are still under way.
//!
//! Invariant: each lease and folder is noted here before it is made. The steps that need one run under the lock: a
//! backup is named, an object removed, a folder named. Once all was given back, the lock is never released.

use std::collections::BTreeSet;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scratch;
use crate::store::Store;

/// See the file's head.
#[derive(Default)]
pub struct AtWork(Mutex<Made>);

/// The leases and folders that are there now.
#[derive(Default)]
pub struct Made {
    leases: BTreeSet<String>,
    /// Folders, and the locks beside them.
    scratches: BTreeSet<(PathBuf, Option<PathBuf>)>,
}

impl AtWork {
    /// Nothing is given back while this is held.
    pub fn hold(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all of it. Whoever asks for the lock afterwards waits for ever.
    pub fn give_up(&self, store: &dyn Store) {
        let made = self.hold();
        store.abandon();
        for lease in &made.leases {
            // One that stays ends by itself.
            let _ = store.delete(lease);
        }
        for (path, lock) in &made.scratches {
            scratch::clear(path, lock.as_deref());
        }
        mem::forget(made);
    }
}

impl Made {
    pub fn note_lease(&mut self, name: &str) {
        self.leases.insert(name.to_owned());
    }

    pub fn forget_lease(&mut self, name: &str) {
        self.leases.remove(name);
    }

    pub fn note_scratch(&mut self, path: &Path, lock: Option<&Path>) {
        let noted = (path.to_owned(), lock.map(Path::to_owned));
        self.scratches.insert(noted);
    }

    pub fn forget_scratch(&mut self, path: &Path) {
        self.scratches.retain(|(scratch, _)| scratch != path);
    }
}
