//! Whether a writer may write now, and how long it waits for that: it is slowed down, or stopped, when flushing and merging
//! cannot follow. Under the commit lock nobody waits for this.

use std::time::Duration;

use crate::base::spans::Span;
use crate::base::{Error, Patience, Result, spans};
use crate::compact::pace::{WriteThrottle, write_throttle};
use crate::engine::Engine;
use crate::engine::options::{Background, Stall};
use crate::engine::parts::counters::Counters;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::env::{monotonic, sleep};

impl Engine {
    /// Throttles or stalls a writer of this many bytes when flushing falls behind.
    #[inline]
    pub(in crate::engine) fn admit<P: Patience>(
        &self,
        state: &ContainerState,
        bytes: u64,
    ) -> Result<(), P::Failure> {
        self.check_writable()?;
        P::require(|| self.commit_log.begun().is_some())?;
        self.begin_log()?;
        state.check()?;
        match self.throttle_of(state) {
            WriteThrottle::Go => Ok(()),
            _ => {
                P::would_wait()?;
                Ok(self.admit_slowly(state, bytes)?)
            }
        }
    }

    #[cold]
    fn admit_slowly(&self, state: &ContainerState, bytes: u64) -> Result<()> {
        let mut stalled: Option<Stopped<'_>> = None;
        loop {
            match self.throttle_of(state) {
                WriteThrottle::Go => return Ok(()),
                WriteThrottle::Slow(for_a_kib) => {
                    self.rest(for_a_kib.mul_f64(bytes.div_ceil(1 << 10).max(1) as f64));
                    return Ok(());
                }
                WriteThrottle::Stop if self.options.on_stall == Stall::Fail => {
                    return Err(Error::Stalled);
                }
                WriteThrottle::Stop => {
                    let rounds = self.scheduler.flush_rounds();
                    let begin = || Stopped::begin(&self.counters, state.name(), rounds);
                    let rounds = stalled.get_or_insert_with(begin).rounds;
                    self.wait_for_room(rounds)?;
                }
            }
        }
    }

    /// The throttle of a writer to this container, as of now.
    #[inline]
    pub(in crate::engine) fn throttle_of(&self, state: &ContainerState) -> WriteThrottle {
        let (budget, max_runs) = (self.options.memtable_bytes, self.options.max_runs);
        write_throttle(self.throttle.unflushed(), budget, state.runs(), max_runs)
    }

    /// Makes a writer sleep for so long, or leaves the time to a later writer.
    fn rest(&self, time: Duration) {
        let Some(rest) = self.throttle.add_throttle_debt(time) else {
            return;
        };
        self.counters.stalls.begin();
        if self.options.background == Background::Threads {
            self.scheduler.wake(Thread::Merge);
            sleep(rest);
            self.counters.stalls.end(rest);
        }
    }

    /// Waits for a flush. If a round of flushes fails that is not of the first `begun`, the writer gets its error, because
    /// on a full disk it would wait for ever.
    fn wait_for_room(&self, begun: u64) -> Result<()> {
        if self.options.background == Background::Stepped {
            self.flush()?;
        } else {
            self.scheduler.wake(Thread::Flush);
            sleep(Duration::from_millis(1));
            if let Some(error) = self.scheduler.flush_failure_after(begun) {
                return Err(error);
            }
        }
        self.check_writable()
    }
}

/// A writer that is stopped, until this is dropped.
struct Stopped<'a> {
    counters: &'a Counters,
    since: Duration,
    /// How many rounds of flushes had begun.
    rounds: u64,
    _span: Span,
}

impl Stopped<'_> {
    fn begin<'a>(counters: &'a Counters, container: &str, rounds: u64) -> Stopped<'a> {
        counters.stalls.begin();
        Stopped {
            counters,
            since: monotonic(),
            rounds,
            _span: spans::stall(container),
        }
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let time = monotonic().saturating_sub(self.since);
        self.counters.stalls.end(time);
    }
}
