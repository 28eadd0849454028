//! The byte form of writes: what goes to the log, and from there (or directly) into memtables.
//!
//! ```text
//! Batch     op*                                          record i of a batch has sequence number first + i
//! op        tag u8 | container varint | body
//! tag       1 put, inheriting   body: key prefixed | value prefixed
//!           2 put, never        body: key prefixed | value prefixed
//!           3 put, own ttl      body: millis varint | key prefixed | value prefixed
//!           4 put, until        body: moment varint (ms since the epoch) | key prefixed | value prefixed
//!           5 delete            body: key prefixed
//!           6 delete range      body: from prefixed | to prefixed (empty: no end); `to` is exclusive
//!
//! Relogged  entry*                                       records that keep their numbers and times
//! entry     container varint | header (record.rs, base 0) | key prefixed | value prefixed, or
//!           container varint | 0xff | seq varint | from prefixed | to prefixed
//! ```
//!
//! The stamp (sequence number, `written_at`) is not in a batch's bytes: it is given in the commit turn and stands in the
//! log's frame, so the bytes and their checksum are made outside the turn.

use crate::base::coding::{Malformed, Reader, put_prefixed, put_varint};
use crate::base::record::{Base, Header, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::{ContainerId, HIGHEST_NUMBER, ItemTtl, MAX_TTL_MILLIS, Seq, Timestamp};
use crate::expiry::stored_ttl_until;

/// The ttl of a write, before its stamp is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTtl {
    /// Inherit the default.
    Absent,
    /// Never expire.
    Never,
    /// Milliseconds, 0 only where a stored item is written again.
    Millis(u64),
    /// The moment at which it ends.
    Until(Timestamp),
}

impl WriteTtl {
    /// What is stored by a write at `written_at`.
    pub fn resolve(self, written_at: Timestamp) -> ItemTtl {
        match self {
            WriteTtl::Absent => ItemTtl::Absent,
            WriteTtl::Never => ItemTtl::Never,
            WriteTtl::Millis(millis) => ItemTtl::Millis(millis),
            WriteTtl::Until(until) => stored_ttl_until(until, written_at),
        }
    }
}

impl From<ItemTtl> for WriteTtl {
    fn from(ttl: ItemTtl) -> Self {
        match ttl {
            ItemTtl::Absent => WriteTtl::Absent,
            ItemTtl::Never => WriteTtl::Never,
            ItemTtl::Millis(millis) => WriteTtl::Millis(millis),
        }
    }
}

/// A stretch of keys: from `from`, inclusive, to `to`, exclusive; `to` of `None` has no end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// The first key; empty for the start of all keys.
    pub from: Vec<u8>,
    /// The first key behind it.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Of the ends that a write is logged with.
    pub fn of_bounds(from: &[u8], to: &[u8]) -> KeyRange {
        KeyRange {
            from: from.to_vec(),
            to: (!to.is_empty()).then(|| to.to_vec()),
        }
    }

    /// `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_ref().is_none_or(|to| key < to.as_slice())
    }

    /// Some key from `first` to `last`, both included, may lie in the range.
    pub fn overlaps(&self, first: &[u8], last: &[u8]) -> bool {
        self.from.as_slice() <= last && self.to.as_ref().is_none_or(|to| first < to.as_slice())
    }

    /// Every key from `first` to `last` lies in the range.
    pub fn covers(&self, first: &[u8], last: &[u8]) -> bool {
        self.contains(first) && self.contains(last)
    }

    /// No key lies in the range.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Stores an item.
    Put {
        /// Where.
        container: ContainerId,
        /// How long.
        ttl: WriteTtl,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
        /// Up to 64 MiB.
        value: &'a [u8],
    },
    /// Removes an item, blindly.
    Delete {
        /// Where.
        container: ContainerId,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
    },
    /// Removes every item in a range.
    DeleteRange {
        /// Where.
        container: ContainerId,
        /// The first key; empty for the start.
        from: &'a [u8],
        /// The first key behind it; empty for no end.
        to: &'a [u8],
    },
}

impl Op<'_> {
    /// The container it writes to.
    pub fn container(&self) -> ContainerId {
        match *self {
            Op::Put { container, .. }
            | Op::Delete { container, .. }
            | Op::DeleteRange { container, .. } => container,
        }
    }

    /// What it wrote under this number at that time.
    pub fn at(&self, seq: Seq, written_at: Timestamp) -> Relogged<'_> {
        let record = |container, kind, ttl, key, value| Relogged::Record {
            container,
            header: Header {
                kind,
                seq,
                written_at,
                ttl,
            },
            key,
            value,
        };
        match *self {
            Op::Put {
                container,
                ttl,
                key,
                value,
            } => record(container, Kind::Put, ttl.resolve(written_at), key, value),
            Op::Delete { container, key } => {
                record(container, Kind::Tombstone, ItemTtl::Absent, key, &[])
            }
            Op::DeleteRange {
                container,
                from,
                to,
            } => Relogged::Range {
                container,
                seq,
                from,
                to,
            },
        }
    }

    /// Appends the picture in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut start = |tag: u8, container: ContainerId| {
            out.push(tag);
            put_varint(out, u64::from(container.0));
        };
        match *self {
            Op::Put {
                container,
                ttl,
                key,
                value,
            } => {
                match ttl {
                    WriteTtl::Absent => start(1, container),
                    WriteTtl::Never => start(2, container),
                    WriteTtl::Millis(millis) => {
                        start(3, container);
                        put_varint(out, millis);
                    }
                    WriteTtl::Until(until) => {
                        start(4, container);
                        put_varint(out, until.0);
                    }
                }
                put_prefixed(out, key);
                put_prefixed(out, value);
            }
            Op::Delete { container, key } => {
                start(5, container);
                put_prefixed(out, key);
            }
            Op::DeleteRange {
                container,
                from,
                to,
            } => {
                start(6, container);
                put_prefixed(out, from);
                put_prefixed(out, to);
            }
        }
    }
}

fn container(reader: &mut Reader<'_>) -> Result<ContainerId, Malformed> {
    Ok(ContainerId(reader.varint_up_to(u64::from(u32::MAX))? as u32))
}

fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let key = reader.prefixed()?;
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(at.malformed("a key of a length that is not allowed"));
    }
    Ok(key)
}

/// An end of a range: empty, a key, or what comes right behind a key.
fn bound<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let bound = reader.prefixed()?;
    if bound.len() > MAX_KEY_LEN + 1 {
        return Err(at.malformed("a range of keys that are too long"));
    }
    Ok(bound)
}

fn value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let value = reader.prefixed()?;
    if value.len() > MAX_VALUE_LEN {
        return Err(at.malformed("a value that is too long"));
    }
    Ok(value)
}

/// The writes in a batch's bytes, in order.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    reader: Reader<'a>,
}

impl<'a> Ops<'a> {
    /// Reads from the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Ops {
            reader: Reader::new(bytes),
        }
    }

    fn read(&mut self) -> Result<Op<'a>, Malformed> {
        let reader = &mut self.reader;
        let at = reader.clone();
        let tag = reader.u8()?;
        let container = container(reader)?;
        let ttl = match tag {
            1 => WriteTtl::Absent,
            2 => WriteTtl::Never,
            3 => WriteTtl::Millis(reader.varint_up_to(MAX_TTL_MILLIS)?),
            4 => WriteTtl::Until(Timestamp(reader.varint()?)),
            5 => {
                return Ok(Op::Delete {
                    container,
                    key: key(reader)?,
                });
            }
            6 => {
                return Ok(Op::DeleteRange {
                    container,
                    from: bound(reader)?,
                    to: bound(reader)?,
                });
            }
            _ => return Err(at.malformed("unknown kind of write")),
        };
        Ok(Op::Put {
            container,
            ttl,
            key: key(reader)?,
            value: value(reader)?,
        })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let op = self.read();
        if op.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(op)
    }
}

/// Marks a range delete among relogged records; no header starts with it.
const RELOGGED_RANGE: u8 = 0xff;

/// A write with its number and time: what an operation of a batch comes to, and what is logged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relogged<'a> {
    /// A put or a tombstone.
    Record {
        /// Where.
        container: ContainerId,
        /// With its number and time.
        header: Header,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
        /// Up to 64 MiB.
        value: &'a [u8],
    },
    /// A range delete.
    Range {
        /// Where.
        container: ContainerId,
        /// Its number.
        seq: Seq,
        /// The first key; empty for the start.
        from: &'a [u8],
        /// The first key behind it; empty for no end.
        to: &'a [u8],
    },
}

impl Relogged<'_> {
    /// Where it was written.
    pub fn container(&self) -> ContainerId {
        match *self {
            Relogged::Record { container, .. } | Relogged::Range { container, .. } => container,
        }
    }

    /// Appends the picture in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Relogged::Record {
                container,
                header,
                key,
                value,
            } => {
                put_varint(out, u64::from(container.0));
                header.encode(Base::default(), out);
                put_prefixed(out, key);
                put_prefixed(out, value);
            }
            Relogged::Range {
                container,
                seq,
                from,
                to,
            } => {
                put_varint(out, u64::from(container.0));
                out.push(RELOGGED_RANGE);
                put_varint(out, seq.0);
                put_prefixed(out, from);
                put_prefixed(out, to);
            }
        }
    }
}

/// The entries in a relog frame's bytes, in order.
pub fn relogged(bytes: &[u8]) -> impl Iterator<Item = Result<Relogged<'_>, Malformed>> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let entry = read_relogged(&mut reader);
        if entry.is_err() {
            reader = Reader::new(&[]);
        }
        Some(entry)
    })
}

fn read_relogged<'a>(reader: &mut Reader<'a>) -> Result<Relogged<'a>, Malformed> {
    let container = container(reader)?;
    if reader.clone().u8()? == RELOGGED_RANGE {
        reader.u8()?;
        let seq = Seq(reader.varint_up_to(HIGHEST_NUMBER)?);
        return Ok(Relogged::Range {
            container,
            seq,
            from: bound(reader)?,
            to: bound(reader)?,
        });
    }
    let header = Header::decode(Base::default(), reader)?;
    let (at, key, value) = (reader.clone(), key(reader)?, value(reader)?);
    if header.kind == Kind::Tombstone && !value.is_empty() {
        return Err(at.malformed("a tombstone with a value"));
    }
    if header.seq.0 > HIGHEST_NUMBER {
        return Err(at.malformed("number out of range"));
    }
    Ok(Relogged::Record {
        container,
        header,
        key,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_read_back_and_damage_is_refused() {
        let c = ContainerId(300);
        let ops = [
            Op::Put {
                container: c,
                ttl: WriteTtl::Absent,
                key: b"a",
                value: b"1",
            },
            Op::Put {
                container: c,
                ttl: WriteTtl::Never,
                key: b"b",
                value: b"",
            },
            Op::Put {
                container: c,
                ttl: WriteTtl::Millis(5),
                key: b"c",
                value: b"3",
            },
            Op::Put {
                container: c,
                ttl: WriteTtl::Until(Timestamp(9)),
                key: b"d",
                value: b"4",
            },
            Op::Delete {
                container: c,
                key: b"e",
            },
            Op::DeleteRange {
                container: c,
                from: b"",
                to: b"z",
            },
        ];
        let mut bytes = vec![];
        let mut ends = vec![0];
        for op in &ops {
            op.encode(&mut bytes);
            ends.push(bytes.len());
        }
        assert_eq!(
            Ops::new(&bytes).collect::<Result<Vec<_>, _>>().unwrap(),
            ops
        );
        for len in (0..bytes.len()).filter(|len| !ends.contains(len)) {
            assert!(
                Ops::new(&bytes[..len]).any(|op| op.is_err()),
                "cut at {len}"
            );
        }
    }

    #[test]
    fn relogged_entries_keep_number_and_time() {
        let header = Header {
            kind: Kind::Put,
            seq: Seq(77),
            written_at: Timestamp(5),
            ttl: ItemTtl::Millis(3),
        };
        let entries = [
            Relogged::Record {
                container: ContainerId(1),
                header,
                key: b"k",
                value: b"v",
            },
            Relogged::Range {
                container: ContainerId(2),
                seq: Seq(78),
                from: b"a",
                to: b"",
            },
        ];
        let mut bytes = vec![];
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        assert_eq!(
            relogged(&bytes).collect::<Result<Vec<_>, _>>().unwrap(),
            entries
        );
    }

    #[test]
    fn ranges_know_what_they_hold() {
        let range = KeyRange {
            from: b"b".to_vec(),
            to: Some(b"d".to_vec()),
        };
        assert!(
            range.contains(b"b")
                && range.contains(b"cz")
                && !range.contains(b"d")
                && !range.contains(b"a")
        );
        assert!(
            range.overlaps(b"a", b"b")
                && !range.overlaps(b"d", b"e")
                && !range.overlaps(b"a", b"az")
        );
        assert!(range.covers(b"b", b"c") && !range.covers(b"b", b"d"));
        assert!(
            KeyRange {
                from: b"b".to_vec(),
                to: Some(b"b".to_vec())
            }
            .is_empty()
        );
    }
}
