//! Reading with types, for tasks: the same methods on a typed container and on a snapshot's typed view of one.
//!
//! [`async_typed_reading_methods`] writes them for a type that has what it reads in a field `untyped`.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::base::Result;
use crate::tokio::stream::ItemStream;
use crate::typed::item::TypedItem;
use crate::typed::key::{self, TypedKey};
use crate::typed::value::TypedValue;

/// The methods by which a container is read.
macro_rules! async_typed_reading_methods {
    ($handle:ident) => {
        impl<K: TypedKey, V: TypedValue> $handle<K, V> {
            /// The name of the container.
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
            pub async fn item(
                &self,
                key: K::Borrowed<'_>,
            ) -> Result<Option<TypedItem<K, V::Data>>> {
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

            /// All live items, in the order of keys, as a stream: see [`ItemStream`](crate::tokio::ItemStream).
            pub fn iter(&self) -> TypedItemStream<K, V> {
                TypedItemStream::new(self.name(), self.untyped.iter())
            }

            /// As [`Self::iter`], for the keys in a range.
            pub fn range<'k>(
                &self,
                range: impl RangeBounds<K::Borrowed<'k>>,
            ) -> TypedItemStream<K, V> {
                TypedItemStream::new(self.name(), self.untyped.range(encoded_range::<K>(&range)))
            }

            /// As [`Self::iter`], for the keys that begin so: see [`TypedContainer::prefix`].
            pub fn prefix(&self, prefix: impl TypedPrefix<K>) -> TypedItemStream<K, V> {
                let mut bytes = vec![];
                prefix.encode_prefix(&mut bytes);
                TypedItemStream::new(self.name(), self.untyped.prefix(bytes))
            }

            /// As [`TypedContainer::keys`](crate::TypedContainer::keys).
            pub fn keys<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> TypedKeyStream<K> {
                TypedKeyStream::new(self.name(), self.untyped.range(encoded_range::<K>(&range)))
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

            /// As [`TypedContainer::count_up_to`].
            pub async fn count_up_to<'k>(
                &self,
                range: impl RangeBounds<K::Borrowed<'k>>,
                most: u64,
            ) -> Result<u64> {
                let range = encoded_range::<K>(&range);
                self.untyped.count_up_to(range, most).await
            }

            /// As [`AsyncContainer::random`].
            pub async fn random(&self) -> Result<Option<TypedItem<K, V::Data>>> {
                let found = self.untyped.random().await?;
                found.map(|item| self.item_of(item)).transpose()
            }
        }
    };
}
pub(crate) use async_typed_reading_methods;

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
    pub(super) fn new(container: &str, items: ItemStream) -> Self {
        TypedItemStream {
            container: container.to_owned(),
            items,
            types: PhantomData,
        }
    }

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
    pub(super) fn new(container: &str, items: ItemStream) -> Self {
        TypedKeyStream {
            container: container.to_owned(),
            items,
            types: PhantomData,
        }
    }

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
