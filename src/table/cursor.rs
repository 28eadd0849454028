//! Walking a table, or the tables of a run.
//!
//! A cursor holds the block it stands in; a step inside it decodes one entry and touches nothing else. With a judge, a
//! cursor stops before what its census says is dead: a run's before a whole table, a table's before a block. A block
//! that was read to be stood in is walked through record by record, whatever its census says.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::coding::Malformed;
use crate::error::Result;
use crate::expiry::Judge;
use crate::merge::{Cursor, Ghost, Position, Seek};
use crate::record::Head;
use crate::table::block::{Block, Entry, Extent, Layout};
use crate::table::codec::Codec;
use crate::table::reader::{Body, Keep, Table};
use crate::types::Seq;

impl Table {
    /// A place in the table, at first past its end.
    pub fn cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor {
            table: self.clone(),
            state: State::End,
            number: 0,
            at: 0,
            loaded: None,
            unpacked: OnceLock::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    End,
    /// Before block `number`.
    Ghost {
        seq_max: Seq,
    },
    /// On entry `at` of block `number`, which is in hand.
    Record(Entry),
}

/// The block that a cursor holds.
struct Loaded {
    number: usize,
    body: Body,
    layout: Layout,
}

/// A place in a table.
pub struct TableCursor {
    table: Arc<Table>,
    state: State,
    number: usize,
    at: usize,
    /// The block that was read last.
    loaded: Option<Loaded>,
    /// The record's value, when it is large and packed and was asked for.
    unpacked: OnceLock<Bytes>,
}

impl TableCursor {
    fn loaded(&self) -> &Loaded {
        self.loaded
            .as_ref()
            .expect("a cursor on a record holds its block")
    }

    fn body(&self) -> &[u8] {
        self.table.bytes_of(&self.loaded().body)
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
        let extent = self.extent()?;
        if extent.codec == Codec::Raw {
            return self.table.stored_value(&extent);
        }
        if self.unpacked.get().is_none() {
            let value = self.table.large_value(&extent, self.entry().value_len())?;
            let _ = self.unpacked.set(value);
        }
        Ok(self.unpacked.get().expect("set above"))
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
        let body = self.table.body(number, keep)?;
        let layout = Layout::of(self.table.bytes_of(&body)).map_err(|bad| self.fault(bad))?;
        self.loaded = Some(Loaded {
            number,
            body,
            layout,
        });
        Ok(())
    }

    /// Stands on entry `at` of the block in hand.
    #[inline]
    fn stand_on(&mut self, at: usize) -> Result<()> {
        match self.block().entry(at) {
            Ok(entry) => {
                self.state = State::Record(entry);
                self.at = at;
                self.unpacked.take();
                Ok(())
            }
            Err(bad) => {
                self.state = State::End;
                Err(self.fault(bad))
            }
        }
    }

    /// Stands on block `number`, coming from its `side`: before it when it is a ghost, else on its first or last
    /// record; past the end when there is no such block.
    fn step_to(&mut self, number: Option<usize>, side: Side, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let table = self.table.clone();
        let Some(number) = number.filter(|&number| number < table.statistics.blocks as usize)
        else {
            return Ok(());
        };
        if self.is_ghost(number, judge)? {
            return Ok(());
        }
        self.load(number, Keep::Passing)?;
        self.stand_on(match side {
            Side::Front => 0,
            Side::Back => self.loaded().layout.count() - 1,
        })
    }

    /// Stands before block `number` when it is dead as a whole.
    fn is_ghost(&mut self, number: usize, judge: Option<&Judge>) -> Result<bool> {
        let Some(judge) = judge else {
            return Ok(false);
        };
        let census = self.table.index()?.census(number);
        if !census.all_dead(judge) {
            return Ok(false);
        }
        self.state = State::Ghost {
            seq_max: census.seq_max,
        };
        self.number = number;
        Ok(true)
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

/// The first block, in the direction of `to`, part of whose range `to` admits.
fn block_for(table: &Table, to: Seek<'_>) -> Result<Option<usize>> {
    let index = table.index()?;
    let found = match to {
        Seek::First => Some(0),
        Seek::AtOrAfter(key) => Some(match index.find(key) {
            Some(number) => number + usize::from(index.last_key(number) < key),
            None => 0,
        }),
        Seek::After(key) => Some(match index.find(key) {
            Some(number) => number + usize::from(index.last_key(number) <= key),
            None => 0,
        }),
        Seek::Last => Some(index.len() - 1),
        Seek::AtOrBefore(key) => index.find(key),
        Seek::Before(key) => index.find_below(key),
    };
    Ok(found.filter(|&number| number < index.len()))
}

impl Cursor for TableCursor {
    #[inline]
    fn position(&self) -> Position<'_> {
        match &self.state {
            State::End => Position::End,
            State::Record(entry) => Position::Record(Head {
                header: entry.header,
                key: &self.body()[entry.key()],
                value_len: entry.value_len(),
            }),
            State::Ghost { seq_max } => {
                let index = self
                    .table
                    .index()
                    .expect("the index was read to find the ghost");
                Position::Ghost(Ghost {
                    first: index.first_key(self.number),
                    last: index.last_key(self.number),
                    seq_max: *seq_max,
                })
            }
        }
    }

    fn seek(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        self.state = State::End;
        let Some(number) = block_for(&self.table, to)? else {
            return Ok(());
        };
        if self.is_ghost(number, judge)? {
            return Ok(());
        }
        self.descend(number, to, judge)
    }

    #[inline]
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            State::End => Ok(()),
            State::Record(_) if self.at + 1 < self.loaded().layout.count() => {
                self.stand_on(self.at + 1)
            }
            _ => self.step_to(Some(self.number + 1), Side::Front, judge),
        }
    }

    #[inline]
    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()> {
        match self.state {
            State::End => Ok(()),
            State::Record(_) if self.at > 0 => self.stand_on(self.at - 1),
            _ => self.step_to(self.number.checked_sub(1), Side::Back, judge),
        }
    }

    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        let on_ghost = matches!(self.state, State::Ghost { .. });
        assert!(on_ghost, "only a ghost is entered");
        self.descend(self.number, to, judge)
    }

    fn key_bytes(&self) -> Bytes {
        self.table.share(&self.loaded().body, self.entry().key())
    }

    fn value_bytes(&self) -> Result<Bytes> {
        match (self.entry().value(), self.unpacked.get()) {
            (Some(range), _) => Ok(self.table.share(&self.loaded().body, range)),
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
            state: RunState::End,
            number: 0,
            inner: None,
        }
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
        if judge.is_some_and(|judge| table.census().all_dead(judge)) {
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
            inner => inner.insert(table.cursor()),
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
    #[inline]
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

    fn key_bytes(&self) -> Bytes {
        assert_eq!(self.state, RunState::Inside, "a record has a key");
        self.inner().key_bytes()
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
