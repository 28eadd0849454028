//! Which job comes next: pure, from what the runs say of themselves without being read.
//!
//! In this order:
//!
//! 1. what has *ended* is dropped, table by table: the run's end has passed and can be trusted; or all that the table
//!    holds is dead, and so is every older table that overlaps it, so that it hides nothing; or a range delete covers it
//!    whole, and no snapshot is older than that;
//! 2. more than `MAX_RANGE_DELETES` are brought down, by rewriting the runs that the oldest one covers in part; then
//!    *on time*: a run whose oldest unreclaimed expiry nears its deadline is rewritten, cut into slots;
//! 3. *few runs*: above `max_runs`, 2 to 8 runs that are neighbours in `end` become one, where (runs saved) / (bytes
//!    rewritten, and held past their own end) is highest;
//! 4. *little garbage*: above a tenth of the container, the run with the most expired bytes per live byte, or the k
//!    youngest runs with the most superseded bytes per surviving byte, are rewritten, cut into slots.
//!
//! Prices: rewriting a byte costs one; holding it past its own end costs the share of the wait, `HOLD` times; merging a
//! dated run into one that never ends costs `HOLD_NEVER` more a byte. From a simulation of the whole policy, which found
//! neighbours merged without these prices to take 1.7 times the space.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::expiry::{Census, Judge};
use crate::record::Header;
use crate::table::Table;
use crate::types::{Seq, TableId, Timestamp};
use crate::version::{Run, RunId, Version};

/// The price of holding a byte for the whole wait past its own end, in bytes rewritten.
const HOLD: f64 = 2.0;
/// The same for a dated byte that is put among those that never end.
const HOLD_NEVER: f64 = 3.0;
/// The most runs that one merge takes for the sake of fewer runs.
const FAN: usize = 8;
/// Garbage below this share of a container is let be.
const GARBAGE_SHARE: f64 = 0.10;
/// The least expired bytes per live byte for which a run is rewritten.
const EXPIRED_WORTH: f64 = 0.5;
/// The least superseded bytes per surviving byte for which runs are merged.
const SUPERSEDED_WORTH: f64 = 0.7;

/// What the policy is given besides the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goals {
    /// How many runs a container settles at.
    pub max_runs: usize,
    /// See `Options::reclaim_within`, in milliseconds.
    pub reclaim_within: u64,
    /// See `Options::reclaim_strict`.
    pub reclaim_strict: bool,
}

/// Why a job is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An expiry nears its deadline.
    OnTime,
    /// There are too many runs.
    FewRuns,
    /// Expired bytes.
    Expired,
    /// Superseded bytes.
    Superseded,
    /// There are too many range deletes.
    RangeDeletes,
    /// Somebody asked for everything to be done.
    Asked,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// These tables matter no more: the catalogue forgets them.
    Drop(Vec<TableId>),
    /// These runs are read and written anew.
    Merge {
        /// Which.
        runs: Vec<RunId>,
        /// Whether the output is cut into slots; otherwise it is one run.
        cut: bool,
        /// For those who ask.
        why: Why,
    },
    /// Nothing now.
    Rest {
        /// When something falls due if nobody writes, as far as the runs can tell.
        until: Option<Timestamp>,
    },
}

/// When the oldest dead item of these expired; `None` when none is dead. Items that a floor holds down count from the
/// change that set it; `floor_seen` is the number of the last such change that these were already cleared of. A memtable
/// was cleared of none: then, with writes on both sides of the change in it, this may speak of one that is not dead.
pub fn oldest_dead(census: &Census, floor_seen: Seq, judge: &Judge) -> Option<Timestamp> {
    let settings = &judge.settings;
    let by_clock = census
        .first_expiry(settings)
        .filter(|expiry| *expiry <= judge.now);
    let by_floor = floor_seen < settings.floor_seq
        && census.seq_min < settings.floor_seq
        && ((census.inheriting.tally.count > 0 && census.inheriting.min < settings.inherit_floor)
            || (census.overriding.tally.count > 0
                && census.overriding.min < settings.override_floor));
    by_clock
        .into_iter()
        .chain(by_floor.then(|| settings.override_floor.before(1)))
        .min()
}

/// The same of a run; its tables were cleared of what the floors held down when they were written.
pub fn oldest_dead_in_run(run: &Run, judge: &Judge) -> Option<Timestamp> {
    let tables = run.shared.iter();
    tables
        .filter_map(|table| oldest_dead(table.census(), table.settings().floor_seq, judge))
        .min()
}

/// When the bytes of an item that expired at `expiry` beside these are to be gone.
fn deadline(expiry: Timestamp, census: &Census, judge: &Judge, goals: &Goals) -> Timestamp {
    let eighth = if goals.reclaim_strict {
        0
    } else {
        census.longest_life(&judge.settings) / 8
    };
    expiry.after(goals.reclaim_within.max(eighth))
}

/// About how many bytes of a run are expired, by the samples of its tables: exact for a table whose sample is all of it,
/// within a few hundredths of the table for others.
pub fn expired_in_run(run: &Run, judge: &Judge) -> u64 {
    run.shared
        .iter()
        .map(|table| expired_in_table(table, judge))
        .sum()
}

fn expired_in_table(table: &Table, judge: &Judge) -> u64 {
    let census = table.census();
    if !census.any_dead(judge) {
        return 0;
    }
    let puts = census.total().bytes - census.tombstones.bytes;
    if census.all_dead(judge) {
        return puts;
    }
    let (mut sampled, mut expired) = (0u64, 0u64);
    for record in table
        .sample()
        .records
        .iter()
        .filter(|record| !record.header.is_tombstone())
    {
        sampled += record.weight;
        expired += if judge.dead(&record.header) {
            record.weight
        } else {
            0
        };
    }
    (puts as f64 * expired as f64 / sampled.max(1) as f64) as u64
}

/// The next job for one container. `snapshots` are the numbers of the open ones, ascending.
pub fn pick(version: &Version, snapshots: &[Seq], judge: &Judge, goals: &Goals) -> Choice {
    let ended = ended(version, snapshots, judge);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    few_range_deletes(version, snapshots)
        .or_else(|| on_time(version, judge, goals))
        .or_else(|| few_runs(version, judge, goals))
        .or_else(|| little_garbage(version, snapshots, judge))
        .unwrap_or_else(|| Choice::Rest {
            until: next_due(version, judge, goals),
        })
}

/// The tables that matter no more.
pub fn ended(version: &Version, snapshots: &[Seq], judge: &Judge) -> Vec<TableId> {
    let tables = || {
        version
            .runs
            .iter()
            .flat_map(|run| run.shared.iter().map(move |table| (run, table)))
    };
    // Few tables are dead as a rule, and only these are compared with the others.
    let alive: Vec<&Arc<Table>> = tables()
        .map(|(_, table)| table)
        .filter(|table| !table.census().all_dead(judge))
        .collect();
    let hides = |table: &Table| {
        alive.iter().any(|other| {
            other.census().seq_min < table.census().seq_max
                && other.first_key() <= table.last_key()
                && table.first_key() <= other.last_key()
        })
    };
    let is_covered = |table: &Table| {
        let (oldest, newest) = (table.census().seq_min, table.census().seq_max);
        version.range_deletes.iter().any(|range| {
            range.seq > newest
                && range.range().covers(table.first_key(), table.last_key())
                && !snapshots
                    .iter()
                    .any(|snapshot| (oldest..range.seq).contains(snapshot))
        })
    };
    let ended = tables().filter(|(run, table)| {
        run.has_ended(judge)
            || is_covered(table)
            || (table.census().all_dead(judge) && !hides(table))
    });
    ended.map(|(_, table)| table.id()).collect()
}

/// Above so many range deletes, looking through them for every key costs more than rewriting what they cover.
const MAX_RANGE_DELETES: usize = 1_000;

fn few_range_deletes(version: &Version, snapshots: &[Seq]) -> Option<Choice> {
    if version.range_deletes.len() <= MAX_RANGE_DELETES {
        return None;
    }
    let oldest_snapshot = snapshots.first().copied().unwrap_or(Seq::MAX);
    let range = version
        .range_deletes
        .iter()
        .find(|range| range.seq <= oldest_snapshot)?;
    let key_range = range.range();
    let covered = version.runs.iter().filter(|run| {
        run.applied < range.seq
            && run.census.seq_min < range.seq
            && key_range.overlaps(run.first_key(), run.last_key())
    });
    let runs: Vec<RunId> = covered.map(|run| run.id).collect();
    (!runs.is_empty()).then_some(Choice::Merge {
        runs,
        cut: true,
        why: Why::RangeDeletes,
    })
}

fn on_time(version: &Version, judge: &Judge, goals: &Goals) -> Option<Choice> {
    let due = version.runs.iter().filter_map(|run| {
        let expiry = oldest_dead_in_run(run, judge)?;
        let deadline = deadline(expiry, &run.census, judge, goals);
        // A run that ends before its deadline is dropped for nothing then.
        let waits = run.end_is_trusted(&judge.settings) && run.end <= deadline;
        let is_time = start_by(expiry, &run.census, judge, goals) <= judge.now;
        (is_time && !waits).then_some((deadline, run.id))
    });
    let (_, run) = due.min()?;
    Some(Choice::Merge {
        runs: vec![run],
        cut: true,
        why: Why::OnTime,
    })
}

/// When the work begins for which the item that expired at `expiry` is due: when half of the time to its deadline is
/// over, so that it can take as long.
pub fn start_by(expiry: Timestamp, census: &Census, judge: &Judge, goals: &Goals) -> Timestamp {
    expiry.after(deadline(expiry, census, judge, goals).since(expiry) / 2)
}

fn few_runs(version: &Version, judge: &Judge, goals: &Goals) -> Option<Choice> {
    if version.runs.len() <= goals.max_runs {
        return None;
    }
    let mut by_end: Vec<&Run> = version.runs.iter().map(|run| run.as_ref()).collect();
    by_end.sort_by_key(|run| (run.end, run.id));
    let fixed = version.bytes() as f64 / 50.0;
    let mut best: Option<(f64, &[&Run])> = None;
    for start in 0..by_end.len() {
        for len in 2..=FAN.min(by_end.len() - start) {
            let group = &by_end[start..start + len];
            let worth = (len - 1) as f64 / (price(group, judge.now) + fixed);
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, group));
            }
        }
    }
    let (_, group) = best?;
    Some(Choice::Merge {
        runs: group.iter().map(|run| run.id).collect(),
        cut: false,
        why: Why::FewRuns,
    })
}

/// What merging these costs, in bytes rewritten.
fn price(group: &[&Run], now: Timestamp) -> f64 {
    let end = group.last().expect("a group has runs").end;
    let held = |run: &Run| match (end == Timestamp::MAX, run.end == Timestamp::MAX) {
        (true, true) => 0.0,
        (true, false) => HOLD_NEVER,
        _ => HOLD * end.since(run.end) as f64 / end.since(now).max(1) as f64,
    };
    group
        .iter()
        .map(|run| run.bytes as f64 * (1.0 + held(run)))
        .sum()
}

fn little_garbage(version: &Version, snapshots: &[Seq], judge: &Judge) -> Option<Choice> {
    let total: u64 = version
        .runs
        .iter()
        .map(|run| run.census.total().bytes)
        .sum();
    let enough = GARBAGE_SHARE * total as f64;
    let expired: Vec<u64> = version
        .runs
        .iter()
        .map(|run| expired_in_run(run, judge))
        .collect();
    let mut best: Option<(f64, Choice)> = None;
    if expired.iter().sum::<u64>() as f64 > enough {
        for (run, &dead) in version.runs.iter().zip(&expired) {
            let worth = dead as f64 / (run.census.total().bytes.saturating_sub(dead)).max(1) as f64;
            // A run that is about to end by itself is cheaper to wait for.
            let ends_soon = run.end_is_trusted(&judge.settings)
                && run.end.since(judge.now) < run.census.longest_life(&judge.settings) / 16;
            if worth > EXPIRED_WORTH
                && !ends_soon
                && best.as_ref().is_none_or(|(most, _)| worth > *most)
            {
                let choice = Choice::Merge {
                    runs: vec![run.id],
                    cut: true,
                    why: Why::Expired,
                };
                best = Some((worth, choice));
            }
        }
    }
    if let Some((worth, runs)) = most_superseded(version, snapshots, judge, enough)
        && best.as_ref().is_none_or(|(most, _)| worth > *most)
    {
        best = Some((
            worth,
            Choice::Merge {
                runs,
                cut: true,
                why: Why::Superseded,
            },
        ));
    }
    best.map(|(_, choice)| choice)
}

/// The k youngest runs with the most superseded bytes per surviving byte, by the coordinated sample. Only what a merge of
/// them would really free is counted: no open snapshot needs it, and what is dead has nothing left to hide elsewhere.
fn most_superseded(
    version: &Version,
    snapshots: &[Seq],
    judge: &Judge,
    enough: f64,
) -> Option<(f64, Vec<RunId>)> {
    let sample = Sample::of(version);
    let mut oldest: HashMap<u64, usize> = HashMap::new();
    for (at, run) in version.runs.iter().enumerate() {
        sample.each_in(run, |record| {
            oldest.insert(record.hash, at);
        });
    }
    let mut newest: HashMap<u64, Seq> = HashMap::new();
    let mut freed = vec![0.0; version.runs.len()];
    let mut bytes = vec![0.0; version.runs.len()];
    for (at, run) in version.runs.iter().enumerate() {
        sample.each_in(run, |record| {
            let weight = record.weight as f64 * sample.scale;
            bytes[at] += weight;
            let (header, newest) = (&record.header, newest.entry(record.hash).or_default());
            if header.seq < *newest {
                let needed = seen_between(snapshots, header.seq, *newest);
                freed[at] += if needed { 0.0 } else { weight };
            } else {
                *newest = header.seq;
                // Under an older snapshot it may have to go on hiding what is kept for that.
                let hides = snapshots.first().is_some_and(|oldest| *oldest < header.seq);
                if judge.dead(header) && !hides {
                    freed[oldest[&record.hash]] += weight;
                }
            }
        });
    }
    let (mut best, mut all_bytes, mut all_freed) = (None::<(f64, usize)>, 0.0, 0.0);
    for at in 0..version.runs.len() {
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
    Some((
        worth,
        version.runs[..=at].iter().map(|run| run.id).collect(),
    ))
}

/// An open snapshot sees what `from` wrote and not what `to` wrote.
fn seen_between(snapshots: &[Seq], from: Seq, to: Seq) -> bool {
    let at = snapshots.partition_point(|snapshot| *snapshot < from);
    snapshots.get(at).is_some_and(|snapshot| *snapshot < to)
}

/// The coordinated sample of a container: of every table, the records whose key hash lies below one threshold, so that
/// all versions of a key are in it or none.
pub struct Sample {
    below: u64,
    /// How many records one sampled record stands for.
    pub scale: f64,
}

impl Sample {
    /// The threshold that all tables of a version can answer for.
    pub fn of(version: &Version) -> Sample {
        let tables = version.runs.iter().flat_map(|run| run.shared.iter());
        let below = tables
            .map(|table| table.sample().threshold)
            .min()
            .unwrap_or(u64::MAX);
        let scale = if below == u64::MAX {
            1.0
        } else {
            u64::MAX as f64 / below.max(1) as f64
        };
        Sample { below, scale }
    }

    /// Every sampled record of a run, newest version of a key first.
    pub fn each_in(&self, run: &Run, mut visit: impl FnMut(&crate::table::Sampled)) {
        let entries = run.shared.iter().flat_map(|table| &table.sample().records);
        entries
            .filter(|entry| self.holds(entry.hash))
            .for_each(&mut visit);
    }

    /// Records of a key with this hash are in the sample.
    pub fn holds(&self, hash: u64) -> bool {
        hash < self.below || self.below == u64::MAX
    }
}

/// Counts what can be read, from records of the coordinated sample in any order. A table's sample holds no keys: of range
/// deletes, only those that cover a whole table are seen in it.
pub struct Estimator<'a> {
    sample: &'a Sample,
    judge: &'a Judge,
    newest: HashMap<u64, Newest>,
    superseded_bytes: u64,
}

struct Newest {
    seq: Seq,
    weight: u64,
    live: bool,
}

/// Estimates of a container's stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Items that can be read.
    pub live_items: f64,
    /// Their bytes.
    pub live_bytes: f64,
    /// Bytes of versions that a newer one hides, and of tombstones.
    pub superseded_bytes: f64,
}

impl<'a> Estimator<'a> {
    /// Nothing counted yet.
    pub fn new(sample: &'a Sample, judge: &'a Judge) -> Self {
        Estimator {
            sample,
            judge,
            newest: HashMap::new(),
            superseded_bytes: 0,
        }
    }

    /// Counts a record, if it belongs to the sample; what is older than `covered_below` is deleted by range.
    pub fn add(&mut self, hash: u64, header: &Header, weight: u64, covered_below: Seq) {
        if !self.sample.holds(hash) {
            return;
        }
        let live = !self.judge.dead(header) && header.seq >= covered_below;
        if header.is_tombstone() {
            self.superseded_bytes += weight;
        }
        let record = Newest {
            seq: header.seq,
            weight,
            live,
        };
        let older = match self.newest.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(record);
                return;
            }
            Entry::Occupied(mut entry) if header.seq > entry.get().seq => entry.insert(record),
            Entry::Occupied(_) => record,
        };
        if older.live {
            self.superseded_bytes += older.weight;
        }
    }

    /// Counts a table; records in it that are older than `covered_below` are deleted by range.
    pub fn add_table(&mut self, table: &Table, covered_below: Seq) {
        for record in &table.sample().records {
            self.add(record.hash, &record.header, record.weight, covered_below);
        }
    }

    /// The sum, for the whole container.
    pub fn finish(self) -> Estimate {
        let live = self.newest.values().filter(|newest| newest.live);
        let (items, bytes) = live.fold((0u64, 0u64), |sum, newest| {
            (sum.0 + 1, sum.1 + newest.weight)
        });
        let scaled = |count: u64| count as f64 * self.sample.scale;
        Estimate {
            live_items: scaled(items),
            live_bytes: scaled(bytes),
            superseded_bytes: scaled(self.superseded_bytes),
        }
    }
}

/// When the first run ends or falls due, if nobody writes and the settings stay.
fn next_due(version: &Version, judge: &Judge, goals: &Goals) -> Option<Timestamp> {
    let settings = &judge.settings;
    let moments = version.runs.iter().flat_map(|run| {
        let trusted = run.end_is_trusted(settings) && run.end != Timestamp::MAX;
        let end = trusted.then_some(run.end);
        let all_dead =
            Some(run.census.last_expiry(settings)).filter(|last| *last != Timestamp::MAX);
        let expiry = run.census.first_expiry(settings);
        let start = expiry.map(|expiry| start_by(expiry, &run.census, judge, goals));
        [end, all_dead, start].into_iter().flatten()
    });
    moments.filter(|moment| *moment > judge.now).min()
}

/// Everything that reclaiming and merging could gain: one job over all runs, or nothing.
pub fn pick_all(version: &Version, snapshots: &[Seq], judge: &Judge) -> Choice {
    let ended = ended(version, snapshots, judge);
    if !ended.is_empty() {
        return Choice::Drop(ended);
    }
    let never = version
        .runs
        .iter()
        .filter(|run| run.end == Timestamp::MAX)
        .count();
    let garbage = version.runs.iter().any(|run| run.census.any_dead(judge));
    let overlap = version.runs.iter().enumerate().any(|(at, run)| {
        version.runs[at + 1..]
            .iter()
            .any(|other| run.overlaps(other) && interleave(run, other))
    });
    if version.runs.is_empty()
        || (never <= 1 && !garbage && !overlap && version.range_deletes.is_empty())
    {
        return Choice::Rest { until: None };
    }
    Choice::Merge {
        runs: version.runs.iter().map(|run| run.id).collect(),
        cut: true,
        why: Why::Asked,
    }
}

/// Two runs may hold versions of the same key: judged by their samples, exact where these are complete.
fn interleave(a: &Run, b: &Run) -> bool {
    let hashes: std::collections::HashSet<u64> = a
        .shared
        .iter()
        .flat_map(|table| &table.sample().records)
        .map(|entry| entry.hash)
        .collect();
    b.shared
        .iter()
        .flat_map(|table| &table.sample().records)
        .any(|entry| hashes.contains(&entry.hash))
}
