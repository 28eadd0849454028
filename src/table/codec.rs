//! The encoding of a block's body or a large value: raw, or compressed by LZ4 (block format, no dictionary).

use bytes::Bytes;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use crate::base::{Compression, Result as Answer};
use crate::env::zeros;

/// Longer bytes are never compressed, and never decompressed: the longest value, 64 MiB.
const MAX_UNPACKED_LEN: usize = crate::base::record::MAX_VALUE_LEN;
/// A byte of LZ4 expands to at most this many bytes.
const MAX_EXPANSION: usize = 255;

/// The codec byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Stored unchanged.
    Raw = 0,
    /// LZ4.
    Lz4 = 1,
}

impl Codec {
    /// Decodes the byte on disk.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Codec> {
        match byte {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Lz4),
            _ => None,
        }
    }

    /// Whether `stored_len` bytes can decode to `len` bytes. Checked before `len` bytes are allocated.
    #[inline]
    pub fn can_hold(self, stored_len: usize, len: usize) -> bool {
        match self {
            Codec::Raw => stored_len == len,
            Codec::Lz4 => {
                len <= MAX_UNPACKED_LEN && len <= stored_len.saturating_mul(MAX_EXPANSION)
            }
        }
    }
}

/// The `len` bytes that LZ4 compressed, or why they cannot be decoded; an error if there is no memory for them.
pub fn unpack(stored: &[u8], len: usize) -> Answer<Result<Bytes, &'static str>> {
    if !Codec::Lz4.can_hold(stored.len(), len) {
        return Ok(Err("an unpacked length that cannot be"));
    }
    let mut out = zeros(len)?;
    Ok(match decompress_into(stored, &mut out) {
        Ok(found) if found == len => Ok(Bytes::from(out)),
        _ => Err("packed bytes cannot be unpacked"),
    })
}

/// Compresses, and reuses its memory.
#[derive(Default)]
pub struct Packer {
    table: CompressTable,
    packed: Vec<u8>,
}

impl Packer {
    /// The bytes to store, and their codec: compressed only if that is requested and saves at least an eighth.
    pub fn pack<'a>(&'a mut self, compression: Compression, bytes: &'a [u8]) -> (Codec, &'a [u8]) {
        if compression == Compression::None || bytes.len() > MAX_UNPACKED_LEN {
            return (Codec::Raw, bytes);
        }
        let room = get_maximum_output_size(bytes.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        match compress_into_with_table(bytes, &mut self.packed, &mut self.table) {
            Ok(len) if len <= bytes.len() - bytes.len() / 8 => (Codec::Lz4, &self.packed[..len]),
            _ => (Codec::Raw, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_is_kept_only_where_it_pays() {
        let mut packer = Packer::default();
        let dense: Vec<u8> = (0..1_000u32)
            .map(|i| crate::base::hash::hash_key(&i.to_le_bytes()) as u8)
            .collect();
        assert_eq!(packer.pack(Compression::Lz4, &dense).0, Codec::Raw);
        for len in [100, 4_000, 70_000, 4_000] {
            let loose = vec![7; len];
            let (codec, packed) = packer.pack(Compression::Lz4, &loose);
            assert_eq!(codec, Codec::Lz4);
            assert_eq!(unpack(packed, len).unwrap().as_deref(), Ok(&loose[..]));
            assert!(unpack(packed, len - 1).unwrap().is_err());
            assert!(unpack(packed, len + 1).unwrap().is_err());
            assert!(unpack(packed, usize::MAX).unwrap().is_err());
            assert_eq!(packer.pack(Compression::None, &loose).0, Codec::Raw);
        }
    }
}
