//! One engine under one load, in a process of its own: fill, load, silence; a sample every half second, a summary at the
//! end.
//!
//! ```text
//!   driver   put put put put get ... ........ put put ...   a burst every 250 µs, one get for four puts
//!   sampler  ............................. sample .....     every 500 ms, at the lowest priority
//! ```
//!
//! **Open loop.** All operations of a burst are due at its beginning, whether or not the engine is done with the last one,
//! and every latency is measured from then. Bursts let the driver sleep between them: on a small machine, spinning until
//! the next operation would take from the engine a core that it needs for its background work. How late the sleeper
//! itself wakes is in the summary, as `wake`. One thread does it all: of two, one stood behind the other for a third of the
//! time that either had to wait, on a machine with two processors.
//!
//! **Closed loop.** One thread puts and gets as fast as it is answered.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::book::Book;
use crate::engines::{Config, Engine, Life};
use crate::latency::{LatencyInbox, Tail, Total};
use crate::loads::{KEY_BYTES, Load, PUT_BYTES, PUTS_PER_GET, Put, VALUE_BYTES, mix};
use crate::machine::{self, Cpu, Usage};
use crate::summary::{Answers, Driven, Order, Sample, Summary, Watched};

const BURST: Duration = Duration::from_micros(250);
const SAMPLE: Duration = Duration::from_millis(500);

/// Does it, writes samples and summary, and returns the latter.
pub fn run(order: &Order) -> Result<Summary> {
    let load = Load::new(order.load);
    let config = Config {
        memtable_bytes: order.load.memtable_bytes,
        cache_bytes: order.cache_bytes,
        in_memory: true,
        reclaim_within: order.reclaim_within,
        longest_ms: load.longest_ms(),
        keys_are_fresh: load.keys_are_fresh(),
        counted: true,
        ..Config::default()
    };
    // The fill and late bursts take time too: live bytes are dated for half an hour beyond the plan.
    let span = load.seconds + load.silence + 1_800;
    let book = Book::new(&load, span, order.engine.tolerance_ms());
    let engine = order.engine.open(&order.folder, &config)?;
    let stage = Stage::new(&*engine, &load, book);
    let filled = stage.fill()?;
    let (driven, watched) = stage.play(order, filled)?;
    let summary = Summary::of(order, &load, filled, &driven, &watched)?;
    serde_json::to_writer_pretty(File::create(&order.summary)?, &summary)?;
    engine.close()?;
    Ok(summary)
}

/// Everything that both threads share.
struct Stage<'a> {
    engine: &'a dyn Engine,
    load: &'a Load,
    book: Book,
    /// Random bytes that values are cut from.
    pool: Vec<u8>,
    puts: LatencyInbox,
    gets: LatencyInbox,
    wakes: LatencyInbox,
    puts_done: AtomicU64,
    over: AtomicBool,
}

impl<'a> Stage<'a> {
    fn new(engine: &'a dyn Engine, load: &'a Load, book: Book) -> Stage<'a> {
        Stage {
            engine,
            load,
            book,
            pool: (0..8 << 10).flat_map(|n| mix(n).to_be_bytes()).collect(),
            puts: LatencyInbox::default(),
            gets: LatencyInbox::default(),
            wakes: LatencyInbox::default(),
            puts_done: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Puts what a load that ran for ever would have left; how many.
    fn fill(&self) -> Result<u64> {
        let mut filled = 0;
        for put in self.load.fill() {
            self.put(put)?;
            filled += 1;
        }
        Ok(filled)
    }

    /// Load and silence, with samples all the while.
    fn play(&self, order: &Order, filled: u64) -> Result<(Driven, Watched)> {
        let begin = Instant::now();
        let cpu = Cpu::now()?;
        thread::scope(|scope| {
            let sampler = scope.spawn(move || self.watch(order, begin));
            let mut driven = match order.closed {
                true => self.drive_closed(begin, filled),
                false => self.drive_open(begin, filled),
            };
            if let Ok(driven) = &mut driven {
                driven.usage = Some(Cpu::now()?.since(&cpu));
                thread::sleep(Duration::from_secs(self.load.silence));
            }
            self.over.store(true, Relaxed);
            let watched = sampler.join().expect("the sampler does not panic");
            Ok((driven?, watched?))
        })
    }

    fn put(&self, put: Put) -> Result<()> {
        let key: [u8; KEY_BYTES] = self.load.key(put.slot);
        let mut value = [0; VALUE_BYTES];
        let from = mix(put.slot) as usize % (self.pool.len() - VALUE_BYTES);
        value.copy_from_slice(&self.pool[from..from + VALUE_BYTES]);
        value[..8].copy_from_slice(&self.load.tag(put.slot).to_be_bytes());
        let begun = self.book.begin(put);
        let life = put.ttl_ms.map(|ttl_ms| Life {
            ttl_ms,
            expires_at_ms: begun.before_ms + ttl_ms,
        });
        self.engine.put(&key, &value, life)?;
        self.book.end(put, &begun);
        Ok(())
    }

    fn get(&self, hash: u64, answers: &mut Answers) -> Result<()> {
        let Some(slot) = self.book.pick(hash) else {
            return Ok(());
        };
        let key = self.load.key(slot);
        let look = self.book.look(slot);
        let mut found = None;
        self.engine
            .get(&key, look.before_ms, &mut |v| found = Some(tag_of(v)))?;
        let tag = self.load.tag(slot);
        answers.count(self.book.judge(&look, found.transpose()?, tag));
        Ok(())
    }

    /// Puts at the load's rate and a get for every few of them, in bursts, by one thread: two would wait for each
    /// other. Each counts from when its burst was due. A thread that is behind goes on for half as long as the load,
    /// and no longer.
    fn drive_open(&self, begin: Instant, filled: u64) -> Result<Driven> {
        // Where the system refuses, `wake` in the summary shows what it costs.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let (rate, seconds) = (self.load.choice.rate, self.load.seconds);
        let all = rate * seconds;
        let give_up = Duration::from_secs(seconds) * 3 / 2;
        let mut driven = Driven::default();
        let (mut puts, mut gets, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
        for burst in 0.. {
            let due = BURST * burst;
            if driven.puts == all || begin.elapsed() > give_up {
                break;
            }
            if let Some(rest) = due.checked_sub(begin.elapsed()) {
                thread::sleep(rest);
                wakes.push(begin.elapsed().saturating_sub(due));
            }
            let upto = (u128::from(rate) * (due + BURST).as_nanos() / 1_000_000_000) as u64;
            while driven.puts < upto.min(all) {
                self.put(self.load.put(driven.puts, filled))?;
                self.puts_done.fetch_add(1, Relaxed);
                puts.push(begin.elapsed() - due);
                driven.puts += 1;
                if driven.puts.is_multiple_of(PUTS_PER_GET) {
                    let hash = mix(driven.gets ^ self.load.choice.seed);
                    self.get(hash, &mut driven.answers)?;
                    gets.push(begin.elapsed() - due);
                    driven.gets += 1;
                }
            }
            self.puts.leave(&mut puts);
            self.gets.leave(&mut gets);
            self.wakes.leave(&mut wakes);
        }
        driven.unserved = (all - driven.puts) + (all / PUTS_PER_GET - driven.gets);
        driven.seconds = begin.elapsed().as_secs_f64();
        Ok(driven)
    }

    fn drive_closed(&self, begin: Instant, filled: u64) -> Result<Driven> {
        let mut driven = Driven::default();
        let until = Duration::from_secs(self.load.seconds);
        let (mut puts, mut gets) = (Vec::new(), Vec::new());
        let mut last = begin.elapsed();
        while last < until {
            for _ in 0..64 {
                for _ in 0..PUTS_PER_GET {
                    self.put(self.load.put(driven.puts, filled))?;
                    driven.puts += 1;
                    let now = begin.elapsed();
                    puts.push(now - std::mem::replace(&mut last, now));
                }
                self.get(
                    mix(driven.gets ^ self.load.choice.seed),
                    &mut driven.answers,
                )?;
                driven.gets += 1;
                let now = begin.elapsed();
                gets.push(now - std::mem::replace(&mut last, now));
            }
            self.puts_done.store(driven.puts, Relaxed);
            self.puts.leave(&mut puts);
            self.gets.leave(&mut gets);
        }
        driven.seconds = last.as_secs_f64();
        Ok(driven)
    }

    fn watch(&self, order: &Order, begin: Instant) -> Result<Watched> {
        // Neither engine nor driver is to wait for it.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
        let mut lines = BufWriter::new(File::create(&order.samples)?);
        let (mut put, mut get) = (Total::default(), Total::default());
        let mut samples = Vec::new();
        let (mut due, mut cpu) = (Duration::ZERO, Cpu::now()?);
        while !self.over.load(Relaxed) {
            thread::sleep(due.saturating_sub(begin.elapsed()));
            due += SAMPLE;
            let (puts, gets) = (self.puts.take(), self.gets.take());
            let now = Cpu::now()?;
            let usage = now.since(&std::mem::replace(&mut cpu, now));
            let tails = (Tail::of(&puts), Tail::of(&gets));
            let sample = self.sample(&order.folder, begin, usage, tails)?;
            if sample.seconds > self.load.warmup as f64 {
                put.add(&puts);
                get.add(&gets);
            }
            serde_json::to_writer(&mut lines, &sample)?;
            lines.write_all(b"\n")?;
            samples.push(sample);
        }
        lines.flush()?;
        Ok(Watched {
            samples,
            put: put.tail(),
            get: get.tail(),
            wake: Tail::of(&self.wakes.take()),
        })
    }

    fn sample(
        &self,
        folder: &Path,
        begin: Instant,
        usage: Usage,
        (put, get): (Tail, Tail),
    ) -> Result<Sample> {
        let disk_bytes = machine::allocated_bytes(folder)?;
        let live_bytes = self.book.live_bytes();
        Ok(Sample {
            seconds: begin.elapsed().as_secs_f64(),
            disk_bytes,
            live_bytes,
            garbage: 1.0 - live_bytes as f64 / disk_bytes.max(1) as f64,
            written_bytes: machine::written_bytes()?,
            anonymous_bytes: machine::anonymous_bytes()?,
            own: self.engine.own(),
            put_bytes: self.puts_done.load(Relaxed) * PUT_BYTES,
            other_cores: usage.other_cores,
            put,
            get,
        })
    }
}

/// The first eight bytes of a value as it was put.
fn tag_of(value: &[u8]) -> Result<u64> {
    let tag = value.first_chunk().filter(|_| value.len() == VALUE_BYTES);
    let tag = tag.ok_or_else(|| format!("a value has {} bytes", value.len()))?;
    Ok(u64::from_be_bytes(*tag))
}
