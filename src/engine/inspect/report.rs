//! Statistics, and the description of a database in words.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Seq, Timestamp};
use crate::catalog::{ContainerVersion, Run, RunFacts};
use crate::compact::{Estimate, Estimator, deadline, explain};
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{Census, ExpiryView, Settings, SettingsChange, Tally};
use crate::values::stats::{ContainerStats, Stats};

impl Engine {
    /// Bytes of the block cache, including the overhead of entries.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Flips a bit of a key's newest record in the active memtable. False: it has none.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn flip_in_memory(&self, state: &ContainerState, key: &[u8], bit: usize) -> bool {
        state.read_state().active.memtable.flip(key, bit)
    }

    /// The statistics of a container; all zero when it was dropped.
    pub fn container_stats(&self, state: &ContainerState) -> ContainerStats {
        let read_state = state.pin();
        let expiry_views = self.expiry_views(state);
        let view = expiry_views.now;
        let estimate = estimate(&read_state, &view);
        let version = &read_state.version;
        // A leap of the wall clock that is not settled delays purges; that is not the budget's fault.
        let goals = self.goals();
        // So do the ended items that are kept for readers of expirations.
        let settled = expiry_views.settled.now.min(view.now);
        let settled = state.feeds().purge_horizon(settled);
        let (mut oldest_unreclaimed, mut overdue) = (None::<Timestamp>, 0);
        let mut note = |census: &Census, judged_up_to: Seq| {
            if let Some(expired) = census.oldest_dead(judged_up_to, &view) {
                oldest_unreclaimed =
                    Some(oldest_unreclaimed.map_or(expired, |oldest| oldest.min(expired)));
                let deadline = deadline(expired, census, &view, &goals);
                overdue = overdue.max(settled.since(deadline));
            }
        };
        let files = version.runs.iter().flat_map(|run| &run.files);
        for statistics in files.map(|file| file.table.statistics()) {
            note(&statistics.census, statistics.judged_up_to());
        }
        for flushable in read_state
            .flushables()
            .filter(|flushable| !flushable.memtable.is_empty())
        {
            note(&flushable.memtable.census(), Seq(0));
        }
        ContainerStats {
            live_items: estimate.live.count,
            live_bytes: estimate.live.bytes,
            expired_bytes: estimate.expired.bytes,
            superseded_bytes: estimate.superseded.bytes,
            tombstone_bytes: estimate.tombstones.bytes,
            stored_bytes: estimate.stored.bytes,
            disk_bytes: version.bytes(),
            memtable_bytes: read_state
                .flushables()
                .map(|flushable| flushable.memtable.bytes() as u64)
                .sum(),
            oldest_unreclaimed: oldest_unreclaimed.map(Timestamp::to_system_time),
            overdue: Duration::from_millis(overdue),
            runs: version.runs.len() as u64,
            tables: version.tables() as u64,
            range_deletes: read_state
                .range_deletes()
                .map(|ranges| ranges.len() as u64)
                .sum(),
            expire_commands: self
                .with_needed_commands(state, &state.whole_settings())
                .commands
                .iter()
                .len() as u64,
            quota: state.allowance().quota(),
            explain: self.explain(state, version, &view),
        }
    }

    /// The runs of a container, and how much of each of their tables is expired now.
    pub fn runs(&self, state: &ContainerState) -> Vec<(Arc<RunFacts>, Vec<Tally>)> {
        let (read_state, view) = (state.pin(), self.expiry_view(state));
        let expired = |run: &Run| {
            run.tables
                .iter()
                .map(|table| table.statistics.gone(&view))
                .collect()
        };
        let runs = read_state.version.runs.iter();
        runs.map(|run| (run.facts().clone(), expired(run)))
            .collect()
    }

    /// The sequence number of the last published write.
    pub fn last_seq(&self) -> Seq {
        self.commit_log.published()
    }

    /// The number that was drawn when the database was made; 0: unknown.
    pub fn identity(&self) -> u64 {
        self.catalog.database()
    }

    fn explain(
        &self,
        state: &ContainerState,
        version: &ContainerVersion,
        view: &ExpiryView,
    ) -> String {
        let facts = version.facts();
        let choice = self.choose(state, &facts, view);
        explain(&facts, &choice, view, &self.goals_of(state))
    }

    /// An estimate of the items that a change of the settings would end if it was made now.
    pub fn preview(&self, state: &ContainerState, change: SettingsChange) -> Tally {
        let (read_state, views) = (state.pin(), self.expiry_views(state));
        let next = self.commit_log.latest().next();
        let settings = views.now.settings.after(change, views.settled.now, next);
        let after = ExpiryView::at(views.now.now, || settings);
        let views = [views.now, after];
        let estimates = estimates(&read_state, &views);
        estimates[0].live.less(estimates[1].live)
    }

    /// How many commands would stand after a change of the settings that was made now.
    pub fn commands_after(&self, state: &ContainerState, change: SettingsChange) -> u64 {
        let settled = self.expiry_views(state).settled.now;
        let after = self.settings_after(state, change, settled);
        after.commands.iter().len() as u64
    }

    /// The settings after a change at this moment, without the commands that nothing needs.
    pub(in crate::engine) fn settings_after(
        &self,
        state: &ContainerState,
        change: SettingsChange,
        at: Timestamp,
    ) -> Settings {
        let after = state.whole_settings().after(change, at, Seq::MAX);
        self.with_needed_commands(state, &after)
    }

    fn with_needed_commands(&self, state: &ContainerState, settings: &Settings) -> Settings {
        state.needed_of(settings, self.snapshots.oldest())
    }

    /// An estimate of how many items of a container are readable.
    pub fn len_estimate(&self, state: &ContainerState) -> u64 {
        estimate(&state.pin(), &self.expiry_view(state)).live.count
    }

    /// The statistics of the database.
    pub fn stats(&self) -> Stats {
        let states = self.containers.all();
        let containers: Vec<ContainerStats> = states
            .iter()
            .map(|state| self.container_stats(state))
            .collect();
        let sum = |field: fn(&ContainerStats) -> u64| containers.iter().map(field).sum::<u64>();
        let log_bytes = self.log_bytes();
        let manifest_bytes = self.catalog.bytes();
        let table_bytes = sum(|container| container.disk_bytes);
        let counters = &self.counters;
        let (stalls, syncs) = (self.stalls(), self.syncs());
        Stats {
            live_items: sum(|container| container.live_items),
            live_bytes: sum(|container| container.live_bytes),
            expired_bytes: sum(|container| container.expired_bytes),
            superseded_bytes: sum(|container| container.superseded_bytes),
            tombstone_bytes: sum(|container| container.tombstone_bytes),
            stored_bytes: sum(|container| container.stored_bytes),
            disk_bytes: table_bytes + self.obsolete.pins().bytes() + log_bytes + manifest_bytes,
            log_bytes,
            table_bytes,
            pinned_bytes: self.obsolete.pins().bytes(),
            memtable_bytes: sum(|container| container.memtable_bytes),
            pinned_memtable_bytes: self.pool.pinned() as u64,
            oldest_unreclaimed: containers
                .iter()
                .filter_map(|container| container.oldest_unreclaimed)
                .min(),
            overdue: containers
                .iter()
                .map(|container| container.overdue)
                .max()
                .unwrap_or_default(),
            containers: containers.len() as u64,
            runs: sum(|container| container.runs),
            tables: sum(|container| container.tables),
            snapshots: self.snapshots.count() as u64,
            bytes_put: counters.bytes_put.get(),
            bytes_logged: self.logged_up_to(),
            bytes_flushed: counters.bytes_flushed.get(),
            bytes_merged: counters.bytes_merged.get(),
            bytes_dropped: counters.bytes_dropped.get(),
            bytes_scrubbed: counters.bytes_scrubbed.get(),
            damage: self.damage(),
            reclaim_lag: self.counters.reclaim_lag(),
            flushes: counters.flushes.get(),
            merges: counters.merges.get(),
            stalls: stalls.count,
            stall_time: stalls.time,
            syncs: syncs.count,
            sync_time: syncs.time,
            expired_misses: counters.expired_misses.get(),
            background_error: self.scheduler.failure(),
        }
    }

    /// The position up to which the chain is written, or was read beside the process that writes it.
    fn logged_up_to(&self) -> u64 {
        match &self.follower {
            Some(follower) => follower.stand().place.map_or(0, |place| place.position.0),
            None => self.commit_log.log().map_or(0, |log| log.end().0),
        }
    }

    /// Bytes in the log's folder: segments, those kept for reuse, and the ring.
    fn log_bytes(&self) -> u64 {
        let dir = self.wal_dir();
        let names = self.fs.list(&dir).unwrap_or_default();
        // A file may be removed between the two calls; then it counts as 0.
        names
            .iter()
            .filter_map(|name| self.fs.allocated(&dir.join(name)).ok())
            .sum()
    }

    /// The memtables, runs and tables of every container, a line each; times are relative to now.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for state in self.containers.all() {
            let (read_state, view) = (state.pin(), self.expiry_view(&state));
            let _ = writeln!(out, "{} {:?}", state.name(), state.settings().default);
            for (at, flushable) in read_state
                .flushables()
                .enumerate()
                .filter(|(_, flushable)| !flushable.memtable.is_empty())
            {
                let kind = if at == 0 { "active" } else { "sealed" };
                let _ = writeln!(out, "  {kind}: {} records", flushable.memtable.len());
            }
            for run in &read_state.version.runs {
                let census = &run.census;
                let end = match run.end {
                    Timestamp::MAX => "never".to_owned(),
                    end => format!("{} ms", end.0 as i128 - i128::from(view.now.0)),
                };
                let (records, tables) = (census.total().count, run.files.len());
                let _ = writeln!(
                    out,
                    "  run: {records} records ({} tombstones) in {tables} tables, numbers {}..{}, ends {end}",
                    census.tombstones.count, census.seq_min.0, census.seq_max.0
                );
            }
            for range in read_state.version.range_deletes.iter() {
                let _ = writeln!(out, "  range delete at {}", range.seq.0);
            }
        }
        out
    }
}

/// Splits stored bytes into live and reclaimable, from the statistics of tables and memtables alone.
pub(in crate::engine) fn estimate(read_state: &ReadState, view: &ExpiryView) -> Estimate {
    let mut estimates = estimates(read_state, std::slice::from_ref(view));
    estimates.remove(0)
}

/// The same in several views, of which each has expired all that the one before has.
pub(in crate::engine) fn estimates(read_state: &ReadState, views: &[ExpiryView]) -> Vec<Estimate> {
    estimated(read_state, views, |estimator| estimator.finish())
}

/// The same for each run of its version.
pub(in crate::engine) fn estimate_runs(read_state: &ReadState, view: &ExpiryView) -> Vec<Estimate> {
    let views = std::slice::from_ref(view);
    let runs = estimated(read_state, views, |estimator| estimator.finish_runs());
    runs.into_iter().flatten().collect()
}

fn estimated<T>(
    read_state: &ReadState,
    views: &[ExpiryView],
    finish: impl FnOnce(Estimator<'_>) -> T,
) -> T {
    let ranges: Vec<_> = read_state.range_deletes().cloned().collect();
    let mut estimator = Estimator::new(views, &ranges);
    for flushable in read_state.flushables() {
        estimator.add_memtable(&flushable.memtable);
    }
    for run in &read_state.version.runs {
        let tables = run.tables.iter().map(|table| table.statistics.as_ref());
        estimator.add_run(tables, run.applied);
    }
    finish(estimator)
}
