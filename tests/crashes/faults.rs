//! Goal: whatever call of the file system fails, and with whatever error, no acknowledged write is lost, nothing comes
//! back, what can be read is read, the database goes on or says that it has to be opened again, and the next open works.
//!
//! Method: one short history (puts, overwrites, deletes, range deletes, changes of settings, flushes, merges, a dropped
//! container, a checkpoint) on the simulated disk, under `Sync`. Its calls are counted once; then it runs again for each
//! of them and each kind of error, and that one fails: once, or with all later ones. A write that answered with an error
//! may have happened or not; all others have. Then the fault ends, and writing is tried once more; and the process is
//! killed, or the power is cut, and what can be read must be one of the states that this allows, and no file may be left
//! that nobody needs. The same with a disk of any size that fills up. What is promised of one kind of failure stands in
//! tests of its own, in failures.rs.
//!
//! `EBBTIDE_STRIDE` says how many calls are passed over between two that fail (default 101; 1 is all of them).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, parse_manifest};
use ebbtide::{
    Batch, Container, Database, DefaultTtl, Durability, Error, ManualClock, Options, Result, Ttl,
};

const PATH: &str = "/db";
const KEYS: u32 = 24;

fn open(sim: &Sim, clock: &ManualClock) -> Result<Database> {
    Options::new()
        .durability(Durability::Sync)
        .memtable_bytes(8 << 10)
        .max_runs(2)
        .reclaim_within(Duration::from_secs(10))
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 2 << 10, 2 << 10)
        .open(PATH)
}

type Answer = Option<Vec<u8>>;

/// The answers that each key may give: more than one after a write that failed.
struct Allowed(BTreeMap<String, BTreeSet<Answer>>);

impl Allowed {
    fn new() -> Allowed {
        let nothing = BTreeSet::from([None]);
        Allowed((0..KEYS).map(|n| (key(n), nothing.clone())).collect())
    }

    fn note(&mut self, done: &Result<()>, key: &str, now: Answer) {
        let answers = self.0.get_mut(key).unwrap();
        if done.is_ok() {
            answers.clear();
        }
        answers.insert(now);
    }

    #[track_caller]
    fn check(&self, container: &Container, what: &str) {
        let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for item in container.iter() {
            let item = item.unwrap_or_else(|error| panic!("{what}: {error}"));
            let key = String::from_utf8(item.key().to_vec()).unwrap();
            seen.insert(key, item.value().to_vec());
        }
        for (key, answers) in &self.0 {
            let found = container
                .get(key)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = found.map(|value| value.to_vec());
            assert!(
                answers.contains(&found),
                "{what}: {key} is {found:?}, not one of {answers:?}"
            );
            assert_eq!(
                seen.remove(key),
                found,
                "{what}: a scan and a get differ about {key}"
            );
        }
        assert_eq!(seen, BTreeMap::new(), "{what}: nobody wrote these");
    }
}

fn key(n: u32) -> String {
    format!("key-{:02}", n % KEYS)
}

/// The history. Steps that fail are gone on from.
fn live(db: &Database, clock: &ManualClock, allowed: &mut Allowed) {
    let (Ok(a), Ok(mut b)) = (db.container("a"), db.container("b")) else {
        return;
    };
    let default = DefaultTtl::After(Duration::from_secs(30));
    let dated = a.set_default_ttl(default).is_ok();
    for n in 0..120u32 {
        clock.advance(Duration::from_millis(50));
        let (key, value) = (
            key(n.wrapping_mul(7)),
            vec![n as u8; 40 + (n as usize % 5) * 60],
        );
        match n % 12 {
            // Where the default could not be set, it would not be expired at the end.
            3 if dated => {
                // Inherits, and is expired at the end: it hides what was there.
                let done = a.put(&key, &value);
                allowed.note(&done, &key, None);
            }
            5 => {
                let done = a.delete(&key);
                allowed.note(&done, &key, None);
            }
            7 => {
                let done = a.delete_range(key.clone()..=key.clone());
                allowed.note(&done, &key, None);
            }
            9 => {
                let mut batch = Batch::new();
                batch
                    .put_with_ttl(&a, &key, &value, Ttl::Never)
                    .put(&b, &key, &value);
                let done = db.write(batch);
                allowed.note(&done, &key, Some(value));
            }
            _ => {
                let done = a.put_with_ttl(&key, &value, Ttl::Never);
                allowed.note(&done, &key, Some(value));
            }
        }
        match n {
            30 | 60 => drop(db.flush()),
            45 | 90 => (0..20).for_each(|_| drop(db.step())),
            70 => drop(db.drop_container("b")),
            75 => drop(db.compact()),
            80 => drop(db.checkpoint("/copy")),
            _ => {}
        }
        // The second container comes back, empty.
        if n == 70
            && let Ok(again) = db.container("b")
        {
            b = again;
        }
    }
}

/// A history of so many times the calls that it takes does not end.
const ENDLESS: u64 = 20;

fn one_life(seed: u64, fault: Option<FaultPlan>, calls: u64) -> (Sim, ManualClock, Allowed) {
    let (sim, clock) = (Sim::new(seed), ManualClock::new(1_800_000_000_000));
    let mut allowed = Allowed::new();
    if let Some(plan) = fault {
        sim.fail(plan);
    }
    sim.watch(move |sim, _| assert!(sim.operations() < calls * ENDLESS, "it never ends"));
    if let Ok(db) = open(&sim, &clock) {
        live(&db, &clock, &mut allowed);
        clock.advance(Duration::from_secs(60));
        // A write that was refused may be there from the next sync on, and a get may ask for one: here before both. The
        // first may meet a fault that is to come once.
        let _ = db.sync().or_else(|_| db.sync());
        if let Ok(a) = db.container("a") {
            allowed.check(&a, "before the crash");
        }
        if let Some(plan) = fault {
            goes_on(&sim, &db, plan, &mut allowed);
        }
        std::mem::forget(db);
    }
    (sim, clock, allowed)
}

/// Want of descriptors or memory, which is an error of the call that meets it and of no other.
fn is_want(kind: Fault) -> bool {
    matches!(kind, Fault::TooManyFiles | Fault::NoMemory)
}

/// When the fault has ended, writes are taken, or the answer says what to do.
fn goes_on(sim: &Sim, db: &Database, plan: FaultPlan, allowed: &mut Allowed) {
    sim.heal();
    let (key, value) = (key(1), b"after the fault".to_vec());
    let Ok(a) = db.container("a") else {
        // Only when the log is at its end.
        assert!(!is_want(plan.kind), "{plan:?}");
        let error = db.sync().unwrap_err();
        assert!(error.to_string().contains("reopen"), "{plan:?}: {error}");
        return;
    };
    let done = a.put_with_ttl(&key, &value, Ttl::Never);
    allowed.note(&done, &key, Some(value));
    match done {
        Ok(()) => {
            let flushed = db.flush().and_then(|()| db.compact());
            flushed.unwrap_or_else(|error| panic!("{plan:?}: it does not go on: {error}"));
        }
        Err(error) => {
            assert!(!is_want(plan.kind), "{plan:?}: {error}");
            assert!(matches!(error, Error::Poisoned { .. }), "{plan:?}: {error}");
            assert!(error.to_string().contains("reopen"), "{plan:?}: {error}");
        }
    }
    allowed.check(&a, &format!("{plan:?}, after it"));
}

/// Every file in the folder of a closed database is one that it needs.
#[track_caller]
fn no_file_is_left_over(sim: &Sim, what: &str) {
    let names = |folder: &str| sim.list(&Path::new(PATH).join(folder)).unwrap();
    let top: Vec<String> = names("")
        .into_iter()
        .filter(|name| name != "LOCK")
        .collect();
    let [manifest] = top.as_slice() else {
        panic!("{what}: {top:?}")
    };
    let path = Path::new(PATH).join(manifest);
    let (catalogue, torn) = parse_manifest(&path, &sim.read(&path).unwrap()).unwrap();
    assert!(!torn, "{what}");
    let tables = catalogue
        .tables()
        .into_iter()
        .map(|id| format!("{:06}.table", id.0));
    let (mut found, mut named) = (names("tables"), tables.collect::<Vec<_>>());
    found.sort();
    named.sort();
    assert_eq!(found, named, "{what}");
    let segments = names("wal").into_iter().filter_map(|name| {
        let (number, kind) = name.split_once('.').expect("a name of the log");
        (kind == "wal").then(|| number.parse::<u64>().expect("a number"))
    });
    assert!(
        segments.min() >= catalogue.log.map(|log| log.first),
        "{what}: {:?}",
        names("wal")
    );
    let rings = names("wal")
        .into_iter()
        .filter(|name| name.ends_with(".ring"));
    assert_eq!(rings.count(), 1, "{what}");
}

#[test]
fn no_failure_of_the_file_system_loses_or_revives_anything() {
    let (sim, ..) = one_life(0, None, u64::MAX / ENDLESS);
    let calls = sim.operations();
    let stride: u64 = std::env::var("EBBTIDE_STRIDE").map_or(101, |text| text.parse().unwrap());
    let (next, met) = (AtomicU64::new(1), AtomicU64::new(0));
    let one = |at: u64| {
        let ways =
            Fault::ALL.map(|kind| [false, true].map(|lasting| FaultPlan { at, kind, lasting }));
        for plan in ways.into_iter().flatten() {
            let (sim, clock, allowed) = one_life(at, Some(plan), calls);
            met.fetch_add(1, Ordering::Relaxed);
            for (sim, crash) in [(sim.kill(), "kill"), (sim.power_cut(at), "power cut")] {
                let what = format!("{plan:?}, {crash}");
                let db = open(&sim, &clock).unwrap_or_else(|error| panic!("{what}: {error}"));
                let a = db.container("a").unwrap();
                allowed.check(&a, &what);
                let done = db.flush().and_then(|()| db.compact());
                done.unwrap_or_else(|error| panic!("{what}: {error}"));
                allowed.check(&a, &what);
                db.close().unwrap();
                drop((a, db));
                assert_eq!(sim.open_handles(), 0, "{what}");
                open(&sim, &clock).unwrap().close().unwrap();
                no_file_is_left_over(&sim, &what);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(stride, Ordering::Relaxed);
                    if at > calls {
                        break;
                    }
                    one(at);
                }
            });
        }
    });
    println!(
        "FIGURE failing calls: {calls} calls in the history, {} failures of {} kinds, once and for good, each followed by a \
         kill and a power cut, 0 violations",
        met.load(Ordering::Relaxed),
        Fault::ALL.len()
    );
}

#[test]
fn a_disk_that_was_full_is_written_again_when_there_is_room() {
    let mut refused = 0;
    for room in (72_000..272_000).step_by(9_973) {
        let (sim, clock) = (Sim::new(room), ManualClock::new(1_800_000_000_000));
        let mut allowed = Allowed::new();
        sim.set_capacity(room);
        let Ok(db) = open(&sim, &clock) else {
            continue;
        };
        live(&db, &clock, &mut allowed);
        refused += usize::from(allowed.0.values().any(|answers| answers.len() > 1));
        clock.advance(Duration::from_secs(60));
        let what = format!("with room for {room}");
        sim.set_capacity(u64::MAX);
        let a = db
            .container("a")
            .unwrap_or_else(|error| panic!("{what}: it is stuck: {error}"));
        allowed.check(&a, &what);
        a.put_with_ttl(key(0), "again", Ttl::Never)
            .unwrap_or_else(|error| panic!("{what}: it is stuck: {error}"));
        allowed.note(&Ok(()), &key(0), Some(b"again".to_vec()));
        db.compact().unwrap();
        allowed.check(&a, &what);
        drop(a);
        db.close().unwrap();
        let db = open(&sim.kill(), &clock).unwrap();
        allowed.check(&db.container("a").unwrap(), &what);
    }
    assert!(refused > 0, "some disk was too small");
}

#[test]
fn the_history_is_what_it_is_meant_to_be() {
    let (sim, clock, allowed) = one_life(0, None, u64::MAX / ENDLESS);
    assert!(allowed.0.values().all(|answers| answers.len() == 1));
    let db = open(&sim.kill(), &clock).unwrap();
    assert!(db.stats().tables > 0);
}

/// A log that recovery began and could not finish is taken back: each try would leave another one on a disk that is full.
#[test]
fn an_open_that_finds_no_room_leaves_none_of_its_files() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(1_800_000_000_000));
    let db = open(&sim, &clock).unwrap();
    let c = db.container("c").unwrap();
    for n in 0..40 {
        c.put(key(n), [1; 200]).unwrap();
    }
    let sim = sim.kill();
    let files = |sim: &Sim| {
        let names = |folder| sim.list(Path::new(folder)).unwrap();
        let mut names = [names("/db"), names("/db/wal"), names("/db/tables")].concat();
        names.sort();
        names
    };
    let (before, whole) = (files(&sim), sim.kill());
    let db = open(&whole, &clock).unwrap();
    // The log of before is kept, or what it holds is logged anew: by an open after one that has kept it.
    let anew = whole.kill();
    let again = open(&anew, &clock).unwrap();
    let open_files = [&whole, &anew].map(|sim| files(sim).len());
    drop(again);
    db.close().unwrap();
    let (mut refused, mut came_through) = (0, 0);
    for at in sim.operations() + 1..=whole.operations() {
        for kind in [Fault::Full, Fault::Io] {
            let sim = sim.kill();
            sim.fail(FaultPlan {
                at,
                kind,
                lasting: false,
            });
            let Err(error) = open(&sim, &clock) else {
                came_through += 1;
                continue;
            };
            refused += 1;
            let left = files(&sim);
            let is_new = |name: &&String| name.starts_with("manifest-") && !before.contains(name);
            assert!(
                left == before || left.iter().any(|name| is_new(&name)),
                "{error}: {left:?} instead of {before:?}"
            );
            let db = open(&sim, &clock).unwrap();
            assert_eq!(
                db.container("c").unwrap().iter().count(),
                KEYS as usize,
                "{error}"
            );
            assert!(open_files.contains(&files(&sim).len()), "{error}");
        }
    }
    assert!(
        refused > 10,
        "{refused} were refused, {came_through} were not"
    );
}
