//! Goal: in a transaction everything can be done that a container can, what it has written shows in all that it reads, and an
//! error of the caller's own aborts it and comes out as it is. A closure of an update that writes its own key is told so.
//!
//! Method: each call beside what the container answers, over items in memory and in tables, by a clock that the test moves;
//! what others do meanwhile; power cuts.

use std::collections::BTreeSet;

use ebbtide::internals::Survivors;
use ebbtide::{
    Batch, Container, DefaultTtl, Error, ExpiryCursor, Item, Result, Transaction, Ttl, Update,
    Version,
};
use testkit::patience::elsewhere;
use testkit::stage::{after, at, ms, text};

use crate::transactions::{Fixture, fixture, options};

fn keys(c: &Container) -> Vec<String> {
    c.keys(..).map(|key| text(&key.unwrap())).collect()
}

#[derive(Debug, PartialEq)]
enum Own {
    Poor(u64),
    Failed(String),
    Conflict,
}

impl From<Error> for Own {
    fn from(error: Error) -> Own {
        match error.is_conflict() {
            true => Own::Conflict,
            false => Own::Failed(error.to_string()),
        }
    }
}

#[test]
fn an_own_error_aborts_and_comes_out_as_it_is() {
    let f = fixture();
    let mut tries = 0;
    let refused = f.db.try_transaction(|tx| -> Result<(), Own> {
        tries += 1;
        tx.put(&f.a, "k", "v")?;
        tx.expire_all(&f.b)?;
        Err(Own::Poor(7))
    });
    assert_eq!((refused.unwrap_err(), tries), (Own::Poor(7), 1));
    assert!(f.a.is_empty().unwrap());
    // An error of the database's, in its words.
    let wrong =
        f.db.try_transaction(|tx| -> Result<(), Own> { Ok(tx.put(&f.a, "", "v")?) });
    assert!(matches!(wrong, Err(Own::Failed(what)) if what.contains("key of 0 bytes")));
    // Version and time come with the answer.
    f.clock.advance(ms(5));
    let done = f.db.try_transaction(|tx| -> Result<&str, Own> {
        tx.put(&f.a, "k", "v")?;
        Ok("answer")
    });
    let (answer, written) = done.unwrap();
    let item = f.a.item("k").unwrap().unwrap();
    assert_eq!(answer, "answer");
    assert_eq!(item.version(), written.version());
    assert_eq!(item.written_at(), written.written_at());
    // Of one that writes nothing: the last write that it saw.
    let (_, seen) = f.db.try_transaction(|_| Ok::<_, Own>(())).unwrap();
    assert_eq!(seen.version(), item.version());
}

/// An own error that follows from a conflict is none before the last try.
#[test]
fn a_conflict_is_tried_again_whatever_the_closure_makes_of_it() {
    let f = fixture();
    f.a.put_with_ttl("n", "0", after(10)).unwrap();
    let mut tries = 0;
    let (found, _) =
        f.db.try_transaction(|tx| -> Result<bool, Own> {
            tries += 1;
            if tries == 1 {
                f.clock.advance(ms(10));
            }
            // It lived when the transaction began, and has ended: a conflict, which is made into an error of one's own.
            tx.contains(&f.a, "n").map_err(|_| Own::Poor(1))
        })
        .unwrap();
    assert_eq!((tries, found), (2, false));
    let mut tries = 0;
    let always = f.db.try_transaction(|tx| -> Result<(), Own> {
        tries += 1;
        let _ = tx.get(&f.a, "n")?;
        tx.put(&f.b, "k", "v")?;
        f.a.put("n", "other").map_err(Own::from)
    });
    assert_eq!((always.unwrap_err(), tries), (Own::Conflict, 32));
    assert!(f.b.is_empty().unwrap());
}

#[test]
fn a_rollback_forgets_what_was_written_and_nothing_else() {
    let f = fixture();
    f.a.put("kept", "1").unwrap();
    let tx = f.db.begin();
    assert_eq!(tx.take(&f.a, "kept").unwrap().unwrap().value(), "1");
    tx.put(&f.b, "new", "1").unwrap();
    tx.expire_all(&f.b).unwrap();
    tx.rollback();
    assert!(tx.contains(&f.a, "kept").unwrap());
    assert!(tx.is_empty(&f.b).unwrap());
    tx.put(&f.b, "after", "1").unwrap();
    tx.commit().unwrap();
    assert_eq!(
        (keys(&f.a), keys(&f.b)),
        (vec!["kept".into()], vec!["after".into()])
    );
    // Reads of before are still to hold.
    let tx = f.db.begin();
    assert!(tx.contains(&f.a, "kept").unwrap());
    tx.rollback();
    tx.put(&f.b, "k", "1").unwrap();
    f.a.delete("kept").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    // And a conflict stays one.
    f.a.put_with_ttl("short", "", after(1)).unwrap();
    let tx = f.db.begin();
    f.clock.advance(ms(1));
    assert!(tx.get(&f.a, "short").unwrap_err().is_conflict());
    tx.rollback();
    assert!(tx.put(&f.b, "k", "1").unwrap_err().is_conflict());
    let answer = f.db.transaction(|tx| {
        tx.put(&f.b, "never", "1")?;
        tx.rollback();
        Ok("answer")
    });
    assert_eq!(answer.unwrap(), "answer");
    assert!(!f.b.contains("never").unwrap());
}

/// In whatever way it is asked.
#[test]
fn all_reads_show_own_writes() {
    for in_tables in [false, true] {
        let f = fixture();
        ["b", "c", "d", "e"]
            .iter()
            .for_each(|key| f.a.put(key, "old").unwrap());
        if in_tables {
            f.db.flush().unwrap();
        }
        let tx = f.db.begin();
        let shows = |expected: &[&str]| {
            let found = tx.keys(&f.a, ..).map(|key| text(&key.unwrap()));
            assert_eq!(found.collect::<Vec<_>>(), expected);
            let back = tx.keys(&f.a, ..).rev().map(|key| text(&key.unwrap()));
            assert!(back.eq(expected.iter().rev().copied()));
            assert_eq!(tx.count(&f.a, ..).unwrap(), expected.len() as u64);
            let inner = expected.iter().filter(|key| ("b".."e").contains(*key));
            assert_eq!(tx.count_up_to(&f.a, .., 2), expected.len().min(2) as u64);
            assert_eq!(tx.count(&f.a, "b".."e").unwrap(), inner.count() as u64);
            let key = |item: Option<Item>| item.map(|item| text(item.key()));
            let (first, last) = (tx.first(&f.a).unwrap(), tx.last(&f.a).unwrap());
            assert_eq!(key(first).as_deref(), expected.first().copied());
            assert_eq!(key(last).as_deref(), expected.last().copied());
            assert_eq!(tx.is_empty(&f.a).unwrap(), expected.is_empty());
            let all = ["a", "b", "c", "d", "e", "f"];
            let many = tx.get_many(&f.a, all).unwrap();
            let there = all.iter().zip(many).filter(|(_, value)| value.is_some());
            assert!(there.map(|(key, _)| *key).eq(expected.iter().copied()));
            let drawn = (0..200).filter_map(|_| key(tx.random(&f.a).unwrap()));
            let drawn: BTreeSet<String> = drawn.collect();
            assert!(drawn.iter().eq(expected.iter()), "{drawn:?}");
        };
        shows(&["b", "c", "d", "e"]);
        tx.put(&f.a, "a", "own").unwrap();
        tx.delete(&f.a, "c").unwrap();
        assert!(tx.take(&f.a, "c").unwrap().is_none());
        assert_eq!(tx.take(&f.a, "e").unwrap().unwrap().value(), "old");
        shows(&["a", "b", "d"]);
        tx.delete_range(&f.a, ..="b").unwrap();
        assert!(tx.create(&f.a, "f", "own", Ttl::Inherit).unwrap());
        shows(&["d", "f"]);
        tx.expire_all(&f.a).unwrap();
        shows(&[]);
        assert!(!tx.touch(&f.a, "d").unwrap());
        tx.put(&f.a, "c", "own").unwrap();
        shows(&["c"]);
        assert_eq!(keys(&f.a), ["b", "c", "d", "e"], "nobody else sees it");
        tx.commit().unwrap();
        assert_eq!(keys(&f.a), ["c"]);
        assert_eq!(f.a.get("c").unwrap().unwrap(), "own");
    }
}

#[test]
fn updates_answer_as_those_of_a_container() {
    let f = fixture();
    f.a.put_with_ttl("k", "1", after(100)).unwrap();
    f.clock.advance(ms(40));
    let tx = f.db.begin();
    let longer = |item: Option<&Item>| {
        let before = item.map_or(String::new(), |item| text(item.value()));
        Update::Put(format!("{before}+").into_bytes(), Ttl::Keep)
    };
    let done = tx.fetch_update(&f.a, "k", longer).unwrap();
    assert_eq!(done.before.unwrap().value(), "1");
    let (written, seen) = (done.written.unwrap(), tx.item(&f.a, "k").unwrap().unwrap());
    assert_eq!(seen.version(), written.version());
    assert_eq!(seen.written_at(), at(0), "it is kept");
    assert_eq!(written.written_at(), tx.now());
    let update = |key: &str, to: Update| tx.update(&f.a, key, |_| to.clone());
    assert!(!update("k", Update::Keep).unwrap());
    assert!(!update("absent", Update::Delete).unwrap());
    assert!(!update("absent", Update::Expire(after(5))).unwrap());
    assert!(update("k", Update::Put(vec![], after(0))).is_err());
    assert!(update("", Update::Keep).is_err());
    assert!(tx.expire(&f.a, "k", Ttl::Keep).is_err());
    assert!(update("k", Update::Expire(Ttl::Never)).unwrap());
    tx.commit().unwrap();
    let item = f.a.item("k").unwrap().unwrap();
    assert_eq!(item.value(), "1+");
    assert_eq!(item.remaining(), None);
}

/// The reads of each call have to hold, also where it wrote nothing.
#[test]
fn what_is_read_so_has_to_hold() {
    type Call = fn(&Transaction, &Container);
    let calls: [(&str, Call); 10] = [
        ("update", |tx, c| {
            assert!(!tx.update(c, "k", |_| Update::Keep).unwrap());
        }),
        ("fetch_update", |tx, c| {
            drop(tx.fetch_update(c, "k", |_| Update::Delete).unwrap());
        }),
        ("take", |tx, c| drop(tx.take(c, "k").unwrap())),
        ("expire", |tx, c| {
            assert!(tx.expire(c, "k", after(9)).unwrap())
        }),
        ("get_many", |tx, c| {
            drop(tx.get_many(c, ["j", "k"]).unwrap())
        }),
        ("keys", |tx, c| assert!(tx.keys(c, "k"..).next().is_some())),
        ("count", |tx, c| assert_eq!(tx.count(c, ..).unwrap(), 1)),
        ("first", |tx, c| drop(tx.first(c).unwrap())),
        ("last", |tx, c| drop(tx.last(c).unwrap())),
        ("random", |tx, c| drop(tx.random(c).unwrap())),
    ];
    for (name, call) in calls {
        for in_tables in [false, true] {
            let f = fixture();
            f.a.put("k", "1").unwrap();
            let tx = f.db.begin();
            call(&tx, &f.a);
            tx.put(&f.b, "derived", "").unwrap();
            f.a.put("k", "2").unwrap();
            if in_tables {
                f.db.flush().unwrap();
            }
            let conflict = tx.commit().unwrap_err();
            assert!(conflict.is_conflict(), "{name}: {conflict}");
            assert!(f.b.is_empty().unwrap());
        }
    }
}

/// The closure of an update may use the transaction, but for the key that it decides on.
#[test]
fn a_closure_may_use_the_transaction() {
    let f = fixture();
    f.a.put("k", "1").unwrap();
    let tx = f.db.begin();
    let changed = tx.update(&f.a, "k", |item| {
        assert_eq!(tx.count(&f.a, ..).unwrap(), 1);
        tx.put(&f.a, "other", "1").unwrap();
        let inner = tx.update(&f.b, "k", |_| Update::Put(b"inner".to_vec(), Ttl::Inherit));
        assert!(inner.unwrap());
        let accepts = |found: Option<Version>| tx.contains(&f.b, "k").unwrap() && found.is_none();
        let put = tx.put_if(&f.b, "l", "1", Ttl::Inherit, accepts).unwrap();
        assert!(put.written.is_some());
        Update::Put([&item.unwrap().value()[..], b"!"].concat(), Ttl::Inherit)
    });
    assert!(changed.unwrap());
    tx.commit().unwrap();
    assert_eq!(f.a.get("k").unwrap().unwrap(), "1!");
    assert!(f.a.contains("other").unwrap() && f.b.contains("k").unwrap());
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T>) {
    let told = answer.unwrap_err().to_string();
    assert!(told.contains("closure") && told.contains("\"a\""), "{told}");
}

/// Otherwise it would find its key changed each time, and begin anew for ever.
#[test]
fn a_closure_that_writes_its_own_key_is_refused() {
    type Write = fn(&Fixture) -> Result<()>;
    let writes: [(&str, Write); 10] = [
        ("put", |f| f.a.put("k", "2")),
        ("delete", |f| f.a.delete("k")),
        ("touch", |f| f.a.touch("k").map(drop)),
        ("update", |f| f.a.update("k", |_| Update::Delete).map(drop)),
        ("delete_range", |f| f.a.delete_range("j".."l")),
        ("batch", |f| {
            let mut batch = Batch::new();
            f.db.write(batch.put(&f.a, "l", "2").delete(&f.a, "k"))
        }),
        ("transaction", |f| {
            f.db.transaction(|tx| tx.put(&f.a, "k", "2"))
        }),
        ("set_default_ttl", |f| f.a.set_default_ttl(DefaultTtl::Off)),
        ("expire_all", |f| f.a.expire_all()),
        ("bulk_load", |f| f.a.bulk_load([("k", "2")]).map(drop)),
    ];
    for (name, write) in writes {
        let f = fixture();
        f.a.put("k", "1").unwrap();
        let mut calls = 0;
        let closure = |_: Option<&Item>| {
            calls += 1;
            is_refused(write(&f));
            Update::Put(b"3".to_vec(), Ttl::Inherit)
        };
        is_refused(f.a.update("k", closure));
        assert_eq!(
            (calls, f.a.get("k").unwrap().unwrap().to_vec()),
            (1, b"1".to_vec()),
            "{name}"
        );
        assert!(!f.a.contains("l").unwrap());
        is_refused(f.a.put_if("k", "3", Ttl::Inherit, |_| {
            is_refused(write(&f));
            true
        }));
        assert_eq!(f.a.get("k").unwrap().unwrap(), "1");
        // In a transaction it is the same; and afterwards, all goes on.
        let tx = f.db.begin();
        is_refused(tx.update(&f.a, "k", |_| {
            is_refused(write(&f));
            Update::Delete
        }));
        tx.put(&f.a, "k", "4").unwrap();
        tx.commit().unwrap();
        write(&f).unwrap();
    }
    let f = fixture();
    let tx = f.db.begin();
    let within: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("put", &|| tx.put(&f.a, "k", "2")),
        ("delete", &|| tx.delete(&f.a, "k")),
        ("create", &|| {
            tx.create(&f.a, "k", "2", Ttl::Inherit).map(drop)
        }),
        ("update", &|| {
            let put = |_: Option<&Item>| Update::Put(vec![], Ttl::Inherit);
            tx.update(&f.a, "k", put).map(drop)
        }),
        ("delete_range", &|| tx.delete_range(&f.a, ..)),
        ("expire_all", &|| tx.expire_all(&f.a)),
    ];
    for (_, write) in within {
        is_refused(tx.update(&f.a, "k", |_| {
            is_refused(write());
            Update::Put(b"3".to_vec(), Ttl::Inherit)
        }));
    }
    tx.commit().unwrap();
    assert!(f.a.is_empty().unwrap());
}

/// Other keys, other containers, other threads: as before. A panic leaves nothing behind.
#[test]
fn a_closure_may_write_other_keys() {
    let f = fixture();
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        f.a.update("k", |_| panic!("of the closure"))
    }));
    assert!(panics.is_err());
    let mut calls = 0;
    let changed = f.a.update("k", |_| {
        calls += 1;
        f.a.put("other", "1").unwrap();
        f.a.delete_range("l"..).unwrap();
        f.b.put("k", "1").unwrap();
        f.b.expire_all().unwrap();
        assert!(f.a.iter().all(|item| item.is_ok()));
        if calls == 1 {
            elsewhere(|| f.a.put("k", "another's").unwrap());
        }
        Update::Put(b"own".to_vec(), Ttl::Inherit)
    });
    assert!(changed.unwrap());
    assert_eq!(
        (calls, f.a.get("k").unwrap().unwrap().to_vec()),
        (2, b"own".to_vec())
    );
    f.a.put("k", "after").unwrap();
}

/// Two threads that share a transaction: an update is one step of it.
#[test]
fn an_update_beside_another_threads_write_begins_anew() {
    let f = fixture();
    let tx = f.db.begin();
    let mut calls = 0;
    tx.update(&f.a, "k", |item| {
        calls += 1;
        if calls == 1 {
            elsewhere(|| tx.put(&f.a, "k", "1").unwrap());
        }
        let before = item.map_or(String::new(), |item| text(item.value()));
        Update::Put(format!("{before}+").into_bytes(), Ttl::Inherit)
    })
    .unwrap();
    tx.commit().unwrap();
    assert_eq!(
        (calls, f.a.get("k").unwrap().unwrap().to_vec()),
        (2, b"1+".to_vec())
    );
}

#[test]
fn expiring_all_is_a_write_like_others() {
    for in_tables in [false, true] {
        let f = fixture();
        f.a.put_with_ttl("old", "1", Ttl::Never).unwrap();
        f.a.put("deleted", "1").unwrap();
        let snapshot = f.db.snapshot();
        let mut ends = f.a.expirations(ExpiryCursor::now());
        let (tx, reader) = (f.db.begin(), f.db.begin());
        assert!(reader.contains(&f.a, "old").unwrap());
        tx.delete(&f.a, "deleted").unwrap();
        tx.put(&f.a, "before", "1").unwrap();
        tx.expire_all(&f.a).unwrap();
        tx.put_with_ttl(&f.a, "after", "1", after(100)).unwrap();
        tx.put(&f.b, "beside", "1").unwrap();
        // Others' writes before the commit are ended, too: it is blind.
        f.a.put("meanwhile", "1").unwrap();
        if in_tables {
            f.db.flush().unwrap();
        }
        let written = tx.commit().unwrap();
        assert_eq!(keys(&f.a), ["after"]);
        assert!(written.version() >= f.a.item("after").unwrap().unwrap().version());
        let shown = snapshot.container("a").unwrap();
        assert!(!shown.contains("old").unwrap(), "for snapshots, too");
        f.clock.advance(ms(1));
        let mut told = vec![];
        for end in ends.by_ref() {
            told.push(text(end.unwrap().key()));
        }
        told.sort();
        assert_eq!(
            told,
            ["before", "meanwhile", "old"],
            "what was deleted has not expired"
        );
        // One that has read the container is in conflict.
        reader.put(&f.b, "derived", "").unwrap();
        assert!(reader.commit().unwrap_err().is_conflict());
        // It is durable with all that it was written with.
        let left = f.sim.power_cut_with(Survivors::Nothing);
        let db = options(&left, &f.clock).open("/db").unwrap();
        assert_eq!(keys(&db.container("a").unwrap()), ["after"]);
        assert_eq!(keys(&db.container("b").unwrap()), ["beside"]);
    }
}

/// It reads, expires all of one container that it touched last, and commits over what it read of others.
#[test]
fn expiring_all_relies_on_what_was_read() {
    for conflicts in [false, true] {
        let f = fixture();
        f.a.put("k", "1").unwrap();
        f.b.put("k", "1").unwrap();
        let tx = f.db.begin();
        assert!(tx.contains(&f.a, "k").unwrap() && tx.contains(&f.b, "k").unwrap());
        tx.put(&f.b, "l", "1").unwrap();
        tx.expire_all(&f.a).unwrap();
        if conflicts {
            f.b.put("k", "2").unwrap();
        }
        match tx.commit() {
            Ok(_) => assert!(!conflicts && f.a.is_empty().unwrap() && f.b.contains("l").unwrap()),
            Err(error) => {
                assert!(conflicts && error.is_conflict());
                assert!(f.a.contains("k").unwrap() && !f.b.contains("l").unwrap());
            }
        }
        // The other container's items are as they were.
        assert!(f.b.contains("k").unwrap());
    }
}
