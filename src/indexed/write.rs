//! Writes of a container with indexes: each is a transaction of one call.

use std::ops::Bound;
use std::time::SystemTime;

use crate::api::arguments::KeyBounds;
use crate::api::writing::Update;
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::indexed::container::IndexedContainer;
use crate::indexed::transaction::IndexedTransaction;

impl IndexedContainer {
    /// Runs a call in a transaction of its own.
    fn run<T>(&self, mut call: impl FnMut(&IndexedTransaction<'_>) -> Result<T>) -> Result<T> {
        self.db().transaction(|tx| call(&tx.indexed(self)))
    }

    /// The same, and what was written. Of the writes of a call that of the item is the last one, whose version this is.
    fn run_and_tell<T>(
        &self,
        mut call: impl FnMut(&IndexedTransaction<'_>) -> Result<T>,
    ) -> Result<(T, Written)> {
        self.db().try_transaction(|tx| call(&tx.indexed(self)))
    }

    /// As [`Container::put`](crate::Container::put), with the item's entries.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit)
    }

    /// As [`Container::put_with_ttl`](crate::Container::put_with_ttl), with the item's entries.
    ///
    /// # Errors
    /// As of that, and [`Error::NotUnique`](crate::Error::NotUnique).
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let ttl = ttl.into();
        self.run(|tx| tx.put_with_ttl(&key, &value, ttl))
    }

    /// As [`Container::create`](crate::Container::create), with the item's entries.
    pub fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let ttl = ttl.into();
        self.run(|tx| tx.create(&key, &value, ttl))
    }

    /// As [`Container::replace`](crate::Container::replace), with the item's entries.
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let ttl = ttl.into();
        self.run(|tx| tx.replace(&key, &value, ttl))
    }

    /// As [`Container::upsert`](crate::Container::upsert), with the item's entries, for which the value that is there is read.
    ///
    /// # Errors
    /// As of [`IndexedContainer::put_with_ttl`].
    pub fn upsert(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let ttl = ttl.into();
        let (done, written) = self.run_and_tell(|tx| tx.upsert(&key, &value, ttl))?;
        let before = done.before;
        Ok(Upserted { before, written })
    }

    /// As [`Container::put_if`](crate::Container::put_if), with the item's entries, for which the value that is there is read.
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
        mut accepts: impl FnMut(Option<Version>) -> bool,
    ) -> Result<PutIf> {
        let ttl = ttl.into();
        let (done, written) = self.run_and_tell(|tx| tx.put_if(&key, &value, ttl, &mut accepts))?;
        let (before, written) = (done.before, done.written.map(|_| written));
        Ok(PutIf { before, written })
    }

    /// As [`Container::touch`](crate::Container::touch), with the item's entries.
    pub fn touch(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.run(|tx| tx.touch(&key))
    }

    /// As [`Container::get_and_touch`](crate::Container::get_and_touch), with the item's entries.
    pub fn get_and_touch(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        let (touched, written) = self.run_and_tell(|tx| tx.get_and_touch(&key))?;
        Ok(touched.map(|item| item.touched(written.stamp())))
    }

    /// As [`Container::touch_until`](crate::Container::touch_until), with the item's entries.
    pub fn touch_until(&self, key: impl AsRef<[u8]>) -> Result<Option<SystemTime>> {
        let touched = self.get_and_touch(key)?;
        Ok(touched.map(|item| item.end_or_last()))
    }

    /// As [`Container::expire`](crate::Container::expire), with the item's entries.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: impl Into<Ttl>) -> Result<bool> {
        let ttl = ttl.into();
        self.run(|tx| tx.expire(&key, ttl))
    }

    /// As [`Container::take`](crate::Container::take), with the item's entries.
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.run(|tx| tx.take(&key))
    }

    /// As [`Container::update`](crate::Container::update), with the item's entries. The closure is called again where others have written the key.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<bool> {
        self.run(|tx| tx.update(&key, &mut decide))
    }

    /// As [`Container::fetch_update`](crate::Container::fetch_update), with the item's entries.
    pub fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<Updated> {
        let (done, written) = self.run_and_tell(|tx| tx.fetch_update(&key, &mut decide))?;
        let written = done.written.map(|_| written);
        Ok(Updated::new(done.before, written))
    }

    /// Gives a live item another key, with its lifetime as it is, as [`Batch::rename`](crate::Batch::rename) does; what had that key is replaced.
    /// False: there is no live item.
    pub fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<bool> {
        self.run(|tx| tx.rename(&from, &to))
    }

    /// As [`Container::delete`](crate::Container::delete), with the item's entries.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.run(|tx| tx.delete(&key))
    }

    /// As [`Container::delete_range`](crate::Container::delete_range), with the entries: it reads the items of the range, unless that is all of them, and
    /// has memory for their entries.
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<()> {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        let range = (owned(range.start()), owned(range.end()));
        self.run(|tx| tx.delete_range(range.clone()))
    }

    /// As [`Container::clear`](crate::Container::clear), with the entries.
    pub fn clear(&self) -> Result<()> {
        self.delete_range(..)
    }

    /// As [`Container::expire_before`](crate::Container::expire_before), with the entries, in one step.
    pub fn expire_before(&self, moment: SystemTime) -> Result<()> {
        self.write_with_states(None, |batch| {
            batch.expire_before(self.container(), moment);
            for index in self.indexes() {
                batch.expire_before(&index.entries, moment);
            }
        })
    }

    /// As [`Container::expire_written_before`](crate::Container::expire_written_before), with the entries, in one step.
    pub fn expire_written_before(&self, moment: SystemTime) -> Result<()> {
        self.write_with_states(None, |batch| {
            batch.expire_written_before(self.container(), moment);
            for index in self.indexes() {
                batch.expire_written_before(&index.entries, moment);
            }
        })
    }

    /// As [`Container::expire_all`](crate::Container::expire_all), with the entries, in one step.
    pub fn expire_all(&self) -> Result<()> {
        self.run(|tx| tx.expire_all())
    }
}
