//! A block: some kilobytes of records.
//!
//! ```text
//! block    body, as it is or packed | body length u32 | codec u8 | crc32 u32
//! codec    0 as it is, 1 LZ4, 2 zstd (codec.rs)
//! body     entry* | entry offset* | hash byte* | packing (header_packing.rs) | count u32
//!          an offset is a u16 when the body is shorter than 64 KiB, else a u32; it counts from the body's start
//! entry    header fields (header_packing.rs) | key | value
//! value    its bytes, which take the rest of the entry, or, when there are more than 16 KiB:
//!          length varint | number varint | offset in the file varint | stored length varint | codec u8 | crc32 u32
//! ```
//!
//! The hash byte is bits 32 to 39 of the key's hash, which the filter hardly uses. A get compares eight of them at a
//! time, and reads only entries that match (search.rs): about one, where a binary search would read six.

use std::ops::Range;

use crate::base::coding::{ByteReader, Malformed, put_varint};
use crate::base::record::{Header, MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::table::encode::codec::Codec;
use crate::table::encode::format::LARGE_VALUE_LEN;
use crate::table::encode::header_packing::{
    HeaderFields, HeaderPacking, PACKING_LEN, packing_around,
};

/// Bytes behind a body.
pub const TRAILER_LEN: usize = 9;
const CODEC_AT: usize = 4;
/// Bytes behind the hash bytes of a body.
pub(in crate::table) const TAIL_LEN: usize = PACKING_LEN + COUNT_LEN;
const COUNT_LEN: usize = 4;
/// Bodies from this length on have u32 offsets.
pub(in crate::table) const WIDE_LEN: usize = 1 << 16;

/// The bytes after a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of the body.
    pub body_len: usize,
    /// How it is stored.
    pub codec: Codec,
    /// The checksum of the stored body and the two fields above.
    pub crc: u32,
}

impl Trailer {
    /// The trailer of a stored block.
    #[inline]
    pub fn read(block: &[u8]) -> Result<Trailer, Malformed> {
        let at = block.len().saturating_sub(TRAILER_LEN);
        let trailer = block.last_chunk().and_then(Trailer::decode);
        trailer
            .filter(|trailer| trailer.codec.can_hold(at, trailer.body_len))
            .ok_or(Malformed {
                offset: at,
                what: "a block's trailer does not fit it",
            })
    }

    /// Whether the body of a block, whose trailer was checked, is stored as it is.
    #[inline]
    pub fn is_raw(block: &[u8]) -> bool {
        let trailer = block.last_chunk::<TRAILER_LEN>();
        trailer.is_some_and(|trailer| trailer[CODEC_AT] == Codec::Raw as u8)
    }

    /// Decodes the last bytes of a block, without checking them against it.
    #[inline]
    pub(in crate::table) fn decode(bytes: &[u8; TRAILER_LEN]) -> Option<Trailer> {
        let [a, b, c, d, codec, crc @ ..] = *bytes;
        Some(Trailer {
            body_len: u32::from_le_bytes([a, b, c, d]) as usize,
            codec: Codec::from_byte(codec)?,
            crc: u32::from_le_bytes(crc),
        })
    }
}

/// The place of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of large values before it in the file.
    pub number: u64,
    /// Offset from the start of the file.
    pub offset: u64,
    /// Its stored bytes.
    pub stored_len: u64,
    /// How it is stored.
    pub codec: Codec,
    /// The checksum of the stored bytes.
    pub crc: u32,
}

impl Extent {
    /// Appends the bytes shown in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, self.offset);
        put_varint(out, self.stored_len);
        out.push(self.codec as u8);
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    fn decode(reader: &mut ByteReader<'_>, value_len: usize) -> Result<Extent, Malformed> {
        let at = reader.clone();
        let (number, offset) = (reader.varint()?, reader.varint()?);
        let stored_len = reader.varint_up_to(MAX_VALUE_LEN as u64)?;
        match Codec::from_byte(reader.u8()?) {
            Some(codec) if codec.can_hold(stored_len as usize, value_len) => Ok(Extent {
                number,
                offset,
                stored_len,
                codec,
                crc: reader.u32()?,
            }),
            _ => Err(at.malformed("a large value's length does not fit it")),
        }
    }
}

/// A record in a body, decoded. Small, because an iteration makes one at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    key_at: u32,
    key_len: u32,
    value_at: u32,
    value_len: u32,
}

impl Entry {
    /// The range of its key in the body.
    #[inline]
    pub fn key(&self) -> Range<usize> {
        self.key_at as usize..self.key_at as usize + self.key_len as usize
    }

    /// The length of the value in bytes.
    #[inline]
    pub fn value_len(&self) -> usize {
        self.value_len as usize
    }

    /// The range of its value in the body; `None` if the value is outside, at its extent.
    #[inline]
    pub fn value(&self) -> Option<Range<usize>> {
        let (at, len) = (self.value_at as usize, self.value_len as usize);
        (!is_large(len)).then_some(at..at + len)
    }

    /// The header fields before its key.
    fn fields(&self) -> HeaderFields {
        HeaderFields::of(
            &self.header,
            self.key_len as usize,
            is_large(self.value_len()),
        )
    }
}

/// Whether a value of this length is stored outside its block.
#[inline]
pub(in crate::table) fn is_large(value_len: usize) -> bool {
    value_len > LARGE_VALUE_LEN
}

/// An entry, cut where its key begins and ends.
#[derive(Clone, Copy)]
pub(in crate::table) struct Parts<'a> {
    /// The offset of the entry in the body.
    start: usize,
    pub(in crate::table) key: &'a [u8],
    /// Behind the key.
    rest: &'a [u8],
}

/// The layout of a body; computed once, then used with the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    count: usize,
    pub(in crate::table) offsets_at: usize,
    pub(in crate::table) hashes_at: usize,
    pub(in crate::table) wide: bool,
}

/// A body with its layout.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    pub(in crate::table) bytes: &'a [u8],
    pub(in crate::table) layout: Layout,
    pub(in crate::table) packing: HeaderPacking<'a>,
}

impl Layout {
    /// Computes the layout of `body`.
    #[inline]
    pub fn of(body: &[u8]) -> Result<Layout, Malformed> {
        let malformed = |what| Malformed { offset: 0, what };
        let Some((before, count)) = body.split_last_chunk::<COUNT_LEN>() else {
            return Err(malformed("a block that is too short"));
        };
        let count = u32::from_le_bytes(*count) as usize;
        let Some(tail_at) = before.len().checked_sub(PACKING_LEN) else {
            return Err(malformed("a block that is too short"));
        };
        let wide = body.len() >= WIDE_LEN;
        let side_len = count.checked_mul(if wide { 5 } else { 3 });
        match side_len.and_then(|side| tail_at.checked_sub(side)) {
            Some(offsets_at) if count > 0 && u32::try_from(body.len()).is_ok() => Ok(Layout {
                count,
                offsets_at,
                hashes_at: tail_at - count,
                wide,
            }),
            _ => Err(malformed("a block whose count does not fit it")),
        }
    }

    /// How many entries there are: at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A block from a body and its layout.
    #[inline]
    pub fn block<'a>(&self, body: &'a [u8]) -> Block<'a> {
        let packing = body[self.hashes_at + self.count..].first_chunk();
        Block {
            bytes: body,
            layout: *self,
            packing: HeaderPacking::of(packing.expect("the layout is of this body")),
        }
    }
}

impl<'a> Block<'a> {
    /// The offset of entry `index`; for `count`, where the last one ends.
    #[inline]
    pub(in crate::table) fn offset(&self, index: usize) -> usize {
        let Layout {
            count,
            offsets_at,
            hashes_at,
            wide,
            ..
        } = self.layout;
        if index == count {
            return offsets_at;
        }
        let offsets = &self.bytes[offsets_at..hashes_at];
        if wide {
            u32::from_le_bytes(offsets.as_chunks().0[index]) as usize
        } else {
            u16::from_le_bytes(offsets.as_chunks().0[index]) as usize
        }
    }

    /// The range of entry `index`.
    #[inline(always)]
    fn span(&self, index: usize) -> (usize, usize) {
        let at = self.layout.offsets_at + 2 * index;
        match self.bytes.get(at..at + 4) {
            Some(&[a, b, c, d]) if !self.layout.wide && index + 1 < self.layout.count => {
                let word = |low, high| usize::from(u16::from_le_bytes([low, high]));
                (word(a, b), word(c, d))
            }
            _ => (self.offset(index), self.offset(index + 1)),
        }
    }

    /// The offset of entry `index` in the body, and its bytes.
    #[inline(always)]
    pub(in crate::table) fn bytes_of(&self, index: usize) -> Result<(usize, &'a [u8]), Malformed> {
        let (start, end) = self.span(index);
        Ok((start, self.bytes_between(start, end)?))
    }

    #[inline(always)]
    fn bytes_between(&self, start: usize, end: usize) -> Result<&'a [u8], Malformed> {
        match self.bytes.get(start..end) {
            Some(bytes) if end <= self.layout.offsets_at => Ok(bytes),
            _ => Err(Malformed {
                offset: self.layout.offsets_at,
                what: "an entry's offset lies outside the block",
            }),
        }
    }

    /// The parts of the entry at offset `start`, which has these bytes.
    #[inline(always)]
    pub(in crate::table) fn parts(
        &self,
        start: usize,
        bytes: &'a [u8],
    ) -> Result<Parts<'a>, Malformed> {
        self.cut(start, bytes, self.packing.key_len(self.bytes, start))
    }

    #[inline(always)]
    fn cut(&self, start: usize, bytes: &'a [u8], key_len: usize) -> Result<Parts<'a>, Malformed> {
        let behind = bytes.get(self.packing.len()..);
        match behind.and_then(|behind| behind.split_at_checked(key_len)) {
            Some((key, rest)) => Ok(Parts { start, key, rest }),
            None => Err(Malformed {
                offset: start,
                what: "an entry that is too short",
            }),
        }
    }

    /// The key of entry `index`.
    #[inline]
    pub fn key(&self, index: usize) -> Result<&'a [u8], Malformed> {
        let (start, bytes) = self.bytes_of(index)?;
        Ok(self.parts(start, bytes)?.key)
    }

    /// Entry `index`.
    #[inline(always)]
    pub fn entry(&self, index: usize) -> Result<Entry, Malformed> {
        let (start, bytes) = self.bytes_of(index)?;
        self.entry_of(self.parts(start, bytes)?)
    }

    /// The entry with these parts.
    #[inline(always)]
    pub(in crate::table) fn entry_of(&self, parts: Parts<'a>) -> Result<Entry, Malformed> {
        self.entry_under(self.packing.header(self.bytes, parts.start), parts)
    }

    /// Decodes entries, and appends them.
    pub fn entries(&self, range: Range<usize>, out: &mut Vec<Entry>) -> Result<(), Malformed> {
        let Some(packing) = self.packing.in_one_word() else {
            for index in range {
                out.push(self.entry(index)?);
            }
            return Ok(());
        };
        let mut start = self.offset(range.start);
        for index in range {
            let end = self.offset(index + 1);
            let bytes = self.bytes_between(start, end)?;
            let (key_len, header) = packing.read(self.bytes, start);
            out.push(self.entry_under(header, self.cut(start, bytes, key_len)?)?);
            start = end;
        }
        Ok(())
    }

    #[inline(always)]
    fn entry_under(
        &self,
        header: Result<(Header, bool), &'static str>,
        Parts { start, key, rest }: Parts<'a>,
    ) -> Result<Entry, Malformed> {
        let bad = |what| Malformed {
            offset: start,
            what,
        };
        let (header, large) = header.map_err(bad)?;
        let mut reader = ByteReader::new(rest);
        let value_len = match large {
            false => rest.len(),
            true => reader
                .varint_up_to(MAX_VALUE_LEN as u64)
                .map_err(|malformed| bad(malformed.what))? as usize,
        };
        let fits = is_large(value_len) == large && (1..=MAX_KEY_LEN).contains(&key.len());
        if !fits || (header.is_tombstone() && value_len > 0) {
            return Err(bad("an entry that does not add up"));
        }
        let key_at = start + self.packing.len();
        Ok(Entry {
            header,
            key_at: key_at as u32,
            key_len: key.len() as u32,
            value_at: (key_at + key.len() + reader.offset()) as u32,
            value_len: value_len as u32,
        })
    }

    /// The extent of the large value of entry `index`.
    pub fn extent(&self, index: usize) -> Result<Extent, Malformed> {
        let (start, bytes) = self.bytes_of(index)?;
        let entry = self.entry(index)?;
        let mut reader = ByteReader::new(&bytes[entry.value_at as usize - start..]);
        let extent = Extent::decode(&mut reader, entry.value_len())?;
        match reader.is_empty() {
            true => Ok(extent),
            false => Err(reader.malformed("an entry that does not add up")),
        }
    }

    /// The hash bytes.
    pub(in crate::table) fn hashes(&self) -> &'a [u8] {
        &self.bytes[self.layout.hashes_at..][..self.layout.count]
    }

    /// Whether packing, header fields and hash bytes are exactly those of the entries, and the entries fill their room:
    /// only a full read can check that. `hashes` are those of the entries' keys.
    pub fn is_exact(&self, entries: &[Entry], hashes: &[u64]) -> bool {
        let bytes = packing_around(entries.iter().map(Entry::fields));
        let packing = HeaderPacking::of(&bytes);
        let is_packed = |(index, entry): (usize, &Entry)| {
            let stored = &self.bytes[self.offset(index)..][..packing.len()];
            stored == packing.pack(&entry.fields()).as_ref()
        };
        packing == self.packing
            && entries.iter().enumerate().all(is_packed)
            && self.offset(0) == 0
            && hashes
                .iter()
                .map(|&hash| hash_byte(hash))
                .eq(self.hashes().iter().copied())
    }
}

#[inline]
pub(in crate::table) fn hash_byte(hash: u64) -> u8 {
    (hash >> 32) as u8
}
