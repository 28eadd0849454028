//! Ledgers: what of a database's history an older copy of it must be told, so that expired stays gone in it.
//!
//! ```text
//! copy of today  --ledger-->  settings, floors, commands, range deletes, which containers there are, the mark
//! older copy     --apply--->  the same, but for containers that it does not know; items and tables stay as they are
//! ```
//!
//! A ledger is the catalogue of a database without its runs and its log. Taking one brings the folder to rest: it is
//! opened, flushed and closed, and the log is left out. Then the catalogue says all that there is to say.
//!
//! Only a folder at rest is told a ledger, and nobody opens it before: an open judges items by the settings of the
//! copy at the time of now, and would purge what a longer default, which the ledger has, keeps alive.
//!
//! Invariants of an application:
//!
//! 1. Whatever the ledger adds has a sequence number above every record of the copy, so it reaches all of them, as it
//!    did in the database. The catalogue's `used` is raised to the ledger's, so no later write is below it.
//! 2. Settings only go forward. Commands that stand in the copy or came with an earlier ledger are kept.
//! 3. It is one edit: all or nothing.

use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::base::{Error, Result, Seq, Timestamp, file_name};
use crate::catalog::{Catalogue, Change, ContainerRecord, LoadedManifest, Manifest, find_current};
use crate::engine::options::Options;
use crate::env::{Lock, LockKind};
use crate::expiry::Settings;
use crate::wal::remove_chain;

/// What became of a database's containers up to one moment: their default ttls, floors, expiry commands and range
/// deletes, and which of them were dropped; no items. [`Options::ledger`] takes one, [`Options::apply_ledger`] tells
/// it to an older copy. With serde it is an object that later versions read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    mark: Timestamp,
    used: Seq,
    containers: Vec<ContainerRecord>,
}

impl Ledger {
    /// Orders the ledgers of one database: that of a later state is higher, or equal if nothing was written between.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.used.0
    }

    /// The highest time on which the database had relied.
    #[must_use]
    pub fn mark(&self) -> SystemTime {
        self.mark.to_system_time()
    }

    /// The changes that bring an older catalogue to this ledger.
    fn changes_of(&self, older: &Catalogue) -> Result<Vec<Change>> {
        let mut changes = vec![Change::used(self.used)];
        for record in older.containers.values() {
            let known = |later: &&ContainerRecord| later.id == record.id;
            match self.containers.iter().find(known) {
                Some(later) => tell(record, later, older.used, &mut changes)?,
                // One that was created after the ledger is unknown to it.
                None if record.created <= self.used => {
                    changes.push(Change::DropContainer(record.id));
                }
                None => {}
            }
        }
        Ok(changes)
    }
}

/// The changes of one container between an older catalogue, which has seen the write `used`, and a ledger.
fn tell(
    older: &ContainerRecord,
    later: &ContainerRecord,
    used: Seq,
    changes: &mut Vec<Change>,
) -> Result<()> {
    if later.settings_seq > older.settings_seq {
        let told = older
            .settings
            .after_those_of(&later.settings, older.settings_seq);
        let settings = match told {
            Some(settings) => settings,
            None if misses_command(&older.settings, &later.settings) => {
                return Err(Error::invalid(
                    "ledger",
                    format!("one without the last command of container {:?}", later.name),
                    "one that was taken before 64 changes and commands came after it: its reach is known no more, and \
                     items that it ended would come back; take ledgers more often",
                ));
            }
            None => later.settings.with_commands_of(&older.settings),
        };
        changes.push(Change::Settings(older.id, settings, later.settings_seq));
    }
    let ranges = later.range_deletes.iter().filter(|range| range.seq > used);
    changes.extend(ranges.map(|range| Change::AddRangeDelete(older.id, range.clone())));
    Ok(())
}

/// Whether a command was given that no longer stands, and that the floors need not cover.
fn misses_command(older: &Settings, later: &Settings) -> bool {
    let last = later.command_seq;
    last > older.command_seq
        && later.floor_seq < last
        && !later.commands.iter().any(|command| command.seq == last)
}

impl Options {
    /// Takes the ledger of a database that no process has open: most often of a fresh
    /// [checkpoint](crate::Database::checkpoint). The folder is opened with these options, flushed and closed; its log is
    /// left out then, for nothing is in it.
    ///
    /// ```
    /// use ebbtide::{Database, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    /// let db = Database::open(folder.path().join("db"))?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("k", "v", Ttl::Never)?;
    /// db.checkpoint(&old)?;
    /// c.expire_all()?;
    /// db.checkpoint(&new)?;
    ///
    /// Options::new().ledger(&old)?; // brings it to rest
    /// let ledger = Options::new().ledger(&new)?;
    /// Options::new().apply_ledger(&old, &ledger)?;
    /// assert!(Database::open(&old)?.container("c")?.get("k")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Options::open`], of flushing and of closing; [`Error::NotFound`] if the folder holds no database.
    pub fn ledger(&self, path: impl AsRef<Path>) -> Result<Ledger> {
        let catalogue = self.rested(path.as_ref())?.catalogue;
        let mut containers: Vec<_> = catalogue.containers.into_values().collect();
        containers.iter_mut().for_each(|record| record.runs.clear());
        Ok(Ledger {
            mark: catalogue.time_high_water,
            used: catalogue.used,
            containers,
        })
    }

    /// Tells a copy of a database, which no process has open, what became of the database later. What had expired by
    /// the ledger is gone in the copy too: by changed defaults, by commands, or because its container was dropped;
    /// the copy's time starts no earlier than [`Ledger::mark`]. Range deletes that the ledger has apply. Deletes and
    /// overwrites of single items are in no ledger: such items are as the copy has them. A ledger that is older than
    /// the copy changes nothing. Of several ledgers, apply the older ones first.
    ///
    /// The copy must be one of the same database; whether it is, is not checked. It must be at rest:
    /// [`Options::ledger`] was called on it when it was fresh, and nobody has opened it since. An open before would
    /// purge what a longer default, which the ledger has, keeps alive.
    ///
    /// # Errors
    /// [`Error::NotFound`], damage, and what writing answers; [`Error::InvalidArgument`] if the copy has a log, or a
    /// command of the ledger has been followed by so many changes and commands, 64, that it is not known what it reached. After an error the copy is as it was.
    pub fn apply_ledger(&self, path: impl AsRef<Path>, ledger: &Ledger) -> Result<()> {
        let path = path.as_ref();
        let not_found = || Error::NotFound { path: path.into() };
        let _lock = self.lock(path)?;
        let current = find_current(self.fs.as_ref(), path)?.ok_or_else(not_found)?;
        let LoadedManifest {
            catalogue, number, ..
        } = current.loaded;
        if catalogue.log.is_some() {
            let (given, allowed) = (
                path.display().to_string(),
                "one that `Options::ledger` left",
            );
            return Err(Error::invalid("copy to tell a ledger", given, allowed));
        }
        if catalogue.used > ledger.used {
            return Ok(());
        }
        let changes = ledger.changes_of(&catalogue)?;
        Manifest::resume(self.fs.clone(), path, number)?.commit(changes, ledger.mark)
    }

    fn lock(&self, path: &Path) -> Result<Option<Box<dyn Lock>>> {
        let path = path.join(file_name::LOCK);
        self.fs.lock(&path, LockKind::Exclusive)
    }

    /// The manifest of a folder, after all that its log held went to tables, and the log itself.
    fn rested(&self, path: &Path) -> Result<LoadedManifest> {
        let not_found = || Error::NotFound { path: path.into() };
        if find_current(self.fs.as_ref(), path)?.is_none() {
            return Err(not_found());
        }
        let db = self.open(path)?;
        db.flush()?;
        db.close()?;
        drop(db);
        let _lock = self.lock(path)?;
        let current = find_current(self.fs.as_ref(), path)?.ok_or_else(not_found)?;
        let mark = current.loaded.catalogue.time_high_water;
        let mut manifest = Manifest::resume(self.fs.clone(), path, current.loaded.number)?;
        manifest.commit(vec![Change::Log(None)], mark)?;
        remove_chain(self.fs.as_ref(), &path.join(file_name::WAL_DIR), 0);
        Ok(LoadedManifest {
            catalogue: manifest.catalogue().clone(),
            ..current.loaded
        })
    }
}
