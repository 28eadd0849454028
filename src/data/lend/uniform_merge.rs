//! How uniform blocks lend: one alone, in both directions, and several merged.
//!
//! Example of a merge: three uniform blocks, and a source that has none, which is on `k`. The bound is `k`.
//!
//! ```text
//! block     before                  after       lent
//! 0         a c d (and then more)   k           a c d
//! 1         b d m                   m           b
//! 2         e f (and no more)       f           e f
//! ```
//!
//! The uniform block whose record has the least key comes first. Each uniform block has a head: the first 59 bits of
//! the key, without the prefix that all keys of all uniform blocks share, and the number of the uniform block. After
//! each item the new head is sorted in among the other heads and the bound's. If the key bits of the first two heads
//! are equal, whole keys are compared; if these are equal, sequence numbers: of both `d` the newer one comes first, and
//! is lent. The merge ends before the bound, when `lent` is full, and on the last record of a uniform block, because
//! the record behind it is not known: here on `f`, which would be lent before `k`. All records that it passed over are
//! decided about. Then the cursor of that uniform block goes on; if it is in a certain uniform block again, that one
//! takes the place of the ended one, and the merge goes on with the others as they stand (merge.rs).
//!
//! A uniform block that lends alone mostly lends all its records in one slice, by their offsets and hash bytes. Where
//! two of these that follow each other are equal, or the bound is near, it looks at each record.

use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::base::record::{key_prefix, shared_len};
use crate::base::{Seq, prefetch_lines};
use crate::data::lend::lent::{Ask, HeldBytes, ItemSpan, ItemSpans, LendOutcome, Lent};
use crate::data::lend::uniform_block::{UniformBlock, UniformShape};

/// The most uniform blocks that are merged.
pub const MOST_BLOCKS: usize = 16;

/// The place of record `at` of a uniform block, which adds up.
fn place(block: &UniformBlock<'_>, at: usize) -> ItemSpan {
    let key_at = block.offset(at) + block.shape.header_len;
    let value_at = key_at + block.shape.key_len;
    ItemSpan::new(block.owner, key_at, value_at, block.offset(at + 1))
}

impl UniformBlock<'_> {
    /// Lends the records from the `first` on, of each key the newest, as long as `ask` and `lent` admit; returns where it
    /// stands then, and at which record.
    pub fn lend(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (LendOutcome, usize) {
        match self.lend_slice(first, ask, lent) {
            Some(stand) => stand,
            None => self.lend_each(first, ask, lent),
        }
    }

    /// The same without a look at each record, if all from the `first` to the last one that `lent` has room for are
    /// items: with different keys, behind the one that was decided about last, before the bound.
    fn lend_slice(
        &self,
        first: usize,
        ask: &Ask<'_>,
        lent: &mut Lent,
    ) -> Option<(LendOutcome, usize)> {
        let (count, mut room) = (self.shape.count, lent.room());
        let end = count.min(first.saturating_add(room.items()));
        if end <= first + 1 {
            return None;
        }
        // Where it stands then has to add up, too.
        let stand = end.min(count - 1);
        let (items, start) = (end - first, self.offset(first));
        let bytes = self.offset(end).wrapping_sub(start);
        let is_within = |bound| self.key(end - 1).is_some_and(|last| last < bound);
        let fits = ask.bound.is_none_or(is_within)
            && self.are_distinct(first..stand + 1)
            && self.key_at(start) != ask.decided
            && room.take_all(items, bytes - items * self.shape.header_len);
        if !fits {
            return None;
        }
        lent.extend(self, first..end, room);
        Some(match end == count {
            true => (LendOutcome::OnLast, stand),
            false => (LendOutcome::Behind, stand),
        })
    }

    fn lend_each(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (LendOutcome, usize) {
        let bound = ask.bound;
        let bound_prefix = bound.map_or(u64::MAX, key_prefix);
        let (mut at, mut start) = (first, self.offset(first));
        let mut before_prefix = key_prefix(ask.decided);
        // The records from here on are items.
        let (mut from, mut room) = (first, lent.room());
        let mut is_stopped = false;
        while at < self.shape.count {
            let end = self.offset(at + 1);
            // Where it stands is always a record that adds up.
            if !self.adds_up(start, end) {
                break;
            }
            let prefix = self.prefix_at(start);
            let is_beyond = || bound.is_some_and(|bound| self.key_at(start) >= bound);
            is_stopped = room.is_none() || (prefix >= bound_prefix && is_beyond());
            if is_stopped {
                break;
            }
            if prefix == before_prefix && self.is_again(at, first, ask.decided) {
                lent.extend(self, from..at, room);
                from = at + 1;
            } else {
                room.take(end - start - self.shape.header_len);
            }
            before_prefix = prefix;
            (start, at) = (end, at + 1);
        }
        lent.extend(self, from..at, room);
        match at.checked_sub(1) {
            _ if is_stopped => (LendOutcome::behind(at != first), at),
            Some(last) if at > first => (LendOutcome::OnLast, last),
            _ => (LendOutcome::Same, first),
        }
    }

    /// Whether record `at`, which adds up, is an older version of the key before it: the `first` one of that which was
    /// decided about last.
    #[cold]
    fn is_again(&self, at: usize, first: usize, decided: &[u8]) -> bool {
        match at > first {
            true => self.key(at) == self.key(at - 1),
            false => self.key(at) == Some(decided),
        }
    }

    /// Like [`UniformBlock::lend`], backwards from `first`, which adds up: versions of a key come oldest first, and the
    /// last one is lent.
    pub fn lend_back(&self, first: usize, ask: &Ask<'_>, lent: &mut Lent) -> (LendOutcome, usize) {
        let mut at = first;
        let mut here = self.key(at);
        while let Some(key) = here {
            let is_beyond = ask.bound.is_some_and(|bound| key <= bound);
            let before = at.checked_sub(1).map(|before| self.key(before));
            // The record before may be a newer version, so it has to add up.
            if is_beyond || lent.is_full() || before == Some(None) {
                break;
            }
            here = before.flatten();
            if here != Some(key) {
                lent.push(place(self, at));
            }
            if here.is_none() {
                return (LendOutcome::OnLast, at);
            }
            at -= 1;
        }
        (LendOutcome::behind(at != first), at)
    }
}

/// A uniform block in a merge, and the record on which it stands. Its bytes are those that are held by its owner's
/// number: the cursors move on while they are merged.
struct Runner {
    shape: UniformShape,
    owner: u32,
    cursor: usize,
    at: usize,
    start: usize,
    end: usize,
}

impl Runner {
    /// On record `at` of the uniform block of a cursor, which adds up and whose bytes are held.
    #[inline]
    fn new(cursor: usize, block: &UniformBlock<'_>, at: usize) -> Runner {
        let (start, end) = (block.offset(at), block.offset(at + 1));
        debug_assert!(block.adds_up(start, end));
        Runner {
            shape: block.shape,
            owner: block.owner,
            cursor,
            at,
            start,
            end,
        }
    }

    #[inline(always)]
    fn body<'a>(&self, held: HeldBytes<'a>) -> &'a [u8] {
        held.bytes(self.owner)
    }

    /// Goes to the next record in its body, if there is one that adds up; returns the prefix of its key behind the first
    /// `shared` bytes. Prefetches the one after that.
    #[inline(always)]
    fn step(&mut self, body: &[u8], shared: usize) -> Option<u64> {
        let (next, start) = (self.at + 1, self.end);
        let end = self.shape.offset_in(body, next + 1);
        if next >= self.shape.count || !self.shape.adds_up(start, end) {
            return None;
        }
        prefetch_lines(body, end);
        (self.at, self.start, self.end) = (next, start, end);
        Some(self.prefix(body, shared))
    }

    /// The prefix of its key behind the first `shared` bytes.
    #[inline(always)]
    fn prefix(&self, body: &[u8], shared: usize) -> u64 {
        let behind = body.get(self.start + self.shape.header_len + shared..);
        match behind.and_then(|behind| behind.first_chunk::<{ size_of::<u64>() }>()) {
            Some(bytes) if self.shape.key_len >= shared + bytes.len() => key_prefix(bytes),
            _ => key_prefix_behind(self.shape.key_in(body, self.start), shared),
        }
    }

    /// How many bytes this one and the last key of its uniform block have in common with a key, and so all keys between
    /// them.
    fn shared_with(&self, key: &[u8], held: HeldBytes<'_>) -> usize {
        let (body, last) = (self.body(held), self.shape.count - 1);
        let start = self.shape.offset_in(body, last);
        let last = self.shape.key_in(body, start);
        shared_len(self.key(held), key).min(shared_len(last, key))
    }

    fn key<'a>(&self, held: HeldBytes<'a>) -> &'a [u8] {
        self.shape.key_in(self.body(held), self.start)
    }

    #[inline(always)]
    fn place(&self) -> ItemSpan {
        let key_at = self.start + self.shape.header_len;
        ItemSpan::new(self.owner, key_at, key_at + self.shape.key_len, self.end)
    }
}

/// The prefix of a key behind its first `shared` bytes.
fn key_prefix_behind(key: &[u8], shared: usize) -> u64 {
    key_prefix(key.get(shared..).unwrap_or_default())
}

/// The bits of a [`OrderKey`] that say whose it is.
const RUNNER_BITS: u64 = 31;

/// The number of the bound in the order of a merge: more than all runners have.
const BOUND: usize = MOST_BLOCKS;
const _: () = assert!(BOUND < RUNNER_BITS as usize);

/// A uniform block's place in the order of a merge, or that of the bound: the first bits of its key, and behind them
/// its number. As one number it is compared and moved without a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderKey(u64);

impl OrderKey {
    /// Behind all others.
    const NONE: OrderKey = OrderKey(u64::MAX);

    #[inline(always)]
    fn new(prefix: u64, runner: usize) -> OrderKey {
        OrderKey((prefix & !RUNNER_BITS) | runner as u64)
    }

    /// Index into the runners, or [`BOUND`].
    #[inline(always)]
    fn runner(self) -> usize {
        (self.0 & RUNNER_BITS) as usize
    }

    /// Whether their bits of keys are equal, so that only whole keys say which one comes first.
    #[inline(always)]
    fn is_close_to(self, other: OrderKey) -> bool {
        self.0 ^ other.0 <= RUNNER_BITS
    }
}

/// With so many uniform blocks, the last heads of the order are not looked at.
const FEW: usize = 8;

/// Uniform blocks in a merge; see the file's head.
pub struct UniformMerge {
    runners: Vec<Runner>,
    /// All uniform blocks and the bound, in order as far as heads tell; behind them [`OrderKey::NONE`].
    order: [OrderKey; MOST_BLOCKS + 1],
    /// All keys of all uniform blocks have so many bytes in common. Heads leave these out.
    shared: usize,
    /// The number of items that were lent when it began.
    from: usize,
}

impl Default for UniformMerge {
    fn default() -> UniformMerge {
        UniformMerge {
            runners: vec![],
            order: [OrderKey::NONE; MOST_BLOCKS + 1],
            shared: 0,
            from: 0,
        }
    }
}

/// Where a merge has left the uniform block of a cursor.
#[derive(Clone, Copy, Default)]
pub struct Left {
    /// The cursor.
    pub cursor: usize,
    /// The record on which it stands.
    pub at: usize,
    /// The prefix of that record's key.
    pub prefix: u64,
}

impl UniformMerge {
    /// Makes room for so many uniform blocks.
    pub fn reserve(&mut self, blocks: usize) {
        self.runners.reserve(blocks);
    }

    /// Lets go of all uniform blocks.
    pub fn clear(&mut self) {
        self.runners.clear();
        self.order.fill(OrderKey::NONE);
        self.shared = 0;
    }

    /// Adds the uniform block of a cursor, whose bytes are held, from record `at` on, which adds up, and comes after
    /// those of the uniform blocks before.
    pub fn push(&mut self, cursor: usize, block: &UniformBlock<'_>, at: usize) {
        let runner = Runner::new(cursor, block, at);
        let number = self.runners.len();
        self.order[number] = OrderKey::new(block.prefix_at(runner.start), number);
        self.runners.push(runner);
    }

    /// Called when all uniform blocks are added: the merge ends before this key. So many items are lent already.
    pub fn begin(&mut self, bound: Option<&[u8]>, held: HeldBytes<'_>, items: usize) {
        self.from = items;
        if self.order[0].is_close_to(self.order[self.runners.len() - 1]) {
            let key = self.runners[0].key(held);
            let shared = self
                .runners
                .iter()
                .map(|block| block.shared_with(key, held));
            self.shared = shared.min().unwrap_or_default();
            self.set_heads(bound, held);
            return;
        }
        let bound = self.head_of_bound(bound, held);
        let within = self.order.partition_point(|head| *head < bound);
        self.order[within..].rotate_right(1);
        self.order[within] = bound;
    }

    /// The head of the bound.
    fn head_of_bound(&self, bound: Option<&[u8]>, held: HeldBytes<'_>) -> OrderKey {
        let (shared, key) = (self.shared, self.runners[0].key(held));
        let prefix = match bound {
            Some(bound) if shared == 0 => key_prefix(bound),
            Some(bound) if bound.starts_with(&key[..shared]) => key_prefix_behind(bound, shared),
            // Before or behind all of them: where prefixes are equal, whole keys say so.
            Some(bound) if bound < key => 0,
            _ => u64::MAX,
        };
        OrderKey::new(prefix, BOUND)
    }

    /// Sorts all uniform blocks and the bound by their heads behind what they share.
    #[cold]
    fn set_heads(&mut self, bound: Option<&[u8]>, held: HeldBytes<'_>) {
        let shared = self.shared;
        self.order.fill(OrderKey::NONE);
        for (number, runner) in self.runners.iter().enumerate() {
            let prefix = runner.prefix(runner.body(held), shared);
            self.order[number] = OrderKey::new(prefix, number);
        }
        self.order[self.runners.len()] = self.head_of_bound(bound, held);
        self.order.sort_unstable();
    }

    /// Called when the merge has ended at its bound, and that has moved on to this key.
    pub fn move_bound(&mut self, bound: Option<&[u8]>, held: HeldBytes<'_>) {
        debug_assert_eq!(self.order[0].runner(), BOUND);
        self.sort_in(self.head_of_bound(bound, held));
    }

    /// Whether a uniform block is on a newer record of this key, where the merge has ended.
    pub fn has_newer(
        &self,
        (key, than): (&[u8], Seq),
        held: HeldBytes<'_>,
        seq: impl Fn(usize, usize) -> Seq,
    ) -> bool {
        let first = self.order[0];
        let close = self.order.iter().take_while(|head| head.is_close_to(first));
        close
            .filter_map(|head| self.runners.get(head.runner()))
            .any(|one| one.key(held) == key && seq(one.cursor, one.at) > than)
    }

    /// The uniform block that comes first.
    pub fn first(&self, held: HeldBytes<'_>) -> Left {
        let first = self.left_by(self.order[0], held);
        first.expect("a uniform block is before the bound")
    }

    /// After [`LendOutcome::OnLast`] the cursor of the first uniform block has gone on to this one, whose bytes are
    /// held.
    pub fn go_on(
        &mut self,
        block: &UniformBlock<'_>,
        at: usize,
        bound: Option<&[u8]>,
        held: HeldBytes<'_>,
    ) {
        let (number, shared) = (self.order[0].runner(), self.shared);
        let first = &mut self.runners[number];
        let next = Runner::new(first.cursor, block, at);
        let prefix = next.prefix(next.body(held), shared);
        let is_alike = shared == 0 || next.shared_with(first.key(held), held) >= shared;
        *first = next;
        match is_alike {
            true => self.sort_in(OrderKey::new(prefix, number)),
            false => {
                self.shared = 0;
                self.set_heads(bound, held);
            }
        }
    }

    /// Lends the records of all uniform blocks in order, of each key the newest, as long as `ask` and `lent` admit; its
    /// bound is the one with which the merge began. `seq` is the sequence number of a record of a cursor's uniform
    /// block. After [`LendOutcome::OnLast`] the first uniform block is on the last record that was decided about, and
    /// all others are behind it.
    pub fn lend(
        &mut self,
        ask: &Ask<'_>,
        lent: &mut Lent,
        seq: impl Fn(usize, usize) -> Seq,
    ) -> LendOutcome {
        let (mut places, held) = lent.places();
        let decided = self.decided(&places, ask, held);
        let shared = self.shared;
        let mut before = OrderKey::new(key_prefix_behind(decided, shared), BOUND);
        let mut has_moved = false;
        loop {
            if self.order[0].is_close_to(self.order[1]) {
                self.lead((ask.bound, held), &seq);
            }
            let head = self.order[0];
            let runner = head.runner();
            if runner == BOUND || places.are_full() {
                return LendOutcome::behind(has_moved);
            }
            let is_again = head.is_close_to(before)
                && self.runners[runner].key(held) == self.decided(&places, ask, held);
            let first = &mut self.runners[runner];
            if !is_again {
                places.push(first.place());
            }
            (has_moved, before) = (true, head);
            let Some(prefix) = first.step(first.body(held), shared) else {
                return LendOutcome::OnLast;
            };
            self.sort_in(OrderKey::new(prefix, runner));
        }
    }

    /// The last key that was decided about.
    #[cold]
    fn decided<'a>(&self, places: &ItemSpans<'_>, ask: &Ask<'a>, held: HeldBytes<'a>) -> &'a [u8] {
        match places.last() {
            Some(last) if places.items() > self.from => last.key(held),
            _ => ask.decided,
        }
    }

    /// Sorts in the first uniform block, which has moved to this head. All heads are compared: a way out would be
    /// mispredicted at most items.
    #[inline(always)]
    fn sort_in(&mut self, head: OrderKey) {
        let rest = sort_in_some(&mut self.order, 0..FEW, head);
        if self.runners.len() > FEW {
            sort_in_some(&mut self.order, FEW..MOST_BLOCKS, rest);
        }
    }

    /// Makes the uniform block first that comes first of those that are close to the first one by their heads.
    #[cold]
    fn lead(&mut self, bound: (Option<&[u8]>, HeldBytes<'_>), seq: &impl Fn(usize, usize) -> Seq) {
        let (runners, first) = (&self.runners, self.order[0]);
        let close = self.order.iter().take_while(|head| head.is_close_to(first));
        let count = close.filter(|head| **head != OrderKey::NONE).count();
        let leads = (1..count).fold(0, |leads, at| {
            let (one, other) = (self.order[at].runner(), self.order[leads].runner());
            match is_before(runners, (one, other), bound, seq) {
                true => at,
                false => leads,
            }
        });
        self.order[..=leads].rotate_right(1);
    }

    /// Where each uniform block stands, nearly in order.
    pub fn left(&self, held: HeldBytes<'_>) -> impl DoubleEndedIterator<Item = Left> {
        let left_by = move |head: &OrderKey| self.left_by(*head, held);
        self.order.iter().filter_map(left_by)
    }

    /// None by the bound.
    fn left_by(&self, head: OrderKey, held: HeldBytes<'_>) -> Option<Left> {
        let runner = self.runners.get(head.runner())?;
        Some(Left {
            cursor: runner.cursor,
            at: runner.at,
            prefix: runner.shape.prefix_in(runner.body(held), runner.start),
        })
    }
}

/// Sorts a head in at these places, of which the first one is free; returns the one at the place behind them.
#[inline(always)]
fn sort_in_some(
    order: &mut [OrderKey; MOST_BLOCKS + 1],
    places: Range<usize>,
    mut head: OrderKey,
) -> OrderKey {
    let end = places.end;
    for at in places {
        let next = order[at + 1];
        let is_before = next < head;
        order[at] = select_unpredictable(is_before, next, head);
        head = select_unpredictable(is_before, head, next);
    }
    order[end] = head;
    head
}

/// Whether one runner comes before another; either may be the bound.
fn is_before(
    runners: &[Runner],
    (one, other): (usize, usize),
    (bound, held): (Option<&[u8]>, HeldBytes<'_>),
    seq: &impl Fn(usize, usize) -> Seq,
) -> bool {
    let is_behind_bound = |runner: &Runner| bound.is_some_and(|bound| bound <= runner.key(held));
    match (runners.get(one), runners.get(other)) {
        (Some(one), Some(other)) => match one.key(held).cmp(other.key(held)) {
            Ordering::Equal => seq(one.cursor, one.at) > seq(other.cursor, other.at),
            keys => keys.is_lt(),
        },
        (Some(one), None) => !is_behind_bound(one),
        (None, other) => other.is_some_and(is_behind_bound),
    }
}

#[cfg(test)]
mod tests;
