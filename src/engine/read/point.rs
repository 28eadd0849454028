//! The place and time of a read: [`ReadPoint`] holds the state in which it looks and the time and settings by which it
//! judges. It takes, in this order: read state, published sequence number, clock, settings, each newer than the one
//! before.
//!
//! All reads of items go through it: of the newest state, of a snapshot, of a transaction (judged at its beginning), of
//! many keys, of a range; by callers that wait and by those that must not ([`Patience`]). A read that must not wait
//! takes the same steps in the same order, and ends without an answer where it would wait, or start over.
//!
//! An answer is correct for one moment between call and return, as to the newest write and as to time. Let V be the
//! version that a read finds: the newest of its key in the read state up to the sequence number.
//!
//! 1. At some moment between the loads of read state and sequence number V was the newest published version: the read
//!    state holds everything that was published before it, and records in later memtables are newer than all it holds.
//! 2. Nothing found, or a tombstone: there was no item at that moment, whatever the time.
//! 3. V is live by the clock that is read next, and by settings that are not those of a later write: then it was live at
//!    that moment, because expiry is final. This is the usual read, and it ends here. If the clock ever went back
//!    ([`SettledClock::leads`]), or the settings are newer, go on with 5.
//! 4. V is dead by the clock: that does not mean that it was dead at the moment of 1. The key may have been refreshed
//!    and V may have ended in between, and then the key was live throughout.
//! 5. So V is judged by the exact clock, and the read checks again whether V is the newest version. If it is, V was the
//!    newest when it was judged, and the judgement is the answer. If not, the read starts over; each time a write to
//!    the key, a flush or a merge came in between. In the same read state every later write is in the memtables.
//! 6. A conditional write judges V at its stamp and is published later. One that holds the commit lock
//!    ([`CommitDependency`]), or one under [`Durability::Sync`] that is in a memtable and not synced yet, may have
//!    found V live before it died: the check waits for it. Any other write takes effect when it is published, and no
//!    read waits for it.
//! 7. A snapshot's sequence number is fixed: V stays the newest version, and is judged once.
//! 8. At a moment that was chosen ([`Moment::At`]) V is judged once as well, dead or live, by the settings chosen with it.
//!
//! Before a job installs its result, the writes that were stamped before it judged are visible (install.rs), so 2 also
//! holds where V was purged.
//!
//! [`SettledClock::leads`]: crate::env::SettledClock::leads
//! [`CommitDependency`]: crate::engine::parts::commit_dependency::CommitDependency
//! [`Durability::Sync`]: crate::engine::options::Durability::Sync

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;

use crate::base::hash::hash_key;
use crate::base::record::Header;
use crate::base::sync::Guard;
use crate::base::{Patience, Result, Seq, Timestamp};
use crate::catalog::Run;
use crate::data::item::{Item, Pair};
use crate::engine::Engine;
use crate::engine::parts::read_state::ReadState;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::expiry::{ExpiryView, ExpiryViews};
use crate::table;

/// The time and settings by which a read judges.
#[derive(Clone, Copy)]
pub enum Moment<'a> {
    /// By the clock, at some moment between call and return.
    Clock,
    /// By these views, whenever the read happens.
    At(&'a ExpiryViews),
}

/// The place and time of a read. See the file's head.
pub struct ReadPoint<'a, P> {
    engine: &'a Engine,
    state: &'a Arc<ContainerState>,
    /// The snapshot to read; `None`: the newest state.
    pin: Option<&'a Arc<SnapshotPin>>,
    moment: Moment<'a>,
    read_state: Guard<Arc<ReadState>>,
    /// Later writes are not seen.
    seq: Seq,
    /// Records in memory are held to their checks.
    checks: bool,
    patience: PhantomData<P>,
}

/// The newest version of a key, in memory or on disk.
pub(in crate::engine) enum Hit<'a> {
    /// In a memtable.
    Memory(crate::mem::Entry<'a>),
    /// In a table.
    Disk(table::TableHit),
}

impl Hit<'_> {
    /// All but its value.
    pub(in crate::engine) fn header(&self) -> Header {
        match self {
            Hit::Memory(entry) => entry.header,
            Hit::Disk(found) => found.header,
        }
    }

    /// Fails if it is not as it was stored. A block was checked when it was read.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Hit::Memory(entry) => entry.check(),
            Hit::Disk(_) => Ok(()),
        }
    }

    #[inline(always)]
    pub(in crate::engine) fn value<P: Patience>(self) -> Result<Bytes, P::Failure> {
        match self {
            Hit::Memory(entry) => Ok(entry.value_bytes()?),
            Hit::Disk(found) => found.value::<P>(),
        }
    }
}

/// The newest version of a key up to `max`, dead or not, unless a range delete covers it.
pub(in crate::engine) fn newest<'a, P: Patience>(
    read_state: &'a ReadState,
    key: &[u8],
    max: Seq,
) -> Result<Option<Hit<'a>>, P::Failure> {
    let hash = hash_key(key);
    let is_covered = |seq| read_state.covers(key, seq, max);
    // Each is returned from where it was found: to look at it here would move the hit, which is large.
    match in_memory(read_state, hash, key, max) {
        Some(hit) if is_covered(hit.header().seq) => Ok(None),
        Some(hit) => Ok(Some(hit)),
        None => on_disk::<P>(read_state, hash, key, max, is_covered),
    }
}

/// The newest version of a key in the memtables, dead or not; none, also where a table may have one.
pub(in crate::engine) fn newest_in_memory(read_state: &ReadState, key: &[u8]) -> Option<Header> {
    let hit = in_memory(read_state, hash_key(key), key, Seq::MAX)?;
    Some(hit.header())
}

/// Asks the memtables newest first: the first version found is the newest.
#[inline(always)]
pub(super) fn in_memory<'a>(
    read_state: &'a ReadState,
    hash: u64,
    key: &[u8],
    max: Seq,
) -> Option<Hit<'a>> {
    // Apart, because mostly there is only this one; an iterator over both kinds would branch on each step.
    if let Some(entry) = read_state.active.memtable.get(hash, key, max) {
        return Some(Hit::Memory(entry));
    }
    for flushable in &read_state.sealed {
        if let Some(entry) = flushable.memtable.get(hash, key, max) {
            return Some(Hit::Memory(entry));
        }
    }
    None
}

/// Asks the runs in the order of their highest sequence numbers, until the version found is newer than all that remain. One
/// that is covered is none.
#[inline(always)]
fn on_disk<'a, P: Patience>(
    read_state: &'a ReadState,
    hash: u64,
    key: &[u8],
    max: Seq,
    is_covered: impl Fn(Seq) -> bool,
) -> Result<Option<Hit<'a>>, P::Failure> {
    let runs = &read_state.version.runs;
    for (at, run) in runs.iter().enumerate() {
        if run.census.seq_min <= max
            && let Some(found) = run.get::<P>(hash, key, max)?
        {
            let found = match runs.get(at + 1) {
                Some(next) if found.header.seq <= next.census.seq_max => {
                    newest_among::<P>(found, &runs[at + 1..], hash, key, max)?
                }
                _ => found,
            };
            return Ok((!is_covered(found.header.seq)).then_some(Hit::Disk(found)));
        }
    }
    Ok(None)
}

/// The newest of `best` and what these runs have, which may be newer. Apart, because most keys are in one run.
#[inline(never)]
fn newest_among<P: Patience>(
    mut best: table::TableHit,
    runs: &[Arc<Run>],
    hash: u64,
    key: &[u8],
    max: Seq,
) -> Result<table::TableHit, P::Failure> {
    for run in runs {
        if best.header.seq > run.census.seq_max {
            break;
        }
        if run.census.seq_min <= max
            && let Some(found) = run.get::<P>(hash, key, max)?
            && found.header.seq > best.header.seq
        {
            best = found;
        }
    }
    Ok(best)
}

impl<'a, P: Patience> ReadPoint<'a, P> {
    /// Of the newest state, judged by the clock, or of this snapshot, judged as that says.
    #[inline(always)]
    pub fn new(
        engine: &'a Engine,
        state: &'a Arc<ContainerState>,
        pin: Option<&'a Arc<SnapshotPin>>,
    ) -> Result<ReadPoint<'a, P>, P::Failure> {
        let views = pin.and_then(|pin| pin.views(state));
        let moment = views.map_or(Moment::Clock, Moment::At);
        ReadPoint::with(engine, state, pin, moment)
    }

    /// Of a snapshot, all of it judged by these views.
    pub(in crate::engine) fn at(
        engine: &'a Engine,
        state: &'a Arc<ContainerState>,
        pin: &'a Arc<SnapshotPin>,
        views: &'a ExpiryViews,
    ) -> Result<ReadPoint<'a, P>, P::Failure> {
        ReadPoint::with(engine, state, Some(pin), Moment::At(views))
    }

    #[inline(always)]
    fn with(
        engine: &'a Engine,
        state: &'a Arc<ContainerState>,
        pin: Option<&'a Arc<SnapshotPin>>,
        moment: Moment<'a>,
    ) -> Result<ReadPoint<'a, P>, P::Failure> {
        engine.check_open(state)?;
        let (read_state, seq) = match pin {
            // In this order: a write that is published in between is not missed, but not seen yet.
            None => (state.read_state(), engine.commit_log.published()),
            Some(pin) => (pin.guard(state), pin.seq()),
        };
        Ok(ReadPoint {
            engine,
            state,
            pin,
            moment,
            read_state,
            seq,
            checks: engine.options.paranoid_memory_checks,
            patience: PhantomData,
        })
    }

    /// The same for a write that may store what it reads again, with a new check.
    pub(in crate::engine) fn checked(self) -> ReadPoint<'a, P> {
        ReadPoint {
            checks: true,
            ..self
        }
    }

    /// The same, taken now.
    pub(super) fn renewed(&self) -> Result<ReadPoint<'a, P>, P::Failure> {
        let renewed = ReadPoint::with(self.engine, self.state, self.pin, self.moment);
        renewed.map(|renewed| ReadPoint {
            checks: self.checks,
            ..renewed
        })
    }

    /// The read state that it sees, and up to which sequence number.
    #[inline(always)]
    pub(super) fn seen(&self) -> (&ReadState, Seq) {
        (&self.read_state, self.seq)
    }

    /// The container, the snapshot if it is of one, and the moment by which it judges.
    pub(super) fn place(
        &self,
    ) -> (
        &'a Arc<ContainerState>,
        Option<&'a Arc<SnapshotPin>>,
        Moment<'a>,
    ) {
        (self.state, self.pin, self.moment)
    }

    /// The newest version of a key that it sees, dead or not.
    #[inline(always)]
    pub(in crate::engine) fn newest(&self, key: &[u8]) -> Result<Option<Hit<'_>>, P::Failure> {
        newest::<P>(&self.read_state, key, self.seq)
    }

    #[inline(always)]
    fn read<T>(
        &mut self,
        key: &[u8],
        take: impl FnOnce(Hit<'_>, &ExpiryView) -> Result<T, P::Failure>,
    ) -> Result<Option<T>, P::Failure> {
        loop {
            let Some(hit) = self.newest(key)? else {
                self.wait_for_catch_up()?;
                return Ok(None);
            };
            if self.checks {
                hit.check()?;
            }
            let header = hit.header();
            // Read last: an absent key needs no time, and a later reading is as right.
            let view = self.view()?;
            match self.is_live(&header, &view) {
                Some(true) => return take(hit, &view).map(Some),
                Some(false) => return Ok(None),
                None => {}
            }
            match self.recheck_newest(key, &header)? {
                Some(view) if view.dead(&header) => {
                    self.engine.counters.expired_misses.add(1);
                    return Ok(None);
                }
                Some(view) => return take(hit, &view).map(Some),
                None => drop(hit),
            }
            P::would_wait()?;
            *self = self.renewed()?;
        }
    }

    /// Whether records in memory are held to their checks.
    pub(super) fn checks(&self) -> bool {
        self.checks
    }

    /// Clock and settings; to be read after versions were looked for.
    #[inline(always)]
    pub(super) fn view(&self) -> Result<ExpiryView, P::Failure> {
        match self.moment {
            Moment::Clock => self.state.view_for::<P>(self.engine.clock.at_most()),
            Moment::At(views) => Ok(views.now.clone()),
        }
    }

    /// Whether a version is live by the view that was taken after it was found; `None` if that is not known.
    #[inline(always)]
    pub(super) fn is_live(&self, header: &Header, view: &ExpiryView) -> Option<bool> {
        let is_chosen = matches!(self.moment, Moment::At(_));
        let is_dead = view.dead(header);
        if !is_dead && (is_chosen || self.is_certain()) {
            return Some(true);
        }
        (is_chosen || header.is_tombstone()).then_some(false)
    }

    /// Whether a version that is live by the clock is live for sure.
    #[inline(always)]
    fn is_certain(&self) -> bool {
        let is_of_its_time = self.pin.is_some() || !self.state.may_be_newer_than(self.seq);
        is_of_its_time && self.engine.clock.leads() == 0
    }

    /// The view by which to judge a version that was found. None: it may no longer have been the newest of its key when it
    /// was judged.
    #[cold]
    fn recheck_newest(&self, key: &[u8], found: &Header) -> Result<Option<ExpiryView>, P::Failure> {
        let (engine, state) = (self.engine, self.state);
        let view = engine.exact_views::<P>(state)?.now;
        if self.pin.is_some() {
            return Ok(Some(view));
        }
        if engine.commit_log.is_relied_on(found.seq) {
            P::would_wait()?;
            engine.commit_log.wait_for_commit();
            return Ok(None);
        }
        if !Arc::ptr_eq(&self.read_state, &state.read_state()) {
            return Ok(None);
        }
        if let Some(seq) = self.read_state.written_since(key, self.seq) {
            P::would_wait()?;
            // A write that failed after its stamp is never visible.
            if engine.make_visible(seq).is_ok() && engine.commit_log.published() >= seq {
                return Ok(None);
            }
        }
        Ok(Some(view))
    }

    /// After nothing was found: a follower waits until all read states are replaced, if some are.
    #[inline]
    pub(super) fn wait_for_catch_up(&self) -> Result<(), P::Failure> {
        match self.engine.follower {
            None => Ok(()),
            Some(_) => self.state.settings_for::<P>().map(drop),
        }
    }

    /// The value of a live item.
    #[inline(always)]
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, P::Failure> {
        self.read(key, |hit, _| hit.value::<P>())
    }

    /// Whether a live item has the key.
    #[inline(always)]
    pub fn contains(&mut self, key: &[u8]) -> Result<bool, P::Failure> {
        Ok(self.read(key, |_, _| Ok(()))?.is_some())
    }

    /// A live item.
    #[inline(always)]
    pub fn item(&mut self, key: &[u8]) -> Result<Option<Item>, P::Failure> {
        let (engine, moment) = (self.engine, self.moment);
        self.read(key, |hit, view| {
            let (header, now) = (hit.header(), read_at(engine, moment));
            Ok(item(&header, key, hit.value::<P>()?, view, now))
        })
    }
}

/// The time of reading of an item that is read now.
#[inline]
fn read_at(engine: &Engine, moment: Moment<'_>) -> Timestamp {
    match moment {
        Moment::Clock => engine.clock.now(),
        Moment::At(views) => views.now.now,
    }
}

impl Engine {
    /// Whether a write relies on this version; waits until that write has released the lock. Call it after reading the
    /// clock.
    pub(in crate::engine) fn wait_if_relied_on(&self, seq: Seq) -> bool {
        let is_relied_on = self.commit_log.is_relied_on(seq);
        if is_relied_on {
            self.commit_log.wait_for_commit();
        }
        is_relied_on
    }

    /// Whether an item that was read is live still.
    #[cfg(feature = "tokio")]
    pub fn is_live<P: Patience>(
        &self,
        state: &ContainerState,
        item: &Item,
    ) -> Result<bool, P::Failure> {
        self.check_open(state)?;
        let now = self.clock.at_most();
        let settings = state.settings_for::<P>()?;
        let header = item.header();
        if self.clock.leads() == 0 && !ExpiryView::at(now, || settings).dead(&header) {
            return Ok(true);
        }
        Ok(!self.exact_views::<P>(state)?.now.dead(&header))
    }

    /// The newest version of a key, published or not, and its item if it is live; for a conditional write, which may write
    /// its value again.
    pub(in crate::engine) fn newest_checked<P: Patience>(
        &self,
        read_state: &ReadState,
        key: &[u8],
        max: Seq,
        view: &ExpiryView,
    ) -> Result<(Option<Header>, Option<Item>), P::Failure> {
        let Some(hit) = newest::<P>(read_state, key, max)? else {
            return Ok((None, None));
        };
        hit.check()?;
        let header = hit.header();
        let live = !view.dead(&header);
        let item = match live {
            true => Some(item(&header, key, hit.value::<P>()?, view, view.now)),
            false => None,
        };
        Ok((Some(header), item))
    }

    /// The newest version of a key up to `max`, live or dead, without its value.
    pub(in crate::engine) fn newest_version<P: Patience>(
        &self,
        read_state: &ReadState,
        key: &[u8],
        max: Seq,
    ) -> Result<Option<Header>, P::Failure> {
        Ok(newest::<P>(read_state, key, max)?.map(|hit| hit.header()))
    }
}

/// A live version as an item that is read now.
pub(in crate::engine) fn item(
    header: &Header,
    key: &[u8],
    value: Bytes,
    view: &ExpiryView,
    now: Timestamp,
) -> Item {
    let pair = Pair::new(Bytes::copy_from_slice(key), value);
    Item::new(pair, header, view.settings.life(header), now)
}
