//! The cache, as tasks use it.

use std::fmt;

use cached::{ConcurrentCacheBase, ConcurrentCachedAsync, SerializeCachedAsync};
use ebbtide::tokio::AsyncTypedContainer;
use ebbtide::{Error, Result, Ttl, TypedKey, TypedUpdate, TypedValue};

use crate::of_the_types;

/// An [`EbbtideCache`](crate::EbbtideCache) for tasks: no call makes the thread that polls it wait.
pub struct AsyncEbbtideCache<K, V> {
    container: AsyncTypedContainer<K, V>,
}

impl<K, V> AsyncEbbtideCache<K, V> {
    /// A cache in this container, which should be its own.
    #[must_use]
    pub fn new(container: AsyncTypedContainer<K, V>) -> Self {
        AsyncEbbtideCache { container }
    }
}

impl<K, V> fmt::Debug for AsyncEbbtideCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncEbbtideCache")
            .field(&self.container)
            .finish()
    }
}

/// As of [`EbbtideCache`](crate::EbbtideCache).
impl<K, V> ConcurrentCacheBase for AsyncEbbtideCache<K, V> {
    type Error = Error;
}

impl<K, V> ConcurrentCachedAsync<K, V::Data> for AsyncEbbtideCache<K, V>
where
    K: TypedKey + Send + Sync + 'static,
    for<'a> K::Borrowed<'a>: Send,
    V: TypedValue<Data: Clone + Send + Sync> + 'static,
    V::Data: 'static,
{
    async fn async_cache_get(&self, k: &K) -> Result<Option<V::Data>> {
        Ok(of_the_types(self.container.get(k.as_borrowed()).await)?.flatten())
    }

    async fn async_cache_set(&self, k: K, v: V::Data) -> Result<Option<V::Data>> {
        let value = v.clone();
        let put = move |_: Option<&_>| TypedUpdate::Put(value.clone(), Ttl::Inherit);
        match of_the_types(self.container.fetch_update(k.as_borrowed(), put).await)? {
            Some(done) => Ok(done.before.map(|item| item.value)),
            None => self.async_cache_set_ref(&k, &v).await.map(|()| None),
        }
    }

    async fn async_cache_remove(&self, k: &K) -> Result<Option<V::Data>> {
        let removed = self.async_cache_remove_entry(k).await?;
        Ok(removed.map(|(_, value)| value))
    }

    async fn async_cache_remove_entry(&self, k: &K) -> Result<Option<(K, V::Data)>> {
        match of_the_types(self.container.take(k.as_borrowed()).await)? {
            Some(taken) => Ok(taken.map(|item| (item.key, item.value))),
            None => {
                self.container.delete(k.as_borrowed()).await?;
                Ok(None)
            }
        }
    }

    async fn async_cache_contains(&self, k: &K) -> Result<bool> {
        Ok(self.async_cache_get(k).await?.is_some())
    }

    async fn async_cache_clear(&self) -> Result<()> {
        self.container.untyped().delete_range(..).await
    }

    async fn async_cache_reset(&self) -> Result<()> {
        self.async_cache_clear().await
    }
}

impl<K, V> SerializeCachedAsync<K, V::Data> for AsyncEbbtideCache<K, V>
where
    K: TypedKey + Send + Sync + 'static,
    for<'a> K::Borrowed<'a>: Send,
    V: TypedValue<Data: Clone + Send + Sync> + 'static,
    V::Data: 'static,
{
    async fn async_cache_set_ref(&self, k: &K, v: &V::Data) -> Result<()> {
        self.container.put(k.as_borrowed(), v).await
    }
}
