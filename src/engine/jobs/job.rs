//! One job: by what it judges, how it is done, by what it is paced.
//!
//! A job pins a read state, then reads the clock, then the settings, then the open snapshots; every record is judged by
//! these. Its result is installed by one edit of the catalogue, which carries the mark.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::base::counters::ReclaimLag;
use crate::base::{Result, TableId, Timestamp, file_name};
use crate::compact::{Host, Job, Output, Urgency, guards, oversized, run};
use crate::data::merge::Merge;
use crate::engine::Engine;
use crate::engine::read::Source;
use crate::engine::state::{ContainerState, ReadState};
use crate::env::{File, monotonic};
use crate::expiry::ExpiryView;
use crate::mem::RangeDeletes;
use crate::table::TableOptions;

impl Engine {
    /// What a job left out has gone now that its result is installed, however long that took.
    pub(in crate::engine) fn note_lag(&self, lag: &ReclaimLag, view: &ExpiryView) {
        let since_then = match self.clock.purge_time() {
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
            view: spec.view,
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

    /// The outputs, and how long what is not in them had been expired when it was judged.
    pub(in crate::engine) fn run_job(
        &self,
        job: &Job,
        sources: Merge<Source>,
        purpose: Purpose,
    ) -> Result<(Vec<Output>, ReclaimLag)> {
        let mut host = Writer {
            engine: self,
            purpose,
            created: vec![],
            lag: ReclaimLag::default(),
        };
        let done = run(job, sources, &mut host).and_then(|outputs| {
            // Flushes sync the names of several jobs together.
            if !host.created.is_empty() && !matches!(purpose, Purpose::Flush { .. }) {
                self.fs.sync_dir(&self.tables_dir())?;
            }
            Ok(outputs)
        });
        if done.is_err() {
            self.catalog.remove_tables(&host.created);
        }
        Ok((done?, host.lag))
    }
}

/// What a job is told besides its sources.
pub(in crate::engine) struct JobSpec {
    pub view: ExpiryView,
    pub range_deletes: Vec<Arc<RangeDeletes>>,
    pub cuts: Vec<Timestamp>,
    pub purpose: Purpose,
}

/// Tables are not cut at a guard before they have this share of a memtable.
const LEAST_TABLE: u64 = 32;

/// What a job is done for.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::engine) enum Purpose {
    /// Room in memory.
    Flush {
        /// A deadline waits for it.
        is_due: bool,
    },
    /// Few runs, little garbage, on time.
    Rewrite {
        /// What it gives way to.
        urgency: Urgency,
        /// From 0 to 1, how near its deadline is.
        pressure: f64,
    },
}

/// Gives a job its files and its budget.
struct Writer<'a> {
    engine: &'a Engine,
    purpose: Purpose,
    created: Vec<TableId>,
    lag: ReclaimLag,
}

impl Host for Writer<'_> {
    fn create_table(&mut self) -> Result<(TableId, u64, Box<dyn File>)> {
        let id = self.engine.catalog.new_table();
        let file = self
            .engine
            .fs
            .create(&self.engine.tables_dir().join(file_name::table(id)))?;
        self.created.push(id);
        Ok((id, identity(), file))
    }

    fn reclaim(&mut self, millis: u64, bytes: u64) {
        self.lag.add(millis, bytes);
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
            Purpose::Rewrite { urgency, pressure } => {
                engine.counters.bytes_merged.add(bytes);
                engine.pace(bytes, pressure)?;
                engine.give_way(urgency)
            }
        }
    }
}

/// A number that no other file has.
pub(in crate::engine) fn identity() -> u64 {
    RandomState::new().hash_one(monotonic())
}
