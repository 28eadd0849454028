//! Where backups are kept: objects that are written once under a name, and never changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::shared::files;

/// A place for objects. A name is a folder, `/`, and letters, digits, `-` and `.`.
pub trait Store: Send + Sync {
    /// Stores an object under a name that is free; `false`, and nothing is stored, when the name is taken. The object
    /// appears whole and durably, or not at all.
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool>;

    /// Reads an object; [`io::ErrorKind::NotFound`] if there is none.
    fn get(&self, name: &str) -> io::Result<Box<dyn Read>>;

    /// The names of the objects in a folder, without the folder. Every object stored before the call is in it.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes an object; that there is none is no error.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Removes what calls of `put` that are under way have written of objects that have no name yet: the program is about
    /// to end, see [`Backups::give_up`](crate::Backups::give_up). A store that needs nothing of the kind does nothing.
    fn abandon(&self) {}
}

/// A store in a folder of a file system that has hard links. Its files and folders can be reached by their owner alone.
///
/// An object is written to `tmp/MILLISECONDS-PROCESS-NUMBER`, synced, then linked to its name.
/// [`Backups::prune`](crate::Backups::prune) removes files that a killed process left in `tmp`, a day later.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// Of all clones.
    unfinished: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// The folder of unfinished objects.
pub(crate) const TEMPORARY: &str = "tmp";

/// The folders of a store.
const OWN: [&str; 6] = [
    "objects", "backups", "ledgers", "leases", "store", TEMPORARY,
];

/// Milliseconds since 1970, by the machine's clock.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Folder {
    /// The store in this folder, which is made when the first object is stored.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder {
            path: path.into(),
            unfinished: Arc::default(),
        }
    }

    /// Whether backups may be stored in it: what is there is a store's, or nothing.
    ///
    /// # Errors
    /// It cannot be listed.
    pub fn is_store(&self) -> io::Result<bool> {
        let is_there = |name: &str| self.path.join(name).is_dir();
        let names = self.list("")?;
        let all_own = names.iter().all(|name| OWN.contains(&name.as_str()));
        Ok(all_own || (is_there("backups") && is_there("objects")))
    }

    fn unfinished(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        let unfinished = self.unfinished.lock();
        unfinished.unwrap_or_else(PoisonError::into_inner)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            // A store that an earlier version made is readable by others.
            return files::withdraw_rights(&self.path, &|name| OWN.contains(&name));
        }
        files::create_dir_all(path)?;
        path.ancestors()
            .take_while(|above| above.starts_with(&self.path))
            .filter_map(Path::parent)
            .try_for_each(sync_dir)
    }
}

/// Whether a write failed because nothing can be written there at all, or not by this user.
pub(crate) fn is_read_only(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::PermissionDenied,
    ];
    kinds.contains(&error.kind())
}

pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    match path.as_os_str().is_empty() {
        true => File::open(".")?.sync_all(),
        false => File::open(path)?.sync_all(),
    }
}

impl Store for Folder {
    fn put(&self, name: &str, from: &mut dyn Read) -> io::Result<bool> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = self.path.join(name);
        if path.exists() {
            return Ok(false);
        }
        let folder = path.parent().unwrap_or(&self.path).to_owned();
        let temporary_dir = self.path.join(TEMPORARY);
        self.make_dir(&folder)?;
        self.make_dir(&temporary_dir)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}", now(), std::process::id());
        let temporary = temporary_dir.join(name);
        self.unfinished().insert(temporary.clone());
        let written = files::create(&temporary).and_then(|mut file| {
            io::copy(from, &mut file)?;
            file.sync_all()
        });
        let linked = written.and_then(|()| match fs::hard_link(&temporary, &path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        });
        let removed = fs::remove_file(&temporary);
        self.unfinished().remove(&temporary);
        let stored = linked?;
        removed?;
        sync_dir(&folder)?;
        Ok(stored)
    }

    fn get(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let path = self.path.join(name);
        // Opening a pipe would wait, and a device has no end.
        match fs::symlink_metadata(&path)?.is_file() {
            true => Ok(Box::new(File::open(path)?)),
            false => Err(io::Error::other("it is no file")),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path.join(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            entries => entries?,
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_dir(path.parent().unwrap_or(&self.path)),
        }
    }

    fn abandon(&self) {
        for path in self.unfinished().iter() {
            let _ = fs::remove_file(path);
        }
    }
}
