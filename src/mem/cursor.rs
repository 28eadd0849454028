//! A cursor on a memtable. A seek takes one step here (data/cursor.rs has the protocol).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::arena::Stored;
use super::node::Gap;
use super::tree::{Tree, Window};
use crate::base::record::{RecordRef, key_prefix};
use crate::base::{Error, Result, Seq};
use crate::data::cursor::{Cursor, DeadSpan, Position, Seek};
use crate::data::item::Pair;
use crate::data::lend::lent::Lent;
use crate::data::range_tombstones::RangeTombstones;
use crate::expiry::ExpiryView;

/// Shorter sequences of dead records are shown one by one: a dead span costs about as much as this many records.
const DEAD_SPAN_LEAST: usize = 6;

/// How many records ahead are prefetched while dead records are counted.
const FETCHED_AHEAD: usize = 12;

/// A cursor on a memtable, which it keeps alive. After [`Cursor::seek`] it shows every record that was inserted before
/// the seek, and those inserted later if it has not passed their place; each once, in order. Its calls fail only if it checks
/// records.
///
/// With an expiry view, consecutive dead records of one leaf are a dead span, so only their headers are read, unless it checks records. A key
/// with versions in a dead span has none that the cursor reaches after it and, in backward iteration, where older
/// versions come first, none that it reached before.
pub struct MemCursor {
    window: Window,
    /// The range tombstones, if there is an expiry view.
    tombstones: RangeTombstones,
    dead_span: Option<Dead>,
    /// Records of the window that were examined and are shown one by one.
    shown: Range<usize>,
    checks: Checks,
}

/// The records that are held to their checks.
#[derive(Clone, Copy, PartialEq)]
enum Checks {
    None,
    /// Each that is shown, for a paranoid read.
    Shown,
    /// Of a walk from the first record to the last, of which so many are yet to come at least: each, and the order.
    All(usize),
}

/// Records of the window that form a dead span: at least one, and the window is on one of them.
struct Dead {
    places: Range<usize>,
    seq_max: Seq,
}

impl MemCursor {
    pub(super) fn new(tree: Arc<Tree>) -> MemCursor {
        MemCursor {
            window: Window::new(tree),
            tombstones: RangeTombstones::default(),
            dead_span: None,
            shown: 0..0,
            checks: Checks::None,
        }
    }

    /// One that checks each record that it shows.
    pub(super) fn paranoid(tree: Arc<Tree>) -> MemCursor {
        MemCursor {
            checks: Checks::Shown,
            ..MemCursor::new(tree)
        }
    }

    /// One that checks each record, of which there are so many at least.
    pub(super) fn checked(tree: Arc<Tree>, len: usize) -> MemCursor {
        MemCursor {
            checks: Checks::All(len),
            ..MemCursor::new(tree)
        }
    }

    #[inline(always)]
    fn checked_step(&mut self) -> Result<()> {
        match self.checks {
            Checks::None => Ok(()),
            _ => self.check(),
        }
    }

    /// The record that it has come to is as it was stored and, in a walk over all, after the one before; at the end of such a
    /// walk none has been passed over. Cold, for readers rarely check.
    #[cold]
    fn check(&mut self) -> Result<()> {
        let corrupt = |what: String| Err(Error::MemoryCorruption { what });
        match (self.window.stored(), self.checks) {
            (None, Checks::All(to_come)) if to_come > 0 => {
                corrupt(format!("{to_come} records are missing"))
            }
            (None, _) => Ok(()),
            (Some(stored), Checks::All(to_come)) => {
                stored.check()?;
                if !self.window.ascends() {
                    return corrupt("records are out of order".to_owned());
                }
                self.checks = Checks::All(to_come.saturating_sub(1));
                Ok(())
            }
            (Some(stored), _) => stored.check(),
        }
    }

    /// With an expiry view, records that `tombstones` cover count as dead.
    pub fn under(self, tombstones: RangeTombstones) -> MemCursor {
        MemCursor { tombstones, ..self }
    }

    /// `min_covering_seq`: a range delete covers every record asked about that has a lower sequence number.
    fn is_dead(&self, stored: Stored<'_>, min_covering_seq: Seq, view: &ExpiryView) -> bool {
        let is_deleted = || {
            !self.tombstones.is_empty()
                && (stored.seq() < min_covering_seq
                    || stored.seq() < self.tombstones.max_covering_seq(stored.key()))
        };
        view.dead(&stored.header()) || is_deleted()
    }

    /// The sequence number below which range deletes cover all records at these places.
    fn min_covering_seq(&self, places: Range<usize>) -> Seq {
        let key = |place| self.window.stored_at(place).map(Stored::key);
        match (key(places.start), key(places.end - 1)) {
            (Some(first), Some(last)) if !self.tombstones.is_empty() => {
                self.tombstones.min_covering_seq(first, last)
            }
            _ => Seq(0),
        }
    }

    fn has_key(&self, place: usize, key: &[u8]) -> bool {
        let stored = self.window.stored_at(place);
        stored.is_some_and(|stored| stored.key() == key)
    }

    /// Called after the window moved to another leaf or place: whether it is now on a dead span.
    fn look(&mut self, forward: bool, view: Option<&ExpiryView>) {
        self.dead_span = None;
        let (Some(view), Some(here)) = (view, self.window.place()) else {
            return;
        };
        // Of a dead span only headers are read.
        if self.checks != Checks::None {
            return;
        }
        if self.shown.contains(&here) {
            return;
        }
        let min_covering_seq = self.min_covering_seq(if forward {
            here..self.window.len()
        } else {
            0..here + 1
        });
        let is_dead = |place: &usize| {
            let ahead = if forward {
                place + FETCHED_AHEAD
            } else {
                place.wrapping_sub(FETCHED_AHEAD)
            };
            self.window
                .stored_at(ahead)
                .inspect(|stored| stored.prefetch());
            let stored = self.window.stored_at(*place);
            stored.is_some_and(|stored| self.is_dead(stored, min_covering_seq, view))
        };
        let dead = if forward {
            let end = (here..).find(|place| !is_dead(place)).unwrap_or(here);
            here..self.end_between_keys(here..end)
        } else {
            let alive = (0..=here).rev().find(|place| !is_dead(place));
            self.between_keys(alive.map_or(0, |alive| alive + 1)..here + 1)
        };
        if dead.len() < DEAD_SPAN_LEAST {
            self.shown = if forward {
                here..dead.end.max(here + 1)
            } else {
                dead.start.min(here)..here + 1
            };
            return;
        }
        let stored = |place| self.window.stored_at(place);
        let seqs = dead.clone().filter_map(stored).map(Stored::seq);
        let seq_max = seqs.max().unwrap_or_default();
        self.dead_span = Some(Dead {
            places: dead,
            seq_max,
        });
    }

    /// The record after a place, in this leaf or the next.
    fn behind(&self, place: usize) -> Option<Stored<'_>> {
        self.window.stored_at(place).or(self.window.upper())
    }

    /// The end of `dead` without records of the same key as the record after it.
    fn end_between_keys(&self, dead: Range<usize>) -> usize {
        let Some(behind) = self.behind(dead.end) else {
            return dead.end;
        };
        let mut kept = dead.start..dead.end;
        let other = kept.rfind(|place| !self.has_key(*place, behind.key()));
        other.map_or(dead.start, |place| place + 1)
    }

    /// `dead` without records of the same key as the record before it; empty if the record after it has the same key as
    /// its last.
    fn between_keys(&self, dead: Range<usize>) -> Range<usize> {
        let nothing = dead.end..dead.end;
        let behind = self.behind(dead.end);
        if behind.is_some_and(|behind| self.has_key(dead.end - 1, behind.key())) {
            return nothing;
        }
        // The record before the leaf is unknown: it may have the key of the leaf's first.
        let in_front = match dead.start.checked_sub(1) {
            Some(place) => self.window.stored_at(place),
            None if self.window.is_first_leaf() => None,
            None => self.window.stored_at(0),
        };
        let Some(in_front) = in_front else {
            return dead;
        };
        let mut kept = dead.clone();
        let other = kept.find(|place| !self.has_key(*place, in_front.key()));
        other.map_or(nothing, |place| place..dead.end)
    }

    /// Makes a step, over the dead span if it is on one.
    #[inline]
    fn step(&mut self, forward: bool, view: Option<&ExpiryView>) {
        if let Some(Dead { places, .. }) = self.dead_span.take() {
            let edge = if forward {
                places.end - 1
            } else {
                places.start
            };
            self.window.stand_at(edge);
        }
        let stays = if forward {
            self.window.advance()
        } else {
            self.window.retreat()
        };
        if !stays {
            self.shown = 0..0;
        }
        if view.is_some() {
            self.look(forward, view);
        }
    }
}

impl Cursor for MemCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        if let Some(Dead { places, seq_max }) = &self.dead_span {
            let key = |place| self.window.stored_at(place).expect(NO_RECORD).key();
            return Position::DeadSpan(DeadSpan {
                first: key(places.start),
                last: key(places.end - 1),
                seq_max: *seq_max,
            });
        }
        match self.window.stored() {
            None => Position::End,
            Some(stored) => Position::Record(RecordRef {
                header: stored.header(),
                key: stored.key(),
                value_len: stored.value_len(),
            }),
        }
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        self.dead_span.is_none() && self.window.place().is_some()
    }

    #[inline]
    fn ends_key(&self) -> bool {
        let Some(here) = self.window.place() else {
            return false;
        };
        let (Some(here), Some(behind)) = (self.window.stored(), self.behind(here + 1)) else {
            return true;
        };
        let (here, behind) = (here.key(), behind.key());
        key_prefix(here) != key_prefix(behind) || here != behind
    }

    fn poll_seek(&mut self, _: Seek<'_>, _: Option<&ExpiryView>) -> Result<bool> {
        Ok(true)
    }

    fn start_seek(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        // Of one key, the newest version is first and the oldest last.
        match to {
            Seek::First => self.window.first(),
            Seek::AtOrAfter(key) => self.window.behind(&Gap::before(key, Seq::MAX)),
            Seek::After(key) => self.window.behind(&Gap::after(key, Seq(0))),
            Seek::Last => self.window.last(),
            Seek::AtOrBefore(key) => self.window.in_front(&Gap::after(key, Seq(0))),
            Seek::Before(key) => self.window.in_front(&Gap::before(key, Seq::MAX)),
        }
        self.shown = 0..0;
        self.look(to.is_forward(), view);
        self.checked_step()
    }

    #[inline]
    fn advance(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        self.step(true, view);
        self.checked_step()
    }

    #[inline]
    fn retreat(&mut self, view: Option<&ExpiryView>) -> Result<()> {
        self.step(false, view);
        self.checked_step()
    }

    fn enter(&mut self, to: Seek<'_>, view: Option<&ExpiryView>) -> Result<()> {
        let Dead { places, .. } = self.dead_span.take().expect("only a dead span is entered");
        let admitted = |place: &usize| {
            let stored = self.window.stored_at(*place);
            stored.is_some_and(|stored| to.admits(stored.key()))
        };
        let (first, edge) = if to.is_forward() {
            (places.clone().find(admitted), places.end - 1)
        } else {
            (places.clone().rev().find(admitted), places.start)
        };
        self.shown = places;
        self.window.stand_at(first.unwrap_or(edge));
        if first.is_none() {
            self.step(to.is_forward(), view);
        }
        self.checked_step()
    }

    fn lend_one(&self, lent: &mut Lent) -> Result<()> {
        let stored = self.window.stored().expect(NO_RECORD);
        if !lent.push_copy(stored.key(), stored.value()) {
            lent.push_pair(self.pair()?);
        }
        Ok(())
    }

    fn pair(&self) -> Result<Pair> {
        self.window.pair().expect(NO_RECORD)
    }

    fn value_bytes(&self) -> Result<Bytes> {
        self.window.value_bytes().expect(NO_RECORD)
    }

    fn value(&self) -> Result<&[u8]> {
        Ok(self.window.stored().expect(NO_RECORD).value())
    }
}

const NO_RECORD: &str = "the cursor stands on a record";
