//! The figures of docs/measurements/figures.md that are not benchmarks of one call.
//!
//! `cargo run --release --example measure -- basic|pread|ttl|default|open|dead|stats|ranges|mixed|retention|containers|memory [ITEMS]`
//!
//! * `basic`: fill, gets, scans and a compaction over items of 16 + 100 bytes, in random order; `pread` is the same with
//!   `Reads::Pread`
//! * `ttl`: items with ten seconds to live, written in one go and left alone; what is on disk, second by second
//! * `default`: how long a change of the default takes, and that it counts at once
//! * `open`: how long opening takes after a clean close, with 100 000 bytes an item
//! * `dead`: scans over a range in which all items but ten are dead and none is reclaimed: expired, deleted one by one, or
//!   deleted by range; in one run, in many, right after open, and (a tenth of the items) in memory
//! * `stats`: how long `stats()` takes, with 200 tables and a memtable of 64 MiB
//! * `ranges`: what range deletes cost while they are in memory: gets, iterators, conditional writes and `len_estimate()`
//!   beside none, 1 000 and 100 000 of them; their flush, over a run that they cut into pieces; what the log takes for
//!   them; and a queue, whose front is deleted by range as items come to its end
//! * `mixed`: items of 1 000 bytes, half of which never expire and half live one or two minutes, 10 GB as a rule; what is
//!   written, and what is on disk, until all that expired is gone
//! * `retention`: thirty days of items, a retention of 30 days that becomes one of a day, then one of 60
//! * `containers`: so many containers with an item each: made, written to, flushed, closed, opened; what they take of
//!   memory, and of the processor while nothing happens
//! * `memory`: items that live for ten seconds, with memtables of 64 MiB; the most memory that the process takes while
//!   they are written, what it takes once they are reclaimed, and a minute later

#[path = "support/keys.rs"]
mod keys;

use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide::{Batch, Container, Database, DefaultTtl, ManualClock, Options, Reads, Result, Ttl};
use keys::{key, mixed};
use testkit::process;

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

fn basic(folder: &Path, items: u64, reads: Reads) -> Result<()> {
    let db = Options::new().reads(reads).open(folder)?;
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

/// How the items of a measurement are brought to death.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Expired,
    Deleted,
    RangeDeleted,
}

/// Keys in order, of which every `items / 10`th lives on. A flush every 400 000 items makes many runs.
fn write_dead(
    db: &Database,
    container: &Container,
    items: u64,
    death: Death,
    flush: bool,
) -> Result<()> {
    let key = |n: u64| format!("item-{:08x}", (n * 0x9e37_79b1) as u32);
    let lives = |n: u64| n % (items / 10) == items / 20;
    let write_all = |write: &dyn Fn(&mut Batch, u64)| {
        for start in (0..items).step_by(1_000) {
            let mut batch = Batch::new();
            (start..(start + 1_000).min(items)).for_each(|n| write(&mut batch, n));
            db.write(batch)?;
            if flush && start % 400_000 == 399_000 {
                db.flush()?;
            }
        }
        Ok(())
    };
    let minute = Ttl::After(Duration::from_secs(60));
    write_all(&|batch, n| {
        let ttl = match death {
            Death::Expired if !lives(n) => minute,
            _ => Ttl::After(Duration::from_secs(86_400)),
        };
        batch.put_with_ttl(container, key(n), [7; 100], ttl);
    })?;
    match death {
        Death::Expired => Ok(()),
        Death::Deleted => write_all(&|batch, n| {
            if !lives(n) {
                batch.delete(container, key(n));
            }
        }),
        Death::RangeDeleted => {
            let mut alive: Vec<String> = (0..items).filter(|n| lives(*n)).map(key).collect();
            alive.sort();
            let mut from = String::new();
            for key in alive {
                container.delete_range(from..key.clone())?;
                from = format!("{key}+");
            }
            container.delete_range(from..)
        }
    }
}

fn scan_dead(what: &str, container: &Container) {
    let milliseconds = |scan: &dyn Fn() -> usize| {
        let start = Instant::now();
        let found = scan();
        format!("{:.2} ms ({found})", start.elapsed().as_secs_f64() * 1e3)
    };
    println!(
        "{what}: first forwards {}, again {}, backwards {}, a prefix {}",
        milliseconds(&|| container.iter().count()),
        milliseconds(&|| container.iter().count()),
        milliseconds(&|| container.iter().rev().count()),
        milliseconds(&|| container.prefix("item-8").count()),
    );
}

/// Where the dead lie while they are scanned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum DataIn {
    OneRun,
    ManyRuns,
    Memory,
}

fn dead(folder: &Path, items: u64) -> Result<()> {
    for (death, place) in [
        (Death::Expired, DataIn::OneRun),
        (Death::Expired, DataIn::ManyRuns),
        (Death::Expired, DataIn::Memory),
        (Death::Deleted, DataIn::ManyRuns),
        (Death::Deleted, DataIn::Memory),
        (Death::RangeDeleted, DataIn::ManyRuns),
        (Death::RangeDeleted, DataIn::Memory),
    ] {
        let folder = folder.join(format!("{death:?}{place:?}"));
        dead_in(&folder, items, death, place)?;
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
    Ok(())
}

fn dead_in(folder: &Path, items: u64, death: Death, place: DataIn) -> Result<()> {
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().clock(clock.clone()).stepped();
    // All of it fits into one memtable, of which a flush makes one run.
    let options = match place {
        DataIn::OneRun | DataIn::Memory => options.memtable_bytes(4 << 30),
        DataIn::ManyRuns => options,
    };
    let db = options.open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    match place {
        DataIn::Memory => write_dead(&db, &container, items / 10, death, false)?,
        DataIn::OneRun => write_dead(&db, &container, items, death, false)?,
        DataIn::ManyRuns => write_dead(&db, &container, items, death, true)?,
    }
    if place != DataIn::Memory {
        db.flush()?;
    }
    clock.advance(Duration::from_secs(60));
    let stats = container.stats();
    let (runs, tables) = (stats.runs, stats.tables);
    let what = format!("{death:?}, {place:?}, {runs} runs of {tables} tables");
    scan_dead(&what, &container);
    if place == DataIn::Memory {
        return Ok(());
    }
    db.close()?;
    drop((container, db));
    let db = options.open(folder)?;
    let container = db.container("items")?;
    scan_dead(&format!("{death:?}, {place:?}, just opened"), &container);
    Ok(())
}

fn stats(folder: &Path, items: u64) -> Result<()> {
    let options = Options::new().stepped().sizes(4 << 10, 6 << 20, 64 << 20);
    let db = options.memtable_bytes(256 << 20).open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    let value = [7; 100];
    let ttl = |n: u64| Ttl::After(Duration::from_millis(1 + mixed(n) % 600_000));
    let put = |n: u64| container.put_with_ttl(key(mixed(n) % items), value, ttl(n));
    for run in 0..16 {
        (0..items / 16).try_for_each(|n| put(run * items + n))?;
        db.flush()?;
    }
    (0..400_000).try_for_each(put)?;
    println!("{} tables", container.stats().tables);
    for _ in 0..5 {
        let stats = timed("stats", 1, || container.stats());
        println!("{} bytes live of {}", stats.live_bytes, stats.stored_bytes);
    }
    Ok(())
}

/// Range deletes beside the items of a container, in memory all of them.
fn ranges(folder: &Path, items: u64) -> Result<()> {
    let options = Options::new().memtable_bytes(256 << 20);
    for count in [0, items / 100, items] {
        let db = options.open(folder.join(count.to_string()))?;
        let container = db.container("items")?;
        fill(&container, items, &[7; 100])?;
        db.flush()?;
        fill(&container, items, &[7; 100])?;
        println!("{count} range deletes");
        let behind = |n: u64, byte: u8| [&key(mixed(n) % items)[..], &[byte]].concat();
        timed("  made", count.max(1), || {
            (0..count).try_for_each(|n| container.delete_range(behind(n, 0)..behind(n, 9)))
        })?;
        println!("  in memory: {} bytes", container.stats().memtable_bytes);
        let gets = 300_000;
        for _ in 0..3 {
            timed("  get", gets, || {
                (0..gets).all(|n| container.contains(key(mixed(n) % items)).unwrap_or(false))
            });
        }
        timed("  replace", 30_000, || {
            (0..30_000).all(|n| {
                container
                    .replace(key(mixed(n) % items), [8; 100], Ttl::Inherit)
                    .is_ok()
            })
        });
        timed("  first of a new iterator", 1_000, || {
            (0..1_000).all(|n| container.range(key(n)..).next().is_some())
        });
        let old = db.snapshot();
        container.delete_range(..)?;
        let view = old.container("items")?;
        timed(
            "  get, by a snapshot from before all was deleted",
            gets,
            || (0..gets).all(|n| view.contains(key(mixed(n) % items)).unwrap_or(false)),
        );
        timed("  len_estimate()", 1, || container.len_estimate());
        timed("  flush", 1, || db.flush())?;
        let stats = db.stats();
        println!("  {} bytes on disk", stats.disk_bytes);
        println!("  {} range deletes left", container.stats().range_deletes);
    }
    Ok(())
}

/// Range deletes that no flush takes, beside a few puts: how much is logged.
fn ranges_in_the_log(folder: &Path) -> Result<()> {
    let options = Options::new()
        .memtable_bytes(1 << 20)
        .reclaim_within(Duration::from_secs(5));
    let db = options.open(folder)?;
    let (few, many) = (db.container("puts")?, db.container("range deletes")?);
    (0..12_000).try_for_each(|n| many.delete_range(key(n)..=key(n)))?;
    let start = db.stats().bytes_logged;
    for n in 0..120 {
        few.put(key(n), "a tiny one")?;
        std::thread::sleep(Duration::from_millis(100));
    }
    println!(
        "12 000 range deletes, and in 12 s 120 puts: {} bytes logged, then {} bytes",
        start,
        db.stats().bytes_logged - start
    );
    Ok(())
}

/// Items come at the end and go at the front, a hundred at a time.
fn queue(folder: &Path, items: u64) -> Result<()> {
    let db = Options::new().memtable_bytes(4 << 20).open(folder)?;
    let container = db.container("queue")?;
    let key = |n: u64| n.to_be_bytes();
    for round in 0..10 {
        timed("queue", items, || {
            (round * items..(round + 1) * items).try_for_each(|n| {
                container.put(key(n), [7; 100])?;
                match n.checked_sub(1_000) {
                    Some(gone) => container.delete_range(..key(gone)),
                    None => Ok(()),
                }
            })
        })?;
        let (of_queue, stats) = (container.stats(), db.stats());
        println!(
            "  {} in memory, {} of log, {} on disk, {} range deletes, about {} items",
            of_queue.memtable_bytes,
            stats.log_bytes,
            stats.disk_bytes,
            of_queue.range_deletes,
            of_queue.live_items
        );
    }
    Ok(())
}

/// How soon after its expiry an item is to be gone from the disk.
const WITHIN: Duration = Duration::from_secs(10);

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn report(when: &str, db: &Database) {
    let stats = db.stats();
    println!(
        "{when}: GiB put {:.2}, logged {:.2}, flushed {:.2}, merged {:.2}; on disk {:.2}, live {:.2}, expired {:.2}; {} runs",
        gib(stats.bytes_put),
        gib(stats.bytes_logged),
        gib(stats.bytes_flushed),
        gib(stats.bytes_merged),
        gib(stats.disk_bytes),
        gib(stats.live_bytes),
        gib(stats.expired_bytes),
        stats.runs
    );
}

/// Rests second by second until nothing that has expired is on disk.
fn until_reclaimed(db: &Database, clock: Option<&ManualClock>) {
    let start = Instant::now();
    let mut seconds = 0;
    while db.stats().oldest_unreclaimed.is_some() && seconds < 600 {
        std::thread::sleep(Duration::from_secs(1));
        if let Some(clock) = clock {
            clock.advance(Duration::from_secs(1));
        }
        seconds += 1;
        if seconds % 20 == 0 {
            report(&format!("{seconds} s later"), db);
        }
    }
    report(&format!("no expired byte {:?} later", start.elapsed()), db);
}

fn mixed_lives(folder: &Path, items: u64) -> Result<()> {
    let db = Options::new().reclaim_within(WITHIN).open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    let mut value = [0; 1_000];
    timed("fill", items, || {
        (0..items).try_for_each(|n| {
            for (word, number) in value.as_chunks_mut::<8>().0.iter_mut().zip(n..) {
                *word = mixed(number).to_le_bytes();
            }
            let ttl = match n % 2 {
                0 => Ttl::Never,
                _ => Ttl::After(Duration::from_millis(60_000 + mixed(n) % 60_000)),
            };
            container.put_with_ttl(key(n), value, ttl)
        })
    })?;
    report("filled", &db);
    until_reclaimed(&db, None);
    let lag = db.stats().reclaim_lag;
    println!(
        "expiry to removal: half within {:?}, all within {:?}",
        lag.quantile(0.5),
        lag.longest()
    );
    println!("{} items of {}", container.iter().count(), items / 2);
    Ok(())
}

fn retention(folder: &Path, items: u64) -> Result<()> {
    const DAYS: u64 = 30;
    let clock = ManualClock::new(1_700_000_000_000);
    let day = Duration::from_secs(86_400);
    let db = Options::new()
        .clock(clock.clone())
        .reclaim_within(WITHIN)
        .open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::After(day * 30))?;
    for number in 0..DAYS {
        let of_day = number * items / DAYS..(number + 1) * items / DAYS;
        of_day
            .into_iter()
            .try_for_each(|n| container.put(key(n), [7; 100]))?;
        if number + 1 < DAYS {
            clock.advance(day);
        }
    }
    db.flush()?;
    report("filled", &db);
    timed("change to a day", 1, || {
        container.set_default_ttl(DefaultTtl::After(day))
    })?;
    let of_last_day = timed("scan of what is left", 1, || container.iter().count());
    println!("{of_last_day} items of the last day, of {}", items / DAYS);
    until_reclaimed(&db, Some(&clock));
    container.set_default_ttl(DefaultTtl::After(day * 60))?;
    clock.advance(day * 59);
    println!("59 days later, at 60: {}", container.iter().count());
    Ok(())
}

fn containers(folder: &Path, count: u64) -> Result<()> {
    let name = |n: u64| format!("container-{n:06}");
    println!("at first: {}", process::memory());
    let db = Options::new().open(folder)?;
    let mut made: Vec<Container> = vec![];
    for part in 0..10 {
        let names = (part * count / 10..(part + 1) * count / 10).map(name);
        made.extend(timed("a tenth made", count / 10, || {
            let made = names.map(|name| db.container(name));
            made.collect::<Result<Vec<_>>>()
        })?);
    }
    println!("made: {}", process::memory());
    timed("an item put into each", count, || {
        made.iter()
            .try_for_each(|container| fill(container, 1, &[7; 100]))
    })?;
    println!("written: {}", process::memory());
    timed("flushed", count, || db.flush())?;
    println!("flushed: {}", process::memory());
    drop(made);
    timed("closed", 1, || db.close())?;
    drop(db);
    let db = timed("opened", 1, || Options::new().open(folder))?;
    println!("opened: {}", process::memory());
    std::thread::sleep(Duration::from_secs(6));
    let (before, rest) = (process::processor_time(), Duration::from_secs(10));
    std::thread::sleep(rest);
    let used = process::processor_time() - before;
    println!(
        "at rest: {:.1} % of a processor",
        100.0 * used.as_secs_f64() / rest.as_secs_f64()
    );
    let found = (0..count).filter(|n| {
        let item = db.container(name(*n)).and_then(|found| found.get(key(0)));
        item.is_ok_and(|item| item.is_some())
    });
    println!("{} items of {count}", found.count());
    timed("dropped", count, || {
        (0..count).try_for_each(|n| db.drop_container(name(n)).map(drop))
    })
}

fn memory(folder: &Path, items: u64) -> Result<()> {
    let db = Options::new()
        .memtable_bytes(64 << 20)
        .reclaim_within(Duration::from_secs(5))
        .open(folder)?;
    let container = db.container("items")?;
    container.set_default_ttl(DefaultTtl::NoDefault)?;
    println!("at first: {}", process::memory());
    let watch = process::Watch::start();
    let life = Ttl::After(Duration::from_secs(10));
    timed("fill", items, || {
        (0..items).try_for_each(|n| container.put_with_ttl(key(n), [7; 100], life))
    })?;
    println!("filled: {}; at most {}", process::memory(), watch.most());
    let start = Instant::now();
    while db.stats().stored_bytes > 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    println!(
        "reclaimed {:?} later: {}",
        start.elapsed(),
        process::memory()
    );
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(10));
        println!("ten seconds later: {}", process::memory());
    }
    println!("at most {}", watch.most());
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let items = |usual: u64| arguments.get(1).map_or(Ok(usual), |text| text.parse());
    let folder = tempfile::tempdir()?;
    match arguments.first().map(String::as_str) {
        Some("basic") => basic(folder.path(), items(1_000_000)?, Reads::Map)?,
        Some("pread") => basic(folder.path(), items(1_000_000)?, Reads::Pread)?,
        Some("ttl") => ttl(folder.path(), items(1_000_000)?)?,
        Some("default") => default(folder.path(), items(10_000_000)?)?,
        Some("open") => open(folder.path(), items(100_000)?)?,
        Some("dead") => dead(folder.path(), items(10_000_000)?)?,
        Some("stats") => stats(folder.path(), items(8_000_000)?)?,
        Some("ranges") => {
            ranges(folder.path(), items(100_000)?)?;
            ranges_in_the_log(&folder.path().join("log"))?;
            queue(&folder.path().join("queue"), items(100_000)?)?;
        }
        Some("mixed") => mixed_lives(folder.path(), items(10_000_000)?)?,
        Some("retention") => retention(folder.path(), items(10_000_000)?)?,
        Some("containers") => containers(folder.path(), items(10_000)?)?,
        Some("memory") => memory(folder.path(), items(1_000_000)?)?,
        _ => {
            let known = "basic, pread, ttl, default, open, dead, stats, ranges, mixed, retention, \
                         containers or memory";
            return Err(format!("say {known}").into());
        }
    }
    Ok(())
}
