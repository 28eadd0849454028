//! Which keys are deleted by range, all range deletes together: the line of keys, cut where the answer changes.

use std::collections::BTreeSet;

use crate::batch::KeyRange;
use crate::types::Seq;

/// For every key, the highest number of a range delete over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Where a stretch of keys begins that have this number, up to the next; before the first it is 0.
    stretches: Vec<(Vec<u8>, Seq)>,
}

impl Cover {
    /// Of these ranges; those of one number are apart.
    pub fn new(ranges: impl IntoIterator<Item = (KeyRange, Seq)>) -> Cover {
        // Of a key, where the range of a number begins, or ends.
        let mut turns: Vec<(Vec<u8>, Seq, bool)> = vec![];
        for (range, seq) in ranges.into_iter().filter(|(range, _)| !range.is_empty()) {
            turns.push((range.from, seq, true));
            turns.extend(range.to.map(|to| (to, seq, false)));
        }
        turns.sort_unstable();
        let mut cover = Cover::default();
        let mut open = BTreeSet::new();
        for turns in turns.chunk_by(|a, b| a.0 == b.0) {
            for &(_, seq, begins) in turns {
                if begins {
                    open.insert(seq);
                } else {
                    open.remove(&seq);
                }
            }
            let newest = open.last().copied().unwrap_or_default();
            if cover.stretches.last().map(|last| last.1) != Some(newest) {
                cover.stretches.push((turns[0].0.clone(), newest));
            }
        }
        cover
    }

    /// No key is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Records of the key with a lower number are gone.
    #[inline]
    pub fn below(&self, key: &[u8]) -> Seq {
        match self.stretches_up_to(key) {
            0 => Seq(0),
            count => self.stretches[count - 1].1,
        }
    }

    /// Records of all keys from `first` to `last`, both included, with a lower number are gone.
    pub fn below_all(&self, first: &[u8], last: &[u8]) -> Seq {
        let (from, to) = (self.stretches_up_to(first), self.stretches_up_to(last));
        match from {
            0 => Seq(0),
            from => {
                let stretches = self.stretches[from - 1..to].iter();
                stretches.map(|stretch| stretch.1).min().unwrap_or_default()
            }
        }
    }

    /// How many stretches begin at or before a key.
    #[inline]
    fn stretches_up_to(&self, key: &[u8]) -> usize {
        self.stretches
            .partition_point(|stretch| stretch.0.as_slice() <= key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: against the ranges themselves, key by key; ranges nested, overlapping, touching, without an end.
    #[test]
    fn a_cover_is_what_the_ranges_are() {
        for seed in 0..200u64 {
            let pick = |n: u64| (seed * 31 + n * 7 + seed * n) % 17;
            let ranges: Vec<(KeyRange, Seq)> = (1..=seed % 7)
                .map(|n| {
                    let to = pick(n + 20) as u8;
                    let range = KeyRange {
                        from: vec![pick(n) as u8],
                        to: (to > 2).then(|| vec![to]),
                    };
                    (range, Seq(n))
                })
                .collect();
            let cover = Cover::new(ranges.iter().cloned());
            let plain = |key: u8| {
                let covers = ranges.iter().filter(|(range, _)| range.contains(&[key]));
                covers.map(|(_, seq)| *seq).max().unwrap_or_default()
            };
            for first in 0..20 {
                assert_eq!(cover.below(&[first]), plain(first), "{ranges:?}");
                for last in first..20 {
                    let all = (first..=last).map(plain).min().unwrap();
                    assert_eq!(cover.below_all(&[first], &[last]), all, "{ranges:?}");
                }
            }
        }
    }
}
