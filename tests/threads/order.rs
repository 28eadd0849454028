//! Goal: each promise that depends on the order of two steps, not on one step alone.
//!
//! Method: a simulated disk or a clock acts during a call, exactly where the wrong order would matter; or the power is
//! cut directly after the call.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, Survivors, replay};
use ebbtide::{
    Batch, Clock, Container, Database, DefaultTtl, Durability, Error, ManualClock, Options, Ttl,
    Update, Value,
};

use testkit::stage;
use testkit::watched::Watched;

const START: u64 = 1_800_000_000_000;
/// As many survivors of each power cut are opened.
const CUTS: u64 = 8;

fn options(fs: impl Fs + 'static) -> Options {
    Options::new()
        .memtable_bytes(16 << 10)
        .max_runs(2)
        .clock(ManualClock::new(START))
        .fs(Arc::new(fs))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
}

fn open(fs: &Watched, durability: Durability) -> (Database, Container) {
    stage::open(options(fs.clone()).durability(durability))
}

fn reopened(sim: &Sim, path: &str) -> (Database, Container) {
    let db = options(sim.clone()).open(path).unwrap();
    let container = db.container("c").unwrap();
    (db, container)
}

fn failure(path: &Path) -> Error {
    Error::Io {
        operation: "sync",
        path: path.into(),
        source: Arc::new(io::Error::other("planned")),
    }
}

// Under Sync a reader would otherwise act on what a power cut takes back.
#[test]
fn nothing_is_seen_before_it_is_durable() {
    let fs = Watched::new(Sim::new(1));
    let (_db, c) = open(&fs, Durability::Sync);
    let seen = Arc::new(Mutex::new(None));
    fs.once("sync", ".wal", {
        let (c, seen) = (c.clone(), seen.clone());
        move || *seen.lock().unwrap() = Some(c.contains("k").unwrap())
    });
    c.put("k", "v").unwrap();
    assert_eq!(*seen.lock().unwrap(), Some(false));
    assert!(c.contains("k").unwrap());
}

#[test]
fn an_acknowledged_write_is_durable() {
    let fs = Watched::new(Sim::new(1));
    let (_db, c) = open(&fs, Durability::Sync);
    c.put("k", "v").unwrap();
    for cut in 0..CUTS {
        assert!(
            reopened(&fs.sim.power_cut(cut), "/db")
                .1
                .contains("k")
                .unwrap()
        );
    }
}

// A frame that is appended during a sync is not of it.
#[test]
fn a_sync_covers_what_was_there_when_it_began() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    c.put("before", "v").unwrap();
    fs.once("sync", ".wal", {
        let c = c.clone();
        move || c.put("during", "v").unwrap()
    });
    db.sync().unwrap();
    db.sync().unwrap();
    for cut in 0..CUTS {
        let (_db, c) = reopened(&fs.sim.power_cut(cut), "/db");
        assert!(c.contains("before").unwrap() && c.contains("during").unwrap());
    }
}

// A batch lies in one frame of the log, and its parts in the tables of several containers.
#[test]
fn a_flush_of_one_container_halves_no_batch() {
    let fs = Watched::new(Sim::new(1));
    let (db, a) = open(&fs, Durability::Buffered);
    let b = db.container("b").unwrap();
    let mut batch = Batch::new();
    batch.put(&a, "k", [7; 20_000]).put(&b, "k", "v");
    db.write(&batch).unwrap();
    while db.step().unwrap() {}
    assert!(a.stats().disk_bytes > 0, "it was flushed");
    for cut in 0..CUTS {
        let (db, a) = reopened(&fs.sim.power_cut(cut), "/db");
        let b = db.container("b").unwrap();
        assert_eq!(a.contains("k").unwrap(), b.contains("k").unwrap());
    }
}

// The manifest must not name a segment that a power cut may take away.
#[test]
fn a_flush_names_no_log_segment_that_was_begun_beside_it() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    c.put("flushed", "v").unwrap();
    let survivors = Arc::new(Mutex::new(vec![]));
    let mut edited = None;
    fs.before({
        let (c, sim, survivors) = (c.clone(), fs.sim.clone(), survivors.clone());
        move |call, path| {
            let name = path.to_string_lossy();
            match edited {
                // More than a segment has left.
                None if call == "create" && name.ends_with(".table") => {
                    c.put("beside", vec![7; 300_000]).unwrap();
                    edited = Some(false);
                }
                Some(false) if call == "sync" && name.contains("manifest-") => edited = Some(true),
                Some(true) => {
                    let mut survivors = survivors.lock().unwrap();
                    if survivors.is_empty() {
                        survivors.extend((0..CUTS).map(|cut| sim.power_cut(cut)));
                    }
                }
                _ => {}
            }
            Ok(())
        }
    });
    db.flush().unwrap();
    fs.before(|_, _| Ok(()));
    let survivors = std::mem::take(&mut *survivors.lock().unwrap());
    assert!(!survivors.is_empty());
    for sim in survivors {
        assert!(reopened(&sim, "/db").1.contains("flushed").unwrap());
    }
}

// A cut may keep that files were removed and lose the edit that no longer names them.
#[test]
fn tables_stay_until_the_edit_without_them_is_durable() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    for value in ["v", "w"] {
        c.put("k", value).unwrap();
        db.flush().unwrap();
    }
    let survivor = Arc::new(Mutex::new(None));
    fs.once("sync", "manifest-", {
        let (sim, survivor) = (fs.sim.clone(), survivor.clone());
        move || *survivor.lock().unwrap() = Some(sim.power_cut_with(Survivors::Names))
    });
    db.compact().unwrap();
    let sim = survivor.lock().unwrap().take().expect("they were merged");
    assert_eq!(reopened(&sim, "/db").1.get("k").unwrap().unwrap(), "w");
}

// Two memtables wait to be flushed, and only the first is: the log keeps what the second needs.
#[test]
fn a_flush_lets_go_of_no_log_that_another_memtable_needs() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    (0..5u8).for_each(|n| c.put([n], [n; 9_000]).unwrap());
    assert!(db.step().unwrap(), "one of them is flushed");
    assert_eq!(reopened(&fs.sim.kill(), "/db").1.iter().count(), 5);
}

// Records in tables were judged when they came there, and are not taken back into memory to be judged again.
#[test]
fn what_is_flushed_is_not_replayed() {
    let fs = Watched::new(Sim::new(1));
    let (db, a) = open(&fs, Durability::Buffered);
    let b = db.container("b").unwrap();
    // `b` holds the log, though it is long: it is not trimmed for a memtable that waits for its flush, as that of `a` does.
    a.put([9], [9; 10]).unwrap();
    b.put("k", "v").unwrap();
    (0..3u8).for_each(|n| a.put([n], [n; 12_000]).unwrap());
    assert!(db.step().unwrap());
    let before = a.stats();
    assert!(before.disk_bytes > 12_000);
    let (db, a) = reopened(&fs.sim.kill(), "/db");
    let after = a.stats();
    assert!(
        after.memtable_bytes <= before.memtable_bytes,
        "{after:?} after {before:?}"
    );
    assert!(db.container("b").unwrap().contains("k").unwrap());
}

// A crash may leave the manifest before the one that counts.
#[test]
fn an_older_manifest_counts_for_nothing() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Sync);
    let manifest = |sim: &Sim| {
        let names = sim.list(Path::new("/db")).unwrap();
        let mut names = names.iter().filter(|name| name.starts_with("manifest-"));
        Path::new("/db").join(names.next().unwrap())
    };
    let (older, bytes) = (manifest(&fs.sim), fs.sim.read(&manifest(&fs.sim)).unwrap());
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    drop((db, c));
    let sim = fs.sim.kill();
    let _ = reopened(&sim, "/db");
    let sim = sim.kill();
    sim.create(&older).unwrap().write_at(0, &bytes).unwrap();
    let (_db, c) = reopened(&sim, "/db");
    assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
    assert_eq!(sim.len(&older).unwrap(), None, "it is removed");
}

// A snapshot sees the writes up to a number, so a number is given once.
#[test]
fn a_change_of_the_default_takes_a_number() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    let snapshot = db.snapshot();
    c.put("k", "v").unwrap();
    assert_eq!(snapshot.container("c").unwrap().get("k").unwrap(), None);
}

// Records that a recovery has logged again may be all that there is of them.
#[test]
fn what_is_recovered_is_durable() {
    let fs = Watched::new(Sim::new(1));
    let (_db, c) = open(&fs, Durability::Sync);
    (0..20u8).for_each(|n| c.put([n], [n; 300]).unwrap());
    let killed = fs.sim.kill();
    let _again = reopened(&killed, "/db");
    for cut in 0..CUTS {
        let (_db, c) = reopened(&killed.power_cut(cut), "/db");
        assert_eq!(c.iter().count(), 20);
    }
}

// Nobody knows what a failed sync has left.
#[test]
fn nothing_is_taken_after_a_failed_sync_of_the_log() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Sync);
    let mut failed = false;
    fs.before(move |call, path| {
        let fails = call == "sync" && path.to_string_lossy().contains(".wal") && !failed;
        failed |= fails;
        if fails { Err(failure(path)) } else { Ok(()) }
    });
    assert!(c.put("k", "v").is_err());
    let change = c.set_default_ttl(DefaultTtl::NoDefault);
    for refused in [change, c.put("k", "v"), db.flush()] {
        assert!(matches!(refused, Err(Error::Poisoned { .. })));
    }
}

// A default that is not durable would end items that a crash brings back.
#[test]
fn a_change_that_failed_never_counted() {
    let fs = Watched::new(Sim::new(1));
    let (_db, c) = open(&fs, Durability::Sync);
    c.put("k", "v").unwrap();
    fs.before(|call, path| match call {
        "sync" if path.to_string_lossy().contains(".wal") => Err(failure(path)),
        _ => Ok(()),
    });
    let change = DefaultTtl::After(Duration::from_millis(1));
    assert!(c.set_default_ttl(change).is_err());
    assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
    let (_db, c) = reopened(&fs.sim.power_cut_with(Survivors::Nothing), "/db");
    assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
    assert!(c.get("k").unwrap().is_some());
}

// Items that were purged at a moment are gone at every earlier one, so the clock must not stand there again.
#[test]
fn no_clock_goes_back_behind_a_purge() {
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = stage::open(options(sim.clone()).clock(clock.clone()));
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
        .unwrap();
    c.put("k", "v").unwrap();
    db.flush().unwrap();
    clock.advance(Duration::from_secs(86_400));
    while db.step().unwrap() {}
    assert_eq!(c.stats().disk_bytes, 0, "it was purged");
    let earlier = options(sim.kill())
        .clock(ManualClock::new(START))
        .open("/db");
    assert!(matches!(earlier, Err(Error::ClockBehind { .. })));
}

/// An edit, and whether a database shows it.
type Edit = (fn(&Database, &Container), fn(&Database) -> bool);

const EDITS: [Edit; 4] = [
    (
        |_, c| c.set_default_ttl(DefaultTtl::NoDefault).unwrap(),
        |db| db.container("c").unwrap().default_ttl() == DefaultTtl::NoDefault,
    ),
    (
        |db, _| drop(db.container("new").unwrap()),
        |db| db.containers().contains(&"new".to_owned()),
    ),
    (
        |db, _| assert!(db.drop_container("old").unwrap()),
        |db| !db.containers().contains(&"old".to_owned()),
    ),
    (
        |_, c| drop(c.bulk_load([("loaded", "v")]).unwrap()),
        |db| {
            let c = db.container("c").unwrap();
            c.contains("loaded").unwrap()
        },
    ),
];

// History is one order of everything: what lasts never lacks what came before it. Most of the log is synced before the lock is
// taken, the rest under it: what was written in between came before the edit, too.
#[test]
fn an_edit_lasts_with_all_that_was_acknowledged_before_it() {
    for ((edit, is_there), between) in EDITS.iter().flat_map(|edit| [(edit, false), (edit, true)]) {
        let fs = Watched::new(Sim::new(1));
        let (db, c) = open(&fs, Durability::Buffered);
        db.container("old").unwrap();
        c.put("k", "v").unwrap();
        if between {
            let c = c.clone();
            fs.once("sync", ".wal", move || c.put("between", "v").unwrap());
        }
        edit(&db, &c);
        fs.before(|_, _| Ok(()));
        for cut in 0..CUTS {
            let (db, c) = reopened(&fs.sim.power_cut(cut), "/db");
            assert!(is_there(&db), "it was acknowledged");
            assert!(c.contains("k").unwrap(), "so was this, before it");
            assert_eq!(c.contains("between").unwrap(), between, "and this");
        }
    }
}

// From then on items may be purged that have ended by the limit: by a time that a replay has to come to again.
#[test]
fn a_purge_limit_lasts_with_the_writes_of_its_time() {
    let sim = Sim::new(1);
    let db = options(sim.clone()).given_time().open("/db").unwrap();
    let c = db.container("c").unwrap();
    let end = db.now() + Duration::from_secs(10);
    c.put_with_ttl("k", "v", Duration::from_secs(10)).unwrap();
    db.advance_to(end).unwrap();
    c.put("late", "v").unwrap();
    db.set_purge_limit(end).unwrap();
    let sim = sim.power_cut_with(Survivors::Nothing);
    let db = options(sim).given_time().open("/db").unwrap();
    let c = db.container("c").unwrap();
    assert!(c.contains("late").unwrap() && !c.contains("k").unwrap());
    assert!(db.now() >= end);
}

// An edit that purges relies on tables and on a time of its own, and so does the mark that it carries. After an open that
// leads the mark nothing is judged by the clock for five minutes, so a merge relies on no time at all.
#[test]
fn the_mark_relies_on_no_write_that_may_be_lost() {
    const DAY: Duration = Duration::from_secs(86_400);
    let (sim, clock) = (Sim::new(1), ManualClock::new(START));
    let (db, c) = stage::open(options(sim.clone()).clock(clock.clone()));
    for n in 0..6u8 {
        (0..20u8).for_each(|k| c.put([k], [n; 100]).unwrap());
        db.flush().unwrap();
    }
    db.close().unwrap();
    clock.advance(DAY);
    let sim = sim.kill();
    let (db, c) = stage::open(options(sim.clone()).clock(clock.clone()));
    c.put("late", "v").unwrap();
    while db.step().unwrap() {}
    assert!(db.stats().merges > 0, "something was merged");
    let sim = sim.power_cut_with(Survivors::Nothing);
    // At a moment long before the write that is lost.
    let db = options(sim).clock(ManualClock::new(START)).open("/db");
    let db = db.expect("no mark of a later time");
    let c = db.container("c").unwrap();
    assert!(!c.contains("late").unwrap() && c.contains([7]).unwrap());
}

// The log is cut at one moment, behind the flush with which a checkpoint begins.
#[test]
fn a_checkpoint_holds_all_that_was_written_before_it_and_survives() {
    let fs = Watched::new(Sim::new(1));
    let (db, c) = open(&fs, Durability::Buffered);
    c.put("flushed", [1; 1_000]).unwrap();
    fs.once("create_dir", "/copy", {
        let c = c.clone();
        move || c.put("logged", [2; 1_000]).unwrap()
    });
    db.checkpoint("/copy").unwrap();
    for sim in (0..CUTS)
        .map(|cut| fs.sim.power_cut(cut))
        .chain([fs.sim.kill()])
    {
        let (_db, copy) = reopened(&sim, "/copy");
        assert!(copy.contains("flushed").unwrap() && copy.contains("logged").unwrap());
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// A clock that does something once when it is looked at, and then shows another time.
#[derive(Clone)]
struct Meddling {
    clock: ManualClock,
    /// After so many looks more.
    act: Arc<Mutex<Option<(usize, Act)>>>,
    /// A look at the vague time counts.
    also_vague: bool,
}

impl Meddling {
    fn new(also_vague: bool) -> Meddling {
        Meddling {
            clock: ManualClock::new(START),
            act: Arc::default(),
            also_vague,
        }
    }

    fn next(&self, act: impl FnOnce(&ManualClock) + Send + 'static) {
        self.after(0, act);
    }

    fn after(&self, looks: usize, act: impl FnOnce(&ManualClock) + Send + 'static) {
        let clock = self.clock.clone();
        let act: Act = Box::new(move || act(&clock));
        *self.act.lock().unwrap() = Some((looks, act));
    }

    fn act(&self) {
        let mut next = self.act.lock().unwrap();
        let act = next.take_if(|(looks, _)| *looks == 0);
        if let Some((looks, _)) = &mut *next {
            *looks -= 1;
        }
        drop(next);
        if let Some((_, act)) = act {
            act();
        }
    }

    fn is_done(&self) -> bool {
        self.act.lock().unwrap().is_none()
    }

    #[track_caller]
    fn has_acted(&self) {
        assert!(self.is_done());
    }
}

impl Clock for Meddling {
    fn wall(&self) -> u64 {
        self.act();
        self.clock.wall()
    }

    fn uptime(&self) -> u64 {
        self.clock.uptime()
    }

    /// So much later that what is read here has ended by then, and the clock itself is asked.
    fn wall_at_most(&self) -> Option<u64> {
        if self.also_vague {
            self.act();
        }
        Some(self.clock.wall() + 10_000)
    }
}

// A read that had the settings first would judge by a default that was off long before the moment it judges.
#[test]
fn a_read_takes_the_clock_before_the_settings() {
    let (clock, _db, c) = meddled_with(Meddling::new(false));
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
        .unwrap();
    c.put("k", "v").unwrap();
    clock.clock.advance(Duration::from_secs(55));
    clock.next({
        let c = c.clone();
        move |time| {
            c.set_default_ttl(DefaultTtl::Off).unwrap();
            time.advance(Duration::from_secs(6));
        }
    });
    assert!(c.contains("k").unwrap());
    clock.has_acted();
}

fn meddled_with(clock: Meddling) -> (Meddling, Database, Container) {
    let (db, c) = stage::open(
        options(Sim::new(1))
            .memtable_bytes(64 << 10)
            .clock(clock.clone()),
    );
    c.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    (clock, db, c)
}

const TEN_MILLIS: Ttl = Ttl::After(Duration::from_millis(10));

// The number first, the clock last: in between the item is refreshed, and what the number shows of it ends.
#[test]
fn an_item_that_is_refreshed_during_a_call_is_found_by_it() {
    type Call = fn(&Container) -> bool;
    let calls: [(&str, Call); 8] = [
        ("get", |c| c.get("k").unwrap().is_some()),
        ("get_many", |c| c.get_many(["k"]).unwrap()[0].is_some()),
        // It may have no answer, but not that nothing is there.
        ("try_get", |c| {
            let found = c.try_get("k").unwrap().ready();
            found.is_none_or(|found| found.is_some())
        }),
        ("contains", |c| c.contains("k").unwrap()),
        ("item", |c| c.item("k").unwrap().is_some()),
        ("replace", |c| c.replace("k", "w", Ttl::Never).unwrap()),
        ("touch", |c| c.touch("k").unwrap()),
        ("update", |c| {
            let mut found = false;
            c.update("k", |item| {
                found = item.is_some();
                Update::Keep
            })
            .unwrap();
            found
        }),
    ];
    type Beside = fn(&Database);
    let beside: [(&str, Beside); 3] = [
        ("nothing", |_| {}),
        ("a flush", |db| db.flush().unwrap()),
        ("a merge", |db| db.compact().unwrap()),
    ];
    for (name, call) in calls {
        for (what, beside) in beside {
            let (clock, db, c) = meddled_with(Meddling::new(false));
            c.put_with_ttl("k", "v", TEN_MILLIS).unwrap();
            beside(&db);
            // So that a call that does not wait finds it in memory.
            assert!(c.get("k").unwrap().is_some());
            clock.clock.advance(Duration::from_millis(8));
            clock.next({
                let (db, c) = (db.clone(), c.clone());
                move |time| {
                    assert!(c.touch("k").unwrap());
                    beside(&db);
                    time.advance(Duration::from_millis(4));
                }
            });
            assert!(call(&c), "{name} beside {what}");
            clock.has_acted();
        }
    }
}

// The same of what is not there any more: it is deleted during the call, and then time runs on.
#[test]
fn an_item_that_is_deleted_during_a_call_is_not_found_by_a_second_look() {
    let (clock, _db, c) = meddled_with(Meddling::new(false));
    c.put_with_ttl("k", "v", TEN_MILLIS).unwrap();
    clock.next({
        let c = c.clone();
        move |time| {
            c.delete("k").unwrap();
            time.advance(Duration::from_millis(10));
        }
    });
    assert!(!c.contains("k").unwrap());
    clock.has_acted();
}

const DAY_MILLIS: u64 = 86_400_000;

// The wall leaps ahead, and is put right before the stamp: the item is there, also where nothing is to be written.
#[test]
fn what_only_a_wrong_clock_ended_is_found_and_not_overwritten() {
    for writes in [true, false] {
        let (clock, _db, c) = meddled_with(Meddling::new(false));
        c.put_with_ttl("k", "v", Ttl::After(Duration::from_secs(60)))
            .unwrap();
        let (mut shown, time) = (vec![], clock.clock.clone());
        time.jump(START + DAY_MILLIS);
        let changed = c.update("k", |item| {
            shown.push(item.is_some());
            time.jump(START);
            match item {
                None if writes => Update::Put(b"w".to_vec(), Ttl::Never),
                _ => Update::Keep,
            }
        });
        assert!(!changed.unwrap(), "{writes}");
        assert_eq!(shown, [false, true], "{writes}");
        assert_eq!(c.get("k").unwrap().unwrap(), "v", "{writes}");
    }
}

// A refresh that was made under a wrong clock is the newest version, whatever the clock says later.
#[test]
fn a_read_beside_a_clock_that_goes_back_shows_no_older_version() {
    reads_beside_a_clock_that_goes_back(|c| c.get("k").unwrap());
    reads_beside_a_clock_that_goes_back(|c| c.get_many(["k"]).unwrap().remove(0));
    reads_beside_a_clock_that_goes_back(|c| {
        let found = c.try_get("k").unwrap().ready();
        found.unwrap_or_else(|| c.get("k").unwrap())
    });
}

fn reads_beside_a_clock_that_goes_back(get: fn(&Container) -> Option<Value>) {
    let (clock, _db, c) = meddled_with(Meddling::new(true));
    c.put_with_ttl("k", "v", Ttl::After(Duration::from_secs(60)))
        .unwrap();
    clock.next({
        let c = c.clone();
        move |time| {
            time.jump(START + DAY_MILLIS);
            assert!(c.create("k", "w", Ttl::Never).unwrap(), "v has ended");
            time.jump(START);
            assert_eq!(c.get("k").unwrap().unwrap(), "w");
        }
    });
    assert_eq!(get(&c).unwrap(), "w");
    clock.has_acted();
}

// A scan that had the settings first would take for dead for good what they would have ended, and do not.
#[test]
fn a_scan_takes_the_clock_before_the_settings() {
    let (clock, _db, c) = meddled_with(Meddling::new(false));
    c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
        .unwrap();
    c.put("k", "v").unwrap();
    clock.clock.advance(Duration::from_secs(55));
    clock.next({
        let c = c.clone();
        move |time| {
            c.set_default_ttl(DefaultTtl::Off).unwrap();
            time.advance(Duration::from_secs(6));
        }
    });
    assert_eq!(c.iter().count(), 1);
    clock.has_acted();
}

// Compacting leaves of a key the newest version alone: whoever had the sequence number first, and then that read state,
// would miss it. More readers than cores, so that many are stopped just there.
#[test]
fn a_read_takes_the_picture_before_the_number() {
    let (db, c) = stage::open(options(Sim::new(1)));
    c.put("k", "v").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    if !c.contains("k").unwrap() {
                        stop.store(true, Ordering::Relaxed);
                        panic!("it was always there");
                    }
                }
            });
        }
        for _ in 0..100 {
            c.put("k", "v").unwrap();
            c.put("k", "w").unwrap();
            db.compact().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A clock on which a millisecond passes with every look at it.
struct Restless(AtomicU64);

impl Clock for Restless {
    fn wall(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn uptime(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

// Numbers and times are given together: of two writes the later one is not the older one.
#[test]
fn times_rise_with_numbers() {
    let sim = Sim::new(1);
    let (_db, c) = stage::open(
        options(sim.clone())
            .memtable_bytes(64 << 20)
            .clock(Restless(AtomicU64::new(START))),
    );
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let c = &c;
            scope.spawn(move || {
                for n in 0..1_000u32 {
                    let ttl = Ttl::After(Duration::from_secs(n.into()) + Duration::from_secs(1));
                    c.put_with_ttl([thread, n].map(u32::to_be_bytes).concat(), "v", ttl)
                        .unwrap();
                }
            });
        }
    });
    let sim = sim.kill();
    let names = sim.list(Path::new("/db/wal")).unwrap();
    let numbers = names.iter().filter_map(|name| name.strip_suffix(".wal"));
    let first = numbers.map(|number| number.parse().unwrap()).min().unwrap();
    let (mut before, mut frames) = ((0, 0), 0);
    replay(&sim, Path::new("/db/wal"), first, &mut |frame| {
        let stamp = (frame.header.first_seq.0, frame.header.written_at.0);
        assert!(
            before.0 < stamp.0 && before.1 <= stamp.1,
            "{stamp:?} after {before:?}"
        );
        (before, frames) = (stamp, frames + 1);
        Ok(())
    })
    .unwrap();
    // The first makes the container.
    assert_eq!(frames, 4_001);
}

// Between the choice of a job and the job itself, its container may go.
#[test]
fn a_job_whose_container_is_dropped_meanwhile_does_nothing() {
    let mut dropped = 0;
    // At each look at the clock that a step takes.
    for looks in 0..20 {
        let clock = Meddling::new(false);
        let (db, c) = stage::open(options(Sim::new(1)).clock(clock.clone()));
        for n in 0..4u8 {
            c.put([n], [n; 1_000]).unwrap();
            db.flush().unwrap();
        }
        assert!(c.stats().runs > 2, "they are to be joined");
        clock.after(looks, {
            let db = db.clone();
            move |_| assert!(db.drop_container("c").unwrap())
        });
        while db.step().unwrap() {}
        if !clock.is_done() {
            break;
        }
        assert_eq!(db.containers(), [""; 0]);
        dropped += 1;
    }
    assert!((3..20).contains(&dropped), "{dropped}");
}

// Records that are logged again count once they are synced; until then their earlier frames are needed. Here a memtable
// is moved on between the sync and the edit of another one's flush.
#[test]
fn what_was_logged_again_and_is_not_synced_lets_go_of_no_log() {
    let (fs, clock) = (Watched::new(Sim::new(1)), Meddling::new(false));
    let db = options(fs.clone())
        .memtable_bytes(1 << 20)
        .sizes(256, 64 << 10, 64 << 10)
        .clock(clock.clone())
        .open("/db")
        .unwrap();
    let [a, b, y, z] = ["a", "b", "y", "z"].map(|name| db.container(name).unwrap());
    z.put("k", "v").unwrap();
    b.put("k", "v").unwrap();
    // More than this segment has left: the next one begins.
    y.put("k", vec![1; 70_000]).unwrap();
    // So much that a flush does not move it out of its way.
    for name in ["v", "w", "x"] {
        let other = db.container(name).unwrap();
        other.put("k", vec![1; 60_000]).unwrap();
    }
    db.sync().unwrap();
    // The first segment holds something that nobody needs, and something that is needed.
    db.drop_container("z").unwrap();
    clock.clock.advance(Duration::from_secs(3_600));
    let (reached, is_reached) = channel();
    let (go_on, goes_on) = channel::<()>();
    let mut tables = 0;
    fs.before(move |call, path| {
        if call == "create" && path.to_string_lossy().ends_with(".table") && tables == 0 {
            tables += 1;
            reached.send(()).unwrap();
            goes_on.recv().unwrap();
        }
        Ok(())
    });
    let flush = Arc::new(Mutex::new(None));
    // After two looks at what is in memory: when it has been seen which segments are to go.
    clock.after(5, {
        let (db, flush) = (db.clone(), flush.clone());
        move |_| {
            a.put("k", vec![1; 1_100_000]).unwrap();
            *flush.lock().unwrap() = Some(std::thread::spawn(move || db.step()));
            let patience = Duration::from_secs(60);
            is_reached.recv_timeout(patience).expect("a flush begins");
        }
    });
    assert!(db.step().unwrap(), "it is logged again");
    clock.has_acted();
    go_on.send(()).unwrap();
    let flush = flush.lock().unwrap().take().unwrap();
    assert!(flush.join().unwrap().unwrap(), "another one is flushed");
    fs.before(|_, _| Ok(()));
    for sim in (0..CUTS)
        .map(|cut| fs.sim.power_cut(cut))
        .chain([fs.sim.power_cut_with(Survivors::Nothing)])
    {
        let db = options(sim).clock(clock.clone()).open("/db").unwrap();
        assert!(db.container("b").unwrap().contains("k").unwrap());
    }
}
