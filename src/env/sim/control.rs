//! A simulated file system as a test holds it: what it can do to it, and how a call of a program comes to its state.
//!
//! ```text
//! call ──> watcher ──> count, fault? ──> state ──> result, with operation and path put to an error
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::fault::{Call, Does, FaultPlan, Filter};
use super::world::{FailedSync, FolderState, Outcome, ROOT, Random, Survivors, World};
use crate::base::{Error, Result};

/// Is told of each call before it is done.
type Watcher = Arc<dyn Fn(&Sim, &Call<'_>) + Send + Sync>;

/// The file system in memory. Clones are the same file system.
#[derive(Clone)]
pub struct Sim {
    pub(super) world: Arc<Mutex<World>>,
    watcher: Arc<Mutex<Option<Watcher>>>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

impl Sim {
    /// An empty file system; all its choices follow from `seed`, also what a failed sync does.
    pub fn new(seed: u64) -> Sim {
        Sim::with(World {
            random: Random(seed),
            folders: BTreeMap::from([(ROOT, FolderState::default())]),
            files: BTreeMap::new(),
            next_id: ROOT + 1,
            locks: BTreeMap::new(),
            open_dirs: 0,
            operations: 0,
            fault: None,
            failed_sync: FailedSync::ALL[Random(seed).below(3) as usize],
            capacity: u64::MAX,
        })
    }

    fn with(world: World) -> Sim {
        Sim {
            world: Arc::new(Mutex::new(world)),
            watcher: Arc::default(),
        }
    }

    /// A copy that the handles and locks of this one do not reach, with no fault to come and nobody watching.
    fn successor(&self, then: impl FnOnce(&mut World)) -> Sim {
        let mut world = self.world.lock().clone();
        world.locks.clear();
        world.files.values_mut().for_each(|file| file.handles = 0);
        world.open_dirs = 0;
        world.fault = None;
        then(&mut world);
        world.sweep();
        Sim::with(world)
    }

    /// What a killed process leaves: everything it did, durable or not, as far as the system still knows it; its locks
    /// are free.
    pub fn kill(&self) -> Sim {
        self.successor(|world| {
            let mut random = Random(world.random.next());
            let files = world.files.values_mut();
            files.for_each(|file| file.evict_by_chance(&mut random));
        })
    }

    /// What a power cut leaves: all that is durable, and of the rest what `seed` chooses.
    pub fn power_cut(&self, seed: u64) -> Sim {
        self.power_cut_with(Survivors::Chance(seed))
    }

    /// What a power cut leaves: all that is durable, and these.
    pub fn power_cut_with(&self, survivors: Survivors) -> Sim {
        self.successor(|world| world.cut_power(survivors))
    }

    /// How many calls were begun, those before a crash included. A store into a ring is one.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// Makes a call fail; replaces what was planned before.
    pub fn fail(&self, plan: FaultPlan) {
        self.world.lock().fault = Some((plan, None));
    }

    /// The same, for calls of which `meets` says so.
    pub fn fail_where(
        &self,
        plan: FaultPlan,
        meets: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
    ) {
        let filter: Filter = Arc::new(meets);
        self.world.lock().fault = Some((plan, Some(filter)));
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.world.lock().fault = None;
    }

    /// What a failed sync does from now on.
    pub fn set_failed_sync(&self, then: FailedSync) {
        self.world.lock().failed_sync = then;
    }

    /// Has `watcher` told of each call before it is done, on the thread that makes it: a moment at which power may be
    /// cut, or for which the call can be made to wait.
    pub fn watch(&self, watcher: impl Fn(&Sim, &Call<'_>) + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Arc::new(watcher));
    }

    /// Nobody watches any more.
    pub fn unwatch(&self) {
        *self.watcher.lock() = None;
    }

    /// How many files, folders and locks are open.
    pub fn open_handles(&self) -> usize {
        let world = self.world.lock();
        let files = world.files.values().map(|file| file.handles);
        let locks = world.locks.values().map(|(_, holders)| holders);
        files.sum::<usize>() + locks.sum::<usize>() + world.open_dirs
    }

    /// How many bytes all files together may take; what goes beyond fails with
    /// [`StorageFull`](std::io::ErrorKind::StorageFull).
    pub fn set_capacity(&self, bytes: u64) {
        self.world.lock().capacity = bytes;
    }

    /// A call is made: whoever watches is told, and it may be one to fail.
    pub(super) fn call(&self, operation: &'static str, path: &Path, does: Does) -> Outcome<()> {
        let call = Call {
            operation,
            path,
            does,
        };
        let watcher = self.watcher.lock().clone();
        if let Some(watcher) = watcher {
            watcher(self, &call);
        }
        self.world.lock().step(&call)
    }

    /// Makes a call, and puts operation and path to what goes wrong.
    pub(super) fn act<T>(
        &self,
        operation: &'static str,
        path: &Path,
        does: Does,
        act: impl FnOnce(&mut World) -> Outcome<T>,
    ) -> Result<T> {
        let done = self.call(operation, path, does);
        done.and_then(|()| act(&mut self.world.lock()))
            .map_err(|error| Error::io(operation, path, error))
    }
}
