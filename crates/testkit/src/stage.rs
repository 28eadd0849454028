//! A database on a simulated disk, by a clock that the test moves, with background work step by step; one container is open.
//!
//! ```text
//! let stage = Stage::new(|options| options.memtable_bytes(64 << 10));
//! stage.c.put_with_ttl("k", "v", after(10))?;    stage.pass(10);    at(10) == stage.db.now()
//! let stage = stage.reopen(false);                after a kill; true: after an orderly end
//! let stage = stage.on(sim.power_cut(1));         on another disk, by the same options
//! stage.rest()  reclaim()                         background work ends; all that can go from the disk has gone
//! ```
//!
//! Its fields can be taken out, and whoever needs other containers or a second database has `options`.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::{Call, Fault, FaultPlan, Fs, Sim};
use ebbtide::{
    Clock, Container, ContainerOptions, Database, DefaultTtl, Item, ManualClock, Options, Result,
    Ttl,
};

/// When every stage begins.
pub const NOW: u64 = 1_767_225_600_000;
/// Where every stage has its database.
pub const PATH: &str = "/db";

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub const fn after(millis: u64) -> Ttl {
    Ttl::After(ms(millis))
}

pub const fn default(millis: u64) -> DefaultTtl {
    DefaultTtl::After(ms(millis))
}

/// So many milliseconds after the beginning.
pub fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + ms(NOW + millis)
}

/// The milliseconds from the beginning to a moment.
pub fn since(moment: SystemTime) -> u64 {
    let since = moment.duration_since(at(0)).expect("after the beginning");
    since.as_millis() as u64
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The keys of items.
pub fn keys(items: impl IntoIterator<Item = Result<Item>>) -> Vec<String> {
    let items = items.into_iter().map(|item| item.expect("an item"));
    items.map(|item| text(item.key())).collect()
}

/// Keys and values of items.
pub fn pairs(items: impl IntoIterator<Item = Result<Item>>) -> Vec<(String, String)> {
    let items = items.into_iter().map(|item| item.expect("an item"));
    items
        .map(|item| (text(item.key()), text(item.value())))
        .collect()
}

/// The same as bytes.
pub fn bytes(items: impl IntoIterator<Item = Result<Item>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let items = items.into_iter().map(|item| item.expect("an item"));
    items
        .map(|item| (item.key().to_vec(), item.value().to_vec()))
        .collect()
}

type Adapt = Arc<dyn Fn(Options) -> Options + Send + Sync>;

pub struct Stage {
    pub sim: Sim,
    pub clock: ManualClock,
    pub db: Database,
    pub c: Container,
    adapt: Adapt,
}

impl Stage {
    /// With these options beside disk, clock and steps.
    pub fn new(adapt: impl Fn(Options) -> Options + Send + Sync + 'static) -> Stage {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let adapt: Adapt = Arc::new(adapt);
        let (db, c) = open(adapted(&adapt, &sim, &clock));
        Stage {
            sim,
            clock,
            db,
            c,
            adapt,
        }
    }

    /// With memtables, blocks, tables and segments of which some writes make several.
    pub fn small() -> Stage {
        Stage::new(small)
    }

    /// The options of every open.
    pub fn options(&self) -> Options {
        self.options_on(&self.sim)
    }

    /// The same for another disk.
    pub fn options_on(&self, sim: &Sim) -> Options {
        adapted(&self.adapt, sim, &self.clock)
    }

    /// The database as it lies on another disk, beside this one.
    pub fn open_on(&self, sim: &Sim) -> (Database, Container) {
        open(self.options_on(sim))
    }

    /// The same with a container of these options.
    pub fn with(mut self, options: ContainerOptions) -> Stage {
        let changed = self.db.container_with("c", options.or_change());
        self.c = changed.expect("a container");
        self
    }

    /// Opens again, after an orderly end or a kill.
    pub fn reopen(self, orderly: bool) -> Stage {
        let sim = match orderly {
            true => {
                self.db.close().expect("it closes");
                self.sim.clone()
            }
            false => self.sim.kill(),
        };
        self.on(sim)
    }

    /// Goes on with what lies on another disk, after a power cut.
    pub fn on(self, sim: Sim) -> Stage {
        let Stage {
            clock,
            adapt,
            db,
            c,
            ..
        } = self;
        drop((c, db));
        let (db, c) = open(adapted(&adapt, &sim, &clock));
        Stage {
            sim,
            clock,
            db,
            c,
            adapt,
        }
    }

    pub fn pass(&self, millis: u64) {
        self.clock.advance(ms(millis));
    }

    /// Background work until there is none; it comes to an end.
    #[track_caller]
    pub fn rest(&self) {
        rest(&self.db);
    }

    /// Everything that can go from the disk goes.
    #[track_caller]
    pub fn reclaim(&self) {
        self.db.flush().expect("it flushes");
        self.rest();
        self.db.compact().expect("it compacts");
    }

    pub fn keys(&self) -> Vec<String> {
        keys(self.c.iter())
    }
}

/// Background work until there is none; it comes to an end.
#[track_caller]
pub fn rest(db: &Database) {
    let rested = (0..500).any(|_| !db.step().expect("a step"));
    assert!(rested, "it goes on for ever:\n{}", db.describe());
}

/// From now on each such call fails, until the disk is healed.
pub fn fail_from_now(
    sim: &Sim,
    kind: Fault,
    which: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
) {
    let plan = FaultPlan {
        at: sim.operations(),
        kind,
        lasting: true,
    };
    sim.fail_where(plan, which);
}

/// The options of [`Stage::small`].
pub fn small(options: Options) -> Options {
    options
        .memtable_bytes(64 << 10)
        .sizes(512, 16 << 10, 64 << 10)
}

fn adapted(adapt: &Adapt, sim: &Sim, clock: &ManualClock) -> Options {
    adapt(in_steps(sim, clock))
}

/// The options of a database on this disk and by this clock.
pub fn on(fs: &(impl Fs + Clone + 'static), clock: &(impl Clock + Clone + 'static)) -> Options {
    Options::new().fs(Arc::new(fs.clone())).clock(clock.clone())
}

/// The same with background work step by step.
pub fn in_steps(
    fs: &(impl Fs + Clone + 'static),
    clock: &(impl Clock + Clone + 'static),
) -> Options {
    on(fs, clock).stepped()
}

/// A database by these options alone, where every stage has its own, and its container.
#[track_caller]
pub fn open(options: impl Borrow<Options>) -> (Database, Container) {
    let db = options.borrow().open(PATH).expect("it opens");
    let c = db.container("c").expect("a container");
    (db, c)
}
