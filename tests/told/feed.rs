//! Goal: each end of an item is given exactly once, in the order of ends, whatever happens to settings, files and processes;
//! and a reader who was away for too long is told.
//!
//! Method: a database on a simulated disk with a manual clock, background work step by step; what a person thinks of. Random
//! histories, with readers that begin anew in the middle of them, stand in tests/contract/model.rs.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, repair_with};
use ebbtide::{
    Batch, ContainerOptions, DefaultTtl, Error, ExpirationCause, Expirations, ExpiryCursor, Reads,
    Ttl,
};
use testkit::random::Random;
use testkit::stage::{NOW, PATH, Stage, at, ms, since, small};
use testkit::watched::Watched;

mod beside_jobs;
mod in_steps;
mod one_millisecond;

const DAY: Duration = Duration::from_secs(86_400);

fn stage(keep: Duration) -> Stage {
    let stage = Stage::new(|options| small(options).reclaim_within(ms(1)));
    stage.with(ContainerOptions::new().keep_expired(keep))
}

/// Keys and ends.
fn all(expirations: &mut Expirations) -> Vec<(String, u64)> {
    let all = expirations.map(Result::unwrap);
    all.map(|one| {
        let key = String::from_utf8(one.key().to_vec()).unwrap();
        (key, since(one.expired_at()))
    })
    .collect()
}

fn pairs(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    let all = all.iter();
    all.map(|(key, end)| ((*key).to_owned(), *end)).collect()
}

#[test]
fn says_what_ended_when_and_why() {
    let Stage { clock, c, .. } = stage(Duration::ZERO);
    let mut ended = c.expirations(ExpiryCursor::now());
    c.set_default_ttl(DefaultTtl::After(ms(100))).unwrap();
    c.put("by default", "1").unwrap();
    c.put_with_ttl("by its own", "22", ms(50)).unwrap();
    c.put_with_ttl("never", "", Ttl::Never).unwrap();
    let version = c.item("by its own").unwrap().unwrap().version();
    clock.advance(ms(50));
    assert!(c.get("by its own").unwrap().is_none());
    assert!(ended.next().is_none(), "its millisecond is not over");
    clock.advance(ms(1));
    let own = ended.next().unwrap().unwrap();
    assert_eq!(
        (own.key(), &own.value()[..]),
        (&b"by its own"[..], &b"22"[..])
    );
    assert_eq!((own.written_at(), own.expired_at()), (at(0), at(50)));
    assert_eq!(
        (own.cause(), own.version()),
        (ExpirationCause::Ttl, version)
    );
    assert!(ended.next().is_none());
    clock.advance(ms(100));
    let default = ended.next().unwrap().unwrap();
    assert_eq!(default.key(), b"by default");
    assert_eq!(
        (default.cause(), default.expired_at()),
        (ExpirationCause::Default, at(100))
    );
    assert!(ended.next().is_none());
}

#[test]
fn what_is_replaced_deleted_or_written_anew_is_left_out() {
    let Stage { clock, c, .. } = stage(Duration::ZERO);
    let mut ended = c.expirations(ExpiryCursor::now());
    for key in ["a", "b", "c1", "c2", "d", "e"] {
        c.put_with_ttl(key, "", ms(10)).unwrap();
    }
    c.put_with_ttl("a", "later", ms(1_000)).unwrap();
    c.delete("b").unwrap();
    c.delete_range("c".."d").unwrap();
    clock.advance(ms(20));
    c.put_with_ttl("d", "anew", ms(5)).unwrap();
    assert_eq!(all(&mut ended), pairs(&[("e", 10)]));
    clock.advance(ms(6));
    assert_eq!(all(&mut ended), pairs(&[("d", 25)]));
    c.clear().unwrap();
    clock.advance(ms(1_000));
    assert_eq!(all(&mut ended), []);
}

// A cursor goes through a text format, a kill and a purge of everything; and what ended under settings of before is given as
// it was, after others have taken their place.
#[test]
fn a_cursor_is_good_after_a_kill() {
    let w = stage(DAY);
    w.c.set_default_ttl(DefaultTtl::After(ms(100))).unwrap();
    for key in ["a", "b", "c", "d"] {
        w.c.put(key, key).unwrap();
    }
    w.c.put_with_ttl("e", "e", ms(200)).unwrap();
    w.pass(300);
    w.c.set_default_ttl(DefaultTtl::Off).unwrap();
    let mut ended = w.c.expirations(ExpiryCursor::start());
    for key in [b"a", b"b"] {
        assert_eq!(ended.next().unwrap().unwrap().key(), key);
    }
    let text = serde_json::to_string(&ended.cursor()).unwrap();
    // A format without names has it, too.
    let bytes = postcard::to_stdvec(&ended.cursor()).unwrap();
    let read: ExpiryCursor = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, ended.cursor());
    drop(ended);
    w.reclaim();
    let w = w.reopen(false);
    w.pass(500);
    w.reclaim();
    let cursor: ExpiryCursor = serde_json::from_str(&text).unwrap();
    let mut ended = w.c.expirations(cursor);
    assert_eq!(
        all(&mut ended),
        pairs(&[("c", 100), ("d", 100), ("e", 200)])
    );
    assert!(w.c.iter().next().is_none(), "nobody else sees them");
}

#[test]
fn jobs_keep_what_has_ended_for_a_while_and_then_say_that_it_is_gone() {
    let w = stage(ms(5_000));
    assert_eq!(w.c.keep_expired(), ms(5_000));
    let value = vec![7; 1_000];
    for n in 0..300 {
        w.c.put_with_ttl(format!("k{n:03}"), &value, ms(100))
            .unwrap();
    }
    w.db.flush().unwrap();
    let cursor = w.c.expirations(ExpiryCursor::now()).cursor();
    w.pass(5_000);
    w.reclaim();
    assert!(w.c.stats().disk_bytes > 200_000);
    assert_eq!(w.c.stats().overdue, Duration::ZERO);
    let w = w.reopen(true);
    assert_eq!(all(&mut w.c.expirations(cursor.clone())).len(), 300);
    w.pass(200);
    w.reclaim();
    assert_eq!(w.c.stats().disk_bytes, 0);
    let w = w.reopen(false);
    let gone = w.c.expirations(cursor.clone()).next().unwrap().unwrap_err();
    assert!(gone.is_expirations_gone(), "{gone}");
    let Error::ExpirationsGone { known_from, .. } = gone else {
        panic!("{gone}")
    };
    assert_eq!(known_from, at(101));
    let mut ended = w.c.expirations(ExpiryCursor::at(known_from));
    assert!(ended.next().is_none());
    w.c.set_keep_expired(DAY).unwrap();
    w.c.put_with_ttl("k", "", ms(10)).unwrap();
    w.pass(50_000_000);
    w.reclaim();
    let w = w.reopen(false);
    assert_eq!(w.c.keep_expired(), DAY);
    let mut ended = w.c.expirations(ExpiryCursor::start());
    assert_eq!(all(&mut ended), pairs(&[("k", 5_210)]));
}

// It needs no keep_expired; but for at most a minute, after which it is told.
#[test]
fn an_open_reader_holds_what_it_has_not_seen() {
    let w = stage(Duration::ZERO);
    let mut ended = w.c.expirations(ExpiryCursor::now());
    w.c.put_with_ttl("k", "v", ms(10)).unwrap();
    w.pass(50_000);
    w.reclaim();
    assert_eq!(all(&mut ended), pairs(&[("k", 10)]));
    w.c.put_with_ttl("l", "v", ms(10)).unwrap();
    w.reclaim();
    w.pass(70_000);
    w.reclaim();
    assert_eq!(w.c.stats().disk_bytes, 0);
    assert!(ended.next().unwrap().unwrap_err().is_expirations_gone());
    drop(ended);
    w.c.put_with_ttl("m", "v", ms(10)).unwrap();
    w.pass(20);
    w.reclaim();
    assert_eq!(w.c.stats().disk_bytes, 0, "nobody reads any more");
}

// The clock was set back before a reopen: time starts at the cursor, so that nothing new ends before it.
#[test]
fn a_cursor_is_a_mark() {
    let w = stage(DAY);
    w.c.put_with_ttl("a", "", ms(1_000)).unwrap();
    w.pass(2_000);
    let mut ended = w.c.expirations(ExpiryCursor::start());
    assert_eq!(all(&mut ended), pairs(&[("a", 1_000)]));
    let cursor = ended.cursor();
    drop(ended);
    w.clock.jump(NOW + 500);
    let w = w.reopen(false);
    let mut ended = w.c.expirations(cursor.clone());
    assert_eq!(w.db.now(), at(2_000));
    w.c.put_with_ttl("b", "", ms(1)).unwrap();
    w.clock.jump(NOW + 3_000);
    assert_eq!(all(&mut ended), pairs(&[("b", 2_001)]));
    drop(ended);
    w.clock.jump(NOW - 2 * 3_600_000);
    // The last write is a mark of its own.
    let other = w.options().open("/other").unwrap();
    let c = other.container("c").unwrap();
    let behind = c.expirations(cursor).next().unwrap().unwrap_err();
    assert!(matches!(behind, Error::ClockBehind { .. }), "{behind}");
}

#[test]
fn a_wrong_clock_ends_nothing() {
    let w = stage(Duration::ZERO);
    let mut ended = w.c.expirations(ExpiryCursor::now());
    w.c.put_with_ttl("k", "", Duration::from_secs(100_000))
        .unwrap();
    w.clock.jump(NOW + 200_000_000);
    assert!(w.c.get("k").unwrap().is_none());
    assert!(ended.next().is_none(), "it may be corrected");
    w.clock.jump(NOW + 1_000);
    assert!(w.c.touch("k").unwrap());
    w.clock.jump(NOW + 200_000_000);
    w.db.confirm_clock();
    w.pass(1);
    assert_eq!(all(&mut ended), pairs(&[("k", 100_001_000)]));
}

// Of the 64 latest changes it is known what each has ended.
#[test]
fn many_changes_are_too_many_for_who_was_away() {
    let w = stage(DAY);
    let away = w.c.expirations(ExpiryCursor::now()).cursor();
    let mut ended = w.c.expirations(ExpiryCursor::now());
    for n in 0..70u64 {
        w.c.put(format!("k{n}"), "").unwrap();
        w.pass(10);
        w.c.set_default_ttl(DefaultTtl::After(ms(5 + n % 2)))
            .unwrap();
        w.pass(10);
        assert_eq!(all(&mut ended).len(), 1, "{n}");
    }
    assert!(
        w.c.expirations(away)
            .next()
            .unwrap()
            .unwrap_err()
            .is_expirations_gone()
    );
    let w = w.reopen(false);
    let known = w.c.expirations(ExpiryCursor::start()).count();
    assert!((63..70).contains(&known), "{known}");
}

#[test]
fn of_a_dropped_container_nothing_is_kept() {
    let Stage { db, c, .. } = stage(Duration::ZERO);
    let mut ended = c.expirations(ExpiryCursor::now());
    db.drop_container("c").unwrap();
    let dropped = |error| matches!(error, Error::ContainerDropped { .. });
    assert!(dropped(c.set_keep_expired(ms(1)).unwrap_err()));
    assert!(dropped(ended.next().unwrap().unwrap_err()));
    assert!(dropped(
        c.expirations(ExpiryCursor::start())
            .next()
            .unwrap()
            .unwrap_err()
    ));
}

/// An expiration that was not given before the end of the database is given after it.
#[test]
fn a_close_loses_no_expiration() {
    let stage = stage(DAY);
    let Stage {
        sim, clock, db, c, ..
    } = &stage;
    for key in ["a", "b", "c"] {
        c.put_with_ttl(key, "v".repeat(600), ms(10)).unwrap();
    }
    db.flush().unwrap();
    let mut ended = c.expirations(ExpiryCursor::start());
    assert!(ended.next().is_none());
    clock.advance(ms(20));
    db.close().unwrap();
    assert!(ended.next().unwrap().unwrap_err().is_closed());
    let cursor = ended.cursor();
    drop(ended);
    let (_db, c) = stage.open_on(sim);
    assert_eq!(all(&mut c.expirations(cursor)).len(), 3);
}

/// An end that was given has happened, whatever clock the database is opened with next.
#[test]
fn what_was_given_stays_given() {
    let stage = stage(DAY);
    stage.c.put_with_ttl("a", "", ms(1_000)).unwrap();
    stage.pass(2_000);
    let mut ended = stage.c.expirations(ExpiryCursor::start());
    assert_eq!(all(&mut ended), pairs(&[("a", 1_000)]));
    drop(ended);
    stage.db.close().unwrap();
    stage.clock.jump(NOW + 500);
    let (db, c) = stage.open_on(&stage.sim);
    assert_eq!(db.now(), at(2_000));
    assert!(!c.contains("a").unwrap() && !c.touch("a").unwrap());
}

/// A reader that takes no notice of an error comes to an end.
#[test]
fn an_error_is_followed_by_none() {
    let w = stage(ms(0));
    w.c.put_with_ttl("a", "", ms(1)).unwrap();
    w.pass(2_000);
    w.db.compact().unwrap();
    let mut ended = w.c.expirations(ExpiryCursor::at(at(0)));
    for _ in 0..2 {
        let gone = ended.next().unwrap().unwrap_err();
        assert!(matches!(gone, Error::ExpirationsGone { .. }), "{gone}");
        assert!(ended.next().is_none());
    }
}

/// The device fails once while an item that has ended is read: it is given by the next call.
#[test]
fn a_failed_read_loses_no_expiration() {
    let stage = Stage::new(|options| small(options).reads(Reads::Pread).cache_bytes(0));
    let Stage {
        sim, clock, db, c, ..
    } = stage.with(ContainerOptions::new().keep_expired(DAY));
    for key in ["a", "b", "c"] {
        c.put_with_ttl(key, "v".repeat(600), ms(10)).unwrap();
    }
    db.flush().unwrap();
    let mut ended = c.expirations(ExpiryCursor::start());
    assert!(ended.next().is_none());
    clock.advance(ms(20));
    let plan = FaultPlan {
        at: sim.operations(),
        kind: Fault::Io,
        lasting: false,
    };
    sim.fail_where(plan, |call| call.operation == "read");
    let failed = ended.next().unwrap().unwrap_err();
    assert!(matches!(failed, Error::Io { .. }), "{failed}");
    sim.heal();
    assert!(ended.next().is_none());
    assert_eq!(all(&mut ended), pairs(&[("a", 10), ("b", 10), ("c", 10)]));
}

#[test]
fn a_command_in_the_millisecond_of_the_opening_is_told() {
    for compacts in [false, true] {
        let Stage { clock, db, c, .. } = stage(Duration::ZERO);
        c.put_with_ttl("soon", "", ms(10)).unwrap();
        c.put_with_ttl("later", "", ms(1_000)).unwrap();
        db.flush().unwrap();
        clock.advance(ms(500));
        if compacts {
            db.compact().unwrap();
        }
        let mut ended = c.expirations(ExpiryCursor::now());
        c.expire_all().unwrap();
        clock.advance(ms(2_000));
        assert_eq!(all(&mut ended), pairs(&[("later", 500)]), "{compacts}");
    }
}

/// Items that a repair has lost may have ended unseen, before the last write or after it: readers that were there
/// before are told.
#[test]
fn after_a_repair_ends_of_before_are_not_known() {
    let stage = stage(DAY);
    let Stage { clock, db, c, .. } = &stage;
    for (key, millis) in [("a", 1_000), ("b", 5_000), ("c", 90_000)] {
        c.put_with_ttl(key, "v", ms(millis)).unwrap();
        db.flush().unwrap();
    }
    // Nothing that lasts says that time has come so far.
    clock.advance(ms(3_000));
    let mut expirations = c.expirations(ExpiryCursor::start());
    assert_eq!(all(&mut expirations), pairs(&[("a", 1_000)]));
    let cursor = expirations.cursor();
    drop(expirations);
    let sim = stage.sim.kill();
    clock.advance(ms(3_000));
    // The footer of the second table, that of `b`.
    let tables = Path::new("/db/tables");
    let mut names = sim.list(tables).unwrap();
    names.sort();
    let path = tables.join(&names[1]);
    let mut bytes = sim.read(&path).unwrap();
    let last = bytes.pop().unwrap();
    let file = sim.open(&path).unwrap();
    file.write_at(bytes.len() as u64, &[last ^ 0xff]).unwrap();
    file.sync().unwrap();
    let report = repair_with(Path::new(PATH), &stage.options_on(&sim), true).unwrap();
    assert_eq!(report.losses.len(), 1);
    let (db, c) = stage.open_on(&sim);
    let gone = c.expirations(cursor).next().unwrap().unwrap_err();
    let Error::ExpirationsGone { known_from, .. } = &gone else {
        panic!("{gone}");
    };
    assert_eq!(*known_from, at(6_001));
    // Once this is known it stays, and what ends later is given.
    clock.advance(ms(1_000));
    drop((db, c));
    let (_db, c) = stage.open_on(&sim.kill());
    let mut expirations = c.expirations(ExpiryCursor::start());
    clock.advance(ms(90_000));
    assert_eq!(all(&mut expirations), pairs(&[("c", 90_000)]));
    assert!(
        c.expirations(ExpiryCursor::at(at(6_001)))
            .next()
            .is_none_or(|one| one.is_ok())
    );
}
