//! The statistics of a table's records, read when the table is opened.
//!
//! ```text
//! statistics  records varint | keys varint | blocks varint | large values varint
//!             first key prefixed | last key prefixed | census | histogram of inheriting | histogram of overriding
//!             sample | key samples | settings (expiry/rule.rs)
//! sample      threshold u64 | count varint | lowest seq varint | earliest written_at varint | sampled*
//! sampled     key hash u64 | header (record.rs) | weight varint | rank varint          hash up, sequence number down
//! key samples step varint | count varint | key prefixed*                               key number 0, step, 2 * step ...
//! ```
//!
//! The sample is bottom-k: all versions of the keys with the k smallest hashes. Since all tables use the same hash,
//! their samples have the same keys: below the lowest of their thresholds each is complete, and so they show which
//! records hide which. The sample has the ranks of keys instead of keys; the key samples tell which ranks are in a
//! range of keys, and so what a range delete covers.
//!
//! A few large values may hold most bytes, and a sample of keys represents so few badly. So *oversized* puts, those
//! with more than a thousandth of their table's bytes, are in the sample whatever their hash. So is every record that
//! may hide one: the writer of a table names the keys of oversized puts elsewhere, and the table's records of these
//! keys *must be sampled*.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::coding::{ByteReader, Malformed, put_prefixed, put_varint};
use crate::base::record::{Base, Header, RecordRef};
use crate::base::{Seq, Timestamp};
use crate::expiry::{
    Census, ExpiryHistogram, ExpiryHistograms, ExpiryView, OVERSIZED_LEAST, Settings, Tally,
    is_oversized,
};
use crate::table::encode::key_samples::{KeySamples, read_key};

/// Keys in the sample of a large table: the estimated share of a set of keys has a standard error of 1.6 %.
const SAMPLE_KEYS: usize = 1024;
/// Keys in the sample of a small one.
const SAMPLE_KEYS_LEAST: usize = 256;
/// Between these sizes, as many as take about one fiftieth of the table, at some twenty bytes each.
const BYTES_PER_SAMPLED: u64 = 50 * 20;
/// One record of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The hash of its key.
    pub hash: u64,
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    /// As [`RecordRef::weight`] counts.
    pub weight: u64,
    /// The number of keys of the table before its own.
    pub rank: u64,
}

/// Every record whose key's hash is below the threshold, oversized records, and those that must be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// No record with a hash below this is left out; `u64::MAX` if none is.
    pub threshold: u64,
    /// Hash up, then key up, then sequence number down.
    pub records: Vec<Sampled>,
}

/// The statistics, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// All records.
    pub records: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Data blocks.
    pub blocks: u64,
    /// Values stored outside their block.
    pub large_values: u64,
    /// The first record's key.
    pub first_key: Box<[u8]>,
    /// The last record's key.
    pub last_key: Box<[u8]>,
    /// The census of all records.
    pub census: Census,
    /// The expiry histograms of the puts.
    pub histograms: ExpiryHistograms,
    /// The records of the keys with the smallest hashes.
    pub sample: Sample,
    /// The indices of the oversized ones; not stored.
    oversized: Vec<u32>,
    /// The approximate ranks of keys.
    pub key_samples: KeySamples,
    /// The part of the container's settings that the table keeps, as of its writing.
    pub settings: Settings,
}

impl Statistics {
    /// Appends the bytes shown in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.records, self.keys, self.blocks, self.large_values] {
            put_varint(out, number);
        }
        put_prefixed(out, &self.first_key);
        put_prefixed(out, &self.last_key);
        self.census.encode(out);
        self.histograms.inheriting.encode(out);
        self.histograms.overriding.encode(out);
        self.sample.encode(out);
        self.key_samples.encode(out);
        self.settings.encode(out);
    }

    /// Reads what [`Statistics::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Statistics, Malformed> {
        let at = reader.clone();
        let mut statistics = Statistics {
            records: reader.varint()?,
            keys: reader.varint()?,
            blocks: reader.varint()?,
            large_values: reader.varint()?,
            first_key: read_key(reader)?,
            last_key: read_key(reader)?,
            census: Census::decode(reader)?,
            histograms: ExpiryHistograms {
                inheriting: ExpiryHistogram::decode(reader)?,
                overriding: ExpiryHistogram::decode(reader)?,
            },
            sample: Sample::decode(reader)?,
            oversized: vec![],
            key_samples: KeySamples::decode(reader)?,
            settings: Settings::decode(reader)?,
        };
        if !reader.is_empty() {
            return Err(reader.malformed("bytes behind the statistics"));
        }
        let (keys, records) = (statistics.keys, statistics.records);
        let counted = keys > 0 && keys <= records && statistics.census.total().count == records;
        if !counted || statistics.first_key > statistics.last_key {
            return Err(at.malformed("statistics that contradict themselves"));
        }
        statistics.find_oversized();
        Ok(statistics)
    }

    fn find_oversized(&mut self) {
        let bytes = self.census.total().bytes;
        let records = (0..).zip(&self.sample.records);
        let oversized = records.filter(|(_, record)| is_oversized(record.weight, bytes));
        self.oversized = oversized.map(|(at, _)| at).collect();
    }

    /// Puts, in bytes and records.
    pub fn puts(&self) -> Tally {
        self.census.total().less(self.census.tombstones)
    }

    /// An estimate of the gone puts: exact if the sample has the whole table, otherwise within a small share of the
    /// bytes.
    pub fn gone(&self, view: &ExpiryView) -> Tally {
        if !self.census.any_dead(view) {
            return Tally::default();
        }
        if self.sample.threshold < u64::MAX {
            let sampled = self.sampled(self.sample.threshold);
            let sampled = sampled.map(|record| (record.weight, &record.header));
            let (census, puts) = (&self.census, self.puts());
            return self.histograms.gone(view, census, puts, sampled);
        }
        let mut gone = Tally::default();
        let puts = |record: &&Sampled| !record.header.is_tombstone();
        for record in self.sample.records.iter().filter(puts) {
            if view.dead(&record.header) {
                let bytes = record.weight;
                gone.add(Tally { count: 1, bytes });
            }
        }
        gone
    }

    /// When how many bytes of its puts ended or end, in no order; leaves out those that never do. `settings` know how they
    /// came about. By the histograms, or, where a change concerns some of the records, by the ends of the sampled ones: what
    /// a change or a command has ended did so at that moment, whatever its ttl says.
    pub fn ends(&self, settings: &Settings) -> Vec<(Timestamp, u64)> {
        if settings.last_change_seq() <= self.census.seq_min {
            return self.histograms.forecast(settings).collect();
        }
        let bytes = self.census.total().bytes;
        let sampled = self.sampled(self.sample.threshold);
        let puts = sampled.filter(|record| !record.header.is_tombstone());
        let (oversized, others): (Vec<_>, Vec<_>) =
            puts.partition(|record| is_oversized(record.weight, bytes));
        let sum = |records: &[&Sampled]| records.iter().map(|record| record.weight).sum::<u64>();
        let (rest, asked) = (
            self.puts().bytes.saturating_sub(sum(&oversized)),
            sum(&others),
        );
        let share = |weight: u64| u128::from(weight) * u128::from(rest) / u128::from(asked.max(1));
        let others = others
            .iter()
            .map(|record| (record, share(record.weight) as u64));
        let all = oversized.iter().map(|record| (record, record.weight));
        let ends = all.chain(others).map(|(record, bytes)| {
            let ending = settings.ending(&record.header);
            let unknown = || settings.known_from().before(1);
            (ending.map_or_else(unknown, |ending| ending.at), bytes)
        });
        ends.filter(|(end, _)| *end < Timestamp::MAX).collect()
    }

    /// When the oldest dead item in it expired; `None` if none is dead. Items that floors or commands had reached were
    /// left out when it was written.
    pub fn oldest_dead(&self, view: &ExpiryView) -> Option<Timestamp> {
        self.census.oldest_dead(self.judged_up_to(), view)
    }

    /// The sequence number of the last change or command by which its records were judged.
    pub fn judged_up_to(&self) -> Seq {
        self.settings.floor_seq
    }

    /// The oversized puts, all of which are in the sample.
    pub fn oversized(&self) -> impl Iterator<Item = &Sampled> {
        let records = self.oversized.iter();
        records.map(|&at| &self.sample.records[at as usize])
    }

    /// The keys whose records are in the sample neither for their hash nor for their weight.
    pub fn must_sample(&self) -> HashSet<u64> {
        let bytes = self.census.total().bytes;
        let records = self.sample.records.iter();
        records
            .filter(|record| {
                record.hash >= self.sample.threshold && !is_oversized(record.weight, bytes)
            })
            .map(|record| record.hash)
            .collect()
    }

    /// The sampled records below a hash, and oversized ones at or above it.
    pub fn sampled(&self, below: u64) -> impl Iterator<Item = &Sampled> {
        let records = &self.sample.records;
        let end = match below {
            u64::MAX => records.len(),
            below => records.partition_point(|record| record.hash < below),
        };
        let oversized = self.oversized.iter().map(|&at| at as usize);
        let others = oversized.filter(move |&at| at >= end);
        records[..end].iter().chain(others.map(|at| &records[at]))
    }

    /// The approximate number of keys below this one: exact in a table of few keys.
    pub fn rank(&self, key: &[u8]) -> u64 {
        self.key_samples.rank(key).min(self.keys)
    }
}

impl Sample {
    fn encode(&self, out: &mut Vec<u8>) {
        let headers = || self.records.iter().map(|sampled| &sampled.header);
        let base = Base {
            seq: headers().map(|header| header.seq).min().unwrap_or_default(),
            written_at: headers()
                .map(|header| header.written_at)
                .min()
                .unwrap_or_default(),
        };
        out.extend_from_slice(&self.threshold.to_le_bytes());
        put_varint(out, self.records.len() as u64);
        put_varint(out, base.seq.0);
        put_varint(out, base.written_at.0);
        for sampled in &self.records {
            out.extend_from_slice(&sampled.hash.to_le_bytes());
            sampled.header.encode(base, out);
            put_varint(out, sampled.weight);
            put_varint(out, sampled.rank);
        }
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Sample, Malformed> {
        let threshold = reader.u64()?;
        let count = reader.varint_up_to(reader.remaining() as u64)?;
        let base = Base {
            seq: Seq(reader.varint()?),
            written_at: Timestamp(reader.varint()?),
        };
        let mut records: Vec<Sampled> = Vec::new();
        for _ in 0..count {
            let at = reader.clone();
            let sampled = Sampled {
                hash: reader.u64()?,
                header: Header::decode(base, reader)?,
                weight: reader.varint()?,
                rank: reader.varint()?,
            };
            if records.last().is_some_and(|last| last.hash > sampled.hash) {
                return Err(at.malformed("a sampled record out of place"));
            }
            records.push(sampled);
        }
        Ok(Sample { threshold, records })
    }
}

/// Collects the statistics while a table is written or verified.
#[derive(Default)]
pub struct Collector {
    keys: u64,
    blocks: u64,
    large_values: u64,
    census: Census,
    histograms: ExpiryHistograms,
    key_samples: KeySamples,
    /// The number of the next key sample.
    next_key_sample: u64,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    /// Cut to the sample size whenever there are many.
    sampled: Vec<Sampled>,
    cut_at: usize,
    threshold: Option<u64>,
    /// Hashes of keys whose records must all be sampled.
    must_sample: Arc<HashSet<u64>>,
    /// Records sampled because they are oversized or must be sampled.
    above_threshold: Vec<Sampled>,
    bytes: u64,
}

impl Collector {
    /// Empty; the sample must include every record of the keys with these hashes.
    pub fn with_must_sample(must_sample: Arc<HashSet<u64>>) -> Collector {
        Collector {
            must_sample,
            ..Collector::default()
        }
    }

    /// The last key of the previous block.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds a record; records come in order. `hash` is its key's; `is_new`: no record of the key was added. Its block
    /// follows ([`Collector::add_block`]), and when it expires ([`Collector::add_expiry`]).
    #[inline]
    pub fn add(&mut self, record: &RecordRef<'_>, hash: u64, is_new: bool) {
        if is_new {
            if self.keys == self.next_key_sample {
                self.sample_key(record.key);
            }
            self.keys += 1;
        }
        self.bytes += record.weight();
        let is_below = self.threshold.is_none_or(|threshold| hash < threshold);
        let may_be_special = record.weight() > OVERSIZED_LEAST || !self.must_sample.is_empty();
        if is_below || may_be_special {
            self.sample_record(record, hash, is_below);
        }
    }

    #[cold]
    fn sample_key(&mut self, key: &[u8]) {
        if self.keys == 0 {
            self.first_key = key.to_vec();
        }
        self.next_key_sample = self.key_samples.add(key, self.keys);
    }

    #[cold]
    fn sample_record(&mut self, record: &RecordRef<'_>, hash: u64, is_below: bool) {
        let weight = record.weight();
        let sampled = Sampled {
            hash,
            header: record.header,
            weight,
            rank: self.keys - 1,
        };
        if is_below {
            self.sample(sampled);
        }
        if is_oversized(weight, self.bytes) || self.must_sample.contains(&hash) {
            self.above_threshold.push(sampled);
        }
    }

    fn sample(&mut self, sampled: Sampled) {
        self.sampled.push(sampled);
        if self.sampled.len() > self.cut_at.max(4 * SAMPLE_KEYS) {
            self.cut_sample(SAMPLE_KEYS);
            self.cut_at = 2 * self.sampled.len();
        }
    }

    /// Keeps at most this many keys, those with the smallest hashes; records stay in order.
    fn cut_sample(&mut self, most: usize) {
        let hashes = self.sampled.iter().map(|sampled| sampled.hash).collect();
        if let Some(threshold) = nth_distinct(hashes, most) {
            self.threshold = Some(threshold);
            self.sampled.retain(|sampled| sampled.hash < threshold);
        }
    }

    /// Adds when a record expires, to the histograms. In the order of records.
    pub fn add_expiry(&mut self, record: &RecordRef<'_>) {
        self.histograms.add(&record.header, record.weight());
    }

    /// The same for the records of a block, which has this census.
    pub fn add_expiries<'a>(
        &mut self,
        census: &Census,
        records: impl Iterator<Item = RecordRef<'a>>,
    ) {
        self.histograms.add_block(census, records);
    }

    /// Adds a block, whose records and expiries were added.
    pub fn add_block(&mut self, census: &Census, last_key: &[u8]) {
        self.census.merge(census);
        self.last_key.clear();
        self.last_key.extend_from_slice(last_key);
        self.blocks += 1;
    }

    /// Adds a large value; returns its number.
    pub fn add_large_value(&mut self) -> u64 {
        self.large_values += 1;
        self.large_values - 1
    }

    /// The statistics of what was added, with `settings`.
    pub fn finish(mut self, settings: Settings) -> Statistics {
        let worth = (self.bytes / BYTES_PER_SAMPLED) as usize;
        self.cut_sample(worth.clamp(SAMPLE_KEYS_LEAST, SAMPLE_KEYS));
        self.histograms.thin();
        if let Some(threshold) = self.threshold {
            let bytes = self.census.total().bytes;
            self.above_threshold.retain(|record| {
                let is_special =
                    is_oversized(record.weight, bytes) || self.must_sample.contains(&record.hash);
                is_special && record.hash >= threshold
            });
            self.sampled.append(&mut self.above_threshold);
        }
        // A stable sort: records of a key stay in order.
        self.sampled.sort_by_key(|record| record.hash);
        let mut statistics = Statistics {
            records: self.census.total().count,
            keys: self.keys,
            blocks: self.blocks,
            large_values: self.large_values,
            first_key: self.first_key.into(),
            last_key: self.last_key.into(),
            census: self.census,
            histograms: self.histograms,
            sample: Sample {
                threshold: self.threshold.unwrap_or(u64::MAX),
                records: self.sampled,
            },
            oversized: vec![],
            key_samples: self.key_samples,
            settings: settings.of_a_table(),
        };
        statistics.find_oversized();
        statistics
    }
}

/// The number with `n` smaller ones, each counted once; quickly, if equal ones stand side by side.
fn nth_distinct(mut numbers: Vec<u64>, n: usize) -> Option<u64> {
    numbers.dedup();
    if numbers.len() <= n {
        return None;
    }
    let (smaller, nth, _) = numbers.select_nth_unstable(n);
    let nth = *nth;
    smaller.sort_unstable();
    if smaller.is_sorted_by(|a, b| a < b) && smaller.last() != Some(&nth) {
        return Some(nth);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers.get(n).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ItemTtl;
    use crate::base::hash::hash_key;
    use crate::base::record::Kind;

    fn statistics_of(keys: std::ops::Range<u32>, versions: u64) -> Statistics {
        let (mut collector, mut census) = (Collector::default(), Census::default());
        let mut last_key = vec![];
        for number in keys {
            let key = number.to_be_bytes();
            last_key = key.to_vec();
            for seq in (1..=versions).rev() {
                let record = RecordRef {
                    header: Header {
                        kind: Kind::Put,
                        seq: Seq(seq),
                        written_at: Timestamp(u64::from(number)),
                        ttl: [ItemTtl::Absent, ItemTtl::Never, ItemTtl::Millis(9)]
                            [number as usize % 3],
                    },
                    key: &key,
                    value_len: 100,
                };
                collector.add(&record, hash_key(&key), seq == versions);
                census.add(&record);
                collector.add_expiry(&record);
            }
        }
        collector.add_block(&census, &last_key);
        collector.finish(Settings::default())
    }

    #[test]
    fn statistics_read_back_and_nothing_less_does() {
        let statistics = statistics_of(0..50, 2);
        assert_eq!((statistics.records, statistics.keys), (100, 50));
        assert_eq!(statistics.sample.threshold, u64::MAX);
        assert_eq!(statistics.sample.records.len(), 100);
        let mut out = vec![];
        statistics.encode(&mut out);
        assert_eq!(
            Statistics::decode(&mut ByteReader::new(&out)),
            Ok(statistics)
        );
        for len in 0..out.len() {
            assert!(Statistics::decode(&mut ByteReader::new(&out[..len])).is_err());
        }
        out.push(0);
        assert!(Statistics::decode(&mut ByteReader::new(&out)).is_err());
    }

    #[test]
    fn ranks_are_near_the_truth_and_exact_among_few() {
        for (keys, off) in [(100u32, 0u64), (5_000, 32), (100_000, 512)] {
            let statistics = statistics_of(0..keys, 1);
            for (from, to) in [(0, 1), (0, keys / 2), (keys / 3, keys - 1), (7, 93)] {
                let near = |number: u32| {
                    let rank = statistics.rank(&number.to_be_bytes());
                    rank.abs_diff(u64::from(number)) <= off
                };
                assert!(near(from) && near(to), "{from}..{to} in {keys}");
            }
            assert_eq!(statistics.rank(&[]), 0);
            assert!(statistics.rank(&[0xff; 5]).abs_diff(u64::from(keys)) <= off.max(1));
        }
    }

    #[test]
    fn numbers_are_counted_once_wherever_they_stand() {
        let nth = |n| nth_distinct(vec![5, 5, 9, 1, 3, 1, 7, 3], n);
        let distinct = [1, 3, 5, 7, 9].map(Some);
        assert_eq!([0, 1, 2, 3, 4].map(nth), distinct);
        assert_eq!([5, 6, 7, 8, 9].map(nth), [None; 5]);
    }

    #[test]
    fn samples_are_complete_below_their_threshold() {
        // 120 bytes per record: all of few keys, the minimum of some, one fiftieth of more, and at most the
        // maximum.
        for (keys, versions, sampled) in [
            (256, 3, 256),
            (600, 3, SAMPLE_KEYS_LEAST),
            (2_000, 3, 720),
            (40_000, 1, SAMPLE_KEYS),
        ] {
            let sample = statistics_of(0..keys, versions).sample;
            assert_eq!(sample.records.len(), versions as usize * sampled);
            let mut hashes: Vec<u64> = (0..keys).map(|key| hash_key(&key.to_be_bytes())).collect();
            hashes.sort_unstable();
            let threshold = hashes.get(sampled).copied();
            assert_eq!(sample.threshold, threshold.unwrap_or(u64::MAX));
            let of_keys = sample.records.chunks(versions as usize);
            for (of_key, hash) in of_keys.zip(&hashes) {
                assert!(of_key.iter().all(|sampled| sampled.hash == *hash));
                assert!(
                    of_key
                        .iter()
                        .map(|sampled| sampled.header.seq.0)
                        .eq((1..=versions).rev())
                );
            }
        }
    }
}
