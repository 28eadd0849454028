//! A file system in memory that can be killed, unplugged, filled up and made to fail: for tests.
//!
//! What is durable, and what a power cut makes of the rest, is said in [`world`]. All choices come from the seed and the
//! order of calls, so a history runs the same way every time.
//!
//! A crash makes a new [`Sim`]; handles and locks of the old one go on in the old one and are not seen in the new.

mod world;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use self::world::{FileId, FolderState, Node, Outcome, ROOT, Random, SECTOR, Step, World, refused};
use super::fs::{File, Fs, Lock, LockKind, ReadAt, Ring, Room};
use crate::error::{Error, Result};

pub use self::world::FaultPlan;

/// The file system in memory. Clones are the same file system.
#[derive(Clone, Debug)]
pub struct Sim {
    world: Arc<Mutex<World>>,
}

impl Sim {
    /// An empty file system; all its choices follow from `seed`.
    pub fn new(seed: u64) -> Sim {
        let world = World {
            random: Random(seed),
            folders: BTreeMap::from([(ROOT, FolderState::default())]),
            files: BTreeMap::new(),
            next_id: ROOT + 1,
            locks: BTreeMap::new(),
            operations: 0,
            fault: None,
            capacity: u64::MAX,
        };
        Sim {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// A copy that the handles and locks of this one do not reach, with no fault to come.
    fn successor(&self, then: impl FnOnce(&mut World)) -> Sim {
        let mut world = self.world.lock().clone();
        world.locks.clear();
        world.files.values_mut().for_each(|file| file.handles = 0);
        world.fault = None;
        then(&mut world);
        world.sweep();
        Sim {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// What a killed process leaves: everything it did, durable or not; its locks are free.
    pub fn kill(&self) -> Sim {
        self.successor(|_| {})
    }

    /// What a power cut leaves: all that is durable, and of the rest what `seed` chooses.
    pub fn power_cut(&self, seed: u64) -> Sim {
        self.successor(|world| {
            world.random = Random(seed);
            world.cut_power();
        })
    }

    /// How many operations were begun that change or sync something, those before a crash included.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// Makes an operation fail; replaces what was planned before. A write that fails may be done in part, and a sync
    /// that fails leaves each sector durable or lost, never to be written again by a later sync.
    pub fn fail(&self, plan: FaultPlan) {
        self.world.lock().fault = Some(plan);
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.world.lock().fault = None;
    }

    /// How many bytes all files together may take; what goes beyond fails with
    /// [`StorageFull`](io::ErrorKind::StorageFull).
    pub fn set_capacity(&self, bytes: u64) {
        self.world.lock().capacity = bytes;
    }

    /// Does something with the world, and puts operation and path to what goes wrong.
    fn act<T>(
        &self,
        operation: &'static str,
        path: &Path,
        act: impl FnOnce(&mut World) -> Outcome<T>,
    ) -> Result<T> {
        act(&mut self.world.lock()).map_err(|error| Error::io(operation, path, error))
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
        act: impl FnOnce(&mut World) -> Outcome<T>,
    ) -> Result<T> {
        self.sim.act(operation, &self.path, act)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.sim.world.lock().file(self.id).handles -= 1;
    }
}

impl File for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.act("write", |world| {
            let offset = offset as usize;
            if let Err(error) = world.step() {
                // What found no room is not all there; after another failure it may be.
                let whole = u64::from(error.kind() != io::ErrorKind::StorageFull);
                let done = world.random.below((bytes.len() as u64 + whole).max(1)) as usize;
                let bytes = bytes[..done].to_vec();
                world.file(self.id).take(Step::Write { offset, bytes });
                return Err(error);
            }
            let reserved = world.file(self.id).reserved;
            let end = (offset + bytes.len()) as u64;
            world.check_room(end.saturating_sub(reserved))?;
            let bytes = bytes.to_vec();
            world.file(self.id).take(Step::Write { offset, bytes });
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        let done = self.act("sync", |world| {
            let done = world.step();
            match done {
                Ok(()) => world.file(self.id).sync(),
                Err(_) => {
                    let mut random = Random(world.random.next());
                    world.file(self.id).settle_by_chance(&mut random);
                }
            }
            done
        });
        // A real sync takes its time: others write meanwhile.
        std::thread::yield_now();
        done
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.act("allocate", |world| {
            world.step()?;
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

    fn truncate(&self, len: u64) -> Result<()> {
        self.act("truncate", |world| {
            world.step()?;
            world.file(self.id).take(Step::Size(len as usize));
            Ok(())
        })
    }

    fn len(&self) -> Result<u64> {
        self.act("read the size of", |world| {
            Ok(world.file(self.id).now.len() as u64)
        })
    }
}

impl ReadAt for SimFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.act("read", |world| {
            let bytes = &world.file(self.id).now;
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
        let mut world = self.file.sim.world.lock();
        world.operations += 1;
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
        self.act("create", path, |world| {
            if world.folder_at(path).is_ok() {
                return Ok(());
            }
            let mut above = PathBuf::new();
            for component in path.components() {
                above.push(component);
                match world.folder_at(&above) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        world.step()?;
                        let (parent, name) = world.place(&above)?;
                        let id = world.next_id;
                        world.next_id += 1;
                        world.folders.insert(id, FolderState::default());
                        world.change(parent, &name, Some(Node::Folder(id)));
                    }
                    found => drop(found?),
                }
            }
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.act("remove", path, |world| {
            world.step()?;
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
        self.act("list", dir, |world| {
            let names = &world.folders[&world.folder_at(dir)?].now;
            let files = names
                .iter()
                .filter(|(_, node)| matches!(node, Node::File(_)));
            Ok(files.map(|(name, _)| name.clone()).collect())
        })
    }

    fn len(&self, path: &Path) -> Result<Option<u64>> {
        self.act("read the size of", path, |world| {
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

    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        self.act("create", path, |world| {
            world.step()?;
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
        self.act("open", path, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(self.handle(world, id, path)) as Box<dyn File>)
        })
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.act("map", path, |world| {
            let id = world.file_at(path)?;
            Ok(Bytes::copy_from_slice(&world.file(id).now))
        })
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        self.act("open", path, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(self.handle(world, id, path)) as Box<dyn ReadAt>)
        })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.act("read", path, |world| {
            let id = world.file_at(path)?;
            Ok(world.file(id).now.clone())
        })
    }

    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>> {
        self.act("map", path, |world| {
            world.step()?;
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
            file.ring = true;
            file.now.resize(len, 0);
            file.durable.resize(len, 0);
            file.reserved = len as u64;
            let file = self.handle(world, id, path);
            Ok(Box::new(SimRing { file, len }) as Box<dyn Ring>)
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("rename", from, |world| {
            world.step()?;
            let id = world.file_at(from)?;
            let ((from_folder, from_name), (to_folder, to_name)) =
                (world.place(from)?, world.place(to)?);
            if world.folder_at(to).is_ok() {
                return refused(io::ErrorKind::IsADirectory);
            }
            world.change(from_folder, &from_name, None);
            world.change(to_folder, &to_name, Some(Node::File(id)));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.act("remove", path, |world| {
            world.step()?;
            world.file_at(path)?;
            let (folder, name) = world.place(path)?;
            world.change(folder, &name, None);
            Ok(())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("link", from, |world| {
            world.step()?;
            let id = world.file_at(from)?;
            let (folder, name) = world.place(to)?;
            if world.folders[&folder].now.contains_key(&name) {
                return refused(io::ErrorKind::AlreadyExists);
            }
            world.change(folder, &name, Some(Node::File(id)));
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.act("sync", path, |world| {
            world.step()?;
            let id = world.folder_at(path)?;
            let folder = world.folders.get_mut(&id).expect("it was found");
            for change in folder.changes.drain(..) {
                change.carry_out(&mut folder.durable);
            }
            world.sweep();
            Ok(())
        })
    }

    fn lock(&self, path: &Path, kind: LockKind) -> Result<Option<Box<dyn Lock>>> {
        let mut world = self.world.lock();
        if world.file_at(path).is_err() {
            if kind == LockKind::Shared {
                return Ok(None);
            }
            let create = |world: &mut World| {
                world.step()?;
                let (folder, name) = world.place(path)?;
                Ok(world.new_file(folder, &name))
            };
            create(&mut world).map_err(|error| Error::io("open", path, error))?;
        }
        let held = world.locks.entry(path.to_owned()).or_insert((kind, 0));
        if held.1 > 0 && (held.0 == LockKind::Exclusive || kind == LockKind::Exclusive) {
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
        self.act("read the size of", path, |world| {
            let id = world.file_at(path)?;
            Ok(world.file(id).reserved)
        })
    }

    fn room(&self, _: &Path) -> Result<Room> {
        let world = self.world.lock();
        let total = world.capacity;
        let free = match total {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(world.used()),
        };
        Ok(Room { free, total })
    }
}

#[cfg(test)]
mod tests;
