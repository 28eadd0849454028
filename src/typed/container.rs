//! Typed containers, as users meet them.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::time::SystemTime;

use crate::api::container::Container;
use crate::api::database::Database;
use crate::api::writing::Update;
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::typed::item::{TypedItem, TypedUpdate, TypedUpdated};
use crate::typed::key::{self, TypedKey, TypedPrefix};
use crate::typed::read::{TypedIter, TypedKeys, encoded_range, typed_reading_methods};
use crate::typed::value::{self, TypedValue};

/// A [`Container`] with keys and values of the program's types: keys by an encoding that keeps their order ([`TypedKey`]),
/// values by serde ([`TypedValue`]; [`Json`](crate::Json) on request). Cheap to clone; clones, and the untyped container, are
/// the same container. With the feature `typed`.
///
/// A key is given as its borrowed form: `&str` where it is a `String`, `(&str, u64)` where it is a `(String, u64)`.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::Database;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Session {
///     user: String,
///     visits: u32,
/// }
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let sessions = db.typed::<String, Session>("sessions")?;
/// let session = Session { user: "ada".into(), visits: 1 };
/// sessions.put_with_ttl("s-1", &session, Duration::from_secs(1_800))?;
/// assert_eq!(sessions.get("s-1")?, Some(session));
///
/// let by_user = db.typed::<(String, u64), String>("sessions by user")?;
/// by_user.put(("ada", 17), &"s-1".into())?;
/// for item in by_user.prefix(("ada",)) {
///     let item = item?;
///     assert_eq!((item.key.1, &item.value[..]), (17, "s-1"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What is stored
/// Items like any others, which [`TypedContainer::untyped`] and the command line read: a `String` is its own bytes, and
/// [`Json`](crate::Json) its text. Other keys, and values in postcard's format, are shown by `ebbtide get --hex` or `--base64`.
/// Nothing on disk says of which types they are: another type may read them as other values.
///
/// # Errors
/// All methods have the errors of [`Container`]. Reading also returns [`Error::Decode`](crate::Error::Decode) for stored bytes that
/// are not of the types; writing also returns [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a value that its format
/// cannot encode.
pub struct TypedContainer<K, V> {
    untyped: Container,
    types: PhantomData<fn() -> (K, V)>,
}

impl Database {
    /// Opens a container, or creates it as [`Database::container`] does, with keys and values of these types. With the feature
    /// `typed`.
    pub fn typed<K: TypedKey, V: TypedValue>(
        &self,
        name: impl AsRef<str>,
    ) -> Result<TypedContainer<K, V>> {
        self.container(name).map(|container| container.typed())
    }
}

impl Container {
    /// The same container, with keys and values of these types. With the feature `typed`.
    ///
    /// ```
    /// use ebbtide::{Compression, ContainerOptions, Database, Json};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let options = ContainerOptions::new().compression(Compression::Lz4);
    /// let pages = db.container_with("pages", options)?.typed::<u64, Json<Vec<String>>>();
    /// pages.put(7, &vec!["a line".to_owned()])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn typed<K: TypedKey, V: TypedValue>(&self) -> TypedContainer<K, V> {
        TypedContainer {
            untyped: self.clone(),
            types: PhantomData,
        }
    }
}

impl<K: TypedKey, V: TypedValue> TypedContainer<K, V> {
    /// The same container with keys and values as bytes; settings and statistics are there.
    #[must_use]
    pub fn untyped(&self) -> &Container {
        &self.untyped
    }

    /// Stores an item that inherits the container's default.
    pub fn put(&self, key: K::Borrowed<'_>, value: &V::Data) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own, as [`Container::put_with_ttl`] does.
    pub fn put_with_ttl(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let value = value::encoded::<V>(value)?;
        self.untyped
            .put_with_ttl(key::encoded::<K>(&key), value, ttl)
    }

    /// Stores an item if no live one has the key. False: one has, and nothing was written.
    pub fn create(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let value = value::encoded::<V>(value)?;
        self.untyped.create(key::encoded::<K>(&key), value, ttl)
    }

    /// Stores an item if a live one has the key, whatever its value is. False: none has, and nothing was written.
    pub fn replace(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let value = value::encoded::<V>(value)?;
        self.untyped.replace(key::encoded::<K>(&key), value, ttl)
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    pub fn touch(&self, key: K::Borrowed<'_>) -> Result<bool> {
        self.untyped.touch(key::encoded::<K>(&key))
    }

    /// As [`TypedContainer::touch`], and returns the item as it is from then on, as [`Container::get_and_touch`] does. `None`:
    /// there is none. One that is not of the types is an error, and is not touched.
    pub fn get_and_touch(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
        let mut decoded = None;
        let touched = self
            .untyped
            .touch_accepted(&key::encoded::<K>(&key), |found| {
                decoded = found.map(|item| self.typed_item(item.clone()));
                matches!(decoded, Some(Ok(_)))
            })?;
        let decoded = decoded.transpose()?;
        Ok(decoded
            .zip(touched)
            .map(|(item, stored)| TypedItem { stored, ..item }))
    }

    /// As [`TypedContainer::touch`], and returns the item's new end, as [`Container::touch_until`] does. `None`: there is none.
    pub fn touch_until(&self, key: K::Borrowed<'_>) -> Result<Option<SystemTime>> {
        self.untyped.touch_until(key::encoded::<K>(&key))
    }

    /// Gives a live item this ttl, as [`Container::expire`] does. False: there is none.
    pub fn expire(&self, key: K::Borrowed<'_>, ttl: impl Into<Ttl>) -> Result<bool> {
        self.untyped.expire(key::encoded::<K>(&key), ttl)
    }

    /// Removes a live item and returns it, as one step: of several callers one gets it. `None`: there is none. One that is
    /// not of the types stays.
    pub fn take(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
        let taken = self.fetch_update(key, |_| TypedUpdate::Delete)?;
        Ok(taken.before)
    }

    /// Reads an item and decides what becomes of it, as one step, as [`Container::update`] does. True: the item was changed.
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

    /// As [`TypedContainer::update`], with values that are borrowed.
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
        self.update_by(key, decide)
            .map(|done| done.written.is_some())
    }

    /// As [`TypedContainer::update`], and tells the item that was there before and what was written.
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
        let (mut before, mut refused) = (None, None);
        let mut step = |found: Option<&Item>| {
            before = found
                .map(|item| self.typed_item(item.clone()))
                .transpose()?;
            decide(before.as_ref()).encoded::<V>()
        };
        let done = self
            .untyped
            .fetch_update(key::encoded::<K>(&key), |found| {
                let (update, error) = match step(found) {
                    Ok(update) => (update, None),
                    Err(error) => (Update::Keep, Some(error)),
                };
                refused = error;
                update
            })?;
        let written = done.written;
        refused.map_or(Ok(TypedUpdated { before, written }), Err)
    }

    /// Deletes an item, blindly: it is no error when there is none.
    pub fn delete(&self, key: K::Borrowed<'_>) -> Result<()> {
        self.untyped.delete(key::encoded::<K>(&key))
    }

    /// Deletes every item whose key lies in the range, in one step, as [`Container::delete_range`] does.
    pub fn delete_range<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> Result<()> {
        self.untyped.delete_range(encoded_range::<K>(&range))
    }

    /// Loads items whose keys ascend straight into tables, as one write, as [`Container::bulk_load`] does. Each value is
    /// encoded when its turn comes; one that cannot be is the load's error, and nothing is loaded.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let squares = Database::open(folder.path())?.typed::<i32, i64>("squares")?;
    /// squares.bulk_load((-500..500).map(|n| (n, i64::from(n) * i64::from(n))))?;
    /// assert_eq!(squares.get(-499)?, Some(249_001));
    /// assert_eq!(squares.first()?.unwrap().key, -500); // the order of keys is that of the type
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bulk_load<D: Borrow<V::Data>>(
        &self,
        items: impl IntoIterator<Item = (K, D)>,
    ) -> Result<Written> {
        let items = items.into_iter();
        self.bulk_load_with_ttl(items.map(|(key, value)| Ok((key, value, Ttl::Inherit))))
    }

    /// Like [`TypedContainer::bulk_load`], of items with a ttl each, as [`Container::bulk_load_with_ttl`] does.
    pub fn bulk_load_with_ttl<D: Borrow<V::Data>>(
        &self,
        items: impl IntoIterator<Item = Result<(K, D, Ttl)>>,
    ) -> Result<Written> {
        let items = items.into_iter().map(|item| {
            let (key, value, ttl) = item?;
            let value = value::encoded::<V>(value.borrow())?;
            Ok((key::encoded::<K>(&key.as_borrowed()), value, ttl))
        });
        self.untyped.bulk_load_with_ttl(items)
    }

    /// The values of many keys, in the order asked; `None` where no live item is.
    pub fn get_many<'k>(
        &self,
        keys: impl IntoIterator<Item = K::Borrowed<'k>>,
    ) -> Result<Vec<Option<V::Data>>> {
        let keys: Vec<_> = keys
            .into_iter()
            .map(|key| key::encoded::<K>(&key))
            .collect();
        let found = self.untyped.get_many(&keys)?;
        let decoded = keys.iter().zip(found).map(|(key, stored)| {
            let stored = stored.as_deref();
            stored
                .map(|stored| value::decoded::<V>(self.name(), key, stored))
                .transpose()
        });
        decoded.collect()
    }
}

typed_reading_methods!(TypedContainer);
