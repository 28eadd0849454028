//! A folder for the time of a call, beside another one: `DIR.ebbtide-scratch`. Beside the database the copy of a backup is
//! made of hard links.
//!
//! ```text
//! open DIR.ebbtide-scratch.lock, not through a link -> lock it -> is it still what has this name? -> at work
//! -> remove the folder -> remove the lock's name -> unlock
//! ```
//!
//! Invariant: a process at work holds the lock of the file that has the name, and no other removes that. So a process
//! that got the lock of a file whose name is gone, because it had opened the file before, begins anew. The next call
//! removes the files that a killed process left in the folder, and so the links that keep room on disk.
//!
//! Where nothing can be written beside the folder, the scratch is a new folder among those for temporary files.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::shared::files;

use crate::at_work::AtWork;
use crate::error::{Error, Result};
use crate::store::is_read_only;

/// Removed on drop, and its lock with it.
pub struct Scratch<'a> {
    /// The folder, which does not exist yet, or is empty.
    pub path: PathBuf,
    at_work: &'a AtWork,
    lock: Option<PathBuf>,
    _locked: Option<File>,
}

impl<'a> Scratch<'a> {
    /// Beside a folder.
    pub fn beside(dir: &Path, at_work: &'a AtWork) -> Result<Scratch<'a>> {
        let dir: PathBuf = dir.components().collect();
        let named = |end: &str| {
            let mut name: OsString = dir.clone().into_os_string();
            name.push(end);
            PathBuf::from(name)
        };
        let (path, lock) = (named(".ebbtide-scratch"), named(".ebbtide-scratch.lock"));
        let mut made = at_work.hold();
        let locked = locked(&lock)?;
        made.note_scratch(&path, Some(&lock));
        drop(made);
        let scratch = Scratch {
            path,
            at_work,
            lock: Some(lock),
            _locked: Some(locked),
        };
        remove(&scratch.path).map_err(Error::io("remove", scratch.path.display().to_string()))?;
        Ok(scratch)
    }

    /// The same, or among temporary files if nothing can be written there.
    pub fn near(dir: &Path, at_work: &'a AtWork) -> Result<Scratch<'a>> {
        match Scratch::beside(dir, at_work) {
            Err(Error::Io { source, .. }) if is_read_only(&source) => Scratch::temporary(at_work),
            scratch => scratch,
        }
    }

    /// Its name is its own, so it needs no lock.
    fn temporary(at_work: &'a AtWork) -> Result<Scratch<'a>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.unwrap_or_default().as_nanos();
        let name = format!("ebbtide-scratch-{}-{nanos}", std::process::id());
        let root = std::env::temp_dir().join(name);
        at_work.hold().note_scratch(&root, None);
        let made = files::create_dir(&root);
        let scratch = Scratch {
            path: root,
            at_work,
            lock: None,
            _locked: None,
        };
        made.map_err(Error::io("create", scratch.path.display().to_string()))?;
        Ok(scratch)
    }

    /// Turns an error of the engine about a file in this folder into one of the scratch folder, because no database
    /// lies there.
    pub fn of<T>(&self, answer: ebbtide::Result<T>) -> Result<T> {
        answer.map_err(|error| {
            let is_here = match &error {
                ebbtide::Error::Io { path, .. }
                | ebbtide::Error::Corruption { path, .. }
                | ebbtide::Error::UnsupportedFormat { path, .. }
                | ebbtide::Error::Locked { path }
                | ebbtide::Error::NotFound { path } => path.starts_with(&self.path),
                _ => false,
            };
            match is_here {
                true => Error::Scratch {
                    path: self.path.clone(),
                    source: error,
                },
                false => error.into(),
            }
        })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let mut made = self.at_work.hold();
        clear(&self.path, self.lock.as_deref());
        made.forget_scratch(&self.path);
    }
}

/// The lock, held, of the file that has this name.
fn locked(lock: &Path) -> Result<File> {
    loop {
        let file = files::open_lock(lock).map_err(Error::io("open", lock.display().to_string()))?;
        if is_locked(&file, lock)? {
            return Ok(file);
        }
    }
}

/// Locks a file that was opened by this name; false: it does not have that any more.
fn is_locked(file: &File, lock: &Path) -> Result<bool> {
    let failed = |doing| Error::io(doing, lock.display().to_string());
    match file.try_lock() {
        Ok(()) => files::is_named(file, lock).map_err(failed("read")),
        Err(TryLockError::WouldBlock) => Err(Error::InUse {
            lock: lock.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
    }
}

/// Removes a folder, and the lock beside it, which is held. The next call removes what stays.
pub fn clear(path: &Path, lock: Option<&Path>) {
    // A process at work in the folder may make or remove a file meanwhile; once the folder is gone, it cannot.
    for _ in 0..100 {
        if remove(path).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    if let Some(lock) = lock {
        let _ = fs::remove_file(lock);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of those who have opened the lock one after the other, one at a time is at work. Method: one opens it while
    /// another is at work, and locks it when that is done and a third has come.
    #[test]
    fn a_lock_whose_name_is_gone_holds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, at_work) = (folder.path().join("db"), AtWork::default());
        let first = Scratch::beside(&dir, &at_work).unwrap();
        let lock = first.lock.clone().unwrap();
        let opened = files::open_lock(&lock).unwrap();
        assert!(matches!(
            is_locked(&opened, &lock),
            Err(Error::InUse { .. })
        ));
        drop(first);
        assert!(!is_locked(&opened, &lock).unwrap(), "no file has the name");
        let third = Scratch::beside(&dir, &at_work).unwrap();
        assert!(!is_locked(&opened, &lock).unwrap(), "another has it");
        let again = Scratch::beside(&dir, &at_work).map(|_| ());
        assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
        drop(third);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_link_leads_to_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, mine) = (folder.path().join("db"), folder.path().join("mine"));
        std::os::unix::fs::symlink(&mine, folder.path().join("db.ebbtide-scratch.lock")).unwrap();
        for text in [None, Some("precious")] {
            if let Some(text) = text {
                fs::write(&mine, text).unwrap();
            }
            let refused = Scratch::beside(&dir, &AtWork::default()).map(|_| ());
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("symbolic link"), "{said}");
            assert_eq!(fs::read_to_string(&mine).ok().as_deref(), text);
        }
    }
}
