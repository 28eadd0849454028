//! Changes in the order of their versions, in pages.
//!
//! ```text
//! sequence number   since ........ V ........ W ....... S: the snapshot of the pass
//! page 1            the first `limit` of all that a pass tells: up to V
//! page 2                            the first `limit` behind V: up to W
//! ```
//!
//! Tables are in the order of keys. So each page goes through all that a pass tells behind its position, and keeps the first
//! `limit` changes in the order of versions: memory is bounded by the limit, and the whole costs as many passes as there
//! are pages. All pages of a pass are of one snapshot, and each key is told once.
//!
//! A bulk load has one version, and so have a write and what is told of settings that were changed with it. Changes of one
//! version are in the order of containers, then of keys: a change's [`Place`]. A position is the place of the last change that
//! was told. At the version before that all was told; so a reader that comes back begins a pass there, and passes over
//! what is not behind its position.
//!
//! The first copy of a database may be made by many readers, each with the position of the one before. It needs nothing that
//! jobs had left out by the snapshot S of its first page: a key whose newest version was left out by then has no older one
//! in the copy, for each pass tells of a key its newest version as of S or later. So the position has S until the pass is
//! over, and the reader is told to begin anew only if jobs have left out something above S.
//!
//! The reader keeps its records as one that goes on does: between the pages of a pass by the pass itself, where it came with
//! a position alone by the read states that it has pinned, and after the pass by a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ContainerPass, Pass, begin};
use crate::base::{Result, Seq};
use crate::data::change::Change;
use crate::engine::handle::Handle;
use crate::engine::parts::snapshots::SnapshotPin;

/// The ranks of changes of one version and container: before all, containers were dropped, it was made, its settings, its keys.
const BEFORE: u8 = 0;
const DROPS: u8 = 1;
const MADE: u8 = 2;
const SETTINGS: u8 = 3;
const KEYS: u8 = 4;

/// Where a change stands in the order.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Place {
    version: Seq,
    container: String,
    rank: u8,
    key: Vec<u8>,
}

impl Place {
    /// Behind all changes of a version.
    fn behind(version: Seq) -> Place {
        Place::of_all(Seq(version.0.saturating_add(1)), BEFORE)
    }

    fn of_all(version: Seq, rank: u8) -> Place {
        Place {
            version,
            container: String::new(),
            rank,
            key: vec![],
        }
    }

    fn all_up_to(&self) -> Seq {
        Seq(self.version.0.saturating_sub(1))
    }

    fn compare(&self, version: Seq, container: &str, rank: u8, key: &[u8]) -> std::cmp::Ordering {
        let own = (self.version, &*self.container, self.rank, &*self.key);
        own.cmp(&(version, container, rank, key))
    }
}

/// Where a reader goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Position {
    after: Place,
    /// The snapshot of the first page of a first copy, until that is whole.
    first_copy: Option<Seq>,
}

impl Position {
    /// Behind all changes of a version.
    pub fn behind(version: Seq) -> Position {
        Position {
            after: Place::behind(version),
            first_copy: None,
        }
    }

    /// All changes up to this version are at or before it.
    pub fn all_up_to(&self) -> Seq {
        self.after.all_up_to()
    }
}

/// Some changes, and the place of the last.
pub struct Page {
    /// The changes.
    pub changes: Vec<Change>,
    /// Where the next page goes on.
    pub position: Position,
}

/// See the file's head.
pub struct PageReader {
    position: Position,
    /// As [`super::ChangeReader`] has it.
    hold: Option<Arc<SnapshotPin>>,
    pass: Option<Pass>,
    limit: usize,
    /// The last page of a pass was given, and its end was not.
    is_at_end: bool,
    engine: Handle,
}

impl PageReader {
    /// A reader of the changes behind a position, with up to so many in a page, and at least one.
    pub fn new(engine: &Handle, position: Position, limit: usize) -> PageReader {
        PageReader {
            position,
            hold: None,
            pass: None,
            limit: limit.max(1),
            is_at_end: false,
            engine: engine.clone(),
        }
    }

    /// The position up to which all was told.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The next page, of at least one change; none at the end of a pass.
    pub fn next_page(&mut self) -> Result<Option<Page>> {
        self.engine.check_running()?;
        if std::mem::take(&mut self.is_at_end) {
            return Ok(None);
        }
        let Position { after, first_copy } = &mut self.position;
        let since = after.all_up_to();
        let pass = match &mut self.pass {
            Some(pass) => pass,
            None => {
                let known = first_copy.map_or(since, |first| first.max(since));
                let known = self.hold.is_none().then_some(known);
                match begin(&self.engine, (since, known), None)? {
                    Some(pass) => self.pass.insert(pass),
                    None => return Ok(None),
                }
            }
        };
        if since == Seq(0) || first_copy.is_some() {
            first_copy.get_or_insert(pass.pin.seq());
        }
        let mut first = pass.first(&self.engine, after, self.limit)?;
        // One more was kept: it tells whether a version is told in part.
        let next = (first.len() > self.limit)
            .then(|| first.pop_last())
            .flatten();
        match (next, first.last_key_value()) {
            (Some((next, _)), Some((last, _))) if next.version > last.version => {
                *after = Place::behind(last.version);
            }
            (Some(_), Some((last, _))) => *after = last.clone(),
            _ => {
                let pin = pass.pin.clone();
                self.position = Position::behind(pin.seq());
                self.hold = (!self.engine.is_following()).then_some(pin);
                self.pass = None;
                self.is_at_end = !first.is_empty();
            }
        }
        let page = Page {
            changes: first.into_values().collect(),
            position: self.position.clone(),
        };
        Ok((!page.changes.is_empty()).then_some(page))
    }
}

impl Pass {
    /// The first changes behind a place: one more than the limit, if there are as many.
    fn first(
        &mut self,
        engine: &Handle,
        after: &Place,
        limit: usize,
    ) -> Result<BTreeMap<Place, Change>> {
        let mut first = BTreeMap::new();
        let mut add = |place: Place, change: Change| {
            if place > *after {
                first.insert(place, change);
            }
            if first.len() > limit.saturating_add(1) {
                first.pop_last();
            }
            let is_full = first.len() > limit;
            let last = first.last_key_value().filter(|_| is_full);
            last.map(|(place, _)| place.clone())
        };
        let mut upto = None;
        if let Some((version, change)) = &self.dropped {
            upto = add(Place::of_all(*version, DROPS), change.clone());
        }
        for part in &mut self.ahead {
            part.begin_again(after);
            loop {
                part.upto.clone_from(&upto);
                let is_through = part.step(engine, &self.pin, &mut self.ready)?;
                for change in self.ready.drain(..) {
                    upto = add(part.place_of(&change), change);
                }
                if is_through {
                    break;
                }
            }
        }
        Ok(first)
    }
}

impl ContainerPass {
    /// Begins it again, for what is behind a place.
    fn begin_again(&mut self, after: &Place) {
        self.after = Some(after.clone());
        self.is_begun = false;
        self.last.clear();
    }

    /// Tables without anything above this number need not be read.
    pub(super) fn above(&self) -> Seq {
        let after = self.after.as_ref();
        after.map_or(self.since, |after| after.all_up_to().max(self.since))
    }

    /// Whether a record is behind the position, and not behind what is of use.
    pub(super) fn is_between(&self, version: Seq, key: &[u8]) -> bool {
        let compare = |place: &Place| place.compare(version, &self.name, KEYS, key);
        self.after
            .as_ref()
            .is_none_or(|after| compare(after).is_lt())
            && self.upto.as_ref().is_none_or(|upto| compare(upto).is_ge())
    }

    fn place_of(&self, change: &Change) -> Place {
        let (version, rank, key) = match change {
            Change::Containers { .. } => unreachable!("it is of no container"),
            Change::Created { version, .. } => (version.seq(), MADE, &[][..]),
            // Settings stand at the last write that changed them.
            Change::Expiry { .. } => (self.settings_seq, SETTINGS, &[][..]),
            Change::DeleteRange { version, from, .. } => (version.seq(), KEYS, &from[..]),
            Change::Delete { version, key, .. } => (version.seq(), KEYS, &key[..]),
            Change::Put { item, .. } => (item.version().seq(), KEYS, item.key()),
        };
        Place {
            version,
            container: self.name.to_string(),
            rank,
            key: key.to_vec(),
        }
    }
}
