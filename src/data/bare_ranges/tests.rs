//! Goal: no reader finds an item where its ranges are bare. Method: random histories of puts, deletes, and readers of now
//! and of earlier numbers, which hand in what they found late, with writes in between.

use std::collections::BTreeMap;

use super::*;
use crate::base::record::Kind;
use crate::base::{ItemTtl, Timestamp};

/// Numbers by chance (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

const KEYS: u64 = 40;

fn key(n: u64) -> Vec<u8> {
    format!("{n:02}").into_bytes()
}

fn put(seq: Seq) -> Header {
    Header {
        kind: Kind::Put,
        seq,
        written_at: Timestamp(1),
        ttl: ItemTtl::Absent,
    }
}

/// All versions of each key, newest last: whether it is a put.
#[derive(Default)]
struct History {
    last: Seq,
    versions: BTreeMap<Vec<u8>, Vec<(Seq, bool)>>,
}

impl History {
    fn write(&mut self, ranges: &BareRanges, key: Vec<u8>, is_put: bool) {
        self.last = self.last.next();
        let header = match is_put {
            true => put(self.last),
            false => Header::tombstone(self.last, Timestamp(1)),
        };
        ranges.note(&header, &key);
        let versions = self.versions.entry(key).or_default();
        versions.push((self.last, is_put));
    }

    fn shows(&self, key: &[u8], max: Seq) -> bool {
        let versions = self.versions.get(key).into_iter().flatten();
        let newest = versions.rev().find(|(seq, _)| *seq <= max);
        newest.is_some_and(|(_, is_put)| *is_put)
    }

    /// The widest range about a key, up to these bounds, in which a reader at `max` finds nothing.
    fn found(&self, max: Seq, (low, at, high): (u64, u64, u64)) -> BareRange {
        let shows = |n: &u64| self.shows(&key(*n), max);
        let below = (low..at).rev().find(shows);
        let above = (at..high).find(shows).unwrap_or(high);
        let range = KeyRange {
            from: below.map_or(key(low), |below| after(&key(below))),
            to: (above < KEYS).then(|| key(above)),
        };
        let passed = PASSED_LEAST;
        BareRange { range, passed }
    }
}

#[test]
fn no_reader_finds_an_item_in_its_bare_ranges() {
    let (mut bare, mut waited) = (0, 0);
    for seed in 0..100 {
        let (mut dice, ranges, mut history) =
            (Dice(seed), BareRanges::default(), History::default());
        let puts = 1 + dice.below(3);
        let mut late: Vec<(BareRange, Seq)> = vec![];
        for _ in 0..120 {
            match dice.below(8) {
                0..4 => {
                    let is_put = dice.below(4) < puts;
                    history.write(&ranges, key(dice.below(KEYS)), is_put);
                }
                4..6 => {
                    let max = Seq(history.last.0 - dice.below(history.last.0.min(4) + 1));
                    let at = dice.below(KEYS);
                    let (low, high) = (dice.below(at + 1), at + dice.below(KEYS - at + 1));
                    late.push((history.found(max, (low, at, high)), max));
                }
                _ => {}
            }
            while !late.is_empty() && dice.below(2) == 0 {
                let (found, max) = late.swap_remove(dice.below(late.len() as u64) as usize);
                if !ranges.learn(&found, max).is_empty() && dice.below(4) > 0 {
                    let is_bare = history.last <= max;
                    waited += u64::from(!is_bare);
                    ranges.watch(&found, (history.last, is_bare, max));
                }
            }
            for max in [history.last.0, history.last.0.saturating_sub(dice.below(6))] {
                for n in 0..KEYS {
                    let around = ranges.around(&key(n), Seq(max));
                    let before = ranges.before(Some(&key(n)), Seq(max));
                    for range in around.into_iter().chain(before) {
                        bare += 1;
                        let shown = (0..KEYS).map(key).filter(|key| range.contains(key));
                        let mut shown = shown.filter(|key| history.shows(key, Seq(max)));
                        assert_eq!(shown.next(), None, "seed {seed}, at {max} in {range:?}");
                    }
                }
            }
        }
    }
    assert!(bare > 10_000 && waited > 50, "{bare}, {waited}");
}

#[test]
fn what_was_watched_is_bare_for_the_next_reader_and_its_parts_join() {
    let ranges = BareRanges::default();
    let found = |from: &str, to: &str| BareRange {
        range: KeyRange {
            from: from.into(),
            to: Some(to.into()),
        },
        passed: PASSED_LEAST,
    };
    let first = found("b", "m");
    assert_eq!(
        ranges.learn(&first, Seq(5)),
        std::slice::from_ref(&first.range)
    );
    ranges.watch(&first, (Seq(7), false, Seq(5)));
    assert_eq!(ranges.around(b"c", Seq(9)), None);
    assert!(ranges.learn(&first, Seq(6)).is_empty());
    assert_eq!(
        ranges.around(b"c", Seq(9)),
        None,
        "6 is before it was watched"
    );
    assert!(ranges.learn(&first, Seq(8)).is_empty());
    assert_eq!(ranges.around(b"c", Seq(7)), None);
    assert_eq!(ranges.around(b"c", Seq(8)), Some(first.range));
    let second = found("m", "t");
    assert_eq!(ranges.learn(&second, Seq(9)).len(), 1);
    ranges.watch(&second, (Seq(9), true, Seq(9)));
    assert_eq!(ranges.around(b"c", Seq(9)), Some(found("b", "t").range));
    ranges.note(&put(Seq(10)), b"f");
    assert_eq!(ranges.around(b"f", Seq(10)), None);
    ranges.clear();
    assert!(ranges.is_empty());
}
