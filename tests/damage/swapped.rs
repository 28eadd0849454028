//! Goal: a file of another database, or a missing one, is never taken for this database's: open shows the items that
//! were written here, or says what is wrong; and `verify` says so whenever open does.
//!
//! Method: two databases of one shape and other values, on the simulated disk, killed at several moments. Each file and
//! each folder of the one is removed, or replaced by the other's; so are manifest and copy together. And on the real
//! disk, files of sizes that nobody has written, and folders, links and pipes where files were.

#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebbtide::internals::{Fault, FaultPlan, Fs, Sim, repair_with, verify_in};
use ebbtide::{Database, Durability, Error, ManualClock, Options, Result};

const START: u64 = 1_800_000_000_000;
const FOLDERS: [&str; 4] = ["", "copy", "tables", "wal"];

fn open(sim: &Sim, path: &str) -> Result<Database> {
    Options::new()
        .durability(Durability::Buffered)
        .memtable_bytes(16 << 10)
        .clock(ManualClock::new(START))
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
        .open(path)
}

/// The items that a database took in its life, until it was killed.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// How many items went to tables.
    flushed: u32,
    /// How many were put after that.
    logged: u32,
    /// How many of these were synced.
    synced: u32,
}

fn lead(sim: &Sim, path: &str, value: &str, life: Life) {
    let db = open(sim, path).unwrap();
    let c = db.container("c").unwrap();
    let put = |n: u32| c.put(n.to_be_bytes(), format!("{value} {n}")).unwrap();
    (0..life.flushed).for_each(put);
    db.flush().unwrap();
    for n in life.flushed..life.flushed + life.logged {
        put(n);
        if n + 1 == life.flushed + life.synced {
            db.sync().unwrap();
        }
    }
    // Killed: a close would write what a kill does not.
    std::mem::forget((db, c));
}

/// Two databases that led one life, with other values, after a kill.
fn two(life: Life) -> Sim {
    let sim = Sim::new(1);
    lead(&sim, "/a", "own", life);
    lead(&sim, "/b", "not", life);
    sim.kill()
}

fn repairing(sim: &Sim) -> Options {
    Options::new()
        .fs(Arc::new(sim.clone()))
        .clock(ManualClock::new(START))
}

fn files(sim: &Sim, folder: &Path) -> Vec<PathBuf> {
    if !sim.is_dir(folder) {
        return vec![];
    }
    let names = sim.list(folder).unwrap().into_iter();
    names
        .filter(|name| name != "LOCK")
        .map(|name| folder.join(name))
        .collect()
}

fn replace(sim: &Sim, from: &Path, to: &Path) {
    let bytes = sim.read(from).unwrap();
    if sim.len(to).unwrap().is_some() {
        sim.remove(to).unwrap();
    }
    sim.create(to).unwrap().write_at(0, &bytes).unwrap();
}

/// The files of one folder become those of the other database.
fn replace_all(sim: &Sim, folder: &str) {
    let (own, others) = (Path::new("/a").join(folder), Path::new("/b").join(folder));
    files(sim, &own)
        .iter()
        .for_each(|path| sim.remove(path).unwrap());
    for path in files(sim, &others) {
        replace(sim, &path, &own.join(path.file_name().unwrap()));
    }
}

/// Opening shows what was written here, or refuses; then `verify` finds something too. True: it was refused.
#[track_caller]
fn judge(sim: &Sim, life: Life, what: &str) -> bool {
    let what = format!("{life:?}, {what}");
    let verified = verify_in(Arc::new(sim.kill()), Path::new("/a"), &mut |_, _| {});
    let is_found = verified.map_or(true, |report| !report.faults.is_empty());
    let before = sim.operations();
    let db = match open(sim, "/a") {
        Ok(db) => db,
        Err(error) => {
            assert!(error.is_corruption(), "{what}: {error}");
            testkit::plain(&error).unwrap();
            assert!(is_found, "{what}: verify does not find that {error}");
            assert!(sim.operations() > before);
            return true;
        }
    };
    let c = db.container("c").unwrap();
    let mut seen = 0;
    for item in c.iter() {
        let item = item.unwrap_or_else(|error| panic!("{what}: {error}"));
        let n = u32::from_be_bytes(item.key().try_into().unwrap());
        assert_eq!(*item.value(), *format!("own {n}").as_bytes(), "{what}");
        seen += 1;
    }
    assert_eq!(seen, life.flushed + life.logged, "{what}");
    false
}

#[test]
fn what_belongs_to_another_database_is_refused() {
    for (flushed, logged, synced) in [(0, 9, 5), (40, 9, 9), (40, 9, 1), (40, 0, 0), (0, 0, 0)] {
        let life = Life {
            flushed,
            logged,
            synced,
        };
        let sim = two(life);
        for folder in FOLDERS {
            let changed = sim.kill();
            replace_all(&changed, folder);
            let refused = judge(&changed, life, &format!("all of {folder:?}"));
            let must = match folder {
                "tables" => flushed > 0,
                "copy" => false,
                _ => true,
            };
            assert!(refused >= must, "{life:?}, {folder:?}");
            for path in files(&sim, &Path::new("/a").join(folder)) {
                let others = Path::new("/b").join(path.strip_prefix("/a").unwrap());
                let must = must && !path.ends_with("000001.ring");
                let is_manifest = folder.is_empty();
                for missing in [false, true] {
                    // Other tests say what is to be made of a folder without a manifest.
                    if missing && is_manifest {
                        continue;
                    }
                    let changed = sim.kill();
                    match missing {
                        true => changed.remove(&path).unwrap(),
                        false => replace(&changed, &others, &path),
                    }
                    let what = format!("{} {missing}", path.display());
                    let refused = judge(&changed, life, &what);
                    assert!(refused >= (must && !missing), "{what}");
                }
            }
        }
        let changed = sim.kill();
        replace_all(&changed, "");
        replace_all(&changed, "copy");
        assert!(judge(&changed, life, "manifest and copy"));
    }
}

/// The copy knows which log and which tables are here: what it says is kept.
#[test]
fn a_manifest_of_another_database_gives_way_to_its_copy() {
    for (flushed, logged, synced) in [(0, 9, 5), (40, 9, 9), (40, 0, 0)] {
        let life = Life {
            flushed,
            logged,
            synced,
        };
        let sim = two(life);
        replace_all(&sim, "");
        let manifest = Path::new("/a/manifest-000001");
        let refused = open(&sim, "/a").unwrap_err();
        let is_named = matches!(&refused, Error::Corruption { path, .. } if path == manifest);
        assert!(is_named, "{life:?}: {refused}");
        let report = repair_with(Path::new("/a"), &repairing(&sim), true).unwrap();
        assert_eq!(report.set_aside, [manifest], "{life:?}");
        assert!(!judge(&sim, life, "repaired"), "{life:?}");
    }
}

/// Nothing here is known: neither side says what this log and these tables are.
#[test]
fn the_copy_of_another_database_is_no_copy() {
    let life = Life {
        flushed: 40,
        logged: 9,
        synced: 5,
    };
    let sim = two(life);
    replace_all(&sim, "copy");
    sim.remove(Path::new("/a/manifest-000001")).unwrap();
    let before = files(&sim, Path::new("/a/tables"));
    for refused in [
        open(&sim, "/a").map(drop).unwrap_err(),
        repair_with(Path::new("/a"), &repairing(&sim), true)
            .map(drop)
            .unwrap_err(),
    ] {
        assert!(refused.to_string().contains("another log"), "{refused}");
    }
    assert_eq!(files(&sim, Path::new("/a/tables")), before);
}

/// It says what was live, but not what came since: all of that would be put aside.
#[test]
fn a_whole_but_older_manifest_is_gone_by_in_no_repair() {
    let life = Life {
        flushed: 40,
        logged: 9,
        synced: 5,
    };
    let sim = Sim::new(1);
    lead(&sim, "/a", "own", life);
    let sim = sim.kill();
    let older = sim.read(Path::new("/a/manifest-000001")).unwrap();
    std::mem::forget(open(&sim, "/a").unwrap());
    let sim = sim.kill();
    for folder in ["", "copy"] {
        let both = files(&sim, &Path::new("/a").join(folder));
        both.iter().for_each(|path| sim.remove(path).unwrap());
    }
    let manifest = sim.create(Path::new("/a/manifest-000001")).unwrap();
    manifest.write_at(0, &older).unwrap();
    drop(manifest);
    assert!(open(&sim, "/a").is_err());
    let refused = repair_with(Path::new("/a"), &repairing(&sim), true).unwrap_err();
    assert!(refused.to_string().contains("the log in wal"), "{refused}");
    assert!(!files(&sim, Path::new("/a/wal")).is_empty());
}

/// A repair makes good all that `verify` finds in a copy, also when the copy is all there is.
#[test]
fn a_damaged_copy_is_made_anew() {
    let life = Life {
        flushed: 40,
        logged: 9,
        synced: 5,
    };
    let sim = two(life);
    replace_all(&sim, "copy");
    let verified = || verify_in(Arc::new(sim.kill()), Path::new("/a"), &mut |_, _| {}).unwrap();
    assert_eq!(verified().faults.len(), 1);
    let report = repair_with(Path::new("/a"), &repairing(&sim), true).unwrap();
    assert_eq!(report.losses.len(), 1);
    assert!(verified().faults.is_empty());
    assert!(!judge(&sim, life, "repaired"));
}

/// A file that takes no room and says that it is `len` bytes long.
fn sparse(path: &Path, len: u64) -> bool {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).is_ok()
}

/// An open database with something in each kind of file, of this process and of one before.
fn with_all_files(path: &Path) -> Database {
    let db = Database::open(path).unwrap();
    let c = db.container("c").unwrap();
    c.put("flushed", "v").unwrap();
    db.flush().unwrap();
    c.put("logged", "v").unwrap();
    drop(c);
    db.close().unwrap();
    let db = Database::open(path).unwrap();
    db.container("c").unwrap().put("again", "v").unwrap();
    db
}

// Sixteen times the memory of most machines, where the file system lets a file be as long.
#[test]
fn a_length_that_nobody_wrote_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = with_all_files(&path);
    let copy = folder.path().join("killed");
    let mut found = vec![];
    for dir in FOLDERS {
        std::fs::create_dir_all(copy.join(dir)).unwrap();
        for entry in std::fs::read_dir(path.join(dir)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let to = copy.join(dir).join(entry.file_name());
                std::fs::copy(entry.path(), &to).unwrap();
                found.push(to);
            }
        }
    }
    let mut tried = 0;
    for file in found.iter().filter(|file| !file.ends_with("LOCK")) {
        let before = std::fs::read(file).unwrap();
        // Less, where the file system does not let a file be as long.
        if sparse(file, 4 << 40) || sparse(file, 1 << 40) {
            tried += 1;
            for reads in [ebbtide::Reads::Map, ebbtide::Reads::Pread] {
                let opened = Options::new().read_only(true).reads(reads).open(&copy);
                let in_copy = file.starts_with(copy.join("copy"));
                assert!(in_copy || opened.is_err(), "{}", file.display());
            }
            let verified = ebbtide::verify(&copy, &mut |_, _| {});
            assert!(verified.map_or(true, |report| !report.faults.is_empty()));
            let _ = ebbtide::repair(&copy, false);
        }
        std::fs::write(file, &before).unwrap();
    }
    Options::new().read_only(true).open(&copy).unwrap();
    println!("{tried} lengths of {} files", found.len());
    db.close().unwrap();
}

/// All that is below a folder, by name, with what it is.
fn tree(folder: &Path) -> Vec<(PathBuf, std::fs::FileType, u64)> {
    let mut found = vec![];
    for entry in std::fs::read_dir(folder).unwrap() {
        let (path, kind) = entry
            .map(|entry| (entry.path(), entry.file_type().unwrap()))
            .unwrap();
        if kind.is_dir() {
            found.extend(tree(&path));
        }
        let len = match kind.is_file() {
            true => std::fs::metadata(&path).unwrap().len(),
            false => 0,
        };
        found.push((path, kind, len));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// A thing in the place of a file blocks nobody, and all give one answer, which names it; nothing is removed or changed.
#[test]
fn what_is_no_file_is_named_by_all_and_stays() {
    let outer = tempfile::tempdir().unwrap();
    let path = outer.path().join("db");
    let db = with_all_files(&path);
    let killed = outer.path().join("killed");
    for (from, kind, _) in tree(&path) {
        let to = killed.join(from.strip_prefix(&path).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        if kind.is_file() {
            std::fs::copy(&from, &to).unwrap();
        }
    }
    db.close().unwrap();
    let mut names: Vec<PathBuf> = tree(&killed)
        .into_iter()
        .filter(|(_, kind, _)| kind.is_file())
        .map(|(path, ..)| path.strip_prefix(&killed).unwrap().to_owned())
        .collect();
    assert!(names.len() > 5, "{names:?}");
    // Those that come next.
    let next = [
        "wal/000090.wal",
        "wal/000090.ring",
        "tables/000090.table",
        "manifest-000090.tmp",
    ];
    names.extend(next.map(PathBuf::from));
    let (answers, answered) = std::sync::mpsc::channel();
    for name in names {
        for kind in ["folder", "link", "dangling link", "pipe"] {
            let what = format!("{kind} {}", name.display());
            let there = killed.join(&name);
            let aside = outer.path().join("aside");
            let was_there = std::fs::rename(&there, &aside).is_ok();
            match kind {
                "folder" => {
                    std::fs::create_dir(&there).unwrap();
                    std::fs::write(there.join("mine"), "mine").unwrap();
                }
                "link" if !was_there => continue,
                "link" => std::os::unix::fs::symlink(&aside, &there).unwrap(),
                "dangling link" => std::os::unix::fs::symlink("nowhere", &there).unwrap(),
                _ => {
                    let made = std::process::Command::new("mkfifo").arg(&there).status();
                    assert!(made.unwrap().success());
                }
            }
            let before = tree(&killed);
            let (answers, killed_too) = (answers.clone(), killed.clone());
            std::thread::spawn(move || {
                let read_only = Options::new().read_only(true);
                let said = [
                    ebbtide::verify(&killed_too, &mut |_, _| {}).map(drop),
                    ebbtide::repair(&killed_too, false).map(drop),
                    ebbtide::repair(&killed_too, true).map(drop),
                    read_only.open(&killed_too).map(drop),
                    Database::open(&killed_too).map(drop),
                ];
                answers.send(said).unwrap();
            });
            let patience = std::time::Duration::from_secs(60);
            let said = answered.recv_timeout(patience);
            let said = said.unwrap_or_else(|_| panic!("{what}: somebody waits for it"));
            assert!(tree(&killed) == before, "{what}: something was changed");
            for said in said {
                let error = said.expect_err(&what);
                let is_named = matches!(&error, Error::Io { path, .. } if *path == there);
                assert!(is_named, "{what}: {error}");
                assert!(
                    error.to_string().contains("stands where"),
                    "{what}: {error}"
                );
            }
            match kind {
                "folder" => std::fs::remove_dir_all(&there).unwrap(),
                _ => std::fs::remove_file(&there).unwrap(),
            }
            if was_there {
                std::fs::rename(&aside, &there).unwrap();
            }
        }
    }
    Database::open(&killed).unwrap();
}

/// A database whose file cannot be read opens with no error that `verify` does not find, and nothing goes.
#[test]
fn a_file_that_cannot_be_read_is_found_and_stays() {
    let life = Life {
        flushed: 40,
        logged: 9,
        synced: 5,
    };
    let sim = two(life);
    for folder in FOLDERS {
        for path in files(&sim, &Path::new("/a").join(folder)) {
            let refusing = || {
                let (sim, path) = (sim.kill(), path.clone());
                let plan = FaultPlan {
                    at: 0,
                    kind: Fault::Io,
                    lasting: true,
                };
                sim.fail_where(plan, move |call| {
                    call.path == path && ["open", "read", "map"].contains(&call.operation)
                });
                sim
            };
            let what = path.display();
            let verified = verify_in(Arc::new(refusing()), Path::new("/a"), &mut |_, _| {});
            let is_found = verified.map_or(true, |report| !report.faults.is_empty());
            let disk = refusing();
            let opened = open(&disk, "/a");
            assert!(opened.is_ok() || is_found, "{what}: {:?}", opened.err());
            let _ = repair_with(Path::new("/a"), &repairing(&disk), true);
            if opened.is_err() {
                assert!(disk.len(&path).unwrap().is_some(), "{what} is gone");
            }
        }
    }
}
