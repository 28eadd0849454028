//! How long `Buffered` puts take while the device stands still: the figures of docs/measurements/pacing.md.
//!
//! `cargo run --release --example stall -- FOLDER FILE DEVICE [--rate N] [--seconds N] [--stacks]`
//!
//! One thread puts 16 + 100 bytes at `--rate` a second, due at fixed moments, or as fast as puts go. After 0.5 to 1.4 s
//! each time, `DEVICE 1` is written to FILE for half a second, and then `DEVICE 0`. FILE is
//! `blkio.throttle.write_bps_device` of the group that holds this process and DEVICE that of FOLDER, as `7:0`: then the
//! device takes one byte a second meanwhile. Or FILE is what examples/support/hold_writes.c reads, which holds the writes
//! to the log. With `--stacks` it shows where in the system the threads of this process stand while a put takes more
//! than 10 ms; that needs the rights to read `/proc/self/task/*/stack`.

#[path = "support/keys.rs"]
mod keys;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use ebbtide::{Container, Options, Result};
use keys::key;

/// When the put in progress began, in microseconds since the start.
static PUT_BEGAN: AtomicU64 = AtomicU64::new(u64::MAX);
static DONE: AtomicBool = AtomicBool::new(false);

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Stops the device again and again; returns from when to when, in microseconds since the start.
fn stall(start: Instant, file: &str, device: &str) -> Vec<(u64, u64)> {
    let mut stalls = vec![];
    let say = |what| fs::write(file, format!("{device} {what}")).expect("FILE is written");
    while !DONE.load(Ordering::Relaxed) {
        let uneven = 7 * stalls.len() as u64 % 10;
        thread::sleep(Duration::from_millis(500 + 100 * uneven));
        let from = micros(start.elapsed());
        say(1);
        thread::sleep(Duration::from_millis(500));
        say(0);
        stalls.push((from, micros(start.elapsed())));
    }
    stalls
}

/// The stacks of all threads while a put takes long, and how often each was seen.
fn stacks(start: Instant) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    while !DONE.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
        let began = PUT_BEGAN.load(Ordering::Relaxed);
        if micros(start.elapsed()).saturating_sub(began) < 10_000 {
            continue;
        }
        for task in fs::read_dir("/proc/self/task").expect("Linux").flatten() {
            let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stack = read("stack");
            let calls = stack.lines().filter_map(|at| at.split([' ', '+']).nth(1));
            let calls: Vec<&str> = calls.take(12).collect();
            let what = format!("{}: {}", read("comm").trim(), calls.join(" < "));
            *seen.entry(what).or_default() += 1;
        }
    }
    seen
}

/// Puts for so long; returns how many, and when those began that took more than a millisecond, and how long they took,
/// in microseconds.
fn put(
    c: &Container,
    start: Instant,
    seconds: u64,
    gap: Option<Duration>,
) -> Result<(u64, Vec<(u64, u64)>)> {
    let (mut late, mut count, mut due) = (vec![], 0, start);
    while start.elapsed() < Duration::from_secs(seconds) {
        while gap.is_some() && Instant::now() < due {
            thread::sleep(due.saturating_duration_since(Instant::now()) / 2);
        }
        due += gap.unwrap_or_default();
        let began = micros(start.elapsed());
        PUT_BEGAN.store(began, Ordering::Relaxed);
        c.put(key(count), [7; 100])?;
        PUT_BEGAN.store(u64::MAX, Ordering::Relaxed);
        count += 1;
        let took = micros(start.elapsed()) - began;
        if took > 1_000 {
            late.push((began, took));
        }
    }
    Ok((count, late))
}

/// The longest of these puts in each of some spans of time.
fn report(what: &str, late: &[(u64, u64)], spans: impl Iterator<Item = (u64, u64)>) {
    let longest = |(from, to)| {
        let there = late
            .iter()
            .filter(|(at, took)| *at < to && at + took > from);
        there
            .map(|(_, took)| *took as f64 / 1e3)
            .fold(0.0, f64::max)
    };
    let mut all: Vec<f64> = spans.map(longest).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    let over = all.iter().filter(|took| **took > 20.0).count();
    let most = &all[..all.len().min(8)];
    println!(
        "{what}: {over} of {} with a put over 20 ms; longest, ms: {most:.1?}",
        all.len()
    );
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, file, device, ..] = &arguments[..] else {
        panic!("FOLDER FILE DEVICE");
    };
    let number = |name: &str| {
        let at = arguments.iter().position(|given| given == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let gap = number("--rate").map(|rate| Duration::from_nanos(1_000_000_000 / rate));
    let seconds = number("--seconds").unwrap_or(30);
    let shows = arguments.contains(&"--stacks".into());
    let db = Options::new().open(folder)?;
    let (c, start) = (db.container("items")?, Instant::now());
    let (put, stalls, stacks) = thread::scope(|scope| {
        let stalls = scope.spawn(|| stall(start, file, device));
        let stacks = shows.then(|| scope.spawn(|| stacks(start)));
        let put = put(&c, start, seconds, gap);
        DONE.store(true, Ordering::Relaxed);
        let stacks = stacks.map(|stacks| stacks.join().expect("no panic"));
        (put, stalls.join().expect("no panic"), stacks)
    });
    let (count, late) = put?;
    let slowed = db.stats().stalls;
    println!("{} puts a second; {slowed} were slowed", count / seconds);
    let ends = stalls.iter().map(|(_, to)| *to);
    let begins = stalls.iter().map(|(from, _)| *from);
    report("between", &late, [0].into_iter().chain(ends).zip(begins));
    report("stalled", &late, stalls.iter().copied());
    let mut stacks: Vec<_> = stacks.unwrap_or_default().into_iter().collect();
    stacks.sort_by_key(|(_, times)| usize::MAX - times);
    for (stack, times) in stacks {
        println!("{times} times: {stack}");
    }
    db.close()
}
