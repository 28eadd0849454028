//! The seek protocol: how to seek in a sorted source, and in several at once.
//!
//! Example: at `now` = 100 a scan starts at `m`. Table A holds `b`, `m` and `x`, table B holds `n`. All records of
//! table C, from `a` to `z`, expired at 90. The memtable holds `p`. The merge takes the first step of the seek in each
//! of them, then the second step in those that have not arrived, and so on:
//!
//! ```text
//!              start_seek(m)         poll_seek -> false    poll_seek -> false    poll_seek -> true
//! table A      row of the index      end of the block      some of its keys      on m
//! table B      row of the index      end of the block      some of its keys      on n
//! table C      dead as a whole: before its dead span a to z    (poll_seek -> true at once)
//! memtable     on p                                        (poll_seek -> true at once)
//! ```
//!
//! `m` is first in the merge. C's dead span covers it and has a sequence number above that of `m`, so a record in it
//! may hide `m`: the merge calls `enter`, and C is then before the dead span of one block, or on a record. If C held
//! only `q` to `z`, the merge would step over its dead span when that came first, and would never read its blocks.
//!
//! A [`Cursor`] goes through a source (memtable, table, run) in the order of records: key up, sequence number down. It
//! may stop *before* a dead span: records in memory, a block, or a whole table, all of whose records are dead under a
//! given [`ExpiryView`]. The merge steps over it, unless a record that it might hide is inside its range.
//!
//! A seek takes several steps, because each reads memory whose address the step before has found. A step prefetches the
//! memory for the next one and returns, so a merge that seeks in four tables waits for the memory of all four at once.
//!
//! Parts:
//!
//! | | |
//! | --- | --- |
//! | here | the words of a seek, what a cursor may stand on, and what each call promises |
//! | merge.rs | calls `start_seek` for all cursors, then `poll_seek` for those that are not there; resolves dead spans |
//! | view.rs | decides which record of a key a reader sees; knows nothing of steps |
//! | mem/cursor.rs | is there at once; a dead span is a row of dead records in a leaf |
//! | table/walk/cursor.rs | the three steps; a dead span is a page of the index, some rows of it, or one block |
//! | table/walk/run.rs | finds the table, passes the steps on to its cursor, goes on to the next table; a dead span is a table |
//! | table/walk/run_reader.rs | for jobs, which read everything: is there at once, on the first record; has no dead spans |

use bytes::Bytes;

use crate::base::record::RecordRef;
use crate::base::{Result, Seq};
use crate::data::item::Pair;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, Lent};
use crate::data::lend::uniform_block::UniformBlock;
use crate::expiry::ExpiryView;

/// A target of a seek. The first three are for forward iteration, the last three for backward iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first record.
    First,
    /// The first record whose key is at or above this one.
    AtOrAfter(&'a [u8]),
    /// The first record whose key is above this one.
    After(&'a [u8]),
    /// The last record.
    Last,
    /// The last record whose key is at or below this one.
    AtOrBefore(&'a [u8]),
    /// The last record whose key is below this one.
    Before(&'a [u8]),
}

impl Seek<'_> {
    /// Whether it is for forward iteration.
    pub fn is_forward(&self) -> bool {
        matches!(self, Seek::First | Seek::AtOrAfter(_) | Seek::After(_))
    }

    /// Whether a record of this key is a possible target.
    pub fn admits(&self, key: &[u8]) -> bool {
        match self {
            Seek::First | Seek::Last => true,
            Seek::AtOrAfter(bound) => key >= *bound,
            Seek::After(bound) => key > *bound,
            Seek::AtOrBefore(bound) => key <= *bound,
            Seek::Before(bound) => key < *bound,
        }
    }
}

/// An unread span of a source, in which all records are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadSpan<'a> {
    /// Its first key.
    pub first: &'a [u8],
    /// Its last key. All versions of a key are in one slice.
    pub last: &'a [u8],
    /// Its highest sequence number.
    pub seq_max: Seq,
}

/// The entry under a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position<'a> {
    /// Past the end (in backward iteration, before the start).
    End,
    /// A record.
    Record(RecordRef<'a>),
    /// An unread span of dead records.
    DeadSpan(DeadSpan<'a>),
}

/// The entry under a cursor: a [`Position`], of a record the key alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPosition<'a> {
    /// Past the end.
    End,
    /// A record with this key.
    Record(&'a [u8]),
    /// An unread span of dead records.
    DeadSpan(DeadSpan<'a>),
}

/// A position in a sorted source.
///
/// With an expiry view, a cursor stops at dead spans; without one, at records only. After an error a cursor stands at
/// [`Position::End`].
pub trait Cursor {
    /// The entry under it.
    fn position(&self) -> Position<'_>;
    /// The same without the record's header: cheaper.
    #[inline(always)]
    fn head(&self) -> KeyPosition<'_> {
        match self.position() {
            Position::End => KeyPosition::End,
            Position::Record(record) => KeyPosition::Record(record.key),
            Position::DeadSpan(span) => KeyPosition::DeadSpan(span),
        }
    }
    /// Whether it is on a record: cheaper than [`Cursor::position`].
    fn is_on_record(&self) -> bool;
    /// Whether the record after the current one, forwards in this source, certainly has another key. False is no answer.
    #[inline(always)]
    fn ends_key(&self) -> bool {
        false
    }
    /// Starts a seek to the first position, in the direction of `to`, that `to` admits. A dead span is admitted if part
    /// of its range is. Until [`Cursor::poll_seek`] returns true, the cursor has no position.
    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()>;
    /// Makes one step of the seek, with the same `to` and view; returns whether the cursor has arrived. A step ends
    /// where memory must be waited for, after prefetching it.
    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool>;
    /// Goes to the first position, in the direction of `to`, that `to` admits.
    fn seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.start_seek(to, view)?;
        while !self.poll_seek(to, view)? {}
        Ok(())
    }
    /// Goes from a record to the next position, or steps over a dead span.
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()>;
    /// Like [`Cursor::advance`], backwards.
    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()>;
    /// Reads the dead span it is on, and goes to the first position in it, in the direction of `to`, that `to` admits
    /// (within a table's dead span that may be a block's), or beyond it if there is none.
    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()>;
    /// Whether the current record lies in a uniform block of this source all of whose records are certain to be shown
    /// under `ask`. Then `lent` holds their bytes.
    #[inline]
    fn hold_uniform_block(&mut self, _ask: &Ask<'_>, _lent: &mut Lent) -> bool {
        false
    }
    /// The items behind the current record in such a uniform block, as far as they come before the bound of `ask`;
    /// `None` where there is no uniform block, or only few of them. Forwards, on a record that was decided about.
    #[inline]
    fn block_slice(&self, _ask: &Ask<'_>) -> Option<BlockSlice> {
        None
    }
    /// That uniform block, and the number of the current record in it.
    #[inline]
    fn uniform_block(&self) -> Option<(UniformBlock<'_>, usize)> {
        None
    }
    /// Goes to a record of that uniform block that adds up.
    fn stand_in_uniform_block(&mut self, _at: usize) {}
    /// The sequence number of a record of that uniform block that adds up.
    fn seq_in_uniform_block(&self, _at: usize) -> Seq {
        unreachable!("a source without uniform blocks")
    }
    /// Lends the current record; its value is read and checked now.
    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        lent.push_pair(self.pair()?);
        Ok(())
    }
    /// Key and value of the current record, which keep their source alive; read and checked now.
    fn pair(&self) -> Result<Pair>;
    /// The value of the current record, which keeps its source alive; read and checked now.
    fn value_bytes(&self) -> Result<Bytes>;
    /// The value of the current record, borrowed; read and checked now.
    fn value(&self) -> Result<&[u8]>;
}
