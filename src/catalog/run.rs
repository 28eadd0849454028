//! A run: tables in key order without overlap, written by one job or joined.
//!
//! Invariants: its tables are in key order and do not overlap; all versions of a key are in one of them. When its `end`
//! has passed, and the end can be trusted under the settings of today, every record in it is obsolete: it is a
//! tombstone or gone, and every older version that it hid is gone too. Expiry is final, so that stays true whatever
//! other runs are merged meanwhile.

use std::ops::Deref;
use std::sync::Arc;

#[cfg(feature = "tokio")]
use crate::base::AtOnce;
use crate::base::{Result, Seq, TableId, Timestamp};
use crate::catalog::edit::{RunId, RunRecord};
use crate::catalog::facts::{RunFacts, TableFacts};
use crate::catalog::table_file::TableFile;
use crate::expiry::{Census, DefaultMillis};
use crate::table::{Found, Table, table_of};

/// Tables in key order, and their statistics.
pub struct Run {
    facts: Arc<RunFacts>,
    /// Its tables, in key order, at least one.
    pub files: Vec<TableFile>,
    /// The same tables, in the form that cursors take.
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
    pub fn new(record: &RunRecord, files: Vec<TableFile>) -> Run {
        assert!(!files.is_empty(), "a run has a table");
        let mut census = Census::default();
        files
            .iter()
            .for_each(|file| census.merge(file.table.census()));
        let tables: Vec<TableFacts> = files.iter().map(TableFile::facts).collect();
        let facts = RunFacts {
            id: record.id,
            end: record.end.unwrap_or(Timestamp::MAX),
            end_assumes: record.end_assumes,
            applied: record.applied,
            census,
            bytes: tables.iter().map(|table| table.bytes).sum(),
            tables,
        };
        let shared = files.iter().map(|file| file.table.clone()).collect();
        Run {
            facts: Arc::new(facts),
            files,
            shared,
        }
    }

    /// What the picker sees of it.
    pub fn facts(&self) -> &Arc<RunFacts> {
        &self.facts
    }

    /// Its record in the catalogue.
    pub fn record(&self) -> RunRecord {
        RunRecord {
            id: self.id,
            end: (self.end != Timestamp::MAX).then_some(self.end),
            end_assumes: self.end_assumes,
            applied: self.applied,
            tables: self.files.iter().map(|file| file.record).collect(),
        }
    }

    /// The same run with a new id, without some of its tables; `None` if none is left.
    pub fn without(&self, id: RunId, gone: &[TableId]) -> Option<Run> {
        let stays = |file: &&TableFile| !gone.contains(&file.record.id);
        let files: Vec<TableFile> = self.files.iter().filter(stays).cloned().collect();
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

    /// Joins runs that share no table's key range into one: it ends when the last of them does, and is trusted if all
    /// are.
    pub fn joined(id: RunId, runs: &[Arc<Run>]) -> Run {
        let mut files: Vec<TableFile> = runs.iter().flat_map(|run| run.files.clone()).collect();
        files.sort_by(|a, b| a.table.first_key().cmp(b.table.first_key()));
        let apart = |pair: &[TableFile]| pair[0].table.last_key() < pair[1].table.first_key();
        assert!(files.windows(2).all(apart), "joined runs do not overlap");
        let end = runs.iter().map(|run| run.end).max();
        let assumed = runs.iter().map(|run| run.end_assumes);
        let record = RunRecord {
            id,
            end: end.filter(|end| *end != Timestamp::MAX),
            end_assumes: assumed
                .reduce(DefaultMillis::strictest)
                .expect("there is a run"),
            applied: runs.iter().map(|run| run.applied).min().unwrap_or_default(),
            tables: files.iter().map(|file| file.record).collect(),
        };
        Run::new(&record, files)
    }

    /// The only table that can hold the key. The filter of a single table says sooner than its key range that it is absent.
    #[inline]
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        match &self.shared[..] {
            [table] => Some(table),
            tables => table_of(tables, key),
        }
    }

    /// The newest version of a key up to a sequence number.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8], max: Seq) -> Result<Option<Found>> {
        match self.table_for(key) {
            Some(table) => table.get(hash, key, max),
            None => Ok(None),
        }
    }

    /// The same, if no file has to be read for it.
    #[cfg(feature = "tokio")]
    pub fn get_at_once(&self, hash: u64, key: &[u8], max: Seq) -> AtOnce<Option<Found>> {
        match self.table_for(key) {
            Some(table) => table.get_at_once(hash, key, max),
            None => Ok(None),
        }
    }
}
