//! The manifest: the log of edits.
//!
//! ```text
//! manifest-NNNNNN   magic "EBBTIDEM" | format version u32 | zero u32 | frame*        (frames: coding.rs)
//! frame's payload   one Edit as JSON; the first says the whole catalogue
//! ```
//!
//! A manifest comes into being whole: written under a temporary name, synced, renamed, the folder synced; then older
//! ones are removed. The one with the highest number counts. An edit is durable when its frame is synced. What stands
//! behind the last good frame is a torn tail, unless a good frame follows it: then it is damage.
//!
//! A write that finds no room leaves no whole frame, so its edit never happened, and the next one takes its place. After
//! another failure of a write, or of a sync, nobody knows what is durable: the error is latched, nothing more is
//! committed, and nothing that the failed edit named may be removed. A new manifest that fails before it has its name is
//! none.
//!
//! What is live, deleted or dropped is known to the manifest alone: from tables it cannot be told. So a *copy* with the
//! same bytes lies in a folder of its own, for a repair to go by. It begins before its manifest does and takes each edit
//! after it, before the edit is acknowledged: so it knows all that anything relied on. Opening never reads it. When it
//! cannot be written it is removed, and a new one comes with the next manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::coding::{FRAME_HEADER_LEN, Reader, put_frame, read_frame};
use crate::env::{File, Fs};
use crate::error::{Error, Result};
use crate::types::{Timestamp, file_name};
use crate::version::edit::{Catalogue, Change, Edit};

const MAGIC: &[u8; 8] = b"EBBTIDEM";
const FORMAT_VERSION: u32 = 1;
const HEADER_LEN: usize = 16;

/// A manifest longer than this, and than four times its first edit, is written anew.
const ROLL_BYTES: u64 = 1 << 20;

/// What a manifest on disk says.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The sum of its edits.
    pub catalogue: Catalogue,
    /// Its number; manifests count from 1.
    pub number: u64,
    /// It ends in bytes that are no edit: an append was cut off.
    pub torn: bool,
}

impl Loaded {
    /// The file at `path` says all, if the log has seen no edit beyond `seen`.
    pub fn reaches(&self, fs: &dyn Fs, path: &Path, seen: u64) -> Result<()> {
        let edit = self.catalogue.edit;
        if seen <= edit {
            return Ok(());
        }
        let what = format!("it ends at edit {edit}, but the log has seen edit {seen}");
        Err(Error::corruption(path, fs.len(path)?.unwrap_or(0), what))
    }
}

/// Reads the manifest that counts; `None` when the folder has none.
pub fn load(fs: &dyn Fs, dir: &Path) -> Result<Option<Loaded>> {
    let numbers = fs.list(dir)?;
    let Some(number) = numbers
        .iter()
        .filter_map(|name| file_name::parse_manifest(name))
        .max()
    else {
        return Ok(None);
    };
    let path = dir.join(file_name::manifest(number));
    let (catalogue, torn) = parse(&path, &fs.read(&path)?)?;
    Ok(Some(Loaded {
        catalogue,
        number,
        torn,
    }))
}

/// A manifest or a copy of one, whatever it is worth.
pub struct Witness {
    /// The file.
    pub path: PathBuf,
    /// The number in its name.
    pub number: u64,
    /// It is a copy.
    pub is_copy: bool,
    /// What it says.
    pub loaded: Result<Loaded>,
}

/// All manifests and copies in a folder: manifests first, the highest number first.
pub fn witnesses(fs: &dyn Fs, dir: &Path) -> Result<Vec<Witness>> {
    let mut found = vec![];
    let copy_dir = dir.join(file_name::COPY_DIR);
    type Parse = fn(&str) -> Option<u64>;
    for (folder, number_of) in [
        (dir, file_name::parse_manifest as Parse),
        (&copy_dir, file_name::parse_copy as Parse),
    ] {
        if !fs.is_dir(folder) {
            continue;
        }
        let mut numbered: Vec<(u64, String)> = fs
            .list(folder)?
            .into_iter()
            .filter_map(|name| Some((number_of(&name)?, name)))
            .collect();
        numbered.sort();
        for (number, name) in numbered.into_iter().rev() {
            let path = folder.join(name);
            let parsed = fs.read(&path).and_then(|bytes| parse(&path, &bytes));
            found.push(Witness {
                number,
                is_copy: folder != dir,
                loaded: parsed.map(|(catalogue, torn)| Loaded {
                    catalogue,
                    number,
                    torn,
                }),
                path,
            });
        }
    }
    Ok(found)
}

/// The sum of the edits in a manifest's bytes, and whether they end in a torn tail.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<(Catalogue, bool)> {
    let damaged = |offset: usize, what: &str| Error::corruption(path, offset as u64, what);
    if bytes.len() < HEADER_LEN || &bytes[..8] != MAGIC {
        return Err(damaged(0, "not a manifest"));
    }
    let found = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
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
            Err(_) if edits > 0 && !holds_a_frame(&bytes[start + 1..]) => {
                return Ok((catalogue, true));
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
    Ok((catalogue, false))
}

/// Some frame in `bytes` is whole, wherever it starts.
fn holds_a_frame(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(FRAME_HEADER_LEN)).any(|at| {
        // An edit's payload is a JSON object, never empty.
        bytes.get(at + FRAME_HEADER_LEN) == Some(&b'{')
            && read_frame(&mut Reader::new(&bytes[at..])).is_ok()
    })
}

/// The manifest that is being written.
pub struct Manifest {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    number: u64,
    file: Box<dyn File>,
    len: u64,
    first_len: u64,
    copy: Option<Box<dyn File>>,
    /// A write or a sync failed: what is durable is unknown.
    uncertain: Option<Error>,
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
        Ok(Manifest {
            fs,
            dir: dir.into(),
            number,
            file: written.file,
            copy: written.copy,
            len: written.len,
            first_len: written.len,
            uncertain: None,
            catalogue,
        })
    }

    /// What is durable.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Whether a failure has left unknown what is durable.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain.is_some()
    }

    /// Makes the changes durable, as one edit. After an error that leaves [`Manifest::is_uncertain`] false, nothing has
    /// happened.
    pub fn commit(&mut self, changes: Vec<Change>, mark: Timestamp) -> Result<()> {
        if let Some(cause) = &self.uncertain {
            return Err(Error::Poisoned {
                cause: Arc::new(cause.clone()),
            });
        }
        let edit = Edit {
            number: self.catalogue.edit + 1,
            mark: mark.max(self.catalogue.mark),
            changes,
        };
        let mut next = self.catalogue.clone();
        next.apply(&edit)
            .expect("the engine's edits fit its catalogue");
        if self.len > ROLL_BYTES.max(4 * self.first_len) {
            match self.roll(next.clone()) {
                // An edit that gives back room takes little: the manifest may as well be longer.
                Err(error) if error.is_full() && !self.is_uncertain() => {}
                done => return done,
            }
        }
        self.append(&edit, next)
    }

    fn append(&mut self, edit: &Edit, next: Catalogue) -> Result<()> {
        let mut frame = vec![];
        put_frame(
            &mut frame,
            &serde_json::to_vec(edit).expect("an edit is JSON"),
        );
        if let Err(error) = self.file.write_at(self.len, &frame) {
            // What part of it was written is overwritten next time, or is a torn tail.
            let _ = self.file.truncate(self.len);
            if !error.is_full() {
                self.uncertain = Some(error.clone());
            }
            return Err(error);
        }
        self.file
            .sync()
            .inspect_err(|error| self.uncertain = Some(error.clone()))?;
        let append = |copy: &dyn File| copy.write_at(self.len, &frame).and_then(|()| copy.sync());
        if self
            .copy
            .as_deref()
            .is_some_and(|copy| append(copy).is_err())
        {
            self.copy = None;
            remove_copy(self.fs.as_ref(), &self.dir, self.number);
        }
        self.len += frame.len() as u64;
        self.catalogue = next;
        Ok(())
    }

    fn roll(&mut self, next: Catalogue) -> Result<()> {
        let (fs, number) = (self.fs.as_ref(), self.number + 1);
        let path = self.dir.join(file_name::manifest(number));
        let written = write_both(fs, &self.dir, number, &next).inspect_err(|error| {
            // With its name it counts, durably or not; without, nothing has happened.
            if !matches!(fs.len(&path), Ok(None)) {
                self.uncertain = Some(error.clone());
            }
        })?;
        let old = self.dir.join(file_name::manifest(self.number));
        // Left behind, they are only a few kilobytes, and the next open removes them.
        let _ = fs.remove(&old);
        let _ = fs.remove(&copy_path(&self.dir, self.number));
        (self.number, self.catalogue) = (number, next);
        (self.file, self.copy) = (written.file, written.copy);
        (self.len, self.first_len) = (written.len, written.len);
        Ok(())
    }

    /// Bytes of the file and of its copy.
    pub fn len(&self) -> u64 {
        self.len * if self.copy.is_some() { 2 } else { 1 }
    }
}

/// Where the copy of a manifest lies.
pub fn copy_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name::COPY_DIR).join(file_name::copy(number))
}

/// Durably as far as that can be had: a copy that stayed behind would not know of later edits.
fn remove_copy(fs: &dyn Fs, dir: &Path, number: u64) {
    if fs.remove(&copy_path(dir, number)).is_ok() {
        let _ = fs.sync_dir(&dir.join(file_name::COPY_DIR));
    }
}

/// A manifest and its copy, just written.
pub struct Written {
    file: Box<dyn File>,
    copy: Option<Box<dyn File>>,
    len: u64,
}

/// Writes a whole manifest under its name, durably, and its copy first.
pub fn write_both(fs: &dyn Fs, dir: &Path, number: u64, catalogue: &Catalogue) -> Result<Written> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    put_frame(
        &mut bytes,
        &serde_json::to_vec(&catalogue.to_edit()).expect("an edit is JSON"),
    );
    let copy_dir = dir.join(file_name::COPY_DIR);
    let copy = fs
        .create_dir_all(&copy_dir)
        .and_then(|()| write_whole(fs, &copy_dir, file_name::copy(number), &bytes));
    let file = write_whole(fs, dir, file_name::manifest(number), &bytes);
    if copy.is_err() || file.is_err() {
        remove_copy(fs, dir, number);
    }
    Ok(Written {
        file: file?,
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
    let file = fs.create(&temporary)?;
    file.write_at(0, bytes)
        .and_then(|()| file.sync())
        .inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.rename(&temporary, &path)?;
    fs.sync_dir(dir)?;
    Ok(file)
}
