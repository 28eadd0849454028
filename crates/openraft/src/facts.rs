//! Facts: all that a state knows of the log, in the batch of each entry.
//!
//! ```text
//! container "ebbtide-openraft"
//!     "facts"         postcard(format, Option<LogId>, time ms, until ms)          the format is the log's
//!     "membership"    postcard(StoredMembership)          when it changes
//!     "quota/" name   postcard(Quota)                     of a container that has one
//! container "ebbtide-openraft.served"
//!     client (16, BE) serial (8, BE)    postcard(Answer)  for 20 min
//! ```
//!
//! Invariant: time and until move by the rule of `moments.rs` alone.

use std::collections::HashMap;
use std::sync::Arc;

use ebbtide::{Batch, Container, ContainerOptions, Database, DefaultTtl, Error, Quota};
use openraft::{AnyError, LogId, Node, NodeId, StoredMembership};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::entry::FORMAT;
use crate::machine::Containers;
use crate::moments::Moments;

/// The container of the facts.
pub const FACTS: &str = "ebbtide-openraft";
/// The container of answers to ops with an id.
pub const SERVED: &str = "ebbtide-openraft.served";

const FACTS_KEY: &[u8] = b"facts";
const MEMBERSHIP_KEY: &[u8] = b"membership";
const QUOTA_PREFIX: &str = "quota/";

/// See the file's head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Facts<N: NodeId> {
    /// The newest format of the entries that may follow.
    pub format: u32,
    /// The last entry that was applied.
    pub applied: Option<LogId<N>>,
    /// In milliseconds since 1970.
    pub time_ms: u64,
    /// In milliseconds since 1970.
    pub until_ms: u64,
}

impl<N: NodeId> Default for Facts<N> {
    fn default() -> Self {
        Facts {
            format: FORMAT,
            applied: None,
            time_ms: 0,
            until_ms: 0,
        }
    }
}

impl<N: NodeId> Facts<N> {
    /// The facts after an entry. `stamped`: its stamp and its until; a blank entry and one of a membership have none.
    pub fn after(&self, log_id: &LogId<N>, stamped: Option<(u64, u64)>) -> Facts<N> {
        let now = Moments {
            time_ms: self.time_ms,
            until_ms: self.until_ms,
        };
        let last = self.applied.as_ref().map(|last| &last.leader_id);
        let next = now.after(last, &log_id.leader_id, stamped);
        Facts {
            format: self.format,
            applied: Some(log_id.clone()),
            time_ms: next.time_ms,
            until_ms: next.until_ms,
        }
    }

    /// An error, if the state is of a format that the machine does not speak.
    pub fn check(&self, speaks: u32) -> Result<(), AnyError> {
        match self.format > speaks {
            true => Err(unspoken("state", self.format, speaks)),
            false => Ok(()),
        }
    }

    /// Adds them to the batch of the entry.
    pub fn write(&self, to: &Container, batch: &mut Batch) -> Result<(), AnyError> {
        batch.put(to, FACTS_KEY, encode(self)?);
        Ok(())
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, AnyError> {
    postcard::to_allocvec(value).map_err(|e| AnyError::new(&e))
}

/// The key of the quota of a container.
pub fn quota_key(container: &str) -> Vec<u8> {
    format!("{QUOTA_PREFIX}{container}").into_bytes()
}

/// The quotas of containers by their names. The engine knows nothing of them: it would ask estimates, which differ between
/// replicas, when an entry is applied.
pub type Quotas = HashMap<String, Quota>;

/// Those that entries have set.
pub fn quotas(db: &Database) -> Result<Quotas, Error> {
    let facts = db.container_with(FACTS, ContainerOptions::new().or_keep())?;
    let quota = |item: Result<ebbtide::Item, Error>| {
        let item = item?;
        let name = String::from_utf8_lossy(&item.key()[QUOTA_PREFIX.len()..]).into_owned();
        let quota = postcard::from_bytes(item.value()).map_err(|_| Error::InvalidArgument {
            what: "quota",
            given: format!("of {name:?}, one that postcard does not decode"),
            allowed: "those of this format",
        })?;
        Ok((name, quota))
    };
    facts.prefix(QUOTA_PREFIX).map(quota).collect()
}

/// Adds a membership to the batch of its entry.
pub fn write_membership<N: NodeId, D: Node>(
    membership: &StoredMembership<N, D>,
    to: &Container,
    batch: &mut Batch,
) -> Result<(), AnyError> {
    batch.put(to, MEMBERSHIP_KEY, encode(membership)?);
    Ok(())
}

/// Facts and membership, as one snapshot of the state has them.
pub fn read<N: NodeId, D: Node>(
    db: &Database,
) -> Result<(Facts<N>, StoredMembership<N, D>), AnyError> {
    let snapshot = db.snapshot();
    let facts = snapshot.container(FACTS).map_err(|e| AnyError::new(&e))?;
    let value = |key| facts.get(key).map_err(|e| AnyError::new(&e));
    let known: Facts<N> = decode(value(FACTS_KEY)?)?;
    Ok((known, decode(value(MEMBERSHIP_KEY)?)?))
}

/// The error of a node that is too old for something.
pub fn unspoken(what: &str, format: u32, speaks: u32) -> AnyError {
    AnyError::error(format!(
        "the {what} is of format {format}, and this version speaks formats up to {speaks}: start a newer one"
    ))
}

fn decode<T: DeserializeOwned + Default>(value: Option<ebbtide::Value>) -> Result<T, AnyError> {
    let decoded = value.map(|value| postcard::from_bytes(&value)).transpose();
    decoded
        .map(Option::unwrap_or_default)
        .map_err(|e| AnyError::new(&e))
}

/// Opens the containers of the crate and of the machine, and makes those that are missing; and opens those that entries have
/// made.
pub fn containers(
    db: &Database,
    named: Vec<(&'static str, ContainerOptions)>,
) -> Result<Containers, Error> {
    let plain = || ContainerOptions::new().or_keep();
    let own = [
        (FACTS, plain().default_ttl(DefaultTtl::Off)),
        (SERVED, plain()),
    ];
    let named = named
        .into_iter()
        .map(|(name, options)| (name, options.or_keep()));
    for (name, options) in own.into_iter().chain(named) {
        db.container_with(name, options)?;
    }
    opened(db)
}

/// All containers that there are: which these are is decided by entries, and written with them.
pub fn opened(db: &Database) -> Result<Containers, Error> {
    let open = |name: String| {
        let container = db.container_with(&name, ContainerOptions::new().or_keep())?;
        Ok((Arc::from(name), container))
    };
    db.containers().into_iter().map(open).collect()
}
