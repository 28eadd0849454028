//! Background work gives way: the budget's readings and waits, and tables that go a few at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result};
use crate::catalog::Run;
use crate::compact::pace::{Moved, disk_pressure, run_pressure};
use crate::engine::Engine;
use crate::engine::options::Background;
use crate::engine::scheduler::Thread;
use crate::env::{DeviceReads, give_way, sleep};

/// A budget's wait is slept in pieces of this length, so that neither closing nor another rate need wait for it.
const NAP: Duration = Duration::from_millis(20);

impl Engine {
    /// To be called by merging and reclaiming, after every 64 KiB that they wrote and every few thousand records that
    /// they read: waits as long as the budget says. `pressure`, from 0 to 1, says how near the deadline is for which
    /// the work is done. Ends the job with [`Error::Closed`] when the database closes, or when another thread waits to do
    /// what is due.
    pub(super) fn pace(&self, mut bytes: u64, pressure: f64) -> Result<()> {
        if self.options.background == Background::Stepped {
            return Ok(());
        }
        loop {
            if self.scheduler.is_closing() || self.scheduler.gives_up() {
                return Err(Error::Closed);
            }
            let next = self.throttle.take(bytes, pressure);
            bytes = 0;
            self.remove_some();
            if next.readings {
                self.note_moved();
                // What has fallen due meanwhile may be more urgent.
                self.scheduler.wake(Thread::Merge);
            }
            if next.disk {
                self.note_disk();
            }
            if next.wait.is_zero() {
                return Ok(());
            }
            sleep(next.wait.min(NAP));
        }
    }

    /// To be called by flushes now and then: as long as the next memtable is less than half full, nobody waits for them,
    /// and threads of the user go first.
    pub(super) fn flush_calmly(&self) {
        let ahead = self.throttle.unflushed() < self.options.memtable_bytes / 2 * 3;
        if ahead {
            give_way();
        }
    }

    fn note_moved(&self) {
        let reads = DeviceReads::now();
        let logged = self.commit_log.log().map_or(0, |log| log.end().0);
        let moved = Moved {
            written_first: logged + self.counters.bytes_flushed.get(),
            read: reads.process,
            read_here: reads.here,
            thread: reads.thread,
        };
        let states = self.containers.all();
        let runs = states
            .iter()
            .map(|state| state.read_state().version.runs.len());
        let pressure = run_pressure(runs.max().unwrap_or(0), self.options.max_runs);
        self.throttle.note_moved(moved, pressure);
    }

    fn note_disk(&self) {
        let pressure = self.disk_pressure();
        self.throttle.note_disk(pressure);
    }

    /// From 0 to 1, how full the disk is; see [`crate::compact::pace::disk_pressure`].
    pub(super) fn disk_pressure(&self) -> f64 {
        // A file system that does not say how full it is presses nobody.
        let room = self.fs.room(&self.path);
        room.map_or(0.0, |room| disk_pressure(room.free, room.total))
    }

    /// Changes the cap of background work.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.throttle.set_rate(bytes_per_second);
    }

    /// Changes what background work may do at the least.
    pub fn set_background_floor(&self, bytes_per_second: u64) {
        self.throttle.set_floor(bytes_per_second);
    }

    /// The catalogue no longer names these runs: their files go, soon, but those that `kept` holds too.
    pub(super) fn remove_runs_but(&self, runs: &[Arc<Run>], kept: &[Arc<Run>]) {
        self.obsolete.push_runs_but(runs, kept);
        if self.options.background == Background::Stepped {
            self.obsolete.remove_all();
        } else {
            self.scheduler.wake(Thread::Merge);
        }
    }

    /// Removes some of the tables that no version names, once a window; says when the next ones are to go.
    pub(super) fn remove_some(&self) -> Option<Duration> {
        self.obsolete.remove_some(|| self.disk_pressure() > 0.0)
    }
}
