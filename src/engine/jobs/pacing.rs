//! Pacing: reads and waits for the budget of background work, and removes obsolete tables a few at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result};
use crate::catalog::Run;
use crate::compact::pace::{Moved, disk_pressure, run_pressure};
use crate::engine::Engine;
use crate::engine::options::Background;
use crate::engine::parts::scheduler::Thread;
use crate::env::{DeviceReads, Priority, give_way, priority, sleep};

/// A wait for the budget is slept in pieces of this length, so that closing and a change of the rate take effect soon.
const NAP: Duration = Duration::from_millis(20);

impl Engine {
    /// Called by merging and reclaiming after every 64 KiB they write and every few thousand records they read: waits
    /// as long as the budget says. `pressure`, from 0 to 1, says how near the deadline of the work is. Ends the job
    /// with [`Error::Closed`] when the database closes, or when the hurry thread waits to take its place.
    pub(in crate::engine) fn pace(&self, mut bytes: u64, pressure: f64) -> Result<()> {
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
                // More urgent work may have become due.
                self.scheduler.wake(Thread::Merge);
            }
            if next.disk {
                self.note_disk();
            }
            if next.wait.is_zero() {
                // On a busy processor it has some tenths of a millisecond at a time then, instead of a slice and a tick.
                // Work that must not wait is not on a thread of this priority.
                if priority() == Priority::Lowest {
                    give_way();
                }
                return Ok(());
            }
            sleep(next.wait.min(NAP));
        }
    }

    /// Called by flushes now and then: while the next memtable is less than half full, nobody waits for the flush, so
    /// it lets the user's threads run first.
    pub(in crate::engine) fn flush_calmly(&self) {
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
    pub(in crate::engine) fn disk_pressure(&self) -> f64 {
        // A file system that does not report how full it is causes no pressure.
        let room = self.fs.room(&self.path);
        room.map_or(0.0, |room| disk_pressure(room.free, room.total))
    }

    /// Changes the cap of background work.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.throttle.set_rate(bytes_per_second);
    }

    /// Changes the least rate of background work.
    pub fn set_background_floor(&self, bytes_per_second: u64) {
        self.throttle.set_floor(bytes_per_second);
    }

    /// Hands over the tables of runs that the catalogue no longer names to be removed, except for those that `kept`
    /// holds too.
    pub(in crate::engine) fn remove_runs_but(&self, runs: &[Arc<Run>], kept: &[Arc<Run>]) {
        self.obsolete.push_runs_but(runs, kept, self.clock.now());
        if self.options.background == Background::Stepped {
            self.obsolete.remove_all();
        } else {
            self.scheduler.wake(Thread::Merge);
        }
    }

    /// Removes some of the tables that no version names, once a window; returns when the next ones are due.
    pub(in crate::engine) fn remove_some(&self) -> Option<Duration> {
        self.obsolete.remove_some(|| self.disk_pressure() > 0.0)
    }
}
