//! Batches.

use std::time::Duration;

use bytes::Bytes;
use ebbtide::{DefaultTtl, KeyBounds, Quota, Ttl, Version};

use super::container::{bounds, life};
use super::{Container, Error};
use crate::machine::body::{Act, Body, Command, Ending, Life, Limit, When, Write, millis_up};

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
    commands: Vec<(String, Command)>,
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

    /// Stores an item that counts from when another one does, by the same ttl, and so ends with it where the defaults of both
    /// containers are alike ([`ebbtide::Ttl::Like`]). Where that one is not live, or written by this batch, the batch is a conflict.
    pub fn put_like(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        of: &Container,
        of_key: impl AsRef<[u8]>,
    ) -> &mut Batch {
        let of_key = Bytes::copy_from_slice(of_key.as_ref());
        let act = Act::PutLike(value.into(), of.name().to_owned(), of_key);
        self.push(container, key, When::Always, act)
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

    /// Makes a container with this default ttl; where there is one of this name, the batch is a conflict. Its items are for later
    /// writes.
    ///
    /// As each of the commands below it is done before the writes of the batch, which then has an entry of the log of its own. The
    /// writes of such a batch are puts, deletions and conditions; in a container of which it has a command there is no condition and
    /// no [`Ttl::Keep`]; and a container that it makes or drops is in it once. Else it is [`Error::Invalid`].
    pub fn create_container(
        &mut self,
        name: impl AsRef<str>,
        default: impl Into<DefaultTtl>,
    ) -> &mut Batch {
        self.with_ending(name.as_ref(), default.into(), Command::Create)
    }

    /// The same with how long ended items are kept, and a quota: [`Container::set_keep_expired`], [`Container::set_quota`].
    pub fn create_container_with(
        &mut self,
        name: impl AsRef<str>,
        default: impl Into<DefaultTtl>,
        keep_expired: Duration,
        quota: Option<Quota>,
    ) -> &mut Batch {
        let (keep_expired_ms, quota) = (millis_up(keep_expired), quota.map(Limit::of));
        let create = |default| Command::CreateWith {
            default,
            keep_expired_ms,
            quota,
        };
        self.with_ending(name.as_ref(), default.into(), create)
    }

    /// As [`Container::set_quota`].
    pub fn set_quota(&mut self, container: &Container, quota: Option<Quota>) -> &mut Batch {
        self.command(container.name(), Command::Quota(quota.map(Limit::of)))
    }

    /// As [`Container::set_keep_expired`].
    pub fn set_keep_expired(&mut self, container: &Container, duration: Duration) -> &mut Batch {
        let keep = Command::KeepExpired(millis_up(duration));
        self.command(container.name(), keep)
    }

    /// As [`Container::set_default_ttl`].
    pub fn set_default_ttl(
        &mut self,
        container: &Container,
        default: impl Into<DefaultTtl>,
    ) -> &mut Batch {
        self.with_ending(container.name(), default.into(), Command::SetDefault)
    }

    /// As [`Container::delete_range`]. What this batch writes stays.
    pub fn delete_range(&mut self, container: &Container, range: impl KeyBounds) -> &mut Batch {
        let (start, end) = bounds(&range);
        self.command(container.name(), Command::DeleteRange(start, end))
    }

    /// Drops a container with everything in it. Where there is none of this name, nothing of the batch is done:
    /// [`Error::NoContainer`].
    pub fn drop_container(&mut self, name: impl AsRef<str>) -> &mut Batch {
        self.command(name.as_ref(), Command::Drop)
    }

    fn with_ending(
        &mut self,
        name: &str,
        default: DefaultTtl,
        command: impl FnOnce(Ending) -> Command,
    ) -> &mut Batch {
        match Ending::of(default) {
            Some(ending) => self.command(name, command(ending)),
            None => {
                let why = format!("a default ttl of {default:?}");
                self.refused.get_or_insert(why);
                self
            }
        }
    }

    fn command(&mut self, name: &str, command: Command) -> &mut Batch {
        self.commands.push((name.to_owned(), command));
        self
    }

    /// The number of writes, conditions and commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len() + self.commands.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        *self = Batch::new();
    }

    pub(crate) fn into_body(self) -> Result<Body, Error> {
        match self.refused {
            Some(why) => Err(Error::Invalid(why)),
            None if self.commands.is_empty() => Ok(Body::Batch(self.writes)),
            None => Ok(Body::BatchWithCommands {
                writes: self.writes,
                commands: self.commands,
            }),
        }
    }
}
