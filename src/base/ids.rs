//! Sequence numbers, and the ids of tables and containers.

/// Higher than any count of files, edits or writes in a database. A higher number on disk is wrong, and is refused, so
/// that counting on from it cannot overflow.
pub const HIGHEST_NUMBER: u64 = 1 << 56;

/// The place of one record in the total order of all writes of a database. 0 stands before every write.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Seq(pub u64);

impl Seq {
    /// Above every sequence number: "the newest version there is".
    pub const MAX: Seq = Seq(u64::MAX);

    /// The sequence number after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// The sequence number before this one; of the first, itself.
    pub fn before(self) -> Seq {
        Seq(self.0.saturating_sub(1))
    }
}

/// Identifies a table file; never reused within a database.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct TableId(pub u64);

/// Identifies a container for good; a container that is dropped and created again gets another id.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct ContainerId(pub u32);
