//! Some keys of a table, evenly spaced: they tell about how many keys lie below a key. statistics.rs has their bytes.

use crate::base::coding::{ByteReader, Malformed, put_prefixed, put_varint};
use crate::base::record::MAX_KEY_LEN;

/// With more key samples than this every second one is removed: the end of a range is placed within a hundredth of the
/// table.
const KEY_SAMPLES_MAX: usize = 128;

/// Some keys of a table, evenly spaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySamples {
    /// The distance from one to the next, in keys.
    step: u64,
    /// Ascending; the first is the table's first key.
    keys: Vec<Box<[u8]>>,
}

impl Default for KeySamples {
    fn default() -> Self {
        KeySamples {
            step: 1,
            keys: vec![],
        }
    }
}

impl KeySamples {
    /// The approximate number of keys below this one.
    pub fn rank(&self, key: &[u8]) -> u64 {
        match self
            .keys
            .binary_search_by(|sample| sample.as_ref().cmp(key))
        {
            Ok(sample) => sample as u64 * self.step,
            Err(0) => 0,
            // After this key sample, and not after the next.
            Err(sample) => (sample as u64 - 1) * self.step + self.step.div_ceil(2),
        }
    }

    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.step);
        put_varint(out, self.keys.len() as u64);
        self.keys.iter().for_each(|key| put_prefixed(out, key));
    }

    /// Reads what [`KeySamples::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<KeySamples, Malformed> {
        let step = reader.varint_up_to(u64::from(u32::MAX))?;
        let count = reader.varint_up_to(KEY_SAMPLES_MAX as u64)?;
        let keys: Vec<Box<[u8]>> = (0..count)
            .map(|_| read_key(reader))
            .collect::<Result<_, _>>()?;
        if step == 0 || !keys.is_sorted_by(|a, b| a < b) {
            return Err(reader.malformed("key samples out of place"));
        }
        Ok(KeySamples { step, keys })
    }

    /// Takes key number `rank`, the last so far, which is a multiple of the step. Returns the number of the next one.
    pub fn add(&mut self, key: &[u8], rank: u64) -> u64 {
        if self.keys.len() == KEY_SAMPLES_MAX {
            let mut nth = 0;
            self.keys.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            self.step *= 2;
        }
        self.keys.push(key.into());
        rank + self.step
    }
}

/// Reads a key of a length that a key may have.
pub fn read_key(reader: &mut ByteReader<'_>) -> Result<Box<[u8]>, Malformed> {
    let at = reader.clone();
    let key = reader.prefixed()?;
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(at.malformed("a key of a length that cannot be"));
    }
    Ok(key.into())
}
