//! The summary of a memtable, updated with each record: exact counts, expiry histograms, and the newest version of the
//! keys with the smallest hashes. So estimates need no iteration.
//!
//! Puts that may be oversized are in the sample too, whatever their hash.
//!
//! An older version in the same memtable is *hidden*: an insert learns which version it hides, or that a newer one
//! exists, because both are next to its place in the tree. An insert does not count the records that a range delete
//! hides; estimates take them from the sample. But a sample cannot represent a few records that follow a range delete
//! of nearly everything. So records after a range delete have a summary of their own: the records of a memtable are
//! divided into *eras* in the order of time, each with its counts and its sample.

use crate::base::Timestamp;
use crate::base::hash::HashedMap;
use crate::base::record::{Header, RecordRef};
use crate::expiry::{
    Census, ExpiryHistograms, ExpiryView, OVERSIZED_LEAST, Settings, Tally, is_oversized,
};
use crate::mem::node::Inserted;

/// Keys in a full sample; up to twice as many are gathered before it is cut.
const SAMPLE_KEYS: usize = 2048;

/// With more eras than this, the oldest two are joined.
const ERAS_MOST: usize = 4;

/// A number of puts, and the histograms of those that may expire.
#[derive(Debug, Default)]
struct Puts {
    tally: Tally,
    histograms: ExpiryHistograms,
}

impl Puts {
    fn add(&mut self, header: &Header, bytes: u64) {
        if !header.is_tombstone() {
            self.tally.add(Tally { count: 1, bytes });
            self.histograms.add(header, bytes);
        }
    }

    fn merge(&mut self, other: &Puts) {
        self.tally.add(other.tally);
        self.histograms.merge(&other.histograms);
    }
}

/// The longest key that is kept without an allocation: longer ones need a pointer and a length anyway.
const SHORT: usize = 22;

/// A copy of a key.
#[derive(Debug)]
pub struct SampledKey(Kept);

#[derive(Debug)]
enum Kept {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl SampledKey {
    #[inline]
    fn of(key: &[u8]) -> SampledKey {
        let mut bytes = [0; SHORT];
        SampledKey(match bytes.get_mut(..key.len()) {
            Some(place) => {
                place.copy_from_slice(key);
                let len = key.len() as u8;
                Kept::Short { len, bytes }
            }
            None => Kept::Long(key.into()),
        })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Short { len, bytes } => &bytes[..usize::from(*len)],
            Kept::Long(bytes) => bytes,
        }
    }
}

/// The newest version of a sampled key.
#[derive(Debug)]
pub struct Newest {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    /// As [`RecordRef::weight`] counts.
    pub weight: u64,
    /// The key.
    pub key: SampledKey,
}

/// The summary of one memtable, in eras divided by some of its range deletes and by commands to expire items.
#[derive(Debug, Default)]
pub struct Summary {
    /// The era of records inserted now.
    newest: Era,
    /// Oldest first.
    older: Vec<Era>,
}

impl Summary {
    /// Counts a record that was inserted with this result; `hash` is its key's.
    #[inline]
    pub(super) fn add(&mut self, record: &RecordRef<'_>, hash: u64, mut inserted: Inserted) {
        if let (false, Inserted::Over(older, weight)) = (self.older.is_empty(), &inserted) {
            let eras = self.older.iter_mut().chain([&mut self.newest]);
            let has_it =
                |era: &&mut Era| (era.census.seq_min..=era.census.seq_max).contains(&older.seq);
            if let Some(era) = eras.rev().find(has_it) {
                era.hidden.add(older, *weight);
                era.sample.remove(&hash);
                inserted = Inserted::Alone;
            }
        }
        self.newest.add(record, hash, &inserted);
    }

    /// A range delete or a command follows: records inserted from now on are newer.
    pub(super) fn begin_era(&mut self) {
        if self.newest.is_complete() {
            return;
        }
        self.older.push(std::mem::take(&mut self.newest));
        if self.older.len() >= ERAS_MOST {
            let oldest = self.older.remove(0);
            self.older[0].merge(oldest);
        }
    }

    /// The census of all records.
    pub fn census(&self) -> Census {
        let mut census = self.newest.census;
        self.older.iter().for_each(|era| census.merge(&era.census));
        census
    }

    /// Its eras that have records, oldest first.
    pub fn eras(&self) -> impl Iterator<Item = &Era> {
        let all = self.older.iter().chain([&self.newest]);
        all.filter(|era| era.census.total().count > 0)
    }
}

/// The summary of records that follow each other in time.
#[derive(Debug)]
pub struct Era {
    /// Its total without the tombstones is the tally of the puts.
    census: Census,
    histograms: ExpiryHistograms,
    hidden: Puts,
    /// By the key's hash: every key below the threshold whose newest version is here, and keys with a version that may
    /// be oversized.
    sample: HashedMap<Newest>,
    /// No key with a hash below this is left out; `u64::MAX` if none is.
    threshold: u64,
    /// With more keys than this the sample is cut.
    cut_at: usize,
}

impl Default for Era {
    fn default() -> Self {
        Era {
            census: Census::default(),
            histograms: ExpiryHistograms::default(),
            hidden: Puts::default(),
            sample: HashedMap::default(),
            threshold: u64::MAX,
            cut_at: 2 * SAMPLE_KEYS,
        }
    }
}

impl Era {
    #[inline(always)]
    fn add(&mut self, record: &RecordRef<'_>, hash: u64, inserted: &Inserted) {
        let (header, weight) = (record.header, record.weight());
        self.census.add(record);
        self.histograms.add(&header, weight);
        let may_be_oversized = |weight: u64| weight > OVERSIZED_LEAST;
        let mut must_sample = may_be_oversized(weight);
        match inserted {
            Inserted::Under => return self.hidden.add(&header, weight),
            Inserted::Over(older, weight) => {
                self.hidden.add(older, *weight);
                must_sample |= may_be_oversized(*weight);
            }
            Inserted::Alone => {}
        }
        if hash < self.threshold || must_sample {
            let newest = Newest {
                header,
                weight,
                key: SampledKey::of(record.key),
            };
            self.sample.insert(hash, newest);
            if self.sample.len() > self.cut_at {
                self.cut_sample();
            }
        }
    }

    /// Keeps the keys with the smallest hashes, and those that may be oversized.
    fn cut_sample(&mut self) {
        let mut hashes: Vec<u64> = self.sample.keys().copied().collect();
        let (_, threshold, _) = hashes.select_nth_unstable(SAMPLE_KEYS);
        self.threshold = self.threshold.min(*threshold);
        self.keep_sampled();
    }

    fn keep_sampled(&mut self) {
        self.sample
            .retain(|hash, newest| *hash < self.threshold || newest.weight > OVERSIZED_LEAST);
        self.cut_at = self.sample.len() + SAMPLE_KEYS;
    }

    /// Adds another era's records.
    fn merge(&mut self, other: Era) {
        self.census.merge(&other.census);
        self.histograms.merge(&other.histograms);
        self.hidden.merge(&other.hidden);
        self.threshold = self.threshold.min(other.threshold);
        self.sample.extend(other.sample);
        self.keep_sampled();
        if self.sample.len() > 2 * SAMPLE_KEYS {
            self.cut_sample();
        }
    }

    /// Whether the sample has all keys.
    fn is_complete(&self) -> bool {
        self.threshold == u64::MAX
    }

    /// The census of its records.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// When how many of its puts end under these settings, in no order; leaves out those that never do.
    pub fn ends(&self, settings: &Settings) -> impl Iterator<Item = (Timestamp, Tally)> + use<'_> {
        self.histograms.ends(settings)
    }

    /// An estimate of the gone puts; exact if they are of few moments.
    pub fn gone(&self, view: &ExpiryView) -> Tally {
        let puts = self.census.total().less(self.census.tombstones);
        self.gone_of(puts, &self.histograms, view)
    }

    /// An estimate of the puts that are not gone, but hidden by a newer version in the memtable.
    pub fn hidden(&self, view: &ExpiryView) -> Tally {
        let gone = self.gone_of(self.hidden.tally, &self.hidden.histograms, view);
        self.hidden.tally.less(gone)
    }

    /// An estimate of the gone among `puts`. Hidden puts are assumed to be gone as often as the puts that hide them,
    /// where the sample is asked.
    fn gone_of(&self, puts: Tally, histograms: &ExpiryHistograms, view: &ExpiryView) -> Tally {
        let bytes = self.census.total().bytes;
        let is_sampled = |hash: u64, newest: &Newest| {
            hash < self.threshold || self.is_complete() || is_oversized(newest.weight, bytes)
        };
        let sample = self
            .sample()
            .filter(|(hash, newest)| is_sampled(*hash, newest));
        let sample = sample.map(|(_, newest)| (newest.weight, &newest.header));
        histograms.gone(view, &self.census, puts, sample)
    }

    /// The lowest hash of a key that the sample leaves out; `u64::MAX` when it is complete.
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// The sample, in no order: the hash of each key with its newest version.
    pub fn sample(&self) -> impl Iterator<Item = (u64, &Newest)> {
        self.sample.iter().map(|(&hash, newest)| (hash, newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sampled_key_is_the_key_whatever_its_length() {
        for len in [1, SHORT - 1, SHORT, SHORT + 1, 1_000] {
            let key: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            assert_eq!(SampledKey::of(&key).bytes(), key, "of {len} bytes");
        }
        assert!(size_of::<SampledKey>() <= 24);
    }
}
