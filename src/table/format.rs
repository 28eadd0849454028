//! What the parts of a table share: checksums, the footer, and where a table came from.
//!
//! ```text
//! footer   0 identity u64 | 8 table u64 | 16 filter at u64 | 24 index at u64 | 32 statistics at u64
//!          40 filter crc32 u32 | 44 index crc32 u32 | 48 statistics crc32 u32 | 52 container u32
//!          56 version u32 | 60 crc32 of the 60 bytes before u32 | 64 magic, 8 bytes
//! ```
//!
//! The footer keeps its length, and its last sixteen bytes their meaning, in every version of the format.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::base::coding::{Malformed, Reader};
use crate::base::{ContainerId, Error, Result, TableId};
use crate::env::{ReadAt, fault_in, will_need};
use crate::expiry::Settings;

/// The version that this build writes and the newest that it reads.
pub const FORMAT_VERSION: u32 = 3;
/// Ends every table.
const MAGIC: &[u8; 8] = b"ebbtable";
/// Bytes of the footer.
pub const FOOTER_LEN: usize = 72;
/// Where the filter starts is a multiple of this, so that a filter block is in one cache line.
pub const FILTER_ALIGN: u64 = 64;
/// Longer values stand outside their block. Four pages: from there on, reading a record without its value saves I/O.
pub const LARGE_VALUE_LEN: usize = 16 << 10;

const CRC_AT: usize = 60;
const _: () = assert!(CRC_AT + 4 + MAGIC.len() == FOOTER_LEN);

/// The checksum of a part: of the table's identity, the part's offset, and its bytes.
pub fn checksum(identity: u64, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut crc = hasher(identity, offset);
    for part in parts {
        crc.update(part);
    }
    crc.finalize()
}

/// The same, before the bytes.
pub fn hasher(identity: u64, offset: u64) -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    let mut place = [0; 16];
    place[..8].copy_from_slice(&identity.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc.update(&place);
    crc
}

/// Who a table is, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// Its number, and so its name.
    pub id: TableId,
    /// Whose records it holds.
    pub container: ContainerId,
    /// A random number that no other table has; every checksum in the file starts from it.
    pub identity: u64,
    /// The container's settings when the table was written.
    pub settings: Settings,
}

/// The end of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// As in [`TableMeta`].
    pub identity: u64,
    /// As in [`TableMeta`].
    pub id: TableId,
    /// As in [`TableMeta`].
    pub container: ContainerId,
    /// Where the filter starts.
    pub filter_at: u64,
    /// Where the filter ends and the index starts.
    pub index_at: u64,
    /// Where the index ends and the statistics start, which end where the footer starts.
    pub statistics_at: u64,
    /// Of the filter.
    pub filter_crc: u32,
    /// Of the index.
    pub index_crc: u32,
    /// Of the statistics.
    pub statistics_crc: u32,
}

impl Footer {
    /// The picture in this file's head, and its checksum.
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

    /// Reads what [`Footer::encode`] wrote, then version and checksum.
    fn decode(reader: &mut Reader<'_>) -> std::result::Result<(Footer, u32, u32), Malformed> {
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

    /// The footer of a file of `len` bytes whose last ones `tail` are, with its checksum: whole, of this version, its
    /// parts inside the file.
    pub fn read(tail: &[u8], len: u64, path: &Path) -> Result<(Footer, u32)> {
        let at = len.saturating_sub(FOOTER_LEN as u64);
        let fault = |what: &str| Error::corruption(path, at, what);
        if tail.len() < FOOTER_LEN || !tail.ends_with(MAGIC) {
            return Err(fault("no table ends here"));
        }
        let (footer, version, crc) =
            Footer::decode(&mut Reader::new(tail)).map_err(|bad| fault(bad.what))?;
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

/// More than most machines have threads that read at the same moment.
const SHARES: usize = 8;

/// The same bytes, several times: each has a count of its own, on a cache line of its own. Who takes a value takes a count,
/// and threads that took it from one would wait for each other.
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

    /// That of this thread.
    #[inline]
    fn own(&self) -> &Bytes {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARES);
        &self.0[OWN.with(|own| *own)]
    }
}

/// How a table's bytes are gone to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Here and there: what is not in memory is read alone.
    Random,
    /// One after the other and far: the system reads ahead.
    Sequential,
}

/// Where a table's bytes are. Most are in maps: a box would be one more miss of the caches for each get.
#[allow(clippy::large_enum_variant)]
pub enum Source {
    /// In memory, or as if they were.
    Map {
        /// For random access.
        random: Shares,
        /// For sequential access.
        sequential: Shares,
    },
    /// In a file of so many bytes.
    File(Box<dyn ReadAt>, u64),
}

impl Source {
    /// The same bytes twice: for random and for sequential access.
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

/// A table's bytes, and what it takes to check them and to say where they are wrong.
pub struct Stored {
    /// The whole file.
    pub source: Source,
    /// For errors.
    pub path: PathBuf,
    /// Where the checksums start from.
    pub identity: u64,
}

impl Stored {
    /// An error that points into the file.
    #[cold]
    pub fn fault(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, what)
    }

    /// All bytes, if they need not be read one by one.
    #[inline]
    pub fn map(&self, access: Access) -> Option<&Bytes> {
        match (&self.source, access) {
            (Source::Map { random, .. }, Access::Random) => Some(random.own()),
            (Source::Map { sequential, .. }, Access::Sequential) => Some(sequential.own()),
            (Source::File(..), _) => None,
        }
    }

    /// The bytes of a range that was checked to lie inside the file; of a map, not to be looked at before
    /// [`Stored::touch`].
    pub fn view(&self, range: &Range<u64>, access: Access) -> Result<Bytes> {
        if let Some(map) = self.map(access) {
            return Ok(map.slice(range.start as usize..range.end as usize));
        }
        match &self.source {
            Source::File(file, _) => file.read_at(range.start, (range.end - range.start) as usize),
            Source::Map { .. } => unreachable!("it has bytes"),
        }
    }

    /// Before bytes of a view are looked at for the first time: what the device cannot read is an error.
    pub fn touch(&self, bytes: &[u8]) -> Result<()> {
        match self.source {
            Source::Map { .. } => {
                fault_in(bytes).map_err(|error| Error::io("read", &self.path, error))
            }
            Source::File(..) => Ok(()),
        }
    }

    /// The bytes of a range that was checked to lie inside the file.
    pub fn part(&self, range: &Range<u64>, access: Access) -> Result<Bytes> {
        let bytes = self.view(range, access)?;
        if access == Access::Random {
            // All pages at once, where each would be read when its turn comes.
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

    /// The bytes from `offset` on must have this checksum.
    pub fn check(&self, offset: u64, bytes: &[u8], crc: u32, what: &str) -> Result<()> {
        if checksum(self.identity, offset, &[bytes]) == crc {
            return Ok(());
        }
        Err(self.fault(offset, format!("the checksum of {what} does not match")))
    }
}
