//! The engine's own policy, record by record, without files: how much disk and how much writing it costs.
//!
//! `cargo run --release --example policy -- [--load NAME] [--memtables 40] [--max-runs 20] [--within SHARE] [--rate X]`
//!
//! Puts come at a steady rate; memtables are flushed, runs chosen, merged, dropped and joined by the functions that the
//! engine calls, with its verdict on every record and its statistics of every table. A rewrite takes time (`--rate`: its
//! bytes a second, in multiples of what is put) and room (its output lies beside its input until a part is installed). The
//! log holds what is not flushed, and an eighth of a memtable ahead of that. `--within` is `reclaim_within` as a share of
//! the longest lifetime; an eighth of that lifetime counts if it is more, unless `--strict` is given.
//!
//! Columns: bytes on disk for each live byte, mean and worst after warm-up; bytes written for each byte put, log included;
//! the same for flushes, rewrites; runs, mean and most; tables; the time from expiry to removal, median and longest, as a
//! share of the longest lifetime.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ebbtide::internals::policy::{
    Choice, Collector, Decision, Facts, Goals, OlderVersions, Rewrite, RunFacts, RunId, TableFacts,
    Urgency, Verdict, decide, guards, parts, pick, plan,
};
use ebbtide::internals::{
    Census, DefaultMillis, ExpiryView, Header, ItemTtl, Kind, RecordRef, Seq, Settings, TableId,
    Timestamp, hash_key,
};

/// The longest lifetime that loads speak of, in milliseconds.
const LIFE: u64 = 300_000;
/// Bytes of an item: what a census counts for 16 + 100 bytes.
const WEIGHT: u64 = 132;
const VALUE_LEN: usize = WEIGHT as usize - 16 - 8;
const TICK: u64 = 250;
/// The log-normal's median, by which its mean is about `LIFE`, and how many times of that it is cut off on either side.
const MEDIAN: f64 = 0.2 * LIFE as f64;
const CUT: f64 = 316.0;

#[derive(Clone, Copy)]
struct Record {
    key: u64,
    header: Header,
}

impl Record {
    fn expiry(&self) -> Timestamp {
        match self.header.ttl {
            ItemTtl::Millis(life) if !self.header.is_tombstone() => {
                self.header.written_at.after(life)
            }
            _ => Timestamp::MAX,
        }
    }
}

struct Options {
    load: String,
    memtables: u64,
    max_runs: usize,
    within: f64,
    strict: bool,
    rate: f64,
    records: u64,
    explain: bool,
}

/// A rewrite under way.
struct Job {
    rewrite: Rewrite,
    cuts: Vec<Timestamp>,
    parts: Vec<Vec<TableId>>,
    written: BTreeMap<usize, RunId>,
    /// The part that is being written, and when it is done.
    output: Vec<(usize, RunFacts)>,
    input: BTreeSet<TableId>,
    done_at: f64,
}

struct Simulation {
    options: Options,
    goals: Goals,
    memtable_bytes: u64,
    now: Timestamp,
    seq: u64,
    active: Vec<Record>,
    logged: u64,
    runs: Vec<Arc<RunFacts>>,
    tables: HashMap<TableId, Arc<Vec<Record>>>,
    next_id: u64,
    job: Option<Job>,
    put: u64,
    flushed: u64,
    rewritten: u64,
    lags: Vec<u64>,
    /// The newest version of each live key, and what lives by expiry.
    newest: HashMap<u64, (Timestamp, u64)>,
    live: BTreeMap<Timestamp, u64>,
    live_bytes: u64,
    choices: BTreeMap<String, (u64, u64)>,
}

fn settings() -> Settings {
    Settings::new(DefaultMillis::NoDefault)
}

/// Tables outside a job, as the verdict asks them.
struct OverlapProbe<'a> {
    view: ExpiryView,
    key: u64,
    sources: Vec<(Timestamp, Seq, &'a TableFacts, &'a [Record])>,
}

impl OlderVersions for OverlapProbe<'_> {
    fn latest_live_expiry(
        &mut self,
        seq: Seq,
        outlives: Timestamp,
    ) -> ebbtide::Result<Option<Timestamp>> {
        let mut longest = None;
        let key = self.key.to_be_bytes();
        for (last, lowest, table, records) in &self.sources {
            if *last <= outlives.max(longest.unwrap_or_default()) {
                break;
            }
            if *lowest >= seq
                || *table.statistics.first_key > key[..]
                || *table.statistics.last_key < key[..]
            {
                continue;
            }
            let from = records.partition_point(|record| record.key < self.key);
            for record in records[from..]
                .iter()
                .take_while(|record| record.key == self.key)
            {
                if record.header.seq < seq && !self.view.dead(&record.header) {
                    longest = longest.max(Some(record.expiry()));
                }
            }
        }
        Ok(longest.filter(|longest| *longest > outlives))
    }

    fn is_covered(&self, _: Seq, _: Seq) -> bool {
        false
    }
}

impl Simulation {
    fn new(options: Options) -> Simulation {
        let memtable_bytes = options.records * WEIGHT;
        let goals = Goals {
            max_runs: options.max_runs,
            reclaim_within: ((options.within * LIFE as f64) as u64).max(1),
            reclaim_strict: options.strict,
            memtable_bytes,
            eager: 0.0,
            scan_credit: 0,
            paid_by_passing: 0,
        };
        Simulation {
            options,
            goals,
            memtable_bytes,
            now: Timestamp(1_000_000_000),
            seq: 0,
            active: vec![],
            logged: 0,
            runs: vec![],
            tables: HashMap::new(),
            next_id: 1,
            job: None,
            put: 0,
            flushed: 0,
            rewritten: 0,
            lags: vec![],
            newest: HashMap::new(),
            live: BTreeMap::new(),
            live_bytes: 0,
            choices: BTreeMap::new(),
        }
    }

    fn expiry_view(&self) -> ExpiryView {
        ExpiryView::at(self.now, settings)
    }

    fn facts(&self) -> Facts {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| std::cmp::Reverse((run.census.seq_max, run.id)));
        Facts {
            runs,
            range_deletes: Arc::default(),
        }
    }

    fn put(&mut self, key: u64, ttl: ItemTtl) {
        self.seq += 1;
        let header = Header {
            kind: Kind::Put,
            seq: Seq(self.seq),
            written_at: self.now,
            ttl,
        };
        let record = Record { key, header };
        self.put += WEIGHT;
        self.logged += WEIGHT;
        if let Some((expiry, weight)) = self.newest.insert(key, (record.expiry(), WEIGHT)) {
            self.forget(expiry, weight);
        }
        *self.live.entry(record.expiry()).or_default() += WEIGHT;
        self.live_bytes += WEIGHT;
        self.active.push(record);
        if self.active.len() as u64 * WEIGHT >= self.memtable_bytes {
            self.flush();
        }
    }

    fn forget(&mut self, expiry: Timestamp, weight: u64) {
        if let Some(bytes) = self.live.get_mut(&expiry) {
            *bytes -= weight;
            self.live_bytes -= weight;
        }
    }

    fn expire(&mut self) {
        while let Some(first) = self.live.first_entry() {
            if *first.key() > self.now {
                break;
            }
            self.live_bytes -= first.remove();
        }
    }

    /// The versions of each key that a job keeps, and where they go.
    fn decided(
        &mut self,
        mut records: Vec<Record>,
        inputs: &BTreeSet<TableId>,
        cuts: &[Timestamp],
    ) -> Vec<(usize, Vec<Record>, Timestamp)> {
        records.sort_by_key(|record| (record.key, std::cmp::Reverse(record.header.seq)));
        let view = self.expiry_view();
        let mut sources: Vec<_> = self
            .runs
            .iter()
            .flat_map(|run| &run.tables)
            .filter(|table| !inputs.contains(&table.id))
            .map(|table| {
                let census = &table.statistics.census;
                let last = census.last_expiry(&view.settings);
                (
                    last,
                    census.seq_min,
                    table,
                    self.tables[&table.id].as_slice(),
                )
            })
            .collect();
        sources.sort_by_key(|source| std::cmp::Reverse(source.0));
        let mut probe = OverlapProbe {
            view: view.clone(),
            key: 0,
            sources,
        };
        let slots = cuts.len() + 1;
        let mut output: Vec<(usize, Vec<Record>, Timestamp)> = (0..slots)
            .map(|slot| (slot, vec![], Timestamp(0)))
            .collect();
        let (mut decisions, mut headers): (Vec<Decision>, Vec<Header>) = (vec![], vec![]);
        let mut lags = vec![];
        for versions in records.chunk_by(|a, b| a.key == b.key) {
            headers.clear();
            headers.extend(versions.iter().map(|version| version.header));
            probe.key = versions[0].key;
            decide(&headers, &[], &view, &mut probe, &mut decisions).expect("no file is read");
            for (record, decision) in versions.iter().zip(&decisions) {
                if view.dead(&record.header) && record.expiry() != Timestamp::MAX {
                    lags.push(view.now.since(record.expiry()));
                }
                let header = match decision.verdict {
                    Verdict::Drop => continue,
                    Verdict::Keep => record.header,
                    Verdict::Bury => Header::tombstone(record.header.seq, record.header.written_at),
                };
                let slot = match decision.obsolete_at {
                    Timestamp::MAX => slots - 1,
                    obsolete_at => cuts.partition_point(|cut| *cut < obsolete_at),
                };
                output[slot].1.push(Record {
                    key: record.key,
                    header,
                });
                output[slot].2 = output[slot].2.max(decision.obsolete_at);
            }
        }
        self.lags.extend(lags);
        output.retain(|(_, records, _)| !records.is_empty());
        output
    }

    /// Writes a run, cut into tables at the guards.
    fn write(&mut self, records: Vec<Record>, end: Timestamp) -> RunFacts {
        let facts = self.facts();
        let bytes_stored = facts.bytes();
        let guards = guards(
            &facts,
            bytes_stored.div_ceil(self.max_transient_bytes(bytes_stored)),
        );
        let (mut tables, mut from, mut guard) = (vec![], 0, 0);
        for at in 1..=records.len() {
            let cut = at < records.len() && {
                let mut crossed = false;
                while guard < guards.len() && *guards[guard] <= records[at].key.to_be_bytes()[..] {
                    guard += 1;
                    crossed = true;
                }
                let bytes = (at - from) as u64 * WEIGHT;
                (crossed && bytes >= self.memtable_bytes / 32)
                    || (bytes >= self.max_transient_bytes(bytes_stored) / 2
                        && records[at].key != records[at - 1].key)
            };
            if cut || at == records.len() {
                tables.push(self.table(records[from..at].to_vec()));
                from = at;
            }
        }
        self.run(tables, end)
    }

    fn run(&mut self, tables: Vec<TableFacts>, end: Timestamp) -> RunFacts {
        let mut census = Census::default();
        tables
            .iter()
            .for_each(|table| census.merge(&table.statistics.census));
        self.next_id += 1;
        RunFacts {
            id: RunId(self.next_id),
            end,
            end_assumes: settings().default,
            applied: Seq(0),
            census,
            bytes: tables.iter().map(|table| table.bytes).sum(),
            tables,
        }
    }

    fn table(&mut self, records: Vec<Record>) -> TableFacts {
        let (mut collector, mut census, mut bytes) = (Collector::default(), Census::default(), 0);
        let mut last_key = None;
        for record in &records {
            let key = record.key.to_be_bytes();
            let is_new = last_key.replace(key) != Some(key);
            let record = RecordRef {
                header: record.header,
                key: &key,
                value_len: if record.header.is_tombstone() {
                    0
                } else {
                    VALUE_LEN
                },
            };
            collector.add(&record, hash_key(&key), is_new);
            collector.add_expiry(&record);
            census.add(&record);
            bytes += record.weight();
        }
        collector.add_block(&census, &last_key.unwrap_or_default());
        self.next_id += 1;
        let id = TableId(self.next_id);
        self.tables.insert(id, Arc::new(records));
        TableFacts {
            id,
            bytes,
            statistics: Arc::new(collector.finish(settings())),
        }
    }

    fn max_transient_bytes(&self, bytes: u64) -> u64 {
        (bytes / 10).max(self.memtable_bytes)
    }

    fn flush(&mut self) {
        let records = std::mem::take(&mut self.active);
        self.logged = 0;
        for (_, records, end) in self.decided(records, &BTreeSet::new(), &[Timestamp::MAX]) {
            let run = self.write(records, end);
            self.flushed += run.bytes;
            self.runs.push(Arc::new(run));
        }
        self.work();
    }

    fn busy(&self) -> BTreeSet<TableId> {
        let job = self.job.iter();
        job.flat_map(|job| job.parts.iter().flatten().chain(&job.input).copied())
            .collect()
    }

    /// Puts the items that log-normal puts without a beginning would have left alive, with their remaining lives: the
    /// longest live so long that no simulation would come to a steady state. It comes ten times as fast.
    fn fill(&mut self, rate: f64, random: &mut Random) {
        let mut filled = 0.0;
        for nth in (0..(MEDIAN * CUT * rate / 1_000.0) as u64).rev() {
            let age = (nth as f64 * 1_000.0 / rate) as u64;
            let (key, ttl) = next_put("lognormal", nth, 0, random);
            if let ItemTtl::Millis(life) = ttl
                && life > age
            {
                self.put(key, ItemTtl::Millis(life - age));
                filled += 1.0;
                if filled * 1_000.0 >= 10.0 * rate * TICK as f64 {
                    filled = 0.0;
                    self.now = self.now.after(TICK);
                    self.expire();
                    self.work();
                }
            }
        }
    }

    /// Drops runs and tables that need no rewrite, begins rewrites, installs finished ones.
    fn work(&mut self) {
        loop {
            if let Some(job) = &self.job
                && job.done_at <= self.now.0 as f64
            {
                self.install();
                self.next_part();
                continue;
            }
            match pick(
                &self.facts(),
                &[],
                &self.busy(),
                &self.expiry_view(),
                &self.goals,
            ) {
                Choice::Drop(tables) => self.drop_tables(&tables),
                Choice::Join(runs) => self.join(&runs),
                Choice::Merge(rewrite) => match &self.job {
                    None => self.begin(rewrite),
                    Some(job)
                        if rewrite.urgency < job.rewrite.urgency
                            && job.rewrite.urgency != Urgency::Young =>
                    {
                        let outer = self.job.take();
                        let before = self.rewritten;
                        self.begin(rewrite);
                        while let Some(job) = &mut self.job {
                            job.done_at = 0.0;
                            self.install();
                            self.next_part();
                        }
                        let took = (self.rewritten - before) as f64;
                        let took = took / self.bytes_a_millisecond();
                        self.job = outer.map(|job| Job {
                            done_at: job.done_at + took,
                            ..job
                        });
                    }
                    Some(_) => break,
                },
                Choice::Rest { .. } => break,
            }
        }
    }

    fn bytes_a_millisecond(&self) -> f64 {
        self.options.rate * rate(&self.options) * WEIGHT as f64 / 1_000.0
    }

    fn drop_tables(&mut self, gone: &[TableId]) {
        for id in gone {
            let records = self.tables.remove(id).expect("a dropped table is there");
            let expired = records.iter().filter(|record| record.expiry() <= self.now);
            let now = self.now;
            self.lags
                .extend(expired.map(|record| now.since(record.expiry())));
        }
        self.without(&gone.iter().copied().collect());
    }

    /// Runs lose these tables.
    fn without(&mut self, gone: &BTreeSet<TableId>) {
        for run in std::mem::take(&mut self.runs) {
            if !run.tables.iter().any(|table| gone.contains(&table.id)) {
                self.runs.push(run);
                continue;
            }
            let rest = run.tables.iter().filter(|table| !gone.contains(&table.id));
            let rest: Vec<TableFacts> = rest.cloned().collect();
            if !rest.is_empty() {
                let rest = self.run(rest, run.end);
                self.runs.push(Arc::new(rest));
            }
        }
    }

    fn join(&mut self, ids: &[RunId]) {
        let (chosen, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.runs)
            .into_iter()
            .partition(|run| ids.contains(&run.id));
        self.runs = rest;
        let joined = self.joined(&chosen);
        self.runs.push(Arc::new(joined));
    }

    fn joined(&mut self, runs: &[Arc<RunFacts>]) -> RunFacts {
        let mut tables: Vec<_> = runs.iter().flat_map(|run| run.tables.clone()).collect();
        tables.sort_by(|a, b| a.statistics.first_key.cmp(&b.statistics.first_key));
        let end = runs.iter().map(|run| run.end).max().unwrap_or_default();
        self.run(tables, end)
    }

    fn begin(&mut self, rewrite: Rewrite) {
        let facts = self.facts();
        let chosen: Vec<&TableFacts> = facts
            .tables()
            .map(|(_, table)| table)
            .filter(|table| rewrite.tables.contains(&table.id))
            .collect();
        let bytes: u64 = chosen.iter().map(|table| table.bytes).sum();
        let why = format!("{:?}", rewrite.why);
        let why = why.split([' ', '(']).next().unwrap_or_default().to_owned();
        let count = self.choices.entry(why).or_default();
        *count = (count.0 + 1, count.1 + bytes);
        if self.options.explain {
            println!(
                "{}: {} tables, {bytes} bytes, {}",
                self.now.0,
                chosen.len(),
                rewrite.why
            );
        }
        let least = self.memtable_bytes.max(facts.bytes() / 24);
        let (histograms, settings) = (
            chosen.iter().map(|table| &table.statistics.histograms),
            settings(),
        );
        let forecast = histograms.flat_map(|histograms| histograms.forecast(&settings));
        let mut parts = parts(&chosen, self.max_transient_bytes(facts.bytes()) / 2);
        parts.reverse();
        self.job = Some(Job {
            cuts: if rewrite.cut {
                plan(forecast.collect(), least, self.now)
            } else {
                vec![]
            },
            rewrite,
            parts,
            written: BTreeMap::new(),
            output: vec![],
            input: BTreeSet::new(),
            done_at: self.now.0 as f64,
        });
        self.next_part();
    }

    fn next_part(&mut self) {
        let Some(mut job) = self.job.take() else {
            return;
        };
        let Some(part) = job.parts.pop() else { return };
        job.input = part.into_iter().collect();
        let inputs = job.input.iter();
        let records: Vec<Record> = inputs
            .flat_map(|id| self.tables[id].iter().copied())
            .collect();
        let mut bytes = 0;
        for (slot, records, end) in self.decided(records, &job.input, &job.cuts) {
            let run = self.write(records, end);
            bytes += run.bytes;
            job.output.push((slot, run));
        }
        self.rewritten += bytes;
        job.done_at = job.done_at.max(0.0) + bytes as f64 / self.bytes_a_millisecond();
        self.job = Some(job);
    }

    fn install(&mut self) {
        let Some(mut job) = self.job.take() else {
            return;
        };
        let input = std::mem::take(&mut job.input);
        input.iter().for_each(|id| {
            self.tables.remove(id);
        });
        self.without(&input);
        for (slot, run) in std::mem::take(&mut job.output) {
            let before = job.written.get(&slot).copied();
            let at = self.runs.iter().position(|run| Some(run.id) == before);
            let run = match at {
                Some(at) => {
                    let before = self.runs.swap_remove(at);
                    self.joined(&[before, Arc::new(run)])
                }
                None => run,
            };
            job.written.insert(slot, run.id);
            self.runs.push(Arc::new(run));
        }
        self.job = Some(job);
    }

    /// Bytes of tables, of what a rewrite is writing, and of the log.
    fn disk(&self) -> u64 {
        let tables: u64 = self.runs.iter().map(|run| run.bytes).sum();
        let beside: u64 = self
            .job
            .iter()
            .flat_map(|job| &job.output)
            .map(|(_, run)| run.bytes)
            .sum();
        tables + beside + self.logged + self.memtable_bytes * 3 / 16
    }
}

/// Puts a second for which as many memtables are live as the options say.
fn rate(options: &Options) -> f64 {
    // Puts for each live item in the longest lifetime.
    let turnover = match options.load.as_str() {
        "uniform" | "mixed" => 1.0 / 0.55,
        "lognormal" => 1.0 / 0.97,
        "field" => 1.0 / 0.325,
        "hiding" => 1.25,
        "refresh" => 30.0,
        _ => 1.0,
    };
    (options.memtables * options.records) as f64 * turnover * 1_000.0 / LIFE as f64
}

/// A generator of random numbers (splitmix64, S. Vigna).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The key and the lifetime of the next put.
fn next_put(load: &str, number: u64, keys: u64, random: &mut Random) -> (u64, ItemTtl) {
    let uniform = |random: &mut Random| (LIFE as f64 * (0.1 + 0.9 * random.unit())) as u64;
    match load {
        "fixed" => (random.next(), ItemTtl::Millis(LIFE)),
        "series" => (number, ItemTtl::Millis(LIFE)),
        "uniform" => (random.next(), ItemTtl::Millis(uniform(random))),
        "lognormal" => {
            let normal = (-2.0 * random.unit().max(1e-12).ln()).sqrt()
                * (std::f64::consts::TAU * random.unit()).cos();
            let life = MEDIAN * (1.8 * normal).exp().clamp(1.0 / CUT, CUT);
            (random.next(), ItemTtl::Millis(life as u64))
        }
        "mixed" if number.is_multiple_of(4) => (random.next(), ItemTtl::Never),
        "mixed" => (random.next(), ItemTtl::Millis(uniform(random))),
        "field" if number.is_multiple_of(10) => (random.next(), ItemTtl::Millis(LIFE)),
        "field" => {
            let life = LIFE as f64 * (5.0 + 20.0 * random.unit()) / 60.0;
            (random.next(), ItemTtl::Millis(life as u64))
        }
        "refresh" => (random.next() % keys, ItemTtl::Millis(LIFE)),
        "hiding" => (random.next() % keys, ItemTtl::Millis(uniform(random))),
        "overwrite" => (random.next() % keys, ItemTtl::Never),
        other => panic!("no load is named {other}"),
    }
}

fn simulate(options: Options) {
    let (load, rate) = (options.load.clone(), rate(&options));
    let keys = options.memtables * options.records;
    let rate = if load == "refresh" {
        keys as f64 * 30.0 * 1_000.0 / LIFE as f64
    } else {
        rate
    };
    let mut simulation = Simulation::new(options);
    let mut random = Random(1);
    if load == "lognormal" {
        simulation.fill(rate, &mut random);
    }
    let started = simulation.now;
    let (mut due, mut number) = (0.0, 0);
    let (mut sum, mut worst, mut samples, mut runs, mut most_runs) = (0.0, 0.0f64, 0u32, 0.0, 0);
    let mut before = (0, 0, 0);
    while simulation.now.since(started) < 8 * LIFE {
        simulation.now = simulation.now.after(TICK);
        simulation.expire();
        due += rate * TICK as f64 / 1_000.0;
        while due >= 1.0 {
            due -= 1.0;
            number += 1;
            let (key, ttl) = next_put(&load, number, keys, &mut random);
            simulation.put(key, ttl);
        }
        simulation.work();
        if simulation.now.since(started) < 3 * LIFE {
            simulation.lags.clear();
            before = (simulation.put, simulation.flushed, simulation.rewritten);
            simulation.choices.clear();
            continue;
        }
        let amplified = simulation.disk() as f64 / simulation.live_bytes.max(1) as f64;
        (sum, worst, samples) = (sum + amplified, worst.max(amplified), samples + 1);
        runs += simulation.runs.len() as f64;
        most_runs = most_runs.max(simulation.runs.len());
    }
    let put = (simulation.put - before.0) as f64;
    let flushed = (simulation.flushed - before.1) as f64 / put;
    let rewritten = (simulation.rewritten - before.2) as f64 / put;
    simulation.lags.sort_unstable();
    let lag = |share: f64| {
        let last = simulation.lags.len().saturating_sub(1);
        let at = (last as f64 * share) as usize;
        simulation
            .lags
            .get(at)
            .map_or(0.0, |lag| *lag as f64 / LIFE as f64)
    };
    let tables: usize = simulation.runs.iter().map(|run| run.tables.len()).sum();
    println!(
        "| {load} | {:.2} | {worst:.2} | {:.2} | {flushed:.2} | {rewritten:.2} | {:.1} | {most_runs} | {tables} | {:.3} | {:.3} | {:?}",
        sum / f64::from(samples),
        1.0 + flushed + rewritten,
        runs / f64::from(samples),
        lag(0.5),
        lag(1.0),
        simulation
            .choices
            .iter()
            .map(|(why, (count, bytes))| format!("{why} {count} {:.2}", *bytes as f64 / put))
            .collect::<Vec<_>>(),
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let text = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
            .map_or(default.to_owned(), Clone::clone)
    };
    let number = |name: &str, default: f64| text(name, "").parse().unwrap_or(default);
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    println!(
        "| load | disk/live | worst | written/put | flushed | rewritten | runs | most | tables | lag p50 | lag max |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let all = "field,fixed,series,uniform,lognormal,mixed,refresh,hiding,overwrite";
    for load in text("--load", all).split(',') {
        simulate(Options {
            load: load.to_owned(),
            memtables: number("--memtables", 40.0) as u64,
            max_runs: number("--max-runs", 20.0) as usize,
            within: number("--within", 0.0),
            strict: has("--strict"),
            rate: number("--rate", 20.0),
            records: number("--records", 1_000.0) as u64,
            explain: has("--explain"),
        });
    }
}
