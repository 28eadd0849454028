//! *Few range deletes*: each is kept in memory and at the head of each manifest until it covers no run any more.
//!
//! Above `MAX_RANGE_DELETES` of them, or a limit in bytes, the runs that the oldest one covers in part are rewritten:
//! the output has it applied, and it is removed when no older run overlaps it.
//!
//! Example: of 1,001 range deletes the oldest, at 40, covers `a..c`. Of the runs with a sequence number below 40 that
//! overlap `a..c`, one has had it applied; the two others are rewritten.

use std::collections::BTreeSet;

use crate::base::{Seq, TableId};
use crate::catalog::{Facts, RunFacts};
use crate::compact::choice::{Rewrite, Urgency, Why};

/// Above this many range deletes, or this many bytes of them in memory, the runs that they cover are rewritten: all are
/// kept in memory and at the head of each manifest.
const MAX_RANGE_DELETES: usize = 1_000;
const MAX_RANGE_DELETE_BYTES: usize = 4 << 20;

pub fn few_range_deletes(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
) -> Option<Rewrite> {
    let (of, bytes) = (facts.range_deletes.len(), facts.range_deletes.bytes());
    if of <= MAX_RANGE_DELETES && bytes <= MAX_RANGE_DELETE_BYTES {
        return None;
    }
    let oldest_snapshot = snapshots.first().copied().unwrap_or(Seq::MAX);
    let mut applicable = facts
        .range_deletes
        .iter()
        .filter(|delete| delete.seq <= oldest_snapshot);
    let oldest = applicable.next()?;
    let runs = facts
        .free_runs(busy)
        .filter(|run| run.applied < oldest.seq && run.census.seq_min < oldest.seq);
    let covered: Vec<&RunFacts> = runs
        .filter(|run| oldest.range.overlaps(run.first_key(), run.last_key()))
        .collect();
    (!covered.is_empty()).then(|| Rewrite {
        tables: covered.iter().flat_map(|run| run.table_ids()).collect(),
        cut: true,
        urgency: Urgency::Due,
        why: Why::RangeDeletes { of },
    })
}
