//! The shared parts of a table's format: checksums, the footer, and the origin of a table.
//!
//! ```text
//! footer   0 identity u64 | 8 table u64 | 16 filter at u64 | 24 index at u64 | 32 statistics at u64
//!          40 filter crc32 u32 | 44 index crc32 u32 | 48 statistics crc32 u32 | 52 container u32
//!          56 version u32 | 60 crc32 of the 60 bytes before u32 | 64 magic, 8 bytes
//! ```
//!
//! The length of the footer, and the meaning of its last sixteen bytes, are the same in every version of the format.

use std::path::Path;

use crate::base::coding::{ByteReader, Malformed};
use crate::base::{ContainerId, Error, Result, TableId};
use crate::expiry::Settings;

/// The version that this build writes and the newest that it reads.
pub const FORMAT_VERSION: u32 = 3;
/// Ends every table.
const MAGIC: &[u8; 8] = b"ebbtable";
/// Bytes of the footer.
pub const FOOTER_LEN: usize = 72;
/// The filter's offset is a multiple of this, so that a filter block is in one cache line.
pub const FILTER_ALIGN: u64 = 64;
/// Longer values are stored outside their block. Four pages: from this size on, reading a record without its value
/// saves I/O.
pub const LARGE_VALUE_LEN: usize = 16 << 10;

const CRC_AT: usize = 60;
const _: () = assert!(CRC_AT + 4 + MAGIC.len() == FOOTER_LEN);

/// The checksum of a part: over the table's identity, the part's offset, and its bytes.
pub fn checksum(identity: u64, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut crc = hasher(identity, offset);
    for part in parts {
        crc.update(part);
    }
    crc.finalize()
}

/// The checksum so far, before the bytes.
pub fn hasher(identity: u64, offset: u64) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    let mut place = [0; 16];
    place[..8].copy_from_slice(&identity.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc.update(&place);
    crc
}

/// The identity and origin of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Its id, and so its name.
    pub id: TableId,
    /// The container of its records.
    pub container: ContainerId,
    /// A random number that no other table has; every checksum in the file includes it.
    pub identity: u64,
    /// The container's settings when the table was written.
    pub settings: Settings,
}

/// The footer of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// As in [`TableMeta`].
    pub identity: u64,
    /// As in [`TableMeta`].
    pub id: TableId,
    /// As in [`TableMeta`].
    pub container: ContainerId,
    /// The offset of the filter.
    pub filter_at: u64,
    /// The end of the filter and offset of the index.
    pub index_at: u64,
    /// The end of the index and offset of the statistics, which end at the footer.
    pub statistics_at: u64,
    /// The checksum of the filter.
    pub filter_crc: u32,
    /// The checksum of the index.
    pub index_crc: u32,
    /// The checksum of the statistics.
    pub statistics_crc: u32,
}

impl Footer {
    /// The bytes shown in this file's head, and their checksum.
    pub fn encode(&self) -> ([u8; FOOTER_LEN], u32) {
        let mut out = Vec::with_capacity(FOOTER_LEN);
        for number in [
            self.identity,
            self.id.0,
            self.filter_at,
            self.index_at,
            self.statistics_at,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [
            self.filter_crc,
            self.index_crc,
            self.statistics_crc,
            self.container.0,
            FORMAT_VERSION,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(MAGIC);
        (out.try_into().expect("the footer's length"), crc)
    }

    /// Decodes the footer, then version and checksum.
    fn decode(reader: &mut ByteReader<'_>) -> std::result::Result<(Footer, u32, u32), Malformed> {
        let (identity, id) = (reader.u64()?, TableId(reader.u64()?));
        let (filter_at, index_at, statistics_at) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (filter_crc, index_crc, statistics_crc) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let footer = Footer {
            identity,
            id,
            container: ContainerId(reader.u32()?),
            filter_at,
            index_at,
            statistics_at,
            filter_crc,
            index_crc,
            statistics_crc,
        };
        Ok((footer, reader.u32()?, reader.u32()?))
    }

    /// The footer of a file of `len` bytes that ends in `tail`, and its checksum: complete, of this version, its parts
    /// inside the file.
    pub fn read(tail: &[u8], len: u64, path: &Path) -> Result<(Footer, u32)> {
        let at = len.saturating_sub(FOOTER_LEN as u64);
        let fault = |what: &str| Error::corruption(path, at, what);
        if tail.len() < FOOTER_LEN || !tail.ends_with(MAGIC) {
            return Err(fault("no table ends here"));
        }
        let (footer, version, crc) =
            Footer::decode(&mut ByteReader::new(tail)).map_err(|bad| fault(bad.what))?;
        if crc32fast::hash(&tail[..CRC_AT]) != crc {
            return Err(fault("the footer's checksum does not match"));
        }
        if version != FORMAT_VERSION {
            return Err(Error::UnsupportedFormat {
                path: path.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let ascending = footer.filter_at < footer.index_at
            && footer.index_at < footer.statistics_at
            && footer.statistics_at < at;
        if !ascending || !footer.filter_at.is_multiple_of(FILTER_ALIGN) {
            return Err(fault("the footer's parts do not follow each other"));
        }
        Ok((footer, crc))
    }
}
