//! The writes of one commit, and its conditions.

use super::*;

/// A write within one commit.
#[derive(Clone, Debug)]
pub enum Write {
    Put {
        container: String,
        key: Vec<u8>,
        value: Vec<u8>,
        ttl: Given,
    },
    Delete {
        container: String,
        key: Vec<u8>,
    },
    DeleteRange {
        container: String,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    },
    SetStandard {
        container: String,
        to: Standard,
    },
    Expire {
        container: String,
        what: Expire,
    },
}

impl Write {
    pub fn is_setting(&self) -> bool {
        matches!(self, Write::SetStandard { .. } | Write::Expire { .. })
    }
}

/// A part of a batch.
#[derive(Clone, Debug)]
pub enum BatchStep {
    Write(Write),
    Touch(String, Vec<u8>),
    Require(String, Vec<u8>, Need),
}

/// A condition of a batch on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Absent,
    Present,
    /// The live item was written at this place in the order.
    Order(u64),
}

/// Why nothing of a batch was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Conflict(String, Vec<u8>),
    Unsettled,
}

/// A lifetime as a write gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    Life(Life),
    Until(u64),
    /// The lifetime of the live item, and from when it counts.
    Keep,
    /// The same, resolved.
    Kept(u64, Life),
}

impl Given {
    /// The same lifetime from an earlier moment on.
    pub fn written_at(self, stamp: u64) -> Given {
        let (written_at, life) = self.at(stamp);
        Given::Kept(written_at, life)
    }

    pub(super) fn at(self, stamp: u64) -> (u64, Life) {
        let life = match self {
            Given::Life(life) => life,
            Given::Until(moment) => match moment.saturating_sub(stamp) {
                far if far > MAX_TTL => Life::Never,
                lifetime => Life::Own(lifetime),
            },
            Given::Keep => panic!("what is kept is looked up before"),
            Given::Kept(written_at, life) => return (written_at, life),
        };
        (stamp, life)
    }
}
