//! Watching a container of a state: its writes and the ends of its items, as entries are applied.
//!
//! ```text
//! state 1   put a   put b | a snapshot comes   state 2   put f   end of f
//! told      put a   put b   lost from b                  put f   end of f
//! ```
//!
//! Invariants:
//!
//! 1. A call is answered by one state. After a call that failed, or if a snapshot has replaced the state of the call before, the
//!    events since then are told as lost, from the last version that was told: the same write in all states of one log.
//! 2. The new state is watched before that is told. So a caller that reads then misses nothing.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ebbtide::{Error, Version, WatchEvent};
use openraft::RaftTypeConfig;

use crate::reader::{Reader, container_of, millis};
use crate::shared::{Open, Shared};

type KeyRange = (Bound<Bytes>, Bound<Bytes>);

/// The writes to the keys of a range and the ends of their items: see [`Reader::watch`].
#[must_use = "it gives nothing until it is asked, and apply keeps for it what it is to give"]
pub struct Watch<C: RaftTypeConfig> {
    shared: Arc<Shared<C>>,
    container: String,
    range: KeyRange,
    /// Of this state, which it does not keep.
    watch: Option<(Weak<Open>, ebbtide::Watch)>,
    /// All up to this version was told, or said to be lost.
    told: Version,
    /// Events since then may not be told.
    is_lost: bool,
}

/// Some events.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Those by now, in their order.
    pub events: Vec<WatchEvent>,
    /// The state's time when the call began, in milliseconds since 1970: nothing was written or ended before it that is neither
    /// told nor comes with the next calls.
    pub at_ms: u64,
}

/// The wait of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// There is an event.
    Ask,
    /// There is none before the next entry. The moment of the container's next end, as known now; it may be over by the clock, and
    /// not by the state's time yet.
    Until(Option<SystemTime>),
}

impl<C: RaftTypeConfig> Debug for Watch<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("container", &self.container)
            .field("told", &self.told)
            .finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig> Reader<C> {
    /// The writes to the keys of a range and the ends of their items, from now on, in the order of versions, as
    /// [`Container::watch`](ebbtide::Container::watch) tells them.
    ///
    /// # Errors
    /// Those of the engine, and a container that is not there.
    pub fn watch(&self, container: &str, range: KeyRange) -> Result<Watch<C>, Error> {
        let open = self.shared.open();
        let watch = container_of(&open, container)?.watch(range.clone());
        Ok(Watch {
            shared: self.shared.clone(),
            container: container.to_owned(),
            range,
            told: watch.told(),
            watch: Some((Arc::downgrade(&open), watch)),
            is_lost: false,
        })
    }
}

impl<C: RaftTypeConfig> Watch<C> {
    /// The next events, up to `most` (at least 1).
    ///
    /// # Errors
    /// Those of the engine. The next call goes on behind what is lost by that.
    pub fn next(&mut self, most: usize) -> Result<Watched, Error> {
        self.answered(|watch| watch.pull(most.max(1)))
    }

    /// Asks once more if the container was dropped, because another one of its name may have been made.
    fn answered<T>(
        &mut self,
        answer: impl Fn(&mut Watch<C>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut answered = answer(self);
        if let Err(Error::ContainerDropped { .. }) = answered {
            self.watch = None;
            answered = answer(self);
        }
        if answered.is_err() {
            self.watch = None;
        }
        answered
    }

    fn pull(&mut self, most: usize) -> Result<Watched, Error> {
        let open = self.current()?;
        let at_ms = millis(open.db.now());
        let mut events = vec![];
        if self.is_lost {
            events.push(WatchEvent::Lost { from: self.told });
        }
        let (_, watch) = self.watch.as_mut().expect("it was opened");
        for event in watch.by_ref().take(most - events.len()) {
            events.push(event?);
        }
        self.told = watch.told();
        self.is_lost = false;
        Ok(Watched { events, at_ms })
    }

    /// Whether there is something to tell.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub fn look(&mut self) -> Result<Rest, Error> {
        self.answered(Watch::rest)
    }

    fn rest(&mut self) -> Result<Rest, Error> {
        self.current()?;
        let (_, watch) = self.watch.as_mut().expect("it was opened");
        let has_some = self.is_lost || watch.wait(Duration::ZERO)?;
        Ok(match has_some {
            true => Rest::Ask,
            false => Rest::Until(watch.next_due()),
        })
    }

    /// The state that counts, which is watched.
    fn current(&mut self) -> Result<Arc<Open>, Error> {
        let open = self.shared.open();
        let is_of_now = |(of, _): &(Weak<Open>, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(&open));
        if !self.watch.as_ref().is_some_and(is_of_now) {
            let watch = container_of(&open, &self.container)?.watch(self.range.clone());
            self.watch = Some((Arc::downgrade(&open), watch));
            self.is_lost = true;
        }
        Ok(open)
    }
}
