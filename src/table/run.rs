//! Walking a run: tables that follow each other in key order. With a judge, its cursor stops before a table that is dead
//! as a whole. The steps of a seek (data/cursor.rs has the protocol) are those of the table's cursor.

use std::sync::Arc;

use bytes::Bytes;

use crate::base::Result;
use crate::data::cursor::{Cursor, Ghost, Position, Seek};
use crate::data::item::Pair;
use crate::data::range_tombstones::Cover;
use crate::expiry::Judge;
use crate::table::cursor::TableCursor;
use crate::table::reader::Table;

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
        self.set_out_from(number, to, judge)?;
        while !self.approach(to, judge)? {}
        Ok(())
    }

    /// Sets out for the same.
    fn set_out_from(
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
        if judge.is_some_and(|judge| self.cover.all_dead(table.census(), keys, judge)) {
            self.state = RunState::Ghost;
            return Ok(());
        }
        self.descend(to, judge)
    }

    /// Sets out for what `to` admits first in table `self.number`, or beyond it.
    fn descend(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = RunState::End;
        let table = &self.tables[self.number];
        let inner = match &mut self.inner {
            Some(inner) if inner.is_in(table) => inner,
            inner => inner.insert(table.cursor().under(self.cover.clone())),
        };
        inner.set_out(to, judge)?;
        self.settle(to.is_forward(), judge)
    }

    /// Stays with the inner cursor, or goes to the next table when that one has passed its end.
    #[inline]
    fn settle(&mut self, forward: bool, judge: Option<&Judge>) -> Result<()> {
        if !self.inner().is_at_end() {
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

    fn set_out(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.set_out_from(self.table_for(to), to, judge)
    }

    fn approach(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<bool> {
        if self.state != RunState::Inside {
            return Ok(true);
        }
        let mut there = false;
        self.follow(to.is_forward(), judge, |inner| {
            there = inner.approach(to, judge)?;
            Ok(())
        })?;
        Ok(there)
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
            RunState::Ghost => {
                self.descend(to, judge)?;
                while !self.approach(to, judge)? {}
                Ok(())
            }
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
