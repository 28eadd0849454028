//! Options for how tables are read and stored.

use crate::base::{Error, Result};

/// How tables are read into memory. The log and the manifest are always read by calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reads {
    /// Through memory maps: the fastest way, without a copy. Before a part of a table is used for the first time, a
    /// call reads it in and reports a failing device as an error; but if the system evicts it later and cannot read it
    /// again, the process gets SIGBUS, which ends it.
    #[default]
    Map,
    /// By `pread`: a failing device is always an error. Blocks go through the block cache (`Options::cache_bytes`);
    /// filters and indexes, 2 to 4 % of the tables, stay in memory from their first use on; every table holds a file
    /// descriptor.
    Pread,
}

/// The compression of a table's blocks and large values.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Compression {
    /// None: reads return the file's own bytes, without a copy.
    #[default]
    None,
    /// LZ4, for each block and each large value by itself, where it saves at least an eighth; decompressed blocks are
    /// cached.
    Lz4,
    /// As [`Compression::Lz4`], by zstd at level 1. Items of JSON of 175 bytes took 26 % of their room, and
    /// 42 % with LZ4; unpacking a block took 9 us where LZ4 took 3 us, and packing it twice as long. Higher levels gained
    /// nothing in blocks of 8 KiB.
    ///
    /// With the feature `zstd`, which builds the C library. A build without it opens no database that has such a container,
    /// and makes none: [`Error::MissingFeature`].
    Zstd,
}

impl Compression {
    /// An error where this build lacks what it needs; `what` has it.
    pub(crate) fn check(self, what: impl FnOnce() -> String) -> Result<()> {
        match self {
            Compression::Zstd if !cfg!(feature = "zstd") => Err(Error::MissingFeature {
                feature: "zstd",
                what: what(),
            }),
            _ => Ok(()),
        }
    }
}
