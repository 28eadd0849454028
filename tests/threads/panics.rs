//! Goal: a panic ends only the operation in which it happens: no lock stays held, nobody waits for ever, no
//! acknowledged write is lost, and whoever depends on that work gets an error.
//!
//! Method: a user's clock that panics on a given thread, read in each kind of work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebbtide::internals::Sim;
use ebbtide::{Clock, Database, DefaultTtl, Durability, ManualClock, Options};

use testkit::patience::{ends, wait_until};
use testkit::stage;

const START: u64 = 1_800_000_000_000;

/// A clock that stands, and panics when it is looked at on a thread whose name begins so, after some looks; its coarse reading does
/// not.
#[derive(Clone)]
struct Fragile {
    time: ManualClock,
    spared: Arc<AtomicU64>,
    breaks_on: Arc<Mutex<Option<&'static str>>>,
    panics: Arc<AtomicU64>,
}

impl Fragile {
    fn new() -> Fragile {
        Fragile {
            time: ManualClock::new(START),
            spared: Arc::default(),
            breaks_on: Arc::default(),
            panics: Arc::default(),
        }
    }

    fn break_on(&self, thread: Option<&'static str>) {
        *self.breaks_on.lock().unwrap() = thread;
    }
}

impl Clock for Fragile {
    fn wall(&self) -> u64 {
        let breaks = *self.breaks_on.lock().unwrap();
        let thread = std::thread::current();
        let is_spared = || {
            let spared = &self.spared;
            let less = |left: u64| left.checked_sub(1);
            spared
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        };
        if breaks.is_some_and(|name| thread.name().unwrap_or_default().starts_with(name))
            && !is_spared()
        {
            self.panics.fetch_add(1, Ordering::Relaxed);
            panic!("the clock is broken");
        }
        self.time.wall()
    }

    fn uptime(&self) -> u64 {
        self.time.uptime()
    }
}

fn options(sim: &Sim, clock: &Fragile) -> Options {
    Options::new()
        .durability(Durability::Buffered)
        .memtable_bytes(16 << 10)
        .clock(clock.clone())
        .fs(Arc::new(sim.clone()))
        .sizes(256, 4 << 10, 4 << 10)
}

fn open(sim: &Sim, clock: &Fragile) -> Database {
    options(sim, clock).open("/db").unwrap()
}

// A caller that waits for a flush waits for a thread that has panicked.
#[test]
fn a_panic_of_the_flush_thread_is_told_to_those_who_wait_for_it_and_it_goes_on() {
    let (sim, clock) = (Sim::new(1), Fragile::new());
    let db = open(&sim, &clock);
    let c = db.container("c").unwrap();
    clock.break_on(Some("ebbtide-flush"));
    let done = Arc::new(AtomicU64::new(0));
    ends(
        {
            let done = done.clone();
            move || done.load(Ordering::Relaxed)
        },
        {
            let (c, done) = (c.clone(), done.clone());
            move || {
                let error = (0..1_000u32)
                    .find_map(|n| {
                        done.fetch_add(1, Ordering::Relaxed);
                        c.put(n.to_be_bytes(), [1; 1_000]).err()
                    })
                    .expect("memory is bounded");
                assert!(error.to_string().contains("the clock is broken"), "{error}");
            }
        },
    );
    let told = db.stats().background_error.unwrap();
    assert!(told.contains("the clock is broken"), "{told}");
    clock.break_on(None);
    wait_until("it goes on", || c.put("k", "v").is_ok());
    wait_until("it is over", || db.stats().background_error.is_none());
    db.close().unwrap();
}

#[test]
fn a_panic_of_any_thread_stands_in_the_statistics_and_is_got_over() {
    for thread in ["ebbtide-flush", "ebbtide-merge"] {
        let (sim, clock) = (Sim::new(1), Fragile::new());
        let db = open(&sim, &clock);
        let c = db.container("c").unwrap();
        c.set_default_ttl(DefaultTtl::After(Duration::from_secs(60)))
            .unwrap();
        clock.break_on(Some(thread));
        wait_until("it is told", || {
            // Something to do for both.
            let _ = c.put("k", [1; 1_000]);
            let told = db.stats().background_error;
            told.is_some_and(|told| told.contains("the clock is broken") && told.contains(thread))
        });
        clock.break_on(None);
        wait_until("it is over", || db.stats().background_error.is_none());
        // It is reclaimed by that thread, after all.
        db.flush().unwrap();
        clock.time.advance(Duration::from_secs(86_400));
        wait_until("nothing is left", || c.stats().disk_bytes == 0);
        db.close().unwrap();
        let db = open(&sim.kill(), &clock);
        assert_eq!(db.containers(), ["c"]);
    }
}

// Readers wait for a change that is under way.
#[test]
fn a_panic_within_a_change_of_the_default_undoes_it() {
    for looks in 0.. {
        if !change_panics_after(looks) {
            assert!(looks > 1, "the clock is read before a change and in it");
            return;
        }
    }
}

/// False: the clock is not looked at so often.
fn change_panics_after(looks: u64) -> bool {
    let (sim, clock) = (Sim::new(1), Fragile::new());
    let db = open(&sim, &clock);
    let c = db.container("c").unwrap();
    c.put("k", "v").unwrap();
    let changed = std::thread::scope(|scope| {
        let change = std::thread::Builder::new().name("changes".into());
        clock.spared.store(looks, Ordering::Relaxed);
        clock.break_on(Some("changes"));
        let change = change
            .spawn_scoped(scope, || {
                c.set_default_ttl(DefaultTtl::After(Duration::from_secs(1)))
            })
            .unwrap();
        change.join()
    });
    clock.break_on(None);
    if changed.is_ok() {
        return false;
    }
    let seen = Arc::new(AtomicBool::new(false));
    ends(|| 0, {
        let (c, seen) = (c.clone(), seen.clone());
        move || {
            assert!(c.contains("k").unwrap());
            assert_eq!(c.default_ttl(), DefaultTtl::NoDefault);
            let later = DefaultTtl::After(Duration::from_secs(5));
            c.set_default_ttl(later).unwrap();
            assert_eq!(c.default_ttl(), later);
            seen.store(true, Ordering::Relaxed);
        }
    });
    assert!(seen.load(Ordering::Relaxed));
    db.close().unwrap();
    true
}

// Stamps are taken under the commit lock, which every writer waits for.
#[test]
fn a_panic_in_the_commit_turn_lets_others_write() {
    for durability in [Durability::Buffered, Durability::Sync] {
        let (sim, clock) = (Sim::new(1), Fragile::new());
        let (db, c) = stage::open(options(&sim, &clock).durability(durability).stepped());
        c.put("before", "v").unwrap();
        for n in 0..40u32 {
            clock.break_on(Some(""));
            let writes: [&dyn Fn(); 4] = [
                &|| c.put("panicked", [1; 500]).unwrap(),
                &|| assert!(c.update("before", |_| ebbtide::Update::Delete).unwrap()),
                &|| db.flush().unwrap(),
                &|| assert!(db.step().unwrap()),
            ];
            for write in writes {
                catch_unwind(AssertUnwindSafe(write)).unwrap_err();
            }
            clock.break_on(None);
            c.put(n.to_be_bytes(), [1; 500]).unwrap();
        }
        assert!(clock.panics.load(Ordering::Relaxed) >= 160);
        let shows_all = |db: &Database| {
            let c = db.container("c").unwrap();
            let all = (0..40u32).all(|n| c.contains(n.to_be_bytes()).unwrap());
            assert!(all && c.contains("before").unwrap());
            assert!(!c.contains("panicked").unwrap());
        };
        shows_all(&db);
        db.flush().unwrap();
        db.compact().unwrap();
        shows_all(&db);
        db.close().unwrap();
        shows_all(&open(&sim.kill(), &clock));
    }
}
