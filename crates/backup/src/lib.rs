//! Backups of Ebbtide databases that forget, too.
//!
//! A backup keeps what a database held, in files that never change: each goes to the store once, named by the SHA-256
//! of its bytes. A *ledger* keeps what came after a backup and must survive its restore: changed defaults, expiry
//! commands, dropped containers, range deletes. So a restore of an old backup brings back nothing that has expired
//! since. Plain deletes and overwrites are in no ledger.
//!
//! ```
//! use ebbtide::{Database, Ttl};
//! use ebbtide_backup::{Backups, Folder, Keep, Later};
//!
//! let folder = tempfile::tempdir()?;
//! let dir = folder.path().join("db");
//! let db = Database::open(&dir)?;
//! let c = db.container("c")?;
//! c.put_with_ttl("k", "v", Ttl::Never)?;
//!
//! let backups = Backups::open(Folder::new(folder.path().join("backups")));
//! let first = backups.backup(&db, &dir)?;
//! c.expire_all()?;
//! backups.ledger(&db, &dir)?;
//!
//! let (told, as_it_was) = (folder.path().join("told"), folder.path().join("as-it-was"));
//! backups.restore(Some(first.number), &told, Later::Tell)?;
//! assert!(Database::open(&told)?.container("c")?.get("k")?.is_none());
//! backups.restore(Some(first.number), &as_it_was, Later::Ignore)?;
//! assert_eq!(Database::open(&as_it_was)?.container("c")?.get("k")?.unwrap(), "v");
//!
//! backups.prune(Keep { count: Some(7), ..Keep::default() })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod error;
mod store;
mod format;
#[cfg(feature = "cloud")]
mod cloud;
mod scratch;
mod at_work;
mod lease;
mod pace;
mod manifests;
mod later;

mod backup;
mod prune;
mod restore;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::Options;

#[cfg(feature = "cloud")]
pub use cloud::Cloud;
pub use error::{Error, Result};
use manifests::Manifests;
pub use store::{Folder, Store};

use at_work::AtWork;

/// The backups of one database in a store. Give each database a store of its own.
pub struct Backups {
    store: Box<dyn Store>,
    at_work: AtWork,
    options: Options,
    rate: Option<u64>,
    skip_ending_within: Option<Duration>,
}

/// A backup in a store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Backup {
    /// Its number; later ones have higher numbers.
    pub number: u64,
    /// When it was made.
    pub taken_at: SystemTime,
    /// Its files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// A backup that was made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Its number.
    pub number: u64,
    /// Its files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Those of them that the store did not have.
    pub uploaded_files: u64,
    /// Bytes of these.
    pub uploaded_bytes: u64,
    /// Bytes of the tables that were left out, because nothing was left in them, or soon will be.
    pub left_out_bytes: u64,
}

/// The effect on a restore of states later than the backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// Expired stays gone.
    Tell,
    /// The database is as it was: what was expired by a command or a changed default since, and dropped containers,
    /// come back.
    Ignore,
}

/// A backup that was restored.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Restored {
    /// Its number.
    pub number: u64,
    /// Its files.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The later ledgers that it was told.
    pub ledgers: u64,
    /// Its files that were left out, because nothing was left in them by its own or a later ledger.
    pub ended_files: u64,
}

/// The backups that stay: those that no member here rules out, the last one, and all that are younger than one that stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// At most so many.
    pub count: Option<u64>,
    /// Those that are not older.
    pub younger_than: Option<Duration>,
}

/// The objects that a prune has removed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Pruned {
    /// Backups.
    pub backups: u64,
    /// Ledgers that no backup needed.
    pub ledgers: u64,
    /// Objects that no backup needed.
    pub objects: u64,
    /// Those of them that a backup names, but nothing is left in them: all has expired by the last ledgers.
    pub ended_objects: u64,
}

/// The result of a check of all backups.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Proof {
    /// Backups that were restored and checked.
    pub backups: u64,
    /// Bytes of the objects that they need.
    pub bytes: u64,
    /// Bytes of tables in which nothing is left, by the last ledgers, and which are stored still: [`Backups::prune`] removes
    /// them.
    pub ended_bytes: u64,
    /// When the item expired that did so first of all whose bytes a backup still needs with others; `None`: there is none.
    pub oldest_expired: Option<SystemTime>,
}

impl Backups {
    /// The backups in a store, which may be empty.
    pub fn open(store: impl Store + 'static) -> Backups {
        Backups {
            store: Box::new(store),
            at_work: AtWork::default(),
            options: Options::new(),
            rate: None,
            skip_ending_within: None,
        }
    }

    /// The options with which copies of the database are opened, where its clock is not the system's.
    #[must_use]
    pub fn options(self, options: Options) -> Backups {
        Backups { options, ..self }
    }

    /// The most bytes a second that go to the store or come from it.
    #[must_use]
    pub fn rate(self, bytes_per_second: u64) -> Backups {
        Backups {
            rate: Some(bytes_per_second),
            ..self
        }
    }

    /// Leaves tables out of a backup in which all will have expired so long after it, if no setting changes: for
    /// instance by the next backup. Where some are left out, a restore shows no item at all that was to expire before
    /// then, whatever table it is in, also when the default has become longer since. The database's time is
    /// [`Ledger::mark`](ebbtide::Ledger::mark), the time of its last write.
    #[must_use]
    pub fn skip_ending_within(self, within: Duration) -> Backups {
        Backups {
            skip_ending_within: Some(within),
            ..self
        }
    }

    /// The backups, oldest first.
    ///
    /// # Errors
    /// The store's, and [`Error::Damaged`].
    pub fn list(&self) -> Result<Vec<Backup>> {
        let manifests = Manifests::of(self.store.as_ref())?;
        let numbers = manifests.numbers(format::BACKUPS)?;
        let backup = |number| {
            let manifest = manifests.get(format::BACKUPS, number)?.manifest;
            let taken_at = Duration::from_millis(manifest.taken_at);
            Ok(Backup {
                number,
                taken_at: UNIX_EPOCH.checked_add(taken_at).unwrap_or(UNIX_EPOCH),
                files: manifest.files.len() as u64,
                bytes: manifest.bytes(),
            })
        };
        numbers.into_iter().map(backup).collect()
    }

    /// Gives back what calls under way have for their time alone: leases in the store, which would keep a prune away
    /// for 65 minutes, scratch folders, unfinished objects. Those calls never return: it is for a program that ends at
    /// once, because of a signal for instance, and is called by another thread than they. The store is left as after a
    /// kill.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ebbtide_backup::{Backups, Folder};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let backups = Arc::new(Backups::open(Folder::new(folder.path().join("backups"))));
    /// let at_work = Arc::clone(&backups);
    /// let on_signal = move || {
    ///     at_work.give_up();
    ///     std::process::exit(130);
    /// };
    /// # drop(on_signal);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_up(&self) {
        self.at_work.give_up(self.store.as_ref());
    }

    /// Removes the leases of all others from the store, and says how many: for someone who knows that nobody is at work in
    /// it, after a kill for instance. A backup, a restore or a prune that was at work all the same fails at its next object.
    ///
    /// # Errors
    /// The store's.
    pub fn break_leases(&self) -> Result<u64> {
        lease::remove_all(self.store.as_ref())
    }

    /// Objects among the backups of a store that have no name of a backup. They are left alone.
    ///
    /// # Errors
    /// The store's.
    pub fn strangers(&self) -> Result<Vec<String>> {
        type IsOwn = fn(&str) -> bool;
        let is_numbered = |name: &str| format::number_of(name).is_some();
        let folders: [(&str, IsOwn); 3] = [
            (format::BACKUPS, is_numbered),
            (format::LEDGERS, is_numbered),
            (format::OBJECTS, format::is_hash),
        ];
        let mut strangers = vec![];
        for (folder, is_own) in folders {
            let mut names = self.store.list(folder).map_err(Error::io("list", folder))?;
            names.retain(|name| !is_own(name));
            names.sort();
            strangers.extend(names.into_iter().map(|name| format!("{folder}/{name}")));
        }
        Ok(strangers)
    }

    /// To open a copy that nobody uses: nothing is merged in it, so that its tables stay those of the database.
    fn private_options(&self) -> Options {
        self.options.clone().background_rate(1)
    }
}
