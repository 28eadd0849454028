//! A block slice: items that follow each other in a uniform block, which an iterator takes out one at a time without a
//! look at the source that they are from, or at any other.
//!
//! ```text
//! block      a   b   c   d   e   f   g   g   h        the second g is an older version, another source is on h
//! cursor         ^                                    b was returned
//! slice              c   d   e   f   g                bound h
//! taken              c   d                            when the slice ends the cursor goes to d, the key decided last
//! ```
//!
//! Invariants:
//!
//! 1. All records of a slice are items: their uniform block is certain under its view, they add up, they have
//!    different keys, and these are behind the last key that was decided about, and before all other sources' positions
//!    and the end of the range.
//! 2. It holds as long as no source moves, the range has the same end, and the view holds under which its uniform block
//!    is certain. Code that changes one of these ends the slice first.

use bytes::{Buf, Bytes};

use crate::base::{Timestamp, prefetch_lines};
use crate::data::item::{Item, Pair};
use crate::data::lend::lent::Ask;
use crate::data::lend::uniform_block::{FETCHED_AHEAD, UniformHeaders, UniformShape};
use crate::expiry::Settings;

/// Fewer items are not worth a slice.
const LEAST: usize = 4;

/// See the file's head.
pub struct BlockSlice {
    body: Bytes,
    shape: UniformShape,
    headers: UniformHeaders,
    /// The number of the view under which its uniform block is certain.
    view: u64,
    /// The record that is taken next ...
    next: usize,
    /// ... where that begins, and the end of all.
    start: usize,
    end: usize,
}

impl BlockSlice {
    /// The items behind record `at` in the uniform block of this shape in `body`, all of whose records are shown under
    /// the view of `ask` if no newer ones of the same keys are; up to its bound.
    pub fn behind(
        at: usize,
        body: &Bytes,
        (shape, headers): (UniformShape, UniformHeaders),
        ask: &Ask<'_>,
    ) -> Option<BlockSlice> {
        let block = shape.block(body, 0);
        let (next, end) = (at + 1, block.distinct_behind(at, ask.bound));
        (end >= next + LEAST).then(|| BlockSlice {
            start: block.offset(next),
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
        let (last, block) = (self.next - 1, self.shape.block(&self.body, 0));
        (last, block.key_at(block.offset(last)))
    }

    /// Takes the next item, at this moment under these settings.
    #[inline(always)]
    pub fn take(&mut self, settings: &Settings, moment: Timestamp) -> Option<Item> {
        if self.next == self.end {
            return None;
        }
        let block = self.shape.block(&self.body, 0);
        let (start, end) = (self.start, block.offset(self.next + 1));
        (self.start, self.next) = (end, self.next + 1);
        prefetch_lines(&self.body, end + FETCHED_AHEAD);
        let header = block.header_at(start, &self.headers);
        let mut piece = self.body.clone();
        piece.truncate(end);
        piece.advance(start + self.shape.header_len);
        let pair = Pair::of_piece(piece, self.shape.key_len);
        Some(Item::new(pair, &header, settings.life(&header), moment))
    }
}
