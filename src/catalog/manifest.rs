//! The manifest: the log of edits.
//!
//! ```text
//! manifest-NNNNNN   magic "EBBTIDEM" | format version u32 | crc32 u32 of these | frame*        (frames: coding.rs)
//! frame's payload   one Edit as JSON; the first says the whole catalogue
//! ```
//!
//! A manifest is created whole: written under a temporary name, synced, renamed, the folder synced; then older ones are
//! removed. The one with the highest number counts. An edit is durable when its frame is synced. Bytes behind the last
//! good frame are a torn tail. If a good frame follows them, or the copy has more edits, they are damage.
//!
//! A write that finds no room, or no memory, leaves no whole frame: its edit never happened, and the next one is
//! written over it. Some room is reserved behind the last edit, in the manifest and in the copy, so that an edit that
//! frees room on a full disk can be written.
//!
//! After any other failure of a write or of a sync it is unknown which bytes of the file are durable, and the file is
//! not written again: the edit goes to a new manifest, under a new number, with the sum of all edits. If that fails,
//! too, the manifest is *in doubt*: the edit may have happened or not. Until there is a new manifest without it,
//! nothing that it named or gave up may be removed, and nothing may be promised that it could break. A new manifest
//! that fails before it has its name does not count.
//!
//! Only the manifest knows what is live, deleted or dropped: the tables do not. So a *copy* with the same bytes is kept
//! in a folder of its own. It is begun when its manifest is durable under its name, and takes each edit after the edit
//! is durable in the manifest and before it is acknowledged. So the copy has every edit that anything relied on, and
//! none that its manifest did not have before; current.rs says what follows. If the copy cannot be written, an empty
//! file `copy/NNNNNN.none` takes its place, durably, before the manifest takes another edit; the next manifest has a
//! copy again. So whenever an edit is appended to a manifest, either a copy with all earlier edits exists or that file
//! does. If neither can be written, edits go to new manifests; only on a full disk is the old one appended to
//! nevertheless.
//!
//! The catalogue notes the changes by operations of the log as soon as they are durable there, and the next edit says them,
//! whatever its purpose, before its own. So the file lags behind the catalogue by what the log holds, and a new
//! manifest does not.
//!
//! The first manifest of a database has number 0, is created before any other file except the lock, and names no log.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::coding::{ByteReader, FRAME_HEADER_LEN, put_frame, read_frame};
use crate::base::{ContainerId, Error, Result, Timestamp, file_name};
use crate::catalog::catalogue::{Catalogue, Step};
use crate::catalog::edit::{Change, Edit, Logged};
use crate::env::{File, Fs, make_dir, sync_name};

const MAGIC: &[u8; 8] = b"EBBTIDEM";
const FORMAT_VERSION: u32 = 10;
/// The oldest version that this build reads: 7 has commands that expire items, 8 has limits of containers and how far
/// removing has come, which older builds would leave out; 9 has floors that a bulk load set apart, and which load did;
/// 10 repeats what operations of the log have changed.
const OLDEST_VERSION: u32 = 6;
const CRC_AT: usize = 12;
const HEADER_LEN: usize = 16;

/// A manifest longer than this and than four times its first edit is replaced by a new one.
const ROLL_BYTES: u64 = 1 << 20;

/// How many changes are noted, at most, before an edit says them.
const MOST_NOTED: usize = 256;

/// Room reserved behind the last edit of the manifest and of its copy, in bytes: enough for some hundred edits that
/// drop a table or release part of the log.
const RESERVE_BYTES: u64 = 32 << 10;

/// The sum of the edits in a manifest's bytes, and whether they end in a torn tail.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Catalogue, bool)> {
    let (catalogue, end) = sum(path, bytes)?;
    Ok((catalogue, end < bytes.len()))
}

/// The sum of the edits in a manifest's bytes, and their end.
pub(super) fn sum(path: &Path, bytes: &[u8]) -> Result<(Catalogue, usize)> {
    each_edit(path, bytes, &mut |_| {})
}

/// The same; shows the text of each edit before it is applied.
fn each_edit(path: &Path, bytes: &[u8], show: &mut dyn FnMut(&str)) -> Result<(Catalogue, usize)> {
    let damaged = |offset: usize, what: &str| Error::corruption(path, offset as u64, what);
    if bytes.len() < HEADER_LEN || &bytes[..8] != MAGIC {
        return Err(damaged(0, "not a manifest"));
    }
    let number_at =
        |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (found, crc) = (number_at(MAGIC.len()), number_at(CRC_AT));
    let had_none = (found, crc) == (1, 0); // Version 1 kept no checksum.
    if crc != crc32fast::hash(&bytes[..CRC_AT]) && !had_none {
        return Err(damaged(0, "the header does not match its checksum"));
    }
    if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&found) {
        return Err(Error::UnsupportedFormat {
            path: path.into(),
            found,
            supported: FORMAT_VERSION,
        });
    }
    let mut reader = ByteReader::new(bytes);
    reader.bytes(HEADER_LEN).expect("checked above");
    let mut catalogue = Catalogue::default();
    let mut edits = 0;
    while !reader.is_empty() {
        let start = reader.offset();
        let payload = match read_frame(&mut reader) {
            Ok(payload) => payload,
            Err(_) if edits > 0 && whole_frames(&bytes[start + 1..]).next().is_none() => {
                return Ok((catalogue, start));
            }
            Err(malformed) => return Err(damaged(start, malformed.what)),
        };
        let edit: Edit = serde_json::from_slice(payload)
            .map_err(|error| damaged(start, &format!("not an edit: {error}")))?;
        // The manifest's JSON is checked to be UTF-8.
        show(str::from_utf8(payload).unwrap_or_default());
        catalogue
            .apply(&edit)
            .map_err(|what| damaged(start, &what))?;
        edits += 1;
    }
    if edits == 0 {
        return Err(damaged(HEADER_LEN, "a manifest without an edit"));
    }
    Ok((catalogue, bytes.len()))
}

/// The text of each edit in a manifest.
pub fn edit_texts(fs: &dyn Fs, path: &Path) -> Result<Vec<String>> {
    let mut texts = vec![];
    each_edit(path, &fs.read(path)?, &mut |text| {
        texts.push(text.to_owned())
    })?;
    Ok(texts)
}

/// Whether the manifest of this number is of the version that this build writes, so that it may take edits.
pub fn is_current(fs: &dyn Fs, dir: &Path, number: u64) -> Result<bool> {
    Ok(version_of(fs, dir, number)? == Some(FORMAT_VERSION))
}

/// The version in the header of the manifest of this number.
pub fn version_of(fs: &dyn Fs, dir: &Path, number: u64) -> Result<Option<u32>> {
    let bytes = fs.read(&dir.join(file_name::manifest(number)))?;
    let version = bytes.get(MAGIC.len()..CRC_AT);
    Ok(version.map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes"))))
}

/// The payload of every whole frame in `bytes`, wherever it starts.
fn whole_frames(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = 0..bytes.len().saturating_sub(FRAME_HEADER_LEN);
    // An edit's payload is a JSON object, never empty.
    let starts = starts.filter(|at| bytes[at + FRAME_HEADER_LEN] == b'{');
    starts.filter_map(|at| read_frame(&mut ByteReader::new(&bytes[at..])).ok())
}

/// The highest edit in a manifest's bytes, whatever is damaged before it.
pub(super) fn highest_edit(bytes: &[u8]) -> u64 {
    let edits = whole_frames(bytes).filter_map(|frame| serde_json::from_slice::<Edit>(frame).ok());
    edits.map(|edit| edit.number).max().unwrap_or(0)
}

/// The manifest that edits are appended to.
pub struct Manifest {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    number: u64,
    /// Above the number of every manifest that was begun in this folder.
    next_number: u64,
    file: Box<dyn File>,
    len: u64,
    first_len: u64,
    /// Up to here room is reserved in the file and its copy.
    reserved: u64,
    /// Whether it is unknown if a failed edit happened.
    in_doubt: bool,
    copy: Option<Box<dyn File>>,
    /// Whether there is no copy, and that is durably recorded.
    says_no_copy: bool,
    /// The sum of the edits in the file, and all that is noted.
    catalogue: Catalogue,
    /// The changes that are noted, and that no edit says.
    noted: Vec<Change>,
}

impl Manifest {
    /// Starts manifest `number` with the contents of `catalogue`.
    pub fn start(
        fs: Arc<dyn Fs>,
        dir: &Path,
        number: u64,
        catalogue: Catalogue,
    ) -> Result<Manifest> {
        let written = write_with_room(fs.as_ref(), dir, number, &catalogue)?;
        Ok(Manifest::over(fs, dir, number, written, catalogue))
    }

    /// Continues manifest `number`, in which these bytes were found, where there is no room for a new one. After a failed sync
    /// bytes may have been in the page cache alone, and may be gone at the next read. So they are not read again, and are
    /// written once more, in place.
    pub fn resume(fs: Arc<dyn Fs>, dir: &Path, number: u64, found: &[u8]) -> Result<Manifest> {
        let path = dir.join(file_name::manifest(number));
        let (catalogue, _) = sum(&path, found)?;
        let len = found.len() as u64;
        let again = |path: &Path| {
            let file = fs.open(path)?;
            if fs.len(path)?.is_some_and(|stored| stored > len) {
                file.truncate(len)?;
            }
            file.write_at(0, found)?;
            file.sync()?;
            Ok(file)
        };
        let file = again(&path)?;
        let written = Written {
            file,
            copy: again(&copy_path(dir, number)).ok(),
            len,
        };
        Ok(Manifest::over(fs, dir, number, written, catalogue))
    }

    fn over(
        fs: Arc<dyn Fs>,
        dir: &Path,
        number: u64,
        written: Written,
        catalogue: Catalogue,
    ) -> Manifest {
        let mut manifest = Manifest {
            fs,
            dir: dir.into(),
            number,
            next_number: number + 1,
            file: written.file,
            copy: written.copy,
            says_no_copy: false,
            len: written.len,
            first_len: written.len,
            reserved: 0,
            in_doubt: false,
            catalogue,
            noted: vec![],
        };
        manifest.reserve();
        manifest
    }

    /// The durable catalogue: part of it may stand in the log alone.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Notes what operations of the log have changed, which are durable there.
    pub fn note(&mut self, logged: Logged) {
        let noted = self.catalogue.note(&logged);
        noted.expect("the engine's operations fit its catalogue");
        for change in logged.changes {
            if let Change::Settings(id, ..) = change {
                self.forget_settings(id);
            }
            self.noted.push(change);
        }
    }

    /// Leaves out earlier settings of a container, which later ones replace, but for what they say of its changes.
    fn forget_settings(&mut self, id: ContainerId) {
        let noted = self.noted.len();
        let is_of_it = |change: &Change| match change {
            Change::Settings(of, ..) | Change::ChangesFrom(of, _) => *of == id,
            _ => false,
        };
        self.noted.retain(|change| !is_of_it(change));
        let record = self.catalogue.containers.get(&id);
        if let Some(record) = record.filter(|_| self.noted.len() < noted) {
            let from = Change::ChangesFrom(id, record.changes_from);
            self.noted.push(from);
        }
    }

    /// Whether so much is noted that an edit is to say it: it would become long, and it is kept in memory.
    pub fn wants_edit(&self) -> bool {
        self.noted.len() > MOST_NOTED
    }

    /// Whether it is unknown if a failed edit happened.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Makes the changes durable, as one edit. If it fails and the manifest is not in doubt, nothing has changed.
    pub fn commit(&mut self, changes: Vec<Change>, time_high_water: Timestamp) -> Result<()> {
        let edit = Edit {
            number: self.catalogue.edit + 1,
            time_high_water: time_high_water.max(self.catalogue.time_high_water),
            changes,
        };
        let step = self
            .catalogue
            .step(&edit)
            .expect("the engine's edits fit its catalogue");
        if self.in_doubt {
            return self.roll(self.after(step));
        }
        let is_unsaid = self.copy.is_none() && !self.give_up_copy();
        if is_unsaid || self.len > ROLL_BYTES.max(4 * self.first_len) {
            match self.roll(self.after(step.clone())) {
                // Keep the long manifest: an edit that frees room is short.
                Err(error) if !self.in_doubt && (!is_unsaid || error.is_full()) => {}
                done => return done,
            }
        }
        self.append(&edit, step)
    }

    /// The whole catalogue after a step, for a new manifest.
    fn after(&self, step: Step) -> Catalogue {
        let mut next = self.catalogue.clone();
        next.take(step);
        next
    }

    /// Resolves an edit in doubt, by a new manifest without it.
    pub fn resolve_doubt(&mut self) -> Result<()> {
        if self.in_doubt {
            return self.roll(self.catalogue.clone());
        }
        Ok(())
    }

    fn append(&mut self, edit: &Edit, step: Step) -> Result<()> {
        let frame = self.frame_of(edit);
        let written = self.file.write_at(self.len, &frame);
        if let Err(error) = &written
            && error.is_shortage()
        {
            // The part that was written is overwritten by the next edit, or is a torn tail.
            let _ = self.file.truncate(self.len);
            self.reserved = 0;
            return written;
        }
        if written.and_then(|()| self.file.sync()).is_err() {
            self.in_doubt = true;
            return self.roll(self.after(step));
        }
        let append = |copy: &dyn File| copy.write_at(self.len, &frame).and_then(|()| copy.sync());
        if self
            .copy
            .as_deref()
            .is_some_and(|copy| append(copy).is_err())
        {
            self.give_up_copy();
        }
        self.len += frame.len() as u64;
        self.catalogue.take(step);
        self.noted.clear();
        self.reserve();
        Ok(())
    }

    /// The bytes of an edit, which says first what is noted.
    fn frame_of(&self, edit: &Edit) -> Vec<u8> {
        let mut changes = self.noted.clone();
        if !changes.is_empty() {
            changes.push(Change::Repeated(self.catalogue.repeated));
        }
        changes.extend(edit.changes.iter().cloned());
        let edit = Edit { changes, ..*edit };
        let mut frame = vec![];
        put_frame(
            &mut frame,
            &serde_json::to_vec(&edit).expect("an edit is JSON"),
        );
        frame
    }

    /// Gives up the copy. True: that is durably recorded, so a power cut may tear the next edit. Renames the copy's own
    /// file to record it, because a full disk may have no room for a new file.
    fn give_up_copy(&mut self) -> bool {
        self.copy = None;
        if self.says_no_copy {
            return true;
        }
        let (fs, number) = (self.fs.as_ref(), self.number);
        let (copy, none) = (
            copy_path(&self.dir, number),
            no_copy_path(&self.dir, number),
        );
        let named = match (fs.len(&copy), fs.len(&none)) {
            (Ok(Some(_)), _) => fs.rename(&copy, &none),
            (_, Ok(Some(_))) => Ok(()),
            _ => fs.create(&none).map(drop),
        };
        let copy_dir = self.dir.join(file_name::COPY_DIR);
        self.says_no_copy = named.and_then(|()| fs.sync_dir(&copy_dir)).is_ok();
        if self.says_no_copy {
            // Only after the rename: a truncated copy would look damaged.
            let _ = fs.open(&none).and_then(|file| file.truncate(0));
        }
        self.says_no_copy
    }

    /// How much [`Manifest::lend_room`] frees at most, in bytes.
    pub fn lendable(&self) -> u64 {
        self.copy.as_ref().map_or(0, |_| RESERVE_BYTES)
    }

    /// Frees the room reserved behind the copy's last edit, for work that will free more. If the next edit finds no
    /// room there, the copy is given up, and the next manifest has a new one.
    pub fn lend_room(&mut self) {
        let Some(copy) = &self.copy else {
            return;
        };
        self.reserved = 0;
        // Durably, before another file takes the room.
        if copy.truncate(self.len).and_then(|()| copy.sync()).is_err() {
            self.give_up_copy();
        }
    }

    /// Reserves room for later edits. If there is none, they may still find some.
    pub fn reserve(&mut self) {
        let wanted = self.len + RESERVE_BYTES;
        let mut files = [&self.file].into_iter().chain(&self.copy);
        if self.reserved < wanted - RESERVE_BYTES / 2
            && files.all(|file| file.reserve(wanted).is_ok())
        {
            self.reserved = wanted;
        }
    }

    fn roll(&mut self, next: Catalogue) -> Result<()> {
        let (fs, number) = (self.fs.as_ref(), self.next_number);
        let path = self.dir.join(file_name::manifest(number));
        let written = write_with_room(fs, &self.dir, number, &next).inspect_err(|_| {
            // Once it has its name it counts, durably or not; without, nothing has happened.
            if !matches!(fs.len(&path), Ok(None)) {
                self.in_doubt = true;
                self.next_number += 1;
            }
        })?;
        for older in self.number..number {
            // If they stay, they are only some kilobytes, and the next open removes them.
            let _ = fs.remove(&self.dir.join(file_name::manifest(older)));
            let _ = fs.remove(&copy_path(&self.dir, older));
            let _ = fs.remove(&no_copy_path(&self.dir, older));
        }
        *self = Manifest::over(self.fs.clone(), &self.dir.clone(), number, written, next);
        Ok(())
    }

    /// Bytes of the file and of its copy.
    pub fn len(&self) -> u64 {
        self.len * if self.copy.is_some() { 2 } else { 1 }
    }
}

/// Fails if a name of the database's own is not what it should be: folders must be folders, because a link would lead
/// elsewhere, and files must be files, whether they are needed or not. An object that another program put there is not
/// read, waited for or removed.
pub fn expect_own(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let (tables, wal, copy) = (
        dir.join(file_name::TABLES_DIR),
        dir.join(file_name::WAL_DIR),
        dir.join(file_name::COPY_DIR),
    );
    let lost = dir.join(file_name::LOST_DIR);
    let folders = [dir, &tables, &wal, &copy, &lost].into_iter();
    folders
        .skip(1)
        .try_for_each(|folder| fs.expect_dir(folder))?;
    for folder in [dir, &tables, &wal, &copy] {
        if !fs.is_dir(folder) {
            continue;
        }
        let is_own = |name: &String| match folder == dir {
            true => name == file_name::LOCK || file_name::is_manifest(name),
            false => file_name::is_numbered(name),
        };
        for name in fs.list_all(folder)?.iter().filter(|name| is_own(name)) {
            fs.len(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The path of a manifest's copy.
pub fn copy_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name::COPY_DIR).join(file_name::copy(number))
}

/// The path of the file that records that a manifest has no copy.
pub(super) fn no_copy_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name::COPY_DIR)
        .join(file_name::no_copy(number))
}

/// A manifest and its copy, just written.
pub struct Written {
    file: Box<dyn File>,
    copy: Option<Box<dyn File>>,
    len: u64,
}

/// Makes a folder a database without containers, durably: creates its folders and a manifest.
pub fn begin(fs: &dyn Fs, dir: &Path, given_time: bool) -> Result<Catalogue> {
    // An interrupted call may have made the folder.
    sync_name(fs, dir)?;
    for name in [file_name::TABLES_DIR, file_name::WAL_DIR] {
        make_dir(fs, &dir.join(name))?;
    }
    let catalogue = Catalogue::of_nothing(RandomState::new().hash_one(dir), given_time);
    write_both(fs, dir, 0, &catalogue)?;
    Ok(catalogue)
}

/// Writes a whole manifest under its name, durably, and then its copy.
pub fn write_both(fs: &dyn Fs, dir: &Path, number: u64, catalogue: &Catalogue) -> Result<Written> {
    write(fs, dir, number, catalogue, 0)
}

/// The same of one that takes edits. The room for the first is durable with it: all that is said before an edit may be in the
/// log, and then the disk may be full.
fn write_with_room(fs: &dyn Fs, dir: &Path, number: u64, catalogue: &Catalogue) -> Result<Written> {
    write(fs, dir, number, catalogue, RESERVE_BYTES)
}

fn write(
    fs: &dyn Fs,
    dir: &Path,
    number: u64,
    catalogue: &Catalogue,
    room: u64,
) -> Result<Written> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    put_frame(
        &mut bytes,
        &serde_json::to_vec(&catalogue.to_edit()).expect("an edit is JSON"),
    );
    let copy_dir = dir.join(file_name::COPY_DIR);
    // Before the manifest, so that the folder's name becomes durable with the manifest's.
    let made = make_dir(fs, &copy_dir);
    let file = write_whole(fs, dir, file_name::manifest(number), &bytes, room)?;
    let name = file_name::copy(number);
    let copy = made.and_then(|()| write_whole(fs, &copy_dir, name, &bytes, room));
    Ok(Written {
        file,
        copy: copy.ok(),
        len: bytes.len() as u64,
    })
}

/// Writes a whole file under its name, durably, with room behind it if the disk has some.
fn write_whole(
    fs: &dyn Fs,
    dir: &Path,
    name: String,
    bytes: &[u8],
    room: u64,
) -> Result<Box<dyn File>> {
    let path = dir.join(&name);
    let temporary = dir.join(name + file_name::TEMPORARY);
    if fs.len(&temporary)?.is_some() {
        fs.remove(&temporary)?;
    }
    // Before the file gets its name: a folder that cannot be opened afterwards would leave it in doubt.
    let names = fs.open_dir(dir)?;
    let file = fs.create(&temporary)?;
    file.write_at(0, bytes)
        .and_then(|()| {
            if room > 0 {
                let _ = file.reserve(bytes.len() as u64 + room);
            }
            file.sync()
        })
        .inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.rename(&temporary, &path)?;
    names.sync()?;
    Ok(file)
}
