//! Goal: a put is done if, and only if, the version that it is to find is the live one; and it tells which that was.
//!
//! Method: each state of a key by a clock that the test moves, in memory and in tables; and threads that count by versions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ebbtide::internals::{Fault, Sim};
use ebbtide::{Durability, ManualClock, Reads, Ttl, Version};

use crate::conditions::{fixture, version};
use testkit::refused;
use testkit::stage::{NOW, after, fail_from_now, ms, on, open};

/// An item that is there, that has ended, that was deleted; in memory and in a table; and a version that is refused.
#[test]
fn put_if_judges_the_version_that_is_live() {
    for is_flushed in [false, true] {
        let f = fixture();
        let put = |value: &str, accepted: Option<Version>| {
            if is_flushed {
                f.db.flush().unwrap();
            }
            let accepts = |found| found == accepted;
            let done = f.c.put_if("k", value, after(10), accepts).unwrap();
            (done.before, done.written.map(|written| written.version()))
        };
        let (before, first) = put("1", None);
        assert_eq!((before, first), (None, Some(version(&f.c, "k"))));
        assert_eq!(put("2", None), (first, None));
        f.clock.advance(ms(9));
        let (before, second) = put("3", first);
        assert_eq!((before, second), (first, Some(version(&f.c, "k"))));
        assert_eq!(put("4", first), (second, None));
        assert_eq!(f.c.get("k").unwrap().unwrap(), "3");
        f.clock.advance(ms(10)); // it has ended
        assert_eq!(put("5", second), (None, None));
        let (before, third) = put("6", None);
        assert_eq!((before, third), (None, Some(version(&f.c, "k"))));
        f.c.delete("k").unwrap();
        assert_eq!(put("7", third), (None, None));
        let kept = f.c.put_if("k", "8", Ttl::Keep, |_| true).unwrap();
        assert_eq!((kept.before, kept.written.is_some()), (None, true));
        refused(f.c.put_if("k", "9", after(0), |_| true), "ttl");
        assert_eq!(f.c.get("k").unwrap().unwrap(), "8");
    }
}

/// The same states, and the ways of an upsert: the version is in the memtable of the put, in a sealed one, in a table, covered
/// by a range delete; by a clock that has gone back it is read first, and so it is where writes are synced or keep a life.
#[test]
fn upsert_tells_the_version_that_was_live() {
    for durability in [Durability::Buffered, Durability::Sync] {
        for is_flushed in [false, true] {
            let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
            let (db, c) = open(on(&sim, &clock).durability(durability));
            let upsert = |value: &str, ttl: Ttl| {
                if is_flushed {
                    db.flush().unwrap();
                }
                let done = c.upsert("k", value, ttl).unwrap();
                assert_eq!(c.get("k").unwrap().unwrap(), value);
                assert_eq!(done.written.version(), version(&c, "k"));
                (done.before, done.written.version())
            };
            let (before, first) = upsert("1", after(10));
            assert_eq!(before, None);
            clock.advance(ms(9));
            let (before, second) = upsert("2", after(10));
            assert_eq!(before, Some(first));
            clock.advance(ms(10)); // it has ended
            let (before, third) = upsert("3", Ttl::Never);
            assert_eq!(before, None);
            assert!(third > second);
            assert_eq!(upsert("4", Ttl::Keep).0, Some(third));
            c.delete("k").unwrap();
            assert_eq!(upsert("5", Ttl::Never).0, None);
            c.delete_range("a".."z").unwrap();
            assert_eq!(upsert("6", Ttl::Never).0, None);
            // A moment that has passed ends it at once.
            let last = version(&c, "k");
            let past = db.now() - ms(1);
            assert_eq!(
                c.upsert("k", "7", Ttl::Until(past)).unwrap().before,
                Some(last)
            );
            assert!(c.get("k").unwrap().is_none());
            assert_eq!(upsert("8", after(100)).0, None);
            refused(c.upsert("k", "9", after(0)), "ttl");
            let last = version(&c, "k");
            // Time that is taken back has ended nothing.
            clock.jump(NOW + 400 * 86_400_000);
            assert!(c.get("k").unwrap().is_none());
            clock.jump(NOW + 19);
            assert_eq!(upsert("9", after(100)).0, Some(last));
        }
    }
}

/// A version in a table that cannot be read: the error says so, and the item is stored.
#[test]
fn an_upsert_over_what_cannot_be_read_is_done() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let unread = on(&sim, &clock).reads(Reads::Pread).cache_bytes(0);
    let (db, c) = open(unread);
    c.put("k", "1").unwrap();
    db.flush().unwrap();
    fail_from_now(&sim, Fault::Io, |call| call.operation == "read");
    assert!(c.upsert("k", "2", Ttl::Inherit).is_err());
    assert_eq!(c.get("k").unwrap().unwrap(), "2");
    let again = c.upsert("k", "3", Ttl::Inherit).unwrap();
    assert!(again.before.unwrap() < again.written.version());
}

/// Upserts of four threads to three keys, which move to tables meanwhile: each tells the one before it, and none is told twice.
#[test]
fn upserts_of_one_key_are_a_chain() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
        let (db, c) = open(on(&sim, &clock).durability(durability));
        let told = Mutex::new(vec![BTreeMap::new(); 3]);
        let left = AtomicU64::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..600 {
                        let done = c.upsert([(n % 3) as u8], "v", Ttl::Never).unwrap();
                        let (version, before) = (done.written.version(), done.before);
                        told.lock().unwrap()[n % 3].insert(version, before);
                    }
                    left.fetch_sub(1, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                while left.load(Ordering::Relaxed) > 0 {
                    db.flush().unwrap();
                    db.compact().unwrap();
                }
            });
        });
        for of_key in told.into_inner().unwrap() {
            assert_eq!(of_key.len(), 800);
            let mut last = None;
            for (version, before) in of_key {
                assert_eq!(before, last, "told by {version}");
                last = Some(version);
            }
        }
    }
}

/// Each of eight threads counts by the version that it has seen: none is lost.
#[test]
fn of_several_puts_of_one_version_one_is_done() {
    let f = fixture();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let item = f.c.item("n").unwrap();
                    let n: u64 = item.as_ref().map_or(0, |item| {
                        String::from_utf8_lossy(item.value()).parse().unwrap()
                    });
                    let seen = item.map(|item| item.version());
                    let (next, accepts) = ((n + 1).to_string(), |found| found == seen);
                    let put = f.c.put_if("n", next, Ttl::Inherit, accepts).unwrap();
                    assert_eq!(put.before == seen, put.written.is_some());
                    done.fetch_add(put.written.is_some().into(), Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner().to_string();
    assert_eq!(f.c.get("n").unwrap().unwrap(), *done);
}
