//! Entries of the log, and the answers to them.
//!
//! ```text
//! Entry  = { format, stamp ms, until ms, ops }       one entry carries all writes that waited for it; without ops: a tick
//! Op     = { id: Option<(client, serial, born ms)>, body }
//! Answer = { outcome: done or refused, at ms, index }
//! ```
//!
//! Invariant: the fate of an op is a function of the log up to its entry.

use serde::{Deserialize, Serialize};

/// The format with which every log begins. A later one begins with an entry that says so
/// ([`Commands::raise_format`](crate::Commands::raise_format)).
pub const FORMAT: u32 = 1;

/// An op whose client made it longer ago than this, by the time of the log, is refused: its answer may be kept no more, and it
/// would be taken for new. In milliseconds.
pub const OLDEST_OP_MS: u64 = 10 * 60 * 1_000;

/// An op that was made this far ahead of the time of the log, or further, is refused: its clock is wrong. In milliseconds.
pub const OP_AHEAD_MS: u64 = 500;

/// Answers to ops with an id are kept for this long: twice [`OLDEST_OP_MS`]. In milliseconds.
pub(crate) const SERVED_MS: u64 = 2 * OLDEST_OP_MS;

/// The program's `RaftTypeConfig::D`: all that one entry of the log carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<T> {
    /// The format of the log where it was proposed, by which its ops are applied: [`FORMAT`], or one that an entry before it began.
    pub format: u32,
    /// The moment that the leader drew for it ([`LogTime`](crate::LogTime)), in milliseconds since 1970. Time is never earlier
    /// after it.
    pub stamp_ms: u64,
    /// The next leader's time begins no earlier than this; in milliseconds since 1970. Until it is applied the leader answers
    /// no read at a later moment.
    pub until_ms: u64,
    /// Applied in this order, all at one moment, together or not at all. None: the entry moves time.
    pub ops: Vec<Op<T>>,
}

/// One write of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op<T> {
    /// With an id a repetition is answered as the op was, and changes nothing.
    pub id: Option<OpId>,
    /// The [`Machine`](crate::Machine)'s part.
    pub body: T,
}

impl<T> From<T> for Op<T> {
    fn from(body: T) -> Op<T> {
        Op { id: None, body }
    }
}

/// The name of an op, by which a repetition is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpId {
    /// Drawn at random by the client when it starts.
    pub client: u128,
    /// Each op of a client has another one.
    pub serial: u64,
    /// When the client made it first, in milliseconds since 1970; the same in each repetition.
    pub born_ms: u64,
}

impl OpId {
    pub(crate) fn key(&self) -> [u8; 24] {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&self.client.to_be_bytes());
        key[16..].copy_from_slice(&self.serial.to_be_bytes());
        key
    }

    /// Whether an op of this id may still be taken for new at this time.
    pub(crate) fn check(&self, time_ms: u64) -> Result<(), Refused> {
        if self.born_ms.saturating_add(OLDEST_OP_MS) < time_ms {
            return Err(Refused::TooOld);
        }
        if self.born_ms >= time_ms.saturating_add(OP_AHEAD_MS) {
            return Err(Refused::FromTheFuture);
        }
        Ok(())
    }
}

/// The program's `RaftTypeConfig::R`: an entry's place and moment, and the answer to each of its ops. Blank entries and those of
/// memberships have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied<A> {
    /// The index of the entry in the log.
    pub index: u64,
    /// The time at which it was applied, in milliseconds since 1970.
    pub at_ms: u64,
    /// As many as the entry has ops, in their order.
    pub answers: Vec<Answer<A>>,
}

/// The answer to an op. That of a repetition is the first one's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer<A> {
    /// The index of the entry by which the op took effect.
    pub index: u64,
    /// The moment by which it was judged, in milliseconds since 1970.
    pub at_ms: u64,
    /// The machine's answer; or nothing was changed.
    pub outcome: Result<A, Refused>,
}

/// The reason why an op has changed nothing. All replicas agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// It was made over [`OLDEST_OP_MS`] before it was applied.
    TooOld,
    /// It was made [`OP_AHEAD_MS`] or more after the time of the log: its client's clock is ahead.
    FromTheFuture,
    /// The machine says so, or a key, a value or a ttl of a write is out of range.
    Invalid(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::TooOld => {
                f.write_str("the request was made too long ago to tell whether it is a repetition")
            }
            Refused::FromTheFuture => f.write_str("the request is of a clock that is ahead"),
            Refused::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}
