//! The containers of an open database, by name.
//!
//! Invariant: a name is here from the moment on at which its creation is durable until its drop is. Both are changed under
//! the commit lock, so whoever has that sees them stand still.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::sync::RwLock;
use crate::engine::state::ContainerState;

/// See the file's head.
pub struct ContainerSet {
    by_name: RwLock<BTreeMap<String, Arc<ContainerState>>>,
}

impl ContainerSet {
    /// Those that were recovered.
    pub fn new(states: impl Iterator<Item = Arc<ContainerState>>) -> ContainerSet {
        let named = states.map(|state| (state.name().to_owned(), state));
        ContainerSet {
            by_name: RwLock::new(named.collect()),
        }
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<Arc<ContainerState>> {
        self.by_name.read().get(name).cloned()
    }

    /// Every one, in the order of names.
    pub fn all(&self) -> Vec<Arc<ContainerState>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    /// A container was created.
    pub fn insert(&self, state: &Arc<ContainerState>) {
        let name = state.name().to_owned();
        self.by_name.write().insert(name, state.clone());
    }

    /// A container was dropped.
    pub fn remove(&self, name: &str) {
        self.by_name.write().remove(name);
    }
}
