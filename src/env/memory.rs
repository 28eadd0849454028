//! A file system in memory, for one database that ends with the process.
//!
//! ```text
//! names   /wal/1 ──▶ file   being written: bytes, then zeros up to its size
//!         /tables/7 ─▶ file   finished: bytes that maps share
//!         /wal/ring ─▶ ring   words
//! ```
//!
//! Nothing survives the process, so a sync has nothing to do, and nobody else can open the database, so neither has a lock.
//!
//! Invariants:
//!
//! 1. A finished file is in memory once: its maps share its bytes. A write to one that is mapped copies it first, so a map
//!    never changes.
//! 2. Room that is allocated ahead takes no memory before something is written there.
//! 3. The memory of a file is given back when its last name, handle and map are gone; all of it with the database.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::fs::{Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room};
use super::words::{self, WORD};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicU64;
use crate::base::{Error, Result};

/// See the file's head.
pub struct MemoryDisk {
    names: Mutex<BTreeMap<PathBuf, Node>>,
}

#[derive(Clone)]
enum Node {
    Folder,
    File(Arc<Mutex<Contents>>),
    Ring(Arc<Words>),
}

/// The bytes of a file.
#[derive(Default)]
struct Contents {
    stored: Stored,
    /// Its size: what is not stored below it is zero.
    len: usize,
}

enum Stored {
    Growing(Vec<u8>),
    Shared(Bytes),
}

impl Default for Stored {
    fn default() -> Stored {
        Stored::Growing(vec![])
    }
}

impl Contents {
    fn stored(&self) -> &[u8] {
        match &self.stored {
            Stored::Growing(bytes) => bytes,
            Stored::Shared(bytes) => bytes,
        }
    }

    fn growing(&mut self) -> &mut Vec<u8> {
        if let Stored::Shared(bytes) = &mut self.stored {
            self.stored = Stored::Growing(std::mem::take(bytes).into());
        }
        match &mut self.stored {
            Stored::Growing(bytes) => bytes,
            Stored::Shared(_) => unreachable!("it was replaced"),
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        let stored = self.growing();
        if stored.len() < offset {
            stored.resize(offset, 0);
        }
        let (over, behind) = bytes.split_at(bytes.len().min(stored.len() - offset));
        stored[offset..offset + over.len()].copy_from_slice(over);
        stored.extend_from_slice(behind);
        self.len = self.len.max(end);
    }

    fn truncate(&mut self, len: usize) {
        self.growing().truncate(len);
        self.len = len;
    }

    /// All of it, in memory that is shared from now on.
    fn shared(&mut self) -> Bytes {
        let len = self.len;
        if self.stored().len() < len {
            self.growing().resize(len, 0);
        }
        if let Stored::Growing(bytes) = &mut self.stored {
            bytes.shrink_to_fit();
            self.stored = Stored::Shared(std::mem::take(bytes).into());
        }
        match &self.stored {
            Stored::Shared(bytes) => bytes.clone(),
            Stored::Growing(_) => unreachable!("it was replaced"),
        }
    }

    fn copy(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        bytes.extend_from_slice(self.stored());
        bytes.resize(self.len, 0);
        bytes
    }
}

/// The memory of a ring.
struct Words {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl Words {
    fn new(len: usize) -> Words {
        let words = (0..len.div_ceil(WORD)).map(|_| AtomicU64::new(0));
        Words {
            words: words.collect(),
            len,
        }
    }

    fn store(&self, bytes: &[u8]) {
        words::store(&self.words, 0, &bytes[..bytes.len().min(self.len)]);
    }

    fn copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        words::load(&self.words, 0, &mut bytes);
        bytes
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "outside the ring");
    }
}

struct MemoryRing(Arc<Words>);

impl Ring for MemoryRing {
    fn store(&self, offset: usize, bytes: &[u8]) {
        self.0.check(offset, bytes.len());
        words::store(&self.0.words, offset, bytes);
    }

    fn append(&self, offset: usize, front: &[u8], back: &[u8]) {
        self.0.check(offset, front.len() + back.len());
        words::append(&self.0.words, offset, front, back);
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.0.check(offset, out.len());
        words::load(&self.0.words, offset, out);
    }
}

/// An open file, and the name under which it was opened, for errors.
struct MemoryFile {
    of: Arc<Mutex<Contents>>,
    path: PathBuf,
}

impl File for MemoryFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.of.lock().write(offset as usize, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let mut of = self.of.lock();
        of.len = of.len.max(len as usize);
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.of.lock().truncate(len as usize);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.of.lock().len as u64)
    }
}

impl ReadAt for MemoryFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        let bytes = self.of.lock().shared();
        let from = offset as usize;
        match bytes.get(from..from.saturating_add(len)) {
            Some(_) => Ok(bytes.slice(from..from + len)),
            None => {
                let what = format!("the file ends before {len} bytes from here");
                Err(Error::corruption(&self.path, offset, what))
            }
        }
    }
}

struct MemoryDir;

impl Dir for MemoryDir {
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

struct MemoryLock;

impl Lock for MemoryLock {}

type Names = BTreeMap<PathBuf, Node>;

fn refused<T>(kind: io::ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

/// The node of this name.
fn node(names: &Names, path: &Path) -> io::Result<Node> {
    let found = names.get(path).cloned();
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn file(names: &Names, path: &Path) -> io::Result<Arc<Mutex<Contents>>> {
    match node(names, path)? {
        Node::File(file) => Ok(file),
        Node::Folder => refused(io::ErrorKind::IsADirectory),
        Node::Ring(_) => refused(io::ErrorKind::InvalidInput),
    }
}

fn folder(names: &Names, path: &Path) -> io::Result<()> {
    match node(names, path)? {
        Node::Folder => Ok(()),
        _ => refused(io::ErrorKind::NotADirectory),
    }
}

/// Gives a name, in a folder that is there, to a node; fails if it is taken.
fn add(names: &mut Names, path: &Path, node: Node) -> io::Result<()> {
    folder(names, path.parent().unwrap_or(path))?;
    if names.contains_key(path) {
        return refused(io::ErrorKind::AlreadyExists);
    }
    names.insert(path.to_owned(), node);
    Ok(())
}

/// The names in a folder, with their nodes.
fn inside<'a>(names: &'a Names, dir: &'a Path) -> impl Iterator<Item = (&'a Path, &'a Node)> {
    let below = names.range(dir.to_owned()..).skip(1);
    let below = below.take_while(move |(path, _)| path.starts_with(dir));
    let direct = below.filter(move |(path, _)| path.parent() == Some(dir));
    direct.map(|(path, node)| (path.as_path(), node))
}

impl MemoryDisk {
    /// Empty but for a folder, and those above it.
    pub fn new(folder: &Path) -> MemoryDisk {
        let above = folder.ancestors();
        let names = above.map(|path| (path.to_owned(), Node::Folder));
        MemoryDisk {
            names: Mutex::new(names.collect()),
        }
    }

    /// Acts, and adds operation and path to its error.
    fn act<T>(
        &self,
        operation: &'static str,
        path: &Path,
        act: impl FnOnce(&mut Names) -> io::Result<T>,
    ) -> Result<T> {
        act(&mut self.names.lock()).map_err(|error| Error::io(operation, path, error))
    }

    fn open_file(&self, operation: &'static str, path: &Path) -> Result<MemoryFile> {
        let of = self.act(operation, path, |names| file(names, path))?;
        Ok(MemoryFile {
            of,
            path: path.to_owned(),
        })
    }

    fn list_if(&self, dir: &Path, takes: fn(&Node) -> bool) -> Result<Vec<String>> {
        self.act("list", dir, |names| {
            folder(names, dir)?;
            let taken = inside(names, dir).filter(|(_, node)| takes(node));
            let name = |(path, _): (&Path, &Node)| Some(path.file_name()?.to_str()?.to_owned());
            Ok(taken.filter_map(name).collect())
        })
    }
}

impl Fs for MemoryDisk {
    fn is_in_memory(&self) -> bool {
        true
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let above: Vec<&Path> = path.ancestors().collect();
        let missing = above.into_iter().rev().filter(|path| !self.is_dir(path));
        let mut missing = missing.collect::<Vec<_>>().into_iter();
        missing.try_for_each(|path| self.create_dir(path))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.act("create", path, |names| add(names, path, Node::Folder))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.act("remove", path, |names| {
            folder(names, path)?;
            if inside(names, path).next().is_some() {
                return refused(io::ErrorKind::DirectoryNotEmpty);
            }
            names.remove(path);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.list_if(dir, |node| !matches!(node, Node::Folder))
    }

    fn list_all(&self, dir: &Path) -> Result<Vec<String>> {
        self.list_if(dir, |_| true)
    }

    fn len(&self, path: &Path) -> Result<Option<u64>> {
        self.act("read the size of", path, |names| match names.get(path) {
            None => Ok(None),
            Some(Node::File(file)) => Ok(Some(file.lock().len as u64)),
            Some(Node::Ring(ring)) => Ok(Some(ring.len as u64)),
            Some(Node::Folder) => refused(io::ErrorKind::IsADirectory),
        })
    }

    fn is_dir(&self, path: &Path) -> bool {
        folder(&self.names.lock(), path).is_ok()
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        self.list_all(dir).map(|names| names.is_empty())
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.components().collect())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        let of = Arc::default();
        let node = Node::File(Arc::clone(&of));
        self.act("create", path, |names| add(names, path, node))?;
        Ok(Box::new(MemoryFile {
            of,
            path: path.to_owned(),
        }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        Ok(Box::new(self.open_file("open", path)?))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        let file = self.act("map", path, |names| file(names, path))?;
        let bytes = file.lock().shared();
        Ok(bytes)
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        Ok(Box::new(self.open_file("open", path)?))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        match self.act("read", path, |names| node(names, path))? {
            Node::File(file) => Ok(file.lock().copy()),
            Node::Ring(ring) => Ok(ring.copy()),
            Node::Folder => self.act("read", path, |_| refused(io::ErrorKind::IsADirectory)),
        }
    }

    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>> {
        let ring = self.act("map", path, |names| {
            let ring = Arc::new(Words::new(len));
            match names.get(path) {
                Some(Node::Ring(ring)) if ring.len == len => return Ok(ring.clone()),
                // From now on it is a ring, with the bytes that were written before.
                Some(Node::File(file)) => ring.store(file.lock().stored()),
                Some(_) => return refused(io::ErrorKind::AlreadyExists),
                None => folder(names, path.parent().unwrap_or(path))?,
            }
            names.insert(path.to_owned(), Node::Ring(ring.clone()));
            Ok(ring)
        })?;
        Ok(Box::new(MemoryRing(ring)))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("rename", from, |names| {
            let of = file(names, from)?;
            folder(names, to.parent().unwrap_or(to))?;
            match names.get(to) {
                Some(Node::Folder) => return refused(io::ErrorKind::IsADirectory),
                // If both names are of one file, both stay: POSIX says so.
                Some(Node::File(there)) if Arc::ptr_eq(there, &of) => return Ok(()),
                _ => {}
            }
            names.remove(from);
            names.insert(to.to_owned(), Node::File(of));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.act("remove", path, |names| match node(names, path)? {
            Node::Folder => refused(io::ErrorKind::IsADirectory),
            _ => Ok(names.remove(path)),
        });
        // Its memory is freed without the lock.
        removed.map(drop)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.act("link", from, |names| {
            let of = file(names, from)?;
            add(names, to, Node::File(of))
        })
    }

    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>> {
        self.act("open", path, |names| folder(names, path))?;
        Ok(Box::new(MemoryDir))
    }

    fn lock(&self, _path: &Path, _kind: LockKind) -> Result<Box<dyn Lock>> {
        Ok(Box::new(MemoryLock))
    }

    fn allocated(&self, path: &Path) -> Result<u64> {
        self.act("read the size of", path, |names| {
            Ok(match node(names, path)? {
                Node::Folder => 0,
                Node::File(file) => file.lock().stored().len() as u64,
                Node::Ring(ring) => ring.len as u64,
            })
        })
    }

    fn room(&self, _path: &Path) -> Result<Room> {
        Ok(Room {
            free: u64::MAX,
            total: u64::MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_file_is_in_memory_once_and_a_map_stays_what_it_was() {
        let fs = MemoryDisk::new(Path::new("/"));
        let path = Path::new("/a");
        let file = fs.create(path).unwrap();
        file.allocate(1 << 40).unwrap();
        file.truncate(0).unwrap();
        file.write_at(0, b"before").unwrap();
        let (first, second) = (fs.map(path).unwrap(), fs.map(path).unwrap());
        assert_eq!(first.as_ptr(), second.as_ptr());
        file.write_at(0, b"after ").unwrap();
        fs.remove(path).unwrap();
        assert_eq!((&first[..], &second[..]), (&b"before"[..], &b"before"[..]));
    }

    #[test]
    fn memory_goes_with_the_last_name_and_handle() {
        let fs = MemoryDisk::new(Path::new("/"));
        let file = fs.create(Path::new("/a")).unwrap();
        file.write_at(0, b"bytes").unwrap();
        fs.hard_link(Path::new("/a"), Path::new("/b")).unwrap();
        let contents = match node(&fs.names.lock(), Path::new("/a")).unwrap() {
            Node::File(of) => Arc::downgrade(&of),
            _ => unreachable!("it is a file"),
        };
        fs.remove(Path::new("/a")).unwrap();
        drop(file);
        assert!(contents.upgrade().is_some());
        fs.remove(Path::new("/b")).unwrap();
        assert!(contents.upgrade().is_none());
    }

    #[test]
    fn a_ring_holds_what_was_stored_however_it_is_opened() {
        let fs = MemoryDisk::new(Path::new("/"));
        let path = Path::new("/ring");
        let ring = fs.ring(path, 20).unwrap();
        ring.store(3, b"stored");
        let mut bytes = [0; 6];
        fs.ring(path, 20).unwrap().load(3, &mut bytes);
        assert_eq!(&bytes, b"stored");
        assert_eq!(&fs.read(path).unwrap()[3..9], b"stored");
        let path = Path::new("/begun as a file");
        fs.create(path).unwrap().write_at(7, b"before").unwrap();
        fs.ring(path, 20).unwrap().load(7, &mut bytes);
        assert_eq!(&bytes, b"before");
    }
}
