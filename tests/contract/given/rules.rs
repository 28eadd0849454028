//! Goal: what is promised of given time beside that: how far purges go, views of one moment, which time a reopened database
//! has, what is refused.
//!
//! Method: histories of a few steps, each written for one promise.

use std::ops::ControlFlow;

use super::*;

/// A database and a container, at the start of time.
fn begun() -> (Sim, Database, Container) {
    let sim = Sim::new(1);
    let db = open(&sim, "/db");
    let c = db.container("c").unwrap();
    db.advance_to(at(START)).unwrap();
    (sim, db, c)
}

/// The options of a container that not every database has.
fn expires() -> ContainerOptions {
    let options = ContainerOptions::new().max_live_bytes(100);
    options.when_full(WhenFull::ExpireSoonest)
}

/// A database that syncs only when told to, with an item that ends after ten milliseconds and may be purged then.
fn with_one_that_ends_soon() -> (Sim, Database, Container) {
    let sim = Sim::new(1);
    let db = options(&sim)
        .sync_interval(seconds(1_000_000))
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    db.advance_to(at(START)).unwrap();
    db.set_purge_limit(at(START + 1_000)).unwrap();
    c.put_with_ttl("soon", "1", ms(10)).unwrap();
    (sim, db, c)
}

/// A state that a power cut left is of no later time than the last write that is left.
fn cut_after(about: &str, late: impl Fn(&Database, &Container)) {
    let (sim, db, c) = with_one_that_ends_soon();
    c.put("kept", "2").unwrap();
    db.sync().unwrap();
    let (left, early) = (version(&db), START + 5);
    db.advance_to(at(early)).unwrap();
    assert!(!c.create("soon", "3", Ttl::Never).unwrap());
    db.advance_to(at(START + 20)).unwrap();
    late(&db, &c);
    let again = open(&sim.power_cut_with(Survivors::Nothing), "/db");
    assert_eq!(version(&again), left, "{about}");
    assert_eq!(again.now(), at(START), "{about}");
    again.advance_to(at(early)).unwrap();
    let c = again.container("c").unwrap();
    assert!(!c.create("soon", "3", Ttl::Never).unwrap(), "{about}");
}

#[test]
fn what_a_power_cut_leaves_is_of_the_time_of_its_last_write() {
    cut_after("a refused write", |db, c| {
        assert!(!c.create("kept", "3", Ttl::Never).unwrap());
        // Refused when it has its stamp.
        assert!(db.container_with("d", expires()).is_err());
        db.flush().unwrap();
    });
    cut_after("a reader of ends", |db, c| {
        assert_eq!(c.expirations(ExpiryCursor::at(at(START + 1))).count(), 1);
        db.flush().unwrap();
    });
}

#[test]
fn what_is_purged_had_ended_by_a_time_whose_writes_are_synced() {
    let (sim, db, c) = with_one_that_ends_soon();
    db.flush().unwrap();
    db.advance_to(at(START + 20)).unwrap();
    c.put("later", "2").unwrap();
    while db.step().unwrap() {}
    assert_eq!(c.stats().tables, 0, "it is purged");
    let again = open(&sim.power_cut_with(Survivors::Nothing), "/db");
    assert_eq!(again.now(), at(START + 20));
    assert!(again.container("c").unwrap().contains("later").unwrap());
}

#[test]
fn a_view_of_a_moment_shows_what_has_ended_since() {
    let (_sim, db, c) = begun();
    c.put_with_ttl("soon", "1", ms(10)).unwrap();
    c.put("kept", "2").unwrap();
    let now = db.snapshot_at(at(START));
    let later = db.snapshot_at(at(START + 10));
    let keys = |view: &ebbtide::View| {
        let keys = view.keys(..).map(|key| key.unwrap().to_vec());
        keys.collect::<Vec<_>>()
    };
    db.advance_to(at(START + 50)).unwrap();
    db.set_purge_limit(at(START + 1_000)).unwrap();
    db.compact().unwrap();
    assert_eq!(keys(&now.container("c").unwrap()), [b"kept", b"soon"]);
    db.advance_to(at(START + 100)).unwrap();
    c.set_default_ttl(default(1)).unwrap();
    c.expire_all().unwrap();
    for _ in 0..70 {
        c.set_default_ttl(default(1)).unwrap();
        c.set_default_ttl(DefaultTtl::Off).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(c.count(..).unwrap(), 0);
    let view = now.container("c").unwrap();
    drop(now);
    assert_eq!(keys(&view), [b"kept", b"soon"]);
    assert_eq!(view.get("soon").unwrap().unwrap(), "1");
    assert_eq!(keys(&later.container("c").unwrap()), [b"kept"]);
    drop((view, later));
    db.advance_to(at(START + 200)).unwrap();
    c.put("last", "3").unwrap();
    c.delete("last").unwrap();
    db.compact().unwrap();
    assert!(c.stats().stored_bytes == 0, "{:?}", c.stats());
}

#[test]
fn nothing_is_purged_before_the_limit() {
    let (_sim, db, c) = begun();
    c.put_with_ttl("k", "v", ms(10)).unwrap();
    db.advance_to(at(START + 1_000)).unwrap();
    db.compact().unwrap();
    let ends = |from: ExpiryCursor| c.expirations(from).collect::<Result<Vec<_>, _>>();
    assert_eq!(ends(ExpiryCursor::start()).unwrap().len(), 1);
    db.set_purge_limit(at(START + 9)).unwrap();
    db.compact().unwrap();
    assert_eq!(ends(ExpiryCursor::start()).unwrap().len(), 1);
    db.set_purge_limit(at(START + 10)).unwrap();
    assert!(ends(ExpiryCursor::start()).unwrap().is_empty());
    let gone = ends(ExpiryCursor::at(at(START + 5))).unwrap_err();
    assert!(matches!(gone, Error::ExpirationsGone { .. }), "{gone}");
    assert!(c.stats().stored_bytes > 0, "it is still stored");
    db.compact().unwrap();
    assert_eq!(c.stats().stored_bytes, 0);
}

#[test]
fn time_is_kept_by_a_close_and_that_of_the_last_write_by_a_kill() {
    let (sim, db, c) = begun();
    c.put("k", "v").unwrap();
    db.advance_to(at(START + 500)).unwrap();
    db.advance_to(at(START)).unwrap();
    assert_eq!(db.now(), at(START + 500), "never back");
    let killed = open(&sim.kill(), "/db");
    assert_eq!(killed.now(), at(START));
    drop(killed);
    db.close().unwrap();
    drop((c, db));
    assert_eq!(open(&sim, "/db").now(), at(START + 500));
}

#[test]
fn what_differs_between_databases_of_one_history_is_refused() {
    let sim = Sim::new(1);
    let db = open(&sim, "/db");
    let refused = |error: Error| {
        assert!(matches!(error, Error::TimeIsGiven { .. }), "{error}");
    };
    let c = db.container("c").unwrap();
    refused(c.bulk_load([("k", "v")]).unwrap_err());
    let quota = Quota {
        max_live_bytes: 100,
        when_full: WhenFull::ExpireSoonest,
    };
    refused(c.set_quota(Some(quota)).unwrap_err());
    let container = ContainerOptions::new()
        .max_live_bytes(100)
        .when_full(WhenFull::ExpireSoonest);
    refused(db.container_with("d", container.clone()).unwrap_err());
    refused(
        db.write(Batch::new().create_container("d", container))
            .unwrap_err(),
    );
    db.advance_to(at(START)).unwrap();
    c.put("k", "v").unwrap();
    let mut ahead = c.expirations(ExpiryCursor::now());
    assert!(ahead.next().is_none());
    let ahead = ahead.cursor();
    db.close().unwrap();
    drop((c, db));
    let plain = || Options::new().stepped().fs(Arc::new(sim.clone()));
    refused(plain().open("/db").unwrap_err());
    let limited = options(&sim).max_live_bytes(100);
    let limited = limited.when_full(WhenFull::ExpireSoonest).open("/db");
    refused(limited.unwrap_err());
    let reader = plain().read_only(true).open("/db").unwrap();
    assert_eq!(reader.now(), at(START));
    assert_eq!(
        reader.container("c").unwrap().get("k").unwrap().unwrap(),
        "v"
    );
    drop(reader);
    let wall = plain().open("/wall").unwrap();
    let not_given = |error: Error| assert!(matches!(error, Error::TimeIsNotGiven), "{error}");
    not_given(wall.advance_to(at(START)).unwrap_err());
    not_given(wall.set_purge_limit(at(START)).unwrap_err());
    let view = wall.snapshot_at(at(START)).container("c");
    not_given(view.map(drop).unwrap_err());
    drop(wall);
    not_given(options(&sim).open("/wall").unwrap_err());
    let other = open(&Sim::new(2), "/other");
    let mut ends = other.container("c").unwrap().expirations(ahead);
    let error = ends.next().unwrap().unwrap_err();
    let is_ahead = matches!(error, Error::AheadOfTime { .. });
    assert!(is_ahead && error.is_retryable(), "{error}");
    other.advance_to(at(START)).unwrap();
}

#[test]
fn a_view_of_a_moment_has_all_that_a_view_has() {
    let (_sim, db, c) = begun();
    for n in 0..300 {
        let ttl = ms(10 + n % 2);
        c.put_with_ttl(format!("{n:03}"), "1234", ttl).unwrap();
    }
    c.put("kept", "1234").unwrap();
    let of_now = db.snapshot_at(at(START)).container("c").unwrap();
    let of_later = db.snapshot_at(at(START + 10)).container("c").unwrap();
    for step in ["in memory", "ended", "flushed"] {
        for (view, live) in [(&of_now, 301), (&of_later, 151)] {
            holds_so_many(view, live, step);
        }
        db.advance_to(at(START + 1_000)).unwrap();
        if step == "ended" {
            db.flush().unwrap();
        }
    }
}

/// That each way to read all of a view finds so many items.
fn holds_so_many(view: &ebbtide::View, live: u64, step: &str) {
    let size = |key: &[u8]| (key.len() + 4) as u64;
    let keys: Vec<_> = view.keys(..).map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(keys.len() as u64, live, "{step}");
    assert_eq!(view.iter().rev().count() as u64, live, "{step}");
    assert_eq!(view.count(..).unwrap(), live, "{step}");
    assert_eq!(view.count_up_to(.., 200), live.min(200), "{step}");
    let sizes = keys.iter().map(|key| size(key)).sum::<u64>();
    assert_eq!(view.size_estimate(..), sizes, "{step}");
    let visited = view.for_each("1".., |_, _| ControlFlow::<()>::Continue(()));
    assert!(visited.unwrap().is_continue());
    let lent = |mut cursor: ebbtide::Cursor, is_forward: bool| {
        let mut lent = vec![];
        cursor.seek(if is_forward { "" } else { "z" });
        while let Some(chunk) = match is_forward {
            true => cursor.next_chunk().unwrap(),
            false => cursor.prev_chunk().unwrap(),
        } {
            lent.extend(chunk.iter().map(|(key, _)| key.to_vec()));
        }
        lent
    };
    assert_eq!(lent(view.cursor(..), true), keys, "{step}");
    let backwards: Vec<_> = keys.iter().rev().cloned().collect();
    assert_eq!(lent(view.cursor(..), false), backwards, "{step}");
    let found = view.get_many(&keys).unwrap();
    assert!(found.iter().all(Option::is_some), "{step}");
    assert!(keys.iter().all(|key| view.contains(key).unwrap()), "{step}");
    let item = view.item("kept").unwrap().unwrap();
    assert_eq!(item.expires_at(), None, "{step}");
    let random = view.random().unwrap().unwrap();
    assert!(keys.iter().any(|key| random.key() == *key), "{step}");
    let first = view.first().unwrap().unwrap();
    let last = view.last().unwrap().unwrap();
    assert_eq!((first.key(), last.key()), (&keys[0][..], &b"kept"[..]));
}

#[test]
fn time_goes_on_at_its_ends() {
    let second = seconds(1);
    let ends = [
        UNIX_EPOCH.checked_sub(second),
        UNIX_EPOCH.checked_add(ms(u64::MAX)),
        UNIX_EPOCH.checked_add(seconds(i64::MAX as u64)),
    ];
    for end in ends.into_iter().flatten() {
        let sim = Sim::new(1);
        let db = open(&sim, "/db");
        let c = db.container("c").unwrap();
        c.put_with_ttl("before", "1", second).unwrap();
        db.advance_to(end).unwrap();
        c.put("never", "2").unwrap();
        c.put_with_ttl("soon", "3", second).unwrap();
        let soon = c.item("soon").unwrap().unwrap();
        assert_eq!(soon.expires_at(), Some(soon.written_at() + second));
        let view = db.snapshot_at(end).container("c").unwrap();
        let live = c.count(..).unwrap();
        assert_eq!(view.count(..).unwrap(), live);
        assert_eq!(live, if end < UNIX_EPOCH { 3 } else { 2 });
        let due: u64 = c.due().iter().map(|due| due.items).sum();
        assert_eq!(due, 2);
        db.set_purge_limit(end).unwrap();
        db.compact().unwrap();
        drop((view, c));
        db.close().unwrap();
        drop(db);
        let again = open(&sim, "/db").container("c").unwrap();
        assert_eq!(again.count(..).unwrap(), live);
    }
}

/// Of more changes than are known one by one, a reader from the start is told what the latest have ended, also where all were made in
/// one millisecond; one from a moment is told that some are missing.
#[test]
fn a_reader_from_the_start_is_told_all_that_is_known_of_many_commands() {
    for moves in [false, true] {
        let (_sim, db, c) = begun();
        let unasked = c.expirations(ExpiryCursor::start());
        let mut asked = c.expirations(ExpiryCursor::start());
        assert!(asked.next().is_none());
        for n in 0..100 {
            c.put_with_ttl(format!("{n:03}"), "v", ms(1_000_000 + n))
                .unwrap();
        }
        for n in 0..100 {
            if moves {
                db.advance_to(at(START + n)).unwrap();
            }
            c.expire_before(at(START + 1_000_001 + n)).unwrap();
        }
        db.advance_to(at(START + 200)).unwrap();
        let keys = |ends: ebbtide::Expirations| -> Vec<String> {
            let keys = ends.map(|end| end.unwrap().key().to_vec());
            keys.map(|key| String::from_utf8(key).unwrap()).collect()
        };
        let known: Vec<String> = (36..100).map(|n| format!("{n:03}")).collect();
        assert_eq!(keys(unasked), known, "{moves}");
        assert_eq!(keys(c.expirations(ExpiryCursor::start())), known, "{moves}");
        let from = c.expirations(ExpiryCursor::at(at(START)));
        for mut ends in [asked, from] {
            let gone = ends.next().unwrap().unwrap_err();
            assert!(gone.is_expirations_gone(), "{moves}: {gone}");
        }
    }
}
