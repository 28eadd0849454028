//! Goal: whatever a process acknowledged before it was killed is there afterwards, whole batches and right order
//! included, and opening after a kill always works.
//!
//! Method: a child process (this binary again) writes to a database on the real disk and, behind each acknowledged
//! write, sends a byte through a pipe. It is killed (SIGKILL) some milliseconds after it began; the parent opens the
//! folder and finds all it was told of, at most one write more, and goes on with the next child. Nearly all of the
//! database outlives many children, so each opens what the ones before it left.
//!
//! `EBBTIDE_KILLS` says how often (default 200), `EBBTIDE_SEED` where the choices start.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]
#![cfg(unix)]

mod support;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ebbtide::{Batch, Container, Database, DefaultTtl, Durability, Options, Ttl};
use support::random::Random;

const CHILD: &str = "EBBTIDE_KILL_CHILD";
const SEED: &str = "EBBTIDE_KILL_SEED";

fn open(path: &Path, sync: bool) -> ebbtide::Result<Database> {
    let durability = if sync {
        Durability::Sync
    } else {
        Durability::Buffered
    };
    Options::new()
        .durability(durability)
        .sync_interval(Duration::from_millis(5))
        .memtable_bytes(32 << 10)
        .max_runs(3)
        .sizes(512, 16 << 10, 64 << 10)
        .open(path)
}

/// Everything that the write `n` does. A reader of one of its traces knows what the others must be.
struct Step {
    n: u64,
    key: String,
    value: Vec<u8>,
    kind: u64,
}

fn step(n: u64) -> Step {
    let mut random = Random(n);
    let key = format!("key-{:03}", random.below(300));
    let len = if random.one_in(50) {
        20_000
    } else {
        random.below(300)
    };
    let mut value = format!("{n}|").into_bytes();
    value.resize(value.len() + len, b'a' + (n % 26) as u8);
    Step {
        n,
        key,
        value,
        kind: random.next() % 10,
    }
}

/// Writes step by step, from the first that is not there, until it is killed.
fn write_until_killed(path: &Path) {
    let mut random = Random(support::env(SEED, 0));
    let db = open(path, random.one_in(4)).unwrap();
    let (data, mirror, log) = containers(&db);
    let mut n = latest(&log) + 1;
    let mut told = std::io::stdout();
    told.write_all(TELLS).unwrap();
    loop {
        let one = step(n);
        take(&db, &data, &mirror, &log, &one).unwrap();
        // Straight to the pipe: nothing is told before it is done, or kept back after.
        told.write_all(&n.to_le_bytes()).unwrap();
        told.flush().unwrap();
        match random.below(400) {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => db.sync().unwrap(),
            3 => data
                .set_default_ttl(DefaultTtl::After(Duration::from_secs(86_400 * (1 + n % 3))))
                .unwrap(),
            _ => {}
        }
        n += 1;
    }
}

fn containers(db: &Database) -> (Container, Container, Container) {
    let open = |name| db.container(name).unwrap();
    (open("data"), open("mirror"), open("log"))
}

fn latest(log: &Container) -> u64 {
    let last = log.iter().next_back().transpose().unwrap();
    last.map_or(0, |item| u64::from_be_bytes(item.key().try_into().unwrap()))
}

fn take(
    db: &Database,
    data: &Container,
    mirror: &Container,
    log: &Container,
    step: &Step,
) -> ebbtide::Result<()> {
    let mut batch = Batch::new();
    match step.kind {
        0 => {
            batch.delete(data, &step.key).delete(mirror, &step.key);
        }
        1 => {
            // Expired at once wherever it counts: it hides what was there.
            let past = Ttl::Until(std::time::SystemTime::UNIX_EPOCH);
            batch
                .put_with_ttl(data, &step.key, "", past)
                .delete(mirror, &step.key);
        }
        _ => {
            batch.put(data, &step.key, &step.value).put_with_ttl(
                mirror,
                &step.key,
                &step.value,
                Ttl::Never,
            );
        }
    }
    batch.put(log, step.n.to_be_bytes(), "");
    db.write(batch)
}

/// What must be there after `count` steps.
fn expected(state: &mut std::collections::BTreeMap<String, Vec<u8>>, from: u64, to: u64) {
    for n in from + 1..=to {
        let one = step(n);
        match one.kind {
            0 | 1 => drop(state.remove(&one.key)),
            _ => drop(state.insert(one.key, one.value)),
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let kills = support::env("EBBTIDE_KILLS", 200);
    let mut random = Random(support::env("EBBTIDE_SEED", 1));
    let mut written = 0;
    let mut folder = tempfile::tempdir().unwrap();
    let mut state = std::collections::BTreeMap::new();
    let mut total = 0;
    for kill in 0..kills {
        if random.one_in(20) {
            (folder, written) = (tempfile::tempdir().unwrap(), 0);
            state.clear();
        }
        let told = one_life(folder.path(), random.next(), random.below(40) as u64);
        total += told.saturating_sub(written);
        let db = open(folder.path(), false).unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        let (data, mirror, log) = containers(&db);
        let found = latest(&log);
        // One write may have been done and not yet been told of.
        assert!(
            found == told.max(written) || found == told.max(written) + 1,
            "kill {kill}: {found} is there, {told} was told"
        );
        let new = log.range((written + 1).to_be_bytes().to_vec()..).count() as u64;
        assert_eq!(
            new,
            found - written,
            "kill {kill}: the log of writes has gaps"
        );
        expected(&mut state, written, found);
        written = found;
        if data.default_ttl() == DefaultTtl::Off {
            data.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        }
        for container in [&data, &mirror] {
            let found = container
                .iter()
                .map(|item| item.map(|item| (item.key().to_vec(), item.value().to_vec())));
            let found: Vec<_> = found
                .collect::<ebbtide::Result<_>>()
                .unwrap_or_else(|error| panic!("kill {kill}: {error}"));
            let expected: Vec<_> = state
                .iter()
                .map(|(key, value)| (key.clone().into_bytes(), value.clone()))
                .collect();
            assert!(
                found == expected,
                "kill {kill}: {} differs",
                container.name()
            );
        }
        if random.one_in(2) {
            // Else the handle is just dropped: both ways of ending are there for the next child to open.
            db.close().unwrap();
        }
    }
    assert!(
        total >= kills / 2,
        "{total} writes in {kills} lives: the children do not get to write"
    );
}

/// Lets a child live for some milliseconds; answers the last write it told of.
fn one_life(path: &Path, seed: u64, millis: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "nothing_acknowledged_is_lost_by_a_kill",
            "--nocapture",
            "--test-threads=1",
            "-q",
        ])
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
    let hangs = waits && begins.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout);
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

/// No machine is so slow that a first write takes longer.
const HANGS: Duration = Duration::from_secs(60);

/// Stands before the first number.
const TELLS: &[u8] = b"<told>";
