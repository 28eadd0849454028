//! A database on a simulated disk and clock, and its model.
//!
//! [`World::run`] runs one step in both and compares the results. `Ok` is the step's result as text; `Err` says where
//! the two differ. Background work happens only in steps, so a history always runs the same way.
//!
//! After a power cut the model does not know how much of what was not synced survived: writes, changes of a default,
//! containers created and dropped. It tries each prefix, the longest first; one of them must explain everything that is
//! visible. With `counting`, a counter is written after each step, so that only the effects of one step are uncertain.
//! Edits that are durable when acknowledged, such as a change of a default, must survive with everything before them,
//! and so must whatever is older than the sync interval when a background step has run.
//!
//! The world's own container, `OWN`, holds the counter and a probe that shows the time from which the engine starts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Batch, ClockBehind, Compression, Container, ContainerOptions, Database, DefaultTtl, Durability,
    Error, Expect, Item, Iter, ManualClock, Options, Reads, Snapshot, Ttl, Update, Value, Version,
    View,
};

use crate::model::{
    Expire, Given, Life, MAX_TTL, Model, Need, Part, Refused, Seen, Standard, Time, Write,
};
use crate::op::{
    ALL, BatchOp, Bytes, Change, LoadPart, Op, Span, StepExpire, StepTtl, Wanted, duration,
    shorten, show_duration,
};

/// The moment at which every world starts: 2026-01-01T00:00:00Z.
pub const START: u64 = 1_767_225_600_000;
const OWN: &str = "_world";
const PATH: &str = "/db";
/// Milliseconds after which a step syncs the log.
const SYNC_INTERVAL: u64 = 1_000;

/// How the database is opened.
#[derive(Clone, Debug)]
pub struct Setup {
    pub durability: Durability,
    pub memtable: usize,
    pub block: usize,
    pub table: u64,
    pub segment: u64,
    pub max_runs: usize,
    pub reclaim_within: u64,
    pub strict: bool,
    pub skew: u64,
    pub behind: ClockBehind,
    pub compression: Compression,
    pub reads: Reads,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            durability: Durability::Buffered,
            memtable: 16 << 10,
            block: 128,
            table: 2 << 10,
            segment: 8 << 10,
            max_runs: 4,
            reclaim_within: 10_000,
            strict: false,
            skew: 3_600_000,
            behind: ClockBehind::Refuse,
            compression: Compression::None,
            reads: Reads::Map,
        }
    }
}

impl Setup {
    /// Changes one option, as `reopen` names it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || {
            value
                .parse::<usize>()
                .map_err(|_| format!("{value} is not a number"))
        };
        match (name, value) {
            ("durability", "sync") => self.durability = Durability::Sync,
            ("durability", "buffered") => self.durability = Durability::Buffered,
            ("memtable", _) => self.memtable = number()?,
            ("block", _) => self.block = number()?,
            ("table", _) => self.table = number()? as u64,
            ("segment", _) => self.segment = number()? as u64,
            ("max-runs", _) => self.max_runs = number()?,
            ("reclaim-within", _) => self.reclaim_within = duration(value)?,
            ("strict", _) => self.strict = value == "true",
            ("skew", _) => self.skew = duration(value)?,
            ("clock-behind", "start") => self.behind = ClockBehind::StartAtMark,
            ("clock-behind", "refuse") => self.behind = ClockBehind::Refuse,
            ("compression", "lz4") => self.compression = Compression::Lz4,
            ("compression", "zstd") => self.compression = Compression::Zstd,
            ("compression", "none") => self.compression = Compression::None,
            _ => return Err(format!("{name}={value} is not an option")),
        }
        Ok(())
    }

    /// The step that opens a database with these options.
    pub fn step(&self) -> Op {
        let options = [
            (
                "durability",
                if self.durability == Durability::Sync {
                    "sync"
                } else {
                    "buffered"
                }
                .to_owned(),
            ),
            ("memtable", self.memtable.to_string()),
            ("block", self.block.to_string()),
            ("table", self.table.to_string()),
            ("segment", self.segment.to_string()),
            ("max-runs", self.max_runs.to_string()),
            ("reclaim-within", show_duration(self.reclaim_within)),
            ("strict", self.strict.to_string()),
            ("skew", show_duration(self.skew)),
            (
                "compression",
                format!("{:?}", self.compression).to_lowercase(),
            ),
        ];
        Op::Reopen(
            options
                .map(|(name, value)| (name.to_owned(), value))
                .to_vec(),
        )
    }

    pub fn options(&self, sim: &Sim, clock: &ManualClock) -> Options {
        Options::new()
            .durability(self.durability)
            .sync_interval(Duration::from_millis(SYNC_INTERVAL))
            .memtable_bytes(self.memtable)
            .cache_bytes(16 << 10)
            .compression(self.compression)
            .reads(self.reads)
            .background_rate(1 << 40)
            .reclaim_within(Duration::from_millis(self.reclaim_within))
            .reclaim_strict(self.strict)
            .max_clock_skew(Duration::from_millis(self.skew))
            .clock_behind(self.behind)
            .max_runs(self.max_runs)
            .clock(clock.clone())
            .fs(Arc::new(sim.clone()))
            .stepped()
            .sizes(self.block, self.table, self.segment)
    }
}

/// An open iterator, and the model's knowledge of it.
struct Walk {
    iter: Iter,
    container: String,
    order: u64,
    from: Bytes,
    to: Option<Bytes>,
    done: bool,
}

struct Held {
    value: Value,
    bytes: Bytes,
}

pub struct World {
    pub sim: Sim,
    pub clock: ManualClock,
    pub setup: Setup,
    pub model: Model,
    /// Writes a counter behind each step that writes.
    pub counting: bool,
    /// When the clock is found behind, opens again and starts at the mark.
    pub persistent: bool,
    db: Option<Database>,
    containers: BTreeMap<String, Container>,
    snapshots: BTreeMap<String, (Snapshot, u64)>,
    walks: BTreeMap<String, Walk>,
    held: Vec<Held>,
    /// The last place in the order that is certain to survive a power cut.
    synced: u64,
    /// The uptime at which the writes up to this place were acknowledged.
    acknowledged: Vec<(u64, u64)>,
    /// The order of the write that set the counter to its index.
    counted: Vec<u64>,
    checkpoints: usize,
    /// The version observed for the write at each place in the order, ...
    versions: BTreeMap<u64, Version>,
    /// ... after this one: for a prefix that a power cut left, it is uncertain which one it is.
    versions_after: u64,
    /// The items of a bulk load have one version: the places of all but the last, and the place of the last.
    one_version: BTreeMap<u64, u64>,
    /// The last write that must survive the crash that the next open recovers from.
    survives: u64,
    cut: bool,
}

type Outcome = Result<String, String>;

fn failed(error: Error) -> String {
    format!("the engine fails: {error}")
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> World {
        let skew = setup.skew;
        World {
            sim: Sim::new(seed),
            clock: ManualClock::new(START),
            setup,
            model: Model::new(Time::new(START, skew)),
            counting: false,
            persistent: false,
            db: None,
            containers: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            walks: BTreeMap::new(),
            held: vec![],
            synced: 0,
            acknowledged: vec![],
            counted: vec![0],
            versions: BTreeMap::new(),
            versions_after: 0,
            one_version: BTreeMap::new(),
            checkpoints: 0,
            survives: 0,
            cut: false,
        }
    }

    /// The world after a power cut now, with this disk and the model's knowledge so far. Nothing is open in it. A step
    /// in progress may have happened or not.
    pub fn after_cut(&self, sim: Sim) -> World {
        World {
            sim,
            clock: ManualClock::new(self.model.time.wall),
            setup: self.setup.clone(),
            model: self.model.clone(),
            counted: self.counted.clone(),
            survives: self.survivors(),
            cut: true,
            ..World::new(self.setup.clone(), 0)
        }
    }

    /// Treats everything that was not synced in `earlier`, a moment before, as not synced.
    pub fn synced_as_in(mut self, earlier: &World) -> World {
        self.survives = earlier.survivors();
        self
    }

    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// The database, opened if it is closed.
    pub fn db(&mut self) -> Result<Database, String> {
        if self.db.is_none() {
            let shown = self.open()?;
            if self.db.is_none() {
                return Err(shown);
            }
        }
        Ok(self.db.clone().expect("opened above"))
    }

    // ---- opening and ending

    fn open(&mut self) -> Outcome {
        let wall = self.model.time.wall;
        let least = self.model.mark_least(self.survives);
        let most = self.model.time.settled_most;
        let db = match self.setup.options(&self.sim, &self.clock).open(PATH) {
            Ok(db) => db,
            Err(Error::ClockBehind { wall: stated, mark })
                if self.setup.behind == ClockBehind::Refuse =>
            {
                let (stated, mark) = (millis(stated), millis(mark));
                if stated != wall
                    || !(least..=most).contains(&mark)
                    || mark <= wall + self.setup.skew
                {
                    return Err(format!(
                        "refused at {stated}, mark {mark}; the mark is from {least} to {most}"
                    ));
                }
                if self.persistent {
                    self.setup.behind = ClockBehind::StartAtMark;
                    let shown = self.open();
                    self.setup.behind = ClockBehind::Refuse;
                    return shown;
                }
                return Ok(format!(
                    "refused: the clock is {} behind",
                    show_duration(mark - wall)
                ));
            }
            Err(error) => return Err(format!("the database does not open: {error}")),
        };
        if self.setup.behind == ClockBehind::Refuse && least > wall + self.setup.skew {
            return Err(format!(
                "opened with the clock at {wall}, far behind {least}"
            ));
        }
        self.model.time.skew = self.setup.skew;
        self.recover(db, wall.max(least)..=wall.max(most))?;
        Ok(String::new())
    }

    fn recover(
        &mut self,
        db: Database,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> Result<(), String> {
        let found = db.containers();
        let known = self.model.containers();
        if found != known && !self.cut {
            return Err(format!("containers are {found:?}, and should be {known:?}"));
        }
        let own = db.container(OWN).map_err(failed)?;
        let count = match own.get("counter").map_err(failed)? {
            Some(value) => String::from_utf8_lossy(&value)
                .parse::<usize>()
                .map_err(|e| e.to_string())?,
            None => 0,
        };
        // A probe relies on the time at which it is written, so it is skipped when the time is known.
        let probing = bounds.start() != bounds.end() || !own.contains("probe").map_err(failed)?;
        let now = if probing {
            own.put_with_ttl("probe", "", Ttl::Never).map_err(failed)?;
            let probe = own
                .item("probe")
                .map_err(failed)?
                .ok_or("the probe is not there")?;
            millis(probe.written_at())
        } else {
            *bounds.start()
        };
        if !bounds.contains(&now) {
            return Err(format!(
                "time starts at {now}, and should start within {bounds:?}"
            ));
        }
        self.model.time.restart(now);
        self.containers = [(OWN.to_owned(), own)].into();
        for name in found.iter().filter(|name| *name != OWN) {
            self.containers
                .insert(name.clone(), db.container(name).map_err(failed)?);
        }
        self.db = Some(db);
        if self.cut {
            self.find_cut(&found, count, now)?;
            self.versions.clear();
            self.one_version.clear();
            self.versions_after = self.model.order;
        }
        if !self.model.has(OWN) {
            self.model.create_container(OWN, Standard::NoDefault);
            self.synced = self.model.order;
        }
        self.cut = false;
        if probing {
            self.model.commit(&[put(OWN, b"probe", b"", Life::Never)]);
        }
        Ok(())
    }

    /// Finds what a power cut left of history; time continues from `now`, and the containers `found` exist. Of several
    /// prefixes that explain what is visible the longest is used, but only the shortest counts as certain.
    fn find_cut(&mut self, found: &Vec<String>, count: usize, now: u64) -> Result<(), String> {
        let lowest = self.survives;
        let (mut low, mut high) = (lowest, u64::MAX);
        if self.counting {
            let order = *self
                .counted
                .get(count)
                .ok_or(format!("the counter says {count}"))?;
            low = low.max(order);
            high = self
                .counted
                .get(count + 1)
                .map_or(u64::MAX, |next| next - 1);
            if high < lowest {
                return Err(format!(
                    "write {lowest} was synced, and what is left ends before {}",
                    high + 1
                ));
            }
            self.counted.truncate(count + 1);
        }
        let (mut longest, mut closest) = (None, String::new());
        for cut in self.model.cuts(low).into_iter().filter(|&cut| cut <= high) {
            // Time would not start before what a surviving write relied on.
            if self.model.mark_least(cut) > now {
                continue;
            }
            let whole = self.model.clone();
            self.model.truncate(cut);
            let containers = same("containers", found, &self.model.containers());
            let checked = containers.and_then(|()| self.check_scans());
            let model = std::mem::replace(&mut self.model, whole);
            match checked {
                Ok(()) => {
                    longest.get_or_insert(model);
                    self.synced = cut;
                }
                Err(difference) if closest.is_empty() => closest = difference,
                Err(_) => {}
            }
        }
        if let Some(model) = longest {
            self.model = model;
            return Ok(());
        }
        Err(format!(
            "what the power cut left is no prefix of history from {low} on; with all of them: {closest}"
        ))
    }

    /// Drops everything that belongs to the open database.
    fn leave(&mut self) {
        self.walks.clear();
        self.snapshots.clear();
        self.acknowledged.clear();
        self.containers.clear();
        self.db = None;
    }

    fn end(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Crash => {
                let next = self.sim.kill();
                self.leave();
                self.sim = next;
                if !self.cut {
                    self.survives = self.model.order;
                }
            }
            Op::PowerCut(seed) => {
                let next = self.sim.power_cut(*seed);
                self.leave();
                self.sim = next;
                self.survives = self.survivors();
                self.cut = true;
            }
            Op::Close => {
                if let Some(db) = self.db.take() {
                    db.close().map_err(failed)?;
                    self.synced = self.model.order;
                }
                self.leave();
                if !self.cut {
                    self.survives = self.model.order;
                }
            }
            Op::Reopen(options) => {
                if self.db.is_some() {
                    self.end(&Op::Close)?;
                }
                for (name, value) in options {
                    self.setup.set(name, value)?;
                }
                return self.open();
            }
            _ => unreachable!("{op}"),
        }
        Ok(String::new())
    }

    fn survivors(&self) -> u64 {
        // A second crash before any open finds what the first one left.
        if self.cut {
            self.survives
        } else if self.setup.durability == Durability::Sync {
            self.model.order
        } else {
            self.synced
        }
    }

    // ---- steps

    /// Takes one step.
    pub fn run(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Crash | Op::PowerCut(_) | Op::Close | Op::Reopen(_) => return self.end(op),
            Op::Advance(_) | Op::Jump(_) | Op::ConfirmClock => return self.turn_clock(op),
            _ => {}
        }
        let db = self.db()?;
        let before = self.model.order;
        let shown = self.act(&db, op)?;
        if self.counting && self.model.order != before {
            self.count()?;
        }
        if self.model.order != before {
            self.acknowledged
                .push((self.model.time.uptime, self.model.order));
        }
        Ok(shown)
    }

    fn act(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Put(..) | Op::Delete(..) | Op::DeleteRange(..) | Op::Batch(_) | Op::Fill(..) => {
                self.write(db, op)
            }
            Op::Load(c, parts) => self.load(db, c, parts),
            Op::Create(..) | Op::Replace(..) | Op::Touch(..) | Op::Expire(..) | Op::Update(..) => {
                self.write_if(op)
            }
            Op::Take(c, k) => self.take(c, k),
            Op::SetTtl(c, standard) => self.set_ttl(c, *standard),
            Op::ExpireItems(c, what) => self.expire_items(c, *what),
            Op::Open(c, standard) => self.open_container(db, c, *standard),
            Op::Drop(c) => self.drop_container(db, c),
            Op::Flush | Op::Step(_) | Op::Compact | Op::Sync | Op::Checkpoint => {
                self.maintain(db, op)
            }
            Op::Get(..) | Op::Item(..) | Op::Contains(..) | Op::Scan(..) => self.read(op),
            Op::Snapshot(_)
            | Op::Release(_)
            | Op::Iter(..)
            | Op::Next(..)
            | Op::Back(..)
            | Op::Hold(..) => self.keep(db, op),
            Op::Containers => {
                let names = db.containers();
                same("containers", &names, &self.model.containers())?;
                let shown: Vec<String> = names.into_iter().filter(|name| name != OWN).collect();
                Ok(shown.join(" "))
            }
            Op::Stats(c) => Ok(self.stats(c)),
            Op::Explain(c) => Ok(self.explain(c)),
            Op::Ls => Ok(db.describe()),
            Op::Check => self.check().map(|()| String::new()),
            _ => unreachable!("{op}"),
        }
    }

    fn turn_clock(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Advance(millis) => {
                self.clock.advance(Duration::from_millis(*millis));
                self.model.time.advance(*millis);
            }
            Op::Jump(by) => {
                let wall = self.model.time.wall.saturating_add_signed(*by);
                self.clock.jump(wall);
                self.model.time.wall = wall;
            }
            Op::ConfirmClock => {
                self.db()?.confirm_clock();
                self.model.time.confirm();
            }
            _ => unreachable!("{op}"),
        }
        // Both read the clock after each step, so that both see a lead begin at the same time.
        if let Some(own) = self.containers.get(OWN) {
            own.contains("probe").map_err(failed)?;
            self.model.time.now();
        }
        Ok(String::new())
    }

    fn container(&mut self, name: &str) -> Result<Container, String> {
        if let Some(container) = self.containers.get(name) {
            return Ok(container.clone());
        }
        let db = self.db()?;
        self.open_container(&db, name, Standard::Off)?;
        Ok(self.containers[name].clone())
    }

    fn open_container(&mut self, db: &Database, name: &str, standard: Standard) -> Outcome {
        let options = ContainerOptions::new().default_ttl(default_ttl(standard));
        let container = db.container_with(name, options).map_err(failed)?;
        if !self.model.has(name) {
            self.model.create_container(name, standard);
            self.synced = self.model.order;
        }
        same(
            "default",
            &container.default_ttl(),
            &default_ttl(self.model.standard(name)),
        )?;
        self.containers.insert(name.to_owned(), container);
        Ok(String::new())
    }

    fn drop_container(&mut self, db: &Database, name: &str) -> Outcome {
        self.walks.retain(|_, walk| walk.container != name);
        let dropped = db.drop_container(name).map_err(failed)?;
        same("drop", &dropped, &self.model.drop_container(name))?;
        if dropped {
            self.synced = self.model.order;
        }
        if let Some(handle) = self.containers.remove(name) {
            match handle.get("k") {
                Err(error) if error.is_closed() => {}
                other => return Err(format!("a handle of a dropped container answers {other:?}")),
            }
        }
        Ok(dropped.to_string())
    }

    fn set_ttl(&mut self, name: &str, standard: Standard) -> Outcome {
        let container = self.container(name)?;
        let done = container.set_default_ttl(default_ttl(standard));
        if matches!(standard, Standard::After(n) if n == 0 || n > MAX_TTL) {
            return refused(done.err());
        }
        if !self.model.set_standard(name, standard) {
            return match done {
                Err(Error::ClockUnsettled { .. }) => Ok("refused: the clock is unsettled".into()),
                other => Err(format!(
                    "a change of settings in an unsettled lead: {other:?}"
                )),
            };
        }
        done.map_err(failed)?;
        self.synced = self.model.order;
        same("default", &container.default_ttl(), &default_ttl(standard))?;
        Ok(String::new())
    }

    fn told(&self, what: StepExpire) -> Expire {
        let moment = |offset| self.model.time.wall.saturating_add_signed(offset);
        match what {
            StepExpire::Before(offset) => Expire::Before(moment(offset)),
            StepExpire::WrittenBefore(offset) => Expire::WrittenBefore(moment(offset)),
            StepExpire::All => Expire::All,
        }
    }

    fn expire_items(&mut self, name: &str, what: StepExpire) -> Outcome {
        let (container, what) = (self.container(name)?, self.told(what));
        let done = match what {
            Expire::Before(moment) => container.expire_before(at(moment)),
            Expire::WrittenBefore(moment) => container.expire_written_before(at(moment)),
            Expire::All => container.expire_all(),
        };
        if !self.model.expire(name, what) {
            return match done {
                Err(Error::ClockUnsettled { .. }) => Ok("refused: the clock is unsettled".into()),
                other => Err(format!("a command in an unsettled lead: {other:?}")),
            };
        }
        done.map_err(failed)?;
        self.synced = self.model.order;
        Ok(String::new())
    }

    fn given(&self, ttl: StepTtl) -> (Ttl, Given) {
        match ttl {
            StepTtl::Life(Life::Inherit) => (Ttl::Inherit, Given::Life(Life::Inherit)),
            StepTtl::Life(Life::Never) => (Ttl::Never, Given::Life(Life::Never)),
            StepTtl::Life(Life::Own(n)) => (
                Ttl::After(Duration::from_millis(n)),
                Given::Life(Life::Own(n)),
            ),
            StepTtl::Keep => (Ttl::Keep, Given::Keep),
            StepTtl::Until(offset) => {
                let moment = self.model.time.wall.saturating_add_signed(offset);
                (Ttl::Until(at(moment)), Given::Until(moment))
            }
        }
    }

    fn write(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Put(c, k, v, ttl) => {
                let container = self.container(c)?;
                let (given, model) = self.given(*ttl);
                let done = container.put_with_ttl(k, v, given);
                if out_of_range(*ttl) {
                    return refused(done.err());
                }
                done.map_err(failed)?;
                self.commit(&[Write::Put {
                    container: c.clone(),
                    key: k.clone(),
                    value: v.clone(),
                    ttl: model,
                }])
            }
            Op::Delete(c, k) => {
                self.container(c)?.delete(k).map_err(failed)?;
                self.commit(&[Write::Delete {
                    container: c.clone(),
                    key: k.clone(),
                }])
            }
            Op::DeleteRange(c, span) => {
                let container = self.container(c)?;
                let (from, to) = bounds(span);
                match &to {
                    Some(to) => container.delete_range(from.clone()..to.clone()),
                    None => container.delete_range(from.clone()..),
                }
                .map_err(failed)?;
                self.commit(&[Write::DeleteRange {
                    container: c.clone(),
                    from,
                    to,
                }])
            }
            Op::Fill(c, prefix, count, bytes, ttl) => {
                for n in 0..*count {
                    let key = format!("{prefix}{n:03}").into_bytes();
                    let value = super::op::expand(&format!("{n}*{bytes}"));
                    self.write(db, &Op::Put(c.clone(), key, value, *ttl))?;
                }
                Ok(String::new())
            }
            Op::Batch(ops) => self.write_batch(db, ops),
            _ => unreachable!("{op}"),
        }
    }

    /// A load is durable, and so is all before it. It is the newest write, also of those that come while it goes on, and was
    /// written when it began.
    fn load(&mut self, db: &Database, c: &str, parts: &[LoadPart]) -> Outcome {
        let container = self.container(c)?;
        let stamp = self.model.time.now();
        let ttls: Vec<_> = parts
            .iter()
            .map(|part| match part {
                LoadPart::Item(.., ttl) => Some(self.given(*ttl)),
                LoadPart::Meanwhile(_) => None,
            })
            .collect();
        let mut difference = None;
        let given = parts.iter().zip(&ttls).filter_map(|part| match part {
            (LoadPart::Item(k, v, _), ttl) => Some(Ok((k, v, ttl.as_ref()?.0))),
            (LoadPart::Meanwhile(op), _) => {
                let found = match op {
                    Op::Advance(_) => self.turn_clock(op),
                    op => self.act(db, op),
                };
                difference = Some(format!("{op}: {}", found.err()?));
                Some(Err(Error::Stalled))
            }
        });
        let done = container.bulk_load_with_ttl(given);
        if let Some(difference) = difference {
            return Err(difference);
        }
        let items = || {
            parts.iter().zip(&ttls).filter_map(|part| match part {
                (LoadPart::Item(k, v, ttl), given) => Some((k, v, *ttl, given.as_ref()?.1)),
                (LoadPart::Meanwhile(_), _) => None,
            })
        };
        let ascends = items().is_sorted_by(|(one, ..), (next, ..)| one < next);
        let refuses = |ttl: StepTtl| ttl == StepTtl::Keep || out_of_range(ttl);
        if !ascends || items().any(|(_, _, ttl, _)| refuses(ttl)) {
            return refused(done.err());
        }
        done.map_err(failed)?;
        let first = self.model.order + 1;
        let writes = items().map(|(k, v, _, given)| Write::Put {
            container: c.to_owned(),
            key: k.clone(),
            value: v.clone(),
            ttl: given.written_at(stamp),
        });
        let writes: Vec<Write> = writes.collect();
        self.commit(&writes)?;
        let last = self.model.order;
        self.one_version
            .extend((first..last).map(|order| (order, last)));
        self.synced = last;
        Ok(String::new())
    }

    fn write_batch(&mut self, db: &Database, ops: &[BatchOp]) -> Outcome {
        let (mut batch, mut parts, mut refuse) = (Batch::new(), vec![], false);
        let mut durable = false;
        for op in ops {
            refuse |= self.add(&mut batch, &mut parts, op)?;
            let settings = matches!(op, BatchOp::SetTtl(..) | BatchOp::ExpireItems(..));
            durable |= settings || matches!(op, BatchOp::Sync);
        }
        let done = db.commit(batch);
        if refuse {
            return refused(done.err());
        }
        let (before, expected) = (self.model.order, self.model.try_commit(&parts));
        match (done, expected) {
            (Ok(written), Ok(stamp)) => {
                if self.model.order > before {
                    same("the stamp", &millis(written.written_at()), &stamp)?;
                }
                if durable {
                    self.synced = self.model.order;
                }
                Ok(String::new())
            }
            (Err(Error::Conflict { container, key }), Err(Refused::Conflict(c, k))) => {
                same("the conflict", &(container, key), &(c.clone(), k.clone()))?;
                Ok(format!("conflict: {c} {}", shorten(&k)))
            }
            (Err(Error::ClockUnsettled { .. }), Err(Refused::Unsettled)) => {
                Ok("refused: the clock is unsettled".into())
            }
            (done, expected) => Err(format!(
                "a batch is answered with {done:?}, and should be with {expected:?}"
            )),
        }
    }

    /// Adds one part of a batch to it, and to the model's input; true: it is to be refused.
    fn add(
        &mut self,
        batch: &mut Batch,
        parts: &mut Vec<Part>,
        op: &BatchOp,
    ) -> Result<bool, String> {
        let (c, k) = match op {
            BatchOp::Put(c, k, ..)
            | BatchOp::Create(c, k, ..)
            | BatchOp::Replace(c, k, ..)
            | BatchOp::Touch(c, k)
            | BatchOp::Delete(c, k)
            | BatchOp::Require(c, k, _) => (c.clone(), k.clone()),
            BatchOp::DeleteRange(c, _) | BatchOp::SetTtl(c, _) | BatchOp::ExpireItems(c, _) => {
                (c.clone(), vec![])
            }
            BatchOp::Sync => {
                batch.durability(Durability::Sync);
                return Ok(false);
            }
        };
        let container = self.container(&c)?;
        let require = |need| Part::Require(c.clone(), k.clone(), need);
        match op {
            BatchOp::Put(_, _, v, ttl)
            | BatchOp::Create(_, _, v, ttl)
            | BatchOp::Replace(_, _, v, ttl) => {
                let (given, model) = self.given(*ttl);
                match op {
                    BatchOp::Create(..) => {
                        batch.create(&container, &k, v, given);
                        parts.push(require(Need::Absent));
                    }
                    BatchOp::Replace(..) => {
                        batch.replace(&container, &k, v, given);
                        parts.push(require(Need::Present));
                    }
                    _ => {
                        batch.put_with_ttl(&container, &k, v, given);
                    }
                }
                parts.push(Part::Write(Write::Put {
                    container: c,
                    key: k,
                    value: v.clone(),
                    ttl: model,
                }));
                return Ok(out_of_range(*ttl));
            }
            BatchOp::Touch(..) => {
                batch.touch(&container, &k);
                parts.push(Part::Touch(c, k));
            }
            BatchOp::Delete(..) => {
                batch.delete(&container, &k);
                parts.push(Part::Write(Write::Delete {
                    container: c,
                    key: k,
                }));
            }
            BatchOp::DeleteRange(_, span) => {
                let (from, to) = bounds(span);
                match &to {
                    Some(to) => batch.delete_range(&container, from.clone()..to.clone()),
                    None => batch.delete_range(&container, from.clone()..),
                };
                if to.as_ref().is_none_or(|to| *to > from) {
                    let container = c;
                    parts.push(Part::Write(Write::DeleteRange {
                        container,
                        from,
                        to,
                    }));
                }
            }
            BatchOp::SetTtl(_, standard) => {
                batch.set_default_ttl(&container, default_ttl(*standard));
                let to = *standard;
                parts.push(Part::Write(Write::SetStandard { container: c, to }));
                return Ok(matches!(to, Standard::After(n) if n == 0 || n > MAX_TTL));
            }
            BatchOp::ExpireItems(_, what) => {
                let what = self.told(*what);
                match what {
                    Expire::Before(moment) => batch.expire_before(&container, at(moment)),
                    Expire::WrittenBefore(moment) => {
                        batch.expire_written_before(&container, at(moment))
                    }
                    Expire::All => batch.expire_all(&container),
                };
                parts.push(Part::Write(Write::Expire { container: c, what }));
            }
            BatchOp::Require(_, _, wanted) => {
                let (expect, need) = self.wanted(&container, &c, &k, *wanted)?;
                batch.require(&container, &k, expect);
                parts.push(require(need));
            }
            BatchOp::Sync => unreachable!("answered above"),
        }
        Ok(false)
    }

    fn wanted(
        &mut self,
        container: &Container,
        name: &str,
        key: &[u8],
        wanted: Wanted,
    ) -> Result<(Expect, Need), String> {
        let version = container.item(key).map_err(failed)?;
        let version = version.map_or(1, |item| item.version().as_u64());
        let never = Need::Order(u64::MAX);
        Ok(match wanted {
            Wanted::Absent => (Expect::Absent, Need::Absent),
            Wanted::Present => (Expect::Present, Need::Present),
            Wanted::Same => (
                Expect::Version(Version::from_u64(version)),
                self.model.live(name, key).map_or(never, Need::Order),
            ),
            Wanted::Other => (Expect::Version(Version::from_u64(version + 1)), never),
        })
    }

    fn take(&mut self, c: &str, k: &[u8]) -> Outcome {
        let taken = self.container(c)?.take(k).map_err(failed)?;
        let found = self.model.find(c, k, u64::MAX);
        same("what is taken", &taken.as_ref().map(seen), &found)?;
        if found.is_some() {
            self.commit(&[Write::Delete {
                container: c.to_owned(),
                key: k.to_vec(),
            }])?;
        }
        Ok(found.map_or("-".into(), |seen| shorten(&seen.value)))
    }

    /// From now on the present version of a key represents its place in the order.
    fn check_version(&mut self, c: &str, k: &[u8]) -> Result<(), String> {
        let Some(order) = self.model.live(c, k) else {
            return Ok(());
        };
        if order <= self.versions_after {
            return Ok(());
        }
        let order = *self.one_version.get(&order).unwrap_or(&order);
        let item = self.container(c)?.item(k).map_err(failed)?;
        let version = item.ok_or("it was there a moment ago")?.version();
        let known = *self.versions.entry(order).or_insert(version);
        same(&format!("version of {}", shorten(k)), &version, &known)?;
        let below = self.versions.range(..order).next_back();
        let above = self.versions.range(order + 1..).next();
        let in_order = below.is_none_or(|(_, below)| *below < version)
            && above.is_none_or(|(_, above)| version < *above);
        match in_order {
            true => Ok(()),
            false => Err(format!(
                "version {version} of {}: {below:?}, {above:?}",
                shorten(k)
            )),
        }
    }

    /// Applies to the model what the engine has done.
    fn commit(&mut self, writes: &[Write]) -> Outcome {
        self.model.commit(writes);
        Ok(String::new())
    }

    fn write_if(&mut self, op: &Op) -> Outcome {
        let (Op::Create(c, k, ..)
        | Op::Replace(c, k, ..)
        | Op::Touch(c, k)
        | Op::Expire(c, k, _)
        | Op::Update(c, k, _)) = op
        else {
            unreachable!("{op}")
        };
        let container = self.container(c)?;
        let found = self.model.find(c, k, u64::MAX);
        let mut shown_to_update = None;
        let (done, ttl) = match op {
            Op::Create(_, _, v, ttl) => (container.create(k, v, self.given(*ttl).0), *ttl),
            Op::Replace(_, _, v, ttl) => (container.replace(k, v, self.given(*ttl).0), *ttl),
            Op::Touch(..) => (container.touch(k), super::op::INHERIT),
            Op::Expire(_, _, ttl) => (container.expire(k, self.given(*ttl).0), *ttl),
            Op::Update(_, _, change) => {
                let ttl = if let Change::Put(_, ttl) = change {
                    *ttl
                } else {
                    super::op::INHERIT
                };
                let given = self.given(ttl).0;
                let done = container.update(k, |item| {
                    shown_to_update = item.map(seen);
                    decide(change, item, given)
                });
                same("what update is shown", &shown_to_update, &found)?;
                (done, ttl)
            }
            _ => unreachable!("{op}"),
        };
        if out_of_range(ttl) {
            return refused(done.err());
        }
        let done = done.map_err(failed)?;
        let write = self.model_write_if(op, c, k, found.as_ref());
        same(&format!("{op}"), &done, &write.is_some())?;
        if let Some(write) = write {
            self.commit(&[write])?;
        }
        Ok(done.to_string())
    }

    fn model_write_if(&self, op: &Op, c: &str, k: &[u8], found: Option<&Seen>) -> Option<Write> {
        let write = |value: &[u8], ttl| Write::Put {
            container: c.to_owned(),
            key: k.to_vec(),
            value: value.to_vec(),
            ttl,
        };
        match (op, found) {
            (Op::Create(_, _, v, ttl), None) | (Op::Replace(_, _, v, ttl), Some(_)) => {
                Some(write(v, self.given(*ttl).1))
            }
            (Op::Expire(_, _, ttl), Some(seen)) => Some(write(&seen.value, self.given(*ttl).1)),
            (Op::Touch(..), Some(seen)) => Some(write(&seen.value, Given::Life(seen.life))),
            (Op::Update(_, _, change), _) => match change {
                Change::Keep => None,
                // Deleting a missing item writes nothing.
                Change::Delete => found.map(|_| Write::Delete {
                    container: c.to_owned(),
                    key: k.to_vec(),
                }),
                Change::Append(v) => {
                    let before = found.map(|seen| seen.value.as_slice()).unwrap_or_default();
                    let life = found.map_or(Life::Inherit, |seen| seen.life);
                    // A ttl of 0 comes only from a moment in the past; no write accepts it.
                    let life = if life == Life::Own(0) {
                        Life::Inherit
                    } else {
                        life
                    };
                    Some(write(&[before, v].concat(), Given::Life(life)))
                }
                Change::Put(v, ttl) => Some(write(v, self.given(*ttl).1)),
            },
            _ => None,
        }
    }

    fn count(&mut self) -> Result<(), String> {
        let count = self.counted.len();
        let own = &self.containers[OWN];
        own.put_with_ttl("counter", count.to_string(), Ttl::Never)
            .map_err(failed)?;
        let stamp = own
            .item("counter")
            .map_err(failed)?
            .map(|item| millis(item.written_at()));
        let written_at = self.model.commit(&[put(
            OWN,
            b"counter",
            count.to_string().as_bytes(),
            Life::Never,
        )]);
        self.counted.push(self.model.order);
        same("the stamp", &stamp, &Some(written_at))
    }

    fn maintain(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Flush => {
                db.flush().map_err(failed)?;
                self.synced = self.model.order;
            }
            Op::Step(count) => {
                let mut rested = false;
                for _ in 0..*count {
                    rested = !db.step().map_err(failed)?;
                    if rested {
                        break;
                    }
                }
                let now = self.model.time.uptime;
                let long_ago = self
                    .acknowledged
                    .iter()
                    .rfind(|(at, _)| *count > 0 && at + SYNC_INTERVAL <= now);
                self.synced = self.synced.max(long_ago.map_or(0, |(_, order)| *order));
                if *count == ALL && !rested {
                    return Err("background work does not come to rest".into());
                }
            }
            Op::Compact => db.compact().map_err(failed)?,
            Op::Sync => {
                db.sync().map_err(failed)?;
                self.synced = self.model.order;
            }
            Op::Checkpoint => return self.checkpoint(db),
            _ => unreachable!("{op}"),
        }
        Ok(String::new())
    }

    /// Makes a copy, opens it, and checks everything in it.
    fn checkpoint(&mut self, db: &Database) -> Outcome {
        self.checkpoints += 1;
        let path = format!("/copy{}", self.checkpoints);
        db.checkpoint(&path).map_err(failed)?;
        // If the wall is behind, the copy may start at an earlier moment than the original's.
        if self.model.time.unsettled() || self.model.time.wall != self.model.time.settled {
            return Ok(String::new());
        }
        let copy = self
            .setup
            .options(&self.sim, &self.clock)
            .open(&path)
            .map_err(failed)?;
        let names = self.model.containers();
        for name in names.into_iter().filter(|name| name != OWN) {
            let found = all(copy.container(&name).map_err(failed)?.iter())?;
            same(
                &format!("{name} in the checkpoint"),
                &found,
                &self.model.scan(&name, b"", None, u64::MAX),
            )?;
        }
        copy.close().map_err(failed)?;
        Ok(String::new())
    }

    // ---- reading

    fn view(
        &mut self,
        snapshot: Option<&String>,
        name: &str,
    ) -> Result<Option<(Reader, u64)>, String> {
        let Some(snapshot) = snapshot else {
            return Ok(Some((Reader::Live(self.container(name)?), u64::MAX)));
        };
        let (taken, order) = self
            .snapshots
            .get(snapshot)
            .ok_or(format!("there is no snapshot {snapshot}"))?;
        match (taken.container(name), self.model.had(name, *order)) {
            (Ok(view), true) => Ok(Some((Reader::Then(view), *order))),
            (Err(_), false) => Ok(None),
            (Ok(_), false) => Err(format!(
                "snapshot {snapshot} shows {name}, which was not there"
            )),
            (Err(error), true) => Err(format!("snapshot {snapshot} does not show {name}: {error}")),
        }
    }

    fn read(&mut self, op: &Op) -> Outcome {
        let (Op::Get(snapshot, c, _)
        | Op::Item(snapshot, c, _)
        | Op::Contains(snapshot, c, _)
        | Op::Scan(snapshot, c, ..)) = op
        else {
            unreachable!("{op}")
        };
        let Some((reader, order)) = self.view(snapshot.as_ref(), c)? else {
            return Ok("no such container".into());
        };
        match op {
            Op::Get(_, c, k) | Op::Item(_, c, k) | Op::Contains(_, c, k) => {
                let found = self.model.find(c, k, order);
                reader.compare(k, found.as_ref())?;
                Ok(match (op, found) {
                    (Op::Contains(..), found) => found.is_some().to_string(),
                    (_, None) => format!("{} -", shorten(k)),
                    (Op::Get(..), Some(seen)) => {
                        format!("{} = {}", shorten(k), shorten(&seen.value))
                    }
                    (_, Some(seen)) => show_item(&seen),
                })
            }
            Op::Scan(_, c, span, reverse) => {
                let (from, to) = bounds(span);
                let mut expected = self.model.scan(c, &from, to.as_deref(), order);
                let iter = reader.iter(span);
                let found = if *reverse {
                    all(iter.rev())?
                } else {
                    all(iter)?
                };
                if *reverse {
                    expected.reverse();
                }
                same_items(&format!("{op}"), &found, &expected)?;
                Ok(show_items(&found))
            }
            _ => unreachable!("{op}"),
        }
    }

    fn keep(&mut self, db: &Database, op: &Op) -> Outcome {
        match op {
            Op::Snapshot(name) => {
                self.snapshots
                    .insert(name.clone(), (db.snapshot(), self.model.order));
            }
            Op::Release(name) => {
                self.snapshots.remove(name);
            }
            Op::Iter(name, c, span) => {
                let iter = Reader::Live(self.container(c)?).iter(span);
                let (from, to) = bounds(span);
                let walk = Walk {
                    iter,
                    container: c.clone(),
                    order: self.model.order,
                    from,
                    to,
                    done: false,
                };
                self.walks.insert(name.clone(), walk);
            }
            Op::Next(name, count) | Op::Back(name, count) => {
                return self.walk(name, *count, matches!(op, Op::Back(..)));
            }
            Op::Hold(c, k) => {
                let value = self.container(c)?.get(k).map_err(failed)?;
                let seen = self.model.find(c, k, u64::MAX);
                same(
                    "held value",
                    &value.as_ref().map(|v| v.to_vec()),
                    &seen.map(|seen| seen.value),
                )?;
                self.held.extend(value.map(|value| Held {
                    bytes: value.to_vec(),
                    value,
                }));
            }
            _ => unreachable!("{op}"),
        }
        Ok(String::new())
    }

    fn walk(&mut self, name: &str, count: usize, back: bool) -> Outcome {
        let Some(walk) = self.walks.get_mut(name) else {
            return Ok("no such iterator".into());
        };
        let mut shown = vec![];
        for _ in 0..count {
            let mut left = match walk.done {
                true => vec![],
                false => {
                    self.model
                        .scan(&walk.container, &walk.from, walk.to.as_deref(), walk.order)
                }
            };
            let expected = if back {
                left.pop()
            } else {
                left.into_iter().next()
            };
            let found = if back {
                walk.iter.next_back()
            } else {
                walk.iter.next()
            };
            let found = found.transpose().map_err(failed)?.map(|item| seen(&item));
            same(&format!("iterator {name}"), &found, &expected)?;
            match expected {
                None => walk.done = true,
                Some(seen) if back => walk.to = Some(seen.key),
                Some(seen) => walk.from = [seen.key.as_slice(), &[0]].concat(),
            }
            shown.extend(found);
        }
        Ok(show_items(&shown))
    }

    fn explain(&self, name: &str) -> String {
        let container = self.containers.get(name);
        container.map_or("-".into(), |container| container.stats().explain)
    }

    fn stats(&self, name: &str) -> String {
        let stats = self
            .containers
            .get(name)
            .map(Container::stats)
            .unwrap_or_default();
        let oldest = stats
            .oldest_unreclaimed
            .map_or("-".into(), |moment| show_moment(millis(moment)));
        format!(
            "expired {} superseded {} oldest {oldest} runs {}",
            stats.expired_bytes, stats.superseded_bytes, stats.runs
        )
    }

    // ---- comparing everything

    /// Compares everything visible with the model.
    pub fn check(&mut self) -> Result<(), String> {
        self.check_scans()?;
        let mut names = self.model.containers();
        names.retain(|name| name != OWN);
        for name in &names {
            let reader = Reader::Live(self.container(name)?);
            self.check_keys(&reader, name, u64::MAX)?;
        }
        let snapshots: Vec<String> = self.snapshots.keys().cloned().collect();
        for snapshot in &snapshots {
            for name in &names {
                if let Some((reader, order)) = self.view(Some(snapshot), name)? {
                    self.check_scan(&reader, name, order)
                        .map_err(|e| format!("snapshot {snapshot}: {e}"))?;
                    self.check_keys(&reader, name, order)
                        .map_err(|e| format!("snapshot {snapshot}: {e}"))?;
                }
            }
        }
        for held in &self.held {
            same("a held value", &held.value.to_vec(), &held.bytes)?;
        }
        Ok(())
    }

    /// Every container, forwards and backwards.
    pub fn check_scans(&mut self) -> Result<(), String> {
        for name in self.model.containers().iter().filter(|name| *name != OWN) {
            let reader = Reader::Live(self.container(name)?);
            self.check_scan(&reader, name, u64::MAX)?;
        }
        Ok(())
    }

    /// The same after a reopen.
    pub fn check_scans_of_all(&mut self) -> Result<(), String> {
        self.db()?;
        self.check_scans()
    }

    fn check_scan(&mut self, reader: &Reader, name: &str, order: u64) -> Result<(), String> {
        let expected = self.model.scan(name, b"", None, order);
        same(
            &format!("scan {name}"),
            &all(reader.iter(&Span::default()))?,
            &expected,
        )?;
        let mut back = all(reader.iter(&Span::default()).rev())?;
        back.reverse();
        same_items(&format!("scan {name} reverse"), &back, &expected)
    }

    fn check_keys(&mut self, reader: &Reader, name: &str, order: u64) -> Result<(), String> {
        for key in self.model.keys(name) {
            let found = self.model.find(name, &key, order);
            reader
                .compare(&key, found.as_ref())
                .map_err(|e| format!("{name}: {e}"))?;
            self.check_version(name, &key)
                .map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(())
    }
}

/// A container, or a snapshot's view of one.
enum Reader {
    Live(Container),
    Then(View),
}

impl Reader {
    fn iter(&self, span: &Span) -> Iter {
        let (from, to) = (span.from.clone(), span.to.clone());
        match (self, span.prefix, to) {
            (Reader::Live(c), true, _) => c.prefix(&span.from),
            (Reader::Live(c), false, Some(to)) => c.range(from..to),
            (Reader::Live(c), false, None) if from.is_empty() => c.iter(),
            (Reader::Live(c), false, None) => c.range(from..),
            (Reader::Then(v), true, _) => v.prefix(&span.from),
            (Reader::Then(v), false, Some(to)) => v.range(from..to),
            (Reader::Then(v), false, None) if from.is_empty() => v.iter(),
            (Reader::Then(v), false, None) => v.range(from..),
        }
    }

    /// Compares all three ways to read a key.
    fn compare(&self, key: &[u8], expected: Option<&Seen>) -> Result<(), String> {
        let (item, value, there) = match self {
            Reader::Live(c) => (c.item(key), c.get(key), c.contains(key)),
            Reader::Then(v) => (v.item(key), v.get(key), v.contains(key)),
        };
        let word = shorten(key);
        same(
            &format!("item {word}"),
            &item.map_err(failed)?.as_ref().map(seen).as_ref(),
            &expected,
        )?;
        let value = value.map_err(failed)?.map(|value| value.to_vec());
        same(
            &format!("get {word}"),
            &value.as_ref(),
            &expected.map(|seen| &seen.value),
        )?;
        same(
            &format!("contains {word}"),
            &there.map_err(failed)?,
            &expected.is_some(),
        )
    }
}

fn put(container: &str, key: &[u8], value: &[u8], life: Life) -> Write {
    Write::Put {
        container: container.to_owned(),
        key: key.to_vec(),
        value: value.to_vec(),
        ttl: Given::Life(life),
    }
}

fn decide(change: &Change, item: Option<&Item>, given: Ttl) -> Update {
    match change {
        Change::Keep => Update::Keep,
        Change::Delete => Update::Delete,
        Change::Put(v, _) => Update::Put(v.clone(), given),
        Change::Append(v) => {
            let before = item.map(|item| item.value().to_vec()).unwrap_or_default();
            let ttl = match item.map(Item::ttl) {
                None | Some(Ttl::After(Duration::ZERO)) => Ttl::Inherit,
                Some(ttl) => ttl,
            };
            Update::Put([before, v.clone()].concat(), ttl)
        }
    }
}

fn out_of_range(ttl: StepTtl) -> bool {
    matches!(ttl, StepTtl::Life(Life::Own(n)) if n == 0 || n > MAX_TTL)
}

fn refused(error: Option<Error>) -> Outcome {
    match error {
        Some(error @ Error::InvalidArgument { .. }) => Ok(format!("refused: {error}")),
        other => Err(format!("a ttl out of range is answered with {other:?}")),
    }
}

/// Milliseconds since the epoch.
fn at(moment: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(moment)
}

fn default_ttl(standard: Standard) -> DefaultTtl {
    match standard {
        Standard::Off => DefaultTtl::Off,
        Standard::NoDefault => DefaultTtl::NoDefault,
        Standard::After(n) => DefaultTtl::After(Duration::from_millis(n)),
    }
}

/// The range of a step, with a prefix turned into one.
pub fn bounds(span: &Span) -> (Bytes, Option<Bytes>) {
    if !span.prefix {
        return (span.from.clone(), span.to.clone());
    }
    let mut to = span.from.clone();
    while let Some(last) = to.pop() {
        if last < 0xff {
            to.push(last + 1);
            return (span.from.clone(), Some(to));
        }
    }
    (span.from.clone(), None)
}

pub fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .expect("after the epoch")
        .as_millis() as u64
}

fn seen(item: &Item) -> Seen {
    Seen {
        key: item.key().to_vec(),
        value: item.value().to_vec(),
        written_at: millis(item.written_at()),
        life: match item.ttl() {
            Ttl::Inherit => Life::Inherit,
            Ttl::Never => Life::Never,
            Ttl::After(time) => Life::Own(time.as_millis() as u64),
            other => panic!("no item has the ttl {other:?}"),
        },
        expires_at: item.expires_at().map(millis),
    }
}

fn all(iter: impl Iterator<Item = ebbtide::Result<Item>>) -> Result<Vec<Seen>, String> {
    iter.map(|item| item.map(|item| seen(&item)).map_err(failed))
        .collect()
}

fn show_moment(millis: u64) -> String {
    let offset = millis as i64 - START as i64;
    format!(
        "{}{}",
        if offset < 0 { "-" } else { "" },
        show_duration(offset.unsigned_abs())
    )
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_item(self))
    }
}

fn show_item(seen: &Seen) -> String {
    let expires = seen.expires_at.map_or("never".into(), show_moment);
    format!(
        "{} = {} written {} ttl {} expires {expires}",
        shorten(&seen.key),
        shorten(&seen.value),
        show_moment(seen.written_at),
        seen.life
    )
}

fn show_items(items: &[Seen]) -> String {
    if items.is_empty() {
        return "nothing".into();
    }
    let items: Vec<String> = items
        .iter()
        .map(|s| format!("{}={}", shorten(&s.key), shorten(&s.value)))
        .collect();
    items.join(" ")
}

fn same<T: PartialEq + fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "{what}:\n   engine {found:?}\n   model  {expected:?}"
    ))
}

/// Lists what only one of them has.
fn same_items(what: &str, found: &[Seen], expected: &[Seen]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let only = |a: &[Seen], b: &[Seen]| {
        a.iter()
            .filter(|item| !b.contains(item))
            .cloned()
            .collect::<Vec<_>>()
    };
    let (engine, model) = (only(found, expected), only(expected, found));
    let order = if engine.is_empty() && model.is_empty() {
        "\n   in another order, or twice"
    } else {
        ""
    };
    Err(format!(
        "{what}:\n   only the engine {engine:?}\n   only the model  {model:?}{order}"
    ))
}

/// The path of the database on its simulated disk.
pub fn path() -> &'static Path {
    Path::new(PATH)
}
