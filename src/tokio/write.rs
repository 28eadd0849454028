//! The way to write that never waits: up to the sync, which the caller awaits.

use std::cell::Cell;

use crate::api::writing::WriteMode;
use crate::base::Now;
use crate::data::write::Written;
use crate::engine::Begun;

/// Begins a write, and remembers whether it is to be synced.
#[derive(Default)]
pub struct Begin {
    awaits_sync: Cell<bool>,
}

impl Begin {
    /// Whether the write that was begun awaits its sync.
    pub fn awaits_sync(&self) -> bool {
        self.awaits_sync.get()
    }
}

impl WriteMode for &Begin {
    type Patience = Now;

    fn note(&self, begun: Begun) -> Written {
        self.awaits_sync.set(begun.awaits_sync);
        begun.written()
    }
}
