//! Goal: a full disk, and a database that was closed or killed on it, is no dead end: the space of expired items is
//! freed without a call and without room, and writing goes on. All other items are there.
//!
//! Method: the simulated disk with a capacity, filled by puts until one finds no room; then a close, a kill or a power cut,
//! the last free byte taken or not, an open with as much or less memory, and time. Steps are those of the background.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, Survivors};
use ebbtide::{
    Batch, Clock, Container, Database, DefaultTtl, Durability, Error, ManualClock, Options, Ttl,
};

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";
const LIFE: Duration = Duration::from_secs(60);

fn open(sim: &Sim, clock: &ManualClock, memtable_bytes: usize) -> Database {
    Options::new()
        .durability(Durability::Buffered)
        .memtable_bytes(memtable_bytes)
        .reclaim_within(Duration::from_secs(10))
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(512, 64 << 10, memtable_bytes as u64 / 8)
        .open(PATH)
        .unwrap()
}

const MEMTABLE: usize = 512 << 10;

fn ttl_of(lives: bool) -> Ttl {
    match lives {
        true => Ttl::Never,
        false => Ttl::After(LIFE),
    }
}

/// A database on a disk of so many KiB.
fn disk_of(kib: u64) -> (Sim, ManualClock, Database) {
    let (sim, clock) = (Sim::new(3), ManualClock::new(START));
    sim.set_capacity(kib << 10);
    let db = open(&sim, &clock, MEMTABLE);
    (sim, clock, db)
}

/// Puts items, each with the lifetime that `ttl` says, until one finds no room. How many there are.
fn fill(c: &Container, clock: &ManualClock, ttl: impl Fn(u32) -> Ttl) -> u32 {
    for n in 0u32.. {
        clock.advance(Duration::from_millis(1));
        if let Err(error) = c.put_with_ttl(n.to_be_bytes(), [n as u8; 500], ttl(n)) {
            assert!(error.is_full(), "{error}");
            return n;
        }
    }
    unreachable!("a disk has an end")
}

/// A database that nobody flushes, on a disk that takes less than its memtable; how many items it took.
fn filled(ttl: impl Fn(u32) -> Ttl) -> (Sim, ManualClock, u32) {
    let (sim, clock, db) = disk_of(480);
    let c = db.container("c").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let count = fill(&c, &clock, ttl);
    assert!(count > 400, "{count}");
    db.sync().unwrap();
    std::mem::forget((db, c));
    (sim, clock, count)
}

/// Nobody has a byte left.
fn take_the_rest(sim: &Sim) {
    let room = sim.room(Path::new(PATH)).unwrap();
    sim.set_capacity(room.total - room.free);
}

/// Background work, as long as there is some; what fails is tried again.
fn run_background(db: &Database) {
    for _ in 0..50 {
        let _ = db.step();
    }
}

#[track_caller]
fn takes_writes_of(c: &Container, count: u32, what: &str) {
    for n in 0..count {
        c.put_with_ttl(format!("again {n}"), [1; 500], Ttl::Never)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[track_caller]
fn takes_writes(db: &Database, what: &str) {
    takes_writes_of(&db.container("c").unwrap(), 100, what);
    db.sync().unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// How the database that filled the disk ends.
const ENDS: [&str; 4] = ["close", "kill", "cut, nothing kept", "cut, all kept"];

fn end(sim: &Sim, clock: &ManualClock, how: &str) -> Sim {
    match how {
        "close" => {
            let sim = sim.kill();
            let db = open(&sim, clock, MEMTABLE);
            db.close().unwrap();
            sim.kill()
        }
        "kill" => sim.kill(),
        "cut, nothing kept" => sim.power_cut_with(Survivors::Nothing),
        _ => sim.power_cut_with(Survivors::Everything),
    }
}

/// The same with a clock of its own, and without a byte left.
fn ended(sim: &Sim, clock: &ManualClock, how: &str) -> (Sim, ManualClock) {
    let sim = end(sim, clock, how);
    take_the_rest(&sim);
    (sim, ManualClock::new(clock.wall()))
}

/// There are so many items, also after a kill and after a power cut.
#[track_caller]
fn lasts(sim: &Sim, clock: &ManualClock, memtable: usize, count: usize, what: &str) {
    for after in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
        let db = open(&after, clock, memtable);
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), count, "{what}");
    }
}

#[test]
fn what_expired_on_a_full_disk_is_given_back_after_a_reopen() {
    let (sim, clock, count) = filled(|_| Ttl::After(LIFE));
    for how in ENDS {
        for memtable in [MEMTABLE, MEMTABLE / 8] {
            let (sim, clock) = ended(&sim, &clock, how);
            let what = format!("{how}, {memtable} bytes of memory");
            let db = open(&sim, &clock, memtable);
            let c = db.container("c").unwrap();
            assert_eq!(c.iter().count(), count as usize, "{what}");
            run_background(&db);
            assert!(c.put("k", "v").unwrap_err().is_full(), "{what}");
            assert_eq!(c.iter().count(), count as usize, "{what}");
            clock.advance(2 * LIFE);
            run_background(&db);
            let stats = db.stats();
            assert!(stats.disk_bytes < 300 << 10, "{what}: {stats:?}");
            assert_eq!(c.stats().expired_bytes, 0, "{what}");
            takes_writes(&db, &what);
            db.flush().unwrap();
            lasts(&sim, &clock, memtable, 100, &what);
        }
    }
}

/// The first write after the end of all does not wait for the background.
#[test]
fn the_first_write_after_a_reopen_finds_the_room_of_what_has_expired() {
    let (sim, clock, count) = filled(|_| Ttl::After(LIFE));
    type Write = fn(&Database) -> ebbtide::Result<()>;
    let first: [(&str, Write); 3] = [
        ("put", |db| db.container("c")?.put("k", "v")),
        ("batch", |db| {
            let mut batch = Batch::new();
            batch.put(db.container("c")?, "k", "v");
            db.write(batch)
        }),
        ("sync", |db| db.sync()),
    ];
    for how in ENDS {
        for (call, first) in first {
            for ended_before in [true, false] {
                let (sim, clock) = ended(&sim, &clock, how);
                let what = format!("{how}, {call}, ended before the open: {ended_before}");
                if ended_before {
                    clock.advance(2 * LIFE);
                }
                let db = open(&sim, &clock, MEMTABLE);
                if !ended_before {
                    assert!(first(&db).unwrap_err().is_full(), "{what}");
                    let c = db.container("c").unwrap();
                    assert_eq!(c.iter().count(), count as usize, "{what}");
                    clock.advance(2 * LIFE);
                }
                first(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
                takes_writes(&db, &what);
            }
        }
    }
}

/// An item that ends under a transaction is a conflict, also where the old log and the memory behind it were given back.
#[test]
fn a_transaction_sees_that_what_it_misses_was_given_back() {
    let (sim, clock, _) = filled(|_| Ttl::After(LIFE));
    take_the_rest(&sim);
    for some_live in [false, true] {
        let (sim, clock) = (sim.kill(), ManualClock::new(clock.wall()));
        let db = open(&sim, &clock, MEMTABLE);
        let c = db.container("c").unwrap();
        let transaction = db.begin();
        assert!(transaction.get(&c, 0u32.to_be_bytes()).unwrap().is_some());
        clock.advance(if some_live {
            LIFE - Duration::from_millis(100)
        } else {
            2 * LIFE
        });
        run_background(&db);
        assert_eq!(c.iter().count() > 0, some_live);
        let missed = transaction.get(&c, 1u32.to_be_bytes());
        assert!(missed.as_ref().is_err_and(Error::is_conflict), "{missed:?}");
    }
}

/// Some live in each segment, so none goes from the front; and there is no room for them in another log but what is kept
/// for edits.
#[test]
fn the_living_among_the_dead_keep_no_full_disk_full() {
    let lives = |n: u32| n.is_multiple_of(40);
    let ttl = |n| ttl_of(lives(n));
    let (sim, clock, count) = filled(ttl);
    let living = (0..count).filter(|n| lives(*n)).count();
    for how in ENDS {
        let (sim, clock) = ended(&sim, &clock, how);
        let db = open(&sim, &clock, MEMTABLE);
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), count as usize, "{how}");
        run_background(&db);
        assert!(c.put("k", "v").unwrap_err().is_full(), "{how}");
        // The room that the ring of the log gave back is not there for it either.
        take_the_rest(&sim);
        clock.advance(2 * LIFE);
        run_background(&db);
        let stats = db.stats();
        assert!(stats.disk_bytes < 300 << 10, "{how}: {stats:?}");
        assert_eq!(c.iter().count(), living, "{how}");
        takes_writes(&db, how);
        lasts(&sim, &clock, MEMTABLE, living + 100, how);
    }
}

/// However many live: when less than a segment's worth does in each segment, the dead go. In one container or in three, of
/// which each has something in every segment.
#[test]
fn however_many_live_the_dead_are_given_back() {
    for (live_of_ten, containers) in [(2, 1), (4, 1), (6, 1), (3, 3)] {
        let (sim, clock, db) = disk_of(480);
        let names: Vec<String> = (0..containers).map(|n| format!("c{n}")).collect();
        let all: Vec<_> = names
            .iter()
            .map(|name| db.container(name).unwrap())
            .collect();
        let lives = |n: u32| n / containers % 10 < live_of_ten;
        let mut count = 0u32;
        let full = loop {
            let ttl = ttl_of(lives(count));
            let c = &all[(count % containers) as usize];
            match c.put_with_ttl(count.to_be_bytes(), [count as u8; 300], ttl) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(full.is_full(), "{full}");
        db.sync().unwrap();
        std::mem::forget((db, all));
        let living = |n: u32| {
            (0..count)
                .filter(|at| lives(*at) && at % containers == n)
                .count()
        };
        for how in ENDS {
            let what = format!("{live_of_ten} of ten live, {containers} containers, {how}");
            let (sim, clock) = ended(&sim, &clock, how);
            let db = open(&sim, &clock, MEMTABLE);
            run_background(&db);
            clock.advance(2 * LIFE);
            run_background(&db);
            let check = |db: &Database, more: usize| {
                for n in 0..containers {
                    let c = db.container(format!("c{n}")).unwrap();
                    let more = if n == 0 { more } else { 0 };
                    assert_eq!(c.iter().count(), living(n) + more, "{what}");
                }
            };
            check(&db, 0);
            let c = db.container("c0").unwrap();
            for n in 0..100u32 {
                let put = || c.put(format!("again {n}"), [1; 300]);
                // The log may have to be flushed before it goes on.
                put()
                    .or_else(|_| {
                        run_background(&db);
                        put()
                    })
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            db.sync().unwrap();
            check(&db, 100);
            clock.advance(LIFE);
            run_background(&db);
            assert_eq!(c.stats().expired_bytes, 0, "{what}");
            check(&db, 100);
            for after in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
                check(&open(&after, &clock, MEMTABLE), 100);
            }
        }
    }
}

/// The content of a database on a full disk when all that has a lifetime has ended: keys and the last bytes of their values.
type Living = BTreeMap<Vec<u8>, u8>;

/// Puts, deletes and range deletes over few keys, older ones in tables, newer ones in the log, until the disk is full.
fn mixed(synced: bool) -> (Sim, ManualClock, Living) {
    let (sim, clock, db) = disk_of(600);
    let c = db.container("c").unwrap();
    let mut living = Living::new();
    for n in 0u32.. {
        let key = (n.wrapping_mul(2_654_435_761) % 1500).to_be_bytes();
        let done = match n % 50 {
            7 => c.delete(key).map(|()| {
                living.remove(&key[..]);
            }),
            8 => {
                let to = (u32::from_be_bytes(key) + 9).to_be_bytes();
                let deleted = c.delete_range(key..to);
                deleted.map(|()| living.retain(|at, _| at[..] < key[..] || at[..] >= to[..]))
            }
            of_fifty => {
                let ttl = ttl_of(of_fifty % 5 < 3);
                c.put_with_ttl(key, [n as u8; 300], ttl)
                    .map(|()| match ttl {
                        Ttl::Never => drop(living.insert(key.to_vec(), n as u8)),
                        _ => drop(living.remove(&key[..])),
                    })
            }
        };
        match done {
            Ok(()) if n == 300 => db.flush().unwrap(),
            Ok(()) => {}
            Err(error) if error.is_full() => break,
            Err(error) => panic!("{error}"),
        }
    }
    if synced {
        db.sync().unwrap();
    }
    std::mem::forget((db, c));
    (sim, clock, living)
}

fn check_living(db: &Database, living: &Living, what: &str) {
    let items = db.container("c").unwrap().iter().map(|item| {
        let item = item.unwrap();
        (item.key().to_vec(), item.value()[0])
    });
    let items: Living = items
        .filter(|(key, _)| !key.starts_with(b"again"))
        .collect();
    let (found, wanted) = (items.len(), living.len());
    assert!(items == *living, "{what}: {found} items for {wanted}");
}

// A table takes what lives of the log's front, and the front goes: at no moment between is anything lost or back.
#[test]
fn a_crash_while_the_front_of_the_log_is_flushed_loses_nothing() {
    // Not synced, the end of the log is in the ring alone; then only kills lose nothing.
    for synced in [true, false] {
        crash_while_the_front_is_flushed(synced);
    }
}

fn crash_while_the_front_is_flushed(synced: bool) {
    let (sim, clock, living) = mixed(synced);
    assert!(living.len() > 50, "{}", living.len());
    let (sim, seen) = (sim.kill(), Arc::new(Mutex::new(vec![])));
    clock.advance(2 * LIFE);
    take_the_rest(&sim);
    sim.watch({
        let seen = seen.clone();
        move |sim, call| {
            let mut seen = seen.lock().unwrap();
            if call.changes() && seen.len() < 300 {
                if synced {
                    seen.push(sim.power_cut_with(Survivors::Nothing));
                }
                seen.push(sim.kill());
            }
        }
    });
    let db = open(&sim, &clock, MEMTABLE);
    run_background(&db);
    sim.unwatch();
    check_living(&db, &living, "at the end");
    assert!(db.stats().flushes > 0, "the front was flushed");
    takes_writes(&db, "after it");
    let moments = std::mem::take(&mut *seen.lock().unwrap());
    assert!(moments.len() > 20, "{}", moments.len());
    for (n, moment) in moments.iter().enumerate() {
        let what = format!("moment {n}");
        let db = open(moment, &clock, MEMTABLE);
        check_living(&db, &living, &what);
        run_background(&db);
        check_living(&db, &living, &what);
        takes_writes(&db, &what);
        // Live items may take all the room there is by now.
        if let Err(error) = db.flush() {
            assert!(error.is_full(), "{what}: {error}");
        }
        let again = open(&moment.kill(), &clock, MEMTABLE);
        check_living(&again, &living, &what);
    }
}

/// Breaks a build in which the ring of an old log goes before the segments hold what it holds.
#[test]
fn the_ring_of_an_old_log_goes_once_the_segments_hold_its_frames() {
    const COUNT: u32 = 40;
    let (sim, clock, db) = disk_of(480);
    let c = db.container("c").unwrap();
    // Fewer than the ring has room for: they are in it alone.
    for n in 0..COUNT {
        c.put_with_ttl(n.to_be_bytes(), [n as u8; 500], Ttl::Never)
            .unwrap();
    }
    std::mem::forget((db, c));
    let sim = sim.kill();
    take_the_rest(&sim);
    let seen = Arc::new(Mutex::new((vec![], false)));
    let db = open(&sim, &clock, MEMTABLE);
    sim.watch({
        let seen = seen.clone();
        move |sim, call| {
            let (moments, is_removed) = &mut *seen.lock().unwrap();
            moments.push(sim.kill());
            let name = call.path.file_name();
            *is_removed |= call.operation == "remove" && name == Some("000001.ring".as_ref());
        }
    });
    // It asks for a log, and so for room.
    let _ = db.container("c").unwrap().put("k", "v");
    sim.unwatch();
    let (moments, is_removed) = std::mem::take(&mut *seen.lock().unwrap());
    assert!(is_removed);
    for (n, after) in moments.iter().enumerate() {
        after.set_capacity(480 << 10);
        let db = open(after, &clock, MEMTABLE);
        let c = db.container("c").unwrap();
        let found = (0..COUNT).filter(|key| c.contains(key.to_be_bytes()).unwrap());
        assert_eq!(found.count(), COUNT as usize, "moment {n}");
    }
}

// A caller finds what the old log names still there while others take from it.
#[test]
fn threads_that_give_back_an_old_log_do_not_hurry_ahead_of_its_manifest() {
    for round in 0..6u64 {
        // They end one after the other, so that each look finds more of the front dead.
        let life = |n: u32| match n % 4 {
            0 => Ttl::Never,
            _ => Ttl::After(LIFE + Duration::from_millis(u64::from(n) * 40)),
        };
        let (sim, clock, count) = filled(life);
        let sim = sim.kill();
        take_the_rest(&sim);
        clock.advance(LIFE);
        let db = open(&sim, &clock, MEMTABLE);
        let living = (0..count).filter(|n| n % 4 == 0).count();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let _ = db.flush();
                        let _ = db.step();
                        clock.advance(Duration::from_millis(300 + 50 * round));
                    }
                });
            }
        });
        clock.advance(4 * LIFE);
        lasts(&sim, &clock, MEMTABLE, living, &format!("round {round}"));
    }
}

// Without an open anew: what lives of a memtable finds no room, but what lives in one segment of the log does, in the one
// that is kept ahead for it.
#[test]
fn a_memtable_that_finds_no_room_is_flushed_by_parts() {
    for live_of_ten in [0, 3, 6] {
        let what = format!("{live_of_ten} of ten live");
        let (sim, clock, db) = disk_of(800);
        let (c, seldom) = (db.container("c").unwrap(), db.container("seldom").unwrap());
        let mut living = 0;
        let full = (0u32..).find_map(|n| {
            let lives = n % 10 < live_of_ten;
            let ttl = ttl_of(lives);
            if n % 100 == 0 {
                seldom.put(n.to_be_bytes(), "seldom").unwrap();
                // The log's thread has its turn, as it has beside a writer.
                let _ = db.step();
            }
            let put = c.put_with_ttl(n.to_be_bytes(), [n as u8; 300], ttl);
            living += usize::from(lives && put.is_ok());
            put.err()
        });
        assert!(full.is_some_and(|full| full.is_full()), "{what}");
        take_the_rest(&sim);
        clock.advance(2 * LIFE);
        let mut moments = vec![];
        for _ in 0..50 {
            let _ = db.step();
            if moments.len() < 20 {
                moments.push(sim.kill());
            }
        }
        for moment in moments {
            let db = open(&moment, &clock, MEMTABLE);
            let found = db.container("c").unwrap().iter().count();
            assert_eq!(found, living, "{what}, after a kill between the parts");
        }
        assert_eq!(c.iter().count(), living, "{what}");
        assert_eq!(c.stats().expired_bytes, 0, "{what}");
        takes_writes_of(&c, 20, &what);
        for after in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
            let db = open(&after, &clock, MEMTABLE);
            let found = db.container("c").unwrap().iter().count();
            assert!((living..=living + 20).contains(&found), "{what}: {found}");
        }
    }
}

// The log has room for two segments, of which one is kept ahead: when nothing in the other is needed, that one is begun.
#[test]
fn a_log_of_one_segment_goes_on_when_nothing_in_it_is_needed() {
    // And where there is room for one alone it goes on in a small one.
    for (living, kib) in [(0, 290), (20, 290), (0, 240), (20, 240)] {
        let (sim, clock, db) = disk_of(kib);
        let c = db.container("c").unwrap();
        for round in 0..5 {
            let mut count = 0u32;
            let full = loop {
                let ttl = ttl_of(count < living);
                match c.put_with_ttl(count.to_be_bytes(), [1; 300], ttl) {
                    Ok(()) => count += 1,
                    Err(full) => break full,
                }
                if count.is_multiple_of(20) {
                    let _ = db.step();
                }
            };
            assert!(full.is_full(), "{full}");
            assert!(count > 40, "round {round}: {count} puts");
            run_background(&db);
            clock.advance(2 * LIFE);
            run_background(&db);
            assert_eq!(c.iter().count(), living as usize, "round {round}");
            assert_eq!(c.stats().expired_bytes, 0, "round {round}");
        }
        let db = open(&sim.kill(), &clock, MEMTABLE);
        let found = db.container("c").unwrap().iter().count();
        assert_eq!(found, living as usize);
    }
}

// A write that is larger than all the room there is leaves nothing to do for the background.
#[test]
fn a_write_that_never_finds_room_keeps_no_thread_busy() {
    let (_sim, _clock, db) = disk_of(400);
    let c = db.container("c").unwrap();
    for _ in 0..3 {
        assert!(c.put("large", vec![1; 600 << 10]).unwrap_err().is_full());
        assert!((0..20).any(|_| !db.step().unwrap()), "it goes on for ever");
        c.put("small", "there is room for this").unwrap();
    }
}

// Between the edit that lets go of a log and a new one nothing was lost, and no number is given twice.
#[test]
fn a_crash_after_the_old_log_was_let_go_of_loses_nothing() {
    for dated in [u32::MAX, 450] {
        let (sim, clock, count) = filled(|n| ttl_of(n >= dated));
        let kept = count.saturating_sub(dated) as usize;
        let sim = sim.kill();
        clock.advance(2 * LIFE);
        let seen = Arc::new(Mutex::new(vec![]));
        take_the_rest(&sim);
        sim.watch({
            let seen = seen.clone();
            move |sim, call| {
                let mut seen = seen.lock().unwrap();
                if call.changes() && seen.len() < 200 {
                    seen.push(sim.power_cut_with(Survivors::Nothing));
                    seen.push(sim.kill());
                }
            }
        });
        let db = open(&sim, &clock, MEMTABLE);
        run_background(&db);
        sim.unwatch();
        takes_writes(&db, "after it");
        let moments = std::mem::take(&mut *seen.lock().unwrap());
        assert!(moments.len() > 20);
        for (n, moment) in moments.iter().enumerate() {
            let db = open(moment, &clock, MEMTABLE);
            run_background(&db);
            let c = db.container("c").unwrap();
            assert_eq!(c.iter().count(), kept, "moment {n}");
            takes_writes(&db, &format!("moment {n}"));
            let again = open(&moment.kill(), &clock, MEMTABLE);
            let c = again.container("c").unwrap();
            assert_eq!(c.iter().count(), kept + 100, "moment {n}");
        }
    }
}

// The first to expire lie in the first segments: these go, and what lives goes on.
#[test]
fn segments_of_what_has_expired_go_from_the_front() {
    let (sim, clock, count) = filled(|n| ttl_of(n >= 450));
    for how in ENDS {
        let (sim, clock) = ended(&sim, &clock, how);
        let db = open(&sim, &clock, MEMTABLE);
        clock.advance(2 * LIFE);
        run_background(&db);
        // Live items take less than dead ones, so that there is room to log them again.
        takes_writes(&db, how);
        lasts(&sim, &clock, MEMTABLE, count as usize - 450 + 100, how);
    }
}

// Each key was put to last, then put again to expire: the newer one hides the older one, wherever they lie.
#[test]
fn nothing_that_an_expired_item_hid_comes_back() {
    let (sim, clock, count) = filled(|n| ttl_of(n < 200));
    let sim = sim.kill();
    sim.set_capacity(u64::MAX);
    let db = open(&sim, &clock, MEMTABLE);
    let c = db.container("c").unwrap();
    for n in 0..200u32 {
        c.put_with_ttl(n.to_be_bytes(), "hides", Ttl::After(LIFE))
            .unwrap();
    }
    db.sync().unwrap();
    for flushed in [false, true] {
        if flushed {
            // The older ones lie in a table now, and what hides them in the log.
            db.flush().unwrap();
            for n in 0..count {
                c.put_with_ttl(n.to_be_bytes(), [7; 100], Ttl::After(LIFE))
                    .unwrap();
            }
            db.sync().unwrap();
        }
        let sim = sim.kill();
        let clock = ManualClock::new(clock.wall());
        take_all(&sim);
        let db = open(&sim, &clock, MEMTABLE);
        clock.advance(2 * LIFE);
        run_background(&db);
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), 0);
        lasts(&sim, &clock, MEMTABLE, 0, "what was hidden");
    }
}

/// The same for a disk that had no end.
fn take_all(sim: &Sim) {
    sim.set_capacity(1 << 40);
    take_the_rest(sim);
}

// A snapshot that was taken before they expired sees no expired item either, and keeps none.
#[test]
fn a_snapshot_does_not_keep_the_old_log() {
    let (sim, clock, count) = filled(|_| Ttl::After(LIFE));
    let sim = sim.kill();
    take_the_rest(&sim);
    let db = open(&sim, &clock, MEMTABLE);
    let snapshot = db.snapshot();
    assert_eq!(
        snapshot.container("c").unwrap().iter().count(),
        count as usize
    );
    clock.advance(2 * LIFE);
    run_background(&db);
    assert_eq!(snapshot.container("c").unwrap().iter().count(), 0);
    takes_writes(&db, "beside a snapshot");
}

/// The end mark of the log may find no room. Nothing that was acknowledged relies on it.
#[test]
fn a_full_disk_is_closed_with_all_that_was_acknowledged() {
    for first in 0..24 {
        let (sim, clock, db) = disk_of(480);
        let c = db.container("c").unwrap();
        c.put(u32::MAX.to_be_bytes(), vec![1; first]).unwrap();
        let mut count = 0u32;
        for len in [300, 30, 1, 0] {
            loop {
                match c.put(count.to_be_bytes(), vec![1; len]) {
                    Ok(()) => count += 1,
                    Err(error) if error.is_full() => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let told = Arc::new(Mutex::new(None));
        db.sync_then({
            let told = told.clone();
            move |done| *told.lock().unwrap() = Some(done.is_ok())
        });
        db.close()
            .unwrap_or_else(|error| panic!("{first} bytes: {error}"));
        assert_eq!(*told.lock().unwrap(), Some(true), "{first} bytes");
        let after = sim.power_cut_with(Survivors::Nothing);
        let db = open(&after, &clock, MEMTABLE);
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), 1 + count as usize, "{first} bytes");
    }
}

#[test]
fn a_container_dropped_while_the_old_log_is_flushed_leaves_no_table() {
    let (sim, clock, db) = disk_of(480);
    let all = ["c0", "c1"].map(|name| db.container(name).unwrap());
    let lives = |n: u32| n / 2 % 10 < 3;
    for n in 0u32.. {
        let ttl = ttl_of(lives(n));
        let put = all[n as usize % 2].put_with_ttl(n.to_be_bytes(), [1; 300], ttl);
        if put.is_err_and(|error| error.is_full()) {
            break;
        }
    }
    db.sync().unwrap();
    std::mem::forget((db, all));
    let sim = sim.kill();
    take_the_rest(&sim);
    let db = open(&sim, &clock, MEMTABLE);
    let is_dropped = Arc::new(Mutex::new(false));
    sim.watch({
        let (db, is_dropped) = (db.clone(), is_dropped.clone());
        move |_, call| {
            let makes = call.operation == "create" && call.path.starts_with("/db/tables");
            if makes && !std::mem::replace(&mut *is_dropped.lock().unwrap(), true) {
                assert!(db.drop_container("c0").unwrap());
            }
        }
    });
    clock.advance(2 * LIFE);
    run_background(&db);
    sim.unwatch();
    assert!(*is_dropped.lock().unwrap());
    let tables = sim.list(Path::new("/db/tables")).unwrap();
    assert_eq!(tables.len() as u64, db.stats().tables, "{tables:?}");
}
