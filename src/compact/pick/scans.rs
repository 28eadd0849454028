//! *Scans*: with at most `max_runs` runs, a merge is done when scans have paid for it.
//!
//! Each scan adds the cost of one run to the sum that one run less is worth. When the sum reaches the price of runs.rs,
//! plus a mebibyte, the merge is done and the sum is reset. So merging has cost at any time about as much as it saves
//! (the ski rental problem).
//!
//! Example: the cheapest merge of four runs costs 30 MB for each run less. Scans over these four runs have cost 31 MB
//! more than they would have with one run less: the merge is done. Where runs hold disjoint key ranges, as when keys
//! ascend with time, a scan is in one run at a time, and nothing is merged for it.

use std::collections::BTreeSet;

use crate::base::TableId;
use crate::catalog::{Facts, RunFacts};
use crate::compact::choice::{Goals, Rewrite, Why};
use crate::compact::pick::runs::{are_apart, cheapest, merge};
use crate::expiry::ExpiryView;

/// The least that scans must pay for one run less, in bytes: a job syncs some files, however little it merges.
const LEAST_PRICE: u64 = 1 << 20;

/// The cheapest merge, if scans have paid for it.
pub fn merge_for_scans(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Rewrite> {
    if goals.scan_credit < LEAST_PRICE {
        return None;
    }
    let (of, (each, group)) = (facts.runs.len(), cheapest(facts, busy, view)?);
    let price = LEAST_PRICE + each as u64;
    // Keys that ascend with time would be rewritten only to save seeks.
    let overlaps = |run: &RunFacts| {
        let mut others = group.iter().filter(|other| other.id != run.id);
        others.any(|other| !are_apart(run, other))
    };
    (price <= goals.scan_credit && group.iter().all(|run| overlaps(run)))
        .then(|| merge(&group, goals, Why::Scans { of, price }))
}
