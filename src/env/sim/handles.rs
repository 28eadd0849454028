//! A program's handles of a simulated file system: files, rings, folders, locks. The state counts them.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::control::Sim;
use super::fault::Does;
use super::image::SECTOR;
use super::world::{FileId, Outcome, Random, Step, World};
use crate::base::{Error, Result};
use crate::env::fs::{Dir, File, Lock, RING_WORD, ReadAt, Ring};

/// An open file.
pub(super) struct SimFile {
    sim: Sim,
    id: FileId,
    path: PathBuf,
}

impl SimFile {
    pub(super) fn open(sim: &Sim, world: &mut World, id: FileId, path: &Path) -> SimFile {
        world.file(id).handles += 1;
        SimFile {
            sim: sim.clone(),
            id,
            path: path.to_owned(),
        }
    }

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
            // A call that found no room or ended early has not done everything; after another failure it may have.
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
        // A real sync takes time: others write meanwhile.
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
        let read = self.act("read", Does::Look, |world| {
            Ok(world.look_at(self.id).get(offset as usize, len))
        });
        // As a disk says it: the file may be shorter than its length was, where pages were lost to a failed sync.
        let ends = || format!("the file ends before {len} bytes from here");
        read?
            .map(Bytes::from)
            .ok_or_else(|| Error::corruption(&self.path, offset, ends()))
    }
}

/// A file whose first `len` bytes are mapped for stores.
pub(super) struct SimRing {
    pub(super) file: SimFile,
    pub(super) len: usize,
}

/// One store in this many is followed by the writeback of a sector.
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
        file.now.write(offset, bytes);
        if write_back {
            file.write_back(sector);
        }
    }

    fn append(&self, offset: usize, front: &[u8], back: &[u8]) {
        let end = offset + front.len() + back.len();
        let rest = end.next_multiple_of(RING_WORD) - end;
        self.store(offset, front);
        self.store(
            offset + front.len(),
            &[back, &[0; RING_WORD][..rest]].concat(),
        );
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.len, "outside the ring");
        let mut world = self.file.sim.world.lock();
        world.file(self.file.id).now.read(offset, out);
    }
}

/// An open folder.
pub(super) struct SimDir {
    sim: Sim,
    path: PathBuf,
}

impl SimDir {
    pub(super) fn open(sim: &Sim, world: &mut World, path: &Path) -> SimDir {
        world.open_dirs += 1;
        SimDir {
            sim: sim.clone(),
            path: path.to_owned(),
        }
    }
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

/// A lock that is held.
pub(super) struct SimLock {
    pub(super) sim: Sim,
    pub(super) folder: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.sim.world.lock();
        let (_, holders) = world.locks.get_mut(&self.folder).expect("it is held");
        *holders -= 1;
        if *holders == 0 {
            world.locks.remove(&self.folder);
        }
    }
}
