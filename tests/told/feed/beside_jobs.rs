//! A reader is given the same whatever jobs leave out, before it begins and while it is closed.

use super::*;

/// Breaks a build in which a job that judges at the moment of the opening drops the record that had replaced another one, and
/// the reader is given that one.
#[test]
fn a_reader_that_begins_after_a_job_of_the_same_millisecond_is_given_what_ends_later() {
    type Change = fn(&World);
    let changes: [Change; 3] = [
        |w| w.c.set_default_ttl(DefaultTtl::After(ms(100))).unwrap(),
        |w| w.c.expire_written_before(w.db.now()).unwrap(),
        |w| w.c.expire_before(at(210)).unwrap(),
    ];
    type Work = fn(&World);
    let works: [Work; 3] = [|w| w.db.flush().unwrap(), World::reclaim, |_| {}];
    for (change, work, begins) in (0..3 * 3 * 2).map(|n| (n % 3, n / 3 % 3, n / 9)) {
        let world = world(Duration::ZERO);
        let World { db, c, .. } = &world;
        c.put_with_ttl("k", "replaced", ms(209)).unwrap();
        c.put("l", "inherits").unwrap();
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
        // What a later write ends in this millisecond is given.
        c.put_with_ttl("m", "ended by a command", Ttl::Never)
            .unwrap();
        c.expire_all().unwrap();
        works[(work + 1) % 3](&world);
        let again = ended.cursor();
        world.pass(5);
        works[work](&world);
        let given = all(&mut ended);
        assert_eq!(given, pairs(&[("m", 209)]), "{change} {work} {begins}");
        // So it is from the cursor of the beginning, as long as it is known.
        drop(ended);
        let mut ended = c.expirations(again);
        match ended.next() {
            Some(Ok(one)) => assert_eq!((one.key(), millis_of(one.expired_at())), (&b"m"[..], 209)),
            Some(Err(Error::ExpirationsGone { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Breaks a build in which an item that was deleted after its end is told, once its tombstone was left out of a flush.
#[test]
fn what_was_deleted_after_its_end_is_not_told_whatever_a_flush_left_out() {
    type Work = fn(World) -> World;
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
            let world = world(keep);
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
