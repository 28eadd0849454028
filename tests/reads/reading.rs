//! Goal: every way of reading shows what an iterator shows, for containers and snapshots, wherever records are stored,
//! in both directions; and a chunk of a cursor is judged by the time of the call that returns it.
//!
//! Method: random histories on a simulated disk, with background work step by step and a clock that moves only when
//! told to. An iterator over the same writes at the same moment defines what is live.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use ebbtide::internals::Sim;
use ebbtide::{
    Bytes, Chunk, Compression, Container, ContainerOptions, Cursor, Database, DefaultTtl,
    ManualClock, Options, Reads, Result, Ttl, View,
};
use testkit::random::Random;
use testkit::stage::{NOW, bytes, default, in_steps, ms};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn key(dice: &mut Random) -> Vec<u8> {
    let n = dice.number(400);
    // Some are beginnings of others.
    match n % 7 {
        0 => format!("{:02}", n % 100).into_bytes(),
        _ => format!("{n:03}").into_bytes(),
    }
}

fn range(dice: &mut Random) -> KeyRange {
    let mut bound = || match dice.number(4) {
        0 => Bound::Excluded(key(dice)),
        1 => Bound::Included(key(dice)),
        _ => Bound::Unbounded,
    };
    (bound(), bound())
}

struct World {
    dice: Random,
    clock: ManualClock,
    db: Database,
    c: Container,
}

impl World {
    fn new(seed: u64) -> World {
        let clock = ManualClock::new(NOW);
        let db = in_steps(&Sim::new(seed), &clock)
            .memtable_bytes(16 << 10)
            .sizes(256, 4 << 10, 4 << 10)
            .open("/db")
            .unwrap();
        World {
            dice: Random(seed),
            c: db.container("c").unwrap(),
            clock,
            db,
        }
    }

    fn write(&mut self) {
        let (c, dice) = (&self.c, &mut self.dice);
        match dice.number(40) {
            0 => c.delete_range(range(dice)).unwrap(),
            1..4 => c.delete(key(dice)).unwrap(),
            4..8 => drop(c.touch(key(dice)).unwrap()),
            8 => {
                let after = default(1 + dice.number(20_000));
                let default = [DefaultTtl::Off, DefaultTtl::NoDefault, after];
                c.set_default_ttl(default[dice.number(3) as usize]).unwrap();
            }
            9 if dice.number(20) == 0 => c.clear().unwrap(),
            _ => {
                let ttl = match dice.number(4) {
                    0 => Ttl::Inherit,
                    1 => Ttl::Never,
                    _ => ms(1 + dice.number(10_000)).into(),
                };
                let value = vec![b'a' + dice.number(26) as u8; dice.number(200) as usize];
                c.put_with_ttl(key(dice), value, ttl).unwrap();
            }
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.dice.number(80) {
            self.write();
        }
        match self.dice.number(8) {
            0 => self.db.flush().unwrap(),
            1 => while self.db.step().unwrap() {},
            _ => {}
        }
        let millis = [0, 1, 100, 1_000][self.dice.number(4) as usize];
        self.clock.advance(ms(millis));
    }
}

fn of_chunk(chunk: Chunk<'_>) -> Pairs {
    assert_eq!(chunk.len(), chunk.iter().len());
    let mut back: Pairs = chunk.iter().rev().map(owned).collect();
    back.reverse();
    let there: Pairs = chunk.into_iter().map(owned).collect();
    assert_eq!(there, back);
    there
}

fn owned((key, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

/// All ways of reading a range of it agree; cursors and what is lent have histories of their own.
macro_rules! check {
    ($reader:expr, $range:expr, $dice:expr) => {{
        let (c, range) = (&$reader, $range);
        let expected = bytes(c.range(range.clone()));
        let keys: Vec<Vec<u8>> = expected.iter().map(|(key, _)| key.clone()).collect();

        assert_eq!(c.count(range.clone()).unwrap(), expected.len() as u64);
        let sizes = expected.iter().map(|(key, value)| key.len() + value.len());
        assert_eq!(c.size_estimate(range.clone()), sizes.sum::<usize>() as u64);
        let found: Result<Vec<Bytes>> = c.keys(range.clone()).collect();
        assert_eq!(found.unwrap(), keys);
        let found: Result<Vec<Bytes>> = c.keys(range.clone()).rev().collect();
        assert!(found.unwrap().iter().eq(keys.iter().rev()));

        let others = (0..9).map(|_| key(&mut $dice));
        let asked: Vec<Vec<u8>> = keys.iter().cloned().chain(others).collect();
        let many = c.get_many(&asked).unwrap();
        assert_eq!(many.len(), asked.len());
        for (key, value) in asked.iter().zip(many) {
            assert_eq!(value, c.get(key).unwrap());
        }

        let all = bytes(c.iter());
        let pair_of = |item: ebbtide::Item| (item.key().to_vec(), item.value().to_vec());
        assert_eq!(c.first().unwrap().map(pair_of), all.first().cloned());
        assert_eq!(c.last().unwrap().map(pair_of), all.last().cloned());
        assert_eq!(c.is_empty().unwrap(), all.is_empty());
        let len = all.len() as u64;
        for most in [len.saturating_sub(1), len] {
            assert_eq!(c.count_up_to(.., most), len.min(most));
        }
        let random = c.random().unwrap().map(pair_of);
        assert_eq!(random.is_some(), !all.is_empty());
        assert!(random.is_none_or(|pair| all.contains(&pair)));
    }};
}

#[test]
fn every_way_of_reading_shows_what_an_iterator_shows() {
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 12) {
        let mut world = World::new(seed);
        let mut views: Vec<View> = vec![];
        for _ in 0..40 {
            world.turn();
            let range = range(&mut world.dice);
            check!(world.c, range.clone(), world.dice);
            for view in &views {
                check!(*view, range.clone(), world.dice);
            }
            if world.dice.number(4) == 0 {
                views.push(world.db.snapshot().container("c").unwrap());
            }
            if world.dice.number(6) == 0 && !views.is_empty() {
                drop(views.remove(0));
            }
        }
    }
}

/// A cursor, and the view of the same writes. The gap is where the cursor stands: keys below it lie before.
struct HeldCursor {
    cursor: Cursor,
    view: View,
    range: KeyRange,
    gap: Option<Vec<u8>>,
}

impl HeldCursor {
    /// The items that an iterator shows of the range on either side of the gap, at this moment.
    fn expected(&self, forwards: bool) -> Pairs {
        let is_before = |key: &[u8]| self.gap.as_ref().is_none_or(|gap| key < &gap[..]);
        let mut found = bytes(self.view.range(self.range.clone()));
        found.retain(|(key, _)| is_before(key) != forwards);
        if !forwards {
            found.reverse();
        }
        found
    }

    fn take(&mut self, forwards: bool) {
        let expected = self.expected(forwards);
        let chunk = match forwards {
            true => self.cursor.next_chunk(),
            false => self.cursor.prev_chunk(),
        };
        let Some(chunk) = chunk.unwrap().map(of_chunk) else {
            assert_eq!(expected, []);
            return;
        };
        assert_eq!(chunk, expected[..chunk.len()]);
        let last = chunk.last().unwrap().0.clone();
        self.gap = Some(if forwards {
            [last, vec![0]].concat()
        } else {
            last
        });
    }

    fn seek(&mut self, key: Option<Vec<u8>>) {
        match &key {
            Some(key) => self.cursor.seek(key),
            None => self.cursor.seek_to_end(),
        }
        self.gap = key;
    }
}

#[test]
fn a_cursor_that_is_held_shows_what_lives_when_it_is_asked() {
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 12) {
        let mut world = World::new(seed + 1_000);
        let mut held: Vec<HeldCursor> = vec![];
        for _ in 0..80 {
            world.turn();
            if world.dice.number(3) == 0 {
                let (range, snapshot) = (range(&mut world.dice), world.db.snapshot());
                let view = snapshot.container("c").unwrap();
                let cursor = match world.dice.number(2) {
                    0 => world.c.cursor(range.clone()),
                    _ => view.cursor(range.clone()),
                };
                held.push(HeldCursor {
                    cursor,
                    view,
                    range,
                    gap: Some(vec![]),
                });
            }
            for one in &mut held {
                for _ in 0..3 {
                    match world.dice.number(8) {
                        0 => one.seek(None),
                        1 | 2 => one.seek(Some(key(&mut world.dice))),
                        3 | 4 => one.take(false),
                        _ => one.take(true),
                    }
                    if world.dice.number(6) == 0 {
                        world.clock.advance(ms(500));
                    }
                }
            }
            if held.len() > 4 {
                held.remove(0);
            }
        }
    }
}

#[test]
fn chunks_are_no_larger_than_they_have_to_be() {
    let world = World::new(1);
    for n in 0..1_000u32 {
        world.c.put(format!("small-{n:04}"), "v").unwrap();
    }
    for n in 0..8 {
        world
            .c
            .put(format!("large-{n}"), vec![b'v'; 40 << 10])
            .unwrap();
    }
    let mut sizes = BTreeMap::new();
    let mut cursor = world.c.cursor(..);
    while let Some(chunk) = cursor.next_chunk().unwrap() {
        let bytes: usize = chunk
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        assert!(bytes < (64 + 41) << 10, "{bytes} bytes at once");
        *sizes.entry(chunk.len()).or_insert(0) += 1;
    }
    assert!(sizes.values().sum::<u32>() > 8, "{sizes:?}");
    assert!(sizes.keys().all(|&len| len <= 128), "{sizes:?}");
}

/// A call that is under way when the database is closed answers so, as all later calls do.
#[test]
fn handles_of_reading_say_that_they_are_closed() {
    let world = World::new(2);
    for n in 0..300 {
        world.c.put(format!("{n:03}"), "v").unwrap();
    }
    let (mut begun, mut fresh) = (world.c.cursor(..), world.c.cursor("1".."2"));
    begun.next_chunk().unwrap().unwrap();
    let mut keys = world.c.keys(..);
    keys.next().unwrap().unwrap();
    let c = &world.c;
    // A call in its midst, too.
    let mut shown = 0;
    let ended = c.for_each(.., |_, _| {
        shown += 1;
        if shown == 10 {
            world.db.close().unwrap();
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(shown, 10);
    let closed = |error: ebbtide::Error| assert!(error.is_closed(), "{error}");
    closed(ended.unwrap_err());
    for cursor in [&mut begun, &mut fresh] {
        closed(cursor.next_chunk().map(drop).unwrap_err());
        closed(cursor.prev_chunk().map(drop).unwrap_err());
        cursor.seek("1");
        closed(cursor.next_chunk().map(drop).unwrap_err());
    }
    closed(keys.next().unwrap().unwrap_err());
    assert!(keys.next().is_none());
    closed(c.count(..).unwrap_err());
    closed(c.get_many(["000"]).unwrap_err());
    closed(c.first().unwrap_err());
    closed(c.last().unwrap_err());
    closed(c.random().unwrap_err());
    closed(c.is_empty().unwrap_err());
    closed(c.clear().unwrap_err());
    assert_eq!(c.size_estimate(..), 0);
    assert!(world.db.now() > std::time::UNIX_EPOCH, "clocks go on");
}

#[test]
fn each_item_is_drawn_as_often_as_any_other() {
    let world = World::new(3);
    assert!(world.c.random().unwrap().is_none());
    for key in ["a", "b", "c", "d"] {
        world.c.put(key, "v").unwrap();
    }
    world.c.put_with_ttl("gone", "v", ms(1)).unwrap();
    world.clock.advance(ms(1));
    let mut drawn = BTreeMap::new();
    for _ in 0..4_000 {
        let item = world.c.random().unwrap().unwrap();
        *drawn.entry(item.key().to_vec()).or_insert(0) += 1;
    }
    // A thousand each, with a deviation of 27.
    assert_eq!(drawn.len(), 4);
    assert!(drawn.values().all(|&times| times > 700), "{drawn:?}");
}

/// Of tables and memory, with records of the dead between them.
#[test]
fn each_item_is_drawn_wherever_it_lies() {
    let world = World::new(4);
    let c = &world.c;
    let key = |n: u32| format!("{n:03}").into_bytes();
    let put = |n: u32| match n % 4 {
        0 => c.put_with_ttl(key(n), "v", ms(1)).unwrap(),
        _ => c.put(key(n), "v").unwrap(),
    };
    (0..200).for_each(put);
    world.db.flush().unwrap();
    (100..300).for_each(put);
    (0..300)
        .filter(|n| n % 4 == 1)
        .for_each(|n| c.delete(key(n)).unwrap());
    world.db.flush().unwrap();
    (250..400).for_each(put);
    world.clock.advance(ms(1));
    let live: Vec<Vec<u8>> = c.iter().map(|item| item.unwrap().key().to_vec()).collect();
    let mut drawn: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for _ in 0..40 * live.len() {
        let item = c.random().unwrap().unwrap();
        *drawn.entry(item.key().to_vec()).or_default() += 1;
    }
    // Forty each, with a deviation of 6; also of those that have an older version in another table.
    assert_eq!(drawn.keys().cloned().collect::<Vec<_>>(), live);
    assert!(
        drawn.values().all(|times| (5..120).contains(times)),
        "{drawn:?}"
    );
    let rewritten: Vec<u64> = (100..200)
        .filter_map(|n| drawn.get(&key(n)).copied())
        .collect();
    let mean = rewritten.iter().sum::<u64>() / rewritten.len() as u64;
    assert!((30..50).contains(&mean), "{mean}: {drawn:?}");
}

/// Mapped, packed, and read into memory; over several runs and a memtable, with large values between them.
#[test]
fn many_keys_are_found_however_files_are_read() {
    for (reads, compression) in [
        (Reads::Map, Compression::None),
        (Reads::Map, Compression::Lz4),
        (Reads::Pread, Compression::None),
        (Reads::Pread, Compression::Lz4),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().reads(reads).stepped();
        let db = options.open(folder.path()).unwrap();
        let c = db
            .container_with("c", ContainerOptions::new().compression(compression))
            .unwrap();
        let dice = &mut Random(7);
        for _ in 0..4 {
            for _ in 0..300 {
                let len = [0, 100, 20_000][dice.number(3) as usize];
                let value = vec![b'a' + dice.number(26) as u8; len];
                c.put(key(dice), value).unwrap();
            }
            db.flush().unwrap();
            for _ in 0..30 {
                c.delete(key(dice)).unwrap();
            }
        }
        c.delete_range("100".."120").unwrap();
        let asked: Vec<Vec<u8>> = (0..1_000).map(|_| key(dice)).collect();
        let many = c.get_many(&asked).unwrap();
        let found = many.iter().flatten().count();
        assert!((100..900).contains(&found), "{found}");
        for (key, value) in asked.iter().zip(many) {
            assert_eq!(value, c.get(key).unwrap());
        }
    }
}
