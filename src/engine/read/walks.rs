//! Where a scan is: its two ends in a read state, and the part of its range that is left between them. An end seeks when it is
//! asked first, past a range in which another scan has found no item.

use std::sync::Arc;

use crate::base::{Result, Seq};
use crate::catalog::Run;
use crate::data::bare_ranges::{BareRange, BareRanges, after};
use crate::data::batch::KeyRange;
use crate::data::cursor::Seek;
use crate::data::item::Item;
use crate::data::lend::block_slice::BlockSlice;
use crate::data::lend::lent::{CertainView, Lent};
use crate::data::range_tombstones::RangeTombstones;
use crate::data::view::{Horizon, Lending, Walk};
use crate::engine::parts::read_state::{Flushable, ReadState};
use crate::engine::parts::snapshots::SnapshotPin;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::source::Source;
use crate::expiry::{ExpiryCheck, ExpiryView, ExpiryViews};
use crate::table::RunCursor;

/// About so many items lie in a block, all of which a range delete inside it concerns.
const BLOCK_ITEMS: usize = 64;

/// The two ends of a scan, and the read state they are on.
pub struct Walks {
    read_state: Arc<ReadState>,
    horizon: Horizon,
    front: Option<Walk<Source>>,
    /// Apart: few scans have both, and so large an allocation is dear.
    back: Option<Box<Walk<Source>>>,
    /// The key from which on each of them has seen every item, if that is not its end of the range.
    origins: [Option<Vec<u8>>; 2],
}

/// The part of a scan's range that is left.
pub struct Left {
    range: KeyRange,
    /// The last key that the front has passed; empty before the first.
    front: Vec<u8>,
    /// The last key that the back has passed.
    back: Vec<u8>,
}

impl Walks {
    pub fn new(pin: &SnapshotPin, state: &ContainerState, bare: Option<Arc<BareRanges>>) -> Walks {
        let read_state = pin.read_state(state);
        Walks {
            horizon: horizon_of(&read_state, pin.seq(), bare),
            read_state,
            front: None,
            back: None,
            origins: [None, None],
        }
    }

    /// Records that both ends have passed because they were dead.
    pub fn passed(&self) -> usize {
        self.ends().map(Walk::passed).sum()
    }

    /// Those of them that ended a slice.
    pub fn stops(&self) -> usize {
        self.ends().map(Walk::stops).sum()
    }

    fn ends(&self) -> impl Iterator<Item = &Walk<Source>> {
        self.front.iter().chain(self.back.as_deref())
    }

    /// How many runs may have records of what is left.
    pub fn runs(&self, left: &Left) -> usize {
        runs(&self.read_state, &left.range, self.horizon.max).count()
    }

    /// About how many of so many items a scan had to decide about alone, because range deletes lie between them.
    pub fn decided_alone(&self, items: u64) -> u64 {
        if items < BLOCK_ITEMS as u64 || self.horizon.tombstones.is_empty() {
            return 0;
        }
        let ranges = self.read_state.range_deletes();
        let ranges: usize = ranges.map(|ranges| ranges.len()).sum();
        items.min((BLOCK_ITEMS * ranges) as u64)
    }

    /// Gives up what it holds of the read state: a scan goes on by new walks.
    pub fn give_up(self, left: &mut Left) {
        if let Some(mut front) = self.front {
            front.end_slice(&mut left.front);
        }
    }

    /// The front seeks anew.
    pub fn forget_front(&mut self) {
        self.front = None;
    }

    /// Whether the front is in a slice.
    #[inline(always)]
    pub fn has_slice(&self) -> bool {
        self.front.as_ref().is_some_and(Walk::has_slice)
    }

    /// The slice that the front is in, if it holds under this view.
    #[inline(always)]
    pub fn block_slice(&mut self, view: &CertainView) -> Option<&mut BlockSlice> {
        self.front.as_mut()?.block_slice(view)
    }

    /// Whether there is something for [`Walks::take_found`].
    #[inline(always)]
    pub fn have_found(&self, forward: bool) -> bool {
        let walk = match forward {
            true => self.front.as_ref(),
            false => self.back.as_deref(),
        };
        walk.is_some_and(Walk::has_found)
    }

    /// The range in which one end found no item among many records since the last call, if there is one.
    #[cold]
    pub fn take_found(&mut self, left: &Left, forward: bool) -> Option<BareRange> {
        let walk = match forward {
            true => self.front.as_mut(),
            false => self.back.as_deref_mut(),
        };
        let found = walk?.take_found()?;
        self.horizon.bare.as_ref()?;
        let range = &mut left.range.clone();
        match (&self.origins, forward) {
            ([Some(front), _], true) => range.from = front.clone(),
            ([_, Some(back)], false) => range.to = Some(back.clone()),
            _ => {}
        }
        Some(found.within(range, forward))
    }

    /// The next item at one end.
    #[inline(always)]
    pub fn next<F: Fn() -> ExpiryViews>(
        &mut self,
        left: &mut Left,
        forward: bool,
        check: &mut ExpiryCheck<'_, F>,
        view: &CertainView,
    ) -> Option<Result<Item>> {
        if forward {
            let walk = match self.front(left, check.for_good()) {
                Ok(walk) => walk,
                Err(error) => return Some(Err(error)),
            };
            let Left { range, front, back } = left;
            let certain = (view, end_of(range, back));
            walk.next(check, front, |key| is_before_end(range, back, key), certain)
        } else {
            let walk = match self.back(left, check.for_good()) {
                Ok(walk) => walk,
                Err(error) => return Some(Err(error)),
            };
            let Left { range, front, back } = left;
            let certain = (view, start_of(range, front));
            walk.next(
                check,
                back,
                |key| is_after_start(range, front, key),
                certain,
            )
        }
    }

    pub fn lend<F: Fn() -> ExpiryViews>(
        &mut self,
        (left, forward): (&mut Left, bool),
        check: &mut ExpiryCheck<'_, F>,
        (view, call, dying_alone): (&CertainView, u64, bool),
        lent: &mut Lent,
    ) -> Result<bool> {
        let lending = |bound| Lending {
            view,
            call,
            bound,
            dying_alone,
        };
        if forward {
            let walk = self.front(left, check.for_good())?;
            let Left { range, front, back } = left;
            let lending = lending(end_of(range, back));
            let admits = |key: &[u8]| is_before_end(range, back, key);
            walk.lend(check, front, admits, (&lending, lent))
        } else {
            let walk = self.back(left, check.for_good())?;
            let Left { range, front, back } = left;
            let lending = lending(start_of(range, front));
            let admits = |key: &[u8]| is_after_start(range, front, key);
            walk.lend(check, back, admits, (&lending, lent))
        }
    }

    #[inline(always)]
    fn front(&mut self, left: &Left, view: &ExpiryView) -> Result<&mut Walk<Source>> {
        match &mut self.front {
            Some(walk) => Ok(walk),
            none => {
                let passed = &left.front;
                self.origins[0] = (!passed.is_empty()).then(|| after(passed));
                let origin = &mut self.origins[0];
                let seen = (&*self.read_state, &self.horizon);
                Ok(none.insert(walk(seen, &left.range, left.from(), view, origin)?))
            }
        }
    }

    #[inline(always)]
    fn back(&mut self, left: &mut Left, view: &ExpiryView) -> Result<&mut Walk<Source>> {
        // The front must not return the keys that the back passes.
        if let Some(front) = &mut self.front {
            front.range_shrinks(&mut left.front);
        }
        match &mut self.back {
            Some(walk) => Ok(walk),
            none => {
                let passed = &left.back;
                self.origins[1] = (!passed.is_empty()).then(|| passed.clone());
                let origin = &mut self.origins[1];
                let seen = (&*self.read_state, &self.horizon);
                let walk = walk(seen, &left.range, left.to(), view, origin)?;
                Ok(none.insert(Box::new(walk)))
            }
        }
    }
}

/// Whether a key at or after the range's start is before its end, and the back has not passed it.
#[inline(always)]
fn is_before_end(range: &KeyRange, back: &[u8], key: &[u8]) -> bool {
    range.to.as_deref().is_none_or(|to| key < to) && (back.is_empty() || key < back)
}

/// Whether a key before the range's end is at or after its start, and the front has not passed it.
#[inline(always)]
fn is_after_start(range: &KeyRange, front: &[u8], key: &[u8]) -> bool {
    // Empty slices are not compared: with glibc on AVX-512 that costs 40 ns if their pointer is dangling.
    (range.from.is_empty() || key >= &range.from[..]) && (front.is_empty() || key > front)
}

/// The front's bound: all keys before this are left.
#[inline(always)]
fn end_of<'a>(range: &'a KeyRange, back: &'a [u8]) -> Option<&'a [u8]> {
    match back {
        [] => range.to.as_deref(),
        passed => Some(passed),
    }
}

/// The back's bound: all keys after this are left, and the start of the range itself until the front has passed it.
#[inline(always)]
fn start_of<'a>(range: &'a KeyRange, front: &'a [u8]) -> Option<&'a [u8]> {
    let bound = match front {
        [] => &range.from[..],
        passed => passed,
    };
    (!bound.is_empty()).then_some(bound)
}

impl Left {
    /// All of a range.
    pub fn new(range: KeyRange) -> Left {
        Left {
            range,
            front: vec![],
            back: vec![],
        }
    }

    /// The front has passed this key and none behind it; `None`: no key.
    pub fn go_back_to(&mut self, key: Option<&[u8]>) {
        self.front = key.map_or(vec![], <[u8]>::to_vec);
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

/// The records of a read state that a scan at `max` sees.
fn horizon_of(read_state: &ReadState, max: Seq, bare: Option<Arc<BareRanges>>) -> Horizon {
    let ranges = read_state.range_deletes();
    let tombstones = RangeTombstones::new(ranges.flat_map(|ranges| ranges.as_of(max)));
    Horizon {
        max,
        tombstones,
        bare,
    }
}

/// A walk from `to`, or from behind the bare range that it would begin in: `origin` becomes the key from which on the
/// walk sees every item, unless that is the end of its range.
fn walk(
    (read_state, horizon): (&ReadState, &Horizon),
    range: &KeyRange,
    to: Seek<'_>,
    view: &ExpiryView,
    origin: &mut Option<Vec<u8>>,
) -> Result<Walk<Source>> {
    let sources = || sources(read_state, horizon, range);
    let seek = |sources, to| Walk::seek(sources, horizon.clone(), to, view);
    let bare = horizon.bare.as_ref().filter(|bare| !bare.is_empty());
    let bare = bare.and_then(|bare| match to {
        Seek::First => bare.around(&[], horizon.max),
        Seek::AtOrAfter(key) | Seek::After(key) | Seek::AtOrBefore(key) => {
            bare.around(key, horizon.max)
        }
        Seek::Last => bare.before(None, horizon.max),
        Seek::Before(key) => bare.before(Some(key), horizon.max),
    });
    let Some(bare) = bare else {
        return seek(sources(), to);
    };
    *origin = match to.is_forward() {
        true => bare.to,
        false => Some(bare.from).filter(|from| !from.is_empty()),
    };
    match &*origin {
        None => seek(vec![], to),
        Some(from) if to.is_forward() => seek(sources(), Seek::AtOrAfter(from)),
        Some(from) => seek(sources(), Seek::Before(from)),
    }
}

/// The runs that may overlap a range, with records up to `max`.
fn runs<'a>(
    read_state: &'a ReadState,
    range: &'a KeyRange,
    max: Seq,
) -> impl Iterator<Item = &'a Arc<Run>> {
    let runs = read_state.version.runs.iter();
    runs.filter(move |run| {
        run.census.seq_min <= max && range.overlaps(run.first_key(), run.last_key())
    })
}

/// Cursors over all memtables and runs that may overlap a range.
fn sources(read_state: &ReadState, horizon: &Horizon, range: &KeyRange) -> Vec<Source> {
    let filled = |flushable: &&Arc<Flushable>| !flushable.memtable.is_empty();
    let memory = || read_state.flushables().filter(filled);
    // With room for all: a cursor has some hundred bytes, which are not to be moved.
    let most = memory().count() + read_state.version.runs.len();
    let mut sources = Vec::with_capacity(most);
    sources.extend(memory().map(|flushable| {
        let cursor = flushable.memtable.cursor();
        Source::Memory(cursor.under(horizon.tombstones.clone()))
    }));
    sources.extend(runs(read_state, range, horizon.max).map(|run| {
        let tombstones = horizon.tombstones.clone();
        Source::Disk(RunCursor::under(run.shared.clone(), tombstones))
    }));
    sources
}
