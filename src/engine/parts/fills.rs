//! The keys of a container whose values are being made, to fill a cache: of those that ask for one at once, one makes it.
//!
//! ```text
//! begin(key)   nobody fills it ─────> Filling ── dropped ──> the key is free; all that wait look again
//!              another thread does ─> wait, as a thread or as a task
//!              this thread does ────> Filling, for which nobody waits
//! ```
//!
//! Invariants:
//!
//! 1. A key has at most one [`Filling`], apart from those that a thread begins within its own.
//! 2. A [`Filling`] that is dropped, by a panic or with its future, too, wakes all that wait for it. None is woken before.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
#[cfg(any(test, feature = "tokio"))]
use std::future::poll_fn;
use std::sync::Arc;
#[cfg(any(test, feature = "tokio"))]
use std::task::Poll;
use std::task::Waker;

use crate::base::sync::{Condvar, Mutex};
use crate::env::{ThreadId, this_thread};

/// See the file's head.
#[derive(Default)]
pub struct Fills {
    keys: Mutex<HashMap<Box<[u8]>, Arc<Fill>>>,
}

/// One under way, to wait for.
pub struct Fill {
    /// The thread that makes the value; none: that of a task, which may change.
    thread: Option<ThreadId>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    tasks: Vec<Waker>,
}

/// The right to make the value of a key.
pub struct Filling {
    /// None: it is within one of the same thread.
    key: Option<(Arc<Fills>, Box<[u8]>)>,
}

/// The role of one that asks for a key.
pub enum FillRole {
    /// It makes the value.
    Fill(Filling),
    /// Another does.
    Wait(Arc<Fill>),
}

/// The caller of [`Fills::begin`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FillCaller {
    /// It stays on this thread until it has made the value.
    Thread,
    /// It may go on with another thread.
    #[cfg(any(test, feature = "tokio"))]
    Task,
}

impl Fills {
    /// The role of one that asks for a key.
    pub fn begin(self: &Arc<Self>, key: &[u8], caller: FillCaller) -> FillRole {
        let thread = (caller == FillCaller::Thread).then(this_thread);
        match self.keys.lock().entry(key.into()) {
            Entry::Occupied(fill) if fill.get().is_of(thread) => {
                FillRole::Fill(Filling { key: None })
            }
            Entry::Occupied(fill) => FillRole::Wait(fill.get().clone()),
            Entry::Vacant(place) => {
                place.insert(Arc::new(Fill {
                    thread,
                    state: Mutex::new(State::default()),
                    over: Condvar::new(),
                }));
                let key = Some((self.clone(), key.into()));
                FillRole::Fill(Filling { key })
            }
        }
    }
}

impl Fill {
    fn is_of(&self, thread: Option<ThreadId>) -> bool {
        thread.is_some() && self.thread == thread
    }

    /// Waits until it is over.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            self.over.wait(&mut state);
        }
    }

    /// The same, for a task.
    #[cfg(any(test, feature = "tokio"))]
    pub async fn over(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.is_over {
                return Poll::Ready(());
            }
            let waker = context.waker();
            if !state.tasks.iter().any(|task| task.will_wake(waker)) {
                state.tasks.push(waker.clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        let Some((fills, key)) = self.key.take() else {
            return;
        };
        let fill = fills.keys.lock().remove(&key);
        let Some(fill) = fill else {
            return;
        };
        let tasks = {
            let mut state = fill.state.lock();
            state.is_over = true;
            std::mem::take(&mut state.tasks)
        };
        fill.over.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::env::spawn;

    fn filling(role: FillRole) -> Option<Filling> {
        match role {
            FillRole::Fill(filling) => Some(filling),
            FillRole::Wait(_) => None,
        }
    }

    #[test]
    fn one_fills_a_key_and_others_wait_for_it() {
        let fills = Arc::new(Fills::default());
        let first = filling(fills.begin(b"k", FillCaller::Task)).unwrap();
        assert!(filling(fills.begin(b"other", FillCaller::Task)).is_some());
        let FillRole::Wait(fill) = fills.begin(b"k", FillCaller::Thread) else {
            panic!("two fill one key");
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut over = pin!(fill.over());
        assert!(over.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(over.as_mut().poll(&mut context).is_ready());
        fill.wait();
        assert!(fills.keys.lock().is_empty());
        assert!(filling(fills.begin(b"k", FillCaller::Task)).is_some());
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let fills = Arc::new(Fills::default());
        let outer = filling(fills.begin(b"k", FillCaller::Thread)).unwrap();
        let inner = filling(fills.begin(b"k", FillCaller::Thread)).unwrap();
        drop(inner);
        let other = fills.clone();
        let waits = move || {
            let role = other.begin(b"k", FillCaller::Thread);
            assert!(filling(role).is_none(), "the outer one goes on");
        };
        spawn("another", waits).unwrap().join().unwrap();
        drop(outer);
    }
}
