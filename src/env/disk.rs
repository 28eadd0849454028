//! The operating system's file system.
//!
//! Files and folders are made, and files opened, by [`files`](super::files): for their owner alone, and through no link.
//! Every call that a signal interrupts is repeated.

#![allow(clippy::disallowed_methods)]

use std::fs::{self, FileType, OpenOptions, TryLockError};
use std::io;
#[cfg(all(target_os = "linux", not(miri)))]
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use memmap2::Advice;
use rustix::fs::OFlags;

#[cfg(all(target_os = "linux", not(miri)))]
use super::direct;
use super::files::{self, expect, regular};
use super::fs::{Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room};
use super::system::{self, MappedRing, start_writing, zeros};
use crate::base::{Error, Result};

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// Reserves blocks up to `len`, and makes the file at least that long.
fn allocate(file: &fs::File, len: u64) -> io::Result<()> {
    let size = file.metadata()?.len();
    #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_vendor = "apple",
        target_os = "freebsd"
    ))]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        // Apple's call sets the file's size, also to less than it was.
        let len = if cfg!(target_vendor = "apple") {
            len.max(size)
        } else {
            len
        };
        match rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len)) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            done => return done.map_err(io::Error::from),
        }
    }
    write_zeros(file, size, len)
}

/// Reserves blocks up to `len`, also beyond the file's end.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn reserve(file: &fs::File, len: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, len)) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        done => done.map_err(io::Error::from),
    }
}

/// For file systems that cannot reserve blocks: writes zeros.
fn write_zeros(file: &fs::File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; 16 << 10];
    while from < to {
        let len = (to - from).min(zeros.len() as u64);
        file.write_all_at(&zeros[..len as usize], from)?;
        from += len;
    }
    Ok(())
}

/// The size comes from the file: a lack of memory for it is an error.
fn reserve_memory(bytes: &mut Vec<u8>, len: u64) -> io::Result<()> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(len)
        .map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// A file and the name under which it was opened, for errors.
struct DiskFile {
    file: fs::File,
    path: PathBuf,
}

impl DiskFile {
    fn named<T>(&self, operation: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::io(operation, &self.path, error))
    }
}

impl File for DiskFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.named("write", self.file.write_all_at(bytes, offset))
    }

    fn start_writing(&self, offset: u64, len: u64) {
        start_writing(&self.file, offset, len);
    }

    fn sync(&self) -> Result<()> {
        self.named("sync", self.file.sync_data())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.named("allocate", allocate(&self.file, len))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn reserve(&self, len: u64) -> Result<()> {
        self.named("reserve room in", reserve(&self.file, len))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.named("truncate", self.file.set_len(len))
    }

    fn len(&self) -> Result<u64> {
        self.named(
            "read the size of",
            self.file.metadata().map(|data| data.len()),
        )
    }
}

impl ReadAt for DiskFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        let mut bytes = zeros(len)?;
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Error::corruption(
                &self.path,
                offset,
                format!("the file ends before {len} bytes from here"),
            )),
            failed => self.named("read", failed.map(|()| Bytes::new())),
        }
    }
}

struct DiskDir {
    file: fs::File,
    path: PathBuf,
}

impl Dir for DiskDir {
    fn sync(&self) -> Result<()> {
        let done = self.file.sync_all();
        done.map_err(|error| Error::io("sync", &self.path, error))
    }
}

/// The operating system releases the locks when the files are closed, also for a killed process. A process that was forked
/// has them open, too, until it executes its program: so they are released by name, by the process that took them.
struct DiskLock {
    /// `None`: the system cannot lock folders.
    folder: Option<fs::File>,
    /// `None`: it is missing, and the lock is shared.
    file: Option<fs::File>,
    process: u32,
}

impl Lock for DiskLock {}

impl Drop for DiskLock {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            for file in [&self.file, &self.folder].into_iter().flatten() {
                // Closing it releases what this did not.
                let _ = file.unlock();
            }
        }
    }
}

fn try_lock(file: &fs::File, kind: LockKind) -> std::result::Result<(), TryLockError> {
    match kind {
        LockKind::Shared => file.try_lock_shared(),
        LockKind::Exclusive => file.try_lock(),
    }
}

/// The open folder that holds the lock after a try, or `None` where the file system locks no folders; an error only if
/// the lock is held elsewhere.
fn held_folder(
    folder: fs::File,
    tried: std::result::Result<(), TryLockError>,
) -> std::result::Result<Option<fs::File>, TryLockError> {
    match tried {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(held) => Err(held),
    }
}

/// Opens a folder; never blocks on another object.
fn open_folder(path: &Path) -> Result<fs::File> {
    let flags = OFlags::DIRECTORY | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits() as i32);
    let opened = options.open(path);
    opened.map_err(|error| Error::io("open", path, error))
}

fn map_file(path: &Path, advice: Advice) -> Result<Bytes> {
    let map = || -> io::Result<Bytes> {
        let file = files::open(OpenOptions::new().read(true), path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::new());
        }
        system::map(&file, advice)
    };
    map().map_err(|error| Error::io("map", path, error))
}

fn list(dir: &Path, takes: fn(FileType) -> bool) -> Result<Vec<String>> {
    let names = || -> io::Result<Vec<String>> {
        let mut names = vec![];
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if takes(entry.file_type()?) {
                // A name that is not Unicode is not the database's, and does not become one that is.
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    };
    names().map_err(|error| Error::io("list", dir, error))
}

/// So much is read at once of a file that is expected to be zero: it stays in the nearest caches.
const PIECE: usize = 64 << 10;

/// Whether the first byte is zero and each of the others equal to the one before it: that is one call of the C library.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|first| *first == 0)
        && bytes[..bytes.len().saturating_sub(1)] == bytes[bytes.len().min(1)..]
}

/// Reads some bytes, also where a signal comes first.
fn read_some(file: &mut fs::File, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match io::Read::read(file, into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads a file, into `spare` if that is large enough, or else into new memory, of which none is taken for what is zero.
fn read_sparse(path: &Path, mut spare: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut file = files::open(OpenOptions::new().read(true), path)?;
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let is_used = spare.capacity() >= len;
    if is_used {
        spare.resize(len, 0);
    } else {
        drop(spare);
        spare = zeros(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    }
    let mut piece = vec![0; if is_used { 0 } else { PIECE }];
    let mut at = 0;
    while at < len {
        let into = &mut spare[at..len.min(at + PIECE)];
        let read = if is_used {
            read_some(&mut file, into)?
        } else {
            let read = read_some(&mut file, &mut piece[..into.len()])?;
            if !is_zero(&piece[..read]) {
                into[..read].copy_from_slice(&piece[..read]);
            }
            read
        };
        if read == 0 {
            break;
        }
        at += read;
    }
    // It may have been cut off meanwhile.
    spare.truncate(at);
    Ok(spare)
}

impl Fs for Disk {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        files::create_dir_all(path).map_err(|error| Error::io("create", path, error))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        files::create_dir(path).map_err(|error| Error::io("create", path, error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io("remove", path, error))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        list(dir, |kind| !kind.is_dir())
    }

    fn list_all(&self, dir: &Path) -> Result<Vec<String>> {
        list(dir, |_| true)
    }

    fn len(&self, path: &Path) -> Result<Option<u64>> {
        let len = match fs::symlink_metadata(path) {
            Ok(metadata) => regular(&metadata).map(|()| Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        len.map_err(|error| Error::io("read the size of", path, error))
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        let mut entries = fs::read_dir(dir).map_err(|error| Error::io("list", dir, error))?;
        Ok(entries.next().is_none())
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        fs::canonicalize(path).map_err(|error| Error::io("open", path, error))
    }

    fn expect_dir(&self, path: &Path) -> Result<()> {
        let checked = match fs::symlink_metadata(path) {
            Ok(metadata) => expect(metadata.is_dir(), metadata.file_type(), "a folder"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        checked.map_err(|error| Error::io("open", path, error))
    }

    fn withdraw_rights(&self, dir: &Path, own: &dyn Fn(&str) -> bool) -> Result<()> {
        files::withdraw_rights(dir, own)
            .map_err(|error| Error::io("change the rights of", dir, error))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        let file = files::create(path).map_err(|error| Error::io("create", path, error))?;
        Ok(Box::new(DiskFile {
            file,
            path: path.to_owned(),
        }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        let file = files::open(OpenOptions::new().write(true), path)
            .map_err(|error| Error::io("open", path, error))?;
        Ok(Box::new(DiskFile {
            file,
            path: path.to_owned(),
        }))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        // Otherwise a missing page brings in as much as the device's read-ahead setting: megabytes, on some.
        map_file(path, Advice::Random)
    }

    fn map_in_order(&self, path: &Path, _: &Bytes) -> Result<Bytes> {
        // With sequential advice, the system would read in smaller pieces.
        map_file(path, Advice::Normal)
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        let file = files::open(OpenOptions::new().read(true), path)
            .map_err(|error| Error::io("open", path, error))?;
        Ok(Box::new(DiskFile {
            file,
            path: path.to_owned(),
        }))
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn read_direct(&self, wanted: &[(&Path, Range<u64>)]) -> Vec<Option<Bytes>> {
        direct::read(wanted)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            let (mut file, mut bytes) = (files::open(OpenOptions::new().read(true), path)?, vec![]);
            reserve_memory(&mut bytes, file.metadata()?.len())?;
            io::Read::read_to_end(&mut file, &mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| Error::io("read", path, error))
    }

    fn read_into(&self, path: &Path, spare: Vec<u8>) -> Result<Vec<u8>> {
        read_sparse(path, spare).map_err(|error| Error::io("read", path, error))
    }

    fn read_ends(&self, path: &Path, each: usize) -> Result<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = files::open(OpenOptions::new().read(true), path)?;
            let mut ends = vec![];
            io::Read::read_to_end(&mut io::Read::take(&mut file, each as u64), &mut ends)?;
            let back = file.metadata()?.len().saturating_sub(each as u64);
            io::Seek::seek(&mut file, io::SeekFrom::Start(back.max(each as u64)))?;
            io::Read::read_to_end(&mut io::Read::take(&mut file, each as u64), &mut ends)?;
            Ok(ends)
        };
        read().map_err(|error| Error::io("read", path, error))
    }

    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>> {
        let ring = || -> io::Result<MappedRing> {
            let mut options = OpenOptions::new();
            let file = files::open(
                options.read(true).write(true).create(true).truncate(false),
                path,
            )?;
            file.set_len(len as u64)?;
            allocate(&file, len as u64)?;
            MappedRing::new(&file, len)
        };
        match ring() {
            Ok(ring) => Ok(Box::new(ring)),
            Err(error) => Err(Error::io("map", path, error)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::io("rename", from, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|error| Error::io("link", from, error))
    }

    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>> {
        Ok(Box::new(DiskDir {
            file: open_folder(path)?,
            path: path.to_owned(),
        }))
    }

    fn lock(&self, path: &Path, kind: LockKind) -> Result<Box<dyn Lock>> {
        let at = path.parent().unwrap_or(path);
        let refused = |error| match error {
            TryLockError::WouldBlock => Error::Locked { path: at.into() },
            TryLockError::Error(error) => Error::io("lock", path, error),
        };
        // The folder first: where it is held, no file is made again that was removed.
        let folder = open_folder(at)?;
        let tried = try_lock(&folder, kind);
        let folder = held_folder(folder, tried).map_err(refused)?;
        let exclusive = kind == LockKind::Exclusive;
        let mut options = OpenOptions::new();
        options.read(true).write(exclusive).create(exclusive);
        let file = match files::open(&mut options, path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !exclusive => None,
            Err(error) => return Err(Error::io("open", path, error)),
        };
        let tried = file.as_ref().map_or(Ok(()), |file| try_lock(file, kind));
        tried.map_err(refused)?;
        Ok(Box::new(DiskLock {
            folder,
            file,
            process: std::process::id(),
        }))
    }

    fn allocated(&self, path: &Path) -> Result<u64> {
        fs::symlink_metadata(path)
            .map(|metadata| metadata.blocks() * 512)
            .map_err(|error| Error::io("read the size of", path, error))
    }

    fn tree(&self, dir: &Path) -> Result<Vec<(PathBuf, bool)>> {
        // Names that are not Unicode, too.
        let walk = |dir: &Path| -> io::Result<Vec<(PathBuf, bool)>> {
            let entries = fs::read_dir(dir)?;
            let named = |entry: io::Result<fs::DirEntry>| {
                let entry = entry?;
                Ok((entry.path(), entry.file_type()?.is_dir()))
            };
            entries.map(named).collect()
        };
        let (mut found, mut next) = (vec![(dir.to_owned(), true)], 0);
        while let Some((path, is_folder)) = found.get(next).cloned() {
            next += 1;
            if is_folder {
                match walk(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && path != dir => {}
                    inside => {
                        found.extend(inside.map_err(|error| Error::io("list", &path, error))?)
                    }
                }
            }
        }
        Ok(found)
    }

    fn room(&self, path: &Path) -> Result<Room> {
        rustix::io::retry_on_intr(|| rustix::fs::statvfs(path))
            .map(|stat| Room {
                free: stat.f_bavail.saturating_mul(stat.f_frsize),
                total: stat.f_blocks.saturating_mul(stat.f_frsize),
            })
            .map_err(|error| Error::io("read the free space of", path, error.into()))
    }
}

#[cfg(test)]
mod tests;
