//! The newest format of the log that each node speaks, by its own word: every message between nodes says it.
//!
//! Invariant: what stands here is the last word that was heard. A node of which nothing was heard since this one was opened has said
//! nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the file's head.
#[derive(Default)]
pub struct Formats(Mutex<HashMap<u64, u16>>);

impl Formats {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn heard(&self, node: u64, format: u16) {
        self.lock().insert(node, format);
    }

    /// The newest format that a node speaks, if it has said so.
    pub fn of(&self, node: u64) -> Option<u16> {
        self.lock().get(&node).copied()
    }
}
