//! The test's side of a simulated file system: what a test can do to it, and how a program's call reaches its state.
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

/// Called with each call before it is done.
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
    /// An empty file system; all its choices follow from `seed`, including what a failed sync does.
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

    /// A copy that the handles and locks of this one do not affect, without planned faults and without a watcher.
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

    /// The state after a killed process: everything it did, durable or not, as far as the system still has it; its
    /// locks are free.
    pub fn kill(&self) -> Sim {
        self.successor(|world| {
            let mut random = Random(world.random.next());
            let files = world.files.values_mut();
            files.for_each(|file| file.evict_by_chance(&mut random));
        })
    }

    /// The state after a power cut: everything durable, and of the rest what `seed` chooses.
    pub fn power_cut(&self, seed: u64) -> Sim {
        self.power_cut_with(Survivors::Chance(seed))
    }

    /// The state after a power cut: everything durable, and these survivors.
    pub fn power_cut_with(&self, survivors: Survivors) -> Sim {
        self.successor(|world| world.cut_power(survivors))
    }

    /// The number of calls begun, including those before a crash. A store into a ring counts as one.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// Makes a call fail; replaces an earlier plan.
    pub fn fail(&self, plan: FaultPlan) {
        self.world.lock().fault = Some((plan, None));
    }

    /// Makes a call fail that `meets` accepts.
    pub fn fail_where(
        &self,
        plan: FaultPlan,
        meets: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
    ) {
        let filter: Filter = Arc::new(meets);
        self.world.lock().fault = Some((plan, Some(filter)));
    }

    /// Removes the plan: nothing fails any more.
    pub fn heal(&self) {
        self.world.lock().fault = None;
    }

    /// Sets the effect of failed syncs from now on.
    pub fn set_failed_sync(&self, then: FailedSync) {
        self.world.lock().failed_sync = then;
    }

    /// Calls `watcher` before each call is done, on the thread that makes it: a moment at which power may be cut, or
    /// for which the call can be made to wait.
    pub fn watch(&self, watcher: impl Fn(&Sim, &Call<'_>) + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Arc::new(watcher));
    }

    /// Removes the watcher.
    pub fn unwatch(&self) {
        *self.watcher.lock() = None;
    }

    /// The number of open files, folders and locks.
    pub fn open_handles(&self) -> usize {
        let world = self.world.lock();
        let files = world.files.values().map(|file| file.handles);
        let locks = world.locks.values().map(|(_, holders)| holders);
        files.sum::<usize>() + locks.sum::<usize>() + world.open_dirs
    }

    /// The most bytes of all files together; more fail with [`StorageFull`](std::io::ErrorKind::StorageFull).
    pub fn set_capacity(&self, bytes: u64) {
        self.world.lock().capacity = bytes;
    }

    /// Begins a call: calls the watcher, and fails if the call is one to fail.
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

    /// Makes a call, and adds operation and path to its error.
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
