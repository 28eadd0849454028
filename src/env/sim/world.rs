//! The state of a simulated file system, and what a power cut leaves of it.
//!
//! Every file and folder is kept twice: as programs see it now, and as it is *durable*, with the steps between the two
//! in order. Syncing a file or a folder carries out the steps. A power cut carries out some of them:
//!
//! ```text
//! file      durable bytes | write, write, size, write ...   each 512-byte sector stops after a step of its own, and so
//!                                                           does the size
//! folder    durable names | create, rename, remove ...      any of them; but never a later change of a name or a file
//!                                                           without the earlier ones, as journals keep those in order
//! ring      durable bytes | bytes now                       each sector is as it is now or as it was some time before
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::env::fs::LockKind;

/// What a power cut keeps whole or loses whole.
pub(super) const SECTOR: usize = 512;

/// A stream of numbers made from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One failure to come.
#[derive(Clone, Copy, Debug)]
pub struct FaultPlan {
    /// The first operation whose number, as [`Sim::operations`](super::Sim::operations) counts, is not below this one fails. Stores to a ring
    /// are counted, but cannot fail.
    pub at: u64,
    /// What it fails with.
    pub kind: io::ErrorKind,
    /// All later ones fail too.
    pub lasting: bool,
}

/// A file's step from durable to now.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

impl Step {
    pub(super) fn carry_out(&self, image: &mut Vec<u8>) {
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
    pub(super) fn size(&self, before: usize) -> usize {
        match self {
            Step::Write { offset, bytes } => before.max(offset + bytes.len()),
            Step::Size(len) => *len,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    pub(super) now: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// What leads from `durable` to `now`; unused in a ring.
    pub(super) steps: Vec<Step>,
    /// Bytes that count against the capacity.
    pub(super) reserved: u64,
    pub(super) ring: bool,
    /// Open handles; a file without a name lives as long as it has one.
    pub(super) handles: usize,
}

impl FileState {
    pub(super) fn take(&mut self, step: Step) {
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

    pub(super) fn sync(&mut self) {
        for step in self.steps.drain(..) {
            step.carry_out(&mut self.durable);
        }
    }

    /// What a power cut would leave becomes durable, and the steps are forgotten.
    pub(super) fn settle_by_chance(&mut self, random: &mut Random) {
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
    pub(super) fn write_back(&mut self, sector: usize) {
        let from = sector * SECTOR;
        let to = (from + SECTOR).min(self.now.len());
        self.durable[from..to].copy_from_slice(&self.now[from..to]);
    }
}

pub(super) type FileId = u64;
pub(super) type FolderId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    File(FileId),
    Folder(FolderId),
}

/// One change of one name. A rename is two with the same `operation`: both happen or neither does.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) operation: u64,
    pub(super) name: String,
    pub(super) to: Option<Node>,
    /// What had or gets the name.
    pub(super) node: Node,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FolderState {
    pub(super) now: BTreeMap<String, Node>,
    pub(super) durable: BTreeMap<String, Node>,
    /// What leads from `durable` to `now`.
    pub(super) changes: Vec<Change>,
}

impl Change {
    pub(super) fn carry_out(&self, names: &mut BTreeMap<String, Node>) {
        match self.to {
            Some(node) => names.insert(self.name.clone(), node),
            None => names.remove(&self.name),
        };
    }
}

pub(super) const ROOT: FolderId = 0;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) random: Random,
    pub(super) folders: BTreeMap<FolderId, FolderState>,
    pub(super) files: BTreeMap<FileId, FileState>,
    pub(super) next_id: u64,
    /// How each locked path is held: alone, or by how many.
    pub(super) locks: BTreeMap<PathBuf, (LockKind, usize)>,
    pub(super) operations: u64,
    pub(super) fault: Option<FaultPlan>,
    pub(super) capacity: u64,
}

pub(super) type Outcome<T> = io::Result<T>;

pub(super) fn refused<T>(kind: io::ErrorKind) -> Outcome<T> {
    Err(kind.into())
}

impl World {
    pub(super) fn folder_at(&self, path: &Path) -> Outcome<FolderId> {
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
    pub(super) fn place(&self, path: &Path) -> Outcome<(FolderId, String)> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        let folder = self.folder_at(path.parent().unwrap_or(Path::new("")))?;
        Ok((folder, name.to_owned()))
    }

    pub(super) fn file_at(&self, path: &Path) -> Outcome<FileId> {
        let (folder, name) = self.place(path)?;
        match self.folders[&folder].now.get(&name) {
            Some(&Node::File(id)) => Ok(id),
            Some(Node::Folder(_)) => refused(io::ErrorKind::IsADirectory),
            None => refused(io::ErrorKind::NotFound),
        }
    }

    pub(super) fn file(&mut self, id: FileId) -> &mut FileState {
        self.files.get_mut(&id).expect("an open file is kept")
    }

    pub(super) fn change(&mut self, folder: FolderId, name: &str, to: Option<Node>) {
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

    pub(super) fn new_file(&mut self, folder: FolderId, name: &str) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, FileState::default());
        self.change(folder, name, Some(Node::File(id)));
        id
    }

    /// Counts an operation that changes or syncs something; says when it is the one to fail.
    pub(super) fn step(&mut self) -> Outcome<()> {
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
    pub(super) fn used(&self) -> u64 {
        let nodes = self.folders.values().flat_map(|folder| folder.now.values());
        let files: BTreeSet<&Node> = nodes.collect();
        let reserved = |node: &&Node| match node {
            Node::File(id) => self.files[id].reserved,
            Node::Folder(_) => 0,
        };
        files.iter().map(reserved).sum()
    }

    pub(super) fn check_room(&self, more: u64) -> Outcome<()> {
        let full = self.capacity != u64::MAX && self.used().saturating_add(more) > self.capacity;
        if full {
            return refused(io::ErrorKind::StorageFull);
        }
        Ok(())
    }

    /// Forgets files and folders that nothing leads to any more.
    pub(super) fn sweep(&mut self) {
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
    pub(super) fn cut_power(&mut self) {
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
