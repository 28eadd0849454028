//! Items and their values, as users hold them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};

#[cfg(feature = "tokio")]
use crate::base::record::Kind;
use crate::base::record::{Header, MAX_KEY_LEN};
use crate::base::{Countdown, ItemTtl, Seq, Timestamp, Ttl};
use crate::data::version::Version;
use crate::expiry::Life;

/// The bytes of a value. Cheap to clone. A value that is stored uncompressed in a table is not copied, and the table's
/// file stays readable while the value is held. The value of a write that is not in a table yet is copied, unless it is
/// longer than a 64th of `Options::memtable_bytes`: then the memory of the writes beside it is kept while the value is
/// held (`Stats::pinned_memtable_bytes`).
///
/// ```
/// use std::collections::HashSet;
/// use ebbtide::{Database, Value};
///
/// let folder = tempfile::tempdir()?;
/// let c = Database::open(folder.path())?.container("c")?;
/// c.put("k", "some bytes")?;
/// let value: Value = c.get("k")?.unwrap();
/// assert_eq!(value.len(), 10); // a slice of bytes
/// assert_eq!(&value[5..], b"bytes");
/// let seen: HashSet<Value> = [value.clone()].into(); // also behind another handle, on another thread
/// assert!(seen.contains(&b"some bytes"[..]));
/// let owned: Vec<u8> = value.into(); // holds on to no file
/// # let _ = owned;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Value {
    bytes: Bytes,
    /// Where it begins in these bytes: a record's key may be before it.
    from: usize,
}

impl Value {
    /// The bytes as [`bytes::Bytes`], without a copy.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// c.put("k", "some bytes")?;
    /// let bytes: ebbtide::Bytes = c.get("k")?.unwrap().into_bytes();
    /// assert_eq!(bytes.slice(5..), "bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.bytes.advance(self.from);
        self.bytes
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(self).fmt(f)
    }
}

/// Shows bytes as a literal, cut to their beginning.
struct Shown<'a>(&'a [u8]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 64;
        let bytes = self.0;
        match bytes.get(..MOST) {
            Some(first) if bytes.len() > MOST => {
                let (shown, len) = (first.escape_ascii(), bytes.len());
                write!(f, "b\"{shown}\".. ({len} bytes)")
            }
            _ => write!(f, "b\"{}\"", bytes.escape_ascii()),
        }
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.into_bytes().into()
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        value.into_bytes()
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Value { bytes, from: 0 }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Comparing a value with other bytes, and with a reference to them.
macro_rules! equal_to {
    ($bytes:ty) => {
        impl PartialEq<$bytes> for Value {
            fn eq(&self, other: &$bytes) -> bool {
                let other: &[u8] = other.as_ref();
                **self == *other
            }
        }

        impl PartialEq<&$bytes> for Value {
            fn eq(&self, other: &&$bytes) -> bool {
                *self == **other
            }
        }
    };
}

equal_to!([u8]);
equal_to!(str);
equal_to!(Vec<u8>);
equal_to!(String);
equal_to!(Bytes);

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

/// An item as it was read.
#[derive(Clone)]
// In this order: copies move sixteen bytes at a time, and stall if they read bytes that were just stored in other
// pieces.
#[repr(C)]
pub struct Item {
    pair: Pair,
    seq: Seq,
    written_at: Timestamp,
    read_at: Timestamp,
    life: Life,
}

impl Item {
    /// `life`: under the settings of now; `read_at`: now.
    #[inline]
    pub(crate) fn new(pair: Pair, header: &Header, life: Life, read_at: Timestamp) -> Item {
        Item {
            pair,
            seq: header.seq,
            written_at: header.written_at,
            read_at,
            life,
        }
    }

    /// When it expires under the settings by which it was read; [`Timestamp::MAX`] for never.
    #[inline]
    pub(crate) fn end(&self) -> Timestamp {
        self.life.end(self.written_at)
    }

    /// When it ends; where it does not, the last moment that time comes to.
    pub(crate) fn end_or_last(&self) -> SystemTime {
        self.end().min(Timestamp::LAST).to_system_time()
    }

    /// 1 to 65 535 bytes.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.pair.key()
    }

    /// Up to 64 MiB.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &Value {
        &self.pair.value
    }

    /// When the item was last written, to the millisecond.
    #[must_use]
    pub fn written_at(&self) -> SystemTime {
        self.written_at.to_system_time()
    }

    /// The item's own ttl; never [`Ttl::Until`], which is stored as the lifetime that ends then: `After(0)` if that had
    /// passed, which is seen where ttl is off.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.stored_ttl().to_public()
    }

    /// When the item expires under the settings in force when it was read; `None` for never.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        let end = self.end();
        (end != Timestamp::MAX).then(|| end.to_system_time())
    }

    /// The version of the item: the place of its last write among all writes of the database.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.seq)
    }

    /// How long the item had left to live when it was read, under the settings in force then, to within some
    /// milliseconds; `None` if it never expires.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let tokens = Options::new().clock(clock.clone()).open(folder.path())?.container("tokens")?;
    /// tokens.put_with_ttl("t", "v", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(45));
    /// let item = tokens.item("t")?.unwrap();
    /// assert_eq!(item.remaining(), Some(Duration::from_secs(15)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let end = self.end();
        (end != Timestamp::MAX).then(|| Duration::from_millis(end.since(self.read_at)))
    }

    /// The value, without a copy.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.pair.value
    }

    /// Key and value. Neither is copied where they are contiguous, and then each keeps both alive.
    ///
    /// ```
    /// use ebbtide::Database;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let c = Database::open(folder.path())?.container("c")?;
    /// c.put("k", "v")?;
    /// for item in &c {
    ///     let (key, value) = item?.into_parts();
    ///     assert_eq!((&key[..], &value[..]), (&b"k"[..], &b"v"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_parts(self) -> (Bytes, Value) {
        self.pair.into_parts()
    }

    /// The item after a touch that was this write, under the settings by which it was read.
    pub(crate) fn touched(self, (seq, written_at): (Seq, Timestamp)) -> Item {
        Item {
            seq,
            written_at,
            read_at: written_at,
            ..self
        }
    }

    /// All that was stored of it but key and value.
    #[cfg(feature = "tokio")]
    pub(crate) fn header(&self) -> Header {
        Header {
            kind: Kind::Put,
            seq: self.seq,
            written_at: self.written_at,
            ttl: self.stored_ttl(),
        }
    }

    /// From when its life is counted, and its own ttl.
    pub(crate) fn countdown(&self) -> (Timestamp, ItemTtl) {
        (self.written_at, self.stored_ttl())
    }

    pub(crate) fn stored_ttl(&self) -> ItemTtl {
        self.life.ttl()
    }
}

impl Ttl {
    /// The lifetime of another item, as it is: the written item counts from the time from which that one did
    /// ([`Item::written_at`]), by the same ttl, and so ends when that one does; where that one inherits the default, it
    /// inherits that of its own container. Whether the other one was written since, or is still there, does not matter.
    ///
    /// A life that has passed counts: if an item that was written then, with that ttl, would have ended by now, be it under an
    /// earlier default of the container, the written one has, too, and leaves nothing but the end of what it replaces. A
    /// command of before ([`Container::expire_all`](crate::Container::expire_all)) does not reach it, as no write after it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ebbtide::{ManualClock, Options, Ttl};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let clock = ManualClock::new(1_800_000_000_000);
    /// let db = Options::new().clock(clock.clone()).open(folder.path())?;
    /// let (sessions, by_user) = (db.container("sessions")?, db.container("sessions by user")?);
    /// sessions.put_with_ttl("s-1", "ada", Duration::from_secs(60))?;
    /// clock.advance(Duration::from_secs(20));
    /// let session = sessions.item("s-1")?.unwrap();
    /// by_user.put_with_ttl("ada s-1", "", Ttl::Like(&session))?;
    /// clock.advance(Duration::from_secs(40)); // both end, in the same millisecond
    /// assert!(sessions.is_empty()? && by_user.is_empty()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(non_snake_case)]
    #[must_use]
    pub fn Like(item: &Item) -> Ttl {
        let (written_at, ttl) = item.countdown();
        Ttl::Since(Countdown::new(written_at, ttl))
    }
}

/// The time of reading does not count.
impl PartialEq for Item {
    fn eq(&self, other: &Item) -> bool {
        let rest = |item: &Item| (item.seq, item.written_at, item.life);
        self.pair == other.pair && rest(self) == rest(other)
    }
}

impl Eq for Item {}

impl Hash for Item {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.seq, self.key()).hash(state);
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Item");
        shown
            .field("key", &Shown(self.key()))
            .field("value", self.value())
            .field("version", &self.seq.0)
            .field("written_at", &format_args!("{}", self.written_at))
            .field("ttl", &self.ttl());
        match self.end() {
            Timestamp::MAX => shown.field("expires_at", &format_args!("never")),
            end => shown.field("expires_at", &format_args!("{end}")),
        };
        shown.finish()
    }
}

/// A record's key and value. Contiguous ones share one reference count: a scan takes and drops one for each item.
#[derive(Clone)]
pub struct Pair {
    value: Value,
    /// The key, if it is not contiguous with its value.
    key: Option<Box<Bytes>>,
}

impl Pair {
    /// Of contiguous bytes: a key of `key_len` bytes, then its value.
    #[inline]
    pub fn of_piece(bytes: Bytes, key_len: usize) -> Pair {
        debug_assert!(key_len <= bytes.len() && key_len <= MAX_KEY_LEN);
        let from = key_len;
        Pair {
            key: None,
            value: Value { bytes, from },
        }
    }

    /// Of separate bytes.
    pub fn new(key: Bytes, value: Bytes) -> Pair {
        Pair {
            key: Some(Box::new(key)),
            value: value.into(),
        }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match &self.key {
            Some(key) => key,
            None => &self.value.bytes[..self.value.from],
        }
    }

    /// Both.
    pub fn into_parts(self) -> (Bytes, Value) {
        let key = match self.key {
            Some(key) => *key,
            None => self.value.bytes.slice(..self.value.from),
        };
        (key, self.value)
    }

    /// The bytes of both, if they are contiguous; else key and value.
    pub fn into_piece(self) -> Result<Bytes, (Bytes, Bytes)> {
        match self.key {
            None => Ok(self.value.bytes),
            Some(key) => Err((*key, self.value.bytes.slice(self.value.from..))),
        }
    }

    /// The value.
    #[cfg(test)]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Pair) -> bool {
        self.key() == other.key() && self.value == other.value
    }
}

impl Eq for Pair {}
