//! Scans: the live items in a range, from both ends. Iterators take them one by one (here); others are lent many at a time
//! (scan/lending.rs).
//!
//! A scan sees the writes up to its snapshot, and judges by the time of each step. Between two steps it holds a snapshot
//! and a read state that the engine may take from it, and no lock.
//!
//! A view ([`CertainView`]) of a moment that is later than now by [`HOLDS_MILLIS`] decides about many records at once.
//! A step uses the view of the step before, as long as that moment has not come and the settings are the same: it reads
//! the clock, then the version of the settings, and its item is as of then. Under that view an iterator takes items out
//! of a slice (data/lend/block_slice.rs). A slice does not know of the other end: when the back passes a key, the slice of
//! the front ends.

mod lending;

use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::{Result, Seq, Timestamp, Wait};
use crate::data::bare_ranges::BareRange;
use crate::data::batch::KeyRange;
use crate::data::item::Item;
use crate::data::lend::lent::CertainView;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::{ContainerState, Holder};
use crate::engine::read::point::{Moment, ReadPoint};
use crate::engine::read::walks::{Left, Walks};
use crate::expiry::{ExpiryCheck, ExpiryView, ExpiryViews};

/// For how long a view holds, in milliseconds: longer than most callers need for the items of a call. Items that live no
/// longer are decided one by one.
const HOLDS_MILLIS: u64 = 1_000;

/// No settings have this version.
const NO_VERSION: u64 = u64::MAX;

impl ReadPoint<'_, Wait> {
    /// The live items in a range. Of the newest state: as of a snapshot that is taken now.
    pub fn scan(&self, engine: &Handle, range: KeyRange) -> Scan {
        let (state, pin, moment) = self.place();
        let pin = match pin {
            Some(pin) => pin.clone(),
            None => Arc::new(engine.snapshot()),
        };
        match moment {
            Moment::Clock => {
                let ExpiryViews { now, settled } = engine.expiry_views(state);
                let lead = engine.clock.at_most().since(now.now);
                Scan::new(engine, state, pin, range, settled, lead)
            }
            Moment::At(views) => {
                let settled = views.settled.clone();
                let mut scan = Scan::new(engine, state, pin, range, settled, 0);
                scan.view.later = views.now.clone();
                scan.is_fixed = true;
                scan
            }
        }
    }
}

impl Engine {
    /// Remembers where a scan at `max` found no item, unless writers are in its way.
    #[cold]
    fn note_bare(&self, state: &ContainerState, found: &BareRange, max: Seq) {
        // The records that a follower takes in are not noted one by one.
        if self.follower.is_some() || state.bare().learn(found, max).is_empty() {
            return;
        }
        if let Some(commit) = self.commit_log.try_lock() {
            let last = self.commit_log.latest();
            let is_bare = state.last_write() <= max;
            state.bare().watch(found, (last, is_bare, max));
            drop(commit);
        }
    }
}

/// By what a scan judges now, or always: the view of the one moment, and settled time at that.
fn views(
    engine: &Engine,
    state: &ContainerState,
    fixed: Option<(&CertainView, Timestamp)>,
) -> ExpiryViews {
    let of_fixed = |(view, settled): (&CertainView, Timestamp)| {
        ExpiryViews::at(view.later.now, settled, || view.later.settings.clone())
    };
    fixed.map_or_else(|| engine.expiry_views(state), of_fixed)
}

/// How far a scan has come. When a file in its read state is obsolete, the engine takes the walks from a scan at rest, so
/// that the scan keeps no file on disk; the next step seeks again, in the current read state.
struct Progress {
    left: Left,
    walks: Option<Walks>,
}

impl Holder for Progress {
    fn give_up(&mut self) {
        if let Some(walks) = self.walks.take() {
            walks.give_up(&mut self.left);
        }
    }
}

/// Live items in the order of keys, from both ends. Each is judged when the scan reaches it.
pub struct Scan {
    state: Arc<ContainerState>,
    /// Keeps the versions visible to it, in whichever read state.
    pin: Arc<SnapshotPin>,
    progress: Arc<Mutex<Progress>>,
    /// In settled time as of the last reading of the clock.
    settled: ExpiryView,
    /// By how many milliseconds the moment of [`Scan::look_at_the_clock`] is later than now, measured once: so items can carry
    /// the time of their reading without reading the clock for each.
    lead: u64,
    /// How many items it has returned.
    items: u64,
    /// How many calls have lent.
    calls: u64,
    /// Whether the front was in a slice after the last step.
    in_slice: bool,
    /// The view under which items are certain to be shown, as long as it holds.
    view: CertainView,
    /// The version of the settings in that view; [`NO_VERSION`] at first.
    settings: u64,
    /// Whether every item is judged by that view, whenever it is reached.
    is_fixed: bool,
    engine: Handle,
}

/// The worth to a scan of a merge that saves one run, in bytes rewritten: for one seek ...
const SEEK_WORTH: u64 = 1024;
/// ... and for each item. In a scan of 100 items over 8 runs each further run costs 2.2 us, in which a merge writes
/// some 600 bytes; background work is assumed to cost half.
const STEP_WORTH: u64 = 6;

/// The worth of a dead record less to pass: some 20 ns.
const PASS_WORTH: u64 = 6;
/// The same for a dead record between items, which ends a slice: 1 us.
const STOP_WORTH: u64 = 300;
/// The same for an item that need not be decided about alone any more, where range deletes lie between items: 400 ns.
const DECISION_WORTH: u64 = 100;
impl Drop for Scan {
    fn drop(&mut self) {
        let Progress { left, walks } = &*self.progress.lock();
        let Some(walks) = walks else {
            return;
        };
        if walks.runs(left) > 1 {
            let worth = SEEK_WORTH + STEP_WORTH * self.items;
            self.state.pay_for_scan(worth);
        }
        let (passed, stops) = (walks.passed(), walks.stops());
        let decided = walks.decided_alone(self.items);
        if passed > 0 || stops > 0 || decided > 0 {
            let worth = PASS_WORTH * passed as u64 + STOP_WORTH * stops as u64;
            let worth = worth + DECISION_WORTH * decided;
            self.state.pay_for_passing(worth);
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
        let left = Left::new(range);
        let progress = Arc::new(Mutex::new(Progress { left, walks: None }));
        state.watch(&progress);
        let max = pin.seq();
        Scan {
            state: state.clone(),
            pin,
            progress,
            view: CertainView::first(max, settled.clone()),
            settings: NO_VERSION,
            is_fixed: false,
            settled,
            lead,
            items: 0,
            calls: 0,
            in_slice: false,
            engine: engine.clone(),
        }
    }

    /// A moment that is no earlier than now, from a reading of the clock, and at which the view holds.
    #[inline(always)]
    fn look_at_the_clock(&mut self) -> Timestamp {
        if self.is_fixed {
            return self.view.later.now;
        }
        let now = self.engine.clock.at_most();
        if !self.view_holds(now) {
            self.renew_view();
        }
        now
    }

    /// Whether the view holds at this moment, at which the clock was read just now.
    #[inline(always)]
    fn view_holds(&self, now: Timestamp) -> bool {
        // Read behind the clock: the settings are those in force at its reading or later.
        self.view.later.now.0.wrapping_sub(now.0) <= HOLDS_MILLIS
            && self.settings == self.state.settings_version()
    }

    #[inline(never)]
    fn renew_view(&mut self) {
        self.settings = self.state.settings_version();
        self.view.later = self.engine.later_view_by(&self.state, HOLDS_MILLIS);
        self.view.number += 1;
    }

    /// The moment of a step, if reads are allowed and the view still holds.
    #[inline(always)]
    fn moment_of_the_view(&self) -> Option<Timestamp> {
        self.engine.check_open(&self.state).ok()?;
        if self.is_fixed {
            return Some(self.view.later.now);
        }
        let now = self.engine.clock.at_most();
        self.view_holds(now).then_some(now)
    }

    /// The next item from the front, if it is in a slice that holds. On `None` the caller takes a [`Scan::step`].
    /// Inlined, so that the item is constructed where the caller wants it.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Item> {
        if !self.in_slice {
            return None;
        }
        let moment = self.moment_of_the_view()?.before(self.lead);
        let Progress { walks, .. } = &mut *self.progress.lock();
        let slice = walks.as_mut()?.block_slice(&self.view)?;
        let item = slice.take(&self.view.later.settings, moment)?;
        self.items += 1;
        Some(item)
    }

    /// The next item from the front.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Item>> {
        match self.take() {
            Some(item) => Some(Ok(item)),
            None => self.step(true),
        }
    }

    /// The next item from the back.
    pub fn next_back(&mut self) -> Option<Result<Item>> {
        self.step(false)
    }

    /// The next item at one end, as of now: from the front, when [`Scan::take`] has none.
    #[inline(never)]
    pub fn step(&mut self, forward: bool) -> Option<Result<Item>> {
        if let Err(error) = self.engine.check_open(&self.state) {
            return Some(Err(error));
        }
        let moment = self.look_at_the_clock().before(self.lead);
        let Scan {
            engine,
            state,
            view,
            ..
        } = self;
        let Progress { left, walks } = &mut *self.progress.lock();
        let fixed = self.is_fixed.then_some((&*view, self.settled.now));
        let bare = || fixed.is_none().then(|| state.bare().clone());
        let walks = walks.get_or_insert_with(|| Walks::new(&self.pin, state, bare()));
        let mut check = ExpiryCheck::new(&view.later, &mut self.settled, moment, || {
            views(engine, state, fixed)
        });
        self.items += 1;
        let item = walks.next(left, forward, &mut check, view);
        self.in_slice = walks.has_slice();
        if walks.have_found(forward)
            && let Some(found) = walks.take_found(left, forward)
        {
            engine.note_bare(state, &found, self.pin.seq());
        }
        item
    }
}
