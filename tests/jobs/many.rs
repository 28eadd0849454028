//! Goal: work that a database does for many containers together is done once, and a failure of one does not hold up the
//! others. Method: the calls of a simulated disk are counted, or fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::internals::{Call, Fault, Sim, Survivors};
use ebbtide::{Container, Database, Durability, ManualClock};
use testkit::stage::{NOW, fail_from_now, in_steps};

/// More than are flushed together.
const MANY: u64 = 600;

fn open(sim: &Sim, memtable_bytes: usize) -> Database {
    in_steps(sim, &ManualClock::new(NOW))
        .durability(Durability::Sync)
        .memtable_bytes(memtable_bytes)
        .open("/db")
        .unwrap()
}

fn name(n: u64) -> String {
    format!("container {n}")
}

/// So many containers, with an item each.
fn write(db: &Database, count: u64) -> Vec<Container> {
    let put = |n| {
        let container = db.container(name(n)).unwrap();
        container.put("key", n.to_be_bytes()).unwrap();
        container
    };
    (0..count).map(put).collect()
}

/// Each has its item, and nothing of it is in memory where `flushed` says so.
fn check(db: &Database, count: u64, flushed: impl Fn(u64) -> bool) {
    for n in 0..count {
        let container = db.container(name(n)).unwrap();
        assert_eq!(container.get("key").unwrap().unwrap(), n.to_be_bytes());
        assert_eq!(container.stats().runs, u64::from(flushed(n)), "{n}");
    }
}

/// Counts calls from now on.
fn count(sim: &Sim, which: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> Arc<AtomicU64> {
    let counted = Arc::new(AtomicU64::new(0));
    sim.watch({
        let counted = counted.clone();
        move |_, call| {
            counted.fetch_add(u64::from(which(call)), Ordering::Relaxed);
        }
    });
    counted
}

fn is_manifest_write(call: &Call<'_>) -> bool {
    call.operation == "write" && call.path.to_string_lossy().contains("manifest-")
}

#[test]
fn small_memtables_are_flushed_by_few_edits_and_power_cuts_lose_none() {
    let sim = Sim::new(1);
    let db = open(&sim, 64 << 20);
    let _containers = write(&db, MANY);
    let edits = count(&sim, is_manifest_write);
    db.flush().unwrap();
    assert_eq!(edits.load(Ordering::Relaxed), MANY.div_ceil(256));
    let folders = count(&sim, |call| {
        call.operation.contains("sync") && call.path == Path::new("/db/tables")
    });
    write(&db, 200);
    db.flush().unwrap();
    assert_eq!(folders.load(Ordering::Relaxed), 1);
    sim.unwatch();
    for kept in [Survivors::Nothing, Survivors::Everything] {
        let db = open(&sim.power_cut_with(kept), 64 << 20);
        for n in 0..MANY {
            let item = db.container(name(n)).unwrap().get("key").unwrap();
            assert_eq!(item.unwrap(), n.to_be_bytes());
        }
        let runs = db.stats().runs;
        assert_eq!(runs, MANY + 200, "nothing but tables was left to read");
    }
}

/// A memtable that is a good part of `memtable_bytes` is not held up for others.
#[test]
fn large_memtables_are_flushed_alone() {
    let sim = Sim::new(1);
    let db = open(&sim, 1 << 20);
    for container in write(&db, 4) {
        container.put("large", vec![7; 200 << 10]).unwrap();
    }
    let edits = count(&sim, is_manifest_write);
    db.flush().unwrap();
    assert_eq!(edits.load(Ordering::Relaxed), 4);
    check(&db, 4, |_| true);
}

#[test]
fn one_that_cannot_be_flushed_keeps_no_other_waiting() {
    let sim = Sim::new(1);
    let db = open(&sim, 64 << 20);
    let containers = write(&db, 5);
    let made = AtomicU64::new(0);
    // The third table, and each that is made for the one container that is left.
    fail_from_now(&sim, Fault::Io, move |call| {
        let makes = call.operation == "create" && call.path.starts_with("/db/tables");
        makes && ![0, 1, 3, 4].contains(&made.fetch_add(1, Ordering::Relaxed))
    });
    assert!(db.flush().is_err());
    check(&db, 5, |n| n != 2);
    sim.heal();
    db.flush().unwrap();
    check(&db, 5, |_| true);
    drop(containers);
}

#[test]
fn one_that_is_dropped_while_it_is_flushed_leaves_nothing_behind() {
    let sim = Sim::new(1);
    let db = open(&sim, 64 << 20);
    let containers = write(&db, 5);
    let made = AtomicU64::new(0);
    sim.watch({
        let db = db.clone();
        move |_, call| {
            let makes = call.operation == "create" && call.path.starts_with("/db/tables");
            if makes && made.fetch_add(1, Ordering::Relaxed) == 3 {
                assert!(db.drop_container(name(1)).unwrap());
            }
        }
    });
    db.flush().unwrap();
    sim.unwatch();
    assert!(containers[1].get("key").is_err());
    for n in [0, 2, 3, 4] {
        assert_eq!(db.container(name(n)).unwrap().stats().runs, 1);
    }
    assert_eq!((db.stats().containers, db.stats().tables), (4, 4));
    let tables = ebbtide::internals::Fs::list(&sim, Path::new("/db/tables")).unwrap();
    assert_eq!(tables.len(), 4);
}
