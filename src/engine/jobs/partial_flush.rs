//! Flushing only the front of the log, when there is no room for a whole memtable's table.
//!
//! Example: the disk is full, and a tenth of a memtable of 64 MiB is live. Its table would take 6 MiB, which is not
//! there. The live records of the log's first segment take 0.8 MiB, and once they are in a table, the segment frees 8
//! MiB.
//!
//! ```text
//! segment     5            6            7
//! record      d L d d L    d d L d d    L d d L d         d: dead, L: living
//!                     `- the cut: the last sequence number in segment 5
//! table       L L
//! memtable                     L        L     L           a new one, which is needed from segment 6 on
//! ```
//!
//! The last cut is behind the last record. Once the log is needed no more, it continues in a new segment, and all
//! others are removed.
//!
//! Where room is short, the log keeps one segment ahead that no write may begin, and lends its room to such a flush.
//! The manifest lends the room that is reserved behind the last edit of its copy.
//!
//! **Why part of a memtable may be flushed.** The table holds sequence numbers up to the cut; the new memtable and the
//! log hold higher ones. So no run of a container is newer than a memtable of it. A record up to the cut may be dropped
//! because a newer one hides it. The newer one is in the table, or it stays in the log, where the same rule decides
//! about it. Everything judged is published before, as in any flush.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::base::{Result, Seq, Timestamp};
use crate::compact::survivors;
use crate::data::cursor::Seek;
use crate::data::merge::Merge;
use crate::data::range_delete::RangeDelete;
use crate::engine::Engine;
use crate::engine::jobs::install::Flushed;
use crate::engine::jobs::job::{JobSpec, Purpose};
use crate::engine::jobs::relog::Show;
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::state::ContainerState;
use crate::expiry::ExpiryView;
use crate::values::stats::ReclaimLag;

/// Estimated bytes that a record takes in a table besides key and value: 9 to 12 of 108, rounded up.
const RECORD_OVERHEAD: u64 = 24;
/// Estimated bytes that a table takes besides its records.
const TABLE_OVERHEAD: u64 = 4 << 10;

/// Lent room is used only for tables of at most 3/4 of the segments that they free.
const GAIN: (u64, u64) = (3, 4);

/// A container and one of its memtables.
pub(in crate::engine) type Memory = (Arc<ContainerState>, Arc<Flushable>);

/// A cut, by its index in a list of cuts, and the estimated bytes that a flush up to it writes.
pub(in crate::engine) type Front = (usize, u64);

/// The cuts up to which there is room to flush.
pub(in crate::engine) struct Cuts {
    /// Their indices, ascending.
    places: Vec<usize>,
    /// Whether they may need lent room.
    pub is_short: bool,
}

impl Cuts {
    /// Keeps only the cuts that `is_one` accepts.
    pub fn retain(&mut self, is_one: impl Fn(usize) -> bool) {
        self.places.retain(|place| is_one(*place));
    }

    /// Whether there is room for none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl Engine {
    /// Flushes the records that are needed of the log's first segments, as many segments as there is room for; false
    /// when there is no room for the first, or nothing to free.
    pub(in crate::engine) fn flush_front(&self) -> Result<bool> {
        let _flushing = self.scheduler.lock_flushing();
        let log = self.commit_log.log()?;
        let segments = log.segments();
        let numbers: Vec<u64> = segments.iter().map(|segment| segment.number).collect();
        let behind = segments.iter().skip(1).map(|next| next.base_seq.before());
        let ends: Vec<Seq> = behind.chain([Seq::MAX]).collect();
        let newest = *numbers.last().expect("a log has a segment");
        let fronts = self.fronts(&ends, &self.oldest_up_to(newest))?;
        let mut cuts = self.cuts(fronts.clone(), log.lendable())?;
        let is_short = cuts.is_short;
        if is_short {
            // Others may take the room while it is lent, so it is lent only to a flush that is sure to free more.
            let sizes = segments.iter().scan(0, |sum, segment| {
                *sum += segment.bytes;
                Some(*sum)
            });
            let sizes: Vec<u64> = sizes.collect();
            cuts.retain(|cut| fronts[cut].1 <= sizes[cut] / GAIN.1 * GAIN.0);
        }
        if cuts.is_empty() {
            return Ok(false);
        }
        let lent = is_short.then(|| log.lend_prepared());
        let flushed = self.try_cuts(cuts, |cut| self.flush_segments(numbers[cut], ends[cut]));
        drop(lent);
        if is_short {
            // Before another process takes the freed room.
            let _ = log.prepare_next();
        }
        flushed
    }

    /// Frees the log, if a write found no room for its next segment: flushes its records, then continues in the segment
    /// that is kept ahead, since no flush needs to borrow its room any more. False when there is nothing to do.
    pub(in crate::engine) fn free_log(&self) -> Result<bool> {
        let Some(log) = self.commit_log.begun().filter(|log| log.is_refused()) else {
            return Ok(false);
        };
        self.flush()?;
        let oldest = log.segments()[0].number;
        {
            let mut commit = self.commit_log.lock();
            let is_flushed = |state: &Arc<ContainerState>| {
                let read_state = state.read_state();
                read_state.sealed.is_empty() && read_state.active.memtable.is_empty()
            };
            if !self.containers.all().iter().all(is_flushed) {
                return Ok(false);
            }
            let before = log.current_segment();
            log.spend_next()?;
            self.rotate_log(&mut commit)?;
            if log.current_segment() == before {
                // The log holds nothing: the refused write is larger than all the room there is.
                return Ok(false);
            }
        }
        self.advance_log(oldest)?;
        let _ = log.prepare_next();
        Ok(true)
    }

    /// The oldest memtable of each container that has records in a segment up to this number.
    fn oldest_up_to(&self, segment: u64) -> Vec<Memory> {
        let oldest = |state: Arc<ContainerState>| {
            let oldest = state.read_state().flushables().last()?.clone();
            let holds = oldest.segment().is_some_and(|first| first <= segment);
            holds.then_some((state, oldest))
        };
        self.containers
            .all()
            .into_iter()
            .filter_map(oldest)
            .collect()
    }

    /// The estimated bytes that a flush up to each of these cuts writes. Cuts ascend.
    pub(in crate::engine) fn fronts(&self, ends: &[Seq], memory: &[Memory]) -> Result<Vec<Front>> {
        let mut bytes = vec![0; ends.len()];
        for (state, flushable) in memory {
            let view = self.settled_view(state);
            let mut first = None::<usize>;
            let mut add = |seq: Seq, len: usize| {
                let Some(segment) = ends.iter().position(|end| *end >= seq) else {
                    return;
                };
                bytes[segment] += len as u64 + RECORD_OVERHEAD;
                first = Some(first.map_or(segment, |first| first.min(segment)));
            };
            for RangeDelete { range, seq } in flushable.memtable.range_deletes().iter() {
                let to = range.to.as_ref().map_or(0, |to| to.len());
                // An edit stores two digits a byte.
                add(*seq, 2 * (range.from.len() + to));
            }
            self.needed(state, flushable, view, &mut |header, key, value| {
                add(header.seq, key.len() + value.len());
                Ok(())
            })?;
            if let Some(first) = first {
                bytes[first] += TABLE_OVERHEAD;
            }
        }
        let sums = bytes.iter().scan(0, |sum, bytes| {
            *sum += bytes;
            Some(*sum)
        });
        Ok(sums.enumerate().collect())
    }

    /// The cuts for which there is room, counting, where room is short, `lendable` bytes and those that the manifest
    /// can lend.
    pub(in crate::engine) fn cuts(&self, fronts: Vec<Front>, lendable: u64) -> Result<Cuts> {
        let free = self.fs.room(&self.path)?.free;
        // The first may take twice its estimate.
        let is_short = fronts.first().is_some_and(|(_, bytes)| *bytes > free / 2);
        let lent = match is_short {
            true => self.catalog.edit().lendable() + lendable,
            false => 0,
        };
        let fits = |front: &Front| front.1 <= free.saturating_add(lent);
        let places = fronts.into_iter().filter(fits).map(|(place, _)| place);
        let places = places.collect();
        Ok(Cuts { places, is_short })
    }

    /// Flushes up to the last of these cuts for which there turns out to be room.
    pub(in crate::engine) fn try_cuts(
        &self,
        cuts: Cuts,
        flush: impl Fn(usize) -> Result<bool>,
    ) -> Result<bool> {
        let (mut cuts, is_short) = (cuts.places, cuts.is_short);
        if is_short && !cuts.is_empty() {
            self.catalog.edit().lend_room();
        }
        let mut flushed = Ok(false);
        // The estimate may be wrong; then try half as much.
        while let Some(cut) = cuts.pop() {
            flushed = flush(cut);
            if !flushed.as_ref().is_err_and(|error| error.is_full()) {
                break;
            }
            cuts.truncate(cuts.len().div_ceil(2));
        }
        if is_short {
            self.catalog.edit().reserve();
        }
        flushed
    }

    /// Flushes, up to a cut, the memtables that have records in this segment or an earlier one.
    fn flush_segments(&self, segment: u64, up_to: Seq) -> Result<bool> {
        for (state, flushable) in self.oldest_up_to(segment) {
            if Arc::ptr_eq(&state.read_state().active, &flushable) {
                self.seal_one(&state);
            }
        }
        // The log is durable before a table is, so that a power cut cannot halve a batch over two containers. And
        // everything judged is published, so no later snapshot is older than it.
        let basis = self.commit_log.all_so_far()?;
        let (memory, mut flushed) = (self.oldest_up_to(segment), vec![]);
        let written = memory.iter().try_for_each(|(state, flushable)| {
            let read_state = state.pin();
            if Arc::ptr_eq(&read_state.active, flushable) {
                // It is the container's only memtable, and was written to since the seal.
                return Ok(());
            }
            // Records of a newer memtable may have sequence numbers below the cut, if they were relogged after this
            // seal.
            let newer = read_state
                .flushables()
                .rev()
                .nth(1)
                .map(|newer| newer.memtable.seq_min());
            let up_to = newer.map_or(up_to, |newer| up_to.min(newer.before()));
            let (flush, lag) = self.write_front(state, flushable, up_to)?;
            let rest = flush.rest.clone();
            let rest = rest.filter(|rest| !rest.memtable.is_empty());
            if let Some(rest) = &rest {
                rest.stays_in(segment + 1..=*flushable.segments().end());
            }
            self.note_lag(&lag, &flush.job.view);
            let up_to = up_to.min(flushable.memtable.seq_max());
            flushed.push(Flushed {
                rest,
                up_to,
                ..flush
            });
            Ok(())
        });
        let synced = written.and_then(|()| self.sync_tables(flushed.iter()));
        if let Err(error) = synced {
            flushed
                .iter()
                .for_each(|flush| self.clear_away(false, &flush.outputs));
            return Err(error);
        }
        if flushed.is_empty() {
            return Ok(false);
        }
        self.install_flushes(&flushed, basis)?;
        self.counters.flushes.add(flushed.len() as u64);
        Ok(true)
    }

    /// Writes the needed records of a container's oldest memtable up to a cut; the others are the rest.
    pub(in crate::engine) fn write_front<'a>(
        &self,
        state: &'a Arc<ContainerState>,
        flushable: &Arc<Flushable>,
        up_to: Seq,
    ) -> Result<(Flushed<'a>, ReclaimLag)> {
        let view = self.settled_view(state);
        let (front, rest) = self.divide(state, flushable, view.clone(), up_to)?;
        let (mut flush, lag) = self.write_flush(state, front)?;
        // Records that are not needed were judged before.
        if view.now > flush.job.view.now {
            flush.job.view = view;
        }
        let flush = Flushed {
            leaves: flushable.clone(),
            rest: Some(rest),
            up_to,
            // Records of it that were not needed were left out unseen.
            forgotten: flushable.memtable.seq_max(),
            ..flush
        };
        Ok((flush, lag))
    }

    /// Divides a container's oldest memtable in two, up to a cut and behind it, each with its range deletes and the
    /// records that are needed.
    fn divide(
        &self,
        state: &Arc<ContainerState>,
        flushable: &Flushable,
        view: ExpiryView,
        up_to: Seq,
    ) -> Result<(Arc<Flushable>, Arc<Flushable>)> {
        let (front, rest) = (state.new_flushable(), state.new_flushable());
        let side = |seq: Seq| &if seq > up_to { &rest } else { &front }.memtable;
        // Before the records: whether a record is needed depends on the range deletes, also in an estimate.
        for delete in flushable.memtable.range_deletes().iter() {
            side(delete.seq).delete_range(delete.range.clone(), delete.seq);
        }
        self.needed(state, flushable, view, &mut |header, key, value| {
            side(header.seq).insert(header, key, value)
        })?;
        Ok((front, rest))
    }

    /// Calls `show` with each record of a container's oldest memtable that a flush would write, in the form in which it
    /// would write it.
    pub(in crate::engine) fn needed(
        &self,
        state: &Arc<ContainerState>,
        flushable: &Flushable,
        view: ExpiryView,
        show: &mut Show<'_>,
    ) -> Result<()> {
        let read_state = state.pin();
        let spec = JobSpec {
            view,
            range_deletes: vec![
                flushable.memtable.range_deletes().clone(),
                read_state.version.range_deletes.clone(),
            ],
            cuts: vec![Timestamp::MAX],
            purpose: Purpose::Flush { is_due: true },
        };
        let job = self.job(state, &read_state, &BTreeSet::new(), &spec);
        let memory = vec![flushable.memtable.checked_cursor()];
        let shown = Merge::seek(memory, Seek::First, None).and_then(|sources| {
            survivors(&job, sources, &mut |header, value| {
                show(header.header, header.key, value)
            })
        });
        self.end_log_if_corrupt(shown)
    }
}
