//! The changes of a cluster and the ends of its items, in their order.
//!
//! Invariant: a position and a cursor are good on each node, for versions, ends and their order are the same on all of them. What a
//! node knows no more is its own: another one may know it.

use std::time::{Duration, SystemTime};

use ebbtide::{Change, ChangePosition, Expiration, ExpiryCursor};

use super::{Answered, Container, Error, ReadLevel, Token};
use crate::Node;
use crate::machine::body::{Command, millis_up};
use crate::node::Shared;
use crate::raft::Ends;

/// Some changes in the order of their versions; see [`Node::changes`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChangePage {
    /// The changes; none: all up to the answer's place was told.
    pub changes: Vec<Change>,
    /// Where the next page goes on, on any node: plain data, to be stored with what was done.
    pub position: ChangePosition,
}

impl Node {
    /// The changes of all containers behind a position, up to `limit` (at least 1) of them: the newest state of every key that was
    /// written since, and the keys that were deleted or have ended, in the order of their versions, as
    /// [`Database::changes_by_version`](ebbtide::Database::changes_by_version) tells them. [`Version::start`](ebbtide::Version::start)
    /// begins anew. Of a key that was written again later only that write is told; the end of an item that a copy has is not told,
    /// for the copy judges it by [`ExpiryRule`](ebbtide::ExpiryRule) and the answer's `at`; where a rule comes, it removes what is
    /// gone by it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use ebbtide::{Change, Version};
    /// use ebbtide_cluster::{ReadLevel, Token};
    ///
    /// let orders = node.create_container("orders").await?;
    /// orders.put("o-17", "42 apples").await?;
    /// let mut position = Version::start().into();
    /// loop {
    ///     let page = node.changes(ReadLevel::Linearizable, Token::default(), position, 100).await?.value;
    ///     for change in &page.changes {
    ///         if let Change::Put { item, .. } = change {
    ///             assert_eq!((item.key(), &item.value()[..]), (&b"o-17"[..], &b"42 apples"[..]));
    ///         }
    ///     }
    ///     position = page.position; // stored with what was done; this node or another one goes on there
    ///     if page.changes.is_empty() { break }
    /// }
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of a read of this level. [`Error::Engine`] with [`ebbtide::Error::ChangesGone`]: this node knows some of them no more,
    /// because deleted and ended items leave its disk. Ask another node, or begin anew.
    pub async fn changes(
        &self,
        level: ReadLevel,
        since: Token,
        position: ChangePosition,
        limit: usize,
    ) -> Result<Answered<ChangePage>, Error> {
        let read = move |node: &Shared, at_ms: u64| {
            let changed = node.changes(position, limit)?;
            let page = ChangePage {
                changes: changed.changes,
                position: changed.position,
            };
            Ok((page, at_ms.max(changed.at_ms)))
        };
        self.shared().read(level, since, read).await
    }
}

impl Container {
    /// How long ended items are kept for readers of [`Container::expirations`]; zero at first.
    pub async fn keep_expired(&self) -> Result<Answered<Duration>, Error> {
        let name = self.name.clone();
        let read =
            move |node: &Shared, at_ms| node.at_one_moment(at_ms, || node.keep_expired(&name));
        self.node.read(self.level, self.since, read).await
    }

    /// Changes how long ended items are kept on each node, rounded up to milliseconds: as long as a reader of expirations may be
    /// away.
    pub async fn set_keep_expired(&self, duration: Duration) -> Result<Answered<()>, Error> {
        let keep = Command::KeepExpired(millis_up(duration));
        self.command(keep).await
    }

    /// The items that end, each once, in the order of their ends, with the value they had: read on this node, at this container's
    /// level, from a cursor on. They end in the same order on all nodes, and a cursor is good on each of them.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use std::time::Duration;
    /// use ebbtide::ExpiryCursor;
    ///
    /// let carts = node.create_container("carts").await?;
    /// carts.set_keep_expired(Duration::from_secs(3_600)).await?; // a reader may be away for so long
    /// let mut ends = carts.expirations(ExpiryCursor::start());
    /// carts.put_with_ttl("ada", "3 books", Duration::from_millis(20)).await?;
    /// let ended = loop {
    ///     let page = ends.next(100).await?.value;
    ///     if !page.is_empty() { break page }
    ///     tokio::time::sleep(Duration::from_millis(20)).await;
    /// };
    /// assert_eq!(ended[0].key(), b"ada");
    /// let cursor = ends.cursor(); // plain data: stored with what was done
    /// # let _ = cursor;
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Ended items leave the disks soon, also under an open reader: see [`Container::set_keep_expired`].
    /// A cursor is of one container: where that was dropped and another one made of its name, begin anew.
    /// Of changes of the default and commands the 64 latest are known: a reader that is further behind gets
    /// [`ebbtide::Error::ExpirationsGone`]; one from [`ExpiryCursor::start`] begins at the oldest end that is known then.
    /// [`ExpiryCursor::now`] is the state's time at the first call of [`Expirations::next`].
    pub fn expirations(&self, from: ExpiryCursor) -> Expirations {
        Expirations {
            container: self.clone(),
            cursor: from,
            ends: None,
            next_due: None,
        }
    }
}

/// The ends of a container's items, one page after the other; see [`Container::expirations`].
pub struct Expirations {
    container: Container,
    cursor: ExpiryCursor,
    /// None: not opened yet, or lost with a call that was dropped. Then it is opened at the cursor.
    ends: Option<Ends>,
    next_due: Option<SystemTime>,
}

impl std::fmt::Debug for Expirations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expirations")
            .field("container", &self.container)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Expirations {
    /// The position behind the last end that was given.
    #[must_use]
    pub fn cursor(&self) -> ExpiryCursor {
        self.cursor.clone()
    }

    /// The moment of the next end, as the last call knew it: until then a caller may rest. A write may bring an earlier one.
    #[must_use]
    pub fn next_due(&self) -> Option<SystemTime> {
        self.next_due
    }

    /// The next ends, up to `most` (at least 1); none: there is no more by now. Time goes on with the entries of the log: where an end is due and
    /// nobody writes, the call has an entry written that moves it, at most ten a second and node.
    ///
    /// # Errors
    /// Those of a read; [`Error::Engine`] with [`ebbtide::Error::ExpirationsGone`]: this node has some of them no more, and another
    /// one may; with [`ebbtide::Error::AheadOfTime`], which can be tried again: the cursor is from another node, and this one has
    /// not come so far.
    pub async fn next(&mut self, most: usize) -> Result<Answered<Vec<Expiration>>, Error> {
        let page = self.pull(most).await?;
        let node = self.container.node.clone();
        let is_due = |due| node.is_over(due);
        if !page.value.is_empty() || !self.next_due.is_some_and(is_due) || !node.may_tick() {
            return Ok(page);
        }
        if self.container.level == ReadLevel::Linearizable {
            node.tick().await?;
            return self.pull(most).await;
        }
        // Such a read waits for no leader: a later call sees it.
        tokio::spawn(node.tick());
        Ok(page)
    }

    async fn pull(&mut self, most: usize) -> Result<Answered<Vec<Expiration>>, Error> {
        let (ends, cursor) = (self.ends.take(), self.cursor.clone());
        let name = self.container.name.clone();
        let read = move |node: &Shared, at_ms: u64| {
            let mut ends = match ends {
                Some(ends) => ends,
                None => node.ends(&name, cursor)?,
            };
            let ended = ends.next(most.max(1))?;
            Ok(((ends, ended.ends, ended.next_due), at_ms.max(ended.at_ms)))
        };
        let Container {
            node, level, since, ..
        } = &self.container;
        let answered = node.read(*level, *since, read).await?;
        let (token, (ends, ended, next_due)) = (answered.token, answered.value);
        self.cursor = ends.cursor();
        self.next_due = next_due;
        self.ends = Some(ends);
        Ok(Answered::new(ended, token))
    }
}
