//! The folder of a database that exists only while the command runs.
//!
//! A temporary folder is removed at the end, however the command ends: by the destructor or, when a signal ends the
//! process, by a thread that waits for signals. The remover holds `ENDING`; the thread never releases it, so that the
//! command, which may fail because its files vanish, prints nothing before the signal has ended it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Failure, Outcome};

static ENDING: Mutex<()> = Mutex::new(());

/// The database's folder; a temporary one is removed on drop.
pub struct Folder {
    pub path: PathBuf,
    temporary: bool,
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
            let made = remove_on_signals(path.clone()).and_then(|()| fs::create_dir(&path));
            made.map_err(|error| Failure::file("create", &path, &error))?;
            return Ok(Folder {
                path,
                temporary: true,
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
            temporary: false,
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            let _ending = ENDING.lock();
            remove(&self.path);
        }
    }
}

/// From now on a signal that ends the process first removes the folder.
fn remove_on_signals(path: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        for signal in signals.forever() {
            let _ending = ENDING.lock();
            remove(&path);
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .map(|_| ())
}

/// What cannot be removed from the temporary folder is left to the system.
fn remove(path: &Path) {
    // A database at work may make or remove a file in the folder meanwhile; once the folder is gone, it cannot.
    for _ in 0..100 {
        if fs::remove_dir_all(path).is_ok() || !path.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
