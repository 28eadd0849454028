//! Handles: every object of the user holds one, and the database stays open while there is one.
//!
//! Invariants:
//!
//! 1. Databases, containers, snapshots and iterators hold a [`Handle`] each. Dropping the last one closes the database,
//!    if it is still open. Values and batches hold none: a value's bytes outlive the database.
//! 2. A type that pins something holds its handle in its last field. Fields are dropped in order, so its pins are gone
//!    when the handle closes the database, and obsolete files can be removed.
//! 3. The database's threads hold none. While they work they hold the engine, which does not close it.
//! 4. User code may drop the last handle on one of these threads, because clocks are user code and are read there.
//!    Closing joins that thread and takes locks that its work holds, so in that case a new thread closes the database.

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
        // No caller is left to receive the error; acknowledged writes are in the log.
        let _ = close(&self.engine);
    }
}

impl Handle {
    /// The first one.
    pub fn new(engine: Arc<Engine>) -> Handle {
        let open = Arc::new(Open { engine });
        Handle { open }
    }

    /// Closes the database for all handles. On one of the database's own threads it does not wait for the end.
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
