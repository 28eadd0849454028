//! Writes of typed containers in a batch.

use std::fmt;
use std::ops::RangeBounds;

use crate::api::batch::Batch;
use crate::api::container::Container;
use crate::base::Ttl;
use crate::data::write::Expect;
use crate::typed::container::TypedContainer;
use crate::typed::key::{self, TypedKey};
use crate::typed::read::encoded_range;
use crate::typed::value::{self, TypedValue};

/// Adds writes of one [`TypedContainer`] to a [`Batch`]; [`Batch::typed`] makes it. A value that its format cannot hold is
/// refused when the batch is written, and the batch with it.
pub struct TypedBatch<'b, K, V> {
    batch: &'b mut Batch,
    container: &'b TypedContainer<K, V>,
}

impl<K, V> fmt::Debug for TypedBatch<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedBatch").field(&self.batch).finish()
    }
}

impl Batch {
    /// To add writes of a typed container. With the feature `typed`.
    ///
    /// ```
    /// use ebbtide::{Batch, Database, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let sessions = db.typed::<String, u32>("sessions")?;
    /// let by_user = db.typed::<(String, String), ()>("sessions by user")?;
    /// let mut batch = Batch::new();
    /// batch.typed(&sessions).create("s-1", &1, Ttl::Inherit).delete("s-0");
    /// batch.typed(&by_user).put(("ada", "s-1"), &()).delete(("ada", "s-0"));
    /// db.write(batch)?;
    /// assert_eq!(sessions.get("s-1")?, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<'b, K: TypedKey, V: TypedValue>(
        &'b mut self,
        container: &'b TypedContainer<K, V>,
    ) -> TypedBatch<'b, K, V> {
        TypedBatch {
            batch: self,
            container,
        }
    }
}

impl<K: TypedKey, V: TypedValue> TypedBatch<'_, K, V> {
    /// As [`Batch::put`].
    pub fn put(&mut self, key: K::Borrowed<'_>, value: &V::Data) -> &mut Self {
        self.put_with_ttl(key, value, Ttl::Inherit)
    }

    /// As [`Batch::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        self.add(&key, value, |batch, container, key, value| {
            batch.put_with_ttl(container, key, value, ttl);
        })
    }

    /// As [`TypedContainer::put_borrowed`].
    pub fn put_borrowed<Q: ToOwned<Owned = V::Data> + ?Sized>(
        &mut self,
        key: K::Borrowed<'_>,
        value: &Q,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        self.put_with_ttl(key, &value.to_owned(), ttl)
    }

    /// As [`Batch::create`].
    pub fn create(
        &mut self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        self.add(&key, value, |batch, container, key, value| {
            batch.create(container, key, value, ttl);
        })
    }

    /// As [`Batch::replace`].
    pub fn replace(
        &mut self,
        key: K::Borrowed<'_>,
        value: &V::Data,
        ttl: impl Into<Ttl>,
    ) -> &mut Self {
        self.add(&key, value, |batch, container, key, value| {
            batch.replace(container, key, value, ttl);
        })
    }

    /// As [`Batch::touch`].
    pub fn touch(&mut self, key: K::Borrowed<'_>) -> &mut Self {
        let container = self.container.untyped();
        self.batch.touch(container, key::encoded::<K>(&key));
        self
    }

    /// As [`Batch::expire`].
    pub fn expire(&mut self, key: K::Borrowed<'_>, ttl: impl Into<Ttl>) -> &mut Self {
        let container = self.container.untyped();
        self.batch.expire(container, key::encoded::<K>(&key), ttl);
        self
    }

    /// As [`Batch::rename`].
    pub fn rename(&mut self, from: K::Borrowed<'_>, to: K::Borrowed<'_>) -> &mut Self {
        let (from, to) = (key::encoded::<K>(&from), key::encoded::<K>(&to));
        self.batch.rename(self.container.untyped(), from, to);
        self
    }

    /// As [`Batch::require`].
    pub fn require(&mut self, key: K::Borrowed<'_>, expect: Expect) -> &mut Self {
        let container = self.container.untyped();
        self.batch
            .require(container, key::encoded::<K>(&key), expect);
        self
    }

    /// As [`Batch::delete`].
    pub fn delete(&mut self, key: K::Borrowed<'_>) -> &mut Self {
        let container = self.container.untyped();
        self.batch.delete(container, key::encoded::<K>(&key));
        self
    }

    /// As [`Batch::delete_range`].
    pub fn delete_range<'k>(&mut self, range: impl RangeBounds<K::Borrowed<'k>>) -> &mut Self {
        let container = self.container.untyped();
        self.batch
            .delete_range(container, encoded_range::<K>(&range));
        self
    }

    /// Adds a write of this key and value as they are stored, or the error that the value has no such form.
    fn add(
        &mut self,
        key: &K::Borrowed<'_>,
        value: &V::Data,
        write: impl FnOnce(&mut Batch, &Container, Vec<u8>, Vec<u8>),
    ) -> &mut Self {
        let (container, key) = (self.container.untyped(), key::encoded::<K>(key));
        let value = value::encoded::<V>(value);
        let added = value.map(|value| write(self.batch, container, key, value));
        self.batch.note(added);
        self
    }
}
