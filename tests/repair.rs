//! Goal: a repair loses what is damaged, says so, and nothing else: every key has its right value or lies in a range that
//! the report names.
//!
//! Method: databases on a simulated disk, of several runs with overwrites and deletes. Bytes of their tables are changed;
//! the repaired database is compared with what was written, key by key.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, repair_with};
use ebbtide::{Container, Database, Loss, ManualClock, Options, RepairReport, Ttl};

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";

/// What is to be read.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    Options::new()
        .memtable_bytes(4 << 20)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 64 << 10)
}

fn key(n: usize) -> Vec<u8> {
    format!("key-{n:06}").into_bytes()
}

/// The files of tables, the oldest first.
fn tables(sim: &Sim) -> Vec<PathBuf> {
    let dir = Path::new(PATH).join("tables");
    let mut names = sim.list(&dir).unwrap();
    names.sort();
    names.iter().map(|name| dir.join(name)).collect()
}

fn flip(sim: &Sim, path: &Path, at: usize) {
    let byte = sim.read(path).unwrap()[at];
    let file = sim.open(path).unwrap();
    file.write_at(at as u64, &[byte ^ 0xff]).unwrap();
    file.sync().unwrap();
}

/// The magic at a table's end.
fn flip_footer(sim: &Sim, path: &Path) {
    let len = sim.len(path).unwrap().unwrap() as usize;
    flip(sim, path, len - 1);
}

fn covers(loss: &Loss, key: &[u8]) -> bool {
    loss.from.as_slice() <= key && loss.to.as_ref().is_none_or(|to| key < to.as_slice())
}

/// Repairs, after a look at what that would do, which must be the same.
fn repair(sim: &Sim, clock: &ManualClock) -> RepairReport {
    let said = |report: &RepairReport| {
        let losses: Vec<String> = report.losses.iter().map(Loss::to_string).collect();
        (losses, report.set_aside.clone())
    };
    let planned = repair_with(Path::new(PATH), &options(sim, clock), false).unwrap();
    let done = repair_with(Path::new(PATH), &options(sim, clock), true).unwrap();
    assert_eq!(said(&planned), said(&done));
    done
}

/// Every key is as it should be, or missing and in a range that the report names. How many are missing.
fn compare(c: &Container, model: &Model, report: &RepairReport, keys: usize) -> usize {
    let mut missing = 0;
    for key in (0..keys).map(key) {
        let value = c.get(&key).unwrap().map(|value| value.to_vec());
        if value.as_ref() == model.get(&key) {
            continue;
        }
        assert_eq!(
            value,
            None,
            "{:?} is as it never was last",
            key.escape_ascii()
        );
        let reported = report.losses.iter().any(|loss| covers(loss, &key));
        assert!(reported, "{} is lost unreported", key.escape_ascii());
        missing += 1;
    }
    missing
}

fn open(sim: &Sim, clock: &ManualClock) -> (Database, Container) {
    let db = options(sim, clock).open(PATH).unwrap();
    let c = db.container("c").unwrap();
    (db, c)
}

// Of neither it can be told what it held, so both get the number that was flushed last.
#[test]
fn what_lies_between_two_lost_tables_stays() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = open(&sim, &clock);
    let mut model = Model::new();
    for n in 0..10_000 {
        c.put(key(n), format!("value {n}")).unwrap();
        model.insert(key(n), format!("value {n}").into_bytes());
    }
    db.flush().unwrap();
    let sim = sim.kill();
    let tables = tables(&sim);
    assert!(tables.len() > 20, "{}", tables.len());
    for at in [2, tables.len() - 3] {
        flip_footer(&sim, &tables[at]);
    }
    let report = repair(&sim, &clock);
    assert_eq!(report.losses.len(), 2);
    let (_db, c) = open(&sim, &clock);
    let missing = compare(&c, &model, &report, 10_000);
    assert!(
        missing > 0 && missing <= 3 * 10_000 / tables.len(),
        "{missing}"
    );
}

// The range deletes in their place have one number. When one has nothing left to hide, it goes alone.
#[test]
fn a_range_that_is_hidden_outlives_another_of_its_number() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = open(&sim, &clock);
    for n in 0..400 {
        let ttl = match n < 200 {
            true => Ttl::Never,
            false => Ttl::After(Duration::from_secs(60)),
        };
        c.put_with_ttl(key(n), [b'o'; 100], ttl).unwrap();
    }
    db.flush().unwrap();
    let before = tables(&sim).len();
    for n in 0..400 {
        c.put_with_ttl(key(n), [b'n'; 100], Ttl::Never).unwrap();
    }
    db.flush().unwrap();
    let sim = sim.kill();
    let newer = tables(&sim).split_off(before);
    assert!(newer.len() > 3);
    flip_footer(&sim, &newer[0]);
    flip_footer(&sim, &newer[newer.len() - 1]);
    let report = repair(&sim, &clock);
    assert_eq!(report.losses.len(), 2);
    let mut model = Model::new();
    model.extend((0..400).map(|n| (key(n), vec![b'n'; 100])));
    let (db, c) = open(&sim, &clock);
    let missing = compare(&c, &model, &report, 400);
    assert!(missing > 0, "{report:?}");
    clock.advance(Duration::from_secs(3_600));
    // The old ones with a ttl go, and then the others: after each step as before it.
    loop {
        let killed = sim.kill();
        let (_db, c) = open(&killed, &clock);
        assert_eq!(compare(&c, &model, &report, 400), missing);
        if !db.step().unwrap() {
            break;
        }
    }
}
