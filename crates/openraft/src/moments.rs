//! The time of a state, after each entry of the log: steps 1 and 2 of apply.
//!
//! Invariants:
//!
//! 1. `time` after an entry is a function of the log up to it, and never goes back (I1).
//! 2. No answer of any leader was later than the `until` of what is applied; so it is where the next leader's time begins.

/// See the file's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Moments {
    /// In milliseconds since 1970.
    pub time_ms: u64,
    /// In milliseconds since 1970.
    pub until_ms: u64,
}

impl Moments {
    /// Those after an entry of this leader. `last`: the leader of the entry before. `stamped`: the entry's stamp and its until;
    /// a blank entry and one of a membership have none.
    ///
    /// With another leader time goes on from the latest moment at which the one before may have answered. Leader ids are compared,
    /// and not terms, for openraft elects two leaders in one term where the second has the higher id.
    pub fn after<L: PartialEq>(
        self,
        last: Option<&L>,
        leader: &L,
        stamped: Option<(u64, u64)>,
    ) -> Moments {
        let mut time_ms = self.time_ms;
        if last.is_some_and(|last| last != leader) {
            time_ms = time_ms.max(self.until_ms);
        }
        let (stamp, until) = stamped.unwrap_or_default();
        let time_ms = time_ms.max(stamp);
        Moments {
            time_ms,
            until_ms: self.until_ms.max(until).max(time_ms),
        }
    }
}
