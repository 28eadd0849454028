//! A record: one version of a key; and the encoding of its header.
//!
//! ```text
//! header   tag u8 | seq varint | written_at varint | [ttl varint, when the tag says so]
//! tag      bits 0-1  kind: 1 put, 2 tombstone, 3 reserved for "value elsewhere"; 0 is never written
//!          bits 2-3  ttl: 0 absent, 1 never, 2 milliseconds follow
//!          bits 4-7  zero
//! ```
//!
//! `seq` and `written_at` are encoded as differences from a base that the context defines (a sample's lowest; 0 in the
//! log).
//!
//! Order of records everywhere: key up, then sequence number down: of one key, the newest version comes first.

use std::cmp::Ordering;

use crate::base::coding::{ByteReader, Malformed, store_long_varint, store_varint};
use crate::base::{ItemTtl, MAX_TTL_MILLIS, Seq, Timestamp};

/// The longest key, in bytes; the shortest has one byte.
pub const MAX_KEY_LEN: usize = 65_535;
/// The longest value, in bytes.
pub const MAX_VALUE_LEN: usize = 64 << 20;

/// The kind of a record. As wide as its neighbours in a header: gaps between fields stall copies of it, which took a
/// third of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Kind {
    /// The key has a value.
    Put = 1,
    /// The key has none.
    Tombstone = 2,
}

/// The most bytes of an encoded header: a tag and three varints.
const HEADER_MOST: usize = 1 + 3 * 10;

/// A record without its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Put or tombstone.
    pub kind: Kind,
    /// Its place among all writes.
    pub seq: Seq,
    /// When it was written.
    pub written_at: Timestamp,
    /// The item's own ttl; absent in a tombstone.
    pub ttl: ItemTtl,
}

/// The base from which `seq` and `written_at` are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The lowest sequence number in the context.
    pub seq: Seq,
    /// The earliest `written_at` in the context.
    pub written_at: Timestamp,
}

impl Header {
    /// A tombstone; burying replaces a dead put by one.
    pub fn tombstone(seq: Seq, written_at: Timestamp) -> Header {
        Header {
            kind: Kind::Tombstone,
            seq,
            written_at,
            ttl: ItemTtl::Absent,
        }
    }

    /// Whether it is a tombstone.
    pub fn is_tombstone(&self) -> bool {
        self.kind == Kind::Tombstone
    }

    /// Appends the header, relative to `base`, which must not be above it.
    #[inline]
    pub fn encode(&self, base: Base, out: &mut Vec<u8>) {
        debug_assert!(base.seq <= self.seq && base.written_at <= self.written_at);
        let (ttl_tag, millis) = match self.ttl {
            ItemTtl::Absent => (0, None),
            ItemTtl::Never => (1, None),
            ItemTtl::Millis(millis) => (2, Some(millis)),
        };
        // Put together before they are appended: then there is one check for room.
        let mut bytes = [0; HEADER_MOST];
        bytes[0] = self.kind as u8 | ttl_tag << 2;
        let mut len = store_varint(&mut bytes, 1, self.seq.0 - base.seq.0);
        len = store_long_varint(&mut bytes, len, self.written_at.0 - base.written_at.0);
        if let Some(millis) = millis {
            len = store_varint(&mut bytes, len, millis);
        }
        out.extend_from_slice(&bytes[..len]);
    }

    /// Reads what [`Header::encode`] wrote.
    #[inline(always)]
    pub fn decode(base: Base, reader: &mut ByteReader<'_>) -> Result<Header, Malformed> {
        let at = reader.clone();
        let tag = reader.u8()?;
        let kind = match tag & 3 {
            1 => Kind::Put,
            2 => Kind::Tombstone,
            _ => return Err(at.malformed("unknown kind of record")),
        };
        let seq = base.seq.0.checked_add(reader.varint()?);
        let written_at = base.written_at.0.checked_add(reader.varint()?);
        let (Some(seq), Some(written_at)) = (seq, written_at) else {
            return Err(at.malformed("number out of range"));
        };
        let ttl = match tag >> 2 {
            0 => ItemTtl::Absent,
            1 => ItemTtl::Never,
            2 => ItemTtl::Millis(reader.varint_up_to(MAX_TTL_MILLIS)?),
            _ => return Err(at.malformed("unknown kind of ttl")),
        };
        if kind == Kind::Tombstone && ttl != ItemTtl::Absent {
            return Err(at.malformed("a tombstone with a ttl"));
        }
        Ok(Header {
            kind,
            seq: Seq(seq),
            written_at: Timestamp(written_at),
            ttl,
        })
    }
}

/// A record without its value, which may not have been read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    /// 1 to 65 535 bytes.
    pub key: &'a [u8],
    /// Bytes of the value; 0 for a tombstone.
    pub value_len: usize,
}

impl RecordRef<'_> {
    /// The bytes that a census counts for the record: key, value and sixteen for the header.
    pub fn weight(&self) -> u64 {
        (self.key.len() + self.value_len + 16) as u64
    }
}

/// Eight bytes of a key as a number: numbers that differ order as the keys do. A shorter key is filled with zeros.
#[inline]
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => prefix_of_short(key),
    }
}

/// Apart, so that [`key_prefix`] is small where it is inlined.
#[inline(never)]
fn prefix_of_short(key: &[u8]) -> u64 {
    let bytes = key.iter().rev();
    bytes.fold(0, |prefix, &byte| (prefix >> 8) | u64::from(byte) << 56)
}

/// The length of the common prefix of two keys.
pub fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The order of records: key up, sequence number down.
#[inline]
pub fn order(a_key: &[u8], a_seq: Seq, b_key: &[u8], b_seq: Seq) -> Ordering {
    a_key.cmp(b_key).then(b_seq.cmp(&a_seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_holds_its_bytes() {
        let base = Base {
            seq: Seq(1_000),
            written_at: Timestamp(5_000),
        };
        let header = Header {
            kind: Kind::Put,
            seq: Seq(1_300),
            written_at: Timestamp(5_007),
            ttl: ItemTtl::Millis(60_000),
        };
        let mut out = vec![];
        header.encode(base, &mut out);
        assert_eq!(out, [0x09, 0xac, 0x02, 0x07, 0xe0, 0xd4, 0x03]);
        assert_eq!(Header::decode(base, &mut ByteReader::new(&out)), Ok(header));
        let longest = Header {
            seq: Seq(u64::MAX),
            written_at: Timestamp::MAX,
            ttl: ItemTtl::Millis(MAX_TTL_MILLIS),
            ..header
        };
        let mut bytes = vec![];
        longest.encode(Base::default(), &mut bytes);
        let decoded = Header::decode(Base::default(), &mut ByteReader::new(&bytes));
        assert_eq!(decoded, Ok(longest));
        for len in 0..out.len() {
            assert!(Header::decode(base, &mut ByteReader::new(&out[..len])).is_err());
        }
        for tag in [0x00, 0x03, 0x0d, 0x11, 0x06] {
            assert!(
                Header::decode(base, &mut ByteReader::new(&[tag, 0, 0, 0])).is_err(),
                "tag {tag:#x}"
            );
        }
    }
}
