//! The changes of a replica's state, the ends of its items, and what is watched of it.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;

use super::{Replica, Types};
use crate::face::Error;
use crate::machine::is_shown;

/// The ends in a container.
pub type Ends = ebbtide_openraft::Expirations<Types>;
/// The writes and ends in a range of a container.
pub type Watching = ebbtide_openraft::Watch<Types>;

/// A range of keys.
pub type Keys = (Bound<Bytes>, Bound<Bytes>);

impl Replica {
    /// The changes behind a position.
    pub fn changes(
        &self,
        since: ebbtide::ChangePosition,
        most: usize,
    ) -> Result<ebbtide_openraft::Changed, Error> {
        let mut since = since;
        loop {
            let mut changed = self.reader.changes(since, most)?;
            let is_end = changed.changes.is_empty();
            changed.changes.retain_mut(is_shown);
            // An empty page says that all is told.
            if is_end || !changed.changes.is_empty() {
                return Ok(changed);
            }
            since = changed.position;
        }
    }

    /// The ends in a container from a cursor on.
    pub fn ends(&self, container: &str, from: ebbtide::ExpiryCursor) -> Ends {
        self.reader.expirations(container, from)
    }

    /// The writes and ends in a range of a container, from now on.
    pub fn watch(&self, container: &str, range: Keys) -> Result<Watching, Error> {
        self.has(container)?;
        Ok(self.reader.watch(container, range)?)
    }

    pub fn keep_expired(&self, container: &str) -> Result<Duration, Error> {
        self.has(container)?;
        Ok(self.reader.keep_expired(container)?)
    }
}
