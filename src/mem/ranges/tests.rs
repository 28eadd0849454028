//! Range deletes in memory, compared with plain lists.

use super::*;
use crate::data::batch::KeyRange;
use crate::data::range_delete::tests::{Numbers, key, some};

/// Goal: a reader at any sequence number gets the answer of the list. Method: compared with the list, for readers at
/// every age and records of every sequence number, while the list grows past blocks of every length.
#[test]
fn they_answer_as_a_list_would() {
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        let all = some(seed, if cfg!(miri) { 70 } else { 1_400 });
        let (ranges, mut random) = (RangeDeletes::default(), Numbers(seed));
        for (count, delete) in all.iter().enumerate() {
            ranges.push(delete.clone());
            if ![0, 1, 63, 64, 300, 1_100, 1_399].contains(&count) {
                continue;
            }
            let there = &all[..=count];
            for _ in 0..if cfg!(miri) { 10 } else { 600 } {
                let (key, seq) = (key(random.below(510)), Seq(random.below(4_400)));
                let max = match random.below(4) {
                    0 => Seq::MAX,
                    _ => Seq(random.below(4_400)),
                };
                let covers = |one: &&RangeDelete| one.seq <= max && one.range.contains(&key);
                let newest = there.iter().rev().find(covers).map(|one| one.seq);
                let expected = newest.is_some_and(|newest| newest > seq);
                assert_eq!(ranges.covers(&key, seq, max), expected, "{seq:?} {max:?}");
                let parts = ranges.as_of(max);
                let below = parts.iter().map(|part| part.max_covering_seq(&key)).max();
                assert_eq!(below, Some(newest.unwrap_or_default()));
                assert_eq!(ranges.covers_all((&key, &key), seq, max), expected);
                let last = there.iter().rev().find(|one| one.seq <= max);
                let last = last.map_or(Seq(0), |one| one.seq);
                assert_eq!(ranges.last_up_to(max), last);
            }
            assert!(ranges.iter().eq(there));
        }
    }
}

/// Goal: readers do not wait, and miss nothing that was there when they began. Method: while one thread adds, others
/// take the last sequence number, then ask by it and by older ones, and compare with the list, which is known
/// beforehand.
#[test]
#[cfg_attr(miri, ignore = "counts to thousands")]
fn they_are_read_while_more_come() {
    let (all, ranges) = (some(1, 3_000), RangeDeletes::default());
    let published = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (all, ranges, published) = (&all, &ranges, &published);
            scope.spawn(move || {
                let mut random = Numbers(seed);
                loop {
                    let count = published.load(std::sync::atomic::Ordering::Acquire);
                    let age = [0, random.below(count + 1)][random.below(2) as usize];
                    let (key, max) = (key(random.below(510)), Seq(3 * (count - age)));
                    let seen = &all[..(count - age) as usize];
                    let mut newest_first = seen.iter().rev();
                    let newest = newest_first.find(|one| one.range.contains(&key));
                    let seq = newest.map_or(Seq(0), |one| one.seq);
                    assert!(!ranges.covers(&key, seq, max));
                    assert!(seq == Seq(0) || ranges.covers(&key, Seq(seq.0 - 1), max));
                    if count == all.len() as u64 {
                        break;
                    }
                }
            });
        }
        for (count, delete) in (1..).zip(&all) {
            ranges.push(delete.clone());
            published.store(count, std::sync::atomic::Ordering::Release);
        }
    });
}

#[test]
fn bytes_are_about_what_they_take() {
    let ranges = RangeDeletes::default();
    let long = |n: u64| KeyRange {
        from: [key(n), vec![0; 60_000]].concat(),
        to: None,
    };
    for n in 1..=20 {
        ranges.push(RangeDelete {
            range: long(n),
            seq: Seq(n),
        });
    }
    assert!((20 * 60_000..20 * 250_000).contains(&ranges.bytes()));
}
