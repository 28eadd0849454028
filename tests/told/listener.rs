//! Goal: a listener is told what background work does, in order, by a thread that holds no lock; what it does, and how
//! long it takes for it, disturbs nobody.
//!
//! Method: databases on a simulated disk, stepped where the order counts and with threads where they do; listeners that
//! write down, use the database, panic, or wait.

// Tests are a world of their own: they touch files, time and threads as they like.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{
    BackgroundErrorEvent, CompactionEvent, Container, Database, Error, EventListener, FlushEvent,
    ManualClock, Options, ReclaimEvent, StallEvent, SyncEvent,
};
use testkit::patience::comes_true;
use testkit::stage;
use testkit::watched::Watched;

const NOW: u64 = 1_767_225_600_000;

type Then = Box<dyn Fn(&str) + Send + Sync>;

/// Writes down what it is told.
#[derive(Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    flushed: AtomicU64,
    merged: AtomicU64,
    dropped: AtomicU64,
    stalls: AtomicU64,
    syncs: AtomicU64,
    lost: AtomicU64,
    /// Called at the end of each call.
    then: OnceLock<Then>,
}

impl Notes {
    fn line(&self, line: String) {
        let what = line.split(' ').next().unwrap().to_owned();
        self.lines.lock().unwrap().push(line);
        if let Some(then) = self.then.get() {
            then(&what);
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    fn has(&self, what: &str) -> bool {
        let lines = self.lines.lock().unwrap();
        lines.iter().any(|line| line.starts_with(what))
    }
}

fn outcome(error: Option<&Error>) -> &'static str {
    error.map_or("done", |_| "failed")
}

impl EventListener for Notes {
    fn on_flush_begin(&self, flush: &FlushEvent) {
        assert!(flush.memtable_bytes > 0 && flush.table_bytes == 0 && flush.took.is_zero());
        self.line(format!("flush-begin {}", flush.containers.join(",")));
    }

    fn on_flush_completed(&self, flush: &FlushEvent) {
        self.flushed.fetch_add(flush.table_bytes, Ordering::Relaxed);
        let outcome = outcome(flush.error.as_ref());
        self.line(format!(
            "flush-end {} {outcome}",
            flush.containers.join(",")
        ));
    }

    fn on_compaction_begin(&self, compaction: &CompactionEvent) {
        assert!(compaction.output_bytes == 0 && !compaction.reason.is_empty());
        let (c, tables) = (&compaction.container, compaction.input_tables);
        self.line(format!("merge-begin {c} {tables}"));
    }

    fn on_compaction_completed(&self, compaction: &CompactionEvent) {
        assert!(compaction.input_bytes > 0);
        self.merged
            .fetch_add(compaction.output_bytes, Ordering::Relaxed);
        let outcome = outcome(compaction.error.as_ref());
        self.line(format!("merge-end {} {outcome}", compaction.container));
    }

    fn on_reclaim(&self, reclaim: &ReclaimEvent) {
        self.dropped.fetch_add(reclaim.bytes, Ordering::Relaxed);
        self.line(format!("reclaim {} {}", reclaim.container, reclaim.tables));
    }

    fn on_stall(&self, stalls: &StallEvent) {
        self.stalls.fetch_add(stalls.stalls, Ordering::Relaxed);
        self.line("stall".to_owned());
    }

    fn on_sync(&self, syncs: &SyncEvent) {
        self.syncs.fetch_add(syncs.syncs, Ordering::Relaxed);
        self.line("sync".to_owned());
    }

    fn on_background_error(&self, error: &BackgroundErrorEvent) {
        self.line(format!("error {}: {}", error.work, error.error));
    }

    fn on_lost(&self, events: u64) {
        self.lost.fetch_add(events, Ordering::Relaxed);
        self.line("lost".to_owned());
    }
}

fn options(clock: &ManualClock, notes: &Arc<Notes>) -> Options {
    Options::new()
        .fs(Arc::new(Sim::new(1)))
        .clock(clock.clone())
        .memtable_bytes(256 << 10)
        .sizes(4 << 10, 64 << 10, 256 << 10)
        .listener(notes.clone())
}

fn fill(c: &Container, seconds: u64) {
    for n in 0..500u32 {
        let ttl = Duration::from_secs(seconds);
        c.put_with_ttl(n.to_be_bytes(), [1; 100], ttl).unwrap();
    }
}

#[test]
fn each_job_is_told_from_its_beginning_to_its_end() {
    let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
    let db = options(&clock, &notes).stepped().open("/db").unwrap();
    let (a, b) = (db.container("a").unwrap(), db.container("b").unwrap());
    let without_syncs = || {
        let mut lines = notes.take();
        lines.retain(|line| line != "sync");
        lines
    };
    fill(&a, 60);
    fill(&b, 60);
    db.flush().unwrap();
    assert_eq!(
        without_syncs(),
        [
            "flush-begin a",
            "flush-end a done",
            "flush-begin b",
            "flush-end b done"
        ]
    );
    fill(&a, 3_600);
    db.compact().unwrap();
    assert_eq!(
        without_syncs(),
        [
            "flush-begin a",
            "flush-end a done",
            "merge-begin a 2",
            "merge-end a done"
        ]
    );
    clock.advance(Duration::from_secs(61));
    while db.step().unwrap() {}
    assert_eq!(without_syncs(), ["reclaim b 1"]);
    let stats = db.stats();
    let sums = [&notes.flushed, &notes.merged, &notes.dropped];
    assert_eq!(
        sums.map(|sum| sum.load(Ordering::Relaxed)),
        [stats.bytes_flushed, stats.bytes_merged, stats.bytes_dropped]
    );
    db.sync().unwrap();
    db.close().unwrap();
    assert!(notes.syncs.load(Ordering::Relaxed) >= stats.syncs && stats.syncs > 0);
}

/// Flushes, compacts and writes in every call: nothing that a job holds is held meanwhile.
#[test]
fn a_listener_may_use_the_database() {
    for stepped in [true, false] {
        let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
        let own: Arc<OnceLock<Weak<Database>>> = Arc::default();
        let (db, calls) = (own.clone(), Arc::new(AtomicU64::new(0)));
        let called = calls.clone();
        let set = notes.then.set(Box::new(move |_| {
            if called.fetch_add(1, Ordering::Relaxed) >= 20 {
                return;
            }
            if let Some(db) = db.get().and_then(Weak::upgrade) {
                let c = db.container("c").unwrap();
                c.put("told", "of it").unwrap();
                db.flush().unwrap();
                db.compact().unwrap();
                assert!(db.disk().unwrap().bytes() > 0);
                db.sync().unwrap();
            }
        }));
        assert!(set.is_ok());
        let mut options = options(&clock, &notes);
        if stepped {
            options = options.stepped();
        }
        let db = Arc::new(options.open("/db").unwrap());
        own.set(Arc::downgrade(&db)).unwrap();
        let c = db.container("c").unwrap();
        for _ in 0..10 {
            fill(&c, 60);
            db.flush().unwrap();
        }
        db.compact().unwrap();
        assert!(comes_true(|| calls.load(Ordering::Relaxed) >= 20));
        db.close().unwrap();
        assert!(notes.has("merge-end c done") && c.name() == "c");
    }
}

#[test]
fn a_panic_ends_one_call_alone() {
    for stepped in [true, false] {
        let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
        let panics = |what: &str| assert_ne!(what, "flush-begin");
        assert!(notes.then.set(Box::new(panics)).is_ok());
        let mut options = options(&clock, &notes);
        if stepped {
            options = options.stepped();
        }
        let (db, c) = stage::open(&options);
        fill(&c, 60);
        db.flush().unwrap();
        assert!(comes_true(|| notes.has("flush-end c done")));
        assert!(notes.has("flush-begin") && db.stats().background_error.is_none());
        fill(&c, 60);
        db.close().unwrap();
    }
}

#[test]
fn failures_in_the_background_are_told() {
    let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
    let fs = Watched::new(Sim::new(1));
    let options = options(&clock, &notes).fs(Arc::new(fs.clone()));
    let (db, c) = stage::open(&options);
    fs.before(|call, path| {
        let is_table = path.to_string_lossy().ends_with(".table");
        match call == "create" && is_table {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    });
    (0..10).for_each(|_| fill(&c, 60));
    assert!(comes_true(|| notes.has("error ebbtide-flush: ")));
    assert!(notes.has("flush-end c failed"));
    fs.before(|_, _| Ok(()));
    db.flush().unwrap();
    assert!(comes_true(|| notes.has("flush-end c done")));
}

/// A listener that does not return keeps nobody waiting; what does not fit is counted, and closing tells the rest.
#[test]
fn a_slow_listener_holds_nothing_up() {
    let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let own = gate.clone();
    let wait = move |_: &str| drop(own.lock());
    assert!(notes.then.set(Box::new(wait)).is_ok());
    let (db, c) = stage::open(options(&clock, &notes));
    for n in 0..700u32 {
        c.put(n.to_be_bytes(), "v").unwrap();
        db.flush().unwrap();
    }
    let flushes = db.stats().flushes;
    assert!(flushes >= 700 && notes.lost.load(Ordering::Relaxed) == 0);
    drop(closed);
    db.close().unwrap();
    let lines = notes.take();
    let told = lines
        .iter()
        .filter(|line| line.starts_with("flush"))
        .count() as u64;
    let lost = notes.lost.load(Ordering::Relaxed);
    assert!(lost > 0 && told >= 1_000, "{told} told, {lost} lost");
    let merges = lines
        .iter()
        .filter(|line| line.starts_with("merge"))
        .count() as u64;
    assert!(
        told + merges + lost >= 2 * flushes,
        "{told} and {merges} told, {lost} lost"
    );
}

#[test]
fn stalls_and_expired_misses_are_counted() {
    let (clock, notes) = (ManualClock::new(NOW), Arc::new(Notes::default()));
    let (db, c) = stage::open(options(&clock, &notes).stepped());
    // Without a step nothing is flushed but by writers who are stopped.
    (0..20).for_each(|_| fill(&c, 60));
    let stats = db.stats();
    assert!(stats.stalls > 0);
    db.flush().unwrap();
    assert_eq!(notes.stalls.load(Ordering::Relaxed), db.stats().stalls);
    assert!(c.get(0u32.to_be_bytes()).unwrap().is_some());
    assert!(c.get("absent").unwrap().is_none());
    assert_eq!(db.stats().expired_misses, 0);
    clock.advance(Duration::from_secs(61));
    assert!(c.get(0u32.to_be_bytes()).unwrap().is_none());
    assert!(
        c.get_many([0u32.to_be_bytes(); 2])
            .unwrap()
            .iter()
            .all(Option::is_none)
    );
    assert_eq!(db.stats().expired_misses, 3);
}
