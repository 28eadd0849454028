//! The way to write that never waits: up to the sync, which the caller awaits.

use std::cell::Cell;
use std::sync::Arc;

use crate::api::writing::Way;
use crate::base::{Attempt, Unready};
use crate::data::batch::Op;
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::{Begun, ContainerState, Engine, UpdateAction};

/// Begins a write, and remembers whether it is to be synced.
#[derive(Default)]
pub struct Begin {
    awaits_sync: Cell<bool>,
}

impl Begin {
    /// What was begun awaits its sync.
    pub fn awaits_sync(&self) -> bool {
        self.awaits_sync.get()
    }

    /// This was begun.
    pub fn note(&self, begun: Begun) -> Written {
        self.awaits_sync.set(begun.awaits_sync);
        begun.written
    }
}

impl Way for &Begin {
    type Failure = Unready;

    fn write_one(&self, engine: &Engine, state: &Arc<ContainerState>, op: Op<'_>) -> Attempt<()> {
        self.note(engine.write_one_at_once(state, &op)?);
        Ok(())
    }

    fn update(
        &self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> Attempt<Option<Written>> {
        let begun = engine.update_at_once(state, key, decide)?;
        Ok(begun.map(|begun| self.note(begun)))
    }
}
