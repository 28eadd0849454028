//! Earlier settings: they tell when and by what an item ended that settings of now show only as gone.
//!
//! ```text
//! base, known from      change at 50 s: default 60 -> 30      change at 70 s: expire what was written before 65
//! default 60 s          seq 7                                 seq 9
//! ```
//!
//! Floors and commands say that an item is gone, and not since when. So settings keep how they came about: a base, and the
//! changes since, of which the latest [`MOST`] are kept one by one; earlier ones are part of the base, and what had ended by
//! the last of them is known to be gone, but not when.
//!
//! Invariants: changes stand in the order of their sequence numbers, and their moments never fall.

use serde::{Deserialize, Serialize};

use crate::base::{Seq, Timestamp};

/// So many changes are kept one by one.
pub const MOST: usize = 64;

/// A change of settings that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made<C> {
    /// The change.
    pub what: C,
    /// The settled moment of it.
    pub at: Timestamp,
    /// Its sequence number: it concerns only records below.
    pub seq: Seq,
}

/// Settings `S`, as they once were, and the changes `C` since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past<S, C> {
    /// The settings before the first of the changes.
    pub base: S,
    /// Items that ended before this moment may have ended by a change that is part of the base.
    pub known_from: Timestamp,
    /// The changes since, earliest first.
    pub changes: Vec<Made<C>>,
}

impl<S, C: Copy> Past<S, C> {
    /// Nothing changed since `base`.
    pub fn since(base: S, known_from: Timestamp) -> Self {
        Past {
            base,
            known_from,
            changes: vec![],
        }
    }

    /// Adds a change, the latest; `merge` makes the base of the base and the earliest change, where there are too many.
    pub fn add(&mut self, made: Made<C>, merge: impl Fn(&S, &Made<C>) -> S) {
        let last = self.last_at();
        self.changes.push(Made {
            at: made.at.max(last),
            ..made
        });
        while self.changes.len() > MOST {
            let first = self.changes.remove(0);
            self.base = merge(&self.base, &first);
            self.known_from = first.at.after(1);
        }
    }

    /// When the last change was made; 0 if none is known.
    pub fn last_at(&self) -> Timestamp {
        let last = self.changes.last().map(|made| made.at);
        last.unwrap_or_default().max(self.known_from.before(1))
    }
}
