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
//! * **Live records of the front are flushed** (jobs/partial_flush.rs), as many as there is room for. The edit that names the
//!   table also records up to which sequence number its container is flushed, and names the first segment that is left.
//!
//! **Why the log is not kept instead** (wal/keep.rs). That takes room for the first segment and the ring of a new chain, a
//! log that ends in zeros, proof that no sync of it has failed, and no kept prefix before it. A full disk lacks the first,
//! and may lack each of the others: a segment in reserve, which a log at rest has given back, would spare none of this.
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
use crate::catalog::Change;
use crate::data::range_delete::RangeDelete;
use crate::engine::Engine;
use crate::engine::jobs::install::{Flushed, Installation};
use crate::engine::parts::commit_log::OldLog;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::expiry::ExpiryView;
use crate::wal::{LogStart, drain_ring, remove_before, remove_rings};

/// The most bytes that a record takes in the log besides key and value.
const RECORD_OVERHEAD: u64 = 64;

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
            match self.oldest_needed(state, &read_state, view)? {
                Some(seq) => needed_from = Some(needed_from.map_or(seq, |from| from.min(seq))),
                None if read_state.active.memtable.is_empty() => {}
                None => idle.push((state, read_state.active.memtable.seq_max())),
            }
        }
        self.commit_log.rely_on(judged_at);
        self.take_fronts(old, &idle, needed_from)
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
        let (mut fronts, mut needed_from) = (vec![], None);
        for state in &states {
            let read_state = state.pin();
            let memtable = &read_state.active.memtable;
            if memtable.seq_max() > up_to {
                needed_from = Some(up_to.next());
            }
            if memtable.seq_min() <= up_to {
                fronts.push((state, up_to));
            }
        }
        self.take_fronts(old, &fronts, needed_from)
    }

    /// Takes the records up to a sequence number from each of these containers' memory, after writing the needed ones
    /// to a table, and from the log the part before `needed_from`, or all of it. If that frees no segment, changes
    /// nothing; false if no file goes either.
    fn take_fronts(
        &self,
        old: &OldLog,
        fronts: &[(&Arc<ContainerState>, Seq)],
        needed_from: Option<Seq>,
    ) -> Result<bool> {
        let start = self.catalog.edit().catalogue()?.log;
        if old.without(start, needed_from) == start {
            return Ok(self.remove_old_segments(old, start) > 0);
        }
        let mut flushed = vec![];
        let written = fronts.iter().try_for_each(|(state, up_to)| {
            let active = state.read_state().active.clone();
            flushed.push(self.write_front(state, &active, *up_to)?.0);
            Ok(())
        });
        let done = written
            .and_then(|()| self.sync_tables(flushed.iter()))
            .and_then(|()| self.advance_old_log(old, &flushed, needed_from));
        let installed = matches!(done, Ok(true));
        for flush in &flushed {
            self.clear_away(installed, &flush.outputs);
            self.counters.flushes.add(u64::from(installed));
        }
        done
    }

    /// Installs these fronts, by one edit that names the first segment that is left.
    fn advance_old_log(
        &self,
        old: &OldLog,
        fronts: &[Flushed<'_>],
        needed_from: Option<Seq>,
    ) -> Result<bool> {
        let mut commit = self.commit_log.lock();
        let manifest = self.catalog.edit();
        let catalogue = manifest.catalogue()?;
        if self.commit_log.begun().is_some() {
            return Ok(false);
        }
        let rest = old.without(catalogue.log, needed_from);
        let is_known = |front: &&Flushed<'_>| catalogue.containers.contains_key(&front.state.id());
        let (fronts, dropped): (Vec<_>, Vec<_>) = fronts.iter().partition(is_known);
        let installations = fronts.iter().copied().map(|front| {
            let is_as_judged = Arc::ptr_eq(&front.state.read_state().active, &front.leaves);
            assert!(is_as_judged, "one thread at a time lets go of the old log");
            let added = self.open_outputs(&front.job, &front.outputs, file_name::table)?;
            Ok(Installation::of_flush(front, added))
        });
        let installations: Vec<_> = installations.collect::<Result<_>>()?;
        let basis = self.commit_log.all_before(&commit)?;
        let names = vec![Change::Log(rest), Change::used(self.commit_log.latest())];
        self.install_by(manifest, installations, (basis, names))?;
        for front in dropped {
            self.clear_away(false, &front.outputs);
        }
        for front in fronts {
            commit.remove_active(front.leaves.counted());
            commit.add_active(front.rest.as_ref().map_or(0, |rest| rest.counted()));
        }
        self.remove_old_segments(old, rest);
        Ok(true)
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
