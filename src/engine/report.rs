//! The database in numbers and in words.

use std::fmt::Write;

use crate::compact::{
    Estimate, Estimator, Sample, expired_in_run, oldest_dead, oldest_dead_in_run,
};
use crate::counters::{ContainerStats, Stats};
use crate::engine::core::Engine;
use crate::engine::state::{ContainerState, Picture};
use crate::expiry::Judge;
use crate::hash::hash_key;
use crate::merge::{Cursor, Position, Seek};
use crate::types::{Seq, Timestamp};
use crate::version::RangeDelete;

impl Engine {
    /// A container in numbers; all zero when it was dropped.
    pub fn container_stats(&self, state: &ContainerState) -> ContainerStats {
        let picture = state.pin();
        let judge = self.judge(state);
        let estimate = estimate(&picture, &judge);
        let version = &picture.version;
        let in_runs = version
            .runs
            .iter()
            .filter_map(|run| oldest_dead_in_run(run, &judge));
        let in_memory = picture
            .buffers()
            .filter(|buffer| !buffer.memtable.is_empty())
            .filter_map(|buffer| oldest_dead(&buffer.memtable.census(), Seq(0), &judge));
        let oldest_unreclaimed = in_runs
            .chain(in_memory)
            .min()
            .map(Timestamp::to_system_time);
        ContainerStats {
            live_items: estimate.live_items.round() as u64,
            live_bytes: estimate.live_bytes.round() as u64,
            expired_bytes: version
                .runs
                .iter()
                .map(|run| expired_in_run(run, &judge))
                .sum(),
            superseded_bytes: estimate.superseded_bytes.round() as u64,
            disk_bytes: version.bytes(),
            memtable_bytes: picture
                .buffers()
                .map(|buffer| buffer.memtable.bytes() as u64)
                .sum(),
            oldest_unreclaimed,
            runs: version.runs.len() as u64,
            tables: version.tables() as u64,
            range_deletes: (version.range_deletes.len()
                + picture
                    .buffers()
                    .map(|buffer| buffer.memtable.range_deletes().len())
                    .sum::<usize>()) as u64,
        }
    }

    /// The database in numbers.
    pub fn stats(&self) -> Stats {
        let states = self.all_states();
        let containers: Vec<ContainerStats> = states
            .iter()
            .map(|state| self.container_stats(state))
            .collect();
        let sum = |field: fn(&ContainerStats) -> u64| containers.iter().map(field).sum::<u64>();
        let log_bytes = self.log_bytes();
        let manifest_bytes = self
            .manifest
            .lock()
            .as_ref()
            .map_or(0, |manifest| manifest.len());
        let table_bytes = sum(|container| container.disk_bytes);
        let counters = &self.counters;
        Stats {
            live_items: sum(|container| container.live_items),
            live_bytes: sum(|container| container.live_bytes),
            expired_bytes: sum(|container| container.expired_bytes),
            superseded_bytes: sum(|container| container.superseded_bytes),
            disk_bytes: table_bytes + self.pins.bytes() + log_bytes + manifest_bytes,
            log_bytes,
            table_bytes,
            pinned_bytes: self.pins.bytes(),
            memtable_bytes: sum(|container| container.memtable_bytes),
            oldest_unreclaimed: containers
                .iter()
                .filter_map(|container| container.oldest_unreclaimed)
                .min(),
            containers: containers.len() as u64,
            runs: sum(|container| container.runs),
            tables: sum(|container| container.tables),
            snapshots: self.snapshots.count() as u64,
            bytes_put: counters.bytes_put.get(),
            bytes_logged: self.log().map_or(0, |log| log.end().0),
            bytes_flushed: counters.bytes_flushed.get(),
            bytes_merged: counters.bytes_merged.get(),
            bytes_dropped: counters.bytes_dropped.get(),
            flushes: counters.flushes.get(),
            merges: counters.merges.get(),
            stalls: counters.stalls.get(),
        }
    }

    /// What the log's folder takes: segments, those kept for use again, and the ring.
    fn log_bytes(&self) -> u64 {
        let dir = self.wal_dir();
        let names = self.fs.list(&dir).unwrap_or_default();
        // A file may go between the two calls; then it takes nothing.
        names
            .iter()
            .filter_map(|name| self.fs.allocated(&dir.join(name)).ok())
            .sum()
    }

    /// Every container's memtables, runs and tables, a line each; times count from now.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        for state in self.all_states() {
            let (picture, judge) = (state.pin(), self.judge(&state));
            let _ = writeln!(out, "{} {:?}", state.name(), state.settings().default);
            for (at, buffer) in picture
                .buffers()
                .enumerate()
                .filter(|(_, buffer)| !buffer.memtable.is_empty())
            {
                let kind = if at == 0 { "active" } else { "sealed" };
                let _ = writeln!(out, "  {kind}: {} records", buffer.memtable.len());
            }
            for run in &picture.version.runs {
                let census = &run.census;
                let end = match run.end {
                    Timestamp::MAX => "never".to_owned(),
                    end => format!("{} ms", end.0 as i128 - i128::from(judge.now.0)),
                };
                let (records, tables) = (census.total().count, run.tables.len());
                let _ = writeln!(
                    out,
                    "  run: {records} records ({} tombstones) in {tables} tables, numbers {}..{}, ends {end}",
                    census.tombstones.count, census.seq_min.0, census.seq_max.0
                );
            }
            for range in picture.version.range_deletes.iter() {
                let _ = writeln!(out, "  range delete at {}", range.seq.0);
            }
        }
        out
    }
}

/// What can be read of a container: memtables are walked, runs answer from their samples.
fn estimate(picture: &Picture, judge: &Judge) -> Estimate {
    let sample = Sample::of(&picture.version);
    let mut estimator = Estimator::new(&sample, judge);
    for buffer in picture.buffers() {
        let mut cursor = buffer.memtable.cursor();
        // A memtable's cursor reads no file, so it cannot fail.
        let _ = cursor.seek(Seek::First, None);
        while let Position::Record(head) = cursor.position() {
            let covered_below = picture.covered_below(head.key, Seq::MAX);
            estimator.add(
                hash_key(head.key),
                &head.header,
                head.weight(),
                covered_below,
            );
            let _ = cursor.advance(None);
        }
    }
    let ranges = picture.range_deletes();
    for table in picture
        .version
        .runs
        .iter()
        .flat_map(|run| run.shared.iter())
    {
        let covers =
            |range: &&RangeDelete| range.range().covers(table.first_key(), table.last_key());
        let covered = ranges.iter().filter(covers).map(|range| range.seq).max();
        estimator.add_table(table, covered.unwrap_or_default());
    }
    estimator.finish()
}
