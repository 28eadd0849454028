//! Typed containers, as tasks use them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::SystemTime;

use crate::base::sync::Mutex;
use crate::base::{Error, Result, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Upserted};
use crate::tokio::container::AsyncContainer;
use crate::tokio::database::{AsyncDatabase, AsyncView};
use crate::tokio::typed_read::{TypedItemStream, TypedKeyStream, async_typed_reading_methods};
use crate::typed::container::TypedContainer;
use crate::typed::item::{TypedItem, TypedUpdate, TypedUpdated};
use crate::typed::key::{self, TypedKey, TypedPrefix};
use crate::typed::read::encoded_range;
use crate::typed::value::{self, TypedValue};
use crate::typed::write::{Shown, turn};

/// A [`TypedContainer`] for tasks: what [`AsyncContainer`] is to a container. With the feature `typed`, too.
///
/// A transaction over typed containers runs on a thread of the pool, which takes them by
/// [`AsyncTypedContainer::as_sync`]:
///
/// ```
/// use ebbtide::tokio::AsyncDatabase;
///
/// #[derive(Debug)]
/// enum Refused {
///     Poor,
///     Failed(ebbtide::Error),
/// }
///
/// impl From<ebbtide::Error> for Refused {
///     fn from(error: ebbtide::Error) -> Refused {
///         Refused::Failed(error)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let db = AsyncDatabase::open(folder.path()).await?;
/// let accounts = db.typed::<String, u64>("accounts").await?;
/// accounts.put("ada", &50).await?;
///
/// let of = accounts.clone();
/// let paid = db.try_transaction(move |tx| -> Result<u64, Refused> {
///     let accounts = tx.typed(of.as_sync());
///     let left = accounts.get("ada")?.unwrap_or(0).checked_sub(60).ok_or(Refused::Poor)?;
///     accounts.put("ada", &left)?;
///     Ok(left)
/// });
/// assert!(matches!(paid.await, Err(Refused::Poor)));
/// assert_eq!(accounts.get("ada").await?, Some(50));
/// # Ok(()) }
/// ```
pub struct AsyncTypedContainer<K, V> {
    of: TypedContainer<K, V>,
    untyped: AsyncContainer,
}

/// Derived, it would ask the types to be `Clone`.
impl<K, V> Clone for AsyncTypedContainer<K, V> {
    fn clone(&self) -> Self {
        AsyncTypedContainer {
            of: self.of.clone(),
            untyped: self.untyped.clone(),
        }
    }
}

impl<K, V> fmt::Debug for AsyncTypedContainer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncTypedContainer")
            .field(&self.untyped)
            .finish()
    }
}

impl AsyncDatabase {
    /// As [`Database::typed`](crate::Database::typed).
    pub async fn typed<K: TypedKey, V: TypedValue>(
        &self,
        name: impl AsRef<str>,
    ) -> Result<AsyncTypedContainer<K, V>> {
        let container = self.container(name).await?;
        Ok(container.typed())
    }
}

impl AsyncContainer {
    /// As [`Container::typed`](crate::Container::typed).
    #[must_use]
    pub fn typed<K: TypedKey, V: TypedValue>(&self) -> AsyncTypedContainer<K, V> {
        AsyncTypedContainer {
            of: self.as_sync().typed(),
            untyped: self.clone(),
        }
    }
}

impl<K: TypedKey, V: TypedValue> AsyncTypedContainer<K, V> {
    /// The container itself, whose calls may wait: for a [`Transaction`](crate::Transaction) or a
    /// [`Batch`](crate::Batch), or for threads that may.
    #[must_use]
    pub fn as_sync(&self) -> &TypedContainer<K, V> {
        &self.of
    }

    /// The same container with keys and values as bytes; settings and statistics are there.
    #[must_use]
    pub fn untyped(&self) -> &AsyncContainer {
        &self.untyped
    }

    /// As [`TypedContainer::put`].
    pub async fn put(&self, key: K::Borrowed<'_>, value: &V::Data) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit).await
    }

    /// As [`TypedContainer::put_with_ttl`].
    pub async fn put_with_ttl(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let (key, value) = (key::encoded::<K>(&key), value::encoded::<V>(value)?);
        self.untyped.put_with_ttl(key, value, ttl).await
    }

    /// As [`TypedContainer::put_borrowed`].
    pub async fn put_borrowed<Q: ToOwned<Owned = V::Data> + ?Sized>(
        &self,
        key: K::Borrowed<'_>,
        value: &Q,
        ttl: impl Into<Ttl>,
    ) -> Result<()> {
        let (key, value) = (
            key::encoded::<K>(&key),
            value::encoded::<V>(&value.to_owned())?,
        );
        self.untyped.put_with_ttl(key, value, ttl).await
    }

    /// As [`TypedContainer::create`].
    pub async fn create(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value) = (key::encoded::<K>(&key), value::encoded::<V>(value)?);
        self.untyped.create(key, value, ttl).await
    }

    /// As [`TypedContainer::replace`].
    pub async fn replace(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<bool> {
        let (key, value) = (key::encoded::<K>(&key), value::encoded::<V>(value)?);
        self.untyped.replace(key, value, ttl).await
    }

    /// As [`TypedContainer::upsert`].
    pub async fn upsert(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> Result<Upserted> {
        let (key, value) = (key::encoded::<K>(&key), value::encoded::<V>(value)?);
        self.untyped.upsert(key, value, ttl).await
    }

    /// As [`TypedContainer::put_if`]; see [`AsyncContainer::put_if`] for where the closure is called.
    pub async fn put_if(
        &self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
        accepts: impl FnMut(Option<Version>) -> bool + Send + 'static,
    ) -> Result<PutIf> {
        let (key, value) = (key::encoded::<K>(&key), value::encoded::<V>(value)?);
        self.untyped.put_if(key, value, ttl, accepts).await
    }

    /// As [`TypedContainer::touch`].
    pub async fn touch(&self, key: K::Borrowed<'_>) -> Result<bool> {
        self.untyped.touch(key::encoded::<K>(&key)).await
    }

    /// As [`TypedContainer::touch_until`].
    pub async fn touch_until(&self, key: K::Borrowed<'_>) -> Result<Option<SystemTime>> {
        self.untyped.touch_until(key::encoded::<K>(&key)).await
    }

    /// As [`TypedContainer::expire`].
    pub async fn expire(&self, key: K::Borrowed<'_>, ttl: impl Into<Ttl>) -> Result<bool> {
        self.untyped.expire(key::encoded::<K>(&key), ttl).await
    }

    /// As [`TypedContainer::delete`].
    pub async fn delete(&self, key: K::Borrowed<'_>) -> Result<()> {
        self.untyped.delete(key::encoded::<K>(&key)).await
    }

    /// As [`TypedContainer::delete_range`].
    pub async fn delete_range<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> Result<()> {
        self.untyped.delete_range(encoded_range::<K>(&range)).await
    }
}

/// Updates decide on a thread of the task or of the pool, so that what they show is sent between these.
impl<K, V> AsyncTypedContainer<K, V>
where
    K: TypedKey + Send + 'static,
    V: TypedValue + 'static,
    V::Data: Send + 'static,
{
    /// As [`TypedContainer::get_and_touch`].
    pub async fn get_and_touch(
        &self,
        key: K::Borrowed<'_>,
    ) -> Result<Option<TypedItem<K, V::Data>>> {
        let shown: Arc<Mutex<Shown<K, V>>> = Arc::new(Mutex::new(Ok(None)));
        let (shows, name) = (shown.clone(), self.name().to_owned());
        let accepts = move |found: Option<&Item>| {
            let decoded = found.map(|item| TypedItem::of::<V>(&name, item.clone()));
            let decoded = decoded.transpose();
            let is_accepted = matches!(decoded, Ok(Some(_)));
            *shows.lock() = decoded;
            is_accepted
        };
        let key = key::encoded::<K>(&key);
        let touched = self.untyped.touch_if(key, accepts).await?;
        let shown = std::mem::replace(&mut *shown.lock(), Ok(None))?;
        let both = shown.zip(touched);
        Ok(both.map(|(item, stored)| TypedItem { stored, ..item }))
    }

    /// As [`TypedContainer::take`].
    pub async fn take(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
        let taken = self.fetch_update(key, |_| TypedUpdate::Delete).await?;
        Ok(taken.before)
    }

    /// As [`TypedContainer::update`]; see [`AsyncContainer::update`] for where the closure is called.
    pub async fn update(
        &self,
        key: K::Borrowed<'_>,
        decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<V::Data> + Send + 'static,
    ) -> Result<bool> {
        let updated = self.fetch_update(key, decide).await?;
        Ok(updated.written.is_some())
    }

    /// As [`TypedContainer::fetch_update`]; see [`AsyncContainer::update`] for where the closure is called.
    pub async fn fetch_update(
        &self,
        key: K::Borrowed<'_>,
        mut decide: impl FnMut(Option<&TypedItem<K, V::Data>>) -> TypedUpdate<V::Data> + Send + 'static,
    ) -> Result<TypedUpdated<K, V::Data>> {
        let shown: Arc<Mutex<Shown<K, V>>> = Arc::new(Mutex::new(Ok(None)));
        let (shows, name) = (shown.clone(), self.name().to_owned());
        let step = move |found: Option<&Item>| {
            let (item, update) = turn::<K, V, V::Data>(&name, found, &mut decide);
            *shows.lock() = item;
            update
        };
        let key = key::encoded::<K>(&key);
        let done = self.untyped.fetch_update(key, step).await?;
        let shown = std::mem::replace(&mut *shown.lock(), Ok(None));
        let (before, written) = (shown?, done.written);
        Ok(TypedUpdated { before, written })
    }
}

/// Filling a cache.
impl<K: TypedKey, V: TypedValue> AsyncTypedContainer<K, V> {
    /// As [`TypedContainer::get_with`]; see [`AsyncContainer::get_with`].
    pub async fn get_with<T: Into<Ttl>>(
        &self,
        key: K::Borrowed<'_>,
        make: impl AsyncFnOnce() -> Result<(V::Data, T)>,
    ) -> Result<V::Data> {
        self.try_get_with(key, make).await
    }

    /// As [`TypedContainer::try_get_with`]; see [`AsyncContainer::get_with`].
    pub async fn try_get_with<T: Into<Ttl>, E: From<Error>>(
        &self,
        key: K::Borrowed<'_>,
        make: impl AsyncFnOnce() -> Result<(V::Data, T), E>,
    ) -> Result<V::Data, E> {
        let key = key::encoded::<K>(&key);
        let make = async || {
            let (made, ttl) = make().await?;
            Ok::<_, E>((value::encoded::<V>(&made)?, ttl))
        };
        let stored = self.untyped.try_get_with(&key, make).await?;
        Ok(value::decoded::<V>(self.name(), &key, &stored)?)
    }
}

/// A [`TypedView`](crate::TypedView) for tasks; [`AsyncView::typed`] makes it.
#[must_use = "items are read when they are asked for"]
pub struct AsyncTypedView<K, V> {
    untyped: AsyncView,
    types: PhantomData<fn() -> (K, V)>,
}

/// Derived, it would ask the types to be `Clone`.
impl<K, V> Clone for AsyncTypedView<K, V> {
    fn clone(&self) -> Self {
        AsyncTypedView {
            untyped: self.untyped.clone(),
            types: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for AsyncTypedView<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncTypedView")
            .field(&self.untyped)
            .finish()
    }
}

impl AsyncView {
    /// As [`View::typed`](crate::View::typed).
    pub fn typed<K: TypedKey, V: TypedValue>(&self) -> AsyncTypedView<K, V> {
        AsyncTypedView {
            untyped: self.clone(),
            types: PhantomData,
        }
    }
}

async_typed_reading_methods!(AsyncTypedContainer);
async_typed_reading_methods!(AsyncTypedView);
