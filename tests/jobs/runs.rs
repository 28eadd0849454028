//! Goal: the number of runs follows the load: scans over many runs have them merged, gets do not, and runs that a scan
//! reads one after the other stay separate.
//!
//! Method: a database on a simulated disk, background work step by step, several runs over the same keys or over keys
//! that ascend.

use std::sync::Arc;

use ebbtide::internals::Sim;
use ebbtide::{Container, Database, Options};
use testkit::stage::rest;

const RUNS: usize = 5;
const ITEMS: usize = 2_000;

fn key(n: usize) -> [u8; 8] {
    (n as u64).to_be_bytes()
}

/// `key_of(run, n)` is the nth key of a run.
fn in_runs(key_of: impl Fn(usize, usize) -> usize) -> (Database, Container) {
    let options = Options::new().fs(Arc::new(Sim::new(1))).stepped();
    let db = options.background_rate(1 << 40).open("/db").unwrap();
    let items = db.container("items").unwrap();
    for run in 0..RUNS {
        (0..ITEMS).for_each(|n| items.put(key(key_of(run, n)), [run as u8; 50]).unwrap());
        db.flush().unwrap();
    }
    assert_eq!(items.stats().runs as usize, RUNS);
    (db, items)
}

#[test]
fn scans_have_the_runs_that_they_walk_merged_and_gets_do_not() {
    let (db, items) = in_runs(|run, n| n * RUNS + run);
    for n in 0..ITEMS {
        assert!(items.get(key(n)).unwrap().is_some());
    }
    assert_eq!(items.iter().count(), RUNS * ITEMS);
    rest(&db);
    assert_eq!(items.stats().runs as usize, RUNS, "one scan pays nothing");
    for n in 0..5_000 {
        assert!(items.range(key(n)..).next().unwrap().is_ok());
    }
    let explain = items.stats().explain;
    assert!(explain.contains(", scans: of 5 runs"), "{explain}");
    rest(&db);
    assert_eq!(items.stats().runs, 1);
    assert_eq!(items.iter().count(), RUNS * ITEMS);
    let merged = db.stats().bytes_merged;
    for n in 0..5_000 {
        assert!(items.range(key(n)..).next().unwrap().is_ok());
    }
    rest(&db);
    assert_eq!(db.stats().bytes_merged, merged, "there is nothing to gain");
}

#[test]
fn what_was_paid_is_spent_once() {
    let (db, items) = in_runs(|run, n| n * RUNS + run);
    (0..5_000).for_each(|n| assert!(items.range(key(n)..).next().is_some()));
    rest(&db);
    assert_eq!(items.stats().runs, 1);
    (0..ITEMS).for_each(|n| items.put(key(n), [9; 50]).unwrap());
    db.flush().unwrap();
    rest(&db);
    assert_eq!(items.stats().runs, 2);
}

#[test]
fn keys_that_ascend_with_time_are_not_rewritten_for_scans() {
    let (db, items) = in_runs(|run, n| run * ITEMS + n);
    for _ in 0..5_000 {
        assert!(items.range(key(0)..).next().unwrap().is_ok());
    }
    rest(&db);
    assert_eq!(items.stats().runs as usize, RUNS);
    assert_eq!(db.stats().bytes_merged, 0);
}

/// A version that only a snapshot sees stays with the one that hides it, in one run, and goes when the snapshot is dropped.
#[test]
fn what_a_snapshot_kept_in_a_run_goes_after_it() {
    for by_steps in [true, false] {
        let options = Options::new().fs(Arc::new(Sim::new(1))).stepped();
        let db = options.background_rate(1 << 40).open("/db").unwrap();
        let items = db.container("items").unwrap();
        let fill = || (0..ITEMS).for_each(|n| items.put(key(n), [7; 50]).unwrap());
        fill();
        let snapshot = db.snapshot();
        fill();
        db.flush().unwrap();
        let work = || match by_steps {
            true => rest(&db),
            false => db.compact().unwrap(),
        };
        work();
        let stats = items.stats();
        assert_eq!((stats.runs, db.stats().bytes_merged), (1, 0));
        assert!(stats.superseded_bytes * 9 > stats.live_bytes * 8);
        drop(snapshot);
        work();
        let stats = items.stats();
        assert_eq!((stats.runs, stats.superseded_bytes), (1, 0));
        assert_eq!(stats.live_items as usize, ITEMS);
        let merged = db.stats().bytes_merged;
        work();
        assert_eq!(db.stats().bytes_merged, merged, "there is nothing to gain");
    }
}

/// A snapshot between the versions of some keys, and not of others: what it does not need goes beside it.
#[test]
fn what_no_snapshot_needs_goes_beside_one() {
    let options = Options::new().fs(Arc::new(Sim::new(1))).stepped();
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    let fill = |from: usize| (from..ITEMS).for_each(|n| items.put(key(n), [7; 50]).unwrap());
    fill(0);
    let first = db.snapshot();
    fill(ITEMS / 2);
    let second = db.snapshot();
    fill(ITEMS / 4 * 3);
    db.compact().unwrap();
    let superseded = || items.stats().superseded_bytes;
    let all = superseded();
    drop(first);
    db.compact().unwrap();
    assert!(
        superseded() > 0 && superseded() * 2 < all,
        "{}",
        superseded()
    );
    drop(second);
    db.compact().unwrap();
    assert_eq!(superseded(), 0);
}

/// Between the steps a compaction asks whether it is to go on; what it leaves is done by the next.
#[test]
fn a_compaction_ends_early_when_it_is_told_to() {
    let options = Options::new().fs(Arc::new(Sim::new(1))).stepped();
    let db = options.open("/db").unwrap();
    let all: Vec<_> = (0..5)
        .map(|n| db.container(format!("{n}")).unwrap())
        .collect();
    for _ in 0..3 {
        all.iter().for_each(|items| items.put("k", "v").unwrap());
        db.flush().unwrap();
    }
    let runs = || db.stats().runs;
    assert_eq!(runs(), 15);
    assert!(!db.compact_while(|| false).unwrap());
    assert_eq!(runs(), 15);
    let asked = std::cell::Cell::new(0);
    let ended = db.compact_while(|| {
        asked.set(asked.get() + 1);
        asked.get() < 5
    });
    assert!(!ended.unwrap());
    assert!((6..15).contains(&runs()), "{}", runs());
    assert!(db.compact_while(|| true).unwrap());
    assert_eq!(runs(), 5);
}
