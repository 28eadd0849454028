//! Scans: the live items in a range, from both ends, and how they are lent.
//!
//! A scan sees the writes up to its snapshot, and judges by the time of each step. Between two steps it holds a snapshot
//! and a read state that the engine may take from it, and no lock.
//!
//! Items are lent in calls of up to [`MOST_LENT`]. A call takes the scan's lock, reads the clock and then the settings, and
//! decides which items are shown (data/view.rs). It holds the bytes of these, so the caller gets them after the lock is
//! released: its code may write, drop the container or close the database, and if it panics nothing is locked.
//!
//! [`Scan::for_each`] hands out each item by a call of its own to user code, which may take any time. So its items are
//! decided by a moment that is later than now by [`HOLDS_MILLIS`]; an item that is live now and not at that moment is the
//! only one of its call. Before each but the first of a call it checks that this moment has not come and that the settings
//! are the same, else it decides again about what is behind the last item. So each item is live by a reading of the
//! clock, and by the settings, after the code for the one before it has returned. What is dead by the clock stays so,
//! unless the clock leads: then items are decided one by one.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::{Result, Seq, Timestamp};
use crate::catalog::Run;
use crate::data::batch::KeyRange;
use crate::data::cursor::Seek;
use crate::data::item::Item;
use crate::data::lent::{LendView, Lent};
use crate::data::range_tombstones::RangeTombstones;
use crate::data::view::{Horizon, Lending, Walk};
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::read::{Reader, Source};
use crate::engine::snapshots::SnapshotPin;
use crate::engine::state::{ContainerState, Flushable, ReadState};
use crate::expiry::{ExpiryCheck, ExpiryView, ExpiryViews};
use crate::table::RunCursor;

/// The most items of a call that lends: enough to make what a call costs small per item.
const MOST_LENT: usize = 128;

/// A call ends with the item that brings its keys and values to this many bytes.
const FULL_BYTES: usize = 64 << 10;

/// The first call of [`Scan::for_each`] decides about so many items, each further one about twice as many as the one
/// before: who wants few pays for few.
const FIRST_LENT: usize = 16;

/// For how long what is decided by a call of [`Scan::for_each`] holds, in milliseconds: longer than most callers need
/// for the items of a call. Items that live no longer are decided one by one.
const HOLDS_MILLIS: u64 = 1_000;

impl Engine {
    /// The live items in a range.
    pub fn scan(engine: &Handle, reader: &Reader<'_>, range: KeyRange) -> Result<Scan> {
        engine.check_open(reader.state)?;
        let pin = match reader.snapshot {
            Some(pin) => pin.clone(),
            None => Arc::new(engine.snapshot()),
        };
        let ExpiryViews { now, settled } = engine.expiry_views(reader.state);
        let lead = engine.clock.at_most().since(now.now);
        Ok(Scan::new(engine, reader.state, pin, range, settled, lead))
    }

    /// The items in a range of a snapshot that are live by these views, whenever they are reached.
    pub(super) fn scan_at(
        engine: &Handle,
        state: &Arc<ContainerState>,
        pin: &Arc<SnapshotPin>,
        range: KeyRange,
        views: &ExpiryViews,
    ) -> Scan {
        let mut scan = Scan::new(engine, state, pin.clone(), range, views.settled.clone(), 0);
        scan.fixed = Some(views.now.now);
        scan
    }
}

/// What a scan may see.
struct Sight {
    read_state: Arc<ReadState>,
    horizon: Horizon,
}

impl Sight {
    fn new(read_state: Arc<ReadState>, max: Seq) -> Sight {
        let ranges = read_state.range_deletes();
        let tombstones = Arc::new(RangeTombstones::new(
            ranges.flat_map(|ranges| ranges.as_of(max)),
        ));
        Sight {
            read_state,
            horizon: Horizon { max, tombstones },
        }
    }

    fn walk(&self, range: &KeyRange, to: Seek<'_>, view: &ExpiryView) -> Result<Walk<Source>> {
        Walk::seek(self.sources(range), self.horizon.clone(), to, view)
    }

    /// The runs that may overlap a range.
    fn runs(&self, range: &KeyRange) -> impl Iterator<Item = &Arc<Run>> {
        self.read_state.version.runs.iter().filter(|run| {
            run.census.seq_min <= self.horizon.max
                && range.overlaps(run.first_key(), run.last_key())
        })
    }

    /// Cursors over all memtables and runs that may overlap a range.
    fn sources(&self, range: &KeyRange) -> Vec<Source> {
        let filled = |flushable: &&Arc<Flushable>| !flushable.memtable.is_empty();
        let memory = || self.read_state.flushables().filter(filled);
        // With room for all: a cursor has some hundred bytes, which are not to be moved.
        let most = memory().count() + self.read_state.version.runs.len();
        let mut sources = Vec::with_capacity(most);
        sources.extend(memory().map(|flushable| {
            let cursor = flushable.memtable.cursor();
            Source::Memory(cursor.under(self.horizon.tombstones.clone()))
        }));
        sources.extend(self.runs(range).map(|run| {
            let tombstones = self.horizon.tombstones.clone();
            Source::Disk(RunCursor::under(run.shared.clone(), tombstones))
        }));
        sources
    }
}

/// The two ends of a scan, and the read state they are on. When a file in the read state is obsolete, the engine takes
/// them from a scan at rest, so that the scan keeps no file on disk; the next step seeks again, in the current read
/// state.
pub struct Walks {
    sight: Sight,
    front: Option<Walk<Source>>,
    back: Option<Walk<Source>>,
}

/// The part of a scan's range that is left.
struct Left {
    range: KeyRange,
    /// The last key that the front has passed; empty before the first.
    front: Vec<u8>,
    /// The last key that the back has passed.
    back: Vec<u8>,
}

/// As long as this holds, what a call decided is as of now.
struct Holds {
    /// Not later than this.
    until: Timestamp,
    /// These settings.
    settings: u64,
}

/// Live items in the order of keys, from both ends. Each is judged when the scan reaches it.
pub struct Scan {
    state: Arc<ContainerState>,
    /// Keeps the versions visible to it, in whichever read state.
    pin: Arc<SnapshotPin>,
    left: Left,
    walks: Arc<Mutex<Option<Walks>>>,
    /// In settled time as of the last reading of the clock.
    settled: ExpiryView,
    /// By how many milliseconds [`Engine::later_view`]'s moment is later than now, measured once: so items can carry
    /// the time of their reading without reading the clock for each.
    lead: u64,
    /// How many items it has returned.
    items: u64,
    /// How many calls have lent.
    calls: u64,
    /// Judges all by this moment and the settings of `settled`.
    fixed: Option<Timestamp>,
    engine: Handle,
}

/// What a merge that saves one run is worth to a scan, in bytes rewritten: for one seek ...
const SEEK_WORTH: u64 = 1024;
/// ... and for each item. In a scan of 100 items over 8 runs each further run costs 2.2 us, in which a merge writes
/// some 600 bytes; background work is assumed to cost half.
const STEP_WORTH: u64 = 6;

impl Drop for Scan {
    fn drop(&mut self) {
        let walks = self.walks.lock();
        let runs = walks
            .as_ref()
            .map_or(0, |walks| walks.sight.runs(&self.left.range).count());
        if runs > 1 {
            let worth = SEEK_WORTH + STEP_WORTH * self.items;
            self.state.pay_for_scan(worth);
        }
    }
}

impl Scan {
    fn new(
        engine: &Handle,
        state: &Arc<ContainerState>,
        pin: Arc<SnapshotPin>,
        range: KeyRange,
        settled: ExpiryView,
        lead: u64,
    ) -> Scan {
        let walks = Arc::new(Mutex::new(None));
        state.watch(&walks);
        Scan {
            state: state.clone(),
            pin,
            left: Left {
                range,
                front: vec![],
                back: vec![],
            },
            walks,
            settled,
            lead,
            items: 0,
            calls: 0,
            fixed: None,
            engine: engine.clone(),
        }
    }

    /// Takes a step in the walks, as of now.
    #[inline]
    fn step(
        &mut self,
        step: impl FnOnce(
            &mut Walks,
            &mut Left,
            &mut ExpiryCheck<'_, &dyn Fn() -> ExpiryViews>,
        ) -> Option<Result<Item>>,
    ) -> Option<Result<Item>> {
        let (engine, state) = (&self.engine, &self.state);
        if let Err(error) = engine.check_open(state) {
            return Some(Err(error));
        }
        let mut walks = self.walks.lock();
        let walks = walks.get_or_insert_with(|| Walks::new(&self.pin, state));
        let fixed = self.fixed.map(|now| {
            let settled = &self.settled;
            ExpiryViews::at(now, settled.now, || settled.settings.clone())
        });
        let later = match &fixed {
            Some(views) => views.now.clone(),
            None => engine.later_view(state),
        };
        let read: &dyn Fn() -> ExpiryViews =
            &|| fixed.clone().unwrap_or_else(|| engine.expiry_views(state));
        let moment = later.now.before(self.lead);
        let mut check = ExpiryCheck::new(later, &mut self.settled, moment, read);
        let item = step(walks, &mut self.left, &mut check);
        self.items += 1;
        item
    }

    /// The next item from the front.
    #[allow(clippy::should_implement_trait)]
    #[inline(never)]
    pub fn next(&mut self) -> Option<Result<Item>> {
        self.step(|walks, left, check| {
            let walk = match walks.front(left, check.for_good()) {
                Ok(walk) => walk,
                Err(error) => return Some(Err(error)),
            };
            let Left { range, front, back } = left;
            walk.next(check, front, |key| is_before_end(range, back, key))
        })
    }

    /// The next item from the back.
    pub fn next_back(&mut self) -> Option<Result<Item>> {
        self.step(|walks, left, check| {
            let walk = match walks.back(left, check.for_good()) {
                Ok(walk) => walk,
                Err(error) => return Some(Err(error)),
            };
            let Left { range, front, back } = left;
            walk.next(check, back, |key| is_after_start(range, front, key))
        })
    }
}

/// Lending.
impl Scan {
    /// Calls `visit` with key and value of each item from the front, until it breaks.
    pub fn for_each<B>(
        mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        let (mut lent, mut most) = (Lent::default(), FIRST_LENT);
        loop {
            lent.begin(if self.decides_ahead() { most } else { 1 }, FULL_BYTES);
            most = MOST_LENT.min(2 * most);
            let (is_more, holds) = self.lend(true, HOLDS_MILLIS, &mut lent)?;
            let mut given = 0;
            let watch = self.watch(holds);
            let flow = lent.each(|key, value| {
                if given > 0 && !watch.is_still() {
                    return ControlFlow::Break(None);
                }
                given += 1;
                visit(key, value).map_break(Some)
            });
            if let ControlFlow::Break(Some(result)) = flow {
                return Ok(ControlFlow::Break(result));
            }
            if given < lent.len() {
                self.engine.check_open(&self.state)?;
            }
            match lent.get(given) {
                Some(_) => self.go_back_to(lent.get(given - 1)),
                // An error is that of the item behind these, and comes again.
                None if lent.is_empty() => return is_more.map(|_| ControlFlow::Continue(())),
                None if matches!(is_more, Ok(false)) => return Ok(ControlFlow::Continue(())),
                None => {}
            }
        }
    }

    /// Lends the next items from the front, up to a full chunk; each was live at a moment of this call.
    pub fn lend_next(&mut self, lent: &mut Lent) -> Result<()> {
        lent.begin(MOST_LENT, FULL_BYTES);
        self.lend(true, 0, lent)?.0.map(drop)
    }

    /// Lends the next items from the back, as [`Scan::lend_next`] does.
    pub fn lend_next_back(&mut self, lent: &mut Lent) -> Result<()> {
        lent.begin(MOST_LENT, FULL_BYTES);
        self.lend(false, 0, lent)?.0.map(drop)
    }

    /// Lends the next items. What is live is decided by a moment that is later than now by `ahead` milliseconds, and by
    /// the clock if it is dead then. Also returns whether there may be more, and how long what was decided holds.
    fn lend(
        &mut self,
        forward: bool,
        ahead: u64,
        lent: &mut Lent,
    ) -> Result<(Result<bool>, Holds)> {
        assert!(self.fixed.is_none(), "what is lent is as of now");
        let (engine, state) = (&self.engine, &self.state);
        engine.check_open(state)?;
        self.calls += 1;
        let mut walks = self.walks.lock();
        let walks = walks.get_or_insert_with(|| Walks::new(&self.pin, state));
        let (settings, leads) = (state.settings_version(), engine.clock.leads());
        let later = engine.later_view_by(state, ahead);
        let until = later.now;
        let lending = Lending {
            view: LendView {
                max: self.pin.seq(),
                later: later.clone(),
                call: self.calls,
            },
            bound: self.left.bound(forward).map(<[u8]>::to_vec),
            dying_alone: ahead > 0,
        };
        let mut check = ExpiryCheck::new(later, &mut self.settled, until, || {
            engine.expiry_views(state)
        });
        let is_more = walks.lend(&mut self.left, forward, &mut check, (&lending, lent));
        self.items += lent.len() as u64;
        // What was dead by a clock that leads may live again.
        let is_final = leads.is_multiple_of(2) && engine.clock.leads() == leads;
        let until = if is_final { until } else { Timestamp(0) };
        Ok((is_more, Holds { until, settings }))
    }

    /// As many items as a full chunk lends; each was live at a moment of this call.
    #[cfg(feature = "tokio")]
    pub fn chunk_of_items(&mut self, is_backwards: bool) -> Result<Vec<Item>> {
        let (mut items, mut bytes) = (vec![], 0);
        while items.len() < MOST_LENT && bytes < FULL_BYTES {
            let item = match is_backwards {
                false => self.next(),
                true => self.next_back(),
            };
            let Some(item) = item.transpose()? else {
                break;
            };
            bytes += item.key().len() + item.value().len();
            items.push(item);
        }
        Ok(items)
    }

    /// Whether what is decided holds for more than an item.
    fn decides_ahead(&self) -> bool {
        self.engine.clock.leads().is_multiple_of(2)
    }

    #[inline]
    fn watch(&self, holds: Holds) -> Watch<'_> {
        Watch {
            engine: &self.engine,
            state: &self.state,
            holds,
        }
    }

    /// Decides again about what is behind this item.
    #[cold]
    fn go_back_to(&mut self, item: Option<(&[u8], &[u8])>) {
        if let Some(walks) = &mut *self.walks.lock() {
            walks.front = None;
        }
        self.left.front = item.map_or(vec![], |(key, _)| key.to_vec());
    }
}

/// What a call decided, and what may end it.
struct Watch<'a> {
    engine: &'a Engine,
    state: &'a ContainerState,
    holds: Holds,
}

impl Watch<'_> {
    /// Whether reads are allowed, and what was decided is as of now. False may be wrong.
    #[inline(always)]
    fn is_still(&self) -> bool {
        // In this order: the settings are those in force at the reading of the clock or later.
        self.engine.check_open(self.state).is_ok()
            && self.engine.is_now_up_to(self.holds.until)
            && self.state.settings_version() == self.holds.settings
    }
}

impl Walks {
    fn new(pin: &SnapshotPin, state: &ContainerState) -> Walks {
        Walks {
            sight: Sight::new(pin.read_state(state), pin.seq()),
            front: None,
            back: None,
        }
    }

    fn lend<F: Fn() -> ExpiryViews>(
        &mut self,
        left: &mut Left,
        forward: bool,
        check: &mut ExpiryCheck<'_, F>,
        lent: (&Lending, &mut Lent),
    ) -> Result<bool> {
        if forward {
            let walk = self.front(left, check.for_good())?;
            let Left { range, front, back } = left;
            walk.lend(check, front, |key| is_before_end(range, back, key), lent)
        } else {
            let walk = self.back(left, check.for_good())?;
            let Left { range, front, back } = left;
            walk.lend(check, back, |key| is_after_start(range, front, key), lent)
        }
    }

    #[inline(always)]
    fn front(&mut self, left: &Left, view: &ExpiryView) -> Result<&mut Walk<Source>> {
        match &mut self.front {
            Some(walk) => Ok(walk),
            none => Ok(none.insert(self.sight.walk(&left.range, left.from(), view)?)),
        }
    }

    #[inline(always)]
    fn back(&mut self, left: &Left, view: &ExpiryView) -> Result<&mut Walk<Source>> {
        match &mut self.back {
            Some(walk) => Ok(walk),
            none => Ok(none.insert(self.sight.walk(&left.range, left.to(), view)?)),
        }
    }
}

/// Whether a key is in the range, at or behind whose start it is, and the back has not passed it.
#[inline(always)]
fn is_before_end(range: &KeyRange, back: &[u8], key: &[u8]) -> bool {
    range.to.as_deref().is_none_or(|to| key < to) && (back.is_empty() || key < back)
}

/// Whether a key is in the range, before whose end it is, and the front has not passed it.
#[inline(always)]
fn is_after_start(range: &KeyRange, front: &[u8], key: &[u8]) -> bool {
    // Empty slices are not compared: with glibc on AVX-512 that costs 40 ns if their pointer is dangling.
    (range.from.is_empty() || key >= &range.from[..]) && (front.is_empty() || key > front)
}

impl Left {
    /// In the direction of a walk, all keys before this are left. The first key of a range is not before it.
    fn bound(&self, forward: bool) -> Option<&[u8]> {
        let (passed, end) = match forward {
            true => (&self.back[..], self.range.to.as_deref()),
            false => (&self.front[..], Some(&self.range.from[..])),
        };
        let bound = Some(passed).filter(|key| !key.is_empty()).or(end);
        bound.filter(|key| forward || !key.is_empty())
    }

    fn from(&self) -> Seek<'_> {
        match &self.front[..] {
            [] => Seek::AtOrAfter(&self.range.from),
            passed => Seek::After(passed),
        }
    }

    fn to(&self) -> Seek<'_> {
        match (&self.back[..], &self.range.to) {
            ([], None) => Seek::Last,
            ([], Some(to)) => Seek::Before(to),
            (passed, _) => Seek::Before(passed),
        }
    }
}
