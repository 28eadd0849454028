//! What happens behind the writers' backs: flushing, merging, reclaiming, syncing, trimming the log.
//!
//! Each is one function that does one piece of work on the calling thread; threads call them in a loop, and so does a
//! test, step by step. A job pins a picture, then reads the clock, then the settings, then the open snapshots; every
//! record is judged by these. Its result is installed by one edit of the catalogue, which carries the mark.

use crate::env::JoinHandle;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::compact::{
    Choice, Goals, Host, Job, Output, ended, forecast, oldest_dead, pick, pick_all, plan, run,
    start_by,
};
use crate::engine::core::Engine;
use crate::engine::read::Source;
use crate::engine::state::{Buffer, ContainerState, Picture};
use crate::engine::write::relog;
use crate::env::{File, Signal, monotonic, sleep, spawn};
use crate::error::{Error, Result};
use crate::expiry::Judge;
use crate::merge::{Merge, Seek};
use crate::options::{Background, Durability};
use crate::table::{FinishedTable, RunCursor, TableOptions};
use crate::types::{Seq, TableId, Timestamp, file_name};
use crate::version::{Change, Placed, RangeDelete, Run, RunId, RunRecord, TableRecord, Version};
use crate::wal::FrameKind;

/// The longest that a thread waits before it looks again: a clock may be moved, and nobody says so.
const TICK: Duration = Duration::from_millis(200);

/// After a failure, the wait before the next try; it doubles with every further one.
const RETRY: Duration = Duration::from_secs(1);

/// The longest such wait.
const RETRY_MOST: Duration = Duration::from_secs(8);

/// A budget's wait is slept in pieces of this length, so that neither closing nor another rate need wait for it.
const NAP: Duration = Duration::from_millis(20);

impl Engine {
    pub(super) fn start_threads(engine: &Arc<Engine>) -> Result<Vec<JoinHandle<()>>> {
        let mut threads = vec![
            Engine::start_loop(
                engine,
                "ebbtide-flush",
                &engine.flush_signal,
                Engine::flush_round,
            )?,
            Engine::start_loop(
                engine,
                "ebbtide-merge",
                &engine.merge_signal,
                Engine::merge_round,
            )?,
        ];
        threads.push(Engine::start_loop(
            engine,
            "ebbtide-log",
            &engine.sync_signal,
            Engine::log_round,
        )?);
        Ok(threads)
    }

    /// A thread that does a round of work, waits as long as the round said or until it is called, and so on until the
    /// database closes. It holds the engine only while it works, so that a database that is merely forgotten goes too.
    fn start_loop(
        engine: &Arc<Engine>,
        name: &str,
        signal: &Arc<Signal>,
        round: fn(&Engine) -> Result<Duration>,
    ) -> Result<JoinHandle<()>> {
        let (engine, signal) = (Arc::downgrade(engine), signal.clone());
        spawn(name, move || {
            let mut retry = RETRY;
            while let Some(engine) = engine.upgrade() {
                if engine.closing.load(Ordering::Acquire) {
                    return;
                }
                let wait = match round(&engine) {
                    Ok(wait) => {
                        retry = RETRY;
                        wait
                    }
                    Err(error) => {
                        engine.note_failure(error);
                        let wait = retry;
                        retry = (retry * 2).min(RETRY_MOST);
                        wait
                    }
                };
                drop(engine);
                signal.wait(wait);
            }
        })
    }

    /// The next writer hears of a failure in the background.
    fn note_failure(&self, error: Error) {
        if !error.is_closed() {
            *self.hiccup.lock() = Some(error);
        }
    }

    fn flush_round(&self) -> Result<Duration> {
        while self.flush_step()? {}
        Ok(TICK)
    }

    fn merge_round(&self) -> Result<Duration> {
        while self.merge_step()? {}
        let now = self.clock.read().settled;
        let due = self
            .all_states()
            .iter()
            .filter_map(|state| self.next_due(state))
            .min();
        Ok(due.map_or(TICK, |due| {
            Duration::from_millis(due.since(now).max(1)).min(TICK)
        }))
    }

    /// Syncs the log once an interval; when writers ask for it, drains the log and prepares its next segment.
    fn log_round(&self) -> Result<Duration> {
        let log = self.log()?;
        let interval = self.options.sync_interval;
        let started = monotonic();
        let mut left = interval;
        while !left.is_zero() && !self.closing.load(Ordering::Acquire) {
            if log.wants_upkeep() {
                log.drain()?;
                log.prepare_next()?;
            }
            self.sync_signal.wait(left);
            left = interval.saturating_sub(monotonic().saturating_sub(started));
        }
        if self.options.durability == Durability::Buffered && log.synced() < log.end() {
            log.sync_to(log.end())?;
        }
        Ok(Duration::ZERO)
    }

    /// One piece of background work; false when none is due.
    pub fn step(&self) -> Result<bool> {
        self.check_writable()?;
        Ok(self.flush_step()? || self.merge_step()?)
    }

    /// Flushes one memtable that is full or holds what is long dead, or trims the log. A container whose flush fails does
    /// not keep the others waiting.
    fn flush_step(&self) -> Result<bool> {
        let mut done = Ok(false);
        for state in self.all_states() {
            match self.flush_one(&state) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                failed => done = failed,
            }
        }
        done?;
        for state in self.all_states() {
            if self.memory_is_due(&state) {
                self.seal_one(&state);
                return self.flush_one(&state);
            }
        }
        self.trim_log()
    }

    fn goals(&self) -> Goals {
        Goals {
            max_runs: self.options.max_runs,
            reclaim_within: u64::try_from(self.options.reclaim_within.as_millis())
                .unwrap_or(u64::MAX),
            reclaim_strict: self.options.reclaim_strict,
        }
    }

    /// The active memtable holds something that has been dead for so long that it is time to let it go.
    fn memory_is_due(&self, state: &ContainerState) -> bool {
        let picture = state.pin();
        if picture.active.memtable.is_empty() {
            return false;
        }
        let judge = self.judge_settled(state);
        let census = picture.active.memtable.census();
        oldest_dead(&census, Seq(0), &judge)
            .is_some_and(|expiry| start_by(expiry, &census, &judge, &self.goals()) <= judge.now)
    }

    /// When a container has something to do if nobody writes.
    fn next_due(&self, state: &ContainerState) -> Option<Timestamp> {
        match self.pick(&state.pin(), &self.judge_settled(state)) {
            Choice::Rest { until } => until,
            _ => Some(Timestamp(0)),
        }
    }

    fn pick(&self, picture: &Picture, judge: &Judge) -> Choice {
        pick(
            &picture.version,
            &self.snapshots.list(),
            judge,
            &self.goals(),
        )
    }

    fn seal_one(&self, state: &ContainerState) {
        let mut turn = self.turn.lock();
        self.seal(&mut turn, state);
    }

    /// Writes what is in memory to tables.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        let states = self.all_states();
        {
            let mut turn = self.turn.lock();
            states.iter().for_each(|state| self.seal(&mut turn, state));
        }
        for state in &states {
            while self.flush_one(state)? {}
        }
        Ok(())
    }

    /// Everything that can be gained is gained.
    pub fn compact(&self) -> Result<()> {
        self.clock.release_hold();
        self.flush()?;
        for state in self.all_states() {
            let mut merged = false;
            loop {
                let _merging = self.merging.lock();
                let picture = state.pin();
                let judge = self.judge_settled(&state);
                let choice = pick_all(&picture.version, &self.snapshots.list(), &judge);
                // Twice would gain nothing that is not a drop: what is left overlaps for the sake of a snapshot.
                if merged && matches!(choice, Choice::Merge { .. }) {
                    break;
                }
                merged |= matches!(choice, Choice::Merge { .. });
                if !self.carry_out(&state, &picture, judge, choice)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Flushes the oldest sealed memtable of a container; false when there is none. Memtables are flushed and installed
    /// in the order in which they were sealed, so that no older version can appear after a newer one was judged.
    fn flush_one(&self, state: &Arc<ContainerState>) -> Result<bool> {
        if state.picture().sealed.is_empty() {
            return Ok(false);
        }
        let _flushing = self.flushing.lock();
        let Some(buffer) = state.picture().sealed.last().cloned() else {
            return Ok(false);
        };
        // A power cut must not halve a batch over two containers: the log is durable before a table is. And what is
        // judged is published, so no snapshot can come that is older than it.
        self.sync_and_publish()?;
        let picture = state.pin();
        let judge = self.judge_settled(state);
        let mut ranges = picture.version.range_deletes.to_vec();
        let own: Vec<RangeDelete> = buffer
            .memtable
            .range_deletes()
            .map(|delete| RangeDelete::new(delete.range.clone(), delete.seq))
            .collect();
        ranges.extend(own.iter().cloned());
        let job = self.job(state, &picture, &[], judge, ranges, vec![Timestamp::MAX]);
        let sources = Merge::seek(
            vec![Source::Memory(buffer.memtable.cursor())],
            Seek::First,
            None,
        )?;
        let outputs = self.run_job(&job, sources, Purpose::Flush)?;
        self.install_outputs(state, &job, vec![], Some((buffer, own)), &outputs)?;
        self.counters.flushes.add(1);
        self.merge_signal.notify();
        Ok(true)
    }

    fn sync_and_publish(&self) -> Result<()> {
        let log = self.log()?;
        let (position, latest) = {
            let _turn = self.turn.lock();
            (log.end(), self.latest())
        };
        log.sync_to(position)?;
        self.publish(latest);
        Ok(())
    }

    /// Merges, rewrites or drops runs of one container; false when there is nothing to do in any. What is dropped costs
    /// nothing and may make room, so it comes before every merge. A container in which something fails does not keep the
    /// others waiting.
    fn merge_step(&self) -> Result<bool> {
        let _merging = self.merging.lock();
        let states = self.all_states();
        for state in &states {
            let (version, judge) = (state.pin().version.clone(), self.judge_settled(state));
            let tables = ended(&version, &self.snapshots.list(), &judge);
            if !tables.is_empty() {
                self.drop_tables(state, &tables, judge.now)?;
                return Ok(true);
            }
        }
        let mut done = Ok(false);
        for state in &states {
            let picture = state.pin();
            let judge = self.judge_settled(state);
            let choice = self.pick(&picture, &judge);
            match self.carry_out(state, &picture, judge, choice) {
                Ok(false) => {}
                Ok(true) => return Ok(true),
                failed => done = failed,
            }
        }
        done
    }

    /// Does what was chosen from `picture` by `judge`; false when that is nothing.
    fn carry_out(
        &self,
        state: &Arc<ContainerState>,
        picture: &Picture,
        judge: Judge,
        choice: Choice,
    ) -> Result<bool> {
        match choice {
            Choice::Rest { .. } => return Ok(false),
            Choice::Drop(tables) => self.drop_tables(state, &tables, judge.now)?,
            Choice::Merge { runs, cut, .. } => {
                let inputs = chosen(&picture.version, &runs);
                let cuts = if cut {
                    self.cuts(picture, &inputs, &judge)
                } else {
                    vec![]
                };
                let ranges = picture.version.range_deletes.to_vec();
                let job = self.job(state, picture, &inputs, judge, ranges, cuts);
                let cursors = inputs
                    .iter()
                    .map(|run| Source::Disk(RunCursor::new(run.shared.clone())));
                let sources = Merge::seek(cursors.collect(), Seek::First, None)?;
                let outputs = self.run_job(&job, sources, Purpose::Merge)?;
                self.install_outputs(state, &job, inputs, None, &outputs)?;
                self.counters.merges.add(1);
            }
        }
        Ok(true)
    }

    /// Tables that matter no more go, by an edit alone.
    fn drop_tables(
        &self,
        state: &Arc<ContainerState>,
        gone: &[TableId],
        judged_at: Timestamp,
    ) -> Result<()> {
        let version = state.pin().version.clone();
        let holds_one = |run: &&Arc<Run>| {
            run.tables
                .iter()
                .any(|placed| gone.contains(&placed.record.id))
        };
        let removed: Vec<Arc<Run>> = version.runs.iter().filter(holds_one).cloned().collect();
        let rest = removed
            .iter()
            .filter_map(|run| run.without(self.new_run(), gone));
        let added: Vec<Arc<Run>> = rest.map(Arc::new).collect();
        let bytes = |runs: &[Arc<Run>]| runs.iter().map(|run| run.bytes).sum::<u64>();
        let dropped = bytes(&removed) - bytes(&added);
        self.install(Installation {
            state,
            judged_at,
            removed,
            added,
            flushed: None,
        })?;
        self.counters.bytes_dropped.add(dropped);
        Ok(())
    }

    /// Where to cut the output of a rewrite: a slot is worth a table when it has a memtable's size, or a twenty-fourth of
    /// the container, whichever is more.
    fn cuts(&self, picture: &Picture, inputs: &[Arc<Run>], judge: &Judge) -> Vec<Timestamp> {
        let least = (self.options.memtable_bytes as u64).max(picture.version.bytes() / 24);
        plan(forecast(inputs, &judge.settings), least, judge.now)
    }

    fn job(
        &self,
        state: &ContainerState,
        picture: &Picture,
        inputs: &[Arc<Run>],
        judge: Judge,
        range_deletes: Vec<RangeDelete>,
        cuts: Vec<Timestamp>,
    ) -> Job {
        let is_input = |run: &&Arc<Run>| inputs.iter().any(|input| input.id == run.id);
        Job {
            container: state.id(),
            judge,
            snapshots: self.snapshots.list(),
            elsewhere: picture
                .version
                .runs
                .iter()
                .filter(|run| !is_input(run))
                .cloned()
                .collect(),
            range_deletes,
            cuts,
            options: TableOptions {
                block_bytes: self.options.block_bytes,
                compression: state.compression,
            },
            table_bytes: self.options.table_bytes,
            inputs: inputs
                .iter()
                .flat_map(|run| &run.tables)
                .map(|table| table.record.id)
                .collect(),
        }
    }

    fn run_job(&self, job: &Job, sources: Merge<Source>, purpose: Purpose) -> Result<Vec<Output>> {
        let mut host = Writer {
            engine: self,
            purpose,
            created: vec![],
        };
        let done = run(job, sources, &mut host).and_then(|outputs| {
            if !host.created.is_empty() {
                self.fs.sync_dir(&self.tables_dir())?;
            }
            Ok(outputs)
        });
        if done.is_err() {
            self.remove_tables(&host.created);
        }
        done
    }

    /// Installs what a job wrote; when that fails for certain, what it wrote goes again.
    fn install_outputs(
        &self,
        state: &Arc<ContainerState>,
        job: &Job,
        removed: Vec<Arc<Run>>,
        flushed: Option<(Arc<Buffer>, Vec<RangeDelete>)>,
        outputs: &[Output],
    ) -> Result<()> {
        let done = self.open_outputs(job, outputs).and_then(|added| {
            self.install(Installation {
                state,
                judged_at: job.judge.now,
                removed,
                added,
                flushed,
            })
        });
        let uncertain = self
            .manifest
            .lock()
            .as_ref()
            .is_some_and(|manifest| manifest.is_uncertain());
        if !matches!(done, Ok(true)) && !uncertain {
            let tables = outputs.iter().flat_map(|output| &output.tables);
            self.remove_tables(&tables.map(|table| table.id).collect::<Vec<_>>());
        }
        done.map(drop)
    }

    fn remove_tables(&self, tables: &[TableId]) {
        let dir = self.tables_dir();
        for id in tables {
            // What stays is removed by the next open.
            let _ = self.fs.remove(&dir.join(file_name::table(*id)));
        }
    }

    /// Makes a job's result what the container is: one edit, then the picture, then the files that went. False: the
    /// container was dropped meanwhile.
    fn install(&self, installation: Installation<'_>) -> Result<bool> {
        let Installation {
            state,
            judged_at,
            removed,
            added,
            flushed,
        } = installation;
        let mut manifest = self.manifest.lock();
        let known = manifest
            .as_ref()
            .ok_or(Error::Closed)?
            .catalogue()
            .containers
            .contains_key(&state.id());
        if !known {
            return Ok(false);
        }
        let current = state.pin();
        let next = next_version(
            &current.version,
            &removed,
            &added,
            flushed.as_ref().map(|(_, own)| own.as_slice()),
        );
        let mut changes = next_changes(state, &current.version, &next, &removed, &added);
        let first_segment =
            self.first_needed_segment(flushed.as_ref().map(|(buffer, _)| buffer))?;
        if let Some((buffer, _)) = &flushed {
            changes.push(Change::Flushed(state.id(), buffer.memtable.seq_max()));
            changes.push(Change::Log(first_segment));
        }
        self.edit_locked(&mut manifest, changes, judged_at)?;
        let next = Arc::new(next);
        if let Some((buffer, _)) = &flushed {
            // Before the picture: whoever sees the memtable gone sees that its numbers are flushed.
            state.set_flushed(buffer.memtable.seq_max());
        }
        state.install(|picture| {
            let mut sealed = picture.sealed.clone();
            if let Some((buffer, _)) = &flushed {
                sealed.retain(|other| !Arc::ptr_eq(other, buffer));
            }
            Picture {
                active: picture.active.clone(),
                sealed,
                version: next.clone(),
            }
        });
        if let Some((buffer, _)) = &flushed {
            self.unflushed
                .fetch_sub(buffer.counted(), Ordering::Relaxed);
        }
        drop(manifest);
        if !removed.is_empty() {
            state.release_pictures();
        }
        self.remove_runs_but(&removed, &added);
        if flushed.is_some() {
            // Installed it is in any case; what stays of the log goes with the next release.
            let _ = self.log()?.release_before(first_segment);
        }
        Ok(true)
    }

    fn open_outputs(&self, job: &Job, outputs: &[Output]) -> Result<Vec<Arc<Run>>> {
        let tables_dir = self.tables_dir();
        let open = |table: &FinishedTable| {
            let record = TableRecord {
                id: table.id,
                len: table.len,
                crc: table.crc,
            };
            Placed::open(
                self.fs.as_ref(),
                &tables_dir,
                job.container,
                record,
                &self.cache,
                &self.pins,
            )
        };
        let applied = applied(job);
        let runs = outputs.iter().map(|output| {
            let placed: Vec<Placed> = output.tables.iter().map(open).collect::<Result<_>>()?;
            let record = RunRecord {
                id: self.new_run(),
                end: (output.end != Timestamp::MAX).then_some(output.end),
                placed: job.judge.settings.default,
                applied,
                tables: placed.iter().map(|placed| placed.record).collect(),
            };
            Ok(Arc::new(Run::new(&record, placed)))
        });
        runs.collect()
    }

    /// The first log segment that is needed once `flushed` is in a table. The segment that is being written is read
    /// first: a memtable that is seen empty after that can only have writes in it or in later ones.
    fn first_needed_segment(&self, flushed: Option<&Arc<Buffer>>) -> Result<u64> {
        let segments = self.log()?.segments();
        let current = segments.last().expect("a log has a segment").number;
        let states = self.all_states();
        let needed = states.iter().flat_map(|state| {
            let picture = state.pin();
            let others = picture
                .buffers()
                .filter(|buffer| flushed.is_none_or(|gone| !Arc::ptr_eq(buffer, gone)));
            others.filter_map(|buffer| buffer.segment()).min()
        });
        let needed = needed.min().map_or(current, |oldest| oldest.min(current));
        // Only a segment whose name is durable may be named by the manifest; an earlier one does no harm.
        let durable = segments
            .iter()
            .filter(|segment| segment.durable && segment.number <= needed);
        Ok(durable
            .map(|segment| segment.number)
            .max()
            .unwrap_or(segments[0].number))
    }

    /// When the log is long because of small remains, these are logged again; larger ones are flushed.
    fn trim_log(&self) -> Result<bool> {
        let log = self.log()?;
        let segments = log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let limit = (4 * self.options.memtable_bytes as u64).max(3 * self.options.segment_len());
        if bytes <= limit {
            return Ok(false);
        }
        let oldest = segments[0].number;
        let holds_oldest =
            |state: &Arc<ContainerState>| state.picture().active.segment() == Some(oldest);
        let Some(state) = self.all_states().into_iter().find(holds_oldest) else {
            // Nobody does since its container was dropped.
            return self.advance_log(oldest);
        };
        if state.picture().active.memtable.bytes() > self.options.memtable_bytes / 16 {
            self.seal_one(&state);
            return self.flush_one(&state);
        }
        {
            let mut turn = self.turn.lock();
            let last = self.latest();
            let head = self.frame_head(FrameKind::Relog, last, last);
            let appender = turn.appender.as_mut().ok_or(Error::Closed)?;
            relog(&state, &head, appender)?;
        }
        self.advance_log(oldest)?;
        Ok(true)
    }

    /// Names the first segment that is needed, and gives up those before it; false when that is still `oldest`.
    fn advance_log(&self, oldest: u64) -> Result<bool> {
        self.sync_and_publish()?;
        let mut manifest = self.manifest.lock();
        let first = self.first_needed_segment(None)?;
        if first == oldest {
            return Ok(false);
        }
        self.edit_locked(&mut manifest, vec![Change::Log(first)], Timestamp(0))?;
        drop(manifest);
        self.log()?.release_before(first)?;
        Ok(true)
    }
}

/// Every range delete up to this number is applied in a job's output: those of which no open snapshot needs what they
/// cover.
fn applied(job: &Job) -> Seq {
    let oldest_snapshot = job.snapshots.first().copied().unwrap_or(Seq::MAX);
    let applied = job
        .range_deletes
        .iter()
        .map(|range| range.seq)
        .filter(|seq| *seq <= oldest_snapshot);
    applied.max().unwrap_or_default()
}

fn chosen(version: &Version, ids: &[RunId]) -> Vec<Arc<Run>> {
    version
        .runs
        .iter()
        .filter(|run| ids.contains(&run.id))
        .cloned()
        .collect()
}

fn next_version(
    current: &Version,
    removed: &[Arc<Run>],
    added: &[Arc<Run>],
    ranges: Option<&[RangeDelete]>,
) -> Version {
    let stays = |run: &&Arc<Run>| removed.iter().all(|gone| gone.id != run.id);
    let runs: Vec<_> = current
        .runs
        .iter()
        .filter(stays)
        .chain(added)
        .cloned()
        .collect();
    let all = current
        .range_deletes
        .iter()
        .chain(ranges.unwrap_or_default())
        .cloned()
        .collect();
    let version = Version::new(runs, all);
    let needed = version
        .range_deletes
        .iter()
        .filter(|range| version.needs(range))
        .cloned()
        .collect();
    Version::new(version.runs, needed)
}

fn next_changes(
    state: &ContainerState,
    current: &Version,
    next: &Version,
    removed: &[Arc<Run>],
    added: &[Arc<Run>],
) -> Vec<Change> {
    let id = state.id();
    let missing = |from: &Version, in_: &Version| -> Vec<RangeDelete> {
        from.range_deletes
            .iter()
            .filter(|range| !in_.range_deletes.contains(range))
            .cloned()
            .collect()
    };
    let mut changes: Vec<Change> = removed
        .iter()
        .map(|run| Change::RemoveRun(id, run.id))
        .collect();
    changes.extend(added.iter().map(|run| Change::AddRun(id, run.record())));
    changes.extend(
        missing(next, current)
            .into_iter()
            .map(|range| Change::AddRangeDelete(id, range)),
    );
    changes.extend(
        missing(current, next)
            .into_iter()
            .map(|range| Change::RemoveRangeDelete(id, range.seq)),
    );
    changes
}

/// A job's result on its way to become what the container is.
struct Installation<'a> {
    state: &'a Arc<ContainerState>,
    /// What was dropped was dead at this moment.
    judged_at: Timestamp,
    removed: Vec<Arc<Run>>,
    added: Vec<Arc<Run>>,
    flushed: Option<(Arc<Buffer>, Vec<RangeDelete>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Flush,
    Merge,
}

/// Gives a job its files and its budget.
struct Writer<'a> {
    engine: &'a Engine,
    purpose: Purpose,
    created: Vec<TableId>,
}

impl Host for Writer<'_> {
    fn create_table(&mut self) -> Result<(TableId, u64, Box<dyn File>)> {
        let id = self.engine.new_table();
        let file = self
            .engine
            .fs
            .create(&self.engine.tables_dir().join(file_name::table(id)))?;
        self.created.push(id);
        Ok((id, identity(), file))
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        let engine = self.engine;
        if self.purpose == Purpose::Flush {
            engine.counters.bytes_flushed.add(bytes);
            return Ok(());
        }
        engine.counters.bytes_merged.add(bytes);
        if engine.options.background == Background::Stepped {
            return Ok(());
        }
        let mut wait = engine.budget.lock().grant(bytes, monotonic());
        while !wait.is_zero() {
            if engine.closing.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            sleep(wait.min(NAP));
            // Asked anew: the rate may have changed.
            wait = engine.budget.lock().grant(0, monotonic());
        }
        Ok(())
    }
}

/// A number that no other file has.
fn identity() -> u64 {
    RandomState::new().hash_one(monotonic())
}
