//! Cursors on a table.
//!
//! A cursor holds its current block; a step inside it decodes one entry and prefetches the one after the next. With an
//! expiry view, a cursor stops before blocks that are dead as a whole, by their census or because range deletes cover
//! them: before all blocks of a page of the index, the rest of a page, or one block. A block that was read is iterated
//! record by record, whatever its census says.
//!
//! A block whose records are alike is uniform (uniform_block.rs). The cursor lends its entries undecoded.
//!
//! A seek (data/cursor.rs has the protocol) reads the row of its block in the index, the block's end, and some of its
//! keys: one step for each, which the step before has prefetched.

mod side;
mod dead_spans;
mod lending;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::base::coding::Malformed;
use crate::base::record::RecordRef;
use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, KeyPosition, Position, Seek};
use crate::data::item::Pair;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, ItemSpan, Lent};
use crate::data::lend::uniform_block::UniformBlock;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::ExpiryView;
use crate::table::encode::block::{Block, Entry, Extent, Layout};
use crate::table::encode::search::{Search, Share};
use crate::table::read::read_ahead::ReadAhead;
use crate::table::read::reader::{Keep, Table};
use crate::table::walk::uniform_block::Alike;

use side::Side;

impl Table {
    /// A cursor on the table, at first past its end.
    pub fn cursor(self: &Arc<Self>) -> TableCursor {
        self.cursor_under(RangeTombstones::default())
    }

    /// The same; with an expiry view, records that `tombstones` cover count as dead.
    pub(in crate::table) fn cursor_under(
        self: &Arc<Self>,
        tombstones: RangeTombstones,
    ) -> TableCursor {
        TableCursor {
            table: self.clone(),
            tombstones,
            state: State::End,
            page: 0,
            live_page: None,
            number: 0,
            near: 0,
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
    /// Seeking in block `number`.
    Seeking(Stage),
    /// On entry `at` of block `number`, the current block.
    Record(Entry),
    /// The same, not decoded: the block is uniform, and the entry adds up in it.
    Uniform,
}

/// The stage of a seek in a block: what it reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its row in page `page` of the index.
    Row(Share),
    /// Its end.
    End { from: u64, end: u64, share: Share },
    /// Some of the block's keys.
    Keys(Search),
}

/// The current block of a cursor.
struct Loaded {
    number: usize,
    body: Bytes,
    layout: Layout,
    /// The outer one: none, as long as nobody has asked.
    alike: Option<Option<Alike>>,
    /// The number of the last view under which somebody asked, and whether all records are certainly shown under it.
    certain: (u64, bool),
    /// The last call that lent from it, and by which number it holds the body.
    lent: (u64, u32),
}

/// A cursor on a table.
pub struct TableCursor {
    table: Arc<Table>,
    /// The range tombstones, if there is an expiry view.
    tombstones: RangeTombstones,
    state: State,
    /// The page of the index of a dead span or of a seek.
    page: usize,
    /// A page in which no block was dead when it was checked: none of them is a dead span.
    live_page: Option<usize>,
    number: usize,
    /// A page of the index that has the row of a block nearby.
    near: usize,
    at: usize,
    /// The block read last.
    loaded: Option<Loaded>,
    read_ahead: ReadAhead,
    /// The value of the current record, if it is large and was read.
    large: OnceLock<Bytes>,
}

const ADDS_UP: &str = "a cursor in a uniform block is on a record that adds up, and so decodes";

/// The place of a block whose row is mostly in the page `near` of the index; that becomes its page.
#[inline]
fn place_near(table: &Table, number: usize, near: &mut usize) -> Result<Range<u64>> {
    let index = table.index()?;
    *near = index.page_near(number, *near);
    let row = number - index.blocks_of(*near).start;
    Ok(table.page(index, *near)?.place(row))
}

/// How many entries ahead an iteration prefetches.
const FETCHED_AHEAD: usize = 2;

impl TableCursor {
    /// Whether it is a cursor of this table.
    pub(in crate::table) fn is_in(&self, table: &Arc<Table>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }

    /// Whether it is past the end, and not seeking.
    #[inline]
    pub(in crate::table) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    #[inline]
    pub(in crate::table) fn is_seeking(&self) -> bool {
        matches!(self.state, State::Seeking(_))
    }

    fn loaded(&self) -> &Loaded {
        self.loaded
            .as_ref()
            .expect("a cursor on a record holds its block")
    }

    #[inline]
    fn body(&self) -> &Bytes {
        &self.loaded().body
    }

    #[inline(always)]
    fn block(&self) -> Block<'_> {
        self.loaded().layout.block(self.body())
    }

    #[inline(always)]
    fn on(&self, entry: &Entry) -> Position<'_> {
        Position::Record(RecordRef {
            header: entry.header,
            key: &self.body()[entry.key()],
            value_len: entry.value_len(),
        })
    }

    fn entry(&self) -> Entry {
        match self.state {
            State::Record(entry) => entry,
            State::Uniform => self.entry_in_uniform_block(),
            other => panic!("key or value of {other:?}"),
        }
    }

    #[cold]
    #[inline(never)]
    fn entry_in_uniform_block(&self) -> Entry {
        self.block().entry(self.at).expect(ADDS_UP)
    }

    #[inline(always)]
    fn pair_of(&self, entry: &Entry) -> Result<Pair> {
        let (body, key) = (self.body(), entry.key());
        match entry.value() {
            Some(value) => {
                let piece = body.slice(key.start..value.end);
                Ok(Pair::of_piece(piece, key.len()))
            }
            None => Ok(Pair::new(body.slice(key), self.value_bytes()?)),
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

    /// Makes block `number`, which is at `place`, the current block.
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
            alike: None,
            certain: (0, false),
            lent: (0, 0),
        });
        Ok(())
    }

    /// Goes to entry `at` of the current block, and prefetches the one some steps later: the step of most iterations.
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

    /// Goes to entry `at`, and prefetches also the entries before that one.
    fn arrive_at(&mut self, at: usize, side: Side) -> Result<()> {
        let between = (1..FETCHED_AHEAD).map(|steps| side.ahead(at, steps));
        between.for_each(|at| self.block().fetch(at));
        self.stand_on(at, side)
    }

    /// Enters block `number` from its `side`: stops before it, or before all blocks of its page, if that is a dead
    /// span; otherwise goes to its first or last record. Past the end if there is no such block.
    fn step_to(&mut self, to: Option<usize>, side: Side, view: Option<&ExpiryView>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let Some(number) = to.filter(|&number| number < table.statistics.blocks as usize) else {
            return Ok(());
        };
        if let Some(view) = view.filter(|view| self.may_have_dead_spans(view)) {
            let index = table.index()?;
            let page = index.page_of(number);
            let blocks = index.blocks_of(page);
            let enters = match side {
                Side::Front => number == blocks.start,
                Side::Back => number + 1 == blocks.end,
            };
            let row = number - blocks.start;
            if self.is_dead_page(index, page, view) {
                if !enters {
                    self.leave_rows(blocks.len(), row, side);
                }
                return Ok(());
            }
            if self.is_dead_block(index, page, row, view)? {
                self.take_dead_rows(table.page(index, page)?, side, view);
                return Ok(());
            }
        }
        let place = place_near(&table, number, &mut self.near)?;
        self.load(number, &place, Keep::Passing)?;
        let (at, next) = match side {
            Side::Front => (0, Some(number + 1)),
            Side::Back => (self.loaded().layout.count() - 1, number.checked_sub(1)),
        };
        if let Some(next) = next.filter(|&next| next < table.statistics.blocks as usize) {
            let (near, read_ahead) = (&mut self.near, &mut self.read_ahead);
            let place = || place_near(&table, next, near);
            table.prefetch_block(place, side == Side::Front, read_ahead);
        }
        self.arrive_at(at, side)
    }

    /// Starts a seek to the first place that `to` admits among the blocks of a page, or beyond them.
    fn descend_page(&mut self, page: usize, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let index = table.index()?;
        let blocks = index.blocks_of(page);
        let rows = table.page(index, page)?;
        let Some(row) = rows.row_for(to) else {
            return if to.is_forward() {
                self.step_to(Some(blocks.end), Side::Front, view)
            } else {
                self.step_to(blocks.start.checked_sub(1), Side::Back, view)
            };
        };
        if let Some(view) = view
            && self.is_dead_block(index, page, row, view)?
        {
            return Ok(());
        }
        rows.fetch(row);
        self.start_seek_in(page, blocks.start + row, rows.share(row, to));
        Ok(())
    }

    /// Starts a seek where nothing is dead; forwards a page always has a row about it.
    fn start_seek_to_live(&mut self, to: Seek<'_>) -> Result<()> {
        let (table, index) = (&self.table, self.table.index()?);
        let Some(page) = index.top().row_about(to) else {
            return Ok(());
        };
        let (blocks, rows) = (index.blocks_of(page), table.page(index, page)?);
        let Some(row) = rows.row_about(to) else {
            return self.step_to(blocks.start.checked_sub(1), Side::Back, None);
        };
        rows.fetch(row);
        self.start_seek_in(page, blocks.start + row, rows.share(row, to));
        Ok(())
    }

    /// Starts a seek in block `number`, of page `page` of the index.
    fn start_seek_in(&mut self, page: usize, number: usize, share: Share) {
        (self.page, self.number) = (page, number);
        self.state = State::Seeking(Stage::Row(share));
    }

    /// Makes the next stage of the seek to the first record in block `self.number` that `to` admits, or beyond it.
    fn seek_stage(&mut self, stage: Stage, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.state = State::End;
        let number = self.number;
        let search = match stage {
            Stage::Row(share) => {
                let index = self.table.index()?;
                let row = number - index.blocks_of(self.page).start;
                let place = self.table.page(index, self.page)?.place(row);
                let read_ahead = &mut self.read_ahead;
                self.table.prefetch_end(&place, to.is_forward(), read_ahead);
                let Range { start: from, end } = place;
                self.state = State::Seeking(Stage::End { from, end, share });
                return Ok(());
            }
            Stage::End { from, end, share } => {
                self.load(number, &(from..end), Keep::Cached)?;
                self.block().search(to, share)
            }
            Stage::Keys(mut search) => {
                let narrowed = self.block().narrow(&mut search, to);
                narrowed.map_err(|bad| self.fault(bad))?;
                search
            }
        };
        let Some(before) = search.found() else {
            self.state = State::Seeking(Stage::Keys(search));
            return Ok(());
        };
        if to.is_forward() {
            match before < self.loaded().layout.count() {
                true => self.arrive_at(before, Side::Front),
                false => self.step_to(Some(number + 1), Side::Front, view),
            }
        } else {
            match before.checked_sub(1) {
                Some(last) => self.arrive_at(last, Side::Back),
                None => self.step_to(number.checked_sub(1), Side::Back, view),
            }
        }
    }
}

impl Cursor for TableCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match &self.state {
            State::End | State::Seeking(_) => Position::End,
            State::Record(entry) => self.on(entry),
            State::Uniform => self.on(&self.entry_in_uniform_block()),
            State::Page { seq_max } => Position::DeadSpan(self.page_span(*seq_max)),
            State::Rows { from, to, seq_max } => {
                Position::DeadSpan(self.rows_span(*from..=*to, *seq_max))
            }
        }
    }

    #[inline(always)]
    fn head(&self) -> KeyPosition<'_> {
        match &self.state {
            State::End | State::Seeking(_) => KeyPosition::End,
            State::Record(entry) => KeyPosition::Record(&self.body()[entry.key()]),
            State::Uniform => {
                let key = self.uniform_block().and_then(|(block, at)| block.key(at));
                KeyPosition::Record(key.expect(ADDS_UP))
            }
            State::Page { seq_max } => KeyPosition::DeadSpan(self.page_span(*seq_max)),
            State::Rows { from, to, seq_max } => {
                KeyPosition::DeadSpan(self.rows_span(*from..=*to, *seq_max))
            }
        }
    }

    #[inline]
    fn hold_uniform_block(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        self.is_on_record() && self.hold_certain(ask, lent)
    }

    fn block_slice(&self, ask: &Ask<'_>) -> Option<BlockSlice> {
        self.is_on_record()
            .then(|| self.certain_slice(ask))
            .flatten()
    }

    #[inline]
    fn uniform_block(&self) -> Option<(UniformBlock<'_>, usize)> {
        let loaded = self.loaded.as_ref()?;
        let alike = loaded.alike.as_ref()?.as_ref()?;
        Some((alike.shape.block(&loaded.body, loaded.lent.1), self.at))
    }

    #[inline]
    fn stand_in_uniform_block(&mut self, at: usize) {
        (self.state, self.at) = (State::Uniform, at);
        self.know_uniform_block();
    }

    fn seq_in_uniform_block(&self, at: usize) -> Seq {
        let entry = self.block().entry(at).expect(ADDS_UP);
        entry.header.seq
    }

    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        let (body, entry) = (self.body(), self.entry());
        match entry.value() {
            Some(value) => {
                let owner = lent.hold(body.clone());
                let (key_at, value_at) = (entry.key().start, value.start);
                lent.push(ItemSpan::new(owner, key_at, value_at, value.end));
            }
            None => lent.push_pair(self.pair()?),
        }
        Ok(())
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        matches!(self.state, State::Record(_) | State::Uniform)
    }

    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool> {
        if let State::Seeking(stage) = self.state {
            self.seek_stage(stage, to, view)?;
        }
        Ok(!matches!(self.state, State::Seeking(_)))
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.state = State::End;
        self.read_ahead = ReadAhead::default();
        self.live_page = None;
        let Some(view) = view.filter(|view| self.may_have_dead_spans(view)) else {
            return self.start_seek_to_live(to);
        };
        let table = self.table.clone();
        let index = table.index()?;
        let Some(page) = index.top().row_for(to) else {
            return Ok(());
        };
        if self.is_dead_page(index, page, view) {
            return Ok(());
        }
        self.descend_page(page, to, Some(view))
    }

    #[inline]
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            State::End | State::Seeking(_) => Ok(()),
            State::Record(_) | State::Uniform if self.at + 1 < self.loaded().layout.count() => {
                self.stand_on(self.at + 1, Side::Front)
            }
            State::Page { .. } => self.step_to(Some(self.blocks().end), Side::Front, view),
            State::Rows { to, .. } => {
                self.step_to(Some(self.blocks().start + to + 1), Side::Front, view)
            }
            _ => self.step_to(Some(self.number + 1), Side::Front, view),
        }
    }

    #[inline]
    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            State::End | State::Seeking(_) => Ok(()),
            State::Record(_) | State::Uniform if self.at > 0 => {
                self.stand_on(self.at - 1, Side::Back)
            }
            State::Page { .. } => {
                self.step_to(self.blocks().start.checked_sub(1), Side::Back, view)
            }
            State::Rows { from, .. } => self.step_to(
                (self.blocks().start + from).checked_sub(1),
                Side::Back,
                view,
            ),
            _ => self.step_to(self.number.checked_sub(1), Side::Back, view),
        }
    }

    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            State::Page { .. } => self.descend_page(self.page, to, view)?,
            State::Rows {
                from,
                to: last,
                seq_max,
            } => self.enter_rows((from, last, seq_max), to, view)?,
            State::End | State::Seeking(_) | State::Record(_) | State::Uniform => {
                panic!("no dead span here")
            }
        }
        while !self.poll_seek(to, view)? {}
        Ok(())
    }

    #[inline(always)]
    fn pair(&self) -> Result<Pair> {
        match &self.state {
            State::Record(entry) => self.pair_of(entry),
            _ => self.pair_of(&self.entry()),
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
