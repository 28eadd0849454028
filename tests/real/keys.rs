//! Threads write keys of their own under `Durability::Sync` and tell of each write when it begins, and whether it was
//! acknowledged or failed, for the scripts beside this file, which shut the file system down below it.
//!
//! ```text
//! keys write DIR TOLD         Writes until each thread has met an error.
//! keys check DIR TOLD CUT     Compares what is there with what was told. CUT: nanoseconds since the Unix epoch, before
//!                             the shutdown began. Shows how many writes were acknowledged before it, how many after it
//!                             began, how many of the latter are not there, and how many microseconds after CUT the last
//!                             of these was acknowledged.
//! keys plain-write DIR TOLD, keys plain-check DIR TOLD CUT
//!                             The same without a database: records are written into files that were allocated ahead,
//!                             and synced. It shows what the file system itself acknowledges and loses.
//! ```
//!
//! Write `n` of a thread follows from both numbers, so of each thread a prefix of its writes must be there: all that was
//! acknowledged before CUT, perhaps more, and nothing that it had not begun. And the prefixes belong together: nothing
//! that began after a missing write was acknowledged.
//!
//! Exit status: 0 done, 1 a promise was broken, 2 wrong use, 3 all threads were refused.

// Like the tests, a world of its own.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide::{Batch, Container, Database, Durability};
use testkit::oracle::options;
use testkit::random::Random;

const THREADS: u64 = 4;
const KEYS: u64 = 60;

type Items = BTreeMap<Vec<u8>, Vec<u8>>;

/// Nanoseconds since the Unix epoch.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after the epoch").as_nanos()
}

fn key(thread: u64, n: u64) -> Vec<u8> {
    format!("{thread}-{n:02}").into_bytes()
}

/// The key whose value is the number of the thread's last write: so no write leaves all as it was, as the delete of a key
/// that is not there would.
fn count(thread: u64) -> Vec<u8> {
    format!("{thread}-count").into_bytes()
}

/// The keys and values of a write; a delete has no value.
fn step(thread: u64, n: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut random = Random(thread << 40 | n);
    let keys = if random.one_in(6) { 3 } else { 1 };
    let mut one = || {
        let key = key(thread, random.below(KEYS as usize) as u64);
        let len = if random.one_in(50) { 8_000 } else { 400 };
        let mut value = format!("{n}|").into_bytes();
        value.resize(value.len() + random.below(len), b'a' + (n % 26) as u8);
        (key, (!random.one_in(8)).then_some(value))
    };
    let writes = (0..keys).map(|_| one());
    writes
        .chain([(count(thread), Some(n.to_string().into_bytes()))])
        .collect()
}

/// The lines that told of one thread.
#[derive(Clone, Debug, Default)]
struct Told {
    /// When each write began that is not known to be there.
    begun: BTreeMap<u64, u128>,
    acknowledged: BTreeMap<u64, u128>,
    /// All up to this one were there at the last check.
    base: u64,
}

fn told(path: &Path) -> Vec<Told> {
    let mut all = vec![Told::default(); THREADS as usize];
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let mut words = line.split(' ');
        let kind = words.next();
        let numbers: Vec<u128> = words.filter_map(|word| word.parse().ok()).collect();
        let [thread, n, at] = numbers[..] else {
            panic!("the line {line:?} tells nothing");
        };
        let (told, n) = (&mut all[thread as usize], n as u64);
        match kind {
            Some("base") => told.base = n,
            Some("begun") => drop(told.begun.insert(n, at)),
            Some("done") => drop(told.acknowledged.insert(n, at)),
            _ => {}
        }
    }
    all
}

/// Lets each thread write until it is refused.
fn write_all(path: &Path, write: impl Fn(u64, u64) -> Result<(), String> + Sync) {
    let before = told(path);
    let file = File::options().append(true).create(true).open(path);
    let mut file = &file.expect("the file that is told belongs on a sound disk");
    let tell = |kind: &str, thread: u64, n: u64| {
        let line = format!("{kind} {thread} {n} {}\n", now());
        (&*file).write_all(line.as_bytes()).expect("told");
    };
    std::thread::scope(|scope| {
        for (thread, told) in (0..).zip(before) {
            let (tell, write) = (&tell, &write);
            scope.spawn(move || {
                for n in told.base + 1.. {
                    tell("begun", thread, n);
                    if let Err(error) = write(thread, n) {
                        tell("failed", thread, n);
                        eprintln!("thread {thread}: {error}");
                        return;
                    }
                    tell("done", thread, n);
                }
            });
        }
    });
    file.flush().expect("told");
}

/// How far a thread came, by what is there of it.
fn prefix(thread: u64, told: &Told, cut: u128, found: &Items) -> Result<u64, String> {
    let certain = told.acknowledged.iter().filter(|(_, at)| **at < cut);
    let certain = certain.map(|(n, _)| *n).max().unwrap_or(told.base);
    let begun = told.begun.keys().max().copied().unwrap_or(told.base);
    let (mut items, mut differ) = (Items::new(), vec![]);
    for n in 0..=begun {
        if n > 0 {
            for (key, value) in step(thread, n) {
                match value {
                    Some(value) => drop(items.insert(key, value)),
                    None => drop(items.remove(&key)),
                }
            }
        }
        if n >= certain && items == *found {
            return Ok(n);
        }
        if n == certain {
            let keys = items.keys().chain(found.keys());
            let differs = |key: &&Vec<u8>| items.get(*key) != found.get(*key);
            let named = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
            differ = keys.filter(differs).map(named).collect();
        }
    }
    Err(format!(
        "thread {thread}: {certain} writes were acknowledged before the shutdown, {begun} begun, and no such prefix is \
         there: after the former differ {differ:?}"
    ))
}

/// Compares what each thread reached with what was told, and shows the figures.
fn judge(path: &Path, cut: u128, reached: &[u64]) -> Result<(), String> {
    let all = told(path);
    // The earliest moment at which a write was acknowledged that is not there.
    let mut missing = vec![];
    for (thread, (told, reached)) in all.iter().zip(reached).enumerate() {
        for (n, at) in told.acknowledged.range(reached + 1..) {
            let (began, ended) = (told.begun[n] as i128 - cut as i128, at.saturating_sub(cut));
            let (began, ended) = (began / 1_000, ended / 1_000);
            eprintln!(
                "write {n} of thread {thread}, {began} to {ended} us after the shutdown began"
            );
            missing.push(*at);
        }
    }
    let earliest = missing.iter().min().copied().unwrap_or(u128::MAX);
    for (thread, (told, reached)) in all.iter().zip(reached).enumerate() {
        let late = told.begun.get(reached).filter(|at| **at > earliest);
        if late.is_some() {
            return Err(format!(
                "write {reached} of thread {thread} is there, and one that was acknowledged before it began is not"
            ));
        }
    }
    let acknowledged = || all.iter().flat_map(|told| told.acknowledged.values());
    let before = acknowledged().filter(|at| **at < cut).count();
    let last = missing.iter().max().map_or(0, |at| (at - cut) / 1_000);
    let after = acknowledged().count() - before;
    println!("{before} {after} {} {last}", missing.len());
    let base = (0..).zip(reached);
    let base: String = base
        .map(|(thread, n): (u64, _)| format!("base {thread} {n} 0\n"))
        .collect();
    fs::write(path, base).expect("the file that is told belongs on a sound disk");
    Ok(())
}

fn open(dir: &Path) -> Result<(Database, Container), String> {
    let db = options(Durability::Sync).open(dir);
    let db = db.map_err(|error| error.to_string())?;
    let c = db.container("c").map_err(|error| error.to_string())?;
    Ok((db, c))
}

fn write(dir: &Path, path: &Path) -> Result<(), String> {
    let (db, c) = open(dir)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The other calls of a program meanwhile, and calls that are refused.
        scope.spawn(|| {
            let mut random = Random(now() as u64);
            while !is_over.load(Ordering::Relaxed) {
                let _ = match random.below(8) {
                    0 => db.compact(),
                    1..3 => db.flush(),
                    _ => Ok(()),
                };
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        write_all(path, |thread, n| {
            let mut batch = Batch::new();
            for (key, value) in step(thread, n) {
                match value {
                    Some(value) => batch.put(&c, key, value),
                    None => batch.delete(&c, key),
                };
            }
            db.write(batch).map_err(|error| error.to_string())
        });
        is_over.store(true, Ordering::Relaxed);
    });
    // All threads were refused; what is said at the end makes it neither better nor worse.
    let _ = db.close();
    Err("each thread was refused".into())
}

fn check(dir: &Path, path: &Path, cut: u128) -> Result<(), String> {
    let (db, c) = open(dir)?;
    let mut found = vec![Items::new(); THREADS as usize];
    for item in c.iter() {
        let item = item.map_err(|error| error.to_string())?;
        let thread = usize::from(item.key()[0] - b'0');
        found[thread].insert(item.key().to_vec(), item.value().to_vec());
    }
    for (thread, n) in (0..THREADS).flat_map(|thread| (0..KEYS).map(move |n| (thread, n))) {
        let key = key(thread, n);
        let value = c.get(&key).map_err(|error| error.to_string())?;
        if value.as_deref() != found[thread as usize].get(&key).map(Vec::as_slice) {
            return Err(format!("a get of {key:?} differs from the scan"));
        }
    }
    let reached = (0..).zip(told(path)).zip(&found);
    let reached = reached.map(|((thread, told), found)| prefix(thread, &told, cut, found));
    let reached: Vec<u64> = reached.collect::<Result<_, _>>()?;
    judge(path, cut, &reached)?;
    db.close().map_err(|error| error.to_string())
}

/// A record of the plain files.
const RECORD: u64 = 512;
/// The most records of a plain file.
const RECORDS: u64 = 16_384;

fn record(n: u64) -> Vec<u8> {
    n.to_be_bytes().repeat(RECORD as usize / 8)
}

fn plain_write(dir: &Path, path: &Path) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    fs::create_dir_all(dir).map_err(said)?;
    let new = |thread: u64| {
        let name = dir.join(thread.to_string());
        let known = name.exists();
        let options = File::options();
        let file = options
            .clone()
            .write(true)
            .create(true)
            .truncate(false)
            .open(name)?;
        if !known {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, RECORD * RECORDS)?;
            file.sync_all()?;
        }
        Ok(file)
    };
    let files: Vec<File> = (0..THREADS)
        .map(new)
        .collect::<Result<_, _>>()
        .map_err(said)?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(said)?;
    write_all(path, |thread, n| {
        let file = &files[thread as usize];
        let written = file.write_all_at(&record(n), n % RECORDS * RECORD);
        written.and_then(|()| file.sync_data()).map_err(said)
    });
    Err("each thread was refused".into())
}

fn plain_check(dir: &Path, path: &Path, cut: u128) -> Result<(), String> {
    let reached = |(thread, told): (u64, Told)| {
        let bytes = fs::read(dir.join(thread.to_string())).unwrap_or_default();
        let is_there = |n: &u64| {
            let at = (n % RECORDS * RECORD) as usize;
            bytes.get(at..at + RECORD as usize) == Some(&record(*n))
        };
        let begun = told.begun.keys().max().copied().unwrap_or(told.base);
        let reached = (told.base + 1..=begun).take_while(is_there).last();
        let reached = reached.unwrap_or(told.base);
        let certain = told.acknowledged.iter().filter(|(_, at)| **at < cut);
        match certain.map(|(n, _)| *n).max() {
            Some(n) if n > reached => Err(format!("record {n} of thread {thread} is not there")),
            _ => Ok(reached),
        }
    };
    let reached: Vec<u64> = (0..)
        .zip(told(path))
        .map(reached)
        .collect::<Result<_, _>>()?;
    judge(path, cut, &reached)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (outcome, status) = match words[..] {
        ["write", dir, told] => (write(dir.as_ref(), told.as_ref()), 3),
        ["plain-write", dir, told] => (plain_write(dir.as_ref(), told.as_ref()), 3),
        [mode @ ("check" | "plain-check"), dir, told, cut] => {
            let Ok(cut) = cut.parse() else {
                eprintln!("CUT is a number of nanoseconds");
                return ExitCode::from(2);
            };
            match mode {
                "check" => (check(dir.as_ref(), told.as_ref(), cut), 1),
                _ => (plain_check(dir.as_ref(), told.as_ref(), cut), 1),
            }
        }
        _ => {
            eprintln!("keys [plain-]write DIR TOLD | keys [plain-]check DIR TOLD CUT");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(status)
        }
    }
}
