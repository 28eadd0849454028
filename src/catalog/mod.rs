//! The catalogue: an immutable picture of a container's runs, the edits that lead from one to the next, and their log.
//!
//! Invariants of a [`Run`]: its tables are in key order and do not overlap; all versions of a key lie in one of them.
//! When its `end` has passed (and the end can be trusted under the settings of today), no record in it matters any more:
//! each is a tombstone or gone, and every older version that it hid is gone too. "Gone" is final, so that stays true,
//! whatever other runs are merged meanwhile.

mod edit;
mod facts;
mod manifest;
mod judge;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

pub use edit::{Catalogue, Change, ContainerRecord, RangeDelete, RunId, RunRecord, TableRecord};
pub use facts::{Facts, RunFacts, TableFacts};
pub use judge::{Judged, Loaded, judge};
pub use manifest::{Manifest, begin, copy_path, expect_folders, parse, write_both};

use crate::base::{ContainerId, Error, Reads, Result, Seq, TableId, Timestamp, file_name};
use crate::env::{Fs, ReadAt};
use crate::expiry::{Census, DefaultMillis};
use crate::mem::{self, RangeDeletes};
use crate::table::{BlockCache, Expected, Found, Source, Table, table_of};

/// How many bytes of removed tables somebody still holds.
#[derive(Debug, Default)]
pub struct Pins {
    bytes: AtomicU64,
}

impl Pins {
    /// Bytes on disk that no catalogue names any more.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A table's file, or a map of it that every value and iterator holds which lies in it.
struct Resident<T> {
    content: T,
    /// Dropped behind the content.
    _residence: Arc<Residence>,
}

/// What a table takes on disk, until the last who holds its bytes lets go.
struct Residence {
    removed: AtomicBool,
    /// How many want it to keep its name.
    named_for: AtomicUsize,
    len: u64,
    pins: Arc<Pins>,
}

impl AsRef<[u8]> for Resident<Bytes> {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl ReadAt for Resident<Box<dyn ReadAt>> {
    fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.content.read_at(offset, len)
    }
}

impl Drop for Residence {
    fn drop(&mut self) {
        if self.removed.load(Ordering::Acquire) {
            self.pins.bytes.fetch_sub(self.len, Ordering::Relaxed);
        }
    }
}

/// Keeps a table's name in the folder.
pub struct NamePin(Arc<Residence>);

impl Drop for NamePin {
    fn drop(&mut self) {
        self.0.named_for.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where tables are, and what they are opened with.
pub struct TableSpace<'a> {
    /// The file system.
    pub fs: &'a dyn Fs,
    /// The folder of tables.
    pub dir: &'a Path,
    /// For blocks that are not in a map as they are read.
    pub cache: &'a Arc<BlockCache>,
    /// Of removed tables.
    pub pins: &'a Arc<Pins>,
    /// How bytes come into memory.
    pub reads: Reads,
}

/// A table with its place on disk.
#[derive(Clone)]
pub struct Placed {
    /// The table.
    pub table: Arc<Table>,
    /// How the catalogue names it.
    pub record: TableRecord,
    residence: Arc<Residence>,
}

impl Placed {
    /// Opens the table that `record` names.
    pub fn open(
        space: &TableSpace<'_>,
        container: ContainerId,
        record: TableRecord,
    ) -> Result<Placed> {
        let path = space.dir.join(file_name::table(record.id));
        let Some(len) = space.fs.len(&path)? else {
            return Err(Error::corruption(
                path,
                0,
                "the manifest names this table, but it is missing",
            ));
        };
        let residence = Arc::new(Residence {
            removed: AtomicBool::new(false),
            named_for: AtomicUsize::new(0),
            len: record.len,
            pins: space.pins.clone(),
        });
        let source = match space.reads {
            Reads::Map => {
                let map = space.fs.map(&path)?;
                let in_order = space.fs.map_in_order(&path, &map)?;
                let resident = |content| {
                    Bytes::from_owner(Resident {
                        content,
                        _residence: residence.clone(),
                    })
                };
                Source::mapped(&resident(map), &resident(in_order))
            }
            Reads::Pread => Source::File(
                Box::new(Resident {
                    content: space.fs.reader(&path)?,
                    _residence: residence.clone(),
                }),
                len,
            ),
        };
        let expected = Expected {
            id: record.id,
            container,
            len: record.len,
            crc: record.crc,
        };
        let table = Table::open(source, path, expected, Some(space.cache.clone()))?;
        Ok(Placed {
            table: Arc::new(table),
            record,
            residence,
        })
    }

    /// What the policy sees of it.
    pub fn facts(&self) -> TableFacts {
        TableFacts {
            id: self.record.id,
            bytes: self.record.len,
            statistics: self.table.statistics().clone(),
        }
    }

    /// No catalogue names it any more: its bytes are counted as pinned until the last who holds them lets go.
    pub fn retire(&self) {
        self.residence
            .pins
            .bytes
            .fetch_add(self.residence.len, Ordering::Relaxed);
        self.residence.removed.store(true, Ordering::Release);
    }

    /// A run, a cursor or a read holds it beside this one; values that are held do not count.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.table) > 1
    }

    /// The file keeps its name as long as the pin lives. Only a table that the catalogue names can be pinned.
    pub fn pin_name(&self) -> NamePin {
        self.residence.named_for.fetch_add(1, Ordering::AcqRel);
        NamePin(self.residence.clone())
    }

    /// Somebody wants it to keep its name.
    pub fn is_name_pinned(&self) -> bool {
        self.residence.named_for.load(Ordering::Acquire) > 0
    }

    /// Removes the file's name; the bytes stay readable to those who hold them.
    pub fn remove(&self, fs: &dyn Fs, tables_dir: &Path) -> Result<()> {
        fs.remove(&tables_dir.join(file_name::table(self.record.id)))
    }
}

/// Tables that follow each other in key order, and what is known of them.
pub struct Run {
    facts: Arc<RunFacts>,
    /// In key order, at least one.
    pub files: Vec<Placed>,
    /// The same tables, as cursors take them.
    pub shared: Arc<[Arc<Table>]>,
}

impl Deref for Run {
    type Target = RunFacts;

    fn deref(&self) -> &RunFacts {
        &self.facts
    }
}

impl Run {
    /// A run of these tables.
    pub fn new(record: &RunRecord, files: Vec<Placed>) -> Run {
        assert!(!files.is_empty(), "a run has a table");
        let mut census = Census::default();
        files
            .iter()
            .for_each(|placed| census.merge(placed.table.census()));
        let tables: Vec<TableFacts> = files.iter().map(Placed::facts).collect();
        let facts = RunFacts {
            id: record.id,
            end: record.end.unwrap_or(Timestamp::MAX),
            placed: record.placed,
            applied: record.applied,
            census,
            bytes: tables.iter().map(|table| table.bytes).sum(),
            tables,
        };
        let shared = files.iter().map(|placed| placed.table.clone()).collect();
        Run {
            facts: Arc::new(facts),
            files,
            shared,
        }
    }

    /// What the policy sees of it.
    pub fn facts(&self) -> &Arc<RunFacts> {
        &self.facts
    }

    /// One of these tables is in it.
    pub fn holds_any(&self, tables: &BTreeSet<TableId>) -> bool {
        let mut files = self.files.iter();
        files.any(|placed| tables.contains(&placed.record.id))
    }

    /// How the catalogue names it.
    pub fn record(&self) -> RunRecord {
        RunRecord {
            id: self.id,
            end: (self.end != Timestamp::MAX).then_some(self.end),
            placed: self.placed,
            applied: self.applied,
            tables: self.files.iter().map(|placed| placed.record).collect(),
        }
    }

    /// The same run under another number, without some of its tables; `None` when nothing is left.
    pub fn without(&self, id: RunId, gone: &[TableId]) -> Option<Run> {
        let stays = |placed: &&Placed| !gone.contains(&placed.record.id);
        let files: Vec<Placed> = self.files.iter().filter(stays).cloned().collect();
        (!files.is_empty()).then(|| {
            Run::new(
                &RunRecord {
                    id,
                    ..self.record()
                },
                files,
            )
        })
    }

    /// The tables of runs that share no table's key range, as one run: it ends when the last of them does, and is
    /// trusted when all are.
    pub fn joined(id: RunId, runs: &[Arc<Run>]) -> Run {
        let mut files: Vec<Placed> = runs.iter().flat_map(|run| run.files.clone()).collect();
        files.sort_by(|a, b| a.table.first_key().cmp(b.table.first_key()));
        let apart = |pair: &[Placed]| pair[0].table.last_key() < pair[1].table.first_key();
        assert!(files.windows(2).all(apart), "joined runs do not overlap");
        let end = runs.iter().map(|run| run.end).max();
        let placed = runs.iter().map(|run| run.placed);
        let record = RunRecord {
            id,
            end: end.filter(|end| *end != Timestamp::MAX),
            placed: placed
                .reduce(DefaultMillis::strictest)
                .expect("there is a run"),
            applied: runs.iter().map(|run| run.applied).min().unwrap_or_default(),
            tables: files.iter().map(|placed| placed.record).collect(),
        };
        Run::new(&record, files)
    }

    /// The one table that can hold the key.
    #[inline]
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        table_of(&self.shared, key)
    }

    /// The newest version of a key up to a sequence number.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], max: Seq) -> Result<Option<Found>> {
        match self.table_for(key) {
            Some(table) => table.get(hash, key, max),
            None => Ok(None),
        }
    }
}

/// The runs of a container at one moment, and what its range deletes hide.
#[derive(Default)]
pub struct Version {
    /// Highest sequence number first: the order in which a get asks them.
    pub runs: Vec<Arc<Run>>,
    /// What hides some of it.
    pub range_deletes: Arc<RangeDeletes>,
}

impl Version {
    /// A picture of these runs and range deletes.
    pub fn new(mut runs: Vec<Arc<Run>>, range_deletes: Arc<RangeDeletes>) -> Version {
        runs.sort_by_key(|run| std::cmp::Reverse((run.census.seq_max, run.id)));
        Version {
            runs,
            range_deletes,
        }
    }

    /// What the policy sees of it.
    pub fn facts(&self) -> Facts {
        Facts {
            runs: self.runs.iter().map(|run| run.facts().clone()).collect(),
            range_deletes: self.range_deletes.clone(),
        }
    }

    /// The range delete may still hide something: an older run overlaps it and has not had it applied.
    pub fn needs(&self, delete: &mem::RangeDelete) -> bool {
        self.runs.iter().any(|run| {
            run.applied < delete.seq
                && run.census.seq_min < delete.seq
                && delete.range.overlaps(run.first_key(), run.last_key())
        })
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// Of the runs and their tables.
    pub fn tables(&self) -> usize {
        self.runs.iter().map(|run| run.files.len()).sum()
    }
}

/// Names of the tables in a folder that `named` does not hold.
pub fn unnamed_tables(
    fs: &dyn Fs,
    tables_dir: &Path,
    named: &BTreeSet<TableId>,
) -> Result<Vec<String>> {
    let mut names = match fs.is_dir(tables_dir) {
        true => fs.list(tables_dir)?,
        false => vec![],
    };
    names.retain(|name| match file_name::parse_table(name) {
        Some(id) => !named.contains(&id),
        None => name.ends_with(file_name::TEMPORARY),
    });
    Ok(names)
}
