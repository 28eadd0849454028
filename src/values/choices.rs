//! Options for how tables are read and stored, and how much may be stored.

use std::fmt;
use std::str::FromStr;

use crate::base::{Error, Result};

/// How tables are read into memory. The log and the manifest are always read by calls.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
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

/// The compression of a table's blocks and large values. As text, with serde too: `none`, `lz4`, `zstd`.
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
    /// zstd at level 1, in the same way. It compressed items of JSON of 175 bytes to 26 % of their size, LZ4 to 42 %.
    /// Decompressing a block took 9 us, with LZ4 3 us; compressing took twice as long as with LZ4. Higher levels gained
    /// nothing in blocks of 8 KiB.
    ///
    /// Needs the feature `zstd`, which builds the C library. A build without it cannot create such a container, nor open a
    /// database that has one: [`Error::MissingFeature`].
    Zstd,
}

impl Compression {
    /// An error if this build lacks the feature that it needs; `what` names what uses it.
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

impl fmt::Display for Compression {
    /// `none`, `lz4`, `zstd`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        })
    }
}

impl FromStr for Compression {
    type Err = Error;

    /// Reads what `Display` writes; `zstd` also where the build cannot use it.
    fn from_str(text: &str) -> Result<Compression> {
        Ok(match text {
            "none" => Compression::None,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => return Err(Error::invalid("compression", text, "none, lz4 or zstd")),
        })
    }
}

/// The effect of a write that would bring live bytes over a [`Quota`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhenFull {
    /// It fails with [`Error::QuotaFull`], and nothing is written. Deletes are never refused, nor is what replaces an item
    /// by one that is no larger. Items that end make room by themselves.
    #[default]
    Refuse,
    /// It goes through: first the items that end soonest are expired, as by `Container::expire_before`, until some 3 %
    /// of the quota are free. Items without an end stay; where they alone fill the quota, the write is refused. It is
    /// refused too while no command can be given: the clock leads in doubt, or 64 commands stand because readers hold
    /// the items that they reach. Each time is a command: a later reader of `Container::expirations` is not told the
    /// ends before the 64 latest of them, however long these are kept.
    ExpireSoonest,
}

/// The most live bytes that a container, or all of a database, may hold: keys and values of the items that can be read,
/// and 16 for each, as `ContainerStats::live_bytes` estimates. Expired, deleted and replaced items do not count. Kept
/// within 5 % of the stored bytes, as all estimates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Quota {
    /// In bytes; from 1 to 2^62.
    pub max_live_bytes: u64,
    /// The effect of a write that would exceed it.
    pub when_full: WhenFull,
}

impl Quota {
    /// Whether it expires items where it is full.
    pub(crate) fn expires(&self) -> bool {
        self.when_full == WhenFull::ExpireSoonest
    }

    /// An error if it is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        match self.max_live_bytes {
            1..=MOST_LIVE_BYTES => Ok(()),
            bytes => {
                let allowed = "from 1 to 2^62 bytes";
                Err(Error::invalid("max_live_bytes", bytes.to_string(), allowed))
            }
        }
    }
}

/// More than there are; sums of it do not overflow.
const MOST_LIVE_BYTES: u64 = 1 << 62;
