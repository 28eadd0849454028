//! The ops of a cluster, as they stand in the log, and the answers to them.
//!
//! ```text
//! One          container, key, act                        put, create, replace, touch, expire, delete, take, compare and put
//! Batch        [(container, key, act)]                    all or nothing
//! Transaction  read set, [(container, key, act)]          nothing, where what was read is not what stands there now
//! Command      container, what                            alone in an entry: ranges, default ttls, containers
//! Check                                                   alone in an entry: each replica digests its state, and writes nothing
//! BatchWithCommands                                       alone in an entry: the parts of Batch and of several Commands, all or nothing
//! Format       format, members                            alone in an entry: the log is of a later format from here on
//! ```
//!
//! | format | adds |
//! | --- | --- |
//! | 1 | all but what follows |
//! | 2 | `Act::PutLike` |
//!
//! Invariants:
//!
//! 1. What is here is the log's format: variants and fields are added at the end, by a new format ([`Body::format`]), and none goes or
//!    changes its place. What an op does in apply never changes: another effect is another op.
//! 2. Nothing here is of a node: no clock, no setting.

use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ebbtide::{DefaultTtl, Quota, Ttl, WhenFull};
use serde::{Deserialize, Serialize};

/// The format with which every log begins.
pub const FIRST: u16 = 1;
/// The one that has `Act::PutLike`.
pub const LIKE: u16 = 2;
/// The newest format that this version speaks.
pub const NEWEST: u16 = LIKE;

/// One op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    One(Write),
    Batch(Vec<Write>),
    Transaction {
        reads: ReadSet,
        writes: Vec<Write>,
    },
    Command {
        container: String,
        what: Command,
    },
    Check,
    BatchWithCommands {
        writes: Vec<Write>,
        commands: Vec<(String, Command)>,
    },
    /// Without effect where members have changed since the entry of this index.
    Format {
        to: u16,
        members_at: u64,
    },
}

impl Body {
    /// The format that a node has to speak to apply it.
    pub fn format(&self) -> u16 {
        let is_like = |write: &Write| matches!(write.act, Act::PutLike(..));
        match self {
            Body::Format { to, .. } => *to,
            _ if self.items().iter().any(is_like) => LIKE,
            _ => FIRST,
        }
    }

    /// Whether it is to be alone in its entry.
    pub fn is_alone(&self) -> bool {
        matches!(
            self,
            Body::Command { .. }
                | Body::Check
                | Body::BatchWithCommands { .. }
                | Body::Format { .. }
        )
    }

    /// All that it writes of items.
    pub fn items(&self) -> &[Write] {
        match self {
            Body::One(write) => std::slice::from_ref(write),
            Body::Batch(writes)
            | Body::Transaction { writes, .. }
            | Body::BatchWithCommands { writes, .. } => writes,
            Body::Command { .. } | Body::Check | Body::Format { .. } => &[],
        }
    }

    pub fn has_commands(&self) -> bool {
        matches!(self, Body::BatchWithCommands { .. })
    }

    /// The quota that it gives a container itself, before it writes there.
    pub fn quota_of(&self, container: &str) -> Option<Option<Limit>> {
        let Body::BatchWithCommands { commands, .. } = self else {
            return None;
        };
        let mut own = commands.iter().rev().filter(|(of, _)| of == container);
        own.find_map(|(_, what)| match what {
            Command::Quota(quota) => Some(*quota),
            _ => None,
        })
    }

    /// How many items it writes.
    pub fn writes(&self) -> usize {
        match self {
            Body::Batch(writes) | Body::Transaction { writes, .. } => writes.len(),
            Body::BatchWithCommands { writes, commands } => writes.len() + commands.len(),
            _ => 1,
        }
    }
}

/// One item's part of an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub container: String,
    pub key: Bytes,
    pub when: When,
    pub act: Act,
}

/// The condition under which an act is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    Always,
    Absent,
    Present,
    Version(u64),
}

/// The change of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    Put(Bytes, Life),
    /// Its value and its ttl stay, and the countdown begins again.
    Touch,
    /// Its value stays.
    Expire(Life),
    Delete,
    /// Deletes it and answers with it.
    Take,
    /// Nothing: the condition is all.
    Require,
    /// Stores an item that counts as that of this container and key does: if that is live, and not written by this op.
    PutLike(Bytes, String, Bytes),
}

/// A ttl in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    Inherit,
    Never,
    For(u64),
    Until(u64),
    Keep,
}

/// A default ttl in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Off,
    NoDefault,
    After(u64),
}

/// A change of a container as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    Create(Ending),
    Drop,
    SetDefault(Ending),
    DeleteRange(Bound<Bytes>, Bound<Bytes>),
    ExpireBefore(u64),
    ExpireWrittenBefore(u64),
    ExpireAll,
    KeepExpired(u64),
    /// None: there is no limit.
    Quota(Option<Limit>),
    /// `Create` with more settings.
    CreateWith {
        default: Ending,
        keep_expired_ms: u64,
        quota: Option<Limit>,
    },
}

/// A quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub bytes: u64,
    /// Room is made by expiring what ends soonest; else writes are refused.
    pub expires: bool,
}

impl Limit {
    pub fn of(quota: Quota) -> Limit {
        Limit {
            bytes: quota.max_live_bytes,
            expires: quota.when_full == WhenFull::ExpireSoonest,
        }
    }

    pub fn quota(self) -> Quota {
        Quota {
            max_live_bytes: self.bytes,
            when_full: match self.expires {
                true => WhenFull::ExpireSoonest,
                false => WhenFull::Refuse,
            },
        }
    }
}

impl Command {
    pub fn creates(&self) -> bool {
        matches!(self, Command::Create(_) | Command::CreateWith { .. })
    }
}

/// All that a transaction has read, by which its writes stand or fall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSet {
    pub keys: Vec<KeyRead>,
    pub ranges: Vec<RangeRead>,
}

/// A key, and the version that was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRead {
    pub container: String,
    pub key: Bytes,
    pub version: Option<u64>,
}

/// A range, as far as it was consumed, and what stood in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeRead {
    pub container: String,
    pub start: Bound<Bytes>,
    pub end: Bound<Bytes>,
    pub items: u64,
    pub digest: u64,
}

/// The answer to an op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done, and this is the version of its last write.
    Done { version: u64 },
    /// The condition did not hold, or there was nothing to take, to make or to drop.
    Missed,
    /// The item that was taken.
    Taken(Held),
    /// Nothing was done, because of this item; of a range: its first key.
    Conflict { container: String, key: Bytes },
    /// Nothing was done: there is no such container.
    NoContainer(String),
}

/// An item as an op found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub key: Bytes,
    pub value: Bytes,
    pub version: Option<u64>,
    pub expires_at_ms: Option<u64>,
}

pub fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub fn moment(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

/// Rounded up, as the engine rounds.
pub fn millis_up(lifetime: Duration) -> u64 {
    u64::try_from(lifetime.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Life {
    /// `None`: a ttl that goes into no log.
    pub fn of(ttl: Ttl) -> Option<Life> {
        Some(match ttl {
            Ttl::Inherit => Life::Inherit,
            Ttl::Never => Life::Never,
            Ttl::After(lifetime) => Life::For(millis_up(lifetime)),
            Ttl::Until(end) => Life::Until(millis_up(
                end.duration_since(UNIX_EPOCH).unwrap_or_default(),
            )),
            Ttl::Keep => Life::Keep,
            _ => return None,
        })
    }

    pub fn ttl(self) -> Ttl {
        match self {
            Life::Inherit => Ttl::Inherit,
            Life::Never => Ttl::Never,
            Life::For(ms) => Ttl::After(Duration::from_millis(ms)),
            Life::Until(ms) => Ttl::Until(moment(ms)),
            Life::Keep => Ttl::Keep,
        }
    }
}

impl Ending {
    /// `None`: a default that goes into no log.
    pub fn of(default: DefaultTtl) -> Option<Ending> {
        Some(match default {
            DefaultTtl::Off => Ending::Off,
            DefaultTtl::NoDefault => Ending::NoDefault,
            DefaultTtl::After(lifetime) => Ending::After(millis_up(lifetime)),
            _ => return None,
        })
    }

    pub fn ttl(self) -> DefaultTtl {
        match self {
            Ending::Off => DefaultTtl::Off,
            Ending::NoDefault => DefaultTtl::NoDefault,
            Ending::After(ms) => DefaultTtl::After(Duration::from_millis(ms)),
        }
    }
}
