//! One operation at a time, often, for a tool that counts instructions. `.ci/instructions` runs it.
//!
//! ```text
//! instructions list                        the operations
//! instructions prepare OPERATION FOLDER    makes the database that the operation needs
//! instructions count OPERATION FOLDER      does it, within `counted_part`, and says how many times
//! ```
//!
//! With the feature `metrics` a recorder is installed, and each database has published to it.
//!
//! Making a database and counting in it are two processes, because what counts is slow. Nothing happens by chance or in
//! the background: keys follow from numbers, the clock stands, and flushes and merges are done when they are called for.

use std::env;
use std::hint::black_box;
use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "metrics")]
#[path = "../../../examples/recorder/mod.rs"]
mod recorder;

use ebbtide::{Batch, Container, Database, DefaultTtl, ManualClock, Options, Result, Ttl};

/// Items of the databases that are read: enough for an index of two levels.
const ITEMS: u64 = 100_000;
/// Items of those that are in memory, and of what is written while it is counted. Twice as many do not fill so much of the
/// log that somebody should drain it or prepare its next segment: nobody would.
const FEW: u64 = 5_000;
/// Items of the log that a database is opened with.
const LOGGED: u64 = 30_000;
/// Items of a scan or a batch.
const SOME: u64 = 100;
/// Keys that are asked for at once.
const MANY: usize = 16;
/// Runs that overlap.
const RUNS: u64 = 8;

const VALUE: [u8; 100] = [b'v'; 100];
/// Nothing expires meanwhile.
const LIFE: Ttl = Ttl::After(Duration::from_secs(30 * 24 * 3_600));

/// The n-th of a fixed sequence of well-mixed numbers (SplitMix64).
fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

type Key = [u8; 16];

/// 16 bytes without order, a different key for every number.
fn key(number: u64) -> Key {
    let mut key = Key::default();
    key[..8].copy_from_slice(&mixed(2 * number).to_be_bytes());
    key[8..].copy_from_slice(&mixed(2 * number + 1).to_be_bytes());
    key
}

/// So many keys, each as likely, of items with numbers below `items`.
fn any_of(items: u64, count: u64) -> Vec<Key> {
    (0..count).map(|n| key(mixed(n) % items)).collect()
}

fn keys(numbers: Range<u64>) -> Vec<Key> {
    numbers.map(key).collect()
}

/// The counted code: the tool starts at its entry and stops at its return, and knows it by this name.
#[inline(never)]
fn counted_part(work: &mut dyn FnMut()) {
    work();
}

/// Does it once for what the first time costs alone, and once more to be counted.
fn counted_once_warm(work: &mut dyn FnMut()) {
    work();
    counted_part(work);
}

struct World {
    db: Database,
    items: Container,
}

fn options() -> Options {
    Options::new()
        .clock(ManualClock::new(1_800_000_000_000))
        .memtable_bytes(128 << 20)
        .stepped()
}

impl World {
    fn open(folder: &str) -> Result<World> {
        World::open_with(folder, options())
    }

    fn open_with(folder: &str, options: Options) -> Result<World> {
        let db = options.open(folder)?;
        let items = db.container("items")?;
        items.set_default_ttl(DefaultTtl::NoDefault)?;
        #[cfg(feature = "metrics")]
        db.publish_metrics()?;
        Ok(World { db, items })
    }

    /// With [`FEW`] items, in memory and in the log.
    fn with_few(folder: &str) -> Result<World> {
        let world = World::open(folder)?;
        world.put(&keys(0..FEW));
        Ok(world)
    }

    fn put(&self, keys: &[Key]) {
        for key in keys {
            self.items.put_with_ttl(key, VALUE, LIFE).expect("written");
        }
    }

    fn put_batches(&self, keys: &[Key]) {
        for keys in keys.chunks(SOME as usize) {
            let mut batch = Batch::new();
            for key in keys {
                batch.put_with_ttl(&self.items, key, VALUE, LIFE);
            }
            self.db.write(&batch).expect("written");
        }
    }

    /// Each reads two keys, of which one has an item, and writes both.
    fn transact(&self, keys: &[Key]) {
        for key in keys {
            let done = self.db.transaction(|tx| {
                let next = mixed(u64::from_be_bytes(key[..8].try_into().expect("8 bytes")));
                let is_new = tx.create(&self.items, next.to_be_bytes(), VALUE, LIFE)?;
                let before = tx.get(&self.items, key)?;
                tx.put_with_ttl(&self.items, key, VALUE, LIFE)?;
                Ok((is_new, before))
            });
            let (is_new, before) = done.expect("committed");
            assert!(is_new && before.is_some());
        }
    }

    fn get(&self, keys: &[Key], there: bool) {
        for key in keys {
            assert_eq!(self.items.get(key).expect("read").is_some(), there);
        }
    }

    fn try_get(&self, keys: &[Key]) {
        for key in keys {
            let found = self.items.try_get(key).expect("read").ready();
            assert!(found.expect("nothing is to be waited for").is_some());
        }
    }

    fn get_many(&self, keys: &[Key], there: bool) {
        for keys in keys.chunks(MANY) {
            let values = self.items.get_many(keys).expect("read");
            assert!(values.iter().all(|value| value.is_some() == there));
        }
    }

    fn item(&self, keys: &[Key]) {
        for key in keys {
            black_box(self.items.item(key).expect("read").expect("there"));
        }
    }

    fn scan(&self, keys: &[Key]) {
        for key in keys {
            let items = self.items.range(*key..).take(SOME as usize);
            items.for_each(|item| drop(black_box(item.expect("read"))));
        }
    }

    fn lend(&self, keys: &[Key]) {
        for key in keys {
            let mut left = SOME;
            let shown = self.items.for_each(*key.., |key, value| {
                black_box((key, value));
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
            assert!(shown.expect("read").is_break() || left > 0);
        }
    }

    fn lend_all(&self) {
        let mut items = 0;
        let shown = self.items.for_each(.., |key, value| {
            black_box((key, value));
            items += 1;
            ControlFlow::<()>::Continue(())
        });
        assert!(shown.expect("read").is_continue() && items == ITEMS);
    }

    fn scan_all(&self) {
        let items = self.items.iter().map(|item| item.expect("read"));
        assert_eq!(items.map(black_box).count() as u64, ITEMS);
    }
}

/// The contents of a database before the counting begins.
enum Holds {
    Nothing,
    /// [`LOGGED`] items in the log, left by a process that ended without closing.
    Log,
    /// [`ITEMS`] items in so many runs, each over all keys.
    Runs(u64),
}

/// A name, what the operation needs, and how many times it was done within [`counted_part`].
type Operation = (&'static str, Holds, fn(&str) -> Result<u64>);

const OPERATIONS: [Operation; 21] = [
    ("put", Holds::Nothing, |folder| {
        let (world, more) = (World::with_few(folder)?, keys(FEW..2 * FEW));
        counted_part(&mut || world.put(&more));
        Ok(FEW)
    }),
    ("overwrite", Holds::Nothing, |folder| {
        let (world, again) = (World::with_few(folder)?, any_of(FEW, FEW));
        counted_part(&mut || world.put(&again));
        Ok(FEW)
    }),
    ("batch", Holds::Nothing, |folder| {
        let (world, more) = (World::with_few(folder)?, keys(FEW..2 * FEW));
        counted_part(&mut || world.put_batches(&more));
        Ok(FEW / SOME)
    }),
    ("transaction", Holds::Nothing, |folder| {
        let (world, keys) = (World::with_few(folder)?, keys(0..FEW));
        counted_part(&mut || world.transact(&keys));
        Ok(FEW)
    }),
    ("get-memory", Holds::Nothing, |folder| {
        let (world, keys) = (World::with_few(folder)?, any_of(FEW, FEW));
        counted_once_warm(&mut || world.get(&keys, true));
        Ok(FEW)
    }),
    ("get", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, FEW));
        counted_once_warm(&mut || world.get(&keys, true));
        Ok(FEW)
    }),
    ("try-get", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, FEW));
        // A block that was never read is one to wait for.
        world.get(&keys, true);
        counted_once_warm(&mut || world.try_get(&keys));
        Ok(FEW)
    }),
    ("get-runs", Holds::Runs(RUNS), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, FEW));
        counted_once_warm(&mut || world.get(&keys, true));
        Ok(FEW)
    }),
    ("get-absent", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, keys(ITEMS..ITEMS + FEW));
        counted_once_warm(&mut || world.get(&keys, false));
        Ok(FEW)
    }),
    ("get-many", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, FEW));
        counted_once_warm(&mut || world.get_many(&keys, true));
        Ok(FEW)
    }),
    ("get-many-absent", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, keys(ITEMS..ITEMS + FEW));
        counted_once_warm(&mut || world.get_many(&keys, false));
        Ok(FEW)
    }),
    ("item", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, FEW));
        counted_once_warm(&mut || world.item(&keys));
        Ok(FEW)
    }),
    ("scan", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, SOME));
        counted_once_warm(&mut || world.scan(&keys));
        Ok(SOME)
    }),
    ("scan-runs", Holds::Runs(RUNS), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, SOME));
        counted_once_warm(&mut || world.scan(&keys));
        Ok(SOME)
    }),
    ("scan-all", Holds::Runs(1), |folder| {
        let world = World::open(folder)?;
        counted_once_warm(&mut || world.scan_all());
        Ok(ITEMS)
    }),
    ("lent", Holds::Runs(1), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, SOME));
        counted_once_warm(&mut || world.lend(&keys));
        Ok(SOME)
    }),
    ("lent-runs", Holds::Runs(RUNS), |folder| {
        let (world, keys) = (World::open(folder)?, any_of(ITEMS, SOME));
        counted_once_warm(&mut || world.lend(&keys));
        Ok(SOME)
    }),
    ("lent-all", Holds::Runs(1), |folder| {
        let world = World::open(folder)?;
        counted_once_warm(&mut || world.lend_all());
        Ok(ITEMS)
    }),
    ("flush", Holds::Nothing, |folder| {
        let world = World::with_few(folder)?;
        counted_part(&mut || world.db.flush().expect("flushed"));
        Ok(FEW)
    }),
    ("merge", Holds::Runs(RUNS), |folder| {
        // So many runs that they are merged though they share no key.
        let world = World::open_with(folder, options().max_runs(2))?;
        counted_part(&mut || world.db.compact().expect("merged"));
        assert_eq!(world.items.stats().runs, 1);
        Ok(ITEMS)
    }),
    ("reopen", Holds::Log, |folder| {
        let (options, mut db) = (options(), None);
        counted_part(&mut || db = Some(options.open(folder).expect("recovered")));
        let db = db.expect("it was opened");
        assert_eq!(db.container("items")?.iter().count() as u64, LOGGED);
        Ok(LOGGED)
    }),
];

/// Makes the database, in an empty folder.
fn prepare(holds: &Holds, folder: &str) -> Result<()> {
    match *holds {
        Holds::Nothing => {}
        Holds::Log => {
            let world = World::open(folder)?;
            world.put(&keys(0..LOGGED));
            std::mem::forget(world);
        }
        Holds::Runs(runs) => {
            let world = World::open(folder)?;
            for run in 0..runs {
                world.put(&keys(run * ITEMS / runs..(run + 1) * ITEMS / runs));
                world.db.flush()?;
            }
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    #[cfg(feature = "metrics")]
    recorder::install();
    let find = |name: &str| OPERATIONS.iter().find(|(known, ..)| *known == name);
    match arguments[..] {
        ["list"] => OPERATIONS.iter().for_each(|(name, ..)| println!("{name}")),
        ["prepare", name, folder] if let Some((_, holds, _)) = find(name) => {
            prepare(holds, folder)?
        }
        ["count", name, folder] if let Some((.., count)) = find(name) => {
            println!("{}", count(folder)?)
        }
        _ => {
            eprintln!("usage: instructions list | (prepare | count) OPERATION FOLDER");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
