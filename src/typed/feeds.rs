//! Changes and expirations of a typed container.

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::api::changes::Changes;
use crate::api::expirations::{Expiration, ExpirationCause, Expirations, ExpiryCursor};
use crate::base::Result;
use crate::data::change::{Change, ExpiryRule};
use crate::data::version::Version;
use crate::typed::container::TypedContainer;
use crate::typed::item::TypedItem;
use crate::typed::key::{self, TypedKey};
use crate::typed::value::{self, TypedValue};

/// A [`Change`] of one container, with a key and a value of the program's types.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TypedChange<K, D> {
    /// The container was dropped.
    Dropped,
    /// It was made: it is empty before the changes that follow.
    Created {
        /// The version of its creation.
        version: Version,
    },
    /// The default ttl was changed, or items were expired on command; see [`Change::Expiry`].
    Expiry {
        /// The rule by which items of the container end.
        rule: ExpiryRule,
    },
    /// All items in a range of keys were deleted. Its bounds are bytes, which need not be keys of the type: an item is in it by
    /// the bytes of its key, `item.stored.key()`.
    DeleteRange {
        /// The first key; empty: from the first on.
        from: Bytes,
        /// The first key after the range; `None`: there is no end.
        to: Option<Bytes>,
        /// The version of this write.
        version: Version,
    },
    /// A key has a new live item.
    Put(TypedItem<K, D>),
    /// The item of a key was deleted, or was written and has ended since.
    Delete {
        /// The key.
        key: K,
        /// The version of the write that deleted it, or whose item has ended.
        version: Version,
    },
}

/// The changes of a [`TypedContainer`]; see [`Container::changes`](crate::Container::changes). For an item that cannot be
/// decoded it returns [`Error::Decode`](crate::Error::Decode), and goes on with the next change.
#[must_use = "it tells nothing until it is asked, and keeps what it is to tell"]
pub struct TypedChanges<K, V> {
    container: String,
    changes: Changes,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> fmt::Debug for TypedChanges<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedChanges").field(&self.changes).finish()
    }
}

impl<K, V> TypedChanges<K, V> {
    /// See [`Changes::version`].
    #[must_use]
    pub fn version(&self) -> Version {
        self.changes.version()
    }
}

impl<K: TypedKey, V: TypedValue> TypedChanges<K, V> {
    /// None: it is of other containers.
    fn typed(&self, change: Change) -> Result<Option<TypedChange<K, V::Data>>> {
        let name = &self.container;
        Ok(Some(match change {
            Change::Containers { names } if names.iter().any(|there| **there == **name) => {
                return Ok(None);
            }
            Change::Containers { .. } => TypedChange::Dropped,
            Change::Created { version, .. } => TypedChange::Created { version },
            Change::Expiry { rule, .. } => TypedChange::Expiry { rule },
            Change::DeleteRange {
                from, to, version, ..
            } => TypedChange::DeleteRange { from, to, version },
            Change::Put { item, .. } => TypedChange::Put(TypedItem::of::<V>(name, item)?),
            Change::Delete { key, version, .. } => {
                let key = key::decoded(name, &key)?;
                TypedChange::Delete { key, version }
            }
        }))
    }
}

impl<K: TypedKey, V: TypedValue> Iterator for TypedChanges<K, V> {
    type Item = Result<TypedChange<K, V::Data>>;

    /// See [`Changes`].
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let change = self.changes.next()?;
            let typed = change.and_then(|change| self.typed(change));
            if let Some(typed) = typed.transpose() {
                return Some(typed);
            }
        }
    }
}

/// An [`Expiration`] with a key and a value of the program's types.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TypedExpiration<K, D> {
    /// Its key.
    pub key: K,
    /// Its value, as it was.
    pub value: D,
    /// The end, its cause, and the item as it was stored.
    pub stored: Expiration,
}

/// The expirations of a [`TypedContainer`]; see [`Container::expirations`](crate::Container::expirations). For an item that
/// cannot be decoded it returns [`Error::Decode`](crate::Error::Decode), and goes on with the next one.
#[must_use = "it gives nothing until it is asked, and keeps what it is to give"]
pub struct TypedExpirations<K, V> {
    container: String,
    expirations: Expirations,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> fmt::Debug for TypedExpirations<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedExpirations")
            .field(&self.expirations)
            .finish()
    }
}

impl<K, V> TypedExpirations<K, V> {
    /// See [`Expirations::cursor`].
    #[must_use]
    pub fn cursor(&self) -> ExpiryCursor {
        self.expirations.cursor()
    }
}

impl<K, V> TypedExpirations<K, V> {
    /// See [`Expirations::causes`].
    pub fn causes(mut self, causes: impl AsRef<[ExpirationCause]>) -> Self {
        self.expirations = self.expirations.causes(causes);
        self
    }

    /// See [`Expirations::next_due`].
    pub fn next_due(&mut self) -> Option<SystemTime> {
        self.expirations.next_due()
    }

    /// See [`Expirations::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.expirations.wait(timeout)
    }
}

impl<K: TypedKey, V: TypedValue> Iterator for TypedExpirations<K, V> {
    type Item = Result<TypedExpiration<K, V::Data>>;

    /// See [`Expirations`].
    fn next(&mut self) -> Option<Self::Item> {
        let expired = self.expirations.next()?;
        Some(expired.and_then(|stored| {
            let name = &self.container;
            Ok(TypedExpiration {
                key: key::decoded(name, stored.key())?,
                value: value::decoded::<V>(name, stored.key(), stored.value())?,
                stored,
            })
        }))
    }
}

impl<K: TypedKey, V: TypedValue> TypedContainer<K, V> {
    /// The changes of this container since a version, as [`Container::changes`](crate::Container::changes) tells them.
    ///
    /// ```
    /// use ebbtide::{Database, TypedChange, Version};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let born = db.typed::<String, u16>("born")?;
    /// let mut changes = born.changes(Version::start());
    /// assert!(matches!(changes.next(), Some(Ok(TypedChange::Created { .. }))));
    /// changes.by_ref().for_each(drop); // to the end of the pass
    /// born.put("ada", &1815)?;
    /// match changes.next().transpose()? {
    ///     Some(TypedChange::Put(item)) => assert_eq!((&*item.key, item.value), ("ada", 1815)),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn changes(&self, since: Version) -> TypedChanges<K, V> {
        TypedChanges {
            container: self.name().into(),
            changes: self.untyped().changes(since),
            types: PhantomData,
        }
    }

    /// The expirations of this container, as [`Container::expirations`](crate::Container::expirations) gives them.
    pub fn expirations(&self, from: ExpiryCursor) -> TypedExpirations<K, V> {
        TypedExpirations {
            container: self.name().into(),
            expirations: self.untyped().expirations(from),
            types: PhantomData,
        }
    }
}
