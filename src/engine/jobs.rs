//! One job: what is picked, how it is done, by what it is paced.
//!
//! A job pins a picture, then reads the clock, then the settings, then the open snapshots; every record is judged by
//! these. Its result is installed by one edit of the catalogue, which carries the mark.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::base::counters::ReclaimLag;
use crate::base::{Result, TableId, Timestamp, file_name};
use crate::catalog::{Placed, Run};
use crate::compact::{Host, Job, Output, Urgency, guards, heavy, run};
use crate::data::merge::{Merge, Seek};
use crate::engine::Engine;
use crate::engine::install::{Flushed, Progress};
use crate::engine::read::Source;
use crate::engine::scheduler::Thread;
use crate::engine::state::{Buffer, ContainerState, Picture};
use crate::env::{File, monotonic};
use crate::expiry::Judge;
use crate::mem::RangeDeletes;
use crate::table::{RunCursor, TableOptions};

impl Engine {
    /// Flushes the oldest sealed memtable of a container; false when there is none.
    pub(super) fn flush_one(&self, state: &Arc<ContainerState>) -> Result<bool> {
        self.flush_group(std::slice::from_ref(state))
    }

    /// The containers with a sealed memtable, in groups that are flushed together.
    pub(super) fn flush_groups(
        &self,
        states: &[Arc<ContainerState>],
    ) -> Vec<Vec<Arc<ContainerState>>> {
        let most_bytes = self.options.memtable_bytes / GROUP_SHARE;
        let (mut groups, mut bytes) = (vec![], 0);
        for state in states {
            let Some(size) = state.picture().sealed.last().map(|buffer| buffer.counted()) else {
                continue;
            };
            match groups.last_mut() {
                Some(group) if bytes + size <= most_bytes && Vec::len(group) < GROUP_MOST => {
                    group.push(state.clone());
                    bytes += size;
                }
                _ => {
                    groups.push(vec![state.clone()]);
                    bytes = size;
                }
            }
        }
        groups
    }

    /// Flushes the oldest sealed memtable of each of these containers, and installs them by one edit; false when there is
    /// none. Those of a container are flushed and installed in the order in which they were sealed, so that no older
    /// version can appear after a newer one was judged. One that fails does not keep the others: it fails alone when it is
    /// tried again.
    pub(super) fn flush_group(&self, states: &[Arc<ContainerState>]) -> Result<bool> {
        let has_sealed = |state: &Arc<ContainerState>| !state.picture().sealed.is_empty();
        if !states.iter().any(has_sealed) {
            return Ok(false);
        }
        let _flushing = self.scheduler.lock_flushing();
        let oldest = |state| -> Option<(&Arc<ContainerState>, Arc<Buffer>)> {
            let state: &Arc<ContainerState> = state;
            Some((state, state.picture().sealed.last()?.clone()))
        };
        let sealed: Vec<_> = states.iter().filter_map(oldest).collect();
        if sealed.is_empty() {
            return Ok(false);
        }
        // A power cut must not halve a batch over two containers: the log is durable before a table is. And what is
        // judged is published, so no snapshot can come that is older than it.
        let basis = self.commit_log.all_so_far()?;
        let (mut flushed, mut lags, mut failure) = (vec![], vec![], None);
        for (state, buffer) in sealed {
            match self.write_flush(state, buffer) {
                Ok((flush, lag)) => {
                    lags.push((lag, flush.job.judge));
                    flushed.push(flush);
                }
                Err(error) => failure = Some(error),
            }
        }
        if let (true, Some(error)) = (flushed.is_empty(), failure) {
            return Err(error);
        }
        self.sync_tables(&flushed)?;
        self.install_flushes(&flushed, basis)?;
        lags.iter()
            .for_each(|(lag, judge)| self.note_lag(lag, judge));
        self.counters.flushes.add(flushed.len() as u64);
        self.scheduler.wake(Thread::Merge);
        Ok(true)
    }

    /// Writes what is left of a memtable; the tables' names are not durable yet.
    fn write_flush<'a>(
        &self,
        state: &'a Arc<ContainerState>,
        buffer: Arc<Buffer>,
    ) -> Result<(Flushed<'a>, ReclaimLag)> {
        let picture = state.pin();
        let judge = self.judge_settled(state);
        let spec = JobSpec {
            judge,
            range_deletes: vec![
                buffer.memtable.range_deletes().clone(),
                picture.version.range_deletes.clone(),
            ],
            cuts: vec![Timestamp::MAX],
            purpose: Purpose::Flush {
                is_due: picture.buffers().any(|buffer| self.is_due(buffer, &judge)),
            },
        };
        let job = self.job(state, &picture, &BTreeSet::new(), &spec);
        let sources = Merge::seek(
            vec![Source::Memory(buffer.memtable.cursor())],
            Seek::First,
            None,
        )?;
        let (outputs, lag) = self.run_job(&job, sources, spec.purpose)?;
        let flush = Flushed {
            state,
            buffer,
            job,
            outputs,
        };
        Ok((flush, lag))
    }

    /// Makes the names of what flushes wrote durable, or removes it.
    fn sync_tables(&self, flushed: &[Flushed<'_>]) -> Result<()> {
        let outputs = flushed.iter().flat_map(|flush| &flush.outputs);
        let tables = outputs.flat_map(|output| &output.tables);
        let tables: Vec<TableId> = tables.map(|table| table.id).collect();
        if tables.is_empty() {
            return Ok(());
        }
        let synced = self.fs.sync_dir(&self.tables_dir());
        synced.inspect_err(|_| self.catalog.remove_tables(&tables))
    }

    /// Writes some tables of a picture anew, and installs the result beside what the rewrite has written so far. False:
    /// the container was dropped meanwhile.
    pub(super) fn rewrite_tables(
        &self,
        state: &Arc<ContainerState>,
        picture: &Picture,
        tables: &BTreeSet<TableId>,
        spec: JobSpec,
        progress: &mut Progress,
    ) -> Result<bool> {
        self.damaged.check_sound(tables.iter().copied())?;
        let chosen = |placed: &&Placed| tables.contains(&placed.record.id);
        let runs = picture.version.runs.iter();
        let inputs: Vec<Arc<Run>> = runs
            .filter(|run| run.files.iter().any(|placed| chosen(&placed)))
            .cloned()
            .collect();
        let sources = inputs.iter().map(|run| {
            let files = run.files.iter().filter(chosen);
            files.clone().for_each(|placed| placed.table.recheck());
            Source::Disk(RunCursor::new(
                files.map(|placed| placed.table.clone()).collect(),
            ))
        });
        let sources = Merge::seek(sources.collect(), Seek::First, None)?;
        let job = self.job(state, picture, tables, &spec);
        let (outputs, lag) = self.run_job(&job, sources, spec.purpose)?;
        let installed = self.install_rewrite(state, &job, inputs, &outputs, progress)?;
        self.note_lag(&lag, &spec.judge);
        Ok(installed)
    }

    /// What a job left out has gone now that its result is installed, however long that took.
    fn note_lag(&self, lag: &ReclaimLag, judged: &Judge) {
        let since_then = match self.clock.purge_time() {
            Some(now) if judged.now > Timestamp(0) => now.since(judged.now),
            _ => 0,
        };
        self.counters.note_reclaimed(lag, since_then);
    }

    pub(super) fn job(
        &self,
        state: &ContainerState,
        picture: &Picture,
        tables: &BTreeSet<TableId>,
        spec: &JobSpec,
    ) -> Job {
        let facts = picture.version.facts();
        let inputs: Vec<TableId> = tables.iter().copied().collect();
        let elsewhere = picture.version.runs.iter();
        let bytes = facts.bytes();
        Job {
            container: state.id(),
            judge: spec.judge,
            snapshots: self.snapshots.list(),
            elsewhere: elsewhere
                .filter_map(|run| match run.holds_any(tables) {
                    false => Some(run.clone()),
                    true => run.without(run.id, &inputs).map(Arc::new),
                })
                .collect(),
            range_deletes: spec.range_deletes.clone(),
            wanted: Arc::new(heavy(&facts)),
            guards: guards(&facts, bytes.div_ceil(self.most_beside(bytes))),
            least_table_bytes: self.options.memtable_bytes as u64 / LEAST_TABLE,
            cuts: spec.cuts.clone(),
            options: TableOptions {
                block_bytes: self.options.block_bytes,
                compression: state.compression(),
            },
            // Small enough for a rewrite to go part by part before there are guards to cut at.
            table_bytes: self.options.table_bytes.min(self.most_beside(bytes) / 2),
            inputs,
        }
    }

    /// The outputs, and how long what is not in them had been expired when it was judged.
    fn run_job(
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
pub(super) struct JobSpec {
    pub judge: Judge,
    pub range_deletes: Vec<Arc<RangeDeletes>>,
    pub cuts: Vec<Timestamp>,
    pub purpose: Purpose,
}

/// Memtables are flushed together, in one edit, up to this share of `memtable_bytes`: with many containers each flush is
/// small, and its syncs are what it takes.
const GROUP_SHARE: usize = 8;
/// ... and up to so many, for an edit of some hundred KiB.
const GROUP_MOST: usize = 256;

/// Tables are not cut at a guard before they have this share of a memtable.
const LEAST_TABLE: u64 = 32;

/// What a job is done for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
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
pub(super) fn identity() -> u64 {
    RandomState::new().hash_one(monotonic())
}
