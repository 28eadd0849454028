//! Goal: transactions are serializable: what one reads is as of one moment, and it takes effect at one moment at which all
//! of that still held; or nothing of it is written.
//!
//! Method: the anomalies by name, each as the two transactions that would show it, by a clock that the test moves, with
//! what came in between in memory and in tables; then what a transaction sees of itself, and where it ends. The answers of
//! all calls are for random histories: crates/testkit/src/observed/transactions.rs.

use std::ops::Bound;
use std::time::Duration;

use ebbtide::internals::{Sim, Survivors};
use ebbtide::{
    Batch, Container, Database, DefaultTtl, Durability, Error, Item, ManualClock, Options, Result,
    Transaction, Ttl, Update,
};
use testkit::stage::{NOW, after, at, default, in_steps, keys, ms, pairs, seconds, text};

pub(crate) struct Fixture {
    pub(crate) sim: Sim,
    pub(crate) clock: ManualClock,
    pub(crate) db: Database,
    pub(crate) a: Container,
    pub(crate) b: Container,
}

pub(crate) fn options(sim: &Sim, clock: &ManualClock) -> Options {
    in_steps(sim, clock).sync_interval(seconds(86_400))
}

pub(crate) fn fixture() -> Fixture {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock).open("/db").unwrap();
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    Fixture {
        sim,
        clock,
        db,
        a,
        b,
    }
}

impl Fixture {
    fn advance(&self, millis: u64) {
        self.clock.advance(ms(millis));
    }

    /// Brings writes that came in between into memory, or into tables; with all that has expired dropped.
    fn settle(&self, place: &str) {
        if place != "memory" {
            self.db.flush().unwrap();
        }
        if place == "compacted" {
            self.db.compact().unwrap();
        }
    }
}

const PLACES: [&str; 3] = ["memory", "tables", "compacted"];

/// The conflict that names this.
#[track_caller]
fn is_conflict<T>(answer: Result<T>, container: &str, key: &str) {
    match answer.map(drop).unwrap_err() {
        Error::Conflict {
            container: of,
            key: its,
        } => {
            assert_eq!((of.as_str(), text(&its).as_str()), (container, key));
        }
        error => panic!("{error}"),
    }
}

fn number(value: Option<ebbtide::Value>) -> u64 {
    value.map_or(0, |value| text(&value).parse().unwrap())
}

#[test]
fn no_update_is_lost() {
    for place in PLACES {
        let f = fixture();
        f.a.put("n", "1").unwrap();
        let (one, other) = (f.db.begin(), f.db.begin());
        for tx in [&one, &other] {
            let n = number(tx.get(&f.a, "n").unwrap());
            tx.put(&f.a, "n", (n + 1).to_string()).unwrap();
        }
        one.commit().unwrap();
        f.settle(place);
        is_conflict(other.commit(), "a", "n");
        assert_eq!(number(f.a.get("n").unwrap()), 2, "{place:?}");
    }
}

/// Each of two may go off call as long as the other is on it.
#[test]
fn no_write_skew() {
    for place in PLACES {
        let f = fixture();
        f.a.put("ada", "on").unwrap();
        f.b.put("bob", "on").unwrap();
        let (one, other) = (f.db.begin(), f.db.begin());
        for tx in [&one, &other] {
            assert!(tx.contains(&f.a, "ada").unwrap() && tx.contains(&f.b, "bob").unwrap());
        }
        one.delete(&f.a, "ada").unwrap();
        other.delete(&f.b, "bob").unwrap();
        one.commit().unwrap();
        f.settle(place);
        is_conflict(other.commit(), "a", "ada");
        assert!(f.b.contains("bob").unwrap(), "{place:?}");
    }
}

#[test]
fn no_read_skew() {
    for place in PLACES {
        let f = fixture();
        f.a.put("x", "1").unwrap();
        f.b.put("y", "1").unwrap();
        let tx = f.db.begin();
        assert_eq!(tx.get(&f.a, "x").unwrap().unwrap(), "1");
        let mut both = Batch::new();
        both.put(&f.a, "x", "2").put(&f.b, "y", "2");
        f.db.write(&both).unwrap();
        f.settle(place);
        assert_eq!(tx.get(&f.b, "y").unwrap().unwrap(), "1");
        assert_eq!(
            pairs(tx.iter(&f.b).rev()),
            [("y".to_owned(), "1".to_owned())]
        );
        // It only reads: it is of the moment before.
        tx.commit().unwrap();
    }
}

/// Two items end together; one is read before that, the other after it.
#[test]
fn no_expiry_skew() {
    for place in PLACES {
        for by_range in [false, true] {
            let f = fixture();
            let mut both = Batch::new();
            both.put_with_ttl(&f.a, "x", "", after(100))
                .put_with_ttl(&f.b, "y", "", after(100));
            f.db.write(&both).unwrap();
            f.db.flush().unwrap();
            let tx = f.db.begin();
            f.advance(99);
            assert!(tx.contains(&f.a, "x").unwrap());
            f.advance(1);
            f.settle(place);
            let second = match by_range {
                false => tx.contains(&f.b, "y"),
                true => match tx.iter(&f.b).next() {
                    Some(item) => item.map(|_| true),
                    None => Ok(false),
                },
            };
            // Where its record is gone it may be found absent; then the commit tells.
            let answer = second.and_then(|found| {
                assert!(!found, "{place:?}");
                tx.commit()
            });
            assert!(answer.unwrap_err().is_conflict(), "{place:?} {by_range}");
        }
    }
}

/// Also of what is there no more, in a range that had none.
#[test]
fn no_phantom_comes_or_goes() {
    type Change = fn(&Fixture);
    let changes: [(Change, &str); 5] = [
        (|f| f.a.put("m5", "new").unwrap(), "m5"),
        (|f| f.a.put("m3", "changed").unwrap(), "m3"),
        (|f| f.a.delete("m3").unwrap(), "m3"),
        (|f| f.a.delete_range("m3".."m4").unwrap(), "m3"),
        (|f| assert!(f.a.touch("m7").unwrap()), "m7"),
    ];
    for (change, key) in changes {
        for place in PLACES {
            for backwards in [false, true] {
                let f = fixture();
                for n in 0..10 {
                    f.a.put(format!("k{n}"), "").unwrap();
                }
                f.a.put("m3", "").unwrap();
                f.a.put("m7", "").unwrap();
                f.settle(place);
                let tx = f.db.begin();
                let read = tx.range(&f.a, "m".."n");
                let count = match backwards {
                    false => read.count(),
                    true => read.rev().count(),
                };
                tx.put(&f.b, "count", count.to_string()).unwrap();
                // Outside of the range.
                f.a.put("k5", "other").unwrap();
                f.a.put("n", "other").unwrap();
                change(&f);
                f.settle(place);
                is_conflict(tx.commit(), "a", key);
                assert!(f.b.is_empty().unwrap(), "{place:?}");
            }
        }
    }
}

#[test]
fn blind_writes_do_not_conflict() {
    let f = fixture();
    let (one, other) = (f.db.begin(), f.db.begin());
    one.put(&f.a, "k", "1").unwrap();
    other.put(&f.a, "k", "2").unwrap();
    other.delete_range(&f.b, ..).unwrap();
    one.put(&f.b, "k", "1").unwrap();
    one.commit().unwrap();
    other.commit().unwrap();
    assert_eq!(f.a.get("k").unwrap().unwrap(), "2");
    assert!(f.b.is_empty().unwrap());
}

#[test]
fn what_was_not_reached_is_no_conflict() {
    for place in PLACES {
        let f = fixture();
        for key in ["a", "c", "e", "g", "i"] {
            f.a.put(key, "").unwrap();
        }
        let read = |change: &str| {
            let tx = f.db.begin();
            let mut iter = tx.iter(&f.a);
            let reached = [
                iter.next().unwrap().unwrap(),
                iter.next_back().unwrap().unwrap(),
            ];
            assert_eq!(reached.map(|item| text(item.key())), ["a", "i"]);
            drop(iter);
            tx.put(&f.b, "done", change).unwrap();
            f.a.put(change, "new").unwrap();
            f.settle(place);
            let answer = tx.commit();
            f.a.delete(change).unwrap();
            f.a.put("a", "").unwrap();
            f.a.put("i", "").unwrap();
            answer.map(drop)
        };
        for inside in ["b", "d", "e", "h"] {
            read(inside).unwrap();
        }
        for (outside, key) in [("A", "A"), ("a", "a"), ("i", "i"), ("j", "j")] {
            is_conflict(read(outside), "a", key);
        }
    }
}

/// An item that ended since the beginning is a conflict when it is read, whether its record is still there or not.
#[test]
fn what_has_ended_is_a_conflict_wherever_it_is() {
    type Read = fn(&Transaction, &Container) -> Result<()>;
    let reads: [Read; 5] = [
        |tx, b| tx.get(b, "k").map(drop),
        |tx, b| tx.contains(b, "k").map(drop),
        |tx, b| tx.item(b, "k").map(drop),
        |tx, b| tx.range(b, "j"..).next().transpose().map(drop),
        |tx, b| tx.range(b, ..="k").next_back().transpose().map(drop),
    ];
    for place in PLACES {
        for read in reads {
            let f = fixture();
            let mut batch = Batch::new();
            for c in [&f.a, &f.b] {
                batch.put_with_ttl(c, "k", "v", after(10));
            }
            f.db.write(&batch).unwrap();
            let (tx, other) = (f.db.begin(), f.db.begin());
            assert!(tx.contains(&f.a, "k").unwrap());
            f.advance(10);
            f.settle(place);
            let (read, again) = (read(&tx, &f.b), tx.get(&f.a, "k"));
            assert!(read.is_err_and(|error| error.is_conflict()), "{place:?}");
            assert!(again.is_err_and(|error| error.is_conflict()), "{place:?}");
            is_conflict(other.get(&f.b, "k"), "b", "k");
            assert!(other.commit().is_err(), "{place:?}");
            assert!(!f.db.begin().contains(&f.b, "k").unwrap());
        }
    }
}

/// Jobs that drop nothing that has ended are no conflict, whatever the time.
#[test]
fn what_was_never_there_is_no_conflict() {
    let f = fixture();
    f.a.put("k", "v").unwrap();
    f.a.put_with_ttl("later", "v", after(1_000)).unwrap();
    let tx = f.db.begin();
    f.advance(500);
    f.settle("compacted");
    assert!(tx.get(&f.a, "none").unwrap().is_none());
    assert_eq!(keys(tx.iter(&f.a)), ["k", "later"]);
    let began = tx.now();
    assert_eq!(tx.commit().unwrap().written_at(), began);
}

#[test]
fn what_ends_between_reading_and_stamp_is_a_conflict() {
    for by_range in [false, true] {
        let f = fixture();
        f.a.put_with_ttl("later", "", after(200)).unwrap();
        f.a.put_with_ttl("x", "", after(100)).unwrap();
        let read = || {
            let tx = f.db.begin();
            match by_range {
                false => assert!(tx.contains(&f.a, "x").unwrap()),
                true => assert_eq!(keys(tx.iter(&f.a)), ["later", "x"]),
            }
            tx.put(&f.b, "seen", "x").unwrap();
            tx
        };
        let (in_time, too_late, again) = (read(), read(), read());
        f.advance(99);
        in_time.commit().unwrap();
        assert!(f.b.contains("seen").unwrap());
        f.b.delete("seen").unwrap();
        f.advance(1);
        is_conflict(too_late.commit(), "a", "x");
        // Refreshed, too: it is another item.
        f.a.put("x", "").unwrap();
        assert!(again.commit().unwrap_err().is_conflict());
        assert!(f.b.is_empty().unwrap());
    }
}

/// An item that a transaction finds absent may end and be dropped from disk, or come back by a clock that was wrong.
#[test]
fn one_time_judges_all() {
    let f = fixture();
    f.a.put_with_ttl("x", "", after(100)).unwrap();
    let tx = f.db.begin();
    assert_eq!(tx.now(), at(0));
    f.advance(60);
    let item = tx.item(&f.a, "x").unwrap().unwrap();
    assert_eq!(item.remaining(), Some(ms(100)));
    f.advance(40);
    is_conflict(tx.item(&f.a, "x"), "a", "x");
    // From then on it answers nothing else.
    is_conflict(tx.get(&f.b, "k"), "a", "x");
    is_conflict(tx.put(&f.b, "k", ""), "a", "x");
    is_conflict(tx.iter(&f.b).next().unwrap(), "a", "x");
    is_conflict(tx.commit(), "a", "x");

    let tx = f.db.begin();
    assert!(tx.get(&f.a, "x").unwrap().is_none());
    f.advance(1);
    tx.put(&f.a, "x", "new").unwrap();
    tx.commit().unwrap();

    // A wrong clock that is put right.
    let item = after(60_000);
    f.a.put_with_ttl("y", "", item).unwrap();
    f.clock.jump(NOW + 40_000_000);
    let tx = f.db.begin();
    assert!(tx.get(&f.a, "y").unwrap().is_none());
    tx.put(&f.b, "y is gone", "").unwrap();
    f.clock.jump(NOW + 101);
    assert!(f.a.contains("y").unwrap());
    is_conflict(tx.commit(), "a", "y");
}

#[test]
fn a_changed_default_is_a_conflict() {
    for by_batch in [false, true] {
        for touched_before in [false, true] {
            let f = fixture();
            let change = |default| {
                let mut batch = Batch::new();
                match by_batch {
                    true => f.db.write(batch.set_default_ttl(&f.a, default)),
                    false => f.a.set_default_ttl(default),
                }
                .unwrap();
            };
            f.a.set_default_ttl(DefaultTtl::Off).unwrap();
            f.a.put_with_ttl("x", "", after(10)).unwrap();
            f.advance(10);
            let tx = f.db.begin();
            if touched_before {
                assert!(tx.contains(&f.a, "x").unwrap(), "ttl is off");
            }
            change(DefaultTtl::NoDefault);
            is_conflict(tx.get(&f.a, "x"), "a", "x");
            let tx = f.db.begin();
            assert!(tx.get(&f.a, "x").unwrap().is_none());
            tx.put(&f.b, "k", "").unwrap();
            change(DefaultTtl::Off);
            is_conflict(tx.commit(), "a", "x");
            // Of a container that was not read it is none.
            let tx = f.db.begin();
            tx.put(&f.a, "blind", "").unwrap();
            change(DefaultTtl::NoDefault);
            tx.commit().unwrap();
        }
    }
}

/// A change of settings that was begun and refused is none to those who rely on them.
#[test]
fn a_change_that_is_refused_is_no_conflict() {
    for by_batch in [false, true] {
        let f = fixture();
        f.a.put_with_ttl("x", "", Ttl::Never).unwrap();
        f.clock.jump(NOW + 86_400_000);
        let refuse = || {
            let (mut batch, default) = (Batch::new(), default(1_000));
            let answer = match by_batch {
                true => f.db.write(batch.set_default_ttl(&f.a, default)),
                false => f.a.set_default_ttl(default),
            };
            assert!(matches!(answer, Err(Error::ClockUnsettled { .. })));
        };
        let tx = f.db.begin();
        assert!(tx.contains(&f.a, "x").unwrap());
        refuse();
        assert_eq!(pairs(tx.iter(&f.a)), [("x".into(), "".into())]);
        tx.put(&f.a, "y", "").unwrap();
        refuse();
        tx.commit().unwrap();

        let mut shown = 0;
        let put = |_: Option<&Item>| {
            shown += 1;
            testkit::patience::elsewhere(refuse);
            Update::Put(b"new".to_vec(), Ttl::Never)
        };
        f.a.update("x", put).unwrap();
        assert_eq!(shown, 1, "nothing has changed meanwhile");
    }
}

#[test]
fn it_reads_its_own_writes() {
    let f = fixture();
    for key in ["b", "d", "f", "h"] {
        f.a.put(key, "old").unwrap();
    }
    f.db.flush().unwrap();
    f.a.put("j", "old").unwrap();
    let tx = f.db.begin();
    tx.put(&f.a, "a", "own").unwrap();
    tx.put(&f.a, "d", "own").unwrap();
    tx.delete(&f.a, "f").unwrap();
    tx.put(&f.a, "k", "own").unwrap();
    tx.delete(&f.a, "nothing").unwrap();
    let shown = "a own, b old, d own, h old, j old, k own";
    let show = |pairs: Vec<(String, String)>| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        pairs.join(", ")
    };
    assert_eq!(show(pairs(tx.iter(&f.a))), shown);
    let mut backwards = pairs(tx.iter(&f.a).rev());
    backwards.reverse();
    assert_eq!(show(backwards), shown);
    assert_eq!(keys(tx.range(&f.a, "d".."h").rev()), ["d"]);
    assert_eq!(
        keys(tx.range(&f.a, (Bound::Excluded("d"), Bound::Unbounded))),
        ["h", "j", "k"]
    );
    assert_eq!(keys(tx.prefix(&f.a, "k")), ["k"]);
    // From both ends, whichever meets the other.
    for front in 0..=7 {
        let mut iter = tx.iter(&f.a);
        let mut shown: Vec<_> = iter.by_ref().take(front).map(Result::unwrap).collect();
        let mut back: Vec<_> = iter.by_ref().rev().map(Result::unwrap).collect();
        assert!(iter.next().is_none() && iter.next_back().is_none());
        back.reverse();
        shown.append(&mut back);
        assert_eq!(
            show(pairs(shown.into_iter().map(Ok))),
            "a own, b old, d own, h old, j old, k own"
        );
    }
    tx.delete_range(&f.a, "b".."j").unwrap();
    assert!(tx.get(&f.a, "d").unwrap().is_none());
    assert!(!tx.contains(&f.a, "b").unwrap());
    tx.put(&f.a, "e", "after").unwrap();
    assert_eq!(keys(tx.iter(&f.a).rev()), ["k", "j", "e", "a"]);
    let item = tx.item(&f.a, "e").unwrap().unwrap();
    assert_eq!(item.written_at(), tx.now());
    assert!(item.version() > f.a.item("j").unwrap().unwrap().version());
    assert_eq!(
        keys(f.a.iter()),
        ["b", "d", "f", "h", "j"],
        "nobody else sees it"
    );
    let written = tx.commit().unwrap();
    assert_eq!(keys(f.a.iter()), ["a", "e", "j", "k"]);
    let versions: Vec<_> = ["a", "e", "k"]
        .map(|key| f.a.item(key).unwrap().unwrap().version())
        .into();
    assert!(versions.iter().all(|version| *version <= written.version()));
}

/// An iterator sees what is written while it goes on, where it has not been yet.
#[test]
fn it_writes_while_it_reads() {
    let f = fixture();
    for key in ["a", "b", "c", "d"] {
        f.a.put(key, "1").unwrap();
    }
    let tx = f.db.begin();
    let mut seen = vec![];
    for item in tx.iter(&f.a) {
        let item = item.unwrap();
        seen.push(text(item.key()));
        tx.put(&f.a, item.key(), "2").unwrap();
        match item.key() {
            b"a" => {
                tx.delete(&f.a, "b").unwrap();
                tx.put(&f.a, "a0", "new").unwrap();
            }
            b"c" => tx.delete_range(&f.a, "d"..).unwrap(),
            _ => {}
        }
    }
    assert_eq!(seen, ["a", "a0", "c"]);
    tx.commit().unwrap();
    assert_eq!(keys(f.a.iter()), ["a", "a0", "c"]);
    assert!(pairs(f.a.iter()).iter().all(|(_, value)| value == "2"));
}

#[test]
fn it_refuses_what_containers_refuse() {
    let f = fixture();
    let tx = f.db.begin();
    tx.put_with_ttl(&f.b, "nothing kept", "", Ttl::Keep)
        .unwrap();
    tx.put_with_ttl(&f.b, "past", "", Ttl::Until(at(0)))
        .unwrap();
    assert!(tx.get(&f.b, "past").unwrap().is_none());
    tx.commit().unwrap();
    let kept = f.b.item("nothing kept").unwrap().unwrap();
    assert_eq!(kept.expires_at(), None);
    assert!(!f.b.contains("past").unwrap());
    // Refused, and nothing of it is written.
    let tx = f.db.begin();
    assert!(tx.put(&f.a, "", "").is_err());
    assert!(tx.put_with_ttl(&f.a, "k", "", Duration::ZERO).is_err());
    assert!(tx.get(&f.a, vec![0; 65_536]).is_err());
    assert!(tx.put(&f.a, "k", vec![0; (64 << 20) + 1]).is_err());
    let other = options(&f.sim, &f.clock).open("/other").unwrap();
    let foreign = other.container("a").unwrap();
    assert!(tx.put(&foreign, "k", "").is_err());
    assert!(tx.get(&foreign, "k").is_err());
    assert!(tx.iter(&foreign).next().unwrap().is_err());
    tx.commit().unwrap();
    assert!(!f.a.contains("k").unwrap());
}

/// An own write until a moment, which comes before the commit.
#[test]
fn an_own_write_that_was_read_has_to_live_at_the_stamp() {
    let f = fixture();
    let until = at(10);
    let tx = f.db.begin();
    tx.put_with_ttl(&f.a, "k", "", Ttl::Until(until)).unwrap();
    assert!(tx.contains(&f.a, "k").unwrap());
    f.advance(10);
    is_conflict(tx.commit(), "a", "k");
}

#[test]
fn reading_alone_is_no_conflict() {
    for place in PLACES {
        let f = fixture();
        f.a.put("x", "1").unwrap();
        let tx = f.db.begin();
        assert_eq!(keys(tx.iter(&f.a)), ["x"]);
        f.a.put("x", "2").unwrap();
        f.a.put("y", "2").unwrap();
        f.settle(place);
        assert_eq!(pairs(tx.iter(&f.a)), [("x".to_owned(), "1".to_owned())]);
        assert!(tx.get(&f.a, "y").unwrap().is_none());
        let seen = tx.commit().unwrap();
        assert!(seen.version() < f.a.item("x").unwrap().unwrap().version());
    }
    // Also where time goes on; only not where records may have been dropped meanwhile.
    let f = fixture();
    f.a.put("x", "1").unwrap();
    let tx = f.db.begin();
    assert!(tx.contains(&f.a, "x").unwrap());
    f.a.put("x", "2").unwrap();
    f.advance(1_000);
    tx.commit().unwrap();
}

#[test]
fn it_ends_with_its_containers_and_its_database() {
    let f = fixture();
    f.a.put("k", "").unwrap();
    let tx = f.db.begin();
    assert!(tx.contains(&f.a, "k").unwrap());
    tx.put(&f.b, "k", "").unwrap();
    f.db.drop_container("a").unwrap();
    assert!(matches!(
        tx.get(&f.a, "k"),
        Err(Error::ContainerDropped { .. })
    ));
    assert!(matches!(
        tx.put(&f.a, "k", ""),
        Err(Error::ContainerDropped { .. })
    ));
    let again = f.db.container("a").unwrap();
    assert!(tx.get(&again, "k").unwrap().is_none(), "another one");
    assert!(matches!(tx.commit(), Err(Error::ContainerDropped { .. })));
    assert!(f.b.is_empty().unwrap());
    // One that is made meanwhile may be used.
    let tx = f.db.begin();
    let made = f.db.container("made").unwrap();
    assert!(tx.create(&made, "k", "", Ttl::Inherit).unwrap());
    tx.commit().unwrap();
    assert!(made.contains("k").unwrap());
    // Dropped: rolled back.
    let tx = f.db.begin();
    tx.put(&f.b, "k", "").unwrap();
    drop(tx);
    assert!(f.b.is_empty().unwrap());
    let (tx, reads) = (f.db.begin(), f.db.begin());
    tx.put(&f.b, "k", "").unwrap();
    f.db.close().unwrap();
    assert!(tx.get(&f.b, "k").unwrap_err().is_closed());
    assert!(tx.commit().unwrap_err().is_closed());
    assert!(reads.commit().unwrap_err().is_closed());
    assert!(f.db.begin().put(&f.b, "k", "").unwrap_err().is_closed());
}

#[test]
fn it_keeps_the_database_open() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    let tx = db.begin();
    tx.put(&c, "k", "v").unwrap();
    drop((db, c));
    assert!(Database::open(folder.path()).is_err());
    tx.commit().unwrap();
    let db = Database::open(folder.path()).unwrap();
    assert!(db.container("c").unwrap().contains("k").unwrap());
}

#[test]
fn its_durability_is_its_own() {
    for (durability, lasts) in [(Durability::Sync, true), (Durability::Buffered, false)] {
        let f = fixture();
        f.db.sync().unwrap();
        let tx = f.db.begin();
        tx.put(&f.a, "k", "v").unwrap();
        tx.put(&f.b, "k", "v").unwrap();
        tx.durability(durability);
        tx.commit().unwrap();
        let left = f.sim.power_cut_with(Survivors::Nothing);
        let db = options(&left, &f.clock).open("/db").unwrap();
        for name in ["a", "b"] {
            assert_eq!(db.container(name).unwrap().contains("k").unwrap(), lasts);
        }
    }
}

#[test]
fn it_is_run_again_after_a_conflict_and_not_for_ever() {
    let f = fixture();
    f.a.put("n", "0").unwrap();
    let mut tries = 0;
    let add = |tx: &Transaction| {
        let n = number(tx.get(&f.a, "n")?);
        tx.put(&f.a, "n", (n + 1).to_string())
    };
    f.db.transaction(|tx| {
        tries += 1;
        add(tx)?;
        match tries {
            1 | 2 => f.a.put("n", "10"),
            _ => Ok(()),
        }
    })
    .unwrap();
    assert_eq!((tries, number(f.a.get("n").unwrap())), (3, 11));
    // An item that expires while it runs, too.
    f.a.put_with_ttl("short", "", after(10)).unwrap();
    let mut found = vec![];
    f.db.transaction(|tx| {
        found.push(tx.contains(&f.a, "short")?);
        f.advance(10);
        tx.put(&f.b, "found", "")
    })
    .unwrap();
    assert_eq!(found, [true, false]);
    let mut tries = 0;
    let always = f.db.transaction(|tx| {
        tries += 1;
        add(tx)?;
        f.a.put("n", "20")
    });
    is_conflict(always, "a", "n");
    assert_eq!((tries, number(f.a.get("n").unwrap())), (32, 20));
    // Its own error is returned at once, a conflict of another write too.
    let mut tries = 0;
    let mut refused = Batch::new();
    refused.create(&f.a, "n", "", Ttl::Inherit);
    let failed: Result<()> = f.db.transaction(|tx| {
        tries += 1;
        tx.put(&f.a, "n", "30")?;
        f.db.write(&refused)
    });
    is_conflict(failed, "a", "n");
    assert_eq!((tries, number(f.a.get("n").unwrap())), (1, 20));
}
