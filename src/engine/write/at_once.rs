//! Reads and writes that never wait: each is done at once, or answers [`NotNow::Waits`] and has done nothing. For callers
//! whose thread has others to serve, who then have it done elsewhere by the function of the same name that waits.
//!
//! ```text
//! where it would wait                                           what is asked instead
//! the settings are being changed, until that is durable         are they whole now?
//! a table's bytes are on a device                               the cache, and the system (table/at_once.rs)
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

use bytes::Bytes;

use crate::base::hash::hash_key;
use crate::base::{AtOnce, NotNow, Seq};
use crate::compact::pace::WriteThrottle;
use crate::data::batch::{Op, Ops};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::engine::Engine;
use crate::engine::parts::allowance::Charge;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::point::{Hit, Reader, in_memory, item, on_disk};
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

impl Hit<'_> {
    fn value_at_once(self) -> AtOnce<Bytes> {
        match self {
            Hit::Memory(entry) => Ok(entry.value_bytes()?),
            Hit::Disk(found) => found.value_at_once(),
        }
    }
}

/// The newest version of a key up to `max`, dead or not, unless a range delete covers it.
fn newest<'a>(read_state: &'a ReadState, key: &[u8], max: Seq) -> AtOnce<Option<Hit<'a>>> {
    let hash = hash_key(key);
    let found = match in_memory(read_state, hash, key, max) {
        Some(hit) => Some(hit),
        None => on_disk(read_state, max, |run| run.get_at_once(hash, key, max))?,
    };
    Ok(found.filter(|hit| !read_state.covers(key, hit.header().seq, max)))
}

impl Engine {
    /// The view of a moment at which the clock did not go back.
    fn view_at_once(&self, state: &ContainerState) -> AtOnce<ExpiryView> {
        let leads = self.clock.leads();
        let now = self.clock.read().now;
        let settings = state.settings_at_once()?;
        if self.clock.leads() != leads {
            return Err(NotNow::Waits);
        }
        Ok(ExpiryView::at(now, || settings))
    }

    /// The head of read.rs has what its steps are for.
    fn read_at_once<T>(
        &self,
        reader: &Reader<'_>,
        key: &[u8],
        take: impl FnOnce(Hit<'_>, &ExpiryView) -> AtOnce<T>,
    ) -> AtOnce<Option<T>> {
        self.check_open(reader.state)?;
        let (read_state, max) = self.sight_of(reader);
        let Some(hit) = newest(&read_state, key, max)? else {
            if self.follower.is_some() {
                // As `pass_switch` does.
                reader.state.settings_at_once()?;
            }
            return Ok(None);
        };
        let now = self.clock.at_most();
        let settings = reader.state.settings_at_once()?;
        let later = ExpiryView::at(now, || settings);
        if reader.snapshot.is_none() && reader.state.may_be_newer_than(max) {
            return Err(NotNow::Waits);
        }
        let header = hit.header();
        if !later.dead(&header) && self.clock.leads() == 0 {
            return take(hit, &later).map(Some);
        }
        if header.is_tombstone() {
            return Ok(None);
        }
        let view = self.view_at_once(reader.state)?;
        let is_newest = || {
            !self.commit_log.is_relied_on(header.seq)
                && Arc::ptr_eq(&read_state, &reader.state.read_state())
                && read_state.written_since(key, max).is_none()
        };
        if reader.snapshot.is_none() && !is_newest() {
            return Err(NotNow::Waits);
        }
        if view.dead(&header) {
            self.counters.expired_misses.add(1);
            return Ok(None);
        }
        take(hit, &view).map(Some)
    }

    /// As [`Engine::get`].
    pub fn get_at_once(&self, reader: &Reader<'_>, key: &[u8]) -> AtOnce<Option<Bytes>> {
        self.read_at_once(reader, key, |hit, _| hit.value_at_once())
    }

    /// As [`Engine::contains`].
    pub fn contains_at_once(&self, reader: &Reader<'_>, key: &[u8]) -> AtOnce<bool> {
        let found = self.read_at_once(reader, key, |_, _| Ok(()))?;
        Ok(found.is_some())
    }

    /// As [`Engine::item`].
    pub fn item_at_once(&self, reader: &Reader<'_>, key: &[u8]) -> AtOnce<Option<Item>> {
        self.read_at_once(reader, key, |hit, view| {
            let (header, now) = (hit.header(), self.clock.now());
            Ok(item(&header, key, hit.value_at_once()?, view, now))
        })
    }

    /// Whether an item that was read is live still.
    pub fn is_live_at_once(&self, state: &ContainerState, item: &Item) -> AtOnce<bool> {
        self.check_open(state)?;
        let now = self.clock.at_most();
        let settings = state.settings_at_once()?;
        let header = item.header();
        if self.clock.leads() == 0 && !ExpiryView::at(now, || settings).dead(&header) {
            return Ok(true);
        }
        Ok(!self.view_at_once(state)?.dead(&header))
    }

    /// As [`Engine::is_live_at_once`], and waits for a change of the settings.
    pub fn is_live(&self, state: &ContainerState, item: &Item) -> bool {
        !self.expiry_view(state).dead(&item.header())
    }

    /// As [`Engine::write_one`], up to the sync.
    pub fn write_one_at_once(&self, state: &Arc<ContainerState>, op: &Op<'_>) -> AtOnce<Begun> {
        self.admit_at_once(state)?;
        self.write_one_if(state, op, None, |_| true)
    }

    /// As [`Engine::write`], up to the sync. A batch with conditions may read files and change settings, and waits.
    pub fn write_at_once(&self, writes: &Writes) -> AtOnce<Begun> {
        let is_own = |engine: &Arc<Engine>| std::ptr::eq(Arc::as_ptr(engine), self);
        if !writes.engine().is_some_and(is_own) || !writes.are_plain() || writes.len() == 0 {
            return Err(NotNow::Waits);
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

    /// As [`Engine::update`], up to the sync; the closure may have been called when the attempt ends.
    pub fn update_at_once(
        &self,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> AtOnce<Option<Begun>> {
        self.admit_at_once(state)?;
        let latest = self.commit_log.latest();
        let read_state = state.pin();
        let view = self.view_at_once(state)?;
        let hit = newest(&read_state, key, latest)?;
        let version = hit.as_ref().map(Hit::header);
        let live = version.filter(|header| !view.dead(header));
        let found = match (hit, &live) {
            (Some(hit), Some(header)) => {
                Some(item(header, key, hit.value_at_once()?, &view, view.now))
            }
            _ => None,
        };
        let seen = Seen {
            latest,
            version,
            view,
        };
        if seen.ends_soon_after(self.commit_log.published()) {
            return Err(NotNow::Waits);
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
    fn is_still_at_once(&self, state: &ContainerState, key: &[u8], seen: &Seen) -> AtOnce<()> {
        let is_visible = self.commit_log.published() >= seen.latest;
        let view = self.view_at_once(state)?;
        let in_use = seen
            .version
            .is_some_and(|header| self.commit_log.is_relied_on(header.seq));
        if !is_visible || in_use || has_changed(state, key, seen, &view) {
            return Err(NotNow::Waits);
        }
        Ok(())
    }

    /// A writer to this container is neither slowed down nor stopped, and has a log.
    fn admit_at_once(&self, state: &ContainerState) -> AtOnce<()> {
        self.check_writable()?;
        state.check()?;
        match self.throttle_of(state) {
            WriteThrottle::Go if self.commit_log.begun().is_some() => Ok(()),
            _ => Err(NotNow::Waits),
        }
    }

    fn write_one_if(
        &self,
        state: &Arc<ContainerState>,
        op: &Op<'_>,
        relies_on: Option<Seq>,
        holds: impl FnOnce(&Stamped<'_>) -> bool,
    ) -> AtOnce<Begun> {
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
    ) -> AtOnce<Begun> {
        let mut commit = self.commit_log.lock_at_once()?;
        let has_room = commit.active_bytes() < self.options.memtable_bytes
            && commit.appender()?.takes_at_once(writes.payload().len());
        if !has_room {
            return Err(NotNow::Waits);
        }
        let (mut stamped, ()) = self.stamp_under(commit, relies_on, || ());
        if !holds(&stamped) {
            return Err(NotNow::Waits);
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
