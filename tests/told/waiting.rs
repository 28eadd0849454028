//! Goal: a reader of expirations knows when the next item ends, and one who waits is woken when there is something to tell,
//! and not before. Method: a clock of the test's; a waiter on a thread of its own, which nothing but what is tested can wake
//! within an hour.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use ebbtide::{
    Batch, Container, Database, DefaultTtl, ExpirationCause, Expirations, ExpiryCursor,
    ManualClock, Options, Ttl,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn db() -> (Database, Container, ManualClock) {
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().clock(clock.clone()).stepped();
    let db = options.open_temporary().unwrap();
    let c = db.container("c").unwrap();
    (db, c, clock)
}

fn keys(expirations: &mut Expirations) -> Vec<String> {
    let key = |ended: ebbtide::Expiration| String::from_utf8_lossy(ended.key()).into_owned();
    expirations.map(|ended| key(ended.unwrap())).collect()
}

/// Of many whose ends come first, all were written over: more than a reader gathers at first, and in several gatherings.
#[test]
fn the_next_end_is_known_behind_many_that_are_none_any_more() {
    let (db, c, clock) = db();
    let write = |from: u64, to: u64, moved: u64| {
        let mut batch = Batch::new();
        for n in from..to {
            batch.put_with_ttl(&c, format!("{n:06}"), "", ms(moved + n));
        }
        db.write(&batch).unwrap();
    };
    let moment = |millis| SystemTime::UNIX_EPOCH + ms(1_800_000_000_000 + millis);
    write(1, 50_001, 0);
    let mut ended = c.expirations(ExpiryCursor::now());
    assert_eq!(ended.next_due(), Some(moment(1)));
    for (from, to) in [(1, 1_500), (1_500, 3_000), (3_000, 49_900)] {
        write(from, to, 1_000_000);
        assert_eq!(ended.next_due(), Some(moment(to)));
        db.flush().unwrap();
        assert_eq!(ended.next_due(), Some(moment(to)));
        let mut anew = c.expirations(ExpiryCursor::now());
        assert_eq!(anew.next_due(), Some(moment(to)));
    }
    // A write that ends before all of these is known at once, and so is the end of it.
    c.put_with_ttl("soon", "", ms(7)).unwrap();
    assert_eq!(ended.next_due(), Some(moment(7)));
    clock.advance(ms(8));
    assert_eq!(keys(&mut ended), ["soon"]);
    assert_eq!(ended.next_due(), Some(moment(49_900)));
}

#[test]
fn the_next_end_is_known() {
    let (db, c, clock) = db();
    let mut ended = c.expirations(ExpiryCursor::now());
    let mut due = |expected: Option<u64>| {
        let end = |millis| SystemTime::UNIX_EPOCH + ms(1_800_000_000_000 + millis);
        assert_eq!(ended.next_due(), expected.map(end));
    };
    due(None);
    c.put("inherits", "").unwrap();
    c.put_with_ttl("never", "", Ttl::Never).unwrap();
    due(None);
    c.put_with_ttl("later", "", ms(900)).unwrap();
    due(Some(900));
    c.put_with_ttl("soon", "", ms(500)).unwrap();
    due(Some(500));
    db.flush().unwrap();
    due(Some(500));
    // Written over, deleted, touched: an end that is none any more does not count.
    c.put_with_ttl("soon", "", ms(700)).unwrap();
    due(Some(700));
    c.delete("soon").unwrap();
    due(Some(900));
    clock.advance(ms(100));
    c.touch("later").unwrap();
    due(Some(1_000));
    c.set_default_ttl(DefaultTtl::After(ms(300))).unwrap();
    due(Some(300));
    c.delete_range("i".."j").unwrap();
    due(Some(1_000));
    clock.advance(ms(2_000));
    due(Some(1_000)); // it has ended, and is to be given
    assert_eq!(keys(&mut ended), ["later"]);
    assert_eq!(ended.next_due(), None);
    // An error is due at once.
    db.drop_container("c").unwrap();
    assert_eq!(ended.next_due(), Some(db.now()));
    assert!(ended.next().unwrap().unwrap_err().is_closed());
}

#[test]
fn causes_may_be_chosen_after_a_look() {
    let (db, c, clock) = db();
    let mut ended = c
        .expirations(ExpiryCursor::now())
        .causes([ExpirationCause::Default]);
    c.put_with_ttl("own", "", ms(5)).unwrap();
    assert_eq!(ended.next_due(), None);
    let mut ended = ended.causes([ExpirationCause::Ttl]);
    assert_eq!(ended.next_due(), Some(db.now() + ms(5)));
    clock.advance(ms(6));
    assert_eq!(keys(&mut ended), ["own"]);
}

#[test]
fn causes_that_are_not_asked_for_are_passed_over() {
    use ExpirationCause::{Change, Command, Default, Ttl as Own};
    let (_db, c, clock) = db();
    let start = c.expirations(ExpiryCursor::now()).cursor();
    let second = |c: &Container, key: &str| c.put_with_ttl(key, "", ms(1_000)).unwrap();
    second(&c, "own");
    c.put("command", "").unwrap();
    c.expire_written_before(SystemTime::UNIX_EPOCH + ms(1_800_000_000_001))
        .unwrap();
    second(&c, "own");
    c.put("change", "").unwrap();
    clock.advance(ms(10));
    c.set_default_ttl(DefaultTtl::After(ms(10))).unwrap();
    clock.advance(ms(10));
    c.put("default", "").unwrap();
    clock.advance(ms(2_000));
    let by = |causes: &[ExpirationCause]| {
        let mut ended = c.expirations(start.clone()).causes(causes);
        let keys = keys(&mut ended);
        (keys, ended.cursor())
    };
    let (all, end) = by(&[Own, Default, Change, Command]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(by(&[Own]).0, ["own"]);
    assert_eq!(by(&[Command]).0, ["command"]);
    assert_eq!(by(&[Default, Change]).0, ["change", "default"]);
    assert_eq!(by(&[]), (vec![], end), "the position is behind them");
    // The next end, too, is one of those that are asked for.
    let mut own = c.expirations(start.clone()).causes([Own]);
    let due = own.next_due().unwrap();
    assert_eq!(own.next().unwrap().unwrap().expired_at(), due);
    assert_eq!(c.expirations(start.clone()).causes([]).next_due(), None);
}

#[test]
fn a_wait_ends_with_its_time_or_at_once() {
    let (_db, c, clock) = db();
    let mut ended = c.expirations(ExpiryCursor::now());
    assert!(!ended.wait(Duration::ZERO).unwrap());
    c.put_with_ttl("k", "", ms(10)).unwrap();
    assert!(!ended.wait(ms(3)).unwrap());
    clock.advance(ms(10));
    assert!(
        !ended.wait(Duration::ZERO).unwrap(),
        "its millisecond is not over"
    );
    clock.advance(ms(1));
    for _ in 0..2 {
        assert!(ended.wait(HOUR).unwrap(), "until it is given");
    }
    assert_eq!(keys(&mut ended), ["k"]);
    assert!(!ended.wait(Duration::ZERO).unwrap());
}

/// Waits on another thread, until `cause` has woken the reader; returns the answer.
fn woken(mut ended: Expirations, cause: impl FnOnce()) -> ebbtide::Result<bool> {
    let (told, answer) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || told.send(ended.wait(HOUR)).unwrap());
        // Mostly it rests by now; if not, it must not rest later.
        thread::sleep(ms(5));
        cause();
        answer
            .recv_timeout(Duration::from_secs(60))
            .expect("it is woken")
    })
}

/// The system's clock: nothing looks more often than once a second.
#[test]
fn who_waits_is_woken_by_all_that_brings_an_end_nearer() {
    let db = Options::temporary().unwrap();
    let c = db.container("c").unwrap();
    c.put_with_ttl("later", "", HOUR).unwrap();
    let new = || c.expirations(ExpiryCursor::now());
    assert!(woken(new(), || c.put_with_ttl("k", "", ms(20)).unwrap()).unwrap());
    let in_batch = || {
        let mut batch = Batch::new();
        batch.put(&c, "other", "").put_with_ttl(&c, "k", "", ms(20));
        db.write(batch).unwrap();
    };
    assert!(woken(new(), in_batch).unwrap());
    assert!(
        woken(new(), || c
            .set_default_ttl(DefaultTtl::After(ms(20)))
            .unwrap())
        .unwrap()
    );
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    c.put("stays", "").unwrap();
    assert!(woken(new(), || c.expire_all().unwrap()).unwrap());
    let load = || {
        let item = Ok(("k", "", Ttl::After(ms(50))));
        drop(c.bulk_load_with_ttl([item]).unwrap());
    };
    assert!(woken(new(), load).unwrap());
    let other = db.container("other").unwrap();
    let dropped = woken(other.expirations(ExpiryCursor::now()), || {
        assert!(db.drop_container("other").unwrap());
    });
    assert!(dropped.unwrap_err().is_closed());
    assert!(
        woken(new(), || db.close().unwrap())
            .unwrap_err()
            .is_closed()
    );
}

#[test]
fn a_clock_of_the_programs_is_looked_at() {
    let (_db, c, clock) = db();
    c.put_with_ttl("k", "", HOUR).unwrap();
    let ended = c.expirations(ExpiryCursor::now());
    assert!(woken(ended, || clock.advance(2 * HOUR)).unwrap());
}
