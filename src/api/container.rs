//! Containers, the items in them, batches and snapshots, as users meet them.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::base::counters::ContainerStats;
use crate::base::record::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::base::{ContainerId, DefaultTtl, Error, Result, Timestamp, Ttl};
use crate::data::batch::{KeyRange, Op, WriteTtl};
use crate::data::item::{Item, Value};
use crate::engine::{ContainerState, Engine, Reader, Scan, SnapshotPin, Verdict, Writes};
use crate::expiry::{DefaultMillis, ttl_millis};

/// What [`Container::update`] does with the item it was shown.
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

/// A named, ordered set of items with its own expiry settings. Cheap to clone; clones are the same container.
///
/// ```
/// use std::time::Duration;
/// use ebbtide::{Database, DefaultTtl, Ttl};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let sessions = db.container("sessions")?;
/// sessions.set_default_ttl(DefaultTtl::After(Duration::from_secs(1_800)))?;
///
/// sessions.put("s-1", r#"{"user":"ada"}"#)?;
/// sessions.put_with_ttl("s-2", "remembered", Ttl::Never)?;
/// assert_eq!(sessions.get("s-1")?.unwrap(), r#"{"user":"ada"}"#);
/// assert!(!sessions.create("s-1", "taken", Ttl::Inherit)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Container {
    engine: Arc<Engine>,
    state: Arc<ContainerState>,
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

impl Container {
    pub(crate) fn new(engine: Arc<Engine>, state: Arc<ContainerState>) -> Self {
        Container { engine, state }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.state.name()
    }

    /// What becomes of items without a ttl of their own.
    #[must_use]
    pub fn default_ttl(&self) -> DefaultTtl {
        self.state.settings().default.to_public()
    }

    /// Changes the default, at once for every item, whenever it was written; nothing is rewritten, and what is expired
    /// now stays gone. Durable when it returns.
    ///
    /// # Errors
    /// A lifetime out of range; [`Error::ClockUnsettled`] while the wall clock has leapt ahead and nobody confirmed it.
    pub fn set_default_ttl(&self, default: DefaultTtl) -> Result<()> {
        self.engine
            .set_default(&self.state, DefaultMillis::from_public(default)?)
    }

    /// Stores an item that inherits the container's default.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_ttl(key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own. The countdown starts now, whatever was stored before.
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Ttl,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_item(key, value)?;
        let ttl = self.write_ttl(ttl)?;
        self.engine.write_one(
            &self.state,
            Op::Put {
                container: self.state.id(),
                ttl,
                key,
                value,
            },
        )
    }

    /// Stores an item if no live one has the key. False: one has, and nothing was written.
    pub fn create(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Ttl) -> Result<bool> {
        let value = value.as_ref();
        let ttl = self.write_ttl(ttl)?;
        self.conditionally(key.as_ref(), value.len(), |found| match found {
            Some(_) => Verdict::Keep,
            None => Verdict::Put(value.to_vec(), ttl),
        })
    }

    /// Stores an item if a live one has the key. False: none has, and nothing was written.
    pub fn replace(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Ttl,
    ) -> Result<bool> {
        let value = value.as_ref();
        let ttl = self.write_ttl(ttl)?;
        self.conditionally(key.as_ref(), value.len(), |found| match found {
            Some(_) => Verdict::Put(value.to_vec(), ttl),
            None => Verdict::Keep,
        })
    }

    /// Restarts the countdown of a live item; keeps value and ttl. False: there is none.
    pub fn touch(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.conditionally(key.as_ref(), 0, |found| match found {
            Some(item) => Verdict::Put(item.value().to_vec(), item.stored_ttl().into()),
            None => Verdict::Keep,
        })
    }

    /// Reads an item and decides what becomes of it, as one step: nobody writes the key in between, and the item neither
    /// expires nor is there again by a clock that was put right. The closure is called again when that happened. True: the
    /// item was changed.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&Item>) -> Update,
    ) -> Result<bool> {
        let mut refused = None;
        let changed = self.conditionally(key.as_ref(), 0, |found| {
            refused = None;
            match decide(found) {
                Update::Keep => Verdict::Keep,
                Update::Delete => Verdict::Delete,
                Update::Put(value, ttl) => {
                    let ttl = check_value(&value).and_then(|()| self.write_ttl(ttl));
                    match ttl {
                        Ok(ttl) => Verdict::Put(value, ttl),
                        Err(error) => {
                            refused = Some(error);
                            Verdict::Keep
                        }
                    }
                }
            }
        })?;
        refused.map_or(Ok(changed), Err)
    }

    fn conditionally(
        &self,
        key: &[u8],
        value_len: usize,
        mut decide: impl FnMut(Option<&Item>) -> Verdict,
    ) -> Result<bool> {
        check_key(key)?;
        check_value_len(value_len)?;
        self.engine
            .update(&self.state, key, &mut |item| decide(item.as_ref()))
    }

    /// Deletes an item, blindly: it is no error when there is none.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        check_key(key)?;
        self.engine.write_one(
            &self.state,
            Op::Delete {
                container: self.state.id(),
                key,
            },
        )
    }

    /// Deletes every item whose key lies in the range, in one step, however many they are. A bound is no longer than a
    /// key may be, 65 535 bytes; one that is empty lies before all keys.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        check_bound(range.start_bound())?;
        check_bound(range.end_bound())?;
        let range = key_range(range);
        if range.is_empty() {
            return self.engine.check_open(&self.state);
        }
        let to = range.to.as_deref().unwrap_or_default();
        let op = Op::DeleteRange {
            container: self.state.id(),
            from: &range.from,
            to,
        };
        self.engine.write_one(&self.state, op)
    }

    /// The value of a live item.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reader().get(key.as_ref())
    }

    /// A live item with all that is known of it.
    pub fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.reader().item(key.as_ref())
    }

    /// Whether a live item has the key.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains(key.as_ref())
    }

    /// All live items, in the order of keys. What was written before the call is seen, and nothing later; whether an
    /// item is live is judged when it is reached.
    pub fn iter(&self) -> Iter {
        self.reader().range(KeyRange {
            from: vec![],
            to: None,
        })
    }

    /// As [`Container::iter`], for the keys in a range.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.reader().range(key_range(range))
    }

    /// As [`Container::iter`], for the keys that start with these bytes.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.reader().range(prefix_range(prefix.as_ref()))
    }

    /// About how many items can be read now: [`ContainerStats::live_items`] without the rest. Exact while no more than a
    /// thousand are stored, or have been put since a range delete of all others; counting them exactly is
    /// `iter().count()`. 0 when the container was dropped.
    #[must_use]
    pub fn len_estimate(&self) -> u64 {
        self.engine.len_estimate(&self.state)
    }

    /// The container in numbers.
    #[must_use]
    pub fn stats(&self) -> ContainerStats {
        self.engine.container_stats(&self.state)
    }

    fn reader(&self) -> Reading<'_> {
        Reading {
            engine: &self.engine,
            reader: Reader {
                state: &self.state,
                snapshot: None,
            },
        }
    }

    fn write_ttl(&self, ttl: Ttl) -> Result<WriteTtl> {
        Ok(match ttl {
            Ttl::Inherit => WriteTtl::Absent,
            Ttl::Never => WriteTtl::Never,
            Ttl::After(duration) => WriteTtl::Millis(ttl_millis(duration)?),
            Ttl::Until(moment) => self.engine.until(Timestamp::from_system_time_up(moment))?,
        })
    }
}

/// One way of reading, shared by containers and snapshots.
struct Reading<'a> {
    engine: &'a Arc<Engine>,
    reader: Reader<'a>,
}

impl Reading<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        check_key(key)?;
        Ok(self.engine.get(&self.reader, key)?.map(Value::from))
    }

    fn item(&self, key: &[u8]) -> Result<Option<Item>> {
        check_key(key)?;
        self.engine.item(&self.reader, key)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.engine.contains(&self.reader, key)
    }

    fn range(&self, range: KeyRange) -> Iter {
        Iter {
            scan: Some(Engine::scan(self.engine, &self.reader, range)),
        }
    }
}

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

/// The writes up to a moment, over all containers. It freezes which writes are seen, never the clock or the settings:
/// an item that expires is gone from it too.
#[derive(Clone)]
#[must_use = "what was written is kept for it as long as it is held"]
pub struct Snapshot {
    engine: Arc<Engine>,
    pin: Arc<SnapshotPin>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(engine: Arc<Engine>, pin: SnapshotPin) -> Self {
        Snapshot {
            engine,
            pin: Arc::new(pin),
        }
    }

    /// A container as it was written then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there is no container of this name, or only a later one.
    pub fn container(&self, name: impl AsRef<str>) -> Result<View> {
        let state = self.engine.existing_container(name.as_ref(), &self.pin)?;
        Ok(View {
            engine: self.engine.clone(),
            state,
            pin: self.pin.clone(),
        })
    }
}

/// A container through a [`Snapshot`].
#[derive(Clone)]
pub struct View {
    engine: Arc<Engine>,
    state: Arc<ContainerState>,
    pin: Arc<SnapshotPin>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("name", &self.state.name())
            .finish_non_exhaustive()
    }
}

impl View {
    /// The value of a live item.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.reader().get(key.as_ref())
    }

    /// A live item with all that is known of it.
    pub fn item(&self, key: impl AsRef<[u8]>) -> Result<Option<Item>> {
        self.reader().item(key.as_ref())
    }

    /// Whether a live item has the key.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.reader().contains(key.as_ref())
    }

    /// All live items, in the order of keys.
    pub fn iter(&self) -> Iter {
        self.reader().range(KeyRange {
            from: vec![],
            to: None,
        })
    }

    /// The live items whose key lies in a range.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        self.reader().range(key_range(range))
    }

    /// The live items whose key starts with these bytes.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.reader().range(prefix_range(prefix.as_ref()))
    }

    fn reader(&self) -> Reading<'_> {
        let reader = Reader {
            state: &self.state,
            snapshot: Some(&self.pin),
        };
        Reading {
            engine: &self.engine,
            reader,
        }
    }
}

/// Writes that become visible and durable together, over any containers of one database.
///
/// ```
/// use ebbtide::{Batch, Database};
///
/// let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path())?;
/// let (orders, keys) = (db.container("orders")?, db.container("idempotency-keys")?);
/// let mut batch = Batch::new();
/// batch.put(&orders, "o-17", "42 apples");
/// batch.put(&keys, "k-9f3", "o-17");
/// db.write(batch)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "nothing is written before the database is given it"]
pub struct Batch {
    writes: Writes,
    /// The first write that is not allowed; the batch is refused for it, as a whole.
    refused: Option<Error>,
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// Without writes.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Stores an item that inherits the container's default.
    pub fn put(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.put_with_ttl(container, key, value, Ttl::Inherit)
    }

    /// Stores an item with a ttl of its own.
    pub fn put_with_ttl(
        &mut self,
        container: &Container,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Ttl,
    ) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        let ttl = check_item(key, value).and_then(|()| container.write_ttl(ttl));
        self.push(
            container,
            ttl.map(|ttl| {
                move |container| Op::Put {
                    container,
                    ttl,
                    key,
                    value,
                }
            }),
        )
    }

    /// Deletes an item, blindly.
    pub fn delete(&mut self, container: &Container, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        self.push(
            container,
            check_key(key).map(|()| move |container| Op::Delete { container, key }),
        )
    }

    fn push<'k>(
        &mut self,
        container: &Container,
        op: Result<impl FnOnce(ContainerId) -> Op<'k>>,
    ) -> &mut Self {
        let pushed = op.and_then(|op| {
            self.writes.push(
                &container.engine,
                &container.state,
                op(container.state.id()),
            )
        });
        if let Err(error) = pushed {
            self.refused.get_or_insert(error);
        }
        self
    }

    /// How many writes it holds; a refused one is not among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// It holds no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets every write, refused ones too.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.refused = None;
    }

    pub(crate) fn checked(&self) -> Result<&Writes> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => Ok(&self.writes),
        }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_LEN {
        return Err(Error::invalid(
            "key",
            format!("of {} bytes", key.len()),
            "1 to 65535 bytes",
        ));
    }
    Ok(())
}

fn check_bound<K: AsRef<[u8]>>(bound: Bound<&K>) -> Result<()> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.as_ref().len() > MAX_KEY_LEN => {
            let len = key.as_ref().len();
            let value = format!("of {len} bytes");
            Err(Error::invalid("bound", value, "up to 65535 bytes"))
        }
        _ => Ok(()),
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    check_value_len(value.len())
}

fn check_value_len(len: usize) -> Result<()> {
    if len > MAX_VALUE_LEN {
        return Err(Error::invalid(
            "value",
            format!("of {len} bytes"),
            "up to 67108864 bytes (64 MiB)",
        ));
    }
    Ok(())
}

fn check_item(key: &[u8], value: &[u8]) -> Result<()> {
    check_key(key)?;
    check_value(value)
}

/// The half-open range of the keys that `range` admits: the key right behind `k` is `k` and a zero byte.
fn key_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> KeyRange {
    let behind = |key: &K| [key.as_ref(), &[0]].concat();
    let from = match range.start_bound() {
        Bound::Included(key) => key.as_ref().to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => vec![],
    };
    let to = match range.end_bound() {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    KeyRange { from, to }
}

/// The range of the keys that start with `prefix`: up to the prefix with its last byte below 0xff raised.
fn prefix_range(prefix: &[u8]) -> KeyRange {
    let raised = prefix.iter().rposition(|&byte| byte < 0xff).map(|at| {
        let mut to = prefix[..=at].to_vec();
        to[at] += 1;
        to
    });
    KeyRange {
        from: prefix.to_vec(),
        to: raised,
    }
}
