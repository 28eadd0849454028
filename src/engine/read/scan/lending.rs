//! How a scan lends: in calls of some [`MOST_LENT`] items. A call takes the scan's lock, reads the clock and then the
//! version of the settings, and decides which items are shown (data/view.rs). It holds the bytes of these, so the caller
//! gets them after the lock is released: its code may write, drop the container or close the database, and if it panics
//! nothing is locked.
//!
//! [`Scan::for_each`] hands out each item by a call of its own to user code, which may take any time. So its items are
//! decided by the view's moment; an item that is live now and not at that moment is the only one of its call. After
//! each it checks that this moment has not come and that the settings are the same, else it decides again about the
//! items behind that one. So each item is live by a reading of the clock, and by the settings, after the code for the
//! one before it has returned. A record that is dead by the clock stays dead, unless the clock leads: then items are
//! decided one by one. Items that are judged by one moment are decided once.

use std::ops::ControlFlow;

use super::{Progress, Scan, views};
use crate::base::{Result, Timestamp};
#[cfg(feature = "tokio")]
use crate::data::item::Item;
use crate::data::lend::lent::Lent;
use crate::engine::Engine;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::walks::Walks;
use crate::env::ClockWatch;
use crate::expiry::ExpiryCheck;

/// The most items of a call that lends: enough to make the cost of a call small per item.
const MOST_LENT: usize = 128;

/// A call ends with the item that brings its keys and values to this many bytes.
const FULL_BYTES: usize = 64 << 10;

/// For the first call of [`Scan::for_each`] so many items are enough, for each further one twice as many as for the one
/// before: a caller that wants few pays for few. The rest of a block costs next to nothing, and is lent whole, even if
/// it is more.
const FIRST_LENT: usize = 16;

/// The conditions under which the decisions of a call are still as of now.
struct Holds {
    /// Not later than this.
    until: Timestamp,
    /// The settings of this version.
    settings: u64,
}

impl Scan {
    /// Calls `visit` with key and value of each item from the front, until it breaks.
    pub fn for_each<B>(
        mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        let (mut lent, mut enough) = (Lent::default(), FIRST_LENT);
        loop {
            let room = match self.decides_ahead() {
                true => (enough, 2 * MOST_LENT),
                false => (1, 1),
            };
            lent.begin(room, FULL_BYTES);
            enough = MOST_LENT.min(2 * enough);
            let (is_more, holds) = self.lend(true, true, &mut lent)?;
            let mut given = 0;
            let watch = self.watch(holds);
            let flow = lent.each(|key, value| {
                given += 1;
                visit(key, value).map_break(Some)?;
                match watch.is_still() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(None),
                }
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
        lent.begin((MOST_LENT, MOST_LENT), FULL_BYTES);
        self.lend(true, false, lent)?.0.map(drop)
    }

    /// Lends the next items from the back, as [`Scan::lend_next`] does.
    pub fn lend_next_back(&mut self, lent: &mut Lent) -> Result<()> {
        lent.begin((MOST_LENT, MOST_LENT), FULL_BYTES);
        self.lend(false, false, lent)?.0.map(drop)
    }

    /// Lends the next items; `dying_alone`: one that is live now, and not as long as the view holds, is the only one of
    /// its call. Also returns whether there may be more, and how long the decisions hold.
    fn lend(
        &mut self,
        forward: bool,
        dying_alone: bool,
        lent: &mut Lent,
    ) -> Result<(Result<bool>, Holds)> {
        self.engine.check_open(&self.state)?;
        let leads = self.engine.clock.leads();
        let now = self.look_at_the_clock();
        self.calls += 1;
        let (engine, state, view) = (&self.engine, &self.state, &self.view);
        let Progress { left, walks } = &mut *self.progress.lock();
        let fixed = self.is_fixed.then_some((view, self.settled.now));
        let bare = || fixed.is_none().then(|| state.bare().clone());
        let walks = walks.get_or_insert_with(|| Walks::new(&self.pin, state, bare()));
        let mut check = ExpiryCheck::new(&view.later, &mut self.settled, now, || {
            views(engine, state, fixed)
        });
        let is_more = walks.lend(
            (left, forward),
            &mut check,
            (view, self.calls, dying_alone),
            lent,
        );
        if walks.have_found(forward)
            && let Some(found) = walks.take_found(left, forward)
        {
            engine.note_bare(state, &found, self.pin.seq());
        }
        self.items += lent.len() as u64;
        // Decisions by one moment hold for ever; a change of settings ends a call, and changes nothing.
        let holds = match self.is_fixed {
            true => Holds {
                until: Timestamp::MAX,
                settings: self.state.settings_version(),
            },
            // A record that was dead by a clock that leads may live again.
            false if leads.is_multiple_of(2) && engine.clock.leads() == leads => Holds {
                until: view.later.now,
                settings: self.settings,
            },
            false => Holds {
                until: Timestamp(0),
                settings: self.settings,
            },
        };
        Ok((is_more, holds))
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

    /// Whether decisions hold for more than one item.
    fn decides_ahead(&self) -> bool {
        self.engine.clock.leads().is_multiple_of(2)
    }

    #[inline]
    fn watch(&self, holds: Holds) -> Watch<'_> {
        Watch {
            engine: &self.engine,
            clock: self.engine.clock.watch(holds.until),
            state: &self.state,
            settings: holds.settings,
        }
    }

    /// Goes back to this item: those behind it are decided about again.
    #[cold]
    fn go_back_to(&mut self, item: Option<(&[u8], &[u8])>) {
        let Progress { left, walks } = &mut *self.progress.lock();
        if let Some(walks) = walks {
            walks.forget_front();
        }
        left.go_back_to(item.map(|(key, _)| key));
    }
}

/// The decisions of a call, and the changes that may end them.
struct Watch<'a> {
    engine: &'a Engine,
    clock: ClockWatch<'a>,
    state: &'a ContainerState,
    /// The version of the settings by which it decided.
    settings: u64,
}

impl Watch<'_> {
    /// Whether reads are allowed, and the decisions are still as of now. False may be wrong.
    #[inline(always)]
    fn is_still(&self) -> bool {
        // In this order: the settings are those in force at the reading of the clock or later.
        !self.engine.scheduler.is_closing()
            && self.clock.is_up_to()
            && self.state.settings_version() == self.settings
    }
}
