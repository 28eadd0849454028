//! The table's filter, which tells that a key is certainly absent: a split-block bloom filter (F. Putze, P. Sanders, J.
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007), one bit in each word of one block, so that a
//! lookup reads one cache line.
//!
//! ```text
//! filter   block*                    32 bytes each: eight u32 words
//! block    number = high half of the hash * blocks >> 32
//! word i   bit = low half of the hash * SALTS[i], the top five bits of the product
//! ```
//!
//! It is read in the file's bytes.

use crate::base::prefetch;

/// Bits per key. With 15, 0.2 % of the absent keys pass, so that the runs of a container together stay below 2 %.
const BITS_PER_KEY: u64 = 15;
const WORDS: usize = 8;
/// Bytes of a block.
pub const FILTER_BLOCK_LEN: usize = WORDS * 4;

/// The fractional parts of the square roots of the first eight primes, made odd.
const SALTS: [u32; WORDS] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f373,
    0xa54f_f53b,
    0x510e_527f,
    0x9b05_688d,
    0x1f83_d9ab,
    0x5be0_cd19,
];

#[inline]
fn bits(hash: u64) -> [u32; WORDS] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// A hash, prepared for lookups in one filter or in many.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    hash: u64,
    bits: [u32; WORDS],
}

impl Probe {
    /// A key's hash.
    #[inline]
    pub fn of(hash: u64) -> Self {
        Probe {
            hash,
            bits: bits(hash),
        }
    }

    /// False: no key with this hash is in the table. `filter` is one or more whole blocks.
    #[inline]
    pub fn passes(&self, filter: &[u8]) -> bool {
        let (blocks, _) = filter.as_chunks::<FILTER_BLOCK_LEN>();
        let (words, _) = blocks[place(self.hash, blocks.len())].as_chunks::<4>();
        let mut missing = 0;
        for (word, bit) in words.iter().zip(self.bits) {
            missing |= !u32::from_le_bytes(*word) & bit;
        }
        missing == 0
    }
}

/// The block of the filter for this hash.
#[inline]
pub fn line(filter: &[u8], hash: u64) -> &[u8; FILTER_BLOCK_LEN] {
    let (blocks, _) = filter.as_chunks::<FILTER_BLOCK_LEN>();
    &blocks[place(hash, blocks.len())]
}

/// Prefetches it.
#[inline]
pub fn fetch(filter: &[u8], hash: u64) {
    prefetch(line(filter, hash));
}

#[inline]
fn place(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// The filter of keys with these hashes: at least one, without repetition.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let blocks = (hashes.len() as u64 * BITS_PER_KEY).div_ceil(FILTER_BLOCK_LEN as u64 * 8);
    // Two words of a block in each u64, the first one in its lower half.
    let mut filter = vec![[0u64; WORDS / 2]; blocks as usize];
    for &hash in hashes {
        let block = &mut filter[place(hash, blocks as usize)];
        let bits = bits(hash);
        for (word, [low, high]) in block.iter_mut().zip(bits.as_chunks().0) {
            *word |= u64::from(*high) << 32 | u64::from(*low);
        }
    }
    let mut bytes = vec![0; filter.len() * FILTER_BLOCK_LEN];
    let words = filter.as_flattened().iter();
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

/// False: no key with this hash is in the filter's table.
#[inline]
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    let (blocks, _) = filter.as_chunks::<FILTER_BLOCK_LEN>();
    let (words, _) = blocks[place(hash, blocks.len())].as_chunks::<4>();
    let has = |words: &[[u8; 4]], salts: &[u32]| {
        let shifted = |(word, salt): (&[u8; 4], &u32)| {
            u32::from_le_bytes(*word) >> ((hash as u32).wrapping_mul(*salt) >> 27)
        };
        let places = words.iter().zip(salts);
        places.map(shifted).fold(1, |all, bit| all & bit) == 1
    };
    // Half of the words deny all but 3 of 100 absent keys, so the others are seldom asked.
    has(&words[..WORDS / 2], &SALTS[..WORDS / 2]) && has(&words[WORDS / 2..], &SALTS[WORDS / 2..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::hash_key;

    #[test]
    fn every_key_passes_and_few_others_do() {
        for keys in [1u64, 2, 17, 1_000, 200_000] {
            let hashes: Vec<u64> = (0..keys).map(|i| hash_key(&i.to_le_bytes())).collect();
            let filter = build(&hashes);
            let admits = |hash| {
                let admits = may_contain(&filter, hash);
                assert_eq!(Probe::of(hash).passes(&filter), admits);
                admits
            };
            assert!(hashes.iter().all(|&hash| admits(hash)));
            let asked = 100_000;
            let passed = (keys..keys + asked)
                .filter(|i| admits(hash_key(&i.to_le_bytes())))
                .count();
            assert!(
                passed * 200 < asked as usize,
                "{passed} of {asked} with {keys} keys"
            );
        }
    }
}
