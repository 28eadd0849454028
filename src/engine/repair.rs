//! Repair: a catalogue that names only what is sound, and hides what may have been deleted.
//!
//! What is live is known to the manifest and to its copy. From tables it cannot be told: a table that was replaced or
//! dropped may still be there, and deletes of ranges, drops of containers and floors are in no table. So a repair goes by
//! that of the two which counts (version/judge.rs), and refuses when there is none, or when the log has seen more.
//!
//! A damaged table may have hidden older versions of any key in its range: by a delete, or by a newer value. So
//! everything in that range with a lower number than its highest is left out, by a range delete with that number; newer
//! records stay. When its statistics cannot be read, the range goes from its neighbours in the run, or from the first key
//! to the last, and the number is the highest that was flushed.
//!
//! A damaged log counts up to the damage. What follows is lost, deletes too; the database is as it was at that moment,
//! but for what had reached tables.
//!
//! The result takes effect as an opening does, by one new manifest. Before that, every file that is damaged or named no
//! more is linked into the folder `lost`, where nothing is ever removed: it may hold expired and deleted bytes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::KeyRange;
use crate::engine::checkpoint::link_or_copy;
use crate::engine::open::{FullDisk, bring_in, write_anew};
use crate::env::{Fs, LockKind};
use crate::error::{BEYOND_REPAIR, Error, Result};
use crate::mem::Pool;
use crate::options::Options;
use crate::table::{BlockCache, Statistics};
use crate::types::{ContainerId, Reads, Seq, TableId, file_name};
use crate::version::{
    Catalogue, ContainerRecord, Pins, Placed, RangeDelete, TableRecord, TableSpace, expect_folders,
    judge, unnamed_tables,
};

/// What a repair did, or would do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// The manifest, or the copy of it, that says what is live.
    pub manifest: PathBuf,
    /// What is damaged and what is lost by it; empty when there is nothing to repair.
    pub losses: Vec<Loss>,
    /// Files that are kept in the folder `lost`, by their names before.
    pub set_aside: Vec<PathBuf>,
}

/// A damaged file, and what is lost by it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The damage, with file and offset.
    pub fault: Error,
    /// Whose items are lost; `None` when it is the manifest's damage, which loses nothing, or the log's, which loses every
    /// write behind it that is in no table yet, of any container.
    pub container: Option<String>,
    /// The first key that may be lost; empty: from the first one on.
    pub from: Vec<u8>,
    /// The first key behind these; `None`: to the last one.
    pub to: Option<Vec<u8>>,
    /// Records that are lost at most, those included that the damaged ones may have hidden; `None`: it cannot be told.
    pub records: Option<u64>,
}

impl Loss {
    fn of_all(fault: Error) -> Loss {
        Loss {
            fault,
            container: None,
            from: vec![],
            to: None,
            records: None,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Error::Corruption { path, offset, what } => {
                write!(f, "{} is damaged at byte {offset}: {what}", path.display())?
            }
            other => write!(f, "{other}")?,
        }
        let Some(container) = &self.container else {
            return Ok(());
        };
        match self.records {
            Some(1) => write!(f, "; lost: at most 1 record")?,
            Some(records) => write!(f, "; lost: at most {records} records")?,
            None => write!(f, "; lost: an unknown number of records")?,
        }
        write!(f, " of container {container:?}")?;
        if !self.from.is_empty() {
            write!(f, " from key \"{}\" on", self.from.escape_ascii())?;
        }
        match &self.to {
            Some(to) => write!(f, " to before key \"{}\"", to.escape_ascii()),
            None => Ok(()),
        }
    }
}

/// See [`crate::repair`].
pub fn repair(path: &Path, options: &Options, apply: bool) -> Result<RepairReport> {
    let fs = options.fs.as_ref();
    if !fs.is_dir(path) {
        return Err(Error::NotFound { path: path.into() });
    }
    let kind = match apply {
        true => LockKind::Exclusive,
        false => LockKind::Shared,
    };
    let _lock = fs.lock(&path.join(file_name::LOCK), kind)?;
    expect_folders(fs, path)?;
    let judged = judge(fs, path)?.ok_or_else(|| Error::NotFound { path: path.into() })?;
    let is_whole = judged.is_whole();
    let mut loaded = judged.loaded;
    let mut report = RepairReport {
        manifest: loaded.path.clone(),
        losses: judged.damage.into_iter().map(Loss::of_all).collect(),
        set_aside: vec![],
    };
    // What would otherwise stay for a while is linked into the folder `lost`.
    loaded.torn = false;

    let space = TableSpace {
        fs,
        dir: &path.join(file_name::TABLES_DIR),
        cache: &Arc::new(BlockCache::new(0)),
        pins: &Arc::new(Pins::default()),
        reads: Reads::Pread,
    };
    for record in loaded.catalogue.containers.values_mut() {
        report.losses.extend(mend(record, &space)?);
    }
    let pool = Arc::new(Pool::new(options.memtable_bytes));
    let (mut found, log_damage) = bring_in(path, options, &loaded, &space, &pool)?;
    let log_is_damaged = log_damage.is_some();
    report.losses.extend(log_damage.map(Loss::of_all));
    if !is_whole {
        refuse_what_went(fs, &loaded.path, &report.losses)?;
    }
    if report.losses.is_empty() {
        return Ok(report);
    }
    report.set_aside = set_aside(fs, path, &report, &found.catalogue, log_is_damaged)?;
    if apply {
        keep(fs, path, &report.set_aside)?;
        let (begun, _) = write_anew(path, options, &mut found, FullDisk::Fails)?;
        begun?;
    }
    Ok(report)
}

/// The manifest may have lost its last edit. Where a file is gone that it names, that edit gave it up, and what took its
/// place only that edit names: going on from before it would lose all in it.
fn refuse_what_went(fs: &dyn Fs, manifest: &Path, losses: &[Loss]) -> Result<()> {
    for loss in losses {
        if let Error::Corruption { path, .. } = &loss.fault
            && fs.len(path)?.is_none()
        {
            let gone = path.display();
            let what = format!("its last edit is not whole, and {gone} is gone; {BEYOND_REPAIR}");
            let len = fs.len(manifest)?.unwrap_or(0);
            return Err(Error::corruption(manifest, len, what));
        }
    }
    Ok(())
}

/// A table that was read from end to end.
struct Checked {
    id: TableId,
    /// Where it can say so itself.
    statistics: Option<Arc<Statistics>>,
    fault: Option<Error>,
}

fn check(space: &TableSpace<'_>, container: ContainerId, table: TableRecord) -> Result<Checked> {
    let mut checked = Checked {
        id: table.id,
        statistics: None,
        fault: None,
    };
    let read = Placed::open(space, container, table).and_then(|placed| {
        checked.statistics = Some(placed.table.statistics().clone());
        placed.table.verify()
    });
    match read {
        Ok(_) => {}
        Err(
            fault @ (Error::Corruption { .. }
            | Error::Io {
                operation: "read", ..
            }),
        ) => checked.fault = Some(fault),
        Err(error) => return Err(error),
    }
    Ok(checked)
}

/// The smallest key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Leaves the damaged tables out of a container, and what they may have hidden.
fn mend(record: &mut ContainerRecord, space: &TableSpace<'_>) -> Result<Vec<Loss>> {
    let (mut losses, mut hidden, mut sound) = (vec![], vec![], vec![]);
    for run in &mut record.runs {
        let tables = run.tables.iter();
        let checked: Vec<Checked> = tables
            .map(|table| check(space, record.id, *table))
            .collect::<Result<_>>()?;
        for (at, table) in checked.iter().enumerate() {
            let Some(fault) = &table.fault else {
                sound.extend(table.statistics.clone());
                continue;
            };
            let own = table.statistics.as_deref();
            let before = checked[..at]
                .iter()
                .rev()
                .find_map(|table| table.statistics.as_deref());
            let after = checked[at + 1..]
                .iter()
                .find_map(|table| table.statistics.as_deref());
            let range = match own {
                Some(own) => KeyRange {
                    from: own.first_key.to_vec(),
                    to: Some(behind(&own.last_key)),
                },
                None => KeyRange {
                    from: before.map_or(vec![], |table| behind(&table.last_key)),
                    to: after.map(|table| table.first_key.to_vec()),
                },
            };
            losses.push(Loss {
                fault: fault.clone(),
                container: Some(record.name.clone()),
                from: range.from.clone(),
                to: range.to.clone(),
                records: own.map(|own| own.records),
            });
            let seq = own.map_or(record.flushed, |own| own.census.seq_max);
            hidden.push(RangeDelete::new(range, seq));
        }
        let is_sound = |id: TableId| {
            checked
                .iter()
                .any(|table| table.id == id && table.fault.is_none())
        };
        run.tables.retain(|table| is_sound(table.id));
    }
    if losses.is_empty() {
        return Ok(losses);
    }
    for (loss, range) in losses.iter_mut().zip(&hidden) {
        let covered = sound.iter().filter(|table| may_cover(range, table));
        loss.records = loss
            .records
            .map(|own| own + covered.map(|table| table.records).sum::<u64>());
    }
    record.runs.retain(|run| !run.tables.is_empty());
    // None of the new range deletes has been applied to what is left, whatever their numbers.
    record.runs.iter_mut().for_each(|run| run.applied = Seq(0));
    hidden
        .into_iter()
        .for_each(|range| leave_out(&mut record.range_deletes, range));
    Ok(losses)
}

fn may_cover(range: &RangeDelete, table: &Statistics) -> bool {
    table.census.seq_min < range.seq && range.range().overlaps(&table.first_key, &table.last_key)
}

/// Adds a range delete. Those of one number stay apart: two that overlap become one, which reaches no further than they.
fn leave_out(ranges: &mut Vec<RangeDelete>, mut range: RangeDelete) {
    let ends_behind =
        |to: &Option<Vec<u8>>, key: &[u8]| to.as_ref().is_none_or(|to| key < to.as_slice());
    ranges.retain(|there| {
        let overlaps = there.seq == range.seq
            && ends_behind(&there.to, &range.from)
            && ends_behind(&range.to, &there.from);
        if overlaps {
            let (from, to) = (there.from.clone(), there.to.clone());
            range.to = range.to.take().zip(to).map(|(a, b)| a.max(b));
            range.from = std::mem::take(&mut range.from).min(from);
        }
        !overlaps
    });
    ranges.push(range);
}

/// The files that the new manifest will not name.
fn set_aside(
    fs: &dyn Fs,
    path: &Path,
    report: &RepairReport,
    catalogue: &Catalogue,
    log_is_damaged: bool,
) -> Result<Vec<PathBuf>> {
    let tables_dir = path.join(file_name::TABLES_DIR);
    let mut names: Vec<PathBuf> = unnamed_tables(fs, &tables_dir, &catalogue.tables())?
        .into_iter()
        .filter(|name| file_name::parse_table(name).is_some())
        .map(|name| tables_dir.join(name))
        .collect();
    for loss in &report.losses {
        if let Error::Corruption { path, .. } | Error::Io { path, .. } = &loss.fault {
            names.push(path.clone());
        }
    }
    let wal_dir = path.join(file_name::WAL_DIR);
    if log_is_damaged && fs.is_dir(&wal_dir) {
        names.extend(
            fs.list(&wal_dir)?
                .into_iter()
                .map(|name| wal_dir.join(name)),
        );
    }
    names.sort();
    names.dedup();
    let mut there = vec![];
    for name in names {
        if fs.len(&name)?.is_some() {
            there.push(name);
        }
    }
    Ok(there)
}

/// Gives the files a second name in the folder `lost`, durably.
fn keep(fs: &dyn Fs, path: &Path, files: &[PathBuf]) -> Result<()> {
    let lost = path.join(file_name::LOST_DIR);
    fs.create_dir_all(&lost)?;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut kept = lost.join(&*name);
        let mut times = 1;
        while fs.len(&kept)?.is_some() {
            times += 1;
            kept = lost.join(format!("{name}.{times}"));
        }
        link_or_copy(fs, file, &kept, &|| Ok(()))?;
    }
    fs.sync_dir(&lost)?;
    fs.sync_dir(path)
}
