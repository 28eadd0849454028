//! Goal: a repair loses what is damaged, says so, and loses nothing else: every key has its right value or is in a
//! range that the report names.
//!
//! Method: databases on a simulated disk, of several runs with overwrites and deletes. Bytes of their tables are changed;
//! the repaired database is compared with what was written, key by key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, repair_with};
use ebbtide::{
    ClockBehind, Compression, Container, Database, DefaultTtl, Error, Loss, ManualClock, Options,
    RepairReport, Ttl, Version,
};
use testkit::random::Random;
use testkit::stage;

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";

/// The items that are to be read.
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
    let (db, c) = stage::open(options(sim, clock));
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    (db, c)
}

// Of neither it can be told what it held, so both get the number that was flushed last.
#[test]
fn a_folder_of_others_stays_as_it_is() {
    let (sim, options) = (Sim::new(1), Options::new());
    let folder = Path::new("/others");
    sim.create_dir(folder).unwrap();
    sim.create(&folder.join("notes")).unwrap();
    for apply in [false, true] {
        let options = options.clone().fs(Arc::new(sim.clone()));
        let refused = repair_with(folder, &options, apply).unwrap_err();
        assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
        assert_eq!(sim.list(folder).unwrap(), ["notes"]);
    }
}

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
        // Short, so that no table of these is hidden as a whole, and dropped with the first step.
        c.put_with_ttl(key(n), [b'o'; 10], ttl).unwrap();
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

/// Three flushes of which the first and the third are merged, and not the second: which keys each of them has, and for how
/// long those of the merged ones live. The tables of the merged run, or of the other, are damaged, one at a time.
fn damage_beside_a_merge(keys: [fn(usize) -> bool; 3], merged: Ttl, in_merged: bool) {
    const KEYS: usize = 400;
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = stage::open(options(&sim, &clock).max_runs(2));
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let mut model = Model::new();
    let week = Ttl::After(Duration::from_secs(7 * 86_400));
    let mut flushed = vec![];
    for (at, ttl) in [merged, week, merged].into_iter().enumerate() {
        // So many others that this run is not merged with them.
        let beyond = if at == 1 { 10 * KEYS } else { KEYS };
        for n in (0..beyond).filter(|n| *n >= KEYS || keys[at](*n)) {
            c.put_with_ttl(key(n), [at as u8; 40], ttl).unwrap();
            model.insert(key(n), vec![at as u8; 40]);
        }
        if at == 2 {
            c.delete_range(key(5 * KEYS)..key(5 * KEYS + 1)).unwrap();
        }
        let before = tables(&sim).len();
        db.flush().unwrap();
        flushed.push(tables(&sim).split_off(before));
    }
    db.step().unwrap();
    let (now, other) = (tables(&sim), &flushed[1]);
    assert_eq!(db.stats().runs, 2, "{}", db.describe());
    assert!(other.iter().all(|path| now.contains(path)));
    let damaged: Vec<PathBuf> = match in_merged {
        true => now
            .iter()
            .filter(|path| !other.contains(path))
            .cloned()
            .collect(),
        false => other[..2].to_vec(),
    };
    let sim = sim.kill();
    for path in &damaged {
        let sim = sim.kill();
        // The first block: where it is the run's first, the run itself needs no range delete in its place.
        flip(&sim, path, 10);
        let report = repair(&sim, &clock);
        let (db, c) = open(&sim, &clock);
        let missing = compare(&c, &model, &report, KEYS);
        assert!(missing > 0, "{report:?}");
        // After an edit only what is still needed is there.
        c.put("zzzz", "v").unwrap();
        db.flush().unwrap();
        let (_db, c) = open(&sim.kill(), &clock);
        assert_eq!(compare(&c, &model, &report, KEYS), missing);
    }
}

// A table may hold what is older and what is newer than all of another run: its numbers say little of each record.
#[test]
fn what_a_merged_table_hid_stays_hidden() {
    let keys: [fn(usize) -> bool; 3] = [|n| n % 2 == 0, |n| n % 2 == 1, |n| n % 4 < 2];
    damage_beside_a_merge(keys, Ttl::Never, true);
}

// A range delete that was applied to an older run may be newer than the records that hid a part of it.
#[test]
fn what_was_hidden_in_a_merged_table_stays_hidden() {
    let keys: [fn(usize) -> bool; 3] = [|n| n % 2 == 1, |n| n % 2 == 1, |n| n % 4 == 0];
    damage_beside_a_merge(keys, Ttl::After(Duration::from_secs(86_400)), false);
}

// A table of many blocks loses those that are damaged, and nothing by its filter, its index or its statistics.
#[test]
fn sixteen_bytes_cost_a_block() {
    const ITEMS: usize = 20_000;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (sim, clock) = (Sim::new(1), ManualClock::new(START));
        let options = options(&sim, &clock).sizes(512, 1 << 30, 64 << 10);
        let (db, c) = stage::open(options.compression(compression));
        let mut model = Model::new();
        for n in 0..ITEMS {
            c.put(key(n), format!("value {n}")).unwrap();
            model.insert(key(n), format!("value {n}").into_bytes());
        }
        db.flush().unwrap();
        let path = tables(&sim).remove(0);
        let len = sim.len(&path).unwrap().unwrap() as usize;
        // Where the parts begin: format.rs.
        let footer = sim.read(&path).unwrap().split_off(len - 72);
        let part = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
        let (filter, index, statistics) = (part(16), part(24), part(32));
        let top = statistics - 40;
        for (at, may_lose) in [
            (&[filter / 3][..], 40),
            (&[filter + 5], 0),
            (&[index + 5], 0),
            (&[top], 0),
            (&[statistics + 5], 0),
            (&[filter + 5, index + 500, statistics + 5], 0),
            (&[filter + 5, top, statistics + 5], 0),
            (
                &[filter / 2, top, statistics + 5],
                if compression == Compression::None {
                    40
                } else {
                    ITEMS / 2 + 40
                },
            ),
            (&[len - 72], ITEMS),
        ] {
            let sim = sim.kill();
            for at in at.iter().flat_map(|at| *at..at + 16) {
                flip(&sim, &path, at);
            }
            let report = repair(&sim, &clock);
            let (_db, c) = open(&sim, &clock);
            let missing = compare(&c, &model, &report, ITEMS);
            assert!(missing <= may_lose, "{compression:?} {at:?}: {missing}");
            assert!(missing > 0 || may_lose == 0, "{compression:?} {at:?}");
            println!(
                "FIGURE 16 bytes at {at:?} of {len}, {compression:?}: {missing} of {ITEMS} lost"
            );
        }
    }
}

/// A database of several runs, with overwrites, deletes, range deletes and large values; all of it flushed.
struct Built {
    sim: Sim,
    clock: ManualClock,
    model: Model,
}

const KEYS: usize = 400;

fn build(seed: u64) -> Built {
    let (sim, clock) = (Sim::new(seed), ManualClock::new(START));
    let mut random = Random(seed);
    let mut options = options(&sim, &clock).max_runs(8);
    if random.one_in(3) {
        options = options.compression(Compression::Lz4);
    }
    let (db, c) = stage::open(&options);
    let mut model = Model::new();
    let (large, flushes) = (random.one_in(2), 2 + random.below(5));
    for flush in 0..flushes {
        let one_in = 1 + random.below(4);
        for n in 0..KEYS {
            if flush > 0 && !random.one_in(one_in) {
                continue;
            }
            let len = match random.below(40) {
                0 if large => 17_000 + random.below(2_000),
                1..4 => 300,
                _ => 20,
            };
            if random.one_in(6) {
                c.delete(key(n)).unwrap();
                model.remove(&key(n));
                continue;
            }
            let text = format!("{flush} {n} {} ", random.next()).into_bytes();
            let value: Vec<u8> = text.iter().copied().cycle().take(len).collect();
            c.put(key(n), &value).unwrap();
            model.insert(key(n), value);
        }
        if random.one_in(4) {
            let from = random.below(KEYS);
            let (from, to) = (key(from), key(from + random.below(40)));
            c.delete_range(from.clone()..to.clone()).unwrap();
            model.retain(|key, _| !(&from..&to).contains(&key));
        }
        db.flush().unwrap();
        if random.one_in(3) {
            db.step().unwrap();
        }
    }
    let sim = sim.kill();
    Built { sim, clock, model }
}

/// Noise of up to so many bytes, anywhere in a table, or at its end, where what tells of its blocks is.
fn damage(sim: &Sim, random: &mut Random) {
    let path = random.pick(&tables(sim));
    let bytes = sim.read(&path).unwrap();
    let most = random.pick(&[1, 16, 16, 600]);
    let len = 1 + random.below(most);
    let at = match random.below(4) {
        0 => bytes.len() - 1 - random.below(bytes.len().min(600)),
        1 => bytes.len() - 1 - random.below(bytes.len().min(3_000)),
        _ => random.below(bytes.len()),
    };
    let file = sim.open(&path).unwrap();
    for (at, byte) in bytes.iter().enumerate().skip(at).take(len) {
        let noise = byte ^ (1 + random.below(255) as u8);
        file.write_at(at as u64, &[noise]).unwrap();
    }
    file.sync().unwrap();
}

/// All of a container, by gets and by a scan, which must agree.
fn all(c: &Container, model: &Model, report: &RepairReport) -> usize {
    let missing = compare(c, model, report, KEYS);
    let scanned: Model = c
        .iter()
        .map(|item| item.unwrap())
        .map(|item| (item.key().to_vec(), item.value().to_vec()))
        .collect();
    let got = (0..KEYS).map(key).filter_map(|key| {
        let value = c.get(&key).unwrap()?;
        Some((key, value.to_vec()))
    });
    assert!(got.eq(scanned), "a scan differs from gets");
    missing
}

#[test]
fn what_is_missing_was_reported_and_all_else_is_right() {
    let (mut lost, mut whole, mut repaired) = (0, 0, 0);
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 25) {
        let built = build(seed);
        let mut random = Random(seed ^ 0x5eed);
        for _ in 0..12 {
            let sim = built.sim.kill();
            for _ in 0..1 + random.below(3) {
                damage(&sim, &mut random);
            }
            let report = repair(&sim, &built.clock);
            if report.losses.is_empty() {
                continue;
            }
            repaired += 1;
            let (db, c) = open(&sim, &built.clock);
            let missing = all(&c, &built.model, &report);
            let bound: Option<u64> = report.losses.iter().map(|loss| loss.records).sum();
            assert!(
                bound.is_none_or(|bound| missing as u64 <= bound),
                "{report:?}"
            );
            whole += usize::from(missing == 0);
            lost += missing;
            db.compact().unwrap();
            assert_eq!(
                all(&c, &built.model, &report),
                missing,
                "after a compaction"
            );
            db.close().unwrap();
            let (db, c) = open(&sim, &built.clock);
            assert_eq!(all(&c, &built.model, &report), missing, "after a reopen");
            assert!(db.verify().unwrap().faults.is_empty());
            // There is nothing more to be done.
            db.close().unwrap();
            assert!(repair(&sim, &built.clock).losses.is_empty());
        }
    }
    println!("FIGURE repairs: {repaired}, {whole} without a loss, {lost} keys lost of {KEYS} each");
    assert!(repaired > 0 && whole > 0 && lost > 0);
}

#[test]
fn a_damaged_header_of_a_log_segment_loses_nothing() {
    let (sim, clock) = (Sim::new(2), ManualClock::new(START));
    let (db, c) = open(&sim, &clock);
    let mut model = Model::new();
    for n in 0..3_000 {
        let value = format!("value {n:0400}").into_bytes();
        c.put(key(n), &value).unwrap();
        model.insert(key(n), value);
    }
    db.sync().unwrap();
    c.put(key(3_000), "last").unwrap();
    model.insert(key(3_000), b"last".to_vec());
    std::mem::forget((db, c));
    let sim = sim.kill();
    let wal = Path::new(PATH).join("wal");
    let names = sim.list(&wal).unwrap().into_iter();
    let mut segments: Vec<PathBuf> = names
        .filter(|name| name.ends_with(".wal"))
        .map(|name| wal.join(name))
        .collect();
    segments.sort();
    // The last one is allocated ahead.
    segments.pop();
    assert!(segments.len() >= 2, "{segments:?}");
    for (path, at) in segments.iter().zip([9, 47]) {
        let sim = sim.kill();
        flip(&sim, path, at);
        let refused = options(&sim, &clock).open(PATH).err().unwrap();
        assert!(
            refused.to_string().contains("nothing is lost by it"),
            "{refused}"
        );
        let report = repair(&sim, &clock);
        let [loss] = &report.losses[..] else {
            panic!("{report:?}")
        };
        assert!(loss.to_string().contains("nothing is lost by it"), "{loss}");
        assert!(report.set_aside.contains(path), "{report:?}");
        let (_db, c) = open(&sim, &clock);
        assert_eq!(compare(&c, &model, &RepairReport::default(), 3_001), 0);
    }
}

/// The recorded time is hours ahead of the wall clock: a repair does not depend on it, and leaves to the next open whether
/// time may start there.
#[test]
fn a_database_from_the_future_is_repaired() {
    let sim = Sim::new(1);
    let clock = ManualClock::new(START);
    let (db, c) = open(&sim, &clock);
    for n in 0..100 {
        c.put(key(n), "v").unwrap();
    }
    c.put_with_ttl("ended", "v", Duration::from_secs(1))
        .unwrap();
    db.flush().unwrap();
    clock.jump(START + 48 * 3_600_000);
    db.confirm_clock();
    c.put("last", "v").unwrap();
    assert!(!c.contains("ended").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    flip(&sim, &tables(&sim)[0], 20);
    let earlier = ManualClock::new(START + 1_000);
    let report = repair(&sim, &earlier);
    assert!(!report.losses.is_empty());
    let refused = options(&sim, &earlier).open(PATH).unwrap_err();
    assert!(matches!(refused, Error::ClockBehind { .. }), "{refused}");
    let at_mark = options(&sim, &earlier).clock_behind(ClockBehind::StartAtMark);
    let c = at_mark.open(PATH).unwrap().container("c").unwrap();
    assert!(c.contains("last").unwrap() && !c.contains("ended").unwrap());
    let kept = (0..100).filter(|n| c.contains(key(*n)).unwrap());
    assert!(kept.count() >= 80);
}

/// A copy has seen writes that a repair loses. What is written later has other versions, so that it cannot be taken for
/// these.
#[test]
fn no_version_that_was_lost_is_given_again() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = open(&sim, &clock);
    let told = |db: &Database, since: Version| -> ebbtide::Result<(usize, Version)> {
        let mut changes = db.changes(since);
        let count = changes
            .by_ref()
            .try_fold(0, |count, change| change.map(|_| count + 1))?;
        Ok((count, changes.version()))
    };
    c.put(key(0), "v").unwrap();
    let early = told(&db, Version::start()).unwrap().1;
    for n in 0..1_000 {
        c.put(key(n), format!("value {n:0400}")).unwrap();
    }
    let seen = told(&db, early).unwrap().1;
    db.sync().unwrap();
    std::mem::forget((db, c));
    let sim = sim.kill();
    let wal = Path::new(PATH).join("wal");
    let names = sim.list(&wal).unwrap();
    let first = names.iter().filter(|name| name.ends_with(".wal")).min();
    flip(&sim, &wal.join(first.unwrap()), 20 << 10);
    assert!(!repair(&sim, &clock).losses.is_empty());
    let (db, c) = open(&sim, &clock);
    let left = c.count(..).unwrap();
    assert!(left > 0 && left < 1_000, "{left}");
    for n in 0..2_000 {
        c.put(key(n), "later").unwrap();
    }
    for since in [early, seen] {
        assert!(told(&db, since).unwrap_err().is_changes_gone());
    }
    let now = told(&db, Version::start()).unwrap().1;
    c.put(key(0), "last").unwrap();
    drop((db, c));
    let (db, c) = open(&sim, &clock);
    let (count, last) = told(&db, now).unwrap();
    assert!(count > 0 && last > now);
    assert_eq!(c.count(..).unwrap(), 2_000);
    assert!(told(&db, seen).unwrap_err().is_changes_gone());
}
