//! Items and their values, as users hold them.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::time::SystemTime;

use bytes::{Buf, Bytes};

use crate::base::record::{Header, MAX_KEY_LEN};
use crate::base::{ItemTtl, Seq, Timestamp, Ttl};
use crate::data::version::Version;
use crate::expiry::Life;

/// The bytes of a value. Cheap to clone; where they lie uncompressed in a table, they are not copied, and the table's
/// file stays readable as long as the value is held. Of a write that is not in a table yet they are copied, unless they are
/// more than a 64th of `Options::memtable_bytes`: then the memory of the writes beside it stays as long as the value is held
/// (`Stats::pinned_memtable_bytes`).
#[derive(Clone, Default)]
pub struct Value {
    bytes: Bytes,
    /// Where in these it begins: a record's key may lie before it.
    from: usize,
}

impl Value {
    /// The bytes as [`bytes::Bytes`], without a copy.
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
        self.clone().into_bytes().fmt(f)
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

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value
where
    T: NotValue,
{
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

/// What a [`Value`] can be compared with, besides another one.
#[doc(hidden)]
pub trait NotValue {}
impl NotValue for [u8] {}
impl NotValue for str {}
impl NotValue for Vec<u8> {}
impl NotValue for String {}
impl NotValue for Bytes {}
impl<const N: usize> NotValue for [u8; N] {}
impl<T: NotValue + ?Sized> NotValue for &T {}

/// An item as it was found.
#[derive(Clone, PartialEq, Eq)]
// In this order: copies go by sixteen bytes, and wait where one of them was made of other pieces than it is read by.
#[repr(C)]
pub struct Item {
    pair: Pair,
    seq: Seq,
    written_at: Timestamp,
    life: Life,
}

impl Item {
    /// `life`: under the settings of now.
    #[inline]
    pub(crate) fn new(pair: Pair, header: &Header, life: Life) -> Item {
        Item {
            pair,
            seq: header.seq,
            written_at: header.written_at,
            life,
        }
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

    /// The item's own ttl; never [`Ttl::Until`], which is stored as the lifetime that ends then.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.stored_ttl().to_public()
    }

    /// When the item expires under the settings in force when it was read; `None` for never.
    #[must_use]
    pub fn expires_at(&self) -> Option<SystemTime> {
        let end = self.life.end(self.written_at);
        (end != Timestamp::MAX).then(|| end.to_system_time())
    }

    /// The place of the item's last write among all writes of the database.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(self.seq)
    }

    pub(crate) fn stored_ttl(&self) -> ItemTtl {
        self.life.ttl()
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("key", &Bytes::copy_from_slice(self.key()))
            .field("value", self.value())
            .field("version", &self.seq.0)
            .field("written_at", &self.written_at)
            .field("ttl", &self.stored_ttl())
            .field("expires_at", &self.life.end(self.written_at))
            .finish()
    }
}

/// A record's key and value. Where they lie in one piece they are kept by one count: a scan takes and drops one for each
/// item.
#[derive(Clone)]
pub struct Pair {
    value: Value,
    /// The key, when it lies elsewhere than before its value.
    key: Option<Box<Bytes>>,
}

impl Pair {
    /// Of a piece: a key of `key_len` bytes, then its value.
    #[inline]
    pub fn of_piece(bytes: Bytes, key_len: usize) -> Pair {
        debug_assert!(key_len <= bytes.len() && key_len <= MAX_KEY_LEN);
        let from = key_len;
        Pair {
            key: None,
            value: Value { bytes, from },
        }
    }

    /// Of two pieces.
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
