//! Writes a history and records its progress, for the scripts beside this file, which inject faults below it.
//!
//! ```text
//! oracle write DIR TOLD [--sync] [--seed N] [--steps N]
//!     Takes step after step and writes into the file TOLD, which belongs on another file system, how far it came. Ends
//!     after N steps, or when the database has refused a step three times: then it still reads all that is there.
//! oracle check DIR TOLD [--power-cut NANOSECONDS]
//!     Opens the database and compares what is there with what was told: all that was acknowledged; after a power cut
//!     at this moment since the Unix epoch all that was synced before it, and of the rest a prefix. Shows how many steps
//!     were acknowledged, synced and found.
//! oracle fill DIR [--sync] [--steps N]
//!     Fills the disk under DIR, N times (3): errors must say that it is full, what is there stays readable, and when
//!     enough has expired, writing goes on by itself. Time is made: it passes when the disk is full.
//! oracle refill DIR [--less]
//!     Fills the disk under DIR with what lies in memory and in the log alone, closes, takes the last byte of the room,
//!     and opens anew, with an eighth of the memory if it is to have less: when all has expired, writing goes on by itself.
//! ```
//!
//! Exit status: 0 done, 1 a promise was broken, 2 wrong use, 3 the database refused to go on and said why.

// Like the tests, a world of its own.
#![allow(clippy::disallowed_methods)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ebbtide::{ContainerOptions, DefaultTtl, Durability, Error, ManualClock, Options, Ttl};
use testkit::oracle::{Expected, Oracle, options};
use testkit::random::Random;

enum Failure {
    /// The database said no, clearly.
    Refused(Error),
    /// It broke a promise.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(error)
    }
}

type Outcome = Result<(), Failure>;

struct Arguments {
    dir: PathBuf,
    told: PathBuf,
    durability: Durability,
    power_cut: Option<u128>,
    seed: u64,
    steps: Option<u64>,
    less: bool,
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut found = Arguments {
        dir: PathBuf::new(),
        told: PathBuf::new(),
        durability: Durability::Buffered,
        power_cut: None,
        seed: 1,
        steps: None,
        less: false,
    };
    let mut paths = vec![];
    while let Some(word) = words.next() {
        match word.as_str() {
            "--less" => found.less = true,
            "--sync" => found.durability = Durability::Sync,
            "--power-cut" => found.power_cut = Some(words.next()?.parse().ok()?),
            "--seed" => found.seed = words.next()?.parse().ok()?,
            "--steps" => found.steps = Some(words.next()?.parse().ok()?),
            _ => paths.push(PathBuf::from(word)),
        }
    }
    let mut paths = paths.into_iter();
    found.dir = paths.next()?;
    found.told = paths.next().unwrap_or_default();
    Some(found)
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    let outcome = match (mode.as_str(), arguments(words)) {
        ("write", Some(arguments)) => write(&arguments),
        ("check", Some(arguments)) => check(&arguments),
        ("fill", Some(arguments)) => fill(&arguments),
        ("refill", Some(arguments)) => refill(&arguments),
        _ => {
            eprintln!(
                "oracle write DIR TOLD | check DIR TOLD | fill DIR | refill DIR; see the head of its file"
            );
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Broken(what)) => {
            eprintln!("BROKEN: {what}");
            ExitCode::from(1)
        }
        Err(Failure::Refused(error)) => {
            eprintln!("refused: {error}");
            ExitCode::from(3)
        }
    }
}

/// Nanoseconds since the Unix epoch.
fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after the epoch")
        .as_nanos()
}

/// Reads the lines that were told: `a N T`, acknowledged up to step N at the moment T, and `s N T`, synced as well.
/// Answers how far each came, and the latter before the power was cut: what lives on behind it, a power cut would have
/// ended.
fn told(path: &Path, power_cut: Option<u128>) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let (mut acknowledged, mut synced) = (0, 0);
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(kind), Some(Ok(n)), Some(Ok(at))) = (
            words.next(),
            words.next().map(str::parse::<u64>),
            words.next().map(str::parse::<u128>),
        ) else {
            continue;
        };
        acknowledged = n;
        if kind == "s" && power_cut.is_none_or(|cut| at < cut) {
            synced = n;
        }
    }
    (acknowledged, synced)
}

fn write(arguments: &Arguments) -> Outcome {
    let oracle = Oracle::open(&arguments.dir, &options(arguments.durability))?;
    let mut told = File::options()
        .append(true)
        .create(true)
        .open(&arguments.told)
        .expect("the file that is told belongs on a sound disk");
    let mut tell = |kind: &str, n: u64| {
        told.write_all(format!("{kind} {n} {}\n", now()).as_bytes())
            .expect("the file that is told belongs on a sound disk");
    };
    let mut random = Random(arguments.seed);
    let mut expected = Expected::default();
    let mut n = oracle.latest()?;
    let last = arguments.steps.map_or(u64::MAX, |steps| n + steps);
    let mut refused = 0;
    while n < last {
        let acknowledged = if arguments.durability == Durability::Sync {
            "s"
        } else {
            "a"
        };
        let done = oracle
            .take(n + 1)
            .map(|()| n += 1)
            .inspect(|()| tell(acknowledged, n))
            .and_then(|()| oracle.stir(n, &mut random));
        match done {
            Ok(true) => tell("s", n),
            Ok(false) => {}
            Err(error) => {
                refused += 1;
                let done = read_on(&oracle, &mut expected, n)?;
                if refused == 3 {
                    // Nothing that is said at the end makes it better or worse.
                    let _ = oracle.db.close();
                    return Err(error.into());
                }
                n = done;
            }
        }
    }
    oracle.db.close()?;
    tell("s", n);
    Ok(())
}

/// After an error reads go on: all that was acknowledged is there, and the refused step wholly or not at all.
fn read_on(oracle: &Oracle, expected: &mut Expected, acknowledged: u64) -> Result<u64, Failure> {
    // Bytes that the disk no longer gives cannot be read; those that are read must be right.
    let latest = oracle.latest()?;
    if latest != acknowledged && latest != acknowledged + 1 {
        return Err(Failure::Broken(format!(
            "{acknowledged} steps were acknowledged, {latest} can be read"
        )));
    }
    expected.advance(latest);
    expected.compare(oracle).map_err(Failure::Broken)?;
    Ok(latest)
}

fn check(arguments: &Arguments) -> Outcome {
    let (acknowledged, synced) = told(&arguments.told, arguments.power_cut);
    let oracle = Oracle::open(&arguments.dir, &options(arguments.durability))?;
    let found = oracle.latest()?;
    let least = match arguments.power_cut {
        Some(_) => synced,
        None => acknowledged,
    };
    // One step may have been done and not told of.
    if !(least..=acknowledged + 1).contains(&found) {
        return Err(Failure::Broken(format!(
            "{acknowledged} steps were acknowledged, {synced} synced, {found} are there"
        )));
    }
    let mut expected = Expected::default();
    expected.advance(found);
    expected.compare(&oracle).map_err(Failure::Broken)?;
    oracle.db.close()?;
    println!("{acknowledged} {synced} {found}");
    fs::write(&arguments.told, format!("s {found} {}\n", now()))
        .expect("the file that is told belongs on a sound disk");
    Ok(())
}

/// How long those items live that are to make room.
const SHORT: Duration = Duration::from_secs(60);

/// So many items in a row find room when there is room again.
const ROOM: u64 = 300;

/// No disk is so slow that room does not come back within this.
const HANGS: Duration = Duration::from_secs(60);

fn fill(arguments: &Arguments) -> Outcome {
    let clock = ManualClock::new(1_800_000_000_000);
    let open = || {
        Options::new()
            .clock(clock.clone())
            .durability(arguments.durability)
            .memtable_bytes(512 << 10)
            .reclaim_within(SHORT)
            .open(&arguments.dir)
    };
    let db = open()?;
    let short = ContainerOptions::new().default_ttl(DefaultTtl::After(SHORT));
    let (short, kept) = (db.container_with("short", short)?, db.container("kept")?);
    let value = |n: u64| vec![b'a' + (n % 26) as u8; 4_000];
    let (mut kept_to, mut written, mut refusals) = (0u64, 0u64, 0u64);
    for round in 0..arguments.steps.unwrap_or(3) {
        // Until the disk is full; now and then something stays.
        let full = loop {
            let keep = written % 64 == 0;
            let done = if keep {
                kept.put_with_ttl(kept_to.to_be_bytes(), value(kept_to), Ttl::Never)
            } else {
                short.put(written.to_be_bytes(), value(written))
            };
            match done {
                Ok(()) => {
                    kept_to += u64::from(keep);
                    written += 1;
                }
                Err(error) => break error,
            }
        };
        let began = Instant::now();
        let mut error = full;
        clock.advance(SHORT * 2);
        loop {
            if !error.is_full() {
                return Err(Failure::Broken(format!(
                    "round {round}: the disk is full, and the error is: {error}"
                )));
            }
            refusals += 1;
            for n in 0..kept_to {
                if kept.get(n.to_be_bytes())?.as_deref() != Some(&value(n)[..]) {
                    return Err(Failure::Broken(format!(
                        "round {round}: item {n} cannot be read on a full disk"
                    )));
                }
            }
            if began.elapsed() > HANGS {
                return Err(Failure::Broken(format!(
                    "round {round}: all has expired, and there is no room again: {error}"
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
            // Nothing was removed by anyone, and nothing opened anew.
            let again = (0..ROOM).try_for_each(|n| short.put(n.to_be_bytes(), value(n)));
            match again {
                Ok(()) => break,
                Err(again) => error = again,
            }
        }
    }
    db.close()?;
    let db = open()?;
    let kept = db.container("kept")?;
    for n in 0..kept_to {
        if kept.get(n.to_be_bytes())?.as_deref() != Some(&value(n)[..]) {
            return Err(Failure::Broken(format!("item {n} is not there at the end")));
        }
    }
    db.close()?;
    println!("{written} {refusals} {kept_to}");
    Ok(())
}

/// Larger than the disk.
const MEMORY: usize = 64 << 20;

fn refill(arguments: &Arguments) -> Outcome {
    let clock = ManualClock::new(1_800_000_000_000);
    let open = |memory| {
        Options::new()
            .clock(clock.clone())
            .memtable_bytes(memory)
            .reclaim_within(SHORT)
            .open(&arguments.dir)
    };
    let broken = |what: String| Err(Failure::Broken(what));
    let db = open(MEMORY)?;
    let short = ContainerOptions::new().default_ttl(DefaultTtl::After(SHORT));
    let c = db.container_with("short", short)?;
    let value = |n: u64| vec![b'a' + (n % 26) as u8; 4_000];
    let mut written = 0u64;
    let full = loop {
        match c.put(written.to_be_bytes(), value(written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    if !full.is_full() {
        return broken(format!("the disk is full, and the error is: {full}"));
    }
    drop(c);
    // It may say that there is no room for the end mark.
    let _ = db.close();
    drop(db);
    let path = arguments.dir.with_extension("ballast");
    let mut ballast = File::create(&path).expect("a name takes no room");
    for size in [1 << 20, 4 << 10, 1] {
        while ballast.write_all(&vec![1; size]).is_ok() {}
    }
    let db = open(if arguments.less { MEMORY / 8 } else { MEMORY })?;
    let c = db.container("short")?;
    if c.iter().count() as u64 != written {
        return broken(format!("of {written} items not all are there"));
    }
    clock.advance(SHORT * 2);
    let began = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let again = (0..ROOM).try_for_each(|n| c.put(n.to_be_bytes(), value(n)));
        match again {
            Ok(()) => break,
            Err(error) if began.elapsed() > HANGS => {
                return broken(format!("all has expired, and there is no room: {error}"));
            }
            Err(_) => {}
        }
    }
    let stats = db.stats();
    db.close()?;
    let db = open(MEMORY)?;
    if db.container("short")?.iter().count() as u64 != ROOM {
        return broken("what was written at the end is not there".into());
    }
    db.close()?;
    fs::remove_file(&path).expect("it was made here");
    println!(
        "{written} {} {}",
        began.elapsed().as_millis(),
        stats.disk_bytes
    );
    Ok(())
}
