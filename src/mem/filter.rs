//! The memtable's filter, which tells that a key is certainly absent: a bloom filter that grows.
//!
//! ```text
//! stage    0: 2 KiB | 1: 4 to 16 KiB | 2: 8 to 128 KiB | ...     each two to eight times the one before
//! block    four words of 64 bits, half a cache line; a key sets one bit in each word of one block of one stage
//! hash     high bits: which block | four times six low bits: which bit in each word
//! ```
//!
//! A stage that has taken one key for every 16 of its bits is full, and the next one begins. So the filter grows
//! without moving anything, and all stages but the last stay in the nearest caches. A stage is made as large as the
//! keys expected at that time need, within limits, so that a full memtable has few stages, and the last of them is full
//! too. A full stage answers "maybe" for 0.4 % of the keys it does not hold, all stages together for about 1 %. Each key is
//! added once, with its first version: many versions of few keys keep the filter small.
//!
//! All operations are relaxed: a thread that learns of a record by a published sequence number also sees the bits that
//! were set before that was published. One thread adds at a time.

use std::sync::OnceLock;

use crate::base::prefetch;

use crate::base::sync::CachePadded;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A memtable of the size it was made for has at most five or six. The last one takes all further keys, and then
/// answers "maybe" more often.
const STAGES: usize = 8;
/// Blocks of the first stage.
const FIRST_BLOCKS: usize = 64;
/// How much larger a stage is than the one before.
const GROWTH_MIN: usize = 2;
const GROWTH_MAX: usize = 8;
/// 256 bits of a block, 16 for each key.
const KEYS_PER_BLOCK: usize = 16;

#[derive(Debug, Default)]
#[repr(align(32))]
struct Block([AtomicU64; 4]);

impl Block {
    #[inline]
    fn bits(hash: u64) -> [u64; 4] {
        [0, 6, 12, 18].map(|shift| 1 << (hash >> shift & 63))
    }

    #[inline]
    fn may_contain(&self, hash: u64) -> bool {
        let missing = |(word, bit): (&AtomicU64, u64)| bit & !word.load(Ordering::Relaxed);
        self.0
            .iter()
            .zip(Block::bits(hash))
            .map(missing)
            .fold(0, |all, missing| all | missing)
            == 0
    }

    #[inline]
    fn add(&self, hash: u64) {
        for (word, bit) in self.0.iter().zip(Block::bits(hash)) {
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }
}

/// A bloom filter that grows as keys are added.
#[derive(Debug, Default)]
pub struct Filter {
    stages: [OnceLock<Box<[Block]>>; STAGES],
    /// Keys that have set bits in the last stage. Each addition changes it, so it is in other cache lines than what a
    /// question reads.
    taken: CachePadded<AtomicUsize>,
    /// Memory of all stages.
    bytes: AtomicUsize,
    /// There was no memory for a first stage, so it answers "maybe" for every key.
    admits_all: AtomicBool,
}

impl Filter {
    fn stages(&self) -> impl Iterator<Item = &[Block]> {
        self.stages
            .iter()
            .map_while(|stage| stage.get().map(|blocks| &**blocks))
    }

    /// False: no key with this hash was added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.stages()
            .any(|blocks| block(blocks, hash).may_contain(hash))
            || self.admits_all.load(Ordering::Relaxed)
    }

    /// Prefetches what an addition needs.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(blocks) = self.stages().last() {
            prefetch(block(blocks, hash));
        }
    }

    /// Adds a key that was not added before. Called by one thread at a time. `expected` estimates how many more will come;
    /// it is called when the filter grows.
    #[inline(always)]
    pub fn add(&self, hash: u64, expected: impl FnOnce() -> usize) {
        let last = self.stages().last();
        if self.admits_all.load(Ordering::Relaxed) {
            return;
        }
        let taken = self.taken.load(Ordering::Relaxed);
        let last_len = last.map_or(0, <[Block]>::len);
        if let Some(blocks) = last
            && taken < last_len * KEYS_PER_BLOCK
        {
            block(blocks, hash).add(hash);
            self.taken.store(taken + 1, Ordering::Relaxed);
            return;
        }
        let next = self.next_stage(last_len, expected());
        match next.or(last) {
            Some(blocks) => block(blocks, hash).add(hash),
            None => self.admits_all.store(true, Ordering::Relaxed),
        }
        let taken = if next.is_some() { 0 } else { taken };
        self.taken.store(taken + 1, Ordering::Relaxed);
    }

    /// Makes the first stage, if there is none, for so many keys that come at once.
    pub fn begin(&self, keys: usize) {
        let len = keys.div_ceil(KEYS_PER_BLOCK).max(FIRST_BLOCKS);
        if self.stages[0].get().is_none() {
            self.stage(0, len);
        }
    }

    /// `None` when all stages exist, or memory is short: then the last one takes more keys than it should.
    #[cold]
    fn next_stage(&self, last_len: usize, expected: usize) -> Option<&[Block]> {
        let next = self.stages.iter().position(|stage| stage.get().is_none())?;
        let len = expected
            .div_ceil(KEYS_PER_BLOCK)
            .clamp(last_len * GROWTH_MIN, last_len * GROWTH_MAX)
            .max(FIRST_BLOCKS);
        self.stage(next, len)
    }

    /// Makes a stage of so many blocks; `None` when memory is short.
    fn stage(&self, number: usize, len: usize) -> Option<&[Block]> {
        let mut blocks = vec![];
        blocks.try_reserve_exact(len).ok()?;
        blocks.extend((0..len).map(|_| Block::default()));
        let bytes = self.bytes() + size_of_val(&*blocks);
        self.bytes.store(bytes, Ordering::Relaxed);
        Some(self.stages[number].get_or_init(|| blocks.into_boxed_slice()))
    }

    /// Memory it takes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The block of a hash: its upper half, as a fraction of one, of all blocks.
#[inline]
fn block(blocks: &[Block], hash: u64) -> &Block {
    &blocks[(((hash >> 32) * blocks.len() as u64) >> 32) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::hash_key;
    use crate::base::record::Header;
    use crate::base::{Seq, Timestamp};
    use crate::mem::Memtable;

    /// Goal: no added key is denied, and few others are admitted, at every size. Method: consecutive numbers as keys.
    #[test]
    fn it_denies_nothing_that_was_added_and_admits_little_else() {
        let filter = Filter::default();
        assert_eq!(filter.bytes(), 0);
        assert!(!filter.may_contain(7));
        let keys = if cfg!(miri) { 1_500u64 } else { 100_000 };
        for key in 0..keys {
            filter.add(hash_key(&key.to_le_bytes()), || 0);
        }
        assert!((0..keys).all(|key| filter.may_contain(hash_key(&key.to_le_bytes()))));
        let admitted = (keys..2 * keys)
            .filter(|key| filter.may_contain(hash_key(&key.to_le_bytes())))
            .count();
        assert!(admitted < keys as usize / 50, "{admitted} of {keys}");
    }

    /// Goal: a memtable's filter has every key, and no more room is taken for many versions of few. Method: each key in
    /// turn, newest versions and older ones.
    #[test]
    fn each_key_of_a_memtable_is_added_once() {
        let memtable = Memtable::new();
        let keys = if cfg!(miri) { 300u64 } else { 3_000 };
        let put = |key: u64, seq| {
            let header = Header::tombstone(Seq(seq), Timestamp(0));
            memtable.insert(header, &key.to_le_bytes(), b"").unwrap();
        };
        (0..keys).for_each(|key| put(key, 10));
        assert!((0..keys).all(|key| memtable.may_contain(hash_key(&key.to_le_bytes()))));
        let before = memtable.filter.bytes();
        for seq in 0..20 {
            (0..keys).for_each(|key| put(key, seq));
        }
        assert_eq!(memtable.filter.bytes(), before);
    }
}
