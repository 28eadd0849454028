//! Batches.

use bytes::Bytes;
use ebbtide::{Ttl, Version};

use super::container::life;
use super::{Container, Error};
use crate::machine::body::{Act, Body, Life, When, Write};

/// A condition on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is none, or it has ended.
    Absent,
    /// There is one.
    Present,
    /// It is of this version.
    Version(Version),
}

impl Expect {
    pub(super) fn when(self) -> When {
        match self {
            Expect::Absent => When::Absent,
            Expect::Present => When::Present,
            Expect::Version(version) => When::Version(version.as_u64()),
        }
    }
}

/// Writes over any containers that are done together or not at all: [`Node::write`](crate::Node::write). If a condition does not
/// hold, that is [`Error::Conflict`] and nothing is written. Conditions see what the batch has written before them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    writes: Vec<Write>,
    refused: Option<String>,
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    fn push(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        when: When,
        act: Act,
    ) -> &mut Batch {
        self.writes.push(Write {
            container: container.name().to_owned(),
            key: Bytes::copy_from_slice(key.as_ref()),
            when,
            act,
        });
        self
    }

    fn with_life(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        when: When,
        ttl: impl Into<Ttl>,
        act: impl FnOnce(Life) -> Act,
    ) -> &mut Batch {
        match life(ttl.into()) {
            Ok(life) => self.push(container, key, when, act(life)),
            Err(error) => {
                self.refused.get_or_insert(error.to_string());
                self
            }
        }
    }

    /// As [`Container::put`].
    pub fn put(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> &mut Batch {
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// As [`Container::put_with_ttl`].
    pub fn put_with_ttl(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> &mut Batch {
        let value = value.into();
        self.with_life(container, key, When::Always, ttl, |life| {
            Act::Put(value, life)
        })
    }

    /// As [`Container::put_if`]: where it does not hold, the batch is a conflict.
    pub fn put_if(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
        expect: Expect,
    ) -> &mut Batch {
        let value = value.into();
        self.with_life(container, key, expect.when(), ttl, |life| {
            Act::Put(value, life)
        })
    }

    /// As [`Container::create`].
    pub fn create(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> &mut Batch {
        self.put_if(container, key, value, ttl, Expect::Absent)
    }

    /// As [`Container::replace`].
    pub fn replace(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> &mut Batch {
        self.put_if(container, key, value, ttl, Expect::Present)
    }

    /// As [`Container::touch`].
    pub fn touch(&mut self, container: &Container, key: impl AsRef<[u8]>) -> &mut Batch {
        self.push(container, key, When::Present, Act::Touch)
    }

    /// As [`Container::expire`].
    pub fn expire(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> &mut Batch {
        self.with_life(container, key, When::Present, ttl, Act::Expire)
    }

    /// As [`Container::delete`].
    pub fn delete(&mut self, container: &Container, key: impl AsRef<[u8]>) -> &mut Batch {
        self.push(container, key, When::Always, Act::Delete)
    }

    /// Writes nothing: the batch is a conflict unless this holds.
    pub fn require(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        expect: Expect,
    ) -> &mut Batch {
        self.push(container, key, expect.when(), Act::Require)
    }

    /// The number of writes and conditions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Batch::new();
    }

    pub(crate) fn into_body(self) -> Result<Body, Error> {
        match self.refused {
            Some(why) => Err(Error::Invalid(why)),
            None => Ok(Body::Batch(self.writes)),
        }
    }
}
