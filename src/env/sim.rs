//! A simulated file system in memory that can be killed, lose power, be filled up and fail: for tests.
//!
//! [`world`] defines what is durable, and what a power cut does with the rest. All choices depend on the seed and the
//! order of calls, so a history always runs the same way.
//!
//! A crash makes a new [`Sim`]; handles and locks of the old one continue there and do not affect the new one.
//!
//! * `fault`: calls, and which of them fail
//! * `image`: the bytes of a file
//! * `world`: the state, and what a power cut leaves of it
//! * `control`: the test's side
//! * `handles`: what a program holds of it
//!
//! This file has the program's side, [`Fs`].

mod fault;
mod image;
mod world;
mod control;
mod handles;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use self::fault::Does;
use self::handles::{SimDir, SimFile, SimLock, SimRing};
use self::world::{Node, refused};
use super::fs::{Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room};
use crate::base::{Error, Result};

pub use self::control::Sim;
pub use self::fault::{Call, Fault, FaultPlan};
pub use self::world::{FailedSync, Survivors};

impl Sim {
    fn list_if(&self, dir: &Path, takes: fn(&Node) -> bool) -> Result<Vec<String>> {
        self.act("list", dir, Does::Open, |world| {
            let names = world.folders[&world.folder_at(dir)?].now.iter();
            let names = names.filter(|(_, node)| takes(node));
            Ok(names.map(|(name, _)| name.clone()).collect())
        })
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
        self.list_if(dir, |node| matches!(node, Node::File(_)))
    }

    fn list_all(&self, dir: &Path) -> Result<Vec<String>> {
        self.list_if(dir, |_| true)
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
            Ok(Box::new(SimFile::open(self, world, id, path)) as Box<dyn File>)
        })
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        self.act("open", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(SimFile::open(self, world, id, path)) as Box<dyn File>)
        })
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.act("map", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Bytes::from(world.look_at(id).to_vec()))
        })
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        self.act("open", path, Does::Open, |world| {
            let id = world.file_at(path)?;
            Ok(Box::new(SimFile::open(self, world, id, path)) as Box<dyn ReadAt>)
        })
    }

    fn read_direct(&self, wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
        let read = |(path, range): &(&Path, Range<u64>)| {
            let len = (range.end - range.start) as usize;
            self.reader(path).ok()?.read_at(range.start, len).ok()
        };
        wanted.iter().map(read).collect()
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
            file.now.resize(len);
            file.durable.resize(len);
            file.written_back = Some(file.now.clone());
            file.reserved = len as u64;
            let file = SimFile::open(self, world, id, path);
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
            // If both names are of one file, both stay: POSIX says so.
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
            Ok(Box::new(SimDir::open(self, world, path)) as Box<dyn Dir>)
        })
    }

    fn lock(&self, path: &Path, kind: LockKind) -> Result<Box<dyn Lock>> {
        let is_there = self.world.lock().file_at(path).is_ok();
        let (exclusive, does) = (kind == LockKind::Exclusive, [Does::Create, Does::Open]);
        let folder = path.parent().unwrap_or(path);
        let held = self.world.lock().locks.get(folder).copied();
        if held.is_some_and(|held| held.0 == LockKind::Exclusive || exclusive) {
            return Err(Error::Locked {
                path: folder.to_owned(),
            });
        }
        self.act("open", path, does[usize::from(is_there)], |world| {
            if !is_there && exclusive {
                let (folder, name) = world.place(path)?;
                world.new_file(folder, &name);
            }
            let held = world.locks.entry(folder.to_owned());
            held.or_insert((kind, 0)).1 += 1;
            Ok(())
        })?;
        Ok(Box::new(SimLock {
            sim: self.clone(),
            folder: folder.to_owned(),
        }))
    }

    fn allocated(&self, path: &Path) -> Result<u64> {
        self.act("read the size of", path, Does::Look, |world| {
            if world.folder_at(path).is_ok() {
                return Ok(0);
            }
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
