//! How a merge lends: what is certain to be shown, up to the first record that a reader must decide about.
//!
//! Example: runs A, B and C are in uniform blocks, M is a memtable. The record of `f` in M has expired.
//!
//! ```text
//! order      A a   M b   B d   C e             the cursors by their records
//! gathered   A a   B d   C e | M b             uniform blocks first, each part in order; the bound is b
//! lent       a from A, up to the bound         uniform_merge.rs
//!            b from M, which is then on f      the bound is f
//!            d and e from B and C, up to f     here the reader decides
//! order      M f   B g   C h   A k             where all of them stand
//! ```
//!
//! Invariants:
//!
//! 1. A record from outside the uniform blocks is lent only if it is the first of all, and no record of its key is
//!    newer: those of uniform blocks are compared here, those of other sources come behind it in the order.
//! 2. All that is lent is newer than the dead spans of the order. One more of these ends the call.
//! 3. When a call returns, the order is that of the records on which the cursors stand.

use crate::base::record::{RecordRef, key_prefix};
use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, KeyPosition, Position};
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, LendOutcome, Lent};
use crate::data::lend::uniform_merge::{Left, MOST_BLOCKS, UniformMerge};
use crate::data::merge::{Merge, MergeEntry};
use crate::expiry::ExpiryView;

const HOLDS_ONE: &str = "it holds a uniform block";

impl<C: Cursor> Merge<C> {
    /// The items behind the first record, which was decided about, that the first cursor has before any other. Forwards.
    pub fn block_slice(&self, ask: &Ask<'_>) -> Option<BlockSlice> {
        let bound = self.bound_at(1, ask);
        let above = self.seq_above_dead_spans();
        let ask = Ask {
            above,
            bound,
            ..*ask
        };
        self.front()?.block_slice(&ask)
    }

    /// The first cursor goes to a record of the slice that it gave.
    pub fn stand_in_slice(&mut self, at: usize) {
        let first = self.order[0].at;
        self.cursors[first].stand_in_uniform_block(at);
    }

    /// Lends records that are certain to be shown, up to the first one that is not.
    pub fn lend(
        &mut self,
        ask: &Ask<'_>,
        lent: &mut Lent,
        view: &ExpiryView,
    ) -> Result<LendOutcome> {
        let (passed, from, mut has_moved) = (self.passing.passed, lent.len(), false);
        let mut last = vec![];
        loop {
            let decided = match lent.last() {
                Some((key, _)) if lent.len() > from => {
                    last.clear();
                    last.extend_from_slice(key);
                    &last[..]
                }
                _ => ask.decided,
            };
            let above = self.seq_above_dead_spans();
            let ask = Ask {
                above,
                decided,
                ..*ask
            };
            let from = lent.len();
            let stand = match self.gather_blocks(&ask, lent) {
                0 => {
                    let moved = self.lend_record(0, (&ask, from), lent, view);
                    LendOutcome::behind(moved.inspect_err(|error| self.fail(error))?)
                }
                1 => self.lend_first(&ask, lent, view),
                blocks => self.lend_merged(blocks, &ask, lent, view)?,
            };
            has_moved |= stand != LendOutcome::Same;
            match stand {
                LendOutcome::Behind => self.resolve_or_fail(view)?,
                LendOutcome::OnLast => return Ok(stand),
                LendOutcome::Same => return Ok(LendOutcome::behind(has_moved)),
            }
            if !self.forward || lent.is_full() || self.passing.passed > passed {
                return Ok(LendOutcome::Behind);
            }
        }
    }

    fn resolve_or_fail(&mut self, view: &ExpiryView) -> Result<()> {
        let done = self.resolve_dead_spans(Some(view));
        done.inspect_err(|error| self.fail(error))
    }

    /// Brings the cursors in certain uniform blocks to the front of the order, if the first one is in one; returns how
    /// many. Backwards one at a time.
    fn gather_blocks(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> usize {
        let most = if self.forward { MOST_BLOCKS } else { 1 };
        let mut blocks = 0;
        for place in 0..self.order.len() {
            if self.cursors[self.order[place].at].hold_uniform_block(ask, lent) {
                self.order[blocks..=place].rotate_right(1);
                blocks += 1;
            }
            if blocks == 0 || blocks == most {
                break;
            }
        }
        blocks
    }

    /// Lends the record at this place in the order, which is the newest of its key, if it is certain to be shown, or
    /// passes it if its key was decided about: it is that of the last item, or of `ask` if there are no more than
    /// `from` items. Forwards. False: it has not moved.
    fn lend_record(
        &mut self,
        place: usize,
        (ask, from): (&Ask<'_>, usize),
        lent: &mut Lent,
        view: &ExpiryView,
    ) -> Result<bool> {
        let Some(at) = self.order.get(place).map(|entry| entry.at) else {
            return Ok(false);
        };
        let record = match self.cursors[at].position() {
            Position::Record(record) if self.forward && !lent.is_full() => record,
            _ => return Ok(false),
        };
        let decided = match lent.last() {
            Some((last, _)) if lent.len() > from => last,
            _ => ask.decided,
        };
        let is_again = key_prefix(record.key) == key_prefix(decided) && record.key == decided;
        // Code that decides about the record comes to the error, too.
        let goes_on =
            is_again || (self.is_certain(&record, ask) && self.cursors[at].lend_one(lent).is_ok());
        if goes_on {
            self.cursors[at].advance(Some(view))?;
            self.replace(place, Some(view));
        }
        Ok(goes_on)
    }

    /// Whether a record is an item under `ask`, if no newer one of its key is.
    fn is_certain(&self, record: &RecordRef<'_>, ask: &Ask<'_>) -> bool {
        let RecordRef { header, key, .. } = record;
        header.seq <= ask.view.max
            && header.seq >= ask.above
            && ask.bound.is_none_or(|bound| *key < bound)
            && !ask.view.later.dead(header)
            && header.seq >= self.tombstones.max_covering_seq(key)
    }

    /// The bound of `ask`, or the key of this place in the order, whichever comes first.
    fn bound_at<'a>(&'a self, place: usize, ask: &Ask<'a>) -> Option<&'a [u8]> {
        let Some(next) = self.order.get(place) else {
            return ask.bound;
        };
        let key = match self.cursors[next.at].head() {
            KeyPosition::Record(key) => key,
            KeyPosition::DeadSpan(span) => self.far_end(&span),
            KeyPosition::End => unreachable!("cursors at their end are not in the order"),
        };
        let bound = ask.bound.filter(|&bound| (bound < key) == self.forward);
        Some(bound.unwrap_or(key))
    }

    /// Lends from the first cursor.
    fn lend_first(&mut self, ask: &Ask<'_>, lent: &mut Lent, view: &ExpiryView) -> LendOutcome {
        let first = self.order[0].at;
        let bound = self.bound_at(1, ask);
        let (block, at) = self.cursors[first].uniform_block().expect(HOLDS_ONE);
        let ask = Ask { bound, ..*ask };
        let (stand, at) = match self.forward {
            true => block.lend(at, &ask, lent),
            false => block.lend_back(at, &ask, lent),
        };
        if stand != LendOutcome::Same {
            self.cursors[first].stand_in_uniform_block(at);
        }
        if stand == LendOutcome::Behind && self.order.len() > 1 {
            self.replace(0, Some(view));
        }
        stand
    }

    /// Merges the uniform blocks of so many cursors, and what other cursors have in between. Where one ends, its cursor
    /// goes on to the next certain one.
    fn lend_merged(
        &mut self,
        blocks: usize,
        ask: &Ask<'_>,
        lent: &mut Lent,
        view: &ExpiryView,
    ) -> Result<LendOutcome> {
        let mut merge = self.begin_merge(blocks, ask, lent);
        let (from, dead_spans) = (lent.len(), self.dead_spans);
        let (mut has_moved, mut went_on) = (false, Ok(true));
        let stand = loop {
            let bound = self.bound_at(blocks, ask);
            let seq = |cursor: usize, at: usize| self.cursors[cursor].seq_in_uniform_block(at);
            let stand = merge.lend(&Ask { bound, ..*ask }, lent, seq);
            has_moved |= stand != LendOutcome::Same;
            if lent.is_full() {
                break stand;
            }
            went_on = match stand {
                LendOutcome::OnLast => self.go_on(&mut merge, blocks, ask, lent, view),
                _ => match self.lend_between(&mut merge, blocks, (ask, from), lent, view) {
                    Ok(false) => break stand,
                    gone_on => gone_on,
                },
            };
            has_moved = true;
            let is_above = self.dead_spans == dead_spans;
            if !matches!(went_on, Ok(true)) || !is_above {
                break LendOutcome::Behind;
            }
        };
        let in_blocks = went_on.inspect_err(|error| self.fail(error))?;
        if has_moved || blocks < self.order.len() {
            let left = merge.left(lent.held());
            self.leave_uniform_blocks(blocks, left, in_blocks);
        }
        merge.clear();
        self.blocks = Some(merge);
        if !in_blocks {
            self.replace(0, Some(view));
        }
        Ok(match stand {
            LendOutcome::Same => LendOutcome::behind(has_moved),
            other => other,
        })
    }

    /// A merge of the uniform blocks of so many cursors, up to the cursor behind these.
    fn begin_merge(&mut self, blocks: usize, ask: &Ask<'_>, lent: &Lent) -> Box<UniformMerge> {
        let mut merge = self.blocks.take().unwrap_or_default();
        merge.reserve(blocks);
        for entry in &self.order[..blocks] {
            let (block, at) = self.cursors[entry.at].uniform_block().expect(HOLDS_ONE);
            merge.push(entry.at, &block, at);
        }
        merge.begin(self.bound_at(blocks, ask), lent.held(), lent.len());
        merge
    }

    /// Lends the record at which the merge has ended, if it is the newest of its key and certain to be shown; then the
    /// merge ends at the next one. False: it has not moved.
    fn lend_between(
        &mut self,
        merge: &mut UniformMerge,
        blocks: usize,
        (ask, from): (&Ask<'_>, usize),
        lent: &mut Lent,
        view: &ExpiryView,
    ) -> Result<bool> {
        let here = self.order.get(blocks).map(|entry| self.place(entry.at));
        let seq = |cursor: usize, at: usize| self.cursors[cursor].seq_in_uniform_block(at);
        let Some((key, Some(here))) = here else {
            return Ok(false);
        };
        if merge.has_newer((key, here), lent.held(), seq) {
            return Ok(false);
        }
        let goes_on = self.lend_record(blocks, (ask, from), lent, view)?;
        if goes_on {
            merge.move_bound(self.bound_at(blocks, ask), lent.held());
        }
        Ok(goes_on)
    }

    /// Moves on the cursor whose uniform block has ended; true: it is in another one, which takes its place.
    fn go_on(
        &mut self,
        merge: &mut UniformMerge,
        blocks: usize,
        ask: &Ask<'_>,
        lent: &mut Lent,
        view: &ExpiryView,
    ) -> Result<bool> {
        let ended = merge.first(lent.held());
        let cursor = &mut self.cursors[ended.cursor];
        cursor.stand_in_uniform_block(ended.at);
        cursor.advance(Some(view))?;
        let holds = cursor.hold_uniform_block(ask, lent);
        if holds {
            let (block, at) = self.cursors[ended.cursor].uniform_block().expect(HOLDS_ONE);
            merge.go_on(&block, at, self.bound_at(blocks, ask), lent.held());
        }
        Ok(holds)
    }

    /// Sorts in these cursors where the merge has left them; the first one only if it is still in its uniform block.
    fn leave_uniform_blocks(
        &mut self,
        blocks: usize,
        left: impl DoubleEndedIterator<Item = Left>,
        with_first: bool,
    ) {
        // From the last one on, so that what is behind a place is in order.
        for (place, left) in (0..blocks).rev().zip(left.rev()) {
            let (prefix, at) = (left.prefix, left.cursor);
            let entry = MergeEntry { prefix, at };
            if place == 0 && !with_first {
                self.order[place] = entry;
                return;
            }
            self.cursors[left.cursor].stand_in_uniform_block(left.at);
            self.sort_in(place, entry);
        }
    }

    /// Records as new as this are hidden by no dead span.
    fn seq_above_dead_spans(&self) -> Seq {
        if self.dead_spans == 0 {
            return Seq(0);
        }
        let seq_max = |entry: &MergeEntry| match self.cursors[entry.at].head() {
            KeyPosition::DeadSpan(span) => span.seq_max,
            _ => Seq(0),
        };
        self.order.iter().map(seq_max).max().unwrap_or_default()
    }
}
