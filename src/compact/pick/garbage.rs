//! *Little garbage*: above a twelfth of the container, expired and superseded records are rewritten away, with output
//! cut into slots.
//!
//! There are two candidates, and the one with more bytes freed per byte rewritten is done: the run with the most
//! expired bytes per live byte, each weighed by how long the run would still hold it, without those of its tables in
//! which next to nothing is dead; and, with the most superseded bytes per surviving byte, the k youngest runs, or one run
//! that was written while a snapshot saw versions in it that nobody sees now.
//!
//! Example: of a container of 100 MB, 10 MB are expired, all in one run of 15 MB that ends in a day: 10 bytes are freed
//! for 5 that are rewritten, which is worth it. If it ended in a minute it would be left to end.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::base::{Seq, TableId};
use crate::catalog::{Facts, RunFacts, TableFacts};
use crate::compact::choice::{Goals, Rewrite, Urgency, Why};
use crate::compact::estimate::{Sample, expired_in_run, expired_in_table};
use crate::compact::pick::deadline::deadline;
use crate::data::visibility::is_superseded;
use crate::expiry::ExpiryView;
use crate::table::Sampled;

/// Garbage below this share of a container is left.
const GARBAGE_SHARE: f64 = 0.08;
/// Expired bytes below this share of a memtable are left, too, until their deadline is near: where little is live,
/// memory and log hold more than that anyway.
const GARBAGE_OF_MEMTABLE: f64 = 0.375;
/// The least expired bytes per live byte for which a table is rewritten, while its garbage is young.
const EXPIRED_WORTH: f64 = 0.55;
/// The same when the garbage is at its deadline, or there is nothing else to do.
const LEAST_WORTH: f64 = 0.1;
/// Space that is freed for less than this share of the longest lifetime counts proportionally less.
const WAIT_SHARE: f64 = 0.25;
/// The least superseded bytes per surviving byte for which runs are merged.
const SUPERSEDED_WORTH: f64 = 0.85;

pub fn little_garbage(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
) -> Option<Rewrite> {
    let total: u64 = facts.runs.iter().map(|run| run.census.total().bytes).sum();
    let lazy = 1.0 - goals.eager;
    let enough = GARBAGE_SHARE * lazy * total as f64;
    let enough_expired = enough.max(GARBAGE_OF_MEMTABLE * lazy * goals.memtable_bytes as f64);
    let expired = most_expired(facts, busy, view, goals, enough_expired);
    let superseded = most_superseded(facts, snapshots, busy, view, enough);
    let best = expired.into_iter().chain(superseded);
    best.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, rewrite)| rewrite)
}

/// The run with the most expired bytes per live byte, each weighed by how long it would stay, without those of its
/// tables in which next to nothing is dead.
fn most_expired(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    goals: &Goals,
    enough: f64,
) -> Option<(f64, Rewrite)> {
    let all: u64 = facts.runs.iter().map(|run| expired_in_run(run, view)).sum();
    if all as f64 <= enough {
        return None;
    }
    let mut best: Option<(f64, Rewrite)> = None;
    for run in facts.free_runs(busy) {
        let share = |table: &TableFacts| {
            let all = table.statistics.census.total().bytes;
            let expired = expired_in_table(&table.statistics, view);
            (expired, all.saturating_sub(expired))
        };
        let worthy = run.tables.iter().filter(|table| {
            let (dead, live) = share(table);
            dead as f64 > LEAST_WORTH * live as f64
        });
        let worthy: Vec<&TableFacts> = worthy.collect();
        let (dead, live) = worthy.iter().fold((0, 0), |sum, table| {
            let (dead, live) = share(table);
            (sum.0 + dead, sum.1 + live)
        });
        let worth = had_for(run, view) * dead as f64 / live.max(1) as f64;
        if worth > worth_of_garbage(run, view, goals)
            && best.as_ref().is_none_or(|(most, _)| worth > *most)
        {
            let tables = worthy.iter().map(|table| table.id).collect();
            let rewrite = Rewrite {
                tables,
                cut: true,
                urgency: Urgency::Deep,
                why: Why::Expired { bytes: dead },
            };
            best = Some((worth, rewrite));
        }
    }
    best
}

/// For how long a rewrite of this run frees space, as a share of the time that counts in full: shortly before the run
/// ends, only until its end.
fn had_for(run: &RunFacts, view: &ExpiryView) -> f64 {
    let waits = match run.end_is_trusted(&view.settings) {
        true => run.end.since(view.now) as f64,
        false => f64::INFINITY,
    };
    let longest = run.census.longest_life(&view.settings) as f64;
    (waits / (WAIT_SHARE * longest)).min(1.0)
}

/// The expired bytes per live byte from which a run is rewritten: fewer when its garbage is old, and when there is
/// nothing else to do.
fn worth_of_garbage(run: &RunFacts, view: &ExpiryView, goals: &Goals) -> f64 {
    let age = run.oldest_dead(view).map_or(0.0, |expired| {
        let span = deadline(expired, &run.census, view, goals).since(expired);
        (view.now.since(expired) as f64 / span.max(1) as f64).min(1.0)
    });
    EXPIRED_WORTH - (EXPIRED_WORTH - LEAST_WORTH) * age.max(goals.eager)
}

/// The k youngest runs, or the run alone, with the most superseded bytes per surviving byte, by the coordinated sample.
/// Counts only bytes that a merge of them would free: no open snapshot needs them, and the dead ones have nothing left to
/// hide elsewhere.
fn most_superseded(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    view: &ExpiryView,
    enough: f64,
) -> Option<(f64, Rewrite)> {
    // Runs older than a busy one wait for the next time.
    let runs: Vec<&RunFacts> = facts
        .runs
        .iter()
        .map(|run| run.as_ref())
        .take_while(|run| !run.holds_any(busy))
        .collect();
    let parts = freed_with(&runs, &Sample::of(facts), snapshots, view);
    let (mut best, mut youngest) = (None::<(f64, RangeInclusive<usize>)>, RunBytes::default());
    let mut weigh = |bytes: f64, freed: f64, chosen| {
        let worth = freed / f64::max(bytes - freed, 1.0);
        let is_worth_it = freed > enough && worth > SUPERSEDED_WORTH;
        if is_worth_it && best.as_ref().is_none_or(|(most, _)| worth > *most) {
            best = Some((worth, chosen));
        }
    };
    for (at, part) in parts.iter().enumerate() {
        youngest.bytes += part.bytes;
        youngest.freed += part.freed;
        if at > 0 {
            weigh(youngest.bytes, youngest.freed, 0..=at);
        }
        weigh(part.bytes, part.freed_alone, at..=at);
    }
    let (worth, chosen) = best?;
    let rewrite = Rewrite {
        tables: runs[chosen]
            .iter()
            .flat_map(|run| run.table_ids())
            .collect(),
        cut: true,
        urgency: Urgency::Deep,
        why: Why::Superseded { worth },
    };
    Some((worth, rewrite))
}

/// Whether a rewrite of some run alone frees a version that a newer one in it hides, because the snapshot that needed it is
/// no more: by counts where no snapshot divides the records of a table, else by its sample.
pub fn is_superseded_within(facts: &Facts, snapshots: &[Seq]) -> bool {
    facts.tables().any(|(_, table)| {
        let statistics = &table.statistics;
        let (oldest, newest) = (statistics.census.seq_min, statistics.census.seq_max);
        let mut pairs = statistics.sample.records.windows(2);
        statistics.records > statistics.keys
            && (is_superseded(newest, oldest, snapshots)
                || pairs.any(|pair| {
                    let (newer, older) = (&pair[0], &pair[1]);
                    newer.hash == older.hash
                        && is_superseded(newer.header.seq, older.header.seq, snapshots)
                }))
    })
}

/// Bytes of one run.
#[derive(Clone, Copy, Default)]
struct RunBytes {
    /// All bytes.
    bytes: f64,
    /// The bytes that a merge frees if it includes this run with all younger ones, and not without it.
    freed: f64,
    /// The bytes that a rewrite of this run alone frees, because a newer version in it hides them.
    freed_alone: f64,
}

/// The bytes of each of these runs, youngest first, by the sample.
fn freed_with(
    runs: &[&RunFacts],
    sample: &Sample,
    snapshots: &[Seq],
    view: &ExpiryView,
) -> Vec<RunBytes> {
    let mut records: Vec<(usize, &Sampled)> = vec![];
    for (at, run) in runs.iter().enumerate() {
        sample.each_in(run, |record| records.push((at, record)));
    }
    records.sort_unstable_by_key(|(_, record)| (record.hash, Reverse(record.header.seq)));
    let mut parts = vec![RunBytes::default(); runs.len()];
    for versions in records.chunk_by(|a, b| a.1.hash == b.1.hash) {
        let oldest = versions[versions.len() - 1].1.header.seq;
        for (nth, &(at, record)) in versions.iter().enumerate() {
            let (seq, weight) = (record.header.seq, record.weight as f64 * sample.scale);
            parts[at].bytes += weight;
            // A merge frees it if it includes the newer version, or everything that the dead one hides.
            let with = match nth.checked_sub(1).map(|newer| versions[newer]) {
                Some((newer, by)) if is_superseded(by.header.seq, seq, snapshots) => {
                    if newer == at {
                        parts[at].freed_alone += weight;
                    }
                    newer.max(at)
                }
                _ if view.dead(&record.header) && is_superseded(seq, oldest, snapshots) => {
                    let places = versions[nth..].iter().map(|version| version.0);
                    places.max().unwrap_or(at)
                }
                _ => continue,
            };
            parts[with].freed += weight;
        }
    }
    parts
}
