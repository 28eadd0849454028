//! A store of the crate [cached](https://docs.rs/cached) over an [Ebbtide](ebbtide) container: results that are kept on disk, across
//! restarts, and end to the millisecond.
//!
//! ```
//! use std::sync::LazyLock;
//! use std::time::Duration;
//! use cached::macros::concurrent_cached;
//! use cached_ebbtide::EbbtideCache;
//! use ebbtide::{ContainerOptions, Database, DefaultTtl, Options};
//!
//! # static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
//! static DB: LazyLock<Database> = LazyLock::new(|| Database::open(FOLDER.path()).expect("a database"));
//!
//! fn prices() -> EbbtideCache<String, u64> {
//!     let an_hour = ContainerOptions::new().default_ttl(DefaultTtl::After(Duration::from_secs(3_600)));
//!     EbbtideCache::new(DB.container_with("prices", an_hour).expect("a container").typed())
//! }
//!
//! #[concurrent_cached(
//!     ty = "EbbtideCache<String, u64>",
//!     create = "{ prices() }",
//!     key = "String",
//!     convert = "{ city.to_owned() }",
//!     map_error = "|error| error"
//! )]
//! fn price(city: &str) -> Result<u64, ebbtide::Error> {
//!     Ok(city.len() as u64 * 100) // asks somebody far away
//! }
//!
//! assert_eq!(price("Oslo")?, 400);
//! assert_eq!(price("Oslo")?, 400); // from the database
//! # Ok::<(), ebbtide::Error>(())
//! ```
//!
//! The container says how long a value lives, by its default ttl, which may be changed at any time and holds at once for what
//! is stored ([`Container::set_default_ttl`](ebbtide::Container::set_default_ttl)); and how much is kept, by its quota
//! ([`ContainerOptions::max_live_bytes`](ebbtide::ContainerOptions::max_live_bytes) with
//! [`WhenFull::ExpireSoonest`](ebbtide::WhenFull::ExpireSoonest)). So this store has no builder, no ttl and no
//! capacity of its own, and no task that evicts.
//!
//! An ended value is gone: no call returns or counts it, `cache_remove_entry` and `cache_delete` neither. One that an earlier
//! version of the program stored as another type is as good as none: it is computed anew.
//!
//! With the feature `async`, which is on by default, [`AsyncEbbtideCache`] is the same for tasks.

#[cfg(feature = "async")]
mod tasks;

use std::fmt;

use cached::{ConcurrentCacheBase, ConcurrentCached, SerializeCached};
use ebbtide::{Error, Result, Ttl, TypedContainer, TypedKey, TypedUpdate, TypedValue};

#[cfg(feature = "async")]
pub use tasks::AsyncEbbtideCache;

/// The values of a container, as those of a cache. `V` may be [`Json`](ebbtide::Json) of a type, too.
pub struct EbbtideCache<K, V> {
    container: TypedContainer<K, V>,
}

impl<K, V> EbbtideCache<K, V> {
    /// A cache in this container, which should be its own.
    #[must_use]
    pub fn new(container: TypedContainer<K, V>) -> Self {
        EbbtideCache { container }
    }
}

impl<K, V> fmt::Debug for EbbtideCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EbbtideCache")
            .field(&self.container)
            .finish()
    }
}

/// The number of values is not known without reading them, and there are no counters.
impl<K, V> ConcurrentCacheBase for EbbtideCache<K, V> {
    type Error = Error;
}

impl<K: TypedKey, V: TypedValue<Data: Clone>> ConcurrentCached<K, V::Data> for EbbtideCache<K, V> {
    fn cache_get(&self, k: &K) -> Result<Option<V::Data>> {
        Ok(of_the_types(self.container.get(k.as_borrowed()))?.flatten())
    }

    fn cache_set(&self, k: K, v: V::Data) -> Result<Option<V::Data>> {
        let put = |_: Option<&_>| TypedUpdate::Put(v.clone(), Ttl::Inherit);
        match of_the_types(self.container.fetch_update(k.as_borrowed(), put))? {
            Some(done) => Ok(done.before.map(|item| item.value)),
            None => self.cache_set_ref(&k, &v).map(|()| None),
        }
    }

    fn cache_remove(&self, k: &K) -> Result<Option<V::Data>> {
        Ok(self.cache_remove_entry(k)?.map(|(_, value)| value))
    }

    fn cache_remove_entry(&self, k: &K) -> Result<Option<(K, V::Data)>> {
        match of_the_types(self.container.take(k.as_borrowed()))? {
            Some(taken) => Ok(taken.map(|item| (item.key, item.value))),
            None => self.container.delete(k.as_borrowed()).map(|()| None),
        }
    }

    fn cache_contains(&self, k: &K) -> Result<bool> {
        Ok(self.cache_get(k)?.is_some())
    }

    fn cache_clear(&self) -> Result<()> {
        self.container.untyped().clear()
    }

    fn cache_reset(&self) -> Result<()> {
        self.cache_clear()
    }
}

impl<K: TypedKey, V: TypedValue<Data: Clone>> SerializeCached<K, V::Data> for EbbtideCache<K, V> {
    fn cache_set_ref(&self, k: &K, v: &V::Data) -> Result<()> {
        self.container.put(k.as_borrowed(), v)
    }
}

/// `None`: the item is not of the types.
fn of_the_types<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(Error::Decode { .. }) => Ok(None),
        found => found.map(Some),
    }
}
