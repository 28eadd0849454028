//! Goal: where memory is short, gets answer from cached records: without reading a file, judged as always, within the
//! bound of the cache; and the bytes of expired items leave memory by the clock. Blocks that were evicted are read directly, or
//! in the map where they cannot be; damage is no answer either way.
//!
//! Method: memory is pretended to be short for the test's thread, and no page of a map to be in memory, on a simulated disk whose
//! reads are counted. That gets are right over whole histories is for tests/contract/model.rs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::internals::{Fault, Fs, Sim, pretend_memory_is_short};
use ebbtide::{AtOnce, Compression, Container, Database, DefaultTtl, ManualClock, Reads, Ttl};
use testkit::stage::{NOW, fail_from_now, in_steps, seconds};

const MINUTE: Duration = seconds(60);
const ITEMS: u32 = 200;
/// A record of these items in the cache.
const RECORD_BYTES: u64 = 100;

struct World {
    sim: Sim,
    reads: Arc<AtomicU64>,
    clock: ManualClock,
    db: Database,
    items: Container,
}

/// A database with items in one table.
fn world(reads: Reads, compression: Compression, cache_bytes: usize) -> World {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = in_steps(&sim, &clock)
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
        sim,
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

    fn get_each(&self) {
        (0..ITEMS).for_each(|n| assert!(self.get(n).is_some()));
    }

    /// One call for all finds what a get of each finds.
    fn get_many(&self) {
        let keys: Vec<_> = (0..ITEMS).map(key).collect();
        let values = self.items.get_many(&keys).unwrap();
        for (n, value) in (0..ITEMS).zip(values) {
            assert_eq!(self.get(n).unwrap(), value.unwrap().to_vec());
        }
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
            world.get_many();
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
            world.get_each();
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
    world.get_each();
    pretend_memory_is_short(false);
    for _ in 0..2 {
        assert!(world.get(1).is_some());
        world.clock.advance(MINUTE);
        world.db.step().unwrap();
    }
    assert_eq!(world.db.cached_bytes(), empty);
    assert!(world.get(1).is_some());
}

#[test]
fn records_are_used_as_long_as_they_are_there() {
    let world = world(Reads::Pread, Compression::None, 1 << 20);
    world.get_each();
    pretend_memory_is_short(false);
    let read = world.reads();
    world.get_many();
    for n in 0..ITEMS {
        let at_once = world.items.try_get(key(n)).unwrap();
        assert!(
            matches!(at_once, AtOnce::Ready(Some(_))),
            "{n}: {at_once:?}"
        );
    }
    assert_eq!(world.reads(), read);
}

/// Every item is got so often, by single gets and by calls for several; the reads of files for each item.
fn get_all(world: &World, times: u32) -> f64 {
    let read = world.reads();
    for time in 0..times {
        let keys: Vec<_> = (0..ITEMS).map(key).collect();
        let values = match time % 2 {
            0 => keys.iter().map(|key| world.items.get(key)).collect(),
            _ => world.items.get_many(&keys),
        };
        for (n, value) in values.unwrap().into_iter().enumerate() {
            assert_eq!(value.unwrap(), [n as u8; RECORD_BYTES as usize], "{n}");
        }
    }
    (world.reads() - read) as f64 / f64::from(times * ITEMS)
}

#[test]
fn evicted_blocks_are_mostly_read_past_the_cache_of_the_system() {
    for compression in [Compression::None, Compression::Lz4] {
        let world = world(Reads::Map, compression, 1);
        assert!(world.get(0).is_some());
        let most = 0.96..0.975;
        let read = get_all(&world, 10);
        assert!(most.contains(&read), "{read}");
        // The new table was never read, and is before long.
        let first = [0; RECORD_BYTES as usize];
        world.items.put(key(0), first).unwrap();
        world.db.flush().unwrap();
        let read = world.reads();
        world.db.compact().unwrap();
        assert!(world.reads() > read, "so is what is merged");
        let read = get_all(&world, 10);
        assert!(most.contains(&read), "{read}");
    }
}

#[test]
fn what_cannot_be_read_past_the_cache_of_the_system_is_read_in_the_map() {
    let world = world(Reads::Map, Compression::None, 1);
    assert!(world.get(0).is_some());
    assert!(get_all(&world, 2) > 0.5);
    fail_from_now(&world.sim, Fault::Io, |call| call.operation == "read");
    // After the first failure it is not tried for long.
    let read = get_all(&world, 4);
    assert!(read < 0.05, "{read}");
    let first = [0; RECORD_BYTES as usize];
    world.items.put(key(0), first).unwrap();
    world.db.flush().unwrap();
    world.db.compact().expect("so is what is merged");
    assert!(get_all(&world, 4) < 0.05);
}

#[test]
fn a_container_that_is_read_past_the_cache_of_the_system_shows_each_of_its_versions() {
    let world = world(Reads::Map, Compression::None, 1);
    let before = world.db.snapshot();
    for n in 0..ITEMS / 2 {
        world.items.put(key(n), "new").unwrap();
    }
    world.items.delete(key(ITEMS - 1)).unwrap();
    world.db.flush().unwrap();
    for compacted in [false, true] {
        if compacted {
            world.db.compact().unwrap();
        }
        let old = before.container("items").unwrap();
        for _ in 0..4 {
            for n in 0..ITEMS {
                let now = match n {
                    _ if n < ITEMS / 2 => Some(b"new".to_vec()),
                    _ if n == ITEMS - 1 => None,
                    _ => Some(vec![n as u8; 100]),
                };
                assert_eq!(world.get(n), now, "{n}");
                assert_eq!(old.get(key(n)).unwrap().unwrap(), [n as u8; 100], "{n}");
            }
        }
    }
    assert!(world.reads() > 1_000, "{}", world.reads());
}

#[test]
fn damage_that_is_read_past_the_cache_of_the_system_is_no_answer() {
    let world = world(Reads::Map, Compression::None, 1);
    assert!(get_all(&world, 2) > 0.5);
    let tables = Path::new("/db/tables");
    let [table] = &world.sim.list(tables).unwrap()[..] else {
        panic!("one table");
    };
    let (path, last) = (tables.join(table), u64::from(ITEMS - 1));
    let bytes = world.sim.read(&path).unwrap();
    let value = vec![last as u8; RECORD_BYTES as usize];
    let found = bytes.windows(value.len()).position(|part| part == value);
    let file = world.sim.open(&path).unwrap();
    file.write_at(found.unwrap() as u64, b"?").unwrap();
    // A map of this disk is a copy, in which the block is sound.
    for _ in 0..20 {
        assert_eq!(world.get(ITEMS - 1).unwrap(), value);
    }
}
