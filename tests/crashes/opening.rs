//! Goal: what an open loads into memory and removes, and what a close leaves for it. Method: the simulated disk is
//! compared before and after.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use ebbtide::internals::{
    Call, ContainerId, Fault, FaultPlan, FrameHeader, FrameKind, Fs, Header, Log, LogOptions, Op,
    PayloadCrc, Relogged, Seq, Sim, Survivors, Timestamp, WriteTtl, parse_manifest, repair_with,
    verify_in,
};
use ebbtide::{ClockBehind, Container, Database, DefaultTtl, Error, ManualClock, Options};
use testkit::stage;

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";

fn options(sim: &Sim) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .clock(ManualClock::new(START))
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
}

/// A killed database with an item that only its log holds.
fn killed() -> Sim {
    let sim = Sim::new(1);
    let db = options(&sim).open(PATH).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    db.sync().unwrap();
    sim.kill()
}

/// Every call of this kind fails from now on.
fn fail(sim: &Sim, kind: Fault, meets: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) {
    let plan = FaultPlan {
        at: sim.operations(),
        kind,
        lasting: true,
    };
    sim.fail_where(plan, meets);
}

fn makes_log(call: &Call<'_>) -> bool {
    call.operation == "create" && call.path.parent() == Some(Path::new("/db/wal"))
}

// An open removes the files that no manifest names, and nothing else.
#[test]
fn an_open_removes_what_was_left_over() {
    let sim = Sim::new(1);
    let db = options(&sim).open(PATH).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    db.flush().unwrap();
    let sim = sim.kill();
    let path = |name: &&str| Path::new(PATH).join(name);
    let left = [
        "manifest-000000",
        "manifest-000007.tmp",
        "copy/000000.manifest",
        "copy/000007.manifest.tmp",
        "tables/000099.table",
    ];
    let others = ["notes", "notes.tmp", "copy/notes"];
    for name in left.iter().chain(&others) {
        drop(sim.create(&path(name)).unwrap());
    }
    let db = options(&sim).open(PATH).unwrap();
    let is_there = |name: &&str| sim.len(&path(name)).unwrap().is_some();
    assert_eq!(left.iter().find(|name| is_there(name)), None);
    assert!(others.iter().all(is_there));
    let names = |folder: &str| sim.list(&path(&folder)).unwrap();
    let manifests = |name: &&String| name.contains("manifest");
    assert_eq!(names("").iter().filter(manifests).count(), 1);
    assert_eq!(names("copy").iter().filter(manifests).count(), 1);
    assert_eq!(names("tables").len(), 1);
    assert!(db.container("c").unwrap().contains("k").unwrap());
}

// The first manifest names no log: of what is there none counts, and no file is used twice.
#[test]
fn a_first_open_that_was_cut_off_leaves_its_log_behind() {
    let sim = Sim::new(1);
    fail(&sim, Fault::Io, makes_log);
    options(&sim).open(PATH).unwrap_err();
    let sim = sim.kill();
    let db = options(&sim).read_only(true).open(PATH).unwrap();
    assert!(db.containers().is_empty());
    drop(db);
    for (who, said) in looks(&sim).into_iter().skip(1) {
        said.expect(who);
    }
    let wal = Path::new("/db/wal");
    drop(sim.create(&wal.join("000007.wal")).unwrap());
    let db = options(&sim).open(PATH).unwrap();
    let mut names = sim.list(wal).unwrap();
    names.sort();
    assert_eq!(names, ["000008.ring", "000008.wal"]);
    drop(db);
}

// A small memtable has a small log.
#[test]
fn a_ring_is_as_long_as_a_segment_up_to_four_mebibytes() {
    for (segment, ring) in [(4 << 10, 4 << 10), (64 << 10, 64 << 10), (8 << 20, 4 << 20)] {
        let sim = Sim::new(1);
        let _db = options(&sim).sizes(256, 4 << 10, segment).open(PATH);
        let len = sim.len(Path::new("/db/wal/000001.ring")).unwrap();
        assert_eq!(len, Some(ring));
    }
}

// A database without a log cannot write. Only for want of room is that better than no database.
#[test]
fn an_open_that_cannot_make_its_log_goes_on_only_if_the_disk_is_full() {
    for (kind, opens) in [
        (Fault::Full, true),
        (Fault::Io, false),
        (Fault::ReadOnly, false),
        (Fault::TooManyFiles, false),
    ] {
        let sim = killed();
        fail(&sim, kind, makes_log);
        let opened = options(&sim).open(PATH);
        assert_eq!(opened.is_ok(), opens, "{kind:?}");
        let db = opened.unwrap_or_else(|_| options(&sim.kill()).open(PATH).unwrap());
        assert!(db.container("c").unwrap().contains("k").unwrap());
    }
}

// Time that stands at the mark needs no room.
#[test]
fn a_full_disk_is_opened_whatever_the_clock_says() {
    let sim = killed();
    fail(&sim, Fault::Full, makes_log);
    let late = || options(&sim).clock(ManualClock::new(START - 86_400_000));
    let error = late().open(PATH).unwrap_err();
    assert!(matches!(error, Error::ClockBehind { .. }), "{error}");
    let opened = late().clock_behind(ClockBehind::StartAtMark).open(PATH);
    let db = opened.unwrap();
    assert!(db.container("c").unwrap().contains("k").unwrap());
}

// There is nothing yet to go on with.
#[test]
fn a_first_open_on_a_full_disk_says_that_it_is_full() {
    let sim = Sim::new(1);
    fail(&sim, Fault::Full, makes_log);
    let error = options(&sim).open(PATH).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(options(&sim.kill()).open(PATH).is_ok());
}

// With its name it counts, and what it names must stay, whether the name is durable or not.
#[test]
fn an_open_that_fails_when_its_manifest_has_a_name_takes_nothing_back() {
    for kind in [Fault::Io, Fault::Full] {
        let sim = killed();
        let is_named = AtomicBool::new(false);
        fail(&sim, kind, move |call| {
            let name = call.path.file_name().unwrap_or_default().to_string_lossy();
            if call.operation == "rename" && name.starts_with("manifest-") {
                is_named.store(true, Ordering::SeqCst);
            }
            let syncs_name = call.operation == "sync" && call.path == Path::new(PATH);
            syncs_name && is_named.load(Ordering::SeqCst)
        });
        options(&sim).open(PATH).unwrap_err();
        let manifest = Path::new(PATH).join("manifest-000002");
        assert!(sim.len(&manifest).unwrap().is_some());
        let cut = [Survivors::Nothing, Survivors::Everything, Survivors::Names]
            .map(|survivors| sim.power_cut_with(survivors));
        for sim in [sim.kill()].into_iter().chain(cut) {
            let db = options(&sim).open(PATH).unwrap();
            assert!(db.container("c").unwrap().contains("k").unwrap());
        }
    }
}

// A manifest that could not be removed is whole too, and is told apart by its edit.
#[test]
fn a_repair_goes_by_the_copy_of_the_last_manifest_and_not_by_an_earlier_one() {
    let sim = killed();
    fail(&sim, Fault::Io, |call| call.operation == "remove");
    let db = options(&sim).open(PATH).unwrap();
    db.container("c").unwrap().put("later", "v").unwrap();
    let sim = sim.kill();
    let path = |name: &str| Path::new(PATH).join(name);
    let earlier = ["manifest-000001", "copy/000001.manifest"];
    for name in earlier {
        assert!(sim.len(&path(name)).unwrap().is_some(), "{name} has stayed");
    }
    let damaged = sim.open(&path("manifest-000002")).unwrap();
    damaged.write_at(0, b"?").unwrap();
    let report = repair_with(Path::new(PATH), &options(&sim), true).unwrap();
    assert_eq!(report.manifest, path("copy/000002.manifest"));
    let db = options(&sim).open(PATH).unwrap();
    assert!(db.container("c").unwrap().contains("later").unwrap());
}

// An open logs anew what the log held; the next one may have nothing else to go by.
#[test]
fn what_was_recovered_is_recovered_again() {
    let sim = Sim::new(1);
    let open = |sim: &Sim| options(sim).open(PATH).unwrap();
    let db = open(&sim);
    let c = db.container("c").unwrap();
    for key in ["a", "b", "c", "d", "x", "y"] {
        c.put(key, "v").unwrap();
    }
    c.delete_range("b".."d").unwrap();
    c.delete_range("x"..).unwrap();
    c.put("y", "v").unwrap();
    let mut sim = sim;
    for _ in 0..3 {
        sim = sim.kill();
        let db = open(&sim);
        let c = db.container("c").unwrap();
        let keys: Vec<_> = c.iter().map(|item| item.unwrap().key().to_vec()).collect();
        assert_eq!(keys, [b"a", b"d", b"y"]);
    }
}

#[test]
fn a_long_log_is_brought_in_as_it_was_written() {
    let sim = Sim::new(1);
    let options = options(&sim).memtable_bytes(64 << 20);
    let db = options.open(PATH).unwrap();
    let containers = ["a", "b"].map(|name| db.container(name).unwrap());
    for n in 0..4_000u32 {
        let c = &containers[n as usize % 2];
        let key = |n: u32| (n % 700).to_be_bytes();
        match n % 50 {
            13 => c.delete(key(n / 3)).unwrap(),
            14 => c.delete_range(key(n / 2)..key(n / 2 + 3)).unwrap(),
            _ => c.put(key(n), n.to_be_bytes().repeat(250)).unwrap(),
        }
    }
    let show = |c: &Container| -> Vec<_> {
        let items = c.iter().map(|item| item.unwrap());
        items
            .map(|item| {
                (
                    item.key().to_vec(),
                    item.value().to_vec(),
                    item.written_at(),
                )
            })
            .collect()
    };
    let before = containers.each_ref().map(show);
    let killed = sim.kill();
    let db = options.fs(Arc::new(killed)).open(PATH).unwrap();
    let after = ["a", "b"].map(|name| show(&db.container(name).unwrap()));
    assert!(before == after && before.iter().all(|items| items.len() > 300));
}

// The log may hold it still, for the sake of another container.
#[test]
fn what_is_flushed_is_not_brought_into_memory_again() {
    for logged_again in [false, true] {
        let sim = Sim::new(1);
        let mut sim = sim;
        let first = match logged_again {
            true => options(&sim).memtable_bytes(1 << 20),
            false => options(&sim),
        };
        let db = first.open(PATH).unwrap();
        // Logged again first, it holds all that is behind it.
        let b = db.container("b").unwrap();
        let a = db.container("a").unwrap();
        b.put("k", "v").unwrap();
        for n in 0..20u8 {
            a.put([n], [n; 1_000]).unwrap();
            if !logged_again && db.step().unwrap() {
                break;
            }
        }
        if logged_again {
            // So much that opening seals it.
            sim = sim.kill();
            assert!(options(&sim).open(PATH).unwrap().step().unwrap());
        }
        for opened in 0..2 {
            sim = sim.kill();
            let db = options(&sim).open(PATH).unwrap();
            let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
            let in_memory = |c: &Container| c.stats().memtable_bytes > 0;
            assert_eq!((in_memory(&a), in_memory(&b)), (false, true), "{opened}");
            assert!(b.contains("k").unwrap() && a.contains([0]).unwrap());
        }
    }
}

// The next open would replay it all; for less than 4 MiB a table is not worth it.
#[test]
fn closing_flushes_what_would_take_long_to_replay() {
    for (items, flushed) in [(2, false), (80, true)] {
        let sim = Sim::new(1);
        let options = options(&sim).memtable_bytes(64 << 20);
        let (db, c) = stage::open(&options);
        (0..items).for_each(|n: u8| c.put([n], [n; 64 << 10]).unwrap());
        db.close().unwrap();
        let db = options.open(PATH).unwrap();
        assert_eq!(db.stats().table_bytes > 0, flushed);
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), usize::from(items));
    }
}

/// Every file of the database, the lock left out.
fn files(sim: &Sim) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in ["", "copy", "lost", "tables", "wal"] {
        let folder = Path::new(PATH).join(folder);
        let names = match sim.is_dir(&folder) {
            true => sim.list(&folder).unwrap(),
            false => vec![],
        };
        for name in names.iter().filter(|name| *name != "LOCK") {
            let path = folder.join(name);
            files.insert(path.clone(), sim.read(&path).unwrap());
        }
    }
    files
}

/// A killed database with a table, a log, a manifest, its copy, and something that a repair put aside.
fn with_all_files() -> Sim {
    let sim = Sim::new(1);
    let (db, c) = stage::open(options(&sim));
    c.put("flushed", "v").unwrap();
    db.flush().unwrap();
    c.put("logged", "v").unwrap();
    db.sync().unwrap();
    let sim = sim.kill();
    sim.create_dir_all(&Path::new(PATH).join("lost")).unwrap();
    drop(sim.create(&Path::new(PATH).join("lost/kept")).unwrap());
    sim
}

fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name.starts_with("manifest-")
}

fn is_copy(path: &Path) -> bool {
    path.starts_with("/db/copy")
}

/// The answer of each way to look at the folder.
fn looks(sim: &Sim) -> Vec<(&'static str, Result<(), Error>)> {
    let fs = || -> Arc<dyn Fs> { Arc::new(sim.clone()) };
    let verified = verify_in(fs(), Path::new(PATH), &mut |_, _| {});
    let verified = verified.and_then(|report| report.faults.into_iter().next().map_or(Ok(()), Err));
    let planned = repair_with(Path::new(PATH), &options(sim), false);
    let planned = planned.and_then(|report| {
        report
            .losses
            .into_iter()
            .next()
            .map_or(Ok(()), |loss| Err(loss.fault))
    });
    vec![
        ("open", options(sim).open(PATH).map(drop)),
        (
            "open to read",
            options(sim).read_only(true).open(PATH).map(drop),
        ),
        ("verify", verified),
        ("repair", planned),
    ]
}

// The manifest and its copy alone know what is live: a folder without them is no new database, whatever is in it.
#[test]
fn a_folder_that_lost_its_manifest_is_damaged_and_never_new() {
    for with_copy in [true, false] {
        let sim = with_all_files();
        for path in files(&sim).keys() {
            if is_manifest(path) || is_copy(path) && !with_copy {
                sim.remove(path).unwrap();
            }
        }
        let before = files(&sim);
        assert!(before.len() >= 4, "{:?}", before.keys());
        for (who, said) in looks(&sim) {
            let error = said.expect_err(who);
            assert!(error.is_corruption(), "{who}: {error}");
            let text = error.to_string();
            assert_eq!(text.contains("ebbtide repair"), with_copy, "{who}: {text}");
            assert!(text.contains("restore a checkpoint"), "{who}: {text}");
            assert!(files(&sim) == before, "{who} changed something");
        }
        let repaired = repair_with(Path::new(PATH), &options(&sim), true);
        assert_eq!(repaired.is_ok(), with_copy);
        if with_copy {
            let db = options(&sim).open(PATH).unwrap();
            assert_eq!(db.container("c").unwrap().iter().count(), 2);
        }
    }
}

#[test]
fn any_one_file_shows_that_there_was_a_database() {
    let whole = files(&with_all_files());
    let mut shown = 0;
    for (path, bytes) in whole.iter().filter(|(path, _)| !is_manifest(path)) {
        let sim = Sim::new(1);
        sim.create_dir_all(path.parent().unwrap()).unwrap();
        sim.create(path).unwrap().write_at(0, bytes).unwrap();
        for (who, said) in looks(&sim) {
            let error = said.expect_err(who);
            assert!(error.is_corruption(), "{who}, {}: {error}", path.display());
        }
        assert_eq!(files(&sim).keys().collect::<Vec<_>>(), [path]);
        shown += 1;
    }
    assert!(shown >= 5, "{:?}", whole.keys());
}

// The folders may be there before, on disks of their own, and what a first open leaves that is cut off, too.
#[test]
fn a_folder_in_which_no_database_ever_was_is_new() {
    let sim = Sim::new(1);
    for folder in ["tables/lost+found", "wal", "copy", "lost", "lost+found"] {
        sim.create_dir_all(&Path::new(PATH).join(folder)).unwrap();
    }
    for name in ["manifest-000000.tmp", "LOCK"] {
        drop(sim.create(&Path::new(PATH).join(name)).unwrap());
    }
    for (who, said) in looks(&sim).into_iter().skip(1) {
        assert!(
            !matches!(said, Err(Error::Corruption { .. })),
            "{who}: {said:?}"
        );
    }
    let db = options(&sim).open(PATH).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
}

// Wherever it ends, the next open makes the database, and finds nothing foreign in what is left.
#[test]
fn a_first_open_that_is_killed_leaves_no_dead_folder() {
    let (sim, left) = (Sim::new(1), Arc::new(Mutex::new(vec![])));
    let keep = left.clone();
    sim.watch(move |sim, call| {
        let mut left = keep.lock().unwrap();
        let seed = left.len() as u64;
        for after in [
            sim.kill(),
            sim.power_cut(seed),
            sim.power_cut_with(Survivors::Nothing),
        ] {
            left.push((format!("{} {}", call.operation, call.path.display()), after));
        }
    });
    options(&sim).open(PATH).unwrap();
    sim.unwatch();
    let left = std::mem::take(&mut *left.lock().unwrap());
    let has = |name: &str| {
        let path = Path::new(PATH).join(name);
        left.iter()
            .any(|(_, sim)| sim.len(&path).is_ok_and(|len| len.is_some()))
    };
    assert!(has("LOCK") && has("manifest-000000.tmp") && has("manifest-000001"));
    for (at, sim) in left {
        let db = options(&sim).open(PATH);
        let db = db.unwrap_or_else(|error| panic!("killed at {at}: {error}"));
        db.container("c").unwrap().put("k", "v").unwrap();
    }
}

// A folder that most likely was named by mistake stays as it is, whatever else a killed first open left there.
#[test]
fn no_database_is_made_among_other_files_unless_that_is_meant() {
    let others = [
        "notes",
        "wal/notes",
        "notes.d/",
        "tables/old/",
        "manifest-7",
        "copy/x/",
    ];
    for other in others {
        for with in [&[][..], &["LOCK"], &["LOCK", "manifest-000000.tmp"]] {
            let sim = Sim::new(1);
            for name in [other].iter().chain(with) {
                let path = Path::new(PATH).join(name);
                sim.create_dir_all(path.parent().unwrap()).unwrap();
                match name.ends_with('/') {
                    true => sim.create_dir_all(&path).unwrap(),
                    false => drop(sim.create(&path).unwrap()),
                }
            }
            let before = sim.tree(Path::new(PATH)).unwrap();
            let refused = options(&sim).open(PATH).unwrap_err();
            assert!(
                matches!(&refused, Error::ForeignFolder { path } if path == Path::new(PATH)),
                "{other}: {refused}"
            );
            assert_eq!(
                sim.tree(Path::new(PATH)).unwrap(),
                before,
                "{other} {with:?}"
            );
            let reader = options(&sim).read_only(true).open(PATH).unwrap_err();
            assert!(matches!(reader, Error::NotFound { .. }), "{reader}");
            let db = options(&sim).among_other_files(true).open(PATH).unwrap();
            db.container("c").unwrap().put("k", "v").unwrap();
            drop(db);
            // Now it is one, and stays one.
            let db = options(&sim.kill()).open(PATH).unwrap();
            assert!(db.container("c").unwrap().contains("k").unwrap());
        }
    }
}

// On a real disk: the lock is of the file's inode, and a name that is no text is another's, too.
#[test]
fn a_removed_lock_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = Database::open(&path).unwrap();
    let c = db.container("c").unwrap();
    c.put("before", "v").unwrap();
    std::fs::remove_file(path.join("LOCK")).unwrap();
    for read_only in [false, true] {
        let second = Options::new().read_only(read_only).open(&path);
        assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    }
    assert!(!path.join("LOCK").exists(), "what is refused makes nothing");
    c.put("after", "v").unwrap();
    drop((c, db));
    let reader = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(reader.container("c").unwrap().iter().count(), 2);
    // Nor does a reader that finds no file let a writer in, but other readers.
    let writer = Database::open(&path);
    assert!(matches!(writer, Err(Error::Locked { .. })), "{writer:?}");
    Options::new().read_only(true).open(&path).unwrap();
    drop(reader);
    Database::open(&path).unwrap().close().unwrap();
    assert!(path.join("LOCK").exists());
}

#[test]
fn a_name_that_is_no_text_is_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"notes \xff");
    std::fs::write(folder.path().join(name), "").unwrap();
    let refused = Database::open(folder.path()).unwrap_err();
    assert!(matches!(refused, Error::ForeignFolder { .. }), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

// Each waits for its turn, and finds a database or makes one.
#[test]
fn first_opens_at_the_same_time_make_one_database() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("a/b");
        let start = Barrier::new(6);
        std::thread::scope(|scope| {
            for n in 0..6 {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let db = loop {
                        match Database::open(path) {
                            Err(Error::Locked { .. }) => std::thread::yield_now(),
                            done => break done.unwrap(),
                        }
                    };
                    let c = db.container("c").unwrap();
                    c.put(format!("{n}"), "v").unwrap();
                    db.close().unwrap();
                });
            }
        });
        let db = Database::open(path).unwrap();
        assert_eq!(db.container("c").unwrap().iter().count(), 6);
    }
}

// The copy alone may go: the manifest says all.
#[test]
fn a_folder_of_a_database_that_is_missing_is_damage_that_can_be_repaired() {
    for (gone, left) in [("wal", 1), ("tables", 1), ("copy", 2)] {
        let sim = with_all_files();
        let folder = Path::new(PATH).join(gone);
        for name in sim.list(&folder).unwrap() {
            sim.remove(&folder.join(name)).unwrap();
        }
        sim.remove_dir(&folder).unwrap();
        let before = files(&sim);
        for (who, said) in looks(&sim.kill()) {
            match (gone, said) {
                ("copy", said) => said.unwrap(),
                (_, Err(Error::Corruption { path, .. })) => {
                    assert!(path.starts_with(&folder), "{who}: {}", path.display())
                }
                (_, other) => panic!("{who}, {gone}: {other:?}"),
            }
        }
        let sim = sim.kill();
        if gone != "copy" {
            assert!(options(&sim).open(PATH).is_err());
            assert!(files(&sim) == before, "{gone}: something was removed");
        }
        drop(repair_with(Path::new(PATH), &options(&sim), true).unwrap());
        let db = options(&sim).open(PATH).unwrap();
        assert_eq!(db.container("c").unwrap().iter().count(), left, "{gone}");
    }
}

/// The segments of the log.
fn segments(sim: &Sim) -> Vec<String> {
    let mut names = sim.list(Path::new("/db/wal")).unwrap();
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    names
}

/// A killed database, whose log lacks some.
fn without(sim: &Sim, segments: &[String]) -> Sim {
    let sim = sim.kill();
    for name in segments {
        sim.remove(&Path::new("/db/wal").join(name)).unwrap();
    }
    sim
}

// The edits of a manifest add up to a state that the next one says again, all of it.
#[test]
fn a_manifest_that_is_written_anew_remembers_that_the_log_is_closed() {
    let sim = Sim::new(1);
    let (db, c) = stage::open(options(&sim));
    for n in 0..20u8 {
        c.put([n], [n; 1_000]).unwrap();
        db.sync().unwrap();
    }
    let newest = || {
        let names = files(&sim).into_keys();
        let manifests = names.filter(|path| is_manifest(path));
        manifests.max().unwrap()
    };
    let before = newest();
    let mut n = 0;
    while sim.len(&before).unwrap().unwrap() <= 1 << 20 {
        let default = DefaultTtl::After(Duration::from_secs(1_000_000 + n % 9));
        c.set_default_ttl(default).unwrap();
        // A drop is said by an edit at once, and with it what was noted.
        drop(db.container("short").unwrap());
        assert!(db.drop_container("short").unwrap());
        n += 1;
    }
    db.close().unwrap();
    assert_ne!(newest(), before, "closing it has written it anew");
    // Of the note in the ring, which also tells how far the log reached, a power cut may leave nothing.
    let sim = sim.power_cut_with(Survivors::Nothing);
    let segments = segments(&sim);
    assert!(segments.len() > 3, "{segments:?}");
    for left in 1..segments.len() {
        let sim = without(&sim, &segments[left..]);
        let opened = options(&sim).open(PATH).map(drop);
        let error = opened.expect_err(&segments[left]);
        assert!(error.is_corruption(), "{error}");
    }
}

// A database that was closed knows where its log ends: a file that is missing there is no torn tail.
#[test]
fn an_end_of_a_closed_log_that_is_missing_is_damage() {
    let sim = Sim::new(1);
    let (db, c) = stage::open(options(&sim).memtable_bytes(1 << 20));
    for n in 0..20u8 {
        c.put([n], [n; 1_000]).unwrap();
        db.sync().unwrap();
    }
    db.close().unwrap();
    let whole = segments(&sim);
    assert!(whole.len() > 3, "{whole:?}");
    for left in 1..whole.len() {
        let sim = without(&sim, &whole[left..]);
        let error = options(&sim).open(PATH).unwrap_err();
        let missing = Path::new("/db/wal").join(&whole[left]);
        assert!(
            matches!(&error, Error::Corruption { path, .. } if *path == missing),
            "{error}"
        );
        assert_eq!(segments(&sim.kill()), whole[..left], "nothing is removed");
    }
    let db = options(&sim).open(PATH).unwrap();
    assert_eq!(db.container("c").unwrap().iter().count(), 20);
}

// Not even a life that ends before its threads have done anything.
#[test]
fn short_lives_leave_one_log() {
    let folder = tempfile::tempdir().unwrap();
    for life in 0..10u8 {
        let db = Options::new().open(folder.path()).unwrap();
        let c = db.container("c").unwrap();
        assert_eq!(c.iter().count(), usize::from(life));
        c.put([life], "v").unwrap();
        db.close().unwrap();
        let files = std::fs::read_dir(folder.path().join("wal"))
            .unwrap()
            .count();
        assert!(files <= 3, "{files} files after life {life}");
    }
}

// Under right checksums: the numbers that follow it would overflow, and no memtable has room for it.
#[test]
fn a_log_that_counts_further_than_any_database_is_refused() {
    let (container, key, value) = (ContainerId(1), &b"k"[..], &b"v"[..]);
    let (mut write, mut again) = (vec![], vec![]);
    Op::Put {
        container,
        ttl: WriteTtl::Absent,
        key,
        value,
    }
    .encode(&mut write);
    let relog = |seq| Relogged::Record {
        container,
        header: Header::tombstone(Seq(seq), Timestamp(START)),
        key,
        value: b"",
    };
    relog((1 << 56) + 1).encode(&mut again);
    for (kind, seq, payload, is_refused) in [
        (FrameKind::Batch, 1 << 56, &write, false),
        (FrameKind::Batch, (1 << 56) + 1, &write, true),
        (FrameKind::Batch, u64::MAX, &write, true),
        (FrameKind::Relog, 7, &again, true),
        (FrameKind::End, u64::MAX, &vec![], true),
    ] {
        let sim = Sim::new(1);
        let db = options(&sim).open(PATH).unwrap();
        db.container("c").unwrap();
        let sim = sim.kill();
        drop(db);
        let dir = Path::new("/db/wal");
        let mut segments = vec![];
        for name in sim.list(dir).unwrap() {
            if let Some(number) = name.strip_suffix(".wal") {
                segments.push(number.parse::<u64>().unwrap());
                sim.remove(&dir.join(name)).unwrap();
            }
        }
        let manifest = Path::new(PATH).join("manifest-000001");
        let bytes = sim.read(&manifest).unwrap();
        let (catalogue, _) = parse_manifest(&manifest, &bytes).unwrap();
        let log_options = LogOptions {
            segment_bytes: 4 << 10,
            ring_bytes: None,
            identity: catalogue.log.unwrap().chain,
            ..LogOptions::new(dir)
        };
        let fs = Arc::new(sim.clone());
        let (_, mut appender) =
            Log::create(fs, &log_options, segments[0], Seq(1), Timestamp(START), 1).unwrap();
        let header = FrameHeader {
            kind,
            first_seq: Seq(seq),
            last_seq: Seq(seq),
            written_at: Timestamp(START),
            settled: Timestamp(START),
            edit: 1,
        };
        appender
            .append(&header, payload, PayloadCrc::of(payload))
            .unwrap();
        let opened = options(&sim).open(PATH);
        let refused = opened.as_ref().err().map(|error| error.is_corruption());
        assert_eq!(refused, is_refused.then_some(true), "{kind:?} {seq}");
    }
}

// A flipped bit of the version is damage, which a repair can mend; a version that was meant is not.
#[test]
fn a_manifest_of_another_version_is_told_from_a_damaged_one() {
    let sim = Sim::new(1);
    let db = options(&sim).open(PATH).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    db.close().unwrap();
    let manifest = Path::new(PATH).join("manifest-000001");
    let open_with = |header: &[u8]| {
        let sim = sim.kill();
        let file = sim.open(&manifest).unwrap();
        file.write_at(8, header).unwrap();
        options(&sim).open(PATH).map(drop)
    };
    let header = sim.read(&manifest).unwrap()[8..16].to_vec();
    assert!(open_with(&header).is_ok());
    for bit in 0..64 {
        let mut flipped = header.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = open_with(&flipped).unwrap_err();
        assert!(
            matches!(&error, Error::Corruption { path, .. } if *path == manifest),
            "{bit}: {error}"
        );
    }
    let newer = [&b"EBBTIDEM"[..], &[11, 0, 0, 0]].concat();
    let newer = [&newer[8..], &crc32fast::hash(&newer).to_le_bytes()].concat();
    for (header, version) in [(&newer[..], 11), (&[1, 0, 0, 0, 0, 0, 0, 0][..], 1)] {
        let error = open_with(header).unwrap_err();
        assert!(
            matches!(&error, Error::UnsupportedFormat { found, .. } if *found == version),
            "{error}"
        );
    }
}

/// Goal: a folder of the format before is read, and continued in this one. Method: the versions in the headers of manifest
/// and log are set back; all else is as it was.
#[test]
fn a_folder_of_the_format_before_is_read() {
    let sim = Sim::new(1);
    let (db, c) = stage::open(options(&sim));
    c.put("k", "v").unwrap();
    db.close().unwrap();
    let sim = sim.kill();
    let before = |path: &Path, at: u64, len: usize, version: u32| {
        let bytes = sim.read(path).unwrap();
        let mut header = bytes[at as usize..at as usize + len].to_vec();
        assert_eq!(header[8..12], version.to_le_bytes());
        header[8] = 6;
        let rest = [&header[..12], &header[16..]].concat();
        let crc = crc32fast::hash(&rest).to_le_bytes();
        header[12..16].copy_from_slice(&crc);
        sim.open(path).unwrap().write_at(at, &header).unwrap();
    };
    let path = Path::new(PATH);
    before(&path.join("manifest-000001"), 0, 16, 10);
    let copy = path.join("copy").join("000001.manifest");
    before(&copy, 0, 16, 10);
    let wal = path.join("wal");
    for name in sim.list(&wal).unwrap() {
        let segment = wal.join(&name);
        if name.ends_with(".wal") {
            let len = sim.len(&segment).unwrap().unwrap();
            before(&segment, 0, 64, 8);
            before(&segment, len - 64, 64, 8);
        }
    }
    let (db, c) = stage::open(options(&sim));
    assert_eq!(c.get("k").unwrap().unwrap(), "v");
    c.expire_all().unwrap();
    db.close().unwrap();
    let db = options(&sim).open(PATH).unwrap();
    assert!(db.container("c").unwrap().get("k").unwrap().is_none());
}
