//! Goal: followers in this process see a prefix of the history that another process writes, all that it has told of,
//! at every moment, while it is killed (SIGKILL) and its next life opens what it left; and nobody writes but the
//! writer.
//!
//! Method: a child process (this binary again) writes the history of `testkit::oracle`, which tells of itself, and
//! sends each number through a pipe once that write is acknowledged. One follower is asked to catch up, and then
//! stands still to be compared; it has to show at least what was told before. Another one catches up by itself every
//! millisecond, and is read through snapshots. Both follow through many lives.
//!
//! `EBBTIDE_KILLS` says how often (default 20), `EBBTIDE_SEED` where the choices start.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]
#![cfg(unix)]

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebbtide::{Database, Durability, Result};
use testkit::oracle::{Expected, Oracle, options};
use testkit::patience::wait_until;
use testkit::process;
use testkit::random::Random;

use crate::kill::{TELLS, write_until_killed};

const CHILD: &str = "EBBTIDE_FOLLOW_CHILD";
const SEED: &str = "EBBTIDE_FOLLOW_SEED";

/// A child that writes, and the last number it told of.
struct Life {
    child: Child,
    told: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Life {
    fn begin(path: &Path, seed: u64) -> Life {
        let mut child = process::alone(
            module_path!(),
            "followers_see_what_a_killed_process_has_told",
        )
        .env(CHILD, path)
        .env(SEED, (seed % 1_000_000).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let (told, ended) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (tells, ends) = (told.clone(), ended.clone());
        std::thread::spawn(move || {
            let (mut text, mut part) = (vec![], [0; 4_096]);
            while let Ok(len @ 1..) = pipe.read(&mut part) {
                text.extend_from_slice(&part[..len]);
                let begins = text.windows(TELLS.len()).position(|window| window == TELLS);
                let Some(begins) = begins else { continue };
                let numbers = text[begins + TELLS.len()..].chunks_exact(8);
                if let Some(last) = numbers.last() {
                    let last = u64::from_le_bytes(last.try_into().unwrap());
                    tells.store(last, Ordering::SeqCst);
                    // Only the last whole number and what follows it is needed any more.
                    let rest = (text.len() - begins - TELLS.len()) % 8;
                    let rest = text.split_off(text.len() - rest);
                    text = [TELLS, &rest].concat();
                }
            }
            ends.store(true, Ordering::SeqCst);
        });
        Life { child, told, ended }
    }

    fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    /// Kills it; answers the last number it told of.
    fn end(mut self) -> u64 {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(
            status.signal(),
            Some(9),
            "the child ended by itself: {status}"
        );
        wait_until("the pipe ends", || self.ended.load(Ordering::SeqCst));
        self.told()
    }
}

/// Compares one snapshot with what should be there; answers how far the history got in it.
fn compare_snapshot(db: &Database, expected: &mut Expected) {
    let snapshot = db.snapshot();
    let log = snapshot.container("log").unwrap();
    let steps: Vec<_> = log.iter().collect::<Result<_>>().unwrap();
    let steps = steps.len() as u64;
    assert!(steps >= expected.count, "{steps} after {}", expected.count);
    expected.advance(steps);
    for name in ["data", "mirror"] {
        let view = snapshot.container(name).unwrap();
        let mut there = 0;
        for item in view.iter() {
            let item = item.unwrap();
            let key = std::str::from_utf8(item.key()).unwrap().to_owned();
            assert_eq!(
                Some(&item.value()[..]),
                expected.value(&key),
                "{name}, {key}, step {steps}"
            );
            there += 1;
        }
        assert_eq!(there, expected.len(), "{name}, step {steps}");
    }
}

#[test]
fn followers_see_what_a_killed_process_has_told() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path), testkit::env(SEED, 0));
    }
    let kills = testkit::env("EBBTIDE_KILLS", 20);
    let mut random = Random(testkit::env("EBBTIDE_SEED", 1));
    let folder = tempfile::tempdir().unwrap();
    drop(Oracle::open(folder.path(), &options(Durability::Buffered)).unwrap());
    let asked = Oracle::follow(folder.path(), &options(Durability::Buffered).stepped()).unwrap();
    let by_itself = options(Durability::Buffered).catch_up_interval(Duration::from_millis(1));
    let by_itself = by_itself.follow(folder.path()).unwrap();
    let (mut expected, mut snapshots) = (Expected::default(), Expected::default());
    let (mut told, mut looks) = (0, 0);
    for kill in 0..kills {
        let life = Life::begin(folder.path(), random.next());
        let goal = told + 1 + random.below(400) as u64;
        // Looks go on until the child has told of so many writes.
        wait_until("the child writes", || {
            told = told.max(life.told());
            asked.db.catch_up().unwrap();
            let found = asked.latest().unwrap();
            assert!(
                found >= told,
                "kill {kill}: {found} is shown, {told} was told"
            );
            assert!(
                found >= expected.count,
                "kill {kill}: {found} after {}",
                expected.count
            );
            expected.advance(found);
            let compared = expected.compare(&asked);
            compared.unwrap_or_else(|what| panic!("kill {kill}: {what}"));
            compare_snapshot(&by_itself, &mut snapshots);
            looks += 1;
            told >= goal
        });
        told = told.max(life.end());
        asked.db.catch_up().unwrap();
        assert!(asked.latest().unwrap() >= told);
    }
    assert_eq!(by_itself.stats().background_error, None);
    println!("FIGURE followed processes: {kills} kills, {told} writes, {looks} looks, 0 wrong");
}

/// Everything of every file that reading might change.
fn files(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u64, i64, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        let data = entry.metadata().unwrap();
        let bytes = match data.is_dir() {
            true => {
                found.extend(files(&entry));
                vec![]
            }
            false => std::fs::read(&entry).unwrap(),
        };
        let times = (data.mtime(), data.mtime_nsec(), data.ctime_nsec());
        found.insert(entry, (bytes, data.ino(), times.0, times.1, times.2));
    }
    found
}

#[test]
fn a_follower_changes_no_byte_and_no_time_and_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let life = Life::begin(path, 7);
    wait_until("the child writes", || life.told() > 600);
    life.end();
    let before = files(path);
    let follower = Oracle::follow(path, &options(Durability::Buffered)).unwrap();
    follower.db.catch_up().unwrap();
    let mut expected = Expected::default();
    expected.advance(follower.latest().unwrap());
    expected.compare(&follower).unwrap();
    assert!(follower.db.stats().live_items > 0);
    assert!(follower.db.verify().unwrap().faults.is_empty());
    assert!(files(path) == before, "a follower changed something");
    // It holds no lock: a writer and a repair get theirs.
    let writer = Oracle::open(path, &options(Durability::Buffered)).unwrap();
    writer.take(expected.count + 1).unwrap();
    follower.db.catch_up().unwrap();
    assert_eq!(follower.latest().unwrap(), expected.count + 1);
    drop(writer);
    let report = ebbtide::repair(path, true).unwrap();
    assert!(report.losses.is_empty());
    follower.db.catch_up().unwrap();
    assert_eq!(follower.latest().unwrap(), expected.count + 1);
    follower.db.close().unwrap();
}
