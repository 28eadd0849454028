//! The encoding of a block's body or a large value: raw, compressed by LZ4 (block format, no dictionary), or compressed by zstd
//! (one frame that states the length of its content; no checksum, no dictionary).
//!
//! Nothing is allocated for a length that the stored bytes cannot decode to: a byte of LZ4 expands to at most 255 bytes; a block
//! of zstd, which has at least four bytes, to at most 128 KiB, and its frame must state that same length.
//!
//! A build without the feature `zstd` knows the codec, but cannot compress or decompress. It does not open a database that has
//! such a container.

use bytes::Bytes;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

use crate::base::Result as Answer;
use crate::env::zeros;
use crate::table::encode::zstd_frame;
use crate::values::Compression;

/// Longer bytes are never compressed, and never decompressed: the longest value, 64 MiB.
const MAX_UNPACKED_LEN: usize = crate::base::record::MAX_VALUE_LEN;
/// A byte of LZ4 expands to at most this many bytes.
const LZ4_MAX_EXPANSION: usize = 255;
/// A byte of zstd expands to at most this many bytes.
const ZSTD_MAX_EXPANSION: usize = (128 << 10) / 4;

/// The codec byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Stored unchanged.
    Raw = 0,
    /// LZ4.
    Lz4 = 1,
    /// zstd.
    Zstd = 2,
}

impl Codec {
    /// Decodes the byte on disk.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Codec> {
        match byte {
            0 => Some(Codec::Raw),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Whether `stored_len` bytes can decode to `len` bytes. Checked before `len` bytes are allocated.
    #[inline]
    pub fn can_hold(self, stored_len: usize, len: usize) -> bool {
        let expansion = match self {
            Codec::Raw => return stored_len == len,
            Codec::Lz4 => LZ4_MAX_EXPANSION,
            Codec::Zstd => ZSTD_MAX_EXPANSION,
        };
        len <= MAX_UNPACKED_LEN && len <= stored_len.saturating_mul(expansion)
    }

    /// The `len` bytes that were encoded, or why they cannot be decoded; an error if there is no memory for them, or this
    /// build lacks the codec.
    pub fn unpack(self, stored: Bytes, len: usize) -> Answer<Result<Bytes, &'static str>> {
        if !self.can_hold(stored.len(), len) {
            return Ok(Err("an unpacked length that cannot be"));
        }
        let unpacked = match self {
            Codec::Raw => return Ok(Ok(stored)),
            Codec::Lz4 => {
                let mut out = zeros(len)?;
                decompress_into(&stored, &mut out)
                    .is_ok_and(|found| found == len)
                    .then_some(out)
            }
            Codec::Zstd => zstd_frame::unpack(&stored, len)?,
        };
        let unpacked = unpacked.ok_or("packed bytes cannot be unpacked");
        Ok(unpacked.map(Bytes::from))
    }
}

/// Compresses, and reuses its memory.
#[derive(Default)]
pub struct Packer {
    lz4: CompressTable,
    zstd: zstd_frame::Packer,
    packed: Vec<u8>,
}

impl Packer {
    /// The bytes to store, and their codec: compressed only if that is requested and saves at least an eighth.
    pub fn pack<'a>(&'a mut self, compression: Compression, bytes: &'a [u8]) -> (Codec, &'a [u8]) {
        if bytes.len() > MAX_UNPACKED_LEN {
            return (Codec::Raw, bytes);
        }
        let (codec, len) = match compression {
            Compression::None => return (Codec::Raw, bytes),
            Compression::Lz4 => (Codec::Lz4, self.lz4(bytes)),
            Compression::Zstd => (Codec::Zstd, self.zstd.pack(bytes, &mut self.packed)),
        };
        match len {
            Some(len) if len <= bytes.len() - bytes.len() / 8 => (codec, &self.packed[..len]),
            _ => (Codec::Raw, bytes),
        }
    }

    fn lz4(&mut self, bytes: &[u8]) -> Option<usize> {
        let room = get_maximum_output_size(bytes.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        compress_into_with_table(bytes, &mut self.packed, &mut self.lz4).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKED: &[(Compression, Codec)] = &[
        (Compression::Lz4, Codec::Lz4),
        #[cfg(feature = "zstd")]
        (Compression::Zstd, Codec::Zstd),
    ];

    fn unpack(codec: Codec, stored: &[u8], len: usize) -> Result<Bytes, &'static str> {
        codec.unpack(Bytes::copy_from_slice(stored), len).unwrap()
    }

    #[test]
    fn packing_is_kept_only_where_it_pays() {
        let mut packer = Packer::default();
        let dense: Vec<u8> = (0..1_000u32)
            .map(|i| crate::base::hash::hash_key(&i.to_le_bytes()) as u8)
            .collect();
        for &(compression, expected) in PACKED {
            assert_eq!(packer.pack(compression, &dense).0, Codec::Raw);
            for len in [100, 4_000, 70_000, 300_000, 4_000] {
                let loose = vec![7; len];
                let (codec, packed) = packer.pack(compression, &loose);
                assert_eq!(codec, expected);
                assert_eq!(unpack(codec, packed, len).as_deref(), Ok(&loose[..]));
                for wrong in [0, 1, len - 1, len + 1, usize::MAX] {
                    assert!(unpack(codec, packed, wrong).is_err(), "{codec:?} {wrong}");
                }
                assert!(unpack(codec, &packed[..packed.len() - 1], len).is_err());
                assert_eq!(packer.pack(Compression::None, &loose).0, Codec::Raw);
            }
            assert_eq!(packer.pack(compression, &[]), (Codec::Raw, &[][..]));
        }
    }

    /// The best packing comes within a factor of two of the limit of [`Codec::can_hold`], and does not exceed it.
    #[test]
    fn no_packed_bytes_hold_more_than_is_taken_for_possible() {
        let loose = vec![0; 8 << 20];
        for &(compression, codec) in PACKED {
            let mut packer = Packer::default();
            let (found, packed) = packer.pack(compression, &loose);
            assert_eq!(found, codec);
            assert!(codec.can_hold(packed.len(), loose.len()));
            assert!(
                !codec.can_hold(packed.len() / 2, loose.len()),
                "{codec:?} is far off"
            );
        }
    }

    /// A frame of zstd that states another length, or none, or is behind another one, is not unpacked.
    #[cfg(feature = "zstd")]
    #[test]
    fn a_frame_states_its_length() {
        let loose = vec![7; 4_000];
        let mut packer = Packer::default();
        let packed = packer.pack(Compression::Zstd, &loose).1.to_vec();
        assert!(unpack(Codec::Zstd, &packed, loose.len()).is_ok());
        // Two bytes behind the magic number and the descriptor: the length less 256.
        assert_eq!(packed[4] >> 6, 1, "the frame's length has two bytes");
        assert_eq!(packed[5..7], (4_000u16 - 256).to_le_bytes());
        let mut other = packed.clone();
        other[5] += 1;
        assert!(unpack(Codec::Zstd, &other, loose.len()).is_err());
        assert!(unpack(Codec::Zstd, &other, loose.len() + 1).is_err());
        let mut unstated = zstd::bulk::Compressor::new(1).unwrap();
        unstated.include_contentsize(false).unwrap();
        let unstated = unstated.compress(&loose).unwrap();
        assert!(unpack(Codec::Zstd, &unstated, loose.len()).is_err());
        let twice = [&packed[..], &packed[..]].concat();
        assert!(unpack(Codec::Zstd, &twice, loose.len()).is_err());
        assert!(unpack(Codec::Zstd, &twice, 2 * loose.len()).is_err());
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_build_without_zstd_says_so() {
        let error = Codec::Zstd.unpack(Bytes::from_static(&[0; 100]), 200);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("feature `zstd`"), "{error}");
        assert!(!error.is_corruption());
    }
}
