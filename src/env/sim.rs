//! A file system in memory that can be killed, unplugged, filled up and made to fail: for tests.
//!
//! Every file and folder is kept twice: as programs see it now, and as it is *durable*, with the steps between the two
//! in order. [`File::sync`] and [`Fs::sync_dir`] carry out the steps. A power cut carries out some of them:
//!
//! ```text
//! file      durable bytes | write, write, size, write ...   each 512-byte sector stops after a step of its own, and so
//!                                                           does the size
//! folder    durable names | create, rename, remove ...      any of them; but never a later change of a name or a file
//!                                                           without the earlier ones, as journals keep those in order
//! ring      durable bytes | bytes now                       each sector is as it is now or as it was some time before
//! ```
//!
//! All choices come from the seed and the order of calls, so a history runs the same way every time.
//!
//! A crash makes a new [`Sim`]; handles and locks of the old one go on in the old one and are not seen in the new.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::fs::{File, Fs, Lock, LockKind, Ring};
use crate::error::{Error, Result};

/// What a power cut keeps whole or loses whole.
const SECTOR: usize = 512;

/// A stream of numbers made from a seed (splitmix64).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One failure to come.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The first operation whose number, as [`Sim::operations`] counts, is not below this one fails. Stores to a ring
    /// are counted, but cannot fail.
    pub at: u64,
    /// What it fails with.
    pub kind: io::ErrorKind,
    /// All later ones fail too.
    pub lasting: bool,
}

/// A file's step from durable to now.
#[derive(Clone, Debug)]
enum Step {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

impl Step {
    fn carry_out(&self, image: &mut Vec<u8>) {
        match self {
            Step::Write { offset, bytes } => {
                let end = offset + bytes.len();
                image.resize(image.len().max(end), 0);
                image[*offset..end].copy_from_slice(bytes);
            }
            Step::Size(len) => image.resize(*len, 0),
        }
    }

    /// Carries the step out in the sectors for which `kept` says so; cuts nothing off, but zeroes what a cut removes.
    fn carry_out_in_part(&self, image: &mut Vec<u8>, kept: impl Fn(usize) -> bool) {
        let (start, end) = match self {
            Step::Write { offset, bytes } => (*offset, offset + bytes.len()),
            Step::Size(len) => (*len, image.len()),
        };
        image.resize(image.len().max(start).max(end), 0);
        let mut from = start;
        while from < end {
            let sector = from / SECTOR;
            let to = end.min((sector + 1) * SECTOR);
            match self {
                _ if !kept(sector) => {}
                Step::Write { bytes, .. } => {
                    image[from..to].copy_from_slice(&bytes[from - start..to - start]);
                }
                Step::Size(_) => image[from..to].fill(0),
            }
            from = to;
        }
    }

    /// The file's size after the step.
    fn size(&self, before: usize) -> usize {
        match self {
            Step::Write { offset, bytes } => before.max(offset + bytes.len()),
            Step::Size(len) => *len,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct FileState {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// What leads from `durable` to `now`; unused in a ring.
    steps: Vec<Step>,
    /// Bytes that count against the capacity.
    reserved: u64,
    ring: bool,
    /// Open handles; a file without a name lives as long as it has one.
    handles: usize,
}

impl FileState {
    fn take(&mut self, step: Step) {
        step.carry_out(&mut self.now);
        match step {
            Step::Write { .. } => {
                let end = step.size(0) as u64;
                self.reserved = self.reserved.max(end);
            }
            Step::Size(len) => self.reserved = self.reserved.min(len as u64),
        }
        self.steps.push(step);
    }

    fn sync(&mut self) {
        for step in self.steps.drain(..) {
            step.carry_out(&mut self.durable);
        }
    }

    /// What a power cut would leave becomes durable, and the steps are forgotten.
    fn settle_by_chance(&mut self, random: &mut Random) {
        let salt = random.next();
        let chance = |sector: usize, n: usize| {
            Random(salt ^ (sector as u64).rotate_left(32)).below(n as u64) as usize
        };
        if self.ring {
            for sector in 0..self.now.len().div_ceil(SECTOR) {
                if chance(sector, 2) == 0 {
                    self.write_back(sector);
                }
            }
            return;
        }
        let steps = std::mem::take(&mut self.steps);
        // Now and then the whole file stops at one step: before all, after all, or between.
        let common = match random.below(4) {
            0 => Some(0),
            1 => Some(steps.len()),
            2 => Some(random.below(steps.len() as u64 + 1) as usize),
            _ => None,
        };
        let kept = |sector: usize| common.unwrap_or_else(|| chance(sector, steps.len() + 1));
        let (mut image, size_steps) = (std::mem::take(&mut self.durable), kept(usize::MAX));
        let size = steps[..size_steps]
            .iter()
            .fold(image.len(), |size, step| step.size(size));
        for (index, step) in steps.iter().enumerate() {
            step.carry_out_in_part(&mut image, |sector| index < kept(sector));
        }
        image.resize(size, 0);
        self.durable = image;
    }

    /// A ring's sector reaches the disk.
    fn write_back(&mut self, sector: usize) {
        let from = sector * SECTOR;
        let to = (from + SECTOR).min(self.now.len());
        self.durable[from..to].copy_from_slice(&self.now[from..to]);
    }
}

type FileId = u64;
type FolderId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    File(FileId),
    Folder(FolderId),
}

/// One change of one name. A rename is two with the same `operation`: both happen or neither does.
#[derive(Clone, Debug)]
struct Change {
    operation: u64,
    name: String,
    to: Option<Node>,
    /// What had or gets the name.
    node: Node,
}

#[derive(Clone, Debug, Default)]
struct FolderState {
    now: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    /// What leads from `durable` to `now`.
    changes: Vec<Change>,
}

impl Change {
    fn carry_out(&self, names: &mut BTreeMap<String, Node>) {
        match self.to {
            Some(node) => names.insert(self.name.clone(), node),
            None => names.remove(&self.name),
        };
    }
}

const ROOT: FolderId = 0;

#[derive(Clone, Debug)]
struct World {
    random: Random,
    folders: BTreeMap<FolderId, FolderState>,
    files: BTreeMap<FileId, FileState>,
    next_id: u64,
    /// How each locked path is held: alone, or by how many.
    locks: BTreeMap<PathBuf, (LockKind, usize)>,
    operations: u64,
    fault: Option<FaultPlan>,
    capacity: u64,
}

type Outcome<T> = io::Result<T>;

fn refused<T>(kind: io::ErrorKind) -> Outcome<T> {
    Err(kind.into())
}

impl World {
    fn folder_at(&self, path: &Path) -> Outcome<FolderId> {
        let mut folder = ROOT;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
                folder = match self.folders[&folder].now.get(name) {
                    Some(&Node::Folder(id)) => id,
                    Some(Node::File(_)) => return refused(io::ErrorKind::NotADirectory),
                    None => return refused(io::ErrorKind::NotFound),
                };
            }
        }
        Ok(folder)
    }

    /// The folder of a path, and the name in it.
    fn place(&self, path: &Path) -> Outcome<(FolderId, String)> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.folder_at(path.parent().unwrap_or(Path::new("")))?;
        Ok((folder, name.to_owned()))
    }

    fn file_at(&self, path: &Path) -> Outcome<FileId> {
        let (folder, name) = self.place(path)?;
        match self.folders[&folder].now.get(&name) {
            Some(&Node::File(id)) => Ok(id),
            Some(Node::Folder(_)) => refused(io::ErrorKind::IsADirectory),
            None => refused(io::ErrorKind::NotFound),
        }
    }

    fn file(&mut self, id: FileId) -> &mut FileState {
        self.files.get_mut(&id).expect("an open file is kept")
    }

    fn change(&mut self, folder: FolderId, name: &str, to: Option<Node>) {
        let operation = self.operations;
        let folder = self.folders.get_mut(&folder).expect("folders are kept");
        let node = to
            .or_else(|| folder.now.get(name).copied())
            .expect("a name that goes was there");
        let change = Change {
            operation,
            name: name.to_owned(),
            to,
            node,
        };
        change.carry_out(&mut folder.now);
        folder.changes.push(change);
    }

    fn new_file(&mut self, folder: FolderId, name: &str) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, FileState::default());
        self.change(folder, name, Some(Node::File(id)));
        id
    }

    /// Counts an operation that changes or syncs something; says when it is the one to fail.
    fn step(&mut self) -> Outcome<()> {
        self.operations += 1;
        match self.fault {
            Some(plan) if plan.at <= self.operations => {
                if !plan.lasting {
                    self.fault = None;
                }
                refused(plan.kind)
            }
            _ => Ok(()),
        }
    }

    /// Bytes that files with a name take.
    fn used(&self) -> u64 {
        let nodes = self.folders.values().flat_map(|folder| folder.now.values());
        let files: BTreeSet<&Node> = nodes.collect();
        let reserved = |node: &&Node| match node {
            Node::File(id) => self.files[id].reserved,
            Node::Folder(_) => 0,
        };
        files.iter().map(reserved).sum()
    }

    fn check_room(&self, more: u64) -> Outcome<()> {
        let full = self.capacity != u64::MAX && self.used().saturating_add(more) > self.capacity;
        if full {
            return refused(io::ErrorKind::StorageFull);
        }
        Ok(())
    }

    /// Forgets files and folders that nothing leads to any more.
    fn sweep(&mut self) {
        let mut nodes = BTreeSet::from([Node::Folder(ROOT)]);
        for folder in self.folders.values() {
            nodes.extend(folder.now.values().chain(folder.durable.values()));
            nodes.extend(folder.changes.iter().map(|change| change.node));
        }
        self.files
            .retain(|&id, file| file.handles > 0 || nodes.contains(&Node::File(id)));
        self.folders
            .retain(|&id, _| nodes.contains(&Node::Folder(id)));
    }

    /// The operations on names that a power cut carries out. None whose name or node an earlier one touched that is lost.
    fn surviving_changes(&mut self) -> BTreeSet<u64> {
        let mut touched: BTreeMap<u64, Vec<(FolderId, String, Node)>> = BTreeMap::new();
        for (&id, folder) in &self.folders {
            for change in &folder.changes {
                let what = (id, change.name.clone(), change.node);
                touched.entry(change.operation).or_default().push(what);
            }
        }
        let keep_below = [0, 1, 1, 2][self.random.below(4) as usize];
        let (mut lost_names, mut lost_nodes) = (BTreeSet::new(), BTreeSet::new());
        let mut kept = BTreeSet::new();
        for (operation, changes) in touched {
            let depends = changes.iter().any(|(folder, name, node)| {
                lost_names.contains(&(*folder, name.clone())) || lost_nodes.contains(node)
            });
            if !depends && self.random.below(2) < keep_below {
                kept.insert(operation);
            } else {
                for (folder, name, node) in changes {
                    lost_names.insert((folder, name));
                    lost_nodes.insert(node);
                }
            }
        }
        kept
    }

    /// Leaves what a power cut leaves.
    fn cut_power(&mut self) {
        let kept = self.surviving_changes();
        for folder in self.folders.values_mut() {
            for change in std::mem::take(&mut folder.changes) {
                if kept.contains(&change.operation) {
                    change.carry_out(&mut folder.durable);
                }
            }
            folder.now = folder.durable.clone();
        }
        for file in self.files.values_mut() {
            file.settle_by_chance(&mut self.random);
            file.now = file.durable.clone();
            file.reserved = file.now.len() as u64;
        }
    }
}

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
                let done = world.random.below(bytes.len() as u64 + 1) as usize;
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
        self.act("sync", |world| {
            let done = world.step();
            match done {
                Ok(()) => world.file(self.id).sync(),
                Err(_) => {
                    let mut random = Random(world.random.next());
                    world.file(self.id).settle_by_chance(&mut random);
                }
            }
            done
        })
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

    fn available(&self, _: &Path) -> Result<u64> {
        let world = self.world.lock();
        Ok(match world.capacity {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(world.used()),
        })
    }
}

#[cfg(test)]
mod tests;
