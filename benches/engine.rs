//! The operations that programs wait for, and what reclaiming costs. `cargo bench`, some minutes in all; of
//! `cargo bench -- '^get/'`, only the databases that are needed are made.
//!
//! Groups have the names of the rows of benches/peers, benches in them are numbers of threads, and both do the same: items
//! of 16 random and 100 other bytes, each with a lifetime that does not end meanwhile. `reclaim` and `transaction` have no
//! row.
//!
//! The folder of the databases is the system's temporary one; `TMPDIR` chooses another disk.

// clippy.toml keeps the library from reading clocks and touching files; what measures it has to.
#![allow(clippy::disallowed_methods)]

use std::cell::LazyCell;
use std::fs;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{
    BatchSize, Bencher, BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group,
    criterion_main,
};
use ebbtide::{Batch, Container, Database, Durability, ManualClock, Options, Ttl};
use tempfile::TempDir;

/// Items in the databases that are read: more than the processor's caches hold.
const ITEMS: u64 = 1_000_000;
/// Items in the log that a database is opened with: half of a memtable.
const LEFT: u64 = 239_000;
/// Items from here on are not there.
const ABSENT: u64 = ITEMS + LEFT;
/// Runs that overlap.
const RUNS: u64 = 8;
/// Items of a scan.
const SCANNED: usize = 100;
/// Items that expire together.
const EXPIRING: u64 = 200_000;

const VALUE: [u8; 100] = [b'v'; 100];
const HOUR: Duration = Duration::from_secs(3_600);
/// Longer than anything goes on here.
const LIFE: Ttl = Ttl::After(Duration::from_secs(30 * 24 * 3_600));

/// The n-th of a fixed sequence of well-mixed numbers (SplitMix64).
fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 16 bytes without order, a different key for every number.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(2 * number).to_be_bytes());
    key[8..].copy_from_slice(&mixed(2 * number + 1).to_be_bytes());
    key
}

/// The numbers of items that one thread asks for, or puts.
struct Draws(u64);

impl Draws {
    /// Others than any before.
    fn new() -> Draws {
        static STREAMS: AtomicU64 = AtomicU64::new(1);
        Draws(STREAMS.fetch_add(1, Ordering::Relaxed) << 32)
    }

    fn next(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        mixed(self.0) % bound
    }

    /// Each item as likely.
    fn uniform(&mut self) -> u64 {
        self.next(ITEMS)
    }

    /// A few items most of the time, and these lie anywhere: by Zipf's law with the exponent 0.99.
    fn zipfian(&mut self) -> u64 {
        /// Drawn beforehand, because drawing one takes as long as a get.
        static DRAWN: LazyLock<Vec<u64>> = LazyLock::new(|| {
            let mut sums = vec![0.0];
            for rank in 1..=ITEMS {
                sums.push(sums[rank as usize - 1] + (rank as f64).powf(-0.99));
            }
            let draw = |n| {
                let at = mixed(n) as f64 / 2f64.powi(64) * sums[ITEMS as usize];
                let rank = sums.partition_point(|sum| *sum <= at);
                mixed(rank as u64) % ITEMS
            };
            (0..1 << 20).map(draw).collect()
        });
        DRAWN[self.next(DRAWN.len() as u64) as usize]
    }
}

struct World {
    db: Database,
    items: Container,
    folder: TempDir,
}

impl World {
    fn new(options: &Options) -> World {
        World::open(options, temporary_folder())
    }

    fn open(options: &Options, folder: TempDir) -> World {
        let db = options.open(folder.path()).expect("a database");
        let items = db.container("items").expect("a container");
        World { db, items, folder }
    }

    /// With all items, as a compaction leaves them.
    fn settled() -> World {
        let world = World::new(&Options::new());
        world.put_all(0..ITEMS);
        world.db.compact().expect("merged");
        world
    }

    /// With all items, in runs of a like size, each over all keys, that stay as they are.
    fn in_runs() -> World {
        let world = World::new(&Options::new().background_floor(1).background_rate(1));
        for run in 0..RUNS {
            world.put_all(ITEMS * run / RUNS..ITEMS * (run + 1) / RUNS);
            world.db.flush().expect("flushed");
        }
        world.scan_all();
        world
    }

    /// Another database that holds the same, all of it read once.
    fn copy(&self, options: &Options) -> World {
        let folder = temporary_folder();
        self.db.checkpoint(folder.path()).expect("copied");
        let copy = World::open(options, folder);
        copy.scan_all();
        copy
    }

    fn put(&self, number: u64) {
        let put = self.items.put_with_ttl(key(number), VALUE, LIFE);
        put.expect("written");
    }

    fn put_all(&self, numbers: Range<u64>) {
        numbers.for_each(|number| self.put(number));
    }

    fn get(&self, number: u64) {
        let value = self.items.get(key(number)).expect("read");
        assert_eq!(value.is_some(), number < ABSENT);
    }

    /// Two gets, and a batch of two puts.
    fn move_apart(&self, [from, to]: [u64; 2]) {
        self.get(from);
        self.get(to);
        let mut batch = Batch::new();
        batch.put_with_ttl(&self.items, key(from), VALUE, LIFE);
        batch.put_with_ttl(&self.items, key(to), VALUE, LIFE);
        self.db.write(batch).expect("written");
    }

    /// The same as a transaction.
    fn move_together(&self, numbers: [u64; 2]) {
        let moved = self.db.transaction(|tx| {
            for number in numbers {
                assert!(tx.get(&self.items, key(number))?.is_some());
            }
            for number in numbers {
                tx.put_with_ttl(&self.items, key(number), VALUE, LIFE)?;
            }
            Ok(())
        });
        moved.expect("committed");
    }

    fn scan(&self, from: u64) {
        for item in self.items.range(key(from)..).take(SCANNED) {
            black_box(item.expect("read").value().len());
        }
    }

    fn scan_all(&self) {
        let items = self.items.iter().map(|item| item.expect("read"));
        assert_eq!(items.map(black_box).count() as u64, ITEMS);
    }
}

fn temporary_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Copies the files that a kill now would leave: tables are shared, all others are copied.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            fs::create_dir(&to)?;
            copy_files(&from, &to)?;
        } else if from.extension().is_some_and(|kind| kind == "table") {
            fs::hard_link(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Measures an operation that so many threads do at once, as often as asked by all of them together.
fn by_many(b: &mut Bencher<'_>, threads: u64, operation: impl Fn(&mut Draws) + Sync) {
    b.iter_custom(|count| {
        let begun = Instant::now();
        thread::scope(|scope| {
            for thread in 0..threads {
                let (operation, share) = (&operation, (count + thread) / threads);
                scope.spawn(move || {
                    let mut draws = Draws::new();
                    (0..share).for_each(|_| operation(&mut draws));
                });
            }
        });
        begun.elapsed()
    });
}

/// A row of the operation on a database, which is made when the first of its benches begins.
fn row(
    c: &mut Criterion,
    name: &str,
    threads: &[u64],
    world: impl FnOnce() -> World,
    operation: impl Fn(&World, &mut Draws) + Sync,
) {
    let world = LazyCell::new(world);
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    for threads in threads {
        group.bench_function(threads.to_string(), |b| {
            let world: &World = &world;
            by_many(b, *threads, |draws| operation(world, draws));
        });
    }
}

/// A group of benches that are long, so that a few samples of one iteration have to do.
fn long<'a>(c: &'a mut Criterion, name: &str, elements: u64) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group
        .sample_size(10)
        .sampling_mode(SamplingMode::Flat)
        .throughput(Throughput::Elements(elements));
    group
}

fn rows(c: &mut Criterion) {
    let usual = &Options::new();
    let settled = LazyCell::new(World::settled);
    let copy = || settled.copy(usual);

    long(c, "fill", ITEMS).bench_function("1", |b| {
        b.iter_batched(
            || World::new(usual),
            |world| {
                world.put_all(0..ITEMS);
                world
            },
            BatchSize::PerIteration,
        );
    });
    row(c, "get", &[1, 2], copy, |world, draws| {
        world.get(draws.uniform());
    });
    row(c, "get-zipfian", &[1], copy, |world, draws| {
        world.get(draws.zipfian());
    });
    row(c, "get-absent", &[1], copy, |world, draws| {
        world.get(ABSENT + draws.uniform());
    });
    row(c, "scan", &[1], copy, |world, draws| {
        world.scan(draws.uniform());
    });
    row(c, "scan-runs", &[1], World::in_runs, |world, draws| {
        world.scan(draws.uniform());
    });
    {
        let world = LazyCell::new(copy);
        long(c, "scan-all", ITEMS).bench_function("1", |b| {
            let world: &World = &world;
            b.iter(|| world.scan_all());
        });
    }
    row(c, "overwrite", &[1], copy, |world, draws| {
        world.put(draws.uniform());
    });
    for (name, puts) in [("half", 50), ("most", 5)] {
        row(c, name, &[2], copy, |world, draws| {
            match draws.next(100) < puts {
                true => world.put(draws.zipfian()),
                false => world.get(draws.zipfian()),
            }
        });
    }
    let synced = || settled.copy(&Options::new().durability(Durability::Sync));
    row(c, "synced", &[1, 4, 16], synced, |world, draws| {
        world.put(draws.uniform());
    });
    reopen(c, &copy);
}

/// Opening after a kill, until the first get is answered.
fn reopen(c: &mut Criterion, copy: &dyn Fn() -> World) {
    let killed = LazyCell::new(|| {
        let world = copy();
        world.put_all(ITEMS..ABSENT);
        // Nothing happens in its folder any more.
        world.db.sync().expect("synced");
        world
    });
    let leave = || {
        let folder = temporary_folder();
        copy_files(killed.folder.path(), folder.path()).expect("copied");
        folder
    };
    long(c, "reopen", LEFT).bench_function("1", |b| {
        b.iter_batched(
            leave,
            |folder| {
                let world = World::open(&Options::new(), folder);
                world.get(ITEMS);
                world
            },
            BatchSize::PerIteration,
        );
    });
}

/// The cost of reclaiming expired bytes: whole runs, and records that lie between live ones.
fn reclaim(c: &mut Criterion) {
    let expired = |mixed: bool| {
        let clock = ManualClock::new(1_800_000_000_000);
        let options = Options::new()
            .clock(clock.clone())
            .background_rate(u64::MAX);
        let world = World::new(&options);
        let mut batch = Batch::new();
        for number in 0..EXPIRING {
            let lives_on = mixed && number % 2 == 0;
            let ttl = Ttl::After(if lives_on { HOUR * 4 } else { HOUR });
            batch.put_with_ttl(&world.items, key(number), VALUE, ttl);
        }
        world.db.write(&batch).expect("written");
        world.db.flush().expect("flushed");
        clock.advance(HOUR);
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
    let mut group = long(c, "reclaim", EXPIRING);
    group.bench_function("all expired", |b| compact(b, false));
    group.bench_function("half expired", |b| compact(b, true));
}

/// Two reads and two writes, with and without a transaction: it may take 2.5 times as long.
fn transaction(c: &mut Criterion) {
    let world = LazyCell::new(World::settled);
    let mut group = c.benchmark_group("transaction");
    group.throughput(Throughput::Elements(1));
    let mut measure = |name: &str, operation: fn(&World, [u64; 2])| {
        group.bench_function(name, |b| {
            let (world, mut draws): (&World, _) = (&world, Draws::new());
            b.iter(|| operation(world, [draws.uniform(), draws.uniform()]));
        });
    };
    measure("apart", World::move_apart);
    measure("together", World::move_together);
}

fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4))
}

criterion_group! {
    name = benches;
    config = settings();
    targets = rows, reclaim, transaction
}
criterion_main!(benches);
