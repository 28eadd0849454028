//! Background work gives way: the budget's readings and waits, and tables that go a few at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result, TableId};
use crate::catalog::{Placed, Run};
use crate::compact::pace::{Moved, disk_pressure, run_pressure};
use crate::engine::core::Engine;
use crate::engine::options::Background;
use crate::engine::retired::Leaving;
use crate::env::{DeviceReads, give_way, monotonic, sleep};

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
            if self.closing.load(Ordering::Acquire) || self.gives_up() {
                return Err(Error::Closed);
            }
            let next = self.budget.lock().take(bytes, pressure, monotonic());
            bytes = 0;
            self.remove_some();
            if next.readings {
                self.note_moved();
                // What has fallen due meanwhile may be more urgent.
                self.merge_signal.notify();
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
        let ahead = self.unflushed.load(Ordering::Relaxed) < self.options.memtable_bytes / 2 * 3;
        if ahead {
            give_way();
        }
    }

    fn note_moved(&self) {
        let reads = DeviceReads::now();
        let logged = self.log().map_or(0, |log| log.end().0);
        let moved = Moved {
            written_first: logged + self.counters.bytes_flushed.get(),
            read: reads.process,
            read_here: reads.here,
            thread: reads.thread,
        };
        let states = self.all_states();
        let runs = states
            .iter()
            .map(|state| state.picture().version.runs.len());
        let pressure = run_pressure(runs.max().unwrap_or(0), self.options.max_runs);
        self.budget.lock().note_moved(moved, pressure, monotonic());
    }

    fn note_disk(&self) {
        let pressure = self.disk_pressure();
        self.budget.lock().note_disk(pressure, monotonic());
    }

    /// From 0 to 1, how full the disk is; see [`crate::compact::pace::disk_pressure`].
    pub(super) fn disk_pressure(&self) -> f64 {
        // A file system that does not say how full it is presses nobody.
        let room = self.fs.room(&self.path);
        room.map_or(0.0, |room| disk_pressure(room.free, room.total))
    }

    /// Changes the cap of background work.
    pub fn set_background_rate(&self, bytes_per_second: u64) {
        self.budget.lock().set_cap(bytes_per_second, monotonic());
    }

    /// Changes what background work may do at the least.
    pub fn set_background_floor(&self, bytes_per_second: u64) {
        self.budget.lock().set_floor(bytes_per_second, monotonic());
    }

    /// The catalogue no longer names these runs: their files go, soon, but those that `kept` holds too.
    pub(super) fn remove_runs_but(&self, runs: &[Arc<Run>], kept: &[Arc<Run>]) {
        let kept: Vec<TableId> = kept
            .iter()
            .flat_map(|run| &run.files)
            .map(|placed| placed.record.id)
            .collect();
        let tables = runs.iter().flat_map(|run| &run.files);
        let gone: Vec<&Placed> = tables
            .filter(|placed| !kept.contains(&placed.record.id))
            .collect();
        gone.iter().for_each(|placed| placed.retire());
        self.retired.lock().push(gone.into_iter().cloned());
        if self.options.background == Background::Stepped {
            self.remove_retired();
        } else {
            self.merge_signal.notify();
        }
    }

    /// What fails here is only left behind: the next open removes it.
    fn unlink(&self, placed: &Placed) {
        let _ = placed.remove(self.fs.as_ref(), &self.tables_dir());
    }

    /// Removes some of the tables that no version names, once a window; says when the next ones are to go.
    pub(super) fn remove_some(&self) -> Option<Duration> {
        let now = monotonic();
        if self.retired.lock().is_due(now) {
            let room_is_wanted = self.disk_pressure() > 0.0;
            let Leaving { mut named, unnamed } = self.retired.lock().next(room_is_wanted, now);
            drop(unnamed);
            named.iter().for_each(|placed| self.unlink(placed));
            let used: Vec<Placed> = named.extract_if(.., |placed| placed.is_in_use()).collect();
            drop(named);
            self.retired.lock().let_linger(used);
        }
        self.retired.lock().due_in(monotonic())
    }

    /// Removes all of them.
    pub(super) fn remove_retired(&self) {
        let leaving = self.retired.lock().take();
        leaving.named.iter().for_each(|placed| self.unlink(placed));
    }
}
