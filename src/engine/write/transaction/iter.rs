//! Scans of a transaction: the snapshot's items and its own writes, merged, from both ends.
//!
//! ```text
//! range       a . . . . . . . . . z
//! snapshot      b   d       h            front: d is ready, not shown        back: none
//! own             c   !f      k          f is deleted
//! shown         b c             k        from the front: b, c; from the back: k
//! left             (d ......)            consumed: a to c, k to z
//! ```
//!
//! Invariants: the keys that were shown or passed lie outside of `left`, and the read set is told of them in the end;
//! of an own write and an item of the snapshot with one key, the own write counts. Own writes are looked up at each
//! step, so those made meanwhile are seen where they lie in `left`.

use std::fmt;
use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::data::batch::KeyRange;
use crate::data::item::Item;
use crate::engine::handle::Handle;
use crate::engine::parts::state::ContainerState;
use crate::engine::read::scan::Scan;
use crate::engine::write::transaction::TransactionState;

/// Items in the order of keys, from both ends, as a [`Transaction`](crate::Transaction) sees them.
#[must_use = "items are read when they are asked for"]
pub struct TransactionIter<'t> {
    engine: &'t Handle,
    transaction: &'t Mutex<TransactionState>,
    range: KeyRange,
    /// The part of the range between the items that were shown from either end.
    left: KeyRange,
    /// Until it ends, or fails.
    source: Option<Source>,
    failed: Option<Error>,
}

/// The snapshot's items of a range.
struct Source {
    state: Arc<ContainerState>,
    place: usize,
    number: usize,
    /// Until nothing is left between its two ends.
    scan: Option<Scan>,
    /// Taken from the scan and not shown yet.
    front: Option<Item>,
    back: Option<Item>,
}

impl fmt::Debug for TransactionIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionIter")
            .field(
                "has_ended",
                &(self.source.is_none() && self.failed.is_none()),
            )
            .finish_non_exhaustive()
    }
}

impl<'t> TransactionIter<'t> {
    pub(crate) fn new(
        engine: &'t Handle,
        transaction: &'t Mutex<TransactionState>,
        state: Result<Arc<ContainerState>>,
        range: KeyRange,
    ) -> Self {
        let begun = state.and_then(|state| {
            let read_set = &mut transaction.lock().read_set;
            let place = read_set.touch(engine, &state, &range.from)?;
            let (number, scan) = read_set.scan(engine, place, &range)?;
            Ok(Source {
                state,
                place,
                number,
                scan: Some(scan),
                front: None,
                back: None,
            })
        });
        let (source, failed) = match begun {
            Ok(source) => (Some(source), None),
            Err(error) => (None, Some(error)),
        };
        TransactionIter {
            engine,
            transaction,
            left: range.clone(),
            range,
            source,
            failed,
        }
    }
}

impl Source {
    /// Has the snapshot's next item ready, if there is one.
    fn fill(&mut self, forward: bool) -> Result<()> {
        let (near, far) = match forward {
            true => (&mut self.front, &mut self.back),
            false => (&mut self.back, &mut self.front),
        };
        if near.is_none()
            && let Some(scan) = &mut self.scan
        {
            let next = match forward {
                true => scan.next(),
                false => scan.next_back(),
            };
            *near = next.transpose()?;
            if near.is_none() {
                self.scan = None;
            }
        }
        if near.is_none() {
            *near = far.take();
        }
        Ok(())
    }

    /// The item that is ready.
    fn peek(&self, forward: bool) -> Option<&Item> {
        match forward {
            true => self.front.as_ref(),
            false => self.back.as_ref(),
        }
    }

    fn take(&mut self, forward: bool) -> Option<Item> {
        match forward {
            true => self.front.take(),
            false => self.back.take(),
        }
    }
}

/// Keys up to this one, in that direction, are passed.
fn pass(left: &mut KeyRange, key: &[u8], forward: bool) {
    match forward {
        true => left.from = [key, &[0]].concat(),
        false => left.to = Some(key.to_vec()),
    }
}

impl TransactionIter<'_> {
    fn step(&mut self, forward: bool) -> Option<Result<Item>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let item = self.try_step(forward).transpose();
        if !matches!(item, Some(Ok(_))) {
            self.end(item.is_none());
        }
        item
    }

    fn try_step(&mut self, forward: bool) -> Result<Option<Item>> {
        let Some(source) = &mut self.source else {
            return Ok(None);
        };
        let engine = self.engine;
        let mut state = self.transaction.lock();
        state
            .read_set
            .touch(engine, &source.state, &self.left.from)?;
        loop {
            source.fill(forward)?;
            state.read_set.missed(source.place, &self.left.from)?;
            let snapshots = source.peek(forward);
            let own = state.own(&source.state);
            let own_next = own.and_then(|own| own.next_in(&self.left, forward));
            let comes_first = |key: &[u8]| {
                snapshots.is_none_or(|item| match forward {
                    true => key <= item.key(),
                    false => key >= item.key(),
                })
            };
            if let Some((key, put)) = own_next.filter(|(key, _)| comes_first(key)) {
                let is_same = snapshots.is_some_and(|item| item.key() == key);
                let (key, put) = (key.to_vec(), put.cloned());
                if is_same {
                    source.take(forward);
                }
                pass(&mut self.left, &key, forward);
                let Some(put) = put else { continue };
                if let Some(item) = state.own_item(engine, source.place, &key, &put)? {
                    return Ok(Some(item));
                }
                continue;
            }
            let is_hidden = |item: &Item| own.is_some_and(|own| own.is_deleted(item.key()));
            let hidden = snapshots.is_some_and(is_hidden);
            let Some(item) = source.take(forward) else {
                return Ok(None);
            };
            pass(&mut self.left, item.key(), forward);
            if !hidden {
                let read_set = &mut state.read_set;
                read_set.found(engine, source.place, item.key(), item.end())?;
                return Ok(Some(item));
            }
        }
    }

    /// Tells the read set what was read: all of the range, or the parts on either side of `left`.
    fn end(&mut self, is_exhausted: bool) {
        let Some(source) = self.source.take() else {
            return;
        };
        if is_exhausted {
            return;
        }
        let KeyRange { from, to } = &self.left;
        let front = KeyRange {
            from: self.range.from.clone(),
            to: Some(from.clone()),
        };
        let back = to.as_ref().map(|to| KeyRange {
            from: to.clone(),
            to: self.range.to.clone(),
        });
        let parts = [Some(front), back].into_iter().flatten();
        let parts = parts.filter(|part| !part.is_empty()).collect();
        let mut state = self.transaction.lock();
        state.read_set.consumed(source.place, source.number, parts);
    }
}

impl Drop for TransactionIter<'_> {
    fn drop(&mut self) {
        self.end(false);
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl std::iter::FusedIterator for TransactionIter<'_> {}
