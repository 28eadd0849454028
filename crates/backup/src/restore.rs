//! Restoring backups.
//!
//! ```text
//! lease -> DIR.ebbtide-scratch: every file, checked against its hash, but no table that has ended -> these tables out
//! of the catalogue -> later ledgers, oldest first -> what the backup left out -> a branch -> renamed to DIR
//! ```
//!
//! The folder gets its name when it is complete. So nobody opens one that has not been told what expired since. It is a
//! branch of the database's history: what comes of it has not happened to what later backups hold (later.rs).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::shared::files;

use crate::error::{Error, Result};
use crate::format::{self, BACKUPS, Manifest, OBJECTS, StoredFile};
use crate::later::{self, Ledgers};
use crate::lease::{Lease, Purpose};
use crate::manifests::Manifests;
use crate::pace::{Hashed, Pace};
use crate::scratch::Scratch;
use crate::store::sync_dir;
use crate::{Backups, Later, Proof, Restored};

impl Backups {
    /// Restores a backup, the last one if `at` is `None`, into a folder that is missing or empty. Every byte is
    /// checked.
    ///
    /// With [`Later::Tell`] what had expired by the last ledger or backup that came of it is gone in the folder, too: by
    /// changed defaults, by commands, with dropped containers; range deletes apply as well. Deletes and overwrites of single
    /// items do not: such items are as they were. With [`Later::Ignore`] what expired since by a command or by a
    /// changed default, and whole containers, come back; what has reached its end by the clock stays gone all the
    /// same.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], with [`Later::Tell`] also of a later ledger or backup that is damaged or
    /// missing; [`Error::Refused`] if the folder is not empty; [`Error::Database`] if a ledger lacks a command. Then the
    /// folder is as it was.
    pub fn restore(&self, at: Option<u64>, dir: &Path, later: Later) -> Result<Restored> {
        let shown = dir.display().to_string();
        let is_taken = match fs::read_dir(dir) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(Error::io("list", shown)(error)),
        };
        if is_taken {
            return Err(Error::Refused(format!(
                "{shown} is not empty: a backup is restored into a folder that is missing or empty"
            )));
        }
        let lease = Lease::take(self.store.as_ref(), &self.at_work, Purpose::Read)?;
        let manifests = Manifests::of(self.store.as_ref())?;
        let (number, manifest) = find(&manifests, at)?;
        let above = dir.parent().unwrap_or(Path::new(""));
        if !above.as_os_str().is_empty() {
            files::create_dir_all(above)
                .map_err(Error::io("create", above.display().to_string()))?;
        }
        let ledgers = match later {
            Later::Tell => Ledgers::read(&manifests, number)?,
            Later::Ignore => Ledgers::read(&manifests, u64::MAX)?,
        };
        let mut line = vec![];
        if later == Later::Tell {
            ledgers.expect_all_from(number)?;
            line = ledgers.line(number, &manifest);
        }
        let scratch = Scratch::beside(dir, &self.at_work)?;
        let mut restored = self.fetch(&manifest, &ledgers, &scratch.path, &lease)?;
        restored.number = number;
        self.leave_out_ended(&manifest, &ledgers, &scratch)?;
        self.tell(&line, &scratch)?;
        restored.ledgers = line.len() as u64;
        self.leave_out_ending(&manifest, &scratch)?;
        let told = line.iter().map(|later| later.number).max();
        let options = self.private_options();
        scratch.of(options.branch(&scratch.path, &manifest.ledger, told.unwrap_or(0)))?;
        // Replaces an empty folder, and never with a copy that is being given up.
        let held = self.at_work.hold();
        fs::rename(&scratch.path, dir).map_err(Error::io("create", &*shown))?;
        drop(held);
        sync_dir(above).map_err(Error::io("sync", shown))?;
        Ok(restored)
    }

    /// Restores every backup into a folder beside `beside`, one after the other, and checks it: all hashes, that the
    /// later ledgers are there and apply, then every checksum of the database. Says which expired bytes the backups still
    /// hold.
    ///
    /// # Errors
    /// The first fault, as [`Backups::restore`] has them.
    pub fn prove(&self, beside: &Path) -> Result<Proof> {
        let lease = Lease::take(self.store.as_ref(), &self.at_work, Purpose::Read)?;
        let mut proof = Proof::default();
        // The lengths of objects: those that a backup needs, and those of tables in which nothing is left.
        let (mut needed, mut left) = (HashMap::new(), HashMap::new());
        let manifests = Manifests::of(self.store.as_ref())?;
        let numbers = manifests.numbers(BACKUPS)?;
        let ledgers = Ledgers::read(&manifests, 0)?;
        ledgers.expect_all_from(numbers.first().copied().unwrap_or(u64::MAX))?;
        for number in numbers {
            let manifest = manifests.get(BACKUPS, number)?.manifest;
            let scratch = Scratch::near(beside, &self.at_work)?;
            self.fetch(&manifest, &ledgers, &scratch.path, &lease)?;
            self.leave_out_ended(&manifest, &ledgers, &scratch)?;
            self.tell(&ledgers.line(number, &manifest), &scratch)?;
            self.leave_out_ending(&manifest, &scratch)?;
            let checked = scratch.of(ebbtide::verify(&scratch.path, &mut |_, _| {}))?;
            if let Some(fault) = checked.faults.into_iter().next() {
                return scratch.of(Err(fault));
            }
            let oldest = scratch.of(self.oldest_expired(&scratch.path))?;
            proof.oldest_expired = match (proof.oldest_expired, oldest) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            proof.backups += 1;
            let ended = ledgers.ended(&manifest);
            for file in manifest.files {
                match ended.contains(&file.path) {
                    true => left.insert(file.sha256, file.len),
                    false => needed.insert(file.sha256, file.len),
                };
            }
        }
        left.retain(|object, _| !needed.contains_key(object));
        let stored = self
            .store
            .list(OBJECTS)
            .map_err(Error::io("list", OBJECTS))?;
        let lens = stored.iter().filter_map(|object| left.get(object));
        proof.ended_bytes = sum(lens);
        proof.bytes = sum(needed.values());
        Ok(proof)
    }

    fn oldest_expired(&self, path: &Path) -> ebbtide::Result<Option<SystemTime>> {
        let db = self.options.clone().read_only(true).open(path)?;
        let oldest = db.stats().oldest_unreclaimed;
        db.close()?;
        Ok(oldest)
    }

    /// Takes the tables out of the catalogue of a copy that [`Backups::fetch`] did not fetch.
    fn leave_out_ended(
        &self,
        manifest: &Manifest,
        ledgers: &Ledgers,
        to: &Scratch<'_>,
    ) -> Result<()> {
        for later in ledgers.that_end(manifest) {
            to.of(self.private_options().drop_ended(&to.path, later))?;
        }
        Ok(())
    }

    fn tell(&self, line: &[&later::Later], to: &Scratch<'_>) -> Result<()> {
        for later in line {
            to.of(self.private_options().apply_ledger(&to.path, &later.ledger))?;
        }
        Ok(())
    }

    /// Takes the tables out of the catalogue of a copy that its backup left out because they ended soon.
    fn leave_out_ending(&self, manifest: &Manifest, to: &Scratch<'_>) -> Result<()> {
        let Some(before) = manifest.left_out_before else {
            return Ok(());
        };
        let (options, before) = (self.private_options(), Duration::from_millis(before));
        let (ledger, before) = (&manifest.ledger, UNIX_EPOCH + before);
        to.of(options.drop_ending_before(&to.path, ledger, before))
    }

    /// Fetches the files of a backup, but for the tables in which nothing is left.
    fn fetch(
        &self,
        manifest: &Manifest,
        ledgers: &Ledgers,
        to: &Path,
        lease: &Lease<'_>,
    ) -> Result<Restored> {
        let (ended, mut restored) = (ledgers.ended(manifest), Restored::default());
        let mut pace = Pace::new(self.rate);
        let mut folders = HashSet::from([to.to_owned()]);
        for file in &manifest.files {
            let path = to.join(inside(&file.path)?);
            let folder = path.parent().unwrap_or(to).to_owned();
            files::create_dir_all(&folder)
                .map_err(Error::io("create", folder.display().to_string()))?;
            folders.insert(folder);
            if ended.contains(&file.path) {
                restored.ended_files += 1;
                continue;
            }
            lease.renew()?;
            self.fetch_file(file, &path, &mut pace)
                .map_err(|error| lease.explain(error))?;
            restored.files += 1;
            restored.bytes += file.len;
        }
        for folder in folders {
            sync_dir(&folder).map_err(Error::io("sync", folder.display().to_string()))?;
        }
        Ok(restored)
    }

    fn fetch_file(&self, file: &StoredFile, path: &Path, pace: &mut Pace) -> Result<()> {
        let name = format::object(&file.sha256);
        let damaged = |what: &str| Error::damaged(&name, what);
        let from = self.store.get(&name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged("it is missing"),
            _ => Error::io("read", &*name)(error),
        })?;
        // One byte more than the file's length is read at most: enough to see that an object is too long.
        let mut from = Hashed::new(from.take(file.len.saturating_add(1)), pace);
        let written = files::create(path).and_then(|mut to| {
            io::copy(&mut from, &mut to)?;
            to.sync_all()
        });
        written.map_err(Error::io("write", path.display().to_string()))?;
        let len = from.len;
        match from.finish() == file.sha256 && len == file.len {
            true => Ok(()),
            false => Err(damaged("its bytes do not match its name")),
        }
    }
}

fn find(manifests: &Manifests<'_>, at: Option<u64>) -> Result<(u64, Manifest)> {
    let numbers = manifests.numbers(BACKUPS)?;
    let number = match at {
        Some(number) => numbers.contains(&number).then_some(number),
        None => numbers.last().copied(),
    };
    let number = number.ok_or(Error::NotFound { number: at })?;
    Ok((number, manifests.get(BACKUPS, number)?.manifest))
}

/// Of lengths that somebody else wrote.
fn sum<'a>(lens: impl Iterator<Item = &'a u64>) -> u64 {
    lens.fold(0, |sum, len| sum.saturating_add(*len))
}

/// A path that leads nowhere but down.
fn inside(path: &str) -> Result<&Path> {
    let is_inside = |part| matches!(part, Component::Normal(_));
    let path = Path::new(path);
    match path.components().all(is_inside) {
        true => Ok(path),
        false => Err(Error::Refused(format!(
            "a backup names the file {}, outside the folder of a database",
            path.display()
        ))),
    }
}
