//! Range tombstones compared with the ranges themselves.

use super::*;
use crate::data::range_delete::tests::Numbers;

/// A key of the space from 0 to 400; some are long, so that nodes are split by bytes too.
fn key(number: u64, long: bool) -> Vec<u8> {
    let len = if long { 2_000 } else { 2 };
    let mut key = (number as u16).to_be_bytes().to_vec();
    key.resize(len, 7);
    key
}

/// Method: compared with the ranges themselves, key by key, after each one; ranges nested, overlapping, touching,
/// without an end, empty, of one key.
#[test]
fn fragments_are_what_the_ranges_are() {
    for seed in 0..60u64 {
        let mut random = Numbers(seed);
        let (long, width) = (seed % 7 == 6, [3, 40, 400][seed as usize % 3]);
        let mut ranges: Vec<(KeyRange, Seq)> = vec![];
        let mut fragments = Fragments::default();
        let mut before = vec![];
        for n in 1..=300 {
            let from = random.below(400);
            let to = (random.below(20) > 0).then(|| from + random.below(width));
            let range = KeyRange {
                from: if random.below(30) == 0 {
                    vec![]
                } else {
                    key(from, long)
                },
                to: to.map(|to| key(to, long)),
            };
            let seq = Seq(2 * n);
            let next = fragments.with(&range, seq);
            before.push(std::mem::replace(&mut fragments, next));
            ranges.push((range, seq));
        }
        for upto in [1, 2, 17, 150, 299, 300] {
            let fragments = before.get(upto).unwrap_or(&fragments);
            check(fragments, &ranges[..upto], long, &mut random);
        }
    }
}

fn check(fragments: &Fragments, ranges: &[(KeyRange, Seq)], long: bool, random: &mut Numbers) {
    let plain: Vec<Seq> = (0..420)
        .map(|number| {
            let key = key(number, long);
            let covers = ranges.iter().filter(|(range, _)| range.contains(&key));
            covers.map(|(_, seq)| *seq).max().unwrap_or_default()
        })
        .collect();
    for (number, expected) in plain.iter().enumerate() {
        assert_eq!(
            fragments.max_covering_seq(&key(number as u64, long)),
            *expected
        );
    }
    for _ in 0..300 {
        let first = random.below(400) as usize;
        let last = first + random.below(420 - first as u64) as usize;
        let all = plain[first..=last].iter().min().unwrap();
        let (first, last) = (key(first as u64, long), key(last as u64, long));
        let below = fragments.min_covering_seq(&first, &last);
        // There may be other keys between two of these.
        assert!(below <= *all);
        let (mut least, mut starts) = (Seq::MAX, vec![]);
        fragments.visit(&first, &last, |start, seq| {
            least = least.min(seq);
            starts.push(start.to_vec());
        });
        if starts.first().is_none_or(|start| *start > first) {
            least = Seq(0);
        }
        assert_eq!(below, least);
        assert!(starts.is_sorted_by(|a, b| a < b));
        assert!(starts.iter().skip(1).all(|start| *start > first));
        assert!(starts.last().is_none_or(|start| *start <= last));
    }
}

/// Bounds and keys that differ only in zeros at their end, which prefixes do not show.
#[test]
fn keys_that_end_in_zeros_are_told_apart() {
    for front in [&b""[..], b"abc", b"abcdefg", b"abcdefgh12345678"] {
        let key = |zeros: usize| [front, &vec![0; zeros]].concat();
        let mut fragments = Fragments::default();
        for zeros in (0..30).step_by(2) {
            let range = KeyRange {
                from: key(zeros),
                to: Some(key(zeros + 1)),
            };
            fragments = fragments.with(&range, Seq(zeros as u64 + 1));
        }
        for zeros in 0..40 {
            let deleted = zeros < 30 && zeros % 2 == 0;
            let expected = if deleted { zeros as u64 + 1 } else { 0 };
            assert_eq!(fragments.max_covering_seq(&key(zeros)), Seq(expected));
        }
    }
}

/// A queue deletes its front again and again: the front stays one fragment.
#[test]
fn what_is_covered_again_takes_no_room() {
    let mut fragments = Fragments::default();
    for n in 1..=1_000u64 {
        let range = KeyRange {
            from: vec![],
            to: Some(n.to_be_bytes().to_vec()),
        };
        fragments = fragments.with(&range, Seq(n));
    }
    let mut pieces = vec![];
    fragments.visit(&[], &[0xff], |start, seq| {
        pieces.push((start.to_vec(), seq))
    });
    // The key space is cut where each range ended; nothing is left before the next one.
    assert_eq!(pieces.first(), Some(&(vec![], Seq(1_000))));
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[1], (1_000u64.to_be_bytes().to_vec(), Seq(0)));
}

#[test]
fn a_cover_is_its_parts_together() {
    let range = |from: u8, to: u8| KeyRange {
        from: vec![from],
        to: Some(vec![to]),
    };
    let older = Fragments::of([(&range(0, 50), Seq(3)), (&range(20, 30), Seq(5))]);
    let newer = Fragments::of([(&range(40, 60), Seq(9))]);
    let tombstones = RangeTombstones::new([newer, older, Fragments::default()].map(Arc::new));
    let below = [10, 25, 45, 55, 60].map(|key| tombstones.max_covering_seq(&[key]));
    assert_eq!(below, [3, 5, 9, 9, 0].map(Seq));
    assert_eq!(tombstones.min_covering_seq(&[40], &[59]), Seq(9));
    assert_eq!(tombstones.min_covering_seq(&[10], &[45]), Seq(3));
    assert_eq!(tombstones.min_covering_seq(&[10], &[60]), Seq(0));
    assert!(!tombstones.is_empty() && RangeTombstones::default().is_empty());
}
