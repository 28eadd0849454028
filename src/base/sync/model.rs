//! The counterparts for the model checker. A thread that spins for another yields to it. Time does not pass, and a wait
//! with a limit lasts until it is woken.
//!
//! Models are in `models.rs` beside the code they are about. They do not check the insides of other crates (the
//! exchange of read states, cells that are set once), counters and tables: these take no steps, nor does the passing of
//! time except for a lock. The simulated disk takes one step for each call if a model asks for that.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use loom::sync as checked;

pub use crossbeam_utils::CachePadded;
pub use loom::hint::spin_loop;
pub use loom::sync::atomic;
pub use loom::thread::JoinHandle;

/// Locks are never poisoned.
const NEVER: &str = "a model ends with its first panic";

/// Runs a history in every order in which its threads can take their steps, with every value that the memory model
/// allows a load to see, and prints how many these are. A thread is interrupted, where it need not wait, up to
/// `interruptions` times; `EBBTIDE_INTERRUPTIONS` overrides that.
pub fn check(what: &str, interruptions: usize, history: impl Fn() + Send + Sync + 'static) {
    let overruled = std::env::var("EBBTIDE_INTERRUPTIONS");
    let interruptions = overruled.map_or(interruptions, |number| number.parse().expect("a number"));
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(interruptions);
    // A history with more steps is in an endless loop.
    model.max_branches = 100_000;
    let orders = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (counted, history) = (orders.clone(), Arc::new(history));
    model.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let history = history.clone();
        spawn(move || history()).join().expect(NEVER);
    });
    let orders = orders.load(std::sync::atomic::Ordering::Relaxed);
    println!("FIGURE model, {what}: {orders} orders, interrupted up to {interruptions} times");
}

/// A step on something that the checker does not see, such as a disk: it is ordered with every other one.
#[derive(Clone, Debug)]
pub struct Elsewhere(Arc<atomic::AtomicUsize>);

impl Elsewhere {
    pub fn new() -> Elsewhere {
        Elsewhere(Arc::new(atomic::AtomicUsize::new(0)))
    }

    /// Takes the step; it orders nothing else.
    pub fn step(&self) {
        self.0.fetch_add(1, atomic::Ordering::Relaxed);
    }
}

/// Starts a thread of a history.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // In words: opening a database needs more stack than the checker's default.
    let thread = loom::thread::Builder::new().stack_size(128 << 10);
    thread.spawn(work).expect("memory for a stack")
}

#[derive(Debug, Default)]
pub struct Mutex<T>(checked::Mutex<T>);

/// Empty only while a [`Condvar`] waits.
pub struct MutexGuard<'a, T>(Option<checked::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(checked::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect(NEVER)))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(NEVER)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().expect(NEVER)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(NEVER)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(NEVER)
    }
}

/// No thread sleeps in a model.
pub fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The work that the production lock does while it waits is left out: no model could see its effect.
pub fn lock_soon_after<T>(mutex: &Mutex<T>, _meanwhile: impl FnOnce()) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The first look decides.
pub fn try_lock_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

#[derive(Debug, Default)]
pub struct Condvar(checked::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(checked::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(NEVER);
        guard.0 = Some(self.0.wait(held).expect(NEVER));
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        self.wait(guard);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(checked::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> RwLock<T> {
        RwLock(checked::RwLock::new(value))
    }

    pub fn read(&self) -> checked::RwLockReadGuard<'_, T> {
        self.0.read().expect(NEVER)
    }

    pub fn write(&self) -> checked::RwLockWriteGuard<'_, T> {
        self.0.write().expect(NEVER)
    }
}

/// A load acquires what a store released, and nothing else is ordered by it. Reference counts are not modelled: every
/// value lives as long as the cell.
pub struct ArcSwap<T> {
    newest: atomic::AtomicUsize,
    all: std::sync::Mutex<Vec<Arc<T>>>,
}

pub type Guard<T> = T;

impl<T> ArcSwap<T> {
    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap {
            newest: atomic::AtomicUsize::new(0),
            all: std::sync::Mutex::new(vec![Arc::new(value)]),
        }
    }

    pub fn load(&self) -> Arc<T> {
        let newest = self.newest.load(atomic::Ordering::Acquire);
        self.all.lock().expect(NEVER)[newest].clone()
    }

    pub fn load_full(&self) -> Arc<T> {
        self.load()
    }

    /// Called by one thread at a time.
    pub fn store(&self, value: Arc<T>) {
        let newest = {
            let mut all = self.all.lock().expect(NEVER);
            all.push(value);
            all.len() - 1
        };
        self.newest.store(newest, atomic::Ordering::Release);
    }
}

#[derive(Default)]
pub struct Backoff;

impl Backoff {
    pub fn new() -> Backoff {
        Backoff
    }

    pub fn snooze(&self) {
        loom::thread::yield_now();
    }
}
