//! Events for the listener: kept until the thread that tells them has called it.
//!
//! ```text
//! a job, under whatever locks -> waiting -> told, one at a time, by a thread that holds none
//! ```
//!
//! Invariants: no lock of the table in mod.rs is held during a call. One thread at a time calls, and it calls in the order in
//! which events were added. Without a listener nothing is kept.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::base::counters::Waits;
use crate::base::sync::Mutex;
use crate::values::listener::{
    BackgroundErrorEvent, CompactionEvent, ControlEvent, EventListener, FlushEvent, ReclaimEvent,
    StallEvent, SyncEvent,
};

/// The most events that wait: those of some minutes of the busiest database.
const MOST: usize = 1024;

/// Something that happened.
pub enum Event {
    /// See [`EventListener::on_flush_begin`].
    FlushBegin(FlushEvent),
    /// See [`EventListener::on_flush_completed`].
    FlushCompleted(FlushEvent),
    /// See [`EventListener::on_compaction_begin`].
    CompactionBegin(CompactionEvent),
    /// See [`EventListener::on_compaction_completed`].
    CompactionCompleted(CompactionEvent),
    /// See [`EventListener::on_reclaim`].
    Reclaim(ReclaimEvent),
    /// See [`EventListener::on_background_error`].
    BackgroundError(BackgroundErrorEvent),
    /// See [`EventListener::on_stall`].
    Stall(StallEvent),
    /// See [`EventListener::on_sync`].
    Sync(SyncEvent),
    /// See [`EventListener::on_control`].
    Control(ControlEvent),
    /// See [`EventListener::on_lost`].
    Lost(u64),
}

impl Event {
    fn tell(&self, listener: &dyn EventListener) {
        match self {
            Event::FlushBegin(flush) => listener.on_flush_begin(flush),
            Event::FlushCompleted(flush) => listener.on_flush_completed(flush),
            Event::CompactionBegin(compaction) => listener.on_compaction_begin(compaction),
            Event::CompactionCompleted(compaction) => listener.on_compaction_completed(compaction),
            Event::Reclaim(reclaim) => listener.on_reclaim(reclaim),
            Event::BackgroundError(error) => listener.on_background_error(error),
            Event::Stall(stalls) => listener.on_stall(stalls),
            Event::Sync(syncs) => listener.on_sync(syncs),
            Event::Control(control) => listener.on_control(control),
            Event::Lost(events) => listener.on_lost(*events),
        }
    }
}

/// See the file's head.
pub struct Events {
    listener: Option<Arc<dyn EventListener>>,
    queue: Mutex<Queue>,
    /// Held by the thread that calls; only tried, so nobody waits for a call to end.
    calling: Mutex<()>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Event>,
    lost: u64,
    /// The stalls and the syncs that were told.
    told: (Waits, Waits),
}

impl Events {
    /// Nothing has happened.
    pub fn new(listener: Option<Arc<dyn EventListener>>) -> Events {
        Events {
            listener,
            queue: Mutex::default(),
            calling: Mutex::new(()),
        }
    }

    /// Whether somebody listens.
    pub fn are_heard(&self) -> bool {
        self.listener.is_some()
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() < MOST {
            queue.waiting.push_back(event);
        } else {
            queue.lost += 1;
        }
    }

    /// Adds summaries of the stalls and syncs since the last call, if there were some.
    pub fn sum_up(&self, stalls: Waits, syncs: Waits) {
        let mut queue = self.queue.lock();
        let (stalls_told, syncs_told) = std::mem::replace(&mut queue.told, (stalls, syncs));
        let (stalled, synced) = (stalls.since(stalls_told), syncs.since(syncs_told));
        if stalled.count > 0 {
            queue.waiting.push_back(Event::Stall(StallEvent {
                stalls: stalled.count,
                waited: stalled.time,
            }));
        }
        if synced.count > 0 {
            queue.waiting.push_back(Event::Sync(SyncEvent {
                syncs: synced.count,
                took: synced.time,
            }));
        }
    }

    /// Calls the listener with every event. Returns at once if another thread is doing so, or this one further up its
    /// stack.
    pub fn tell_all(&self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let Some(_calling) = self.calling.try_lock() else {
            return;
        };
        loop {
            let next = self.queue.lock().next();
            let Some(event) = next else {
                return;
            };
            // A panic is the listener's, and ends its call alone.
            let _ = catch_unwind(AssertUnwindSafe(|| event.tell(listener.as_ref())));
        }
    }
}

impl Queue {
    /// The lost events are newer than all that wait.
    fn next(&mut self) -> Option<Event> {
        let next = self.waiting.pop_front();
        next.or_else(|| match std::mem::take(&mut self.lost) {
            0 => None,
            lost => Some(Event::Lost(lost)),
        })
    }
}
