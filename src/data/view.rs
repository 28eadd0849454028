//! The visible items of merged sources: of every key the newest version up to the reader's sequence number, unless that
//! is dead or a range delete covers it.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::record::{Header, key_prefix};
use crate::base::{Result, Seq};
use crate::data::bare_ranges::{BareRanges, Passing};
use crate::data::between::{Bare, Between};
use crate::data::cursor::{Cursor, Seek};
use crate::data::item::Item;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{Ask, CertainView, LendOutcome, Lent};
use crate::data::merge::Merge;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::{ExpiryCheck, ExpiryView, ExpiryViews};

/// Whether both keys are equal. Mostly the prefixes differ already.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && key_prefix(a) == key_prefix(b) && a == b
}

/// The writes and range deletes that a reader sees.
#[derive(Clone, Debug)]
pub struct Horizon {
    /// Later writes are not seen.
    pub max: Seq,
    /// The range deletes up to that sequence number.
    pub tombstones: RangeTombstones,
    /// The ranges that the reader may pass over unread; none unless it judges by the time of each step.
    pub bare: Option<Arc<BareRanges>>,
}

impl Horizon {
    /// Whether a version up to the horizon that is the newest of its key is shown: it is not dead, and no range delete covers
    /// it.
    #[inline(always)]
    fn shows(&self, header: &Header, key: &[u8], is_dead: bool) -> bool {
        !is_dead && header.seq >= self.tombstones.max_covering_seq(key)
    }
}

/// An iterator begins a slice when so many items in a row came from one source: where the keys of several sources
/// alternate, slices would be short.
const LEAD_LEAST: usize = 3;

/// The view and the limits of a lending call.
pub struct Lending<'a> {
    /// The view under which items are certain to be shown.
    pub view: &'a CertainView,
    /// The number of this call; not 0.
    pub call: u64,
    /// In the direction of the walk, only keys before this.
    pub bound: Option<&'a [u8]>,
    /// Whether an item that is live now, and dead by `view`, is the only one of its call.
    pub dying_alone: bool,
}

/// One end of a scan: iterates in one direction.
pub struct Walk<C> {
    merge: Merge<C>,
    horizon: Horizon,
    forward: bool,
    /// Whether the first record was decided about already.
    given: bool,
    /// The items behind the first record, which are returned before the merge moves on. Forwards.
    slice: Option<BlockSlice>,
    /// The cursor of the last item, and how many items in a row it gave before that one.
    leader: (Option<usize>, usize),
    /// The records passed since the last item.
    between: Between,
}

impl<C: Cursor> Walk<C> {
    /// A walk after a seek to `to`.
    pub fn seek(
        cursors: Vec<C>,
        horizon: Horizon,
        to: Seek<'_>,
        view: &ExpiryView,
    ) -> Result<Self> {
        let passing = Passing {
            bare: horizon.bare.clone(),
            max: horizon.max,
            passed: 0,
        };
        let under = (horizon.tombstones.clone(), passing);
        let merge = Merge::seek_under(under, cursors, to, Some(view))?;
        Ok(Walk {
            merge,
            horizon,
            forward: to.is_forward(),
            given: false,
            slice: None,
            leader: (None, 0),
            between: Between::default(),
        })
    }

    /// Whether there is something for [`Walk::take_found`].
    #[inline(always)]
    pub fn has_found(&self) -> bool {
        self.between.has_found()
    }

    /// The range with the most passed records and no item since the last call, if they were many.
    pub fn take_found(&mut self) -> Option<Bare> {
        self.between.take_found()
    }

    /// About how many dead records it has passed in all.
    pub fn passed(&self) -> usize {
        self.between.passed() + self.merge.passed()
    }

    /// How often dead records followed an item.
    pub fn stops(&self) -> usize {
        self.between.stops()
    }

    /// Called before the first record is decided about: passes over it, with many others, if it is in a bare range.
    #[cold]
    fn pass_over_bare(&mut self, decided: &[u8], view: &ExpiryView) -> Result<()> {
        self.between.note_asked(self.merge.passed(), decided);
        self.merge.pass_over_bare(Some(view))
    }

    /// Called at an item, or at the end of the range, with the key there; none: there are no more records.
    #[inline(always)]
    fn end_between(&mut self, key: Option<&[u8]>) {
        if self.between.is_told(self.merge.passed()) {
            self.end_passed(key);
        }
    }

    #[inline(never)]
    fn end_passed(&mut self, key: Option<&[u8]>) {
        self.between.end(self.merge.passed(), key);
        self.merge.forget_passed();
    }

    /// Called where the key of the first record is not admitted, or no record is left.
    #[cold]
    fn end_range(&mut self) -> Result<()> {
        self.merge.end()?;
        let key = self.merge.record().map(|record| record.key);
        self.between.end(self.merge.passed(), key);
        self.merge.forget_passed();
        Ok(())
    }

    /// Counts a record of this key that is not shown.
    #[inline]
    fn pass(&mut self, header: &Header, key: &[u8], view: &ExpiryView) {
        if self.merge.passed() == 0 {
            self.between.note_stop();
        }
        self.merge.note_passed();
        if self.horizon.shows(header, key, view.dead(header)) {
            // The record is dead by a clock that leads, and not for good.
            self.between.begin_anew();
            self.merge.forget_passed();
        }
    }

    /// The next item that is visible at this moment and whose key `admits` accepts: forwards, a key before the bound.
    /// An item that is live by the view is live at this moment. `decided` becomes the last key that was decided about,
    /// visible or not, unless a slice holds it; older versions of that key are skipped.
    #[inline]
    pub fn next<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
        certain: (&CertainView, Option<&[u8]>),
    ) -> Option<Result<Item>> {
        if !self.forward {
            return self.backwards(check, decided, admits);
        }
        let (settings, moment) = (&certain.0.later.settings, check.moment);
        let take = |slice: &mut BlockSlice| slice.take(settings, moment);
        if let Some(item) = self.block_slice(certain.0).and_then(take) {
            return Some(Ok(item));
        }
        self.end_slice(decided);
        if let Some(item) = self.begin_slice(decided, certain).and_then(take) {
            return Some(Ok(item));
        }
        self.forwards(check, decided, admits)
    }

    /// The slice, if there is one under this view.
    #[inline(always)]
    pub fn block_slice(&mut self, view: &CertainView) -> Option<&mut BlockSlice> {
        let slice = self.slice.as_mut();
        slice.filter(|slice| slice.is_of(view.number))
    }

    /// Whether there is a slice.
    pub fn has_slice(&self) -> bool {
        self.slice.is_some()
    }

    /// Begins a slice, if one source has been first for some time and has one.
    #[inline(always)]
    fn begin_slice(
        &mut self,
        decided: &[u8],
        certain: (&CertainView, Option<&[u8]>),
    ) -> Option<&mut BlockSlice> {
        match self.given && self.leader.1 >= LEAD_LEAST {
            true => self.begin_slice_of_leader(decided, certain),
            false => None,
        }
    }

    fn begin_slice_of_leader(
        &mut self,
        decided: &[u8],
        (view, bound): (&CertainView, Option<&[u8]>),
    ) -> Option<&mut BlockSlice> {
        let ask = Ask {
            view,
            call: 0,
            decided,
            bound,
            above: Seq(0),
        };
        self.slice = self.merge.block_slice(&ask);
        if self.slice.is_none() {
            self.leader.1 = 0;
        }
        self.slice.as_mut()
    }

    /// Ends the slice: its last key goes to `decided`. Called before anything else moves, and when the range shrinks.
    pub fn end_slice(&mut self, decided: &mut Vec<u8>) {
        if let Some(slice) = self.slice.take() {
            let (last, key) = slice.last();
            decided.clear();
            decided.extend_from_slice(key);
            self.merge.stand_in_slice(last);
        }
    }

    /// Called when the end of its range comes nearer.
    pub fn range_shrinks(&mut self, decided: &mut Vec<u8>) {
        self.end_slice(decided);
        self.leader.1 = 0;
    }

    // Not inlined, so that the item is constructed in place, not moved.
    #[inline(never)]
    fn forwards<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Item>> {
        let max = self.horizon.max;
        loop {
            // Advances only when the next item is wanted, so that the current one is not moved past the step.
            if std::mem::replace(&mut self.given, true)
                && let Err(error) = self.merge.advance(Some(check.for_good()))
            {
                return Some(Err(error));
            }
            if self.between.asks(self.merge.passed())
                && let Err(error) = self.pass_over_bare(decided, check.for_good())
            {
                return Some(Err(error));
            }
            let Some(record) = self.merge.record() else {
                return self.end_range().err().map(Err);
            };
            let header = record.header;
            if header.seq > max || is_same(record.key, decided) {
                self.merge.note_passed();
                continue;
            }
            if !admits(record.key) {
                return self.end_range().err().map(Err);
            }
            decided.clear();
            decided.extend_from_slice(record.key);
            if self.horizon.shows(&header, record.key, check.dead(&header)) {
                self.end_between(Some(decided));
                self.note_leader();
                return Some(self.item(check, header));
            }
            self.pass(&header, decided, check.for_good());
        }
    }

    #[inline]
    fn note_leader(&mut self) {
        let leader = self.merge.leader();
        self.leader = match self.leader {
            (before, items) if before == leader => (leader, items + 1),
            _ => (leader, 0),
        };
    }

    /// The item of the first record.
    #[inline(always)]
    fn item<F: Fn() -> ExpiryViews>(
        &self,
        check: &ExpiryCheck<'_, F>,
        header: Header,
    ) -> Result<Item> {
        let pair = self.merge.front().expect("a record has a cursor").pair()?;
        Ok(Item::new(pair, &header, check.life(&header), check.moment))
    }

    /// Lends the next visible items at this moment, up to those that fill `lent`; false: there are no more. `decided` and
    /// `admits` are as for [`Walk::next`].
    pub fn lend<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
        (lending, lent): (&Lending<'_>, &mut Lent),
    ) -> Result<bool> {
        self.end_slice(decided);
        while !lent.is_full() {
            if std::mem::take(&mut self.given) {
                self.merge.advance(Some(check.for_good()))?;
            }
            if self.between.asks(self.merge.passed()) {
                self.pass_over_bare(decided, check.for_good())?;
            }
            if self.lend_many(check, decided, lending, lent)? {
                continue;
            }
            let goes_on = match self.forward {
                true => self.lend_next(check, decided, &admits, (lending, lent))?,
                false => self.lend_back(check, decided, &admits, lent)?,
            };
            if let ControlFlow::Break(is_more) = goes_on {
                return Ok(is_more);
            }
        }
        Ok(true)
    }

    /// Lends the records that need no look at each. False: the first record needs one.
    #[inline]
    fn lend_many<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        lending: &Lending<'_>,
        lent: &mut Lent,
    ) -> Result<bool> {
        let ask = Ask {
            view: lending.view,
            call: lending.call,
            decided,
            bound: lending.bound,
            above: Seq(0),
        };
        let before = lent.len();
        let stand = self.merge.lend(&ask, lent, check.for_good());
        self.given = matches!(stand, Ok(LendOutcome::OnLast));
        // The records that were passed over without an item are versions of these keys.
        if lent.len() > before
            && let Some((key, _)) = lent.last()
        {
            decided.clear();
            decided.extend_from_slice(key);
            if self.merge.passed() > 0 {
                let first = lent.get(before).map(|(key, _)| key);
                self.between.end(self.merge.passed(), first);
                self.merge.forget_passed();
            }
            self.between.begin_anew();
        }
        Ok(stand? != LendOutcome::Same)
    }

    /// Decides about the first record, and lends it if it is visible. Breaks where the call ends, with whether there is
    /// more.
    fn lend_next<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: &impl Fn(&[u8]) -> bool,
        (lending, lent): (&Lending<'_>, &mut Lent),
    ) -> Result<ControlFlow<bool>> {
        let Some(record) = self.merge.record() else {
            return self.end_range().map(|()| ControlFlow::Break(false));
        };
        let header = record.header;
        if header.seq > self.horizon.max || is_same(record.key, decided) {
            self.merge.note_passed();
            self.given = true;
            return Ok(ControlFlow::Continue(()));
        }
        if !admits(record.key) {
            return self.end_range().map(|()| ControlFlow::Break(false));
        }
        let is_dying = lending.view.later.dead(&header);
        let is_shown = self.horizon.shows(&header, record.key, check.dead(&header));
        let is_alone = is_shown && is_dying && lending.dying_alone;
        if is_alone && !lent.is_empty() {
            return Ok(ControlFlow::Break(true));
        }
        // A record is decided about once it is lent: after an error it comes again.
        if is_shown {
            let front = self.merge.front().expect("a record has a cursor");
            front.lend_one(lent)?;
        }
        decided.clear();
        decided.extend_from_slice(record.key);
        self.given = true;
        match is_shown {
            true => self.end_between(Some(decided)),
            false => self.pass(&header, decided, check.for_good()),
        }
        Ok(match is_alone {
            true => ControlFlow::Break(true),
            false => ControlFlow::Continue(()),
        })
    }

    /// Decides about the versions of the first record's key, as [`Walk::backwards`] does.
    fn lend_back<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: &impl Fn(&[u8]) -> bool,
        lent: &mut Lent,
    ) -> Result<ControlFlow<bool>> {
        let key = match self.merge.record() {
            Some(record) if admits(record.key) => record.key,
            _ => return self.end_range().map(|()| ControlFlow::Break(false)),
        };
        decided.clear();
        decided.extend_from_slice(key);
        let before = lent.len();
        while let Some(record) = self.merge.record()
            && is_same(record.key, decided)
        {
            let header = record.header;
            if header.seq <= self.horizon.max {
                lent.forget_from(before);
                if self.horizon.shows(&header, decided, check.dead(&header)) {
                    let front = self.merge.front().expect("a record has a cursor");
                    front.lend_one(lent)?;
                } else {
                    self.pass(&header, decided, check.for_good());
                }
            }
            self.merge.advance(Some(check.for_good()))?;
        }
        if lent.len() > before {
            self.end_between(Some(decided));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Versions of a key come oldest first here: the last one up to the horizon counts.
    fn backwards<F: Fn() -> ExpiryViews>(
        &mut self,
        check: &mut ExpiryCheck<'_, F>,
        decided: &mut Vec<u8>,
        admits: impl Fn(&[u8]) -> bool,
    ) -> Option<Result<Item>> {
        let max = self.horizon.max;
        loop {
            if self.between.asks(self.merge.passed())
                && let Err(error) = self.pass_over_bare(decided, check.for_good())
            {
                return Some(Err(error));
            }
            let record = self.merge.record();
            let Some(record) = record.filter(|record| admits(record.key)) else {
                return self.end_range().err().map(Err);
            };
            decided.clear();
            decided.extend_from_slice(record.key);
            let mut item = None;
            while let Some(record) = self.merge.record()
                && is_same(record.key, decided)
            {
                let header = record.header;
                if header.seq <= max {
                    let is_shown = self.horizon.shows(&header, decided, check.dead(&header));
                    item = is_shown.then(|| self.item(check, header));
                    if !is_shown {
                        self.pass(&header, decided, check.for_good());
                    }
                }
                if let Err(error) = self.merge.advance(Some(check.for_good())) {
                    return Some(Err(error));
                }
            }
            if item.is_some() {
                self.end_between(Some(decided));
                return item;
            }
        }
    }
}

#[cfg(test)]
mod tests;
