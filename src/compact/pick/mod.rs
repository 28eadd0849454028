//! The compaction picker: chooses the next job from the statistics of runs alone. Pure.
//!
//! Seven goals, in this order; each file says what it picks, and why:
//!
//! 1. ended tables are dropped (ended.rs);
//! 2. runs that do not overlap are joined, when there are many (runs.rs);
//! 3. many range deletes are reduced (range_deletes.rs), then expired bytes are removed before their deadline
//!    (deadline.rs);
//! 4. above `max_runs`, runs are merged, where that costs least (runs.rs);
//! 5. above a twelfth of the container, garbage is rewritten away (garbage.rs);
//! 6. runs are merged when scans have paid for it (scans.rs);
//! 7. so are dead records that scans pass (dead.rs).
//!
//! `examples/policy.rs` simulates all of this; its results are in docs/measurements/policy.md.

mod ended;
mod runs;
mod range_deletes;
mod deadline;
mod garbage;
mod scans;
mod dead;

use std::collections::BTreeSet;

use crate::base::{Seq, TableId, Timestamp};
use crate::catalog::{Facts, RunFacts};
use crate::compact::choice::{Choice, Goals, Rewrite, Urgency, Why};
use crate::compact::slot::slot_end;
use crate::expiry::ExpiryView;
use dead::paid_by_passing;
use deadline::{next_due, on_time};
use garbage::little_garbage;
use range_deletes::few_range_deletes;
use runs::{apart, few_runs};
use scans::merge_for_scans;

pub use deadline::{deadline, pressure, start_by};
pub use ended::ended;

/// The next job for one container. `snapshots`: the sequence numbers of the open snapshots, ascending; `busy`: tables in
/// a running job.
pub fn pick(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Choice {
    let ended = ended(facts, snapshots, busy, view);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    if let Some(runs) = apart(facts, busy, view, goals) {
        return Choice::Join(runs);
    }
    few_range_deletes(facts, snapshots, busy)
        .or_else(|| on_time(facts, busy, view, goals))
        .or_else(|| few_runs(facts, busy, view, goals))
        .or_else(|| little_garbage(facts, snapshots, busy, view, goals))
        .or_else(|| merge_for_scans(facts, busy, view, goals))
        .or_else(|| paid_by_passing(facts, snapshots, busy, goals))
        .map_or_else(
            || Choice::Rest {
                until: next_due(facts, view, goals),
            },
            Choice::Merge,
        )
}

/// The job that gains everything that reclaiming and merging can: one over all runs, or none.
pub fn pick_all(facts: &Facts, snapshots: &[Seq], view: &ExpiryView, goals: &Goals) -> Choice {
    let ended = ended(facts, snapshots, &BTreeSet::new(), view);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    let never = facts
        .runs
        .iter()
        .filter(|run| run.end == Timestamp::MAX)
        .count();
    let mut runs = facts.runs.iter();
    let garbage =
        runs.any(|run| run.census.tombstones.count > 0 || run.oldest_dead(view).is_some());
    let slot = |run: &RunFacts| slot_end(run.end, view.now);
    let overlap = facts.runs.iter().enumerate().any(|(at, run)| {
        let mut others = facts.runs[at + 1..].iter();
        others.any(|other| {
            run.overlaps(other) && (slot(run) == slot(other) || interleave(run, other))
        })
    });
    let many = facts.runs.len() > goals.max_runs;
    let superseded = garbage::is_superseded_within(facts, snapshots);
    if facts.runs.is_empty()
        || (!many
            && never <= 1
            && !garbage
            && !superseded
            && !overlap
            && facts.range_deletes.is_empty())
    {
        return Choice::Rest { until: None };
    }
    Choice::Merge(Rewrite {
        tables: facts.tables().map(|(_, table)| table.id).collect(),
        cut: true,
        urgency: Urgency::Deep,
        why: Why::Asked,
    })
}

/// Whether two runs may hold versions of the same key, by their samples; exact where these are complete.
fn interleave(a: &RunFacts, b: &RunFacts) -> bool {
    let sampled = |run: &'_ RunFacts| -> std::collections::HashSet<u64> {
        let records = run
            .tables
            .iter()
            .flat_map(|table| &table.statistics.sample.records);
        records.map(|record| record.hash).collect()
    };
    !sampled(a).is_disjoint(&sampled(b))
}
