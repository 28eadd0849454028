//! One node of the tree: its contents, search and change.
//!
//! ```text
//! inner node   prefixes [ p1 | p2 | .. ]  entries [ r1 | r2 | .. ]     children [ c0 | c1 | c2 | .. ]
//! leaf         prefixes [ p0 | p1 | .. ]  entries [ r0 | r1 | .. ]
//!
//! c0 holds the records before r1, c1 those from r1 to the one before r2, ...   (r1 itself stands first in c1's leaves)
//! ```
//!
//! A node holds the records from `lower` (included) to `upper` (excluded). Both fences are records of the tree, and
//! `upper` is the first one of the next leaf. The first node of a level has no `lower`, the last one no `upper`, the
//! root neither: these are *edge* nodes. A prefix is eight bytes of a key, big-endian, after the `skip` bytes that all
//! keys of the node share. Unused ones are `u64::MAX`, so that a search always takes the same seven steps; keys are
//! compared only where prefixes are equal. Invariants:
//!
//! * A gap is searched only in the node that holds it: after `lower`, and not after `upper`.
//! * In a node with both fences, `skip` is at most the length that the fences share: then every key searched here
//!   shares it. In an edge node it is at most the length that the keys and the existing fence share, and a search
//!   compares the skipped bytes too.
//! * A split leaves `skip` unchanged, which is right for both halves. It is recomputed when an insert meets an equal
//!   prefix of another key or, in an edge node, brings a key that does not share the skipped bytes.
//! * Of a key's versions the newest is first; mostly it is the one wanted, or the one before which a record goes, so it
//!   is compared first.
//! * `version` is odd while anything else in the node changes. Fields that were read between two loads of the same even
//!   version did not change in between: the writer makes the version odd, then executes a release fence, then makes the
//!   changes; a reader reads, then executes an acquire fence, then loads the version. If one thing it read was new, it
//!   loads the odd version or a later one. (H.-J. Boehm, "Can seqlocks get along with programming language memory
//!   models?", 2012.)
//! * What a reader reads during a change may be wrong, but is safe: every address that was ever stored points to
//!   something that lives as long as the tree, every length is at most [`SLOTS`], every loop is bounded by lengths.
//!   `Err(Torn)` reports it early; the version decides.

#![allow(unsafe_code)]

use std::array;
use std::cmp::Ordering as Order;

use super::arena::{Link, RECORD_MOST, Slot, Stored};
use crate::base::Seq;
use crate::base::prefetch;
use crate::base::record::{Header, key_prefix, shared_len};
use crate::base::sync::Backoff;
use crate::base::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Records in a leaf, separators in an inner node; a power of two. A model uses few, but enough that a split removes a
/// record that is no fence.
pub const SLOTS: usize = if cfg!(loom) { 4 } else { 64 };

/// A place between two records: directly before or after (key, seq), whether or not that record exists.
#[derive(Clone, Copy, Debug)]
pub struct Gap<'a> {
    key: &'a [u8],
    seq: Seq,
    after: bool,
}

impl<'a> Gap<'a> {
    /// Before version `seq` of `key`.
    pub fn before(key: &'a [u8], seq: Seq) -> Gap<'a> {
        Gap {
            key,
            seq,
            after: false,
        }
    }

    /// After version `seq` of `key`.
    pub fn after(key: &'a [u8], seq: Seq) -> Gap<'a> {
        Gap {
            key,
            seq,
            after: true,
        }
    }

    /// Whether `stored` is before the gap; the first `skip` bytes are known to be equal.
    #[inline]
    fn is_behind(&self, stored: Stored<'_>, skip: usize) -> bool {
        match tail(stored.key(), skip).cmp(tail(self.key, skip)) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => stored.seq() > self.seq || (self.after && stored.seq() == self.seq),
        }
    }
}

/// The key without its first bytes; empty if it has no more, which may also appear so during a change.
#[inline]
fn tail(key: &[u8], skip: usize) -> &[u8] {
    key.get(skip..).unwrap_or_default()
}

/// The prefix of the key without its first bytes.
#[inline]
pub fn prefix_of(key: &[u8], skip: usize) -> u64 {
    key_prefix(tail(key, skip))
}

/// How an inserted record relates to other versions of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// Its key has no other version.
    Alone,
    /// It is the newest version; header and weight of the former newest one.
    Over(Header, u64),
    /// Its key has a newer version.
    Under,
}

/// A read raced with a change: its bytes may be half old, half new.
pub struct Torn;

#[repr(C, align(64))]
pub struct Node {
    /// Odd while it is being changed.
    version: AtomicU64,
    /// The number of prefixes and entries in use.
    len: AtomicU32,
    /// The number of key bytes that the prefixes leave out.
    skip: AtomicU32,
    pub lower: Slot,
    pub upper: Slot,
    /// None in a leaf. Set before readers know the node.
    pub children: Link<Children>,
    prefixes: [AtomicU64; SLOTS],
    pub entries: [Slot; SLOTS],
}

pub type Children = [Link<Node>; SLOTS + 1];

/// Makes a node's version odd, and even again when dropped.
pub struct Change<'a>(&'a Node);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        dawdle();
        let version = self.0.version.load(Ordering::Relaxed);
        self.0.version.store(version + 1, Ordering::Release);
        dawdle();
    }
}

/// Called between the steps in which readers and the writer may interfere. In tests of this crate a thread sometimes
/// pauses here, so that others run in between.
#[inline(always)]
fn dawdle() {
    #[cfg(test)]
    {
        thread_local!(static PACE: std::cell::Cell<u32> = const { std::cell::Cell::new(1) });
        let dice = PACE
            .get()
            .wrapping_mul(747_796_405)
            .wrapping_add(2_891_336_453);
        PACE.set(dice);
        if (dice >> 16).is_multiple_of(256) {
            (0..(dice >> 24) * 8).for_each(|_| std::hint::spin_loop());
            std::thread::yield_now();
        }
    }
}

/// Operations of readers and the writer on one node.
impl Node {
    pub fn empty() -> Node {
        Node {
            version: AtomicU64::new(0),
            len: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            lower: Slot::empty(),
            upper: Slot::empty(),
            children: Link::empty(),
            prefixes: array::from_fn(|_| AtomicU64::new(u64::MAX)),
            entries: array::from_fn(|_| Slot::empty()),
        }
    }

    /// An even version under which to read.
    #[inline]
    pub fn begin(&self) -> u64 {
        dawdle();
        let backoff = Backoff::new();
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                return version;
            }
            backoff.snooze();
        }
    }

    /// Whether what was read since [`Node::begin`] returned `version` is consistent.
    #[inline]
    pub fn check(&self, version: u64) -> Result<(), Torn> {
        dawdle();
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) == version {
            Ok(())
        } else {
            Err(Torn)
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    fn skip(&self) -> usize {
        self.skip.load(Ordering::Relaxed) as usize
    }

    /// Prefetches the whole node: a search reads its three or four lines of prefixes one after the other, and an insert
    /// moves half of the prefixes and entries.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.version);
        // A loop of a constant length, which the compiler unrolls: by iterators it costs five times the prefetching.
        for line in 0..SLOTS / 8 {
            prefetch(&self.prefixes[line * 8]);
            prefetch(&self.entries[line * 8]);
        }
    }

    fn is_edge(&self) -> bool {
        self.lower.is_empty() || self.upper.is_empty()
    }

    #[inline]
    fn prefix(&self, at: usize) -> u64 {
        self.prefixes[at].load(Ordering::Relaxed)
    }

    #[inline]
    fn entry(&self, at: usize) -> Result<Stored<'_>, Torn> {
        self.entries[at].load().ok_or(Torn)
    }

    /// How many of all prefixes are below `prefix`: six branchless halvings and one more comparison.
    #[inline]
    fn prefixes_below(&self, prefix: u64) -> usize {
        let (mut rank, mut step) = (0, SLOTS / 2);
        while step > 0 {
            rank |= usize::from(self.prefix(rank | (step - 1)) < prefix) * step;
            step /= 2;
        }
        rank + usize::from(self.prefix(rank) < prefix)
    }

    /// How many of the entries are before the gap.
    #[inline(always)]
    pub fn rank(&self, gap: &Gap<'_>) -> Result<usize, Torn> {
        let (len, skip) = (self.len(), self.skip());
        if skip > 0 && self.is_edge() {
            match self.compare_skipped(gap.key, skip)? {
                Order::Less => return Ok(0),
                Order::Equal => {}
                Order::Greater => return Ok(len),
            }
        }
        let prefix = prefix_of(gap.key, skip);
        let first = self.prefixes_below(prefix);
        dawdle();
        if first >= len || self.prefix(first) != prefix || !gap.is_behind(self.entry(first)?, skip)
        {
            return Ok(first.min(len));
        }
        self.rank_among_equals(gap, skip, first + 1, len)
    }

    /// Compares the bytes of a key that the prefixes leave out.
    #[inline(never)]
    fn compare_skipped(&self, key: &[u8], skip: usize) -> Result<Order, Torn> {
        let first = self.entry(0)?.key();
        let skipped = |key: &'_ [u8]| key.len().min(skip);
        Ok(key[..skipped(key)].cmp(&first[..skipped(first)]))
    }

    /// The rest of [`Node::rank`]: the prefixes before `low` are below the gap's or known to be before it.
    #[inline(never)]
    fn rank_among_equals(
        &self,
        gap: &Gap<'_>,
        skip: usize,
        mut low: usize,
        len: usize,
    ) -> Result<usize, Torn> {
        let mut high = match prefix_of(gap.key, skip).checked_add(1) {
            Some(above) => self.prefixes_below(above).min(len),
            None => len,
        };
        while low < high {
            let middle = (low + high) / 2;
            if gap.is_behind(self.entry(middle)?, skip) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The record after the first `rank` of a leaf, which may be the first of the next leaf; none if its prefix shows
    /// that it is not one of `key`: then its memory is not read.
    #[inline]
    pub fn version_behind(&self, rank: usize, key: &[u8]) -> Option<Stored<'_>> {
        if rank >= self.len() {
            self.upper.load()
        } else if self.prefix(rank) == prefix_of(key, self.skip()) {
            self.entries[rank].load()
        } else {
            None
        }
        .filter(|stored| stored.key() == key)
    }

    /// Whether the last of the first `rank` records of a leaf is one of `key`.
    #[inline]
    fn has_version_before(&self, rank: usize, key: &[u8]) -> bool {
        rank > 0
            && self.prefix(rank - 1) == prefix_of(key, self.skip())
            && self.entries[rank - 1]
                .load()
                .is_some_and(|stored| stored.key() == key)
    }
}

/// Operations of the writer alone on one node. The unsafe functions store addresses.
impl Node {
    /// Whether it has children.
    pub fn is_inner(&self) -> bool {
        self.children.load().is_some()
    }

    /// The child that holds a gap with `rank` entries of this inner node before it.
    pub fn child_at(&self, rank: usize) -> &Node {
        let child = self
            .children
            .load()
            .and_then(|children| children[rank].load());
        child.expect("up to the length there are children")
    }

    /// Makes the version odd until the guard drops.
    pub fn change(&self) -> Change<'_> {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version.is_multiple_of(2), "one writer");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        dawdle();
        Change(self)
    }

    /// Whether it has no room for one more.
    pub fn is_full(&self) -> bool {
        self.len() == SLOTS
    }

    /// [`Node::rank`] for the writer, whose reads are always consistent.
    #[inline(always)]
    pub fn rank_of(&self, gap: &Gap<'_>) -> usize {
        self.rank(gap)
            .ok()
            .expect("nobody but the writer changes nodes")
    }

    /// The entry for the writer.
    pub fn entry_at(&self, at: usize) -> Stored<'_> {
        self.entry(at)
            .ok()
            .expect("entries below the length are there")
    }

    /// The number of bytes that every key searched here shares; in an edge node, every key in it.
    fn shared_len(&self) -> usize {
        let first = self.lower.load().unwrap_or_else(|| self.entry_at(0));
        let last = self
            .upper
            .load()
            .unwrap_or_else(|| self.entry_at(self.len() - 1));
        shared_len(first.key(), last.key())
    }

    /// Whether in this leaf, as prefixes show, nothing beside a place has the prefix of `key`: then [`Node::relation`] is
    /// [`Inserted::Alone`], and [`Node::prepare_for`] has nothing to do.
    #[inline(always)]
    pub fn is_apart(&self, key: &[u8], rank: usize) -> bool {
        let prefix = prefix_of(key, self.skip());
        let differs = |at: usize| self.prefix(at) != prefix;
        rank < self.len() && !self.is_edge() && differs(rank) && (rank == 0 || differs(rank - 1))
    }

    /// How a record of this leaf, to be inserted at `rank`, relates to the other versions of its key; `None`: it is there.
    #[inline(always)]
    pub fn relation(&self, key: &[u8], seq: Seq, rank: usize) -> Option<Inserted> {
        let behind = self.version_behind(rank, key);
        if behind.is_some_and(|there| there.seq() == seq) {
            return None;
        }
        if self.has_version_before(rank, key) {
            return Some(Inserted::Under);
        }
        let over = |older: Stored<'_>| Inserted::Over(older.header(), older.weight());
        Some(behind.map_or(Inserted::Alone, over))
    }

    /// Recomputes `skip` where `key`, about to be inserted at `rank`, requires it.
    pub fn prepare_for(&self, key: &[u8], rank: usize) {
        let (len, skip) = (self.len(), self.skip());
        if len == 0 {
            return;
        }
        if self.is_edge() {
            let shared = shared_len(key, self.entry_at(0).key());
            if shared < skip {
                return self.set_skip(shared);
            }
        }
        let prefix = prefix_of(key, skip);
        let is_equal = |at: usize| self.prefix(at) == prefix && self.entry_at(at).key() != key;
        if (rank < len && is_equal(rank)) || (rank > 0 && is_equal(rank - 1)) {
            let shared = self
                .shared_len()
                .min(shared_len(key, self.entry_at(0).key()));
            if shared > skip {
                self.set_skip(shared);
            }
        }
    }

    /// Makes the prefixes leave out `skip` bytes, which all keys share.
    pub fn set_skip(&self, skip: usize) {
        let mut prefixes = [0; SLOTS];
        let prefixes = &mut prefixes[..self.len()];
        for (at, prefix) in prefixes.iter_mut().enumerate() {
            *prefix = prefix_of(self.entry_at(at).key(), skip);
        }
        let _change = self.change();
        self.skip.store(skip as u32, Ordering::Relaxed);
        for (place, prefix) in self.prefixes.iter().zip(prefixes) {
            place.store(*prefix, Ordering::Relaxed);
        }
    }

    /// Inserts a record at `rank`, in an inner node with the child that starts with it. Inside a change; there is room,
    /// and [`Node::prepare_for`] was called.
    ///
    /// # Safety
    /// The record and the child are in the arena of this node.
    pub unsafe fn insert(&self, rank: usize, stored: Stored<'_>, child: Option<&Node>) {
        let (len, prefix) = (self.len(), prefix_of(stored.key(), self.skip()));
        // By windows the compiler checks the bounds once and unrolls the loop: half of the instructions.
        let prefixes = self.prefixes[rank..=len].windows(2);
        let entries = self.entries[rank..=len].windows(2);
        for (prefixes, entries) in prefixes.zip(entries).rev() {
            prefixes[1].store(prefixes[0].load(Ordering::Relaxed), Ordering::Relaxed);
            // SAFETY: slots of one node.
            unsafe { entries[1].copy(&entries[0]) };
        }
        self.prefixes[rank].store(prefix, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.entries[rank].store(Some(stored)) };
        if let (Some(children), Some(child)) = (self.children.load(), child) {
            for at in (rank + 1..=len).rev() {
                // SAFETY: links of one node.
                unsafe { children[at + 1].copy(&children[at]) };
            }
            // SAFETY: the caller's promise.
            unsafe { children[rank + 1].store(child) };
        }
        self.len.store(len as u32 + 1, Ordering::Relaxed);
    }

    /// Fills this empty node, which readers do not know yet, with the entries of `left` from `from` on; its lower fence
    /// is `separator`.
    ///
    /// # Safety
    /// All are in one arena.
    pub unsafe fn fill(&self, left: &Node, from: usize, separator: Stored<'_>) {
        let len = left.len() - from;
        // SAFETY: the caller's promise.
        unsafe {
            self.lower.store(Some(separator));
            self.upper.copy(&left.upper);
        }
        for at in 0..len {
            self.prefixes[at].store(left.prefix(from + at), Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe { self.entries[at].copy(&left.entries[from + at]) };
        }
        if let (Some(children), Some(old)) = (self.children.load(), left.children.load()) {
            for (link, moved) in children.iter().zip(&old[from..=left.len()]) {
                // SAFETY: the caller's promise.
                unsafe { link.copy(moved) };
            }
        }
        self.skip.store(
            if len == 0 { 0 } else { left.skip() as u32 },
            Ordering::Relaxed,
        );
        self.len.store(len as u32, Ordering::Relaxed);
    }

    /// Fills this empty leaf, which readers do not know yet, with sorted records, at most [`SLOTS`], and their prefixes, which
    /// leave out `skip` bytes.
    ///
    /// # Safety
    /// All are in one arena.
    pub unsafe fn fill_sorted<'a>(
        &self,
        records: impl ExactSizeIterator<Item = (u64, Stored<'a>)>,
        skip: usize,
    ) {
        self.len.store(records.len() as u32, Ordering::Relaxed);
        self.skip.store(skip as u32, Ordering::Relaxed);
        let places = self.prefixes.iter().zip(&self.entries);
        for ((prefix, entry), (of_record, record)) in places.zip(records) {
            prefix.store(of_record, Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe { entry.store(Some(record)) };
        }
    }

    /// Keeps the first `len` entries; those from `upper` on are no longer here. Inside a change.
    ///
    /// # Safety
    /// `upper` is in the arena of this node.
    pub unsafe fn cut(&self, len: usize, upper: Stored<'_>) {
        for at in len..self.len() {
            self.prefixes[at].store(u64::MAX, Ordering::Relaxed);
        }
        if len == 0 {
            self.skip.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { self.upper.store(Some(upper)) };
        self.len.store(len as u32, Ordering::Relaxed);
    }
}

/// More levels than a tree of records that fit into memory has.
const LEVELS: usize = 8;
/// The most bytes of a node.
const NODE_MOST: usize = (size_of::<Node>() + size_of::<Children>()).next_multiple_of(64) + 64;
/// This few records may, at worst, split every node on each path.
const FEW: usize = 64;

/// The most bytes that records take whose keys and values have `bytes` together. Of many records, only an adversarial
/// order splits more nodes than assumed here.
#[inline]
pub fn room_for(records: usize, bytes: usize) -> usize {
    let nodes = 1 + records.min(FEW) * LEVELS + records / 8;
    bytes + records * RECORD_MOST + nodes * NODE_MOST
}
