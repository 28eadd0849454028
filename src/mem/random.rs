//! A record of the tree by chance, each as likely as any other.
//!
//! A way down that takes a slot by chance at each node leads to each record with the same probability, if a slot that the
//! node does not use ends it, and it begins again: all leaves are equally deep. Nodes are half full at least, mostly, so
//! some ten ways are enough.

use std::cell::Cell;

use super::arena::Stored;
use super::node::{Node, SLOTS, Torn};
use super::tree::Tree;

/// So many ways that end at unused slots are a sign that most are unused.
const WAYS_MOST: usize = 1_000;

impl Tree {
    /// `chance` returns a number below the given one. None: there are no records, or next to none.
    pub(super) fn random(&self, chance: &mut dyn FnMut(u64) -> u64) -> Option<Stored<'_>> {
        let chance = Cell::new(Some(chance));
        let slot_of = |used: usize, slots: usize| -> Result<usize, Torn> {
            let draw = chance.take().expect("it is put back");
            let slot = draw(slots as u64) as usize;
            chance.set(Some(draw));
            (slot < used).then_some(slot).ok_or(Torn)
        };
        let rank = |node: &Node| match node.is_inner() {
            true => slot_of(node.len() + 1, SLOTS + 1),
            false => slot_of(node.len(), SLOTS),
        };
        (0..WAYS_MOST).find_map(|_| {
            let root = self.root.load()?;
            self.try_read(root, rank, entry_of).ok()
        })
    }
}

fn entry_of(leaf: &Node, slot: usize) -> Result<Stored<'_>, Torn> {
    leaf.entries[slot].load().ok_or(Torn)
}
