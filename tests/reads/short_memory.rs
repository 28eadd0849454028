//! Goal: where memory is short, gets answer from cached records: without reading a file, judged as always, within the
//! bound of the cache; and the bytes of expired items leave memory by the clock.
//!
//! Method: memory is pretended to be short for the test's thread, on a simulated disk whose reads are counted. That gets
//! are right over whole histories is for tests/contract/model.rs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::internals::{Sim, pretend_memory_is_short};
use ebbtide::{Compression, Container, Database, DefaultTtl, ManualClock, Options, Reads, Ttl};

const START: u64 = 1_800_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const ITEMS: u32 = 200;
/// A record of these items in the cache.
const RECORD_BYTES: u64 = 100;

struct World {
    reads: Arc<AtomicU64>,
    clock: ManualClock,
    db: Database,
    items: Container,
}

/// A database with items in one table.
fn world(reads: Reads, compression: Compression, cache_bytes: usize) -> World {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let db = Options::new()
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .reads(reads)
        .compression(compression)
        .cache_bytes(cache_bytes)
        .reclaim_within(MINUTE)
        .open("/db")
        .unwrap();
    let items = db.container("items").unwrap();
    items.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    for n in 0..ITEMS {
        items.put(key(n), [n as u8; RECORD_BYTES as usize]).unwrap();
    }
    db.flush().unwrap();
    let counted = Arc::new(AtomicU64::new(0));
    sim.watch({
        let counted = counted.clone();
        move |_, call| {
            counted.fetch_add(u64::from(call.operation == "read"), Ordering::Relaxed);
        }
    });
    pretend_memory_is_short(true);
    World {
        reads: counted,
        clock,
        db,
        items,
    }
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

impl World {
    fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    fn get(&self, n: u32) -> Option<Vec<u8>> {
        self.items.get(key(n)).unwrap().map(|value| value.to_vec())
    }
}

#[test]
fn a_record_that_was_got_is_got_again_without_the_file() {
    for reads in [Reads::Map, Reads::Pread] {
        for compression in [Compression::None, Compression::Lz4] {
            let world = world(reads, compression, 1 << 20);
            let empty = world.db.cached_bytes();
            for n in 0..ITEMS {
                assert_eq!(world.get(n).unwrap(), [n as u8; 100]);
            }
            let (read, full) = (world.reads(), world.db.cached_bytes());
            assert!(full >= empty + u64::from(ITEMS) * RECORD_BYTES, "{full}");
            let keys: Vec<_> = (0..ITEMS).map(key).collect();
            let values = world.items.get_many(&keys).unwrap();
            for (n, value) in (0..ITEMS).zip(values) {
                assert_eq!(world.get(n).unwrap(), value.unwrap().to_vec());
            }
            assert_eq!((world.reads(), world.db.cached_bytes()), (read, full));
        }
    }
}

#[test]
fn a_cached_record_gives_way_to_newer_ones_and_shows_snapshots_theirs() {
    for reads in [Reads::Map, Reads::Pread] {
        let world = world(reads, Compression::None, 1 << 20);
        let before = world.db.snapshot();
        let old = before.container("items").unwrap();
        assert!(world.get(1).is_some());
        world.items.put(key(1), "new").unwrap();
        world.items.delete(key(2)).unwrap();
        for _ in 0..2 {
            for _ in 0..2 {
                assert_eq!(world.get(1).unwrap(), b"new");
                assert_eq!(world.get(2), None);
                for n in [1, 2] {
                    assert_eq!(old.get(key(n)).unwrap().unwrap(), [n as u8; 100]);
                }
            }
            // The versions side by side in one table.
            world.db.compact().unwrap();
        }
        world.items.delete_range(key(0)..key(ITEMS)).unwrap();
        assert_eq!((world.get(1), world.get(3)), (None, None));
        assert_eq!(old.get(key(3)).unwrap().unwrap(), [3; 100]);
    }
}

#[test]
fn the_cache_keeps_within_its_bytes() {
    for reads in [Reads::Map, Reads::Pread] {
        let world = world(reads, Compression::None, 16 << 10);
        for n in 0..ITEMS {
            assert!(world.get(n).is_some());
            assert!(world.db.cached_bytes() <= 16 << 10);
        }
    }
}

#[test]
fn expired_items_are_not_shown_and_leave_memory_by_the_clock() {
    for own_ttl in [true, false] {
        for reads in [Reads::Map, Reads::Pread] {
            let world = world(reads, Compression::None, 1 << 20);
            if own_ttl {
                for n in 0..ITEMS / 2 {
                    let life = Ttl::After(10 * MINUTE);
                    world.items.put_with_ttl(key(n), [7; 100], life).unwrap();
                }
                world.db.flush().unwrap();
            }
            for n in 0..ITEMS {
                assert!(world.get(n).is_some());
            }
            let full = world.db.cached_bytes();
            world.clock.advance(10 * MINUTE);
            if !own_ttl {
                // A shorter default ends what is cached as it ends what is stored.
                let default = DefaultTtl::After(10 * MINUTE);
                world.items.set_default_ttl(default).unwrap();
            }
            let gone = if own_ttl { ITEMS / 2 } else { ITEMS };
            assert_eq!(world.get(0), None);
            world.db.step().unwrap();
            let left = world.db.cached_bytes();
            let bytes = u64::from(gone) * RECORD_BYTES;
            assert!(left + bytes <= full, "{full} to {left}");
            assert_eq!(world.get(ITEMS - 1).is_some(), own_ttl);
        }
    }
}

#[test]
fn records_leave_memory_when_memory_is_no_longer_short() {
    let world = world(Reads::Map, Compression::None, 1 << 20);
    let empty = world.db.cached_bytes();
    for n in 0..ITEMS {
        assert!(world.get(n).is_some());
    }
    pretend_memory_is_short(false);
    for _ in 0..2 {
        world.clock.advance(MINUTE);
        world.db.step().unwrap();
    }
    assert_eq!(world.db.cached_bytes(), empty);
    assert!(world.get(1).is_some());
}
