//! Which job comes next: pure, from what the runs say of themselves without being read.
//!
//! In this order:
//!
//! 1. what has *ended* is dropped, table by table: the run's end has passed and can be trusted; or all that the table
//!    holds is dead, and so is every older table that overlaps it, so that it hides nothing; or range deletes cover it
//!    whole, and no snapshot is older than these;
//! 2. runs whose tables do not overlap are *joined*, when there are many runs: an edit, and nothing is read or written;
//! 3. more than `MAX_RANGE_DELETES`, or large ones, are brought down, by rewriting the tables that the oldest one covers in part; then
//!    *on time*: the tables whose oldest unreclaimed expiry nears its deadline are rewritten together with those
//!    that are soon to follow, so that there is enough to be cut into slots which end in time by themselves;
//! 4. *few runs*: above `max_runs`, 2 to 12 runs that are neighbours in `end` become one, where (runs saved) / (bytes
//!    rewritten, and held past their own end) is highest;
//! 5. *little garbage*: above a twelfth of the container, the tables with the most expired bytes per live byte, weighed by
//!    how long the run would still hold them, or the k youngest runs with the most superseded bytes per surviving byte, are
//!    rewritten, cut into slots;
//! 6. *scans*: with no more than `max_runs`, what scans have paid for is merged. Each adds to what one run less is worth
//!    about the work that one run more was to it; when that reaches the price of 4., plus a mebibyte, it is spent. So at
//!    any time merging has cost about as much as it would have spared: the rent paid, the skis are bought.
//!
//! Prices: rewriting a byte costs one; holding it past its own end costs the share of the wait, `HOLD` times, more where
//! the end would come at once for all of a run, as under one lifetime for all. Dated runs and never-ending ones are not
//! merged with each other. `examples/policy.rs` simulates all of this; its results are in DESIGN.md.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::base::{Seq, TableId, Timestamp};
use crate::catalog::{Facts, RunFacts, RunId, TableFacts};
use crate::compact::choice::{Choice, Goals, Rewrite, Urgency, Why};
use crate::compact::estimate::{
    Sample, expired_in_run, expired_in_table, oldest_dead_in_run, oldest_dead_in_table,
};
use crate::compact::slot::slot_end;
use crate::expiry::{Census, Judge};
use crate::table::Sampled;

/// The price of holding a byte for the whole wait past its own end, in bytes rewritten.
const HOLD: f64 = 2.0;
/// The same where nearly all of a run ends at once, and would go for nothing then: within a sixteenth of the longest
/// lifetime.
const HOLD_SUDDEN: f64 = 16.0;
const SUDDEN_SHARE: u64 = 16;
/// The most runs that one merge takes for the sake of fewer runs.
const FAN: usize = 12;
/// A merge of at most so many memtables is young: it goes before others, which would otherwise let runs pile up.
const YOUNG: u64 = 16;
/// What a merge costs besides its bytes: the container by this.
const JOB_SHARE: f64 = 10.0;
/// What scans pay at the least for one run less, in bytes: a job syncs some files, however little it merges.
const LEAST_PRICE: u64 = 1 << 20;
/// Garbage below this share of a container is let be.
const GARBAGE_SHARE: f64 = 0.08;
/// Expired bytes fewer than this share of a memtable are let be, too, until their deadline nears: where little is alive,
/// memory and log hold more than that anyway.
const GARBAGE_OF_MEMTABLE: f64 = 0.375;
/// The least expired bytes per live byte for which a table is rewritten, while its garbage is young.
const EXPIRED_WORTH: f64 = 0.55;
/// The same when the garbage is as old as its deadline, or there is nothing else to do.
const LEAST_WORTH: f64 = 0.1;
/// Space that is had for less than this share of the longest lifetime counts that much less.
const WAIT_SHARE: f64 = 0.25;
/// The least superseded bytes per surviving byte for which runs are merged.
const SUPERSEDED_WORTH: f64 = 0.85;
/// Above so many range deletes, or so many bytes of them in memory, what they cover is rewritten: they are kept in memory
/// and in the head of each manifest.
const MAX_RANGE_DELETES: usize = 1_000;
const MAX_RANGE_DELETE_BYTES: usize = 4 << 20;

/// When the bytes of an item that expired at `expiry` beside these are to be gone.
pub fn deadline(expiry: Timestamp, census: &Census, judge: &Judge, goals: &Goals) -> Timestamp {
    let eighth = if goals.reclaim_strict {
        0
    } else {
        census.longest_life(&judge.settings) / 8
    };
    expiry.after(goals.reclaim_within.max(eighth))
}

/// The next job for one container. `snapshots` are the numbers of the open ones, ascending; `busy` tables are in a job.
pub fn pick(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Choice {
    let ended = ended(facts, snapshots, busy, judge);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    if let Some(runs) = apart(facts, busy, judge, goals) {
        return Choice::Join(runs);
    }
    few_range_deletes(facts, snapshots, busy)
        .or_else(|| on_time(facts, busy, judge, goals))
        .or_else(|| few_runs(facts, busy, judge, goals))
        .or_else(|| little_garbage(facts, snapshots, busy, judge, goals))
        .or_else(|| paid_by_scans(facts, busy, judge, goals))
        .map_or_else(
            || Choice::Rest {
                until: next_due(facts, judge, goals),
            },
            Choice::Merge,
        )
}

/// The tables that matter no more.
pub fn ended(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    judge: &Judge,
) -> Vec<TableId> {
    // Few tables are dead as a rule, and only these are compared with the others.
    let census = |table: &TableFacts| table.statistics.census;
    let alive: Vec<&TableFacts> = facts
        .tables()
        .map(|(_, table)| table)
        .filter(|table| !census(table).all_dead(judge))
        .collect();
    let hides = |table: &TableFacts| {
        let newest = census(table).seq_max;
        alive
            .iter()
            .any(|other| census(other).seq_min < newest && other.overlaps(table))
    };
    let is_covered = |table: &TableFacts| {
        let (oldest, newest) = (census(table).seq_min, census(table).seq_max);
        let keys: (&[u8], &[u8]) = (&table.statistics.first_key, &table.statistics.last_key);
        let at = snapshots.partition_point(|snapshot| *snapshot < oldest);
        let first_reader = snapshots.get(at).copied().unwrap_or(Seq::MAX);
        facts.range_deletes.covers_all(keys, newest, first_reader)
    };
    let free = facts.tables().filter(|(run, _)| !is_busy(run, busy));
    let ended = free.filter(|(run, table)| {
        run.has_ended(judge)
            || is_covered(table)
            || (census(table).all_dead(judge) && !hides(table))
    });
    ended.map(|(_, table)| table.id).collect()
}

/// Two runs that become one for nothing: their tables do not overlap, and neither waits much longer for its end than
/// alone. The fewest tables first, so that a long run is not written to the catalogue again for each short one.
fn apart(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Option<Vec<RunId>> {
    if facts.runs.len() <= goals.max_runs / 2 {
        return None;
    }
    let mut by_end: Vec<&RunFacts> = free_runs(facts, busy).collect();
    by_end.sort_by_key(|run| (run.end, run.id));
    let pairs = by_end.iter().enumerate().flat_map(|(at, &earlier)| {
        let later = by_end[at + 1..].iter();
        later.map(move |&later| (earlier, later))
    });
    let patient = |earlier: &RunFacts, later: &RunFacts| {
        earlier.end == later.end
            || (later.end != Timestamp::MAX
                && later.end.since(earlier.end) <= later.end.since(judge.now) / 8)
    };
    let joinable =
        pairs.filter(|(earlier, later)| patient(earlier, later) && are_apart(earlier, later));
    let (earlier, later) =
        joinable.min_by_key(|(earlier, later)| earlier.tables.len() + later.tables.len())?;
    Some(vec![earlier.id, later.id])
}

/// No table of one overlaps a table of the other.
fn are_apart(a: &RunFacts, b: &RunFacts) -> bool {
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

fn free_runs<'a>(
    facts: &'a Facts,
    busy: &'a BTreeSet<TableId>,
) -> impl Iterator<Item = &'a RunFacts> {
    let runs = facts.runs.iter().map(|run| run.as_ref());
    runs.filter(|run| !is_busy(run, busy))
}

fn is_busy(run: &RunFacts, busy: &BTreeSet<TableId>) -> bool {
    run.tables.iter().any(|table| busy.contains(&table.id))
}

fn few_range_deletes(
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
    let runs = free_runs(facts, busy)
        .filter(|run| run.applied < oldest.seq && run.census.seq_min < oldest.seq);
    let covered: Vec<&RunFacts> = runs
        .filter(|run| oldest.range.overlaps(run.first_key(), run.last_key()))
        .collect();
    (!covered.is_empty()).then(|| Rewrite {
        tables: all_tables(&covered),
        cut: true,
        urgency: Urgency::Due,
        why: Why::RangeDeletes { of },
    })
}

fn all_tables(runs: &[&RunFacts]) -> Vec<TableId> {
    let tables = runs.iter().flat_map(|run| &run.tables);
    tables.map(|table| table.id).collect()
}

/// Everything that is due, and what is nearly due with it: alone, each would be too small to be cut, and be due again.
fn on_time(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Option<Rewrite> {
    let mut dead: Vec<(Timestamp, Timestamp, &TableFacts)> =
        with_deadlines(free_runs(facts, busy), judge, goals).collect();
    dead.sort_by_key(|&(deadline, _, table)| (deadline, table.id));
    let &(deadline, expired, _) = dead.first()?;
    let span = deadline.since(expired);
    if begin_by(expired, deadline) > judge.now {
        return None;
    }
    let most = (FAN as u64 * goals.memtable_bytes).max(facts.bytes() / 8);
    let soon = deadline.after(span / 2);
    let mut bytes = 0;
    let tables = dead
        .iter()
        .take_while(|(deadline, ..)| *deadline <= soon)
        .take_while(|(.., table)| {
            let first = bytes == 0;
            bytes += table.bytes;
            first || bytes <= most
        })
        .map(|(.., table)| table.id)
        .collect();
    Some(Rewrite {
        tables,
        cut: true,
        urgency: Urgency::Due,
        why: Why::OnTime { expired, deadline },
    })
}

/// The tables that must be rewritten for what has expired in them: by when, and when the oldest of it expired.
fn with_deadlines<'a>(
    runs: impl Iterator<Item = &'a RunFacts>,
    judge: &Judge,
    goals: &Goals,
) -> impl Iterator<Item = (Timestamp, Timestamp, &'a TableFacts)> {
    let tables = runs.flat_map(|run| run.tables.iter().map(move |table| (run, table)));
    tables.filter_map(|(run, table)| {
        let expired = oldest_dead_in_table(&table.statistics, judge)?;
        let deadline = deadline(expired, &table.statistics.census, judge, goals);
        // A run that ends before its deadline is dropped for nothing then.
        let waits = run.end_is_trusted(&judge.settings) && run.end <= deadline;
        (!waits).then_some((deadline, expired, table))
    })
}

/// How near the nearest deadline is: 0 before it is time to begin, and then, up to 1, how much of the time to it is over.
/// Tables that a job has taken count like the others: what holds them presses as their deadline does.
pub fn pressure(facts: &Facts, judge: &Judge, goals: &Goals) -> f64 {
    let runs = facts.runs.iter().map(|run| run.as_ref());
    let tables = with_deadlines(runs, judge, goals);
    let Some((deadline, expired, _)) = tables.min_by_key(|&(deadline, ..)| deadline) else {
        return 0.0;
    };
    if begin_by(expired, deadline) > judge.now {
        return 0.0;
    }
    let span = deadline.since(expired).max(1);
    (judge.now.since(expired) as f64 / span as f64).min(1.0)
}

/// When tables are rewritten for their deadline: in the last quarter of the time to it, so that it can take as long, and
/// most runs have ended by themselves.
fn begin_by(expired: Timestamp, deadline: Timestamp) -> Timestamp {
    deadline.before(deadline.since(expired) / 4)
}

/// When the memtable that holds it is flushed for an item that expired at `expiry`: when half of the time to its deadline
/// is over.
pub fn start_by(expiry: Timestamp, census: &Census, judge: &Judge, goals: &Goals) -> Timestamp {
    expiry.after(deadline(expiry, census, judge, goals).since(expiry) / 2)
}

fn few_runs(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Option<Rewrite> {
    let of = facts.runs.len();
    if of <= goals.max_runs {
        return None;
    }
    let (each, group) = cheapest(facts, busy, judge)?;
    let price = each as u64;
    Some(merge(&group, goals, Why::FewRuns { of, price }))
}

/// The same with fewer runs, if scans have paid for it.
fn paid_by_scans(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Option<Rewrite> {
    if goals.paid_by_scans < LEAST_PRICE {
        return None;
    }
    let (of, (each, group)) = (facts.runs.len(), cheapest(facts, busy, judge)?);
    let price = LEAST_PRICE + each as u64;
    // Keys that ascend with time would be rewritten for a seek.
    let overlaps = |run: &RunFacts| {
        let mut others = group.iter().filter(|other| other.id != run.id);
        others.any(|other| !are_apart(run, other))
    };
    (price <= goals.paid_by_scans && group.iter().all(|run| overlaps(run)))
        .then(|| merge(&group, goals, Why::Scans { of, price }))
}

/// The neighbours in `end` that cost least for each run less, and what that is.
fn cheapest<'a>(
    facts: &'a Facts,
    busy: &'a BTreeSet<TableId>,
    judge: &Judge,
) -> Option<(f64, Vec<&'a RunFacts>)> {
    let mut by_end: Vec<&RunFacts> = free_runs(facts, busy).collect();
    by_end.sort_by_key(|run| (run.end, run.bytes, run.id));
    let fixed = facts.bytes() as f64 / JOB_SHARE;
    let mut best: Option<(f64, &[&RunFacts])> = None;
    for start in 0..by_end.len() {
        for len in 2..=FAN.min(by_end.len() - start) {
            let group = &by_end[start..start + len];
            // What never ends is not rewritten for the sake of what does.
            if (group[0].end == Timestamp::MAX) != (group[len - 1].end == Timestamp::MAX) {
                continue;
            }
            let each = (price(group, judge) + fixed) / (len - 1) as f64;
            if best.is_none_or(|(least, _)| each < least) {
                best = Some((each, group));
            }
        }
    }
    best.map(|(each, group)| (each, group.to_vec()))
}

/// A merge for the sake of fewer runs.
fn merge(group: &[&RunFacts], goals: &Goals, why: Why) -> Rewrite {
    let bytes: u64 = group.iter().map(|run| run.bytes).sum();
    let young = bytes <= YOUNG * goals.memtable_bytes;
    Rewrite {
        tables: all_tables(group),
        cut: false,
        urgency: if young { Urgency::Young } else { Urgency::Deep },
        why,
    }
}

/// What merging these costs, in bytes rewritten.
fn price(group: &[&RunFacts], judge: &Judge) -> f64 {
    let end = group.last().expect("a group has runs").end;
    let wait = end.since(judge.now).max(1) as f64;
    let held = |run: &RunFacts| {
        let hold = if ends_at_once(run, judge) {
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

fn ends_at_once(run: &RunFacts, judge: &Judge) -> bool {
    let (census, settings) = (&run.census, &judge.settings);
    census.first_expiry(settings).is_some_and(|first| {
        let span = census.last_expiry(settings).since(first);
        span < census.longest_life(settings) / SUDDEN_SHARE
    })
}

fn little_garbage(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
) -> Option<Rewrite> {
    let total: u64 = facts.runs.iter().map(|run| run.census.total().bytes).sum();
    let lazy = 1.0 - goals.eager;
    let enough = GARBAGE_SHARE * lazy * total as f64;
    let enough_expired = enough.max(GARBAGE_OF_MEMTABLE * lazy * goals.memtable_bytes as f64);
    let expired = most_expired(facts, busy, judge, goals, enough_expired);
    let superseded = most_superseded(facts, snapshots, busy, judge, enough);
    let best = expired.into_iter().chain(superseded);
    best.max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, rewrite)| rewrite)
}

/// The run with the most expired bytes per live byte, each for as long as it would stay, but for those of its tables in
/// which next to nothing is dead.
fn most_expired(
    facts: &Facts,
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    goals: &Goals,
    enough: f64,
) -> Option<(f64, Rewrite)> {
    let all: u64 = facts
        .runs
        .iter()
        .map(|run| expired_in_run(run, judge))
        .sum();
    if all as f64 <= enough {
        return None;
    }
    let mut best: Option<(f64, Rewrite)> = None;
    for run in free_runs(facts, busy) {
        // What is rewritten shortly before it ends by itself is had for that time alone.
        let waits = match run.end_is_trusted(&judge.settings) {
            true => run.end.since(judge.now) as f64,
            false => f64::INFINITY,
        };
        let longest = run.census.longest_life(&judge.settings) as f64;
        let had_for = (waits / (WAIT_SHARE * longest)).min(1.0);
        let share = |table: &TableFacts| {
            let expired = expired_in_table(&table.statistics, judge);
            (
                expired,
                table
                    .statistics
                    .census
                    .total()
                    .bytes
                    .saturating_sub(expired),
            )
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
        let worth = had_for * dead as f64 / live.max(1) as f64;
        if worth > worth_of_garbage(run, judge, goals)
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

/// The expired bytes per live byte from which on a run is rewritten: fewer when its garbage is old, and when there is
/// nothing else to do.
fn worth_of_garbage(run: &RunFacts, judge: &Judge, goals: &Goals) -> f64 {
    let age = oldest_dead_in_run(run, judge).map_or(0.0, |expired| {
        let span = deadline(expired, &run.census, judge, goals).since(expired);
        (judge.now.since(expired) as f64 / span.max(1) as f64).min(1.0)
    });
    EXPIRED_WORTH - (EXPIRED_WORTH - LEAST_WORTH) * age.max(goals.eager)
}

/// The k youngest runs with the most superseded bytes per surviving byte, by the coordinated sample. Only what a merge of
/// them would really free is counted: no open snapshot needs it, and what is dead has nothing left to hide elsewhere.
fn most_superseded(
    facts: &Facts,
    snapshots: &[Seq],
    busy: &BTreeSet<TableId>,
    judge: &Judge,
    enough: f64,
) -> Option<(f64, Rewrite)> {
    let sample = Sample::of(facts);
    // What is older than a busy run is left to the next time.
    let runs: Vec<&RunFacts> = facts
        .runs
        .iter()
        .map(|run| run.as_ref())
        .take_while(|run| !is_busy(run, busy))
        .collect();
    let mut records: Vec<(usize, &Sampled)> = vec![];
    for (at, run) in runs.iter().enumerate() {
        sample.each_in(run, |record| records.push((at, record)));
    }
    records.sort_unstable_by_key(|(_, record)| (record.hash, Reverse(record.header.seq)));
    let mut freed = vec![0.0; runs.len()];
    let mut bytes = vec![0.0; runs.len()];
    for versions in records.chunk_by(|a, b| a.1.hash == b.1.hash) {
        let oldest = versions[versions.len() - 1].1.header.seq;
        for (nth, &(at, record)) in versions.iter().enumerate() {
            let (seq, weight) = (record.header.seq, record.weight as f64 * sample.scale);
            bytes[at] += weight;
            // A merge frees it when it takes in the newer version, or all that the dead one hides.
            let with = match nth.checked_sub(1).map(|newer| versions[newer]) {
                Some((newer, by)) if !seen_between(snapshots, seq, by.header.seq) => newer.max(at),
                _ if judge.dead(&record.header) && !seen_between(snapshots, oldest, seq) => {
                    let places = versions[nth..].iter().map(|version| version.0);
                    places.max().unwrap_or(at)
                }
                _ => continue,
            };
            freed[with] += weight;
        }
    }
    let (mut best, mut all_bytes, mut all_freed) = (None::<(f64, usize)>, 0.0, 0.0);
    for at in 0..runs.len() {
        all_bytes += bytes[at];
        all_freed += freed[at];
        let worth = all_freed / f64::max(all_bytes - all_freed, 1.0);
        if at > 0
            && all_freed > enough
            && worth > SUPERSEDED_WORTH
            && best.is_none_or(|(most, _)| worth > most)
        {
            best = Some((worth, at));
        }
    }
    let (worth, at) = best?;
    let rewrite = Rewrite {
        tables: all_tables(&runs[..=at]),
        cut: true,
        urgency: Urgency::Deep,
        why: Why::Superseded { worth },
    };
    Some((worth, rewrite))
}

/// An open snapshot sees what `from` wrote and not what `to` wrote.
fn seen_between(snapshots: &[Seq], from: Seq, to: Seq) -> bool {
    let at = snapshots.partition_point(|snapshot| *snapshot < from);
    snapshots.get(at).is_some_and(|snapshot| *snapshot < to)
}

/// When the first run ends or falls due, if nobody writes and the settings stay.
fn next_due(facts: &Facts, judge: &Judge, goals: &Goals) -> Option<Timestamp> {
    let settings = &judge.settings;
    let moments = facts.runs.iter().flat_map(|run| {
        let trusted = run.end_is_trusted(settings) && run.end != Timestamp::MAX;
        let end = trusted.then_some(run.end);
        let all_dead =
            Some(run.census.last_expiry(settings)).filter(|last| *last != Timestamp::MAX);
        let starts = run.tables.iter().filter_map(|table| {
            let census = &table.statistics.census;
            let expiry = census.first_expiry(settings)?;
            Some(begin_by(expiry, deadline(expiry, census, judge, goals)))
        });
        [end, all_dead].into_iter().flatten().chain(starts)
    });
    moments.filter(|moment| *moment > judge.now).min()
}

/// Everything that reclaiming and merging could gain: one job over all runs, or nothing.
pub fn pick_all(facts: &Facts, snapshots: &[Seq], judge: &Judge, goals: &Goals) -> Choice {
    let ended = ended(facts, snapshots, &BTreeSet::new(), judge);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    let never = facts
        .runs
        .iter()
        .filter(|run| run.end == Timestamp::MAX)
        .count();
    let garbage = facts.runs.iter().any(|run| run.census.any_dead(judge));
    let slot = |run: &RunFacts| slot_end(run.end, judge.now);
    let overlap = facts.runs.iter().enumerate().any(|(at, run)| {
        let mut others = facts.runs[at + 1..].iter();
        others.any(|other| {
            run.overlaps(other) && (slot(run) == slot(other) || interleave(run, other))
        })
    });
    let many = facts.runs.len() > goals.max_runs;
    if facts.runs.is_empty()
        || (!many && never <= 1 && !garbage && !overlap && facts.range_deletes.is_empty())
    {
        return Choice::Rest { until: None };
    }
    let runs: Vec<&RunFacts> = facts.runs.iter().map(|run| run.as_ref()).collect();
    Choice::Merge(Rewrite {
        tables: all_tables(&runs),
        cut: true,
        urgency: Urgency::Deep,
        why: Why::Asked,
    })
}

/// Two runs may hold versions of the same key: judged by their samples, exact where these are complete.
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
