//! Reads: which place and which moment a read is of, and the wait until this replica is there.
//!
//! | level | index and moment are |
//! | --- | --- |
//! | linearizable | the leader's, by a round with a majority (I3) |
//! | bounded | those of the leader's last message whose entries this replica has applied, if young enough; else as linearizable |
//! | local | what is applied |
//!
//! Invariants:
//!
//! 1. A read is answered at its moment or a later one, by a state that has all that was written before the moment.
//! 2. A moment is no later than the `until` of what this replica has applied, so no later leader's time lies before it.
//! 3. The token of an answer has an index that is not below that of any entry that the answer saw.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ebbtide::{ChangePosition, Clock, ExpiryCursor};
use ebbtide_openraft::View;
use tokio::time::{Instant, timeout};

use super::{Core, Node, Shared};
use crate::calls::{self, Asked, ClosedAt, Read};
use crate::face::{Answered, Error, ReadLevel, Token};
use crate::machine::body::{Body, millis};
use crate::raft::{Ends, Keys, Place, Watching};

/// A node that has applied what the leader had so long ago is caught up, in milliseconds of the own uptime.
const CAUGHT_UP_MS: u64 = 5_000;
/// A message of the leader is late by less, in milliseconds: it gives up asking before.
const OVERTAKEN_MS: u64 = 1_000;
/// So many messages of the leader are kept until this replica comes to them: it sends one each 50 ms.
const MOST_AHEAD: usize = 64;
/// Readers of ends have time moved so often at most, in milliseconds.
const TICK_MS: u64 = 100;
/// A read that waits asks so often whether this node still serves.
const LOOK: Duration = Duration::from_secs(1);

/// Messages of the leader about closed moments.
#[derive(Default)]
pub(super) struct Bound(Mutex<Heard>);

/// A message of the leader, and the own uptime when it came.
type Word = (ClosedAt, u64);

#[derive(Default)]
struct Heard {
    /// Those that came after `reached`, in that order, [`MOST_AHEAD`] at most: then the last one gives way to the next.
    ahead: VecDeque<Word>,
    /// The last one whose entries this replica has applied.
    reached: Option<Word>,
    /// The own uptime when one came and what the one before it had told was applied.
    caught_up: Option<u64>,
}

impl Heard {
    fn last(&self) -> Option<&Word> {
        self.ahead.back().or(self.reached.as_ref())
    }

    fn look(&mut self, place: Place) {
        let is_here =
            |(closed, _): &Word| closed.index <= place.index && closed.at_ms <= place.until_ms;
        if let Some(found) = self.ahead.iter().rposition(is_here) {
            self.reached = self.ahead.drain(..=found).next_back();
        }
    }
}

impl Bound {
    /// A message that was overtaken by a later one changes nothing. One of a leader whose clock is behind the last leader's is taken
    /// when no other has come for a while.
    fn heard(&self, closed: ClosedAt, uptime_ms: u64, place: Place) {
        let mut heard = self.lock();
        heard.look(place);
        let is_later = |(last, heard_ms): &Word| {
            (last.now_ms, last.index) < (closed.now_ms, closed.index)
                || uptime_ms.saturating_sub(*heard_ms) >= OVERTAKEN_MS
        };
        if heard.last().is_none_or(is_later) {
            let known = heard.last().map_or(closed.index, |(last, _)| last.index);
            if known <= place.index {
                heard.caught_up = Some(uptime_ms);
            }
            if heard.ahead.len() == MOST_AHEAD {
                heard.ahead.pop_back();
            }
            heard.ahead.push_back((closed, uptime_ms));
        }
    }

    /// The last message whose entries a replica at `place` has applied.
    fn reached(&self, place: Place) -> Option<Word> {
        let mut heard = self.lock();
        heard.look(place);
        heard.reached
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    pub(super) fn heard_closed(&self, closed: ClosedAt) {
        let place = self.replica.place();
        self.bound.heard(closed, self.clock.uptime(), place);
    }

    /// The own uptime when the leader was heard last.
    pub(super) fn heard_at(&self) -> Option<u64> {
        self.bound.lock().last().map(|(_, uptime_ms)| *uptime_ms)
    }

    /// Whether this node leads, or has applied all that the leader had some seconds ago.
    pub(super) fn is_caught_up(&self) -> bool {
        let is_recent = |at: u64| self.clock.uptime().saturating_sub(at) <= CAUGHT_UP_MS;
        self.replica.is_leading() || self.bound.lock().caught_up.is_some_and(is_recent)
    }

    /// As the leader.
    pub(super) async fn read_here(&self) -> Read {
        self.replica.read_point().await.into()
    }

    async fn linearizable(&self) -> Result<(u64, u64), Error> {
        let attempt = |left: Duration| async move {
            let Some(leader) = self.replica.leader() else {
                return Asked::NotLeading;
            };
            let within = left.min(Duration::from_secs(1));
            if leader.node == self.identity.node {
                let read = timeout(within, self.read_here()).await;
                return read.unwrap_or(Asked::NotLeading);
            }
            let nothing = Bytes::new();
            self.calls
                .ask_leader(&leader, calls::READ, nothing, within)
                .await
        };
        match self.ask_leader(self.patience, attempt).await {
            // A read changes nothing, answered or not.
            Err(Error::Unknown(_)) => Err(Error::NoLeader),
            asked => asked,
        }
    }

    /// A place that is at most so far behind the leader, if this node knows one and is there.
    fn bounded(&self, within: Duration) -> Option<(u64, u64)> {
        let led = self.replica.closed(self.clock.wall());
        let led = led.filter(|_| self.replica.is_leading());
        let place = self.replica.place();
        let (index, at_ms, now_ms) = match led {
            Some((at_ms, index, now_ms)) if at_ms <= place.until_ms => (index, at_ms, now_ms),
            Some(_) => return None,
            None => {
                let (closed, heard_ms) = self.bound.reached(place)?;
                let ago_ms = self.clock.uptime().saturating_sub(heard_ms);
                (closed.index, closed.at_ms, closed.now_ms + ago_ms)
            }
        };
        let at_ms = at_ms.max(place.time_ms);
        let behind_ms = now_ms.saturating_sub(at_ms);
        (u128::from(behind_ms) <= within.as_millis()).then_some((index, at_ms))
    }

    /// Waits until this replica has applied an entry.
    async fn wait_for(&self, index: u64) -> Result<(), Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let applied = timeout(left.min(LOOK), self.replica.applied(index));
            if applied.await.is_ok() {
                return Ok(());
            }
            // It may have learned meanwhile that nothing comes any more.
            self.serves()?;
            if left <= LOOK {
                return Err(Error::Behind);
            }
        }
    }

    /// Waits until this replica can be read at a level, with a token, and returns the moment.
    pub async fn place_of(&self, level: ReadLevel, since: Token) -> Result<u64, Error> {
        let placed = self.place(level, since).await?;
        self.counts.read();
        Ok(placed)
    }

    async fn place(&self, level: ReadLevel, since: Token) -> Result<u64, Error> {
        self.serves()?;
        let (index, at_ms) = match level {
            ReadLevel::Local => (0, 0),
            ReadLevel::Bounded(within) => match self.bounded(within) {
                Some(place) => place,
                None => self.linearizable().await?,
            },
            ReadLevel::Linearizable => self.linearizable().await?,
        };
        self.wait_for(index.max(since.index)).await?;
        if since.at_ms > self.replica.place().until_ms {
            let text = format!("a token of a moment that no node has answered at: {since:?}");
            return Err(Error::Invalid(text));
        }
        Ok(at_ms.max(since.at_ms))
    }
}

/// For changes and ends (face/feeds.rs).
impl Core {
    /// Of what is applied.
    pub fn keep_expired(&self, container: &str) -> Result<Duration, Error> {
        self.replica.keep_expired(container)
    }

    /// Something that has no moment of its own, with one at which it was so and that is not before this one.
    pub fn at_one_moment<T>(
        &self,
        at_ms: u64,
        read: impl Fn() -> Result<T, Error>,
    ) -> Result<(T, u64), Error> {
        let time_ms = || millis(self.replica.database().now());
        loop {
            let at_ms = at_ms.max(time_ms());
            let read = read()?;
            // Else entries have come of which it may have seen none, or the first ones.
            if time_ms() <= at_ms {
                return Ok((read, at_ms));
            }
        }
    }

    /// The changes behind a position.
    pub fn changes(
        &self,
        position: ChangePosition,
        limit: usize,
    ) -> Result<ebbtide_openraft::Changed, Error> {
        self.replica.changes(position, limit)
    }

    /// A reader of the ends in a container.
    pub fn ends(&self, container: &str, from: ExpiryCursor) -> Result<Ends, Error> {
        self.replica.has(container)?;
        Ok(self.replica.ends(container, from))
    }

    /// An error if there is no such container.
    pub fn has(&self, container: &str) -> Result<(), Error> {
        self.replica.has(container)
    }

    /// A watcher of a container, from now on.
    pub fn watch(&self, container: &str, range: Keys) -> Result<Watching, Error> {
        self.replica.watch(container, range)
    }

    /// The index of the last entry that is applied here.
    pub fn applied_index(&self) -> u64 {
        self.replica.place().index
    }

    /// Waits until this node has applied a later entry, for at most so long.
    pub async fn moves_on(&self, index: u64, within: Duration) {
        // The caller looks again in either case.
        let _ = timeout(within, self.replica.applied(index + 1)).await;
    }

    /// How long a moment is ahead by this node's clock; `None`: it is over.
    pub fn ahead(&self, moment: SystemTime) -> Option<Duration> {
        let ahead = millis(moment).checked_sub(self.clock.wall())?;
        (ahead > 0).then(|| Duration::from_millis(ahead))
    }

    /// Whether a moment is over by this node's clock.
    pub fn is_over(&self, moment: SystemTime) -> bool {
        self.ahead(moment).is_none()
    }

    /// Whether a reader of ends may have time moved now: none has a short while ago.
    pub fn may_tick(&self) -> bool {
        let (now, last) = (self.clock.uptime(), self.ticked.load(Ordering::Relaxed));
        let is_due = last == 0 || now.saturating_sub(last) >= TICK_MS;
        let mine = || {
            let ticked = &self.ticked;
            ticked.compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
        };
        is_due && mine().is_ok()
    }
}

/// All containers of a node's state at one moment: [`Node::snapshot`]. Derefs to the engine's snapshot, whose containers are read
/// by calls that wait for files. It holds back what its node would purge, as long as it is open.
pub struct Snapshot(View);

impl std::ops::Deref for Snapshot {
    type Target = ebbtide::Snapshot;

    fn deref(&self) -> &ebbtide::Snapshot {
        &self.0
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at_ms = self.0.at_ms;
        f.debug_struct("Snapshot")
            .field("at_ms", &at_ms)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// All containers as of one place of the log and one moment, which are this node's: for long scans, and for what is built on
    /// containers.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use ebbtide_cluster::ReadLevel;
    ///
    /// let stock = node.create_container("stock").await?;
    /// let put = stock.put("apples", "2").await?;
    /// let before = node.snapshot(ReadLevel::Local, put.token).await?.value;
    /// stock.put("apples", "1").await?;
    /// assert_eq!(before.container("stock")?.get("apples")?.unwrap(), "2");
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of a read of this level.
    pub async fn snapshot(
        &self,
        level: ReadLevel,
        since: Token,
    ) -> Result<Answered<Snapshot>, Error> {
        let take = |shared: &Shared, at_ms| {
            let view = shared.replica.view(at_ms);
            let at_ms = view.at_ms;
            Ok((Snapshot(view), at_ms))
        };
        self.shared.read(level, since, take).await
    }
}

impl Shared {
    /// Has an entry written that moves time.
    pub async fn tick(self: Arc<Shared>) -> Result<(), Error> {
        self.write(Body::Batch(vec![])).await.map(drop)
    }

    /// Reads by a thread that may wait for files. `read` is given the moment, and returns the one of its answer.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Shared>,
        level: ReadLevel,
        since: Token,
        read: impl FnOnce(&Shared, u64) -> Result<(T, u64), Error> + Send + 'static,
    ) -> Result<Answered<T>, Error> {
        let at_ms = self.place_of(level, since).await?;
        let shared = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let (value, at_ms) = read(&shared, at_ms)?;
            let index = shared.replica.seen();
            let token = Token { index, at_ms };
            Ok(Answered::new(value, token))
        });
        reading.await.map_err(|_| Error::Closed)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn word(index: u64, ms: u64) -> ClosedAt {
        ClosedAt {
            at_ms: ms,
            index,
            now_ms: ms,
        }
    }

    const fn at(index: u64, ms: u64) -> Place {
        Place {
            index,
            time_ms: ms,
            until_ms: ms,
        }
    }

    #[test]
    fn the_last_word_that_was_come_to_stands_until_a_later_one_is() {
        let bound = Bound::default();
        bound.heard(word(5, 100), 10, at(4, 100));
        assert_eq!(bound.reached(at(4, 100)), None);
        assert_eq!(bound.reached(at(5, 99)), None);
        bound.heard(word(6, 150), 60, at(5, 100));
        bound.heard(word(7, 200), 110, at(5, 100));
        assert_eq!(bound.reached(at(5, 100)), Some((word(5, 100), 10)));
        assert_eq!(bound.reached(at(7, 200)), Some((word(7, 200), 110)));
    }

    #[test]
    fn a_replica_that_is_always_behind_comes_to_one_word_after_the_other() {
        const BEHIND: u64 = 20;
        let bound = Bound::default();
        for n in 0..200_u64 {
            let place = at(n.saturating_sub(BEHIND), n.saturating_sub(BEHIND) * 50);
            bound.heard(word(n, n * 50), n * 50, place);
            if n >= BEHIND {
                let reached = n - BEHIND;
                let reached = (word(reached, reached * 50), reached * 50);
                assert_eq!(bound.reached(place), Some(reached));
            }
        }
    }

    #[test]
    fn a_replica_that_stands_keeps_the_first_words_and_the_last() {
        let bound = Bound::default();
        for n in 1..1_000 {
            bound.heard(word(n, n * 50), n * 50, at(0, 0));
        }
        assert_eq!(bound.lock().ahead.len(), MOST_AHEAD);
        assert_eq!(bound.reached(at(0, 0)), None);
        assert_eq!(bound.reached(at(3, 170)), Some((word(3, 150), 150)));
        assert_eq!(bound.reached(at(500, 25_000)).unwrap().0.index, 63);
        assert_eq!(bound.reached(at(999, 50_000)).unwrap().0.index, 999);
    }

    #[test]
    fn an_overtaken_word_is_none_and_one_of_a_leader_with_its_clock_behind_is_one() {
        let (bound, place) = (Bound::default(), at(9, 900));
        bound.heard(word(9, 900), 0, place);
        bound.heard(word(8, 850), 50, place);
        assert_eq!(bound.reached(place), Some((word(9, 900), 0)));
        bound.heard(word(9, 300), OVERTAKEN_MS, place);
        let word = (word(9, 300), OVERTAKEN_MS);
        assert_eq!(bound.reached(place), Some(word));
        assert_eq!(bound.lock().caught_up, Some(OVERTAKEN_MS));
    }
}
