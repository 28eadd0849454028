//! Decoding and encoding: checked cursors over `&[u8]`, varints, checksummed frames.
//!
//! Varint: seven bits a byte, lowest first, the top bit set on all but the last (LEB128). At most ten bytes; an
//! encoding that is longer than needed is refused, so every number has one encoding.
//!
//! Frame: `length u32 | crc32 u32 | payload`, little-endian; the checksum covers length and payload.

use std::fmt;

/// Why bytes could not be decoded: what is wrong, and the offset from the start of what was decoded. The caller knows
/// the file and turns it into [`Error::Corruption`](crate::Error::Corruption).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Bytes from the start of the decoded slice.
    pub offset: usize,
    /// The fault, as a part of a sentence.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.offset)
    }
}

/// Decodes from the front of a slice; every step checks that the bytes are there.
#[derive(Clone, Debug)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        ByteReader { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The number of bytes left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// An error that points at the next byte.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed {
            offset: self.at,
            what,
        }
    }

    /// The next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.remaining() {
            return Err(self.malformed("cut short"));
        }
        let out = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(out)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    /// Four bytes, little-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(
            self.bytes(4)?.try_into().expect("four bytes"),
        ))
    }

    /// Eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(
            self.bytes(8)?.try_into().expect("eight bytes"),
        ))
    }

    /// A varint.
    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        if let Some(word) = self.bytes[self.at..].first_chunk() {
            let word = u64::from_le_bytes(*word);
            if word & 0x80 == 0 {
                self.at += 1;
                return Ok(word & 0x7f);
            }
            let ends = !word & 0x8080_8080_8080_8080;
            // If it ends within the next eight bytes, as most do, these are decoded at once.
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                let bytes = word & (u64::MAX >> (64 - bits));
                if bits == 8 || bytes >> (bits - 8) != 0 {
                    self.at += bits as usize / 8;
                    return Ok(close_up(bytes));
                }
            }
        }
        self.varint_by_bytes()
    }

    #[cold]
    fn varint_by_bytes(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else {
                self.at = start;
                return Err(self.malformed("cut short"));
            };
            self.at += 1;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        self.at = start;
        Err(self.malformed("not a varint"))
    }

    /// A varint, and as many bytes as it says.
    #[inline]
    pub fn prefixed(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        match usize::try_from(len) {
            Ok(len) => self.bytes(len),
            Err(_) => Err(self.malformed("cut short")),
        }
    }

    /// A varint that must be at most `max`.
    #[inline]
    pub fn varint_up_to(&mut self, max: u64) -> Result<u64, Malformed> {
        let value = self.varint()?;
        if value > max {
            return Err(self.malformed("number out of range"));
        }
        Ok(value)
    }
}

/// The lower seven bits of each byte, without the gaps between them.
#[inline]
fn close_up(bytes: u64) -> u64 {
    let sevens = bytes & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = (sevens & 0x007f_007f_007f_007f) | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours >> 32) << 28
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Stores a varint from `at` on; returns where it ends. There has to be room.
#[inline(always)]
pub fn store_varint(out: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// [`store_varint`], faster for numbers of four bytes and more, as moments are; bytes behind the varint may change.
#[inline]
pub fn store_long_varint(out: &mut [u8], at: usize, value: u64) -> usize {
    if (0x80..1 << 56).contains(&value)
        && let Some(room) = out.get_mut(at..at + 8)
    {
        let len = (70 - value.leading_zeros() as usize) / 7;
        let more = ((1 << (8 * (len - 1))) - 1) & 0x8080_8080_8080_8080;
        room.copy_from_slice(&(spread(value) | more).to_le_bytes());
        return at + len;
    }
    store_varint(out, at, value)
}

/// Seven bits in each byte: the reverse of [`close_up`].
#[inline]
fn spread(bits: u64) -> u64 {
    let fours = (bits & 0x0fff_ffff) | (bits >> 28) << 32;
    let pairs = (fours & 0x0000_3fff_0000_3fff) | (fours & 0x0fff_c000_0fff_c000) << 2;
    (pairs & 0x007f_007f_007f_007f) | (pairs & 0x3f80_3f80_3f80_3f80) << 1
}

/// A few numbers that are put together before they are appended.
pub struct Front<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Front<N> {
    /// Begins with a byte.
    #[inline(always)]
    pub fn tagged(tag: u8) -> Self {
        let mut front = Front {
            bytes: [0; N],
            len: 1,
        };
        front.bytes[0] = tag;
        front
    }

    /// Adds a varint; there has to be room.
    #[inline(always)]
    pub fn varint(&mut self, value: u64) {
        self.len = store_varint(&mut self.bytes, self.len, value);
    }

    /// The same, faster for numbers of four bytes and more.
    #[inline(always)]
    pub fn long_varint(&mut self, value: u64) {
        self.len = store_long_varint(&mut self.bytes, self.len, value);
    }

    /// Appends it. More than that is copied and cut off again, because a copy of a constant length takes no call.
    #[inline(always)]
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

/// Appends a varint that counts the bytes, then the bytes.
#[inline]
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that a frame adds to its payload.
pub const FRAME_HEADER_LEN: usize = 8;

/// Appends a frame around `payload`.
pub fn put_frame(out: &mut Vec<u8>, payload: &[u8]) {
    let len = u32::try_from(payload.len()).expect("a frame's payload is under 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&frame_crc(payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn frame_crc(payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&(payload.len() as u32).to_le_bytes());
    crc.update(payload);
    crc.finalize()
}

/// The payload of the frame that comes next.
pub fn read_frame<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let start = reader.clone();
    let len = reader.u32()?;
    let crc = reader.u32()?;
    let payload = reader.bytes(len as usize)?;
    if frame_crc(payload) != crc {
        return Err(start.malformed("checksum does not match"));
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_have_one_spelling() {
        for value in [
            0,
            1,
            127,
            128,
            300,
            1 << 27,
            1 << 28,
            0x00fe_dcba_9876_5432,
            (1 << 56) - 1,
            1 << 56,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut out = vec![];
            put_varint(&mut out, value);
            assert_eq!(ByteReader::new(&out).varint(), Ok(value));
            for room in [out.len(), out.len() + 1, 16] {
                let mut stored = vec![0; 1 + room];
                for store in [store_varint, store_long_varint] {
                    assert_eq!(store(&mut stored, 1, value), 1 + out.len());
                    assert_eq!(stored[1..=out.len()], out, "{value}, room for {room}");
                }
            }
            assert!(ByteReader::new(&out[..out.len() - 1]).varint().is_err());
            for behind in [0, 0x7f, 0x80, 0xff] {
                let padded = [&out[..], &[behind; 8]].concat();
                let mut reader = ByteReader::new(&padded);
                assert_eq!((reader.varint(), reader.offset()), (Ok(value), out.len()));
            }
        }
        for bad in [&[0x80, 0x00][..], &[0xff; 10], &[0x80; 11]] {
            for bad in [bad.to_vec(), [bad, &[1; 8]].concat()] {
                let mut reader = ByteReader::new(&bad);
                assert_eq!(reader.varint().unwrap_err().what, "not a varint");
                assert_eq!(reader.offset(), 0);
            }
        }
    }

    #[test]
    fn a_frame_is_whole_or_refused() {
        let mut out = vec![];
        put_frame(&mut out, b"payload");
        assert_eq!(read_frame(&mut ByteReader::new(&out)), Ok(&b"payload"[..]));
        for at in 0..out.len() {
            let mut bad = out.clone();
            bad[at] ^= 1;
            assert!(
                read_frame(&mut ByteReader::new(&bad)).is_err(),
                "flipped byte {at}"
            );
            assert!(
                read_frame(&mut ByteReader::new(&out[..at])).is_err(),
                "cut at {at}"
            );
        }
    }
}
