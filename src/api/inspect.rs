//! Verification, repair and upgrade of a closed database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{ContainerId, Error, Reads, Result, Seq, file_name};
use crate::catalog::{
    CurrentManifest, LoadedManifest, Pins, TableFile, TableRecord, TableSpace, expect_own,
    find_current, later_table, version_of,
};
use crate::engine::options::Options;
use crate::engine::{self, RepairReport, VerifyReport};
use crate::env::{Disk, Fs, LockKind};
use crate::table::BlockCache;
use crate::wal::{Replayed, salvage};

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
    verify_in(Arc::new(Disk), path.as_ref(), progress)
}

/// Like [`verify`], in any file system.
pub fn verify_in(
    fs: Arc<dyn Fs>,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    let not_found = || Error::NotFound { path: path.into() };
    if !fs.is_dir(path) {
        return Err(not_found());
    }
    let _lock = fs.lock(&path.join(file_name::LOCK), LockKind::Shared)?;
    expect_own(fs.as_ref(), path)?;
    let current = find_current(fs.as_ref(), path)?.ok_or_else(not_found)?;
    let mut check = Check {
        fs: fs.as_ref(),
        path,
        progress,
        total: 0,
        report: VerifyReport::default(),
    };
    check.whole(&current)?;
    Ok(check.report)
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
        let version = || -> Result<u32> {
            let not_found = || Error::NotFound { path: path.into() };
            let fs = self.fs.as_ref();
            if !fs.is_dir(path) {
                return Err(not_found());
            }
            expect_own(fs, path)?;
            let current = find_current(fs, path)?.ok_or_else(not_found)?;
            let number = current.loaded.number;
            Ok(version_of(fs, path, number).ok().flatten().unwrap_or(0))
        };
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let from = version()?;
        self.open(path)?.close()?;
        Ok(Upgraded {
            from,
            to: version()?,
        })
    }
}

struct Check<'a> {
    fs: &'a dyn Fs,
    path: &'a Path,
    progress: &'a mut dyn FnMut(u64, u64),
    total: u64,
    report: VerifyReport,
}

impl Check<'_> {
    fn whole(&mut self, current: &CurrentManifest) -> Result<()> {
        let loaded = &current.loaded;
        self.report.faults.extend(current.damage.clone());
        let tables: Vec<(ContainerId, TableRecord)> = loaded
            .catalogue
            .containers
            .values()
            .flat_map(|container| container.runs.iter().map(move |run| (container.id, run)))
            .flat_map(|(id, run)| run.tables.iter().map(move |table| (id, *table)))
            .collect();
        let wal_dir = self.path.join(file_name::WAL_DIR);
        let first = loaded.catalogue.log.map_or(u64::MAX, |log| log.oldest());
        let segments = self.segments(&wal_dir, first)?;
        let manifest_len = self.fs.len(&loaded.path)?.unwrap_or(0);
        let log_len: u64 = segments.iter().map(|segment| segment.1).sum();
        self.total = manifest_len + log_len + tables.iter().map(|table| table.1.len).sum::<u64>();
        self.done(1, manifest_len);
        let mut last = loaded.catalogue.used.max(loaded.catalogue.reserved);
        for (container, table) in tables {
            last = last.max(self.table(container, table));
        }
        let seen = self.log(&wal_dir, loaded)?;
        self.done(segments.len() as u64, log_len);
        let of_copy = current.copy_fault(self.fs, seen.edit)?;
        self.report.faults.extend(of_copy);
        if self.report.faults.is_empty() {
            let (dir, named) = (
                self.path.join(file_name::TABLES_DIR),
                loaded.catalogue.tables(),
            );
            let later = later_table(self.fs, &dir, &named, last.max(seen.last_seq))?;
            self.report.faults.extend(later);
        }
        Ok(())
    }

    fn done(&mut self, files: u64, bytes: u64) {
        self.report.files += files;
        self.report.bytes += bytes;
        (self.progress)(self.report.bytes, self.total);
    }

    fn segments(&self, wal_dir: &Path, first: u64) -> Result<Vec<(PathBuf, u64)>> {
        let mut segments = vec![];
        if !self.fs.is_dir(wal_dir) {
            return Ok(segments);
        }
        for name in self.fs.list(wal_dir)? {
            if file_name::parse_segment(&name).is_some_and(|number| number >= first) {
                let path = wal_dir.join(name);
                let len = self.fs.len(&path)?.unwrap_or(0);
                segments.push((path, len));
            }
        }
        Ok(segments)
    }

    /// Returns the highest sequence number in it, if it is sound.
    fn table(&mut self, container: ContainerId, record: TableRecord) -> Seq {
        let space = TableSpace {
            fs: self.fs,
            dir: &self.path.join(file_name::TABLES_DIR),
            cache: &Arc::new(BlockCache::new(0)),
            pins: &Arc::new(Pins::default()),
            reads: Reads::Pread,
        };
        let file = TableFile::open(&space, container, record);
        let checked = file.and_then(|file| {
            let report = file.table.verify()?;
            Ok((report.records, file.table.statistics().census.seq_max))
        });
        let mut last = Seq(0);
        match checked {
            Ok((records, highest)) => {
                self.report.records += records;
                last = highest;
            }
            Err(error) => self.report.faults.push(error),
        }
        self.done(1, record.len);
        last
    }

    /// Returns the state found, with the last edit that the log has seen.
    fn log(&mut self, wal_dir: &Path, loaded: &LoadedManifest) -> Result<Replayed> {
        let mut records = 0;
        let catalogue = &loaded.catalogue;
        let (log, synced) = (catalogue.log, catalogue.log_synced);
        let (replayed, damage) = salvage(self.fs, wal_dir, log, synced, &mut |frame| {
            use crate::data::batch::Ops;
            use crate::data::relogged::relogged;
            use crate::wal::FrameKind;
            let malformed = |what| frame.corruption(&what);
            match frame.header.kind {
                FrameKind::Batch => Ops::new(frame.payload)
                    .try_for_each(|op| op.map(|op| records += u64::from(op.is_record()))),
                FrameKind::Relog => {
                    relogged(frame.payload).try_for_each(|entry| entry.map(|_| records += 1))
                }
                FrameKind::End => Ok(()),
            }
            .map_err(malformed)
        })?;
        self.report.records += records;
        self.report.faults.extend(damage);
        let reached = loaded.reaches(self.fs, replayed.edit);
        self.report.faults.extend(reached.err());
        Ok(replayed)
    }
}
