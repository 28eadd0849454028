//! A version: the runs of a container at one moment, and the range deletes that hide some of their records. Immutable;
//! an edit leads to the next one.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::catalog::facts::Facts;
use crate::catalog::run::Run;
use crate::data::range_delete::RangeDelete;
use crate::mem::RangeDeletes;

/// The runs of a container at one moment, and its range deletes.
#[derive(Default)]
pub struct ContainerVersion {
    /// Highest sequence number first: the order in which a get asks them.
    pub runs: Vec<Arc<Run>>,
    /// The range deletes that hide some of its records.
    pub range_deletes: Arc<RangeDeletes>,
}

impl ContainerVersion {
    /// A version of these runs and range deletes.
    pub fn new(mut runs: Vec<Arc<Run>>, range_deletes: Arc<RangeDeletes>) -> ContainerVersion {
        runs.sort_by_key(|run| Reverse((run.census.seq_max, run.id)));
        ContainerVersion {
            runs,
            range_deletes,
        }
    }

    /// The picker's view of it.
    pub fn facts(&self) -> Facts {
        Facts {
            runs: self.runs.iter().map(|run| run.facts().clone()).collect(),
            range_deletes: self.range_deletes.clone(),
        }
    }

    /// Whether the range delete may still hide a record: an older run overlaps it and has not had it applied.
    pub fn needs(&self, delete: &RangeDelete) -> bool {
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

    /// The number of runs and of tables.
    pub fn tables(&self) -> usize {
        self.runs.iter().map(|run| run.files.len()).sum()
    }
}
