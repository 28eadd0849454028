//! Opening: commands that only read open read-only, or follow the process that has the database open; only `put`,
//! `import` and `ttl` may create a database.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Container, Database, Durability, Error, Options};

use crate::arguments::{ContainerArgs, Home, Writing};
use crate::failure::{self, Failure, Outcome};

/// The time between two tries while a database is open elsewhere.
const LOOK: Duration = Duration::from_millis(50);

/// Opens for reading.
pub fn read(home: &Home) -> Outcome<Database> {
    let open = || Options::new().read_only(true).open(&home.dir);
    or_follow(home, while_locked(home, open))
}

/// To copy it as a whole. An open for writing makes sure first that no power cut takes back what is copied; where nothing
/// can be written, in a snapshot of a volume for instance, nothing is.
pub fn copy(home: &Home) -> Outcome<Database> {
    if !holds_manifest(&home.dir) {
        read(home)?;
    }
    match while_locked(home, || Options::new().open(&home.dir)) {
        Err(Error::Io { source, .. }) if is_read_only(&source) => read(home),
        opened => or_follow(home, opened),
    }
}

fn is_read_only(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::PermissionDenied,
    ];
    kinds.contains(&error.kind())
}

fn or_follow(home: &Home, opened: ebbtide::Result<Database>) -> Outcome<Database> {
    match opened {
        Err(Error::Locked { .. }) => follow(home),
        done => Ok(done?),
    }
}

/// Beside the process that has it open, which is said.
pub fn follow(home: &Home) -> Outcome<Database> {
    let db = Options::new().follow(&home.dir)?;
    let dir = home.dir.display();
    failure::note(&format_args!(
        "{dir} is open in another process: read beside it, as it is now"
    ));
    Ok(db)
}

/// Opens an existing database for writing.
pub fn write(home: &Home, writing: Writing) -> Outcome<Database> {
    // An open for writing would create a database in a folder that was named by mistake. An open for reading does not, and
    // tells whether there never was one or its manifest is lost.
    if !holds_manifest(&home.dir) {
        read(home)?;
    }
    open(home, writing)
}

/// Opens for one write, which closing syncs.
pub fn write_once(home: &Home) -> Outcome<Database> {
    write(home, Writing { sync: false })
}

/// Runs `work` and closes; creates the database and the container if they are missing. If `work` fails, a container
/// created for it is dropped.
pub fn create<T>(
    place: &ContainerArgs,
    writing: Writing,
    work: impl FnOnce(&Database, &Container) -> Outcome<T>,
) -> Outcome<T> {
    let db = open(&place.home, writing)?;
    let is_new = !db.containers().contains(&place.container);
    let container = db.container(&place.container)?;
    let done = work(&db, &container);
    if done.is_err() && is_new && container.iter().next().is_none() {
        // The user gets the first error.
        let _ = db.drop_container(&place.container);
    }
    let closed = db.close();
    let done = done?;
    closed?;
    Ok(done)
}

fn open(home: &Home, writing: Writing) -> Outcome<Database> {
    let durability = match writing.sync {
        true => Durability::Sync,
        false => Durability::Buffered,
    };
    patiently(home, || {
        Options::new().durability(durability).open(&home.dir)
    })
}

/// Runs `work`, repeatedly while another process has the database open, for as long as the user will wait.
pub fn while_locked<T>(
    home: &Home,
    mut work: impl FnMut() -> ebbtide::Result<T>,
) -> ebbtide::Result<T> {
    let begun = Instant::now();
    let patience = home.wait.unwrap_or_default();
    loop {
        match work() {
            Err(Error::Locked { .. }) if begun.elapsed() < patience => thread::sleep(LOOK),
            done => return done,
        }
    }
}

/// The same, for what cannot be done beside that process.
pub fn patiently<T>(home: &Home, work: impl FnMut() -> ebbtide::Result<T>) -> Outcome<T> {
    while_locked(home, work).map_err(|error| match (&error, home.wait) {
        (Error::Locked { .. }, Some(waited)) => {
            let waited = waited.as_secs_f64();
            Failure::Refused(format!("{error} (waited for {waited} s)"))
        }
        (Error::Locked { .. }, None) => Failure::Refused(format!("{error}, or --wait TIME")),
        _ => error.into(),
    })
}

/// An existing container.
pub fn container(db: &Database, name: &str) -> Outcome<Container> {
    if db.containers().iter().any(|known| known == name) {
        return Ok(db.container(name)?);
    }
    Err(no_container(name))
}

pub fn no_container(name: &str) -> Failure {
    Failure::NotFound(format!("there is no container {name:?}"))
}

fn holds_manifest(dir: &Path) -> bool {
    let mut entries = dir.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("manifest-")
    })
}
