//! An ordered set of records in one arena: a B+ tree with one writer and any number of readers that take no lock.
//!
//! ```text
//!                 inner node    heads  [ h1 | h2 | .. ]     entries [ r1 | r2 | .. ]     children [ c0 | c1 | c2 | .. ]
//!                 leaf          heads  [ h0 | h1 | .. ]     entries [ r0 | r1 | .. ]
//!
//! c0 holds the records before r1, c1 those from r1 to the one before r2, ...   (r1 itself stands first in c1)
//! ```
//!
//! Order is that of records: key up, sequence number down. A place between two records is a [`Gap`]; the leaf of a gap is
//! the one that holds the record before it (or the first leaf).
//!
//! **Nodes.** A node holds the records from `lower` (included) to `upper` (excluded); the first and the last node of a
//! level lack one, the root both: these are *edge* nodes. A fence is itself a record of the tree, and `upper` is the first
//! record of the next leaf. A head is eight bytes of a key, big-endian, after the `skip` bytes that all keys of the node
//! share; unused heads are `u64::MAX`, so that a search always takes the same seven steps. Only equal heads send it to the
//! keys. Invariants:
//! * `skip` is at most what every key that can be looked for in an inner node of its level shares: the common prefix of
//!   both fences. In an edge node it is at most what the keys and the fence present share, and a search there compares the
//!   skipped bytes as well.
//! * A split leaves `skip` as it was, which stays true of both halves. It is chosen anew when an insert meets an equal
//!   head of another key, or in an edge node a key that does not share the prefix.
//! * Of one key's versions the newest comes first, and usually is the one to be found or preceded: it is compared first.
//! * Full inner nodes are split on the way down, so that a split always finds room in the parent.
//!
//! **Readers.** Each node has a version, odd while it is being changed. A reader goes down so: read the child's address
//! and the child's version, *then* check that the node's version is still the one it had, and only then trust the child's
//! version to stand for "the leaf of this gap". In the end the leaf's version is checked, which must be the one read
//! before its parent was checked. Anything else starts anew. Why that is right:
//! * What is read between two looks at the same even version was not changed in between: the writer makes the version
//!   odd, then a release fence, then changes; the reader reads, then an acquire fence, then the version. If one value it
//!   read was new, it sees the odd version or a later one. (H.-J. Boehm, "Can seqlocks get along with programming
//!   language memory models?", 2012.)
//! * Which gaps belong to a node changes only when it is split, and a split makes its parent's version odd *before* the
//!   child's, and even only after the new half hangs there. If the child's version is from before the split, the last
//!   check fails; if it is from after, it was acquired from the writer, so the check of the parent sees the parent's
//!   change and fails, unless the parent's version is from after the split too, and then the way down was the new one.
//!   The root's parent is the pointer to it, which is checked in the same manner.
//! * All that lies in a node is atomic, and every address ever stored leads to a node or record that lives as long as the
//!   tree: what is read in the middle of a change may be wrong, and is thrown away, but is never wild. Loops are bounded
//!   by lengths that are at most [`SLOTS`] at any moment.
//! * Nothing that allocates happens while a version is odd, so that a reader seldom waits, and then for nanoseconds.

#![allow(unsafe_code)]

use std::cmp::Ordering as Order;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use bytes::Bytes;
use crossbeam_utils::Backoff;

use super::arena::{Arena, Brk, Link, Slot, Stored};
use crate::record::{self, Header};
use crate::types::Seq;

/// Records in a leaf, separators in an inner node. 32 and 128 are slower to insert into.
const SLOTS: usize = 64;

/// A place between two records: just before or just after (key, seq), whether or not that is there.
#[derive(Clone, Copy, Debug)]
pub struct Gap<'a> {
    key: &'a [u8],
    seq: Seq,
    after: bool,
}

impl<'a> Gap<'a> {
    /// In front of version `seq` of `key`.
    pub fn before(key: &'a [u8], seq: Seq) -> Gap<'a> {
        Gap {
            key,
            seq,
            after: false,
        }
    }

    /// Behind version `seq` of `key`.
    pub fn after(key: &'a [u8], seq: Seq) -> Gap<'a> {
        Gap {
            key,
            seq,
            after: true,
        }
    }

    /// `stored` lies in front of the gap; the first `skip` bytes are known to be equal.
    #[inline]
    fn is_behind(&self, stored: Stored<'_>, skip: usize) -> bool {
        match tail(stored.key(), skip).cmp(tail(self.key, skip)) {
            Order::Less => true,
            Order::Greater => false,
            Order::Equal => stored.seq() > self.seq || (self.after && stored.seq() == self.seq),
        }
    }
}

/// The key without its first bytes; nothing when it has no more, as may seem to be so in the middle of a change.
#[inline]
fn tail(key: &[u8], skip: usize) -> &[u8] {
    key.get(skip..).unwrap_or_default()
}

/// Eight bytes of the key after the first `skip`, so that numbers order as keys do; a short key is filled with zeros.
#[inline]
fn head_of(key: &[u8], skip: usize) -> u64 {
    let tail = tail(key, skip);
    match tail.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => tail
            .iter()
            .rev()
            .fold(0, |head, &byte| (head >> 8) | u64::from(byte) << 56),
    }
}

/// How many bytes both keys begin with.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let differ = a.iter().zip(b).position(|(a, b)| a != b);
    differ.unwrap_or(a.len().min(b.len()))
}

/// What was read may be half of a change.
struct Torn;

#[repr(C, align(64))]
struct Node {
    /// Odd while it is being changed.
    version: AtomicU64,
    /// How many heads and entries count.
    len: AtomicU32,
    /// How many bytes of the keys come before their heads.
    skip: AtomicU32,
    lower: Slot,
    upper: Slot,
    /// Nothing for a leaf. Set before the node is known to readers.
    children: Link<Children>,
    heads: [AtomicU64; SLOTS],
    entries: [Slot; SLOTS],
}

type Children = [Link<Node>; SLOTS + 1];

/// Makes a node's version odd, and even again when it drops.
struct Change<'a>(&'a Node);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let version = self.0.version.load(Ordering::Relaxed);
        self.0.version.store(version + 1, Ordering::Release);
    }
}

/// What readers and the writer do with one node.
impl Node {
    fn empty() -> Node {
        Node {
            version: AtomicU64::new(0),
            len: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            lower: Slot::empty(),
            upper: Slot::empty(),
            children: Link::empty(),
            heads: [const { AtomicU64::new(u64::MAX) }; SLOTS],
            entries: [const { Slot::empty() }; SLOTS],
        }
    }

    /// An even version to read under.
    #[inline]
    fn begin(&self) -> u64 {
        let backoff = Backoff::new();
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version % 2 == 0 {
                return version;
            }
            backoff.snooze();
        }
    }

    /// What was read since [`Node::begin`] gave `version` is whole.
    #[inline]
    fn check(&self, version: u64) -> Result<(), Torn> {
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) == version {
            Ok(())
        } else {
            Err(Torn)
        }
    }

    #[inline]
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    fn skip(&self) -> usize {
        self.skip.load(Ordering::Relaxed) as usize
    }

    fn is_edge(&self) -> bool {
        self.lower.is_empty() || self.upper.is_empty()
    }

    #[inline]
    fn head(&self, at: usize) -> u64 {
        self.heads[at].load(Ordering::Relaxed)
    }

    #[inline]
    fn entry(&self, at: usize) -> Result<Stored<'_>, Torn> {
        self.entries[at].load().ok_or(Torn)
    }

    /// How many of all heads are below `head`: six halvings without a branch and one more look.
    #[inline]
    fn heads_below(&self, head: u64) -> usize {
        let mut rank = 0;
        for step in [32, 16, 8, 4, 2, 1] {
            rank |= usize::from(self.head(rank | (step - 1)) < head) * step;
        }
        rank + usize::from(self.head(rank) < head)
    }

    /// How many of the entries lie in front of the gap.
    #[inline]
    fn rank(&self, gap: &Gap<'_>) -> Result<usize, Torn> {
        let (len, skip) = (self.len(), self.skip());
        if skip > 0 && self.is_edge() {
            let prefix = self.entry(0)?.key();
            let skipped = |key: &'_ [u8]| key.len().min(skip);
            match gap.key[..skipped(gap.key)].cmp(&prefix[..skipped(prefix)]) {
                Order::Less => return Ok(0),
                Order::Equal => {}
                Order::Greater => return Ok(len),
            }
        }
        let head = head_of(gap.key, skip);
        let first = self.heads_below(head);
        if first >= len || self.head(first) != head || !gap.is_behind(self.entry(first)?, skip) {
            return Ok(first.min(len));
        }
        self.rank_among_equals(gap, skip, first + 1, len)
    }

    /// The rest of [`Node::rank`]: the heads before `low` are below the gap's or known to lie in front.
    fn rank_among_equals(
        &self,
        gap: &Gap<'_>,
        skip: usize,
        mut low: usize,
        len: usize,
    ) -> Result<usize, Torn> {
        let mut high = match head_of(gap.key, skip).checked_add(1) {
            Some(above) => self.heads_below(above).min(len),
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

    /// The record behind the first `rank` of a leaf, which may be the first of the next leaf.
    #[inline]
    fn entry_or_upper(&self, rank: usize) -> Option<Stored<'_>> {
        if rank < self.len() {
            self.entries[rank].load()
        } else {
            self.upper.load()
        }
    }
}

/// What only the writer does with one node. The unsafe functions store addresses.
impl Node {
    fn change(&self) -> Change<'_> {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version % 2 == 0, "one writer");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        Change(self)
    }

    fn is_full(&self) -> bool {
        self.len() == SLOTS
    }

    /// [`Node::rank`] for the writer, whom nothing disturbs.
    fn rank_of(&self, gap: &Gap<'_>) -> usize {
        self.rank(gap)
            .ok()
            .expect("nobody but the writer changes nodes")
    }

    /// The entry for the writer.
    fn entry_at(&self, at: usize) -> Stored<'_> {
        self.entry(at)
            .ok()
            .expect("entries below the length are there")
    }

    /// How many bytes surely begin every key that is or may be looked for here; in an edge node, that is here.
    fn shared_len(&self) -> usize {
        let first = self.lower.load().unwrap_or_else(|| self.entry_at(0));
        let last = self
            .upper
            .load()
            .unwrap_or_else(|| self.entry_at(self.len() - 1));
        shared_len(first.key(), last.key())
    }

    /// Chooses `skip` anew where `key`, about to be inserted at `rank`, asks for it.
    fn prepare_for(&self, key: &[u8], rank: usize) {
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
        let head = head_of(key, skip);
        let is_equal = |at: usize| self.head(at) == head && self.entry_at(at).key() != key;
        if (rank < len && is_equal(rank)) || (rank > 0 && is_equal(rank - 1)) {
            let shared = self
                .shared_len()
                .min(shared_len(key, self.entry_at(0).key()));
            if shared > skip {
                self.set_skip(shared);
            }
        }
    }

    fn set_skip(&self, skip: usize) {
        let mut heads = [0; SLOTS];
        for at in 0..self.len() {
            heads[at] = head_of(self.entry_at(at).key(), skip);
        }
        let _change = self.change();
        self.skip.store(skip as u32, Ordering::Relaxed);
        for at in 0..self.len() {
            self.heads[at].store(heads[at], Ordering::Relaxed);
        }
    }

    /// Inserts a record at `rank`, in an inner node with the child that starts with it. Inside a change; there is room,
    /// and [`Node::prepare_for`] was called.
    ///
    /// # Safety
    /// The record and the child lie in the arena of this node.
    unsafe fn insert(&self, rank: usize, stored: Stored<'_>, child: Option<&Node>) {
        let (len, head) = (self.len(), head_of(stored.key(), self.skip()));
        for at in (rank..len).rev() {
            self.heads[at + 1].store(self.head(at), Ordering::Relaxed);
            // SAFETY: slots of one node.
            unsafe { self.entries[at + 1].copy(&self.entries[at]) };
        }
        self.heads[rank].store(head, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.entries[rank].store(Some(stored)) };
        if let (Some(children), Some(child)) = (self.children.load(), child) {
            for at in (rank + 1..=len).rev() {
                // SAFETY: a child of this node lies in its arena.
                unsafe {
                    children[at + 1].store(
                        children[at]
                            .load()
                            .expect("up to the length there are children"),
                    )
                };
            }
            // SAFETY: the caller's promise.
            unsafe { children[rank + 1].store(child) };
        }
        self.len.store(len as u32 + 1, Ordering::Relaxed);
    }

    /// Gives this empty node, unknown to readers yet, what `left` has from `from` on; its lower fence is `separator`.
    ///
    /// # Safety
    /// All lie in one arena.
    unsafe fn fill(&self, left: &Node, from: usize, separator: Stored<'_>) {
        let len = left.len() - from;
        // SAFETY: the caller's promise.
        unsafe {
            self.lower.store(Some(separator));
            self.upper.copy(&left.upper);
        }
        for at in 0..len {
            self.heads[at].store(left.head(from + at), Ordering::Relaxed);
            // SAFETY: the caller's promise.
            unsafe { self.entries[at].copy(&left.entries[from + at]) };
        }
        if let (Some(children), Some(old)) = (self.children.load(), left.children.load()) {
            for (link, moved) in children.iter().zip(&old[from..=left.len()]) {
                // SAFETY: the caller's promise.
                unsafe { link.store(moved.load().expect("up to the length there are children")) };
            }
        }
        self.skip.store(
            if len == 0 { 0 } else { left.skip() as u32 },
            Ordering::Relaxed,
        );
        self.len.store(len as u32, Ordering::Relaxed);
    }

    /// Leaves the first `len` entries; what comes from `upper` on is no longer here. Inside a change.
    ///
    /// # Safety
    /// `upper` lies in the arena of this node.
    unsafe fn cut(&self, len: usize, upper: Stored<'_>) {
        for at in len..self.len() {
            self.heads[at].store(u64::MAX, Ordering::Relaxed);
        }
        if len == 0 {
            self.skip.store(0, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { self.upper.store(Some(upper)) };
        self.len.store(len as u32, Ordering::Relaxed);
    }
}

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

    /// The newest version of `key` that is not above `max`.
    pub fn get(self: &Arc<Self>, key: &[u8], max: Seq) -> Option<Entry<'_>> {
        let gap = Gap::before(key, max);
        let stored = self.read(
            |node| node.rank(&gap),
            |leaf, rank| Ok(leaf.entry_or_upper(rank)),
        )??;
        (stored.key() == key).then(|| Entry {
            header: stored.header(),
            value: stored.value(),
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
    pub fn new() -> (Arc<Tree>, Writer) {
        let tree = Arc::new(Tree {
            root: Link::empty(),
            arena: Arena::default(),
        });
        (
            tree.clone(),
            Writer {
                tree,
                brk: Brk::new(),
            },
        )
    }

    /// Inserts a record, and says whether it was missing: one that is there already, by key and number, stays.
    pub fn insert(&mut self, header: &Header, key: &[u8], value: &[u8]) -> bool {
        let gap = Gap::before(key, header.seq);
        let (parent, leaf) = self.leaf_of(&gap);
        let rank = leaf.rank_of(&gap);
        if leaf
            .entry_or_upper(rank)
            .is_some_and(|there| there.seq() == header.seq && there.key() == key)
        {
            return false;
        }
        // SAFETY: `brk` is used with this tree's arena only.
        let stored = unsafe { self.brk.store(&self.tree.arena, header, key, value) };
        leaf.prepare_for(key, rank);
        if !leaf.is_full() {
            put(leaf, rank, stored);
            return true;
        }
        // Keys that come in order leave full leaves behind.
        let cut = if rank == SLOTS { SLOTS } else { SLOTS / 2 };
        let separator = if cut == SLOTS {
            stored
        } else {
            leaf.entry_at(cut)
        };
        let right = self.half(leaf, cut, separator);
        if rank > cut || rank == SLOTS {
            put(right, rank - cut, stored);
            self.hang(parent, leaf, cut, separator, right);
        } else {
            self.hang(parent, leaf, cut, separator, right);
            put(leaf, rank, stored);
        }
        true
    }

    /// The leaf of a gap and its parent, which is not full.
    fn leaf_of(&self, gap: &Gap<'_>) -> (Option<&Node>, &Node) {
        let mut parent = None;
        let mut node = match self.tree.root.load() {
            Some(root) => root,
            None => self.plant(None),
        };
        while let Some(mut children) = node.children.load() {
            let mut rank = node.rank_of(gap);
            if node.is_full() {
                let cut = if rank == SLOTS { SLOTS - 1 } else { SLOTS / 2 };
                let separator = node.entry_at(cut);
                let right = self.half(node, cut + 1, separator);
                self.hang(parent, node, cut, separator, right);
                if rank > cut {
                    (node, rank) = (right, rank - cut - 1);
                    children = right.children.load().expect("half of an inner node is one");
                }
            }
            parent = Some(node);
            node = children[rank]
                .load()
                .expect("up to the length there are children");
        }
        (parent, node)
    }

    /// A root: a leaf, or an inner node above the old root, which readers may go on using until that is split.
    fn plant(&self, below: Option<&Node>) -> &Node {
        let root = self.node(below.is_some());
        // SAFETY: all of them lie in this tree's arena.
        unsafe {
            if let (Some(children), Some(below)) = (root.children.load(), below) {
                children[0].store(below);
            }
            self.tree.root.store(root);
        }
        root
    }

    /// An empty node that nobody knows.
    fn node(&self, is_inner: bool) -> &Node {
        let arena = &self.tree.arena;
        // SAFETY: `brk` is used with this tree's arena only, and what lies there may point there.
        unsafe {
            let node = self.brk.place(arena, Node::empty());
            if is_inner {
                node.children
                    .store(self.brk.place(arena, [const { Link::empty() }; SLOTS + 1]));
            }
            node
        }
    }

    /// A node, unknown to readers yet, with what `left` has from `from` on, starting at `separator`.
    fn half(&self, left: &Node, from: usize, separator: Stored<'_>) -> &Node {
        let right = self.node(left.children.load().is_some());
        // SAFETY: all of them lie in this tree's arena.
        unsafe { right.fill(left, from, separator) };
        right
    }

    /// Ends a split: leaves the first `cut` entries in `left`, and `right`, with the rest, becomes its neighbour.
    fn hang(
        &self,
        parent: Option<&Node>,
        left: &Node,
        cut: usize,
        separator: Stored<'_>,
        right: &Node,
    ) {
        let parent = match parent {
            Some(parent) => parent,
            None => self.plant(Some(left)),
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
    }
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

    /// To the first record.
    pub fn first(&mut self) {
        self.at = self.load(|_| Ok(0));
        self.prefetch_from(0);
    }

    /// To the last record.
    pub fn last(&mut self) {
        self.at = self.load(|node| Ok(node.len())).wrapping_sub(1);
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
    }

    /// To the next record; from nowhere to nowhere.
    #[inline]
    pub fn advance(&mut self) {
        if self.at >= self.len {
            return;
        }
        self.at += 1;
        if self.at == self.len {
            self.next_leaf();
        } else if let Some(Some(ahead)) = self.entries[..self.len].get(self.at + AHEAD) {
            ahead.prefetch();
        }
    }

    /// To the record before; from nowhere to nowhere.
    #[inline]
    pub fn retreat(&mut self) {
        if self.at >= self.len {
            return;
        }
        match (self.at, self.lower) {
            (0, Some(lower)) => self.in_front(&Gap::before(lower.key(), lower.seq())),
            (at, _) => self.at = at.wrapping_sub(1),
        }
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

    /// The key here; nothing nowhere.
    pub fn key_bytes(&self) -> Option<Bytes> {
        self.stored()
            .map(|stored| keep(&self.tree, stored, |stored| stored.key()))
    }

    /// The value here; nothing nowhere.
    pub fn value_bytes(&self) -> Option<Bytes> {
        self.stored()
            .map(|stored| keep(&self.tree, stored, |stored| stored.value()))
    }
}

/// What a get finds.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Kind, number, time, ttl.
    pub header: Header,
    /// Where it lies.
    pub value: &'a [u8],
    stored: Stored<'a>,
    tree: &'a Arc<Tree>,
}

impl Entry<'_> {
    /// The value for longer than the borrow, without a copy when it is long.
    pub fn value_bytes(&self) -> Bytes {
        keep(self.tree, self.stored, |stored| stored.value())
    }
}

/// Up to here a copy costs less than keeping the tree, in time and in memory.
const COPY_MAX: usize = 512;

/// Bytes of a record that lies in `tree`: private, for it relies on that.
fn keep(tree: &Arc<Tree>, stored: Stored<'_>, part: Part) -> Bytes {
    let bytes = part(stored);
    if bytes.len() <= COPY_MAX {
        return Bytes::copy_from_slice(bytes);
    }
    // SAFETY: `Kept` holds the tree as long as the record, and lends it no longer than itself.
    let stored = unsafe { stored.detach() };
    Bytes::from_owner(Kept {
        stored,
        part,
        _tree: tree.clone(),
    })
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
