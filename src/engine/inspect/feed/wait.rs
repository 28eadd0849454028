//! The next end of a reader of expirations, and waiting for it.
//!
//! ```text
//! look: next end ──▶ say for what is waited ──▶ anything noted since? ──▶ rest until the end is over ──▶ look
//!                                                                         a ring: a write that ends before, a change
//! ```
//!
//! Nothing rings when time leaps, so nobody rests for longer than [`LOOK`].

use std::sync::Arc;
use std::time::Duration;

use super::Feed;
use crate::base::{Result, Timestamp};
use crate::engine::Engine;
use crate::engine::parts::feeds::Wants;
use crate::engine::parts::state::ContainerState;
use crate::env::monotonic;

/// The longest rest between two looks at the system's clock, which leaps seldom, and at any other.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_OFTEN: Duration = Duration::from_millis(50);

/// The next step of one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It asks: there is something to tell.
    Ask,
    /// It rests, for at most so long, until the bell rings.
    For(Duration),
}

impl Engine {
    /// When the next item ends that is not given yet, as known now: it may have ended already. None: no item has an end.
    pub fn next_end(
        &self,
        state: &Arc<ContainerState>,
        feed: &mut Feed,
    ) -> Result<Option<Timestamp>> {
        self.check_open(state)?;
        let noted = feed.reading.take();
        if noted.is_full || feed.version != Some(state.settings_version()) {
            self.gather_ends(state, feed)?;
        } else {
            let writes = noted.writes.iter();
            writes.for_each(|(header, key)| feed.take_in(header, key));
        }
        loop {
            // Then each write that is noted can be seen: one that has not the end that was noted for it was written over.
            self.wait_for_stamped();
            while let Some((end, key)) = feed.ahead.first().cloned() {
                if self.ended(state, feed, end, &key)?.is_some() {
                    return Ok(Some(end));
                }
                feed.take_first();
            }
            if feed.beyond.is_none() {
                return Ok(None);
            }
            self.gather_beyond(state, feed)?;
        }
    }

    /// Looks whether there is something to tell, and else says for what is waited: until the bell of the reader rings.
    pub fn look_for_end(&self, state: &Arc<ContainerState>, feed: &mut Feed) -> Result<Rest> {
        loop {
            let due = self.next_end(state, feed)?;
            let settled = self.clock.read().settled;
            if due.is_some_and(|due| due < settled) {
                feed.reading.end_wait();
                return Ok(Rest::Ask);
            }
            // An end is told when its millisecond is over.
            let due = due.unwrap_or(Timestamp::MAX);
            let until_due = Duration::from_millis(due.since(settled).saturating_add(1));
            let is_all = feed.reading.wait_for(Wants::up_to(due, &feed.settings));
            if is_all && feed.version == Some(state.settings_version()) {
                let look = match self.clock.is_system() {
                    true => LOOK,
                    false => LOOK_OFTEN,
                };
                return Ok(Rest::For(until_due.min(look)));
            }
        }
    }

    /// Waits until there is something to tell; false: there was nothing for so long.
    pub fn wait_for_end(
        &self,
        state: &Arc<ContainerState>,
        feed: &mut Feed,
        timeout: Duration,
    ) -> Result<bool> {
        let begun = monotonic();
        loop {
            let Rest::For(rest) = self.look_for_end(state, feed)? else {
                return Ok(true);
            };
            let left = timeout.saturating_sub(monotonic().saturating_sub(begun));
            if left.is_zero() {
                feed.reading.end_wait();
                return Ok(false);
            }
            feed.reading.bell().wait(rest.min(left));
        }
    }
}
