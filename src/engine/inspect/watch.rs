//! Watching a container: its writes, from a queue (parts/watchers.rs), and the ends of its items, from a reader of
//! expirations (feed.rs), as one row of events.
//!
//! ```text
//! queue    put a   put b            put a            an end is told after the write of its item, and after all writes
//! ends                    end of b          end of a      that were queued from before the end
//! told     put a   put b  end of b  put a   end of a
//! ```
//!
//! 1. A write is told once it is published, so never one that a reader does not see, or that fails.
//! 2. The reader of ends gives an end only if the newest write of the key has it. So what follows an end in the row is newer.
//! 3. Where writes were lost, all before the first of them were told, and all up to the last are published when that is
//!    said: the changes since then have every one of them.
//! 4. Where ends were lost, because the reader came too late for some, they follow the last write that was told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::base::{Result, Seq, Timestamp};
use crate::data::batch::KeyRange;
use crate::data::item::{Item, Pair};
use crate::engine::Engine;
use crate::engine::inspect::feed::{Ended, Feed, FeedPosition, Rest};
use crate::engine::parts::bell::Bell;
use crate::engine::parts::state::ContainerState;
use crate::engine::parts::watchers::{LostWrites, Noted, Taken, WatchPin};
use crate::env::monotonic;

/// An event.
pub enum Seen {
    /// An item was written.
    Put(Item),
    /// A key was deleted.
    Delete(Bytes, Seq),
    /// The keys of a range were deleted.
    DeleteRange(KeyRange, Seq),
    /// An item has ended.
    Ended(Ended),
    /// Some events after this write were lost.
    Lost(Seq),
}

/// A watcher.
pub struct Watcher {
    /// Dropped first: while it is there, the reader of ends is, for whose sake writes are noted at all.
    queue: WatchPin,
    feed: Feed,
    range: Arc<KeyRange>,
    /// The next end.
    ended: Option<Ended>,
    /// The last write that was told.
    last: Seq,
}

impl Watcher {
    /// The bell that ends its wait.
    pub fn bell(&self) -> &Arc<Bell> {
        self.feed.bell()
    }

    /// The last write that was told, or lies before the first.
    pub fn last(&self) -> Seq {
        self.last
    }
}

impl Engine {
    /// Watches a container from now on. If that was to be from an earlier write on, what came since is lost.
    pub fn watch(
        &self,
        state: &Arc<ContainerState>,
        range: Arc<KeyRange>,
        since: Option<Seq>,
    ) -> Result<Watcher> {
        let feed = self.feed(state, FeedPosition::Now)?.locally();
        // No write comes between the last one that is lost and the queue.
        let commit = self.commit_log.lock();
        let last = self.commit_log.latest();
        let lost = since.filter(|since| *since < last);
        let lost = lost.map(|since| LostWrites {
            first: since.next(),
            last,
        });
        let queue = state.feeds().watch(range.clone(), feed.bell(), lost);
        drop(commit);
        Ok(Watcher {
            queue,
            feed,
            range,
            ended: None,
            last: since.unwrap_or(last),
        })
    }

    /// The last write that is visible.
    pub fn last_visible(&self) -> Seq {
        self.commit_log.published()
    }

    /// The next event; none: there is no other by now.
    pub fn next_watched(
        &self,
        state: &Arc<ContainerState>,
        watcher: &mut Watcher,
    ) -> Result<Option<Seen>> {
        self.check_open(state)?;
        // All ends before this moment were told.
        let told_before = watcher.feed.told_before();
        let is_later = |noted: &Noted| noted.at() > told_before;
        let asks = watcher.queue.first(is_later).unwrap_or(true);
        if watcher.ended.is_none() && asks && !self.find_end(state, watcher)? {
            return Ok(Some(Seen::Lost(watcher.last)));
        }
        let ended = watcher.ended.as_ref();
        let is_first = |noted: &Noted| {
            let is_before =
                |ended: &Ended| noted.seq() <= ended.header.seq || noted.at() < ended.at;
            ended.is_none_or(is_before)
        };
        match watcher.queue.take(is_first) {
            Taken::Nothing => Ok(watcher.ended.take().map(Seen::Ended)),
            Taken::Lost(lost) => {
                self.make_visible(lost.last)?;
                watcher.last = lost.last;
                Ok(Some(Seen::Lost(Seq(lost.first.0 - 1))))
            }
            Taken::Write(noted) => {
                self.make_visible(noted.seq())?;
                watcher.last = noted.seq();
                Ok(Some(self.seen(state, noted)))
            }
        }
    }

    /// Finds the next end in the range, if there is one by now; false: some are not known any more.
    fn find_end(&self, state: &Arc<ContainerState>, watcher: &mut Watcher) -> Result<bool> {
        loop {
            match self.next_ended(state, &mut watcher.feed) {
                Ok(Some(ended)) if !watcher.range.contains(&ended.key) => {}
                Ok(ended) => {
                    watcher.ended = ended;
                    return Ok(true);
                }
                Err(error) if error.is_expirations_gone() => {
                    // The new one is open before the old one goes, so writes are noted all the time.
                    watcher.feed = self.feed(state, FeedPosition::Now)?.locally();
                    watcher.queue.set_bell(watcher.feed.bell());
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn seen(&self, state: &ContainerState, noted: Noted) -> Seen {
        match noted {
            Noted::Range(_, seq, range) => Seen::DeleteRange(range, seq),
            Noted::Record(_, header, key, _) if header.is_tombstone() => {
                Seen::Delete(key, header.seq)
            }
            Noted::Record(_, header, key, value) => {
                let life = state.settings().life(&header);
                Seen::Put(Item::new(Pair::new(key, value), &header, life, self.now()))
            }
        }
    }

    /// Looks whether there is something to tell, and else says for what is waited.
    pub fn look_to_watch(
        &self,
        state: &Arc<ContainerState>,
        watcher: &mut Watcher,
    ) -> Result<Rest> {
        if watcher.ended.is_some() || !watcher.queue.rest() {
            return Ok(Rest::Ask);
        }
        self.look_for_end(state, &mut watcher.feed)
    }

    /// When the next item of the container ends.
    pub fn next_watched_end(
        &self,
        state: &Arc<ContainerState>,
        watcher: &mut Watcher,
    ) -> Result<Option<Timestamp>> {
        match &watcher.ended {
            Some(ended) => Ok(Some(ended.at)),
            None => self.next_end(state, &mut watcher.feed),
        }
    }

    /// Waits until there is something to tell; false: there was nothing for so long.
    pub fn wait_to_watch(
        &self,
        state: &Arc<ContainerState>,
        watcher: &mut Watcher,
        timeout: Duration,
    ) -> Result<bool> {
        let begun = monotonic();
        loop {
            let Rest::For(rest) = self.look_to_watch(state, watcher)? else {
                return Ok(true);
            };
            let left = timeout.saturating_sub(monotonic().saturating_sub(begun));
            if left.is_zero() {
                return Ok(false);
            }
            watcher.feed.bell().wait(rest.min(left));
        }
    }
}
