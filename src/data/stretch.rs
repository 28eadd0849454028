//! A stretch: items that follow each other in a lane, which an iterator takes out one at a time without a look at the
//! source that they are from, or at any other.
//!
//! ```text
//! lane       a   b   c   d   e   f   g   g   h        the second g is an older version, another source is on h
//! cursor         ^                                    b was returned
//! stretch            c   d   e   f   g                bound h
//! taken              c   d                            when the stretch ends the cursor goes to d, the key decided last
//! ```
//!
//! Invariants:
//!
//! 1. All records of a stretch are items: their lane is certain under its view, they add up, they have
//!    different keys, and these are behind the last key that was decided about, and before all other sources' positions
//!    and the end of the range.
//! 2. It holds as long as no source moves, the range has the same end, and the view holds under which its lane is
//!    certain. Code that changes one of these ends the stretch first.

use bytes::{Buf, Bytes};

use crate::base::{Timestamp, prefetch_lines};
use crate::data::item::{Item, Pair};
use crate::data::lane::{FETCHED_AHEAD, LaneHeaders, LaneShape};
use crate::data::lent::Ask;
use crate::expiry::Settings;

/// Fewer items are not worth a stretch.
const LEAST: usize = 4;

/// See the file's head.
pub struct Stretch {
    body: Bytes,
    shape: LaneShape,
    headers: LaneHeaders,
    /// The number of the view under which its lane is certain.
    view: u64,
    /// The record that is taken next ...
    next: usize,
    /// ... where that begins, and the end of all.
    start: usize,
    end: usize,
}

impl Stretch {
    /// The items behind record `at` in the lane of this shape in `body`, all of whose records are shown under the view of
    /// `ask` if no newer ones of the same keys are; up to its bound.
    pub fn behind(
        at: usize,
        body: &Bytes,
        (shape, headers): (LaneShape, LaneHeaders),
        ask: &Ask<'_>,
    ) -> Option<Stretch> {
        let lane = shape.lane(body, 0);
        let (next, end) = (at + 1, lane.distinct_behind(at, ask.bound));
        (end >= next + LEAST).then(|| Stretch {
            start: lane.offset(next),
            body: body.clone(),
            shape,
            headers,
            view: ask.view.number,
            next,
            end,
        })
    }

    /// Whether the view of this number is the one under which it holds.
    #[inline(always)]
    pub fn is_of(&self, view: u64) -> bool {
        self.view == view
    }

    /// The record that was taken last, and its key; before that, of the one behind which it begins.
    pub fn last(&self) -> (usize, &[u8]) {
        let (last, lane) = (self.next - 1, self.shape.lane(&self.body, 0));
        (last, lane.key_at(lane.offset(last)))
    }

    /// Takes the next item, at this moment under these settings.
    #[inline(always)]
    pub fn take(&mut self, settings: &Settings, moment: Timestamp) -> Option<Item> {
        if self.next == self.end {
            return None;
        }
        let lane = self.shape.lane(&self.body, 0);
        let (start, end) = (self.start, lane.offset(self.next + 1));
        (self.start, self.next) = (end, self.next + 1);
        prefetch_lines(&self.body, end + FETCHED_AHEAD);
        let header = lane.header_at(start, &self.headers);
        let mut piece = self.body.clone();
        piece.truncate(end);
        piece.advance(start + self.shape.header_len);
        let pair = Pair::of_piece(piece, self.shape.key_len);
        Some(Item::new(pair, &header, settings.life(&header), moment))
    }
}
