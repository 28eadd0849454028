//! Days of use in accelerated time, on the real disk, with real threads: every answer is compared with a model, and
//! memory, file handles, threads and files are monitored.
//!
//! ```text
//! soak [DIR]        for EBBTIDE_SECONDS (60), from EBBTIDE_SEED (1) on; DIR is made and must not exist; a temporary one
//!                   when it is missing. Time runs 600 times as fast: a simulated day lasts 144 s.
//! ```
//!
//! Each writer has keys of its own and knows what they must hold; near an expiry either answer is right. Every few
//! seconds the database is closed, in the midst of background work, and opened again with other options. Ends with a line
//! that begins with FIGURE; a broken promise is a panic.

// Like the tests, a world of its own.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ebbtide::{
    Clock, Compression, Container, ContainerOptions, Database, DefaultTtl, Durability, Options, Ttl,
};
use testkit::random::Random;

/// How much faster time runs.
const SPEED: u64 = 600;
/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000;
const WRITERS: u64 = 3;
const KEYS: usize = 4_000;
const MEMTABLE: usize = 1 << 20;
const CACHE: usize = 4 << 20;
const DEFAULT_TTL: u64 = 3_600_000;
/// Nothing takes so long that does not hang.
const HANGS: Duration = Duration::from_secs(120);

#[derive(Clone)]
struct Fast(Instant);

impl Clock for Fast {
    fn wall(&self) -> u64 {
        START + self.uptime()
    }

    fn uptime(&self) -> u64 {
        self.0.elapsed().as_millis() as u64 * SPEED
    }
}

/// The content of a key: its value, and between which moments it expires, if ever.
type Holds = Option<(Vec<u8>, Option<(u64, u64)>)>;

struct Writer {
    name: String,
    clock: Fast,
    random: Random,
    holds: BTreeMap<String, Holds>,
}

impl Writer {
    fn key(&mut self) -> String {
        format!("{}-{:05}", self.name, self.random.below(KEYS))
    }

    /// Writes and reads as it comes, and compares.
    fn run(&mut self, c: &Container, stop: &AtomicBool, counted: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            match self.random.below(100) {
                0..50 => self.put(c),
                50..58 => {
                    let key = self.key();
                    c.delete(&key).unwrap();
                    self.holds.insert(key, None);
                }
                58..60 => {
                    let from = self.key();
                    let to = format!("{from}~");
                    c.delete_range(from.clone()..to.clone()).unwrap();
                    self.holds
                        .range_mut(from..to)
                        .for_each(|held| *held.1 = None);
                }
                60..99 => {
                    let key = self.key();
                    self.compare(c, &key);
                }
                _ => self.scan(c),
            }
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn put(&mut self, c: &Container) {
        let key = self.key();
        let len = if self.random.one_in(100) {
            20_000
        } else {
            self.random.below(400)
        };
        let value = vec![self.random.next() as u8; len];
        let (ttl, life) = match self.random.below(4) {
            0 => (Ttl::Inherit, Some(DEFAULT_TTL)),
            1 if self.random.one_in(4) => (Ttl::Never, None),
            _ => {
                let life = 60_000 << self.random.below(9);
                (Ttl::After(Duration::from_millis(life)), Some(life))
            }
        };
        let before = self.clock.wall();
        c.put_with_ttl(&key, &value, ttl).unwrap();
        let after = self.clock.wall();
        let ends = life.map(|life| (before + life, after + life));
        self.holds.insert(key, Some((value, ends)));
    }

    fn compare(&self, c: &Container, key: &str) {
        let before = self.clock.wall();
        let found = c.get(key).unwrap();
        let after = self.clock.wall();
        self.judge(key, found.as_deref(), before, after);
    }

    /// Between `before` and `after` this was read.
    fn judge(&self, key: &str, found: Option<&[u8]>, before: u64, after: u64) {
        match (self.holds.get(key).and_then(Option::as_ref), found) {
            (None, None) => {}
            (None, Some(_)) => panic!("{key} was deleted or never written, and is there"),
            (Some((_, ends)), None) => {
                let may = ends.is_some_and(|(first, _)| first <= after);
                assert!(may, "{key} is not expired, and not there");
            }
            (Some((value, ends)), Some(found)) => {
                let may = ends.is_none_or(|(_, last)| last > before);
                assert!(may, "{key} is expired, and there");
                assert!(found == value, "{key} has another value");
            }
        }
    }

    /// All keys, or those of a prefix.
    fn scan(&mut self, c: &Container) {
        let mut prefix = self.key();
        prefix.truncate(prefix.len() - 2);
        let before = self.clock.wall();
        let found: BTreeMap<String, Vec<u8>> = c
            .prefix(&prefix)
            .map(|item| item.unwrap())
            .map(|item| {
                (
                    String::from_utf8(item.key().to_vec()).unwrap(),
                    item.value().to_vec(),
                )
            })
            .collect();
        let after = self.clock.wall();
        for n in 0..100 {
            let key = format!("{prefix}{n:02}");
            self.judge(&key, found.get(&key).map(Vec::as_slice), before, after);
        }
    }

    fn compare_all(&self, c: &Container) {
        for key in self.holds.keys() {
            self.compare(c, key);
        }
    }
}

/// The memory, handles and threads that the process takes.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    memory: u64,
    handles: usize,
    threads: usize,
}

impl Taken {
    #[cfg(target_os = "linux")]
    fn now() -> Taken {
        let count = |path: &str| fs::read_dir(path).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        // Without the pages of mapped files, which the system takes back as it likes.
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Taken {
            memory: kib.unwrap().trim().parse::<u64>().unwrap() << 10,
            handles: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> Taken {
        Taken::default()
    }

    fn most(self, other: Taken) -> Taken {
        Taken {
            memory: self.memory.max(other.memory),
            handles: self.handles.max(other.handles),
            threads: self.threads.max(other.threads),
        }
    }
}

fn open(path: &Path, clock: &Fast, random: &mut Random) -> Database {
    Options::new()
        .clock(clock.clone())
        .durability(random.pick(&[Durability::Buffered, Durability::Buffered, Durability::Sync]))
        .compression(random.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]))
        .memtable_bytes(MEMTABLE >> random.below(3))
        .cache_bytes(CACHE)
        .max_runs(random.pick(&[3, 8, 20]))
        .reclaim_within(Duration::from_secs(1_800))
        .open(path)
        .unwrap()
}

fn container(db: &Database, n: u64) -> Container {
    let default = DefaultTtl::After(Duration::from_millis(DEFAULT_TTL));
    let options = ContainerOptions::new().default_ttl(default);
    db.container_with(format!("of-{n}"), options).unwrap()
}

/// Files that are not known by their names, or whose tables no run has. The database rests.
fn strays(path: &Path, db: &Database) -> Vec<PathBuf> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    let known = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == "LOCK" || name.starts_with("manifest-") && !name.ends_with(".tmp")
    };
    let mut strays: Vec<_> = names(path)
        .into_iter()
        .filter(|path| !known(path))
        .collect();
    let ours = |path: &PathBuf| {
        path.extension()
            .is_some_and(|end| end == "wal" || end == "ring")
    };
    strays.extend(
        names(&path.join("wal"))
            .into_iter()
            .filter(|path| !ours(path)),
    );
    let tables = names(&path.join("tables"));
    if tables.len() as u64 != db.stats().tables {
        strays.extend(tables);
    }
    strays
}

/// One opening of the database; answers how much was taken meanwhile.
fn episode(
    path: &Path,
    clock: &Fast,
    writers: &mut [Writer],
    random: &mut Random,
    operations: &AtomicU64,
) -> Taken {
    let db = open(path, clock, random);
    let containers: Vec<Container> = (0..WRITERS).map(|n| container(&db, n)).collect();
    let stop = AtomicBool::new(false);
    let mut taken = Taken::default();
    thread::scope(|scope| {
        for (writer, container) in writers.iter_mut().zip(&containers) {
            writer.compare_all(container);
            scope.spawn(|| writer.run(container, &stop, operations));
        }
        let ends = Instant::now() + Duration::from_millis(2_000 + random.below(6_000) as u64);
        while Instant::now() < ends {
            sleep(Duration::from_millis(100));
            taken = taken.most(Taken::now());
            let memory = db.stats().memtable_bytes;
            assert!(memory <= 4 * MEMTABLE as u64, "{memory} bytes in memtables");
        }
        stop.store(true, Ordering::Relaxed);
    });
    for (writer, container) in writers.iter().zip(&containers) {
        writer.compare_all(container);
    }
    if random.one_in(3) {
        db.compact().unwrap();
        // The merge thread may be writing a table just now.
        let began = Instant::now();
        while !strays(path, &db).is_empty() && began.elapsed() < HANGS {
            sleep(Duration::from_millis(20));
        }
        let strays = strays(path, &db);
        assert!(strays.is_empty(), "{strays:?}");
    }
    let (done, waits) = mpsc::channel();
    thread::spawn(move || done.send(db.close()));
    waits.recv_timeout(HANGS).expect("closing hangs").unwrap();
    taken
}

fn main() {
    let seconds = testkit::env("EBBTIDE_SECONDS", 60);
    let mut random = Random(testkit::env("EBBTIDE_SEED", 1));
    let temporary = tempfile::tempdir().unwrap();
    let path = match std::env::args_os().nth(1) {
        Some(path) => PathBuf::from(path),
        None => temporary.path().join("db"),
    };
    assert!(!path.exists(), "{} is there already", path.display());
    let clock = Fast(Instant::now());
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|n| Writer {
            name: format!("w{n}"),
            clock: clock.clone(),
            random: Random(random.next()),
            holds: BTreeMap::new(),
        })
        .collect();
    let operations = Arc::new(AtomicU64::new(0));
    let before = Taken::now();
    let (mut most, mut episodes) = (Taken::default(), 0);
    while clock.0.elapsed().as_secs() < seconds {
        most = most.most(episode(
            &path,
            &clock,
            &mut writers,
            &mut random,
            &operations,
        ));
        episodes += 1;
        // Threads that were joined are gone, and with them what they held.
        let began = Instant::now();
        while Taken::now().threads > before.threads || Taken::now().handles > before.handles {
            let now = Taken::now();
            assert!(
                began.elapsed() < HANGS,
                "left behind: {now:?}, before {before:?}"
            );
            sleep(Duration::from_millis(10));
        }
        // The model's own memory counts too: its values, once more than twice.
        let bound = 8 * MEMTABLE as u64 + 2 * CACHE as u64 + (64 << 20);
        assert!(most.memory < bound, "{most:?}, more than {bound}");
        // Beside the writers the database's own: flush, merge, hurry, log, sync, and the one that publishes figures.
        assert!(
            most.threads <= before.threads + WRITERS as usize + 6,
            "{most:?}"
        );
        assert!(most.handles <= before.handles + 64, "{most:?}");
    }
    println!(
        "FIGURE soak: {seconds} s, {:.1} simulated days, {} operations, {episodes} openings, at most {} MiB, {} file \
         handles and {} threads, 0 violations",
        clock.uptime() as f64 / 86_400_000.0,
        operations.load(Ordering::Relaxed),
        most.memory >> 20,
        most.handles,
        most.threads,
    );
}
