//! A file system whose calls can be observed, failed, or used to act during a call.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ebbtide::Result;
use ebbtide::internals::{Call, Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room, Sim};

use crate::patience::{comes_true, wait_until};

type Hook = Box<dyn FnMut(&'static str, &Path) -> Result<()> + Send>;

/// A simulated disk; clones are the same one.
#[derive(Clone)]
pub struct Watched {
    pub sim: Sim,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Watched {
    pub fn new(sim: Sim) -> Watched {
        Watched {
            sim,
            hook: Arc::default(),
        }
    }

    /// Calls `hook` before each later call, except those made by `hook`; its error is the call's.
    pub fn before(&self, hook: impl FnMut(&'static str, &Path) -> Result<()> + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Calls it before the first call of this name on a path that contains `part`.
    pub fn once(
        &self,
        name: &'static str,
        part: &'static str,
        act: impl FnOnce() + Send + 'static,
    ) {
        let mut act = Some(act);
        self.before(move |call, path| {
            if call == name
                && path.to_string_lossy().contains(part)
                && let Some(act) = act.take()
            {
                act();
            }
            Ok(())
        });
    }

    fn call(&self, name: &'static str, path: &Path) -> Result<()> {
        let Some(mut hook) = self.hook.lock().unwrap().take() else {
            return Ok(());
        };
        let done = hook(name, path);
        self.hook.lock().unwrap().get_or_insert(hook);
        done
    }

    fn file(&self, path: &Path, file: Box<dyn File>) -> Box<dyn File> {
        Box::new(WatchedFile {
            fs: self.clone(),
            path: path.into(),
            file,
        })
    }
}

struct WatchedFile {
    fs: Watched,
    path: PathBuf,
    file: Box<dyn File>,
}

impl File for WatchedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.fs.call("write", &self.path)?;
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.fs.call("sync", &self.path)?;
        self.file.sync()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.fs.call("allocate", &self.path)?;
        self.file.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.fs.call("truncate", &self.path)?;
        self.file.truncate(len)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }
}

struct WatchedDir {
    fs: Watched,
    path: PathBuf,
    dir: Box<dyn Dir>,
}

impl Dir for WatchedDir {
    fn sync(&self) -> Result<()> {
        self.fs.call("sync_dir", &self.path)?;
        self.dir.sync()
    }
}

impl Fs for Watched {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.call("create_dir_all", path)?;
        self.sim.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        self.call("create_dir", path)?;
        self.sim.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.call("remove_dir", path)?;
        self.sim.remove_dir(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.call("list", dir)?;
        self.sim.list(dir)
    }

    fn list_all(&self, dir: &Path) -> Result<Vec<String>> {
        self.sim.list_all(dir)
    }

    fn len(&self, path: &Path) -> Result<Option<u64>> {
        self.sim.len(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.sim.is_dir(path)
    }

    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        self.call("list", dir)?;
        self.sim.is_empty_dir(dir)
    }

    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        self.sim.canonical(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        self.call("create", path)?;
        Ok(self.file(path, self.sim.create(path)?))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        self.call("open", path)?;
        Ok(self.file(path, self.sim.open(path)?))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.call("map", path)?;
        self.sim.map(path)
    }

    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        self.call("open", path)?;
        self.sim.reader(path)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.call("read", path)?;
        self.sim.read(path)
    }

    fn ring(&self, path: &Path, len: usize) -> Result<Box<dyn Ring>> {
        self.call("ring", path)?;
        self.sim.ring(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.call("rename", to)?;
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.call("remove", path)?;
        self.sim.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.call("hard_link", to)?;
        self.sim.hard_link(from, to)
    }

    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>> {
        self.call("open_dir", path)?;
        Ok(Box::new(WatchedDir {
            fs: self.clone(),
            path: path.into(),
            dir: self.sim.open_dir(path)?,
        }))
    }

    fn lock(&self, path: &Path, kind: LockKind) -> Result<Box<dyn Lock>> {
        self.call("lock", path)?;
        self.sim.lock(path, kind)
    }

    fn allocated(&self, path: &Path) -> Result<u64> {
        self.sim.allocated(path)
    }

    fn room(&self, path: &Path) -> Result<Room> {
        self.sim.room(path)
    }
}

/// A gate before some calls of a disk, which are held while it is shut.
#[derive(Clone)]
pub struct Gate {
    is_shut: Arc<AtomicBool>,
    holds: Arc<AtomicBool>,
}

impl Gate {
    /// Shut from now on.
    pub fn shut(sim: &Sim, which: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> Gate {
        let gate = Gate {
            is_shut: Arc::new(AtomicBool::new(true)),
            holds: Arc::default(),
        };
        let Gate { is_shut, holds } = gate.clone();
        sim.watch(move |_, call| {
            if which(call) && is_shut.load(Ordering::SeqCst) {
                holds.store(true, Ordering::SeqCst);
                assert!(comes_true(|| !is_shut.load(Ordering::SeqCst)));
            }
        });
        gate
    }

    /// Waits until a call is held.
    #[track_caller]
    pub fn wait(&self) {
        wait_until("a call comes to the gate", || {
            self.holds.load(Ordering::SeqCst)
        });
    }

    pub fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }
}
