//! Goal: a quota is kept within 5 %: what exceeds it is refused, and nothing of it is written, or what ends soonest makes
//! room; and only live bytes count.
//!
//! Method: a database on a simulated disk with a manual clock, background work step by step. Limits are given in items of
//! one size, so that it is plain how many fit; random histories are compared with all items, read one by one.

use ebbtide::{Batch, Container, ContainerOptions, Error, Quota, Result, Ttl, Update, WhenFull};
use testkit::assert_is;
use testkit::random::Random;
use testkit::stage::{NOW, Stage, after, at, ms, seconds, small};

/// Bytes that count for an item of these tests: a key of 4, a value of 80, and 16.
const ITEM: u64 = 100;

fn fixture(items: u64, when_full: WhenFull) -> Stage {
    let of = ContainerOptions::new().max_live_bytes(items * ITEM);
    Stage::small().with(of.when_full(when_full))
}

fn refuse(items: u64) -> Stage {
    fixture(items, WhenFull::Refuse)
}

fn value() -> String {
    "v".repeat(80)
}

fn put(c: &Container, key: u64, ttl: impl Into<Ttl>) -> Result<()> {
    c.put_with_ttl(format!("{key:04}"), value(), ttl)
}

fn keys(c: &Container) -> Vec<u64> {
    let key = |item: Result<ebbtide::Item>| {
        let item = item.unwrap();
        String::from_utf8_lossy(item.key()).parse().unwrap()
    };
    c.iter().map(key).collect()
}

#[track_caller]
fn is_full<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::QuotaFull { .. }), "{error}");
    assert!(error.is_full() && error.is_retryable());
}

/// The bytes that count, read one by one.
fn truth(c: &Container) -> u64 {
    let weight = |item: Result<ebbtide::Item>| {
        let item = item.unwrap();
        (item.key().len() + item.value().len() + 16) as u64
    };
    c.iter().map(weight).sum()
}

#[test]
fn what_does_not_fit_is_refused_until_items_end() {
    let Stage { clock, db, c, .. } = refuse(3);
    put(&c, 1, seconds(10)).unwrap();
    put(&c, 2, seconds(20)).unwrap();
    put(&c, 3, Ttl::Never).unwrap();
    for _ in 0..3 {
        let error = put(&c, 4, seconds(5)).unwrap_err();
        let Error::QuotaFull {
            container,
            limit,
            live,
            frees_at,
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((container.as_deref(), *limit, *live), (Some("c"), 300, 300));
        let end = at(10_000);
        assert_eq!(*frees_at, Some(end));
        assert!(
            error.to_string().contains("container \"c\" is full"),
            "{error}"
        );
    }
    clock.advance(ms(9_999));
    is_full(put(&c, 4, seconds(5)));
    clock.advance(ms(1));
    put(&c, 4, seconds(60)).unwrap();
    is_full(put(&c, 5, seconds(5)));
    db.flush().unwrap();
    is_full(put(&c, 5, seconds(5)));
    clock.advance(seconds(10));
    put(&c, 5, seconds(60)).unwrap();
    assert_eq!(keys(&c), [3, 4, 5]);
    assert_eq!(c.stats().quota.unwrap().max_live_bytes, 300);
}

/// Neither what a command has ended nor what is hidden frees anything when its ttl is over.
#[test]
fn room_is_foretold_by_what_lives() {
    let Stage { db, c, .. } = refuse(3);
    put(&c, 1, seconds(10)).unwrap();
    put(&c, 2, seconds(15)).unwrap();
    put(&c, 2, seconds(30)).unwrap();
    c.expire_before(db.now() + seconds(12)).unwrap();
    put(&c, 3, Ttl::Never).unwrap();
    put(&c, 4, seconds(60)).unwrap();
    for _ in 0..2 {
        let error = put(&c, 5, Ttl::Never).unwrap_err();
        let Error::QuotaFull { frees_at, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(frees_at, Some(at(30_000)));
        db.flush().unwrap();
    }
}

#[test]
fn what_replaces_counts_once_and_deletes_make_room() {
    let Stage { db, c, .. } = refuse(3);
    for round in 0..50 {
        for key in 1..=3 {
            put(&c, key, Ttl::Inherit).unwrap();
        }
        is_full(put(&c, 4, Ttl::Inherit));
        if round % 7 == 0 {
            db.flush().unwrap();
        }
    }
    is_full(c.put("0001", "v".repeat(81)));
    c.put("0001", "v".repeat(70)).unwrap();
    c.put("0002", "v".repeat(90)).unwrap();
    is_full(c.put("0002", "v".repeat(91)));
    assert_eq!(c.get("0002").unwrap().unwrap().len(), 90);
    c.delete("0001").unwrap();
    put(&c, 4, Ttl::Inherit).unwrap_err();
    c.put("0004", "v".repeat(70)).unwrap();
    c.delete_range("0003"..).unwrap();
    put(&c, 5, Ttl::Inherit).unwrap();
    c.expire_all().unwrap();
    for key in 1..=3 {
        put(&c, key, Ttl::Inherit).unwrap();
    }
    is_full(put(&c, 4, Ttl::Inherit));
}

#[test]
fn every_way_of_writing_is_refused() {
    let Stage { db, c, .. } = refuse(2);
    put(&c, 1, Ttl::Never).unwrap();
    put(&c, 2, Ttl::Never).unwrap();
    is_full(c.create("0003", value(), Ttl::Inherit));
    is_full(c.replace("0001", "v".repeat(200), Ttl::Inherit));
    is_full(c.update("0003", |_| Update::Put(value(), Ttl::Inherit)));
    assert!(c.touch("0001").unwrap() && c.expire("0002", Ttl::Never).unwrap());
    assert!(c.replace("0001", value(), Ttl::Keep).unwrap());
    let mut batch = Batch::new();
    batch.put(&c, "0001", value());
    batch.put(&c, "0003", value());
    is_full(db.write(batch.clone()));
    is_full(db.write(Batch::new().create(&c, "0003", value(), Ttl::Inherit)));
    is_full(db.transaction(|tx| {
        tx.put(&c, "0001", "changed")?;
        tx.put(&c, "0003", "v".repeat(300))
    }));
    assert_eq!(keys(&c), [1, 2]);
    assert_eq!(c.get("0001").unwrap().unwrap(), value());
    // A batch that takes as much as it adds goes through.
    batch.clear();
    batch.delete(&c, "0002");
    batch.put(&c, "0003", value());
    db.write(batch).unwrap();
    db.transaction(|tx| {
        tx.delete(&c, "0001")?;
        tx.put(&c, "0004", value())
    })
    .unwrap();
    assert_eq!(keys(&c), [3, 4]);
}

#[test]
fn a_quota_lasts_and_can_be_changed() {
    let stage = refuse(2);
    put(&stage.c, 1, Ttl::Never).unwrap();
    let other = stage.db.container("other").unwrap();
    let quota = Quota {
        max_live_bytes: 7,
        when_full: WhenFull::ExpireSoonest,
    };
    other.set_quota(Some(quota)).unwrap();
    drop(other);
    let Stage { db, c, .. } = stage.reopen(false);
    let other = db.container("other").unwrap();
    assert_eq!(other.quota(), Some(quota));
    put(&c, 2, Ttl::Never).unwrap();
    is_full(put(&c, 3, Ttl::Never));
    c.set_quota(None).unwrap();
    assert_eq!(c.quota(), None);
    for key in 3..10 {
        put(&c, key, seconds(60)).unwrap();
    }
    c.set_quota(Some(Quota {
        max_live_bytes: 5 * ITEM,
        when_full: WhenFull::Refuse,
    }))
    .unwrap();
    is_full(put(&c, 10, Ttl::Never));
    assert_eq!(keys(&c).len(), 9, "what is stored stays");
    let none = Quota {
        max_live_bytes: 0,
        when_full: WhenFull::Refuse,
    };
    assert!(matches!(
        c.set_quota(Some(none)),
        Err(Error::InvalidArgument { .. })
    ));
    assert_eq!(c.quota().unwrap().max_live_bytes, 5 * ITEM);
}

#[test]
fn the_database_has_a_quota_beside_those_of_containers() {
    let Stage { clock, db, .. } = Stage::new(|options| small(options).max_live_bytes(4 * ITEM));
    let a = db.container_with("a", ContainerOptions::new().max_live_bytes(3 * ITEM));
    let (a, b) = (a.unwrap(), db.container("b").unwrap());
    for key in 1..=3 {
        put(&a, key, seconds(10 * key)).unwrap();
    }
    is_full(put(&a, 4, Ttl::Never));
    put(&b, 1, Ttl::Never).unwrap();
    let error = put(&b, 2, Ttl::Never).unwrap_err();
    assert!(matches!(
        error,
        Error::QuotaFull {
            container: None,
            ..
        }
    ));
    assert!(
        error.to_string().contains("the database is full"),
        "{error}"
    );
    clock.advance(seconds(10));
    put(&b, 2, Ttl::Never).unwrap();
    is_full(put(&a, 4, Ttl::Never));
    db.drop_container("b").unwrap();
    put(&a, 4, Ttl::Never).unwrap();
}

#[test]
fn what_ends_soonest_makes_room() {
    let Stage { db, c, .. } = fixture(10, WhenFull::ExpireSoonest);
    put(&c, 0, Ttl::Never).unwrap();
    for key in 1..10 {
        put(&c, key, seconds(100 - 10 * key)).unwrap();
    }
    // It ends before all others, and is not ended by its own making room.
    put(&c, 20, seconds(1)).unwrap();
    assert_eq!(keys(&c), [0, 1, 2, 3, 4, 5, 6, 7, 20], "some to spare");
    db.flush().unwrap();
    put(&c, 21, seconds(1_000)).unwrap();
    assert_eq!(keys(&c), [0, 1, 2, 3, 4, 5, 6, 7, 20, 21]);
    put(&c, 22, seconds(1_000)).unwrap();
    assert_eq!(
        keys(&c),
        [0, 1, 2, 3, 4, 5, 6, 21, 22],
        "7 ended next, after 20"
    );
    // A replacement needs no room.
    put(&c, 6, seconds(60)).unwrap();
    put(&c, 23, Ttl::Never).unwrap();
    for _ in 0..20 {
        put(&c, 23, Ttl::Never).unwrap();
    }
    assert_eq!(keys(&c), [0, 1, 2, 3, 4, 5, 6, 21, 22, 23]);
}

/// The items that a load replaces are those that would be expired for it: they make room once.
#[test]
fn a_load_that_is_refused_ends_nothing() {
    let load = |c: &Container, keys: std::ops::Range<u64>| {
        c.bulk_load(keys.map(|key| (format!("{key:04}"), value())))
    };
    for replaced in [0, 1, 5, 17] {
        for flushed in [false, true] {
            let Stage { db, c, .. } = fixture(60, WhenFull::ExpireSoonest);
            for key in 0..17 {
                put(&c, key, seconds(100 + key)).unwrap();
            }
            if flushed {
                db.flush().unwrap();
            }
            let before = keys(&c);
            let from = 17 - replaced;
            is_full(load(&c, from..from + 66));
            assert_eq!(keys(&c), before, "{replaced} replaced");
            load(&c, from..from + 55).unwrap();
            let after = keys(&c);
            let loaded: Vec<u64> = (from..from + 55).collect();
            assert!(after.ends_with(&loaded), "{replaced} replaced: {after:?}");
            assert!(truth(&c) <= 60 * ITEM, "{replaced} replaced");
        }
    }
}

/// Items that are expired for one quota make room in the other, and are expired only where both have room then.
#[test]
fn a_write_that_another_quota_refuses_ends_nothing() {
    let write = |how: u64, db: &ebbtide::Database, c: &Container, items: u64| match how {
        0 => c.put("0100", "v".repeat((items * ITEM - 20) as usize)),
        1 => {
            let mut batch = Batch::new();
            (100..100 + items).for_each(|key| {
                batch.put(c, format!("{key:04}"), value());
            });
            db.write(batch)
        }
        _ => {
            let items = (100..100 + items).map(|key| (format!("{key:04}"), value()));
            c.bulk_load(items).map(|_| ())
        }
    };
    let limit = |items: u64, when_full| {
        let of = ContainerOptions::new().max_live_bytes(items * ITEM);
        of.when_full(when_full)
    };
    for (how, of_all) in
        (0..3).flat_map(|how| [(how, WhenFull::Refuse), (how, WhenFull::ExpireSoonest)])
    {
        let options = move |options| small(options).max_live_bytes(100 * ITEM).when_full(of_all);
        let Stage { db, .. } = Stage::new(options);
        let a = db
            .container_with("a", limit(60, WhenFull::ExpireSoonest))
            .unwrap();
        let b = db.container("b").unwrap();
        (0..40).for_each(|key| put(&a, key, seconds(100 + key)).unwrap());
        (0..60).for_each(|key| put(&b, key, Ttl::Never).unwrap());
        // All that can be expired for it is not enough for the database.
        is_full(write(how, &db, &a, 50));
        assert_eq!(keys(&a), (0..40).collect::<Vec<_>>(), "{how} {of_all:?}");
        b.delete_range("0030"..).unwrap();
        // It does not fit in the database before items of `a` are expired for the quota of `a`.
        write(how, &db, &a, 50).unwrap();
        assert!(
            (55 * ITEM..=60 * ITEM).contains(&truth(&a)),
            "{how} {of_all:?}"
        );
        assert_eq!(keys(&b).len(), 30);
    }
    // A batch over two containers of which one has no room.
    for when_full in [WhenFull::Refuse, WhenFull::ExpireSoonest] {
        let Stage { db, .. } = Stage::new(small);
        let a = db
            .container_with("a", limit(10, WhenFull::ExpireSoonest))
            .unwrap();
        let b = db.container_with("b", limit(10, when_full)).unwrap();
        (0..10).for_each(|key| put(&a, key, seconds(100 + key)).unwrap());
        (0..10).for_each(|key| put(&b, key, Ttl::Never).unwrap());
        let mut batch = Batch::new();
        batch.put(&a, "0010", value()).put(&b, "0010", value());
        is_full(db.write(batch));
        assert_eq!(keys(&a).len(), 10, "{when_full:?}");
    }
}

#[test]
fn what_never_ends_stays_and_then_writes_are_refused() {
    let Stage { c, .. } = fixture(5, WhenFull::ExpireSoonest);
    for key in 0..4 {
        put(&c, key, Ttl::Never).unwrap();
    }
    put(&c, 4, seconds(60)).unwrap();
    is_full(c.put("big", "v".repeat(200)));
    assert_eq!(keys(&c), [0, 1, 2, 3, 4], "nothing is expired in vain");
    put(&c, 5, Ttl::Never).unwrap();
    assert_eq!(keys(&c), [0, 1, 2, 3, 5]);
    is_full(put(&c, 6, seconds(60)));
}

#[test]
fn all_containers_make_room_for_the_database() {
    let full = |options| {
        small(options)
            .max_live_bytes(6 * ITEM)
            .when_full(WhenFull::ExpireSoonest)
    };
    let Stage { db, .. } = Stage::new(full);
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    for key in 0..3 {
        put(&a, key, seconds(10 + key)).unwrap();
        put(&b, key, seconds(20 - key)).unwrap();
    }
    put(&b, 9, seconds(5)).unwrap();
    assert_eq!((keys(&a), keys(&b)), (vec![2], vec![0, 1, 2, 9]));
}

#[test]
fn a_batch_that_keeps_a_lifetime_sees_what_made_room_for_it() {
    let Stage { db, c, .. } = fixture(3, WhenFull::ExpireSoonest);
    for key in 0..3 {
        put(&c, key, seconds(10 + key)).unwrap();
    }
    // Item 0 ends to make room for item 3, so nothing is kept of it.
    let mut batch = Batch::new();
    batch.put_with_ttl(&c, "0000", "v".repeat(90), Ttl::Keep);
    batch.put(&c, "0003", value());
    db.write(batch).unwrap();
    assert!(c.item("0000").unwrap().unwrap().expires_at().is_none());
    assert!(truth(&c) <= 3 * ITEM);
}

/// Random puts, deletes, replacements, commands, flushes and passing time; after each step the truth is within 5 % of the limit,
/// and what was refused would have brought it above 95 %. What has ended may be held, so that most of what is stored is dead.
fn history(seed: u64, when_full: WhenFull, is_held: bool) {
    let items = 400;
    let Stage { clock, db, c, .. } = fixture(items, when_full);
    let (limit, mut random) = (items * ITEM, Random(seed));
    if is_held {
        c.set_keep_expired(seconds(86_400)).unwrap();
    }
    let (mut refused, mut expired) = (0, 0);
    for _ in 0..1_500 {
        // Few items end in one and the same moment.
        clock.advance(ms(1));
        let (before, mut is_put) = (truth(&c), false);
        let key = format!("{:04}", random.below(1_200));
        let value = "v".repeat(random.below(160));
        let ttl = match random.below(8) {
            0 if when_full == WhenFull::Refuse => Ttl::Never,
            1 => after(100_000_000),
            _ => after(1_000 << random.below(12)),
        };
        match random.below(100) {
            0 => clock.advance(seconds(random.below(40) as u64)),
            1 if random.below(4) == 0 => db.flush().unwrap(),
            1 if random.below(8) == 0 => {
                let moment = db.now() + ms(1_000 << random.below(10));
                c.expire_before(moment).unwrap();
            }
            2 => drop(db.step().unwrap()),
            3..10 => c.delete(&key).unwrap(),
            _ => {
                let adds = (key.len() + value.len() + 16) as u64;
                let put = c.put_with_ttl(&key, &value, ttl);
                is_put = true;
                if let Err(error) = put {
                    assert!(matches!(error, Error::QuotaFull { .. }), "{error}");
                    refused += 1;
                    let would_be = before + adds;
                    assert!(would_be * 100 > limit * 95, "{would_be} of {limit}");
                }
            }
        }
        let live = truth(&c);
        assert!(live * 100 <= limit * 105, "{live} of {limit}");
        // More than a smaller value takes away.
        if is_put && live + 200 < before {
            expired += 1;
            assert!(live * 100 > limit * 88, "no more than is needed: {live}");
        }
    }
    match when_full {
        WhenFull::Refuse => assert!(refused > 50 && expired == 0, "{refused} {expired}"),
        _ => assert!(refused == 0 && expired > 5, "{refused} {expired}"),
    }
    if is_held {
        let (stored, live) = (c.stats().stored_bytes, truth(&c));
        assert!(stored > 2 * live, "{stored} {live}");
    }
}

#[test]
fn random_histories_stay_within_five_percent_by_refusing() {
    (1..=4).for_each(|seed| history(seed, WhenFull::Refuse, seed % 2 == 0));
}

#[test]
fn random_histories_stay_within_five_percent_by_expiring() {
    (4..=7).for_each(|seed| history(seed, WhenFull::ExpireSoonest, seed % 2 == 0));
}

#[test]
fn writers_at_once_stay_within_it() {
    let Stage { c, .. } = refuse(100);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let c = &c;
            scope.spawn(move || {
                (0..100)
                    .filter(|n| put(c, writer * 100 + n, Ttl::Never).is_ok())
                    .count()
            });
        }
    });
    assert_eq!(truth(&c), 100 * ITEM);
}

/// Where the commands that make room are refused, the write is refused as full, and nothing is expired for it.
#[test]
fn where_no_command_can_be_given_the_write_is_refused() {
    let Stage { clock, c, .. } = fixture(3, WhenFull::ExpireSoonest);
    for key in 1..=3 {
        put(&c, key, seconds(1_000 + key)).unwrap();
    }
    // It leads, and no settings are changed meanwhile.
    clock.jump(NOW + 5 * 3_600_000);
    c.put_with_ttl("0009", value(), seconds(90_000)).unwrap();
    clock.jump(NOW);
    for key in 4..=5 {
        put(&c, key, seconds(90_000)).unwrap();
    }
    clock.jump(NOW + 5 * 3_600_000);
    is_full(put(&c, 6, seconds(90_000)));
    clock.jump(NOW);
    put(&c, 6, seconds(90_000)).unwrap();
}

/// Batches over the same containers in another order wait for each other's charges only one way round.
#[test]
fn batches_over_two_full_containers_do_not_wait_for_each_other() {
    let Stage { db, .. } = Stage::small();
    let of = || ContainerOptions::new().max_live_bytes(10 * ITEM);
    let [a, b] = ["a", "b"].map(|name| db.container_with(name, of()).unwrap());
    std::thread::scope(|scope| {
        for order in [[&a, &b], [&b, &a]] {
            let db = &db;
            scope.spawn(move || {
                for round in 0..300 {
                    let mut batch = Batch::new();
                    for c in order {
                        for key in 0..4 {
                            batch.put(c, format!("{key:04}"), value());
                        }
                    }
                    match db.write(batch) {
                        Ok(()) => {}
                        full => is_full(full),
                    }
                    if round % 2 == 0 {
                        order[0].clear().unwrap();
                    }
                }
            });
        }
    });
    assert!(truth(&a) <= 10 * ITEM && truth(&b) <= 10 * ITEM);
}

// An item that is replaced may be the one that ends soonest: its end makes no room, and it is not ended for a refused write.
#[test]
fn a_write_that_is_refused_ends_nothing_of_what_it_would_replace() {
    let Stage { c, .. } = fixture(10, WhenFull::ExpireSoonest);
    c.put_with_ttl("long", "v".repeat(680), Ttl::Never).unwrap();
    c.put_with_ttl("keyy", "v".repeat(130), seconds(100))
        .unwrap();
    for _ in 0..3 {
        let refused = c.put_with_ttl("keyy", "v".repeat(330), seconds(100));
        assert_is!(refused, Err(Error::QuotaFull { .. }));
        assert!(c.contains("keyy").unwrap());
    }
    // Where something else ends, it does.
    c.put_with_ttl("keyy", "v".repeat(30), seconds(200))
        .unwrap();
    c.put_with_ttl("soon", "v".repeat(180), seconds(50))
        .unwrap();
    c.put_with_ttl("keyy", "v".repeat(130), seconds(200))
        .unwrap();
    assert!(c.contains("keyy").unwrap() && !c.contains("soon").unwrap());
}
