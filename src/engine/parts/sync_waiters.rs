//! Callers who wait for a sync of the log.
//!
//! ```text
//! add -> waiting -> take_all -> the log is synced -> each is called with what came of that
//!                   close    -> each is called with what came of the log's end; who is added later, at once
//! ```
//!
//! Invariant: each is called once. No lock is held during a call, and a panic in it is caught.

use crate::base::Result;
use crate::base::sync::Mutex;

/// The function to call with the outcome.
pub type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// See the file's head.
pub struct SyncWaiters {
    /// None: the database is closed.
    waiting: Mutex<Option<Vec<Then>>>,
}

impl SyncWaiters {
    /// Without waiters.
    pub fn new() -> SyncWaiters {
        SyncWaiters {
            waiting: Mutex::new(Some(vec![])),
        }
    }

    /// Adds a waiter; returns it if the database is closed.
    pub fn add(&self, then: Then) -> std::result::Result<(), Then> {
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.push(then),
            None => return Err(then),
        }
        Ok(())
    }

    /// Takes all waiters; the caller must call them.
    pub fn take_all(&self) -> Vec<Then> {
        self.waiting
            .lock()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes all waiters, and accepts none from now on.
    pub fn close(&self) -> Vec<Then> {
        self.waiting.lock().take().unwrap_or_default()
    }
}
