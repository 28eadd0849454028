//! Single histories, each of which once broke a promise: the shortest one that does, named after the promise.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim};
use ebbtide::{Clock, Database, DefaultTtl, Durability, ManualClock, Options, Stall, Ttl, Update};
use testkit::patience;
use testkit::stage::{NOW, after, default, ms, on, open, seconds};

const PATH: &str = "/db";

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    on(sim, clock)
        .memtable_bytes(4 << 10)
        .max_runs(2)
        .sizes(256, 4 << 10, 4 << 10)
}

fn stepped(sim: &Sim) -> (Database, ManualClock) {
    let clock = ManualClock::new(NOW);
    (
        options(sim, &clock)
            .memtable_bytes(64 << 10)
            .stepped()
            .open(PATH)
            .unwrap(),
        clock,
    )
}

/// Does it on a thread of its own, and fails when it comes to a standstill: when the disk has nothing to do any more.
fn ends(work: impl FnOnce(Sim) + Send + 'static) {
    let sim = Sim::new(1);
    patience::ends(|| sim.operations(), {
        let sim = sim.clone();
        move || work(sim)
    });
}

/// Background work ends when there is nothing left to gain.
#[track_caller]
fn comes_to_rest(db: &Database) {
    let steps = (0..100).take_while(|_| db.step().unwrap()).count();
    assert!(steps < 100, "it goes on for ever:\n{}", db.describe());
}

// Reading a key through a read state from before a sequence number was published loses the write in between.
#[test]
fn an_update_sees_what_was_written_while_memtables_are_sealed() {
    const UPDATES: u64 = 1_500;
    let clock = ManualClock::new(NOW);
    let (db, c) = open(options(&Sim::new(1), &clock).stepped());
    let (done, tries) = (AtomicU64::new(0), AtomicU64::new(0));
    let add = |item: Option<&ebbtide::Item>| {
        let tries = tries.fetch_add(1, Ordering::Relaxed);
        assert!(tries < 100 * UPDATES, "it never ends");
        let before = item.map_or(0, |item| {
            u64::from_le_bytes(item.value()[..].try_into().unwrap())
        });
        // Here others may come between.
        std::thread::yield_now();
        Update::Put((before + 1).to_le_bytes().to_vec(), Ttl::Inherit)
    };
    std::thread::scope(|scope| {
        let count = || {
            while done.fetch_add(1, Ordering::Relaxed) < UPDATES {
                assert!(c.update("count", add).unwrap());
            }
        };
        let threads = [(); 3].map(|()| scope.spawn(count));
        // Fills memtables and flushes them, so that read states change all the time.
        while !threads.iter().all(|thread| thread.is_finished()) {
            c.put("filler", [0; 2_000]).unwrap();
            while db.step().unwrap() {}
        }
    });
    assert_eq!(c.get("count").unwrap().unwrap(), UPDATES.to_le_bytes());
}

// Writes that came meanwhile may have left memory.
#[test]
fn an_update_sees_what_was_written_and_flushed_meanwhile() {
    let (db, _clock) = stepped(&Sim::new(1));
    let c = db.container("c").unwrap();
    c.put("k", "before").unwrap();
    let mut tries = 0;
    let changed = c.update("k", |item| {
        tries += 1;
        if tries == 1 {
            patience::elsewhere(|| c.put("k", "meanwhile").unwrap());
            db.flush().unwrap();
        }
        Update::Put([&item.unwrap().value()[..], b"!"].concat(), Ttl::Inherit)
    });
    assert!(changed.unwrap());
    assert_eq!(c.get("k").unwrap().unwrap(), "meanwhile!");
    assert_eq!(tries, 2);
}

/// A clock on which a millisecond passes with every look at it.
struct Restless(AtomicU64);

impl Clock for Restless {
    fn wall(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn uptime(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

// A conditional write judges the item that it was shown again at its stamp, and not a moment before.
#[test]
fn a_touch_never_restarts_what_is_expired_at_its_stamp() {
    let options = Options::new().clock(Restless(AtomicU64::new(NOW)));
    let (_db, c) = open(options.fs(Arc::new(Sim::new(1))).stepped());
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    for life in 1..40 {
        c.put_with_ttl("k", "v", after(life)).unwrap();
        let Some(before) = c.item("k").unwrap() else {
            continue;
        };
        if c.touch("k").unwrap()
            && let Some(after) = c.item("k").unwrap()
        {
            assert!(
                after.written_at() < before.expires_at().unwrap(),
                "with {life} ms"
            );
        }
    }
}

// A checkpoint takes the locks in the order in which a change of settings does.
#[test]
fn checkpoints_and_changes_of_settings_do_not_wait_for_each_other() {
    ends(|sim| {
        let clock = ManualClock::new(NOW);
        let (db, c) = open(options(&sim, &clock));
        let stop = Arc::new(AtomicBool::new(false));
        let changer = std::thread::spawn({
            let (c, stop) = (c.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
                }
            }
        });
        for n in 0..200 {
            c.put("k", "v").unwrap();
            db.checkpoint(format!("/copy-{n}")).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        changer.join().unwrap();
    });
}

// Under Sync the number of a container stands behind writes that wait for their sync.
#[test]
fn a_snapshot_knows_every_container_that_was_there() {
    ends(|sim| {
        let clock = ManualClock::new(NOW);
        let options = options(&sim, &clock).durability(Durability::Sync);
        let (db, c) = open(options);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let stop = stop.clone();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    c.put("k", "v").unwrap();
                }
            }
        });
        for n in 0..300 {
            let name = format!("c-{n}");
            db.container(&name).unwrap();
            let known = db.snapshot().container(&name).map(drop);
            stop.store(known.is_err() || n == 299, Ordering::Relaxed);
            known.unwrap();
        }
        writer.join().unwrap();
    });
}

// Only writers seal memtables; when a recovered one is larger than they are let go beyond, opening must.
#[test]
fn writing_goes_on_after_more_was_recovered_than_may_be_unflushed() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let large = options(&sim, &clock).stepped().memtable_bytes(8 << 20);
    let db = large.open(PATH).unwrap();
    for n in 0..60 {
        db.container(format!("c-{n}"))
            .unwrap()
            .put("k", "v")
            .unwrap();
    }
    let db = options(&sim.kill(), &clock)
        .on_stall(Stall::Fail)
        .stepped()
        .open(PATH)
        .unwrap();
    let c = db.container("c-7").unwrap();
    assert!(c.put("k", "w").is_err(), "more is there than may be");
    while let Err(error) = c.put("k", "w") {
        assert!(db.step().unwrap(), "nothing is left to do: {error}");
    }
}

// A merge that waits for a low budget asks again what the budget is.
#[test]
fn a_higher_background_rate_counts_at_once() {
    ends(|sim| {
        let clock = ManualClock::new(NOW);
        let (db, c) = open(
            options(&sim, &clock)
                .memtable_bytes(16 << 20)
                .background_rate(1),
        );
        for _ in 0..2 {
            c.put("k", vec![7; 2 << 20]).unwrap();
            c.put("l", vec![7; 2 << 20]).unwrap();
            db.flush().unwrap();
        }
        let compaction = std::thread::spawn({
            let db = db.clone();
            move || db.compact().unwrap()
        });
        std::thread::sleep(ms(300));
        db.set_background_rate(1 << 40);
        compaction.join().unwrap();
    });
}

// An edit that was made durable is never undone, whatever fails after it.
#[test]
fn a_flush_that_fails_to_trim_the_log_keeps_its_tables() {
    let write = |fail_at: u64| {
        let sim = Sim::new(1);
        let (db, clock) = stepped(&sim);
        let c = db.container("c").unwrap();
        for n in 0..16u32 {
            c.put(n.to_be_bytes(), [n as u8; 2_000]).unwrap();
        }
        db.sync().unwrap();
        let before = sim.operations();
        let (at, kind) = (before + fail_at, Fault::Io);
        sim.fail(FaultPlan {
            at,
            kind,
            lasting: false,
        });
        let _ = db.flush();
        let is_over = sim.operations() < at;
        sim.heal();
        for sim in [sim.kill(), sim.power_cut(fail_at)] {
            let (_db, c) = open(options(&sim, &clock).stepped());
            let found = c.iter().inspect(|item| assert!(item.is_ok())).count();
            assert_eq!(found, 16, "after a failure at {fail_at}");
        }
        for n in 0..16u32 {
            assert!(c.contains(n.to_be_bytes()).unwrap());
        }
        is_over
    };
    let mut fail_at = 1;
    while !write(fail_at) {
        fail_at += 1;
    }
    assert!(fail_at > 10, "a flush takes some operations");
}

/// The name of the newest file in a folder that ends so.
fn newest(sim: &Sim, dir: &str, start: &str) -> String {
    let names = sim.list(Path::new(dir)).unwrap();
    let name = names
        .into_iter()
        .filter(|name| name.starts_with(start))
        .max();
    format!("{dir}/{}", name.expect("there is one"))
}

// After a manifest with a torn tail unnamed tables stay for a while, and their numbers are taken.
#[test]
fn a_flush_does_not_meet_a_table_that_was_left_behind() {
    let sim = Sim::new(1);
    let (db, clock) = stepped(&sim);
    db.container("c").unwrap().put("k", "v").unwrap();
    db.flush().unwrap();
    let sim = sim.kill();
    let last = newest(&sim, "/db/tables", "0");
    let number: u64 = last["/db/tables/".len()..][..6].parse().unwrap();
    let next = format!("/db/tables/{:06}.table", number + 1);
    drop(sim.create(Path::new(&next)).unwrap());
    let manifest = newest(&sim, "/db", "manifest-");
    let file = sim.open(Path::new(&manifest)).unwrap();
    file.write_at(file.len().unwrap(), b"torn").unwrap();
    drop(file);
    let copy = newest(&sim, "/db/copy", "0");
    let left = [&next, &manifest, &copy].map(PathBuf::from);
    let db = options(&sim, &clock).stepped().open(PATH).unwrap();
    for path in &left {
        let left = sim.len(path).unwrap();
        assert!(left.is_some(), "the lost edit may be known to {path:?}");
    }
    db.container("c").unwrap().put("k", "w").unwrap();
    db.flush().unwrap();
    drop(db);
    options(&sim, &clock).stepped().open(PATH).unwrap();
    for path in &left[1..] {
        assert_eq!(sim.len(path).unwrap(), None, "{path:?} stays too long");
    }
}

/// A drop is said by an edit at once.
fn edit(db: &Database) {
    drop(db.container("dropped").unwrap());
    assert!(db.drop_container("dropped").unwrap());
}

// Damage within the manifest, and a manifest that is too short, are told from a torn tail: each would undo what was
// acknowledged.
#[test]
fn a_manifest_does_not_lose_its_end_unnoticed() {
    let sim = Sim::new(1);
    let (db, clock) = stepped(&sim);
    let c = db.container("c").unwrap();
    let path = newest(&sim, PATH, "manifest-");
    let len = || sim.len(Path::new(&path)).unwrap().unwrap();
    let before = len();
    edit(&db);
    let within = before + (len() - before) / 2;
    edit(&db);
    // Each is told without the copy, which may not have been written.
    let copy = newest(&sim, "/db/copy", "0");
    let alone = || {
        let sim = sim.kill();
        let none = copy.replace(".manifest", ".none");
        sim.rename(Path::new(&copy), Path::new(&none)).unwrap();
        sim
    };
    let damaged = alone();
    let file = damaged.open(Path::new(&path)).unwrap();
    file.write_at(within, &[0xaa; 4]).unwrap();
    let error = options(&damaged, &clock).open(PATH).err().unwrap();
    assert!(error.is_corruption(), "{error}");
    // Not by the log, which would have the rest of it as lost.
    let what = error.to_string();
    assert!(
        what.contains("checksum"),
        "the frames behind it tell: {what}"
    );
    c.put("k", "v").unwrap();
    let cut = alone();
    cut.open(Path::new(&path))
        .unwrap()
        .truncate(before)
        .unwrap();
    let error = options(&cut, &clock).open(PATH).err().unwrap();
    assert!(error.is_corruption(), "a frame of the log does: {error}");
}

// No room for a new manifest is no reason to end: the old one grows on.
#[test]
fn a_full_disk_does_not_end_a_database_whose_manifest_is_long() {
    let sim = Sim::new(1);
    let (db, _) = stepped(&sim);
    let c = db.container("c").unwrap();
    let change = |n: u64| {
        let default = DefaultTtl::After(seconds(1 + n % 9));
        c.set_default_ttl(default).unwrap();
        edit(&db);
    };
    let manifest = newest(&sim, PATH, "manifest-");
    let len = || sim.len(Path::new(&manifest)).unwrap().unwrap();
    let mut n = 0;
    while len() <= 1 << 20 {
        change(n);
        n += 1;
    }
    let plenty = 1 << 40;
    sim.set_capacity(plenty);
    let used = plenty - sim.room(Path::new(PATH)).unwrap().free;
    sim.set_capacity(used);
    change(n);
    assert_eq!(newest(&sim, PATH, "manifest-"), manifest, "it grew on");
    let left = sim.list(Path::new(PATH)).unwrap();
    assert!(left.iter().all(|name| !name.ends_with(".tmp")), "{left:?}");
    sim.set_capacity(plenty);
    change(n);
    assert_ne!(
        newest(&sim, PATH, "manifest-"),
        manifest,
        "with room it is written anew"
    );
}

// A run's census tells nothing of one record's number and end together.
#[test]
fn what_only_seems_to_be_held_down_by_a_floor_is_not_rewritten_for_ever() {
    let (db, clock) = stepped(&Sim::new(1));
    let c = db.container("c").unwrap();
    c.put_with_ttl("before", "v", Ttl::Never).unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    c.set_default_ttl(DefaultTtl::Off).unwrap();
    c.put_with_ttl("after", "v", Ttl::Until(UNIX_EPOCH))
        .unwrap();
    db.flush().unwrap();
    clock.advance(seconds(100_000));
    db.confirm_clock();
    comes_to_rest(&db);
    assert!(c.contains("after").unwrap());
    assert_eq!(c.stats().oldest_unreclaimed, None);
}

// A snapshot keeps what tombstones hide, and so the tombstones.
#[test]
fn tombstones_that_a_snapshot_keeps_are_not_rewritten_for_ever() {
    let (db, _) = stepped(&Sim::new(1));
    let c = db.container("c").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let key = |n: u32| format!("{n:0>200}");
    for n in 0..40 {
        let ttl = [Ttl::Never, after(86_400_000)][n as usize % 2];
        c.put_with_ttl(key(n), "", ttl).unwrap();
    }
    db.flush().unwrap();
    let snapshot = db.snapshot();
    (0..40).for_each(|n| c.delete(key(n)).unwrap());
    db.flush().unwrap();
    comes_to_rest(&db);
    assert_eq!(snapshot.container("c").unwrap().iter().count(), 40);
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(c.stats().disk_bytes, 0, "{}", db.describe());
}

// One damaged container does not keep the others from giving back what has ended.
#[test]
fn what_has_ended_goes_though_another_container_is_damaged() {
    let sim = Sim::new(1);
    let (db, clock) = stepped(&sim);
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    for n in 0..4u32 {
        a.put(n.to_be_bytes(), [1; 100]).unwrap();
        a.put((100 - n).to_be_bytes(), [1; 100]).unwrap();
        db.flush().unwrap();
    }
    let tables = sim.list(Path::new("/db/tables")).unwrap();
    b.set_default_ttl(default(5_000)).unwrap();
    b.put("k", "v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let sim = sim.kill();
    for table in tables {
        let file = sim.open(&Path::new("/db/tables").join(table)).unwrap();
        file.write_at(20, &[0xaa; 16]).unwrap();
    }
    let db = options(&sim, &clock).stepped().open(PATH).unwrap();
    clock.advance(seconds(60));
    for _ in 0..10 {
        let _ = db.step();
    }
    assert!(db.step().is_err(), "the damage is told of");
    assert_eq!(db.container("b").unwrap().stats().disk_bytes, 0);
}

// A rewrite that takes one table of a run leaves the others, and these may hold what a record of its own hides.
#[test]
fn what_a_rewrite_leaves_of_a_run_stays_hidden() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = open(
        options(&sim, &clock)
            .memtable_bytes(64 << 10)
            .max_runs(20)
            .reclaim_within(seconds(10))
            .reclaim_strict(true)
            .stepped(),
    );
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let long = Ttl::After(seconds(30 * 86_400));
    let short = after(60_000);
    let key = |prefix: char, n: u32| format!("{prefix}{n:0>60}");
    // A run of several tables: in the first of them much will expire, in the last nothing.
    for n in 0..80 {
        let ttl = [long, short][n as usize % 2];
        c.put_with_ttl(key('a', n), [1; 60], ttl).unwrap();
        c.put_with_ttl(key('z', n), [1; 60], long).unwrap();
    }
    db.flush().unwrap();
    for n in 60..80 {
        c.put_with_ttl(key('z', n), [2; 60], short).unwrap();
    }
    db.flush().unwrap();
    clock.advance(seconds(75));
    let merges = db.stats().merges;
    comes_to_rest(&db);
    assert!(db.stats().merges > merges, "{}", db.describe());
    for n in 60..80 {
        assert_eq!(c.get(key('z', n)).unwrap(), None, "{}", db.describe());
    }
}

// A frame that is logged again is needed from there on, and not from where it was logged first.
#[test]
fn a_memtable_that_is_logged_again_holds_no_log() {
    let db = options(&Sim::new(1), &ManualClock::new(NOW))
        .memtable_bytes(1 << 20)
        .stepped()
        .open(PATH)
        .unwrap();
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    b.put("k", "v").unwrap();
    for _ in 0..6 {
        (0..60u8).for_each(|n| a.put([n], [n; 20_000]).unwrap());
        comes_to_rest(&db);
    }
    assert!(db.stats().log_bytes < 4 << 20, "{:?}", db.stats());
    assert!(b.stats().memtable_bytes > 0, "it was not flushed");
}

// The log is given back, too, when nothing is left of the containers that held it.
#[test]
fn a_dropped_container_holds_no_log() {
    let (db, _) = stepped(&Sim::new(1));
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    for _ in 0..8 {
        a.put("k", [0; 2_000]).unwrap();
        // The second is flushed again and again; the first holds the log all the while.
        for _ in 0..40 {
            b.put("k", [0; 1_000]).unwrap();
        }
        while db.container("b").unwrap().stats().memtable_bytes > 70_000 {
            assert!(db.step().unwrap());
        }
    }
    db.drop_container("a").unwrap();
    db.drop_container("b").unwrap();
    comes_to_rest(&db);
    let (ring, most) = (64 << 10, 2 * (64 << 10));
    assert!(db.stats().log_bytes <= ring + most, "{:?}", db.stats());
}
