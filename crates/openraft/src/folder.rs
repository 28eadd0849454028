//! The folder of a group's state.
//!
//! ```text
//! CURRENT           the name of the state that counts, and a line feed; replaced by a rename
//! state-N/          a database in given time
//! receiving-N/      a snapshot that is coming in
//! sending-N/        a copy, of hard links, while it is sent
//! ```
//!
//! Invariants:
//!
//! 1. `CURRENT` names a whole, synced state (I8): it is replaced when the new one is synced and verified, and the old one goes
//!    after that.
//! 2. Whatever else is there when a node starts is of a process that has ended, and goes.
//! 3. `CURRENT` is there before a state is made. So states without it, and a state that it names and that is missing, are of a folder
//!    that has lost something: an error, and nothing goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::shared::files;

const CURRENT: &str = "CURRENT";
const STATE: &str = "state-";

/// See the file's head.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    next: AtomicU64,
}

impl Folder {
    /// Opens the folder of a group, makes it if it is missing, and removes what no state needs.
    pub fn open(path: &Path) -> io::Result<(Folder, PathBuf)> {
        files::create_dir_all(path)?;
        let folder = Folder {
            path: path.to_owned(),
            next: AtomicU64::new(1),
        };
        let current = match folder.current()? {
            Some(current) => current,
            None => {
                let first = format!("{STATE}0");
                folder.expect_no_state()?;
                folder.point_to(&first)?;
                first
            }
        };
        let state = path.join(&current);
        if current != format!("{STATE}0") && !state.is_dir() {
            return Err(invalid(&state, "is missing, and CURRENT names it"));
        }
        let mut last = 0;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name
                .rsplit_once('-')
                .and_then(|(_, number)| number.parse().ok());
            last = number.map_or(last, |number: u64| last.max(number));
            if name == "CURRENT.new" {
                fs::remove_file(entry.path())?;
            } else if name != current && number.is_some() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        folder.next.store(last + 1, Ordering::Relaxed);
        Ok((folder, state))
    }

    fn expect_no_state(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            if entry?.file_name().to_string_lossy().starts_with(STATE) {
                let what =
                    "is missing, and there is a state: write the name of the last one into it";
                return Err(invalid(&self.path.join(CURRENT), what));
            }
        }
        Ok(())
    }

    fn current(&self) -> io::Result<Option<String>> {
        let text = match fs::read(self.path.join(CURRENT)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = text.strip_suffix('\n');
        let is_state = |name: &&str| name.starts_with(STATE) && !name.contains(['/', '\0']);
        match name.filter(is_state) {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(invalid(
                &self.path.join(CURRENT),
                &format!("names no state: {text:?}"),
            )),
        }
    }

    /// A name that nothing has.
    pub fn fresh(&self, kind: &str) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.path.join(format!("{kind}-{number}"))
    }

    /// Gives a folder that came in the name of a state.
    pub fn adopt(&self, received: &Path) -> io::Result<PathBuf> {
        let state = self.fresh("state");
        fs::rename(received, &state)?;
        sync_folder(&self.path)?;
        Ok(state)
    }

    /// Lets this state count.
    pub fn set_current(&self, state: &Path) -> io::Result<()> {
        let name = state.file_name().unwrap_or_default();
        self.point_to(&name.to_string_lossy())
    }

    fn point_to(&self, name: &str) -> io::Result<()> {
        let new = self.path.join("CURRENT.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = files::create(&new)?;
        file.write_all(format!("{name}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, self.path.join(CURRENT))?;
        sync_folder(&self.path)
    }
}

fn invalid(path: &Path, what: &str) -> io::Error {
    let text = format!("{} {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Makes the names in a folder survive a power cut.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
