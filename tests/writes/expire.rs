//! Goal: what a container is told to expire is gone at once, for every reader and for good, and nothing else is.
//!
//! Method: a database on a simulated disk with a manual clock, background work step by step. The histories that a person
//! thinks of stand here; random ones, with crashes and power cuts, in tests/contract/histories.rs and tests/crashes/power_cuts.rs.

use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use ebbtide::internals::{Fs, Sim};
use ebbtide::{Batch, Container, DefaultTtl, Durability, Error, ManualClock, Ttl};
use testkit::assert_is;
use testkit::stage::{NOW, PATH, Stage, after, at, default, in_steps, keys, ms, open, text};

fn manifest(f: &Stage) -> String {
    let names = f.sim.list(Path::new(PATH)).unwrap();
    let manifests = names.iter().filter(|name| name.starts_with("manifest-"));
    let last = manifests.max().unwrap();
    let bytes = f.sim.read(&Path::new(PATH).join(last)).unwrap();
    text(&bytes)
}

fn fill(f: &Stage) {
    for key in ["a", "b"] {
        f.c.put(format!("{key}-inherit"), "v").unwrap();
        f.c.put_with_ttl(format!("{key}-own"), "v", after(1_000))
            .unwrap();
        f.c.put_with_ttl(format!("{key}-never"), "v", Ttl::Never)
            .unwrap();
        f.pass(100);
    }
}

#[test]
fn each_command_ends_what_it_says() {
    let all = [
        "a-inherit",
        "a-never",
        "a-own",
        "b-inherit",
        "b-never",
        "b-own",
    ];
    let left = |default: DefaultTtl, tell: &dyn Fn(&Container)| {
        let mut left = vec![];
        // In memory, on disk, and after the bytes are gone.
        for place in 0..3 {
            let f = Stage::small();
            f.c.set_default_ttl(default).unwrap();
            fill(&f);
            if place > 0 {
                f.db.flush().unwrap();
            }
            tell(&f.c);
            if place > 1 {
                f.db.compact().unwrap();
            }
            let there = f.keys();
            for key in all {
                let is_there = there.iter().any(|there| there == key);
                assert_eq!(f.c.contains(key).unwrap(), is_there, "{key}");
                assert_eq!(f.c.get(key).unwrap().is_some(), is_there, "{key}");
                assert_eq!(f.c.item(key).unwrap().is_some(), is_there, "{key}");
            }
            assert_eq!(f.c.stats().live_items, there.len() as u64);
            assert_eq!(f.c.len_estimate(), there.len() as u64);
            left.push(there);
        }
        assert!(left.iter().all(|there| *there == left[0]), "{left:?}");
        left.remove(0)
    };
    let before = |millis| move |c: &Container| c.expire_before(at(millis)).unwrap();
    let written = |millis| move |c: &Container| c.expire_written_before(at(millis)).unwrap();
    // The ends: a-own at 1000, b-own at 1100; with a default of 2000 a-inherit at 2000, b-inherit at 2100.
    assert_eq!(left(default(2_000), &before(1_000)), all);
    assert_eq!(
        left(default(2_000), &before(1_001)),
        ["a-inherit", "a-never", "b-inherit", "b-never", "b-own"]
    );
    assert_eq!(
        left(default(2_000), &before(2_001)),
        ["a-never", "b-inherit", "b-never"]
    );
    assert_eq!(
        left(default(2_000), &before(u64::MAX / 4)),
        ["a-never", "b-never"]
    );
    let without = left(DefaultTtl::NoDefault, &before(u64::MAX / 4));
    assert_eq!(without, ["a-inherit", "a-never", "b-inherit", "b-never"]);
    assert_eq!(left(DefaultTtl::Off, &before(u64::MAX / 4)), all);
    for default in [DefaultTtl::Off, DefaultTtl::NoDefault, default(2_000)] {
        assert_eq!(left(default, &written(0)), all);
        assert_eq!(
            left(default, &written(1)),
            ["b-inherit", "b-never", "b-own"]
        );
        assert_eq!(left(default, &written(101)), [""; 0]);
        assert_eq!(left(default, &|c| c.expire_all().unwrap()), [""; 0]);
    }
    // A moment is rounded up to a millisecond, so that nothing stays that ends before it.
    let between = |c: &Container| {
        c.expire_before(at(1_000) + Duration::from_nanos(1))
            .unwrap()
    };
    assert_eq!(left(default(2_000), &between).len(), 5);
    assert_eq!(
        left(default(2_000), &|c| c.expire_before(UNIX_EPOCH).unwrap()),
        all
    );
}

#[test]
fn nothing_brings_back_what_a_command_ended() {
    for orderly in [true, false] {
        let mut f = Stage::small();
        f.c.set_default_ttl(default(2_000)).unwrap();
        fill(&f);
        f.db.flush().unwrap();
        f.c.put_with_ttl("c", "v", after(500)).unwrap();
        f.c.expire_before(at(1_001)).unwrap();
        f.c.put_with_ttl("later", "v", after(10)).unwrap();
        let left = [
            "a-inherit",
            "a-never",
            "b-inherit",
            "b-never",
            "b-own",
            "later",
        ];
        for to in [DefaultTtl::Off, DefaultTtl::NoDefault, default(1_000_000)] {
            assert_eq!(f.keys(), left);
            f.c.set_default_ttl(to).unwrap();
            f = f.reopen(orderly);
        }
        assert_eq!(f.keys(), left);
        f.db.compact().unwrap();
        assert_eq!(f.reopen(orderly).keys(), left);
    }
}

#[test]
fn what_is_written_later_is_not_concerned() {
    let f = Stage::small();
    f.c.put("k", "old").unwrap();
    f.c.expire_before(at(1_000_000)).unwrap();
    f.c.expire_written_before(at(1_000_000)).unwrap();
    assert!(!f.c.contains("k").unwrap());
    assert!(!f.c.touch("k").unwrap(), "a touch finds nothing");
    assert!(!f.c.replace("k", "x", Ttl::Keep).unwrap());
    assert!(f.c.create("k", "new", after(10)).unwrap());
    assert_eq!(f.c.get("k").unwrap().unwrap(), "new");
    f.c.put("l", "v").unwrap();
    // A change of the default, which raises the floors, leaves them alone.
    f.c.set_default_ttl(DefaultTtl::Off).unwrap();
    assert_eq!(f.keys(), ["k", "l"]);
    f.c.expire_all().unwrap();
    f.c.put_with_ttl("m", "v", Ttl::Keep).unwrap();
    assert_eq!(f.keys(), ["m"]);
    let f = f.reopen(false);
    assert_eq!(f.keys(), ["m"]);
}

#[test]
fn snapshots_and_iterators_lose_it_too() {
    let f = Stage::small();
    fill(&f);
    let snapshot = f.db.snapshot();
    let (mut iter, mut back) = (f.c.iter(), snapshot.container("c").unwrap().iter().rev());
    assert_eq!(iter.next().unwrap().unwrap().key(), b"a-inherit");
    assert_eq!(back.next().unwrap().unwrap().key(), b"b-own");
    f.c.expire_written_before(at(100)).unwrap();
    assert_eq!(keys(iter.by_ref()), ["b-inherit", "b-never", "b-own"]);
    assert_eq!(keys(back.by_ref()), ["b-never", "b-inherit"]);
    assert_eq!(snapshot.container("c").unwrap().count(..).unwrap(), 3);
    f.c.expire_all().unwrap();
    f.c.put("new", "v").unwrap();
    assert_eq!(snapshot.container("c").unwrap().iter().count(), 0);
    f.db.flush().unwrap();
    f.rest();
    assert_eq!(f.c.stats().expired_bytes, 0, "no snapshot keeps the bytes");
}

/// A write that relies on an item notices that it was ended meanwhile, even if nothing is left that tells.
#[test]
fn an_update_notices_a_command_that_is_forgotten_again() {
    for ttl in [DefaultTtl::Off, DefaultTtl::NoDefault] {
        let f = Stage::small();
        f.c.set_default_ttl(ttl).unwrap();
        f.c.put_with_ttl("k", "v", Ttl::Never).unwrap();
        f.db.flush().unwrap();
        let mut seen = vec![];
        let changed = f.c.update("k", |item| {
            seen.push(item.is_some());
            if seen.len() == 1 {
                testkit::patience::elsewhere(|| {
                    f.c.expire_all().unwrap();
                    f.db.compact().unwrap();
                    f.c.expire_all().unwrap();
                });
            }
            match item {
                Some(_) => ebbtide::Update::Put("w", Ttl::Never),
                None => ebbtide::Update::Keep,
            }
        });
        assert!(!changed.unwrap());
        assert_eq!(seen, [true, false]);
        assert!(f.keys().is_empty());
    }
}

/// Commands that none of the others covers are counted; what is done about it helps.
#[test]
fn not_every_command_stands() {
    let f = Stage::small();
    f.c.put_with_ttl("what each concerns", "v", after(9))
        .unwrap();
    for n in 0..64 {
        f.c.put_with_ttl(format!("k{n}"), "v", after(1_000_000))
            .unwrap();
        let then = f.c.preview_expire_before(at(100_000 - 100 * n)).commands;
        f.c.expire_before(at(100_000 - 100 * n)).unwrap();
        assert_eq!((f.c.stats().expire_commands, then), (n + 1, n + 1));
    }
    assert_eq!(f.c.preview_expire_before(at(10)).commands, 65);
    assert_eq!(f.c.preview_expire_before(at(95_000)).commands, 51);
    let written = |moment| f.c.preview_expire_written_before(at(moment)).commands;
    assert_eq!((written(10_000), written(200_000)), (65, 1));
    let off = f.c.preview_default_ttl(DefaultTtl::Off);
    assert_eq!(off.commands, 64, "none has passed");
    let refused = f.c.expire_before(at(10)).unwrap_err();
    assert_is!(refused, Error::TooManyCommands { .. });
    assert!(refused.is_retryable());
    let mut batch = Batch::new();
    batch.put(&f.c, "nothing", "v").expire_before(&f.c, at(10));
    let refused = f.db.write(&batch).unwrap_err();
    assert_is!(refused, Error::TooManyCommands { .. });
    assert!(!f.c.contains("nothing").unwrap());
    assert_eq!(f.keys().len(), 64);
    f.c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    // One that covers some, and one after the moment of some has passed: that until 100 000 is left.
    f.c.expire_before(at(99_000)).unwrap();
    f.pass(99_550);
    for n in 0..63 {
        f.c.expire_before(at(99_900 - n)).unwrap();
    }
    f.c.expire_before(at(99_551)).unwrap();
    assert!(f.c.expire_before(at(99_552)).is_err());
    assert_eq!(f.keys().len(), 64);
    f.c.expire_all().unwrap();
    assert!(f.keys().is_empty());
    for n in 0..200 {
        // Earlier writes were flushed out, so the commands that concerned them are not needed any more.
        f.c.put(format!("k{n}"), "v").unwrap();
        f.c.expire_before(at(1_000_000 - n)).unwrap();
        f.db.flush().unwrap();
        f.db.compact().unwrap();
        f.c.expire_written_before(at(99_550 - n)).unwrap();
    }
    assert_eq!(f.keys().len(), 200);
    assert!(f.c.stats().expire_commands <= 2, "nothing needs the others");
    f.c.expire_all().unwrap();
    assert_eq!(f.c.stats().expire_commands, 1);
    f.db.flush().unwrap();
    f.db.compact().unwrap();
    assert_eq!(f.c.stats().expire_commands, 0, "nothing is stored");
    assert!(f.reopen(false).keys().is_empty());
}

/// A command goes with the last record that it concerns; until then it stays, whatever holds the record.
#[test]
fn a_command_is_forgotten_once_it_concerns_nothing() {
    for place in 0..3 {
        let mut f = Stage::small();
        f.c.put_with_ttl("k", "v", Ttl::Never).unwrap();
        if place == 1 {
            f.db.flush().unwrap();
        }
        f.pass(1);
        f.c.expire_written_before(at(1)).unwrap();
        f.c.put_with_ttl("l", "v", Ttl::Never).unwrap();
        if place == 2 {
            f.db.flush().unwrap();
        }
        for _ in 0..3 {
            f = f.reopen(false);
            assert_eq!(manifest(&f).contains("\"commands\""), place < 2, "{place}");
            assert_eq!(f.keys(), ["l"]);
        }
        f.db.flush().unwrap();
        f.db.compact().unwrap();
        f = f.reopen(true);
        assert!(!manifest(&f).contains("\"commands\""), "{}", manifest(&f));
        assert_eq!(f.keys(), ["l"]);
    }
}

/// Told and killed, without a sync by anybody else.
#[test]
fn a_command_is_durable_when_it_returns() {
    for seed in 0..8 {
        let f = Stage::small();
        f.c.put("k", "v").unwrap();
        f.db.sync().unwrap();
        match seed % 2 {
            0 => f.c.expire_all().unwrap(),
            _ => {
                let mut batch = Batch::new();
                batch.expire_all(&f.c).durability(Durability::Buffered);
                f.db.write(&batch).unwrap();
            }
        }
        let (db, _) = f.open_on(&f.sim.power_cut(seed));
        assert!(db.container("c").unwrap().is_empty().unwrap(), "{seed}");
    }
}

/// A checkpoint, a repair and a follower know of the commands.
#[test]
fn copies_and_followers_know_of_it() {
    let f = Stage::small();
    f.c.put_with_ttl("k", "v", Ttl::Never).unwrap();
    f.c.put_with_ttl("l", "v", after(1_000)).unwrap();
    f.db.flush().unwrap();
    let follower = f.options().follow("/db").unwrap();
    let followed = follower.container("c").unwrap();
    let (mut iter, snapshot) = (followed.iter(), follower.snapshot());
    assert_eq!(iter.next().unwrap().unwrap().key(), b"k");
    f.c.expire_before(at(1_001)).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(keys(followed.iter()), ["k"]);
    assert_eq!(iter.count(), 0);
    f.db.write(Batch::new().expire_all(&f.c)).unwrap();
    f.c.put("m", "v").unwrap();
    follower.catch_up().unwrap();
    assert_eq!(keys(followed.iter()), ["m"]);
    assert_eq!(snapshot.container("c").unwrap().iter().count(), 0);
    f.db.checkpoint("/copy").unwrap();
    let copy = f.options().open("/copy").unwrap();
    assert_eq!(keys(copy.container("c").unwrap().iter()), ["m"]);
    // A reader of earlier writes still needs the command, also when a reopen has left it out.
    f.db.flush().unwrap();
    f.db.compact().unwrap();
    let f = f.reopen(true);
    assert!(!manifest(&f).contains("\"commands\""));
    follower.catch_up().unwrap();
    assert_eq!(keys(followed.iter()), ["m"]);
    assert_eq!(snapshot.container("c").unwrap().iter().count(), 0);
}

/// The items that would be gone are said before, and these go.
#[test]
fn a_preview_says_what_would_be_gone() {
    let f = Stage::small();
    for n in 0..20_000u64 {
        let ttl = match n % 4 {
            0 => Ttl::Never,
            1 => Ttl::Inherit,
            _ => after(n),
        };
        f.c.put_with_ttl(format!("k{n:06}"), "v".repeat(n as usize % 50), ttl)
            .unwrap();
        if n % 100 == 0 {
            f.pass(10);
            while f.db.step().unwrap() {}
        }
    }
    let stats = f.c.stats();
    let near = |found: u64, expected: u64, of: u64| found.abs_diff(expected) <= of / 20;
    let told = [7_000, 15_000].map(|moment| (moment, f.c.preview_expire_before(at(moment))));
    let preview = f.c.preview_default_ttl(default(1_000));
    let (items, bytes) = (f.c.iter().count() as u64, stats.live_bytes);
    assert!(near(preview.items, 5_000 / 2, items), "{preview:?}");
    for (moment, preview) in told {
        let (before, bytes_before) = (f.c.iter().count() as u64, f.c.stats().live_bytes);
        let gone_before = items - before;
        f.c.expire_before(at(moment)).unwrap();
        let gone = items - f.c.iter().count() as u64;
        assert!(near(preview.items, gone, items), "{preview:?}, {gone}");
        let left = f.c.stats().live_bytes;
        assert!(near(preview.bytes, bytes - left, bytes), "{preview:?}");
        assert!(gone > gone_before && left < bytes_before);
    }
    let preview = f.c.preview_expire_written_before(at(1_000));
    let before = f.c.iter().count() as u64;
    f.c.expire_written_before(at(1_000)).unwrap();
    let gone = before - f.c.iter().count() as u64;
    assert!(
        gone > 1_000 && near(preview.items, gone, items),
        "{preview:?}, {gone}"
    );
    let left = f.c.iter().count() as u64;
    assert!(near(f.c.len_estimate(), left, items), "{left}");
    f.c.expire_all().unwrap();
    assert_eq!((f.c.len_estimate(), f.c.stats().live_bytes), (0, 0));
    f.c.put("new", "v").unwrap();
    assert_eq!(f.c.len_estimate(), 1);
}

/// The cost does not depend on what is stored.
#[test]
fn a_command_takes_the_same_time_whatever_is_stored() {
    let f = Stage::small();
    let (sim, clock) = (Sim::new(2), ManualClock::new(NOW));
    let (db, c) = open(in_steps(&sim, &clock));
    for n in 0..200_000u32 {
        c.put(n.to_be_bytes(), "v").unwrap();
    }
    db.flush().unwrap();
    let time = |c: &Container| {
        let once = |_| {
            let begun = Instant::now();
            c.expire_written_before(at(0)).unwrap();
            begun.elapsed()
        };
        (0..20).map(once).min().unwrap()
    };
    let (little, much) = (time(&f.c), time(&c));
    assert!(much < 20 * little + ms(1), "{little:?}, {much:?}");
    c.expire_all().unwrap();
    assert!(c.is_empty().unwrap());
}

/// Records that many commands concern are reclaimed before `reclaim_within`, so that there is room for the next.
#[test]
fn many_commands_hurry_reclaiming() {
    let f = Stage::small();
    f.c.put_with_ttl("stays", "v", after(400_000_000_000))
        .unwrap();
    for n in 0..500 {
        let bound = 2_000_000_000 - 1_000 * n;
        f.c.put_with_ttl(format!("k{n}"), "v", after(bound - 500))
            .unwrap();
        // No other one covers it: those before were about earlier writes, and those to come end less.
        f.c.expire_before(at(bound)).unwrap();
        f.rest();
        assert!(f.c.stats().expire_commands <= 33, "{n}");
    }
    assert_eq!(f.keys(), ["stays"]);
    assert_eq!(f.c.stats().overdue, Duration::ZERO);
}
