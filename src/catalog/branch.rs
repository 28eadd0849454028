//! Branches: which state of a database comes before which other one, where copies of older states went on.
//!
//! ```text
//! 1 ── 4 ── 9             what the database was, by its last sequence number
//!      └── 12 ── 15       a branch: the copy of state 4 was restored, and goes on
//! ```
//!
//! State 4 comes before all others but 1. State 9 comes before neither 12 nor 15, though its number is lower: the copy
//! lacks the writes between 4 and 9.

use serde::{Deserialize, Serialize};

use crate::base::Seq;

/// A copy of an earlier state began to go on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// A number that was drawn for it.
    pub id: u64,
    /// The last sequence number of the state that was copied.
    pub from: Seq,
    /// The number of the last ledger that the restored copy was told, as its restorer counts; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub told: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where a state is: the branches that led to it, earliest first, and its last sequence number.
#[derive(Clone, Copy, Debug)]
pub struct StatePosition<'a> {
    /// The branches.
    pub branches: &'a [Branch],
    /// The number.
    pub used: Seq,
}

impl StatePosition<'_> {
    /// Whether another state came of this one, or is this one.
    pub fn precedes(&self, later: &StatePosition<'_>) -> bool {
        let left_at = match later.branches.strip_prefix(self.branches) {
            Some([]) => later.used,
            Some([next, ..]) => next.from,
            None => return false,
        };
        self.used <= left_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture of the file's head, and a branch of a branch.
    #[test]
    fn a_state_comes_before_what_came_of_it() {
        let branch = |id, from| Branch {
            id,
            from: Seq(from),
            told: 0,
        };
        let (one, two, other) = (branch(70, 4), branch(71, 12), branch(72, 4));
        let states: [(&[Branch], u64); 8] = [
            (&[], 1),
            (&[], 4),
            (&[], 9),
            (&[one], 12),
            (&[one], 15),
            (&[one, two], 13),
            (&[other], 5),
            (&[other], 12),
        ];
        let after = [
            vec![1, 2, 3, 4, 5, 6, 7],
            vec![2, 3, 4, 5, 6, 7],
            vec![],
            vec![4, 5],
            vec![],
            vec![],
            vec![7],
            vec![],
        ];
        for (at, (branches, used)) in states.iter().enumerate() {
            let own = StatePosition {
                branches,
                used: Seq(*used),
            };
            let comes = |(branches, used): &(&[Branch], u64)| {
                own.precedes(&StatePosition {
                    branches,
                    used: Seq(*used),
                })
            };
            let found = (0..states.len()).filter(|other| *other != at && comes(&states[*other]));
            assert_eq!(found.collect::<Vec<_>>(), after[at], "state {at}");
        }
    }
}
