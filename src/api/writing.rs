//! Writing: the methods of a container, for callers that wait, for those that do not, and in a transaction.
//!
//! [`Writes`] checks its arguments and says which write it is. By [`Writing`] the engine does it; a [`WriteMode`] says
//! whether the call may wait: [`Waiting`] does, [`NotWaiting`] does not. By [`Within`](crate::api::within::Within) it waits in a
//! transaction.

use std::borrow::Cow;
use std::result::Result as Either;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::api::arguments::{
    KeyBounds, check_item, check_key, check_value, check_value_len, checked_range,
};
use crate::base::{Error, Now, Patience, Result, Seq, Timestamp, Ttl, Wait};
use crate::data::batch::{Op, WriteTtl};
use crate::data::item::Item;
use crate::data::version::Version;
use crate::data::write::{PutIf, Updated, Upserted, Written};
use crate::engine::{Begun, ContainerState, Decide, Handle, NewValue, UpdateAction, deciding};
use crate::expiry::ttl_millis;

/// The action of [`Container::update`](crate::Container::update) on the item that its closure was shown. The values of
/// `update` are [`Bytes`]; those of [`Container::update_with`](crate::Container::update_with) may be borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update<V = Bytes> {
    /// Leaves it as it is.
    Keep,
    /// Writes this value with this ttl. [`Update::Put`] takes whatever becomes the value.
    Write(V, Ttl),
    /// Gives it this ttl, which counts from now on, and keeps its value, as [`Container::expire`](crate::Container::expire)
    /// does. Where no live item is, this is the same as [`Update::Keep`].
    Expire(Ttl),
    /// Deletes it.
    Delete,
}

impl<V> Update<V> {
    /// Writes this value with this ttl. For `update` it is what is `Into<Bytes>`: a `Vec<u8>`, a `String`, a literal,
    /// [`Bytes`], or a [`Value`](crate::Value), which is not copied.
    ///
    /// ```
    /// use ebbtide::{Database, Ttl, Update};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let db = Database::open(folder.path())?;
    /// let c = db.container("c")?;
    /// c.update("k", |_| Update::Put("a literal", Ttl::Inherit))?;
    /// c.update("k", |item| match item {
    ///     Some(item) => Update::Put(item.value().clone(), Ttl::Never),
    ///     None => Update::Put(format!("{}", 7), Ttl::Inherit),
    /// })?;
    /// assert_eq!(c.get("k")?.unwrap(), "a literal");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(non_snake_case)]
    #[must_use]
    pub fn Put(value: impl Into<V>, ttl: Ttl) -> Update<V> {
        Update::Write(value.into(), ttl)
    }
}

/// How the engine is asked for a write.
pub trait WriteMode {
    /// Whether the caller waits.
    type Patience: Patience;

    /// Takes note of a write that was begun, and returns its version and time.
    fn note(&self, begun: Begun) -> Written;
}

/// The mode of a caller that waits.
pub struct Waiting;

impl WriteMode for Waiting {
    type Patience = Wait;

    #[inline(always)]
    fn note(&self, begun: Begun) -> Written {
        begun.written()
    }
}

/// The mode of a caller that does not wait, of a database whose writes are not synced.
pub struct NotWaiting;

impl WriteMode for NotWaiting {
    type Patience = Now;

    #[inline(always)]
    fn note(&self, begun: Begun) -> Written {
        begun.written()
    }
}

/// A ttl as a write carries it.
#[inline]
pub fn write_ttl(ttl: Ttl) -> Result<WriteTtl> {
    Ok(match ttl {
        Ttl::Inherit => WriteTtl::Absent,
        Ttl::Never => WriteTtl::Never,
        Ttl::After(duration) => WriteTtl::Millis(ttl_millis(duration)?),
        Ttl::Keep => WriteTtl::Keep,
        Ttl::Since(countdown) => WriteTtl::Like(countdown),
        Ttl::Until(moment) => WriteTtl::Until(Timestamp::from_system_time_up(moment)),
    })
}

/// The same of one for an item that keeps its value: any but its own.
pub fn other_ttl(ttl: Ttl) -> Result<WriteTtl> {
    match write_ttl(ttl)? {
        WriteTtl::Keep => {
            let allowed = "another than the one it has";
            Err(Error::invalid("ttl", "Keep", allowed))
        }
        ttl => Ok(ttl),
    }
}

/// A value that an update was given.
pub trait IntoValue<'v> {
    /// For the engine.
    fn into_value(self) -> NewValue<'v>;
}

impl IntoValue<'static> for Bytes {
    fn into_value(self) -> NewValue<'static> {
        NewValue::Held(self)
    }
}

impl<'v> IntoValue<'v> for Cow<'v, [u8]> {
    fn into_value(self) -> NewValue<'v> {
        match self {
            Cow::Borrowed(bytes) => NewValue::Lent(bytes),
            Cow::Owned(bytes) => NewValue::Held(bytes.into()),
        }
    }
}

/// A write that gives an item another ttl.
fn with_its_value<'v>(item: &Item, ttl: WriteTtl) -> UpdateAction<'v> {
    let value = item.value().clone().into_bytes();
    UpdateAction::Put(NewValue::Held(value), ttl)
}

/// The engine's form of an action on an item, if it is allowed.
fn action<'v, V>(update: Update<V>, found: Option<&Item>) -> Result<UpdateAction<'v>>
where
    V: IntoValue<'v> + AsRef<[u8]>,
{
    Ok(match update {
        Update::Keep => UpdateAction::Keep,
        Update::Delete => UpdateAction::Delete,
        Update::Write(value, ttl) => {
            check_value(value.as_ref())?;
            UpdateAction::Put(value.into_value(), write_ttl(ttl)?)
        }
        Update::Expire(ttl) => {
            let ttl = other_ttl(ttl)?;
            found.map_or(UpdateAction::Keep, |item| with_its_value(item, ttl))
        }
    })
}

/// A container that is written to, directly or in a transaction. Its methods are those of a container, where they are
/// documented: what each writes is said here alone.
pub trait Writes {
    /// The reason why a write was not done.
    type Failure: From<Error>;

    /// The container.
    fn state(&self) -> &Arc<ContainerState>;

    /// Fails if it cannot be written to any more.
    fn check_open(&self) -> Result<()>;

    /// Writes without reading.
    fn write_one(&self, op: Op<'_>) -> Either<(), Self::Failure>;

    /// Does to a key what is decided of its live item. None: nothing was written.
    fn conditionally<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        decide: impl FnMut(Option<&Item>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure>;

    /// The same, by the version of the live item, whose value is not read.
    fn by_version<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        decide: impl FnMut(Option<Seq>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure>;

    /// As [`Writes::conditionally`], where a closure of the caller's decides, which may read and write other keys meanwhile.
    fn decide<'v>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<&Item>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure> {
        self.conditionally(key, 0, decide)
    }

    /// As [`Writes::by_version`], where a closure of the caller's decides.
    fn decide_by_version<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        decide: impl FnMut(Option<Seq>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure> {
        self.by_version(key, value_len, decide)
    }

    #[inline(always)]
    fn put(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<(), Self::Failure> {
        check_item(key, value)?;
        let ttl = write_ttl(ttl)?;
        if let WriteTtl::Keep | WriteTtl::Like(_) = ttl {
            return self.put_over(key, value, ttl);
        }
        self.write_one(Op::Put {
            container: self.state().id(),
            ttl,
            key,
            value,
        })
    }

    /// A put whose lifetime depends on what is there, or on what has passed.
    #[cold]
    fn put_over(&self, key: &[u8], value: &[u8], ttl: WriteTtl) -> Either<(), Self::Failure> {
        let put = |_| UpdateAction::Put(NewValue::Lent(value), ttl);
        self.by_version(key, value.len(), put).map(drop)
    }

    fn create(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<bool, Self::Failure> {
        let ttl = write_ttl(ttl)?;
        let written = self.by_version(key, value.len(), |found| match found {
            Some(_) => UpdateAction::Keep,
            None => UpdateAction::Put(NewValue::Lent(value), ttl),
        })?;
        Ok(written.is_some())
    }

    fn replace(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<bool, Self::Failure> {
        let ttl = write_ttl(ttl)?;
        let written = self.by_version(key, value.len(), |found| match found {
            Some(_) => UpdateAction::Put(NewValue::Lent(value), ttl),
            None => UpdateAction::Keep,
        })?;
        Ok(written.is_some())
    }

    fn upsert(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<Upserted, Self::Failure> {
        let ttl = write_ttl(ttl)?;
        let mut before = None;
        let written = self.by_version(key, value.len(), |found| {
            before = found.map(Version::of);
            UpdateAction::Put(NewValue::Lent(value), ttl)
        })?;
        let written = written.expect("a put is decided");
        Ok(Upserted { before, written })
    }

    fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Ttl,
        mut accepts: impl FnMut(Option<Version>) -> bool,
    ) -> Either<PutIf, Self::Failure> {
        let ttl = write_ttl(ttl)?;
        let (mut before, mut refused) = (None, None);
        let written = self.decide_by_version(key, value.len(), |found| {
            before = found.map(Version::of);
            let decided = deciding(self.state(), key, || accepts(before));
            refused = decided.as_ref().err().cloned();
            match decided {
                Ok(true) => UpdateAction::Put(NewValue::Lent(value), ttl),
                _ => UpdateAction::Keep,
            }
        })?;
        refused.map_or(Ok(PutIf { before, written }), |error| Err(error.into()))
    }

    fn touch(&self, key: &[u8]) -> Either<bool, Self::Failure> {
        let touched = self.touch_if(key, |_| true)?;
        Ok(touched.is_some())
    }

    /// Touches the item if it is accepted; the item as it was, and the write.
    fn touch_if(
        &self,
        key: &[u8],
        mut accepts: impl FnMut(Option<&Item>) -> bool,
    ) -> Either<Option<(Item, Written)>, Self::Failure> {
        let mut before = None;
        let written = self.conditionally(key, 0, |found| {
            let is_accepted = accepts(found);
            before = found.filter(|_| is_accepted).cloned();
            match &before {
                Some(item) => with_its_value(item, item.stored_ttl().into()),
                None => UpdateAction::Keep,
            }
        })?;
        Ok(before.zip(written))
    }

    /// Touches the item if it is accepted; as it is then.
    fn get_and_touch(
        &self,
        key: &[u8],
        accepts: impl FnMut(Option<&Item>) -> bool,
    ) -> Either<Option<Item>, Self::Failure> {
        let touched = self.touch_if(key, accepts)?;
        Ok(touched.map(|(item, written)| item.touched(written.stamp())))
    }

    fn touch_until(&self, key: &[u8]) -> Either<Option<SystemTime>, Self::Failure> {
        let touched = self.get_and_touch(key, |_| true)?;
        Ok(touched.map(|item| item.end_or_last()))
    }

    fn expire(&self, key: &[u8], ttl: Ttl) -> Either<bool, Self::Failure> {
        let ttl = other_ttl(ttl)?;
        let written = self.conditionally(key, 0, |found| match found {
            Some(item) => with_its_value(item, ttl),
            None => UpdateAction::Keep,
        })?;
        Ok(written.is_some())
    }

    fn take(&self, key: &[u8]) -> Either<Option<Item>, Self::Failure> {
        let mut taken = None;
        self.conditionally(key, 0, |found| {
            taken = found.cloned();
            match found {
                Some(_) => UpdateAction::Delete,
                None => UpdateAction::Keep,
            }
        })?;
        Ok(taken)
    }

    fn update<'v, V: IntoValue<'v> + AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Update<V>,
    ) -> Either<Option<Written>, Self::Failure> {
        let mut refused = None;
        let written = self.decide(key, |found| {
            let decided = deciding(self.state(), key, || decide(found));
            let action = decided.and_then(|decided| action(decided, found));
            refused = action.as_ref().err().cloned();
            action.unwrap_or(UpdateAction::Keep)
        })?;
        refused.map_or(Ok(written), |error| Err(error.into()))
    }

    fn fetch_update(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Either<Updated, Self::Failure> {
        let mut before = None;
        let written = self.update(key, |found| {
            before = found.cloned();
            decide(found)
        })?;
        Ok(Updated::new(before, written))
    }

    #[inline]
    fn delete(&self, key: &[u8]) -> Either<(), Self::Failure> {
        check_key(key)?;
        self.write_one(Op::Delete {
            container: self.state().id(),
            key,
        })
    }

    fn delete_range(&self, range: impl KeyBounds) -> Either<(), Self::Failure> {
        let range = checked_range(range)?;
        if range.is_empty() {
            return Ok(self.check_open()?);
        }
        self.write_one(Op::DeleteRange {
            container: self.state().id(),
            from: &range.from,
            to: range.to.as_deref().unwrap_or_default(),
        })
    }
}

/// A container, to be written to in this way.
pub struct Writing<'a, W> {
    /// Of its database.
    pub engine: &'a Handle,
    /// The container.
    pub state: &'a Arc<ContainerState>,
    /// How.
    pub way: W,
}

impl<W: WriteMode> Writes for Writing<'_, W> {
    type Failure = <W::Patience as Patience>::Failure;

    fn state(&self) -> &Arc<ContainerState> {
        self.state
    }

    fn check_open(&self) -> Result<()> {
        self.engine.check_open(self.state)
    }

    #[inline(always)]
    fn write_one(&self, op: Op<'_>) -> Either<(), Self::Failure> {
        let begun = self.engine.write_one::<W::Patience>(self.state, op)?;
        self.way.note(begun);
        Ok(())
    }

    #[inline]
    fn upsert(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<Upserted, Self::Failure> {
        check_item(key, value)?;
        let ttl = write_ttl(ttl)?;
        let (begun, before) = (self.engine).upsert::<W::Patience>(self.state, key, value, ttl)?;
        Ok(Upserted {
            before: before.map(Version::of),
            written: self.way.note(begun),
        })
    }

    fn conditionally<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<&Item>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure> {
        check_key(key)?;
        check_value_len(value_len)?;
        let mut decide = |item: Option<Item>| decide(item.as_ref());
        let decide = Decide::Item(&mut decide);
        let begun = (self.engine).update::<W::Patience>(self.state, key, decide)?;
        Ok(begun.map(|begun| self.way.note(begun)))
    }

    fn by_version<'v>(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<Seq>) -> UpdateAction<'v>,
    ) -> Either<Option<Written>, Self::Failure> {
        check_key(key)?;
        check_value_len(value_len)?;
        let decide = Decide::Version(&mut decide);
        let begun = (self.engine).update::<W::Patience>(self.state, key, decide)?;
        Ok(begun.map(|begun| self.way.note(begun)))
    }
}
