//! Goal: scans pass over ranges of dead records that another scan has found, and show the same as reads of each key.
//!
//! Method: random histories on a simulated disk, in which most keys are dead at any time, with writes, ends, flushes,
//! merges and loads between scans of the newest state, of snapshots and of transactions, from both ends. A read of each key
//! says what is live.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ebbtide::internals::Sim;
use ebbtide::{Container, Database, DefaultTtl, Item, ManualClock, Options, Snapshot};
use testkit::random::Random;
use testkit::stage::{self, NOW, default, in_steps, ms, seconds};

const KEYS: u64 = 1_000;

fn key(n: u64) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

fn open(seed: u64, clock: &ManualClock) -> (Database, Container) {
    let options = in_steps(&Sim::new(seed), clock).sizes(512, 8 << 10, 64 << 10);
    stage::open(options.memtable_bytes(256 << 10))
}

struct World {
    random: Random,
    clock: ManualClock,
    db: Database,
    c: Container,
    snapshots: Vec<Snapshot>,
}

impl World {
    fn new(seed: u64) -> World {
        let clock = ManualClock::new(NOW);
        let (db, c) = open(seed, &clock);
        World {
            random: Random(seed),
            clock,
            db,
            c,
            snapshots: vec![],
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next() % end
    }

    fn span(&mut self) -> (u64, u64) {
        let from = self.below(KEYS);
        (from, (from + 1 + self.below(400)).min(KEYS))
    }

    fn write(&mut self) {
        let (from, to) = self.span();
        match self.below(16) {
            0 => (from..to).for_each(|n| self.c.put(key(n), b"v").unwrap()),
            1 => {
                let ttl = ms(1 + self.below(3_000));
                (from..to).for_each(|n| self.c.put_with_ttl(key(n), b"t", ttl).unwrap());
            }
            2..6 => (from..to).for_each(|n| self.c.delete(key(n)).unwrap()),
            6 => (from..to)
                .step_by(7)
                .for_each(|n| _ = self.c.touch(key(n)).unwrap()),
            7 => self.c.delete_range(key(from)..key(to)).unwrap(),
            8 => {
                let items = (from..to).map(|n| (key(n), b"l"));
                self.c.bulk_load(items).unwrap();
            }
            9 => {
                let after = default(1 + self.below(5_000));
                let default =
                    [DefaultTtl::Off, DefaultTtl::NoDefault, after][self.below(3) as usize];
                self.c.set_default_ttl(default).unwrap();
            }
            10 => self.pop(),
            _ => self.c.put(key(from), b"one").unwrap(),
        }
    }

    /// Takes some from either end.
    fn pop(&mut self) {
        let (count, at_front) = (self.below(300), self.below(2) == 0);
        for _ in 0..count {
            let end = match at_front {
                true => self.c.first(),
                false => self.c.last(),
            };
            let Some(item) = end.unwrap() else { return };
            self.c.delete(item.key()).unwrap();
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.below(4) {
            self.write();
        }
        match self.below(12) {
            0 => self.db.flush().unwrap(),
            1 => while self.db.step().unwrap() {},
            2 => self.snapshots.push(self.db.snapshot()),
            3 if !self.snapshots.is_empty() => drop(self.snapshots.remove(0)),
            4 => self.clock.advance(ms(self.random.next() % 2_000)),
            _ => {}
        }
    }
}

/// Scans of a range, in all ways, show what reads of its keys do.
macro_rules! check {
    ($reader:expr, $from:expr, $to:expr) => {{
        let (c, from, to) = (&$reader, $from, $to);
        let there = (from..to).filter(|n| c.contains(key(*n)).unwrap());
        let there: Vec<Vec<u8>> = there.map(key).collect();
        let to = match to {
            KEYS => Bound::Unbounded,
            to => Bound::Excluded(key(to)),
        };
        let from = match from {
            0 => Bound::Unbounded,
            from => Bound::Included(key(from)),
        };
        let range = (from, to);
        let key_of = |item: ebbtide::Result<Item>| item.unwrap().key().to_vec();
        let shown: Vec<_> = c.range(range.clone()).map(key_of).collect();
        assert_eq!(shown, there);
        let mut back: Vec<_> = c.range(range.clone()).rev().map(key_of).collect();
        back.reverse();
        assert_eq!(back, there);
        let mut lent = vec![];
        let all = c.for_each(range.clone(), |key, _| {
            lent.push(key.to_vec());
            ControlFlow::<()>::Continue(())
        });
        assert!(all.unwrap().is_continue());
        assert_eq!(lent, there);
        let mut cursor = c.cursor(range.clone());
        let mut chunks = vec![];
        while let Some(chunk) = cursor.next_chunk().unwrap() {
            chunks.extend(chunk.iter().map(|(key, _)| key.to_vec()));
        }
        assert_eq!(chunks, there);
        chunks.clear();
        while let Some(chunk) = cursor.prev_chunk().unwrap() {
            chunks.extend(chunk.iter().map(|(key, _)| key.to_vec()));
        }
        chunks.reverse();
        assert_eq!(chunks, there);
        // From both ends in turn.
        let (mut scan, mut ends) = (c.range(range), (vec![], vec![]));
        while let Some(item) = scan.next() {
            ends.0.push(key_of(item));
            ends.1.extend(scan.next_back().map(key_of));
        }
        ends.0.extend(ends.1.into_iter().rev());
        assert_eq!(ends.0, there);
    }};
}

#[test]
fn scans_show_what_reads_of_each_key_do() {
    for seed in 0..8 {
        let mut world = World::new(seed);
        for _ in 0..30 {
            world.turn();
            let (from, to) = match world.below(3) {
                0 => (0, KEYS),
                _ => world.span(),
            };
            check!(world.c, from, to);
            if let Some(snapshot) = world.snapshots.last() {
                check!(snapshot.container("c").unwrap(), from, to);
            }
        }
    }
}

/// A hundred items that were deleted one by one.
fn deleted(c: &Container) {
    (100..200).for_each(|n| c.put(key(n), b"v").unwrap());
    (100..200).for_each(|n| c.delete(key(n)).unwrap());
}

// A scan of an earlier moment tells of a range into which somebody has put something since.
#[test]
fn what_a_scan_did_not_see_is_in_no_bare_range() {
    for is_load in [false, true] {
        let (db, c) = open(1, &ManualClock::new(NOW));
        deleted(&c);
        let snapshot = db.snapshot();
        match is_load {
            true => _ = c.bulk_load([(key(150), b"l")]).unwrap(),
            false => c.put(key(150), b"v").unwrap(),
        }
        let before = snapshot.container("c").unwrap();
        for _ in 0..2 {
            assert_eq!(before.count(..).unwrap(), 0);
            assert_eq!(before.iter().next_back().map(Result::unwrap), None);
            assert_eq!(c.count(..).unwrap(), 1);
            assert_eq!(c.first().unwrap().unwrap().key(), key(150));
            assert_eq!(c.last().unwrap().unwrap().key(), key(150));
        }
    }
}

// Of what a load brings nobody is told one by one.
#[test]
fn a_load_into_bare_ranges_is_seen() {
    let (_db, c) = open(1, &ManualClock::new(NOW));
    deleted(&c);
    for _ in 0..3 {
        assert!(c.is_empty().unwrap());
    }
    c.bulk_load([(key(150), b"l")]).unwrap();
    assert_eq!(c.first().unwrap().unwrap().key(), key(150));
    assert_eq!(c.last().unwrap().unwrap().key(), key(150));
    assert_eq!(c.count(..).unwrap(), 1);
}

// An item that is dead by a clock that is wrong for a moment is not dead for good.
#[test]
fn what_a_leap_of_the_clock_hides_is_seen_again() {
    let clock = ManualClock::new(NOW);
    let (_db, c) = open(1, &clock);
    let hour = seconds(3_600);
    deleted(&c);
    (120..180).for_each(|n| c.put_with_ttl(key(n), b"v", hour).unwrap());
    clock.jump(NOW + 3 * 3_600_000);
    for _ in 0..3 {
        assert_eq!(c.count(..).unwrap(), 0);
        assert!(c.first().unwrap().is_none() && c.last().unwrap().is_none());
        let mut cursor = c.cursor(..);
        assert!(cursor.prev_chunk().unwrap().is_none());
    }
    clock.jump(NOW);
    assert_eq!(c.count(..).unwrap(), 60);
    assert_eq!(c.first().unwrap().unwrap().key(), key(120));
    assert_eq!(c.last().unwrap().unwrap().key(), key(179));
}

// Deletes in memory hide items in tables: both go when nobody writes.
#[test]
fn deletes_and_what_they_hide_go_at_rest() {
    let clock = ManualClock::new(NOW);
    let (db, c) = open(1, &clock);
    let rest = || while db.step().unwrap() {};
    (0..KEYS).for_each(|n| c.put(key(n), [9; 100]).unwrap());
    db.flush().unwrap();
    rest();
    (0..KEYS).for_each(|n| c.delete(key(n)).unwrap());
    rest();
    assert_eq!(c.runs().len(), 1, "somebody may write soon");
    clock.advance(seconds(1));
    rest();
    assert!(c.is_empty().unwrap());
    rest();
    assert_eq!(c.runs().len(), 0);
    assert_eq!(db.stats().memtable_bytes, 0);
}

#[test]
fn scans_pay_for_what_range_deletes_cost_them() {
    let (db, c) = open(1, &ManualClock::new(NOW));
    let rest = || while db.step().unwrap() {};
    (0..KEYS).for_each(|n| c.put(key(n), [9; 100]).unwrap());
    db.flush().unwrap();
    for n in (0..KEYS).step_by(20) {
        c.delete_range(key(n)..key(n + 1)).unwrap();
    }
    db.flush().unwrap();
    rest();
    assert!(c.stats().range_deletes > 10, "nobody has paid");
    for _ in 0..30 {
        assert_eq!(c.count(..).unwrap(), KEYS - KEYS / 20);
    }
    rest();
    assert_eq!(c.stats().range_deletes, 0);
}

// A transaction judges by the time at which it began: what has ended since is a conflict, and not nothing.
#[test]
fn a_transaction_meets_what_has_ended_since_it_began() {
    let clock = ManualClock::new(NOW);
    let (db, c) = open(1, &clock);
    for n in 0..KEYS {
        c.put_with_ttl(key(n), b"v", seconds(1)).unwrap();
    }
    let transaction = db.begin();
    clock.advance(seconds(1));
    assert_eq!(c.count(..).unwrap(), 0);
    assert!(c.is_empty().unwrap());
    let first = transaction.range(&c, ..).next();
    assert!(first.unwrap().unwrap_err().is_conflict());
}

// Writers between a scan's beginning and the moment at which it tells what it found.
#[test]
fn a_queue_loses_nothing_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new()
        .memtable_bytes(256 << 10)
        .open(folder.path())
        .unwrap();
    let c = db.container("queue").unwrap();
    const WRITERS: u64 = 3;
    const EACH: u64 = 4_000;
    let (done, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let c = c.clone();
                // Each below what it put before: into what has been emptied, too.
                scope.spawn(move || {
                    for n in 0..EACH {
                        let at = (n / 500 + 1) * 500 - n % 500;
                        c.put(key(at * WRITERS + writer), b"v").unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let is_last = done.load(Ordering::Acquire);
                    match c.first().unwrap() {
                        Some(item) => {
                            let is_mine = c.take(item.key()).unwrap().is_some();
                            taken.fetch_add(u64::from(is_mine), Ordering::Relaxed);
                        }
                        None if is_last => return,
                        None => thread::yield_now(),
                    }
                }
            });
        }
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
    });
    assert_eq!(taken.load(Ordering::Relaxed), WRITERS * EACH);
}
