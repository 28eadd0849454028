//! Goal: memory is returned when the data is gone, a held value keeps little more than itself, and a lack of memory is
//! an error of the call. Method: the system's figures for this process; and a limit for it, under which this program's
//! own small allocations come from a reserve, so that none of them fails.

#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ebbtide::{Container, Database, DefaultTtl, Error, ManualClock, Options, Ttl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use testkit::patience::wait_until;
use testkit::process;

/// As large is the reserve, and the largest allocation that comes from it.
const RESERVE: usize = 64 << 20;
const SMALL: usize = 64 << 10;

struct Reserved;

#[repr(align(4096))]
struct Reserve(std::cell::UnsafeCell<[u8; RESERVE]>);

// SAFETY: each byte is given out once.
unsafe impl Sync for Reserve {}

static RESERVED: Reserve = Reserve(std::cell::UnsafeCell::new([0; RESERVE]));
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static IS_LIMITED: AtomicBool = AtomicBool::new(false);
/// Bytes that are allocated from the system.
static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: what is not the system's lies in the reserve, and nothing of that is given out twice.
unsafe impl GlobalAlloc for Reserved {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_LIMITED.load(Ordering::Relaxed) && layout.size() < SMALL && layout.align() <= 64 {
            let at = GIVEN.fetch_add(layout.size().next_multiple_of(64), Ordering::Relaxed);
            assert!(at + layout.size() <= RESERVE, "the reserve is at its end");
            // SAFETY: it lies in the reserve.
            return unsafe { RESERVED.0.get().cast::<u8>().add(at) };
        }
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let start = RESERVED.0.get().addr();
        if !(start..start + RESERVE).contains(&at.addr()) {
            LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
            // SAFETY: then it is the system's.
            unsafe { System.dealloc(at, layout) }
        }
    }
}

#[global_allocator]
static ALLOCATOR: Reserved = Reserved;

/// Runs `work` in a process that gets no more memory.
fn without_memory<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::As);
    let limit = |current| Rlimit {
        current,
        maximum: before.maximum,
    };
    // Any fewer bytes than there are already: no map is made any more.
    setrlimit(Resource::As, limit(Some(1 << 20))).unwrap();
    IS_LIMITED.store(true, Ordering::Relaxed);
    let done = work();
    IS_LIMITED.store(false, Ordering::Relaxed);
    setrlimit(Resource::As, limit(before.current)).unwrap();
    done
}

fn items(db: &Database) -> Container {
    let container = db.container("items").unwrap();
    container.set_default_ttl(DefaultTtl::NoDefault).unwrap();
    container
}

/// One test, for what it is about belongs to the whole process.
#[test]
fn memory_is_asked_for_held_and_given_back() {
    values_that_are_held_keep_little();
    want_of_memory_is_an_error_of_the_call();
    memory_goes_back_when_the_data_has_gone();
    memory_goes_back_with_a_database_in_memory();
}

fn values_that_are_held_keep_little() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_bytes(8 << 20).stepped();
    let db = options.open(folder.path()).unwrap();
    let container = items(&db);
    let (mut small, mut large) = (vec![], vec![]);
    for round in 0..5u64 {
        for n in 0..4_000u64 {
            container
                .put((n * 5 + round).to_be_bytes(), [7; 1_000])
                .unwrap();
        }
        container
            .put("large", vec![round as u8; 200 << 10])
            .unwrap();
        small.push(container.get(round.to_be_bytes()).unwrap().unwrap());
        small.extend(
            container
                .iter()
                .take(3)
                .map(|item| item.unwrap().value().clone()),
        );
        large.push(container.get("large").unwrap().unwrap());
        db.flush().unwrap();
        let pinned = db.stats().pinned_memtable_bytes;
        assert!(
            pinned > (round + 1) * (4 << 20),
            "each large value holds a memtable: {pinned}"
        );
    }
    assert!(
        large
            .iter()
            .zip(0..)
            .all(|(value, round)| value[..] == [round; 200 << 10])
    );
    drop(large);
    assert_eq!(db.stats().pinned_memtable_bytes, 0);
    let iterator = container.iter();
    assert!(small.iter().all(|value| value[..] == [7; 1_000]));
    drop(iterator);
}

fn want_of_memory_is_an_error_of_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_bytes(64 << 20).stepped();
    let db = options.open(folder.path()).unwrap();
    let container = items(&db);
    let put = |n: u64| container.put(n.to_be_bytes(), [n as u8; 300]);
    (0..1_000).try_for_each(put).unwrap();
    let value = vec![1; 8 << 20];
    container.put("large", &value).unwrap();
    let (written, large, read) = without_memory(|| {
        let first_failed = (1_000..200_000).find_map(|n| Some((n, put(n).err()?)));
        let large = container.put("larger", &value).unwrap_err();
        let read = container.get(7u64.to_be_bytes()).unwrap().unwrap().len();
        (first_failed, large, read)
    });
    let (written, error) = written.expect("memory came to an end");
    for error in [error, large] {
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert!(error.is_retryable());
    }
    assert_eq!(read, 300);
    put(written).unwrap();
    container.put("larger", &value).unwrap();
    let check = |container: &Container| {
        for n in 0..=written {
            let item = container.get(n.to_be_bytes()).unwrap().unwrap();
            assert_eq!(item[..], [n as u8; 300], "{n}");
        }
        assert_eq!(container.iter().count() as u64, written + 3);
    };
    check(&container);
    db.close().unwrap();
    drop((container, db));
    let refused = without_memory(|| options.open(folder.path()).err());
    assert!(refused.is_some_and(|error| error.is_retryable()));
    let db = options.open(folder.path()).unwrap();
    check(&items(&db));
}

fn memory_goes_back_when_the_data_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    // Time stands while they are written, however long that takes.
    let clock = ManualClock::new(1_800_000_000_000);
    let options = Options::new().reclaim_within(Duration::from_secs(2));
    let db = options.clock(clock.clone()).open(folder.path()).unwrap();
    let container = items(&db);
    for n in 0..300_000u64 {
        let life = Ttl::After(Duration::from_secs(3));
        container
            .put_with_ttl(n.to_be_bytes(), [7; 100], life)
            .unwrap();
    }
    // Not compared with what there was before: the allocator gives that back whenever it likes.
    assert!(db.stats().memtable_bytes > 30 << 20);
    let held = process::memory().anonymous;
    wait_until("all is reclaimed", || {
        clock.advance(Duration::from_millis(100));
        db.stats().stored_bytes == 0
    });
    wait_until("memory is given back", || {
        process::memory().anonymous + (25 << 20) < held
    });
}

/// By what is allocated, for the allocator keeps some of what is freed.
fn memory_goes_back_with_a_database_in_memory() {
    let live = || LIVE.load(Ordering::Relaxed);
    let before = live();
    let options = Options::new().memtable_bytes(4 << 20).stepped();
    let db = options.open_temporary().unwrap();
    let container = items(&db);
    for n in 0..40_000u64 {
        container.put(n.to_be_bytes(), [7; 1_000]).unwrap();
        if n % 2_000 == 0 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    let stored = db.stats().table_bytes as usize;
    assert!(stored > 40_000_000, "{stored}");
    // Once, beside memtables and the log.
    let held = live() - before;
    assert!((stored..stored + (24 << 20)).contains(&held), "{held}");
    drop((container, db));
    let left = live().saturating_sub(before);
    assert!(left < 1 << 20, "{left}");
}
