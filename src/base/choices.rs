//! How tables are read and stored, as a user chooses it.

/// How the bytes of tables come into memory. The log and the manifest are always read by calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reads {
    /// Through memory maps: the fastest, and without a copy. Each part of a table is brought in by a call that reports a
    /// failing device as an error before it is touched for the first time; but what the system evicts later and cannot
    /// read again raises SIGBUS, which ends the process.
    #[default]
    Map,
    /// By `pread`: a failing device is always an error. Blocks go through the cache of decoded blocks
    /// (`Options::cache_bytes`); filters and indexes, 2 to 4 % of the tables, stay in memory from their first use on;
    /// every table holds a file descriptor.
    Pread,
}

/// How the blocks and the large values of a table are stored.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Compression {
    /// As they are: reads hand out the file's own bytes, without a copy.
    #[default]
    None,
    /// By LZ4, each block and each large value by itself, where that saves at least an eighth; decoded blocks are
    /// kept in the cache.
    Lz4,
}
