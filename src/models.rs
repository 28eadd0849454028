//! Models of the whole engine, through its public API: reads during writes, flushes, changes of settings, and expiry. A thread
//! of the history does background work, step by step.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{Elsewhere, check, spawn};
use crate::env::{Fs, Sim, Survivors};
use crate::{Clock, Container, Database, DefaultTtl, Durability, ManualClock, Options, Ttl};

const START: u64 = 1_800_000_000_000;

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
}

struct World {
    sim: Sim,
    calls: Elsewhere,
    clock: ManualClock,
    db: Database,
    items: Container,
}

/// A database with one item, `k`.
fn world(durability: Durability) -> World {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    sim.create_dir_all(Path::new("/")).unwrap();
    let db = options(&sim, &clock)
        .durability(durability)
        .open("/db")
        .unwrap();
    let items = db.container("c").unwrap();
    items.put("k", "old").unwrap();
    let calls = Elsewhere::new();
    let watching = calls.clone();
    sim.watch(move |_, _| watching.step());
    World {
        sim,
        calls,
        clock,
        db,
        items,
    }
}

impl World {
    /// The disk after a power cut now.
    fn power_cut(&self) -> Sim {
        self.calls.step();
        self.sim.power_cut_with(Survivors::Nothing)
    }
}

/// Whether the key is there when the database is opened on what is left of the disk.
fn is_there(world: &World, left: &Sim, key: &str) -> bool {
    let db = options(left, &world.clock).open("/db").unwrap();
    let items = db.container("c").unwrap();
    items.contains(key).unwrap()
}

/// A flush drops the older version; a read that took its sequence number before must not miss both.
#[test]
fn a_key_is_never_missing_while_it_is_overwritten_and_flushed() {
    check("a read beside a put and a flush", 2, || {
        let World { db, items, .. } = world(Durability::Buffered);
        let reader = {
            let items = items.clone();
            spawn(move || assert!(items.contains("k").unwrap()))
        };
        items.put("k", "new").unwrap();
        db.flush().unwrap();
        reader.join().unwrap();
    });
}

/// A snapshot's reads are repeatable.
#[test]
fn a_snapshot_shows_the_same_while_its_keys_are_overwritten_and_flushed() {
    check("a snapshot beside a put and a flush", 2, || {
        let World { db, items, .. } = world(Durability::Buffered);
        let reader = {
            let db = db.clone();
            spawn(move || {
                let snapshot = db.snapshot();
                let view = snapshot.container("c").unwrap();
                let first = view.get("k").unwrap().expect("it was put");
                let second = view.get("k").unwrap().expect("it was there");
                assert_eq!(*first, *second);
            })
        };
        items.put("k", "new").unwrap();
        db.flush().unwrap();
        reader.join().unwrap();
    });
}

/// A clock of which each reading and move is a step. A reader of a time sees everything done before the clock reached it.
#[derive(Clone)]
struct Stepwise {
    time: ManualClock,
    steps: Arc<AtomicUsize>,
}

impl Stepwise {
    fn step(&self) {
        self.steps.fetch_add(1, Ordering::AcqRel);
    }

    fn advance(&self, millis: u64) {
        self.step();
        self.time.advance(Duration::from_millis(millis));
    }
}

impl Clock for Stepwise {
    fn wall(&self) -> u64 {
        self.step();
        self.time.wall()
    }

    fn uptime(&self) -> u64 {
        self.time.uptime()
    }
}

/// A database with one item, `k`, that ends in 10 ms.
fn ending(durability: Durability) -> (Stepwise, Database, Container) {
    let sim = Sim::new(1);
    sim.create_dir_all(Path::new("/")).unwrap();
    let clock = Stepwise {
        time: ManualClock::new(START),
        steps: Arc::new(AtomicUsize::new(0)),
    };
    let db = options(&sim, &clock.time)
        .clock(clock.clone())
        .durability(durability)
        .open("/db")
        .unwrap();
    let items = db.container("c").unwrap();
    items.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    items
        .put_with_ttl("k", "old", Ttl::After(Duration::from_millis(10)))
        .unwrap();
    (clock, db, items)
}

/// The item is refreshed before it expires.
#[test]
fn an_item_that_is_refreshed_in_time_is_never_missing() {
    check("a read beside a refresh, then its end", 2, || {
        let (clock, _db, items) = ending(Durability::Buffered);
        let reader = {
            let items = items.clone();
            spawn(move || assert!(items.contains("k").unwrap()))
        };
        clock.advance(8);
        items.put_with_ttl("k", "new", Ttl::Never).unwrap();
        clock.advance(8);
        reader.join().unwrap();
    });
}

/// A reader that finds the item expired and a writer that refreshes it as live agree on the order.
fn one_of_them_sees_the_end(
    what: &str,
    interruptions: usize,
    durability: Durability,
    refresh: fn(&Container) -> bool,
    find: fn(&Container) -> bool,
) {
    check(what, interruptions, move || {
        let (clock, _db, items) = ending(durability);
        clock.advance(5);
        let refresher = {
            let items = items.clone();
            spawn(move || refresh(&items))
        };
        clock.advance(5);
        let found = find(&items);
        let was_live = refresher.join().unwrap();
        assert!(
            found || !was_live,
            "it was missed between its refresh and its old end"
        );
    });
}

fn touch(items: &Container) -> bool {
    items.touch("k").unwrap()
}

#[test]
fn a_read_waits_for_a_write_that_relies_on_what_it_finds_dead() {
    let find = |items: &Container| items.contains("k").unwrap();
    for durability in [Durability::Buffered, Durability::Sync] {
        let what = format!("a read after the end beside a touch, {durability:?}");
        one_of_them_sees_the_end(&what, 2, durability, touch, find);
    }
}

#[test]
fn a_read_waits_for_an_upsert_that_tells_what_it_finds_dead() {
    let upsert = |items: &Container| {
        items
            .upsert("k", "new", Ttl::Never)
            .unwrap()
            .before
            .is_some()
    };
    let find = |items: &Container| items.contains("k").unwrap();
    let what = "a read after the end beside an upsert";
    one_of_them_sees_the_end(what, 2, Durability::Buffered, upsert, find);
}

#[test]
fn a_condition_waits_for_a_write_that_relies_on_what_it_finds_dead() {
    let find = |items: &Container| items.replace("k", "new", Ttl::Never).unwrap();
    let what = "a replacement after the end beside a touch";
    one_of_them_sees_the_end(what, 2, Durability::Buffered, touch, find);
}

/// A gone item stays gone: no read sees half of a change of the settings.
#[test]
fn what_is_gone_stays_gone_while_the_default_changes() {
    check("a read beside a change of the default", 2, || {
        let World {
            clock, items, db, ..
        } = world(Durability::Buffered);
        let short = DefaultTtl::After(Duration::from_secs(5));
        items.set_default_ttl(short).unwrap();
        clock.advance(Duration::from_secs(5));
        let reader = {
            let items = items.clone();
            spawn(move || assert!(!items.contains("k").unwrap(), "it came back"))
        };
        items.set_default_ttl(DefaultTtl::Off).unwrap();
        reader.join().unwrap();
        db.close().unwrap();
    });
}

/// Under Sync, whatever a reader has seen is there after a power cut.
#[test]
fn what_was_seen_survives_under_sync() {
    check("a read beside a synced put", 3, || {
        let world = Arc::new(world(Durability::Sync));
        let writer = {
            let world = world.clone();
            spawn(move || world.items.put("a", "new").unwrap())
        };
        let seen = world.items.contains("a").unwrap();
        let left = world.power_cut();
        assert!(!seen || is_there(&world, &left, "a"));
        writer.join().unwrap();
    });
}

/// A write during closing is acknowledged and durable, or refused; a job during closing does no harm, and the folder is free.
#[test]
fn a_write_beside_the_end_is_there_or_refused() {
    check("a put, a flush and the end", 2, || {
        let world = Arc::new(world(Durability::Buffered));
        let writer = {
            let world = world.clone();
            spawn(move || match world.items.put("a", "new") {
                Ok(()) => true,
                Err(error) => {
                    assert!(error.is_closed(), "{error}");
                    false
                }
            })
        };
        let job = {
            let world = world.clone();
            spawn(move || {
                if let Err(error) = world.db.flush() {
                    assert!(error.is_closed(), "{error}");
                }
            })
        };
        world.db.close().unwrap();
        let taken = writer.join().unwrap();
        job.join().unwrap();
        let left = world.power_cut();
        assert_eq!(is_there(&world, &left, "a"), taken);
        assert!(is_there(&world, &world.sim, "k"), "nobody holds the lock");
    });
}
