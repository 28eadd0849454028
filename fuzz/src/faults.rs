//! Operations on a disk that fails, against what each key may hold: more than one answer after a write that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::internals::{Fault, FaultPlan, Sim};
use ebbtide::{
    Batch, Container, Database, DefaultTtl, Durability, ManualClock, Options, Result, Ttl,
};

use super::input::Input;

const START: u64 = 1_772_366_400_000;
const KEYS: usize = 16;
/// More would make an input slow without making it richer.
const MOST_OPERATIONS: usize = 150;
const MOST_OPENS: usize = 5;

/// A value and when it ends; `None`: no item.
type Answer = Option<(Vec<u8>, u64)>;

/// Every acknowledged write is there, whatever failed: before a crash, and after it.
pub fn faults(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        world.act(&mut input);
    }
    world.crash(&mut input);
}

struct World {
    sim: Sim,
    clock: ManualClock,
    now: u64,
    db: Database,
    container: Container,
    allowed: Vec<BTreeSet<Answer>>,
    /// Of batches and loads that failed: two keys and the value that both have, or neither, until one is written again.
    pairs: Vec<(usize, usize, Vec<u8>)>,
    writes: u32,
    opens: usize,
}

impl World {
    fn new(input: &mut Input<'_>) -> World {
        let (sim, clock) = (Sim::new(input.u64()), ManualClock::new(START));
        let (db, container) = open(&sim, &clock);
        container.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        World {
            sim,
            clock,
            now: START,
            db,
            container,
            allowed: vec![BTreeSet::from([None]); KEYS],
            pairs: vec![],
            writes: 0,
            opens: 1,
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.below(26) {
            0..=7 => {
                let (at, (value, ttl, end)) = (input.below(KEYS), self.value(input));
                let done = self.container.put_with_ttl(key(at), &value, ttl);
                self.note(at, &done, Some((value, end)));
            }
            8 | 9 => {
                let at = input.below(KEYS);
                let done = self.container.delete(key(at));
                self.note(at, &done, None);
            }
            10 => {
                let (from, to) = (input.below(KEYS), input.below(KEYS));
                let done = self.container.delete_range(key(from)..key(to));
                (from..to).for_each(|at| self.note(at, &done, None));
            }
            11..=13 => self.batch(input),
            14 => drop(self.db.flush()),
            15 | 16 => drop(self.db.step()),
            17 => drop(self.db.compact()),
            18 => {
                let millis = u64::from(input.u16());
                self.clock.advance(Duration::from_millis(millis));
                self.now += millis;
            }
            19..=21 => {
                let at = self.sim.operations() + 1 + u64::from(input.u8() >> 2);
                let kind = Fault::ALL[input.below(Fault::ALL.len())];
                let lasting = input.flag();
                self.sim.fail(FaultPlan { at, kind, lasting });
            }
            22 => self.sim.heal(),
            23 | 24 => self.load(input),
            _ => self.crash(input),
        }
    }

    fn batch(&mut self, input: &mut Input<'_>) {
        let (a, b) = (input.below(KEYS), input.below(KEYS));
        if a == b {
            return;
        }
        let (value, ttl, end) = self.value(input);
        let mut batch = Batch::new();
        for at in [a, b] {
            batch.put_with_ttl(&self.container, key(at), &value, ttl);
        }
        let done = self.db.write(batch);
        for at in [a, b] {
            self.note(at, &done, Some((value.clone(), end)));
        }
        if done.is_err() {
            self.pairs.push((a, b, value));
        }
    }

    /// Keys that ascend, as a bulk load.
    fn load(&mut self, input: &mut Input<'_>) {
        let from = input.below(KEYS);
        let keys = from..KEYS.min(from + 1 + input.below(8));
        let (value, ttl, end) = self.value(input);
        let items = keys.clone().map(|at| Ok((key(at), &value, ttl)));
        let done = self.container.bulk_load_with_ttl(items).map(drop);
        for at in keys.clone() {
            self.note(at, &done, Some((value.clone(), end)));
        }
        if done.is_err() {
            let others = keys.skip(1);
            self.pairs
                .extend(others.map(|at| (from, at, value.clone())));
        }
    }

    /// A value that no other write has.
    fn value(&mut self, input: &mut Input<'_>) -> (Vec<u8>, Ttl, u64) {
        self.writes += 1;
        let mut value = self.writes.to_le_bytes().to_vec();
        value.resize(4 + usize::from(input.u8()), 0);
        match input.flag() {
            true => (value, Ttl::Never, u64::MAX),
            false => {
                let millis = 1 + u64::from(input.u16());
                let ttl = Ttl::After(Duration::from_millis(millis));
                (value, ttl, self.now + millis)
            }
        }
    }

    fn note(&mut self, at: usize, done: &Result<()>, answer: Answer) {
        if done.is_ok() {
            self.allowed[at].clear();
        }
        self.allowed[at].insert(answer);
        self.pairs.retain(|(a, b, _)| *a != at && *b != at);
    }

    /// Every answer must be allowed; an answer that was found after a crash does not change by itself.
    fn check(&mut self, confirm: bool) -> Result<()> {
        // A write that was refused may be there from the next sync on, and a get may ask for one: here before both. The
        // first may meet a fault that is to come once.
        let _ = self.db.sync().or_else(|_| self.db.sync());
        let mut seen = BTreeMap::new();
        for item in self.container.iter() {
            let item = item?;
            seen.insert(item.key().to_vec(), item.value().to_vec());
        }
        for (at, allowed) in self.allowed.iter_mut().enumerate() {
            let found = self.container.get(key(at))?.map(Vec::from);
            assert_eq!(
                seen.remove(key(at).as_bytes()),
                found,
                "a scan and a get differ"
            );
            let shown = |answer: &Answer| {
                let (value, end) = answer.as_ref()?;
                (*end > self.now).then(|| value.clone())
            };
            let fits = |answer: &Answer| shown(answer) == found;
            assert!(
                allowed.iter().any(fits),
                "key {at}: {found:?}, not of {allowed:?}"
            );
            if confirm {
                allowed.retain(fits);
            }
        }
        assert!(seen.is_empty(), "nobody wrote these: {seen:?}");
        Ok(())
    }

    fn crash(&mut self, input: &mut Input<'_>) {
        if self.opens == MOST_OPENS {
            return;
        }
        self.opens += 1;
        self.sim.heal();
        // A database that a failure has latched may refuse, and must not lie.
        let _ = self.check(false);
        self.sim = match input.flag() {
            true => self.sim.power_cut(input.u64()),
            false => self.sim.kill(),
        };
        (self.db, self.container) = open(&self.sim, &self.clock);
        self.check(true).unwrap();
        for (a, b, value) in std::mem::take(&mut self.pairs) {
            let has = |at| {
                self.container
                    .get(key(at))
                    .unwrap()
                    .is_some_and(|v| v == value)
            };
            assert_eq!(has(a), has(b), "half of a batch");
        }
        if input.flag() {
            self.db.compact().unwrap();
            self.check(true).unwrap();
        }
    }
}

fn key(at: usize) -> String {
    format!("key-{at:02}")
}

fn open(sim: &Sim, clock: &ManualClock) -> (Database, Container) {
    let db = Options::new()
        .durability(Durability::Sync)
        .memtable_bytes(4 << 10)
        .max_runs(2)
        .reclaim_within(Duration::from_secs(10))
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 2 << 10, 2 << 10)
        .open("/db")
        .unwrap();
    let container = db.container("c").unwrap();
    (db, container)
}
