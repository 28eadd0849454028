//! Estimates of expired, superseded and live bytes, from the statistics of tables and memtables alone: the two-class
//! census, which is right after every change of the default, and the coordinated sample, which shows which records hide
//! which.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::base::Seq;
use crate::base::hash::HashedMap;
use crate::base::record::Header;
use crate::catalog::{Facts, RunFacts};
use crate::compact::answer::Answer;
use crate::expiry::{Census, ExpiryView, Tally, is_oversized};
use crate::mem::{Era, Memtable, Newest, RangeDeletes};
use crate::table::{Sampled, Statistics};

/// An estimate of the expired bytes of a run; see [`expired_in_table`].
pub fn expired_in_run(run: &RunFacts, view: &ExpiryView) -> u64 {
    let tables = run.tables.iter();
    tables
        .map(|table| expired_in_table(&table.statistics, view))
        .sum()
}

/// An estimate of the expired bytes of a table: exact if its sample is complete, otherwise within a small share of its
/// bytes, whatever the sizes of values and the lifetimes are.
pub fn expired_in_table(statistics: &Statistics, view: &ExpiryView) -> u64 {
    statistics.gone(view).bytes
}

/// The coordinated sample of a container: the records of every table whose key hash is below one threshold, so that it
/// has all versions of a key or none.
pub struct Sample {
    below: u64,
    /// How many records one sampled record stands for.
    pub scale: f64,
}

impl Sample {
    /// The sample up to the lowest threshold of the version's tables.
    pub fn of(facts: &Facts) -> Sample {
        let tables = facts.tables();
        let below = tables
            .map(|(_, table)| table.statistics.sample.threshold)
            .min()
            .unwrap_or(u64::MAX);
        let scale = if below == u64::MAX {
            1.0
        } else {
            u64::MAX as f64 / below.max(1) as f64
        };
        Sample { below, scale }
    }

    /// Visits every sampled record of a run, newest version of a key first.
    pub fn each_in<'a>(&self, run: &'a RunFacts, mut visit: impl FnMut(&'a Sampled)) {
        let tables = run.tables.iter();
        let entries = tables.flat_map(|table| &table.statistics.sample.records);
        entries
            .filter(|entry| self.holds(entry.hash))
            .for_each(&mut visit);
    }

    /// Whether records of a key with this hash are in the sample.
    pub fn holds(&self, hash: u64) -> bool {
        hash < self.below || self.below == u64::MAX
    }
}

/// Stored bytes in four disjoint classes: tombstones; expired; superseded, which are not expired, but hidden by a newer
/// version or a range delete; live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// All records: exact.
    pub stored: Tally,
    /// Tombstones: exact.
    pub tombstones: Tally,
    /// Expired, whether or not a newer record hides them.
    pub expired: Tally,
    /// Puts that are not expired, and that only snapshots may see.
    pub superseded: Tally,
    /// Readable items.
    pub live: Tally,
}

/// Above this many sampled records, each part uses fewer, in proportion to its bytes, so that an estimate takes some
/// milliseconds.
const SAMPLED_MOST: u64 = 32_768;
/// But each part uses at least this many.
const SAMPLED_LEAST: u64 = 256;

/// Estimates a container, from the statistics of its memtables and runs.
///
/// Stored records and tombstones are counted; the expired ones follow from the times of the puts of each part. So only
/// one question is left: which of the puts that are not expired are hidden? It is answered one by one for oversized
/// puts, and by the coordinated sample for the share of the others.
///
/// There may be several *views*, of which each has expired all that the one before has, and more. The question is
/// answered apart for the puts that expire between two views, so that the difference of two estimates, the bytes that
/// end in a day, is as right as each of them. How many end is known; the sample, which may have too many that end in
/// that day, only tells the visible share of them.
pub struct Estimator<'a> {
    views: &'a [ExpiryView],
    ranges: &'a [Arc<RangeDeletes>],
    parts: Vec<EstimatePart<'a>>,
}

/// A span of sequence numbers of a memtable, or a run.
struct EstimatePart<'a> {
    /// In each view.
    counted: Vec<Estimate>,
    /// Puts that are not expired in each view and that the sample represents.
    asked: Vec<Tally>,
    seq_min: Seq,
    seq_max: Seq,
    /// Below this hash the sample is complete.
    threshold: u64,
    sampled: u64,
    source: Source<'a>,
}

enum Source<'a> {
    Memory(&'a Memtable, Vec<Observed>),
    /// Tables, and the sequence number up to which range deletes have been applied to them.
    Run(Vec<&'a Statistics>, Seq),
}

/// A sampled record.
#[derive(Clone, Copy)]
struct Observed {
    hash: u64,
    seq: Seq,
    weight: u64,
    /// In so many views it is a put that is not expired.
    asked: usize,
    /// Whether it is so in any, and not covered by a range delete.
    shows: bool,
    oversized: bool,
}

impl<'a> Estimator<'a> {
    /// An empty estimate. `ranges`: all range deletes in force.
    pub fn new(views: &'a [ExpiryView], ranges: &'a [Arc<RangeDeletes>]) -> Self {
        Estimator {
            views,
            ranges,
            parts: vec![],
        }
    }

    /// Adds a memtable.
    pub fn add_memtable(&mut self, memtable: &'a Memtable) {
        let parts = memtable.summary(|summary| {
            let eras = summary.eras();
            let parts = eras.map(|era| self.part_of_memtable(memtable, era));
            parts.collect::<Vec<_>>()
        });
        self.parts.extend(parts);
    }

    fn part_of_memtable(&self, memtable: &'a Memtable, era: &Era) -> EstimatePart<'a> {
        let census = era.census();
        let observed: Vec<Observed> = era
            .sample()
            .map(|(hash, newest)| self.observe_newest(hash, newest, census))
            .collect();
        let hidden: Vec<Tally> = self.views.iter().map(|view| era.hidden(view)).collect();
        let gone = |nth: usize| match era.threshold() {
            // All keys are in the sample. The histograms do not tell on which side of a change of the default a write of
            // the same millisecond is.
            u64::MAX => {
                let mut kept = hidden[nth];
                for newest in observed.iter().filter(|newest| newest.asked > nth) {
                    let (count, bytes) = (1, newest.weight);
                    kept.add(Tally { count, bytes });
                }
                census.total().less(census.tombstones).less(kept)
            }
            _ => era.gone(&self.views[nth]),
        };
        let views = 0..self.views.len();
        let counted: Vec<_> = views.map(|nth| Estimate::of(census, gone(nth))).collect();
        let asked = counted.iter().zip(&hidden);
        EstimatePart {
            asked: asked
                .map(|(counted, hidden)| counted.live.less(*hidden))
                .collect(),
            counted,
            seq_min: census.seq_min,
            seq_max: census.seq_max,
            threshold: era.threshold(),
            sampled: observed.len() as u64,
            source: Source::Memory(memtable, observed),
        }
    }

    fn observe_newest(&self, hash: u64, newest: &Newest, census: &Census) -> Observed {
        let header = newest.header;
        let is_covered = || {
            let mut ranges = self.ranges.iter();
            ranges.any(|ranges| ranges.covers(newest.key.bytes(), header.seq, Seq::MAX))
        };
        let asked = asked_in(self.views, &header);
        Observed {
            hash,
            seq: header.seq,
            weight: newest.weight,
            asked,
            shows: asked > 0 && !is_covered(),
            oversized: is_oversized(newest.weight, census.total().bytes),
        }
    }

    /// Adds a run, to which range deletes up to `applied` have been applied.
    pub fn add_run(&mut self, tables: impl IntoIterator<Item = &'a Statistics>, applied: Seq) {
        let tables: Vec<&Statistics> = tables.into_iter().collect();
        let mut census = Census::default();
        tables.iter().for_each(|table| census.merge(&table.census));
        let counted = self.views.iter().map(|view| {
            let mut gone = Tally::default();
            tables.iter().for_each(|table| gone.add(table.gone(view)));
            Estimate::of(&census, gone)
        });
        let counted: Vec<Estimate> = counted.collect();
        let thresholds = tables.iter().map(|table| table.sample.threshold);
        let sampled = tables.iter().map(|table| table.sample.records.len() as u64);
        self.parts.push(EstimatePart {
            asked: counted.iter().map(|counted| counted.live).collect(),
            counted,
            seq_min: census.seq_min,
            seq_max: census.seq_max,
            threshold: thresholds.min().unwrap_or(u64::MAX),
            sampled: sampled.sum(),
            source: Source::Run(tables, applied),
        });
    }

    /// The estimate for the whole container, in each view.
    pub fn finish(self) -> Vec<Estimate> {
        let mut sums = vec![Estimate::default(); self.views.len()];
        for part in self.parts() {
            let views = sums.iter_mut().zip(&part);
            views.for_each(|(sum, part)| sum.add(part));
        }
        sums
    }

    /// The estimate for each run that was added, in the order in which they were, in each view.
    pub fn finish_runs(self) -> Vec<Vec<Estimate>> {
        let (parts, estimates) = (self.parts.iter(), self.parts());
        let runs = parts.zip(estimates);
        let runs = runs.filter(|(part, _)| matches!(part.source, Source::Run(..)));
        runs.map(|(_, estimate)| estimate).collect()
    }

    fn parts(&self) -> Vec<Vec<Estimate>> {
        let below: Vec<u64> = (self.parts.iter())
            .map(|part| self.asked_below(part))
            .collect();
        let newest = self.newest(below.iter().copied().max().unwrap_or_default());
        let answers: Vec<Vec<Answer>> = (self.parts.iter().zip(&below))
            .map(|(part, &below)| self.ask(part, below, &newest))
            .collect();
        let all = Answer::sum(answers.iter().flatten());
        let parts = self.parts.iter().zip(&answers);
        parts
            .map(|(part, answers)| part.shown(answers, &all))
            .collect()
    }

    /// The hash below which the sample of a part is used: every part with newer records has complete samples there.
    fn asked_below(&self, part: &EstimatePart<'_>) -> u64 {
        let stored = |part: &EstimatePart<'_>| part.counted[0].stored.bytes as f64;
        let share = stored(part) / self.parts.iter().map(stored).sum::<f64>().max(1.0);
        let most = (SAMPLED_MOST as f64 * share).max(SAMPLED_LEAST as f64);
        let own = match most / part.sampled as f64 {
            part_of_it if part_of_it < 1.0 => (part.threshold as f64 * part_of_it) as u64,
            _ => part.threshold,
        };
        let newer = self
            .parts
            .iter()
            .filter(|other| other.seq_max > part.seq_min);
        newer.map(|other| other.threshold).fold(own, u64::min)
    }

    /// The newest sequence number of every sampled key below a hash, and of every key with an oversized put.
    fn newest(&self, below: u64) -> NewestSeqs {
        let mut newest = NewestSeqs::default();
        for part in &self.parts {
            self.each(part, below, |observed| {
                let seq = newest.entry(observed.hash).or_default();
                *seq = observed.seq.max(*seq);
            });
        }
        // An oversized put may be hidden by any record, of any part.
        let any_oversized = newest.keys().any(|hash| *hash >= below);
        for part in self.parts.iter().filter(|_| any_oversized) {
            self.each(part, u64::MAX, |observed| {
                if let Some(seq) = newest.get_mut(&observed.hash) {
                    *seq = observed.seq.max(*seq);
                }
            });
        }
        newest
    }

    /// The answers for puts that are live in the first view alone, in the first two alone, and so on.
    fn ask(&self, part: &EstimatePart<'_>, below: u64, newest: &NewestSeqs) -> Vec<Answer> {
        let none = Answer::none(below == u64::MAX);
        let mut answers = vec![none; self.views.len()];
        self.each(part, below, |observed| {
            let Some(last) = observed.asked.checked_sub(1) else {
                return;
            };
            let mut shows = observed.shows && newest[&observed.hash] == observed.seq;
            if observed.oversized {
                shows &= !self.is_in_newer_memtable(&observed, part);
                answers[last].count_oversized(observed.weight, shows);
            } else {
                answers[last].count(observed.weight, shows);
            }
        });
        answers
    }

    /// Whether a newer memtable has the key: its sample lacks most keys, but its filter knows them.
    fn is_in_newer_memtable(&self, oversized: &Observed, of: &EstimatePart<'_>) -> bool {
        self.parts
            .iter()
            .any(|part| match (&part.source, &of.source) {
                // Within one memtable nothing of the sample is hidden.
                (Source::Memory(newer, _), Source::Memory(own, _))
                    if std::ptr::eq(*newer, *own) =>
                {
                    false
                }
                (Source::Memory(newer, _), _) => {
                    part.seq_min > oversized.seq && newer.may_contain(oversized.hash)
                }
                (Source::Run(..), _) => false,
            })
    }

    /// Visits the sampled records of a part below a hash, and the oversized ones.
    fn each(&self, part: &EstimatePart<'_>, below: u64, mut visit: impl FnMut(Observed)) {
        match &part.source {
            Source::Memory(_, observed) => {
                let is_below = |hash: u64| hash < below || below == u64::MAX;
                let visited = observed
                    .iter()
                    .filter(|observed| is_below(observed.hash) || observed.oversized);
                visited.copied().for_each(visit);
            }
            Source::Run(tables, applied) => {
                for table in tables {
                    let covers = covers(table, self.ranges, *applied);
                    let bytes = table.census.total().bytes;
                    for record in table.sampled(below) {
                        visit(observe(record, &covers, bytes, self.views));
                    }
                }
            }
        }
    }
}

/// In how many of these views a record is a put that is not expired.
fn asked_in(views: &[ExpiryView], header: &Header) -> usize {
    views.partition_point(|view| !view.dead(header))
}

impl EstimatePart<'_> {
    /// The estimate of the part in each view: of the puts that end between two views, the visible share is that of
    /// their sample.
    fn shown(&self, answers: &[Answer], all: &Answer) -> Vec<Estimate> {
        // A part without sampled records is assumed to be like the others.
        let own = Answer::sum(answers);
        let pooled = if own.asked() > 0 { &own } else { all };
        let (mut live, mut later) = (Tally::default(), Tally::default());
        let mut views: Vec<Estimate> = (0..answers.len())
            .rev()
            .map(|nth| {
                let (answer, asked) = (&answers[nth], self.asked[nth]);
                live.add(answer.shown_of(asked.less(later), pooled));
                later = asked;
                self.counted[nth].showing(live)
            })
            .collect();
        views.reverse();
        views
    }
}

/// Hashes of the keys of all oversized puts in runs. A table written beside them must have its records of these keys in
/// its sample, because they may hide an oversized put.
pub fn oversized(facts: &Facts) -> HashSet<u64> {
    let tables = facts.tables();
    tables
        .flat_map(|(_, table)| table.statistics.oversized().map(|record| record.hash))
        .collect()
}

/// The ranks in a table that range deletes cover, with their sequence numbers: ascending, one list for each source of
/// range deletes.
type Covers = Vec<Vec<(Range<u64>, Seq)>>;

fn covers(table: &Statistics, ranges: &[Arc<RangeDeletes>], applied: Seq) -> Covers {
    let oldest = applied.max(table.census.seq_min);
    let newer = ranges.iter().filter(|ranges| ranges.seq_max() > oldest);
    let newest = newer.flat_map(|ranges| ranges.as_of(Seq::MAX));
    newest
        .map(|fragments| {
            let mut covers: Vec<(Range<u64>, Seq)> = vec![];
            // A range ends where the next one begins.
            let mut open: Option<(u64, Seq)> = None;
            fragments.visit(&table.first_key, &table.last_key, |start, seq| {
                let covers_more = seq > oldest;
                if open.is_some() || covers_more {
                    let rank = table.rank(start);
                    covers.extend(open.map(|(start, seq)| (start..rank, seq)));
                    open = covers_more.then_some((rank, seq));
                }
            });
            covers.extend(open.map(|(start, seq)| (start..table.keys, seq)));
            covers
        })
        .collect()
}

/// Observes a sampled record of a table of this many bytes.
fn observe(record: &Sampled, covers: &Covers, bytes: u64, views: &[ExpiryView]) -> Observed {
    let header = record.header;
    let is_covered = || {
        covers.iter().any(|covers| {
            let next = covers.partition_point(|(ranks, _)| ranks.start <= record.rank);
            let last = covers[..next].last();
            last.is_some_and(|(ranks, seq)| ranks.contains(&record.rank) && header.seq < *seq)
        })
    };
    let asked = asked_in(views, &header);
    Observed {
        hash: record.hash,
        seq: header.seq,
        weight: record.weight,
        asked,
        shows: asked > 0 && !is_covered(),
        oversized: is_oversized(record.weight, bytes),
    }
}

impl Estimate {
    /// Counts every record that is not dead as live.
    fn of(census: &Census, gone: Tally) -> Estimate {
        let (stored, tombstones) = (census.total(), census.tombstones);
        Estimate {
            stored,
            tombstones,
            expired: gone,
            superseded: Tally::default(),
            live: stored.less(tombstones).less(gone),
        }
    }

    /// The same part, of which about `live` is visible, but no more than is not expired.
    fn showing(self, live: Tally) -> Estimate {
        let live = Tally {
            count: live.count.min(self.live.count),
            bytes: live.bytes.min(self.live.bytes),
        };
        Estimate {
            superseded: self.live.less(live),
            live,
            ..self
        }
    }

    fn add(&mut self, part: &Estimate) {
        self.stored.add(part.stored);
        self.tombstones.add(part.tombstones);
        self.expired.add(part.expired);
        self.superseded.add(part.superseded);
        self.live.add(part.live);
    }
}

type NewestSeqs = HashedMap<Seq>;
