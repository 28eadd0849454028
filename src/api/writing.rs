//! Writing: what the methods of a container do, in whichever way the engine is asked.
//!
//! [`Writing`] checks what it is given and says which write it is; a [`Way`] has the engine do it: [`Waiting`] as long as
//! that takes.

use std::result::Result as Either;
use std::sync::Arc;

use crate::api::arguments::{
    KeyBounds, check_item, check_key, check_value, check_value_len, checked_range,
};
use crate::base::{Error, Result, Timestamp, Ttl};
use crate::data::batch::{Op, WriteTtl};
use crate::data::item::Item;
use crate::data::write::{Updated, Written};
use crate::engine::{ContainerState, Engine, Handle, UpdateAction};
use crate::expiry::ttl_millis;

/// What [`Container::update`](crate::Container::update) does with the item it was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// Leaves it as it is.
    Keep,
    /// Writes this value with this ttl.
    Put(Vec<u8>, Ttl),
    /// Deletes it.
    Delete,
}

/// How the engine is asked for a write.
pub trait Way {
    /// Why it was not done.
    type Failure: From<Error>;

    /// See [`Engine::write_one`].
    fn write_one(
        &self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        op: Op<'_>,
    ) -> Either<(), Self::Failure>;

    /// See [`Engine::update`].
    fn update(
        &self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> Either<Option<Written>, Self::Failure>;
}

/// It waits for what the write has to wait for.
pub struct Waiting;

impl Way for Waiting {
    type Failure = Error;

    #[inline]
    fn write_one(&self, engine: &Engine, state: &Arc<ContainerState>, op: Op<'_>) -> Result<()> {
        engine.write_one(state, op)
    }

    #[inline]
    fn update(
        &self,
        engine: &Engine,
        state: &Arc<ContainerState>,
        key: &[u8],
        decide: &mut dyn FnMut(Option<Item>) -> UpdateAction,
    ) -> Result<Option<Written>> {
        engine.update(state, key, decide)
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
        Ttl::Until(moment) => WriteTtl::Until(Timestamp::from_system_time_up(moment)),
    })
}

/// A container, to be written to in this way. Its methods are those of a container, where they are documented.
pub struct Writing<'a, W> {
    /// Of its database.
    pub engine: &'a Handle,
    /// Which.
    pub state: &'a Arc<ContainerState>,
    /// How.
    pub way: W,
}

impl<W: Way> Writing<'_, W> {
    #[inline]
    fn write_one(&self, op: Op<'_>) -> Either<(), W::Failure> {
        self.way.write_one(self.engine, self.state, op)
    }

    fn conditionally(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<&Item>) -> UpdateAction,
    ) -> Either<Option<Written>, W::Failure> {
        check_key(key)?;
        check_value_len(value_len)?;
        let mut decide = |item: Option<Item>| decide(item.as_ref());
        self.way.update(self.engine, self.state, key, &mut decide)
    }

    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<(), W::Failure> {
        check_item(key, value)?;
        let ttl = write_ttl(ttl)?;
        if ttl == WriteTtl::Keep {
            let put = |_: Option<&Item>| UpdateAction::Put(value.to_vec(), ttl);
            return self.conditionally(key, value.len(), put).map(drop);
        }
        self.write_one(Op::Put {
            container: self.state.id(),
            ttl,
            key,
            value,
        })
    }

    pub fn create(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<bool, W::Failure> {
        let ttl = write_ttl(ttl)?;
        let written = self.conditionally(key, value.len(), |found| match found {
            Some(_) => UpdateAction::Keep,
            None => UpdateAction::Put(value.to_vec(), ttl),
        })?;
        Ok(written.is_some())
    }

    pub fn replace(&self, key: &[u8], value: &[u8], ttl: Ttl) -> Either<bool, W::Failure> {
        let ttl = write_ttl(ttl)?;
        let written = self.conditionally(key, value.len(), |found| match found {
            Some(_) => UpdateAction::Put(value.to_vec(), ttl),
            None => UpdateAction::Keep,
        })?;
        Ok(written.is_some())
    }

    pub fn touch(&self, key: &[u8]) -> Either<bool, W::Failure> {
        let written = self.conditionally(key, 0, |found| match found {
            Some(item) => UpdateAction::Put(item.value().to_vec(), item.stored_ttl().into()),
            None => UpdateAction::Keep,
        })?;
        Ok(written.is_some())
    }

    pub fn expire(&self, key: &[u8], ttl: Ttl) -> Either<bool, W::Failure> {
        let ttl = write_ttl(ttl)?;
        if ttl == WriteTtl::Keep {
            let allowed = "one that is to count from now on";
            return Err(Error::invalid("ttl", "Keep", allowed).into());
        }
        let written = self.conditionally(key, 0, |found| match found {
            Some(item) => UpdateAction::Put(item.value().to_vec(), ttl),
            None => UpdateAction::Keep,
        })?;
        Ok(written.is_some())
    }

    pub fn take(&self, key: &[u8]) -> Either<Option<Item>, W::Failure> {
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

    pub fn update(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Either<Option<Written>, W::Failure> {
        let mut refused = None;
        let written = self.conditionally(key, 0, |found| {
            refused = None;
            match decide(found) {
                Update::Keep => UpdateAction::Keep,
                Update::Delete => UpdateAction::Delete,
                Update::Put(value, ttl) => {
                    let ttl = check_value(&value).and_then(|()| write_ttl(ttl));
                    match ttl {
                        Ok(ttl) => UpdateAction::Put(value, ttl),
                        Err(error) => {
                            refused = Some(error);
                            UpdateAction::Keep
                        }
                    }
                }
            }
        })?;
        refused.map_or(Ok(written), |error| Err(error.into()))
    }

    pub fn fetch_update(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Either<Updated, W::Failure> {
        let mut before = None;
        let written = self.update(key, |found| {
            before = found.cloned();
            decide(found)
        })?;
        Ok(Updated::new(before, written))
    }

    #[inline]
    pub fn delete(&self, key: &[u8]) -> Either<(), W::Failure> {
        check_key(key)?;
        self.write_one(Op::Delete {
            container: self.state.id(),
            key,
        })
    }

    pub fn delete_range(&self, range: impl KeyBounds) -> Either<(), W::Failure> {
        let range = checked_range(range)?;
        if range.is_empty() {
            return Ok(self.engine.check_open(self.state)?);
        }
        self.write_one(Op::DeleteRange {
            container: self.state.id(),
            from: &range.from,
            to: range.to.as_deref().unwrap_or_default(),
        })
    }
}
