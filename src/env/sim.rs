//! A file system in memory that can be killed, unplugged, filled up and made to fail: for tests.
//!
//! What is durable, and what a power cut makes of the rest, is said in [`world`]. All choices come from the seed and the
//! order of calls, so a history runs the same way every time.
//!
//! A crash makes a new [`Sim`]; handles and locks of the old one go on in the old one and are not seen in the new.

mod fault;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use self::fault::{Does, Filter};
use self::world::{FileId, FolderState, Node, Outcome, ROOT, Random, SECTOR, Step, World, refused};
use super::fs::{Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room};
use crate::base::{Error, Result};

pub use self::fault::{Call, Fault, FaultPlan};
pub use self::world::{FailedSync, Survivors};

/// Is told of each call before it is done.
type Watcher = Arc<dyn Fn(&Sim, &Call<'_>) + Send + Sync>;

/// The file system in memory. Clones are the same file system.
#[derive(Clone)]
pub struct Sim {
    world: Arc<Mutex<World>>,
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
    /// [`StorageFull`](io::ErrorKind::StorageFull).
    pub fn set_capacity(&self, bytes: u64) {
        self.world.lock().capacity = bytes;
    }

    /// A call is made: whoever watches is told, and it may be one to fail.
    fn call(&self, operation: &'static str, path: &Path, does: Does) -> Outcome<()> {
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
    fn act<T>(
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

    fn handle(&self, world: &mut World, id: FileId, path: &Path) -> SimFile {
        world.file(id).handles += 1;
        SimFile {
            sim: self.clone(),
            id,
            path: path.to_owned(),
        }
    }
}

struct SimFile {
    sim: Sim,
    id: FileId,
    path: PathBuf,
}

impl SimFile {
    fn act<T>(
        &self,
        operation: &'static str,
        does: Does,
        act: impl FnOnce(&mut World) -> Outcome<T>,
    ) -> Result<T> {
        self.sim.act(operation, &self.path, does, act)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.sim.world.lock().file(self.id).handles -= 1;
    }
}

impl File for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let start = offset as usize;
        let written = self.act("write", Does::Write, |world| {
            let reserved = world.file(self.id).reserved;
            let end = (start + bytes.len()) as u64;
            world.check_room(end.saturating_sub(reserved))
        });
        let mut world = self.sim.world.lock();
        let done = match &written {
            Ok(()) => bytes.len(),
            // What found no room or came to an early end is not all there; after another failure it may be.
            Err(Error::Io { source, .. }) => {
                let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::WriteZero];
                let whole = u64::from(!kinds.contains(&source.kind()));
                world.random.below((bytes.len() as u64 + whole).max(1)) as usize
            }
            Err(_) => 0,
        };
        let bytes = bytes[..done].to_vec();
        let step = Step::Write {
            offset: start,
            bytes,
        };
        world.file(self.id).take(step);
        written
    }

    fn sync(&self) -> Result<()> {
        let done = self.act("sync", Does::Sync, |world| {
            world.file(self.id).sync();
            Ok(())
        });
        if done.is_err() {
            let mut world = self.sim.world.lock();
            let (mut random, then) = (Random(world.random.next()), world.failed_sync);
            world.file(self.id).fail_to_sync(then, &mut random);
        }
        // A real sync takes its time: others write meanwhile.
        std::thread::yield_now();
        done
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.act("allocate", Does::Grow, |world| {
            let reserved = world.file(self.id).reserved;
            world.check_room(len.saturating_sub(reserved))?;
            let file = world.file(self.id);
            if file.now.len() < len as usize {
                file.take(Step::Size(len as usize));
            }
            file.reserved = file.reserved.max(len);
            Ok(())
        })
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.act("reserve room in", Does::Grow, |world| {
            let reserved = world.file(self.id).reserved;
            world.check_room(len.saturating_sub(reserved))?;
            let file = world.file(self.id);
            file.reserved = file.reserved.max(len);
            Ok(())
        })
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.act("truncate", Does::Shrink, |world| {
            world.file(self.id).take(Step::Size(len as usize));
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        self.act("read the size of", Does::Look, |world| {
            Ok(world.file(self.id).now.len() as u64)
        })
    }
}

impl ReadAt for SimFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.act("read", Does::Look, |world| {
            let bytes = world.look_at(self.id);
            match bytes.get(offset as usize..(offset as usize).saturating_add(len)) {
                Some(part) => Ok(Bytes::copy_from_slice(part)),
                None => refused(io::ErrorKind::UnexpectedEof),
            }
        })
    }
}

struct SimRing {
    file: SimFile,
    len: usize,
}

/// One store in this many is followed by a sector's way to the disk.
const STORES_PER_WRITE_BACK: u64 = 8;

impl Ring for SimRing {
    fn store(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "outside the ring");
        let (sim, path) = (&self.file.sim, &self.file.path);
        sim.call("store", path, Does::Store)
            .expect("nothing meets it");
        let mut world = sim.world.lock();
        let sector = world.random.below(self.len.div_ceil(SECTOR) as u64) as usize;
        let write_back = world.random.below(STORES_PER_WRITE_BACK) == 0;
        let file = world.file(self.file.id);
        file.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        if write_back {
            file.write_back(sector);
        }
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.len, "outside the ring");
        let mut world = self.file.sim.world.lock();
        out.copy_from_slice(&world.file(self.file.id).now[offset..offset + out.len()]);
    }
}

struct SimDir {
    sim: Sim,
    path: PathBuf,
}

impl Dir for SimDir {
    fn sync(&self) -> Result<()> {
        self.sim.act("sync", &self.path, Does::SyncNames, |world| {
            let id = world.folder_at(&self.path)?;
            let folder = world.folders.get_mut(&id).expect("it was found");
            for change in folder.changes.drain(..) {
                change.carry_out(&mut folder.durable);
            }
            world.sweep();
            Ok(())
        })
    }
}

impl Drop for SimDir {
    fn drop(&mut self) {
        self.sim.world.lock().open_dirs -= 1;
    }
}

struct SimLock {
    sim: Sim,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.sim.world.lock();
        let (_, holders) = world.locks.get_mut(&self.path).expect("it is held");
        *holders -= 1;
        if *holders == 0 {
            world.locks.remove(&self.path);
        }
    }
}

impl Fs for Sim {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut above = PathBuf::new();
        for component in path.components() {
            above.push(component);
            if self.is_dir(&above) {
                continue;
            }
            self.act("create", path, Does::Create, |world| {
                let (parent, name) = world.place(&above)?;
                if world.folders[&parent].now.contains_key(&name) {
                    return refused(io::ErrorKind::AlreadyExists);
                }
                world.new_folder(parent, &name);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.act("create", path, Does::Create, |world| {
            let (parent, name) = world.place(path)?;
            if world.folders[&parent].now.contains_key(&name) {
                return refused(io::ErrorKind::AlreadyExists);
            }
            world.new_folder(parent, &name);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.act("remove", path, Does::Shrink, |world| {
            let folder = world.folder_at(path)?;
            let (parent, name) = world.place(path)?;
            if !world.folders[&folder].now.is_empty() {
                return refused(io::ErrorKind::DirectoryNotEmpty);
            }
            world.change(parent, &name, None);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.act("list", dir, Does::Open, |world| {
            let names = &world.folders[&world.folder_at(dir)?].now;
            let files = names
                .iter()
                .filter(|(_, node)| matches!(node, Node::File(_)));
            Ok(files.map(|(name, _)| name.clone()).collect())
        })
    }

    fn len(&self, path: &Path) -> Result<Option<u64>> {
        self.act("read the size of", path, Does::Look, |world| {
            match world.file_at(path) {
                Ok(id) => Ok(Some(world.file(id).now.len() as u64)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.world.lock().folder_at(path).is_ok()
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        self.act("list", dir, Does::Open, |world| {
            Ok(world.folders[&world.folder_at(dir)?].now.is_empty())
        })
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        Ok(Path::new("/").join(path).components().collect())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        self.act("create", path, Does::Create, |world| {
            let (folder, name) = world.place(path)?;
            if world.folders[&folder].now.contains_key(&name) {
                return refused(io::ErrorKind::AlreadyExists);
            }
            world.check_room(1)?;
            let id = world.new_file(folder, &name);
            Ok(Box::new(self.handle(world, id, path)) as Box<dyn File>)
        })
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        self.act("open", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(self.handle(world, id, path)) as Box<dyn File>)
        })
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.act("map", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Bytes::copy_from_slice(world.look_at(id)))
        })
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        self.act("open", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(self.handle(world, id, path)) as Box<dyn ReadAt>)
        })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.act("read", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(world.look_at(id).to_vec())
        })
    }

    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>> {
        self.act("map", path, Does::Create, |world| {
            let id = match world.file_at(path) {
                Ok(id) => id,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    world.check_room(len as u64)?;
                    let (folder, name) = world.place(path)?;
                    world.new_file(folder, &name)
                }
                Err(error) => return Err(error),
            };
            let file = world.file(id);
            let reserved = file.reserved;
            world.check_room((len as u64).saturating_sub(reserved))?;
            let file = world.file(id);
            file.sync();
            file.now.resize(len, 0);
            file.durable.resize(len, 0);
            file.written_back = Some(file.now.clone());
            file.reserved = len as u64;
            let file = self.handle(world, id, path);
            Ok(Box::new(SimRing { file, len }) as Box<dyn Ring>)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("rename", from, Does::Grow, |world| {
            let id = world.file_at(from)?;
            let ((folder, old), (to_folder, new)) = (world.place(from)?, world.place(to)?);
            if world.folder_at(to).is_ok() {
                return refused(io::ErrorKind::IsADirectory);
            }
            if folder != to_folder {
                return refused(io::ErrorKind::CrossesDevices);
            }
            // Of two names of one file both stay; so says POSIX.
            if world.file_at(to).ok() != Some(id) {
                world.rename(folder, &old, &new, id);
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.act("remove", path, Does::Shrink, |world| {
            world.file_at(path)?;
            let (folder, name) = world.place(path)?;
            world.change(folder, &name, None);
            Ok(())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("link", from, Does::Grow, |world| {
            let id = world.file_at(from)?;
            let (folder, name) = world.place(to)?;
            if world.folders[&folder].now.contains_key(&name) {
                return refused(io::ErrorKind::AlreadyExists);
            }
            world.change(folder, &name, Some(Node::File(id)));
            Ok(())
        })
    }

    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>> {
        self.act("open", path, Does::Open, |world| {
            world.folder_at(path)?;
            world.open_dirs += 1;
            Ok(Box::new(SimDir {
                sim: self.clone(),
                path: path.to_owned(),
            }) as Box<dyn Dir>)
        })
    }

    fn lock(&self, path: &Path, kind: LockKind) -> Result<Option<Box<dyn Lock>>> {
        let is_there = self.world.lock().file_at(path).is_ok();
        let (exclusive, does) = (kind == LockKind::Exclusive, [Does::Create, Does::Open]);
        let file = self.act("open", path, does[usize::from(is_there)], |world| {
            if !is_there && exclusive {
                let (folder, name) = world.place(path)?;
                world.new_file(folder, &name);
            }
            Ok(is_there || exclusive)
        })?;
        if !file {
            return Ok(None);
        }
        let mut world = self.world.lock();
        let held = world.locks.entry(path.to_owned()).or_insert((kind, 0));
        if held.1 > 0 && (held.0 == LockKind::Exclusive || exclusive) {
            return Err(Error::Locked {
                path: path.parent().unwrap_or(path).to_owned(),
            });
        }
        held.1 += 1;
        Ok(Some(Box::new(SimLock {
            sim: self.clone(),
            path: path.to_owned(),
        })))
    }

    fn allocated(&self, path: &Path) -> Result<u64> {
        self.act("read the size of", path, Does::Look, |world| {
            let id = world.file_at(path)?;
            Ok(world.file(id).reserved)
        })
    }

    fn room(&self, path: &Path) -> Result<Room> {
        self.act("read the free space of", path, Does::Look, |world| {
            let total = world.capacity;
            let free = match total {
                u64::MAX => u64::MAX,
                capacity => capacity.saturating_sub(world.used()),
            };
            Ok(Room { free, total })
        })
    }
}

#[cfg(test)]
mod tests;
