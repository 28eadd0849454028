//! Determines which manifest counts, and whether it can be trusted.
//!
//! ```text
//! manifest-000007   [ 1 | 2 | 3 | 4 ]      what counts: the manifest of the highest number
//! copy/000007.…     [ 1 | 2 | 3 ]          the same bytes, an edit behind at most; or a file that says: there is none
//! log               seen: 3                every segment and frame: the last edit that was durable then
//! ```
//!
//! Four facts (manifest.rs ensures them): a manifest is durable under its name before its copy is begun; an edit is
//! durable in the manifest before any byte of it is in the copy, and durable in the copy before it is acknowledged; if
//! a write to the copy fails, it is durably recorded that there is no copy before the manifest takes another edit;
//! files of an earlier number are removed only after the later manifest is durable.
//!
//! These imply what a crash can leave; everything else is damage:
//!
//! | manifest | copy | |
//! | --- | --- | --- |
//! | whole | the same, one edit behind, torn, or none | the manifest counts |
//! | torn | the same edits, whole | the torn edit was never acknowledged |
//! | torn | it is said that there is none | nobody can tell; the same is taken for granted |
//! | torn | missing, damaged, or an earlier end | damage: an edit that was acknowledged may be lost; the manifest counts |
//! | torn or not | more edits | damage: the copy counts |
//! | torn | the same edits, torn too | damage: both have lost an edit that the manifest had |
//! | unsound or missing | sound | damage: the copy counts |
//! | sound | sound, with other edits | one is another database's: that whose log is not the one in `wal` |
//! | one alone says what counts | | damage, unless the log in `wal` is the one that it names |
//!
//! A torn copy holds part of the edit that the manifest has whole, and zeros; otherwise it is damaged.
//!
//! The version that counts despite damage must have every edit that the log has seen, and where a later edit may be
//! lost, the files that this edit may have removed must exist. Otherwise it is unknown what is live, and no repair is
//! possible.
//!
//! Open, `verify` and `repair` all use the one function here, so they agree. If there is no damage, the reader of the
//! log compares the result with the edits that the log has seen ([`LoadedManifest::reaches`]).

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::base::error::{BEYOND_REPAIR, Error, Result};
use crate::base::file_name;
use crate::catalog::catalogue::Catalogue;
use crate::catalog::manifest::{copy_path, highest_edit, no_copy_path, sum};
use crate::env::Fs;
use crate::wal::{holds_chain, log_files, salvage};

/// The contents of a manifest on disk, or of its copy.
#[derive(Clone, Debug)]
pub struct LoadedManifest {
    /// The sum of its edits.
    pub catalogue: Catalogue,
    /// The file.
    pub path: PathBuf,
    /// Its number, the highest of any manifest or copy in the folder.
    pub number: u64,
    /// Whether it ends in bytes that are no whole edit: an append was cut off.
    pub torn: bool,
    /// Its bytes up to the end of its last edit.
    pub bytes: Bytes,
}

impl LoadedManifest {
    /// Fails unless it has every edit that the log has seen, which is up to `seen`.
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

/// The result for a folder's manifest and its copy.
pub struct CurrentManifest {
    /// The one of the two that counts.
    pub loaded: LoadedManifest,
    /// The manifest's damage, if the copy counts or an edit may be lost: it is missing, damaged, or ends too early.
    pub damage: Option<Error>,
    /// The copy, if there is one, and the last edit in it; an error if it is damaged, or no copy of this manifest.
    pub copy: Option<Result<(PathBuf, u64)>>,
}

impl CurrentManifest {
    /// The fault of the copy, if the log has seen the edit `seen`: the copy must have the same edits, except for one
    /// that was not acknowledged. A missing copy is no fault: there may have been no room.
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

/// The number of the manifest that counts, and its length in bytes: they change with every edit. `None`: there is none.
pub fn manifest_stamp(fs: &dyn Fs, dir: &Path) -> Result<Option<(u64, u64)>> {
    let names = fs.list(dir)?;
    let numbers = names
        .iter()
        .filter_map(|name| file_name::parse_manifest(name));
    let Some(number) = numbers.max() else {
        return Ok(None);
    };
    let len = fs.len(&dir.join(file_name::manifest(number)))?;
    Ok(len.map(|len| (number, len)))
}

/// Reads manifest and copy; `None` when the folder never was a database.
///
/// # Errors
/// Neither of them can be trusted, or this build cannot decompress a container.
pub fn find_current(fs: &dyn Fs, dir: &Path) -> Result<Option<CurrentManifest>> {
    let Some(folder) = Folder::find(fs, dir)? else {
        return match trace(fs, dir)? {
            None => Ok(None),
            Some(trace) => {
                let trace = trace.display();
                let what = format!("{trace} is there, but no manifest and no copy of one");
                Err(beyond_repair(Error::corruption(dir, 0, what)))
            }
        };
    };
    let copy = folder.copy();
    let current = match folder.manifest() {
        Ok(manifest) => folder.beside_copy(manifest, copy)?,
        Err(damage @ Error::Corruption { .. }) => folder.by_copy_alone(&damage, copy)?,
        Err(error) => return Err(error),
    };
    folder.expect_its_log(&current)?;
    if let Some(damage) = &current.damage {
        folder.expect_no_later_edit(damage, &current.loaded)?;
    }
    for container in current.loaded.catalogue.containers.values() {
        let what = || format!("container {:?} of {}", container.name, dir.display());
        container.compression.check(what)?;
    }
    Ok(Some(current))
}

/// The manifest of the highest number, and its copy.
struct Folder<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    number: u64,
    has_manifest: bool,
    has_copy: bool,
}

impl<'a> Folder<'a> {
    fn find(fs: &'a dyn Fs, dir: &'a Path) -> Result<Option<Folder<'a>>> {
        let numbers = |folder: &Path, number_of: fn(&str) -> Option<u64>| -> Result<Vec<u64>> {
            let names = list(fs, folder)?;
            Ok(names.iter().filter_map(|name| number_of(name)).collect())
        };
        let manifests = numbers(dir, file_name::parse_manifest)?;
        let copies = numbers(&dir.join(file_name::COPY_DIR), file_name::parse_copy)?;
        let highest = manifests.iter().chain(&copies).max();
        Ok(highest.map(|&number| Folder {
            fs,
            dir,
            number,
            has_manifest: manifests.contains(&number),
            has_copy: copies.contains(&number),
        }))
    }

    fn manifest_path(&self) -> PathBuf {
        self.dir.join(file_name::manifest(self.number))
    }

    fn copy_path(&self) -> PathBuf {
        copy_path(self.dir, self.number)
    }

    fn manifest(&self) -> Result<ManifestCandidate> {
        let path = self.manifest_path();
        match self.has_manifest {
            true => ManifestCandidate::of(&path, self.fs.read(&path)?),
            false => Err(Error::corruption(path, 0, "the manifest is missing")),
        }
    }

    fn copy(&self) -> Option<Result<ManifestCandidate>> {
        let path = self.copy_path();
        let read = |path| {
            self.fs
                .read(path)
                .and_then(|bytes| ManifestCandidate::of(path, bytes))
        };
        self.has_copy.then(|| read(&path))
    }

    /// The manifest is sound, except for a torn tail.
    fn beside_copy(
        &self,
        manifest: ManifestCandidate,
        copy: Option<Result<ManifestCandidate>>,
    ) -> Result<CurrentManifest> {
        let damaged = |what| Error::corruption(self.manifest_path(), manifest.end as u64, what);
        let copy = match copy {
            Some(Ok(copy)) => {
                let shared = manifest.end.min(copy.end);
                let is_of_it = manifest.bytes[..shared] == copy.bytes[..shared];
                if !is_of_it && self.belongs_to_log(&copy)? && !self.belongs_to_log(&manifest)? {
                    let what = "this manifest belongs to another log than the one in wal, to which its copy belongs";
                    let damage = Error::corruption(self.manifest_path(), 0, what);
                    return Ok(self.judged_by_copy(damage, copy));
                }
                if is_of_it && copy.end > manifest.end {
                    let (edit, copied) = (manifest.catalogue.edit, copy.catalogue.edit);
                    let what = format!("it ends at edit {edit}, but its copy has edit {copied}");
                    return Ok(self.judged_by_copy(damaged(what), copy));
                }
                if is_of_it && copy.end == manifest.end && copy.is_torn() && manifest.is_torn() {
                    let what = "the last edit is damaged here and in the copy".to_owned();
                    return Err(beyond_repair(damaged(what)));
                }
                Some(copy.check_against(&manifest, &self.copy_path()))
            }
            // Only the copy would tell whether the torn tail is damage.
            Some(Err(error @ Error::Io { .. })) if manifest.is_torn() => return Err(error),
            other => other,
        };
        let doubt = match &copy {
            _ if !manifest.is_torn() => None,
            Some(Ok(copy)) if copy.end == manifest.end => None,
            Some(Ok(_)) => Some("its copy ends before that"),
            Some(Err(_)) => Some("its copy is damaged"),
            None if self.is_without_copy()? => None,
            None => Some("there is no copy of it"),
        };
        let damage = match doubt {
            None => None,
            Some(doubt) => {
                let what = format!(
                    "the last edit is cut off or damaged, and {doubt}: it may have been acknowledged"
                );
                let damage = damaged(what);
                self.expect_what_it_names(&damage, &manifest.catalogue)?;
                Some(damage)
            }
        };
        let copy = copy.map(|copy| Ok((self.copy_path(), copy?.catalogue.edit)));
        Ok(self.current(self.manifest_path(), manifest, damage, copy))
    }

    /// The manifest is missing or damaged.
    fn by_copy_alone(
        &self,
        damage: &Error,
        copy: Option<Result<ManifestCandidate>>,
    ) -> Result<CurrentManifest> {
        let beyond = |what: &str| Err(beyond_repair(and(damage, what)));
        let copy = match copy {
            Some(Ok(copy)) => copy,
            Some(Err(Error::Corruption { .. })) => return beyond("its copy is damaged too"),
            Some(Err(error)) => return Err(error),
            None => return beyond("there is no copy of it"),
        };
        let known = match self.has_manifest {
            true => highest_edit(&self.fs.read(&self.manifest_path())?),
            false => 0,
        };
        if known > copy.catalogue.edit + 1 {
            return beyond(&format!(
                "it has edit {known}, and its copy ends before that"
            ));
        }
        Ok(self.judged_by_copy(and(damage, "its copy is whole"), copy))
    }

    fn judged_by_copy(&self, damage: Error, copy: ManifestCandidate) -> CurrentManifest {
        let (path, edit) = (self.copy_path(), copy.catalogue.edit);
        self.current(path.clone(), copy, Some(damage), Some(Ok((path, edit))))
    }

    fn current(
        &self,
        path: PathBuf,
        counts: ManifestCandidate,
        damage: Option<Error>,
        copy: Option<Result<(PathBuf, u64)>>,
    ) -> CurrentManifest {
        CurrentManifest {
            loaded: LoadedManifest {
                torn: counts.is_torn(),
                catalogue: counts.catalogue,
                path,
                number: self.number,
                bytes: Bytes::from(counts.bytes).slice(..counts.end),
            },
            damage,
            copy,
        }
    }

    /// Whether it is recorded that the manifest has no copy.
    fn is_without_copy(&self) -> Result<bool> {
        let said = self.fs.len(&no_copy_path(self.dir, self.number))?;
        Ok(said.is_some())
    }

    fn belongs_to_log(&self, side: &ManifestCandidate) -> Result<bool> {
        Ok(names_log(self.fs, self.dir, &side.catalogue)? == Some(true))
    }

    /// Fails unless the log in the folder is the one that this manifest or copy names, where only one of the two says
    /// what counts. If it is an older one, or another database's, following it would set aside everything here.
    fn expect_its_log(&self, current: &CurrentManifest) -> Result<()> {
        let is_said_twice = current.damage.is_none() && matches!(current.copy, Some(Ok(_)));
        if is_said_twice || names_log(self.fs, self.dir, &current.loaded.catalogue)? != Some(false)
        {
            return Ok(());
        }
        let damage = match &current.damage {
            Some(damage) => damage.clone(),
            None => Error::corruption(&current.loaded.path, 0, "it has no sound copy"),
        };
        let what = match current.loaded.path == self.manifest_path() {
            true => "the log in wal is not the one that it names",
            false => "its copy belongs to another log than the one in wal",
        };
        Err(beyond_repair(and(&damage, what)))
    }

    /// Fails if the log has seen an edit beyond what counts despite this damage.
    fn expect_no_later_edit(&self, damage: &Error, counts: &LoadedManifest) -> Result<()> {
        let Catalogue {
            log,
            log_synced,
            edit,
            ..
        } = counts.catalogue;
        let wal_dir = self.dir.join(file_name::WAL_DIR);
        let (found, _) = salvage(self.fs, &wal_dir, log, log_synced, &mut |_| Ok(()))?;
        if found.edit <= edit {
            return Ok(());
        }
        let what = format!(
            "all that is left ends at edit {edit}, but the log has seen edit {}",
            found.edit
        );
        Err(beyond_repair(and(damage, &what)))
    }

    /// An edit may be lost. Fails if a file is missing that the edits before it name: then the lost edit removed it,
    /// and only that edit names what replaced it. Going on without it would lose that data.
    fn expect_what_it_names(&self, damage: &Error, catalogue: &Catalogue) -> Result<()> {
        let folder = |name| self.dir.join(name);
        let (tables_dir, wal_dir) = (folder(file_name::TABLES_DIR), folder(file_name::WAL_DIR));
        let tables = catalogue.tables().into_iter().map(file_name::table);
        let log = catalogue.log.iter().flat_map(log_files);
        let tables = tables.map(|name| tables_dir.join(name));
        for path in tables.chain(log.map(|name| wal_dir.join(name))) {
            if self.fs.len(&path)?.is_none() {
                let what = format!("{} is gone", path.display());
                return Err(beyond_repair(and(damage, &what)));
            }
        }
        Ok(())
    }
}

/// Whether the log in the folder is the one that a catalogue names; `None` if that is unknown.
fn names_log(fs: &dyn Fs, dir: &Path, catalogue: &Catalogue) -> Result<Option<bool>> {
    catalogue.log.map_or(Ok(None), |log| {
        holds_chain(fs, &dir.join(file_name::WAL_DIR), &log)
    })
}

/// A manifest or a copy that is sound, except for a torn tail.
#[derive(Clone)]
struct ManifestCandidate {
    catalogue: Catalogue,
    /// The end of its last edit.
    end: usize,
    bytes: Vec<u8>,
}

impl ManifestCandidate {
    fn of(path: &Path, bytes: Vec<u8>) -> Result<ManifestCandidate> {
        let (catalogue, end) = sum(path, &bytes)?;
        Ok(ManifestCandidate {
            catalogue,
            end,
            bytes,
        })
    }

    fn is_torn(&self) -> bool {
        self.end < self.bytes.len()
    }

    /// Checks it as the copy of a manifest that has all its edits. A crash may have left part of the manifest's next
    /// edit behind them: of each sector a prefix, then zeros.
    fn check_against(self, manifest: &ManifestCandidate, path: &Path) -> Result<ManifestCandidate> {
        if manifest.bytes.get(..self.end) != Some(&self.bytes[..self.end]) {
            let what = "this is not what the manifest says";
            return Err(Error::corruption(path, 0, what));
        }
        let sectors = self
            .bytes
            .chunks(SECTOR)
            .zip(manifest.bytes[..manifest.end].chunks(SECTOR));
        let left = |(own, whole): (&[u8], &[u8])| {
            let shared = own.iter().zip(whole).take_while(|(a, b)| a == b).count();
            own[shared..].iter().all(|byte| *byte == 0)
        };
        if self.bytes.len() > manifest.end || !sectors.into_iter().all(left) {
            let what = "behind its last edit, this is no part of what the manifest has there";
            return Err(Error::corruption(path, self.end as u64, what));
        }
        Ok(self)
    }
}

/// The smallest unit that a disk writes, in bytes; a torn one has a prefix of the new bytes.
const SECTOR: usize = 512;

fn list(fs: &dyn Fs, folder: &Path) -> Result<Vec<String>> {
    match fs.is_dir(folder) {
        true => fs.list(folder),
        false => Ok(vec![]),
    }
}

/// A file that only a database makes, and only once it has a manifest. Empty folders may have been prepared by the
/// user.
fn trace(fs: &dyn Fs, dir: &Path) -> Result<Option<PathBuf>> {
    for name in file_name::FOLDERS {
        let names = list(fs, &dir.join(name))?.into_iter();
        let ours = names.filter(|file| name == file_name::LOST_DIR || file_name::is_numbered(file));
        if let Some(first) = ours.min() {
            return Ok(Some(Path::new(name).join(first)));
        }
    }
    Ok(None)
}

/// Fails if a folder was never a database and holds anything but what an interrupted first open leaves there.
pub fn expect_no_others(fs: &dyn Fs, dir: &Path) -> Result<()> {
    if Folder::find(fs, dir)?.is_some() || trace(fs, dir)?.is_some() {
        return Ok(());
    }
    let is_other = |name: &String| name != file_name::OF_FILE_SYSTEM;
    let mut names = fs.list_all(dir)?;
    names.retain(is_other);
    for name in &names {
        let is_own = match file_name::FOLDERS.contains(&name.as_str()) {
            true => !fs.list_all(&dir.join(name))?.iter().any(is_other),
            false => name == file_name::LOCK || file_name::is_manifest(name),
        };
        if !is_own {
            return Err(Error::ForeignFolder { path: dir.into() });
        }
    }
    Ok(())
}

/// Adds a sentence to a damage's message.
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
