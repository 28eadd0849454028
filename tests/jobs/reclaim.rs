//! Goal: the bytes of expired items leave the disk by themselves: on time, without a write, and completely when nobody
//! writes.
//!
//! Method: a database on a simulated disk, with a manual clock, background work step by step. Each value carries a mark
//! that no other bytes have; all files, tables and log alike, are searched for the marks of items that expired long
//! enough ago. Once more with threads, the real clock and real files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim};
use ebbtide::{Container, Database, DefaultTtl, Error, ManualClock, Options, Ttl};
use testkit::random::Random;
use testkit::stage::{NOW, after, default, in_steps, ms, open, rest, seconds};

const WITHIN: u64 = 60_000;

struct Stage {
    sim: Sim,
    clock: ManualClock,
    db: Database,
    c: Container,
    now: u64,
    /// By mark: when the bytes of this version stopped to count, and how long it was to live.
    ended: BTreeMap<String, (u64, u64)>,
    /// By key: the mark of its newest version and its expiry.
    newest: BTreeMap<String, (String, u64, u64)>,
    marks: u64,
}

fn stage(strict: bool) -> Stage {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (db, c) = open(
        in_steps(&sim, &clock)
            .memtable_bytes(64 << 10)
            .sizes(512, 16 << 10, 64 << 10)
            .max_runs(4)
            .background_rate(1 << 40)
            .reclaim_within(ms(WITHIN))
            .reclaim_strict(strict),
    );
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let (ended, newest) = (BTreeMap::new(), BTreeMap::new());
    Stage {
        sim,
        clock,
        db,
        c,
        now: NOW,
        ended,
        newest,
        marks: 0,
    }
}

fn marks_in(bytes: &[u8]) -> impl Iterator<Item = String> {
    let rests = bytes.split(|&byte| byte == b'<').skip(1);
    let marks = rests.filter_map(|rest| rest.split(|&byte| byte == b'>').next());
    marks.map(|mark| format!("<{}>", String::from_utf8_lossy(mark)))
}

impl Stage {
    fn put(&mut self, key: String, life: u64) {
        self.marks += 1;
        let mark = format!("<mark-{:06}>", self.marks);
        let value = format!("{mark}{}", "x".repeat(100));
        self.c.put_with_ttl(&key, value, after(life)).unwrap();
        self.newest.insert(key, (mark, self.now + life, life));
    }

    /// So many items whose marks begin so.
    fn fill(&self, mark: &str, count: u64, ttl: Ttl) {
        for n in 0..count {
            let value = format!("<{mark}-{n}>{}", "x".repeat(100));
            let key = format!("{n:03}-{mark}");
            self.c.put_with_ttl(key, value, ttl).unwrap();
        }
    }

    /// Time passes, and background work does what it finds.
    fn pass(&mut self, millis: u64) {
        self.clock.advance(ms(millis));
        self.now += millis;
        for (mark, ends, life) in self.newest.values() {
            if *ends <= self.now {
                self.ended.insert(mark.clone(), (*ends, *life));
            }
        }
        self.newest.retain(|_, (_, ends, _)| *ends > self.now);
        let rested = (0..500).any(|_| !self.db.step().unwrap());
        assert!(
            rested,
            "background work does not come to rest:\n{}",
            self.db.describe()
        );
    }

    /// The texts that stand in any file between angle brackets.
    fn marks(&self) -> BTreeSet<String> {
        let mut marks = BTreeSet::new();
        for folder in ["/db", "/db/tables", "/db/wal"].map(Path::new) {
            for name in self.sim.list(folder).unwrap() {
                marks.extend(marks_in(&self.sim.read(&folder.join(name)).unwrap()));
            }
        }
        marks
    }

    /// Whether a mark that begins so is in any file.
    fn has(&self, start: &str) -> bool {
        self.marks().iter().any(|mark| mark.starts_with(start))
    }

    /// The marks of items that expired longer ago than they may be kept.
    fn overdue(&self, strict: bool, longest: u64) -> Vec<String> {
        let grace = if strict {
            WITHIN
        } else {
            WITHIN.max(longest / 8)
        };
        let there = self.marks();
        let late = self
            .ended
            .iter()
            .filter(|(_, (ends, _))| ends + grace < self.now);
        late.filter(|(mark, _)| there.contains(*mark))
            .map(|(mark, (ends, life))| {
                format!("{mark} of {life} ms, over for {} ms", self.now - ends)
            })
            .collect()
    }

    fn is_on_time(&self, strict: bool, longest: u64, when: &str) {
        let overdue = self.overdue(strict, longest);
        let (all, some) = (overdue.len(), &overdue[..overdue.len().min(5)]);
        assert!(overdue.is_empty(), "{when}: {all} overdue: {some:?}");
    }
}

fn mixed_lifetimes(strict: bool) {
    let mut stage = stage(strict);
    let mut random = Random(3);
    let mut longest = 0;
    for round in 0..60 {
        for n in 0..40 {
            let life = random.pick(&[5_000, 20_000, 90_000, 300_000, 1_200_000]);
            longest = longest.max(life);
            stage.put(format!("k{round:02}-{n:02}"), life);
        }
        stage.pass(10_000);
        stage.is_on_time(strict, longest, &format!("round {round}"));
    }
    // Nobody writes any more.
    let mut quiet = 0;
    while !stage.newest.is_empty() {
        stage.pass(10_000);
        quiet += 1;
        stage.is_on_time(strict, longest, &format!("quiet {quiet}"));
        assert_eq!(stage.db.stats().overdue, Duration::ZERO, "quiet {quiet}");
    }
    stage.pass(WITHIN + longest / 8 + 1);
    assert!(!stage.has("<mark-"), "expired bytes are left");
    let stats = stage.c.stats();
    assert_eq!(
        (
            stats.expired_bytes,
            stats.oldest_unreclaimed,
            stats.live_items
        ),
        (0, None, 0),
        "{stats:?}"
    );
    assert_eq!(stats.memtable_bytes, stage.db.stats().memtable_bytes);
    assert!(stage.c.iter().next().is_none());
}

#[test]
fn expired_bytes_leave_on_time() {
    mixed_lifetimes(false);
}

#[test]
fn expired_bytes_leave_strictly_on_time() {
    mixed_lifetimes(true);
}

/// A few expired bytes among much that lives for ever: no share of garbage asks for a rewrite, and yet they go.
#[test]
fn the_last_expired_byte_leaves_an_idle_database() {
    let mut stage = stage(false);
    for n in 0..300 {
        stage
            .c
            .put_with_ttl(format!("k{n:03}"), vec![b'y'; 100], Ttl::Never)
            .unwrap();
    }
    stage.put("k-short".into(), 1_000);
    stage.db.flush().unwrap();
    stage.put("k-shorter".into(), 500);
    stage.pass(1_000);
    stage.pass(WITHIN);
    stage.pass(1);
    assert!(!stage.has("<mark-"), "expired bytes are left");
    assert_eq!(stage.c.iter().count(), 300);
    assert_eq!(stage.c.stats().oldest_unreclaimed, None);
}

/// Items that a changed default ends are due from the change on.
#[test]
fn a_shorter_default_gives_the_bytes_back() {
    let mut stage = stage(false);
    stage.c.set_default_ttl(DefaultTtl::Off).unwrap();
    stage.fill("mark", 100, Ttl::Inherit);
    stage.db.flush().unwrap();
    stage.pass(3_600_000);
    assert!(stage.has("<mark-"));
    stage.c.set_default_ttl(default(60_000)).unwrap();
    stage.pass(0);
    stage.pass(WITHIN + 60_000 / 8 + 1);
    assert!(!stage.has("<mark-"), "expired bytes are left");
    assert_eq!(stage.c.stats().disk_bytes, 0);
}

/// Items that a command ends are due from the command on: in whole tables, parts of tables and memory, by their ends, by
/// when they were written, and also what never expires.
#[test]
fn what_a_command_ends_is_given_back() {
    for place in 0..4 {
        let mut stage = stage(false);
        let day = |days: u64| Ttl::After(seconds(86_400 * days));
        stage.fill("gone-own", 100, day(10));
        stage.fill("gone-never", 100, Ttl::Never);
        stage.fill("kept-own", 100, day(20));
        if place > 0 {
            stage.db.flush().unwrap();
        }
        if place > 1 {
            stage.pass(100);
            stage.db.compact().unwrap();
        }
        stage.pass(1_000);
        stage.fill("kept-never", 100, Ttl::Never);
        if place > 2 {
            stage.db.flush().unwrap();
        }
        let moment = |millis: u64| std::time::UNIX_EPOCH + ms(millis);
        stage
            .c
            .expire_before(moment(NOW + 15 * 86_400_000))
            .unwrap();
        assert_eq!(stage.c.iter().count(), 300);
        stage.c.expire_written_before(moment(NOW + 1)).unwrap();
        stage.fill("kept-later", 100, day(1));
        assert_eq!(stage.c.iter().count(), 200);
        let oldest = stage.c.stats().oldest_unreclaimed;
        assert_eq!(oldest, Some(moment(stage.now)), "{place}");
        stage.pass(0);
        // An eighth of the longest lifetime.
        stage.pass(20 * 86_400_000 / 8 - 86_400_000 - 1_000);
        stage.pass(86_400_000);
        assert!(!stage.has("<gone-"), "expired bytes are left: {place}");
        assert!(!stage.has("<kept-own"), "expired bytes are left: {place}");
        assert!(
            stage.has("<kept-never-99>"),
            "what lives was dropped: {place}"
        );
        assert_eq!(stage.c.stats().oldest_unreclaimed, None, "{place}");
        stage.c.expire_all().unwrap();
        stage.pass(0);
        stage.pass(WITHIN);
        stage.pass(1);
        assert!(!stage.has("<kept-"), "expired bytes are left: {place}");
        assert_eq!(stage.c.stats().disk_bytes, 0);
    }
}

/// Nothing is read of tables that a command ends as a whole, and nothing waits.
#[test]
fn tables_that_a_command_ends_go_at_once() {
    let mut stage = stage(false);
    for n in 0..2_000 {
        stage
            .c
            .put_with_ttl(format!("{n:05}"), "v".repeat(100), Ttl::Never)
            .unwrap();
    }
    stage.db.flush().unwrap();
    stage.pass(0);
    assert!(stage.c.stats().disk_bytes > 100_000);
    let merged = stage.db.stats().bytes_merged;
    stage.c.expire_all().unwrap();
    stage.pass(0);
    assert_eq!(stage.c.stats().disk_bytes, 0);
    assert_eq!(stage.db.stats().bytes_merged, merged);
}

/// Turned off for an hour, the default ends nothing in that hour; held by a floor, what was over before goes.
#[test]
fn what_a_floor_holds_down_is_given_back() {
    let mut stage = stage(false);
    stage.c.set_default_ttl(default(10_000)).unwrap();
    stage.fill("gone", 50, Ttl::Inherit);
    stage.db.flush().unwrap();
    stage.clock.advance(seconds(10));
    stage.fill("kept", 50, Ttl::Inherit);
    stage.db.flush().unwrap();
    stage.c.set_default_ttl(DefaultTtl::Off).unwrap();
    stage.pass(3_600_000);
    assert!(!stage.has("<gone-"), "expired bytes are left");
    assert!(stage.has("<kept-49>"), "what is alive was dropped");
    assert_eq!(stage.c.iter().count(), 50);
}

/// Nothing but the log ever held these.
#[test]
fn what_expires_in_memory_leaves_the_log_of_an_idle_database() {
    let mut stage = stage(false);
    for n in 0..100 {
        stage.put(format!("k{n:03}"), 1_000);
    }
    stage.pass(1_000);
    assert!(stage.has("<mark-"));
    stage.pass(WITHIN * 3 / 4);
    assert!(!stage.has("<mark-"), "expired bytes are left");
    let log_bytes = stage.db.stats().log_bytes;
    assert!(log_bytes <= 2 * (64 << 10), "{log_bytes} bytes of log");
}

/// A few items that stay in memory for long need the log's oldest segment, in which all that was flushed lies too.
#[test]
fn what_another_container_keeps_in_the_log_leaves_on_time() {
    for few in [1, 200] {
        let mut stage = stage(false);
        let quiet = stage.db.container("quiet").unwrap();
        for round in 0..30 {
            for n in 0..few {
                quiet
                    .put_with_ttl(format!("{round}-{n}"), [b'q'; 50], Ttl::Never)
                    .unwrap();
            }
            for n in 0..50 {
                stage.put(format!("k{round:02}-{n:02}"), 20_000);
            }
            stage.pass(7_000);
            let overdue = stage.overdue(true, 0);
            assert!(overdue.is_empty(), "round {round}: {overdue:?}");
        }
        stage.pass(20_000);
        stage.pass(WITHIN / 2);
        stage.pass(WITHIN / 4);
        assert!(!stage.has("<mark-"), "expired bytes are left");
        assert_eq!(quiet.iter().count(), 30 * few);
    }
}

/// The log is trimmed while there is always a full memtable to flush, also for one that no flush takes along.
#[test]
fn a_quiet_container_keeps_no_long_log_beside_a_busy_one() {
    // Of forty the memtable is sealed first, being the larger one, and flushed first.
    for few in [1, 20, 40, 55] {
        let stage = stage(false);
        let quiet = stage.db.container("quiet").unwrap();
        for n in 0..few {
            quiet
                .put_with_ttl(format!("{n}"), [b'q'; 1_000], Ttl::Never)
                .unwrap();
        }
        let (mut most, mut written) = (0, 0);
        for _ in 0..30 {
            // Not so much that a writer waits, and flushes all.
            while stage.db.stats().memtable_bytes < 110 << 10 {
                stage.c.put(format!("{written:05}"), [b'x'; 1_000]).unwrap();
                written += 1;
            }
            assert!(stage.db.step().unwrap());
            most = most.max(stage.db.stats().log_bytes);
        }
        assert!(written > 500, "{written}");
        assert!(most <= 352 << 10, "{most} bytes of log beside {few}");
        assert_eq!(quiet.iter().count(), few);
    }
}

/// The log of a dropped container goes like that of a flushed one.
#[test]
fn a_dropped_container_leaves_no_bytes() {
    let mut stage = stage(false);
    for n in 0..100 {
        stage.put(format!("k{n:03}"), 3_600_000);
    }
    let quiet = stage.db.container("quiet").unwrap();
    quiet.put_with_ttl("k", "v", Ttl::Never).unwrap();
    stage.db.drop_container("c").unwrap();
    stage.pass(WITHIN / 4);
    assert!(!stage.has("<mark-"), "dropped bytes are left");
    assert!(quiet.get("k").unwrap().is_some());
}

/// Expired bytes are gone in time, if any operation fails once while they are given back.
#[test]
fn a_failure_while_bytes_are_given_back_is_made_good_in_time() {
    let (mut failed, mut poisoned) = (0, 0);
    for after in 1..60 {
        let mut stage = stage(false);
        let quiet = stage.db.container("quiet").unwrap();
        quiet.put_with_ttl("k", "v", Ttl::Never).unwrap();
        for n in 0..50 {
            stage.put(format!("k{n:03}"), 1_000);
        }
        let plan = FaultPlan {
            at: stage.sim.operations() + after,
            kind: Fault::Full,
            lasting: false,
        };
        stage.sim.fail(plan);
        for _ in 0..13 {
            stage.clock.advance(ms(5_000));
            while match stage.db.step() {
                Ok(more) => more,
                Err(_) => {
                    failed += 1;
                    false
                }
            } {}
        }
        // A failed sync is final: such a database takes no write, and gives nothing back.
        if matches!(quiet.put("k", "v"), Err(Error::Poisoned { .. })) {
            poisoned += 1;
            continue;
        }
        assert!(
            !stage.has("<mark-"),
            "expired bytes are left, failed at {after}"
        );
        assert!(quiet.get("k").unwrap().is_some());
    }
    assert!(poisoned < 10, "{poisoned} syncs failed");
    assert!(failed > 5, "{failed} failures were met");
}

/// Fills a key range with items of a hundred bytes, in an order that touches all of it in every memtable.
fn fill_shuffled(c: &Container, keys: std::ops::Range<u64>, round: u64, ttl: Ttl) {
    let len = keys.end - keys.start;
    for at in 0..len {
        let key = keys.start + (at * 7_919 + round) % len;
        c.put_with_ttl(key.to_be_bytes(), [round as u8; 100], ttl)
            .unwrap();
    }
}

// Half of the data never expires, half lives a minute: the first half stays where it is.
#[test]
fn what_never_expires_is_not_rewritten_for_what_does() {
    let stage = stage(false);
    let (db, c) = (&stage.db, &stage.c);
    fill_shuffled(c, 0..6_000, 1, Ttl::Never);
    db.compact().unwrap();
    let tables = |stage: &Stage| -> BTreeSet<String> {
        let names = stage.sim.list(Path::new("/db/tables")).unwrap();
        names.into_iter().collect()
    };
    let never = tables(&stage);
    for round in 0..40 {
        fill_shuffled(c, 10_000..11_000, round, after(60_000));
        rest(db);
        stage.clock.advance(seconds(10));
        rest(db);
        assert!(tables(&stage).is_superset(&never), "round {round}");
    }
    assert_eq!(c.iter().count(), 7_000);
}

// A retention of 30 days becomes one of a day: from that instant nobody sees what is older, and soon it is gone; then it
// becomes one of 60 days, and what was not expired lives on.
#[test]
fn a_retention_can_be_cut_and_raised() {
    let stage = stage(false);
    let (db, c) = (&stage.db, &stage.c);
    let days = |days: u64| DefaultTtl::After(seconds(86_400 * days));
    c.set_default_ttl(days(30)).unwrap();
    for day in 0..20u64 {
        fill_shuffled(c, 500 * day..500 * (day + 1), day, Ttl::Inherit);
        rest(db);
        stage.clock.advance(seconds(86_400));
    }
    assert_eq!(c.iter().count(), 10_000);
    c.set_default_ttl(days(1)).unwrap();
    fill_shuffled(c, 20_000..20_500, 30, Ttl::Inherit);
    assert_eq!(
        c.iter().count(),
        500,
        "the last day's items expired this very moment"
    );
    stage.clock.advance(ms(WITHIN));
    rest(db);
    let stats = c.stats();
    assert_eq!((stats.expired_bytes, stats.oldest_unreclaimed), (0, None));
    assert!(stats.disk_bytes < 200_000, "{}", stats.disk_bytes);
    c.set_default_ttl(days(60)).unwrap();
    stage.clock.advance(seconds(86_400 * 59));
    rest(db);
    assert_eq!(c.iter().count(), 500);
    stage.clock.advance(seconds(86_400));
    assert_eq!(c.iter().count(), 0);
    // An eighth of the lifetime is more than what was asked for.
    stage.clock.advance(seconds(86_400 * 8));
    rest(db);
    assert_eq!(c.stats().disk_bytes, 0);
    let lag = db.stats().reclaim_lag;
    assert!(
        lag.bytes() > 10_000 * 100 && lag.longest() <= ms(86_400_000 * 8 + WITHIN),
        "{lag:?}"
    );
}

/// All marks of items in the files of a folder and those in it. A file may go while it is looked at.
fn marks_below(folder: &Path) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            marks.extend(marks_below(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            marks.extend(marks_in(&bytes).filter(|mark| mark.starts_with("<mark-")));
        }
    }
    marks
}

#[test]
fn no_expired_byte_is_left_on_a_real_disk_when_nobody_writes() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new()
        .memtable_bytes(1 << 20)
        .reclaim_within(seconds(2))
        .open(folder.path())
        .unwrap();
    let (dated, quiet) = (db.container("c").unwrap(), db.container("quiet").unwrap());
    dated.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    for n in 0..30_000 {
        let value = format!("<mark-{n}>{}", "x".repeat(100));
        let life = after(500 + n % 1_000);
        dated.put_with_ttl(format!("k{n:06}"), value, life).unwrap();
        if n % 1_000 == 0 {
            quiet.put(format!("{n}"), "kept").unwrap();
        }
    }
    let left = || marks_below(folder.path());
    assert!(!left().is_empty());
    // Three seconds and a half; the rest is for a machine that does other things.
    let mut looks = 0..600;
    while !left().is_empty() && looks.next().is_some() {
        std::thread::sleep(ms(100));
    }
    assert_eq!(left(), BTreeSet::new());
    assert_eq!(quiet.iter().count(), 30);
    db.close().unwrap();
}
