//! The state of an index, and how it comes to be what it should be.
//!
//! ```text
//! state      many 30m                  the kind, and the default ttl of items and entries since it was built
//! build      delete the state, set the default of the entries
//!            every item: write the entries that it lacks, with its life
//!            every entry: delete it unless its item has the index key
//!            store the state
//! ```
//!
//! Invariants:
//!
//! 1. While the state is as asked, which takes the items' default, the entries' default and the stored one to be the same,
//!    nothing but a write past the helper can make an entry missing: no entry ends before its item.
//! 2. A change of the default through the helper sets all of them in one batch, if the states were as asked before. A change
//!    past it makes the states differ from what is asked for, until the index is built.
//! 3. Building changes the settings of the entries' container, so it is a conflict for a transaction that began before.
//! 4. Building writes an entry if its item is as it was read, and deletes one if its item lacks the index key, each in a
//!    transaction. So it races with no writer. An entry of the other kind names no item, and goes.

use crate::api::batch::Batch;
use crate::api::transaction::Transaction;
use crate::base::{DefaultTtl, Result, Ttl};
use crate::data::item::Item;
use crate::data::write::Expect;
use crate::engine::options::Durability;
use crate::indexed::container::{Definition, IndexedContainer};
use crate::indexed::entry::{self, STATE};

impl Definition {
    /// The state that says that the index is built, under a default.
    pub fn state(&self, default: DefaultTtl) -> String {
        let kind = if self.is_unique { "unique" } else { "many" };
        format!("{kind} {default}")
    }

    /// The index key of a stored entry, and the key of its item. `None`: it is none of this index.
    pub fn key_of<'e>(&self, stored: &'e Item) -> Option<(Vec<u8>, &'e [u8])> {
        let (index_key, rest) = entry::decoded(stored.key())?;
        Some((
            index_key,
            if self.is_unique { stored.value() } else { rest },
        ))
    }
}

impl IndexedContainer {
    /// Whether an index is built, under the defaults of now. `state` is the stored one.
    pub(super) fn is_as_asked(&self, index: &Definition, state: Option<&[u8]>) -> bool {
        let default = self.container().default_ttl();
        index.entries.default_ttl() == default && state == Some(index.state(default).as_bytes())
    }

    pub(super) fn is_ready(&self, index: &Definition) -> Result<bool> {
        let state = index.entries.get(STATE)?;
        Ok(self.is_as_asked(index, state.as_deref()))
    }

    /// Builds the indexes that are not built.
    pub(super) fn make_ready(&self) -> Result<()> {
        let _one_builds = self.building().lock();
        self.build_others().map(drop)
    }

    /// Returns how many entries were written or deleted.
    fn build_others(&self) -> Result<u64> {
        let mut changed = 0;
        for index in self.indexes() {
            while !self.is_ready(index)? {
                changed += self.build(index)?;
            }
        }
        Ok(changed)
    }

    fn build(&self, index: &Definition) -> Result<u64> {
        let (entries, default) = (&index.entries, self.container().default_ttl());
        let mut batch = Batch::new();
        batch
            .delete(entries, STATE)
            .set_default_ttl(entries, default);
        self.db().write(batch)?;
        let changed = self.correct(index)?;
        let mut batch = Batch::new();
        batch.put_with_ttl(entries, STATE, index.state(default), Ttl::Never);
        self.db().write(batch)?;
        Ok(changed)
    }

    /// Gives each item the entries that it lacks, and removes those that no item has.
    fn correct(&self, index: &Definition) -> Result<u64> {
        let mut changed = 0;
        for key in self.container().keys(..) {
            let key = key?;
            changed += self.correct_by(|tx| self.complete(tx, index, &key))?;
        }
        for stored in index.entries.range(entry::all()) {
            let stored = stored?;
            if !self.is_true(index, &stored)? {
                changed += self.correct_by(|tx| self.remove_untrue(tx, index, stored.key()))?;
            }
        }
        Ok(changed)
    }

    /// In a transaction that does not wait for its sync: the state, which is stored later, is durable after all of them.
    fn correct_by(&self, mut call: impl FnMut(&Transaction) -> Result<u64>) -> Result<u64> {
        self.db().transaction(|tx| {
            tx.durability(Durability::Buffered);
            call(tx)
        })
    }

    fn complete(&self, tx: &Transaction, index: &Definition, key: &[u8]) -> Result<u64> {
        let Some(item) = tx.item(self.container(), key)? else {
            return Ok(0);
        };
        let (indexed, mut written) = (tx.indexed(self), 0);
        for index_key in index.index_keys(key, item.value()) {
            let entry = indexed.claim(index, &index_key, key)?;
            let found = tx.item(&index.entries, &entry)?;
            let found =
                found.filter(|found| index.key_of(found).is_some_and(|(_, other)| other == key));
            let life = |item: &Item| (item.written_at(), item.ttl());
            if found.as_ref().map(life) == Some(life(&item)) {
                continue;
            }
            let has_its_life = indexed.put_entry(index, &entry, key, Ttl::Like(&item))?;
            let was_for_ever = found.is_some_and(|found| found.ttl() == Ttl::Never);
            written += u64::from(has_its_life || !was_for_ever);
        }
        Ok(written)
    }

    /// Whether an entry says what its item says.
    fn is_true(&self, index: &Definition, stored: &Item) -> Result<bool> {
        let Some((index_key, key)) = index.key_of(stored).filter(|(_, key)| !key.is_empty()) else {
            return Ok(false);
        };
        let item = self.container().item(key)?;
        Ok(item.is_some_and(|item| index.has(&item, &index_key)))
    }

    fn remove_untrue(&self, tx: &Transaction, index: &Definition, entry: &[u8]) -> Result<u64> {
        let Some(stored) = tx.item(&index.entries, entry)? else {
            return Ok(0);
        };
        let named = index.key_of(&stored).filter(|(_, key)| !key.is_empty());
        if let Some((index_key, key)) = named
            && let Some(item) = tx.item(self.container(), key)?
            && index.has(&item, &index_key)
        {
            return Ok(0);
        }
        tx.delete(&index.entries, entry)?;
        Ok(1)
    }

    /// Makes the indexes true of all items: of those that were there before, or were written past this type. Reads every
    /// item and every entry; writes go on meanwhile, from this type and others, and each of them is either seen or writes its
    /// entries itself. Returns how many entries were missing, had another lifetime, or were of no item that has the index key.
    ///
    /// ```
    /// use ebbtide::{IndexedContainer, Options};
    ///
    /// let db = Options::temporary()?;
    /// let c = db.container("sessions")?;
    /// let sessions = IndexedContainer::new(&c, |_id, user| [user.to_vec()])?;
    /// c.bulk_load([("s-1", "ada"), ("s-2", "ada"), ("s-3", "grace")])?; // past the index
    /// assert_eq!(sessions.index().items("ada").count(), 0);
    /// assert_eq!(sessions.rebuild()?, 3);
    /// assert_eq!(sessions.index().items("ada").count(), 2);
    /// assert_eq!(sessions.rebuild()?, 0);
    /// # Ok::<(), ebbtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotUnique`](crate::Error::NotUnique) where two live items have one index key of a unique index: it names
    /// the one that keeps it.
    pub fn rebuild(&self) -> Result<u64> {
        let _one_builds = self.building().lock();
        let mut changed = self.build_others()?;
        for index in self.indexes() {
            changed += self.correct(index)?;
        }
        Ok(changed)
    }

    /// Changes the default ttl of the items and the entries at once, as [`Container::set_default_ttl`](crate::Container::set_default_ttl) does; use this, and
    /// not that, or the indexes have to be built anew.
    pub fn set_default_ttl(&self, default: DefaultTtl) -> Result<()> {
        self.write_with_states(Some(default), |batch| {
            batch.set_default_ttl(self.container(), default);
            for index in self.indexes() {
                batch.set_default_ttl(&index.entries, default);
            }
        })
    }

    /// Writes a batch and then, as part of it, the states, if all were as asked before. `default`: the one that the batch sets.
    pub(super) fn write_with_states(
        &self,
        default: Option<DefaultTtl>,
        add: impl Fn(&mut Batch),
    ) -> Result<()> {
        loop {
            let (mut batch, mut is_ready) = (Batch::new(), true);
            for index in self.indexes() {
                let state = index.entries.item(STATE)?;
                let value = state.as_ref().map(|state| &state.value()[..]);
                is_ready &= self.is_as_asked(index, value);
                if let Some(state) = &state {
                    let version = Expect::Version(state.version());
                    batch.require(&index.entries, STATE, version);
                }
            }
            if !is_ready {
                self.make_ready()?;
                continue;
            }
            let default = default.unwrap_or_else(|| self.container().default_ttl());
            add(&mut batch);
            for index in self.indexes() {
                batch.put_with_ttl(&index.entries, STATE, index.state(default), Ttl::Never);
            }
            match self.db().write(batch) {
                Err(error) if error.is_conflict() => {}
                written => return written,
            }
        }
    }
}
