//! The folder of a database that exists only while the command runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::shared::files;

use crate::failure::{Failure, Outcome};
use crate::interrupt::Undo;

/// The database's folder.
pub struct Folder {
    pub path: PathBuf,
    /// A temporary one goes at the end, however the command ends.
    _temporary: Option<Undo>,
}

impl Folder {
    /// `dir`, if it is missing or empty; without `dir`, a temporary folder. `what` is named in error messages.
    pub fn prepare(dir: Option<&Path>, what: &str) -> Outcome<Folder> {
        let Some(dir) = dir else {
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let name = format!("ebbtide-{what}-{}-{}", std::process::id(), since.as_nanos());
            let path = std::env::temp_dir().join(name);
            let removed = path.clone();
            let temporary = Undo::by(move || remove(&removed));
            let made = temporary.and_then(|undo| files::create_dir(&path).map(|()| undo));
            let temporary = made.map_err(|error| Failure::file("create", &path, &error))?;
            return Ok(Folder {
                path,
                _temporary: Some(temporary),
            });
        };
        // Its contents would mix with the measured ones.
        if dir.read_dir().is_ok_and(|mut names| names.next().is_some()) {
            let dir = dir.display();
            return Err(Failure::Refused(format!(
                "{dir} is not empty: the {what} needs a new folder"
            )));
        }
        Ok(Folder {
            path: dir.to_owned(),
            _temporary: None,
        })
    }
}

/// Files that cannot be removed from the temporary folder are left to the system.
fn remove(path: &Path) {
    // A database at work may make or remove a file in the folder meanwhile; once the folder is gone, it cannot.
    for _ in 0..100 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
