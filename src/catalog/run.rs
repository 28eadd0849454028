//! A run: tables in key order without overlap, written by one job or joined.
//!
//! Invariants: its tables are in key order and do not overlap; all versions of a key are in one of them. When its `end`
//! has passed, and the end can be trusted under the settings of today, every record in it is obsolete: it is a
//! tombstone or gone, and every older version that it hid is gone too. Expiry is final, so that stays true whatever
//! other runs are merged meanwhile.

use std::ops::Deref;
use std::sync::Arc;

use crate::base::record::{key_prefix, shared_len};
use crate::base::{Patience, Result, Seq, TableId, Timestamp};
use crate::catalog::edit::{RunId, RunRecord};
use crate::catalog::facts::{RunFacts, TableFacts};
use crate::catalog::table_file::TableFile;
use crate::expiry::{Census, DefaultMillis};
use crate::table::{Table, TableHit};

/// Tables in key order, and their statistics.
pub struct Run {
    facts: Arc<RunFacts>,
    /// Its tables, in key order, at least one.
    pub files: Vec<TableFile>,
    /// The same tables, in the form that cursors take.
    pub shared: Arc<[Arc<Table>]>,
    last_keys: LastKeys,
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
        let shared: Arc<[_]> = files.iter().map(|file| file.table.clone()).collect();
        let last_keys = LastKeys::new(
            shared[0].first_key(),
            shared.iter().map(|table| table.last_key()),
        );
        Run {
            facts: Arc::new(facts),
            files,
            shared,
            last_keys,
        }
    }

    /// The picker's view of it.
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

    /// The same run with another end, which was found under this default.
    pub fn ending(&self, end: Timestamp, assumes: DefaultMillis) -> Run {
        let record = RunRecord {
            end: (end != Timestamp::MAX).then_some(end),
            end_assumes: assumes,
            ..self.record()
        };
        Run::new(&record, self.files.clone())
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
    #[inline(always)]
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        match &self.shared[..] {
            [table] => Some(table),
            tables => self.last_keys.find(key, tables, |table| table.last_key()),
        }
    }

    /// The newest version of a key up to a sequence number.
    #[inline(always)]
    pub fn get<P: Patience>(
        &self,
        hash: u64,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<TableHit>, P::Failure> {
        match self.table_for(key) {
            Some(table) => table.find::<P>(hash, key, max),
            None => Ok(None),
        }
    }
}

/// Prefixes of the last keys of a run's tables, beside each other: the keys themselves are in as many files.
struct LastKeys {
    /// The prefix that all keys of the run share.
    shared: Box<[u8]>,
    /// Of each last key, the eight bytes after that.
    prefixes: Box<[u64]>,
}

impl LastKeys {
    /// Of a run whose first key is `first`, and which has a table.
    fn new<'a>(first: &[u8], last_keys: impl Iterator<Item = &'a [u8]> + Clone) -> LastKeys {
        let last = last_keys.clone().last().expect("a run has a table");
        let shared = &first[..shared_len(first, last)];
        LastKeys {
            shared: shared.into(),
            prefixes: last_keys
                .map(|key| key_prefix(&key[shared.len()..]))
                .collect(),
        }
    }

    /// The first table whose last key is not below `key`: no other of the run's can hold it. None if none can.
    #[inline]
    fn find<'a, T>(
        &self,
        key: &[u8],
        tables: &'a [T],
        last_key: impl Fn(&T) -> &[u8],
    ) -> Option<&'a T> {
        let prefix = match self.shared.len() {
            // A masked load from no mapped page, as the empty box is none, takes as long as a miss of the caches.
            0 => key_prefix(key),
            _ => key_prefix(key.strip_prefix(&self.shared[..])?),
        };
        let mut number = self.prefixes.partition_point(|last| *last < prefix);
        if self.prefixes.get(number) == Some(&prefix) {
            number += tables[number..].partition_point(|table| last_key(table) < key);
        }
        tables.get(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Few different bytes, zeros among them, so that many prefixes are alike.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let tail = prop::collection::vec(prop::sample::select(vec![0, 1, 255]), 0..12);
        (prop::sample::select(vec!["", "a", "session:"]), tail)
            .prop_map(|(head, tail)| [head.as_bytes(), &tail].concat())
    }

    proptest! {
        #[test]
        fn the_only_table_that_can_hold_a_key_is_found(
            keys in prop::collection::btree_set(key(), 1..40),
            borders in prop::collection::btree_set(0..40usize, 0..8),
            wanted in prop::collection::vec(key(), 40),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let inner = borders.into_iter().filter(|&border| 0 < border && border < keys.len());
            let borders: BTreeSet<_> = inner.chain([0, keys.len()]).collect();
            let borders: Vec<_> = borders.into_iter().collect();
            let tables: Vec<&[Vec<u8>]> = borders.windows(2).map(|ends| &keys[ends[0]..ends[1]]).collect();
            let last_keys: Vec<&Vec<u8>> = tables.iter().map(|table| table.last().unwrap()).collect();
            let found = LastKeys::new(&keys[0], last_keys.iter().map(|key| key.as_slice()));
            for key in wanted.iter().chain(&keys) {
                let table = found.find(key, &tables, |table| table.last().unwrap());
                let holds = tables.iter().find(|table| table.contains(key));
                prop_assert!(holds.is_none() || holds == table, "{key:?}");
                let is_first = last_keys.iter().position(|last| *last >= key).map(|n| &tables[n]);
                prop_assert!(table.is_none() || table == is_first, "{key:?}");
            }
        }
    }
}
