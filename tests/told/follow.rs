//! Goal: a follower shows states that the writer was in, in their order, and after `catch_up` all that was
//! acknowledged before; it writes nothing, and a file that vanished under it is no error.
//!
//! Method: writer and follower share a simulated disk and a clock that stands until it is moved. The follower sees
//! the disk through [`Beside`], which fails the test when anything is to be written, and which can have the writer
//! act in the midst of any call. What the writer shows after each step is what the follower has to show once it has
//! caught up; until then it shows what it showed before. Random histories, step by step, stand in
//! tests/contract/model.rs; kills, with followers in other processes, in tests/crashes/follow_kill.rs.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, Survivors, repair_with};
use ebbtide::{
    Batch, Compression, Container, ContainerOptions, Database, DefaultTtl, Error, ManualClock,
    OnMiss, Options, Quota, Reads, Result, Ttl, WhenFull,
};
use testkit::beside::Beside;
use testkit::random::Random;
use testkit::stage;

const START: u64 = 1_800_000_000_000;

/// Everything that a database shows: of each container its default and its items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown(BTreeMap<String, (DefaultTtl, Items)>);

/// Value and end, in milliseconds.
type Items = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn items<'a>(found: impl Iterator<Item = Result<ebbtide::Item>> + 'a) -> Items {
    let millis = |time: std::time::SystemTime| {
        let since = time.duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_millis() as u64
    };
    found
        .map(|item| {
            let item = item.unwrap();
            let shown = (item.value().to_vec(), item.expires_at().map(millis));
            (item.key().to_vec(), shown)
        })
        .collect()
}

impl Shown {
    fn by(db: &Database) -> Shown {
        let mut shown = BTreeMap::new();
        for name in db.containers() {
            let container = db.container(&name).unwrap();
            let found = items(container.iter());
            for (key, (value, _)) in &found {
                let got = container.get(key).unwrap();
                assert_eq!(
                    got.as_deref(),
                    Some(&value[..]),
                    "a get differs from a scan"
                );
            }
            assert_eq!(items(container.iter().rev()), found);
            shown.insert(name, (container.default_ttl(), found));
        }
        Shown(shown)
    }
}

fn options(clock: &ManualClock) -> Options {
    Options::new()
        .clock(clock.clone())
        .memtable_bytes(8 << 10)
        .max_runs(2)
        .reclaim_within(Duration::from_secs(60))
        .sizes(512, 4 << 10, 4 << 10)
        .stepped()
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A writer, and where it writes.
struct Writer {
    sim: Sim,
    clock: ManualClock,
    db: Option<Database>,
    random: Random,
    n: u64,
    /// Those who look on.
    beside: Vec<Beside>,
    /// Its states right after bulk loads.
    loaded: Vec<Shown>,
}

fn folder() -> &'static Path {
    Path::new("/db")
}

impl Writer {
    fn new(seed: u64) -> Writer {
        let (sim, clock) = (Sim::new(seed), ManualClock::new(START));
        let db = options(&clock).fs(Arc::new(sim.clone())).open(folder());
        Writer {
            db: Some(db.unwrap()),
            random: Random(seed),
            n: 0,
            beside: vec![],
            loaded: vec![],
            sim,
            clock,
        }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.db = None;
        let db = options(&self.clock)
            .fs(Arc::new(self.sim.clone()))
            .open(folder());
        self.db = Some(db.unwrap());
    }

    /// As a killed process leaves it: nothing is synced or closed.
    fn kill(&mut self) {
        self.sim = self.sim.kill();
        for beside in &self.beside {
            beside.set(&self.sim);
        }
        self.reopen();
    }

    fn follow(&mut self) -> (Database, Beside) {
        let beside = Beside::new(&self.sim);
        self.beside.push(beside.clone());
        let follower = options(&self.clock)
            .fs(Arc::new(beside.clone()))
            .follow(folder());
        (follower.unwrap(), beside)
    }

    fn some(&mut self) -> Container {
        let name = self.random.pick(&NAMES);
        self.db().container(name).unwrap()
    }

    fn key(&mut self) -> String {
        format!("key-{:02}", self.random.below(40))
    }

    fn ttl(&mut self) -> Ttl {
        match self.random.below(4) {
            0 => Ttl::Never,
            1 => Ttl::After(Duration::from_secs(1 + self.random.below(100) as u64)),
            _ => Ttl::Inherit,
        }
    }

    /// One step of anything.
    fn act(&mut self) {
        self.n += 1;
        let value = format!("{}|{}", self.n, "x".repeat(self.random.below(400)));
        match self.random.below(100) {
            0..55 => {
                let (container, key, ttl) = (self.some(), self.key(), self.ttl());
                container.put_with_ttl(&key, &value, ttl).unwrap();
            }
            55..70 => {
                let mut batch = Batch::new();
                for _ in 0..4 {
                    let (container, key) = (self.some(), self.key());
                    match self.random.below(3) {
                        0 => batch.delete(&container, &key),
                        _ => batch.put(&container, &key, &value),
                    };
                }
                if self.random.one_in(4) {
                    let container = self.some();
                    batch.set_default_ttl(&container, DefaultTtl::After(Duration::from_secs(300)));
                }
                self.db().write(batch).unwrap();
            }
            70..76 => {
                let (container, key) = (self.some(), self.key());
                container.delete(&key).unwrap();
            }
            76..79 => {
                let (container, from, to) = (self.some(), self.key(), self.key());
                if from < to {
                    container.delete_range(from.as_str()..to.as_str()).unwrap();
                }
            }
            79..82 => {
                let to = match self.random.below(3) {
                    0 => DefaultTtl::Off,
                    1 => DefaultTtl::NoDefault,
                    _ => DefaultTtl::After(Duration::from_secs(30 + self.random.below(200) as u64)),
                };
                self.some().set_default_ttl(to).unwrap();
            }
            82..84 => {
                let name = self.random.pick(&NAMES);
                let mut batch = Batch::new();
                batch.on_miss(OnMiss::Skip).drop_container(name);
                if self.random.one_in(2) {
                    batch.create_container(name, ContainerOptions::new());
                }
                self.db().write(batch).unwrap();
            }
            84..88 => self
                .clock
                .advance(Duration::from_secs(self.random.below(40) as u64)),
            88..90 => self.db().flush().unwrap(),
            90 => self.db().compact().unwrap(),
            91 => self.db().sync().unwrap(),
            92 => self.reopen(),
            93 => self.kill(),
            _ => while self.db().step().unwrap() {},
        }
        self.db().step().unwrap();
    }
}

/// Before the `n`th call of a catching-up the writer does all that makes files vanish and appear.
fn catch_up_while_files_vanish(n: usize, by: fn(&mut Writer)) -> bool {
    let mut writer = Writer::new(n as u64);
    for _ in 0..60 {
        writer.act();
    }
    let (follower, beside) = writer.follow();
    for _ in 0..10 {
        writer.act();
    }
    for name in NAMES {
        writer.db().container(name).unwrap();
    }
    let before = Shown::by(writer.db());
    let writer = Arc::new(Mutex::new(writer));
    let (acting, calls) = (writer.clone(), Arc::new(AtomicUsize::new(0)));
    let counted = calls.clone();
    beside.before(move |_, _| {
        if counted.fetch_add(1, Ordering::Relaxed) == n {
            by(&mut acting.lock().unwrap());
        }
    });
    follower.catch_up().unwrap();
    beside.quiet();
    let after = Shown::by(writer.lock().unwrap().db());
    let shown = Shown::by(&follower);
    // A container is made by an edit of its own.
    let mut made = before.clone();
    let empty = (DefaultTtl::NoDefault, Items::new());
    made.0.entry("another".to_owned()).or_insert(empty);
    let loaded = std::mem::take(&mut writer.lock().unwrap().loaded);
    let known = [&before, &made, &after];
    let is_known = known.contains(&&shown) || loaded.contains(&shown);
    assert!(is_known, "call {n}: {shown:?}");
    follower.catch_up().unwrap();
    assert_eq!(Shown::by(&follower), after, "call {n}");
    calls.load(Ordering::Relaxed) > n
}

/// One write, and nothing that was there before keeps its file.
fn replace_all(writer: &mut Writer) {
    let mut batch = Batch::new();
    for name in NAMES {
        let container = writer.db().container(name).unwrap();
        batch.put(&container, "new", "x".repeat(300));
    }
    writer.db().write(batch).unwrap();
    writer.db().flush().unwrap();
    writer.db().compact().unwrap();
    while writer.db().step().unwrap() {}
    writer.db().sync().unwrap();
}

/// A batch over a container that was there and one that was not.
fn create(writer: &mut Writer) {
    let names = [NAMES[0], "another"];
    let [old, new] = names.map(|name| writer.db().container(name).unwrap());
    let mut batch = Batch::new();
    batch.put(&old, "in both", "x").put(&new, "in both", "x");
    writer.db().write(batch).unwrap();
}

/// A bulk load, which is said by an edit alone, and a write after it.
fn load(writer: &mut Writer) {
    let container = writer.db().container(NAMES[0]).unwrap();
    container.bulk_load([("loaded", "x")]).unwrap();
    writer.loaded.push(Shown::by(writer.db()));
    container.put("after it", "x").unwrap();
}

#[test]
fn a_file_that_vanishes_is_looked_for_again() {
    let changes: [fn(&mut Writer); 5] = [
        create,
        load,
        replace_all,
        |writer| {
            replace_all(writer);
            writer.reopen();
        },
        |writer| {
            replace_all(writer);
            writer.kill();
        },
    ];
    for by in changes {
        let calls = (0..)
            .find(|&n| !catch_up_while_files_vanish(n, by))
            .unwrap();
        assert!(calls > 20, "{calls} calls");
    }
}

#[test]
fn an_open_follower_of_a_busy_writer_is_opened_though_files_vanish() {
    let mut writer = Writer::new(7);
    for _ in 0..80 {
        writer.act();
    }
    let (sim, clock) = (writer.sim.clone(), writer.clock.clone());
    let beside = Beside::new(&sim);
    let writer = Arc::new(Mutex::new(writer));
    let (acting, mut calls) = (writer.clone(), 0);
    beside.before(move |_, _| {
        calls += 1;
        // Ever more seldom, so that it comes to an end.
        if calls % (1 + calls / 20) == 0 {
            replace_all(&mut acting.lock().unwrap());
        }
    });
    let follower = options(&clock)
        .fs(Arc::new(beside.clone()))
        .follow(folder())
        .unwrap();
    beside.quiet();
    follower.catch_up().unwrap();
    assert_eq!(Shown::by(&follower), Shown::by(writer.lock().unwrap().db()));
}

#[test]
fn nothing_can_be_changed_through_a_follower() {
    let mut writer = Writer::new(1);
    let c = writer.db().container("c").unwrap();
    c.put("k", "v").unwrap();
    let (db, _) = writer.follow();
    let c = db.container("c").unwrap();
    let mut batch = Batch::new();
    batch.put(&c, "k", "w");
    let refused = [
        c.put("k", "w"),
        c.delete("k"),
        c.delete_range("a".."z"),
        c.set_default_ttl(DefaultTtl::Off),
        c.touch("k").map(drop),
        c.create("n", "w", Ttl::Never).map(drop),
        c.replace("k", "w", Ttl::Never).map(drop),
        db.write(batch),
        db.sync(),
        db.flush(),
        db.compact(),
        db.step().map(drop),
        db.container("new").map(drop),
        db.drop_container("c").map(drop),
    ];
    for (at, refused) in refused.into_iter().enumerate() {
        assert!(matches!(refused, Err(Error::ReadOnly)), "{at}: {refused:?}");
    }
    assert_eq!(c.get("k").unwrap().unwrap(), "v");
    db.close().unwrap();
    assert!(db.catch_up().unwrap_err().is_closed());
}

/// A transaction reads one state, or is told of a conflict, whatever the follower takes in meanwhile.
#[test]
fn a_transaction_of_a_follower_is_of_one_state() {
    for flushes in [false, true] {
        let mut writer = Writer::new(5);
        let (a, b) = (writer.some(), writer.db().container("other").unwrap());
        let db = writer.db().clone();
        let write = |value: &str| {
            let mut batch = Batch::new();
            batch.put(&a, "k", value).put(&b, "k", value);
            db.write(&batch).unwrap();
        };
        write("old");
        let (follower, _) = writer.follow();
        let (its_a, its_b) = (
            follower.container(a.name()).unwrap(),
            follower.container("other").unwrap(),
        );
        let tx = follower.begin();
        assert_eq!(tx.get(&its_a, "k").unwrap().unwrap(), "old");
        write("new");
        if flushes {
            writer.db().flush().unwrap();
            writer.db().compact().unwrap();
        }
        follower.catch_up().unwrap();
        assert_eq!(its_b.get("k").unwrap().unwrap(), "new");
        match tx.get(&its_b, "k") {
            Ok(value) => assert_eq!(value.unwrap(), "old"),
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
        let tx = follower.begin();
        tx.put(&its_b, "k", "mine").unwrap();
        assert!(matches!(tx.commit(), Err(Error::ReadOnly)));
        assert_eq!(its_b.get("k").unwrap().unwrap(), "new");
    }
}

#[test]
fn a_look_that_finds_nothing_new_reads_no_file() {
    let mut writer = Writer::new(3);
    for _ in 0..100 {
        writer.act();
    }
    let (follower, beside) = writer.follow();
    for _ in 0..20 {
        follower.catch_up().unwrap();
        beside.before(|call, path| {
            assert!(call != "read" && call != "map", "{}", path.display());
        });
        follower.catch_up().unwrap();
        beside.quiet();
        writer.act();
    }
}

#[test]
fn a_follower_of_no_database_is_an_error_and_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing")] {
        let refused = Options::new().follow(&path).map(drop);
        assert!(
            matches!(refused, Err(Error::NotFound { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// A dead record may be gone from every file, with what it hid. So a follower whose wall is behind judges by the
/// mark.
#[test]
fn a_follower_is_never_before_what_the_writer_has_purged() {
    let writer = Writer::new(1);
    let c = writer.db().container("c").unwrap();
    c.put_with_ttl("k", "short", Duration::from_secs(10))
        .unwrap();
    let behind = ManualClock::new(START);
    let beside = Beside::new(&writer.sim);
    let options = options(&behind).fs(Arc::new(beside));
    let follower = options.follow(folder()).unwrap();
    assert_eq!(
        follower.container("c").unwrap().get("k").unwrap().unwrap(),
        "short"
    );
    writer.clock.advance(Duration::from_secs(600));
    writer.db().compact().unwrap();
    follower.catch_up().unwrap();
    assert!(follower.container("c").unwrap().get("k").unwrap().is_none());
    let mark = Duration::from_millis(START) + Duration::from_secs(600);
    assert!(follower.now() >= std::time::UNIX_EPOCH + mark);
    // Too far behind is an error, and what was shown stays.
    writer.clock.advance(Duration::from_secs(86_400));
    writer
        .db()
        .container("c")
        .unwrap()
        .put("later", "v")
        .unwrap();
    assert!(matches!(
        follower.catch_up(),
        Err(Error::ClockBehind { .. })
    ));
    assert!(
        follower
            .container("c")
            .unwrap()
            .get("later")
            .unwrap()
            .is_none()
    );
    behind.advance(Duration::from_secs(86_400));
    follower.catch_up().unwrap();
    assert!(follower.container("c").unwrap().contains("later").unwrap());
}

/// Changes a byte of the value in the log that `part` begins.
fn damage(sim: &Sim, part: &[u8]) {
    let wal = folder().join("wal");
    for name in sim.list(&wal).unwrap() {
        let path = wal.join(name);
        let bytes = sim.read(&path).unwrap();
        if let Some(at) = bytes.windows(part.len()).position(|window| window == part) {
            sim.open(&path).unwrap().write_at(at as u64, b"!").unwrap();
        }
    }
}

#[test]
fn damage_is_told_of_and_what_was_shown_stays() {
    let mut writer = Writer::new(1);
    let c = writer.db().container("c").unwrap();
    c.put("first", "1").unwrap();
    let (follower, _) = writer.follow();
    c.put("second", "to be damaged").unwrap();
    writer.db().sync().unwrap();
    damage(&writer.sim, b"to be damaged");
    c.put("third", "3").unwrap();
    writer.db().sync().unwrap();
    let told = follower.catch_up().unwrap_err();
    assert!(told.is_corruption(), "{told}");
    let seen = follower.container("c").unwrap();
    assert_eq!(seen.get("first").unwrap().unwrap(), "1");
    assert!(!seen.contains("second").unwrap() && !seen.contains("third").unwrap());
    // The tables are sound then.
    drop(c);
    writer.db().flush().unwrap();
    writer.reopen();
    follower.catch_up().unwrap();
    assert_eq!(Shown::by(&follower), Shown::by(writer.db()));
    assert!(seen.contains("third").unwrap());
}

/// A repair takes writes away that were shown. What comes then is shown whole, though its numbers were there before.
#[test]
fn a_repair_is_followed_though_it_cuts_history_off() {
    let mut writer = Writer::new(1);
    let c = writer.db().container("c").unwrap();
    c.put("kept", "1").unwrap();
    c.put("lost", "to be damaged").unwrap();
    for n in 0..20 {
        c.put(format!("lost-{n}"), "too").unwrap();
    }
    writer.db().sync().unwrap();
    let (follower, _) = writer.follow();
    drop(c);
    writer.sim = writer.sim.kill();
    writer.beside[0].set(&writer.sim);
    damage(&writer.sim, b"to be damaged");
    writer.db = None;
    let repairs = options(&writer.clock).fs(Arc::new(writer.sim.clone()));
    assert!(repairs.open(folder()).is_err());
    let report = repair_with(folder(), &repairs, true).unwrap();
    assert!(!report.losses.is_empty());
    follower.catch_up().unwrap();
    writer.reopen();
    for n in 0..40 {
        assert_eq!(Shown::by(&follower), Shown::by(writer.db()), "{n}");
        let names = ["c", "d"].map(|name| writer.db().container(name).unwrap());
        let mut batch = Batch::new();
        for container in &names {
            batch.put(container, format!("new-{n}"), "x");
        }
        writer.db().write(batch).unwrap();
        follower.catch_up().unwrap();
    }
    assert!(!follower.container("c").unwrap().contains("lost").unwrap());
}

/// An older copy of the folder takes its place, and the numbers of its tables are given again: what was cached of the
/// tables that had them before is not shown.
#[test]
fn a_folder_that_was_put_back_is_followed_by_what_it_holds() {
    for (reads, compression) in [
        (Reads::Map, Compression::Lz4),
        (Reads::Pread, Compression::None),
    ] {
        let clock = ManualClock::new(START);
        let options = |sim: &Sim| {
            let options = options(&clock).reads(reads).compression(compression);
            options.fs(Arc::new(sim.clone()))
        };
        let sim = Sim::new(1);
        let (db, c) = stage::open(options(&sim));
        c.put("kept", "1").unwrap();
        db.sync().unwrap();
        let older = sim.power_cut_with(Survivors::Nothing);
        let write = |db: &Database, value: &str| {
            let c = db.container("c").unwrap();
            for n in 0..100 {
                c.put(format!("k-{n}"), [value; 20].concat()).unwrap();
            }
            db.flush().unwrap();
        };
        // More files than the reopened database gives numbers to before it writes.
        (0..8).for_each(|_| write(&db, "lost"));
        let beside = Beside::new(&sim);
        let follower = options(&sim).fs(Arc::new(beside.clone()));
        let follower = follower.follow(folder()).unwrap();
        let shown = Shown::by(&follower);
        assert_eq!(shown, Shown::by(&db));
        drop((c, db));
        beside.set(&older);
        let db = options(&older).open(folder()).unwrap();
        for value in [
            "new1", "new2", "new3", "new4", "new5", "new6", "new7", "new8",
        ] {
            write(&db, value);
            follower.catch_up().unwrap();
            assert_eq!(Shown::by(&follower), Shown::by(&db), "{reads:?}");
        }
    }
}

#[test]
fn a_followers_checkpoint_holds_what_it_shows() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new(START));
    let (from, to) = (folder.path().join("db"), folder.path().join("copy"));
    let db = options(&clock).open(&from).unwrap();
    let follower = options(&clock).follow(&from).unwrap();
    let [c, d] = ["c", "d"].map(|name| db.container(name).unwrap());
    for n in 0..200 {
        c.put(format!("{n:03}"), "x".repeat(200)).unwrap();
        d.put_with_ttl(format!("{n:03}"), "y", Duration::from_secs(n + 1))
            .unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    c.delete_range("010".."020").unwrap();
    let mut batch = Batch::new();
    batch.set_default_ttl(&c, DefaultTtl::After(Duration::from_secs(60)));
    batch.put(&c, "last", "z");
    db.write(batch).unwrap();
    follower.checkpoint(&to).unwrap();
    let shown = Shown::by(&db);
    c.put("later", "z").unwrap();
    let copy = options(&clock).open(&to).unwrap();
    assert_eq!(Shown::by(&copy), shown);
    clock.advance(Duration::from_secs(60));
    assert_eq!(Shown::by(&copy), Shown::by(&follower));
    // Nothing is made where something is, or where the database is itself.
    for taken in [&to, &from, &from.join("below")] {
        let refused = follower.checkpoint(taken);
        assert!(
            matches!(refused, Err(Error::InvalidArgument { .. })),
            "{refused:?}"
        );
    }
    assert!(!from.join("below").exists());
}

#[test]
fn a_follower_knows_how_far_the_writer_has_come() {
    let mut writer = Writer::new(8);
    for _ in 0..40 {
        writer.act();
    }
    let (follower, _) = writer.follow();
    for step in 0..100 {
        writer.act();
        follower.catch_up().unwrap();
        let (writer, there) = (writer.db(), follower.stats());
        assert_eq!(follower.last_version(), writer.last_version(), "{step}");
        assert_eq!(there.bytes_logged, writer.stats().bytes_logged, "{step}");
        assert_eq!(follower.edits().unwrap(), writer.edits().unwrap(), "{step}");
        for name in writer.containers() {
            let [ours, theirs] = [writer, &follower].map(|db| db.container(&name).unwrap().runs());
            assert_eq!(ours, theirs, "{step}");
        }
    }
    assert!(follower.stats().bytes_logged > 0);
    assert!(follower.edits().unwrap().len() > 1);
}

/// All that a database says of its containers, besides items.
fn limits(db: &Database) -> Vec<(String, DefaultTtl, Option<Quota>, Duration)> {
    let of = |name: String| {
        let c = db.container(&name).unwrap();
        (name, c.default_ttl(), c.quota(), c.keep_expired())
    };
    db.containers().into_iter().map(of).collect()
}

/// They stand in the log alone, or an edit has said them, or said some of them, when a follower comes.
#[test]
fn a_follower_is_told_what_containers_are_by_the_log() {
    for flushes in [0, 1, 3] {
        let mut writer = Writer::new(1);
        let c = writer.db().container("c").unwrap();
        c.put("k", "v").unwrap();
        let (early, _) = writer.follow();
        let quota = Quota {
            max_live_bytes: 1 << 20,
            when_full: WhenFull::Refuse,
        };
        let changes: [&dyn Fn(&Database); 6] = [
            &|db| db.container("new").unwrap().put("k", "new").unwrap(),
            &|_| c.set_quota(Some(quota)).unwrap(),
            &|_| c.set_keep_expired(Duration::from_secs(5)).unwrap(),
            &|db| {
                let mut batch = Batch::new();
                batch.drop_container("new").put(&c, "l", "with the drop");
                batch.create_container("newer", ContainerOptions::new());
                db.write(batch).unwrap();
            },
            &|_| c.set_default_ttl(DefaultTtl::Off).unwrap(),
            &|db| assert!(db.drop_container("newer").unwrap()),
        ];
        for (at, change) in changes.iter().enumerate() {
            change(writer.db());
            early.catch_up().unwrap();
            let (late, _) = writer.follow();
            for follower in [&early, &late] {
                assert_eq!(limits(follower), limits(writer.db()), "change {at}");
                assert_eq!(Shown::by(follower), Shown::by(writer.db()), "change {at}");
            }
            if flushes > 0 && at % flushes == 0 {
                c.put("more", at.to_string()).unwrap();
                writer.db().flush().unwrap();
            }
        }
    }
}
