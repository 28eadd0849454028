//! Log garbage collection: removes segments whose records are in tables.
//!
//! ```text
//! segment     5           6           7           8
//! frames      a a a b a   a a a a a   a a b a     c c          a: flushed   b, c: of memtables that are active
//!             stale       stale       stale       fresh
//! ```
//!
//! Replay starts at the oldest segment that a memtable needs: here 5, because of two small frames. A sealed memtable is
//! the last that writes into its segment, so a single container leaves no stale frames behind; with several, a seldom
//! written one keeps the frames of the others. When these are more than half a memtable's worth, or have been stale for a
//! quarter of `reclaim_within`, the memtables that need the old segments are moved: small ones are relogged, large ones
//! flushed. Where the log is too long, that goes before other flushes.
//!
//! Mostly it does not come to that: if all memtables that keep the frames which a flush is about to make stale are
//! small beside these, together an eighth at most, the flush moves them first. So its edit releases the frames. A large
//! one is flushed along, but only for half a memtable's worth of log, so that no small tables pile up.
//!
//! **In time.** An item that expires in memory is flushed when half of its deadline is over, so its frames are stale by
//! then at the latest, and removed when three quarters are over. One that expires after its flush has no frame left by
//! then, or one that is removed a quarter later. Each leaves time for one failed try.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::{Result, Timestamp};
use crate::catalog::Change;
use crate::engine::Engine;
use crate::engine::jobs::relog::relog;
use crate::engine::parts::commit_log::CommitState;
use crate::engine::parts::read_state::Flushable;
use crate::engine::parts::state::ContainerState;
use crate::wal::{FrameKind, SegmentInfo};

/// Stale frames are removed after this fraction (1/4) of `reclaim_within`.
const STALE_SHARE: u64 = 4;

/// A flush moves the memtables that keep its log if they are at most this fraction (1/8) of the log that goes then.
const MOVED_SHARE: u64 = 8;

impl Engine {
    /// The first log segment that is still needed once `flushed` are in tables except for their `rests`. The current
    /// segment is read first: a memtable that is seen empty after that can only get writes in this segment or in later
    /// ones.
    pub(in crate::engine) fn first_needed_segment(
        &self,
        flushed: &[&Arc<Flushable>],
        rests: &[&Arc<Flushable>],
    ) -> Result<u64> {
        let flushed: HashSet<*const Flushable> =
            flushed.iter().map(|gone| Arc::as_ptr(gone)).collect();
        let log = self.commit_log.log()?;
        // In this order: a sync in between only makes fewer segments needed.
        let (synced, segments) = (log.synced(), log.segments());
        let current = segments.last().expect("a log has a segment").number;
        let states = self.containers.all();
        let needed = states.iter().flat_map(|state| {
            let read_state = state.pin();
            let others = read_state
                .flushables()
                .filter(|flushable| !flushed.contains(&Arc::as_ptr(flushable)));
            others
                .filter_map(|flushable| flushable.needed_from(synced))
                .min()
        });
        let rests = rests.iter().filter_map(|rest| rest.needed_from(synced));
        let needed = needed.chain(rests);
        let needed = needed.min().map_or(current, |oldest| oldest.min(current));
        // The manifest may name only a segment whose name is durable; naming an earlier one is safe.
        let durable = segments
            .iter()
            .filter(|segment| segment.durable && segment.number <= needed);
        Ok(durable
            .map(|segment| segment.number)
            .max()
            .unwrap_or(segments[0].number))
    }

    /// Notes that the frames of this memtable are stale.
    pub(in crate::engine) fn mark_stale(&self, flushable: &Flushable) {
        if let Some(log) = self.commit_log.begun() {
            log.mark_stale(flushable.segments(), self.clock.read().settled);
        }
    }

    /// Under the commit lock: begins a new segment for everything logged from now on.
    pub(in crate::engine) fn rotate_log(&self, commit: &mut CommitState) -> Result<()> {
        let next = commit.next_seq();
        let appender = commit.appender()?;
        appender.rotate(&self.frame_header(FrameKind::Batch, next, next))
    }

    /// Moves one memtable that keeps stale frames in the log, or releases these frames; false when there is nothing to
    /// do.
    pub(in crate::engine) fn trim_log(&self) -> Result<bool> {
        let log = self.commit_log.log()?;
        log.release_rest()?;
        let segments = log.segments();
        match self.segment_to_leave(&segments) {
            Some(last) => self.leave_segment(&segments, last),
            None => Ok(false),
        }
    }

    /// The same where the log is too long, and not for a memtable that waits for its flush.
    pub(in crate::engine) fn trim_long_log(&self) -> Result<bool> {
        let Some(log) = self.commit_log.begun() else {
            return Ok(false);
        };
        let segments = log.segments();
        let oldest = segments[0].number;
        let needs_it =
            |flushable: &Arc<Flushable>| flushable.segment().is_some_and(|first| first <= oldest);
        let states = self.containers.all();
        let waits = |state: &Arc<ContainerState>| state.read_state().sealed.iter().any(needs_it);
        match self.is_too_long(&segments) && !states.iter().any(waits) {
            true => self.leave_segment(&segments, oldest),
            false => Ok(false),
        }
    }

    /// Makes no memtable need this segment or an earlier one: one at a time.
    fn leave_segment(&self, segments: &[SegmentInfo], last: u64) -> Result<bool> {
        if segments
            .last()
            .is_some_and(|current| current.number == last)
        {
            self.rotate_log(&mut self.commit_log.lock())?;
        }
        let holds = |state: &Arc<ContainerState>| {
            let first = state.read_state().active.segment();
            first.is_some_and(|first| first <= last)
        };
        if let Some(state) = self.containers.all().into_iter().find(holds) {
            return self.move_on(&state);
        }
        // No memtable needs it, perhaps since a container was dropped.
        self.advance_log(segments[0].number)
    }

    /// The newest segment that is to be removed, with all before it.
    fn segment_to_leave(&self, segments: &[SegmentInfo]) -> Option<u64> {
        let now = self.clock.read().settled;
        let patience = self.goals().reclaim_within / STALE_SHARE;
        let stale = segments
            .iter()
            .rfind(|segment| segment.stale_since.after(patience) <= now);
        let is_too_long = || self.is_too_long(segments);
        let segment = stale.or_else(|| is_too_long().then(|| &segments[0]))?;
        Some(segment.number)
    }

    /// Whether so much of the log is stale that its oldest segment is to go: half a memtable's worth, besides what memory
    /// holds, which takes less in the log.
    fn is_too_long(&self, segments: &[SegmentInfo]) -> bool {
        let stale = self.options.memtable_bytes as u64 / 2;
        let limit = self.throttle.unflushed() as u64 + stale;
        let limit = limit.min(2 * self.options.memtable_bytes as u64);
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        bytes > limit.max(3 * self.options.segment_len())
    }

    /// Makes the container's active memtable need only a later segment of the log, or none.
    fn move_on(&self, state: &Arc<ContainerState>) -> Result<bool> {
        match self.is_small(state) {
            true => self.relog_one(state).map(|()| true),
            false => {
                self.seal_one(state);
                self.flush_one(state)
            }
        }
    }

    /// Whether the active memtable is one to be relogged, not flushed.
    fn is_small(&self, state: &ContainerState) -> bool {
        state.read_state().active.memtable.bytes() <= self.options.relog_bytes()
    }

    fn relog_one(&self, state: &ContainerState) -> Result<()> {
        let mut commit = self.commit_log.lock();
        let last = self.commit_log.latest();
        let header = self.frame_header(FrameKind::Relog, last, last);
        let appender = commit.appender()?;
        let before = state.read_state().active.segments();
        relog(state, &header, appender)?;
        drop(commit);
        self.commit_log
            .log()?
            .mark_stale(before, self.clock.read().settled);
        Ok(())
    }

    /// Before the oldest sealed memtables of these containers are flushed: sees to it that their log goes with them. Active
    /// memtables that would keep it are moved if they are small beside it: relogged, or sealed and returned, to be flushed
    /// along. The flush syncs the log anyway, and its edit names the first segment that is needed.
    pub(in crate::engine) fn clear_log_of(
        &self,
        flushing: &[Arc<ContainerState>],
    ) -> Result<Vec<Arc<ContainerState>>> {
        let (log, states) = (self.commit_log.log()?, self.containers.all());
        let Some(end) = self.leaves_up_to(flushing, &states) else {
            return Ok(vec![]);
        };
        let segments = log.segments();
        let begins = segments.iter().find(|segment| segment.number == end);
        let goes = begins.map_or(0, |next| next.start.0 - segments[0].start.0);
        let keeps = |state: &Arc<ContainerState>| {
            let first = state.read_state().active.segment();
            first.is_some_and(|first| first < end)
        };
        let keeping: Vec<_> = states.into_iter().filter(keeps).collect();
        // A container that is being flushed keeps its own log only where there was no room for another segment. Its next
        // memtable is flushed after this one, not along with it.
        let is_flushing =
            |state: &Arc<ContainerState>| flushing.iter().any(|one| Arc::ptr_eq(one, state));
        if keeping.iter().any(is_flushing) {
            return Ok(vec![]);
        }
        let size = |state: &Arc<ContainerState>| state.read_state().active.counted() as u64;
        let is_dear = MOVED_SHARE * keeping.iter().map(size).sum::<u64>() > goes;
        let (small, large): (Vec<_>, Vec<_>) =
            keeping.into_iter().partition(|state| self.is_small(state));
        let too_often = !large.is_empty() && goes < self.options.memtable_bytes as u64 / 2;
        if is_dear || too_often || log.is_refused() {
            return Ok(vec![]);
        }
        small.iter().try_for_each(|state| self.relog_one(state))?;
        large.iter().for_each(|state| self.seal_one(state));
        Ok(large)
    }

    /// The first segment that would be needed if no active memtable were, once the oldest sealed memtables of `flushing`
    /// are in tables; `None` if there are none.
    fn leaves_up_to(
        &self,
        flushing: &[Arc<ContainerState>],
        states: &[Arc<ContainerState>],
    ) -> Option<u64> {
        let oldest = |state: &Arc<ContainerState>| state.read_state().sealed.last().cloned();
        let leaving: Vec<Arc<Flushable>> = flushing.iter().filter_map(oldest).collect();
        let last = leaving.iter().map(|one| *one.segments().end()).max()?;
        let sealed = states
            .iter()
            .flat_map(|state| state.read_state().sealed.clone());
        let waiting = sealed.filter(|other| !leaving.iter().any(|one| Arc::ptr_eq(one, other)));
        let needed = waiting.filter_map(|other| other.segment()).min();
        Some(needed.map_or(last + 1, |needed| needed.min(last + 1)))
    }

    /// Names the first segment that is needed, and removes those before it; false when that is still `oldest`.
    pub(in crate::engine) fn advance_log(&self, oldest: u64) -> Result<bool> {
        let basis = self.commit_log.all_so_far()?;
        let mut manifest = self.catalog.edit();
        let first = self.first_needed_segment(&[], &[])?;
        if first == oldest {
            return Ok(false);
        }
        let named = vec![Change::Log(Some(self.commit_log.log()?.start(first)))];
        self.edit(&mut manifest, basis, named, Timestamp(0))?;
        drop(manifest);
        self.commit_log.log()?.release_before(first)?;
        Ok(true)
    }
}
