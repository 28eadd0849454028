//! Writes a table from start to end.
//!
//! Records are added in order. A large value is written at once; records and small values are gathered until their
//! block is cut: before a new key that would take it beyond the target size, never between versions of one key. Writes
//! are about 256 KiB each, at ascending offsets. A table is valid once `finish` has returned; after an error, or if the
//! builder is dropped, the file is useless.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::hash::hash_key;
use crate::base::record::{MAX_KEY_LEN, MAX_VALUE_LEN, RecordRef, key_prefix};
use crate::base::{ContainerId, Error, Result, Seq, TableId};
use crate::env::File;
use crate::expiry::Census;
use crate::table::encode::block::Extent;
use crate::table::encode::block_builder::{Addition, BlockBuilder};
use crate::table::encode::codec::Packer;
use crate::table::encode::filter;
use crate::table::encode::format::{FILTER_ALIGN, Footer, LARGE_VALUE_LEN, TableMeta, checksum};
use crate::table::encode::index::IndexBuilder;
use crate::table::encode::statistics::Collector;
use crate::values::Compression;

/// Bytes gathered before a write. Writes of 64 KiB and more cost the same per byte (hotpaths.md, section B).
const CHUNK_LEN: usize = 256 << 10;

/// The size of a page of the index, in blocks: 8 KiB with blocks of the usual size. Such a page has some ninety rows; a
/// search in it takes as many steps as one among the pages of a table of 64 MiB, and its checksum takes a microsecond.
const INDEX_PAGE_BLOCKS: usize = 1;

/// Options for writing tables.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// The target size of a block before compression, in bytes, at least 64. 8 KiB: larger blocks make gets that are
    /// not in memory read more, smaller ones make the index larger.
    pub block_bytes: usize,
    /// The compression of blocks and large values.
    pub compression: Compression,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_bytes: 8 << 10,
            compression: Compression::None,
        }
    }
}

/// A complete table, durable except for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTable {
    /// Its id.
    pub id: TableId,
    /// The container of its records.
    pub container: ContainerId,
    /// Bytes of the file.
    pub len: u64,
    /// The checksum of its footer, which covers everything that is checked at opening.
    pub crc: u32,
    /// The census of all records.
    pub census: Census,
}

/// A table being written.
pub struct TableBuilder {
    out: Output,
    options: TableOptions,
    meta: TableMeta,
    block: BlockBuilder,
    packer: Packer,
    index: IndexBuilder,
    collector: Collector,
    /// The hash of each distinct key.
    hashes: Vec<u64>,
    last_prefix: u64,
    last_seq: Seq,
}

/// The file, and the bytes that are not written yet.
struct Output {
    file: Box<dyn File>,
    pending: Vec<u8>,
    written: u64,
}

impl Output {
    /// The offset of the next byte.
    fn end(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= CHUNK_LEN {
            self.flush()?;
            return self.write(bytes);
        }
        self.pending.extend_from_slice(bytes);
        self.flush_chunk()
    }

    fn flush_chunk(&mut self) -> Result<()> {
        if self.pending.len() < CHUNK_LEN {
            Ok(())
        } else {
            self.flush()
        }
    }

    fn flush(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        self.write(&pending)?;
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    /// Writes about 256 KiB at a time and starts writeback at once: a table written back only by its own sync is a
    /// burst that delays the log's syncs (docs/decisions/pacing.md).
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(2 * CHUNK_LEN) {
            let (at, len) = (self.written, chunk.len() as u64);
            self.file.write_at(at, chunk)?;
            self.file.start_writing(at, len);
            self.written += len;
        }
        Ok(())
    }

    /// Appends a part of the table; returns its offset and checksum.
    fn append_part(&mut self, identity: u64, bytes: &[u8]) -> Result<(u64, u32)> {
        let at = self.end();
        self.append(bytes)?;
        Ok((at, checksum(identity, at, &[bytes])))
    }
}

impl TableBuilder {
    /// An empty table, written to `file` from its start.
    pub fn new(file: Box<dyn File>, options: TableOptions, meta: TableMeta) -> TableBuilder {
        assert!(options.block_bytes >= 64, "blocks have 64 bytes and more");
        TableBuilder {
            out: Output {
                file,
                pending: Vec::with_capacity(CHUNK_LEN + options.block_bytes),
                written: 0,
            },
            options,
            meta,
            block: BlockBuilder::default(),
            packer: Packer::default(),
            index: IndexBuilder::new(INDEX_PAGE_BLOCKS * options.block_bytes),
            collector: Collector::default(),
            hashes: Vec::new(),
            last_prefix: 0,
            last_seq: Seq(0),
        }
    }

    /// Makes the sample include every record of the keys with these hashes, because estimates of hidden records need
    /// them. Called before the first record.
    pub fn with_must_sample(mut self, hashes: Arc<HashSet<u64>>) -> TableBuilder {
        self.collector = Collector::with_must_sample(hashes);
        self
    }

    /// Adds a record, which must be after all others in the order of records.
    pub fn add(&mut self, record: &RecordRef<'_>, value: &[u8]) -> Result<()> {
        assert_eq!(record.value_len, value.len(), "a record is of its value");
        let fits = record.key.len() <= MAX_KEY_LEN && value.len() <= MAX_VALUE_LEN;
        assert!(fits, "keys and values have passed the limits of the engine");
        let (hash, is_new) = self.admit(record)?;
        let extent;
        let addition = if value.len() > LARGE_VALUE_LEN {
            extent = self.write_large(value)?;
            Addition::Large(&extent)
        } else {
            Addition::Inline(value)
        };
        self.block.push(record, hash, &addition);
        self.collector.add(record, hash, is_new);
        self.last_seq = record.header.seq;
        Ok(())
    }

    /// Cuts the block before a new key if it is full; returns the hash of the record's key, and whether it is new.
    #[inline]
    fn admit(&mut self, record: &RecordRef<'_>) -> Result<(u64, bool)> {
        let prefix = key_prefix(record.key);
        let inline_len = if record.value_len > LARGE_VALUE_LEN {
            0
        } else {
            record.value_len
        };
        let len = record.key.len() + inline_len;
        // Mostly the first bytes tell, without a look at the last key.
        if prefix <= self.last_prefix && self.last_key() >= record.key {
            let hash = self.admit_version(record, len)?;
            return Ok((hash, false));
        }
        assert!(!record.key.is_empty(), "a key has a byte");
        if !self.block.is_empty() && self.block.len() + len > self.options.block_bytes {
            self.cut_block()?;
        }
        let hash = hash_key(record.key);
        self.hashes.push(hash);
        self.last_prefix = prefix;
        Ok((hash, true))
    }

    /// Returns the hash of the last key, which is the record's.
    fn admit_version(&mut self, record: &RecordRef<'_>, len: usize) -> Result<u64> {
        assert!(self.last_key() == record.key, "keys rise");
        let goes_down = record.header.seq < self.last_seq;
        assert!(goes_down, "versions of a key go down");
        if self.block.is_full(len) {
            return Err(Error::invalid(
                "a size of all versions of one key",
                "over 3.7 GiB",
                "less in one table; drop the snapshots that keep old versions",
            ));
        }
        let hash = self.hashes.last();
        Ok(*hash.expect("a key that is not new has a hash"))
    }

    fn write_large(&mut self, value: &[u8]) -> Result<Extent> {
        let (codec, stored) = self.packer.pack(self.options.compression, value);
        let (offset, crc) = self.out.append_part(self.meta.identity, stored)?;
        Ok(Extent {
            number: self.collector.add_large_value(),
            offset,
            stored_len: stored.len() as u64,
            codec,
            crc,
        })
    }

    fn cut_block(&mut self) -> Result<()> {
        let (block, ranges) = (&self.block, self.block.ranges());
        let census = block.census(&ranges);
        let first_key = block.first_key().to_vec();
        self.collector.add_expiries(&census, block.records());
        self.collector.add_block(&census, block.last_key());
        let at = self.out.end();
        self.block.cut(
            &ranges,
            (&mut self.packer, self.options.compression),
            (self.meta.identity, at),
            &mut self.out.pending,
        );
        let len = (self.out.end() - at) as usize;
        self.index
            .push(at, len, (&first_key, self.collector.last_key()), &census);
        self.out.flush_chunk()
    }

    /// The approximate bytes of data so far, by which tables are cut.
    pub fn bytes(&self) -> u64 {
        self.out.end() + self.block.len() as u64
    }

    /// The key of the last record; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        if self.block.is_empty() {
            self.collector.last_key()
        } else {
            self.block.last_key()
        }
    }

    /// Whether no record was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Writes what follows the data, and syncs the file; the caller syncs its name in the folder. At least one record
    /// was added.
    pub fn finish(mut self) -> Result<FinishedTable> {
        assert!(!self.is_empty(), "a table has a record");
        self.cut_block()?;
        let TableMeta {
            id,
            container,
            identity,
            settings,
        } = self.meta;
        let mut out = self.out;
        let padding = out.end().next_multiple_of(FILTER_ALIGN) - out.end();
        out.append(&[0; FILTER_ALIGN as usize][..padding as usize])?;

        let (filter_at, filter_crc) = out.append_part(identity, &filter::build(&self.hashes))?;
        let at = out.end();
        let index = self
            .index
            .finish(|offset, bytes| checksum(identity, at + offset, &[bytes]));
        let (index_at, index_crc) = out.append_part(identity, &index)?;
        let statistics = self.collector.finish(settings);
        let mut part = Vec::new();
        statistics.encode(&mut part);
        let (statistics_at, statistics_crc) = out.append_part(identity, &part)?;
        let footer = Footer {
            identity,
            id,
            container,
            filter_at,
            index_at,
            statistics_at,
            filter_crc,
            index_crc,
            statistics_crc,
        };
        let (bytes, crc) = footer.encode();
        out.append(&bytes)?;
        out.flush()?;
        out.file.truncate(out.written)?;
        out.file.sync()?;
        Ok(FinishedTable {
            id,
            container,
            len: out.written,
            crc,
            census: statistics.census,
        })
    }
}
