//! Reading, for tasks: the same methods on a container and on a snapshot's view of one.
//!
//! [`async_reading_methods`] writes them for a type that has its waiting counterpart in the field `of`.

use std::ops::Bound;

use crate::api::arguments::KeyBounds;
use crate::api::read::Reading;
use crate::base::{Attempt, Unready};
use crate::data::item::Value;

/// More keys than this are not looked up in one poll: others wait meanwhile.
const MOST_AT_ONCE: usize = 64;

/// The values of some keys, if none of them is to be waited for.
pub fn few_at_once(of: &Reading<'_>, keys: &[Vec<u8>]) -> Attempt<Vec<Option<Value>>> {
    match keys.len() {
        ..=MOST_AT_ONCE => of.get_each(keys),
        _ => Err(Unready::WouldWait),
    }
}

/// A copy, to be taken to another thread.
pub fn bytes(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.as_ref().to_vec()
}

/// The same of a range.
pub fn bounds(range: impl KeyBounds) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
    (owned(range.start()), owned(range.end()))
}

/// The methods by which a container is read. The handle has its waiting counterpart in `of`.
macro_rules! async_reading_methods {
    ($handle:ident) => {
        impl $handle {
            /// The value of a live item.
            pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                let of = &self.of;
                let at_once = |key: &mut _| of.reading().try_get(AsRef::as_ref(key));
                let later = |key| {
                    let (of, key) = (of.clone(), bytes(key));
                    move || of.get(key)
                };
                self.shared.read(key, at_once, later).await
            }

            /// A live item with all that is known of it.
            pub async fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
                let of = &self.of;
                let at_once = |key: &mut _| of.reading().try_item(AsRef::as_ref(key));
                let later = |key| {
                    let (of, key) = (of.clone(), bytes(key));
                    move || of.item(key)
                };
                self.shared.read(key, at_once, later).await
            }

            /// Whether a live item has the key.
            pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                let of = &self.of;
                let at_once = |key: &mut _| of.reading().try_contains(AsRef::as_ref(key));
                let later = |key| {
                    let (of, key) = (of.clone(), bytes(key));
                    move || of.contains(key)
                };
                self.shared.read(key, at_once, later).await
            }

            /// The values of many keys, in the order asked; `None` where no live item is. Each is as [`Self::get`] would
            /// find it, at a moment of its own. More than 64 keys are always looked up by the pool, and so are all of them
            /// when one is not in memory.
            ///
            /// # Errors
            /// That of the first key that cannot be read.
            pub async fn get_many<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> Result<Vec<Option<Value>>> {
                let (of, keys) = (&self.of, keys.into_iter().map(bytes).collect());
                let at_once = |keys: &mut Vec<Vec<u8>>| few_at_once(&of.reading(), keys);
                let later = |keys: Vec<Vec<u8>>| {
                    let of = of.clone();
                    move || of.get_many(keys)
                };
                self.shared.read(keys, at_once, later).await
            }

            /// All live items, in the order of keys; see [`ItemStream`] for the writes that it shows, and
            /// [`ItemStream::rev`] for the other way.
            pub fn iter(&self) -> ItemStream {
                self.range(..)
            }

            /// As [`Self::iter`], for the keys in a range.
            pub fn range(&self, range: impl KeyBounds) -> ItemStream {
                ItemStream::new(self.of.cursor(range), &self.shared)
            }

            /// As [`Self::iter`], for the keys that start with these bytes.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> ItemStream {
                let range = prefix_range(prefix.as_ref());
                ItemStream::new(self.of.reading().cursor(range), &self.shared)
            }

            /// The keys of a range; as [`Self::range`] without the values.
            pub fn keys(&self, range: impl KeyBounds) -> KeyStream {
                let items = self.range(range);
                KeyStream { items }
            }

            /// The live item with the lowest key.
            pub async fn first(&self) -> Result<Option<Item>> {
                let of = self.of.clone();
                self.shared
                    .pooled(WorkQueue::Read, move || of.first())
                    .await
            }

            /// The live item with the highest key.
            pub async fn last(&self) -> Result<Option<Item>> {
                let of = self.of.clone();
                self.shared.pooled(WorkQueue::Read, move || of.last()).await
            }

            /// A live item, each as likely as any other; `None` where there is none.
            pub async fn random(&self) -> Result<Option<Item>> {
                let of = self.of.clone();
                self.shared
                    .pooled(WorkQueue::Read, move || of.random())
                    .await
            }

            /// There is no live item.
            pub async fn is_empty(&self) -> Result<bool> {
                let of = self.of.clone();
                self.shared
                    .pooled(WorkQueue::Read, move || of.is_empty())
                    .await
            }

            /// How many live items a range has, exactly. Reads all of them.
            pub async fn count(&self, range: impl KeyBounds) -> Result<u64> {
                let (of, range) = (self.of.clone(), bounds(range));
                self.shared
                    .pooled(WorkQueue::Read, move || of.count(range))
                    .await
            }

            /// How many live items a range has, exactly, if these are fewer than `most`, else `most`. Items that cannot
            /// be read are not counted: 0 if the handle is closed.
            ///
            /// # Errors
            /// No thread of the pool could be started.
            pub async fn count_up_to(&self, range: impl KeyBounds, most: u64) -> Result<u64> {
                let (of, range) = (self.of.clone(), bounds(range));
                let counted = move || Ok(of.count_up_to(range, most));
                self.shared.pooled(WorkQueue::Read, counted).await
            }

            /// About how many bytes the keys and values of the live items of a range have. Items that cannot be read
            /// are not counted: 0 if the handle is closed.
            ///
            /// # Errors
            /// No thread of the pool could be started.
            pub async fn size_estimate(&self, range: impl KeyBounds) -> Result<u64> {
                let (of, range) = (self.of.clone(), bounds(range));
                self.shared
                    .pooled(WorkQueue::Read, move || Ok(of.size_estimate(range)))
                    .await
            }
        }
    };
}
pub(crate) use async_reading_methods;
