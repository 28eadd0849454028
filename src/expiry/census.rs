//! Life statistics of many records, kept so that they stay right under every change of the default: inheriting records
//! are counted by `written_at` and overriding ones by expiry, and only the question brings in the settings of *today*.
//!
//! ```text
//! Census   seq_min varint | seq_max - seq_min varint | tombstones | never | inheriting | overriding | longest varint
//! Tally    count varint | bytes varint
//! Lane     tally | [min varint | max - min varint, when count > 0]
//! ```
//!
//! A block, a table and a memtable have a census; how the records of a lane lie in time says a spread (spread.rs).

use crate::base::coding::{Malformed, Reader, put_varint};
use crate::base::record::Head;
use crate::base::{ItemTtl, Seq, Timestamp};
use crate::expiry::rule::{DefaultMillis, Judge, Settings};

/// How many records, and how many bytes by [`Head::weight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Tally {
    /// Counts these too.
    pub fn add(&mut self, other: Tally) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// What is left without these.
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

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Tally, Malformed> {
        Ok(Tally {
            count: reader.varint()?,
            bytes: reader.varint()?,
        })
    }
}

/// No record of this weight or less is heavy, in bytes.
pub const HEAVY_LEAST: u64 = 16 << 10;

/// A record of this weight holds so much of a memtable or table of so many bytes that it is sampled for its own sake: a
/// few such may hold most bytes. There are at most a thousand, and none among many equals.
pub fn is_heavy(weight: u64, bytes: u64) -> bool {
    weight > HEAVY_LEAST && weight.saturating_mul(1024) > bytes
}

/// Records that lie on a line of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// How many there are.
    pub tally: Tally,
    /// The earliest; [`Timestamp::MAX`] when there are none.
    pub min: Timestamp,
    /// The latest; 0 when there are none.
    pub max: Timestamp,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            tally: Tally::default(),
            min: Timestamp::MAX,
            max: Timestamp(0),
        }
    }
}

impl Lane {
    fn add(&mut self, at: Timestamp, bytes: u64) {
        self.tally.add(Tally { count: 1, bytes });
        self.min = self.min.min(at);
        self.max = self.max.max(at);
    }

    fn merge(&mut self, other: &Lane) {
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

    fn decode(reader: &mut Reader<'_>) -> Result<Lane, Malformed> {
        let tally = Tally::decode(reader)?;
        if tally.count == 0 {
            return Ok(Lane::default());
        }
        let min = reader.varint()?;
        let Some(max) = min.checked_add(reader.varint()?) else {
            return Err(reader.malformed("number out of range"));
        };
        Ok(Lane {
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
    /// Records that only hide.
    pub tombstones: Tally,
    /// Items that never expire by their own ttl.
    pub never: Tally,
    /// Items for which the default counts, by `written_at`.
    pub inheriting: Lane,
    /// Items with their own ttl, by expiry.
    pub overriding: Lane,
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
            inheriting: Lane::default(),
            overriding: Lane::default(),
            longest_ttl: 0,
        }
    }
}

impl Census {
    /// Counts one record.
    pub fn add(&mut self, head: &Head<'_>) {
        let (header, bytes) = (&head.header, head.weight());
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

    /// Counts all that `other` counted.
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

    /// The settings with the floors left out unless they stand above every record here: what can be said of all records
    /// at once.
    fn settings_for_all(&self, settings: &Settings) -> Settings {
        if self.seq_max < settings.floor_seq {
            *settings
        } else {
            Settings::new(settings.default)
        }
    }

    /// Certainly every record is a tombstone or gone. False may be a lack of detail: records on both sides of a floor.
    pub fn all_dead(&self, judge: &Judge) -> bool {
        if self.never.count > 0 {
            return false;
        }
        let settings = self.settings_for_all(&judge.settings);
        let inheriting_gone = self.inheriting.tally.count == 0
            || self.inheriting.max < settings.inherit_floor
            || matches!(settings.default, DefaultMillis::Millis(n) if self.inheriting.max.after(n) <= judge.now);
        let overriding_gone = self.overriding.tally.count == 0
            || self.overriding.max < settings.override_floor
            || (settings.default.is_on() && self.overriding.max <= judge.now);
        inheriting_gone && overriding_gone
    }

    /// Possibly some record is a tombstone or gone. False is certain.
    pub fn any_dead(&self, judge: &Judge) -> bool {
        let settings = &judge.settings;
        let floors = self.seq_min < settings.floor_seq;
        // The earliest moment of an empty lane never comes.
        self.tombstones.count > 0
            || (floors && self.inheriting.min < settings.inherit_floor)
            || matches!(settings.default, DefaultMillis::Millis(n) if self.inheriting.min.after(n) <= judge.now)
            || (floors && self.overriding.min < settings.override_floor)
            || (settings.default.is_on() && self.overriding.min <= judge.now)
    }

    /// When the last of the records expires if the settings stay: [`Timestamp::MAX`] when one never does. Floors are left
    /// out, so it may be later than the truth.
    pub fn last_expiry(&self, settings: &Settings) -> Timestamp {
        if self.never.count > 0 {
            return Timestamp::MAX;
        }
        let mut last = Timestamp(0);
        if self.inheriting.tally.count > 0 {
            last = last.max(match settings.default {
                DefaultMillis::Millis(n) => self.inheriting.max.after(n),
                _ => Timestamp::MAX,
            });
        }
        if self.overriding.tally.count > 0 {
            last = last.max(if settings.default.is_on() {
                self.overriding.max
            } else {
                Timestamp::MAX
            });
        }
        last
    }

    /// When the first of the records expires, or has expired, if the settings stay; `None` when none ever does.
    pub fn first_expiry(&self, settings: &Settings) -> Option<Timestamp> {
        let inheriting = match settings.default {
            DefaultMillis::Millis(n) if self.inheriting.tally.count > 0 => {
                Some(self.inheriting.min.after(n))
            }
            _ => None,
        };
        let overriding = (settings.default.is_on() && self.overriding.tally.count > 0)
            .then_some(self.overriding.min);
        inheriting.into_iter().chain(overriding).min()
    }

    /// The longest lifetime of a dated record under these settings, in milliseconds.
    pub fn longest_life(&self, settings: &Settings) -> u64 {
        match settings.default {
            DefaultMillis::Millis(n) if self.inheriting.tally.count > 0 => n.max(self.longest_ttl),
            DefaultMillis::Off => 0,
            _ => self.longest_ttl,
        }
    }

    /// Appends the picture in this file's head.
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
    pub fn decode(reader: &mut Reader<'_>) -> Result<Census, Malformed> {
        let seq_min = reader.varint()?;
        let Some(seq_max) = seq_min.checked_add(reader.varint()?) else {
            return Err(reader.malformed("number out of range"));
        };
        let mut census = Census {
            seq_min: Seq(seq_min),
            seq_max: Seq(seq_max),
            tombstones: Tally::decode(reader)?,
            never: Tally::decode(reader)?,
            inheriting: Lane::decode(reader)?,
            overriding: Lane::decode(reader)?,
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
    use crate::base::record::{Header, Kind};
    use proptest::prelude::*;

    fn head(seq: u64, written_at: u64, ttl: ItemTtl) -> Head<'static> {
        let header = Header {
            kind: Kind::Put,
            seq: Seq(seq),
            written_at: Timestamp(written_at),
            ttl,
        };
        Head {
            header,
            key: b"key",
            value_len: 81,
        }
    }

    fn any_head() -> impl Strategy<Value = Head<'static>> {
        let ttl = prop_oneof![
            3 => Just(Some(ItemTtl::Absent)),
            3 => (0u64..12).prop_map(|millis| Some(ItemTtl::Millis(millis))),
            1 => Just(Some(ItemTtl::Never)),
            1 => Just(None),
        ];
        (0u64..8, 0u64..12, ttl).prop_map(|(seq, written_at, ttl)| match ttl {
            Some(ttl) => head(seq, written_at, ttl),
            None => Head {
                header: Header::tombstone(Seq(seq), Timestamp(written_at)),
                key: b"key",
                value_len: 0,
            },
        })
    }

    fn any_judge() -> impl Strategy<Value = Judge> {
        let default = prop_oneof![
            Just(DefaultMillis::Off),
            Just(DefaultMillis::NoDefault),
            (1u64..12).prop_map(DefaultMillis::Millis)
        ];
        (default, 0u64..16, 0u64..24, 0u64..9, 0u64..24).prop_map(
            |(default, inherit_floor, override_floor, floor_seq, now)| {
                Judge::at(Timestamp(now), || Settings {
                    default,
                    inherit_floor: Timestamp(inherit_floor),
                    override_floor: Timestamp(override_floor),
                    floor_seq: Seq(floor_seq),
                })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]
        /// Goal: what a census says of its records is so. Method: each of them is asked; where floors concern some and not
        /// others, the census may say less.
        #[test]
        fn a_census_says_what_its_records_say(
            heads in prop::collection::vec(any_head(), 0..5),
            more in prop::collection::vec(any_head(), 0..3),
            judge in any_judge(),
        ) {
            let count = |heads: &[Head<'_>]| {
                let mut census = Census::default();
                heads.iter().for_each(|head| census.add(head));
                census
            };
            let mut census = count(&heads);
            census.merge(&count(&more));
            let heads = [heads, more].concat();
            prop_assert_eq!(census, count(&heads));
            let mut bytes = vec![];
            census.encode(&mut bytes);
            prop_assert_eq!(Census::decode(&mut Reader::new(&bytes)), Ok(census));

            let bytes = heads.iter().map(Head::weight).sum();
            prop_assert_eq!(census.total(), Tally { count: heads.len() as u64, bytes });
            let settings = &judge.settings;
            let (all, any) = (census.all_dead(&judge), census.any_dead(&judge));
            let all_are = heads.iter().all(|head| judge.dead(&head.header));
            let any_is = heads.iter().any(|head| judge.dead(&head.header));
            prop_assert!(!all || all_are, "{:?} under {:?}", heads, judge);
            prop_assert!(any || !any_is, "{:?} under {:?}", heads, judge);
            let before = heads.iter().filter(|head| head.header.seq < settings.floor_seq).count();
            if before == 0 || before == heads.len() {
                prop_assert_eq!((all, any), (all_are, any_is), "{:?} under {:?}", heads, judge);
            }

            let puts = || heads.iter().map(|head| &head.header).filter(|header| !header.is_tombstone());
            let expiries = || puts().map(|header| settings.expires_at(header));
            prop_assert_eq!(census.last_expiry(settings), expiries().max().unwrap_or_default());
            prop_assert_eq!(census.first_expiry(settings), expiries().filter(|at| *at < Timestamp::MAX).min());
            let lives = puts().filter(|header| settings.expires_at(header) < Timestamp::MAX);
            let longest = lives.map(|header| settings.expires_at(header).since(header.written_at)).max();
            prop_assert_eq!(census.longest_life(settings), longest.unwrap_or(0));
        }
    }

    #[test]
    fn heavy_is_more_than_a_thousandth_and_more_than_16_kib() {
        for (weight, bytes, heavy) in [
            (16_384, 0, false),
            (16_385, 0, true),
            (16_385, 16_385 * 1_024 - 1, true),
            (16_385, 16_385 * 1_024, false),
            (1_000, 1_000, false),
        ] {
            assert_eq!(is_heavy(weight, bytes), heavy, "{weight} of {bytes}");
        }
    }

    #[test]
    fn what_is_taken_away_is_not_counted() {
        let tally = |count, bytes| Tally { count, bytes };
        assert_eq!(tally(5, 70).less(tally(2, 30)), tally(3, 40));
        assert_eq!(tally(5, 70).less(tally(6, 80)), tally(0, 0));
    }

    #[test]
    fn a_lane_does_not_reach_beyond_time() {
        for (difference, fits) in [(0, true), (1, false)] {
            // Numbers, tombstones, never; one inheriting record, at the last moment there is.
            let mut bytes = vec![1, 0, 0, 0, 0, 0, 1, 29];
            put_varint(&mut bytes, u64::MAX);
            bytes.extend([difference, 0, 0, 0]);
            let decoded = Census::decode(&mut Reader::new(&bytes));
            assert_eq!(decoded.is_ok(), fits, "{decoded:?}");
        }
    }

    #[test]
    fn both_lanes_are_judged_by_the_settings_of_today() {
        let mut census = Census::default();
        for (seq, written_at, ttl) in [
            (3, 100, ItemTtl::Absent),
            (5, 200, ItemTtl::Absent),
            (4, 100, ItemTtl::Millis(500)),
        ] {
            census.add(&head(seq, written_at, ttl));
        }
        let judge = |default, now| Judge::at(Timestamp(now), || Settings::new(default));
        assert!(!census.all_dead(&judge(DefaultMillis::Off, u64::MAX)));
        assert!(!census.all_dead(&judge(DefaultMillis::NoDefault, 10_000)));
        assert!(!census.all_dead(&judge(DefaultMillis::Millis(50), 599)));
        assert!(census.all_dead(&judge(DefaultMillis::Millis(50), 600)));
        assert!(census.any_dead(&judge(DefaultMillis::Millis(50), 150)));
        assert!(!census.any_dead(&judge(DefaultMillis::Millis(50), 149)));
        let floors = judge(DefaultMillis::Millis(50), 700).settings.change(
            DefaultMillis::Off,
            Timestamp(700),
            Seq(6),
        );
        assert!(census.all_dead(&Judge::at(Timestamp(0), || floors)));
        assert_eq!(
            census.total(),
            Tally {
                count: 3,
                bytes: 300
            }
        );
        let mut bytes = vec![];
        census.encode(&mut bytes);
        assert_eq!(Census::decode(&mut Reader::new(&bytes)), Ok(census));
    }
}
