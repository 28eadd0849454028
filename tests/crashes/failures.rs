//! Goal: each promise about one kind of failure. Method: a test for each, on the simulated disk; its name is the
//! promise.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Call, FailedSync, Fault, FaultPlan, Fs, Sim, Survivors};
use ebbtide::{
    Container, Database, DefaultTtl, Durability, Error, ManualClock, Options, Stall, Ttl,
};

use testkit::patience::wait_until;
use testkit::stage;

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";

fn options(sim: &Sim, clock: &ManualClock) -> Options {
    Options::new()
        .durability(Durability::Sync)
        .memtable_bytes(16 << 10)
        .reclaim_within(Duration::from_secs(10))
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .sizes(256, 4 << 10, 4 << 10)
}

fn stepped(sim: &Sim, clock: &ManualClock) -> Database {
    options(sim, clock).stepped().open(PATH).unwrap()
}

fn world() -> (Sim, ManualClock) {
    (Sim::new(1), ManualClock::new(START))
}

fn plan(sim: &Sim, kind: Fault, lasting: bool) -> FaultPlan {
    let at = sim.operations();
    FaultPlan { at, kind, lasting }
}

fn is_log_sync(call: &Call<'_>) -> bool {
    call.operation == "sync" && call.path.extension().is_some_and(|kind| kind == "wal")
}

fn is_manifest_sync(call: &Call<'_>) -> bool {
    call.operation == "sync" && call.path.to_string_lossy().contains("manifest")
}

fn makes_table(call: &Call<'_>) -> bool {
    call.operation == "create" && call.path.starts_with("/db/tables")
}

/// How many items [`short_lived`] writes: more than a log takes.
const SHORT: usize = 200;

/// A container of which everything in tables expires after five seconds.
fn short_lived(db: &Database) -> Container {
    let c = db.container("short").unwrap();
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(5)))
        .unwrap();
    for n in 0..SHORT as u32 {
        c.put(n.to_be_bytes(), [7; 1_000]).unwrap();
    }
    db.flush().unwrap();
    assert!(c.stats().disk_bytes > 1_000 * SHORT as u64);
    c
}

/// The disk has no byte to spare.
fn fill(sim: &Sim) {
    sim.set_capacity(1 << 40);
    let room = sim.room(Path::new(PATH)).unwrap();
    sim.set_capacity(room.total - room.free);
}

#[test]
fn a_failed_sync_of_the_log_ends_writing_but_neither_reading_nor_reclaiming() {
    for then in FailedSync::ALL {
        let (sim, clock) = world();
        sim.set_failed_sync(then);
        let db = stepped(&sim, &clock);
        let short = short_lived(&db);
        let c = db.container("c").unwrap();
        c.put("k", "synced").unwrap();
        sim.fail_where(plan(&sim, Fault::Io, false), is_log_sync);
        assert!(matches!(c.put("k", "lost"), Err(Error::Io { .. })));
        for write in [c.put("k", "later"), c.delete("k"), db.sync(), db.flush()] {
            let error = write.unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            assert!(error.to_string().contains("reopen"), "{error}");
        }
        assert_eq!(c.get("k").unwrap().unwrap(), "synced");
        assert_eq!(short.iter().count(), SHORT);
        clock.advance(Duration::from_secs(60));
        while db.step().unwrap_or(false) {}
        assert_eq!(
            short.stats().disk_bytes,
            0,
            "what has expired is given back"
        );
        assert!(db.close().is_err());
        for sim in [sim.kill(), sim.power_cut(3)] {
            let (_db, c) = stage::open(options(&sim, &clock).stepped());
            let found = c.get("k").unwrap().unwrap().to_vec();
            assert!(found == b"synced" || found == b"lost", "{found:?}");
            c.put("k", "again").unwrap();
        }
    }
}

#[test]
fn a_failed_sync_of_the_manifest_is_made_good_by_a_new_manifest() {
    for then in FailedSync::ALL {
        let (sim, clock) = world();
        sim.set_failed_sync(then);
        let (db, c) = stage::open(options(&sim, &clock).stepped());
        sim.fail_where(plan(&sim, Fault::Io, false), is_manifest_sync);
        c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
        // The first edit fails; the others say what takes the place of the log.
        for round in 0..3 {
            c.put(format!("k{round}"), "v").unwrap();
            db.flush().unwrap();
            while db.step().unwrap() {}
        }
        for kept in [Survivors::Nothing, Survivors::Everything] {
            let (_db, c) = stage::open(options(&sim.power_cut_with(kept), &clock).stepped());
            assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
            for round in 0..3 {
                assert_eq!(c.get(format!("k{round}")).unwrap().unwrap(), "v");
            }
        }
    }
}

// Else what the edit names, which may have happened, would go with what was acknowledged after it.
#[test]
fn nothing_is_acknowledged_while_an_edit_is_in_doubt() {
    let (sim, clock) = world();
    let db = stepped(&sim, &clock);
    let (c, d) = (db.container("c").unwrap(), db.container("d").unwrap());
    c.put("k", "before").unwrap();
    d.put("k", "before").unwrap();
    db.flush().unwrap();
    sim.fail_where(plan(&sim, Fault::Io, true), |call| {
        call.operation == "sync" && call.path.starts_with(PATH) && !is_log_sync(call)
    });
    // The drop is in the log, and the edit that says it in doubt: files of the container stay.
    assert!(db.drop_container("c").unwrap());
    assert!(d.put("k", "in doubt").is_err());
    assert!(c.get("k").unwrap_err().is_closed());
    assert_eq!(d.get("k").unwrap().unwrap(), "before");
    assert!(sim.list(Path::new("/db/tables")).unwrap().len() >= 2);
    let cut = sim.power_cut_with(Survivors::Nothing);
    assert_eq!(stepped(&cut, &clock).containers(), ["d"]);
    sim.heal();
    d.put("k", "after").unwrap();
    db.flush().unwrap();
    db.step().unwrap();
    for kept in [Survivors::Nothing, Survivors::Everything, Survivors::Names] {
        let db = stepped(&sim.power_cut_with(kept), &clock);
        assert_eq!(db.containers(), ["d"]);
        let d = db.container("d").unwrap();
        assert_eq!(d.get("k").unwrap().unwrap(), "after", "{kept:?}");
    }
}

// The manifest may name them, until a new one does not.
#[test]
fn the_tables_of_a_flush_in_doubt_stay() {
    let (sim, clock) = world();
    sim.set_failed_sync(FailedSync::Kept);
    let (db, c) = stage::open(options(&sim, &clock).stepped());
    c.put("k", "v").unwrap();
    sim.fail_where(plan(&sim, Fault::Io, true), is_manifest_sync);
    assert!(db.flush().is_err());
    for kept in [Survivors::Nothing, Survivors::Everything] {
        let (_db, c) = stage::open(options(&sim.power_cut_with(kept), &clock).stepped());
        assert_eq!(c.get("k").unwrap().unwrap(), "v", "{kept:?}");
    }
    sim.heal();
    db.flush().unwrap();
    let tables = sim.list(&Path::new(PATH).join("tables")).unwrap();
    assert_eq!(tables.len() as u64, c.stats().tables, "{tables:?}");
}

#[test]
fn a_full_disk_is_opened_read_and_reclaimed_and_then_written_to() {
    let (sim, clock) = world();
    let (db, c) = stage::open(options(&sim, &clock).stepped());
    short_lived(&db);
    // More than has room in what is kept for edits.
    for n in 0..10u32 {
        c.put(n.to_be_bytes(), [n as u8; 8_000]).unwrap();
    }
    let sim = sim.kill();
    fill(&sim);
    let full = sim.room(Path::new(PATH)).unwrap().total;
    for _ in 0..2 {
        let (db, c) = stage::open(options(&sim, &clock).stepped());
        assert_eq!(c.iter().count(), 10, "what only the log holds is read");
        assert_eq!(db.container("short").unwrap().iter().count(), SHORT);
        // Room enough is not made by what a write gives back itself, the ring of the log.
        sim.set_capacity(full - (64 << 10));
        for write in [c.put("k", "v"), db.sync()] {
            assert!(write.unwrap_err().is_full());
        }
        sim.set_capacity(full);
        db.close().unwrap();
    }
    let db = stepped(&sim, &clock);
    clock.advance(Duration::from_secs(60));
    while db.step().unwrap_or(true) && db.container("short").unwrap().stats().disk_bytes > 0 {}
    assert_eq!(db.container("short").unwrap().stats().disk_bytes, 0);
    let c = db.container("c").unwrap();
    c.put("k", "v").unwrap();
    db.flush().unwrap();
    assert_eq!(c.iter().count(), 11);
    for sim in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
        let db = stepped(&sim, &clock);
        assert_eq!(db.container("c").unwrap().iter().count(), 11);
        db.close().unwrap();
    }
}

// Each write tries to begin the log anew: on a disk that is full, what the tries leave would make it fuller.
#[test]
fn a_log_that_finds_no_room_leaves_nothing() {
    let (sim, clock) = world();
    let (_db, c) = stage::open(options(&sim, &clock).stepped());
    // More than has room in what is kept for edits.
    for n in 0..10u32 {
        c.put(n.to_be_bytes(), [n as u8; 8_000]).unwrap();
    }
    let sim = sim.kill();
    fill(&sim);
    let (_db, c) = stage::open(options(&sim, &clock).stepped());
    let wal = Path::new(PATH).join("wal");
    let names = sim.list(&wal).unwrap();
    let used = sim.room(&wal).unwrap().total;
    // For a segment of 4 KiB, for its ring, but not for the manifest that would name them; and less, for a write gives the old
    // ring back.
    let mut refused = 0;
    for room in (used - (64 << 10)..).step_by(1_000) {
        sim.set_capacity(room);
        if c.put("k", "v").is_ok() {
            break;
        }
        refused += 1;
        let left = sim.list(&wal).unwrap();
        assert!(
            left.iter().all(|name| names.contains(name)),
            "{left:?} with {room} bytes"
        );
    }
    assert!(refused > 8, "{refused}");
    for sim in [sim.kill(), sim.power_cut_with(Survivors::Nothing)] {
        let db = stepped(&sim, &clock);
        assert_eq!(db.container("c").unwrap().iter().count(), 11);
    }
}

// Without a copy a manifest that is damaged later cannot be made good.
#[test]
fn the_copy_of_the_manifest_takes_the_edit_that_frees_a_full_disk() {
    let (sim, clock) = world();
    let db = stepped(&sim, &clock);
    let short = short_lived(&db);
    fill(&sim);
    clock.advance(Duration::from_secs(60));
    while db.step().unwrap() {}
    assert_eq!(short.stats().disk_bytes, 0);
    let bytes_of = |folder: &Path| {
        let names = sim.list(folder).unwrap();
        let name = names.iter().find(|name| name.contains("manifest"));
        sim.read(&folder.join(name.expect("there is one"))).unwrap()
    };
    let manifest = bytes_of(Path::new(PATH));
    assert!(bytes_of(&Path::new(PATH).join("copy")) == manifest);
}

// While there is no copy, nothing but the file that says so tells a torn manifest from a damaged one.
#[test]
fn a_power_cut_while_the_manifest_has_no_copy_is_no_damage() {
    for (operation, kind) in [
        ("write", Fault::Full),
        ("write", Fault::Io),
        ("sync", Fault::Io),
        ("create", Fault::Io),
        ("rename", Fault::Io),
    ] {
        let (sim, clock) = world();
        stepped(&sim, &clock).close().unwrap();
        let is_copy = |path: &Path| path.starts_with(Path::new(PATH).join("copy"));
        let fails = move |call: &Call<'_>| call.operation == operation && is_copy(call.path);
        sim.fail_where(plan(&sim, kind, false), fails);
        let (db, c) = stage::open(options(&sim, &clock).stepped());
        c.put("k", "v").unwrap();
        db.flush().unwrap();
        let none = sim.list(&Path::new(PATH).join("copy")).unwrap();
        assert!(none.iter().any(|name| name.ends_with(".none")), "{none:?}");
        let cuts: Arc<Mutex<Vec<Sim>>> = Arc::default();
        let taken = cuts.clone();
        sim.watch(move |sim, call| {
            let name = call.path.to_string_lossy();
            if name.contains("manifest") {
                let seeds = 0..testkit::env("EBBTIDE_SEEDS", 6);
                let cuts = seeds.map(|seed| sim.power_cut(seed));
                taken.lock().unwrap().extend(cuts);
            }
        });
        for n in 1..8 {
            let ttl = DefaultTtl::After(Duration::from_secs(n));
            c.set_default_ttl(ttl).unwrap();
            c.put("k", "v").unwrap();
            db.flush().unwrap();
        }
        sim.unwatch();
        let cuts = std::mem::take(&mut *cuts.lock().unwrap());
        assert!(cuts.len() > 50);
        for sim in cuts {
            stepped(&sim, &clock).container("c").unwrap();
        }
    }
}

// Then edits go to new manifests, which come whole or not at all.
#[test]
fn a_copy_that_can_neither_be_written_nor_given_up_leaves_no_torn_manifest() {
    for seed in 0..12 {
        let (sim, clock) = (Sim::new(seed), ManualClock::new(START));
        let (db, c) = stage::open(options(&sim, &clock).stepped());
        let (edits, all_fails) = (AtomicU64::new(0), AtomicBool::new(false));
        sim.fail_where(plan(&sim, Fault::Io, true), move |call| {
            let is_copy = call.path.starts_with(Path::new(PATH).join("copy"));
            let name = call.path.to_string_lossy();
            let is_edit = name.contains("/manifest-000001") && call.operation == "write";
            if is_edit && edits.fetch_add(1, Ordering::Relaxed) > 0 {
                all_fails.store(true, Ordering::Relaxed);
            }
            is_copy || all_fails.load(Ordering::Relaxed)
        });
        for n in 1..4 {
            let _ = c.set_default_ttl(DefaultTtl::After(Duration::from_secs(n)));
            // A drop is said by an edit at once.
            let _ = db.container("dropped");
            let _ = db.drop_container("dropped");
        }
        for sim in [sim.kill(), sim.power_cut(seed)] {
            stepped(&sim, &clock).container("c").unwrap();
        }
    }
}

// Behind a manifest that was read lies what its writer could not sync, perhaps.
#[test]
fn an_open_on_a_full_disk_makes_durable_what_it_goes_on_with() {
    for seed in 0..40 {
        // The bytes of a sync that failed are there at one read, and perhaps not at the next.
        let (sim, clock) = (Sim::new(seed), ManualClock::new(START));
        sim.set_failed_sync(FailedSync::Forgotten);
        let db = stepped(&sim, &clock);
        short_lived(&db).put("more", "").unwrap();
        sim.fail_where(plan(&sim, Fault::Io, true), is_manifest_sync);
        assert!(db.flush().is_err());
        let sim = sim.kill();
        fill(&sim);
        let db = stepped(&sim, &clock);
        clock.advance(Duration::from_secs(60));
        for _ in 0..3 {
            let _ = db.step();
        }
        let sim = sim.power_cut(seed);
        let db = stepped(&sim, &clock);
        assert_eq!(db.container("short").unwrap().iter().count(), 0);
    }
}

#[test]
fn a_flush_that_fails_does_not_keep_other_containers_waiting() {
    let (sim, clock) = world();
    let db = stepped(&sim, &clock);
    for name in ["a", "b", "c"] {
        db.container(name).unwrap().put("k", "v").unwrap();
    }
    sim.fail_where(plan(&sim, Fault::Io, false), makes_table);
    assert!(db.flush().is_err());
    let tables = |name| db.container(name).unwrap().stats().tables;
    assert_eq!(["a", "b", "c"].map(tables), [0, 1, 1]);
    db.flush().unwrap();
    assert_eq!(tables("a"), 1);
}

#[test]
fn a_failed_checkpoint_leaves_nothing() {
    let (sim, clock) = world();
    let db = stepped(&sim, &clock);
    short_lived(&db);
    db.container("c").unwrap().put("k", "v").unwrap();
    let mut refused = 0;
    for at in 1.. {
        let before = sim.operations();
        let plan = FaultPlan {
            at: before + at,
            kind: Fault::Io,
            lasting: false,
        };
        sim.fail_where(plan, |call| {
            call.path.starts_with("/copies") || call.path == Path::new("/")
        });
        let done = db.checkpoint("/copies/one");
        sim.heal();
        if done.is_ok() {
            // Where a link fails, a copy is made; so it may be whole although something failed.
            let copy = options(&sim, &clock).stepped().open("/copies/one").unwrap();
            assert_eq!(copy.container("short").unwrap().iter().count(), SHORT);
            copy.close().unwrap();
            for folder in ["tables", "wal", "copy", ""] {
                let folder = Path::new("/copies/one").join(folder);
                if !sim.is_dir(&folder) {
                    continue;
                }
                for name in sim.list(&folder).unwrap() {
                    sim.remove(&folder.join(name)).unwrap();
                }
                sim.remove_dir(&folder).unwrap();
            }
            if sim.operations() < before + at || at > 400 {
                break;
            }
            continue;
        }
        refused += 1;
        assert!(!sim.is_dir(Path::new("/copies/one")), "failed at {at}");
    }
    assert!(refused > 5, "{refused}");
    db.checkpoint("/copies/last").unwrap();
    let cut = sim.power_cut_with(Survivors::Nothing);
    let copy = options(&cut, &clock)
        .stepped()
        .open("/copies/last")
        .unwrap();
    assert_eq!(
        copy.container("short").unwrap().iter().count(),
        SHORT,
        "its name is durable"
    );
}

#[test]
fn a_database_is_not_written_to_before_its_folder_is_durable() {
    let (sim, clock) = world();
    let path = "/far/away/db";
    let open = |sim: &Sim| options(sim, &clock).stepped().open(path);
    for at in 0..3 {
        let plan = FaultPlan {
            at: sim.operations() + 2 * at,
            ..plan(&sim, Fault::Io, false)
        };
        sim.fail_where(plan, move |call| {
            call.operation == "sync" && !call.path.starts_with(path)
        });
        drop(open(&sim));
    }
    sim.heal();
    let db = open(&sim).unwrap();
    db.container("c").unwrap().put("k", "v").unwrap();
    let db = open(&sim.power_cut_with(Survivors::Nothing)).unwrap();
    assert_eq!(db.container("c").unwrap().get("k").unwrap().unwrap(), "v");
}

// The maker of a folder may have been cut off before its name was durable.
#[test]
fn the_folder_of_a_new_database_is_durable_though_it_was_there() {
    let (sim, clock) = world();
    sim.create_dir_all(Path::new(PATH)).unwrap();
    let db = stepped(&sim, &clock);
    db.container("c").unwrap().put("k", "v").unwrap();
    let db = stepped(&sim.power_cut_with(Survivors::Nothing), &clock);
    assert!(db.container("c").unwrap().contains("k").unwrap());
}

#[test]
fn who_does_not_depend_on_background_work_does_not_hear_of_its_failure() {
    let (sim, clock) = world();
    let (db, c) = stage::open(options(&sim, &clock));
    sim.fail_where(plan(&sim, Fault::Io, true), makes_table);
    for n in 0..30u32 {
        c.put(n.to_be_bytes(), [1; 600]).unwrap();
    }
    wait_until("the failure is told", || {
        db.stats().background_error.is_some()
    });
    let told = db.stats().background_error.unwrap();
    assert!(told.contains("create /db/tables"), "{told}");
    c.put("unrelated", "v").unwrap();
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    sim.heal();
    db.flush().unwrap();
    wait_until("it is over", || db.stats().background_error.is_none());
    db.close().unwrap();
}

/// Every call that makes a table waits until something is sent.
fn hold_tables(sim: &Sim) -> Sender<()> {
    let (release, held): (Sender<()>, Receiver<()>) = channel();
    let held = Mutex::new(held);
    sim.watch(move |_, call| {
        if makes_table(call) {
            // The end of the sender lets all of them go on.
            let _ = held.lock().unwrap().recv();
        }
    });
    release
}

#[test]
fn memory_is_bounded_and_writers_wait_while_flushing_is_blocked() {
    let (sim, clock) = world();
    let (db, c) = stage::open(options(&sim, &clock));
    let release = hold_tables(&sim);
    let writers: Vec<_> = (0..3u32)
        .map(|writer| {
            let c = c.clone();
            std::thread::spawn(move || {
                for n in 0..60u32 {
                    c.put([writer.to_be_bytes(), n.to_be_bytes()].concat(), [1; 1_000])
                        .unwrap();
                }
            })
        })
        .collect();
    wait_until("writers stop", || {
        db.stats().stalls > 0 && db.stats().memtable_bytes > 40 << 10
    });
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(2));
        // Three times what is configured, and one write more of each.
        assert!(db.stats().memtable_bytes < (3 * 16 + 3 * 2) << 10);
    }
    assert!(writers.iter().any(|writer| !writer.is_finished()));
    drop(release);
    writers
        .into_iter()
        .for_each(|writer| writer.join().unwrap());
    assert_eq!(c.iter().count(), 180);
    db.close().unwrap();
}

#[test]
fn memory_is_bounded_and_writers_fail_as_configured() {
    for (stall, fault) in [
        (Stall::Fail, false),
        (Stall::Fail, true),
        (Stall::Wait, true),
    ] {
        let (sim, clock) = world();
        let (db, c) = stage::open(options(&sim, &clock).on_stall(stall));
        let release = (!fault).then(|| hold_tables(&sim));
        if fault {
            sim.fail_where(plan(&sim, Fault::Full, true), makes_table);
        }
        let error = (0..200u32)
            .find_map(|n| c.put(n.to_be_bytes(), [1; 1_000]).err())
            .expect("memory is bounded");
        match stall {
            Stall::Fail => assert!(matches!(error, Error::Stalled), "{error}"),
            _ => assert!(error.is_full(), "{error}"),
        }
        assert!(db.stats().memtable_bytes < (3 * 16 + 2) << 10);
        assert!(c.contains(0u32.to_be_bytes()).unwrap(), "reads go on");
        sim.heal();
        drop(release);
        wait_until("writing goes on", || c.put("k", "v").is_ok());
        db.close().unwrap();
    }
}

#[test]
fn closing_ends_whatever_fails() {
    for kind in Fault::ALL {
        for at in [0, 3, 10, 40, 200] {
            let (sim, clock) = world();
            let (db, c) = stage::open(options(&sim, &clock));
            let plan = FaultPlan {
                at: sim.operations() + at,
                ..plan(&sim, kind, true)
            };
            sim.fail(plan);
            for n in 0..40u32 {
                if c.put_with_ttl(n.to_be_bytes(), [1; 1_000], Ttl::Never)
                    .is_err()
                {
                    break;
                }
            }
            let _ = db.close();
            assert!(matches!(c.put("k", "v"), Err(Error::Closed)));
            drop((c, db));
            assert_eq!(sim.open_handles(), 0, "{kind:?} from {at} on");
        }
    }
}

/// Reserves room for a segment of the log.
fn makes_segment(call: &Call<'_>) -> bool {
    call.operation == "allocate" && call.path.extension().is_some_and(|kind| kind == "wal")
}

// The next segment is made ahead. Where there is no room for it, what is in this one is synced all the same, and nobody
// tries again at each write.
#[test]
fn what_is_written_is_synced_once_an_interval_also_on_a_full_disk() {
    let (sim, clock) = world();
    let (db, c) = stage::open(
        options(&sim, &clock)
            .durability(Durability::Buffered)
            .sync_interval(Duration::from_millis(20))
            .memtable_bytes(8 << 20)
            .sizes(256, 4 << 10, 1 << 20),
    );
    sim.fail_where(plan(&sim, Fault::Full, true), makes_segment);
    let tries = Arc::new(AtomicU64::new(0));
    sim.watch({
        let tries = tries.clone();
        move |_, call| {
            tries.fetch_add(u64::from(makes_segment(call)), Ordering::Relaxed);
        }
    });
    // More than an eighth of the segment, where the next one is to be made.
    for n in 0..500u32 {
        c.put(n.to_be_bytes(), [1; 1_000]).unwrap();
    }
    wait_until("the failure is told", || {
        db.stats().background_error.is_some()
    });
    let last = 499u32.to_be_bytes();
    wait_until("it is synced", || {
        let db = stepped(&sim.power_cut_with(Survivors::Nothing), &clock);
        db.container("c").unwrap().contains(last).unwrap()
    });
    let tries = tries.load(Ordering::Relaxed);
    assert!((1..20).contains(&tries), "{tries} tries for 500 writes");
    sim.heal();
    for n in 500..800u32 {
        c.put(n.to_be_bytes(), [1; 1_000]).unwrap();
    }
    wait_until("it is over", || db.stats().background_error.is_none());
    db.close().unwrap();
}

// The writes of a killed process may be in the system's memory alone; an open that finds no room for a log of
// its own goes on with that one, and edits of its own follow.
#[test]
fn what_an_open_on_a_full_disk_goes_on_with_is_durable_before_its_edits() {
    let (sim, clock) = world();
    let db = options(&sim, &clock)
        .durability(Durability::Buffered)
        .stepped()
        .open(PATH)
        .unwrap();
    let (c, other) = (db.container("c").unwrap(), db.container("other").unwrap());
    other.put("k", "v").unwrap();
    c.put("k", "v").unwrap();
    let sim = sim.kill();
    fill(&sim);
    let db = stepped(&sim, &clock);
    assert!(db.drop_container("other").unwrap());
    for cut in 0..8 {
        let sim = sim.power_cut(cut);
        sim.set_capacity(1 << 40);
        let db = stepped(&sim, &clock);
        assert_eq!(db.containers(), ["c"]);
        assert!(db.container("c").unwrap().contains("k").unwrap());
    }
}
