//! The hash of a key: filters, the search in blocks, samples and caches all use this number, and files store parts of
//! it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// XXH3 with 64 bits and seed 0 (Y. Collet, the XXH3 specification): it is part of the file format.
pub fn hash_key(key: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(key)
}

/// The hashes of a record's bytes, from before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHash {
    /// [`hash_key`] of the key.
    pub key: u64,
    /// Of key and value: one that differs in a bit has another.
    pub whole: u64,
}

impl RecordHash {
    /// The hashes of a record with this key and value.
    #[inline]
    pub fn of(key: &[u8], value: &[u8]) -> RecordHash {
        let key = hash_key(key);
        let whole = add_bytes(key, value);
        RecordHash { key, whole }
    }
}

/// Odd, and without a long row of equal bits: the golden ratio's (D. Knuth, The Art of Computer Programming, 6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of Horner's rule modulo 2^64. For it is injective in both arguments, one flipped bit of either is not lost.
#[inline]
pub fn add(hash: u64, word: u64) -> u64 {
    hash.wrapping_mul(FACTOR).wrapping_add(word)
}

/// All bytes, in words, of which four go at once: for a hundred bytes some 40 instructions fewer than XXH3 (`.ci/instructions put`).
#[inline]
fn add_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (words, rest) = bytes.as_chunks::<8>();
    let (fours, words) = words.as_chunks::<4>();
    if !fours.is_empty() {
        let mut lanes = [0; 4];
        for four in fours {
            for (lane, bytes) in lanes.iter_mut().zip(four) {
                *lane = add(*lane, word(bytes));
            }
        }
        hash = lanes.into_iter().fold(hash, add);
    }
    hash = words.iter().map(word).fold(hash, add);
    if let Some(last) = bytes.last_chunk().filter(|_| !rest.is_empty()) {
        // Some of its bytes are in words already.
        return add(hash, word(last));
    }
    rest.iter().map(|byte| u64::from(*byte)).fold(hash, add)
}

/// A map from hashes of keys, which need not be hashed again.
pub type HashedMap<V> = HashMap<u64, V, BuildHasherDefault<Mixed>>;

/// Hashes are mixed already; those of a sample are low, so the other half comes first.
#[derive(Debug, Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes are numbers")
    }

    #[inline]
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash.rotate_left(32);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_part_of_the_format() {
        assert_eq!(super::hash_key(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(super::hash_key(b"ebbtide"), super::hash_key(b"ebbtide"));
        assert_ne!(super::hash_key(b"a"), super::hash_key(b"b"));
    }
}
