//! The census: life statistics of many records that stay right under every change of the default. Inheriting records
//! are counted by `written_at` and overriding ones by expiry; a question brings in the settings of *today*.
//!
//! ```text
//! Census   seq_min varint | seq_max - seq_min varint | tombstones | never | inheriting | overriding | longest varint
//! Tally    count varint | bytes varint
//! TtlClass tally | [min varint | max - min varint, when count > 0]
//! ```
//!
//! A block, a table and a memtable have a census. An expiry histogram says how the records of a ttl class are
//! distributed in time (histogram.rs); ttl_classes.rs answers questions about a census under the settings of today.

use crate::base::coding::{ByteReader, Malformed, put_varint};
use crate::base::record::{Header, RecordRef};
use crate::base::{ItemTtl, Seq, Timestamp};

/// A number of records, and of bytes by [`RecordRef::weight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    /// Adds another tally.
    pub fn add(&mut self, other: Tally) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Subtracts another tally.
    pub fn less(self, other: Tally) -> Tally {
        Tally {
            count: self.count.saturating_sub(other.count),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_varint(out, self.bytes);
    }

    pub(super) fn decode(reader: &mut ByteReader<'_>) -> Result<Tally, Malformed> {
        Ok(Tally {
            count: reader.varint()?,
            bytes: reader.varint()?,
        })
    }
}

/// The weight up to which no record is oversized, in bytes.
pub const OVERSIZED_LEAST: u64 = 16 << 10;

/// Whether a record of this weight holds so much of a memtable or table of this many bytes that it is always sampled: a
/// few such records may hold most bytes. There are at most a thousand, and none among many of equal weight.
pub fn is_oversized(weight: u64, bytes: u64) -> bool {
    weight > OVERSIZED_LEAST && weight.saturating_mul(1024) > bytes
}

/// Records by a moment each has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlClass {
    /// How many there are.
    pub tally: Tally,
    /// The earliest; [`Timestamp::MAX`] when there are none.
    pub min: Timestamp,
    /// The latest; 0 when there are none.
    pub max: Timestamp,
}

impl Default for TtlClass {
    fn default() -> Self {
        TtlClass {
            tally: Tally::default(),
            min: Timestamp::MAX,
            max: Timestamp(0),
        }
    }
}

impl TtlClass {
    fn add(&mut self, at: Timestamp, bytes: u64) {
        self.tally.add(Tally { count: 1, bytes });
        self.min = self.min.min(at);
        self.max = self.max.max(at);
    }

    fn merge(&mut self, other: &TtlClass) {
        self.tally.add(other.tally);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.tally.encode(out);
        if self.tally.count > 0 {
            put_varint(out, self.min.0);
            put_varint(out, self.max.0 - self.min.0);
        }
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<TtlClass, Malformed> {
        let tally = Tally::decode(reader)?;
        if tally.count == 0 {
            return Ok(TtlClass::default());
        }
        let min = reader.varint()?;
        let Some(max) = min.checked_add(reader.varint()?) else {
            return Err(reader.malformed("number out of range"));
        };
        Ok(TtlClass {
            tally,
            min: Timestamp(min),
            max: Timestamp(max),
        })
    }
}

/// The life statistics of a block, a table or a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// The lowest sequence number; [`Seq::MAX`] when there are no records.
    pub seq_min: Seq,
    /// The highest sequence number.
    pub seq_max: Seq,
    /// Tombstones.
    pub tombstones: Tally,
    /// Items that never expire by their own ttl.
    pub never: Tally,
    /// Items with the default ttl, by `written_at`.
    pub inheriting: TtlClass,
    /// Items with their own ttl, by expiry.
    pub overriding: TtlClass,
    /// The longest ttl of an overriding item, in milliseconds.
    pub longest_ttl: u64,
}

impl Default for Census {
    fn default() -> Self {
        Census {
            seq_min: Seq::MAX,
            seq_max: Seq(0),
            tombstones: Tally::default(),
            never: Tally::default(),
            inheriting: TtlClass::default(),
            overriding: TtlClass::default(),
            longest_ttl: 0,
        }
    }
}

impl Census {
    /// Adds one record.
    pub fn add(&mut self, record: &RecordRef<'_>) {
        let (header, bytes) = (&record.header, record.weight());
        self.seq_min = self.seq_min.min(header.seq);
        self.seq_max = self.seq_max.max(header.seq);
        match header.ttl {
            _ if header.is_tombstone() => self.tombstones.add(Tally { count: 1, bytes }),
            ItemTtl::Never => self.never.add(Tally { count: 1, bytes }),
            ItemTtl::Absent => self.inheriting.add(header.written_at, bytes),
            ItemTtl::Millis(millis) => {
                self.overriding.add(header.written_at.after(millis), bytes);
                self.longest_ttl = self.longest_ttl.max(millis);
            }
        }
    }

    /// The census of records of one kind with one ttl: their number and bytes, and headers with their lowest numbers and
    /// with their highest.
    pub fn of_alike(lowest: &Header, highest: &Header, tally: Tally) -> Census {
        let mut census = Census {
            seq_min: lowest.seq,
            seq_max: highest.seq,
            ..Census::default()
        };
        let class = |min, max| TtlClass { tally, min, max };
        let (first, last) = (lowest.written_at, highest.written_at);
        match lowest.ttl {
            _ if lowest.is_tombstone() => census.tombstones = tally,
            ItemTtl::Never => census.never = tally,
            ItemTtl::Absent => census.inheriting = class(first, last),
            ItemTtl::Millis(millis) => {
                census.overriding = class(first.after(millis), last.after(millis));
                census.longest_ttl = millis;
            }
        }
        census
    }

    /// Adds another census.
    pub fn merge(&mut self, other: &Census) {
        self.seq_min = self.seq_min.min(other.seq_min);
        self.seq_max = self.seq_max.max(other.seq_max);
        self.tombstones.add(other.tombstones);
        self.never.add(other.never);
        self.inheriting.merge(&other.inheriting);
        self.overriding.merge(&other.overriding);
        self.longest_ttl = self.longest_ttl.max(other.longest_ttl);
    }

    /// All records.
    pub fn total(&self) -> Tally {
        let mut total = self.tombstones;
        total.add(self.never);
        total.add(self.inheriting.tally);
        total.add(self.overriding.tally);
        total
    }

    /// Appends the bytes shown in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let seq_min = self.seq_min.min(self.seq_max);
        put_varint(out, seq_min.0);
        put_varint(out, self.seq_max.0 - seq_min.0);
        self.tombstones.encode(out);
        self.never.encode(out);
        self.inheriting.encode(out);
        self.overriding.encode(out);
        put_varint(out, self.longest_ttl);
    }

    /// Reads what [`Census::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Census, Malformed> {
        let seq_min = reader.varint()?;
        let Some(seq_max) = seq_min.checked_add(reader.varint()?) else {
            return Err(reader.malformed("number out of range"));
        };
        let mut census = Census {
            seq_min: Seq(seq_min),
            seq_max: Seq(seq_max),
            tombstones: Tally::decode(reader)?,
            never: Tally::decode(reader)?,
            inheriting: TtlClass::decode(reader)?,
            overriding: TtlClass::decode(reader)?,
            longest_ttl: reader.varint()?,
        };
        if census.total().count == 0 {
            census.seq_min = Seq::MAX;
        }
        Ok(census)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_is_more_than_a_thousandth_and_more_than_16_kib() {
        for (weight, bytes, oversized) in [
            (16_384, 0, false),
            (16_385, 0, true),
            (16_385, 16_385 * 1_024 - 1, true),
            (16_385, 16_385 * 1_024, false),
            (1_000, 1_000, false),
        ] {
            assert_eq!(
                is_oversized(weight, bytes),
                oversized,
                "{weight} of {bytes}"
            );
        }
    }

    #[test]
    fn what_is_taken_away_is_not_counted() {
        let tally = |count, bytes| Tally { count, bytes };
        assert_eq!(tally(5, 70).less(tally(2, 30)), tally(3, 40));
        assert_eq!(tally(5, 70).less(tally(6, 80)), tally(0, 0));
    }

    #[test]
    fn a_ttl_class_does_not_reach_beyond_time() {
        for (difference, fits) in [(0, true), (1, false)] {
            // Numbers, tombstones, never; one inheriting record, at the last moment there is.
            let mut bytes = vec![1, 0, 0, 0, 0, 0, 1, 29];
            put_varint(&mut bytes, u64::MAX);
            bytes.extend([difference, 0, 0, 0]);
            let decoded = Census::decode(&mut ByteReader::new(&bytes));
            assert_eq!(decoded.is_ok(), fits, "{decoded:?}");
        }
    }
}
