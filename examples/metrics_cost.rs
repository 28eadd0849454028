//! The cost for puts and gets of publishing figures to a recorder: the figures of docs/measurements/metrics.md.
//!
//! `cargo run --release --package ebbtide --example metrics_cost [--features metrics] -- ITEMS SECONDS`
//!
//! ITEMS of 100 bytes are put; then for so many seconds a put and a get of one of them follow each other. With the feature
//! `metrics` a recorder is installed that keeps the last value of each figure, and the threads publish every ten seconds.
//! Prints operations and the processor time of the whole process for each, so that other processes matter less.

use std::time::{Duration, Instant};

use ebbtide::{Database, Result};

#[cfg(feature = "metrics")]
mod recorder;

#[cfg(not(feature = "metrics"))]
mod recorder {
    pub fn install() {}
}

/// Processor time of the process, in ticks of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit(") ").next().unwrap_or_default();
    let fields = behind.split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn number(at: usize, default: u64) -> u64 {
    let given = std::env::args().nth(at);
    given.map_or(default, |text| text.parse().expect("a number"))
}

fn main() -> Result<()> {
    let (items, time) = (number(1, 1_000_000), Duration::from_secs(number(2, 30)));
    recorder::install();
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open(folder.path())?;
    let c = db.container("c")?;
    let key = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % items).to_be_bytes();
    (0..items).try_for_each(|n| c.put(n.to_be_bytes(), [7; 100]))?;
    db.flush()?;
    let (begun, before, mut n) = (Instant::now(), ticks(), 0);
    while begun.elapsed() < time {
        for _ in 0..1_000 {
            c.put(key(n), [8; 100])?;
            assert!(c.get(key(n + 1))?.is_some());
            n += 2;
        }
    }
    let (took, used) = (begun.elapsed(), (ticks() - before) as f64 / 100.0);
    println!(
        "{n} operations in {took:.1?}, {:.3} µs of processor time each",
        used * 1e6 / n as f64
    );
    #[cfg(feature = "metrics")]
    {
        let (begun, before) = (Instant::now(), ticks());
        (0..100).try_for_each(|_| db.publish_metrics())?;
        let used = (ticks() - before) as f64 / 10.0;
        println!(
            "publishing once takes {:.2?}, {used:.2} ms of it on a processor",
            begun.elapsed() / 100
        );
    }
    Ok(())
}
