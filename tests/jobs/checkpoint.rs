//! Goal: a checkpoint shows one moment of a history, is durable when it returns, blocks nobody, and touches only what
//! it created.
//!
//! Method: on a simulated disk, copying is delayed while other operations go on, foreign files are in its way, calls
//! fail; links are tested on the real disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, Survivors};
use ebbtide::{Batch, Container, Database, DefaultTtl, ManualClock, Options};
use testkit::patience::wait_until;
use testkit::stage::{NOW, default, fail_from_now, ms, on, seconds};
use testkit::watched::Gate;

fn options(sim: &Sim) -> Options {
    on(sim, &ManualClock::new(NOW))
        .memtable_bytes(64 << 10)
        .max_runs(3)
        .sizes(512, 16 << 10, 32 << 10)
}

/// A batch over two containers.
fn write(db: &Database, pair: &[Container; 2], n: u64) {
    let mut batch = Batch::new();
    for container in pair {
        batch.put(container, n.to_be_bytes(), [n as u8; 200]);
    }
    db.write(&batch).unwrap();
}

/// Every link fails, as between two file systems.
fn without_links(sim: &Sim) {
    fail_from_now(sim, Fault::Io, |call| call.operation == "link");
}

/// The numbers in a container, which are all from 0 to the last one.
fn numbers(container: &Container) -> u64 {
    let items = container.iter().map(|item| {
        let item = item.unwrap();
        let n = u64::from_be_bytes(item.key().try_into().unwrap());
        assert_eq!(item.value()[..], [n as u8; 200]);
        n
    });
    let all: Vec<u64> = items.collect();
    assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
    all.len() as u64
}

fn pair(db: &Database) -> [Container; 2] {
    ["left", "right"].map(|name| db.container(name).unwrap())
}

/// The content of the copy at `path`: so many batches, and the default of both containers.
fn opened(sim: &Sim, path: &str) -> (u64, DefaultTtl) {
    let db = options(sim).stepped().open(path).unwrap();
    let pair = pair(&db);
    let counts = [numbers(&pair[0]), numbers(&pair[1])];
    assert_eq!(counts[0], counts[1], "a batch is halved");
    (counts[0], pair[0].default_ttl())
}

fn names(sim: &Sim, dir: &str) -> BTreeSet<String> {
    sim.list(Path::new(dir)).unwrap().into_iter().collect()
}

/// A copy is held at its first table.
fn held_at_its_first_table(sim: &Sim) -> Gate {
    Gate::shut(sim, |call| {
        call.operation == "write" && call.path.starts_with("/copy/tables")
    })
}

/// So many segments of the log are there.
fn segments(sim: &Sim) -> usize {
    let names = names(sim, "/db/wal");
    names.iter().filter(|name| name.ends_with(".wal")).count()
}

#[test]
fn all_else_goes_on_while_a_checkpoint_copies() {
    let sim = Sim::new(1);
    let db = options(&sim).open("/db").unwrap();
    let both = pair(&db);
    (0..1_000).for_each(|n| write(&db, &both, n));
    db.flush().unwrap();
    let before = both[0].default_ttl();
    without_links(&sim);
    let held = held_at_its_first_table(&sim);
    let copying = std::thread::spawn({
        let db = db.clone();
        move || db.checkpoint("/copy")
    });
    held.wait();
    let others = std::thread::spawn({
        let (db, both) = (db.clone(), both.clone());
        move || {
            for n in 1_000..1_500 {
                write(&db, &both, n);
                assert!(both[0].contains(n.to_be_bytes()).unwrap());
            }
            db.flush().unwrap();
            let changed = default(1_000_000_000);
            both[0].set_default_ttl(changed).unwrap();
            assert_eq!(numbers(&both[0]), 1_500);
            db.container("new").unwrap().put("k", "v").unwrap();
            assert!(db.drop_container("new").unwrap());
            // Every table that is being copied is replaced.
            both.iter()
                .for_each(|container| container.delete_range(..).unwrap());
            db.compact().unwrap();
            assert_eq!(numbers(&both[1]), 0);
        }
    });
    let patience = std::time::Instant::now();
    while !others.is_finished() && patience.elapsed() < seconds(60) {
        std::thread::sleep(ms(1));
    }
    let went_on = others.is_finished();
    held.open();
    copying.join().unwrap().unwrap();
    assert!(went_on, "all waits for the checkpoint");
    others.join().unwrap();
    let cut = sim.power_cut_with(Survivors::Nothing);
    assert_eq!(opened(&cut, "/copy"), (1_000, before));
    // Files that were kept for it go.
    wait_until("its tables go", || names(&sim, "/db/tables").is_empty());
    wait_until("its segments go", || segments(&sim) <= 3);
    db.close().unwrap();
}

/// The segments that a copy keeps are not in use: nothing is moved for them, and no edit names the first segment anew.
#[test]
fn a_log_that_a_copy_keeps_is_not_trimmed_over_and_over() {
    let sim = Sim::new(1);
    let db = options(&sim).stepped().open("/db").unwrap();
    let both = pair(&db);
    write(&db, &both, 0);
    db.flush().unwrap();
    without_links(&sim);
    let held = held_at_its_first_table(&sim);
    let copying = std::thread::spawn({
        let db = db.clone();
        move || db.checkpoint("/copy")
    });
    held.wait();
    let settle = || (0..200).take_while(|_| db.step().unwrap()).count();
    for n in 1..1_500 {
        write(&db, &both, n);
        if n % 40 == 0 {
            assert!(settle() < 200, "there is always something to do");
        }
    }
    assert!(settle() < 200, "there is always something to do");
    assert!(segments(&sim) > 10, "the copy keeps {}", segments(&sim));
    // The copy's end fails to remove them. The next step does it.
    fail_from_now(&sim, Fault::Io, |call| {
        call.operation == "remove" && call.path.starts_with("/db/wal")
    });
    held.open();
    copying.join().unwrap().unwrap();
    assert!(segments(&sim) > 10, "{}", segments(&sim));
    sim.heal();
    settle();
    assert!(segments(&sim) <= 10, "{} are left", segments(&sim));
    db.close().unwrap();
}

#[test]
fn a_checkpoint_is_one_moment_of_a_history() {
    const CHANGES: u64 = 40;
    let sim = Sim::new(1);
    let db = options(&sim).open("/db").unwrap();
    let both = pair(&db);
    without_links(&sim);
    let (stop, written) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let default = |n: u64| DefaultTtl::After(seconds(1_000_000 + n / CHANGES));
    let writer = std::thread::spawn({
        let (db, both) = (db.clone(), both.clone());
        let (stop, written) = (stop.clone(), written.clone());
        move || {
            for n in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if n % CHANGES == 0 {
                    both[0].set_default_ttl(default(n)).unwrap();
                }
                write(&db, &both, n);
                written.store(n + 1, Ordering::Release);
            }
        }
    });
    let merger = std::thread::spawn({
        let (db, stop) = (db.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                db.compact().unwrap();
            }
        }
    });
    for n in 0..12 {
        let (path, before) = (format!("/copy-{n}"), written.load(Ordering::Acquire));
        db.checkpoint(&path).unwrap();
        let after = written.load(Ordering::Acquire);
        let (count, ttl) = opened(&sim.power_cut_with(Survivors::Nothing), &path);
        assert!(
            (before..=after + 1).contains(&count),
            "{count} of {before}..={after}"
        );
        // The change stands before the batch of its number.
        let may_be = [default(count.saturating_sub(1)), default(count)];
        assert!(count == 0 || may_be.contains(&ttl), "{ttl:?} after {count}");
        wait_until("the writer writes", || {
            written.load(Ordering::Acquire) > after + 30
        });
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    merger.join().unwrap();
    db.close().unwrap();
}

#[test]
fn a_folder_with_anything_in_it_is_refused() {
    let sim = Sim::new(1);
    let db = options(&sim).stepped().open("/db").unwrap();
    write(&db, &pair(&db), 0);
    sim.create_dir_all(Path::new("/a/tables")).unwrap();
    sim.create_dir_all(Path::new("/b")).unwrap();
    sim.create_dir_all(Path::new("/d/other")).unwrap();
    sim.create(Path::new("/b/mine")).unwrap();
    sim.create(Path::new("/c")).unwrap();
    for to in ["/a", "/b", "/c", "/d", ""] {
        assert!(db.checkpoint(to).is_err(), "{to:?}");
    }
    assert!(names(&sim, "/a").is_empty() && names(&sim, "/a/tables").is_empty());
    assert!(sim.is_dir(Path::new("/a/tables")) && !sim.is_dir(Path::new("/d/tables")));
    assert_eq!(names(&sim, "/b"), BTreeSet::from(["mine".to_owned()]));
    // A copy within its original would be removed with it, or be taken for a part of it.
    for to in [
        "/db",
        "/db/copies",
        "/db/tables/copy",
        "/db/./wal/copy/deep",
        "/",
    ] {
        assert!(db.checkpoint(to).is_err(), "{to:?}");
    }
    assert!(!sim.is_dir(Path::new("/db/copies")) && !sim.is_dir(Path::new("/db/tables/copy")));
    db.checkpoint("/db-copy").unwrap();
    assert_eq!(opened(&sim, "/db-copy").0, 1);
}

#[test]
fn no_link_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(at(to), at(name)).unwrap();
    let db = Database::open(at("db")).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    for name in ["empty", "within", "tables"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    link("empty", "link");
    link("missing", "dangling");
    link("tables", "within/tables");
    link("db", "database");
    for to in [
        "link",
        "link/",
        "link/.",
        "dangling",
        "within",
        "database/copy",
        "database",
    ] {
        let error = db.checkpoint(at(to)).unwrap_err();
        assert!(!error.is_corruption(), "{to}: {error}");
    }
    for name in ["empty", "tables"] {
        assert_eq!(std::fs::read_dir(at(name)).unwrap().count(), 0, "{name}");
    }
    assert!(!at("missing").exists() && !at("db/copy/tables").exists());
    // A link on the way to it is the user's.
    db.checkpoint(at("link/copy")).unwrap();
    let copy = Database::open(at("empty/copy")).unwrap();
    assert!(copy.container("c").unwrap().contains("k").unwrap());
}

#[test]
fn what_others_made_stays_when_it_fails() {
    let (sim, mut failed) = (Sim::new(1), 0);
    let db = options(&sim).stepped().open("/db").unwrap();
    let both = pair(&db);
    (0..100).for_each(|n| write(&db, &both, n));
    db.flush().unwrap();
    let is_own = |path: &Path| path.starts_with("/above");
    for at in 1.. {
        assert!(at < 500, "it fails for ever");
        let before = sim.operations();
        let count = Arc::new(AtomicU64::new(0));
        let plan = FaultPlan {
            at: before,
            kind: Fault::Io,
            lasting: true,
        };
        sim.fail_where(plan, {
            let count = count.clone();
            move |call| {
                (is_own(call.path) || call.operation == "link")
                    && !["remove", "list"].contains(&call.operation)
                    && !call.path.ends_with("mine")
                    && (count.fetch_add(1, Ordering::Relaxed) >= at)
            }
        });
        let planted = Arc::new(AtomicU64::new(0));
        sim.watch({
            let planted = planted.clone();
            move |sim, call| {
                let ready = sim.is_dir(Path::new("/above/to/tables"));
                if is_own(call.path) && ready && planted.swap(1, Ordering::Relaxed) == 0 {
                    for name in ["mine", "tables/mine"] {
                        sim.create(&Path::new("/above/to").join(name)).unwrap();
                    }
                }
            }
        });
        let done = db.checkpoint("/above/to");
        sim.unwatch();
        sim.heal();
        if planted.load(Ordering::Relaxed) == 0 && done.is_err() {
            assert!(!sim.is_dir(Path::new("/above")), "failed at {at}");
        }
        failed += u64::from(done.is_err());
        if planted.load(Ordering::Relaxed) == 1 && done.is_err() {
            for name in ["/above/to/tables", "/above/to"] {
                let mine = BTreeSet::from(["mine".to_owned()]);
                assert_eq!(names(&sim, name), mine, "{name}, failed at {at}");
            }
        }
        if done.is_ok() {
            break;
        }
        for name in ["tables", ""] {
            let folder = Path::new("/above/to").join(name);
            if sim.is_dir(&folder) {
                sim.remove(&folder.join("mine")).unwrap();
                sim.remove_dir(&folder).unwrap();
            }
        }
        if sim.is_dir(Path::new("/above")) {
            sim.remove_dir(Path::new("/above")).unwrap();
        }
    }
    assert!(failed > 5, "{failed}");
}

/// Goal: a snapshot of a volume is copied without a write to it. Method: the folder that a killed process left, where every
/// call that would change something fails; then again with a log that was closed.
#[test]
fn a_folder_that_can_only_be_read_is_copied() {
    let sim = Sim::new(1);
    let db = options(&sim).stepped().open("/db").unwrap();
    let two = pair(&db);
    (0..300).for_each(|n| write(&db, &two, n));
    db.flush().unwrap();
    (300..400).for_each(|n| write(&db, &two, n));
    // Settings that only the log has.
    db.write(Batch::new().set_default_ttl(&two[0], DefaultTtl::Off))
        .unwrap();
    write(&db, &two, 400);
    let killed = sim.kill();
    drop((two, db));
    for sim in [killed, sim] {
        fail_from_now(&sim, Fault::ReadOnly, |call| call.path.starts_with("/db"));
        let refused = options(&sim).stepped().open("/db");
        assert!(refused.is_err(), "it can be written");
        let db = options(&sim).read_only(true).open("/db").unwrap();
        db.checkpoint("/copy").unwrap();
        db.checkpoint("/copy").unwrap_err();
        db.checkpoint("/db/copies").unwrap_err();
        let opened = opened(&sim.power_cut_with(Survivors::Nothing), "/copy");
        assert_eq!(opened, (401, DefaultTtl::Off));
        db.close().unwrap();
        let closed = db.checkpoint("/late").unwrap_err();
        assert!(closed.is_closed(), "{closed}");
    }
}
