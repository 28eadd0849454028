//! The operations that programs wait for, and what reclaiming costs. `cargo bench`, a minute or two in all.
//!
//! The folder of the databases is the system's temporary one; `TMPDIR` chooses another disk.

// clippy.toml keeps the library from reading clocks; what measures it has to.
#![allow(clippy::disallowed_methods)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{BatchSize, Bencher, Criterion, Throughput, criterion_group, criterion_main};
use ebbtide::{Batch, Container, Database, DefaultTtl, Durability, ManualClock, Options, Ttl};

/// Items in the databases that are read: more than the processor's caches hold.
const ITEMS: u64 = 1_000_000;
const VALUE: [u8; 100] = [b'v'; 100];
/// Items that expire together.
const EXPIRING: u64 = 200_000;

/// 16 bytes without order, a different key for every number.
fn key(number: u64) -> [u8; 16] {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A number below `bound` from the next of a sequence without pattern.
fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 32) * bound) >> 32
}

struct World {
    db: Database,
    items: Container,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(options: Options) -> World {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let db = options.open(folder.path()).expect("a new database");
        let items = db.container("items").expect("a new container");
        World {
            db,
            items,
            _folder: folder,
        }
    }

    /// With `count` items, in runs, merged.
    fn filled(options: Options, count: u64, ttl: Ttl) -> World {
        let world = World::new(options);
        let mut batch = Batch::new();
        for number in 0..count {
            batch.put_with_ttl(&world.items, key(number), VALUE, ttl);
            if batch.len() == 1_000 || number + 1 == count {
                world.db.write(&batch).expect("written");
                batch.clear();
            }
        }
        world.db.flush().expect("flushed");
        world.db.compact().expect("merged");
        world
    }
}

fn put(c: &mut Criterion) {
    let world = World::new(Options::new());
    let mut number = 0;
    let mut group = c.benchmark_group("put");
    group.throughput(Throughput::Elements(1));
    group.bench_function("buffered", |b| {
        b.iter(|| {
            number += 1;
            world
                .items
                .put_with_ttl(key(number), VALUE, Ttl::After(Duration::from_secs(3_600)))
        });
    });
    group.finish();
}

fn get(c: &mut Criterion) {
    let world = World::filled(Options::new(), ITEMS, Ttl::Inherit);
    let mut state = 1;
    let mut group = c.benchmark_group("get");
    group.throughput(Throughput::Elements(1));
    let mut bench = |name: &str, from: u64| {
        group.bench_function(name, |b| {
            b.iter(|| {
                world
                    .items
                    .get(key(from + random(&mut state, ITEMS)))
                    .expect("read")
            });
        });
    };
    bench("hit", 0);
    bench("miss", ITEMS);
    group.finish();

    let mut group = c.benchmark_group("scan");
    group.throughput(Throughput::Elements(100));
    group.bench_function("100 items from anywhere", |b| {
        b.iter(|| {
            let from = key(random(&mut state, ITEMS));
            world
                .items
                .range(from..)
                .take(100)
                .map(|item| item.expect("read").value().len())
                .sum::<usize>()
        });
    });
    group.throughput(Throughput::Elements(ITEMS));
    group.sample_size(10);
    group.bench_function("all items", |b| {
        b.iter(|| black_box(world.items.iter().count()))
    });
    group.finish();
}

/// Writers that wait for the disk share its syncs.
fn sync(c: &mut Criterion) {
    let mut group = c.benchmark_group("put, synced");
    group.throughput(Throughput::Elements(1));
    for writers in [1, 4, 16] {
        let world = World::new(Options::new().durability(Durability::Sync));
        let number = AtomicU64::new(0);
        group.bench_function(format!("{writers} at a time"), |b| {
            b.iter_custom(|count| put_by_many(&world.items, &number, writers, count));
        });
    }
    group.finish();
}

/// The time that `writers` threads take for `count` puts together.
fn put_by_many(items: &Container, number: &AtomicU64, writers: u64, count: u64) -> Duration {
    let end = number.load(Ordering::Relaxed) + count;
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                loop {
                    let next = number.fetch_add(1, Ordering::Relaxed);
                    if next >= end {
                        break;
                    }
                    items.put(key(next), VALUE).expect("written");
                }
            });
        }
    });
    number.store(end, Ordering::Relaxed);
    begun.elapsed()
}

/// What it takes to give expired bytes back: whole runs, and those that lie between bytes that live on.
fn reclaim(c: &mut Criterion) {
    let mut group = c.benchmark_group("reclaim");
    group.throughput(Throughput::Elements(EXPIRING));
    group.sample_size(10);
    let hour = Duration::from_secs(3_600);
    let expired = |mixed: bool| {
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new()
            .clock(clock.clone())
            .background_rate(u64::MAX);
        let world = World::new(options);
        world
            .items
            .set_default_ttl(DefaultTtl::NoDefault)
            .expect("set");
        let mut batch = Batch::new();
        for number in 0..EXPIRING {
            let ttl = if mixed && number % 2 == 0 {
                hour * 4
            } else {
                hour
            };
            batch.put_with_ttl(&world.items, key(number), VALUE, Ttl::After(ttl));
        }
        world.db.write(&batch).expect("written");
        world.db.flush().expect("flushed");
        clock.advance(hour);
        world
    };
    let compact = |b: &mut Bencher<'_>, mixed: bool| {
        b.iter_batched(
            || expired(mixed),
            |world| {
                world.db.compact().expect("reclaimed");
                assert_eq!(world.items.stats().expired_bytes, 0);
                world
            },
            BatchSize::PerIteration,
        );
    };
    group.bench_function("all expired", |b| compact(b, false));
    group.bench_function("half expired", |b| compact(b, true));
    group.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = put, get, sync, reclaim
}
criterion_main!(benches);
