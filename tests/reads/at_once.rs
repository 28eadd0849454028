//! Goal: a call that never waits gives the answer of the one that may, or none; it calls no disk and is not held up by what
//! holds up others; and where all that it needs is in memory, it answers.
//!
//! Method: the same random histories, with items that end, changes of settings, commands and clocks that go back, read both
//! ways after each step, on a simulated disk that counts calls. Disks that hold a call. Linearizability among threads is for
//! tests/linearizable.rs, which reads both ways too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Sim, pretend_memory_is_short};
use ebbtide::{
    AtOnce, Batch, Clock, Compression, Container, Database, DefaultTtl, Durability, Expect, Item,
    ManualClock, OnMiss, Options, Reads, Ttl, View,
};
use testkit::patience::comes_true;
use testkit::random::Random;
use testkit::stage::{NOW, after, default, in_steps, ms, seconds};
use testkit::watched::Gate;

const KEYS: u8 = 8;
const SECOND: Duration = seconds(1);

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    in_steps(sim, clock)
}

/// Calls of the disk, counted from now on.
fn calls(sim: &Sim) -> Arc<AtomicU64> {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    sim.watch(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    calls
}

type Shown = (Vec<u8>, Vec<u8>, Ttl, ebbtide::Version);

fn shown(item: &Item) -> Shown {
    let (key, value) = (item.key().to_vec(), item.value().to_vec());
    (key, value, item.ttl(), item.version())
}

/// How many answers there were, and how often there was none.
#[derive(Default)]
struct Counts {
    ready: u64,
    waits: u64,
}

impl Counts {
    fn add<T>(&mut self, answer: AtOnce<T>) -> Option<T> {
        let answer = answer.ready();
        match answer {
            Some(_) => self.ready += 1,
            None => self.waits += 1,
        }
        answer
    }
}

/// Reads a key both ways, first without waiting, so that nothing was brought into memory for that.
macro_rules! read_both_ways {
    ($reader:expr, $key:expr, $calls:expr, $counts:expr) => {{
        let (reader, key, before) = ($reader, $key, $calls.load(Ordering::Relaxed));
        let value = $counts.add(reader.try_get(key).unwrap());
        let item = $counts.add(reader.try_item(key).unwrap());
        let keys = [key, [0], key];
        let many = $counts.add(reader.try_get_many(keys).unwrap());
        assert_eq!($calls.load(Ordering::Relaxed), before, "a call of the disk");
        let expected = reader.get(key).unwrap();
        if let Some(value) = value {
            assert_eq!(value, expected);
        }
        if let Some(item) = item {
            let expected = reader.item(key).unwrap();
            assert_eq!(item.as_ref().map(shown), expected.as_ref().map(shown));
        }
        if let Some(many) = many {
            assert_eq!(many, [expected.clone(), reader.get([0]).unwrap(), expected]);
        }
    }};
}

struct World {
    db: Database,
    items: Container,
    clock: ManualClock,
    random: Random,
    views: Vec<View>,
}

impl World {
    fn key(&mut self) -> [u8; 1] {
        [self.random.below(usize::from(KEYS)) as u8]
    }

    fn ttl(&mut self) -> Ttl {
        match self.random.below(4) {
            0 => Ttl::Never,
            1 => Ttl::Inherit,
            _ => after(self.random.below(5_000) as u64),
        }
    }

    fn step(&mut self) {
        let (key, ttl) = (self.key(), self.ttl());
        let items = self.items.clone();
        match self.random.below(20) {
            0..8 => {
                // Some of them outside their block.
                let len = if self.random.one_in(6) { 20_000 } else { 20 };
                let value = vec![self.random.next() as u8; len];
                items.put_with_ttl(key, value, ttl).unwrap();
            }
            8 => items.delete(key).unwrap(),
            9 => items.delete_range(key..self.key()).unwrap(),
            10 => drop(items.touch(key).unwrap()),
            11 => {
                let default = match self.random.below(3) {
                    0 => DefaultTtl::Off,
                    1 => DefaultTtl::NoDefault,
                    _ => default(2_000),
                };
                items.set_default_ttl(default).unwrap();
            }
            12 if self.random.one_in(4) => items.expire_all().unwrap(),
            13 => self.db.flush().unwrap(),
            14 => self.db.compact().unwrap(),
            15 => {
                let view = self.db.snapshot().container("items").unwrap();
                self.views.push(view);
                self.views.truncate(3);
            }
            16 if self.random.one_in(4) => {
                self.clock.jump(NOW + self.random.below(1_000) as u64);
            }
            17 => pretend_memory_is_short(self.random.one_in(3)),
            18 => drop(self.views.pop()),
            _ => {
                let millis = self.random.below(1_500) as u64;
                self.clock.advance(ms(millis));
            }
        }
    }
}

fn play(seed: u64, counts: &mut Counts) {
    let (sim, clock) = (Sim::new(seed), ManualClock::new(NOW));
    let mut random = Random(seed);
    let options = options(&sim, &clock)
        .reads(random.pick(&[Reads::Map, Reads::Pread]))
        .compression(random.pick(&[Compression::None, Compression::Lz4]))
        .cache_bytes(random.pick(&[0, 1 << 20]));
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    let calls = calls(&sim);
    let mut world = World {
        db,
        items,
        clock,
        random,
        views: vec![],
    };
    for _ in 0..80 {
        world.step();
        for key in 0..KEYS {
            read_both_ways!(&world.items, [key], calls, counts);
        }
        let key = world.key();
        for view in &world.views {
            read_both_ways!(view, key, calls, counts);
        }
    }
    pretend_memory_is_short(false);
}

#[test]
fn what_is_answered_is_what_the_call_that_waits_answers() {
    let mut counts = Counts::default();
    for seed in 0..10 {
        play(seed, &mut counts);
    }
    // Most is in memory, and some is not.
    let Counts { ready, waits } = counts;
    assert!(ready > waits && waits > 100, "{ready} {waits}");
}

/// A database with an item in a table that was not read yet.
fn unread(options: &Options) -> (Database, Container) {
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    items.put("k", vec![7; 100]).unwrap();
    items.put("large", vec![7; 50_000]).unwrap();
    // So many blocks.
    for n in 0..800 {
        items
            .put(format!("n{n}"), format!("{n} ").repeat(30))
            .unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    (db, items)
}

#[test]
fn what_was_never_read_is_waited_for_and_what_was_is_not() {
    for compression in [Compression::None, Compression::Lz4] {
        for (reads, cache_bytes) in [
            (Reads::Map, 1 << 20),
            (Reads::Pread, 1 << 20),
            (Reads::Pread, 0),
        ] {
            let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
            let options = options(&sim, &clock);
            let options = options
                .compression(compression)
                .reads(reads)
                .cache_bytes(cache_bytes);
            let (_db, items) = unread(&options);
            assert_eq!(items.try_get("k").unwrap(), AtOnce::WouldWait);
            assert_eq!(
                items.try_get_many(["k", "none"]).unwrap(),
                AtOnce::WouldWait
            );
            let found = items.get("k").unwrap();
            let is_cached = reads == Reads::Map || cache_bytes > 0;
            let expected = if is_cached {
                AtOnce::Ready(found)
            } else {
                AtOnce::WouldWait
            };
            assert_eq!(
                items.try_get("k").unwrap(),
                expected,
                "{compression:?} {reads:?}"
            );
            // Of another block, which nobody has read.
            assert_eq!(items.try_get("n99").unwrap(), AtOnce::WouldWait);
            // A large value is used where it is mapped, or read again each time.
            assert_eq!(items.try_get("large").unwrap(), AtOnce::WouldWait);
            let found = items.get("large").unwrap();
            let expected = match (reads, compression) {
                (Reads::Map, Compression::None) => AtOnce::Ready(found),
                _ => AtOnce::WouldWait,
            };
            assert_eq!(
                items.try_get("large").unwrap(),
                expected,
                "{compression:?} {reads:?}"
            );
        }
    }
}

#[test]
fn where_memory_is_short_nothing_that_is_mapped_is_trusted() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let (_db, items) = unread(&options(&sim, &clock).cache_bytes(1 << 20));
    let found = items.get("k").unwrap();
    assert_eq!(items.try_get("k").unwrap(), AtOnce::Ready(found));
    // From here on the system says of nothing that it is there.
    pretend_memory_is_short(true);
    assert_eq!(items.try_get("k").unwrap(), AtOnce::WouldWait);
    items.put("fresh", "v").unwrap();
    assert!(matches!(
        items.try_get("fresh").unwrap(),
        AtOnce::Ready(Some(_))
    ));
    // A get caches its record then.
    let found = items.get("k").unwrap();
    assert_eq!(items.try_get("k").unwrap(), AtOnce::Ready(found));
    pretend_memory_is_short(false);
}

#[test]
fn a_real_file_that_was_read_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let items = db.container("items").unwrap();
    (0..1_000u32).for_each(|n| items.put(n.to_be_bytes(), [7; 100]).unwrap());
    db.flush().unwrap();
    let read = |n: u32| items.get(n.to_be_bytes()).unwrap();
    let found: Vec<_> = (0..1_000).map(read).collect();
    let ready = |n: &u32| {
        items.try_get(n.to_be_bytes()).unwrap() == AtOnce::Ready(found[*n as usize].clone())
    };
    let ready = (0..1_000).filter(ready).count();
    if cfg!(target_os = "linux") {
        // Another thread's reads do not count; this one may have read of late.
        assert!(ready > 800, "{ready}");
    }
}

#[test]
fn a_change_of_settings_is_not_waited_for() {
    let sim = Sim::new(1);
    let clock = ManualClock::new(NOW);
    let options = options(&sim, &clock).durability(Durability::Sync);
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    items.put("k", "v").unwrap();
    let gate = Gate::shut(&sim, |call| call.operation == "sync");
    let changing = items.clone();
    let change = std::thread::spawn(move || changing.set_default_ttl(DefaultTtl::After(SECOND)));
    gate.wait();
    assert_eq!(items.try_get("k").unwrap(), AtOnce::WouldWait);
    assert!(matches!(items.try_item("k").unwrap(), AtOnce::WouldWait));
    // An absent key needs no settings.
    assert_eq!(items.try_get("none").unwrap(), AtOnce::Ready(None));
    gate.open();
    change.join().unwrap().unwrap();
    assert_eq!(items.try_get("k").unwrap().ready().unwrap().unwrap(), "v");
    clock.advance(SECOND);
    assert_eq!(items.try_get("k").unwrap(), AtOnce::Ready(None));
}

#[test]
fn what_cannot_be_read_is_an_error_both_ways() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock).open("/db").unwrap();
    let items = db.container("items").unwrap();
    assert!(items.try_get("").is_err() && items.try_item("").is_err());
    assert!(items.try_get_many(["k", ""]).is_err());
    db.drop_container("items").unwrap();
    let (error, expected) = (items.try_get("k").unwrap_err(), items.get("k").unwrap_err());
    assert_eq!(error.to_string(), expected.to_string());
    let other = db.container("other").unwrap();
    db.close().unwrap();
    assert!(other.try_get("k").unwrap_err().is_closed());
}

#[test]
fn a_batch_is_written_whole_or_would_wait() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock).open("/db").unwrap();
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    let mut batch = Batch::new();
    batch.put(&a, "k", "1").put_with_ttl(&b, "k", "2", SECOND);
    let AtOnce::Ready(written) = db.try_write(&batch).unwrap() else {
        panic!("nothing is to be waited for");
    };
    assert_eq!(b.item("k").unwrap().unwrap().version(), written.version());
    assert_eq!(a.try_get("k").unwrap().ready().unwrap().unwrap(), "1");
    clock.advance(SECOND);
    assert_eq!(b.try_get("k").unwrap(), AtOnce::Ready(None));

    let version = a.item("k").unwrap().unwrap().version();
    // It is to be synced.
    let mut batch = Batch::new();
    batch.put(&a, "k", "4").durability(Durability::Sync);
    assert_eq!(db.try_write(&batch).unwrap(), AtOnce::WouldWait);
    assert_eq!(a.item("k").unwrap().unwrap().version(), version);

    let last = db.last_version();
    let empty = db.try_write(Batch::new()).unwrap().ready().unwrap();
    assert_eq!(empty.version(), last);
    db.close().unwrap();
    let closed = db.try_write(Batch::new().put(&a, "k", "5")).unwrap_err();
    assert!(closed.is_closed());
}

#[test]
fn conditions_are_looked_up_where_nothing_is_waited_for() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let options = options(&sim, &clock).reads(Reads::Pread);
    let (db, items) = unread(&options.cache_bytes(0));
    items.put("new", "1").unwrap();
    let (version, calls) = (items.item("new").unwrap().unwrap().version(), calls(&sim));
    let commit = |batch: &Batch| {
        let before = (calls.load(Ordering::Relaxed), db.last_version());
        let answer = db.try_write(batch);
        let after = (calls.load(Ordering::Relaxed), db.last_version());
        match &answer {
            Ok(AtOnce::Ready(written)) => assert_eq!(after.1, written.version()),
            _ => assert_eq!(after, before, "nothing was done"),
        }
        answer
    };
    let mut batch = Batch::new();
    batch
        .require(&items, "new", Expect::Version(version))
        .on_miss(OnMiss::Skip)
        .create(&items, "new", "2", Ttl::Inherit)
        .touch(&items, "new");
    let written = commit(&batch).unwrap().ready().unwrap();
    let outcomes: Vec<_> = written.outcomes().iter().map(|of| of.is_done()).collect();
    assert_eq!(outcomes, [false, true]);
    assert!(commit(&batch).unwrap_err().is_conflict(), "a later version");

    // All are left out.
    let mut batch = Batch::new();
    batch
        .on_miss(OnMiss::Skip)
        .create(&items, "new", "2", Ttl::Inherit);
    let written = commit(&batch).unwrap().ready().unwrap();
    assert!(!written.outcomes()[0].is_done());

    // A file has to be read: for one that holds, for one that does not, for one on which nothing is written.
    for (expect, on_miss) in [
        (Expect::Present, OnMiss::Conflict),
        (Expect::Absent, OnMiss::Conflict),
        (Expect::Absent, OnMiss::Skip),
    ] {
        let mut batch = Batch::new();
        batch.put(&items, "other", "").on_miss(on_miss);
        match expect {
            Expect::Present => batch.replace(&items, "k", "2", Ttl::Inherit),
            _ => batch.create(&items, "k", "2", Ttl::Inherit),
        };
        assert_eq!(commit(&batch).unwrap(), AtOnce::WouldWait, "{expect:?}");
    }
    // A change of settings is synced.
    let mut batch = Batch::new();
    batch.set_default_ttl(&items, DefaultTtl::Off);
    assert_eq!(commit(&batch).unwrap(), AtOnce::WouldWait);
    assert!(!items.contains("other").unwrap());
}

#[test]
fn a_put_under_a_condition_is_done_at_once_or_not_at_all() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let options = options(&sim, &clock).reads(Reads::Pread).cache_bytes(0);
    let (db, items) = unread(&options);
    let fresh = db.container("fresh").unwrap();
    let calls = calls(&sim);
    let any = |_| true;
    let put = fresh.try_put_if("new", "1", SECOND, |found| found.is_none());
    let first = put.unwrap().ready().unwrap();
    let version = first.written.map(|written| written.version());
    assert_eq!((first.before, version), (None, Some(db.last_version())));
    let put = fresh.try_put_if("new", "2", SECOND, |found| found.is_none());
    let refused = put.unwrap().ready().unwrap();
    assert_eq!((refused.before, refused.written), (version, None));
    assert_eq!(fresh.try_get("new").unwrap().ready().unwrap().unwrap(), "1");
    let put = fresh.try_put_if("new", "2", SECOND, any);
    let second = put.unwrap().ready().unwrap();
    assert_eq!(second.before, version);
    // An item that has ended is not there.
    clock.advance(SECOND);
    let put = fresh.try_put_if("new", "3", SECOND, any);
    let third = put.unwrap().ready().unwrap();
    assert_eq!(third.before, None);
    assert!(third.written.unwrap().version() > second.written.unwrap().version());

    let seen = || (db.last_version(), calls.load(Ordering::Relaxed));
    let before = seen();
    let itself = |_| fresh.put("new", "4").is_err();
    assert!(fresh.try_put_if("new", "5", SECOND, itself).is_err());
    let never = |_| panic!("a file is to be read first");
    assert_eq!(
        items.try_put_if("k", "5", SECOND, never).unwrap(),
        AtOnce::WouldWait
    );
    assert_eq!(seen(), before, "nothing was done");
    db.close().unwrap();
    assert!(
        fresh
            .try_put_if("new", "6", SECOND, any)
            .unwrap_err()
            .is_closed()
    );

    let db = options.durability(Durability::Sync).open("/db").unwrap();
    let fresh = db.container("fresh").unwrap();
    assert_eq!(
        fresh.try_put_if("new", "7", SECOND, any).unwrap(),
        AtOnce::WouldWait
    );
    assert_eq!(db.last_version(), before.0);
}

/// The memtables tell what it replaces, or a file would have to be read: then nothing is done.
#[test]
fn an_upsert_is_done_at_once_or_not_at_all() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let options = options(&sim, &clock).reads(Reads::Pread).cache_bytes(0);
    let (db, items) = unread(&options);
    let fresh = db.container("fresh").unwrap();
    let calls = calls(&sim);
    let upsert = |c: &Container, value: &str| c.try_upsert("k", value, SECOND).unwrap();
    let first = upsert(&fresh, "1").ready().unwrap();
    assert_eq!(first.before, None);
    assert_eq!(first.written.version(), db.last_version());
    let second = upsert(&fresh, "2").ready().unwrap();
    assert_eq!(second.before, Some(first.written.version()));
    clock.advance(SECOND);
    assert_eq!(upsert(&fresh, "3").ready().unwrap().before, None);

    let seen = || (db.last_version(), calls.load(Ordering::Relaxed));
    let before = seen();
    assert_eq!(upsert(&items, "5"), AtOnce::WouldWait);
    assert_eq!(seen(), before, "nothing was done");
    let put = items.upsert("k", "6", SECOND).unwrap();
    assert!(put.before.is_some());
    let again = upsert(&items, "7").ready().unwrap();
    assert_eq!(again.before, Some(put.written.version()));
    let last = db.last_version();
    db.close().unwrap();
    assert!(fresh.try_upsert("k", "8", SECOND).unwrap_err().is_closed());

    let db = options.durability(Durability::Sync).open("/db").unwrap();
    let fresh = db.container("fresh").unwrap();
    assert_eq!(upsert(&fresh, "9"), AtOnce::WouldWait);
    assert_eq!(db.last_version(), last);
}

type Action = Box<dyn FnOnce() + Send>;

/// A clock that does something the next time it is looked at.
#[derive(Clone)]
struct Once(ManualClock, Arc<Mutex<Option<Action>>>);

impl Clock for Once {
    fn wall(&self) -> u64 {
        let now = self.0.wall();
        let once = self.1.try_lock().ok().and_then(|mut once| once.take());
        once.into_iter().for_each(|once| once());
        now
    }

    fn uptime(&self) -> u64 {
        self.0.uptime()
    }
}

/// The item that it replaces leaves memory while it is written: a flush that waited ends at the look at the clock.
#[test]
fn an_upsert_at_once_tells_what_is_flushed_meanwhile() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let once = Once(clock.clone(), Arc::default());
    let options = options(&sim, &clock)
        .clock(once.clone())
        .reads(Reads::Pread)
        .cache_bytes(0);
    let db = options.open("/db").unwrap();
    let items = db.container("items").unwrap();
    let first = items.upsert("k", "1", Ttl::Never).unwrap().written;
    let gate = Gate::shut(&sim, |call| {
        call.path.to_string_lossy().contains("manifest")
    });
    let flush = {
        let db = db.clone();
        std::thread::spawn(move || db.flush().unwrap())
    };
    gate.wait();
    let flushed = items.clone();
    *once.1.lock().unwrap() = Some(Box::new(move || {
        gate.open();
        assert!(comes_true(|| flushed.stats().runs > 0));
    }));
    let told = items.try_upsert("k", "2", Ttl::Never).unwrap();
    flush.join().unwrap();
    let told = told.ready().expect("it was in memory when it was asked");
    assert_eq!(told.before, Some(first.version()));
}

#[test]
fn nothing_is_written_where_memory_or_the_log_is_full() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(NOW));
    let db = options(&sim, &clock)
        .memtable_bytes(64 << 10)
        .open("/db")
        .unwrap();
    let items = db.container("items").unwrap();
    let calls = calls(&sim);
    let (mut written, mut refused) = (0, 0);
    for n in 0..200u32 {
        let mut batch = Batch::new();
        batch.put(&items, n.to_be_bytes(), [1; 2_000]);
        let before = (calls.load(Ordering::Relaxed), db.last_version());
        match db.try_write(&batch).unwrap() {
            AtOnce::Ready(_) => written += 1,
            AtOnce::WouldWait => {
                refused += 1;
                assert_eq!((calls.load(Ordering::Relaxed), db.last_version()), before);
                // Makes room.
                db.commit(&batch).unwrap();
                db.flush().unwrap();
            }
        }
    }
    assert!(written > 100 && refused > 2, "{written} {refused}");
    assert_eq!(items.count(..).unwrap(), 200);
}
