//! The state of a simulated file system, and what a power cut leaves of it.
//!
//! Every file and folder is kept twice: as programs see it now, and as it is *durable*, with the steps between the two
//! in order. Syncing a file or a folder applies the steps. A power cut applies some of them:
//!
//! ```text
//! file      durable bytes | write, write, size, write ...   each 512-byte sector keeps steps of its own choice, the last
//!                                                           one perhaps in part; and so does the size
//! folder    durable names | create, rename, remove ...      any of them, each for itself; of a rename nothing, the new
//!                                                           name beside the old one, or the new name alone
//! ring      durable bytes | written back | bytes now        each sector is as it is now, as it was some time before, or
//!                                                           as it was when the ring was made; it may be torn, too
//! ```
//!
//! A failed sync does what [`FailedSync`] says. Every other failed call has changed nothing, except a write, of which a
//! part may be done.
//!
//! **Stricter than ext4, XFS and btrfs.** They keep changes of names in order (a journal ends at one of them) and never
//! show both names of a rename; syncing a new file makes its name durable, too; a page that a failed sync has lost is
//! written whole once any byte of it is written again; a sector is not torn; of two writes to one sector the later one
//! is not kept without the earlier one. **Less strict:** reserved room that was not written reads as zeros, never as
//! the old contents of the disk; maps of files are copies, so that a page in use is not evicted; and there is no bit
//! rot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::fault::{Call, FaultPlan, Filter};
use super::image::{Image, SECTOR};
use crate::env::fs::LockKind;

/// Pseudo-random numbers from a seed (splitmix64).
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

/// The effect of a failed sync on bytes that did not reach the disk. Some of them may have reached it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedSync {
    /// They count as written, and no later sync writes them: reads see them until the system needs the memory, at the
    /// latest until a restart. ext4 and XFS do this.
    Forgotten,
    /// The next sync writes them.
    Kept,
    /// The old contents are back. btrfs does this.
    Reverted,
}

impl FailedSync {
    /// All variants.
    pub const ALL: [FailedSync; 3] = [
        FailedSync::Forgotten,
        FailedSync::Kept,
        FailedSync::Reverted,
    ];
}

/// The unsynced changes that a power cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Nothing.
    Nothing,
    /// All.
    Everything,
    /// The names, and no contents of files.
    Names,
    /// The contents of files, and no names.
    Data,
    /// A choice by this seed.
    Chance(u64),
}

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

impl Step {
    pub(super) fn carry_out(&self, image: &mut Image) {
        match self {
            Step::Write { offset, bytes } => {
                image.resize(image.len().max(offset + bytes.len()));
                image.write(*offset, bytes);
            }
            Step::Size(len) => image.resize(*len),
        }
    }

    /// Applies the step in the first bytes of each sector, as many as `kept` says; does not truncate, but zeroes what a
    /// truncation removes.
    fn carry_out_in_part(&self, image: &mut Image, kept: impl Fn(usize) -> usize) {
        let (start, end) = match self {
            Step::Write { offset, bytes } => (*offset, offset + bytes.len()),
            Step::Size(len) => (*len, image.len()),
        };
        image.resize(image.len().max(start).max(end));
        let mut from = start;
        while from < end {
            let sector = from / SECTOR;
            let next = (sector + 1) * SECTOR;
            let to = end.min(sector * SECTOR + kept(sector));
            if from < to {
                match self {
                    Step::Write { bytes, .. } => {
                        image.write(from, &bytes[from - start..to - start]);
                    }
                    Step::Size(_) => image.clear(from..to),
                }
            }
            from = next;
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

#[derive(Clone, Default)]
pub(super) struct FileState {
    pub(super) now: Image,
    pub(super) durable: Image,
    /// The steps from `durable` to `now`; unused in a ring.
    pub(super) steps: Vec<Step>,
    /// A failed sync discarded some steps: until it is evicted, `now` differs from what the steps produce.
    lost: bool,
    /// Bytes that count against the capacity, now and after a power cut.
    pub(super) reserved: u64,
    durably_reserved: u64,
    /// For a ring, what the system has written to the disk by itself.
    pub(super) written_back: Option<Image>,
    /// Open handles; an unlinked file exists while it has one.
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
        if let Some(written_back) = &mut self.written_back {
            written_back.clone_from(&self.now);
            self.durable.clone_from(&self.now);
        }
        self.durably_reserved = self.reserved;
    }

    pub(super) fn fail_to_sync(&mut self, then: FailedSync, random: &mut Random) {
        if then == FailedSync::Kept {
            return;
        }
        self.resolve_by_chance(random);
        self.lost = true;
        if then == FailedSync::Reverted {
            self.evict();
        }
    }

    /// Evicts from memory what the system takes to be on the disk.
    pub(super) fn evict(&mut self) {
        if std::mem::take(&mut self.lost) {
            self.now.clone_from(&self.durable);
            for step in &self.steps {
                step.carry_out(&mut self.now);
            }
        }
    }

    pub(super) fn evict_by_chance(&mut self, random: &mut Random) {
        if self.lost && random.below(2) == 0 {
            self.evict();
        }
    }

    /// Decides what a power cut leaves, where `survivors` is not random.
    pub(super) fn resolve_unsynced(&mut self, all: bool) {
        if self.written_back.is_some() {
            if all {
                self.durable.clone_from(&self.now);
            }
        } else if all {
            self.sync();
        } else {
            self.steps.clear();
        }
    }

    /// Makes what a random power cut would leave durable, and removes the steps.
    pub(super) fn resolve_by_chance(&mut self, random: &mut Random) {
        let salt = random.next();
        let chance = |of: u64, n: usize| Random(salt ^ of.rotate_left(32)).below(n as u64) as usize;
        // About one sector in some is torn.
        let torn = |sector: usize| match chance(!(sector as u64), 16) {
            0 => chance(sector as u64 ^ 1 << 40, SECTOR),
            _ => SECTOR,
        };
        if let Some(written_back) = &self.written_back {
            let mut image = std::mem::take(&mut self.durable);
            for at in Image::differing([&image, written_back, &self.now]) {
                let end = (at + SECTOR).min(image.len());
                let sector = at / SECTOR;
                let to = end.min(at + torn(sector));
                let images = [None, Some(written_back), Some(&self.now), Some(&self.now)];
                if let Some(from) = images[chance(sector as u64, images.len())] {
                    // A torn one has half of what was written back.
                    image.copy(written_back, at..end);
                    image.copy(from, at..to);
                }
            }
            self.durable = image;
            return;
        }
        let steps = std::mem::take(&mut self.steps);
        let len = steps.len();
        // How much of a step a sector keeps. Sometimes the whole file stops at one step: before all, after all, or between;
        // or each sector stops at one of its own, or keeps any of them.
        let way = random.below(6);
        let common = random.below(len as u64 + 1) as usize;
        let kept = |step: usize, sector: usize| {
            let stop = match way {
                0 => 0,
                1 => len,
                2 => common,
                3 | 4 => chance(sector as u64, len + 1),
                _ => {
                    let all = chance(sector as u64 ^ (step as u64) << 20, 2) == 0;
                    return if all { torn(sector) } else { 0 };
                }
            };
            match step {
                _ if step + 1 < stop => SECTOR,
                _ if step + 1 == stop && way >= 3 => torn(sector),
                _ if step + 1 == stop => SECTOR,
                _ => 0,
            }
        };
        let mut image = std::mem::take(&mut self.durable);
        // The size is in a sector of its own, which is never torn.
        let keeps_size = |(index, _): &(usize, &Step)| kept(*index, usize::MAX >> 16) > 0;
        let size = steps.iter().enumerate().filter(keeps_size);
        let size = size.fold(image.len(), |size, (_, step)| step.size(size));
        for (index, step) in steps.iter().enumerate() {
            step.carry_out_in_part(&mut image, |sector| kept(index, sector));
        }
        image.resize(size);
        self.durable = image;
    }

    /// Writes a ring's sector to the disk.
    pub(super) fn write_back(&mut self, sector: usize) {
        let from = sector * SECTOR;
        let to = (from + SECTOR).min(self.now.len());
        let image = self.written_back.as_mut().expect("a ring");
        image.copy(&self.now, from..to);
    }
}

pub(super) type FileId = u64;
pub(super) type FolderId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    File(FileId),
    Folder(FolderId),
}

/// A change of one name. A rename is two: the new name, then the end of the old one, which needs the new one.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) to: Option<Node>,
    /// The object that had or gets the name.
    pub(super) node: Node,
    /// Whether the change before it in this folder belongs to the same rename.
    pub(super) ends_rename: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FolderState {
    pub(super) now: BTreeMap<String, Node>,
    pub(super) durable: BTreeMap<String, Node>,
    /// The changes from `durable` to `now`.
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

#[derive(Clone)]
pub(super) struct World {
    pub(super) random: Random,
    pub(super) folders: BTreeMap<FolderId, FolderState>,
    pub(super) files: BTreeMap<FileId, FileState>,
    pub(super) next_id: u64,
    /// How each locked folder is held: exclusively, or by how many.
    pub(super) locks: BTreeMap<PathBuf, (LockKind, usize)>,
    /// Open handles of folders.
    pub(super) open_dirs: usize,
    pub(super) operations: u64,
    pub(super) fault: Option<(FaultPlan, Option<Filter>)>,
    pub(super) failed_sync: FailedSync,
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

    /// The bytes of a file that a program reads. Some may have been evicted since a failed sync.
    pub(super) fn look_at(&mut self, id: FileId) -> &Image {
        let mut random = Random(self.random.0 ^ self.operations);
        let file = self.file(id);
        file.evict_by_chance(&mut random);
        &file.now
    }

    pub(super) fn change(&mut self, folder: FolderId, name: &str, to: Option<Node>) {
        let folder = self.folders.get_mut(&folder).expect("folders are kept");
        let node = to
            .or_else(|| folder.now.get(name).copied())
            .expect("a name that goes was there");
        let change = Change {
            name: name.to_owned(),
            to,
            node,
            ends_rename: false,
        };
        change.carry_out(&mut folder.now);
        folder.changes.push(change);
    }

    pub(super) fn rename(&mut self, folder: FolderId, from: &str, to: &str, file: FileId) {
        self.change(folder, to, Some(Node::File(file)));
        self.change(folder, from, None);
        let folder = self.folders.get_mut(&folder).expect("folders are kept");
        folder.changes.last_mut().expect("just made").ends_rename = true;
    }

    pub(super) fn new_folder(&mut self, folder: FolderId, name: &str) {
        let id = self.next_id;
        self.next_id += 1;
        self.folders.insert(id, FolderState::default());
        self.change(folder, name, Some(Node::Folder(id)));
    }

    pub(super) fn new_file(&mut self, folder: FolderId, name: &str) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, FileState::default());
        self.change(folder, name, Some(Node::File(id)));
        id
    }

    /// Counts a call; fails if it is one to fail.
    pub(super) fn step(&mut self, call: &Call<'_>) -> Outcome<()> {
        self.operations += 1;
        let Some((plan, filter)) = &self.fault else {
            return Ok(());
        };
        let meets = plan.at <= self.operations
            && plan.kind.meets(call.does)
            && filter.as_ref().is_none_or(|meets| meets(call));
        if !meets {
            return Ok(());
        }
        let error = plan.kind.error();
        if !plan.lasting {
            self.fault = None;
        }
        Err(error)
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

    /// Removes files and folders that nothing refers to.
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

    /// Leaves the state after a power cut.
    pub(super) fn cut_power(&mut self, survivors: Survivors) {
        if let Survivors::Chance(seed) = survivors {
            self.random = Random(seed);
        }
        let random = &mut self.random;
        let names_below = match survivors {
            Survivors::Nothing | Survivors::Data => 0,
            Survivors::Everything | Survivors::Names => 2,
            // Sometimes none, sometimes all.
            Survivors::Chance(_) => [0, 1, 1, 2][random.below(4) as usize],
        };
        for folder in self.folders.values_mut() {
            let mut before = false;
            for change in std::mem::take(&mut folder.changes) {
                before = (before || !change.ends_rename) && random.below(2) < names_below;
                if before {
                    change.carry_out(&mut folder.durable);
                }
            }
            folder.now = folder.durable.clone();
        }
        for file in self.files.values_mut() {
            match survivors {
                Survivors::Nothing | Survivors::Names => file.resolve_unsynced(false),
                Survivors::Everything | Survivors::Data => file.resolve_unsynced(true),
                Survivors::Chance(_) => file.resolve_by_chance(random),
            }
            file.lost = false;
            file.now = file.durable.clone();
            if let Some(written_back) = &mut file.written_back {
                written_back.clone_from(&file.now);
            }
            file.reserved = file.durably_reserved.max(file.now.len() as u64);
        }
    }
}
