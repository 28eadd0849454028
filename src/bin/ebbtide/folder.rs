//! A folder of its own for a database that is only looked at while the command runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::{Failure, Outcome};

/// Where the database lies; a temporary folder goes with this.
pub struct Folder {
    pub path: PathBuf,
    temporary: bool,
}

impl Folder {
    /// `dir`, if it is missing or empty; without one, a temporary folder. `what` needs it, as a message says.
    pub fn prepare(dir: Option<&Path>, what: &str) -> Outcome<Folder> {
        let Some(dir) = dir else {
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let name = format!("ebbtide-{what}-{}-{}", std::process::id(), since.as_nanos());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).map_err(|error| Failure::file("create", &path, &error))?;
            return Ok(Folder {
                path,
                temporary: true,
            });
        };
        // What is in it would mix with what is measured.
        if dir.read_dir().is_ok_and(|mut names| names.next().is_some()) {
            let dir = dir.display();
            return Err(Failure::Refused(format!(
                "{dir} is not empty: the {what} needs a new folder"
            )));
        }
        Ok(Folder {
            path: dir.to_owned(),
            temporary: false,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            // What cannot be removed from the temporary folder is the system's to remove.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
