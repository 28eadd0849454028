//! What happens behind the writers' backs: flushing, merging, reclaiming, syncing, trimming the log.
//!
//! Each is one function that does one piece of work on the calling thread; threads call them in a loop, and so does a
//! test, step by step. A job pins a picture, then reads the clock, then the settings, then the open snapshots; every
//! record is judged by these. Its result is installed by one edit of the catalogue, which carries the mark.

use std::sync::Arc;
use std::time::Duration;

use crate::compact::{oldest_dead, start_by};
use crate::engine::core::{Engine, FLUSH, HURRY, LOG, MERGE};
use crate::engine::state::{Buffer, ContainerState};
use crate::env::{JoinHandle, Priority, Signal, monotonic, set_priority, spawn};
use crate::error::{Error, Result};
use crate::expiry::Judge;
use crate::options::Durability;
use crate::sync::atomic::Ordering;
use crate::types::Seq;

/// The longest that a thread waits before it looks again: a clock may be moved, and nobody says so.
const TICK: Duration = Duration::from_millis(200);

/// After a failure, the wait before the next try; it doubles with every further one.
const RETRY: Duration = Duration::from_secs(1);

/// The longest such wait.
const RETRY_MOST: Duration = Duration::from_secs(8);

impl Engine {
    pub(super) fn start_threads(engine: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>> {
        let mut threads = vec![
            Engine::start_loop(
                engine,
                FLUSH,
                &engine.flush_signal,
                Priority::Low,
                Engine::flush_round,
            )?,
            Engine::start_loop(
                engine,
                MERGE,
                &engine.merge_signal,
                Priority::Lowest,
                Engine::merge_round,
            )?,
        ];
        threads.push(Engine::start_loop(
            engine,
            LOG,
            &engine.sync_signal,
            Priority::Usual,
            Engine::log_round,
        )?);
        threads.push(Engine::start_loop(
            engine,
            HURRY,
            &engine.hurry_signal,
            Priority::Low,
            Engine::hurry_round,
        )?);
        Ok(threads)
    }

    /// A thread that does a round of work, waits as long as the round said or until it is called, and so on until the
    /// database closes. It holds the engine only while it works, so that a database that is merely forgotten goes too.
    fn start_loop(
        engine: &Arc<Engine>,
        name: &'static str,
        signal: &Arc<Signal>,
        priority: Priority,
        round: fn(&Engine) -> Result<Duration>,
    ) -> Result<JoinHandle<()>> {
        let (engine, signal) = (Arc::downgrade(engine), signal.clone());
        spawn(name, move || {
            set_priority(priority);
            let mut retry = RETRY;
            while let Some(engine) = engine.upgrade() {
                if engine.closing.load(Ordering::Acquire) {
                    return;
                }
                let wait = match round(&engine) {
                    Ok(wait) => {
                        engine.background_errors.lock().remove(name);
                        retry = RETRY;
                        wait
                    }
                    Err(error) => {
                        engine.note_failure(name, error);
                        let wait = retry;
                        retry = (retry * 2).min(RETRY_MOST);
                        wait
                    }
                };
                // A round may have heard the call that was meant to end the wait.
                if engine.closing.load(Ordering::Acquire) {
                    return;
                }
                drop(engine);
                signal.wait(wait);
            }
        })
    }

    fn flush_round(&self) -> Result<Duration> {
        loop {
            match self.flush_step() {
                Ok(true) => {}
                Ok(false) => return Ok(TICK),
                Err(error) => {
                    let mut failed = self.failed_flushes.lock();
                    *failed = (failed.0 + 1, Some(error.clone()));
                    return Err(error);
                }
            }
        }
    }

    fn merge_round(&self) -> Result<Duration> {
        self.remove_some();
        while self.merge_step()? {}
        let scrub = self.scrub_some()?.unwrap_or(TICK);
        let removal = self.remove_some().unwrap_or(TICK);
        let now = self.clock.read().settled;
        let due = self
            .all_states()
            .iter()
            .filter_map(|state| self.next_due(state))
            .min();
        let merge = due.map_or(TICK, |due| Duration::from_millis(due.since(now).max(1)));
        Ok(merge.min(removal).min(scrub).min(TICK))
    }

    /// Looks whether a deadline is near more often than it takes to miss one, but not so often that it costs anything.
    fn hurry_round(&self) -> Result<Duration> {
        self.hurry()?;
        let look = self.options.reclaim_within / 32;
        Ok(look.clamp(TICK / 4, Duration::from_secs(1)))
    }

    /// Syncs the log once an interval; when writers ask for it, drains the log and prepares its next segment.
    fn log_round(&self) -> Result<Duration> {
        let log = self.log()?;
        let interval = self.options.sync_interval;
        let started = monotonic();
        let mut left = interval;
        while !left.is_zero() && !self.closing.load(Ordering::Acquire) {
            if log.wants_upkeep() {
                log.drain()?;
                log.prepare_next()?;
            }
            self.sync_signal.wait(left);
            left = interval.saturating_sub(monotonic().saturating_sub(started));
        }
        if self.options.durability == Durability::Buffered && log.synced() < log.end() {
            log.sync_to(log.end())?;
        }
        Ok(Duration::ZERO)
    }

    /// One piece of background work; false when none is due.
    pub fn step(&self) -> Result<bool> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let flushed = self.flush_step();
        let done = matches!(flushed, Ok(true)) || self.merge_step()?;
        self.scrub_some()?;
        if done { Ok(true) } else { flushed }
    }

    /// Flushes a memtable that is full or holds what is long dead, or some small ones, or trims the log. What fails does
    /// not keep the rest waiting.
    fn flush_step(&self) -> Result<bool> {
        self.pool.trim(monotonic());
        self.revive_log()?;
        let states = self.all_states();
        let is_due = |state: &&Arc<ContainerState>| {
            state.picture().sealed.is_empty() && self.memory_is_due(state)
        };
        states
            .iter()
            .filter(is_due)
            .for_each(|state| self.seal_one(state));
        let mut done = Ok(false);
        for group in self.flush_groups(&states) {
            match self.flush_group(&group) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                failed => done = failed,
            }
        }
        match self.trim_log() {
            Ok(false) => done,
            trimmed => trimmed,
        }
    }

    /// The active memtable holds something that has been dead for so long that it is time to let it go.
    fn memory_is_due(&self, state: &ContainerState) -> bool {
        let picture = state.picture();
        if picture.active.memtable.is_empty() {
            return false;
        }
        self.is_due(&picture.active, &self.judge_settled(state))
    }

    /// The same of any memtable.
    pub(super) fn is_due(&self, buffer: &Buffer, judge: &Judge) -> bool {
        let census = buffer.memtable.census();
        oldest_dead(&census, Seq(0), judge)
            .is_some_and(|expiry| start_by(expiry, &census, judge, &self.goals()) <= judge.now)
    }

    pub(super) fn seal_one(&self, state: &ContainerState) {
        let mut turn = self.turn.lock();
        self.seal(&mut turn, state);
    }

    /// Writes what is in memory to tables.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.revive_log()?;
        let states = self.all_states();
        {
            let mut turn = self.turn.lock();
            states.iter().for_each(|state| self.seal(&mut turn, state));
        }
        let mut done = Ok(());
        for group in self.flush_groups(&states) {
            let flushed = loop {
                match self.flush_group(&group) {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            done = done.and(flushed);
        }
        done
    }
}
