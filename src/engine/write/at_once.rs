//! Writes that never wait: each is done at once, or answers [`Unready::WouldWait`] and has done nothing. For callers
//! whose thread has others to serve, who then have it done elsewhere by the function of the same name that waits.
//!
//! ```text
//! where it would wait                                           what is asked instead
//! the settings are being changed, until that is durable         are they whole now?
//! a table's bytes are on a device                               the cache, and the system (table/ready.rs)
//! a write under the commit lock relies on a dead version        does one?
//! writers are slowed down                                       is there no reason to?
//! a quota, and live bytes are estimated                         is there slack?
//! the commit lock                                               is it free soon?
//! the log's segment or ring is full                             does the frame fit?
//! the active memtables are full, and are sealed with a commit   are they not?
//! the sync                                                      left to the caller: `Begun`
//! ```
//!
//! Invariants:
//!
//! 1. What is answered is what the waiting function could have answered in the same call: each step is the one that it takes
//!    there, in the same order, and where it would wait the attempt ends.
//! 2. A commit that is begun is finished: after the frame is in the log nothing is asked any more.
//! 3. No memtable is sealed here: sealing begins a segment of the log, which is a file. The next write finds the memtables
//!    full, and seals them where it may wait.
//!
//! Memory is asked of the system as everywhere, and locks that are held for some instructions (rank 6) are taken.

use std::sync::Arc;

use crate::base::{Attempt, Now, Seq, Unready};
use crate::compact::pace::WriteThrottle;
use crate::data::batch::{Op, Ops};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::options::Durability;
use crate::engine::parts::allowance::Charge;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::{Hit, item, newest};
use crate::engine::write::commit::{Seen, Stamped, UpdateAction, has_changed};
use crate::engine::write::prepared::Prepared;
use crate::engine::write::writes::Writes;
use crate::expiry::ExpiryView;

/// A write that is in the log and in memory, and will be done whatever becomes of its caller.
#[must_use]
pub struct Begun {
    /// What it is.
    pub written: Written,
    /// It is not acknowledged, and perhaps not seen, before the log is synced.
    pub awaits_sync: bool,
}

impl Engine {
    /// As [`Engine::write_one`], up to the sync.
    pub fn write_one_at_once(&self, state: &Arc<ContainerState>, op: &Op<'_>) -> Attempt<Begun> {
        self.admit_at_once(state)?;
        self.write_one_if(state, op, None, |_| true)
    }

    /// As [`Engine::write`], up to the sync. A batch with conditions may read files and change settings, and waits.
    pub fn write_at_once(&self, writes: &Writes) -> Attempt<Begun> {
        let is_own = |engine: &Arc<Engine>| std::ptr::eq(Arc::as_ptr(engine), self);
        if !writes.engine().is_some_and(is_own) || !writes.are_plain() || writes.len() == 0 {
            return Err(Unready::WouldWait);
        }
        let (payload, states) = (writes.bytes(), writes.states());
        for state in states {
            self.admit_at_once(state)?;
        }
        let charge = match states.iter().any(|state| self.is_limited(state)) {
            false => Charge::NONE,
            true => {
                let ops: Vec<_> = Ops::new(payload).flatten().collect();
                self.charge_at_once(states, &ops)?
            }
        };
        let prepared = self.prepare(writes, payload, writes.weight(), charge);
        self.commit_if(&prepared, None, |_| true)
    }

    /// As [`Engine::write`], where nothing is to be waited for, a sync included.
    pub fn try_write(&self, writes: &Writes) -> Attempt<Written> {
        let is_synced = [self.options.durability, self.durability_of(writes)];
        if is_synced.contains(&Durability::Sync) {
            return Err(Unready::WouldWait);
        }
        match writes.len() {
            0 => Ok(self.write(writes)?),
            _ => self.write_at_once(writes).map(|begun| begun.written),
        }
    }

    /// As [`Engine::update`], up to the sync; the closure may have been called when the attempt ends.
    pub fn update_at_once(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> Attempt<Option<Begun>> {
        self.admit_at_once(state)?;
        let latest = self.commit_log.latest();
        let read_state = state.pin();
        let view = self.exact_views::<Now>(state)?.now;
        let hit = newest::<Now>(&read_state, key, latest)?;
        let version = hit.as_ref().map(Hit::header);
        let live = version.filter(|header| !view.dead(header));
        let found = match (hit, &live) {
            (Some(hit), Some(header)) => {
                Some(item(header, key, hit.value::<Now>()?, &view, view.now))
            }
            _ => None,
        };
        let seen = Seen {
            latest,
            version,
            view,
        };
        if seen.ends_soon_after(self.commit_log.published()) {
            return Err(Unready::WouldWait);
        }
        let action = decide(found);
        let Some(op) = action.op(state, key, live.as_ref()) else {
            return self.is_still_at_once(state, key, &seen).map(|()| None);
        };
        let relies_on = version.map(|header| header.seq);
        let is_still = |stamped: &Stamped<'_>| {
            let view = ExpiryView::at(stamped.reading.now, || state.settings());
            !has_changed(state, key, &seen, &view)
        };
        self.write_one_if(state, &op, relies_on, is_still).map(Some)
    }

    /// The key is as it was seen, and that is visible: nothing need become of it.
    fn is_still_at_once(&self, state: &ContainerState, key: &[u8], seen: &Seen) -> Attempt<()> {
        let is_visible = self.commit_log.published() >= seen.latest;
        let view = self.exact_views::<Now>(state)?.now;
        let in_use = seen
            .version
            .is_some_and(|header| self.commit_log.is_relied_on(header.seq));
        if !is_visible || in_use || has_changed(state, key, seen, &view) {
            return Err(Unready::WouldWait);
        }
        Ok(())
    }

    /// A writer to this container is neither slowed down nor stopped, and has a log.
    fn admit_at_once(&self, state: &ContainerState) -> Attempt<()> {
        self.check_writable()?;
        state.check()?;
        match self.throttle_of(state) {
            WriteThrottle::Go if self.commit_log.begun().is_some() => Ok(()),
            _ => Err(Unready::WouldWait),
        }
    }

    fn write_one_if(
        &self,
        state: &Arc<ContainerState>,
        op: &Op<'_>,
        relies_on: Option<Seq>,
        holds: impl FnOnce(&Stamped<'_>) -> bool,
    ) -> Attempt<Begun> {
        let charge = match self.is_limited(state) {
            false => Charge::NONE,
            true => self.charge_at_once(std::slice::from_ref(state), std::slice::from_ref(op))?,
        };
        self.prepare_one(state, op, charge, |prepared| {
            self.commit_if(prepared, relies_on, holds)
        })
    }

    /// As [`Engine::commit`], if `holds` says so under the commit lock.
    fn commit_if(
        &self,
        writes: &Prepared<'_>,
        relies_on: Option<Seq>,
        holds: impl FnOnce(&Stamped<'_>) -> bool,
    ) -> Attempt<Begun> {
        let mut commit = self.commit_log.lock_at_once()?;
        let has_room = commit.active_bytes() < self.options.memtable_bytes
            && commit.appender()?.takes_at_once(writes.payload().len());
        if !has_room {
            return Err(Unready::WouldWait);
        }
        let (mut stamped, ()) = self.stamp_under(commit, relies_on, || ());
        if !holds(&stamped) {
            return Err(Unready::WouldWait);
        }
        let logged = self.log_and_apply(&mut stamped, writes)?;
        if self.is_seen_at_once(writes, &logged) {
            self.commit_log.publish_latest(&stamped.commit);
        }
        self.release_commit(stamped, writes)?;
        Ok(Begun {
            written: Written::new(logged.last, logged.written_at),
            awaits_sync: self.awaits_sync(writes, &logged),
        })
    }
}
