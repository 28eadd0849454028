//! The layout of a database: the runs and tables of a container, and the edits that led to them.

use std::time::SystemTime;

use crate::api::container::Container;
use crate::api::database::Database;
use crate::base::{Result, Timestamp};
use crate::data::version::Version;

/// A sorted run of a container: tables in the order of keys, whose key ranges do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its id, which no other run of the database ever has.
    pub id: u64,
    /// The latest moment at which one of its records becomes obsolete; `None`: never.
    pub end: Option<SystemTime>,
    /// Its tables, in the order of keys, at least one.
    pub tables: Vec<TableInfo>,
}

/// A table: one immutable file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// Its id, which is the number in its file's name.
    pub id: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// Records in it: puts and tombstones.
    pub records: u64,
    /// Bytes of these records: key, value and 16 for each, before compression.
    pub stored_bytes: u64,
    /// Of the stored bytes, those of items that are expired now; an estimate.
    pub expired_bytes: u64,
    /// The lowest key.
    pub first_key: Vec<u8>,
    /// The highest key.
    pub last_key: Vec<u8>,
    /// The version of the record that was written first.
    pub first_version: Version,
    /// The version of the record that was written last.
    pub last_version: Version,
}

impl Container {
    /// The runs that it is stored in, those with the newest records first; records that are not flushed yet are in
    /// none. From statistics: reads no item.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Options::new().clock(ManualClock::new(1_800_000_000_000)).open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put_with_ttl("a", "soon", Duration::from_secs(60))?;
    /// c.put_with_ttl("b", "never", Ttl::Never)?;
    /// db.flush()?;
    /// let ends: Vec<_> = c.runs().iter().map(|run| run.end).collect();
    /// assert_eq!(ends.len(), 2); // a dated run, which is removed as a whole at its end, and one that stays
    /// assert!(ends.contains(&None) && ends.contains(&Some(db.now() + Duration::from_secs(60))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn runs(&self) -> Vec<RunInfo> {
        let runs = self.engine().runs(self.state()).into_iter();
        runs.map(|(run, expired)| RunInfo {
            id: run.id.0,
            end: (run.end != Timestamp::MAX).then(|| run.end.to_system_time()),
            tables: run
                .tables
                .iter()
                .zip(expired)
                .map(|(table, expired)| {
                    let (statistics, census) = (&table.statistics, &table.statistics.census);
                    TableInfo {
                        id: table.id.0,
                        file_bytes: table.bytes,
                        records: statistics.records,
                        stored_bytes: census.total().bytes,
                        expired_bytes: expired.bytes,
                        first_key: statistics.first_key.to_vec(),
                        last_key: statistics.last_key.to_vec(),
                        first_version: Version::of(census.seq_min),
                        last_version: Version::of(census.seq_max),
                    }
                })
                .collect(),
        })
        .collect()
    }
}

impl Database {
    /// The version of the last write that can be read.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.put("k", "v")?;
    /// assert_eq!(db.last_version(), c.item("k")?.unwrap().version());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn last_version(&self) -> Version {
        Version::of(self.engine().last_seq())
    }

    /// The identity of the database: a number that was drawn when it was made. Its checkpoints, restored backups and followers have
    /// the same, so versions of one are never taken for those of another, as [`Database::changes`] cannot tell. `None`: not
    /// known, of a database that was made by a build which gave none, and after a repair that found no manifest.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    /// let identity = Database::open(&one)?.identity();
    /// assert!(identity.is_some() && identity == Database::open(&one)?.identity());
    /// assert_ne!(identity, Database::open(&two)?.identity());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn identity(&self) -> Option<u64> {
        match self.engine().identity() {
            0 => None,
            identity => Some(identity),
        }
    }

    /// The edits in the manifest, oldest first: each the JSON object that is stored, which docs/format.md of the
    /// repository describes. The first one is the sum of all that were before the manifest was begun, which happens at
    /// each open and whenever it has grown to a megabyte or so. The keys of range deletes are in them.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// db.container("c")?.put("k", "v")?;
    /// db.flush()?;
    /// let edits = db.edits()?;
    /// assert!(edits.last().unwrap().contains("add_run"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The manifest cannot be read, or is damaged.
    pub fn edits(&self) -> Result<Vec<String>> {
        self.engine().edits()
    }
}
