//! An ordered set of records in one arena: a B+ tree with one writer and any number of readers that take no lock.
//!
//! Order is that of records: key up, sequence number down. A place between two records is a [`Gap`]; its leaf is the one
//! that has the record before it (or the first leaf), so the record behind it may be the first of the next leaf, which
//! the leaf knows as its upper fence. Nodes are never merged nor freed, and links between leaves are not needed: a walk
//! goes from the root to the gap at the fence, through nodes that lie in the nearest cache.
//!
//! **The writer** splits full inner nodes on its way down, so that a split always finds room in the parent. A split
//! makes the parent's version odd, then the node's; moves the upper half out, hangs it into the parent; makes the node's
//! version even, then the parent's. Above a root that is full a new root is put first, by the pointer to it. Nothing is
//! allocated while a version is odd, so that a reader seldom has to wait, and then for nanoseconds.
//!
//! **A reader** goes down so: read the child's address and *then the child's version*, and *then* check that the node
//! still has the version under which the child was chosen. Only so is the child's version one under which the child had
//! the gap. At last the leaf is searched, and its version checked: it must be the one that was read before its parent was
//! checked. Whatever fails, the way starts anew at the root. Why that is right:
//!
//! * Which gaps a node has changes only when it is split. Suppose a reader's gap leaves node N for the new half.
//!   If the reader took N's version before the split, then the last check of N fails, for it comes after: either it sees
//!   the changed version, or nothing that was read in N was changed yet.
//! * If it took N's version after the split, it acquired that from the writer, who had made the parent's version odd
//!   before. The check of the parent comes later, so it sees the odd version or a later one. It fails, unless the parent
//!   was chosen from at that later version too: then the new half hung there already, and the gap would have led to it.
//! * The root has the pointer to it for a parent: it is read again after the root's version was. A full root gets its
//!   parent before it is split, so a version from after the split comes with the new pointer.

#![allow(unsafe_code)]

use std::array;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use bytes::Bytes;

use super::arena::{Arena, Brk, Link, RECORD_MOST, Slot, Stored};
use super::node::{Children, Gap, Node, SLOTS, Torn};
use super::pool::{Pool, Refused};
use crate::base::record::Header;
use crate::base::sync::Backoff;
use crate::base::{Error, Result as Answer, Seq};
use crate::data::item::Pair;

/// The tree and the memory it lies in.
pub struct Tree {
    /// Nothing before the first record.
    root: Link<Node>,
    arena: Arena,
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
    pub fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// It is not needed but by those who hold it.
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

    /// Goes down by `rank` and gives what `take` makes of the leaf and the rank there. Both are called until nothing
    /// disturbs them; nothing when there are no records.
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
    fn try_read<'a, T>(
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

/// Beside what a record was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// Its key has no other version.
    Alone,
    /// It is the newest version; of the one that was: its header and its weight.
    Over(Header, u64),
    /// Its key has a newer version.
    Under,
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
            arena: Arena::new(pool),
        });
        (
            tree.clone(),
            Writer {
                tree,
                brk: Brk::new(),
            },
        )
    }

    /// Inserts a record, and says beside what; nothing when it is there already, by key and sequence number, and stays.
    /// Refused, it is not there, and the tree is as it was to readers.
    pub fn insert(
        &mut self,
        header: &Header,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Inserted>, Refused> {
        let gap = Gap::before(key, header.seq);
        let (parent, leaf) = self.leaf_of(&gap)?;
        let rank = leaf.rank_of(&gap);
        let behind = leaf.version_behind(rank, key);
        if behind.is_some_and(|there| there.seq() == header.seq) {
            return Ok(None);
        }
        let inserted = if leaf.has_version_before(rank, key) {
            Inserted::Under
        } else {
            behind.map_or(Inserted::Alone, |older| {
                Inserted::Over(older.header(), older.weight())
            })
        };
        // SAFETY: `brk` is used with this tree's arena only.
        let stored = unsafe { self.brk.store(&self.tree.arena, header, key, value) }?;
        leaf.prepare_for(key, rank);
        if !leaf.is_full() {
            put(leaf, rank, stored);
            return Ok(Some(inserted));
        }
        // Keys that come in order leave full leaves behind.
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

    /// The leaf of a gap and its parent, which is not full.
    fn leaf_of(&self, gap: &Gap<'_>) -> Result<(Option<&Node>, &Node), Refused> {
        let mut parent = None;
        let mut node = match self.tree.root.load() {
            Some(root) => root,
            None => self.plant(None)?,
        };
        while node.is_inner() {
            let mut rank = node.rank_of(gap);
            if node.is_full() {
                // Separators that come in order leave full nodes behind too.
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

    /// A root: a leaf, or an inner node above the old root, which readers may go on using until that is split.
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

    /// An empty node that nobody knows.
    fn node(&self, is_inner: bool) -> Result<&Node, Refused> {
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

    /// A node, unknown to readers yet, with what `left` has from `from` on, starting at `separator`.
    fn half(&self, left: &Node, from: usize, separator: Stored<'_>) -> Result<&Node, Refused> {
        let right = self.node(left.is_inner())?;
        // SAFETY: all of them lie in this tree's arena.
        unsafe { right.fill(left, from, separator) };
        Ok(right)
    }

    /// Ends a split: leaves the first `cut` entries in `left`, and `right`, with the rest, becomes its neighbour.
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
        // In this order, and undone in the other: see the head of this file.
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

/// More levels than any tree of records that fit into memory has.
const LEVELS: usize = 8;
/// What a node takes at the most.
const NODE_MOST: usize = (size_of::<Node>() + size_of::<Children>()).next_multiple_of(64) + 64;
/// So few records split every node on each of their ways, at the worst.
const FEW: usize = 64;

/// What records take at the most that have so many bytes of keys and values together. Of many, only an order that was made
/// for it splits more nodes than this.
pub fn room_for(records: usize, bytes: usize) -> usize {
    let nodes = 1 + records.min(FEW) * LEVELS + records / 8;
    bytes + records * RECORD_MOST + nodes * NODE_MOST
}

/// Inserts a record of the leaf's arena into a leaf that has room and is prepared for it.
fn put(leaf: &Node, rank: usize, stored: Stored<'_>) {
    let _change = leaf.change();
    // SAFETY: the caller, the one writer, made it in the arena of its tree.
    unsafe { leaf.insert(rank, stored, None) };
}

/// A place in the tree: a copy of one leaf's addresses, taken at one moment, and an index there. Records that are inserted
/// into the stretch of keys which it covers are seen when it comes by again.
pub struct Window {
    tree: Arc<Tree>,
    /// Those of [`Window::tree`], kept alive by it; so are the fences.
    entries: [Option<Stored<'static>>; SLOTS],
    lower: Option<Stored<'static>>,
    upper: Option<Stored<'static>>,
    len: usize,
    /// At or above `len`: nowhere.
    at: usize,
}

/// How many records ahead are fetched into the cache, walking.
const AHEAD: usize = 8;

impl Window {
    /// Nowhere in the tree.
    pub fn new(tree: Arc<Tree>) -> Window {
        Window {
            tree,
            entries: [None; SLOTS],
            lower: None,
            upper: None,
            len: 0,
            at: 0,
        }
    }

    /// The record here.
    #[inline]
    pub fn stored(&self) -> Option<Stored<'_>> {
        if self.at < self.len {
            self.entries[self.at]
        } else {
            None
        }
    }

    /// Where in the leaf it stands.
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

    /// The first record of the next leaf, when the leaf was copied.
    pub fn upper(&self) -> Option<Stored<'_>> {
        self.upper
    }

    /// No record comes before the leaf.
    pub fn is_first_leaf(&self) -> bool {
        self.lower.is_none()
    }

    /// To a place of the leaf.
    pub fn stand_at(&mut self, place: usize) {
        self.at = place;
    }

    /// To the first record.
    pub fn first(&mut self) {
        self.at = self.load(|_| Ok(0));
        self.prefetch_from(0);
    }

    /// To the last record.
    pub fn last(&mut self) {
        self.at = self.load(|node| Ok(node.len())).wrapping_sub(1);
        self.prefetch_up_to(self.at);
    }

    /// To the record behind a gap.
    pub fn behind(&mut self, gap: &Gap<'_>) {
        self.at = self.load(|node| node.rank(gap));
        if self.at == self.len {
            self.next_leaf();
        }
        self.prefetch_from(self.at);
    }

    /// To the record in front of a gap.
    pub fn in_front(&mut self, gap: &Gap<'_>) {
        self.at = self.load(|node| node.rank(gap)).wrapping_sub(1);
        self.prefetch_up_to(self.at);
    }

    /// To the next record; from nowhere to nowhere. False: in another leaf.
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

    /// To the record before; from nowhere to nowhere. False: in another leaf.
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

    /// Brings into the cache the front of a record some steps on, and the value of one half as far: where that ends, its
    /// front says.
    #[inline(always)]
    fn fetch(&self, place: impl Fn(usize) -> Option<usize>) {
        let stored = |steps| place(steps).and_then(|place| self.stored_at(place));
        stored(AHEAD).inspect(|stored| stored.prefetch());
        stored(AHEAD / 2).inspect(|stored| stored.prefetch_value());
    }

    fn next_leaf(&mut self) {
        if let Some(upper) = self.upper {
            // The leaf of the gap behind it starts with it, or did: then it is the one before the gap.
            self.at = self.load(|node| node.rank(&Gap::after(upper.key(), upper.seq()))) - 1;
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

    /// Copies the leaf to which `rank` leads and gives the rank there.
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

    /// Key and value here; nothing nowhere.
    pub fn pair(&self) -> Option<Answer<Pair>> {
        let stored = self.stored()?;
        let piece = keep(&self.tree, stored, |stored| stored.piece());
        Some(piece.map(|piece| Pair::of_piece(piece, stored.key_len())))
    }

    /// The value here; nothing nowhere.
    pub fn value_bytes(&self) -> Option<Answer<Bytes>> {
        self.stored()
            .map(|stored| keep(&self.tree, stored, |stored| stored.value()))
    }
}

/// What a get finds.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Kind, sequence number, time, ttl.
    pub header: Header,
    stored: Stored<'a>,
    tree: &'a Arc<Tree>,
}

impl Entry<'_> {
    /// The value for longer than the borrow, without a copy when it is a good part of the memtable.
    pub fn value_bytes(&self) -> Answer<Bytes> {
        keep(self.tree, self.stored, |stored| stored.value())
    }
}

/// Up to here a copy costs less time than keeping the tree.
const COPY_LEAST: usize = 512;
/// Keeping the tree keeps all of its memory. So up to this share of what a tree grows to, bytes are copied: then the memory
/// that is held is never many times what is asked for.
const COPY_SHARE: usize = 64;

/// Bytes of a record that lies in `tree`: private, for it relies on that.
fn keep(tree: &Arc<Tree>, stored: Stored<'_>, part: Part) -> Answer<Bytes> {
    let bytes = part(stored);
    if bytes.len() <= COPY_LEAST {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    if bytes.len() <= tree.arena.pool().bytes_max() / COPY_SHARE {
        let mut copy = vec![];
        copy.try_reserve_exact(bytes.len())
            .map_err(|_| Error::out_of_memory(bytes.len()))?;
        copy.extend_from_slice(bytes);
        return Ok(copy.into());
    }
    // SAFETY: `Kept` holds the tree as long as the record, and lends it no longer than itself.
    let stored = unsafe { stored.detach() };
    Ok(Bytes::from_owner(Kept {
        stored,
        part,
        _tree: tree.clone(),
    }))
}

type Part = for<'a> fn(Stored<'a>) -> &'a [u8];

struct Kept {
    stored: Stored<'static>,
    part: Part,
    _tree: Arc<Tree>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        (self.part)(self.stored)
    }
}
