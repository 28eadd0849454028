//! Goal: background work gives way to everything and still completes: with the lowest budget only it slows down, a
//! changed budget applies at once, a database without budget closes, and all obsolete files are removed.
//!
//! Method: databases with threads, on disk, with a manual clock. Tests wait for conditions, and never assert how long
//! something takes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{current, scope, sleep};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Compression, Container, Database, DefaultTtl, ManualClock, Options, Ttl};

use testkit::patience::wait_until;
use testkit::stage::{NOW, after, at, default, ms, on, seconds};
use testkit::watched::Watched;

fn tables(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("tables")).unwrap().count()
}

/// A run half of which expires after ten seconds, and half after a day: it takes a rewrite to give bytes back.
fn half_to_expire(db: &Database) -> Container {
    let c = db.container("half").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    for n in 0..2_000u32 {
        let life = if n % 2 == 0 { 10 } else { 86_400 };
        let ttl = Ttl::After(seconds(life));
        c.put_with_ttl(n.to_be_bytes(), [b'x'; 500], ttl).unwrap();
    }
    db.flush().unwrap();
    c
}

/// The thread that merges, at the lowest priority.
const MERGE: &str = "ebbtide-merge";
/// The one that takes over when a deadline nears.
const HURRY: &str = "ebbtide-hurry";

fn thread_name() -> String {
    current().name().unwrap_or_default().to_owned()
}

/// Two runs of four MiB over the same keys: one merge.
fn two_runs(db: &Database) {
    let c = db.container("runs").unwrap();
    for _ in 0..2 {
        for n in 0..4u32 {
            c.put(n.to_be_bytes(), vec![b'y'; 1 << 20]).unwrap();
        }
        db.flush().unwrap();
    }
}

#[test]
fn nothing_but_reclaiming_stands_still_at_the_lowest_rate() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let db = Options::new()
        .clock(clock.clone())
        .background_rate(1)
        .memtable_bytes(64 << 10)
        .max_runs(2)
        .reclaim_within(seconds(1))
        .reclaim_strict(true)
        .open(folder.path())
        .unwrap();
    let c = half_to_expire(&db);
    clock.advance(seconds(60));
    for n in 0..2_000u32 {
        assert_eq!(c.get(n.to_be_bytes()).unwrap().is_some(), n % 2 == 1);
    }
    let other = db.container("other").unwrap();
    for n in 0..3_000u32 {
        other.put(n.to_be_bytes(), [b'z'; 100]).unwrap();
        assert_eq!(
            &other.get(n.to_be_bytes()).unwrap().unwrap()[..],
            [b'z'; 100]
        );
    }
    let stats = c.stats();
    assert_eq!(stats.oldest_unreclaimed, Some(at(10_000)), "{stats:?}");
    assert!(stats.expired_bytes > 0, "{stats:?}");
    assert_eq!(stats.overdue, seconds(60 - 10 - 1));
    assert_eq!(db.stats().overdue, stats.overdue);
    db.set_background_rate(1 << 40);
    wait_until("what has expired is reclaimed", || {
        c.stats().oldest_unreclaimed.is_none()
    });
    assert_eq!(c.stats().overdue, Duration::ZERO);
    assert_eq!((c.stats().expired_bytes, c.iter().count()), (0, 1_000));
    assert_eq!(other.iter().count(), 3_000);
}

#[test]
fn a_higher_floor_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new()
        .background_rate(8 << 20)
        .background_floor(0)
        .memtable_bytes(16 << 20)
        .max_runs(1_000)
        .open(folder.path())
        .unwrap();
    two_runs(&db);
    let busy = db.container("busy").unwrap();
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        // More than the cap goes first, as far as the machine lets it.
        let writer = scope.spawn(|| {
            let mut n = 0u32;
            while !is_done.load(Ordering::Relaxed) {
                busy.put((n % 16).to_be_bytes(), vec![b'b'; 1 << 20])
                    .unwrap();
                n += 1;
                sleep(ms(20));
            }
        });
        let compaction = scope.spawn(|| db.compact().unwrap());
        sleep(ms(300));
        db.set_background_floor(u64::MAX);
        wait_until("the compaction ends", || compaction.is_finished());
        is_done.store(true, Ordering::Relaxed);
        compaction.join().unwrap();
        writer.join().unwrap();
    });
    assert_eq!(db.container("runs").unwrap().stats().runs, 1);
}

#[test]
fn a_database_with_a_starving_budget_closes() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().background_rate(1).memtable_bytes(16 << 20);
    let db = options.open(folder.path()).unwrap();
    two_runs(&db);
    scope(|scope| {
        let compaction = scope.spawn(|| db.compact());
        sleep(ms(100));
        db.close().unwrap();
        let ended = compaction.join().unwrap();
        assert!(ended.is_err_and(|error| error.is_closed()));
    });
    drop(db);
    let db = options.open(folder.path()).unwrap();
    let c = db.container("runs").unwrap();
    assert_eq!((c.iter().count(), c.stats().runs), (4, 2));
}

/// A merge thread that never gets the processor stands still in the midst of a call.
#[test]
fn what_is_due_does_not_wait_for_a_merge_thread_that_stands_still() {
    let (fs, clock) = (Watched::new(Sim::new(1)), ManualClock::new(NOW));
    let db = on(&fs, &clock)
        .reclaim_within(seconds(1))
        .reclaim_strict(true)
        .open("/db")
        .unwrap();
    let c = half_to_expire(&db);
    let first = db.container("first").unwrap();
    first.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    first.put_with_ttl("k", "v", after(5_000)).unwrap();
    db.flush().unwrap();
    let ((stands, stood), (go, gone_on)) = (channel(), channel::<()>());
    fs.before(move |call, path| {
        if call == "remove" && path.starts_with("/db/tables") && thread_name() == MERGE {
            stands.send(()).unwrap();
            // Until the test is over.
            let _ = gone_on.recv();
        }
        Ok(())
    });
    clock.advance(seconds(6));
    wait_until("the file of what was dropped is removed", || {
        stood.try_recv().is_ok()
    });
    clock.advance(seconds(60));
    wait_until("what has expired is reclaimed", || {
        c.stats().oldest_unreclaimed.is_none()
    });
    assert_eq!(c.iter().count(), 1_000);
    drop(go);
}

/// The merge is at the tables that fall due, and so slow that it never ends.
#[test]
fn what_is_due_is_taken_from_a_merge_that_is_too_slow() {
    let (fs, clock) = (Watched::new(Sim::new(1)), ManualClock::new(NOW));
    let db = on(&fs, &clock)
        .background_rate(1)
        .max_runs(2)
        .reclaim_within(seconds(1))
        .reclaim_strict(true)
        .open("/db")
        .unwrap();
    let at_work = Arc::new(Mutex::new(vec![]));
    let seen = at_work.clone();
    fs.before(move |_, path| {
        if path.starts_with("/db/tables") {
            seen.lock().unwrap().push(thread_name());
        }
        Ok(())
    });
    let is_at_work = |name: &str| at_work.lock().unwrap().iter().any(|other| other == name);
    let mut c = half_to_expire(&db);
    for _ in 0..2 {
        c = half_to_expire(&db);
    }
    wait_until("the runs are merged", || is_at_work(MERGE));
    assert!(!is_at_work(HURRY), "nothing is due yet");
    clock.advance(seconds(60));
    wait_until("another thread takes over", || is_at_work(HURRY));
    db.set_background_rate(1 << 40);
    wait_until("what has expired is reclaimed", || {
        c.stats().oldest_unreclaimed.is_none()
    });
    assert_eq!(c.iter().count(), 1_000);
}

/// So many tables that expire together, and what is held of them: a value, a scan.
fn storm(folder: &Path, clock: &ManualClock) -> (Database, Container) {
    let db = Options::new()
        .clock(clock.clone())
        .memtable_bytes(1 << 20)
        .max_runs(1_000)
        .open(folder)
        .unwrap();
    let c = db.container("storm").unwrap();
    c.set_default_ttl(default(60_000)).unwrap();
    for n in 0..100u32 {
        c.put(n.to_be_bytes(), n.to_string()).unwrap();
        if n % 2 == 1 {
            db.flush().unwrap();
        }
    }
    assert_eq!((c.stats().tables, tables(folder)), (50, 50));
    (db, c)
}

#[test]
fn files_that_expire_together_all_go_and_stay_readable_for_those_who_hold_them() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let (db, c) = storm(folder.path(), &clock);
    let value = c.get(7u32.to_be_bytes()).unwrap().unwrap();
    let mut scan = c.iter();
    assert_eq!(scan.next().unwrap().unwrap().key(), 0u32.to_be_bytes());
    clock.advance(seconds(61));
    wait_until("all are dropped", || c.stats().tables == 0);
    assert_eq!(c.stats().oldest_unreclaimed, None, "dropped is reclaimed");
    wait_until("all are removed", || tables(folder.path()) == 0);
    assert_eq!(&value[..], b"7");
    assert!(scan.next().is_none());
    drop((value, scan));
    wait_until("nothing is held", || db.stats().pinned_bytes == 0);
}

#[test]
fn what_waits_for_its_removal_goes_when_the_database_closes() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let (db, c) = storm(folder.path(), &clock);
    clock.advance(seconds(61));
    wait_until("all are dropped", || c.stats().tables == 0);
    db.close().unwrap();
    assert_eq!(tables(folder.path()), 0);
}

/// A block takes less once it is compressed than it did when it lay open: what was spent on it is not to turn into a debt
/// that no rate pays off.
#[test]
fn blocks_that_shrink_when_they_are_compressed_are_paid_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new()
        .compression(Compression::Lz4)
        .open(folder.path())
        .unwrap();
    let c = db.container("c").unwrap();
    for _ in 0..2 {
        for n in 0..10_000u32 {
            c.put(n.to_be_bytes(), [b'x'; 500]).unwrap();
        }
        db.flush().unwrap();
    }
    let done = AtomicBool::new(false);
    scope(|threads| {
        threads.spawn(|| {
            db.compact().unwrap();
            done.store(true, Ordering::Release);
        });
        wait_until("compacting comes to no end", || {
            done.load(Ordering::Acquire)
        });
    });
    let stats = db.stats();
    let written = stats.bytes_flushed + stats.bytes_merged;
    assert!(stats.merges > 0 && stats.runs == 1);
    assert!(written >= 3 * stats.table_bytes / 2, "{stats:?}");
    assert!(written < stats.bytes_put, "{stats:?}");
}

#[test]
fn a_leap_of_the_wall_misses_no_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let db = Options::new()
        .clock(clock.clone())
        .reclaim_within(seconds(1))
        .open(folder.path())
        .unwrap();
    let c = half_to_expire(&db);
    clock.jump(NOW + 3 * 3_600_000);
    assert!(c.stats().oldest_unreclaimed.is_some());
    assert_eq!(db.stats().overdue, Duration::ZERO);
}

/// Goal: writers are slowed by the runs there are now, not by those of an earlier moment. Method: without background
/// work, runs are added by flushes until there are more than twice as many as there should be.
#[test]
fn many_runs_slow_writers_from_the_flush_on_that_brings_them() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().max_runs(2).stepped();
    let db = options.open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    for runs in 1..=8 {
        c.put("k", [b'v'; 64 << 10]).unwrap();
        assert_eq!(db.stats().stalls > 0, runs > 5, "with {} runs", runs - 1);
        db.flush().unwrap();
        assert_eq!(c.stats().runs, runs);
    }
    db.compact().unwrap();
    let stalls = db.stats().stalls;
    c.put("k", [b'v'; 64 << 10]).unwrap();
    assert_eq!(db.stats().stalls, stalls, "they were merged");
}
