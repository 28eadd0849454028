//! Builds a block (block.rs has its picture).
//!
//! The packing of the headers is known only when the block is complete. So each record is written once, to its place in
//! the body, behind room for as many header bytes as those of the block before took; the headers follow when the block
//! is cut. If they take more or fewer bytes then, all records are moved first.
//!
//! The census of a block of alike records is made once for the block, from the ranges of their header fields.

use crate::base::coding::put_varint;
use crate::base::record::{Header, RecordRef};
use crate::expiry::{Census, Tally};
use crate::table::encode::block::{Extent, TAIL_LEN, WIDE_LEN, hash_byte, is_large};
use crate::table::encode::codec::Packer;
use crate::table::encode::format::checksum;
use crate::table::encode::header_packing::{FieldRanges, HeaderFields, HeaderPacking, PACKING_LEN};
use crate::values::Compression;

/// The most bytes that wait for a block: more, with forty bytes around each record, might not fit a u32.
const MAX_PENDING_LEN: usize = u32::MAX as usize - (1 << 28);

/// The value of an added record.
pub enum Addition<'a> {
    /// Its bytes.
    Inline(&'a [u8]),
    /// The extent of a large value.
    Large(&'a Extent),
}

/// A record of the block that is being built: what is known of it besides its key and value.
struct Pending {
    header: Header,
    hash: u64,
    /// Where the room for its header fields starts in the body.
    start: u32,
    key_len: u32,
    value_len: u32,
}

impl Pending {
    #[inline]
    fn fields(&self) -> HeaderFields {
        let large = is_large(self.value_len as usize);
        HeaderFields::of(&self.header, self.key_len as usize, large)
    }

    fn record<'a>(&self, body: &'a [u8], room: usize) -> RecordRef<'a> {
        RecordRef {
            header: self.header,
            key: &body[self.start as usize + room..][..self.key_len as usize],
            value_len: self.value_len as usize,
        }
    }
}

/// Gathers records until their block is cut.
#[derive(Default)]
pub struct BlockBuilder {
    pending: Vec<Pending>,
    /// Room, key, value, room, key, value ...
    body: Vec<u8>,
    /// Bytes before each key.
    room: usize,
    /// Bytes of keys and values, and ten for each record.
    gathered: usize,
    weight: u64,
    /// Where records are moved to; reused.
    moved: Vec<u8>,
}

impl BlockBuilder {
    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The approximate length of the body: seven bytes of header fields, an offset and a hash byte for each record.
    pub fn len(&self) -> usize {
        TAIL_LEN + self.gathered
    }

    /// Whether another record of about `len` bytes is too much for any block.
    pub fn is_full(&self, len: usize) -> bool {
        self.gathered + self.pending.len() * 30 + len > MAX_PENDING_LEN
    }

    /// The ranges of the records' header fields, by which it is counted and cut.
    pub fn ranges(&self) -> FieldRanges {
        let mut ranges = FieldRanges::default();
        let fields = self.pending.iter().map(Pending::fields);
        fields.for_each(|fields| ranges.add(&fields));
        ranges
    }

    /// The census of the records: at once, if they are alike.
    pub fn census(&self, ranges: &FieldRanges) -> Census {
        let mut census = Census::default();
        if let Some((lowest, highest)) = ranges.alike() {
            let (count, bytes) = (self.pending.len() as u64, self.weight);
            return Census::of_alike(&lowest, &highest, Tally { count, bytes });
        }
        self.records().for_each(|record| census.add(&record));
        census
    }

    /// The records, in order.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        let records = self.pending.iter();
        records.map(|pending| pending.record(&self.body, self.room))
    }

    /// The key of the first record.
    pub fn first_key(&self) -> &[u8] {
        self.key(self.pending.first())
    }

    /// The key of the last record.
    pub fn last_key(&self) -> &[u8] {
        self.key(self.pending.last())
    }

    #[inline]
    fn key(&self, pending: Option<&Pending>) -> &[u8] {
        pending.map_or(&[], |pending| pending.record(&self.body, self.room).key)
    }

    /// Adds a record after all others. `hash` is its key's.
    #[inline]
    pub fn push(&mut self, record: &RecordRef<'_>, hash: u64, value: &Addition<'_>) {
        let pending = Pending {
            header: record.header,
            hash,
            start: self.body.len() as u32,
            key_len: record.key.len() as u32,
            value_len: record.value_len as u32,
        };
        make_room(&mut self.body, self.room);
        self.body.extend_from_slice(record.key);
        match value {
            Addition::Inline(bytes) => self.body.extend_from_slice(bytes),
            Addition::Large(extent) => {
                put_varint(&mut self.body, record.value_len as u64);
                extent.encode(&mut self.body);
            }
        }
        self.gathered += self.body.len() - pending.start as usize - self.room + 10;
        self.weight += record.weight();
        self.pending.push(pending);
    }

    /// Appends the block to `out`, whose end is at `offset` in the table `identity`, and starts a new block.
    pub fn cut(
        &mut self,
        ranges: &FieldRanges,
        (packer, compression): (&mut Packer, Compression),
        (identity, offset): (u64, u64),
        out: &mut Vec<u8>,
    ) {
        self.write_body(ranges);
        let (codec, stored) = packer.pack(compression, &self.body);
        let start = out.len();
        out.extend_from_slice(stored);
        out.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        out.push(codec as u8);
        let crc = checksum(identity, offset, &[&out[start..]]);
        out.extend_from_slice(&crc.to_le_bytes());
        self.pending.clear();
        self.body.clear();
        (self.gathered, self.weight) = (0, 0);
    }

    /// Completes the body.
    pub(in crate::table) fn write_body(&mut self, ranges: &FieldRanges) -> &[u8] {
        let packing_bytes = ranges.packing();
        let packing = HeaderPacking::of(&packing_bytes);
        if packing.len() != self.room {
            self.move_apart(packing.len());
        }
        self.write_tail(&packing_bytes);
        let (body, pending) = (&mut self.body, &self.pending);
        // The tail is longer than a word, so one fits behind any start.
        match packing.in_one_word() {
            Some(packing) => pending.iter().for_each(|pending| {
                let word = body[pending.start as usize..].first_chunk_mut();
                packing.write(&pending.fields(), word.expect("the tail is behind it"));
            }),
            None => pending.iter().for_each(|pending| {
                let room = &mut body[pending.start as usize..][..packing.len()];
                room.copy_from_slice(packing.pack(&pending.fields()).as_ref());
            }),
        }
        body
    }

    /// Moves the records to where there are `room` bytes before each key.
    fn move_apart(&mut self, room: usize) {
        let BlockBuilder { body, moved, .. } = self;
        moved.clear();
        let ends = self.pending.iter().skip(1).map(|next| next.start as usize);
        let ends: Vec<usize> = ends.chain([body.len()]).collect();
        for (pending, end) in self.pending.iter_mut().zip(ends) {
            let bytes = &body[pending.start as usize + self.room..end];
            pending.start = moved.len() as u32;
            make_room(moved, room);
            moved.extend_from_slice(bytes);
        }
        std::mem::swap(body, moved);
        self.room = room;
    }

    /// Appends what is behind the entries.
    fn write_tail(&mut self, packing: &[u8; PACKING_LEN]) {
        let (body, pending) = (&mut self.body, &self.pending);
        let (count, entries_len) = (pending.len(), body.len());
        let wide = entries_len + count * 3 + TAIL_LEN >= WIDE_LEN;
        body.resize(entries_len + count * if wide { 4 } else { 2 }, 0);
        let offsets = &mut body[entries_len..];
        let starts = pending.iter().map(|pending| pending.start);
        if wide {
            let offsets = offsets.as_chunks_mut().0.iter_mut();
            offsets
                .zip(starts)
                .for_each(|(to, at)| *to = at.to_le_bytes());
        } else {
            let offsets = offsets.as_chunks_mut().0.iter_mut();
            offsets
                .zip(starts)
                .for_each(|(to, at)| *to = (at as u16).to_le_bytes());
        }
        body.extend(pending.iter().map(|pending| hash_byte(pending.hash)));
        body.extend_from_slice(packing);
        body.extend_from_slice(&(count as u32).to_le_bytes());
        assert!(u32::try_from(body.len()).is_ok(), "a block is under 4 GiB");
    }
}

/// Appends room for a header, which is filled later.
#[inline]
fn make_room(body: &mut Vec<u8>, room: usize) {
    const USUAL: usize = size_of::<u64>();
    let start = body.len();
    if room > USUAL {
        return body.resize(start + room, 0);
    }
    body.extend_from_slice(&[0; USUAL]);
    body.truncate(start + room);
}
