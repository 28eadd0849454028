//! What a memtable says of all its records at once, kept up as they come: exact counts, how they lie in time, and of the
//! keys with the smallest hashes the newest version. So nobody has to walk it.
//!
//! Puts that may be oversized are in the sample too, whatever their hash.
//!
//! An older version in the same memtable is *hidden*: whoever inserts a record learns what it hides, or that it comes
//! behind a newer one, for both stand beside the place where it goes. What a range delete hides nobody counts as it comes:
//! that is asked of the sample. But a sample that was cut cannot tell of a few records that come after a range delete of
//! nearly all. So what comes then has a summary of its own: the records of a memtable are in some *eras*, one after the
//! other, each with its counts and its sample.

use std::collections::HashMap;

use crate::base::record::{Header, RecordRef};
use crate::expiry::{Census, ExpiryHistograms, ExpiryView, OVERSIZED_LEAST, Tally};
use crate::mem::tree::Inserted;

/// Keys in a full sample; up to twice as many are gathered before it is cut.
const SAMPLE_KEYS: usize = 1024;

/// Of more eras the oldest two become one.
const ERAS_MOST: usize = 4;

/// Some puts: how many, and how those that may end lie in time.
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

/// The newest version of a sampled key.
#[derive(Debug)]
pub struct Newest {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    /// As [`RecordRef::weight`] counts.
    pub weight: u64,
    /// The key.
    pub key: Box<[u8]>,
}

/// Of one memtable: the records that came before, between and after some of its range deletes.
#[derive(Debug, Default)]
pub struct Summary {
    /// What is inserted now belongs to it.
    newest: Era,
    /// Oldest first.
    older: Vec<Era>,
}

impl Summary {
    /// Counts a record that was inserted so; `hash` is its key's.
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
        self.newest.add(record, hash, inserted);
    }

    /// A range delete comes: what is inserted from now on is newer.
    pub(super) fn note_range_delete(&mut self) {
        if self.newest.is_complete() {
            return;
        }
        self.older.push(std::mem::take(&mut self.newest));
        if self.older.len() >= ERAS_MOST {
            let oldest = self.older.remove(0);
            self.older[0].merge(oldest);
        }
    }

    /// The life statistics of all records.
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

/// What is known of records that follow each other in time.
#[derive(Debug)]
pub struct Era {
    census: Census,
    puts: Puts,
    hidden: Puts,
    /// By the key's hash: all keys below the threshold of which the newest version is here, and those of which a version
    /// may be oversized.
    sample: HashMap<u64, Newest>,
    /// Below this hash no key is left out; `u64::MAX` when none is.
    threshold: u64,
    /// Above so many the sample is cut.
    cut_at: usize,
}

impl Default for Era {
    fn default() -> Self {
        Era {
            census: Census::default(),
            puts: Puts::default(),
            hidden: Puts::default(),
            sample: HashMap::new(),
            threshold: u64::MAX,
            cut_at: 2 * SAMPLE_KEYS,
        }
    }
}

impl Era {
    #[inline]
    fn add(&mut self, record: &RecordRef<'_>, hash: u64, inserted: Inserted) {
        let (header, weight) = (record.header, record.weight());
        self.census.add(record);
        self.puts.add(&header, weight);
        let may_be_oversized = |weight: u64| weight > OVERSIZED_LEAST;
        let mut must_sample = may_be_oversized(weight);
        match inserted {
            Inserted::Under => return self.hidden.add(&header, weight),
            Inserted::Over(older, weight) => {
                self.hidden.add(&older, weight);
                must_sample |= may_be_oversized(weight);
            }
            Inserted::Alone => {}
        }
        if hash < self.threshold || must_sample {
            let newest = Newest {
                header,
                weight,
                key: record.key.into(),
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

    /// Counts these records too.
    fn merge(&mut self, other: Era) {
        self.census.merge(&other.census);
        self.puts.merge(&other.puts);
        self.hidden.merge(&other.hidden);
        self.threshold = self.threshold.min(other.threshold);
        self.sample.extend(other.sample);
        self.keep_sampled();
        if self.sample.len() > 2 * SAMPLE_KEYS {
            self.cut_sample();
        }
    }

    /// No key is left out of its sample.
    fn is_complete(&self) -> bool {
        self.threshold == u64::MAX
    }

    /// The life statistics of its records.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// About how many of the puts are gone; exact when they are of few moments.
    pub fn gone(&self, view: &ExpiryView) -> Tally {
        self.puts.histograms.gone(view, self.holds_older(view))
    }

    /// About how many of the puts are not gone, but hidden by a newer version in the memtable.
    pub fn hidden(&self, view: &ExpiryView) -> Tally {
        let gone = self.hidden.histograms.gone(view, self.holds_older(view));
        self.hidden.tally.less(gone)
    }

    fn holds_older(&self, view: &ExpiryView) -> bool {
        self.census.seq_min < view.settings.floor_seq
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
