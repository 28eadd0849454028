//! Goal: when flushing is blocked, memory stays under its bound, writers wait or fail as configured, and everything
//! continues when the fault ends; and closing always completes, whatever the threads are doing, and leaves no thread.
//!
//! Method: real threads on the real disk. The folder of tables is removed under an open database, so that every flush
//! fails, and put back. Nothing is measured in time: tests wait for conditions.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use ebbtide::{Database, Error, Options, Stall};

use testkit::patience::wait_until;
use testkit::process;

const MEMTABLE: usize = 256 << 10;
const VALUE: usize = 1_000;
const WRITERS: u64 = 3;

/// The engine's threads in this process.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("ebbtide-"))
        .count()
}

/// Writes until the database is closed; counts what was acknowledged. Answers how often it was refused for now.
fn write(db: &Database, writer: u64, acknowledged: &Arc<AtomicU64>) -> JoinHandle<u64> {
    let items = db.container(format!("items-{writer}")).unwrap();
    let acknowledged = acknowledged.clone();
    thread::spawn(move || {
        let (mut n, mut stalls) = (0u64, 0);
        loop {
            match items.put(n.to_be_bytes(), [b'x'; VALUE]) {
                Ok(()) => {
                    n += 1;
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) if error.is_closed() => return stalls,
                Err(Error::Stalled) => {
                    stalls += 1;
                    sleep(Duration::from_millis(1));
                }
                // A failure in the background is told to the next writer.
                Err(Error::Io { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    })
}

fn blocked_and_closed(path: &Path, on_stall: Stall) -> u64 {
    let open = || {
        Options::new()
            .memtable_bytes(MEMTABLE)
            .on_stall(on_stall)
            .open(path)
    };
    let (tables, away) = (path.join("tables"), path.join("away"));
    let db = open().unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let count = || acknowledged.load(Ordering::SeqCst);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| write(&db, writer, &acknowledged))
        .collect();
    let mut most = 0;
    for _ in 0..2 {
        let before = count();
        wait_until("writers get nowhere", || count() > before + 1_000);
        fs::rename(&tables, &away).unwrap();
        // At rest: for two tenths of a second nobody has got anything acknowledged.
        let mut last = (count(), Instant::now());
        wait_until("writers go on for ever without a flush", || {
            most = most.max(db.stats().memtable_bytes);
            if count() != last.0 {
                last = (count(), Instant::now());
            }
            last.1.elapsed() > Duration::from_millis(200)
        });
        fs::rename(&away, &tables).unwrap();
    }
    let before = count();
    wait_until("nothing goes on when flushing does", || {
        most = most.max(db.stats().memtable_bytes);
        count() > before + 1_000
    });
    // Three times the budget stops writers; each may have one more write under way, and memory comes in chunks.
    let bound = (3 * MEMTABLE + MEMTABLE) as u64;
    assert!(most <= bound, "{most} bytes in memory, {bound} at most");
    assert!(
        most > 2 * MEMTABLE as u64,
        "{most}: flushing was not blocked"
    );

    // Blocked once more, and closed in the midst of it.
    fs::rename(&tables, &away).unwrap();
    sleep(Duration::from_millis(100));
    let closing = db.clone();
    let closing = thread::spawn(move || closing.close());
    wait_until("closing hangs", || closing.is_finished());
    closing.join().unwrap().unwrap();
    let stalls: u64 = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .sum();
    drop(db);
    wait_until("threads are left", || threads() == 0);
    assert_eq!(
        stalls > 0,
        on_stall == Stall::Fail,
        "{stalls} writers failed"
    );
    fs::rename(&away, &tables).unwrap();
    let db = open().unwrap();
    let found: usize = (0..WRITERS)
        .map(|writer| db.container(format!("items-{writer}")).unwrap())
        .map(|items| items.iter().inspect(|item| assert!(item.is_ok())).count())
        .sum();
    let acknowledged = count();
    assert!(
        (acknowledged..=acknowledged + WRITERS).contains(&(found as u64)),
        "{acknowledged} acknowledged, {found} there"
    );
    db.close().unwrap();
    most
}

#[test]
fn a_blocked_flush_bounds_memory_and_closing_ends() {
    let name = "a_blocked_flush_bounds_memory_and_closing_ends";
    // It counts the threads of its process.
    if !process::is_alone(module_path!(), name) {
        return;
    }
    let mut most = 0;
    for on_stall in [Stall::Wait, Stall::Fail] {
        let dir = tempfile::tempdir().unwrap();
        most = most.max(blocked_and_closed(dir.path(), on_stall));
    }
    assert_eq!(threads(), 0);
    println!(
        "FIGURE blocked flushes: 6, at most {:.2} of memtable_bytes in memory, closed each time",
        most as f64 / MEMTABLE as f64
    );
}
