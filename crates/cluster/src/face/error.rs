//! Errors, as a program meets them.

use std::fmt;

/// The reason why a call of a node has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An argument is out of range, and nothing was changed.
    Invalid(String),
    /// There is no container of this name.
    NoContainer(String),
    /// A condition of a batch does not hold, or what a transaction or an update has read was changed or has ended, as often as it
    /// was tried. Nothing was changed.
    Conflict {
        /// The container.
        container: String,
        /// The key; of a range that was read: its first.
        key: Vec<u8>,
    },
    /// Nobody led within the time that a call waits, and nothing was changed.
    NoLeader,
    /// The disks of half of the nodes or more, or of the only one, are short of room, and nothing was changed. Writes go on by
    /// themselves when there is room again: reads, deletions of files by ends, and reclaiming do all the time.
    NoRoom,
    /// It needs a format of the log that these members have not said to speak: versions are mixed, and nothing was changed. It can be
    /// done once all members are of a version that speaks it, and those that are gone have been removed.
    NotSpoken {
        /// The format.
        format: u16,
        /// The ids of members. None: all speak it, and the log had not come to it within the time that a call waits.
        nodes: Vec<u64>,
    },
    /// No answer came within the time that a call waits. What was to be written may be written, or may yet be.
    Unknown(String),
    /// This node is behind, and has not caught up within the time that a call waits. Nothing was read.
    Behind,
    /// A change of members cannot be made.
    Members(String),
    /// A program's own refusal, by [`Error::other`]. Nothing was changed.
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// The engine's, of this node.
    Engine(ebbtide::Error),
    /// This node's files or openraft's core failed; it stopped.
    Storage(String),
    /// The network's, where a node is opened.
    Io(std::io::Error),
    /// This node's state differs from the majority's, which a check has found ([`Node::check`](crate::Node::check)). The node has
    /// stopped for good; its folder stays. Remove it from the cluster, and let a new folder join.
    Differs {
        /// The node's id.
        node: u64,
        /// The index of the entry of the check.
        index: u64,
    },
    /// This node was taken out of the cluster ([`Node::remove`](crate::Node::remove)), for good: it has stopped, and its folder stays.
    /// A new folder may join.
    Removed {
        /// The node's id.
        node: u64,
    },
    /// The node is closed.
    Closed,
}

impl Error {
    /// A refusal of the program's own, for the closure of a transaction.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Other(error.into())
    }

    /// A condition did not hold, or others wrote meanwhile.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// The same call may succeed later. After [`Error::Unknown`] it may find its own write.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::NoLeader
            | Error::NoRoom
            | Error::NotSpoken { .. }
            | Error::Unknown(_)
            | Error::Behind
            | Error::Conflict { .. } => true,
            Error::Engine(error) => error.is_retryable(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(why) => f.write_str(why),
            Error::NoContainer(name) => write!(f, "there is no container {name:?}"),
            Error::Conflict { container, key } => write!(
                f,
                "a condition on \"{}\" in {container:?} does not hold, or others have written it",
                key.escape_ascii()
            ),
            Error::NoLeader => {
                f.write_str("no node leads: a majority is not there, or an election goes on")
            }
            Error::NoRoom => {
                f.write_str("no writes are taken: the disks of too many nodes are short of room")
            }
            Error::NotSpoken { format, nodes } if nodes.is_empty() => write!(
                f,
                "it needs format {format} of the log, which all nodes speak, and which has not begun yet"
            ),
            Error::NotSpoken { format, nodes } => write!(
                f,
                "it needs format {format} of the log, which not all nodes are known to speak: upgrade or remove {nodes:?}"
            ),
            Error::Unknown(why) => write!(
                f,
                "there is no answer, and the write may have been done: {why}"
            ),
            Error::Behind => f.write_str("this node is behind, and has not caught up in time"),
            Error::Members(why) => write!(f, "the members cannot be changed so: {why}"),
            Error::Other(error) => error.fmt(f),
            Error::Engine(error) => error.fmt(f),
            Error::Storage(why) => write!(f, "the node has stopped: {why}"),
            Error::Io(error) => error.fmt(f),
            Error::Differs { node, index } => write!(
                f,
                "the state of node {node} differs from the majority's, by the check at entry {index}: remove the node, and let a new folder join"
            ),
            Error::Removed { node } => write!(
                f,
                "node {node} was taken out of the cluster, for good: let a new folder join"
            ),
            Error::Closed => f.write_str("the node is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Other(error) => Some(&**error),
            Error::Engine(error) => Some(error),
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ebbtide::Error> for Error {
    fn from(error: ebbtide::Error) -> Error {
        match error {
            ebbtide::Error::ContainerDropped { name } => Error::NoContainer(name),
            ebbtide::Error::Closed => Error::Closed,
            other => Error::Engine(other),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Io(error)
    }
}
