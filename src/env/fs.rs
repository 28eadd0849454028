//! The file system as the engine uses it. [`disk`](super::disk) is the operating
//! system's, [`memory`](super::memory) is in memory, [`sim`](super::sim) is for tests.
//!
//! Durability as the engine relies on it: the bytes of a file are durable after [`File::sync`]; the names in a folder
//! (created, renamed, removed, linked) after [`Dir::sync`] of that folder. A power cut may lose everything else, in any
//! order and in part. Errors carry operation and path.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::base::{Error, Result};

/// A file that is being written.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync {
    /// Writes all of `bytes` at `offset`; the file grows if needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Starts writeback of `len` bytes at `offset`, which were just written, so that the next sync is no burst that
    /// syncs of other files wait for. A hint: it makes nothing durable, and may do nothing.
    fn start_writing(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Makes everything written so far and the file's size durable.
    fn sync(&self) -> Result<()>;
    /// Reserves room so that writes below `len` cannot fail for lack of it; the file's size becomes at least `len`.
    fn allocate(&self, len: u64) -> Result<()>;
    /// Like [`File::allocate`], but the file's size stays. A hint: it may do nothing where the system cannot, and makes
    /// nothing durable. Setting the file's size frees the room.
    fn reserve(&self, len: u64) -> Result<()> {
        let _ = len;
        Ok(())
    }
    /// Sets the file's size.
    fn truncate(&self, len: u64) -> Result<()>;
    /// The file's size in bytes.
    fn len(&self) -> Result<u64>;
}

/// A finished file that is read by calls, not through a map: a failing device is an error.
pub trait ReadAt: Send + Sync {
    /// `len` bytes at `offset`; if the file is shorter, it is corrupt.
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes>;
}

/// A folder, held open, so that syncing its names later needs no descriptor.
pub trait Dir: Send + Sync {
    /// Makes the names in the folder durable.
    fn sync(&self) -> Result<()>;
}

/// In which pieces a ring is stored to, in bytes: see [`Ring::append`].
pub const RING_WORD: usize = size_of::<u64>();

/// A small file in shared memory: stored bytes survive a killed process, and nothing else is guaranteed. It is never
/// synced. `store` and `load` panic outside the length given at opening.
pub trait Ring: Send + Sync {
    /// Copies `bytes` to `offset`.
    fn store(&self, offset: usize, bytes: &[u8]);
    /// Copies `front` to `offset`, and `back` behind it, where nobody else stores up to the next multiple of `RING_WORD`:
    /// bytes that are left up to there may become zero.
    fn append(&self, offset: usize, front: &[u8], back: &[u8]);
    /// Copies `out.len()` bytes from `offset`.
    fn load(&self, offset: usize, out: &mut [u8]);
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// The room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free for this process.
    pub free: u64,
    /// Free and used together.
    pub total: u64,
}

/// The lock is held until this is dropped.
pub trait Lock: Send + Sync {}

/// The file system.
pub trait Fs: Send + Sync {
    /// Whether all is in the memory of this process, and ends with it.
    fn is_in_memory(&self) -> bool {
        false
    }
    /// Creates a folder and those above it, mode 0700; does nothing if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Creates one folder, mode 0700; fails if anything of this name exists, also a link.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The names of the files in a folder, in no particular order; folders are left out.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// The names in a folder, including folders.
    fn list_all(&self, dir: &Path) -> Result<Vec<String>>;
    /// The file's size in bytes, `None` if it does not exist.
    fn len(&self, path: &Path) -> Result<Option<u64>>;
    /// Whether the folder exists.
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether a folder is empty: no file, folder, link or anything else.
    fn is_empty_dir(&self, dir: &Path) -> Result<bool>;
    /// The absolute path of an existing object, without links.
    fn canonical(&self, path: &Path) -> Result<PathBuf>;
    /// Fails if something that is no folder is there, also a link to one: a folder of the database must not lead
    /// elsewhere.
    fn expect_dir(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Takes from group and others all rights to the files in a folder whose names are `own`, and the right to write in
    /// the folder.
    fn withdraw_rights(&self, dir: &Path, own: &dyn Fn(&str) -> bool) -> Result<()> {
        let _ = (dir, own);
        Ok(())
    }
    /// Creates a file, mode 0600; fails if one of this name exists.
    fn create(&self, path: &Path) -> Result<Box<dyn File>>;
    /// Opens an existing file for writing in place.
    fn open(&self, path: &Path) -> Result<Box<dyn File>>;
    /// The bytes of a finished file, without a copy if the system can map it. The bytes stay readable while they are
    /// held, even after the file is removed.
    fn map(&self, path: &Path) -> Result<Bytes>;
    /// The same bytes for sequential access, for which the system reads ahead; `map` is the result of [`Fs::map`], for
    /// random access.
    fn map_in_order(&self, _path: &Path, map: &Bytes) -> Result<Bytes> {
        Ok(map.clone())
    }
    /// Opens a finished file for reading by calls. It stays readable while it is held, even after it is removed.
    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>>;
    /// Ranges of finished files, from the device past the system's cache and all at once; none where that cannot be done,
    /// which says nothing about the file.
    fn read_direct(&self, wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
        vec![None; wanted.len()]
    }
    /// A copy of a whole file, which may be changing.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// The same for a file that was allocated ahead, in the memory of `spare` if that is large enough; its contents are
    /// discarded. Fresh memory costs much more than reading, so where most bytes are zero little of it is taken.
    fn read_into(&self, path: &Path, spare: Vec<u8>) -> Result<Vec<u8>> {
        drop(spare);
        self.read(path)
    }
    /// The first and the last `each` bytes of a file, one after the other; all of it if it is not longer.
    fn read_ends(&self, path: &Path, each: usize) -> Result<Vec<u8>> {
        let mut bytes = self.read(path)?;
        let back = bytes.len().saturating_sub(each).max(each);
        bytes.drain(each.min(bytes.len())..back.min(bytes.len()));
        Ok(bytes)
    }
    /// Opens or creates a ring file of exactly `len` bytes, allocated and populated, so that a store cannot fail.
    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>>;
    /// Renames a file, replacing one of the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Opens a folder.
    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>>;
    /// Makes the names in a folder durable. Its error does not distinguish a failed open from a failed sync: where that
    /// matters, hold a [`Dir`].
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.open_dir(path)?.sync()
    }
    /// Takes the lock on a file and on its folder: the file may be removed by hand, and some systems lock files alone.
    /// The file is created if it is missing and `kind` is exclusive. If either lock is held elsewhere:
    /// [`Error::Locked`](crate::Error::Locked) with the folder.
    fn lock(&self, path: &Path, kind: LockKind) -> Result<Box<dyn Lock>>;
    /// Bytes of the file on the medium: allocated blocks, without holes.
    fn allocated(&self, path: &Path) -> Result<u64>;
    /// All that is in a folder and in those below it, itself included, and whether it is a folder; no link is followed.
    /// A folder that is removed meanwhile is left out.
    fn tree(&self, dir: &Path) -> Result<Vec<(PathBuf, bool)>> {
        let (mut found, mut next) = (vec![(dir.to_owned(), true)], 0);
        while let Some((path, is_folder)) = found.get(next).cloned() {
            next += 1;
            if is_folder {
                let files = self.list(&path)?;
                let all = self.list_all(&path)?.into_iter();
                found.extend(all.map(|name| (path.join(&name), !files.contains(&name))));
            }
        }
        Ok(found)
    }
    /// The room on the file system that holds `path`.
    fn room(&self, path: &Path) -> Result<Room>;
}

/// Creates a folder inside the database's folder, unless it exists. Does not create the database's own folder again if
/// that was removed.
pub fn make_dir(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.is_dir(path) {
        true => Ok(()),
        false => fs.create_dir(path),
    }
}

/// Creates a folder, and missing ones above it, durably.
pub fn create_folder(fs: &dyn Fs, path: &Path) -> Result<()> {
    if fs.is_dir(path) {
        return Ok(());
    }
    create_folder(fs, above(path))?;
    fs.create_dir_all(path)?;
    // A folder found by a later call is assumed to be durable.
    sync_name(fs, path).inspect_err(|_| drop(fs.remove_dir(path)))
}

/// Makes the name of a file or folder durable, if the folder above it allows that.
pub fn sync_name(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.sync_dir(above(path)) {
        // Some folders may be written to but not opened; then the name is as durable as the system makes it.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
