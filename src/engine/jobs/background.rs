//! Background threads: flushing, merging, reclaiming, syncing, trimming the log.
//!
//! Each kind of work is one function that does one piece of it on the calling thread. Threads call these functions in a
//! loop; a test calls them step by step. A job pins a read state, then reads the clock, then the settings, then the
//! list of open snapshots, and judges every record by these. One edit of the catalogue, which carries the mark,
//! installs its result.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result};
use crate::engine::Engine;
use crate::engine::core::log_time;
use crate::engine::options::Background;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::engine::parts::sync_waiters::Then;
use crate::env::{JoinHandle, monotonic, set_priority, spawn};

/// The longest a thread sleeps before it looks for work again: nothing signals that a clock was moved.
const TICK: Duration = Duration::from_millis(200);
/// Writers wake the log's thread. So long after a failure it tries again by itself.
const LOG_REST: Duration = Duration::from_secs(1);

/// The wait before the first retry after a failure; it doubles with every further failure.
const RETRY: Duration = Duration::from_secs(1);

/// The longest wait before a retry.
const RETRY_MOST: Duration = Duration::from_secs(8);

/// The name, in the list of failures, of the log thread's preparation of the next segment.
const NEXT_SEGMENT: &str = "the log's next segment";

/// Turns a panic in a thread's work into an error. The work can then be retried: it computes its result aside and
/// installs it in one step that runs no user code.
fn survive<T>(thread: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.as_str(),
            (None, Some(text)) => text,
            (None, None) => "without a message",
        };
        Err(Error::Panicked {
            thread,
            message: what.to_owned(),
        })
    })
}

/// Calls each waiter with the outcome of the sync. A waiter's panic is caught and affects nobody else.
pub(in crate::engine) fn tell(waiting: Vec<Then>, synced: &Result<()>) {
    for then in waiting {
        let told = synced.clone();
        let _ = catch_unwind(AssertUnwindSafe(|| then(told)));
    }
}

impl Engine {
    pub(in crate::engine) fn start_threads(engine: &Arc<Engine>) -> Result<()> {
        type Round = fn(&Engine) -> Result<Duration>;
        let rounds: [(Thread, Round); 5] = [
            (Thread::Flush, Engine::flush_round),
            (Thread::Merge, Engine::merge_round),
            (Thread::Log, Engine::log_round),
            (Thread::Sync, Engine::sync_round),
            (Thread::Hurry, Engine::hurry_round),
        ];
        let start = |(thread, round)| Engine::start_loop(engine, thread, round);
        let listen: Option<(Thread, Round)> =
            (engine.has_audience()).then_some((Thread::Listen, Engine::listen_round));
        let rounds = rounds.into_iter().chain(listen);
        let threads: Vec<JoinHandle<()>> = rounds.map(start).collect::<Result<_>>()?;
        engine.scheduler.keep(threads);
        Ok(())
    }

    /// The one thread of a follower.
    pub(in crate::engine) fn start_following(
        engine: &Arc<Engine>,
        round: fn(&Engine) -> Result<Duration>,
    ) -> Result<()> {
        let thread = Engine::start_loop(engine, Thread::Follow, round)?;
        engine.scheduler.keep(vec![thread]);
        Ok(())
    }

    /// Starts a thread that does a round of work, then sleeps until it is woken or for as long as the round said, until
    /// the database closes. It holds the engine only while it works, so that a database whose handles were all dropped
    /// is freed.
    fn start_loop(
        engine: &Arc<Engine>,
        thread: Thread,
        round: fn(&Engine) -> Result<Duration>,
    ) -> Result<JoinHandle<()>> {
        let signal = engine.scheduler.signal(thread).clone();
        let (engine, name) = (Arc::downgrade(engine), thread.name());
        spawn(name, move || {
            set_priority(thread.priority());
            let mut retry = RETRY;
            while let Some(engine) = engine.upgrade() {
                if engine.scheduler.is_closing() {
                    return;
                }
                engine.scheduler.begin_round(thread);
                let done = survive(name, || round(&engine));
                engine.note_outcome(name, &done);
                let wait = match done {
                    Ok(wait) => {
                        retry = RETRY;
                        wait
                    }
                    Err(_) => {
                        let wait = retry;
                        retry = (retry * 2).min(RETRY_MOST);
                        wait
                    }
                };
                // The round may have consumed the wake-up that was meant to end the sleep.
                if engine.scheduler.is_closing() {
                    return;
                }
                drop(engine);
                signal.wait(wait);
            }
        })
    }

    /// Calls `then` once everything written so far survives a power cut, or with the reason why it does not.
    pub fn sync_then(engine: &Arc<Engine>, then: Then) {
        let ready = engine.check_writable().and_then(|()| {
            if engine.options.background == Background::Stepped {
                return Ok(());
            }
            let round = Engine::tell_round;
            let start = || Engine::start_loop(engine, Thread::Tell, round);
            engine.scheduler.keep_telling(start)
        });
        let left = match ready {
            Ok(()) => engine.sync_waiters.add(then).err(),
            Err(error) => return then(Err(error)),
        };
        match left {
            None => engine.scheduler.wake(Thread::Tell),
            Some(then) => then(Err(Error::Closed)),
        }
    }

    fn tell_round(&self) -> Result<Duration> {
        while self.tell_synced() {}
        Ok(Duration::from_secs(1))
    }

    /// Syncs the log for those who wait in `sync_waiters`, and calls them; false when there are none.
    fn tell_synced(&self) -> bool {
        let waiting = self.sync_waiters.take_all();
        if waiting.is_empty() {
            return false;
        }
        let synced = self.sync();
        tell(waiting, &synced);
        true
    }

    fn flush_round(&self) -> Result<Duration> {
        while self.flush_step()? {}
        Ok(TICK)
    }

    fn merge_round(&self) -> Result<Duration> {
        self.remove_some();
        while self.merge_step()? {}
        let scrub = self.scrub_some()?.unwrap_or(TICK);
        let removal = self.remove_some().unwrap_or(TICK);
        let now = self.clock.read().settled;
        let due = self
            .containers
            .all()
            .iter()
            .filter_map(|state| self.next_due(state))
            .min();
        let merge = due.map_or(TICK, |due| Duration::from_millis(due.since(now).max(1)));
        Ok(merge.min(removal).min(scrub).min(TICK))
    }

    /// Checks deadlines often enough to miss none, and rarely enough to cost nothing.
    fn hurry_round(&self) -> Result<Duration> {
        self.sweep_cache();
        self.hurry()?;
        let look = self.options.reclaim_within / 32;
        Ok(look.clamp(TICK / 4, Duration::from_secs(1)))
    }

    /// Maintains the log: drains it and prepares its next segment when a writer asks for that. Another thread syncs it,
    /// because a sync may wait for the device for long, and writers would do both themselves meanwhile.
    fn log_round(&self) -> Result<Duration> {
        let Some(log) = self.commit_log.begun() else {
            // The next writer begins the log, if there is room.
            return Ok(LOG_REST);
        };
        if log.wants_upkeep() {
            log.drain()?;
        }
        if log.wants_next() {
            // This failure does not fail the round: the writes so far have their room, and are still synced in time.
            self.note_outcome(NEXT_SEGMENT, &log.prepare_next());
        }
        Ok(LOG_REST)
    }

    /// Syncs the log once an interval. Returns the time until the next sync.
    fn sync_round(&self) -> Result<Duration> {
        let interval = self.options.sync_interval;
        let now = log_time(&self.options, &self.clock);
        let Some(log) = self.commit_log.begun() else {
            return Ok(interval.max(TICK));
        };
        let due = self.scheduler.sync_due();
        if now < due {
            return Ok(due - now);
        }
        // Under Sync, too, single batches may be Buffered.
        if log.synced() < log.end() {
            log.sync_to(log.end())?;
        }
        self.scheduler.set_sync_due(now + interval);
        Ok(interval)
    }

    /// Does one piece of background work; false when none is due. The log is maintained in any case.
    pub fn step(&self) -> Result<bool> {
        if self.scheduler.is_closing() {
            return Err(Error::Closed);
        }
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.sweep_cache();
        let kept = self.log_round().and_then(|_| self.sync_round());
        self.tell_synced();
        let flushed = self.flush_step();
        let done = matches!(flushed, Ok(true)) || self.merge_step()?;
        self.scrub_some()?;
        self.tell_listener_of_steps();
        if done { Ok(true) } else { kept.and(flushed) }
    }

    /// Drops expired records from the cache, in time: their bytes leave memory as they leave the disk.
    fn sweep_cache(&self) {
        if !self.cache.has_records() {
            return;
        }
        let now = self.clock.read().now;
        let interval = self.options.reclaim_within / 32;
        if self.cache.is_sweep_due(now, interval) {
            let states = self.containers.all();
            let views: BTreeMap<_, _> = states
                .iter()
                .map(|state| (state.id(), self.expiry_view(state)))
                .collect();
            self.cache.sweep(now, |container, header| {
                views.get(&container).is_none_or(|view| view.dead(header))
            });
        }
    }

    /// Frees memory that no memtable used for a while. A spare is freed under the commit lock, when no writer is between
    /// preparing it and inserting.
    fn trim_pool(&self) {
        if self.pool.trim(monotonic()) {
            let commit = self.commit_log.lock();
            let spare = self.pool.take_large_spare();
            drop(commit);
            drop(spare);
        }
    }

    /// Flushes a memtable that is full or that holds records that have been dead for long, or several small ones, or
    /// trims the log. A failure of one does not keep the others waiting.
    fn flush_step(&self) -> Result<bool> {
        self.trim_pool();
        self.revive_log()?;
        let states = self.containers.all();
        let is_due = |state: &&Arc<ContainerState>| {
            state.read_state().sealed.is_empty() && self.memory_is_due(state)
        };
        states
            .iter()
            .filter(is_due)
            .for_each(|state| self.seal_one(state));
        // Before the flushes: where writers are fast, there is always one more of these.
        let mut done = match self.trim_long_log() {
            Ok(true) => return Ok(true),
            other => other,
        };
        for group in self.flush_groups(&states) {
            match self.flush_group(&group) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                Err(full) if full.is_full() => match self.flush_front() {
                    Ok(false) => done = Err(full),
                    flushed => return flushed,
                },
                failed => done = failed,
            }
        }
        for rest in [Engine::free_log, Engine::trim_log] {
            match rest(self) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                failed => done = done.and(failed),
            }
        }
        done
    }
}
