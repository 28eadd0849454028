//! Reading by the indexes by name: which documents a query can be true of, and documents in the order of ORDER BY.
//!
//! ```text
//! one value         its entries, in the order of keys ──> document ──> query
//! several values    all their entries, sorted by key ───> document ──> query
//! ORDER BY          entries in the order of values; DESC by values from the last one, the keys of each ascending
//!                   ──> document ── it has this value ──> query
//! ```
//!
//! Invariants:
//!
//! 1. Rows, and their order, are those of a scan: the query is asked about each document; of rows without ORDER BY, and
//!    within one value of ORDER BY, documents come in the order of keys; each once.
//! 2. The record of the indexes in the catalog, the entries and the documents are read at one snapshot, and the record is the
//!    one of the indexes that are used. So those are whole there.
//! 3. The defaults of both containers are asked for after the documents were read, too: if no entry ends before its document
//!    then, none of a document that lives on was missing (indexes.rs, 3). Else the scan answers.
//! 4. What costs more than a scan is not begun, or given up.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use ebbtide::{Bytes, Snapshot, View};

use crate::catalog::CATALOG;
use crate::container::Container;
use crate::entry::{self, NUMBER_LEN};
use crate::error::{ErrorKind, Result};
use crate::indexes::{Index, Indexes, covers, entries_name, record_key};
use crate::key_range::{KeyRange, any_contains};
use crate::query::{BoundQuery, ValueRange};
use crate::reading::{Reader, Reading};

/// So many keys are gathered in any case, and no more than these.
const SOME: usize = 4_096;
pub const MOST: usize = 262_144;
/// A document by an index costs as much as so many of a scan, and looking at an entry the sixteenth part of it.
const COST: usize = 4;
const ENTRIES: usize = 16;
/// So many documents are sorted rather than read in their order among others.
const FEW: usize = 1_024;

/// The indexes of a container at a snapshot.
pub struct IndexView<'c> {
    container: &'c Container,
    indexes: Arc<Indexes>,
    entries: View,
    items: View,
}

/// Documents that a query can be true of, in the order of keys.
enum Candidates {
    /// Entries, behind whose first bytes their keys are.
    Entries(Vec<KeyRange>, usize),
    Keys(Vec<Bytes>),
}

/// An index that a query may go by.
struct Choice<'i> {
    index: &'i Index,
    condition: ValueRange,
    /// The entries of the one value, if it is one, in the ranges of keys.
    of_value: Option<Vec<KeyRange>>,
    entries: usize,
}

impl Container {
    /// The indexes that may be used at a snapshot, if there are any.
    pub(crate) fn index_view(&self, snapshot: &Snapshot) -> Result<Option<IndexView<'_>>> {
        let indexes = self.indexes_at(snapshot)?;
        if indexes.entries().is_none() || !is_complete(self, &indexes) {
            return Ok(None);
        }
        let record = snapshot.container(CATALOG)?.item(record_key(self.rid()))?;
        if record.map(|record| record.version()) != indexes.version() {
            return Ok(None);
        }
        // One that was dropped since is none of these indexes any more.
        let Ok(entries) = snapshot.container(entries_name(self.rid())) else {
            return Ok(None);
        };
        Ok(Some(IndexView {
            container: self,
            entries,
            items: snapshot.container(self.items().name())?,
            indexes,
        }))
    }
}

fn is_complete(container: &Container, indexes: &Indexes) -> bool {
    let default = container.items().default_ttl();
    let entries = indexes.entries();
    entries.is_some_and(|entries| covers(entries.default_ttl(), default))
}

/// Nothing, where the container of the entries was dropped meanwhile, with the last index.
fn unless_dropped<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read,
    }
}

/// How many there are in ranges, up to a bound.
fn count(view: &View, ranges: &[KeyRange], most: usize) -> usize {
    let mut found = 0;
    for range in ranges {
        if found >= most {
            break;
        }
        found += view.count_up_to(range.clone(), (most - found) as u64) as usize;
    }
    found
}

fn is_everything(ranges: &[KeyRange]) -> bool {
    matches!(ranges, [range] if range.from == Bound::Unbounded && range.to == Bound::Unbounded)
}

impl IndexView<'_> {
    /// Whether no entry of a document that is live now was missing so far.
    fn is_complete(&self) -> bool {
        is_complete(self.container, &self.indexes)
    }

    fn choices<'v>(
        &'v self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        most: usize,
        except: Option<u32>,
    ) -> Vec<Choice<'v>> {
        let whole = self.indexes.list().iter().filter(|index| index.is_whole);
        let others = whole.filter(|index| except != Some(index.number));
        let choice = |index: &'v Index| {
            let condition = query.condition(&index.path);
            if condition == ValueRange::Any {
                return None;
            }
            let number = index.number;
            let of_value = entry::one_value(number, &condition)
                .map(|value| Vec::from_iter(ranges.iter().map(|range| range.behind(&value))));
            let entries = match &of_value {
                Some(entries) => count(&self.entries, entries, most),
                None => count(&self.entries, &entry::ranges(number, &condition), most),
            };
            Some(Choice {
                index,
                condition,
                of_value,
                entries,
            })
        };
        others.filter_map(choice).collect()
    }

    /// The documents that a query can be true of in these ranges of keys, by the index that has the fewest; `None`: a scan
    /// costs less. `most`: so many keys may be gathered.
    fn candidates(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        most: usize,
    ) -> Result<Option<Candidates>> {
        let choices = self.choices(query, ranges, most + 1, None);
        let Some(choice) = choices.into_iter().min_by_key(|choice| choice.entries) else {
            return Ok(None);
        };
        let as_many = COST * choice.entries;
        if !is_everything(ranges) && count(&self.items, ranges, as_many + 1) <= as_many {
            return Ok(None);
        }
        if let Some(entries) = choice.of_value {
            let skip = entry::one_value(choice.index.number, &choice.condition);
            let skip = skip.map_or(0, |value| value.len());
            return Ok(Some(Candidates::Entries(entries, skip)));
        }
        let is_much = |documents: u64| as_many as u64 > documents;
        if choice.entries > most
            || choice.entries > SOME && is_much(self.container.items().len_estimate())
        {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(choice.entries);
        for range in entry::ranges(choice.index.number, &choice.condition) {
            for entry in self.entries.keys(range) {
                let entry = entry?;
                let key = entry::decoded(&entry).map(|(_, _, key)| entry.slice_ref(key));
                keys.extend(key.filter(|key| any_contains(ranges, key)));
            }
        }
        keys.sort_unstable();
        // An entry that is of no document any more may stand beside the one that is.
        keys.dedup();
        Ok(Some(Candidates::Keys(keys)))
    }

    /// Reads the documents that a query can be true of; `None`: a scan is to.
    pub fn read<'l>(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        most: usize,
        begin: impl FnOnce() -> Reader<'l>,
    ) -> Result<Option<Reading>> {
        unless_dropped(self.read_candidates(query, ranges, most, begin))
    }

    fn read_candidates<'l>(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        most: usize,
        begin: impl FnOnce() -> Reader<'l>,
    ) -> Result<Option<Reading>> {
        let Some(candidates) = self.candidates(query, ranges, most.clamp(SOME, MOST))? else {
            return Ok(None);
        };
        let mut reader = begin();
        match candidates {
            Candidates::Keys(keys) => {
                for key in keys {
                    if self.take(&mut reader, &key)?.is_break() {
                        break;
                    }
                }
            }
            Candidates::Entries(ranges, skip) => {
                'ranges: for range in ranges {
                    for entry in self.entries.keys(range) {
                        if self.take(&mut reader, &entry?[skip..])?.is_break() {
                            break 'ranges;
                        }
                    }
                }
            }
        }
        Ok(self.is_complete().then(|| reader.finish()))
    }

    fn take(&self, reader: &mut Reader<'_>, key: &[u8]) -> Result<ControlFlow<()>> {
        match self.items.item(key)? {
            Some(item) => reader.take(item, None),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// The number of the index by which documents come in the order of a query, where that may pay.
    fn order_of(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        path: &[String],
        is_begun: bool,
    ) -> Option<u32> {
        let mut whole = self.indexes.list().iter().filter(|index| index.is_whole);
        let number = whole.find(|index| index.path == path)?.number;
        let is_few = || {
            let others = self.choices(query, ranges, FEW + 1, Some(number));
            let is_scope_few = !is_everything(ranges) && count(&self.items, ranges, FEW + 1) <= FEW;
            is_scope_few || others.iter().any(|choice| choice.entries <= FEW)
        };
        (is_begun || !is_few()).then_some(number)
    }

    /// Reads documents in the order of a query's ORDER BY; `None`: they are to be sorted.
    pub fn read_in_order(
        &self,
        query: &BoundQuery,
        ranges: &[KeyRange],
        after: Option<&[u8]>,
        most: usize,
        reader: Reader<'_>,
    ) -> Result<Option<Reading>> {
        let Some((path, descends)) = query.order_path() else {
            return Ok(None);
        };
        let Some(number) = self.order_of(query, ranges, &path, after.is_some()) else {
            return Ok(None);
        };
        let mut walk = Walk {
            view: self,
            number,
            ranges,
            reader,
            left: ENTRIES * (COST * most).clamp(SOME, MOST),
        };
        let values = entry::ranges(number, &query.condition(&path));
        let after = after.map(|after| [&number.to_be_bytes(), after].concat());
        let step = unless_dropped(match descends {
            true => walk.down(values, after).map(Some),
            false => walk.up(values, after).map(Some),
        })?;
        let is_done = step.is_some_and(|step| step != Step::GiveUp) && self.is_complete();
        Ok(is_done.then(|| walk.reader.finish()))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Next,
    Enough,
    GiveUp,
}

/// Goes through entries in the order of their values.
struct Walk<'v> {
    view: &'v IndexView<'v>,
    number: u32,
    /// Of keys.
    ranges: &'v [KeyRange],
    reader: Reader<'v>,
    /// Entries that may still be looked at.
    left: usize,
}

impl Walk<'_> {
    fn up(&mut self, values: Vec<KeyRange>, after: Option<Vec<u8>>) -> Result<Step> {
        for mut range in values {
            if let Some(after) = &after {
                if range.ends_before(after) {
                    continue;
                }
                if range.contains(after) {
                    range.from = Bound::Excluded(after.clone());
                }
            }
            match self.entries(range)? {
                Step::Next => {}
                step => return Ok(step),
            }
        }
        Ok(Step::Next)
    }

    fn down(&mut self, values: Vec<KeyRange>, after: Option<Vec<u8>>) -> Result<Step> {
        for mut range in values.into_iter().rev() {
            if let Some(after) = &after {
                if !range.contains(after) && !range.ends_before(after) {
                    continue;
                }
                if range.contains(after) {
                    let Some(value) = value_of(after) else {
                        return Ok(Step::GiveUp);
                    };
                    let mut rest = KeyRange::of_prefix(value.to_vec());
                    rest.from = Bound::Excluded(after.clone());
                    range.to = Bound::Excluded(value.to_vec());
                    match self.entries(rest)? {
                        Step::Next => {}
                        step => return Ok(step),
                    }
                }
            }
            while let Some(last) = self.view.entries.keys(range.clone()).next_back() {
                let last = last?;
                let Some(value) = value_of(&last) else {
                    return Ok(Step::GiveUp);
                };
                match self.entries(KeyRange::of_prefix(value.to_vec()))? {
                    Step::Next => range.to = Bound::Excluded(value.to_vec()),
                    step => return Ok(step),
                }
            }
        }
        Ok(Step::Next)
    }

    fn entries(&mut self, range: KeyRange) -> Result<Step> {
        for entry in self.view.entries.keys(range) {
            match self.entry(&entry?)? {
                Step::Next => {}
                step => return Ok(step),
            }
        }
        Ok(Step::Next)
    }

    fn entry(&mut self, entry: &Bytes) -> Result<Step> {
        let Some((_, value, key)) = entry::decoded(entry) else {
            return Ok(Step::Next);
        };
        let is_in = any_contains(self.ranges, key);
        let Some(left) = self.left.checked_sub(if is_in { ENTRIES } else { 1 }) else {
            return Ok(Step::GiveUp);
        };
        self.left = left;
        let item = match is_in {
            true => self.view.items.item(key)?,
            false => None,
        };
        let has_value = |body: &[u8]| self.view.indexes.has(self.number, entry, key, body);
        let Some(item) = item.filter(|item| has_value(item.value())) else {
            return Ok(Step::Next);
        };
        // Documents of one such value are not in their order.
        if !entry::is_exact(value) {
            return Ok(Step::GiveUp);
        }
        let place = entry.slice(NUMBER_LEN..);
        Ok(match self.reader.take(item, Some(place))? {
            ControlFlow::Continue(()) => Step::Next,
            ControlFlow::Break(()) => Step::Enough,
        })
    }
}

/// The number and the value with which an entry begins.
fn value_of(entry: &[u8]) -> Option<&[u8]> {
    let (_, value, _) = entry::decoded(entry)?;
    Some(&entry[..NUMBER_LEN + value.len()])
}
