//! Reading: the same methods on a container and on a snapshot's view of one.
//!
//! [`reading_methods`] defines them, with their documentation, for a type that has `fn reading(&self) -> Reading<'_>`;
//! [`Reading`] implements them.

use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::api::arguments::{all_keys, check_key};
use crate::api::cursor::Cursor;
use crate::api::iter::Iter;
use crate::base::{Attempt, Now, Patience, Result, Wait};
use crate::data::batch::KeyRange;
use crate::data::item::{Item, Value};
use crate::engine::{ContainerState, Drawn, Handle, ReadPoint, Scan, SnapshotPin};

/// A container, and how it is read.
pub struct Reading<'a> {
    /// The engine of its database.
    pub engine: &'a Handle,
    /// The container.
    pub state: &'a Arc<ContainerState>,
    /// The snapshot to read; `None`: the newest state.
    pub pin: Option<&'a Arc<SnapshotPin>>,
}

impl<'a> Reading<'a> {
    #[inline(always)]
    fn point<P: Patience>(&self) -> Result<ReadPoint<'a, P>, P::Failure> {
        ReadPoint::new(self.engine, self.state, self.pin)
    }

    fn scan(&self, range: KeyRange) -> Result<Scan> {
        Ok(self.point::<Wait>()?.scan(self.engine, range))
    }

    #[inline(always)]
    fn get_by<P: Patience>(&self, key: &[u8]) -> Result<Option<Value>, P::Failure> {
        check_key(key)?;
        Ok(self.point::<P>()?.get(key)?.map(Value::from))
    }

    #[inline(always)]
    fn item_by<P: Patience>(&self, key: &[u8]) -> Result<Option<Item>, P::Failure> {
        check_key(key)?;
        self.point::<P>()?.item(key)
    }

    #[inline(always)]
    fn contains_by<P: Patience>(&self, key: &[u8]) -> Result<bool, P::Failure> {
        check_key(key)?;
        self.point::<P>()?.contains(key)
    }

    /// See [`reading_methods`], also for the methods below. They are not generic: a generic function is compiled with
    /// the caller's crate, where functions of this one are not inlined.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.get_by::<Wait>(key)
    }

    pub fn try_get(&self, key: &[u8]) -> Attempt<Option<Value>> {
        self.get_by::<Now>(key)
    }

    pub fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        self.item_by::<Wait>(key)
    }

    pub fn try_item(&self, key: &[u8]) -> Attempt<Option<Item>> {
        self.item_by::<Now>(key)
    }

    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.contains_by::<Wait>(key)
    }

    #[cfg(feature = "tokio")]
    pub fn try_contains(&self, key: &[u8]) -> Attempt<bool> {
        self.contains_by::<Now>(key)
    }

    pub fn range(&self, range: KeyRange) -> Iter {
        Iter::of(self.scan(range))
    }

    pub fn cursor(&self, range: KeyRange) -> Cursor {
        Cursor::new(self.engine, (self.state, self.pin), range)
    }

    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        let values = self.point::<Wait>()?.get_many(&keys)?;
        Ok(values
            .into_iter()
            .map(|value| value.map(Value::from))
            .collect())
    }

    /// The same, one by one.
    pub fn get_each<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Attempt<Vec<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        keys.iter().map(|key| self.try_get(key.as_ref())).collect()
    }

    pub fn for_each<B>(
        &self,
        range: KeyRange,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.scan(range)?.for_each(visit)
    }

    pub fn count(&self, range: KeyRange) -> Result<u64> {
        let mut items = 0;
        let end = self.for_each(range, |_, _| {
            items += 1;
            ControlFlow::<()>::Continue(())
        });
        end.map(|_| items)
    }

    pub fn count_up_to(&self, range: KeyRange, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        let mut items = 0;
        // Items behind an error are not counted.
        let _ = self.for_each(range, |_, _| {
            items += 1;
            match items < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        items
    }

    pub fn size_estimate(&self, range: KeyRange) -> u64 {
        let mut bytes = 0;
        // Items behind an error are not counted.
        let _ = self.for_each(range, |key, value| {
            bytes += (key.len() + value.len()) as u64;
            ControlFlow::<()>::Continue(())
        });
        bytes
    }

    pub fn random(&self) -> Result<Option<Item>> {
        self.random_by(RandomState::new().hash_one(0))
    }

    /// The same, by chance that follows from this number.
    fn random_by(&self, mut state: u64) -> Result<Option<Item>> {
        match self
            .point::<Wait>()?
            .draw(&mut |below| drawn_below(&mut state, below))?
        {
            Drawn::Item(item) => Ok(Some(item)),
            Drawn::Nothing => Ok(None),
            Drawn::Rare => self.random_of_all(state),
        }
    }

    /// Selects one of all items, by replacing the selected one at random for each. The selected one may have expired
    /// since, or been written: it is read again, and if it is gone the selection starts over.
    fn random_of_all(&self, mut state: u64) -> Result<Option<Item>> {
        loop {
            let (mut chosen, mut items) = (None, 0u64);
            let _ = self.for_each(all_keys(), |key, _| {
                items += 1;
                if drawn(&mut state).is_multiple_of(items) {
                    chosen = Some(key.to_vec());
                }
                ControlFlow::<()>::Continue(())
            })?;
            let Some(chosen) = chosen else {
                return Ok(None);
            };
            if let Some(item) = self.item(&chosen)? {
                return Ok(Some(item));
            }
        }
    }
}

/// Pseudo-random numbers (splitmix64).
fn drawn(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The next of them that is below this one.
pub fn drawn_below(state: &mut u64, below: u64) -> u64 {
    // The high half of a product is below its other factor.
    ((u128::from(drawn(state)) * u128::from(below)) >> 64) as u64
}

/// The methods for reading a container.
macro_rules! reading_methods {
    ($handle:ident) => {
        impl $handle {
            /// The value of a live item.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let users = Database::open(folder.path())?.container("users")?;
            /// users.put("u-1", "ada")?;
            /// let value = users.get("u-1")?.unwrap(); // bytes, compared with text here
            /// assert_eq!(value, "ada");
            /// assert_eq!(std::str::from_utf8(&value)?, "ada");
            /// assert!(users.get("u-2")?.is_none());
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                self.reading().get(key.as_ref())
            }

            /// A live item: value, version, times.
            ///
            /// ```
            /// use std::time::Duration;
            /// use ebbtide::{Database, Ttl};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let db = Database::open(folder.path())?;
            /// let tokens = db.container("tokens")?;
            /// tokens.put_with_ttl("t-1", "ada", Duration::from_secs(60))?;
            /// let item = tokens.item("t-1")?.unwrap();
            /// assert_eq!(item.ttl(), Ttl::After(Duration::from_secs(60)));
            /// assert_eq!(item.expires_at(), Some(item.written_at() + Duration::from_secs(60)));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
                self.reading().item(key.as_ref())
            }

            /// As [`Self::get`], if nothing is to be waited for: it never reads from a device and takes no lock that is held
            /// for long, so it may be called where other work must go on, as on the thread of an event loop. No future, no
            /// copy of the key; where the value is in memory, it costs about a tenth more than [`Self::get`]. [`AtOnce`] has
            /// an example.
            ///
            /// It would wait where the key's block is not in memory or was not read before, is compressed and not in the
            /// cache, while the settings are being changed, and when a write to the key comes in between. A page of a file
            /// that was read before is taken to be in memory, until this thread has had to wait for a device: then the
            /// system is asked for each page, for a while. So where memory is short a call may wait for a page now and
            /// then. Where the system does not say what is in memory (elsewhere than on Linux), only the cache is used.
            ///
            /// # Errors
            /// As of [`Self::get`].
            #[inline]
            pub fn try_get(&self, key: impl AsRef<[u8]>) -> Result<AtOnce<Option<Value>>> {
                AtOnce::of(self.reading().try_get(key.as_ref()))
            }

            /// As [`Self::item`], if nothing is to be waited for: see [`Self::try_get`].
            ///
            /// # Errors
            /// As of [`Self::item`].
            pub fn try_item(&self, key: impl AsRef<[u8]>) -> Result<AtOnce<Option<Item>>> {
                AtOnce::of(self.reading().try_item(key.as_ref()))
            }

            /// As [`Self::get_many`], if nothing is to be waited for, for none of the keys: see [`Self::try_get`].
            ///
            /// ```
            /// use ebbtide::{AtOnce, Database};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let ages = Database::open(folder.path())?.container("ages")?;
            /// ages.put("ada", "36")?;
            /// let AtOnce::Ready(found) = ages.try_get_many(["bob", "ada"])? else { unreachable!("both are in memory") };
            /// assert!(found[0].is_none() && found[1].as_ref().unwrap() == "36");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// The error of the first key that cannot be read.
            pub fn try_get_many<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> Result<AtOnce<Vec<Option<Value>>>> {
                AtOnce::of(self.reading().get_each(keys))
            }

            /// Whether a live item has the key.
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.reading().contains(key.as_ref())
            }

            /// All live items, in the order of keys. Sees the writes from before the call, or before the snapshot was
            /// taken, and none later; whether an item is live is judged when it is reached.
            ///
            /// ```
            /// use std::time::Duration;
            /// use ebbtide::{ManualClock, Options};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let clock = ManualClock::new(1_800_000_000_000);
            /// let c = Options::new().clock(clock.clone()).open(folder.path())?.container("c")?;
            /// c.put("a", "stays")?;
            /// c.put_with_ttl("b", "a minute", Duration::from_secs(60))?;
            /// let mut items = c.iter();
            /// c.put("c", "later")?; // not seen
            /// assert_eq!(items.next().unwrap()?.key(), b"a");
            /// clock.advance(Duration::from_secs(60));
            /// assert!(items.next().is_none()); // b has expired under it
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn iter(&self) -> Iter {
                self.reading().range(all_keys())
            }

            /// The values of many keys, in the order given; `None` where there is no live item. Each is read as
            /// [`Self::get`] does, at a moment of its own.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let ages = Database::open(folder.path())?.container("ages")?;
            /// ages.put("ada", "36")?;
            /// let found = ages.get_many(["bob", "ada"])?;
            /// assert!(found[0].is_none() && found[1].as_ref().unwrap() == "36");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// The error of the first key that cannot be read.
            pub fn get_many<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> Result<Vec<Option<Value>>> {
                self.reading().get_many(keys)
            }

            /// Like [`Self::iter`], for the keys in a range.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let squares = Database::open(folder.path())?.container("squares")?;
            /// for n in 0..300u32 {
            ///     squares.put(n.to_be_bytes(), (n * n).to_string())?; // the highest byte first: in the order of numbers
            /// }
            /// let from = 250u32.to_be_bytes();
            /// assert_eq!(squares.range(from..).next().unwrap()?.value(), "62500");
            /// assert_eq!(squares.range(..from).next_back().unwrap()?.value(), "62001");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn range(&self, range: impl KeyBounds) -> Iter {
                self.reading().range(key_range(range))
            }

            /// Like [`Self::iter`], for the keys that start with these bytes.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let posts = Database::open(folder.path())?.container("posts")?;
            /// // A zero byte ends the name, so that no other name begins with it.
            /// posts.put("ada\0 1", "first")?;
            /// posts.put("adam\0 1", "another's")?;
            /// assert_eq!(posts.prefix("ada\0").count(), 1);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
                self.reading().range(prefix_range(prefix.as_ref()))
            }

            /// Calls `visit` with key and value of each live item in a range, in the order of keys, until it returns
            /// `Break`. They are borrowed: copy what you keep. Sees the same items as [`Self::iter`], and judges each just
            /// before `visit` gets it. Nothing is locked meanwhile: `visit` may write, to this container, too.
            ///
            /// ```
            /// use std::ops::ControlFlow;
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let words = Database::open(folder.path())?.container("words")?;
            /// ["ant", "bee", "cat"].iter().try_for_each(|word| words.put(word, "1"))?;
            /// let first_above_b = words.for_each("b".., |key, _| ControlFlow::Break(key.to_vec()))?;
            /// assert_eq!(first_above_b, ControlFlow::Break(b"bee".to_vec()));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Errors
            /// Damage or a failed read of a file, or a closed handle; items shown before the error were right.
            pub fn for_each<B>(
                &self,
                range: impl KeyBounds,
                visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
            ) -> Result<ControlFlow<B>> {
                self.reading().for_each(key_range(range), visit)
            }

            /// A cursor over a range, which can be moved, and lends the items on either side of it; see [`Cursor`]. It
            /// starts before the first item.
            pub fn cursor(&self, range: impl KeyBounds) -> Cursor {
                self.reading().cursor(key_range(range))
            }

            /// The keys of a range, from both ends; like [`Self::iter`] without the values. Each is a copy.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let words = Database::open(folder.path())?.container("words")?;
            /// ["ant", "bee", "cat"].iter().try_for_each(|word| words.put(word, "1"))?;
            /// let keys = words.keys("b"..).collect::<ebbtide::Result<Vec<_>>>()?;
            /// assert_eq!(keys, ["bee", "cat"]);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn keys(&self, range: impl KeyBounds) -> Keys {
                let items = self.range(range);
                Keys { items }
            }

            /// The live item with the lowest key: the first of [`Self::iter`].
            pub fn first(&self) -> Result<Option<Item>> {
                self.iter().next().transpose()
            }

            /// The live item with the highest key: the last of [`Self::iter`].
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let log = Database::open(folder.path())?.container("log")?;
            /// ["2026-01", "2026-02"].iter().try_for_each(|month| log.put(month, ""))?;
            /// assert_eq!(log.first()?.unwrap().key(), b"2026-01");
            /// assert_eq!(log.last()?.unwrap().key(), b"2026-02");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn last(&self) -> Result<Option<Item>> {
                self.iter().next_back().transpose()
            }

            /// A random live item, each with the same probability; `None` if there is none. Takes the time of some reads,
            /// and reads all items only where there are few among many records of the dead.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let words = Database::open(folder.path())?.container("words")?;
            /// assert!(words.random()?.is_none());
            /// ["ant", "bee", "cat"].iter().try_for_each(|word| words.put(word, "1"))?;
            /// assert_eq!(words.random()?.unwrap().value(), "1");
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn random(&self) -> Result<Option<Item>> {
                self.reading().random()
            }

            /// Whether there is no live item.
            pub fn is_empty(&self) -> Result<bool> {
                self.first().map(|item| item.is_none())
            }

            /// The exact number of live items in a range: those of [`Self::range`], each judged when it is reached.
            /// Reads all of them.
            ///
            /// ```
            /// use std::time::Duration;
            /// use ebbtide::{ManualClock, Options};
            ///
            /// let folder = tempfile::tempdir()?;
            /// let clock = ManualClock::new(1_800_000_000_000);
            /// let hits = Options::new().clock(clock.clone()).open(folder.path())?.container("hits")?;
            /// hits.put_with_ttl("a-1", "", Duration::from_secs(1))?;
            /// hits.put("a-2", "")?;
            /// assert_eq!(hits.count("a-".."a.")?, 2);
            /// clock.advance(Duration::from_secs(1));
            /// assert_eq!(hits.count(..)?, 1);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            pub fn count(&self, range: impl KeyBounds) -> Result<u64> {
                self.reading().count(key_range(range))
            }

            /// The number of live items in a range, if there are fewer than `most`, else `most`: exact like
            /// [`Self::count`], and it reads no more of them. Items that cannot be read are not counted: 0 if the
            /// handle is closed.
            ///
            /// ```
            /// use ebbtide::Database;
            ///
            /// let folder = tempfile::tempdir()?;
            /// let jobs = Database::open(folder.path())?.container("jobs")?;
            /// ["a-1", "a-2", "b-1"].iter().try_for_each(|job| jobs.put(job, ""))?;
            /// assert_eq!(jobs.count_up_to("a-".."a.", 10_000), 2);
            /// assert_eq!(jobs.count_up_to(.., 2), 2); // or more
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use]
            pub fn count_up_to(&self, range: impl KeyBounds, most: u64) -> u64 {
                self.reading().count_up_to(key_range(range), most)
            }

            /// An estimate of the bytes of keys and values of the live items in a range. Items that cannot be read are
            /// not counted: 0 if the handle is closed.
            #[must_use]
            pub fn size_estimate(&self, range: impl KeyBounds) -> u64 {
                self.reading().size_estimate(key_range(range))
            }
        }

        impl IntoIterator for &$handle {
            type Item = Result<Item>;
            type IntoIter = Iter;

            fn into_iter(self) -> Iter {
                self.iter()
            }
        }
    };
}
pub(crate) use reading_methods;

#[cfg(test)]
mod tests;
