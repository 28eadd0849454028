//! Goal: every way of reading shows what an iterator shows, for containers and snapshots, wherever records are stored,
//! in both directions; and a chunk of a cursor is judged by the time of the call that returns it.
//!
//! Method: random histories on a simulated disk, with background work step by step and a clock that moves only when
//! told to. An iterator over the same writes at the same moment defines what is live.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{
    Bytes, Chunk, Compression, Container, ContainerOptions, Cursor, Database, DefaultTtl,
    ManualClock, Options, Reads, Result, Ttl, View,
};

const START: u64 = 1_800_000_000_000;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Numbers by chance (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.below(400);
        // Some are beginnings of others.
        match n % 7 {
            0 => format!("{:02}", n % 100).into_bytes(),
            _ => format!("{n:03}").into_bytes(),
        }
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(4) {
            0 => Bound::Excluded(self.key()),
            1 => Bound::Included(self.key()),
            _ => Bound::Unbounded,
        }
    }

    fn range(&mut self) -> KeyRange {
        (self.bound(), self.bound())
    }
}

struct World {
    dice: Dice,
    clock: ManualClock,
    db: Database,
    c: Container,
}

impl World {
    fn new(seed: u64) -> World {
        let clock = ManualClock::new(START);
        let db = Options::new()
            .fs(Arc::new(Sim::new(seed)))
            .clock(clock.clone())
            .stepped()
            .memtable_bytes(16 << 10)
            .sizes(256, 4 << 10, 4 << 10)
            .open("/db")
            .unwrap();
        World {
            dice: Dice(seed),
            c: db.container("c").unwrap(),
            clock,
            db,
        }
    }

    fn write(&mut self) {
        let (c, dice) = (&self.c, &mut self.dice);
        match dice.below(40) {
            0 => c.delete_range(dice.range()).unwrap(),
            1..4 => c.delete(dice.key()).unwrap(),
            4..8 => drop(c.touch(dice.key()).unwrap()),
            8 => {
                let after = DefaultTtl::After(Duration::from_millis(1 + dice.below(20_000)));
                let default = [DefaultTtl::Off, DefaultTtl::NoDefault, after];
                c.set_default_ttl(default[dice.below(3) as usize]).unwrap();
            }
            9 if dice.below(20) == 0 => c.clear().unwrap(),
            _ => {
                let ttl = match dice.below(4) {
                    0 => Ttl::Inherit,
                    1 => Ttl::Never,
                    _ => Duration::from_millis(1 + dice.below(10_000)).into(),
                };
                let value = vec![b'a' + dice.below(26) as u8; dice.below(200) as usize];
                c.put_with_ttl(dice.key(), value, ttl).unwrap();
            }
        }
    }

    fn turn(&mut self) {
        for _ in 0..self.dice.below(80) {
            self.write();
        }
        match self.dice.below(8) {
            0 => self.db.flush().unwrap(),
            1 => while self.db.step().unwrap() {},
            _ => {}
        }
        let millis = [0, 1, 100, 1_000][self.dice.below(4) as usize];
        self.clock.advance(Duration::from_millis(millis));
    }
}

fn pairs(iter: ebbtide::Iter) -> Pairs {
    iter.map(|item| {
        let (key, value) = item.unwrap().into_parts();
        (key.to_vec(), value.to_vec())
    })
    .collect()
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

fn chunks(mut next: impl FnMut() -> Option<Pairs>) -> Pairs {
    let mut all = vec![];
    while let Some(chunk) = next() {
        assert!(!chunk.is_empty());
        all.extend(chunk);
    }
    all
}

/// All ways of reading a range of it agree.
macro_rules! check {
    ($reader:expr, $range:expr, $dice:expr) => {{
        let (c, range) = (&$reader, $range);
        let expected = pairs(c.range(range.clone()));
        let keys: Vec<Vec<u8>> = expected.iter().map(|(key, _)| key.clone()).collect();
        let backwards: Pairs = expected.iter().rev().cloned().collect();

        assert_eq!(c.count(range.clone()).unwrap(), expected.len() as u64);
        let bytes: usize = expected
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        assert_eq!(c.size_estimate(range.clone()), bytes as u64);
        let found: Result<Vec<Bytes>> = c.keys(range.clone()).collect();
        assert_eq!(found.unwrap(), keys);
        let found: Result<Vec<Bytes>> = c.keys(range.clone()).rev().collect();
        assert!(found.unwrap().iter().eq(keys.iter().rev()));

        let asked: Vec<Vec<u8>> = keys
            .iter()
            .cloned()
            .chain((0..9).map(|_| $dice.key()))
            .collect();
        let many = c.get_many(&asked).unwrap();
        assert_eq!(many.len(), asked.len());
        for (key, value) in asked.iter().zip(many) {
            assert_eq!(value, c.get(key).unwrap());
        }

        let mut seen: Pairs = vec![];
        let most = $dice.below(2 + 2 * expected.len() as u64) as usize;
        let end = c.for_each(range.clone(), |key, value| {
            if seen.len() == most {
                return ControlFlow::Break(key.to_vec());
            }
            seen.push(owned((key, value)));
            ControlFlow::Continue(())
        });
        let stopped = keys.get(most).cloned();
        assert_eq!(end.unwrap().break_value(), stopped);
        assert_eq!(seen, expected[..most.min(expected.len())]);

        let mut cursor = c.cursor(range.clone());
        assert!(
            cursor.prev_chunk().unwrap().is_none(),
            "it stands before all"
        );
        assert_eq!(
            chunks(|| cursor.next_chunk().unwrap().map(of_chunk)),
            expected
        );
        assert!(cursor.next_chunk().unwrap().is_none());
        assert_eq!(
            chunks(|| cursor.prev_chunk().unwrap().map(of_chunk)),
            backwards
        );
        cursor.seek_to_end();
        assert!(cursor.next_chunk().unwrap().is_none());
        assert_eq!(
            chunks(|| cursor.prev_chunk().unwrap().map(of_chunk)),
            backwards
        );

        let all = pairs(c.iter());
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
            let range = world.dice.range();
            check!(world.c, range.clone(), world.dice);
            for view in &views {
                check!(*view, range.clone(), world.dice);
            }
            if world.dice.below(4) == 0 {
                views.push(world.db.snapshot().container("c").unwrap());
            }
            if world.dice.below(6) == 0 && !views.is_empty() {
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
        let mut found = pairs(self.view.range(self.range.clone()));
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
            if world.dice.below(3) == 0 {
                let (range, snapshot) = (world.dice.range(), world.db.snapshot());
                let view = snapshot.container("c").unwrap();
                let cursor = match world.dice.below(2) {
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
                    match world.dice.below(8) {
                        0 => one.seek(None),
                        1 | 2 => one.seek(Some(world.dice.key())),
                        3 | 4 => one.take(false),
                        _ => one.take(true),
                    }
                    if world.dice.below(6) == 0 {
                        world.clock.advance(Duration::from_millis(500));
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
    world
        .c
        .put_with_ttl("gone", "v", Duration::from_millis(1))
        .unwrap();
    world.clock.advance(Duration::from_millis(1));
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
        0 => c
            .put_with_ttl(key(n), "v", Duration::from_millis(1))
            .unwrap(),
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
    world.clock.advance(Duration::from_millis(1));
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
        let mut dice = Dice(7);
        for _ in 0..4 {
            for _ in 0..300 {
                let len = [0, 100, 20_000][dice.below(3) as usize];
                let value = vec![b'a' + dice.below(26) as u8; len];
                c.put(dice.key(), value).unwrap();
            }
            db.flush().unwrap();
            for _ in 0..30 {
                c.delete(dice.key()).unwrap();
            }
        }
        c.delete_range("100".."120").unwrap();
        let asked: Vec<Vec<u8>> = (0..1_000).map(|_| dice.key()).collect();
        let many = c.get_many(&asked).unwrap();
        let found = many.iter().flatten().count();
        assert!((100..900).contains(&found), "{found}");
        for (key, value) in asked.iter().zip(many) {
            assert_eq!(value, c.get(key).unwrap());
        }
    }
}
