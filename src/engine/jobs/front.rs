//! Flushing the front of a log alone, where there is no room for what is needed of a whole memtable.
//!
//! ```text
//! log         5            6            7
//! memtable    d L d d L    d d L d d    L d d L d         d: dead, L: living
//!             `- up to a number          `- stays: a memtable of what came later, needed from segment 6 or 7 on
//!             L L in a table
//! ```
//!
//! What it takes is room for what lives in one segment, and what it gives back is that segment. Where room is short the
//! log keeps a segment ahead for it, and lends it; so is the room lent that is kept behind the manifest's copy.
//!
//! **Why a part of a memtable may be flushed.** What goes to the table has numbers up to one, what stays in memory and in
//! the log has higher ones: so a run still holds nothing newer than a memtable of its container. A record up to that number
//! that is left out since a newer one hides it is hidden by one of the table, or by one that stays in the log, and goes
//! from there by the same rule. All that is judged here is published first, as before any flush.

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
use crate::engine::read::Source;
use crate::engine::relog::Show;
use crate::engine::state::{ContainerState, Flushable};
use crate::expiry::ExpiryView;

/// What a record takes in the log or in a table beside key and value, in bytes, at most.
pub(in crate::engine) const RECORD_OVERHEAD: u64 = 64;
/// What a table takes beside its records, in bytes, about.
const TABLE_OVERHEAD: u64 = 4 << 10;

/// A memtable of a container.
pub(in crate::engine) type Memory = (Arc<ContainerState>, Arc<Flushable>);

/// A place in a list of numbers, and the bytes that a flush takes of what is needed up to it, about.
pub(in crate::engine) type Front = (usize, u64);

/// Not even the first of them is sure to find so much room.
pub(in crate::engine) fn is_short(fronts: &[Front], free: u64) -> bool {
    fronts.first().is_some_and(|(_, bytes)| *bytes > free / 2)
}

/// The places of those that find so much room.
pub(in crate::engine) fn within(fronts: Vec<Front>, room: u64) -> Vec<usize> {
    let fitting = fronts.into_iter().filter(|(_, bytes)| *bytes <= room);
    fitting.map(|(place, _)| place).collect()
}

impl Engine {
    /// Flushes what is needed of the log's first segments, as many as there is room for; false when there is no room for
    /// the first, or nothing in the way of it.
    pub(in crate::engine) fn flush_front(&self) -> Result<bool> {
        let _flushing = self.scheduler.lock_flushing();
        let log = self.commit_log.log()?;
        let segments = log.segments();
        let (numbers, ends): (Vec<u64>, Vec<Seq>) = segments
            .windows(2)
            .map(|pair| (pair[0].number, pair[1].base_seq.before()))
            .unzip();
        let Some(newest) = numbers.last() else {
            return Ok(false);
        };
        let memory = self.oldest_up_to(*newest);
        let free = self.fs.room(&self.path)?.free;
        let fronts = self.fronts(&ends, &memory)?;
        let is_short = is_short(&fronts, free);
        let cuts = match is_short {
            true => within(
                fronts,
                free + self.catalog.edit().lendable() + log.lendable(),
            ),
            false => within(fronts, free),
        };
        if cuts.is_empty() {
            return Ok(false);
        }
        let lent = is_short.then(|| log.lend_next());
        let flushed = self.try_cuts(cuts, is_short, |cut| {
            self.flush_segments(numbers[cut], ends[cut])
        });
        drop(lent);
        if is_short {
            // Before anybody else takes what was given back.
            let _ = log.prepare_next();
        }
        flushed
    }

    /// The oldest memtable of each container that has one in a segment up to this number.
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

    /// The bytes that a flush takes of what is needed up to each of these numbers, about; the numbers ascend.
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
                // Two digits a byte, in the edit.
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

    /// Flushes up to the last of these cuts for which there is room; what is kept for edits is lent, if that is short.
    pub(in crate::engine) fn try_cuts(
        &self,
        mut cuts: Vec<usize>,
        is_short: bool,
        flush: impl Fn(usize) -> Result<bool>,
    ) -> Result<bool> {
        if is_short && !cuts.is_empty() {
            self.catalog.edit().lend_room();
        }
        let mut flushed = Ok(false);
        // The estimate may be wrong: then half as much.
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

    /// Flushes what came up to a number of what keeps segments up to another one.
    fn flush_segments(&self, segment: u64, up_to: Seq) -> Result<bool> {
        for (state, flushable) in self.oldest_up_to(segment) {
            if Arc::ptr_eq(&state.read_state().active, &flushable) {
                self.seal_one(&state);
            }
        }
        // A power cut must not halve a batch over two containers: the log is durable before a table is. And what is
        // judged is published, so no snapshot can come that is older than it.
        let basis = self.commit_log.all_so_far()?;
        let (memory, mut flushed) = (self.oldest_up_to(segment), vec![]);
        let written = memory.iter().try_for_each(|(state, flushable)| {
            let read_state = state.pin();
            if Arc::ptr_eq(&read_state.active, flushable) {
                // Written to since, and the only one.
                return Ok(());
            }
            // What is logged again later than this one was sealed may have lower numbers than the cut.
            let newer = read_state
                .flushables()
                .rev()
                .nth(1)
                .map(|newer| newer.memtable.seq_min());
            let up_to = newer.map_or(up_to, |newer| up_to.min(newer.before()));
            let view = self.settled_view(state);
            let (front, rest) = self.divide(state, flushable, view, up_to)?;
            rest.stays_in(segment + 1..=*flushable.segments().end());
            let (flush, lag) = self.write_flush(state, front)?;
            self.note_lag(&lag, &view);
            flushed.push(Flushed {
                leaves: flushable.clone(),
                rest: (!rest.memtable.is_empty()).then_some(rest),
                up_to: up_to.min(flushable.memtable.seq_max()),
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

    /// Two memtables: what is needed of a container's oldest one up to a number, and of the others in it, each with its
    /// range deletes.
    pub(in crate::engine) fn divide(
        &self,
        state: &Arc<ContainerState>,
        flushable: &Flushable,
        view: ExpiryView,
        up_to: Seq,
    ) -> Result<(Arc<Flushable>, Arc<Flushable>)> {
        let (front, rest) = (state.new_flushable(), state.new_flushable());
        let side = |seq: Seq| &if seq > up_to { &rest } else { &front }.memtable;
        // First: what is needed beside them is what they leave, for estimates too.
        for delete in flushable.memtable.range_deletes().iter() {
            side(delete.seq).delete_range(delete.range.clone(), delete.seq);
        }
        self.needed(state, flushable, view, &mut |header, key, value| {
            side(header.seq).insert(header, key, value)
        })?;
        Ok((front, rest))
    }

    /// Shows what is needed of the records of a container's oldest memtable: what a flush would write, as it would write it.
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
        let memory = vec![Source::Memory(flushable.memtable.cursor())];
        let sources = Merge::seek(memory, Seek::First, None)?;
        survivors(&job, sources, &mut |header, value| {
            show(header.header, header.key, value)
        })
    }
}
