//! The use of the database's folder: rows that add up to the figure of `du`.
//!
//! ```text
//! 1 names      of everything in the folder
//! 2 picture    what versions name -> what is obsolete -> the log's segments
//! 3 blocks     of each name that is still there; each file counts once, in the row that the picture has for it
//! ```
//!
//! In this order a file always has a row. A table that was removed before 2 is not there in 3. A table that became
//! obsolete is in the list of obsolete tables, which is read after the versions. A table in neither is being written by
//! a job. So the sum is exact if the folder does not change between 1 and 3, whatever the estimates are: the blocks
//! that hold a run's records are divided as its statistics divide its records, and all other blocks are overhead.
//!
//! A follower's versions, and the earlier ones that its readers hold, may name tables that the writer has removed
//! since: the follower keeps these files on disk, without names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;

use crate::base::{ContainerId, Error, Result, TableId, Timestamp, file_name};
use crate::catalog::ObsoleteTable;
use crate::compact::Estimate;
use crate::engine::Engine;
use crate::engine::inspect::report::estimate_runs;
use crate::values::disk_usage::{DiskHolder, DiskKind, DiskRow, DiskUsage};
use crate::wal::{SEGMENT_HEADER_LEN, SegmentHeader, SegmentInfo, parse_ring};

/// Blocks are allocated by pages.
const PAGE: u64 = 4096;

/// The figures that the rows of a run are made from.
struct RunUse {
    container: String,
    estimate: Estimate,
    /// The moment by which the disk space of its expired items is to come back.
    due: Option<Timestamp>,
    /// The moment since which a snapshot has been held that may see versions in it.
    seen_since: Option<Timestamp>,
    /// Blocks of its tables that hold records.
    records: u64,
    /// The others.
    rest: u64,
}

/// A table that a version names.
struct TableUse {
    run: usize,
    /// Where its records end.
    records_len: u64,
    len: u64,
}

/// The log of the process that writes.
struct LogUse {
    segments: Vec<SegmentInfo>,
    /// Bytes in use of the last of them.
    used_of_last: u64,
    /// Below, only a checkpoint keeps segments.
    kept_below: u64,
    ring: Option<u64>,
}

/// The row of each file.
struct Picture {
    runs: Vec<RunUse>,
    /// The tables that versions name.
    tables: HashMap<TableId, TableUse>,
    obsolete: BTreeMap<TableId, (ObsoleteTable, Option<DiskHolder>)>,
    names: HashMap<ContainerId, String>,
    log: Option<LogUse>,
    /// The end of a log that this process does not write.
    log_end: u64,
    /// The kind of a table that nothing names.
    unnamed: DiskKind,
}

/// The properties by which rows are told apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: DiskKind,
    container: Option<String>,
    holder: Option<DiskHolder>,
    unlinked: bool,
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    due: Option<Timestamp>,
    since: Option<Timestamp>,
}

#[derive(Default)]
struct Rows(BTreeMap<Key, Sum>);

impl Rows {
    fn add(&mut self, kind: DiskKind, bytes: u64) {
        self.row(kind, None, None, false).bytes += bytes;
    }

    fn row(
        &mut self,
        kind: DiskKind,
        container: Option<&String>,
        holder: Option<DiskHolder>,
        unlinked: bool,
    ) -> &mut Sum {
        let container = container.cloned();
        self.0
            .entry(Key {
                kind,
                container,
                holder,
                unlinked,
            })
            .or_default()
    }

    /// The rows of a run.
    fn add_run(&mut self, run: &RunUse) {
        let Estimate {
            stored,
            expired,
            superseded,
            tombstones,
            ..
        } = run.estimate;
        let share = |bytes: u64| match stored.bytes {
            0 => 0,
            all => (u128::from(run.records) * u128::from(bytes) / u128::from(all)) as u64,
        };
        let (expired, superseded) = (share(expired.bytes), share(superseded.bytes));
        let tombstones = share(tombstones.bytes);
        let name = Some(&run.container);
        let row = self.row(DiskKind::Expired, name, None, false);
        row.bytes += expired;
        row.due = row.due.max(run.due);
        let holder = run.seen_since.map(|_| DiskHolder::Snapshot);
        let row = self.row(DiskKind::Superseded, name, holder, false);
        row.bytes += superseded;
        row.since = earlier(row.since, run.seen_since);
        // Live bytes are the rest, with the errors of rounding, so that the sum is exact.
        let live = run.records - expired - superseded - tombstones;
        for (kind, bytes) in [
            (DiskKind::Live, live),
            (DiskKind::Tombstones, tombstones),
            (DiskKind::Overhead, run.rest),
        ] {
            self.row(kind, name, None, false).bytes += bytes;
        }
    }

    fn add_obsolete(
        &mut self,
        picture: &Picture,
        (table, holder): &(ObsoleteTable, Option<DiskHolder>),
        bytes: u64,
        unlinked: bool,
    ) {
        let name = picture.names.get(&table.container);
        let row = self.row(DiskKind::Obsolete, name, *holder, unlinked);
        row.bytes += bytes;
        row.since = earlier(row.since, Some(table.since));
    }

    fn finish(self) -> DiskUsage {
        let rows = self.0.into_iter().filter(|(_, sum)| sum.bytes > 0);
        let rows = rows.map(|(key, sum)| DiskRow {
            kind: key.kind,
            container: key.container,
            bytes: sum.bytes,
            due: sum.due.map(Timestamp::to_system_time),
            holder: key.holder,
            since: sum.since.map(Timestamp::to_system_time),
            unlinked: key.unlinked,
        });
        DiskUsage {
            rows: rows.collect(),
        }
    }
}

/// Bytes in use of a segment that begins at `start`; more than it has, if the log goes on behind it.
fn used(log_end: u64, start: u64) -> u64 {
    let frames = log_end.saturating_sub(start);
    (SEGMENT_HEADER_LEN as u64 + frames).next_multiple_of(PAGE)
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl Engine {
    /// The use of the database's folder, in rows.
    pub fn disk(&self) -> Result<DiskUsage> {
        self.scheduler.check_open()?;
        let root = self.fs.canonical(&self.path)?;
        let tree = self.fs.tree(&root)?;
        let mut picture = self.picture();
        let (mut rows, mut seen) = (Rows::default(), HashSet::new());
        for (path, is_folder) in tree {
            let bytes = match self.fs.allocated(&path) {
                // Removed since it was listed.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
                allocated => allocated?,
            };
            // The folder itself has an empty name.
            let name = path.strip_prefix(&root).unwrap_or(&path);
            let below_lost = name.starts_with(file_name::LOST_DIR);
            match (
                is_folder,
                name.parent().and_then(Path::to_str),
                name.file_name(),
            ) {
                _ if below_lost => rows.add(DiskKind::Lost, bytes),
                (true, ..) => rows.add(DiskKind::Folders, bytes),
                (false, Some(dir), Some(name)) => {
                    let name = name.to_str().unwrap_or_default();
                    seen.extend(self.file(&mut picture, &mut rows, (dir, name), bytes));
                }
                _ => rows.add(DiskKind::Other, bytes),
            }
        }
        picture.runs.iter().for_each(|run| rows.add_run(run));
        picture.obsolete.retain(|id, _| !seen.contains(id));
        for obsolete in picture.obsolete.values() {
            let bytes = obsolete.0.len.next_multiple_of(PAGE);
            rows.add_obsolete(&picture, obsolete, bytes, true);
        }
        if self.follower.is_some() {
            self.add_removed(&picture, &mut rows, &seen)?;
        }
        Ok(rows.finish())
    }

    /// Adds the tables that a follower's versions name and the writer has removed.
    fn add_removed(
        &self,
        picture: &Picture,
        rows: &mut Rows,
        seen: &HashSet<TableId>,
    ) -> Result<()> {
        let unseen = picture.tables.iter().filter(|(id, _)| !seen.contains(id));
        for (id, table) in unseen {
            // Else it was made since the folder was read.
            if self
                .fs
                .len(&self.tables_dir().join(file_name::table(*id)))?
                .is_none()
            {
                let name = Some(&picture.runs[table.run].container);
                let row = rows.row(DiskKind::Obsolete, name, Some(DiskHolder::Follower), true);
                row.bytes += table.len.next_multiple_of(PAGE);
            }
        }
        Ok(())
    }

    /// Adds a file; returns its id if it is a table.
    fn file(
        &self,
        picture: &mut Picture,
        rows: &mut Rows,
        (dir, name): (&str, &str),
        bytes: u64,
    ) -> Option<TableId> {
        let whole = name.strip_suffix(file_name::TEMPORARY).unwrap_or(name);
        match dir {
            file_name::TABLES_DIR => {
                let id = file_name::parse_table(whole);
                match id {
                    Some(id) if whole == name => picture.table(rows, id, bytes),
                    Some(_) => rows.add(picture.unnamed, bytes),
                    None => rows.add(DiskKind::Other, bytes),
                }
                return id;
            }
            file_name::WAL_DIR => match (file_name::parse_segment(name), parse_ring(name)) {
                (Some(number), _) => match &picture.log {
                    Some(log) => log.segment(rows, number, bytes),
                    None => {
                        let used = self.used(name, picture.log_end).min(bytes);
                        rows.add(DiskKind::Log, used);
                        rows.add(DiskKind::LogAhead, bytes - used);
                    }
                },
                (_, Some(number)) => match &picture.log {
                    Some(log) if log.ring != Some(number) => rows.add(DiskKind::Obsolete, bytes),
                    _ => rows.add(DiskKind::LogAhead, bytes),
                },
                _ => rows.add(DiskKind::Other, bytes),
            },
            file_name::COPY_DIR if file_name::is_numbered(name) => {
                rows.add(DiskKind::Manifest, bytes);
            }
            "" if file_name::is_manifest(name) => rows.add(DiskKind::Manifest, bytes),
            _ => rows.add(DiskKind::Other, bytes),
        }
        None
    }

    /// Bytes in use, from its beginning, of a segment of a log that this process does not write and that ends there.
    fn used(&self, name: &str, log_end: u64) -> u64 {
        let reader = self.fs.reader(&self.wal_dir().join(name));
        let header = reader.and_then(|file| file.read_at(0, SEGMENT_HEADER_LEN));
        match header.map(|header| SegmentHeader::decode(&header)) {
            Ok(Ok(header)) => used(log_end, header.start),
            // The segment is allocated ahead, and has not begun.
            _ => 0,
        }
    }

    fn picture(&self) -> Picture {
        let (mut runs, mut tables, mut names) = (vec![], HashMap::new(), HashMap::new());
        for state in self.containers.all() {
            names.insert(state.id(), state.name().to_owned());
            let (read_state, view) = (state.pin(), self.expiry_view(&state));
            let due = self.ended_comes_back(&state, &read_state.version, &view);
            // Histograms tell ends to within a bucket: an item that ends at this moment may seem to end later.
            let promised = view.now.after(self.goals().reclaim_within);
            let estimates = estimate_runs(&read_state, &view);
            for (run, estimate) in read_state.version.runs.iter().zip(estimates) {
                for file in &run.files {
                    let table = TableUse {
                        run: runs.len(),
                        records_len: file.table.records_len(),
                        len: file.record.len,
                    };
                    tables.insert(file.record.id, table);
                }
                runs.push(RunUse {
                    container: state.name().to_owned(),
                    estimate,
                    due: due.or(Some(promised)),
                    seen_since: self.snapshots.held_since(run.census.seq_min),
                    records: 0,
                    rest: 0,
                });
            }
        }
        // Read after the versions: a table that has left them since is in it.
        let mut obsolete = self.obsolete.list();
        if self.follower.is_some() {
            let holders = obsolete.values_mut().map(|(_, holder)| holder);
            holders.for_each(|holder| *holder = Some(DiskHolder::Follower));
        }
        let nobody_writes = self.options.read_only && self.follower.is_none();
        Picture {
            runs,
            tables,
            obsolete,
            names,
            log: self.log_use(),
            log_end: self.log_end(),
            unnamed: match nobody_writes {
                true => DiskKind::Obsolete,
                false => DiskKind::Running,
            },
        }
    }

    fn log_end(&self) -> u64 {
        let followed = self.follower.as_ref().map(|follower| follower.stand());
        let place = followed.and_then(|stand| stand.place);
        let followed = place.map(|place| place.position.0);
        let end = followed.or(self.commit_log.recovered_to());
        end.unwrap_or(u64::MAX - PAGE)
    }

    fn log_use(&self) -> Option<LogUse> {
        let log = self.commit_log.begun()?;
        let (segments, end) = (log.all_segments(), log.end());
        let last = segments.last()?;
        Some(LogUse {
            used_of_last: used(end.0, last.start.0),
            kept_below: log.kept_below(),
            ring: log.start(0).ring,
            segments,
        })
    }
}

impl Picture {
    fn table(&mut self, rows: &mut Rows, id: TableId, bytes: u64) {
        if let Some(table) = self.tables.get(&id) {
            let records = table.records_len.min(bytes);
            self.runs[table.run].records += records;
            self.runs[table.run].rest += bytes - records;
        } else if let Some(obsolete) = self.obsolete.get(&id) {
            rows.add_obsolete(self, obsolete, bytes, false);
        } else {
            rows.add(self.unnamed, bytes);
        }
    }
}

impl LogUse {
    fn segment(&self, rows: &mut Rows, number: u64, bytes: u64) {
        let (first, last) = (self.segments.first(), self.segments.last());
        let is_after = |edge: Option<&SegmentInfo>| edge.is_none_or(|edge| number > edge.number);
        if is_after(last) {
            rows.add(DiskKind::LogAhead, bytes);
        } else if first.is_some_and(|first| number < first.number) {
            rows.add(DiskKind::Obsolete, bytes);
        } else if number < self.kept_below {
            let holder = Some(DiskHolder::Checkpoint);
            rows.row(DiskKind::Obsolete, None, holder, false).bytes += bytes;
        } else if last.is_some_and(|last| number == last.number) {
            let used = self.used_of_last.min(bytes);
            rows.add(DiskKind::Log, used);
            rows.add(DiskKind::LogAhead, bytes - used);
        } else {
            rows.add(DiskKind::Log, bytes);
        }
    }
}
