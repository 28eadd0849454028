//! The sources of records that a walk merges: memtables, and runs of tables.

use bytes::Bytes;

use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, KeyPosition, Position, Seek};
use crate::data::item::Pair;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, Lent};
use crate::data::lend::uniform_block::UniformBlock;
use crate::expiry::ExpiryView;
use crate::mem::MemCursor;
use crate::table::RunCursor;

/// A cursor on a memtable or a run. A scan has few: the unused bytes of the smaller kind cost less than a box.
#[allow(clippy::large_enum_variant)]
pub enum Source {
    /// In memory.
    Memory(MemCursor),
    /// On disk.
    Disk(RunCursor),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $do:expr) => {
        match $source {
            Source::Memory($cursor) => $do,
            Source::Disk($cursor) => $do,
        }
    };
}

impl Cursor for Source {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        each!(self, cursor => cursor.position())
    }

    #[inline(always)]
    fn head(&self) -> KeyPosition<'_> {
        each!(self, cursor => cursor.head())
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        each!(self, cursor => cursor.is_on_record())
    }

    #[inline(always)]
    fn hold_uniform_block(&mut self, ask: &Ask<'_>, lent: &mut Lent) -> bool {
        each!(self, cursor => cursor.hold_uniform_block(ask, lent))
    }

    fn block_slice(&self, ask: &Ask<'_>) -> Option<BlockSlice> {
        each!(self, cursor => cursor.block_slice(ask))
    }

    #[inline]
    fn uniform_block(&self) -> Option<(UniformBlock<'_>, usize)> {
        each!(self, cursor => cursor.uniform_block())
    }

    #[inline]
    fn stand_in_uniform_block(&mut self, at: usize) {
        each!(self, cursor => cursor.stand_in_uniform_block(at));
    }

    fn seq_in_uniform_block(&self, at: usize) -> Seq {
        each!(self, cursor => cursor.seq_in_uniform_block(at))
    }

    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        each!(self, cursor => cursor.lend_one(lent))
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.start_seek(to, view))
    }

    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool> {
        each!(self, cursor => cursor.poll_seek(to, view))
    }

    #[inline]
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.advance(view))
    }

    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.retreat(view))
    }

    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        each!(self, cursor => cursor.enter(to, view))
    }

    #[inline(always)]
    fn pair(&self) -> Result<Pair> {
        each!(self, cursor => cursor.pair())
    }

    fn value_bytes(&self) -> Result<Bytes> {
        each!(self, cursor => cursor.value_bytes())
    }

    fn value(&self) -> Result<&[u8]> {
        each!(self, cursor => cursor.value())
    }
}
