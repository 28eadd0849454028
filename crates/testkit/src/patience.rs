//! Waiting for threads, by polling with a generous limit, so that a test fails neither on a slow machine nor on one
//! that pauses.

use std::thread::{sleep, spawn};
use std::time::Duration;

/// A condition that is false after this many polls, a millisecond apart, is taken to stay false.
const LOOKS: u32 = 60_000;

/// Whether the condition is true, now or later.
pub fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|_| {
        sleep(Duration::from_millis(1));
        is_so()
    })
}

#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "{what}");
}

/// Does it on another thread, and waits for that: a write by the closure of an update is refused on its own.
pub fn elsewhere(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

/// Runs it on a thread of its own, and fails if it neither ends nor makes progress.
#[track_caller]
pub fn ends(progress: impl Fn() -> u64, work: impl FnOnce() + Send + 'static) {
    let thread = spawn(work);
    while !thread.is_finished() {
        let before = progress();
        wait_until("it never ends", || {
            thread.is_finished() || progress() != before
        });
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
