//! Undoing what a command half made when a signal ends it: files, folders, leases.
//!
//! An [`Undo`] is made before the thing is, and undoes it when it is dropped; [`Undo::keep`] lets the thing stay. When SIGINT
//! or SIGTERM comes, a thread undoes all that is not kept, the newest first, and lets the signal end the process, so that a
//! shell says 130 or 143. A second signal does not wait for that.
//!
//! Invariant: works are run under the lock alone, and the thread that a signal woke never releases it. So nothing is undone
//! twice, and a command that fails because its files vanish says nothing before the signal has ended it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

type Work = Box<dyn FnOnce() + Send>;

struct Undoing {
    /// By their order.
    works: BTreeMap<u64, Work>,
    made: u64,
    is_watched: bool,
}

static UNDOING: Mutex<Undoing> = Mutex::new(Undoing {
    works: BTreeMap::new(),
    made: 0,
    is_watched: false,
});

/// Undoes something when it is dropped, or when a signal ends the process.
#[must_use]
pub struct Undo {
    number: u64,
}

impl Undo {
    /// `work` makes no `Undo`, keeps none and drops none.
    pub fn by(work: impl FnOnce() + Send + 'static) -> io::Result<Undo> {
        let mut undoing = lock();
        if !undoing.is_watched {
            watch()?;
            undoing.is_watched = true;
        }
        undoing.made += 1;
        let number = undoing.made;
        undoing.works.insert(number, Box::new(work));
        Ok(Undo { number })
    }

    /// It is whole: it stays.
    pub fn keep(self) {
        lock().works.remove(&self.number);
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut undoing = lock();
        if let Some(work) = undoing.works.remove(&self.number) {
            work();
        }
    }
}

fn lock() -> MutexGuard<'static, Undoing> {
    UNDOING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() -> io::Result<()> {
    let is_ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register_conditional_default(signal, Arc::clone(&is_ending))?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        for signal in signals.forever() {
            let mut undoing = lock();
            is_ending.store(true, Ordering::SeqCst);
            while let Some((_, work)) = undoing.works.pop_last() {
                work();
            }
            let _ = emulate_default_handler(signal);
        }
    };
    let watching = thread::Builder::new().name("signals".to_owned());
    watching.spawn(wait).map(|_| ())
}
