//! The old log, which an open on a full disk keeps: how it frees room without needing any.
//!
//! ```text
//! segments    5            6            7            8                  ring: the end of 8, perhaps nowhere else
//! records     d d L d L    d d d d d    L d d d d    d d L d            d: dead, L: living
//!
//! step 1      a living record in 5: no segment can be removed
//! step 2      the end of 8 is copied from the ring into 8               the ring is removed: a segment's size, or half of it
//! step 3      both L of 5 are written to a table, first = 7             5 and 6 are removed; memory holds 7 and 8
//! step 4 ...  the same with 7, until what lives finds room in a new log
//! ```
//!
//! * **Dead records are not relogged**: those that a flush, by the same verdict, would drop.
//! * **Segments are removed from the front**, by an edit alone, for which room is reserved: all before the first that
//!   may hold a needed record. When no record is needed, the whole chain is removed, the manifest names no log, and the
//!   memtables are freed.
//! * **The ring is removed** once its frames are in segments, whose blocks are allocated already.
//! * **Live records of the front are flushed** (jobs/front.rs), as many as there is room for. The edit that names the
//!   table also records up to which sequence number its container is flushed, and names the first segment that is left.
//!
//! **Why segments may be removed from the front.** Removed segments have sequence numbers below `cut`, the lowest that
//! is needed; a record in a later segment is not needed or has a higher one. A dropped record must not come back
//! without the record that hid it. Let x stay in the log, and let y, which hides it, be removed: then y is newer than
//! x, and all frames with y are in removed segments. If x is in the frame of its write, y was written later, so it
//! stays. If x is in a relogged frame, then y was in the same memtable and was relogged with it, or was written later:
//! it stays. A relog counts as the highest sequence number of its moment, so all of its frames stay or none does. The
//! edit carries the mark by which the records were judged dead, as every edit does that drops records.

use std::sync::Arc;

use crate::base::{Result, Seq, Timestamp, file_name};
use crate::catalog::{Change, Version};
use crate::data::range_delete::RangeDelete;
use crate::engine::Engine;
use crate::engine::jobs::install::{Flushed, next_version, range_changes};
use crate::engine::jobs::left_out::ends_without;
use crate::engine::parts::commit_log::OldLog;
use crate::engine::parts::read_state::{Flushable, ReadState};
use crate::engine::parts::read_states::Missing;
use crate::engine::parts::state::ContainerState;
use crate::expiry::ExpiryView;
use crate::wal::{LogStart, drain_ring, remove_before, remove_rings};

/// The most bytes that a record takes in the log besides key and value.
const RECORD_OVERHEAD: u64 = 64;

/// A memtable without its records up to a sequence number.
struct Shortened<'a> {
    state: &'a Arc<ContainerState>,
    /// The memtable, as it was when it was judged.
    before: Arc<Flushable>,
    up_to: Seq,
    /// The latest view by which it was judged.
    view: ExpiryView,
    /// The memtable that replaces it.
    rest: Arc<Flushable>,
    /// The table of the needed ones among these records; `None`: none is needed.
    flushed: Option<Flushed<'a>>,
}

impl Shortened<'_> {
    /// What its container's read state is without then.
    fn missing(&self, version: &Version) -> Missing {
        let census = self.before.memtable.census();
        let has_dead = census.oldest_dead(Seq(0), &self.view).is_some();
        Missing {
            flushed: Some(self.up_to),
            purged: has_dead.then_some(self.view.now),
            // What was not needed was left out unseen.
            changes: self.before.memtable.seq_max(),
            ends: ends_without(version, &self.before, &self.view),
        }
    }
}

/// Callers hold `flushing`, so that nothing changes between a judgement and its edit.
impl Engine {
    /// Removes, by an edit, the part of the old log that is not needed; false when there is none.
    pub(in crate::engine) fn give_back_old_log(&self, old: &OldLog) -> Result<bool> {
        // No memtable is sealed or flushed before there is a log. Judging comes before taking the commit lock: gone is
        // final, and no write is accepted.
        let states = self.containers.all();
        let (mut needed_from, mut judged_at, mut idle) = (None::<Seq>, Timestamp(0), vec![]);
        for state in &states {
            let (read_state, view) = (state.pin(), self.settled_view(state));
            judged_at = judged_at.max(view.now);
            match self.oldest_needed(state, &read_state, view.clone())? {
                Some(seq) => needed_from = Some(needed_from.map_or(seq, |from| from.min(seq))),
                None if read_state.active.memtable.is_empty() => {}
                None => idle.push(Shortened {
                    state,
                    before: read_state.active.clone(),
                    up_to: read_state.active.memtable.seq_max(),
                    view,
                    rest: state.new_flushable(),
                    flushed: None,
                }),
            }
        }
        self.advance_old_log(old, &idle, needed_from, judged_at)
    }

    /// Removes the old log's ring, after copying what only the ring holds into segments. False when there is none.
    pub(in crate::engine) fn give_back_ring(&self) -> Result<bool> {
        let commit = self.commit_log.lock();
        let mut manifest = self.catalog.edit();
        if self.commit_log.begun().is_some() {
            return Ok(false);
        }
        let wal_dir = self.wal_dir();
        match manifest.catalogue()?.log {
            Some(start) if start.ring.is_some() => {
                drain_ring(self.fs.as_ref(), &wal_dir, &start)?;
                let without = LogStart {
                    ring: None,
                    ..start
                };
                let basis = self.commit_log.all_before(&commit)?;
                let named = vec![Change::Log(Some(without))];
                self.edit(&mut manifest, basis, named, Timestamp(0))?;
            }
            _ => {}
        }
        // Including rings that an earlier edit released and a failed removal left behind.
        Ok(self.removed(remove_rings(self.fs.as_ref(), &wal_dir)) > 0)
    }

    /// Flushes the needed records of the old log's first segments, as many segments as there is room for, and removes
    /// these; false when there is no room for the first.
    pub(in crate::engine) fn flush_front_of_old_log(&self, old: &OldLog) -> Result<bool> {
        let Some(start) = self.catalog.edit().catalogue()?.log else {
            return Ok(false);
        };
        let left = old.segments.iter();
        let left = left.filter(|segment| segment.number >= start.oldest());
        let ends: Vec<Seq> = left.map(|segment| segment.last_seq).collect();
        let active = |state| {
            let state: Arc<ContainerState> = state;
            let flushable = state.read_state().active.clone();
            (state, flushable)
        };
        let memory: Vec<_> = self.containers.all().into_iter().map(active).collect();
        let mut fronts = self.fronts(&ends, &memory)?;
        fronts.retain(|(cut, _)| old.holding(ends[*cut].next()) != Some(start.oldest()));
        let cuts = self.cuts(fronts, 0)?;
        self.try_cuts(cuts, |cut| self.flush_up_to(old, ends[cut]))
    }

    /// Flushes the needed records up to a sequence number, and removes all records up to it from memory.
    fn flush_up_to(&self, old: &OldLog, up_to: Seq) -> Result<bool> {
        let states = self.containers.all();
        let (mut cuts, mut needed_from, mut judged_at) = (vec![], None, Timestamp(0));
        let written = states.iter().try_for_each(|state| {
            let read_state = state.pin();
            let memtable = &read_state.active.memtable;
            if memtable.seq_max() > up_to {
                needed_from = Some(up_to.next());
            }
            if memtable.seq_min() > up_to {
                return Ok(());
            }
            let view = self.settled_view(state);
            judged_at = judged_at.max(view.now);
            let (front, rest) = self.divide(state, &read_state.active, view.clone(), up_to)?;
            let flushed = match front.memtable.is_empty() {
                true => None,
                false => Some(self.write_flush(state, front)?.0),
            };
            let view = match &flushed {
                Some(flush) if flush.job.view.now > view.now => flush.job.view.clone(),
                _ => view,
            };
            let before = read_state.active.clone();
            cuts.push(Shortened {
                state,
                before,
                up_to,
                view,
                rest,
                flushed,
            });
            Ok(())
        });
        let done = written
            .and_then(|()| self.sync_tables(cuts.iter().filter_map(|cut| cut.flushed.as_ref())))
            .and_then(|()| self.advance_old_log(old, &cuts, needed_from, judged_at));
        let installed = matches!(done, Ok(true));
        for flush in cuts.iter().filter_map(|cut| cut.flushed.as_ref()) {
            self.clear_away(installed, &flush.outputs);
            self.counters.flushes.add(u64::from(installed));
        }
        done
    }

    /// One edit: takes a part from each of these memtables, and from the log what lies before `needed_from`, or all of
    /// it. If that frees no segment, changes nothing and returns false.
    fn advance_old_log(
        &self,
        old: &OldLog,
        cuts: &[Shortened<'_>],
        needed_from: Option<Seq>,
        judged_at: Timestamp,
    ) -> Result<bool> {
        let mut commit = self.commit_log.lock();
        let mut manifest = self.catalog.edit();
        let catalogue = manifest.catalogue()?;
        if self.commit_log.begun().is_some() {
            return Ok(false);
        }
        let start = catalogue.log;
        let rest = start.zip(needed_from).map(|(start, from)| {
            let first = old.holding(from).unwrap_or(start.oldest());
            start.needed_from(first)
        });
        if rest == start {
            drop(manifest);
            return Ok(self.remove_old_segments(old, start) > 0);
        }
        let is_known = |cut: &&Shortened<'_>| catalogue.containers.contains_key(&cut.state.id());
        let (cuts, dropped): (Vec<_>, Vec<_>) = cuts.iter().partition(is_known);
        let (mut changes, mut versions) = (vec![], vec![]);
        for cut in cuts.iter().copied() {
            let is_as_judged = Arc::ptr_eq(&cut.state.read_state().active, &cut.before);
            assert!(is_as_judged, "one thread at a time lets go of the old log");
            let current = cut.state.pin().version.clone();
            let missing = cut.missing(&current);
            let (next, of_cut) = self.version_after(cut, current)?;
            changes.extend(of_cut);
            changes.extend(missing.told_to(&catalogue.containers[&cut.state.id()]));
            versions.push((next, missing));
        }
        changes.extend([Change::Log(rest), Change::used(self.commit_log.latest())]);
        let basis = self.commit_log.all_before(&commit)?;
        self.edit(&mut manifest, basis, changes, judged_at)?;
        for (cut, (version, missing)) in cuts.into_iter().zip(versions) {
            commit.remove_active(cut.before.counted());
            self.throttle.remove_unflushed(cut.before.counted());
            let stays = cut.rest.count_growth();
            commit.add_active(stays);
            self.throttle.add_unflushed(&commit, stays);
            cut.state.install(missing, |read_state| ReadState {
                active: cut.rest.clone(),
                sealed: read_state.sealed.clone(),
                version,
            });
            cut.before.memtable.retire();
        }
        drop(manifest);
        for flush in dropped.iter().filter_map(|cut| cut.flushed.as_ref()) {
            self.clear_away(false, &flush.outputs);
        }
        self.remove_old_segments(old, rest);
        Ok(true)
    }

    /// The container's version after the cut, and the changes that lead there.
    fn version_after(
        &self,
        cut: &Shortened<'_>,
        current: Arc<Version>,
    ) -> Result<(Arc<Version>, Vec<Change>)> {
        let Some(flush) = &cut.flushed else {
            return Ok((current, vec![]));
        };
        let id = cut.state.id();
        let added = self.open_outputs(&flush.job, &flush.outputs, file_name::table)?;
        let own = (&flush.flushable, &*flush.job.snapshots);
        let next = next_version(&current, &[], &added, Some(own));
        let mut changes: Vec<Change> = added
            .iter()
            .map(|run| Change::AddRun(id, run.record()))
            .collect();
        changes.extend(range_changes(id, &current, &next).into_iter().flatten());
        Ok((Arc::new(next), changes))
    }

    /// Removes old segments, including those that an earlier edit released; returns how many files.
    fn remove_old_segments(&self, old: &OldLog, rest: Option<LogStart>) -> usize {
        let (first, rings) = rest.map_or((old.next_segment, true), |rest| (rest.oldest(), false));
        self.removed(remove_before(
            self.fs.as_ref(),
            &self.wal_dir(),
            first,
            rings,
        ))
    }

    /// Notes that this many files of the log were removed, durably, before their room is used: after a power cut they
    /// would take it again.
    fn removed(&self, files: usize) -> usize {
        if files > 0 {
            let _ = self.fs.sync_dir(&self.wal_dir());
        }
        files
    }

    /// The lowest sequence number of the needed records in a container's memory.
    fn oldest_needed(
        &self,
        state: &Arc<ContainerState>,
        read_state: &ReadState,
        view: ExpiryView,
    ) -> Result<Option<Seq>> {
        let mut own = read_state.active.memtable.range_deletes().iter();
        let oldest = own.find(|delete| read_state.version.needs(delete));
        let mut lowest: Option<Seq> = oldest.map(|delete| delete.seq);
        self.needed(state, &read_state.active, view, &mut |header, _, _| {
            lowest = Some(lowest.map_or(header.seq, |lowest| lowest.min(header.seq)));
            Ok(())
        })?;
        Ok(lowest)
    }

    /// The most bytes that the needed records take in the log.
    pub(in crate::engine) fn needed_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for state in self.containers.all() {
            let (read_state, view) = (state.pin(), self.settled_view(&state));
            for RangeDelete { range, .. } in read_state.active.memtable.range_deletes().iter() {
                let to = range.to.as_ref().map_or(0, Vec::len);
                bytes += (range.from.len() + to) as u64 + RECORD_OVERHEAD;
            }
            self.needed(&state, &read_state.active, view, &mut |_, key, value| {
                bytes += (key.len() + value.len()) as u64 + RECORD_OVERHEAD;
                Ok(())
            })?;
        }
        Ok(bytes)
    }
}
