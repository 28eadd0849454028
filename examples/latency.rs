//! How long puts take while background work runs: the figures of docs/measurements/pacing.md.
//!
//! `cargo run --release --example latency -- LOAD [--sync] [--rate N] [--threads N] [--seconds N] [--memtable BYTES]`
//!
//! * `quiet`: nothing but the puts and the flushes they cause
//! * `merge`: beside them 1.5 GiB in some 50 runs are merged to 16
//! * `reclaim`: beside them 1.5 GiB are rewritten, half of which has expired
//! * `storm`: beside them 1.3 GiB expire in the same second, five seconds in, as whole files of 32 MiB
//! * `fill`: puts as fast as they go, memtables of `--memtable` bytes
//!
//! Puts of 16 + 100 bytes. All but `fill` are an open loop: put n is due at a fixed moment, whenever the one before it
//! came back, and its latency counts from there. Without `--rate` the loop runs at half of what a closed loop of three
//! seconds did before.

#[path = "support/keys.rs"]
mod keys;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ebbtide::{Container, Database, DefaultTtl, Durability, Options, Result, Ttl};
use keys::key;

struct Load {
    kind: String,
    options: Options,
    rate: Option<u64>,
    threads: u64,
    seconds: u64,
}

/// Latencies in nanoseconds of puts by several threads, each due `gap` after the one before; without a gap as fast as
/// they go.
fn put_loop(
    container: &Container,
    threads: u64,
    seconds: u64,
    gap: Option<Duration>,
) -> Result<Vec<u64>> {
    static NEXT_KEY: AtomicU64 = AtomicU64::new(0);
    let one = |offset: Duration| -> Result<Vec<u64>> {
        let start = Instant::now() + offset;
        let mut latencies = vec![];
        let mut due = start;
        while due.duration_since(start) < Duration::from_secs(seconds) {
            if gap.is_none() {
                due = Instant::now();
            } else {
                let ahead = due.saturating_duration_since(Instant::now());
                if ahead > Duration::from_micros(200) {
                    std::thread::sleep(ahead - Duration::from_micros(100));
                }
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
            }
            container.put(key(NEXT_KEY.fetch_add(1, Ordering::Relaxed)), [7; 100])?;
            latencies.push(due.elapsed().as_nanos() as u64);
            due += gap.unwrap_or_default();
        }
        Ok(latencies)
    };
    std::thread::scope(|scope| {
        let stagger = gap.unwrap_or_default() / threads as u32;
        let writers: Vec<_> = (0..threads)
            .map(|n| scope.spawn(move || one(stagger * n as u32)))
            .collect();
        let mut all = vec![];
        for writer in writers {
            all.extend(writer.join().expect("a writer")?);
        }
        Ok(all)
    })
}

fn report(what: &str, mut latencies: Vec<u64>, seconds: u64) {
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = ((latencies.len() as f64 * share) as usize).min(latencies.len() - 1);
        latencies[index] as f64 / 1e3
    };
    println!(
        "{what}: {} puts a second, p50 {:.1} us, p99 {:.1}, p99.9 {:.0}, p99.99 {:.0}, max {:.0}",
        latencies.len() as u64 / seconds,
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0)
    );
}

/// Many runs over the same keys, which nothing has merged yet.
fn prepare_runs(db: &Database) -> Result<()> {
    let container = db.container("ballast")?;
    for n in 0..1_500_000 {
        container.put(key(n), [9; 1_000])?;
    }
    db.flush()
}

/// Items of which `share` of ten expire at a moment that is returned, the others in an hour.
fn prepare_expiring(db: &Database, share: u64) -> Result<Instant> {
    let container = db.container("ballast")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    let until = Instant::now() + Duration::from_secs(25);
    for n in 0..1_300_000 {
        let left = if n % 10 < share {
            until.saturating_duration_since(Instant::now())
        } else {
            Duration::from_secs(3_600)
        };
        container.put_with_ttl(key(n), [9; 1_000], Ttl::After(left))?;
    }
    db.flush()?;
    Ok(until)
}

/// Opens a database in which the background has something to do that begins about now, or in five seconds.
fn prepare(folder: &Path, load: &Load) -> Result<Database> {
    let reopened = load.options.clone().reclaim_within(Duration::from_secs(1));
    let reopened = reopened.reclaim_strict(true);
    let idle = reopened.clone().max_runs(1_000).memtable_bytes(32 << 20);
    let idle = idle.durability(Durability::Buffered);
    let wait_until = |moment: Instant, lead: u64| {
        let left = moment.saturating_duration_since(Instant::now());
        std::thread::sleep(left.saturating_sub(Duration::from_secs(lead)));
    };
    match load.kind.as_str() {
        "merge" => {
            let db = idle.open(folder)?;
            prepare_runs(&db)?;
            db.close()?;
        }
        "reclaim" | "storm" => {
            let db = idle.open(folder)?;
            let (share, lead) = if load.kind == "storm" {
                (10, 5)
            } else {
                (5, 2)
            };
            let until = prepare_expiring(&db, share)?;
            db.close()?;
            wait_until(until, lead);
            return reopened.max_runs(1_000).open(folder);
        }
        _ => {}
    }
    reopened.open(folder)
}

fn run(folder: &Path, load: &Load) -> Result<()> {
    let rate = match load.rate {
        _ if load.kind == "fill" => None,
        None => {
            let db = load.options.open(folder)?;
            let puts = put_loop(&db.container("hot")?, load.threads, 3, None)?;
            db.close()?;
            Some(puts.len() as u64 / 3 / 2)
        }
        rate => rate,
    };
    let db = prepare(folder, load)?;
    let hot = db.container("hot")?;
    let before = db.stats();
    let gap = rate.map(|rate| Duration::from_nanos(1_000_000_000 * load.threads / rate.max(1)));
    let latencies = put_loop(&hot, load.threads, load.seconds, gap)?;
    let after = db.stats();
    report(&load.kind, latencies, load.seconds);
    println!(
        "{} MiB merged, {} MiB dropped, {} writers were slowed, {} runs",
        (after.bytes_merged - before.bytes_merged) >> 20,
        (after.bytes_dropped - before.bytes_dropped) >> 20,
        after.stalls - before.stalls,
        after.runs
    );
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut load = Load {
        kind: String::new(),
        options: Options::new(),
        rate: None,
        threads: 1,
        seconds: 15,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> std::result::Result<u64, Box<dyn std::error::Error>> {
            Ok(arguments.next().ok_or("a number is missing")?.parse()?)
        };
        match argument.as_str() {
            "quiet" | "merge" | "reclaim" | "storm" | "fill" => load.kind = argument,
            "--sync" => load.options = load.options.durability(Durability::Sync),
            "--rate" => load.rate = Some(number()?),
            "--threads" => load.threads = number()?.max(1),
            "--seconds" => load.seconds = number()?.max(1),
            "--memtable" => load.options = load.options.memtable_bytes(number()? as usize),
            _ => return Err(format!("{argument:?} is not understood").into()),
        }
    }
    if load.kind.is_empty() {
        return Err("say quiet, merge, reclaim, storm or fill".into());
    }
    let folder = tempfile::tempdir()?;
    run(folder.path(), &load)?;
    Ok(())
}
