//! The encoding of writes with their sequence number and time: what an operation of a batch becomes, and what is relogged.
//!
//! ```text
//! Relogged  entry*                                       records that keep sequence number and time
//! entry     container varint | header (record.rs, base 0) | key prefixed | value prefixed, or
//!           container varint | 0xff | seq varint | from prefixed | to prefixed
//! ```

use crate::base::coding::{ByteReader, Malformed, put_prefixed, put_varint};
use crate::base::record::{Base, Header, Kind, MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::{ContainerId, HIGHEST_NUMBER, Seq};

/// The tag of a range delete among relogged records; no header starts with it.
const RELOGGED_RANGE: u8 = 0xff;

/// A write with its sequence number and time: what an operation of a batch becomes, and what is relogged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relogged<'a> {
    /// A put or a tombstone.
    Record {
        /// The container.
        container: ContainerId,
        /// Its header, with sequence number and time.
        header: Header,
        /// 1 to 65 535 bytes.
        key: &'a [u8],
        /// Up to 64 MiB.
        value: &'a [u8],
    },
    /// A range delete.
    Range {
        /// The container.
        container: ContainerId,
        /// Its sequence number.
        seq: Seq,
        /// The first key; empty for the first key of all.
        from: &'a [u8],
        /// The first key after the range; empty for no end.
        to: &'a [u8],
    },
}

impl Relogged<'_> {
    /// The container it was written to.
    pub fn container(&self) -> ContainerId {
        match *self {
            Relogged::Record { container, .. } | Relogged::Range { container, .. } => container,
        }
    }

    /// Appends the bytes shown in this file's head.
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
    let mut reader = ByteReader::new(bytes);
    std::iter::from_fn(move || {
        if reader.is_empty() {
            return None;
        }
        let entry = read_relogged(&mut reader);
        if entry.is_err() {
            reader = ByteReader::new(&[]);
        }
        Some(entry)
    })
}

fn read_relogged<'a>(reader: &mut ByteReader<'a>) -> Result<Relogged<'a>, Malformed> {
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

#[inline(always)]
pub(super) fn container(reader: &mut ByteReader<'_>) -> Result<ContainerId, Malformed> {
    Ok(ContainerId(reader.varint_up_to(u64::from(u32::MAX))? as u32))
}

pub(super) fn key<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let key = reader.prefixed()?;
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(at.malformed("a key of a length that is not allowed"));
    }
    Ok(key)
}

/// A bound of a range: empty, a key, or the successor of a key.
pub(super) fn bound<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let bound = reader.prefixed()?;
    if bound.len() > MAX_KEY_LEN + 1 {
        return Err(at.malformed("a range of keys that are too long"));
    }
    Ok(bound)
}

pub(super) fn value<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.clone();
    let value = reader.prefixed()?;
    if value.len() > MAX_VALUE_LEN {
        return Err(at.malformed("a value that is too long"));
    }
    Ok(value)
}
