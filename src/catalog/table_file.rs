//! A table's file: opened, obsolete, removed; and the disk space it takes until its bytes are released.
//!
//! ```text
//! named by the catalogue -> obsolete: listed in Pins -> the last run, cursor or value lets go: no longer listed
//!                                    -> its name removed, once no NamePin wants it
//! ```
//!
//! A value that lies in a map holds the map, and so the file's bytes, long after the table was removed: it holds the
//! table's [`Residence`] too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;

use crate::base::sync::Mutex;
use crate::base::{ContainerId, Error, Result, Seq, TableId, Timestamp, file_name};
use crate::catalog::edit::TableRecord;
use crate::catalog::facts::TableFacts;
use crate::env::{Fs, ReadAt};
use crate::table::{BlockCache, Expected, Source, Table, highest_seq};
use crate::values::Reads;

/// The tables that no catalogue names any more and whose bytes are still held. Its lock is taken inside any other, for
/// a value may be dropped anywhere, and none is taken inside it.
#[derive(Debug, Default)]
pub struct Pins {
    obsolete: Mutex<BTreeMap<TableId, ObsoleteTable>>,
}

/// A table that no catalogue names any more.
#[derive(Clone, Copy, Debug)]
pub struct ObsoleteTable {
    /// The container whose records it has.
    pub container: ContainerId,
    /// The size of its file.
    pub len: u64,
    /// Since when no catalogue names it.
    pub since: Timestamp,
}

impl Pins {
    /// Bytes on disk that no catalogue names any more.
    pub fn bytes(&self) -> u64 {
        self.obsolete.lock().values().map(|table| table.len).sum()
    }

    /// The tables, by their ids.
    pub fn list(&self) -> BTreeMap<TableId, ObsoleteTable> {
        self.obsolete.lock().clone()
    }
}

/// A table's file, or a map of it, that every value and iterator in it holds.
struct Resident<T> {
    content: T,
    /// Dropped after the content.
    _residence: Arc<Residence>,
}

/// The disk space of a table, until its bytes are released by all holders.
struct Residence {
    removed: AtomicBool,
    /// The number of its name pins.
    named_for: AtomicUsize,
    id: TableId,
    container: ContainerId,
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
            self.pins.obsolete.lock().remove(&self.id);
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

/// The folder of tables, and what they are opened with.
pub struct TableSpace<'a> {
    /// The file system.
    pub fs: &'a dyn Fs,
    /// The folder of tables.
    pub dir: &'a Path,
    /// The cache for blocks that are not used in a map.
    pub cache: &'a Arc<BlockCache>,
    /// Counts the bytes of removed tables.
    pub pins: &'a Arc<Pins>,
    /// How tables are read into memory.
    pub reads: Reads,
}

/// A table, and its record in the catalogue.
#[derive(Clone)]
pub struct TableFile {
    /// The table.
    pub table: Arc<Table>,
    /// Its record in the catalogue.
    pub record: TableRecord,
    residence: Arc<Residence>,
}

impl TableFile {
    /// Opens the table that `record` names.
    pub fn open(
        space: &TableSpace<'_>,
        container: ContainerId,
        record: TableRecord,
    ) -> Result<TableFile> {
        TableFile::open_as(space, container, record, &file_name::table(record.id))
    }

    /// The same of a file that has another name.
    pub fn open_as(
        space: &TableSpace<'_>,
        container: ContainerId,
        record: TableRecord,
        name: &str,
    ) -> Result<TableFile> {
        let path = space.dir.join(name);
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
            id: record.id,
            container,
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
        Ok(TableFile {
            table: Arc::new(table),
            record,
            residence,
        })
    }

    /// The picker's view of it.
    pub fn facts(&self) -> TableFacts {
        TableFacts {
            id: self.record.id,
            bytes: self.record.len,
            statistics: self.table.statistics().clone(),
        }
    }

    /// Notes that no catalogue names it any more, since this moment: its bytes count as pinned until all holders
    /// release them.
    pub fn set_obsolete(&self, since: Timestamp) {
        let Residence {
            id,
            container,
            len,
            ref pins,
            ..
        } = *self.residence;
        let obsolete = ObsoleteTable {
            container,
            len,
            since,
        };
        pins.obsolete.lock().insert(id, obsolete);
        self.residence.removed.store(true, Ordering::Release);
    }

    /// Whether a run, a cursor or a read holds it besides this one; held values do not count.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.table) > 1
    }

    /// Keeps the file's name while the pin lives. Only a table that the catalogue names can be pinned.
    pub fn pin_name(&self) -> NamePin {
        self.residence.named_for.fetch_add(1, Ordering::AcqRel);
        NamePin(self.residence.clone())
    }

    /// Whether its name is pinned.
    pub fn is_name_pinned(&self) -> bool {
        self.residence.named_for.load(Ordering::Acquire) > 0
    }

    /// Removes the file's name; its bytes stay readable for those who hold them.
    pub fn remove(&self, fs: &dyn Fs, tables_dir: &Path) -> Result<()> {
        fs.remove(&tables_dir.join(file_name::table(self.record.id)))
    }
}

/// The tables in a folder that `named` does not contain.
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

/// A table that `named` does not hold, with a write above `last`, the highest number that manifest, log and tables know
/// of: the damage that it is evidence of. The log is synced before anything in it is written to a table, and rewrites
/// only take what is in tables; a bulk load gives a table its name only when its number is reserved. So no crash leaves
/// such a table, but an earlier manifest and log that were put back, or another database's. One that is not whole says
/// nothing: that a crash leaves.
pub fn later_table(
    fs: &dyn Fs,
    tables_dir: &Path,
    named: &BTreeSet<TableId>,
    last: Seq,
) -> Result<Option<Error>> {
    for name in unnamed_tables(fs, tables_dir, named)? {
        let path = tables_dir.join(&name);
        if file_name::parse_table(&name).is_none() {
            continue;
        }
        let len = fs.len(&path)?.unwrap_or(0);
        let source = Source::File(fs.reader(&path)?, len);
        match highest_seq(source, path.clone()) {
            Ok(seq) if seq > last => {
                let what = format!(
                    "this table has write {}, and manifest and log end at write {}: they are of an earlier time, or of \
                     another database; put those back that belong to the tables, or go on with what they say by a repair, \
                     which puts the table aside",
                    seq.0, last.0
                );
                return Ok(Some(Error::corruption(path, 0, what)));
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}
