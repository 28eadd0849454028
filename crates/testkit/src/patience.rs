//! Waiting for what threads do: by looks and not by the clock, so that a test fails neither on a slow machine nor on one
//! that stands still for a while.

use std::thread::{sleep, spawn};
use std::time::Duration;

/// What is not so after so many looks, a millisecond apart, never will be.
const LOOKS: u32 = 60_000;

/// It is so, now or later.
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

/// Does it on a thread of its own, and fails when it is not done and makes no progress any more.
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
