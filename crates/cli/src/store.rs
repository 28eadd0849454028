//! Opening: commands that only read open read-only, and only `put`, `import` and `ttl` may create anything.

use std::path::Path;

use ebbtide::{Container, Database, Options};

use crate::arguments::Place;
use crate::failure::{Failure, Outcome};

/// To read.
pub fn read(dir: &Path) -> Outcome<Database> {
    Ok(Options::new().read_only(true).open(dir)?)
}

/// To write into what is there.
pub fn write(dir: &Path) -> Outcome<Database> {
    // An open for writing would create a database in whatever folder was named by mistake. One to read does not, and says
    // whether there never was one or its manifest is lost.
    if !holds_manifest(dir) {
        read(dir)?;
    }
    Ok(Database::open(dir)?)
}

/// Does `work` and closes; creates the database and the container where they are missing. A container that was made for
/// work that came to nothing goes again.
pub fn create<T>(
    place: &Place,
    work: impl FnOnce(&Database, &Container) -> Outcome<T>,
) -> Outcome<T> {
    refuse_foreign(&place.dir)?;
    let db = Database::open(&place.dir)?;
    let is_new = !db.containers().contains(&place.container);
    let container = db.container(&place.container)?;
    let done = work(&db, &container);
    if done.is_err() && is_new && container.iter().next().is_none() {
        // What failed first is what the user is told.
        let _ = db.drop_container(&place.container);
    }
    let closed = db.close();
    let done = done?;
    closed?;
    Ok(done)
}

/// A container that is there.
pub fn container(db: &Database, name: &str) -> Outcome<Container> {
    if db.containers().iter().any(|known| known == name) {
        return Ok(db.container(name)?);
    }
    Err(Failure::NotFound(format!("there is no container {name:?}")))
}

fn holds_manifest(dir: &Path) -> bool {
    names(dir).iter().any(|name| is_manifest(name))
}

/// A folder that holds other things and no trace of a database was named by mistake. One that is damaged is the
/// library's to judge; what a file system puts into its first folder does not count.
fn refuse_foreign(dir: &Path) -> Outcome {
    let mut names = names(dir);
    names.retain(|name| name != "lost+found");
    let is_own = |name: &String| {
        is_manifest(name) || ["copy", "lost", "tables", "wal"].contains(&name.as_str())
    };
    if names.is_empty() || names.iter().any(is_own) {
        return Ok(());
    }
    let dir = dir.display();
    Err(Failure::Refused(format!(
        "{dir} holds other things and no database: one is made in a folder that is missing or empty"
    )))
}

fn is_manifest(name: &str) -> bool {
    name.starts_with("manifest-")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = dir.read_dir().into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
