//! The block cache: decompressed blocks, and single records.
//!
//! ```text
//! entry     its number                   its bytes
//! block     the block's                  the body
//! record    the key's hash | 1 << 63     container u32 LE | length of the key u32 LE | header (base/record.rs) | key | value
//! ```
//!
//! A record is the newest version of its key in a table. A get that asks this table takes it in place of the block, and
//! judges it as if the block had been read; so it is used exactly where the table is. Records are there only where memory
//! is short (src/table/read/lookup.rs): as many bytes of records answer more gets than pages of the files do.
//!
//! Both kinds share the bound in bytes. A table has a part of its own each time that it is opened, and its file does
//! not change, so no entry becomes stale. (By the table's id they would: when an older folder is put back under a
//! follower, a file takes the place of another of its id.) But a cached record's bytes must not outlive the item, nor
//! stay where they are no longer of use: [`sweep`] drops those of expired items, and all records if memory was not short for
//! any get since the last sweep.
//!
//! [`sweep`]: BlockCache::sweep

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::base::coding::{ByteReader, Malformed};
use crate::base::record::{Base, Header};
use crate::base::{ContainerId, Timestamp};
use crate::env::Fs;
use crate::table::read::direct_reads::DirectReads;

/// The bytes of an entry besides its own: key, handle, and its share of the map, rounded up.
const ENTRY_OVERHEAD: u64 = 128;

/// The number of a part, and a number in it.
type Key = (u64, u64);

/// In the numbers of records. No table has as many blocks.
const RECORD: u64 = 1 << 63;

/// A record's number.
fn record_number(hash: u64) -> u64 {
    hash | RECORD
}

/// An open table's part of the cache.
pub struct TableCache {
    all: Arc<BlockCache>,
    number: u64,
}

impl TableCache {
    /// The part of a table that is being opened.
    pub fn new(all: Arc<BlockCache>) -> TableCache {
        let number = all.parts.fetch_add(1, Ordering::Relaxed);
        TableCache { all, number }
    }

    /// [`BlockCache::direct_reads`].
    pub fn direct_reads(&self) -> Option<&DirectReads> {
        self.all.direct_reads()
    }

    /// The body of a block, if it is cached.
    pub fn get(&self, block: u64) -> Option<Bytes> {
        self.all.entries.get(&(self.number, block))
    }

    /// Caches the body of a block.
    pub fn insert(&self, block: u64, body: Bytes) {
        self.all.entries.insert((self.number, block), body);
    }

    /// Whether there may be records.
    #[inline(always)]
    pub fn has_records(&self) -> bool {
        self.all.has_records()
    }

    /// Memory is short: records stay until the sweep after the next one.
    pub fn note_use(&self) {
        if self.all.takes_records {
            self.all.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// The newest version of a key in the table, if it is cached. `hash` is the key's.
    pub fn record(&self, hash: u64, key: &[u8]) -> Option<CachedRecord> {
        if !self.has_records() {
            return None;
        }
        let bytes = self.all.entries.get(&(self.number, record_number(hash)))?;
        let (_, header, its_key, value_at) = parse(&bytes).expect(OWN);
        (its_key == key).then(|| CachedRecord {
            header,
            value: bytes.slice(value_at..),
        })
    }

    /// Caches the newest version of a key in the table, which is of this container.
    pub fn insert_record(
        &self,
        container: ContainerId,
        (hash, key): (u64, &[u8]),
        header: &Header,
        value: &[u8],
    ) {
        if !self.all.takes_records {
            return;
        }
        let mut bytes = Vec::with_capacity(40 + key.len() + value.len());
        bytes.extend(container.0.to_le_bytes());
        bytes.extend((key.len() as u32).to_le_bytes());
        header.encode(Base::default(), &mut bytes);
        bytes.extend(key);
        bytes.extend(value);
        let bytes = Bytes::from(bytes.into_boxed_slice());
        let entries = &self.all.entries;
        entries.insert((self.number, record_number(hash)), bytes);
        self.all.has_records.store(true, Ordering::Release);
    }
}

/// A cache shared by the tables of a database and bounded in bytes.
pub struct BlockCache {
    /// How many parts there were.
    parts: AtomicU64,
    entries: Cache<Key, Bytes, Weight, BuildHasherDefault<Mix>>,
    /// Whether records are cached: somebody sweeps.
    takes_records: bool,
    /// Whether anything of a table stays trusted between two reads.
    trusts_memory: bool,
    direct_reads: Option<DirectReads>,
    /// Whether a record was cached since the last sweep that left none.
    has_records: AtomicBool,
    /// Whether a record was looked for where memory was short since the last sweep.
    is_used: AtomicBool,
    /// When the last sweep was.
    swept_at: AtomicU64,
}

/// A cached record.
pub struct CachedRecord {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    /// Its value.
    pub value: Bytes,
}

/// The container, the header and the key of a cached record, and where its value begins.
fn parse(bytes: &[u8]) -> Result<(ContainerId, Header, &[u8], usize), Malformed> {
    let mut reader = ByteReader::new(bytes);
    let (container, key_len) = (ContainerId(reader.u32()?), reader.u32()?);
    let header = Header::decode(Base::default(), &mut reader)?;
    let key = reader.bytes(key_len as usize)?;
    Ok((container, header, key, reader.offset()))
}

/// Cached bytes were encoded by this process.
const OWN: &str = "a cached record is whole";

impl BlockCache {
    /// A cache of up to `bytes` bytes, without records.
    pub fn new(bytes: usize) -> BlockCache {
        let options = OptionsBuilder::new()
            .weight_capacity(bytes as u64)
            .estimated_items_capacity((bytes / 4096).max(16))
            .build()
            .expect("both capacities are given");
        BlockCache {
            parts: AtomicU64::new(0),
            entries: Cache::with_options(
                options,
                Weight,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            ),
            takes_records: false,
            trusts_memory: true,
            direct_reads: None,
            has_records: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            swept_at: AtomicU64::new(0),
        }
    }

    /// The same with records, which gets of evicted blocks fill; the caller calls [`BlockCache::sweep`].
    pub fn with_records(bytes: usize, fs: Arc<dyn Fs>) -> BlockCache {
        BlockCache {
            takes_records: true,
            direct_reads: Some(DirectReads::new(fs, bytes > 0)),
            ..BlockCache::new(bytes)
        }
    }

    /// None, for readers that take no bit from memory on trust: nothing is cached, and a block that was checked is checked again.
    pub fn none(fs: Arc<dyn Fs>) -> BlockCache {
        BlockCache {
            trusts_memory: false,
            direct_reads: Some(DirectReads::new(fs, false)),
            ..BlockCache::new(0)
        }
    }

    /// The direct reads of tables, if there are such.
    pub(in crate::table) fn direct_reads(&self) -> Option<&DirectReads> {
        self.direct_reads.as_ref()
    }

    pub(in crate::table) fn trusts_memory(&self) -> bool {
        self.trusts_memory
    }

    /// Whether there may be records.
    pub fn has_records(&self) -> bool {
        self.has_records.load(Ordering::Acquire)
    }

    /// Whether the last sweep was an `interval` ago.
    pub fn is_sweep_due(&self, now: Timestamp, interval: Duration) -> bool {
        let swept_at = Timestamp(self.swept_at.load(Ordering::Relaxed));
        now < swept_at || u128::from(now.since(swept_at)) >= interval.as_millis()
    }

    /// Drops the records that `is_dead`, and all if memory was not short for a get since the last sweep.
    pub fn sweep(&self, now: Timestamp, is_dead: impl Fn(ContainerId, &Header) -> bool) {
        self.swept_at.store(now.0, Ordering::Relaxed);
        self.has_records.store(false, Ordering::Release);
        let is_used = self.is_used.swap(false, Ordering::Relaxed);
        let has_left = AtomicBool::new(false);
        self.entries.retain(|(_, number), bytes| {
            if number & RECORD == 0 {
                return true;
            }
            let (container, header, _, _) = parse(bytes).expect(OWN);
            let stays = is_used && !is_dead(container, &header);
            has_left.fetch_or(stays, Ordering::Relaxed);
            stays
        });
        if has_left.into_inner() {
            self.has_records.store(true, Ordering::Release);
        }
    }

    /// Bytes held, including the overhead of entries.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Bytes> for Weight {
    fn weight(&self, _: &Key, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + ENTRY_OVERHEAD
    }
}

/// Hashes the two numbers of a key by one folded multiplication each; no adversary chooses them.
#[derive(Clone, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The odd number nearest to 2^64 over the golden ratio.
        let product = u128::from(self.0 ^ number).wrapping_add(1) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::base::record::Kind;
    use crate::base::{ItemTtl, Seq};
    use crate::env::MemoryDisk;

    fn with_records(bytes: usize) -> BlockCache {
        BlockCache::with_records(bytes, Arc::new(MemoryDisk::new(Path::new("/"))))
    }

    #[test]
    fn a_cache_stays_within_its_bytes() {
        let cache = Arc::new(BlockCache::new(64 << 10));
        let [table, other] = [0, 1].map(|_| TableCache::new(cache.clone()));
        for block in 0..1_000 {
            table.insert(block, Bytes::from(vec![block as u8; 4096]));
        }
        assert!(cache.bytes() <= 64 << 10);
        let kept = (0..1_000).filter(|&block| table.get(block).is_some());
        assert!(kept.count() >= 8);
        assert_eq!(other.get(999), None);
    }

    fn put(seq: u64) -> Header {
        Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(seq),
            ttl: ItemTtl::Millis(10),
        }
    }

    #[test]
    fn a_record_is_that_of_its_key_and_table() {
        let cache = Arc::new(with_records(64 << 10));
        let [table, other] = [0, 1].map(|_| TableCache::new(cache.clone()));
        let container = ContainerId(3);
        table.insert(7, Bytes::from_static(b"a block"));
        table.insert_record(container, (7, b"key"), &put(9), b"value");
        let found = table.record(7, b"key").unwrap();
        assert_eq!((found.header, &found.value[..]), (put(9), &b"value"[..]));
        assert!(table.record(7, b"another of this hash").is_none());
        assert!(other.record(7, b"key").is_none());
        assert_eq!(table.get(7).unwrap(), "a block");
    }

    #[test]
    fn records_stay_within_the_bytes() {
        let cache = Arc::new(with_records(64 << 10));
        let table = TableCache::new(cache.clone());
        for hash in 0..10_000 {
            let container = ContainerId(3);
            table.insert_record(container, (hash, b"key"), &put(1), &[7; 100]);
            assert!(cache.bytes() <= 64 << 10);
        }
        let kept = (0..10_000).filter(|&hash| table.record(hash, b"key").is_some());
        assert!(kept.count() > 150);
    }

    #[test]
    fn a_sweep_drops_what_is_dead_and_all_that_is_not_used() {
        let cache = Arc::new(with_records(64 << 10));
        let table = TableCache::new(cache.clone());
        let (second, minute) = (Duration::from_secs(1), Timestamp(60_000));
        assert!(!cache.has_records(), "there is nothing");
        let get = |hash| {
            table.note_use();
            table.record(hash, b"key").is_some()
        };
        for hash in 0..4 {
            assert!(!get(hash));
            let container = ContainerId(hash as u32 % 2);
            table.insert_record(container, (hash, b"key"), &put(hash), b"value");
        }
        table.insert(0, Bytes::from_static(b"a block"));
        assert!(cache.has_records() && cache.is_sweep_due(minute, second));
        let is_dead =
            |container, header: &Header| container == ContainerId(0) && header.seq > Seq(1);
        cache.sweep(minute, is_dead);
        assert_eq!([0, 1, 2, 3].map(get), [true, true, false, true]);
        assert!(!cache.is_sweep_due(Timestamp(60_999), second));
        assert!(cache.is_sweep_due(Timestamp(61_000), second));
        // Used by the looks above, then by nobody.
        cache.sweep(minute, is_dead);
        assert!(cache.has_records());
        cache.sweep(minute, is_dead);
        assert!(!cache.has_records(), "all are gone");
        assert_eq!([0, 1, 2, 3].map(get), [false; 4]);
        assert!(table.get(0).is_some(), "blocks stay");
    }

    #[test]
    fn neighbours_spread_over_the_whole_range_of_hashes() {
        let hash = |table: u64, block: u64| {
            let mut mix = Mix::default();
            mix.write_u64(table);
            mix.write_u64(block);
            mix.finish()
        };
        for bits in [0, 57] {
            let mut seen = std::collections::HashSet::new();
            for number in 0..1_024 {
                seen.insert(hash(number % 4, number / 4) >> bits & 0x7f);
            }
            assert_eq!(seen.len(), 128, "seven bits from bit {bits}");
        }
    }
}
