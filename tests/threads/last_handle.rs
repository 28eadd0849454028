//! Goal: every object that a user holds of a database keeps it open, and dropping the last one closes it: the log is
//! synced, the threads end, the folder is unlocked. That holds wherever the last one is dropped.
//!
//! Method: each kind of handle is left as the only one; the lock tells whether the database is open. Nothing is
//! measured in time: tests wait for conditions.

use std::any::Any;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use ebbtide::internals::{Sim, Survivors};
use ebbtide::{Clock, Container, Database, Error, ManualClock, Options, Result};

use testkit::patience::{ends, wait_until};

/// Before the time of the machine, whose clock opens the same folders.
const START: u64 = 1_750_000_000_000;

fn is_open(path: &Path) -> bool {
    match Database::open(path) {
        Ok(_) => false,
        Err(Error::Locked { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_container_is_all_that_one_needs() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let users = Database::open(folder.path())?.container("users")?;
    users.put("ada", "1815")?;
    assert_eq!(users.get("ada")?.unwrap(), "1815");
    assert!(is_open(folder.path()));
    let again = users.clone();
    drop(users);
    assert_eq!(again.iter().count(), 1);
    drop(again);
    let users = Database::open(folder.path())?.container("users")?;
    assert_eq!(users.get("ada")?.unwrap(), "1815");
    Ok(())
}

#[test]
fn every_kind_of_handle_keeps_it_open_and_the_last_one_closes_it() {
    type Make = fn(&Database) -> Box<dyn Any + Send>;
    let kinds: [(&str, Make); 8] = [
        ("database", |db| Box::new(db.clone())),
        ("container", |db| Box::new(db.container("c").unwrap())),
        ("snapshot", |db| Box::new(db.snapshot())),
        ("view", |db| Box::new(db.snapshot().container("c").unwrap())),
        ("iterator", |db| Box::new(db.container("c").unwrap().iter())),
        ("iterator of a view", |db| {
            Box::new(db.snapshot().container("c").unwrap().iter())
        }),
        ("begun iterator", |db| {
            let mut iter = db.container("c").unwrap().iter();
            iter.next().unwrap().unwrap();
            Box::new(iter)
        }),
        ("iterator from the back", |db| {
            let mut iter = db.container("c").unwrap().prefix("k");
            iter.next_back().unwrap().unwrap();
            Box::new(iter)
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    for on_another_thread in [false, true] {
        for (kind, make) in kinds {
            let db = Database::open(folder.path()).unwrap();
            let c = db.container("c").unwrap();
            c.put("k-1", kind).unwrap();
            c.put("k-2", "v").unwrap();
            let held = make(&db);
            drop((c, db));
            assert!(is_open(folder.path()), "{kind}");
            match on_another_thread {
                true => thread::spawn(move || drop(held)).join().unwrap(),
                false => drop(held),
            }
            assert!(!is_open(folder.path()), "{kind}");
            let c = Database::open(folder.path()).unwrap().container("c");
            assert_eq!(c.unwrap().get("k-1").unwrap().unwrap(), kind);
        }
    }
}

#[test]
fn an_iterator_goes_on_when_nothing_else_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    for n in 0..3_000u32 {
        c.put(n.to_be_bytes(), [b'v'; 100]).unwrap();
        if n == 2_000 {
            db.flush().unwrap();
        }
    }
    let (mut forwards, mut both) = (c.iter(), c.iter());
    assert!(forwards.next().is_some());
    drop((c, db));
    assert_eq!(forwards.by_ref().filter(|item| item.is_ok()).count(), 2_999);
    drop(forwards);
    for seen in 0..3_000 {
        assert!(is_open(folder.path()), "after {seen} items");
        let item = if seen % 2 == 0 {
            both.next()
        } else {
            both.next_back()
        };
        item.unwrap().unwrap();
    }
    assert!(both.next().is_none());
    assert!(!is_open(folder.path()), "at its end it holds nothing");
    assert!(both.next().is_none());
}

/// A value that was read is the reader's, and holds nothing but its bytes.
#[test]
fn values_and_items_outlive_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    c.put("flushed", vec![b'f'; 10_000]).unwrap();
    db.flush().unwrap();
    c.put("in memory", vec![b'm'; 10_000]).unwrap();
    let values: Vec<_> = c.iter().map(|item| item.unwrap().value().clone()).collect();
    let items: Vec<_> = c.iter().map(Result::unwrap).collect();
    drop((c, db));
    assert!(!is_open(folder.path()), "values do not keep it open");
    let db = Database::open(folder.path()).unwrap();
    db.drop_container("c").unwrap();
    db.compact().unwrap();
    drop(db);
    for (at, byte) in [b'f', b'm'].into_iter().enumerate() {
        assert_eq!(values[at], vec![byte; 10_000]);
        assert_eq!(*items[at].value(), values[at]);
    }
}

#[test]
fn after_a_close_every_handle_says_that_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path()).unwrap();
    let c = db.container("c").unwrap();
    c.put("a", "1").unwrap();
    c.put("b", "2").unwrap();
    let snapshot = db.snapshot();
    let view = snapshot.container("c").unwrap();
    let (mut begun, mut fresh, mut of_view) = (c.iter(), c.iter(), view.range("a".."z"));
    begun.next().unwrap().unwrap();
    db.close().unwrap();
    assert!(!is_open(folder.path()), "though handles are held");
    let closed = |error: Error| assert!(error.is_closed(), "{error}");
    closed(c.get("a").unwrap_err());
    closed(c.put("a", "3").unwrap_err());
    closed(c.create("n", "3", ebbtide::Ttl::Inherit).unwrap_err());
    closed(c.delete_range("a".."b").unwrap_err());
    closed(view.item("a").unwrap_err());
    closed(snapshot.container("c").unwrap_err());
    closed(db.container("c").unwrap_err());
    closed(db.snapshot().container("c").unwrap_err());
    for iter in [&mut begun, &mut fresh, &mut of_view] {
        closed(iter.next().unwrap().unwrap_err());
        assert!(iter.next().is_none());
    }
    closed(view.iter().next_back().unwrap().unwrap_err());
    db.close().unwrap();
    // Of a database that somebody has open anew they know nothing.
    let anew = Database::open(folder.path()).unwrap();
    closed(c.get("a").unwrap_err());
    drop((begun, fresh, of_view, view, snapshot, c, db));
    assert!(is_open(folder.path()));
    drop(anew);
}

/// The last handle syncs: a power cut after it loses nothing.
#[test]
fn the_last_handle_syncs_the_log() {
    let sim = Sim::new(1);
    let options = |sim: &Sim| Options::new().fs(Arc::new(sim.clone()));
    let c = options(&sim).open("/db").unwrap().container("c").unwrap();
    c.put("k", "v").unwrap();
    drop(c);
    let cut = sim.power_cut_with(Survivors::Nothing);
    let c = options(&cut).open("/db").unwrap().container("c").unwrap();
    assert_eq!(c.get("k").unwrap().unwrap(), "v");
}

/// A clock that does away with what it holds when it is looked at on a thread whose name begins so.
#[derive(Clone)]
struct Holding<T> {
    time: ManualClock,
    thread: &'static str,
    held: Arc<Mutex<Option<T>>>,
    end: fn(T),
    ended: Arc<AtomicBool>,
}

impl<T: Send + 'static> Clock for Holding<T> {
    fn wall(&self) -> u64 {
        let thread = thread::current();
        if thread.name().unwrap_or_default().starts_with(self.thread) {
            let held = self.held.lock().unwrap().take();
            if let Some(held) = held {
                (self.end)(held);
                self.ended.store(true, Ordering::Release);
            }
        }
        self.time.wall()
    }

    fn uptime(&self) -> u64 {
        self.time.uptime()
    }
}

fn ends_on_its_own_thread<T: Send + 'static>(
    thread: &'static str,
    make: fn(Database, Container) -> T,
    end: fn(T),
) {
    ends(
        || 0,
        move || {
            let folder = tempfile::tempdir().unwrap();
            let (held, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
            let clock = Holding {
                time: ManualClock::new(START),
                thread,
                held: Arc::clone(&held),
                end,
                ended: ended.clone(),
            };
            let db = Options::new().clock(clock).open(folder.path()).unwrap();
            let c = db.container("c").unwrap();
            for n in 0..1_000u32 {
                c.put(n.to_be_bytes(), [b'v'; 100]).unwrap();
            }
            *held.lock().unwrap() = Some(make(db, c));
            wait_until("it ends, and without a panic", || {
                ended.load(Ordering::Acquire)
            });
            wait_until("it is closed", || !is_open(folder.path()));
            let c = Database::open(folder.path()).unwrap().container("c");
            assert_eq!(c.unwrap().iter().count(), 1_000);
        },
    );
}

#[test]
fn the_last_handle_may_go_on_a_thread_of_the_database() {
    for thread in ["ebbtide-merge", "ebbtide-hurry"] {
        ends_on_its_own_thread(thread, |_, c| c, drop);
        ends_on_its_own_thread(thread, |_, c| c.iter(), drop);
    }
}

#[test]
fn a_clock_may_close_its_database() {
    for thread in ["ebbtide-merge", "ebbtide-hurry"] {
        ends_on_its_own_thread(thread, |db, _| db, |db| db.close().unwrap());
    }
}
