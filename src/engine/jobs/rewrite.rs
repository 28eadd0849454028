//! Merging and reclaiming: which container comes next, and how a rewrite is gone through.
//!
//! One rewrite is under way at a time, part by part of the key range. Each part is a job of its own, with its own read
//! state and judgement, and is installed when it is done: the tables that it read leave the disk then, and stay done if
//! the rewrite ends there. Before a rewrite goes on, it gives way to what is more urgent, which is done in between on
//! the same thread. The merge thread's priority is the lowest, and a thread cannot take back what it gave up: when a
//! deadline comes so near that it may be missed, the merge thread gives up the part that it is at, and another thread,
//! which has kept its priority, does what comes next until nothing presses. Two jobs at once are safe because they
//! share no table: each asks the other's inputs about older versions as they were when it was pinned, and since then
//! these can only have lost what is gone, or hidden by what stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result, TableId, Timestamp};
use crate::catalog::{Facts, Run, TableFacts, TableFile};
use crate::compact::{
    Choice, Goals, Rewrite, Urgency, Why, ended, parts, pick, pick_all, plan, pressure,
};
use crate::data::cursor::Seek;
use crate::data::merge::Merge;
use crate::engine::Engine;
use crate::engine::jobs::install::Progress;
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::options::Background;
use crate::engine::read::Source;
use crate::engine::scheduler::Thread;
use crate::engine::state::{ContainerState, ReadState};
use crate::expiry::ExpiryView;
use crate::table::RunCursor;

/// The most that a rewrite holds on disk beside what it replaces, in bytes, however large the container is.
const MAX_TRANSIENT_BYTES: u64 = 1 << 30;

/// The slots into which dated records can be cut are at least so small a share of the container.
const SLOTS: u64 = 24;

/// When so much of the time to a deadline is over, the merge thread is too slow for it: a quarter of the time that it has
/// for a rewrite, and enough of it is left.
const HURRY: f64 = 0.8125;
/// Of so many containers each is looked at whenever somebody looks for work; of more than that, those that have changed or
/// are due, and so many of the others in turn.
const LOOKED_AT: usize = 512;

/// Without a write for so long, there is nothing better to do than to reclaim.
const IDLE: Duration = Duration::from_secs(5);

impl Engine {
    pub(in crate::engine) fn goals(&self) -> Goals {
        Goals {
            max_runs: self.options.max_runs,
            reclaim_within: u64::try_from(self.options.reclaim_within.as_millis())
                .unwrap_or(u64::MAX),
            reclaim_strict: self.options.reclaim_strict,
            memtable_bytes: self.options.memtable_bytes as u64,
            eager: self.eagerness(),
            paid_by_scans: 0,
        }
    }

    /// The same for one container.
    pub(in crate::engine) fn goals_of(&self, state: &ContainerState) -> Goals {
        Goals {
            paid_by_scans: state.paid_by_scans(),
            ..self.goals()
        }
    }

    /// How much more garbage is worth reclaiming than it would be while others write, from 0 to 1: some when nobody does,
    /// all when the disk is full.
    fn eagerness(&self) -> f64 {
        let stepped = self.options.background == Background::Stepped;
        let idle = if !stepped && self.scheduler.quiet_for(self.commit_log.latest()) >= IDLE {
            0.5
        } else {
            0.0
        };
        self.disk_pressure().max(idle)
    }

    /// The most that a rewrite of a container should hold on disk beside what it replaces: a tenth of the container, or
    /// a gibibyte if that is less, but a memtable's size at least.
    pub(in crate::engine) fn max_transient_bytes(&self, bytes: u64) -> u64 {
        (bytes / 10)
            .min(MAX_TRANSIENT_BYTES)
            .max(self.options.memtable_bytes as u64)
    }

    /// The next job of a container, as things are.
    pub(in crate::engine) fn choose(
        &self,
        state: &ContainerState,
        facts: &Facts,
        view: &ExpiryView,
    ) -> Choice {
        let (snapshots, busy) = (self.snapshots.list(), self.scheduler.busy());
        pick(facts, &snapshots, &busy, view, &self.goals_of(state))
    }

    /// One piece of merging or reclaiming; false when there is nothing to do in any container, or when it is left to the
    /// thread that hurries.
    pub(in crate::engine) fn merge_step(&self) -> Result<bool> {
        let _merging = self.scheduler.lock_merging();
        if self.scheduler.gives_up() {
            return Ok(false);
        }
        match self.most_urgent(None) {
            Err(error) if error.is_closed() && self.scheduler.gives_up() => Ok(false),
            done => done,
        }
    }

    /// As long as a deadline is so near that it may be missed at the merge thread's priority, takes its place; what it is
    /// at, it gives up at the next wait for the budget.
    pub(in crate::engine) fn hurry(&self) -> Result<()> {
        let _hurry = Hurry { engine: self };
        while self.deadline_pressure() >= HURRY {
            self.scheduler.hurry();
            let _merging = self.scheduler.lock_merging();
            if !self.most_urgent(None)? {
                break;
            }
        }
        Ok(())
    }

    /// From 0 to 1, how near the nearest deadline of all containers is; see [`pressure`].
    fn deadline_pressure(&self) -> f64 {
        let goals = self.goals();
        let states = self.containers.all();
        let pressures = states.iter().map(|state| {
            pressure(
                &state.pin().version.facts(),
                &self.settled_view(state),
                &goals,
            )
        });
        pressures.fold(0.0, f64::max)
    }

    /// Lets what is more urgent than `than` go first, if there is anything of that kind.
    pub(in crate::engine) fn give_way(&self, than: Urgency) -> Result<()> {
        while self.scheduler.signal(Thread::Merge).take() {
            match self.most_urgent(Some(than)) {
                // There may be more of it.
                Ok(true) => self.scheduler.wake(Thread::Merge),
                Ok(false) => {}
                Err(error) if error.is_closed() => return Err(error),
                // Not this rewrite's failure.
                Err(error) => self
                    .scheduler
                    .note_outcome(Thread::Merge.name(), &Err::<(), _>(error)),
            }
        }
        Ok(())
    }

    /// The most urgent piece of work of all containers, if it is more urgent than `than`. What is dropped or joined costs
    /// nothing and may make room, so that is done at once. The containers take turns, and one in which something fails
    /// does not keep the others waiting.
    fn most_urgent(&self, than: Option<Urgency>) -> Result<bool> {
        let mut states = self.containers.all();
        let len = states.len().max(1);
        let others = if len > LOOKED_AT { LOOKED_AT } else { 1 };
        let next = self.scheduler.next_container(others);
        states.rotate_left(next % len);
        let mut done = Ok(false);
        let mut rewrites = vec![];
        let now = self.clock.read().settled;
        for (at, state) in states.into_iter().enumerate() {
            if at >= LOOKED_AT && state.rests_until().is_some_and(|until| now < until) {
                continue;
            }
            let read_state = state.pin();
            let view = self.settled_view(&state);
            // What is chosen is done to this version, whatever becomes of the container meanwhile.
            let version = &read_state.version;
            let free = match self.choose(&state, &version.facts(), &view) {
                Choice::Rest { until } => {
                    state.note_rest(version, view.settings, until);
                    continue;
                }
                Choice::Merge(rewrite) => {
                    if than.is_none_or(|than| rewrite.urgency < than) {
                        rewrites.push((state, rewrite));
                    }
                    continue;
                }
                Choice::Drop(tables) => self.drop_tables(&state, version, &tables, view.now),
                Choice::Join(runs) => self.join_runs(&state, version, &runs, view.now),
            };
            match free {
                Ok(()) => return Ok(true),
                Err(error) => done = Err(error),
            }
        }
        if self.disk_pressure() < 1.0 {
            rewrites.sort_by_key(|(_, rewrite)| rewrite.urgency);
        } else {
            // What needs the least room has the best chance to find it.
            rewrites.sort_by_cached_key(|(state, rewrite)| {
                let version = &state.pin().version;
                let files = version.runs.iter().flat_map(|run| &run.files);
                let read = files.filter(|file| rewrite.tables.contains(&file.record.id));
                read.map(|file| file.record.len).sum::<u64>()
            });
        }
        for (state, rewrite) in rewrites {
            match self.rewrite(&state, &rewrite) {
                Ok(()) => return Ok(true),
                Err(error) => done = Err(error),
            }
        }
        done
    }

    /// Everything that can be gained is gained.
    pub fn compact(&self) -> Result<()> {
        self.clock.release_hold();
        // What is in tables is worth the work in any case.
        let flushed = self.flush();
        if matches!(&flushed, Err(error) if error.is_closed() || matches!(error, Error::ReadOnly)) {
            return flushed;
        }
        for state in self.containers.all() {
            let mut rewritten = false;
            loop {
                let _merging = self.scheduler.lock_merging();
                let view = self.settled_view(&state);
                let version = state.pin().version.clone();
                let facts = version.facts();
                match pick_all(&facts, &self.snapshots.list(), &view, &self.goals()) {
                    Choice::Drop(tables) => {
                        self.drop_tables(&state, &version, &tables, view.now)?;
                    }
                    // Twice would gain nothing that is not a drop: what is left overlaps for the sake of a snapshot.
                    Choice::Merge(rewrite) if !rewritten => {
                        self.rewrite(&state, &rewrite)?;
                        rewritten = true;
                    }
                    _ => break,
                }
            }
        }
        self.obsolete.remove_all();
        flushed
    }

    /// Reads what was chosen and writes it anew, part by part.
    fn rewrite(&self, state: &Arc<ContainerState>, rewrite: &Rewrite) -> Result<()> {
        if matches!(rewrite.why, Why::FewRuns { .. } | Why::Scans { .. }) {
            state.spend_scans();
        }
        let facts = state.pin().version.facts();
        let view = self.settled_view(state);
        let chosen: BTreeSet<TableId> = rewrite.tables.iter().copied().collect();
        let tables: Vec<&TableFacts> = facts
            .tables()
            .map(|(_, table)| table)
            .filter(|table| chosen.contains(&table.id))
            .collect();
        let least = (self.options.memtable_bytes as u64).max(facts.bytes() / SLOTS);
        let histograms = tables.iter().map(|table| &table.statistics.histograms);
        let forecast = histograms.flat_map(|histograms| histograms.forecast(&view.settings));
        let mut progress = Progress {
            cuts: if rewrite.cut {
                plan(forecast.collect(), least, view.now)
            } else {
                vec![]
            },
            written: BTreeMap::new(),
        };
        let parts = parts(&tables, self.max_transient_bytes(facts.bytes()) / 2);
        let _busy = self.scheduler.take_tables(chosen);
        for part in parts {
            if !self.rewrite_part(state, &part, rewrite, &mut progress)? {
                break;
            }
        }
        self.counters.merges.add(1);
        Ok(())
    }

    /// False when the rewrite has become moot.
    fn rewrite_part(
        &self,
        state: &Arc<ContainerState>,
        part: &[TableId],
        rewrite: &Rewrite,
        progress: &mut Progress,
    ) -> Result<bool> {
        let mut part: BTreeSet<TableId> = part.iter().copied().collect();
        let view = self.settled_view(state);
        let version = state.pin().version.clone();
        let facts = version.facts();
        // Since the choice was made, some may have come to matter no more.
        let mut gone = ended(&facts, &self.snapshots.list(), &BTreeSet::new(), &view);
        gone.retain(|table| part.remove(table));
        if !gone.is_empty() {
            self.drop_tables(state, &version, &gone, view.now)?;
        }
        if part.is_empty() {
            return Ok(true);
        }
        let read_state = state.pin();
        let present = read_state.version.runs.iter().flat_map(|run| &run.files);
        if present
            .filter(|file| part.contains(&file.record.id))
            .count()
            < part.len()
        {
            return Ok(false);
        }
        let view = self.settled_view(state);
        let spec = JobSpec {
            view,
            range_deletes: vec![read_state.version.range_deletes.clone()],
            cuts: progress.cuts.clone(),
            purpose: Purpose::Rewrite {
                urgency: rewrite.urgency,
                pressure: self.deadline_pressure(),
            },
        };
        self.rewrite_tables(state, &read_state, &part, spec, progress)
    }

    /// Writes some tables of a read state anew, and installs the result beside what the rewrite has written so far. False:
    /// the container was dropped meanwhile.
    pub(in crate::engine) fn rewrite_tables(
        &self,
        state: &Arc<ContainerState>,
        read_state: &ReadState,
        tables: &BTreeSet<TableId>,
        spec: JobSpec,
        progress: &mut Progress,
    ) -> Result<bool> {
        self.damaged.check_sound(tables.iter().copied())?;
        let chosen = |file: &&TableFile| tables.contains(&file.record.id);
        let runs = read_state.version.runs.iter();
        let inputs: Vec<Arc<Run>> = runs
            .filter(|run| run.files.iter().any(|file| chosen(&file)))
            .cloned()
            .collect();
        let sources = inputs.iter().map(|run| {
            let files = run.files.iter().filter(chosen);
            files.clone().for_each(|file| file.table.recheck());
            Source::Disk(RunCursor::new(
                files.map(|file| file.table.clone()).collect(),
            ))
        });
        let sources = Merge::seek(sources.collect(), Seek::First, None)?;
        let job = self.job(state, read_state, tables, &spec);
        let (outputs, lag) = self.run_job(&job, sources, spec.purpose)?;
        let installed = self.install_rewrite(state, &job, inputs, &outputs, progress)?;
        self.note_lag(&lag, &spec.view);
        Ok(installed)
    }

    /// When a container has something to do if nobody writes.
    pub(in crate::engine) fn next_due(&self, state: &ContainerState) -> Option<Timestamp> {
        if let Some(until) = state.rests_until() {
            return Some(until);
        }
        let read_state: Arc<ReadState> = state.pin();
        match self.choose(
            state,
            &read_state.version.facts(),
            &self.settled_view(state),
        ) {
            Choice::Rest { until } => until,
            _ => Some(Timestamp(0)),
        }
    }
}

/// While it lasts, the merge thread may have to give up its work; then it goes on.
struct Hurry<'a> {
    engine: &'a Engine,
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        if self.engine.scheduler.end_hurry() {
            self.engine.scheduler.wake(Thread::Merge);
        }
    }
}
