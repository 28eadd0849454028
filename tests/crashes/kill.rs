//! Goal: whatever a process acknowledged before it was killed is there afterwards, whole batches and right order
//! included, and opening after a kill always works.
//!
//! Method: a child process (this binary again) writes to a database on the real disk and, behind each acknowledged
//! write, sends its number through a pipe. It is killed (SIGKILL) some milliseconds after it began; the parent opens the
//! folder and finds all it was told of, at most one write more, and goes on with the next child. Nearly all of the
//! database outlives many children, so each opens what the ones before it left.
//!
//! `EBBTIDE_KILLS` says how often (default 100), `EBBTIDE_SEED` where the choices start.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]
#![cfg(unix)]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use ebbtide::Durability;
use testkit::oracle::{Expected, Oracle, options};
use testkit::patience::comes_true;
use testkit::process;
use testkit::random::Random;

const CHILD: &str = "EBBTIDE_KILL_CHILD";
const SEED: &str = "EBBTIDE_KILL_SEED";

/// Writes step by step, from the first that is not there, until it is killed.
pub fn write_until_killed(path: &Path, seed: u64) {
    let mut random = Random(seed);
    let durability = random.pick(&[
        Durability::Sync,
        Durability::Buffered,
        Durability::Buffered,
        Durability::Buffered,
    ]);
    let oracle = Oracle::open(path, &options(durability)).unwrap();
    let mut n = oracle.latest().unwrap() + 1;
    let mut told = std::io::stdout();
    told.write_all(TELLS).unwrap();
    loop {
        oracle.take(n).unwrap();
        // Straight to the pipe: nothing is told before it is done, or kept back after.
        told.write_all(&n.to_le_bytes()).unwrap();
        told.flush().unwrap();
        oracle.stir(n, &mut random).unwrap();
        n += 1;
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path), testkit::env(SEED, 0));
    }
    let kills = testkit::env("EBBTIDE_KILLS", 100);
    let mut random = Random(testkit::env("EBBTIDE_SEED", 1));
    let mut folder = tempfile::tempdir().unwrap();
    let mut expected = Expected::default();
    let mut total = 0;
    for kill in 0..kills {
        if random.one_in(20) {
            (folder, expected) = (tempfile::tempdir().unwrap(), Expected::default());
        }
        let told = one_life(folder.path(), random.next(), random.below(40) as u64);
        total += told.saturating_sub(expected.count);
        let oracle = Oracle::open(folder.path(), &options(Durability::Buffered))
            .unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        let found = oracle.latest().unwrap();
        // One write may have been done and not yet been told of.
        let least = told.max(expected.count);
        assert!(
            found == least || found == least + 1,
            "kill {kill}: {found} is there, {told} was told"
        );
        expected.advance(found);
        expected
            .compare(&oracle)
            .unwrap_or_else(|what| panic!("kill {kill}: {what}"));
        if random.one_in(2) {
            // Else the handle is just dropped: both ways of ending are there for the next child to open.
            oracle.db.close().unwrap();
        }
    }
    assert!(
        total >= kills / 2,
        "{total} writes in {kills} lives: the children do not get to write"
    );
    println!("FIGURE killed processes: {kills} kills, {total} acknowledged writes, 0 lost");
}

/// Lets a child live for some milliseconds; answers the last write it told of.
fn one_life(path: &Path, seed: u64, millis: u64) -> u64 {
    let mut child = process::alone(module_path!(), "nothing_acknowledged_is_lost_by_a_kill")
        .env(CHILD, path)
        .env(SEED, (seed % 1_000_000).to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let (began, begins) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut told, mut part) = (vec![], [0; 4_096]);
        while let Ok(len @ 1..) = pipe.read(&mut part) {
            told.extend_from_slice(&part[..len]);
            if header(&told) < told.len() {
                let _ = began.send(());
            }
        }
        told
    });
    // One in four is killed while it starts and opens, at whatever point it has come to; the others once they write.
    let waits = !seed.is_multiple_of(4);
    let hangs = waits && !comes_true(|| begins.try_recv() != Err(TryRecvError::Empty));
    std::thread::sleep(Duration::from_millis(millis));
    child.kill().unwrap();
    assert!(
        !hangs,
        "the child opened the database and does not get to write"
    );
    let status = child.wait().unwrap();
    let told = reader.join().unwrap();
    if status.signal() != Some(9) {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        panic!(
            "the child ended by itself: {status}\n{}{text}",
            String::from_utf8_lossy(&told)
        );
    }
    let mut numbers = told[header(&told)..]
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    numbers.next_back().unwrap_or(0)
}

/// Where the numbers begin: the test harness prints a few lines of its own first.
fn header(told: &[u8]) -> usize {
    let at = told.windows(TELLS.len()).position(|window| window == TELLS);
    at.map_or(told.len(), |at| at + TELLS.len())
}

/// Stands before the first number.
pub const TELLS: &[u8] = b"<told>";
