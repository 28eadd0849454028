//! Goal: what is lent is what the iterator shows: the same items, bytes and order, wherever records are stored, and
//! nothing that had expired when it was lent, whatever the caller does meanwhile.
//!
//! Method: random histories in phases, each of which writes records that are alike or that are not: the lengths of keys,
//! ttls, deletes and overwrites differ by phase. Most phases end with a flush, so there are runs of every kind, up to
//! forty at once. Gets say what is live, at the same moment and in the same snapshot.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Bound, ControlFlow, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide::internals::{Fs, Sim};
use ebbtide::{
    Chunk, Clock, Compression, Container, ContainerOptions, Database, DefaultTtl, Error, Item,
    ManualClock, Options, Reads, Snapshot, Ttl,
};
use testkit::random::Random;
use testkit::stage::{NOW, Stage, after, bytes, default, ms, seconds, text};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// How the keys of a history look: all of a length or not, alike in their first bytes or not.
#[derive(Clone, Copy)]
enum Keys {
    Numbers,
    LongHeads,
    /// Sixteen at a time are alike in more than a head holds.
    Clumps,
    Mixed,
}

impl Keys {
    const ALL: [Keys; 4] = [Keys::Numbers, Keys::LongHeads, Keys::Clumps, Keys::Mixed];

    fn key(self, dice: &mut Random, space: u64) -> Vec<u8> {
        self.nth(dice.number(space))
    }

    fn nth(self, n: u64) -> Vec<u8> {
        match self {
            Keys::Numbers => n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
            Keys::LongHeads => format!("all-alike-{n:07}").into_bytes(),
            Keys::Clumps => format!("k{:04}-all-alike-{:02}", n / 16, n % 16).into_bytes(),
            Keys::Mixed => {
                let text = format!("{n:06}");
                text.as_bytes()[..1 + n as usize % 6].to_vec()
            }
        }
    }
}

/// The properties that the writes of a phase share.
struct Phase {
    ttl: u64,
    value_len: u64,
    deletes: u64,
}

struct World {
    dice: Random,
    clock: ManualClock,
    /// By how much the clock's cheap reading is later.
    lag: Arc<AtomicU64>,
    db: Database,
    c: Container,
    keys: Keys,
    space: u64,
    snapshots: Vec<Snapshot>,
}

/// A clock with a cheap reading that is later.
struct Coarse {
    clock: ManualClock,
    lag: Arc<AtomicU64>,
}

impl Clock for Coarse {
    fn wall(&self) -> u64 {
        self.clock.wall()
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime()
    }

    fn wall_at_most(&self) -> Option<u64> {
        let lag = self.lag.load(Ordering::Relaxed);
        (lag > 0).then(|| self.clock.wall() + lag)
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Random(seed);
        let clock = ManualClock::new(NOW);
        let lag = Arc::new(AtomicU64::new([0, 20, 10_000][dice.number(3) as usize]));
        let coarse = Coarse {
            clock: clock.clone(),
            lag: lag.clone(),
        };
        let db = Options::new()
            .fs(Arc::new(Sim::new(seed)))
            .clock(coarse)
            .stepped()
            .max_runs(64)
            .reads([Reads::Map, Reads::Pread][dice.number(2) as usize])
            .memtable_bytes(1 << 20)
            .sizes(512 << dice.number(4), 64 << 10, 1 << 20)
            .open("/db")
            .unwrap();
        let packed = [Compression::None, Compression::Zstd, Compression::Lz4];
        let options = ContainerOptions::new().compression(packed[dice.number(3) as usize]);
        World {
            c: db.container_with("c", options).unwrap(),
            keys: Keys::ALL[dice.number(4) as usize],
            space: 100 << dice.number(6),
            dice,
            clock,
            lag,
            db,
            snapshots: vec![],
        }
    }

    fn ttl(&mut self, phase: &Phase) -> Ttl {
        match phase.ttl {
            0 => Ttl::Inherit,
            1 => Ttl::Never,
            2 => ms(500 + self.dice.number(30_000)).into(),
            3 => seconds(86_400).into(),
            _ => {
                let ttl = self.dice.number(4);
                self.ttl(&Phase { ttl, ..*phase })
            }
        }
    }

    fn write(&mut self, phase: &Phase) {
        let key = self.keys.key(&mut self.dice, self.space);
        if self.dice.number(100) < phase.deletes {
            return self.c.delete(key).unwrap();
        }
        let ttl = self.ttl(phase);
        let len = match self.dice.number(400) {
            0 if phase.value_len > 40 => 17 << 10,
            _ => self.dice.number(phase.value_len + 1),
        };
        let value = vec![b'a' + self.dice.number(26) as u8; len as usize];
        self.c.put_with_ttl(key, value, ttl).unwrap();
    }

    fn phase(&mut self) {
        let dice = &mut self.dice;
        let phase = Phase {
            ttl: dice.number(5),
            value_len: [0, 9, 60, 600][dice.number(4) as usize],
            deletes: [0, 0, 5, 60][dice.number(4) as usize],
        };
        for _ in 0..dice.number(1 + self.space / 2) {
            self.write(&phase);
        }
        self.change();
        match self.dice.number(10) {
            0 => while self.db.step().unwrap() {},
            1 if self.dice.one_in(4) => self.db.compact().unwrap(),
            2 => {}
            _ => self.db.flush().unwrap(),
        }
        if self.dice.one_in(8) {
            self.snapshots.push(self.db.snapshot());
        }
        if self.snapshots.len() > 3 {
            drop(self.snapshots.remove(0));
        }
    }

    /// Something that a caller may do at any time.
    fn change(&mut self) {
        match self.dice.number(12) {
            0 => {
                let after = default(1 + self.dice.number(60_000));
                let default = [DefaultTtl::Off, DefaultTtl::NoDefault, after];
                let default = default[self.dice.number(3) as usize];
                self.c.set_default_ttl(default).unwrap();
            }
            1 => {
                let mut ends = [(); 2].map(|()| self.keys.key(&mut self.dice, self.space));
                ends.sort();
                let [from, to] = ends;
                self.c.delete_range(from..to).unwrap();
            }
            2..6 => {
                let millis = [1, 30, 700, 5_000][self.dice.number(4) as usize];
                self.clock.advance(ms(millis));
            }
            _ => {}
        }
    }

    fn range(&mut self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut bound = || match self.dice.number(4) {
            0 => Bound::Excluded(self.keys.key(&mut self.dice, self.space)),
            1 => Bound::Included(self.keys.key(&mut self.dice, self.space)),
            _ => Bound::Unbounded,
        };
        (bound(), bound())
    }
}

fn owned(key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (key.to_vec(), value.to_vec())
}

/// All items of these chunks.
fn chunks(mut next: impl FnMut() -> ebbtide::Result<Option<Pairs>>) -> Pairs {
    let mut all = vec![];
    while let Some(chunk) = next().unwrap() {
        assert!((1..=128).contains(&chunk.len()));
        all.extend(chunk);
    }
    all
}

/// The items of a chunk, which are the same however they are taken.
fn of_chunk(chunk: Chunk<'_>) -> Pairs {
    let mut all = Pairs::new();
    for (key, value) in chunk {
        all.push(owned(key, value));
    }
    let mut whole = Pairs::new();
    chunk
        .iter()
        .for_each(|(key, value)| whole.push(owned(key, value)));
    assert!(whole == all, "all at once");
    let ends = chunk.len() / 3;
    let (mut items, mut front, mut back) = (chunk.iter(), Pairs::new(), Pairs::new());
    for _ in 0..ends {
        front.extend(items.next().map(|(key, value)| owned(key, value)));
        back.extend(items.next_back().map(|(key, value)| owned(key, value)));
    }
    assert_eq!(items.len(), chunk.len() - 2 * ends);
    items.for_each(|(key, value)| front.push(owned(key, value)));
    front.extend(back.into_iter().rev());
    assert!(front == all, "from both ends");
    all
}

/// The items that are lent of a range are those that an iterator shows, also up to any item; returns how many that were.
macro_rules! check {
    ($world:expr, $reader:expr) => {{
        let (range, mut lent) = ($world.range(), Pairs::new());
        let items = $reader.range(range.clone()).map(|item| item.unwrap());
        let items: Vec<Item> = items.collect();
        let pairs = items.iter().map(|item| owned(item.key(), item.value()));
        let shown: Pairs = pairs.collect();
        if $world.dice.one_in(3) {
            // Gets find the items that the iterator should show.
            let keys = (0..$world.space).map(|n| $world.keys.nth(n));
            let keys: BTreeSet<Vec<u8>> = keys.filter(|key| range.contains(key)).collect();
            let found = keys.iter().filter_map(|key| $reader.item(key).unwrap());
            assert!(found.eq(items), "gets");
            let back = bytes($reader.range(range.clone()).rev()).into_iter();
            assert!(back.eq(shown.iter().rev().cloned()), "backwards");
            assert_eq!($reader.count(range.clone()).unwrap(), shown.len() as u64);
        }
        let most = match $world.dice.number(3) {
            0 => $world.dice.number(2 + shown.len() as u64) as usize,
            _ => usize::MAX,
        };
        let mut cursor = $reader.cursor(range.clone());
        if $world.dice.one_in(2) {
            assert!(
                chunks(|| cursor.next_chunk().map(|chunk| chunk.map(of_chunk))) == shown,
                "chunks forwards"
            );
        } else {
            cursor.seek_to_end();
            let mut backwards = chunks(|| cursor.prev_chunk().map(|chunk| chunk.map(of_chunk)));
            backwards.reverse();
            assert!(backwards == shown, "chunks backwards");
        }
        let end = $reader.for_each(range, |key, value| {
            if lent.len() == most {
                return ControlFlow::Break(key.to_vec());
            }
            lent.push(owned(key, value));
            ControlFlow::Continue(())
        });
        let stopped = end.unwrap().break_value();
        assert_eq!(stopped.as_ref(), shown.get(most).map(|(key, _)| key));
        assert!(
            lent == shown[..most.min(shown.len())],
            "{} lent, {} shown, up to {most}",
            lent.len(),
            shown.len()
        );
        shown.len()
    }};
}

#[test]
fn what_is_lent_is_what_the_iterator_shows() {
    let mut items = 0;
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 6) {
        let mut world = World::new(seed);
        for _ in 0..40 {
            world.phase();
            for _ in 0..2 {
                items += check!(world, world.c);
            }
            if let Some(snapshot) = world.snapshots.first() {
                let view = snapshot.container("c").unwrap();
                items += check!(world, view);
            }
        }
    }
    println!("{items} items");
    assert!(items > 0);
}

// More runs than are merged at once, with the same keys in several of them, all alike in their first bytes; the newest
// ones delete, or have records of another kind. What gets find says what is lent in each snapshot.
#[test]
fn versions_in_many_runs_are_lent_once() {
    let many_runs = |options: Options| options.max_runs(64).sizes(1 << 10, 64 << 10, 1 << 20);
    let Stage { clock, db, c, .. } = Stage::new(many_runs);
    let key = |n: u32| format!("all-alike-{n:05}");
    let (mut snapshots, day) = (vec![], seconds(86_400));
    for run in 0..24 {
        for n in (0..2_000).filter(|n| n % 12 == run % 12 || n % 7 == run % 7) {
            match run {
                0..20 => c.put(key(n), format!("{run}")).unwrap(),
                20 => c.delete(key(n)).unwrap(),
                21 => c.put_with_ttl(key(n), "dated", day).unwrap(),
                22 => c.put(key(n) + "+", "a longer key").unwrap(),
                _ => c.put_with_ttl(key(n), "ended", seconds(1)).unwrap(),
            }
        }
        snapshots.push(db.snapshot());
        db.flush().unwrap();
    }
    for n in (0..2_000).step_by(11) {
        c.put(key(n), "in memory").unwrap();
    }
    snapshots.push(db.snapshot());
    assert!(c.stats().runs > 16);
    clock.advance(seconds(1));
    for (number, snapshot) in snapshots.iter().enumerate() {
        let view = snapshot.container("c").unwrap();
        let keys = (0..2_000).flat_map(|n| [key(n), key(n) + "+"]);
        let live = keys.filter_map(|key| Some((key.clone(), view.get(&key).unwrap()?)));
        let live: Pairs = live
            .map(|(key, value)| owned(key.as_bytes(), &value))
            .collect();
        let mut lent = Pairs::new();
        let end = view.for_each(.., |key, value| {
            lent.push(owned(key, value));
            ControlFlow::<()>::Continue(())
        });
        assert!(end.unwrap().is_continue());
        assert!(lent == live, "in snapshot {number}");
        let mut cursor = view.cursor(..);
        cursor.seek_to_end();
        let mut back = chunks(|| cursor.prev_chunk().map(|chunk| chunk.map(of_chunk)));
        back.reverse();
        assert!(back == live, "backwards in snapshot {number}");
    }
}

// While items are lent the clock goes on, settings change, and records move. Each item is live when it is lent, and what
// was passed over is not.
#[test]
fn what_is_lent_is_live_whatever_happens_meanwhile() {
    let mut items = 0;
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 4) {
        let mut world = World::new(1_000 + seed);
        for _ in 0..12 {
            world.phase();
            let view = world.db.snapshot().container("c").unwrap();
            let shown = view.iter().map(|item| item.unwrap().key().to_vec());
            let shown: Vec<_> = shown.collect();
            let (mut at, c) = (0, world.c.clone());
            let end = c.for_each(.., |key, value| {
                assert_eq!(view.get(key).unwrap().expect("it is live"), value);
                while shown[at] != key {
                    assert!(
                        view.get(&shown[at]).unwrap().is_none(),
                        "it was passed over"
                    );
                    at += 1;
                }
                (at, items) = (at + 1, items + 1);
                match world.dice.number(60) {
                    0..10 => world.change(),
                    10 => world.phase(),
                    11 => while world.db.step().unwrap() {},
                    12 => world.db.compact().unwrap(),
                    _ => {}
                }
                ControlFlow::<()>::Continue(())
            });
            assert!(end.unwrap().is_continue());
            for key in &shown[at..] {
                assert!(view.get(key).unwrap().is_none(), "it was passed over");
            }
        }
        assert!(world.lag.load(Ordering::Relaxed) <= 10_000);
    }
    println!("{items} items");
    assert!(items > 0);
}

// The same of an iterator, between its calls, from both ends.
#[test]
fn an_iterator_shows_what_lives_when_it_is_asked() {
    let mut items = 0;
    for seed in 0..testkit::env("EBBTIDE_SEEDS", 4) {
        let mut world = World::new(2_000 + seed);
        for _ in 0..12 {
            world.phase();
            let view = world.db.snapshot().container("c").unwrap();
            let keys = view.iter().map(|item| item.unwrap().key().to_vec());
            let mut left: VecDeque<Vec<u8>> = keys.collect();
            let mut iter = world.c.iter();
            // Walks in one direction, from one item to some dozens.
            let turns = [2, 20, 100][world.dice.number(3) as usize];
            let mut forwards = true;
            loop {
                forwards ^= world.dice.one_in(turns);
                let item = if forwards {
                    iter.next()
                } else {
                    iter.next_back()
                };
                let item = item.transpose().unwrap();
                if let Some(item) = &item {
                    let live = view.item(item.key()).unwrap().expect("it is live");
                    assert!(live == *item, "{live:?}, and not {item:?}");
                    items += 1;
                }
                let mut next = || {
                    if forwards {
                        left.pop_front()
                    } else {
                        left.pop_back()
                    }
                };
                while let Some(key) = next() {
                    if item.as_ref().is_some_and(|item| item.key() == key) {
                        break;
                    }
                    assert!(view.get(&key).unwrap().is_none(), "it was passed over");
                }
                if item.is_none() {
                    break;
                }
                match world.dice.number(60) {
                    0..10 => world.change(),
                    10 => world.phase(),
                    11 => while world.db.step().unwrap() {},
                    _ => {}
                }
            }
        }
    }
    println!("{items} items");
    assert!(items > 0);
}

/// A thousand items with these ttls, in tables.
fn a_thousand(ttl: Ttl) -> Stage {
    let f = Stage::new(|options| options.sizes(1 << 10, 64 << 10, 1 << 20));
    for n in 0..1_000 {
        f.c.put_with_ttl(key(n), "v", ttl).unwrap();
    }
    f.db.flush().unwrap();
    f
}

fn key(n: u32) -> String {
    format!("{n:04}")
}

fn key_of(item: ebbtide::Result<Item>) -> String {
    text(item.unwrap().key())
}

/// The keys that are lent, or that an iterator shows; after twenty of them something is done.
fn shown(c: &Container, is_lent: bool, after_twenty: impl Fn()) -> Vec<String> {
    let mut keys = vec![];
    let mut add = |key: &[u8]| {
        keys.push(text(key));
        if keys.len() == 20 {
            after_twenty();
        }
    };
    if is_lent {
        let end = c.for_each(.., |key, _| {
            add(key);
            ControlFlow::<()>::Continue(())
        });
        assert!(end.unwrap().is_continue());
    } else {
        c.iter().for_each(|item| add(item.unwrap().key()));
    }
    keys
}

// A minute asleep over an item; an iterator takes no second look at what it will return.
#[test]
fn nothing_is_shown_whose_end_came_after_the_item_before() {
    for is_lent in [true, false] {
        let f = a_thousand(after(60_000));
        f.c.put_with_ttl(key(500), "later", Ttl::Never).unwrap();
        let found = shown(&f.c, is_lent, || f.pass(60_000));
        let expected: Vec<String> = (0..20).chain([500]).map(key).collect();
        assert_eq!(found, expected, "lent: {is_lent}");
    }
}

#[test]
fn a_changed_default_counts_for_the_next_item() {
    for is_lent in [true, false] {
        let f = a_thousand(Ttl::Inherit);
        f.pass(60_000);
        let minute = || f.c.set_default_ttl(default(60_000)).unwrap();
        assert_eq!(shown(&f.c, is_lent, minute).len(), 20, "lent: {is_lent}");
    }
}

// It asks before each item, though it knows that many follow which are live.
#[test]
fn an_iterator_says_what_was_closed_or_dropped_since_the_item_before() {
    for closes in [false, true] {
        let Stage { db, c, .. } = a_thousand(Ttl::Inherit);
        let mut items = c.iter();
        assert_eq!(items.by_ref().take(20).map(key_of).count(), 20);
        match closes {
            true => db.close().unwrap(),
            false => assert!(db.drop_container("c").unwrap()),
        }
        let error = items.next().unwrap().unwrap_err();
        assert!(error.is_closed(), "{error}");
        assert_eq!(matches!(error, Error::Closed), closes, "{error}");
        assert!(items.next().is_none());
    }
}

// Expired records that nobody reads still hide the older versions of their keys, wherever they begin.
#[test]
fn an_iterator_shows_nothing_that_unread_records_hide() {
    let Stage { clock, db, c, .. } = a_thousand(Ttl::Never);
    for n in 100..900 {
        c.put_with_ttl(key(n), "ends", seconds(1)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(c.stats().runs, 2);
    clock.advance(seconds(1));
    let expected: Vec<String> = (0..100).chain(900..1_000).map(key).collect();
    assert_eq!(c.iter().map(key_of).collect::<Vec<_>>(), expected);
    for from in (0..100).step_by(7) {
        let shown: Vec<String> = c.range(key(from)..).map(key_of).collect();
        assert_eq!(shown, expected[from as usize..]);
    }
}

// A key is shown by one end alone, wherever the two meet.
#[test]
fn the_ends_of_an_iterator_meet() {
    let Stage { c, db: _db, .. } = a_thousand(Ttl::Inherit);
    for from_the_front in (0..1_000).step_by(7) {
        let mut items = c.iter();
        let mut shown: Vec<String> = items.by_ref().take(from_the_front).map(key_of).collect();
        let back = items.by_ref().rev().take(999 - from_the_front);
        let back: Vec<String> = back.map(key_of).collect();
        shown.extend(items.map(key_of));
        shown.extend(back.into_iter().rev());
        let expected: Vec<String> = (0..1_000).map(key).collect();
        assert!(shown == expected, "{from_the_front} from the front");
    }
}

// A leap that is corrected while an item is lent.
#[test]
fn what_a_leading_clock_hides_is_lent_when_it_has_come_back() {
    const MINUTE: u64 = 60_000;
    let Stage { clock, db, c, .. } = Stage::new(|options| options);
    for key in ["a", "b", "c", "d"] {
        let ttl = match key {
            "c" => Ttl::After(seconds(90 * 60)),
            _ => Ttl::Never,
        };
        c.put_with_ttl(key, "v", ttl).unwrap();
    }
    db.flush().unwrap();
    let mut lent = String::new();
    let end = c.for_each(.., |key, _| {
        lent += std::str::from_utf8(key).unwrap();
        match key {
            b"a" => clock.jump(NOW + 120 * MINUTE),
            b"b" => clock.jump(NOW + MINUTE),
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(end.unwrap().is_continue());
    assert_eq!(lent, "abcd");
}

#[test]
fn whoever_is_lent_an_item_may_do_anything() {
    let Stage { db, c, .. } = a_thousand(Ttl::Never);
    // It writes to the container, which is not seen.
    let mut lent = 0;
    let end = c.for_each(.., |key, _| {
        lent += 1;
        c.put([key, b"+"].concat(), "new").unwrap();
        c.delete(key).unwrap();
        ControlFlow::<()>::Continue(())
    });
    assert!(end.unwrap().is_continue());
    assert_eq!((lent, c.count(..).unwrap()), (1_000, 1_000));
    db.flush().unwrap();
    // It panics, and nothing is locked.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        c.for_each("0500".., |_, _| -> ControlFlow<()> { panic!("planned") })
    }));
    assert!(panicked.is_err());
    c.put("0000", "after").unwrap();
    db.compact().unwrap();
    assert_eq!(c.count(..).unwrap(), 1_001);
    // It drops the container.
    let mut lent = 0;
    let dropped = c.for_each(.., |_, _| {
        lent += 1;
        assert!(lent > 1 || db.drop_container("c").unwrap());
        ControlFlow::<()>::Continue(())
    });
    assert!(matches!(
        dropped,
        Err(ebbtide::Error::ContainerDropped { .. })
    ));
    assert_eq!(lent, 1);
}

fn tables(sim: &Sim) -> usize {
    sim.list(Path::new("/db/tables")).unwrap().len()
}

// A reader that takes long over an item keeps no table that is obsolete.
#[test]
fn tables_are_given_back_while_an_item_is_lent() {
    let Stage {
        clock, sim, db, c, ..
    } = a_thousand(after(60_000));
    c.put("9999", "stays").unwrap();
    db.flush().unwrap();
    let (before, mut lent) = (tables(&sim), 0);
    assert!(before >= 2);
    let end = c.for_each(.., |_, _| {
        lent += 1;
        if lent == 10 {
            clock.advance(seconds(86_400));
            while db.step().unwrap() {}
            assert!(tables(&sim) < before, "{} of {before}", tables(&sim));
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(end.unwrap().is_continue());
    assert_eq!(lent, 11);
}

// An iterator at rest keeps no table that is obsolete, and goes on behind its last item.
#[test]
fn tables_are_given_back_by_an_iterator_at_rest() {
    let Stage { sim, db, c, .. } = a_thousand(Ttl::Inherit);
    let mut items = c.iter();
    let mut shown: Vec<String> = items.by_ref().take(20).map(key_of).collect();
    for n in (0..1_000).filter(|n| n % 3 > 0) {
        c.delete(key(n)).unwrap();
    }
    c.put("0020+", "not seen").unwrap();
    let held: Vec<_> = sim.list(Path::new("/db/tables")).unwrap();
    db.compact().unwrap();
    while db.step().unwrap() {}
    let kept = sim.list(Path::new("/db/tables")).unwrap();
    assert!(held.iter().all(|table| !kept.contains(table)), "{kept:?}");
    shown.extend(items.map(key_of));
    let expected: Vec<String> = (0..1_000).map(key).collect();
    assert!(shown == expected, "{} shown", shown.len());
}
