//! Items with a key and a value of the program's types, and what an update does with one.

use std::borrow::Borrow;

use crate::api::writing::Update;
use crate::base::{Result, Ttl};
use crate::data::item::Item;
use crate::data::write::Written;
use crate::typed::key::{self, TypedKey};
use crate::typed::value::{self, TypedValue};

/// An item of a [`TypedContainer`](crate::TypedContainer) as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedItem<K, D> {
    /// Its key.
    pub key: K,
    /// Its value.
    pub value: D,
    /// The item as it is stored, with its version, its times and its ttl.
    pub stored: Item,
}

impl<K: TypedKey, D> TypedItem<K, D> {
    /// Decodes an item of a container.
    pub(crate) fn of<V: TypedValue<Data = D>>(container: &str, stored: Item) -> Result<Self> {
        Ok(TypedItem {
            key: key::decoded(container, stored.key())?,
            value: value::decoded::<V>(container, stored.key(), stored.value())?,
            stored,
        })
    }
}

/// The decision of [`TypedContainer::update`](crate::TypedContainer::update) about the item that it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypedUpdate<D> {
    /// Leaves it as it is.
    Keep,
    /// Writes this value with this ttl.
    Put(D, Ttl),
    /// Gives it this ttl, which counts from now on, and keeps its value; see [`Update::Expire`].
    Expire(Ttl),
    /// Deletes it.
    Delete,
}

impl<D> TypedUpdate<D> {
    /// The same in bytes.
    pub(crate) fn encoded<V: TypedValue>(self) -> Result<Update>
    where
        D: Borrow<V::Data>,
    {
        Ok(match self {
            TypedUpdate::Keep => Update::Keep,
            TypedUpdate::Put(data, ttl) => Update::Put(value::encoded::<V>(data.borrow())?, ttl),
            TypedUpdate::Expire(ttl) => Update::Expire(ttl),
            TypedUpdate::Delete => Update::Delete,
        })
    }
}

/// The result of [`TypedContainer::fetch_update`](crate::TypedContainer::fetch_update).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypedUpdated<K, D> {
    /// The live item that was there before; `None` where there was none.
    pub before: Option<TypedItem<K, D>>,
    /// The write; `None` where the item was left as it was, or there was none to delete.
    pub written: Option<Written>,
}
