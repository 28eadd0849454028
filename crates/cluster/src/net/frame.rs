//! The frames between nodes. All numbers are little-endian.
//!
//! ```text
//!  0   4  "EBN" and the version of this format: 1
//!  4   4  length of the body, at most 16 MiB
//!  8   1  what it is: `What`
//!  9   1  kind of the request; the caller's
//! 10   2  format that the sender speaks; the caller's
//! 12   4  how long the sender waits for the answer, in milliseconds
//! 16   8  id: an answer has that of its request
//! 24  16  cluster of the sender; 0 while it joins
//! 40   8  node of the sender
//! 48   8  node that is meant; 0 for any
//! 56   8  wall clock of the sender, in milliseconds since 1970
//! 64   4  CRC-32 of the body
//! 68   4  CRC-32 of the 68 bytes before
//! 72      body
//! ```
//!
//! The head has a checksum of its own, so that no length is believed that was not written. Invariant: a frame that is read
//! writes the same bytes again. The decoder holds what has arrived and takes no memory for what is declared.

use std::fmt;
use std::io;

use bytes::{Buf, Bytes, BytesMut};

/// Of a frame without its body.
pub(crate) const HEAD_BYTES: usize = 72;
/// The longest body.
pub(crate) const MOST_BODY: usize = 16 << 20;

const MAGIC: [u8; 4] = *b"EBN\x01";
const WHOLE_HEAD_AT: usize = HEAD_BYTES - 4;
/// A shorter body is copied out, lest it keep the buffer that it arrived in.
const COPIED: usize = 16 << 10;

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// The sender is there. Without body.
    Alive = 0,
    Request = 1,
    Answer = 2,
    /// Instead of an answer: the request was not handled, for the reason in the body.
    Refused = 3,
    /// Instead of an answer: the request was not handled, for too many are under way.
    Busy = 4,
    /// Nobody waits any more for the answer to this id.
    Cancel = 5,
    /// The head of a stream; parts follow.
    Stream = 6,
    Part = 7,
    /// The stream is whole.
    End = 8,
}

impl What {
    const ALL: [What; 9] = [
        What::Alive,
        What::Request,
        What::Answer,
        What::Refused,
        What::Busy,
        What::Cancel,
        What::Stream,
        What::Part,
        What::End,
    ];
}

/// One message, with all that its head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub what: What,
    pub kind: u8,
    pub format: u16,
    pub within_ms: u32,
    pub id: u64,
    pub cluster: u128,
    pub from: u64,
    pub to: u64,
    pub wall_ms: u64,
    pub body: Bytes,
}

/// These bytes are no frame, and what follows them is not either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Damaged {}

impl From<Damaged> for io::Error {
    fn from(damaged: Damaged) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, damaged)
    }
}

impl Frame {
    /// The bytes before the body, which is at most [`MOST_BODY`] long.
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        assert!(self.body.len() <= MOST_BODY, "callers check it");
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        head[8] = self.what as u8;
        head[9] = self.kind;
        head[10..12].copy_from_slice(&self.format.to_le_bytes());
        head[12..16].copy_from_slice(&self.within_ms.to_le_bytes());
        head[16..24].copy_from_slice(&self.id.to_le_bytes());
        head[24..40].copy_from_slice(&self.cluster.to_le_bytes());
        head[40..48].copy_from_slice(&self.from.to_le_bytes());
        head[48..56].copy_from_slice(&self.to.to_le_bytes());
        head[56..64].copy_from_slice(&self.wall_ms.to_le_bytes());
        head[64..68].copy_from_slice(&crc32fast::hash(&self.body).to_le_bytes());
        let crc = crc32fast::hash(&head[..WHOLE_HEAD_AT]);
        head[WHOLE_HEAD_AT..].copy_from_slice(&crc.to_le_bytes());
        head
    }
}

/// Takes the first frame out of `bytes`, if all of it is there.
///
/// # Errors
/// The bytes are no frame. They stay where they are.
pub(crate) fn decode(bytes: &mut BytesMut) -> Result<Option<Frame>, Damaged> {
    // A stranger who sends text is told apart by its first bytes.
    let magic = &bytes[..bytes.len().min(3)];
    if magic != &MAGIC[..magic.len()] {
        return Err(Damaged("not the protocol between nodes"));
    }
    if bytes.get(3).is_some_and(|&version| version != MAGIC[3]) {
        return Err(Damaged("another version of the protocol between nodes"));
    }
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    if crc32fast::hash(&head[..WHOLE_HEAD_AT]).to_le_bytes() != head[WHOLE_HEAD_AT..] {
        return Err(Damaged("the head of a frame is damaged"));
    }
    let (mut frame, len, crc) = read_head(head)?;
    if len > MOST_BODY {
        return Err(Damaged("a frame is too long"));
    }
    let end = HEAD_BYTES + len;
    if bytes.len() < end {
        return Ok(None);
    }
    if crc32fast::hash(&bytes[HEAD_BYTES..end]) != crc {
        return Err(Damaged("the body of a frame is damaged"));
    }
    frame.body = if len <= COPIED {
        let body = Bytes::copy_from_slice(&bytes[HEAD_BYTES..end]);
        bytes.advance(end);
        body
    } else {
        bytes.advance(HEAD_BYTES);
        bytes.split_to(len).freeze()
    };
    Ok(Some(frame))
}

/// The frame without its body; the length and the checksum of that.
fn read_head(head: &[u8; HEAD_BYTES]) -> Result<(Frame, usize, u32), Damaged> {
    let mut rest = &head[4..];
    let len = rest.get_u32_le() as usize;
    let what = rest.get_u8();
    let what = What::ALL
        .into_iter()
        .find(|known| *known as u8 == what)
        .ok_or(Damaged("a frame of no known use"))?;
    let frame = Frame {
        what,
        kind: rest.get_u8(),
        format: rest.get_u16_le(),
        within_ms: rest.get_u32_le(),
        id: rest.get_u64_le(),
        cluster: rest.get_u128_le(),
        from: rest.get_u64_le(),
        to: rest.get_u64_le(),
        wall_ms: rest.get_u64_le(),
        body: Bytes::new(),
    };
    Ok((frame, len, rest.get_u32_le()))
}
