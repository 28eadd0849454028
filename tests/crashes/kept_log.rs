//! Goal: the log that an open after a kill keeps in place of logging anew is read by everybody, holds what it must until
//! that is flushed, and then goes, with all that has expired.
//!
//! Method: on the simulated disk, databases are killed again and again, opened in every way, and compared with what was
//! written. Power cuts before every call stand in tests/crashes/power_cuts.rs, the log by itself in src/wal/tests/kept.rs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, repair_with, verify_in};
use ebbtide::{Container, Database, ManualClock, Options, Ttl, VerifyReport};
use testkit::random::Random;
use testkit::stage;

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";
const WITHIN: Duration = Duration::from_secs(8);

fn options(sim: &Sim) -> Options {
    at(sim, &ManualClock::new(START))
}

fn at(sim: &Sim, clock: &ManualClock) -> Options {
    with_threads(sim, clock).stepped()
}

/// An open then has others that read ahead of it, and build memtables while it keeps the log.
fn with_threads(sim: &Sim, clock: &ManualClock) -> Options {
    Options::new()
        .memtable_bytes(64 << 10)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .reclaim_within(WITHIN)
        .sizes(256, 16 << 10, 8 << 10)
}

/// The files of the log.
fn log(sim: &Sim) -> Vec<String> {
    let mut names = sim.list(Path::new("/db/wal")).unwrap();
    names.sort();
    names
}

fn verify(sim: &Sim) -> VerifyReport {
    verify_in(Arc::new(sim.clone()), Path::new(PATH), &mut |_, _| {}).unwrap()
}

/// Whether the manifest names a log before the one that is written.
fn has_prefix(db: &Database) -> bool {
    let mut logs = db.edits().unwrap();
    logs.retain(|edit| edit.contains("\"log\""));
    logs.last().is_some_and(|edit| edit.contains("\"prefix\""))
}

/// Each item: its key, and the length and the last bytes of its value.
fn contents(db: &Database, name: &str) -> Vec<(String, usize, Vec<u8>)> {
    let items = db.container(name).unwrap().iter().map(Result::unwrap);
    items
        .map(|item| summary(&String::from_utf8_lossy(item.key()), item.value()))
        .collect()
}

fn summary(key: &str, value: &[u8]) -> (String, usize, Vec<u8>) {
    let last = value[value.len().saturating_sub(6)..].to_vec();
    (key.to_owned(), value.len(), last)
}

fn put(container: &Container, numbers: Range<u32>) {
    for number in numbers {
        let value = [number as u8; 500];
        container.put(format!("k{number:05}"), value).unwrap();
    }
}

/// A database that was killed with this many items, which only its log holds.
fn killed(items: u32) -> Sim {
    let sim = Sim::new(1);
    let db = options(&sim).open(PATH).unwrap();
    put(&db.container("c").unwrap(), 0..items);
    sim.kill()
}

#[test]
fn a_log_is_kept_until_what_it_holds_is_flushed() {
    let sim = killed(60);
    let before = log(&sim);
    assert!(before.len() > 4, "{before:?}");
    let db = options(&sim).open(PATH).unwrap();
    assert!(has_prefix(&db));
    let after = log(&sim);
    let stay = before.iter().filter(|name| after.contains(name)).count();
    assert!(stay + 2 >= before.len() && stay > 2, "{before:?} {after:?}");
    assert!(!after.contains(&"000001.ring".to_owned()));
    let c = db.container("c").unwrap();
    put(&c, 60..70);
    assert_eq!(contents(&db, "c").len(), 70);
    db.flush().unwrap();
    assert!(!has_prefix(&db));
    assert!(log(&sim).iter().all(|name| !before.contains(name)));
    put(&c, 70..80);
    let db = options(&sim.kill()).open(PATH).unwrap();
    assert_eq!(contents(&db, "c").len(), 80);
}

// Otherwise short lives leave one log each.
#[test]
fn a_second_kill_is_survived_and_leaves_one_log() {
    let mut sim = killed(60);
    for life in 0..5 {
        let db = options(&sim).open(PATH).unwrap();
        assert_eq!(has_prefix(&db), life % 2 == 0, "life {life}");
        assert_eq!(contents(&db, "c").len(), 60 + life);
        let c = db.container("c").unwrap();
        c.put(format!("life {life}"), "v").unwrap();
        assert!(log(&sim).len() < 10, "{:?}", log(&sim));
        let next = sim.kill();
        drop((c, db));
        sim = next;
    }
}

// Writes that were logged before and after stand in one order.
#[test]
fn everybody_reads_the_log_that_was_kept() {
    let sim = killed(60);
    let (db, c) = stage::open(options(&sim));
    c.put("k00001", "later").unwrap();
    c.delete("k00002").unwrap();
    c.delete_range("k00010".."k00020").unwrap();
    put(&c, 15..16);
    let expected = contents(&db, "c");
    assert_eq!(expected.len(), 60 - 1 - 10 + 1);
    assert!(has_prefix(&db));

    let follower = options(&sim).follow(PATH).unwrap();
    assert_eq!(contents(&follower, "c"), expected);
    c.put("followed", "v").unwrap();
    follower.catch_up().unwrap();
    assert!(
        follower
            .container("c")
            .unwrap()
            .contains("followed")
            .unwrap()
    );
    follower.checkpoint("/followed").unwrap();
    c.delete("followed").unwrap();
    db.checkpoint("/copy").unwrap();
    assert!(!has_prefix(&db), "a checkpoint flushes");

    for image in [sim.kill(), sim.power_cut(7)] {
        let reader = options(&image).read_only(true).open("/copy").unwrap();
        assert_eq!(contents(&reader, "c"), expected);
        let copy = options(&image).open("/followed").unwrap();
        assert_eq!(contents(&copy, "c").len(), expected.len() + 1);
    }
}

#[test]
fn a_log_that_was_kept_is_checked_and_repaired() {
    let sim = killed(60);
    let kept = log(&sim);
    let db = options(&sim).open(PATH).unwrap();
    put(&db.container("c").unwrap(), 60..70);
    db.sync().unwrap();
    let expected = contents(&db, "c");
    let whole = sim.kill();
    drop(db);
    let reader = options(&whole).read_only(true).open(PATH).unwrap();
    assert_eq!(contents(&reader, "c"), expected);
    drop(reader);
    let report = verify(&whole);
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.records, 70);
    assert!(
        repair_with(Path::new(PATH), &options(&whole), false)
            .unwrap()
            .losses
            .is_empty()
    );
    let first = Path::new("/db/wal").join(&kept[1]);
    assert!(
        first.extension().is_some_and(|name| name == "wal"),
        "{kept:?}"
    );
    for at in [100, 5_000] {
        let sim = whole.kill();
        let mut bytes = sim.read(&first).unwrap();
        bytes[at] ^= 1;
        sim.open(&first).unwrap().write_at(0, &bytes).unwrap();
        assert_eq!(verify(&sim).faults.len(), 1);
        let error = options(&sim).open(PATH).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let report = repair_with(Path::new(PATH), &options(&sim), true).unwrap();
        assert!(!report.losses.is_empty());
        let db = options(&sim).open(PATH).unwrap();
        let left = contents(&db, "c");
        assert!(
            left.len() < 60 && left[..] == expected[..left.len()],
            "{}",
            left.len()
        );
    }
}

// Nothing that has expired stays for the sake of a log that was kept.
#[test]
fn what_expires_in_it_leaves_in_time() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let db = at(&sim, &clock).open(PATH).unwrap();
    let (c, quiet) = (db.container("c").unwrap(), db.container("quiet").unwrap());
    for number in 0..60 {
        let life = Ttl::After(Duration::from_secs(20));
        c.put_with_ttl(format!("k{number}"), "<expires>".repeat(40), life)
            .unwrap();
        quiet
            .put_with_ttl(format!("k{number}"), [b'q'; 300], Ttl::Never)
            .unwrap();
    }
    let sim = sim.kill();
    drop((c, quiet, db));
    let db = at(&sim, &clock).open(PATH).unwrap();
    assert!(has_prefix(&db));
    let holds = |sim: &Sim| {
        let folders = ["/db/tables", "/db/wal"].map(Path::new);
        let names = folders.into_iter().flat_map(|folder| {
            sim.list(folder)
                .unwrap()
                .into_iter()
                .map(|name| folder.join(name))
        });
        let mut files = names.map(|path| sim.read(&path).unwrap());
        files.any(|bytes| bytes.windows(9).any(|window| window == b"<expires>"))
    };
    assert!(holds(&sim));
    clock.advance(Duration::from_secs(20));
    for _ in 0..4 {
        clock.advance(WITHIN / 4);
        assert!((0..500).any(|_| !db.step().unwrap()), "it comes to rest");
    }
    assert!(!holds(&sim));
    assert!(!has_prefix(&db));
    assert_eq!(contents(&db, "quiet").len(), 60);
    drop(db);
    let db = at(&sim.kill(), &clock).open(PATH).unwrap();
    assert_eq!(
        (contents(&db, "c").len(), contents(&db, "quiet").len()),
        (0, 60)
    );
}

// Both of them are then the old log, which gives back what it can.
#[test]
fn a_disk_without_room_is_opened_over_it() {
    let sim = killed(60);
    let db = options(&sim).open(PATH).unwrap();
    put(&db.container("c").unwrap(), 60..70);
    let expected = contents(&db, "c");
    let sim = sim.kill();
    drop(db);
    let plan = FaultPlan {
        at: sim.operations(),
        kind: Fault::Full,
        lasting: true,
    };
    sim.fail_where(plan, |call| {
        call.operation == "create" && call.path.parent() == Some(Path::new("/db/wal"))
    });
    let db = options(&sim).open(PATH).unwrap();
    assert_eq!(contents(&db, "c"), expected);
    db.container("c").unwrap().put("k", "v").unwrap_err();
    let again = options(&sim.kill()).open(PATH).unwrap();
    assert_eq!(contents(&again, "c"), expected);
    sim.heal();
    db.container("c").unwrap().put("k", "v").unwrap();
    assert!(!has_prefix(&db));
    let again = options(&sim.kill()).open(PATH).unwrap();
    assert_eq!(contents(&again, "c").len(), expected.len() + 1);
}

#[test]
fn lives_end_by_kills_and_power_cuts_and_nothing_is_lost() {
    let mut kept = 0;
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut sim = Sim::new(seed);
        let mut model: BTreeMap<(String, String), usize> = BTreeMap::new();
        for life in 0..8usize {
            let image = sim.kill();
            let beside = with_threads(&image, &ManualClock::new(START));
            let beside = beside.open(PATH).unwrap();
            let again = options(&image.kill()).open(PATH).unwrap();
            let db = options(&sim).open(PATH).unwrap();
            kept += u32::from(has_prefix(&db));
            for name in ["a", "b"] {
                let of_model = model.range((name.into(), String::new())..);
                let of_model = of_model.take_while(|((container, _), _)| container == name);
                let of_model: Vec<_> = of_model
                    .map(|((_, key), value)| summary(key, format!("{value:0300}").as_bytes()))
                    .collect();
                assert_eq!(contents(&db, name), of_model, "{seed} {life}");
                assert_eq!(contents(&beside, name), of_model, "{seed} {life}, threads");
                assert_eq!(contents(&again, name), of_model, "{seed} {life}, again");
            }
            drop((beside, again));
            for step in 0..random.below(150) {
                let name = if random.below(4) == 0 { "a" } else { "b" };
                let container = db.container(name).unwrap();
                let key = format!("k{:03}", random.below(200));
                match random.below(80) {
                    0 => {
                        container.expire_all().unwrap();
                        model.retain(|(of, _), _| of != name);
                    }
                    1 => {
                        let to = format!("k1{:02}", random.below(100));
                        container.delete_range("k100"..&*to).unwrap();
                        let covered = |of: &str| of >= "k100" && of < &*to;
                        model.retain(|(at, of), _| at != name || !covered(of));
                    }
                    2 => db.flush().unwrap(),
                    3..8 => drop(db.step().unwrap()),
                    8..16 => {
                        container.delete(&key).unwrap();
                        model.remove(&(name.into(), key));
                    }
                    _ => {
                        let value = life * 1_000 + step;
                        container.put(&key, format!("{value:0300}")).unwrap();
                        model.insert((name.into(), key), value);
                    }
                }
            }
            let next = match random.below(3) {
                0 => {
                    db.sync().unwrap();
                    sim.power_cut(seed * 100 + life as u64)
                }
                _ => sim.kill(),
            };
            drop(db);
            sim = next;
        }
    }
    assert!(kept > 20, "a log was kept {kept} times");
}

// An open forgets other commands, depending on what it has in memory.
#[test]
fn what_was_expired_before_two_kills_stays_gone() {
    let sim = killed(60);
    let (db, c) = stage::open(options(&sim));
    c.expire_all().unwrap();
    put(&c, 60..70);
    let mut sim = sim.kill();
    drop((c, db));
    for life in 0..3 {
        let db = match life {
            1 => with_threads(&sim, &ManualClock::new(START)).open(PATH),
            _ => options(&sim).open(PATH),
        };
        let db = db.unwrap();
        assert_eq!(contents(&db, "c").len(), 10, "life {life}");
        let next = sim.kill();
        drop(db);
        sim = next;
    }
}

// Other threads are at work while a call fails, or in the moment of the cut.
#[test]
fn an_open_with_threads_survives_failing_calls_and_power_cuts() {
    let clock = ManualClock::new(START);
    let sim = killed(60);
    let (db, c) = stage::open(options(&sim));
    c.delete_range("k00010".."k00020").unwrap();
    put(&c, 60..90);
    let expected = contents(&db, "c");
    let image = sim.kill();
    drop((c, db));
    let plans = (0..120).flat_map(|call| {
        let kinds = [
            (Fault::Full, false),
            (Fault::Full, true),
            (Fault::Io, false),
        ];
        kinds.map(|(kind, lasting)| (call, kind, lasting))
    });
    for (call, kind, lasting) in plans {
        let sim = image.kill();
        let at = sim.operations() + call;
        sim.fail(FaultPlan { at, kind, lasting });
        let first = with_threads(&sim, &clock).open(PATH);
        if let Ok(db) = &first {
            assert_eq!(contents(db, "c"), expected, "{call} {kind:?}");
        }
        drop(first);
        sim.heal();
        let again = with_threads(&sim.kill(), &clock).open(PATH).unwrap();
        assert_eq!(contents(&again, "c"), expected, "{call} {kind:?}, again");
    }
    for seed in 0..40 {
        let sim = image.kill();
        let db = with_threads(&sim, &clock).open(PATH).unwrap();
        put(&db.container("c").unwrap(), 90..95);
        db.sync().unwrap();
        let all = contents(&db, "c");
        let cut = sim.power_cut(seed);
        drop(db);
        let again = with_threads(&cut, &clock).open(PATH).unwrap();
        assert_eq!(contents(&again, "c"), all, "cut {seed}");
    }
}

// Nobody knows when they end, so they would not leave in time.
#[test]
fn a_log_with_records_that_are_not_needed_is_logged_anew() {
    let sim = Sim::new(1);
    let db = options(&sim).open(PATH).unwrap();
    put(&db.container("dropped").unwrap(), 0..30);
    put(&db.container("c").unwrap(), 0..60);
    db.drop_container("dropped").unwrap();
    let before = log(&sim);
    let sim = sim.kill();
    let db = options(&sim).open(PATH).unwrap();
    assert!(!has_prefix(&db));
    assert!(log(&sim).iter().all(|name| !before.contains(name)));
    assert_eq!(contents(&db, "c").len(), 60);
}
