//! The format of segments and frames.
//!
//! ```text
//! segment  0  magic "ebbtwal\0"
//!          8  format version u32
//!         12  crc32 u32            of the other 60 bytes
//!         16  identity u64         of the chain
//!         24  number u64           the file's; another one says that this is not the file of its name
//!         32  start u64            position of the first frame
//!         40  base seq u64
//!         48  base written_at u64
//!         56  edit u64             the manifest's last durable edit
//!         64  frame*
//!             zeros
//!    -64      the header again  the last 64 bytes of the file
//!
//! frame    kind u8                 bits 0-1: 1 batch, 2 relog, 3 end mark; 0 is never written
//!                                  bits 2-4: which of the numbers in brackets are there; the others are 0
//!          payload length varint
//!          position - watermark    varint: how far behind this frame the log was known to be synced
//!          first_seq - base        these five are zigzag varints of wrapping differences: small in the usual case,
//!          written_at - base       and right in every other
//!          [last_seq - first_seq]
//!          [written_at - settled]
//!          [edit - segment's edit]
//!          payload crc32 u32
//!          header crc32 u32        of identity, number, position (u64 each) and the frame up to here
//!          payload
//!
//! ring     frames                 each at its position modulo the ring's length; zeroed where they are in the segments
//!          synced note            the 16 bytes before the last 16 of the file
//!          mark                   the last 16 bytes: synced before a manifest names the chain, and never written again
//!
//! mark     identity u64           of the chain
//!          crc32 u32              of the identity
//!          0 u32
//!
//! note     position u64           up to here the log was synced
//!          crc32 u32              of identity and position
//!          syncs u32              1 and how many syncs have begun and not succeeded; 0: that is unknown
//! ```
//!
//! Little-endian. The caller computes the payload's checksum outside the commit lock; the header's checksum covers it,
//! and so ties the payload to its position.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::base::coding::{ByteReader, Malformed, store_varint};
use crate::base::{Seq, Timestamp};

/// Bytes of a segment's header.
pub const HEADER_LEN: usize = 64;
/// The version that this build writes.
pub const FORMAT_VERSION: u32 = 8;
/// The oldest version that it reads: 7 has writes that expire items, 8 those that make and drop containers and set what they
/// may hold and keep.
const OLDEST_VERSION: u32 = 6;
const MAGIC: [u8; 8] = *b"ebbtwal\0";
const CRC_AT: usize = 12;
const IDENTITY_AT: usize = 16;
const _: () = assert!(IDENTITY_AT + 6 * size_of::<u64>() == HEADER_LEN);

/// A position in the log: the bytes of all frames before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position(pub u64);

/// No log gets this long, so a position and a file's length can be added.
const POSITION_MAX: u64 = u64::MAX / 2;

/// The contents of a frame. No kind is 0, because files are zero where there is no frame yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Writes that were committed together, encoded by `batch.rs`.
    Batch = 1,
    /// Relogged records, which keep their sequence numbers, encoded by `batch.rs`.
    Relog = 2,
    /// Empty: the log was closed here. Replay does not show it.
    End = 3,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        [FrameKind::Batch, FrameKind::Relog, FrameKind::End]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of its contents.
    pub kind: FrameKind,
    /// The lowest sequence number in it.
    pub first_seq: Seq,
    /// The highest sequence number in it.
    pub last_seq: Seq,
    /// The time of the write.
    pub written_at: Timestamp,
    /// Settled time at the write; the highest of all frames is the mark as far as the log knows it.
    pub settled: Timestamp,
    /// The last edit of the manifest that was durable when the frame was written.
    pub edit: u64,
}

/// The checksum of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadCrc(u32);

impl PayloadCrc {
    /// Computes it; a writer calls this outside the commit lock.
    #[inline]
    pub fn of(payload: &[u8]) -> PayloadCrc {
        /// A new one asks each time what the processor can do.
        static EMPTY: LazyLock<crc32fast::Hasher> = LazyLock::new(crc32fast::Hasher::new);
        let mut crc = EMPTY.clone();
        crc.update(payload);
        PayloadCrc(crc.finalize())
    }
}

/// The start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The chain's identity.
    pub identity: u64,
    /// The file's number.
    pub number: u64,
    /// The position of the first frame.
    pub start: u64,
    /// The base of the sequence numbers in its frames.
    pub base_seq: Seq,
    /// The base of the times in its frames.
    pub base_written_at: Timestamp,
    /// The base of the edit numbers in its frames.
    pub edit: u64,
}

/// Why a file does not start with a segment's header.
#[derive(Debug)]
pub enum HeaderFault {
    /// There is no header.
    Malformed(Malformed),
    /// The header is complete, but of another version.
    Version(u32),
}

impl From<Malformed> for HeaderFault {
    fn from(malformed: Malformed) -> Self {
        HeaderFault::Malformed(malformed)
    }
}

fn header_crc(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..CRC_AT]);
    crc.update(&bytes[IDENTITY_AT..HEADER_LEN]);
    crc.finalize()
}

impl SegmentHeader {
    /// The bytes shown in this file's head.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8..CRC_AT].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        let fields = [
            self.identity,
            self.number,
            self.start,
            self.base_seq.0,
            self.base_written_at.0,
            self.edit,
        ];
        for (place, field) in out[IDENTITY_AT..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = header_crc(&out);
        out[CRC_AT..IDENTITY_AT].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads what [`SegmentHeader::encode`] wrote from the front of a file.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        let reader = &mut ByteReader::new(bytes);
        let whole = reader.clone().bytes(HEADER_LEN)?;
        if reader.bytes(MAGIC.len())? != MAGIC {
            return Err(ByteReader::new(bytes).malformed("not a log segment").into());
        }
        let version = reader.u32()?;
        if reader.u32()? != header_crc(whole) {
            let malformed = ByteReader::new(bytes)
                .malformed("the segment's header does not match its checksum");
            return Err(malformed.into());
        }
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        let (identity, number, start) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if start > POSITION_MAX {
            return Err(reader.malformed("number out of range").into());
        }
        Ok(SegmentHeader {
            identity,
            number,
            start,
            base_seq: Seq(reader.u64()?),
            base_written_at: Timestamp(reader.u64()?),
            edit: reader.u64()?,
        })
    }
}

/// Bytes of a [`SyncedNote`] with what follows it.
pub const SYNCED_NOTE_LEN: usize = 16;
/// In these, where it stands how many syncs are under way.
pub const SYNCS_AT: usize = 12;
/// The value at [`SYNCS_AT`] while no sync is under way.
pub const NO_SYNC: u32 = 1;

/// How far a chain was synced, as noted behind its ring.
#[derive(Clone, Copy, Debug)]
pub struct SyncedNote {
    /// The chain's identity.
    pub identity: u64,
    /// The log is durable up to here.
    pub position: u64,
}

impl SyncedNote {
    /// The bytes shown in this file's head.
    pub fn encode(&self) -> [u8; SYNCS_AT] {
        let mut out = [0; SYNCS_AT];
        out[..8].copy_from_slice(&self.position.to_le_bytes());
        out[8..].copy_from_slice(&self.crc().to_le_bytes());
        out
    }

    /// Reads what [`SyncedNote::encode`] wrote; `None`: there is no note, or none of this chain.
    pub fn decode(identity: u64, bytes: &[u8]) -> Option<SyncedNote> {
        let reader = &mut ByteReader::new(bytes);
        let position = reader.u64().ok()?;
        let note = SyncedNote { identity, position };
        (reader.u32().ok()? == note.crc()).then_some(note)
    }

    fn crc(&self) -> u32 {
        let fields = [self.identity, self.position].map(u64::to_le_bytes);
        crc32fast::hash(fields.as_flattened())
    }
}

/// Bytes of a [`RingMark`].
const RING_MARK_LEN: usize = 16;
/// Bytes behind a ring: a [`SyncedNote`] and a [`RingMark`].
pub const RING_TAIL_LEN: usize = SYNCED_NOTE_LEN + RING_MARK_LEN;

/// The identity of a ring's chain, at the end of the ring's file.
pub struct RingMark {
    /// The chain's identity.
    pub identity: u64,
}

impl RingMark {
    /// The bytes shown in this file's head.
    pub fn encode(&self) -> [u8; RING_MARK_LEN] {
        let mut out = [0; RING_MARK_LEN];
        let identity = self.identity.to_le_bytes();
        out[..8].copy_from_slice(&identity);
        out[8..12].copy_from_slice(&crc32fast::hash(&identity).to_le_bytes());
        out
    }

    /// Whether these bytes are what [`RingMark::encode`] makes.
    pub fn is(&self, bytes: &[u8]) -> bool {
        bytes == self.encode()
    }
}

/// `to - from` as a number that is small when the two are close, whichever is greater.
fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    (difference << 1 ^ difference >> 63) as u64
}

fn unzigzag(from: u64, zigzag: u64) -> u64 {
    from.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg())
}

/// The number of lower bits of the first byte that are the kind.
const KIND_BITS: u32 = 2;
const KIND_MASK: u8 = (1 << KIND_BITS) - 1;
/// The number of optional fields, each with a bit above the kind.
const SELDOM: u32 = 3;

/// The fewest bytes of a frame: its kind, four varints of one byte, two checksums.
pub const FRAME_LEN_MIN: usize = 1 + 4 + 8;
/// The most bytes before a payload: seven varints of ten.
pub const HEAD_LEN_MAX: usize = 1 + 7 * 10 + 8;

/// A header's checksum begins with identity and number ...
fn segment_crc(segment: &SegmentHeader) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&segment.identity.to_le_bytes());
    crc.update(&segment.number.to_le_bytes());
    crc
}

/// ... then has the position, stored here before the header so that both are one slice.
const POSITION_LEN: usize = 8;

/// The bytes of a frame before its payload.
pub struct FrameHead {
    /// Behind the position.
    bytes: [u8; POSITION_LEN + HEAD_LEN_MAX],
    end: usize,
}

impl FrameHead {
    /// None yet, for [`Encoder::head`].
    #[inline]
    pub fn empty() -> FrameHead {
        FrameHead {
            bytes: [0; POSITION_LEN + HEAD_LEN_MAX],
            end: POSITION_LEN,
        }
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[POSITION_LEN..self.end]
    }
}

/// Encodes the frames of a segment.
pub struct Encoder {
    segment: SegmentHeader,
    segment_crc: crc32fast::Hasher,
}

impl Encoder {
    /// For frames of this segment.
    pub fn new(segment: SegmentHeader) -> Encoder {
        Encoder {
            segment_crc: segment_crc(&segment),
            segment,
        }
    }

    /// Makes the head of a frame with a payload of this length and checksum, in place: it has some hundred bytes.
    #[inline]
    pub fn head(
        &self,
        head: &mut FrameHead,
        (position, watermark): (u64, u64),
        header: &FrameHeader,
        (payload_len, payload_crc): (usize, PayloadCrc),
    ) {
        let segment = &self.segment;
        let always = [
            payload_len as u64,
            position - watermark,
            zigzag(segment.base_seq.0, header.first_seq.0),
            zigzag(segment.base_written_at.0, header.written_at.0),
        ];
        let seldom: [(u64, u64); SELDOM as usize] = [
            (header.first_seq.0, header.last_seq.0),
            (header.settled.0, header.written_at.0),
            (segment.edit, header.edit),
        ];
        let bytes = &mut head.bytes;
        bytes[..POSITION_LEN].copy_from_slice(&position.to_le_bytes());
        let mut len = POSITION_LEN + 1;
        let mut put = |number| len = store_varint(bytes, len, number);
        always.into_iter().for_each(&mut put);
        let mut first = header.kind as u8;
        for (bit, (from, to)) in (KIND_BITS..).zip(seldom) {
            if from != to {
                first |= 1 << bit;
                put(zigzag(from, to));
            }
        }
        bytes[POSITION_LEN] = first;
        bytes[len..len + 4].copy_from_slice(&payload_crc.0.to_le_bytes());
        len += 4;
        let mut crc = self.segment_crc.clone();
        crc.update(&bytes[..len]);
        bytes[len..len + 4].copy_from_slice(&crc.finalize().to_le_bytes());
        head.end = len + 4;
    }
}

/// A frame as it lies in a segment or in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The frame without its payload.
    pub header: FrameHeader,
    /// Up to where the log was known to be synced.
    pub watermark: u64,
    /// The payload as the caller passed it.
    pub payload: &'a [u8],
    /// Bytes of the whole frame.
    pub len: usize,
}

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFrame {
    /// No frame was begun here, or only part of its header is there.
    Nothing,
    /// A frame was begun here: its header is complete, its payload is not.
    Unfinished,
}

/// Decodes the frames of a segment.
#[derive(Clone)]
pub struct Decoder {
    /// The checksums need only its identity and number.
    pub segment: SegmentHeader,
    segment_crc: crc32fast::Hasher,
}

impl Decoder {
    /// For frames of this segment.
    pub fn new(segment: SegmentHeader) -> Decoder {
        Decoder {
            segment_crc: segment_crc(&segment),
            segment,
        }
    }

    /// The frame at the front of `bytes`, if it was appended at `position`.
    pub fn frame<'a>(&self, position: u64, bytes: &'a [u8]) -> Result<Decoded<'a>, NoFrame> {
        let reader = &mut ByteReader::new(bytes);
        let (mut decoded, payload_len, payload_crc) =
            self.header(position, reader).ok_or(NoFrame::Nothing)?;
        let payload_len = usize::try_from(payload_len).map_err(|_| NoFrame::Unfinished)?;
        decoded.payload = reader.bytes(payload_len).map_err(|_| NoFrame::Unfinished)?;
        decoded.len = reader.offset();
        if PayloadCrc::of(decoded.payload).0 != payload_crc {
            return Err(NoFrame::Unfinished);
        }
        Ok(decoded)
    }

    /// Decodes the front of `reader`: a header with an empty payload, and the payload's length and checksum.
    fn header<'a>(
        &self,
        position: u64,
        reader: &mut ByteReader<'a>,
    ) -> Option<(Decoded<'a>, u64, u32)> {
        let segment = &self.segment;
        let mut whole = reader.clone();
        let first = reader.u8().ok()?;
        if first >> (KIND_BITS + SELDOM) != 0 {
            return None;
        }
        let kind = FrameKind::from_byte(first & KIND_MASK)?;
        let mut number = || reader.varint().ok();
        let payload_len = number()?;
        let watermark = position.checked_sub(number()?)?;
        let first_seq = unzigzag(segment.base_seq.0, number()?);
        let written_at = unzigzag(segment.base_written_at.0, number()?);
        let mut seldom = [0; SELDOM as usize];
        for (bit, value) in (KIND_BITS..).zip(&mut seldom) {
            if first & 1 << bit != 0 {
                // A zero would be a second encoding of the same header.
                *value = number().filter(|value| *value != 0)?;
            }
        }
        let [last_seq, behind, edit] = seldom;
        let last_seq = unzigzag(first_seq, last_seq);
        let behind = unzigzag(0, behind);
        let edit = unzigzag(segment.edit, edit);
        let payload_crc = reader.u32().ok()?;
        let covered = whole.bytes(reader.offset()).ok()?;
        let mut bytes = [0; POSITION_LEN + HEAD_LEN_MAX];
        let placed = bytes.get_mut(..POSITION_LEN + covered.len())?;
        placed[..POSITION_LEN].copy_from_slice(&position.to_le_bytes());
        placed[POSITION_LEN..].copy_from_slice(covered);
        let mut crc = self.segment_crc.clone();
        crc.update(placed);
        if reader.u32().ok()? != crc.finalize() {
            return None;
        }
        let header = FrameHeader {
            kind,
            first_seq: Seq(first_seq),
            last_seq: Seq(last_seq),
            written_at: Timestamp(written_at),
            settled: Timestamp(written_at.wrapping_sub(behind)),
            edit,
        };
        let decoded = Decoded {
            header,
            watermark,
            payload: &[],
            len: 0,
        };
        Some((decoded, payload_len, payload_crc))
    }
}

#[cfg(test)]
mod tests;
