//! Opening: commands that only read open read-only, and only `put`, `import` and `ttl` may create anything.

use std::path::Path;

use ebbtide::{Container, Database, Error, Options};

use crate::arguments::Place;
use crate::failure::{Failure, Outcome};

/// To read.
pub fn read(dir: &Path) -> Outcome<Database> {
    Ok(Options::new().read_only(true).open(dir)?)
}

/// To write into what is there.
pub fn write(dir: &Path) -> Outcome<Database> {
    // An open for writing would create a database in whatever folder was named by mistake.
    if !holds_database(dir) {
        let path = dir.to_owned();
        return Err(Error::NotFound { path }.into());
    }
    Ok(Database::open(dir)?)
}

/// To write; creates the database and the container where they are missing.
pub fn create(place: &Place) -> Outcome<(Database, Container)> {
    let db = Database::open(&place.dir)?;
    let container = db.container(&place.container)?;
    Ok((db, container))
}

/// A container that is there.
pub fn container(db: &Database, name: &str) -> Outcome<Container> {
    if db.containers().iter().any(|known| known == name) {
        return Ok(db.container(name)?);
    }
    Err(Failure::NotFound(format!("there is no container {name:?}")))
}

fn holds_database(dir: &Path) -> bool {
    let names = dir.read_dir().into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().starts_with("manifest-"))
}
