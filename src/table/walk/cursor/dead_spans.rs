//! The dead spans of a table: the blocks of a page of the index, some rows of it, one block. With an expiry view, a cursor
//! stops before them.

use std::ops::{Range, RangeInclusive};

use super::side::Side;
use super::{State, TableCursor};
use crate::base::{Result, Seq};
use crate::data::cursor::{DeadSpan, Seek};
use crate::expiry::ExpiryView;
use crate::table::encode::index::Index;
use crate::table::encode::page::Page;
use crate::table::encode::search::Share;

const DEAD_SPANS_ARE_KNOWN: &str = "the index was read to find the dead span";

fn span(page: &Page, rows: RangeInclusive<usize>, seq_max: Seq) -> DeadSpan<'_> {
    DeadSpan {
        first: page.first_key(*rows.start()),
        last: page.last_key(*rows.end()),
        seq_max,
    }
}

impl TableCursor {
    /// The blocks of the page that is a dead span.
    pub(super) fn blocks(&self) -> Range<usize> {
        let index = self.table.index().expect(DEAD_SPANS_ARE_KNOWN);
        index.blocks_of(self.page)
    }

    /// The dead span of the blocks of the page.
    pub(super) fn page_span(&self, seq_max: Seq) -> DeadSpan<'_> {
        let top = self.table.index().expect(DEAD_SPANS_ARE_KNOWN).top();
        span(top, self.page..=self.page, seq_max)
    }

    /// The dead span of these rows of the page.
    pub(super) fn rows_span(&self, rows: RangeInclusive<usize>, seq_max: Seq) -> DeadSpan<'_> {
        let index = self.table.index().expect(DEAD_SPANS_ARE_KNOWN);
        let page = index.page(self.page).expect(DEAD_SPANS_ARE_KNOWN);
        span(page, rows, seq_max)
    }

    /// Whether the statistics of the whole table allow for dead spans. If nothing is dead, no block is checked, because
    /// each check would be a cache miss.
    pub(super) fn may_have_dead_spans(&self, view: &ExpiryView) -> bool {
        !self.tombstones.is_empty() || self.table.census().any_dead(view)
    }

    /// Stops before the blocks of a page if they are dead as a whole.
    pub(super) fn is_dead_page(&mut self, index: &Index, page: usize, view: &ExpiryView) -> bool {
        if self.live_page == Some(page) {
            return false;
        }
        let Some(seq_max) = index.top().dead_as_a_whole(page, &self.tombstones, view) else {
            let is_live = self.tombstones.is_empty() && !index.top().census(page).any_dead(view);
            self.live_page = is_live.then_some(page);
            return false;
        };
        self.state = State::Page { seq_max };
        self.page = page;
        true
    }

    /// Reduces a dead span of a page to the rows that are left from a row on.
    pub(super) fn leave_rows(&mut self, rows: usize, row: usize, side: Side) {
        if let State::Page { seq_max } = self.state {
            let (from, to) = match side {
                Side::Front => (row, rows - 1),
                Side::Back => (0, row),
            };
            self.state = State::Rows { from, to, seq_max };
        }
    }

    /// Stops before the block of a row if it is dead as a whole.
    pub(super) fn is_dead_block(
        &mut self,
        index: &Index,
        page: usize,
        row: usize,
        view: &ExpiryView,
    ) -> Result<bool> {
        if self.live_page == Some(page) {
            return Ok(false);
        }
        let table = self.table.clone();
        let Some(seq_max) = table
            .page(index, page)?
            .dead_as_a_whole(row, &self.tombstones, view)
        else {
            return Ok(false);
        };
        let (from, to) = (row, row);
        self.state = State::Rows { from, to, seq_max };
        self.page = page;
        Ok(true)
    }

    /// Extends a dead block to the dead blocks that follow it in its page.
    pub(super) fn take_dead_rows(&mut self, rows: &Page, side: Side, view: &ExpiryView) {
        while let State::Rows { from, to, seq_max } = &mut self.state {
            let next = match side {
                Side::Front => Some(*to + 1).filter(|row| *row < rows.len()),
                Side::Back => from.checked_sub(1),
            };
            let Some((next, seq)) = next
                .and_then(|row| Some((row, rows.dead_as_a_whole(row, &self.tombstones, view)?)))
            else {
                return;
            };
            (*from, *to) = ((*from).min(next), (*to).max(next));
            *seq_max = seq.max(*seq_max);
        }
    }

    /// From a dead span of several blocks goes to the first of these that `to` admits; from one of a single block into
    /// it; if `to` admits none, beyond them.
    pub(super) fn enter_rows(
        &mut self,
        (first, last, seq_max): (usize, usize, Seq),
        to: Seek<'_>,
        view: Option<&ExpiryView>,
    ) -> Result<()> {
        let table = self.table.clone();
        let start = self.blocks().start;
        if first == last {
            self.start_seek_in(self.page, start + first, Share::HALF);
            return Ok(());
        }
        let found = table.page(table.index()?, self.page)?.row_for(to);
        let row = if to.is_forward() {
            found.map(|row| row.max(first)).filter(|row| *row <= last)
        } else {
            found.map(|row| row.min(last)).filter(|row| *row >= first)
        };
        match row {
            Some(row) => {
                let (from, to) = (row, row);
                self.state = State::Rows { from, to, seq_max };
                Ok(())
            }
            None if to.is_forward() => self.step_to(Some(start + last + 1), Side::Front, view),
            None => self.step_to((start + first).checked_sub(1), Side::Back, view),
        }
    }
}
