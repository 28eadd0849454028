//! A walk over a memtable. A seek (data/cursor.rs has the protocol) takes one step here.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::arena::Stored;
use super::node::Gap;
use super::tree::{Tree, Window};
use crate::base::record::Head;
use crate::base::{Result, Seq};
use crate::data::cursor::{Cursor, Ghost, Position, Seek};
use crate::data::item::Pair;
use crate::data::range_tombstones::Cover;
use crate::expiry::Judge;

/// Fewer dead records in a row are shown one by one: a ghost costs about as much as some records.
const GHOST_LEAST: usize = 6;

/// How many records ahead are fetched into the cache while the dead are counted.
const FETCHED_AHEAD: usize = 12;

/// A place in a memtable, which it keeps. It sees every record that was inserted before it was sent somewhere by
/// [`Cursor::seek`], and those inserted later if it comes by late enough; each once, always in order. Nothing it does
/// fails.
///
/// With a judge, dead records that follow each other in one leaf are a ghost, so that a walk among the dead looks at
/// their headers and at nothing else. No key has versions in a ghost and others that the walk comes to after it; and
/// walking backwards, where older versions come first, none that it came to before.
pub struct MemCursor {
    window: Window,
    /// What range deletes cover, for the one who walks with a judge.
    cover: Arc<Cover>,
    ghost: Option<Dead>,
    /// Records of the window that were looked at, and are shown one by one.
    shown: Range<usize>,
}

/// Records of the window that are a ghost: at least one, and the window stands on one of them.
struct Dead {
    places: Range<usize>,
    seq_max: Seq,
}

impl MemCursor {
    pub(super) fn new(tree: Arc<Tree>) -> MemCursor {
        MemCursor {
            window: Window::new(tree),
            cover: Arc::default(),
            ghost: None,
            shown: 0..0,
        }
    }

    /// The same; with a judge, records are dead too that `cover` says are gone.
    pub fn under(self, cover: Arc<Cover>) -> MemCursor {
        MemCursor { cover, ..self }
    }

    /// `deleted_below`: of all records that are asked about, those with a lower number are deleted by range.
    fn is_dead(&self, stored: Stored<'_>, deleted_below: Seq, judge: &Judge) -> bool {
        let is_deleted = || {
            !self.cover.is_empty()
                && (stored.seq() < deleted_below || stored.seq() < self.cover.below(stored.key()))
        };
        judge.dead(&stored.header()) || is_deleted()
    }

    /// All records at these places with a lower number are deleted by range.
    fn deleted_below(&self, places: Range<usize>) -> Seq {
        let key = |place| self.window.stored_at(place).map(Stored::key);
        match (key(places.start), key(places.end - 1)) {
            (Some(first), Some(last)) if !self.cover.is_empty() => {
                self.cover.below_all(first, last)
            }
            _ => Seq(0),
        }
    }

    fn has_key(&self, place: usize, key: &[u8]) -> bool {
        let stored = self.window.stored_at(place);
        stored.is_some_and(|stored| stored.key() == key)
    }

    /// The window came to another leaf, or was sent to another place: whether it now stands on a ghost.
    fn look(&mut self, forward: bool, judge: Option<&Judge>) {
        self.ghost = None;
        let (Some(judge), Some(here)) = (judge, self.window.place()) else {
            return;
        };
        if self.shown.contains(&here) {
            return;
        }
        let deleted_below = self.deleted_below(if forward {
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
            stored.is_some_and(|stored| self.is_dead(stored, deleted_below, judge))
        };
        let dead = if forward {
            let end = (here..).find(|place| !is_dead(place)).unwrap_or(here);
            here..self.end_between_keys(here..end)
        } else {
            let alive = (0..=here).rev().find(|place| !is_dead(place));
            self.between_keys(alive.map_or(0, |alive| alive + 1)..here + 1)
        };
        if dead.len() < GHOST_LEAST {
            self.shown = if forward {
                here..dead.end.max(here + 1)
            } else {
                dead.start.min(here)..here + 1
            };
            return;
        }
        let stored = |place| self.window.stored_at(place);
        let numbers = dead.clone().filter_map(stored).map(Stored::seq);
        let seq_max = numbers.max().unwrap_or_default();
        self.ghost = Some(Dead {
            places: dead,
            seq_max,
        });
    }

    /// The record behind a place, in this leaf or the next.
    fn behind(&self, place: usize) -> Option<Stored<'_>> {
        self.window.stored_at(place).or(self.window.upper())
    }

    /// The end of `dead` without what has the key of the record behind.
    fn end_between_keys(&self, dead: Range<usize>) -> usize {
        let Some(behind) = self.behind(dead.end) else {
            return dead.end;
        };
        let mut kept = dead.start..dead.end;
        let other = kept.rfind(|place| !self.has_key(*place, behind.key()));
        other.map_or(dead.start, |place| place + 1)
    }

    /// `dead` without what has the key of the record in front; nothing when the record behind has the key of its last.
    fn between_keys(&self, dead: Range<usize>) -> Range<usize> {
        let nothing = dead.end..dead.end;
        let behind = self.behind(dead.end);
        if behind.is_some_and(|behind| self.has_key(dead.end - 1, behind.key())) {
            return nothing;
        }
        // The record in front of the leaf is not known: it may have the key of the leaf's first.
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

    /// Makes a step, over a ghost if it stands on one.
    #[inline]
    fn step(&mut self, forward: bool, judge: Option<&Judge>) {
        if let Some(Dead { places, .. }) = self.ghost.take() {
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
        if judge.is_some() {
            self.look(forward, judge);
        }
    }
}

impl Cursor for MemCursor {
    #[inline(always)]
    fn position(&self) -> Position<'_> {
        if let Some(Dead { places, seq_max }) = &self.ghost {
            let key = |place| self.window.stored_at(place).expect(NO_RECORD).key();
            return Position::Ghost(Ghost {
                first: key(places.start),
                last: key(places.end - 1),
                seq_max: *seq_max,
            });
        }
        match self.window.stored() {
            None => Position::End,
            Some(stored) => Position::Record(Head {
                header: stored.header(),
                key: stored.key(),
                value_len: stored.value_len(),
            }),
        }
    }

    #[inline(always)]
    fn is_on_record(&self) -> bool {
        self.ghost.is_none() && self.window.place().is_some()
    }

    fn approach(&mut self, _: Seek<'_>, _: Option<&Judge>) -> Result<bool> {
        Ok(true)
    }

    fn set_out(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        // Of one key, the newest version comes first and the oldest last.
        match to {
            Seek::First => self.window.first(),
            Seek::AtOrAfter(key) => self.window.behind(&Gap::before(key, Seq::MAX)),
            Seek::After(key) => self.window.behind(&Gap::after(key, Seq(0))),
            Seek::Last => self.window.last(),
            Seek::AtOrBefore(key) => self.window.in_front(&Gap::after(key, Seq(0))),
            Seek::Before(key) => self.window.in_front(&Gap::before(key, Seq::MAX)),
        }
        self.shown = 0..0;
        self.look(to.is_forward(), judge);
        Ok(())
    }

    #[inline]
    fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        self.step(true, judge);
        Ok(())
    }

    #[inline]
    fn retreat(&mut self, judge: Option<&Judge>) -> Result<()> {
        self.step(false, judge);
        Ok(())
    }

    fn enter(&mut self, to: Seek<'_>, judge: Option<&Judge>) -> Result<()> {
        let Dead { places, .. } = self.ghost.take().expect("only a ghost is entered");
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
            self.step(to.is_forward(), judge);
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
