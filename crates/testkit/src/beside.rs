//! The disk as a follower may use it: what writes panics.
//!
//! A hook is called before each call that reads, so that the writer can act in the midst of it. The state of the disk can be
//! replaced, as a kill of the writer does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ebbtide::Result;
use ebbtide::internals::{Dir, File, Fs, Lock, LockKind, ReadAt, Ring, Room, Sim};

type Hook = Box<dyn FnMut(&'static str, &Path) + Send>;

/// The disk of a writer, as one sees it who reads beside it.
#[derive(Clone)]
pub struct Beside {
    sim: Arc<Mutex<Sim>>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Beside {
    pub fn new(sim: &Sim) -> Beside {
        Beside {
            sim: Arc::new(Mutex::new(sim.clone())),
            hook: Arc::default(),
        }
    }

    /// The disk of now.
    pub fn sim(&self) -> Sim {
        self.sim.lock().unwrap().clone()
    }

    /// Before each call that follows, but for those from within `hook`.
    pub fn before(&self, hook: impl FnMut(&'static str, &Path) + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// From now on no call is looked at.
    pub fn quiet(&self) {
        *self.hook.lock().unwrap() = None;
    }

    /// The writer goes on with another state of the disk, after a kill or a power cut.
    pub fn set(&self, sim: &Sim) {
        self.sim.lock().unwrap().clone_from(sim);
    }

    fn looks(&self, call: &'static str, path: &Path) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(call, path);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
    }

    fn writes(&self, path: &Path) -> ! {
        panic!("a follower writes to {}", path.display());
    }
}

impl Fs for Beside {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.writes(path)
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.writes(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.writes(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.looks("list", dir);
        self.sim().list(dir)
    }
    fn list_all(&self, dir: &Path) -> Result<Vec<String>> {
        self.looks("list", dir);
        self.sim().list_all(dir)
    }
    fn len(&self, path: &Path) -> Result<Option<u64>> {
        self.looks("len", path);
        self.sim().len(path)
    }
    fn is_dir(&self, path: &Path) -> bool {
        self.sim().is_dir(path)
    }
    fn is_empty_dir(&self, dir: &Path) -> Result<bool> {
        self.sim().is_empty_dir(dir)
    }
    fn canonical(&self, path: &Path) -> Result<PathBuf> {
        self.sim().canonical(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn File>> {
        self.writes(path)
    }
    fn open(&self, path: &Path) -> Result<Box<dyn File>> {
        self.writes(path)
    }
    fn map(&self, path: &Path) -> Result<Bytes> {
        self.looks("map", path);
        self.sim().map(path)
    }
    fn reader(&self, path: &Path) -> Result<Box<dyn ReadAt>> {
        self.looks("reader", path);
        self.sim().reader(path)
    }
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.looks("read", path);
        self.sim().read(path)
    }
    fn ring(&self, path: &Path, _: usize) -> Result<Box<dyn Ring>> {
        self.writes(path)
    }
    fn rename(&self, from: &Path, _: &Path) -> Result<()> {
        self.writes(from)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.writes(path)
    }
    fn hard_link(&self, from: &Path, _: &Path) -> Result<()> {
        self.writes(from)
    }
    fn open_dir(&self, path: &Path) -> Result<Box<dyn Dir>> {
        self.writes(path)
    }
    fn lock(&self, path: &Path, _: LockKind) -> Result<Box<dyn Lock>> {
        self.writes(path)
    }
    fn allocated(&self, path: &Path) -> Result<u64> {
        self.sim().allocated(path)
    }
    fn room(&self, path: &Path) -> Result<Room> {
        self.sim().room(path)
    }
}
