//! Answers: a value, the moment by which it was judged, and the token of that place.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ebbtide::Version;
use serde::{Deserialize, Serialize};

use crate::check::Checked;
use crate::machine::body::{Held, millis, moment};

/// A place in the history of a cluster, in every answer. Given to a later call ([`Container::since`](crate::Container::since)), of
/// any node, that one sees what this answer saw, at no earlier moment. Plain data: send it along with a session.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Token {
    /// An index of the log: the answer saw no later entry than this one. A write's is that of its entry; a read's may be a little
    /// higher than that of the last entry which it saw, up to one that was being applied where it was read.
    pub index: u64,
    /// The moment of the answer, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Token {
    /// The later of each part.
    #[must_use]
    pub fn max(self, other: Token) -> Token {
        Token {
            index: self.index.max(other.index),
            at_ms: self.at_ms.max(other.at_ms),
        }
    }
}

/// An answer of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered<T> {
    /// The answer itself.
    pub value: T,
    /// The moment by which it was judged: what ends by then is not shown, by this answer and all later ones.
    pub at: SystemTime,
    /// For later calls that are to see no less.
    pub token: Token,
}

impl<T> Answered<T> {
    pub(crate) fn new(value: T, token: Token) -> Answered<T> {
        Answered {
            value,
            at: moment(token.at_ms),
            token,
        }
    }

    /// Another value of the same place and moment.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Answered<U> {
        Answered::new(to(self.value), self.token)
    }
}

/// The promise of a read.
///
/// | level | asks | answers at |
/// | --- | --- | --- |
/// | `Linearizable` | the leader for a place, or is the leader; one round serves all reads that wait | now, by the leader's clock |
/// | `Bounded(d)` | nobody, as long as this node is less than `d` behind; else as `Linearizable` | up to `d` ago |
/// | `Local` | nobody | what this node has applied, however old |
///
/// At each level an answer is of one place in the log and one moment, and with a token no earlier than it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// Sees every write that was answered before the call, on any node.
    #[default]
    Linearizable,
    /// Sees every write up to a moment that is at most so long ago, by the leader's clock.
    Bounded(Duration),
    /// Sees what this node has.
    Local,
}

/// An item of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) version: Version,
    pub(crate) expires_at_ms: Option<u64>,
}

impl Item {
    pub(crate) fn of(item: ebbtide::Item) -> Item {
        Item {
            key: Bytes::copy_from_slice(item.key()),
            version: item.version(),
            expires_at_ms: item.expires_at().map(millis),
            value: item.into_value().into_bytes(),
        }
    }

    pub(crate) fn held(held: Held) -> Item {
        Item {
            key: held.key,
            value: held.value,
            version: held.version.map_or(Version::start(), Version::from_u64),
            expires_at_ms: held.expires_at_ms,
        }
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// Its value alone.
    #[must_use]
    pub fn into_value(self) -> Bytes {
        self.value
    }

    /// Its version, the same on all nodes: a row version, an ETag. That of an item which was taken in the same entry of the log in
    /// which it was written is [`Version::start`].
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The moment from which no node shows it; `None`: it has no end.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at_ms.map(moment)
    }
}

/// A node of a cluster, as another one knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Drawn when its folder was made, and never used again.
    pub id: u64,
    /// Where others reach it.
    pub addr: String,
    /// It counts for majorities; else it is catching up.
    pub votes: bool,
    /// It leads.
    pub leads: bool,
}

/// A member of a cluster, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Surveyed {
    /// The member, as the node that asked knows it.
    pub member: Member,
    /// Its own word; or the reason why there is none: it did not answer in time, or is of a version that cannot say.
    pub told: Result<Told, String>,
    /// The newest format of the log that it speaks; `None`: the node that asked has not heard it say so since that was opened.
    pub speaks: Option<u16>,
}

/// The word of a node about itself, to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Told {
    /// The place and the time of what it has applied.
    pub applied: Token,
    /// The node that leads, as far as it knows.
    pub leader: Option<u64>,
    /// See [`Status::is_ready`].
    pub is_ready: bool,
    /// See [`Status::trouble`].
    pub trouble: Option<String>,
    /// See [`Status::clock_behind_ms`].
    pub clock_behind_ms: Option<i64>,
    /// See [`Status::disk_free`].
    pub disk_free: Option<u64>,
}

impl Told {
    pub(crate) fn of(status: Status) -> Told {
        Told {
            applied: status.applied,
            leader: status.leader,
            is_ready: status.is_ready,
            trouble: status.trouble,
            clock_behind_ms: status.clock_behind_ms,
            disk_free: status.disk_free,
        }
    }
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The node's id.
    pub id: u64,
    /// The id of its cluster.
    pub cluster: u128,
    /// Where others reach it.
    pub addr: String,
    /// The id of the node that leads, as far as this one knows.
    pub leader: Option<u64>,
    /// The term of the last election that this node knows of; it rises with each.
    pub term: u64,
    /// The place and the time of what it has applied.
    pub applied: Token,
    /// The index of the last entry that its log has no more; the state holds what it did.
    pub purged: u64,
    /// The format of the log, as far as this node has applied it: the leader raises it when all members speak a later one.
    pub format: u16,
    /// The newest format of the log that this node speaks.
    pub speaks: u16,
    /// It is a member that votes, some node leads, it has applied all that the leader had 5 s ago, and nothing holds up what it
    /// applies.
    pub is_ready: bool,
    /// It has learned that it was taken out ([`Node::remove`](crate::Node::remove)).
    pub is_removed: bool,
    /// The reason why it waits, takes no writes for want of room, or has stopped, if it does.
    pub trouble: Option<String>,
    /// By how much the median of the members' clocks is ahead of its own, in milliseconds, where three or more are heard. Beyond
    /// half a second it does not lead.
    pub clock_behind_ms: Option<i64>,
    /// Free bytes of its disk, where they can be told.
    pub disk_free: Option<u64>,
    /// The last comparison of all states that this node has heard of since it was opened ([`Node::check`](crate::Node::check)).
    /// Where states differ and none is the majority's, no node stops, and this alone tells it.
    pub checked: Option<Checked>,
}
