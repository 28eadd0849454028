//! The manifest: the log of edits.
//!
//! ```text
//! manifest-NNNNNN   magic "EBBTIDEM" | format version u32 | crc32 u32 of these | frame*        (frames: coding.rs)
//! frame's payload   one Edit as JSON; the first says the whole catalogue
//! ```
//!
//! A manifest comes into being whole: written under a temporary name, synced, renamed, the folder synced; then older
//! ones are removed. The one with the highest number counts. An edit is durable when its frame is synced. What stands
//! behind the last good frame is a torn tail, unless a good frame follows it: then it is damage. So it is when the copy
//! knows better.
//!
//! A write that finds no room, or no memory, leaves no whole frame, so its edit never happened, and the next one takes
//! its place. Some room is reserved behind the last edit, there and in the copy, so that an edit that frees a full disk
//! finds it.
//!
//! After another failure of a write, or of a sync, nobody knows what of the file is durable, and it is not written again:
//! the edit goes to a new manifest, under a number of its own, as the sum of all. If that fails, too, the manifest is *in
//! doubt*: the edit may have happened or not. Nothing that it named or gave up may be removed, nothing may be promised
//! that it could break, until a new manifest without it is there. One that fails before it has its name is none.
//!
//! What is live, deleted or dropped is known to the manifest alone: from tables it cannot be told. So a *copy* with the
//! same bytes lies in a folder of its own. It begins when its manifest is durable under its name, and takes each edit when
//! that is durable in the manifest, but before it is acknowledged. So the copy knows all that anything relied on, and
//! nothing that its manifest did not know before: what follows from that is told in current.rs. When it cannot be written,
//! an empty file takes its place, `copy/NNNNNN.none`, durably, before the manifest takes another edit; a new copy comes
//! with the next manifest. So while a manifest is appended to, there is a copy with all edits before, or that file. Where
//! neither can be had, edits go to new manifests; on a full disk alone the old one is appended to nevertheless.
//!
//! The first manifest of a database, of number 0, is there before any other file of it but the lock, and names no log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::coding::{FRAME_HEADER_LEN, Reader, put_frame, read_frame};
use crate::base::{Error, Result, Timestamp, file_name};
use crate::catalog::edit::{Catalogue, Change, Edit, Step};
use crate::env::{File, Fs, make_dir, sync_name};

const MAGIC: &[u8; 8] = b"EBBTIDEM";
const FORMAT_VERSION: u32 = 5;
const CRC_AT: usize = 12;
const HEADER_LEN: usize = 16;

/// A manifest longer than this, and than four times its first edit, is written anew.
const ROLL_BYTES: u64 = 1 << 20;

/// Room behind the last edit, in bytes, in the manifest and in its copy: for some hundred edits that drop a table or let go of a piece of the log.
const RESERVE_BYTES: u64 = 32 << 10;

/// The sum of the edits in a manifest's bytes, and whether they end in a torn tail.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Catalogue, bool)> {
    let (catalogue, end) = sum(path, bytes)?;
    Ok((catalogue, end < bytes.len()))
}

/// The sum of the edits in a manifest's bytes, and where they end.
pub(super) fn sum(path: &Path, bytes: &[u8]) -> Result<(Catalogue, usize)> {
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
    if found != FORMAT_VERSION {
        return Err(Error::UnsupportedFormat {
            path: path.into(),
            found,
            supported: FORMAT_VERSION,
        });
    }
    let mut reader = Reader::new(bytes);
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

/// The payload of every frame in `bytes` that is whole, wherever it starts.
fn whole_frames(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = 0..bytes.len().saturating_sub(FRAME_HEADER_LEN);
    // An edit's payload is a JSON object, never empty.
    let starts = starts.filter(|at| bytes[at + FRAME_HEADER_LEN] == b'{');
    starts.filter_map(|at| read_frame(&mut Reader::new(&bytes[at..])).ok())
}

/// The highest edit in a manifest's bytes, whatever is damaged between.
pub(super) fn highest_edit(bytes: &[u8]) -> u64 {
    let edits = whole_frames(bytes).filter_map(|frame| serde_json::from_slice::<Edit>(frame).ok());
    edits.map(|edit| edit.number).max().unwrap_or(0)
}

/// The manifest that is being written.
pub struct Manifest {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    number: u64,
    /// Above every manifest that was ever begun here.
    next_number: u64,
    file: Box<dyn File>,
    len: u64,
    first_len: u64,
    /// Up to here the file and its copy have their room.
    reserved: u64,
    /// An edit failed, and may have happened.
    in_doubt: bool,
    copy: Option<Box<dyn File>>,
    /// There is no copy, and that is said durably.
    says_no_copy: bool,
    catalogue: Catalogue,
}

impl Manifest {
    /// Starts manifest `number` with what `catalogue` says.
    pub fn start(
        fs: Arc<dyn Fs>,
        dir: &Path,
        number: u64,
        catalogue: Catalogue,
    ) -> Result<Manifest> {
        let written = write_both(fs.as_ref(), dir, number, &catalogue)?;
        Ok(Manifest::over(fs, dir, number, written, catalogue))
    }

    /// Goes on with manifest `number`, which takes no room. Only if a new one finds none: what was read of this one may
    /// never have come to the disk, if its last sync failed. Therefore it is written once more, where it is.
    pub fn resume(fs: Arc<dyn Fs>, dir: &Path, number: u64) -> Result<Manifest> {
        let path = dir.join(file_name::manifest(number));
        let bytes = fs.read(&path)?;
        let (catalogue, end) = sum(&path, &bytes)?;
        let again = |path: &Path| {
            let file = fs.open(path)?;
            if fs.len(path)?.is_some_and(|len| len > end as u64) {
                file.truncate(end as u64)?;
            }
            file.write_at(0, &bytes[..end])?;
            file.sync()?;
            Ok(file)
        };
        let file = again(&path)?;
        let written = Written {
            file,
            copy: again(&copy_path(dir, number)).ok(),
            len: end as u64,
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
        };
        manifest.reserve();
        manifest
    }

    /// What is durable.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Whether an edit that failed may have happened.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Makes the changes durable, as one edit. After an error that leaves the manifest not in doubt, nothing has
    /// happened.
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
                // It may as well be longer: an edit that gives back room takes little.
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

    /// Makes sure that no edit has happened of which that is not known.
    pub fn resolve_doubt(&mut self) -> Result<()> {
        if self.in_doubt {
            return self.roll(self.catalogue.clone());
        }
        Ok(())
    }

    fn append(&mut self, edit: &Edit, step: Step) -> Result<()> {
        let mut frame = vec![];
        put_frame(
            &mut frame,
            &serde_json::to_vec(edit).expect("an edit is JSON"),
        );
        let written = self.file.write_at(self.len, &frame);
        if let Err(error) = &written
            && error.is_shortage()
        {
            // What part of it was written is overwritten next time, or is a torn tail.
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
        self.reserve();
        Ok(())
    }

    /// Goes on without a copy. True: that is durable, so that a power cut may tear the next edit. The copy's own file is
    /// taken to say so: a full disk may have no room for another.
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
            // Not before it has the other name: a copy that is cut off looks damaged.
            let _ = fs.open(&none).and_then(|file| file.truncate(0));
        }
        self.says_no_copy
    }

    /// How much [`Manifest::lend_room`] gives back at the most, in bytes.
    pub fn lendable(&self) -> u64 {
        self.copy.as_ref().map_or(0, |_| RESERVE_BYTES)
    }

    /// Gives back the room that is kept behind the copy's last edit, for what will free more than that. If the next edit
    /// finds none there, the copy goes, and a new one comes with the next manifest.
    pub fn lend_room(&mut self) {
        let Some(copy) = &self.copy else {
            return;
        };
        self.reserved = 0;
        // Durably, before anything else takes it.
        if copy.truncate(self.len).and_then(|()| copy.sync()).is_err() {
            self.give_up_copy();
        }
    }

    /// Keeps room for edits to come. Where there is none, they may yet find some.
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
        let written = write_both(fs, &self.dir, number, &next).inspect_err(|_| {
            // With its name it counts, durably or not; without, nothing has happened.
            if !matches!(fs.len(&path), Ok(None)) {
                self.in_doubt = true;
                self.next_number += 1;
            }
        })?;
        for older in self.number..number {
            // Left behind, they are only a few kilobytes, and the next open removes them.
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

/// What has a name of the database's own is what it should be: folders are folders, where a link would lead elsewhere, and
/// files are files, whether they are needed or not. What somebody else put there is neither read, waited for nor removed.
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

/// Where the copy of a manifest lies.
pub fn copy_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name::COPY_DIR).join(file_name::copy(number))
}

/// What says that a manifest has no copy.
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

/// Makes a folder a database without containers, durably: the folders in it, and a manifest.
pub fn begin(fs: &dyn Fs, dir: &Path) -> Result<Catalogue> {
    // One that was cut off may have made the folder.
    sync_name(fs, dir)?;
    for name in [file_name::TABLES_DIR, file_name::WAL_DIR] {
        make_dir(fs, &dir.join(name))?;
    }
    let catalogue = Catalogue::of_nothing();
    write_both(fs, dir, 0, &catalogue)?;
    Ok(catalogue)
}

/// Writes a whole manifest under its name, durably, and then its copy.
pub fn write_both(fs: &dyn Fs, dir: &Path, number: u64, catalogue: &Catalogue) -> Result<Written> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    put_frame(
        &mut bytes,
        &serde_json::to_vec(&catalogue.to_edit()).expect("an edit is JSON"),
    );
    let copy_dir = dir.join(file_name::COPY_DIR);
    // Before the manifest: the folder's name becomes durable with the manifest's.
    let made = make_dir(fs, &copy_dir);
    let file = write_whole(fs, dir, file_name::manifest(number), &bytes)?;
    let copy = made.and_then(|()| write_whole(fs, &copy_dir, file_name::copy(number), &bytes));
    Ok(Written {
        file,
        copy: copy.ok(),
        len: bytes.len() as u64,
    })
}

/// Writes a whole file under its name, durably.
fn write_whole(fs: &dyn Fs, dir: &Path, name: String, bytes: &[u8]) -> Result<Box<dyn File>> {
    let path = dir.join(&name);
    let temporary = dir.join(name + file_name::TEMPORARY);
    if fs.len(&temporary)?.is_some() {
        fs.remove(&temporary)?;
    }
    // Before the name is given: once it is, a folder that cannot be opened would leave it in doubt.
    let names = fs.open_dir(dir)?;
    let file = fs.create(&temporary)?;
    file.write_at(0, bytes)
        .and_then(|()| file.sync())
        .inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.rename(&temporary, &path)?;
    names.sync()?;
    Ok(file)
}
