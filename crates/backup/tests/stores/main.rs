//! Backups in stores that fail, wait, are read alone, or lie; and what has gone from each by now.

mod at_work;
mod backups;
mod ended;
mod hostile;
mod ledgers;
mod store;

use std::fs;
use std::path::{Path, PathBuf};

use ebbtide::{Container, Database, Options, Ttl};
use ebbtide_backup::{Backups, Folder, Keep, Later, Report, Result, Store};

use store::Watched;

/// Options of the databases here: in a folder in memory an open takes most of its time to allocate the log.
fn small() -> Options {
    Options::new().memtable_bytes(256 << 10)
}

fn backups_in(store: impl Store + 'static) -> Backups {
    Backups::open(store).options(small())
}

/// The names in a folder, in their order; none where it is missing.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = Vec::from_iter(names);
    names.sort();
    names
}

fn keep(count: u64) -> Keep {
    Keep {
        count: Some(count),
        ..Keep::default()
    }
}

/// A database, and a store beside it.
struct World {
    folder: tempfile::TempDir,
    db: Database,
    items: Container,
}

impl World {
    fn new() -> World {
        let folder = testkit::scratch();
        let db = small().open(folder.path().join("db")).unwrap();
        let items = db.container("items").unwrap();
        World { folder, db, items }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `count` items that say `round`, and makes them a table.
    fn write(&self, round: &str, count: u32) {
        for n in 0..count {
            self.items
                .put_with_ttl(format!("{round}-{n}"), [7; 500], Ttl::Never)
                .unwrap();
        }
        self.db.flush().unwrap();
    }

    fn store(&self) -> Folder {
        Folder::new(self.path("store"))
    }

    fn watched(&self) -> Watched {
        Watched::new(self.store())
    }

    fn backups(&self) -> Backups {
        backups_in(self.store())
    }

    fn backup(&self, backups: &Backups) -> Result<Report> {
        backups.backup(&self.db, &self.path("db"))
    }

    /// Restores a backup, and counts its items.
    fn items_in(&self, backups: &Backups, number: u64) -> u64 {
        let to = self.path("restored");
        let restored = backups.restore(Some(number), &to, Later::Tell).unwrap();
        assert_eq!(restored.number, number);
        let db = small().open(&to).unwrap();
        let count = db.container("items").unwrap().count(..).unwrap();
        db.close().unwrap();
        fs::remove_dir_all(&to).unwrap();
        count
    }

    /// Nothing that was there for the time of a call.
    fn expect_nothing_left(&self) {
        for folder in ["store/leases", "store/tmp"] {
            assert_eq!(names(&self.path(folder)), [""; 0], "{folder}");
        }
        assert_eq!(names(self.folder.path()), ["db", "store"]);
    }
}
