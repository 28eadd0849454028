//! Installs a job's result: one edit of the catalogue, then the read state, then the removal of obsolete files.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::base::{ContainerId, Result, Seq, TableId, Timestamp, file_name, spans};
use crate::catalog::{
    Change, ContainerRecord, ContainerVersion, Run, RunId, RunRecord, TableFile, TableRecord,
    TableSpace,
};
use crate::compact::{Job, Output};
use crate::engine::Engine;
use crate::engine::jobs::left_out::{ends_dropped, forgotten_ranges, forgotten_tables};
use crate::engine::jobs::next_version::{next_version, range_changes};
use crate::engine::parts::catalog::Editing;
use crate::engine::parts::commit_log::Basis;
use crate::engine::parts::events::Event;
use crate::engine::parts::read_state::{Flushable, ReadState};
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{Census, ExpiryView, Settings};
use crate::table::FinishedTable;
use crate::values::listener::ReclaimEvent;
use crate::values::stats::ReclaimLag;

impl Engine {
    /// Drops obsolete tables by an edit alone. They were found obsolete in this version.
    pub(in crate::engine) fn drop_tables(
        &self,
        state: &Arc<ContainerState>,
        version: &ContainerVersion,
        gone: &[TableId],
        view: &ExpiryView,
    ) -> Result<()> {
        let _span = spans::reclaim(state.name(), gone.len());
        let holds_one =
            |run: &&Arc<Run>| run.files.iter().any(|file| gone.contains(&file.record.id));
        let removed: Vec<Arc<Run>> = version.runs.iter().filter(holds_one).cloned().collect();
        let rest = removed
            .iter()
            .filter_map(|run| run.without(self.catalog.new_run(), gone));
        let added: Vec<Arc<Run>> = rest.map(Arc::new).collect();
        let bytes = |runs: &[Arc<Run>]| runs.iter().map(|run| run.bytes).sum::<u64>();
        let dropped = bytes(&removed) - bytes(&added);
        let forgotten = forgotten_tables(version, gone);
        if !self.replace_runs(state, (removed, added), view, forgotten)? {
            return Ok(());
        }
        self.counters.bytes_dropped.add(dropped);
        self.note_event(|| {
            Event::Reclaim(ReclaimEvent {
                container: state.name().to_owned(),
                tables: gone.len() as u64,
                bytes: dropped,
            })
        });
        let files = version.runs.iter().flat_map(|run| &run.files);
        let settings = state.settings();
        let mut lag = ReclaimLag::default();
        for file in files.filter(|file| gone.contains(&file.record.id)) {
            let statistics = file.table.statistics();
            let newest = statistics.census.seq_max;
            let is_older = newest < settings.floor_seq;
            let mut commands = settings.commands.iter();
            let command = commands.find(|command| newest < command.seq);
            for (expired, bytes) in statistics.histograms.forecast(&settings) {
                let given = command.filter(|command| expired < command.reach.own);
                let since =
                    settings.overdue_since(expired, is_older, given.map(|command| command.at));
                lag.add(view.now.since(since), bytes);
            }
        }
        self.counters.note_reclaimed(&lag, 0);
        Ok(())
    }

    /// Joins runs of a version into one, by an edit: the catalogue lists their tables together.
    pub(in crate::engine) fn join_runs(
        &self,
        state: &Arc<ContainerState>,
        version: &ContainerVersion,
        runs: &[RunId],
        view: &ExpiryView,
    ) -> Result<()> {
        let chosen = version.runs.iter().filter(|run| runs.contains(&run.id));
        let removed: Vec<Arc<Run>> = chosen.cloned().collect();
        let added = vec![Arc::new(Run::joined(self.catalog.new_run(), &removed))];
        self.replace_runs(state, (removed, added), view, Seq(0))?;
        Ok(())
    }

    /// Installs what flushes wrote, by one edit. A flush whose tables do not open is left out and retried, unless it is
    /// the only one.
    pub(in crate::engine) fn install_flushes(
        &self,
        flushes: &[Flushed<'_>],
        basis: Basis<'_>,
    ) -> Result<()> {
        let (mut installations, mut failure) = (vec![], None);
        for flush in flushes {
            match self.open_outputs(&flush.job, &flush.outputs, file_name::table) {
                Ok(added) => installations.push(Installation::of_flush(flush, added)),
                Err(error) => failure = Some(error),
            }
        }
        let done = match failure {
            Some(error) if installations.is_empty() => Err(error),
            _ => self.install(installations, basis),
        };
        for flush in flushes {
            let id = flush.state.id();
            let installed = done.as_ref().is_ok_and(|installed| installed.contains(&id));
            self.clear_away(installed, &flush.outputs);
        }
        done.map(drop)
    }

    /// Installs one part of a rewrite: its inputs leave their runs, and its outputs join the runs of the same slots
    /// that earlier parts wrote. False: the container was dropped meanwhile.
    pub(in crate::engine) fn install_rewrite(
        &self,
        state: &Arc<ContainerState>,
        job: &Job,
        inputs: Vec<Arc<Run>>,
        outputs: &[Output],
        progress: &mut Progress,
    ) -> Result<bool> {
        let mut written = progress.written.clone();
        let opened = self.open_outputs(job, outputs, file_name::table);
        let done = opened.and_then(|opened| {
            let version = state.pin().version.clone();
            let mut removed = inputs;
            let rest = removed
                .iter()
                .filter_map(|run| run.without(self.catalog.new_run(), &job.inputs));
            let mut added: Vec<Arc<Run>> = rest.map(Arc::new).collect();
            for (output, run) in outputs.iter().zip(opened) {
                let before = written.get(&output.slot);
                let before = before.and_then(|id| version.runs.iter().find(|run| run.id == *id));
                let run = match before {
                    Some(before) => {
                        removed.push(before.clone());
                        Arc::new(Run::joined(self.catalog.new_run(), &[before.clone(), run]))
                    }
                    None => run,
                };
                written.insert(output.slot, run.id);
                added.push(run);
            }
            self.replace_runs(state, (removed, added), &job.view, progress.forgotten)
        });
        self.clear_away(matches!(done, Ok(true)), outputs);
        progress.written = written;
        done
    }

    /// Removes outputs that were not installed: at once, or as soon as it is certain that no edit names them.
    pub(in crate::engine) fn clear_away(&self, installed: bool, outputs: &[Output]) {
        if installed {
            return;
        }
        let tables = outputs.iter().flat_map(|output| &output.tables);
        let tables: Vec<TableId> = tables.map(|table| table.id).collect();
        self.catalog.give_up_tables(tables);
    }

    fn replace_runs(
        &self,
        state: &Arc<ContainerState>,
        (removed, added): (Vec<Arc<Run>>, Vec<Arc<Run>>),
        view: &ExpiryView,
        forgotten: Seq,
    ) -> Result<bool> {
        let replaced = Installation {
            state,
            view: view.clone(),
            removed,
            added,
            flushed: None,
            forgotten,
            loaded: None,
        };
        let installed = self.install(vec![replaced], self.basis_of_purge()?)?;
        Ok(!installed.is_empty())
    }

    /// Installs the results of jobs, each for another container: one edit, then the read states, then the removal of
    /// obsolete files. Returns which containers still exist; the others were dropped meanwhile.
    fn install(
        &self,
        installations: Vec<Installation<'_>>,
        basis: Basis<'_>,
    ) -> Result<Vec<ContainerId>> {
        self.wait_for_stamped();
        self.install_now(installations, basis)
    }

    /// The same, when every write that was stamped before is visible.
    pub(in crate::engine) fn install_now(
        &self,
        installations: Vec<Installation<'_>>,
        basis: Basis<'_>,
    ) -> Result<Vec<ContainerId>> {
        self.install_by(self.catalog.edit(), installations, (basis, vec![]))
    }

    /// The same by an edit that also makes other changes.
    pub(in crate::engine) fn install_by(
        &self,
        mut manifest: Editing<'_>,
        mut installations: Vec<Installation<'_>>,
        (basis, more): (Basis<'_>, Vec<Change>),
    ) -> Result<Vec<ContainerId>> {
        let known = &manifest.catalogue()?.containers;
        installations.retain(|installation| known.contains_key(&installation.state.id()));
        if installations.is_empty() && more.is_empty() {
            return Ok(vec![]);
        }
        let judged_at = installations.iter().map(|one| one.view.now).max();
        let judged_at = judged_at.unwrap_or_default();
        let mut plan = self.plan(&installations, basis, known)?;
        plan.changes.extend(more);
        for some in plan.early {
            self.edit(&mut manifest, basis, some, judged_at)?;
        }
        self.edit(&mut manifest, basis, plan.changes, judged_at)?;
        for (one, (version, missing)) in installations.iter().zip(&plan.versions) {
            self.replace_read_state(one, version, *missing);
        }
        drop(manifest);
        for one in &installations {
            self.retire_inputs(one);
        }
        if let Some(first) = plan.first_segment {
            // The result is installed in any case; log segments that stay go with the next release.
            let _ = self.commit_log.log()?.release_before(first);
        }
        Ok(installations.iter().map(|one| one.state.id()).collect())
    }

    /// The new versions of the containers and the changes that lead there; changes nothing.
    fn plan(
        &self,
        installations: &[Installation<'_>],
        basis: Basis<'_>,
        records: &BTreeMap<ContainerId, ContainerRecord>,
    ) -> Result<InstallPlan> {
        let (mut changes, mut early, mut versions) = (vec![], vec![], vec![]);
        for one in installations {
            let current = one.state.pin();
            let own = one
                .flushed
                .map(|flush| (&flush.flushable, &*flush.job.snapshots));
            let next = next_version(&current.version, &one.removed, &one.added, own);
            let id = one.state.id();
            let removed = one.removed.iter();
            changes.extend(removed.map(|run| Change::RemoveRun(id, run.id)));
            let added = one.added.iter();
            changes.extend(added.map(|run| Change::AddRun(id, run.record())));
            let mut of_ranges = range_changes(id, &current.version, &next);
            changes.extend(of_ranges.pop().unwrap_or_default());
            early.extend(of_ranges);
            if let Some(flush) = one.flushed {
                assert!(
                    basis.covers(flush.up_to),
                    "what is flushed is durable in the log"
                );
            }
            let missing = one.missing(&next);
            changes.extend(missing.durable_changes(&records[&id]));
            changes.extend(one.loaded.as_ref().and_then(|loaded| loaded.change_of(id)));
            versions.push((Arc::new(next), missing));
        }
        let flushed: Vec<&Flushed<'_>> =
            installations.iter().filter_map(|one| one.flushed).collect();
        let mut first_segment = None;
        if !flushed.is_empty() && self.commit_log.begun().is_some() {
            let gone: Vec<_> = flushed.iter().map(|flush| &flush.leaves).collect();
            let rests: Vec<_> = flushed
                .iter()
                .filter_map(|flush| flush.rest.as_ref())
                .collect();
            let first = self.first_needed_segment(&gone, &rests)?;
            changes.push(Change::Log(Some(self.commit_log.log()?.start(first))));
            first_segment = Some(first);
        }
        Ok(InstallPlan {
            early,
            changes,
            versions,
            first_segment,
        })
    }

    /// Makes the installed version visible to readers.
    fn replace_read_state(
        &self,
        one: &Installation<'_>,
        version: &Arc<ContainerVersion>,
        missing: Missing,
    ) {
        if one.loaded.is_some() {
            one.state.bare().clear();
        }
        one.state.install(missing, |read_state| {
            let mut memtables: Vec<_> = read_state.flushables().cloned().collect();
            if let Some(flush) = one.flushed {
                memtables.retain(|other| !Arc::ptr_eq(other, &flush.leaves));
                // `rest` takes the place of the oldest.
                memtables.extend(flush.rest.clone());
            }
            let sealed = memtables.split_off(1);
            ReadState {
                active: memtables.remove(0),
                sealed,
                version: version.clone(),
            }
        });
        if let Some(flush) = one.flushed {
            let stays = flush.rest.as_ref().map_or(0, |rest| rest.count_growth());
            self.throttle
                .replace_unflushed(flush.leaves.counted(), stays);
        }
    }

    /// Removes the replaced tables, as soon as no reader holds them.
    fn retire_inputs(&self, one: &Installation<'_>) {
        if !one.removed.is_empty() {
            one.state.release_read_states();
        }
        self.remove_runs_but(&one.removed, &one.added);
        if let Some(flush) = one.flushed {
            self.mark_stale(&flush.leaves);
            flush.leaves.memtable.retire();
        }
    }

    /// Waits until every write that was stamped before the job read the clock is visible: it may rely on a version that
    /// the job found dead, and a reader must not miss both. A write that fails here never counted.
    pub(in crate::engine) fn wait_for_stamped(&self) {
        let latest = {
            let _commit = self.commit_log.lock();
            self.commit_log.latest()
        };
        let _ = self.make_visible(latest);
    }

    /// The runs that a job wrote; `name` returns the name of a table's file.
    pub(in crate::engine) fn open_outputs(
        &self,
        job: &Job,
        outputs: &[Output],
        name: impl Fn(TableId) -> String,
    ) -> Result<Vec<Arc<Run>>> {
        let space = TableSpace {
            fs: self.fs.as_ref(),
            dir: &self.tables_dir(),
            cache: &self.cache,
            pins: self.obsolete.pins(),
            reads: self.options.reads,
        };
        let open = |table: &FinishedTable| {
            let record = TableRecord {
                id: table.id,
                len: table.len,
                crc: table.crc,
            };
            TableFile::open_as(&space, job.container, record, &name(table.id))
        };
        let applied = job.applied();
        let runs = outputs.iter().map(|output| {
            let files: Vec<TableFile> = output.tables.iter().map(open).collect::<Result<_>>()?;
            let record = RunRecord {
                id: self.catalog.new_run(),
                end: (output.end != Timestamp::MAX).then_some(output.end),
                end_assumes: job.view.settings.default,
                applied,
                tables: files.iter().map(|file| file.record).collect(),
            };
            Ok(Arc::new(Run::new(&record, files)))
        });
        runs.collect()
    }
}

/// The progress of a rewrite.
pub(in crate::engine) struct Progress {
    /// Where dated output is cut: the same times in every part, so that records that end together lie together.
    pub cuts: Vec<Timestamp>,
    /// For each slot the run that its output goes to.
    pub written: BTreeMap<usize, RunId>,
    /// Bytes of the tables written.
    pub bytes: u64,
    /// The highest sequence number of a delete or an end that the current part leaves out.
    pub forgotten: Seq,
}

/// Bytes of the tables of these outputs.
pub(in crate::engine) fn bytes_of(outputs: &[Output]) -> u64 {
    let tables = outputs.iter().flat_map(|output| &output.tables);
    tables.map(|table| table.len).sum()
}

/// A job's result that is being installed.
pub(in crate::engine) struct Installation<'a> {
    pub state: &'a Arc<ContainerState>,
    /// The view by which the dropped records were dead.
    pub view: ExpiryView,
    pub removed: Vec<Arc<Run>>,
    pub added: Vec<Arc<Run>>,
    pub flushed: Option<&'a Flushed<'a>>,
    /// The highest sequence number of a delete or an end that is left out.
    pub forgotten: Seq,
    /// A bulk load; every earlier record of the container is in runs then.
    pub loaded: Option<Loaded>,
}

/// A bulk load that takes effect.
pub(in crate::engine) struct Loaded {
    /// Its sequence number.
    pub seq: Seq,
    /// The container's settings, where it changes them.
    pub settings: Option<Settings>,
}

impl Loaded {
    fn change_of(&self, id: ContainerId) -> Option<Change> {
        let settings = self.settings.clone();
        settings.map(|settings| Change::Settings(id, settings, self.seq))
    }
}

impl<'a> Installation<'a> {
    /// Of a flush that wrote these runs.
    pub fn of_flush(flush: &'a Flushed<'a>, added: Vec<Arc<Run>>) -> Installation<'a> {
        Installation {
            state: flush.state,
            view: flush.job.view.clone(),
            removed: vec![],
            added,
            flushed: Some(flush),
            forgotten: flush.forgotten,
            loaded: None,
        }
    }
}

impl Installation<'_> {
    /// Notes of the records that the read state lacks once this version is installed.
    fn missing(&self, next: &ContainerVersion) -> Missing {
        let flushed = self.flushed.map(|flush| flush.up_to);
        let ends = self.ends_dropped();
        // The note in memory may be ahead of the catalogue: a command may drop out of the settings, and no edit has to
        // say so.
        let noted = self.state.changes_low_water();
        Missing {
            // After a load, too, a write that relies on a read of the container looks again in its runs.
            flushed: self.loaded.as_ref().map(|loaded| loaded.seq).or(flushed),
            purged: self.may_purge().then_some(self.view.now),
            changes: self.forgotten_with(next).max(noted),
            ends: ends.map(|end| (end, self.view.settings.last_change_seq())),
        }
    }

    /// The highest sequence number of a delete, of a key or of a range, or an end that is not stored any more once this
    /// version is installed.
    fn forgotten_with(&self, next: &ContainerVersion) -> Seq {
        let own = self.flushed.map(|flush| &flush.flushable.memtable);
        let own = own.map(|memtable| memtable.range_deletes());
        let before = self.state.pin();
        let ranges = [&before.version.range_deletes].into_iter().chain(own);
        self.forgotten.max(forgotten_ranges(ranges, next))
    }

    /// Whether some input had ended, as far as the census tells, so that its record may be dropped.
    fn may_purge(&self) -> bool {
        let memtable = self.flushed.map(|flush| flush.leaves.memtable.census());
        let runs = self.removed.iter().map(|run| run.census);
        let mut inputs = runs.chain(memtable);
        inputs.any(|census| census.oldest_dead(Seq(0), &self.view).is_some())
    }

    /// The moment up to which ends are unknown, since dead records are left out; none: none is, as far as the census
    /// tells.
    fn ends_dropped(&self) -> Option<Timestamp> {
        let stay = self.added.iter().flat_map(|run| run.table_ids());
        let stay: HashSet<TableId> = stay.collect();
        let removed = self.removed.iter().flat_map(|run| &run.tables);
        let gone: BTreeMap<TableId, Census> = removed
            .filter(|table| !stay.contains(&table.id))
            .map(|table| (table.id, table.statistics.census))
            .collect();
        let memtable = self.flushed.map(|flush| flush.leaves.memtable.census());
        let version = self.state.pin().version.clone();
        let tables = version.runs.iter().flat_map(|run| &run.tables);
        let others = tables.filter(|table| !gone.contains_key(&table.id));
        let others = others.map(|table| table.statistics.census);
        ends_dropped(gone.values().copied().chain(memtable), others, &self.view)
    }
}

/// The changes of an installation, decided before anything is changed.
struct InstallPlan {
    /// Edits before the one that counts: many range deletes come in several edits, so that none is long. They stay in
    /// the log until the last of these edits, so recovery may see them twice.
    early: Vec<Vec<Change>>,
    /// The edit that counts.
    changes: Vec<Change>,
    /// The new version of each container, and notes of the records that its read state lacks then.
    versions: Vec<(Arc<ContainerVersion>, Missing)>,
    /// The first log segment still needed then, if it changed.
    first_segment: Option<u64>,
}

/// The result of a flush.
pub(in crate::engine) struct Flushed<'a> {
    pub state: &'a Arc<ContainerState>,
    /// The memtable that was judged and written, with its range deletes.
    pub flushable: Arc<Flushable>,
    pub job: Job,
    pub outputs: Vec<Output>,
    /// The highest sequence number of a delete or an end that was left out.
    pub forgotten: Seq,
    /// The memtable that leaves the read state, the container's oldest: the same one, unless only part of it was
    /// written.
    pub leaves: Arc<Flushable>,
    /// The memtable that takes its place, if only part was written, or if it was the active one.
    pub rest: Option<Arc<Flushable>>,
    /// After it, the container's records up to this sequence number are in tables.
    pub up_to: Seq,
}
