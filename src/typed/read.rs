//! Reading with types: the same methods on a typed container and on a typed view of one.
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
    ($handle:ident) => {
        impl<K: TypedKey, V: TypedValue> $handle<K, V> {
            /// The value of a live item.
            pub fn get(&self, key: K::Borrowed<'_>) -> Result<Option<V::Data>> {
                let key = key::encoded::<K>(&key);
                let stored = self.untyped.get(&key)?;
                let decoded = stored.map(|stored| value::decoded::<V>(self.name(), &key, &stored));
                decoded.transpose()
            }

            /// A live item with all that is known of it.
            pub fn item(&self, key: K::Borrowed<'_>) -> Result<Option<TypedItem<K, V::Data>>> {
                let found = self.untyped.item(key::encoded::<K>(&key))?;
                found.map(|item| self.typed_item(item)).transpose()
            }

            /// Whether a live item has the key, whatever its value is.
            pub fn contains(&self, key: K::Borrowed<'_>) -> Result<bool> {
                self.untyped.contains(key::encoded::<K>(&key))
            }

            /// All live items, in the order of keys; what is seen is as with [`Container::iter`](crate::Container::iter).
            pub fn iter(&self) -> TypedIter<K, V> {
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
            pub fn range<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> TypedIter<K, V> {
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
            pub fn prefix(&self, prefix: impl TypedPrefix<K>) -> TypedIter<K, V> {
                let mut bytes = vec![];
                prefix.encode_prefix(&mut bytes);
                TypedIter::new(self.name(), self.untyped.prefix(bytes))
            }

            /// The keys of a range, from both ends; as [`Self::range`], and no value is decoded.
            pub fn keys<'k>(&self, range: impl RangeBounds<K::Borrowed<'k>>) -> TypedKeys<K> {
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
pub(crate) use typed_reading_methods;

/// Items of a [`TypedContainer`](crate::TypedContainer) in key order, from both ends. For an item that cannot be decoded it
/// returns [`Error::Decode`](crate::Error::Decode), and goes on with the next item; any other error is the last.
#[must_use = "items are read when they are asked for"]
pub struct TypedIter<K, V> {
    container: String,
    items: Iter,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> TypedIter<K, V> {
    pub(crate) fn new(container: &str, items: Iter) -> Self {
        TypedIter {
            container: container.into(),
            items,
            types: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for TypedIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedIter").field(&self.items).finish()
    }
}

impl<K: TypedKey, V: TypedValue> TypedIter<K, V> {
    fn typed(&self, item: Result<Item>) -> Result<TypedItem<K, V::Data>> {
        TypedItem::of::<V>(&self.container, item?)
    }
}

impl<K: TypedKey, V: TypedValue> Iterator for TypedIter<K, V> {
    type Item = Result<TypedItem<K, V::Data>>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.next()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, V: TypedValue> DoubleEndedIterator for TypedIter<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.items.next_back()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey, V: TypedValue> std::iter::FusedIterator for TypedIter<K, V> {}

/// Keys of a [`TypedContainer`](crate::TypedContainer) in their order, from both ends; errors are as with [`TypedIter`].
#[must_use = "items are read when they are asked for"]
pub struct TypedKeys<K> {
    container: String,
    items: Iter,
    types: PhantomData<fn() -> K>,
}

impl<K> TypedKeys<K> {
    pub(crate) fn new(container: &str, items: Iter) -> Self {
        TypedKeys {
            container: container.into(),
            items,
            types: PhantomData,
        }
    }
}

impl<K> fmt::Debug for TypedKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedKeys").field(&self.items).finish()
    }
}

impl<K: TypedKey> TypedKeys<K> {
    fn typed(&self, item: Result<Item>) -> Result<K> {
        key::decoded(&self.container, item?.key())
    }
}

impl<K: TypedKey> Iterator for TypedKeys<K> {
    type Item = Result<K>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.items.next()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey> DoubleEndedIterator for TypedKeys<K> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.items.next_back()?;
        Some(self.typed(item))
    }
}

impl<K: TypedKey> std::iter::FusedIterator for TypedKeys<K> {}
