//! The cost of `Database::changes` for a busy writer, and of a poll that finds nothing new: the figures of
//! docs/measurements/changes.md.
//!
//! `cargo run --release --example change_polls -- [SECONDS [POLL_MILLIS [ITEMS]]]`
//!
//! One thread overwrites ITEMS (default 1 000 000) items of 100 bytes, in no order of keys. In turns of SECONDS (default 3)
//! it does so alone, and beside a reader that takes in a pass each POLL_MILLIS (default 100). What is compared is the
//! rate of the turns of either kind, in one run. Then the writer rests, and the reader polls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebbtide::{Changes, Database, Result, Version};

const TURNS: u64 = 6;

fn number(at: usize, default: u64) -> u64 {
    let given = std::env::args().nth(at);
    given.map_or(default, |text| text.parse().expect("a number"))
}

fn percentile(sorted: &[Duration], of: usize) -> Duration {
    sorted[(sorted.len() - 1) * of / 100]
}

/// Takes in a pass; how many changes it told.
fn pass(changes: &mut Changes) -> Result<u64> {
    let mut told = 0;
    for change in changes {
        change?;
        told += 1;
    }
    Ok(told)
}

/// Writes until told to stop.
fn write(db: &Database, items: u64, written: &AtomicU64, is_over: &AtomicBool) -> Result<()> {
    let (c, mut n) = (db.container("c")?, 0u64);
    while !is_over.load(Ordering::Relaxed) {
        let key = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % items).to_be_bytes();
        c.put(key, [7; 100])?;
        n += 1;
        written.store(n, Ordering::Relaxed);
    }
    Ok(())
}

/// One turn with a reader: the time of each pass, and how many changes all told.
fn read(changes: &mut Changes, turn: Duration, poll: Duration) -> Result<(Vec<Duration>, u64)> {
    let (begun, mut passes, mut told) = (Instant::now(), vec![], 0);
    while begun.elapsed() < turn {
        let asked = Instant::now();
        told += pass(changes)?;
        passes.push(asked.elapsed());
        std::thread::sleep(poll.min(turn.saturating_sub(begun.elapsed())));
    }
    Ok((passes, told))
}

fn main() -> Result<()> {
    let turn = Duration::from_secs(number(1, 3));
    let poll = Duration::from_millis(number(2, 100));
    let items = number(3, 1_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open(folder.path())?;
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut changes = db.changes(Version::start());
    let (mut alone, mut beside, mut passes, mut told) = (vec![], vec![], vec![], 0);
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| write(&db, items, &written, &is_over));
        std::thread::sleep(turn);
        for n in 0..TURNS {
            let (begun, before) = (Instant::now(), written.load(Ordering::Relaxed));
            let rates = if n % 2 == 0 {
                // It holds nothing while the writer is alone.
                changes = db.changes(db.last_version());
                std::thread::sleep(turn);
                &mut alone
            } else {
                let (more, many) = read(&mut changes, turn, poll)?;
                passes.extend(more);
                told += many;
                &mut beside
            };
            let wrote = written.load(Ordering::Relaxed) - before;
            rates.push(wrote as f64 / begun.elapsed().as_secs_f64());
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("it does not panic")
    })?;
    pass(&mut changes)?;
    let mut empty: Vec<Duration> = (0..10_000)
        .map(|_| {
            let asked = Instant::now();
            let told = pass(&mut changes);
            assert_eq!(told.ok(), Some(0));
            asked.elapsed()
        })
        .collect();
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    let (alone, beside) = (mean(&alone), mean(&beside));
    passes.sort();
    empty.sort();
    println!(
        "{items} items, a pass each {poll:?}: {alone:.0} writes/s alone, {beside:.0} beside the reader ({:.2}); \
         {} passes of {} changes, p50 {:?} p99 {:?}; an empty one p50 {:?} p99 {:?}",
        beside / alone,
        passes.len(),
        told / passes.len() as u64,
        percentile(&passes, 50),
        percentile(&passes, 99),
        percentile(&empty, 50),
        percentile(&empty, 99),
    );
    Ok(())
}
