//! Sequence numbers, and what names a table or a container.

/// No database counts that far: files, edits, writes. A larger number on disk was made up, and is refused before one that
/// follows it overflows.
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

    /// The number before this one; of the first, that one.
    pub fn before(self) -> Seq {
        Seq(self.0.saturating_sub(1))
    }
}

/// Names a table file; never reused within a database.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct TableId(pub u64);

/// Names a container for good; a container that is dropped and created anew gets another one.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct ContainerId(pub u32);
