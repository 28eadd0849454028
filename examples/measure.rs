//! The figures of DESIGN.md that are not benchmarks of one call.
//!
//! `cargo run --release --example measure -- basic|ttl|default|open [ITEMS]`
//!
//! * `basic`: fill, gets, scans and a compaction over items of 16 + 100 bytes, in random order
//! * `ttl`: items with ten seconds to live, written in one go and left alone; what is on disk, second by second
//! * `default`: how long a change of the default takes, and that it counts at once
//! * `open`: how long opening takes after a clean close, with 100 000 bytes an item

use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide::{Container, Database, DefaultTtl, Options, Result, Ttl};

/// SplitMix64: the n-th of a fixed sequence of well-mixed numbers.
fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(2 * n + 1).to_be_bytes());
    key[8..].copy_from_slice(&mixed(2 * n + 2).to_be_bytes());
    key
}

fn timed<T>(what: &str, count: u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    let time = start.elapsed();
    let each = time.as_nanos() as f64 / count as f64;
    println!(
        "{what}: {time:?}, {each:.0} ns each, {:.0} a second",
        1e9 / each
    );
    done
}

fn fill(container: &Container, items: u64, value: &[u8]) -> Result<()> {
    (0..items).try_for_each(|n| container.put(key(n), value))
}

fn basic(folder: &Path, items: u64) -> Result<()> {
    let db = Database::open(folder)?;
    let container = db.container("items")?;
    timed("fill", items, || fill(&container, items, &[7; 100]))?;
    for round in ["as filled", "after compact()"] {
        println!("{round}: {} runs", container.stats().runs);
        let at = |n: u64| key(mixed(n) % items);
        timed("get, present", items, || {
            (0..items).all(|n| container.contains(at(n)).unwrap_or(false))
        });
        timed("get, absent", items, || {
            (0..items).any(|n| container.contains(key(items + n)).unwrap_or(true))
        });
        timed("full scan", items, || container.iter().count());
        timed("full scan backwards", items, || {
            container.iter().rev().count()
        });
        let scans = items / 50;
        timed("scan of 100", scans, || {
            (0..scans)
                .map(|n| container.range(at(n)..).take(100).count())
                .sum::<usize>()
        });
        timed("compact", 1, || db.compact())?;
    }
    Ok(())
}

fn ttl(folder: &Path, items: u64) -> Result<()> {
    let db = Options::new()
        .reclaim_within(Duration::from_secs(5))
        .open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    timed("fill", items, || {
        (0..items).try_for_each(|n| {
            container.put_with_ttl(key(n), [7; 100], Ttl::After(Duration::from_secs(10)))
        })
    })?;
    for second in 1..=30 {
        std::thread::sleep(Duration::from_secs(1));
        let stats = db.stats();
        println!(
            "{second} s: {} live, {} expired bytes, {} bytes of tables, {} of log",
            stats.live_items, stats.expired_bytes, stats.table_bytes, stats.log_bytes
        );
    }
    Ok(())
}

fn default(folder: &Path, items: u64) -> Result<()> {
    let db = Database::open(folder)?;
    let container = db.container("items")?;
    timed("fill", items, || fill(&container, items, &[7; 100]))?;
    db.flush()?;
    for seconds in [3_600, 1] {
        let default = DefaultTtl::After(Duration::from_secs(seconds));
        timed("change of the default", 1, || {
            container.set_default_ttl(default)
        })?;
    }
    std::thread::sleep(Duration::from_secs(1));
    println!("items a moment later: {}", container.iter().count());
    Ok(())
}

fn open(folder: &Path, items: u64) -> Result<()> {
    let options = Options::new().max_runs(1_000);
    let db = options.open(folder)?;
    timed("fill", items, || {
        db.container("items")
            .and_then(|items_of| fill(&items_of, items, &vec![7; 100_000]))
    })?;
    timed("close", 1, || db.close())?;
    drop(db);
    for _ in 0..5 {
        let db = timed("open", 1, || options.open(folder))?;
        timed("first get", 1, || db.container("items")?.get(key(0)))?;
        println!(
            "{} bytes in {} tables",
            db.stats().table_bytes,
            db.stats().tables
        );
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let items = |usual: u64| arguments.get(1).map_or(Ok(usual), |text| text.parse());
    let folder = tempfile::tempdir()?;
    match arguments.first().map(String::as_str) {
        Some("basic") => basic(folder.path(), items(1_000_000)?)?,
        Some("ttl") => ttl(folder.path(), items(1_000_000)?)?,
        Some("default") => default(folder.path(), items(10_000_000)?)?,
        Some("open") => open(folder.path(), items(100_000)?)?,
        _ => return Err("say basic, ttl, default or open".into()),
    }
    Ok(())
}
