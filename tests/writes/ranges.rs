//! Goal: range deletes cost what they are: memory while they are in memory, some bytes of log, an entry in the catalogue
//! while something older needs it, and nothing after that, however many they are and however long that goes on.
//!
//! Method: stepped histories on a simulated disk whose figures are looked at; none depends on how long anything takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::internals::{Fault, Sim, Survivors};
use ebbtide::{Container, Database, ManualClock, Options};
use testkit::stage::{NOW, bytes, fail_from_now, in_steps, open, rest};

const MEMTABLE: u64 = 256 << 10;

fn options(sim: &Sim) -> Options {
    in_steps(sim, &ManualClock::new(NOW))
        .memtable_bytes(MEMTABLE as usize)
        .background_rate(1 << 40)
}

fn key(n: u64) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

fn items(c: &Container) -> usize {
    c.iter().inspect(|item| assert!(item.is_ok())).count()
}

#[test]
fn they_count_as_memory_and_are_not_logged_again_for_ever() {
    let sim = Sim::new(1);
    let db = options(&sim).open("/db").unwrap();
    let (few, many) = (db.container("few").unwrap(), db.container("many").unwrap());
    for n in 0..12_000 {
        many.delete_range(key(n)..key(n + 1)).unwrap();
        rest(&db);
        let stats = db.stats();
        assert!(stats.memtable_bytes <= 3 * MEMTABLE, "{stats:?}");
        assert!(stats.log_bytes <= 16 * MEMTABLE, "{stats:?}");
    }
    assert!(db.stats().flushes > 2, "they are flushed as they come");
    // Few enough to stay in memory.
    (0..300).for_each(|n| many.delete_range(key(n)..key(n + 1)).unwrap());
    let before = db.stats().bytes_logged;
    for n in 0..2_000 {
        few.put(key(n), "a tiny one").unwrap();
        rest(&db);
    }
    let logged = db.stats().bytes_logged - before;
    assert!(logged < 4 * MEMTABLE, "{logged} bytes for 2 000 tiny puts");
}

#[test]
fn they_go_with_the_flush_where_nothing_is_older() {
    let sim = Sim::new(2);
    let (db, c) = open(options(&sim));
    let left = || c.stats().range_deletes;
    for n in 0..100 {
        c.put(key(n), "v").unwrap();
        c.delete_range(key(n / 2)..key(n)).unwrap();
    }
    assert_eq!(left(), 99, "one of them is of no key");
    db.flush().unwrap();
    assert_eq!(left(), 0, "the flush has applied them");
    for n in 0..100 {
        c.put(key(n), "v").unwrap();
    }
    db.flush().unwrap();
    // Each covers those before it.
    for n in 1..=50 {
        c.delete_range(..key(n)).unwrap();
    }
    let seen_by = db.snapshot();
    for n in 51..=60 {
        c.delete_range(..key(n)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(left(), 2, "one for the snapshot, one for those who come");
    let count = |view: &ebbtide::View| view.iter().count();
    assert_eq!(
        (count(&seen_by.container("c").unwrap()), items(&c)),
        (50, 40)
    );
    drop(seen_by);
    db.compact().unwrap();
    assert_eq!((left(), items(&c)), (0, 40));
}

/// Items come at the end and go at the front, for ever.
#[test]
fn a_queue_stays_small() {
    let sim = Sim::new(3);
    let db = options(&sim).open("/db").unwrap();
    let c = db.container("queue").unwrap();
    const LEN: u64 = 50;
    for n in 0..30_000u64 {
        c.put(key(n), [7; 50]).unwrap();
        c.delete_range(..key(n.saturating_sub(LEN))).unwrap();
        rest(&db);
        if n % 1_000 == 999 {
            let (stats, all) = (c.stats(), db.stats());
            assert!(stats.range_deletes < 2_000, "{stats:?}");
            assert!(stats.memtable_bytes < 3 * MEMTABLE, "{stats:?}");
            assert!(all.disk_bytes < 24 * MEMTABLE, "{all:?}");
            assert_eq!(items(&c), LEN as usize + 1);
        }
    }
    db.flush().unwrap();
    assert!(c.stats().range_deletes <= 1, "{:?}", c.stats());
}

/// With a dozen range deletes in memory that take more than one edit, over items in a table.
fn with_many_long_ones(sim: &Sim) -> (Database, Container) {
    let (db, c) = open(options(sim).memtable_bytes(64 << 20));
    (0..100).for_each(|n| c.put(key(n), "older").unwrap());
    db.flush().unwrap();
    // Of some 120 KB each: 240 KB in an edit.
    let bound = |n: u64| [key(n), vec![b'x'; 60_000]].concat();
    for n in (0..24).step_by(2) {
        c.delete_range(bound(n)..bound(n + 1)).unwrap();
    }
    (0..20).for_each(|n| c.put(key(5 * n), "newer").unwrap());
    db.sync().unwrap();
    (db, c)
}

/// Goal: what takes several edits counts all the same wherever power is cut. Method: before one call in three of the flush.
#[test]
fn a_flush_of_many_long_ones_is_whole_wherever_it_is_cut_off() {
    let sim = Sim::new(4);
    let options = |sim: &Sim| options(sim).memtable_bytes(64 << 20);
    let (db, c) = with_many_long_ones(&sim);
    let expected = bytes(c.iter());
    let left = Arc::new(Mutex::new(vec![]));
    let taken = left.clone();
    sim.watch(move |sim, _| {
        // Every call would be every step of many that are alike.
        if sim.operations() % 3 != 0 {
            return;
        }
        for kept in [Survivors::Nothing, Survivors::Everything] {
            taken.lock().unwrap().push(sim.power_cut_with(kept));
        }
    });
    let before = sim.operations();
    db.flush().unwrap();
    sim.unwatch();
    let calls = sim.operations() - before;
    assert!(calls > 12, "several edits: {calls} calls");
    assert_eq!(c.stats().range_deletes, 12);
    assert_eq!(bytes(c.iter()), expected);
    for sim in left.lock().unwrap().drain(..) {
        let (db, c) = open(options(&sim));
        assert_eq!(bytes(c.iter()), expected);
        db.flush().unwrap();
        assert_eq!(bytes(c.iter()), expected);
        assert_eq!(c.stats().range_deletes, 12, "none of them twice");
        db.compact().unwrap();
        assert_eq!(
            (bytes(c.iter()), c.stats().range_deletes),
            (expected.clone(), 0)
        );
    }
}

/// Goal: a flush that fails between its edits, and is done again by the same process, adds none twice. Method: from each of
/// its first calls on a manifest on, all fail until it has; what the manifest has in the end is seen after a reopen.
#[test]
fn a_flush_of_many_long_ones_is_whole_whichever_edit_fails() {
    let mut again = 0;
    for nth in 0..8 {
        let sim = Sim::new(4);
        let (db, c) = with_many_long_ones(&sim);
        let expected = bytes(c.iter());
        let calls = AtomicU64::new(0);
        fail_from_now(&sim, Fault::Full, move |call| {
            let is_edit = call.changes() && call.path.to_string_lossy().contains("manifest");
            is_edit && calls.fetch_add(1, Ordering::Relaxed) >= nth
        });
        let failed = db.flush().is_err();
        sim.heal();
        db.flush().unwrap();
        if failed {
            again += 1;
        }
        assert_eq!(bytes(c.iter()), expected, "call {nth}");
        drop((c, db));
        let db = options(&sim).memtable_bytes(64 << 20).open("/db").unwrap();
        db.flush().unwrap();
        let c = db.container("c").unwrap();
        let ranges = c.stats().range_deletes;
        assert_eq!((bytes(c.iter()), ranges), (expected, 12), "call {nth}");
    }
    assert!(again > 4, "{again} flushes were done again");
}
