//! Goal: exactly what fs.rs guarantees survives a kill and a power cut. Method: many seeds over one history, and the
//! set of all outcomes compared with the set of allowed ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::image::{Image, PAGE, SECTOR};
use super::world::Random;
use super::*;
use crate::base::hash::hash_key;

const FULL: io::ErrorKind = io::ErrorKind::StorageFull;

fn path(name: &str) -> PathBuf {
    Path::new("/db").join(name)
}

/// A world with a durable folder.
fn world(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    sim.create_dir_all(Path::new("/db")).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim
}

fn durable_file(sim: &Sim, name: &str, bytes: &[u8]) -> Box<dyn File> {
    let file = sim.create(&path(name)).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    file
}

/// The outcomes of power cuts with many seeds.
fn cuts<T: Ord>(sim: &Sim, see: impl Fn(&Sim) -> T) -> BTreeSet<T> {
    (0..400).map(|seed| see(&sim.power_cut(seed))).collect()
}

#[test]
fn what_is_synced_survives_every_power_cut() {
    let sim = world(1);
    let file = durable_file(&sim, "a", b"synced");
    let left = cuts(&sim, |sim| sim.read(&path("a")).unwrap());
    assert_eq!(left, BTreeSet::from([b"synced".to_vec()]));
    file.write_at(0, b"SYNCED and more").unwrap();
    file.sync().unwrap();
    let left = cuts(&sim, |sim| sim.read(&path("a")).unwrap());
    assert_eq!(left, BTreeSet::from([b"SYNCED and more".to_vec()]));
}

#[test]
fn unsynced_sectors_survive_in_any_subset_and_the_size_by_itself() {
    let sim = world(2);
    let file = durable_file(&sim, "a", &[1; 2 * SECTOR]);
    file.write_at(0, &[2; 3 * SECTOR]).unwrap();
    let (mut whole, mut torn) = (BTreeSet::new(), 0);
    for bytes in cuts(&sim, |sim| sim.read(&path("a")).unwrap()) {
        let mut sectors = bytes.chunks(SECTOR);
        if sectors.all(|sector| sector == [sector[0]; SECTOR]) {
            let firsts = bytes.iter().step_by(SECTOR);
            whole.insert(firsts.copied().collect::<Vec<u8>>());
            continue;
        }
        torn += 1;
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            let new = sector.iter().take_while(|&&byte| byte == 2).count();
            let old = [1, 1, 0][index];
            assert!(sector[new..].iter().all(|&byte| byte == old), "{sector:?}");
        }
    }
    for first in [1, 2] {
        for second in [1, 2] {
            assert!(whole.contains(&vec![first, second]));
            assert!(whole.contains(&vec![first, second, 0]));
            assert!(whole.contains(&vec![first, second, 2]));
        }
    }
    assert_eq!(whole.len(), 12);
    assert!(torn > 0);
}

#[test]
fn one_sector_keeps_any_of_its_writes() {
    let sim = world(3);
    let file = durable_file(&sim, "a", b"---");
    for at in 0..3 {
        file.write_at(at, b"#").unwrap();
    }
    let left = cuts(&sim, |sim| sim.read(&path("a")).unwrap());
    assert_eq!(left.len(), 8, "{left:?}");
}

#[test]
fn a_power_cut_keeps_what_it_is_told_to() {
    let sim = world(3);
    let file = durable_file(&sim, "a", b"old");
    let ring = sim.ring(&path("ring"), SECTOR).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    file.write_at(0, b"new").unwrap();
    sim.create(&path("b")).unwrap();
    ring.store(0, b"x");
    let left = |survivors| {
        let sim = sim.power_cut_with(survivors);
        let byte = sim.read(&path("ring")).unwrap()[0];
        let is_there = sim.len(&path("b")).unwrap().is_some();
        (sim.read(&path("a")).unwrap(), byte, is_there)
    };
    assert_eq!(left(Survivors::Nothing), (b"old".to_vec(), 0, false));
    assert_eq!(left(Survivors::Everything), (b"new".to_vec(), b'x', true));
    assert_eq!(left(Survivors::Names), (b"old".to_vec(), 0, true));
    assert_eq!(left(Survivors::Data), (b"new".to_vec(), b'x', false));
}

#[test]
fn a_cut_file_never_shows_what_was_cut_off() {
    let sim = world(4);
    let file = durable_file(&sim, "a", &[1; 600]);
    file.truncate(10).unwrap();
    file.sync().unwrap();
    file.write_at(700, &[2]).unwrap();
    let now = sim.read(&path("a")).unwrap();
    assert!(now[10..700].iter().all(|&byte| byte == 0) && now[700] == 2);
    for bytes in cuts(&sim, |sim| sim.read(&path("a")).unwrap()) {
        assert_eq!(bytes[..10], [1; 10]);
        assert!(bytes[10..].iter().all(|&byte| byte != 1));
    }
}

#[test]
fn names_are_durable_after_the_folder_is_synced() {
    let sim = world(5);
    durable_file(&sim, "old", b"old");
    let file = sim.create(&path("new.tmp")).unwrap();
    file.write_at(0, b"new").unwrap();
    file.sync().unwrap();
    sim.rename(&path("new.tmp"), &path("old")).unwrap();
    sim.create(&path("other")).unwrap();
    let left = cuts(&sim, |sim| {
        let mut names = sim.list(Path::new("/db")).unwrap();
        names.push(String::from_utf8(sim.read(&path("old")).unwrap()).unwrap());
        names.join(" ")
    });
    let expected = [
        "old old",
        "old other old",
        "new.tmp old old",
        "new.tmp old other old",
        "new.tmp old new",
        "new.tmp old other new",
        "old new",
        "old other new",
    ];
    assert_eq!(left, expected.map(str::to_owned).into());
    sim.sync_dir(Path::new("/db")).unwrap();
    let left = cuts(&sim, |sim| sim.list(Path::new("/db")).unwrap().join(" "));
    assert_eq!(left, BTreeSet::from(["old other".to_owned()]));
}

#[test]
fn a_removed_name_may_come_back_with_its_bytes() {
    let sim = world(6);
    durable_file(&sim, "a", b"bytes");
    sim.remove(&path("a")).unwrap();
    assert_eq!(sim.len(&path("a")).unwrap(), None);
    let left = cuts(&sim, |sim| sim.read(&path("a")).ok());
    assert_eq!(left, BTreeSet::from([None, Some(b"bytes".to_vec())]));
    sim.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(cuts(&sim, |sim| sim.read(&path("a")).ok()).len(), 1);
    assert!(sim.world.lock().files.is_empty(), "nothing is kept of it");
}

#[test]
fn folders_are_names_too() {
    let sim = Sim::new(7);
    sim.create_dir_all(Path::new("/x/y")).unwrap();
    let left = cuts(&sim, |sim| {
        (sim.is_dir(Path::new("/x")), sim.is_dir(Path::new("/x/y")))
    });
    assert_eq!(left, [(false, false), (true, false), (true, true)].into());
    sim.remove_dir(Path::new("/x")).unwrap_err();
    sim.remove_dir(Path::new("/x/y")).unwrap();
    assert!(sim.is_dir(Path::new("/x")) && !sim.is_dir(Path::new("/x/y")));
}

#[test]
fn a_kill_loses_nothing_and_frees_locks_and_old_handles_reach_nothing() {
    let sim = world(8);
    let file = sim.create(&path("a")).unwrap();
    file.write_at(0, b"unsynced").unwrap();
    let lock = sim.lock(&path("LOCK"), LockKind::Exclusive).unwrap();
    assert!(sim.lock(&path("LOCK"), LockKind::Shared).is_err());
    let next = sim.kill();
    file.write_at(0, b"UNSYNCED").unwrap();
    file.sync().unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(next.read(&path("a")).unwrap(), b"unsynced");
    assert!(next.lock(&path("LOCK"), LockKind::Exclusive).is_ok());
    assert!(
        cuts(&next, |sim| sim.len(&path("a")).unwrap()).contains(&None),
        "still not durable"
    );
    drop(lock);
    let shared = sim.lock(&path("LOCK"), LockKind::Shared).unwrap();
    assert!(sim.lock(&path("LOCK"), LockKind::Shared).is_ok());
    assert!(sim.lock(&path("LOCK"), LockKind::Exclusive).is_err());
    drop(shared);
}

#[test]
fn ring_stores_survive_a_kill_and_in_any_part_a_power_cut() {
    let sim = world(9);
    let ring = sim.ring(&path("ring"), 2 * SECTOR).unwrap();
    sim.sync_dir(Path::new("/db")).unwrap();
    ring.store(0, &[1; 2 * SECTOR]);
    let killed = sim.kill();
    assert_eq!(killed.read(&path("ring")).unwrap(), [1; 2 * SECTOR]);
    let left = cuts(&sim, |sim| {
        let bytes = sim.read(&path("ring")).unwrap();
        (bytes[0], bytes[SECTOR])
    });
    assert_eq!(left, [(0, 0), (0, 1), (1, 0), (1, 1)].into());
    let mut byte = [0];
    ring.load(SECTOR, &mut byte);
    assert_eq!(byte, [1]);
}

#[test]
fn the_planned_operation_fails_once_or_for_good() {
    let sim = world(10);
    let file = durable_file(&sim, "a", b"0123456789");
    let plan = FaultPlan {
        at: sim.operations() + 2,
        kind: Fault::Io,
        lasting: false,
    };
    sim.fail(plan);
    file.write_at(0, b"a").unwrap();
    let error = file.write_at(1, b"bcdef").unwrap_err();
    assert!(error.to_string().starts_with("cannot write /db/a"));
    file.write_at(9, b"z").unwrap();
    let bytes = sim.read(&path("a")).unwrap();
    let done = (0..=5).find(|&done| {
        let expected = [b"a", &b"bcdef"[..done], &b"123456789"[done..]].concat();
        bytes[..9] == expected[..9]
    });
    assert!(done.is_some(), "done in part: {bytes:?}");
    sim.fail(FaultPlan {
        at: 0,
        lasting: true,
        ..plan
    });
    for _ in 0..3 {
        assert!(file.sync().is_err() && sim.sync_dir(Path::new("/db")).is_err());
    }
    sim.heal();
    file.sync().unwrap();
}

/// The bytes that are read after a failed sync, after a restart, and after the next sync and a power cut.
fn after_a_failed_sync(seed: u64, then: FailedSync) -> [Vec<u8>; 3] {
    let sim = world(seed);
    sim.set_failed_sync(then);
    let file = durable_file(&sim, "a", b"old");
    file.write_at(0, b"new").unwrap();
    sim.fail(FaultPlan {
        at: 0,
        kind: Fault::Io,
        lasting: false,
    });
    file.sync().unwrap_err();
    let read = |sim: &Sim| sim.read(&path("a")).unwrap();
    let (now, killed) = (read(&sim), read(&sim.kill()));
    file.sync().unwrap();
    [
        now,
        killed,
        read(&sim.power_cut_with(Survivors::Everything)),
    ]
}

#[test]
fn what_a_failed_sync_leaves_depends_on_the_file_system() {
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    let all = |then| (0..100).map(move |seed| after_a_failed_sync(seed, then));
    assert!(all(FailedSync::Kept).all(|seen| seen == [&new; 3].map(Clone::clone)));
    // The bytes may have reached the disk in any case; if not, none is there.
    assert!(all(FailedSync::Reverted).all(|seen| seen.iter().all(|bytes| *bytes == seen[0])));
    assert!(all(FailedSync::Reverted).any(|seen| seen[0] == old));
    let forgotten: BTreeSet<_> = all(FailedSync::Forgotten).collect();
    assert!(
        forgotten.contains(&[new.clone(), new.clone(), old.clone()]),
        "read until it is evicted, and never written"
    );
    assert!(forgotten.contains(&[new, old.clone(), old]));
}

#[test]
fn faults_meet_the_calls_that_they_are_of() {
    let fails = |kind| {
        let sim = world(1);
        let file = durable_file(&sim, "a", b"bytes");
        let plan = FaultPlan {
            at: 0,
            kind,
            lasting: true,
        };
        sim.fail(plan);
        let calls = [
            sim.read(&path("a")).is_err(),
            sim.len(&path("a")).is_err(),
            sim.create(&path("b")).is_err(),
            file.write_at(0, b"more").is_err(),
            file.sync().is_err(),
            sim.sync_dir(Path::new("/db")).is_err(),
            sim.remove(&path("a")).is_err(),
        ];
        calls.map(u8::from)
    };
    assert_eq!(fails(Fault::Io), [1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(fails(Fault::Full), [0, 0, 1, 1, 1, 1, 0]);
    assert_eq!(fails(Fault::Short), [0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(fails(Fault::TooManyFiles), [1, 0, 1, 0, 0, 1, 0]);
    assert_eq!(fails(Fault::NoMemory), [1, 1, 1, 1, 0, 1, 1]);
    assert_eq!(fails(Fault::ReadOnly), [0, 0, 1, 1, 1, 1, 1]);
    let sim = world(1);
    let plan = FaultPlan {
        at: 0,
        kind: Fault::Io,
        lasting: true,
    };
    sim.fail_where(plan, |call| call.path.ends_with("b"));
    assert!(sim.create(&path("a")).is_ok() && sim.create(&path("b")).is_err());
}

#[test]
fn a_watcher_sees_each_call_before_it_is_done() {
    let sim = world(1);
    let seen = Arc::new(Mutex::new(vec![]));
    let calls = seen.clone();
    sim.watch(move |sim, call| {
        let names = sim.power_cut_with(Survivors::Everything);
        let names = names.list(Path::new("/db")).unwrap().len();
        calls.lock().push((call.operation, call.changes(), names));
    });
    let file = sim.create(&path("a")).unwrap();
    file.write_at(0, b"x").unwrap();
    assert_eq!(sim.open_handles(), 1);
    drop(file);
    sim.unwatch();
    sim.remove(&path("a")).unwrap();
    assert_eq!(*seen.lock(), [("create", true, 0), ("write", true, 1)]);
    assert_eq!(sim.open_handles(), 0);
}

#[test]
fn room_is_bounded_and_reserved_room_is_ours() {
    let sim = world(11);
    sim.set_capacity(1_000);
    let full = |result: Result<()>| assert!(result.unwrap_err().is_full());
    let file = sim.create(&path("a")).unwrap();
    file.allocate(600).unwrap();
    let other = sim.create(&path("b")).unwrap();
    full(other.allocate(401));
    other.write_at(0, &[0; 400]).unwrap();
    full(other.write_at(400, &[0]));
    full(sim.create(&path("c")).map(drop));
    file.write_at(0, &[1; 600]).unwrap();
    assert_eq!(sim.room(&path("a")).unwrap().free, 0);
    sim.remove(&path("b")).unwrap();
    assert_eq!(sim.room(&path("a")).unwrap().free, 400);
    assert_eq!(sim.allocated(&path("a")).unwrap(), 600);
    file.reserve(800).unwrap();
    assert_eq!(file.len().unwrap(), 600, "room, but not size");
    full(file.reserve(2_000));
    file.truncate(100).unwrap();
    assert_eq!(sim.room(&path("a")).unwrap().free, 900);
    assert!(matches!(
        sim.ring(&path("ring"), 2_000),
        Err(Error::Io { source, .. }) if source.kind() == FULL
    ));
}

#[test]
fn a_map_stays_what_it_was() {
    let sim = world(12);
    let file = durable_file(&sim, "a", b"before");
    let map = sim.map(&path("a")).unwrap();
    file.write_at(0, b"after ").unwrap();
    sim.remove(&path("a")).unwrap();
    assert_eq!(&map[..], b"before");
}

#[test]
fn one_seed_makes_one_history() {
    let history = || {
        let sim = world(13);
        for index in 0..20 {
            let file = sim.create(&path(&index.to_string())).unwrap();
            file.write_at(index, &[7; 2_000]).unwrap();
        }
        let sim = sim.power_cut(99);
        let names = sim.list(Path::new("/db")).unwrap();
        let bytes = names.iter().map(|name| sim.read(&path(name)).unwrap());
        (bytes.collect::<Vec<_>>(), names)
    };
    assert_eq!(history(), history());
}

/// Random calls on few names; returns the result of each, and the final state.
fn what_a_program_sees(fs: &dyn Fs, dir: &Path, seed: u64) -> Vec<String> {
    let (mut random, mut seen) = (Random(seed), vec![]);
    let mut files: BTreeMap<u64, Box<dyn File>> = BTreeMap::new();
    let told = |done: Result<String>| match done {
        Ok(text) => text,
        Err(Error::Io {
            operation, source, ..
        }) => format!("{operation}: {:?}", source.kind()),
        Err(error) => error.to_string().replace(dir.to_str().unwrap(), ""),
    };
    for _ in 0..120 {
        let (a, b) = (random.below(4), random.below(4));
        let at = 1 + random.below(3_000);
        let (from, to) = (dir.join(format!("f{a}")), dir.join(format!("f{b}")));
        let file = files.get(&a);
        let unit = |done: Result<()>| done.map(|()| String::new());
        let done = match (random.below(14), file) {
            (0 | 1, _) => fs.create(&from).map(|file| drop(files.insert(a, file))),
            (2, _) => fs.open(&from).map(|file| drop(files.insert(a, file))),
            (3 | 4, Some(file)) => file.write_at(at, &[a as u8 + 1; 700]),
            (5, Some(file)) => file.truncate(at),
            (6, Some(file)) => file.allocate(at),
            (7, Some(file)) => file.reserve(at).and_then(|()| file.sync()),
            (8, _) if a != b => fs.rename(&from, &to),
            (9, _) => fs.remove(&from),
            (10, _) => fs.hard_link(&from, &to),
            (11, _) => fs.create_dir_all(&dir.join("sub")),
            (12, _) => fs.remove_dir(&dir.join("sub")),
            _ => fs.sync_dir(dir),
        };
        seen.push(told(unit(done)));
        let part = fs.reader(&from).and_then(|file| file.read_at(at, 300));
        seen.push(told(part.map(|part| format!("{:x}", hash_key(&part)))));
        let bytes = fs
            .read(&from)
            .map(|bytes| format!("{:x}", hash_key(&bytes)));
        let len = fs.len(&to).map(|len| format!("{len:?}"));
        let mut names = fs.list(dir).unwrap();
        names.sort();
        seen.extend([told(bytes), told(len), names.join(" ")]);
        seen.extend(
            files
                .get(&a)
                .map(|file| told(file.len().map(|len| len.to_string()))),
        );
    }
    seen
}

// Without faults and power cuts it is indistinguishable from the operating system's.
#[test]
fn a_program_sees_what_it_sees_on_the_disk() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let real = what_a_program_sees(&crate::env::Disk, folder.path(), seed);
        let simulated = what_a_program_sees(&world(seed), Path::new("/db"), seed);
        for (step, (simulated, real)) in simulated.iter().zip(&real).enumerate() {
            assert_eq!(simulated, real, "seed {seed}, {step}");
        }
        assert_eq!(simulated.len(), real.len());
        let memory = crate::env::MemoryDisk::new(Path::new("/db"));
        let in_memory = what_a_program_sees(&memory, Path::new("/db"), seed);
        for (step, (in_memory, real)) in in_memory.iter().zip(&real).enumerate() {
            assert_eq!(in_memory, real, "in memory, seed {seed}, {step}");
        }
    }
}

/// Of an image in a test.
const MOST: usize = 5 * PAGE + 7;

/// Goal: an image is a vector of bytes, for itself and for each copy. Method: random steps on both, around the bounds of
/// pages; the copy of some steps before is as it was.
#[test]
fn an_image_is_its_bytes_and_so_is_each_copy() {
    let mut random = Random(7);
    let mut place = |below: usize| {
        let near = random.below(3) as usize * PAGE + 4 - random.below(9).min(4) as usize;
        let anywhere = random.below(below as u64 + 1) as usize;
        [near.min(below), anywhere][random.below(2) as usize]
    };
    let (mut image, mut bytes) = (Image::default(), Vec::<u8>::new());
    let (mut copy, mut copied) = (image.clone(), Vec::new());
    for step in 0..6_000 {
        let (a, b) = (place(bytes.len()), place(bytes.len()));
        let (from, to) = (a.min(b), a.max(b));
        match place(5) {
            0 => {
                let len = place(MOST);
                image.resize(len);
                bytes.resize(len, 0);
            }
            1 => {
                image.clear(from..to);
                bytes[from..to].fill(0);
            }
            2 if copied.len() >= bytes.len() => {
                image.copy(&copy, from..to);
                bytes[from..to].copy_from_slice(&copied[from..to]);
            }
            3 => {
                assert_eq!(copy.to_vec(), copied, "step {step}");
                (copy, copied) = (image.clone(), bytes.clone());
            }
            _ => {
                let piece: Vec<u8> = (from..to).map(|at| (at + step) as u8).collect();
                image.write(from, &piece);
                bytes[from..to].copy_from_slice(&piece);
            }
        }
        assert_eq!(image.to_vec(), bytes, "step {step}");
        let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
        assert_eq!(
            image.get(from, to - from).as_deref(),
            Some(&bytes[from..to])
        );
        assert_eq!(image.get(from, bytes.len() + 1 - from), None);
    }
}

/// Goal: none of the sectors that differ is left out, and of pages that three files share none is looked at.
#[test]
fn sectors_that_differ_are_named() {
    let mut first = Image::default();
    first.resize(MOST);
    first.write(10, &[1; 3 * PAGE]);
    let (mut second, mut third) = (first.clone(), first.clone());
    assert!(Image::differing([&first, &second, &third]).is_empty());
    second.write(PAGE, &[2]);
    third.write(MOST - 1, &[3]);
    let expected = (PAGE..2 * PAGE).chain(5 * PAGE..MOST);
    let expected: Vec<usize> = expected.step_by(SECTOR).collect();
    assert_eq!(Image::differing([&first, &second, &third]), expected);
}
