//! Goal: what makes reading dear, or keeps bytes, goes away: by itself when nobody writes, and for scans that pay for it
//! while they go on.
//!
//! Method: a simulated disk, background work step by step, a clock that moves only when told to.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ebbtide::internals::Sim;
use ebbtide::{
    Container, Database, DefaultTtl, Error, EventListener, FlushEvent, ManualClock, Options,
};
use testkit::stage::{rest, seconds};
use testkit::watched::Watched;

const MEMTABLE: usize = 1 << 20;

fn open(clock: &ManualClock) -> (Database, Container) {
    open_with(Options::new().fs(Arc::new(Sim::new(1))), clock)
}

fn open_with(options: Options, clock: &ManualClock) -> (Database, Container) {
    let db = options
        .clock(clock.clone())
        .stepped()
        .sizes(4 << 10, 256 << 10, 256 << 10)
        .memtable_bytes(MEMTABLE)
        .open("/db")
        .unwrap();
    let c = db.container("c").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    (db, c)
}

fn clock() -> ManualClock {
    ManualClock::new(1_800_000_000_000)
}

fn fill(c: &Container, keys: u32, len: usize) {
    for n in 0..keys {
        c.put(n.to_be_bytes(), vec![b'v'; len]).unwrap();
    }
}

// The deletes are in memory, and what they hide is on disk.
#[test]
fn an_idle_database_gives_back_what_was_deleted() {
    let clock = clock();
    let (db, c) = open(&clock);
    fill(&c, 3_000, 1_000);
    db.compact().unwrap();
    rest(&db);
    let before = c.stats().disk_bytes;
    assert!(before > 2_500_000, "{before}");
    for n in 0..2_900_u32 {
        c.delete(n.to_be_bytes()).unwrap();
    }
    rest(&db);
    clock.advance(seconds(1));
    rest(&db);
    let after = c.stats().disk_bytes;
    assert!(after < before / 10, "{before} bytes became {after}");
    assert_eq!(c.iter().count(), 100);
}

fn comes_back(db: &Database, c: &Container, scans_most: usize, is_back: impl Fn() -> bool) {
    rest(db);
    assert!(!is_back(), "nobody has paid");
    for _ in 0..scans_most {
        c.iter().for_each(|item| drop(item.unwrap()));
        rest(db);
    }
    assert!(is_back(), "{scans_most} scans did not pay");
}

// The clock stands: nothing is done because of rest.
#[test]
fn scans_pay_for_the_merge_of_range_deletes() {
    let (db, c) = open(&clock());
    fill(&c, 20_000, 100);
    db.compact().unwrap();
    for n in (0..200_u32).map(|n| 100 * n) {
        c.delete_range(n.to_be_bytes()..(n + 1).to_be_bytes())
            .unwrap();
    }
    db.flush().unwrap();
    comes_back(&db, &c, 8, || c.stats().range_deletes == 0);
    assert_eq!(c.iter().count(), 19_800);
}

#[test]
fn scans_pay_for_the_merge_of_deletes() {
    let (db, c) = open(&clock());
    fill(&c, 20_000, 100);
    db.compact().unwrap();
    for n in (0..2_000_u32).map(|n| 10 * n) {
        c.delete(n.to_be_bytes()).unwrap();
    }
    db.flush().unwrap();
    comes_back(&db, &c, 12, || c.stats().runs == 1);
    assert_eq!(c.iter().count(), 18_000);
}

/// The most bytes of log while a container is written in which all records of another, of so many bytes each, lie in the
/// log's oldest segment; and how many tables the other one got.
fn log_beside(quiet_len: usize) -> (u64, u64) {
    let (db, c) = open(&clock());
    let quiet = db.container("quiet").unwrap();
    fill(&quiet, 80, quiet_len);
    let mut most = 0;
    for n in 0..20_000_u32 {
        c.put(n.wrapping_mul(0x9e37_79b9).to_be_bytes(), [b'v'; 200])
            .unwrap();
        // One step each: what presses is done before what does not.
        if n % 100 == 0 {
            most = most.max(db.stats().log_bytes);
            db.step().unwrap();
        }
    }
    assert_eq!(quiet.iter().count(), 80);
    assert!(db.stats().flushes >= 4);
    (most, quiet.stats().tables)
}

// Small memtables go to the log's end, larger ones to a table, each with the flush whose log it would keep.
#[test]
fn the_log_beside_a_quiet_container_stays_short() {
    // A segment is a quarter of a memtable.
    for (quiet_len, tables, segments) in [(1, 0, 6), (900, 1, 7)] {
        let (most, given) = log_beside(quiet_len);
        assert!(
            most <= segments * MEMTABLE as u64 / 4,
            "{quiet_len}: {most}"
        );
        assert_eq!(given, tables, "{quiet_len}");
    }
}

/// The containers of each flush.
#[derive(Default)]
struct Flushes(Mutex<Vec<Vec<String>>>);

impl EventListener for Flushes {
    fn on_flush_completed(&self, flush: &FlushEvent) {
        self.0.lock().unwrap().push(flush.containers.clone());
    }
}

/// Breaks a build in which a memtable that shares a segment of the log with the one before it, for want of room for another
/// segment, is flushed along with that one: a container's memtables are flushed one after the other.
#[test]
fn memtables_that_share_a_segment_are_flushed_one_after_the_other() {
    let (fs, no_room) = (Watched::new(Sim::new(1)), Arc::new(AtomicBool::new(false)));
    fs.before({
        let no_room = no_room.clone();
        move |call, path: &Path| match call == "create" && no_room.load(Ordering::Relaxed) {
            true => Err(Error::Io {
                operation: "create",
                path: path.into(),
                source: Arc::new(std::io::ErrorKind::StorageFull.into()),
            }),
            false => Ok(()),
        }
    });
    let flushes = Arc::new(Flushes::default());
    let options = Options::new().fs(Arc::new(fs)).listener(flushes.clone());
    let (db, c) = open_with(options, &clock());
    let mut next = 0_u32;
    let mut put = |is_full: bool| {
        no_room.store(is_full, Ordering::Relaxed);
        match c.put(next.to_be_bytes(), [b'v'; 1_000]) {
            Ok(()) => next += 1,
            Err(error) => assert!(is_full && error.is_full()),
        }
        no_room.store(false, Ordering::Relaxed);
    };
    // The put that fills the memtable finds no room for a segment.
    while db.stats().memtable_bytes < MEMTABLE as u64 - 20_000 {
        put(false);
    }
    for _ in 0..40 {
        put(true);
    }
    for _ in 0..90 {
        put(false);
    }
    while db.step().unwrap() {}
    db.flush().unwrap();
    let flushes = flushes.0.lock().unwrap().clone();
    assert!(flushes.len() > 1);
    assert!(flushes.iter().all(|one| one.len() == 1), "{flushes:?}");
    assert_eq!(c.iter().count(), next as usize);
}
