//! The hash of a key: filters, the search in blocks, samples and caches all use this number, and files store parts of
//! it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// XXH3 with 64 bits and seed 0 (Y. Collet, the XXH3 specification): it is part of the file format.
pub fn hash_key(key: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(key)
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
