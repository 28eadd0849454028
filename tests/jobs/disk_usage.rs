//! Goal: `Database::disk` says what the folder consists of: its rows add up to what `du` says, to the byte, and say who
//! keeps what, whatever is held, pinned, killed or foreign.
//!
//! Method: databases on the real file system, whose allocated blocks the test counts by itself, at every pause of a
//! load; what a table is made of is compared with what was written.

#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::SystemTime;

use ebbtide::internals::Sim;
use ebbtide::{
    Compression, ContainerOptions, Database, DiskHolder, DiskKind, DiskRow, DiskUsage, ManualClock,
    Options, Reads, Ttl,
};
use tempfile::TempDir;
use testkit::patience::comes_true;
use testkit::process;
use testkit::random::Random;
use testkit::stage::{NOW, after, at, ms, open, seconds};
use testkit::watched::Watched;

const CHILD: &str = "EBBTIDE_DISK_CHILD";

/// Allocated bytes of everything in a folder, itself included, as `du` counts them; what vanishes meanwhile counts as 0.
fn du(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return 0;
    };
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten();
        bytes += entries.map(|entry| du(&entry.unwrap().path())).sum::<u64>();
    }
    bytes
}

fn exact(db: &Database, path: &Path, when: &str) -> DiskUsage {
    let usage = db.disk().unwrap();
    assert_eq!(usage.bytes(), du(path), "{when}: {usage:#?}");
    let kinds = usage.rows.iter().filter(|row| !row.unlinked);
    let by_kind: u64 = kinds.map(|row| row.bytes).sum();
    assert_eq!(by_kind, usage.bytes());
    assert!(usage.rows.iter().all(|row| row.bytes > 0));
    usage
}

fn stepped(clock: &ManualClock) -> Options {
    Options::new()
        .clock(clock.clone())
        .stepped()
        .memtable_bytes(256 << 10)
        .sizes(4 << 10, 256 << 10, 1 << 20)
}

/// Such a database in a folder of its own.
fn on_disk(adapt: impl FnOnce(Options) -> Options) -> (TempDir, ManualClock, Database) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new(NOW));
    let db = adapt(stepped(&clock)).open(folder.path()).unwrap();
    (folder, clock, db)
}

fn rows(usage: &DiskUsage, kind: DiskKind) -> Vec<&DiskRow> {
    usage.rows.iter().filter(|row| row.kind == kind).collect()
}

#[test]
fn rows_add_up_at_every_pause_of_a_load() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::new(NOW);
    let mut random = Random(testkit::env("EBBTIDE_SEED", 3));
    let mut db = stepped(&clock).open(folder.path()).unwrap();
    let (mut snapshots, mut values) = (vec![], vec![]);
    for round in 0..120 {
        let lz4 = ContainerOptions::new().compression(Compression::Lz4);
        let containers = [
            db.container("a").unwrap(),
            db.container_with("b", lz4).unwrap(),
        ];
        for _ in 0..random.below(400) {
            let c = &containers[random.below(2)];
            let key = format!("{:05}", random.below(3_000));
            let most = if random.one_in(50) { 40_000 } else { 300 };
            let value = vec![b'v'; random.below(most)];
            match random.below(10) {
                0 => c.delete(key).unwrap(),
                1 | 2 => c.put(key, value).unwrap(),
                _ => {
                    let ttl = seconds(1 + random.below(3_000) as u64);
                    c.put_with_ttl(key, value, ttl).unwrap();
                }
            }
        }
        clock.advance(seconds(random.below(120) as u64));
        let key = format!("{:05}", random.below(3_000));
        match random.below(12) {
            0 => db.flush().unwrap(),
            1 => snapshots.push(db.snapshot()),
            2 => values.extend(containers[random.below(2)].get(key).unwrap()),
            3 => snapshots.clear(),
            4 => values.clear(),
            5 if round > 60 => {
                let _ = db.drop_container("b").unwrap();
            }
            6 => {
                (snapshots, values) = (vec![], vec![]);
                drop((db, containers));
                db = stepped(&clock).open(folder.path()).unwrap();
            }
            _ => {
                for _ in 0..random.below(6) {
                    let _ = db.step().unwrap();
                }
            }
        }
        exact(&db, folder.path(), &format!("round {round}"));
    }
    db.compact().unwrap();
    exact(&db, folder.path(), "at the end");
}

/// With threads, whose work the test waits out: the sum is right as soon as the folder rests.
#[test]
fn rows_add_up_beside_threads() {
    let folder = tempfile::tempdir().unwrap();
    let db = Options::new()
        .memtable_bytes(256 << 10)
        .sync_interval(ms(10))
        .open(folder.path())
        .unwrap();
    let c = db.container("c").unwrap();
    for round in 0..20 {
        for n in 0..2_000 {
            c.put_with_ttl(format!("{n}"), vec![7; 200], ms(300))
                .unwrap();
        }
        let rests = || {
            let (before, usage) = (du(folder.path()), db.disk().unwrap());
            before == usage.bytes() && before == du(folder.path())
        };
        assert!(comes_true(rests), "round {round}");
    }
    // The ring is among it.
    assert!(db.disk().unwrap().of_kind(DiskKind::LogAhead) > 0);
}

/// Two containers of which all is known: a quarter each is live, expired, superseded, deleted.
#[test]
fn tables_divide_as_what_they_hold() {
    const ITEMS: u64 = 40_000;
    const WEIGHT: u64 = 8 + 100 + 16;
    let (folder, clock, db) = on_disk(|options| options.memtable_bytes(64 << 20));
    for name in ["one", "two"] {
        let c = db.container(name).unwrap();
        let key = |n: u64| format!("{:08}", n.wrapping_mul(2_654_435_761) % 100_000_000);
        for n in 0..ITEMS {
            let ttl = match n % 4 {
                1 => after(60_000),
                _ => Ttl::Never,
            };
            c.put_with_ttl(key(n), [b'v'; 100], ttl).unwrap();
        }
        db.flush().unwrap();
        for n in (0..ITEMS).filter(|n| n % 4 >= 2) {
            match n % 4 {
                2 => c.put(key(n), [b'w'; 100]).unwrap(),
                _ => c.delete(key(n)).unwrap(),
            }
        }
        db.flush().unwrap();
    }
    clock.advance(seconds(61));
    let usage = exact(&db, folder.path(), "four classes");
    let tombstones = ITEMS / 4 * (8 + 16);
    let quarter = ITEMS / 4 * WEIGHT;
    let stored = 5 * quarter + tombstones;
    for name in ["one", "two"] {
        let of = |kind| {
            let rows = rows(&usage, kind).into_iter();
            let rows = rows.filter(|row| row.container.as_deref() == Some(name));
            rows.map(|row| row.bytes).sum::<u64>()
        };
        let data = usage.of_container(name) - of(DiskKind::Overhead);
        let share = |bytes: u64| bytes as f64 / stored as f64;
        for (kind, bytes) in [
            (DiskKind::Live, 2 * quarter),
            (DiskKind::Expired, quarter),
            (DiskKind::Superseded, 2 * quarter),
            (DiskKind::Tombstones, tombstones),
        ] {
            let found = of(kind) as f64 / data as f64;
            let off = (found - share(bytes)).abs();
            assert!(off < 0.05, "{name}, {kind}: {found} for {}", share(bytes));
            assert!(bytes == 0 || of(kind) > 0);
        }
        assert!(of(DiskKind::Overhead) < data / 10);
    }
    let expired = rows(&usage, DiskKind::Expired);
    // Their tables end with them.
    assert!(
        expired.iter().all(|row| row.due == Some(at(60_000))),
        "{expired:?}"
    );
    db.compact().unwrap();
    let usage = exact(&db, folder.path(), "compacted");
    let gone = [
        DiskKind::Expired,
        DiskKind::Superseded,
        DiskKind::Tombstones,
    ];
    assert_eq!(gone.map(|kind| usage.of_kind(kind)), [0; 3], "{usage:#?}");
}

#[test]
fn a_snapshot_is_named_for_what_it_keeps() {
    let (folder, clock, db) = on_disk(|options| options);
    let c = db.container("c").unwrap();
    let fill = |byte: u8| {
        (0..1_000u32).for_each(|n| c.put(n.to_be_bytes(), vec![byte; 100]).unwrap());
        db.flush().unwrap();
    };
    fill(1);
    clock.advance(seconds(5));
    let snapshot = db.snapshot();
    clock.advance(seconds(5));
    fill(2);
    db.compact().unwrap();
    let usage = exact(&db, folder.path(), "beside a snapshot");
    let [row] = rows(&usage, DiskKind::Superseded)[..] else {
        panic!("{usage:#?}")
    };
    assert_eq!(
        (row.holder, row.since),
        (Some(DiskHolder::Snapshot), Some(at(5_000)))
    );
    assert!(row.bytes >= 100_000);
    drop(snapshot);
    db.compact().unwrap();
    let usage = exact(&db, folder.path(), "without it");
    assert_eq!(rows(&usage, DiskKind::Superseded), Vec::<&DiskRow>::new());
    // An iterator holds versions, too, but is no snapshot of a user.
    let mut iter = c.iter();
    let _ = iter.next();
    fill(3);
    let usage = exact(&db, folder.path(), "beside an iterator");
    assert_eq!(rows(&usage, DiskKind::Superseded)[0].holder, None);
}

#[test]
fn a_value_is_named_for_the_file_it_keeps() {
    for reads in [Reads::Map, Reads::Pread] {
        let (folder, clock, db) = on_disk(|options| options.reads(reads));
        let c = db.container("c").unwrap();
        c.put("k", vec![1; 100_000]).unwrap();
        db.flush().unwrap();
        let value = c.get("k").unwrap().unwrap();
        clock.advance(seconds(5));
        c.delete("k").unwrap();
        db.compact().unwrap();
        let usage = exact(&db, folder.path(), "a value is held");
        let obsolete = rows(&usage, DiskKind::Obsolete);
        match reads {
            Reads::Map => {
                let [row] = obsolete[..] else {
                    panic!("{usage:#?}")
                };
                assert_eq!(
                    (row.holder, row.since),
                    (Some(DiskHolder::Value), Some(at(5_000)))
                );
                assert_eq!(row.container.as_deref(), Some("c"));
                assert!(row.unlinked && row.bytes >= 100_000 && row.bytes < 120_000);
                assert_eq!(usage.unlinked_bytes(), row.bytes);
            }
            // Without a map it is a copy.
            _ => assert_eq!(obsolete, Vec::<&DiskRow>::new()),
        }
        assert_eq!(value, vec![1; 100_000]);
        drop(value);
        let usage = exact(&db, folder.path(), "it is not");
        assert_eq!(
            (
                rows(&usage, DiskKind::Obsolete).len(),
                usage.unlinked_bytes()
            ),
            (0, 0)
        );
    }
}

#[test]
fn a_checkpoint_is_named_for_the_files_it_keeps() {
    let (fs, clock) = (Watched::new(Sim::new(1)), ManualClock::new(NOW));
    let options = stepped(&clock).fs(Arc::new(fs.clone()));
    let (db, c) = open(options);
    let fill = move |c: &ebbtide::Container| {
        (0..1_000u32).for_each(|n| c.put(n.to_be_bytes(), vec![1; 100]).unwrap());
    };
    fill(&c);
    let seen = Arc::new(Mutex::new(None));
    let (during, told) = (db.clone(), seen.clone());
    fs.once("hard_link", ".table", move || {
        fill(&c);
        during.compact().unwrap();
        *told.lock().unwrap() = Some(during.disk().unwrap());
    });
    db.checkpoint("/copy").unwrap();
    let usage = seen.lock().unwrap().take().unwrap();
    let obsolete = rows(&usage, DiskKind::Obsolete);
    let by = obsolete.iter().map(|row| row.holder).collect::<Vec<_>>();
    assert!(by.contains(&Some(DiskHolder::Checkpoint)), "{usage:#?}");
    let tables: u64 = obsolete.iter().map(|row| row.bytes).sum();
    assert!(tables >= 100_000 && obsolete.iter().all(|row| !row.unlinked));
    let after = db.disk().unwrap();
    assert_eq!(rows(&after, DiskKind::Obsolete), Vec::<&DiskRow>::new());
}

/// The file of a job under way is one, and no orphan.
#[test]
fn a_running_job_has_a_row() {
    let (fs, clock) = (Watched::new(Sim::new(1)), ManualClock::new(NOW));
    let options = stepped(&clock).fs(Arc::new(fs.clone()));
    let (db, c) = open(options);
    (0..1_000u32).for_each(|n| c.put(n.to_be_bytes(), vec![1; 100]).unwrap());
    let seen = Arc::new(Mutex::new(None));
    let (during, told) = (db.clone(), seen.clone());
    fs.once("sync_dir", "tables", move || {
        *told.lock().unwrap() = Some(during.disk().unwrap());
    });
    db.flush().unwrap();
    let usage = seen.lock().unwrap().take().unwrap();
    assert!(usage.of_kind(DiskKind::Running) >= 100_000, "{usage:#?}");
    assert_eq!(usage.of_kind(DiskKind::Live), 0);
    let after = db.disk().unwrap();
    assert_eq!(after.of_kind(DiskKind::Running), 0);
    assert!(after.of_kind(DiskKind::Live) >= 100_000);
}

#[test]
fn the_log_is_what_is_needed_and_what_is_ahead() {
    let (folder, _clock, db) = on_disk(|options| options.memtable_bytes(16 << 20));
    let c = db.container("c").unwrap();
    let before = exact(&db, folder.path(), "empty");
    (0..4_000u32).for_each(|n| c.put(n.to_be_bytes(), vec![1; 1_000]).unwrap());
    let after = exact(&db, folder.path(), "4 MB logged");
    let grown = after.of_kind(DiskKind::Log) - before.of_kind(DiskKind::Log);
    let logged = db.stats().bytes_logged;
    assert!(
        logged > 4_000_000 && grown.abs_diff(logged) <= 1 << 16,
        "{grown} for {logged}"
    );
    // The rest of a segment of one MiB, and the next.
    let ahead = after.of_kind(DiskKind::LogAhead);
    assert!(((1 << 20)..(2 << 20)).contains(&ahead), "{after:#?}");
    db.flush().unwrap();
    assert!(exact(&db, folder.path(), "flushed").of_kind(DiskKind::Log) <= 1 << 20);
}

#[test]
fn what_is_not_the_database_s_is_counted_too() {
    let (folder, _clock, db) = on_disk(|options| options);
    db.container("c").unwrap().put("k", "v").unwrap();
    db.flush().unwrap();
    let before = exact(&db, folder.path(), "alone");
    for deep in ["lost/tables", "mine/more"] {
        fs::create_dir_all(folder.path().join(deep)).unwrap();
    }
    let page = |name: &OsStr| fs::write(folder.path().join(name), [1; 4096]).unwrap();
    page(OsStr::new("lost/tables/000001.table"));
    page(OsStr::new("mine/more/notes"));
    page(OsStr::new("tables/notes"));
    page(OsStr::new("wal/notes"));
    page(OsStr::from_bytes(b"mine/\xff\xfe"));
    // A link is itself, not what it leads to.
    symlink("/", folder.path().join("mine/all")).unwrap();
    let after = exact(&db, folder.path(), "with others' files");
    let more = |kind| after.of_kind(kind) - before.of_kind(kind);
    assert!(more(DiskKind::Lost) >= 4096);
    assert!(
        (4 * 4096..6 * 4096).contains(&more(DiskKind::Other)),
        "{after:#?}"
    );
    assert_eq!(more(DiskKind::Live), 0);
    assert!(rows(&after, DiskKind::Obsolete).is_empty());
}

/// Writes until it is killed.
fn child(path: &Path) -> ! {
    let options = Options::new().memtable_bytes(256 << 10);
    let c = options.open(path).unwrap().container("c").unwrap();
    let ready = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            std::process::abort();
        });
        for n in 0..u32::MAX {
            let (key, ttl) = ((n % 5_000).to_be_bytes(), seconds(60));
            c.put_with_ttl(key, vec![1; 500], ttl).unwrap();
            ready.store(n > 20_000, Ordering::Relaxed);
        }
    });
    unreachable!("it aborts")
}

#[test]
fn rows_add_up_after_a_kill_and_read_only() {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "rows_add_up_after_a_kill_and_read_only";
    let mut process = process::alone(module_path!(), name);
    process.env(CHILD, folder.path());
    assert!(!process.output().unwrap().status.success());
    // A table that a job had begun.
    fs::write(folder.path().join("tables/999999.table"), [1; 10_000]).unwrap();
    let read_only = || Options::new().read_only(true).open(folder.path()).unwrap();
    let db = read_only();
    let usage = exact(&db, folder.path(), "killed, read-only");
    assert!(usage.of_kind(DiskKind::Obsolete) >= 10_000, "{usage:#?}");
    assert_eq!(usage.of_kind(DiskKind::Running), 0);
    assert!(usage.of_kind(DiskKind::Log) > 0 && usage.of_container("c") > 0);
    assert!(usage.of_kind(DiskKind::LogAhead) > 0, "{usage:#?}");
    drop(db);
    let db = Database::open(folder.path()).unwrap();
    let follower = Options::new().follow(folder.path()).unwrap();
    let rests = || {
        let (before, usage) = (du(folder.path()), db.disk().unwrap());
        follower.catch_up().unwrap();
        let sums = [usage.bytes(), follower.disk().unwrap().bytes()];
        sums == [before; 2] && before == du(folder.path())
    };
    assert!(comes_true(rests));
    // A merge may have just replaced what is there.
    assert!(comes_true(|| db
        .disk()
        .unwrap()
        .of_kind(DiskKind::Obsolete)
        == 0));
    drop(follower);
    db.compact().unwrap();
    db.close().unwrap();
    assert!(db.disk().unwrap_err().is_closed());
    let db = read_only();
    let usage = exact(&db, folder.path(), "closed, read-only");
    assert_eq!(usage.of_kind(DiskKind::Obsolete), 0, "{usage:#?}");
}

/// A file that the writer has replaced keeps its blocks until the follower that reads it lets go of it.
#[test]
fn a_follower_is_named_for_what_it_keeps() {
    let (folder, clock, db) = on_disk(|options| options);
    let c = db.container("c").unwrap();
    let fill = |byte: u8| {
        (0..1_000u32).for_each(|n| c.put(n.to_be_bytes(), vec![byte; 100]).unwrap());
        db.compact().unwrap();
    };
    fill(1);
    let follower = stepped(&clock).follow(folder.path()).unwrap();
    let kept = |when: &str| {
        let usage = exact(&follower, folder.path(), when);
        let rows = usage.rows.into_iter();
        let kept = rows.filter(|row| row.holder.is_some() || row.unlinked);
        kept.collect::<Vec<_>>()
    };
    assert_eq!(kept("nothing was replaced"), []);
    let is_all = |kept: &[DiskRow], since: Option<SystemTime>| {
        let [row] = kept else { panic!("{kept:?}") };
        assert!(row.unlinked && row.bytes > 100_000, "{row:?}");
        assert_eq!(
            (row.kind, row.holder),
            (DiskKind::Obsolete, Some(DiskHolder::Follower))
        );
        assert_eq!((row.container.as_deref(), row.since), (Some("c"), since));
    };
    fill(2);
    is_all(&kept("the follower has not caught up"), None);
    let snapshot = follower.snapshot();
    clock.advance(seconds(5));
    follower.catch_up().unwrap();
    is_all(&kept("a snapshot of the follower is held"), Some(at(5_000)));
    assert!(follower.stats().pinned_bytes > 100_000);
    assert_eq!(exact(&db, folder.path(), "the writer").unlinked_bytes(), 0);
    drop(snapshot);
    assert_eq!(kept("it is dropped"), []);
    assert_eq!(follower.stats().pinned_bytes, 0);
}
