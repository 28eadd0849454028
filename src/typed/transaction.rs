//! A typed container in a transaction.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::time::SystemTime;

use crate::api::transaction::Transaction;
use crate::api::within::Within;
use crate::api::writing::Writes;
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Upserted};
use crate::engine::TransactionIter;
use crate::typed::container::TypedContainer;
use crate::typed::item::{TypedItem, TypedUpdate, TypedUpdated};
use crate::typed::key::{self, TypedKey, TypedPrefix};
use crate::typed::read::{TypedIter, TypedKeys, encoded_range, typed_reading_methods};
use crate::typed::value::{self, TypedValue};
use crate::typed::write::{turn, typed_writing_methods};

/// A [`TypedContainer`] in a [`Transaction`]; [`Transaction::typed`] makes it. What each method sees and writes, and what is
/// a conflict, is as of the transaction's method of that name.
pub struct TypedTransaction<'t, K, V> {
    untyped: Within<'t, 't>,
    types: PhantomData<fn() -> (K, V)>,
}

impl Transaction {
    /// A typed container in this transaction. With the feature `typed`.
    ///
    /// ```
    /// use ebbtide::{Database, Error};
    ///
    /// #[derive(Debug)]
    /// struct Poor(u64);
    ///
    /// impl From<Error> for Poor {
    ///     fn from(error: Error) -> Poor {
    ///         panic!("{error}") // in an example
    ///     }
    /// }
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let accounts = db.typed::<String, u64>("accounts")?;
    /// accounts.put("ada", &50)?;
    /// let pay = |to: &str, sum: u64| {
    ///     db.try_transaction(|tx| -> Result<u64, Poor> {
    ///         let accounts = tx.typed(&accounts);
    ///         let (has, theirs) = (accounts.get("ada")?.unwrap_or(0), accounts.get(to)?.unwrap_or(0));
    ///         accounts.put(to, &(theirs + sum))?;
    ///         let left = has.checked_sub(sum).ok_or(Poor(has))?;
    ///         accounts.put("ada", &left)?;
    ///         Ok(left)
    ///     })
    /// };
    /// assert_eq!(pay("bob", 30).unwrap().0, 20);
    /// assert_eq!(pay("bob", 30).unwrap_err().0, 20);
    /// assert_eq!(accounts.get("bob")?, Some(30)); // and nothing of the second
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<'t, K: TypedKey, V: TypedValue>(
        &'t self,
        container: &'t TypedContainer<K, V>,
    ) -> TypedTransaction<'t, K, V> {
        TypedTransaction {
            untyped: self.within(container.untyped()),
            types: PhantomData,
        }
    }
}

impl<'t, K, V> TypedTransaction<'t, K, V> {
    fn writing(&self) -> Within<'t, 't> {
        self.untyped
    }
}

typed_reading_methods!(TypedTransaction<'t, K, V>, TransactionIter<'t>);
typed_writing_methods!(TypedTransaction<'t, K, V>);

impl<K: TypedKey, V: TypedValue> TypedTransaction<'_, K, V> {
    /// A live item by chance; see [`Transaction::random`].
    pub fn random(&self) -> Result<Option<TypedItem<K, V::Data>>> {
        let found = self.untyped.random()?;
        found.map(|item| self.typed_item(item)).transpose()
    }

    /// Expires every item; see [`Transaction::expire_all`].
    pub fn expire_all(&self) -> Result<()> {
        self.untyped.expire_all()
    }
}

/// Derived, it would ask the types to be `Debug`.
impl<K, V> fmt::Debug for TypedTransaction<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedTransaction")
            .field(&self.untyped.name())
            .finish()
    }
}
