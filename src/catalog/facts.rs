//! What the policy knows of a container's runs: plain values, from the catalogue and from the statistics that every
//! table carries, so that choosing the next job reads no file, and a simulation can make them up.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{Seq, TableId, Timestamp};
use crate::catalog::edit::RunId;
use crate::expiry::{Census, DefaultMillis, ExpiryView, Settings};
use crate::mem::RangeDeletes;
use crate::table::Statistics;

/// A table as the policy sees it.
#[derive(Clone, Debug)]
pub struct TableFacts {
    /// Its number.
    pub id: TableId,
    /// Bytes of its file.
    pub bytes: u64,
    /// What it says of its records.
    pub statistics: Arc<Statistics>,
}

impl TableFacts {
    /// Some key may lie in both.
    pub fn overlaps(&self, other: &TableFacts) -> bool {
        self.statistics.first_key <= other.statistics.last_key
            && other.statistics.first_key <= self.statistics.last_key
    }
}

/// A run as the policy sees it.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Its number.
    pub id: RunId,
    /// The latest moment at which one of its records becomes obsolete; [`Timestamp::MAX`] for never.
    pub end: Timestamp,
    /// The default under which `end` was found.
    pub end_assumes: DefaultMillis,
    /// Every range delete up to this sequence number has been applied to it.
    pub applied: Seq,
    /// Of all its tables.
    pub census: Census,
    /// Bytes of all its files.
    pub bytes: u64,
    /// In key order, at least one.
    pub tables: Vec<TableFacts>,
}

impl RunFacts {
    /// Its first key.
    pub fn first_key(&self) -> &[u8] {
        &self.tables[0].statistics.first_key
    }

    /// Its last key.
    pub fn last_key(&self) -> &[u8] {
        &self.tables[self.tables.len() - 1].statistics.last_key
    }

    /// Some key may lie between the first and the last of both.
    pub fn overlaps(&self, other: &RunFacts) -> bool {
        self.first_key() <= other.last_key() && other.first_key() <= self.last_key()
    }

    /// Its end can be relied on under the settings of today: nothing lives longer than it did when it was found.
    pub fn end_is_trusted(&self, settings: &Settings) -> bool {
        settings.default.is_as_strict_as(self.end_assumes)
    }

    /// The numbers of its tables.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.iter().map(|table| table.id)
    }

    /// One of these tables is in it.
    pub fn holds_any(&self, tables: &BTreeSet<TableId>) -> bool {
        self.table_ids().any(|id| tables.contains(&id))
    }

    /// When the oldest dead item in it expired; `None` when none is dead.
    pub fn oldest_dead(&self, view: &ExpiryView) -> Option<Timestamp> {
        let tables = self.tables.iter();
        tables
            .filter_map(|table| table.statistics.oldest_dead(view))
            .min()
    }

    /// No record in it matters any more.
    pub fn has_ended(&self, view: &ExpiryView) -> bool {
        self.end <= view.now && self.end_is_trusted(&view.settings)
    }
}

/// A container as the policy sees it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Highest sequence number first.
    pub runs: Vec<Arc<RunFacts>>,
    /// What hides some of it.
    pub range_deletes: Arc<RangeDeletes>,
}

impl Facts {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// The runs of which no job has a table.
    pub fn free_runs<'a>(
        &'a self,
        busy: &'a BTreeSet<TableId>,
    ) -> impl Iterator<Item = &'a RunFacts> {
        let runs = self.runs.iter().map(|run| run.as_ref());
        runs.filter(|run| !run.holds_any(busy))
    }

    /// Every table, with its run.
    pub fn tables(&self) -> impl Iterator<Item = (&RunFacts, &TableFacts)> {
        let runs = self.runs.iter();
        runs.flat_map(|run| run.tables.iter().map(move |table| (run.as_ref(), table)))
    }
}
