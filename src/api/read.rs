//! Reading: the same methods on a container and on a snapshot's view of one.
//!
//! [`reading_methods`] writes them, with their documentation, for a type that has `fn reading(&self) -> Reading<'_>`;
//! [`Reading`] does what they say.

use std::fmt;
use std::sync::Arc;

use crate::api::arguments::check_key;
use crate::base::Result;
use crate::data::batch::KeyRange;
use crate::data::item::{Item, Value};
use crate::engine::{Engine, Reader, Scan};

/// A container, through what it is read.
pub struct Reading<'a> {
    /// Of its database.
    pub engine: &'a Arc<Engine>,
    /// Which, and as of when.
    pub reader: Reader<'a>,
}

impl Reading<'_> {
    /// See [`reading_methods`], as of all below.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        check_key(key)?;
        Ok(self.engine.get(&self.reader, key)?.map(Value::from))
    }

    pub fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        check_key(key)?;
        self.engine.item(&self.reader, key)
    }

    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.engine.contains(&self.reader, key)
    }

    pub fn range(&self, range: KeyRange) -> Iter {
        Iter {
            scan: Some(Engine::scan(self.engine, &self.reader, range)),
        }
    }
}

/// The methods by which a container is read.
macro_rules! reading_methods {
    ($handle:ident) => {
        impl $handle {
            /// The value of a live item.
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.reading().get(key.as_ref())
            }

            /// A live item with all that is known of it.
            pub fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
                self.reading().item(key.as_ref())
            }

            /// Whether a live item has the key.
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.reading().contains(key.as_ref())
            }

            /// All live items, in the order of keys. What was written before the call is seen, or before the snapshot
            /// was taken, and nothing later; whether an item is live is judged when it is reached.
            pub fn iter(&self) -> Iter {
                self.reading().range(all_keys())
            }

            /// As [`Self::iter`], for the keys in a range.
            pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
                self.reading().range(key_range(range))
            }

            /// As [`Self::iter`], for the keys that start with these bytes.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
                self.reading().range(prefix_range(prefix.as_ref()))
            }
        }
    };
}
pub(crate) use reading_methods;

/// Items in the order of keys, from both ends.
#[must_use = "items are read when they are asked for"]
pub struct Iter {
    scan: Option<Result<Scan>>,
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("has_ended", &self.scan.is_none())
            .finish_non_exhaustive()
    }
}

impl Iter {
    #[inline]
    fn step(
        &mut self,
        step: impl FnOnce(&mut Scan) -> Option<Result<Item>>,
    ) -> Option<Result<Item>> {
        let item = match self.scan.as_mut()? {
            Ok(scan) => step(scan),
            Err(error) => Some(Err(error.clone())),
        };
        if !matches!(item, Some(Ok(_))) {
            self.scan = None;
        }
        item
    }
}

impl Iterator for Iter {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Scan::next)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Scan::next_back)
    }
}

impl std::iter::FusedIterator for Iter {}
