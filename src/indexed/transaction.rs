//! Writes of items with their entries, in a transaction.
//!
//! ```text
//! change   read the item ── decide ── index keys before, index keys after ── check ── entries, then the item
//! ```
//!
//! Invariants:
//!
//! 1. All that a change relies on is read in the transaction: the item, the holder of a unique index key, the state of each
//!    index. So it is a conflict if another one writes it, and so is a change of a container's settings.
//! 2. A change that is refused has written nothing, so that a transaction may go on after it.
//! 3. An item and its entries are given one [`Ttl`], which means the same life for all of them at the commit. Where it is kept
//!    from before, and the entries' container has a floor that the items' has not, since a default was changed past the helper,
//!    an entry has no end. So an entry may outlive its item, and no item outlives its entries.

use std::cell::Cell;
use std::fmt;
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::api::arguments::{KeyBounds, check_item, check_key, checked_range};
use crate::api::transaction::Transaction;
use crate::api::writing::{Update, other_ttl, write_ttl};
use crate::base::{Error, Result, Seq, Timestamp, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::indexed::container::{Definition, IndexedContainer};
use crate::indexed::entry::{self, STATE};

/// An [`IndexedContainer`] in a [`Transaction`]; [`Transaction::indexed`] makes it. What each method sees and writes, and what is
/// a conflict, is as of the transaction's method of that name; the entries are written with the items.
pub struct IndexedTransaction<'t> {
    transaction: &'t Transaction,
    of: &'t IndexedContainer,
    is_ready: Cell<bool>,
}

impl fmt::Debug for IndexedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IndexedTransaction").field(self.of).finish()
    }
}

impl Transaction {
    /// A container with indexes in this transaction.
    ///
    /// ```
    /// use ebbtide::{IndexedContainer, Options};
    ///
    /// let db = Options::temporary()?;
    /// let log = db.container("log")?;
    /// let sessions = IndexedContainer::new(&db.container("sessions")?, |_id, user| [user.to_vec()])?;
    /// sessions.put("s-1", "ada")?;
    /// sessions.put("s-2", "ada")?;
    /// let log_out_everywhere = |user: &str| {
    ///     db.transaction(|tx| {
    ///         let sessions = tx.indexed(&sessions);
    ///         let found = sessions.find(user)?;
    ///         found.iter().try_for_each(|session| sessions.delete(session.key()))?;
    ///         tx.put(&log, user, format!("{} ended", found.len()))?;
    ///         Ok(found.len())
    ///     })
    /// };
    /// assert_eq!(log_out_everywhere("ada")?, 2);
    /// assert!(!sessions.index().contains("ada")?);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    pub fn indexed<'t>(&'t self, container: &'t IndexedContainer) -> IndexedTransaction<'t> {
        IndexedTransaction {
            transaction: self,
            of: container,
            is_ready: Cell::new(false),
        }
    }
}

/// The entries of one index that a change deletes and writes.
struct Plan<'t> {
    index: &'t Definition,
    deletes: Vec<Vec<u8>>,
    puts: Vec<Vec<u8>>,
}

/// The ttl that restarts the countdown of an item. A lifetime of 0 can only be said by a moment that has passed.
fn own_ttl(item: &Item) -> Ttl {
    match item.ttl() {
        Ttl::After(Duration::ZERO) => Ttl::Until(UNIX_EPOCH),
        ttl => ttl,
    }
}

/// Refuses what a write would refuse, before anything is written.
fn check<V: AsRef<[u8]>>(key: &[u8], decided: &Update<V>) -> Result<()> {
    match decided {
        Update::Write(value, ttl) => {
            check_item(key, value.as_ref())?;
            write_ttl(*ttl).map(drop)
        }
        Update::Expire(ttl) => other_ttl(*ttl).map(drop),
        Update::Keep | Update::Delete => Ok(()),
    }
}

/// Whether a range has every key.
fn is_everything(range: &impl KeyBounds) -> bool {
    let starts = match range.start() {
        Bound::Unbounded => true,
        Bound::Included(key) => key.is_empty(),
        Bound::Excluded(_) => false,
    };
    starts && matches!(range.end(), Bound::Unbounded)
}

impl<'t> IndexedTransaction<'t> {
    /// The ttl by which something else lives as an item does. What the transaction has written counts from the commit.
    fn life_of(&self, item: &Item) -> Ttl {
        let is_own = item.version() == Version::of(Seq::MAX);
        match is_own && item.written_at() == self.transaction.now() {
            true => own_ttl(item),
            false => Ttl::Like(item),
        }
    }

    /// Builds what is to be built first, after which the transaction is in conflict and has to be run again.
    fn check_ready(&self) -> Result<()> {
        if self.is_ready.get() {
            return Ok(());
        }
        // From when a container is read in the transaction, its settings cannot change without a conflict.
        self.transaction.contains(self.of.container(), STATE)?;
        for index in self.of.indexes() {
            let state = self.transaction.get(&index.entries, STATE)?;
            if !self.of.is_as_asked(index, state.as_deref()) {
                self.of.make_ready()?;
                // The building has changed its settings.
                self.transaction.get(&index.entries, STATE)?;
                return Err(Error::Conflict {
                    container: index.entries.name().into(),
                    key: STATE.into(),
                });
            }
        }
        self.is_ready.set(true);
        Ok(())
    }

    /// The live item that holds a unique index key, unless it is this one.
    pub(super) fn holder(
        &self,
        index: &Definition,
        index_key: &[u8],
        key: &[u8],
    ) -> Result<Option<Item>> {
        let held_by = self
            .transaction
            .get(&index.entries, entry::beginning(index_key))?;
        let Some(held_by) = held_by.filter(|other| **other != *key) else {
            return Ok(None);
        };
        // Of a key that nobody can have, if another program has written the entry.
        if check_key(&held_by).is_err() {
            return Ok(None);
        }
        let holder = self.transaction.item(self.of.container(), &held_by)?;
        Ok(holder.filter(|holder| index.has(holder, index_key)))
    }

    /// The key of the entry of an item that is to have it.
    pub(super) fn claim(
        &self,
        index: &Definition,
        index_key: &[u8],
        key: &[u8],
    ) -> Result<Vec<u8>> {
        if index.is_unique
            && let Some(holder) = self.holder(index, index_key, key)?
        {
            return Err(Error::NotUnique {
                index: index.entries.name().into(),
                index_key: index_key.into(),
                key: holder.key().into(),
            });
        }
        entry::encoded(index_key, index.is_unique, key)
    }

    /// Writes the entry of an item. False: it has to stay for ever. In its container a life like the item's has passed, or an
    /// earlier default would have ended it; then the entry has a ttl of its own, which does not follow later defaults.
    pub(super) fn put_entry(
        &self,
        index: &Definition,
        entry: &[u8],
        key: &[u8],
        ttl: Ttl,
    ) -> Result<bool> {
        let (tx, entries) = (self.transaction, &index.entries);
        let value = if index.is_unique { key } else { &[] };
        tx.put_with_ttl(entries, entry, value, ttl)?;
        let has_its_life = match ttl {
            Ttl::Since(countdown) => {
                let written = tx.item(entries, entry)?;
                written.is_some_and(|written| written.countdown().1 == countdown.ttl())
            }
            _ => true,
        };
        if !has_its_life {
            tx.put_with_ttl(entries, entry, value, Ttl::Never)?;
        }
        Ok(has_its_life)
    }

    fn plan(
        &self,
        index: &'t Definition,
        key: &[u8],
        before: Option<&[u8]>,
        after: Option<&[u8]>,
    ) -> Result<Plan<'t>> {
        let index_keys = |value: Option<&[u8]>| match value {
            Some(value) => index.index_keys(key, value),
            None => vec![],
        };
        let (had, has) = (index_keys(before), index_keys(after));
        let mut deletes = vec![];
        for index_key in had.iter().filter(|one| has.binary_search(one).is_err()) {
            let entry = entry::encoded(index_key, index.is_unique, key)?;
            // Another item may have taken it over.
            let is_own = !index.is_unique
                || (self.transaction.get(&index.entries, &entry)?).is_some_and(|own| *own == *key);
            if is_own {
                deletes.push(entry);
            }
        }
        let puts = has
            .iter()
            .map(|index_key| self.claim(index, index_key, key));
        let puts = puts.collect::<Result<_>>()?;
        Ok(Plan {
            index,
            deletes,
            puts,
        })
    }

    /// Does to an item what is decided of it. Returns what was there, and whether something was written.
    fn change<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        decide: impl FnOnce(Option<&Item>) -> Update<V>,
    ) -> Result<(Option<Item>, bool)> {
        let (tx, items) = (self.transaction, self.of.container());
        let before = tx.item(items, key)?;
        self.check_ready()?;
        let decided = decide(before.as_ref());
        check(key, &decided)?;
        let old = before.as_ref().map(|item| &item.value()[..]);
        let (new, ttl) = match &decided {
            Update::Write(value, ttl) => (Some(value.as_ref()), *ttl),
            Update::Expire(ttl) if old.is_some() => (old, *ttl),
            Update::Delete if old.is_some() => (None, Ttl::Inherit),
            _ => return Ok((before, false)),
        };
        let ttl = match (ttl, &before) {
            (Ttl::Keep, Some(before)) => self.life_of(before),
            (Ttl::Keep, None) => Ttl::Inherit,
            (ttl, _) => ttl,
        };
        let indexes = self.of.indexes().iter();
        let plans = indexes.map(|index| self.plan(index, key, old, new));
        let plans = plans.collect::<Result<Vec<_>>>()?;
        for plan in &plans {
            self.write_entries(plan, key, ttl)?;
        }
        match decided {
            Update::Write(value, ttl) => tx.put_with_ttl(items, key, value, ttl)?,
            Update::Expire(ttl) => drop(tx.expire(items, key, ttl)?),
            _ => tx.delete(items, key)?,
        }
        // It was to live like an item whose life has passed.
        if matches!(ttl, Ttl::Since(_)) && !tx.contains(items, key)? {
            for plan in &plans {
                let (entries, mut puts) = (&plan.index.entries, plan.puts.iter());
                puts.try_for_each(|entry| tx.delete(entries, entry))?;
            }
        }
        Ok((before, true))
    }

    fn write_entries(&self, plan: &Plan<'_>, key: &[u8], ttl: Ttl) -> Result<()> {
        let entries = &plan.index.entries;
        for entry in &plan.deletes {
            self.transaction.delete(entries, entry)?;
        }
        for entry in &plan.puts {
            self.put_entry(plan.index, entry, key, ttl)?;
        }
        Ok(())
    }

    /// As [`IndexedContainer::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit)
    }

    /// As [`IndexedContainer::put_with_ttl`].
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let put = |_: Option<&Item>| Update::Write(value, ttl.into());
        self.change(key.as_ref(), put).map(drop)
    }

    /// As [`IndexedContainer::create`].
    pub fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let create = |found: Option<&Item>| match found {
            Some(_) => Update::Keep,
            None => Update::Write(value, ttl.into()),
        };
        Ok(self.change(key.as_ref(), create)?.1)
    }

    /// As [`IndexedContainer::replace`].
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let replace = |found: Option<&Item>| match found {
            Some(_) => Update::Write(value, ttl.into()),
            None => Update::Keep,
        };
        Ok(self.change(key.as_ref(), replace)?.1)
    }

    /// As [`IndexedContainer::upsert`].
    pub fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let put = |_: Option<&Item>| Update::Write(value, ttl.into());
        let (before, _) = self.change(key.as_ref(), put)?;
        let (before, written) = (before.map(|before| before.version()), self.written());
        Ok(Upserted { before, written })
    }

    /// As [`IndexedContainer::put_if`]. The closure is called once.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        accepts: impl FnOnce(Option<Version>) -> bool,
    ) -> Result<PutIf> {
        let put = |found: Option<&Item>| match accepts(found.map(Item::version)) {
            true => Update::Write(value, ttl.into()),
            false => Update::Keep,
        };
        let (before, is_written) = self.change(key.as_ref(), put)?;
        let before = before.map(|before| before.version());
        let written = is_written.then(|| self.written());
        Ok(PutIf { before, written })
    }

    /// As [`IndexedContainer::touch`].
    pub fn touch(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let touch = |found: Option<&Item>| match found {
            Some(item) => Update::<&[u8]>::Expire(own_ttl(item)),
            None => Update::Keep,
        };
        Ok(self.change(key.as_ref(), touch)?.1)
    }

    /// As [`IndexedContainer::get_and_touch`].
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        match self.touch(&key)? {
            true => self.transaction.item(self.of.container(), key),
            false => Ok(None),
        }
    }

    /// As [`IndexedContainer::touch_until`].
    pub fn touch_until(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let touched = self.get_and_touch(key)?;
        Ok(touched.map(|item| item.end_or_last()))
    }

    /// As [`IndexedContainer::expire`].
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool> {
        let expire = |_: Option<&Item>| Update::<&[u8]>::Expire(ttl.into());
        Ok(self.change(key.as_ref(), expire)?.1)
    }

    /// As [`IndexedContainer::take`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        let take = |_: Option<&Item>| Update::<&[u8]>::Delete;
        Ok(self.change(key.as_ref(), take)?.0)
    }

    /// As [`IndexedContainer::update`]. The closure is called once.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnOnce(Option<&Item>) -> Update,
    ) -> Result<bool> {
        Ok(self.change(key.as_ref(), decide)?.1)
    }

    /// As [`IndexedContainer::fetch_update`]. The closure is called once.
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnOnce(Option<&Item>) -> Update,
    ) -> Result<Updated> {
        let (before, is_written) = self.change(key.as_ref(), decide)?;
        let written = is_written.then(|| self.written());
        Ok(Updated::new(before, written))
    }

    /// A write of the transaction, until the commit gives it its version and time.
    fn written(&self) -> Written {
        Written::new(
            Seq::MAX,
            Timestamp::from_system_time_up(self.transaction.now()),
        )
    }

    /// As [`IndexedContainer::rename`].
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<bool> {
        let (from, to) = (from.as_ref(), to.as_ref());
        check_key(to)?;
        let Some(item) = self.transaction.item(self.of.container(), from)? else {
            return Ok(false);
        };
        if from == to {
            return Ok(true);
        }
        let life = self.life_of(&item);
        // First, so that it holds no index key any more; undone where the other write is refused.
        self.delete(from)?;
        if let Err(refused) = self.put_with_ttl(to, item.value(), life) {
            self.put_with_ttl(from, item.value(), life)?;
            return Err(refused);
        }
        // A bulk load brings items that no floor reaches, though their lives count as passed.
        if !self.transaction.contains(self.of.container(), to)? {
            self.put_with_ttl(to, item.value(), own_ttl(&item))?;
        }
        Ok(true)
    }

    /// As [`IndexedContainer::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.take(key).map(drop)
    }

    /// As [`IndexedContainer::delete_range`].
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        let (tx, items) = (self.transaction, self.of.container());
        if is_everything(&range) {
            tx.delete_range(items, ..)?;
            let mut indexes = self.of.indexes().iter();
            return indexes.try_for_each(|index| tx.delete_range(&index.entries, entry::all()));
        }
        let range = checked_range(range)?;
        let to = range.to.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(range.from), to);
        let keys = tx.keys(items, range).collect::<Result<Vec<_>>>()?;
        keys.iter().try_for_each(|key| self.delete(key))
    }

    /// As [`IndexedContainer::expire_all`].
    pub fn expire_all(&self) -> Result<()> {
        let tx = self.transaction;
        self.check_ready()?;
        tx.expire_all(self.of.container())?;
        for index in self.of.indexes() {
            tx.expire_all(&index.entries)?;
            let state = index.state(self.of.container().default_ttl());
            tx.put_with_ttl(&index.entries, STATE, state, Ttl::Never)?;
        }
        Ok(())
    }

    /// The live items that have an index key of the first index, in the order of their keys.
    pub fn find(&self, index_key: impl AsRef<[u8]>) -> Result<Vec<Item>> {
        self.find_at(0, index_key.as_ref())
    }

    /// The live items that have an index key of the index of this name.
    pub fn find_by(&self, index: &str, index_key: impl AsRef<[u8]>) -> Result<Vec<Item>> {
        self.find_at(self.of.place(index)?, index_key.as_ref())
    }

    fn find_at(&self, place: usize, index_key: &[u8]) -> Result<Vec<Item>> {
        self.check_ready()?;
        let (tx, index) = (self.transaction, &self.of.indexes()[place]);
        let mut found = vec![];
        for stored in tx.range(&index.entries, entry::in_range(index_key..=index_key)) {
            let stored = stored?;
            let key = index.key_of(&stored).map(|(_, key)| key);
            let Some(key) = key.filter(|key| check_key(key).is_ok()) else {
                continue;
            };
            let item = tx.item(self.of.container(), key)?;
            found.extend(item.filter(|item| index.has(item, index_key)));
        }
        Ok(found)
    }
}
