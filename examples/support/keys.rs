//! Keys of 16 bytes, each as likely as any other.

/// SplitMix64: the n-th of a fixed sequence of well-mixed numbers.
pub fn mixed(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The n-th of as many keys, in no order.
pub fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(2 * n + 1).to_be_bytes());
    key[8..].copy_from_slice(&mixed(2 * n + 2).to_be_bytes());
    key
}
