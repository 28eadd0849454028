//! Items that a scan lends: places in bytes that are held together, so an item costs neither a reference count nor an
//! allocation.
//!
//! ```text
//! owners   block 17 of a run | a block of another run | a large value ...
//! copied   key | value | key | key | value ...                 from memtables, and the keys of large values
//! places   (owner 1, 40..56..156)  (owner 2, 9..25..125)  (copied, 0..16..116)  (owner 3, key in copied) ...
//! parts    items 0 to 2: the first three places | items 3 to 70: records 9 to 76 of owner 1 | item 71: the fourth place
//! ```

use std::ops::{ControlFlow, Range};

use bytes::Bytes;

use crate::base::Seq;
use crate::base::record::MAX_VALUE_LEN;
use crate::data::item::Pair;
use crate::data::lend::room::Room;
use crate::data::lend::uniform_block::{Records, UniformBlock, UniformShape};
use crate::expiry::ExpiryView;

/// Longer keys and values of memtables are held, not copied.
const COPY_MOST: usize = 512;

/// Room for the bytes of some items of memtables.
const COPIED: usize = 2 << 10;

/// Room for as many blocks as a short scan over several runs lends from.
const OWNERS: usize = 16;

/// The view under which items are certain to be shown, without a look at each record.
#[derive(Clone, Debug)]
pub struct CertainView {
    /// Later writes are not seen.
    pub max: Seq,
    /// With settings of now, at a moment that is no earlier than now: what is live by it is shown.
    pub later: ExpiryView,
    /// The number of this view among those of its scan: what is certain under it is kept by it.
    pub number: u64,
}

impl CertainView {
    /// The first one of a scan.
    pub fn first(max: Seq, later: ExpiryView) -> CertainView {
        CertainView {
            max,
            later,
            number: 1,
        }
    }
}

/// The request of a lending call to a source.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// The view under which items are certain to be shown.
    pub view: &'a CertainView,
    /// The number of this call among those of its scan that lend: bytes are held for one call.
    pub call: u64,
    /// The last key that was decided about: older versions of it are not shown.
    pub decided: &'a [u8],
    /// Only smaller keys (in backward iteration, only greater ones).
    pub bound: Option<&'a [u8]>,
    /// Unread records that may hide others are older than this.
    pub above: Seq,
}

/// Where a source stands after it lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LendOutcome {
    /// It lent nothing, and has not moved: what it is on must be looked at.
    Same,
    /// On the last record that was decided about.
    OnLast,
    /// On the record after that one.
    Behind,
}

impl LendOutcome {
    /// Where a source stands that is not on a record that was decided about.
    #[inline]
    pub fn behind(has_moved: bool) -> LendOutcome {
        match has_moved {
            true => LendOutcome::Behind,
            false => LendOutcome::Same,
        }
    }
}

/// An item: `key_at..value_at` is its key, `value_at..end` its value.
#[derive(Clone, Copy, Debug)]
pub struct ItemSpan {
    /// 0: copied. Otherwise one more than the index of the owner.
    owner: u32,
    key_at: u32,
    value_at: u32,
    /// [`APART`], which is in no bytes: the owner is the value, and the key is copied.
    end: u32,
}

impl ItemSpan {
    /// The place in the bytes that [`Lent::hold`] knows by the number `owner`: the key begins at `key_at`, the value
    /// behind it.
    #[inline(always)]
    pub fn new(owner: u32, key_at: usize, value_at: usize, end: usize) -> ItemSpan {
        debug_assert!(key_at < value_at && value_at <= end && end < APART as usize);
        ItemSpan {
            owner,
            key_at: key_at as u32,
            value_at: value_at as u32,
            end: end as u32,
        }
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        (self.end - self.key_at) as usize
    }

    /// The key, in the held bytes.
    pub fn key<'a>(&self, held: HeldBytes<'a>) -> &'a [u8] {
        let bytes = match self.owner {
            0 => held.copied,
            _ if self.end == APART => held.copied,
            owner => held.bytes(owner),
        };
        &bytes[self.key_at as usize..self.value_at as usize]
    }
}

const APART: u32 = u32::MAX;

/// Items that follow each other.
#[derive(Clone, Copy, Debug)]
struct LentPart {
    /// The index of its first item.
    first: usize,
    of: LentItems,
}

#[derive(Clone, Copy, Debug)]
enum LentItems {
    /// Places from this one on.
    ItemSpans(usize),
    /// Records from this one on of a uniform block, which add up.
    UniformBlock(u32, UniformShape, usize),
}

/// The items of a call, in the order in which they were reached.
#[derive(Debug, Default)]
pub struct Lent {
    owners: Vec<Bytes>,
    copied: Vec<u8>,
    places: Vec<ItemSpan>,
    parts: Vec<LentPart>,
    room: Room,
}

impl Lent {
    /// Empties it, for a call with the room that [`Room::new`] makes of these.
    pub fn begin(&mut self, limits: (usize, usize), full_bytes: usize) {
        self.owners.clear();
        self.copied.clear();
        self.places.clear();
        self.parts.clear();
        self.room = Room::new(limits, full_bytes);
    }

    /// The number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.room.taken()
    }

    /// Whether there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing more is to be added.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.room.is_none()
    }

    /// The room that is left, for [`Lent::extend`].
    #[inline]
    pub fn room(&self) -> Room {
        self.room
    }

    /// Key and value of the last item.
    #[inline(always)]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        let index = self.len().checked_sub(1)?;
        let mut parts = self.parts.iter().rev();
        self.of_part(parts.find(|part| part.first <= index)?, index)
    }

    /// Key and value of an item.
    pub fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        if index >= self.len() {
            return None;
        }
        let behind = self.parts.partition_point(|part| part.first <= index);
        self.of_part(&self.parts[behind - 1], index)
    }

    /// Key and value of an item of this part.
    #[inline(always)]
    fn of_part(&self, part: &LentPart, index: usize) -> Option<(&[u8], &[u8])> {
        match part.of {
            LentItems::ItemSpans(from) => self.at(&self.places[from + index - part.first]),
            LentItems::UniformBlock(owner, shape, from) => self
                .uniform_block(owner, shape)
                .record(from + index - part.first),
        }
    }

    /// Calls `visit` with key and value of each item, until it breaks.
    #[inline]
    pub fn each<B>(&self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>) -> ControlFlow<B> {
        for number in 0..self.parts.len() {
            let PartItems { records, places } = self.part(number);
            for (key, value) in records {
                visit(key, value)?;
            }
            for (key, value) in places.filter_map(|place| self.at(place)) {
                visit(key, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// All items, in order.
    #[inline]
    pub fn iter(&self) -> LentIter<'_> {
        LentIter {
            lent: self,
            here: PartItems::default(),
            behind: self.len(),
            next_part: 0,
            end: self.len(),
        }
    }

    /// The items of a part.
    #[inline]
    fn part(&self, number: usize) -> PartItems<'_> {
        let (part, next) = (&self.parts[number], self.parts.get(number + 1));
        let count = next.map_or(self.len(), |next| next.first) - part.first;
        let mut items = PartItems::default();
        match part.of {
            LentItems::ItemSpans(from) => items.places = self.places[from..from + count].iter(),
            LentItems::UniformBlock(owner, shape, from) => {
                items.records = self.uniform_block(owner, shape).records(from..from + count);
            }
        }
        items
    }

    fn uniform_block(&self, owner: u32, shape: UniformShape) -> UniformBlock<'_> {
        shape.block(self.held().bytes(owner), owner)
    }

    #[inline(always)]
    fn at(&self, place: &ItemSpan) -> Option<(&[u8], &[u8])> {
        let (key_at, value_at) = (place.key_at as usize, place.value_at as usize);
        let owner = match self.owners.get((place.owner as usize).wrapping_sub(1)) {
            Some(owner) => &owner[..],
            None => &self.copied[..],
        };
        match owner.get(key_at..place.end as usize) {
            Some(piece) => piece.split_at_checked(value_at - key_at),
            None => Some((self.copied.get(key_at..value_at)?, owner)),
        }
    }

    /// The held bytes.
    #[inline]
    pub fn held(&self) -> HeldBytes<'_> {
        let (owners, copied) = (&self.owners, &self.copied);
        HeldBytes { owners, copied }
    }

    /// Holds these bytes; returns the number by which [`Lent::push`] knows them.
    pub fn hold(&mut self, bytes: Bytes) -> u32 {
        if self.owners.capacity() == 0 {
            self.owners.reserve(OWNERS);
        }
        self.owners.push(bytes);
        self.owners.len() as u32
    }

    /// Adds these records of a uniform block, which add up and have different keys, as items; `room` is what is left
    /// then.
    #[inline]
    pub fn extend(&mut self, block: &UniformBlock<'_>, records: Range<usize>, room: Room) {
        if records.is_empty() {
            return;
        }
        self.parts.push(LentPart {
            first: self.room.taken(),
            of: LentItems::UniformBlock(block.owner, block.shape, records.start),
        });
        self.room = room;
        debug_assert_eq!(
            self.parts.last().map(|part| part.first + records.len()),
            Some(self.len())
        );
    }

    /// Adds an item.
    pub fn push(&mut self, place: ItemSpan) {
        self.places().0.push(place);
    }

    /// To add items that follow each other, and what is held.
    pub fn places(&mut self) -> (ItemSpans<'_>, HeldBytes<'_>) {
        let Lent {
            owners,
            copied,
            places,
            parts,
            room,
            ..
        } = self;
        if !matches!(parts.last(), Some(part) if matches!(part.of, LentItems::ItemSpans(_))) {
            parts.push(LentPart {
                first: room.taken(),
                of: LentItems::ItemSpans(places.len()),
            });
            places.reserve(room.missing());
        }
        let left = *room;
        let places = ItemSpans { places, room, left };
        (places, HeldBytes { owners, copied })
    }

    /// Takes back all items but so many, none of them of a uniform block.
    pub fn forget_from(&mut self, index: usize) {
        while self.len() > index {
            let item = self.last();
            let bytes = item.map_or(0, |(key, value)| key.len() + value.len());
            self.room.take_back(bytes);
            self.places.pop();
            self.parts.pop_if(|part| part.first >= self.room.taken());
        }
    }

    /// Adds an item that was read whole.
    pub fn push_pair(&mut self, pair: Pair) {
        let key_len = pair.key().len();
        match pair.into_piece() {
            Ok(piece) if piece.len() > COPY_MOST => {
                let end = piece.len();
                let owner = self.hold(piece);
                self.push(ItemSpan::new(owner, 0, key_len, end));
            }
            Ok(piece) => self.copy(&piece[..key_len], &piece[key_len..]),
            Err((key, value)) => self.push_apart(&key, value),
        }
    }

    /// Adds a copy of an item, if that is short; returns whether it is.
    #[inline]
    pub fn push_copy(&mut self, key: &[u8], value: &[u8]) -> bool {
        let is_short = key.len() + value.len() <= COPY_MOST;
        if is_short {
            self.copy(key, value);
        }
        is_short
    }

    fn copy(&mut self, key: &[u8], value: &[u8]) {
        if self.copied.capacity() == 0 {
            self.copied.reserve(COPIED);
        }
        let at = self.copied.len();
        self.copied.extend_from_slice(key);
        self.copied.extend_from_slice(value);
        let value_at = at + key.len();
        self.push(ItemSpan::new(0, at, value_at, value_at + value.len()));
    }

    /// Adds an item whose value is all of `value`.
    fn push_apart(&mut self, key: &[u8], value: Bytes) {
        const { assert!(MAX_VALUE_LEN < APART as usize) };
        let key_at = self.copied.len() as u32;
        self.copied.extend_from_slice(key);
        let bytes = key.len() + value.len();
        let place = ItemSpan {
            owner: self.hold(value),
            key_at,
            value_at: self.copied.len() as u32,
            end: APART,
        };
        let mut places = self.places().0;
        places.places.push(place);
        places.left.take(bytes);
    }
}

/// The items of a part that are left: one of the two is empty.
#[derive(Clone, Default)]
struct PartItems<'a> {
    records: Records<'a>,
    places: std::slice::Iter<'a, ItemSpan>,
}

impl PartItems<'_> {
    fn len(&self) -> usize {
        self.records.len() + self.places.len()
    }

    /// Leaves out what is behind so many.
    fn truncate(&mut self, items: usize) {
        self.records.truncate(items);
        let places = self.places.as_slice();
        self.places = places[..items.min(places.len())].iter();
    }
}

/// The items of a call. From the front it goes through the parts; from the back it looks each item up.
#[derive(Clone)]
pub struct LentIter<'a> {
    lent: &'a Lent,
    /// The rest of the part that the front is in ...
    here: PartItems<'a>,
    /// ... how many items are behind that, and the part with the first of them.
    behind: usize,
    next_part: usize,
    /// The index behind the last item that is left.
    end: usize,
}

impl<'a> LentIter<'a> {
    /// Goes on to the next part; false: nothing is left.
    fn enter(&mut self) -> bool {
        let is_more = self.behind > 0;
        if is_more {
            self.here = self.lent.part(self.next_part);
            self.here.truncate(self.behind);
            self.behind -= self.here.len();
            self.next_part += 1;
        }
        is_more
    }

    // Not inlined, so that what takes records out of a uniform block is.
    #[inline(never)]
    fn next_elsewhere(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        loop {
            if let Some(place) = self.here.places.next() {
                return self.lent.at(place);
            }
            if !self.enter() {
                return None;
            }
            if let Some(item) = self.here.records.next() {
                return Some(item);
            }
        }
    }
}

impl<'a> Iterator for LentIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        match self.here.records.next() {
            Some(item) => Some(item),
            None => self.next_elsewhere(),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.here.len() + self.behind;
        (left, Some(left))
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        loop {
            let PartItems { records, places } = std::mem::take(&mut self.here);
            folded = records.fold(folded, &mut f);
            let places = places.filter_map(|place| self.lent.at(place));
            folded = places.fold(folded, &mut f);
            if !self.enter() {
                return folded;
            }
        }
    }
}

impl DoubleEndedIterator for LentIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let left = self.len().checked_sub(1)?;
        self.behind = self.behind.saturating_sub(1);
        self.here.truncate(left);
        self.end -= 1;
        self.lent.get(self.end)
    }
}

impl ExactSizeIterator for LentIter<'_> {}

/// The bytes that are held for the lent items.
#[derive(Clone, Copy)]
pub struct HeldBytes<'a> {
    owners: &'a [Bytes],
    copied: &'a [u8],
}

impl<'a> HeldBytes<'a> {
    /// Those of this number.
    #[inline(always)]
    pub fn bytes(self, owner: u32) -> &'a [u8] {
        &self.owners[owner as usize - 1]
    }
}

/// The last part of a [`Lent`], to which places are added.
pub struct ItemSpans<'a> {
    places: &'a mut Vec<ItemSpan>,
    room: &'a mut Room,
    /// The room as it is now: here it may stay in registers.
    left: Room,
}

impl Drop for ItemSpans<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.room = self.left;
    }
}

impl ItemSpans<'_> {
    /// Whether nothing more is to be added.
    #[inline(always)]
    pub fn are_full(&self) -> bool {
        self.left.is_none()
    }

    /// The number of items.
    pub fn items(&self) -> usize {
        self.left.taken()
    }

    /// The place that was added last.
    pub fn last(&self) -> Option<&ItemSpan> {
        self.places.last()
    }

    /// Adds an item.
    #[inline(always)]
    pub fn push(&mut self, place: ItemSpan) {
        self.places.push(place);
        self.left.take(place.bytes());
    }
}
