//! Goal: with writers, readers, scans, snapshots, changes of settings, flushes and compaction all at once, on threads of
//! the engine's own, every reader sees one consistent past.
//!
//! Method: invariants that need no model. Each writer raises its keys' values, so a reader never sees one fall. Each
//! batch writes one number to two containers, so a snapshot and a scan never see two. Each item carries its own expiry
//! as the clock gives it, so no reader may see one that was over before the read began. Counters raised through
//! `update` lose nothing.
//!
//! `EBBTIDE_SECONDS` says how long (default 3). A run of a minute is for release builds.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebbtide::{
    Batch, Compression, Container, Database, DefaultTtl, Durability, Item, Options, Ttl, Update,
};
use testkit::random::Random;

const KEYS: usize = 400;
const WRITERS: u64 = 2;
/// A slow machine goes on until this many reads and writes are done.
const ENOUGH: u64 = 200;

struct Stage {
    db: Database,
    stop: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Stage {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn container(&self, name: &str) -> Container {
        self.db.container(name).unwrap()
    }

    fn read(&self, count: usize) {
        self.reads.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn did_enough(&self) -> bool {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        count(&self.reads) > ENOUGH && count(&self.writes) > ENOUGH
    }

    fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// A number, and some bytes that follow from it.
fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_be_bytes().to_vec();
    value.resize(8 + (n % 200) as usize, n as u8);
    value
}

#[track_caller]
fn whole(bytes: &[u8]) -> u64 {
    let n = number(bytes);
    assert!(bytes == value(n), "a value is torn");
    n
}

/// Raises the values of its own keys, for ever.
fn raise(stage: &Stage, writer: u64) {
    let rising = stage.container("rising");
    let mut random = Random(writer);
    let mut n = 0;
    while stage.goes_on() {
        n += 1;
        let key = format!("{writer}-{:03}", random.below(KEYS));
        match n % 50 {
            0 => drop(
                rising
                    .update(&key, |_| Update::Put(value(n), Ttl::Never))
                    .unwrap(),
            ),
            _ => rising.put(&key, value(n)).unwrap(),
        }
        let found = rising
            .get(&key)
            .unwrap()
            .expect("a writer reads its own write");
        assert_eq!(whole(&found), n, "a writer reads its own write");
        stage.wrote();
    }
}

/// No value falls, none goes missing, every value is whole; by get and by scan in turn.
fn see_rising(stage: &Stage, seed: u64) {
    let rising = stage.container("rising");
    let mut random = Random(seed);
    let mut highest = std::collections::BTreeMap::<Vec<u8>, u64>::new();
    while stage.goes_on() {
        let mut see = |key: &[u8], bytes: &[u8]| {
            let n = whole(bytes);
            let before = highest.insert(key.to_vec(), n).unwrap_or(0);
            assert!(
                n >= before,
                "{} fell from {before} to {n}",
                String::from_utf8_lossy(key)
            );
        };
        if random.one_in(100) {
            let items: Vec<Item> = rising.iter().map(Result::unwrap).collect();
            assert!(
                items.is_sorted_by(|a, b| a.key() < b.key()),
                "out of order, or twice"
            );
            items.iter().for_each(|item| see(item.key(), item.value()));
            stage.read(items.len());
            let found: Vec<&[u8]> = items.iter().map(Item::key).collect();
            let missing = highest
                .keys()
                .find(|key| found.binary_search(&key.as_slice()).is_err());
            assert_eq!(missing, None, "a scan misses what was there before it");
            continue;
        }
        let key = format!(
            "{}-{:03}",
            random.below(WRITERS as usize),
            random.below(KEYS)
        )
        .into_bytes();
        match rising.get(&key).unwrap() {
            Some(bytes) => see(&key, &bytes),
            None => assert!(
                !highest.contains_key(&key),
                "{} is gone",
                String::from_utf8_lossy(&key)
            ),
        }
        stage.read(1);
    }
}

/// Writes one number under one key of two containers at once.
fn write_pairs(stage: &Stage) {
    let (left, right) = (stage.container("left"), stage.container("right"));
    let mut n = 0;
    while stage.goes_on() {
        n += 1;
        let mut batch = Batch::new();
        for key in 0..4u8 {
            batch
                .put(&left, [key], value(n))
                .put(&right, [key], value(n));
        }
        stage.db.write(batch).unwrap();
        stage.wrote();
    }
}

/// A snapshot sees one number in all places, then as now; a scan sees one number in its container.
fn see_pairs(stage: &Stage) {
    let left = stage.container("left");
    let mut before = 0;
    while stage.goes_on() {
        let snapshot = stage.db.snapshot();
        let (l, r) = (
            snapshot.container("left").unwrap(),
            snapshot.container("right").unwrap(),
        );
        let all = || {
            let items = l
                .iter()
                .chain(r.iter().rev())
                .map(|item| whole(item.unwrap().value()));
            items.collect::<Vec<u64>>()
        };
        let first = all();
        assert!(
            first.iter().all(|&n| n == first[0]),
            "a snapshot halves a batch: {first:?}"
        );
        assert!(first.is_empty() || first.len() == 8, "{first:?}");
        let n = first.first().copied().unwrap_or(0);
        assert!(n >= before, "snapshots go back from {before} to {n}");
        before = n;
        let scanned: Vec<u64> = left
            .iter()
            .map(|item| whole(item.unwrap().value()))
            .collect();
        assert!(
            scanned.iter().all(|&n| n == scanned[0] && n >= before),
            "a scan halves a batch: {scanned:?}"
        );
        for key in 0..4u8 {
            assert_eq!(
                r.get([key]).unwrap().map(|bytes| whole(&bytes)),
                first.first().copied()
            );
        }
        assert_eq!(all(), first, "a snapshot moves");
        stage.read(28);
    }
}

fn millis() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

/// Writes items that live for some milliseconds; the value tells the latest moment at which they end.
fn write_brief(stage: &Stage) {
    let brief = stage.container("brief");
    let mut random = Random(77);
    while stage.goes_on() {
        let life = 1 + random.below(60) as u64;
        let key = format!("b{:03}", random.below(KEYS));
        brief
            .put_with_ttl(&key, value(0), Ttl::After(Duration::from_millis(life)))
            .unwrap();
        stage.wrote();
    }
}

/// No item that was over when the read began; what its expiry is, the item says itself.
fn see_brief(stage: &Stage) {
    let brief = stage.container("brief");
    let mut random = Random(78);
    let check = |item: &Item, began: u64| {
        let ends = item
            .expires_at()
            .expect("each has a lifetime")
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64;
        assert!(
            ends > began,
            "an item that ended at {ends} is seen by a read that began at {began}"
        );
    };
    while stage.goes_on() {
        if random.one_in(20) {
            let snapshot = stage.db.snapshot();
            let mut iter = if random.one_in(2) {
                brief.iter()
            } else {
                snapshot.container("brief").unwrap().iter()
            };
            loop {
                // Judged when it is reached, not when the iterator was made.
                let began = millis();
                let Some(item) = iter.next() else { break };
                check(&item.unwrap(), began);
                stage.read(1);
            }
            continue;
        }
        let began = millis();
        if let Some(item) = brief.item(format!("b{:03}", random.below(KEYS))).unwrap() {
            check(&item, began);
        }
        stage.read(1);
    }
}

/// Raises a counter through `update`; answers how often.
fn count(stage: &Stage) -> u64 {
    let counters = stage.container("counters");
    let mut done = 0;
    while stage.goes_on() {
        let changed = counters.update("n", |item| {
            let n = item.map_or(0, |item| number(item.value()));
            Update::Put((n + 1).to_be_bytes().to_vec(), Ttl::Inherit)
        });
        assert!(changed.unwrap());
        done += 1;
        stage.wrote();
    }
    done
}

/// Of all that try to create a key, one does.
fn claim(stage: &Stage, claims: &AtomicU64) {
    let claimed = stage.container("claimed");
    let mut n = 0u64;
    while stage.goes_on() {
        n += 1;
        if claimed.create(n.to_be_bytes(), "mine", Ttl::Never).unwrap() {
            claims.fetch_add(1, Ordering::Relaxed);
        }
        stage.wrote();
    }
}

/// Settings change while items are there; items that never expire stay.
fn change_settings(stage: &Stage) {
    let settings = stage.container("settings");
    for n in 0..100u64 {
        settings
            .put_with_ttl(format!("n{n:02}"), value(n), Ttl::Never)
            .unwrap();
    }
    let mut random = Random(5);
    while stage.goes_on() {
        let standard = random.pick(&[
            DefaultTtl::Off,
            DefaultTtl::NoDefault,
            DefaultTtl::After(Duration::from_millis(1)),
            DefaultTtl::After(Duration::from_secs(60)),
        ]);
        settings.set_default_ttl(standard).unwrap();
        assert_eq!(settings.default_ttl(), standard);
        settings.put("inherits", value(1)).unwrap();
        settings
            .put_with_ttl("short", value(2), Ttl::After(Duration::from_millis(1)))
            .unwrap();
        std::thread::sleep(Duration::from_millis(3));
        if standard == DefaultTtl::After(Duration::from_millis(1)) {
            assert!(
                !settings.contains("inherits").unwrap() && !settings.contains("short").unwrap()
            );
            settings.set_default_ttl(DefaultTtl::Off).unwrap();
            assert!(
                !settings.contains("inherits").unwrap() && !settings.contains("short").unwrap(),
                "came back"
            );
        }
        assert_eq!(settings.prefix("n").count(), 100);
        stage.wrote();
    }
}

/// Flushes, compacts, syncs, drops and creates containers, takes checkpoints.
fn maintain(stage: &Stage, folder: &std::path::Path) {
    let mut random = Random(6);
    let mut copies = 0;
    while stage.goes_on() {
        match random.below(12) {
            0..=3 => stage.db.flush().unwrap(),
            4..=6 => stage.db.sync().unwrap(),
            7 | 8 => stage.db.compact().unwrap(),
            9 => {
                let passing = stage.container("passing");
                (0..50u64).for_each(|n| passing.put(n.to_be_bytes(), value(n)).unwrap());
                assert_eq!(passing.iter().count(), 50);
                assert!(stage.db.drop_container("passing").unwrap());
                assert!(passing.get("k").unwrap_err().is_closed());
            }
            10 if copies < 3 => {
                copies += 1;
                let path = folder.join(format!("copy-{copies}"));
                stage.db.checkpoint(&path).unwrap();
                see_checkpoint(&path);
            }
            _ => {
                let _ = (stage.db.stats(), stage.container("rising").stats());
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(20) as u64));
    }
}

/// Batches are whole in a copy too.
fn see_checkpoint(path: &std::path::Path) {
    let copy = Database::open(path).unwrap();
    let numbers = |name| {
        let items = copy
            .container(name)
            .unwrap()
            .iter()
            .map(|item| whole(item.unwrap().value()));
        items.collect::<Vec<u64>>()
    };
    let all = [numbers("left"), numbers("right")].concat();
    assert!(
        all.iter().all(|&n| n == all[0]),
        "a checkpoint halves a batch: {all:?}"
    );
}

fn play(options: Options, seconds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = options.open(&path).unwrap();
    for name in ["rising", "left", "right", "counters", "claimed", "settings"] {
        db.container(name).unwrap();
    }
    db.container("brief")
        .unwrap()
        .set_default_ttl(DefaultTtl::NoDefault)
        .unwrap();
    let stage = Stage {
        db,
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        writes: AtomicU64::new(0),
    };
    let claims = AtomicU64::new(0);
    let copies = folder.path();
    let (shared, shared_claims) = (&stage, &claims);
    let mut work: Vec<Box<dyn FnOnce() + Send + '_>> = vec![
        Box::new(move || see_rising(shared, 11)),
        Box::new(move || see_rising(shared, 12)),
        Box::new(move || write_pairs(shared)),
        Box::new(move || see_pairs(shared)),
        Box::new(move || write_brief(shared)),
        Box::new(move || see_brief(shared)),
        Box::new(move || change_settings(shared)),
        Box::new(move || maintain(shared, copies)),
        Box::new(move || claim(shared, shared_claims)),
        Box::new(move || claim(shared, shared_claims)),
    ];
    for writer in 0..WRITERS {
        work.push(Box::new(move || raise(shared, writer)));
    }
    let counted: u64 = std::thread::scope(|scope| {
        for one in work {
            scope.spawn(move || {
                let _stop = StopOnDrop(&shared.stop);
                one();
            });
        }
        let counters: Vec<_> = (0..2).map(|_| scope.spawn(|| count(shared))).collect();
        let began = Instant::now();
        while shared.goes_on()
            && (began.elapsed() < Duration::from_secs(seconds) || !shared.did_enough())
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        shared.stop.store(true, Ordering::Relaxed);
        counters
            .into_iter()
            .map(|counter| counter.join().unwrap())
            .sum()
    });
    let claims = claims.into_inner();
    check_totals("at the end", &stage.db, counted, claims);
    stage.db.close().unwrap();
    let (reads, writes) = (stage.reads.into_inner(), stage.writes.into_inner());
    drop(stage.db);
    let again = Database::open(&path).unwrap();
    check_totals("reopened", &again, counted, claims);
    assert!(
        reads > ENOUGH && writes > ENOUGH,
        "the loop went on until then"
    );
}

/// One thread's failure ends the others.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check_totals(when: &str, db: &Database, counted: u64, claims: u64) {
    let value = db.container("counters").unwrap().get("n").unwrap();
    assert_eq!(
        value.map_or(0, |bytes| number(&bytes)),
        counted,
        "{when}: updates were lost"
    );
    let claimed = db.container("claimed").unwrap();
    assert_eq!(
        claimed.iter().map(Result::unwrap).count() as u64,
        claims,
        "{when}: a key was created twice, or lost"
    );
}

#[test]
fn everything_at_once() {
    let options = Options::new()
        .memtable_bytes(256 << 10)
        .max_runs(4)
        .reclaim_within(Duration::from_millis(200))
        .sizes(512, 64 << 10, 256 << 10);
    play(options, testkit::env("EBBTIDE_SECONDS", 3));
}

#[test]
fn everything_at_once_compressed_and_synced() {
    let options = Options::new()
        .durability(Durability::Sync)
        .compression(Compression::Lz4)
        .cache_bytes(64 << 10)
        .memtable_bytes(16 << 10)
        .max_runs(2)
        .reclaim_within(Duration::from_millis(50))
        .sizes(256, 8 << 10, 32 << 10);
    play(options, testkit::env("EBBTIDE_SECONDS", 3));
}

/// Memtables are sealed all the time, between the look of a conditional write and the commit lock above all.
#[test]
fn one_of_many_creates_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_bytes(16 << 10).max_runs(8);
    let db = options
        .sizes(4_096, 1 << 20, 1 << 20)
        .open(folder.path())
        .unwrap();
    let (claimed, counters) = (
        db.container("claimed").unwrap(),
        db.container("counters").unwrap(),
    );
    let (claims, raised) = (AtomicU64::new(0), AtomicU64::new(0));
    let rounds = testkit::env("EBBTIDE_CLAIMS", 3_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..rounds {
                    if claimed
                        .create(n.to_be_bytes(), vec![7; 700], Ttl::Never)
                        .unwrap()
                    {
                        claims.fetch_add(1, Ordering::Relaxed);
                        let raise = |item: Option<&Item>| {
                            let n = item.map_or(0, |item| number(item.value()));
                            Update::Put((n + 1).to_be_bytes().to_vec(), Ttl::Inherit)
                        };
                        assert!(counters.update("n", raise).unwrap());
                        raised.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(
        claimed.iter().count() as u64,
        rounds,
        "every key was created"
    );
    assert_eq!(claims.into_inner(), rounds, "each once");
    let counted = counters.get("n").unwrap().map_or(0, |bytes| number(&bytes));
    assert_eq!(counted, raised.into_inner(), "updates were lost");
}
