//! Goal: a watcher is told every write and every end in its range, once and in order, or that it lost count, and from where
//! on; and who keeps a copy by it has the database. Method: single histories; random ones, with a watcher that is slow from
//! time to time and a copy that is kept by what it tells.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use ebbtide::internals::{Fault, FaultPlan};
use ebbtide::{
    Batch, Change, Container, Database, DefaultTtl, Durability, ExpiryCursor, Options, Ttl,
    Version, Watch, WatchEvent,
};
use testkit::random::Random;
use testkit::stage::{Stage, ms, text};

fn stage(durability: Durability) -> Stage {
    Stage::new(move |options| options.memtable_bytes(64 << 10).durability(durability))
}

/// All that there is by now, shown.
fn seen(watch: &mut Watch) -> Vec<String> {
    let event = |event: WatchEvent| match event {
        WatchEvent::Put(item) => format!("{}={}", text(item.key()), text(item.value())),
        WatchEvent::Delete { key, .. } => format!("-{}", text(&key)),
        WatchEvent::DeleteRange { from, to, .. } => {
            let to = to.map_or(String::new(), |to| text(&to));
            format!("-{}..{to}", text(&from))
        }
        WatchEvent::Ended(ended) => format!("{} ended", text(ended.key())),
        WatchEvent::Lost { from } => format!("lost from {from}"),
        other => panic!("{other:?}"),
    };
    watch.map(|one| event(one.unwrap())).collect()
}

#[test]
fn all_kinds_of_writes_and_ends_are_told_in_order() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let Stage { clock, db, c, .. } = stage(durability);
        c.put("before", "").unwrap();
        let mut watch = c.watch("b".."x");
        assert!(seen(&mut watch).is_empty());
        c.put("a", "not in the range").unwrap();
        c.put_with_ttl("k", "1", ms(100)).unwrap();
        assert!(c.create("l", "2", Ttl::Inherit).unwrap());
        assert!(!c.create("l", "3", Ttl::Inherit).unwrap());
        assert!(c.touch("k").unwrap());
        c.delete("none").unwrap();
        let mut batch = Batch::new();
        batch.put(&c, "m", "4").delete(&c, "l").put(&c, "y", "");
        db.write(batch).unwrap();
        c.delete_range("x"..).unwrap();
        c.delete_range(.."c").unwrap();
        assert_eq!(
            seen(&mut watch),
            ["k=1", "l=2", "k=1", "-none", "m=4", "-l", "-..c"]
        );
        clock.advance(ms(50));
        c.put_with_ttl("n", "5", ms(200)).unwrap();
        clock.advance(ms(100));
        c.put("o", "6").unwrap();
        clock.advance(ms(1));
        // The end lies between the writes.
        assert_eq!(seen(&mut watch), ["n=5", "k ended", "o=6"]);
        c.expire_all().unwrap();
        clock.advance(ms(1));
        assert_eq!(seen(&mut watch), ["m ended", "n ended", "o ended"]);
        assert!(seen(&mut watch).is_empty());
    }
}

/// Neither an end before its write, nor after a newer one.
#[test]
fn an_end_is_told_between_its_write_and_the_next() {
    let Stage { clock, c, .. } = stage(Durability::Buffered);
    let mut watch = c.watch(..);
    for round in 0..3 {
        c.put_with_ttl("k", round.to_string(), ms(10)).unwrap();
        clock.advance(ms(20));
    }
    // The first two were written over before anybody asked.
    assert_eq!(seen(&mut watch), ["k=0", "k=1", "k=2", "k ended"]);
    c.put_with_ttl("k", "3", ms(10)).unwrap();
    clock.advance(ms(20));
    c.put("l", "").unwrap();
    assert_eq!(seen(&mut watch), ["k=3", "k ended", "l="]);
}

/// Also after a range delete, which has no item, and after an item that counts from an earlier time.
#[test]
fn an_end_is_told_after_every_write_before_it() {
    let Stage { clock, c, .. } = stage(Durability::Buffered);
    c.put("old", "").unwrap();
    clock.advance(ms(1_000));
    let mut watch = c.watch(..);
    c.put_with_ttl("k", "", ms(10)).unwrap();
    clock.advance(ms(1));
    c.put("l", "").unwrap();
    c.delete_range("a".."b").unwrap();
    clock.advance(ms(20));
    c.put_with_ttl("old", "later", Ttl::Keep).unwrap();
    c.put("m", "").unwrap();
    assert_eq!(
        seen(&mut watch),
        ["k=", "l=", "-a..b", "k ended", "old=later", "m="]
    );
}

#[test]
fn who_cannot_keep_up_is_told_from_where_to_read_on() {
    let Stage { db, c, .. } = stage(Durability::Buffered);
    let mut watch = c.watch(..);
    for n in 0..6_000u32 {
        c.put(n.to_be_bytes(), "v").unwrap();
    }
    let (mut told, mut lost) = (0u32, None);
    for event in &mut watch {
        match event.unwrap() {
            WatchEvent::Put(item) => {
                assert!(lost.is_none() && item.key() == told.to_be_bytes());
                told += 1;
            }
            WatchEvent::Lost { from } => lost = Some(from),
            other => panic!("{other:?}"),
        }
    }
    assert!((1_000..6_000).contains(&told), "{told}");
    let mut rest: Vec<_> = db
        .changes(lost.unwrap())
        .filter_map(|change| match change.unwrap() {
            Change::Put { item, .. } => Some(item.key().to_vec()),
            _ => None,
        })
        .collect();
    rest.sort();
    let expected = (told..6_000).map(|n| n.to_be_bytes().to_vec());
    assert_eq!(rest, expected.collect::<Vec<_>>(), "exactly the rest");
    c.put("next", "v").unwrap();
    assert_eq!(seen(&mut watch), ["next=v"]);
    // A load is more than is told one by one.
    let written = c.bulk_load([("x", "1"), ("y", "2")]).unwrap();
    let before = written.version().as_u64() - 1;
    assert_eq!(seen(&mut watch), [format!("lost from {before}")]);
}

/// Ends that nobody asked for in time are gone; that is told, and it goes on.
#[test]
fn ends_that_are_gone_are_told_as_lost() {
    let Stage { clock, db, c, .. } = stage(Durability::Buffered);
    let mut watch = c.watch(..);
    c.put_with_ttl("k", "1", ms(10)).unwrap();
    assert_eq!(seen(&mut watch), ["k=1"]);
    db.flush().unwrap();
    let last = c.item("k").unwrap().unwrap().version();
    clock.advance(Duration::from_secs(7_200));
    db.compact().unwrap();
    assert_eq!(seen(&mut watch), [format!("lost from {last}")]);
    c.put_with_ttl("l", "2", ms(10)).unwrap();
    clock.advance(ms(20));
    assert_eq!(seen(&mut watch), ["l=2", "l ended"]);
}

/// A write that a failed sync takes back was never told.
#[test]
fn a_write_is_told_when_it_counts() {
    let Stage { sim, c, .. } = stage(Durability::Sync);
    let mut watch = c.watch(..);
    c.put("kept", "").unwrap();
    sim.fail_where(
        FaultPlan {
            at: 0,
            kind: Fault::Io,
            lasting: true,
        },
        |call| call.operation == "sync",
    );
    c.put("failed", "").unwrap_err();
    let told: Vec<_> = watch.by_ref().map(|one| one.map(drop).is_ok()).collect();
    assert_eq!(told, [true, false]);
    assert!(c.get("failed").unwrap().is_none());
}

#[test]
fn a_watcher_is_woken_by_a_write_and_by_the_end_of_all() {
    let db = Options::temporary().unwrap();
    let c = db.container("c").unwrap();
    let mut watch = c.watch("k"..);
    assert!(!watch.wait(Duration::ZERO).unwrap());
    let hour = Duration::from_secs(3_600);
    for key in ["k", "l"] {
        thread::scope(|scope| {
            let woken = scope.spawn(|| watch.wait(hour));
            thread::sleep(ms(5));
            c.put("a", "not in the range").unwrap();
            c.put(key, "").unwrap();
            assert!(woken.join().unwrap().unwrap());
        });
        assert!(watch.wait(hour).unwrap(), "until it is taken");
        assert_eq!(seen(&mut watch), [format!("{key}=")]);
        assert!(!watch.wait(Duration::ZERO).unwrap());
    }
    c.put_with_ttl("ends", "", ms(20)).unwrap();
    c.put_with_ttl("k-ends", "", ms(20)).unwrap();
    assert!(watch.wait(hour).unwrap());
    let mut told = vec![];
    while told.len() < 2 {
        assert!(watch.wait(hour).unwrap());
        told.extend(seen(&mut watch));
    }
    assert_eq!(told, ["k-ends=", "k-ends ended"]);
    thread::scope(|scope| {
        let woken = scope.spawn(|| watch.wait(hour));
        thread::sleep(ms(5));
        db.close().unwrap();
        assert!(woken.join().unwrap().unwrap_err().is_closed());
    });
    assert!(watch.next().unwrap().unwrap_err().is_closed());
    assert!(watch.next().is_none());
}

#[test]
fn a_follower_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    db.container("c").unwrap();
    let follower = Options::new().follow(folder.path()).unwrap();
    let mut watch = follower.container("c").unwrap().watch(..);
    for _ in 0..2 {
        let refused = watch.next().unwrap().unwrap_err();
        assert!(matches!(refused, ebbtide::Error::ReadOnly), "{refused}");
        assert!(watch.next().is_none());
    }
}

type Copy = BTreeMap<Vec<u8>, Version>;

fn contents(c: &Container) -> Copy {
    let of = |item: ebbtide::Item| (item.key().to_vec(), item.version());
    c.iter().map(|item| of(item.unwrap())).collect()
}

/// Takes in what there is by now; whether some was lost, and all was read anew.
fn take_in(copy: &mut Copy, watch: &mut Watch, there: &Copy, who: &str) -> bool {
    let mut is_lost = false;
    for event in watch.by_ref() {
        match event.unwrap() {
            WatchEvent::Put(item) => {
                copy.insert(item.key().to_vec(), item.version());
            }
            WatchEvent::Delete { key, .. } => drop(copy.remove(&key[..])),
            WatchEvent::DeleteRange { from, to, .. } => copy.retain(|key, _| {
                key[..] < from[..] || to.as_ref().is_some_and(|to| key[..] >= to[..])
            }),
            WatchEvent::Ended(ended) => {
                let was = copy.remove(ended.key());
                assert!(is_lost || was == Some(ended.version()), "{who}: {ended:?}");
            }
            WatchEvent::Lost { .. } => is_lost = true,
            other => panic!("{other:?}"),
        }
    }
    if is_lost {
        copy.clone_from(there);
    }
    is_lost
}

/// A database whose time the test gives.
fn given() -> (tempfile::TempDir, Database, Container) {
    let folder = testkit::scratch();
    let options = Options::new()
        .memtable_bytes(64 << 10)
        .given_time()
        .stepped();
    let db = options.open(folder.path()).unwrap();
    db.advance_to(UNIX_EPOCH + ms(1_800_000_000_000)).unwrap();
    let c = db.container("c").unwrap();
    (folder, db, c)
}

/// Readers of expirations miss the same ends in all databases of one history. A watcher tells each end that is still stored.
#[test]
fn where_time_is_given_only_ends_that_have_left_the_disk_are_lost() {
    let (_folder, db, c) = given();
    let pass = |millis| {
        db.advance_to(db.now() + ms(millis)).unwrap();
        db.set_purge_limit(db.now()).unwrap();
    };
    let mut watch = c.watch(..);
    let mut expired = c.expirations(ExpiryCursor::now());
    c.put_with_ttl("k", "1", ms(10)).unwrap();
    pass(10_000);
    pass(10_000);
    let gone = expired.next().unwrap().unwrap_err();
    assert!(gone.is_expirations_gone(), "{gone}");
    assert_eq!(seen(&mut watch), ["k=1", "k ended"]);
    c.put_with_ttl("l", "2", ms(10)).unwrap();
    assert_eq!(seen(&mut watch), ["l=2"]);
    assert_eq!(watch.next_due(), Some(db.now() + ms(10)));
    let last = watch.told();
    assert_eq!(last, c.item("l").unwrap().unwrap().version());
    db.flush().unwrap();
    pass(10_000);
    db.compact().unwrap();
    assert_eq!(seen(&mut watch), [format!("lost from {last}")]);
    assert_eq!((watch.next_due(), watch.told()), (None, last));
    c.put("m", "3").unwrap();
    assert_eq!(seen(&mut watch), ["m=3"]);
    assert!(watch.told() > last);
}

fn play(seed: u64, is_given: bool) -> usize {
    let mut random = Random(seed);
    let (stage, given) = (stage(Durability::Buffered), given());
    let (db, c) = match is_given {
        true => (&given.1, &given.2),
        false => (&stage.db, &stage.c),
    };
    let advance = |by: Duration| match is_given {
        true => db.advance_to(db.now() + by).unwrap(),
        false => stage.clock.advance(by),
    };
    let mut watch = c.watch(..);
    let (mut copy, mut lost) = (Copy::new(), 0);
    for at in 0..500 {
        let key = format!("k{:02}", random.below(30));
        match random.below(40) {
            0..20 => c.put(&key, "v").unwrap(),
            20..28 => {
                let ttl = ms(10 << random.below(8));
                c.put_with_ttl(&key, "v", ttl).unwrap();
            }
            28..31 => c.delete(&key).unwrap(),
            31 => c
                .delete_range(key..format!("k{:02}", random.below(30)))
                .unwrap(),
            32 => {
                let default = [DefaultTtl::NoDefault, DefaultTtl::After(ms(500))];
                c.set_default_ttl(random.pick(&default)).unwrap();
            }
            33 => c
                .expire_all()
                .unwrap_or_else(|error| assert!(error.is_retryable())),
            34 => db.flush().unwrap(),
            35 => while db.step().unwrap() {},
            36 if is_given => db.set_purge_limit(db.now()).unwrap(),
            36 => drop(c.bulk_load([(&key, "v")]).unwrap()),
            _ => advance(ms(5 << random.below(7))),
        }
        if random.one_in(6) {
            let who = format!("seed {seed}, step {at}");
            // An end is told when its millisecond is over.
            let there = contents(c);
            advance(ms(1));
            lost += usize::from(take_in(&mut copy, &mut watch, &there, &who));
            assert_eq!(copy, there, "{who}");
        }
    }
    lost
}

#[test]
fn a_copy_that_is_kept_by_events_is_the_container() {
    let seed = testkit::env("EBBTIDE_SEED", 1);
    let histories = testkit::env("EBBTIDE_HISTORIES", 40);
    for is_given in [false, true] {
        let lost: usize = (seed..seed + histories)
            .map(|seed| play(seed, is_given))
            .sum();
        assert!(lost > 0, "where time is given: {is_given}");
    }
}

/// Writers on threads, fewer writes than are queued, and a watcher that takes what there is: each once, in the order of
/// versions, when others can read it.
#[test]
fn writers_at_once_are_told_in_one_order() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let db = Options::new()
            .durability(durability)
            .open_temporary()
            .unwrap();
        let c = db.container("c").unwrap();
        let mut watch = c.watch(..);
        let (writers, each) = (3u64, 600u64);
        thread::scope(|scope| {
            for writer in 0..writers {
                let c = &c;
                scope.spawn(move || {
                    for n in 0..each {
                        c.put((writer * each + n).to_be_bytes(), "v").unwrap();
                    }
                });
            }
            let (mut last, mut told) = (Version::start(), 0);
            while told < writers * each {
                assert!(watch.wait(Duration::from_secs(60)).unwrap());
                for event in &mut watch {
                    let WatchEvent::Put(item) = event.unwrap() else {
                        panic!("nothing else was written");
                    };
                    assert!(item.version() > last);
                    (last, told) = (item.version(), told + 1);
                    assert_eq!(c.item(item.key()).unwrap().unwrap().version(), last);
                }
            }
        });
    }
}
