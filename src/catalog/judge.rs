//! Which manifest counts, and whether it can be trusted.
//!
//! ```text
//! manifest-000007   [ 1 | 2 | 3 | 4 ]      what counts: the manifest of the highest number
//! copy/000007.…     [ 1 | 2 | 3 ]          the same bytes, an edit behind at most
//! log               seen: 3                every segment and frame: the last edit that was durable then
//! ```
//!
//! Three facts (manifest.rs keeps them): a manifest is durable under its name before its copy begins; an edit is durable in
//! the manifest before any byte of it is in the copy, and durable in the copy before it is acknowledged; of an earlier
//! number nothing is removed before the later manifest is durable. Where a write to the copy failed there is none, or one
//! that ends earlier.
//!
//! From that follows what a crash can leave, and all else is damage:
//!
//! | manifest | copy | |
//! | --- | --- | --- |
//! | whole | the same, one edit behind, torn, or none | the manifest counts |
//! | torn | the same edits, whole | the torn edit was never acknowledged |
//! | torn | none, or an earlier end | nobody can tell; the same is taken for granted |
//! | torn or not | more edits | damage: the copy counts |
//! | torn | the same edits, torn too | damage: both have lost an edit that the manifest had |
//! | unsound or missing | sound | damage: the copy counts, unless the log in `wal` is another's |
//! | sound | sound, with other edits | one is another database's: that whose log is not the one in `wal` |
//!
//! Open, `verify` and `repair` ask the one function here, so they agree. What the log has seen is held against its answer
//! by whoever reads the log ([`Loaded::reaches`]).

use std::path::{Path, PathBuf};

use crate::base::error::{BEYOND_REPAIR, Error, Result};
use crate::base::file_name;
use crate::catalog::edit::Catalogue;
use crate::catalog::manifest::{copy_path, highest_edit, sum};
use crate::env::Fs;
use crate::wal::holds_chain;

/// What a manifest on disk, or its copy, says.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The sum of its edits.
    pub catalogue: Catalogue,
    /// The file.
    pub path: PathBuf,
    /// Its number; no manifest or copy in the folder has a higher one.
    pub number: u64,
    /// It ends in bytes that are no edit: an append was cut off.
    pub torn: bool,
}

impl Loaded {
    /// It says all, if the log has seen no edit beyond `seen`.
    pub fn reaches(&self, fs: &dyn Fs, seen: u64) -> Result<()> {
        let edit = self.catalogue.edit;
        if seen <= edit {
            return Ok(());
        }
        let what =
            format!("it ends at edit {edit}, but the log has seen edit {seen}; {BEYOND_REPAIR}");
        let len = fs.len(&self.path)?.unwrap_or(0);
        Err(Error::corruption(&self.path, len, what))
    }
}

/// What a folder's manifest and its copy amount to.
pub struct Judged {
    /// What counts, of these two.
    pub loaded: Loaded,
    /// The manifest does not say it: it is missing, damaged, or ends too early.
    pub damage: Option<Error>,
    /// The copy, if there is one, and the last edit in it; an error when it is damaged, or no copy of this manifest.
    pub copy: Option<Result<(PathBuf, u64)>>,
}

impl Judged {
    /// No edit that was acknowledged is missing, by all that is known without the log: where a torn tail may have been one,
    /// the copy says that it was none.
    pub fn is_whole(&self) -> bool {
        let edit = self.loaded.catalogue.edit;
        !self.loaded.torn || matches!(&self.copy, Some(Ok((_, copied))) if *copied == edit)
    }

    /// One of the two alone says what counts, and it names another log than the one in the folder.
    pub fn is_doubtful(&self, fs: &dyn Fs, dir: &Path) -> Result<bool> {
        let is_said_twice = self.damage.is_none() && matches!(self.copy, Some(Ok(_)));
        Ok(!is_said_twice && names_log(fs, dir, &self.loaded.catalogue)? == Some(false))
    }

    /// What is wrong with the copy, if the log has seen the edit `seen`: it says the same, but for an edit that was not
    /// acknowledged. That there is none is no fault: want of room may have been.
    pub fn copy_fault(&self, fs: &dyn Fs, seen: u64) -> Result<Option<Error>> {
        match &self.copy {
            Some(Err(fault)) => Ok(Some(fault.clone())),
            Some(Ok((path, edit))) if *edit < seen.min(self.loaded.catalogue.edit) => {
                let what = format!("it ends at edit {edit}, but the log has seen edit {seen}");
                let len = fs.len(path)?.unwrap_or(0);
                Ok(Some(Error::corruption(path, len, what)))
            }
            _ => Ok(None),
        }
    }
}

/// Reads manifest and copy; `None` when the folder never was a database.
///
/// # Errors
/// Neither of them can be relied on.
pub fn judge(fs: &dyn Fs, dir: &Path) -> Result<Option<Judged>> {
    let numbers = |folder: &Path, number_of: fn(&str) -> Option<u64>| -> Result<Vec<u64>> {
        let names = list(fs, folder)?;
        Ok(names.iter().filter_map(|name| number_of(name)).collect())
    };
    let manifests = numbers(dir, file_name::parse_manifest)?;
    let copies = numbers(&dir.join(file_name::COPY_DIR), file_name::parse_copy)?;
    let Some(&number) = manifests.iter().chain(&copies).max() else {
        return match trace(fs, dir)? {
            None => Ok(None),
            Some(trace) => {
                let what = format!(
                    "{} is there, but no manifest and no copy of one",
                    trace.display()
                );
                Err(beyond_repair(Error::corruption(dir, 0, what)))
            }
        };
    };
    let (path, copy_path) = (
        dir.join(file_name::manifest(number)),
        copy_path(dir, number),
    );
    let is_there = manifests.contains(&number);
    let manifest = match is_there {
        true => Side::of(&path, fs.read(&path)?),
        false => Err(Error::corruption(&path, 0, "the manifest is missing")),
    };
    let mut copy = copies.contains(&number).then(|| {
        let bytes = fs.read(&copy_path)?;
        match &manifest {
            Ok(manifest) if manifest.bytes == bytes => Ok(manifest.clone()),
            _ => Side::of(&copy_path, bytes),
        }
    });
    let damage = match (&manifest, &copy) {
        (Ok(manifest), Some(Ok(other))) => {
            let shared = manifest.end.min(other.end);
            let damage = |what| Error::corruption(&path, manifest.end as u64, what);
            if manifest.bytes[..shared] != other.bytes[..shared] {
                if names_log(fs, dir, &manifest.catalogue)? != Some(true)
                    && names_log(fs, dir, &other.catalogue)? == Some(true)
                {
                    let what = "this manifest belongs to another log than the one in wal, to which its copy belongs";
                    Some(Error::corruption(&path, 0, what))
                } else {
                    let what = "this is not what the manifest says";
                    copy = Some(Err(Error::corruption(&copy_path, 0, what)));
                    None
                }
            } else if other.end > manifest.end {
                let (edit, copied) = (manifest.catalogue.edit, other.catalogue.edit);
                Some(damage(format!(
                    "it ends at edit {edit}, but its copy has edit {copied}"
                )))
            } else if manifest.is_torn() && other.is_torn() && other.end == manifest.end {
                let what = "the last edit is damaged here and in the copy".to_owned();
                return Err(beyond_repair(damage(what)));
            } else {
                None
            }
        }
        // Whether that is damage the copy would tell.
        (Ok(manifest), Some(Err(error @ Error::Io { .. }))) if manifest.is_torn() => {
            return Err(error.clone());
        }
        (Ok(_), _) => None,
        (Err(damage @ Error::Corruption { .. }), Some(Ok(other))) => {
            if names_log(fs, dir, &other.catalogue)? == Some(false) {
                let what = "its copy belongs to another log than the one in wal";
                return Err(beyond_repair(and(damage, what)));
            }
            let known = match is_there {
                true => highest_edit(&fs.read(&path)?),
                false => 0,
            };
            if known > other.catalogue.edit + 1 {
                let what = format!("it has edit {known}, and its copy ends before that");
                return Err(beyond_repair(and(damage, &what)));
            }
            Some(and(damage, "its copy is whole"))
        }
        (Err(damage @ Error::Corruption { .. }), copy) => {
            let what = match copy {
                Some(_) => "its copy is damaged too",
                None => "there is no copy of it",
            };
            return Err(beyond_repair(and(damage, what)));
        }
        (Err(error), _) => return Err(error.clone()),
    };
    let copied = copy.as_ref().map(|copy| match copy {
        Ok(copy) => Ok((copy_path.clone(), copy.catalogue.edit)),
        Err(error) => Err(error.clone()),
    });
    let (path, counts) = match (&damage, copy) {
        (Some(_), Some(Ok(copy))) => (copy_path, copy),
        _ => (path, manifest?),
    };
    let loaded = Loaded {
        torn: counts.is_torn(),
        catalogue: counts.catalogue,
        path,
        number,
    };
    Ok(Some(Judged {
        loaded,
        damage,
        copy: copied,
    }))
}

/// Whether the log in the folder is the one that a catalogue names; nothing where that cannot be told.
fn names_log(fs: &dyn Fs, dir: &Path, catalogue: &Catalogue) -> Result<Option<bool>> {
    catalogue.log.map_or(Ok(None), |log| {
        holds_chain(fs, &dir.join(file_name::WAL_DIR), &log)
    })
}

/// A manifest or a copy that is sound, up to a torn tail.
#[derive(Clone)]
struct Side {
    catalogue: Catalogue,
    /// Of its last edit.
    end: usize,
    bytes: Vec<u8>,
}

impl Side {
    fn of(path: &Path, bytes: Vec<u8>) -> Result<Side> {
        let (catalogue, end) = sum(path, &bytes)?;
        Ok(Side {
            catalogue,
            end,
            bytes,
        })
    }

    fn is_torn(&self) -> bool {
        self.end < self.bytes.len()
    }
}

fn list(fs: &dyn Fs, folder: &Path) -> Result<Vec<String>> {
    match fs.is_dir(folder) {
        true => fs.list(folder),
        false => Ok(vec![]),
    }
}

/// A file that only a database makes, and only when it has a manifest. Folders alone may be somebody's preparation.
fn trace(fs: &dyn Fs, dir: &Path) -> Result<Option<PathBuf>> {
    for name in [
        file_name::TABLES_DIR,
        file_name::WAL_DIR,
        file_name::COPY_DIR,
        file_name::LOST_DIR,
    ] {
        let names = list(fs, &dir.join(name))?.into_iter();
        let ours = names.filter(|file| name == file_name::LOST_DIR || file_name::is_numbered(file));
        if let Some(first) = ours.min() {
            return Ok(Some(Path::new(name).join(first)));
        }
    }
    Ok(None)
}

/// Says more of a damage.
fn and(damage: &Error, more: &str) -> Error {
    match damage {
        Error::Corruption { path, offset, what } => {
            Error::corruption(path, *offset, format!("{what}; {more}"))
        }
        other => other.clone(),
    }
}

fn beyond_repair(damage: Error) -> Error {
    and(&damage, BEYOND_REPAIR)
}
