//! The compaction picker's view of a container's runs: plain values, from the catalogue and from the statistics in
//! every table, so that picking a job reads no file, and a simulation can make them up.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{Seq, TableId, Timestamp};
use crate::catalog::edit::RunId;
use crate::expiry::{Census, DefaultMillis, ExpiryView, Settings};
use crate::mem::RangeDeletes;
use crate::table::Statistics;

/// A table as the picker sees it.
#[derive(Clone, Debug)]
pub struct TableFacts {
    /// Its id.
    pub id: TableId,
    /// Bytes of its file.
    pub bytes: u64,
    /// The statistics of its records.
    pub statistics: Arc<Statistics>,
}

impl TableFacts {
    /// Whether some key may be in both.
    pub fn overlaps(&self, other: &TableFacts) -> bool {
        self.statistics.first_key <= other.statistics.last_key
            && other.statistics.first_key <= self.statistics.last_key
    }
}

/// A run as the picker sees it.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Its id.
    pub id: RunId,
    /// The latest moment at which one of its records becomes obsolete; [`Timestamp::MAX`] for never.
    pub end: Timestamp,
    /// The default under which `end` was computed.
    pub end_assumes: DefaultMillis,
    /// Every range delete up to this sequence number has been applied to it.
    pub applied: Seq,
    /// The census of all its tables.
    pub census: Census,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its tables, in key order, at least one.
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

    /// Whether their key ranges overlap.
    pub fn overlaps(&self, other: &RunFacts) -> bool {
        self.first_key() <= other.last_key() && other.first_key() <= self.last_key()
    }

    /// Whether its end can be trusted under the settings of today: nothing lives longer than it did when the end was
    /// computed.
    pub fn end_is_trusted(&self, settings: &Settings) -> bool {
        settings.default.is_as_strict_as(self.end_assumes)
    }

    /// The ids of its tables.
    pub fn table_ids(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.iter().map(|table| table.id)
    }

    /// Whether one of these tables is in it.
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

    /// Whether its end has passed and can be trusted: every record in it is obsolete.
    pub fn has_ended(&self, view: &ExpiryView) -> bool {
        self.end <= view.now && self.end_is_trusted(&view.settings)
    }
}

/// A container as the picker sees it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Highest sequence number first.
    pub runs: Vec<Arc<RunFacts>>,
    /// The range deletes that hide some of its records.
    pub range_deletes: Arc<RangeDeletes>,
}

impl Facts {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }

    /// The runs that have no table in a running job.
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
