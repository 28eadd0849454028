//! *Few runs*: a read asks every run that may hold its keys, so a container settles at `max_runs`.
//!
//! Runs whose tables do not overlap are *joined* when there are more than half as many: by an edit, without I/O on
//! tables. Above `max_runs`, 2 to 12 runs that are neighbours in `end` are merged, where (runs saved) / (bytes
//! rewritten, and held past their own end) is highest. Dated runs and never-ending ones are not merged with each other.
//!
//! Prices: rewriting a byte costs one. Holding it past its own end costs the share of the wait, times `HOLD`, or times
//! `HOLD_SUDDEN` where all of a run would end at once, as with one lifetime for all.
//!
//! Example: runs of 10 MB each end in 1, 2 and 10 hours. To merge the first two costs 20 MB, and 10 MB that are held for
//! one hour of two, twice: 30 MB. To merge all three costs 30 MB, and 10 MB held for 9 hours of 10 and 10 MB for 8 of 10,
//! twice each: 64 MB, which is 32 MB for each run less. So the first two are merged, if the tenth of the container that
//! each job costs besides does not outweigh it.

use std::collections::BTreeSet;

use crate::base::{TableId, Timestamp};
use crate::catalog::{Facts, RunFacts, RunId};
use crate::compact::choice::{Goals, Rewrite, Urgency, Why};
use crate::expiry::ExpiryView;

/// The price of holding a byte for the whole wait past its own end, in bytes rewritten.
const HOLD: f64 = 2.0;
/// The same where nearly all of a run ends at once, within a sixteenth of the longest lifetime, and would be dropped
/// without I/O.
const HOLD_SUDDEN: f64 = 16.0;
const SUDDEN_SHARE: u64 = 16;
/// The most runs in one merge for fewer runs.
pub const FAN: usize = 12;
/// A merge of at most this many memtables is young: it goes first, so that runs do not pile up behind other work.
const YOUNG: u64 = 16;
/// A merge costs, besides its bytes, the container's bytes divided by this.
const JOB_SHARE: f64 = 10.0;

/// Two runs to be joined: their tables do not overlap, and neither ends much later than it would alone. Prefers the
/// fewest tables, so that a long run is not written to the catalogue again for each short one.
pub fn apart(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Vec<RunId>> {
    if facts.runs.len() <= goals.max_runs / 2 {
        return None;
    }
    let mut by_end: Vec<&RunFacts> = facts.free_runs(busy).collect();
    by_end.sort_by_key(|run| (run.end, run.id));
    let pairs = by_end.iter().enumerate().flat_map(|(at, &earlier)| {
        let later = by_end[at + 1..].iter();
        later.map(move |&later| (earlier, later))
    });
    let patient = |earlier: &RunFacts, later: &RunFacts| {
        earlier.end == later.end
            || (later.end != Timestamp::MAX
                && later.end.since(earlier.end) <= later.end.since(view.now) / 8)
    };
    let joinable =
        pairs.filter(|(earlier, later)| patient(earlier, later) && are_apart(earlier, later));
    let (earlier, later) =
        joinable.min_by_key(|(earlier, later)| earlier.tables.len() + later.tables.len())?;
    Some(vec![earlier.id, later.id])
}

/// Whether no table of one overlaps a table of the other.
pub fn are_apart(a: &RunFacts, b: &RunFacts) -> bool {
    let (mut left, mut right) = (a.tables.iter().peekable(), b.tables.iter().peekable());
    while let (Some(x), Some(y)) = (left.peek(), right.peek()) {
        if x.overlaps(y) {
            return false;
        }
        if x.statistics.last_key < y.statistics.first_key {
            left.next();
        } else {
            right.next();
        }
    }
    true
}

pub fn few_runs(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Rewrite> {
    let of = facts.runs.len();
    if of <= goals.max_runs {
        return None;
    }
    let (each, group) = cheapest(facts, busy, view)?;
    let price = each as u64;
    Some(merge(&group, goals, Why::FewRuns { of, price }))
}

/// The neighbours in `end` that cost least for each run less, and that cost.
pub fn cheapest<'a>(
    facts: &'a Facts,
    busy: &'a BTreeSet<TableId>,
    view: &ExpiryView,
) -> Option<(f64, Vec<&'a RunFacts>)> {
    let mut by_end: Vec<&RunFacts> = facts.free_runs(busy).collect();
    by_end.sort_by_key(|run| (run.end, run.bytes, run.id));
    let fixed = facts.bytes() as f64 / JOB_SHARE;
    let mut best: Option<(f64, &[&RunFacts])> = None;
    for start in 0..by_end.len() {
        for len in 2..=FAN.min(by_end.len() - start) {
            let group = &by_end[start..start + len];
            // Records that never end are not rewritten for dated ones.
            if (group[0].end == Timestamp::MAX) != (group[len - 1].end == Timestamp::MAX) {
                continue;
            }
            let each = (price(group, view) + fixed) / (len - 1) as f64;
            if best.is_none_or(|(least, _)| each < least) {
                best = Some((each, group));
            }
        }
    }
    best.map(|(each, group)| (each, group.to_vec()))
}

/// A merge for fewer runs.
pub fn merge(group: &[&RunFacts], goals: &Goals, why: Why) -> Rewrite {
    let bytes: u64 = group.iter().map(|run| run.bytes).sum();
    let young = bytes <= YOUNG * goals.memtable_bytes;
    Rewrite {
        tables: group.iter().flat_map(|run| run.table_ids()).collect(),
        cut: false,
        urgency: if young { Urgency::Young } else { Urgency::Deep },
        why,
    }
}

/// The cost of merging these, in bytes rewritten.
fn price(group: &[&RunFacts], view: &ExpiryView) -> f64 {
    let end = group.last().expect("a group has runs").end;
    let wait = end.since(view.now).max(1) as f64;
    let held = |run: &RunFacts| {
        let hold = if ends_at_once(run, view) {
            HOLD_SUDDEN
        } else {
            HOLD
        };
        hold * end.since(run.end) as f64 / wait
    };
    group
        .iter()
        .map(|run| run.bytes as f64 * (1.0 + held(run)))
        .sum()
}

fn ends_at_once(run: &RunFacts, view: &ExpiryView) -> bool {
    let (census, settings) = (&run.census, &view.settings);
    census.first_expiry(settings).is_some_and(|first| {
        let span = census.last_expiry(settings).since(first);
        span < census.longest_life(settings) / SUDDEN_SHARE
    })
}
