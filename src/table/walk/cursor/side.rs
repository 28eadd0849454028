//! The two directions of a cursor.

/// The side from which a block is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Front,
    Back,
}

impl Side {
    /// The entry this many steps after entry `at`; an index that no entry has if there is none.
    #[inline(always)]
    pub fn ahead(self, at: usize, steps: usize) -> usize {
        match self {
            Side::Front => at + steps,
            Side::Back => at.wrapping_sub(steps),
        }
    }
}
