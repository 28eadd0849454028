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

use std::collections::{BTreeMap, BTreeSet};
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
    BatchStep, Expire, Given, Life, MAX_TTL, Model, Need, Refused, Seen, Standard, Time, Write,
};
use crate::op::{
    ALL, BatchOp, Bytes, Change, LoadPart, Op, Span, StepExpire, StepTtl, Wanted, duration,
    shorten, show_duration,
};

mod check;
mod life;
mod reads;
mod values;
mod writes;

use check::ContainerView;
use values::*;
pub(crate) use values::{all, at, same};
pub use values::{bounds, millis, path};

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

struct HeldRead {
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
    held: Vec<HeldRead>,
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
    /// The places of writes of transactions, each of which keeps its writes in an order of its own.
    unordered: BTreeSet<u64>,
    /// The last write that must survive the crash that the next open recovers from.
    survives: u64,
    cut: bool,
}

pub(crate) type Settings = (usize, Vec<u64>);
pub(crate) type Outcome = Result<String, String>;

pub(crate) fn failed(error: Error) -> String {
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
            unordered: BTreeSet::new(),
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

    /// Takes one step.
    pub fn run(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Crash | Op::PowerCut(_) | Op::Close | Op::Reopen(_) => return self.end(op),
            Op::Advance(_) | Op::Jump(_) | Op::ConfirmClock => return self.turn_clock(op),
            _ => {}
        }
        self.step(|world, db| world.act(db, op))
    }

    /// The same for a step of somebody else.
    pub(crate) fn step(&mut self, act: impl FnOnce(&mut World, &Database) -> Outcome) -> Outcome {
        let db = self.db()?;
        let before = self.model.order;
        let shown = act(self, &db)?;
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
            Op::Observe(name, _) => Err(format!("no observer {name} is here")),
            _ => unreachable!("{op}"),
        }
    }

    /// A transaction has committed these writes, which the model has.
    pub(crate) fn committed(&mut self, since: u64) {
        self.unordered.extend(since + 1..=self.model.order);
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

    /// The items of each container, as the model has them.
    pub(crate) fn shown(&mut self) -> Result<Vec<(String, Vec<Seen>)>, String> {
        self.db()?;
        let names = self.model.containers().into_iter();
        let shown = names.map(|name| {
            let items = self.model.scan(&name, b"", None, u64::MAX);
            (name, items)
        });
        Ok(shown.collect())
    }

    /// The number of changes of settings so far, and the births of containers.
    pub(crate) fn settings(&self) -> Settings {
        let names = self.model.containers();
        let births = names.iter().filter_map(|name| self.model.born(name));
        (self.model.changes(), births.collect())
    }

    /// The containers of the history.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.model.containers();
        names.retain(|name| name != OWN);
        names
    }

    pub(crate) fn container(&mut self, name: &str) -> Result<Container, String> {
        if let Some(container) = self.containers.get(name) {
            return Ok(container.clone());
        }
        let db = self.db()?;
        self.open_container(&db, name, Standard::Off)?;
        Ok(self.containers[name].clone())
    }

    fn open_container(&mut self, db: &Database, name: &str, standard: Standard) -> Outcome {
        let options = ContainerOptions::new()
            .default_ttl(default_ttl(standard))
            .or_keep();
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
}
