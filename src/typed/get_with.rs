//! Filling a cache with types: see api/get_with.rs.

use crate::base::{Error, Result, Ttl};
use crate::typed::container::TypedContainer;
use crate::typed::key::{self, TypedKey};
use crate::typed::value::{self, TypedValue};

impl<K: TypedKey, V: TypedValue> TypedContainer<K, V> {
    /// The value of a live item, or else that which `make` returns, which is stored: see
    /// [`Container::get_with`](crate::Container::get_with).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::Options;
    ///
    /// let squares = Options::temporary()?.typed::<u32, u64>("squares")?;
    /// let square = |n: u32| squares.get_with(n, || Ok((u64::from(n).pow(2), Duration::from_secs(60))));
    /// assert_eq!(square(12)?, 144);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_with<T: Into<Ttl>>(
        &self,
        key: K::Borrowed<'_>,
        make: impl FnOnce() -> Result<(V::Data, T)>,
    ) -> Result<V::Data> {
        self.try_get_with(key, make)
    }

    /// As [`TypedContainer::get_with`], with errors of the caller's own: see
    /// [`Container::try_get_with`](crate::Container::try_get_with).
    pub fn try_get_with<T: Into<Ttl>, E: From<Error>>(
        &self,
        key: K::Borrowed<'_>,
        make: impl FnOnce() -> Result<(V::Data, T), E>,
    ) -> Result<V::Data, E> {
        let key = key::encoded::<K>(&key);
        let stored = self.untyped().try_get_with(&key, || {
            let (made, ttl) = make()?;
            Ok::<_, E>((value::encoded::<V>(&made)?, ttl))
        })?;
        Ok(value::decoded::<V>(self.name(), &key, &stored)?)
    }
}
