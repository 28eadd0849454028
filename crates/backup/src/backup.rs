//! Making backups.
//!
//! ```text
//! lease -> checkpoint beside the database -> flush the copy, take its ledger -> objects that are missing -> manifest
//! ```
//!
//! The manifest is written last, and names only what is stored. A call that ends before leaves objects that no backup
//! names, which a repeated call uses and a prune removes.
//!
//! Left out are tables that have ended, and on request those that soon will have. The ledger says of the first which
//! they are; for the second the manifest has the moment, and a restore ends there whatever was to end before it, for an
//! older version of such an item may be in a table that was stored.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::{Database, Ledger};

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, LEDGERS, Manifest, OBJECTS, StoredFile};
use crate::lease::{Lease, Purpose};
use crate::manifests::Manifests;
use crate::pace::{Hashed, Pace};
use crate::scratch::{Scratch, files};
use crate::store::now;
use crate::{Backups, Report};

/// The file that only says who has the folder open.
const LOCK: &str = "LOCK";

impl Backups {
    /// Makes a backup of a database, which may be in use, or be a [follower](ebbtide::Options::follow) of another
    /// process's. `dir` is the database's folder: the copy that is read lies beside it for the time of the call.
    ///
    /// Only tables that no earlier backup has go to the store, so a backup of what has not changed is small.
    ///
    /// # Errors
    /// [`Error::Busy`] while a prune is at work, or another backup of the same database; [`Error::Refused`] if the store
    /// has backups of another database; what the database and the store answer. Earlier backups stay as they are.
    pub fn backup(&self, db: &Database, dir: &Path) -> Result<Report> {
        self.backup_of(&|to| Ok(db.checkpoint(to)?), dir)
    }

    /// Makes a backup of a database that another process has open, which makes the copy that is read: `copy` has it make a
    /// checkpoint in this folder.
    ///
    /// # Errors
    /// Those of `copy`, and as [`Backups::backup`].
    pub fn backup_of(&self, copy: &dyn Fn(&Path) -> Result<()>, dir: &Path) -> Result<Report> {
        let store = self.store.as_ref();
        let lease = Lease::take(store, &self.at_work, Purpose::Make)?;
        let mut manifests = Manifests::of(store)?;
        let (scratch, ledger) = self.cut(copy, dir, &manifests)?;
        let mut known: HashSet<String> = store
            .list(OBJECTS)
            .map_err(Error::io("list", OBJECTS))?
            .into_iter()
            .collect();
        let mut manifest = Manifest::new(0, vec![], ledger);
        let left_out = self.left_out(&mut manifest);
        let mut report = Report::default();
        let mut pace = Pace::new(self.rate);
        let found =
            files(&scratch.path).map_err(Error::io("list", scratch.path.display().to_string()))?;
        for path in found.into_iter().filter(|path| path != LOCK) {
            if left_out.contains(&path) {
                report.left_out_bytes += len(&scratch.path.join(path))?;
                continue;
            }
            lease.renew()?;
            let file = self.store_file(&scratch.path, path, &mut known, &mut pace, &mut report)?;
            report.files += 1;
            report.bytes += file.len;
            manifest.files.push(file);
        }
        manifest.taken_at = now();
        let held = lease.hold()?;
        report.number = manifests.put(BACKUPS, &mut manifest)?;
        drop(held);
        // A prune of before it was named has seen nobody at work then.
        if let Err(broken @ Error::Refused(_)) = lease.expect_unbroken() {
            let name = format::name(BACKUPS, report.number);
            store.delete(&name).map_err(Error::io("remove", name))?;
            return Err(broken);
        }
        Ok(report)
    }

    /// Writes a ledger alone: what became of items as a whole since the last backup, so that a restore of that, or of
    /// an older one, brings back nothing that has expired. Cheap enough for every few minutes. Returns its number.
    ///
    /// It knows the last 64 changes of the default and commands of each container. Where more came between two ledgers, a
    /// restore refuses if it is not known what a command among them reached.
    ///
    /// # Errors
    /// As [`Backups::backup`].
    pub fn ledger(&self, db: &Database, dir: &Path) -> Result<u64> {
        self.ledger_of(&|to| Ok(db.checkpoint(to)?), dir)
    }

    /// Writes a ledger alone of a database that another process has open; see [`Backups::backup_of`].
    ///
    /// # Errors
    /// Those of `copy`, and as [`Backups::backup`].
    pub fn ledger_of(&self, copy: &dyn Fn(&Path) -> Result<()>, dir: &Path) -> Result<u64> {
        let store = self.store.as_ref();
        let lease = Lease::take(store, &self.at_work, Purpose::Make)?;
        let mut manifests = Manifests::of(store)?;
        let (_scratch, ledger) = self.cut(copy, dir, &manifests)?;
        let mut manifest = Manifest::new(now(), vec![], ledger.without_tables());
        let _held = lease.hold()?;
        manifests.put(LEDGERS, &mut manifest)
    }

    /// A copy of the database at one moment, with nothing in its log, and its ledger.
    fn cut(
        &self,
        copy: &dyn Fn(&Path) -> Result<()>,
        dir: &Path,
        manifests: &Manifests<'_>,
    ) -> Result<(Scratch<'_>, Ledger)> {
        let scratch = Scratch::near(dir, &self.at_work)?;
        match copy(&scratch.path) {
            Err(Error::Database(error)) => scratch.of(Err(error))?,
            made => made?,
        }
        let ledger = scratch.of(self.private_options().ledger(&scratch.path))?;
        expect_of_same_database(&ledger, manifests)?;
        Ok((scratch, ledger))
    }

    /// The tables that need not be stored; notes the moment before which all in some of them ends.
    fn left_out(&self, manifest: &mut Manifest) -> HashSet<String> {
        let ledger = &manifest.ledger;
        let mut left_out: HashSet<String> = ledger.ended_by(ledger).into_iter().collect();
        if let Some(within) = self.skip_ending_within {
            let since = ledger.mark().duration_since(UNIX_EPOCH);
            let moment = (since.unwrap_or_default() + within).as_millis() as u64;
            let ending = ledger.ending_before(UNIX_EPOCH + Duration::from_millis(moment));
            let have_not_ended = ending.iter().any(|path| !left_out.contains(path));
            manifest.left_out_before = have_not_ended.then_some(moment);
            left_out.extend(ending);
        }
        left_out
    }

    /// Stores a file of the copy, unless the store has its bytes.
    fn store_file(
        &self,
        root: &Path,
        path: String,
        known: &mut HashSet<String>,
        pace: &mut Pace,
        report: &mut Report,
    ) -> Result<StoredFile> {
        let from = root.join(&path);
        let failed = |error| Error::io("read", from.display().to_string())(error);
        let open = || File::open(&from).map_err(failed);
        let mut unpaced = Pace::new(None);
        let mut hashed = Hashed::new(open()?, &mut unpaced);
        let len = io::copy(&mut hashed, &mut io::sink()).map_err(failed)?;
        let sha256 = hashed.finish();
        if !known.contains(&sha256) {
            let name = format::object(&sha256);
            let mut source = Hashed::new(open()?, pace);
            self.store
                .put(&name, &mut source)
                .map_err(Error::io("write", name))?;
            report.uploaded_files += 1;
            report.uploaded_bytes += len;
            known.insert(sha256.clone());
        }
        Ok(StoredFile { path, len, sha256 })
    }
}

/// Fails if the store has the backups of another database. A ledger of that would end items in a restore of this one.
fn expect_of_same_database(ledger: &Ledger, manifests: &Manifests<'_>) -> Result<()> {
    let last = manifests.last()?;
    let mut last = last.iter().map(|found| &found.manifest.ledger);
    match last.all(|last| last.is_of_same_database(ledger)) {
        true => Ok(()),
        false => Err(Error::Refused(
            "the store has backups of another database: name one for each".into(),
        )),
    }
}

fn len(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(Error::io("read", path.display().to_string()))?;
    Ok(found.len())
}
