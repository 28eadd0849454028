//! The changes of a state and the ends of its items, in their order.
//!
//! ```text
//! Reader ── changes ──> a page behind a position, of the state that counts now
//!        └─ expirations ──> Expirations ── next ──> ends behind its cursor, of the state that counts at each call
//! ```
//!
//! Invariants:
//!
//! 1. Versions, ends and their order are the same in all states of one log, so positions and cursors are good for each of them.
//! 2. A call is answered by one state. A reader of ends that finds that a snapshot has replaced its state goes on in the new one, at
//!    its cursor.

use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use ebbtide::{Change, ChangePosition, Error, Expiration, ExpiryCursor};
use openraft::RaftTypeConfig;

use crate::checks::is_reserved;
use crate::reader::{Reader, container_of, millis};
use crate::shared::{Open, Shared};

/// Some changes in the order of their versions, up to a moment.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The changes; none: all is told.
    pub changes: Vec<Change>,
    /// Where the next page goes on.
    pub position: ChangePosition,
    /// The state's time when the call began, in milliseconds since 1970: nothing was written before it that is neither told nor comes
    /// with the next pages.
    pub at_ms: u64,
}

/// A change as users of a state see it, who know nothing of the crate's own containers.
fn shown(change: Change) -> Option<Change> {
    let container = match &change {
        Change::Containers { names } => {
            let names = names.iter().filter(|name| !is_reserved(name));
            let names = names.cloned().collect();
            return Some(Change::Containers { names });
        }
        Change::Created { container, .. }
        | Change::Expiry { container, .. }
        | Change::DeleteRange { container, .. }
        | Change::Put { container, .. }
        | Change::Delete { container, .. } => container,
        _ => return Some(change),
    };
    (!is_reserved(container)).then_some(change)
}

impl<C: RaftTypeConfig> Reader<C> {
    /// The next changes behind a position, up to `limit` (at least 1), as
    /// [`changes_by_version`](ebbtide::Database::changes_by_version) tells them.
    ///
    /// # Errors
    /// Those of the engine: [`Error::ChangesGone`] where this state knows them no more. Another one may.
    pub fn changes(&self, since: ChangePosition, limit: usize) -> Result<Changed, Error> {
        let open = self.shared.open();
        let at_ms = millis(open.db.now());
        let mut pages = open.db.changes_by_version(since, limit);
        let mut changes = vec![];
        while changes.is_empty()
            && let Some(page) = pages.next().transpose()?
        {
            changes = page.into_iter().filter_map(shown).collect();
        }
        Ok(Changed {
            changes,
            position: pages.position(),
            at_ms,
        })
    }

    /// The ends of a container's items from a cursor on.
    pub fn expirations(&self, container: &str, from: ExpiryCursor) -> Expirations<C> {
        Expirations {
            shared: self.shared.clone(),
            container: container.to_owned(),
            cursor: from,
            feed: None,
        }
    }

    /// How long ended items of a container are kept for readers of ends, as of what is applied.
    ///
    /// # Errors
    /// A container that is not there.
    pub fn keep_expired(&self, container: &str) -> Result<std::time::Duration, Error> {
        Ok(container_of(&self.shared.open(), container)?.keep_expired())
    }
}

/// The ends of a container's items: see [`Reader::expirations`].
pub struct Expirations<C: RaftTypeConfig> {
    shared: Arc<Shared<C>>,
    container: String,
    cursor: ExpiryCursor,
    /// Of this state, which it does not keep.
    feed: Option<(Weak<Open>, ebbtide::Expirations)>,
}

impl<C: RaftTypeConfig> Debug for Expirations<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expirations")
            .field("container", &self.container)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

/// Some ends.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Those up to the state's time, in their order.
    pub ends: Vec<Expiration>,
    /// The moment of the next one, as known now; it may be over by the clock, and not by the state's time yet.
    pub next_due: Option<SystemTime>,
    /// The state's time when the call began, in milliseconds since 1970: nothing ended before it that is neither told nor comes with
    /// the next calls.
    pub at_ms: u64,
}

impl<C: RaftTypeConfig> Expirations<C> {
    /// The position behind the last end that was given: plain data, good for each state of the same log.
    pub fn cursor(&self) -> ExpiryCursor {
        self.cursor.clone()
    }

    /// The next ends, up to `most`.
    ///
    /// # Errors
    /// Those of the engine: [`Error::ExpirationsGone`] where this state has them no more, [`Error::AheadOfTime`] where the cursor is
    /// of another state, and this one has not come so far. The next call tries again.
    pub fn next(&mut self, most: usize) -> Result<Ended, Error> {
        let next = self.pull(most);
        if next.is_err() {
            self.feed = None;
        }
        next
    }

    fn pull(&mut self, most: usize) -> Result<Ended, Error> {
        let open = self.shared.open();
        let at_ms = millis(open.db.now());
        let is_of_now = |(of, _): &(Weak<Open>, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(&open));
        let feed = match self.feed.take().filter(is_of_now) {
            Some((_, feed)) => feed,
            None => container_of(&open, &self.container)?.expirations(self.cursor.clone()),
        };
        let (_, feed) = self.feed.insert((Arc::downgrade(&open), feed));
        let ends = feed.by_ref().take(most).collect::<Result<Vec<_>, _>>();
        // Those before an error are given again: nobody has seen them.
        let ends = ends?;
        self.cursor = feed.cursor();
        Ok(Ended {
            ends,
            next_due: feed.next_due(),
            at_ms,
        })
    }
}
