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
#[derive(Debug)]
pub struct Loaded {
    /// The sum of its edits.
    pub catalogue: Catalogue,
    /// Its number; manifests count from 1.
    pub number: u64,
    /// It ends in bytes that are no edit: an append was cut off.
    pub torn: bool,
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
        let (file, len) = write_whole(fs.as_ref(), dir, number, &catalogue)?;
        Ok(Manifest {
            fs,
            dir: dir.into(),
            number,
            file,
            len,
            first_len: len,
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
        self.len += frame.len() as u64;
        self.catalogue = next;
        Ok(())
    }

    fn roll(&mut self, next: Catalogue) -> Result<()> {
        let (fs, number) = (self.fs.as_ref(), self.number + 1);
        let path = self.dir.join(file_name::manifest(number));
        let written = write_whole(fs, &self.dir, number, &next);
        let (file, len) = written.inspect_err(|error| {
            // With its name it counts, durably or not; without, nothing has happened.
            if !matches!(fs.len(&path), Ok(None)) {
                self.uncertain = Some(error.clone());
            }
        })?;
        let old = self.dir.join(file_name::manifest(self.number));
        (
            self.number,
            self.file,
            self.len,
            self.first_len,
            self.catalogue,
        ) = (number, file, len, len, next);
        // Left behind, it is only a few kilobytes, and the next open removes it.
        let _ = self.fs.remove(&old);
        Ok(())
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }
}

/// Writes a whole manifest under its name, durably.
pub fn write_whole(
    fs: &dyn Fs,
    dir: &Path,
    number: u64,
    catalogue: &Catalogue,
) -> Result<(Box<dyn File>, u64)> {
    let name = file_name::manifest(number);
    let path = dir.join(&name);
    let temporary = dir.join(name + file_name::TEMPORARY);
    if fs.len(&temporary)?.is_some() {
        fs.remove(&temporary)?;
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    put_frame(
        &mut bytes,
        &serde_json::to_vec(&catalogue.to_edit()).expect("an edit is JSON"),
    );
    let file = fs.create(&temporary)?;
    file.write_at(0, &bytes)
        .and_then(|()| file.sync())
        .inspect_err(|_| drop(fs.remove(&temporary)))?;
    fs.rename(&temporary, &path)?;
    fs.sync_dir(dir)?;
    Ok((file, bytes.len() as u64))
}
