//! The merge of sorted sources, each read by a [`Cursor`]; cursor.rs defines steps, seeks and dead spans. It lends in
//! merge/lending.rs.

mod lending;

use std::cmp::Ordering;

use crate::base::record::{RecordRef, key_prefix};
use crate::base::{Error, Result, Seq};
use crate::data::bare_ranges::Passing;
use crate::data::batch::KeyRange;
use crate::data::cursor::{Cursor, DeadSpan, KeyPosition, Position, Seek};
use crate::data::lend::uniform_merge::UniformMerge;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::ExpiryView;

/// Many sources as one, in one direction: a list of cursors sorted by their positions. While one source stays first,
/// only its new position is compared with the second.
///
/// A record is sorted by its own key, and a dead span by its far end (its last key, in forward iteration), after
/// records of the same key. So when a dead span is first, nothing is left inside its range, and it is stepped over.
/// Only dead spans after the first record that begin at or before it and have a higher sequence number can hide it:
/// these are entered, unless the record shows nothing.
///
/// After a failed step, unread records may hide others: the merge shows nothing more, and later steps return the error.
pub struct Merge<C> {
    cursors: Vec<C>,
    /// The range tombstones, if there is an expiry view.
    tombstones: RangeTombstones,
    /// The cursors in order, without those at their end.
    order: Vec<MergeEntry>,
    forward: bool,
    dead_spans: usize,
    /// The ranges that are passed over unread, and the count of passed records.
    passing: Passing,
    /// The error of a failed step.
    failure: Option<Error>,
    /// Room for a merge of uniform blocks, when one has lent.
    blocks: Option<Box<UniformMerge>>,
}

/// A dead span counts for so many records: in memory it has about as many or more.
const PASSED_IN_SPAN: usize = 16;

/// A cursor's entry in the order.
#[derive(Clone, Copy)]
struct MergeEntry {
    /// The prefix of its key, its bits inverted in backward iteration: mostly enough to compare.
    prefix: u64,
    /// Index into the cursors.
    at: usize,
}

impl<C: Cursor> Merge<C> {
    /// A merge of these cursors, after a seek to `to`.
    pub fn seek(cursors: Vec<C>, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<Self> {
        Merge::seek_under(Default::default(), cursors, to, view)
    }

    /// The same; with an expiry view, records that `tombstones` cover show nothing, and bare ranges are passed over.
    pub fn seek_under(
        (tombstones, passing): (RangeTombstones, Passing),
        mut cursors: Vec<C>,
        to: Seek<'_>,
        view: Option<&ExpiryView>,
    ) -> Result<Self> {
        let all = 0..cursors.len();
        seek_all(&mut cursors, all.clone(), to, view)?;
        let mut merge = Merge {
            cursors,
            tombstones,
            order: vec![],
            forward: to.is_forward(),
            dead_spans: 0,
            passing,
            failure: None,
            blocks: None,
        };
        merge.sort_all(all);
        merge.resolve_dead_spans(view)?;
        Ok(merge)
    }

    /// Puts these cursors in order, and no others.
    fn sort_all(&mut self, cursors: impl ExactSizeIterator<Item = usize>) {
        let (mut order, mut dead_spans) = (Vec::with_capacity(cursors.len()), 0);
        for at in cursors {
            let key = match self.cursors[at].head() {
                KeyPosition::End => continue,
                KeyPosition::Record(key) => key,
                KeyPosition::DeadSpan(span) => {
                    dead_spans += 1;
                    self.far_end(&span)
                }
            };
            order.push(self.entry_of(key, at));
        }
        order.sort_by(|a, b| self.compare(a, b));
        (self.order, self.dead_spans) = (order, dead_spans);
    }

    /// About how many dead records were passed since [`Merge::forget_passed`].
    #[inline(always)]
    pub fn passed(&self) -> usize {
        self.passing.passed
    }

    /// Counts the first record as passed.
    #[inline(always)]
    pub fn note_passed(&mut self) {
        self.passing.passed += 1;
    }

    /// Counts from 0 again.
    #[inline(always)]
    pub fn forget_passed(&mut self) {
        self.passing.passed = 0;
    }

    /// If the first record is in a bare range, goes to the first one behind that.
    pub fn pass_over_bare(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        let Some(bare) = self
            .record()
            .and_then(|record| self.passing.around(record.key))
        else {
            return Ok(());
        };
        let done = self.pass_over(&bare, view);
        let done = done.and_then(|()| self.resolve_dead_spans(view));
        done.inspect_err(|error| self.fail(error))
    }

    /// All cursors inside or before a bare range go to its end. Dead spans that reach beyond it stay.
    fn pass_over(&mut self, bare: &KeyRange, view: Option<&ExpiryView>) -> Result<()> {
        let to = match (self.forward, &bare.to) {
            (true, Some(to)) => Seek::AtOrAfter(to),
            (false, _) if !bare.from.is_empty() => Seek::Before(&bare.from),
            _ => {
                (self.order, self.dead_spans) = (vec![], 0);
                return Ok(());
            }
        };
        let order: Vec<usize> = self.order.iter().map(|entry| entry.at).collect();
        let inside = order.iter().copied();
        let inside: Vec<usize> = inside.filter(|&at| !to.admits(self.place(at).0)).collect();
        seek_all(&mut self.cursors, inside.into_iter(), to, view)?;
        self.sort_all(order.into_iter());
        Ok(())
    }

    /// The first record; `None` at the end, and after a failed step, which [`Merge::end`] distinguishes.
    #[inline(always)]
    pub fn record(&self) -> Option<RecordRef<'_>> {
        match self.cursors[self.order.first()?.at].position() {
            Position::Record(record) => Some(record),
            _ => None,
        }
    }

    /// The first cursor, which is on [`Merge::record`].
    pub fn front(&self) -> Option<&C> {
        self.order.first().map(|entry| &self.cursors[entry.at])
    }

    /// Whether certainly no other record of the sources has the key of the first one. Forwards, and for records whose
    /// newer versions were not passed; without an expiry view.
    #[inline]
    pub fn is_alone(&self) -> bool {
        let Some(first) = self.order.first() else {
            return false;
        };
        let is_last = self.order.get(1).is_none_or(|second| {
            first.prefix != second.prefix || self.place(first.at).0 != self.place(second.at).0
        });
        is_last && self.cursors[first.at].ends_key()
    }

    /// Returns the error if there is no record because a step failed.
    #[cold]
    pub fn end(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Goes to the next record.
    #[inline]
    pub fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        match self.go(view) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    #[cold]
    fn fail(&mut self, error: &Error) {
        self.order.clear();
        self.dead_spans = 0;
        self.failure = Some(error.clone());
    }

    #[inline]
    fn go(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        if let [only] = self.order[..] {
            let cursor = &mut self.cursors[only.at];
            match self.forward {
                true => cursor.advance(view)?,
                false => cursor.retreat(view)?,
            }
            if cursor.is_on_record() {
                return Ok(());
            }
            self.replace(0, view);
        } else if self.order.is_empty() {
            return self.end();
        } else {
            self.step(view)?;
        }
        self.resolve_dead_spans(view)
    }

    /// The index of the first cursor.
    #[inline]
    pub fn leader(&self) -> Option<usize> {
        Some(self.order.first()?.at)
    }

    /// Moves the first cursor and sorts it in again.
    #[inline(always)]
    fn step(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        let first = self.order[0].at;
        let was_dead_span = self.dead_spans > 0 && self.is_dead_span(first);
        let cursor = &mut self.cursors[first];
        if self.forward {
            cursor.advance(view)?
        } else {
            cursor.retreat(view)?
        }
        self.dead_spans -= usize::from(was_dead_span);
        self.replace(0, view);
        Ok(())
    }

    /// Sorts in the cursor at `place` of the order, which has moved towards the end.
    #[inline(always)]
    fn replace(&mut self, place: usize, view: Option<&ExpiryView>) {
        let at = self.order[place].at;
        let key = match self.cursors[at].head() {
            KeyPosition::End => {
                self.order.remove(place);
                return;
            }
            KeyPosition::Record(key) => key,
            KeyPosition::DeadSpan(span) => {
                self.dead_spans += usize::from(view.is_some());
                self.far_end(&span)
            }
        };
        self.sort_in(place, self.entry_of(key, at));
    }

    /// Puts an entry in the place of one that was before it, behind all that come before it.
    #[inline(always)]
    fn sort_in(&mut self, place: usize, entry: MergeEntry) {
        let at = entry.at;
        // A linear search: a binary one mispredicts more often.
        let comes_first = |next: &MergeEntry| {
            next.prefix < entry.prefix
                || (next.prefix == entry.prefix && self.compare_whole(at, next.at).is_gt())
        };
        let mut end = place;
        for next in &self.order[place + 1..] {
            if !comes_first(next) {
                break;
            }
            end += 1;
        }
        if end > place {
            self.order.copy_within(place + 1..end + 1, place);
        }
        self.order[end] = entry;
    }

    #[inline]
    fn entry_of(&self, key: &[u8], at: usize) -> MergeEntry {
        let turned = if self.forward { 0 } else { u64::MAX };
        MergeEntry {
            prefix: key_prefix(key) ^ turned,
            at,
        }
    }

    /// Steps over and enters dead spans until the first record cannot be hidden by an unread one.
    #[inline]
    fn resolve_dead_spans(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        // Checked for each record, and mostly there are none.
        match self.dead_spans {
            0 => Ok(()),
            _ => self.resolve_them(view),
        }
    }

    #[cold]
    fn resolve_them(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        while self.dead_spans > 0 {
            let Some(first) = self.order.first() else {
                break;
            };
            let record = match self.cursors[first.at].position() {
                Position::Record(record) => record,
                Position::DeadSpan(span) => {
                    self.passing.passed += PASSED_IN_SPAN;
                    match self.passing.around(self.far_end(&span)) {
                        Some(bare) => self.pass_over(&bare, view)?,
                        None => self.step(view)?,
                    }
                    continue;
                }
                Position::End => unreachable!("cursors at their end are not in the order"),
            };
            if view.is_some_and(|view| view.dead(&record.header))
                || record.header.seq < self.tombstones.max_covering_seq(record.key)
            {
                break;
            }
            let hides = |place: &usize| match self.cursors[self.order[*place].at].position() {
                Position::DeadSpan(span) => {
                    span.first <= record.key
                        && record.key <= span.last
                        && span.seq_max > record.header.seq
                }
                _ => false,
            };
            let Some(place) = (1..self.order.len()).find(hides) else {
                break;
            };
            let (key, other) = (record.key.to_vec(), self.order[place].at);
            let to = match self.forward {
                true => Seek::AtOrAfter(&key),
                false => Seek::AtOrBefore(&key),
            };
            self.cursors[other].enter(to, view)?;
            self.dead_spans -= 1;
            self.reorder(place, view);
        }
        Ok(())
    }

    /// Sorts in the cursor at `place`, which has moved in either direction.
    fn reorder(&mut self, place: usize, view: Option<&ExpiryView>) {
        let entry = self.order.remove(place);
        self.order.insert(0, entry);
        self.replace(0, view);
    }

    fn far_end<'a>(&self, span: &DeadSpan<'a>) -> &'a [u8] {
        if self.forward { span.last } else { span.first }
    }

    fn is_dead_span(&self, at: usize) -> bool {
        matches!(self.cursors[at].position(), Position::DeadSpan(_))
    }

    /// The order of two cursors in the direction of the merge.
    #[inline]
    fn compare(&self, a: &MergeEntry, b: &MergeEntry) -> Ordering {
        match a.prefix.cmp(&b.prefix) {
            Ordering::Equal => self.compare_whole(a.at, b.at),
            prefixes => prefixes,
        }
    }

    fn compare_whole(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (self.place(a), self.place(b));
        let keys = if self.forward {
            a.0.cmp(b.0)
        } else {
            b.0.cmp(a.0)
        };
        keys.then_with(|| match (a.1, b.1) {
            (Some(a), Some(b)) if self.forward => b.cmp(&a),
            (Some(a), Some(b)) => a.cmp(&b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        })
    }

    /// The key of a cursor's position, and the sequence number if it is on a record.
    fn place(&self, at: usize) -> (&[u8], Option<Seq>) {
        match self.cursors[at].position() {
            Position::Record(record) => (record.key, Some(record.header.seq)),
            Position::DeadSpan(span) => (self.far_end(&span), None),
            Position::End => unreachable!("cursors at their end are not in the order"),
        }
    }
}

/// Seeks in these cursors together.
fn seek_all<C: Cursor>(
    cursors: &mut [C],
    those: impl DoubleEndedIterator<Item = usize> + Clone,
    to: Seek<'_>,
    view: Option<&ExpiryView>,
) -> Result<()> {
    // Cursors in memory come first in the list and arrive at once: the others have prefetched by then.
    for at in those.clone().rev() {
        cursors[at].start_seek(to, view)?;
    }
    let mut there = false;
    while !there {
        there = true;
        for at in those.clone() {
            there &= cursors[at].poll_seek(to, view)?;
        }
    }
    Ok(())
}
