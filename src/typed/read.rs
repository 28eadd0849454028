//! Reading with types: the same methods on a typed container, on a typed view of one, and in a transaction.
//!
//! [`typed_reading_methods`] writes them, with their documentation, for a type that has what it reads in a field `untyped`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::api::iter::Iter;
use crate::base::Result;
use crate::data::item::Item;
use crate::typed::item::TypedItem;
use crate::typed::key::{self, TypedKey};
use crate::typed::value::TypedValue;

/// A range of keys in bytes.
pub fn encoded_range<'k, K: TypedKey>(
    range: &impl RangeBounds<K::Borrowed<'k>>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let bound = |bound: Bound<&K::Borrowed<'k>>| bound.map(|key| key::encoded::<K>(key));
    (bound(range.start_bound()), bound(range.end_bound()))
}

/// The methods by which a container is read.
macro_rules! typed_reading_methods {
    ($handle:ty, $items:ty) => {
        // A handle on a transaction has its lifetime.
        #[allow(clippy::extra_unused_lifetimes)]
        impl<'t, K: TypedKey, V: TypedValue> $handle {
            /// The value of a live item.
            pub fn get(&self, key: K::Borrowed<'_>) -> Result<Option<V::Data>> {
                let key = key::encoded::<K>(&key);
                let stored = self.untyped.get(&key)?;
                let decoded = stored.map(|stored| value::decoded::<V>(self.name(), &key, &stored));
                decoded.transpose()
            }

            /// A live item with all that is known of it.
            pub fn item(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
                let found = self.untyped.item(&key::encoded::<K>(&key))?;
                found.map(|item| self.typed_item(item)).transpose()
            }

            /// The values of many keys, in the order asked; `None` where no live item is.
            pub fn get_many<'k>(
                &self,
                keys: impl IntoIterator<Item = K::Borrowed<'k>>,
            ) -> Result<Vec<Option<V::Data>>> {
                let keys = keys.into_iter().map(|key| key::encoded::<K>(&key));
                let keys = Vec::from_iter(keys);
                let found = keys.iter().zip(self.untyped.get_many(&keys)?);
                let decoded = found.map(|(key, stored)| {
                    let decode = |stored| value::decoded::<V>(self.name(), key, stored);
                    stored.as_deref().map(decode).transpose()
                });
                decoded.collect()
            }

            /// Whether a live item has the key, whatever its value is.
            pub fn contains(&self, key: K::Borrowed<'_>) -> Result<bool> {
                self.untyped.contains(&key::encoded::<K>(&key))
            }

            /// All live items, in the order of keys; what is seen is as with [`Container::iter`](crate::Container::iter).
            pub fn iter(&self) -> TypedIter<K, V, $items> {
                TypedIter::new(self.name(), self.untyped.iter())
            }

            /// As [`Self::iter`], for the keys in a range.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let hits = Database::open(folder.path())?.typed::<(String, u64), u32>("hits")?;
            /// [8, 9, 10, 11].iter().try_for_each(|hour| hits.put(("home", *hour), &1))?;
            /// let found = hits.range(("home", 9)..=("home", 10)).rev();
            /// let found = found.map(|item| Ok(item?.key.1)).collect::<ebbtide::Result<Vec<_>>>()?;
            /// assert_eq!(found, [10, 9]);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn range<'k>(
                &self,
                range: impl RangeBounds<K::Borrowed<'k>>,
            ) -> TypedIter<K, V, $items> {
                TypedIter::new(self.name(), self.untyped.range(encoded_range::<K>(&range)))
            }

            /// As [`Self::iter`], for the keys that begin so: of tuples those with these first elements, given as a tuple; of
            /// strings and of bytes those that start with these.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let hits = Database::open(folder.path())?.typed::<(String, u64), u32>("hits")?;
            /// hits.put(("home", 9), &1)?;
            /// hits.put(("home page", 9), &1)?; // another element, though its bytes start with the same
            /// assert_eq!(hits.prefix(("home",)).count(), 1);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn prefix(&self, prefix: impl TypedPrefix<K>) -> TypedIter<K, V, $items> {
                let mut bytes = vec![];
                prefix.encode_prefix(&mut bytes);
                TypedIter::new(self.name(), self.untyped.prefix(bytes))
            }

            /// The keys of a range, from both ends; as [`Self::range`], and no value is decoded.
            pub fn keys<'k>(
                &self,
                range: impl RangeBounds<K::Borrowed<'k>>,
            ) -> TypedKeys<K, $items> {
                TypedKeys::new(self.name(), self.untyped.range(encoded_range::<K>(&range)))
            }

            /// The live item with the lowest key: the first of [`Self::iter`].
            pub fn first(&self) -> Result<Option<TypedItem<K, V::Data>>> {
                self.iter().next().transpose()
            }

            /// The live item with the highest key: the last of [`Self::iter`].
            pub fn last(&self) -> Result<Option<TypedItem<K, V::Data>>> {
                self.iter().next_back().transpose()
            }

            /// There is no live item.
            pub fn is_empty(&self) -> Result<bool> {
                self.untyped.is_empty()
            }

            /// How many live items a range has, exactly, whatever they are. Reads all of them.
            pub fn count<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> Result<u64> {
                self.untyped.count(encoded_range::<K>(&range))
            }

            /// How many live items a range has, exactly, whatever they are, if these are fewer than `most`, else
            /// `most`. Unreadable items are not counted: 0 if the handle is closed.
            #[must_use]
            pub fn count_up_to<'k>(
                &self,
                range: impl RangeBounds<K::Borrowed<'k>>,
                most: u64,
            ) -> u64 {
                self.untyped.count_up_to(encoded_range::<K>(&range), most)
            }

            /// The name of the container.
            #[must_use]
            pub fn name(&self) -> &str {
                self.untyped.name()
            }

            fn typed_item(&self, stored: Item) -> Result<TypedItem<K, V::Data>> {
                TypedItem::of::<V>(self.name(), stored)
            }
        }
    };
}
pub(crate) use typed_reading_methods;

/// The traits of a handle that can be kept: those of a container and of a view.
macro_rules! typed_handle_traits {
    ($handle:ident) => {
        /// Derived, it would ask the types to be `Clone`.
        impl<K, V> Clone for $handle<K, V> {
            fn clone(&self) -> Self {
                $handle {
                    untyped: self.untyped.clone(),
                    types: PhantomData,
                }
            }
        }

        impl<K, V> fmt::Debug for $handle<K, V> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($handle))
                    .field(&self.untyped)
                    .finish()
            }
        }

        impl<K: TypedKey, V: TypedValue> IntoIterator for &$handle<K, V> {
            type Item = Result<TypedItem<K, V::Data>>;
            type IntoIter = TypedIter<K, V>;

            fn into_iter(self) -> TypedIter<K, V> {
                self.iter()
            }
        }
    };
}
pub(crate) use typed_handle_traits;

/// Items of a [`TypedContainer`](crate::TypedContainer) in key order, from both ends. For an item that cannot be decoded it
/// returns [`Error::Decode`](crate::Error::Decode), and goes on with the next item; any other error is the last.
#[must_use = "items are read when they are asked for"]
pub struct TypedIter<K, V, I = Iter> {
    container: String,
    items: I,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, I> TypedIter<K, V, I> {
    pub(crate) fn new(container: &str, items: I) -> Self {
        TypedIter {
            container: container.into(),
            items,
            types: PhantomData,
        }
    }
}

impl<K, V, I: fmt::Debug> fmt::Debug for TypedIter<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedIter").field(&self.items).finish()
    }
}

impl<K: TypedKey, V: TypedValue, I> TypedIter<K, V, I> {
    fn typed(&self, item: Result<Item>) -> Result<TypedItem<K, V::Data>> {
        TypedItem::of::<V>(&self.container, item?)
    }
}

impl<K: TypedKey, V: TypedValue, I: DoubleEndedIterator<Item = Result<Item>>> Iterator
    for TypedIter<K, V, I>
{
    type Item = Result<TypedItem<K, V::Data>>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.next()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, V: TypedValue, I: DoubleEndedIterator<Item = Result<Item>>> DoubleEndedIterator
    for TypedIter<K, V, I>
{
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.items.next_back()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, V: TypedValue, I: DoubleEndedIterator<Item = Result<Item>>>
    std::iter::FusedIterator for TypedIter<K, V, I>
{
}

/// Keys of a [`TypedContainer`](crate::TypedContainer) in their order, from both ends; errors are as with [`TypedIter`].
#[must_use = "items are read when they are asked for"]
pub struct TypedKeys<K, I = Iter> {
    container: String,
    items: I,
    types: PhantomData<fn() -> K>,
}

impl<K, I> TypedKeys<K, I> {
    pub(crate) fn new(container: &str, items: I) -> Self {
        TypedKeys {
            container: container.into(),
            items,
            types: PhantomData,
        }
    }
}

impl<K, I: fmt::Debug> fmt::Debug for TypedKeys<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedKeys").field(&self.items).finish()
    }
}

impl<K: TypedKey, I> TypedKeys<K, I> {
    fn typed(&self, item: Result<Item>) -> Result<K> {
        key::decoded(&self.container, item?.key())
    }
}

impl<K: TypedKey, I: DoubleEndedIterator<Item = Result<Item>>> Iterator for TypedKeys<K, I> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.next()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, I: DoubleEndedIterator<Item = Result<Item>>> DoubleEndedIterator
    for TypedKeys<K, I>
{
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.items.next_back()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, I: DoubleEndedIterator<Item = Result<Item>>> std::iter::FusedIterator
    for TypedKeys<K, I>
{
}
