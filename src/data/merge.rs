//! The merge of sorted sources, each walked by a [`Cursor`]: what a step, a seek and a ghost are is said in cursor.rs.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::base::record::{Head, key_head};
use crate::base::{Error, Result, Seq};
use crate::data::cursor::{Cursor, Ghost, Position, Seek};
use crate::data::range_tombstones::Cover;
use crate::expiry::Judge;

/// Many sources as one, in one direction: a list of cursors sorted by what they stand on. While one source leads, only
/// its new position is compared, with the runner-up.
///
/// In the list a record stands at its own place and a ghost at its far end (its last key, walking forwards), behind
/// records of the same key. So a ghost that leads has nothing left inside its range and is stepped over; and a record
/// that leads may be hidden only by ghosts behind it that begin at or before it and are younger in part: these are read,
/// unless the record shows nothing anyway. It still hides what is older.
///
/// A cursor that failed stands at its end, and what it had left may hide what others show. So after a failed step the merge
/// shows nothing more, and each further step fails as that one did.
pub struct Merge<C> {
    cursors: Vec<C>,
    /// What is deleted by range, for the one who walks with a judge.
    cover: Arc<Cover>,
    /// Those at their end left out.
    order: Vec<Turn>,
    forward: bool,
    ghosts: usize,
    /// With what a step failed.
    failure: Option<Error>,
}

/// A cursor's place in the order.
#[derive(Clone, Copy)]
struct Turn {
    /// Of the key at which it stands: mostly enough to know which comes first.
    head: u64,
    /// Index into the cursors.
    at: usize,
}

impl<C: Cursor> Merge<C> {
    /// A merge of these, standing where `to` says.
    pub fn seek(cursors: Vec<C>, to: Seek<'_>, judge: Option<&Judge>) -> Result<Self> {
        Merge::seek_under(Arc::default(), cursors, to, judge)
    }

    /// The same; with a judge, records show nothing either that `cover` says are gone.
    pub fn seek_under(
        cover: Arc<Cover>,
        mut cursors: Vec<C>,
        to: Seek<'_>,
        judge: Option<&Judge>,
    ) -> Result<Self> {
        // Those in memory stand first and arrive at once: by then the others have asked for what they wait for.
        for cursor in cursors.iter_mut().rev() {
            cursor.set_out(to, judge)?;
        }
        let mut there = false;
        while !there {
            there = true;
            for cursor in &mut cursors {
                there &= cursor.approach(to, judge)?;
            }
        }
        let mut merge = Merge {
            cursors,
            cover,
            order: vec![],
            forward: to.is_forward(),
            ghosts: 0,
            failure: None,
        };
        let live = |at: &usize| merge.cursors[*at].position() != Position::End;
        let mut order: Vec<Turn> = (0..merge.cursors.len())
            .filter(live)
            .map(|at| merge.turn(at))
            .collect();
        order.sort_by(|a, b| merge.compare(a, b));
        merge.order = order;
        let is_ghost = |turn: &&Turn| merge.is_ghost(turn.at);
        merge.ghosts = merge.order.iter().filter(is_ghost).count();
        merge.settle(judge)?;
        Ok(merge)
    }

    /// The record in front; `None` at the end, and after a failed step, which [`Merge::end`] tells apart.
    #[inline(always)]
    pub fn head(&self) -> Option<Head<'_>> {
        match self.cursors[self.order.first()?.at].position() {
            Position::Record(head) => Some(head),
            _ => None,
        }
    }

    /// The cursor in front, which stands on [`Merge::head`].
    pub fn front(&self) -> Option<&C> {
        self.order.first().map(|turn| &self.cursors[turn.at])
    }

    /// Nothing stands in front, because all was walked through, and not because a step failed.
    #[cold]
    pub fn end(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Goes to the next record.
    #[inline]
    pub fn advance(&mut self, judge: Option<&Judge>) -> Result<()> {
        let done = self.go(judge);
        if let Err(error) = &done {
            self.fail(error);
        }
        done
    }

    #[cold]
    fn fail(&mut self, error: &Error) {
        self.order.clear();
        self.ghosts = 0;
        self.failure = Some(error.clone());
    }

    #[inline]
    fn go(&mut self, judge: Option<&Judge>) -> Result<()> {
        if let [only] = self.order[..] {
            let cursor = &mut self.cursors[only.at];
            match self.forward {
                true => cursor.advance(judge)?,
                false => cursor.retreat(judge)?,
            }
            if cursor.is_on_record() {
                return Ok(());
            }
            self.replace(0, judge);
        } else if self.order.is_empty() {
            return self.end();
        } else {
            self.step(judge)?;
        }
        self.settle(judge)
    }

    /// Moves the first cursor and puts it back in order.
    #[inline]
    fn step(&mut self, judge: Option<&Judge>) -> Result<()> {
        let first = self.order[0].at;
        let was_ghost = self.ghosts > 0 && self.is_ghost(first);
        let cursor = &mut self.cursors[first];
        if self.forward {
            cursor.advance(judge)?
        } else {
            cursor.retreat(judge)?
        }
        self.ghosts -= usize::from(was_ghost);
        self.replace(0, judge);
        Ok(())
    }

    /// The cursor at `place` of the order has moved towards the end: puts it where it belongs.
    #[inline]
    fn replace(&mut self, mut place: usize, judge: Option<&Judge>) {
        let at = self.order[place].at;
        let key = match self.cursors[at].position() {
            Position::End => {
                self.order.remove(place);
                return;
            }
            Position::Record(head) => head.key,
            Position::Ghost(ghost) => {
                self.ghosts += usize::from(judge.is_some());
                self.far_end(&ghost)
            }
        };
        let head = key_head(key);
        let turn = Turn { head, at };
        // Step by step: to halve is to guess wrong more often.
        while let Some(next) = self.order.get(place + 1)
            && self.compare(&turn, next).is_gt()
        {
            self.order[place] = *next;
            place += 1;
        }
        self.order[place] = turn;
    }

    fn turn(&self, at: usize) -> Turn {
        Turn {
            head: key_head(self.place(at).0),
            at,
        }
    }

    /// Steps over and into ghosts until a record leads that nothing unread may hide.
    #[inline]
    fn settle(&mut self, judge: Option<&Judge>) -> Result<()> {
        while self.ghosts > 0 {
            let Some(first) = self.order.first() else {
                break;
            };
            let Position::Record(head) = self.cursors[first.at].position() else {
                self.step(judge)?;
                continue;
            };
            if judge.is_some_and(|judge| judge.dead(&head.header))
                || head.header.seq < self.cover.below(head.key)
            {
                break;
            }
            let hides = |place: &usize| match self.cursors[self.order[*place].at].position() {
                Position::Ghost(ghost) => {
                    ghost.first <= head.key
                        && head.key <= ghost.last
                        && ghost.seq_max > head.header.seq
                }
                _ => false,
            };
            let Some(place) = (1..self.order.len()).find(hides) else {
                break;
            };
            let (key, other) = (head.key.to_vec(), self.order[place].at);
            let to = if self.forward {
                Seek::AtOrAfter(&key)
            } else {
                Seek::AtOrBefore(&key)
            };
            self.cursors[other].enter(to, judge)?;
            self.ghosts -= 1;
            self.reorder(place, judge);
        }
        Ok(())
    }

    /// The cursor at `place` has moved in either direction of the order.
    fn reorder(&mut self, place: usize, judge: Option<&Judge>) {
        let turn = self.order.remove(place);
        self.order.insert(0, turn);
        self.replace(0, judge);
    }

    fn far_end<'a>(&self, ghost: &Ghost<'a>) -> &'a [u8] {
        if self.forward {
            ghost.last
        } else {
            ghost.first
        }
    }

    fn is_ghost(&self, at: usize) -> bool {
        matches!(self.cursors[at].position(), Position::Ghost(_))
    }

    /// Which of two cursors comes first in the direction of the walk.
    #[inline]
    fn compare(&self, a: &Turn, b: &Turn) -> Ordering {
        match a.head.cmp(&b.head) {
            Ordering::Equal => self.compare_whole(a.at, b.at),
            heads if self.forward => heads,
            heads => heads.reverse(),
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

    /// The key at which a cursor stands, and the sequence number when it is a record.
    fn place(&self, at: usize) -> (&[u8], Option<Seq>) {
        match self.cursors[at].position() {
            Position::Record(head) => (head.key, Some(head.header.seq)),
            Position::Ghost(ghost) => (self.far_end(&ghost), None),
            Position::End => unreachable!("cursors at their end are not in the order"),
        }
    }
}
