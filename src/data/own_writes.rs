//! The uncommitted writes of a transaction to a container, and its view of them.
//!
//! ```text
//! calls      put a 1 | delete-range a..c | put b 2 | delete d | put b 3
//! deleted    a..c
//! writes     b: put 3    d: deleted
//! seen       a: deleted  b: 3    c: what the snapshot has    d: deleted
//! ops        delete-range a..c | put b 3 | delete d          what a commit writes
//! ```
//!
//! Invariant: a range delete removes the writes to its keys that came before it. So every write that is here came after
//! all range deletes that cover its key, and a commit may write the range deletes first. What came before a command that
//! expires all is closed: the commit writes it, then the command, then the rest; and for all that reads, it is deleted.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::base::record::{Header, Kind};
use crate::base::{ContainerId, Seq, Timestamp};
use crate::data::batch::{KeyRange, Op, WriteTtl};
use crate::expiry::Expire;

/// A value that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPut {
    /// How long it is to live; never [`WriteTtl::Keep`] or [`WriteTtl::Like`].
    pub ttl: WriteTtl,
    /// Up to 64 MiB.
    pub value: Bytes,
}

impl OwnPut {
    /// As if it were written at this moment. It has no place among the writes yet, and so stands above all.
    pub fn header(&self, now: Timestamp) -> Header {
        let (written_at, ttl) = self.ttl.resolve(now);
        Header {
            kind: Kind::Put,
            seq: Seq::MAX,
            written_at,
            ttl,
        }
    }
}

/// A transaction's last write of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnWrite {
    /// Nothing: the snapshot tells what is there.
    Unwritten,
    /// It was deleted, alone or by range.
    Deleted,
    /// A value was stored.
    Put(OwnPut),
}

/// Writes between commands.
#[derive(Debug, Default)]
struct Part {
    /// `None`: deleted.
    writes: BTreeMap<Vec<u8>, Option<OwnPut>>,
    deleted: Vec<KeyRange>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct OwnWrites {
    /// Each ended by a command.
    closed: Vec<Part>,
    open: Part,
}

impl OwnWrites {
    /// Stores a value.
    pub fn put(&mut self, key: &[u8], put: OwnPut) {
        self.open.writes.insert(key.to_vec(), Some(put));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) {
        self.open.writes.insert(key.to_vec(), None);
    }

    /// Deletes all keys of a range.
    pub fn delete_range(&mut self, range: KeyRange) {
        self.open.writes.retain(|key, _| !range.contains(key));
        self.open.deleted.push(range);
    }

    /// Expires all that is there.
    pub fn expire_all(&mut self) {
        self.closed.push(std::mem::take(&mut self.open));
    }

    /// The transaction's last write of a key.
    pub fn get(&self, key: &[u8]) -> OwnWrite {
        match self.open.writes.get(key) {
            Some(Some(put)) => OwnWrite::Put(put.clone()),
            Some(None) => OwnWrite::Deleted,
            None if self.is_deleted(key) => OwnWrite::Deleted,
            None => OwnWrite::Unwritten,
        }
    }

    /// A range delete covers the key, or everything was expired.
    pub fn is_deleted(&self, key: &[u8]) -> bool {
        !self.closed.is_empty() || self.open.deleted.iter().any(|range| range.contains(key))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.open.writes.is_empty() && self.open.deleted.is_empty()
    }

    /// The first write to a key of a range, or the last one.
    pub fn next_in(&self, range: &KeyRange, forward: bool) -> Option<(&[u8], Option<&OwnPut>)> {
        if range.is_empty() {
            return None;
        }
        let from = Bound::Included(&range.from[..]);
        let to = range
            .to
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let mut writes = self.open.writes.range::<[u8], _>((from, to));
        let next = match forward {
            true => writes.next(),
            false => writes.next_back(),
        };
        next.map(|(key, put)| (&key[..], put.as_ref()))
    }

    /// Gives the operations of the commit, in order.
    pub fn each_op<E>(
        &self,
        container: ContainerId,
        mut give: impl FnMut(Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let expire_all = Op::Expire {
            container,
            what: Expire::All,
        };
        for part in &self.closed {
            part.each_op(container, &mut give)?;
            give(expire_all)?;
        }
        self.open.each_op(container, &mut give)
    }
}

impl Part {
    #[inline]
    fn each_op<E>(
        &self,
        container: ContainerId,
        give: &mut impl FnMut(Op<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for range in &self.deleted {
            give(Op::DeleteRange {
                container,
                from: &range.from,
                to: range.to.as_deref().unwrap_or_default(),
            })?;
        }
        for (key, put) in &self.writes {
            give(match put {
                Some(OwnPut { ttl, value }) => Op::Put {
                    container,
                    ttl: *ttl,
                    key,
                    value,
                },
                None => Op::Delete { container, key },
            })?;
        }
        Ok(())
    }
}
