//! Watching a container on a node.
//!
//! Invariants:
//!
//! 1. Events that were taken from the engine stand in `ready` until they are given. So a call that is dropped loses none.
//! 2. A watcher that waits reads the index of the last applied entry, then looks, then waits for a later index. So it misses no
//!    entry that was applied meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ebbtide::{KeyBounds, WatchEvent};
use ebbtide_openraft::Rest;
use tokio::time::Instant;

use super::container::bounds;
use super::{Answered, Container, Error, ReadLevel};
use crate::node::Shared;
use crate::raft::Watching;

/// A watcher that waits looks this often at least, for its node may be closed and clocks leap.
const LOOK: Duration = Duration::from_secs(1);
/// So often where an end is over by the clock, and time has not come so far.
const TICK: Duration = Duration::from_millis(100);

impl Container {
    /// The writes to the keys of a range, and the ends of their items, from now on: as this node applies them, in the order of
    /// versions, which is the same on all nodes, each end after the writes before it. An end whose key was written again before the
    /// watcher came to it is not told. A node tells an event when reads at [`ReadLevel::Local`] show it there; at each level of this
    /// container no other node is asked.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use std::time::Duration;
    /// use ebbtide::WatchEvent;
    ///
    /// let locks = node.create_container("locks").await?;
    /// let mut watch = locks.watch("job-".."job.").await?;
    /// locks.put_with_ttl("job-7", "worker 3", Duration::from_millis(50)).await?;
    /// let mut seen = vec![];
    /// while seen.len() < 2 && watch.wait(Duration::from_secs(60)).await? {
    ///     for event in watch.next(100).await?.value {
    ///         match event {
    ///             WatchEvent::Put(item) => seen.push(format!("{:?} has it", item.value())),
    ///             WatchEvent::Ended(ended) => seen.push(format!("{:?} let it go", ended.value())),
    ///             WatchEvent::Lost { from } => drop(from), // read what there is now, or the changes since then
    ///             _ => {}
    ///         }
    ///     }
    /// }
    /// assert_eq!(seen, [r#"b"worker 3" has it"#, r#"b"worker 3" let it go"#]);
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// **Bounded**, as [`ebbtide::Container::watch`] is: who does not keep up is given [`WatchEvent::Lost`]. So is a watcher whose
    /// node was so far behind that another one sent it a snapshot. Then [`Node::changes`](crate::Node::changes) since that version
    /// tells what was written, on any node. To begin with all that is there, open the watch first, and then read.
    ///
    /// An end is told from its item as it is stored, and ended items leave the disk soon: [`Container::set_keep_expired`] keeps them
    /// for a watcher that may be behind.
    ///
    /// # Errors
    /// Those of a read; [`Error::NoContainer`].
    pub async fn watch(&self, range: impl KeyBounds) -> Result<Watch, Error> {
        let (name, range) = (self.name.clone(), bounds(&range));
        let open = move |node: &Shared, at_ms| Ok((node.watch(&name, range)?, at_ms));
        let opened = self.node.read(ReadLevel::Local, self.since, open).await?;
        Ok(Watch {
            container: self.clone(),
            inner: Arc::new(Mutex::new(Inner {
                watching: opened.value,
                ready: VecDeque::new(),
                taken_at_ms: 0,
            })),
        })
    }
}

/// The events of a container on a node, in their order; see [`Container::watch`]. Dropping a future of its methods loses none.
#[must_use = "it gives nothing until it is asked, and writers keep for it what it is to give"]
pub struct Watch {
    container: Container,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    watching: Watching,
    /// Taken, and not given.
    ready: VecDeque<WatchEvent>,
    /// The state's time when they were taken, in milliseconds since 1970.
    taken_at_ms: u64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("container", &self.container)
            .finish_non_exhaustive()
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// The next events, up to `most` (at least 1); none: there is no more by now, and a later call may give some.
    ///
    /// # Errors
    /// Those of a read; [`Error::NoContainer`] where the container was dropped. A later call goes on, where one can, with
    /// [`WatchEvent::Lost`].
    pub async fn next(&mut self, most: usize) -> Result<Answered<Vec<WatchEvent>>, Error> {
        let (most, inner) = (most.max(1), self.inner.clone());
        let name = self.container.name.clone();
        let take = move |node: &Shared, at_ms: u64| {
            let mut inner = lock(&inner);
            if inner.ready.is_empty() {
                node.has(&name)?;
                let watched = inner.watching.next(most)?;
                inner.ready.extend(watched.events);
                inner.taken_at_ms = watched.at_ms;
            }
            Ok(((), at_ms.max(inner.taken_at_ms)))
        };
        let answered = self.ask(take).await?;
        let ready = &mut lock(&self.inner).ready;
        let events = ready.drain(..most.min(ready.len())).collect();
        Ok(answered.map(|()| events))
    }

    /// Waits until there is something to give, for at most `timeout`. False: there was nothing. It looks after each entry of the log,
    /// of whatever container, which takes some 0.1 ms of a thread. Where an end is due and nobody writes, it has an entry written that
    /// moves time, at most ten a second and node.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub async fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let (node, begun) = (self.container.node.clone(), Instant::now());
        loop {
            let applied = node.applied_index();
            let Rest::Until(due) = self.look().await? else {
                return Ok(true);
            };
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let rest = match due.map(|due| node.ahead(due)) {
                None => LOOK,
                Some(Some(ahead)) => ahead.min(LOOK),
                Some(None) => {
                    if node.may_tick() {
                        tokio::spawn(node.clone().tick());
                    }
                    TICK
                }
            };
            node.moves_on(applied, rest.min(left)).await;
        }
    }

    async fn look(&self) -> Result<Rest, Error> {
        let (inner, name) = (self.inner.clone(), self.container.name.clone());
        let look = move |node: &Shared, at_ms| {
            let mut inner = lock(&inner);
            if !inner.ready.is_empty() {
                return Ok((Rest::Ask, at_ms));
            }
            node.has(&name)?;
            Ok((inner.watching.look()?, at_ms))
        };
        Ok(self.ask(look).await?.value)
    }

    async fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared, u64) -> Result<(T, u64), Error> + Send + 'static,
    ) -> Result<Answered<T>, Error> {
        let Container { node, since, .. } = &self.container;
        node.read(ReadLevel::Local, *since, read).await
    }
}
