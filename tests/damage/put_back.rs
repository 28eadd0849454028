//! Goal: a log that was replaced by an earlier state of itself is never taken for the newest one: everything that the
//! manifest knows to be durable is there, or open, `verify` and `repair` say what is missing.
//!
//! Method: histories on the simulated disk, with edits of each kind between synced and unsynced writes. After each step
//! the folder `wal` is saved, and each saved one replaces the newest one. A log without a write that was synced before
//! the last edit must be refused. One without a loss opens as it was, and so does each that a power cut leaves.

#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ebbtide::internals::{Fs, Sim, parse_manifest, repair_with, verify_in};
use ebbtide::{Database, DefaultTtl, Durability, Error, ManualClock, Options, Result, Ttl};
use testkit::stage;

const START: u64 = 1_800_000_000_000;
const PATH: &str = "/db";
const WAL: &str = "/db/wal";

/// The events, one after the other.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many items are put.
    Put(u32),
    Sync,
    /// The default changes.
    Default,
    /// A container is made.
    Create,
    Flush,
    /// Items in a table expire, and the table is dropped: an edit that relies on no write.
    Expire,
    Checkpoint,
    Close,
    Kill,
}

use Step::*;

const HISTORIES: [&[Step]; 5] = [
    &[
        Put(3),
        Default,
        Put(2),
        Sync,
        Put(1),
        Create,
        Put(2),
        Sync,
        Put(1),
        Default,
    ],
    &[
        Put(3),
        Sync,
        Put(2),
        Sync,
        Put(1),
        Expire,
        Put(2),
        Sync,
        Put(1),
        Create,
    ],
    &[
        Put(3),
        Flush,
        Put(2),
        Sync,
        Put(1),
        Flush,
        Put(40),
        Sync,
        Put(1),
        Default,
        Put(1),
        Flush,
    ],
    &[
        Put(3),
        Kill,
        Put(2),
        Sync,
        Put(1),
        Default,
        Put(1),
        Kill,
        Put(30),
        Create,
        Put(1),
        Sync,
        Expire,
    ],
    &[
        Put(3),
        Close,
        Put(2),
        Sync,
        Put(1),
        Create,
        Put(1),
        Checkpoint,
        Put(1),
        Close,
        Put(60),
        Close,
    ],
];

/// The folder `wal` as it was, and what was known then.
struct Kept {
    files: Vec<(PathBuf, Vec<u8>)>,
    written: u32,
    openings: u32,
    manifest: Vec<u8>,
}

struct History {
    durability: Durability,
    clock: ManualClock,
    sim: Sim,
    /// Taken while it is opened anew.
    db: Option<Database>,
    openings: u32,
    /// Items that were put, those of them that are durable, those that were when the manifest last changed, and those that
    /// are in tables.
    written: u32,
    synced: u32,
    known: u32,
    flushed: u32,
    manifest: Vec<u8>,
    kept: Vec<Kept>,
}

fn options(sim: &Sim, clock: &ManualClock, durability: Durability) -> Options {
    Options::new()
        .durability(durability)
        .sync_interval(Duration::from_secs(1_000_000))
        .memtable_bytes(1 << 20)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .stepped()
        .sizes(256, 4 << 10, 4 << 10)
}

/// The manifest that counts.
fn manifest(sim: &Sim) -> Vec<u8> {
    let names = sim.list(Path::new(PATH)).unwrap().into_iter();
    let newest = names.filter(|name| name.starts_with("manifest-")).max();
    sim.read(&Path::new(PATH).join(newest.unwrap())).unwrap()
}

fn wal_files(sim: &Sim) -> Vec<PathBuf> {
    let names = sim.list(Path::new(WAL)).unwrap();
    names.iter().map(|name| Path::new(WAL).join(name)).collect()
}

impl History {
    fn begin(durability: Durability) -> History {
        let mut history = History {
            durability,
            clock: ManualClock::new(START),
            sim: Sim::new(1),
            db: None,
            openings: 0,
            written: 0,
            synced: 0,
            known: 0,
            flushed: 0,
            manifest: vec![],
            kept: vec![],
        };
        history.open();
        let short = history.db().container("short").unwrap();
        short
            .put_with_ttl("k", "v", Ttl::After(Duration::from_secs(60)))
            .unwrap();
        history.db().container("c").unwrap();
        history.db().flush().unwrap();
        history.keep();
        history
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn options(&self, sim: &Sim) -> Options {
        options(sim, &self.clock, self.durability)
    }

    fn open(&mut self) {
        self.db = Some(self.options(&self.sim).open(PATH).unwrap());
        self.openings += 1;
    }

    /// A drop is said by an edit at once, and with it what the log says of containers.
    fn edit(&self) {
        drop(self.db().container("dropped").unwrap());
        assert!(self.db().drop_container("dropped").unwrap());
    }

    fn step(&mut self, step: Step) {
        let syncs = !matches!(step, Put(_) | Expire) || self.durability == Durability::Sync;
        match step {
            Put(count) => {
                let c = self.db().container("c").unwrap();
                for n in self.written..self.written + count {
                    c.put(n.to_be_bytes(), format!("value {n}")).unwrap();
                }
                self.written += count;
            }
            Sync => self.db().sync().unwrap(),
            Default => {
                let ttl = Duration::from_secs(1_000_000 + u64::from(self.written));
                let c = self.db().container("c").unwrap();
                c.set_default_ttl(DefaultTtl::After(ttl)).unwrap();
                self.edit();
            }
            Create => {
                let name = format!("made {}", self.written);
                self.db().container(&name).unwrap();
                self.edit();
            }
            Flush => {
                self.db().flush().unwrap();
                self.flushed = self.written;
            }
            Expire => {
                self.clock.advance(Duration::from_secs(100));
                for _ in 0..10 {
                    self.db().step().unwrap();
                }
            }
            Checkpoint => {
                let to = format!("/copy {}", self.written);
                self.db().checkpoint(&to).unwrap();
                self.flushed = self.written;
            }
            Close => {
                self.db.take().unwrap().close().unwrap();
                self.open();
            }
            Kill => {
                std::mem::forget(self.db.take());
                self.sim = self.sim.kill();
                self.open();
            }
        }
        if syncs {
            self.synced = self.written;
        }
        self.keep();
    }

    fn keep(&mut self) {
        let now = manifest(&self.sim);
        if now != self.manifest {
            (self.known, self.manifest) = (self.synced, now);
        }
        let sim = self.sim.kill();
        let read = |path: PathBuf| (path.clone(), sim.read(&path).unwrap());
        self.kept.push(Kept {
            files: wal_files(&sim).into_iter().map(read).collect(),
            written: self.written,
            openings: self.openings,
            manifest: self.manifest.clone(),
        });
    }

    /// How many items there are: all of them are the first ones.
    fn items(&self, sim: &Sim) -> Result<u32> {
        let db = self.options(sim).read_only(true).open(PATH)?;
        let mut count = 0;
        for item in db.container("c")?.iter() {
            let item = item?;
            assert_eq!(item.key(), u32::to_be_bytes(count));
            assert_eq!(*item.value(), *format!("value {count}").as_bytes());
            count += 1;
        }
        Ok(count)
    }

    /// This log takes the place of the newest one.
    fn with(sim: &Sim, kept: &Kept) -> Sim {
        let sim = sim.kill();
        sim.set_capacity(u64::MAX);
        for path in wal_files(&sim) {
            sim.remove(&path).unwrap();
        }
        for (path, bytes) in &kept.files {
            sim.create(path).unwrap().write_at(0, bytes).unwrap();
        }
        sim
    }

    /// Puts each log back that was kept; how many of one opening were refused by where they end.
    fn judge(&self, what: &str) -> usize {
        let mut short = 0;
        for (at, kept) in self.kept.iter().enumerate() {
            let what = format!("{what}, log {at}");
            let sim = History::with(&self.sim, kept);
            let is_same = kept.openings == self.openings;
            let lacks = !is_same || kept.written < self.known;
            let found = self.items(&sim);
            let is_refused = found.is_err();
            assert!(is_refused >= lacks, "{what}: {found:?} items");
            assert!(
                is_refused <= (kept.manifest != self.manifest),
                "{what}: {found:?}"
            );
            let verified = verify_in(Arc::new(sim.kill()), Path::new(PATH), &mut |_, _| {});
            let faults = verified.unwrap().faults;
            assert_eq!(faults.is_empty(), !is_refused, "{what}: {faults:?}");
            let repairing = self.options(&sim);
            let losses = repair_with(Path::new(PATH), &repairing, false)
                .unwrap()
                .losses;
            assert_eq!(losses.is_empty(), !is_refused, "{what}: {losses:?}");
            match found {
                Ok(found) => assert_eq!(found, kept.written, "{what}"),
                Err(error) => {
                    let Error::Corruption {
                        path, what: said, ..
                    } = &error
                    else {
                        panic!("{what}: {error}");
                    };
                    assert!(path.starts_with(WAL), "{what}: {error}");
                    assert_eq!(losses[0].fault.to_string(), error.to_string(), "{what}");
                    short += usize::from(is_same && said.contains("the manifest knows"));
                    assert!(self.options(&sim).open(PATH).is_err(), "{what}");
                    drop(repair_with(Path::new(PATH), &repairing, true).unwrap());
                    let logged = if is_same { kept.written } else { 0 };
                    let (least, left) = (self.flushed.max(logged), self.items(&sim).unwrap());
                    assert!(
                        (least..=self.written).contains(&left),
                        "{what}: {left} left"
                    );
                }
            }
            let db = self.options(&sim).open(PATH);
            let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
            db.container("c").unwrap().put("later", "v").unwrap();
        }
        short
    }

    /// Every disk that a power cut leaves opens, with what is durable.
    fn judge_cuts(&self, what: &str) {
        for seed in 0..20 {
            let sim = self.sim.power_cut(seed);
            let left = self.items(&sim);
            let left = left.unwrap_or_else(|error| panic!("{what}, cut {seed}: {error}"));
            assert!(
                (self.synced..=self.written).contains(&left),
                "{what}: {left}"
            );
        }
    }
}

#[test]
fn a_log_that_is_put_back_lacks_nothing_that_the_manifest_knows() {
    let mut short = 0;
    for durability in [Durability::Buffered, Durability::Sync] {
        for steps in HISTORIES {
            let mut history = History::begin(durability);
            for (at, step) in steps.iter().enumerate() {
                history.step(*step);
                let what = format!("{durability:?}, {:?}", &steps[..=at]);
                short += history.judge(&what);
                history.judge_cuts(&what);
            }
            std::mem::forget(history.db.take());
        }
    }
    assert!(short > 100, "{short} were refused by where they end");
}

/// The log of before, all of which an open that finds no room has synced: the edits that give it back say so.
#[test]
fn an_old_log_that_is_put_back_on_a_full_disk_is_noticed() {
    let mut history = History::begin(Durability::Buffered);
    // More than fits into the room that is kept for edits.
    history.step(Put(600));
    history.step(Put(600));
    let half = &history.kept[1];
    std::mem::forget(history.db.take());
    let sim = history.sim.kill();
    sim.set_capacity(1 << 40);
    let room = sim.room(Path::new(PATH)).unwrap();
    sim.set_capacity(room.total - room.free);
    let seen = Arc::new(Mutex::new(vec![]));
    let db = history.options(&sim).open(PATH).unwrap();
    sim.watch({
        let seen = seen.clone();
        move |sim, call| {
            let mut seen = seen.lock().unwrap();
            if call.changes() && seen.len() < 200 {
                seen.push(sim.kill());
            }
        }
    });
    for _ in 0..10 {
        let _ = db.step();
    }
    sim.unwatch();
    let named = |sim: &Sim| parse_manifest(Path::new(PATH), &manifest(sim)).unwrap().0;
    let (chain, edit) = (named(&history.sim).log, named(&history.sim).edit);
    let chain = chain.map(|log| log.chain);
    let moments = std::mem::take(&mut *seen.lock().unwrap()).into_iter();
    let of_old_log = |moment: &Sim| {
        let catalogue = named(moment);
        catalogue.edit > edit && catalogue.log.map(|log| log.chain) == chain
    };
    let moments: Vec<Sim> = moments.filter(of_old_log).collect();
    assert!(moments.len() > 2, "{} moments", moments.len());
    for (n, moment) in moments.iter().enumerate() {
        let found = history.items(&moment.kill());
        assert_eq!(found.unwrap(), history.written, "moment {n}");
        for seed in 0..4 {
            let found = history.items(&moment.power_cut(seed));
            assert_eq!(found.unwrap(), history.written, "moment {n}, cut {seed}");
        }
        let sim = History::with(moment, half);
        let refused = history.items(&sim).unwrap_err();
        assert!(refused.is_corruption(), "moment {n}: {refused}");
        let verified = verify_in(Arc::new(sim.kill()), Path::new(PATH), &mut |_, _| {});
        assert!(!verified.unwrap().faults.is_empty(), "moment {n}");
    }
    // The next log begins where nothing of this one counts.
    sim.set_capacity(u64::MAX);
    (history.sim, history.db) = (sim, Some(db));
    history.openings += 1;
    for step in [Put(1), Sync, Default] {
        history.step(step);
        history.judge("with a new log");
        history.judge_cuts("with a new log");
    }
}

/// The log of a checkpoint has what it had at that moment, and the checkpoint says so.
#[test]
fn a_checkpoint_knows_where_its_log_ends() {
    let history = History::begin(Durability::Buffered);
    let (db, sim) = (history.db(), &history.sim);
    let is_over = AtomicBool::new(false);
    let header = |sim: &Sim, wal: &Path| {
        let names = sim.list(wal).unwrap();
        let newest = wal.join(names.iter().max().unwrap());
        let bytes = sim.read(&newest).unwrap();
        assert!(bytes.ends_with(&bytes[..64]), "the header is there twice");
        (bytes.len() > 128).then(|| (newest, bytes[..64].to_vec()))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let c = db.container("c").unwrap();
            while !is_over.load(Ordering::Relaxed) {
                c.put(u32::to_be_bytes(0), "value 0").unwrap();
            }
        });
        let found = (0..1_000).find_map(|n| {
            let to = format!("/copy {n}");
            db.checkpoint(&to).unwrap();
            let (newest, header) = header(sim, &Path::new(&to).join("wal"))?;
            Some((to, newest, header))
        });
        is_over.store(true, Ordering::Relaxed);
        let (to, newest, header) = found.expect("a write comes between flush and checkpoint");
        let sim = sim.kill();
        let open = || history.options(&sim).read_only(true).open(&to);
        drop(open().unwrap());
        sim.remove(&newest).unwrap();
        sim.create(&newest).unwrap().write_at(0, &header).unwrap();
        let refused = open().map(drop).unwrap_err();
        assert!(
            refused.to_string().contains("the manifest knows"),
            "{refused}"
        );
    });
}

/// The files of a database but for its tables: manifest, copy and log.
fn all_but_tables(sim: &Sim) -> Vec<PathBuf> {
    let mut files = wal_files(sim);
    for dir in [PATH, "/db/copy"].map(Path::new) {
        let names = sim.list(dir).unwrap().into_iter();
        let paths = names.map(|name| dir.join(name));
        files.extend(paths.filter(|path| sim.len(path).is_ok_and(|len| len.is_some())));
    }
    files.retain(|path| !path.ends_with("LOCK"));
    files
}

/// Puts manifest, copy and log of `from` in the place of those of `to`, which keeps its tables.
fn replace_all_but_tables(to: &Sim, from: &Sim) {
    for path in all_but_tables(to) {
        to.remove(&path).unwrap();
    }
    for path in all_but_tables(from) {
        let bytes = from.read(&path).unwrap();
        let file = to.create(&path).unwrap();
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
    }
}

fn tables(sim: &Sim) -> usize {
    sim.list(Path::new("/db/tables")).unwrap().len()
}

/// The tables know of writes that neither manifest nor log has seen: that is refused by all, and nothing is removed; a
/// repair goes by the manifest, and puts the tables aside.
fn check_refused(sim: &Sim, clock: &ManualClock, left: u32) {
    let options = |sim: &Sim| options(sim, clock, Durability::Buffered);
    let before = tables(sim);
    for read_only in [true, false] {
        let open = options(sim).read_only(read_only).open(PATH);
        let refused = open.map(drop).unwrap_err();
        assert!(refused.is_corruption(), "{refused}");
        assert!(refused.to_string().contains("an earlier time"), "{refused}");
    }
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let verified = verify_in(fs, Path::new(PATH), &mut |_, _| {}).unwrap();
    assert_eq!(verified.faults.len(), 1, "{verified:?}");
    assert_eq!(tables(sim), before, "looking removes nothing");
    let report = repair_with(Path::new(PATH), &options(sim), true).unwrap();
    assert_eq!(report.losses.len(), 1, "{report:?}");
    let kept = sim.list(Path::new("/db/lost")).unwrap();
    let kept = kept.iter().filter(|name| name.ends_with(".table"));
    assert!(kept.count() > 0);
    let (_db, c) = stage::open(options(sim));
    assert_eq!(c.iter().count() as u32, left);
    let fs: Arc<dyn Fs> = Arc::new(sim.kill());
    let verified = verify_in(fs, Path::new(PATH), &mut |_, _| {}).unwrap();
    assert!(verified.faults.is_empty(), "{verified:?}");
}

#[test]
fn manifest_copy_and_log_of_an_earlier_time_are_refused_where_tables_are_later() {
    for flushed in [false, true] {
        let mut history = History::begin(Durability::Buffered);
        history.step(Put(3));
        if flushed {
            history.step(Flush);
        }
        history.step(Sync);
        let earlier = history.sim.kill();
        history.step(Put(4));
        history.step(Flush);
        let sim = history.sim.kill();
        replace_all_but_tables(&sim, &earlier);
        check_refused(&sim, &history.clock, 3);
    }
}

#[test]
fn manifest_copy_and_log_of_another_database_are_refused_where_tables_know_more() {
    let mut history = History::begin(Durability::Buffered);
    history.step(Put(30));
    history.step(Flush);
    let other = Sim::new(2);
    let (db, c) = stage::open(options(&other, &history.clock, Durability::Buffered));
    for n in 0..5u32 {
        c.put(n.to_be_bytes(), "another").unwrap();
    }
    db.sync().unwrap();
    std::mem::forget((db, c));
    let sim = history.sim.kill();
    replace_all_but_tables(&sim, &other.kill());
    check_refused(&sim, &history.clock, 5);
}
