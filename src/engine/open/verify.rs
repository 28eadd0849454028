//! Verification of a folder that no process has open for writing: manifest, tables, log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{ContainerId, Error, Result, Seq, file_name};
use crate::catalog::{
    CurrentManifest, LoadedManifest, Pins, TableFile, TableRecord, TableSpace, expect_own,
    find_current, later_table,
};
use crate::data::batch::Ops;
use crate::data::relogged::relogged;
use crate::engine::jobs::scrub::VerifyReport;
use crate::env::{Fs, LockKind};
use crate::table::BlockCache;
use crate::values::Reads;
use crate::wal::{FrameKind, Replayed, salvage};

/// See [`crate::verify`]; in any file system.
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
