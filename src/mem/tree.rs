//! An ordered set of records in one arena: a B+ tree with one writer and any number of lock-free readers.
//!
//! The order is that of records: key up, sequence number down. A place between two records is a [`Gap`]; its leaf is
//! the one with the record before it (or the first leaf), so the record after it may be the first of the next leaf,
//! which the leaf knows as its upper fence. Nodes are never merged or freed, and leaves have no links: an iteration
//! goes from the root to the gap at the fence, through nodes in the nearest cache.
//!
//! **The writer** splits full inner nodes on its way down, so that a split always finds room in the parent. A split
//! makes the parent's version odd, then the node's; moves the upper half out and links it into the parent; makes the
//! node's version even, then the parent's. A full root first gets a new root above it. Nothing is allocated while a
//! version is odd, so that a reader rarely waits, and then for nanoseconds.
//!
//! **A reader** goes down so: read the child's address and *then the child's version*, and *then* check that the node
//! still has the version under which the child was chosen. Only then is the child's version one under which the child
//! had the gap. Finally it searches the leaf and checks the leaf's version, which must be the one read before the
//! parent was checked. If a check fails, it starts again at the root. Why that is right:
//!
//! * Which gaps a node holds changes only when it is split. Suppose a reader's gap moves from node N to the new half.
//!   If the reader took N's version before the split, then the last check of N fails, because it comes after: either it
//!   sees the changed version, or nothing read in N was changed yet.
//! * If it took N's version after the split, it acquired that from the writer, which had made the parent's version odd
//!   before. The check of the parent comes later, so it sees the odd version or a later one. It fails, unless the child
//!   was chosen from the parent at that later version too: then the new half was linked already, and the gap would have
//!   led to it.
//! * The pointer to the root acts as its parent: it is read again after the root's version was. A full root gets its
//!   parent before it is split, so a version from after the split comes with the new pointer.

#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::sync::Arc;
use std::{array, fmt, ptr};

use bytes::Bytes;

use super::arena::{Arena, Brk, Link, Slot, Stored};
use super::kept::{PartOf, keep};
use super::new_record::NewRecord;
use super::node::{Gap, Inserted, Node, SLOTS, Torn};
use super::pool::{Pool, Refused};
use crate::base::record::Header;
use crate::base::sync::{Backoff, CachePadded};
use crate::base::{Result as Answer, Seq};
use crate::data::item::Pair;

/// The tree and its memory.
pub struct Tree {
    /// Null before the first record.
    pub(super) root: Link<Node>,
    /// In other cache lines than the root, which every reader reads: every insert changes it.
    arena: CachePadded<Arena>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Tree {
    /// Memory it takes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// The bytes of one of its records. Private, because it relies on that.
    fn kept(self: &Arc<Self>, stored: Stored<'_>, part: PartOf) -> Answer<Bytes> {
        // SAFETY: the record is in the tree's arena.
        unsafe { keep(self, self.arena.pool().bytes_max(), stored, part) }
    }

    /// Whether reads check its records.
    pub fn is_paranoid(&self) -> bool {
        self.arena.pool().is_paranoid()
    }

    /// Notes that only current holders need it.
    pub fn retire(&self) {
        self.arena.retire();
    }

    /// The newest version of `key` that is not above `max`.
    pub fn get(self: &Arc<Self>, key: &[u8], max: Seq) -> Option<Entry<'_>> {
        let gap = Gap::before(key, max);
        let stored = self.read(
            |node| node.rank(&gap),
            |leaf, rank| Ok(leaf.version_behind(rank, key)),
        )??;
        Some(Entry {
            header: stored.header(),
            stored,
            tree: self,
        })
    }

    /// Brings the way to a key, and the newest version of it, into the caches. Beside a change it may do less.
    pub fn prefetch(&self, key: &[u8]) {
        let gap = Gap::before(key, Seq::MAX);
        let Some(root) = self.root.load() else {
            return;
        };
        let newest = |leaf: &Node, rank| {
            let newest = leaf.version_behind(rank, key);
            newest.into_iter().for_each(Stored::prefetch);
            Ok(())
        };
        let _ = self.try_read(root, |node| node.rank(&gap), newest);
    }

    /// Goes down by `rank`; returns what `take` makes of the leaf and the rank there. Both are repeated until their
    /// reads are consistent; `None` if there are no records.
    #[inline]
    fn read<'a, T>(
        &'a self,
        rank: impl Fn(&Node) -> Result<usize, Torn>,
        mut take: impl FnMut(&'a Node, usize) -> Result<T, Torn>,
    ) -> Option<T> {
        let backoff = Backoff::new();
        loop {
            match self.try_read(self.root.load()?, &rank, &mut take) {
                Ok(taken) => return Some(taken),
                Err(Torn) => backoff.snooze(),
            }
        }
    }

    #[inline]
    pub(super) fn try_read<'a, T>(
        &'a self,
        root: &'a Node,
        rank: impl Fn(&Node) -> Result<usize, Torn>,
        mut take: impl FnMut(&'a Node, usize) -> Result<T, Torn>,
    ) -> Result<T, Torn> {
        let (mut node, mut version) = (root, root.begin());
        if !self.root.load().is_some_and(|now| ptr::eq(now, root)) {
            return Err(Torn);
        }
        while let Some(children) = node.children.load() {
            let child = children[rank(node)?].load().ok_or(Torn)?;
            child.prefetch();
            // This must come before the check of the parent: see the head of this file.
            let child_version = child.begin();
            node.check(version)?;
            (node, version) = (child, child_version);
        }
        let taken = take(node, rank(node)?)?;
        node.check(version)?;
        Ok(taken)
    }
}

/// The right to insert: a tree has one.
#[derive(Debug)]
pub struct Writer {
    tree: Arc<Tree>,
    brk: Brk,
}

impl Writer {
    /// An empty tree and its writer.
    pub fn new(pool: Arc<Pool>) -> (Arc<Tree>, Writer) {
        let tree = Arc::new(Tree {
            root: Link::empty(),
            arena: CachePadded::new(Arena::new(pool)),
        });
        (
            tree.clone(),
            Writer {
                tree,
                brk: Brk::new(),
            },
        )
    }

    /// Inserts a record and returns how it relates to other versions; `None` if one with its key and sequence number
    /// exists, which stays. If it is refused, it is not there, and the tree is unchanged for readers.
    #[inline(always)]
    pub fn insert(&mut self, record: &NewRecord<'_>) -> Result<Option<Inserted>, Refused> {
        let (key, seq) = (record.key, record.header.seq);
        let gap = Gap::before(key, seq);
        let (parent, leaf) = self.leaf_of(&gap)?;
        let rank = leaf.rank_of(&gap);
        let is_apart = leaf.is_apart(key, rank);
        let inserted = match is_apart {
            true => Inserted::Alone,
            false => match leaf.relation(key, seq, rank) {
                Some(relation) => relation,
                None => return Ok(None),
            },
        };
        let stored = self.store(record)?;
        if !is_apart {
            leaf.prepare_for(key, rank);
        }
        if !leaf.is_full() {
            put(leaf, rank, stored);
            return Ok(Some(inserted));
        }
        // Keys in ascending order leave full leaves.
        let cut = if rank == SLOTS { SLOTS } else { SLOTS / 2 };
        let separator = if cut == SLOTS {
            stored
        } else {
            leaf.entry_at(cut)
        };
        let right = self.half(leaf, cut, separator)?;
        if rank > cut || rank == SLOTS {
            put(right, rank - cut, stored);
            self.hang(parent, leaf, cut, separator, right)?;
        } else {
            self.hang(parent, leaf, cut, separator, right)?;
            put(leaf, rank, stored);
        }
        Ok(Some(inserted))
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.tree.root.load().is_none()
    }

    /// Stores a record in the arena; readers do not know it.
    #[inline]
    pub fn store(&self, record: &NewRecord<'_>) -> Result<Stored<'_>, Refused> {
        // SAFETY: `brk` is used with this tree's arena only.
        unsafe { self.brk.store(&self.tree.arena, record) }
    }

    /// Adds a leaf, which readers do not know yet, behind the last one, which is full. `first` is its first record.
    ///
    /// # Safety
    /// Leaf and records lie in this tree's arena.
    pub unsafe fn append(&self, leaf: &Node, first: Stored<'_>) -> Result<(), Refused> {
        if self.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.tree.root.store(leaf) };
            return Ok(());
        }
        let (parent, last) = self.leaf_of(&Gap::before(first.key(), first.seq()))?;
        // SAFETY: the caller's promise.
        unsafe { leaf.lower.store(Some(first)) };
        self.hang(parent, last, SLOTS, first, leaf)
    }

    /// The leaf of a gap and its parent, which is not full.
    #[inline(always)]
    fn leaf_of(&self, gap: &Gap<'_>) -> Result<(Option<&Node>, &Node), Refused> {
        let mut parent = None;
        let mut node = match self.tree.root.load() {
            Some(root) => root,
            None => self.plant(None)?,
        };
        while node.is_inner() {
            let mut rank = node.rank_of(gap);
            if node.is_full() {
                // Separators in ascending order leave full nodes too.
                let cut = if rank == SLOTS { SLOTS - 1 } else { SLOTS / 2 };
                let separator = node.entry_at(cut);
                let right = self.half(node, cut + 1, separator)?;
                self.hang(parent, node, cut, separator, right)?;
                if rank > cut {
                    (node, rank) = (right, rank - cut - 1);
                }
            }
            parent = Some(node);
            node = node.child_at(rank);
            node.prefetch();
        }
        Ok((parent, node))
    }

    /// A root: a leaf, or an inner node above the old root, which readers may still use until that is split.
    fn plant(&self, below: Option<&Node>) -> Result<&Node, Refused> {
        let root = self.node(below.is_some())?;
        // SAFETY: all of them lie in this tree's arena.
        unsafe {
            if let (Some(children), Some(below)) = (root.children.load(), below) {
                children[0].store(below);
            }
            self.tree.root.store(root);
        }
        Ok(root)
    }

    /// An empty node that readers do not know.
    pub fn node(&self, is_inner: bool) -> Result<&Node, Refused> {
        let arena = &self.tree.arena;
        // SAFETY: `brk` is used with this tree's arena only, and what lies there may point there.
        unsafe {
            let node = self.brk.place(arena, Node::empty())?;
            if is_inner {
                let children = self.brk.place(arena, array::from_fn(|_| Link::empty()))?;
                node.children.store(children);
            }
            Ok(node)
        }
    }

    /// A node, unknown to readers, with the entries of `left` from `from` on, beginning at `separator`.
    fn half(&self, left: &Node, from: usize, separator: Stored<'_>) -> Result<&Node, Refused> {
        let right = self.node(left.is_inner())?;
        // SAFETY: all of them lie in this tree's arena.
        unsafe { right.fill(left, from, separator) };
        Ok(right)
    }

    /// Completes a split: keeps the first `cut` entries in `left`, and links `right`, with the rest, as its neighbour.
    fn hang(
        &self,
        parent: Option<&Node>,
        left: &Node,
        cut: usize,
        separator: Stored<'_>,
        right: &Node,
    ) -> Result<(), Refused> {
        let parent = match parent {
            Some(parent) => parent,
            None => self.plant(Some(left))?,
        };
        let rank = parent.rank_of(&Gap::before(separator.key(), separator.seq()));
        parent.prepare_for(separator.key(), rank);
        // In this order, and undone in the reverse: see the head of this file.
        let _parent = parent.change();
        let _left = left.change();
        // SAFETY: all of them lie in this tree's arena.
        unsafe {
            left.cut(cut, separator);
            parent.insert(rank, separator, Some(right));
        }
        Ok(())
    }
}

/// Inserts a record of the leaf's arena into a leaf that has room and is prepared for it.
fn put(leaf: &Node, rank: usize, stored: Stored<'_>) {
    let _change = leaf.change();
    // SAFETY: the caller, the one writer, made it in the arena of its tree.
    unsafe { leaf.insert(rank, stored, None) };
}

/// A position in the tree: a copy of one leaf's addresses, taken at one moment, and an index in it. Records inserted
/// later into the leaf's key range are visible when it loads that leaf again.
pub struct Window {
    tree: Arc<Tree>,
    /// Kept alive by [`Window::tree`], like the fences.
    entries: [Option<Stored<'static>>; SLOTS],
    lower: Option<Stored<'static>>,
    upper: Option<Stored<'static>>,
    len: usize,
    /// At or above `len`: no position.
    at: usize,
    /// The record that [`Window::ascends`] saw last.
    seen: Option<Stored<'static>>,
}

/// How many records ahead an iteration prefetches.
const AHEAD: usize = 8;

impl Window {
    /// No position yet.
    pub fn new(tree: Arc<Tree>) -> Window {
        Window {
            tree,
            entries: [None; SLOTS],
            lower: None,
            upper: None,
            len: 0,
            at: 0,
            seen: None,
        }
    }

    /// Whether the current record comes after the one at the last call. Both are intact.
    pub fn ascends(&mut self) -> bool {
        let place = |stored: Stored<'static>| (stored.key(), Reverse(stored.seq()));
        let here = self.entries.get(self.at).copied().flatten();
        let seen = std::mem::replace(&mut self.seen, here);
        seen.map(place) < here.map(place)
    }

    /// The current record.
    #[inline]
    pub fn stored(&self) -> Option<Stored<'_>> {
        if self.at < self.len {
            self.entries[self.at]
        } else {
            None
        }
    }

    /// The index in the leaf.
    #[inline]
    pub fn place(&self) -> Option<usize> {
        (self.at < self.len).then_some(self.at)
    }

    /// How many records the leaf has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The record at a place of the leaf.
    #[inline]
    pub fn stored_at(&self, place: usize) -> Option<Stored<'_>> {
        if place < self.len {
            self.entries[place]
        } else {
            None
        }
    }

    /// The first record of the next leaf, as of the copy of the leaf.
    pub fn upper(&self) -> Option<Stored<'_>> {
        self.upper
    }

    /// Whether no record comes before the leaf.
    pub fn is_first_leaf(&self) -> bool {
        self.lower.is_none()
    }

    /// Goes to a place of the leaf.
    pub fn stand_at(&mut self, place: usize) {
        self.at = place;
    }

    /// Goes to the first record.
    pub fn first(&mut self) {
        self.at = self.load(|_| Ok(0));
        self.prefetch_from(0);
    }

    /// Goes to the last record.
    pub fn last(&mut self) {
        self.at = self.load(|node| Ok(node.len())).wrapping_sub(1);
        self.prefetch_up_to(self.at);
    }

    /// Goes to the record after a gap.
    pub fn behind(&mut self, gap: &Gap<'_>) {
        self.at = self.load(|node| node.rank(gap));
        if self.at == self.len {
            self.next_leaf();
        }
        self.prefetch_from(self.at);
    }

    /// Goes to the record before a gap.
    pub fn in_front(&mut self, gap: &Gap<'_>) {
        self.at = self.load(|node| node.rank(gap)).wrapping_sub(1);
        self.prefetch_up_to(self.at);
    }

    /// Goes to the next record; without a position, stays so. False: it is in another leaf.
    #[inline]
    pub fn advance(&mut self) -> bool {
        if self.at >= self.len {
            return true;
        }
        self.at += 1;
        if self.at == self.len {
            self.next_leaf();
            return false;
        }
        self.fetch(|steps| Some(self.at + steps));
        true
    }

    /// Goes to the previous record; without a position, stays so. False: it is in another leaf.
    #[inline]
    pub fn retreat(&mut self) -> bool {
        if self.at >= self.len {
            return true;
        }
        match (self.at, self.lower) {
            (0, Some(lower)) => {
                self.in_front(&Gap::before(lower.key(), lower.seq()));
                false
            }
            (at, _) => {
                self.at = at.wrapping_sub(1);
                self.fetch(|steps| self.at.checked_sub(steps));
                true
            }
        }
    }

    /// Prefetches the front of a record some steps ahead, and the value of one half as far, whose front is there by
    /// then and says how long the value is.
    #[inline(always)]
    fn fetch(&self, place: impl Fn(usize) -> Option<usize>) {
        let stored = |steps| place(steps).and_then(|place| self.stored_at(place));
        stored(AHEAD).inspect(|stored| stored.prefetch());
        stored(AHEAD / 2).inspect(|stored| stored.prefetch_value());
    }

    fn next_leaf(&mut self) {
        if let Some(upper) = self.upper {
            // The leaf of the gap after it begins with it, or did: then it is the one before the gap.
            let behind = self.load(|node| node.rank(&Gap::after(upper.key(), upper.seq())));
            self.at = behind.wrapping_sub(1);
            self.prefetch_from(self.at);
        }
    }

    fn prefetch_from(&self, at: usize) {
        self.entries[..self.len]
            .iter()
            .skip(at)
            .take(AHEAD)
            .flatten()
            .for_each(|stored| stored.prefetch());
    }

    fn prefetch_up_to(&self, at: usize) {
        let up_to = self.len.min(at.wrapping_add(1));
        self.entries[up_to.saturating_sub(AHEAD)..up_to]
            .iter()
            .flatten()
            .for_each(|stored| stored.prefetch());
    }

    /// Copies the leaf to which `rank` leads; returns the rank there.
    fn load(&mut self, rank: impl Fn(&Node) -> Result<usize, Torn>) -> usize {
        let Window {
            tree,
            entries,
            lower,
            upper,
            len,
            ..
        } = self;
        // SAFETY: the window holds the tree as long as these, and lends them no longer than itself.
        let keep = |slot: &Slot| slot.load().map(|stored| unsafe { stored.detach() });
        let rank = tree.read(rank, |leaf, rank| {
            *len = leaf.len();
            for (entry, slot) in entries.iter_mut().zip(&leaf.entries[..*len]) {
                *entry = keep(slot);
            }
            (*lower, *upper) = (keep(&leaf.lower), keep(&leaf.upper));
            Ok(rank)
        });
        rank.unwrap_or(0)
    }

    /// Key and value of the current record.
    pub fn pair(&self) -> Option<Answer<Pair>> {
        let stored = self.stored()?;
        let piece = self.tree.kept(stored, |stored| stored.piece());
        Some(piece.map(|piece| Pair::of_piece(piece, stored.key_len())))
    }

    /// The value of the current record.
    pub fn value_bytes(&self) -> Option<Answer<Bytes>> {
        self.stored()
            .map(|stored| self.tree.kept(stored, |stored| stored.value()))
    }
}

/// The result of a get.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    stored: Stored<'a>,
    tree: &'a Arc<Tree>,
}

impl Entry<'_> {
    /// Flips one of its bits, as failing memory would.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn flip(&self, bit: usize) {
        self.stored.flip(bit);
    }

    /// Fails if the record is not as it was stored. Apart, because readers mostly do not ask.
    #[inline(never)]
    pub fn check(&self) -> Answer<()> {
        self.stored.check()
    }

    /// The value for longer than the borrow; not copied if it is a large part of the memtable.
    pub fn value_bytes(&self) -> Answer<Bytes> {
        self.tree.kept(self.stored, |stored| stored.value())
    }
}
