//! The bytes of a table: where they are read from, and the check of them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::base::{Error, Result};
use crate::env::{ReadAt, fault_in, will_need};
use crate::table::encode::format::{FOOTER_LEN, Footer, checksum};

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
