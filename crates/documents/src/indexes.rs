//! The indexes by name of a container: their entries, their record in the catalog, and the lock that all goes by that writes
//! entries.
//!
//! ```text
//! documents             the engine's container RID
//! entries               the engine's container RID#index     none where the policy names no path
//! record in the catalog i RID     {"next":n,"indexes":[{"path":["a","b"],"number":3,"whole":true}]}
//! ... and b RID                   the key of a document, while a replica's indexes are built: those up to it have their entries
//! ```
//!
//! Invariants:
//!
//! 1. A document that was written since its indexes are those of now has one entry in each: it is written in the batch
//!    that writes the document, with its ttl, so both have one `written_at`, ttl and place in the history. One that has no
//!    member at the path has an entry of `undefined`: so an index has all documents, and ORDER BY can go by it.
//! 2. Where an index is *whole*, each live document has its entry. Queries use no other one. It is whole from the beginning
//!    where there was no document, else when the builder has been at each (upkeep.rs).
//! 3. An entry goes no sooner than its document. Both containers get a default ttl in one batch. Of the documents' an operator
//!    may change it alone: then queries use no index, as long as the default of the entries ends more than that of the documents
//!    (`covers`); and the next time that the container is opened or replaced, the entries are made anew in a container without a
//!    past. Commands and quotas of the documents' container end documents alone. A database with a quota that expires
//!    what ends soonest may end any item: with one, no index is kept.
//! 4. An entry may be there without its document, or with another value than it has now: after what invariant 3 tells, or
//!    after a crash in a delete by partition key. Lookups read the document at the same snapshot, and ask for the value
//!    where it counts. The sweep deletes such entries (upkeep.rs); most have an end of their own, too.
//! 5. `current` is read from before a document is read until its entries are committed, and held for writing while the
//!    indexes change in the catalog. So no writer goes by the indexes of before once they have changed. A second [`Documents`]
//!    over one database of the engine does not see this lock. Over a replica the condition on the record is in its place (held.rs).
//! 6. No number is given twice as long as the container of entries stands.
//!
//! Not prevented: what somebody changes in the container of entries by itself; a program that opens the folder with such a
//! quota, and not its documents; and an operator who raises the default of the documents' container in the milliseconds
//! in which a replacement changes it too: of those that would have ended in these an entry can be missing.
//!
//! [`Documents`]: crate::Documents

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use ebbtide::{DefaultTtl, Item, Ttl, Version};
use serde_json::{Value, json};

use crate::body::MemberPath;
use crate::catalog::damaged;
use crate::entry;
use crate::error::Result;
use crate::query::PathReader;
use crate::resource_id::ResourceId;
use crate::store::{Store, Writes};

/// One index by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    pub path: MemberPath,
    pub number: u32,
    /// Whether each live document has its entry.
    pub is_whole: bool,
}

/// The indexes of a container, as the catalog has them.
#[derive(Debug, Default)]
pub struct Indexes {
    list: Vec<Index>,
    /// The number that comes next.
    next: u32,
    reader: PathReader,
    /// There is one where there is an index.
    entries: Option<ebbtide::Container>,
    /// That of the record.
    version: Option<Version>,
}

/// The name of the engine's container of the entries.
pub fn entries_name(rid: ResourceId) -> String {
    format!("{rid}#index")
}

/// The key of the record in the catalog.
pub fn record_key(rid: ResourceId) -> Vec<u8> {
    [b"i", rid.as_bytes()].concat()
}

/// The key in the catalog of how far a replica's indexes are built: the key of the last document that has been looked at.
pub fn built_key(rid: ResourceId) -> Vec<u8> {
    [b"b", rid.as_bytes()].concat()
}

/// Whether no entry ends before its document, under these defaults of their containers.
pub fn covers(entries: DefaultTtl, documents: DefaultTtl) -> bool {
    match (entries, documents) {
        (DefaultTtl::Off, _) => true,
        (DefaultTtl::NoDefault, documents) => documents != DefaultTtl::Off,
        (DefaultTtl::After(entries), DefaultTtl::After(documents)) => documents <= entries,
        _ => false,
    }
}

impl Indexes {
    /// Those of new paths: `is_whole` where there are no documents yet.
    pub fn made(paths: Vec<MemberPath>, is_whole: bool) -> Indexes {
        Indexes::default().with_paths(paths, is_whole)
    }

    /// The same with other paths. What stays keeps its entries.
    pub fn with_paths(&self, paths: Vec<MemberPath>, is_whole: bool) -> Indexes {
        let mut next = self.next;
        let of_path = |path: MemberPath| match self.list.iter().find(|index| index.path == path) {
            Some(index) => index.clone(),
            None => {
                next += 1;
                Index {
                    path,
                    number: next - 1,
                    is_whole,
                }
            }
        };
        let list = paths.into_iter().map(of_path).collect();
        Indexes::of(list, next)
    }

    /// The same, all whole.
    pub fn all_whole(&self) -> Indexes {
        let whole = |index: &Index| Index {
            is_whole: true,
            ..index.clone()
        };
        Indexes::of(self.list.iter().map(whole).collect(), self.next)
    }

    fn of(list: Vec<Index>, next: u32) -> Indexes {
        Indexes {
            reader: PathReader::new(list.iter().map(|index| &index.path)),
            list,
            next,
            entries: None,
            version: None,
        }
    }

    /// Those of a record, where their container is there.
    pub fn of_record(record: Option<Item>, store: &Store, rid: ResourceId) -> Result<Indexes> {
        let Some(record) = record else {
            return Ok(Indexes::default());
        };
        let Some(entries) = store.container(&entries_name(rid))? else {
            return Ok(Indexes::default());
        };
        Indexes::stored(record.value(), record.version(), entries)
            .ok_or_else(|| damaged("the indexes of a container are none"))
    }

    /// As they are stored, with their container and the version of the record. `None`: it is damaged.
    fn stored(record: &[u8], version: Version, entries: ebbtide::Container) -> Option<Indexes> {
        let record: Value = serde_json::from_slice(record).ok()?;
        let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let index = |index: &Value| {
            let names = index.get("path")?.as_array()?.iter();
            Some(Index {
                path: names
                    .map(|name| Some(name.as_str()?.to_owned()))
                    .collect::<Option<_>>()?,
                number: number(index.get("number")?)?,
                is_whole: index.get("whole")?.as_bool()?,
            })
        };
        let list = record.get("indexes")?.as_array()?.iter().map(index);
        let read = Indexes::of(list.collect::<Option<_>>()?, number(record.get("next")?)?);
        Some(Indexes {
            entries: Some(entries),
            version: Some(version),
            ..read
        })
    }

    /// Adds the record to a batch.
    pub fn store(&self, batch: &mut Writes, catalog: &ebbtide::Container, rid: ResourceId) {
        let index = |index: &Index| json!({"path": index.path, "number": index.number, "whole": index.is_whole});
        let list = Vec::from_iter(self.list.iter().map(index));
        let record = json!({"next": self.next, "indexes": list}).to_string();
        batch.put(catalog, record_key(rid), record, Ttl::Never);
        if matches!(batch, Writes::Values(_)) {
            match self.are_whole() {
                true => batch.delete(catalog, built_key(rid)),
                false => batch.put(catalog, built_key(rid), b"", Ttl::Never),
            }
        }
    }

    pub fn list(&self) -> &[Index] {
        &self.list
    }

    pub fn entries(&self) -> Option<&ebbtide::Container> {
        self.entries.as_ref()
    }

    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether these are the paths.
    pub fn are_of(&self, paths: &[MemberPath]) -> bool {
        self.list.iter().map(|index| &index.path).eq(paths)
    }

    pub fn are_whole(&self) -> bool {
        self.list.iter().all(|index| index.is_whole)
    }

    /// The entries of a document: one of each index, in the order of the list.
    pub fn entries_of(&self, key: &[u8], body: &[u8]) -> Vec<Vec<u8>> {
        let mut entries = Vec::with_capacity(self.list.len());
        self.reader.read(body, |at, value| {
            entries.push(entry::encoded(self.list[at].number, &value, key));
        });
        entries
    }

    /// Whether a document has this entry in the index of this number.
    pub fn has(&self, number: u32, entry: &[u8], key: &[u8], body: &[u8]) -> bool {
        let at = self.list.iter().position(|index| index.number == number);
        at.is_some_and(|at| self.entries_of(key, body)[at] == entry)
    }

    /// Adds to a batch what the entries of a document become: `before` and `after` are its bodies.
    pub fn change(
        &self,
        batch: &mut Writes,
        key: &[u8],
        before: Option<&[u8]>,
        after: Option<(&[u8], Ttl)>,
    ) {
        let Some(entries) = &self.entries else {
            return;
        };
        let old = before.map_or_else(Vec::new, |body| self.entries_of(key, body));
        let (new, ttl) = match after {
            Some((body, ttl)) => (self.entries_of(key, body), ttl),
            None => (vec![], Ttl::Inherit),
        };
        for (at, entry) in old.iter().enumerate() {
            if new.get(at) != Some(entry) {
                batch.delete(entries, entry);
            }
        }
        for entry in &new {
            batch.put(entries, entry, b"", ttl);
        }
    }
}

/// The indexes of a container as of now, and the work on them.
#[derive(Default)]
pub struct Upkeep {
    current: RwLock<Arc<Indexes>>,
    /// Held by the one that builds.
    building: Mutex<()>,
    sweep: Mutex<Sweep>,
}

/// How far the sweep is.
#[derive(Default)]
pub struct Sweep {
    /// The writes up to its next step; 0: it has not begun.
    pub writes: u32,
    /// The last entry that it has looked at; empty: it begins.
    pub after: Vec<u8>,
}

impl Upkeep {
    pub fn new(indexes: Indexes) -> Upkeep {
        Upkeep {
            current: RwLock::new(Arc::new(indexes)),
            ..Upkeep::default()
        }
    }

    /// For a writer: until this is dropped, the indexes stay.
    pub fn hold(&self) -> RwLockReadGuard<'_, Arc<Indexes>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for one that does not wait; none while the indexes change.
    pub fn try_hold(&self) -> Option<RwLockReadGuard<'_, Arc<Indexes>>> {
        match self.current.try_read() {
            Ok(held) => Some(held),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For a change of the indexes: until this is dropped, nobody writes.
    pub fn hold_all(&self) -> RwLockWriteGuard<'_, Arc<Indexes>> {
        self.current.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn current(&self) -> Arc<Indexes> {
        self.hold().clone()
    }

    /// For the builder; it waits for another one.
    pub fn build(&self) -> MutexGuard<'_, ()> {
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same where nobody builds.
    pub fn try_build(&self) -> Option<MutexGuard<'_, ()>> {
        try_lock(&self.building)
    }

    /// For the sweep, where nobody else is at it.
    pub fn try_sweep(&self) -> Option<MutexGuard<'_, Sweep>> {
        try_lock(&self.sweep)
    }
}

fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(held) => Some(held),
        Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
