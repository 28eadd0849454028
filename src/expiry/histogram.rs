//! The expiry histogram: how records are distributed in time, in some hundred buckets. It tells how many are expired
//! now, under the settings of now.
//!
//! ```text
//! ExpiryHistogram   buckets varint | (from, as difference to the end before, varint | to - from varint | tally)*
//! ```
//!
//! A bucket reaches from its earliest record to its latest. Buckets are narrow where the records are: when there are
//! too many, neighbours that together hold a small share of the records and of their bytes are joined. So lifetimes
//! over five orders of magnitude, and values of which one in a hundred holds nearly all bytes, are represented as well
//! as even ones: the error of an answer is part of one bucket.
//!
//! ```text
//! ends      |||||||                  ||||||||                                              ||||
//! buckets   [--][-]                  [-][---]                                              [--]
//! ```
//!
//! A wide *gap* is kept: lifetimes of 5 s, 30 s and 7 d are three groups of ends, between which nothing ends, and a bucket
//! across a gap would spread its records over it. A bucket may still have been joined across a time in which there were no
//! records, and some may come later: so one that has become too large is cut at the record that comes.

use crate::base::coding::{ByteReader, Malformed, put_varint};
use crate::base::record::{Header, RecordRef};
use crate::base::{ItemTtl, Timestamp};
use crate::expiry::census::{Census, Tally};

/// With more buckets than this, neighbours are joined.
const MOST: usize = 256;
/// About this many are left then. Each holds at most 4 in 128 of the records or of the bytes, unless it is of one
/// moment.
const FEW: u64 = 128;
/// And at most so many more beside gaps.
const GAPS: usize = 32;
/// A gap is wide if it is more than so many times as wide as what is beside it: of random moments one in 25 is.
const WIDE: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    from: Timestamp,
    to: Timestamp,
    tally: Tally,
}

impl Bucket {
    /// An estimate of its records at or before `moment`: there are some at both ends, and the rest is assumed even.
    fn up_to(&self, moment: Timestamp) -> Tally {
        let Tally { count, bytes } = self.tally;
        if moment >= self.to {
            return self.tally;
        }
        let width = u128::from(self.to.since(self.from)).max(1);
        let passed = u128::from(moment.since(self.from));
        let between = u128::from(count.saturating_sub(2)) * passed / width;
        let count_up_to = (between as u64 + 1).min(count);
        Tally {
            count: count_up_to,
            bytes: (u128::from(bytes) * u128::from(count_up_to) / u128::from(count.max(1))) as u64,
        }
    }
}

impl Bucket {
    /// Cuts the bucket at a moment: the part before it, the moment alone with `tally` added, and the part behind it.
    fn cut(&self, at: Timestamp, tally: Tally) -> [Option<Bucket>; 3] {
        let before = match at > self.from {
            true => self.up_to(at.before(1)),
            false => Tally::default(),
        };
        let piece = |from, to, tally| Bucket { from, to, tally };
        let behind = self.tally.less(before);
        let (own, behind) = match at < self.to {
            true => (tally, Some(piece(at.after(1), self.to, behind))),
            false => {
                let mut own = tally;
                own.add(behind);
                (own, None)
            }
        };
        let before = (at > self.from).then(|| piece(self.from, at.before(1), before));
        [before, Some(piece(at, at, own)), behind]
    }
}

/// The distribution in time of the records of one ttl class.
#[derive(Clone, Debug, Default)]
pub struct ExpiryHistogram {
    /// Ascending, without overlap.
    buckets: Vec<Bucket>,
    /// A bucket with more records or bytes than joined ones may have, as of the last joining, is cut.
    most: Tally,
}

impl PartialEq for ExpiryHistogram {
    fn eq(&self, other: &Self) -> bool {
        self.buckets == other.buckets
    }
}

impl Eq for ExpiryHistogram {}

impl ExpiryHistogram {
    /// Adds `tally` at a moment.
    pub fn add(&mut self, at: Timestamp, tally: Tally) {
        // Records often come in the order of time, and many in one moment.
        let place = match self.buckets.last() {
            Some(last) if last.to < at => self.buckets.len(),
            Some(last) if last.from <= at => self.buckets.len() - 1,
            _ => self.buckets.partition_point(|bucket| bucket.to < at),
        };
        match self.buckets.get_mut(place) {
            Some(bucket) if bucket.from <= at => {
                let is_large =
                    bucket.tally.count > self.most.count || bucket.tally.bytes > self.most.bytes;
                if !is_large || bucket.from == bucket.to {
                    return bucket.tally.add(tally);
                }
                let pieces = bucket.cut(at, tally);
                self.buckets
                    .splice(place..=place, pieces.into_iter().flatten());
            }
            _ => {
                let bucket = Bucket {
                    from: at,
                    to: at,
                    tally,
                };
                self.buckets.insert(place, bucket);
            }
        }
        if self.buckets.len() > MOST {
            self.thin();
        }
    }

    /// Whether there is a bucket of this moment alone.
    fn has_own(&self, at: Timestamp) -> bool {
        let place = self.buckets.partition_point(|bucket| bucket.to < at);
        let bucket = self.buckets.get(place);
        bucket.is_some_and(|bucket| bucket.from == at && bucket.to == at)
    }

    /// Joins neighbours that together hold at most 4 in [`FEW`] of the records and bytes, where the sum of the two
    /// shares is 2, and between which no wide gap is. Of any two neighbours left without one between them, one holds more
    /// than half of that, so at most `FEW` + 1 are left, and one for each gap. With too many gaps only wider ones count.
    pub fn thin(&mut self) {
        let mut total = Tally::default();
        self.buckets
            .iter()
            .for_each(|bucket| total.add(bucket.tally));
        self.most = Tally {
            count: total.count / (FEW / 4),
            bytes: total.bytes / (FEW / 4),
        };
        let mut wide = WIDE;
        self.join(total, wide);
        while self.buckets.len() > FEW as usize + 1 + GAPS {
            wide = wide.saturating_mul(16);
            self.join(total, wide);
        }
    }

    /// Joins neighbours of a small share of `total`, but not across gaps that are `wide`.
    fn join(&mut self, total: Tally, wide: u64) {
        let (count, bytes) = (u128::from(total.count), u128::from(total.bytes));
        let most = count.saturating_mul(bytes) / u128::from(FEW / 4);
        let share = |tally: &Tally| {
            let by_count = u128::from(tally.count) * bytes;
            by_count.saturating_add(u128::from(tally.bytes) * count)
        };
        let mut gaps = self.gaps(wide).into_iter();
        self.buckets.dedup_by(|next, before| {
            let mut joined = before.tally;
            joined.add(next.tally);
            let is_gap = gaps.next().unwrap_or(false);
            let joins = !is_gap && share(&joined) <= most;
            if joins {
                (before.to, before.tally) = (next.to, joined);
            }
            joins
        });
    }

    /// Whether a gap that is so many times as wide as what is beside it, the two buckets and the time between them and the
    /// next on either side, is before the second bucket, the third, and so on.
    fn gaps(&self, wide: u64) -> Vec<bool> {
        let buckets = &self.buckets;
        let gap = |at: usize| match (at.checked_sub(1), buckets.get(at)) {
            (Some(before), Some(bucket)) => bucket.from.since(buckets[before].to),
            _ => 0,
        };
        let width = |at: usize| buckets[at].to.since(buckets[at].from);
        let is_gap = |at: usize| {
            let parts = [gap(at - 1), width(at - 1), width(at), gap(at + 1)];
            let beside = parts.into_iter().fold(0, u64::saturating_add);
            gap(at) > wide.saturating_mul(beside)
        };
        (1..buckets.len()).map(is_gap).collect()
    }

    /// The buckets: the latest moment and the tally of each.
    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, Tally)> + '_ {
        self.buckets.iter().map(|bucket| (bucket.to, bucket.tally))
    }

    /// An estimate of the records at or before `moment`: exact except for the one bucket around it.
    pub fn up_to(&self, moment: Timestamp) -> Tally {
        let mut sum = Tally::default();
        self.buckets
            .iter()
            .take_while(|bucket| bucket.from <= moment)
            .for_each(|bucket| sum.add(bucket.up_to(moment)));
        sum
    }

    /// Appends the bytes shown in this file's head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.buckets.len() as u64);
        let mut before = Timestamp(0);
        for bucket in &self.buckets {
            put_varint(out, bucket.from.since(before));
            put_varint(out, bucket.to.since(bucket.from));
            bucket.tally.encode(out);
            before = bucket.to;
        }
    }

    /// Reads what [`ExpiryHistogram::encode`] wrote.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<ExpiryHistogram, Malformed> {
        let count = reader.varint_up_to(MOST as u64)?;
        let (mut before, mut buckets) = (0u64, Vec::with_capacity(count as usize));
        for index in 0..count {
            let step = reader.varint()?;
            let from = before.checked_add(step);
            let width = reader.varint()?;
            let (Some(from), Some(to)) = (from, from.and_then(|from| from.checked_add(width)))
            else {
                return Err(reader.malformed("number out of range"));
            };
            if index > 0 && step == 0 {
                return Err(reader.malformed("buckets that overlap"));
            }
            let tally = Tally::decode(reader)?;
            buckets.push(Bucket {
                from: Timestamp(from),
                to: Timestamp(to),
                tally,
            });
            before = to;
        }
        Ok(ExpiryHistogram {
            buckets,
            most: Tally::default(),
        })
    }
}

/// The histograms of the puts that expire at some time, one for each ttl class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiryHistograms {
    /// The inheriting ones, by `written_at`.
    pub inheriting: ExpiryHistogram,
    /// The overriding ones, by expiry.
    pub overriding: ExpiryHistogram,
}

impl ExpiryHistograms {
    /// Adds a record, if it is a put that may expire.
    #[inline]
    pub fn add(&mut self, header: &Header, bytes: u64) {
        let tally = Tally { count: 1, bytes };
        match header.ttl {
            _ if header.is_tombstone() => {}
            ItemTtl::Never => {}
            ItemTtl::Absent => self.inheriting.add(header.written_at, tally),
            ItemTtl::Millis(millis) => self.overriding.add(header.written_at.after(millis), tally),
        }
    }

    /// Adds the records of a block with this census, as [`ExpiryHistograms::add`] does one after the other.
    pub fn add_block<'a>(
        &mut self,
        census: &Census,
        mut records: impl Iterator<Item = RecordRef<'a>>,
    ) {
        let all = census.total();
        for (class, histogram) in [
            (&census.inheriting, &mut self.inheriting),
            (&census.overriding, &mut self.overriding),
        ] {
            // The first record makes the bucket, and may make the histogram join others by what it weighs then.
            if class.tally == all
                && class.min == class.max
                && let Some(first) = records.next()
            {
                let (count, bytes) = (1, first.weight());
                histogram.add(class.min, Tally { count, bytes });
                if histogram.has_own(class.min) {
                    histogram.add(class.min, all.less(Tally { count, bytes }));
                    return;
                }
            }
        }
        records.for_each(|record| self.add(&record.header, record.weight()));
    }

    /// Adds other histograms, each bucket as if all of it were at its end.
    pub fn merge(&mut self, other: &ExpiryHistograms) {
        let add_all = |class: &mut ExpiryHistogram, other: &ExpiryHistogram| {
            other.iter().for_each(|(at, tally)| class.add(at, tally));
        };
        add_all(&mut self.inheriting, &other.inheriting);
        add_all(&mut self.overriding, &other.overriding);
    }

    /// Joins buckets until they are few enough to be stored.
    pub fn thin(&mut self) {
        self.inheriting.thin();
        self.overriding.thin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Seq;
    use crate::base::record::Kind;
    use crate::expiry::command::Expire;
    use crate::expiry::rule::{DefaultMillis, ExpiryView, Settings, SettingsChange};

    fn histogram_of(records: &[(u64, u64)]) -> ExpiryHistogram {
        let mut histogram = ExpiryHistogram::default();
        for &(at, bytes) in records {
            histogram.add(Timestamp(at), Tally { count: 1, bytes });
        }
        histogram.thin();
        histogram
    }

    /// SplitMix64: pseudo-random numbers.
    fn mixed(n: u64) -> u64 {
        let z = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Goal: few buckets, and a small error, whatever they hold. Method: records in order of time and in none; even,
    /// over five orders of magnitude, and with one value in a hundred a thousand times as large.
    #[test]
    fn a_spread_stays_small_and_near_the_truth() {
        let even = |n: u64| 1_000_000 + n * 10;
        let orders = |n: u64| 1_000 + (10f64.powf(mixed(n) as f64 / u64::MAX as f64 * 5.0)) as u64;
        let times: [(&str, &dyn Fn(u64) -> u64); 3] = [
            ("in order", &even),
            ("mixed", &|n| even(mixed(n) % 20_000)),
            ("over five orders", &orders),
        ];
        for (name, time) in times {
            for heavy in [1, 1_000] {
                let bytes = |n: u64| if n % 100 == 7 { 100 * heavy } else { 100 };
                let mut records: Vec<(u64, u64)> =
                    (0..20_000).map(|n| (time(n), bytes(n))).collect();
                let histogram = histogram_of(&records);
                assert!(histogram.buckets.len() <= FEW as usize + 1 + GAPS);
                records.sort_unstable();
                let total: u64 = records.iter().map(|record| record.1).sum();
                let (mut count, mut sum) = (0u64, 0u64);
                for (nth, &(at, bytes)) in records.iter().enumerate() {
                    (count, sum) = (count + 1, sum + bytes);
                    if records.get(nth + 1).is_some_and(|next| next.0 == at) {
                        continue;
                    }
                    let found = histogram.up_to(Timestamp(at));
                    assert!(
                        found.count.abs_diff(count) * 50 <= records.len() as u64
                            && found.bytes.abs_diff(sum) * 33 <= total,
                        "{name}, {heavy}: {found:?} for {count} of {sum} bytes"
                    );
                }
                assert_eq!(histogram.up_to(Timestamp::MAX).bytes, total);
            }
        }
    }

    /// Goal: records may come at any time, also where there were none for long. Method: some that end within a minute, while
    /// time goes on, beside others that end within hours and days; and few that end at any time of a month before many that
    /// end within one minute of it.
    #[test]
    fn what_comes_into_a_gap_is_told() {
        let (mut moving, mut now) = (vec![], 1_000_000);
        for n in 0..30_000 {
            now += mixed(n) % 40;
            let life = match n % 4 {
                0 => mixed(n + 1) % 60_000,
                1 => 3_600_000 + mixed(n + 1) % 3_600_000,
                _ => 86_400_000 * (1 + mixed(n + 1) % 30),
            };
            moving.push((now + life, 100 + mixed(n) % 100));
        }
        let month = 30 * 86_400_000;
        let filled = (0..30_000).map(|n| match n {
            ..3_000 => (mixed(n) % month, 100),
            _ => (month / 2 + mixed(n) % 60_000, 100),
        });
        told_within_a_thirtieth(moving);
        told_within_a_thirtieth(filled.collect());
    }

    fn told_within_a_thirtieth(mut records: Vec<(u64, u64)>) {
        let histogram = histogram_of(&records);
        assert!(histogram.buckets.len() <= FEW as usize + 1 + GAPS);
        records.sort_unstable();
        let total: u64 = records.iter().map(|record| record.1).sum();
        for (nth, &(at, _)) in records.iter().enumerate().step_by(100) {
            let found = histogram.up_to(Timestamp(at));
            let bytes: u64 = records[..=nth].iter().map(|record| record.1).sum();
            assert!(
                found.bytes.abs_diff(bytes) * 33 <= total,
                "{found:?} for {nth}"
            );
        }
    }

    /// Goal: what ends between two groups of ends is none, however the groups grow. Method: items of a few lifetimes, one
    /// after the other, asked at the end of each group and before the next.
    #[test]
    fn wide_gaps_are_kept() {
        let lives = [5_000, 30_000, 600_000, 7 * 86_400_000];
        for each_takes in [1, 7] {
            let written: Vec<u64> = (0..20_000).map(|n| n / 8 * each_takes).collect();
            let ends = written
                .iter()
                .zip(0u64..)
                .map(|(at, n)| at + lives[mixed(n) as usize % lives.len()]);
            let records: Vec<(u64, u64)> = ends.map(|end| (end, 100)).collect();
            let histogram = histogram_of(&records);
            assert!(histogram.buckets.len() <= FEW as usize + 1 + GAPS);
            for life in lives {
                let last = life + written[written.len() - 1];
                for at in [last, last + 1_000, life - 1] {
                    let are = records.iter().filter(|record| record.0 <= at).count();
                    let found = histogram.up_to(Timestamp(at)).count as usize;
                    let in_a_gap = records.iter().all(|record| record.0.abs_diff(at) > 500);
                    let off = if in_a_gap { 0 } else { records.len() / 100 };
                    assert!(found.abs_diff(are) <= off, "{found} of {are} by {at}");
                }
            }
        }
    }

    /// Goal: a histogram stays small, whatever the gaps. Method: pairs, pairs of pairs and so on, each twice, four times, a
    /// hundred times as far apart.
    #[test]
    fn there_are_never_too_many_gaps() {
        for wider in [2u64, 5, 100] {
            let place = |n: u64| {
                let bits = (0..9).filter(|bit| n >> bit & 1 == 1);
                bits.map(|bit| wider.pow(bit)).sum::<u64>()
            };
            let records: Vec<(u64, u64)> = (0..4_096).map(|n| (place(n % 512), 100)).collect();
            let histogram = histogram_of(&records);
            assert!(histogram.buckets.len() <= FEW as usize + 1 + GAPS);
            let (mut bytes, total) = (
                vec![],
                Tally {
                    count: 4_096,
                    bytes: 409_600,
                },
            );
            histogram.encode(&mut bytes);
            assert!(ExpiryHistogram::decode(&mut ByteReader::new(&bytes)).is_ok());
            assert_eq!(histogram.up_to(Timestamp::MAX), total);
        }
    }

    #[test]
    fn few_moments_are_told_exactly_and_read_back() {
        let histogram = histogram_of(&[(100, 7), (300, 1), (200, 2), (100, 1), (u64::MAX, 4)]);
        for (at, bytes) in [(99, 0), (100, 8), (199, 8), (200, 10), (300, 11)] {
            assert_eq!(histogram.up_to(Timestamp(at)).bytes, bytes, "at {at}");
        }
        let mut bytes = vec![];
        histogram.encode(&mut bytes);
        assert_eq!(
            ExpiryHistogram::decode(&mut ByteReader::new(&bytes)),
            Ok(histogram)
        );
        for len in 0..bytes.len() {
            assert!(ExpiryHistogram::decode(&mut ByteReader::new(&bytes[..len])).is_err());
        }
    }

    /// Goal: the expired records follow every change of the settings. Method: compared with the rule, record by record.
    #[test]
    fn gone_is_what_the_rule_says() {
        let header = |n: u64| Header {
            kind: Kind::Put,
            seq: Seq(n + 1),
            written_at: Timestamp(1_000 + n),
            ttl: [ItemTtl::Absent, ItemTtl::Millis(30), ItemTtl::Never][n as usize % 3],
        };
        let mut histograms = ExpiryHistograms::default();
        let mut census = Census::default();
        for n in 0..100 {
            let record = RecordRef {
                header: header(n),
                key: b"k",
                value_len: 0,
            };
            histograms.add(&record.header, record.weight());
            census.add(&record);
        }
        let puts = census.total();
        let mut settings = Settings::new(DefaultMillis::Off);
        let default = SettingsChange::Default;
        let expire = SettingsChange::Expire;
        for (at, change) in [
            (1_100, default(DefaultMillis::Millis(50))),
            (1_120, default(DefaultMillis::Off)),
            (1_200, default(DefaultMillis::NoDefault)),
            (1_201, expire(Expire::Before(Timestamp(1_220)))),
            (1_210, default(DefaultMillis::Millis(1_000))),
            (1_211, expire(Expire::Before(Timestamp(2_080)))),
            (1_212, expire(Expire::WrittenBefore(Timestamp(1_090)))),
            (1_213, expire(Expire::All)),
        ] {
            settings = settings.after(change, Timestamp(at), Seq(at));
            for now in [at, at + 5, at + 90] {
                let now = Timestamp(now);
                let view = ExpiryView::at(now, || settings.clone());
                let headers: Vec<Header> = (0..100).map(header).collect();
                let gone = headers.iter().filter(|header| settings.gone(header, now));
                let sample = headers.iter().map(|header| (10, header));
                let found = histograms.gone(&view, &census, puts, sample).count;
                assert_eq!(found, gone.count() as u64, "{change:?} at {now:?}");
            }
        }
    }
}
