//! Goal: the bytes of what has expired leave the disk by themselves: on time, without a write, and down to the last one
//! when nobody writes.
//!
//! Method: a database on a simulated disk, with a manual clock, background work step by step. Each value carries a mark
//! that no other bytes have; the tables on the disk are searched for the marks of items that expired long enough ago.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fs, Sim};
use ebbtide::{Container, Database, DefaultTtl, ManualClock, Options, Ttl};
use support::random::Random;

const NOW: u64 = 1_767_225_600_000;
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
    let db = Options::new()
        .fs(Arc::new(sim.clone()))
        .clock(clock.clone())
        .stepped()
        .memtable_bytes(64 << 10)
        .sizes(512, 16 << 10, 64 << 10)
        .max_runs(4)
        .background_rate(1 << 40)
        .reclaim_within(Duration::from_millis(WITHIN))
        .reclaim_strict(strict)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
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

impl Stage {
    fn put(&mut self, key: String, life: u64) {
        self.marks += 1;
        let mark = format!("<mark-{:06}>", self.marks);
        let value = format!("{mark}{}", "x".repeat(100));
        self.c
            .put_with_ttl(&key, value, Ttl::After(Duration::from_millis(life)))
            .unwrap();
        self.newest.insert(key, (mark, self.now + life, life));
    }

    /// Time passes, and background work does what it finds.
    fn pass(&mut self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
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

    /// All bytes of all tables.
    fn tables(&self) -> Vec<u8> {
        let folder = Path::new("/db/tables");
        let names = self.sim.list(folder).unwrap();
        let files = names
            .iter()
            .map(|name| self.sim.read(&folder.join(name)).unwrap());
        files.collect::<Vec<_>>().concat()
    }

    /// What stands in tables between angle brackets.
    fn marks(&self) -> BTreeSet<String> {
        let tables = self.tables();
        let marks = tables.split(|&byte| byte == b'<').skip(1);
        let marks = marks.filter_map(|rest| rest.split(|&byte| byte == b'>').next());
        marks
            .map(|mark| format!("<{}>", String::from_utf8_lossy(mark)))
            .collect()
    }

    /// Whether a mark that begins so is in the tables.
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
        let overdue = stage.overdue(strict, longest);
        assert!(
            overdue.is_empty(),
            "round {round}: {} overdue: {:?}",
            overdue.len(),
            &overdue[..overdue.len().min(5)]
        );
    }
    // Nobody writes any more.
    let mut quiet = 0;
    while !stage.newest.is_empty() {
        stage.pass(10_000);
        quiet += 1;
        let overdue = stage.overdue(strict, longest);
        assert!(
            overdue.is_empty(),
            "quiet {quiet}: {} overdue: {:?}",
            overdue.len(),
            &overdue[..overdue.len().min(5)]
        );
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

/// What a changed default ends is due from the change on.
#[test]
fn a_shorter_default_gives_the_bytes_back() {
    let mut stage = stage(false);
    stage.c.set_default_ttl(DefaultTtl::Off).unwrap();
    for n in 0..100 {
        stage
            .c
            .put(format!("k{n:03}"), format!("<mark-{n}>{}", "x".repeat(100)))
            .unwrap();
    }
    stage.db.flush().unwrap();
    stage.pass(3_600_000);
    assert!(stage.has("<mark-"));
    stage
        .c
        .set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
        .unwrap();
    stage.pass(0);
    stage.pass(WITHIN + 60_000 / 8 + 1);
    assert!(!stage.has("<mark-"), "expired bytes are left");
    assert_eq!(stage.c.stats().disk_bytes, 0);
}

/// Turned off for an hour, the default ends nothing in that hour; held by a floor, what was over before goes.
#[test]
fn what_a_floor_holds_down_is_given_back() {
    let mut stage = stage(false);
    stage
        .c
        .set_default_ttl(DefaultTtl::After(Duration::from_secs(10)))
        .unwrap();
    for n in 0..50 {
        stage
            .c
            .put(format!("a{n:03}"), format!("<gone-{n}>{}", "x".repeat(100)))
            .unwrap();
    }
    stage.db.flush().unwrap();
    stage.clock.advance(Duration::from_secs(10));
    for n in 0..50 {
        stage
            .c
            .put(format!("b{n:03}"), format!("<kept-{n}>{}", "x".repeat(100)))
            .unwrap();
    }
    stage.db.flush().unwrap();
    stage.c.set_default_ttl(DefaultTtl::Off).unwrap();
    stage.pass(3_600_000);
    assert!(!stage.has("<gone-"), "expired bytes are left");
    assert!(stage.has("<kept-49>"), "what is alive was dropped");
    assert_eq!(stage.c.iter().count(), 50);
}
