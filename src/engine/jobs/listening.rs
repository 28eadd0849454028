//! Telling the listener what happens, and, with the feature `metrics`, a recorder how things are.

use std::time::Duration;

use crate::base::Result;
use crate::base::counters::Waits;
use crate::engine::Engine;
use crate::engine::options::Background;
use crate::engine::parts::events::Event;
use crate::engine::parts::scheduler::Thread;
use crate::values::listener::{BackgroundErrorEvent, ControlEvent};

/// Summaries are told this often.
const SUMMARY: Duration = Duration::from_secs(1);

impl Engine {
    /// Notes an event; where nobody listens it is not even made.
    pub(in crate::engine) fn note_event(&self, event: impl FnOnce() -> Event) {
        if self.events.are_heard() {
            self.events.push(event());
            self.scheduler.wake(Thread::Listen);
        }
    }

    /// Notes an answered request of the control socket, for the listener.
    pub fn note_control(&self, control: ControlEvent) {
        self.note_event(|| Event::Control(control));
        self.tell_listener_of_steps();
    }

    /// Notes the outcome of background work, for statistics and for the listener.
    pub(in crate::engine) fn note_outcome<T>(&self, work: &'static str, outcome: &Result<T>) {
        self.scheduler.note_outcome(work, outcome);
        match outcome {
            Err(error) if !error.is_closed() => self.note_event(|| {
                let error = error.clone();
                Event::BackgroundError(BackgroundErrorEvent { work, error })
            }),
            _ => {}
        }
    }

    /// Whether a thread is needed for it.
    pub(in crate::engine) fn has_audience(&self) -> bool {
        self.events.are_heard() || cfg!(feature = "metrics")
    }

    /// Stalls since the database was opened.
    pub(in crate::engine) fn stalls(&self) -> Waits {
        self.counters.stalls.get()
    }

    /// Syncs of the log since the database was opened.
    pub(in crate::engine) fn syncs(&self) -> Waits {
        let log = self.commit_log.begun();
        log.map(|log| log.syncs()).unwrap_or_default()
    }

    /// Tells the listener all that happened. The caller holds no lock.
    pub(in crate::engine) fn tell_listener(&self) {
        if self.events.are_heard() {
            self.events.sum_up(self.stalls(), self.syncs());
            self.events.tell_all();
        }
    }

    /// The same at the end of work that a test does step by step: there is no thread for it.
    pub(in crate::engine) fn tell_listener_of_steps(&self) {
        if self.options.background == Background::Stepped {
            self.tell_listener();
        }
    }

    pub(in crate::engine) fn listen_round(&self) -> Result<Duration> {
        self.tell_listener();
        #[cfg(feature = "metrics")]
        self.publish_in_time();
        Ok(SUMMARY)
    }
}
