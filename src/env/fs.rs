//! What the engine asks of a file system. Two worlds provide it: [`disk`](super::disk) and [`sim`](super::sim).
//!
//! Durability as the engine relies on it: bytes of a file after [`File::sync`]; the names in a folder (created, renamed,
//! removed, linked) after [`Dir::sync`] of that folder. Everything else may be lost by a power cut, in any order and
//! in part. Errors carry operation and path.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::base::{Error, Result};

/// A file that is being written.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync {
    /// Writes all of `bytes` at `offset`, growing the file where needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Has the device begin with `len` bytes at `offset`, just written, rather than with all at once at the next sync, so
    /// that syncs of other files need not wait for a burst. A hint: nothing is durable by it, and it may do nothing.
    fn start_writing(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Makes everything written so far durable, and the file's size.
    fn sync(&self) -> Result<()>;
    /// Reserves room so that writes below `len` cannot fail for want of it; the file's size becomes at least `len`.
    fn allocate(&self, len: u64) -> Result<()>;
    /// As [`File::allocate`], but the file's size stays. A hint: it may do nothing where the system cannot, and nothing
    /// is durable by it. Setting the file's size gives the room back.
    fn reserve(&self, len: u64) -> Result<()> {
        let _ = len;
        Ok(())
    }
    /// Sets the file's size.
    fn truncate(&self, len: u64) -> Result<()>;
    /// The file's size in bytes.
    fn len(&self) -> Result<u64>;
}

/// A finished file that is read part by part, not through a map: a device that fails is an error.
pub trait ReadAt: Send + Sync {
    /// `len` bytes at `offset`; that the file is shorter is corruption.
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes>;
}

/// A folder, held open: whoever has to make names in it durable later needs no descriptor then.
pub trait Dir: Send + Sync {
    /// Makes the names in the folder durable.
    fn sync(&self) -> Result<()>;
}

/// A small file that is stored into through shared memory: what was stored survives a killed process, and nothing else
/// is promised. It is never synced. `store` and `load` panic outside the length given at opening.
pub trait Ring: Send + Sync {
    /// Copies `bytes` to `offset`.
    fn store(&self, offset: usize, bytes: &[u8]);
    /// Copies `out.len()` bytes from `offset`.
    fn load(&self, offset: usize, out: &mut [u8]);
}

/// How a lock file is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// With others that share it.
    Shared,
    /// Alone.
    Exclusive,
}

/// The room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free for this process.
    pub free: u64,
    /// Free or not.
    pub total: u64,
}

/// Held as long as it lives.
pub trait Lock: Send + Sync {}

/// The file system.
pub trait Fs: Send + Sync {
    /// Creates a folder and those above it, mode 0700; nothing happens when it is there.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Creates one folder, mode 0700; that there is something of this name, a link included, is an error.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The names of the files in a folder, in no particular order; folders are left out.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    /// The same, with the folders.
    fn list_all(&self, dir: &Path) -> Result<Vec<String>>;
    /// The file's size in bytes, `None` when there is none of this name.
    fn len(&self, path: &Path) -> Result<Option<u64>>;
    /// The folder exists.
    fn is_dir(&self, path: &Path) -> bool;
    /// Nothing is in a folder: no file, folder, link or anything else.
    fn is_empty_dir(&self, dir: &Path) -> Result<bool>;
    /// The absolute path of what is there, by no link.
    fn canonical(&self, path: &Path) -> Result<PathBuf>;
    /// An error when something stands there that is no folder, a link to one included: a folder of the database's own is
    /// not to lead elsewhere.
    fn expect_dir(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Creates a file, mode 0600; an existing one of this name is an error.
    fn create(&self, path: &Path) -> Result<Box<dyn File>>;
    /// Opens an existing file for writing in place.
    fn open(&self, path: &Path) -> Result<Box<dyn File>>;
    /// The bytes of a file that no longer changes, without a copy where the system can map it. The bytes stay readable
    /// as long as they are held, even when the file is removed.
    fn map(&self, path: &Path) -> Result<Bytes>;
    /// The same bytes for sequential access, where the system then reads ahead; `map` is what [`Fs::map`] gave, which is for
    /// random access.
    fn map_in_order(&self, _path: &Path, map: &Bytes) -> Result<Bytes> {
        Ok(map.clone())
    }
    /// Opens a file that no longer changes, to be read by parts. It stays readable as long as it is held, even when the
    /// file is removed.
    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>>;
    /// A copy of a whole file, which may be changing.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// The same, in the memory of `spare`, whose bytes are of no use any more: fresh memory costs as much as reading.
    fn read_into(&self, path: &Path, spare: Vec<u8>) -> Result<Vec<u8>> {
        drop(spare);
        self.read(path)
    }
    /// Opens or creates a ring file of exactly `len` bytes, allocated and populated, so that a store cannot fail.
    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file's name.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Opens a folder.
    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>>;
    /// Makes the names in a folder durable. Whether it fails to open it or to sync it cannot be told: where the one must
    /// not pass for the other, hold a [`Dir`].
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.open_dir(path)?.sync()
    }
    /// Takes the lock on a file, which is created when missing and `kind` is exclusive; `None` when the file is missing
    /// and `kind` is shared. Held elsewhere: [`Error::Locked`](crate::Error::Locked) naming the file's folder.
    fn lock(&self, path: &Path, kind: LockKind) -> Result<Option<Box<dyn Lock>>>;
    /// Bytes that the file takes on the medium: allocated blocks, holes left out.
    fn allocated(&self, path: &Path) -> Result<u64>;
    /// The room on the file system of `path`.
    fn room(&self, path: &Path) -> Result<Room>;
}

/// Creates a folder in that of the database, unless it is there. The database's own is not made again where somebody has
/// removed it.
pub fn make_dir(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.is_dir(path) {
        true => Ok(()),
        false => fs.create_dir(path),
    }
}

/// Creates a folder, and those above it that are missing, durably.
pub fn create_folder(fs: &dyn Fs, path: &Path) -> Result<()> {
    if fs.is_dir(path) {
        return Ok(());
    }
    create_folder(fs, above(path))?;
    fs.create_dir_all(path)?;
    // One that is found later is taken for durable.
    sync_name(fs, path).inspect_err(|_| drop(fs.remove_dir(path)))
}

/// Makes the name of a file or folder durable, where the folder above it allows that.
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
