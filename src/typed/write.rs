//! Writing with types: the same methods on a typed container and in a transaction.
//!
//! [`typed_writing_methods`] writes them, with their documentation, for a type whose `writing()` is what it writes to.

use std::borrow::Borrow;

use crate::api::writing::Update;
use crate::base::Result;
use crate::data::item::Item;
use crate::typed::item::{TypedItem, TypedUpdate};
use crate::typed::key::TypedKey;
use crate::typed::value::TypedValue;

/// The item that the closure of an update was shown, if there was one; or why there is no answer that can be written.
pub type Shown<K, V> = Result<Option<TypedItem<K, <V as TypedValue>::Data>>>;

/// A turn of an update, and what is to be done.
pub fn turn<K: TypedKey, V: TypedValue, D: Borrow<V::Data>>(
    container: &str,
    found: Option<&Item>,
    decide: impl FnOnce(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<D>,
) -> (Shown<K, V>, Update) {
    let item = found.map(|item| TypedItem::of::<V>(container, item.clone()));
    let decided = item.transpose().and_then(|item| {
        let update = decide(item.as_ref()).encoded::<V>()?;
        Ok((item, update))
    });
    match decided {
        Ok((item, update)) => (Ok(item), update),
        Err(error) => (Err(error), Update::Keep),
    }
}

/// The methods by which a container is written to.
macro_rules! typed_writing_methods {
    ($handle:ty) => {
        // A handle on a transaction has its lifetime.
        #[allow(clippy::extra_unused_lifetimes)]
        impl<'t, K: TypedKey, V: TypedValue> $handle {
            /// Stores an item that inherits the container's default.
            pub fn put(&self, key: K::Borrowed<'_>, value: &V::Data) -> Result<()> {
                self.put_with_ttl(key, value, Ttl::Inherit)
            }

            /// Stores a value that is given in a borrowed form, `str` for `String` or `[T]` for `Vec<T>`, and copied to be encoded.
            ///
            /// ```
            /// use ebbtide::{Database, Ttl};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let names = Database::open(folder.path())?.typed::<u64, String>("names")?;
            /// names.put_borrowed(7, "ada", Ttl::Inherit)?;
            /// assert_eq!(names.get(7)?.unwrap(), "ada");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn put_borrowed<Q: ToOwned<Owned = V::Data> + ?Sized>(
                &self,
                key: K::Borrowed<'_>,
                value: &Q,
                ttl: impl Into<Ttl>,
            ) -> Result<()> {
                self.put_with_ttl(key, &value.to_owned(), ttl)
            }

            /// Stores an item with a ttl of its own, as [`Container::put_with_ttl`](crate::Container::put_with_ttl) does.
            pub fn put_with_ttl(
                &self,
                key: K::Borrowed<'_>,
                value: &V::Data,
                ttl: impl Into<Ttl>,
            ) -> Result<()> {
                let value = value::encoded::<V>(value)?;
                let key = key::encoded::<K>(&key);
                self.writing().put(&key, &value, ttl.into())
            }

            /// Stores an item if no live one has the key. False: one has, and nothing was written.
            pub fn create(
                &self,
                key: K::Borrowed<'_>,
                value: &V::Data,
                ttl: impl Into<Ttl>,
            ) -> Result<bool> {
                let value = value::encoded::<V>(value)?;
                let key = key::encoded::<K>(&key);
                self.writing().create(&key, &value, ttl.into())
            }

            /// Stores an item if a live one has the key, whatever its value is. False: none has, and nothing was written.
            pub fn replace(
                &self,
                key: K::Borrowed<'_>,
                value: &V::Data,
                ttl: impl Into<Ttl>,
            ) -> Result<bool> {
                let value = value::encoded::<V>(value)?;
                let key = key::encoded::<K>(&key);
                self.writing().replace(&key, &value, ttl.into())
            }

            /// Stores an item whatever is there, and tells the version of the live item that it has replaced.
            pub fn upsert(
                &self,
                key: K::Borrowed<'_>,
                value: &V::Data,
                ttl: impl Into<Ttl>,
            ) -> Result<Upserted> {
                let value = value::encoded::<V>(value)?;
                let key = key::encoded::<K>(&key);
                self.writing().upsert(&key, &value, ttl.into())
            }

            /// Stores an item if the version of the live item of its key is accepted, whatever its value is, and tells both
            /// versions, as [`Container::put_if`](crate::Container::put_if) does.
            pub fn put_if(
                &self,
                key: K::Borrowed<'_>,
                value: &V::Data,
                ttl: impl Into<Ttl>,
                accepts: impl FnMut(Option<Version>) -> bool,
            ) -> Result<PutIf> {
                let value = value::encoded::<V>(value)?;
                let key = key::encoded::<K>(&key);
                self.writing().put_if(&key, &value, ttl.into(), accepts)
            }

            /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
            pub fn touch(&self, key: K::Borrowed<'_>) -> Result<bool> {
                self.writing().touch(&key::encoded::<K>(&key))
            }

            /// As [`Self::touch`], and returns the item as it is from then on, as
            /// [`Container::get_and_touch`](crate::Container::get_and_touch) does. `None`: there is none. One that is not of the
            /// types is an error, and is not touched.
            pub fn get_and_touch(
                &self,
                key: K::Borrowed<'_>,
            ) -> Result<Option<TypedItem<K, V::Data>>> {
                let mut decoded = None;
                let key = key::encoded::<K>(&key);
                let touched = self.writing().get_and_touch(&key, |found| {
                    decoded = found.map(|item| TypedItem::of::<V>(self.name(), item.clone()));
                    matches!(decoded, Some(Ok(_)))
                })?;
                let decoded: Option<TypedItem<K, V::Data>> = decoded.transpose()?;
                let both = decoded.zip(touched);
                Ok(both.map(|(item, stored)| TypedItem { stored, ..item }))
            }

            /// As [`Self::touch`], and returns the item's new end, as [`Container::touch_until`](crate::Container::touch_until)
            /// does. `None`: there is none.
            pub fn touch_until(&self, key: K::Borrowed<'_>) -> Result<Option<SystemTime>> {
                self.writing().touch_until(&key::encoded::<K>(&key))
            }

            /// Gives a live item this ttl, as [`Container::expire`](crate::Container::expire) does. False: there is none.
            pub fn expire(&self, key: K::Borrowed<'_>, ttl: impl Into<Ttl>) -> Result<bool> {
                let key = key::encoded::<K>(&key);
                self.writing().expire(&key, ttl.into())
            }

            /// Removes a live item and returns it, as one step: of several callers one gets it. `None`: there is none. One that is
            /// not of the types stays.
            pub fn take(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
                let taken = self.fetch_update(key, |_| TypedUpdate::Delete)?;
                Ok(taken.before)
            }

            /// Reads an item and decides what becomes of it, as one step, as [`Container::update`](crate::Container::update) does. True: the item was changed.
            /// One that is not of the types is an error, and stays.
            ///
            /// ```
            /// use ebbtide::{Database, Ttl, TypedUpdate};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let counters = Database::open(folder.path())?.typed::<String, u64>("counters")?;
            /// let add = |n| {
            ///     counters.update("hits", |item| {
            ///         TypedUpdate::Put(item.map_or(0, |item| item.value) + n, Ttl::Inherit)
            ///     })
            /// };
            /// add(2)?;
            /// add(3)?; // from however many threads: none is lost
            /// assert_eq!(counters.get("hits")?, Some(5));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn update(
                &self,
                key: K::Borrowed<'_>,
                decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<V::Data>,
            ) -> Result<bool> {
                self.fetch_update(key, decide)
                    .map(|done| done.written.is_some())
            }

            /// As [`Self::update`], with values that are borrowed.
            ///
            /// ```
            /// use ebbtide::{Database, Ttl, TypedUpdate};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let words = Database::open(folder.path())?.typed::<String, Vec<String>>("words")?;
            /// let found = vec!["ebb".to_owned(), "tide".to_owned()];
            /// words.update_with("all", |_| TypedUpdate::Put(&found, Ttl::Inherit))?;
            /// assert_eq!(words.get("all")?, Some(found));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn update_with<D: Borrow<V::Data>>(
                &self,
                key: K::Borrowed<'_>,
                decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<D>,
            ) -> Result<bool> {
                let done = self.update_by(key, decide)?;
                Ok(done.written.is_some())
            }

            /// As [`Self::update`], and tells the item that was there before and what was written.
            pub fn fetch_update(
                &self,
                key: K::Borrowed<'_>,
                decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<V::Data>,
            ) -> Result<TypedUpdated<K, V::Data>> {
                self.update_by(key, decide)
            }

            fn update_by<D: Borrow<V::Data>>(
                &self,
                key: K::Borrowed<'_>,
                mut decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<D>,
            ) -> Result<TypedUpdated<K, V::Data>> {
                let (key, mut shown) = (key::encoded::<K>(&key), Ok(None));
                let done = self.writing().fetch_update(&key, |found| {
                    let (item, update) = turn::<K, V, D>(self.name(), found, &mut decide);
                    shown = item;
                    update
                })?;
                let (before, written) = (shown?, done.written);
                Ok(TypedUpdated { before, written })
            }

            /// Deletes an item, blindly: it is no error when there is none.
            pub fn delete(&self, key: K::Borrowed<'_>) -> Result<()> {
                self.writing().delete(&key::encoded::<K>(&key))
            }

            /// Deletes every item whose key lies in the range, in one step, as [`Container::delete_range`](crate::Container::delete_range) does.
            pub fn delete_range<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> Result<()> {
                self.writing().delete_range(encoded_range::<K>(&range))
            }
        }
    };
}
pub(crate) use typed_writing_methods;
