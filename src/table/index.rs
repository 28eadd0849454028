//! Which block may hold a key.
//!
//! ```text
//! index    count u32 | shared u32 | prefix u64 per block | row per block | details per block
//! prefix   of the block's first key, the eight bytes behind the first `shared` ones, as one big number (the first byte
//!          weighs most, missing bytes are zeros)
//! row      offset of the block u64 | offset of its details u64 | length of the block u32
//!          | length of the first key u16 | length of the last key u16
//! details  first key | last key | census (expiry/census.rs)
//! ```
//!
//! `shared` is how many bytes the first and the last key of the table have in common, and so all keys between them. The
//! prefixes lie together, so that a search touches little: fixed steps over them, and whole keys only where prefixes
//! are equal. Everything is searched where it lies in the file.

use std::ops::Range;

use bytes::Bytes;

use crate::coding::{Malformed, Reader};
use crate::expiry::Census;
use crate::table::block::TRAILER_LEN;

const HEADER_LEN: usize = 8;
const PREFIX_LEN: usize = 8;
const ROW_LEN: usize = 24;

/// The eight bytes of `key` as a number that orders as they do.
#[inline]
fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; PREFIX_LEN];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many bytes two keys share at their front.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[derive(Clone, Copy)]
struct Row {
    offset: u64,
    details_at: u64,
    len: u32,
    first_len: u16,
    last_len: u16,
}

impl Row {
    fn encode(&self) -> [u8; ROW_LEN] {
        let mut out = [0; ROW_LEN];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.details_at.to_le_bytes());
        out[16..20].copy_from_slice(&self.len.to_le_bytes());
        out[20..22].copy_from_slice(&self.first_len.to_le_bytes());
        out[22..].copy_from_slice(&self.last_len.to_le_bytes());
        out
    }

    #[inline]
    fn decode(bytes: &[u8; ROW_LEN]) -> Row {
        let number =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("a row has 24 bytes"));
        let lens = number(16);
        Row {
            offset: number(0),
            details_at: number(8),
            len: lens as u32,
            first_len: (lens >> 32) as u16,
            last_len: (lens >> 48) as u16,
        }
    }
}

/// Gathers the index while blocks are written.
#[derive(Default)]
pub struct IndexBuilder {
    rows: Vec<Row>,
    details: Vec<u8>,
}

impl IndexBuilder {
    /// Adds a block behind all others.
    pub fn push(&mut self, offset: u64, len: usize, keys: (&[u8], &[u8]), census: &Census) {
        let (first, last) = keys;
        self.rows.push(Row {
            offset,
            details_at: self.details.len() as u64,
            len: u32::try_from(len).expect("a block is under 4 GiB"),
            first_len: u16::try_from(first.len()).expect("a key is under 64 KiB"),
            last_len: u16::try_from(last.len()).expect("a key is under 64 KiB"),
        });
        self.details.extend_from_slice(first);
        self.details.extend_from_slice(last);
        census.encode(&mut self.details);
    }

    fn first_key(&self, row: &Row) -> &[u8] {
        &self.details[row.details_at as usize..][..usize::from(row.first_len)]
    }

    /// The index, of at least one block; `last_key` is the table's.
    pub fn finish(self, last_key: &[u8]) -> Vec<u8> {
        let count = u32::try_from(self.rows.len()).expect("a table has under 4 billion blocks");
        let shared = shared_len(self.first_key(&self.rows[0]), last_key);
        let fixed = HEADER_LEN + self.rows.len() * (PREFIX_LEN + ROW_LEN);
        let mut out = Vec::with_capacity(fixed + self.details.len());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&(shared as u32).to_le_bytes());
        for row in &self.rows {
            out.extend_from_slice(&prefix(&self.first_key(row)[shared..]).to_le_bytes());
        }
        for row in &self.rows {
            out.extend_from_slice(&row.encode());
        }
        out.extend_from_slice(&self.details);
        out
    }
}

/// An index that was found to be in order, where it lies.
pub struct Index {
    /// The first key, and how much of it all keys start with. The whole of it, for comparing no bytes at the address of
    /// an empty allocation costs 40 ns (measured with glibc on AVX-512: a masked load from a page that is not there).
    lowest: Box<[u8]>,
    shared_len: usize,
    prefixes: Bytes,
    rows: Bytes,
    details: Bytes,
}

impl Index {
    /// Reads the index of `blocks` blocks, all of which lie before `data_end`, and checks everything that searches rely on.
    pub fn open(bytes: &Bytes, blocks: u64, data_end: u64) -> Result<Index, Malformed> {
        let mut reader = Reader::new(bytes);
        let (count, shared) = (reader.u32()? as usize, reader.u32()? as usize);
        if count == 0 || count as u64 != blocks {
            return Err(reader.malformed("the index is of another number of blocks"));
        }
        let prefixes = bytes.slice_ref(reader.bytes(count * PREFIX_LEN)?);
        let rows = bytes.slice_ref(reader.bytes(count * ROW_LEN)?);
        let fixed = reader.offset();
        let mut index = Index {
            lowest: Box::default(),
            shared_len: shared,
            prefixes,
            rows,
            details: bytes.slice(fixed..),
        };
        index.check(shared, data_end).map_err(|bad| Malformed {
            offset: fixed + bad.offset,
            ..bad
        })?;
        index.lowest = index.first_key(0).into();
        Ok(index)
    }

    /// Offsets rise and stay inside, details fill their room, keys rise, prefixes are those of the keys.
    fn check(&self, shared: usize, data_end: u64) -> Result<(), Malformed> {
        let (mut data, mut details) = (0, 0);
        let mut last_before: &[u8] = &[];
        for number in 0..self.len() {
            let row = self.row(number);
            let malformed = |what| Malformed {
                offset: details,
                what,
            };
            let (start, len) = (row.offset, u64::from(row.len));
            if start < data || len < TRAILER_LEN as u64 || start.saturating_add(len) > data_end {
                return Err(malformed("a block lies outside the data"));
            }
            data = start + len;
            if row.details_at != details as u64 {
                return Err(malformed("an index row points elsewhere"));
            }
            let mut reader = Reader::new(&self.details[details..]);
            let first = reader.bytes(usize::from(row.first_len))?;
            let last = reader.bytes(usize::from(row.last_len))?;
            let census = Census::decode(&mut reader).map_err(|bad| malformed(bad.what))?;
            let ordered = last_before < first && first <= last && census.total().count > 0;
            if !ordered || first.get(shared..).map(prefix) != Some(self.prefix(number)) {
                return Err(malformed("a block's keys are out of place"));
            }
            details += reader.offset();
            last_before = last;
        }
        let keys_share = shared_len(self.first_key(0), last_before) == shared;
        if !keys_share || details != self.details.len() {
            return Err(Malformed {
                offset: details,
                what: "the index does not add up",
            });
        }
        Ok(())
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.rows.len() / ROW_LEN
    }

    #[inline]
    fn prefix(&self, number: usize) -> u64 {
        u64::from_le_bytes(self.prefixes.as_chunks().0[number])
    }

    #[inline]
    fn row(&self, number: usize) -> Row {
        Row::decode(&self.rows.as_chunks().0[number])
    }

    /// Where in the file block `number` lies.
    #[inline]
    pub fn place(&self, number: usize) -> Range<u64> {
        let row = self.row(number);
        row.offset..row.offset + u64::from(row.len)
    }

    /// The first key of block `number`.
    pub fn first_key(&self, number: usize) -> &[u8] {
        let row = self.row(number);
        &self.details[row.details_at as usize..][..usize::from(row.first_len)]
    }

    /// The last key of block `number`.
    pub fn last_key(&self, number: usize) -> &[u8] {
        let row = self.row(number);
        let at = row.details_at as usize + usize::from(row.first_len);
        &self.details[at..][..usize::from(row.last_len)]
    }

    /// The census of block `number`.
    pub fn census(&self, number: usize) -> Census {
        let row = self.row(number);
        let at = row.details_at as usize + usize::from(row.first_len) + usize::from(row.last_len);
        Census::decode(&mut Reader::new(&self.details[at..])).expect("decoded when it was opened")
    }

    /// The last block that starts at or below `key`: the only one that can hold it.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let shared = &self.lowest[..self.shared_len];
        let Some(rest) = key.strip_prefix(shared) else {
            return if key < shared {
                None
            } else {
                Some(self.len() - 1)
            };
        };
        let wanted = prefix(rest);
        let below = self.below(wanted);
        if below == self.len() || self.prefix(below) != wanted {
            return below.checked_sub(1);
        }
        self.up_to(below, wanted, key).checked_sub(1)
    }

    /// How many blocks have a prefix below `wanted`. The number of steps depends on nothing but the number of blocks,
    /// and none of them is a jump that the processor has to guess.
    #[inline]
    fn below(&self, wanted: u64) -> usize {
        let (prefixes, _) = self.prefixes.as_chunks::<PREFIX_LEN>();
        let (mut from, mut len) = (0, prefixes.len());
        while len > 1 {
            let half = len / 2;
            let skip = u64::from_le_bytes(prefixes[from + half - 1]) < wanted;
            from = std::hint::select_unpredictable(skip, from + half, from);
            len -= half;
        }
        from + usize::from(u64::from_le_bytes(prefixes[from]) < wanted)
    }

    /// How many blocks start at or below `key`, where `low` is the first one that has its prefix.
    #[cold]
    fn up_to(&self, mut low: usize, wanted: u64, key: &[u8]) -> usize {
        let mut high = self.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if self.prefix(middle) == wanted && self.first_key(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The last block that starts below `key`.
    pub fn find_below(&self, key: &[u8]) -> Option<usize> {
        let found = self.find(key)?;
        if self.first_key(found) < key {
            Some(found)
        } else {
            found.checked_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Head, Header};
    use crate::types::{Seq, Timestamp};

    fn index_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut census = Census::default();
        census.add(&Head {
            header: Header::tombstone(Seq(1), Timestamp(1)),
            key: b"k",
            value_len: 0,
        });
        let mut builder = IndexBuilder::default();
        for (number, key) in keys.iter().enumerate() {
            builder.push(number as u64 * 50, 50, (key, key), &census);
        }
        builder.finish(keys.last().unwrap())
    }

    #[test]
    fn a_search_finds_what_a_plain_one_finds() {
        for (shared, digits) in [
            ("", 3),
            ("", 12),
            ("shared/", 3),
            ("longer than eight bytes/", 12),
        ] {
            for count in [1usize, 2, 3, 7, 64, 99] {
                let key = |number: usize| format!("{shared}{number:0digits$}").into_bytes();
                let keys: Vec<_> = (0..count).map(|number| key(number * 2 + 1)).collect();
                let bytes = Bytes::from(index_of(&keys));
                let index = Index::open(&bytes, count as u64, 50 * count as u64).unwrap();
                let mut asked: Vec<_> = (0..count * 2 + 2).map(key).collect();
                asked.extend([
                    vec![],
                    vec![0],
                    vec![0xff; 9],
                    b"shared".to_vec(),
                    b"sharee".to_vec(),
                ]);
                asked.push([&keys[0][..], b"\0"].concat());
                for key in asked {
                    let plain = keys.partition_point(|first| *first <= key).checked_sub(1);
                    assert_eq!(index.find(&key), plain, "{key:?} of {count}");
                    let below = keys.partition_point(|first| *first < key).checked_sub(1);
                    assert_eq!(index.find_below(&key), below, "{key:?} of {count}");
                }
            }
        }
    }

    #[test]
    fn an_index_that_is_not_in_order_is_refused() {
        let bytes = index_of(&[b"a1".to_vec(), b"a2".to_vec(), b"a3".to_vec()]);
        let open = |bytes: &[u8], end| Index::open(&Bytes::copy_from_slice(bytes), 3, end);
        assert!(open(&bytes, 150).is_ok());
        assert!(open(&bytes, 149).is_err());
        for len in 0..bytes.len() {
            assert!(open(&bytes[..len], 150).is_err(), "cut at {len}");
        }
        let fixed = HEADER_LEN + 3 * (PREFIX_LEN + ROW_LEN);
        for at in 0..fixed {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(open(&bad, 150).is_err(), "byte {at}");
        }
    }
}
