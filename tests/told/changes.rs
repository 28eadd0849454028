//! Goal: a copy that is kept by changes alone is the database, at each version that it claims; what it cannot be told, it is
//! told that.
//!
//! Method: single histories on a simulated disk with a manual clock. Random ones, in which copies are kept while everything
//! happens, stand in tests/contract/model.rs.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

mod pages;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ebbtide::internals::{Sim, Survivors};
use ebbtide::{
    Batch, Change, Changes, Container, Database, DefaultTtl, Error, ExpiryRule, Item, ManualClock,
    Options, Result, Ttl, Version,
};
use testkit::random::Random;
use testkit::stage;

const NOW: u64 = 1_767_225_600_000;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A copy of a database, and how far it has come.
#[derive(Default)]
struct Copy {
    version: Option<Version>,
    told: testkit::copy::Copy,
}

impl Copy {
    /// Takes in a pass.
    fn pass(&mut self, changes: &mut Changes, now: SystemTime) -> Result<usize> {
        let mut told = 0;
        for change in &mut *changes {
            self.told.apply(change?, now).unwrap();
            told += 1;
        }
        self.version = Some(changes.version());
        Ok(told)
    }

    /// Takes in the changes since its version; begins anew if it has to, and tells whether it had.
    fn catch_up(&mut self, db: &Database) -> bool {
        let since = self.version.unwrap_or(Version::start());
        match self.pass(&mut db.changes(since), db.now()) {
            Ok(_) => false,
            Err(error) => {
                assert!(error.is_changes_gone(), "{error}");
                *self = Copy::default();
                self.pass(&mut db.changes(Version::start()), db.now())
                    .unwrap();
                true
            }
        }
    }

    fn compare(&self, db: &Database, who: &str) {
        self.compare_with(&contents(db), db.now(), who);
    }

    fn compare_with(&self, contents: &Contents, now: SystemTime, who: &str) {
        let names: Vec<&String> = self.told.parts.keys().collect();
        assert_eq!(names, contents.keys().collect::<Vec<_>>(), "{who}");
        for (name, part) in &self.told.parts {
            let rule = part.rule.as_ref().unwrap();
            let (default, there) = &contents[name];
            assert_eq!(rule.default_ttl(), *default, "{who}");
            assert_eq!(
                part.live(now).map(shown).collect::<Vec<_>>(),
                *there,
                "{who} in {name}"
            );
        }
    }
}

type Shown = (Vec<u8>, Vec<u8>, Version, SystemTime, Ttl);
/// Of each container the default and the live items.
type Contents = BTreeMap<String, (DefaultTtl, Vec<Shown>)>;

fn shown(item: &Item) -> Shown {
    let (key, value) = (item.key().to_vec(), item.value().to_vec());
    (key, value, item.version(), item.written_at(), item.ttl())
}

fn contents(db: &Database) -> Contents {
    let of = |name: &String| {
        let c = db.container(name).unwrap();
        let items = c.iter().map(|item| shown(&item.unwrap()));
        (c.default_ttl(), items.collect())
    };
    db.containers()
        .into_iter()
        .map(|name| (name.clone(), of(&name)))
        .collect()
}

struct World {
    sim: Sim,
    clock: ManualClock,
    db: Database,
}

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    Options::new()
        .fs(Arc::new(sim.clone()))
        .clock(clock.clone())
        .stepped()
        .memtable_bytes(16 << 10)
        .sizes(256, 2 << 10, 16 << 10)
        .max_runs(3)
        .reclaim_within(Duration::from_secs(5))
}

impl World {
    fn new(seed: u64) -> World {
        let (sim, clock) = (Sim::new(seed), ManualClock::new(NOW));
        let db = options(&sim, &clock).open("/db").unwrap();
        World { sim, clock, db }
    }

    /// Opens again, after a kill or an orderly end.
    fn again(&mut self, is_killed: bool) {
        if is_killed {
            self.sim = self.sim.kill();
        } else {
            self.db.close().unwrap();
        }
        self.db = options(&self.sim, &self.clock).open("/db").unwrap();
    }

    fn c(&self, name: &str) -> Container {
        self.db.container(name).unwrap()
    }

    fn steps(&self) {
        while self.db.step().unwrap() {}
    }
}

fn ttl(random: &mut Random) -> Ttl {
    match random.below(6) {
        0 => Ttl::Never,
        1 | 2 => Ttl::Inherit,
        3 => Ttl::Keep,
        _ => Ttl::After(Duration::from_millis(200 << random.below(9))),
    }
}

fn key(random: &mut Random) -> String {
    format!("k{:02}", random.below(40))
}

fn value(random: &mut Random) -> String {
    "v".repeat(random.below(200))
}

/// Steps below this leave time standing and the database open; those behind it let time pass, or open the database again.
const WHILE_TIME_STANDS: usize = 92;
const ALL: usize = 100;

/// A bulk load, in which the default may change and time may pass.
fn load(world: &World, random: &mut Random, advances: bool) {
    let (c, ttl) = (world.c(random.pick(&NAMES)), ttl(random));
    let changes = advances && random.one_in(2);
    let value = value(random);
    let keys = (0..40).step_by(1 + random.below(9));
    let items = keys.map(|at| {
        if at == 0 && changes {
            for default in [
                DefaultTtl::After(Duration::from_secs(1)),
                DefaultTtl::NoDefault,
            ] {
                c.set_default_ttl(default).unwrap();
                world.clock.advance(Duration::from_millis(1_500));
            }
        }
        let ttl = if ttl == Ttl::Keep { Ttl::Inherit } else { ttl };
        Ok((format!("k{at:02}"), value.as_str(), ttl))
    });
    c.bulk_load_with_ttl(items).unwrap();
}

/// One random step of the first so many; whether it opened the database again.
fn step(world: &mut World, random: &mut Random, of: usize) -> bool {
    let name = random.pick(&NAMES);
    let (db, c) = (&world.db, world.c(name));
    match random.below(of) {
        0 => load(world, random, of == ALL),
        1..45 => c
            .put_with_ttl(key(random), value(random), ttl(random))
            .unwrap(),
        45..60 => c.delete(key(random)).unwrap(),
        60..64 => c.delete_range(key(random)..key(random)).unwrap(),
        64..70 => {
            let (other, mut batch) = (world.c(random.pick(&NAMES)), Batch::new());
            batch.put(&c, key(random), value(random));
            batch.delete(&other, key(random));
            batch.put_with_ttl(&other, key(random), value(random), ttl(random));
            if random.one_in(3) {
                batch.set_default_ttl(&c, DefaultTtl::After(Duration::from_secs(7)));
            }
            db.write(batch).unwrap();
        }
        70..73 => {
            let millis = Duration::from_millis(500 << random.below(6));
            let after = DefaultTtl::After(millis);
            let default = random.pick(&[DefaultTtl::Off, DefaultTtl::NoDefault, after, after]);
            c.set_default_ttl(default).unwrap();
        }
        73..76 => {
            let moment =
                db.now() + Duration::from_secs(2) - Duration::from_secs(1) * random.below(4) as u32;
            let told = match random.below(3) {
                0 => c.expire_before(moment),
                1 => c.expire_written_before(moment),
                _ => c.expire_all(),
            };
            // Too many stand.
            told.unwrap_or_else(|error| assert!(error.is_retryable()));
        }
        76 => drop(db.drop_container(name).unwrap()),
        77 => c.clear().unwrap(),
        78..82 => db.flush().unwrap(),
        82..84 => db.compact().unwrap(),
        84..92 => world.steps(),
        WHILE_TIME_STANDS..98 => world
            .clock
            .advance(Duration::from_millis(100 << random.below(6))),
        _ => {
            world.again(random.one_in(2));
            return true;
        }
    }
    false
}

/// The default is lifted before the rule of its container is told: the rule tells when it ended, and what lived on is not
/// removed by it.
#[test]
fn a_rule_that_was_lifted_before_it_was_told_ends_nothing_since() {
    let world = World::new(1);
    let (a, b) = (world.c("a"), world.c("b"));
    a.put("x", "1").unwrap();
    b.set_default_ttl(DefaultTtl::After(Duration::from_secs(1)))
        .unwrap();
    b.put("k", "lives on").unwrap();
    world.clock.advance(Duration::from_millis(500));
    b.put_with_ttl("l", "ends", Duration::from_millis(100))
        .unwrap();
    let mut copy = Copy::default();
    let mut changes = world.db.changes(Version::start());
    let first = changes.next().unwrap().unwrap();
    copy.told.apply(first, world.db.now()).unwrap();
    b.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    world.clock.advance(Duration::from_secs(9));
    world.db.compact().unwrap();
    copy.pass(&mut changes, world.db.now()).unwrap();
    let part = &copy.told.parts["b"];
    let rule = part.rule.clone().unwrap();
    assert_eq!(
        rule.default_ttl(),
        DefaultTtl::After(Duration::from_secs(1))
    );
    let now = world.db.now();
    assert!(part.live(now).any(|item| item.key() == b"k"));
    copy.pass(&mut changes, world.db.now()).unwrap();
    copy.compare(&world.db, "told what came meanwhile");
    assert!(copy.told.parts["b"].items.contains_key(&b"k"[..]));
}

/// A copy that is stored keeps the rule with it.
#[test]
fn a_rule_is_plain_data() {
    let world = World::new(1);
    let c = world.c("a");
    c.put("k", "v").unwrap();
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(9)))
        .unwrap();
    let later = world.db.now() + Duration::from_secs(5);
    c.expire_written_before(later).unwrap();
    let rule = world.db.changes(Version::start()).find_map(|change| {
        let Change::Expiry { rule, .. } = change.unwrap() else {
            return None;
        };
        Some(rule)
    });
    let rule = rule.unwrap();
    let stored = serde_json::to_string(&rule).unwrap();
    assert_eq!(serde_json::from_str::<ExpiryRule>(&stored).unwrap(), rule);
    // A format that names no fields keeps it, too.
    let bytes = postcard::to_stdvec(&rule).unwrap();
    assert_eq!(postcard::from_bytes::<ExpiryRule>(&bytes).unwrap(), rule);
    assert!(
        stored.contains("commands") && !stored.contains("past"),
        "{stored}"
    );
}

/// The changes since a version, shown.
fn told(changes: &mut Changes) -> Vec<String> {
    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let one = |change: Change| match change {
        Change::Containers { names } => format!("containers {}", names.join(" ")),
        Change::Created { container, .. } => format!("created {container}"),
        Change::Expiry { container, rule } => {
            format!("expiry {container} {:?}", rule.default_ttl())
        }
        Change::DeleteRange {
            container,
            from,
            to,
            ..
        } => {
            format!(
                "range {container} {}..{}",
                show(&from),
                to.map_or(String::new(), |to| show(&to))
            )
        }
        Change::Put { container, item } => {
            format!(
                "put {container} {}={}",
                show(item.key()),
                show(item.value())
            )
        }
        Change::Delete { container, key, .. } => format!("delete {container} {}", show(&key)),
        other => panic!("{other:?}"),
    };
    changes.map(|change| one(change.unwrap())).collect()
}

#[test]
fn a_pass_tells_the_newest_state_of_what_was_written_since() {
    let world = World::new(1);
    let (a, b) = (world.c("a"), world.c("b"));
    a.put("k1", "old").unwrap();
    a.put("k2", "stays").unwrap();
    b.put("x", "1").unwrap();
    let mut empty = World::new(2).db.changes(Version::start());
    assert!(told(&mut empty).is_empty() && empty.version() == Version::start());
    let mut changes = world.db.changes(Version::start());
    let first = [
        "created a",
        "expiry a NoDefault",
        "put a k1=old",
        "put a k2=stays",
        "created b",
        "expiry b NoDefault",
        "put b x=1",
    ];
    assert_eq!(told(&mut changes), first);
    assert!(told(&mut changes).is_empty());
    a.put("k1", "between").unwrap();
    a.put("k1", "new").unwrap();
    a.put_with_ttl("k3", "short", Duration::from_secs(1))
        .unwrap();
    a.delete_range("m".."p").unwrap();
    a.put("n", "after").unwrap();
    b.set_default_ttl(DefaultTtl::Off).unwrap();
    b.delete("x").unwrap();
    world.clock.advance(Duration::from_secs(1));
    let second = [
        "range a m..p",
        "put a k1=new",
        "delete a k3",
        "put a n=after",
        "expiry b Off",
        "delete b x",
    ];
    let version = changes.version();
    assert_eq!(told(&mut world.db.changes(version)), second);
    assert_eq!(told(&mut changes), second);
    // Of one container, with and without the others.
    assert_eq!(told(&mut b.changes(version)), second[4..]);
    let mut of_a = a.changes(version);
    assert_eq!(told(&mut of_a), second[..4]);
    assert_eq!(of_a.version(), changes.version());
    world.db.drop_container("b").unwrap();
    assert_eq!(told(&mut of_a), ["containers a"]);
    assert_eq!(told(&mut b.changes(version)), ["containers a"]);
    world.db.drop_container("a").unwrap();
    world.c("a").put("k", "v").unwrap();
    let third = [
        "containers a",
        "created a",
        "expiry a NoDefault",
        "put a k=v",
    ];
    assert_eq!(told(&mut changes), third);
}

#[test]
fn a_pass_is_of_one_moment() {
    let world = World::new(1);
    let c = world.c("a");
    for n in 0..1_000 {
        c.put(format!("k{n:04}"), "1").unwrap();
    }
    let mut changes = world.db.changes(Version::start());
    let begun: Vec<Change> = changes.by_ref().take(10).map(Result::unwrap).collect();
    assert_eq!((begun.len(), changes.version()), (10, Version::start()));
    // While it lasts: the second half of a batch would be told without the first.
    let mut batch = Batch::new();
    batch
        .put(&c, "k0000", "2")
        .put(&c, "k0999", "2")
        .delete(&c, "k0500");
    world.db.write(batch).unwrap();
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    let rest = told(&mut changes);
    assert_eq!(rest.len(), 1_000 - 8);
    assert_eq!(rest.last().unwrap(), "put a k0999=1");
    assert_eq!(
        told(&mut changes),
        ["put a k0000=2", "delete a k0500", "put a k0999=2"]
    );
}

#[test]
fn who_comes_back_too_late_is_told_so_also_after_a_kill() {
    let mut world = World::new(1);
    let c = world.c("a");
    c.put("k", "v").unwrap();
    let since = told_version(&world.db);
    c.put("l", "v").unwrap();
    c.delete("k").unwrap();
    let after = told_version(&world.db);
    assert_eq!(
        told(&mut world.db.changes(since)),
        ["delete a k", "put a l=v"]
    );
    world.db.flush().unwrap();
    for is_killed in [false, true, false] {
        let error = world.db.changes(since).next().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::ChangesGone { from, .. } if from == after.as_u64()),
            "{error}"
        );
        assert!(error.is_changes_gone() && !error.is_retryable());
        assert!(told(&mut world.db.changes(after)).is_empty());
        world.again(is_killed);
    }
    let later = Version::from_u64(after.as_u64() + 100);
    let error = world.db.changes(later).next().unwrap().unwrap_err();
    assert!(error.is_changes_gone(), "it is of another database");
}

/// Breaks a build that notes what jobs leave out, and not what goes with whole tables.
#[test]
fn what_ended_in_a_table_that_is_dropped_unread_is_gone_too() {
    let world = World::new(1);
    let c = world.c("a");
    c.put_with_ttl("k", "v", Ttl::Never).unwrap();
    let since = told_version(&world.db);
    c.put_with_ttl("k", "short", Duration::from_secs(1))
        .unwrap();
    world.db.flush().unwrap();
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(told(&mut world.db.changes(since)), ["delete a k"]);
    world.db.compact().unwrap();
    assert_eq!(world.db.stats().table_bytes, 0);
    let error = world.db.changes(since).next().unwrap().unwrap_err();
    assert!(error.is_changes_gone());
}

fn told_version(db: &Database) -> Version {
    let mut changes = db.changes(Version::start());
    changes.by_ref().for_each(|change| drop(change.unwrap()));
    changes.version()
}

/// Breaks a build that leaves a command out of the settings once it reaches nothing that is stored.
#[test]
fn a_command_is_told_though_nothing_is_left_that_it_reaches() {
    let world = World::new(1);
    let c = world.c("a");
    c.put_with_ttl("k", "v", Ttl::Never).unwrap();
    let (mut copy, mut changes) = (Copy::default(), world.db.changes(Version::start()));
    copy.pass(&mut changes, world.db.now()).unwrap();
    let since = changes.version();
    c.expire_all().unwrap();
    world.db.compact().unwrap();
    c.set_default_ttl(DefaultTtl::Off).unwrap();
    copy.pass(&mut changes, world.db.now()).unwrap();
    copy.compare(&world.db, "open");
    drop(changes);
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let error = world.db.changes(since).next().unwrap().unwrap_err();
    assert!(error.is_changes_gone());
}

// The command that reaches nothing more is left out with the deletes, and is the newest of them.
#[test]
fn who_comes_back_after_a_reopen_is_told_of_deletes_beside_a_command() {
    for (how, reopens) in [0, 1, 2, 3]
        .into_iter()
        .flat_map(|how| [(how, false), (how, true)])
    {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let (db, c) = stage::open(options(&sim, &clock));
        c.put("k", "v").unwrap();
        let mut copy = Copy::default();
        copy.catch_up(&db);
        match how % 2 {
            0 => c.delete("k").unwrap(),
            _ => c.delete_range(..).unwrap(),
        }
        let due = db.now() + Duration::from_millis(5);
        match how / 2 {
            0 => c.expire_before(due).unwrap(),
            _ => c.expire_written_before(due).unwrap(),
        }
        db.flush().unwrap();
        drop(c);
        let db = match reopens {
            true => {
                drop(db);
                options(&sim, &clock).open("/db").unwrap()
            }
            false => db,
        };
        copy.catch_up(&db);
        copy.compare(&db, &format!("{how}, {reopens}"));
    }
}

// A reader that takes no notice of an error comes to an end.
#[test]
fn an_error_ends_a_pass() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock).open("/db").unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    let mut changes = db.changes(Version::from_u64(1_000));
    for _ in 0..2 {
        assert!(changes.next().unwrap().unwrap_err().is_changes_gone());
        assert!(changes.next().is_none());
    }
}

#[test]
fn a_follower_tells_changes_too() {
    let world = World::new(1);
    let c = world.c("a");
    c.put("k", "v").unwrap();
    let follower = options(&world.sim, &world.clock).follow("/db").unwrap();
    let mut changes = follower.changes(Version::start());
    assert_eq!(told(&mut changes).len(), 3);
    c.put("k", "w").unwrap();
    follower.catch_up().unwrap();
    assert_eq!(told(&mut changes), ["put a k=w"]);
    c.delete("k").unwrap();
    world.db.flush().unwrap();
    world.db.compact().unwrap();
    follower.catch_up().unwrap();
    // The writer's jobs know nothing of this one.
    assert!(changes.next().unwrap().unwrap_err().is_changes_gone());
    assert!(told(&mut follower.changes(Version::start())).len() == 2);
}

/// A clock that leads in doubt may come back, and what it had ended lives again: it is told, and is not told to be gone.
/// Not after a reopen or a kill, and not by a follower, which reads all settings again with each edit.
#[test]
fn a_rule_that_has_not_changed_is_not_told_again() {
    let is_rule = |change: &Change| matches!(change, Change::Expiry { .. });
    for in_batch in [false, true] {
        let mut world = World::new(1);
        let (a, b) = (world.c("a"), world.c("b"));
        a.put("k", "v").unwrap();
        b.put("k", "v").unwrap();
        let follower = options(&world.sim, &world.clock).follow("/db").unwrap();
        let mut followed = follower.changes(Version::start());
        let mut passes = |follower: &Database| -> Vec<Change> {
            follower.catch_up().unwrap();
            followed.by_ref().map(Result::unwrap).collect()
        };
        passes(&follower);
        match in_batch {
            true => {
                let mut batch = Batch::new();
                batch.set_default_ttl(&a, DefaultTtl::Off).put(&a, "l", "");
                world.db.write(batch).unwrap();
            }
            false => a.set_default_ttl(DefaultTtl::Off).unwrap(),
        }
        let rules = passes(&follower).iter().filter(|one| is_rule(one)).count();
        assert_eq!(rules, 1, "of the container whose rule is another");
        let since = world.db.last_version();
        for round in 0..3 {
            world.c("a").put("m", "v").unwrap();
            match round {
                0 => world.db.flush().unwrap(),
                1 => world.db.compact().unwrap(),
                _ => {}
            }
            world.again(round == 1);
            let told: Vec<_> = world.db.changes(since).map(Result::unwrap).collect();
            assert!(!told.iter().any(is_rule), "{in_batch}, {round}: {told:?}");
            let told = passes(&follower);
            assert!(!told.iter().any(is_rule), "{in_batch}, {round}: {told:?}");
        }
    }
}

#[test]
fn a_leap_of_the_clock_takes_nothing_from_a_copy() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = stage::open(options(&sim, &clock));
    let keys = |changes: &mut Changes| {
        let told = changes.map(|change| match change.unwrap() {
            Change::Put { item, .. } => Some(String::from_utf8(item.key().to_vec()).unwrap()),
            Change::Delete { key, .. } => panic!("{key:?} is gone"),
            _ => None,
        });
        told.flatten().collect::<Vec<_>>()
    };
    c.put_with_ttl("a", "", Duration::from_secs(60)).unwrap();
    clock.jump(NOW + 365 * 86_400_000);
    let mut changes = db.changes(Version::start());
    assert_eq!(keys(&mut changes), ["a"]);
    clock.jump(NOW);
    c.put_with_ttl("b", "", Duration::from_secs(60)).unwrap();
    clock.jump(NOW + 365 * 86_400_000);
    assert_eq!(keys(&mut changes), ["b"]);
    clock.jump(NOW);
    assert_eq!(c.count(..).unwrap(), 2);
}

/// As is advised: synced when a pass is over, before the copy keeps it. A power cut then takes back nothing that it has.
#[test]
fn a_copy_of_what_was_synced_stays_right_over_a_power_cut() {
    let mut world = World::new(1);
    let c = world.c("a");
    let mut copy = Copy::default();
    copy.catch_up(&world.db);
    world.db.sync().unwrap();
    for round in 0..3 {
        // Between the sync before and the pass.
        c.put("told", format!("{round}")).unwrap();
        let mut changes = world.db.changes(copy.version.unwrap());
        let first = changes.next().unwrap().unwrap();
        copy.told.apply(first, world.db.now()).unwrap();
        c.put(format!("during {round}"), "v").unwrap();
        copy.pass(&mut changes, world.db.now()).unwrap();
        world.db.sync().unwrap();
    }
    c.put("lost", "v").unwrap();
    let lost = told_version(&world.db);
    drop(c);
    world.sim = world.sim.power_cut_with(Survivors::Nothing);
    world.db = options(&world.sim, &world.clock).open("/db").unwrap();
    let c = world.c("a");
    assert!(!c.contains("lost").unwrap() && c.contains("during 2").unwrap());
    let kept = copy.version.unwrap();
    assert!(told_version(&world.db) < lost && kept < lost);
    c.put("other", "v").unwrap();
    assert!(!copy.catch_up(&world.db), "it goes on from its version");
    copy.compare(&world.db, "stored");
}
