//! The keys that range deletes cover: the key space, cut where the answer changes.
//!
//! ```text
//! range deletes    5: a ──────────── m        fragments     a 5   c 8   f 5   m 0
//!                  8:     c ── f              before a: 0
//! ```
//!
//! [`Fragments`] have the highest sequence number over each fragment, of all range deletes together. They are immutable
//! and share structure: a B-tree whose nodes are copied on the path to what a newer range delete changes. So adding one
//! copies some nodes, whatever it covers; holders of the older tree keep it; and a lookup is a search.
//!
//! ```text
//! node     keys: where its fragments, or its nodes, begin, ascending     least: the lowest sequence number of a fragment in it
//! ```
//!
//! A [`RangeTombstones`] joins the range deletes of several sources, for one reader.

use std::cmp::Ordering;
use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use crate::base::Seq;
use crate::base::record::{key_prefix, shared_len};
use crate::data::batch::KeyRange;
use crate::expiry::{Census, ExpiryView};

/// A node with more entries, or with more bytes of keys and at least the least number of entries, is split.
const NODE_MOST: usize = 32;
const NODE_BYTES: usize = 16 << 10;
const NODE_LEAST: usize = 4;
/// A shorter common prefix of a node's keys is not skipped: comparing it costs more than it tells.
const SHARED_LEAST: usize = 4;

/// For every key, the highest sequence number of a range delete over it.
#[derive(Clone, Debug, Default)]
pub struct Fragments {
    root: Option<Arc<Node>>,
    seq_max: Seq,
}

#[derive(Debug)]
struct Node {
    keys: Keys,
    least: Seq,
    below: Below,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Most nodes are of the first kind.
enum Below {
    /// The sequence numbers of fragments.
    Fragments([Seq; NODE_MOST]),
    Nodes(Vec<Arc<Node>>),
}

/// The keys of a node, ascending. Their prefixes are contiguous, and a search reads a key only where neither sixteen bytes
/// nor the lengths decide.
#[derive(Debug)]
struct Keys {
    len: usize,
    /// The length of their common prefix, which is skipped; 0 if it is too short for that.
    shared: usize,
    /// The eight bytes of each after that; behind the last key the highest number.
    prefixes: [u64; NODE_MOST],
    /// The next eight bytes of each.
    seconds: [u64; NODE_MOST],
    ends: [u32; NODE_MOST],
    /// The keys, one after the other.
    bytes: Vec<u8>,
}

impl Keys {
    /// At least one.
    fn new<'a>(all: impl Iterator<Item = &'a [u8]> + Clone) -> Keys {
        let first = all.clone().next().expect("a node has a key");
        let last = all.clone().last().expect("a node has a key");
        let shared = shared_len(first, last);
        let mut keys = Keys {
            len: 0,
            shared: if shared < SHARED_LEAST { 0 } else { shared },
            prefixes: [u64::MAX; NODE_MOST],
            seconds: [0; NODE_MOST],
            ends: [0; NODE_MOST],
            bytes: Vec::with_capacity(all.clone().map(<[u8]>::len).sum()),
        };
        for key in all {
            keys.bytes.extend_from_slice(key);
            let end = u32::try_from(keys.bytes.len());
            keys.ends[keys.len] = end.expect("a node's keys are some of 64 KiB");
            let rest = &key[keys.shared..];
            keys.prefixes[keys.len] = key_prefix(rest);
            keys.seconds[keys.len] = second_prefix(rest);
            keys.len += 1;
        }
        keys
    }

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.place_of(at)]
    }

    /// Where a key lies in the bytes.
    #[inline]
    fn place_of(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[at] as usize
    }

    fn iter(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        range.map(|at| self.get(at))
    }

    /// The number of keys before a key, or at it too.
    #[inline]
    fn place(&self, key: &[u8], at_it_too: bool) -> usize {
        touch(&self.prefixes);
        if self.shared > 0 {
            match key[..key.len().min(self.shared)].cmp(&self.bytes[..self.shared]) {
                Ordering::Less => return 0,
                Ordering::Greater => return self.len,
                Ordering::Equal => {}
            }
        }
        let rest = &key[self.shared..];
        let prefix = key_prefix(rest);
        let mut from = prefixes_below(&self.prefixes, prefix);
        if from >= self.len || self.prefixes[from] != prefix {
            return from;
        }
        let equals = &self.prefixes[from..self.len];
        let mut to = from + equals.partition_point(|there| *there == prefix);
        while from < to {
            let middle = from.midpoint(to);
            match self.compare(middle, rest) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return middle + usize::from(at_it_too),
                Ordering::Greater => to = middle,
            }
        }
        from
    }

    /// Compares a key with another one, `rest` without what is shared, that has the same prefix.
    #[inline]
    fn compare(&self, at: usize, rest: &[u8]) -> Ordering {
        let seconds = self.seconds[at].cmp(&second_prefix(rest));
        seconds.then_with(|| match rest.len() {
            // They differ in zeros at the end at most, or the key is longer than sixteen bytes: the longer one is greater.
            ..=16 => (self.place_of(at).len() - self.shared).cmp(&rest.len()),
            _ => self.get(at)[self.shared..].cmp(rest),
        })
    }

    #[inline]
    fn up_to(&self, key: &[u8]) -> usize {
        self.place(key, true)
    }

    fn before(&self, key: &[u8]) -> usize {
        self.place(key, false)
    }
}

/// How many of these, which ascend, are below a prefix: without branches, which would be mispredicted.
#[inline]
fn prefixes_below(prefixes: &[u64; NODE_MOST], prefix: u64) -> usize {
    let mut below = 0;
    let mut step = NODE_MOST / 2;
    while step > 0 {
        below += step * usize::from(prefixes[below + step - 1] < prefix);
        step /= 2;
    }
    below + usize::from(prefixes[below] < prefix)
}

/// The eight bytes after a prefix.
#[inline]
fn second_prefix(rest: &[u8]) -> u64 {
    key_prefix(rest.get(8..).unwrap_or_default())
}

/// Prefetches all of these at once, without waiting: a search that reads one after the other waits for each.
#[inline]
fn touch<T: Copy>(words: &[T; NODE_MOST]) {
    for line in words.chunks(64 / size_of::<T>()) {
        black_box(line[0]);
    }
}

/// Where a fragment begins, and its sequence number.
type Fragment<'a> = (&'a [u8], Seq);

impl Node {
    /// No node, one, or two halves.
    fn of<'a, T: Clone>(
        entries: Vec<(&'a [u8], T)>,
        least: impl Fn(&T) -> Seq,
        below: impl Fn(Vec<T>) -> Below,
    ) -> Vec<Arc<Node>> {
        let bytes: usize = entries.iter().map(|(key, _)| key.len()).sum();
        let len = entries.len();
        let fits = len <= NODE_MOST && (bytes <= NODE_BYTES || len <= NODE_LEAST);
        let parts = entries.chunks(if fits { len.max(1) } else { len.div_ceil(2) });
        let make = |part: &[(&'a [u8], T)]| {
            let values = part.iter().map(|(_, value)| value);
            Arc::new(Node {
                keys: Keys::new(part.iter().map(|(key, _)| *key)),
                least: values.clone().map(&least).min().unwrap_or_default(),
                below: below(values.cloned().collect()),
            })
        };
        parts.map(make).collect()
    }

    fn leaves(fragments: Vec<Fragment<'_>>) -> Vec<Arc<Node>> {
        let below = |of: Vec<Seq>| {
            let mut seqs = [Seq(0); NODE_MOST];
            seqs[..of.len()].copy_from_slice(&of);
            Below::Fragments(seqs)
        };
        Node::of(fragments, |number| *number, below)
    }

    fn over(nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let entries = nodes.iter().map(|node| (node.keys.get(0), node.clone()));
        Node::of(entries.collect(), |node| node.least, Below::Nodes)
    }

    /// The sequence number over a key.
    #[inline]
    fn number(&self, key: &[u8]) -> Seq {
        let mut node = self;
        loop {
            if let Below::Fragments(seqs) = &node.below {
                touch(seqs);
            }
            let Some(at) = node.keys.up_to(key).checked_sub(1) else {
                return Seq(0);
            };
            match &node.below {
                Below::Fragments(seqs) => return seqs[at],
                Below::Nodes(nodes) => node = &nodes[at],
            }
        }
    }

    /// The lowest sequence number over the keys from `first` to `last`, where a missing bound is that of the node.
    fn least(&self, first: Option<&[u8]>, last: Option<&[u8]>) -> Seq {
        if first.is_none() && last.is_none() {
            return self.least;
        }
        let end = last.map_or(self.keys.len, |last| self.keys.up_to(last));
        let start = match first.map(|first| self.keys.up_to(first)) {
            Some(0) => return Seq(0),
            Some(start) => start - 1,
            None => 0,
        };
        let least = match &self.below {
            Below::Fragments(seqs) => seqs[start..end].iter().copied().min(),
            Below::Nodes(nodes) => (start..end)
                .map(|at| {
                    let first = first.filter(|_| at == start);
                    nodes[at].least(first, last.filter(|_| at == end - 1))
                })
                .min(),
        };
        least.unwrap_or(Seq::MAX)
    }

    /// The nodes that replace this one when `new` fragments replace those that begin from `from` to `to`.
    fn replaced(&self, from: &[u8], to: Option<&[u8]>, new: &[Fragment<'_>]) -> Vec<Arc<Node>> {
        let len = self.keys.len;
        match &self.below {
            Below::Fragments(seqs) => {
                let start = self.keys.before(from);
                let end = to.map_or(len, |to| self.keys.before(to)).max(start);
                let fragments = |range: Range<usize>| {
                    let seqs = seqs[range.clone()].iter().copied();
                    self.keys.iter(range).zip(seqs)
                };
                let new = new.iter().copied();
                let all = fragments(0..start).chain(new).chain(fragments(end..len));
                Node::leaves(all.collect())
            }
            Below::Nodes(nodes) => {
                let start = self.keys.up_to(from).saturating_sub(1);
                let last = to.map_or(len, |to| self.keys.before(to));
                let last = last.saturating_sub(1).max(start);
                let mut all = nodes[..start].to_vec();
                all.extend(nodes[start].replaced(from, to, new));
                if last > start {
                    all.extend(nodes[last].replaced(from, to, &[]));
                }
                all.extend_from_slice(&nodes[last + 1..]);
                Node::over(&all)
            }
        }
    }

    fn visit(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], Seq)) {
        let start = self.keys.up_to(first).saturating_sub(1);
        for at in start..self.keys.up_to(last) {
            match &self.below {
                Below::Fragments(seqs) => visit(self.keys.get(at), seqs[at]),
                Below::Nodes(nodes) => nodes[at].visit(first, last, visit),
            }
        }
    }
}

impl Fragments {
    /// Of these range deletes, lowest sequence number first.
    pub fn of<'a>(ranges: impl IntoIterator<Item = (&'a KeyRange, Seq)>) -> Fragments {
        let ranges = ranges.into_iter();
        ranges.fold(Fragments::default(), |fragments, (range, seq)| {
            fragments.with(range, seq)
        })
    }

    /// These and one more range delete, which is at least as new as all of them.
    pub fn with(&self, range: &KeyRange, seq: Seq) -> Fragments {
        assert!(seq >= self.seq_max, "range deletes come in order");
        if range.is_empty() {
            return self.clone();
        }
        let (from, to) = (range.from.as_slice(), range.to.as_deref());
        // Behind the range nothing changes, so a fragment begins there, if none does yet.
        let behind = to.map(|to| (to, self.max_covering_seq(to)));
        let new = [
            Some((from, seq)),
            behind.filter(|(to, _)| !self.begins_at(to)),
        ];
        let new: Vec<Fragment<'_>> = new.into_iter().flatten().collect();
        let mut nodes = match &self.root {
            Some(root) => root.replaced(from, to, &new),
            None => Node::leaves(new),
        };
        if nodes.len() > 1 {
            nodes = Node::over(&nodes);
        }
        let mut root = nodes.pop();
        while let Some(Below::Nodes(nodes)) = root.as_ref().map(|root| &root.below)
            && let [only] = &nodes[..]
        {
            root = Some(only.clone());
        }
        Fragments { root, seq_max: seq }
    }

    fn begins_at(&self, key: &[u8]) -> bool {
        let mut begins = false;
        self.visit(key, key, |start, _| begins |= start == key);
        begins
    }

    /// Whether no key is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The highest sequence number of any range delete in it.
    #[inline]
    pub fn seq_max(&self) -> Seq {
        self.seq_max
    }

    /// The highest sequence number of a range delete over the key: older records of it are deleted.
    #[inline]
    pub fn max_covering_seq(&self, key: &[u8]) -> Seq {
        self.root.as_ref().map_or(Seq(0), |root| root.number(key))
    }

    /// The lowest covering sequence number over all keys from `first` to `last`, both included: their older records are
    /// deleted.
    pub fn min_covering_seq(&self, first: &[u8], last: &[u8]) -> Seq {
        let root = self.root.as_ref();
        root.map_or(Seq(0), |root| root.least(Some(first), Some(last)))
    }

    /// Calls `visit` for each fragment that has a key from `first` to `last`, in order: with its beginning and sequence
    /// number.
    pub fn visit(&self, first: &[u8], last: &[u8], mut visit: impl FnMut(&[u8], Seq)) {
        if let Some(root) = &self.root {
            root.visit(first, last, &mut visit);
        }
    }
}

/// The union of the range deletes of several sources, for one reader.
#[derive(Clone, Default)]
pub struct RangeTombstones {
    /// None where there are none, as mostly: each source of a scan has a clone.
    parts: Option<Arc<[Arc<Fragments>]>>,
}

impl fmt::Debug for RangeTombstones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeTombstones")
            .field("parts", &self.parts().len())
            .finish_non_exhaustive()
    }
}

impl RangeTombstones {
    /// Whether all records of a census are dead, or range deletes cover all of their keys, which lie between the first
    /// and the last of `keys`.
    pub fn all_dead<'a>(
        &self,
        census: &Census,
        keys: impl FnOnce() -> (&'a [u8], &'a [u8]),
        view: &ExpiryView,
    ) -> bool {
        census.all_dead(view)
            || (!self.is_empty() && {
                let (first, last) = keys();
                census.seq_max < self.min_covering_seq(first, last)
            })
    }

    /// Joins these.
    pub fn new(parts: impl IntoIterator<Item = Arc<Fragments>>) -> RangeTombstones {
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        let parts: Vec<_> = parts.collect();
        RangeTombstones {
            parts: (!parts.is_empty()).then(|| parts.into()),
        }
    }

    fn parts(&self) -> &[Arc<Fragments>] {
        self.parts.as_deref().unwrap_or_default()
    }

    /// Whether no key is covered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_none()
    }

    /// The highest sequence number of a range delete over the key: older records of it are deleted.
    #[inline]
    pub fn max_covering_seq(&self, key: &[u8]) -> Seq {
        // Checked for each record, and mostly there are none.
        match self.is_empty() {
            true => Seq(0),
            false => self.max_of_parts(key),
        }
    }

    fn max_of_parts(&self, key: &[u8]) -> Seq {
        let mut max_seq = Seq(0);
        for part in self.parts() {
            max_seq = max_seq.max(part.max_covering_seq(key));
        }
        max_seq
    }

    /// The highest covering sequence number of any key from `first` to `last`, both included; records as new as that are
    /// not deleted.
    pub fn max_over(&self, first: &[u8], last: &[u8]) -> Seq {
        let mut max_seq = Seq(0);
        for part in self.parts() {
            part.visit(first, last, |_, seq| max_seq = max_seq.max(seq));
        }
        max_seq
    }

    /// A lower bound of the covering sequence number over all keys from `first` to `last`, both included: lower than
    /// the truth where only several sources together cover them all.
    pub fn min_covering_seq(&self, first: &[u8], last: &[u8]) -> Seq {
        let parts = self.parts().iter();
        let below = parts.map(|part| part.min_covering_seq(first, last));
        below.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
