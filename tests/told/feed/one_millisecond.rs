//! Ends in the millisecond in which a reader begins, or goes on: those that had come by then are over, and those by a later
//! write of that millisecond are given.

use super::*;

/// Ends by the end of this millisecond, with their causes.
fn soon(world: &Stage, ended: &mut Expirations) -> Vec<(String, u64, ExpirationCause)> {
    world.pass(1);
    let ended = ended.map(Result::unwrap);
    ended
        .map(|one| {
            let key = String::from_utf8(one.key().to_vec()).unwrap();
            (key, since(one.expired_at()), one.cause())
        })
        .collect()
}

/// Readers from now on.
fn from_now(world: &Stage) -> Vec<Expirations> {
    let cursors = [ExpiryCursor::now(), ExpiryCursor::at(world.db.now())];
    let open = cursors.map(|cursor| world.c.expirations(cursor));
    let again = open
        .each_ref()
        .map(|open| world.c.expirations(open.cursor()));
    open.into_iter().chain(again).collect()
}

// Its lifetime is over, and it was there until the change.
#[test]
fn a_change_is_told_of_what_it_ends_in_the_millisecond_of_its_lifetime() {
    let ten = DefaultTtl::After(ms(10));
    let (own, default) = (ExpirationCause::Ttl, ExpirationCause::Default);
    let cases = [
        (
            DefaultTtl::Off,
            Ttl::Until(at(10)),
            DefaultTtl::NoDefault,
            own,
        ),
        (DefaultTtl::Off, Ttl::Inherit, ten, default),
        (DefaultTtl::NoDefault, Ttl::Inherit, ten, default),
        (DefaultTtl::After(ms(11)), Ttl::Inherit, ten, default),
    ];
    for (before, ttl, after, cause) in cases {
        let world = stage(Duration::ZERO);
        let c = &world.c;
        c.set_default_ttl(before).unwrap();
        c.put_with_ttl("k", "", ttl).unwrap();
        world.pass(10);
        c.put_with_ttl("stillborn", "", Ttl::Until(at(10))).unwrap();
        let readers = from_now(&world);
        assert!(c.contains("k").unwrap());
        c.set_default_ttl(after).unwrap();
        assert!(!c.contains("k").unwrap());
        let late = c.expirations(ExpiryCursor::now());
        let mut expected = vec![("k".to_owned(), 10, cause)];
        if before == DefaultTtl::Off {
            expected.push(("stillborn".to_owned(), 10, ExpirationCause::Ttl));
        }
        world.pass(1);
        for mut reader in readers {
            assert_eq!(soon(&world, &mut reader), expected, "{before:?} {ttl:?}");
        }
        assert_eq!(soon(&world, &mut { late }), []);
    }
}

// The command ends the version that is hidden, too.
#[test]
fn what_had_ended_is_not_told_for_an_older_version_that_ends_in_the_same_millisecond() {
    type Change = fn(&Stage);
    let changes: [Change; 3] = [
        |w| w.c.expire_all().unwrap(),
        |w| w.c.set_default_ttl(DefaultTtl::After(ms(5))).unwrap(),
        |w| w.c.expire_written_before(at(1_000)).unwrap(),
    ];
    for change in changes {
        let world = stage(Duration::ZERO);
        let c = &world.c;
        c.put("k", "older").unwrap();
        c.put("l", "older").unwrap();
        world.pass(10);
        c.put_with_ttl("k", "newer", Ttl::Until(at(10))).unwrap();
        assert!(c.expire("l", Ttl::Until(at(3))).unwrap());
        let readers = from_now(&world);
        c.put("m", "").unwrap();
        change(&world);
        c.put_with_ttl("n", "", Ttl::Until(at(10))).unwrap();
        world.pass(10);
        for mut reader in readers {
            let told = all(&mut reader);
            let told: Vec<_> = told.iter().filter(|(key, _)| key != "m").collect();
            assert_eq!(told, [&("n".to_owned(), 10)]);
        }
    }
}

/// An item is put and ends in one millisecond by `expire`: it is told as any other, with and without a load after it.
#[test]
fn what_is_told_to_end_in_the_past_ends_with_the_write() {
    for loads in [false, true] {
        let world = stage(DAY);
        let c = &world.c;
        let mut open = c.expirations(ExpiryCursor::now());
        c.put("k", "v").unwrap();
        assert!(c.expire("k", Ttl::Until(at(0))).unwrap());
        assert!(!c.contains("k").unwrap());
        world.pass(1);
        if loads {
            c.bulk_load([("z", "z")]).unwrap();
        }
        let expected = [("k".to_owned(), 0, ExpirationCause::Ttl)];
        assert_eq!(soon(&world, &mut open), expected);
        let mut again = c.expirations(ExpiryCursor::start());
        assert_eq!(soon(&world, &mut again), expected);
    }
}

/// A reader from a moment ahead is opened again at its cursor in that very millisecond.
#[test]
fn a_reader_that_waits_for_a_moment_goes_on_in_it() {
    for (pulls, reopens) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = stage(DAY);
        world.c.put_with_ttl("k", "", ms(10)).unwrap();
        let mut waits = world.c.expirations(ExpiryCursor::at(at(10)));
        let mut cursor = waits.cursor();
        world.pass(10);
        if pulls {
            assert!(waits.next().is_none());
            cursor = waits.cursor();
        }
        drop(waits);
        let world = match reopens {
            true => world.reopen(false),
            false => world,
        };
        let mut goes_on = world.c.expirations(cursor);
        assert!(goes_on.next().is_none());
        let cursor = goes_on.cursor();
        drop(goes_on);
        world.pass(1);
        assert_eq!(all(&mut world.c.expirations(cursor)), pairs(&[("k", 10)]));
    }
}

/// Part of a millisecond was given, the rest comes after a reopen, and nothing twice.
#[test]
fn a_reader_goes_on_in_the_middle_of_the_millisecond_in_which_it_began() {
    for reopens in [false, true] {
        let world = stage(DAY);
        let c = &world.c;
        c.put_with_ttl("a", "", ms(10)).unwrap();
        for key in ["b", "c", "d"] {
            c.put_with_ttl(key, "", ms(20)).unwrap();
        }
        c.set_default_ttl(DefaultTtl::Off).unwrap();
        c.put_with_ttl("c2", "", Ttl::Until(at(10))).unwrap();
        world.pass(10);
        let mut ended = c.expirations(ExpiryCursor::now());
        c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        c.expire_before(at(30)).unwrap();
        world.pass(1);
        assert_eq!(ended.next().unwrap().unwrap().key(), b"a");
        assert_eq!(ended.next().unwrap().unwrap().key(), b"b");
        let text = serde_json::to_string(&ended.cursor()).unwrap();
        drop(ended);
        let world = match reopens {
            true => world.reopen(false),
            false => world,
        };
        let mut ended = world.c.expirations(serde_json::from_str(&text).unwrap());
        let rest = pairs(&[("c", 10), ("c2", 10), ("d", 10)]);
        assert_eq!(all(&mut ended), rest);
    }
}

/// The oldest ends that the settings tell apart are given, and no reader from now on is refused for changes before it.
#[test]
fn more_changes_than_are_known_in_one_millisecond_hide_no_later_end() {
    let world = stage(DAY);
    let c = &world.c;
    c.put_with_ttl("first", "", ms(1)).unwrap();
    let change = |n: u64| c.set_default_ttl(DefaultTtl::After(ms(1_000 + n))).unwrap();
    change(0);
    world.pass(1);
    c.put_with_ttl("k", "", Ttl::Never).unwrap();
    c.put("l", "").unwrap();
    let away = c.expirations(ExpiryCursor::now()).cursor();
    (1..=64).for_each(change);
    // The change of the millisecond before is not told apart any more.
    let mut start = c.expirations(ExpiryCursor::start());
    (65..=70).for_each(change);
    let mut now = c.expirations(ExpiryCursor::now());
    let mut start_now = c.expirations(ExpiryCursor::start());
    c.expire_all().unwrap();
    world.pass(1);
    assert_eq!(all(&mut now), pairs(&[("k", 1), ("l", 1)]));
    assert_eq!(all(&mut start_now), pairs(&[("k", 1), ("l", 1)]));
    let gone = c.expirations(away).next().unwrap().unwrap_err();
    assert!(gone.is_expirations_gone(), "{gone}");
    let Error::ExpirationsGone { known_from, .. } = gone else {
        panic!("{gone}")
    };
    assert_eq!(known_from, at(2));
    // It began before the others, has given nothing, and begins anew.
    assert_eq!(all(&mut start), pairs(&[("k", 1), ("l", 1)]));
    c.put_with_ttl("m", "", Ttl::Until(at(2))).unwrap();
    let mut start = c.expirations(ExpiryCursor::start());
    world.pass(1);
    assert_eq!(all(&mut start), pairs(&[("k", 1), ("l", 1), ("m", 2)]));
}

/// Of the very first millisecond that the settings tell apart, too, all ends are given.
#[test]
fn a_reader_from_the_start_is_given_the_first_millisecond_that_is_known() {
    let world = stage(DAY);
    let c = &world.c;
    let change = |n: u64| c.set_default_ttl(DefaultTtl::After(ms(1_000 + n))).unwrap();
    change(0);
    c.put_with_ttl("too old", "", Ttl::Until(at(0))).unwrap();
    c.put_with_ttl("k", "", ms(1)).unwrap();
    world.pass(5);
    (1..=64).for_each(change);
    let mut start = c.expirations(ExpiryCursor::start());
    assert_eq!(all(&mut start), pairs(&[("k", 1)]));
}

/// After a reopen it is not known by which changes jobs had left out ends in this millisecond, and a reader from now on does
/// not ask.
#[test]
fn a_reader_from_now_on_is_not_refused_after_a_reopen_in_the_millisecond_of_a_job() {
    let world = stage(Duration::ZERO);
    world.c.put_with_ttl("k", "", ms(10)).unwrap();
    world.db.flush().unwrap();
    world.pass(10);
    world.reclaim();
    let world = world.reopen(true);
    world.c.put("l", "").unwrap();
    let readers = [ExpiryCursor::now(), ExpiryCursor::at(at(10))];
    let readers = readers.map(|cursor| world.c.expirations(cursor));
    world.c.expire_all().unwrap();
    world.pass(1);
    for mut reader in readers {
        assert_eq!(all(&mut reader), pairs(&[("l", 10)]));
    }
}
