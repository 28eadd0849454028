//! Operations against a model, which restates the rule of expiry by its definition: whenever time moves or settings
//! change, what is expired just now is taken out, for good. There is one version of a key, no sequence numbers, no floors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Batch, Compression, Container, Database, DefaultTtl, Durability, Error, Item, ManualClock,
    Options, Snapshot, Ttl, Update,
};

use super::input::Input;

const START: u64 = 1_772_366_400_000;
const NAMES: [&str; 2] = ["a", "b"];
/// More would make an input slow without making it richer.
const MOST_OPERATIONS: usize = 200;
const MOST_OPENS: usize = 4;

/// A history of operations on two containers over a simulated disk, with the background work done step by step.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        world.act(&mut input);
    }
    world.check();
    world.reopen(Leave::Closed);
    world.check();
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lifetime {
    Inherited,
    Never,
    Millis(u64),
}

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    value: Vec<u8>,
    written_at: u64,
    lifetime: Lifetime,
}

impl Stored {
    fn end(&self, default: DefaultTtl) -> Option<u64> {
        let lifetime = match (self.lifetime, default) {
            (_, DefaultTtl::Off) | (Lifetime::Never, _) => return None,
            (Lifetime::Inherited, DefaultTtl::NoDefault) => return None,
            (Lifetime::Inherited, DefaultTtl::After(time)) => time.as_millis() as u64,
            (Lifetime::Millis(millis), _) => millis,
            (Lifetime::Inherited, other) => unreachable!("{other:?} is set nowhere"),
        };
        Some(self.written_at + lifetime)
    }
}

#[derive(Clone, Default)]
struct Shelf {
    items: BTreeMap<Vec<u8>, Stored>,
}

impl Shelf {
    fn sweep(&mut self, default: DefaultTtl, now: u64) {
        self.items
            .retain(|_, stored| stored.end(default).is_none_or(|end| end > now));
    }
}

/// How a database is left before it is opened again.
#[derive(Clone, Copy, PartialEq)]
enum Leave {
    Closed,
    Killed,
    /// After a sync, unless every write syncs.
    PowerCut(u64),
}

struct World {
    options: Options,
    synced: bool,
    clock: ManualClock,
    now: u64,
    sim: Sim,
    db: Database,
    containers: Vec<Container>,
    defaults: [DefaultTtl; 2],
    shelves: [Shelf; 2],
    snapshots: Vec<(Snapshot, [Shelf; 2])>,
    opens: usize,
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let (clock, sim) = (ManualClock::new(START), Sim::new(input.u64()));
        let synced = input.flag();
        let options = Options::new()
            .clock(clock.clone())
            .memtable_bytes(4096 << input.below(3))
            .max_runs(2 + input.below(15))
            .reclaim_within(Duration::from_secs(1 + u64::from(input.u8())))
            .reclaim_strict(input.flag())
            .compression([Compression::None, Compression::Lz4, Compression::Zstd][input.below(3)])
            .durability([Durability::Buffered, Durability::Sync][usize::from(synced)])
            .sizes(64 << input.below(4), 512 << input.below(6), 4096)
            .stepped();
        let (db, containers) = open(&options, &sim);
        World {
            options,
            synced,
            clock,
            now: START,
            sim,
            db,
            containers,
            defaults: [DefaultTtl::NoDefault; 2],
            shelves: Default::default(),
            snapshots: vec![],
            opens: 1,
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let at = input.below(2);
        match input.below(34) {
            0..=7 => self.put(at, input),
            8 | 9 => self.conditional(at, input),
            10 | 11 => self.delete(at, input),
            12 => self.delete_range(at, input),
            13 | 14 => self.batch(input),
            15 => self.set_default(at, input),
            16..=18 => self.advance(input),
            19 => self.iterate_across(at, input),
            20 => self.snapshot(input),
            21 => self.db.flush().unwrap(),
            22..=25 => {
                for _ in 0..1 + input.below(4) {
                    self.db.step().unwrap();
                }
            }
            26 => self.db.compact().unwrap(),
            27 => self.db.sync().unwrap(),
            28 => self.reopen(match input.below(3) {
                0 => Leave::Closed,
                1 => Leave::Killed,
                _ => Leave::PowerCut(input.u64()),
            }),
            29 => self.check(),
            30 => self.expire(at, input),
            31 | 32 => self.load(at, input),
            _ => self.look(at, input),
        }
    }

    fn sweep(&mut self) {
        let snapshots = self.snapshots.iter_mut().map(|(_, shelves)| shelves);
        for shelves in snapshots.chain([&mut self.shelves]) {
            for (shelf, default) in shelves.iter_mut().zip(self.defaults) {
                shelf.sweep(default, self.now);
            }
        }
    }

    fn store(&mut self, at: usize, key: Vec<u8>, value: Vec<u8>, ttl: Ttl) {
        self.store_as_of(self.now, at, key, value, ttl);
    }

    fn store_as_of(&mut self, written_at: u64, at: usize, key: Vec<u8>, value: Vec<u8>, ttl: Ttl) {
        let lifetime = match ttl {
            Ttl::Inherit => Lifetime::Inherited,
            Ttl::Never => Lifetime::Never,
            Ttl::After(time) => Lifetime::Millis(time.as_millis() as u64),
            Ttl::Until(moment) => Lifetime::Millis(millis_of(moment).saturating_sub(written_at)),
            other => unreachable!("{other:?} is written nowhere"),
        };
        let stored = Stored {
            value,
            written_at,
            lifetime,
        };
        self.shelves[at].items.insert(key, stored);
        self.shelves[at].sweep(self.defaults[at], self.now);
    }

    fn put(&mut self, at: usize, input: &mut Input<'_>) {
        let (key, value, ttl) = (key(input), value(input), self.ttl(input));
        self.containers[at].put_with_ttl(&key, &value, ttl).unwrap();
        self.store(at, key, value, ttl);
    }

    fn conditional(&mut self, at: usize, input: &mut Input<'_>) {
        let (key, container) = (key(input), &self.containers[at]);
        let found = self.shelves[at].items.get(&key).cloned();
        match input.below(4) {
            0 => {
                let (value, ttl) = (value(input), self.ttl(input));
                let created = container.create(&key, &value, ttl).unwrap();
                assert_eq!(created, found.is_none());
                if created {
                    self.store(at, key, value, ttl);
                }
            }
            1 => {
                let (value, ttl) = (value(input), self.ttl(input));
                let replaced = container.replace(&key, &value, ttl).unwrap();
                assert_eq!(replaced, found.is_some());
                if replaced {
                    self.store(at, key, value, ttl);
                }
            }
            2 => {
                assert_eq!(container.touch(&key).unwrap(), found.is_some());
                if let Some(stored) = self.shelves[at].items.get_mut(&key) {
                    stored.written_at = self.now;
                }
            }
            _ => {
                let (value, ttl) = (value(input), self.ttl(input));
                let updated = container.update(&key, |item| {
                    assert_eq!(item.is_some(), found.is_some());
                    item.map_or(Update::Put(value.clone(), ttl), |_| Update::Delete)
                });
                assert!(updated.unwrap());
                match found {
                    Some(_) => drop(self.shelves[at].items.remove(&key)),
                    None => self.store(at, key, value, ttl),
                }
            }
        }
    }

    fn delete(&mut self, at: usize, input: &mut Input<'_>) {
        let key = key(input);
        self.containers[at].delete(&key).unwrap();
        self.shelves[at].items.remove(&key);
    }

    fn delete_range(&mut self, at: usize, input: &mut Input<'_>) {
        let range = range(input);
        self.containers[at].delete_range(range.clone()).unwrap();
        self.shelves[at].items.retain(|key, _| !range.contains(key));
    }

    fn batch(&mut self, input: &mut Input<'_>) {
        let (mut batch, mut writes) = (Batch::new(), vec![]);
        for _ in 0..1 + input.below(6) {
            let (at, key) = (input.below(2), key(input));
            if input.below(4) == 0 {
                batch.delete(&self.containers[at], &key);
                writes.push((at, key, None));
            } else {
                let (value, ttl) = (value(input), self.ttl(input));
                batch.put_with_ttl(&self.containers[at], &key, &value, ttl);
                writes.push((at, key, Some((value, ttl))));
            }
        }
        self.db.write(&batch).unwrap();
        for (at, key, put) in writes {
            match put {
                Some((value, ttl)) => self.store(at, key, value, ttl),
                None => drop(self.shelves[at].items.remove(&key)),
            }
        }
    }

    /// A bulk load, with other things between its items. Keys out of order are refused, and nothing is loaded.
    fn load(&mut self, at: usize, input: &mut Input<'_>) {
        let keys: BTreeSet<Vec<u8>> = (0..1 + input.below(8)).map(|_| key(input)).collect();
        let items = keys.into_iter();
        let mut items: Vec<_> = items
            .map(|key| (key, value(input), self.ttl(input)))
            .collect();
        let is_refused = input.below(8) == 0;
        if is_refused {
            items.push(items[input.below(items.len())].clone());
        }
        let (container, began) = (self.containers[at].clone(), self.now);
        let mut given = items.clone().into_iter();
        let loaded = container.bulk_load_with_ttl(std::iter::from_fn(|| {
            while input.below(3) == 0 && !input.is_empty() {
                self.meanwhile(input);
            }
            given.next().map(Ok)
        }));
        if is_refused {
            let error = loaded.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { what: "key", .. }));
            return;
        }
        loaded.unwrap();
        for (key, value, ttl) in items {
            self.store_as_of(began, at, key, value, ttl);
        }
    }

    /// An operation while a load asks for its next item: it is older than the load, which no reader sees yet.
    fn meanwhile(&mut self, input: &mut Input<'_>) {
        let at = input.below(2);
        match input.below(12) {
            0..=2 => self.put(at, input),
            3 => self.conditional(at, input),
            4 => self.delete(at, input),
            5 => self.delete_range(at, input),
            6 => self.set_default(at, input),
            7 => self.advance(input),
            8 => self.db.flush().unwrap(),
            9 => drop(self.db.step().unwrap()),
            10 => self.snapshot(input),
            _ => self.check_what_is_left(input),
        }
    }

    /// A kill or a power cut now would leave what is there now.
    fn check_what_is_left(&mut self, input: &mut Input<'_>) {
        if self.opens == MOST_OPENS {
            return;
        }
        self.opens += 1;
        let left = match input.flag() {
            true => self.sim.kill(),
            false => {
                if !self.synced {
                    self.db.sync().unwrap();
                }
                self.sim.power_cut(input.u64())
            }
        };
        let (_db, containers) = open(&self.options, &left);
        for (at, container) in containers.iter().enumerate() {
            let (default, items) = (self.defaults[at], &self.shelves[at].items);
            assert_eq!(container.default_ttl(), default);
            same_all(container.iter(), items.iter(), default);
        }
    }

    fn set_default(&mut self, at: usize, input: &mut Input<'_>) {
        let default = match input.below(4) {
            0 => DefaultTtl::Off,
            1 => DefaultTtl::NoDefault,
            _ => DefaultTtl::After(time(input)),
        };
        self.containers[at].set_default_ttl(default).unwrap();
        self.defaults[at] = default;
        self.sweep();
    }

    fn expire(&mut self, at: usize, input: &mut Input<'_>) {
        let (c, default) = (&self.containers[at], self.defaults[at]);
        let moment = |input: &mut Input<'_>| {
            let by = time(input).as_millis() as u64;
            match input.flag() {
                true => self.now + by,
                false => self.now.saturating_sub(by),
            }
        };
        let gone: Box<dyn Fn(&Stored) -> bool> = match input.below(3) {
            0 => {
                c.expire_all().unwrap();
                Box::new(|_| true)
            }
            1 => {
                let moment = moment(input);
                c.expire_before(UNIX_EPOCH + Duration::from_millis(moment))
                    .unwrap();
                Box::new(move |stored| stored.end(default).is_some_and(|end| end < moment))
            }
            _ => {
                let moment = moment(input);
                c.expire_written_before(UNIX_EPOCH + Duration::from_millis(moment))
                    .unwrap();
                Box::new(move |stored| stored.written_at < moment)
            }
        };
        let snapshots = self.snapshots.iter_mut().map(|(_, shelves)| shelves);
        for shelves in snapshots.chain([&mut self.shelves]) {
            shelves[at].items.retain(|_, stored| !gone(stored));
        }
    }

    fn advance(&mut self, input: &mut Input<'_>) {
        let by = time(input);
        self.clock.advance(by);
        self.now += by.as_millis() as u64;
        self.sweep();
    }

    /// An iterator sees the writes from before it was made, and judges each item when it comes to it.
    fn iterate_across(&mut self, at: usize, input: &mut Input<'_>) {
        let (backwards, first) = (input.flag(), input.below(8));
        let container = self.containers[at].clone();
        let mut iter = container.iter();
        let mut next = || {
            if backwards {
                iter.next_back()
            } else {
                iter.next()
            }
        };
        let mut left = self.shelves[at].clone();
        let pop = |left: &mut Shelf| match backwards {
            true => left.items.pop_last(),
            false => left.items.pop_first(),
        };
        for _ in 0..first {
            same(
                next().transpose().unwrap(),
                pop(&mut left),
                self.defaults[at],
            );
        }
        self.put(at, input);
        self.delete(at, input);
        self.advance(input);
        if input.flag() {
            self.db.compact().unwrap();
        }
        left.sweep(self.defaults[at], self.now);
        while !left.items.is_empty() {
            same(
                next().transpose().unwrap(),
                pop(&mut left),
                self.defaults[at],
            );
        }
        assert!(next().is_none());
    }

    fn snapshot(&mut self, input: &mut Input<'_>) {
        if self.snapshots.len() < 3 {
            self.snapshots
                .push((self.db.snapshot(), self.shelves.clone()));
        } else {
            drop(self.snapshots.remove(input.below(3)));
        }
    }

    /// One key, or a range of them.
    fn look(&self, at: usize, input: &mut Input<'_>) {
        let (container, items) = (&self.containers[at], &self.shelves[at].items);
        if input.flag() {
            let key = key(input);
            let expected = items.get(&key).cloned().map(|stored| (key.clone(), stored));
            assert_eq!(container.contains(&key).unwrap(), expected.is_some());
            let value = container.get(&key).unwrap().map(Vec::from);
            assert_eq!(
                value.as_ref(),
                expected.as_ref().map(|(_, stored)| &stored.value)
            );
            same(container.item(&key).unwrap(), expected, self.defaults[at]);
        } else {
            let range = range(input);
            let admitted = items.iter().filter(|(key, _)| range.contains(*key));
            same_all(container.range(range.clone()), admitted, self.defaults[at]);
        }
    }

    /// Everything, forwards and backwards, through the containers and through the snapshots.
    fn check(&self) {
        for at in 0..2 {
            let (container, default) = (&self.containers[at], self.defaults[at]);
            assert_eq!(container.default_ttl(), default);
            let items = &self.shelves[at].items;
            same_all(container.iter(), items.iter(), default);
            same_all(container.iter().rev(), items.iter().rev(), default);
            for (snapshot, shelves) in &self.snapshots {
                let view = snapshot.container(NAMES[at]).unwrap();
                same_all(view.iter(), shelves[at].items.iter(), default);
                for key in 0..KEYS {
                    let key = spell(key);
                    let expected = shelves[at].items.get(&key).map(|stored| &stored.value);
                    assert_eq!(view.get(&key).unwrap().map(Vec::from).as_ref(), expected);
                }
            }
        }
    }

    fn reopen(&mut self, leave: Leave) {
        if self.opens == MOST_OPENS {
            return;
        }
        self.opens += 1;
        self.snapshots.clear();
        match leave {
            Leave::Closed => self.db.close().unwrap(),
            Leave::Killed => self.sim = self.sim.kill(),
            Leave::PowerCut(seed) => {
                if !self.synced {
                    self.db.sync().unwrap();
                }
                self.sim = self.sim.power_cut(seed);
            }
        }
        (self.db, self.containers) = open(&self.options, &self.sim);
    }

    fn ttl(&self, input: &mut Input<'_>) -> Ttl {
        match input.below(8) {
            0..=2 => Ttl::Inherit,
            3 => Ttl::Never,
            4 => {
                let moment = (self.now + 2_000).saturating_sub(u64::from(input.u16()));
                Ttl::Until(UNIX_EPOCH + Duration::from_millis(moment))
            }
            _ => Ttl::After(time(input)),
        }
    }
}

fn open(options: &Options, sim: &Sim) -> (Database, Vec<Container>) {
    let options = options.clone().fs(Arc::new(sim.clone()));
    let db = options.open("/db").unwrap();
    let containers = NAMES.map(|name| db.container(name).unwrap());
    (db, containers.into())
}

type Pair = (Vec<u8>, Stored);

/// An item is as the model has it.
fn same(found: Option<Item>, expected: Option<Pair>, default: DefaultTtl) {
    let end = expected
        .as_ref()
        .and_then(|(_, stored)| stored.end(default));
    assert_eq!(
        found.as_ref().and_then(Item::expires_at).map(millis_of),
        end
    );
    let found = found.map(|item| {
        let stored = Stored {
            value: item.value().to_vec(),
            written_at: millis_of(item.written_at()),
            lifetime: match item.ttl() {
                Ttl::Inherit => Lifetime::Inherited,
                Ttl::Never => Lifetime::Never,
                Ttl::After(time) => Lifetime::Millis(time.as_millis() as u64),
                other => unreachable!("no item has the ttl {other:?}"),
            },
        };
        (item.key().to_vec(), stored)
    });
    assert_eq!(found, expected);
}

/// These items, and no others.
fn same_all<'m>(
    mut found: impl Iterator<Item = ebbtide::Result<Item>>,
    expected: impl Iterator<Item = (&'m Vec<u8>, &'m Stored)>,
    default: DefaultTtl,
) {
    for (key, stored) in expected {
        let expected = Some((key.clone(), stored.clone()));
        same(found.next().transpose().unwrap(), expected, default);
    }
    assert!(found.next().is_none());
}

fn millis_of(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// So many keys that tables have some blocks, and so few that they are written again.
const KEYS: usize = 24;

fn spell(number: usize) -> Vec<u8> {
    match number % 3 {
        0 => vec![number as u8],
        1 => format!("key{number:02}").into_bytes(),
        _ => format!("a longer prefix than eight bytes/{number:02}").into_bytes(),
    }
}

fn key(input: &mut Input<'_>) -> Vec<u8> {
    spell(input.below(KEYS))
}

/// Up to 255 bytes, now and then so many that they stand outside their block.
fn value(input: &mut Input<'_>) -> Vec<u8> {
    let len = match input.u8() {
        255 => 17_000,
        len => usize::from(len),
    };
    vec![input.u8(); len]
}

/// Up to about a minute, in milliseconds, or up to three days, in whole seconds.
fn time(input: &mut Input<'_>) -> Duration {
    let short = input.flag();
    let number = u64::from(input.u16()) + 1;
    if short {
        Duration::from_millis(number)
    } else {
        Duration::from_secs(4 * number)
    }
}

fn range(input: &mut Input<'_>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || match input.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(input)),
        _ => Bound::Included(key(input)),
    };
    (bound(), bound())
}
