//! Sorted sources and their merge.
//!
//! A source (memtable, table, run) is walked by a [`Cursor`] in the order of records: key up, sequence number down. A
//! cursor over tables may stop *before* an unread stretch (a block or a whole table) all of whose records are dead under
//! a given [`Judge`]: a *ghost*. Its owner steps over it, unless something that it might hide lies inside its range.

use bytes::Bytes;

use crate::error::Result;
use crate::expiry::Judge;
use crate::record::Head;
use crate::types::Seq;

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
}

/// An unread stretch of a source, all of whose records are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ghost<'a> {
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
    Record(Head<'a>),
    /// An unread stretch of dead records.
    Ghost(Ghost<'a>),
}

/// A place in one sorted source.
///
/// With a judge, a cursor stops at ghosts; without one, at records only. After an error a cursor stands at
/// [`Position::End`].
pub trait Cursor {
    /// What stands here.
    fn position(&self) -> Position<'_>;
    /// Goes to the first position, in the direction of `to`, that `to` admits. A ghost is admitted when part of its
    /// range is.
    fn seek(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()>;
    /// From a record to the next position; from a ghost over it.
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()>;
    /// As [`Cursor::advance`], backwards.
    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()>;
    /// Reads the ghost on which it stands and goes to the first position in it, in the direction of `to`, that `to`
    /// admits (a table's ghost may turn into a block's), or beyond it when there is none.
    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()>;
    /// The key of the record here, keeping its source alive.
    fn key_bytes(&self) -> Bytes;
    /// The value of the record here, keeping its source alive; read and checked now.
    fn value_bytes(&self) -> Result<Bytes>;
    /// The value of the record here, where it lies; read and checked now.
    fn value(&self) -> Result<&[u8]>;
}
