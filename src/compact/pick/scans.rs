//! *Scans*: with no more than `max_runs`, what scans have paid for is merged.
//!
//! Each scan adds to what one run less is worth about the work that one run more was to it; when that reaches the price of
//! runs.rs, plus a mebibyte, it is spent. So at any time merging has cost about as much as it would have spared: the rent
//! paid, the skis are bought.
//!
//! Example: the cheapest merge of four runs costs 30 MB for each run less. Scans that stepped over four runs have read
//! 31 MB of blocks and heads more than they would have with one run less: the merge is done. Where the runs hold ranges of
//! keys of their own, as when keys ascend with time, a scan is in one of them at a time, and nothing is merged for it.

use std::collections::BTreeSet;

use crate::base::TableId;
use crate::catalog::{Facts, RunFacts};
use crate::compact::choice::{Goals, Rewrite, Why};
use crate::compact::pick::runs::{are_apart, cheapest, merge};
use crate::expiry::ExpiryView;

/// What scans pay at the least for one run less, in bytes: a job syncs some files, however little it merges.
const LEAST_PRICE: u64 = 1 << 20;

/// The same with fewer runs, if scans have paid for it.
pub fn paid_by_scans(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Rewrite> {
    if goals.paid_by_scans < LEAST_PRICE {
        return None;
    }
    let (of, (each, group)) = (facts.runs.len(), cheapest(facts, busy, view)?);
    let price = LEAST_PRICE + each as u64;
    // Keys that ascend with time would be rewritten for a seek.
    let overlaps = |run: &RunFacts| {
        let mut others = group.iter().filter(|other| other.id != run.id);
        others.any(|other| !are_apart(run, other))
    };
    (price <= goals.paid_by_scans && group.iter().all(|run| overlaps(run)))
        .then(|| merge(&group, goals, Why::Scans { of, price }))
}
