//! Merging and reclaiming: chooses the next container, and runs a rewrite part by part.
//!
//! One rewrite runs at a time, in parts of the key range. Each part is a job of its own, with its own read state and
//! views, and is installed when it is done: the tables it read leave the disk then, and its result stays even if the
//! rewrite ends there. Between parts, more urgent work goes first, on the same thread.
//!
//! The merge thread's priority is the lowest, and a thread cannot raise it again. When a deadline comes so near that it
//! may be missed, the merge thread gives up its current part, and the hurry thread, which has a normal priority, does
//! the most urgent work until no deadline is near.
//!
//! Two jobs at once are safe because they share no table: each asks the other's inputs about older versions as they
//! were when it pinned them, and since then these can have lost only records that are gone or that are hidden by
//! records that stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result, Seq, TableId, Timestamp, spans};
use crate::catalog::{Facts, Run, TableFacts, TableFile};
use crate::compact::{
    Choice, Goals, Rewrite, Urgency, Why, ended, parts, pick, pick_all, plan, pressure,
};
use crate::data::cursor::Seek;
use crate::data::merge::Merge;
use crate::engine::Engine;
use crate::engine::core::log_time;
use crate::engine::jobs::install::{Progress, bytes_of};
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::options::Background;
use crate::engine::parts::events::Event;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::scheduler::Thread;
use crate::engine::parts::state::ContainerState;
use crate::env::monotonic;
use crate::expiry::{Commands, ExpiryView};
use crate::table::RunReader;
use crate::values::listener::CompactionEvent;

/// The most that a rewrite holds on disk besides what it replaces, in bytes, however large the container is.
const MAX_TRANSIENT_BYTES: u64 = 1 << 30;

/// Each slot for dated records has at least this fraction (1/24) of the container.
const SLOTS: u64 = 24;

/// When this share of the time to a deadline is over, the merge thread is too slow for it: that was a quarter of its
/// time for a rewrite, and enough time is left.
const HURRY: f64 = 0.8125;
/// Up to this many containers, each is looked at in every search for work. Above, those that changed or are due, and
/// this many of the others in turn.
const LOOKED_AT: usize = 512;

/// Up to so many commands of a container, the records that they end are due by `reclaim_within`.
const COMMANDS_AT_LEISURE: usize = Commands::MOST / 4;
/// From so many on, they are due at once.
const COMMANDS_AT_ONCE: usize = Commands::MOST / 2;

/// After this long without a write, reclaiming has no other work to compete with.
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
            scan_credit: 0,
            paid_by_passing: 0,
        }
    }

    /// The goals for one container.
    pub(in crate::engine) fn goals_of(&self, state: &ContainerState) -> Goals {
        Goals {
            scan_credit: state.scan_credit(),
            paid_by_passing: state.paid_by_passing(),
            ..self.hurried(self.goals(), state)
        }
    }

    /// The goals where many commands stand: records that a command ends are due sooner, because it stands until they are off
    /// the disk, and at most [`Commands::MOST`] are taken.
    fn hurried(&self, goals: Goals, state: &ContainerState) -> Goals {
        let settings = state.whole_settings();
        if settings.commands.iter().len() <= COMMANDS_AT_LEISURE {
            return goals;
        }
        let needed = state.needed_of(&settings, self.snapshots.oldest());
        let stand = needed.commands.iter().len();
        if stand <= COMMANDS_AT_LEISURE {
            return goals;
        }
        let (spare, of) = (
            COMMANDS_AT_ONCE.saturating_sub(stand),
            COMMANDS_AT_ONCE - COMMANDS_AT_LEISURE,
        );
        Goals {
            reclaim_within: goals.reclaim_within / of as u64 * spare as u64,
            reclaim_strict: true,
            ..goals
        }
    }

    /// From 0 to 1, how much more garbage is worth reclaiming than while others write: some when nobody writes, all
    /// when the disk is full.
    fn eagerness(&self) -> f64 {
        let stepped = self.options.background == Background::Stepped;
        let idle = if !stepped && self.quiet_for() >= IDLE {
            0.5
        } else {
            0.0
        };
        self.disk_pressure().max(idle)
    }

    /// How long nobody has written, as far as the threads have noticed.
    pub(in crate::engine) fn quiet_for(&self) -> Duration {
        let now = log_time(&self.options, &self.clock);
        self.scheduler.quiet_for(self.commit_log.latest(), now)
    }

    /// The most that a rewrite of a container should hold on disk besides what it replaces: a tenth of the container,
    /// at most a gibibyte, but at least a memtable's size.
    pub(in crate::engine) fn max_transient_bytes(&self, bytes: u64) -> u64 {
        (bytes / 10)
            .min(MAX_TRANSIENT_BYTES)
            .max(self.options.memtable_bytes as u64)
    }

    /// The next job of a container.
    pub(in crate::engine) fn choose(
        &self,
        state: &ContainerState,
        facts: &Facts,
        view: &ExpiryView,
    ) -> Choice {
        let (snapshots, busy) = (self.snapshots.list(), self.scheduler.busy());
        pick(facts, &snapshots, &busy, view, &self.goals_of(state))
    }

    /// One piece of merging or reclaiming; false when no container has work, or when the hurry thread does it.
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

    /// While a deadline is so near that it may be missed at the merge thread's priority, takes that thread's place; the
    /// merge thread gives up its work at its next wait for the budget.
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
                &self.hurried(goals, state),
            )
        });
        pressures.fold(0.0, f64::max)
    }

    /// Does one piece of work that is more urgent than `than`, if there is one.
    pub(in crate::engine) fn give_way(&self, than: Urgency) -> Result<()> {
        while self.scheduler.signal(Thread::Merge).take() {
            match self.most_urgent(Some(than)) {
                // There may be more of it.
                Ok(true) => self.scheduler.wake(Thread::Merge),
                Ok(false) => {}
                Err(error) if error.is_closed() => return Err(error),
                // Not this rewrite's failure.
                Err(error) => self.note_outcome(Thread::Merge.name(), &Err::<(), _>(error)),
            }
        }
        Ok(())
    }

    /// Does the most urgent piece of work of all containers, if it is more urgent than `than`. Drops and joins cost
    /// nothing and may free room, so they are done at once. The containers take turns, and a failure in one does not
    /// hold up the others.
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
            // The choice is applied to this version, whatever happens to the container meanwhile.
            let version = &read_state.version;
            let free = match self.choose(&state, &version.facts(), &view) {
                Choice::Rest { until } => {
                    let until = self.rest_until(&state, until, &view);
                    state.note_rest(version, view.settings.without_past(), until);
                    continue;
                }
                Choice::Merge(rewrite) => {
                    if than.is_none_or(|than| rewrite.urgency < than) {
                        rewrites.push((state, rewrite));
                    }
                    continue;
                }
                Choice::Drop(tables) => self.drop_tables(&state, version, &tables, &view),
                Choice::Join(runs) => self.join_runs(&state, version, &runs, &view),
            };
            match free {
                Ok(()) => return Ok(true),
                Err(error) => done = Err(error),
            }
        }
        if self.disk_pressure() < 1.0 {
            rewrites.sort_by_key(|(_, rewrite)| rewrite.urgency);
        } else {
            // The rewrite that needs the least room is the likeliest to find it.
            rewrites.sort_by_cached_key(|(state, rewrite)| {
                let version = &state.pin().version;
                let files = version.runs.iter().flat_map(|run| &run.files);
                let read = files.filter(|file| rewrite.tables.contains(&file.record.id));
                read.map(|file| file.record.len).sum::<u64>()
            });
        }
        for (state, rewrite) in rewrites {
            match self.rewrite(&state, &rewrite, &|| true) {
                Ok(()) => return Ok(true),
                Err(error) => done = Err(error),
            }
        }
        done
    }

    /// Flushes, then merges and reclaims until nothing more can be gained, or `goes_on` says no, which is asked between
    /// the steps. Whether it came to its end.
    pub fn compact_while(&self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        self.clock.release_hold();
        // The tables are worth compacting even if the flush fails.
        let flushed = self.flush();
        if matches!(&flushed, Err(error) if error.is_closed() || matches!(error, Error::ReadOnly)) {
            return flushed.map(|()| true);
        }
        for state in self.containers.all() {
            let mut rewritten = false;
            while goes_on() {
                let _merging = self.scheduler.lock_merging();
                let view = self.settled_view(&state);
                let version = state.pin().version.clone();
                let facts = version.facts();
                match pick_all(&facts, &self.snapshots.list(), &view, &self.goals()) {
                    Choice::Drop(tables) => {
                        self.drop_tables(&state, &version, &tables, &view)?;
                    }
                    // A second rewrite would gain nothing that a drop does not: runs that still overlap do so for a
                    // snapshot.
                    Choice::Merge(rewrite) if !rewritten => {
                        self.rewrite(&state, &rewrite, goes_on)?;
                        rewritten = true;
                    }
                    _ => break,
                }
            }
        }
        self.obsolete.remove_all();
        self.tell_listener_of_steps();
        flushed.map(|()| goes_on())
    }

    /// Rewrites the chosen tables, and tells the listener of it.
    fn rewrite(
        &self,
        state: &Arc<ContainerState>,
        rewrite: &Rewrite,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let _span = spans::merge(state.name(), &rewrite.why);
        let began = monotonic();
        let mut compaction = self.compaction_of(state, rewrite);
        self.note_event(|| Event::CompactionBegin(compaction.clone()));
        let done = self.rewrite_all(state, rewrite, goes_on, &mut compaction.output_bytes);
        compaction.took = monotonic().saturating_sub(began);
        compaction.error = done.as_ref().err().cloned();
        self.note_event(|| Event::CompactionCompleted(compaction));
        done
    }

    fn compaction_of(&self, state: &ContainerState, rewrite: &Rewrite) -> CompactionEvent {
        let version = state.pin().version.clone();
        let files = version.runs.iter().flat_map(|run| &run.files);
        let inputs = files.filter(|file| rewrite.tables.contains(&file.record.id));
        CompactionEvent {
            container: state.name().to_owned(),
            reason: rewrite.why.to_string(),
            input_tables: inputs.clone().count() as u64,
            input_bytes: inputs.map(|file| file.record.len).sum(),
            output_bytes: 0,
            took: Duration::ZERO,
            error: None,
        }
    }

    /// Rewrites the chosen tables, part by part, while `goes_on` says so; adds the bytes of tables written.
    fn rewrite_all(
        &self,
        state: &Arc<ContainerState>,
        rewrite: &Rewrite,
        goes_on: &dyn Fn() -> bool,
        output_bytes: &mut u64,
    ) -> Result<()> {
        if matches!(rewrite.why, Why::FewRuns { .. } | Why::Scans { .. }) {
            state.spend_scans();
        }
        if matches!(rewrite.why, Why::Passing { .. }) {
            state.spend_passing();
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
            bytes: 0,
            forgotten: Seq(0),
        };
        let parts = parts(&tables, self.max_transient_bytes(facts.bytes()) / 2);
        let _busy = self.scheduler.take_tables(chosen);
        for part in parts {
            let is_needed = self.rewrite_part(state, &part, rewrite, &mut progress);
            *output_bytes = progress.bytes;
            if !is_needed? || !goes_on() {
                break;
            }
        }
        self.counters.merges.add(1);
        Ok(())
    }

    /// False when the rewrite is no longer needed.
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
        // Some tables may have become obsolete since the choice was made.
        let mut gone = ended(&facts, &self.snapshots.list(), &BTreeSet::new(), &view);
        gone.retain(|table| part.remove(table));
        if !gone.is_empty() {
            self.drop_tables(state, &version, &gone, &view)?;
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

    /// Rewrites some tables of a read state, and installs the result with the earlier outputs of the rewrite. False:
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
            RunReader::new(files.map(|file| file.table.clone()).collect())
        });
        let sources = Merge::seek(sources.collect(), Seek::First, None)?;
        // The runs of a bulk load are in the read state a moment before its number is published, which ends with the
        // commit lock. From then on each new snapshot sees the load, and the job lists the older ones.
        self.commit_log.wait_for_commit();
        let job = self.job(state, read_state, tables, &spec);
        let (outputs, lag, forgotten) = self.run_job(&job, sources, spec.purpose)?;
        progress.bytes += bytes_of(&outputs);
        progress.forgotten = forgotten;
        let installed = self.install_rewrite(state, &job, inputs, &outputs, progress)?;
        self.note_lag(&lag, &spec.view);
        Ok(installed)
    }

    /// When a container will have work, if nobody writes.
    pub(in crate::engine) fn next_due(&self, state: &ContainerState) -> Option<Timestamp> {
        if let Some(until) = state.rests_until() {
            return Some(until);
        }
        let read_state: Arc<ReadState> = state.pin();
        let view = self.settled_view(state);
        match self.choose(state, &read_state.version.facts(), &view) {
            Choice::Rest { until } => self.rest_until(state, until, &view),
            _ => Some(Timestamp(0)),
        }
    }

    /// The moment at which jobs judge as of `until`, or by the next change of settings: later by as much as the moment
    /// by which they judge is earlier than now.
    fn rest_until(
        &self,
        state: &ContainerState,
        until: Option<Timestamp>,
        view: &ExpiryView,
    ) -> Option<Timestamp> {
        let held = match self.purge_time() {
            Some(settled) if view.now > Timestamp(0) => settled.since(view.now),
            _ => return until,
        };
        let change = state.whole_settings().next_change(view.now);
        let until = until.into_iter().chain(change.filter(|_| held > 0)).min();
        until.map(|until| until.after(held))
    }
}

/// While it exists, the merge thread may have to give up its work; dropping it lets that thread continue.
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
