//! The block cache: decompressed blocks.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// The bytes of an entry besides its block: key, handle, and its share of the map, rounded up.
const ENTRY_OVERHEAD: u64 = 128;

/// The number of a [`TableCache`], and of the block in its table.
type BlockKey = (u64, u64);

/// A table's part of the cache. Each time that a table is opened it is another part, so no entry is stale: under a
/// follower, a file of the same id can take another's place, when an older folder is put back.
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

    /// The body of a block, if it is cached.
    pub fn get(&self, block: u64) -> Option<Bytes> {
        self.all.blocks.get(&(self.number, block))
    }

    /// Caches the body of a block.
    pub fn insert(&self, block: u64, body: Bytes) {
        self.all.blocks.insert((self.number, block), body);
    }
}

/// A cache of decoded blocks, shared by the tables of a database and bounded in bytes.
pub struct BlockCache {
    /// How many parts there were.
    parts: AtomicU64,
    blocks: Cache<BlockKey, Bytes, Weight, BuildHasherDefault<Mix>>,
}

impl BlockCache {
    /// A cache of up to `bytes` bytes.
    pub fn new(bytes: usize) -> BlockCache {
        let options = OptionsBuilder::new()
            .weight_capacity(bytes as u64)
            .estimated_items_capacity((bytes / 4096).max(16))
            .build()
            .expect("both capacities are given");
        BlockCache {
            parts: AtomicU64::new(0),
            blocks: Cache::with_options(
                options,
                Weight,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// Bytes held, including the overhead of entries.
    pub fn bytes(&self) -> u64 {
        self.blocks.weight()
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<BlockKey, Bytes> for Weight {
    fn weight(&self, _: &BlockKey, body: &Bytes) -> u64 {
        body.len() as u64 + ENTRY_OVERHEAD
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
    use super::*;

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
