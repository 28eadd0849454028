//! Goal: the due curve says what ends when, and what comes back when; due items are the items in the order of their ends.
//!
//! Method: containers on a simulated disk with a manual clock, in memory, on disk and both; compared with all items, read
//! one by one.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use ebbtide::internals::Sim;
use ebbtide::{Container, Database, DefaultTtl, DueBucket, ManualClock, Ttl};
use testkit::random::Random;
use testkit::stage::{NOW, after, at, default, in_steps, ms, open, seconds};

const WITHIN: u64 = 60_000;

fn world() -> (ManualClock, Database, Container) {
    world_of(256 << 10, 16 << 10)
}

/// Samples tell of hidden items within 0.3 to 2 % of all of them, depending on where memtables end (measured over 13 sizes). At
/// this size they are near, so that a wrong estimate shows.
const MEMTABLE: usize = (1 << 20) / 100 * 107;

fn world_of(memtable_bytes: usize, table_bytes: u64) -> (ManualClock, Database, Container) {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = open(
        in_steps(&sim, &clock)
            .memtable_bytes(memtable_bytes)
            .sizes(512, table_bytes, 64 << 10)
            .reclaim_within(ms(WITHIN)),
    );
    (clock, db, c)
}

/// Items of many lifetimes, from seconds to days; a tenth is overwritten, and every tenth never ends.
fn fill(db: &Database, c: &Container, items: u64) {
    let mut random = Random(7);
    for n in 0..items + items / 10 {
        let ttl = match n % 10 {
            0 => Ttl::Never,
            1 | 2 => Ttl::Inherit,
            _ => after(1_000 << random.below(17)),
        };
        let value = "v".repeat(random.below(100));
        c.put_with_ttl(format!("k{:06}", n % items), value, ttl)
            .unwrap();
        if n % 500 == 0 {
            while db.step().unwrap() {}
        }
    }
}

/// The live items that have an end: the ends and keys, in order.
fn ends(c: &Container) -> Vec<(SystemTime, Vec<u8>)> {
    let items = c.iter().map(Result::unwrap);
    let mut ends: Vec<_> = items
        .filter_map(|item| Some((item.expires_at()?, item.key().to_vec())))
        .collect();
    ends.sort();
    ends
}

fn sum(buckets: &[DueBucket], to: SystemTime, of: fn(&DueBucket) -> u64) -> u64 {
    buckets.iter().filter(|due| due.until <= to).map(of).sum()
}

#[test]
fn the_curve_is_that_of_the_items() {
    let (clock, db, c) = world();
    c.set_default_ttl(default(3_600_000)).unwrap();
    fill(&db, &c, 20_000);
    for place in 0..3 {
        match place {
            1 => db.flush().unwrap(),
            2 => clock.advance(seconds(100)),
            _ => {}
        }
        let (due, ends, now) = (c.due(), ends(&c), db.now());
        assert!(
            due.len() <= 74 && due.is_sorted_by(|a, b| a.until < b.until),
            "{due:?}"
        );
        let all = c.iter().count() as u64;
        let past = sum(&due, now, |due| due.items);
        for bucket in due.iter().filter(|due| due.until > now) {
            let said = sum(&due, bucket.until, |due| due.items) - past;
            let are = ends.iter().filter(|(end, _)| *end <= bucket.until).count() as u64;
            assert!(
                said.abs_diff(are) <= all / 20,
                "{place}: {said} of {are} by {:?}",
                bucket.until
            );
        }
        let dated = sum(&due, at(u64::MAX / 4), |due| due.items) - past;
        assert!(
            dated.abs_diff(ends.len() as u64) <= all / 20,
            "{dated} of {}",
            ends.len()
        );
        let stats = c.stats();
        let expired = sum(&due, now, |due| due.bytes);
        assert!(expired.abs_diff(stats.expired_bytes) <= stats.stored_bytes / 20);
        assert_eq!(past > 0, place == 2, "{past}");
        let back = sum(&due, at(u64::MAX / 4), |due| due.disk_bytes);
        assert!(back <= stats.disk_bytes, "{back} of {}", stats.disk_bytes);
        assert!(
            place == 0 || back > stats.disk_bytes / 2,
            "{back} of {}",
            stats.disk_bytes
        );
    }
}

/// Lifetimes of a cache, a lock, a code, a session: groups of ends, far apart beside how long the writing took.
const GROUPS: [u64; 4] = [5, 30, 600, 7 * 86_400];

/// Items of each of these lifetimes, and some that never end, written in four seconds. Of a key that comes twice the older item
/// is hidden.
fn fill_with_groups(clock: &ManualClock, db: &Database, c: &Container, keys: usize) {
    let mut random = Random(11);
    for n in 0..40_000 {
        let ttl = match random.below(10) {
            0 | 1 => Ttl::Never,
            2 => Ttl::Inherit,
            _ => Ttl::After(seconds(GROUPS[random.below(4)])),
        };
        let value = "v".repeat(random.below(100));
        c.put_with_ttl(format!("k{:06}", random.below(keys)), value, ttl)
            .unwrap();
        if n % 10 == 0 {
            clock.advance(ms(1));
        }
        if n % 500 == 0 {
            while db.step().unwrap() {}
        }
    }
}

/// Each row is compared with the items that end in it: none is off by more than a hundredth of all items, one in which
/// something ends is about something that does, and rows that are beyond the first seconds are groups, told within `group`
/// hundredths of what is in them.
fn check_rows(what: &str, db: &Database, c: &Container, group: u64) {
    let (due, ends, now) = (c.due(), ends(c), db.now());
    let all = c.iter().count() as u64;
    let between = |from: SystemTime, to: SystemTime| {
        let within = ends.iter().filter(|(end, _)| *end > from && *end <= to);
        within.count() as u64
    };
    let future: Vec<&DueBucket> = due.iter().filter(|due| due.until > now).collect();
    let mut from = now;
    for bucket in &future {
        let are = between(from, bucket.until);
        let off = bucket.items.abs_diff(are);
        assert!(
            (bucket.items > 0) == (are > 0) && off * 100 <= all,
            "{what}: {are} end by {:?}: {due:?}",
            bucket.until
        );
        from = bucket.until;
    }
    let last_end = ends.last().map(|(end, _)| *end);
    let last_row = future.iter().rfind(|due| due.items > 0);
    assert_eq!(last_row.map(|due| due.until), last_end, "{what}");
    for life in GROUPS {
        // Items that began at NOW end from here on, and within the time that the writing took.
        let (first, last) = (at(life * 1_000 - 1), at(life * 1_000 + 4_500));
        if first > now + seconds(6) {
            let are = between(first, last);
            let said = sum(&due, last, |due| due.items) - sum(&due, first, |due| due.items);
            assert!(
                are > 0 && said.abs_diff(are) * 100 <= are * group,
                "{what}: {said} for {are} that live for {life} s: {due:?}"
            );
        }
    }
}

/// Within 1 % where nothing is hidden; what is hidden is known by samples.
#[test]
fn the_rows_are_the_groups_that_end() {
    for (keys, group) in [(usize::MAX >> 1, 1), (12_000, 3)] {
        let (clock, db, c) = world_of(MEMTABLE, 64 << 20);
        let ten_minutes = seconds(600);
        c.set_default_ttl(DefaultTtl::After(ten_minutes)).unwrap();
        fill_with_groups(&clock, &db, &c, keys);
        check_rows("written", &db, &c, group);
        db.flush().unwrap();
        check_rows("flushed", &db, &c, group);
        for later in [3, 40, 700] {
            clock.advance(seconds(later));
            check_rows("later", &db, &c, group);
            while db.step().unwrap() {}
            check_rows("later, and at rest", &db, &c, group);
        }
        db.compact().unwrap();
        check_rows("compacted", &db, &c, 1);
    }
}

/// The rows also tell the items that a change of the retention would end.
#[test]
fn previews_are_those_of_the_groups() {
    for keys in [usize::MAX >> 1, 12_000] {
        let (clock, db, c) = world_of(MEMTABLE, 64 << 20);
        c.set_default_ttl(default(600_000)).unwrap();
        fill_with_groups(&clock, &db, &c, keys);
        for place in 0..3 {
            match place {
                1 => db.flush().unwrap(),
                2 => clock.advance(seconds(20)),
                _ => {}
            }
            let (ends, all) = (ends(&c), c.iter().count() as u64);
            for seconds in [1, 10, 20, 100, 1_000, 8 * 86_400] {
                let moment = at(seconds * 1_000);
                let are = ends.iter().filter(|(end, _)| *end < moment).count() as u64;
                let said = c.preview_expire_before(moment).items;
                assert!(
                    said.abs_diff(are) * 100 <= all,
                    "{place}: {said} for {are} before {seconds} s"
                );
            }
        }
    }
}

/// Two thousand items on disk; every other one ends in 600 s, the others in 6 000 s.
fn two_lifetimes(db: &Database, c: &Container) {
    for n in 0..2_000 {
        let ttl = seconds(if n % 2 == 0 { 600 } else { 6_000 });
        c.put_with_ttl(format!("{n:05}"), "v".repeat(100), ttl)
            .unwrap();
    }
    db.flush().unwrap();
}

/// The disk space that comes back does so by the moment that was said.
fn comes_back_as_said(clock: &ManualClock, db: &Database, c: &Container) {
    let due = c.due();
    let begun = db.now();
    let mut passed = Duration::ZERO;
    for bucket in &due {
        let until = bucket.until.duration_since(begun).unwrap_or_default();
        while passed < until {
            let step = (until - passed).min(seconds(10));
            clock.advance(step);
            passed += step;
            while db.step().unwrap() {}
        }
        let left = sum(&due, at(u64::MAX / 4), |due| due.disk_bytes)
            - sum(&due, bucket.until, |due| due.disk_bytes);
        let is = c.stats().disk_bytes;
        assert!(
            is <= left + left / 5 + 8_192,
            "{is} of {left} by {:?}",
            bucket.until
        );
    }
    assert_eq!(c.stats().disk_bytes, 0);
}

#[test]
fn the_disk_space_is_back_when_it_was_said() {
    let (clock, db, c) = world();
    two_lifetimes(&db, &c);
    comes_back_as_said(&clock, &db, &c);
}

/// Jobs keep it so much longer.
#[test]
fn the_disk_space_of_what_is_held_is_back_when_it_was_said() {
    let (clock, db, c) = world();
    two_lifetimes(&db, &c);
    c.set_keep_expired(seconds(1_000)).unwrap();
    let before = |seconds: u64| sum(&c.due(), at(seconds * 1_000), |due| due.disk_bytes);
    let half = c.stats().disk_bytes / 2;
    assert_eq!(before(2_000), 0);
    assert!(before(6_500).abs_diff(half) <= half / 10, "{:?}", c.due());
    comes_back_as_said(&clock, &db, &c);
}

/// It ended at the command, and not when its ttl says; its disk space is back within an eighth of 6 000 s from then on.
#[test]
fn the_disk_space_of_what_a_command_ended_is_back_by_its_deadline() {
    let (clock, db, c) = world();
    two_lifetimes(&db, &c);
    clock.advance(seconds(100));
    c.expire_before(at(1_000_000)).unwrap();
    clock.advance(seconds(64));
    let (due, disk) = (c.due(), c.stats().disk_bytes);
    let items = |until: u64| sum(&due, at(until * 1_000), |due| due.items);
    let back = |until: u64| sum(&due, at(until * 1_000), |due| due.disk_bytes);
    assert!(
        items(99) == 0 && items(110).abs_diff(1_000) <= 50,
        "{due:?}"
    );
    assert_eq!(items(110), items(5_000), "they have ended once");
    assert_eq!(back(700), 0);
    assert!(back(1_000).abs_diff(disk / 2) <= disk / 20, "{due:?}");
    comes_back_as_said(&clock, &db, &c);
}

/// Items that never end by their ttl come back, too.
#[test]
fn the_disk_space_of_all_that_a_command_ended_comes_back() {
    let (clock, db, c) = world();
    (0..2_000).for_each(|n| c.put(format!("{n:05}"), "v".repeat(100)).unwrap());
    db.flush().unwrap();
    let some = after(4_000_000);
    (0..2_000).for_each(|n| c.put_with_ttl(format!("{n:05}-"), "v", some).unwrap());
    db.flush().unwrap();
    clock.advance(seconds(10));
    c.expire_written_before(db.now()).unwrap();
    c.put("later", "v").unwrap();
    let (due, disk) = (c.due(), c.stats().disk_bytes);
    let by = at(10_000 + 4_000_000 / 8 + 60_000);
    assert!(
        sum(&due, by, |due| due.disk_bytes) > disk / 10 * 9,
        "{due:?}"
    );
    assert!(sum(&due, db.now(), |due| due.items).abs_diff(4_000) <= 200);
    clock.advance(seconds(570));
    while db.step().unwrap() {}
    assert!(c.stats().disk_bytes < disk / 10);
}

#[test]
fn what_a_command_ended_is_due_now() {
    let (_clock, db, c) = world();
    for n in 0..100 {
        c.put_with_ttl(format!("{n}"), "v", seconds(1_000)).unwrap();
    }
    db.flush().unwrap();
    let bucket = |to: SystemTime| sum(&c.due(), to, |due| due.items);
    assert_eq!((bucket(db.now()), bucket(at(2_000_000))), (0, 100));
    c.expire_all().unwrap();
    assert_eq!((bucket(db.now()), bucket(at(2_000_000))), (100, 100));
    assert!(sum(&c.due(), db.now(), |due| due.disk_bytes) > 0);
    while db.step().unwrap() {}
    assert!(c.due().is_empty());
}

#[test]
fn due_items_are_in_the_order_of_their_ends() {
    let (clock, db, c) = world();
    c.set_default_ttl(default(3_600_000)).unwrap();
    fill(&db, &c, 3_000);
    for place in 0..3 {
        match place {
            1 => db.flush().unwrap(),
            2 => clock.advance(seconds(50)),
            _ => {}
        }
        let all = ends(&c);
        let keys = |range: (Bound<SystemTime>, Bound<SystemTime>)| -> Vec<(SystemTime, Vec<u8>)> {
            let items = c.due_items(range).map(Result::unwrap);
            items
                .map(|item| (item.expires_at().unwrap(), item.key().to_vec()))
                .collect()
        };
        assert_eq!(keys((Bound::Unbounded, Bound::Unbounded)), all);
        for (low, high) in [(0, all.len() / 2), (all.len() / 3, all.len() / 2), (5, 6)] {
            let (from, to) = (all[low].0, all[high].0);
            let within = |ends: &[(SystemTime, Vec<u8>)], closed: bool| {
                let is = |end: SystemTime| match closed {
                    true => from <= end && end <= to,
                    false => from < end && end < to,
                };
                ends.iter()
                    .filter(|(end, _)| is(*end))
                    .cloned()
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                keys((Bound::Included(from), Bound::Included(to))),
                within(&all, true)
            );
            assert_eq!(
                keys((Bound::Excluded(from), Bound::Excluded(to))),
                within(&all, false)
            );
        }
        assert!(keys((Bound::Included(at(9)), Bound::Excluded(at(9)))).is_empty());
    }
}

/// A table without such items is not read.
#[test]
fn due_items_are_read_where_they_are() {
    let (_clock, db, c) = world();
    for (name, days) in [("near", 1), ("far", 30)] {
        for n in 0..2_000 {
            let ttl = seconds(86_400 * days);
            c.put_with_ttl(format!("{n:05}-{name}"), "v".repeat(100), ttl)
                .unwrap();
        }
        db.flush().unwrap();
    }
    c.put("never", "v").unwrap();
    let two_days = at(2 * 86_400_000);
    assert_eq!(c.due_items(..two_days).count(), 2_000);
    // Written or deleted on the way: left out, or where it belongs.
    let mut items = c.due_items(..two_days);
    assert_eq!(items.next().unwrap().unwrap().key(), b"00000-near");
    c.delete("00001-near").unwrap();
    c.put_with_ttl("00002-near", "v", Ttl::Never).unwrap();
    assert_eq!(items.next().unwrap().unwrap().key(), b"00003-near");
    db.close().unwrap();
    assert!(items.next().unwrap().unwrap_err().is_closed());
    assert!(items.next().is_none());
}
