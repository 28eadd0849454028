//! Goal: operations on one key are linearizable, clock included: each takes effect at one moment between call and
//! return, with the newest write and the time of that moment.
//!
//! Method: short histories of few keys, whose lifetimes are some milliseconds, by several threads, while tiny memtables
//! are flushed and merged; the clock pauses before and after it is read, so that much happens in between. A checker
//! (Wing and Gong's algorithm, crate todc-utils) looks for an order in which they could have happened one after the
//! other. Time is part of that: with a manual clock each of its steps is an operation of the history; with the system's
//! each operation has the clock's readings at its call and at its return, and happened in between.
//!
//! A write does not reveal its stamp. It is between call and effect, and later reads narrow it down: so the state holds
//! the earliest and the latest possible stamp of a version.
//!
//! `EBBTIDE_SECONDS` says how long each of the three runs (default 3).

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebbtide::internals::Sim;
use ebbtide::{
    Batch, Clock, Container, Database, DefaultTtl, Durability, Error, Item, ManualClock, Options,
    SystemClock, Ttl, Update,
};
use testkit::random::Random;
use todc_utils::{Action, History, Specification, WGLChecker};

const START: u64 = 1_800_000_000_000;
const DAY_MILLIS: u64 = 86_400_000;
const KEYS: usize = 2;
const THREADS: usize = 4;
/// By each thread. The checker's work grows with the length of a history faster than what is found by it.
const OPERATIONS: usize = 12;
/// So many histories are played in one database.
const HISTORIES: u64 = 20;

/// A written value: a number that no other write has, and a lifetime in milliseconds.
type Write = (u32, Option<u64>);

/// Something that was done, and what it answered.
#[derive(Clone, Debug)]
enum Act {
    /// The clock shows this from now on.
    Tick(u64),
    Get(usize, Option<u32>),
    Contains(usize, bool),
    /// With the time of the write.
    Item(usize, Option<(u32, u64)>),
    Create(usize, Write, bool),
    Replace(usize, Write, bool),
    /// Whether it has replaced one.
    Upsert(usize, Write, bool),
    Touch(usize, bool),
    /// The item that was shown last, and what was made of it; nothing inside for a delete, nothing at all for leaving it.
    Update(usize, Option<u32>, Option<Option<Write>>),
    /// A put or a delete of some keys.
    Batch(Vec<(usize, Option<Write>)>),
    /// A replacement of this number, which takes over the life that is there.
    Keep(usize, u32, bool),
    /// All is expired, or only what has an end, and then one key is written.
    Expire(bool, Option<(usize, Write)>),
    /// Of each key a replacement or a creation, or nothing of all: for this one.
    All(Vec<(usize, bool, Write)>, Option<usize>),
}

#[derive(Clone, Debug)]
struct Operation {
    act: Act,
    /// The lowest and the highest time that the clock can have shown between call and return.
    window: (u64, u64),
    time: Time,
}

/// How the time of an effect is known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Time {
    /// It is that of the last tick, ...
    Ticks,
    /// ... which may be earlier than the one before.
    Jumps,
    /// It lies in the window.
    Passes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    number: u32,
    ttl: Option<u64>,
    /// The earliest and the latest stamp that it can have.
    stamp: (u64, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Not later than now.
    now: u64,
    newest: [Option<Version>; KEYS],
}

impl State {
    /// The version of a live item, or that there is none, and narrows down what is known by that; `None` if it cannot be so
    /// by `to`.
    fn narrow(&mut self, key: usize, live: bool, to: u64) -> Option<Option<Version>> {
        let Some(version) = &mut self.newest[key] else {
            return (!live).then_some(None);
        };
        let Some(ttl) = version.ttl else {
            return live.then_some(Some(*version));
        };
        if live {
            version.stamp.0 = version.stamp.0.max((self.now + 1).saturating_sub(ttl));
        } else {
            version.stamp.1 = version.stamp.1.min(to.checked_sub(ttl)?);
            self.now = self.now.max(version.stamp.0 + ttl);
        }
        let possible = version.stamp.0 <= version.stamp.1 && self.now <= to;
        possible.then_some(live.then_some(*version))
    }
}

/// A container of a few keys, and the time.
struct Model;

impl Specification for Model {
    type State = State;
    type Operation = Operation;

    fn init() -> State {
        State {
            now: 0,
            newest: [None; KEYS],
        }
    }

    fn apply(operation: &Operation, state: &State) -> (bool, State) {
        let mut next = state.clone();
        match effect(operation, &mut next) {
            Some(()) => (true, next),
            None => (false, state.clone()),
        }
    }
}

/// `None`: it cannot have been so.
fn effect(operation: &Operation, state: &mut State) -> Option<()> {
    let (first, last) = operation.window;
    let to = match operation.time {
        Time::Ticks | Time::Jumps => state.now,
        Time::Passes => {
            state.now = state.now.max(first);
            last
        }
    };
    if state.now > to {
        return None;
    }
    // A clock that goes back may have shown the write a later time than that of its effect.
    let latest = if operation.time == Time::Jumps {
        last
    } else {
        last.min(to)
    };
    let put = |state: &mut State, key: usize, write: Option<Write>| {
        state.newest[key] = write.map(|(number, ttl)| Version {
            number,
            ttl,
            stamp: (first, latest),
        });
    };
    match &operation.act {
        Act::Tick(now) => state.now = *now,
        Act::Get(key, found) => {
            let version = state.narrow(*key, found.is_some(), to)?;
            (version.map(|version| version.number) == *found).then_some(())?;
        }
        Act::Contains(key, found) => {
            state.narrow(*key, *found, to)?;
        }
        Act::Item(key, found) => {
            let version = state.narrow(*key, found.is_some(), to)?;
            if let (Some(version), Some((number, stamp))) = (version, found) {
                let stamps = version.stamp.0..=version.stamp.1;
                (version.number == *number && stamps.contains(stamp)).then_some(())?;
                state.newest[*key].as_mut()?.stamp = (*stamp, *stamp);
            }
        }
        Act::Create(key, write, done) => {
            state.narrow(*key, !done, to)?;
            if *done {
                put(state, *key, Some(*write));
            }
        }
        Act::Replace(key, write, done) => {
            state.narrow(*key, *done, to)?;
            if *done {
                put(state, *key, Some(*write));
            }
        }
        Act::Upsert(key, write, live) => {
            state.narrow(*key, *live, to)?;
            put(state, *key, Some(*write));
        }
        Act::Touch(key, done) => {
            if let Some(version) = state.narrow(*key, *done, to)? {
                put(state, *key, Some((version.number, version.ttl)));
            }
        }
        Act::Update(key, shown, made) => {
            let version = state.narrow(*key, shown.is_some(), to)?;
            (version.map(|version| version.number) == *shown).then_some(())?;
            if let Some(write) = made {
                put(state, *key, *write);
            }
        }
        Act::Keep(key, number, done) => {
            if let Some(version) = state.narrow(*key, *done, to)? {
                let number = *number;
                state.newest[*key] = Some(Version { number, ..version });
            }
        }
        Act::All(writes, None) => {
            for (key, live, _) in writes {
                state.narrow(*key, *live, to)?;
            }
            writes
                .iter()
                .for_each(|(key, _, write)| put(state, *key, Some(*write)));
        }
        Act::All(writes, Some(failed)) => {
            let (key, live, _) = writes.iter().find(|(key, ..)| key == failed)?;
            state.narrow(*key, !live, to)?;
        }
        Act::Batch(writes) => writes
            .iter()
            .for_each(|(key, write)| put(state, *key, *write)),
        Act::Expire(all, write) => {
            let stays = |version: &Version| !all && version.ttl.is_none();
            let newest = state.newest.map(|version| version.filter(stays));
            state.newest = newest;
            if let Some((key, write)) = write {
                put(state, *key, Some(*write));
            }
        }
    }
    Some(())
}

/// Gives others the processor at some looks at the time, before and after it is known.
#[derive(Clone)]
struct Dawdling<C> {
    clock: C,
    looks: Arc<AtomicU64>,
}

impl<C: Clock> Dawdling<C> {
    fn new(clock: C) -> Self {
        let looks = Arc::default();
        Dawdling { clock, looks }
    }

    fn dawdle(&self) {
        let look = Random(self.looks.fetch_add(1, Ordering::Relaxed)).next();
        match look % 64 {
            0 => std::thread::sleep(Duration::from_micros(look / 64 % 500)),
            1..16 => std::thread::yield_now(),
            _ => {}
        }
    }
}

impl<C: Clock> Clock for Dawdling<C> {
    fn wall(&self) -> u64 {
        self.dawdle();
        let wall = self.clock.wall();
        self.dawdle();
        wall
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime()
    }

    /// An item that lives for some milliseconds more may be answered by this, one that does not by the other.
    fn wall_at_most(&self) -> Option<u64> {
        self.dawdle();
        let wall = self.clock.wall() + 2;
        self.dawdle();
        Some(wall)
    }
}

/// Between which two moments an operation was under way, and what it was. Moments have an order and no length.
type Played = (u64, u64, Operation);

/// One history, being played.
struct Stage<'a> {
    db: &'a Database,
    container: &'a Container,
    /// In front of the keys, so that the keys of each history are new.
    name: String,
    moments: AtomicU64,
    numbers: AtomicU64,
    time: Time,
    over: AtomicBool,
}

impl Stage<'_> {
    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn key(&self, key: usize) -> String {
        format!("{}-{key}", self.name)
    }

    /// Plays one operation; its window is known where the time passes by itself.
    fn play(&self, act: impl FnOnce() -> Act) -> Played {
        let time = || match self.time {
            Time::Passes => SystemClock.wall(),
            Time::Ticks | Time::Jumps => 0,
        };
        let (called, from) = (self.moment(), time());
        let act = act();
        let (to, returned) = (time(), self.moment());
        let operation = Operation {
            act,
            window: (from, to),
            time: self.time,
        };
        (called, returned, operation)
    }

    fn write(&self, random: &mut Random) -> Write {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) as u32;
        let ttl = (!random.one_in(6)).then(|| 1 + random.below(5) as u64);
        (number, ttl)
    }

    fn operation(&self, random: &mut Random) -> Act {
        let (c, at) = (self.container, random.below(KEYS));
        let key = self.key(at);
        match random.below(24) {
            22 | 23 => {
                let write = self.write(random);
                let put = c.upsert(&key, value(write), ttl(write)).unwrap();
                Act::Upsert(at, write, put.before.is_some())
            }
            20 | 21 => self.expire(random),
            16 | 17 => {
                let (number, _) = self.write(random);
                let written = value((number, None));
                Act::Keep(at, number, c.replace(&key, written, Ttl::Keep).unwrap())
            }
            18 | 19 => self.all(random),
            0 => Act::Get(at, c.get(&key).unwrap().map(|value| number(&value))),
            1 => {
                // A call in vain has no effect: the operation is the one that answers.
                let found = c.try_get(&key).unwrap().ready();
                let found = found.unwrap_or_else(|| c.get(&key).unwrap());
                Act::Get(at, found.map(|value| number(&value)))
            }
            2 => {
                let many = c.get_many([&key]).unwrap().remove(0);
                Act::Get(at, many.map(|value| number(&value)))
            }
            3 => Act::Contains(at, c.contains(&key).unwrap()),
            4 => Act::Item(at, c.item(&key).unwrap().map(|item| seen(&item))),
            5 | 6 => {
                let write = self.write(random);
                let done = c.create(&key, value(write), ttl(write)).unwrap();
                Act::Create(at, write, done)
            }
            7 | 8 => {
                let write = self.write(random);
                let done = c.replace(&key, value(write), ttl(write)).unwrap();
                Act::Replace(at, write, done)
            }
            9..12 => Act::Touch(at, c.touch(&key).unwrap()),
            12 | 13 => self.update(at, random),
            14 => {
                let write = self.write(random);
                c.put_with_ttl(&key, value(write), ttl(write)).unwrap();
                Act::Batch(vec![(at, Some(write))])
            }
            _ => {
                let mut batch = Batch::new();
                let writes: Vec<_> = (0..KEYS)
                    .map(|at| (at, (!random.one_in(4)).then(|| self.write(random))))
                    .collect();
                for (at, write) in &writes {
                    match write {
                        Some(write) => {
                            batch.put_with_ttl(c, self.key(*at), value(*write), ttl(*write))
                        }
                        None => batch.delete(c, self.key(*at)),
                    };
                }
                self.db.write(&batch).unwrap();
                Act::Batch(writes)
            }
        }
    }

    fn expire(&self, random: &mut Random) -> Act {
        let (c, all) = (self.container, random.one_in(2));
        let far = SystemTime::now() + Duration::from_millis(400 * 365 * DAY_MILLIS);
        let write = random
            .one_in(2)
            .then(|| (random.below(KEYS), self.write(random)));
        let done = match (write, all) {
            (None, true) => c.expire_all(),
            (None, false) => c.expire_before(far),
            (Some((at, write)), all) => {
                let mut batch = Batch::new();
                match all {
                    true => batch.expire_all(c),
                    false => batch.expire_before(c, far),
                };
                batch.put_with_ttl(c, self.key(at), value(write), ttl(write));
                self.db.write(&batch)
            }
        };
        match done {
            Ok(()) => Act::Expire(all, write),
            Err(Error::ClockUnsettled { .. }) => Act::Batch(vec![]),
            Err(error) => panic!("{error}"),
        }
    }

    fn all(&self, random: &mut Random) -> Act {
        let (c, mut batch) = (self.container, Batch::new());
        let one = |at| (at, random.one_in(2), self.write(random));
        let writes: Vec<_> = (0..KEYS).map(one).collect();
        for &(at, live, write) in &writes {
            let key = self.key(at);
            match live {
                true => batch.replace(c, key, value(write), ttl(write)),
                false => batch.create(c, key, value(write), ttl(write)),
            };
        }
        let failed = match self.db.write(&batch) {
            Ok(()) => None,
            Err(Error::Conflict { key, .. }) => {
                let failed = (0..KEYS).find(|at| self.key(*at).as_bytes() == key);
                Some(failed.expect("a key of the batch"))
            }
            Err(error) => panic!("{error}"),
        };
        Act::All(writes, failed)
    }

    fn update(&self, at: usize, random: &mut Random) -> Act {
        let (write, [if_found, if_not]) = (self.write(random), [(); 2].map(|()| random.below(3)));
        let mut last = (None, None);
        let decide = |item: Option<&Item>| {
            let found = item.map(|item| number(item.value()));
            std::thread::yield_now();
            let (made, update) = match if found.is_some() { if_found } else { if_not } {
                0 => (None, Update::Keep),
                1 => (Some(None), Update::Delete),
                _ => (Some(Some(write)), Update::Put(value(write), ttl(write))),
            };
            last = (found, made);
            update
        };
        let changed = self.container.update(self.key(at), decide).unwrap();
        let (found, mut made) = last;
        if found.is_none() && made == Some(None) {
            // Where nothing is to be deleted, nothing is written.
            made = None;
        }
        assert_eq!(changed, made.is_some());
        Act::Update(at, found, made)
    }

    fn worker(&self, seed: u64) -> Vec<Played> {
        let mut random = Random(seed);
        let played = (0..OPERATIONS).map(|_| {
            // Something to flush and to merge.
            let other = format!("other {}", random.below(50));
            self.container.put(other, [7; 200]).unwrap();
            if random.one_in(4) {
                std::thread::sleep(Duration::from_micros(random.below(600) as u64));
            }
            self.play(|| self.operation(&mut random))
        });
        played.collect()
    }

    /// Moves the clock until all is over, whenever it was looked at some times.
    fn tick(&self, clock: &Dawdling<ManualClock>, seed: u64) -> Vec<Played> {
        let mut random = Random(seed);
        let (looks, clock) = (&clock.looks, &clock.clock);
        let (mut base, mut leads) = (clock.wall(), false);
        let mut played = vec![];
        while !self.over.load(Ordering::Relaxed) {
            let next = looks.load(Ordering::Relaxed) + random.below(12) as u64;
            while looks.load(Ordering::Relaxed) < next && !self.over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            played.push(self.play(|| {
                if leads || self.time == Time::Ticks || random.one_in(3) {
                    base += u64::from(!leads);
                    if leads {
                        clock.jump(base);
                    } else {
                        clock.advance(Duration::from_millis(1));
                    }
                    leads = false;
                } else {
                    clock.jump(base + DAY_MILLIS);
                    leads = true;
                }
                Act::Tick(clock.wall())
            }));
        }
        if leads {
            played.push(self.play(|| {
                clock.jump(base);
                Act::Tick(base)
            }));
        }
        played
    }
}

fn value((number, _): Write) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(4 + number as usize % 100, 0);
    value
}

fn ttl((_, millis): Write) -> Ttl {
    millis.map_or(Ttl::Never, |millis| {
        Ttl::After(Duration::from_millis(millis))
    })
}

fn number(value: &[u8]) -> u32 {
    u32::from_le_bytes(value[..4].try_into().unwrap())
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn seen(item: &Item) -> (u32, u64) {
    let end = match item.ttl() {
        Ttl::After(ttl) => Some(item.written_at() + ttl),
        _ => None,
    };
    assert_eq!(item.expires_at(), end);
    (number(item.value()), millis(item.written_at()))
}

/// The times that the clock can have shown while an operation was under way: every tick counts from its call on, and
/// until the next one has returned.
fn windows(played: &mut [Vec<Played>], ticks: &[Played]) {
    let shown = |(called, returned): (u64, u64)| {
        let values = ticks.iter().enumerate().filter(move |(at, (from, ..))| {
            let until = ticks.get(at + 1).map_or(u64::MAX, |next| next.1);
            *from < returned && called < until
        });
        values.map(|(_, (.., operation))| match operation.act {
            Act::Tick(value) => value,
            _ => unreachable!("a clock that does something else"),
        })
    };
    for (called, returned, operation) in played.iter_mut().flatten() {
        let values: Vec<u64> = shown((*called, *returned)).collect();
        let lowest = values.iter().min().expect("it showed something");
        let highest = values.iter().max().expect("it showed something");
        operation.window = (*lowest, *highest);
    }
}

/// Plays one history; answers how many operations it had.
fn history(stage: &Stage<'_>, clock: Option<&Dawdling<ManualClock>>, seed: u64) -> usize {
    // The first tick tells what the clock shows at the beginning.
    let mut ticks = Vec::from_iter(clock.map(|clock| stage.play(|| Act::Tick(clock.clock.wall()))));
    let ready = Barrier::new(THREADS);
    let mut played = std::thread::scope(|scope| {
        let later = clock.map(|clock| scope.spawn(move || stage.tick(clock, seed)));
        let workers: Vec<_> = (0..THREADS as u64)
            .map(|worker| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    stage.worker(seed * 1_000 + worker)
                })
            })
            .collect();
        let mut played: Vec<Vec<Played>> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect();
        stage.over.store(true, Ordering::Relaxed);
        if let Some(later) = later {
            ticks.extend(later.join().unwrap());
            windows(&mut played, &ticks);
            played.push(ticks);
        }
        played
    });
    let mut actions = vec![];
    for (process, played) in played.drain(..).enumerate() {
        for (called, returned, operation) in played {
            actions.push((called, (process, Action::Call(operation.clone()))));
            actions.push((returned, (process, Action::Response(operation))));
        }
    }
    actions.sort_by_key(|(moment, _)| *moment);
    let actions: Vec<_> = actions.into_iter().map(|(_, action)| action).collect();
    let history = History::from_actions(actions.clone());
    if !WGLChecker::<Model>::is_linearizable(history) {
        for (process, action) in &actions {
            match action {
                Action::Call(_) => println!("{process} calls"),
                Action::Response(done) => println!("{process} {:?} {:?}", done.act, done.window),
            }
        }
        panic!("history {seed}: in no order could this have happened");
    }
    actions.len() / 2
}

/// Plays histories until the time is over, in one database after the other.
fn play(time: Time) {
    let until = Instant::now() + Duration::from_secs(testkit::env("EBBTIDE_SECONDS", 3));
    let (mut seed, mut operations, mut flushes, mut merges) = (0, 0, 0, 0);
    loop {
        let clock = (time != Time::Passes).then(|| Dawdling::new(ManualClock::new(START)));
        let sim = Sim::new(seed);
        let options = Options::new()
            .memtable_bytes(4 << 10)
            .max_runs(2)
            .durability(match seed / HISTORIES % 3 {
                2 => Durability::Sync,
                _ => Durability::Buffered,
            })
            .fs(Arc::new(sim))
            .sizes(256, 4 << 10, 4 << 10);
        let options = match &clock {
            Some(clock) => options.clock(clock.clone()),
            None => options.clock(Dawdling::new(SystemClock)),
        };
        let db = options.open("/db").unwrap();
        let container = db.container("c").unwrap();
        container.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        for _ in 0..HISTORIES {
            let stage = Stage {
                db: &db,
                container: &container,
                name: seed.to_string(),
                moments: AtomicU64::new(0),
                numbers: AtomicU64::new(1),
                time,
                over: AtomicBool::new(false),
            };
            operations += history(&stage, clock.as_ref(), seed);
            seed += 1;
        }
        let stats = db.stats();
        (flushes, merges) = (flushes + stats.flushes, merges + stats.merges);
        drop(container);
        db.close().unwrap();
        if Instant::now() > until {
            break;
        }
    }
    assert!(
        flushes > 0 && merges > 0,
        "{flushes} flushes, {merges} merges"
    );
    println!(
        "FIGURE linearizable histories, {time:?}: {seed} of {operations} operations, beside {flushes} flushes and \
         {merges} merges"
    );
}

#[test]
fn histories_by_a_manual_clock_are_linearizable() {
    play(Time::Ticks);
}

#[test]
fn histories_by_the_systems_clock_are_linearizable() {
    play(Time::Passes);
}

/// The wall leaps a day ahead and is put right again.
#[test]
fn histories_by_a_clock_that_leaps_are_linearizable() {
    play(Time::Jumps);
}
