//! The shared parts of a table's format: checksums, the footer, and the origin of a table.
//!
//! ```text
//! footer   0 identity u64 | 8 table u64 | 16 filter at u64 | 24 index at u64 | 32 statistics at u64
//!          40 filter crc32 u32 | 44 index crc32 u32 | 48 statistics crc32 u32 | 52 container u32
//!          56 version u32 | 60 crc32 of the 60 bytes before u32 | 64 magic, 8 bytes
//! ```
//!
//! The length of the footer, and the meaning of its last sixteen bytes, are the same in every version of the format.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::base::coding::{ByteReader, Malformed};
use crate::base::{ContainerId, Error, Result, TableId};
use crate::env::{ReadAt, fault_in, will_need};
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

/// More than the threads that usually read at the same moment.
const SHARES: usize = 8;

/// The same bytes, several times, each with its own reference count on its own cache line. Taking a value increments a
/// count, and threads that shared one would wait for each other.
pub struct Shares([Bytes; SHARES]);

#[repr(align(128))]
struct Share(Bytes);

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Shares {
    fn new(bytes: &Bytes) -> Shares {
        Shares(std::array::from_fn(|_| {
            Bytes::from_owner(Share(bytes.clone()))
        }))
    }

    /// The one for this thread.
    #[inline]
    fn own(&self) -> &Bytes {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARES);
        &self.0[OWN.with(|own| *own)]
    }
}

/// How a table's bytes are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// In random order: what is not in memory is read alone.
    Random,
    /// In order, over long ranges: the system reads ahead.
    Sequential,
}

/// The bytes of a table. Mostly a map: a box would add a cache miss to each get.
#[allow(clippy::large_enum_variant)]
pub enum Source {
    /// Mapped, or in memory.
    Map {
        /// For random access.
        random: Shares,
        /// For sequential access.
        sequential: Shares,
    },
    /// A file of this many bytes.
    File(Box<dyn ReadAt>, u64),
}

impl Source {
    /// The same bytes, mapped for random and for sequential access.
    pub fn mapped(random: &Bytes, sequential: &Bytes) -> Source {
        Source::Map {
            random: Shares::new(random),
            sequential: Shares::new(sequential),
        }
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        match self {
            Source::Map { random, .. } => random.0[0].len() as u64,
            Source::File(_, len) => *len,
        }
    }
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Source {
        Source::mapped(&bytes, &bytes)
    }
}

/// A table's bytes, and what is needed to check them and to report where they are wrong.
pub struct Stored {
    /// The whole file.
    pub source: Source,
    /// For errors.
    pub path: PathBuf,
    /// The identity that checksums include.
    pub identity: u64,
}

impl Stored {
    /// An error with this file and an offset.
    #[cold]
    pub fn fault(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// All bytes, if they are mapped or in memory.
    #[inline]
    pub fn map(&self, access: Access) -> Option<&Bytes> {
        match (&self.source, access) {
            (Source::Map { random, .. }, Access::Random) => Some(random.own()),
            (Source::Map { sequential, .. }, Access::Sequential) => Some(sequential.own()),
            (Source::File(..), _) => None,
        }
    }

    /// The bytes of a range inside the file. Those of a map must be passed to [`Stored::touch`] before they are read.
    pub fn view(&self, range: &Range<u64>, access: Access) -> Result<Bytes> {
        if let Some(map) = self.map(access) {
            return Ok(map.slice(range.start as usize..range.end as usize));
        }
        match &self.source {
            Source::File(file, _) => file.read_at(range.start, (range.end - range.start) as usize),
            Source::Map { .. } => unreachable!("it has bytes"),
        }
    }

    /// Called before bytes of a view are read for the first time: an I/O error of the device becomes an error.
    pub fn touch(&self, bytes: &[u8]) -> Result<()> {
        match self.source {
            Source::Map { .. } => {
                fault_in(bytes).map_err(|error| Error::io("read", &self.path, error))
            }
            Source::File(..) => Ok(()),
        }
    }

    /// The bytes of a range inside the file.
    pub fn part(&self, range: &Range<u64>, access: Access) -> Result<Bytes> {
        let bytes = self.view(range, access)?;
        if access == Access::Random {
            // All pages at once, instead of one at a time as they are touched.
            will_need(&bytes);
        }
        self.touch(&bytes)?;
        Ok(bytes)
    }

    /// The footer, and its checksum.
    pub fn footer(&self) -> Result<(Footer, u32)> {
        let len = self.source.len();
        let tail = self.part(
            &(len.saturating_sub(FOOTER_LEN as u64)..len),
            Access::Random,
        )?;
        Footer::read(&tail, len, &self.path)
    }

    /// Checks the checksum of the bytes at `offset`.
    pub fn check(&self, offset: u64, bytes: &[u8], crc: u32, what: &str) -> Result<()> {
        if checksum(self.identity, offset, &[bytes]) == crc {
            return Ok(());
        }
        Err(self.fault(offset, format!("the checksum of {what} does not match")))
    }
}
