//! A typed container through a snapshot.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::api::iter::Iter;
use crate::api::snapshot::View;
use crate::base::Result;
use crate::data::item::Item;
use crate::typed::item::TypedItem;
use crate::typed::key::{self, TypedKey, TypedPrefix};
use crate::typed::read::{
    TypedIter, TypedKeys, encoded_range, typed_handle_traits, typed_reading_methods,
};
use crate::typed::value::{self, TypedValue};

/// A [`TypedContainer`](crate::TypedContainer) through a [`Snapshot`](crate::Snapshot); [`View::typed`] makes it.
#[must_use = "items are read when they are asked for"]
pub struct TypedView<K, V> {
    untyped: View,
    types: PhantomData<fn() -> (K, V)>,
}

impl View {
    /// The same, with keys and values of these types.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let ages = db.typed::<String, u8>("ages")?;
    /// ages.put("ada", &36)?;
    /// let then = db.snapshot().container("ages")?.typed::<String, u8>();
    /// ages.put("ada", &37)?;
    /// assert_eq!(then.get("ada")?, Some(36));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn typed<K: TypedKey, V: TypedValue>(&self) -> TypedView<K, V> {
        TypedView {
            untyped: self.clone(),
            types: PhantomData,
        }
    }
}

typed_reading_methods!(TypedView<K, V>, Iter);
typed_handle_traits!(TypedView);
