//! The seek protocol: how one goes to a place in a sorted source, and in several at once.
//!
//! Example: at `now` = 100 a scan starts at `m`. Table A holds `b`, `m` and `x`, table B holds `n`. All that table C holds,
//! from `a` to `z`, expired at 90. The memtable holds `p`. The merge takes the first step of the seek in each of them, then
//! the second in those that are not there, and so on:
//!
//! ```text
//!              start_seek(m)         poll_seek -> false    poll_seek -> false    poll_seek -> true
//! table A      row of the index      end of the block      some of its keys      on m
//! table B      row of the index      end of the block      some of its keys      on n
//! table C      dead as a whole: before its dead span a to z    (poll_seek -> true at once)
//! memtable     on p                                        (poll_seek -> true at once)
//! ```
//!
//! `m` leads. C's dead span covers it and has a number above that of `m`, so something in it may hide `m`: the merge calls
//! `enter`, and C stands before the dead span of one block, or on a record. If C held `q` to `z` alone, its dead span
//! would be stepped over when the merge gets there, and its blocks would never be read.
//!
//! A source (memtable, table, run) is walked by a [`Cursor`] in the order of records: key up, sequence number down. A
//! cursor may stop *before* a stretch (some records in memory, a block, a whole table) all of whose records are dead under
//! a given [`ExpiryView`]: a *dead span*. Its owner steps over it, unless something that it might hide lies inside its
//! range.
//!
//! A seek takes several steps, since each reads memory that the step before has found the address of. A step asks the
//! processor for the memory of the next one and returns, so a merge that seeks in four tables waits for the memory of all
//! four at once.
//!
//! Who does what:
//!
//! | | |
//! | --- | --- |
//! | here | the words of a seek, what a cursor may stand on, and what each call promises |
//! | merge.rs | calls `start_seek` for all cursors, then `poll_seek` for those that are not there; resolves dead spans |
//! | view.rs | decides which record of a key a reader sees; knows nothing of steps |
//! | mem/cursor.rs | is there at once; a dead span is a row of dead records in a leaf |
//! | table/cursor.rs | the three steps; a dead span is a page of the index, some rows of it, or one block |
//! | table/run.rs | finds the table, passes the steps on to its cursor, goes on to the next table; a dead span is a table |

use bytes::Bytes;

use crate::base::record::RecordRef;
use crate::base::{Result, Seq};
use crate::data::item::Pair;
use crate::expiry::ExpiryView;

/// Where to go in a source. The first three are for walking forwards, the last three for walking backwards.
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
    /// For walking forwards.
    pub fn is_forward(&self) -> bool {
        matches!(self, Seek::First | Seek::AtOrAfter(_) | Seek::After(_))
    }

    /// A record of this key may be gone to.
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

/// An unread stretch of a source, all of whose records are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadSpan<'a> {
    /// Its first key.
    pub first: &'a [u8],
    /// Its last key. All versions of a key lie in one stretch.
    pub last: &'a [u8],
    /// Its highest sequence number.
    pub seq_max: Seq,
}

/// What a cursor stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position<'a> {
    /// Past the end (or, walking backwards, before the start).
    End,
    /// A record.
    Record(RecordRef<'a>),
    /// An unread stretch of dead records.
    DeadSpan(DeadSpan<'a>),
}

/// A place in one sorted source.
///
/// With an expiry view, a cursor stops at dead spans; without one, at records only. After an error a cursor stands at
/// [`Position::End`].
pub trait Cursor {
    /// What stands here.
    fn position(&self) -> Position<'_>;
    /// A record stands here: [`Cursor::position`] without the rest.
    fn is_on_record(&self) -> bool;
    /// Starts a seek: to the first position, in the direction of `to`, that `to` admits. A dead span is admitted when
    /// part of its range is. Until [`Cursor::poll_seek`] says that it is there, the cursor stands nowhere.
    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()>;
    /// Makes one step of the seek, with the same `to` and view, and says whether the cursor is there. A step ends where
    /// memory has to be waited for, and has asked for it.
    fn poll_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<bool>;
    /// Goes to the first position, in the direction of `to`, that `to` admits.
    fn seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        self.start_seek(to, view)?;
        while !self.poll_seek(to, view)? {}
        Ok(())
    }
    /// From a record to the next position; from a dead span over it.
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()>;
    /// As [`Cursor::advance`], backwards.
    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()>;
    /// Reads the dead span on which it stands and goes to the first position in it, in the direction of `to`, that `to`
    /// admits (a table's dead span may turn into a block's), or beyond it when there is none.
    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()>;
    /// Key and value of the record here, keeping their source alive; read and checked now.
    fn pair(&self) -> Result<Pair>;
    /// The value of the record here, keeping its source alive; read and checked now.
    fn value_bytes(&self) -> Result<Bytes>;
    /// The value of the record here, where it lies; read and checked now.
    fn value(&self) -> Result<&[u8]>;
}
