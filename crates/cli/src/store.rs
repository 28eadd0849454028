//! Opening: commands that only read open read-only, or follow the process that has the database open; only `put`,
//! `import` and `ttl` may create a database. What changes it goes to a [`Writer`]: this process, or the one that has it
//! open and listens on its control socket.

use std::io;
use std::path::{Path, absolute};
use std::thread;
use std::time::{Duration, Instant};

use ebbtide::{Container, Database, Durability, Error, Options};
use ebbtide_control::{Answer, Client, Progress, Request};

use crate::arguments::{Home, Writing};
use crate::failure::{self, Failure, Outcome};

/// The time between two tries while a database is open elsewhere.
const LOOK: Duration = Duration::from_millis(50);

/// Does what changes a database.
pub enum Writer {
    /// This process, which has opened it.
    Own(Database),
    /// The process that has it open.
    Other(Client),
}

impl Writer {
    /// Does it, or has it done.
    pub fn ask(&self, request: &Request) -> Outcome<Answer> {
        Ok(match self {
            Writer::Own(db) => ebbtide_control::perform(db, request, &|| true),
            Writer::Other(client) => client.ask(request, &mut |_| ()),
        }?)
    }

    /// The same; tells now and then how far it is.
    pub fn watched(
        &self,
        request: &Request,
        progress: &mut dyn FnMut(&Progress),
    ) -> Outcome<Answer> {
        Ok(match self {
            Writer::Own(db) => ebbtide_control::watched(db, request, &mut |step| {
                progress(step);
                true
            }),
            Writer::Other(client) => client.ask(request, progress),
        }?)
    }

    /// A consistent copy in a folder. Where the other process makes none, because it may not write there or sees other
    /// folders, it is made beside it.
    pub fn checkpoint(&self, home: &Home, to: &Path) -> Outcome {
        let client = match self {
            Writer::Own(db) => return Ok(db.checkpoint(to)?),
            Writer::Other(client) => client,
        };
        let is_taken = to.read_dir().is_ok_and(|mut names| names.next().is_some());
        // It has a working folder of its own.
        let request = Request::Checkpoint { to: absolute(to)? };
        match client.ask(&request, &mut |_| ()) {
            Ok(_) if to.is_dir() => Ok(()),
            Err(refused) if is_taken => Err(refused.into()),
            _ => Ok(follow(home)?.checkpoint(to)?),
        }
    }

    /// To be read as a whole by this process: what it has opened, or beside the other one.
    #[cfg(feature = "parquet")]
    pub fn into_database(self, home: &Home) -> Outcome<Database> {
        match self {
            Writer::Own(db) => Ok(db),
            Writer::Other(_) => follow(home),
        }
    }

    /// All is synced.
    pub fn close(self) -> Outcome {
        match self {
            Writer::Own(db) => Ok(db.close()?),
            Writer::Other(_) => Ok(()),
        }
    }
}

/// Opens for reading.
pub fn read(home: &Home) -> Outcome<Database> {
    let open = || Options::new().read_only(true).open(&home.dir);
    or_follow(home, while_locked(home, open))
}

/// To copy it as a whole. An open for writing makes sure first that no power cut takes back what is copied; where nothing
/// can be written, in a snapshot of a volume for instance, nothing is. A process that has it open and listens makes the copy
/// itself.
pub fn copy(home: &Home) -> Outcome<Writer> {
    if !holds_manifest(&home.dir) {
        read(home)?;
    }
    let open = || match open_or_connect(home, Options::new()) {
        // It stays at the time that its program gave it last.
        Err(Error::TimeIsGiven { .. }) => open_or_connect(home, Options::new().given_time()),
        opened => opened,
    };
    match while_locked(home, open) {
        Err(Error::Io { source, .. }) if is_read_only(&source) => read(home).map(Writer::Own),
        Err(Error::Locked { .. }) => follow(home).map(Writer::Own),
        opened => Ok(opened?),
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

/// For changes of an existing database.
pub fn write(home: &Home, writing: Writing) -> Outcome<Writer> {
    // An open for writing would create a database in a folder that was named by mistake. An open for reading does not, and
    // tells whether there never was one or its manifest is lost.
    if !holds_manifest(&home.dir) {
        read(home)?;
    }
    create(home, writing)
}

/// For one change, which closing syncs.
pub fn write_once(home: &Home) -> Outcome<Writer> {
    write(home, Writing { sync: false })
}

/// For changes; creates the database if it is missing.
pub fn create(home: &Home, writing: Writing) -> Outcome<Writer> {
    let durability = match writing.sync {
        true => Durability::Sync,
        false => Durability::Buffered,
    };
    let options = Options::new().durability(durability);
    let opened = while_locked(home, || open_or_connect(home, options.clone()));
    opened.map_err(|error| match &error {
        Error::Locked { .. } => not_alone(
            home,
            "which listens on no control socket",
            " (its program opens one by `ebbtide_control::listen`)",
        ),
        _ => error.into(),
    })
}

/// The lock says who has it; who is refused that asks whether the other listens.
fn open_or_connect(home: &Home, options: Options) -> ebbtide::Result<Writer> {
    match options.open(&home.dir) {
        Err(locked @ Error::Locked { .. }) => match ebbtide_control::connect(&home.dir) {
            Ok(Some(client)) => Ok(Writer::Other(client)),
            _ => Err(locked),
        },
        opened => opened.map(Writer::Own),
    }
}

/// Another process has it open.
fn not_alone(home: &Home, which: &str, remedy: &str) -> Failure {
    let dir = home.dir.display();
    let process = match ebbtide_control::owner(&home.dir) {
        Some(process) => format!(", in process {process}"),
        None => String::new(),
    };
    let wait = match home.wait {
        Some(waited) => format!("end it (waited for {} s)", waited.as_secs_f64()),
        None => "end it, or --wait TIME".to_owned(),
    };
    Failure::Refused(format!(
        "{dir} is open elsewhere{process}, {which}{remedy}: {wait}"
    ))
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

/// The same, for what cannot be done while any other process has it open.
pub fn patiently<T>(home: &Home, work: impl FnMut() -> ebbtide::Result<T>) -> Outcome<T> {
    while_locked(home, work).map_err(|error| match &error {
        Error::Locked { .. } => not_alone(home, "and this needs it closed", ""),
        _ => error.into(),
    })
}

/// An existing container.
pub fn container(db: &Database, name: &str) -> Outcome<Container> {
    Ok(ebbtide_control::container(db, name)?)
}

fn holds_manifest(dir: &Path) -> bool {
    let mut entries = dir.read_dir().into_iter().flatten().flatten();
    entries.any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("manifest-")
    })
}
