//! Handles: what users hold of an open database, and by which it stays open.
//!
//! Invariants:
//!
//! 1. Databases, containers, snapshots and iterators hold a [`Handle`] each. The database is closed when the last of them is
//!    dropped, if nobody has closed it before. Values and batches hold none: a value's bytes outlive the database.
//! 2. A type that pins something holds its handle in its last field. Fields are dropped in their order, so nothing is
//!    pinned by the handle that closes, and files that are on their way out are removed.
//! 3. The threads of the database hold none. They hold the engine while they work, which closes nothing.
//! 4. User code may drop the last handle on one of these threads: a clock is read there. Closing joins that thread and takes
//!    locks that its work holds, so there it is handed to a thread of its own.

use std::ops::Deref;
use std::sync::Arc;

use crate::base::Result;
use crate::engine::Engine;
use crate::env::{is_own_thread, spawn};

/// See the file's head.
#[derive(Clone)]
pub struct Handle {
    open: Arc<Open>,
}

struct Open {
    engine: Arc<Engine>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure; what was acknowledged is in the log.
        let _ = close(&self.engine);
    }
}

impl Handle {
    /// The first one.
    pub fn new(engine: Arc<Engine>) -> Handle {
        let open = Arc::new(Open { engine });
        Handle { open }
    }

    /// Closes the database for everybody. On a thread of a database it does not wait for that.
    pub fn close(&self) -> Result<()> {
        close(&self.open.engine)
    }
}

impl Deref for Handle {
    type Target = Arc<Engine>;

    #[inline]
    fn deref(&self) -> &Arc<Engine> {
        &self.open.engine
    }
}

fn close(engine: &Arc<Engine>) -> Result<()> {
    if !is_own_thread() {
        return engine.close();
    }
    let engine = engine.clone();
    spawn("ebbtide-close", move || drop(engine.close())).map(drop)
}
