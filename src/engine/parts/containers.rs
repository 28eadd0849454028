//! The containers of an open database, by name.
//!
//! Invariant: a name is here from the moment at which its creation is durable until its drop is durable. Both change only
//! under the commit lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::Seq;
use crate::base::sync::RwLock;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::engine::parts::state::ContainerState;

/// See the file's head.
pub struct ContainerSet {
    by_name: RwLock<BTreeMap<String, Arc<ContainerState>>>,
    /// The sequence number of the last drop; stored before the container is removed.
    last_drop: AtomicU64,
}

impl ContainerSet {
    /// The recovered containers, and the last drop.
    pub fn new(states: impl Iterator<Item = Arc<ContainerState>>, last_drop: Seq) -> ContainerSet {
        let named = states.map(|state| (state.name().to_owned(), state));
        ContainerSet {
            by_name: RwLock::new(named.collect()),
            last_drop: AtomicU64::new(last_drop.0),
        }
    }

    /// The container of this name.
    pub fn get(&self, name: &str) -> Option<Arc<ContainerState>> {
        self.by_name.read().get(name).cloned()
    }

    /// All containers, in the order of names.
    pub fn all(&self) -> Vec<Arc<ContainerState>> {
        self.by_name.read().values().cloned().collect()
    }

    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().cloned().collect()
    }

    /// The sequence number of the last drop, asked after the containers.
    pub fn last_drop(&self) -> Seq {
        Seq(self.last_drop.load(Ordering::Acquire))
    }

    /// Adds a container whose creation is durable.
    pub fn insert(&self, state: &Arc<ContainerState>) {
        let name = state.name().to_owned();
        self.by_name.write().insert(name, state.clone());
    }

    /// Replaces all containers by these at once. For a follower, whose containers another process makes and drops.
    pub fn replace(&self, states: impl Iterator<Item = Arc<ContainerState>>, last_drop: Seq) {
        self.last_drop.fetch_max(last_drop.0, Ordering::Release);
        let named = states
            .map(|state| (state.name().to_owned(), state))
            .collect();
        *self.by_name.write() = named;
    }

    /// Removes a container whose drop, by the write of this sequence number, is durable.
    pub fn remove(&self, name: &str, seq: Seq) {
        self.last_drop.fetch_max(seq.0, Ordering::Release);
        self.by_name.write().remove(name);
    }
}
