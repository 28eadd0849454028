//! A range delete, wherever it lies: in a memtable, in a version, in the catalogue. And which of many are needed.
//!
//! Example: 5 deletes a to m, 8 deletes c to f, and 9 deletes a to z. Readers at the newest sequence number are told of
//! every key by 9. A snapshot at 6 is told by 5, for it sees neither 8 nor 9. Nobody is told by 8: it may go.
//!
//! ```text
//!     9: a ─────────────── z
//!     8:    c ── f                    nobody sees this
//!     5: a ──────────── m             the snapshot at 6 sees this
//! ```

use std::collections::BTreeSet;

use crate::base::Seq;
use crate::data::batch::KeyRange;
use crate::data::visibility::is_superseded;

/// Records in the range with a lower number are gone for every reader at or above its sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeDelete {
    /// What it deletes.
    pub range: KeyRange,
    /// Its place among all writes. Of one number there is one; a repair may make several, which are apart.
    pub seq: Seq,
}

/// Of range deletes, lowest number first, those that some reader can tell: that are the newest which it sees over some
/// key. Readers have the numbers of the open `snapshots`, ascending, or higher ones than any.
pub fn discernible(ranges: &[&RangeDelete], snapshots: &[Seq]) -> Vec<bool> {
    // Of a key, which range begins, or ends.
    let mut turns: Vec<(&[u8], usize, bool)> = vec![];
    for (at, RangeDelete { range, .. }) in ranges.iter().enumerate() {
        if !range.is_empty() {
            turns.push((&range.from, at, true));
            turns.extend(range.to.as_deref().map(|to| (to, at, false)));
        }
    }
    turns.sort_unstable();
    let (mut open, mut found) = (BTreeSet::new(), vec![false; ranges.len()]);
    for turns in turns.chunk_by(|a, b| a.0 == b.0) {
        for &(_, at, begins) in turns {
            match begins {
                true => open.insert(at),
                false => open.remove(&at),
            };
        }
        // Only these, and what lies right below one that ends, may have come to show.
        for &(_, at, begins) in turns {
            let candidate = match begins {
                true => Some(at),
                false => open.range(..at).next_back().copied(),
            };
            let Some(candidate) = candidate.filter(|candidate| !found[*candidate]) else {
                continue;
            };
            let newer = open.range(candidate + 1..).next();
            found[candidate] = newer.is_none_or(|&newer| {
                !is_superseded(ranges[newer].seq, ranges[candidate].seq, snapshots)
            });
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Numbers without a pattern, by a seed.
    pub(crate) struct Numbers(pub u64);

    impl Numbers {
        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(77);
            (self.0 >> 33) % bound
        }
    }

    pub(crate) fn key(number: u64) -> Vec<u8> {
        format!("key-{number:04}").into_bytes()
    }

    /// Of the numbers 3, 6, 9 ...: over many keys, over few, nested from the front, with and without an end.
    pub(crate) fn some(seed: u64, count: u64) -> Vec<RangeDelete> {
        let mut random = Numbers(seed);
        let one = |n| {
            let from = random.below(500);
            let (from, width) = match seed % 3 {
                0 => (from, 1 + random.below(4)),
                1 => (from, 1 + random.below(500)),
                _ => (0, 1 + n % 400),
            };
            RangeDelete {
                range: KeyRange {
                    from: key(from),
                    to: (random.below(100) > 0).then(|| key(from + width)),
                },
                seq: Seq(3 * n),
            }
        };
        (1..=count).map(one).collect()
    }

    #[test]
    fn the_example_is_as_told() {
        let delete = |seq, from: &str, to: &str| RangeDelete {
            range: KeyRange::of_bounds(from.as_bytes(), to.as_bytes()),
            seq: Seq(seq),
        };
        let all = [
            delete(5, "a", "m"),
            delete(8, "c", "f"),
            delete(9, "a", "z"),
        ];
        let all: Vec<&RangeDelete> = all.iter().collect();
        assert_eq!(discernible(&all, &[Seq(6)]), [true, false, true]);
        assert_eq!(discernible(&all, &[]), [false, false, true]);
    }

    /// Method: against every reader and every key.
    #[test]
    #[cfg_attr(miri, ignore = "counts to thousands")]
    fn discernible_is_what_some_reader_sees_first() {
        for seed in 0..40 {
            let (all, mut random) = (some(seed, 60), Numbers(seed));
            let mut snapshots: Vec<Seq> = (0..seed % 7).map(|_| Seq(random.below(200))).collect();
            snapshots.sort();
            let readers = snapshots.iter().copied().chain([Seq::MAX]);
            let mut expected = vec![false; all.len()];
            for (max, number) in readers.flat_map(|max| (0..1_010).map(move |number| (max, number)))
            {
                let key = key(number);
                let covers = |at: &usize| all[*at].seq <= max && all[*at].range.contains(&key);
                if let Some(first) = (0..all.len()).rev().find(covers) {
                    expected[first] = true;
                }
            }
            let ranges: Vec<&RangeDelete> = all.iter().collect();
            assert_eq!(discernible(&ranges, &snapshots), expected, "{snapshots:?}");
        }
    }
}
