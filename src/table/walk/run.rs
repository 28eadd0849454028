//! Cursors on a run: tables in key order without overlap. With an expiry view, a cursor stops before a table that is
//! dead as a whole. The steps of a seek (data/cursor.rs has the protocol) are those of the table's cursor.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, DeadSpan, KeyPosition, Position, Seek};
use crate::data::item::Pair;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, Lent};
use crate::data::lend::uniform_block::UniformBlock;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::ExpiryView;
use crate::table::read::reader::Table;
use crate::table::walk::cursor::TableCursor;

/// A cursor on a run: tables in key order without overlap.
pub struct RunCursor {
    tables: Arc<[Arc<Table>]>,
    tombstones: RangeTombstones,
    state: RunState,
    /// The table of the dead span, or of `inner`.
    number: usize,
    inner: Option<TableCursor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunState {
    End,
    /// Before a table.
    DeadSpan,
    /// At the inner cursor's position, which is not past the end.
    Inside,
}

impl RunCursor {
    /// A cursor on the run, at first past its end.
    pub fn new(tables: Arc<[Arc<Table>]>) -> RunCursor {
        RunCursor::under(tables, RangeTombstones::default())
    }

    /// The same; with an expiry view, records that `tombstones` cover count as dead.
    pub fn under(tables: Arc<[Arc<Table>]>, tombstones: RangeTombstones) -> RunCursor {
        debug_assert!(tables.is_sorted_by(|a, b| a.last_key() < b.first_key()));
        RunCursor {
            tables,
            tombstones,
            state: RunState::End,
            number: 0,
            inner: None,
        }
    }

    fn inner(&self) -> &TableCursor {
        self.inner.as_ref().expect("a cursor inside a table")
    }

    /// The table before which it stands.
    fn dead_span(&self) -> DeadSpan<'_> {
        let table = &self.tables[self.number];
        DeadSpan {
            first: table.first_key(),
            last: table.last_key(),
            seq_max: table.census().seq_max,
        }
    }

    /// The first table, in the direction of `to`, whose range `to` admits in part.
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

    /// Goes to the first place that `to` admits in table `number`, before it if it is a dead span, or beyond it.
    fn step_to(
        &mut self,
        number: Option<usize>,
        to: Seek<'_>,
        view: Option<&ExpiryView>,
    ) -> Result<()> {
        self.start_seek_from(number, to, view)?;
        while !self.poll_seek(to, view)? {}
        Ok(())
    }

    /// Starts that as a seek.
    fn start_seek_from(
        &mut self,
        number: Option<usize>,
        to: Seek<'_>,
        view: Option<&ExpiryView>,
    ) -> Result<()> {
        self.state = RunState::End;
        let Some((number, table)) = number.and_then(|at| Some((at, self.tables.get(at)?))) else {
            return Ok(());
        };
        self.number = number;
        let keys = || (table.first_key(), table.last_key());
        if view.is_some_and(|view| self.tombstones.all_dead(table.census(), keys, view)) {
            self.state = RunState::DeadSpan;
            return Ok(());
        }
        self.descend(to, view)
    }

    /// Starts a seek to the first place that `to` admits in table `self.number`, or beyond it.
    fn descend(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.state = RunState::End;
        let table = &self.tables[self.number];
        let inner = match &mut self.inner {
            Some(inner) if inner.is_in(table) => inner,
            inner => inner.insert(table.cursor_under(self.tombstones.clone())),
        };
        inner.start_seek(to, view)?;
        self.skip_exhausted(to.is_forward(), view)
    }

    /// Stays with the inner cursor, or goes to the next table if that is past its end.
    #[inline(always)]
    fn skip_exhausted(&mut self, forward: bool, view: Option<&ExpiryView>) -> Result<()> {
        if !self.inner().is_at_end() {
            self.state = RunState::Inside;
            return Ok(());
        }
        self.leave(forward, view)
    }

    #[cold]
    fn leave(&mut self, forward: bool, view: Option<&ExpiryView>) -> Result<()> {
        if forward {
            self.step_to(Some(self.number + 1), Seek::First, view)
        } else {
            self.step_to(self.number.checked_sub(1), Seek::Last, view)
        }
    }

    /// Makes a step of the inner cursor, and follows it.
    #[inline]
    fn follow(
        &mut self,
        forward: bool,
        view: Option<&ExpiryView>,
        step: impl FnOnce(&mut TableCursor) -> Result<()>,
    ) -> Result<()> {
        let inner = self.inner.as_mut().expect("a cursor inside a table");
        if let Err(error) = step(inner) {
            self.state = RunState::End;
            return Err(error);
        }
        self.skip_exhausted(forward, view)
    }
}

impl Cursor for RunCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        match self.state {
            RunState::End => Position::End,
            RunState::Inside => self.inner().position(),
            RunState::DeadSpan => Position::DeadSpan(self.dead_span()),
        }
    }

    #[inline(always)]
    fn head(&self) -> KeyPosition<'_> {
        match self.state {
            RunState::End => KeyPosition::End,
            RunState::Inside => self.inner().head(),
            RunState::DeadSpan => KeyPosition::DeadSpan(self.dead_span()),
        }
    }

    #[inline]
    fn hold_uniform_block(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        match (&self.state, &mut self.inner) {
            (RunState::Inside, Some(inner)) => inner.hold_uniform_block(ask, lent),
            _ => false,
        }
    }

    fn block_slice(&self, ask: &Ask<'_>) -> Option<BlockSlice> {
        match (&self.state, &self.inner) {
            (RunState::Inside, Some(inner)) => inner.block_slice(ask),
            _ => None,
        }
    }

    #[inline]
    fn uniform_block(&self) -> Option<(UniformBlock<'_>, usize)> {
        self.inner.as_ref()?.uniform_block()
    }

    #[inline]
    fn stand_in_uniform_block(&mut self, at: usize) {
        let inner = self.inner.as_mut().expect("a cursor inside a table");
        inner.stand_in_uniform_block(at);
    }

    fn seq_in_uniform_block(&self, at: usize) -> Seq {
        self.inner().seq_in_uniform_block(at)
    }

    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        assert_eq!(self.state, RunState::Inside, "a record has key and value");
        self.inner().lend_one(lent)
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        self.state == RunState::Inside && self.inner().is_on_record()
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.start_seek_from(self.table_for(to), to, view)
    }

    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool> {
        let is_there = self.state != RunState::Inside || !self.inner().is_seeking();
        if is_there {
            return Ok(true);
        }
        let mut there = false;
        self.follow(to.is_forward(), view, |inner| {
            there = inner.poll_seek(to, view)?;
            Ok(())
        })?;
        Ok(there)
    }

    #[inline]
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            RunState::End => Ok(()),
            RunState::DeadSpan => self.leave(true, view),
            RunState::Inside => self.follow(true, view, |inner| inner.advance(view)),
        }
    }

    #[inline]
    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            RunState::End => Ok(()),
            RunState::DeadSpan => self.leave(false, view),
            RunState::Inside => self.follow(false, view, |inner| inner.retreat(view)),
        }
    }

    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        match self.state {
            RunState::End => panic!("only a dead span is entered"),
            RunState::DeadSpan => {
                self.descend(to, view)?;
                while !self.poll_seek(to, view)? {}
                Ok(())
            }
            RunState::Inside => self.follow(to.is_forward(), view, |inner| inner.enter(to, view)),
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
