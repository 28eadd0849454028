//! Goal: `get_with` makes a value once, however many ask, and never stores one that is older than an invalidation.
//!
//! Method: closures that do what others do meanwhile; threads that meet in the closure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ebbtide::{Container, Database, DefaultTtl, Error, ManualClock, Options, Result, Ttl};
use testkit::stage::{ms, seconds};

const MINUTE: Duration = seconds(60);

fn world() -> (Database, Container, ManualClock) {
    let clock = ManualClock::new(1_800_000_000_000);
    let db = Options::new()
        .clock(clock.clone())
        .open_temporary()
        .unwrap();
    let cache = db.container("cache").unwrap();
    (db, cache, clock)
}

#[test]
fn a_value_is_made_where_there_is_none() {
    let (_db, cache, clock) = world();
    let made = AtomicU64::new(0);
    let ask = || {
        let value = cache.get_with("k", || {
            clock.advance(MINUTE);
            Ok((format!("{}", made.fetch_add(1, Ordering::Relaxed)), MINUTE))
        });
        value.unwrap()
    };
    assert_eq!(ask(), "0");
    clock.advance(MINUTE - ms(1));
    assert_eq!(ask(), "0", "its minute began when it was stored");
    clock.advance(ms(1));
    assert_eq!(ask(), "1");
    // One that ends at once is what the caller asked for, and no more.
    let gone = cache.get_with("gone", || Ok(("x", Ttl::Until(std::time::UNIX_EPOCH))));
    assert_eq!(gone.unwrap(), "x");
    assert!(!cache.contains("gone").unwrap());
    let refused = cache.get_with("", || -> Result<(&str, Ttl)> { unreachable!() });
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
}

#[test]
fn of_many_that_ask_at_once_one_makes_it() {
    const CALLERS: usize = 8;
    let (_db, cache, _clock) = world();
    for round in 0..50u32 {
        let (made, start) = (AtomicU64::new(0), Barrier::new(CALLERS));
        let heard: Vec<_> = thread::scope(|threads| {
            let ask = || {
                start.wait();
                cache.get_with(round.to_be_bytes(), || {
                    thread::yield_now();
                    let made = made.fetch_add(1, Ordering::Relaxed);
                    Ok((format!("{round} {made}"), MINUTE))
                })
            };
            let callers = [(); CALLERS].map(|()| threads.spawn(ask));
            callers.map(|caller| caller.join().unwrap().unwrap()).into()
        });
        assert_eq!(made.into_inner(), 1);
        assert!(heard.iter().all(|heard| *heard == format!("{round} 0")));
    }
}

#[test]
fn one_that_fails_leaves_it_to_the_next() {
    #[derive(Debug, PartialEq)]
    enum Own {
        Down,
        Failed,
    }
    impl From<Error> for Own {
        fn from(_: Error) -> Own {
            Own::Failed
        }
    }
    let (_db, cache, _clock) = world();
    let (inside, go_on) = (&Barrier::new(2), &Barrier::new(2));
    thread::scope(|threads| {
        let fails = threads.spawn(|| {
            cache.try_get_with("k", || -> Result<(&str, Ttl), Own> {
                inside.wait();
                go_on.wait();
                Err(Own::Down)
            })
        });
        inside.wait();
        let waits = threads.spawn(|| cache.get_with("k", || Ok(("made", MINUTE))));
        go_on.wait();
        assert_eq!(fails.join().unwrap(), Err(Own::Down));
        assert_eq!(waits.join().unwrap().unwrap(), "made");
    });
    let panics = thread::scope(|threads| {
        let ask = || cache.get_with("p", || -> Result<(&str, Ttl)> { panic!("as it is to") });
        threads.spawn(ask).join()
    });
    assert!(panics.is_err());
    assert_eq!(
        cache.get_with("p", || Ok(("made", MINUTE))).unwrap(),
        "made"
    );
}

#[test]
fn a_closure_may_ask_for_its_own_key() {
    let (_db, cache, _clock) = world();
    let outer = cache.get_with("k", || {
        assert_eq!(cache.get_with("other", || Ok(("o", MINUTE)))?, "o");
        assert_eq!(cache.get_with("k", || Ok(("inner", MINUTE)))?, "inner");
        Ok(("outer", MINUTE))
    });
    assert_eq!(outer.unwrap(), "inner", "it was stored first");
}

/// Each case is done while a value is made; it has the value that is there then.
#[test]
fn what_was_invalidated_meanwhile_is_not_stored() {
    type Meanwhile = fn(&Database, &Container);
    let purge: Meanwhile = |db, cache| {
        cache.put("k", "changed").unwrap();
        cache.delete("k").unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        let stats = cache.stats();
        assert_eq!(
            (stats.runs, stats.memtable_bytes),
            (0, 0),
            "nothing is left of it"
        );
    };
    // An item lies below it, so that it is flushed and stays.
    let flushed_range: Meanwhile = |db, cache| {
        cache.put("held", "").unwrap();
        db.flush().unwrap();
        let reader = db.snapshot();
        cache.clear().unwrap();
        db.flush().unwrap();
        drop(reader);
    };
    let cases: [(&str, Meanwhile, Option<&str>); 9] = [
        (
            "a put",
            |_, cache| cache.put("k", "new").unwrap(),
            Some("new"),
        ),
        ("a delete", |_, cache| cache.delete("k").unwrap(), None),
        (
            "a range",
            |_, cache| cache.delete_range("a".."z").unwrap(),
            None,
        ),
        ("a purged delete", purge, None),
        ("a flushed range", flushed_range, None),
        ("a command", |_, cache| cache.expire_all().unwrap(), None),
        (
            "a default",
            |_, cache| cache.set_default_ttl(DefaultTtl::Off).unwrap(),
            None,
        ),
        (
            "another key",
            |_, cache| cache.put("l", "").unwrap(),
            Some("made"),
        ),
        ("a flush", |db, _| db.flush().unwrap(), Some("made")),
    ];
    for (what, meanwhile, there) in cases {
        let (db, cache, _clock) = world();
        cache.put("seed", "").unwrap();
        cache.delete("seed").unwrap();
        let answer = cache.get_with("k", || {
            meanwhile(&db, &cache);
            Ok(("made", MINUTE))
        });
        assert_eq!(answer.unwrap(), there.unwrap_or("made"), "{what}");
        let found = cache.get("k").unwrap();
        assert_eq!(found.as_deref(), there.map(str::as_bytes), "{what}");
    }
}

/// Writers change the source, then invalidate; whoever asks after that finds the new state.
#[test]
fn nobody_finds_what_was_made_before_an_invalidation() {
    let (db, cache, _clock) = world();
    let source = Arc::new(AtomicU64::new(0));
    thread::scope(|threads| {
        let ask = || {
            for _ in 0..2_000 {
                let at_least = source.load(Ordering::SeqCst);
                let made = cache.get_with("k", || {
                    let state = source.load(Ordering::SeqCst);
                    thread::yield_now();
                    Ok((state.to_be_bytes().to_vec(), MINUTE))
                });
                let found = u64::from_be_bytes(made.unwrap()[..].try_into().unwrap());
                // The source runs ahead of the invalidation by one change.
                assert!(found + 1 >= at_least, "{found} after {at_least}");
            }
        };
        let readers = [(); 3].map(|()| threads.spawn(ask));
        while !readers.iter().all(|reader| reader.is_finished()) {
            let changed = source.fetch_add(1, Ordering::SeqCst);
            cache.delete("k").unwrap();
            if changed.is_multiple_of(64) {
                db.flush().unwrap();
            }
        }
    });
}
