//! Goal: a bulk load takes effect as one write, of the moment at which it returns: beside live data, other loads, jobs,
//! checkpoints and followers, after kills, power cuts and faults at each of its calls; or not at all, and then nothing
//! is left of it.
//!
//! Method: a simulated disk and a manual clock. Other things happen while a load asks for its next item. A load is
//! stopped at each of its calls of the file system. tests/contract/model.rs has loads in random histories.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, Survivors};
use ebbtide::{
    Bytes, Change, Container, ContainerOptions, Database, DefaultTtl, DiskKind, Error,
    ExpiryCursor, ManualClock, Options, Result, Ttl, Value, View, WhenFull,
};
use testkit::refused;
use testkit::stage::{NOW, at, bytes, in_steps, ms, on, open, seconds};

const MINUTE: Duration = seconds(60);

type Values = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    in_steps(sim, clock)
        .memtable_bytes(16 << 10)
        .sizes(256, 2 << 10, 16 << 10)
        .max_runs(3)
        .reclaim_within(seconds(5))
}

fn world() -> (Sim, ManualClock, Database, Container) {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = open(options(&sim, &clock));
    (sim, clock, db, c)
}

fn items(of: std::ops::Range<usize>, value: &str) -> impl Iterator<Item = (String, String)> {
    of.map(move |n| (format!("k{n:04}"), value.to_owned()))
}

fn tables(sim: &Sim) -> Vec<String> {
    let mut names = sim.list(Path::new("/db/tables")).unwrap();
    names.sort();
    names
}

fn has_temporary(sim: &Sim) -> bool {
    tables(sim).iter().any(|name| name.ends_with(".tmp"))
}

fn values(c: &Container) -> Values {
    bytes(c.iter()).into_iter().collect()
}

fn seen_by(view: &View) -> Values {
    bytes(view.iter()).into_iter().collect()
}

fn values_of(items: impl Iterator<Item = (String, String)>) -> Values {
    items
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn value(text: &'static str) -> Value {
    Bytes::from_static(text.as_bytes()).into()
}

#[test]
fn a_load_is_one_write_beside_others() {
    let (sim, clock, db, c) = world();
    c.put("k0003", "in a table").unwrap();
    db.flush().unwrap();
    c.put("k0005", "in memory").unwrap();
    let before = db.snapshot().container("c").unwrap();
    let (mut at, mut meanwhile) = (0, None);
    let loaded = items(0..2_000, "loaded").inspect(|_| {
        at += 1;
        if at == 1_000 {
            // Older than the load, which is not there yet.
            c.put("k0007", "meanwhile").unwrap();
            assert!(c.get("k0001").unwrap().is_none());
            meanwhile = Some((db.snapshot(), c.item("k0007").unwrap().unwrap().version()));
        }
    });
    let written = c.bulk_load(loaded).unwrap();
    let (snapshot, version) = meanwhile.unwrap();
    assert!(version < written.version());
    let all = values_of(items(0..2_000, "loaded"));
    assert_eq!(values(&c), all);
    assert_eq!(c.get("k0007").unwrap().unwrap(), "loaded");
    assert_eq!(before.get("k0005").unwrap().unwrap(), "in memory");
    assert!(before.get("k0001").unwrap().is_none());
    let view = snapshot.container("c").unwrap();
    let seen = (view.iter().count(), view.get("k0007").unwrap().unwrap());
    assert_eq!(seen, (3, value("meanwhile")));
    db.compact().unwrap();
    assert_eq!(view.iter().count(), 3, "jobs keep what a snapshot sees");
    drop((before, view, snapshot));
    // It survives a power cut that loses whatever was not synced; what is written later is newer.
    let (_cut, of_cut) = open(options(&sim.power_cut_with(Survivors::Nothing), &clock));
    assert_eq!(values(&of_cut), all);
    c.put("k0000", "later").unwrap();
    assert_eq!(c.get("k0000").unwrap().unwrap(), "later");
    assert!(c.item("k0000").unwrap().unwrap().version() > written.version());
    let follower = options(&sim, &clock).follow("/db").unwrap();
    assert_eq!(values(&follower.container("c").unwrap()), values(&c));
    let (_again, of_again) = open(options(&sim.kill(), &clock));
    assert_eq!(values(&of_again), values(&c));
}

#[test]
fn what_fails_or_is_killed_leaves_nothing() {
    let (sim, clock, db, c) = world();
    c.put("k", "v").unwrap();
    db.flush().unwrap();
    let before = tables(&sim);
    let unsorted = items(0..1_000, "v").chain(items(999..1_001, "v"));
    let error = c.bulk_load(unsorted).unwrap_err();
    assert!(error.to_string().contains("k0999"), "{error}");
    let twice = [("a", "1"), ("a", "2")];
    assert!(
        c.bulk_load(twice)
            .unwrap_err()
            .to_string()
            .contains("\"a\"")
    );
    assert!(c.bulk_load([("a", ""), ("", "")]).is_err());
    let broken = items(0..1_000, "v").map(|(key, value)| Ok((key, value, Ttl::Never)));
    let broken = broken.chain([Err(Error::Stalled)]);
    assert!(matches!(c.bulk_load_with_ttl(broken), Err(Error::Stalled)));
    for ttl in [Ttl::Keep, Ttl::After(Duration::ZERO)] {
        refused(c.bulk_load_with_ttl([Ok(("a", "", ttl))]), "ttl");
    }
    for at in [0, 1, 900] {
        let panics = items(0..1_000, "v").enumerate().map(|(n, item)| {
            assert!(n < at, "as it was told to");
            item
        });
        let ended = catch_unwind(AssertUnwindSafe(|| c.bulk_load(panics)));
        assert!(ended.is_err());
        assert!(!has_temporary(&sim), "panicking at item {at}");
    }
    let version = db.last_version();
    assert_eq!(c.bulk_load(items(0..0, "")).unwrap().version(), version);
    assert_eq!((values(&c).len(), tables(&sim)), (1, before.clone()));
    let (mut killed, mut at) = (None, 0);
    let loaded = items(0..1_000, "v").inspect(|_| {
        at += 1;
        if at == 900 {
            killed = Some(sim.kill());
        }
    });
    c.bulk_load(loaded).unwrap();
    let killed = killed.unwrap();
    assert!(has_temporary(&killed), "some were written by then");
    let (_again, of_again) = open(options(&killed, &clock));
    assert_eq!(values(&of_again).len(), 1);
    assert_eq!(tables(&killed), before);
    let dropped = items(0..10, "v").inspect(|_| {
        let _ = db.drop_container("c").unwrap();
    });
    assert!(c.bulk_load(dropped).unwrap_err().is_closed());
    assert!(c.bulk_load(items(0..0, "")).unwrap_err().is_closed());
    assert!(!has_temporary(&sim));
}

#[test]
fn closing_ends_a_load_and_removes_its_files() {
    let (sim, clock, db, c) = world();
    c.put("k", "v").unwrap();
    let mut at = 0;
    let loaded = items(0..5_000, "v").inspect(|_| {
        at += 1;
        if at == 1_000 {
            assert!(has_temporary(&sim));
            db.close().unwrap();
            assert!(!has_temporary(&sim));
        }
    });
    assert!(c.bulk_load(loaded).unwrap_err().is_closed());
    assert!(at < 5_000, "it ends soon");
    assert!(!has_temporary(&sim));
    let (_again, of_again) = open(options(&sim, &clock));
    assert_eq!(values(&of_again).len(), 1);
}

/// Breaks a build in which a loaded run ends when its own items do.
#[test]
fn what_a_load_hides_stays_hidden_when_the_load_has_ended() {
    for is_flushed in [false, true] {
        let (_, clock, db, c) = world();
        c.put("a", "before").unwrap();
        db.flush().unwrap();
        let loaded = ["a", "b"].into_iter().map(|key| {
            // Older than what is loaded, and perhaps flushed after the load began.
            c.put("b", "meanwhile").unwrap();
            if is_flushed {
                db.flush().unwrap();
            }
            Ok((key, "short", MINUTE.into()))
        });
        c.bulk_load_with_ttl(loaded).unwrap();
        assert_eq!(values(&c).len(), 2);
        for _ in 0..5 {
            clock.advance(MINUTE);
            while db.step().unwrap() {}
            assert!(values(&c).is_empty());
            assert!(c.get("b").unwrap().is_none());
        }
        db.compact().unwrap();
        assert!(values(&c).is_empty());
    }
}

/// Breaks a build in which a loaded run ends by the default at the beginning of the load.
#[test]
fn a_longer_default_that_comes_meanwhile_counts() {
    let (_, clock, db, c) = world();
    c.set_default_ttl(DefaultTtl::After(MINUTE)).unwrap();
    let loaded = items(0..10, "v").inspect(|(key, _)| {
        if key == "k0005" {
            c.set_default_ttl(DefaultTtl::After(10 * MINUTE)).unwrap();
        }
    });
    c.bulk_load(loaded).unwrap();
    for minute in 1..12 {
        clock.advance(MINUTE);
        while db.step().unwrap() {}
        let left = if minute < 10 { 10 } else { 0 };
        assert_eq!(values(&c).len(), left, "after {minute} minutes");
    }
    db.compact().unwrap();
    assert_eq!(c.stats().runs, 0, "it is reclaimed like any other");
}

#[test]
fn who_has_read_what_a_load_replaces_is_in_conflict() {
    let (_, _, db, c) = world();
    c.put("k", "1").unwrap();
    let tx = db.begin();
    assert!(tx.get(&c, "k").unwrap().is_some());
    let phantom = db.begin();
    let range = phantom.range(&c, "l".."m");
    assert_eq!(range.count(), 0);
    c.bulk_load([("k", "2"), ("l", "new")]).unwrap();
    for tx in [tx, phantom] {
        tx.put(&c, "z", "derived").unwrap();
        assert!(tx.commit().unwrap_err().is_conflict());
    }
    let tx = db.begin();
    assert_eq!(tx.get(&c, "k").unwrap().unwrap(), "2");
    tx.put(&c, "z", "derived").unwrap();
    tx.commit().unwrap();
    // One that looks before the load and writes after it looks again.
    let mut seen = vec![];
    let changed = c.update("k", |item| {
        seen.push(item.unwrap().value().to_vec());
        if seen.len() == 1 {
            testkit::patience::elsewhere(|| drop(c.bulk_load([("k", "3")]).unwrap()));
        }
        ebbtide::Update::Put([&item.unwrap().value()[..], b"!"].concat(), Ttl::Inherit)
    });
    assert!(changed.unwrap());
    assert_eq!((seen.len(), c.get("k").unwrap().unwrap()), (2, value("3!")));
}

/// A load that is passed by others takes a higher number.
#[test]
fn the_load_that_returns_last_is_the_newest() {
    let (sim, clock, db, c) = world();
    let d = db.container("d").unwrap();
    let mut versions = vec![];
    let (mut at, minute) = (0, Ttl::After(MINUTE));
    let outer = items(0..600, "outer").map(|(key, value)| {
        at += 1;
        if at % 150 == 0 {
            versions.push(c.bulk_load(items(100..200, "inner")).unwrap().version());
            versions.push(d.bulk_load(items(0..50, "beside")).unwrap().version());
            c.put("k0150", "meanwhile").unwrap();
        }
        let ttl = if at % 2 == 0 { minute } else { Ttl::Never };
        Ok((key, value, ttl))
    });
    let written = c.bulk_load_with_ttl(outer).unwrap();
    assert!(versions.is_sorted() && versions.last() < Some(&written.version()));
    assert_eq!(values(&c), values_of(items(0..600, "outer")));
    assert_eq!(values(&d), values_of(items(0..50, "beside")));
    assert!(!has_temporary(&sim));
    db.compact().unwrap();
    assert_eq!(values(&c), values_of(items(0..600, "outer")));
    clock.advance(MINUTE);
    assert_eq!(values(&c).len(), 300);
    let (_again, of_again) = open(options(&sim.kill(), &clock));
    assert_eq!(values(&of_again), values(&c));
}

/// Beside flushes and merges in threads of their own, and loads that pass each other.
#[test]
fn every_snapshot_sees_whole_loads() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let options = on(&sim, &clock);
    let options = options.memtable_bytes(16 << 10).max_runs(4);
    let db = options.sizes(256, 2 << 10, 16 << 10).open("/db").unwrap();
    let (c, d) = (db.container("c").unwrap(), db.container("d").unwrap());
    c.bulk_load(items(0..100, "first")).unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for loader in 0..2 {
            let (c, done) = (&c, &done);
            scope.spawn(move || {
                for n in 0..40 {
                    c.bulk_load(items(0..100, &format!("{loader} {n}")))
                        .unwrap();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            for n in 0..4_000 {
                d.put(format!("{:03}", n % 500), n.to_string()).unwrap();
                c.put(format!("z{:03}", n % 50), n.to_string()).unwrap();
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
        while done.load(Ordering::Relaxed) < 3 {
            let view = db.snapshot().container("c").unwrap();
            let loaded = || -> Vec<Vec<u8>> {
                let items = view.range("k".."l").map(Result::unwrap);
                items.map(|item| item.value().to_vec()).collect()
            };
            let seen = loaded();
            assert_eq!(seen.len(), 100);
            assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
            assert_eq!(loaded(), seen);
            assert_eq!(view.get("k0099").unwrap().unwrap().to_vec(), seen[0]);
        }
    });
    db.compact().unwrap();
    assert_eq!(values(&c).len(), 150);
}

/// The content of the database before and after a load, and the load.
fn small() -> (Sim, ManualClock, Database, Container) {
    let (sim, clock, db, c) = world();
    for n in 0..40 {
        c.put(format!("k{n:04}"), "before").unwrap();
    }
    db.flush().unwrap();
    for n in 20..60 {
        c.put(format!("k{n:04}"), "before").unwrap();
    }
    db.sync().unwrap();
    (sim, clock, db, c)
}

fn load_small(c: &Container) -> Result<ebbtide::Written> {
    let ttl = |n: usize| {
        if n.is_multiple_of(3) {
            Ttl::Never
        } else {
            Ttl::After(MINUTE)
        }
    };
    let items = items(10..110, "loaded").enumerate();
    c.bulk_load_with_ttl(items.map(|(n, (key, value))| Ok((key, value, ttl(n)))))
}

/// The two contents that the database may have: not loaded, or loaded.
fn both() -> (Values, Values) {
    let before = values_of(items(0..60, "before"));
    let mut after = before.clone();
    after.extend(values_of(items(10..110, "loaded")));
    (before, after)
}

/// Nothing is in the folder of tables but what the manifest names.
#[track_caller]
fn nothing_is_left(sim: &Sim, db: Database, what: &str) {
    let runs = |name: &String| db.container(name).unwrap().runs();
    let named = db.containers();
    let named = named.iter().flat_map(runs).map(|run| run.tables.len());
    assert_eq!(tables(sim).len(), named.sum::<usize>(), "{what}");
}

#[test]
fn a_kill_or_a_power_cut_at_any_call_leaves_all_or_nothing() {
    let (sim, clock, db, c) = small();
    let (before, after) = both();
    let ends: Arc<Mutex<Vec<(String, Sim)>>> = Arc::default();
    let (noted, seed) = (ends.clone(), sim.operations());
    sim.watch(move |sim, call| {
        if call.changes() {
            let at = sim.operations();
            let what = format!("at {} {:?}", call.operation, call.path);
            let mut noted = noted.lock().unwrap();
            noted.push((format!("killed {what}"), sim.kill()));
            noted.push((format!("cut {what}"), sim.power_cut(at - seed)));
            let strict = sim.power_cut_with(Survivors::Nothing);
            noted.push((format!("cut hard {what}"), strict));
        }
    });
    let written = load_small(&c).unwrap();
    sim.unwatch();
    drop(db);
    let mut seen = [0; 3];
    for (what, sim) in ends.lock().unwrap().drain(..) {
        let opened = options(&sim, &clock).open("/db");
        let db = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
        let c = db.container("c").unwrap();
        let found = values(&c);
        assert!(found == before || found == after, "{what}: {}", found.len());
        let edits = db.edits().unwrap();
        let is_reserved = edits.iter().any(|edit| edit.contains("reserved"));
        assert!(found == before || is_reserved, "{what}");
        seen[usize::from(found == after) + usize::from(is_reserved)] += 1;
        // It goes on above a number that tables may have.
        c.put("k0000", "later").unwrap();
        let version = c.item("k0000").unwrap().unwrap().version();
        assert!(!is_reserved || version > written.version(), "{what}");
        load_small(&c).unwrap();
        db.compact().unwrap();
        assert_eq!(values(&c).len(), 110, "{what}");
        drop(c);
        nothing_is_left(&sim, db, &what);
    }
    assert!(seen[0] > 20 && seen[1] > 2 && seen[2] > 2, "{seen:?}");
}

#[test]
fn a_fault_at_any_call_leaves_all_or_nothing() {
    let (before, after) = both();
    let mut met = 0;
    for (kind, lasting) in Fault::ALL
        .map(|kind| [(kind, false), (kind, true)])
        .concat()
    {
        // A device can fail at any call; the others meet some of them.
        let stride = if kind == Fault::Io { 1 } else { 3 };
        for at in (1..).step_by(stride) {
            let (sim, clock, db, c) = small();
            let plan = FaultPlan {
                at: sim.operations() + at,
                kind,
                lasting,
            };
            sim.fail(plan);
            let done = load_small(&c);
            let is_over = sim.operations() < plan.at;
            sim.heal();
            let what = format!("{plan:?}: {done:?}");
            met += usize::from(done.is_err());
            let expected = if done.is_ok() { &after } else { &before };
            assert_eq!(&values(&c), expected, "{what}");
            let goes_on = c.put("k0000", "before");
            match &goes_on {
                Ok(()) => {
                    db.compact().unwrap();
                    assert_eq!(&values(&c), expected, "{what}");
                }
                Err(error) => assert!(matches!(error, Error::Poisoned { .. }), "{what}: {error}"),
            }
            for sim in [sim.kill(), sim.power_cut(at)] {
                let (db, c) = open(options(&sim, &clock));
                let found = values(&c);
                // Where writing has ended, the edit may have come through.
                let may_be_there = goes_on.is_err() && found == after;
                assert!(found == *expected || may_be_there, "{what}");
                load_small(&c).unwrap();
                db.compact().unwrap();
                assert_eq!(values(&c), after, "{what}");
                drop(c);
                nothing_is_left(&sim, db, &what);
            }
            if is_over {
                break;
            }
        }
    }
    assert!(met > 100, "{met} loads failed");
}

#[test]
fn on_a_full_disk_a_load_leaves_nothing_and_writing_goes_on() {
    let (mut refused, mut taken) = (0, 0);
    for room in (4_000..120_000).step_by(4_000) {
        let (sim, _clock, db, c) = small();
        let used: u64 = sim
            .tree(Path::new("/db"))
            .unwrap()
            .iter()
            .filter(|(_, is_folder)| !is_folder)
            .map(|(path, _)| sim.allocated(path).unwrap())
            .sum();
        sim.set_capacity(used + room);
        match load_small(&c) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(error.is_full(), "{error}");
                refused += 1;
                assert_eq!(values(&c), both().0);
                assert!(!has_temporary(&sim));
            }
        }
        sim.set_capacity(u64::MAX);
        load_small(&c).unwrap();
        db.compact().unwrap();
        assert_eq!(values(&c), both().1);
        drop(c);
        nothing_is_left(&sim, db, "with room again");
    }
    assert!(refused > 0 && taken > 0, "{refused} refused, {taken} taken");
}

/// The evidence of later tables holds for those of a load.
#[test]
fn a_manifest_from_before_a_load_is_refused() {
    let (sim, clock, _db, c) = small();
    let before = sim.kill();
    load_small(&c).unwrap();
    let after = sim.kill();
    let is_table = |path: &Path| path.starts_with("/db/tables");
    let files = |sim: &Sim| -> Vec<PathBuf> {
        let tree = sim.tree(Path::new("/db")).unwrap().into_iter();
        let files = tree.filter(|(path, is_folder)| !is_folder && !is_table(path));
        files.map(|(path, _)| path).collect()
    };
    files(&after)
        .iter()
        .for_each(|path| after.remove(path).unwrap());
    for path in files(&before) {
        let file = after.create(&path).unwrap();
        file.write_at(0, &before.read(&path).unwrap()).unwrap();
    }
    let error = options(&after, &clock).open("/db").unwrap_err();
    assert!(error.is_corruption(), "{error}");
    assert!(error.to_string().contains("earlier time"), "{error}");
}

#[test]
fn checkpoints_followers_and_the_disk_see_it_as_one_write() {
    let (sim, clock, db, c) = small();
    let (before, after) = both();
    let follower = options(&sim, &clock).follow("/db").unwrap();
    let copy = |to: &str| {
        db.checkpoint(to).unwrap();
        let copied = options(&sim, &clock).open(to).unwrap();
        values(&copied.container("c").unwrap())
    };
    let followed = || {
        follower.catch_up().unwrap();
        values(&follower.container("c").unwrap())
    };
    let mut at = 0;
    let loaded = items(10..110, "loaded").inspect(|_| {
        at += 1;
        if at == 90 {
            assert_eq!(copy("/during"), before);
            assert_eq!(followed(), before);
        }
    });
    c.bulk_load(loaded).unwrap();
    assert_eq!(copy("/after"), after);
    assert_eq!(followed(), after);
    let snapshot = follower.snapshot().container("c").unwrap();
    c.bulk_load(items(0..5, "again")).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(seen_by(&snapshot), after);
    // The tables that it writes have a row of their own.
    let mut at = 0;
    let loaded = items(200..2_000, "many").inspect(|_| {
        at += 1;
        if at == 1_500 {
            let usage = db.disk().unwrap();
            let bytes = |kind| {
                let rows = usage.rows.iter().filter(|row| row.kind == kind);
                rows.map(|row| row.bytes).sum::<u64>()
            };
            assert!(bytes(DiskKind::Running) > 0, "{usage:?}");
            assert_eq!(bytes(DiskKind::Other), 0, "{usage:?}");
        }
    });
    c.bulk_load(loaded).unwrap();
}

/// At each call of a load a follower sees all or nothing, and a snapshot of it does not change.
#[test]
fn a_follower_never_sees_half_of_a_load() {
    let (sim, clock, _db, c) = small();
    let (before, after) = both();
    let follower = options(&sim, &clock).follow("/db").unwrap();
    let views = Arc::new(Mutex::new(vec![]));
    let (noted, followed) = (views.clone(), follower.clone());
    let looks = AtomicBool::new(false);
    sim.watch(move |_, call| {
        // The follower's own calls are not looked at.
        if !call.changes() || looks.swap(true, Ordering::Relaxed) {
            return;
        }
        if followed.catch_up().is_ok() {
            let view = followed.snapshot().container("c").unwrap();
            let seen = seen_by(&view);
            noted
                .lock()
                .unwrap()
                .push((format!("{call:?}"), view, seen));
        }
        looks.store(false, Ordering::Relaxed);
    });
    load_small(&c).unwrap();
    sim.unwatch();
    follower.catch_up().unwrap();
    assert_eq!(values(&follower.container("c").unwrap()), after);
    let views = std::mem::take(&mut *views.lock().unwrap());
    assert!(views.len() > 20, "{}", views.len());
    for (what, view, then) in views {
        assert!(then == before || then == after, "{what}: {}", then.len());
        assert_eq!(seen_by(&view), then, "{what}");
    }
}

#[test]
fn readers_of_expirations_and_of_changes_are_told_of_it() {
    let (_, clock, db, c) = world();
    c.put_with_ttl("a", "replaced", MINUTE).unwrap();
    let mut feed = c.expirations(ExpiryCursor::now());
    let mut changes = db.changes(db.last_version());
    assert!(feed.next().is_none() && changes.next().is_none());
    let ttls = [("a", 90), ("b", 30), ("c", 0), ("d", 61)];
    let ttl = |life| match life {
        0 => Ttl::Never,
        life => Ttl::After(seconds(life)),
    };
    let loaded = ttls.map(|(key, life)| Ok((key, "loaded", ttl(life))));
    let written = c.bulk_load_with_ttl(loaded).unwrap();
    let told: Vec<(Vec<u8>, _)> = changes
        .by_ref()
        .map(|change| match change.unwrap() {
            Change::Put { item, .. } => (item.key().to_vec(), item.version()),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["a", "b", "c", "d"].map(|key| (key.into(), written.version()));
    assert_eq!(told, expected);
    let mut ended = vec![];
    for _ in 0..10 {
        clock.advance(seconds(10));
        while db.step().unwrap() {}
        clock.advance(ms(1));
        let new = feed.by_ref().map(Result::unwrap);
        ended.extend(new.map(|one| (one.key().to_vec(), one.expired_at())));
    }
    let expected = [("b", 30), ("d", 61), ("a", 90)];
    let expected = expected.map(|(key, seconds)| (key.into(), at(seconds * 1_000)));
    assert_eq!(ended, expected);
}

#[test]
fn quotas_count_what_is_loaded() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock).open("/db").unwrap();
    // An item of these counts 5 and 80 and 16 bytes.
    let limited = |name: &str, when| {
        let of = ContainerOptions::new().max_live_bytes(101 * 1_000);
        db.container_with(name, of.when_full(when)).unwrap()
    };
    let long = "v".repeat(80);
    let refuse = limited("refuse", WhenFull::Refuse);
    refuse.bulk_load(items(0..700, &long)).unwrap();
    let before = tables(&sim);
    let error = refuse.bulk_load(items(1_000..1_700, &long)).unwrap_err();
    assert!(matches!(error, Error::QuotaFull { .. }), "{error}");
    assert_eq!((values(&refuse).len(), tables(&sim)), (700, before));
    // Replaced items are not counted twice.
    refuse.bulk_load(items(0..700, &long)).unwrap();
    refuse.bulk_load(items(700..900, &long)).unwrap();
    assert!(refuse.bulk_load(items(900..1_200, &long)).is_err());
    let expire = limited("expire", WhenFull::ExpireSoonest);
    let ending = |of: std::ops::Range<usize>| {
        let end = |key: &str| Ttl::After(MINUTE * (1 + key[1..].parse::<u32>().unwrap()));
        items(of, &long).map(move |(key, value)| {
            let ttl = end(&key);
            Ok((key, value, ttl))
        })
    };
    expire.bulk_load_with_ttl(ending(0..800)).unwrap();
    expire.bulk_load_with_ttl(ending(800..1_400)).unwrap();
    let left = values(&expire);
    assert!((850..=1_050).contains(&left.len()), "{}", left.len());
    assert!(left.contains_key(&b"k1399"[..]) && !left.contains_key(&b"k0300"[..]));
}

#[test]
fn large_values_and_many_tables_are_loaded() {
    let (sim, clock, db, c) = world();
    let value = |n: usize| vec![n as u8; [0, 5, 3_000, 70_000][n % 4]];
    let pairs = (0..60).map(|n| (format!("k{n:04}"), value(n)));
    c.bulk_load(pairs).unwrap();
    let check = |c: &Container| {
        for n in 0..60 {
            let found = c.get(format!("k{n:04}")).unwrap().unwrap();
            assert_eq!(found.to_vec(), value(n), "{n}");
        }
    };
    check(&c);
    assert!(c.runs()[0].tables.len() > 5);
    db.compact().unwrap();
    check(&c);
    check(&open(options(&sim.kill(), &clock)).1);
    assert!(db.verify().unwrap().faults.is_empty());
}

/// A load began before the floor of a default that was lifted meanwhile, and took effect after it: no later change of
/// the default and no command has that floor reach it, here, in a copy, behind a follower or after a kill.
#[test]
fn a_floor_never_comes_to_cover_a_load_that_is_newer() {
    type Later = fn(&Container, SystemTime) -> Result<()>;
    let later: [Later; 5] = [
        |c, _| c.set_default_ttl(DefaultTtl::NoDefault),
        |c, _| c.set_default_ttl(DefaultTtl::Off),
        |c, _| c.set_default_ttl(DefaultTtl::After(60 * MINUTE)),
        |c, began| c.expire_before(began + MINUTE / 12),
        |c, began| c.expire_written_before(began),
    ];
    for (at, later) in later.into_iter().enumerate() {
        for ttl in [Ttl::Inherit, Ttl::After(60 * MINUTE)] {
            let (sim, clock, db, c) = world();
            let began = db.now();
            c.put("old", "ended by the default that was lifted")
                .unwrap();
            let loaded = items(0..100, "v").map(|(key, value)| {
                if key == "k0050" {
                    c.set_default_ttl(DefaultTtl::After(MINUTE / 6)).unwrap();
                    clock.advance(MINUTE / 3);
                    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
                }
                Ok((key, value, ttl))
            });
            c.bulk_load_with_ttl(loaded).unwrap();
            clock.advance(MINUTE / 60);
            let all = values_of(items(0..100, "v"));
            let transaction = db.begin();
            assert!(transaction.get(&c, "k0007").unwrap().is_some());
            transaction.put(&c, "k0007", "v").unwrap();
            transaction.commit().unwrap();
            // A write that keeps the lifetime of a loaded item is newer than the floor, too.
            c.put_with_ttl("k0003", "v", Ttl::Keep).unwrap();
            later(&c, began).unwrap();
            assert_eq!(values(&c), all, "{at} {ttl:?}");
            let follower = options(&sim, &clock).follow("/db").unwrap();
            assert_eq!(values(&follower.container("c").unwrap()), all);
            let told = db.changes(ebbtide::Version::start()).map(Result::unwrap);
            let told: Vec<Change> = told.collect();
            let rule = told.iter().find_map(|change| match change {
                Change::Expiry { rule, .. } => Some(rule.clone()),
                _ => None,
            });
            let lives = |change: &&Change| match change {
                Change::Put { item, .. } => !rule.as_ref().unwrap().is_gone(
                    item.version(),
                    item.written_at(),
                    item.ttl(),
                    db.now(),
                ),
                _ => false,
            };
            assert_eq!(told.iter().filter(lives).count(), all.len());
            db.compact().unwrap();
            c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
            assert_eq!(values(&c), all);
            let (again, of_again) = open(options(&sim.kill(), &clock));
            assert_eq!(values(&of_again), all);
            of_again.set_default_ttl(DefaultTtl::Off).unwrap();
            again.compact().unwrap();
            assert_eq!(values(&of_again), all);
        }
    }
}
