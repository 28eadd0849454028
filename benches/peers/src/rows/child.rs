//! One engine at one row, in a process of its own: open, warm up, work, look.
//!
//! Warming up is a scan of everything, in which every value is checked and every item counted; so caches are full, pages
//! mapped, and what the row before left is known to be right. What it left unwritten in the system's memory is written
//! before the work begins.

use std::io::Write;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::items::{Draws, Key, LEFT, Values, belongs, key, place, share_before};
use super::{Operation, Order, Outcome, Row, ScanMethod};
use crate::Result;
use crate::book::wall_ms;
use crate::engines::{Config, Engine, Life, See, SeeMany, Transfer};
use crate::latency::{Tail, histogram};
use crate::machine::{self, Cpu};
use crate::summary::Answers;

/// How long every item lives: longer than any run.
const LIFE_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// The time limit of a row with a fixed number of operations, in times the seconds of the others.
const PATIENCE: f64 = 10.0;
/// Items that are got by one call.
const MANY: usize = 16;
/// Overlapping runs that are scanned.
const RUNS: u64 = 8;
/// The least key.
const FIRST: [u8; 1] = [0];

/// Does it.
pub fn run(order: &Order) -> Result<Outcome> {
    let begin = Instant::now();
    let mut engine = open(order)?;
    let mut open_seconds = begin.elapsed().as_secs_f64();
    let mut done = Done::default();
    if order.row == Row::Reopen {
        let mut worker = Worker::new(order, &*engine, 0);
        let begin = Instant::now();
        worker.get(LEFT, true, &mut done.answers)?;
        open_seconds += begin.elapsed().as_secs_f64();
    }
    prepare(order, &*engine, &mut done.answers)?;
    let (cpu, written) = (Cpu::now()?, machine::written_bytes()?);
    match order.row {
        Row::Reopen => (done.operations, done.seconds) = (1, open_seconds),
        Row::Compact => {
            let begin = Instant::now();
            engine.quiesce()?;
            (done.operations, done.seconds) = (1, begin.elapsed().as_secs_f64());
        }
        _ => work(order, &*engine, &mut done)?,
    }
    let outcome = Outcome {
        order: order.clone(),
        operations: done.operations,
        seconds: done.seconds,
        latency: Tail::of(&done.latencies),
        answers: done.answers,
        open_seconds,
        written_bytes: machine::written_bytes()? - written,
        other_cores: Cpu::now()?.since(&cpu).other_cores,
        disk_bytes: machine::allocated_bytes(&order.folder)?,
        anonymous_bytes: machine::anonymous_bytes()?,
        resident_bytes: machine::most_resident_bytes()?,
        own: engine.own(),
    };
    engine.close()?;
    Ok(outcome)
}

/// Puts items that will be in the log, says so on standard output, and waits to be killed.
pub fn leave(order: &Order) -> Result<()> {
    let engine = open(order)?;
    let mut worker = Worker::new(order, &*engine, 0);
    for n in 0..left(order) {
        worker.put(LEFT + n)?;
    }
    engine.persist()?;
    let mut out = std::io::stdout();
    writeln!(out, "left")?;
    out.flush()?;
    loop {
        thread::park();
    }
}

/// How many items the log holds at the kill: a quarter of all, or half of a memtable if that is less.
fn left(order: &Order) -> u64 {
    let scale = order.scale;
    let item_bytes = scale.key_bytes + scale.value_bytes + 24;
    (scale.items / 4).min(scale.memtable_bytes / 2 / item_bytes)
}

fn open(order: &Order) -> Result<Box<dyn Engine>> {
    let scale = order.scale;
    // Half as much again for pages that are half full, and for what is put beside the items.
    let data_bytes = 3 * scale.items * (scale.key_bytes + scale.value_bytes + 24) / 2;
    let config = Config {
        memtable_bytes: scale.memtable_bytes,
        cache_bytes: scale.cache_bytes.unwrap_or(4 * data_bytes),
        in_memory: scale.cache_bytes.is_none(),
        reclaim_within: 3_600,
        longest_ms: Some(LIFE_MS),
        sync: order.row == Row::Synced,
        lz4: scale.lz4,
        keep_runs: order.row.keeps_runs(),
        transactions: order.row == Row::Transact,
        room_bytes: 16 * data_bytes + (4 << 30),
        ..Config::default()
    };
    order.engine.open(&order.folder, &config)
}

/// Brings the database into the state that the row is about, and warms it up.
fn prepare(order: &Order, engine: &dyn Engine, answers: &mut Answers) -> Result<()> {
    let (items, left) = (order.scale.items, left(order));
    let mut worker = Worker::new(order, engine, 0);
    match order.row {
        Row::Fill => {}
        Row::Reopen => {
            for n in 0..left {
                worker.get(LEFT + n, true, answers)?;
            }
            worker.scan_all(items + left, answers)?;
        }
        _ => {
            if order.row.keeps_runs() && !order.engine.is_tree() && !worker.has(0)? {
                for run in 0..RUNS {
                    for slot in items * run / RUNS..items * (run + 1) / RUNS {
                        worker.put(slot)?;
                    }
                    engine.flush()?;
                }
            }
            worker.scan_all(items, answers)?;
        }
    }
    rustix::fs::sync();
    Ok(())
}

/// The work done, by one thread or by all.
struct Done {
    operations: u64,
    seconds: f64,
    latencies: Histogram<u64>,
    answers: Answers,
}

impl Default for Done {
    fn default() -> Self {
        Done {
            operations: 0,
            seconds: 0.0,
            latencies: histogram(),
            answers: Answers::default(),
        }
    }
}

/// All threads at once.
fn work(order: &Order, engine: &dyn Engine, done: &mut Done) -> Result<()> {
    let threads = u64::from(order.threads);
    let gate = &Barrier::new(threads as usize);
    let all = thread::scope(|scope| {
        let worker = |thread| {
            scope.spawn(move || {
                let mut worker = Worker::new(order, engine, thread);
                gate.wait();
                worker.work()
            })
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|done| done.expect("no worker panics"))
            .collect::<Result<Vec<Done>>>()
    })?;
    for one in all {
        done.operations += one.operations;
        done.seconds = done.seconds.max(one.seconds);
        done.latencies.add(&one.latencies)?;
        done.answers.add(&one.answers);
    }
    Ok(())
}

struct Worker<'a> {
    order: &'a Order,
    engine: &'a dyn Engine,
    draws: Draws,
    values: Values,
}

impl<'a> Worker<'a> {
    fn new(order: &'a Order, engine: &'a dyn Engine, thread: u64) -> Worker<'a> {
        Worker {
            order,
            engine,
            draws: Draws::new(order, thread),
            values: Values::new(&order.scale),
        }
    }

    fn work(&mut self) -> Result<Done> {
        let (order, seconds) = (self.order, self.order.scale.seconds);
        let share = order.scale.items / u64::from(order.threads);
        let (quota, seconds) = match order.row {
            Row::Fill => (share, f64::INFINITY),
            Row::Overwrite => (share, PATIENCE * seconds),
            _ => (u64::MAX, seconds),
        };
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let (mut done, timed_of) = (Done::default(), order.row.timed_of());
        let begin = Instant::now();
        for n in 0..quota {
            if !n.is_multiple_of(timed_of) {
                done.operations += self.operate(&mut done.answers)?;
                continue;
            }
            let before = begin.elapsed();
            done.operations += self.operate(&mut done.answers)?;
            let after = begin.elapsed();
            done.latencies
                .saturating_record((after - before).as_nanos() as u64);
            if after >= limit {
                break;
            }
        }
        done.seconds = begin.elapsed().as_secs_f64();
        Ok(done)
    }

    /// Whether an item is there.
    fn has(&self, slot: u64) -> Result<bool> {
        let mut is_there = false;
        let key = key(&self.order.scale, slot);
        self.engine
            .get(&key, self.now_ms(), &mut |_| is_there = true)?;
        Ok(is_there)
    }

    /// One operation; what it counts.
    fn operate(&mut self, answers: &mut Answers) -> Result<u64> {
        let (operation, slot, random) = self.draws.next();
        match operation {
            Operation::Get => {
                let there = self.order.row != Row::GetAbsent;
                self.get(slot, there, answers)?;
            }
            Operation::Put | Operation::Insert => self.put(slot)?,
            Operation::Modify => {
                self.get(slot, true, answers)?;
                self.put(slot)?;
            }
            Operation::GetMany => return self.get_many(slot, answers),
            Operation::Transact => self.transact(slot, answers)?,
            Operation::Scan => self.scan(slot, 100, answers)?,
            Operation::ScanSome => self.scan(slot, 1 + random % 100, answers)?,
            Operation::ScanAll => return self.scan_all(self.order.scale.items, answers),
        }
        Ok(1)
    }

    fn now_ms(&self) -> u64 {
        if self.order.engine.knows_time() {
            0
        } else {
            wall_ms()
        }
    }

    fn put(&mut self, slot: u64) -> Result<()> {
        let key = key(&self.order.scale, slot);
        let life = self.life();
        self.engine.put(&key, self.values.of(&key), Some(life))
    }

    fn life(&self) -> Life {
        Life {
            ttl_ms: LIFE_MS,
            expires_at_ms: self.now_ms() + LIFE_MS,
        }
    }

    /// Gets an item that should be there, or should not.
    fn get(&mut self, slot: u64, there: bool, answers: &mut Answers) -> Result<()> {
        let key = key(&self.order.scale, slot);
        let value_bytes = self.order.scale.value_bytes;
        let mut found = None;
        let see: &mut dyn FnMut(&[u8]) =
            &mut |value| found = Some(belongs(&key, value, value_bytes));
        self.engine.get(&key, self.now_ms(), see)?;
        match found {
            None if there => answers.missing += 1,
            Some(is_its_own) if !(there && is_its_own) => answers.wrong += 1,
            _ => answers.right += 1,
        }
        Ok(())
    }

    /// Gets several items by one call, the first of which is given; how many.
    fn get_many(&mut self, slot: u64, answers: &mut Answers) -> Result<u64> {
        let scale = &self.order.scale;
        let there = self.order.row != Row::GetManyAbsent;
        let keys: [Key; MANY] = std::array::from_fn(|n| match n {
            0 => key(scale, slot),
            _ => key(scale, self.draws.next().1),
        });
        let value_bytes = self.order.scale.value_bytes;
        let (mut right, mut wrong) = (0, 0);
        let see: &mut SeeMany<'_> = &mut |n, value| match belongs(&keys[n], value, value_bytes) {
            true if there => right += 1,
            _ => wrong += 1,
        };
        let lent = keys.each_ref().map(|key| &**key);
        self.engine.get_many(&lent, self.now_ms(), see)?;
        answers.wrong += wrong;
        match there {
            true => {
                (answers.right, answers.missing) = (
                    answers.right + right,
                    answers.missing + (MANY as u64 - right - wrong),
                )
            }
            false => answers.right += MANY as u64 - wrong,
        }
        Ok(MANY as u64)
    }

    /// Gets two items and puts two others, all of which are there, in a transaction.
    fn transact(&mut self, slot: u64, answers: &mut Answers) -> Result<()> {
        let scale = &self.order.scale;
        let keys = [0; 3].map(|_| key(scale, self.draws.next().1));
        let gets = [key(scale, slot), keys[0]];
        let value_bytes = self.order.scale.value_bytes;
        let values = [&keys[1], &keys[2]].map(|key| self.values.of(key).to_vec());
        let work = Transfer {
            gets: &[&gets[0], &gets[1]],
            puts: &[(&keys[1], &values[0]), (&keys[2], &values[1])],
            life: Some(self.life()),
        };
        let (mut right, mut wrong) = (0, 0);
        let see: &mut SeeMany<'_> = &mut |n, value| match belongs(&gets[n], value, value_bytes) {
            true => right += 1,
            false => wrong += 1,
        };
        self.engine.transact(&work, self.now_ms(), see)?;
        answers.right += right;
        answers.wrong += wrong;
        answers.missing += 2u64.saturating_sub(right + wrong);
        Ok(())
    }

    /// Scans from an item that is there.
    fn scan(&mut self, slot: u64, most: u64, answers: &mut Answers) -> Result<()> {
        let from = key(&self.order.scale, slot);
        let seen = self.checked_scan(&from, most, answers)?;
        // Fewer than asked for are right only where the keys end.
        let share_behind = 1.0 - share_before(&from);
        let expected = share_behind * self.order.scale.items as f64;
        answers.missing += u64::from(seen < most && expected > (2 * most + 50) as f64);
        Ok(())
    }

    /// Scans everything, at least so many items; how many there were.
    fn scan_all(&mut self, least: u64, answers: &mut Answers) -> Result<u64> {
        let seen = self.checked_scan(&FIRST, u64::MAX, answers)?;
        answers.missing += least.saturating_sub(seen);
        Ok(seen)
    }

    /// A scan that counts what it sees: each item in its order and with its own value.
    fn checked_scan(&self, from: &[u8], most: u64, answers: &mut Answers) -> Result<u64> {
        let scale = &self.order.scale;
        let least = place(scale, from).unwrap_or(0);
        let (mut seen, mut wrong, mut next) = (0, 0, least);
        let see: &mut See<'_> = &mut |key, value| {
            seen += 1;
            match place(scale, key) {
                Some(own) if own >= next && belongs(key, value, scale.value_bytes) => {
                    next = own + 1;
                }
                _ => wrong += 1,
            }
        };
        match self.order.row.way() {
            ScanMethod::Given => self.engine.scan(from, most, self.now_ms(), see)?,
            ScanMethod::Lent => self.engine.lend(from, most, self.now_ms(), see)?,
            ScanMethod::Chunks => self.engine.lend_chunks(from, most, self.now_ms(), see)?,
        }
        answers.wrong += wrong;
        answers.right += seen - wrong;
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::{Kind, OwnFigures};
    use crate::rows::Scale;

    /// Answers what it is told to.
    struct Liar {
        value: Option<Vec<u8>>,
        items: Vec<(Vec<u8>, Vec<u8>)>,
    }

    impl Engine for Liar {
        fn transact(&self, _: &Transfer<'_>, _now_ms: u64, _: &mut SeeMany<'_>) -> Result<()> {
            Ok(())
        }

        fn put(&self, _key: &[u8], _value: &[u8], _life: Option<Life>) -> Result<()> {
            Ok(())
        }

        fn get(&self, _key: &[u8], _now_ms: u64, see: &mut dyn FnMut(&[u8])) -> Result<()> {
            self.value.iter().for_each(|value| see(value));
            Ok(())
        }

        fn scan(&self, _from: &[u8], most: u64, _now_ms: u64, see: &mut See<'_>) -> Result<()> {
            let items = self.items.iter().take(most as usize);
            items.for_each(|(key, value)| see(key, value));
            Ok(())
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }

        fn quiesce(&mut self) -> Result<()> {
            Ok(())
        }

        fn own(&self) -> OwnFigures {
            OwnFigures::default()
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn order() -> Order {
        Order {
            engine: Kind::Lmdb,
            row: Row::Get,
            threads: 1,
            round: 1,
            scale: Scale {
                items: 1_000,
                value_bytes: 100,
                lz4: false,
                seconds: 0.01,
                memtable_bytes: 1 << 20,
                cache_bytes: None,
                seed: 1,
                key_bytes: 16,
            },
            folder: Default::default(),
        }
    }

    /// Wrong and missing answers.
    fn faults(liar: &Liar, ask: impl FnOnce(&mut Worker<'_>, &mut Answers)) -> [u64; 2] {
        let (order, mut answers) = (order(), Answers::default());
        ask(&mut Worker::new(&order, liar, 0), &mut answers);
        [answers.wrong, answers.missing]
    }

    #[test]
    fn wrong_answers_to_gets_are_faults() {
        let value = |slot| {
            Values::new(&order().scale)
                .of(&key(&order().scale, slot))
                .to_vec()
        };
        let liar = |value| Liar {
            value,
            items: vec![],
        };
        for (found, there, wanted) in [
            (Some(value(7)), true, [0, 0]),
            (None, true, [0, 1]),
            (Some(value(8)), true, [1, 0]),
            (Some(value(7)[1..].to_vec()), true, [1, 0]),
            (None, false, [0, 0]),
            (Some(value(7)), false, [1, 0]),
        ] {
            let got = faults(&liar(found), |worker, answers| {
                worker.get(7, there, answers).unwrap();
            });
            assert_eq!(got, wanted);
        }
    }

    #[test]
    fn wrong_answers_to_scans_are_faults() {
        let mut items: Vec<_> = (0..1_000).map(|slot| key(&order().scale, slot)).collect();
        items.sort_unstable();
        let mut values = Values::new(&order().scale);
        let item = |key: Key| (key.to_vec(), values.of(&key).to_vec());
        let items: Vec<_> = items.into_iter().map(item).collect();
        let scan_all = |items: Vec<_>| {
            let liar = Liar { value: None, items };
            faults(&liar, |worker, answers| {
                worker.scan_all(1_000, answers).unwrap();
            })
        };
        assert_eq!(scan_all(items.clone()), [0, 0]);
        assert_eq!(scan_all(items[1..].to_vec()), [0, 1]);
        let mut swapped = items.clone();
        swapped.swap(3, 4);
        assert_eq!(scan_all(swapped), [1, 0]);
        let mut exchanged = items.clone();
        exchanged[3].1 = items[4].1.clone();
        assert_eq!(scan_all(exchanged), [1, 0]);
        let mut twice = items.clone();
        twice[4] = items[3].clone();
        assert_eq!(scan_all(twice), [1, 0]);
    }

    #[test]
    fn a_scan_that_ends_early_is_a_fault() {
        let first = (0..1_000)
            .min_by_key(|slot| key(&order().scale, *slot))
            .unwrap();
        let last = (0..1_000)
            .max_by_key(|slot| key(&order().scale, *slot))
            .unwrap();
        for (from, wanted) in [(first, [0, 1]), (last, [0, 0])] {
            let key = key(&order().scale, from);
            let value = Values::new(&order().scale).of(&key).to_vec();
            let liar = Liar {
                value: None,
                items: vec![(key.to_vec(), value)],
            };
            let got = faults(&liar, |worker, answers| {
                worker.scan(from, 100, answers).unwrap();
            });
            assert_eq!(got, wanted);
        }
    }
}
