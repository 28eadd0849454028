//! Time that the program gives: how far purges may go.
//!
//! ```text
//!                 purges judge by
//! ────────────────────┼──────────────┼───────────────┼────────────────┼──▶ time
//!                                open view       time of the      now, which is
//!                              of one moment   last write, synced   given alone
//! ```
//!
//! Purges judge by the earliest of three moments: the limit that was set, the mark, which is the time of the last write
//! or the time at which the limit was set, and the moment before the oldest open view. The log is synced up to the mark
//! before an edit relies on it (`Engine::basis_of_purge`). So after a power cut nothing is missing that was there at the
//! time of the last write that is left, and whatever is repeated from there on gives the answers that it gave.
//!
//! Invariants:
//!
//! 1. The limit only rises, and is durable before it counts.
//! 2. A view is registered under the commit lock, at the time of that moment. A job that runs by then judges by a moment that
//!    is no later; one that begins later leaves whatever had not ended before.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{ContainerId, Timestamp};
use crate::expiry::{ExpiryViews, Settings};

/// See the file's head.
pub struct GivenTime {
    limit: AtomicU64,
    /// The times at which the open views were taken, each counted as often as it is held.
    held: Mutex<BTreeMap<Timestamp, usize>>,
}

impl GivenTime {
    /// Of a database that was opened, with the limit of its manifest.
    pub fn new(limit: Timestamp) -> Arc<GivenTime> {
        Arc::new(GivenTime {
            limit: AtomicU64::new(limit.0),
            held: Mutex::new(BTreeMap::new()),
        })
    }

    /// No purge takes an item that has ended later.
    pub fn limit(&self) -> Timestamp {
        Timestamp(self.limit.load(Ordering::Acquire))
    }

    /// Raises it; the new one is durable.
    pub fn raise_limit(&self, limit: Timestamp) {
        self.limit.fetch_max(limit.0, Ordering::AcqRel);
    }

    /// The ends up to this moment are known no more, whether or not they were purged: so it is the same in every database
    /// of one history. What ends now may have more ends to come.
    pub fn ends_dropped(&self, mark: Timestamp, now: Timestamp, keep: u64) -> Timestamp {
        self.limit().min(mark).min(now.before(1)).before(keep)
    }

    /// The moment by which a job judges, where the ends up to this moment are known no more.
    pub fn purge_horizon(&self, ends_dropped: Timestamp) -> Timestamp {
        let held = self.oldest_held();
        held.map_or(ends_dropped, |held| ends_dropped.min(held.before(1)))
    }

    /// When the oldest open view was taken.
    pub fn oldest_held(&self) -> Option<Timestamp> {
        self.held.lock().first_key_value().map(|(at, _)| *at)
    }

    /// Registers a view, all of it judged at `moment`, or at `now` if that is later, by these settings. It is taken at
    /// `now`, under the commit lock.
    pub fn hold(
        self: &Arc<Self>,
        moment: Timestamp,
        now: Timestamp,
        settings: impl Iterator<Item = (ContainerId, Arc<Settings>)>,
    ) -> FixedMoment {
        *self.held.lock().entry(now).or_default() += 1;
        let moment = moment.max(now);
        let views = |settings: &Settings| ExpiryViews::at(moment, moment, || settings.clone());
        FixedMoment {
            taken_at: now,
            views: settings.map(|(id, of)| (id, views(&of))).collect(),
            of_others: views(&Settings::default()),
            time: self.clone(),
        }
    }
}

/// A moment at which all that a snapshot reads is judged. Purges leave what it may show as long as it is held.
pub struct FixedMoment {
    taken_at: Timestamp,
    views: BTreeMap<ContainerId, ExpiryViews>,
    /// Of containers that were made later, of which it sees nothing.
    of_others: ExpiryViews,
    time: Arc<GivenTime>,
}

impl FixedMoment {
    /// The views of a container.
    pub fn views(&self, container: ContainerId) -> &ExpiryViews {
        self.views.get(&container).unwrap_or(&self.of_others)
    }
}

impl Drop for FixedMoment {
    fn drop(&mut self) {
        let mut held = self.time.held.lock();
        if let Some(count) = held.get_mut(&self.taken_at) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.taken_at);
            }
        }
    }
}
