//! Calls on folders that no process has open: verification, repair, upgrade, ledgers.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::{Error, Result, Timestamp};
use crate::catalog::Ledger;
use crate::engine::options::Options;
use crate::engine::{self, RepairReport, VerifyReport, at_rest};
use crate::env::Disk;

/// Reads and checks every byte of a database that no process has open for writing: manifest, tables, log. `progress` is
/// called with the bytes done and their total. Writes nothing.
///
/// ```
/// use ebbtide::Database;
///
/// let folder = tempfile::tempdir()?;
/// Database::open(folder.path())?.container("c")?.put("k", "v")?;
/// let report = ebbtide::verify(folder.path(), &mut |done, of| println!("{done} of {of} bytes"))?;
/// assert!(report.faults.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The database cannot be read at all: it is open elsewhere, or there is none, or neither its manifest nor the copy can
/// be trusted, or something that is no file has the name of one. Other damage is in the report.
pub fn verify(path: impl AsRef<Path>, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
    engine::verify_in(Arc::new(Disk), path.as_ref(), progress)
}

/// Repairs a database that no process has open: from the manifest or its copy, from the sound tables, and from the log
/// up to its first damage. Without `apply` nothing is changed, and the report says what would be done.
///
/// Nothing that was deleted, expired or replaced comes back: a damaged table takes with it everything in its key range
/// that its lost records may have hidden, and the report counts that. Only a damaged log loses deletes: then the
/// database is as it was before the first lost write, except for what had reached tables, and a batch may be there in
/// part.
///
/// Damaged files are kept in the folder `lost` of the database, and may hold expired and deleted bytes; remove the
/// folder when it is no longer needed.
///
/// ```
/// use ebbtide::{Database, repair};
///
/// let folder = tempfile::tempdir()?;
/// Database::open(folder.path())?.container("c")?.put("k", "v")?;
/// let report = repair(folder.path(), false)?; // what would be lost?
/// assert!(report.losses.is_empty());
/// for loss in &report.losses {
///     println!("{loss}");
/// }
/// let _ = repair(folder.path(), true)?; // once that has been decided on
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The folder holds no database, or a process has it open; neither the manifest nor its copy can be trusted, also
/// because the log has later edits than both, or is another database's; something that is no file has the name of one;
/// or writing fails, and then the database is unchanged.
pub fn repair(path: impl AsRef<Path>, apply: bool) -> Result<RepairReport> {
    engine::repair(path.as_ref(), &Options::new(), apply)
}

/// The result of [`Options::upgrade`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgraded {
    /// The version of the folder's format before; 0 if the manifest was lost, and its copy was read.
    pub from: u32,
    /// The version now, which is that of this build.
    pub to: u32,
}

impl Options {
    /// Brings a database of an older version of the format to that of this build, by opening and closing it: that writes
    /// manifest and log anew. There is one version of tables, so they stay. A newer version of the format and a folder
    /// without a database are refused, and nothing is changed. Every open for writing does the same; this one says so, and
    /// makes no new database.
    ///
    /// ```
    /// use ebbtide::{Database, Error, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// assert!(matches!(Options::new().upgrade(folder.path()), Err(Error::NotFound { .. })));
    /// Database::open(folder.path())?.container("c")?.put("k", "v")?;
    /// let done = Options::new().upgrade(folder.path())?;
    /// assert_eq!(done.from, done.to); // it is of this version
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnsupportedFormat`] for a version that this build does not read, and those of [`Options::open`].
    pub fn upgrade(&self, path: impl AsRef<Path>) -> Result<Upgraded> {
        let path = path.as_ref();
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let from = at_rest::format_version(path, self)?;
        self.open(path)?.close()?;
        Ok(Upgraded {
            from,
            to: at_rest::format_version(path, self)?,
        })
    }

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
        at_rest::ledger(path.as_ref(), self)
    }

    /// Tells a copy of a database, which no process has open, the later history of the database. Items that had expired
    /// by the ledger are gone in the copy too: by changed defaults, by commands, or because their container was
    /// dropped; the copy's time starts no earlier than [`Ledger::mark`]. Range deletes that the ledger has apply.
    /// Deletes and overwrites of single items are in no ledger: such items are as the copy has them. A ledger that is
    /// older than the copy changes nothing. Of several ledgers, apply the older ones first, and only those that the
    /// copy's own [precedes](Ledger::precedes). Items that a backup of another copy left out
    /// ([`Options::drop_ending_before`]) are not told.
    ///
    /// The copy must be one of the same database. It must be at rest: [`Options::ledger`] was called on it when it was
    /// fresh, and nobody has opened it since. An open before would purge items that a longer default, which the ledger
    /// has, keeps alive.
    ///
    /// # Errors
    /// [`Error::NotFound`], damage, and the errors of writing; [`Error::InvalidArgument`] if the copy has a log, or is
    /// of another database, or a command of the ledger has been followed by so many changes and commands, 64, that it
    /// is not known what it reached. After an error the copy is as it was.
    pub fn apply_ledger(&self, path: impl AsRef<Path>, ledger: &Ledger) -> Result<()> {
        at_rest::apply_ledger(path.as_ref(), self, ledger)
    }

    /// Takes those tables out of a copy at rest that have ended by a later ledger: the ones that
    /// [`Ledger::ended_by`] names. Their files need not be there. It changes no result of the copy from now on, whether
    /// it is told the ledger or not; its time starts no earlier than the end of the last item that it has lost. Comes
    /// before [`Options::apply_ledger`].
    ///
    /// # Errors
    /// As those of [`Options::apply_ledger`].
    pub fn drop_ended(&self, path: impl AsRef<Path>, later: &Ledger) -> Result<()> {
        at_rest::drop_ended(path.as_ref(), self, later)
    }

    /// Takes those tables out of a copy at rest that [`Ledger::ending_before`] names, where `own` is the ledger of the
    /// copy as it was. Their files need not be there. In all containers every item that was to end before that moment is
    /// gone from then on, in other tables too, so that no older version shows in place of one that was left out.
    /// Comes after every [`Options::apply_ledger`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{Database, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let copy = folder.path().join("copy");
    /// let db = Database::open(folder.path().join("db"))?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("soon", "v", Duration::from_secs(60))?;
    /// c.put_with_ttl("late", "v", Ttl::Never)?;
    /// db.checkpoint(&copy)?;
    ///
    /// let ledger = Options::new().ledger(&copy)?;
    /// let moment = db.now() + Duration::from_secs(3600);
    /// for file in ledger.ending_before(moment) {
    ///     std::fs::remove_file(copy.join(file))?;
    /// }
    /// Options::new().drop_ending_before(&copy, &ledger, moment)?;
    /// let copy = Database::open(&copy)?.container("c")?;
    /// assert!(copy.get("soon")?.is_none() && copy.get("late")?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As those of [`Options::apply_ledger`].
    pub fn drop_ending_before(
        &self,
        path: impl AsRef<Path>,
        own: &Ledger,
        moment: SystemTime,
    ) -> Result<()> {
        let before = Timestamp::from_system_time_up(moment);
        at_rest::drop_ending_before(path.as_ref(), self, own, before)
    }

    /// Notes in a copy at rest that it goes on by itself, beside the database that it was copied from: as a branch. `own` is
    /// the ledger of the copy as it was, and `told` a number by which the caller finds the last ledger that it was told,
    /// or 0. Comes last of all.
    ///
    /// A branch has other containers than the database, and an event in one does not happen in the other, though both
    /// count on from the same number. [`Ledger::precedes`] tells them apart.
    ///
    /// ```
    /// use ebbtide::{Database, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let [old, new, copy] = ["old", "new", "copy"].map(|name| folder.path().join(name));
    /// let db = Database::open(folder.path().join("db"))?;
    /// db.container("a")?;
    /// db.checkpoint(&old)?;
    /// db.container("b")?.put("k", "v")?;
    /// db.checkpoint(&new)?;
    ///
    /// let (old_ledger, new_ledger) = (Options::new().ledger(&old)?, Options::new().ledger(&new)?);
    /// Options::new().branch(&old, &old_ledger, 0)?;
    /// let restored = Database::open(&old)?;
    /// restored.container("a")?.put("k", "v")?;
    /// restored.checkpoint(&copy)?;
    ///
    /// let ledger = Options::new().ledger(&copy)?;
    /// assert!(old_ledger.precedes(&new_ledger) && old_ledger.precedes(&ledger));
    /// assert!(!new_ledger.precedes(&ledger)); // nobody dropped `b`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As those of [`Options::apply_ledger`].
    pub fn branch(&self, path: impl AsRef<Path>, own: &Ledger, told: u64) -> Result<()> {
        at_rest::branch(path.as_ref(), self, own, told)
    }
}
