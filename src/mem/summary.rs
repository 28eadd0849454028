//! What a memtable says of all its records at once, kept up as they come: exact counts, how they lie in time, and of the
//! keys with the smallest hashes the newest version. So nobody has to walk it.
//!
//! Puts that may be heavy are in the sample too, whatever their hash.
//!
//! An older version in the same memtable is *hidden*: whoever inserts a record learns what it hides, or that it comes
//! behind a newer one, for both stand beside the place where it goes.

use std::collections::HashMap;

use crate::expiry::{Census, HEAVY_LEAST, Judge, Spreads, Tally};
use crate::mem::tree::Inserted;
use crate::record::{Head, Header};

/// Keys in a full sample; up to twice as many are gathered before it is cut.
const SAMPLE_KEYS: usize = 1024;

/// Some puts: how many, and how those that may end lie in time.
#[derive(Debug, Default)]
struct Puts {
    tally: Tally,
    spreads: Spreads,
}

impl Puts {
    fn add(&mut self, header: &Header, bytes: u64) {
        if !header.is_tombstone() {
            self.tally.add(Tally { count: 1, bytes });
            self.spreads.add(header, bytes);
        }
    }
}

/// The newest version of a sampled key.
#[derive(Debug)]
pub struct Newest {
    /// Kind, number, time, ttl.
    pub header: Header,
    /// As [`Head::weight`] counts.
    pub weight: u64,
    /// The key.
    pub key: Box<[u8]>,
}

/// Of one memtable.
#[derive(Debug)]
pub struct Summary {
    census: Census,
    puts: Puts,
    hidden: Puts,
    /// By the key's hash: all keys below the threshold, and those of which a version
    /// may be heavy.
    sample: HashMap<u64, Newest>,
    /// Below this hash no key is left out; `u64::MAX` when none is.
    threshold: u64,
    /// Above so many the sample is cut.
    cut_at: usize,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            census: Census::default(),
            puts: Puts::default(),
            hidden: Puts::default(),
            sample: HashMap::new(),
            threshold: u64::MAX,
            cut_at: 2 * SAMPLE_KEYS,
        }
    }
}

impl Summary {
    /// Counts a record that was inserted so; `hash` is its key's.
    pub(super) fn add(&mut self, head: &Head<'_>, hash: u64, inserted: Inserted) {
        let (header, weight) = (head.header, head.weight());
        self.census.add(head);
        self.puts.add(&header, weight);
        let may_be_heavy = |weight: u64| weight > HEAVY_LEAST;
        let mut is_special = may_be_heavy(weight);
        match inserted {
            Inserted::Under => return self.hidden.add(&header, weight),
            Inserted::Over(older, weight) => {
                self.hidden.add(&older, weight);
                is_special |= may_be_heavy(weight);
            }
            Inserted::Alone => {}
        }
        if hash < self.threshold || is_special {
            let newest = Newest {
                header,
                weight,
                key: head.key.into(),
            };
            self.sample.insert(hash, newest);
            if self.sample.len() > self.cut_at {
                self.cut_sample();
            }
        }
    }

    /// Keeps the keys with the smallest hashes, and those that may be heavy.
    fn cut_sample(&mut self) {
        let mut hashes: Vec<u64> = self.sample.keys().copied().collect();
        let (_, threshold, _) = hashes.select_nth_unstable(SAMPLE_KEYS);
        self.threshold = self.threshold.min(*threshold);
        self.sample
            .retain(|hash, newest| *hash < self.threshold || newest.weight > HEAVY_LEAST);
        self.cut_at = self.sample.len() + SAMPLE_KEYS;
    }

    /// The life statistics of all records.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// About how many of the puts are gone; exact when they are of few moments.
    pub fn gone(&self, judge: &Judge) -> Tally {
        self.puts.spreads.gone(judge, self.holds_older(judge))
    }

    /// About how many of the puts are not gone, but hidden by a newer version in the memtable.
    pub fn hidden(&self, judge: &Judge) -> Tally {
        let gone = self.hidden.spreads.gone(judge, self.holds_older(judge));
        self.hidden.tally.less(gone)
    }

    fn holds_older(&self, judge: &Judge) -> bool {
        self.census.seq_min < judge.settings.floor_seq
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
