//! One job: its view, its run, its pace.
//!
//! A job pins a read state, then reads the clock, then the settings, then the list of open snapshots, and judges every
//! record by these. One edit of the catalogue, which carries the mark, installs its result.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::base::{Result, Seq, TableId, Timestamp, file_name};
use crate::compact::{Host, Job, Output, Urgency, guards, oversized, run};
use crate::data::cursor::Cursor;
use crate::data::merge::Merge;
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::env::{File, monotonic};
use crate::expiry::ExpiryView;
use crate::mem::RangeDeletes;
use crate::table::TableOptions;
use crate::values::stats::ReclaimLag;

impl Engine {
    /// Records how long the records that a job dropped had been expired, now that its result is installed.
    pub(in crate::engine) fn note_lag(&self, lag: &ReclaimLag, view: &ExpiryView) {
        let since_then = match self.purge_time() {
            Some(now) if view.now > Timestamp(0) => now.since(view.now),
            _ => 0,
        };
        self.counters.note_reclaimed(lag, since_then);
    }

    pub(in crate::engine) fn job(
        &self,
        state: &ContainerState,
        read_state: &ReadState,
        tables: &BTreeSet<TableId>,
        spec: &JobSpec,
    ) -> Job {
        let facts = read_state.version.facts();
        let inputs: Vec<TableId> = tables.iter().copied().collect();
        let other_runs = read_state.version.runs.iter();
        let bytes = facts.bytes();
        Job {
            container: state.id(),
            view: spec.view.clone(),
            snapshots: self.snapshots.list(),
            other_runs: other_runs
                .filter_map(|run| match run.holds_any(tables) {
                    false => Some(run.clone()),
                    true => run.without(run.id, &inputs).map(Arc::new),
                })
                .collect(),
            range_deletes: spec.range_deletes.clone(),
            must_sample: Arc::new(oversized(&facts)),
            guards: guards(&facts, bytes.div_ceil(self.max_transient_bytes(bytes))),
            least_table_bytes: self.options.memtable_bytes as u64 / LEAST_TABLE,
            cuts: spec.cuts.clone(),
            options: TableOptions {
                block_bytes: self.options.block_bytes,
                compression: state.compression(),
            },
            // Small enough for a rewrite to go part by part before there are guards to cut at.
            table_bytes: self
                .options
                .table_bytes
                .min(self.max_transient_bytes(bytes) / 2),
            inputs,
        }
    }

    /// Returns the outputs, how long the dropped records had been expired when they were judged, and the highest sequence
    /// number of a delete or an end that was left out.
    pub(in crate::engine) fn run_job<C: Cursor>(
        &self,
        job: &Job,
        sources: Merge<C>,
        purpose: Purpose,
    ) -> Result<(Vec<Output>, ReclaimLag, Seq)> {
        let mut host = Writer {
            engine: self,
            purpose,
            created: vec![],
            lag: ReclaimLag::default(),
            forgotten: Seq(0),
        };
        let done = run(job, sources, &mut host).and_then(|outputs| {
            // Flushes sync the names of several jobs together, and a load's tables have none yet.
            if !host.created.is_empty() && matches!(purpose, Purpose::Rewrite { .. }) {
                self.fs.sync_dir(&self.tables_dir())?;
            }
            Ok(outputs)
        });
        let outputs = done?;
        // From here on the outputs own the files.
        host.created.clear();
        Ok((outputs, std::mem::take(&mut host.lag), host.forgotten))
    }
}

/// The parameters of a job besides its sources.
pub(in crate::engine) struct JobSpec {
    pub view: ExpiryView,
    pub range_deletes: Vec<Arc<RangeDeletes>>,
    pub cuts: Vec<Timestamp>,
    pub purpose: Purpose,
}

/// Tables are cut at a guard only once they have this fraction (1/32) of a memtable.
const LEAST_TABLE: u64 = 32;

/// The purpose of a job.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::engine) enum Purpose {
    /// Freeing memory.
    Flush {
        /// Whether it is due for a deadline.
        is_due: bool,
    },
    /// Building the tables of a bulk load.
    Load,
    /// Merging runs, reclaiming garbage, or meeting a deadline.
    Rewrite {
        /// How urgent it is.
        urgency: Urgency,
        /// From 0 to 1, how near its deadline is.
        pressure: f64,
    },
}

/// The job's access to files and to the budget. Removes the files of a job that failed, or that a panic ended.
struct Writer<'a> {
    engine: &'a Engine,
    purpose: Purpose,
    created: Vec<TableId>,
    lag: ReclaimLag,
    forgotten: Seq,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        match self.purpose {
            Purpose::Load => self.engine.loads.remove(&self.created),
            _ => self.engine.catalog.remove_tables(&self.created),
        }
    }
}

impl Host for Writer<'_> {
    fn create_table(&mut self) -> Result<(TableId, u64, Box<dyn File>)> {
        let engine = self.engine;
        let id = engine.catalog.new_table();
        let file = match self.purpose {
            Purpose::Load => engine.loads.create(id),
            _ => engine
                .fs
                .create(&engine.tables_dir().join(file_name::table(id))),
        }?;
        self.created.push(id);
        Ok((id, identity(), file))
    }

    fn reclaim(&mut self, millis: u64, bytes: u64) {
        self.lag.add(millis, bytes);
    }

    fn forget(&mut self, seq: Seq) {
        self.forgotten = self.forgotten.max(seq);
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        let engine = self.engine;
        match self.purpose {
            Purpose::Flush { is_due } => {
                engine.counters.bytes_flushed.add(bytes);
                if !is_due {
                    engine.flush_calmly();
                }
                Ok(())
            }
            Purpose::Load => {
                engine.counters.bytes_flushed.add(bytes);
                engine.scheduler.check_open()
            }
            Purpose::Rewrite { urgency, pressure } => {
                engine.counters.bytes_merged.add(bytes);
                engine.pace(bytes, pressure)?;
                engine.give_way(urgency)
            }
        }
    }
}

/// A number that identifies one file.
pub(in crate::engine) fn identity() -> u64 {
    RandomState::new().hash_one(monotonic())
}
