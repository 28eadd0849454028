//! Who is to be told when what is written survives a power cut.
//!
//! ```text
//! add -> waiting -> take_all -> the log is synced -> each is called with what came of that
//!                   close    -> each is called with what came of the log's end; who is added later, at once
//! ```
//!
//! Invariant: each is called once. No lock is held while one is called, and what it panics with ends there.

use crate::base::Result;
use crate::base::sync::Mutex;

/// What is to be done then.
pub type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// See the file's head.
pub struct SyncWaiters {
    /// None: the database is closed.
    waiting: Mutex<Option<Vec<Then>>>,
}

impl SyncWaiters {
    /// Nobody waits.
    pub fn new() -> SyncWaiters {
        SyncWaiters {
            waiting: Mutex::new(Some(vec![])),
        }
    }

    /// One more waits; it comes back when the database is closed.
    pub fn add(&self, then: Then) -> std::result::Result<(), Then> {
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.push(then),
            None => return Err(then),
        }
        Ok(())
    }

    /// All who wait; they are the caller's to call.
    pub fn take_all(&self) -> Vec<Then> {
        self.waiting
            .lock()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// The same, and nobody waits any more.
    pub fn close(&self) -> Vec<Then> {
        self.waiting.lock().take().unwrap_or_default()
    }
}
