//! The digest of what a range showed: keys and versions in their order.

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// See the file's head. It stands in the log: it is computed alike in every version.
pub struct Digest(XxHash3_64);

impl Digest {
    pub fn new() -> Digest {
        Digest(XxHash3_64::new())
    }

    pub fn add(&mut self, key: &[u8], version: u64) {
        self.0.write(&(key.len() as u32).to_le_bytes());
        self.0.write(key);
        self.0.write(&version.to_le_bytes());
    }

    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}
