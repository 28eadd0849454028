//! Repair: writes a catalogue that names only sound tables, and hides what lost records may have hidden.
//!
//! Only the manifest and its copy know which tables are live. The tables cannot tell: a replaced or dropped table may
//! still be there, and range deletes, drops of containers and floors are in no table. So a repair uses the manifest or
//! copy that counts (src/catalog/current.rs), and refuses when there is none, or when the log carries a later edit.
//!
//! The sound records of a damaged table are written to a new table, which takes its place in the run (table/check/salvage.rs
//! says which are sound). The lost ones may have hidden older versions of their keys, as tombstones or as newer values.
//! So the repair adds a range delete over the keys of each gap, with a sequence number no lower than that of any record
//! that was there: the highest of the damaged blocks if the index says it, else of the table, else the highest that was
//! flushed. Each version that a lost record hid has its key and a lower sequence number, so the range delete hides it;
//! newer records stay. Where the ends of a gap are unknown, it reaches to the neighbours in the run, or from the first
//! key to the last. It hides no sound record of the same table, since all versions of a key lie in one block. A lost
//! large value is a gap of one key.
//!
//! The record of a run that lost a part stays true: it bounds when the last of its records becomes obsolete. Only the
//! note of the range deletes applied to it is reset.
//!
//! A damaged log counts up to the damage. The rest is lost, tombstones too: the database is as it was at that moment,
//! except for records that had reached tables. A copy may have seen lost writes (changes.rs), so the next write gets a
//! sequence number far above any lost one, and changes are told from no earlier version than this. Likewise a reader of
//! expirations may have missed the end of a lost item, which cannot be told; no wall clock is read here, so ends are
//! marked as unknown up to the end of time, which the next open replaces by its own moment.
//!
//! The result takes effect as an open does, by one new manifest. New tables are durable before it, and removed if it
//! fails. A repair that only reports does the same without writing, so its report is the same. Before the manifest is
//! written, every file that is damaged or no longer named is linked into the folder `lost`, which is never cleaned: it
//! may hold expired and deleted bytes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{ContainerId, Error, Result, Seq, TableId, Timestamp, file_name};
use crate::catalog::{
    Catalogue, ContainerRecord, Pins, TableFile, TableRecord, TableSpace, expect_own, find_current,
    unnamed_tables,
};
use crate::data::batch::KeyRange;
use crate::data::range_delete::RangeDelete;
use crate::engine::jobs::job::identity;
use crate::engine::open::checkpoint::link_or_copy;
use crate::engine::open::recover::{FullDisk, Recovered, bring_in, free_table, write_anew};
use crate::engine::options::Options;
use crate::env::{ClockBehind, Fs, LockKind, make_dir};
use crate::expiry::Settings;
use crate::mem::Pool;
use crate::table::{
    BlockCache, Expected, FinishedTable, Gap, Salvage, Source, Statistics, Table, TableBuilder,
    TableMeta, TableOptions, behind, is_damage,
};
use crate::values::Reads;

/// More writes than a repair can lose, and few enough for 2^24 repairs.
const SKIPPED: u64 = 1 << 32;

/// The report of a repair: its losses, and the files it set aside, or would set aside.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use = "what is lost is in the report, and no error of the call"]
pub struct RepairReport {
    /// The manifest, or its copy, that the repair relied on.
    pub manifest: PathBuf,
    /// The damage, and the data lost with it; empty when there is nothing to repair.
    pub losses: Vec<Loss>,
    /// Files kept in the folder `lost`, by their former names.
    pub set_aside: Vec<PathBuf>,
}

/// A damaged file, and the data lost with it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The damage, with file and offset.
    pub fault: Error,
    /// The container that lost items; `None` for the manifest, whose damage loses nothing, and for the log, whose
    /// damage loses every later write of any container that is in no table yet.
    pub container: Option<String>,
    /// The first key that may be lost; empty: from the first key on.
    pub from: Vec<u8>,
    /// The first key after the lost ones; `None`: to the last key.
    pub to: Option<Vec<u8>>,
    /// The most records that may be lost, including those that the lost ones may have hidden; `None`: unknown. 0: the
    /// damaged part can be rebuilt, nothing is lost, and the range is empty.
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
            Some(0) => return write!(f, "; nothing of container {container:?} is lost by it"),
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
    // It judges nothing by the wall clock. The next open decides whether time may start at the mark.
    let options = &Options {
        clock_behind: ClockBehind::StartAtMark,
        ..options.clone()
    };
    let fs = options.fs.as_ref();
    if !fs.is_dir(path) {
        return Err(Error::NotFound { path: path.into() });
    }
    // Before the lock, whose file would be made in a folder of others.
    if let Ok(None) = find_current(fs, path) {
        return Err(Error::NotFound { path: path.into() });
    }
    let kind = match apply {
        true => LockKind::Exclusive,
        false => LockKind::Shared,
    };
    let _lock = fs.lock(&path.join(file_name::LOCK), kind)?;
    expect_own(fs, path)?;
    let current = find_current(fs, path)?.ok_or_else(|| Error::NotFound { path: path.into() })?;
    let mut loaded = current.loaded.clone();
    // Ensures that files which would otherwise stay for one more open are linked into the folder `lost`.
    loaded.torn = false;
    let space = TableSpace {
        fs,
        dir: &path.join(file_name::TABLES_DIR),
        cache: &Arc::new(BlockCache::new(0)),
        pins: &Arc::new(Pins::default()),
        reads: Reads::Pread,
    };
    let mut rescue = Rescue::beside(&space, options, loaded.catalogue.next_table)?;
    let mut losses: Vec<Loss> = current.damage.iter().cloned().map(Loss::of_all).collect();
    for record in loaded.catalogue.containers.values_mut() {
        losses.extend(drop_damaged_tables(
            record,
            &space,
            apply.then_some(&mut rescue),
        )?);
    }
    let pool = Arc::new(Pool::new(options.memtable_bytes));
    let (mut found, of_log) = bring_in(path, options, &loaded, &space, &pool)?;
    let of_copy = current.copy_fault(fs, found.seen_edit)?;
    let log_is_damaged = of_log.is_some();
    losses.extend(of_copy.into_iter().chain(of_log).map(Loss::of_all));
    let mut report = RepairReport {
        manifest: loaded.path,
        losses,
        set_aside: vec![],
    };
    if report.losses.is_empty() {
        return Ok(report);
    }
    report.set_aside = set_aside(fs, path, &report, &found.catalogue, log_is_damaged)?;
    if apply {
        take_effect(path, options, &report.set_aside, rescue, &mut found)?;
    }
    Ok(report)
}

/// Keeps the files set aside, and names the sound and rescued tables in a new manifest.
fn take_effect(
    path: &Path,
    options: &Options,
    set_aside: &[PathBuf],
    mut rescue: Rescue<'_>,
    found: &mut Recovered,
) -> Result<()> {
    let fs = options.fs.as_ref();
    if !rescue.written.is_empty() {
        fs.sync_dir(rescue.space.dir)?;
    }
    quarantine(fs, path, set_aside)?;
    // The versions of lost writes are not given again: a copy that has seen these is told to begin anew.
    found.skip_numbers(SKIPPED);
    // Any write may have been lost. These become the last number that may have been used, and the moment of the next
    // open.
    for record in found.catalogue.containers.values_mut() {
        (record.changes_from, record.ends_dropped) = (Seq::MAX, Timestamp::MAX);
    }
    let manifest = path.join(file_name::manifest(found.manifest_number + 1));
    let written = write_anew(path, options, found, FullDisk::Fails);
    if !matches!(fs.len(&manifest), Ok(None)) {
        rescue.written.clear();
    }
    written?.0.map(drop)
}

/// The result of reading a table from end to end.
struct Checked {
    record: TableRecord,
    state: State,
}

enum State {
    Sound(Arc<Table>),
    /// Damaged, but partly sound.
    Damaged(Error, Box<Salvage>),
    /// Lost; with its statistics, if they can be read.
    Lost(Error, Option<Arc<Statistics>>),
}

impl Checked {
    fn of(space: &TableSpace<'_>, container: ContainerId, record: TableRecord) -> Result<Checked> {
        let (mut statistics, mut table) = (None, None);
        let read = TableFile::open(space, container, record).and_then(|file| {
            statistics = Some(file.table.statistics().clone());
            file.table.verify()?;
            table = Some(file.table);
            Ok(())
        });
        let state = match (read, table) {
            (Ok(()), Some(table)) => State::Sound(table),
            (Err(fault), _) if is_damage(&fault) => match sound_parts(space, container, record)? {
                Some(salvage) => State::Damaged(fault, Box::new(salvage)),
                None => State::Lost(fault, statistics),
            },
            (read, _) => return Err(read.expect_err("else there is a table")),
        };
        Ok(Checked { record, state })
    }

    /// Its first and last key, or keys within it; `None` when unknown.
    fn keys(&self) -> Option<(&[u8], &[u8])> {
        match &self.state {
            State::Sound(table) => Some((table.first_key(), table.last_key())),
            State::Damaged(_, salvage) => Some(salvage.keys()),
            State::Lost(_, own) => own.as_ref().map(|own| (&*own.first_key, &*own.last_key)),
        }
    }

    /// The gaps in it; none in a sound table.
    fn gaps(&self) -> Vec<Gap> {
        match &self.state {
            State::Sound(_) => vec![],
            State::Damaged(_, salvage) => salvage.gaps.clone(),
            State::Lost(fault, own) => vec![Gap {
                fault: fault.clone(),
                from: own.as_ref().map(|own| own.first_key.to_vec()),
                to: own.as_ref().map(|own| behind(&own.last_key)),
                seq: own.as_ref().map(|own| own.census.seq_max),
                records: own.as_ref().map(|own| own.records),
            }],
        }
    }

    /// Damage that loses nothing.
    fn harmless(&self) -> Vec<Error> {
        let State::Damaged(fault, salvage) = &self.state else {
            return vec![];
        };
        let said = |fault: &Error| {
            let mut gaps = salvage.gaps.iter();
            gaps.any(|gap| gap.fault.to_string() == fault.to_string())
        };
        let faults = match (salvage.faults.is_empty(), salvage.gaps.is_empty()) {
            (true, true) => vec![fault.clone()],
            _ => salvage.faults.clone(),
        };
        faults.into_iter().filter(|fault| !said(fault)).collect()
    }

    /// An upper bound on the remaining records in a range with a sequence number below this.
    fn records_in(&self, range: &KeyRange, below: Seq) -> Result<u64> {
        match &self.state {
            State::Sound(table) => table.records_in(range, below),
            State::Damaged(_, salvage) => Ok(salvage.records_in(range, below)),
            State::Lost(..) => Ok(0),
        }
    }
}

fn sound_parts(
    space: &TableSpace<'_>,
    container: ContainerId,
    record: TableRecord,
) -> Result<Option<Salvage>> {
    let path = space.dir.join(file_name::table(record.id));
    let Some(len) = space.fs.len(&path)? else {
        return Ok(None);
    };
    let source = Source::File(space.fs.reader(&path)?, len);
    let expected = Expected {
        id: record.id,
        container,
        len: record.len,
        crc: record.crc,
    };
    Salvage::of(source, path, expected)
}

/// Writes the sound records of damaged tables to new tables.
struct Rescue<'a> {
    space: &'a TableSpace<'a>,
    options: &'a Options,
    /// Higher than the id of any table in the folder.
    next: u64,
    /// Removed again, unless a manifest that names them gets its name.
    written: Vec<PathBuf>,
}

impl<'a> Rescue<'a> {
    fn beside(space: &'a TableSpace<'a>, options: &'a Options, next: u64) -> Result<Rescue<'a>> {
        let free = match space.fs.is_dir(space.dir) {
            true => free_table(space.fs, space.dir)?,
            false => next,
        };
        Ok(Rescue {
            space,
            options,
            next: next.max(free),
            written: vec![],
        })
    }

    /// Writes the new table; it is durable, but its name is not.
    fn write(&mut self, container: &ContainerRecord, salvage: &Salvage) -> Result<TableRecord> {
        let id = TableId(self.next);
        self.next += 1;
        let path = self.space.dir.join(file_name::table(id));
        let file = self.space.fs.create(&path)?;
        self.written.push(path);
        let own = salvage.statistics();
        let meta = TableMeta {
            id,
            container: container.id,
            identity: identity(),
            // It is not known by which changes its records were judged.
            settings: own.map_or_else(Settings::default, |own| own.settings.clone()),
        };
        let options = TableOptions {
            block_bytes: self.options.block_bytes,
            compression: container.compression,
        };
        let mut builder = TableBuilder::new(file, options, meta);
        if let Some(own) = own {
            builder = builder.with_must_sample(Arc::new(own.must_sample()));
        }
        salvage.copy_into(&mut builder)?;
        let FinishedTable { id, len, crc, .. } = builder.finish()?;
        Ok(TableRecord { id, len, crc })
    }
}

impl Drop for Rescue<'_> {
    fn drop(&mut self) {
        for path in &self.written {
            let _ = self.space.fs.remove(path);
        }
    }
}

/// Removes the damaged tables from a container, puts their sound records in their place if there is a `rescue`, and
/// adds range deletes for the records that the lost ones may have hidden.
fn drop_damaged_tables(
    container: &mut ContainerRecord,
    space: &TableSpace<'_>,
    mut rescue: Option<&mut Rescue<'_>>,
) -> Result<Vec<Loss>> {
    let (mut lost, mut tables) = (Lost::default(), vec![]);
    let mut runs = std::mem::take(&mut container.runs);
    for run in &mut runs {
        let checked = std::mem::take(&mut run.tables).into_iter();
        let checked: Vec<Checked> = checked
            .map(|table| Checked::of(space, container.id, table))
            .collect::<Result<_>>()?;
        for (at, table) in checked.iter().enumerate() {
            lost.note(container, &checked, at);
            match (&table.state, rescue.as_deref_mut()) {
                (State::Sound(_), _) => run.tables.push(table.record),
                (State::Damaged(_, salvage), Some(rescue)) => {
                    let written = rescue.write(container, salvage)?;
                    run.tables.push(written);
                }
                _ => {}
            }
        }
        tables.extend(checked);
    }
    lost.count_hidden(&tables)?;
    if !lost.hidden.is_empty() {
        // No new range delete has been applied to the remaining runs, whatever its sequence number.
        runs.iter_mut().for_each(|run| run.applied = Seq(0));
    }
    for (_, range, seq) in lost.hidden {
        leave_out(&mut container.range_deletes, RangeDelete { range, seq });
    }
    runs.retain(|run| !run.tables.is_empty());
    container.runs = runs;
    Ok(lost.losses)
}

/// The losses in a container's tables.
#[derive(Default)]
struct Lost {
    losses: Vec<Loss>,
    /// The index of the loss, and the keys and sequence numbers that it may have hidden.
    hidden: Vec<(usize, KeyRange, Seq)>,
}

impl Lost {
    /// Adds the losses of table `at` of a run.
    fn note(&mut self, container: &ContainerRecord, run: &[Checked], at: usize) {
        let table = &run[at];
        let harmless = table.harmless().into_iter();
        self.losses.extend(harmless.map(|fault| Loss {
            container: Some(container.name.clone()),
            to: Some(vec![]),
            records: Some(0),
            ..Loss::of_all(fault)
        }));
        let before = run[..at].iter().rev().find_map(Checked::keys);
        let after = run[at + 1..].iter().find_map(Checked::keys);
        for gap in table.gaps() {
            let from = gap.from.or(before.map(|(_, last)| behind(last)));
            let range = KeyRange {
                from: from.unwrap_or_default(),
                to: gap.to.or(after.map(|(first, _)| first.to_vec())),
            };
            let seq = gap.seq.unwrap_or(container.flushed);
            self.hidden.push((self.losses.len(), range.clone(), seq));
            self.losses.push(Loss {
                fault: gap.fault,
                container: Some(container.name.clone()),
                from: range.from,
                to: range.to,
                records: gap.records,
            });
        }
    }

    /// Counts the remaining records that the losses hide.
    fn count_hidden(&mut self, tables: &[Checked]) -> Result<()> {
        for (loss, range, seq) in &self.hidden {
            for table in tables {
                let records = table.records_in(range, *seq)?;
                let loss = &mut self.losses[*loss].records;
                *loss = loss.map(|own| own + records);
            }
        }
        Ok(())
    }
}

/// Adds a range delete. The ranges of one sequence number must be disjoint: two that overlap are joined, which covers
/// no further key.
fn leave_out(ranges: &mut Vec<RangeDelete>, RangeDelete { mut range, seq }: RangeDelete) {
    let ends_behind =
        |to: &Option<Vec<u8>>, key: &[u8]| to.as_ref().is_none_or(|to| key < to.as_slice());
    ranges.retain(|there| {
        let overlaps = there.seq == seq
            && ends_behind(&there.range.to, &range.from)
            && ends_behind(&range.to, &there.range.from);
        if overlaps {
            let KeyRange { from, to } = there.range.clone();
            range.to = range.to.take().zip(to).map(|(a, b)| a.max(b));
            range.from = std::mem::take(&mut range.from).min(from);
        }
        !overlaps
    });
    ranges.push(RangeDelete { range, seq });
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
    let mut names: Vec<PathBuf> = vec![];
    if fs.is_dir(&tables_dir) {
        let unnamed = unnamed_tables(fs, &tables_dir, &catalogue.tables())?;
        let tables = unnamed
            .iter()
            .filter(|name| file_name::parse_table(name).is_some());
        names.extend(tables.map(|name| tables_dir.join(name)));
    }
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

/// Links the files into the folder `lost`, durably.
fn quarantine(fs: &dyn Fs, path: &Path, files: &[PathBuf]) -> Result<()> {
    let lost = path.join(file_name::LOST_DIR);
    make_dir(fs, &lost)?;
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
