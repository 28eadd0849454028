//! *Dead records*: what scans pass over, and what range deletes keep them from taking many at a time, is merged away when
//! scans have paid for that.
//!
//! Each scan adds what it had to look at besides items. When the sum reaches the bytes of the tables to rewrite, plus a
//! mebibyte, they are rewritten: those that a range delete covers in part and that have not had it applied, or else those
//! with tombstones and what these hide.
//!
//! Example: 20,000 range deletes lie over a run of 20 MB. A scan of its 180,000 items decides about each of them alone and
//! adds 18 MB; a second one adds as much, and the run is rewritten.

use std::collections::BTreeSet;

use crate::base::{Seq, TableId};
use crate::catalog::{Facts, RunFacts};
use crate::compact::choice::{Goals, Rewrite, Urgency, Why};

/// The least that scans must pay, in bytes: a job syncs some files, however little it merges.
const LEAST_PRICE: u64 = 1 << 20;

/// The merge that lets scans pass less, if they have paid for it.
pub fn paid_by_passing(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    goals: &Goals,
) -> Option<Rewrite> {
    if goals.paid_by_passing < LEAST_PRICE {
        return None;
    }
    let mut chosen = under_range_deletes(facts, snapshots, busy);
    if chosen.is_empty() {
        chosen = with_tombstones(facts, snapshots, busy);
    }
    let bytes: u64 = chosen.iter().map(|run| run.bytes).sum();
    (!chosen.is_empty() && LEAST_PRICE + bytes <= goals.paid_by_passing).then(|| Rewrite {
        tables: chosen.iter().flat_map(|run| run.table_ids()).collect(),
        cut: true,
        urgency: Urgency::Deep,
        why: Why::Passing { bytes },
    })
}

/// The runs that range deletes cover in part, which no snapshot is older than.
fn under_range_deletes<'a>(
    facts: &'a Facts,
    snapshots: &[Seq],
    busy: &'a BTreeSet<TableId>,
) -> Vec<&'a RunFacts> {
    let oldest_snapshot = snapshots.first().copied().unwrap_or(Seq::MAX);
    let covers = |run: &&RunFacts| {
        let deletes = facts.range_deletes.iter();
        let mut deletes = deletes.take_while(|delete| delete.seq <= oldest_snapshot);
        deletes.any(|delete| {
            run.applied < delete.seq
                && run.census.seq_min < delete.seq
                && delete.range.overlaps(run.first_key(), run.last_key())
        })
    };
    facts.free_runs(busy).filter(covers).collect()
}

/// The runs with tombstones that no snapshot is older than, and all older ones that these may hide something in; none if
/// one of them is busy.
fn with_tombstones<'a>(
    facts: &'a Facts,
    snapshots: &[Seq],
    busy: &'a BTreeSet<TableId>,
) -> Vec<&'a RunFacts> {
    let oldest_snapshot = snapshots.first().copied().unwrap_or(Seq::MAX);
    let runs = || facts.runs.iter().map(|run| run.as_ref());
    let hiding =
        |run: &&RunFacts| run.census.tombstones.count > 0 && run.census.seq_min <= oldest_snapshot;
    let hiding: Vec<&RunFacts> = runs().filter(hiding).collect();
    let is_hidden = |run: &&RunFacts| {
        hiding.iter().any(|hiding| {
            run.id == hiding.id
                || (run.census.seq_min < hiding.census.seq_max && run.overlaps(hiding))
        })
    };
    let chosen: Vec<&RunFacts> = runs().filter(is_hidden).collect();
    match chosen.iter().any(|run| run.holds_any(busy)) {
        true => vec![],
        false => chosen,
    }
}
