//! Walking a table, or the tables of a run.
//!
//! A cursor holds the block it stands in; a step inside it decodes one entry and touches nothing else. With a judge, a
//! cursor stops before what is dead as a whole, by its census or because range deletes cover it: a run's before a table,
//! a table's before the blocks of a page of the index, what is left of them, or one block. A block that was read to be
//! stood in is walked through record by record, whatever its census says.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::coding::Malformed;
use crate::cover::Cover;
use crate::error::Result;
use crate::expiry::{Census, Judge};
use crate::item::Pair;
use crate::merge::{Cursor, Ghost, Position, Seek};
use crate::record::Head;
use crate::table::block::{Block, Entry, Extent, Layout};
use crate::table::index::{Index, Page};
use crate::table::read_ahead::ReadAhead;
use crate::table::reader::{Keep, Table};
use crate::types::Seq;

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
    /// On entry `at` of block `number`, which is in hand.
    Record(Entry),
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
    /// Of the index; told by ghosts alone.
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

const GHOSTS_ARE_KNOWN: &str = "the index was read to find the ghost";

impl TableCursor {
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

    fn fault(&self, bad: Malformed) -> crate::error::Error {
        self.table.block_fault(self.number, bad)
    }

    /// Takes block `number` in hand.
    fn load(&mut self, number: usize, keep: Keep) -> Result<()> {
        self.number = number;
        if self
            .loaded
            .as_ref()
            .is_some_and(|loaded| loaded.number == number)
        {
            return Ok(());
        }
        let body = self.table.body(number, keep, self.read_ahead.access())?;
        let layout = Layout::of(&body).map_err(|bad| self.fault(bad))?;
        self.loaded = Some(Loaded {
            number,
            body,
            layout,
        });
        Ok(())
    }

    /// Stands on entry `at` of the block in hand: the step of most walks.
    #[inline(always)]
    fn stand_on(&mut self, at: usize) -> Result<()> {
        match self.block().entry(at) {
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
        self.load(number, Keep::Passing)?;
        let (at, next) = match side {
            Side::Front => (0, Some(number + 1)),
            Side::Back => (self.loaded().layout.count() - 1, number.checked_sub(1)),
        };
        if let Some(next) = next.filter(|&next| next < table.statistics.blocks as usize) {
            table.come_near(next, side == Side::Front, &mut self.read_ahead);
        }
        self.stand_on(at)
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
        let Some(seq_max) = dead_row(index.top(), page, &self.cover, judge) else {
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
        let Some(seq_max) = dead_row(table.page(index, page)?, row, &self.cover, judge) else {
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
                next.and_then(|row| Some((row, dead_row(rows, row, &self.cover, judge)?)))
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
            return self.descend(start + first, to, judge);
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

    /// Stands on what `to` admits first among the blocks of a page, or beyond them.
    fn descend_page(&mut self, page: usize, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let index = table.index()?;
        let blocks = index.blocks_of(page);
        let Some(row) = table.page(index, page)?.row_for(to) else {
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
        self.descend(blocks.start + row, to, judge)
    }

    /// Stands on the first record in block `number` that `to` admits, or beyond the block.
    fn descend(&mut self, number: usize, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        self.load(number, Keep::Cached)?;
        let (block, count) = (self.block(), self.loaded().layout.count());
        let found = match to {
            Seek::First => Ok(Some(0)),
            Seek::AtOrAfter(key) => block.below(key).map(Some),
            Seek::After(key) => block.up_to(key).map(Some),
            Seek::Last => Ok(Some(count - 1)),
            Seek::AtOrBefore(key) => block.up_to(key).map(|after| after.checked_sub(1)),
            Seek::Before(key) => block.below(key).map(|after| after.checked_sub(1)),
        };
        match found
            .map_err(|bad| self.fault(bad))?
            .filter(|&at| at < count)
        {
            Some(at) => self.stand_on(at),
            None if to.is_forward() => self.step_to(Some(number + 1), Side::Front, judge),
            None => self.step_to(number.checked_sub(1), Side::Back, judge),
        }
    }
}

/// From where a block is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Front,
    Back,
}

/// The highest number of what a row tells of, when that is dead as a whole.
fn dead_row(page: &Page, row: usize, cover: &Cover, judge: &Judge) -> Option<Seq> {
    let census = page.census(row);
    let keys = || (page.first_key(row), page.last_key(row));
    is_dead(&census, keys, cover, judge).then_some(census.seq_max)
}

/// All these records are dead, or range deletes cover all of their keys.
fn is_dead<'a>(
    census: &Census,
    keys: impl FnOnce() -> (&'a [u8], &'a [u8]),
    cover: &Cover,
    judge: &Judge,
) -> bool {
    census.all_dead(judge)
        || (!cover.is_empty() && {
            let (first, last) = keys();
            census.seq_max < cover.below_all(first, last)
        })
}

impl Cursor for TableCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match &self.state {
            State::End => Position::End,
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

    fn come_near(&self, to: Seek<'_>) {
        self.table.come_near_to(to);
    }

    fn seek(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        self.read_ahead = ReadAhead::default();
        self.lively = None;
        let judge = judge.filter(|judge| self.may_have_ghosts(judge));
        let table = self.table.clone();
        let index = table.index()?;
        let Some(page) = index.top().row_for(to) else {
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
            State::End => Ok(()),
            State::Record(_) if self.at + 1 < self.loaded().layout.count() => {
                self.stand_on(self.at + 1)
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
            State::End => Ok(()),
            State::Record(_) if self.at > 0 => self.stand_on(self.at - 1),
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
            State::Page { .. } => self.descend_page(self.page, to, judge),
            State::Rows {
                from,
                to: last,
                seq_max,
            } => self.enter_rows((from, last, seq_max), to, judge),
            State::End | State::Record(_) => panic!("only a ghost is entered"),
        }
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

/// A place in a run: in tables that follow each other in key order without overlap.
pub struct RunCursor {
    tables: Arc<[Arc<Table>]>,
    cover: Arc<Cover>,
    state: RunState,
    /// The table of the ghost, or the one that `inner` is in.
    number: usize,
    inner: Option<TableCursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    End,
    /// Before a table.
    Ghost,
    /// Where the inner cursor stands, which is not past the end.
    Inside,
}

impl RunCursor {
    /// A place in the run, at first past its end.
    pub fn new(tables: Arc<[Arc<Table>]>) -> RunCursor {
        debug_assert!(tables.is_sorted_by(|a, b| a.last_key() < b.first_key()));
        RunCursor {
            tables,
            cover: Arc::default(),
            state: RunState::End,
            number: 0,
            inner: None,
        }
    }

    /// The same; with a judge, records are dead too that `cover` says are gone.
    pub fn under(self, cover: Arc<Cover>) -> RunCursor {
        RunCursor { cover, ..self }
    }

    fn inner(&self) -> &TableCursor {
        self.inner.as_ref().expect("a cursor inside a table")
    }

    /// The first table, in the direction of `to`, part of whose range `to` admits.
    fn table_for(&self, to: Seek<'_>) -> Option<usize> {
        let (tables, before) = (&self.tables, |count: usize| count.checked_sub(1));
        match to {
            Seek::First => Some(0),
            Seek::AtOrAfter(key) => Some(tables.partition_point(|table| table.last_key() < key)),
            Seek::After(key) => Some(tables.partition_point(|table| table.last_key() <= key)),
            Seek::Last => before(tables.len()),
            Seek::AtOrBefore(key) => {
                before(tables.partition_point(|table| table.first_key() <= key))
            }
            Seek::Before(key) => before(tables.partition_point(|table| table.first_key() < key)),
        }
    }

    /// Stands on what `to` admits first in table `number`, before it when it is a ghost, or beyond it.
    fn step_to(
        &mut self,
        number: Option<usize>,
        to: Seek<'_>,
        judge: Option<&Judge>,
    ) -> Result<()> {
        self.state = RunState::End;
        let Some((number, table)) = number.and_then(|at| Some((at, self.tables.get(at)?))) else {
            return Ok(());
        };
        self.number = number;
        let keys = || (table.first_key(), table.last_key());
        if judge.is_some_and(|judge| is_dead(table.census(), keys, &self.cover, judge)) {
            self.state = RunState::Ghost;
            return Ok(());
        }
        self.descend(to, judge)
    }

    /// Stands on what `to` admits first in table `self.number`, or beyond it.
    fn descend(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = RunState::End;
        let table = &self.tables[self.number];
        let inner = match &mut self.inner {
            Some(inner) if Arc::ptr_eq(&inner.table, table) => inner,
            inner => inner.insert(TableCursor {
                cover: self.cover.clone(),
                ..table.cursor()
            }),
        };
        inner.seek(to, judge)?;
        self.settle(to.is_forward(), judge)
    }

    /// Stays with the inner cursor, or goes to the next table when that one has passed its end.
    #[inline]
    fn settle(&mut self, forward: bool, judge: Option<&Judge>) -> Result<()> {
        if self.inner().state != State::End {
            self.state = RunState::Inside;
            return Ok(());
        }
        self.leave(forward, judge)
    }

    fn leave(&mut self, forward: bool, judge: Option<&Judge>) -> Result<()> {
        if forward {
            self.step_to(Some(self.number + 1), Seek::First, judge)
        } else {
            self.step_to(self.number.checked_sub(1), Seek::Last, judge)
        }
    }

    /// Lets the inner cursor make a step, and follows it.
    #[inline]
    fn follow(
        &mut self,
        forward: bool,
        judge: Option<&Judge>,
        step: impl FnOnce(&mut TableCursor) -> Result<()>,
    ) -> Result<()> {
        let inner = self.inner.as_mut().expect("a cursor inside a table");
        if let Err(error) = step(inner) {
            self.state = RunState::End;
            return Err(error);
        }
        self.settle(forward, judge)
    }
}

impl Cursor for RunCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match self.state {
            RunState::End => Position::End,
            RunState::Inside => self.inner().position(),
            RunState::Ghost => {
                let table = &self.tables[self.number];
                Position::Ghost(Ghost {
                    first: table.first_key(),
                    last: table.last_key(),
                    seq_max: table.census().seq_max,
                })
            }
        }
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        self.state == RunState::Inside && self.inner().is_on_record()
    }

    fn come_near(&self, to: Seek<'_>) {
        let table = self.table_for(to).and_then(|at| self.tables.get(at));
        table.inspect(|table| table.come_near_to(to));
    }

    fn seek(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.step_to(self.table_for(to), to, judge)
    }

    #[inline]
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            RunState::End => Ok(()),
            RunState::Ghost => self.leave(true, judge),
            RunState::Inside => self.follow(true, judge, |inner| inner.advance(judge)),
        }
    }

    #[inline]
    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            RunState::End => Ok(()),
            RunState::Ghost => self.leave(false, judge),
            RunState::Inside => self.follow(false, judge, |inner| inner.retreat(judge)),
        }
    }

    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            RunState::End => panic!("only a ghost is entered"),
            RunState::Ghost => self.descend(to, judge),
            RunState::Inside => self.follow(to.is_forward(), judge, |inner| inner.enter(to, judge)),
        }
    }

    #[inline(always)]
    fn pair(&self) -> Result<Pair> {
        assert_eq!(self.state, RunState::Inside, "a record has key and value");
        self.inner().pair()
    }

    fn value_bytes(&self) -> Result<Bytes> {
        assert_eq!(self.state, RunState::Inside, "a record has a value");
        self.inner().value_bytes()
    }

    fn value(&self) -> Result<&[u8]> {
        assert_eq!(self.state, RunState::Inside, "a record has a value");
        self.inner().value()
    }
}
