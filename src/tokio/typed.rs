//! Typed containers, as tasks use them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::base::sync::Mutex;
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::tokio::container::AsyncContainer;
use crate::tokio::database::AsyncDatabase;
use crate::tokio::stream::ItemStream;
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.untyped.name()
    }

    fn item_of(&self, stored: Item) -> Result<TypedItem<K, V::Data>> {
        TypedItem::of::<V>(self.name(), stored)
    }

    /// As [`TypedContainer::get`].
    pub async fn get(&self, key: K::Borrowed<'_>) -> Result<Option<V::Data>> {
        let key = key::encoded::<K>(&key);
        let stored = self.untyped.get(&key).await?;
        let decoded = stored.map(|stored| value::decoded::<V>(self.name(), &key, &stored));
        decoded.transpose()
    }

    /// As [`TypedContainer::item`].
    pub async fn item(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
        let found = self.untyped.item(key::encoded::<K>(&key)).await?;
        found.map(|item| self.item_of(item)).transpose()
    }

    /// As [`TypedContainer::contains`].
    pub async fn contains(&self, key: K::Borrowed<'_>) -> Result<bool> {
        self.untyped.contains(key::encoded::<K>(&key)).await
    }

    /// As [`TypedContainer::get_many`].
    pub async fn get_many<'k>(
        &self,
        keys: impl IntoIterator<Item = K::Borrowed<'k>>,
    ) -> Result<Vec<Option<V::Data>>> {
        let keys = keys.into_iter().map(|key| key::encoded::<K>(&key));
        let keys = Vec::from_iter(keys);
        let found = self.untyped.get_many(&keys).await?;
        let decoded = keys.iter().zip(found).map(|(key, stored)| {
            let decode = |stored| value::decoded::<V>(self.name(), key, stored);
            stored.as_deref().map(decode).transpose()
        });
        decoded.collect()
    }

    /// All live items, in the order of keys, as a stream: see [`ItemStream`].
    pub fn iter(&self) -> TypedItemStream<K, V> {
        self.stream(self.untyped.iter())
    }

    /// As [`Self::iter`], for the keys in a range.
    pub fn range<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> TypedItemStream<K, V> {
        self.stream(self.untyped.range(encoded_range::<K>(&range)))
    }

    /// As [`Self::iter`], for the keys that begin so: see [`TypedContainer::prefix`].
    pub fn prefix(&self, prefix: impl TypedPrefix<K>) -> TypedItemStream<K, V> {
        let mut bytes = vec![];
        prefix.encode_prefix(&mut bytes);
        self.stream(self.untyped.prefix(bytes))
    }

    fn stream(&self, items: ItemStream) -> TypedItemStream<K, V> {
        TypedItemStream {
            container: self.name().to_owned(),
            items,
            types: PhantomData,
        }
    }

    /// As [`TypedContainer::keys`].
    pub fn keys<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> TypedKeyStream<K> {
        TypedKeyStream {
            container: self.name().to_owned(),
            items: self.untyped.range(encoded_range::<K>(&range)),
            types: PhantomData,
        }
    }

    /// As [`TypedContainer::first`].
    pub async fn first(&self) -> Result<Option<TypedItem<K, V::Data>>> {
        let found = self.untyped.first().await?;
        found.map(|item| self.item_of(item)).transpose()
    }

    /// As [`TypedContainer::last`].
    pub async fn last(&self) -> Result<Option<TypedItem<K, V::Data>>> {
        let found = self.untyped.last().await?;
        found.map(|item| self.item_of(item)).transpose()
    }

    /// As [`TypedContainer::is_empty`].
    pub async fn is_empty(&self) -> Result<bool> {
        self.untyped.is_empty().await
    }

    /// As [`TypedContainer::count`].
    pub async fn count<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> Result<u64> {
        self.untyped.count(encoded_range::<K>(&range)).await
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

    /// As [`TypedContainer::touch`].
    pub async fn touch(&self, key: K::Borrowed<'_>) -> Result<bool> {
        self.untyped.touch(key::encoded::<K>(&key)).await
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

/// An [`ItemStream`] with keys and values of the program's types. For an item that cannot be decoded it gives
/// [`Error::Decode`](crate::Error::Decode), and goes on with the next one.
#[must_use = "items are read when they are asked for"]
pub struct TypedItemStream<K, V> {
    container: String,
    items: ItemStream,
    types: PhantomData<fn() -> (K, V)>,
}

/// The keys of a range, decoded: see [`TypedItemStream`].
#[must_use = "items are read when they are asked for"]
pub struct TypedKeyStream<K> {
    container: String,
    items: ItemStream,
    types: PhantomData<fn() -> K>,
}

impl<K, V> fmt::Debug for TypedItemStream<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedItemStream").field(&self.items).finish()
    }
}

impl<K> fmt::Debug for TypedKeyStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedKeyStream").field(&self.items).finish()
    }
}

impl<K: TypedKey, V: TypedValue> TypedItemStream<K, V> {
    /// See [`ItemStream::rev`].
    pub fn rev(mut self) -> Self {
        self.items = self.items.rev();
        self
    }

    /// See [`ItemStream::next`].
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<TypedItem<K, V::Data>>> {
        let item = self.items.next().await?;
        Some(item.and_then(|item| TypedItem::of::<V>(&self.container, item)))
    }
}

impl<K: TypedKey> TypedKeyStream<K> {
    /// See [`ItemStream::rev`].
    pub fn rev(mut self) -> Self {
        self.items = self.items.rev();
        self
    }

    /// See [`ItemStream::next`].
    #[allow(clippy::should_implement_trait)]
    pub async fn next(&mut self) -> Option<Result<K>> {
        let item = self.items.next().await?;
        Some(item.and_then(|item| key::decoded(&self.container, item.key())))
    }
}

impl<K: TypedKey, V: TypedValue> Stream for TypedItemStream<K, V> {
    type Item = Result<TypedItem<K, V::Data>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(Pin::new(&mut self.items).poll_next(context));
        Poll::Ready(item.map(|item| TypedItem::of::<V>(&self.container, item?)))
    }
}

impl<K: TypedKey> Stream for TypedKeyStream<K> {
    type Item = Result<K>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = ready!(Pin::new(&mut self.items).poll_next(context));
        Poll::Ready(item.map(|item| key::decoded(&self.container, item?.key())))
    }
}
