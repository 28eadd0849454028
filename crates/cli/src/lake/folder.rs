//! The folder of a copy: the one place that changes files.
//!
//! ```text
//! a run    files under other names, synced ──> the state, replaced ──> their names (tidy) ──> files without a place in it go
//!                                                     │
//! a kill   before: the next run removes them ─────────┴─ after: the next run gives them their names
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ebbtide::shared::files;

use super::state::State;
use super::{Error, Result};

const STATE: &str = "_state.json";
const LOCK: &str = "_lock";
/// The name of a file begins so until the state has it; readers of folders leave such names out.
const UNNAMED: &str = "_";

/// See the file's head.
pub struct Folder<'g> {
    root: PathBuf,
    gate: &'g dyn Fn() -> io::Result<()>,
    _lock: File,
}

impl<'g> Folder<'g> {
    /// Makes it where it is missing, and locks it.
    pub fn lock(root: &Path, gate: &'g dyn Fn() -> io::Result<()>) -> Result<Folder<'g>> {
        let failed = |error| Error::of("open", root, error);
        files::create_dir_all(root).map_err(failed)?;
        let lock_path = root.join(LOCK);
        let is_empty = fs::read_dir(root).map_err(failed)?.next().is_none();
        if !is_empty && !lock_path.exists() {
            return Err(Error::new(format!(
                "{} holds other things: a copy is made in a folder that is missing or empty",
                root.display()
            )));
        }
        let lock = files::open_lock(&lock_path);
        let lock = lock.map_err(|error| Error::of("open", &lock_path, error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                Error::new(format!("another run brings {} up to date", root.display()))
            }
            TryLockError::Error(error) => Error::of("lock", &lock_path, error),
        })?;
        Ok(Folder {
            root: root.to_owned(),
            gate,
            _lock: lock,
        })
    }

    /// None: no run was ever finished here.
    pub fn state(&self) -> Result<Option<State>> {
        let path = self.root.join(STATE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Error::of("read", &path, error))?,
        };
        State::decode(&text).map(Some).map_err(|what| {
            Error::new(format!(
                "{} is damaged: {what}; make the copy anew, in another folder",
                path.display()
            ))
        })
    }

    /// Where a file of the state lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Changes a file or a folder.
    fn change<T>(
        &self,
        doing: &str,
        path: &Path,
        done: impl FnOnce() -> io::Result<T>,
    ) -> Result<T> {
        let done = (self.gate)().and_then(|()| done());
        done.map_err(|error| Error::of(doing, path, error))
    }

    /// A new file that is to have this name.
    pub fn create(&self, name: &str) -> Result<File> {
        let path = unnamed(&self.path(name));
        let folder = path.parent().expect("it lies in one");
        self.change("create", folder, || files::create_dir_all(folder))?;
        self.change("create", &path, || create(&path))
    }

    /// The new file survives a power cut; its length.
    pub fn finish(&self, file: &File, name: &str) -> Result<u64> {
        let path = unnamed(&self.path(name));
        self.change("sync", &path, || file.sync_all())?;
        let mut folder = path.as_path();
        while let Some(parent) = folder.parent().filter(|_| folder != self.root) {
            self.sync_folder(parent)?;
            folder = parent;
        }
        let length = file.metadata().map(|metadata| metadata.len());
        length.map_err(|error| Error::of("read", &path, error))
    }

    fn sync_folder(&self, path: &Path) -> Result<()> {
        self.change("sync", path, || File::open(path)?.sync_all())
    }

    /// From here on this is the copy.
    pub fn commit(&self, state: &State) -> Result<()> {
        let path = self.root.join(STATE);
        let unnamed = unnamed(&path);
        let text = state.encode();
        self.change("write", &unnamed, || {
            let mut file = create(&unnamed)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })?;
        self.change("rename", &unnamed, || fs::rename(&unnamed, &path))?;
        self.sync_folder(&self.root)
    }

    /// Gives the files of the state their names, and removes all others.
    pub fn tidy(&self, state: &State) -> Result<()> {
        let mut named = BTreeSet::new();
        for file in &state.files {
            let path = self.path(&file.path);
            let unnamed = unnamed(&path);
            if !path.exists() && unnamed.exists() {
                self.change("rename", &unnamed, || fs::rename(&unnamed, &path))?;
            }
            let length = fs::metadata(&path).map_err(|error| Error::of("read", &path, error))?;
            if length.len() != file.bytes {
                return Err(Error::new(format!(
                    "{} has {} bytes instead of {}: make the copy anew, in another folder",
                    path.display(),
                    length.len(),
                    file.bytes
                )));
            }
            named.insert(path);
        }
        for entry in entries(&self.root)? {
            if entry.is_dir() {
                self.tidy_folder(&entry, &named)?;
            }
        }
        Ok(())
    }

    fn tidy_folder(&self, folder: &Path, named: &BTreeSet<PathBuf>) -> Result<()> {
        for path in entries(folder)? {
            if path.is_dir() {
                self.tidy_folder(&path, named)?;
            } else if !named.contains(&path) {
                self.change("remove", &path, || fs::remove_file(&path))?;
            }
        }
        if entries(folder)?.is_empty() {
            self.change("remove", folder, || fs::remove_dir(folder))?;
        }
        Ok(())
    }
}

/// In place of what a killed run left.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => files::create(path),
    }
}

/// The file's name before the state has it.
fn unnamed(path: &Path) -> PathBuf {
    let name = path.file_name().expect("it has one").to_string_lossy();
    path.with_file_name(format!("{UNNAMED}{name}.tmp"))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        paths.collect::<io::Result<Vec<_>>>()
    });
    listed.map_err(|error| Error::of("read", folder, error))
}
