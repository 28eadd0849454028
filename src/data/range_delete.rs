//! A range delete (the record of a range tombstone): in a memtable, in a version, or in the catalogue. And which of
//! many are needed.
//!
//! Example: 5 deletes a to m, 8 deletes c to f, and 9 deletes a to z. For readers at the newest sequence number 9
//! covers every key. For a snapshot at 6 it is 5, because it sees neither 8 nor 9. 8 is the newest for no reader: it
//! may be dropped.
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

/// Readers at or above its sequence number do not see records in the range with a lower one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeDelete {
    /// The deleted range.
    pub range: KeyRange,
    /// Its sequence number. Mostly unique; a repair may make several with one, whose ranges are disjoint.
    pub seq: Seq,
}

/// Whether each of these range deletes, lowest sequence number first, is needed: those are that are, for some key, the newest
/// that some reader sees. Readers have the sequence numbers of the open `snapshots`, ascending, or a higher one than
/// any.
pub fn discernible(ranges: &[&RangeDelete], snapshots: &[Seq]) -> Vec<bool> {
    // The keys at which a range begins or ends.
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
        // Only these, and what is directly below one that ends, may have become visible.
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

    /// Pseudo-random numbers from a seed.
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

    /// Range deletes with sequence numbers 3, 6, 9 ...: over many keys, over few, nested from the front, with and
    /// without an end.
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

    /// Method: compared for every reader and every key.
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
