//! Folders at rest, which no process has open: taking a ledger, and telling it to a copy.
//!
//! Taking one brings the folder to rest: it is opened, flushed and closed, and the log is left out. Then the catalogue is
//! the whole state (catalog/ledger.rs).
//!
//! Only a folder at rest is told a ledger, and nobody opens it before: an open judges items by the settings of the
//! copy at the time of now, and would purge items that a longer default, which the ledger has, keeps alive.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use crate::base::{Error, Result, Timestamp, file_name};
use crate::catalog::{
    Catalogue, Change, Edit, Ledger, LoadedManifest, Manifest, Telling, expect_own, find_current,
    version_of,
};
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::options::Options;
use crate::env::{Lock, LockKind};
use crate::wal::remove_chain;

fn not_found(path: &Path) -> Error {
    Error::NotFound { path: path.into() }
}

/// The version of a folder's format; 0 if the manifest was lost, and its copy was read.
pub fn format_version(path: &Path, options: &Options) -> Result<u32> {
    let fs = options.fs.as_ref();
    if !fs.is_dir(path) {
        return Err(not_found(path));
    }
    expect_own(fs, path)?;
    let current = find_current(fs, path)?.ok_or_else(|| not_found(path))?;
    let number = current.loaded.number;
    Ok(version_of(fs, path, number).ok().flatten().unwrap_or(0))
}

/// See [`Options::ledger`].
pub fn ledger(path: &Path, options: &Options) -> Result<Ledger> {
    Ok(Ledger::of(rested(path, options)?))
}

/// See [`Options::apply_ledger`].
pub fn apply_ledger(path: &Path, options: &Options, ledger: &Ledger) -> Result<()> {
    edit_at_rest(path, options, |copy| ledger.told_to(copy))
}

/// See [`Options::drop_ended`].
pub fn drop_ended(path: &Path, options: &Options, later: &Ledger) -> Result<()> {
    edit_at_rest(path, options, |copy| later.ended_in(copy))
}

/// See [`Options::drop_ending_before`].
pub fn drop_ending_before(
    path: &Path,
    options: &Options,
    own: &Ledger,
    before: Timestamp,
) -> Result<()> {
    edit_at_rest(path, options, |copy| Ok(own.ending_in(copy, before)))
}

/// See [`Options::branch`].
pub fn branch(path: &Path, options: &Options, own: &Ledger, told: u64) -> Result<()> {
    let id = RandomState::new().hash_one(path);
    edit_at_rest(path, options, |copy| own.branched(copy, id, told))
}

/// Commits changes of the catalogue of a copy at rest, if there are any, with a mark.
fn edit_at_rest(
    path: &Path,
    options: &Options,
    changes: impl FnOnce(&Catalogue) -> Result<Telling>,
) -> Result<()> {
    let _lock = lock(path, options)?;
    let current = find_current(options.fs.as_ref(), path)?.ok_or_else(|| not_found(path))?;
    let LoadedManifest {
        catalogue,
        number,
        bytes,
        ..
    } = current.loaded;
    if catalogue.log.is_some() {
        let (given, allowed) = (
            path.display().to_string(),
            "one that `Options::ledger` left",
        );
        return Err(Error::invalid("copy to change", given, allowed));
    }
    let (changes, mark) = changes(&catalogue)?;
    if changes.is_empty() {
        return Ok(());
    }
    let edit = Edit {
        number: catalogue.edit + 1,
        time_high_water: mark,
        changes,
    };
    // Ledgers come from elsewhere.
    let misfit = |what| Error::invalid("ledger", what, "one of the copy's database");
    catalogue.step(&edit).map_err(misfit)?;
    Manifest::resume(options.fs.clone(), path, number, &bytes)?.commit(edit.changes, mark)
}

fn lock(path: &Path, options: &Options) -> Result<Box<dyn Lock>> {
    let path = path.join(file_name::LOCK);
    options.fs.lock(&path, LockKind::Exclusive)
}

/// The catalogue of a folder, after all that its log held went to tables, and the log itself.
fn rested(path: &Path, options: &Options) -> Result<Catalogue> {
    let fs = &options.fs;
    let current = find_current(fs.as_ref(), path)?.ok_or_else(|| not_found(path))?;
    let mut options = options.clone();
    // Then it stays at the time that its program gave it last.
    options.given_time |= current.loaded.catalogue.given_time.is_some();
    options.check()?;
    let db = Handle::new(Engine::open(path, &options)?);
    db.flush()?;
    db.repeat_logged()?;
    db.close()?;
    drop(db);
    let _lock = lock(path, &options)?;
    let current = find_current(fs.as_ref(), path)?.ok_or_else(|| not_found(path))?;
    let found = current.loaded;
    let mark = found.catalogue.time_high_water;
    let mut manifest = Manifest::resume(fs.clone(), path, found.number, &found.bytes)?;
    manifest.commit(vec![Change::Log(None)], mark)?;
    remove_chain(fs.as_ref(), &path.join(file_name::WAL_DIR), 0);
    Ok(manifest.catalogue().clone())
}
