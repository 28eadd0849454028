//! Goal: a batch can do what a container can, under conditions, atomically: all of it or nothing.
//!
//! Method: conditions on what the batch itself has written; what is left of a change of the default after kills; concurrent
//! callers. Each condition on items in memory and in tables is for random batches: tests/writes/conditions.rs and
//! tests/contract/model.rs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use ebbtide::internals::{Fault, Fs, Sim, Survivors};
use ebbtide::{
    Batch, Clock, Container, ContainerOptions, Database, DefaultTtl, Durability, Error, Expect,
    ManualClock, OnMiss, Outcome, Ttl, Value,
};
use testkit::patience;
use testkit::stage::{
    NOW, PATH, Stage, after, at, default, fail_from_now, in_steps, ms, on, pairs, seconds, text,
};
use testkit::watched::Watched;
use testkit::{assert_is, refused};

fn fixture() -> Stage {
    Stage::new(|options| options.sync_interval(seconds(86_400)))
}

fn opened(f: &Stage, sim: &Sim) -> Database {
    f.options_on(sim).open(PATH).unwrap()
}

/// The answer of a batch: nothing, or the key of which a condition does not hold.
fn try_batch(f: &Stage, fill: impl Fn(&mut Batch, &Container)) -> Option<String> {
    let mut batch = Batch::new();
    fill(&mut batch, &f.c);
    let error = f.db.write(&batch).err()?;
    assert!(error.is_conflict() && !error.is_retryable(), "{error}");
    let said = error.to_string();
    let Error::Conflict { container, key } = error else {
        panic!("{error}");
    };
    let key = text(&key);
    assert_eq!(container, "c");
    assert!(said.contains(&key) && said.contains("\"c\""), "{said}");
    Some(key)
}

/// The same, which writes nothing.
#[track_caller]
fn conflict(f: &Stage, key: &str, fill: impl Fn(&mut Batch, &Container)) {
    let state = || (pairs(f.c.iter()), f.c.default_ttl());
    let before = state();
    assert_eq!(try_batch(f, fill).as_deref(), Some(key));
    assert_eq!(state(), before);
}

#[track_caller]
fn done(f: &Stage, fill: impl Fn(&mut Batch, &Container)) {
    assert_eq!(try_batch(f, fill), None);
}

#[test]
fn what_comes_later_in_a_batch_sees_what_came_before() {
    let f = fixture();
    f.c.put_with_ttl("old", "v", after(100)).unwrap();
    f.clock.advance(ms(50));
    conflict(&f, "k", |b, c| {
        b.create(c, "k", "1", Ttl::Inherit)
            .create(c, "k", "2", Ttl::Inherit);
    });
    conflict(&f, "old", |b, c| {
        b.delete(c, "old").touch(c, "old");
    });
    conflict(&f, "old", |b, c| {
        b.delete_range(c, "o".."p")
            .replace(c, "old", "w", Ttl::Inherit);
    });
    // A version that the batch itself gives is not known before.
    let version = f.c.item("old").unwrap().unwrap().version();
    conflict(&f, "old", |b, c| {
        b.put(c, "old", "w")
            .require(c, "old", Expect::Version(version));
    });
    done(&f, |b, c| {
        b.create(c, "k", "1", after(30))
            .replace(c, "k", "2", Ttl::Keep)
            .touch(c, "k");
        b.delete(c, "old")
            .create(c, "old", "new", after(20))
            .touch(c, "old");
        b.put(c, "gone", "x")
            .delete_range(c, "gone"..="gone")
            .require(c, "gone", Expect::Absent);
        b.delete_range(c, "l".."m")
            .put(c, "l1", "stays")
            .require(c, "l1", Expect::Present);
    });
    assert_eq!(pairs(f.c.iter()).len(), 3);
    assert_eq!(f.c.get("k").unwrap().unwrap(), "2");
    assert_eq!(f.c.item("k").unwrap().unwrap().ttl(), after(30));
    f.clock.advance(ms(20));
    assert!(!f.c.contains("old").unwrap(), "the touch kept the new ttl");
    // An end that has passed: dead as soon as it is written.
    let passed = Ttl::Until(at(0));
    done(&f, |b, c| {
        b.put_with_ttl(c, "past", "x", passed)
            .create(c, "past", "y", Ttl::Inherit);
    });
    assert_eq!(f.c.get("past").unwrap().unwrap(), "y");
}

/// Of each key the last write counts, of the container that it is in, in a batch of any length.
#[test]
fn each_key_of_a_long_batch_is_found_as_it_was_left() {
    let f = fixture();
    let other = f.db.container("other").unwrap();
    let key = |n: usize| format!("k{n}");
    (0..300).for_each(|n| f.c.put(key(n), "old").unwrap());
    done(&f, |b, c| {
        for n in 0..300 {
            // The key is in one container and not in the other, whichever is asked first.
            match n % 2 {
                0 => b
                    .require(c, key(n), Expect::Present)
                    .require(&other, key(n), Expect::Absent),
                _ => b
                    .require(&other, key(n), Expect::Absent)
                    .require(c, key(n), Expect::Present),
            };
            b.put(c, key(n), "1").delete(c, key(n));
            b.require(c, key(n), Expect::Absent);
            b.put(&other, key(n), "1").delete(&other, key(n));
        }
        for n in 0..300 {
            b.create(c, key(n), "2", Ttl::Inherit)
                .require(&other, key(n), Expect::Absent)
                .replace(c, key(n), "3", Ttl::Keep);
        }
    });
    assert_eq!(f.c.count(..).unwrap(), 300);
    assert!((0..300).all(|n| f.c.get(key(n)).unwrap().unwrap() == "3"));
    assert!(other.is_empty().unwrap());
    conflict(&f, "k299", |b, c| {
        (0..300).for_each(|n| _ = b.delete(c, key(n)));
        b.require(c, key(299), Expect::Present);
    });
}

#[test]
fn a_default_counts_from_its_place_in_the_batch_on() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    f.clock.advance(ms(50));
    conflict(&f, "k", |b, c| {
        b.set_default_ttl(c, default(50)).touch(c, "k");
    });
    conflict(&f, "k", |b, c| {
        b.create(c, "k", "w", Ttl::Inherit)
            .set_default_ttl(c, default(50));
    });
    done(&f, |b, c| {
        b.touch(c, "k")
            .set_default_ttl(c, default(50))
            .touch(c, "k");
    });
    assert_eq!(f.c.default_ttl(), default(50));
    f.clock.advance(ms(50));
    // It ended under the default that the batch ends.
    done(&f, |b, c| {
        b.set_default_ttl(c, DefaultTtl::Off)
            .create(c, "k", "again", Ttl::Inherit);
        b.set_default_ttl(c, default(10))
            .set_default_ttl(c, default(20));
    });
    assert_eq!(f.c.default_ttl(), default(20));
    f.clock.advance(ms(19));
    assert_eq!(f.c.get("k").unwrap().unwrap(), "again");
    f.clock.advance(ms(1));
    done(&f, |b, c| {
        b.set_default_ttl(c, DefaultTtl::Off).put(c, "l", "v");
    });
    assert_eq!(pairs(f.c.iter()), [("l".into(), "v".into())]);
}

#[test]
fn lifetimes_and_keys_out_of_range_refuse_the_batch() {
    let f = fixture();
    let all_refused = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        batch.put(&f.c, "fine", "v");
        fill(&mut batch);
        let error = f.db.write(&batch).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    };
    let long = vec![b'x'; 65_536];
    all_refused(&|b| _ = b.create(&f.c, "", "v", Ttl::Inherit));
    all_refused(&|b| _ = b.replace(&f.c, "k", "v", after(0)));
    all_refused(&|b| _ = b.touch(&f.c, &long));
    all_refused(&|b| _ = b.require(&f.c, &long, Expect::Absent));
    all_refused(&|b| _ = b.delete_range(&f.c, &long[..]..));
    all_refused(&|b| _ = b.set_default_ttl(&f.c, default(0)));
    assert!(pairs(f.c.iter()).is_empty());
    let mut batch = Batch::new();
    batch
        .require(&f.c, "k", Expect::Absent)
        .delete_range(&f.c, "b".."a");
    assert!(
        batch.is_empty(),
        "a condition is no write, nor is what deletes nothing"
    );
    f.db.write(&batch).unwrap();
}

/// A default that a batch sets stands in the log alone, until an edit says it.
#[test]
fn a_default_that_a_batch_sets_lasts_with_the_batch() {
    let f = fixture();
    let (mut sim, mut db) = (f.sim.clone(), f.db.clone());
    for round in 1..12u64 {
        let c = db.container("c").unwrap();
        let other = db.container("other").unwrap();
        let mut batch = Batch::new();
        batch.set_default_ttl(&c, default(round)).put_with_ttl(
            &other,
            "k",
            round.to_string(),
            Ttl::Never,
        );
        batch.set_default_ttl(&other, default(100 + round));
        db.write(&batch).unwrap();
        match round % 5 {
            1 => other.set_default_ttl(default(200 + round)).unwrap(),
            2 => db.flush().unwrap(),
            3 => db.close().unwrap(),
            _ => {}
        }
        let next = if round % 2 == 0 {
            sim.power_cut(round)
        } else {
            sim.kill()
        };
        drop((c, other, db));
        sim = next;
        db = opened(&f, &sim);
        let (c, other) = (db.container("c").unwrap(), db.container("other").unwrap());
        assert_eq!(c.default_ttl(), default(round));
        let set = if round % 5 == 1 { 200 } else { 100 };
        assert_eq!(other.default_ttl(), default(set + round));
        assert_eq!(other.get("k").unwrap().unwrap(), round.to_string().as_str());
    }
}

/// Expired under the default that the batch ended: gone for good, also when the log says so alone.
#[test]
fn what_a_batch_ended_stays_gone_after_a_crash() {
    for flushed in [false, true] {
        let f = fixture();
        f.c.set_default_ttl(default(50)).unwrap();
        f.c.put("k", "v").unwrap();
        if flushed {
            f.db.flush().unwrap();
        }
        f.clock.advance(ms(50));
        done(&f, |b, c| {
            b.set_default_ttl(c, DefaultTtl::Off).put(c, "l", "v");
        });
        let (_db, c) = f.open_on(&f.sim.power_cut_with(Survivors::Nothing));
        assert_eq!(c.default_ttl(), DefaultTtl::Off);
        assert_eq!(
            pairs(c.iter()),
            [("l".into(), "v".into())],
            "flushed: {flushed}"
        );
    }
}

#[test]
fn a_batch_may_be_more_or_less_durable_than_the_database() {
    for (durability, lasts) in [(Durability::Sync, true), (Durability::Buffered, false)] {
        for base in [Durability::Buffered, Durability::Sync] {
            let f =
                Stage::new(move |options| options.sync_interval(seconds(86_400)).durability(base));
            f.db.write(Batch::new().put(&f.c, "k", "v").durability(durability))
                .unwrap();
            assert!(f.c.contains("k").unwrap(), "it is seen");
            let (_db, c) = f.open_on(&f.sim.power_cut_with(Survivors::Nothing));
            let is_there = c.contains("k").unwrap();
            assert_eq!(is_there, lasts, "{durability:?} in {base:?}");
        }
    }
}

/// A batch that writes nothing, be it that it is empty or that it only asks, makes last what came before it.
#[test]
fn a_synced_batch_that_writes_nothing_syncs_what_came_before() {
    for asks in [false, true] {
        let f = fixture();
        f.c.put("k", "v").unwrap();
        let mut batch = Batch::new();
        batch.durability(Durability::Sync);
        if asks {
            batch.require(&f.c, "k", Expect::Present);
        }
        f.db.write(&batch).unwrap();
        let (_db, c) = f.open_on(&f.sim.power_cut_with(Survivors::Nothing));
        assert!(c.contains("k").unwrap(), "{asks}");
    }
}

/// It would make visible what came before it, and waits for its sync.
#[test]
fn a_buffered_batch_shows_nothing_that_waits_for_its_sync() {
    let fs = Watched::new(Sim::new(1));
    let options = on(&fs, &ManualClock::new(NOW));
    let db = options
        .stepped()
        .durability(Durability::Sync)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    let (seen, seer) = channel();
    fs.once("sync", ".wal", {
        let (db, c) = (db.clone(), c.clone());
        move || {
            let before = db.stats().bytes_put;
            let batch = thread::spawn({
                let (db, c) = (db.clone(), c.clone());
                move || {
                    let mut batch = Batch::new();
                    batch.put(&c, "batch", "v").durability(Durability::Buffered);
                    db.write(batch).unwrap();
                }
            });
            patience::wait_until("the batch is written", || db.stats().bytes_put > before);
            let visible = ["k", "batch"].map(|key| c.contains(key).unwrap());
            seen.send((visible, batch)).unwrap();
        }
    });
    c.put("k", "v").unwrap();
    let (visible, batch) = seer.recv().unwrap();
    batch.join().unwrap();
    assert_eq!(visible, [false, false]);
    assert_eq!(c.iter().count(), 2);
}

/// Tells how often it was looked at.
#[derive(Clone)]
struct Looked(ManualClock, Arc<AtomicU64>);

impl Clock for Looked {
    fn wall(&self) -> u64 {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.wall()
    }

    fn uptime(&self) -> u64 {
        self.0.uptime()
    }
}

/// The item ends while the batch waits for its sync, which would have let it live, and deletes it: no reader may take one
/// without the other.
#[test]
fn a_default_is_seen_with_the_rest_of_its_batch() {
    reads_a_default_with_the_rest_of_its_batch(|c| c.get("k").unwrap());
    reads_a_default_with_the_rest_of_its_batch(|c| c.get_many(["k"]).unwrap().remove(0));
}

fn reads_a_default_with_the_rest_of_its_batch(get: fn(&Container) -> Option<Value>) {
    let fs = Watched::new(Sim::new(1));
    let clock = Looked(ManualClock::new(NOW), Arc::default());
    let options = on(&fs, &clock);
    let db = options.stepped().open("/db").unwrap();
    let c = db.container("c").unwrap();
    c.set_default_ttl(default(50)).unwrap();
    c.put("k", "v").unwrap();
    db.sync().unwrap();
    let (found, finds) = channel();
    fs.once("sync", ".wal", {
        let c = c.clone();
        move || {
            clock.0.advance(ms(50));
            let looks = clock.1.load(Ordering::SeqCst);
            let reader = thread::spawn(move || get(&c));
            patience::wait_until("the reader looks at the clock", || {
                clock.1.load(Ordering::SeqCst) > looks
            });
            found.send(reader).unwrap();
        }
    });
    let mut batch = Batch::new();
    batch.set_default_ttl(&c, DefaultTtl::Off).delete(&c, "k");
    db.write(&batch).unwrap();
    assert_eq!(finds.recv().unwrap().join().unwrap(), None);
    assert_eq!(c.default_ttl(), DefaultTtl::Off);
}

/// A sync that fails leaves the default as it was.
#[test]
fn a_default_whose_sync_fails_does_not_count() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    fail_from_now(&f.sim, Fault::Io, |call| call.operation == "sync");
    let mut batch = Batch::new();
    batch.put(&f.c, "l", "v").set_default_ttl(&f.c, default(1));
    assert!(f.db.write(&batch).is_err());
    assert_eq!(f.c.default_ttl(), DefaultTtl::NoDefault);
    f.clock.advance(ms(5));
    assert_eq!(pairs(f.c.iter()), [("k".into(), "v".into())]);
}

#[test]
fn handles_of_dropped_containers_and_others_are_refused() {
    let f = fixture();
    let dropped = f.db.container("dropped").unwrap();
    f.db.drop_container("dropped").unwrap();
    let mut batch = Batch::new();
    batch
        .put(&f.c, "k", "v")
        .require(&dropped, "k", Expect::Absent);
    assert!(f.db.write(&batch).unwrap_err().is_closed());
    let elsewhere = f.options().open("/elsewhere").unwrap();
    let mut batch = Batch::new();
    batch
        .put(&f.c, "k", "v")
        .touch(elsewhere.container("c").unwrap(), "k");
    refused(f.db.write(&batch), "batch");
    assert!(pairs(f.c.iter()).is_empty());
}

/// Each takes a ticket by its version and counts it, while all is flushed: none is taken twice, and the sum holds.
#[test]
fn of_callers_at_once_one_finds_its_condition_held() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let options = on(&sim, &clock).memtable_bytes(64 << 10);
    let db = options.sizes(256, 4 << 10, 4 << 10).open("/db").unwrap();
    let (c, taken) = (db.container("c").unwrap(), db.container("taken").unwrap());
    c.put("next", "0").unwrap();
    let take = |who: usize| {
        let mut conflicts = 0;
        for _ in 0..60 {
            loop {
                let item = c.item("next").unwrap().unwrap();
                let number: u64 = String::from_utf8_lossy(item.value()).parse().unwrap();
                let mut batch = Batch::new();
                batch.require(&c, "next", Expect::Version(item.version()));
                batch.put(&c, "next", (number + 1).to_string());
                batch.create(&taken, format!("{number:06}"), who.to_string(), Ttl::Never);
                match db.write(&batch) {
                    Ok(()) => break,
                    Err(error) => assert!(error.is_conflict(), "{error}"),
                }
                conflicts += 1;
                assert!(conflicts < 100_000, "{number} was taken and is next");
            }
            c.put(format!("filler {who}"), [0; 3_000]).unwrap();
        }
        conflicts
    };
    let conflicts: usize = thread::scope(|scope| {
        let callers = [0, 1, 2, 3].map(|who| scope.spawn(move || take(who)));
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum()
    });
    assert_eq!(c.get("next").unwrap().unwrap(), "240");
    assert_eq!(taken.iter().count(), 240);
    assert!(conflicts > 0, "they meet");
}

#[test]
fn a_batch_makes_and_drops_containers_with_what_it_writes() {
    let f = fixture();
    let old = f.db.container("old").unwrap();
    old.put("k", "v").unwrap();
    f.db.flush().unwrap();
    let options = ContainerOptions::new()
        .default_ttl(default(500))
        .max_live_bytes(1 << 20);
    let mut batch = Batch::new();
    batch.put(&f.c, "made", "new").drop_container("old");
    batch.create_container("new", options);
    let written = f.db.commit(&batch).unwrap();
    assert!(written.outcomes().is_empty());
    assert!(old.get("k").unwrap_err().is_closed());
    for sim in [f.sim.power_cut(1), f.sim.kill()] {
        let db = opened(&f, &sim);
        assert_eq!(db.containers(), ["c", "new"]);
        let new = db.container("new").unwrap();
        assert_eq!(new.default_ttl(), default(500));
        assert_eq!(new.quota().unwrap().max_live_bytes, 1 << 20);
        assert_eq!(
            db.container("c").unwrap().get("made").unwrap().unwrap(),
            "new"
        );
    }
    // Its tables are gone with it.
    assert!(f.sim.list(Path::new("/db/tables")).unwrap().is_empty());
    // Another one of the same name is there now.
    assert!(f.db.write(&batch).unwrap_err().is_conflict());
    assert_eq!(f.db.containers(), ["c", "new"]);
}

#[test]
fn a_container_that_is_there_or_is_not_is_a_conflict_or_is_left_out() {
    let f = fixture();
    let new = ContainerOptions::new;
    let mut batch = Batch::new();
    batch.put(&f.c, "k", "v").create_container("c", new());
    assert!(f.db.write(&batch).unwrap_err().is_conflict());
    batch.clear();
    batch.put(&f.c, "k", "v").drop_container("none");
    assert!(f.db.write(&batch).unwrap_err().is_conflict());
    assert!(f.c.get("k").unwrap().is_none());
    batch.clear();
    batch.on_miss(OnMiss::Skip);
    batch.create_container("c", new()).drop_container("none");
    batch.create_container("d", new()).put(&f.c, "k", "v");
    let outcomes = f.db.commit(&batch).unwrap().outcomes().to_vec();
    let done: Vec<bool> = outcomes.iter().map(|outcome| outcome.is_done()).collect();
    assert_eq!(done, [false, false, true, true]);
    assert_eq!(f.db.containers(), ["c", "d"]);
    // Each write has an outcome, also where none has a condition.
    batch.clear();
    batch.on_miss(OnMiss::Skip);
    batch.put(&f.c, "k", "v").delete(&f.c, "none");
    let written = f.db.commit(&batch).unwrap();
    assert_eq!(written.outcomes(), [Outcome::Done; 2]);
    // The batch sees what it did before; one that only does that names no database.
    batch.clear();
    batch.drop_container("d").create_container("d", new());
    batch.drop_container("d").create_container("e", new());
    f.db.write(&batch).unwrap();
    assert_eq!(f.db.containers(), ["c", "e"]);
    // To what it has dropped it writes nothing.
    batch.clear();
    batch.drop_container("c").put(&f.c, "k", "later");
    let refused = f.db.write(&batch).unwrap_err();
    assert_is!(refused, Error::ContainerDropped { .. });
    assert_eq!(f.c.get("k").unwrap().unwrap(), "v");
    batch.clear();
    batch.create_container("a/b", new());
    let refused = f.db.write(&batch).unwrap_err();
    assert_is!(refused, Error::InvalidArgument { .. });
}

#[test]
fn one_of_several_makes_a_container_of_a_name() {
    let f = fixture();
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..20 {
                    let mut batch = Batch::new();
                    batch.create_container(format!("n{n}"), ContainerOptions::new());
                    match f.db.write(&batch) {
                        Ok(_) => drop(made.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(made.load(Ordering::Relaxed), 20);
    let db = opened(&f, &f.sim.kill());
    assert_eq!(db.containers().len(), 21);
}

/// Each costs one sync of the log, and no edit.
#[test]
fn a_change_of_what_a_container_is_costs_one_sync() {
    let f = fixture();
    let syncs = Arc::new(AtomicU64::new(0));
    let changes: [&dyn Fn(); 5] = [
        &|| drop(f.db.container("new").unwrap()),
        &|| f.c.set_default_ttl(default(9_000)).unwrap(),
        &|| f.c.expire_all().unwrap(),
        &|| f.c.set_quota(None).unwrap(),
        &|| f.c.set_keep_expired(seconds(1)).unwrap(),
    ];
    let edits = f.db.edits().unwrap().len();
    for (at, change) in changes.iter().enumerate() {
        syncs.store(0, Ordering::Relaxed);
        let count = syncs.clone();
        f.sim.watch(move |_, call| {
            count.fetch_add(u64::from(call.operation == "sync"), Ordering::Relaxed);
        });
        change();
        f.sim.unwatch();
        assert_eq!(syncs.load(Ordering::Relaxed), 1, "change {at}");
    }
    assert_eq!(f.db.edits().unwrap().len(), edits);
    // The next edit says them all.
    f.c.put("k", "v").unwrap();
    f.db.flush().unwrap();
    let said = f.db.edits().unwrap().pop().unwrap();
    for change in [
        "create_container",
        "settings",
        "quota",
        "keep_expired",
        "repeated",
    ] {
        assert!(said.contains(change), "{change} in {said}");
    }
}

#[test]
fn many_changes_wait_for_no_other_edit() {
    let f = fixture();
    let edits = || f.db.edits().unwrap();
    let before = edits().len();
    for n in 0..600 {
        drop(f.db.container(format!("n{n}")).unwrap());
    }
    assert_eq!(edits().len(), before + 2);
    // Of one container the last settings are said, whatever came between.
    for n in 0..600 {
        f.c.set_default_ttl(default(1_000_000 + n)).unwrap();
    }
    assert_eq!(edits().len(), before + 2);
    f.c.put("k", "v").unwrap();
    f.db.flush().unwrap();
    let said = edits().pop().unwrap();
    assert_eq!(said.matches("settings_seq").count(), 600 - 256 - 257);
    assert_eq!(said.matches("{\"settings\":").count(), 1, "{said}");
    let db = opened(&f, &f.sim.power_cut_with(Survivors::Nothing));
    assert_eq!(db.containers().len(), 601);
    assert_eq!(db.container("c").unwrap().default_ttl(), default(1_000_599));
}

/// The manifest names its tables until an edit says the drop, and an open looks for them before it reads the log.
#[test]
fn tables_of_a_dropped_container_go_when_an_edit_says_so() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    f.db.container("d").unwrap().put("k", "v").unwrap();
    f.db.flush().unwrap();
    let tables = || f.sim.list(Path::new("/db/tables")).unwrap().len();
    assert_eq!(tables(), 2);
    fail_from_now(&f.sim, Fault::Full, |call| {
        call.operation == "write" && call.path.to_string_lossy().contains("manifest")
    });
    assert!(f.db.drop_container("c").unwrap());
    assert_eq!(tables(), 2);
    for sim in [f.sim.kill(), f.sim.power_cut_with(Survivors::Nothing)] {
        assert_eq!(opened(&f, &sim).containers(), ["d"]);
        assert_eq!(sim.list(Path::new("/db/tables")).unwrap().len(), 1);
    }
    // An open on a full disk goes on with the manifest that names them.
    let full = f.sim.kill();
    full.set_capacity(1 << 40);
    let room = full.room(Path::new("/db")).unwrap();
    full.set_capacity(room.total - room.free);
    assert_eq!(opened(&f, &full).containers(), ["d"]);
    assert_eq!(opened(&f, &full.kill()).containers(), ["d"]);
    f.sim.heal();
    f.db.container("d").unwrap().put("l", "v").unwrap();
    f.db.flush().unwrap();
    f.db.step().unwrap();
    assert!(
        f.db.edits()
            .unwrap()
            .iter()
            .any(|edit| edit.contains("drop_container"))
    );
    assert_eq!(opened(&f, &f.sim.kill()).containers(), ["d"]);
}

/// Where the log has no room for an operation, an edit alone says it.
#[test]
fn a_full_disk_takes_what_changes_containers() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let small = |sim: &Sim| {
        let options = in_steps(sim, &clock).memtable_bytes(512 << 10);
        options.sizes(512, 64 << 10, 64 << 10).open("/db").unwrap()
    };
    sim.set_capacity(480 << 10);
    let db = small(&sim);
    let (c, d) = (db.container("c").unwrap(), db.container("d").unwrap());
    d.put("k", "v").unwrap();
    db.flush().unwrap();
    while c.put("k", [7; 500]).is_ok() {}
    while c.delete("k").is_ok() {}
    c.set_default_ttl(default(5_000)).unwrap();
    c.set_quota(None).unwrap();
    c.set_keep_expired(seconds(3)).unwrap();
    assert!(db.drop_container("d").unwrap());
    for sim in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
        let db = small(&sim);
        assert_eq!(db.containers(), ["c"]);
        let c = db.container("c").unwrap();
        assert_eq!(c.default_ttl(), default(5_000));
        assert_eq!(c.keep_expired(), seconds(3));
        // Where there is no log it is so, too.
        c.set_default_ttl(default(7_000)).unwrap();
        drop((c, db));
        let c = small(&sim.kill()).container("c").unwrap();
        assert_eq!(c.default_ttl(), default(7_000));
    }
    // The next operation in the log has a number of its own.
    sim.set_capacity(1 << 40);
    c.set_default_ttl(default(9_000)).unwrap();
    let c = small(&sim.kill()).container("c").unwrap();
    assert_eq!(c.default_ttl(), default(9_000));
}
