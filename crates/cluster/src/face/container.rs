//! A container of a cluster.

use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use ebbtide::{DefaultTtl, KeyBounds, Quota, Ttl, Update, Version};

use super::{Answered, Error, Expect, Item, ReadLevel, Token};
use crate::machine::body::{Act, Body, Command, Ending, Life, Limit, Reply, When, Write, millis};
use crate::node::Shared;

/// An update is tried again as often as this, when others write the same key.
const ATTEMPTS: u64 = 64;

/// A container of a cluster, by any of its nodes. Cheap to clone. It is a name: whether there is such a container is judged by each
/// call.
///
/// Writes and linearizable reads are sent on to the node that leads, and again for [`NodeOptions::patience`](crate::NodeOptions::patience)
/// while none does; a write whose answer was lost is done once. A future that is dropped does not undo a write that was sent.
///
/// Keys have 1 to 65 535 bytes; an op, a batch and a transaction up to 4 MiB. Each write is durable on a majority when it is
/// answered.
///
/// Errors of each call: [`Error::NoContainer`]; [`Error::Invalid`] for arguments out of range; [`Error::NoLeader`],
/// [`Error::Unknown`] (of writes) and [`Error::Behind`] (of reads) when time is over; of writes [`Error::Engine`] with
/// [`ebbtide::Error::QuotaFull`] where there is a quota.
#[derive(Clone)]
pub struct Container {
    pub(super) node: Arc<Shared>,
    pub(super) name: Arc<str>,
    pub(super) level: ReadLevel,
    pub(super) since: Token,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container")
            .field("name", &self.name)
            .field("level", &self.level)
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

/// The lifetime that a ttl says, if a log can say it.
pub(super) fn life(ttl: Ttl) -> Result<Life, Error> {
    Life::of(ttl).ok_or_else(|| Error::Invalid(format!("a ttl of {ttl:?} is of one database")))
}

fn bound(bound: Bound<&[u8]>) -> Bound<Bytes> {
    bound.map(Bytes::copy_from_slice)
}

pub(super) fn bounds(range: &impl KeyBounds) -> (Bound<Bytes>, Bound<Bytes>) {
    (bound(range.start()), bound(range.end()))
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unknown(format!("an answer of another op: {reply:?}"))
}

impl Container {
    pub(crate) fn new(node: Arc<Shared>, name: &str) -> Container {
        Container {
            node,
            name: Arc::from(name),
            level: ReadLevel::default(),
            since: Token::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same container, whose reads are of this level.
    #[must_use]
    pub fn at(&self, level: ReadLevel) -> Container {
        Container {
            level,
            ..self.clone()
        }
    }

    /// The same container, whose reads see what the answer of this token saw, at no earlier moment: the own writes of a client, on
    /// any node and at each level.
    #[must_use]
    pub fn since(&self, token: Token) -> Container {
        Container {
            since: self.since.max(token),
            ..self.clone()
        }
    }

    fn one(&self, key: impl AsRef<[u8]>, when: When, act: Act) -> Body {
        Body::One(Write {
            container: self.name.to_string(),
            key: Bytes::copy_from_slice(key.as_ref()),
            when,
            act,
        })
    }

    async fn ask(&self, body: Body) -> Result<Answered<Reply>, Error> {
        let answered = self.node.write(body).await?;
        match answered.value {
            Reply::NoContainer(name) => Err(Error::NoContainer(name)),
            _ => Ok(answered),
        }
    }

    /// The version that was written, or none where the condition did not hold.
    async fn conditional(&self, body: Body) -> Result<Answered<Option<Version>>, Error> {
        let answered = self.ask(body).await?;
        let version = match &answered.value {
            Reply::Done { version } => Some(Version::from_u64(*version)),
            Reply::Missed => None,
            other => return Err(unexpected(other)),
        };
        Ok(answered.map(|_| version))
    }

    async fn certain(&self, body: Body) -> Result<Answered<Version>, Error> {
        let answered = self.conditional(body).await?;
        match answered.value {
            Some(version) => Ok(answered.map(|_| version)),
            None => Err(unexpected(&Reply::Missed)),
        }
    }

    /// Stores an item, whose end is the container's default. Returns its version.
    pub async fn put(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<Answered<Version>, Error> {
        self.put_with_ttl(key, value, Ttl::Inherit).await
    }

    /// Stores an item with a ttl of its own, which counts from the answer's `at`.
    pub async fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> Result<Answered<Version>, Error> {
        let act = Act::Put(value.into(), life(ttl.into())?);
        self.certain(self.one(key, When::Always, act)).await
    }

    /// Stores an item where none is. `None`: a live one is there, and nothing was written.
    pub async fn create(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> Result<Answered<Option<Version>>, Error> {
        self.put_if(key, value, ttl, Expect::Absent).await
    }

    /// Stores an item over a live one. `None`: there is none, and nothing was written.
    pub async fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
    ) -> Result<Answered<Option<Version>>, Error> {
        self.put_if(key, value, ttl, Expect::Present).await
    }

    /// Stores an item where this holds. `None`: it does not, and nothing was written.
    pub async fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
        ttl: impl Into<Ttl>,
        expect: Expect,
    ) -> Result<Answered<Option<Version>>, Error> {
        let act = Act::Put(value.into(), life(ttl.into())?);
        self.conditional(self.one(key, expect.when(), act)).await
    }

    /// Begins the countdown of a live item again; its value and ttl stay. `None`: there is none.
    pub async fn touch(&self, key: impl AsRef<[u8]>) -> Result<Answered<Option<Version>>, Error> {
        self.conditional(self.one(key, When::Present, Act::Touch))
            .await
    }

    /// Gives a live item another ttl, which counts from now; its value stays. `None`: there is none.
    pub async fn expire(
        &self,
        key: impl AsRef<[u8]>,
        ttl: impl Into<Ttl>,
    ) -> Result<Answered<Option<Version>>, Error> {
        let act = Act::Expire(life(ttl.into())?);
        self.conditional(self.one(key, When::Present, act)).await
    }

    /// Removes an item, whether it is there or not. Returns the version of that write.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<Answered<Version>, Error> {
        self.certain(self.one(key, When::Always, Act::Delete)).await
    }

    /// Removes a live item for which this holds. `None`: it does not, and nothing was written.
    pub async fn delete_if(
        &self,
        key: impl AsRef<[u8]>,
        expect: Expect,
    ) -> Result<Answered<Option<Version>>, Error> {
        self.conditional(self.one(key, expect.when(), Act::Delete))
            .await
    }

    /// Removes a live item and returns it: of all who take it, one has it.
    pub async fn take(&self, key: impl AsRef<[u8]>) -> Result<Answered<Option<Item>>, Error> {
        let answered = self.ask(self.one(key, When::Always, Act::Take)).await?;
        let token = answered.token;
        match answered.value {
            Reply::Taken(held) => Ok(Answered::new(Some(Item::held(held)), token)),
            Reply::Missed => Ok(Answered::new(None, token)),
            other => Err(unexpected(&other)),
        }
    }

    /// Reads an item, asks what to do with it, and does that if nobody else has written it meanwhile and it has not ended; else
    /// once more. `false`: it was left as it is. The closure runs on this node.
    ///
    /// # Errors
    /// [`Error::Conflict`] when others were quicker 64 times.
    pub async fn update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<Answered<bool>, Error> {
        let updated = self.fetch_update(key, change).await?;
        Ok(updated.map(|(_, version)| version.is_some()))
    }

    /// [`Container::update`] that tells the item that the closure was shown, and the version that was written.
    ///
    /// # Errors
    /// As there.
    pub async fn fetch_update(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<Answered<(Option<Item>, Option<Version>)>, Error> {
        let key = key.as_ref();
        for attempt in 1..=ATTEMPTS {
            let found = self.at(ReadLevel::Linearizable).item(key).await?;
            let token = found.token;
            let found = found.value;
            let when = match &found {
                Some(item) => When::Version(item.version.as_u64()),
                None => When::Absent,
            };
            let act = match (change(found.as_ref()), &found) {
                (Update::Write(value, ttl), _) => Act::Put(value, life(ttl)?),
                (Update::Expire(ttl), Some(_)) => Act::Expire(life(ttl)?),
                (Update::Delete, Some(_)) => Act::Delete,
                _ => return Ok(Answered::new((found, None), token)),
            };
            let done = self.conditional(self.one(key, when, act)).await?;
            if done.value.is_some() {
                return Ok(done.map(|version| (found, version)));
            }
            self.node.pause(attempt).await;
        }
        Err(Error::Conflict {
            container: self.name.to_string(),
            key: key.to_vec(),
        })
    }

    pub(super) async fn command(&self, what: Command) -> Result<Answered<()>, Error> {
        let container = self.name.to_string();
        let done = self.certain(Body::Command { container, what }).await?;
        Ok(done.map(drop))
    }

    /// Deletes every item of a range.
    pub async fn delete_range(&self, range: impl KeyBounds) -> Result<Answered<()>, Error> {
        let (start, end) = bounds(&range);
        self.command(Command::DeleteRange(start, end)).await
    }

    /// Changes what ends items that have no ttl of their own, at once for all of them.
    pub async fn set_default_ttl(
        &self,
        default: impl Into<DefaultTtl>,
    ) -> Result<Answered<()>, Error> {
        let default = default.into();
        let default = Ending::of(default)
            .ok_or_else(|| Error::Invalid(format!("a default ttl of {default:?}")))?;
        self.command(Command::SetDefault(default)).await
    }

    /// Sets the most live bytes that the container may hold, or lifts the limit: from 1 to 2^62. Items stay; if more is live, the
    /// next write that adds something is refused, or makes room.
    ///
    /// The node that leads keeps to it, by estimates of its own state: within 5 % of what is stored, and what is under way at the
    /// moment. A write that does not fit is not proposed: [`Error::Engine`] with [`ebbtide::Error::QuotaFull`], or, with
    /// [`WhenFull::ExpireSoonest`](ebbtide::WhenFull), it waits until an entry before it has expired what ends soonest, on all
    /// nodes alike, so that some 3 % are free. Deletions are never refused, nor is what replaces an item by no more bytes.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), ebbtide_cluster::Error> {
    /// # let folder = tempfile::tempdir()?;
    /// # let node = ebbtide_cluster::Node::open(folder.path()).await?;
    /// use std::time::Duration;
    /// use ebbtide::{Quota, WhenFull};
    ///
    /// let cache = node.create_container("cache").await?;
    /// cache.set_quota(Some(Quota { max_live_bytes: 1_000, when_full: WhenFull::ExpireSoonest })).await?;
    /// cache.put_with_ttl("later", "x".repeat(400), Duration::from_secs(60)).await?;
    /// cache.put_with_ttl("soon", "x".repeat(400), Duration::from_secs(30)).await?;
    /// cache.put_with_ttl("new", "x".repeat(400), Duration::from_secs(20)).await?;
    /// assert!(cache.get("soon").await?.value.is_none()); // it would have ended first
    /// assert!(cache.get("later").await?.value.is_some());
    /// # node.close().await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_quota(&self, quota: Option<Quota>) -> Result<Answered<()>, Error> {
        // Lifting a quota that is not there writes nothing, which `command` would take for an error.
        let what = Command::Quota(quota.map(Limit::of));
        let container = self.name.to_string();
        let done = self.ask(Body::Command { container, what }).await?;
        Ok(done.map(drop))
    }

    /// The quota, if there is one.
    pub async fn quota(&self) -> Result<Answered<Option<Quota>>, Error> {
        let name = self.name.clone();
        let read = move |node: &Shared, at_ms| node.at_one_moment(at_ms, || node.quota(&name));
        self.node.read(self.level, self.since, read).await
    }

    /// Expires, for good, whatever would end before this moment.
    pub async fn expire_before(&self, moment: SystemTime) -> Result<Answered<()>, Error> {
        self.command(Command::ExpireBefore(millis(moment))).await
    }

    /// Expires, for good, whatever was written before this moment, whatever its ttl.
    pub async fn expire_written_before(&self, moment: SystemTime) -> Result<Answered<()>, Error> {
        self.command(Command::ExpireWrittenBefore(millis(moment)))
            .await
    }

    /// Expires every item, for good.
    pub async fn expire_all(&self) -> Result<Answered<()>, Error> {
        self.command(Command::ExpireAll).await
    }

    /// The default ttl, which ends items that have none of their own.
    pub async fn default_ttl(&self) -> Result<Answered<DefaultTtl>, Error> {
        let name = self.name.clone();
        let read =
            move |node: &Shared, at_ms| node.at_one_moment(at_ms, || node.default_ttl(&name));
        self.node.read(self.level, self.since, read).await
    }

    /// The item of a key, unless it has ended.
    pub async fn item(&self, key: impl AsRef<[u8]>) -> Result<Answered<Option<Item>>, Error> {
        let (name, key) = (self.name.clone(), Bytes::copy_from_slice(key.as_ref()));
        let read = move |node: &Shared, at_ms| {
            let (item, at_ms) = node.get(&name, &key, at_ms)?;
            Ok((item.map(Item::of), at_ms))
        };
        self.node.read(self.level, self.since, read).await
    }

    /// The value of a key, unless it has ended.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Answered<Option<Bytes>>, Error> {
        Ok(self.item(key).await?.map(|item| item.map(Item::into_value)))
    }

    /// Whether there is an item of this key.
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<Answered<bool>, Error> {
        Ok(self.item(key).await?.map(|item| item.is_some()))
    }

    async fn view<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ebbtide::View) -> Result<T, ebbtide::Error> + Send + 'static,
    ) -> Result<Answered<T>, Error> {
        let name = self.name.clone();
        let read = move |node: &Shared, at_ms| {
            let view = node.view(&name, at_ms)?;
            let items = view.container(&*name).map_err(|error| match error {
                // Dropped meanwhile.
                ebbtide::Error::InvalidArgument { .. } => Error::NoContainer(name.to_string()),
                error => error.into(),
            })?;
            Ok((read(&items)?, view.at_ms))
        };
        self.node.read(self.level, self.since, read).await
    }

    /// The values of several keys, in the order asked, all of one moment.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Answered<Vec<Option<Bytes>>>, Error> {
        let keys = keys.into_iter().map(|key| key.as_ref().to_vec());
        let keys: Vec<_> = keys.collect();
        self.view(move |view| {
            let values = view.get_many(keys)?;
            let bytes = |value: Option<ebbtide::Value>| value.map(|value| value.into_bytes());
            Ok(values.into_iter().map(bytes).collect())
        })
        .await
    }

    /// The first items of a range, up to so many, in the order of keys, all of one moment. The next page begins behind the last key.
    pub async fn range(
        &self,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Answered<Vec<Item>>, Error> {
        let range = bounds(&range);
        self.view(move |view| {
            view.range(range)
                .take(most)
                .map(|item| item.map(Item::of))
                .collect()
        })
        .await
    }

    /// The last items of a range, up to so many, from the last key on, all of one moment.
    pub async fn range_back(
        &self,
        range: impl KeyBounds,
        most: usize,
    ) -> Result<Answered<Vec<Item>>, Error> {
        let range = bounds(&range);
        let last = move |view: &ebbtide::View| {
            let items = view.range(range).rev().take(most);
            items.map(|item| item.map(Item::of)).collect()
        };
        self.view(last).await
    }

    /// The first items whose keys begin so, up to so many.
    pub async fn prefix(
        &self,
        prefix: impl AsRef<[u8]>,
        most: usize,
    ) -> Result<Answered<Vec<Item>>, Error> {
        let prefix = prefix.as_ref().to_vec();
        self.view(move |view| {
            let items = view.prefix(prefix).take(most);
            items.map(|item| item.map(Item::of)).collect()
        })
        .await
    }

    /// The item with the lowest key.
    pub async fn first(&self) -> Result<Answered<Option<Item>>, Error> {
        self.view(|view| Ok(view.first()?.map(Item::of))).await
    }

    /// The item with the highest key.
    pub async fn last(&self) -> Result<Answered<Option<Item>>, Error> {
        self.view(|view| Ok(view.last()?.map(Item::of))).await
    }

    /// The number of items of a range, all of which are read.
    pub async fn count(&self, range: impl KeyBounds) -> Result<Answered<u64>, Error> {
        let range = bounds(&range);
        self.view(move |view| view.count(range)).await
    }

    /// Whether there is no item.
    pub async fn is_empty(&self) -> Result<Answered<bool>, Error> {
        Ok(self.first().await?.map(|first| first.is_none()))
    }
}
