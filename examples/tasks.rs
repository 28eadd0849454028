//! Ten thousand tasks beside a timer, by calls that never wait and by calls that do (docs/decisions/tasks.md).
//!
//! `cargo run --release --package ebbtide --features tokio --example tasks -- [--tasks N] [--seconds N] [--threads N] [--value BYTES]`
//!
//! Each load runs once by the calls of `ebbtide::tokio` and once by the calls that wait, made by the tasks themselves, on a
//! runtime of `--threads` threads (1). Every task loops over two gets and one put of a random key. Beside them a task waits
//! for a timer of 1 ms, again and again; how much later than that it runs is the *delay*. Loads:
//!
//! * `memory`: all that is read is in memtables
//! * `tables`: it is in tables that the system has in memory, by maps
//! * `cold`: it is in tables, by `pread`, with a cache of an eighth of them
//! * `synced`: puts under `Durability::Sync`, no gets
//!
//! At last one task alone gets what is in memory, in turns by the one call and by the other: what answering inline costs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebbtide::tokio::{AsyncContainer, AsyncDatabase};
use ebbtide::{Durability, Options, Reads, Result};
use tokio::runtime::{Builder, Runtime};

const KEYS: u64 = 200_000;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    durability: Durability,
    reads: Reads,
    in_tables: bool,
}

struct Shape {
    tasks: u64,
    seconds: u64,
    threads: usize,
    value: usize,
}

fn argument(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments
        .nth(1)
        .map_or(default, |value| value.parse().expect("a number"))
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// One round of a task: by which calls, and how many.
async fn round(
    items: &AsyncContainer,
    waits: bool,
    load: &Load,
    n: u64,
    value: &[u8],
) -> Result<u64> {
    let of = |n: u64| key(n % KEYS);
    let (first, second) = (of(n), of(n.wrapping_mul(31)));
    if load.durability == Durability::Sync {
        match waits {
            true => items.as_sync().put(first, value)?,
            false => items.put(first, value).await?,
        }
    } else if waits {
        let items = items.as_sync();
        items.get(first)?;
        items.get(second)?;
        items.put(first, value)?;
    } else {
        items.get(first).await?;
        items.get(second).await?;
        items.put(first, value).await?;
    }
    // Calls that wait would otherwise never let another task run, nor the one that ends it all.
    tokio::task::coop::consume_budget().await;
    Ok(if load.durability == Durability::Sync {
        1
    } else {
        3
    })
}

/// How late a timer of a millisecond runs, in microseconds, sorted.
async fn delays(stop: Arc<AtomicBool>) -> Vec<u64> {
    let mut delays = vec![];
    // Once at least: a runtime whose thread waits may not come to it before all is over.
    loop {
        let due = Instant::now() + Duration::from_millis(1);
        tokio::time::sleep_until(due.into()).await;
        delays.push(due.elapsed().as_micros() as u64);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    delays.sort_unstable();
    delays
}

async fn measure(db: AsyncDatabase, load: Load, waits: bool, shape: &Shape) -> Result<String> {
    let items = db.container("items").await?;
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let before = db.async_stats();
    let mut tasks = vec![];
    for task in 0..shape.tasks {
        let (items, stop, calls) = (items.clone(), stop.clone(), calls.clone());
        let value = vec![7; shape.value];
        tasks.push(tokio::spawn(async move {
            let mut n = task.wrapping_mul(0x2545_f491_4f6c_dd1d);
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let done = round(&items, waits, &load, n >> 20, &value).await?;
                calls.fetch_add(done, Ordering::Relaxed);
            }
            Ok::<(), ebbtide::Error>(())
        }));
    }
    let timer = tokio::spawn(delays(stop.clone()));
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(shape.seconds)).await;
    stop.store(true, Ordering::Relaxed);
    let took = start.elapsed();
    let delays = timer.await.expect("it does not panic");
    for task in tasks {
        task.await.expect("it does not panic")?;
    }
    let after = db.async_stats();
    let (inline, pooled) = (after.inline - before.inline, after.pooled - before.pooled);
    let share = 100.0 * inline as f64 / (inline + pooled).max(1) as f64;
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    let line = format!(
        "{:7} {:8} {:>9.0} calls/s   timer late by p50 {:>6} us, p99 {:>6} us, most {:>7} us   inline {:>6}, pool threads {}",
        load.name,
        if waits { "waiting" } else { "tasks" },
        calls.load(Ordering::Relaxed) as f64 / took.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0),
        if waits {
            "-".to_owned()
        } else {
            format!("{share:.1} %")
        },
        after.threads,
    );
    db.close().await?;
    Ok(line)
}

/// The cost of answering a get inline: pairs of turns of such gets and of the call that waits, and the median of their ratios.
async fn inline(db: AsyncDatabase, name: &str) -> Result<String> {
    const PAIRS: usize = 31;
    const GETS: u64 = 200_000;
    let items = db.container("items").await?;
    let (mut inline, mut plain, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..PAIRS {
        let start = Instant::now();
        for n in 0..GETS {
            items.get(key(n.wrapping_mul(31) % KEYS)).await?;
        }
        let by_task = start.elapsed();
        let start = Instant::now();
        for n in 0..GETS {
            items.as_sync().get(key(n.wrapping_mul(31) % KEYS))?;
        }
        let by_thread = start.elapsed();
        ratios.push(by_task.as_secs_f64() / by_thread.as_secs_f64());
        inline.push(by_task.as_nanos() as u64 / GETS);
        plain.push(by_thread.as_nanos() as u64 / GETS);
    }
    ratios.sort_by(f64::total_cmp);
    inline.sort_unstable();
    plain.sort_unstable();
    let middle = PAIRS / 2;
    let line = format!(
        "{name:7} a get of one task alone {} ns, of the call that waits {} ns; median of {PAIRS} ratios {:.3}, of all {:.3} to {:.3}",
        inline[middle],
        plain[middle],
        ratios[middle],
        ratios[0],
        ratios[PAIRS - 1],
    );
    db.close().await?;
    Ok(line)
}

fn opened(load: &Load, shape: &Shape, folder: &Path) -> Result<AsyncDatabase> {
    let options = Options::new()
        .durability(load.durability)
        .reads(load.reads)
        .cache_bytes(KEYS as usize * (shape.value + 16) / 8);
    let db = options.open(folder)?;
    let items = db.container("items")?;
    if load.durability == Durability::Buffered {
        for n in 0..KEYS {
            items.put(key(n), vec![7; shape.value])?;
        }
    }
    if load.in_tables {
        db.flush()?;
        db.compact()?;
        items.iter().try_for_each(|item| item.map(drop))?;
    }
    Ok(db.into())
}

fn run(load: Load, waits: bool, shape: &Shape) -> Result<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = opened(&load, shape, folder.path())?;
    runtime(shape.threads).block_on(measure(db, load, waits, shape))
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).enable_time().build();
    runtime.expect("a runtime")
}

fn main() -> Result<()> {
    let shape = Shape {
        tasks: argument("--tasks", 10_000),
        seconds: argument("--seconds", 5),
        threads: argument("--threads", 1) as usize,
        value: argument("--value", 100) as usize,
    };
    let load = |name, durability, reads, in_tables| Load {
        name,
        durability,
        reads,
        in_tables,
    };
    let (buffered, synced) = (Durability::Buffered, Durability::Sync);
    let loads = [
        load("memory", buffered, Reads::Map, false),
        load("tables", buffered, Reads::Map, true),
        load("cold", buffered, Reads::Pread, true),
        load("synced", synced, Reads::Map, false),
    ];
    for load in loads {
        for waits in [false, true] {
            println!("{}", run(load, waits, &shape)?);
        }
    }
    for load in &loads[..2] {
        let folder = tempfile::tempdir().expect("a folder");
        let db = opened(load, &shape, folder.path())?;
        println!("{}", runtime(1).block_on(inline(db, load.name))?);
    }
    Ok(())
}
