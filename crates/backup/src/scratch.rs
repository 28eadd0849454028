//! A folder beside another one, for the time of a call: `DIR.ebbtide-scratch`.
//!
//! Beside the database the copy of a backup is made of hard links. A lock on `DIR.ebbtide-scratch.lock` says that it
//! is in use; what a killed process left in it is removed by the next call, and so are the links that keep room on
//! disk.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Removed on drop, and its lock with it.
pub struct Scratch {
    /// The folder, which does not exist yet.
    pub path: PathBuf,
    lock: PathBuf,
    _locked: File,
}

impl Scratch {
    pub fn beside(dir: &Path) -> Result<Scratch> {
        let dir: PathBuf = dir.components().collect();
        let named = |end: &str| {
            let mut name: OsString = dir.clone().into_os_string();
            name.push(end);
            PathBuf::from(name)
        };
        let (path, lock) = (named(".ebbtide-scratch"), named(".ebbtide-scratch.lock"));
        let shown = lock.display().to_string();
        let file = File::create(&lock).map_err(Error::io("create", &*shown))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { lease: shown }),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", shown)(error)),
        }
        remove(&path).map_err(Error::io("remove", path.display().to_string()))?;
        Ok(Scratch {
            path,
            lock,
            _locked: file,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The next call removes what stays.
        let _ = remove(&self.path);
        let _ = fs::remove_file(&self.lock);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The files below a folder, as paths below it with `/` between their parts, in order.
pub fn files(root: &Path) -> io::Result<Vec<String>> {
    let (mut found, mut folders) = (vec![], vec![String::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = match folder.as_str() {
                "" => name,
                folder => format!("{folder}/{name}"),
            };
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}
