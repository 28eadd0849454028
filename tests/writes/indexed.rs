//! Goal: indexes agree with their items while threads write the same keys and build indexes; a unique index key is given to
//! one of them; errors say what is wrong, and leave everything as it was.
//!
//! Method: threads over a clock that one of them moves, and one call at a time for the rest.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ebbtide::{
    Database, DefaultTtl, Error, IndexedContainer, ManualClock, Options, Result, Ttl, Update,
};
use testkit::random::Random;
use testkit::refused;
use testkit::stage::{NOW, after, at, default, ms};

use crate::indexed_histories::{implied, indexed, stored};

fn world() -> (ManualClock, Database, IndexedContainer) {
    let clock = ManualClock::new(NOW);
    let options = Options::new().clock(clock.clone());
    let db = options.open_temporary().unwrap();
    let c = indexed(&db.container("c").unwrap()).unwrap();
    (clock, db, c)
}

/// Writes of a thread, to few keys.
fn write(c: &IndexedContainer, random: &mut Random) -> Result<()> {
    let key = format!("k{}", random.below(3));
    let value = format!("t{} t{}", random.below(4), random.below(4));
    let ttl = random.pick(&[Ttl::Inherit, Ttl::Never, Ttl::Keep, after(20)]);
    match random.below(9) {
        0..=2 => c.put_with_ttl(&key, &value, ttl),
        3 => c.touch(&key).map(drop),
        4 => c.delete(&key),
        5 => c.expire(&key, after(30)).map(drop),
        6 => {
            let put = |_: Option<&ebbtide::Item>| Update::Put(value.clone(), Ttl::Keep);
            c.update(&key, put).map(drop)
        }
        7 => c.rename(&key, format!("k{}", random.below(3))).map(drop),
        _ => c.delete_range("k1".."k2"),
    }
}

#[test]
fn writers_of_one_key_leave_items_and_entries_as_one() {
    let (clock, db, c) = world();
    c.set_default_ttl(default(50)).unwrap();
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|threads| {
        for seed in 0..4 {
            let (c, is_over, written) = (c.clone(), &is_over, &written);
            threads.spawn(move || {
                let mut random = Random(seed);
                while !is_over.load(Ordering::Relaxed) {
                    match write(&c, &mut random) {
                        Ok(()) => drop(written.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => assert!(matches!(error, Error::Conflict { .. }), "{error}"),
                    }
                }
            });
        }
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // All that it finds beside the writers is right already.
                match c.rebuild() {
                    Ok(changed) => assert_eq!(changed, 0),
                    Err(error) => assert!(error.is_conflict(), "{error}"),
                }
            }
        });
        for round in 0..60 {
            let before = written.load(Ordering::Relaxed);
            testkit::patience::wait_until("more was written", || {
                written.load(Ordering::Relaxed) > before + 20
            });
            let snapshot = db.snapshot();
            let items = snapshot.container("c").unwrap();
            let entries = snapshot.container("c#tag").unwrap();
            let implied = (&items).into_iter().map(|item| {
                let item = item.unwrap();
                let words =
                    crate::indexed_histories::words(&String::from_utf8_lossy(item.value()), 't');
                words.len()
            });
            let implied: usize = implied.sum();
            let found = entries.keys(&b"\0\x01"[..]..).count();
            assert_eq!(found, implied, "in round {round}");
            // Only this thread moves the clock: not while it compares.
            clock.advance(ms(7));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(stored(&db, "c#tag"), implied(c.container(), 't'));
    c.put_with_ttl("k0", "t0", Ttl::Never).unwrap();
    assert_eq!(c.index().item("t0").unwrap().unwrap().key(), b"k0");
}

#[test]
fn of_eight_threads_one_gets_an_index_key() {
    let (clock, _db, c) = world();
    for round in 0..40 {
        let (won, barrier) = (AtomicUsize::new(0), std::sync::Barrier::new(8));
        thread::scope(|threads| {
            for n in 0..8 {
                let (c, won, barrier) = (&c, &won, &barrier);
                threads.spawn(move || {
                    barrier.wait();
                    match c.put_with_ttl(format!("k{n}"), format!("{round} @a"), after(10)) {
                        Ok(()) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::NotUnique { index_key, key, .. }) => {
                            assert_eq!(index_key, b"@a");
                            assert_ne!(key, format!("k{n}").into_bytes());
                        }
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1, "in round {round}");
        assert_eq!(c.container().count(..).unwrap(), 1);
        clock.advance(ms(9));
        assert!(
            c.put("late", "@a").is_err(),
            "it is held for the last millisecond"
        );
        clock.advance(ms(1));
    }
}

#[test]
fn what_is_returned_is_the_item_as_it_was_written() {
    let (_, db, c) = world();
    c.put_with_ttl("k", "t1 t2 @a", after(60_000)).unwrap();
    let touched = c.get_and_touch("k").unwrap().unwrap();
    assert_eq!(touched, c.container().item("k").unwrap().unwrap());
    let done = c.fetch_update("k", |_| Update::Put("t2 t3 @b", Ttl::Keep));
    let done = done.unwrap();
    let stored = c.container().item("k").unwrap().unwrap();
    assert_eq!(done.before.unwrap(), touched);
    assert_eq!(done.written.unwrap().version(), stored.version());
    assert_eq!(stored.expires_at(), touched.expires_at());
    assert_eq!(c.touch_until("none").unwrap(), None);
    assert!(
        c.fetch_update("k", |_| Update::Keep)
            .unwrap()
            .written
            .is_none()
    );
    let put_over = |version| c.put_if("k", "t9 @c", Ttl::Keep, |found| found == Some(version));
    let refused = put_over(touched.version()).unwrap();
    assert_eq!(refused.before, Some(stored.version()));
    assert!(
        refused.written.is_none()
            && db
                .transaction(|tx| tx.indexed(&c).find_by("tag", "t9"))
                .unwrap()
                .is_empty()
    );
    let written = put_over(stored.version()).unwrap().written.unwrap();
    let found = db
        .transaction(|tx| tx.indexed(&c).find_by("tag", "t9"))
        .unwrap();
    assert_eq!(found[0].version(), written.version());
}

/// Where ttl is off it lives, though it had ended when it was put, and its lifetime is 0.
#[test]
fn an_item_that_has_ended_where_ttl_is_off_keeps_its_entries() {
    let (_, _db, c) = world();
    c.set_default_ttl(DefaultTtl::Off).unwrap();
    let ended = Ttl::Until(std::time::UNIX_EPOCH);
    c.put_with_ttl("k", "t1 @a", ended).unwrap();
    assert!(c.touch("k").unwrap() && c.rename("k", "l").unwrap());
    c.put_with_ttl("l", "t1 t2 @a", Ttl::Keep).unwrap();
    let item = c.container().item("l").unwrap().unwrap();
    assert_eq!(item.ttl(), after(0));
    for index_key in ["t1", "t2"] {
        let keys = c.index().keys(index_key).collect::<Result<Vec<_>>>();
        assert_eq!(keys.unwrap(), ["l"]);
    }
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    assert_eq!(c.index().count(..).unwrap(), 0);
    c.put("k", "@a").unwrap();
}

#[test]
fn an_index_that_is_new_or_of_another_kind_is_built() {
    let db = Options::temporary().unwrap();
    let items = db.container("users").unwrap();
    let name = |_: &[u8], value: &[u8]| [value.to_vec()];
    items.put("u-1", "ada").unwrap();
    items.put_with_ttl("u-2", "grace", after(60_000)).unwrap();
    let by_name = IndexedContainer::new(&items, name).unwrap();
    assert_eq!(by_name.index().item("ada").unwrap().unwrap().key(), b"u-1");
    by_name.put("u-3", "ada").unwrap();
    assert_eq!(by_name.index().keys("ada").count(), 2);

    let unique = |items| {
        IndexedContainer::builder(items)
            .unique("index", name)
            .open()
    };
    let Err(Error::NotUnique { index, key, .. }) = unique(&items) else {
        panic!("two are called ada");
    };
    assert_eq!((&*index, &*key), ("users#index", &b"u-1"[..]));
    items.delete("u-3").unwrap();
    let by_name = unique(&items).unwrap();
    let entries = db.container("users#index").unwrap();
    // Two and the state: none of the other kind is left.
    assert_eq!(entries.count(..).unwrap(), 3);
    assert_eq!(by_name.index().count(..).unwrap(), 2);
    let grace = entries.item(b"grace\0\x01").unwrap().unwrap();
    assert_eq!(
        grace.expires_at(),
        items.item("u-2").unwrap().unwrap().expires_at()
    );

    // Entries that somebody has deleted are built again, all of them.
    entries.clear().unwrap();
    assert_eq!(by_name.index().count(..).unwrap(), 2);
    let by_name = IndexedContainer::new(&items, name).unwrap();
    assert_eq!(by_name.index().count("a".."b").unwrap(), 1);
}

#[test]
fn a_lookup_believes_no_entry() {
    let (_, db, c) = world();
    c.put("k1", "t1 @a").unwrap();
    c.put("k2", "t1 @b").unwrap();
    // Past the index: one has another value, one is gone.
    c.container().put("k1", "t2 @c").unwrap();
    c.container().delete("k2").unwrap();
    assert_eq!(c.index().range(..).count(), 0);
    assert!(!c.index().contains("t1").unwrap());
    let find = |tag: &str| db.transaction(|tx| tx.indexed(&c).find(tag));
    assert!(find("t1").unwrap().is_empty() && find("t2").unwrap().is_empty());
    // Their entries block nobody, and do not come back with the keys.
    c.put("k3", "@a").unwrap();
    c.put("k4", "t1 @b").unwrap();
    assert_eq!(c.index().items("t1").count(), 1);
    // k1 has given @a up, which k3 has now: to delete k1 leaves that.
    c.container().put("k1", "t2 @a @c").unwrap();
    c.put("k1", "t2").unwrap();
    assert!(c.put("k5", "@a").is_err());
    assert_eq!(c.rebuild().unwrap(), 2, "k1 and k2 under t1");
    assert_eq!(find("t2").unwrap().len(), 1);
    let mail = db.transaction(|tx| tx.indexed(&c).find_by("mail", "@a"));
    assert_eq!(mail.unwrap()[0].key(), b"k3");
    assert!(
        db.transaction(|tx| tx.indexed(&c).find_by("none", ""))
            .is_err()
    );
}

#[test]
fn a_default_that_is_changed_past_the_index_does_not_matter() {
    let (clock, db, c) = world();
    c.set_default_ttl(default(100)).unwrap();
    c.put("k", "t1 @a").unwrap();
    c.container().set_default_ttl(default(300)).unwrap();
    clock.advance(ms(150));
    // The entries have ended, and both containers are set alike by hand.
    for name in ["c#tag", "c#mail"] {
        db.container(name)
            .unwrap()
            .set_default_ttl(default(300))
            .unwrap();
    }
    assert!(matches!(c.put("other", "@a"), Err(Error::NotUnique { .. })));
    assert_eq!(c.index().items("t1").count(), 1);
    clock.advance(ms(149));
    assert!(c.put("other", "@a").is_err());
    clock.advance(ms(1));
    c.put("other", "@a").unwrap();
    // The entry could not get the life of an item that its container held for dead: it stays, and is not believed.
    assert_eq!(c.index().range(..).count(), 0);
    assert_eq!(stored(&db, "c#tag").len(), 1);
    assert_eq!(c.rebuild().unwrap(), 1);
    assert!(stored(&db, "c#tag").is_empty());
    // Set through another handle, it is one step for all, and nothing is built.
    let same = indexed(c.container()).unwrap();
    same.set_default_ttl(DefaultTtl::Off).unwrap();
    assert_eq!(
        db.container("c#mail").unwrap().default_ttl(),
        DefaultTtl::Off
    );
    assert_eq!(c.rebuild().unwrap(), 0);
}

#[test]
fn a_command_between_two_defaults_ends_no_entry_before_its_item() {
    let (_, _db, c) = world();
    let set = |millis| {
        let default = default(millis);
        c.container().set_default_ttl(default).unwrap();
    };
    set(100);
    c.put("k", "t1 @a").unwrap();
    set(300);
    // The item would end after that moment, and entries that still have the other default before it.
    let moment = at(200);
    c.expire_before(moment).unwrap();
    set(100);
    assert_eq!(c.index().items("t1").count(), 1);
    assert!(c.put("other", "@a").is_err());
    set(300);
    c.expire_written_before(moment).unwrap();
    assert_eq!(c.index().count(..).unwrap(), 0);
    assert!(c.container().is_empty().unwrap());
    c.put("other", "@a").unwrap();
}

#[test]
fn wrong_use_is_told_and_changes_nothing() {
    let db = Options::temporary().unwrap();
    let items = db.container("c").unwrap();
    let none = |_: &[u8], _: &[u8]| None::<String>;
    let builder = || IndexedContainer::builder(&items);
    for wrong in [
        builder(),
        builder().index("", none),
        builder().index("a", none).unique("a", none),
        builder().index("a/b", none),
    ] {
        let error = wrong.open().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
    let long = IndexedContainer::builder(&items)
        .index("long", |_: &[u8], value: &[u8]| [value.to_vec()])
        .open()
        .unwrap();
    long.put("k", "short").unwrap();
    refused(long.put("k", vec![0; 40_000]), "index key");
    assert!(long.put_with_ttl("k", "other", Duration::ZERO).is_err());
    assert!(long.expire("k", Ttl::Keep).is_err());
    assert!(long.index_named("none").is_err());
    assert_eq!(long.index().items("short").count(), 1);
    assert_eq!(long.index().range(..).count(), 1);
    db.drop_container("c#long").unwrap();
    assert!(long.put("k", "x").unwrap_err().is_closed());
    assert!(long.index().item("short").unwrap_err().is_closed());
}
