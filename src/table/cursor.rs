//! Walking a table.
//!
//! A cursor holds the block it stands in; a step inside it decodes one entry, asks for the one after the next, and touches
//! nothing else. With a judge, a cursor stops before what is dead as a whole, by its census or because range deletes cover
//! it: before the blocks of a page of the index, what is left of them, or one block. A block that was read to be stood in
//! is walked through record by record, whatever its census says.
//!
//! A seek (data/cursor.rs has the protocol) goes over the row of its block in the index, the block's end, and some of its
//! keys: a step for each, and each is asked for by the step before.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::coding::Malformed;
use crate::base::record::Head;
use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, Ghost, Position, Seek};
use crate::data::item::Pair;
use crate::data::range_tombstones::Cover;
use crate::expiry::Judge;
use crate::table::block::{Block, Entry, Extent, Layout};
use crate::table::index::Index;
use crate::table::page::Page;
use crate::table::read_ahead::ReadAhead;
use crate::table::reader::{Keep, Table};
use crate::table::search::Search;

impl Table {
    /// A place in the table, at first past its end.
    pub fn cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor {
            table: self.clone(),
            cover: Arc::default(),
            state: State::End,
            page: 0,
            lively: None,
            number: 0,
            at: 0,
            loaded: None,
            read_ahead: ReadAhead::default(),
            large: OnceLock::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    End,
    /// Before all blocks of page `page`.
    Page {
        seq_max: Seq,
    },
    /// Before the blocks of these rows, both included, of page `page`.
    Rows {
        from: usize,
        to: usize,
        seq_max: Seq,
    },
    /// On the way to a place in block `number`.
    Bound(Way),
    /// On entry `at` of block `number`, which is in hand.
    Record(Entry),
}

/// What is looked at next on the way to a place in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its row in page `page` of the index.
    Row,
    /// Its end.
    End { from: u64, end: u64 },
    /// Some of its keys.
    Keys(Search),
}

/// The block that a cursor holds.
struct Loaded {
    number: usize,
    body: Bytes,
    layout: Layout,
}

/// A place in a table.
pub struct TableCursor {
    table: Arc<Table>,
    /// What range deletes cover, for the one who walks with a judge.
    cover: Arc<Cover>,
    state: State,
    /// Of the index; told by ghosts, and on the way to a place.
    page: usize,
    /// A page in which nothing was dead when it was asked: none of its blocks is a ghost.
    lively: Option<usize>,
    number: usize,
    at: usize,
    /// The block that was read last.
    loaded: Option<Loaded>,
    read_ahead: ReadAhead,
    /// The record's value, when it is large and was asked for.
    large: OnceLock<Bytes>,
}

/// How many entries ahead a walk asks for what it comes to.
const FETCHED_AHEAD: usize = 2;

const GHOSTS_ARE_KNOWN: &str = "the index was read to find the ghost";

impl TableCursor {
    /// The same; with a judge, records are dead too that `cover` says are gone.
    pub(super) fn under(self, cover: Arc<Cover>) -> TableCursor {
        TableCursor { cover, ..self }
    }

    /// Whether it is a cursor of this table.
    pub(super) fn is_in(&self, table: &Arc<Table>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// Whether it is past the end, and not on its way.
    #[inline]
    pub(super) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    fn loaded(&self) -> &Loaded {
        self.loaded
            .as_ref()
            .expect("a cursor on a record holds its block")
    }

    /// Those of the page that is a ghost.
    fn blocks(&self) -> Range<usize> {
        let index = self.table.index().expect(GHOSTS_ARE_KNOWN);
        index.blocks_of(self.page)
    }

    /// Before what these rows of a page tell of.
    fn ghost<'a>(
        &'a self,
        page: impl FnOnce(&'a Index) -> &'a Page,
        rows: RangeInclusive<usize>,
        seq_max: Seq,
    ) -> Position<'a> {
        let page = page(self.table.index().expect(GHOSTS_ARE_KNOWN));
        Position::Ghost(Ghost {
            first: page.first_key(*rows.start()),
            last: page.last_key(*rows.end()),
            seq_max,
        })
    }

    #[inline]
    fn body(&self) -> &Bytes {
        &self.loaded().body
    }

    #[inline(always)]
    fn block(&self) -> Block<'_> {
        self.loaded().layout.block(self.body())
    }

    #[inline]
    fn entry(&self) -> &Entry {
        match &self.state {
            State::Record(entry) => entry,
            other => panic!("key or value of {other:?}"),
        }
    }

    fn extent(&self) -> Result<Extent> {
        self.block().extent(self.at).map_err(|bad| self.fault(bad))
    }

    fn large_value(&self) -> Result<&[u8]> {
        if self.large.get().is_none() {
            let value = self
                .table
                .large_value(&self.extent()?, self.entry().value_len())?;
            let _ = self.large.set(value);
        }
        Ok(self.large.get().expect("set above"))
    }

    fn fault(&self, bad: Malformed) -> crate::base::Error {
        self.table.block_fault(self.number, bad)
    }

    /// Takes block `number` in hand, which lies at `place`.
    fn load(&mut self, number: usize, place: &Range<u64>, keep: Keep) -> Result<()> {
        self.number = number;
        let held = self.loaded.as_ref().map(|loaded| loaded.number);
        if held == Some(number) {
            return Ok(());
        }
        let access = self.read_ahead.access();
        let body = self.table.body(number, place, keep, access)?;
        let layout = Layout::of(&body).map_err(|bad| self.fault(bad))?;
        self.loaded = Some(Loaded {
            number,
            body,
            layout,
        });
        Ok(())
    }

    /// Stands on entry `at` of the block in hand, having asked for the one to which the walk comes some steps later: the
    /// step of most walks.
    #[inline(always)]
    fn stand_on(&mut self, at: usize, side: Side) -> Result<()> {
        let block = self.block();
        block.fetch(side.ahead(at, FETCHED_AHEAD));
        match block.entry(at) {
            Ok(entry) => {
                self.state = State::Record(entry);
                self.at = at;
                self.large.take();
                Ok(())
            }
            Err(bad) => {
                self.state = State::End;
                Err(self.fault(bad))
            }
        }
    }

    /// The same, where those between were not asked for yet.
    fn arrive_at(&mut self, at: usize, side: Side) -> Result<()> {
        let between = (1..FETCHED_AHEAD).map(|steps| side.ahead(at, steps));
        between.for_each(|at| self.block().fetch(at));
        self.stand_on(at, side)
    }

    /// Stands on block `number`, coming from its `side`: before it, or before all of its page, when that is a ghost; else
    /// on its first or last record; past the end when there is no such block.
    fn step_to(&mut self, number: Option<usize>, side: Side, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let Some(number) = number.filter(|&number| number < table.statistics.blocks as usize)
        else {
            return Ok(());
        };
        if let Some(judge) = judge.filter(|judge| self.may_have_ghosts(judge)) {
            let index = table.index()?;
            let page = index.page_of(number);
            let blocks = index.blocks_of(page);
            let enters = match side {
                Side::Front => number == blocks.start,
                Side::Back => number + 1 == blocks.end,
            };
            let row = number - blocks.start;
            if self.is_dead_page(index, page, judge) {
                if !enters {
                    self.leave_rows(blocks.len(), row, side);
                }
                return Ok(());
            }
            if self.is_dead_block(index, page, row, judge)? {
                self.take_dead_rows(table.page(index, page)?, side, judge);
                return Ok(());
            }
        }
        self.load(number, &table.place(number)?, Keep::Passing)?;
        let (at, next) = match side {
            Side::Front => (0, Some(number + 1)),
            Side::Back => (self.loaded().layout.count() - 1, number.checked_sub(1)),
        };
        if let Some(next) = next.filter(|&next| next < table.statistics.blocks as usize) {
            table.come_near(next, side == Side::Front, &mut self.read_ahead);
        }
        self.arrive_at(at, side)
    }

    /// What is said of the whole table leaves room for ghosts. Where nothing is dead no block is asked: each would be a miss
    /// of the caches.
    fn may_have_ghosts(&self, judge: &Judge) -> bool {
        !self.cover.is_empty() || self.table.census().any_dead(judge)
    }

    /// Stands before the blocks of a page when they are dead as a whole.
    fn is_dead_page(&mut self, index: &Index, page: usize, judge: &Judge) -> bool {
        if self.lively == Some(page) {
            return false;
        }
        let Some(seq_max) = index.top().dead_as_a_whole(page, &self.cover, judge) else {
            let is_lively = self.cover.is_empty() && !index.top().census(page).any_dead(judge);
            self.lively = is_lively.then_some(page);
            return false;
        };
        self.state = State::Page { seq_max };
        self.page = page;
        true
    }

    /// From before all blocks of a page to before those that are left of it, from a row on.
    fn leave_rows(&mut self, rows: usize, row: usize, side: Side) {
        if let State::Page { seq_max } = self.state {
            let (from, to) = match side {
                Side::Front => (row, rows - 1),
                Side::Back => (0, row),
            };
            self.state = State::Rows { from, to, seq_max };
        }
    }

    /// Stands before the block of a row when it is dead as a whole.
    fn is_dead_block(
        &mut self,
        index: &Index,
        page: usize,
        row: usize,
        judge: &Judge,
    ) -> Result<bool> {
        if self.lively == Some(page) {
            return Ok(false);
        }
        let table = self.table.clone();
        let Some(seq_max) = table
            .page(index, page)?
            .dead_as_a_whole(row, &self.cover, judge)
        else {
            return Ok(false);
        };
        let (from, to) = (row, row);
        self.state = State::Rows { from, to, seq_max };
        self.page = page;
        Ok(true)
    }

    /// From before a dead block to before all that follow each other in its page.
    fn take_dead_rows(&mut self, rows: &Page, side: Side, judge: &Judge) {
        while let State::Rows { from, to, seq_max } = &mut self.state {
            let next = match side {
                Side::Front => Some(*to + 1).filter(|row| *row < rows.len()),
                Side::Back => from.checked_sub(1),
            };
            let Some((next, highest)) =
                next.and_then(|row| Some((row, rows.dead_as_a_whole(row, &self.cover, judge)?)))
            else {
                return;
            };
            (*from, *to) = ((*from).min(next), (*to).max(next));
            *seq_max = highest.max(*seq_max);
        }
    }

    /// From before some blocks of a page to before the one of these that `to` admits first; into it when it is the only
    /// one; beyond them when there is none.
    fn enter_rows(
        &mut self,
        (first, last, seq_max): (usize, usize, Seq),
        to: Seek<'_>,
        judge: Option<&Judge>,
    ) -> Result<()> {
        let table = self.table.clone();
        let start = self.blocks().start;
        if first == last {
            self.set_out_for(self.page, start + first);
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
            None if to.is_forward() => self.step_to(Some(start + last + 1), Side::Front, judge),
            None => self.step_to((start + first).checked_sub(1), Side::Back, judge),
        }
    }

    /// Sets out for what `to` admits first among the blocks of a page, or beyond them.
    fn descend_page(&mut self, page: usize, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let index = table.index()?;
        let blocks = index.blocks_of(page);
        let rows = table.page(index, page)?;
        let row = match judge {
            Some(_) => rows.row_for(to),
            None => rows.row_about(to),
        };
        let Some(row) = row else {
            return if to.is_forward() {
                self.step_to(Some(blocks.end), Side::Front, judge)
            } else {
                self.step_to(blocks.start.checked_sub(1), Side::Back, judge)
            };
        };
        if let Some(judge) = judge
            && self.is_dead_block(index, page, row, judge)?
        {
            return Ok(());
        }
        rows.fetch(row);
        self.set_out_for(page, blocks.start + row);
        Ok(())
    }

    /// Sets out for a place in block `number`, of page `page` of the index.
    fn set_out_for(&mut self, page: usize, number: usize) {
        (self.page, self.number) = (page, number);
        self.state = State::Bound(Way::Row);
    }

    /// Makes a step of the way to the first record in block `self.number` that `to` admits, or beyond the block.
    fn near(&mut self, way: Way, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let number = self.number;
        let search = match way {
            Way::Row => {
                let index = self.table.index()?;
                let row = number - index.blocks_of(self.page).start;
                let place = self.table.page(index, self.page)?.place(row);
                let read_ahead = &mut self.read_ahead;
                self.table.come_near_to(&place, to.is_forward(), read_ahead);
                let Range { start: from, end } = place;
                self.state = State::Bound(Way::End { from, end });
                return Ok(());
            }
            Way::End { from, end } => {
                self.load(number, &(from..end), Keep::Cached)?;
                self.block().search(to)
            }
            Way::Keys(mut search) => {
                let narrowed = self.block().narrow(&mut search, to);
                narrowed.map_err(|bad| self.fault(bad))?;
                search
            }
        };
        let Some(before) = search.found() else {
            self.state = State::Bound(Way::Keys(search));
            return Ok(());
        };
        if to.is_forward() {
            match before < self.loaded().layout.count() {
                true => self.arrive_at(before, Side::Front),
                false => self.step_to(Some(number + 1), Side::Front, judge),
            }
        } else {
            match before.checked_sub(1) {
                Some(last) => self.arrive_at(last, Side::Back),
                None => self.step_to(number.checked_sub(1), Side::Back, judge),
            }
        }
    }
}

/// From where a block is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Front,
    Back,
}

impl Side {
    /// The entry so many steps behind entry `at`; a number that no entry has where there is none.
    #[inline(always)]
    fn ahead(self, at: usize, steps: usize) -> usize {
        match self {
            Side::Front => at + steps,
            Side::Back => at.wrapping_sub(steps),
        }
    }
}

impl Cursor for TableCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match &self.state {
            State::End | State::Bound(_) => Position::End,
            State::Record(entry) => Position::Record(Head {
                header: entry.header,
                key: &self.body()[entry.key()],
                value_len: entry.value_len(),
            }),
            State::Page { seq_max } => self.ghost(Index::top, self.page..=self.page, *seq_max),
            State::Rows { from, to, seq_max } => self.ghost(
                |index| index.page(self.page).expect(GHOSTS_ARE_KNOWN),
                *from..=*to,
                *seq_max,
            ),
        }
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        matches!(self.state, State::Record(_))
    }

    fn approach(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<bool> {
        if let State::Bound(way) = self.state {
            self.near(way, to, judge)?;
        }
        Ok(!matches!(self.state, State::Bound(_)))
    }

    fn set_out(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        self.read_ahead = ReadAhead::default();
        self.lively = None;
        let judge = judge.filter(|judge| self.may_have_ghosts(judge));
        let table = self.table.clone();
        let index = table.index()?;
        let page = match judge {
            Some(_) => index.top().row_for(to),
            None => index.top().row_about(to),
        };
        let Some(page) = page else {
            return Ok(());
        };
        if judge.is_some_and(|judge| self.is_dead_page(index, page, judge)) {
            return Ok(());
        }
        self.descend_page(page, to, judge)
    }

    #[inline]
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            State::End | State::Bound(_) => Ok(()),
            State::Record(_) if self.at + 1 < self.loaded().layout.count() => {
                self.stand_on(self.at + 1, Side::Front)
            }
            State::Page { .. } => self.step_to(Some(self.blocks().end), Side::Front, judge),
            State::Rows { to, .. } => {
                self.step_to(Some(self.blocks().start + to + 1), Side::Front, judge)
            }
            _ => self.step_to(Some(self.number + 1), Side::Front, judge),
        }
    }

    #[inline]
    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            State::End | State::Bound(_) => Ok(()),
            State::Record(_) if self.at > 0 => self.stand_on(self.at - 1, Side::Back),
            State::Page { .. } => {
                self.step_to(self.blocks().start.checked_sub(1), Side::Back, judge)
            }
            State::Rows { from, .. } => self.step_to(
                (self.blocks().start + from).checked_sub(1),
                Side::Back,
                judge,
            ),
            _ => self.step_to(self.number.checked_sub(1), Side::Back, judge),
        }
    }

    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            State::Page { .. } => self.descend_page(self.page, to, judge)?,
            State::Rows {
                from,
                to: last,
                seq_max,
            } => self.enter_rows((from, last, seq_max), to, judge)?,
            State::End | State::Bound(_) | State::Record(_) => panic!("only a ghost is entered"),
        }
        while !self.approach(to, judge)? {}
        Ok(())
    }

    #[inline(always)]
    fn pair(&self) -> Result<Pair> {
        let (body, key) = (self.body(), self.entry().key());
        match self.entry().value() {
            Some(value) => {
                let piece = body.slice(key.start..value.end);
                Ok(Pair::of_piece(piece, key.len()))
            }
            None => Ok(Pair::new(body.slice(key), self.value_bytes()?)),
        }
    }

    fn value_bytes(&self) -> Result<Bytes> {
        match (self.entry().value(), self.large.get()) {
            (Some(range), _) => Ok(self.body().slice(range)),
            (None, Some(value)) => Ok(value.clone()),
            (None, None) => self
                .table
                .large_value(&self.extent()?, self.entry().value_len()),
        }
    }

    #[inline]
    fn value(&self) -> Result<&[u8]> {
        match self.entry().value() {
            Some(range) => Ok(&self.body()[range]),
            None => self.large_value(),
        }
    }
}
