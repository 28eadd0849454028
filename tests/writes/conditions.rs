//! Goal: what writes depend on and what they tell: versions, lifetimes that are kept, and what was there before.
//!
//! Method: each promise by a clock that the test moves, before and after flushes, merges and opens.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::{Fault, Sim};
use ebbtide::{
    AtOnce, Batch, Container, Database, DefaultTtl, Error, Expect, Item, ManualClock, OnMiss,
    Options, Outcome, Reads, Ttl, Update, Version, repair,
};
use tempfile::TempDir;
use testkit::model::{BatchStep, Expire, Given, Life, Model, Need, Seen, Standard, Time, Write};
use testkit::random::Random;
use testkit::refused;
use testkit::stage::{NOW, Stage, after, at, default, fail_from_now, ms, on, open, seconds};

pub fn fixture() -> Stage {
    Stage::new(|options| options.memtable_bytes(1 << 20))
}

pub fn version(c: &Container, key: &str) -> Version {
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
    assert_eq!(written.written_at(), at(0));
    assert_eq!(f.c.get("k").unwrap().unwrap(), "3");
    let nothing = f.db.commit(Batch::new()).unwrap();
    assert_eq!(nothing.version(), written.version());
    let parsed: u64 = last.to_string().parse().unwrap();
    assert_eq!(Version::from_u64(parsed), last);
}

#[test]
fn a_version_stays_through_all_that_moves_an_item() {
    let (folder, clock) = (TempDir::new().unwrap(), ManualClock::new(NOW));
    let options = Options::new().clock(clock).memtable_bytes(1 << 20);
    let path = folder.path().join("db");
    let db = options.open(&path).unwrap();
    let c = db.container("c").unwrap();
    let mut batch = Batch::new();
    for n in 0..50 {
        c.put(format!("single {n}"), [0; 500]).unwrap();
        batch.put(&c, format!("batched {n}"), [0; 500]);
    }
    db.write(&batch).unwrap();
    let versions =
        |c: &Container| -> Vec<Version> { c.iter().map(|item| item.unwrap().version()).collect() };
    let before = versions(&c);
    let gone = version(&c, "single 7");
    assert_eq!(BTreeSet::from_iter(&before).len(), 100);
    let (snapshot, copy) = (db.snapshot(), folder.path().join("copy"));
    db.checkpoint(&copy).unwrap();
    let copied = options.open(&copy).unwrap();
    assert_eq!(versions(&copied.container("c").unwrap()), before);
    c.put("single 7", "again").unwrap();
    c.delete("single 7").unwrap();
    let kept = snapshot.container("c").unwrap();
    let kept: Vec<_> = kept.iter().map(|item| item.unwrap().version()).collect();
    assert_eq!(kept, before);
    drop((snapshot, copied));
    let mut before = before;
    before.retain(|version| *version != gone);
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(versions(&c), before);
    c.put("batched 0", "again").unwrap();
    before[0] = version(&c, "batched 0");
    db.close().unwrap();
    for round in ["opened", "repaired"] {
        let db = options.open(&path).unwrap();
        assert_eq!(versions(&db.container("c").unwrap()), before, "{round}");
        db.close().unwrap();
        let report = repair(&path, true).unwrap();
        assert!(report.losses.is_empty());
    }
}

/// The ttl of an item, the moment it is counted from, and its end.
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
            f.clock.advance(ms(100));
            let before = WAYS.map(|key| version(&f.c, key));
            keeping(&f.c, &f.db);
            for (key, before) in WAYS.into_iter().zip(before) {
                assert_eq!(life(&f.c, key), Some(written), "{key} {round}");
                assert_eq!(f.c.get(key).unwrap().unwrap(), "new", "{key} {round}");
                assert!(version(&f.c, key) > before, "{key} {round}");
            }
            f.db.flush().unwrap();
        }
        f.clock.advance(ms(699));
        assert_eq!(f.c.iter().count(), WAYS.len());
        f.clock.advance(ms(1));
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

fn keeping_over_nothing(f: &Stage) {
    f.c.put_with_ttl("put", "old", after(5)).unwrap();
    f.clock.advance(ms(5));
    f.c.put_with_ttl("put", "new", Ttl::Keep).unwrap();
    assert!(!f.c.replace("replace", "new", Ttl::Keep).unwrap());
    assert!(f.c.create("create", "new", Ttl::Keep).unwrap());
    for key in ["put", "create"] {
        let (_, ttl, end) = life(&f.c, key).unwrap();
        assert_eq!((ttl, end), (Ttl::Inherit, None), "{key}");
    }
}

#[test]
fn expire_changes_the_ttl_and_keeps_the_value() {
    let f = fixture();
    assert!(!f.c.expire("k", after(10)).unwrap());
    f.c.put("k", "v").unwrap();
    f.clock.advance(ms(7));
    assert!(f.c.expire("k", after(10)).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(7), after(10), Some(at(17)))));
    f.clock.advance(ms(9));
    assert!(f.c.expire("k", Ttl::Until(at(20))).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(16), after(4), Some(at(20)))));
    assert!(f.c.expire("k", Ttl::Inherit).unwrap());
    assert_eq!(life(&f.c, "k"), Some((at(16), Ttl::Inherit, None)));
    assert!(f.c.expire("k", Ttl::Never).unwrap());
    assert_eq!(f.c.get("k").unwrap().unwrap(), "v");
    let before = version(&f.c, "k");
    for bad in [Ttl::Keep, after(0)] {
        refused(f.c.expire("k", bad), "ttl");
    }
    assert_eq!(version(&f.c, "k"), before);
    assert!(f.c.expire("k", after(1)).unwrap());
    f.clock.advance(ms(1));
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
    f.clock.advance(ms(50));
    assert!(f.c.take("k").unwrap().is_none(), "it has expired");
}

#[test]
fn fetch_update_tells_what_was_there_and_what_was_written() {
    let f = fixture();
    let to = |value: &str| Update::Put(value.to_owned(), Ttl::Inherit);
    let done = f.c.fetch_update("k", |_| to("1")).unwrap();
    assert_eq!(
        (done.before, done.written.map(|written| written.version())),
        (None, Some(version(&f.c, "k")))
    );
    let item = f.c.item("k").unwrap();
    f.clock.advance(ms(5));
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
    refused(
        f.c.fetch_update("k", |_| Update::Put(vec![], after(0))),
        "ttl",
    );
}

fn rarely_synced(sim: &Sim) -> Options {
    on(sim, &ManualClock::new(NOW)).sync_interval(seconds(86_400))
}

/// Called when a power cut takes nothing any more, which the next round could not know otherwise.
#[test]
fn what_waits_for_a_sync_is_called_after_it() {
    let mut sim = Sim::new(1);
    for round in 0..10 {
        let (db, c) = open(rarely_synced(&sim));
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
    let (db, c) = open(rarely_synced(&sim));
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
    let db = rarely_synced(&sim).open("/db").unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    fail_from_now(&sim, Fault::Io, |call| call.operation == "sync");
    let (told, tells) = channel();
    db.sync_then(move |synced| told.send(synced).unwrap());
    assert!(tells.recv().unwrap().is_err());
}

/// The last handle goes in the call itself.
#[test]
fn a_database_may_be_closed_by_what_waited_for_a_sync() {
    let sim = Sim::new(1);
    let db = rarely_synced(&sim).open("/db").unwrap();
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
        std::thread::sleep(ms(5));
        rarely_synced(&sim).open("/db").ok()
    });
    again.expect("it is closed").close().unwrap();
}

/// Code that the close itself calls may call the database, which answers that it is closed.
#[test]
fn what_waited_for_a_sync_may_call_the_database_that_closes() {
    let sim = Sim::new(1);
    let (db, c) = open(rarely_synced(&sim).stepped());
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

fn done(batch: &Batch, db: &Database) -> Vec<bool> {
    let written = db.commit(batch).unwrap();
    let outcomes = written.outcomes().iter();
    outcomes.map(|outcome| outcome.is_done()).collect()
}

#[test]
fn a_write_whose_condition_does_not_hold_is_left_out_and_told() {
    let f = fixture();
    f.c.put_with_ttl("there", "1", after(1_000)).unwrap();
    f.c.put_with_ttl("ended", "1", after(10)).unwrap();
    f.clock.advance(ms(10));
    let mut batch = Batch::new();
    batch.on_miss(OnMiss::Skip);
    batch
        .create(&f.c, "there", "2", Ttl::Inherit)
        .create(&f.c, "ended", "2", Ttl::Keep)
        .replace(&f.c, "absent", "2", Ttl::Inherit)
        .touch(&f.c, "absent")
        .expire(&f.c, "absent", Ttl::Never)
        .put(&f.c, "absent", "3")
        .touch(&f.c, "absent")
        .expire(&f.c, "there", after(5_000))
        .delete(&f.c, "there")
        .touch(&f.c, "there");
    let told = done(&batch, &f.db);
    let (n, y) = (false, true);
    assert_eq!(told, [n, y, n, n, n, y, y, y, y, n]);
    assert_eq!(batch.len(), told.len());
    assert_eq!(f.c.get("ended").unwrap().unwrap(), "2");
    assert_eq!(f.c.get("absent").unwrap().unwrap(), "3");
    assert!(!f.c.contains("there").unwrap());
    // Of what cannot be left out nothing is told.
    let plain = f.db.commit(Batch::new().put(&f.c, "k", "v")).unwrap();
    assert!(plain.outcomes().is_empty());
}

#[test]
fn a_batch_of_which_all_is_left_out_writes_nothing() {
    let f = fixture();
    f.c.put("k", "v").unwrap();
    let before = version(&f.c, "k");
    let mut batch = Batch::new();
    batch
        .on_miss(OnMiss::Skip)
        .create(&f.c, "k", "w", Ttl::Inherit);
    let written = f.db.commit(&batch).unwrap();
    assert_eq!(written.outcomes(), [Outcome::Skipped]);
    assert_eq!((written.version(), version(&f.c, "k")), (before, before));
}

/// Batches of several threads that create the same keys: each key is told to one of them.
#[test]
fn of_batches_at_once_one_is_told_that_it_has_created_a_key() {
    let f = fixture();
    let keys: Vec<String> = (0..64).map(|n| format!("k{n:02}")).collect();
    let created = |me: usize| -> usize {
        let chunks = keys.chunks(8).cycle().skip(me).take(8);
        let mut created = 0;
        for chunk in chunks {
            let mut batch = Batch::new();
            batch.on_miss(OnMiss::Skip);
            for key in chunk {
                batch.create(&f.c, key, me.to_string(), Ttl::Inherit);
            }
            created += done(&batch, &f.db).into_iter().filter(|done| *done).count();
        }
        created
    };
    let created = &created;
    let all: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|me| scope.spawn(move || created(me))).collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(all.iter().sum::<usize>(), keys.len());
    for (me, created) in all.into_iter().enumerate() {
        let own =
            f.c.iter()
                .filter(|item| item.as_ref().unwrap().value() == me.to_string().as_str());
        assert_eq!(own.count(), created);
    }
}

/// A write that was left out is judged again when the batch is stamped: while the batch reads a file, the item that stood
/// against it is deleted, or ends, or the one that it lacked is written.
#[test]
fn what_a_write_was_left_out_for_is_so_at_the_stamp() {
    type Meanwhile = fn(&Container, &ManualClock);
    let meanwhile: [Meanwhile; 3] = [
        |c, _| c.delete("held").unwrap(),
        |_, clock| clock.advance(ms(10)),
        |c, _| c.put("free", "meanwhile").unwrap(),
    ];
    for (of, meanwhile) in meanwhile.into_iter().enumerate() {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let options = rarely_synced(&sim).clock(clock.clone()).stepped();
        let options = options.reads(Reads::Pread).cache_bytes(0);
        let (db, c) = open(options);
        c.put("stored", "v").unwrap();
        db.flush().unwrap();
        c.put_with_ttl("held", "v", after(10)).unwrap();
        let mut batch = Batch::new();
        batch.on_miss(OnMiss::Skip);
        batch.create(&c, "held", "new", Ttl::Never);
        batch.replace(&c, "free", "new", Ttl::Never);
        batch.create(&c, "stored", "new", Ttl::Never);
        let acts = Mutex::new(Some((c.clone(), clock.clone())));
        sim.watch(move |_, call| {
            let acts = (call.operation == "read").then(|| acts.lock().unwrap().take());
            if let Some((c, clock)) = acts.flatten() {
                meanwhile(&c, &clock);
            }
        });
        assert_eq!(done(&batch, &db), [of < 2, of == 2, false], "{of}");
        assert_eq!(c.contains("free").unwrap(), of == 2);
        assert_eq!(
            c.get("held").unwrap().unwrap(),
            if of < 2 { "new" } else { "v" }
        );
    }
}

#[test]
fn a_requirement_is_one_of_the_whole_batch() {
    let f = fixture();
    let mut batch = Batch::new();
    batch.on_miss(OnMiss::Skip).put(&f.c, "a", "1");
    batch
        .require(&f.c, "k", Expect::Present)
        .create(&f.c, "b", "1", Ttl::Inherit);
    assert!(f.db.commit(&batch).unwrap_err().is_conflict());
    assert!(f.c.is_empty().unwrap());
    // And what asks for a conflict gets one, beside what does not.
    batch.clear();
    batch
        .on_miss(OnMiss::Skip)
        .create(&f.c, "a", "1", Ttl::Inherit);
    batch
        .on_miss(OnMiss::Conflict)
        .create(&f.c, "a", "1", Ttl::Inherit);
    assert!(f.db.commit(&batch).unwrap_err().is_conflict());
    assert!(f.c.is_empty().unwrap());
    // After it is cleared, a batch asks as in the beginning.
    batch.on_miss(OnMiss::Skip).clear();
    batch.touch(&f.c, "a");
    assert!(f.db.commit(&batch).unwrap_err().is_conflict());
}

#[test]
fn an_update_may_change_the_ttl_alone() {
    let f = fixture();
    f.c.put_with_ttl("k", "v", after(1_000)).unwrap();
    f.clock.advance(ms(300));
    let never = |_: Option<&Item>| Update::Expire(Ttl::Never);
    assert!(f.c.update("k", never).unwrap());
    let of_now = (at(300), Ttl::Never, None);
    assert_eq!(life(&f.c, "k"), Some(of_now));
    assert_eq!(f.c.get("k").unwrap().unwrap(), "v");
    assert!(!f.c.update("absent", never).unwrap());
    refused(f.c.update("k", |_| Update::Expire(Ttl::Keep)), "ttl");
}

/// One operation of a random batch.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(Ttl),
    Create(Ttl),
    Replace(Ttl),
    Touch,
    ExpireKey(Ttl),
    Delete,
    DeleteAll,
    Require(Expect),
    SetDefault(DefaultTtl),
    ExpireAll,
    ExpireBefore(u64),
}

struct Made {
    container: usize,
    key: &'static str,
    value: String,
    step: Step,
    on_miss: OnMiss,
}

const NAMES: [&str; 2] = ["a", "b"];
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];

fn random_ttl(dice: &mut Random, now: u64) -> Ttl {
    match dice.below(6) {
        0 => Ttl::Inherit,
        1 => Ttl::Never,
        2 => Ttl::Keep,
        3 => Ttl::Until(at(now + dice.below(60) as u64 - 10.min(now))),
        _ => after(1 + dice.below(60) as u64),
    }
}

fn random_step(dice: &mut Random, now: u64) -> Made {
    let counting = |dice: &mut Random| match random_ttl(dice, now) {
        Ttl::Keep => Ttl::Inherit,
        ttl => ttl,
    };
    let step = match dice.below(24) {
        0..3 => Step::Put(random_ttl(dice, now)),
        3..8 => Step::Create(random_ttl(dice, now)),
        8..12 => Step::Replace(random_ttl(dice, now)),
        12..15 => Step::Touch,
        15..18 => Step::ExpireKey(counting(dice)),
        18..20 => Step::Delete,
        20 if dice.one_in(2) => Step::DeleteAll,
        21 => Step::SetDefault(match dice.below(3) {
            0 => DefaultTtl::Off,
            1 => DefaultTtl::NoDefault,
            _ => default(1 + dice.below(40) as u64),
        }),
        22 if dice.one_in(2) => Step::ExpireAll,
        22 => Step::ExpireBefore(now + dice.below(40) as u64),
        23 => Step::Require(dice.pick(&[Expect::Absent, Expect::Present])),
        _ => Step::Touch,
    };
    Made {
        container: dice.below(2),
        key: dice.pick(&KEYS),
        value: format!("v{}", dice.below(1_000)),
        step,
        on_miss: dice.pick(&[OnMiss::Skip, OnMiss::Skip, OnMiss::Skip, OnMiss::Conflict]),
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

fn given(ttl: Ttl) -> Given {
    match ttl {
        Ttl::Inherit => Given::Life(Life::Inherit),
        Ttl::Never => Given::Life(Life::Never),
        Ttl::After(duration) => Given::Life(Life::Own(millis(duration))),
        Ttl::Keep => Given::Keep,
        Ttl::Until(moment) => Given::Until(millis(moment.duration_since(UNIX_EPOCH).unwrap())),
        ttl => unreachable!("{ttl:?} is not made here"),
    }
}

/// The effect of an operation in the model, if its condition holds there.
fn in_model(model: &mut Model, made: &Made) -> Option<BatchStep> {
    let (container, key) = (
        NAMES[made.container].to_owned(),
        made.key.as_bytes().to_vec(),
    );
    let live = model.find(&container, &key, u64::MAX);
    let put = |value: Vec<u8>, ttl| {
        let (container, key) = (container.clone(), key.clone());
        BatchStep::Write(Write::Put {
            container,
            key,
            value,
            ttl: given(ttl),
        })
    };
    let value = made.value.clone().into_bytes();
    match (made.step, live) {
        (Step::Put(ttl), _) | (Step::Create(ttl), None) | (Step::Replace(ttl), Some(_)) => {
            Some(put(value, ttl))
        }
        (Step::ExpireKey(ttl), Some(seen)) => Some(put(seen.value, ttl)),
        (Step::Touch, Some(_)) => Some(BatchStep::Touch(container, key)),
        (Step::Create(_), Some(_)) => None,
        (Step::Replace(_) | Step::ExpireKey(_) | Step::Touch, None) => None,
        (Step::Delete, _) => Some(BatchStep::Write(Write::Delete { container, key })),
        (Step::DeleteAll, _) => Some(BatchStep::Write(Write::DeleteRange {
            container,
            from: vec![],
            to: None,
        })),
        (Step::SetDefault(default), _) => Some(BatchStep::Write(Write::SetStandard {
            container,
            to: match default {
                DefaultTtl::Off => Standard::Off,
                DefaultTtl::After(duration) => Standard::After(millis(duration)),
                _ => Standard::NoDefault,
            },
        })),
        (Step::ExpireAll, _) => Some(BatchStep::Write(Write::Expire {
            container,
            what: Expire::All,
        })),
        (Step::ExpireBefore(moment), _) => Some(BatchStep::Write(Write::Expire {
            container,
            what: Expire::Before(NOW + moment),
        })),
        (Step::Require(expect), live) => {
            let holds = live.is_some() == (expect == Expect::Present);
            let need = match expect {
                Expect::Present => Need::Present,
                _ => Need::Absent,
            };
            holds.then_some(BatchStep::Require(container, key, need))
        }
    }
}

fn add(batch: &mut Batch, c: &Container, made: &Made) {
    let (key, value) = (made.key, &made.value);
    batch.on_miss(made.on_miss);
    match made.step {
        Step::Put(ttl) => batch.put_with_ttl(c, key, value, ttl),
        Step::Create(ttl) => batch.create(c, key, value, ttl),
        Step::Replace(ttl) => batch.replace(c, key, value, ttl),
        Step::Touch => batch.touch(c, key),
        Step::ExpireKey(ttl) => batch.expire(c, key, ttl),
        Step::Delete => batch.delete(c, key),
        Step::DeleteAll => batch.delete_range(c, ..),
        Step::Require(expect) => batch.require(c, key, expect),
        Step::SetDefault(default) => batch.set_default_ttl(c, default),
        Step::ExpireAll => batch.expire_all(c),
        Step::ExpireBefore(moment) => batch.expire_before(c, at(moment)),
    };
}

/// The answer of the model to a batch: the outcome of each write, or the key of the conflict.
fn foretold(model: &mut Model, steps: &[Made]) -> Result<Vec<bool>, String> {
    let (before, mut told, mut may_skip) = (model.clone(), vec![], false);
    for made in steps {
        let part = in_model(model, made);
        let is_whole = matches!(made.step, Step::Require(_));
        may_skip |= made.on_miss == OnMiss::Skip;
        match &part {
            None if is_whole || made.on_miss == OnMiss::Conflict => {
                *model = before;
                return Err(made.key.to_owned());
            }
            None => told.push(false),
            Some(part) => {
                model.try_commit(std::slice::from_ref(part)).unwrap();
                told.extend((!is_whole).then_some(true));
            }
        }
    }
    Ok(if may_skip { told } else { vec![] })
}

/// Key, value, when it was written and when it ends, in milliseconds.
type Stored = (Vec<u8>, Vec<u8>, u64, Option<u64>);

fn items(c: &Container) -> Vec<Stored> {
    let since = |moment: SystemTime| millis(moment.duration_since(UNIX_EPOCH).unwrap());
    let items = c.iter().map(|item| {
        let item = item.unwrap();
        let (key, value) = (item.key().to_vec(), item.value().to_vec());
        (
            key,
            value,
            since(item.written_at()),
            item.expires_at().map(since),
        )
    });
    items.collect()
}

/// Each random batch does what its operations do one by one at one moment, or nothing; whatever of it is on disk.
#[test]
fn random_batches_tell_what_a_model_says() {
    let rounds = testkit::env("EBBTIDE_ROUNDS", 60);
    let (mut skipped, mut conflicts, mut at_once) = (0, 0, 0);
    for seed in 0..rounds {
        let (f, mut dice, mut now) = (fixture(), Random(seed), 0);
        let containers = NAMES.map(|name| f.db.container(name).unwrap());
        let mut model = Model::new(Time::new(NOW, 600_000));
        for name in NAMES {
            model.create_container(name, Standard::NoDefault);
        }
        for _ in 0..40 {
            let steps: Vec<_> = (0..1 + dice.below(12))
                .map(|_| random_step(&mut dice, now))
                .collect();
            let mut batch = Batch::new();
            for made in &steps {
                add(&mut batch, &containers[made.container], made);
            }
            // Some without waiting, if that can be.
            let ready = match dice.one_in(2) {
                true => f.db.try_write(&batch).map(AtOnce::ready),
                false => Ok(None),
            };
            at_once += u64::from(!matches!(ready, Ok(None)));
            let answer = ready.and_then(|ready| ready.map_or_else(|| f.db.commit(&batch), Ok));
            match (answer, foretold(&mut model, &steps)) {
                (Ok(written), Ok(told)) => {
                    let outcomes: Vec<_> =
                        written.outcomes().iter().map(|of| of.is_done()).collect();
                    assert_eq!(outcomes, told, "seed {seed}");
                    skipped += told.iter().filter(|done| !**done).count();
                }
                (Err(Error::Conflict { key, .. }), Err(told)) => {
                    assert_eq!(key, told.as_bytes(), "seed {seed}");
                    conflicts += 1;
                }
                (got, told) => panic!("seed {seed}: {got:?}, not {told:?}"),
            }
            match dice.below(8) {
                0 => f.db.flush().unwrap(),
                1 => f.db.compact().unwrap(),
                _ => {}
            }
            let by = dice.below(15) as u64;
            now += by;
            f.clock.advance(ms(by));
            model.time.advance(by);
            for (c, name) in containers.iter().zip(NAMES) {
                let told = model.scan(name, b"", None, u64::MAX).into_iter();
                let told =
                    told.map(|seen: Seen| (seen.key, seen.value, seen.written_at, seen.expires_at));
                assert_eq!(items(c), told.collect::<Vec<_>>(), "seed {seed}");
            }
        }
    }
    assert!(
        skipped as u64 > 20 * rounds && conflicts > 3 * rounds && at_once > 8 * rounds,
        "{skipped}, {conflicts}, {at_once}"
    );
}
