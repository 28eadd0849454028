//! Goal: what writes depend on and what they tell: versions, lifetimes that are kept, and what was there before.
//!
//! Method: each promise by a clock that the test moves, before and after flushes, merges and opens.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::{Fault, FaultPlan, Sim};
use ebbtide::{
    Batch, Container, Database, DefaultTtl, Error, Item, ManualClock, Options, Ttl, Update,
    Version, repair,
};
use tempfile::TempDir;

const NOW: u64 = 1_767_225_600_000;

struct Fixture {
    folder: TempDir,
    clock: ManualClock,
    db: Database,
    c: Container,
}

fn options(clock: &ManualClock) -> Options {
    Options::new().clock(clock.clone()).memtable_bytes(1 << 20)
}

fn fixture() -> Fixture {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(NOW));
    let db = options(&clock).open(folder.path().join("db")).unwrap();
    let c = db.container("c").unwrap();
    Fixture {
        folder,
        clock,
        db,
        c,
    }
}

fn version(c: &Container, key: &str) -> Version {
    c.item(key).unwrap().unwrap().version()
}

/// By a clock that stands.
#[test]
fn every_write_of_an_item_has_a_higher_version() {
    let f = fixture();
    let other = f.db.container("other").unwrap();
    let mut last = Version::from_u64(0);
    let mut is_higher = |version: Version| {
        assert!(version > last, "{version} after {last}");
        last = version;
    };
    f.c.put("k", "v").unwrap();
    is_higher(version(&f.c, "k"));
    other.put("k", "v").unwrap();
    is_higher(version(&other, "k"));
    f.c.put("k", "v").unwrap();
    is_higher(version(&f.c, "k"));
    assert!(f.c.touch("k").unwrap());
    is_higher(version(&f.c, "k"));
    let mut batch = Batch::new();
    batch
        .put(&f.c, "k", "1")
        .put(&other, "k", "2")
        .put(&f.c, "k", "3");
    let written = f.db.commit(&batch).unwrap();
    is_higher(version(&other, "k"));
    is_higher(version(&f.c, "k"));
    assert_eq!(version(&f.c, "k"), written.version());
    assert_eq!(
        written.written_at(),
        UNIX_EPOCH + Duration::from_millis(NOW)
    );
    assert_eq!(f.c.get("k").unwrap().unwrap(), "3");
    let nothing = f.db.commit(Batch::new()).unwrap();
    assert_eq!(nothing.version(), written.version());
    let parsed: u64 = last.to_string().parse().unwrap();
    assert_eq!(Version::from_u64(parsed), last);
}

#[test]
fn a_version_stays_through_all_that_moves_an_item() {
    let f = fixture();
    let mut batch = Batch::new();
    for n in 0..50 {
        f.c.put(format!("single {n}"), [0; 500]).unwrap();
        batch.put(&f.c, format!("batched {n}"), [0; 500]);
    }
    f.db.write(&batch).unwrap();
    let versions =
        |c: &Container| -> Vec<Version> { c.iter().map(|item| item.unwrap().version()).collect() };
    let before = versions(&f.c);
    let gone = version(&f.c, "single 7");
    assert_eq!(BTreeSet::from_iter(&before).len(), 100);
    let path = f.folder.path().join("db");
    let (snapshot, copy) = (f.db.snapshot(), f.folder.path().join("copy"));
    f.db.checkpoint(&copy).unwrap();
    let db = options(&f.clock).open(&copy).unwrap();
    assert_eq!(versions(&db.container("c").unwrap()), before);
    f.c.put("single 7", "again").unwrap();
    f.c.delete("single 7").unwrap();
    let kept = snapshot.container("c").unwrap();
    let kept: Vec<_> = kept.iter().map(|item| item.unwrap().version()).collect();
    assert_eq!(kept, before);
    drop((snapshot, db));
    let mut before = before;
    before.retain(|version| *version != gone);
    f.db.flush().unwrap();
    f.db.compact().unwrap();
    assert_eq!(versions(&f.c), before);
    f.c.put("batched 0", "again").unwrap();
    before[0] = version(&f.c, "batched 0");
    f.db.close().unwrap();
    for round in ["opened", "repaired"] {
        let db = options(&f.clock).open(&path).unwrap();
        assert_eq!(versions(&db.container("c").unwrap()), before, "{round}");
        db.close().unwrap();
        let report = repair(&path, true).unwrap();
        assert!(report.losses.is_empty());
    }
}

const fn after(millis: u64) -> Ttl {
    Ttl::After(Duration::from_millis(millis))
}

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(NOW + millis)
}

/// What an item's life is counted by, and when it ends.
fn life(c: &Container, key: &str) -> Option<(SystemTime, Ttl, Option<SystemTime>)> {
    let item = c.item(key).unwrap()?;
    Some((item.written_at(), item.ttl(), item.expires_at()))
}

/// Each way to write a value over an item that is there.
fn keeping(c: &Container, db: &Database) {
    c.put_with_ttl("put", "new", Ttl::Keep).unwrap();
    assert!(c.replace("replace", "new", Ttl::Keep).unwrap());
    let new = |_: Option<&Item>| Update::Put(b"new".to_vec(), Ttl::Keep);
    assert!(c.update("update", new).unwrap());
    assert!(c.fetch_update("fetch", new).unwrap().written.is_some());
    let mut batch = Batch::new();
    batch.put_with_ttl(c, "batch", "new", Ttl::Keep);
    db.write(&batch).unwrap();
}

const WAYS: [&str; 5] = ["put", "replace", "update", "fetch", "batch"];

#[test]
fn a_value_that_keeps_the_ttl_keeps_the_countdown() {
    let f = fixture();
    for ttl in [after(1_000), Ttl::Inherit, Ttl::Never] {
        for key in WAYS {
            f.c.put_with_ttl(key, "old", ttl).unwrap();
        }
        let written = life(&f.c, "put").unwrap();
        for round in ["in memory", "in a table", "kept again"] {
            f.clock.advance(Duration::from_millis(100));
            let before = WAYS.map(|key| version(&f.c, key));
            keeping(&f.c, &f.db);
            for (key, before) in WAYS.into_iter().zip(before) {
                assert_eq!(life(&f.c, key), Some(written), "{key} {round}");
                assert_eq!(f.c.get(key).unwrap().unwrap(), "new", "{key} {round}");
                assert!(version(&f.c, key) > before, "{key} {round}");
            }
            f.db.flush().unwrap();
        }
        f.clock.advance(Duration::from_millis(699));
        assert_eq!(f.c.iter().count(), WAYS.len());
        f.clock.advance(Duration::from_millis(1));
        let left = if ttl == after(1_000) { 0 } else { WAYS.len() };
        assert_eq!(f.c.iter().count(), left, "{ttl:?}");
        f.db.compact().unwrap();
        assert_eq!(f.c.iter().count(), left, "{ttl:?}");
        // Where nothing lives it counts as inherit.
        for key in WAYS {
            f.c.delete(key).unwrap();
        }
    }
    keeping_over_nothing(&f);
}

fn keeping_over_nothing(f: &Fixture) {
    f.c.put_with_ttl("put", "old", after(5)).unwrap();
    f.clock.advance(Duration::from_millis(5));
    f.c.put_with_ttl("put", "new", Ttl::Keep).unwrap();
    assert!(!f.c.replace("replace", "new", Ttl::Keep).unwrap());
    assert!(f.c.create("create", "new", Ttl::Keep).unwrap());
    for key in ["put", "create"] {
        let (_, ttl, end) = life(&f.c, key).unwrap();
        assert_eq!((ttl, end), (Ttl::Inherit, None), "{key}");
    }
}

/// A default that changes counts for what was kept as for what it was kept from; what a change had ended stays so.
#[test]
fn what_is_kept_goes_on_inheriting() {
    let f = fixture();
    f.c.put("k", "old").unwrap();
    f.clock.advance(Duration::from_millis(600));
    f.c.put_with_ttl("k", "new", Ttl::Keep).unwrap();
    let default = |millis| DefaultTtl::After(Duration::from_millis(millis));
    f.c.set_default_ttl(default(1_000)).unwrap();
    assert_eq!(
        life(&f.c, "k"),
        Some((at(0), Ttl::Inherit, Some(at(1_000))))
    );
    f.clock.advance(Duration::from_millis(399));
    f.c.put_with_ttl("k", "newer", Ttl::Keep).unwrap();
    // Off, so that the floor alone could end it, and it lies above the floor.
    f.c.set_default_ttl(DefaultTtl::Off).unwrap();
    f.clock.advance(Duration::from_millis(5_000));
    f.c.put_with_ttl("k", "newest", Ttl::Keep).unwrap();
    assert_eq!(life(&f.c, "k"), Some((at(0), Ttl::Inherit, None)));
    f.c.set_default_ttl(default(5_999)).unwrap();
    assert!(f.c.get("k").unwrap().is_none());
    f.c.set_default_ttl(DefaultTtl::Off).unwrap();
    assert!(f.c.get("k").unwrap().is_none());
}

#[test]
fn expire_changes_the_ttl_and_keeps_the_value() {
    let f = fixture();
    assert!(!f.c.expire("k", after(10)).unwrap());
    f.c.put("k", "v").unwrap();
    f.clock.advance(Duration::from_millis(7));
    assert!(f.c.expire("k", after(10)).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(7), after(10), Some(at(17)))));
    f.clock.advance(Duration::from_millis(9));
    assert!(f.c.expire("k", Ttl::Until(at(20))).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(16), after(4), Some(at(20)))));
    assert!(f.c.expire("k", Ttl::Inherit).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(16), Ttl::Inherit, None)));
    assert!(f.c.expire("k", Ttl::Never).unwrap());
    assert_eq!(f.c.get("k").unwrap().unwrap(), "v");
    let before = version(&f.c, "k");
    for bad in [Ttl::Keep, after(0)] {
        let error = f.c.expire("k", bad).unwrap_err();
        assert!(
            matches!(error, Error::InvalidArgument { what: "ttl", .. }),
            "{error}"
        );
    }
    assert_eq!(version(&f.c, "k"), before);
    assert!(f.c.expire("k", after(1)).unwrap());
    f.clock.advance(Duration::from_millis(1));
    assert!(
        !f.c.expire("k", Ttl::Never).unwrap(),
        "what is gone stays gone"
    );
}

#[test]
fn one_of_several_takes_an_item() {
    let f = fixture();
    assert!(f.c.take("k").unwrap().is_none());
    for round in 0..20 {
        f.c.put_with_ttl("k", "v", after(50)).unwrap();
        let takes = || {
            thread::scope(|scope| {
                let takers = [(); 4].map(|()| scope.spawn(|| f.c.take("k").unwrap()));
                let items = takers.map(|taker| taker.join().unwrap());
                items.into_iter().flatten().collect::<Vec<Item>>()
            })
        };
        let taken = takes();
        assert_eq!(taken.len(), 1, "round {round}");
        assert_eq!(taken[0].ttl(), after(50));
    }
    f.c.put_with_ttl("k", "v", after(50)).unwrap();
    f.clock.advance(Duration::from_millis(50));
    assert!(f.c.take("k").unwrap().is_none(), "it has expired");
}

#[test]
fn fetch_update_tells_what_was_there_and_what_was_written() {
    let f = fixture();
    let to = |value: &str| Update::Put(value.into(), Ttl::Inherit);
    let done = f.c.fetch_update("k", |_| to("1")).unwrap();
    assert_eq!(
        (done.before, done.written.map(|written| written.version())),
        (None, Some(version(&f.c, "k")))
    );
    let item = f.c.item("k").unwrap();
    f.clock.advance(Duration::from_millis(5));
    let done = f.c.fetch_update("k", |_| to("2")).unwrap();
    assert_eq!(
        (
            done.before,
            done.written.map(|written| written.written_at())
        ),
        (item, Some(at(5)))
    );
    let item = f.c.item("k").unwrap();
    let done = f.c.fetch_update("k", |_| Update::Keep).unwrap();
    assert_eq!((done.before, done.written), (item.clone(), None));
    let done = f.c.fetch_update("k", |_| Update::Delete).unwrap();
    assert_eq!(done.before, item);
    assert!(done.written.is_some());
    let error =
        f.c.fetch_update("k", |_| Update::Put(vec![], after(0)))
            .unwrap_err();
    assert!(
        matches!(error, Error::InvalidArgument { what: "ttl", .. }),
        "{error}"
    );
}

fn on(sim: &Sim) -> Options {
    let options = Options::new()
        .clock(ManualClock::new(NOW))
        .fs(Arc::new(sim.clone()));
    options.sync_interval(Duration::from_secs(86_400))
}

/// Called when a power cut takes nothing any more, which the next round could not know otherwise.
#[test]
fn what_waits_for_a_sync_is_called_after_it() {
    let mut sim = Sim::new(1);
    for round in 0..10 {
        let db = on(&sim).open("/db").unwrap();
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), round);
        c.put(format!("{round}"), "v").unwrap();
        let (told, tells) = channel();
        db.sync_then({
            let (db, c) = (db.clone(), c.clone());
            move |synced| {
                // It may use the database, and wait for it again.
                assert_eq!(c.iter().count(), round + 1);
                db.sync_then(move |again| told.send((synced, again)).unwrap());
            }
        });
        let (synced, again) = tells.recv().unwrap();
        synced.unwrap();
        again.unwrap();
        let next = sim.power_cut(round as u64);
        drop((c, db));
        sim = next;
    }
}

#[test]
fn what_waits_for_a_sync_is_called_once_whatever_happens() {
    let calls = Arc::new(AtomicU64::new(0));
    let sim = Sim::new(1);
    let db = on(&sim).open("/db").unwrap();
    let c = db.container("c").unwrap();
    let count = |call: u64| {
        let calls = calls.clone();
        move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            assert!(!call.is_multiple_of(3), "a panic is contained");
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for call in 0..30 {
                    c.put("k", "v").unwrap();
                    db.sync_then(count(call));
                }
            });
        }
    });
    db.close().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 90);
    let (told, tells) = channel();
    db.sync_then(move |synced| told.send(synced).unwrap());
    let error = tells.recv().unwrap().unwrap_err();
    assert!(error.is_closed(), "{error}");
}

#[test]
fn what_waits_for_a_sync_that_fails_is_told_so() {
    let sim = Sim::new(1);
    let db = on(&sim).open("/db").unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    let plan = FaultPlan {
        at: sim.operations(),
        kind: Fault::Io,
        lasting: true,
    };
    sim.fail_where(plan, |call| call.operation == "sync");
    let (told, tells) = channel();
    db.sync_then(move |synced| told.send(synced).unwrap());
    assert!(tells.recv().unwrap().is_err());
}

/// The last handle goes in the call itself.
#[test]
fn a_database_may_be_closed_by_what_waited_for_a_sync() {
    let sim = Sim::new(1);
    let db = on(&sim).open("/db").unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    let (told, tells) = channel();
    let last = db.clone();
    db.sync_then(move |synced| {
        let closed = last.close();
        drop(last);
        told.send((synced, closed)).unwrap();
    });
    let (synced, closed) = tells.recv().unwrap();
    synced.unwrap();
    closed.unwrap();
    drop(db);
    // On a thread of the database it is closed by another one.
    let again = (0..2_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        on(&sim).open("/db").ok()
    });
    again.expect("it is closed").close().unwrap();
}

/// Whoever is called by the close itself may call the database, which answers that it is closed.
#[test]
fn what_waited_for_a_sync_may_call_the_database_that_closes() {
    let sim = Sim::new(1);
    let db = on(&sim).stepped().open("/db").unwrap();
    let c = db.container("c").unwrap();
    c.put("k", "v").unwrap();
    let (told, tells) = channel();
    let mut same = Some(db.clone());
    db.sync_then(move |synced| {
        let db = same.take().expect("it is called once");
        let calls = [db.flush(), db.compact(), db.sync(), c.put("k", "w")];
        told.send((synced, calls)).unwrap();
    });
    db.close().unwrap();
    let (synced, calls) = tells.recv().unwrap();
    synced.unwrap();
    for call in calls {
        assert!(call.unwrap_err().is_closed());
    }
}
