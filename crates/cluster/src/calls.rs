//! The questions of nodes to each other, and their encoding.
//!
//! | kind | question | answer |
//! | --- | --- | --- |
//! | 1 append, 2 vote, 3 snapshot at, 4 snapshot | openraft's (raft/) | openraft's |
//! | 5 write | an op | [`Written`] |
//! | 6 read | nothing | [`Read`]: an index and a moment |
//! | 7 closed | [`ClosedAt`] | whether the disk is short of room; formerly nothing |
//! | 8 change | [`Change`] of members | [`Changed`] |
//! | 9 cluster | nothing | the cluster's id and the log's format, for a node that joins |
//! | 10 digest | the index of a check | [`Digested`](crate::check::Digested) |
//! | 11 checked | [`Checked`](crate::Checked): digests of all nodes | nothing |
//! | 12 status | nothing | [`Told`](crate::Told) |
//! | 13 standing | nothing | the index of a committed change of members by which the asker is none; none: it is one, or may be |
//! | 14 figures | nothing | [`Figures`](crate::node::Figures); nothing: it is closing, or of a version that has none |
//!
//! Invariants:
//!
//! 1. A kind keeps its number and its meaning in every version, for nodes of several versions talk to each other.
//! 2. Whatever comes from another node tells its clock, and which format of the log it speaks: both are noted (clocks.rs, formats.rs).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebbtide::Clock;
use ebbtide_openraft::{Answer, Op};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::clocks::Clocks;
use crate::face::Error;
use crate::formats::Formats;
use crate::machine::body::{Body, Reply, moment};
use crate::net::{From, Handler, Hello, Net, NetError, Peer, Sockets};
use crate::node::JoinToken;

pub const APPEND: u8 = 1;
pub const VOTE: u8 = 2;
pub const SNAPSHOT_AT: u8 = 3;
pub const SNAPSHOT: u8 = 4;
pub const WRITE: u8 = 5;
pub const READ: u8 = 6;
pub const CLOSED: u8 = 7;
pub const CHANGE: u8 = 8;
pub const CLUSTER: u8 = 9;
pub const DIGEST: u8 = 10;
pub const CHECKED: u8 = 11;
pub const STATUS: u8 = 12;
pub const STANDING: u8 = 13;
pub const FIGURES: u8 = 14;

/// The answer of a node that was asked as the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Asked<T> {
    Done(T),
    /// It does not lead; nothing was done.
    NotLeading,
    /// It may have been done.
    Lost(String),
    /// A majority's disks are short of room; nothing was done.
    NoRoom,
    /// A container has no room for it by its quota; nothing was done.
    Full(Full),
    /// A container of this name takes no command more to expire items; nothing was done.
    TooManyCommands(String),
    /// It is of a format of the log that these members have not said to speak; nothing was done.
    NotSpoken {
        format: u16,
        nodes: Vec<u64>,
    },
}

/// A container at its quota.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Full {
    pub container: String,
    pub limit: u64,
    pub live: u64,
    pub frees_at_ms: Option<u64>,
}

impl std::convert::From<Full> for Error {
    fn from(full: Full) -> Error {
        Error::Engine(ebbtide::Error::QuotaFull {
            container: Some(full.container),
            limit: full.limit,
            live: full.live,
            frees_at: full.frees_at_ms.map(moment),
        })
    }
}

/// The refusal of a command to expire items.
pub fn too_many(container: String) -> Error {
    Error::Engine(ebbtide::Error::TooManyCommands { container })
}

pub type WriteQuestion = Op<Body>;
pub type Written = Asked<Answer<Reply>>;
/// An index and a moment.
pub type Read = Asked<(u64, u64)>;
/// Nothing, or the reason why it cannot be done.
pub type Changed = Asked<Result<(), String>>;

/// The word of the leader to followers, each 50 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedAt {
    pub at_ms: u64,
    pub index: u64,
    pub now_ms: u64,
}

/// Asked of the leader; of another node where it says so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Makes a node a member that votes, or tells its new address.
    Add {
        id: u64,
        addr: String,
        within_ms: u64,
    },
    Remove {
        id: u64,
    },
    /// Lets this member lead.
    Lead {
        id: u64,
    },
    /// Of the member that is to lead: become a candidate.
    Elect,
    /// As `Add`, of a node that is a member. One that was taken out stays out.
    Move {
        id: u64,
        addr: String,
        within_ms: u64,
    },
    /// As `Add`, of a new node, which shows a token.
    Join {
        id: u64,
        addr: String,
        within_ms: u64,
        token: JoinToken,
    },
}

pub fn encode(value: &impl Serialize) -> Bytes {
    // The types here encode; an answer that does not is one that cannot be decoded.
    postcard::to_allocvec(value).map_or(Bytes::new(), Bytes::from)
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))
}

pub fn text(error: &NetError) -> String {
    match error {
        NetError::Unreachable(error) | NetError::NotSent(error) => error.to_string(),
        NetError::TimedOut => "there was no answer in time".to_owned(),
        NetError::Refused(why) => why.clone(),
    }
}

/// The node's network, and what it hears of others' clocks.
pub struct Calls {
    net: Net,
    clocks: Clocks,
    formats: Formats,
}

impl Calls {
    pub async fn bind(
        addr: SocketAddr,
        hello: Hello,
        sockets: Sockets,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Calls> {
        Ok(Calls {
            net: Net::bind(addr, hello, sockets, clock.clone()).await?,
            clocks: Clocks::new(clock),
            formats: Formats::default(),
        })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.net.local_addr()
    }

    pub fn serve(&self, handler: Arc<impl Handler>) {
        self.net.serve(handler);
    }

    pub async fn shutdown(&self) {
        self.net.shutdown().await;
    }

    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    pub fn formats(&self) -> &Formats {
        &self.formats
    }

    /// Something has come from another node.
    pub fn heard(&self, from: &From) {
        self.clocks.heard(from.node, from.wall_ms);
        self.formats.heard(from.node, from.format);
    }

    pub async fn ask(
        &self,
        to: &Peer,
        kind: u8,
        body: Bytes,
        within: Duration,
    ) -> Result<Bytes, NetError> {
        let (from, answer) = self.net.ask(to, kind, body, within).await?;
        self.heard(&from);
        Ok(answer)
    }

    pub async fn send(
        &self,
        to: &Peer,
        kind: u8,
        head: Bytes,
        body: impl AsyncRead + Unpin + Send,
        within: Duration,
    ) -> Result<Bytes, NetError> {
        let (from, answer) = self.net.send(to, kind, head, body, within).await?;
        self.heard(&from);
        Ok(answer)
    }

    /// Asks a node as the leader.
    pub async fn ask_leader<T: DeserializeOwned>(
        &self,
        to: &Peer,
        kind: u8,
        question: Bytes,
        within: Duration,
    ) -> Asked<T> {
        match self.ask(to, kind, question, within).await {
            Ok(answer) => decode(&answer).unwrap_or_else(|e| Asked::Lost(e.to_string())),
            // It was not handled.
            Err(NetError::Refused(_) | NetError::NotSent(_)) => Asked::NotLeading,
            Err(error) => Asked::Lost(text(&error)),
        }
    }
}
