//! A reader is given the same whatever jobs leave out, before it begins and while it is closed.

use super::*;

/// Breaks a build in which a job that judges at the moment of the opening drops the record that had replaced another one, and
/// the reader is given that one.
#[test]
fn a_reader_that_begins_after_a_job_of_the_same_millisecond_is_given_what_ends_later() {
    type Change = fn(&Stage);
    let changes: [Change; 3] = [
        |w| w.c.set_default_ttl(DefaultTtl::After(ms(100))).unwrap(),
        |w| w.c.expire_written_before(w.db.now()).unwrap(),
        |w| w.c.expire_before(at(210)).unwrap(),
    ];
    type Work = fn(&Stage);
    let works: [Work; 3] = [|w| w.db.flush().unwrap(), Stage::reclaim, |_| {}];
    for (change, work, begins) in (0..3 * 3 * 2).map(|n| (n % 3, n / 3 % 3, n / 9)) {
        let world = stage(Duration::ZERO);
        let Stage { db, c, .. } = &world;
        c.put_with_ttl("k", "replaced", ms(209)).unwrap();
        c.put("l", "inherits").unwrap();
        c.put("o", "ended by the change").unwrap();
        db.flush().unwrap();
        world.pass(200);
        c.put_with_ttl("k", "new", ms(1)).unwrap();
        c.put_with_ttl("l", "new", ms(1)).unwrap();
        world.pass(9);
        changes[change](&world);
        works[work](&world);
        let cursor = match begins {
            0 => ExpiryCursor::now(),
            _ => ExpiryCursor::at(db.now()),
        };
        let mut ended = c.expirations(cursor);
        assert!(ended.next().is_none());
        // An item that a later write ends in this millisecond is given.
        c.put_with_ttl("m", "ended by a command", Ttl::Never)
            .unwrap();
        c.expire_all().unwrap();
        works[(work + 1) % 3](&world);
        let again = ended.cursor();
        world.pass(5);
        works[work](&world);
        let given = all(&mut ended);
        // The third change leaves one for `expire_all`.
        let ends = &[("m", 209), ("o", 209)][..if change == 2 { 2 } else { 1 }];
        assert_eq!(given, pairs(ends), "{change} {work} {begins}");
        // So it is from the cursor of the beginning, as long as it is known.
        drop(ended);
        let mut ended = c.expirations(again);
        match ended.next() {
            Some(Ok(one)) => assert_eq!((one.key(), since(one.expired_at())), (&b"m"[..], 209)),
            Some(Err(Error::ExpirationsGone { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Breaks a build in which an item that was deleted after its end is told, once its tombstone was left out of a flush.
#[test]
fn what_was_deleted_after_its_end_is_not_told_whatever_a_flush_left_out() {
    type Work = fn(Stage) -> Stage;
    let works: [Work; 5] = [
        |w| w,
        |w| {
            w.db.flush().unwrap();
            w
        },
        |w| {
            w.reclaim();
            w
        },
        |w| {
            let w = w.reopen(true);
            w.db.flush().unwrap();
            w
        },
        |w| w.reopen(false),
    ];
    for keep in [Duration::ZERO, DAY] {
        for (n, how) in (0..3 * 5 * 2).map(|n| (n, n % 3)) {
            let (work, is_late) = (works[n / 3 % 5], n / 15 == 1);
            let world = stage(keep);
            let mut ended = world.c.expirations(ExpiryCursor::now());
            world.c.put_with_ttl("k", "v", ms(10)).unwrap();
            world.c.put_with_ttl("z", "stays", Ttl::Never).unwrap();
            world.db.flush().unwrap();
            world.pass(20);
            match how {
                0 => world.c.delete("k").unwrap(),
                1 => world.c.delete_range("a".."l").unwrap(),
                _ => world.db.transaction(|tx| tx.delete(&world.c, "k")).unwrap(),
            }
            if is_late {
                world.pass(10);
            }
            let cursor = ended.cursor();
            assert!(ended.next().is_none());
            drop(ended);
            let world = work(world);
            let mut ended = world.c.expirations(cursor);
            match ended.next() {
                None => {}
                Some(Err(Error::ExpirationsGone { .. })) if keep.is_zero() => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Breaks a build in which a job that judges by an earlier moment, and so by earlier settings, holds to be gone what a bulk
/// load has brought since: the load is stamped with its beginning, where the earlier settings would have ended it.
#[test]
fn what_a_load_brings_after_a_change_is_judged_by_no_settings_before_it() {
    let own = Ttl::After(ms(1_104));
    let (off, none) = (DefaultTtl::Off, DefaultTtl::NoDefault);
    let [second, hour] = [1, 3_600].map(|n| DefaultTtl::After(Duration::from_secs(n)));
    let cases = [
        (none, off, own),
        (second, hour, Ttl::Inherit),
        (second, none, Ttl::Inherit),
    ];
    type Work = fn(&Stage);
    let works: [Work; 2] = [Stage::reclaim, |w| w.db.flush().unwrap()];
    for ((before, after, ttl), by_reader, work, deletes) in
        (0..3 * 2 * 2 * 2).map(|n| (cases[n % 3], n / 3 % 2 == 1, works[n / 6 % 2], n / 12 == 1))
    {
        let world = stage(if by_reader { Duration::ZERO } else { ms(500) });
        let Stage { c, .. } = &world;
        c.set_default_ttl(before).unwrap();
        world.pass(1);
        let mut reader = by_reader.then(|| c.expirations(ExpiryCursor::now()));
        let mut meanwhile = Some(|| {
            world.pass(1_500);
            assert!(reader.as_mut().is_none_or(|reader| reader.next().is_none()));
            world.pass(500);
            c.set_default_ttl(after).unwrap();
        });
        let items = [("a", ttl), ("b", Ttl::Never)].map(|(key, ttl)| Ok((key, "v", ttl)));
        c.bulk_load_with_ttl(items.into_iter().inspect(|_| {
            if let Some(mut meanwhile) = meanwhile.take() {
                meanwhile();
            }
        }))
        .unwrap();
        assert!(c.contains("a").unwrap());
        if deletes {
            c.delete("a").unwrap();
        }
        for _ in 0..2 {
            work(&world);
            assert_eq!(
                c.contains("a").unwrap(),
                !deletes,
                "{before:?} {after:?} {by_reader}"
            );
            world.pass(400);
        }
        drop(reader);
    }
}

/// Breaks a build in which a table that was judged by an earlier moment counts as judged by a command since, which is
/// forgotten then.
#[test]
fn what_a_command_ended_stays_gone_where_jobs_judge_by_a_moment_before_it() {
    let world = stage(ms(500));
    let Stage { c, .. } = &world;
    c.put_with_ttl("k", "v", ms(370)).unwrap();
    c.put_with_ttl("l", "v", Ttl::Never).unwrap();
    c.expire_all().unwrap();
    world.db.flush().unwrap();
    for default in [DefaultTtl::NoDefault, DefaultTtl::Off] {
        c.set_default_ttl(default).unwrap();
        assert!(c.is_empty().unwrap());
    }
}

/// Breaks a build in which a reader that asks for the oldest end that is known is told that some are not, because a job that
/// had judged before it began let go of them after.
#[test]
fn a_reader_that_begins_at_the_oldest_end_misses_none_beside_a_job() {
    let stage = stage(Duration::ZERO);
    let fs = Watched::new(Sim::new(1));
    let db = stage.options_on(&fs.sim).fs(Arc::new(fs.clone()));
    let (db, c) = testkit::stage::open(&db);
    c.put_with_ttl("a", "v", ms(5)).unwrap();
    c.put_with_ttl("b", "v", Ttl::Never).unwrap();
    stage.pass(10);
    let reader = Arc::new(Mutex::new(None));
    fs.once("sync", ".table", {
        let (reader, c) = (reader.clone(), c.clone());
        move || *reader.lock().unwrap() = Some(c.expirations(ExpiryCursor::start()))
    });
    db.flush().unwrap();
    let mut reader = reader.lock().unwrap().take().expect("a table was synced");
    assert!(reader.next().is_none());
    c.put_with_ttl("d", "v", ms(5)).unwrap();
    stage.pass(10);
    db.flush().unwrap();
    assert_eq!(all(&mut reader), pairs(&[("d", 15)]));
}

/// Breaks a build in which a reader that was told that there is no end yet begins anew when it has missed one, and says
/// nothing.
#[test]
fn a_reader_that_has_caught_up_is_told_what_it_missed_wherever_it_began() {
    let world = stage(Duration::ZERO);
    let Stage { db, c, .. } = &world;
    c.put_with_ttl("a", "v", ms(5)).unwrap();
    world.pass(5);
    // It ends at this very moment, at which the reader begins.
    db.flush().unwrap();
    let mut reader = c.expirations(ExpiryCursor::start());
    assert!(reader.next().is_none());
    c.put_with_ttl("d", "v", ms(5)).unwrap();
    world.pass(70_000);
    db.flush().unwrap();
    let missed = reader.next().expect("it has missed one");
    assert!(missed.unwrap_err().is_expirations_gone());
}
